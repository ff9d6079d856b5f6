"""What users name on the command line: applications, flows of their own, files."""

from __future__ import annotations

import importlib
import inspect
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from anabranch.apps import app
from anabranch.errors import UnknownNameError
from anabranch.flow import Flow
from anabranch.plan.plan import Plan

AppName = Annotated[str, typer.Argument(metavar="APP", help="An application, or module:flow.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object, nothing else.")]


def find_flow(name: str, input: Sequence[str] = (), endless: bool = False) -> Flow:
    """A built-in application, or `module:attribute` — a Flow or a function that builds one.

    Args:
        name: What the user typed.
        input: Files to read instead of the application's own data.
        endless: Whether generated data shall have no end, because something else ends the run.
    """
    if ":" in name:
        return find_own(name, input)
    build = app(name).build
    given = with_input(name, build, input)
    if endless and not input and "rows" in inspect.signature(build).parameters:
        given["rows"] = None
    flow: Flow = build(**given)
    return flow


def with_input(name: str, build: Any, input: Sequence[str]) -> dict[str, Any]:
    """The argument that makes an application read the user's files, if there are any."""
    if not input:
        return {}
    if not callable(build) or "input" not in inspect.signature(build).parameters:
        raise UnknownNameError(
            name,
            "a function with an argument `input`",
            f"--input {shlex.join(input)} for one without",
            "leave --input out to run on the application's own data",
        )
    return {"input": input[0] if len(input) == 1 else list(input)}


def find_own(name: str, input: Sequence[str] = ()) -> Flow:
    """What `module:attribute` names: a Flow, or what a function of that name builds."""
    module_name, _, attribute = name.partition(":")
    if not module_name:
        raise UnknownNameError(name, "module:flow", repr(name), "name the module before the colon")
    if "" not in sys.path:
        sys.path.insert(0, "")  # the user's own module lies where they stand
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not module_name.startswith(error.name):
            raise
        raise UnknownNameError(
            name,
            "a module that can be imported",
            repr(module_name),
            "run from the folder that holds it, or install it",
        ) from error
    found = getattr(module, attribute, None)
    given = {} if found is None else with_input(name, found, input)
    if callable(found):
        try:
            inspect.signature(found).bind(**given)
        except TypeError as error:
            raise UnknownNameError(
                name, "a function without required arguments", str(error), "give them defaults"
            ) from error
        found = found(**given)
    if not isinstance(found, Flow):
        flows = sorted(n for n, value in vars(module).items() if isinstance(value, Flow))
        raise UnknownNameError(
            name,
            f"a Flow, or a function that builds one, called {attribute!r} in {module_name}",
            "nothing of that name" if found is None else type(found).__name__,
            f"there is {', '.join(flows)}" if flows else "define one there",
        )
    return found


def read_plan(file: Path) -> Plan:
    """A plan from a file."""
    return Plan.from_json(read_text(file, "a plan", "anabranch plan APP --save FILE"))


def read_text(file: Path, what: str, command: str) -> str:
    """The text of a file, or an error that says how such a file is made."""
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UnknownNameError(
            str(file), f"a readable file with {what}", str(error), f"write one with `{command}`"
        ) from error
