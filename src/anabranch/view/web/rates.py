"""Rates by one clock: what boxes, lines and the tile of the page say add up.

It is the terminal's clock, which counts the time between two batches, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from anabranch.events import Observation
from anabranch.view.words import recent_rate_per_s, recent_s


@dataclass(frozen=True)
class Rates:
    """Tuples a second over the newest observations, oldest first.

    Example:
        >>> from anabranch.events import BatchTimes, SourceMetrics
        >>> def batch(at_s, rows):
        ...     times = BatchTimes(0.5, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)  # half of the time
        ...     read = (SourceMetrics("lines", rows, rows / 0.5),)
        ...     return Observation(at_s, 0, rows, 0, times, 0.0, 0.0, sources=read)
        >>> rates = Rates((batch(0.5, 100), batch(1.5, 200), batch(2.5, 300)))
        >>> rates.whole, rates.read
        (240.0, {'lines': 240.0})
    """

    recent: Sequence[Observation]

    @property
    def whole(self) -> float | None:
        """Tuples read; None before any observation."""
        return recent_rate_per_s(self.recent) if self.recent else None

    @cached_property
    def read(self) -> Mapping[str, float]:
        """Tuples read, by source."""
        pairs = ((s.source, s.rows) for seen in self.recent for s in seen.sources)
        return self._per_s(pairs)

    @cached_property
    def taken(self) -> Mapping[str, float]:
        """Tuples that steps took in."""
        return self._per_s((s.step, s.rows_in) for seen in self.recent for s in seen.steps)

    @cached_property
    def given(self) -> Mapping[str, float]:
        """Tuples that steps gave, over all ports."""
        return self._per_s((s.step, s.rows_out) for seen in self.recent for s in seen.steps)

    @cached_property
    def regions(self) -> Mapping[str, float]:
        """Tuples that regions took in."""
        return self._per_s(
            (region.region, region.rows_per_s * seen.times.total_s)
            for seen in self.recent
            for region in seen.regions
        )

    def _per_s(self, counts: Iterable[tuple[str, float]]) -> dict[str, float]:
        seconds = recent_s(self.recent)
        found: dict[str, float] = {}
        for name, rows in counts:
            found[name] = found.get(name, 0.0) + rows
        return {name: rows / seconds if seconds > 0 else 0.0 for name, rows in found.items()}
