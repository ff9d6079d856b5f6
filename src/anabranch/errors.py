"""Every error of the library: a tree under AnabranchError.

Each message answers four questions in the same order: what it is about, what was expected, what
came, and what to do about it. Build errors are raised while the graph is composed, so that a flow
that exists is a flow that can run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum
from typing import Literal, TypeVar

Kind = Literal[
    "address",
    "application",
    "argument",
    "batch",
    "checkpoint",
    "checkpoint file",
    "dashboard",
    "decorator",
    "directory",
    "engine",
    "field",
    "file",
    "flow",
    "machine",
    "operator",
    "option",
    "package",
    "plan",
    "planner",
    "policy",
    "profile",
    "region",
    "run",
    "scenario",
    "sink",
    "source",
    "state",
    "step",
]
"""The kinds of things that an error can be about."""

_DESCRIBED = frozenset({"batch", "field", "sink", "source"})
"""Kinds with a number, a path or a description in place of a name, shown without quotes."""


@dataclass(frozen=True)
class Subject:
    """The thing that an error is about.

    Attributes:
        kind: What it is.
        name: Its name, "" where there is one such thing only.

    Example:
        >>> print(
        ...     Subject("engine", "flink"), Subject("source", "files 'a.csv'"), Subject("dashboard")
        ... )
        engine 'flink' source files 'a.csv' dashboard
    """

    kind: Kind
    name: str = ""

    def __str__(self) -> str:
        """Return the start of a message."""
        if not self.name:
            return self.kind
        return f"{self.kind} {self.name if self.kind in _DESCRIBED else repr(self.name)}"


About = Subject | str
"""What an error is about; a plain text is the name of a step."""


class AnabranchError(Exception):
    """Base of every error raised on purpose by this library.

    Example:
        >>> print(BuildError("count", "a key in [word]", "'wrd'", "use one of those columns"))
        step 'count': expected a key in [word], got 'wrd'; use one of those columns
        >>> print(EngineError(Subject("engine", "spark"), "Java 17", "none", "install a JDK"))
        engine 'spark': expected Java 17, got none; install a JDK
    """

    def __init__(self, about: About, expected: str, got: str, remedy: str) -> None:
        self.subject = Subject("step", about) if isinstance(about, str) else about
        self.expected = expected
        self.got = got
        self.remedy = remedy
        super().__init__(f"{self.subject}: expected {expected}, got {got}; {remedy}")

    @property
    def step(self) -> str | None:
        """The name of the step that the error is about; None if it is about something else."""
        return self.subject.name if self.subject.kind == "step" else None

    def __reduce__(self) -> tuple[type[AnabranchError], tuple[Subject, str, str, str]]:
        """Errors cross process borders, so they must survive pickling."""
        return type(self), (self.subject, self.expected, self.got, self.remedy)


class BuildError(AnabranchError):
    """The graph cannot be what the author wrote: unknown key, cycle, doubled name, open port."""


class SchemaError(BuildError):
    """Columns or types do not fit."""


class PlanError(AnabranchError):
    """A plan that does not belong to its flow, or breaks one of its bounds."""


class OperatorError(AnabranchError):
    """The author's code raised, or broke the contract of its shape, while running."""


class BufferLimitError(OperatorError):
    """A schedule's buffer grew past its bound: one port runs far ahead of another."""


class SourceError(AnabranchError):
    """A source cannot be read: missing file, unreadable content, a schema that changed."""


class SinkError(AnabranchError):
    """A sink cannot be written."""


class StateError(AnabranchError):
    """State is not what its owner left: wrong bucket, damaged snapshot."""


class EngineError(AnabranchError):
    """An engine cannot run here: a runtime is missing, too old, or set up in another way."""


class UnknownNameError(AnabranchError):
    """A name given by the user (an application, an engine, a step) is not one we know."""


class DeterminismError(AnabranchError):
    """A flow's output depends on how it was run."""


Choice = TypeVar("Choice", bound=Enum)


def chosen(about: About, argument: str, value: object, choices: Iterable[Choice]) -> Choice:
    """Return the member of an enum that a user gave, or named by its value.

    Raises:
        BuildError: It is not among the choices; the error suggests the nearest one.

    Example:
        >>> class Colour(Enum):
        ...     RED, GREEN = "red", "green"
        >>> chosen("paint", "colour", "red", Colour)
        <Colour.RED: 'red'>
        >>> chosen("paint", "colour", "gren", Colour)
        Traceback (most recent call last):
            ...
        anabranch.errors.BuildError: step 'paint': expected colour in ['red', 'green'], got \
'gren'; did you mean 'green'?
    """
    by_name = {each.value: each for each in choices}
    for name, each in by_name.items():
        if value in (each, name):
            return each
    raise BuildError(about, f"{argument} in {[*by_name]}", repr(value), nearest(value, by_name))


def require_kind(argument: str, value: object, *kinds: type) -> None:
    """Refuse an argument that is neither left out nor of one of some classes.

    Example:
        >>> require_kind("step", "count", int)
        Traceback (most recent call last):
            ...
        anabranch.errors.BuildError: argument 'step': expected a value of class int, got str \
'count'; pass one, or leave it out
    """
    if value is not None and (isinstance(value, bool) or not isinstance(value, kinds)):
        raise BuildError(
            Subject("argument", argument),
            f"a value of class {' or '.join(kind.__name__ for kind in kinds)}",
            f"{type(value).__name__} {value!r:.80}",
            "pass one, or leave it out",
        )


def is_count(value: object, least: int) -> bool:
    """Whether a value the user gave is a whole number of at least so much."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def nearest(value: object, known: Iterable[str], otherwise: str = "choose one of those") -> str:
    """Return what to do about a name that is not among the known ones.

    Example:
        >>> nearest("evry", ["every", "final"]), nearest("x", ["every", "final"])
        ("did you mean 'every'?", 'choose one of those')
    """
    close = get_close_matches(str(value), list(known), n=1)
    return f"did you mean {close[0]!r}?" if close else otherwise


def unknown(kind: Kind, name: str, known: Iterable[str]) -> UnknownNameError:
    """Return the error about a name that none of its kind has.

    Example:
        >>> print(unknown("engine", "sprak", ["spark", "local"]))
        engine 'sprak': expected an engine among ['spark', 'local'], got 'sprak'; did you mean \
'spark'?
    """
    known, article = list(known), "an" if kind[0] in "aeio" else "a"
    return UnknownNameError(
        Subject(kind, name), f"{article} {kind} among {known}", repr(name), nearest(name, known)
    )


def in_words(error: BaseException | None) -> str:
    """What an error says, or at least what it is; "" where there is none.

    Example:
        >>> in_words(ValueError("no")), in_words(AssertionError()), in_words(None)
        ('no', 'AssertionError', '')
    """
    return "" if error is None else str(error) or type(error).__name__


@contextmanager
def naming(step: str) -> Iterator[None]:
    """Let build errors name the step the user wrote, not the function that makes its operator.

    Example:
        >>> try:
        ...     with naming("top words"):
        ...         raise BuildError(Subject("operator", "top_n"), "n ≥ 1", "0", "ask for some")
        ... except BuildError as error:
        ...     print(error.step)
        top words
    """
    try:
        yield
    except BuildError as error:
        raise type(error)(step, error.expected, error.got, error.remedy) from error
