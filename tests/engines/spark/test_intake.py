"""What batches read, as the driver decides it: all of it, once, and no more than allowed."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import anabranch as ab
from anabranch.engines.spark.intake import Intake, Share, shares_from_json, shares_to_json
from anabranch.engines.spark.task_inputs import Program
from anabranch.engines.spark.task_report import SourceRead, TaskReport
from anabranch.errors import BuildError
from anabranch.flow import Flow
from anabranch.io.offsets import Cursor, SourceOffsets
from anabranch.io.source import Chunk, Extent
from anabranch.io.splits import SliceReader
from anabranch.planning.plan import Plan
from tests.io.test_slices import SCHEMA, Part, Parts, Place, parts

NUMBERS = pa.schema([("x", pa.int64())])


def numbers(rows: int | None = None, rate_per_s: float | None = None) -> object:
    return ab.generate(lambda rng, index: {"x": index}, NUMBERS, rows, rate_per_s)


def parts_of(*rows: int) -> list[Part]:
    return [Part(each, Extent()) for each in rows]


class Driver:
    """Decides, reads as tasks would, and notes; batch after batch."""

    def __init__(self, *sources: object, rows: int | None = None, readers: int = 1) -> None:
        flow = Flow("intake")
        streams = [flow.source(f"s{number}", each) for number, each in enumerate(sources)]
        for number, stream in enumerate(streams):
            stream.sink(f"out{number}", ab.collect())
        self.program = Program(flow, "", "")
        self.intake = Intake(self.program, rows)
        self.plan = Plan.sequential(flow)
        for name in self.program.ranks:
            one = self.program.sources[name].one_reader
            self.plan = self.plan.with_source(name, replicas=1 if one else readers)
        self.read: dict[str, list[Place]] = {name: [] for name in self.program.ranks}

    def batch(self, budget: int, elapsed_s: float = 0.0) -> bool:
        """Whether there was anything to do."""
        plan = self.plan
        for name in self.program.ranks:
            plan = plan.with_source(name, batch_rows=budget)
        shares = self.intake.decide(plan, elapsed_s)
        if shares is None:
            return False
        shares = shares_from_json(json.loads(json.dumps(shares_to_json(shares))))
        reports = [
            self._task(name, share, reader)
            for name, share in shares.items()
            for reader in range(len(share.slices))
        ]
        self.intake.advance(shares, reports)
        return True

    def to_the_end(self, budget: int, elapsed_s: float = 0.0) -> None:
        for _ in range(300):
            if self.intake.over:
                return
            assert self.batch(budget, elapsed_s)
        raise AssertionError("no end")

    def _task(self, name: str, share: Share, number: int) -> TaskReport:
        source = self.program.sources[name]
        if share.record is not None:
            source = source.recalling(share.record)
        reader = SliceReader(source, 0, share.slices[number])
        rows = 0
        for jumbo, _ in reader.read(3):
            rows += len(jumbo)
            self.read[name] += [tuple(row.values()) for row in jumbo.batch.to_pylist()]
        stops = [stop.cursor for stop in reader.stops]
        before = self.intake.offsets()[name]
        cursor = before.read_to(max(stops, default=before.cursor)).cursor
        if share.over:
            cursor = Cursor(len(source.parts()), 0)
        return TaskReport(0, number, sources={name: SourceRead(rows, cursor)})


several = st.lists(st.lists(parts(), min_size=1, max_size=3).map(Parts), min_size=1, max_size=3)


@given(several, st.integers(1, 9), st.integers(1, 3))
def test_every_row_of_every_source_is_read_once_and_then_it_is_over(sources, budget, readers):
    driver = Driver(*sources, readers=readers)
    driver.to_the_end(budget)
    assert list(driver.read.values()) == [source.places() for source in sources]
    told = [offsets.rows for offsets in driver.intake.offsets().values()]
    assert told == [len(source.places()) for source in sources]


@given(several, st.integers(1, 9), st.integers(1, 3), st.integers(0, 20))
def test_a_limit_holds_for_each_source_to_the_row(sources, budget, readers, limit):
    driver = Driver(*sources, rows=limit, readers=readers)
    driver.to_the_end(budget)
    assert list(driver.read.values()) == [source.places()[:limit] for source in sources]


@given(several, st.lists(st.integers(1, 9), min_size=1, max_size=5), st.integers(1, 3))
def test_a_run_that_goes_on_from_a_manifest_reads_the_rest(sources, budgets, readers):
    driver = Driver(*sources, readers=readers)
    for budget in budgets:
        driver.batch(budget)
    following = Driver(*sources, readers=readers)
    saved = {name: json.dumps(each.to_json()) for name, each in driver.intake.offsets().items()}
    following.intake.restore({n: SourceOffsets.from_json(json.loads(s)) for n, s in saved.items()})
    following.to_the_end(5)
    both = [driver.read[name] + following.read[name] for name in driver.read]
    assert both == [source.places() for source in sources]


def test_a_limit_holds_though_a_part_has_more_rows_than_it_seemed():
    driver = Driver(Parts([Part(3, Extent(3, exact=True)), Part(12, Extent(2))]), rows=5)
    driver.to_the_end(100)
    assert driver.read["s0"] == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]


def test_a_limit_ends_an_endless_source():
    driver = Driver(numbers(), rows=10, readers=2)
    driver.to_the_end(4)
    assert driver.read["s0"] == [(x,) for x in range(10)]


def test_a_paced_source_gives_what_is_due_and_nothing_before():
    driver = Driver(numbers(rate_per_s=10))
    assert not driver.batch(100, elapsed_s=0.05)
    assert driver.batch(100, elapsed_s=0.5)
    assert len(driver.read["s0"]) == 5
    assert driver.intake.backlog("s0", elapsed_s=1.2) == 7


def test_a_paced_source_goes_on_from_where_it_was_at_its_own_pace():
    driver = Driver(numbers(rate_per_s=10))
    driver.intake.restore({"s0": SourceOffsets({0: 70}, 1, rows=70)})
    driver.batch(100, elapsed_s=0.3)
    assert driver.read["s0"] == [(70,), (71,), (72,)]


def test_a_source_that_waits_does_not_hold_the_others():
    driver = Driver(numbers(rate_per_s=10), numbers(rows=8))
    assert driver.batch(5, elapsed_s=0.0)
    assert [len(rows) for rows in driver.read.values()] == [0, 5]


def test_a_paced_source_ends_when_nothing_will_be_due_any_more():
    class Silent(Parts):  # tells no extent, so only reading shows its end
        def due_rows(self, elapsed_s: float) -> int | None:
            return min(int(elapsed_s), 4)

    for source in (Silent(parts_of(4)), numbers(rows=0, rate_per_s=1)):
        driver = Driver(source)
        for second in range(8):
            driver.batch(100, elapsed_s=float(second))
        assert driver.intake.over, source


def test_the_backlog_counts_what_is_known_to_wait():
    driver = Driver(ab.memory([{"x": x} for x in range(10)]))
    driver.batch(4)
    assert driver.intake.backlog("s0", 0.0) == 6
    driver.to_the_end(100)
    assert driver.intake.backlog("s0", 0.0) == 0


def test_the_backlog_of_a_source_of_unknown_size_is_unknown():
    assert Driver(Parts(parts_of(3))).intake.backlog("s0", 0.0) is None


def test_an_endless_source_with_several_parts_must_be_interleaved():
    with pytest.raises(BuildError, match=r"got 2 parts.*interleaved = True"):
        Driver(Parts(parts_of(1, 1), bounded=False))


# Arrival times


def arrivals(driver: Driver, times: list[int], budget: int = 100) -> list[int]:
    for _ in times:
        driver.batch(budget)
    return [stamp.microsecond for _, _, stamp in driver.read["s0"]]


def ticking(*ticks: int) -> object:
    given = iter(ticks)
    return lambda: next(given)


def test_rows_are_stamped_once_a_batch_when_it_is_decided_to_read_them():
    source = ab.stamped(Parts(parts_of(5)), ticking(10, 20, 30))
    driver = Driver(source)
    assert arrivals(driver, [1, 2, 3], budget=2) == [10, 10, 20, 20, 30]
    assert source.record == {"0": [(0, 2, 10), (2, 4, 20), (4, 6, 30)]}


def test_a_replay_of_a_logged_batch_goes_by_the_stamps_in_the_log():
    def shares_of(clock: object) -> tuple[Driver, dict[str, Share]]:
        driver = Driver(ab.stamped(Parts(parts_of(5)), clock))
        shares = driver.intake.decide(driver.plan, 0.0)
        return driver, shares

    _, logged = shares_of(ticking(10))
    later, _ = shares_of(ticking(99))
    again = shares_from_json(json.loads(json.dumps(shares_to_json(logged))))
    later._task("s0", again["s0"], 0)
    assert [stamp.microsecond for _, _, stamp in later.read["s0"]] == [10] * 5


def test_stamps_do_not_go_back_when_a_run_goes_on_with_a_clock_that_did():
    driver = Driver(ab.stamped(Parts(parts_of(4)), ticking(50)))
    driver.batch(2)
    following = Driver(ab.stamped(Parts(parts_of(4)), ticking(7, 60)))
    following.intake.restore(driver.intake.offsets())
    assert arrivals(following, [1, 2], budget=1) == [50, 60]


def test_rows_that_had_not_come_yet_are_stamped_when_they_come():
    class Trickle(Parts):
        there = 1

        def read(self, part: str, start: int, rows: int) -> Chunk | None:
            nothing = Chunk(pa.RecordBatch.from_pylist([], SCHEMA))
            return super().read(part, start, min(rows, self.there - start)) or nothing

    slow = Trickle(parts_of(9), bounded=False)
    driver = Driver(ab.stamped(slow, ticking(10, 20, 30)))
    for there in (1, 1, 3):
        slow.there = there
        driver.batch(100)
    assert [stamp.microsecond for _, _, stamp in driver.read["s0"]] == [10, 30, 30]
