"""The documentation site: it builds without a warning, and needs no other host.

Where mkdocs is not installed these tests are skipped by name, unless CI is set: then they fail.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path

import pytest
from typer.testing import CliRunner

from anabranch.apps import APPS
from anabranch.cli import cli
from tests.pages import REPOSITORY
from tests.sampling import thorough
from tests.view.web.browser import chromium, opened

__all__ = ["chromium", "opened"]

pytestmark = [thorough, pytest.mark.xdist_group("site")]  # built once

MISSING = "mkdocs is not installed (make install)"
LOADED = {"src", "srcset", "poster", "data"}
ELSEWHERE = re.compile(r"\s*(?:https?:)?//", re.IGNORECASE)
IN_STYLES = re.compile(r"""(?:url\(|@import)\s*['"]?(?:https?:)?//""", re.IGNORECASE)
OPTION_OF_HELP = re.compile(r"^│ \*? *(--[a-z-]+)", re.MULTILINE)
CODE = re.compile(
    r'(<p class="not-run">[^<]*</p>\s*)?<div class="language-(?:sh|py|yaml) highlight">'
    r'(?!<span class="filename">)'  # with a name it is a file, which other blocks use
)
WITHOUT_TESTS = ("project", "decisions")
"""Documents for those who work on the library; their commands are its own."""
OPTION_OF_PAGE = re.compile(r"<tr>\s*<td><code>(--[a-z-]+)")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as `make docs` builds it."""
    if find_spec("mkdocs") is None:
        if os.environ.get("CI"):
            pytest.fail(MISSING)
        pytest.skip(MISSING)
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=REPOSITORY,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    return folder


class Loading(HTMLParser):
    """Collects what a page loads by itself; links that a reader may follow are not that."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        wanted = LOADED | ({"href"} if tag == "link" else set())
        self.addresses += [value for name, value in attrs if value and name in wanted]


def loaded_from_elsewhere(page: Path) -> Iterator[str]:
    text = page.read_text(encoding="utf-8")
    parser = Loading()
    parser.feed(text)
    yield from (address for address in parser.addresses if ELSEWHERE.match(address))
    yield from IN_STYLES.findall(text)


def test_no_page_loads_anything_from_another_host(site):
    pages = [*site.rglob("*.html"), *site.rglob("*.css"), *site.rglob("*.svg")]
    found = {page.relative_to(site): list(loaded_from_elsewhere(page)) for page in pages}
    assert {page: addresses for page, addresses in found.items() if addresses} == {}


def test_a_reader_is_told_which_code_is_not_run(site):
    silent, told = [], 0
    for page in site.rglob("*.html"):
        place = page.relative_to(site)
        if place.parts[0] in WITHOUT_TESTS:
            continue
        marked = [found[1] is not None for found in CODE.finditer(page.read_text(encoding="utf-8"))]
        silent += [place] if not all(marked) else []
        told += len(marked)
    assert silent == []
    assert told > len(list((site / "apps").glob("*.html"))) / 2


def test_every_application_has_a_picture_on_a_page(site):
    pages = "".join(page.read_text(encoding="utf-8") for page in (site / "apps").glob("*.html"))
    missing = [name for name in APPS if f'src="pictures/{name}.svg"' not in pages]
    assert missing == []
    assert all((site / "apps" / "pictures" / f"{name}.svg").stat().st_size for name in APPS)


@pytest.mark.parametrize("command", [each.name for each in cli.registered_commands])
def test_the_page_of_the_command_line_has_the_options_of_its_help(site, command):
    page = (site / "reference" / "command-line.html").read_text(encoding="utf-8")
    section = page.partition(f'<h2 id="{command}">')[2].partition("<h2 ")[0]
    asked = CliRunner().invoke(cli, [command, "--help"], env={"COLUMNS": "200", "NO_COLOR": "1"})
    options = set(OPTION_OF_HELP.findall(asked.output)) - {"--help"}
    assert section
    assert set(OPTION_OF_PAGE.findall(section)) == options


def test_search_works_on_pages_that_are_opened_from_disk(site, opened):
    shown = opened((site / "index.html").as_uri(), drawn="input.md-search__input")
    shown.page.click("input.md-search__input")
    shown.page.keyboard.type("lateness")
    shown.page.wait_for_selector(".md-search-result__item")
    assert "Late data" in shown.text(".md-search-result__list")
    assert [url for url in shown.requests if not url.startswith(site.as_uri())] == []
