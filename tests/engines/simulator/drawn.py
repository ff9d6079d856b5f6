"""Random applications and plans, drawn from a seed."""

from __future__ import annotations

import random

from anabranch.graph import StateKind
from anabranch.planning.answer import RegionChoice, most_replicas, replicable
from anabranch.planning.profile import OperatorProfile, Overheads, Profile, StreamProfile

KEYS = (("k",), ("k", "l"), ("l",))
STATES = (StateKind.STATELESS, StateKind.STATELESS, StateKind.PARTITIONED, StateKind.STATEFUL)


def drawn_profile(chance: random.Random, branching: bool) -> Profile:
    """One to seven operators; a chain, or a graph with several sources, tees and joins."""
    operators, streams = [], []
    for number in range(chance.randint(1, 7)):
        state = chance.choice(STATES)
        operators.append(
            OperatorProfile(
                f"o{number}",
                cost=chance.uniform(0.5, 200.0),
                selectivity=chance.choice([0.2, 0.5, 1.0, 1.0, 3.0]),
                state=state,
                key=chance.choice(KEYS) if state is StateKind.PARTITIONED else (),
                max_replicas=chance.choice([None, None, 3]),
                rate=chance.choice([1.0, 1.0, 2.5]),
            )
        )
        earlier = operators[:-1]
        if not branching:
            producers = earlier[-1:]
        else:
            producers = chance.sample(earlier, min(len(earlier), chance.choice([0, 1, 1, 1, 2])))
        for producer in producers:
            selectivity = chance.uniform(0.2, 2.0) if branching else producer.selectivity
            streams.append(StreamProfile(producer.name, operators[-1].name, selectivity))
    overheads = Overheads(chance.choice([0.0, 1.0, 10.0]), chance.choice([0.0, 5.0, 50.0]))
    return Profile(tuple(operators), tuple(streams), overheads, unit="us")


def drawn_regions(chance: random.Random, profile: Profile) -> list[RegionChoice]:
    """A plan that the profile allows."""
    found = []
    for chain in profile.chains:
        for run in _cut(chance, chain, 0.4):
            members = [profile.by_name[name] for name in run]
            bound = most_replicas(members)
            most = (bound or 6) + 1 if replicable(members) else 1
            pipelines = tuple(_cut(chance, run, 0.4))
            found.append(RegionChoice(pipelines, chance.randint(1, most)))
    return found


def _cut(chance: random.Random, run: tuple[str, ...], often: float) -> list[tuple[str, ...]]:
    pieces = [[run[0]]]
    for name in run[1:]:
        if chance.random() < often:
            pieces.append([name])
        else:
            pieces[-1].append(name)
    return [tuple(piece) for piece in pieces]
