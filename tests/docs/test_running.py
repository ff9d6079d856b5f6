"""Following a page, and noticing where it is wrong."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from tests.docs.running import follow
from tests.docs.test_pages import differences, standing_in
from tests.docs.test_site import loaded_from_elsewhere
from tests.pages import blocks_of


@pytest.fixture
def page(tmp_path, monkeypatch):
    """Writes a page and gives its path; it stands where pages are expected."""
    monkeypatch.setattr("tests.docs.test_pages.DOCS", tmp_path)

    def write(text: str) -> Path:
        path = tmp_path / "page.md"
        path.write_text(textwrap.dedent(text))
        return path

    return write


def followed(page: Path) -> list[str]:
    with standing_in(page.parent):
        return differences(page, list(follow(page, page.name)))


def test_output_that_differs_from_what_a_page_shows_is_told(page):
    wrong = page("""
        ```python
        print(1 + 1)
        ```

        ```text
        3
        ```
        """)
    assert followed(wrong) == ["page.md:3 shows\n3\n\nand prints\n2\n"]


def test_an_empty_block_below_code_that_prints_is_told(page):
    wrong = page("""
        ```python
        print(1 + 1)
        ```

        ```text
        ```
        """)
    assert followed(wrong) == ["page.md:3 shows\n\nand prints\n2\n"]


def test_a_command_that_prints_what_no_line_shows_is_told(page):
    wrong = page("""
        ```console
        $ true
        $ echo unseen
        ```
        """)
    assert followed(wrong) == ["page.md:3 shows\n\nand prints\nunseen\n"]


def test_a_block_with_a_title_is_a_file_that_later_blocks_can_use(page):
    good = page("""
        ```python title="numbers_of_a_page.py"
        N = 7
        ```

        ```python
        from numbers_of_a_page import N
        ```

        ```console
        $ echo "from numbers_of_a_page import N; print(N + 1)" > more.py
        $ python more.py
        8
        ```
        """)
    assert followed(good) == []


def test_a_block_that_is_marked_is_not_run(page):
    marked = page("""
        <!-- not run: it would fail -->
        ```python
        1 / 0
        ```
        """)
    assert followed(marked) == []
    assert [block.marked_not_run for block in blocks_of(marked)] == [True]


def test_a_mark_without_a_reason_or_further_up_does_not_count(page):
    unmarked = page("""
        <!-- not run: -->
        ```sh
        make
        ```

        <!-- not run: needs a network -->
        In between.

        ```sh
        make
        ```
        """)
    assert [block.marked_not_run for block in blocks_of(unmarked)] == [False, False]


def test_a_command_that_fails_is_an_error(page):
    failing = page("""
        ```console
        $ echo about to fail; exit 3
        ```
        """)
    with pytest.raises(AssertionError, match="about to fail"):
        followed(failing)


@pytest.mark.parametrize(
    "markup",
    [
        '<script src="https://host/a.js"></script>',
        '<link rel="stylesheet" href="//host/a.css">',
        '<img src=" http://host/a.png">',
        "<style>a { background: url('https://host/a.png') }</style>",
    ],
)
def test_what_a_page_loads_from_another_host_is_found(markup, tmp_path):
    page = tmp_path / "page.html"
    page.write_text(f'<a href="https://host/">a link is not loaded</a>{markup}')
    assert len(list(loaded_from_elsewhere(page))) == 1
