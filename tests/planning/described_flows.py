"""Flows written as text, one step a line, so that fixtures can be read by a human.

s: source a b            columns, all int64
m: map keeps a makes b   also `tuple`: the same one tuple at a time, carrying nothing
f: filter
p: partitioned by a      emits its key and a column n; `carries b` as well
g: stateful              emits a column n
x: shared
u: union s m             all other steps read the line above, or what follows `<-`
c: count by a            running totals, written as changes and combined before the shuffle
t: timed by a
out: sink
plan replicas p 3 | plan pipelines m 1 2 | plan readers s 2
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from anabranch.flow import Flow, Stream
from anabranch.graph import StateKind
from anabranch.io import collect, memory
from anabranch.operators.aggregates.functions import count
from anabranch.operators.base import Operator
from anabranch.operators.keyed.shared import shared
from anabranch.operators.row_wise.map_filter_expand import Filter, Map
from anabranch.operators.timed import Timed
from anabranch.operators.tuple_style.tuples import FunctionOperator
from anabranch.planning.plan import Plan

WORDS = ("keeps", "makes", "by", "carries")


def read_fixtures(folder: Path) -> Iterator[tuple[str, str, str]]:
    """Title, flow and expected tree of every case; cases are parted by lines of dashes."""
    for file in sorted(folder.glob("*.txt")):
        for case in file.read_text(encoding="utf-8").split("\n----\n"):
            title, _, body = case.strip("\n").partition("\n\n")
            flow, _, tree = body.partition("\n\n")
            yield f"{file.stem}: {title}", flow, tree


def built(text: str, *, buckets: int = 12) -> tuple[Flow, Plan]:
    """The flow a text describes, and a plan for it."""
    flow = Flow("example", buckets=buckets)
    streams: dict[str, Stream] = {}
    lines = [line.strip() for line in text.strip().splitlines()]
    previous = ""
    for line in (line for line in lines if not line.startswith("plan ")):
        name, _, rest = line.partition(": ")
        what, _, origin = rest.partition(" <- ")
        streams[name] = _add(flow, name, what.split(), origin or previous, streams)
        previous = name
    plan = Plan.sequential(flow)
    for line in (line for line in lines if line.startswith("plan ")):
        plan = _changed(plan, *line.split()[1:])
    return flow, plan


def _add(flow: Flow, name: str, what: list[str], origin: str, known: dict[str, Stream]) -> Stream:
    kind, given = what[0], _groups(what[1:])
    if kind == "source":
        columns = pa.schema([(column, pa.int64()) for column in given[""]])
        return flow.source(name, memory([], columns))
    if kind == "union":
        first, *others = (_stream(known, each) for each in given[""])
        return first.union(name, *others)
    stream = _stream(known, origin)
    if kind == "sink":
        stream.sink(name, collect())
        return stream
    if kind == "count":
        return stream.aggregate(name, key=given["by"], n=count(), emit="changes")
    return stream.apply(name, _operator(kind, given))


def _operator(kind: str, given: dict[str, list[str]]) -> Operator:
    key = given.get("by", [])
    made = {column: pa.int64() for column in given.get("makes", [])}
    if kind == "map":
        return Map(lambda batch: {}, made, given.get("keeps", []))
    if kind == "filter":
        return Filter(lambda batch: [])
    if kind == "timed":
        return Timed(*key)
    if kind == "shared":
        return shared(out={"n": pa.int64()}, buckets=6)(lambda batch, bucket: ({"n": []}, []))
    out = {column: pa.int64() for column in [*key, *given.get("carries", []), "n"]}
    if kind == "tuple":
        return FunctionOperator(lambda ctx: None, state=StateKind.STATELESS, out=made)
    return FunctionOperator(lambda ctx: None, state=StateKind(kind), key=key, out=out)


def _groups(words: list[str]) -> dict[str, list[str]]:
    """Words behind the keyword in front of them."""
    groups: dict[str, list[str]] = {}
    current = ""
    for word in words:
        if word in WORDS:
            current = word
        else:
            groups.setdefault(current, []).append(word)
    return groups


def _stream(known: dict[str, Stream], name: str) -> Stream:
    step, _, port = name.partition(".")
    return known[step].out(port) if port else known[step]


def _changed(plan: Plan, what: str, name: str, *numbers: str) -> Plan:
    if what == "replicas":
        return plan.with_replicas(name, int(numbers[0]))
    if what == "readers":
        return plan.with_source(name, replicas=int(numbers[0]))
    return plan.with_pipelines(name, *map(int, numbers))
