"""Hashes decide where state lives: stable, equal for equal keys, evenly spread."""

from __future__ import annotations

import math

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

from anabranch.columns import hashing
from anabranch.columns.hashing import bucket_of, hash_columns, order_prefix


def hashed(values: list[object], key_type: pa.DataType) -> list[int]:
    return hash_columns([pa.array(values, key_type)]).tolist()


GOLDEN = [
    (
        [pa.array([0, 1, -1, None])],
        [0xE220A8397B1DCDAF, 0x910A2DEC89025CC1, 0xE4D971771B652C20, 0xA24BAED4963EE407],
    ),
    (
        [pa.array(["", "a", "stream", "exactly8", "a text of 24 bytes here!"])],
        [
            0xE220A8397B1DCDAF,
            0x57D1AD9DAEAB1A7C,
            0x5AF47E493852ABA1,
            0x9FA7C19A90E16FF9,
            0x2FCDF3A7108FFC56,
        ],
    ),
    (
        [pa.array([0.0, 1.5, math.nan])],
        [0xE220A8397B1DCDAF, 0xD6DAB18E1392608A, 0xC72971D82E15BB46],
    ),
    ([pa.array(["host", None]), pa.array([443, 1])], [0x2951C77913BA6D46, 0xF36B4263B281BC67]),
]


@pytest.mark.parametrize(("columns", "expected"), GOLDEN)
def test_hashes_never_change(columns: list[pa.Array], expected: list[int]) -> None:
    assert hash_columns(columns).tolist() == expected


def test_buckets_never_change() -> None:
    hashes = hash_columns([pa.array(["to", "be", "or", "not"])])
    assert bucket_of(hashes, 256).tolist() == [30, 253, 131, 199]


def test_integers_of_any_width_hash_alike() -> None:
    widths = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint64()]
    assert len({tuple(hashed([0, 1, 127, None], width)) for width in widths}) == 1


def test_texts_of_any_type_hash_alike() -> None:
    values = ["", "a", "a longer text of words", None]
    encoded = hash_columns([pa.array(values).dictionary_encode()]).tolist()
    raw = [None if value is None else value.encode() for value in values]
    assert hashed(values, pa.string()) == hashed(values, pa.large_string()) == encoded
    assert hashed(raw, pa.binary()) == hashed(raw, pa.large_binary()) == encoded


def test_times_hash_as_their_integers() -> None:
    for key_type in [pa.timestamp("us"), pa.duration("ms"), pa.time64("ns"), pa.date32()]:
        width = pa.int32() if key_type == pa.date32() else pa.int64()
        column = pa.array([0, 86_400, None], width)
        assert (hash_columns([column.view(key_type)]) == hash_columns([column])).all()


def test_equal_floats_hash_alike_whatever_their_bits() -> None:
    signalling = np.array([0x7FF0_0000_0000_0001], np.uint64).view(np.float64)[0]
    zero, minus_zero, nan, other_nan, third_nan = hashed(
        [0.0, -0.0, math.nan, -math.nan, signalling], pa.float64()
    )
    assert zero == minus_zero
    assert nan == other_nan == third_nan != zero
    assert hashed([1.5], pa.float32()) == hashed([1.5], pa.float64())


def test_a_null_is_a_key_of_its_own() -> None:
    assert len(set(hashed([None, 0, 1], pa.int64()))) == 3
    assert len(set(hashed([None, "", "\0"], pa.string()))) == 3


def test_what_lies_under_a_null_does_not_count() -> None:
    column = pa.Array.from_buffers(
        pa.int64(), 2, [pa.py_buffer(b"\x00"), pa.py_buffer(np.array([1, 2]))]
    )
    assert len(set(hash_columns([column]).tolist())) == 1


def test_texts_that_differ_in_padding_or_word_order_differ() -> None:
    values = ["", "\0", "\0\0", "a", "a\0", "AAAAAAAABBBBBBBB", "BBBBBBBBAAAAAAAA", "AAAAAAAA"]
    assert len(set(hashed(values, pa.string()))) == len(values)


def test_columns_count_in_order() -> None:
    one, two = pa.array([1, 2]), pa.array([2, 1])
    assert not (hash_columns([one, two]) == hash_columns([two, one])).any()


@given(st.lists(st.none() | st.text(max_size=30)), st.integers(0, 5), st.integers(0, 20))
def test_a_row_hashes_alike_in_every_batch(values: list[str | None], start: int, size: int) -> None:
    column = pa.array(values, pa.string())
    part = column.slice(min(start, len(values)), size)
    alone = [hash_columns([pa.array([value], pa.string())])[0] for value in part.to_pylist()]
    assert hash_columns([part]).tolist() == alone


def test_columns_too_large_for_one_pass_hash_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = pa.array(["x" * (n % 50) for n in range(300)] + ["y" * 5000] + ["z"] * 50)
    numbers = pa.array(range(len(texts)))
    at_once, prefixes = hash_columns([texts, numbers]), order_prefix(texts)
    monkeypatch.setattr(hashing, "_SLICE_BYTES", 64)
    monkeypatch.setattr(hashing, "_SLICE_ROWS", 100)
    assert (hash_columns([texts, numbers]) == at_once).all()
    assert (order_prefix(texts) == prefixes).all()


@pytest.mark.parametrize(
    "key_type", [pa.decimal128(5), pa.list_(pa.int64()), pa.null(), pa.struct([("a", pa.int8())])]
)
def test_a_type_that_cannot_be_a_key_is_refused_by_name(key_type: pa.DataType) -> None:
    column = pa.array([None], key_type)
    for function in (lambda: hash_columns([column]), lambda: order_prefix(column)):
        with pytest.raises(TypeError, match=r"large_binary.* got ") as refusal:
            function()
        assert str(key_type) in str(refusal.value)


@pytest.mark.parametrize("buckets", [1, 2, 7, 100, 256, 1000])
def test_buckets_are_even(buckets: int) -> None:
    for column in (pa.array(range(100_000)), pa.array([f"k{n}" for n in range(100_000)])):
        share = np.bincount(bucket_of(hash_columns([column]), buckets), minlength=buckets)
        expected = 100_000 / buckets
        assert len(share) == buckets
        assert np.abs(share - expected).max() < 6 * math.sqrt(expected)


ORDERED = {
    pa.int64(): [None, -(2**63) + 1, -5, 0, 7, 2**63 - 1],
    pa.uint64(): [None, 0, 7, 2**62, 2**63, 2**64 - 1],
    pa.bool_(): [None, False, True],
    pa.float64(): [None, -math.inf, -2.5, -1e-300, 0.0, 1e-300, 2.5, math.inf, math.nan],
    pa.float32(): [None, -2.5, -1.0, 0.0, 2.5],
    pa.string(): [None, "", "\0", "a", "a\x01", "ab", "b", "12345678z", "é"],
    pa.large_binary(): [None, b"", b"\x7f", b"\x80", b"\xff", b"\xff" * 9],
    pa.date32(): [None, *pa.array([-1, 0, 1], pa.int32()).view(pa.date32()).to_pylist()],
}


@pytest.mark.parametrize("key_type", ORDERED)
def test_prefixes_follow_the_order_of_keys(key_type: pa.DataType) -> None:
    values = ORDERED[key_type]
    if pa.types.is_string(key_type):
        values = [None, *sorted(values[1:], key=lambda text: text.encode())]
    prefix = order_prefix(pa.array(values, key_type))
    assert (np.diff(prefix.astype(object)) >= 0).all()
    assert prefix[0] == np.iinfo(np.int64).min
    assert prefix.dtype == np.int64


@given(st.lists(st.binary(max_size=12), min_size=1))
def test_prefixes_of_texts_order_as_their_first_eight_bytes(values: list[bytes]) -> None:
    prefix = order_prefix(pa.array(values, pa.binary()).slice(0))
    padded = [value[:8].ljust(8, b"\0") for value in values]
    assert [int(p) + 2**63 for p in prefix] == [int.from_bytes(p, "big") for p in padded]


def test_prefixes_of_integers_are_themselves() -> None:
    assert order_prefix(pa.array([3, -4])).tolist() == [3, -4]
    assert order_prefix(pa.array([2**63 + 5], pa.uint64())).tolist() == [2**63 - 1]
