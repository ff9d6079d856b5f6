"""Names and texts to draw from, made once: picking one costs little, making one up does not."""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

POOL = 4096
HOT_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
CHANNELS = 10_000

FIRST_NAMES = "Peter,Paul,Luke,John,Saul,Vicky,Kate,Julie,Sarah,Deiter,Walter"
LAST_NAMES = "Shultz,Abrams,Spencer,White,Bartels,Walton,Smith,Jones,Noris"
STATES = pa.array(["AZ", "CA", "ID", "OR", "WA", "WY"])
CITIES = pa.array(
    [
        *("Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland"),
        *("Bend", "Redmond", "Seattle", "Kent", "Cheyenne"),
    ]
)


def picked(pool: pa.Array, drawn: npt.NDArray[np.float64]) -> pa.Array:
    """One of a pool for each number from 0 to 1."""
    return pool.take(pa.array((drawn * len(pool)).astype(np.int64)))


@cache
def texts(shortest: int, longest: int) -> pa.Array:
    """Texts of `shortest` to `longest` - 1 letters."""
    rng = np.random.default_rng((shortest, longest))
    letters = rng.integers(ord("a"), ord("z"), POOL * longest, np.uint8, endpoint=True)
    starts = np.arange(POOL) * longest
    lengths = rng.integers(shortest, longest, POOL)
    whole = letters.tobytes().decode()
    return pa.array([whole[s : s + n] for s, n in zip(starts, lengths, strict=True)])


@cache
def names() -> pa.Array:
    """First and last names."""
    lasts = LAST_NAMES.split(",")
    return pa.array([f"{first} {last}" for first in FIRST_NAMES.split(",") for last in lasts])


@cache
def addresses() -> pa.Array:
    """Of mail."""
    pairs = zip(texts(3, 7).to_pylist(), texts(3, 5).to_pylist(), strict=True)
    return pa.array([f"{name}@{host}.com" for name, host in pairs])


@cache
def cards() -> pa.Array:
    """Numbers of credit cards."""
    groups = np.random.default_rng(4).integers(0, 10_000, (POOL, 4)).tolist()
    return pa.array([" ".join(f"{group:04}" for group in card) for card in groups])


@cache
def channels() -> tuple[pa.Array, pa.Array]:
    """Names and addresses, hot ones first; nine in ten of the others tell their number."""
    numbers = range(CHANNELS)
    known = [*HOT_CHANNELS, *(f"channel-{number}" for number in numbers)]
    words = texts(3, 5).to_pylist()
    paths = ["/".join(words[(3 * n + part) % POOL] for part in range(3)) for n in range(len(known))]
    told = np.random.default_rng(10).random(CHANNELS) < 0.9
    ends = [""] * len(HOT_CHANNELS)
    ends += [f"&channel_id={_reversed(n)}" if told[n] else "" for n in numbers]
    urls = [
        f"https://www.nexmark.com/{path}/item.htm?query=1{end}"
        for path, end in zip(paths, ends, strict=True)
    ]
    return pa.array(known), pa.array(urls)


def _reversed(number: int) -> int:
    """The bits of a 32-bit number from behind, without its sign."""
    turned = int(f"{number:032b}"[::-1], 2)
    return abs(turned - (1 << 32) if turned >> 31 else turned)
