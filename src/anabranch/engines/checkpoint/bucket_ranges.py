"""Buckets as short text: a manifest names hundreds of files with hundreds of buckets each."""

from __future__ import annotations

from functools import lru_cache


@lru_cache(maxsize=4096)
def to_text(buckets: tuple[int, ...]) -> str:
    """Sorted numbers as ranges.

    Example:
        >>> to_text((0, 1, 2, 3, 70))
        '0-3,70'
    """
    runs: list[list[int]] = []
    for bucket in sorted(set(buckets)):
        if runs and bucket == runs[-1][1] + 1:
            runs[-1][1] = bucket
        else:
            runs.append([bucket, bucket])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


@lru_cache(maxsize=4096)
def from_text(text: str) -> tuple[int, ...]:
    """The numbers that ranges stand for.

    Example:
        >>> from_text("0-3,70")
        (0, 1, 2, 3, 70)
    """
    found: list[int] = []
    for run in filter(None, text.split(",")):
        first, _, last = run.partition("-")
        found.extend(range(int(first), int(last or first) + 1))
    return tuple(found)
