"""Reading files that people write: errors name the field, what it may hold and what it held."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from anabranch.errors import PlanError, Subject, nearest

_MISSING = object()


class Fields:
    """The fields of one JSON object, with where it stands in its file.

    Example:
        >>> operator = Fields(Subject("field", "operators[0]"), {"name": "parse", "cost": -2})
        >>> operator.text("name")
        'parse'
        >>> try:
        ...     operator.number("cost")
        ... except PlanError as error:
        ...     print(error.subject, "must be", error.expected)
        field operators[0].cost must be a number of 0 or more
    """

    def __init__(self, where: Subject, data: object) -> None:
        """Take an object; anything else is refused."""
        if not isinstance(data, dict):
            raise PlanError(where, "a JSON object", _shown(data), "write it as {…}")
        self.where = where
        self._data: Mapping[str, Any] = data

    @staticmethod
    def of(text: str, file: Subject) -> Fields:
        """The fields of a whole file."""
        try:
            return Fields(file, json.loads(text))
        except (ValueError, RecursionError) as error:
            raise PlanError(file, "JSON", str(error), "mend the file at that place") from error

    def place(self, field: str) -> Subject:
        """Where a field stands."""
        return Subject("field", f"{self.where.name}.{field}")

    def refuse(self, field: str, expected: str, remedy: str) -> PlanError:
        """The error for a field."""
        return PlanError(self.place(field), expected, _shown(self._data.get(field)), remedy)

    def only(self, *known: str) -> None:
        """Refuse fields that nobody reads: they are slips of the pen."""
        for field in self._data:
            if field not in known:
                raise PlanError(
                    self.where,
                    f"fields among {list(known)}",
                    repr(field),
                    nearest(field, known, "check its name"),
                )

    def has(self, field: str) -> bool:
        """Whether a field is given."""
        return self._data.get(field) is not None

    def _get(self, field: str, default: Any) -> Any:
        value = self._data.get(field)
        if value is not None:
            return value
        if default is _MISSING:
            raise PlanError(self.where, f"a field {field!r}", "none", "add it")
        return default

    def text(self, field: str, default: Any = _MISSING) -> Any:
        """A text that is not empty."""
        value = self._get(field, default)
        if value is not default and not (isinstance(value, str) and value):
            raise self.refuse(field, "a text", "put it in quotes")
        return value

    def number(self, field: str, default: Any = _MISSING, positive: bool = False) -> Any:
        """A finite number of 0 or more, or above 0."""
        value = self._get(field, default)
        if value is not default and not is_number(value, positive):
            least = "above 0" if positive else "of 0 or more"
            raise self.refuse(field, f"a number {least}", "measure it again, or leave it out")
        return value

    def whole(self, field: str, default: Any = _MISSING, least: int = 1) -> Any:
        """A whole number, at least so much."""
        value = self._get(field, default)
        if value is not default and not (type(value) is int and value >= least):
            raise self.refuse(field, f"a whole number of {least} or more", "count again")
        return value

    def one_of(self, field: str, choices: list[str], default: Any = _MISSING) -> Any:
        """One of some texts."""
        value = self._get(field, default)
        if value is not default and value not in choices:
            raise self.refuse(field, f"one of {choices}", nearest(value, choices))
        return value

    def flag(self, field: str, default: bool = False) -> bool:
        """True or false."""
        value = self._get(field, default)
        if not isinstance(value, bool):
            raise self.refuse(field, "true or false", "write it without quotes")
        return value

    def items(self, field: str, default: Any = _MISSING) -> list[Any]:
        """A list."""
        value = self._get(field, default)
        if not isinstance(value, list):
            raise self.refuse(field, "a list", "write it as […]")
        return value

    def objects(self, field: str) -> Iterator[Fields]:
        """A list of objects."""
        for number, data in enumerate(self.items(field)):
            yield Fields(Subject("field", f"{field}[{number}]"), data)

    def object(self, field: str) -> Fields | None:
        """An object, if there is one."""
        return Fields(self.place(field), self._data[field]) if self.has(field) else None

    def names(self) -> list[str]:
        """Its fields."""
        return list(self._data)


def is_number(value: object, positive: bool = False) -> bool:
    """Whether something is a finite number of 0 or more, or above 0."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    # Whole numbers may be too long to become floats.
    return (0 < value <= sys.float_info.max) or (value == 0 and not positive)


def _shown(value: object) -> str:
    shown = json.dumps(value, default=repr)
    return shown if len(shown) <= 60 else shown[:57] + "…"
