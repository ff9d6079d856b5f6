"""The pictures of pages, drawn by the library: what they show is what it does."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import anabranch as ab
from anabranch.apps import APPS
from anabranch.pictures.svg import flow_svg

DOCS = Path(__file__).resolve().parents[1]
TITLED = re.compile(r'^```python title="bikes.py"\n(.*?)^```$', re.MULTILINE | re.DOTALL)


def diagrams() -> Iterator[tuple[str, str]]:
    """Path in the site, and SVG."""
    words = APPS["word-count"].build()
    plan = ab.plan(words)
    wide = plan.with_source("lines", replicas=2).with_replicas("split", 2)
    yield "pictures/word-count-wide.svg", wide.with_replicas("count", 3).svg()

    bikes = tutorial_flow()
    yield "tutorial/pictures/bikes.svg", flow_svg(bikes.shape(), bikes.name)

    visits = visits_flow()
    plan = ab.plan(visits)
    yield "concepts/pictures/flow.svg", flow_svg(visits.shape(), visits.name)
    yield "concepts/pictures/regions.svg", plan.svg()
    wide = plan.with_replicas("visits", 3).with_pipelines("visits", 1, 2)
    yield "concepts/pictures/replicas.svg", wide.svg()

    join = APPS["band-join"].build()
    yield "concepts/pictures/shared.svg", ab.plan(join).with_replicas("join", 3).svg()


def tutorial_flow() -> ab.Flow:
    """The application of the tutorial, from the page where it is written."""
    page = (DOCS / "tutorial" / "write.md").read_text(encoding="utf-8")
    found = TITLED.search(page)
    assert found is not None, "the tutorial has no bikes.py"
    names: dict[str, object] = {"__name__": "bikes"}
    exec(compile(found[1], "bikes.py", "exec"), names)
    build = names["build"]
    assert callable(build)
    flow = build()
    assert isinstance(flow, ab.Flow)
    return flow


def visits_flow() -> ab.Flow:
    """A flow with a region of each kind that may hold several steps."""

    @ab.partitioned(key="user", out="user: string, n: int64")
    def visits(ctx: ab.Invocation) -> None:
        for _ in ctx.tuples():
            ctx.state["n"] = ctx.state.get("n", 0) + 1
            ctx.emit(n=ctx.state["n"])

    @ab.stateful(out="n: int64")
    def total(ctx: ab.Invocation) -> None:
        for _ in ctx.tuples():
            ctx.state["n"] = ctx.state.get("n", 0) + 1
            ctx.emit(n=ctx.state["n"])

    flow = ab.Flow("visits")
    (
        flow.source("clicks", ab.memory([{"user": "ann", "page": "x"}]))
        .map("clean", lambda batch: {}, keeps="user")
        .apply("visits", visits)
        .filter("often", lambda batch: [n > 1 for n in batch["n"].to_pylist()])
        .apply("total", total)
        .sink("out", ab.collect())
    )
    return flow
