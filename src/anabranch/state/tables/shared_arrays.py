"""Large arrays in shared memory, so that another process of the host can go on with them.

A process that hands rows over sends a file descriptor and copies nothing. The memory goes with the
last process that has it mapped, however that process ends.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Callable
from typing import Any, TypeVar
from uuid import uuid4
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

Scalar = TypeVar("Scalar", bound=np.generic)
SHARED_FROM_ITEMS = 1 << 15
"""Arrays that are shorter are copied faster than they are mapped."""


class Block(mmap.mmap):
    """The memory of one array.

    Attributes:
        id: Names the block in every process that has it mapped.
        descriptor: Its file, open as long as this object lives.
    """

    id: bytes
    descriptor: int

    def __del__(self) -> None:
        os.close(self.descriptor)


class _Blocks(WeakValueDictionary[bytes, Block]):
    """The blocks that this process has mapped.

    Attributes:
        most: From so many on, no more are made; 0 where no other process shares them.
        in_use: Whether new arrays are shared from the start.
    """

    most = 0
    in_use = False


_blocks = _Blocks()


def allow_sharing() -> None:
    """Let `shared` share arrays, none of which is shared yet.

    A block keeps a file open, so that only a part of the files that a process may open is used.
    """
    import resource  # Windows has none

    _blocks.most, _blocks.in_use = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4, False


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


def map_block(id_: bytes, descriptor: int, size: int) -> Block:
    """Return the block with an id, which the caller must keep; the descriptor belongs to it."""
    found = _blocks.get(id_)
    if found is not None:
        os.close(descriptor)
        return found
    block = Block(descriptor, size)
    block.id, block.descriptor = id_, descriptor
    _blocks[id_] = block
    return block


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
    return np.ndarray(size, dtype, map_block(uuid4().bytes, shared_file(length), length))


def _array_of(id_: bytes, dtype: str, size: int) -> npt.NDArray[Any]:
    return np.ndarray(size, dtype, _blocks[id_])
