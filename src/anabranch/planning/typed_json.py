"""Documents: JSON that is read into typed values, with errors that name the field and its value.

msgspec compares a document with the types of a dataclass. This module adds what its errors lack:
the value that came, what to do about it, and the names that would have been right.
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, inspect

from anabranch.errors import PlanError, Subject, nearest

MOST = sys.float_info.max
Amount = Annotated[float, Meta(ge=0, le=MOST)]
Positive = Annotated[float, Meta(gt=0, le=MOST)]
Share = Annotated[float, Meta(ge=0, le=1)]
Count = Annotated[int, Meta(ge=1)]
Index = Annotated[int, Meta(ge=0)]
Text = Annotated[str, Meta(min_length=1)]

T = TypeVar("T")

_WORDS = {
    "str": ("a text", "put it in quotes"),
    "int": ("a whole number", "count again"),
    "float": ("a number", "measure it again, or leave it out"),
    "bool": ("true or false", "write it without quotes"),
    "array": ("a list", "write it as […]"),
    "object": ("an object", "write it as {…}"),
}
_MISSING = "none"
_BOUNDS = {">": "above {}", ">=": "of {} or more", "<=": "of at most {}"}
_EXPECTED = re.compile(r"Expected `(\w+)[^`]*`(?: of length (\d+)| ([<>]=?) (\S+))?")
_STEP = re.compile(r"\.(\w+)|\[(\d+)\]")


@dataclass(eq=False)
class Misfit(ValueError):
    """A value that the type of its field does not allow.

    Attributes:
        place: The path to it, such as `.operators[0] 'parse'.cost`; empty for a whole document.
        expected: The values that are allowed there.
        got: The value that came, as JSON.
        remedy: What to do about it.
    """

    place: str
    expected: str
    got: str
    remedy: str

    def __str__(self) -> str:
        """Return a clause."""
        place = self.place.removeprefix(".") or "it"
        if self.got == _MISSING:
            return f"{place} lacks {self.expected}"
        return f"{place} is {self.got}, not {self.expected}"


def read_document(text: str, file: Subject, kind: type[T]) -> T:
    """Return the text of a file as a dataclass; fields that the dataclass lacks are refused.

    Raises:
        PlanError: The text is no JSON, or a value does not fit its field.

    Example:
        >>> from anabranch.planning.profile import Overheads
        >>> read_document('{"replication": 2}', Subject("file", "mine"), Overheads)
        Overheads(thread_switch=0.0, replication=2.0)
        >>> read_document('{"replicaton": 2}', Subject("file", "mine"), Overheads)
        Traceback (most recent call last):
            ...
        anabranch.errors.PlanError: file 'mine': expected fields among ['thread_switch', \
'replication'], got 'replicaton'; did you mean 'replication'?
    """
    return as_document(parsed(text, file), file, kind)


def parsed(text: str, file: Subject) -> dict[str, Any]:
    """Return the JSON object in the text of a file; a field that is null is left out."""
    try:
        content = json.loads(text, object_hook=_without_nulls)
    except (ValueError, RecursionError) as error:
        raise PlanError(file, "JSON", str(error), "fix the file at that place") from error
    if not isinstance(content, dict):
        raise PlanError(file, "a JSON object", shown(content), "write it as {…}")
    return content


def as_document(
    content: object, file: Subject, kind: type[T], place: str = "", *, strict: bool = True
) -> T:
    """Return a value of a file as a type.

    Args:
        content: The value.
        file: The file, for errors.
        kind: The type.
        place: The path to the value in the file.
        strict: Whether fields that the type lacks are refused.
    """
    described: object = kind  # type[T] is not Hashable to mypy
    try:
        if strict:
            _require_names(_described(described), content, "")
        return fitted(content, kind)
    except Misfit as misfit:
        raise refused(file, place + misfit.place, misfit.expected, misfit.got, misfit.remedy) from (
            misfit
        )


def refused(file: Subject, place: str, expected: str, got: str, remedy: str) -> PlanError:
    """Return the error about a value at a place in a file; elements of lists name no file."""
    name = place.removeprefix(".") if "[" in place else f"{file.name}{place}"
    return PlanError(Subject("field", name) if place else file, expected, got, remedy)


def fitted(content: object, kind: type[T]) -> T:
    """Return parsed JSON as a value of a type; fields that the type lacks are left out.

    Raises:
        Misfit: A value does not fit its field.
    """
    try:
        return msgspec.convert(content, kind)
    except msgspec.ValidationError as error:
        raise _misfit(str(error), content) from error


def shown(value: object) -> str:
    """Return a value as short JSON."""
    text = json.dumps(value, ensure_ascii=False, default=repr).encode(errors="replace").decode()
    return text if len(text) <= 60 else text[:57] + "…"


def is_number(value: object, positive: bool = False) -> bool:
    """Whether something is a finite number of 0 or more, or above 0."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    # Whole numbers may be too long to become floats.
    return (0 < value <= MOST) or (value == 0 and not positive)


@cache
def _described(kind: Any) -> inspect.Type:
    return inspect.type_info(kind)


def _without_nulls(content: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in content.items() if value is not None}


def _misfit(message: str, content: Any) -> Misfit:
    """Put an error of msgspec into our words, with the value that it is about."""
    said, _, path = message.partition(" - at `$")
    place = ""
    for name, number in _STEP.findall(path.partition("[...]")[0]):  # it leaves out keys of mappings
        content = content[name] if name else content[int(number)]
        place += f".{name}" if name else _element(int(number), content)
    if said.startswith("Object missing"):
        return Misfit(place, f"a field {said.split('`')[1]!r}", _MISSING, "add it")
    if (found := _EXPECTED.match(said)) is None:
        wanted = "a finite number" if said.startswith("Number") else "a word that is known"
        return Misfit(place, wanted, shown(content), "change it")
    kind, length, sign, bound = found.groups()
    expected, remedy = _WORDS[kind]
    if length:
        expected += f" of {length} values"
    elif sign:
        expected += f" {_BOUNDS[sign]}".format(f"{float(bound):g}")
    return Misfit(place, expected, shown(content), remedy)


def _require_names(kind: inspect.Type, content: Any, place: str) -> None:
    """Raise for a field or a word that the type does not know, with the nearest that it does."""
    match kind, content:
        case inspect.UnionType(), _:
            for each in kind.types:
                _require_names(each, content, place)
        case inspect.DataclassType(), dict():
            known = {field.name: field.type for field in kind.fields}
            for name, value in content.items():
                if name not in known:
                    remedy = nearest(name, known, "check its name")
                    raise Misfit(place, f"fields among {list(known)}", repr(name), remedy)
                _require_names(known[name], value, f"{place}.{name}")
        case inspect.VarTupleType(), list():
            for number, value in enumerate(content):
                _require_names(kind.item_type, value, place + _element(number, value))
        case inspect.EnumType(), str():
            _require_word([each.value for each in kind.cls], content, place)
        case inspect.LiteralType(), str():
            _require_word([str(each) for each in kind.values], content, place)


def _require_word(words: list[str], content: str, place: str) -> None:
    if content not in words:
        raise Misfit(place, f"one of {words}", shown(content), nearest(content, words))


def _element(number: int, value: object) -> str:
    """The path of an element of a list, with its name if it has one."""
    name = value.get("name") if isinstance(value, dict) else None
    return f"[{number}] {name!r}" if isinstance(name, str) else f"[{number}]"
