"""Key columns as machine words: the one form in which keys are hashed, compared and stored.

A fixed-width key is one int64 (integers, booleans and times by value, floats by the bits of their
double with -0.0 and NaN made canonical). A text key is its bytes in little-endian words, the last
one padded with zeros, plus its length. Two keys of one type are equal exactly when their words are.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]

SUPPORTED = (
    "integers, bool, date, time, timestamp, duration, float16/32/64, "
    "string, large_string, binary, large_binary, and dictionaries of the last four"
)
_NAN_BITS = np.int64(0x7FF8_0000_0000_0000)
_ONE = np.uint64(1)
_TAIL_WORD = np.array([0] + [(1 << (8 * n)) - 1 for n in range(1, 8)], np.uint64)
_TAIL_BYTES = np.arange(8)[None, :] < np.array([8, 1, 2, 3, 4, 5, 6, 7])[:, None]


class KeyKind(Enum):
    """How a key type becomes words."""

    INTEGER = "integer"
    FLOAT = "float"
    TEXT = "text"


def kind_of(key_type: pa.DataType) -> KeyKind:
    """The kind of a key type.

    Raises:
        TypeError: Values of this type cannot be keys.
    """
    if pt.is_dictionary(key_type) and kind_or_none(key_type.value_type) is KeyKind.TEXT:
        return KeyKind.TEXT
    kind = kind_or_none(key_type)
    if kind is None:
        raise TypeError(f"expected a key type in [{SUPPORTED}], got {key_type}; cast the column")
    return kind


def kind_or_none(key_type: pa.DataType) -> KeyKind | None:
    """The kind of a plain (not dictionary-encoded) type, None when it cannot be a key."""
    if pt.is_integer(key_type) or pt.is_boolean(key_type):
        return KeyKind.INTEGER
    if pt.is_date(key_type) or pt.is_time(key_type):
        return KeyKind.INTEGER
    if pt.is_timestamp(key_type) or pt.is_duration(key_type):
        return KeyKind.INTEGER
    if pt.is_floating(key_type):
        return KeyKind.FLOAT
    if pt.is_string(key_type) or pt.is_large_string(key_type):
        return KeyKind.TEXT
    if pt.is_binary(key_type) or pt.is_large_binary(key_type):
        return KeyKind.TEXT
    return None


@dataclass(frozen=True)
class FixedWords:
    """Fixed-width keys: a word each, zero where null; `nulls` is None when there are none."""

    values: Ints
    nulls: Mask | None

    def __len__(self) -> int:
        return len(self.values)

    def take(self, rows: Ints) -> FixedWords:
        """The keys of some rows."""
        return FixedWords(
            self.values.take(rows), None if self.nulls is None else self.nulls.take(rows)
        )

    def to_arrow(self, key_type: pa.DataType) -> pa.Array:
        """Back to the Arrow type the words came from."""
        width = pa.bool_() if pt.is_boolean(key_type) else _storage_type(key_type)
        if kind_of(key_type) is KeyKind.FLOAT:
            plain = self.values.view(np.float64).astype(width.to_pandas_dtype())
        else:
            plain = self.values.astype(width.to_pandas_dtype(), copy=False)
        # from_pandas=False: with a mask, NaN must stay NaN and not become null.
        return pa.array(plain, type=width, mask=self.nulls, from_pandas=False).view(key_type)


@dataclass(frozen=True)
class TextWords:
    """Variable-width keys: row i is `words[first[i]:first[i + 1]]`; length -1 is null."""

    words: Words
    first: Ints
    lengths: Ints

    def __len__(self) -> int:
        return len(self.lengths)

    def take(self, rows: Ints) -> TextWords:
        """The keys of some rows."""
        flat, first = ranges(self.first.take(rows), word_counts(self.lengths.take(rows)))
        return TextWords(self.words.take(flat), first, self.lengths.take(rows))

    def to_arrow(self, key_type: pa.DataType) -> pa.Array:
        """Back to an Arrow string or binary column."""
        sizes = np.maximum(self.lengths, 0)
        keep = np.ones((len(self.words), 8), np.bool_)
        filled = np.flatnonzero(sizes)
        keep[self.first[1:][filled] - 1] = _TAIL_BYTES[sizes[filled] & 7]
        data = np.ascontiguousarray(self.words, "<u8").view(np.uint8).reshape(-1, 8)[keep]
        wide = pt.is_large_string(key_type) or pt.is_large_binary(key_type)
        if not wide and len(data) > np.iinfo(np.int32).max:
            raise ValueError(f"expected at most 2 GiB of {key_type} keys in one batch")
        offsets = np.zeros(len(self) + 1, np.int64 if wide else np.int32)
        np.cumsum(sizes, out=offsets[1:])
        nulls = self.lengths < 0
        valid = pa.py_buffer(np.packbits(~nulls, bitorder="little")) if nulls.any() else None
        buffers = [valid, pa.py_buffer(offsets), pa.py_buffer(data)]
        return pa.Array.from_buffers(key_type, len(self), buffers)


KeyWords = FixedWords | TextWords


def words_of(column: pa.Array) -> KeyWords:
    """The words of a key column."""
    kind = kind_of(column.type)
    if kind is KeyKind.TEXT:
        return _text_words(decoded(column))
    return _fixed_words(column, kind)


def decoded(column: pa.Array) -> pa.Array:
    """The column without dictionary encoding."""
    return column.dictionary_decode() if pt.is_dictionary(column.type) else column


def text_offsets(column: pa.Array) -> Ints:
    """Where each text of a (decoded) column starts in its data buffer, and where the last ends."""
    if len(column) == 0:
        return np.zeros(1, np.int64)
    wide = pt.is_large_string(column.type) or pt.is_large_binary(column.type)
    dtype = np.dtype(np.int64 if wide else np.int32)
    start = column.offset * dtype.itemsize
    return np.frombuffer(column.buffers()[1], dtype, len(column) + 1, start).astype(np.int64)


def ranges(starts: Ints, counts: Ints) -> tuple[Ints, Ints]:
    """Indices of consecutive runs, flat, and where each run begins in that flat array.

    Example:
        >>> flat, first = ranges(np.array([5, 0]), np.array([2, 1]))
        >>> flat.tolist(), first.tolist()
        ([5, 6, 0], [0, 2, 3])
    """
    first = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=first[1:])
    flat = np.repeat(starts - first[:-1], counts)
    flat += np.arange(first[-1])
    return flat, first


def word_counts(lengths: Ints) -> Ints:
    """How many words texts of these lengths take; null (-1) takes none."""
    return (lengths + 7) >> 3


def distinct_rows(columns: Sequence[FixedWords | pa.Array]) -> tuple[Ints, Ints]:
    """First row of each distinct key, in order of occurrence, and each row's group number."""
    codes, groups = group_codes(columns)
    firsts = np.full(groups, len(codes), np.int64)
    np.minimum.at(firsts, codes, np.arange(len(codes)))
    return firsts, codes


def group_codes(columns: Sequence[FixedWords | pa.Array]) -> tuple[Ints, int]:
    """Each row's group number, in order of first occurrence, and how many groups there are.

    Text columns come as Arrow arrays, since Arrow finds equal texts faster than words do.
    """
    codes, groups = _codes(columns[0])
    for column in columns[1:]:
        more, width = _codes(column)
        # Both counts are at most the number of rows, so their product fits 63 bits.
        codes, groups = _codes(FixedWords(codes * max(width, 1) + more, None))
    return codes, groups


def text_codes(column: pa.Array) -> tuple[Ints, pa.Array]:
    """Each row's group number, in order of first occurrence, and the text of each group."""
    encoded = column.dictionary_encode(null_encoding="encode")
    return encoded.indices.to_numpy().astype(np.int64), encoded.dictionary


def _codes(column: FixedWords | pa.Array) -> tuple[Ints, int]:
    if isinstance(column, FixedWords):
        column = pa.array(column.values, mask=column.nulls)
    codes, distinct = text_codes(column)
    return codes, len(distinct)


def _storage_type(key_type: pa.DataType) -> pa.DataType:
    """The plain number type with the same memory layout."""
    if pt.is_integer(key_type) or pt.is_floating(key_type):
        return key_type
    return pa.int32() if key_type.bit_width == 32 else pa.int64()


def _fixed_words(column: pa.Array, kind: KeyKind) -> FixedWords:
    if pt.is_boolean(column.type):
        column = column.cast(pa.int8())
    if len(column) == 0:
        return FixedWords(np.zeros(0, np.int64), None)
    dtype = np.dtype(_storage_type(column.type).to_pandas_dtype())
    start = column.offset * dtype.itemsize
    raw = np.frombuffer(column.buffers()[1], dtype, len(column), start)
    nulls = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None
    if kind is KeyKind.FLOAT:
        with np.errstate(invalid="ignore"):  # signalling NaNs complain when widened
            doubles = raw.astype(np.float64)
        doubles[doubles == 0] = 0.0  # -0.0 is the same key
        values = doubles.view(np.int64)
        values[np.isnan(doubles)] = _NAN_BITS
    elif raw.dtype.itemsize == 8:
        values = raw.view(np.int64)
    else:
        values = raw.astype(np.int64)
    # What lies under a null is undefined in Arrow, but equal keys must have equal words.
    return FixedWords(values if nulls is None else np.where(nulls, 0, values), nulls)


def _text_words(column: pa.Array) -> TextWords:
    rows = len(column)
    data = column.buffers()[2]
    offsets = text_offsets(column)
    base, end = int(offsets[0]), int(offsets[-1])
    # A copy with slack, so that an unaligned word can be read as two aligned ones.
    aligned = np.zeros((end - base + 7) // 8 + 1, np.uint64)
    if end > base:
        aligned.view(np.uint8)[: end - base] = np.frombuffer(data, np.uint8, end - base, base)
    if sys.byteorder == "big":
        aligned = aligned.byteswap()
    offsets -= base
    lengths = np.diff(offsets)
    if column.null_count:
        lengths[column.is_null().to_numpy(zero_copy_only=False)] = -1
    counts = word_counts(lengths)
    first = np.zeros(rows + 1, np.int64)
    np.cumsum(counts, out=first[1:])
    starts = np.repeat(offsets[:-1] - 8 * first[:-1], counts)
    starts += np.arange(0, 8 * first[-1], 8)
    shift = ((starts & 7) << 3).view(np.uint64)
    starts >>= 3
    words = aligned.take(starts) >> shift
    starts += 1
    # Two shifts, since shifting a word by 64 at once is undefined.
    words |= (aligned.take(starts) << _ONE) << (np.uint64(63) - shift)
    ragged = np.flatnonzero((lengths > 0) & (lengths & 7 != 0))
    words[first[1:][ragged] - 1] &= _TAIL_WORD[lengths[ragged] & 7]
    return TextWords(words, first, lengths)
