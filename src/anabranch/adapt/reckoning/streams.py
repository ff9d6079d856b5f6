"""Streams between regions as they were seen: who feeds whom, and how many tuples go there."""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.adapt.seen import Seen
from anabranch.planning.regions import RegionKind


@dataclass(frozen=True)
class RegionStream:
    """A stream from one region into another.

    Attributes:
        producer: The region that it leaves; a source is one, too.
        consumer: The region that it enters.
        rows: Tuples that were on it in the window.
        gain: The same per tuple that came into its producer.
    """

    producer: str
    consumer: str
    rows: float
    gain: float


def taken_in(seen: Seen, region: str) -> int:
    """Tuples that came into a region in the window; into a source, those that it read."""
    found = seen.topology.region(region)
    if found.kind is RegionKind.SOURCE:
        return seen.rows_read(region)
    step = seen.steps.get(found.steps[0])
    return step.rows_in if step else 0


def region_streams(seen: Seen) -> tuple[RegionStream, ...]:
    """All streams between regions, those of the most upstream consumers first.

    A region that one other feeds tells how much came from there. Where several streams meet, each
    has the part that its producer's results are of the results of all those producers.
    """
    found = []
    for consumer in seen.topology.names:
        producers = seen.topology.upstream(consumer)
        made = {name: _given_out(seen, name) for name in producers}
        total = sum(made.values())
        for name in producers:
            part = made[name] / total if total else 1 / len(producers)
            rows = taken_in(seen, consumer) * part
            came = taken_in(seen, name)
            found.append(RegionStream(name, consumer, rows, rows / came if came else 0.0))
    return tuple(found)


def _given_out(seen: Seen, region: str) -> int:
    found = seen.topology.region(region)
    if found.kind is RegionKind.SOURCE:
        return taken_in(seen, region)
    step = seen.steps.get(found.steps[-1])
    return step.rows_out if step else 0
