"""Finds what users name on the command line: applications, flows of their own, profiles, plans.

Each command that takes an application takes `--input` and `--set` as well, so that a plan, profile
or checkpoint made by one command fits the same application in another.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import typer

from anabranch.apps import APPS, app
from anabranch.errors import Subject, UnknownNameError, nearest
from anabranch.flow import Flow
from anabranch.io.local_paths import local_path
from anabranch.planning.plan import Plan
from anabranch.planning.profile import Profile, read_profile

AppName = Annotated[
    str, typer.Argument(metavar="APP", help="An application, module:flow or file.py:flow.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="NAME=VALUE", help="An argument of its `build`; may be repeated."
    ),
]
Inputs = Annotated[
    list[str] | None,
    typer.Option(
        help="Your own files: a path, folder or quoted pattern, after `SOURCE=` where there are "
        "several sources; may be repeated."
    ),
]
Target = Annotated[
    str,
    typer.Argument(
        metavar="PROFILE.json|APP", help="A profile, an application, module:flow or file.py:flow."
    ),
]
ProfileFile = Annotated[
    Path | None,
    typer.Option("--profile", help="For APP: its profile; taken anew when left out."),
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object, nothing else.")]


def find_flow(
    name: str,
    input: Sequence[str] | None = None,
    settings: Sequence[str] | None = None,
    endless: bool = False,
) -> Flow:
    """Build an application, or what `module:attribute` or `file.py:attribute` names.

    Args:
        name: What the user typed.
        input: Files to read instead of the application's own data.
        settings: Arguments of the function that builds it, as NAME=VALUE.
        endless: Whether generated data shall have no end, because something else ends the run.
    """
    input, settings = input or (), settings or ()
    if ":" in name or is_file(name):
        found, known = own_flow(name)
        return built(name, found, arguments(name, known, input, settings))
    chosen = app(name)
    given = arguments(name, chosen.parameters, input, settings)
    if endless and not input and "rows" in chosen.parameters:
        given.setdefault("rows", None)
    return chosen.build(**given)


def arguments(
    name: str,
    known: Mapping[str, inspect.Parameter],
    input: Sequence[str],
    settings: Sequence[str],
) -> dict[str, Any]:
    """What the function that builds an application is called with."""
    given = {}
    for setting in settings:
        argument, equals, value = setting.partition("=")
        if argument not in known or not equals:
            raise UnknownNameError(
                Subject("application", name),
                f"--set NAME=VALUE with a name among {list(known)}",
                setting,
                nearest(argument, known, "name one of those"),
            )
        given[argument] = as_value(name, known[argument], value)
    if input and "input" not in known:
        raise UnknownNameError(
            Subject("application", name),
            "a function with an argument `input`",
            f"--input {shlex.join(input)} for one without",
            "leave --input out to run on the application's own data",
        )
    if input:
        given["input"] = files_of(input)
    return given


def as_value(name: str, parameter: inspect.Parameter, text: str) -> Any:
    """A setting in the type of its default; a length of time is given in seconds."""
    usual, kind = parameter.default, str(parameter.annotation)
    if isinstance(usual, str) or (usual is None and kind.startswith("str")):
        return text
    if text == "none" and "None" in kind:
        return None
    try:
        return _like(usual, json.loads(text))
    except (ValueError, TypeError, OverflowError) as error:
        if usual in (None, inspect.Parameter.empty):
            return text
        wanted = f"a value such as {usual!r}"
        if isinstance(usual, timedelta):
            wanted = f"a length of time in seconds, such as {usual.total_seconds():g}"
        raise UnknownNameError(
            Subject("application", name),
            f"{parameter.name}: {wanted}",
            repr(text),
            "give such a value",
        ) from error


def _like(usual: Any, value: Any) -> Any:
    """A value of JSON in the type of another one."""
    if isinstance(usual, timedelta):
        return timedelta(seconds=value)
    if isinstance(usual, tuple | list) and isinstance(value, list):
        return type(usual)(value)
    if isinstance(usual, float) and type(value) is int:
        return float(value)
    if usual in (None, inspect.Parameter.empty) or type(value) is type(usual):
        return value
    raise TypeError(value)


def files_of(input: Sequence[str]) -> Any:
    """Files; by the name of a source where all have one (`trades=t.csv`)."""
    named = [each.partition("=") for each in input]
    if all(equals and source.isidentifier() for source, equals, _ in named):
        by_source: dict[str, list[str]] = {}
        for source, _, path in named:
            by_source.setdefault(source, []).append(path)
        return by_source
    return input[0] if len(input) == 1 else list(input)


@dataclass(frozen=True)
class Profiled:
    """A profile, and the flow that it describes; None where only a profile was named."""

    profile: Profile
    flow: Flow | None


def find_profiled(
    target: str,
    profile: Path | None = None,
    input: Sequence[str] | None = None,
    settings: Sequence[str] | None = None,
) -> Profiled:
    """Find a profile, or an application with its profile, which is measured unless given."""
    if not is_profile(target):
        flow = find_flow(target, input, settings)
        return Profiled(take_profile(flow) if profile is None else find_profile(profile), flow)
    for option, given in (("--profile", profile), ("--input", input), ("--set", settings)):
        if given:
            raise typer.BadParameter(f"{option} goes with an application, not with a profile")
    return Profiled(find_profile(Path(target)), None)


def is_profile(target: str) -> bool:
    """Whether a file is meant, not an application."""
    known = target in APPS or ":" in target or is_file(target)
    return target.endswith(".json") or (not known and Path(target).is_file())


def find_profile(file: Path) -> Profile:
    """A profile from a file."""
    text = read_text(file, "a profile", "anabranch profile APP --out FILE")
    return read_profile(text, file.name)


def take_profile(flow: Flow) -> Profile:
    """Run each step of a flow by itself."""
    from anabranch.engines.measuring.profiling import profile_flow

    return profile_flow(flow)


def read_plan(file: Path) -> Plan:
    """A plan from a file."""
    return Plan.from_json(read_text(file, "a plan", "anabranch plan APP --save FILE"))


def read_text(file: Path, what: str, command: str) -> str:
    """The text of a file, or an error that says how such a file is made."""
    place = Path(local_path(file))
    try:
        return place.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UnknownNameError(
            Subject("file", str(file)),
            f"a readable file with {what}",
            str(error),
            f"write one with `{command}`",
        ) from error


# Flows of users' own on the command line: `module:attribute` and `path/to/file.py:attribute`.

SUFFIX = ".py"


def is_file(name: str) -> bool:
    """Whether a name is that of a file with Python in it, whatever follows a colon.

    Example:
        >>> is_file("apps/bikes.py:build"), is_file("apps/bikes.py"), is_file("bikes:build")
        (True, True, False)
    """
    return _parted(name)[0].endswith(SUFFIX)


def own_flow(name: str) -> tuple[Any, Mapping[str, inspect.Parameter]]:
    """What a name stands for, a Flow or a function, and the arguments that it takes."""
    place, attribute = _parted(name)
    if not place:
        raise UnknownNameError(
            Subject("application", name),
            "module:flow",
            repr(name),
            "name the module before the colon",
        )
    module = _of_file(name, Path(place)) if is_file(name) else _imported(name, place)
    found = getattr(module, attribute, None)
    if not callable(found) and not isinstance(found, Flow):
        flows = sorted(n for n, value in vars(module).items() if isinstance(value, Flow))
        got = "nothing of that name" if attribute else repr(name)
        got = got if found is None else type(found).__name__
        remedy = f"there is {', '.join(flows)}" if flows else "define one there"
        raise UnknownNameError(Subject("application", name), _wanted(name), got, remedy)
    return found, inspect.signature(found).parameters if callable(found) else {}


def built(name: str, found: Any, given: Mapping[str, Any]) -> Flow:
    """A flow, or what a function builds of the arguments given."""
    if callable(found):
        try:
            inspect.signature(found).bind(**given)
        except TypeError as error:
            raise UnknownNameError(
                Subject("application", name),
                "a function without required arguments",
                str(error),
                "give them defaults",
            ) from error
        found = found(**given)
    if not isinstance(found, Flow):
        raise UnknownNameError(
            Subject("application", name), _wanted(name), type(found).__name__, "return a Flow there"
        )
    return found


def _parted(name: str) -> tuple[str, str]:
    """Module or file, and attribute; a drive letter has a colon, too."""
    place, colon, attribute = name.rpartition(":")
    return (place, attribute) if colon and not attribute.endswith(SUFFIX) else (name, "")


def _wanted(name: str) -> str:
    place, attribute = _parted(name)
    if not attribute:
        return f"{place}:NAME with the name of a Flow, or of a function that builds one"
    return f"a Flow, or a function that builds one, called {attribute!r} in {place}"


def _imported(name: str, module: str) -> ModuleType:
    if "" not in sys.path:
        sys.path.insert(0, "")  # the user's own module lies where they stand
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not module.startswith(error.name):
            raise
        raise UnknownNameError(
            Subject("application", name),
            "a module that can be imported",
            repr(module),
            "run from the folder that holds it, install it, or name its file: file.py:flow",
        ) from error


def _of_file(name: str, file: Path) -> ModuleType:
    """The module in a file, under its own name, so that Spark's workers find it as well."""
    if not file.is_file():
        raise UnknownNameError(
            Subject("application", name),
            "a file with Python",
            f"no file {file}",
            "name one that is",
        )
    folder = str(file.resolve().parent)
    sys.path.insert(0, folder)
    paths = [folder, *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)  # for processes that this one starts
    try:
        module = importlib.import_module(file.stem)
    except ModuleNotFoundError as error:
        if error.name not in (file.stem, file.stem.partition(".")[0]):
            raise
        raise UnknownNameError(
            Subject("application", name),
            "a file whose name is one of Python's",
            repr(file.name),
            "rename it",
        ) from error
    found = getattr(module, "__file__", None)
    if found is None or not file.samefile(found):
        raise UnknownNameError(
            Subject("application", name),
            "a file that is no other module's namesake",
            str(found),
            "rename the file",
        )
    return module
