"""What the site tells is what happens: code of its pages runs, and shows what it prints.

Pages run in a folder of their own; those of the tutorial share one, since each goes on where the
one before has ended. What a page needs is said at its top: `needs: spark`, or `needs: redis`.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.running import Ran, follow
from tests.engines.spark import short_lived
from tests.pages import REPOSITORY, agrees, belittling_words, blocks_of
from tests.sampling import thorough

DOCS = REPOSITORY / "docs"
TUTORIAL = ("write", "test", "run", "watch", "cluster")
FOLDERS = ("how-to", "concepts", "reference")
PAGES = [
    DOCS / "index.md",
    *sorted(page for folder in FOLDERS for page in (DOCS / folder).glob("*.md")),
]
WRITTEN = [*PAGES, DOCS / "figures.md", *sorted((DOCS / "tutorial").glob("*.md"))]
RUN = ("python", "console")
NEEDS = re.compile(r"\A---\n(?:.*\n)*?needs: (\w+)\n")


def name_of(page: Path) -> str:
    return str(page.relative_to(DOCS))


def needs_of(page: Path) -> str | None:
    found = NEEDS.match(page.read_text(encoding="utf-8"))
    return found[1] if found else None


def with_marks(page: Path) -> object:
    marks = [thorough, pytest.mark.spark, pytest.mark.xdist_group("spark")]
    return pytest.param(page, id=name_of(page), marks=marks if needs_of(page) == "spark" else [])


def runs(page: Path) -> bool:
    return any(block.language in RUN and not block.marked_not_run for block in blocks_of(page))


@contextlib.contextmanager
def standing_in(folder: Path) -> Iterator[None]:
    """The folder, environment and modules of a reader; the tests' own come back afterwards."""
    environment, modules, path = dict(os.environ), set(sys.modules), list(sys.path)
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    os.environ |= short_lived.VARIABLE  # no page keeps a JVM for long
    sys.path.insert(0, str(folder))
    try:
        with contextlib.chdir(folder):
            yield
    finally:
        os.environ.clear()
        os.environ.update(environment)
        sys.path[:] = path
        for name in set(sys.modules) - modules:
            if str(folder) in str(getattr(sys.modules[name], "__file__", "")):
                del sys.modules[name]


def differences(page: Path, steps: list[Ran]) -> list[str]:
    return [
        f"{name_of(page)}:{step.block.line} shows\n{step.shown}\nand prints\n{step.printed}"
        for step in steps
        if step.shown is not None and not agrees(step.printed, step.shown)
    ]


@pytest.mark.timeout(300)  # some start Spark as a program of their own
@pytest.mark.parametrize("page", [with_marks(page) for page in PAGES if runs(page)])
def test_a_page_shows_what_its_code_prints(page, tmp_path, request, monkeypatch):
    if needs_of(page) == "spark":
        request.getfixturevalue("spark")
    if needs_of(page) == "redis":
        monkeypatch.setenv("REDIS_URL", request.getfixturevalue("redis_server").url)
    with standing_in(tmp_path):
        assert differences(page, list(follow(page, name_of(page)))) == []


class Story:
    """The tutorial as far as it has been followed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._told: dict[str, list[Ran]] = {}

    def up_to(self, name: str) -> list[Ran]:
        """What came of a page, after those before it."""
        for each in TUTORIAL[: TUTORIAL.index(name) + 1]:
            if each not in self._told:
                with standing_in(self._folder):
                    page = DOCS / "tutorial" / f"{each}.md"
                    self._told[each] = list(follow(page, name_of(page)))
        return self._told[name]

    def end(self) -> None:
        """Stop what a page left running because it failed on the way."""
        for file in self._folder.glob("*.pid"):
            with contextlib.suppress(ProcessLookupError, ValueError):
                os.kill(int(file.read_text()), signal.SIGKILL)


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    told = Story(tmp_path_factory.mktemp("tutorial"))
    yield told
    told.end()


@thorough
@pytest.mark.spark
@pytest.mark.xdist_group("kills")  # like other tests that start a cluster, one at a time
@pytest.mark.timeout(1200)  # a page alone follows those before it first
@pytest.mark.parametrize("name", TUTORIAL)
def test_who_follows_the_tutorial_sees_what_it_shows(story, name):
    assert differences(DOCS / "tutorial" / f"{name}.md", story.up_to(name)) == []


def test_every_page_of_the_tutorial_is_followed():
    pages = {page.stem for page in (DOCS / "tutorial").glob("*.md")}
    assert pages == {"index", *TUTORIAL}
    assert not runs(DOCS / "tutorial" / "index.md")


@pytest.mark.parametrize("page", WRITTEN, ids=name_of)
def test_code_that_is_not_run_says_why(page):
    silent = [
        block.line
        for block in blocks_of(page)
        if not block.marked_not_run and block.title is None and block.language not in (*RUN, "text")
    ]
    assert silent == []


@pytest.mark.parametrize("page", WRITTEN, ids=name_of)
def test_no_page_tells_the_reader_that_something_is_easy(page):
    assert belittling_words(page) == []
