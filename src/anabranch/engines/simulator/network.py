"""The network of regions: one step of all of them, with what they share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isclose

from anabranch.engines.simulator.contention import Contention
from anabranch.engines.simulator.intake import Intake
from anabranch.engines.simulator.region import NO_LIMIT, RegionRun
from anabranch.engines.simulator.shares import Floats
from anabranch.planning.profile import Profile

TINY = 1e-9


@dataclass
class Link:
    """A stream between two regions in the current step.

    Attributes:
        producer: Number of the region that it leaves.
        consumer: Number of the region that it enters.
        stream: Its number among the producer's streams.
        part: Its part of what its consumer takes in, in the long run.
        now: Its part of what its consumer can take in this step.
        allowed: Tuples that may be on it.
        carried: Tuples that are.
    """

    producer: int
    consumer: int
    stream: int
    part: float = 1.0
    now: float = 1.0
    allowed: float = 0.0
    carried: float = 0.0


class Network:
    """Regions in an order in which producers come first.

    Args:
        profile: The application.
        regions: How they run, in that order.
        contention: What they share.
        intake: What they read.
    """

    def __init__(
        self,
        profile: Profile,
        regions: Sequence[RegionRun],
        contention: Contention,
        intake: Intake,
    ) -> None:
        self.regions, self.intake = list(regions), intake
        self._contention = contention
        home = {
            name: number
            for number, region in enumerate(self.regions)
            for name in region.spec.choice.operators
        }
        self.entry_of = {
            region.spec.choice.operators[0]: number for number, region in enumerate(self.regions)
        }
        self.reading = {name: home[name] for name in intake.sources}
        self.links: list[Link] = []
        for number, region in enumerate(self.regions):
            last = region.spec.choice.operators[-1]
            for place, stream in enumerate(profile.out_of(last)):
                self.links.append(Link(number, home[stream.consumer], place))
        self.out_of = [[k for k in self.links if k.producer == n] for n in range(len(home))]
        self.into = [[k for k in self.links if k.consumer == n] for n in range(len(home))]
        self._steady_s: float | None = None  # length of the last step if it changed no queue
        self._joins = [links for links in self.into if len(links) > 1]

    def set_flows(self, profile: Profile) -> None:
        """The profile has changed: find which part of its consumer's tuples each stream brings."""
        for links in self._joins:
            flows = [self._flow(link, profile) for link in links]
            total = sum(flows)
            for link, flow in zip(links, flows, strict=True):
                link.part = flow / total if total > 0 else 1 / len(links)

    def _flow(self, link: Link, profile: Profile) -> float:
        last = self.regions[link.producer].spec.choice.operators[-1]
        return profile.visits[last] * profile.out_of(last)[link.stream].selectivity

    def step(self, seconds: float) -> None:
        """Let some time pass."""
        if self._goes_on(seconds):
            self.intake.take(self._read)
            return
        able = [region.able(seconds) for region in self.regions]
        for link in self.links:
            link.now = link.part
        self._look(able)
        if self._is_lopsided():
            self._deal_again()
            self._look(able)
        entries = {name: self.regions[number] for name, number in self.entry_of.items()}
        parts = self._contention.factors(self.regions, entries, seconds)
        if parts is not None:
            less = [r.passed * part for r, part in zip(self.regions, parts, strict=True)]
            self._look(less)
        self._contended, self._offers = parts is not None, self.intake.offers()
        steady = [region.settle() for region in self.regions]
        self._steady_s = seconds if all(steady) else None
        self.intake.take(self._read)

    def _goes_on(self, seconds: float) -> bool:
        """Whether this step is like the last: queues stay as they are, and sources read the same.

        Most steps of most runs are; it spares them all of the work.
        """
        if self._steady_s is None or abs(seconds - self._steady_s) > TINY * seconds:
            return False
        if self._contended:  # who is offered more may get a greater part of the cores
            return _alike(self.intake.offers(), self._offers)
        return _alike(self.intake.wanted(self._able_to_read), self._read)

    def disturb(self) -> None:
        """Something has changed: the next step may be unlike the last."""
        self._steady_s = None

    def _look(self, able: Sequence[Floats]) -> None:
        """How much every thread handles, if each is able to handle so much."""
        takes = [NO_LIMIT] * len(self.regions)
        for number in range(len(self.regions) - 1, -1, -1):
            region, limit = self.regions[number], NO_LIMIT
            for link in self.out_of[number]:
                link.allowed = takes[link.consumer] * link.now
                selectivity = region.costs.streams[link.stream].selectivity
                if selectivity > 0:
                    limit = min(limit, link.allowed / selectivity)
            takes[number] = region.look_back(able[number], limit)
        self._able_to_read = {name: takes[place] for name, place in self.reading.items()}
        self._read = self.intake.wanted(self._able_to_read)
        for number, region in enumerate(self.regions):
            inflow = sum(link.carried for link in self.into[number])
            first = region.spec.choice.operators[0]
            outflow = region.look_forward(self._read.get(first, inflow))
            for link in self.out_of[number]:
                link.carried = outflow * region.costs.streams[link.stream].selectivity

    def _deal_again(self) -> None:
        """Streams that were held back get what others into the same region did not use."""
        for links in self._joins:
            whole = sum(link.allowed for link in links)
            full = [link for link in links if _is_full(link)]
            unused = whole - sum(link.carried for link in links)
            hungry = sum(link.part for link in full)
            if whole <= 0 or hungry <= 0 or len(full) == len(links):
                continue
            for link in links:
                more = unused * link.part / hungry if link in full else 0.0
                link.now = (link.carried + more) / whole

    def _is_lopsided(self) -> bool:
        """Whether some stream into a region was held back while another left room unused."""
        for links in self._joins:
            full = [_is_full(link) for link in links]
            if any(full) and not all(full):
                return True
        return False

    @property
    def waiting(self) -> float:
        """Tuples in all queues."""
        return sum(region.waiting for region in self.regions)


def _alike(some: Mapping[str, float], others: Mapping[str, float]) -> bool:
    return all(isclose(some[name], others[name], rel_tol=TINY) for name in some)


def _is_full(link: Link) -> bool:
    return link.carried >= link.allowed * (1 - TINY)
