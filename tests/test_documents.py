"""What the documents show is what happens: their code runs and prints what stands below it.

The ```python blocks of a document run in order, in one namespace. A ```text block right behind one
is what it prints. In a ```console block, `$ anabranch …` runs and prints the lines that follow it.
"""

import re
import shlex
from pathlib import Path

import pytest

from anabranch.cli import main
from tests.pages import REPOSITORY, belittling_words, blocks_of, commands_of, run_python

PACKAGE = REPOSITORY / "src" / "anabranch"
PAGES = ("README.md", "ARCHITECTURE.md")
NOTES = sorted((REPOSITORY / "docs" / "decisions").glob("[0-9]*.md"))
DOCUMENTS = [*(REPOSITORY / page for page in PAGES), *NOTES]

LINK = re.compile(r"\]\((?!https?:)([^)#]+)")
LISTED = re.compile(r"^( *)([\w./]+(?:/|\.py))(?: |$)")
MOST_NOTE_LINES = 40


def name_of(path: Path) -> str:
    return str(path.relative_to(REPOSITORY))


@pytest.mark.parametrize("page", PAGES)
def test_every_python_block_runs_and_prints_what_the_page_shows(page, capsys):
    namespace: dict[str, object] = {"__name__": page}
    for block in blocks_of(REPOSITORY / page):
        if block.language != "python":
            continue
        run_python(block, page, namespace)
        printed = capsys.readouterr().out
        if block.shows is not None:
            assert printed == block.shows, f"{page}:{block.line}"


COMMANDS = [
    (command, output)
    for page in PAGES
    for block in blocks_of(REPOSITORY / page)
    if block.language == "console"
    for command, output in commands_of(block)
    if command.startswith("anabranch ")
]


@pytest.mark.parametrize(("command", "shown"), COMMANDS)
def test_every_command_prints_what_the_page_shows(command, shown, capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", shlex.split(command))
    with pytest.raises(SystemExit) as exit_:
        main()
    assert not exit_.value.code
    printed = capsys.readouterr().out
    assert printed == shown or (printed and not shown)


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_every_link_leads_somewhere(document):
    links = LINK.findall(document.read_text(encoding="utf-8"))
    missing = [link for link in links if not (document.parent / link).exists()]
    assert not missing


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_no_sentence_tells_the_reader_that_something_is_easy(document):
    assert belittling_words(document) == []


@pytest.mark.parametrize("note", NOTES, ids=name_of)
def test_a_note_has_the_four_parts_and_its_number(note):
    lines = note.read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith(f"# {note.name[:4]}: ")
    parts = {line.removeprefix("## ") for line in lines if line.startswith("## ")}
    assert {"Context", "Decision", "Alternatives", "Consequences"} <= parts


def test_notes_are_numbered_without_a_gap():
    assert [int(note.name[:4]) for note in NOTES] == list(range(1, len(NOTES) + 1))


@pytest.mark.parametrize("note", NOTES[1:], ids=name_of)  # the first one is a table
def test_a_note_is_read_in_two_minutes(note):
    assert len(note.read_text(encoding="utf-8").splitlines()) <= MOST_NOTE_LINES


def listed_paths() -> list[Path]:
    """The paths in the folder listing of the architecture page; folders end with a slash."""
    listing = next(
        b.text for b in blocks_of(REPOSITORY / "ARCHITECTURE.md") if "src/anabranch/" in b.text
    )
    folders: dict[int, Path] = {-1: REPOSITORY}
    paths = []
    for line in listing.splitlines():
        if found := LISTED.match(line):
            depth, path = len(found[1]), found[2]
            above = max(d for d in folders if d < depth)
            paths.append(folders[above] / path)
            if path.endswith("/"):
                folders = {d: f for d, f in folders.items() if d < depth}
                folders[depth] = paths[-1]
    return paths


def test_the_listing_names_only_what_exists():
    missing = [name_of(path) for path in listed_paths() if not path.exists()]
    assert not missing


def test_the_listing_names_every_unit_of_the_package():
    units = {
        path
        for path in PACKAGE.iterdir()
        if (path.is_dir() and (path / "__init__.py").exists()) or path.suffix == ".py"
    }
    assert units <= set(listed_paths())
