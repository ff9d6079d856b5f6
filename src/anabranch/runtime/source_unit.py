"""A reader of a source: reads the rows that it was given, and sends them with their positions."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from anabranch.columns.schemas import without_dictionaries
from anabranch.io.interleaving import notice
from anabranch.io.reader import last_word, numbered, placed
from anabranch.io.source import Source
from anabranch.runtime.messages import Chunk, Claim, Finished, Promise, Survey, Surveyed, UnitId
from anabranch.runtime.outlet import Outlet
from anabranch.runtime.unit import Watch
from anabranch.state.positions import START, Jumbo, Root, is_end

Acknowledge = Callable[[Chunk, int], None]


class SourceUnit:
    """One reader of a source, in one epoch.

    Args:
        unit: Its name.
        epoch: The epoch.
        source: What is read; no other reader of this process uses the same object.
        rank: Number of the source.
        outlet: Where tuples go.
        report: Takes the messages to the coordinator.
    """

    def __init__(
        self,
        unit: UnitId,
        epoch: int,
        source: Source,
        rank: int,
        outlet: Outlet,
        report: Callable[[Finished | Surveyed], None],
    ) -> None:
        self.id, self.epoch, self._source, self._rank = unit, epoch, source, rank
        self._outlet, self._report = outlet, report
        self._schema = without_dictionaries(source.schema)
        self._claims: deque[Claim] = deque()
        self._least: deque[Claim] = deque()  # those that no later claim begins before
        self._surveys: deque[Survey] = deque()
        self._free, self._sent = START, START
        self._dry: dict[str, int] = {}  # by part that had no more rows, its next sequence number
        self._at = 0
        self._passed: dict[str, int] = {}  # by part, its last heartbeat
        self._heartbeats: list[tuple[int, int]] = []  # of the claim, those without rows
        self._ended = False

    def receive(self, message: Claim | Promise | Survey) -> None:
        """Take a claim, a promise or a question."""
        if isinstance(message, Survey):
            self._surveys.append(message)
            return
        if isinstance(message, Claim):
            if not self._claims:
                self._at = message.start
            self._claims.append(message)
            while self._least and self._least[-1].first > message.first:
                self._least.pop()
            self._least.append(message)
            self._dry.pop(message.part, None)
        else:
            self._dry.clear()  # it is sent when the end of every claim is known
        self._free = message.free

    def runnable(self) -> bool:
        """Return whether there is something to read, to ask or to promise."""
        return bool(self._claims or self._surveys) or self._promise() > self._sent

    def run(
        self, acknowledge: Acknowledge, now_s: Callable[[], float], watch: Watch | None = None
    ) -> None:
        """Answer one question, or read once."""
        if self._surveys:
            survey, source = self._surveys.popleft(), self._source
            found = source.parts() if survey.look else None
            extents = {part: source.extent(part) for part in survey.parts}
            self._report(Surveyed(self.id, extents, found))
        elif self._claims:
            self._read(acknowledge, now_s, watch)
        else:
            self._send(None, None, frozenset())

    def end_epoch(self) -> None:
        """Send what is promised, and barriers; all claims have been read.

        However short an epoch is, the end of a stream is not held back by that.
        """
        if self._promise() > self._sent:
            self._send(None, None, frozenset())
        self._outlet.end_epoch()

    def _read(
        self, acknowledge: Acknowledge, now_s: Callable[[], float], watch: Watch | None
    ) -> None:
        claim = self._claims[0]
        if claim.passed is not None:
            self._notify(claim, acknowledge)
            return
        chunks = frozenset({Chunk(self.id.region, claim.number)})
        began_s = now_s() if claim.due_s is None else claim.due_s
        source = self._source
        if claim.record is not None and source.arrivals is not None:
            source = source.arrivals.recalling(claim.record)
        if watch is not None:
            watch.begin()
        chunk = source.read(claim.part, self._at, claim.stop - self._at)
        jumbo = None
        news = chunk is not None and self._is_news(claim.part, chunk.passed)
        if chunk is not None and (chunk.batch.num_rows or news):
            first = _sequence_number(claim, self._at)
            jumbo = placed(chunk, self._schema, self._rank, first, claim.lane)
            if chunk.passed is not None and not len(jumbo):
                self._heartbeats.append((self._at, chunk.passed))
            self._at += len(jumbo)
        if watch is not None:
            watch.read(jumbo)
        over = chunk is None
        nothing = jumbo is None or not len(jumbo)
        dry = chunk is not None and (chunk.dry or nothing) and self._at < claim.stop
        if not (over or dry or self._at >= claim.stop):
            self._send(jumbo, began_s, chunks)
            return
        rows = self._at - claim.start
        if dry and not source.interleaved:  # whose further rows get further numbers
            self._dry[claim.part] = _sequence_number(claim, self._at)
        heartbeats, self._heartbeats = tuple(self._heartbeats), []
        self._next_claim()
        self._send(jumbo, began_s, chunks)
        for done in chunks:
            acknowledge(done, -1)
        waited_ms = None if chunk is None else chunk.waited_ms
        self._report(Finished(self.id, claim.number, rows, over, waited_ms, heartbeats))

    def _is_news(self, part: str, passed: int | None) -> bool:
        """Return whether a heartbeat says more than those before, which silent parts repeat."""
        if passed is None or passed <= self._passed.get(part, passed - 1):
            return False
        self._passed[part] = passed
        return True

    def _notify(self, claim: Claim, acknowledge: Acknowledge) -> None:
        """Send a notice about a part to clocks."""
        assert claim.passed is not None
        self._next_claim()
        jumbo = notice(self._schema, self._rank, claim.first, claim.passed, claim.lane)
        self._send(jumbo, None, frozenset())
        acknowledge(Chunk(self.id.region, claim.number), -1)
        self._report(Finished(self.id, claim.number, 0, False))

    def _next_claim(self) -> None:
        if self._claims.popleft() is self._least[0]:
            self._least.popleft()
        self._at = self._claims[0].start if self._claims else 0

    def _promise(self) -> Root:
        """Return a root that no row which this reader reads from now on is before."""
        starts: list[int] = []
        if self._claims:
            reading = self._claims[0]
            starts.append(_sequence_number(reading, self._at))
            # Of many claims, the least of those after it: notices may come by the thousand.
            least = self._least
            at = 1 if least[0] is reading else 0
            starts += [least[at].first] if at < len(least) else []
        # The coordinator may have given out a claim before it knew that another one was dry.
        starts += self._dry.values()
        return min([self._free, *(numbered(self._rank, start) for start in starts)])

    def _send(self, jumbo: Jumbo | None, born_s: float | None, chunks: frozenset[Chunk]) -> None:
        promise = max(self._promise(), self._sent)
        if is_end(promise) and not self._ended:
            self._ended = True
            if jumbo is not None:
                self._outlet.send([jumbo], [self._sent], born_s, chunks)
            # The mark reports to clocks that the source is over.
            parts = None if self._source.interleaved else len(self._source.parts())
            jumbo, chunks = last_word(self._schema, self._rank, parts), frozenset()
        self._sent = promise
        self._outlet.send([jumbo], [promise], born_s, chunks)


def _sequence_number(claim: Claim, row: int) -> int:
    return claim.first + row - claim.start
