"""A channel: one replica of a region — its kernels, cut into pipelines.

Every engine runs channels; they differ in who calls `run` (a worker, a Spark task, a seeded
scheduler) and in what carries jumbo tuples between channels.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence, Sized
from dataclasses import replace
from pickle import PicklingError
from typing import Any, Protocol, TypeVar, runtime_checkable

from anabranch.errors import StateError
from anabranch.flow import Flow
from anabranch.operators.base import Counters, Kernel, KernelContext
from anabranch.planning.bucket_map import owned
from anabranch.planning.plan import RegionPlan
from anabranch.planning.regions import Region, RegionKind
from anabranch.state.positions import Jumbo, Root, is_end
from anabranch.state.tables.store import Store

Content = TypeVar("Content")

Snapshot = dict[str, list[bytes]]
"""By step, the snapshot of each of its stores."""

Changes = dict[str, list[bytes | None]]
"""By step, what changed in each of its stores; None where nothing did."""


@runtime_checkable
class Countable(Sized, Protocol):
    """State that knows the most that it held when it forgot something."""

    shrank_from: int


class Channel:
    """Runs one replica of a region."""

    def __init__(
        self,
        flow: Flow,
        contexts: dict[str, KernelContext],
        region: Region,
        plan: RegionPlan,
        replica: int,
        pipeline: int | None = None,
    ) -> None:
        """Make kernels of all pipelines or of one; `absorb` or `restore` bring their state."""
        self.region, self.replica = region, replica
        self.buckets = owned_buckets(region, plan, replica)
        self.pipelines = plan.pipelines if pipeline is None else (plan.pipelines[pipeline],)
        self.kernels: dict[str, Kernel] = {}
        for name in (step for steps in self.pipelines for step in steps):
            context = replace(
                contexts[name], routing=region.key, owned=self.buckets, counters=Counters()
            )
            self.kernels[name] = flow.graph.steps[name].body.kernel(context)
        self._before_the_end: dict[str, int] = {}  # keys by step

    def run(
        self, pipeline: int, inputs: Sequence[Jumbo | None], frontier: Root, tap: Any = None
    ) -> tuple[list[Jumbo | None], list[Root]]:
        """Run one pipeline, fused: the outputs of its last step, and how far each has come."""
        current, outputs, reached = list(inputs), list(inputs), [frontier]
        for name in self.pipelines[pipeline]:
            kernel = self.kernels[name]
            if is_end(frontier):
                outputs = self._run_last(name, current, frontier)
            else:
                outputs = kernel.run(current, frontier)
            if tap is not None:
                tap(name, current, outputs)
            reached = [kernel.frontier(frontier, port) for port in range(len(outputs))]
            frontier = reached[0]
            current = outputs[:1]  # within a region only the main output is read
        return outputs, reached

    def _run_last(
        self, name: str, inputs: Sequence[Jumbo | None], frontier: Root
    ) -> list[Jumbo | None]:
        """Run a kernel that forgets all, at the end of the stream, and note what it has held."""
        kernel = self.kernels[name]
        held = list(_countable(kernel))
        for store in held:
            store.shrank_from = len(store)
        outputs = kernel.run(inputs, frontier)
        if held:
            most = sum(max(len(store), store.shrank_from) for store in held)
            self._before_the_end[name] = max(most, self._before_the_end.get(name, 0))
        return outputs

    def own(self, buckets: tuple[int, ...]) -> None:
        """Own other buckets from now on; `release` and `absorb` move the state."""
        self.buckets = buckets
        for kernel in self.kernels.values():
            kernel.context = replace(kernel.context, owned=buckets)

    def release(
        self, buckets: Collection[int], steps: Collection[str] | None = None
    ) -> dict[str, list[Any]]:
        """Give up buckets of every operator, or of some, by reference."""
        return {
            name: [store.release(buckets) for store in kernel.stores]
            for name, kernel in self.kernels.items()
            if kernel.stores and (steps is None or name in steps)
        }

    def absorb(self, handover: dict[str, list[Any]]) -> None:
        """Take over what another channel of this region released."""
        for name, parts in handover.items():
            for store, part in zip(self.kernels[name].stores, parts, strict=True):
                store.absorb(part)

    def snapshot(self) -> Snapshot:
        """Return the state of every operator, as bytes."""
        return self._of_stores(lambda store: store.snapshot())

    def restore(self, snapshot: Snapshot) -> None:
        """Take from a snapshot of any channel of this region what belongs to this one."""
        for name, parts in snapshot.items():
            for store, part in zip(self.kernels[name].stores, parts, strict=True):
                store.restore(part, self.buckets)

    def keys(self) -> dict[str, int]:
        """Return by step how many keys this replica holds, or held at the end of the stream."""
        found: dict[str, int] = {}
        for name, kernel in self.kernels.items():
            if sizes := [len(store) for store in _countable(kernel)]:
                found[name] = self._before_the_end.get(name, sum(sizes))
        return found

    def track(self) -> None:
        """Remember changes from now on; what is held counts as saved."""
        for store in self._stores():
            store.track()

    def changes(self) -> Changes:
        """Return what changed in every operator since `track` or the last `saved`, as bytes."""
        return self._of_stores(lambda store: store.changes())

    def saved(self) -> None:
        """Note that what `changes` or `snapshot` returned is safe."""
        for store in self._stores():
            store.saved()

    def replay(self, changes: Changes) -> None:
        """Take from the changes of any channel of this region what belongs to this one."""
        for name, parts in changes.items():
            for store, part in zip(self.kernels[name].stores, parts, strict=True):
                if part is not None:
                    store.replay(part, self.buckets)

    def _stores(self) -> Iterator[Store]:
        return (store for kernel in self.kernels.values() for store in kernel.stores)

    def _of_stores(self, read: Callable[[Store], Content]) -> dict[str, list[Content]]:
        """Return what is read of each store; what cannot be written is blamed on its step."""
        found: dict[str, list[Content]] = {}
        for name, kernel in self.kernels.items():
            try:
                found[name] = [read(store) for store in kernel.stores]
            except (PicklingError, TypeError, AttributeError) as error:
                raise StateError(
                    name,
                    "state that can be written to a checkpoint",
                    f"{type(error).__name__}: {error}",
                    "keep plain values in ctx.state, not open files, locks or local functions",
                ) from error
        return found


def _countable(kernel: Kernel) -> Iterator[Countable]:
    """Yield the stores of a kernel whose keys can be counted."""
    held = (getattr(store, "table", store) for store in kernel.stores)
    return (store for store in held if isinstance(store, Countable))


def owned_buckets(region: Region, plan: RegionPlan, replica: int) -> tuple[int, ...]:
    """Return the buckets that a replica holds under a plan; without a bucket map only number 0."""
    if region.kind is RegionKind.STATEFUL or (region.kind is RegionKind.CLOCK and not replica):
        return (0,)
    return owned(plan.bucket_map, replica)
