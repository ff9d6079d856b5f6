"""What a flow allows, whatever its plan: regions in order, and who is upstream of whom."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from anabranch.flow import Flow
from anabranch.planning.regions import Region, RegionKind, regions


@dataclass(frozen=True)
class Topology:
    """The regions of a flow, as policies see them.

    Attributes:
        flow: The flow.
        regions: Its regions, upstream first; sources and sinks are regions, too.

    Example:
        >>> from anabranch.apps import word_count
        >>> topology = Topology.of(word_count.build())
        >>> topology.names, topology.upstream("count")
        (('lines', 'split', 'count', 'out'), ('split',))
    """

    flow: Flow = field(repr=False)
    regions: tuple[Region, ...]

    @staticmethod
    def of(flow: Flow) -> Topology:
        """The topology of a flow."""
        return Topology(flow, regions(flow))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the regions, upstream first."""
        return tuple(region.name for region in self.regions)

    @property
    def sources(self) -> tuple[Region, ...]:
        """The regions that read."""
        return tuple(r for r in self.regions if r.kind is RegionKind.SOURCE)

    @property
    def working(self) -> tuple[Region, ...]:
        """The regions between sources and sinks: those with operators."""
        ends = (RegionKind.SOURCE, RegionKind.SINK)
        return tuple(r for r in self.regions if r.kind not in ends)

    def region(self, name: str) -> Region:
        """A region by name."""
        return next(r for r in self.regions if r.name == name)

    def home(self, step: str) -> Region:
        """The region of a step."""
        return next(r for r in self.regions if step in r.steps)

    @cached_property
    def streams(self) -> tuple[tuple[str, str], ...]:
        """Producing and consuming step of every stream; each pair once."""
        graph = self.flow.graph
        pairs = [(out.step, n) for n, s in graph.steps.items() for out in s.inputs if out]
        return tuple(dict.fromkeys(pairs))

    @cached_property
    def _above(self) -> dict[str, tuple[str, ...]]:
        found: dict[str, list[str]] = {region.name: [] for region in self.regions}
        for producer, consumer in self.streams:
            above, below = self.home(producer).name, self.home(consumer).name
            if above != below and above not in found[below]:
                found[below].append(above)
        return {name: tuple(above) for name, above in found.items()}

    def upstream(self, region: str) -> tuple[str, ...]:
        """The regions whose results a region takes."""
        return self._above[region]

    def ancestors(self, region: str) -> frozenset[str]:
        """All regions that a tuple may have passed before it comes to this one."""
        above = self._above[region]
        return frozenset(above).union(*(self.ancestors(name) for name in above))

    def nearest_to_sources(self, names: frozenset[str]) -> tuple[str, ...]:
        """Those of some regions that stand behind none of the others."""
        return tuple(n for n in self.names if n in names and not self.ancestors(n) & names)
