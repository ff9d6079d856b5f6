"""What the documents show is what happens: their code runs and prints what stands below it.

The ```python blocks of a document run in order, in one namespace. A ```text block right behind one
is what it prints. In a ```console block, `$ anabranch …` runs and prints the lines that follow it.
"""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

import pytest

from anabranch.cli import main

REPOSITORY = Path(__file__).resolve().parents[1]
PACKAGE = REPOSITORY / "src" / "anabranch"
PAGES = ("README.md", "ARCHITECTURE.md")
NOTES = sorted((REPOSITORY / "docs" / "decisions").glob("[0-9]*.md"))
DOCUMENTS = [*(REPOSITORY / page for page in PAGES), *NOTES]

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:)([^)#]+)")
LISTED = re.compile(r"^( *)([\w./]+(?:/|\.py))(?: |$)")
MOST_NOTE_LINES = 40


@dataclass(frozen=True)
class Block:
    language: str
    text: str
    line: int
    shows: str | None
    """The ```text block that follows, with nothing but blank lines between."""


def blocks_of(page: str) -> list[Block]:
    text = (REPOSITORY / page).read_text(encoding="utf-8")
    fences = list(FENCE.finditer(text))
    followers = [*fences[1:], None]
    blocks = []
    for fence, after in zip(fences, followers, strict=True):
        adjacent = after and after[1] == "text" and not text[fence.end() : after.start()].strip()
        shows = after[2] if after and adjacent else None
        blocks.append(Block(fence[1], fence[2], text.count("\n", 0, fence.start()) + 2, shows))
    return blocks


def name_of(path: Path) -> str:
    return str(path.relative_to(REPOSITORY))


@pytest.mark.parametrize("page", PAGES)
def test_every_python_block_runs_and_prints_what_the_page_shows(page, capsys):
    namespace: dict[str, object] = {"__name__": page}
    for block in blocks_of(page):
        if block.language != "python":
            continue
        # Blank lines in front make a traceback point into the page.
        code = compile("\n" * (block.line - 1) + block.text, page, "exec")
        exec(code, namespace)
        printed = capsys.readouterr().out
        if block.shows is not None:
            assert printed == block.shows, f"{page}:{block.line}"


def commands_of(page: str) -> list[tuple[str, str]]:
    """Each `anabranch` command of a page, with the output that the page shows."""
    commands: list[tuple[str, str]] = []
    for block in blocks_of(page):
        if block.language == "console":
            for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
                command, _, output = part.partition("\n")
                commands.append((command, output))
    return [(command, output) for command, output in commands if command.startswith("anabranch ")]


@pytest.mark.parametrize(("command", "shown"), [c for page in PAGES for c in commands_of(page)])
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
    prose = FENCE.sub("", document.read_text(encoding="utf-8"))
    assert re.findall(r"\b(?:simply|just|obviously)\b", prose, re.IGNORECASE) == []


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
    listing = next(b.text for b in blocks_of("ARCHITECTURE.md") if "src/anabranch/" in b.text)
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
