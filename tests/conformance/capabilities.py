"""What an engine may be asked to do beyond running a flow, and which engines cannot, and why.

Each capability is tried on each engine. One that is marked here must be refused by name, before
anything is written; one that is not marked must work. So a mark that is no longer true fails.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anabranch as ab
from anabranch.flow import Flow
from anabranch.planning.plan import Plan

ROWS = [{"x": i} for i in range(10)]


@dataclass(frozen=True)
class Reason:
    """Why an engine cannot do something, and the words by which it says so."""

    why: str
    words: str


_SPARKS_OWN = "Spark's own; there is no Spark in this process"

CANNOT: dict[tuple[str, str], Reason] = {
    ("local", "master"): Reason(_SPARKS_OWN, "master="),
    ("local", "session"): Reason(_SPARKS_OWN, "session="),
    ("local", "conf"): Reason(_SPARKS_OWN, "conf="),
    ("local", "streaming DataFrame"): Reason(_SPARKS_OWN, "whose rows Spark brings"),
    ("local", "each_batch"): Reason(_SPARKS_OWN, "a sink that takes record batches"),
    ("spark", "rows of a streaming DataFrame"): Reason(
        "Spark says how much of a DataFrame a micro-batch gets", "rows="
    ),
    ("local", "rows of a streaming DataFrame"): Reason(_SPARKS_OWN, "whose rows Spark brings"),
}


@dataclass(frozen=True)
class Place:
    """Where a capability is tried."""

    engine: str
    options: dict[str, Any]
    folder: Path
    spark: Callable[[], Any]
    """Gives the session that tests share."""


def passing(sink: Any) -> Flow:
    """A flow that passes rows on."""
    flow = Flow("capable")
    flow.source("rows", ab.memory(ROWS)).sink("out", sink)
    return flow


def ran(place: Place, flow: Flow, **options: Any) -> None:
    """Run to the end."""
    assert ab.run(flow, engine=place.engine, **{**place.options, **options}).ended


def checkpoint(place: Place) -> None:
    ran(place, passing(ab.collect()), checkpoint=place.folder / "checkpoint")


def master(place: Place) -> None:
    own = {"session": None} if "session" in place.options else {}
    ran(place, passing(ab.collect()), master="local[2,4]", **own)


def session(place: Place) -> None:
    ran(place, passing(ab.collect()), session=place.spark())


def conf(place: Place) -> None:
    own = {"session": None} if "session" in place.options else {}
    ran(place, passing(ab.collect()), conf={"spark.sql.shuffle.partitions": "2"}, **own)


def _streamed(place: Place) -> Flow:
    (place.folder / "in").mkdir()
    (place.folder / "in" / "a.json").write_text("".join(f'{{"x": {i}}}\n' for i in range(10)))
    df = place.spark().readStream.schema("x bigint").json(str(place.folder / "in"))
    flow = Flow("streamed")
    flow.source("rows", ab.dataframe(df, order="x", bounded=True)).sink("out", ab.collect())
    return flow


def streaming_dataframe(place: Place) -> None:
    ran(place, _streamed(place))


def rows_of_a_streaming_dataframe(place: Place) -> None:
    ran(place, _streamed(place), rows=5)


def each_batch(place: Place) -> None:
    got: list[int] = []
    ran(place, passing(ab.each_batch(lambda df, number: got.append(df.count()))))
    assert sum(got) == len(ROWS)


def rows(place: Place) -> None:
    sink = ab.collect()
    ran(place, passing(sink), rows=4)
    assert sink.table().to_pylist() == ROWS[:4]


def another_plan(place: Place) -> None:
    flow = passing(ab.collect())
    ran(place, flow, plan=Plan.sequential(flow).with_source("rows", batch_rows=3))


CAPABILITIES: dict[str, Callable[[Place], None]] = {
    "checkpoint": checkpoint,
    "master": master,
    "session": session,
    "conf": conf,
    "streaming DataFrame": streaming_dataframe,
    "rows of a streaming DataFrame": rows_of_a_streaming_dataframe,
    "each_batch": each_batch,
    "rows": rows,
    "plan": another_plan,
}
NEED_SPARK = {"session", "streaming DataFrame", "rows of a streaming DataFrame"}
"""Those that cannot even be asked for without a session."""
