"""`check` against operators that are not what they say they are."""

from __future__ import annotations

import itertools
import random
import sys
import time
from unittest.mock import MagicMock

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import BuildError, DeterminismError
from anabranch.flow import Flow, Stream
from anabranch.io import collect, generate, memory
from anabranch.operators.row_wise.map_filter_expand import Expand, Filter, Map
from anabranch.operators.tuple_style.tuples import partitioned
from anabranch.testing.checking import Report, check

ROWS = [{"k": i % 3, "v": i} for i in range(40)]


def hidden_state(stream: Stream) -> Stream:
    """A module-level counter that outlives the run."""
    numbers = itertools.count()
    return stream.map(
        "liar", lambda b: {"v": [next(numbers) for _ in range(b.num_rows)]}, out="v: int64"
    )


def batch_counter(stream: Stream) -> Stream:
    """Numbers the rows of each batch from 0."""
    return stream.map("liar", lambda b: {"v": list(range(b.num_rows))}, out="v: int64")


def chance(stream: Stream) -> Stream:
    return stream.map(
        "liar", lambda b: {"v": [random.random() for _ in range(b.num_rows)]}, out="v: double"
    )


def wall_clock(stream: Stream) -> Stream:
    return stream.map(
        "liar", lambda b: {"v": [time.perf_counter_ns()] * b.num_rows}, out="v: int64"
    )


def order_dependent_filter(stream: Stream) -> Stream:
    """Drops a row whose value is not above that of the row before it in its batch."""

    def rising(batch):
        v = [x % 4 for x in batch["v"].to_pylist()]
        return [i == 0 or v[i] > v[i - 1] for i in range(len(v))]

    return stream.apply("liar", Filter(rising))


def undeclared_key(stream: Stream) -> Stream:
    """Says that its key is v, but counts by k in a place of its own, one per replica."""

    class CountsByK(Expand):
        def kernel(self, context):
            counts: dict[int, int] = {}

            def counted(batch):
                for k in batch["k"].to_pylist():
                    counts[k] = counts.get(k, 0) + 1
                return {"n": [counts[k] for k in batch["k"].to_pylist()]}, range(batch.num_rows)

            return Expand(counted, "n: int64", ["k", "v"]).kernel(context)

    keyed = stream.apply("declared", partitioned(key="v", out="k: int64, v: int64")(_pass_on))
    return keyed.apply("liar", CountsByK(lambda b: None, "n: int64", ["k", "v"]))


def _pass_on(ctx) -> None:
    for row in ctx.tuples():
        ctx.emit(k=row.k)


LIARS = {
    "hidden state": (hidden_state, "differs between two identical runs"),
    "a counter per batch": (batch_counter, "depends on batching"),
    "chance": (chance, "differs between two identical runs"),
    "the clock": (wall_clock, "differs between two identical runs"),
    "a filter that looks around": (order_dependent_filter, "depends on batching"),
    "an undeclared key": (undeclared_key, "depends on"),
}


def checked(liar, behind=lambda stream: stream) -> Report:
    flow = Flow("f", buckets=4)
    behind(liar(flow.source("s", memory(ROWS)))).sink("out", collect())
    return check(flow, cases=20, processes=0)


@pytest.mark.parametrize("lie", sorted(LIARS))
def test_a_liar_is_found_and_named(lie):
    liar, question = LIARS[lie]
    finding = checked(liar).finding
    assert finding is not None
    assert (finding.step, finding.question.startswith(question)) == ("liar", True)


@pytest.mark.parametrize("lie", ["a counter per batch", "hidden state", "chance"])
def test_an_honest_step_behind_the_liar_is_not_blamed(lie):
    liar, _ = LIARS[lie]
    finding = checked(liar, lambda s: s.map("honest", lambda b: {}, keeps="*")).finding
    assert finding is not None
    assert finding.step == "liar"


def test_an_honest_step_in_front_of_the_liar_is_not_blamed():
    def framed(stream: Stream) -> Stream:
        return batch_counter(stream.map("honest", lambda b: {}, keeps="*"))

    finding = checked(framed).finding
    assert finding is not None
    assert finding.step == "liar"


@pytest.mark.parametrize("lie", ["a counter per batch", "a filter that looks around"])
def test_the_input_is_cut_down(lie):
    finding = checked(LIARS[lie][0]).finding
    assert finding is not None
    assert finding.input.size <= 5


def test_a_finding_shows_the_question_the_step_and_the_rows():
    finding = checked(batch_counter).finding
    text = str(finding)
    assert "depends on batching: step 'liar' is most likely to blame" in text
    assert str(finding.input.rows["s"][0]) in text


def test_a_report_can_be_raised():
    with pytest.raises(DeterminismError, match="step 'liar': expected the same result"):
        checked(batch_counter).raise_if_different()


def honest_flow() -> Flow:
    @partitioned(key="k", out="k: int64, n: int64")
    def counted(ctx):
        for _ in ctx.tuples():
            ctx.state["n"] = ctx.state.get("n", 0) + 1
            ctx.emit(n=ctx.state["n"])

    flow = Flow("honest", buckets=4)
    stream = flow.source("s", memory(ROWS)).apply("m", Map(lambda b: {}, None, "*"))
    stream.apply("count", counted).sink("out", collect())
    return flow


def test_a_process_that_was_not_compared_is_not_counted(monkeypatch):
    monkeypatch.setattr(sys.modules[check.__module__], "OtherProcess", MagicMock())
    flow = Flow("f", buckets=4)
    LIARS["chance"][0](flow.source("s", memory(ROWS))).sink("out", collect())
    report = check(flow, cases=1, processes=2)
    assert (report.ok, report.processes) == (False, 0)


def test_an_honest_flow_passes():
    report = check(honest_flow(), cases=20, processes=0)
    assert (report.ok, report.rows) == (True, len(ROWS))


def test_a_report_without_a_finding_raises_nothing():
    assert check(honest_flow(), cases=1, processes=0).raise_if_different() is None


@pytest.mark.parametrize("processes", [-1, "2"])
def test_a_number_of_processes_that_is_none_is_refused(processes):
    with pytest.raises(BuildError, match=f"'processes': .* got {processes!r}; pass 0 for none"):
        check(honest_flow(), processes=processes)


def test_the_same_seed_gives_the_same_report():
    assert str(checked(batch_counter)) == str(checked(batch_counter))


def test_an_endless_source_is_checked_on_its_first_rows():
    flow = Flow("f")
    endless = generate(lambda rng, index: {"x": index}, pa.schema([("x", pa.int64())]))
    flow.source("s", endless).sink("out", collect())
    report = check(flow, cases=1, rows=30, processes=0)
    assert (report.ok, report.rows) == (True, 30)


def test_an_operator_that_raises_only_on_larger_batches_is_named():
    flow = ab.Flow("f")
    rows = ab.memory([{"v": i} for i in range(30)])
    flow.source("s", rows).filter("one at a time", lambda b: [True]).sink("out", ab.collect())
    report = ab.check(flow, processes=0)
    assert (report.ok, report.finding.step) == (False, "one at a time")
    assert report.finding.input.size <= 3


def test_a_step_that_refuses_the_smaller_input_does_not_hide_the_liar():
    @ab.map(out="n: int64", keeps="v")
    def numbered(batch):
        return {"n": list(range(batch.num_rows))}

    @ab.stateful(out="n: int64")
    def wants_zero_first(ctx):
        for row in ctx.tuples():
            if not ctx.state and row.v != 0:
                raise ValueError("must begin with 0")
            ctx.state["begun"] = True
            ctx.emit(n=row.n)

    flow = ab.Flow("f")
    rows = ab.memory([{"v": i} for i in range(20)])
    flow.source("s", rows).apply("numbered", numbered).apply("strict", wants_zero_first).sink(
        "out", ab.collect()
    )
    assert ab.check(flow, processes=0).finding.step == "numbered"


def test_nan_inside_of_a_list_is_no_difference():
    flow = ab.Flow("f")
    rows = ab.memory([{"v": [float("nan"), 1.0]}])
    flow.source("s", rows).filter("all", lambda b: [True] * b.num_rows).sink("out", ab.collect())
    assert ab.check(flow, cases=3, processes=0).ok
