"""Memory of processes that run flows: what costs time between jumbo tuples, and need not."""

from __future__ import annotations

import ctypes
import gc
import os
import platform
from functools import cache
from importlib import import_module

import pyarrow as pa

# glibc's mallopt: <malloc.h>
M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3
MAPPED_FROM = 1 << 25
KEPT = (1 << 31) - 1
ARROW_POOL = "ARROW_DEFAULT_MEMORY_POOL"


@cache
def keep_freed_memory() -> bool:
    """Let the allocator reuse large blocks; says whether it could be told.

    By default an array of more than some hundred kilobytes is mapped anew each time and its pages
    are cleared as they are touched. Columns of a jumbo tuple are such arrays: reusing their memory
    saves a quarter of the time that word count computes. Arrow's own allocators give memory back,
    too: jemalloc that of blocks from 8 MB on at once, which took a quarter of NEXMark q7's time.
    """
    try:
        library = ctypes.CDLL(None)
        mapped = library.mallopt(M_MMAP_THRESHOLD, MAPPED_FROM)
        kept = bool(mapped and library.mallopt(M_TRIM_THRESHOLD, KEPT))
    except (OSError, AttributeError):  # another C library: it has its own ways
        return False
    if kept:
        pa.set_memory_pool(pa.system_memory_pool())
    return kept


def arrow_pool() -> dict[str, str]:
    """Return environment variables for a process that keeps freed memory.

    They let Arrow's own code use the allocator of the C library, too, where that keeps freed memory
    and nobody has chosen another one.
    """
    chosen = ARROW_POOL in os.environ or platform.libc_ver()[0] != "glibc"
    return {} if chosen else {ARROW_POOL: "system"}


def give_back_memory() -> None:
    """Return freed memory to the system, after work that has needed much of it."""
    if keep_freed_memory():
        ctypes.CDLL(None).malloc_trim(0)


@cache
def freeze_modules() -> None:
    """Let the garbage collector pass over what is there for good.

    PySpark collects garbage after each task, and the next stage waits for it: some 30 ms spent on
    the objects of imported modules. pandas is imported first, since PySpark does so a moment later.
    """
    import_module("pandas")
    gc.collect()
    gc.freeze()
