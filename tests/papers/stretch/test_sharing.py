"""Both ways of figure 4 compute the same: only then does it mean anything which one is faster."""

from collections.abc import Callable
from functools import cache

import pyarrow as pa
import pytest

from anabranch.errors import BuildError, OperatorError
from anabranch.flow import Flow
from anabranch.io import collect, memory
from anabranch.io.reader import SourceReader
from anabranch.operators.keyed.shared import shared
from anabranch.state.positions import FIRST, end
from anabranch.testing import run_sequential
from papers.stretch.figure4 import (
    Buffered,
    ByReference,
    Copied,
    Line,
    LineRun,
    Shape,
    forwarding,
    middle_of,
    working,
)
from papers.stretch.figure5 import joining
from papers.stretch.pace import Pace

ROWS = 700


def work() -> Flow:
    return working(ROWS, rounds=2)


def pass_on() -> Flow:
    return forwarding(ROWS)


def joined() -> Flow:
    return joining(Pace([(0.0, 100.0)]), 20.0, paced=False, rows=ROWS, buckets=4)[0]


@cache
def sequential(build: Callable[[], Flow]) -> pa.Table:
    return run_sequential(build()).outputs["out"]


@pytest.mark.parametrize("build", [work, pass_on])
@pytest.mark.parametrize("way", [ByReference, Copied])
@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_both_ways_give_what_the_sequential_run_gives(build, way, threads):
    line = Line(build(), way, threads, batch_rows=100, keep=True)
    run = line.run()
    assert line.results.equals(sequential(build))
    assert (run.rows, run.threads, run.way) == (ROWS, threads, way.name)
    assert run.latency_ms > 0
    assert min(run.cpu_us) > 0


@pytest.mark.parametrize(("way", "threads"), [(ByReference, 2), (Copied, 2), (Buffered, 1)])
def test_all_ways_join_two_streams_as_the_sequential_run_does(way, threads):
    line = Line(joined(), way, threads, batch_rows=64, time="ts", keep=True)
    line.run()
    expected = sequential(joined)
    assert expected.num_rows > 0
    assert line.results.equals(expected)


def shape(threads: int) -> Shape:
    schema = pa.schema([("v", pa.int64())])
    return Shape((0,), (schema,), schema, threads)


def column_of(way, thread: int) -> pa.Array:
    return way.take(thread).inputs[0].batch["v"]


@pytest.mark.parametrize(("make", "is_shared"), [(ByReference, True), (Copied, False)])
def test_threads_share_memory_by_reference_and_have_their_own_as_copies(make, is_shared):
    way = make(shape(threads=2))
    jumbo, frontier = SourceReader(memory([{"v": v} for v in range(100)]), 0).read(100)
    way.send(0, jumbo, frontier, 0.0)
    first, second = (column_of(way, thread) for thread in (0, 1))
    assert first.equals(second)
    addresses = {column.buffers()[1].address for column in (first, second, jumbo.batch["v"])}
    assert len(addresses) == (1 if is_shared else 3)


def test_latency_counts_from_the_oldest_tuple_that_is_released():
    way = Copied(shape(threads=1))
    reader = SourceReader(memory([{"v": v} for v in range(4)]), 0)
    way.send(0, *reader.read(2), born_s=1.0)
    way.send(0, *reader.read(2), born_s=2.0)
    assert [way.take(0).born_s, way.take(0).born_s] == [1.0, 2.0]
    way.send(0, None, end(FIRST), 3.0)
    assert way.take(0).born_s is None


def test_the_single_thread_is_one():
    with pytest.raises(BuildError, match="one thread"):
        Buffered(shape(threads=2))


@pytest.mark.parametrize("way", [ByReference, Copied])
def test_a_thread_that_fails_ends_the_line(way):
    @shared(out="id: int64", buckets=2)
    def broken(batch, bucket):
        raise ValueError("no")

    flow = Flow("broken")
    rows = memory([{"id": i} for i in range(2000)])
    flow.source("numbers", rows).apply("broken", broken).sink("out", collect())
    with pytest.raises(OperatorError, match="no on bucket"):
        Line(flow, way, 2, batch_rows=10).run()


def test_the_run_in_the_middle_is_taken_by_each_figure():
    runs = [
        LineRun("V_SN", 1, 10, seconds, latency, (cpu, 1.0, 1.0))
        for seconds, latency, cpu in ((1.0, 9.0, 5.0), (2.0, 7.0, 4.0), (9.0, 8.0, 6.0))
    ]
    assert middle_of(runs) == LineRun("V_SN", 1, 10, 2.0, 8.0, (5.0, 1.0, 1.0))
