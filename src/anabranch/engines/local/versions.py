"""Versions of a run: state files that units write and read, and the manifest that makes them count.

A unit that is done with an epoch writes what changed in its stores, and the tuples that wait at its
gate, as files of the checkpoint. When all units have done so the coordinator publishes a manifest
with these files, the offsets of the sources and the receipts of the sinks. Its format is that of
`engines/checkpoint`, whichever engine wrote it.

The files of a region form one chain, labelled with its name. Where it has several pipelines, each
has a chain of its own, labelled with its steps as well; when pipelines are cut anew, everything is
written whole under the new labels.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from uuid import uuid4

import pyarrow as pa

from anabranch.engines.checkpoint.manifest import Manifest
from anabranch.engines.checkpoint.restoring import (
    Waiting,
    buckets_of,
    files_of,
    gate_sections,
    label_of,
    restore,
)
from anabranch.engines.checkpoint.state_files import (
    GATE,
    Chain,
    StateFile,
    chain,
    should_snapshot,
    state_name,
    write_state,
)
from anabranch.engines.checkpoint.storage import Storage
from anabranch.planning.plan import Plan
from anabranch.planning.regions import RegionKind
from anabranch.runtime.messages import UnitId
from anabranch.runtime.sink_order import Segment
from anabranch.runtime.unit import Unit
from anabranch.state.positions import Jumbo


@dataclass(frozen=True)
class SavedUnit:
    """What a unit has saved: files of the checkpoint, and a sink's rows that wait for a commit."""

    files: tuple[StateFile, ...] = ()
    segments: tuple[Segment, ...] = ()


class UnitStorage:
    """Writes and reads the state of the units of one process.

    Args:
        storage: The checkpoint.
        token: The run that owns it.
        last: The version that the run begins with.
    """

    def __init__(self, storage: Storage, token: str, last: Manifest | None) -> None:
        self._storage, self._token, self._last = storage, token, last
        self._first = 0 if last is None else last.version + 1
        self._chains: dict[UnitId, tuple[str, tuple[int, ...], Chain]] = {}

    def version(self, epoch: int) -> int:
        """Return the version that the end of an epoch saves."""
        return self._first + epoch

    def attempt(self, version: int, sink: str, replica: int) -> str:
        """Return a name for rows of a sink that no other attempt uses."""
        return state_name(version, sink, replica, self._token, uuid4().hex)

    def save(
        self, epoch: int, unit: Unit, waiting: Sequence[Jumbo | None]
    ) -> tuple[StateFile, ...]:
        """Write what changed in a unit, and what waits."""
        version, files = self.version(epoch), []
        channel, name = unit.channel, unit.id.region
        if any(kernel.stores for kernel in channel.kernels.values()):
            file = self._save_state(version, unit)
            files += [] if file is None else [file]
        shared = unit.region.kind is RegionKind.SHARED and unit.id.replica > 0
        if any(jumbo is not None for jumbo in waiting) and not shared:
            sections, replica = gate_sections(waiting), unit.id.replica
            files.append(
                self._write(name + GATE, replica, version, (replica,), sections, whole=True)
            )
        return tuple(files)

    def restore(self, unit: Unit, schemas: Sequence[pa.Schema]) -> list[Jumbo | None]:
        """Read the state of a unit as the run begins; returns what waits at its gate."""
        if self._last is None:
            return []
        waiting: Waiting = [None] * len(schemas)
        restore(
            self._storage,
            files_of(self._last.state, unit.id.region),
            unit.channel,
            schemas,
            waiting,
            plan=unit.plan,
            missing=buckets_of(unit.channel),
        )
        return [] if unit.id.pipeline else waiting

    def forget(self, unit: UnitId) -> None:
        """Write a unit whole the next time: its state has come from others.

        They may have written it under other labels, whose files are gone by then.
        """
        self._chains.pop(unit, None)

    def _save_state(self, version: int, unit: Unit) -> StateFile | None:
        channel = unit.channel
        buckets = buckets_of(channel)
        if not buckets:
            return None
        label = label_of(unit.plan, unit.id.pipeline)
        known, held, files = self._chains.get(unit.id, ("", (), ()))
        # What others wrote of buckets that have come since is not known here.
        whole = (known, held) != (label, buckets) or should_snapshot(files, label, buckets)
        state = channel.snapshot() if whole else channel.changes()
        sections = {
            (step, number): payload
            for step, payloads in state.items()
            for number, payload in enumerate(payloads)
            if payload is not None
        }
        channel.saved()
        if not sections and not whole:
            return None
        file = self._write(label, unit.id.replica, version, buckets, sections, whole=whole)
        self._chains[unit.id] = (label, buckets, chain(files, [file]))
        return file

    def _write(
        self,
        region: str,
        replica: int,
        version: int,
        buckets: tuple[int, ...],
        sections: dict[tuple[str, int], bytes],
        *,
        whole: bool,
    ) -> StateFile:
        name = state_name(version, region, replica, self._token, 0)
        size, crc = write_state(self._storage, name, sections, durable=True)
        return StateFile(name, region, replica, version, whole, buckets, size, crc)


def next_chain(before: Chain, added: Iterable[StateFile], plan: Plan) -> Chain:
    """Return the files that rebuild the state once the units of a plan have added theirs.

    Args:
        before: The files before. In the first version of a session there are none, since its units
            write everything: an earlier run may have had other labels, or was on another engine.
        added: The files of this version.
        plan: The plan of the units.
    """
    labels = {
        label_of(region, pipeline)
        for region in plan.regions
        for pipeline in range(len(region.pipelines))
    }
    return chain(tuple(file for file in before if file.region in labels), tuple(added))
