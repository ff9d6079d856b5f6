"""Every module is itself however it is imported: no public name hides a module of its package."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import anabranch

PACKAGE = Path(anabranch.__file__).parent
RUNS_WHEN_IMPORTED = "anabranch.cli.__main__"

IMPORTS = """
import importlib, json, sys
from types import ModuleType

def ways(name):
    package, _, last = name.rpartition(".")
    scope = {}
    exec(f"import {name}\\nimport {name} as renamed", scope)
    if package:
        exec(f"from {package} import {last} as taken", scope)
    yield "import a.b.c", eval(name, scope)
    yield "import a.b.c as m", scope["renamed"]
    yield "from a.b import c", scope.get("taken", scope["renamed"])
    yield "import_module", importlib.import_module(name)

hidden = {}
for name in json.loads(sys.stdin.read()):
    for way, found in ways(name):
        if not isinstance(found, ModuleType) or found is not sys.modules[name]:
            hidden.setdefault(name, []).append(f"{way}: {found!r}")
print(json.dumps(hidden))
"""


def modules_below(package: Path) -> list[str]:
    """The dotted names of a package and of all modules in it."""
    found = (path.relative_to(package.parent).with_suffix("") for path in package.rglob("*.py"))
    names = {".".join(path.parts).removesuffix(".__init__") for path in found}
    return sorted(names - {RUNS_WHEN_IMPORTED})


def hidden_modules(modules: list[str], at: Path, first: str = "") -> dict[str, list[str]]:
    """Import modules one after another in a fresh interpreter, each in every way.

    Return the modules that some way of importing does not give, and what it gave instead.
    """
    done = subprocess.run(
        [sys.executable, "-c", first + IMPORTS],
        input=json.dumps(modules),
        capture_output=True,
        text=True,
        check=True,
        cwd=at,
    )
    hidden: dict[str, list[str]] = json.loads(done.stdout.splitlines()[-1])
    return hidden


@pytest.mark.parametrize("step", [1, -1], ids=["packages first", "modules first"])
def test_every_way_to_import_a_module_gives_the_module(step, tmp_path):
    modules = modules_below(PACKAGE)
    assert len(modules) > 300
    assert hidden_modules(modules[::step], tmp_path) == {}


def test_modules_stay_themselves_once_all_public_names_were_used(tmp_path):
    modules = modules_below(PACKAGE)
    packages = {module.rpartition(".")[0] for module in modules} - {""}
    used = "".join(f"from {package} import *\n" for package in sorted(packages))
    assert hidden_modules(modules, tmp_path, first=used) == {}


def test_a_function_of_the_name_of_its_module_is_noticed(tmp_path):
    package = tmp_path / "shop"
    package.mkdir()
    (package / "__init__.py").write_text("from shop.sell import sell\n")
    (package / "sell.py").write_text("def sell(): ...\n")
    (package / "buy.py").write_text("")
    assert set(hidden_modules(modules_below(package), tmp_path)) == {"shop.sell"}
