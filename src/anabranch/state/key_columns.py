"""The key columns of a table's batches: fitted to its schema, told apart by what is distinct."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from anabranch.state.key_words import (
    FixedWords,
    Ints,
    KeyKind,
    decoded,
    distinct_rows,
    kind_of,
    words_of,
)

_SAMPLE_ROWS = 4096
_MOSTLY_DISTINCT = 0.98


class KeyColumns:
    """What the key schema of a table says about its batches."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.none = pa.RecordBatch.from_pylist([], schema)
        self._kinds = [kind_of(field.type) for field in schema]

    def fitted(self, keys: Sequence[pa.Array]) -> list[pa.Array]:
        """Key columns with the types of the schema, texts without dictionaries.

        Raises:
            TypeError: A column is of another kind, such as text where the key is an integer.
        """
        columns = []
        for column, field, kind in zip(keys, self.schema, self._kinds, strict=True):
            if kind_of(column.type) is not kind:
                raise TypeError(
                    f"expected key {field.name!r} of type {field.type}, got {column.type}; cast it"
                )
            if kind is KeyKind.TEXT:
                columns.append(decoded(column))
            else:
                columns.append(column if column.type == field.type else column.cast(field.type))
        return columns

    def distinct(self, columns: Sequence[pa.Array]) -> tuple[Ints, Ints]:
        """First row of each distinct key of fitted columns, and each row's group number."""
        # Other keys than texts go as words, in which equal floats look equal.
        encodable: list[FixedWords | pa.Array] = [
            column if kind is KeyKind.TEXT else words_of(column)
            for column, kind in zip(columns, self._kinds, strict=True)
        ]
        return distinct_rows(encodable)

    def worth_encoding(self, columns: Sequence[pa.Array]) -> bool:
        """Whether to look up distinct keys only.

        Arrow finds equal texts faster than the table looks them up, which pays when they repeat;
        the first rows of a batch tell. Other keys are looked up as fast as Arrow compares them.
        """
        if KeyKind.TEXT not in self._kinds:
            return False
        firsts, codes = self.distinct([column.slice(0, _SAMPLE_ROWS) for column in columns])
        return len(firsts) < _MOSTLY_DISTINCT * len(codes)

    def batch(self, columns: Sequence[pa.Array]) -> pa.RecordBatch:
        """Key columns under their names."""
        return pa.RecordBatch.from_arrays(list(columns), schema=self.schema)


def taken(columns: Sequence[pa.Array], rows: Ints) -> list[pa.Array]:
    """Some rows of each column."""
    places = pa.array(rows)
    return [column.take(places) for column in columns]
