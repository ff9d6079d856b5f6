"""Both ways of figure 4 compute the same: only then does it mean anything which one is faster."""

from collections.abc import Callable
from contextlib import suppress
from functools import cache
from threading import Thread

import pyarrow as pa
import pytest

from anabranch.errors import BuildError, OperatorError
from anabranch.flow import Flow
from anabranch.io import collect, memory
from anabranch.io.reader import SourceReader
from anabranch.operators.keyed.shared import shared
from anabranch.state.positions import FIRST, Root, end
from anabranch.testing import run_sequential
from papers.stretch.between_threads import QUOTA, BoundedQueue, Closed, SharedGate
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
    assert 0 < run.latency_ms <= 1000 * run.seconds
    assert min(run.cpu_us) > 0


@pytest.mark.parametrize(("way", "threads"), [(ByReference, 2), (Copied, 2), (Buffered, 1)])
def test_all_ways_join_two_streams_as_the_sequential_run_does(way, threads):
    line = Line(joined(), way, threads, batch_rows=64, time="ts", keep=True)
    run = line.run()
    assert 0 < run.latency_ms <= 1000 * run.seconds
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


def test_a_frontier_that_comes_after_tuples_does_not_make_them_older():
    gate = SharedGate(ports=(0,), readers=1)
    reader = SourceReader(memory([{"v": v} for v in range(4)]), 0)
    gate.add(0, *reader.read(4), born_s=5.0)
    gate.add(0, None, end(FIRST), 0.0)
    assert gate.take(0).born_s == 5.0


def sent_until_held_up(send: Callable[[], None], close: Callable[[], None]) -> int:
    """Send far more than may wait; returns how often that went through before the end."""
    sent = []

    def send_all() -> None:
        with suppress(Closed):
            for number in range(4 * QUOTA):
                send()
                sent.append(number)

    thread = Thread(target=send_all)
    thread.start()
    thread.join(0.2)  # whoever is held up is so for good
    close()
    thread.join()
    return len(sent)


@pytest.mark.parametrize("make", [ByReference, Copied, Buffered])
def test_a_source_that_runs_ahead_of_another_one_is_held_up(make):
    one = shape(threads=1)
    way = make(Shape((0, 1), one.schemas * 2, one.out, threads=1))
    ahead, behind = (SourceReader(memory([{"v": v} for v in range(100)]), n) for n in (0, 1))

    def take_all() -> None:
        with suppress(Closed):
            while True:
                way.take(0)

    thread = Thread(target=take_all)
    thread.start()
    way.send(1, *behind.read(1), 0.0)
    assert sent_until_held_up(lambda: way.send(0, *ahead.read(1), 0.0), way.close) <= QUOTA + 2
    thread.join()


def test_a_thread_takes_from_the_sender_that_it_chooses():
    queue = BoundedQueue(senders=2, length=1)
    queue.put(0, "a")
    queue.put(1, "b")
    assert [queue.take(1), queue.take(0)] == ["b", "a"]


def test_frontiers_alone_let_no_more_tuples_wait():
    gate = SharedGate(ports=(0,), readers=1)
    reader = SourceReader(memory([{"v": v} for v in range(100)]), 0)
    for row in range(1, QUOTA):
        gate.add(0, None, Root(row, 0, row, 0), 0.0)
        gate.take(0)
    reader.read(QUOTA)
    assert sent_until_held_up(lambda: gate.add(0, *reader.read(1), 0.0), gate.close) <= QUOTA - 1


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
