"""Flows of users' own on the command line: `module:attribute` and `path/to/file.py:attribute`."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from anabranch.errors import Subject, UnknownNameError
from anabranch.flow import Flow

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
