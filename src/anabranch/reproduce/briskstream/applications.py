"""BriskStream's four applications as graphs: figures 2 and 18, selectivities of Table 8."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from anabranch.reproduce.briskstream import operators as ops
from anabranch.reproduce.briskstream.samples import transitions

SEGMENT = ("way", "direction", "segment")
QUESTIONS = 0.005
"""Table 8 prints 0.99 for positions and "≈0.0" for both questions: half each of what is left."""
PUBLISHED_NS = {"splitter": 1588.50, "counter": 590.67}
"""Execution times that Table 3 rests on; the paper has no others."""
PUBLISHED_BYTES = {"splitter": 216.0, "counter": 40.0}


@dataclass(frozen=True)
class Step:
    """An operator of an application.

    Attributes:
        name: Its name.
        run: What it does with a tuple.
        key: Columns that part its state; empty for none.
        memory: What its state holds before the first tuple.
    """

    name: str
    run: ops.Operator
    key: tuple[str, ...] = ()
    memory: Mapping[Any, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Edge:
    """A stream: its ends, tuples on it per tuple into its producer, and its name there."""

    producer: str
    consumer: str
    selectivity: float = 1.0
    stream: str = "default"


@dataclass(frozen=True)
class Application:
    """Steps, producers first, and the streams between them."""

    name: str
    steps: tuple[Step, ...]
    edges: tuple[Edge, ...]


def _line(name: str, *steps: Step, selectivity: Mapping[str, float] | None = None) -> Application:
    of = selectivity or {}
    pairs = pairwise(steps)
    edges = tuple(Edge(a.name, b.name, of.get(a.name, 1.0)) for a, b in pairs)
    return Application(name, steps, edges)


_SPOUT, _SINK = Step("spout", ops.spout), Step("sink", ops.sink)

WORD_COUNT = _line(
    "wc",
    _SPOUT,
    Step("parser", ops.drop_empty),
    Step("splitter", ops.splitter),
    Step("counter", ops.counter, ("word",)),
    _SINK,
    selectivity={"splitter": 10.0},
)
FRAUD_DETECTION = _line(
    "fd",
    _SPOUT,
    Step("parser", ops.transaction_parser),
    Step("predictor", ops.predictor, ("account",), {"model": transitions()}),
    _SINK,
)
SPIKE_DETECTION = _line(
    "sd",
    _SPOUT,
    Step("parser", ops.reading_parser),
    Step("moving_average", ops.moving_average, ("device",)),
    Step("spike_detection", ops.spike_detection),
    _SINK,
)
_POSITION = (0.99, "position_report")
LINEAR_ROAD = Application(
    "lr",
    (
        _SPOUT,
        Step("parser", ops.road_parser),
        Step("dispatcher", ops.dispatcher),
        Step("avg_speed", ops.avg_speed, SEGMENT),
        Step("las_avg_speed", ops.las_avg_speed, SEGMENT),
        Step("accident_detect", ops.accident_detect, SEGMENT),
        Step("count_vehicle", ops.count_vehicle, SEGMENT),
        Step("accident_notify", ops.accident_notify, ("way", "direction")),
        Step("toll_notify", ops.toll_notify, SEGMENT),
        Step("account_balance", ops.account_balance, ("car",)),
        Step("daily_expen", ops.daily_expen, ("car",)),
        _SINK,
    ),
    (
        Edge("spout", "parser"),
        Edge("parser", "dispatcher"),
        Edge("dispatcher", "avg_speed", *_POSITION),
        Edge("dispatcher", "accident_detect", *_POSITION),
        Edge("dispatcher", "count_vehicle", *_POSITION),
        Edge("dispatcher", "accident_notify", *_POSITION),
        Edge("dispatcher", "toll_notify", *_POSITION),
        Edge("dispatcher", "account_balance", QUESTIONS, "balance_stream"),
        Edge("dispatcher", "daily_expen", QUESTIONS, "daily_exp_request"),
        Edge("avg_speed", "las_avg_speed"),
        Edge("las_avg_speed", "toll_notify"),
        Edge("count_vehicle", "toll_notify"),
        Edge("accident_detect", "accident_notify", 0.0),
        Edge("accident_detect", "toll_notify", 0.0),
        Edge("accident_notify", "sink", 0.0),
        Edge("toll_notify", "sink"),
        Edge("account_balance", "sink", 0.0),
        Edge("daily_expen", "sink", 0.0),
    ),
)

APPLICATIONS = {
    one.name: one for one in (WORD_COUNT, FRAUD_DETECTION, SPIKE_DETECTION, LINEAR_ROAD)
}
"""By the name that the paper's tables use, in small letters."""
