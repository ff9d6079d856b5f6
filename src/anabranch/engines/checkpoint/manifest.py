"""What is written about a batch: a log before it runs, a manifest when its tasks are done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import msgspec

from anabranch.engines.checkpoint.checksummed_json import damaged, seal, unseal
from anabranch.engines.checkpoint.state_files import Chain, StateFile
from anabranch.io.offsets import SourceOffsets
from anabranch.io.sink import Receipt

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
class Manifest:
    """What a batch did. Once it exists, the batch has happened.

    Attributes:
        version: Number of the batch.
        token: The run that wrote it.
        plan: The plan it ran under, as JSON text.
        offsets: How far each source has been read.
        state: All files that rebuild the state, oldest first.
        latest: By region, for each replica, the name under which its newest state can be found
            (a file, or an entry in a worker's cache), and its buckets.
        sinks: By sink, the receipts of the rows to be made visible.
        counters: By step, what was counted so far.
        timers: By region, the next time at which something is due.
        ended: Whether all sources have come to their end.
        batch_zero: Where Structured Streaming numbers the batches, the version of its batch 0: the
            engine took the checkpoint over with that version. None if the local engine wrote it.
    """

    version: int
    token: str
    plan: str
    offsets: Mapping[str, SourceOffsets] = field(default_factory=dict)
    state: Chain = ()
    latest: Latest = field(default_factory=dict)
    sinks: Mapping[str, tuple[Receipt, ...]] = field(default_factory=dict)
    counters: dict[str, dict[str, int]] = field(default_factory=dict)
    timers: dict[str, int | None] = field(default_factory=dict)
    ended: bool = False
    batch_zero: int | None = None

    def receipts(self, sink: str) -> tuple[Receipt, ...]:
        """Return what was prepared for a sink."""
        return self.sinks.get(sink, ())

    @property
    def staged(self) -> bool:
        """Return whether the checkpoint keeps rows for any sink."""
        return any(receipt.staged for receipts in self.sinks.values() for receipt in receipts)

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
                "offsets": {source: each.to_json() for source, each in self.offsets.items()},
                "buckets": [to_text(buckets) for buckets in places],
                "state": [_state_row(file, places[file.buckets]) for file in self.state],
                "latest": {
                    region: [[name, to_text(buckets)] for name, buckets in replicas]
                    for region, replicas in self.latest.items()
                },
                "sinks": msgspec.to_builtins(self.sinks),
            }
        )

    @staticmethod
    def from_json(data: bytes, name: str) -> Manifest:
        """From the bytes of a file called `name`; raises StateError when damaged."""
        content = unseal(data, name)
        try:
            buckets = [from_text(text) for text in content.pop("buckets")]
            content["state"] = tuple(_state_file(row, buckets) for row in content["state"])
            content["latest"] = {
                region: tuple((n, from_text(b)) for n, b in replicas)
                for region, replicas in content["latest"].items()
            }
            content["sinks"] = _receipts(content["sinks"])
            if "batch_zero" not in content:  # of version 0.1, where only Spark wrote lists
                by_spark = any(isinstance(each, list) for each in content["offsets"].values())
                content["batch_zero"] = 0 if by_spark else None
            content["offsets"] = {
                source: SourceOffsets.from_json(each) for source, each in content["offsets"].items()
            }
            return Manifest(**content)
        except (TypeError, LookupError, ValueError, msgspec.ValidationError) as error:
            raise damaged(name, f"another kind of document ({error})") from error


def _receipts(content: Any) -> Mapping[str, tuple[Receipt, ...]]:
    if isinstance(content, dict):
        return msgspec.convert(content, dict[str, tuple[Receipt, ...]])
    # Once a list of sink, hidden file, its final name and rows. Only files of the outbox kept their
    # names; what a file of a sink is called in the end follows from the receipts.
    found: dict[str, tuple[Receipt, ...]] = {}
    for sink, pending, final, rows in content:
        found[sink] = (*found.get(sink, ()), Receipt(pending, rows, staged=pending == final))
    return found


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


# Buckets as short text: a manifest names hundreds of files with hundreds of buckets each.


@lru_cache(maxsize=4096)
def to_text(buckets: tuple[int, ...]) -> str:
    """Return sorted numbers as ranges.

    Example:
        >>> to_text((0, 1, 2, 3, 70))
        '0-3,70'
    """
    runs: list[list[int]] = []
    for bucket in sorted(set(buckets)):
        if runs and bucket == runs[-1][1] + 1:
            runs[-1][1] = bucket
        else:
            runs.append([bucket, bucket])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


@lru_cache(maxsize=4096)
def from_text(text: str) -> tuple[int, ...]:
    """Return the numbers that ranges stand for.

    Example:
        >>> from_text("0-3,70")
        (0, 1, 2, 3, 70)
    """
    found: list[int] = []
    for run in filter(None, text.split(",")):
        first, _, last = run.partition("-")
        found.extend(range(int(first), int(last or first) + 1))
    return tuple(found)
