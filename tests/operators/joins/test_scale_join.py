import math
from datetime import timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.columns.times import TIMESTAMP
from anabranch.errors import BuildError, OperatorError, SchemaError
from anabranch.graph import StreamType
from anabranch.operators.joins import conditions as scale_join_pairs
from anabranch.operators.joins.conditions import band
from anabranch.operators.joins.scale_join import ScaleJoin, scale_join
from anabranch.state.positions import LAST, Root
from tests.operators.driving_ports import jumbo
from tests.operators.keyed.driving_shared import SharedDrive, Turn, turns

LEFT = pa.schema([("n", pa.int64()), ("x", pa.int32()), ("y", pa.float32())])
RIGHT = pa.schema([("a", pa.int64()), ("b", pa.float64()), ("n", pa.int64())])
BUCKETS = 5
WHOLE = st.one_of(st.none(), st.integers(-4, 4))
BROKEN = st.one_of(st.none(), st.sampled_from([-2.5, -1.0, 0.0, 0.5, 1.5, 9.0, math.nan, math.inf]))


@st.composite
def streams(draw, max_events=40):
    """Events of two sources; each may put tuples on either port, so that ports tie at one root."""
    times = sorted(draw(st.lists(st.integers(-5, 20), max_size=max_events)))
    sides = ([], [])
    number = 0
    for seq, time in enumerate(times):
        root = (time, draw(st.integers(0, 1)), seq, 0)
        for level in range(draw(st.integers(1, 2))):
            number += 1
            whole, broken, port = draw(WHOLE), draw(BROKEN), draw(st.integers(0, 2))
            if port != 1:
                sides[0].append(((*root, level), (number, whole, broken)))
            if port != 0:
                sides[1].append(((*root, level), (whole, broken, number)))
    return sides


def expected(sides, within, holds, buckets=BUCKETS):
    """Every tuple of both ports one by one, in merged order, against all that came before."""
    merged = sorted(
        ((*p[:4], port, *p[4:]), port, row) for port, side in enumerate(sides) for p, row in side
    )
    out = []
    for position, port, row in merged:
        found = []
        for number, (earlier, other, past) in enumerate(merged):
            if earlier >= position:
                break
            pair = (row, past) if port == 0 else (past, row)
            if other != port and position[0] - earlier[0] <= within and holds(*pair):
                found.append((number % buckets, number, pair))
        indexes = dict.fromkeys(range(buckets), 0)
        for bucket, _, (left, right) in sorted(found, key=lambda one: one[:2]):
            columns = dict(zip(["n", "x", "y"], left, strict=True))
            columns |= dict(zip(["a", "b", "n_right"], right, strict=True))
            out.append(((*position, bucket, indexes[bucket]), columns))
            indexes[bucket] += 1
    return out


def near(one, two, width):
    if one is None or two is None or not (math.isfinite(one) and math.isfinite(two)):
        return False
    return abs(one - two) <= width


def greater(left, right):
    """Not a band, and not symmetric."""
    return pc.greater(pc.add(left["x"].cast(pa.int64()), left["n"]), right["n"])


CASES = {
    "one band": (band("x", "a", 2), lambda le, ri: near(le[1], ri[0], 2)),
    "a band of doubles": (band("y", "b", 1.5), lambda le, ri: near(le[2], ri[1], 1.5)),
    "a band of both": (band("y", "a", 2), lambda le, ri: near(le[2], ri[0], 2)),
    "equal numbers": (band("n", "n", 0), lambda le, ri: le[0] == ri[2]),
    "two bands": (
        (band("x", "a", 3), band("y", "b", 2)),
        lambda le, ri: near(le[1], ri[0], 3) and near(le[2], ri[1], 2),
    ),
    "a function": (greater, lambda le, ri: le[1] is not None and le[1] + le[0] > ri[2]),
    "a function and a band": (
        [greater, band("x", "a", 3)],
        lambda le, ri: near(le[1], ri[0], 3) and le[1] + le[0] > ri[2],
    ),
}


def drive(operator: ScaleJoin, sides, time=pa.int64()):  # noqa: B008 - types are values
    inputs = [jumbo(kind, side) for kind, side in zip((LEFT, RIGHT), sides, strict=True)]
    return SharedDrive(operator, inputs, time)


@pytest.mark.parametrize("where", CASES)
@given(sides=streams(), within=st.integers(0, 6), way=turns(BUCKETS))
def test_pairs_are_those_of_a_nested_loop_however_it_is_run(where, sides, within, way):
    condition, holds = CASES[where]
    ran = drive(scale_join(within, condition, BUCKETS), sides).run(way)
    assert repr(ran) == repr(expected(sides, within, holds))


@given(streams(), st.integers(0, 6), turns(BUCKETS), st.sampled_from([1, 3, 7]))
def test_pairs_may_be_decided_in_chunks_of_any_size(sides, within, way, most):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scale_join_pairs, "MOST_PAIRS", most)
        patch.setattr(scale_join_pairs, "_ALONE", 2)
        for name in ("a function", "two bands"):
            condition, holds = CASES[name]
            ran = drive(scale_join(within, condition, BUCKETS), sides).run(way)
            assert repr(ran) == repr(expected(sides, within, holds))


@given(streams(), st.integers(0, 6))
def test_a_predicate_is_asked_of_pairs_in_the_window_and_each_once(sides, within):
    asked = []

    def remember(left, right):
        assert len(left) == right.num_rows == len(left["n"])
        asked.extend(zip(left["n"].to_pylist(), right.column("n").to_pylist(), strict=True))
        return np.ones(len(left), np.bool_)

    running = drive(scale_join(within, remember, BUCKETS), sides)
    made = running.run()
    assert sorted(asked) == sorted((row["n"], row["n_right"]) for _, row in made)
    assert running.kernels[0].finder.comparisons == len(made)


def many(count, within=20):
    """One row a time unit on each side."""
    rng = np.random.default_rng(3)
    values = rng.integers(0, 100, (2, count))
    left = [((t, 0, t, 0, 0), (t, int(values[0, t]), 0.5)) for t in range(count)]
    right = [((t, 1, t, 0, 0), (int(values[1, t]), 0.5, t)) for t in range(count)]
    return left, right


def test_rows_out_of_reach_are_forgotten():
    cuts = tuple(Turn(place, "stay", (0,) * BUCKETS) for place in range(0, 100, 2))
    running = drive(scale_join(20, band("x", "a", 3), BUCKETS), many(400))
    assert running.run(cuts)
    left, right, _ = running.kernels[0].stores
    assert max(len(left), len(right)) <= 100


@pytest.mark.parametrize("where", [band("x", "a", 5), lambda le, ri: pc.equal(le["x"], ri["a"])])
def test_what_is_decided_are_the_pairs_near_in_time(where):
    sides = many(100)
    running = drive(scale_join(20, where, BUCKETS), sides)
    running.run(tuple(Turn(place, "move", (0, 1, 2, 3, 0)) for place in (0, 50)))
    one = drive(scale_join(20, where, BUCKETS), sides)
    one.run()
    pairs = sum(abs(r - le) <= 20 for le in range(100) for r in range(100))
    assert one.kernels[0].finder.comparisons == pairs
    # The kernels of the last epoch decided what came since, each its part.
    shares = [kernel.finder.comparisons for kernel in running.kernels]
    since = sum(abs(r - le) <= 20 for le in range(100) for r in range(100) if max(le, r) >= 50)
    assert sum(shares) == since
    assert min(shares) > since / 10


def test_a_bucket_is_handed_over_without_copying_its_rows():
    running = drive(scale_join(50, band("x", "a", 3), BUCKETS), many(40))
    giver = running.fresh((0,) * BUCKETS)[0]
    taker = running.fresh((0, 1, 0, 1, 0))[1]
    giver.step(running.inputs, Root(40, 0, 0, 0))
    held = {id(segment.batch) for segment in giver.stores[0].segments}
    taker.stores[0].absorb(giver.stores[0].release([1, 3]))
    assert {id(segment.batch) for segment in taker.stores[0].segments} <= held
    assert (len(taker.stores[0]), len(giver.stores[0])) == (16, 24)


def test_what_is_told_follows_what_came_not_what_is_held():
    running = drive(scale_join(10_000, band("x", "a", 3), BUCKETS), many(1000))
    kernel = running.fresh((0,) * BUCKETS)[0]
    for store in kernel.stores:
        store.track()
    told = []
    for start in range(0, 1000, 20):
        pieces = [j.slice(start, start + 20) for j in running.inputs]
        kernel.step(pieces, Root(start + 20, 0, 0, 0))
        told.append(sum(len(store.changes() or b"") for store in kernel.stores))
        for store in kernel.stores:
            store.saved()
    assert max(told) < 2 * min(told)


def test_tuples_of_the_last_moment_match():
    left = [((LAST, 3, 0, 0, 0), (1, 1, 0.5))]
    right = [((LAST, 4, 0, 0, 0), (1, 0.5, 2))]
    ran = drive(scale_join(5, band("x", "a", 0)), (left, right)).run()
    assert [(row["n"], row["n_right"]) for _, row in ran] == [(1, 2)]


def test_a_timedelta_counts_in_microseconds():
    left = [((0, 0, 0, 0, 0), (1, 1, 0.5))]
    right = [((t, 1, t, 0, 0), (1, 0.5, t)) for t in (2_000_000, 2_000_001)]
    operator = scale_join(timedelta(seconds=2), band("x", "a", 0))
    ran = drive(operator, (left, right), TIMESTAMP).run()
    assert [row["n_right"] for _, row in ran] == [2_000_000]


EDGES = [-(2**63), -(2**63) + 1, -1, 0, 1, 2**63 - 2, 2**63 - 1]


def test_bands_at_the_ends_of_whole_numbers_do_not_wrap():
    kind = pa.schema([("v", pa.int64())])
    sides = [[((i, port, i, 0, 0), (v,)) for i, v in enumerate(EDGES)] for port in (0, 1)]
    operator = scale_join(100, (band("v", "v", 2**53), band("v", "v", 1)))
    ran = SharedDrive(operator, [jumbo(kind, side) for side in sides], pa.int64()).run()
    pairs = sorted((row["v"], row["v_right"]) for _, row in ran)
    assert pairs == sorted((x, a) for x in EDGES for a in EDGES if abs(x - a) <= 1)


def test_bands_of_doubles_are_decided_as_doubles_are_subtracted():
    rng = np.random.default_rng(1)
    kind = pa.schema([("v", pa.float64())])
    xs = [*rng.uniform(9, 11, 50), 10.3, 1.7e308, -1.7e308, 10.0]
    steps = [0.0, np.spacing(0.3), -np.spacing(0.3), 4e-16, -4e-16, 1e-15, -1e-15]
    shifts = [x - 10 + d for x in xs for d in steps]
    sides = [
        [((0, p, i, 0, 0), (v,)) for i, v in enumerate(vs)] for p, vs in ((0, xs), (1, shifts))
    ]
    operator = scale_join(0, band("v", "v", 10))
    ran = SharedDrive(operator, [jumbo(kind, side) for side in sides], pa.int64()).run()
    with np.errstate(over="ignore"):
        wanted = sorted((x, a) for x in xs for a in shifts if abs(np.subtract(x, a)) <= 10)
    assert sorted((row["v"], row["v_right"]) for _, row in ran) == wanted


def typed(operator, left=LEFT, right=RIGHT, time=pa.int64()):  # noqa: B008 - types are values
    return operator.types("j", (StreamType(left, time), StreamType(right, time)))


def test_suffixes_part_the_columns_that_both_sides_have():
    (out,) = typed(scale_join(1, band("x", "a", 1), suffixes=("_l", "_r")))
    assert out.schema.names == ["n_l", "x", "y", "a", "b", "n_r"]


TEXTS = pa.schema([("a", pa.string()), ("u", pa.uint64())])


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (lambda: scale_join(None, band("x", "a", 1)), BuildError, "within"),
        (lambda: scale_join(1, "x = a"), BuildError, "'x = a'"),
        (lambda: scale_join(1, []), BuildError, "got none"),
        (
            lambda: scale_join(1, band("x", "a", 1), buckets=0),
            BuildError,
            "a whole number of at least 1 in buckets=",
        ),
        (
            lambda: scale_join(1, band("x", "a", 1), suffixes=("_x",)),
            BuildError,
            "two texts in suffixes=",
        ),
        (lambda: band("x", "a", -1), BuildError, "width from 0"),
        (lambda: band("x", "a", math.nan), BuildError, "width from 0"),
        (lambda: band("x", "a", True), BuildError, "width from 0"),
        (lambda: typed(scale_join(-1, band("x", "a", 1))), BuildError, "non-negative"),
        (lambda: typed(scale_join(timedelta(1), band("x", "a", 1))), BuildError, "whole number"),
        (lambda: typed(scale_join(1, band("x", "z", 1))), SchemaError, "'z'"),
        (lambda: typed(scale_join(1, band("a", "x", 1))), SchemaError, "'a'"),
        (lambda: typed(scale_join(1, band("x", "a", 1)), right=TEXTS), SchemaError, "string"),
        (lambda: typed(scale_join(1, band("x", "u", 1)), right=TEXTS), SchemaError, "uint64"),
        (lambda: typed(scale_join(1, greater, suffixes=("", ""))), SchemaError, "'n'"),
        (lambda: typed(scale_join(1, greater), time=None), BuildError, "event time"),
    ],
)
def test_what_cannot_be_joined_is_said_when_the_graph_is_built(make, error, says):
    with pytest.raises(error, match=says):
        make()


def raising(left, right):
    raise ValueError("no")


@pytest.mark.parametrize(
    ("where", "says"),
    [
        (raising, "ValueError: no on 1 pairs"),
        (lambda left, right: left["x"], "a boolean mask of 1 pairs, got int32"),
        (lambda left, right: np.ones(2, np.bool_), r"got bool of shape \(2,\)"),
        (lambda left, right: True, r"got bool of shape \(\)"),
    ],
)
def test_a_function_that_breaks_its_contract_fails_the_step(where, says):
    sides = ([((0, 0, 0, 0, 0), (1, 1, 0.5))], [((0, 1, 0, 0, 0), (1, 0.5, 2))])
    with pytest.raises(OperatorError, match=says) as caught:
        drive(scale_join(1, where), sides).run()
    assert caught.value.step == "step"


def test_a_function_may_look_at_whole_rows():
    seen = []

    def look(left, right):
        seen.append((left.to_batch().to_pylist(), right.schema.names))
        return pa.chunked_array([[None] * len(left)], pa.bool_())

    sides = ([((0, 0, 0, 0, 0), (1, 1, 0.5))], [((0, 1, 0, 0, 0), (1, 0.5, 2))])
    assert drive(scale_join(1, look), sides).run() == []
    assert seen == [([{"n": 1, "x": 1, "y": 0.5}], ["a", "b", "n"])]
