"""Large arrays in shared memory, so that another process of the host can go on with them.

A process that hands rows over sends a file descriptor and copies nothing. The memory goes with the
last process that has it mapped, however that process ends.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar
from uuid import uuid4
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

Scalar = TypeVar("Scalar", bound=np.generic)
SHARED_FROM_ITEMS = 1 << 15
"""Arrays that are shorter are copied faster than they are mapped."""
MOST_BLOCKS = 1 << 14
"""Each is a mapping, of which Linux allows a process 65,530."""


class Block(mmap.mmap):
    """The memory of one array.

    Attributes:
        id: Names the block in every process that has it mapped.
        descriptor: The descriptor of its file, which is open as long as this object lives.
            `mmap` keeps a second one of its own.
    """

    id: bytes
    descriptor: int

    def __del__(self) -> None:
        os.close(self.descriptor)


class _Blocks(WeakValueDictionary[bytes, Block]):
    """The blocks that this process has mapped.

    Attributes:
        most: From so many on, arrays are copied; 0 where no other process shares them.
        in_use: Whether new arrays are shared from the start.
    """

    most = 0
    in_use = False


Memory = Block | npt.NDArray[np.uint8]

_blocks = _Blocks()
_copies: WeakValueDictionary[bytes, npt.NDArray[np.uint8]] = WeakValueDictionary()


def allow_sharing() -> None:
    """Let `shared` share arrays of this process, a worker's; none of them is shared yet.

    Raises the limit of open files from the usual 1024 to what the system allows. Blocks get half of
    them, two descriptors each.
    """
    import resource  # Windows has none

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):  # macOS allows fewer than it reports
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    _blocks.most, _blocks.in_use = min(files // 4, MOST_BLOCKS), False


def shared(array: npt.NDArray[Scalar]) -> npt.NDArray[Scalar]:
    """Return an array in shared memory with the same content; the same array where that is none.

    Once an array is shared, new arrays are from the start: what has moved once moves again. Until
    then they are not, since small pages make look-ups in large tables slower.
    """
    if _block_of(array) is not None or not _may_share(len(array), array.dtype):
        return array
    _blocks.in_use = True
    copy = _new(len(array), array.dtype)
    copy[:] = array
    return copy


def zeros(size: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return an array of zeros, or of None if it holds objects."""
    dtype = np.dtype(dtype)
    if _blocks.in_use and _may_share(size, dtype):
        return _new(size, dtype)
    return np.full(size, None, dtype) if dtype.hasobject else np.zeros(size, dtype)


def grown(array: npt.NDArray[Scalar], size: int, fill: Any = 0) -> npt.NDArray[Scalar]:
    """Return a larger copy of an array."""
    wider = zeros(size, array.dtype)
    wider[: len(array)] = array
    if fill != 0:
        wider[len(array) :] = fill
    return wider


def reference(value: object) -> tuple[Block, tuple[Callable[..., object], Any]] | None:
    """Return the block of a shared array, and what `pickle` reduces it to where that is mapped.

    None for everything else, parts of shared arrays included.
    """
    if type(value) is not np.ndarray or (block := _block_of(value)) is None:
        return None
    return block, (_array_of, (block.id, value.dtype.str, value.size))


def receive_block(id_: bytes, descriptor: int, size: int) -> Memory:
    """Map the block with an id, or copy it where this process has as many as it may.

    Takes the descriptor over. The caller keeps the result until it has unpickled the arrays.
    """
    memory: Memory | None = _blocks.get(id_)
    if memory is None and len(_blocks) < _blocks.most:
        return _mapped(id_, descriptor, size)
    if memory is None:
        # If the block arrives again, it is copied anew: others may have written to it by then.
        memory = _copies[id_] = np.frombuffer(mmap.mmap(descriptor, size), np.uint8).copy()
    os.close(descriptor)
    return memory


def shared_file(size: int) -> int:
    """Return the descriptor of a new file of zeros without a name, in memory where possible."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("anabranch")
    else:
        with tempfile.TemporaryFile(prefix="anabranch-") as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, size)
    return descriptor


def _block_of(array: npt.NDArray[Any]) -> Block | None:
    base: object = array.base
    return base if isinstance(base, Block) else None


def _may_share(size: int, dtype: np.dtype[Any]) -> bool:
    return size >= SHARED_FROM_ITEMS and not dtype.hasobject and len(_blocks) < _blocks.most


def _new(size: int, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    length = size * dtype.itemsize
    return np.ndarray(size, dtype, _mapped(uuid4().bytes, shared_file(length), length))


def _mapped(id_: bytes, descriptor: int, size: int) -> Block:
    block = Block(descriptor, size)
    block.id, block.descriptor = id_, descriptor
    _blocks[id_] = block
    return block


def _array_of(id_: bytes, dtype: str, size: int) -> npt.NDArray[Any]:
    block = _blocks.get(id_)
    return np.ndarray(size, dtype, _copies[id_] if block is None else block)
