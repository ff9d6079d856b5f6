"""Mistakes that users make, and what they are told; each names the step that the user wrote."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import anabranch as ab
from anabranch.errors import AnabranchError, BuildError, PlanError, StateError
from anabranch.operators.base import Operator
from anabranch.planning.profile import OperatorProfile, chain
from anabranch.testing import run_interleaved, run_sequential

ROWS = [{"k": "a", "v": 1}, {"k": "b", "v": 3}, {"k": "a", "v": 2}]


def rows() -> ab.Stream:
    return ab.Flow("f").source("s", ab.memory(ROWS))


MISTAKES = {
    "a text in place of a function": lambda s: s.map("mine", "n: int64", out="n: int64"),
    "a map without columns": lambda s: s.map("mine", lambda b: {}),
    "a flat_map without columns": lambda s: s.flat_map("mine", lambda row: []),
    "a reduce without columns": lambda s: s.reduce("mine", lambda best, row: {}, key="k"),
    "a reduce without a function": lambda s: s.reduce("mine", "max", key="k", out="v: int64"),
    "top_n of none": lambda s: s.top_n("mine", 0, by="v"),
    "an unknown policy": lambda s: s.map("mine", lambda b: {}, keeps="*", on_error="x"),
    "an unknown emit": lambda s: s.aggregate("mine", key="k", n=ab.count(), emit="x"),
    "no function": lambda s: s.aggregate("mine", key="k"),
    "combining what cannot": lambda s: s.aggregate("mine", key="k", n=ab.count(), combine=True),
    "a join without time": lambda s: s.join("mine", s, key="k", within=3),
    "a barrier of lists": lambda s: s.zip("mine", s, key="nothing"),
    "a table that is none": lambda s: s.lookup("mine", 7, key="k"),
    "a duration that is none": lambda s: s.timed("mine", "v", lateness=-1),
    "a sink that is none": lambda s: s.sink("mine", "out/"),
    "a source that is none": lambda s: s.flow.source("mine", [{"x": 1}]),
}


@pytest.mark.parametrize("mistake", sorted(MISTAKES))
def test_the_error_names_the_step_and_leaves_its_name_free(mistake):
    stream = rows()
    with pytest.raises(BuildError) as caught:
        MISTAKES[mistake](stream)
    assert caught.value.step == "mine"
    stream.sink("mine", ab.collect())


def aggregated(**arguments: str) -> ab.Stream:
    return rows().aggregate("n", key="k", n=ab.count(), **arguments)


NEAREST = {
    "emit of an aggregate": ("every", lambda: aggregated(emit="evry")),
    "emit of a reduce": (
        "changes",
        lambda: rows().reduce("n", lambda a, b: {}, key="k", out="k: string", emit="change"),
    ),
    "emit of top_n": ("final", lambda: rows().top_n("n", 1, by="v", emit="finale")),
    "on_error of a map": ("skip", lambda: ab.map(keeps="*", on_error="skp")(len)),
    "on_error of a partitioned operator": (
        "side",
        lambda: ab.partitioned(key="k", on_error="sides")(len),
    ),
    "on_error of a parser": ("fail", lambda: ab.parse_json("k", "v: int64", on_error="fial")),
    "order of a flow": ("total", lambda: ab.Flow("f", order="totl")),
    "ports of a schedule": ("any", lambda: ab.Schedule.at_least(1, ports="anny")),
    "how of a lookup": (
        "left",
        lambda: rows().lookup("n", pa.table({"k": ["a"], "w": [1]}), key="k", how="lft"),
    ),
    "format of files": ("parquet", lambda: ab.files("*", format="parket")),
    "on_bad_file of files": ("skip", lambda: ab.files("*", on_bad_file="skp")),
    "format of a Redis stream": (
        "fields",
        lambda: ab.redis_stream("redis://h", "s", "v: int64", format="field"),
    ),
    "a column": ("word", lambda: words().aggregate("n", key="wrd", n=ab.count())),
    "a property of a tuple operator": ("timers", lambda: ab.stateful(timer=True)(len)),
    "an option of a decorator": ("keeps", lambda: ab.map(keep="*")),
    "the state of a tuple operator": ("stateful", lambda: Stateful(state="statefull")),
    "an engine": ("local", lambda: ab.start(ready(), engine="loacl")),
    "a planner": ("exact", lambda: ab.plan(ready(), planner="exat")),
    "a policy": ("auto", lambda: ab.start(ready(), engine="local", policy="atuo")),
    "a region of a plan": ("out", lambda: ab.plan(ready()).with_replicas("outt", 2)),
    "a unit of costs": ("us", lambda: chain([OperatorProfile("a", 1.0)], unit="uss")),
}


class Stateful(ab.TupleOperator):
    pass


def words() -> ab.Stream:
    return ab.Flow("f").source("s", ab.memory([{"word": "a"}]))


def ready() -> ab.Flow:
    return rows().sink("out", ab.collect())


@pytest.mark.parametrize("option", sorted(NEAREST))
def test_a_name_that_is_nearly_right_is_answered_with_the_nearest_one(option):
    name, mistake = NEAREST[option]
    with pytest.raises(AnabranchError, match=rf"; did you mean '{name}'\?$"):
        mistake()


@pytest.mark.parametrize("emit", ["x", "", None, 3])
def test_an_emit_that_is_like_none_is_answered_with_all_of_them(emit):
    with pytest.raises(BuildError) as caught:
        rows().reduce("n", lambda a, b: {}, key="k", out="k: string", emit=emit)
    assert caught.value.expected == "emit in ['every', 'final', 'changes']"


# --- decorators ----------------------------------------------------------------------------------

BARE = {
    "filter": ab.filter,
    "screen": ab.screen,
    "stateful": ab.stateful,
    "stateless": ab.stateless,
}


@pytest.mark.parametrize("name", sorted(BARE))
def test_a_decorator_without_required_options_works_with_and_without_parentheses(name):
    def function(given):
        """Says something."""

    bare, called = BARE[name](function), BARE[name]()(function)
    assert type(bare) is type(called)
    for made in (bare, called):
        assert isinstance(made, Operator)
        assert (made.__name__, made.__doc__) == ("function", "Says something.")


def test_a_bare_filter_filters():
    @ab.filter
    def large(batch):
        return pc.greater(batch["v"], 1)

    flow = rows().apply("large", large).sink("out", ab.collect())
    assert [row["v"] for row in run_sequential(flow).rows("out")] == [3, 2]


def mask(batch):
    return []


MISUSES = {
    "a schema by position": (lambda: ab.map("n: int64"), "'n: int64' in place of a function"),
    "the function and a schema": (lambda: ab.map(mask, "n: int64"), "'n: int64' by position"),
    "options and no function": (lambda: ab.expand(out="n: int64")(3), "3 in place of a function"),
    "two decorators": (lambda: ab.filter(ab.filter(mask)), "in place of a function"),
    "a bare keyed": (lambda: ab.keyed(mask), "no key="),
    "keyed without state": (lambda: ab.keyed(key="k"), "no state="),
    "a bare shared": (lambda: ab.shared(mask), "no out="),
    "a bare partitioned": (lambda: ab.partitioned(mask), "no key="),
    "an unknown option": (lambda: ab.filter(out="n: int64"), "an option 'out'"),
    "an option where none are": (lambda: ab.screen(on_error="skip"), "an option 'on_error'"),
    "a state": (lambda: ab.partitioned(key="k", state="x"), "an option 'state'"),
    "a name": (lambda: ab.stateful(name="x")(mask), "an option 'name'"),
    "a function by name": (lambda: ab.partitioned(key="k", function=mask), "an option 'function'"),
    "a self": (lambda: ab.stateless(self=3)(mask), "an option 'self'"),
}


@pytest.mark.parametrize("misuse", sorted(MISUSES))
def test_a_decorator_that_is_used_in_a_wrong_way_shows_the_right_one(misuse):
    use, got = MISUSES[misuse]
    with pytest.raises(BuildError) as caught:
        use()
    error = caught.value
    assert (error.subject.kind, got in error.got) == ("decorator", True)
    assert error.expected.startswith(f"the form @ab.{error.subject.name}")
    assert "[]" not in error.remedy


NO_COLUMNS = {
    "the key of a partitioned operator": ("key", lambda: ab.partitioned(key=3)(mask)),
    "the key of a keyed operator": (
        "key",
        lambda: ab.keyed(key=[3], state="n: int64", out="n: int64")(mask),
    ),
    "the key of an aggregate": ("key", lambda: rows().aggregate("n", key=3, n=ab.count())),
    "the columns that a map keeps": ("keeps", lambda: ab.map(keeps=5)(mask)),
    "what a map makes": ("name: type", lambda: ab.map(out=5)(mask)),
    "what a partitioned operator makes": (
        "name: type",
        lambda: ab.partitioned(key="k", out=5)(mask),
    ),
    "a type that is none": ("name: type", lambda: ab.map(out={"n": 5})(mask)),
    "a schedule": ("Schedule", lambda: ab.stateful(schedule=3)(mask)),
}


@pytest.mark.parametrize("argument", sorted(NO_COLUMNS))
def test_a_value_of_another_type_is_answered_with_the_right_form(argument):
    form, mistake = NO_COLUMNS[argument]
    with pytest.raises(BuildError) as caught:
        mistake()
    assert form in caught.value.remedy


@pytest.mark.parametrize("decorate", [ab.map, ab.expand])
def test_a_bare_decorator_that_lacks_its_columns_says_where_to_declare_them(decorate):
    with pytest.raises(BuildError, match=r"^operator 'mask': .*as in out='name: type'$"):
        decorate(mask)


def test_an_unknown_setting_of_a_source_is_refused():
    flow = rows().sink("out", ab.collect())
    with pytest.raises(TypeError, match="readers"):
        ab.plan(flow).with_source("s", readers=2)


def test_plans_of_different_flows_are_not_compared():
    plans = []
    for buckets in (4, 8):
        flow = ab.Flow("f", buckets=buckets)
        flow.source("s", ab.memory(ROWS)).aggregate("n", key="k", n=ab.count()).sink(
            "out", ab.collect()
        )
        plans.append(ab.plan(flow))
    with pytest.raises(PlanError, match="the same flow"):
        plans[0].diff(plans[1])


def test_a_source_stamped_on_reading_has_one_reader():
    flow = ab.Flow("f")
    flow.source("s", ab.stamped(ab.memory(ROWS), lambda: 0)).sink("out", ab.collect())
    with pytest.raises(PlanError, match="one reader"):
        ab.plan(flow).with_source("s", replicas=2).validate(flow)


def test_state_that_cannot_be_saved_is_told_with_its_step():
    @ab.partitioned(key="k", out="k: string")
    def hoarder(ctx):
        ctx.state["f"] = lambda: None

    flow = ab.Flow("f")
    flow.source("s", ab.memory(ROWS * 30)).apply("hoarder", hoarder).sink("out", ab.collect())
    with pytest.raises(StateError, match="step 'hoarder'"):
        run_interleaved(flow, seed=0, max_batch=1)


def test_state_that_does_not_fit_leaves_no_trace():
    @ab.keyed(key="k", state="a: int64, b: int64", out="a: int64", keeps="k", on_error="skip")
    def half(batch, state):
        state["a"] = state["a"] + 1
        if 3 in batch["v"].to_pylist():
            state["b"] = np.array(["oops"] * state.groups)
        return {"a": state["a"][state.codes]}

    same_key = [{"k": "a", "v": v} for v in (1, 3, 2)]
    flow = ab.Flow("f")
    flow.source("s", ab.memory(same_key)).apply("half", half).sink("out", ab.collect())
    result = run_sequential(flow)
    assert [row["a"] for row in result.rows("out")] == [1, 2]
    assert result.counters["half"].skipped == 1


def test_dictionary_columns_are_plain_in_a_stream():
    table = pa.table({"k": pa.array(["x", "y", "x"]).dictionary_encode(), "v": [1, 2, 3]})
    flow = ab.Flow("f")
    stream = flow.source("s", ab.memory(table))
    assert stream.schema.field("k").type == pa.string()
    stream.deduplicate("once", key="k").sink("out", ab.collect())
    assert [row["v"] for row in run_interleaved(flow, seed=1).rows("out")] == [1, 2]


def test_a_column_of_an_aggregate_may_be_called_name():
    flow = rows().aggregate("last", key="k", name=ab.last("v")).sink("out", ab.collect())
    assert run_sequential(flow).rows("out")[-1] == {"k": "a", "name": 2}


def test_timers_take_the_datetimes_that_rows_have():
    @ab.partitioned(key="k", out="k: int64, at: timestamp[us]", timers=True)
    def later(ctx):
        if ctx.reason is ab.Reason.TIMER:
            ctx.emit(at=ctx.time)
        for row in ctx.tuples():
            ctx.set_timer(row.ts + timedelta(seconds=3))

    table = pa.table({"k": [1], "ts": pa.array([1_000_000], pa.timestamp("us"))})
    flow = ab.Flow("f")
    flow.source("s", ab.memory(table), time="ts").apply("later", later).sink("out", ab.collect())
    (row,) = run_sequential(flow).rows("out")
    assert row["at"].second == 4


@pytest.mark.parametrize("value", [5, 12])
def test_results_of_the_end_are_judged_by_the_greatest_time_of_all(value):
    """Not as if they were tuples of the source whose number is that of their step."""
    flow = ab.Flow("f")
    a = flow.source("a", ab.memory([{"k": 1, "v": value}]))
    final = a.aggregate("fin", key="k", emit="final", combine=False, v=ab.sum("v"))
    b = flow.source("b", ab.memory([{"k": 2, "v": 7}]))
    c = flow.source("c", ab.memory([{"k": 3, "v": 9}]))
    clock = final.union("all", b, c).timed("clock", "v")
    clock.sink("out", ab.collect())
    clock.late.sink("late", ab.collect())
    result = run_sequential(flow)
    assert [row["v"] for row in result.rows("out")] == ([7, 9] if value < 9 else [7, 9, 12])
    assert len(result.rows("late")) == (1 if value < 9 else 0)
    for seed in range(5):
        assert run_interleaved(flow, seed=seed, crashes=1).outputs == result.outputs


def test_nanoseconds_do_not_disturb_tuple_style_and_check():
    @ab.partitioned(key="k", out="k: int64, n: int64")
    def counted(ctx):
        for _ in ctx.tuples():
            ctx.state["n"] = ctx.state.get("n", 0) + 1
            ctx.emit(n=ctx.state["n"])

    table = pa.table({"k": [1, 1], "ts": pa.array([1_001, 2_002], pa.timestamp("ns"))})
    flow = ab.Flow("f")
    flow.source("s", ab.memory(table)).apply("counted", counted).sink("out", ab.collect())
    assert ab.check(flow, cases=3, processes=0).ok
