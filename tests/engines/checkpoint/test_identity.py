import json
from datetime import timedelta

import pytest

import anabranch as ab
from anabranch.engines.checkpoint.identity import (
    IDENTITY,
    claim,
    describe,
    require_same,
    require_same_parts,
    settings_of,
    text_of,
)
from anabranch.errors import StateError
from anabranch.flow import Flow
from anabranch.graph import StateKind
from anabranch.io import collect, memory
from anabranch.operators.aggregates.functions import count
from anabranch.operators.aggregates.windows import session, tumbling
from anabranch.operators.tuple_style.tuples import TupleOperator
from tests.law.arriving import Arriving


def stored(flow: Flow):
    return json.loads(json.dumps(describe(flow)))


def test_the_same_flow_written_again_goes_on(visits):
    require_same(stored(visits()), visits())


@pytest.mark.parametrize(
    ("changes", "then", "now"),
    [
        ({"name": "other"}, "flow 'visits', which owns it", "flow 'other'"),
        ({"buckets": 8}, "16 buckets (the number of buckets is fixed", "8 buckets"),
        ({"order": "key"}, "order 'total'", "order 'key'"),
        ({"window": tumbling(30)}, "window = TimeWindow(size=60,", "TimeWindow(size=30,"),
        ({"window": session(60)}, "kind WindowAggregate", "kind SessionAggregate"),
        ({"key": "page"}, "key (user)", "key (page)"),
        ({"step": "counts"}, "the step 'count'", "no such step"),
        ({"extra": True}, "the steps ['clicks',", "a new step 'some'"),
        ({"lateness": 5}, "lateness = 0", "lateness = 5"),
    ],
)
def test_the_first_difference_is_told_in_words(visits, changes, then, now):
    with pytest.raises(StateError) as caught:
        require_same(stored(visits()), visits(**changes))
    assert then in caught.value.expected
    assert now in caught.value.got
    assert caught.value.remedy == (
        "go on with the earlier flow, or start afresh in a new checkpoint directory"
    )


def test_a_changed_step_is_named(visits):
    with pytest.raises(StateError) as caught:
        require_same(stored(visits()), visits(window=tumbling(30)))
    assert caught.value.step == "count"


def two_sources(*names: str) -> Flow:
    flow = Flow("two")
    streams = {name: flow.source(name, memory([{"a": 1}])) for name in names}
    streams["x"].union("both", streams["y"]).sink("out", collect())
    return flow


def test_sources_that_changed_places_would_be_merged_in_another_order():
    with pytest.raises(StateError, match=r"in the order \['x', 'y', 'both', 'out'\]"):
        require_same(stored(two_sources("x", "y")), two_sources("y", "x"))


def columns(row: dict[str, object], **functions: object) -> Flow:
    flow = Flow("columns")
    stream = flow.source("s", memory([row]))
    stream.aggregate("count", key="a", combine=False, **functions).sink("out", collect())
    return flow


def test_other_columns_and_other_functions_are_differences():
    before = stored(columns({"a": 1, "b": 1}, n=ab.sum("b")))
    with pytest.raises(StateError, match=r"output columns .a: int64, b: int64.+got output columns"):
        require_same(before, columns({"a": 1, "b": 1.5}, n=ab.sum("b")))
    with pytest.raises(StateError, match=r"functions = \{n: Aggregate\(function=sum"):
        require_same(before, columns({"a": 1, "b": 1}, n=ab.max("b")))


def test_the_body_of_a_function_is_not_seen():
    def build(function) -> Flow:
        flow = Flow("f")
        flow.source("s", memory([{"a": 1}])).filter("some", function).sink("out", collect())
        return flow

    require_same(stored(build(lambda batch: [True])), build(lambda batch: [False]))


def test_another_format_is_refused_with_its_own_advice(visits):
    stored = {"format": 99, "written by": "Anabranch 7.5"}
    with pytest.raises(StateError, match=r"format 99, written by Anabranch 7\.5; go on with that"):
        require_same(stored, visits())


class Limited(TupleOperator):
    state = StateKind.STATEFUL
    out = "n: int64"
    ttl = timedelta(minutes=1)
    limit = 5


def test_settings_of_a_class_count_like_those_of_an_instance():
    assert settings_of(Limited())["ttl"] == "0:01:00"
    assert settings_of(Limited())["limit"] == "5"
    assert settings_of(Limited(limit=6))["limit"] == "6"
    assert "invoke" not in settings_of(Limited())


def test_what_errors_advise_to_change_may_change():
    changed = Limited(max_buffer=1, on_error="skip")
    assert settings_of(changed) == settings_of(Limited())


def test_text_of_a_value_shows_what_can_differ():
    value = {"b": (count("x"), None, 1.5), "a": {StateKind.SHARED, len}}
    shown = "Aggregate(function=count, column=x, exact=True)"
    assert text_of(value) == f"{{a: {{shared, …}}, b: ({shown}, None, 1.5)}}"
    assert text_of(object()) == "…"


def test_an_absent_or_empty_directory_is_claimed_and_then_known(storage, visits):
    claim(storage, visits())
    claim(storage, visits())
    with pytest.raises(StateError, match="flow 'visits', which owns it"):
        claim(storage, visits("other"))


def test_what_a_kill_at_the_first_start_left_does_not_make_a_directory_foreign(
    storage, folder, visits
):
    folder.mkdir()
    (folder / f".pending-0123-{IDENTITY}").write_text("{")
    claim(storage, visits())


def test_a_directory_of_something_else_is_left_alone(storage, folder, visits):
    folder.mkdir()
    (folder / "thesis.tex").write_text("")
    with pytest.raises(StateError, match=r"1 entries such as 'thesis.tex'.*directory of its own"):
        claim(storage, visits())
    assert [path.name for path in folder.iterdir()] == ["thesis.tex"]


def test_a_damaged_identity_is_named(storage, folder, visits):
    claim(storage, visits())
    (folder / IDENTITY).write_text('{"crc": "00000000", "content": {}}')
    with pytest.raises(StateError, match=IDENTITY):
        claim(storage, visits())


# Sources


def test_the_time_after_which_parts_are_idle_may_change():
    def flow(idle_after: timedelta | None) -> Flow:
        made, source = Flow("f"), Arriving({"a": []}, memory([{"x": 1}]).schema)
        made.source("rows", source, idle_after=idle_after).sink("out", collect())
        return made

    times = [None, timedelta(seconds=1), timedelta(seconds=2)]
    described = [stored(flow(time)) for time in times]
    assert described[0] == described[1] == described[2]


def test_rows_that_were_numbered_in_another_way_are_refused_by_name(storage):
    one, several = memory([{"x": 1}]), Arriving({"a": []}, memory([{"x": 1}]).schema)
    storage.make("")
    require_same_parts(storage, {"rows": several}, ended=False)
    require_same_parts(storage, {"rows": several}, ended=False)
    with pytest.raises(StateError, match="what it was") as caught:
        require_same_parts(storage, {"rows": one}, ended=False)
    assert "numbered as they are read" in caught.value.expected
    assert "one after the other" in caught.value.got


def test_a_source_that_becomes_interleaved_is_refused_by_name(storage):
    one, several = memory([{"x": 1}]), Arriving({"a": []}, memory([{"x": 1}]).schema)
    storage.make("")
    require_same_parts(storage, {"rows": one}, ended=False)
    with pytest.raises(StateError, match="idle_after") as caught:
        require_same_parts(storage, {"rows": several}, ended=False)
    assert "one after the other" in caught.value.expected
