"""A source on threads: its readers take what the dispenser gives out."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from functools import partial
from threading import Lock

from anabranch.columns.schemas import without_dictionaries
from anabranch.engines.local.dispenser import Claim, Dispenser, Offsets
from anabranch.engines.local.gate import QUOTA
from anabranch.engines.local.outlet import TOGETHER, Outlet
from anabranch.engines.local.probe import Probe
from anabranch.io.reader import last_word, placed
from anabranch.io.source import Source
from anabranch.planning.plan import SourcePlan
from anabranch.state.positions import FIRST, START, Jumbo, Root, end, is_end

StartThread = Callable[[Probe, Callable[[], None]], None]


class SourceRun:
    """All readers of one source.

    Args:
        name: Name of the source.
        source: What is read.
        rank: Its number.
        plan: How it begins.
        outlet: Where its tuples go.
        limit: Read no more rows than this.
        keeps: Whether checkpoints are made, so that rows may be read again.
    """

    def __init__(
        self,
        name: str,
        source: Source,
        rank: int,
        plan: SourcePlan,
        outlet: Outlet,
        limit: int | None,
        keeps: bool,
    ) -> None:
        self.name, self.plan = name, plan
        self._source, self._rank, self._outlet = source, rank, outlet
        self._schema = without_dictionaries(source.schema)
        self._parts = source.parts()
        self.dispenser = Dispenser(source, rank, plan, limit)
        self._keeps = keeps
        self._counted: tuple[int, list[Probe]] = (0, [])  # rows of readers that left; the others
        self.lag_ms: float | None = None  # how long the rows read last had waited
        self._ended = False
        self._lock = Lock()
        outlet.announce([TOGETHER], START, _quota(plan))

    def start(self, start: StartThread) -> None:
        """Start the readers."""
        self._start = start
        self.change(self.plan)

    def change(self, plan: SourcePlan) -> None:
        """Read by another plan from now on."""
        self.plan = plan
        self._outlet.announce([TOGETHER], START, _quota(plan))
        started = [(n, Probe(self.name, (self.name,), n)) for n in self.dispenser.change(plan)]
        left, known = self._counted
        gone = [probe for probe in known if probe.ended]
        here = [probe for probe in known if probe not in gone]
        self._counted = (left + self._rows_of(gone), [*here, *(probe for _, probe in started)])
        for reader, probe in started:
            self._start(probe, partial(self._read, reader, probe))

    @property
    def probes(self) -> list[Probe]:
        """The readers; those that left are forgotten when the next ones come."""
        return self._counted[1]

    @property
    def rows(self) -> int:
        """Tuples read so far."""
        left, here = self._counted
        return left + self._rows_of(here)

    def _rows_of(self, probes: list[Probe]) -> int:
        return sum(probe.rows[self.name][1] for probe in probes)

    def close(self) -> None:
        """Let the readers end."""
        self.dispenser.close()

    def idle(self) -> bool:
        """Whether nothing is under way from it."""
        return self.dispenser.at_rest

    def offsets(self) -> Offsets:
        """Where to read on, for a checkpoint."""
        offsets = self.dispenser.offsets()
        if self._source.arrivals is not None:
            offsets["stamp"] = self._source.arrivals.latest
        return offsets

    def forget(self) -> None:
        """A checkpoint is safe: when the rows before it arrived need not be remembered."""
        if (arrivals := self._source.arrivals) is not None:
            for number, part in enumerate(self._parts):
                row = self.dispenser.next_row(number)
                if row:
                    arrivals.let_go(part, row)

    def restore(self, offsets: Offsets) -> None:
        """Read on from there."""
        self.dispenser.restore(offsets)
        arrivals = self._source.arrivals
        if arrivals is not None and offsets.get("stamp") is not None:
            # No row gets a stamp before the last one given: that is all there is to recall.
            self._source = arrivals.recalling({self._parts[0]: [(0, 0, offsets["stamp"])]})

    def _read(self, reader: int, probe: Probe) -> None:
        # The readers of one part must not share open files; one that stamps rows has one reader.
        source = copy.copy(self._source) if reader else self._source
        while (claim := self.dispenser.claim(reader)) is not None:
            dry = self._read_claim(source, reader, claim, probe)
            arrivals = source.arrivals
            if arrivals is not None and not (self._keeps or source.bounded):
                arrivals.let_go(self._parts[claim.part], claim.at)  # or the record has no end, too
            if dry:
                self.dispenser.nap()
        self._end_if_over()
        self.dispenser.leave(reader)

    def _read_claim(self, source: Source, reader: int, claim: Claim, probe: Probe) -> bool:
        """Whether all that had come was read, and it is better to wait before asking again."""
        over = dry = False
        while claim.at < claim.stop and not over:
            probe.begin()
            began_s = time.monotonic()
            chunk = source.read(self._parts[claim.part], claim.at, claim.stop - claim.at)
            probe.end_step(self.name)
            if chunk is None:
                over = True
                continue
            nothing = not chunk.batch.num_rows and chunk.passed is None
            if chunk.waited_ms is not None:
                self.lag_ms = chunk.waited_ms
            if not nothing:
                born_s = began_s if claim.due_s is None else claim.due_s
                jumbo = placed(chunk, self._schema, self._rank, claim.part, claim.at)
                probe.count(self.name, 0, len(jumbo))
                frontier = self.dispenser.frontier_after(reader, len(jumbo))
                self._send(jumbo, frontier, born_s)
                self.dispenser.advance(reader, len(jumbo))
            if (nothing or chunk.dry) and claim.at < claim.stop:
                dry = self.dispenser.give_back(reader)
                if not dry:  # another reader has claimed what comes behind it
                    self.dispenser.nap()
        frontier = self.dispenser.finish(reader, part_over=over)
        if not is_end(frontier):
            self._send(None, frontier, 0.0)
        self.dispenser.told(reader)
        return dry

    def _end_if_over(self) -> None:
        """The last word of a source, told once."""
        with self._lock:
            if self._ended or not self.dispenser.over:
                return
            self._ended = True
        word = last_word(self._schema, self._rank, len(self._parts))
        self._send(word, end(FIRST), 0.0)

    def _send(self, jumbo: Jumbo | None, frontier: Root, born_s: float) -> None:
        self._outlet.tell([jumbo], [frontier], born_s)


def _quota(plan: SourcePlan) -> int:
    """Jumbo tuples that may wait in front of the next region."""
    if plan.in_flight_limit is None:
        return QUOTA
    return max(1, min(QUOTA, plan.in_flight_limit // plan.batch_rows))
