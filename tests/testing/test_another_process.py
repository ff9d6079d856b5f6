"""`check` against operators that depend on the process that runs them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from datetime import datetime
from itertools import combinations, islice
from types import ModuleType

import pytest

import anabranch as ab
from anabranch.errors import EngineError, OperatorError
from anabranch.flow import Flow
from anabranch.io.collect_sink import CollectSink
from anabranch.testing import another_process, check, run_sequential
from anabranch.testing.another_process import (
    OtherProcess,
    Surroundings,
    Unsendable,
    cause,
    other_surroundings,
)

LINES = [{"line": " ".join(three)} for three in combinations("abcdefgh", 3)]
"""So many sets that they do not all keep their order under another hash seed."""


def through(work, out: str) -> Flow:
    """A flow with a step 'suspect' between two honest ones."""
    flow = Flow("f")
    stream = flow.source("s", ab.memory(LINES)).map("before", lambda b: {}, keeps="*")
    stream = stream.map("suspect", work, out=out)
    stream.map("after", lambda b: {}, keeps="*").sink("out", ab.collect())
    return flow


def value_of(function, out: str = "v: string") -> Flow:
    """A flow whose suspect gives every row what a function returns."""
    return through(lambda b: {"v": [function()] * b.num_rows}, out)


def first_of_a_set() -> Flow:
    return through(
        lambda b: {"v": [next(iter(set(line.split()))) for line in b["line"].to_pylist()]},
        "v: string",
    )


@pytest.mark.parametrize(
    ("build", "question"),
    [
        (first_of_a_set, "depends on the hash seed of the process, such as the order of a set"),
        (
            lambda: value_of(os.getpid, "v: int64"),
            "depends on the process itself, such as its id",
        ),
    ],
    ids=["the order of a set", "the process id"],
)
def test_what_depends_on_the_process_is_found_and_named(build, question):
    report = check(build(), cases=1, processes=1)
    finding = report.finding
    assert finding is not None
    assert (finding.question, finding.step, finding.input.size) == (question, "suspect", 1)
    assert "found by another process (hash seed: PYTHONHASHSEED=" in str(report)
    assert ", time zone: TZ=ANA" in str(report)
    assert ", another working directory); smallest input" in str(report)


def test_other_processes_are_left_out_on_demand(monkeypatch):
    monkeypatch.setattr(subprocess, "Popen", None)
    report = check(first_of_a_set(), cases=1, processes=0)
    assert str(report) == (
        "f: 3 random plans, interleavings, batchings and plan changes over 56 rows "
        "agree with the sequential run"
    )


# --- flows that cannot be sent --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (threading.Lock, "_thread.lock"),
        (lambda: (x for x in "ab"), "generator"),
        (socket.socket, "socket"),
    ],
)
def test_a_flow_that_cannot_be_sent_is_checked_without_and_says_so(make, named, monkeypatch):
    monkeypatch.setattr(subprocess, "Popen", None)
    held = make()
    report = check(value_of(lambda: type(held).__name__), cases=1)
    getattr(held, "close", lambda: None)()
    assert (report.ok, report.processes) == (True, 0)
    said, _, why = str(report).partition("\n")
    assert said.endswith("plan changes over 56 rows agree with the sequential run")
    assert why.startswith(
        "not run in another process, because it cannot be sent to one: step 'suspect': TypeError: "
    )
    assert named in why


def test_a_sink_that_cannot_be_sent_stays_behind():
    class Locked(CollectSink):
        held = threading.Lock()

    flow = Flow("f")
    flow.source("s", ab.memory(LINES)).sink("out", Locked())
    sent = another_process._packed(flow)
    assert b"Locked" not in sent


# --- one process for several flows ---------------------------------------------------------------


@pytest.fixture(scope="module")
def other():
    with tempfile.TemporaryDirectory() as folder:
        found = next(other_surroundings(seed=0, folder=folder))
        with OtherProcess(found) as process:
            yield process


def shown(result) -> set:
    return {row["v"] for row in result.rows("out")}


def test_it_has_another_hash_seed_time_zone_and_working_directory(other):
    flow = value_of(lambda: f"{hash('a')} {datetime.fromtimestamp(0).isoformat()} {os.getcwd()}")
    (here,), (there,) = (shown(run_sequential(flow)), shown(other.run(flow)[0]))
    assert not set(here.split()) & set(there.split())
    assert there.split()[2] == os.path.realpath(other.surroundings.folder)


def test_it_has_the_flags_of_this_interpreter(monkeypatch):
    monkeypatch.setattr(another_process, "interpreter_flags", lambda: ["-O"])
    with OtherProcess(Surroundings(1)) as fresh:
        assert shown(fresh.run(value_of(lambda: str(sys.flags.optimize)))[0]) == {"1"}


def test_it_finds_modules_that_this_process_finds(other, tmp_path, monkeypatch):
    (tmp_path / "found_nearby.py").write_text("def value(): return 'x'\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, ""])
    import found_nearby

    flow = value_of(found_nearby.value)
    with OtherProcess(Surroundings(1, folder=other.surroundings.folder)) as fresh:
        assert shown(fresh.run(flow)[0]) == {"x"}


def test_what_operators_print_and_read_does_not_disturb(other):
    def chatty():
        print("to standard output")
        os.write(1, b"and below it")
        return sys.stdin.read()

    assert shown(other.run(value_of(chatty))[0]) == {""}


def module_only_here(monkeypatch) -> ModuleType:
    module = ModuleType("only_here")
    exec("def value(): return 'x'", vars(module))
    monkeypatch.setitem(sys.modules, "only_here", module)
    return module


def test_a_module_that_it_cannot_import_is_no_difference(other, monkeypatch):
    flow = value_of(module_only_here(monkeypatch).value)
    with pytest.raises(Unsendable, match="ModuleNotFoundError: No module named 'only_here'"):
        other.run(flow)


def test_a_module_that_it_cannot_import_while_it_runs_is_no_difference(other, monkeypatch):
    module_only_here(monkeypatch)

    def late():
        import only_here

        return only_here.value()

    with pytest.raises(Unsendable, match="ModuleNotFoundError: No module named 'only_here'"):
        other.run(value_of(late))


def test_an_error_there_names_its_step(other):
    pid = os.getpid()
    with pytest.raises(OperatorError, match="ValueError: not here") as caught:
        other.run(value_of(lambda: _only_in(pid)))
    assert caught.value.step == "suspect"


def _only_in(pid: int) -> str:
    if os.getpid() != pid:
        raise ValueError("not here")
    return ""


# --- failures ------------------------------------------------------------------------------------


def test_a_process_that_dies_is_an_error_with_its_last_words():
    def die():
        print("last words", file=sys.stderr, flush=True)
        os._exit(3)

    with (
        OtherProcess(Surroundings(1)) as mortal,
        pytest.raises(EngineError, match=r"exit code 3: last words; .* processes=0"),
    ):
        mortal.run(value_of(die))


def test_a_process_that_takes_too_long_is_an_error_and_is_gone():
    with OtherProcess(Surroundings(1), time_limit_s=0.0) as slow:
        with pytest.raises(EngineError, match="no result after 0 s"):
            slow.run(value_of(time.monotonic, "v: double"))
        process = slow._process
        assert process.poll() is None
    assert process.poll() is not None


def test_an_interpreter_that_is_missing_is_an_error(monkeypatch):
    monkeypatch.setattr(sys, "executable", "no/such/python")
    with pytest.raises(EngineError, match="no/such/python"):
        check(first_of_a_set(), cases=1)


def test_a_failure_while_the_input_is_cut_down_does_not_hide_the_difference(monkeypatch):
    run, asked = OtherProcess.run, []

    def once(process, flow):
        asked.append(flow)
        if len(asked) > 1:
            raise EngineError("check", "a result", "nothing", "try again")
        return run(process, flow)

    monkeypatch.setattr(OtherProcess, "run", once)
    finding = check(value_of(os.getpid, "v: int64"), cases=1, processes=1).finding
    assert (finding.question, finding.step) == ("differs in another process", "suspect")


# --- surroundings --------------------------------------------------------------------------------


@pytest.mark.parametrize("own", ["0", "1", "2", "random"])
def test_hash_seeds_are_not_the_one_of_this_process(monkeypatch, own):
    monkeypatch.setenv("PYTHONHASHSEED", own)
    seeds = [str(s.hash_seed) for s in islice(other_surroundings(0, "."), 3)]
    assert len({*seeds, own}) == 4


@pytest.mark.parametrize("seed", [-5, 2**32 - 1, 2**40])
def test_any_seed_gives_hash_seeds_that_python_takes(seed):
    assert all(0 <= s.hash_seed < 2**32 for s in islice(other_surroundings(seed, "."), 3))


@pytest.mark.parametrize("zone", another_process.ZONES)
def test_time_zones_are_not_the_one_of_this_process(monkeypatch, zone):
    monkeypatch.setattr(time, "timezone", 0)
    monkeypatch.setattr(time, "altzone", another_process.ZONES[zone])
    zones = {s.time_zone for s in islice(other_surroundings(0, "."), 4)}
    assert zones == set(another_process.ZONES) - {zone}


class Imitated:
    """A process whose result is a function of its surroundings."""

    def __init__(self, surroundings, time_limit_s=1.0, result=None):
        self.surroundings, self.time_limit_s = surroundings, time_limit_s
        self.result = result or Imitated.usual

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def run(self, flow):
        value = self.result(self.surroundings)
        return run_sequential(value_of(lambda: value)), {}


def failing(surroundings) -> str:
    if surroundings.folder is not None:
        raise OperatorError("suspect", "a file", "none", "give its whole path")
    return ""


@pytest.mark.parametrize(
    ("result", "named"),
    [
        (lambda s: str(time.perf_counter_ns()), "the process itself, such as its id"),
        (lambda s: str(s.hash_seed), "the hash seed of the process, such as the order of a set"),
        (lambda s: str(s.time_zone), "the time zone of the process"),
        (lambda s: str(s.folder), "the working directory of the process"),
        (failing, "the working directory of the process"),
        (lambda s: "other than in the first process", None),
    ],
)
def test_the_property_that_alone_changes_the_result_is_the_cause(monkeypatch, result, named):
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    monkeypatch.setattr(another_process, "OtherProcess", Imitated)
    monkeypatch.setattr(Imitated, "usual", staticmethod(result), raising=False)
    flow = value_of(lambda: "")
    assert cause(flow, flow, Imitated(Surroundings(1, "ANA-13:45", "elsewhere"))) == named


# --- where it is called --------------------------------------------------------------------------

SCRIPT = """
import anabranch as ab
print("once")

def doubled(batch):
    return {"v": [2 * x for x in batch["x"].to_pylist()]}

flow = ab.Flow("mine")
stream = flow.source("s", ab.memory([{"x": 1}, {"x": 2}]))
stream.map("double", doubled, out="v: int64").sink("out", ab.collect())
print(ab.check(flow, cases=1, processes=1))
"""


def test_a_script_without_a_guard_runs_once():
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=100, check=False
    )
    assert (ran.stdout, ran.stderr) == (
        "once\nmine: 4 random plans, interleavings, batchings, plan changes and other processes "
        "over 2 rows agree with the sequential run\n",
        "",
    )


def test_on_an_engine_other_processes_are_asked_first(monkeypatch):
    monkeypatch.setattr(sys.modules[check.__module__], "cause", lambda *_: None)
    flow = value_of(os.getpid, "v: int64")
    report = check(flow, engine="local", cases=1, rows=3, processes=1)
    assert (report.finding.step, report.runs) == ("suspect", 2)
