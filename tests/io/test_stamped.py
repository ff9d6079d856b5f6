import pickle
from itertools import count, pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import SourceError
from anabranch.io import files, generate, memory, stamped
from anabranch.io.source import Chunk, Extent, Source
from tests.io.reading import chunk_sizes, table_of

ROWS = 300
TABLE = pa.table({"x": list(range(ROWS))})
FIRST_CLOCK = 1_700_000_000_000_000


class Ticks:
    """A clock that moves by the given steps, over and over."""

    def __init__(self, *steps):
        self.steps, self.calls, self.now = steps or (1,), 0, FIRST_CLOCK

    def __call__(self):
        self.now += self.steps[self.calls % len(self.steps)]
        self.calls += 1
        return self.now


def stamps(source, sizes, start=0):
    return table_of(source, sizes, start)["arrival"].cast(pa.int64()).to_pylist()


@given(first=chunk_sizes, again=chunk_sizes)
def test_any_chunking_of_a_second_reading_gives_the_same_rows(first, again):
    source = stamped(memory(TABLE), Ticks())
    once = table_of(source, first)
    assert once.select(["x"]) == TABLE
    assert table_of(source, again) == once


@given(
    reads=st.lists(st.tuples(st.integers(0, ROWS - 1), st.integers(1, ROWS)), max_size=8),
    steps=st.lists(st.integers(-50, 50), min_size=1, max_size=5),
)
def test_stamps_never_decrease_nor_change_in_whatever_order_rows_are_read(reads, steps):
    source = stamped(memory(TABLE), Ticks(*steps))
    seen = {}
    for start, rows in reads:
        batch = source.read("memory", start, rows).batch
        found = dict(zip(count(start), batch["arrival"].cast(pa.int64()).to_pylist(), strict=False))
        assert all(seen.get(row, stamp) == stamp for row, stamp in found.items())
        seen |= found
    final = stamps(source, [ROWS])
    assert all(final[row] == stamp for row, stamp in seen.items())
    assert all(earlier <= later for earlier, later in pairwise(final))


def test_the_clock_is_asked_once_for_each_chunk_first_read():
    clock = Ticks()
    source = stamped(memory(TABLE), clock)
    table_of(source, [100])
    table_of(source, [7])
    assert clock.calls == 3
    assert sorted(set(stamps(source, [50]))) == [FIRST_CLOCK + n for n in (1, 2, 3)]


def test_stamps_never_decrease_from_part_to_part(tmp_path):
    (tmp_path / "a.txt").write_text("a\n")
    (tmp_path / "b.txt").write_text("b\n")
    source = stamped(files(tmp_path), Ticks(10, -5))
    assert stamps(source, [1]) == [FIRST_CLOCK + 10] * 2


def test_a_record_repeats_a_run():
    source = stamped(memory(TABLE), Ticks())
    once = table_of(source, [33])
    repeated = stamped(memory(TABLE), Ticks(10**9), record=source.record)
    assert table_of(repeated, [10]) == once


def test_a_run_that_goes_on_from_a_record_never_goes_back():
    source = stamped(memory(TABLE), Ticks(100))
    source.read("memory", 0, 10)
    resumed = stamped(memory(TABLE), Ticks(1), record=source.record)
    assert stamps(resumed, [ROWS])[10] >= FIRST_CLOCK + 100


def test_a_pickled_copy_keeps_the_record():
    source = stamped(memory(TABLE), Ticks())
    once = table_of(source, [33])
    assert table_of(pickle.loads(pickle.dumps(source)), [70]) == once


def test_everything_else_is_the_wrapped_sources():
    inner = generate(lambda rng, index: {"x": index}, TABLE.schema, rate_per_s=5)
    source = stamped(inner, Ticks(), column="seen")
    assert source.schema == TABLE.schema.append(pa.field("seen", pa.timestamp("us")))
    assert (source.bounded, source.order, source.parts()) == (False, "index", ("generated",))
    assert source.due_rows(2.0) == 10


def test_what_a_queue_tells_of_its_rows_is_passed_on():
    class Queue(Source):
        schema, bounded, order = TABLE.schema, False, "row"

        def parts(self):
            return ("queue",)

        def extent(self, part):
            return Extent(3, growing=True)

        def read(self, part, start, rows):
            return Chunk(TABLE.slice(start, 3 - start).to_batches()[0], dry=True, waited_ms=7.0)

    source = stamped(Queue(), Ticks())
    chunk = source.read("queue", 0, 10)
    assert (chunk.batch.num_rows, chunk.dry, chunk.waited_ms) == (3, True, 7.0)
    assert source.extent("queue") == Extent(3, growing=True)


def test_heartbeats_of_another_time_are_not_passed_on():
    source = stamped(memory(TABLE, heartbeats={5: 99}), Ticks())
    assert source.read("memory", 0, 10).passed is None


def test_a_column_that_exists_is_refused():
    with pytest.raises(SourceError, match="'x'"):
        _ = stamped(memory(TABLE), Ticks(), column="x").schema


def test_a_copy_in_another_process_stamps_nothing_by_itself():
    source = stamped(memory(TABLE), Ticks())
    source.read("memory", 0, 10)
    copy = pickle.loads(pickle.dumps(source))
    assert copy.read("memory", 0, 10).batch == source.read("memory", 0, 10).batch
    with pytest.raises(SourceError, match=r"stamped memory.*rows without one.*recalling"):
        copy.read("memory", 0, 11)


def test_rows_stamped_ahead_are_recalled_elsewhere():
    source = stamped(memory(TABLE), Ticks())
    source.read("memory", 0, 10)
    record = source.stamp("memory", 5, 20, not_before=None)
    assert record == {"memory": [(5, 10, FIRST_CLOCK + 1), (10, 20, FIRST_CLOCK + 2)]}
    copy = pickle.loads(pickle.dumps(source)).recalling(record)
    assert copy.read("memory", 5, 15).batch == source.read("memory", 5, 15).batch


def test_stamps_that_were_taken_back_are_given_again():
    source = stamped(memory(TABLE), Ticks())
    source.stamp("memory", 0, 20, not_before=None)
    source.forget("memory", 8)
    assert source.stamp("memory", 0, 20, not_before=FIRST_CLOCK + 70) == {
        "memory": [(0, 8, FIRST_CLOCK + 1), (8, 20, FIRST_CLOCK + 70)]
    }
