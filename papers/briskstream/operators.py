"""The operators of BriskStream's four applications, one tuple a call, and the applications.

The paper publishes two operators' times (word count's splitter and counter). The other figures of
its profiles have to come from somewhere: from these functions, which do what section 2.2 and
appendix B say of each operator. What the paper leaves open is marked where it is decided. The
applications are the graphs of figures 2 and 18, with the selectivities of Table 8.

An operator gets a tuple, its own state and a function that it hands results to. It is what the
paper times: the function and the handing over, without queues.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, TypeAlias

from papers.briskstream.samples import transitions

Values: TypeAlias = tuple[Any, ...]
Emit: TypeAlias = Callable[..., None]
"""Called with the values of a tuple and, where an operator has several, the name of the stream."""
Operator: TypeAlias = Callable[[Values, dict[Any, Any], Emit], None]

FRAUD_WINDOW, FRAUD_THRESHOLD = 10, 0.8
MOVING_WINDOW, SPIKE_SHARE = 1000, 0.03
STOPPED_REPORTS = 4
"""Reports from one place after which a car has stopped (Linear Road's rule)."""
REMEMBERED_MINUTES = 5
CROWDED_CARS, SLOW_MPH = 50, 40.0
WARNED_SEGMENTS = 5


def spout(values: Values, state: dict[Any, Any], emit: Emit) -> None:
    """Hands out the next tuple, prepared beforehand, as a benchmark's source does."""
    state["sent"] = state.get("sent", 0) + 1
    emit(values)


def sink(values: Values, state: dict[Any, Any], emit: Emit) -> None:
    """Counts."""
    state["seen"] = state.get("seen", 0) + 1


def drop_empty(values: Values, state: dict[Any, Any], emit: Emit) -> None:
    """Word count's parser: drops what is empty."""
    (line,) = values
    if line is not None:
        emit((line,))


def splitter(values: Values, state: dict[Any, Any], emit: Emit) -> None:
    """A tuple for each word."""
    (line,) = values
    for word in line.split(" "):
        emit((word,))


def counter(values: Values, state: dict[Any, Any], emit: Emit) -> None:
    """The word and how often it has come."""
    (word,) = values
    count = state.get(word, 0) + 1
    state[word] = count
    emit((word, count))


def transaction_parser(values: Values, state: dict[Any, Any], emit: Emit) -> None:
    """Fraud detection's parser: the account, and the record beside it."""
    account, record = values[0].split(",", 1)
    emit((account, record))


def predictor(values: Values, state: dict[Any, Any], emit: Emit) -> None:
    """How unusual an account's last transactions are together, by a Markov model of their types.

    Open in the paper: the score is the mean of 1 - P(next | previous) over the window. A signal is
    passed on for every transaction, whether it is above the threshold or not (appendix B).

    Example:
        >>> seen = []
        >>> memory = {"model": {("a", "b"): 0.1, ("b", "a"): 0.1}}
        >>> for kind in "abab":
        ...     predictor(("x", f"7,{kind}"), memory, seen.append)
        >>> [fraud for _, _, fraud in seen]
        [False, True, True, True]
    """
    account, record = values
    kind = record.split(",", 1)[1]
    window = state.get(account)
    if window is None:
        window = state[account] = deque(maxlen=FRAUD_WINDOW)
    window.append(kind)
    model = state["model"]
    unusual, previous = 0.0, None
    for one in window:
        if previous is not None:
            unusual += 1.0 - model.get((previous, one), 0.0)
        previous = one
    score = unusual / max(len(window) - 1, 1)
    emit((account, score, score > FRAUD_THRESHOLD))


def reading_parser(values: Values, state: dict[Any, Any], emit: Emit) -> None:
    """Spike detection's parser: a sensor's own id as the device, time and value."""
    date, time, _, device, value = values[0].split(" ")
    emit((device, date + time, float(value)))


def moving_average(values: Values, state: dict[Any, Any], emit: Emit) -> None:
    """A device's value beside the mean of its last ones."""
    device, _, value = values
    found = state.get(device)
    if found is None:
        found = state[device] = [deque(), 0.0]
    window = found[0]
    window.append(value)
    found[1] += value
    if len(window) > MOVING_WINDOW:
        found[1] -= window.popleft()
    emit((device, found[1] / len(window), value))


def spike_detection(values: Values, state: dict[Any, Any], emit: Emit) -> None:
    """Whether a value is far from the mean; a signal is passed on for every tuple (appendix B).

    Example:
        >>> seen = []
        >>> for value in (100.0, 104.0):
        ...     spike_detection(("d", 100.0, value), {}, seen.append)
        >>> [spike for _, _, spike in seen]
        [False, True]
    """
    device, average, value = values
    emit((device, average, abs(value - average) > SPIKE_SHARE * average))


def road_parser(values: Values, state: dict[Any, Any], emit: Emit) -> None:
    """Linear Road's parser: numbers from a line."""
    emit(tuple([int(field) for field in values[0].split(",")]))


def dispatcher(values: Values, state: dict[Any, Any], emit: Emit) -> None:
    """A stream for each type of event; what they have in common is passed on."""
    kind, time, car, speed, way, lane, direction, segment, place = values
    if kind == 0:
        emit((time, car, speed, (way, direction, segment), lane, place), "position_report")
    elif kind == 2:
        emit((time, car, speed), "balance_stream")
    else:
        emit((time, car, speed, way), "daily_exp_request")


def avg_speed(values: Values, state: dict[Any, Any], emit: Emit) -> None:
    """Mean speed of a segment in the minute at hand."""
    time, _, speed, segment, _, _ = values
    minute = time // 60
    found = state.get(segment)
    if found is None or found[0] != minute:
        found = state[segment] = [minute, 0, 0]
    found[1] += speed
    found[2] += 1
    emit((segment, minute, found[1] / found[2]))


def las_avg_speed(values: Values, state: dict[Any, Any], emit: Emit) -> None:
    """Mean speed of a segment over the last minutes."""
    segment, minute, speed = values
    minutes = state.get(segment)
    if minutes is None:
        minutes = state[segment] = {}
    minutes[minute] = speed
    if len(minutes) > REMEMBERED_MINUTES:
        del minutes[min(minutes)]
    emit((segment, minute, sum(minutes.values()) / len(minutes)))


def accident_detect(values: Values, state: dict[Any, Any], emit: Emit) -> None:
    """Two cars that have stopped at one place.

    Example:
        >>> seen, memory = [], {}
        >>> for _ in range(STOPPED_REPORTS):
        ...     for car in (1, 2):
        ...         accident_detect((0, car, 0, "s", 1, 5), memory, seen.append)
        >>> seen
        [('s', 5)]
    """
    _, car, _, segment, lane, place = values
    here = (lane, place)
    last = state.get(car)
    if last is None or last[0] != here:
        state[car] = [here, 1]
        return
    last[1] += 1
    if last[1] == STOPPED_REPORTS:
        stopped = state.setdefault((segment, here), set())
        stopped.add(car)
        if len(stopped) == 2:
            emit((segment, place))


def count_vehicle(values: Values, state: dict[Any, Any], emit: Emit) -> None:
    """Cars of a segment in the minute at hand."""
    time, car, _, segment, _, _ = values
    minute = time // 60
    found = state.get(segment)
    if found is None or found[0] != minute:
        found = state[segment] = (minute, set())
    found[1].add(car)
    emit((segment, minute, len(found[1])))


def accident_notify(values: Values, state: dict[Any, Any], emit: Emit) -> None:
    """Warns cars that come to an accident; accidents are remembered by segment."""
    if len(values) == 2:
        state[values[0]] = values[1]
        return
    _, car, _, (way, direction, segment), _, _ = values
    step = 1 if direction == 0 else -1
    for ahead in range(WARNED_SEGMENTS):
        if (way, direction, segment + step * ahead) in state:
            emit((car, segment))
            return


def toll_notify(values: Values, state: dict[Any, Any], emit: Emit) -> None:
    """The toll of a segment, told to a car or brought up to date by a count or a speed.

    Example:
        >>> seen, memory = [], {}
        >>> for values in (("s", 1, 60), ("s", 1, 30.0), (60, 7, 30, "s", 1, 5)):
        ...     toll_notify(values, memory, seen.append)
        >>> [values[-1] for values in seen]
        [0, 200, 200]
    """
    if len(values) == 2:
        state[("accident", values[0])] = values[1]
        return
    if len(values) == 3:
        segment, _, number = values
        state[("speed" if isinstance(number, float) else "cars", segment)] = number
    else:
        segment = values[3]
    cars = state.get(("cars", segment), 0)
    slow = state.get(("speed", segment), SLOW_MPH) < SLOW_MPH
    free = cars <= CROWDED_CARS or not slow or ("accident", segment) in state
    emit((segment, 0 if free else 2 * (cars - CROWDED_CARS) ** 2))


def account_balance(values: Values, state: dict[Any, Any], emit: Emit) -> None:
    """Answers a question for a balance; answers are not passed on (Table 8)."""
    _, car, _ = values
    state["answered"] = state.get(car, 0)


def daily_expen(values: Values, state: dict[Any, Any], emit: Emit) -> None:
    """Answers a question for a day's expenses; answers are not passed on (Table 8)."""
    _, car, day, way = values
    state["answered"] = state.get((car, day, way), 0)


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
    run: Operator
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


_SPOUT, _SINK = Step("spout", spout), Step("sink", sink)

WORD_COUNT = _line(
    "wc",
    _SPOUT,
    Step("parser", drop_empty),
    Step("splitter", splitter),
    Step("counter", counter, ("word",)),
    _SINK,
    selectivity={"splitter": 10.0},
)
FRAUD_DETECTION = _line(
    "fd",
    _SPOUT,
    Step("parser", transaction_parser),
    Step("predictor", predictor, ("account",), {"model": transitions()}),
    _SINK,
)
SPIKE_DETECTION = _line(
    "sd",
    _SPOUT,
    Step("parser", reading_parser),
    Step("moving_average", moving_average, ("device",)),
    Step("spike_detection", spike_detection),
    _SINK,
)
_POSITION = (0.99, "position_report")
LINEAR_ROAD = Application(
    "lr",
    (
        _SPOUT,
        Step("parser", road_parser),
        Step("dispatcher", dispatcher),
        Step("avg_speed", avg_speed, SEGMENT),
        Step("las_avg_speed", las_avg_speed, SEGMENT),
        Step("accident_detect", accident_detect, SEGMENT),
        Step("count_vehicle", count_vehicle, SEGMENT),
        Step("accident_notify", accident_notify, ("way", "direction")),
        Step("toll_notify", toll_notify, SEGMENT),
        Step("account_balance", account_balance, ("car",)),
        Step("daily_expen", daily_expen, ("car",)),
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
