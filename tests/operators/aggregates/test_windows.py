"""Windows against plain Python, whatever the batching and whoever owns the keys."""

from collections import defaultdict
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.columns.hashing import hash_columns, order_prefix
from anabranch.errors import BuildError, SchemaError
from anabranch.graph import StreamType
from anabranch.operators.aggregates import functions as ab
from anabranch.operators.aggregates.aggregate import aggregate
from anabranch.operators.aggregates.windows import count_window, session, sliding, tumbling
from anabranch.operators.base import CLOSING
from anabranch.state.positions import LAST, Root, end
from tests.operators.driving import RANK, Cut, Drive, Made, cuts, same, stream

SCHEMA = pa.schema([("k", pa.string()), ("x", pa.float64())])
TIMED = StreamType(SCHEMA, pa.int64())
FUNCTIONS = {"n": ab.count(), "total": ab.sum("x"), "first": ab.first("x"), "top": ab.max("x")}

EVENTS = st.lists(
    st.tuples(
        st.integers(-30, 30),
        st.sampled_from(["a", "b", "c", None]),
        st.none() | st.sampled_from([0.1, 0.2, 0.3, 1e16, -1e16]),
    ),
    max_size=24,
).map(lambda events: sorted(events, key=lambda e: e[0]))

Events = list[tuple[int, str | None, float | None]]


def run(operator: Any, events: Events, places: tuple[Cut, ...], kind: StreamType = TIMED) -> Any:
    rows = [{"k": k, "x": x} for _, k, x in events]
    return Drive(operator, kind).run(stream(SCHEMA, rows, [t for t, _, _ in events]), places)


def results(values: list[float | None]) -> dict[str, Any]:
    some = [v for v in values if v is not None]
    total = 0.0
    for value in some:
        total += value
    return {
        "n": len(values),
        "total": total if some else None,
        "first": some[0] if some else None,
        "top": max(some, default=None),
    }


def leaving(time: int, key: str | None) -> tuple[int, ...]:
    column = pa.array([key], pa.string())
    hashed = int(hash_columns([column]).view(np.int64)[0])
    return (time, -RANK, int(order_prefix(column)[0]), hashed, 0)


def expected(windows: dict[tuple[str | None, int, int], list[float | None]]) -> list[Made]:
    made = [
        (leaving(e, k), {"k": k, "window_start": s, "window_end": e, **results(values)})
        for (k, s, e), values in windows.items()
    ]
    return sorted(made, key=lambda one: one[0])


def test_an_offset_may_go_back_whatever_it_is_given_as():
    microseconds = pa.timestamp("us")
    hours = tumbling(timedelta(hours=24), timedelta(hours=-2)).spans("step", microseconds)
    assert hours == tumbling(86_400_000_000, -7_200_000_000).spans("step", microseconds)
    assert hours.offset == -7_200_000_000


def test_a_long_offset_is_taken_to_the_microsecond():
    years = timedelta(days=365_000, microseconds=1)
    spans = tumbling(timedelta(days=1), years).spans("step", pa.timestamp("us"))
    assert spans.offset == 365_000 * 86_400_000_000 + 1


@given(EVENTS, st.integers(1, 12), st.integers(-5, 5), st.data())
def test_tumbling_windows_hold_the_tuples_between_start_and_end(events, size, offset, data):
    made = run(
        aggregate("k", window=tumbling(size, offset), **FUNCTIONS),
        events, data.draw(cuts(len(events))),
    )  # fmt: skip
    windows = defaultdict(list)
    for t, k, x in events:
        start = (t - offset) // size * size + offset
        windows[k, start, start + size].append(x)
    assert same(made, expected(windows))


@given(EVENTS, st.integers(1, 12), st.integers(1, 12), st.data())
def test_sliding_windows_overlap_and_may_leave_holes(events, size, slide, data):
    made = run(
        aggregate("k", window=sliding(size, slide), **FUNCTIONS),
        events, data.draw(cuts(len(events))),
    )  # fmt: skip
    windows = defaultdict(list)
    for t, k, x in events:
        for start in range(-60 * slide, 61 * slide, slide):
            if start <= t < start + size:
                windows[k, start, start + size].append(x)
    assert same(made, expected(windows))


@given(EVENTS, st.integers(1, 8), st.data())
def test_a_session_ends_when_its_key_was_silent_for_the_gap(events, gap, data):
    made = run(
        aggregate("k", window=session(gap), **FUNCTIONS), events, data.draw(cuts(len(events)))
    )
    windows = {}
    for key in {k for _, k, _ in events}:
        opened, latest, values = None, None, []
        for t, x in [(t, x) for t, k, x in events if k == key] + [(10**6, None)]:
            if latest is not None and t >= latest + gap:
                windows[key, opened, latest + gap] = values
                opened, values = t, []
            opened = t if opened is None else opened
            latest = t
            values.append(x)
    assert same(made, expected(windows))


@given(EVENTS, st.integers(1, 4), st.booleans(), st.data())
def test_count_windows_leave_at_the_tuple_that_completes_them(events, size, partial, data):
    operator = aggregate("k", window=count_window(size, partial=partial), **FUNCTIONS)
    made = run(operator, events, data.draw(cuts(len(events))), StreamType(SCHEMA))
    open_windows, wanted = defaultdict(list), []
    for number, (t, k, x) in enumerate(events):
        open_windows[k].append(x)
        if len(open_windows[k]) == size:
            values = open_windows.pop(k)
            wanted.append(((t, 0, number, 0, 0), {"k": k, **results(values)}))
    if partial:
        for k, values in open_windows.items():
            place = (LAST, CLOSING + RANK, *leaving(0, k)[2:])
            wanted.append((place, {"k": k, **results(values)}))
    assert same(made, sorted(wanted, key=lambda one: one[0]))


@given(EVENTS, st.sampled_from([tumbling(7), session(3)]), st.data())
def test_windows_without_a_key_hold_everything(events, window, data):
    made = run(aggregate(window=window, n=ab.count()), events, data.draw(cuts(len(events))))
    assert sum(row["n"] for _, row in made) == len(events)
    assert [p[1:] for p, _ in made] == [(-RANK, 0, 0, 0)] * len(made)
    assert [p[0] for p, _ in made] == [row["window_end"] for _, row in made]


@pytest.mark.parametrize("window", [sliding(9, 4), session(3), count_window(2, partial=True)])
@given(events=EVENTS, data=st.data())
def test_windows_of_a_key_wider_than_the_routing_move_with_their_bucket(window, events, data):
    rows = [{"k": k, "x": x} for _, k, x in events]
    jumbo = stream(SCHEMA, rows, [t for t, _, _ in events])
    drive = Drive(aggregate(["k", "x"], window=window, n=ab.count()), TIMED, routing=("k",))
    assert same(drive.run(jumbo, data.draw(cuts(len(events)))), drive.run(jumbo))


def test_a_window_leaves_as_soon_as_its_end_is_reached():
    drive = Drive(aggregate("k", window=tumbling(10), n=ab.count()), TIMED)
    kernel = drive.kernel()
    rows = [{"k": "a", "x": None}, {"k": "b", "x": None}]
    (out,) = kernel.step([stream(SCHEMA, rows, [3, 12])], Root(9, 0, 0, 0))
    assert (out, kernel.next_timer()) == (None, 10)
    (out,) = kernel.step([None], Root(10, -9, 0, 0))
    assert out.batch.column("window_end").to_pylist() == [10]
    assert kernel.next_timer() == 20
    (out,) = kernel.step([None], end(12))
    assert out.batch.column("window_start").to_pylist() == [10]
    assert kernel.next_timer() is None
    assert kernel.step([None], end(12)) == [None]


def test_the_next_timer_of_a_session_follows_its_last_tuple():
    kernel = Drive(aggregate("k", window=session(10), n=ab.count()), TIMED).kernel()
    for time in (0, 6, 12):
        kernel.step([stream(SCHEMA, [{"k": "a", "x": None}], [time])], Root(time + 1, 0, 0, 0))
        assert kernel.next_timer() == time + 10


def test_a_table_that_commits_and_compacts_keeps_its_windows():
    drive = Drive(aggregate("k", window=tumbling(10), n=ab.count()), TIMED)
    kernel = drive.kernel()
    for time in range(0, 100, 10):
        rows = [{"k": f"{time} {i}", "x": None} for i in range(400)]
        (out,) = kernel.step([stream(SCHEMA, rows, [time] * 400)], Root(time + 5, 0, 0, 0))
        assert (0 if out is None else len(out)) == (400 if time else 0)
        kernel.table.commit()
    assert len(kernel.step([None], end(90))[0]) == 400


def test_timestamps_give_timestamps_and_timedeltas_fit():
    schema = pa.schema([("k", pa.string())])
    kind = StreamType(schema, pa.timestamp("us"))
    operator = aggregate("k", window=tumbling(timedelta(seconds=2)), n=ab.count())
    drive = Drive(operator, kind)
    made = drive.run(stream(schema, [{"k": "a"}, {"k": "a"}], [-1, 1_000_000]))
    assert [(r["window_start"], r["window_end"]) for _, r in made] == [
        (datetime(1969, 12, 31, 23, 59, 58), datetime(1970, 1, 1)),
        (datetime(1970, 1, 1), datetime(1970, 1, 1, 0, 0, 2)),
    ]
    assert drive.out[0].time == pa.timestamp("us")


def test_what_leaves_at_the_end_of_the_stream_has_no_time():
    partial = aggregate("k", window=count_window(2, partial=True), n=ab.count())
    whole = aggregate("k", window=count_window(2), n=ab.count())
    assert partial.types("step", (TIMED,))[0].time is None
    assert whole.types("step", (TIMED,))[0].time == pa.int64()


@pytest.mark.parametrize(
    ("window", "text"),
    [
        (tumbling(0), "size above zero"),
        (tumbling(-1), "non-negative"),
        (sliding(5, 0), "slide above zero"),
        (session(0), "gap above zero"),
        (session(timedelta(seconds=1)), "timedelta fits"),
        (count_window(0), "at least one tuple"),
        (count_window(True), "at least one tuple"),
    ],
)
def test_a_length_that_cannot_be_is_named(window, text):
    with pytest.raises(BuildError, match=text):
        aggregate("k", window=window, n=ab.count()).types("totals", (TIMED,))


def test_the_borders_of_a_window_need_their_names():
    with pytest.raises(SchemaError, match="window_start"):
        aggregate("k", window=tumbling(5), window_start=ab.count()).types("step", (TIMED,))
    counted = aggregate("k", window=count_window(5), window_start=ab.count())
    assert counted.types("step", (TIMED,))[0].schema.names == ["k", "window_start"]
