"""Where a replica's state comes from at the start of a batch, and where it goes at its end.

It comes from the host's state cache, by reference, when this host had it in the batch before and
nobody has touched it since; else from the files of the checkpoint. What the batch changed goes into
one file per replica, under a name that no other attempt uses; the state itself is cached again.

A sink has no buckets that a plan deals out. Each of its replicas reads what waited at the gates of
all of them, and keeps its share.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from contextlib import suppress
from functools import cached_property
from shutil import rmtree

from anabranch.engines.checkpoint.restoring import (
    Waiting,
    buckets_of,
    gate_sections,
    merge,
    restore,
)
from anabranch.engines.checkpoint.state_files import (
    GATE,
    should_snapshot,
    state_name,
    version_of,
    write_state,
)
from anabranch.engines.checkpoint.storage import storage_at
from anabranch.engines.spark.meter import Meter
from anabranch.engines.spark.replica import TaskReplica
from anabranch.engines.spark.state_cache import (
    StateCache,
    StateCacheFull,
    all_caches,
    cache_directory,
)
from anabranch.engines.spark.task_inputs import Batch, Program, SavedRegion
from anabranch.engines.spark.task_report import StateSaved, StateWritten, Work
from anabranch.planning.regions import RegionKind
from anabranch.runtime.channel import Channel
from anabranch.state.tables.store import Store
from anabranch.state.tables.table_store import TableStore

SWEEP_EVERY = 16
OLD_S = 86_400


class StateLoader:
    """Loads and saves the state of the replicas in one task."""

    def __init__(self, program: Program, batch: Batch, attempt: str, meter: Meter) -> None:
        """Touch nothing yet."""
        self._program, self._batch, self._attempt, self._meter = program, batch, attempt, meter
        self.storage = storage_at(program.checkpoint)
        self._waited: set[str] = set()

    @cached_property
    def _cache(self) -> StateCache:
        """Opened by tasks that have state."""
        return StateCache(cache_directory(self._program.cache))

    def load(self, run: TaskReplica) -> None:
        """Give a replica the state that its buckets had after the batch before."""
        if run.channel is None or not self._remembers(run, run.channel):
            return
        with self._meter.of(Work.STATE), self._meter.of(Work.LOAD):
            before = self._batch.state.get(run.region.name, SavedRegion())
            ports = len(self._program.contexts[run.region.steps[0]].inputs)
            waiting: Waiting = [None] * ports
            missing = self._from_cache(run, run.channel, before, waiting)
            self._from_files(run, run.channel, before, missing, waiting)
            run.channel.track()
            for port, jumbo in enumerate(waiting):
                if jumbo is not None:
                    self._waited.add(run.region.name)
                    run.gate.preload(port, jumbo)

    def save(self, run: TaskReplica) -> StateSaved | None:
        """Write what changed, cache the rest; None where there is nothing to keep.

        The memory of a clock whose tasks each judge what they have read is written by the driver.
        """
        if run.channel is None or not self._remembers(run, run.channel):
            return None
        if run.station.judges_slices:
            return None
        with self._meter.of(Work.STATE):
            region, buckets = run.region, buckets_of(run.channel)
            waiting = run.gate.leftover()
            if region.kind is RegionKind.SINK:
                return self._save_gate(run, waiting)
            before = self._batch.state.get(region.name, SavedRegion())
            whole = before.foreign or should_snapshot(before.files, region.name, buckets)
            if not self._keeps(run.channel, waiting):
                return None
            name = self._name(region.name, run.replica)
            sections = self._sections(run.channel, waiting, whole)
            file = None
            if sections:
                file = StateWritten(whole, *write_state(self.storage, name, sections))
            run.channel.saved()
            self._park(name, run.channel, waiting)
            return StateSaved(region.name, run.replica, name, buckets, file)

    def _save_gate(self, run: TaskReplica, waiting: Waiting) -> StateSaved | None:
        """Write what waits for all replicas of the next batch; seldom does any."""
        if all(jumbo is None for jumbo in waiting):
            return None
        label = run.region.name + GATE
        name = self._name(label, run.replica)
        file = StateWritten(True, *write_state(self.storage, name, gate_sections(waiting)))
        return StateSaved(label, run.replica, name, (run.replica,), file)

    def _name(self, label: str, replica: int) -> str:
        return state_name(self._batch.version, label, replica, self._batch.token, self._attempt)

    def _remembers(self, run: TaskReplica, channel: Channel) -> bool:
        """Whether there is anything to keep: state, or tuples that wait for others."""
        return run.ordered and bool(buckets_of(channel))

    def _keeps(self, channel: Channel, waiting: Waiting) -> bool:
        """Return whether something is kept, or was before: few regions without stores keep any."""
        stores = any(kernel.stores for kernel in channel.kernels.values())
        waits = any(jumbo is not None for jumbo in waiting)
        return stores or waits or channel.region.name in self._waited

    def _from_cache(
        self, run: TaskReplica, channel: Channel, before: SavedRegion, waiting: Waiting
    ) -> set[int]:
        """Take what this host has cached; the buckets that it has not are left."""
        cache, mine = self._cache, set(buckets_of(channel))
        missing = set(mine)
        for name, buckets in before.cached:
            common = sorted(mine.intersection(buckets))
            if not common:
                continue
            alone = len(common) == len(mine) == len(buckets)
            cached = cache.claim(_entry_name(name)) if alone else cache.copy(_entry_name(name))
            if cached is None:
                continue
            stores, waited = cached
            if alone:
                _take_over(channel, stores, common)
            else:
                channel.absorb({s: [x.release(common) for x in held] for s, held in stores.items()})
                self._meter.state_loaded_bytes += _settle(channel)
            missing.difference_update(common)
            merge(run.region, waiting, waited, common)
        return missing

    def _from_files(
        self,
        run: TaskReplica,
        channel: Channel,
        before: SavedRegion,
        missing: set[int],
        waiting: Waiting,
    ) -> None:
        """Rebuild from files what was not cached here."""
        inputs = self._program.contexts[run.region.steps[0]].inputs
        self._meter.state_loaded_bytes += restore(
            self.storage,
            before.files,
            channel,
            [given.schema for given in inputs],
            waiting,
            plan=self._batch.plan.region(run.region.name),
            missing=missing,
        )

    def _sections(
        self, channel: Channel, waiting: Waiting, whole: bool
    ) -> dict[tuple[str, int], bytes]:
        state = channel.snapshot() if whole else channel.changes()
        sections = {
            (step, number): payload
            for step, payloads in state.items()
            for number, payload in enumerate(payloads)
            if payload is not None
        }
        if any(j is not None for j in waiting) or channel.region.name in self._waited:
            sections |= gate_sections(waiting)
        return sections

    def _park(self, name: str, channel: Channel, waiting: Waiting) -> None:
        stores = {step: list(kernel.stores) for step, kernel in channel.kernels.items()}
        try:
            self._cache.put(_entry_name(name), (stores, waiting))
        except (StateCacheFull, OSError):
            return  # the next batch reads files instead
        if self._batch.version % SWEEP_EVERY == 0:
            self._sweep()

    def _sweep(self) -> None:
        """Remove what was left behind on this host: the driver sweeps only its own."""
        fresh = self._batch.version - 1
        self._cache.sweep([n for n in self._cache.names() if (version_of(n) or 0) >= fresh])
        remove_old_caches()


def sweep(cache: str, keep: Collection[str]) -> None:
    """Let go of cached state that no batch will ask for."""
    StateCache(cache_directory(cache)).sweep([_entry_name(name) for name in keep])


def remove_cache(cache: str) -> None:
    """Let go of everything that was cached."""
    rmtree(cache_directory(cache), ignore_errors=True)


def remove_old_caches() -> None:
    """Remove caches that nobody has used for a day: those of runs that were killed."""
    for cache in all_caches():
        with suppress(OSError):
            if time.time() - cache.stat().st_mtime > OLD_S:
                rmtree(cache, ignore_errors=True)


def _entry_name(name: str) -> str:
    """File names may hold more characters than names in the cache."""
    return name.replace("%", "=").replace("~", "=-")


def _take_over(channel: Channel, stores: dict[str, list[Store]], buckets: Collection[int]) -> None:
    """Go on with stores that nobody else has."""
    for step, held in stores.items():
        for own, cached in zip(channel.kernels[step].stores, held, strict=True):
            if isinstance(own, TableStore) and isinstance(cached, TableStore):
                own.take_over(cached)
            else:
                own.absorb(cached.release(buckets))


def _settle(channel: Channel) -> int:
    """Move in what came by reference from a private copy, which cannot be cached; gives bytes."""
    size = 0
    for kernel in channel.kernels.values():
        for store in kernel.stores:
            table = getattr(store, "table", None)
            if table is not None:
                table.settle()
                size += table.nbytes
    return size
