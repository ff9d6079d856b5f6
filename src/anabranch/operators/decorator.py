"""Decorators that make an operator of a function, with parentheses and without.

A decorator is written as a function that takes the author's function and options by name. How it
may be used follows from that: bare where no option is required, else with the options in
parentheses. Any other use is an error that shows the right form.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, cast, overload

from anabranch.errors import BuildError, Subject, nearest
from anabranch.operators.looks import shortened

F_contra = TypeVar("F_contra", contravariant=True)
Op_co = TypeVar("Op_co", covariant=True)
P = ParamSpec("P")


class Decorator(Protocol[F_contra, P, Op_co]):
    """A decorator; called with the function at once, or with its options first."""

    @overload
    def __call__(self, function: F_contra, /, *args: P.args, **options: P.kwargs) -> Op_co: ...

    @overload
    def __call__(self, *args: P.args, **options: P.kwargs) -> Callable[[F_contra], Op_co]: ...


def decorator(
    form: str, also: Sequence[str] = ()
) -> Callable[
    [Callable[Concatenate[F_contra, P], Op_co]],
    Decorator[F_contra, P, Op_co],
]:
    """Turn a function that makes an operator into a decorator.

    Args:
        form: How the decorator is used, for errors.
        also: Options that the function takes beside those that its signature names.

    Example:
        >>> @decorator("@named(prefix='…')")
        ... def named(function, /, *, prefix=""):
        ...     return prefix + function.__name__
        >>> @named
        ... def one(batch): ...
        >>> @named(prefix="number ")
        ... def two(batch): ...
        >>> one, two
        ('one', 'number two')
        >>> named("number ")
        Traceback (most recent call last):
            ...
        anabranch.errors.BuildError: decorator 'named': expected the form @named(prefix='…'), got \
'number ' in place of a function; give options by name
    """

    def decorating(
        make: Callable[Concatenate[F_contra, P], Op_co],
    ) -> Decorator[F_contra, P, Op_co]:
        name = getattr(make, "__name__", "decorator")
        _, *options = inspect.signature(make).parameters.values()

        def wrong(got: str, remedy: str) -> BuildError:
            return BuildError(Subject("decorator", name), f"the form {form}", got, remedy)

        @wraps(make)
        def decorate(*positional: Any, **given: Any) -> Any:
            if wrong_option := _wrong(options, also, given):
                raise wrong(*wrong_option)
            if len(positional) > 1:
                raise wrong(f"{shortened(positional[1])} by position", "give options by name")

            def made(function: Any) -> Any:
                if not callable(function):
                    raise wrong(
                        f"{shortened(function)} in place of a function", "give options by name"
                    )
                return cast(Any, make)(function, **given)

            return made(*positional) if positional else made

        return cast(Decorator[F_contra, P, Op_co], decorate)

    return decorating


def _wrong(
    options: list[inspect.Parameter], also: Sequence[str], given: Mapping[str, object]
) -> tuple[str, str] | None:
    """Return what is wrong with the names of the options given, and what to do about it."""
    named = [each for each in options if each.kind is inspect.Parameter.KEYWORD_ONLY]
    known = [*(each.name for each in named), *also]
    for name in given:
        if name not in known:
            remedy = nearest(name, known, f"choose among {known}") if known else "leave it out"
            return f"an option {name!r}", remedy
    for each in named:
        if each.default is each.empty and each.name not in given:
            return f"no {each.name}=", "add it"
    return None
