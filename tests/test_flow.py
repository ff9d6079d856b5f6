from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from anabranch.errors import BuildError, SchemaError
from anabranch.flow import Flow
from anabranch.graph import Output, Role, StreamType
from anabranch.io import Source, collect, memory
from anabranch.operators.aggregates.functions import count
from anabranch.operators.row_wise.map_filter_expand import Map, expand
from anabranch.operators.row_wise.union import Union
from anabranch.operators.tuple_style.tuples import partitioned
from anabranch.testing.sequential import run_sequential

ROWS = [{"ts": 1, "word": "a"}, {"ts": 2, "word": "b"}]


@partitioned(key="word", out="word: string, n: int64")
def counted(ctx):
    for _ in ctx.tuples():
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        ctx.emit(n=ctx.state["n"])


def small(name: str = "small", **properties) -> Flow:
    flow = Flow(name, **properties)
    flow.source("words", memory(ROWS)).apply("count", counted).sink("out", collect())
    return flow


# --- typing at build -----------------------------------------------------------------------------


def test_a_source_gives_its_schema_ordered_by_number():
    stream = Flow("f").source("words", memory(ROWS))
    assert stream.type == StreamType(memory(ROWS).schema)


def test_a_time_column_orders_the_stream():
    stream = Flow("f").source("words", memory(ROWS), time="ts")
    assert stream.type.time == pa.int64()


def test_a_map_keeps_columns_in_front_of_those_it_makes():
    stream = Flow("f").source("words", memory(ROWS))
    mapped = stream.map("m", lambda b: {}, out="n: int32", keeps="word")
    assert mapped.schema == pa.schema([("word", pa.string()), ("n", pa.int32())])


def test_kept_columns_must_exist():
    stream = Flow("f").source("words", memory(ROWS))
    with pytest.raises(SchemaError, match="step 'm': expected columns among"):
        stream.map("m", lambda b: {}, keeps="wrd")


def test_a_key_must_exist():
    stream = Flow("f").source("words", memory([{"x": 1}]))
    with pytest.raises(SchemaError, match=r"step 'count': expected columns among \['x'\]"):
        stream.apply("count", counted)


def test_a_time_column_must_exist():
    with pytest.raises(SchemaError, match=r"step 'words\.time': .*got 'when'"):
        Flow("f").source("words", memory(ROWS), time="when")


def test_a_step_that_needs_time_refuses_a_stream_by_number():
    @partitioned(key="word", out="word: string", timers=True)
    def woken(ctx):
        pass

    with pytest.raises(BuildError, match="step 'w': expected a stream ordered by event time"):
        Flow("f").source("words", memory(ROWS)).apply("w", woken)


def test_changes_do_not_flow_into_a_step_that_counts_tuples():
    changes = (
        Flow("f")
        .source("words", memory(ROWS))
        .aggregate("n", key="word", n=count(), emit="changes")
    )
    with pytest.raises(BuildError, match="step 'again': expected a stream of tuples"):
        changes.apply("again", counted)


def test_a_map_must_not_drop_the_key_of_changes():
    changes = (
        Flow("f")
        .source("words", memory(ROWS))
        .aggregate("n", key="word", n=count(), emit="changes")
    )
    with pytest.raises(BuildError, match="step 'bare'"):
        changes.map("bare", lambda b: {"n": b["n"]}, out="n: int64")


def test_a_map_without_any_column_is_refused_when_built():
    stream = Flow("f").source("words", memory(ROWS))
    with pytest.raises(BuildError, match="step 'nothing'"):
        stream.map("nothing", lambda b: {})


def test_a_key_of_a_type_that_cannot_be_hashed_is_refused_when_built():
    stream = Flow("f").source("words", memory([{"word": ["a", "b"]}]))
    with pytest.raises(SchemaError, match="step 'count'"):
        stream.apply("count", partitioned(key="word", out="n: int64")(lambda ctx: None))


def test_an_unordered_source_cannot_promise_total_order():
    class Unordered(Source):
        schema, order, bounded = pa.schema([("x", pa.int64())]), None, True
        parts = read = None

    with pytest.raises(BuildError, match="order='key'"):
        Flow("f").source("s", Unordered())


def test_only_operators_are_applied():
    stream = Flow("f").source("words", memory(ROWS))
    with pytest.raises(BuildError, match="step 'm': expected an operator, got function"):
        stream.apply("m", lambda batch: batch)


def test_a_flow_has_at_least_one_bucket():
    with pytest.raises(BuildError, match="a whole number of at least 1 in buckets="):
        Flow("f", buckets=0)


# --- wiring --------------------------------------------------------------------------------------


def test_connect_builds_what_the_fluent_way_builds():
    flow = Flow("small")
    words = flow.source("words", memory(ROWS))
    count_step = flow.add("count", counted)
    flow.connect(words, "count")
    count_step.sink("out", collect())
    assert flow.fingerprint() == small().fingerprint()


def test_a_stream_used_twice_goes_both_ways():
    flow = Flow("f")
    words = flow.source("words", memory(ROWS))
    words.sink("one", collect())
    words.sink("two", collect())
    result = run_sequential(flow)
    assert result.rows("one") == result.rows("two") == ROWS


def test_late_and_errors_are_outputs_of_their_step():
    flow = Flow("f")
    timed = flow.source("words", memory(ROWS), time="ts")
    risky = timed.map("risky", lambda b: {}, keeps="*", on_error="side")
    assert (timed.late.output, risky.errors.output) == (
        Output("words.time", 1),
        Output("risky", 1),
    )


def test_the_error_output_has_the_row_and_the_message():
    stream = Flow("f").source("words", memory(ROWS))
    errors = stream.map("m", lambda b: {}, keeps="word", on_error="side").errors
    assert errors.schema.names == ["ts", "word", "error"]


def test_an_output_that_does_not_exist_says_which_do():
    stream = Flow("f").source("words", memory(ROWS))
    with pytest.raises(BuildError, match=r"step 'words': expected an output among \['out'\]"):
        _ = stream.late


def test_more_streams_than_ports_are_refused():
    stream = Flow("f").source("words", memory(ROWS))
    with pytest.raises(BuildError, match=r"step 'count': expected 1 input stream\(s\), got 2"):
        stream.apply("count", counted, stream)


def test_a_stream_of_another_flow_is_refused():
    here = Flow("here").source("words", memory(ROWS))
    there = Flow("there").source("words", memory(ROWS))
    with pytest.raises(BuildError, match="step 'u'"):
        here.union("u", there)


# --- what a refusal leaves behind -----------------------------------------------------------------


REFUSED = {
    "a wrong key": lambda s: s.apply("x", partitioned(key="wrd", out="n: int64")(lambda c: None)),
    "a wrong column": lambda s: s.map("x", lambda b: {}, keeps="wrd"),
    "too many streams": lambda s: s.apply("x", counted, s),
    "another flow's stream": lambda s: s.apply(
        "x", Union(2), Flow("o").source("other", memory(ROWS))
    ),
}


@pytest.mark.parametrize("mistake", sorted(REFUSED))
def test_a_refused_step_leaves_its_name_free(mistake):
    stream = Flow("f").source("words", memory(ROWS))
    with pytest.raises(BuildError):
        REFUSED[mistake](stream)
    assert stream.filter("x", lambda b: pc.is_valid(b["word"])).output == Output("x")


def test_a_source_refused_for_its_time_column_leaves_its_name_free():
    flow = Flow("f")
    with pytest.raises(SchemaError):
        flow.source("words", memory(ROWS), time="when")
    other = memory([{"at": 1}])
    assert flow.source("words", other, time="at").schema == other.schema


def test_a_refused_aggregate_leaves_no_half_of_itself():
    flow = Flow("f")
    words = flow.source("words", memory(ROWS))
    words.filter("n", lambda b: pc.is_valid(b["word"]))
    with pytest.raises(BuildError):
        words.aggregate("n", key="word", n=count(), emit="changes")
    assert sorted(flow.graph.steps) == ["n", "words"]


# --- identity ------------------------------------------------------------------------------------


def test_the_fingerprint_is_the_same_for_the_same_structure():
    assert small().fingerprint() == small().fingerprint()


def test_the_fingerprint_ignores_what_the_source_holds():
    other = small().reading({"words": memory([{"ts": 9, "word": "z"}])})
    assert other.fingerprint() == small().fingerprint()


def changed_flows() -> dict[str, Flow]:
    other_key = partitioned(key="ts", out="ts: int64")(lambda ctx: None)
    flows = {"name": small("other"), "buckets": small(buckets=8)}
    for change, name, operator in (
        ("step name", "counts", counted),
        ("key", "count", other_key),
        ("state kind", "count", Map(lambda b: {}, None, "*")),
    ):
        flow = flows[change] = Flow("small")
        flow.source("words", memory(ROWS)).apply(name, operator).sink("out", collect())
    flow = flows["wiring"] = Flow("small")
    words = flow.source("words", memory(ROWS))
    words.apply("count", counted)
    words.sink("out", collect())
    return flows


@pytest.mark.parametrize("change", sorted(changed_flows()))
def test_the_fingerprint_changes_with_the_structure(change):
    assert changed_flows()[change].fingerprint() != small().fingerprint()


def test_reading_replaces_the_source_alone():
    flow = small().reading({"words": memory([{"ts": 1, "word": "z"}])})
    assert run_sequential(flow).rows("out") == [{"word": "z", "n": 1}]


def test_reading_leaves_the_original_as_it_was():
    flow = small()
    flow.reading({"words": memory([{"ts": 1, "word": "z"}])})
    assert [row["word"] for row in run_sequential(flow).rows("out")] == ["a", "b"]


def test_reading_refuses_other_columns():
    with pytest.raises(SchemaError, match="step 'words': expected the columns"):
        small().reading({"words": memory([{"x": 1}])})


def test_reading_refuses_a_source_the_flow_does_not_have():
    with pytest.raises(BuildError, match="wrds"):
        small().reading({"wrds": memory(ROWS)})


def test_names_of_a_role_are_in_topological_order():
    flow = Flow("f")
    a = flow.source("a", memory(ROWS))
    flow.source("b", memory(ROWS)).union("u", a).sink("out", collect())
    assert flow.names(Role.SOURCE) == ("a", "b")


def test_contexts_know_depth_and_sources():
    flow = Flow("f")
    a, b = (flow.source(name, memory(ROWS)) for name in "ab")
    double = expand(out="x: int64")(lambda batch: ({"x": [1]}, [0]))
    a.apply("double", double).union("u", b.apply("other", double)).sink("out", collect())
    contexts = flow.contexts()
    assert {n: (c.depth, c.sources) for n, c in contexts.items() if n != "out"} == {
        "a": (0, (0,)),
        "b": (0, (1,)),
        "double": (0, (0,)),
        "other": (0, (1,)),
        "u": (1, (0, 1)),
    }


class Silent(Source):
    """A source that counts as false, as an empty collection does."""

    schema, bounded, order = pa.schema([("x", pa.int64())]), True, "index"

    def __len__(self):
        return 0

    def parts(self):
        return ("none",)

    def read(self, part, start, rows):
        return None


def test_the_shape_of_a_flow_names_a_source_that_counts_as_false():
    flow = Flow("f").source("s", Silent()).sink("out", collect())
    assert flow.shape().steps[0].what == "Silent → x: int64"
