"""Who signs up, sells and bids: NEXMark's market, a block of rows at a time.

Of fifty events in a row one is a person, three are auctions and 46 are bids, at a fixed pace. Ids
grow with time; sellers and bidders are mostly among the latest people, bids mostly on the latest
auctions, and some people and auctions are hot. Proportions, ratios and prices are those of Apache
Beam's generator, channels and addresses those of nexmark/nexmark for Flink. Deviations:

- A row follows from the seed and its number alone, so the three kinds can be made apart.
- Names and texts are drawn from pools, so that they cost little; no query looks into them.
- An event that comes late (one in ten, by up to three seconds: Beam's figures) is one whose
  `dateTime` lies back. Its ids are those of its place in the stream.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch.state.positions import Ints

PERSONS, AUCTIONS, BIDS = 1, 3, 46
EVENTS = PERSONS + AUCTIONS + BIDS

BEGIN_MS = 1_436_918_400_000  # 2015-07-15, where Beam's events begin
DELAY_MS = 3_000

FIRST_ID = 1000
CATEGORIES, FIRST_CATEGORY = 5, 10
HOT_AUCTIONS, HOT_BIDDERS, HOT_SELLERS = 2, 4, 4  # one in so many is not hot
HOT_EVERY = 100  # of so many people or auctions in a row, one is hot
IN_FLIGHT, ACTIVE, AHEAD = 100, 1000, 10

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class EventRate:
    """When events happen.

    Attributes:
        rate_per_s: How many events of all kinds fall into a second.
        delayed: The share of events that come late.
    """

    rate_per_s: float
    delayed: float

    def times(self, events: Ints, whether: Floats, how_much: Floats) -> Ints:
        """When each event happened, in milliseconds, from its number and two draws."""
        ideal = (events * (1000 / self.rate_per_s)).astype(np.int64)
        late = np.where(whether < self.delayed, how_much * DELAY_MS, 0).astype(np.int64)
        times: Ints = BEGIN_MS + np.maximum(ideal - late, 0)
        return times

    @property
    def lifetime_ms(self) -> int:
        """How long an auction lasts on average: until so many more were opened."""
        return int(IN_FLIGHT * EVENTS / AUCTIONS * 1000 / self.rate_per_s)


def how_many(events: int, before: int, of_kind: int) -> int:
    """How many of the first events are of a kind that comes behind `before` others in each fifty.

    Example:
        >>> [how_many(105, 0, PERSONS), how_many(105, 1, AUCTIONS), how_many(105, 4, BIDS)]
        [3, 9, 93]
    """
    rounds, rest = divmod(events, EVENTS)
    return rounds * of_kind + min(max(rest - before, 0), of_kind)


class Block:
    """Consecutive events of one kind; a column is computed when it is asked for.

    All random numbers are drawn first, so a column does not depend on which others are wanted.
    """

    draws = 8

    def __init__(self, rng: np.random.Generator, index: Ints, pace: EventRate) -> None:
        """The events with these numbers among their kind."""
        self.index, self.pace = index, pace
        self.drawn = rng.random((self.draws, len(index)))

    def dateTime(self) -> pa.Array:
        """When it happened."""
        return _moments(self.times())

    def times(self) -> Ints:
        """The same in milliseconds."""
        return self.pace.times(self.events(), self.drawn[0], self.drawn[1])

    def events(self) -> Ints:
        """The number of each among all events."""
        raise NotImplementedError

    def choice(self, draw: int, least: Ints | int, count: Ints | int) -> Ints:
        """One of `count` numbers from `least` on, by a draw."""
        chosen: Ints = least + (self.drawn[draw] * count).astype(np.int64)
        return chosen


class Persons(Block):
    """People who sign up."""

    def events(self) -> Ints:
        """The first of each fifty."""
        return self.index * EVENTS

    def id(self) -> Ints:
        """By order of appearance."""
        return FIRST_ID + self.index

    def name(self) -> pa.Array:
        """A first and a last name."""
        return picked(names(), self.drawn[2])

    def emailAddress(self) -> pa.Array:
        """Made up."""
        return picked(addresses(), self.drawn[3])

    def creditCard(self) -> pa.Array:
        """Four groups of four digits."""
        return picked(cards(), self.drawn[4])

    def city(self) -> pa.Array:
        """One of ten, whatever the state."""
        return picked(CITIES, self.drawn[5])

    def state(self) -> pa.Array:
        """One of six."""
        return picked(STATES, self.drawn[6])

    def extra(self) -> pa.Array:
        """What fills a person up to 200 bytes."""
        return picked(texts(109, 163), self.drawn[7])


class Auctions(Block):
    """Items that are put up."""

    draws = 11

    def events(self) -> Ints:
        """The second to the fourth of each fifty."""
        return self.index // AUCTIONS * EVENTS + PERSONS + self.index % AUCTIONS

    def id(self) -> Ints:
        """By order of appearance."""
        return FIRST_ID + self.index

    def itemName(self) -> pa.Array:
        """Up to twenty letters."""
        return picked(texts(3, 20), self.drawn[2])

    def description(self) -> pa.Array:
        """Up to a hundred letters."""
        return picked(texts(3, 100), self.drawn[3])

    def initialBid(self) -> Ints:
        """A price."""
        return _prices(self.drawn[4])

    def reserve(self) -> Ints:
        """The initial bid and a price."""
        return self.initialBid() + _prices(self.drawn[5])

    def expires(self) -> pa.Array:
        """When the last bid is taken; the lifetime is drawn evenly around its average."""
        lifetime = self.choice(6, 1, max(2 * self.pace.lifetime_ms, 1))
        return _moments(self.times() + lifetime)

    def seller(self) -> Ints:
        """Three in four times the first of the latest hundred people."""
        latest = self.index // AUCTIONS
        hot = latest // HOT_EVERY * HOT_EVERY
        return FIRST_ID + _mostly(self.drawn[7], HOT_SELLERS, hot, _person(self, 8, latest))

    def category(self) -> Ints:
        """One of five."""
        return self.choice(9, FIRST_CATEGORY, CATEGORIES)

    def extra(self) -> pa.Array:
        """What fills an auction up to 500 bytes."""
        return picked(texts(312, 468), self.drawn[10])


class Bids(Block):
    """What is offered."""

    draws = 9

    def events(self) -> Ints:
        """The fifth to the last of each fifty."""
        return self.index // BIDS * EVENTS + PERSONS + AUCTIONS + self.index % BIDS

    def auction(self) -> Ints:
        """Every other time the first of the latest hundred auctions, else one still open."""
        latest = self.index // BIDS * AUCTIONS + AUCTIONS - 1
        oldest = np.maximum(latest - IN_FLIGHT, 0)
        hot = latest // HOT_EVERY * HOT_EVERY
        cold = self.choice(3, oldest, latest - oldest + 1 + AHEAD)
        return FIRST_ID + _mostly(self.drawn[2], HOT_AUCTIONS, hot, cold)

    def bidder(self) -> Ints:
        """Three in four times the second of the latest hundred people."""
        latest = self.index // BIDS
        hot = latest // HOT_EVERY * HOT_EVERY + 1
        return FIRST_ID + _mostly(self.drawn[4], HOT_BIDDERS, hot, _person(self, 5, latest))

    def price(self) -> Ints:
        """A price."""
        return _prices(self.drawn[6])

    def channel(self) -> pa.Array:
        """Every other time one of four, else one of ten thousand."""
        return channels()[0].take(self._channel())

    def url(self) -> pa.Array:
        """One for each channel."""
        return channels()[1].take(self._channel())

    def extra(self) -> pa.Array:
        """What fills a bid up to 100 bytes."""
        return picked(texts(54, 82), self.drawn[8])

    def _channel(self) -> pa.Array:
        hot = self.drawn[7] < 0.5
        within = 2 * self.drawn[7] - np.where(hot, 0, 1)
        first = np.where(hot, 0, len(HOT_CHANNELS))
        return pa.array(first + (within * np.where(hot, len(HOT_CHANNELS), CHANNELS)).astype(int))


def rows_of(kind: type[Block], columns: Sequence[str], pace: EventRate) -> Callable[..., Any]:
    """What makes the rows of a kind, for `generate`.

    Example:
        >>> make = rows_of(Persons, ["id", "state"], EventRate(10_000, delayed=0))
        >>> made = make(np.random.default_rng(7), np.arange(3))
        >>> made["id"].tolist(), made["state"].to_pylist()
        ([1000, 1001, 1002], ['OR', 'WY', 'CA'])
    """

    def make(rng: np.random.Generator, index: Ints) -> dict[str, Any]:
        block = kind(rng, index, pace)
        return {name: getattr(block, name)() for name in columns}

    return make


def _mostly(drawn: Floats, ratio: int, hot: Ints, cold: Ints) -> Ints:
    return np.where(drawn * ratio >= 1, hot, cold)


def _person(block: Block, draw: int, latest: Ints) -> Ints:
    """One of the latest thousand people, or of the next ten, who are not there yet."""
    active = np.minimum(latest + 1, ACTIVE)
    return block.choice(draw, latest + 1 - active, active + AHEAD)


def _prices(drawn: Floats) -> Ints:
    """From a dollar to a million, in cents; each order of magnitude is as likely as the next."""
    prices: Ints = np.rint(np.power(10.0, drawn * 6) * 100).astype(np.int64)
    return prices


def _moments(times_ms: Ints) -> pa.Array:
    return pa.array(times_ms).cast(pa.timestamp("ms"))


# Names and texts to draw from, made once: picking one costs little, making one up does not.

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
