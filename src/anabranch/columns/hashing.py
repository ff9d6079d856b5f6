"""Stable hashes of key columns: they decide where state lives, so they never change.

The same key has the same hash in every process, on every platform, in every batch and at every
width of its type. Golden values in the tests hold this file to that.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from anabranch.columns.key_words import (
    FixedWords,
    Ints,
    KeyKind,
    KeyWords,
    TextWords,
    Words,
    decoded,
    kind_of,
    text_offsets,
    words_of,
)

# Rows are hashed in slices of about this many bytes of text: temporaries are several times larger.
_SLICE_BYTES = 1 << 22
_SLICE_ROWS = 1 << 17

_GOLDEN = np.uint64(0x9E37_79B9_7F4A_7C15)
_MIX_1 = np.uint64(0xBF58_476D_1CE4_E5B9)
_MIX_2 = np.uint64(0x94D0_49BB_1331_11EB)
_NULL_HASH = np.uint64(0xA24B_AED4_963E_E407)
_SIGN = np.uint64(1 << 63)
_LOWEST = np.iinfo(np.int64).min


def hash_columns(columns: Sequence[pa.Array]) -> Words:
    """One 64-bit hash per row of one or several key columns.

    Raises:
        TypeError: A column's type cannot be a key.

    Example:
        >>> narrow, wide = pa.array([7, None], pa.int8()), pa.array([7, None], pa.uint64())
        >>> bool((hash_columns([narrow]) == hash_columns([wide])).all())
        True
    """
    kinds = [kind_of(column.type) for column in columns]
    columns = [decoded(column) for column in columns]
    parts = [
        hash_words([words_of(column.slice(start, stop - start)) for column in columns])
        for start, stop in _slices(columns, kinds)
    ]
    return np.concatenate(parts) if parts else np.zeros(0, np.uint64)


def hash_words(columns: Sequence[KeyWords]) -> Words:
    """The same hash, of keys that are words already."""
    mixed = _column_hash(columns[0])
    for column in columns[1:]:
        # Multiplying first makes (a, b) and (b, a) different keys.
        mixed *= _MIX_1
        mixed ^= _column_hash(column)
        mixed = _mix(mixed)
    return mixed


def bucket_of(hashes: Words, buckets: int) -> Ints:
    """The bucket of each hash: its high half scaled to the number of buckets.

    The keyed table places rows by the low half, so that the keys of one bucket do not crowd there.

    Example:
        >>> hashes = hash_columns([pa.array(["a", "b", "c"])])
        >>> bool((bucket_of(hashes, 1) == 0).all())
        True
    """
    return (((hashes >> np.uint64(32)) * np.uint64(buckets)) >> np.uint64(32)).view(np.int64)


def order_prefix(column: pa.Array) -> Ints:
    """Integers whose order follows the order of the keys, as far as 64 bits can tell.

    Nulls come first, NaN last; texts that share their first eight bytes tie.

    Example:
        >>> order_prefix(pa.array(["b", "a", None])).argsort().tolist()
        [2, 1, 0]
    """
    kind = kind_of(column.type)
    if kind is KeyKind.TEXT:
        return _text_prefix(column)
    words = words_of(column)
    assert isinstance(words, FixedWords)
    prefix = words.values
    if kind is KeyKind.FLOAT:
        # A double's bits order as an integer does, except that negatives run backwards.
        prefix = np.where(prefix < 0, prefix ^ np.int64(0x7FFF_FFFF_FFFF_FFFF), prefix)
    elif pt.is_uint64(column.type):
        prefix = np.where(prefix < 0, np.iinfo(np.int64).max, prefix)
    return prefix.copy() if words.nulls is None else np.where(words.nulls, _LOWEST, prefix)


def _text_prefix(column: pa.Array) -> Ints:
    column = decoded(column)
    prefix = np.full(len(column), _LOWEST, np.int64)
    for start, stop in _slices([column], [KeyKind.TEXT]):
        words = words_of(column.slice(start, stop - start))
        assert isinstance(words, TextWords)
        filled = np.flatnonzero(words.lengths > 0)
        heads = words.words[words.first[filled]].byteswap() ^ _SIGN
        prefix[start + filled] = heads.view(np.int64)
    return prefix


def _column_hash(column: KeyWords) -> Words:
    if isinstance(column, FixedWords):
        hashes = _mix(column.values.view(np.uint64) + _GOLDEN)
        nulls: npt.NDArray[np.bool_] | None = column.nulls
    else:
        hashes = _text_hash(column)
        nulls = column.lengths < 0
    if nulls is not None:
        hashes[nulls] = _NULL_HASH
    return hashes


def _text_hash(column: TextWords) -> Words:
    counts = np.diff(column.first)
    place = np.arange(1, len(column.words) + 1)
    place -= np.repeat(column.first[:-1], counts)
    # Each word is mixed with its place before the sum, so that order counts.
    terms = _mix(column.words ^ (place.view(np.uint64) * _GOLDEN))
    sums = np.zeros(len(terms) + 1, np.uint64)
    np.cumsum(terms, out=sums[1:])
    totals = sums[column.first[1:]] - sums[column.first[:-1]]
    return _mix(totals + column.lengths.view(np.uint64) * _MIX_2 + _GOLDEN)


def _mix(hashes: Words) -> Words:
    """The finalizer of splitmix64, in place: each input bit reaches each output bit."""
    hashes ^= hashes >> np.uint64(30)
    hashes *= _MIX_1
    hashes ^= hashes >> np.uint64(27)
    hashes *= _MIX_2
    hashes ^= hashes >> np.uint64(31)
    return hashes


def _slices(columns: Sequence[pa.Array], kinds: Sequence[KeyKind]) -> list[tuple[int, int]]:
    """Row ranges of bounded size; a row larger than the bound shares its range with few others."""
    rows = len(columns[0])
    cuts = [np.arange(0, rows, _SLICE_ROWS)]
    for column, kind in zip(columns, kinds, strict=True):
        if kind is KeyKind.TEXT and column.nbytes > _SLICE_BYTES:
            offsets = text_offsets(column)
            marks = np.arange(offsets[0] + _SLICE_BYTES, offsets[-1], _SLICE_BYTES)
            cuts.append(np.searchsorted(offsets[:-1], marks))
    edges = np.unique(np.concatenate([*cuts, np.array([rows])])).tolist()
    return list(pairwise(edges))
