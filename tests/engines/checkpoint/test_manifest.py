import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.engines.checkpoint import manifest as bucket_ranges
from anabranch.engines.checkpoint.checksummed_json import seal, unseal
from anabranch.engines.checkpoint.manifest import BatchLog, Manifest
from anabranch.engines.checkpoint.state_files import StateFile
from anabranch.errors import StateError
from anabranch.io.offsets import SourceOffsets
from anabranch.io.sink import PositionRange, Receipt

MANIFEST = Manifest(
    version=12,
    token="7-1f3a",
    plan='{"flow": "visits"}',
    offsets={"clicks": SourceOffsets({0: 2**53 + 1}, 1, 2**53 + 1), "ä": SourceOffsets(over=True)},
    state=(
        StateFile("s", "count", 1, 11, True, (0, 1, 2, 9), 100, 2**32 - 1),
        StateFile("t", "count", 0, 12, False, (3,), 7, 0),
    ),
    latest={"count": (("t", (3,)), ("s", (0, 1, 2, 9)))},
    sinks={
        "out": (
            Receipt(".pending-1", 3, positions=PositionRange((-(2**63), 0), (2**62, 2**32))),
            Receipt(".pending-2", 1),
        ),
        "told": (Receipt("000000000012-told", 2, staged=True),),
    },
    counters={"clicks.time": {"late": 2}},
    timers={"count": 60, "other": None},
    ended=True,
)
LOG = BatchLog(12, "7-1f3a", "{}", {"clicks": [0, 10]})


def test_a_manifest_comes_back_as_it_was_written():
    assert Manifest.from_json(MANIFEST.to_json(), "m") == MANIFEST
    assert BatchLog.from_json(LOG.to_json(), "l") == LOG


@pytest.mark.parametrize("document", [MANIFEST, LOG], ids=["manifest", "log"])
def test_every_cut_and_every_flipped_bit_of_a_document_is_noticed(document):
    data = document.to_json()
    body = data.rstrip(b"\n")
    for length in range(len(body)):
        with pytest.raises(StateError, match=r"checkpoint file 'somewhere/12\.json"):
            type(document).from_json(data[:length], "somewhere/12.json")
    for place in range(len(body)):
        flipped = bytearray(data)
        flipped[place] ^= 1 << place % 7
        with pytest.raises(StateError):
            type(document).from_json(bytes(flipped), "12.json")


def test_a_log_is_no_manifest_and_says_so():
    with pytest.raises(StateError, match="another kind of document"):
        Manifest.from_json(LOG.to_json(), "12.json")
    with pytest.raises(StateError, match="another kind of document"):
        BatchLog.from_json(MANIFEST.to_json(), "12.json")
    with pytest.raises(StateError, match="JSON of another kind"):
        Manifest.from_json(b"[1]", "12.json")


def test_many_neighbouring_buckets_take_little_space():
    assert bucket_ranges.to_text((*range(64), 70)) == "0-63,70"
    assert bucket_ranges.to_text((3, 1, 2)) == "1-3"


@given(st.sets(st.integers(0, 300)))
def test_ranges_stand_for_exactly_the_buckets_they_came_from(buckets):
    assert bucket_ranges.from_text(bucket_ranges.to_text(tuple(buckets))) == tuple(sorted(buckets))


def test_a_manifest_that_has_a_list_of_files_is_read_as_receipts():
    content = unseal(MANIFEST.to_json(), "m")
    content["sinks"] = [
        ["out", ".pending-1.csv", "part-00000012-000.csv", 3],
        ["out", ".pending-2.csv", "part-00000012-001.csv", 1],
        ["told", "000000000012-told", "000000000012-told", 2],
    ]
    read = Manifest.from_json(seal(content), "m")
    assert read.receipts("out") == (Receipt(".pending-1.csv", 3), Receipt(".pending-2.csv", 1))
    assert read.receipts("told") == (Receipt("000000000012-told", 2, staged=True),)


def test_a_receipt_of_another_kind_is_damage():
    content = unseal(MANIFEST.to_json(), "m")
    content["sinks"]["out"][0]["rows"] = "many"
    with pytest.raises(StateError, match=r"another kind of document.*rows"):
        Manifest.from_json(seal(content), "m")
