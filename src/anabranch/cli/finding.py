"""Finds what users name on the command line: applications, flows of their own, profiles, plans.

Each command that takes an application takes `--input` and `--set` as well, so that a plan, profile
or checkpoint made by one command fits the same application in another.
"""

from __future__ import annotations

import inspect
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import typer

from anabranch.apps import APPS, app
from anabranch.cli.own_flows import built, is_file, own_flow
from anabranch.errors import Subject, UnknownNameError, nearest
from anabranch.flow import Flow
from anabranch.io.local_paths import local_path
from anabranch.planning.plan import Plan
from anabranch.planning.profile import Profile
from anabranch.planning.profile_file import read_profile

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
