"""Checkpoints of the local engine: everybody rests for a moment, what changed is saved.

Sources hold back, what is under way is finished, and then all state stands at one exact place:
offsets of sources, what changed in every store since the last version, tuples that wait in gates,
rows that sinks have got. They are written, the manifest makes them count, rows become visible, and
everybody goes on. After a kill at any instant the last manifest is where to go on.
"""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.runtime.channel import Channel
from anabranch.engines.checkpoint.checkpoint import Checkpoint
from anabranch.engines.checkpoint.identity import require_same_parts
from anabranch.engines.checkpoint.manifest import Manifest
from anabranch.engines.checkpoint.sinks import Sinks
from anabranch.engines.checkpoint.state_files import (
    StateFile,
    chain,
    needed,
    read_state,
    should_snapshot,
    state_name,
    write_state,
)
from anabranch.engines.jumbo_ipc import from_bytes, to_bytes
from anabranch.engines.local.assembly import Assembly
from anabranch.engines.local.region import RegionRun
from anabranch.errors import StateError, Subject
from anabranch.flow import Flow
from anabranch.io.sink import Receipt
from anabranch.io.two_phase_commit import prepare
from anabranch.planning.plan import Plan

WAITING = " (waiting)"
"""What a gate holds is saved as if it were a region of that name, whole each time."""

CLEAN_EVERY = 8


class Saver:
    """Saves versions of a run, and brings the last one back.

    Args:
        flow: The application.
        parts: What runs.
        checkpoint: Where to save.
    """

    def __init__(self, flow: Flow, parts: Assembly, checkpoint: Checkpoint) -> None:
        self._flow, self._parts, self._checkpoint = flow, parts, checkpoint
        self._storage = checkpoint.storage
        self._sinks = Sinks(
            {run.region.name: run.sink for run in parts.sinks},
            {run.region.name: run.schema for run in parts.sinks},
            self._storage,
        )

    def restore(self) -> None:
        """Bring back what the last version saved; the sinks are open afterwards."""
        last = self._checkpoint.last
        sources = self._flow.sources()
        require_same_parts(self._storage, sources, ended=last is not None and last.ended)
        self._checkpoint.require_newest()
        self._sinks.open(last)
        for run in self._parts.regions:
            if last is not None:
                run.recall(last.counters)
                self._restore_region(run, last)
            run.track()
        if last is not None:
            for source in self._parts.sources:
                source.restore(last.offsets[source.name])

    def save(self, plan: Plan, *, ended: bool) -> None:
        """Save a version; everybody rests."""
        moves = self._parts.moves()
        last, token = self._checkpoint.last, self._checkpoint.token
        version = 0 if last is None else last.version + 1
        before = () if last is None else last.state
        files = [
            file
            for run in self._parts.regions
            for file in (*self._save_state(run, version, before), *self._save_gate(run, version))
        ]
        prepared: dict[str, tuple[Receipt, ...]] = {}
        with self._sinks.aborting(prepared):
            self._prepare_sinks(version, prepared)
            manifest = Manifest(
                version,
                token,
                plan.to_json(),
                offsets={source.name: source.offsets() for source in self._parts.sources},
                state=chain(before, files),
                sinks=prepared,
                counters={
                    step: lost.counts()
                    for run in self._parts.regions
                    for step, lost in run.counters().items()
                },
                ended=ended,
            )
            if self._parts.moves() != moves:
                raise StateError(
                    Subject("flow", self._flow.name),
                    "everything to rest while it is saved",
                    "something that moved",
                    "start again: the run goes on from the version before; and report this",
                )
        # Behind this the manifest may be there even if it raises: nothing is aborted any more.
        self._checkpoint.publish(manifest)
        self._sinks.commit(manifest, self._checkpoint.require_owned)
        for run in self._parts.regions:
            for channel in run.channels:
                channel.saved()
        for sink in self._parts.sinks:
            sink.note_shown()
        for source in self._parts.sources:
            source.forget()
        self._sinks.clean(manifest)
        if version % CLEAN_EVERY == 0 or ended:
            self._checkpoint.clean()
            self._sinks.sweep(manifest)

    def close(self) -> None:
        """Let go of the sinks."""
        self._sinks.close()

    def _save_state(
        self, run: RegionRun, version: int, before: Sequence[StateFile]
    ) -> list[StateFile]:
        files = []
        for channel in run.channels:
            buckets = _buckets(channel)
            if not buckets or not any(kernel.stores for kernel in channel.kernels.values()):
                continue
            name = run.region.name
            whole = should_snapshot(tuple(before), name, buckets)
            state = channel.snapshot() if whole else channel.changes()
            sections = {
                (step, number): payload
                for step, payloads in state.items()
                for number, payload in enumerate(payloads)
                if payload is not None
            }
            if sections:
                files.append(
                    self._write(name, channel.replica, version, buckets, sections, whole=whole)
                )
        return files

    def _save_gate(self, run: RegionRun, version: int) -> list[StateFile]:
        name, waiting = run.region.name + WAITING, run.gate.leftover()
        last = self._checkpoint.last
        known = last is not None and any(file.region == name for file in last.state)
        if not known and all(jumbo is None for jumbo in waiting):
            return []
        sections = {(WAITING, port): to_bytes(jumbo) for port, jumbo in enumerate(waiting)}
        return [self._write(name, 0, version, (0,), sections, whole=True)]

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
        name = state_name(version, region, replica, self._checkpoint.token, 0)
        size, crc = write_state(self._storage, name, sections, durable=True)
        return StateFile(name, region, replica, version, whole, buckets, size, crc)

    def _prepare_sinks(self, version: int, prepared: dict[str, tuple[Receipt, ...]]) -> None:
        for run in self._parts.sinks:
            name = run.region.name
            attempt = state_name(version, name, 0, self._checkpoint.token, 0)
            receipt = prepare(run.sink, run.schema, attempt, run.kept, self._sinks.stage)
            if receipt is not None:
                prepared[name] = (receipt,)

    def _restore_region(self, run: RegionRun, last: Manifest) -> None:
        name = run.region.name
        for channel in run.channels:
            for file, buckets in needed(last.state, name, _buckets(channel)):
                for (step, number), payload in read_state(self._storage, file).items():
                    store = channel.kernels[step].stores[number]
                    if file.whole:
                        store.restore(payload, buckets)
                    else:
                        store.replay(payload, buckets)
        schemas = run.input_schemas()
        for file, _ in needed(last.state, name + WAITING, (0,)):
            for (_, port), payload in read_state(self._storage, file).items():
                jumbo = from_bytes(payload, schemas[port])
                if jumbo is not None:
                    run.gate.preload(port, jumbo)


def require_own(checkpoint: Checkpoint) -> None:
    """Refuse a checkpoint that Spark has written: it counts batches, this engine does not."""
    last = checkpoint.last
    if last is not None and not all(isinstance(told, dict) for told in last.offsets.values()):
        raise StateError(
            Subject("checkpoint", checkpoint.storage.location),
            "one that the local engine has written",
            "one of the Spark engine",
            "go on with engine='spark', or start afresh in a new checkpoint directory",
        )


def _buckets(channel: Channel) -> tuple[int, ...]:
    return channel.buckets if channel.region.mapped else (0,)
