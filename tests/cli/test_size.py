"""`anabranch size`: cores for a target, two topologies side by side, and what goes wrong."""

from __future__ import annotations

import json
from math import inf

import pytest
import typer
from typer.testing import CliRunner

from anabranch.apps import word_count
from anabranch.cli import sizing
from anabranch.cli.exits import WRONG_RESULT
from anabranch.errors import AnabranchError, PlanError
from anabranch.planning.sizing import Shortfall, Sizing, Target
from anabranch.view.sizing_report import as_object

PROFILE = {
    "app": "demo",
    "unit": "ms",
    "operators": [
        {"name": "parse", "cost": 1},
        {"name": "count", "cost": 4, "state": "partitioned", "key": ["word"]},
        {"name": "write", "cost": 0.5, "state": "stateful"},
    ],
    "overheads": {"thread_switch": 0, "replication": 0},
}
SPARK = {"cores": 2, "spark": {"batch_s": 0.2, "stage_s": 0.05, "task_s": 0.01}}


@pytest.fixture
def file(tmp_path):
    """A function that writes a JSON file, and says where."""

    def write(name, data):
        path = tmp_path / name
        path.write_text(json.dumps(data), encoding="utf-8")
        return str(path)

    return write


@pytest.fixture
def word_count_file(file):
    """A profile of word count."""
    costs = {"lines": 0.5, "split": 0.4, "count.combine": 0.1, "count": 0.3, "out": 0.01}
    graph = word_count.build().graph
    steps = [{"name": name, "cost": cost} for name, cost in costs.items()]
    assert set(costs) == set(graph.steps)
    return file("wc.json", {"app": "word-count", "unit": "us", "operators": steps})


def size(*arguments, expected=0):
    """Call the command; gives what it printed."""
    cli = typer.Typer()
    sizing.register(cli)
    cli.command("other")(lambda: None)  # with one command alone, its name would be left out
    result = CliRunner().invoke(cli, ["size", *arguments])
    if isinstance(result.exception, AnabranchError):
        raise result.exception
    assert result.exit_code == expected, result.output
    return result.output


def test_a_profile_is_sized(file):
    told = size(file("p.json", PROFILE), "--rate", "500", "--latency-ms", "100")
    assert "demo: 500 rows/s, 99 % within 100 ms, 20% headroom" in told
    assert "\n4 cores (3 to 4)\n" in told
    assert "replicas of parse · count" in told
    assert "how sure" in told


def test_as_json_it_is_one_object(file):
    told = json.loads(size(file("p.json", PROFILE), "--rate", "500", "--json"))
    assert [told[case]["cores"] for case in ("well", "fit", "badly")] == [3, 4, 4]
    assert told["fit"]["rate_per_s"] >= 600
    assert told["fit"]["busy_cores"] == pytest.approx(2.75)


def test_a_target_out_of_reach_names_the_bottleneck_and_fails(file):
    told = size(file("p.json", PROFILE), "--rate", "5000", expected=WRONG_RESULT)
    assert "cannot be done: 2,000 rows/s at most; write is the bottleneck" in told
    assert "stateful" in told


def test_two_topologies_stand_side_by_side(file):
    waiting = {"name": "wait", "cost": 2}
    longer = {**PROFILE, "app": "slow", "operators": [waiting, *PROFILE["operators"]]}
    arguments = (file("p.json", PROFILE), "--rate", "500", "--against", file("q.json", longer))
    told = size(*arguments)
    assert "demo needs less: 4 cores, slow 5" in told
    both = json.loads(size(*arguments, "--json"))
    assert [each["name"] for each in both] == ["demo", "slow"]


def test_the_examples_say_what_waiting_costs():
    told = size(
        "examples/tweet_words.json",
        *("--rate", "2000", "--latency-ms", "50"),
        *("--against", "examples/tweet_words_waiting.json"),
    )
    assert "tweet-words needs less: 2 cores, tweet-words-waiting 5" in told


def test_an_application_gets_jumbo_tuples_that_its_latency_allows(word_count_file):
    common = ("word-count", "--profile", word_count_file, "--rate", "500000", "--json")
    slow = json.loads(size(*common, "--latency-ms", "500"))
    fast = json.loads(size(*common, "--latency-ms", "20"))
    assert slow["fit"]["batch_rows"] == 16_384 > fast["fit"]["batch_rows"]
    assert fast["fit"]["latency_p99_ms"] <= 20


def test_a_low_rate_does_not_wait_for_full_jumbo_tuples(word_count_file):
    common = ("word-count", "--profile", word_count_file, "--rate", "1000", "--json")
    found = json.loads(size(*common, "--latency-ms", "50"))["fit"]
    assert found["cores"] == 1
    assert found["latency_p99_ms"] < 20  # 8 to 11 ms were measured


def test_a_plan_that_is_always_at_work_is_no_answer(file):
    alone = {**PROFILE, "operators": [{"name": "write", "cost": 1, "state": "stateful"}]}
    common = (file("p.json", alone), "--rate", "1000", "--headroom", "0")
    told = json.loads(size(*common, "--json", expected=WRONG_RESULT))
    assert (told["fit"]["cores"], told["fit"]["what"]) == (None, "rate")
    assert "cannot be done" in size(*common, expected=WRONG_RESULT)


def test_a_time_without_end_is_null_in_json():
    endless = Sizing("demo", Target(1.0), *[Shortfall("latency", inf, "")] * 3)
    assert json.loads(json.dumps(as_object(endless), allow_nan=False))["fit"]["best"] is None


def test_on_spark_batches_are_as_long_as_their_rows_take(file, word_count_file):
    machine = file("m.json", SPARK)
    common = ("word-count", "--profile", word_count_file, "--engine", "spark", "--json")
    one = json.loads(size(*common, "--machine", machine, "--rate", "200000"))
    assert one["fit"]["cores"] == 1
    assert one["fit"]["latency_p99_ms"] > 2 * 200
    more = json.loads(size(*common, "--machine", machine, "--rate", "2000000"))
    assert more["well"]["cores"] <= more["fit"]["cores"] <= more["badly"]["cores"]
    assert more["fit"]["cores"] > 1


def test_spark_without_its_costs_is_refused(file, word_count_file):
    arguments = ("word-count", "--profile", word_count_file, "--engine", "spark", "--rate", "1")
    with pytest.raises(PlanError, match="calibrate --engine spark"):
        size(*arguments, "--machine", file("m.json", {"cores": 2}))


def test_a_profile_alone_has_no_stages(file):
    with pytest.raises(PlanError, match="an application"):
        size(
            file("p.json", PROFILE),
            *("--engine", "spark", "--machine", file("m.json", SPARK), "--rate", "1"),
        )


def test_a_rate_has_to_be_above_nothing(file):
    with pytest.raises(PlanError, match="argument 'rate'"):
        size(file("p.json", PROFILE), "--rate", "0")
