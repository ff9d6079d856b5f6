"""Every way to run a region that could be part of a best plan.

What a region contributes to the throughput (`planning/models/fission.py`) is three numbers: the
time between two of its tuples (turn), its CPU time (work), and its threads. A way that is worse in
one of them and better in none is never needed. So the pipelines of a run are found by dynamic
programming over its cuts, which keeps what is not dominated, and replicas are added as long as they
make the turn shorter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log2
from typing import NamedTuple

from anabranch.planning.answer import RegionChoice, most_replicas, most_speedup
from anabranch.planning.models.fission import (
    crossings,
    pipeline_times,
    replicas_cost,
    selectivity,
    waiting,
)
from anabranch.planning.profile import Profile


class Cutting(NamedTuple):
    """Pipelines of a run: how many, the time of the slowest, the time of all, where they end."""

    pieces: int
    slowest: float
    total: float
    ends: tuple[int, ...]


@dataclass(frozen=True)
class Option:
    """One way to run a region; see `RegionTimes` for turn and work."""

    turn: float
    work: float
    threads: int
    pipelines: tuple[tuple[str, ...], ...]
    replicas: int

    @property
    def choice(self) -> RegionChoice:
        """As an answer names it."""
        return RegionChoice(self.pipelines, self.replicas)


@dataclass(frozen=True)
class Freedom:
    """What plans may use: several pipelines in a region, several replicas of it."""

    pipelines: bool = True
    replicas: bool = True


def options(
    profile: Profile, run: Sequence[str], cuttings: Sequence[Cutting], threads: int, replicas: bool
) -> list[Option]:
    """The ways to run one region with at most so many threads."""
    overheads = profile.switching
    members = [profile.by_name[name] for name in run]
    bound = most_replicas(members) if replicas else 1
    fastest = most_speedup(members)
    switching = overheads.thread_switch * crossings(profile, RegionChoice((tuple(run),)))
    visits, idle = profile.visits[run[0]], waiting(profile, run)
    dearer = replicas_cost(profile, run)
    found: list[Option] = []
    for cutting in cuttings:
        most = threads // cutting.pieces
        shortest = before = float("inf")
        for copies in range(1, (most if bound is None else min(most, bound)) + 1):
            fixed = switching + overheads.replication * log2(copies)
            further = dearer if copies > 1 else 0.0
            turn = visits * (fixed + (cutting.slowest + further) / min(copies, fastest))
            if copies > 2 and turn >= before:
                break  # from two on it falls up to one number of replicas, and rises from there on
            before = turn
            if turn >= shortest:
                continue
            shortest = turn
            work = visits * (fixed + cutting.total + further - idle)
            pipelines = _pieces(run, cutting.ends)
            found.append(Option(turn, work, copies * cutting.pieces, pipelines, copies))
    return found


def cuttings(profile: Profile, run: Sequence[str], several: bool) -> dict[int, list[Cutting]]:
    """Ways to cut a run into pipelines that are not dominated, for each place where it may end.

    Example:
        >>> from anabranch.planning.profile import OperatorProfile, chain
        >>> profile = chain([OperatorProfile("a", 3.0), OperatorProfile("b", 1.0)])
        >>> [cutting.slowest for cutting in cuttings(profile, ["a", "b"], True)[2]]
        [4.0, 3.0]
    """
    if not several:
        return {
            end: [Cutting(1, total, total, (end,))]
            for end in range(1, len(run) + 1)
            for total in pipeline_times(profile, [run[:end]])
        }
    delta = profile.switching.thread_switch
    arriving = [1.0]
    costs = [0.0]  # of all operators in front of a place, per tuple that comes into the run
    for name in run:
        costs.append(costs[-1] + arriving[-1] * profile.by_name[name].held)
        arriving.append(arriving[-1] * selectivity(profile, name))
    open_ways: list[list[Cutting]] = [[Cutting(0, 0.0, 0.0, ())]]  # another pipeline follows
    closed: dict[int, list[Cutting]] = {}
    for end in range(1, len(run) + 1):
        ways: list[Cutting] = []
        for start in range(end):
            taken_over = delta * arriving[start] if start else 0.0
            time = taken_over + costs[end] - costs[start]
            ways += [
                Cutting(w.pieces + 1, max(w.slowest, time), w.total + time, (*w.ends, end))
                for w in open_ways[start]
            ]
        closed[end] = undominated(ways)
        handing_on = delta * arriving[end]
        longer = [
            Cutting(
                w.pieces,
                max(w.slowest, _last_time(costs, arriving, delta, w) + handing_on),
                w.total + handing_on,
                w.ends,
            )
            for w in ways
        ]
        open_ways.append(undominated(longer))
    return closed


def _last_time(costs: list[float], arriving: list[float], delta: float, way: Cutting) -> float:
    start = way.ends[-2] if way.pieces > 1 else 0
    return costs[way.ends[-1]] - costs[start] + (delta * arriving[start] if start else 0.0)


def undominated(ways: list[Cutting]) -> list[Cutting]:
    """Ways that no other one beats or equals in pieces, slowest and total."""
    kept: list[Cutting] = []
    for way in sorted(ways):
        if not any(k.slowest <= way.slowest and k.total <= way.total for k in kept):
            kept.append(way)
    return kept


def _pieces(run: Sequence[str], ends: tuple[int, ...]) -> tuple[tuple[str, ...], ...]:
    starts = (0, *ends[:-1])
    return tuple(tuple(run[start:end]) for start, end in zip(starts, ends, strict=True))
