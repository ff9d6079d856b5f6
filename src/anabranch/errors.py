"""Every error of the library: a tree under AnabranchError.

Each message answers four questions in the same order: which step, what was expected, what came,
and what to do about it. Build errors are raised while the graph is composed, so that a flow that
exists is a flow that can run.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class AnabranchError(Exception):
    """Base of every error raised on purpose by this library.

    Example:
        >>> print(BuildError("count", "a key in [word]", "'wrd'", "use one of those columns"))
        step 'count': expected a key in [word], got 'wrd'; use one of those columns
    """

    def __init__(self, step: str, expected: str, got: str, remedy: str) -> None:
        """Say where, what was expected, what came, and what to do."""
        self.step = step
        self.expected = expected
        self.got = got
        self.remedy = remedy
        super().__init__(f"step {step!r}: expected {expected}, got {got}; {remedy}")

    def __reduce__(self) -> tuple[type[AnabranchError], tuple[str, str, str, str]]:
        """Errors cross process borders, so they must survive pickling."""
        return type(self), (self.step, self.expected, self.got, self.remedy)


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
        ...         raise BuildError("top_n", "n ≥ 1", "0", "ask for some")
        ... except BuildError as error:
        ...     print(error.step)
        top words
    """
    try:
        yield
    except BuildError as error:
        raise type(error)(step, error.expected, error.got, error.remedy) from error
