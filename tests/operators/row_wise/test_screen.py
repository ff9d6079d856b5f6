from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import anabranch as ab
from anabranch.errors import OperatorError
from anabranch.io import collect, memory
from anabranch.testing.sequential import run_sequential


def negative(batch):
    return pc.if_else(pc.less(batch["n"], 0), "below zero", pa.scalar(None, pa.string()))


def screened(numbers, why=negative):
    flow = ab.Flow("screened")
    good = flow.source("numbers", memory(pa.table({"n": pa.array(numbers, pa.int64())}))).apply(
        "screen", ab.screen(why)
    )
    good.errors.sink("bad", collect())
    good.sink("out", collect())
    return flow


def in_one_batch(flow):
    ab.run(flow, engine="local", policy="none")
    return {name: flow.graph.steps[name].body.sink.table().to_pylist() for name in ("out", "bad")}


@pytest.mark.parametrize(
    "numbers", [[], [1, 2], [-1, -2], [1, -2, 3, -4, -5], [-1, 2], [2, -1]], ids=str
)
def test_bad_rows_leave_with_a_reason_and_all_keep_their_order(numbers):
    found = in_one_batch(screened(numbers))
    assert found["out"] == [{"n": n} for n in numbers if n >= 0]
    assert found["bad"] == [{"n": n, "error": "below zero"} for n in numbers if n < 0]


def test_bad_rows_are_counted():
    assert run_sequential(screened([1, -2, 3, -4])).counters["screen"].skipped == 2


def test_it_does_not_matter_how_it_is_run():
    flow = screened([n if n % 3 else -n for n in range(1, 60)])
    ab.check(flow, cases=6, rows=60, processes=0).raise_if_different()


@pytest.mark.parametrize(
    ("said", "got"),
    [
        (lambda batch: pa.array(["bad", None]), "2 values"),
        (lambda batch: pc.less(batch["n"], 0), "values of type bool"),
        (lambda batch: [None, None], "list"),
        (lambda batch: batch["m"], "KeyError"),
    ],
)
def test_a_function_that_gives_no_reasons_is_named(said, got):
    with pytest.raises(OperatorError, match=got) as raised:
        run_sequential(screened([1], said))
    assert raised.value.step == "screen"


def test_reasons_in_chunks_will_do():
    flow = screened([1, -2], lambda batch: pa.chunked_array([negative(batch)]))
    assert run_sequential(flow).rows("bad") == [{"n": -2, "error": "below zero"}]
