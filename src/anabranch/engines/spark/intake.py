"""What each micro-batch reads: how far every source has come, and what is next.

The decision is logged before the batch runs, so that a replay reads the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from anabranch.engines.spark.task_inputs import Program
from anabranch.engines.spark.task_report import TaskReport
from anabranch.errors import EngineError
from anabranch.io.interleaving import Arrived, Silences, names_of, take_arrived
from anabranch.io.offsets import Cursor, Run, SourceOffsets
from anabranch.io.source import Record, Source, require_one_part, unread
from anabranch.io.splits import Slice, take
from anabranch.planning.plan import Plan

FOREVER_S = 1e9
MOST_PARTS = 256


@dataclass(frozen=True)
class Share:
    """What a batch takes from one source.

    Attributes:
        slices: By reader.
        over: Whether the source is over after them.
        record: When their rows arrived, where the source stamps that.
        arrived: Of an interleaved source, what is read instead of slices.
    """

    slices: list[list[Slice]]
    over: bool
    record: Record | None = None
    arrived: Arrived | None = None


class Intake:
    """Decides what batches read, and remembers what they have read.

    Args:
        program: The flow.
        limit_rows: Read no more of each source than this.
    """

    def __init__(self, program: Program, limit_rows: int | None = None) -> None:
        self._program, self._limit = program, limit_rows
        self._sources = program.sources
        for name, source in self._sources.items():
            require_one_part(name, source)
        pushed = [n for n, source in self._sources.items() if source.pushed]
        self.pushed = bool(pushed)
        if pushed and limit_rows is not None:
            raise EngineError(
                pushed[0],
                "sources that are read row by row, with rows=",
                "a streaming DataFrame, of which Spark says how much it gives",
                "leave rows= out and stop the run by seconds= or its handle",
            )
        self._offsets = {name: SourceOffsets() for name in self._sources}
        self._read_before: dict[str, int] = dict.fromkeys(self._sources, 0)
        self._silences = {n: Silences(each.idle_after_s) for n, each in self._sources.items()}
        self.dry = False  # whether Spark has nothing more of the streaming DataFrames

    @property
    def over(self) -> bool:
        """Whether every source has ended."""
        return all(offsets.over for offsets in self._offsets.values())

    def ended(self) -> frozenset[str]:
        """The sources that have ended."""
        return frozenset(name for name, offsets in self._offsets.items() if offsets.over)

    def decide(self, plan: Plan, elapsed_s: float) -> dict[str, Share] | None:
        """What to read next; None when no source has anything due yet."""
        shares = {name: self._share(name, plan, elapsed_s) for name in self._sources}
        waiting = [name for name, share in shares.items() if share is None]
        if len(waiting) == len(self._sources) - len(self.ended()) and waiting:
            return None
        return {
            name: self._stamped(name, share)
            if share is not None
            else Share([[] for _ in range(self._readers(name, plan))], False)
            for name, share in shares.items()
        }

    def advance(self, shares: dict[str, Share], reports: Sequence[TaskReport]) -> dict[str, int]:
        """Note how far the tasks came; gives the tuples read, by source."""
        read = dict.fromkeys(self._sources, 0)
        for report in reports:
            for name, part in report.sources.items():
                read[name] += part.rows
                if part.cursor is not None:
                    self._offsets[name] = self._offsets[name].read_to(part.cursor)
        for name, rows in read.items():
            source, offsets = self._sources[name], self._offsets[name]
            if (arrived := shares[name].arrived) is not None:
                stamp = self._last_stamp(name, shares[name])
                over = offsets.over or shares[name].over
                self._offsets[name] = replace(arrived.after, over=over, stamp=stamp)
                continue
            in_order = not (source.pushed or source.interleaved)
            at_end = in_order and offsets.cursor.part >= len(source.parts())
            self._offsets[name] = replace(
                offsets,
                rows=offsets.rows + rows,
                over=offsets.over or shares[name].over or at_end,
                stamp=self._last_stamp(name, shares[name]),
            )
        return read

    def backlog(self, name: str, elapsed_s: float) -> int | None:
        """How many tuples of a source are known to wait."""
        source, offsets = self._sources[name], self._offsets[name]
        if offsets.over:
            return 0
        due = source.due_rows(elapsed_s)
        if due is not None:
            return max(0, self._read_before[name] + int(due) - offsets.rows)
        parts = names_of(source, offsets) if source.interleaved else source.parts()
        starts = {n: offsets.start(n) for n in range(offsets.cursor.part, len(parts))}
        begun = {n: row for n, row in starts.items() if row is not None}
        if len(begun) > MOST_PARTS:
            return None  # looking at each of them would take longer than it is worth
        try:
            return unread([source.extent(parts[n]) for n in begun], sum(begun.values()))
        except Exception:  # the next batch will say what is wrong with the source
            return None

    def behind(self, elapsed_s: float) -> bool:
        """Whether tuples are known to wait, or nobody can say."""
        return any(self.backlog(name, elapsed_s) != 0 for name in self._sources)

    def offsets(self) -> dict[str, SourceOffsets]:
        """Where each source stands."""
        return dict(self._offsets)

    def restore(self, offsets: Mapping[str, SourceOffsets]) -> None:
        """Go on from a manifest, of whichever engine."""
        self._offsets.update(offsets)
        self._read_before.update({name: each.rows for name, each in offsets.items()})

    def _stamped(self, name: str, share: Share) -> Share:
        """Rows arrive when it is decided that they are read: a replay goes by the log."""
        source = self._sources[name]
        if (arrivals := source.arrivals) is None:
            return share
        parts, last = source.parts(), self._offsets[name].stamp
        record: Record = {}
        for piece in (piece for slices in share.slices for piece in slices):
            part = parts[piece.part]
            stop = source.extent(part).rows if piece.rows is None else piece.start + piece.rows
            record = {**record, **arrivals.stamp(part, piece.start, stop or piece.start, last)}
        if share.arrived is not None:
            for run in (each for each in share.arrived.after.runs if each.rows):
                record = {
                    **record,
                    **arrivals.stamp(run.part, run.start, run.start + run.rows, last),
                }
        return replace(share, record=record)

    def _last_stamp(self, name: str, share: Share) -> int | None:
        """The last stamp given; rows that had not come after all are stamped later."""
        source, offsets = self._sources[name], self._offsets[name]
        if share.record is None or (arrivals := source.arrivals) is None:
            return offsets.stamp
        parts, cursor = source.parts(), offsets.cursor
        if cursor.part < len(parts) and share.arrived is None:
            arrivals.forget(parts[cursor.part], cursor.row)
        given = [stamp for runs in share.record.values() for _, _, stamp in runs]
        return max(given, default=offsets.stamp)

    def _readers(self, name: str, plan: Plan) -> int:
        return plan.source(name).replicas

    def _share(self, name: str, plan: Plan, elapsed_s: float) -> Share | None:
        source, offsets = self._sources[name], self._offsets[name]
        readers = self._readers(name, plan)
        if source.pushed:
            return Share([], offsets.over or (source.bounded and self.dry))
        if offsets.over:
            return Share([[] for _ in range(readers)], True)
        left = None if self._limit is None else self._limit - offsets.rows
        if left is not None and left <= 0:  # also where a source has nothing more for now
            return Share([[] for _ in range(readers)], True)
        budget = plan.source(name).most_rows
        due = source.due_rows(elapsed_s)
        if due is not None:
            budget = min(budget, self._read_before[name] + int(due) - offsets.rows)
            if budget <= 0 and source.bounded and source.due_rows(elapsed_s + FOREVER_S) == due:
                budget = 1  # nothing will ever be due any more: look for the end
        if source.interleaved:
            budget = budget if left is None else min(budget, left)
            silences = self._silences[name]
            arrived = take_arrived(source, offsets, budget, readers, silences, elapsed_s)
            over = arrived.after.over or (left is not None and arrived.rows >= left)
            nothing = not (any(arrived.runs) or over)
            return None if nothing else Share([[] for _ in range(readers)], over, arrived=arrived)
        if budget <= 0 or _nothing_came(source, offsets.cursor):
            return None
        if left is None:
            return Share(take(source, offsets, budget, readers), False)
        return self._limited(source, offsets, min(budget, left), readers, left)

    def _limited(
        self, source: Source, offsets: SourceOffsets, budget: int, readers: int, left: int
    ) -> Share:
        """Never more rows than the limit: guesses at sizes are not good enough for that."""
        parts = source.parts()
        cursor = offsets.cursor
        slices = take(source, offsets, budget, readers)
        known = [source.extent(parts[s.part]) for share in slices for s in share]
        if not all(each.exact or each.growing for each in known):
            slices = [[Slice(cursor.part, cursor.row, budget)], *([] for _ in range(readers - 1))]
        taken = sum(s.rows or budget for share in slices for s in share)
        return Share(slices, taken >= left and len(parts) == 1)


def _nothing_came(source: Source, cursor: Cursor) -> bool:
    """Whether a part grows, and has not grown since it was read."""
    parts = source.parts()
    if cursor.part >= len(parts):
        return False
    known = source.extent(parts[cursor.part])
    return known.growing and (known.rows or 0) <= cursor.row


def shares_to_json(shares: dict[str, Share]) -> dict[str, Any]:
    """For the log."""
    return {
        name: {
            "slices": [[[s.part, s.start, s.rows] for s in slices] for slices in share.slices],
            "over": share.over,
            "record": share.record,
            "arrived": None
            if share.arrived is None
            else {"runs": share.arrived.runs, "after": share.arrived.after.to_json()},
        }
        for name, share in shares.items()
    }


def shares_from_json(content: dict[str, Any]) -> dict[str, Share]:
    """From the log."""
    return {
        name: Share(
            [[Slice(*s) for s in slices] for slices in told["slices"]],
            told["over"],
            told["record"],
            _arrived_from_json(told.get("arrived")),
        )
        for name, told in content.items()
    }


def _arrived_from_json(content: dict[str, Any] | None) -> Arrived | None:
    if content is None:
        return None
    runs = [[Run(*run) for run in runs] for runs in content["runs"]]
    return Arrived(runs, SourceOffsets.from_json(content["after"]))
