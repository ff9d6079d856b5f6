"""The files that the replicas of an operator write: a snapshot, then changes version by version."""

from collections.abc import Collection, Sequence

from anabranch.operators.base import Kernel


class Chain:
    """What survives a crash of all replicas."""

    def __init__(self, kernels: Sequence[Kernel]) -> None:
        self._start: list[list[bytes]] = []
        self._versions: list[list[list[bytes | None]]] = []
        self._track(kernels)

    def tell(self, kernels: Sequence[Kernel]) -> None:
        """One more version: what changed."""
        self._versions.append([[store.changes() for store in k.stores] for k in kernels])
        self._saved(kernels)

    def start_anew(self, kernels: Sequence[Kernel]) -> None:
        """One snapshot instead of all versions so far."""
        self._start = [[store.snapshot() for store in k.stores] for k in kernels]
        self._versions = []
        self._saved(kernels)

    def load(self, kernel: Kernel, buckets: Collection[int]) -> None:
        """Fill an empty replica with the state of some buckets."""
        for snapshots in self._start:
            for store, content in zip(kernel.stores, snapshots, strict=True):
                store.restore(content, buckets)
        for version in self._versions:
            for files in version:
                for store, changes in zip(kernel.stores, files, strict=True):
                    if changes is not None:
                        store.replay(changes, buckets)
        self._track([kernel])

    @staticmethod
    def _saved(kernels: Sequence[Kernel]) -> None:
        for kernel in kernels:
            for store in kernel.stores:
                store.saved()

    @staticmethod
    def _track(kernels: Sequence[Kernel]) -> None:
        for kernel in kernels:
            for store in kernel.stores:
                store.track()
