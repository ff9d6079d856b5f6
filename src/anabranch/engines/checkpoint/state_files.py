"""State files: the state that one task writes, and the chains of files that rebuild a region."""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa

from anabranch.engines.checkpoint.storage import PENDING, Storage
from anabranch.errors import StateError, Subject

FOLDER = "state"
LONGEST_REGION = 80
SECTION = pa.schema([("step", pa.string()), ("store", pa.int32()), ("payload", pa.large_binary())])

Section = tuple[str, int]


def state_name(version: int, region: str, replica: int, token: str, attempt: int | str) -> str:
    """Return a name that no other attempt uses, and that has its version.

    Example:
        >>> state_name(12, "top/10", 0, "7-1f3a", 3)
        '000000000012-top%2F10-0-7-1f3a-3'
    """
    text = quote(region, safe="")
    if len(text) > LONGEST_REGION:  # file names have at most 255 bytes
        text = text[: LONGEST_REGION - 17] + "~" + sha256(region.encode()).hexdigest()[:16]
    return f"{version:012d}-{text}-{replica}-{token}-{quote(str(attempt), safe='')}"


def version_of(name: str) -> int | None:
    """Return the version in the name of a state file, finished or pending; None of others."""
    if name.startswith(PENDING):
        name = name.removeprefix(PENDING).partition("-")[2]
    number = name.partition("-")[0]
    return int(number) if len(number) >= 12 and number.isdecimal() else None


def write_state(
    storage: Storage, name: str, sections: Mapping[Section, Any], *, durable: bool = False
) -> tuple[int, int]:
    """Write a state file; gives its size and checksum, which its manifest must know.

    Args:
        storage: The checkpoint.
        name: From `state_name`.
        sections: By step and number of the store: its bytes, None when there is nothing to say.
        durable: Whether it must outlive a power failure, on a local disk. Otherwise such a failure
            can damage it, which is noticed, and the run goes on from an earlier version by hand.
    """
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, SECTION) as writer:
        for (step, store), payload in sections.items():
            if payload is not None:
                writer.write_batch(_batch(step, store, payload))
    data = sink.getvalue()
    storage.write(f"{FOLDER}/{name}", data, durable=durable)
    return data.size, zlib.crc32(data)


def read_state(storage: Storage, file: StateFile) -> dict[Section, bytes]:
    """Return the sections of a state file; raises StateError when it is not what was written."""
    data = checked(storage, file)
    batches = pa.ipc.open_stream(pa.py_buffer(data))
    return {
        (row["step"], row["store"]): row["payload"]
        for batch in batches
        for row in batch.to_pylist()
    }


def checked(storage: Storage, file: StateFile) -> bytes:
    """Return the bytes of a state file, if they have the right size and checksum."""
    data = storage.read(f"{FOLDER}/{file.name}")
    if data is None:
        raise _damaged(storage, file, "no such file")
    if len(data) != file.size:
        raise _damaged(storage, file, f"{len(data)} bytes")
    if (crc := zlib.crc32(data)) != file.crc:
        raise _damaged(storage, file, f"checksum {crc:08x}")
    return data


def _batch(step: str, store: int, payload: Any) -> pa.RecordBatch:
    """Return one section as one row around its bytes, which are not copied."""
    body = pa.py_buffer(payload)
    ends = pa.py_buffer(np.array([0, body.size], dtype=np.int64))
    value = pa.Array.from_buffers(pa.large_binary(), 1, [None, ends, body])
    columns = [pa.array([step], pa.string()), pa.array([store], pa.int32()), value]
    return pa.RecordBatch.from_arrays(columns, schema=SECTION)


def _damaged(storage: Storage, file: StateFile, found: str) -> StateError:
    return StateError(
        Subject("checkpoint file", storage.named(f"{FOLDER}/{file.name}")),
        f"the state of region {file.region!r} after version {file.version} "
        f"({file.size} bytes, checksum {file.crc:08x})",
        found,
        "put the file back from a copy, or go on from an earlier version",
    )


# Chains: which state files rebuild the state.
#
# A region's state is spread over files, oldest first. A *whole* file holds everything of its
# buckets, any other what changed in them. So for one bucket only its youngest whole file counts,
# and what changed after it. What waits at a gate changes as a whole, and its replicas may share it
# anew at any time: such files count for one version alone. All functions here are pure.

SNAPSHOT_BYTES = 1 << 20
SNAPSHOT_FILES = 128
GATE = " (waiting)"
"""Follows a region in the label of files that hold only what its gates could not release."""


@dataclass(frozen=True)
class StateFile:
    """A file of state, as its manifest knows it.

    Attributes:
        name: Of the file, below `state/`.
        region: Whose state; the label of a chain of files.
        replica: Which replica wrote it.
        version: The batch after which the state was so.
        whole: Whether it holds all of its buckets, or what changed in them.
        buckets: Which; a region without buckets (a gate upstream of a sink) says (0,).
        size: In bytes.
        crc: Checksum of its bytes.
    """

    name: str
    region: str
    replica: int
    version: int
    whole: bool
    buckets: tuple[int, ...]
    size: int
    crc: int

    def __post_init__(self) -> None:
        """Without a bucket a file would never be needed, and what it holds would be lost."""
        if not self.buckets:
            raise StateError(
                Subject("region", self.region),
                "the buckets of a state file",
                "none",
                "use bucket 0 for a region without buckets",
            )


Chain = tuple[StateFile, ...]


def chain(previous: Chain, added: Sequence[StateFile]) -> Chain:
    """Return the files that count once a batch has added its own; others can be removed.

    A file stays while one of its buckets has no younger whole file, one of a gate for its version.
    """
    covered: defaultdict[str, set[int]] = defaultdict(set)
    kept = []
    before = (file for file in previous if not file.region.endswith(GATE))
    for file in reversed((*before, *added)):
        behind = covered[file.region]
        if behind.issuperset(file.buckets):
            continue
        kept.append(file)
        if file.whole:
            behind.update(file.buckets)
    return tuple(reversed(kept))


def needed(
    files: Chain, region: str, buckets: Collection[int]
) -> list[tuple[StateFile, tuple[int, ...]]]:
    """Return the files to read for some buckets, oldest first, and what to take from each."""
    wanted = set(buckets)
    found = []
    for file in reversed(files):
        if file.region != region or not (taken := wanted.intersection(file.buckets)):
            continue
        found.append((file, tuple(sorted(taken))))
        if file.whole:
            wanted -= taken
    return found[::-1]


def should_snapshot(files: Chain, region: str, replica_buckets: Collection[int]) -> bool:
    """Return whether a replica should write its buckets whole in the batch to come.

    It should once the changes since the last whole files outweigh those, so that over time a byte
    of state is written at most twice as often as it changes; and never lets reading open too many
    files. A file that holds other buckets, too, counts with these buckets' share.
    """
    whole = changes = 0.0
    change_files = 0
    for file, taken in needed(files, region, replica_buckets):
        share = file.size * len(taken) / len(file.buckets)
        if file.whole:
            whole += share
        else:
            changes += share
            change_files += 1
    return change_files >= SNAPSHOT_FILES or changes > max(whole, SNAPSHOT_BYTES)
