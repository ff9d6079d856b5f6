"""Measures the operators of BriskStream's applications and writes their profiles.

`python -m papers.briskstream.measure DIR` makes the files of `data` again. Each
operator is fed by itself, with what those before it have made of a sample (section 3.1, model
instantiation). Its time is the median over chunks of calls, in the quietest of several rounds:
other programs only ever make it longer.

What is not as in the paper: our functions are Python, the paper's are Java on other processors.
Word count's splitter and counter were published and are written as published; the other times are
ours times one factor, the geometric mean of published over ours on those two. Sizes follow the rule
that gives both published sizes; memory traffic is what comes in and goes out, once each.
"""

from __future__ import annotations

import gc
import json
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from statistics import median
from time import perf_counter_ns
from typing import Any

from papers.briskstream.operators import (
    APPLICATIONS,
    PUBLISHED_BYTES,
    PUBLISHED_NS,
    WORD_COUNT,
    Application,
    Step,
    Values,
)
from papers.briskstream.samples import SAMPLES

ROWS, CHUNK, ROUNDS = 6_000, 50, 40
SERVER_A_GHZ = 1.2
ARRAY_HEADER_BYTES, LETTER_BYTES, WORD_BYTES = 16, 2, 8


@dataclass(frozen=True)
class Measured:
    """One operator by itself: nanoseconds, bytes in and bytes out per tuple that comes in."""

    cost_ns: float
    bytes_in: float
    bytes_out: float


class Outbox:
    """Where an operator hands its results: a buffer for each stream."""

    def __init__(self) -> None:
        self.streams: dict[str, list[Values]] = defaultdict(list)

    def __call__(self, values: Values, stream: str = "default") -> None:
        """Take a tuple."""
        self.streams[stream].append(values)

    @property
    def tuples(self) -> list[Values]:
        """Everything that it got."""
        return [values for stream in self.streams.values() for values in stream]


def tuple_bytes(values: Sequence[Any]) -> int:
    """Size of a tuple: its texts as arrays of two-byte letters with a header, numbers as words.

    This gives both sizes that the paper publishes, and so is taken for those it does not.

    Example:
        >>> tuple_bytes(["nineletts"]), tuple_bytes([" ".join(["nineletts"] * 10)])
        (40, 216)
    """
    return sum(_field_bytes(field) for field in values)


def _field_bytes(value: Any) -> int:
    if isinstance(value, str):
        size = ARRAY_HEADER_BYTES + LETTER_BYTES * len(value)
        return -(-size // WORD_BYTES) * WORD_BYTES
    return tuple_bytes(value) if isinstance(value, tuple) else WORD_BYTES


def measure(application: Application, rows: int = ROWS) -> dict[str, Measured]:
    """Each operator by itself, fed with what those before it have made of a sample."""
    inputs: dict[str, list[Values]] = defaultdict(list)
    inputs[application.steps[0].name] = [(line,) for line in SAMPLES[application.name](rows)]
    found: dict[str, Measured] = {}
    for step in application.steps:
        fed = inputs[step.name]
        cost_ns, outbox = _run_once(step, fed)
        size_in = sum(map(tuple_bytes, fed)) / len(fed)
        size_out = sum(map(tuple_bytes, outbox.tuples)) / len(fed)
        found[step.name] = Measured(cost_ns, size_in, size_out)
        for edge in application.edges:
            if edge.producer == step.name:
                inputs[edge.consumer] += outbox.streams[edge.stream]
    return found


def _run_once(step: Step, inputs: Sequence[Values]) -> tuple[float, Outbox]:
    """Nanoseconds a call, at the median over chunks of calls, and what came out.

    Only the second half is timed: by then windows are full and keys are known.
    """
    run, state, outbox = step.run, dict(step.memory), Outbox()
    times = []
    for values in inputs[: len(inputs) // 2]:
        run(values, state, outbox)
    collects = gc.isenabled()
    gc.disable()  # it would visit all kept results time and again, which no real run keeps
    try:
        for start in range(len(inputs) // 2, len(inputs), CHUNK):
            chunk = inputs[start : start + CHUNK]
            begun = perf_counter_ns()
            for values in chunk:
                run(values, state, outbox)
            times.append((perf_counter_ns() - begun) / len(chunk))
    finally:
        if collects:
            gc.enable()
    return median(times), outbox


def measure_all(rows: int = ROWS, rounds: int = ROUNDS) -> dict[str, dict[str, Measured]]:
    """All applications, round after round, each operator in its quietest one.

    Rounds go over everything: a machine can be slow for longer than one operator takes.
    """
    runs = [{name: measure(one, rows) for name, one in APPLICATIONS.items()} for _ in range(rounds)]
    return {
        name: {
            step.name: min((run[name][step.name] for run in runs), key=lambda one: one.cost_ns)
            for step in one.steps
        }
        for name, one in APPLICATIONS.items()
    }


def scale(word_count: Mapping[str, Measured]) -> float:
    """Published over ours, on the two operators that have been published."""
    first, second = (PUBLISHED_NS[name] / word_count[name].cost_ns for name in PUBLISHED_NS)
    return sqrt(first * second)


def profile_object(
    application: Application, measured: Mapping[str, Measured], factor: float, note: str
) -> dict[str, Any]:
    """A profile as its file holds it."""
    published = application is WORD_COUNT
    operators = []
    for step in application.steps:
        one = measured[step.name]
        known = published and step.name in PUBLISHED_NS
        size = PUBLISHED_BYTES[step.name] if known else round(one.bytes_in, 1)
        outs = {e.selectivity for e in application.edges if e.producer == step.name}
        operators.append(
            {
                "name": step.name,
                "state": "partitioned" if step.key else "stateless",
                "key": list(step.key),
                "cost": PUBLISHED_NS[step.name] if known else round(one.cost_ns * factor, 1),
                "selectivity": outs.pop() if len(outs) == 1 else 1.0,
                "tuple_bytes": size,
                "memory_bytes": round(size + one.bytes_out, 1),
            }
        )
    return {
        "app": f"briskstream-{application.name}",
        "unit": "ns",
        "ghz": SERVER_A_GHZ,
        "measured": note,
        "operators": operators,
        "edges": [[e.producer, e.consumer, e.selectivity] for e in application.edges],
        "overheads": {"thread_switch": 0.0, "replication": 0.0},
    }


def note(word_count: Mapping[str, Measured], factor: float) -> str:
    """How the figures were made, for a file's readers."""
    ratios = ", ".join(
        f"{name} {word_count[name].cost_ns:.0f} ns here against {ns:.2f} ns published"
        for name, ns in PUBLISHED_NS.items()
    )
    return (
        "python -m papers.briskstream.measure: median time of our own Python "
        f"functions, one tuple a call, times {factor:.3f}, the geometric mean of published over "
        f"ours on word count's operators ({ratios}), which themselves stand as published. "
        "Sizes: texts as arrays of two-byte letters behind 16 bytes, numbers 8 bytes, which "
        "gives both published sizes; memory traffic: in and out once. "
        "Not comparable with the paper in absolute terms."
    )


def write(folder: Path, rows: int = ROWS, rounds: int = ROUNDS) -> None:
    """Measure all applications and write a file for each."""
    measured = measure_all(rows, rounds)
    factor = scale(measured["wc"])
    words = note(measured["wc"], factor)
    for name, application in APPLICATIONS.items():
        found = profile_object(application, measured[name], factor, words)
        text = json.dumps(found, indent=1, ensure_ascii=False)
        (folder / f"{name}.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
