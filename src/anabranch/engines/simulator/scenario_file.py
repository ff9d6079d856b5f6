"""Scenarios as files: JSON that people write by hand."""

from __future__ import annotations

import json
from collections.abc import Iterator

from anabranch.engines.simulator.scenario import (
    SWITCHES,
    Drift,
    Load,
    Scenario,
    Straggler,
    SwitchCost,
)
from anabranch.errors import PlanError, Subject
from anabranch.planning.fields import Fields

_NUMBERS = ("noise", "noise_s", "queue_tuples", "jumbo_tuples", "step_s")
_STRAGGLER = ("factor", "from_s", "until_s", "socket", "node", "region", "replica")


def read_scenario(text: str, name: str = "scenario") -> Scenario:
    """A scenario from the text of a file; whatever is left out does not happen.

    Args:
        text: JSON.
        name: What to call the file in errors.

    Example:
        >>> text = '{"loads": [{"points": [[0, 1000], [10, 5000]]}], "switch": "joker"}'
        >>> scenario = read_scenario(text)
        >>> scenario.load("lines").rate(12.0), scenario.switch.dip_s
        (5000, 3.0)
    """
    fields = Fields.of(text, Subject("scenario", name))
    fields.only("loads", "drifts", "stragglers", "skew", "switch", *_NUMBERS)
    usual = Scenario()
    numbers = {each: fields.number(each, getattr(usual, each)) for each in _NUMBERS}
    skew = fields.object("skew")
    return Scenario(
        tuple(_load(each) for each in _objects(fields, "loads")),
        tuple(_drift(each) for each in _objects(fields, "drifts")),
        tuple(_straggler(each) for each in _objects(fields, "stragglers")),
        {operator: skew.number(operator) for operator in skew.names()} if skew else {},
        switch=_switch(fields),
        **numbers,
    )


def _objects(fields: Fields, field: str) -> Iterator[Fields]:
    if fields.has(field):
        yield from fields.objects(field)


def _load(fields: Fields) -> Load:
    fields.only("points", "source", "linear")
    points: list[tuple[float, float | None]] = []
    for number, point in enumerate(fields.items("points")):
        if not isinstance(point, list) or len(point) != 2:
            where = fields.place(f"points[{number}]")
            raise PlanError(where, "[second, tuples a second]", json.dumps(point), "write it so")
        points.append((point[0], point[1]))
    return Load(tuple(points), fields.text("source", None), fields.flag("linear"))


def _drift(fields: Fields) -> Drift:
    fields.only("operator", "factor", "at_s", "over_s", "of")
    return Drift(
        fields.text("operator"),
        fields.number("factor", positive=True),
        fields.number("at_s", 0.0),
        fields.number("over_s", 0.0),
        fields.one_of("of", ["cost", "selectivity"], "cost"),
    )


def _straggler(fields: Fields) -> Straggler:
    fields.only(*_STRAGGLER)
    return Straggler(
        fields.number("factor", positive=True),
        fields.number("from_s", 0.0),
        fields.number("until_s", None),
        fields.whole("socket", None, least=0),
        fields.whole("node", None, least=0),
        fields.text("region", None),
        fields.whole("replica", None, least=0),
    )


def _switch(fields: Fields) -> SwitchCost:
    """The name of a preset, or an object with its numbers."""
    if not fields.has("switch"):
        return SwitchCost()
    try:
        numbers = fields.object("switch")
    except PlanError:
        preset: str = fields.one_of("switch", list(SWITCHES))
        return SWITCHES[preset]
    usual = vars(SwitchCost())
    given = numbers or Fields(Subject("field", "switch"), {})
    given.only(*usual)
    return SwitchCost(**{name: given.number(name, value) for name, value in usual.items()})
