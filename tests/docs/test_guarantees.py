"""The page about exactly once tells of every sink what it guarantees."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, get_type_hints

import anabranch as ab
from anabranch.io.sink import Sink
from tests.pages import REPOSITORY

ROW = re.compile(r"^\| `ab\.(\w+)` \| ([a-z ]+) \|", re.MULTILINE)


def public_sinks() -> Iterator[tuple[str, Any]]:
    """The public functions that make a sink, and the classes of what they make."""
    for name in ab.__all__:
        value = getattr(ab, name)
        if callable(value) and not isinstance(value, type):
            made = get_type_hints(value).get("return")
            if isinstance(made, type) and Sink in made.__mro__:
                yield name, value


def test_the_page_tells_the_guarantee_of_every_sink(tmp_path):
    page = (REPOSITORY / "docs" / "concepts" / "exactly-once.md").read_text("utf-8")
    given = {"call": (print,), "each_batch": (print,)}
    given |= {name: (tmp_path / name,) for name in ("parquet", "csv", "jsonl")}
    declared = {
        name: make(*given.get(name, ())).traits.guarantee.value for name, make in public_sinks()
    }
    assert len(declared) >= 7
    assert dict(ROW.findall(page)) == declared
