"""A clock whose replicas judge side by side, and the one memory that tells them what they need.

Each replica gets *slices*, runs of one source's rows, and keeps each until it knows by what to
judge it. It sends a digest of the slice to the *sequencer*, which is part of replica 0: there the
clock's memory is. The sequencer takes digests in the order of the slices and answers each with the
facts that the slice is judged by. It sees a few numbers for each slice and no rows.

A digest cannot always tell what a slice does. Then the sequencer sends all that it remembers, and
waits until the slice has been judged and the memory has come back.

What is on time is sent on at once, with its event time as position; the gate of the next region
that needs order holds it until it is ready. What is ready the sequencer tells all replicas.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import NamedTuple, cast

import numpy as np

from anabranch.io.reader import PART_SHIFT, sequence_number
from anabranch.operators.base import Outputs
from anabranch.operators.timed import Digest, Facts, TimedKernel
from anabranch.runtime.layout import CLOCK, Layout
from anabranch.runtime.messages import (
    Barrier,
    Chunk,
    Chunks,
    Delivery,
    Link,
    UnitId,
    Word,
)
from anabranch.runtime.outlet import Outlet
from anabranch.runtime.unit import Unit, Watch
from anabranch.state.positions import START, Jumbo, Mark, Root, is_end, meet

SEQUENCER = 0
"""The replica that has the clock's memory."""


# From replicas to the sequencer


class Come(NamedTuple):
    """How far the slices of a replica have come.

    Attributes:
        frontier: No slice that begins before it will follow.
        over: Whether no slice at all will follow in this epoch.
    """

    frontier: Root
    over: bool = False


class Announced(NamedTuple):
    """A slice waits to be judged.

    Attributes:
        begins: The position of its first tuple or mark.
        mark: The mark that it is, if it has no tuples: it counts before the tuple that it precedes.
        number: Identifies it.
        digest: What it does.
    """

    begins: Root
    mark: Mark | None
    number: int
    digest: Digest


class Judged(NamedTuple):
    """All that the clock remembers behind a slice that was judged with the whole memory."""

    facts: Facts


# From the sequencer to replicas


class Judge(NamedTuple):
    """By what a slice is to be judged; `whole`: what the clock remembers behind it is asked for."""

    number: int
    facts: Facts
    whole: bool


class Passed(NamedTuple):
    """How far the clock has come.

    Attributes:
        frontier: All slices that begin before it can be judged.
        ready: No tuple on time that is judged later is before it.
        over: Whether nothing more can be judged in this epoch.
    """

    frontier: Root
    ready: Root
    over: bool


class Sequencer:
    """Hands out by what slices are judged, in their order.

    Args:
        kernel: Has the memory of the clock.
        replicas: How many replicas there are.
    """

    def __init__(self, kernel: TimedKernel, replicas: int) -> None:
        self._kernel = kernel
        self._come = dict.fromkeys(range(replicas), START)
        self._open = set(range(replicas))
        self._slices: list[tuple[tuple[Root, bool, Mark | None], int, int, Announced]] = []
        self._arrivals = count()
        self._awaits = False
        self._told = (START, False)

    def take(self, replica: int, word: Come | Announced | Judged) -> None:
        """Take word of a replica."""
        if isinstance(word, Come):
            self._come[replica] = word.frontier
            if word.over:
                self._open.discard(replica)
        elif isinstance(word, Announced):
            place = (word.begins, word.mark is None, word.mark)
            heapq.heappush(self._slices, (place, next(self._arrivals), replica, word))
        else:
            self._kernel.resume(word.facts)
            self._awaits = False

    def answers(self) -> Iterator[tuple[int, Judge]]:
        """For each slice whose turn it is, its replica and by what it is judged."""
        while not self._awaits and self._can_judge():
            _, _, replica, word = heapq.heappop(self._slices)
            facts = self._kernel.facts_for(word.digest)
            self._awaits = facts is None
            known = self._kernel.facts() if facts is None else facts
            yield replica, Judge(word.number, known, self._awaits)

    def frontier(self) -> Root | None:
        """How far all slices have been handed out; None where that is no news."""
        over = not self._open
        frontier = meet(list(self._come.values()))
        if self._awaits or self._can_judge() or (frontier, over) == self._told:
            return None
        self._told = (frontier, over)
        return frontier

    @property
    def over(self) -> bool:
        """Whether no more slices come."""
        return not self._open

    def _can_judge(self) -> bool:
        """Whether no slice before the first one that waits can come."""
        if not self._slices:
            return False
        return self._slices[0][3].begins < meet(list(self._come.values()))


class Origin(NamedTuple):
    """Where tuples come from.

    Attributes:
        born_s: When the oldest was read.
        chunks: The claims that they stem from.
        whole: The deliveries that end with them: the claims of each.
    """

    born_s: float | None = None
    chunks: Chunks = frozenset()
    whole: Sequence[Chunks] = ()


class Slice(NamedTuple):
    """Tuples and marks that wait to be judged, and where they come from."""

    jumbo: Jumbo
    origin: Origin = Origin()


class ClockUnit(Unit):
    """A replica of a clock.

    Args:
        unit: Its name.
        layout: The layout that it is made for.
        send: Takes messages for an epoch.
    """

    def __init__(self, unit: UnitId, layout: Layout, send: Callable[[int, Word], None]) -> None:
        super().__init__(unit, layout)
        self._ordered = False
        self._send = send
        self._numbers = count()
        self._slices: dict[int, Slice] = {}
        self._sequencer: Sequencer | None = None
        self._todo: deque[Judge | Passed | Outputs] = deque()
        self._reached = [START, START]
        self._judged: list[Origin] = []
        self._said_over = self._over = False

    # Epochs

    def enter(self, epoch: int, layout: Layout, outlet: Outlet) -> None:
        """Begin an epoch, with the slices that could not be judged in the one before."""
        [waited], self._preloaded = self._preloaded, [[]]
        self._slices, self._reached = {}, [START, START]
        self._said_over = self._over = False
        self._sequencer = None
        if self.id.replica == SEQUENCER:
            replicas = layout.region_plan(self.id).replicas
            self._sequencer = Sequencer(self._kernel, replicas)
            self._emit(self._kernel.let_go())
        super().enter(epoch, layout, outlet)
        for run in _runs(waited):
            self._announce(Slice(run))

    def waiting(self) -> list[Jumbo | None]:
        """The tuples that could not be judged yet."""
        rest = [each.jumbo for each in self._slices.values()]
        return [Jumbo.concat(rest).in_order() if rest else None]

    def abandoned(self) -> list[Chunks]:
        """The claims of tuples that go on waiting in the next epoch."""
        return [chunks for each in self._slices.values() for chunks in each.origin.whole]

    # Messages

    def receive(self, message: Delivery | Barrier | Word) -> None:
        """Take tuples from upstream, or the word of another replica."""
        if not isinstance(message, Word) or message.epoch != self.epoch:
            super().receive(message)
        elif isinstance(message.content, Judge | Passed):
            self._todo.append(message.content)
        else:
            assert self._sequencer is not None
            self._sequencer.take(message.link.producer.replica, message.content)
            self._hand_out(self._sequencer)

    @property
    def queued(self) -> tuple[int, int]:
        """How many deliveries wait in front of the unit or in it, and how many tuples."""
        pieces, rows = self._gate.length()
        slices = [each.jumbo for each in self._slices.values()]
        return pieces + len(slices), rows + sum(map(len, slices))

    def has_news(self) -> bool:
        """Whether there is something to process."""
        if self.done:
            return False
        return bool(self._todo) or self._gate.has_news() or not (self._open or self._said_over)

    def is_over(self) -> bool:
        """Whether nothing can be judged any more in this epoch."""
        return not self.done and self._over

    def run(
        self,
        acknowledge: Callable[[Chunk, int], None],
        watch: Watch | None = None,
        upto: Root | None = None,
    ) -> None:
        """Judge a slice, announce one, or end the epoch."""
        assert self._outlet is not None
        if watch is not None:
            watch.begin()
        if self._todo:
            self._do(self._todo.popleft(), self._outlet, acknowledge, watch)
        elif self._gate.has_news():
            self._take_slices()
            if watch is not None:
                watch.tap(self.region.name, (), ())
        elif not self._said_over:
            self._said_over = True
            self._tell(SEQUENCER, Come(self._gate.frontier, over=True))
        else:
            self._outlet.end_epoch()
            self.done = True

    def _do(
        self,
        task: Judge | Passed | Outputs,
        outlet: Outlet,
        acknowledge: Callable[[Chunk, int], None],
        watch: Watch | None,
    ) -> None:
        if isinstance(task, Passed):
            self._reached, self._over = [task.ready, task.frontier], task.over
            self._complete(outlet, acknowledge)
            return
        if not isinstance(task, Judge):
            outlet.send(task, self._reached, None, frozenset())
            return
        judged = self._slices.pop(task.number)
        outputs, facts = self._kernel.judge(judged.jumbo, task.facts)
        if task.whole:
            self._tell(SEQUENCER, Judged(facts))
        if watch is not None:
            watch.tap(self.region.name, [judged.jumbo], outputs)
        outlet.send(outputs, self._reached, None, frozenset())
        self._judged.append(judged.origin)

    def _complete(self, outlet: Outlet, acknowledge: Callable[[Chunk, int], None]) -> None:
        """Tell how far the clock has come: the slices that were judged last are the cause.

        What is on time waits downstream for that, for as long as event time stands still.
        """
        chunks: Chunks = frozenset().union(*(each.chunks for each in self._judged))
        births = (each.born_s for each in self._judged if each.born_s is not None)
        outlet.send([None, None], self._reached, min(births, default=None), frozenset(), chunks)
        for chunk in (chunk for each in self._judged for done in each.whole for chunk in done):
            acknowledge(chunk, -1)
        self._judged.clear()

    def _take_slices(self) -> None:
        """Take in what has come, and say what it does."""
        release = self._gate.take()
        [jumbo] = release.inputs
        chunks: Chunks = frozenset().union(*release.chunks)
        slices = [] if jumbo is None else list(_slices(jumbo))
        for each in slices:
            whole = release.chunks if each is slices[-1] else ()
            self._announce(Slice(each, Origin(release.born_s, chunks, whole)))
        self._tell(SEQUENCER, Come(release.frontier))

    def _announce(self, each: Slice) -> None:
        number = next(self._numbers)
        self._slices[number] = each
        jumbo = each.jumbo
        mark = None if len(jumbo) else jumbo.marks[0]
        begins = Root(*jumbo.positions.row(0)[:4]) if mark is None else mark.root
        digest = self._kernel.digest(jumbo)
        self._tell(SEQUENCER, Announced(begins, mark, number, digest))

    def _hand_out(self, sequencer: Sequencer) -> None:
        """Tell the replicas what can be judged, and how far the clock has come."""
        for replica, word in sequencer.answers():
            self._tell(replica, word)
        frontier = sequencer.frontier()
        if frontier is None:
            return
        if is_end(frontier):
            self._emit(self._kernel.close())
        passed = Passed(frontier, self._kernel.frontier(frontier), sequencer.over)
        for replica in range(self.plan.replicas):
            self._tell(replica, passed)

    def _emit(self, outputs: Outputs) -> None:
        if any(jumbo is not None for jumbo in outputs):
            self._todo.append(outputs)

    def _tell(self, replica: int, content: Come | Announced | Judged | Judge | Passed) -> None:
        link = Link(CLOCK, self.id, self.id._replace(replica=replica))
        self._send(self.epoch, Word(self.epoch, link, content))

    @property
    def _kernel(self) -> TimedKernel:
        return cast(TimedKernel, self.channel.kernels[self.region.name])


def _slices(jumbo: Jumbo) -> Iterator[Jumbo]:
    """What a run of rows comes to: the rows, and each mark behind them, which may have a rival.

    Another slice may hold a mark of the same position, and the order of marks counts.
    """
    rows = len(jumbo)
    last = Root(*jumbo.positions.row(rows - 1)[:4]) if rows else START
    if rows:
        inner = tuple(mark for mark in jumbo.marks if mark.root <= last)
        yield Jumbo(jumbo.batch, jumbo.positions, inner)
    for mark in sorted(mark for mark in jumbo.marks if mark.root > last):
        bare = jumbo.slice(0, 0)
        yield Jumbo(bare.batch, bare.positions, (mark,))


def _runs(jumbos: Sequence[Jumbo]) -> Iterator[Jumbo]:
    """The slices that tuples come to which all replicas together have left: a run of each part."""
    if not jumbos:
        return
    together = Jumbo.concat(jumbos).in_order()
    numbers = together.positions.columns[0]
    marked = [mark.root.time for mark in together.marks]
    for part in np.unique(np.r_[numbers, np.array(marked, np.int64)] >> PART_SHIFT).tolist():
        first, last = sequence_number(part, 0), sequence_number(part + 1, 0)
        run = together.slice(*np.searchsorted(numbers, [first, last]).tolist())
        marks = tuple(mark for mark in together.marks if first <= mark.root.time < last)
        yield from _slices(Jumbo(run.batch, run.positions, marks))
