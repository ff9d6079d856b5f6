"""How long tuples took from being read to their results being visible, as percentiles.

Counted in classes whose bounds grow by a tenth of an octave, so that an endless run needs no more
memory than a short one and a percentile is right to about 7 %.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from threading import Lock

PER_OCTAVE = 10
LEAST_MS = 0.001
CLASSES = 350


class Latencies:
    """Counts by class, for the whole run and since the last look.

    Example:
        >>> latencies = Latencies()
        >>> latencies.note([(2.0, 90), (50.0, 10)])
        >>> round(latencies.percentile(0.5)), round(latencies.percentile(0.99) / 10)
        (2, 5)
    """

    def __init__(self) -> None:
        """Nothing counted."""
        self._lock = Lock()
        self._all = [0] * CLASSES
        self._recent = [0] * CLASSES
        self._looked_at = self._recent

    def note(self, weighted: Iterable[tuple[float, int]]) -> None:
        """Count latencies in milliseconds, each with its number of tuples."""
        with self._lock:
            for latency_ms, rows in weighted:
                place = min(_class_of(latency_ms), CLASSES - 1)
                self._all[place] += rows
                self._recent[place] += rows

    def forget(self) -> None:
        """Begin anew, after a warm-up."""
        with self._lock:
            self._all, self._recent = [0] * CLASSES, [0] * CLASSES
            self._looked_at = self._recent

    def percentile(self, share: float) -> float:
        """The latency that a share of all tuples did not exceed."""
        with self._lock:
            return _percentile(self._all, share)

    def look(self, shares: Iterable[float]) -> list[float]:
        """The same since the last look; what that one told where nothing came since then."""
        with self._lock:
            if any(self._recent):
                self._looked_at, self._recent = self._recent, [0] * CLASSES
            return [_percentile(self._looked_at, share) for share in shares]


def _class_of(latency_ms: float) -> int:
    return max(0, math.ceil(PER_OCTAVE * math.log2(max(latency_ms, LEAST_MS) / LEAST_MS)))


def _percentile(counts: list[int], share: float) -> float:
    bound = share * sum(counts)
    passed = 0
    for place, count in enumerate(counts):
        passed += count
        if count and passed >= bound:
            return float(LEAST_MS * 2 ** (place / PER_OCTAVE))
    return 0.0
