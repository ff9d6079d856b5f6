from dataclasses import asdict
from itertools import pairwise

import pyarrow as pa
import pytest

from anabranch.io.sink import Guarantee, Traits
from anabranch.io.staged import StagedSink
from papers.briskstream.factors import Factor, factors, measure_factors, run_factor

LINES = pa.record_batch({"line": ["to be or not to be", None, "to be"]})


@pytest.mark.parametrize("way", factors((2,)), ids=lambda way: way.name)
def test_every_way_counts_the_same_words(way, monkeypatch):
    told = []
    monkeypatch.setattr("papers.briskstream.factors.Counting", lambda: Noting(told))
    assert run_factor(way, LINES) > 0
    # Tuple style tells the words of one line in the order of keys, columns in that of the line.
    assert sorted(told) == [("be", 1), ("be", 2), ("be", 3), ("not", 1), ("or", 1),
                            ("to", 1), ("to", 2), ("to", 3)]  # fmt: skip


class Noting(StagedSink):
    """A sink that remembers."""

    traits = Traits(Guarantee.AT_LEAST_ONCE)

    def __init__(self, told):
        self.told = told

    rows = 1

    def begin(self, schema, version):
        self.told.clear()

    def deliver(self, version, rows):
        self.told += [(row["word"], row["n"]) for batch in rows for row in batch.to_pylist()]


def test_only_one_thing_changes_from_way_to_way():
    ways = factors((16, 256))
    for before, after in pairwise(ways):
        named = {**asdict(before), "name": after.name}
        assert len(named.items() ^ asdict(after).items()) == 2


def test_ways_are_measured_in_the_order_given():
    ways = [Factor("a", 64), Factor("b", 64, fused=True)]
    found = measure_factors(ways, seconds=0.001, repeats=1)
    assert [one.factor for one in found] == ways
    assert all(one.words_per_s > 0 for one in found)
