"""A linear program that every plan of at least some rate satisfies: the relaxation behind bounds.

Let a plan bring the application to the rate X: every unit u handles at least X·v_u tuples, its
share g(u, i) of them on socket i. Slow every unit down to exactly X·v_u, all its replicas by the
same factor: shares stay, so times per tuple stay, and work only gets less. Then, with every stream
dealt out evenly, the part of stream p → u that goes from socket i to j is the *product*
g(p, i)·g(u, j), and demands are

    CPU of socket j     Σ_u X·v_u·(Te_u·g(u,j) + lines_u·Σ_i L(i,j)·g(p,i)·g(u,j))  ≤  cores
    replicas k(u, j)    the same of one u  ≤  k(u,j),    Σ k ≤ limit
    link and memory     likewise.

A plan that is slowed down because of overload satisfies them, too, after slowing down. Products are
replaced by variables Y(p,i,u,j), which the following makes behave like products as far as linear
rows can (the reformulation-linearization technique):

- Y summed over j is g(p,i), summed over i is g(u,j);
- the CPU row of socket j times g(a,i), for every unit a: what shares socket j with the part of a
  on i must fit in as well. Fetching, a triple product there, counts with the least that the shares
  of its producers allow;
- rows of bounds on g times each other (McCormick), where a search has narrowed those bounds;
- cuts that the matrix of products has no negative eigenvalue.

Where streams join in a unit, their parts of its input depend on how much each producer does beyond
X·v; those parts are variables between the least and the greatest that the room left allows.

Numbers of replicas may be broken, unless a search bounds them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from anabranch.planning.models.placed_rates import Floats, RateModel
from anabranch.planning.models.placed_units import UnitStream
from anabranch.planning.planners.search.placement_moves import SearchLimits

LIGHT = 0.002
"""Units with less than this part of all work count as that work alone, wherever they are."""

CLEARLY = 1e-5
"""Relative overload that is no rounding of the solver's."""

SETTING_UP = 5_000
"""Coefficients that take as long as setting a program up does."""


@dataclass(frozen=True)
class ShareBounds:
    """Bounds on shares g and replicas k, by unit and socket."""

    low: Floats
    high: Floats
    fewest: Floats
    most: Floats

    def halves(self, where: tuple[int, int], at: float) -> tuple[ShareBounds, ShareBounds]:
        """The box in two, cut at a share."""
        low, high = self.low.copy(), self.high.copy()
        low[where] = high[where] = at
        return (
            ShareBounds(self.low, high, self.fewest, self.most),
            ShareBounds(low, self.high, self.fewest, self.most),
        )

    def whole_numbers(
        self, where: tuple[int, int], between: float
    ) -> tuple[ShareBounds, ShareBounds]:
        """The box in two: fewer replicas than a number that is not whole, and more."""
        fewest, most = self.fewest.copy(), self.most.copy()
        most[where], fewest[where] = np.floor(between), np.ceil(between)
        return (
            ShareBounds(self.low, self.high, self.fewest, most),
            ShareBounds(self.low, self.high, fewest, self.most),
        )


@dataclass(frozen=True)
class Relaxed:
    """What the program says of a rate.

    Attributes:
        impossible: No plan in the box reaches it: that is proved.
        shares: g of the program's solution; None without one.
        replicas: k of it.
        products: Y of streams into units that fetch, by producer and consumer.
    """

    impossible: bool
    shares: Floats | None = None
    replicas: Floats | None = None
    products: dict[tuple[int, int], Floats] | None = None


class Relaxation:
    """The program for one model and so many replicas.

    Attributes:
        entries: Coefficients of all programs solved so far, and what setting them up is worth.
    """

    def __init__(self, model: RateModel, room: SearchLimits) -> None:
        self.model, self.room = model, room
        self.sockets, self.cores = model.sockets, model.cores
        units = model.workload.units
        self.units = range(len(units))
        self.visits = np.array(model.workload.visits)
        self.execute = np.array([unit.execute_ns for unit in units])
        self.latency = model.latency[: self.sockets, : self.sockets]
        work = self.visits * self.execute
        self.heavy = [u for u in self.units if work[u] >= LIGHT * work.sum()]
        none = np.zeros((len(units), self.sockets))
        self.whole = ShareBounds(none, none + 1, none, none + np.array(room.most)[:, None])
        self.cuts = ProductCuts(self.heavy, self.sockets)
        self.entries = 0

    @cached_property
    def fetching(self) -> tuple[tuple[UnitStream, ...], ...]:
        """Streams whose fetching counts, by consumer."""
        workload = self.model.workload
        return tuple(
            tuple(
                s
                for s in workload.into[u]
                if s.selectivity * workload.visits[s.producer] > 0 and u in self.heavy
            )
            for u in self.units
        )

    @cached_property
    def pairs(self) -> list[tuple[int, int]]:
        """Units whose shares are multiplied, the first in the order of streams first."""
        wanted = {(a, b) for a in self.heavy for b in self.heavy if a <= b}
        wanted |= {(s.producer, s.consumer) for u in self.units for s in self.fetching[u]}
        return sorted(wanted)

    def ideal(self) -> float:
        """The rate if nothing had to be fetched."""
        room = min(float(self.room.limit), self.cores * self.sockets)
        bounds = [room / float((self.visits * self.execute).sum())]
        for u, most in zip(self.units, self.room.most, strict=True):
            if self.visits[u] > 0:
                bounds.append(most / float(self.visits[u] * self.execute[u]))
        if self.model.input_per_ns is not None:
            bounds.append(self.model.input_per_ns)
        return min(bounds)

    def solve(self, rate: float, box: ShareBounds) -> Relaxed:
        """Whether a plan in the box could bring the application to a rate."""
        load = rate * self.visits
        least = self._least_handling(box)
        high = np.minimum(box.high, self.cores / np.maximum(load[:, None] * least, 1e-300))
        if (high.sum(axis=1) < 1 - CLEARLY).any() or (high < box.low - CLEARLY).any():
            return Relaxed(True)
        rows = LinearRows()
        shares = rows.variables(len(self.units), self.sockets)
        excess = rows.variables(1)
        replicas = rows.variables(len(self.units), self.sockets)
        products = {pair: rows.variables(self.sockets, self.sockets) for pair in self.pairs}
        self._shares_and_products(rows, shares, products)
        moved = self._moved(rows, shares, products, load, least)
        self._demands(rows, shares, excess, replicas, moved, load)
        self._products_fit(rows, shares, products, load[:, None] * least, box)
        self._products_in_box(rows, shares, products, box)
        self.cuts.add_to(rows, shares, products)
        low, top = np.zeros(rows.size), np.full(rows.size, np.inf)
        low[shares], top[shares] = box.low, np.maximum(high, box.low)
        low[excess], top[excess] = -0.9, 1.0
        low[replicas], top[replicas] = box.fewest, box.most
        self.entries += SETTING_UP + rows.entries
        solved = rows.least(excess, low, top)
        impossible = solved.least > CLEARLY
        if solved.solution is None:
            return Relaxed(impossible)
        return Relaxed(
            impossible,
            solved.solution[shares],
            solved.solution[replicas],
            {pair: solved.solution[products[pair]] for pair in self.pairs},
        )

    def sharpen(self, found: Relaxed) -> bool:
        """Exclude a solution whose products are none; whether that was possible."""
        if found.shares is None or found.products is None:
            return False
        return self.cuts.learn(found.shares, found.products)

    def _least_handling(self, box: ShareBounds) -> Floats:
        """The least time per tuple on each socket that shares of producers within a box allow."""
        least = np.repeat(self.execute[:, None], self.sockets, axis=1)
        for u in self.units:
            if self.fetching[u]:
                nearest = [_least_mean(self.latency, box, s.producer) for s in self.fetching[u]]
                least[u] += self.model.lines[u] * np.min(nearest, axis=0)
        return least

    def _shares_and_products(
        self, rows: LinearRows, shares: Indices, products: dict[tuple[int, int], Indices]
    ) -> None:
        every = np.arange(self.sockets)
        for u in self.units:
            rows.equal([(shares[u], 1.0)], 1.0)
        for (a, b), product in products.items():
            for i in every:
                rows.equal([(product[i], 1.0), (shares[a, i], -1.0)], 0.0)
                rows.equal([(product[:, i], 1.0), (shares[b, i], -1.0)], 0.0)
                if a == b:
                    for j in range(i):
                        rows.equal([(product[i, j], 1.0), (product[j, i], -1.0)], 0.0)

    def _moved(
        self,
        rows: LinearRows,
        shares: Indices,
        products: dict[tuple[int, int], Indices],
        load: Floats,
        least: Floats,
    ) -> list[list[Indices]]:
        """Of each unit, variables for its tuples from socket to socket, one set a stream."""
        slack = min(self.room.limit, self.cores * self.sockets) - (load * least.min(axis=1)).sum()
        most = load + max(0.0, float(slack)) / self.execute
        moved: list[list[Indices]] = []
        for u in self.units:
            streams = self.fetching[u]
            if len(streams) < 2:
                moved.append([products[s.producer, u] for s in streams])
                continue
            parts = []
            for stream in streams:
                low, high = _parts(stream, streams, load, most)
                part = rows.variables(self.sockets, self.sockets)
                product = products[stream.producer, u]
                for i in range(self.sockets):
                    for j in range(self.sockets):
                        rows.at_most([(part[i, j], 1.0), (product[i, j], -high)], 0.0)
                        rows.at_most([(part[i, j], -1.0), (product[i, j], low)], 0.0)
                parts.append(part)
            for j in range(self.sockets):
                rows.equal([*((p[:, j], 1.0) for p in parts), (shares[u, j], -1.0)], 0.0)
            moved.append(parts)
        return moved

    def _demands(
        self,
        rows: LinearRows,
        shares: Indices,
        excess: Indices,
        replicas: Indices,
        moved: list[list[Indices]],
        load: Floats,
    ) -> None:
        model = self.model
        units = model.workload.units
        by_socket = [
            [
                [(shares[u, j], load[u] * self.execute[u])]
                + [(p[:, j], load[u] * model.lines[u] * self.latency[:, j]) for p in moved[u]]
                for j in range(self.sockets)
            ]
            for u in self.units
        ]
        for j in range(self.sockets):
            asked = [term for u in self.units for term in by_socket[u][j]]
            rows.at_most([*asked, (excess, -self.cores)], self.cores)
        for u in self.units:
            for j in range(self.sockets):
                rows.at_most([*by_socket[u][j], (replicas[u, j], -1.0)], 0.0)
            rows.at_most([(replicas[u], 1.0)], float(self.room.most[u]))
            rows.at_most([(replicas[u], -1.0)], -1.0)
        limit = float(self.room.limit)
        rows.at_most([(replicas, 1.0), (excess, -limit)], limit)
        if not model.machine.bandwidth_mb_s:
            return
        for j in range(self.sockets):
            traffic = [(shares[u, j], load[u] * units[u].memory_bytes) for u in self.units]
            rows.at_most(traffic, float(model.bandwidth[j, j]))
            for i in range(self.sockets):
                bytes_moved = [
                    (p[i, j], load[u] * units[u].tuple_bytes) for u in self.units for p in moved[u]
                ]
                if i != j and bytes_moved:
                    rows.at_most(bytes_moved, float(model.bandwidth[i, j]))

    def _products_fit(
        self,
        rows: LinearRows,
        shares: Indices,
        products: dict[tuple[int, int], Indices],
        work: Floats,
        box: ShareBounds,
    ) -> None:
        """CPU rows times shares, or times how far shares are from their bounds."""
        for a in self.units:
            beside = [
                (b, _oriented(products, a, b))
                for b in self.units
                if (min(a, b), max(a, b)) in products
            ]
            for i in range(self.sockets) if beside else ():
                for bound, sign in ((box.low[a, i], 1.0), (box.high[a, i], -1.0)):
                    if sign < 0 and bound >= 1:
                        continue
                    for j in range(self.sockets):
                        terms = [(y[i, j], sign * work[b, j]) for b, y in beside]
                        terms += [(shares[b, j], -sign * bound * work[b, j]) for b, _ in beside]
                        terms.append((shares[a, i], -sign * self.cores))
                        rows.at_most(terms, -sign * bound * self.cores)

    def _products_in_box(
        self,
        rows: LinearRows,
        shares: Indices,
        products: dict[tuple[int, int], Indices],
        box: ShareBounds,
    ) -> None:
        narrow = (box.low > 0) | (box.high < 1)
        for (a, b), product in products.items():
            for i in range(self.sockets):
                for j in range(self.sockets):
                    if narrow[a, i] or narrow[b, j]:
                        ends = (product[i, j], shares[a, i], shares[b, j])
                        bounds = (box.low[a, i], box.high[a, i], box.low[b, j], box.high[b, j])
                        _mccormick(rows, ends, bounds)


def _mccormick(
    rows: LinearRows, ends: tuple[int, int, int], bounds: tuple[float, float, float, float]
) -> None:
    product, left, right = ends
    low_left, high_left, low_right, high_right = bounds
    for x, y, sign in (
        (low_left, low_right, -1.0),
        (high_left, high_right, -1.0),
        (low_left, high_right, 1.0),
        (high_left, low_right, 1.0),
    ):
        rows.at_most([(product, sign), (right, -sign * x), (left, -sign * y)], -sign * x * y)


def _oriented(products: dict[tuple[int, int], Indices], a: int, b: int) -> Indices:
    return products[a, b] if a <= b else products[b, a].T


def _least_mean(latency: Floats, box: ShareBounds, producer: int) -> Floats:
    """The least mean latency to each socket from a producer whose shares are in a box."""
    low, high = box.low[producer], box.high[producer]
    means = low @ latency
    for j in range(len(low)):
        left = 1.0 - float(low.sum())
        for i in np.argsort(latency[:, j], kind="stable"):
            more = min(left, float(high[i] - low[i]))
            means[j] += more * latency[i, j]
            left -= more
    return np.asarray(means)


def _parts(
    stream: UnitStream, streams: tuple[UnitStream, ...], least: Floats, most: Floats
) -> tuple[float, float]:
    """The least and greatest part of a unit's input that a stream can be."""
    own = stream.selectivity
    others = [s for s in streams if s is not stream]
    fewest = own * float(least[stream.producer])
    fullest = own * float(most[stream.producer])
    low = fewest / (fewest + sum(s.selectivity * float(most[s.producer]) for s in others))
    high = fullest / (fullest + sum(s.selectivity * float(least[s.producer]) for s in others))
    return low, high


# Rows of a linear program, collected one by one and solved by HiGHS.

Indices: TypeAlias = NDArray[np.int64]
Term: TypeAlias = tuple[Indices | int, NDArray[np.float64] | float]
"""Variables and their coefficients; one coefficient may stand for all."""


@dataclass(frozen=True)
class Solved:
    """What became of a program.

    Attributes:
        least: The least value; infinite if nothing satisfies all rows, and minus infinite if the
            solver gave up.
        solution: Values of all variables; None without a solution.
    """

    least: float
    solution: NDArray[np.float64] | None


class LinearRows:
    """A linear program as it grows.

    Example:
        >>> rows = LinearRows()
        >>> x = rows.variables(2)
        >>> rows.equal([(x, 1.0)], 4.0)
        >>> round(rows.least(x[0], np.zeros(2), np.full(2, 3.0)).least, 6)
        1.0
    """

    def __init__(self) -> None:
        self.size = 0
        self._bounded = _Rows()
        self._equal = _Rows()

    def variables(self, *shape: int) -> Indices:
        """Numbers of new variables."""
        count = int(np.prod(shape))
        numbers = np.arange(self.size, self.size + count, dtype=np.int64).reshape(shape)
        self.size += count
        return numbers

    def at_most(self, terms: Sequence[Term], bound: float) -> None:
        """Terms add up to no more than a bound."""
        self._bounded.add(terms, bound)

    def equal(self, terms: Sequence[Term], value: float) -> None:
        """Terms add up to a value."""
        self._equal.add(terms, value)

    @property
    def entries(self) -> int:
        """How many coefficients there are: what solving it costs grows with them."""
        return len(self._bounded.values) + len(self._equal.values)

    def least(
        self, variable: Indices, low: NDArray[np.float64], high: NDArray[np.float64]
    ) -> Solved:
        """The least value of a variable, all variables being within bounds."""
        from scipy.optimize import linprog  # takes a second, which few who plan need to spend

        cost = np.zeros(self.size)
        cost[variable] = 1.0
        bounded, most = self._bounded.matrix(self.size)
        equal, value = self._equal.matrix(self.size)
        bounds = np.column_stack([low, high])
        # Interior points: the simplex method needs forty times as long for twelve units.
        found = linprog(cost, bounded, most, equal, value, bounds, method="highs-ipm")
        if found.status == 2:
            return Solved(np.inf, None)
        if found.status != 0:
            return Solved(-np.inf, None)
        return Solved(float(found.fun), np.asarray(found.x))


class _Rows:
    def __init__(self) -> None:
        self.right: list[float] = []
        self.columns: list[int] = []
        self.values: list[float] = []
        self.ends: list[int] = [0]

    def add(self, terms: Sequence[Term], right: float) -> None:
        for numbers, factors in terms:
            if isinstance(numbers, np.ndarray):
                columns = numbers.ravel().tolist()
                self.columns += columns
                self.values += (
                    factors.ravel().tolist()
                    if isinstance(factors, np.ndarray)
                    else [factors] * len(columns)
                )
            else:
                self.columns.append(int(numbers))
                self.values.append(float(factors))
        self.right.append(right)
        self.ends.append(len(self.columns))

    def matrix(self, width: int) -> tuple[Any, NDArray[np.float64]]:
        from scipy.sparse import csr_array

        found = csr_array((self.values, self.columns, self.ends), shape=(len(self.right), width))
        found.sum_duplicates()
        return found, np.array(self.right)


# Cuts from a matrix of products having no negative eigenvalue.
#
# Shares g and their products g·gᵀ make a matrix [[1, gᵀ], [g, Y]] that is an outer product of one
# vector, so z'·M·z ≥ 0 for every z. Where a linear program's solution has an eigenvector z with
# z'·M·z < 0, that row is linear in g and Y, holds for every plan, and excludes the solution.

MOST_CUTS = 64
PER_SOLUTION = 8
NEGATIVE = -1e-3


class ProductCuts:
    """Cuts for the products of some units' shares; the latest ones are kept.

    Attributes:
        units: Units whose products all are variables.
    """

    def __init__(self, units: list[int], sockets: int) -> None:
        self.units = units
        self.sockets = sockets
        self._cuts: list[Floats] = []

    def learn(self, shares: Floats, products: dict[tuple[int, int], Floats]) -> bool:
        """Add cuts that exclude a solution; whether there were any."""
        values, vectors = np.linalg.eigh(self._matrix(shares, products))
        found = [vectors[:, k] for k in np.flatnonzero(values < NEGATIVE)[:PER_SOLUTION]]
        self._cuts = [*self._cuts, *found][-MOST_CUTS:]
        return bool(found)

    def add_to(
        self, rows: LinearRows, shares: Indices, products: dict[tuple[int, int], Indices]
    ) -> None:
        """Give all cuts to a linear program."""
        for cut in self._cuts:
            parts = dict(zip(self.units, cut[1:].reshape(-1, self.sockets), strict=True))
            first = float(cut[0])
            rows.at_most(
                [(shares[u], -2 * first * parts[u]) for u in self.units]
                + [
                    (products[a, b], -(1 if a == b else 2) * np.outer(parts[a], parts[b]))
                    for a in self.units
                    for b in self.units
                    if a <= b
                ],
                first * first,
            )

    def _matrix(self, shares: Floats, products: dict[tuple[int, int], Floats]) -> Floats:
        blocks = [
            [products[a, b] if a <= b else products[b, a].T for b in self.units] for a in self.units
        ]
        column = shares[self.units].reshape(-1, 1)
        return np.asarray(np.block([[np.ones((1, 1)), column.T], [column, np.block(blocks)]]))
