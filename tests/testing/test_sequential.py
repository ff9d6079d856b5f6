"""What a flow means, on inputs small enough to be worked out by hand."""

from __future__ import annotations

import pyarrow as pa
import pytest

from anabranch.errors import BuildError
from anabranch.flow import Flow
from anabranch.io import collect, generate, memory
from anabranch.operators.aggregates.functions import count, sum
from anabranch.operators.aggregates.windows import tumbling
from anabranch.operators.row_wise.map_filter_expand import flat_map
from anabranch.operators.tuple_style.invocation import Reason
from anabranch.operators.tuple_style.tuples import partitioned, stateful
from anabranch.testing.sequential import run_sequential


def named(name: str, *times: int) -> list[dict]:
    return [{"ts": t, "name": f"{name}{i}"} for i, t in enumerate(times)]


@stateful(out="line: string")
def diary(ctx):
    """Everything so far, which shows any change of order."""
    for row in ctx.tuples():
        ctx.state["line"] = f"{ctx.state.get('line', '')} {row.name}".strip()
        ctx.emit(line=ctx.state["line"])


def last_line(flow: Flow) -> str:
    return run_sequential(flow).rows("out")[-1]["line"]


def test_two_sources_without_time_alternate_by_number():
    flow = Flow("f")
    a, b = flow.source("a", memory(named("a", 9, 9, 9))), flow.source("b", memory(named("b", 1)))
    a.union("both", b).apply("diary", diary).sink("out", collect())
    assert last_line(flow) == "a0 b0 a1 a2"


def test_two_timed_sources_are_merged_by_time_source_and_number():
    flow = Flow("f")
    a = flow.source("a", memory(named("a", 1, 4, 4, 7)), time="ts")
    b = flow.source("b", memory(named("b", 0, 4, 5)), time="ts")
    b.union("both", a).apply("diary", diary).sink("out", collect())
    assert last_line(flow) == "b0 a0 a1 a2 b1 b2 a3"


def test_tuples_of_one_time_from_two_sources_stand_by_source_though_the_other_came_first():
    flow = Flow("f")
    first = flow.source("first", memory(named("a", 0, 0, 5)), time="ts")
    second = flow.source("second", memory(named("b", 5)), time="ts")
    second.union("both", first).apply("diary", diary).sink("out", collect())
    assert last_line(flow) == "a0 a1 a2 b0"


def test_a_sink_gets_its_rows_in_sequential_order():
    flow = Flow("f")
    copies = flat_map(lambda r: [{"n": r["n"] * 10 + i} for i in range(r["n"])], out="n: int64")
    flow.source("s", memory([{"n": 2}, {"n": 0}, {"n": 1}])).apply("copies", copies).sink(
        "out", collect()
    )
    assert run_sequential(flow).rows("out") == [{"n": 20}, {"n": 21}, {"n": 10}]


def test_timers_stand_between_the_tuples_of_every_key():
    @partitioned(key="k", out="k: string, what: string", timers=True)
    def woken(ctx):
        if ctx.reason is Reason.TIMER:
            ctx.emit(what=f"timer {ctx.time}")
        for row in ctx.tuples():
            ctx.emit(what=f"tuple {row.ts}")
            ctx.set_timer(row.ts + 2)

    flow = Flow("f")
    rows = [{"ts": 1, "k": "y"}, {"ts": 1, "k": "x"}, {"ts": 3, "k": "z"}]
    flow.source("s", memory(rows), time="ts").apply("woken", woken).sink("out", collect())
    assert [(r["k"], r["what"]) for r in run_sequential(flow).rows("out")] == [
        ("y", "tuple 1"),
        ("x", "tuple 1"),
        ("x", "timer 3"),
        ("y", "timer 3"),
        ("z", "tuple 3"),
        ("z", "timer 5"),
    ]


def test_a_window_is_told_when_its_end_has_come():
    flow = Flow("f")
    rows = [{"ts": t, "k": k, "v": t} for t, k in ((1, "b"), (3, "a"), (9, "a"), (12, "b"))]
    timed = flow.source("s", memory(rows), time="ts")
    timed.aggregate("sum", key="k", window=tumbling(10), emit="final", v=sum("v")).sink(
        "out", collect()
    )
    got = [(r["k"], r["v"]) for r in run_sequential(flow).rows("out")]
    assert got == [("a", 12), ("b", 1), ("b", 12)]


def test_a_running_count_follows_every_tuple():
    flow = Flow("f")
    words = flow.source("s", memory([{"w": w} for w in "abaa"]))
    words.aggregate("count", key="w", n=count(), emit="every").sink("out", collect())
    got = [(r["w"], r["n"]) for r in run_sequential(flow).rows("out")]
    assert got == [("a", 1), ("b", 1), ("a", 2), ("a", 3)]


def test_late_tuples_are_counted_by_step():
    flow = Flow("f")
    flow.source("s", memory(named("a", 5, 1, 6)), time="ts").late.sink("out", collect())
    result = run_sequential(flow)
    assert (result.rows("out"), result.counters["s.time"].late) == ([{"ts": 1, "name": "a1"}], 1)


def test_every_sink_has_a_table_also_when_nothing_came():
    flow = Flow("f")
    flow.source("s", memory([], pa.schema([("x", pa.int64())]))).sink("out", collect())
    assert run_sequential(flow).outputs["out"].schema == pa.schema([("x", pa.int64())])


def test_the_sinks_themselves_are_not_written():
    class Untouchable:
        def __getattr__(self, name: str):
            return lambda *_: pytest.fail(f"the sink was asked to {name}")

    flow = Flow("f")
    flow.source("s", memory([{"x": 1}])).sink("out", Untouchable())
    assert run_sequential(flow).rows("out") == [{"x": 1}]


def test_an_endless_source_is_refused():
    flow = Flow("f")
    endless = generate(lambda rng, index: {"x": index}, pa.schema([("x", pa.int64())]))
    flow.source("s", endless).sink("out", collect())
    with pytest.raises(BuildError, match="step 's': expected a bounded source, got an endless one"):
        run_sequential(flow)


def test_a_tap_sees_one_tuple_at_a_time():
    flow = Flow("f")
    flow.source("s", memory(named("a", 1, 2))).apply("diary", diary).sink("out", collect())
    seen = []
    run_sequential(flow, tap=lambda step, ins, outs: seen.append((step, len(ins[0] or ()))))
    assert [call for call in seen if call[1]] == [("diary", 1), ("diary", 1)]
