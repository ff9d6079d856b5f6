"""Imports go one way, and a few rules about files that no linter knows.

Adding a module to `src/anabranch` means giving it a place in `LAYERS`.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
PACKAGE = REPOSITORY / "src" / "anabranch"

LAYERS = (
    {"graph", "events", "errors", "pictures"},
    {"columns"},
    {"state"},
    {"io"},
    {"operators"},
    {"flow", "compositions"},
    {"planning"},
    {"runtime"},
    {"engines"},
    {"adapt"},
    {"running", "planned"},
    {"testing"},
    {"apps", "view"},
    {"cli"},
)
RANK = {unit: rank for rank, layer in enumerate(LAYERS) for unit in layer}
PUBLIC = RANK["apps"]
"""Who may take public names from the package itself."""
DIRECTION = " < ".join("{" + ", ".join(sorted(layer)) + "}" for layer in LAYERS)

PAPERS_HOME = "cli.reproducing"
SPARK_HOMES = ("engines.spark", "io.spark")
PURE_HOMES = ("adapt", "planning.models", "planning.planners", "runtime")
CLOCKS_THREADS_AND_IO = {
    "asyncio",
    "concurrent",
    "multiprocessing",
    "socket",
    "subprocess",
    "threading",
    "time",
}

MAX_LINES = 700
PRIVATE_FOLDER = re.compile(r"(?<![\w.])(?:/(?:home|root|Users|work)/|[A-Za-z]:\\+Users\\)\w")


@dataclass(frozen=True)
class Violation:
    file: str
    line: int
    imported: str
    law: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: imports {self.imported}: {self.law}"


def import_violations(package: Path) -> list[Violation]:
    """Every import in `package` that goes against the layers or leaves its home."""
    return [
        Violation(str(path.relative_to(package)), line, imported, law)
        for path in sorted(package.rglob("*.py"))
        if path != package / "__init__.py"
        for line, imported in imports_of(path, package)
        if (law := broken_law(module_name(path, package), imported, package.name))
    ]


def module_name(path: Path, package: Path) -> str:
    """The dotted name below the package: `io/sink.py` is `io.sink`, `io/__init__.py` is `io`."""
    parts = path.relative_to(package).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(path: Path, package: Path) -> Iterator[tuple[int, str]]:
    """Line and absolute dotted name of each import, wherever in the file it stands."""
    home = (package.name, *path.relative_to(package).parent.parts)
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
        match node:
            case ast.Import(names=names):
                yield from ((node.lineno, alias.name) for alias in names)
            case ast.ImportFrom(module=module, names=names, level=level):
                above = home[: len(home) - level + 1] if level else ()
                base = ".".join([*above, *([module] if module else [])])
                yield from ((node.lineno, f"{base}.{alias.name}") for alias in names)
            case ast.Call(
                func=ast.Name(id="__import__" | "import_module")
                | ast.Attribute(attr="import_module"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                yield node.lineno, name


def broken_law(importer: str, imported: str, package: str) -> str | None:
    """What the import breaks, in words, or None."""
    root, _, inner = imported.partition(".")
    if root == package:
        return broken_layer(importer.split(".")[0], inner.split(".")[0])
    if root == "papers" and importer != PAPERS_HOME:
        return f"only {PAPERS_HOME} may import papers, which an installed library lacks"
    if root == "pyspark" and not lives_in(importer, SPARK_HOMES):
        return f"only {' and '.join(SPARK_HOMES)} may import pyspark"
    if root in CLOCKS_THREADS_AND_IO and lives_in(importer, PURE_HOMES):
        return f"{', '.join(PURE_HOMES)} do no I/O and own no clock or thread"
    return None


def broken_layer(importer: str, imported: str) -> str | None:
    if importer not in RANK:
        return f"{importer} has no layer, give it one in LAYERS; allowed direction: {DIRECTION}"
    if RANK.get(imported, PUBLIC) > RANK[importer]:
        return f"{importer} may import its own layer and lower ones; allowed direction: {DIRECTION}"
    return None


def mutual_folders(package: Path) -> list[str]:
    """Pairs of folders, none inside the other, whose modules import each other."""
    imports = {
        (path.parent, home)
        for path in package.rglob("*.py")
        for _, imported in imports_of(path, package)
        if (home := folder_of(imported, package)) is not None
    }
    return [
        f"{a.relative_to(package)} and {b.relative_to(package)}"
        for a, b in sorted(imports)
        if a < b and (b, a) in imports and not b.is_relative_to(a)
    ]


def folder_of(imported: str, package: Path) -> Path | None:
    """The folder of the module that an import names, None where it is another package's."""
    root, *inner = imported.split(".")
    if root != package.name:
        return None
    for length in range(len(inner), 0, -1):
        path = package.joinpath(*inner[:length])
        if path.with_suffix(".py").exists():
            return path.parent
        if (path / "__init__.py").exists():
            return path
    return None


def lives_in(module: str, homes: tuple[str, ...]) -> bool:
    return any(module == home or module.startswith(home + ".") for home in homes)


def private_paths(folder: Path) -> list[str]:
    """Places in text files that name a folder of one machine."""
    return [
        f"{path.relative_to(folder)}:{number}: {line.strip()}"
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
        for number, line in enumerate(path.read_text("utf-8", "replace").splitlines(), start=1)
        if PRIVATE_FOLDER.search(line)
    ]


def long_files(*folders: Path) -> list[str]:
    lengths = {
        path: len(path.read_text(encoding="utf-8").splitlines())
        for folder in folders
        for path in sorted(folder.rglob("*.py"))
    }
    return [f"{path}: {lines} lines" for path, lines in lengths.items() if lines > MAX_LINES]


def report(problems: list[Violation] | list[str]) -> str:
    return "\n" + "\n".join(map(str, problems))


def test_the_package_obeys_the_import_law():
    violations = import_violations(PACKAGE)
    assert not violations, report(violations)


def test_no_two_folders_import_each_other():
    problems = mutual_folders(PACKAGE)
    assert not problems, report(problems)


def test_folders_that_import_each_other_are_found(tmp_path):
    for file, code in {
        "a/__init__.py": "",
        "a/x/one.py": "from anabranch.a.y.two import f",
        "a/y/two.py": "def g():\n    import anabranch.a.x.one",
        "a/own.py": "import anabranch.a.x.one",
    }.items():
        path = tmp_path / "anabranch" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(code)
    assert mutual_folders(tmp_path / "anabranch") == ["a/x and a/y"]


def test_every_module_has_a_layer():
    modules = {module_name(path, PACKAGE) for path in PACKAGE.rglob("*.py")}
    assert modules, f"no Python file below {PACKAGE}"
    assert {module.split(".")[0] for module in modules if module} <= RANK.keys()


def test_no_file_names_a_folder_of_one_machine():
    problems = [each for name in ("src", "papers") for each in private_paths(REPOSITORY / name)]
    assert not problems, report(problems)


def test_python_files_stay_short():
    problems = long_files(*(REPOSITORY / name for name in ("src", "tests", "benchmarks")))
    assert not problems, report(problems)


def violations_of(tmp_path: Path, file: str, code: str) -> list[str]:
    path = tmp_path / "anabranch" / file
    path.parent.mkdir(parents=True)
    path.write_text(code)
    return [str(violation) for violation in import_violations(tmp_path / "anabranch")]


def test_a_violation_names_file_line_import_and_direction(tmp_path):
    (violation,) = violations_of(
        tmp_path, "planning/regions.py", "import math\nimport anabranch.running\n"
    )
    assert violation.startswith("planning/regions.py:2: imports anabranch.running: ")
    assert "planning may import its own layer and lower ones" in violation
    assert "{compositions, flow} < {planning} < {runtime} < {engines} < {adapt}" in violation


@pytest.mark.parametrize(
    ("file", "code", "imported"),
    [
        ("flow.py", "from anabranch.engines.local import engine", "anabranch.engines.local.engine"),
        ("flow.py", "from anabranch import running", "anabranch.running"),
        ("flow.py", "from anabranch import Flow", "anabranch.Flow"),
        ("flow.py", "from . import planning", "anabranch.planning"),
        ("planning/models/cost.py", "from ...engines import engine", "anabranch.engines.engine"),
        ("planning/__init__.py", "from ..adapt import guards", "anabranch.adapt.guards"),
        ("events.py", "def late():\n    import anabranch.flow", "anabranch.flow"),
        ("events.py", "if TYPE_CHECKING:\n    import anabranch.state", "anabranch.state"),
        ("events.py", "importlib.import_module('anabranch.view.web')", "anabranch.view.web"),
        ("state/gate.py", "from anabranch.operators import base", "anabranch.operators.base"),
        ("running.py", "import anabranch.testing", "anabranch.testing"),
        ("misc.py", "import anabranch.errors", "anabranch.errors"),
        ("engines/local/engine.py", "import pyspark.sql", "pyspark.sql"),
        ("cli/running.py", "from papers.joker import runs", "papers.joker.runs"),
        ("engines/sparkle.py", "import pyspark", "pyspark"),
        ("adapt/joker.py", "from time import monotonic", "time.monotonic"),
        ("planning/models/cost.py", "def f():\n    import threading", "threading"),
        ("runtime/host.py", "from threading import Lock", "threading.Lock"),
        ("planning/planners/greedy.py", "import socket as s", "socket"),
    ],
)
def test_an_import_against_the_law_is_found(tmp_path, file, code, imported):
    (violation,) = violations_of(tmp_path, file, code)
    assert f"imports {imported}: " in violation


@pytest.mark.parametrize(
    ("file", "code"),
    [
        ("__init__.py", "from anabranch.running import run"),
        ("flow.py", "from anabranch.operators.base import Operator"),
        ("operators/count.py", "from .base import Operator\nfrom ..state import buckets"),
        ("engines/engine.py", "import time, threading\nimport anabranch.planning.plan"),
        ("engines/spark/engine.py", "from pyspark.sql import SparkSession"),
        ("io/spark.py", "import pyspark"),
        ("cli/reproducing.py", "import_module('papers.command')"),
        ("planning/plan.py", "from timeit import timeit"),
        ("apps/word_count.py", "import anabranch as ab\nimport anabranch.testing"),
    ],
)
def test_an_import_within_the_law_is_left_alone(tmp_path, file, code):
    assert violations_of(tmp_path, file, code) == []


@pytest.mark.parametrize("folder", ["/home/ada/", "/root/", "/Users/ada/", "/work/", "C:\\Users\\"])
def test_a_folder_of_one_machine_is_found(tmp_path, folder):
    (tmp_path / "page.html").write_text(f"<p>\n{folder}data\n")
    (tmp_path / "fine.py").write_text("'host.example/home/page', 'out/work/part-0', '/tmp/spool'")
    (problem,) = private_paths(tmp_path)
    assert problem.startswith("page.html:2: ")


def test_a_long_file_is_found(tmp_path):
    (tmp_path / "long.py").write_text("\n" * (MAX_LINES + 1))
    (tmp_path / "fitting.py").write_text("\n" * MAX_LINES)
    (problem,) = long_files(tmp_path)
    assert problem.endswith(f"long.py: {MAX_LINES + 1} lines")
