"""Combining before the shuffle gives what the aggregate alone gives."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import BuildError, SchemaError
from anabranch.graph import StateKind, StreamType
from anabranch.operators.aggregates import functions as ab
from anabranch.operators.aggregates.aggregate import aggregate
from anabranch.operators.aggregates.combine import combinable, split
from anabranch.operators.aggregates.windows import count_window, session, sliding, tumbling
from anabranch.state.positions import Jumbo, Root
from tests.operators.driving import Drive, Made, cuts, same, stream

SCHEMA = pa.schema([("k", pa.string()), ("i", pa.int64()), ("f", pa.float64()), ("s", pa.string())])
TIMED = StreamType(SCHEMA, pa.int64())
FUNCTIONS = {
    "n": ab.count(),
    "some": ab.count("i"),
    "total": ab.sum("i"),
    "mean": ab.mean("i"),
    "low": ab.min("f"),
    "high": ab.max("s"),
    "first": ab.first("f"),
    "last": ab.last("f"),
    "opening": ab.first("s"),
    "closing": ab.last("s"),
}

ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "k": st.sampled_from(["a", "b", None]),
            "i": st.none() | st.integers(-(2**58), 2**58),
            "f": st.none() | st.floats(),
            "s": st.none() | st.text(max_size=2),
        }
    ),
    max_size=24,
)


def times_of(rows: list[object]) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(-20, 20), min_size=len(rows), max_size=len(rows))


def combined(
    drive: Drive, jumbo: Jumbo, stops: list[int], replica: list[int], condensed: bool = False
) -> Jumbo:
    """Partial results of replicas that share each stretch of the stream; perhaps merged again."""
    owner, start = np.array(replica, dtype=np.int64), 0
    kernels = [drive.kernel() for _ in range(3)]
    made: list[list[Jumbo]] = [[] for _ in kernels]
    for stop in [*sorted(stops), len(jumbo)]:
        for number, kernel in enumerate(kernels):
            rows = start + np.flatnonzero(owner[start:stop] == number)
            (out,) = kernel.step([jumbo.take(rows.astype(np.int64))], Root(0, 0, 0, 0))
            if out is not None:
                assert out.positions.rows() == sorted(out.positions.rows())
                made[number].append(out)
        start = stop
    if condensed:
        made = [[k.condense(m)] if m else [] for k, m in zip(kernels, made, strict=True)]
        keys = [n for n in drive.out[0].schema.names if "." not in n]
        for (whole,) in [m for m in made if m]:
            rows = [repr([row[key] for key in keys]) for row in whole.batch.to_pylist()]
            assert len(set(rows)) == len(rows)
    parts = [Jumbo.empty(drive.out[0].schema, 1), *(part for each in made for part in each)]
    return Jumbo.concat(parts).in_order()


def roots(made: list[Made]) -> list[Made]:
    return [(place[:4], row) for place, row in made]


@pytest.mark.parametrize("window", [None, tumbling(7), sliding(9, 4)])
@given(key=st.sampled_from(["k", None]), rows=ROWS, data=st.data())
def test_final_values_do_not_tell_whether_they_were_combined(window, key, rows, data):
    jumbo = stream(SCHEMA, rows, data.draw(times_of(rows)))
    operator = aggregate(key, emit="final", window=window, **FUNCTIONS)
    combine, merging = split(operator, TIMED)
    first = Drive(combine, TIMED)
    stops = data.draw(st.lists(st.integers(0, len(rows)), max_size=3))
    replica = data.draw(st.lists(st.integers(0, 2), min_size=len(rows), max_size=len(rows)))
    partial = combined(first, jumbo, stops, replica, data.draw(st.booleans()))
    second = Drive(merging, first.out[0], depth=1)
    made = second.run(partial, data.draw(cuts(len(partial))))
    assert same(roots(made), roots(Drive(operator, TIMED).run(jumbo)))
    assert second.out == Drive(operator, TIMED).out


@given(rows=ROWS, data=st.data())
def test_changes_end_at_the_same_values(rows, data):
    jumbo = stream(SCHEMA, rows, data.draw(times_of(rows)))
    operator = aggregate("k", emit="changes", **FUNCTIONS)
    combine, merging = split(operator, TIMED)
    first = Drive(combine, TIMED)
    condensed = data.draw(st.booleans())
    partial = combined(first, jumbo, [len(rows) // 2], [0] * len(rows), condensed)
    made = Drive(merging, first.out[0], depth=1).run(partial, data.draw(cuts(len(partial))))
    alone = Drive(operator, TIMED).run(jumbo)
    for key in {row["k"] for row in rows}:
        ends = [[r for _, r in one if r["k"] == key][-1] for one in (made, alone)]
        assert repr(ends[0]) == repr(ends[1])


def test_a_batch_becomes_one_row_per_key_at_its_last_tuple():
    rows = [{"k": k, "i": 1, "f": None, "s": None} for k in "abaa"]
    combine, _ = split(aggregate("k", emit="final", n=ab.count(), t=ab.sum("i")), TIMED)
    (out,) = Drive(combine, TIMED).kernel().step([stream(SCHEMA, rows)], Root(9, 0, 0, 0))
    assert out.batch.to_pylist() == [
        {"k": "a", "n.count": 3, "t.total": 3, "t.carry": 0, "t.count": 3},
        {"k": "b", "n.count": 1, "t.total": 1, "t.carry": 0, "t.count": 1},
    ]
    assert out.positions.columns[0].tolist() == [3, 3]
    assert out.positions.columns[-1].tolist() == [0, 1]
    assert combine.state is StateKind.STATELESS
    assert combine.keeps(SCHEMA) == {"k"}


def test_with_windows_a_row_stands_at_the_last_tuple_of_its_key_and_window():
    """A window that closes must not have to wait for a tuple of the next one."""
    rows = [{"k": k, "i": 1, "f": None, "s": None} for k in "abaa"]
    windowed = aggregate("k", emit="final", window=tumbling(2), n=ab.count())
    combine, _ = split(windowed, TIMED)
    (out,) = Drive(combine, TIMED).kernel().step([stream(SCHEMA, rows)], Root(9, 0, 0, 0))
    assert out.positions.columns[0].tolist() == [0, 1, 3]


def test_a_batch_without_tuples_combines_to_nothing():
    combine, _ = split(aggregate("k", emit="final", n=ab.count()), TIMED)
    kernel = Drive(combine, TIMED).kernel()
    assert kernel.step([Jumbo.empty(SCHEMA, 0)], Root(9, 0, 0, 0)) == [None]
    assert kernel.step([None], Root(9, 0, 0, 0)) == [None]


@pytest.mark.parametrize(
    ("operator", "why"),
    [
        (aggregate("k", n=ab.count()), "every tuple"),
        (aggregate("k", emit="final", t=ab.sum("f")), "one fixed order by t"),
        (aggregate("k", emit="final", t=ab.mean("f")), "one fixed order by t"),
        (aggregate("k", window=session(5), n=ab.count()), "sessions"),
        (aggregate("k", window=count_window(5), n=ab.count()), "number of tuples"),
    ],
)
def test_what_cannot_be_combined_says_why(operator, why):
    assert not combinable(operator, TIMED)
    with pytest.raises(BuildError, match=why):
        split(operator, TIMED)
    operator.combine = True
    with pytest.raises(BuildError, match=why):
        operator.types("totals", (TIMED,))


def test_floats_combine_when_their_author_allows_it():
    operator = aggregate("k", emit="final", combine=True, t=ab.sum("f", exact=False))
    assert combinable(operator, TIMED)
    assert operator.types("totals", (TIMED,))[0].schema.names == ["k", "t"]
    assert combinable(aggregate("k", emit="final", t=ab.sum("i")), TIMED)


def test_the_merging_step_wants_the_combining_one_before_it():
    _, merging = split(aggregate("k", emit="final", n=ab.count()), TIMED)
    assert not combinable(merging, TIMED)
    with pytest.raises(SchemaError, match="partial results"):
        merging.types("totals", (TIMED,))
