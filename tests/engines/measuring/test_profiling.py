"""Profiles of flows: costs on a scripted clock, everything else on real data."""

from threading import Event

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.apps import word_count
from anabranch.engines.measuring.busy_flows import busy_flow
from anabranch.engines.measuring.profiling import (
    Stopwatch,
    cost_us,
    costs_us,
    measure_flow,
    profile_flow,
    rehearse,
)
from anabranch.errors import BuildError
from anabranch.flow import Flow
from anabranch.graph import StateKind
from anabranch.io import collect, generate, memory, parquet
from anabranch.io.sink import Guarantee, Traits
from anabranch.planning.plan import Plan
from anabranch.planning.profile import OperatorProfile, chain, profile_text, read_profile


class EvenWatch(Stopwatch):
    """Every call takes a millisecond."""

    def time(self, call):
        return call(), 1_000_000


@ab.partitioned(key="user", out="user: string, n: int64")
def visits(ctx):
    for _ in ctx.tuples():
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        if ctx.state["n"] % 2:
            ctx.emit(n=ctx.state["n"])


def clicks(rows=120):
    users = ["ann", "ann", "ann", "ben", "cat", "dan"]
    return memory([{"user": users[n % 6], "page": n} for n in range(rows)])


def site(sink=None, source=None):
    flow = Flow("site", buckets=16)
    (
        flow.source("clicks", source or clicks())
        .filter("some", lambda batch: [n % 4 != 0 for n in batch["page"].to_pylist()])
        .apply("visits", visits)
        .sink("out", sink or collect())
    )
    return flow


def small_batches(flow, rows=10):
    plan = Plan.sequential(flow)
    for source in plan.sources:
        plan = plan.with_source(source.source, batch_rows=rows)
    return plan


def test_cost_is_the_time_of_a_call_over_its_tuples():
    flow = site()
    profile = measure_flow(flow, plan=small_batches(flow), watch=EvenWatch()).profile
    assert profile.unit == "us"
    assert profile.by_name["clicks"].cost == pytest.approx(100)
    assert profile.by_name["some"].cost == pytest.approx(100)
    assert profile.by_name["visits"].cost == pytest.approx(1000 / 7.5, rel=0.1)


def test_selectivity_counts_what_each_stream_carries():
    profile = profile_flow(site())
    carried = {(s.producer, s.consumer): s.selectivity for s in profile.streams}
    assert carried["clicks", "some"] == 1
    assert carried["some", "visits"] == 0.75
    assert profile.visits["visits"] == 0.75
    assert 0.5 <= carried["visits", "out"] < 0.6


def test_side_outputs_are_streams_of_their_own():
    flow = Flow("parted")
    source = flow.source("numbers", memory([{"x": n} for n in range(40)]))

    @ab.map(out="y: int64", on_error="side")
    def invert(batch):
        return {"y": [100 // x for x in (n % 4 for n in batch["x"].to_pylist())]}

    inverted = source.apply("invert", invert)
    inverted.sink("good", collect())
    inverted.errors.sink("bad", collect())
    carried = {s.consumer: s.selectivity for s in profile_flow(flow).streams}
    assert carried == {"invert": 1, "good": 0.75, "bad": 0.25}


def test_two_streams_between_the_same_steps_are_one_of_the_profile():
    flow = Flow("twice")
    numbers = flow.source("x", memory([{"x": n} for n in range(40)]))
    numbers.union("both", numbers).sink("out", collect())
    profile = profile_flow(flow)
    assert [(s.producer, s.consumer, s.selectivity) for s in profile.streams] == [
        ("x", "both", 2.0),
        ("both", "out", 1.0),
    ]


def test_states_keys_and_bounds_follow_from_flow_and_data():
    profile = profile_flow(site())
    states = {o.name: o.state for o in profile.operators}
    assert states == {
        "clicks": StateKind.STATELESS,
        "some": StateKind.STATELESS,
        "visits": StateKind.PARTITIONED,
        "out": StateKind.STATEFUL,
    }
    counted = profile.by_name["visits"]
    assert (counted.key, counted.keys, counted.max_replicas) == (("user",), 4, 4)
    assert counted.hottest_key_share == pytest.approx(0.5, abs=0.1)
    assert profile.by_name["out"].max_replicas == 1


def test_the_clock_of_one_source_may_have_replicas_which_cost_more():
    flow = Flow("clocks")
    rows = [{"ts": n} for n in range(50)]
    left, right = flow.source("l", memory(rows)), flow.source("r", memory(rows))
    left.timed("one", "ts").sink("a", collect())
    left.union("both", right).timed("several", "ts").sink("b", collect())
    found = profile_flow(flow).by_name
    assert (found["one"].state, found["one"].max_replicas) == (StateKind.STATELESS, None)
    assert (found["several"].state, found["several"].replicas_cost) == (StateKind.STATEFUL, 0.0)
    assert found["one"].replicas_cost > 0


def test_a_sink_that_workers_write_may_have_replicas(tmp_path):
    written = profile_flow(site(ab.parquet(tmp_path / "out"))).by_name["out"]
    assert (written.state, written.max_replicas) == (StateKind.STATELESS, None)


def test_tuple_bytes_are_those_of_the_columns():
    flow = Flow("numbers")
    flow.source("x", memory([{"x": n} for n in range(50)])).sink("out", collect())
    profile = profile_flow(flow)
    assert profile.by_name["x"].tuple_bytes == 8
    assert profile.by_name["out"].tuple_bytes == 8


def test_endless_sources_are_read_so_far_and_no_further():
    flow = busy_flow(chain([OperatorProfile("a", 0.1)], unit="us"), rows=None)
    samples = rehearse(flow, 5000, {"source": 1024})
    assert samples["source"].rows_in == samples["a"].rows_in == 5000


def test_several_sources_share_the_tuples_that_come_in():
    flow = Flow("two")
    left = flow.source("left", memory([{"k": n, "x": n} for n in range(30)]))
    right = flow.source("right", memory([{"k": n, "y": n} for n in range(10)]))
    left.union("both", right.map("alike", lambda b: {"x": b["y"]}, out="x: int64", keeps="k")).sink(
        "out", collect()
    )
    profile = profile_flow(flow)
    assert profile.by_name["left"].rate == pytest.approx(0.75)
    assert profile.by_name["right"].rate == pytest.approx(0.25)
    assert profile.visits["both"] == pytest.approx(1.0)


def test_no_file_of_the_user_is_written(tmp_path):
    out = tmp_path / "out"
    profile = profile_flow(site(parquet(out)))
    assert profile.by_name["out"].cost > 0
    assert not out.exists()


@pytest.mark.parametrize(("interval_s", "commits"), [(0.0, 12), (0.005, 3), (1.0, 1)])
def test_a_sink_is_committed_as_seldom_as_engines_do_it(interval_s, commits):
    versions = []

    class Patient(type(collect())):
        traits = Traits(Guarantee.TRANSACTIONAL, interval_s=interval_s)

        def rehearsal(self, folder):
            return self

        def commit(self, version, receipts, stage):
            versions.append(version)

    flow = Flow("site")
    flow.source("clicks", clicks()).sink("out", Patient())
    sample = rehearse(flow, 120, {"clicks": 10}, EvenWatch())["out"]
    assert versions == list(range(commits))
    assert sum(spent for _, spent in sample.calls) == (12 + commits) * 1_000_000


class GatheringWatch(Stopwatch):
    """Every fourth call takes a millisecond, as where rows of several are written at once."""

    def __init__(self):
        self.calls = 0

    def time(self, call):
        self.calls += 1
        return call(), 0 if self.calls % 4 else 1_000_000


def test_a_sink_that_gathers_rows_costs_what_its_calls_cost_on_average(tmp_path):
    flow = Flow("site")
    flow.source("clicks", clicks()).sink("out", parquet(tmp_path / "out"))
    samples = rehearse(flow, 120, {"clicks": 10}, GatheringWatch())
    # 12 calls of the reader, one to find the end, 12 of the sink, and its commit: 6 whole fours.
    spent = {name: sum(spent for _, spent in each.calls) for name, each in samples.items()}
    assert sum(spent.values()) == 6_000_000
    assert cost_us(samples["out"]) == pytest.approx(spent["out"] / 1000 / 120)
    assert cost_us(samples["clicks"]) in (0.0, 100.0)  # the median: one call or the other


def test_the_sink_of_a_rehearsal_is_closed():
    closed = []

    class Closing(type(collect())):
        def rehearsal(self, folder):
            return self

        def close(self):
            closed.append(self)

    sink = Closing()
    rehearse(site(sink), 20, {"clicks": 10})
    assert closed == [sink]


def test_a_function_of_the_user_is_not_called_as_a_sink():
    called = []
    found = measure_flow(site(ab.call(lambda batch, version: called.append(version))))
    assert not called
    assert found.profile.by_name["out"].cost == 0
    assert any(note.startswith("out:") for note in found.notes)


def test_what_no_tuple_reached_is_said():
    flow = Flow("empty")
    flow.source("x", memory([{"x": n} for n in range(50)])).filter(
        "none", lambda b: [False] * b.num_rows
    ).map("unseen", lambda b: {}, keeps="x").sink("out", collect())
    found = measure_flow(flow)
    assert found.profile.by_name["unseen"].cost == 0
    assert [n.partition(":")[0] for n in found.notes[1:]] == ["x", "none", "unseen", "out"]


def test_the_first_calls_warm_up_and_slow_calls_show_at_99_of_100():
    steady = [(10, 900_000)] * 2 + [(10, 20_000)] * 7 + [(10, 500_000)]
    assert costs_us(steady) == (2.0, 50.0)


def test_a_short_last_call_does_not_decide():
    assert costs_us([(100, 100_000), (100, 100_000), (1, 90_000)])[0] == 1.0


def test_a_call_that_waits_counts_the_time_that_passes():
    _, waited = Stopwatch().time(lambda: Event().wait(0.02))
    assert waited >= 15_000_000


def test_busy_operators_cost_about_what_they_were_told():
    profile = chain([OperatorProfile("dear", 4.0), OperatorProfile("cheap", 0.4)], unit="us")
    ratios = []
    for _ in range(5):  # whoever shares the machine may disturb some of them
        found = profile_flow(busy_flow(profile, rows=40_000))
        ratios.append(found.by_name["dear"].cost / found.by_name["cheap"].cost)
        if 4 < ratios[-1] < 20:
            break
    assert 4 < ratios[-1] < 20, ratios


def test_a_profile_reads_back_from_its_file():
    profile = profile_flow(site())
    assert read_profile(profile_text(profile)) == profile


@pytest.mark.parametrize("rows", [0, -1])
def test_a_sample_needs_rows(rows):
    with pytest.raises(BuildError):
        profile_flow(site(), rows=rows)


def test_a_flow_without_data_is_refused():
    with pytest.raises(BuildError, match="sources with rows"):
        profile_flow(site(source=memory([], clicks().schema)))


def test_generated_sources_have_any_number_of_readers_and_parts_bound_files(tmp_path):
    for number in range(3):
        (tmp_path / f"{number}.txt").write_text("a b\nc\n")
    flow = Flow("lines")
    flow.source("lines", ab.files(f"{tmp_path}/*.txt", format="text")).sink("out", collect())
    assert profile_flow(flow).by_name["lines"].max_replicas == 3
    rolls = generate(lambda rng, index: {"x": index}, pa.schema([("x", pa.int64())]), rows=50)
    flow = Flow("rolls")
    flow.source("rolls", rolls).sink("out", collect())
    assert profile_flow(flow).by_name["rolls"].max_replicas is None


def test_tuples_in_and_out_stand_for_memory_traffic():
    profile = profile_flow(word_count.build(text="to be or not to be"))
    split, combine = (profile.by_name[name] for name in ("split", "count.combine"))
    assert split.memory_bytes == pytest.approx(split.tuple_bytes + 6 * combine.tuple_bytes)
    assert profile.by_name["out"].memory_bytes == profile.by_name["out"].tuple_bytes
