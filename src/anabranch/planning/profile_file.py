"""Profiles as files: JSON that `anabranch profile` writes and people can write by hand."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields, replace
from itertools import pairwise
from typing import Any, Literal

from anabranch.errors import PlanError, Subject
from anabranch.graph import StateKind
from anabranch.planning.documents import (
    Positive,
    Text,
    is_number,
    read_document,
    refused,
    shown,
)
from anabranch.planning.profile import OperatorProfile, Overheads, Profile, StreamProfile


@dataclass(frozen=True)
class _File:
    """The fields of a file; `measured` is for people."""

    operators: tuple[OperatorProfile, ...]
    edges: tuple[object, ...] = ()
    overheads: Overheads | None = None
    unit: Literal["ns", "us", "ms", "s"] | None = None
    ghz: Positive | None = None
    app: Text | None = None
    measured: object = None


def read_profile(text: str, name: str = "profile") -> Profile:
    """A profile from the text of a file.

    Args:
        text: JSON.
        name: What to call the file in errors.

    Example:
        >>> profile = read_profile('{"operators": [{"name": "parse", "cost": 2}]}')
        >>> profile.operators[0].state
        <StateKind.STATELESS: 'stateless'>
    """
    file = Subject("profile", name)
    found = read_document(text, file, _File)
    if not found.operators:
        raise refused(file, ".operators", "one or more operators", "[]", "add them")
    operators = tuple(_keyed(number, each) for number, each in enumerate(found.operators))
    # An empty list is no edges, too: operators beside each other would be several applications.
    edges = found.edges or [list(pair) for pair in pairwise(each.name for each in operators)]
    selectivities = {operator.name: operator.selectivity for operator in operators}
    streams = tuple(_stream(n, edge, selectivities) for n, edge in enumerate(edges))
    return Profile(operators, streams, found.overheads, found.unit, found.ghz, found.app)


def _keyed(number: int, operator: OperatorProfile) -> OperatorProfile:
    """Only partitioned operators have a key, and those need one."""
    if operator.state is not StateKind.PARTITIONED:
        return replace(operator, key=())
    if not operator.key:
        where = Subject("field", f"operators[{number}] {operator.name!r}.key")
        raise PlanError(where, "the columns that part its state", "null", "name them")
    return operator


def _stream(number: int, edge: object, selectivities: dict[str, float]) -> StreamProfile:
    where, got = Subject("field", f"edges[{number}]"), shown(edge)
    if not isinstance(edge, list) or len(edge) not in (2, 3):
        raise PlanError(where, "[producer, consumer] or with a selectivity", got, "write it so")
    for end in edge[:2]:
        if not isinstance(end, str) or end not in selectivities:
            known = f"operators among {list(selectivities)}"
            raise PlanError(where, known, f"{end!r} in {got}", "name an operator of the profile")
    if len(edge) == 2:
        return StreamProfile(edge[0], edge[1], selectivities[edge[0]])
    if not is_number(edge[2]):
        raise PlanError(where, "a selectivity of 0 or more", got, "count tuples on that stream")
    return StreamProfile(edge[0], edge[1], edge[2])


def profile_text(profile: Profile) -> str:
    """A profile as the text of a file, which `read_profile` reads back."""
    data: dict[str, Any] = {}
    for field in ("app", "unit", "ghz"):
        if getattr(profile, field) is not None:
            data[field] = getattr(profile, field)
    data["operators"] = [_operator_object(operator) for operator in profile.operators]
    data["edges"] = [[s.producer, s.consumer, s.selectivity] for s in profile.streams]
    if profile.overheads is not None:
        data["overheads"] = asdict(profile.overheads)
    return json.dumps(data, indent=2) + "\n"


def _operator_object(operator: OperatorProfile) -> dict[str, Any]:
    data: dict[str, Any] = {"name": operator.name, "state": operator.state.value}
    usual = OperatorProfile(operator.name, operator.cost)
    for name in ("key", *(each.name for each in fields(operator) if each.name not in data)):
        value = getattr(operator, name)
        if name in ("cost", "selectivity") or value != getattr(usual, name):
            data[name] = value
    return data
