"""An argument of a wrong type is refused when the flow is built, by its name and with what came."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import BuildError
from anabranch.operators.aggregates.base import Emit

TABLE = pa.table({"k": ["a"], "w": [1]})


def one(given: Any) -> None: ...


def two(given: Any, state: Any) -> None: ...


def rows() -> ab.Stream:
    return ab.Flow("f").source("s", ab.memory([{"k": "a", "v": 1, "t": 3}]), time="t")


def joined(**given: Any) -> ab.Stream:
    stream = rows()
    return stream.join("step", stream, key="k", within=3, **given)


def joined_where(**given: Any) -> ab.Stream:
    stream = rows()
    return stream.join_where("step", stream, within=3, where=two, **given)


def decorated(decorator: Callable[..., Any], function: Any, **usual: Any) -> Callable[..., Any]:
    """A use of a decorator in a flow, for which some options are given."""
    return lambda **given: rows().apply("step", decorator(**{**usual, **given})(function))


OPTIONS = {
    "map": (decorated(ab.map, one, out="n: int64"), ["keeps", "on_error"]),
    "filter": (decorated(ab.filter, one), ["on_error"]),
    "expand": (decorated(ab.expand, one, out="n: int64"), ["keeps", "on_error"]),
    "keyed": (
        decorated(ab.keyed, two, key="k", state="n: int64", out="n: int64"),
        ["key", "keeps", "on_error"],
    ),
    "shared": (decorated(ab.shared, two, out="n: int64"), ["buckets", "on_error"]),
    "partitioned": (
        decorated(ab.partitioned, one, key="k", out="n: int64"),
        [
            "key",
            "schedule",
            "timers",
            "closing",
            "ttl",
            "max_buffer",
            "on_error",
            "in_ports",
            "accepts_changes",
        ],
    ),
    "stateful": (
        decorated(ab.stateful, one, out="n: int64"),
        [
            "schedule",
            "timers",
            "closing",
            "ttl",
            "max_buffer",
            "on_error",
            "in_ports",
            "accepts_changes",
        ],
    ),
    "stateless": (
        decorated(ab.stateless, one, out="n: int64"),
        ["on_error", "in_ports", "accepts_changes"],
    ),
    "deduplicate": (lambda **given: rows().deduplicate("step", **{"key": "k", **given}), ["key"]),
    "join": (joined, ["suffixes"]),
    "join_where": (joined_where, ["buckets", "suffixes"]),
    "lookup": (
        lambda **given: rows().lookup("step", TABLE, **{"key": "k", **given}),
        ["key", "how", "columns"],
    ),
    "reduce": (
        lambda **given: rows().reduce("step", two, key="k", out="n: int64", **given),
        ["emit", "initial"],
    ),
    "top_n": (lambda **given: rows().top_n("step", 1, by="v", **given), ["emit", "descending"]),
    "count_window": (
        lambda partial: rows().aggregate(
            "step", key="k", n=ab.count(), window=ab.count_window(2, partial=partial)
        ),
        ["partial"],
    ),
    "Flow": (lambda **given: ab.Flow("f", **given), ["buckets", "order"]),
}
CASES = [(name, option) for name, (_, options) in OPTIONS.items() for option in options]


@pytest.mark.parametrize("value", [5.5, object()], ids=["a number", "an object"])
@pytest.mark.parametrize(("name", "option"), CASES)
def test_an_option_of_a_wrong_type_is_refused_by_name(name, option, value):
    with pytest.raises(BuildError) as caught:
        OPTIONS[name][0](**{option: value})
    assert option in caught.value.expected
    assert caught.value.got == repr(value)


@pytest.mark.parametrize("option", ["side_outs", "out"])
@pytest.mark.parametrize("name", ["partitioned", "stateful", "stateless"])
def test_columns_that_are_none_are_refused(name, option):
    with pytest.raises(BuildError, match=r"columns.* got 5; write"):
        OPTIONS[name][0](**{option: 5})


@pytest.mark.parametrize(("option", "text"), [("max_buffer", "x"), ("ttl", "5"), ("timers", "no")])
def test_a_text_is_no_number_and_no_truth_value(option, text):
    with pytest.raises(BuildError, match=f"{option}=, got '{text}'"):
        OPTIONS["partitioned"][0](**{option: text})


@pytest.mark.parametrize("counts", [("2",), (2, 1.5), (True,), ()])
def test_a_schedule_counts_in_whole_numbers(counts):
    with pytest.raises(BuildError, match="whole numbers of at least 1"):
        ab.Schedule.at_least(*counts)


def test_a_filter_of_buckets_is_a_function():
    with pytest.raises(BuildError, match="expected a function, got 3"):
        OPTIONS["shared"][0](filter=3)


@pytest.mark.parametrize("separator", [5, None, "", "ab"])
def test_a_separator_is_one_character(separator):
    with pytest.raises(BuildError, match="a separator of one character"):
        ab.parse_csv("k", out="n: int64", separator=separator)


@pytest.mark.parametrize("option", ["plan", "rows", "simulated", "machine", "policy"])
def test_an_option_of_a_run_of_a_wrong_class_is_refused_by_name(option):
    flow = rows().sink("out", ab.collect())
    with pytest.raises(BuildError, match=f"^argument '{option}': .*got bytes b'x'"):
        ab.run(flow, engine="local", **{option: b"x"})


@pytest.mark.parametrize("option", ["profile", "machine", "threads"])
def test_an_option_of_a_plan_of_a_wrong_class_is_refused_by_name(option):
    with pytest.raises(BuildError, match=f"^argument '{option}': .*got str 'x'"):
        ab.plan(rows().sink("out", ab.collect()), **{option: "x"})


@pytest.mark.parametrize("other", [5, "s", None])
def test_what_is_no_stream_cannot_be_united(other):
    with pytest.raises(BuildError, match="step 'both': expected a stream, got"):
        rows().union("both", other)


@pytest.mark.parametrize("emit", ["final", "changes"])
def test_an_enum_is_taken_where_its_text_is(emit):
    of_text = rows().top_n("top", 1, by="v", emit=emit)
    of_enum = rows().top_n("top", 1, by="v", emit=Emit(emit))
    assert of_enum.type == of_text.type


def to_add() -> Any:
    ab.Flow("f").add("step", one)


def to_read() -> Any:
    rows().sink("out", ab.collect()).reading({"s": [1]})


def late_without_time() -> Any:
    ab.Flow("f").source("s", ab.memory([{"t": 3}]), lateness=5)


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (to_add, "step 'step': expected an operator, got function"),
        (to_read, "step 's': expected a source, got list without schema"),
        (late_without_time, "step 's': expected time=, .*got lateness=5"),
    ],
)
def test_what_is_no_part_of_a_flow_is_refused_where_it_is_given(build, expected):
    with pytest.raises(BuildError, match=expected):
        build()


@pytest.mark.parametrize(
    "given", [{"checkpoint": 5}, {"seconds": "a"}, {"rows": True}, {"conf": "x"}, {"rows": 1.5}]
)
def test_an_option_of_a_run_is_refused_by_its_name(given):
    flow = rows().sink("out", ab.collect())
    ((name, value),) = given.items()
    with pytest.raises(BuildError, match=f"argument '{name}'.*got {type(value).__name__}"):
        ab.run(flow, engine="local", **given)
