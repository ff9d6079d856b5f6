"""The page of the command line, from the functions that typer turns into commands."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from markup import cell, code, table
from typer.models import ArgumentInfo, OptionInfo

from anabranch.cli import COMMANDS, command_of

INTRODUCTION = """# Command line

Every command of `anabranch`, from its own help. `APP` is an [application](../apps/index.md) that
comes with the library, or `module:name` or `path/to/file.py:name`, a flow of yours or a function
that builds one. A command ends with 0 if all went well, 1 if a run failed or a check found a
difference, 2 if the input was wrong, 130 after Ctrl-C and 143 after SIGTERM.
"""


def command_page() -> str:
    """All commands, in the order of `anabranch --help`."""
    parts = [INTRODUCTION]
    for module, name in ((module, name) for module, names in COMMANDS.items() for name in names):
        function = inspect.unwrap(command_of(module, name).callback)
        parts += [f"## {name}", inspect.getdoc(function) or "", *_parameters(name, function)]
    return "\n\n".join(parts) + "\n"


def _parameters(name: str, function: Callable[..., Any]) -> Iterator[str]:
    hints = get_type_hints(function, include_extras=True)
    arguments, options = [], []
    for parameter in inspect.signature(function).parameters.values():
        kind, info = _told(hints[parameter.name])
        if isinstance(info, ArgumentInfo):
            arguments.append((info.metavar or parameter.name.upper(), info.help or ""))
        else:
            options.append(_option(parameter, kind, info))
    words = [word for word, _ in arguments] + ["[OPTIONS]" for _ in options[:1]]
    yield "```text\n" + " ".join(["anabranch", name, *words]) + "\n```"
    if arguments:
        yield table(("argument", "what"), [(code(word), cell(text)) for word, text in arguments])
    if options:
        yield table(("option", "what", "default"), options)


def _told(hint: Any) -> tuple[Any, ArgumentInfo | OptionInfo]:
    """The type of a parameter, and what typer is told about it."""
    if get_origin(hint) is not Annotated:
        return hint, OptionInfo(default=None)
    kind, *more = get_args(hint)
    return kind, next(each for each in more if isinstance(each, ArgumentInfo | OptionInfo))


def _option(
    parameter: inspect.Parameter, kind: Any, info: ArgumentInfo | OptionInfo
) -> tuple[str, str, str]:
    # Within Annotated, typer takes the first name for the default until it builds the command.
    given = [str(name) for name in (info.default, *(info.param_decls or ()))]
    # A flag that only turns something off is declared as " /--no-thing".
    names = [name.strip() for each in given for name in each.split("/")]
    names = [name for name in names if name.startswith("-")]
    names = names or ["--" + parameter.name.replace("_", "-")]
    word = "" if kind is bool else " " + (info.metavar or _word(kind))
    default = parameter.default
    bare = kind is bool or default in (None, inspect.Parameter.empty)
    shown = "" if bare else code(str(default))
    return ", ".join(code(name + word) for name in names), cell(info.help or ""), shown


def _word(kind: Any) -> str:
    """What stands for a value of a type."""
    if get_origin(kind) in (Union, UnionType, list):
        kind = next(each for each in get_args(kind) if each is not type(None))
        return _word(kind)
    return {"str": "TEXT", "Path": "PATH", "int": "N", "float": "X"}.get(
        getattr(kind, "__name__", ""), "VALUE"
    )
