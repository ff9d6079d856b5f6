import math

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import BuildError, SchemaError
from anabranch.graph import StreamType
from anabranch.operators.keyed import top_n as module
from anabranch.operators.keyed.top_n import top_n
from tests.operators.driving_ports import ONE_THREAD, drive, simple, ways

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.float64()), ("n", pa.int64())])
ROW = st.tuples(
    st.sampled_from(["a", "b", "c", "a longer key", None]),
    st.sampled_from([0.0, -0.0, 1.0, 2.5, -1.0, math.inf, -math.inf, math.nan, None]),
)
WORDS = pa.schema([("k", pa.string()), ("w", pa.string()), ("c", pa.int64())])


def worth(value, descending):
    """Sort key: order of the value, then NaN, then null."""
    if value is None or math.isnan(value):
        return (2 if value is None else 1, 0)
    return (0, -value if descending else value)


def ranking(rows, n, descending, key):
    """Rows (k, v, n…) as a list of (k, rank, n), per key in order of appearance."""
    groups = {}
    for row in rows:
        groups.setdefault(row[0] if key else None, []).append(row)
    return {
        group: [row[2] for row in sorted(members, key=lambda r: worth(r[1], descending))[:n]]
        for group, members in groups.items()
    }


def by_group(rows, key, number="n"):
    groups = {}
    for row in rows:
        groups.setdefault(row["k"] if key else None, []).append((row["rank"], row[number]))
    return groups


@pytest.fixture(params=[1, 1 << 14], ids=["pruned at once", "pruned rarely"], autouse=True)
def _pruning(request, monkeypatch):
    monkeypatch.setattr(module, "_WORTH_PRUNING", request.param)


@given(st.lists(ROW, max_size=40), st.integers(1, 4), st.booleans(), st.booleans(), ways())
def test_the_final_ranking_is_that_of_a_sort_however_it_is_run(rows, n, descending, keyed, way):
    rows = [(k, v, number) for number, (k, v) in enumerate(rows)]
    given_rows = simple(SCHEMA, rows)
    operator = top_n(n, "v", "k" if keyed else None, descending=descending)
    ran = drive(operator, [given_rows], way)
    found = by_group(ran.rows(), keyed)
    wanted = ranking(rows, n, descending, keyed)
    assert found == {g: list(enumerate(m, 1)) for g, m in wanted.items()}
    assert ran.shown() == drive(operator, [given_rows], ONE_THREAD).shown()


@given(st.lists(ROW, max_size=40), st.integers(1, 4), st.booleans(), ways())
def test_changes_end_in_the_final_ranking(rows, n, keyed, way):
    rows = [(k, v, number) for number, (k, v) in enumerate(rows)]
    ran = drive(top_n(n, "v", "k" if keyed else None, "changes"), [simple(SCHEMA, rows)], way)
    last = {(r["k"] if keyed else None, r["rank"]): r["n"] for r in ran.rows()}
    wanted = ranking(rows, n, True, keyed)
    assert last == {(g, i): m for g, ms in wanted.items() for i, m in enumerate(ms, 1)}


COUNTED = st.tuples(st.sampled_from(["a", "b", None]), st.sampled_from("uvwxyz"), st.integers(0, 4))


@given(st.lists(COUNTED, max_size=40), st.integers(1, 3), st.booleans(), st.booleans(), ways())
def test_a_changelog_is_ranked_by_its_current_rows(rows, n, keyed, changes, way):
    key = "k" if keyed else None
    emit = "changes" if changes else "final"
    operator = top_n(n, "c", key, emit)
    ran = drive(operator, [simple(WORDS, rows)], way, changelog=("k", "w"))
    current = {(k, w): c for k, w, c in rows}
    groups = {}
    for (k, w), c in current.items():
        groups.setdefault(k if keyed else None, []).append((-c, k is None, k or "", w))
    wanted = {
        (g, i): (None if is_null else k, w, -c)
        for g, members in groups.items()
        for i, (c, is_null, k, w) in enumerate(sorted(members)[:n], 1)
    }
    last = {(r["k"] if keyed else None, r["rank"]): (r["k"], r["w"], r["c"]) for r in ran.rows()}
    assert last == wanted
    if not changes:
        assert len(ran.rows()) == len(wanted)


def test_how_often_a_row_was_replaced_does_not_show():
    often = [("k", "x", 1), ("k", "y", 5), ("k", "x", 3), ("k", "x", 5), ("k", "z", 5)]
    seldom = [("k", "z", 5), ("k", "y", 5), ("k", "x", 5)]
    runs = [
        drive(top_n(2, "c"), [simple(WORDS, rows)], changelog=("k", "w")).rows()
        for rows in (often, seldom)
    ]
    assert runs[0] == runs[1]
    assert [r["w"] for r in runs[0]] == ["x", "y"]


def test_a_changelog_of_one_row_has_one_rank():
    rows = simple(pa.schema([("c", pa.int64())]), [(1,), (7,), (3,)])
    ran = drive(top_n(5, "c"), [rows], changelog=())
    assert ran.rows() == [{"rank": 1, "c": 3}]


@pytest.mark.parametrize("values", [["b", "a", None], [True], [3, None, 1]], ids=str)
def test_texts_and_numbers_are_ranked_and_truth_values_are_not(values):
    rows = simple(pa.schema([("v", pa.array(values).type)]), [(v,) for v in values])
    if values == [True]:
        with pytest.raises(SchemaError, match="numbers, times or texts"):
            drive(top_n(1, "v"), [rows])
        return
    ran = drive(top_n(9, "v", descending=False), [rows])
    assert [r["v"] for r in ran.rows()] == [*sorted(v for v in values if v is not None), None]


def test_only_the_best_of_a_long_stream_are_kept():
    rows = simple(SCHEMA, [("k", float(i * 7919 % 1000), i) for i in range(1000)])
    ran = drive(top_n(3, "v"), [rows])
    assert [r["v"] for r in ran.rows()] == [999.0, 998.0, 997.0]


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (lambda: top_n(0, "v"), BuildError, "at least 1"),
        (lambda: top_n(1, ["v"]), BuildError, "one column"),
        (lambda: top_n(1, "v", emit="every"), BuildError, "final"),
        (lambda: top_n(1, "x").types("t", (StreamType(SCHEMA),)), SchemaError, "'x'"),
        (
            lambda: top_n(1, "v").types("t", (StreamType(SCHEMA.append(module.RANK)),)),
            SchemaError,
            "rename",
        ),
        (
            lambda: top_n(1, "v", "k").types("t", (StreamType(SCHEMA, None, ("n",)),)),
            BuildError,
            "rows are replaced",
        ),
    ],
)
def test_what_cannot_be_ranked_is_said_when_the_graph_is_built(make, error, says):
    with pytest.raises(error, match=says):
        make()
