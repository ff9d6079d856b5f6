"""Decorators that make an operator of a function, with parentheses and without.

A decorator is written as a function that takes the author's function and options by name. How it
may be used follows from that: bare where no option is required, else with the options in
parentheses. Any other use is an error that shows the right form.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, cast, overload

from anabranch.columns.type_matching import shortened
from anabranch.errors import BuildError, Subject, nearest
from anabranch.operators.base import Operator, function_of

Given = ParamSpec("Given")
Options = ParamSpec("Options")
Returned = TypeVar("Returned")


class Decorated(Operator, Generic[Given, Returned]):
    """An operator that is made of a function, and is called as that function.

    Example:
        >>> from anabranch.operators.row_wise.map_filter_expand import map
        >>> @map(out="length: int64")
        ... def measure(batch):
        ...     return {"length": [len(word) for word in batch["word"]]}
        >>> measure({"word": ["rain", "sun"]})
        {'length': [4, 3]}
    """

    def __init__(self, function: Callable[Given, Returned]) -> None:
        """Describe; nothing runs."""
        self.__name__ = getattr(function, "__name__", type(self).__name__)
        self.function = function_of(Subject("operator", self.__name__), function)
        self.__doc__ = function.__doc__
        self.__wrapped__ = function  # where `inspect`, `help` and notebooks find the signature

    def __call__(self, *args: Given.args, **kwargs: Given.kwargs) -> Returned:
        """Return what the author's function returns, as in a unit test of it."""
        return self.function(*args, **kwargs)


class Decorator(Protocol[Given, Options]):
    """A decorator; called with the function at once, or with its options first.

    `Given` are the parameters that the author's function must have, `Options` those by name.
    """

    @overload
    def __call__(
        self,
        function: Callable[Given, Returned],
        /,
        *args: Options.args,
        **options: Options.kwargs,
    ) -> Decorated[Given, Returned]: ...

    @overload
    def __call__(
        self, *args: Options.args, **options: Options.kwargs
    ) -> Callable[[Callable[Given, Returned]], Decorated[Given, Returned]]: ...


def decorator(
    form: str,
) -> Callable[
    [Callable[Concatenate[Callable[Given, Any], Options], Decorated[..., Any]]],
    Decorator[Given, Options],
]:
    """Turn a function that makes an operator into a decorator.

    Args:
        form: How the decorator is used, for errors.

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
        make: Callable[Concatenate[Callable[Given, Any], Options], Decorated[..., Any]],
    ) -> Decorator[Given, Options]:
        name = getattr(make, "__name__", "decorator")
        _, *options = inspect.signature(make).parameters.values()

        def wrong(got: str, remedy: str) -> BuildError:
            return BuildError(Subject("decorator", name), f"the form {form}", got, remedy)

        @wraps(make)
        def decorate(*positional: Any, **given: Any) -> Any:
            if wrong_option := _wrong(options, given):
                raise wrong(*wrong_option)
            if len(positional) > 1:
                raise wrong(f"{shortened(positional[1])} by position", "give options by name")

            def made(function: Any) -> Any:
                if isinstance(function, Operator):
                    raise wrong(
                        f"an operator ({type(function).__name__}) in place of a function",
                        "decorate a function once",
                    )
                if not callable(function):
                    raise wrong(
                        f"{shortened(function)} in place of a function", "give options by name"
                    )
                return cast(Any, make)(function, **given)

            return made(*positional) if positional else made

        return cast(Decorator[Given, Options], decorate)

    return decorating


def _wrong(options: list[inspect.Parameter], given: Mapping[str, object]) -> tuple[str, str] | None:
    """Return what is wrong with the names of the options given, and what to do about it."""
    known = [each.name for each in options]
    for name in given:
        if name not in known:
            remedy = nearest(name, known, f"choose among {known}") if known else "leave it out"
            return f"an option {name!r}", remedy
    for each in options:
        if each.default is each.empty and each.name not in given:
            return f"no {each.name}=", "add it"
    return None
