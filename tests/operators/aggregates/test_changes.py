"""Kernels tell their stores what they touch: rebuilt from changes, they go on as if nothing was."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.graph import StreamType
from anabranch.operators.aggregates import functions as ab
from anabranch.operators.aggregates.aggregate import aggregate
from anabranch.operators.aggregates.base import AggregationStore
from anabranch.operators.aggregates.window_kernels import Pending
from anabranch.operators.aggregates.windows import tumbling
from anabranch.operators.base import KernelContext, Operator
from anabranch.operators.keyed.keyed import keyed
from anabranch.operators.keyed.shared import shared
from anabranch.operators.keyed.top_n import top_n
from anabranch.operators.timed import Timed
from anabranch.operators.tuple_style.tuples import partitioned, stateful
from anabranch.state.positions import FIRST, Jumbo, Positions, Root, end
from anabranch.state.tables.slab import Slab
from tests.operators.chains import Chain
from tests.operators.driving_ports import drive, simple, ways
from tests.state.tables import changing
from tests.state.tables.changing import KEYS, play, scripts

ROWS = pa.schema([("k", pa.string()), ("v", pa.int64())])


@partitioned(key="k", out="k: string, n: int64, seen: int64", timers=True, ttl=9)
def woken(ctx):
    """Counts, and tells the count three and six times after a tuple."""
    for _ in ctx.tuples():
        ctx.state.setdefault("seen", []).append(ctx.time)
        ctx.set_timer(ctx.time + 3)
    if ctx.reason.value == "timer" and len(ctx.state.get("seen", [])) % 2:
        ctx.set_timer(ctx.time + 3)
    ctx.emit(n=len(ctx.state.get("seen", [])), seen=ctx.time)


@stateful(out="n: int64")
def numbered(ctx):
    for _ in ctx.tuples():
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        ctx.emit(n=ctx.state["n"])


@keyed(key="k", state="seen: list<int64>", out="n: int64")
def lent(batch, state):
    """Assigns a key's list once, then changes it in place."""
    if state.fresh.any():
        state["seen"] = np.array([s or [0] for s in state["seen"]] + [None], object)[:-1]
        return {"n": [0] * batch.num_rows}
    for seen in state["seen"]:
        seen.append(1)
    return {"n": [len(state["seen"][code]) for code in state.codes]}


@shared(out="bucket: int64, n: int64", buckets=3)
def gathered(batch, bucket):
    """Each bucket keeps every third value, and forgets all when it has four."""
    rows = [i for i, v in enumerate(batch["v"].to_pylist()) if v % bucket.count == bucket.index]
    for row in rows:
        bucket.state.setdefault("held", []).append(row)
        if len(bucket.state["held"]) == 4:
            bucket.state.clear()
    held = len(bucket.state.get("held", []))
    return {"bucket": [bucket.index] * len(rows), "n": [held] * len(rows)}, rows


TUPLES = st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 9)), max_size=30)


@pytest.mark.parametrize("operator", [woken, numbered], ids=["partitioned", "stateful"])
@given(rows=TUPLES, gaps=st.lists(st.integers(0, 5), min_size=30, max_size=30), way=ways())
def test_tuple_style_operators_tell_what_they_touch(operator, rows, gaps, way):
    times = np.cumsum(gaps[: len(rows)]).tolist()
    stream = simple(ROWS, rows, times)
    alone = drive(operator, [stream], time=pa.int64())
    assert drive(operator, [stream], way, time=pa.int64()).shown() == alone.shown()


@partitioned(key="k", out="k: string, n: int64", timers=False, ttl=9)
def fading(ctx):
    for _ in ctx.tuples():
        ctx.state["n"] = ctx.state.get("n", 0) + 1


@pytest.mark.parametrize("way", ["time", "the end"])
def test_keys_that_are_forgotten_are_told(way):
    context = context_of(fading, time=pa.int64())
    live, twin = fading.kernel(context), fading.kernel(context)
    chain = Chain([live])
    live.step([numbered_rows([("a", 1), ("b", 2)], 0)], Root(2, 0, 2, 0))
    chain.tell([live])
    live.step([None], Root(100, 0, 100, 0) if way == "time" else end(2))
    chain.tell([live])
    chain.load(twin, range(8))
    assert len(live.stores[0]) == len(twin.stores[0]) == 0


@given(TUPLES, ways())
def test_a_ranking_of_a_changelog_tells_what_it_touches(rows, way):
    stream = simple(ROWS, rows)
    alone = drive(top_n(3, by="v"), [stream], changelog=("k",))
    assert drive(top_n(3, by="v"), [stream], way, changelog=("k",)).rows() == alone.rows()


def test_objects_changed_in_place_without_being_assigned_are_told():
    context = context_of(lent)
    live = lent.kernel(context)
    chain = Chain([live])
    for start in (0, 2, 4):
        live.step([numbered_rows([("a", 1), ("b", 2)], start)], Root(start + 2, 0, start + 2, 0))
        chain.tell([live])
    twin = lent.kernel(context)
    chain.load(twin, range(8))
    (out,) = twin.step([numbered_rows([("a", 1), ("b", 2)], 6)], Root(8, 0, 8, 0))
    assert out.batch["n"].to_pylist() == [4, 4]


# --- kernels that are driven by themselves -------------------------------------------------------


def context_of(
    operator: Operator, sources: tuple[int, ...] = (0, 1), time: pa.DataType | None = None
) -> KernelContext:
    given = (StreamType(ROWS, time),)
    outputs = operator.types("step", given)
    return KernelContext("step", 3, given, outputs, 0, 8, sources=sources, owned=tuple(range(3)))


def numbered_rows(rows: list[tuple[str, int]], start: int, source: int = 0) -> Jumbo:
    batch = pa.RecordBatch.from_pylist([dict(zip("kv", r, strict=True)) for r in rows], ROWS)
    return Jumbo(batch, Positions.of_source(source, np.arange(start, start + len(rows))))


def batches(rng: Random, drift: int) -> Iterator[tuple[Jumbo, Root]]:
    """Batches of one source after another; values grow, out of order by up to nine."""
    place = 0
    for _ in range(rng.randint(5, 40)):
        size = rng.randint(0, 6)
        rows = [(rng.choice("abc"), place * drift + rng.randint(0, 9)) for _ in range(size)]
        jumbo = numbered_rows(rows, place, source=rng.randint(0, 1))
        place += size
        yield jumbo, Root(place, 0, place, 0)


def shown(outputs: list[Jumbo | None]) -> list[list]:
    made = [j for j in outputs if j is not None]
    return [[*zip(j.positions.rows(), j.batch.to_pylist(), strict=True)] for j in made if len(j)]


@pytest.mark.parametrize("operator", [Timed("v", lateness=6), gathered], ids=["timed", "shared"])
@pytest.mark.parametrize("seed", range(12))
def test_kernels_of_one_stream_go_on_from_their_changes(operator, seed):
    rng, context = Random(seed), context_of(operator)
    undisturbed, other = operator.kernel(context), operator.kernel(context)
    chain = Chain([other])
    steps = [*batches(rng, drift=rng.choice([0, 1, 3])), (None, end(10_000))]
    for jumbo, frontier in steps:
        expected = shown(undisturbed.step([jumbo], frontier))
        assert shown(other.step([jumbo], frontier)) == expected
        if rng.random() < 0.8:
            chain.start_anew([other]) if rng.random() < 0.2 else chain.tell([other])
            if rng.random() < 0.5:
                other = operator.kernel(context)
                chain.load(other, range(8))
        assert other.frontier(frontier) == undisturbed.frontier(frontier)


def test_what_a_clock_tells_follows_what_came_not_what_it_holds():
    clock = Timed("v", lateness=1_000_000).kernel(context_of(Timed("v"), sources=(0,)))
    chain = Chain([clock])
    told = []
    for turn in range(400):
        rows = numbered_rows([("k" * 50, turn * 20 + n) for n in range(20)], turn * 20)
        clock.step([rows], Root(turn * 20 + 20, 0, turn * 20 + 20, 0))
        (changes,) = [store.changes() for store in clock.stores]
        told.append(len(changes))
        chain.tell([clock])
    held = len(clock.stores[0].snapshot())
    assert sum(told) < held * 12  # a row is written again as often as batches of like size merge
    assert sorted(told)[len(told) // 2] < held / 50


# --- the store of aggregates ---------------------------------------------------------------------


def windows() -> AggregationStore:
    operator = aggregate("k", window=tumbling(5), n=ab.count(), best=ab.max("v"))
    given = (StreamType(ROWS, pa.int64()),)
    outputs = operator.types("step", given)
    kernel = operator.kernel(KernelContext("step", 3, given, outputs, 0, changing.BUCKETS))
    (store,) = kernel.stores
    assert isinstance(store, AggregationStore)
    return store


class Aggregates(changing.Tables):
    """A key is in the table with two windows."""

    def make(self) -> AggregationStore:
        return windows()

    def put(self, store: AggregationStore, keys: list[str], clock: int) -> None:
        starts = pa.array([5 * (clock % 2)] * len(keys), pa.int64())
        slots = store.table.groups([pa.array(keys, pa.string()), starts]).slots
        store.table.set(self._column(store), slots, np.full(len(slots), clock))
        store.table.stamp(slots, clock)

    def remove(self, store: AggregationStore, keys: list[str]) -> None:
        for start in (0, 5):
            columns = [pa.array(keys, pa.string()), pa.array([start] * len(keys), pa.int64())]
            slots = store.table.find(columns)
            store.table.remove(np.unique(slots[slots >= 0]))

    def read(self, store: AggregationStore, oldest: int) -> changing.Held:
        found, held = store.table.snapshot(), {}
        for row, time in zip(found.rows.to_pylist(), found.times.tolist(), strict=True):
            held.setdefault(row["k"], []).append((sorted(row.items(), key=str), time))
        return {key: sorted(rows, key=str) for key, rows in held.items()}

    @staticmethod
    def _column(store: AggregationStore) -> str:
        return store.table.value_schema.names[0]


@given(scripts())
def test_changes_of_aggregates_replayed_on_a_snapshot_are_the_state(script):
    play(Aggregates(), script)


def test_saving_does_not_make_an_index_over_rows_start_anew(monkeypatch):
    store, kind = windows(), Aggregates()
    store.track()
    kind.put(store, KEYS, 1)
    kind.put(store, KEYS, 2)
    pending = Pending(store)
    assert pending.earliest() == 1
    monkeypatch.setattr(Slab, "live", lambda *_: pytest.fail("looked at all rows"))
    for clock in range(3, 6):
        kind.put(store, KEYS, clock)
        store.changes()
        store.saved()
    assert pending.earliest() == 4  # a key is in the windows of even and of odd clocks


def test_replayed_rows_are_pending():
    store, twin, kind = windows(), windows(), Aggregates()
    store.track()
    pending = Pending(twin)
    assert pending.earliest() is None
    kind.put(store, KEYS[:3], 7)
    twin.replay(store.changes(), range(changing.BUCKETS))
    assert pending.earliest() == 7


def test_an_aggregate_without_a_key_is_told_too():
    operator = aggregate(emit="changes", n=ab.count())
    context = context_of(operator)
    live, twin = operator.kernel(context), operator.kernel(context)
    chain = Chain([live])
    for start in (0, 1):
        live.step([numbered_rows([("a", 1)], start)], Root(start + 1, 0, start + 1, 0))
        chain.tell([live])
    chain.load(twin, [0])
    (out,) = twin.step([numbered_rows([("a", 1)], 2)], Root(3, 0, 3, FIRST))
    assert out.batch["n"].to_pylist() == [3]
