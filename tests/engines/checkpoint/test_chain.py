import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.engines.checkpoint.state_files import (
    GATE,
    StateFile,
    chain,
    needed,
    should_snapshot,
)
from anabranch.errors import StateError

BUCKETS = range(6)
REGIONS = ("a", "b")


def file(name: str, buckets, *, whole: bool = False, region: str = "a", size: int = 10):
    return StateFile(name, region, 0, 0, whole, tuple(buckets), size, 0)


def names(files) -> list[str]:
    return [f.name for f in files]


written = st.tuples(
    st.sampled_from(REGIONS),
    st.booleans(),
    st.sets(st.sampled_from(BUCKETS), min_size=1),
)
batches = st.lists(st.lists(written, max_size=4), max_size=12)


def as_files(drawn) -> list[list[StateFile]]:
    return [
        [
            file(f"{version}.{place}", sorted(buckets), whole=whole, region=region)
            for place, (region, whole, buckets) in enumerate(batch)
        ]
        for version, batch in enumerate(drawn)
    ]


def rebuilt(files, region: str, bucket: int) -> list[str]:
    """What a bucket is made of, by reading every file: a whole one starts afresh."""
    state: list[str] = []
    for each in files:
        if each.region == region and bucket in each.buckets:
            state = [each.name] if each.whole else [*state, each.name]
    return state


@given(batches)
def test_a_chain_rebuilds_what_all_files_would_and_holds_no_file_in_vain(drawn):
    everything: list[StateFile] = []
    kept: tuple[StateFile, ...] = ()
    for added in as_files(drawn):
        everything += added
        kept = chain(kept, added)
    useful = set()
    for region in REGIONS:
        for bucket in BUCKETS:
            expected = rebuilt(everything, region, bucket)
            assert rebuilt(kept, region, bucket) == expected
            useful.update(expected)
    assert names(kept) == [f.name for f in everything if f.name in useful]


@given(batches, st.sampled_from(REGIONS), st.sets(st.sampled_from(BUCKETS)))
def test_needed_reads_for_each_bucket_exactly_what_rebuilds_it(drawn, region, wanted):
    everything = tuple(f for batch in as_files(drawn) for f in batch)
    for files in (everything, chain((), everything)):
        found = needed(files, region, wanted)
        for bucket in BUCKETS:
            expected = rebuilt(everything, region, bucket) if bucket in wanted else []
            assert [f.name for f, taken in found if bucket in taken] == expected
        assert all(taken for _, taken in found)
        assert [f for f, _ in found] == [f for f in files if f in {f for f, _ in found}]


def test_a_file_stays_while_one_of_its_buckets_needs_it():
    old = file("old", [0, 1])
    half = chain((old,), [file("left", [0], whole=True)])
    assert names(half) == ["old", "left"]
    assert names(chain(half, [file("right", [1], whole=True)])) == ["left", "right"]


def test_a_snapshot_of_one_region_says_nothing_about_another():
    kept = chain((file("other", [0], region="b"),), [file("mine", [0], whole=True)])
    assert names(kept) == ["other", "mine"]


def test_what_waits_at_gates_counts_for_one_version():
    old = file("old", [0], whole=True, region="a" + GATE)
    state = file("state", [0], whole=True)
    first, second = (file(f"new{n}", [n], whole=True, region="a" + GATE) for n in range(2))
    assert names(chain((state, old), [first, second])) == ["state", "new0", "new1"]
    assert names(chain((state, first, second), [])) == ["state"]


def test_a_state_file_without_buckets_is_refused_because_its_contents_would_be_lost():
    with pytest.raises(StateError, match="use bucket 0"):
        file("none", [])


MB = 1 << 20


@pytest.mark.parametrize(
    ("whole", "changes", "expected"),
    [
        (0, [MB], False),
        (0, [MB, 1], True),
        (5 * MB, [2 * MB, 2 * MB, MB], False),
        (5 * MB, [2 * MB, 2 * MB, MB, 1], True),
        (10, [1000], False),
        (10, [1] * 127, False),
        (10, [1] * 128, True),
    ],
)
def test_a_snapshot_is_due_when_changes_outweigh_the_last_one_or_are_many(whole, changes, expected):
    files = [file("before", [0, 1], size=99 * MB)]
    files.append(file("whole", [0, 1], whole=True, size=whole))
    files += [file(f"c{n}", [0, 1], size=size) for n, size in enumerate(changes)]
    assert should_snapshot(tuple(files), "a", [0, 1]) is expected
    assert not should_snapshot(tuple(files), "b", [0, 1])


def test_a_replica_counts_only_its_own_share_of_a_file():
    files = (file("whole", [0, 1], whole=True, size=8 * MB), file("c", [0], size=5 * MB))
    assert should_snapshot(files, "a", [0])
    assert not should_snapshot(files, "a", [0, 1])
    assert not should_snapshot(files, "a", [1])
