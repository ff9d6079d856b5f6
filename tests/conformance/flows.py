"""What the suite runs: every application, every example, and flows with what those do not have.

An application that is added joins by itself, on the small data that its reference names.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa

import anabranch as ab
from anabranch.apps import APPS
from anabranch.flow import Flow
from anabranch.testing.checking import Recording
from anabranch.testing.result import RunResult
from anabranch.testing.sequential import run_sequential
from tests.apps.cases import cases

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SEED = 11
FEWEST_ROWS, MOST_ROWS = 60, 4000
RESULTS = 3
"""Rows that the first sink shall get at least."""


@dataclass(frozen=True)
class Subject:
    """A bounded flow with small data, and what it means."""

    flow: Flow
    expected: RunResult
    rows: int
    """Rows of the longest source."""


# --- applications -----------------------------------------------------------------------------


def built(name: str, rows: int | None) -> Flow:
    """An application with so many rows of each source, None for no end, where it knows that."""
    return APPS[name].build(**{**cases()[name].small, "rows": rows, "seed": SEED})


def of_app(name: str) -> Flow:
    """An application on little data of its own."""
    return cases()[name].flow("small")


# --- examples ---------------------------------------------------------------------------------


class Caught(Exception):
    """An example was about to run this flow."""

    def __init__(self, flow: Flow) -> None:
        super().__init__(flow.name)
        self.flow = flow


def _text(folder: Path) -> str:
    rng = Random(SEED)
    words = ["to", "be", "or", "not"]
    lines = [" ".join(rng.choices(words, k=5)) for _ in range(FEWEST_ROWS)]
    (folder / "text.txt").write_text("\n".join(lines) + "\n")
    return str(folder / "text.txt")


EXAMPLE_ARGUMENTS: dict[str, Callable[[Path], Sequence[Any]]] = {
    "word_count": lambda folder: [[_text(folder)]],
    "word_count_live": lambda folder: [1.0, "none"],
}
"""What to call the `main` of each example with."""


def of_example(name: str) -> Flow:
    """The flow that an example would run, on what it reads first."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def catch(flow: Flow, **options: Any) -> None:
        raise Caught(flow)

    whole = ab.run, ab.start
    ab.run = ab.start = catch  # type: ignore[assignment]
    try:
        with TemporaryDirectory() as folder:
            try:
                module.main(*EXAMPLE_ARGUMENTS[name](Path(folder)))
            except Caught as caught:
                return Recording.of(caught.flow, FEWEST_ROWS).feed(caught.flow)
            raise AssertionError(f"{name} runs no flow")
    finally:
        ab.run, ab.start = whole


# --- what applications do not have yet --------------------------------------------------------


def readings() -> Flow:
    """Texts of which some are no readings, in event time, some too late: nothing goes unseen."""
    rng = Random(SEED)
    texts = []
    for at in range(80):
        time = at - rng.choice((0, 0, 0, 2, 30))
        good = f'{{"room": "r{rng.randrange(4)}", "at": {time}, "celsius": {rng.randrange(30)}}}'
        bad = rng.choice(("", "oops", "[1]", '{"room": 7}', good[:-1]))
        texts.append({"text": bad if rng.random() < 0.2 else good})
    flow = Flow("readings", buckets=16)
    parse = ab.parse_json("text", out="room: string, at: int64, celsius: int64", on_error="side")
    parsed = flow.source("texts", ab.memory(texts)).apply("parse", parse)
    timed = parsed.timed("clock", "at", lateness=4)
    timed.aggregate(
        "warmest", key="room", window=ab.tumbling(10), most=ab.max("celsius"), n=ab.count()
    ).sink("out", ab.collect())
    timed.late.sink("late", ab.collect())
    parsed.errors.sink("bad", ab.collect())
    return flow


CLICK = pa.schema([("user", pa.string()), ("page", pa.string())])


@ab.partitioned(key="user", out="user: string, page: string, n: int64")
def visits(ctx: Any) -> None:
    for click in ctx.tuples():
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        ctx.emit(page=click.page, n=ctx.state["n"])


@ab.stateful(out="user: string, rank: int64")
def ranked(ctx: Any) -> None:
    for visit in ctx.tuples():
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        ctx.emit(user=visit.user, rank=ctx.state["n"])


def clicks(rows: int = 120) -> Flow:
    """Every kind of state in one chain, every tuple emitted at once, in total order."""
    rng = Random(SEED)
    given = [{"user": rng.choice("abcdefgh"), "page": rng.choice("xyz")} for _ in range(rows)]
    flow = Flow("clicks", buckets=16)
    seen = (
        flow.source("clicks", ab.memory(given, CLICK))
        .filter("wanted", lambda batch: [page != "z" for page in batch["page"].to_pylist()])
        .apply("visits", visits)
    )
    seen.sink("each", ab.collect())
    seen.apply("ranked", ranked).sink("out", ab.collect())
    return flow


OWN: dict[str, Callable[[], Flow]] = {"readings": readings, "clicks": clicks}

QUICK = {"word-count", "band-join", "hashtag-sequences", "log-watch", "spike-detection"}
"""Applications that stand for the others where it takes long: every kind of state is among them."""

NAMES = [
    *(f"app {name}" for name in APPS),
    *(f"example {name}" for name in EXAMPLE_ARGUMENTS),
    *OWN,
]


SAMPLE = [name for name in NAMES if name.removeprefix("app ") not in set(APPS) - QUICK]
"""Those that run on every engine each time; the others when all are asked for."""


@cache
def subject(name: str) -> Subject:
    """A flow by its name here; made once, since its meaning takes a while to find out."""
    kind, _, which = name.partition(" ")
    if kind == "app":
        flow = of_app(which)
    elif kind == "example":
        flow = of_example(which)
    else:
        flow = OWN[name]()
    rows = max(table.num_rows for table in Recording.of(flow, MOST_ROWS).tables.values())
    return Subject(flow, run_sequential(flow), rows)
