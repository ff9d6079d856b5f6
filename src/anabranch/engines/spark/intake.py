"""What each micro-batch reads: how far every source has come, and what is next.

The decision is logged before the batch runs, so that a replay reads the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from anabranch.engines.spark.task_inputs import Program
from anabranch.engines.spark.task_report import TaskReport
from anabranch.errors import EngineError, StateError
from anabranch.io.source import Record, Source, unread
from anabranch.io.splits import Cursor, Slice, take
from anabranch.planning.plan import Plan

FOREVER_S = 1e9
MOST_PARTS = 256


@dataclass
class SourceProgress:
    """How far one source has come, and the last stamp if it stamps arrivals."""

    cursor: Cursor = field(default_factory=Cursor)
    rows: int = 0
    over: bool = False
    stamp: int | None = None


@dataclass(frozen=True)
class Share:
    """What a batch takes from one source.

    Attributes:
        slices: By reader.
        over: Whether the source is over after them.
        record: When their rows arrived, where the source stamps that.
    """

    slices: list[list[Slice]]
    over: bool
    record: Record | None = None


class Intake:
    """Decides what batches read, and remembers what they have read.

    Args:
        program: The flow.
        limit_rows: Read no more of each source than this.
    """

    def __init__(self, program: Program, limit_rows: int | None = None) -> None:
        self._program, self._limit = program, limit_rows
        self._sources = program.sources
        pushed = [n for n, source in self._sources.items() if source.pushed]
        self.pushed = bool(pushed)
        if pushed and limit_rows is not None:
            raise EngineError(
                pushed[0],
                "sources that are read row by row, with rows=",
                "a streaming DataFrame, of which Spark says how much it gives",
                "leave rows= out and stop the run by seconds= or its handle",
            )
        self._progress = {name: SourceProgress() for name in self._sources}
        self._read_before: dict[str, int] = dict.fromkeys(self._sources, 0)
        self.dry = False  # whether Spark has nothing more of the streaming DataFrames

    @property
    def over(self) -> bool:
        """Whether every source has ended."""
        return all(progress.over for progress in self._progress.values())

    def cursors(self) -> dict[str, Cursor]:
        """Where each source stands."""
        return {name: progress.cursor for name, progress in self._progress.items()}

    def ended(self) -> frozenset[str]:
        """The sources that have ended."""
        return frozenset(name for name, progress in self._progress.items() if progress.over)

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
                if (cursor := part.cursor) is not None:
                    progress = self._progress[name]
                    if (cursor.part, cursor.row) > (progress.cursor.part, progress.cursor.row):
                        progress.cursor = cursor
        for name, rows in read.items():
            progress, source = self._progress[name], self._sources[name]
            progress.rows += rows
            self._note_stamps(name, shares[name])
            at_end = not source.pushed and progress.cursor.part >= len(source.parts())
            if shares[name].over or at_end:
                progress.over = True
        return read

    def backlog(self, name: str, elapsed_s: float) -> int | None:
        """How many tuples of a source are known to wait."""
        source, progress = self._sources[name], self._progress[name]
        if progress.over:
            return 0
        due = source.due_rows(elapsed_s)
        if due is not None:
            return max(0, self._read_before[name] + int(due) - progress.rows)
        parts = source.parts()[progress.cursor.part :]
        if len(parts) > MOST_PARTS:
            return None  # looking at each of them would take longer than it is worth
        try:
            return unread([source.extent(part) for part in parts], progress.cursor.row)
        except Exception:  # the next batch will say what is wrong with the source
            return None

    def behind(self, elapsed_s: float) -> bool:
        """Whether tuples are known to wait, or nobody can say."""
        return any(self.backlog(name, elapsed_s) != 0 for name in self._sources)

    def offsets(self) -> dict[str, Any]:
        """For the manifest."""
        return {
            name: [p.cursor.part, p.cursor.row, p.rows, p.over, p.stamp]
            for name, p in self._progress.items()
        }

    def restore(self, offsets: dict[str, Any]) -> None:
        """Go on from a manifest."""
        for name, told in offsets.items():
            if isinstance(told, dict):
                raise StateError(
                    name,
                    "a checkpoint that the Spark engine has written",
                    "one of the local engine",
                    "go on with engine='local', or start afresh in a new checkpoint directory",
                )
            part, row, rows, over, stamp = told
            self._progress[name] = SourceProgress(Cursor(part, row), rows, over, stamp)
            self._read_before[name] = rows

    def _stamped(self, name: str, share: Share) -> Share:
        """Rows arrive when it is decided that they are read: a replay goes by the log."""
        source = self._sources[name]
        if (arrivals := source.arrivals) is None:
            return share
        parts, last = source.parts(), self._progress[name].stamp
        record: Record = {}
        for piece in (piece for slices in share.slices for piece in slices):
            part = parts[piece.part]
            stop = source.extent(part).rows if piece.rows is None else piece.start + piece.rows
            record = {**record, **arrivals.stamp(part, piece.start, stop or piece.start, last)}
        return replace(share, record=record)

    def _note_stamps(self, name: str, share: Share) -> None:
        """Remember the last stamp; rows that had not come after all are stamped later."""
        source, progress = self._sources[name], self._progress[name]
        if share.record is None or (arrivals := source.arrivals) is None:
            return
        given = [stamp for runs in share.record.values() for _, _, stamp in runs]
        progress.stamp = max(given, default=progress.stamp)
        parts = source.parts()
        if progress.cursor.part < len(parts):
            arrivals.forget(parts[progress.cursor.part], progress.cursor.row)

    def _readers(self, name: str, plan: Plan) -> int:
        return plan.source(name).replicas

    def _share(self, name: str, plan: Plan, elapsed_s: float) -> Share | None:
        source, progress = self._sources[name], self._progress[name]
        readers = self._readers(name, plan)
        if source.pushed:
            return Share([], progress.over or (source.bounded and self.dry))
        if progress.over:
            return Share([[] for _ in range(readers)], True)
        left = None if self._limit is None else self._limit - progress.rows
        if left is not None and left <= 0:  # also where a source has nothing more for now
            return Share([[] for _ in range(readers)], True)
        budget = plan.source(name).most_rows
        due = source.due_rows(elapsed_s)
        if due is not None:
            budget = min(budget, self._read_before[name] + int(due) - progress.rows)
            if budget <= 0 and source.bounded and source.due_rows(elapsed_s + FOREVER_S) == due:
                budget = 1  # nothing will ever be due any more: look for the end
        if budget <= 0 or _nothing_came(source, progress.cursor):
            return None
        if left is None:
            return Share(take(source, progress.cursor, budget, readers), False)
        return self._limited(source, progress.cursor, min(budget, left), readers, left)

    def _limited(
        self, source: Source, cursor: Cursor, budget: int, readers: int, left: int
    ) -> Share:
        """Never more rows than the limit: guesses at sizes are not good enough for that."""
        parts = source.parts()
        slices = take(source, cursor, budget, readers)
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
        )
        for name, told in content.items()
    }
