"""What a user writes, as a type checker sees it; `test_signatures.py` runs mypy on this file.

`assert_type` fails where a type is another one. A mistake has a `type: ignore` with the error that
mypy must report there: strict mypy refuses one that it does not need.
"""

from typing import assert_type

import numpy as np
import pyarrow as pa

import anabranch as ab

Columns = dict[str, list[int]]


@ab.map(out="length: int64", keeps="word")
def measure(batch: pa.RecordBatch) -> Columns:
    return {"length": [len(word) for word in batch["word"].to_pylist()]}


@ab.filter
def long(batch: pa.RecordBatch) -> list[bool]:
    return [len(word) > 3 for word in batch["word"].to_pylist()]


@ab.expand(out="letter: string")
def letters(batch: pa.RecordBatch) -> tuple[dict[str, list[str]], list[int]]:
    words = batch["word"].to_pylist()
    found = [(letter, row) for row, word in enumerate(words) for letter in word]
    return {"letter": [letter for letter, _ in found]}, [row for _, row in found]


@ab.screen
def blank(batch: pa.RecordBatch) -> list[str | None]:
    return ["blank" if not word else None for word in batch["word"].to_pylist()]


@ab.keyed(key="word", state="n: int64", out="n: int64", on_error="skip")
def seen(batch: pa.RecordBatch, state: ab.KeyedState) -> dict[str, object]:
    state["n"] = state["n"] + np.bincount(state.codes, minlength=state.groups)
    return {"n": state["n"][state.codes]}


@ab.shared(out="bucket: int64", buckets=4)
def dealt(batch: pa.RecordBatch, bucket: ab.Bucket) -> tuple[Columns, list[int]]:
    return {"bucket": [bucket.index] * batch.num_rows}, list(range(batch.num_rows))


@ab.partitioned(key="word", out="word: string", timers=True, ttl=5, max_buffer=10)
def silent(ctx: ab.Invocation) -> None:
    ctx.emit()


@ab.stateful(out="n: int64", schedule=ab.Schedule.exactly(2))
def pairs(ctx: ab.Invocation) -> None:
    ctx.emit(n=2)


@ab.stateless
def nothing(ctx: ab.Invocation) -> None:
    pass


def called_as_functions(
    batch: pa.RecordBatch, state: ab.KeyedState, bucket: ab.Bucket, ctx: ab.Invocation
) -> None:
    assert_type(measure(batch), Columns)
    assert_type(long(batch), list[bool])
    assert_type(letters(batch), tuple[dict[str, list[str]], list[int]])
    assert_type(blank(batch), list[str | None])
    assert_type(seen(batch, state), dict[str, object])
    assert_type(dealt(batch, bucket), tuple[Columns, list[int]])
    silent(ctx)
    nothing(ctx)


def put_into_a_flow() -> ab.Flow:
    words = ab.Flow("words").source("words", ab.memory([{"word": "a"}]))
    operators: list[ab.Operator] = [measure, long, letters, blank, seen, dealt, silent, pairs]
    assert_type(words.apply("operator", operators[0]), ab.Stream)
    return words.apply("nothing", nothing).sink("out", ab.collect())


def run(flow: ab.Flow) -> None:
    assert_type(ab.run(flow, seconds=1, engine="local", rows=3), ab.Result)
    with ab.start(flow, engine="local") as handle:
        handle.reconfigure(ab.plan(flow).with_source("words", replicas=2))


def mistakes(flow: ab.Flow, batch: pa.RecordBatch, ctx: ab.Invocation) -> None:
    ab.map(keep="word")  # type: ignore[call-overload]
    ab.partitioned(key="word", timer=True)  # type: ignore[call-overload]
    ab.partitioned(out="n: int64")  # type: ignore[call-overload]
    ab.stateful(max_buffer="x")  # type: ignore[call-overload]
    ab.stateless(ttl=5)  # type: ignore[call-overload]
    ab.map(out="n: int64")(seen.function)  # type: ignore[arg-type]
    silent(3)  # type: ignore[arg-type]
    seen(batch)  # type: ignore[call-arg]
    ab.run(flow, engin="local")  # type: ignore[call-arg]
    ab.start(flow, seconds=1)  # type: ignore[call-arg]
    ab.plan(flow).with_source("words", readers=2)  # type: ignore[call-arg]
    flow.source("s", ab.memory([])).reduce("r", max, emit=3)  # type: ignore[arg-type]
