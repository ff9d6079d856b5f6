"""Memory of processes that run flows: what costs time between jumbo tuples, and need not."""

from __future__ import annotations

import ctypes
import gc
from functools import cache
from importlib import import_module

import pyarrow as pa

# glibc's mallopt: <malloc.h>
M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3
MAPPED_FROM = 1 << 25
KEPT = (1 << 31) - 1
DECAY_MS = 60_000


@cache
def keep_freed_memory() -> bool:
    """Let the allocator reuse large blocks; says whether it could be told.

    By default an array of more than some hundred kilobytes is mapped anew each time and its pages
    are cleared as they are touched. Columns of a jumbo tuple are such arrays: reusing their memory
    saves a quarter of the time that word count computes. Arrow's own allocator gives memory back,
    too, unless it is jemalloc and told not to.
    """
    try:
        library = ctypes.CDLL(None)
        mapped = library.mallopt(M_MMAP_THRESHOLD, MAPPED_FROM)
        kept = bool(mapped and library.mallopt(M_TRIM_THRESHOLD, KEPT))
    except (OSError, AttributeError):  # another C library: it has its own ways
        return False
    if kept:
        pa.set_memory_pool(_arrow_pool())
    return kept


def _arrow_pool() -> pa.MemoryPool:
    try:
        pa.jemalloc_set_decay_ms(DECAY_MS)
        return pa.jemalloc_memory_pool()
    except NotImplementedError:  # Arrow was built without it
        return pa.system_memory_pool()


@cache
def freeze_modules() -> None:
    """Let the garbage collector pass over what is there for good.

    PySpark collects garbage after each task, and the next stage waits for it: some 30 ms spent on
    the objects of imported modules. pandas is imported first, since PySpark does so a moment later.
    """
    import_module("pandas")
    gc.collect()
    gc.freeze()
