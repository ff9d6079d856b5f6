"""What a field looks like: right for its type, surely wrong, or doubtful. Saves reading one by one.

Arrow's readers give all texts of a batch or none. Here is said which ones to keep from it: a field
that is surely wrong is one that Arrow never takes; of the others nothing depends on what they look
like, but how many have to be read by themselves.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from anabranch.columns.key_words import Mask

_DATE = r"\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])"
_CLOCK = r"(?:[01]\d|2[0-3]):[0-5]\d(?::[0-5]\d(?:\.\d{1,9})?)?"
_TIME = rf"{_DATE}(?:[ T]{_CLOCK}(?:Z|[+-]\d\d(?::?\d\d)?)?)?"
_FLOAT = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_POSSIBLE_TIME = r"[\d\s:TZ.+-]*"
NO_OBJECT = "no JSON object"
ABOUT = b"about"
"""Where a field's metadata has a note for users."""

Check = Callable[[Any], bool]
_DIGITS = {8: 2, 16: 4, 32: 9, 64: 18}  # that surely fit, by bits
_PYTHON = ((pa.types.is_string, str), (pa.types.is_boolean, bool), (pa.types.is_struct, dict))


class TypeMatch(NamedTuple):
    """How fields look: as their type should, or as it never does. The others are doubtful."""

    right: Mask
    wrong: Mask


def looks_in_csv(cells: pa.ChunkedArray, kind: pa.DataType) -> TypeMatch:
    """Which fields look right for a type, as empty ones do, and which are surely wrong.

    Example:
        >>> looks = looks_in_csv(pa.chunked_array([["1", "one", "", "1" * 30]]), pa.int64())
        >>> looks.right.tolist(), looks.wrong.tolist()
        ([True, False, True, False], [False, True, False, False])
    """
    right, possible = _shapes(kind)
    if right is None:
        return TypeMatch(np.ones(len(cells), np.bool_), np.zeros(len(cells), np.bool_))
    looks_right: Mask = pc.match_substring_regex(cells, f"^(?:{right})?$").to_numpy()
    is_possible = pc.match_substring_regex(cells, rf"^\s*(?:{possible})?\s*$").to_numpy()
    return TypeMatch(looks_right, ~is_possible)


class JsonTypeMatch:
    """How JSON texts look that should be objects with certain fields.

    Example:
        >>> looks = JsonTypeMatch(pa.schema([("n", pa.int64())]))
        >>> [looks.of(text) for text in ('{"n": 1}', '{"n": "1"}', "{", '{"n": 1.5}')]
        [True, "no int64 in 'n': '1'", 'no JSON object', "no int64 in 'n': 1.5"]
    """

    def __init__(self, columns: pa.Schema) -> None:
        """Say which fields."""
        self._fields = [(f, f.name, _is_possible(f.type)) for f in columns]
        self._decode = _decoder(columns).decode

    def of(self, text: str) -> bool | str:
        """Whether a text looks right; if it is surely wrong, why."""
        try:
            self._decode(text)
        except (ValueError, RecursionError):
            return self._doubt(text)
        return True

    def _doubt(self, text: str) -> bool | str:
        """Why a text is surely wrong; False if that is not sure."""
        try:
            found = json.loads(text, strict=False)
        except json.JSONDecodeError:
            return NO_OBJECT
        except (ValueError, RecursionError):
            return False
        if not isinstance(found, dict):
            return NO_OBJECT
        for field, name, is_possible in self._fields:
            value = found.get(name)
            if value is not None and not is_possible(value):
                return no_such_value(field, value)
        return False


def no_such_value(field: pa.Field, value: Any) -> str:
    """What is wrong with a value that is surely none of a field's type."""
    noted = about(field)
    where = f"{field.name!r} ({noted})" if noted else repr(field.name)
    return f"no {field.type} in {where}: {shortened(value)}"


def shortened(value: Any) -> str:
    """A value as text, short enough to be said of a row."""
    shown = repr(value)
    return shown if len(shown) <= 100 else shown[:97] + "..."


def about(field: pa.Field) -> str:
    """What there is to say of a field beyond its name and type, such as the unit of its values."""
    noted: bytes = (field.metadata or {}).get(ABOUT, b"")
    return noted.decode()


def _is_possible(kind: pa.DataType) -> Check:
    """Whether a value in JSON may be of a type."""
    if pa.types.is_integer(kind):
        signed, bits = pa.types.is_signed_integer(kind), kind.bit_width
        least, end = (-(2 ** (bits - 1)), 2 ** (bits - 1)) if signed else (0, 2**bits)
        return lambda value: type(value) is int and least <= value < end
    if pa.types.is_floating(kind):
        return lambda value: type(value) in (int, float)
    if pa.types.is_timestamp(kind):
        time = re.compile(_POSSIBLE_TIME)
        return lambda value: type(value) is str and time.fullmatch(value) is not None
    if pa.types.is_list(kind):
        each = _is_possible(kind.value_type)
        return lambda value: type(value) is list and all(v is None or each(v) for v in value)
    for is_kind, python in _PYTHON:
        if is_kind(kind):
            return lambda value: type(value) is python
    return lambda value: True


@lru_cache(maxsize=64)
def _decoder(columns: pa.Schema) -> msgspec.json.Decoder[Any]:
    """What reads a JSON object whose fields look as their types should."""
    names = {f"f{place}": name for place, name in enumerate(columns.names)}
    fields = [(f"f{n}", _right(f.type) | None, None) for n, f in enumerate(columns)]
    return msgspec.json.Decoder(msgspec.defstruct("Row", fields, rename=names, gc=False))


def _right(kind: pa.DataType) -> Any:
    """The values of JSON that look as a type should, as a type of msgspec."""
    if pa.types.is_integer(kind):
        most = 10 ** _DIGITS[kind.bit_width] - 1
        least = -most if pa.types.is_signed_integer(kind) else 0
        return Annotated[int, Meta(ge=least, le=most)]
    if pa.types.is_floating(kind):
        return float
    if pa.types.is_boolean(kind):
        return bool
    if pa.types.is_list(kind):
        return list[_right(kind.value_type) | None]  # type: ignore[misc]
    if pa.types.is_struct(kind):
        return dict
    return Annotated[str, Meta(pattern=rf"^(?:{_TIME})\Z")] if pa.types.is_timestamp(kind) else str


def _shapes(kind: pa.DataType) -> tuple[str | None, str]:
    """What surely is of a type, unless it is a day that does not exist; and what may be."""
    if pa.types.is_integer(kind):
        sign = "-?" if pa.types.is_signed_integer(kind) else ""
        fits = rf"{sign}\d{{1,{_DIGITS[kind.bit_width]}}}"
        return fits, r"[-+]?(?:\d+|0[xX][0-9a-fA-F]+)"
    if pa.types.is_floating(kind):
        return _FLOAT, r"[-+]?(?:[\d.]+(?:[eE][-+]?\d*)?|(?i:nan|inf|infinity)(?:\(.*\))?)"
    if pa.types.is_date(kind):
        return _DATE, r"[\d\s-]*"
    if pa.types.is_timestamp(kind):
        return _TIME, _POSSIBLE_TIME
    return None, ""
