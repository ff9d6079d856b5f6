"""Worker processes are started once, do one job after the other, and end with their parent."""

import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pyarrow as pa
import pytest

from anabranch.engines.local import forwarding
from anabranch.engines.local.crew import Crew
from anabranch.engines.local.mesh import Lost, Mesh
from anabranch.engines.local.worker import Failed
from anabranch.errors import EngineError
from tests.waiting import wait_until

pytestmark = pytest.mark.skipif(not Crew.available(), reason="needs Unix sockets")

LIMIT_S = 60.0
END_LIMIT_S = 20.0
"""Workers end within milliseconds; a loaded machine may take longer, their jobs take far longer."""


@pytest.fixture(scope="module")
def crew():
    made = Crew()
    yield made
    made.close()


@contextlib.contextmanager
def running(crew, count, main, *arguments, **options):
    """Run a job, and give its workers back."""
    workers = crew.take(count)
    mesh = crew.connect(workers)
    try:
        crew.run(mesh, main, *arguments, **options)
        yield mesh, workers
    finally:
        mesh.close()
        crew.give_back(workers)


def received(mesh: Mesh, count: int) -> list[tuple[int, object]]:
    """Return that many messages, in the order of their senders."""
    messages: list[tuple[int, object]] = []
    end = time.monotonic() + LIMIT_S
    while len(messages) < count:
        assert time.monotonic() < end, f"received {messages}"
        messages += mesh.poll(1.0)
    return sorted(messages, key=lambda message: message[0])


def answers(crew, count, main, *arguments):
    with running(crew, count, main, *arguments) as (mesh, _):
        return [message for _, message in received(mesh, count)]


def test_each_worker_calls_the_function_with_its_mesh_and_the_arguments(crew):
    assert answers(crew, 2, lambda mesh, a, b: mesh.send(0, (mesh.number, a + b)), 3, 4) == [
        (1, 7),
        (2, 7),
    ]


def test_workers_are_connected_to_each_other(crew):
    def main(mesh):
        others = [number for number in mesh.peers if number != 0]
        mesh.send_all(others, f"from {mesh.number}")
        texts = []
        while len(texts) < len(others):
            texts += [text for _, text in mesh.poll(None)]
        mesh.send(0, sorted(texts))

    assert answers(crew, 3, main) == [
        ["from 2", "from 3"],
        ["from 1", "from 3"],
        ["from 1", "from 2"],
    ]


def test_workers_are_used_again(crew):
    def main(mesh):
        mesh.send(0, os.getpid())

    assert answers(crew, 2, main) == answers(crew, 2, main)


def test_a_table_is_shared_by_all_workers(crew):
    table = pa.table({"n": np.arange(500_000)})

    def main(mesh, table):
        mesh.send(0, (table.num_rows, table["n"].chunk(0).buffers()[1].is_mutable))

    workers = crew.take(2)
    mesh = crew.connect(workers)
    crew.run(mesh, main, table)
    assert mesh.arena.used < 2 * table.nbytes
    assert [message for _, message in received(mesh, 2)] == [(500_000, False)] * 2
    mesh.close()
    crew.give_back(workers)


def test_a_function_may_write_to_its_arrays(crew):
    counts = np.zeros(10_000)

    def main(mesh):
        counts[0] += 1
        mesh.send(0, counts[0])

    assert answers(crew, 1, main) == [1.0]


def test_an_error_arrives_as_it_was_raised_with_its_traceback(crew):
    class OwnError(Exception):
        pass

    def main(mesh):
        raise OwnError("on purpose")

    [failed] = answers(crew, 1, main)
    assert isinstance(failed, Failed)
    assert isinstance(failed.error, OwnError)
    assert "in main" in failed.traceback


def test_an_error_that_cannot_be_pickled_arrives_as_text(crew):
    class OwnError(Exception):
        def __init__(self) -> None:
            super().__init__("on purpose")
            self.lock = threading.Lock()

    def main(mesh):
        raise OwnError

    [failed] = answers(crew, 1, main)
    assert (type(failed.error), str(failed.error)) == (RuntimeError, "OwnError: on purpose")


def test_a_worker_whose_job_failed_does_the_next_one(crew):
    def main(mesh, divisor):
        mesh.send(0, (1 // divisor, os.getpid()))

    first = answers(crew, 1, main, 1)
    assert isinstance(answers(crew, 1, main, 0)[0], Failed)
    assert answers(crew, 1, main, 1) == first


def test_what_cannot_be_sent_is_an_error_that_names_the_step(crew):
    lock = threading.Lock()
    with (
        pytest.raises(EngineError, match=r"step 'locked': .*lock"),
        running(crew, 1, lambda mesh: lock, steps={"fine": len, "locked": lambda: lock}),
    ):
        pass


def test_what_cannot_be_loaded_is_a_named_error(crew):
    class Unloadable:
        def __reduce__(self):
            return __import__, ("a_module_that_nobody_has",)

    [failed] = answers(crew, 1, lambda mesh, argument: None, Unloadable())
    assert isinstance(failed.error, EngineError)
    assert "a_module_that_nobody_has" in str(failed.error)


def test_a_worker_that_is_killed_is_lost_and_replaced(crew):
    with running(crew, 2, lambda mesh: mesh.discard_until_lost(0)) as (mesh, workers):
        os.kill(workers[0].pid, signal.SIGKILL)
        assert received(mesh, 1) == [(1, Lost(1))]
        assert workers[0].describe_exit() == "killed by SIGKILL"
    assert answers(crew, 2, lambda mesh: mesh.send(0, "here")) == ["here", "here"]


def test_the_exit_code_of_a_worker_is_described(crew):
    with running(crew, 1, lambda mesh: os._exit(3)) as (mesh, workers):
        assert received(mesh, 1) == [(1, Lost(1))]
        assert workers[0].describe_exit() == "exited with code 3"


def test_a_worker_that_does_not_become_idle_is_killed(monkeypatch):
    monkeypatch.setattr("anabranch.engines.local.crew.GRACE_S", 0.1)
    crew = Crew()
    workers = crew.take(1)
    mesh = crew.connect(workers)
    crew.run(mesh, lambda mesh: sum(range(10**12)))
    mesh.close()
    crew.give_back(workers)
    assert workers[0].describe_exit() == "killed by SIGKILL"
    crew.close()


def test_a_worker_whose_job_leaves_a_thread_behind_is_not_used_again(crew):
    def main(mesh):
        threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
        mesh.send(0, os.getpid())

    def pid(mesh):
        mesh.send(0, os.getpid())

    assert answers(crew, 1, main) != answers(crew, 1, pid)


def test_a_job_has_the_folder_path_and_environment_of_its_time(crew, tmp_path, monkeypatch):
    def main(mesh):
        import module_of_the_user

        mesh.send(0, (os.getcwd(), os.environ["OF_THE_USER"], module_of_the_user.VALUE))

    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for value in (1, 22):  # the module changes between two jobs of the same worker
        monkeypatch.setenv("OF_THE_USER", str(value))
        (tmp_path / "module_of_the_user.py").write_text(f"VALUE = {value}")
        assert answers(crew, 1, main) == [(str(tmp_path), str(value), value)]


def test_threads_take_different_workers(crew):
    taken: list[int] = []

    def use() -> None:
        with running(crew, 1, lambda mesh: mesh.send(0, os.getpid())) as (mesh, _):
            taken.append(received(mesh, 1)[0][1])
            barrier.wait(LIMIT_S)

    barrier = threading.Barrier(3)
    threads = [threading.Thread(target=use) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
    assert len(set(taken)) == 3


def test_lines_that_a_step_prints_are_shown_with_its_name(crew, capsys):
    def main(mesh):
        forwarding.current.step = "split"
        print("one\ntwo")
        print("not ", end="")
        print("three", file=sys.stderr)
        print("complete", end="")

    with running(crew, 1, main) as (mesh, _):
        for _, message in received(mesh, 3):
            forwarding.show(message)
    captured = capsys.readouterr()
    assert captured.out == "split: one\nsplit: two\nsplit: not complete\n"
    assert captured.err == "split: three\n"


def test_bytes_that_a_step_writes_are_shown_as_text_in_their_place(crew, capsys):
    def main(mesh):
        print("text ", end="")
        sys.stdout.buffer.write("and bytes: ü".encode()[:-1])
        sys.stdout.buffer.write("ü".encode()[1:] + b"\nno UTF-8: \xff\n")
        print("\udcff", file=sys.stderr)

    with running(crew, 1, main) as (mesh, _):
        for _, message in received(mesh, 2):
            forwarding.show(message)
    assert capsys.readouterr() == ("text and bytes: ü\nno UTF-8: \ufffd\n", "\\udcff\n")


def test_log_records_of_a_step_are_handled_here_with_its_name(crew, caplog):
    def main(mesh):
        forwarding.current.step = "split"
        logging.getLogger("of.user").debug("not shown")
        logging.getLogger("of.user").info("value %s", threading.Lock().__class__.__name__)

    with caplog.at_level(logging.INFO), running(crew, 1, main) as (mesh, _):
        [(_, message)] = received(mesh, 1)
        forwarding.show(message)
    [record] = caplog.records
    assert (record.name, record.getMessage(), record.step) == ("of.user", "value lock", "split")


SCRIPT = """
import os, sys, time
from anabranch.engines.local.crew import Crew

class Own:
    value = 5

def main(mesh, own):
    mesh.send(0, own.value)
    mesh.flush()
    {work}

crew = Crew()
workers = crew.take(2)
mesh = crew.connect(workers)
crew.run(mesh, main, Own())
got = []
while len(got) < 2:
    got += mesh.poll(None)
print([message for _, message in sorted(got)], flush=True)
{after}
"""


def script(work: str, after: str) -> subprocess.Popen[str]:
    code = SCRIPT.format(work=work, after=after)
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)


def test_a_script_without_a_guard_works_and_ends():
    with script("pass", "") as process:
        assert process.communicate(timeout=LIMIT_S)[0] == "[5, 5]\n"
    assert process.returncode == 0


@pytest.mark.parametrize(
    "work",
    ["time.sleep(1000)", "sum(range(10**12))", "mesh.discard_until_lost(0)"],
    ids=["sleeping", "holding the lock of Python", "waiting"],
)
def test_workers_end_when_their_parent_is_killed(work):
    """Workers hold the same standard output, whose end shows that all of them are gone."""
    with script(work, "time.sleep(1000)") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "[5, 5]\n"
        process.kill()
        assert process.communicate(timeout=END_LIMIT_S) == ("", None)


def test_idle_workers_end_when_their_parent_is_killed():
    with script("pass", "mesh.close(); crew.give_back(workers); time.sleep(1000)") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "[5, 5]\n"
        process.kill()
        assert process.communicate(timeout=END_LIMIT_S) == ("", None)


def test_a_forked_process_neither_uses_nor_keeps_the_workers_of_its_parent():
    """The child outlives its parent, with another standard output than the workers."""
    after = """
if os.fork() == 0:
    print(os.getpid(), len(crew._idle) + len(crew._taken), flush=True)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    time.sleep(1000)
time.sleep(1000)
"""
    with script("time.sleep(1000)", after) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "[5, 5]\n"
        child, workers = process.stdout.readline().split()
        process.kill()
        try:
            assert process.communicate(timeout=END_LIMIT_S) == ("", None)
        finally:
            os.kill(int(child), signal.SIGKILL)
    assert workers == "0"


def test_a_worker_that_was_not_used_is_kept(crew):
    workers = crew.take(1)
    crew.give_back(workers)
    assert crew.take(1) == workers
    crew.give_back(workers)


def test_idle_workers_beyond_the_cores_end_after_a_while(monkeypatch):
    monkeypatch.setattr("anabranch.engines.local.crew.usable_cpus", lambda: {0})
    monkeypatch.setattr("anabranch.engines.local.crew.DISMISS_S", 0.0)
    crew = Crew()
    first, second, third = crew.take(3)
    crew.give_back([first, second])
    wait_until(lambda: second.returncode is not None)
    crew.give_back([third])
    wait_until(lambda: first.returncode is not None)
    assert (third.returncode, crew.take(1)) == (None, [third])
    crew.close()


def test_idle_workers_beyond_the_cores_are_used_again_before_that(monkeypatch):
    monkeypatch.setattr("anabranch.engines.local.crew.usable_cpus", lambda: {0})
    crew = Crew()
    workers = crew.take(2)
    crew.give_back(workers)
    assert crew.take(2) == workers
    crew.close()


FLAGS = """
import sys
from anabranch.engines.local.crew import Crew

crew = Crew()
workers = crew.take(1)
mesh = crew.connect(workers)
crew.run(mesh, lambda mesh: mesh.send(0, (sys.flags.optimize, sys.flags.dev_mode, sys.warnoptions)))
[(_, there)] = mesh.poll(None)
mesh.close()
crew.give_back(workers)
crew.close()
print(there == (sys.flags.optimize, sys.flags.dev_mode, sys.warnoptions), there)
"""


@pytest.mark.parametrize(
    ("flags", "seen"),
    [
        (["-OO", "-W", "error::UserWarning"], "(2, False, ['error::UserWarning'])"),
        (["-X", "dev"], "(0, True, ['default'])"),
        ([], "(0, False, [])"),
    ],
)
def test_workers_have_the_flags_of_the_interpreter(flags, seen):
    command = [sys.executable, *flags, "-c", FLAGS]
    environment = {name: v for name, v in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=LIMIT_S, check=True, env=environment
    )
    assert (done.stdout, done.stderr) == (f"True {seen}\n", "")


@pytest.mark.skipif(not os.path.isdir("/dev/shm"), reason="looks into /dev/shm")
def test_a_killed_run_leaves_no_shared_memory_behind():
    before = set(os.listdir("/dev/shm"))
    with script("time.sleep(1000)", "time.sleep(1000)") as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.kill()
        process.communicate(timeout=END_LIMIT_S)
    assert set(os.listdir("/dev/shm")) <= before
