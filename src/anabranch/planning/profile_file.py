"""Profiles as files: JSON that `anabranch profile` writes and people can write by hand."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

from anabranch.errors import PlanError, Subject
from anabranch.graph import StateKind
from anabranch.planning.fields import Fields, is_number
from anabranch.planning.profile import (
    NANOSECONDS,
    OperatorProfile,
    Overheads,
    Profile,
    StreamProfile,
)

_OPERATOR = (
    "name",
    "state",
    "key",
    "cost",
    "selectivity",
    "max_replicas",
    "tuple_bytes",
    "memory_bytes",
    "rate",
    "cost_p99",
    "keys",
    "hottest_key_share",
)


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
    fields = Fields.of(text, Subject("profile", name))
    fields.only("operators", "edges", "overheads", "unit", "ghz", "app", "measured")
    operators = tuple(_operator(each) for each in fields.objects("operators"))
    if not operators:
        raise fields.refuse("operators", "one or more operators", "add them")
    return Profile(
        operators,
        _streams(fields, operators),
        _overheads(fields.object("overheads")),
        fields.one_of("unit", list(NANOSECONDS), None),
        fields.number("ghz", None, positive=True),
        fields.text("app", None),
    )


def _operator(fields: Fields) -> OperatorProfile:
    name = fields.text("name")
    fields.where = Subject("field", f"{fields.where.name} {name!r}")
    fields.only(*_OPERATOR)
    state = StateKind(
        fields.one_of("state", [s.value for s in StateKind], StateKind.STATELESS.value)
    )
    key = tuple(fields.items("key", []))
    if any(not isinstance(column, str) for column in key):
        raise fields.refuse("key", "names of columns", "put them in quotes")
    if state is StateKind.PARTITIONED and not key:
        raise fields.refuse("key", "the columns that part its state", "name them")
    share = fields.number("hottest_key_share", None)
    if share is not None and share > 1:
        raise fields.refuse("hottest_key_share", "a part of 1", "divide by all tuples")
    return OperatorProfile(
        name,
        fields.number("cost"),
        fields.number("selectivity", 1.0),
        state,
        key if state is StateKind.PARTITIONED else (),
        fields.whole("max_replicas", None),
        fields.number("tuple_bytes", 0.0),
        fields.number("memory_bytes", 0.0),
        fields.number("rate", 1.0, positive=True),
        fields.number("cost_p99", None),
        fields.whole("keys", None, least=0),
        share,
    )


def _streams(fields: Fields, operators: tuple[OperatorProfile, ...]) -> tuple[StreamProfile, ...]:
    names = [operator.name for operator in operators]
    selectivities = {operator.name: operator.selectivity for operator in operators}
    # An empty list is no edges, too: operators beside each other would be several applications.
    edges = fields.items("edges", []) or [list(pair) for pair in pairwise(names)]
    return tuple(_stream(n, edge, selectivities) for n, edge in enumerate(edges))


def _stream(number: int, edge: Any, selectivities: dict[str, float]) -> StreamProfile:
    where = Subject("field", f"edges[{number}]")
    shown = json.dumps(edge, default=repr)
    if not isinstance(edge, list) or len(edge) not in (2, 3):
        raise PlanError(where, "[producer, consumer] or with a selectivity", shown, "write it so")
    for end in edge[:2]:
        if not isinstance(end, str) or end not in selectivities:
            known = f"operators among {list(selectivities)}"
            raise PlanError(where, known, f"{end!r} in {shown}", "name an operator of the profile")
    if len(edge) == 2:
        return StreamProfile(edge[0], edge[1], selectivities[edge[0]])
    if not is_number(edge[2]):
        raise PlanError(where, "a selectivity of 0 or more", shown, "count tuples on that stream")
    return StreamProfile(edge[0], edge[1], edge[2])


def _overheads(fields: Fields | None) -> Overheads | None:
    if fields is None:
        return None
    fields.only("thread_switch", "replication")
    return Overheads(fields.number("thread_switch", 0.0), fields.number("replication", 0.0))


def profile_text(profile: Profile) -> str:
    """A profile as the text of a file, which `read_profile` reads back."""
    data: dict[str, Any] = {}
    for field in ("app", "unit", "ghz"):
        if getattr(profile, field) is not None:
            data[field] = getattr(profile, field)
    data["operators"] = [_operator_object(operator) for operator in profile.operators]
    data["edges"] = [[s.producer, s.consumer, s.selectivity] for s in profile.streams]
    if profile.overheads is not None:
        data["overheads"] = {
            "thread_switch": profile.overheads.thread_switch,
            "replication": profile.overheads.replication,
        }
    return json.dumps(data, indent=2) + "\n"


def _operator_object(operator: OperatorProfile) -> dict[str, Any]:
    data: dict[str, Any] = {"name": operator.name, "state": operator.state.value}
    usual = OperatorProfile(operator.name, operator.cost)
    for field in _OPERATOR[2:]:
        value = getattr(operator, field)
        if field in ("cost", "selectivity") or value != getattr(usual, field):
            data[field] = list(value) if field == "key" else value
    return data
