"""What mkdocs calls: adds the pages and pictures that are made from the code itself.

A generated page cannot become stale: applications, the command line and the pictures are those of
the library that the site is built with. Documents of the repository join the site as they are.
"""

from __future__ import annotations

import re
from pathlib import Path
from posixpath import dirname, join, normpath, relpath
from typing import Any

from application_pages import FOLDER, application_pages, by_page
from command_page import command_page
from diagrams import diagrams
from metrics_page import metrics_page
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from not_run import made_visible

REPOSITORY = Path(__file__).resolve().parents[2]
ROOT_PAGES = {
    "ARCHITECTURE.md": "project/architecture.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "CHANGELOG.md": "project/changelog.md",
}
"""Documents at the top of the repository, and where they are in the site."""
PLACES = {**ROOT_PAGES, "README.md": "index.md"}
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https?:|#)([^)#\s]+)(#[^)]*)?\)")
TITLE = re.compile(r"^# (.+)$", re.MULTILINE)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Fill in the parts of the navigation that follow from what there is."""
    assert config.nav is not None
    decisions = sorted((Path(config.docs_dir) / "decisions").glob("[0-9]*.md"))
    added: dict[str, list[Any]] = {
        "Applications": [f"{FOLDER}/{name}.md" for name in sorted(by_page())],
        "Decisions": [{_title(note): f"decisions/{note.name}"} for note in decisions],
    }
    _extend(config.nav, added)
    return config


def _extend(nav: Any, added: dict[str, list[Any]]) -> None:
    for item in nav:
        if isinstance(item, dict):
            for title, below in item.items():
                if isinstance(below, list):
                    below += added.get(title, [])
                    _extend(below, added)


def _title(page: Path) -> str:
    found = TITLE.search(page.read_text(encoding="utf-8"))
    return found[1] if found else page.stem


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what is generated, and the documents from the top of the repository."""
    made = [
        *application_pages(),
        *diagrams(),
        ("reference/command-line.md", command_page()),
        ("reference/metrics.md", metrics_page()),
    ]
    for place, text in made:
        files.append(File.generated(config, place, content=text))
    for name, place in ROOT_PAGES.items():
        text = _moved((REPOSITORY / name).read_text(encoding="utf-8"), place)
        files.append(File.generated(config, place, content=text))
    return files


def _moved(text: str, place: str) -> str:
    """A document of the top folder with its links as they are in the site.

    What the site does not have, such as the license, is named without a link.
    """

    def moved(link: re.Match[str]) -> str:
        words, target, anchor = link[1], normpath(link[2]), link[3] or ""
        inside = target.removeprefix("docs/") if target.startswith("docs/") else None
        if inside == "decisions":
            inside = "decisions/README.md"
        goal = PLACES.get(target, inside)
        if goal is None:
            return words
        return f"[{words}]({relpath(goal, dirname(place))}{anchor})"

    return LINK.sub(moved, text)


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Say what is not run; name without a link what lies outside of the documentation."""
    here = dirname(page.file.src_uri)

    def kept(link: re.Match[str]) -> str:
        goal = normpath(join(here, link[2]))
        return link[1] if goal.startswith("..") else link[0]

    return made_visible(LINK.sub(kept, markdown))
