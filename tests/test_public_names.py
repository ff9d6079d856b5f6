"""The public names of the package, and what an import of it costs."""

import ast
import builtins
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import anabranch
import anabranch.io
from anabranch.cli import COMMANDS, command_of

LAZY = (anabranch, anabranch.io)
HEAVY = ("numpy", "pandas", "pyarrow", "pyspark", "scipy", "matplotlib", "anabranch.planning")


def loaded_by(code: str) -> set[str]:
    """The modules that a fresh interpreter has loaded after some code."""
    asked = f"{code}\nimport json, sys; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


def imports_for_type_checkers(package: ModuleType) -> dict[str, str]:
    """Name to module, as the block under TYPE_CHECKING imports them."""
    tree = ast.parse(Path(str(package.__file__)).read_text(encoding="utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    return {alias.name: node.module for node in block.body for alias in node.names}


@pytest.mark.parametrize(
    ("package", "name"), [(package, name) for package in LAZY for name in package._MODULE_OF]
)
def test_every_public_name_is_there(package, name):
    assert getattr(package, name) is not None
    assert name in dir(package)


@pytest.mark.parametrize("package", LAZY)
def test_type_checkers_and_the_interpreter_find_names_in_the_same_modules(package):
    found = {name: f"{package.__name__}.{module}" for name, module in package._MODULE_OF.items()}
    assert imports_for_type_checkers(package) == found
    assert set(package.__all__) == set(found) - set(dir(builtins))


def test_a_star_import_hides_no_builtin():
    taken: dict[str, object] = {}
    exec("from anabranch import *", taken)
    assert {"Flow", "Run", "SourceError", "files", "run"} <= set(taken)
    assert set(taken) & set(dir(builtins)) <= {"__builtins__"}


@pytest.mark.parametrize("package", LAZY)
def test_an_unknown_name_is_an_attribute_error(package):
    with pytest.raises(AttributeError, match=f"'{package.__name__}' has no attribute 'flwo'"):
        package.flwo  # noqa: B018


def test_importing_the_packages_loads_none_of_their_modules():
    loaded = loaded_by("import anabranch, anabranch.io")
    names = {package.__name__ for package in LAZY}
    assert {name for name in loaded if name.startswith("anabranch")} == names
    assert loaded.isdisjoint(HEAVY)


def test_writing_a_flow_loads_no_pandas_planner_picture_or_test_kit():
    loaded = loaded_by("from anabranch import Flow, memory, collect, count, map, partitioned")
    unwanted = ("pandas", "anabranch.planning", "anabranch.pictures", "anabranch.testing")
    assert [name for name in sorted(loaded) if name.startswith(unwanted)] == []


def test_the_help_of_the_command_line_imports_no_command():
    loaded = loaded_by(
        "import sys; sys.argv = ['anabranch', '--help']\n"
        "from anabranch.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass"
    )
    assert loaded.isdisjoint(HEAVY)


@pytest.mark.parametrize(
    ("module", "name"), [(module, name) for module, names in COMMANDS.items() for name in names]
)
def test_every_listed_command_is_registered_by_its_module(module, name):
    command = command_of(module, name)
    assert command.name == name
    assert str(command.help).partition("\n")[0] == COMMANDS[module][name], "the same line in both"
