"""What is written about a batch: a log before it runs, a manifest when its tasks are done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass, field
from typing import Any

from anabranch.engines.checkpoint import bucket_ranges
from anabranch.engines.checkpoint.chain import Chain, StateFile
from anabranch.engines.checkpoint.sealed import damaged, seal, unseal

Latest = Mapping[str, tuple[tuple[str, tuple[int, ...]], ...]]


@dataclass(frozen=True)
class BatchLog:
    """What a batch is going to do; a replay does the same.

    Attributes:
        version: Number of the batch.
        token: The run that wrote it.
        plan: The plan it runs under, as JSON text.
        intake: What each source reads.
    """

    version: int
    token: str
    plan: str
    intake: dict[str, Any]

    def to_json(self) -> bytes:
        """As the bytes of a file.

        Example:
            >>> log = BatchLog(12, "1-ab", "{}", {"lines": [0, 7]})
            >>> BatchLog.from_json(log.to_json(), "12.json") == log
            True
        """
        return seal(vars(self))

    @staticmethod
    def from_json(data: bytes, name: str) -> BatchLog:
        """From the bytes of a file called `name`; raises StateError when damaged."""
        content = unseal(data, name)
        try:
            return BatchLog(**content)
        except TypeError as error:
            raise damaged(name, f"another kind of document ({error})") from error


@dataclass(frozen=True)
class SinkWritten:
    """What was written for a sink: rows, and the hidden file; None where there were no rows."""

    sink: str
    rows: int
    file: str | None


@dataclass(frozen=True)
class SinkFile:
    """A file that a task wrote for a sink: under which hidden name, and how it shall be called."""

    sink: str
    pending: str
    final: str
    rows: int


@dataclass(frozen=True)
class Manifest:
    """What a batch did. Once it exists, the batch has happened.

    Attributes:
        version: Number of the batch.
        token: The run that wrote it.
        plan: The plan it ran under, as JSON text.
        offsets: How far each source has been read, in values that JSON gives back as they were.
        state: All files that rebuild the state, oldest first.
        latest: By region, for each replica, the name under which its newest state can be found
            (a file, or an entry in a worker's cache), and its buckets.
        sinks: Files to be made visible.
        counters: By step, what was counted so far.
        timers: By region, the next time at which something is due.
        ended: Whether all sources have come to their end.
    """

    version: int
    token: str
    plan: str
    offsets: dict[str, Any] = field(default_factory=dict)
    state: Chain = ()
    latest: Latest = field(default_factory=dict)
    sinks: tuple[SinkFile, ...] = ()
    counters: dict[str, dict[str, int]] = field(default_factory=dict)
    timers: dict[str, int | None] = field(default_factory=dict)
    ended: bool = False

    def to_json(self) -> bytes:
        """As the bytes of a file.

        Example:
            >>> manifest = Manifest(12, "1-ab", "{}", timers={"count": None})
            >>> Manifest.from_json(manifest.to_json(), "12.json") == manifest
            True
        """
        # Many files, each batch writes them all, and few sets of buckets: those stand apart, once.
        places = {b: n for n, b in enumerate(dict.fromkeys(f.buckets for f in self.state))}
        return seal(
            {
                **vars(self),
                "buckets": [bucket_ranges.to_text(buckets) for buckets in places],
                "state": [_state_row(file, places[file.buckets]) for file in self.state],
                "latest": {
                    region: [[name, bucket_ranges.to_text(buckets)] for name, buckets in replicas]
                    for region, replicas in self.latest.items()
                },
                "sinks": [astuple(file) for file in self.sinks],
            }
        )

    @staticmethod
    def from_json(data: bytes, name: str) -> Manifest:
        """From the bytes of a file called `name`; raises StateError when damaged."""
        content = unseal(data, name)
        try:
            buckets = [bucket_ranges.from_text(text) for text in content.pop("buckets")]
            content["state"] = tuple(_state_file(row, buckets) for row in content["state"])
            content["latest"] = {
                region: tuple((n, bucket_ranges.from_text(b)) for n, b in replicas)
                for region, replicas in content["latest"].items()
            }
            content["sinks"] = tuple(SinkFile(*row) for row in content["sinks"])
            return Manifest(**content)
        except (TypeError, LookupError, ValueError) as error:
            raise damaged(name, f"another kind of document ({error})") from error


def _state_row(file: StateFile, buckets: int) -> list[Any]:
    return [
        file.name,
        file.region,
        file.replica,
        file.version,
        file.whole,
        buckets,
        file.size,
        file.crc,
    ]


def _state_file(row: list[Any], buckets: list[tuple[int, ...]]) -> StateFile:
    name, region, replica, version, whole, place, size, crc = row
    return StateFile(name, region, replica, version, whole, buckets[place], size, crc)
