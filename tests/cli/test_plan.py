"""`anabranch plan` and `anabranch compare` on profiles and applications."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from anabranch.cli import COMMANDS, command_of, planning
from anabranch.planning.plan import Plan
from anabranch.planning.planners.registry import PLANNERS
from tests.sampling import thorough

CHAIN: dict[str, Any] = {
    "operators": [
        {"name": "read", "state": "stateful", "cost": 10, "selectivity": 1},
        {"name": "parse", "state": "stateless", "cost": 30, "selectivity": 0.5},
        {"name": "count", "state": "partitioned", "key": ["k"], "cost": 20, "selectivity": 1},
    ],
    "overheads": {"thread_switch": 1, "replication": 0.5},
}


@pytest.fixture
def run(command_line, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    return command_line


def written(name: str, data: object) -> Path:
    file = Path(name)
    file.write_text(json.dumps(data), encoding="utf-8")
    return file


def test_a_profile_is_planned_by_the_exact_planner_unless_another_is_named(run):
    answer = json.loads(run("plan", written("p.json", CHAIN), "--machine", "cores=8", "--json").out)
    assert answer.keys() == {
        "planner",
        "throughput",
        "utilization",
        "threads",
        "solve_ms",
        "bound",
        "gap",
        "regions",
        "serial",
    }
    assert answer["planner"] == "exact"
    # The reader bounds it: 10 of its own, and 1 to hand a tuple on.
    assert answer["throughput"] == pytest.approx(1 / 11)
    assert answer["regions"][0]["operators"] == ["read"]
    assert {name for region in answer["regions"] for name in region["operators"]} == {
        "read",
        "parse",
        "count",
    }


def test_a_region_says_what_it_is(run):
    answer = json.loads(
        run(
            "plan",
            written("p.json", CHAIN),
            "--machine",
            "cores=4",
            "--planner",
            "fission",
            "--json",
        ).out
    )
    last = answer["regions"][-1]
    assert (last["kind"], last["key"]) == ("partitioned", ["k"])
    assert [name for pipeline in last["pipelines"] for name in pipeline] == last["operators"]
    assert last["replicas"] >= 2


def test_edges_make_a_graph_and_may_have_their_own_selectivity(run):
    graph = {
        "operators": [{"name": name, "cost": 10, "selectivity": 1} for name in ("s", "a", "b")],
        "edges": [["s", "a", 0.25], ["s", "b"]],
    }
    answer = json.loads(
        run(
            "plan",
            written("g.json", graph),
            "--machine",
            "cores=8",
            "--planner",
            "sequential",
            "--json",
        ).out
    )
    assert answer["throughput"] == pytest.approx(1 / 10)
    assert answer["utilization"] == pytest.approx(1 + 0.25 + 1)


def test_threads_bound_the_exact_planner(run):
    profile = written("p.json", CHAIN)
    for threads in (1, 2, 3):
        shown = run("plan", profile, "--machine", "cores=4", "--threads", threads, "--json")
        assert json.loads(shown.out)["threads"] <= threads


def test_a_plan_of_a_profile_is_shown_as_a_tree(run):
    shown = run("plan", written("p.json", CHAIN), "--machine", "cores=2", "--planner", "sequential")
    assert shown.out.splitlines()[1:] == [
        "0.02, 1.00 of 2 cores at work, 1 thread",
        "└─ stateful: 1 replica",
        "   └─ read · parse · count",
        "20 % of the work is serial: at most 5 cores can help",
        "  20 %  `read` is stateful",
    ]


def test_a_plan_of_a_profile_bounds_the_cores_that_help_by_the_slowest_serial_operator(run):
    two = broken(lambda data: data["operators"][1].update(state="stateful"))
    shown = run("plan", written("p.json", two), "--machine", "cores=8")
    assert shown.out.splitlines()[-3:] == [
        "80 % of the work is serial: at most 1.7 cores can help, since `parse` takes 60 %",
        "  60 %  `parse` is stateful",
        "  20 %  `read` is stateful",
    ]
    found = json.loads(run("plan", "p.json", "--machine", "cores=8", "--json").out)["serial"]
    assert (found["share"], found["most_cores"]) == (pytest.approx(0.8), pytest.approx(50 / 30))
    assert found["regions"][0]["region"] == "parse"
    assert (found["regions"][0]["why"], found["regions"][0]["share"]) == ("is stateful", 0.6)


def test_an_application_without_costs_names_what_is_serial_and_why(run):
    shown = run("plan", "network-monitoring").out.splitlines()
    listed = shown[shown.index("serial, whatever the plan:") + 1 :]
    assert "  `out` writes in the order of event time" in listed
    found = json.loads(run("plan", "network-monitoring", "--json").out)["serial"]
    assert [each["region"] for each in found["regions"]] == [line.split("`")[1] for line in listed]
    assert found["most_cores"] is None


def test_a_plan_with_its_serial_regions_can_be_checked_and_run_again(run):
    Path("plan.json").write_text(run("plan", "word-count", "--json").out, encoding="utf-8")
    assert run("plan", "word-count", "--plan", "plan.json").code == 0


def test_an_application_with_costs_has_the_share_of_each(run):
    shown = run("plan", "micro-joker-chain", "--machine", "cores=4").out.splitlines()
    head = next(line for line in shown if "of the work is serial: at most" in line)
    assert "since `mult4` takes" in head
    assert any(line.endswith(" %  `mult4` is stateful") for line in shown)


@thorough
def test_compare_shows_every_planner(run):
    shown = run("compare", written("p.json", CHAIN), "--machine", "cores=2")
    assert shown.code == 0, shown.err
    assert [line.split()[0] for line in shown.out.splitlines()[2:]] == list(PLANNERS)
    answers = json.loads(run("compare", "p.json", "--machine", "cores=2", "--json").out)
    assert [answer["planner"] for answer in answers] == list(PLANNERS)


def test_compare_goes_on_where_one_planner_refuses(run):
    many = {"operators": [{"name": f"o{n}", "cost": 10, "selectivity": 1} for n in range(14)]}
    shown = run("compare", written("m.json", many), "--machine", "cores=16")
    line = next(line for line in shown.out.splitlines() if line.startswith("exhaustive"))
    assert "use the planner 'exact'" in line


def broken(change: Any) -> dict[str, Any]:
    data = json.loads(json.dumps(CHAIN))
    change(data)
    return data


OPERATORS = "operators"
BAD_PROFILES = {
    "negative cost": (lambda d: d[OPERATORS][1].update(cost=-3), "operators[1] 'parse'.cost", "-3"),
    "cost that is no number": (lambda d: d[OPERATORS][1].update(cost="3"), "'parse'.cost", '"3"'),
    "infinite cost": (
        lambda d: d[OPERATORS][1].update(cost=float("inf")),
        "'parse'.cost",
        "Infinity",
    ),
    "no cost": (lambda d: d[OPERATORS][1].pop("cost"), "a field 'cost'", "none"),
    "unknown state": (lambda d: d[OPERATORS][0].update(state="statefull"), ".state", '"statefull"'),
    "negative selectivity": (
        lambda d: d[OPERATORS][2].update(selectivity=-0.5),
        ".selectivity",
        "-0.5",
    ),
    "no key": (lambda d: d[OPERATORS][2].pop("key"), "'count'.key", "null"),
    "replicas of nothing": (lambda d: d[OPERATORS][2].update(max_replicas=0), ".max_replicas", "0"),
    "misspelt field": (
        lambda d: d[OPERATORS][2].update(max_replica=2),
        "fields among",
        "'max_replica'",
    ),
    "same name twice": (lambda d: d[OPERATORS][2].update(name="read"), "its own name", "read"),
    "dangling edge": (lambda d: d.update(edges=[["read", "pares"]]), "edges[0]", "'pares'"),
    "edge of one end": (lambda d: d.update(edges=[["read"]]), "edges[0]", '["read"]'),
    "cycle": (
        lambda d: d.update(edges=[["read", "parse"], ["parse", "count"], ["count", "parse"]]),
        "without cycles",
        "['parse', 'count']",
    ),
    "edge twice": (
        lambda d: d.update(edges=[["read", "parse"]] * 2),
        "each edge once",
        "['read', 'parse']",
    ),
    "negative overhead": (
        lambda d: d["overheads"].update(thread_switch=-1),
        ".thread_switch",
        "-1",
    ),
    "no operators": (lambda d: d.update(operators=[]), ".operators", "[]"),
    "unknown field": (lambda d: d.update(overhead={}), "fields among", "'overhead'"),
    "edge of lists": (lambda d: d.update(edges=[[["read"], "parse"]]), "edges[0]", "['read']"),
    "cost without end": (lambda d: d[OPERATORS][1].update(cost=10**400), "'parse'.cost", "1000"),
    "costs that overflow": (lambda d: d[OPERATORS][1].update(cost=1e200), "below 1e+100", "e+200"),
    "unknown unit": (lambda d: d.update(unit="min"), ".unit", '"min"'),
}


@pytest.mark.parametrize("name", BAD_PROFILES)
def test_a_bad_profile_is_refused_by_field_and_value(run, name: str):
    change, field, value = BAD_PROFILES[name]
    shown = run("plan", written("p.json", broken(change)), "--machine", "cores=2")
    assert (shown.code, shown.out) == (2, "")
    assert field in shown.err
    assert f"got {value}" in shown.err or value in shown.err.partition(", got ")[2]


SQUARE = [[0, 1], [1, 0]]
BAD_MACHINES = {
    "rows missing": (
        {"sockets": 3, "cores_per_socket": 1, "latency_ns": SQUARE},
        "latency_ns",
        "rows of [2, 2]",
    ),
    "row too short": (
        {"sockets": 2, "cores_per_socket": 1, "bandwidth_mb_s": [[1, 2], [1]]},
        "bandwidth_mb_s",
        "rows of [2, 1]",
    ),
    "negative latency": (
        {"sockets": 2, "cores_per_socket": 1, "latency_ns": [[0, -1], [1, 0]]},
        "latency_ns[0]",
        "-1",
    ),
    "overheads of no engine": (
        {"cores": 2, "overheads": [{"replication": 1}]},
        ".overheads",
        '[{"replication": 1}]',
    ),
    "overheads of an engine": (
        {"cores": 2, "overheads": {"local": {"replication": -1}}},
        ".overheads.local.replication",
        "-1",
    ),
    "no cores": ({"sockets": 2}, "cores_per_socket", "['sockets']"),
    "cores of nothing": ({"cores": 0}, ".cores", "0"),
    "no bandwidth": (
        {"sockets": 2, "cores_per_socket": 1, "bandwidth_mb_s": [[1, 0], [1, 1]]},
        "bandwidth_mb_s[0]",
        "0",
    ),
    "uneven sockets": ({"sockets": 3, "cores": 8}, ".cores", "8"),
    "uneven nodes": ({"sockets": 4, "cores_per_socket": 2, "nodes": 3}, "nodes", "3"),
}


@pytest.mark.parametrize("name", BAD_MACHINES)
def test_a_bad_machine_is_refused_by_field_and_value(run, name: str):
    data, field, value = BAD_MACHINES[name]
    machine = written("m.json", data)
    shown = run("plan", written("p.json", CHAIN), "--machine", machine)
    assert (shown.code, shown.out) == (2, "")
    assert field in shown.err
    assert f"got {value}" in shown.err


def test_files_that_are_not_json_or_not_there_are_refused(run):
    Path("p.json").write_text("{operators: []}", encoding="utf-8")
    assert "expected JSON" in run("plan", "p.json").err
    assert "anabranch profile APP --out FILE" in run("plan", "nowhere.json").err
    written("p.json", CHAIN)
    assert "anabranch calibrate --out FILE" in run("plan", "p.json", "--machine", "none.json").err
    assert "cores=N with N of 1 or more" in run("plan", "p.json", "--machine", "cores=zero").err


def test_an_unknown_planner_is_refused_with_those_there_are(run):
    shown = run("plan", written("p.json", CHAIN), "--planner", "best")
    assert shown.code == 2
    assert "'exact'" in shown.err


def test_an_application_is_planned_within_its_regions_and_the_plan_can_be_saved(run):
    shown = run(
        "plan",
        "word-count",
        "--machine",
        "cores=4",
        "--planner",
        "exact",
        "--save",
        "plan.json",
        "--json",
    )
    answer = json.loads(shown.out)
    assert [region["operators"] for region in answer["regions"]] == [
        ["lines"],
        ["split", "count.combine"],
        ["count"],
        ["out"],
    ]
    plan = Plan.from_json(Path("plan.json").read_text(encoding="utf-8"))
    assert plan.region("split").replicas == answer["regions"][1]["replicas"]
    assert run("plan", "word-count", "--plan", "plan.json").code == 0


def test_a_profile_of_another_application_is_refused(run):
    shown = run("plan", "word-count", "--profile", written("p.json", CHAIN), "--planner", "exact")
    assert "a profile with the steps" in shown.err


def test_planners_agree_on_what_cores_can_take_in(run):
    """However they count, no planner may promise more tuples than the cores have time for."""
    words = {
        "operators": [
            {"name": "read", "state": "stateless", "cost": 2e-6, "selectivity": 1},
            {"name": "split", "state": "stateless", "cost": 6e-6, "selectivity": 10},
            {"name": "count", "state": "partitioned", "key": ["w"], "cost": 1e-6, "selectivity": 1},
        ],
        "edges": [],
    }
    answers = json.loads(
        run("compare", written("w.json", words), "--machine", "cores=4", "--json").out
    )
    most = 4 / (2e-6 + 6e-6 + 10 * 1e-6)
    taken = {each["planner"]: each.get("throughput_in", each["throughput"]) for each in answers}
    assert len(taken) == len(PLANNERS)
    assert all(rate <= most * (1 + 1e-9) for rate in taken.values()), taken
    assert taken["rlas"] == taken["rlas-certified"] >= 0.7 * taken["exact"]


def test_a_file_does_not_hide_an_application_of_its_name(run):
    Path("word-count").write_text("no profile", encoding="utf-8")
    assert run("plan", "word-count").out.startswith("plan for word-count")


def test_what_parallelism_costs_comes_from_the_machine_by_engine(run):
    dear = {"thread_switch": 5000, "replication": 500_000}
    machine = written("m.json", {"cores": 4, "overheads": {"local": dear}})
    costs = {"operators": [{"name": "o", "cost": 10, "selectivity": 1}], "unit": "us"}
    plan = ("plan", written("p.json", costs), "--machine", machine, "--json")
    assert json.loads(run(*plan).out)["regions"][0]["replicas"] == 1
    assert json.loads(run(*plan, "--engine", "spark").out)["regions"][0]["replicas"] == 4
    assert "an engine among" in run(*plan, "--engine", "flink").err


# --- the user's own files and settings -----------------------------------------------------------


@pytest.fixture
def bids(run):
    """A file with bids, which a query parses; generated ones need no such step."""
    run("data", "nexmark-q2", "--rows", "50", "--out", "bids.csv")
    return ("--input", "bids.csv")


def test_a_plan_made_with_the_input_of_a_run_fits_that_run(run, bids):
    Path("plan.json").write_text(run("plan", "nexmark-q2", *bids, "--json").out)
    started = ("run", "nexmark-q2", "--engine", "local", "--json", "--plan", "plan.json")
    ran = run(*started, *bids)
    assert (ran.code, json.loads(ran.out)["skipped"]) == (0, {})
    refused = run(*started)
    assert refused.code == 2
    assert "plan again, with the input and settings of this run" in refused.err


def test_a_plan_made_with_the_settings_of_a_run_fits_that_run(run):
    other = ("--set", "shape=diamond")
    Path("plan.json").write_text(run("plan", "micro", *other, "--json").out)
    started = ("run", "micro", "--engine", "local", "--rows", "20", "--plan", "plan.json")
    assert run(*started, *other).code == 0
    assert run(*started).code == 2


@pytest.mark.parametrize(
    "command",
    [
        ("plan", "nexmark-q2", "--planner", "exact"),
        ("compare", "nexmark-q2"),
        ("simulate", "nexmark-q2", "--plan", "plan.json", "--seconds", "0.1"),
        ("size", "nexmark-q2", "--rate", "10"),
        ("profile", "nexmark-q2"),
    ],
)
def test_commands_work_on_the_flow_that_reads_the_input(run, monkeypatch, bids, command):
    monkeypatch.setattr(planning, "PLANNERS", {"fission": PLANNERS["fission"]})
    Path("plan.json").write_text(run("plan", "nexmark-q2", *bids, "--json").out)
    ran = run(*command, *bids, "--json")
    assert (ran.code, "bid.parse" in ran.out) == (0, True)


@pytest.mark.parametrize("out", [(), ("--out", "results")], ids=["summed up", "written"])
def test_a_checkpoint_of_a_run_on_files_is_rolled_back_with_the_same_input(run, bids, out):
    run("run", "nexmark-q2", "--engine", "local", "--checkpoint", "kept", *bids, *out)
    back = ("rollback", "nexmark-q2", "--checkpoint", "kept", "--to", "0")
    assert run(*back, *bids).code == 0
    assert "bid.data" in run(*back).err


@pytest.mark.parametrize("option", ["--input", "--set"])
@pytest.mark.parametrize("command", ["plan", "compare", "simulate", "size"])
def test_a_profile_has_no_input_and_no_settings(run, command, option):
    rate = ("--rate", "1") if command == "size" else ()
    ran = run(command, written("p.json", CHAIN), *rate, option, "rows=1")
    assert ran.code
    assert f"{option} goes with an application, not with a profile" in " ".join(ran.err.split())


def test_each_command_about_an_application_takes_its_input_and_settings():
    commands = {
        name: command_of(module, name) for module, names in COMMANDS.items() for name in names
    }
    options = {
        name: {option for each in command.params for option in each.opts}
        for name, command in commands.items()
        if any("APP" in (each.metavar or "") for each in command.params) and name != "apps"
    }
    assert len(options) > 8
    options.pop("data")  # writes what is generated
    assert [name for name, known in options.items() if not {"--input", "--set"} <= known] == []
