"""Turns benchmark results into one page: `python benchmarks/write_docs.py RESULTS PAGE`.

RESULTS is a folder with one JSON object per benchmark, as the script printed it with `--json`:

    {"name": "word_count", "claim": "one sentence",
     "figures": {"words_per_s": 4.5e6},
     "bars": [{"name": "words_per_s", "value": 4.5e6, "limit": "at least 4e6", "holds": true}],
     "machine": {"cores": 2, "python": "3.11.7"}, "command": "python benchmarks/word_count.py"}

`figures` and `bars` are either a list of rows or an object whose keys name the rows; a row's own
keys become columns, and each bar says whether it `holds`. Only `name` is required.
"""

import argparse
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

INTRODUCTION = """\
# Benchmarks

Written by `make bench` from `benchmarks/results`; changes made here by hand are lost. A *bar* is a
limit that a claim of the documentation rests on.
"""


def page(results: Iterable[Mapping[str, Any]]) -> str:
    """The whole page: an overview, then a section per benchmark."""
    ordered = sorted(results, key=lambda result: result["name"])
    if not ordered:
        return INTRODUCTION + "\nNo benchmark has been run yet.\n"
    overview = table([{"benchmark": link(result), "bars": held(result)} for result in ordered])
    return "\n".join([INTRODUCTION, overview, *map(section, ordered)])


def section(result: Mapping[str, Any]) -> str:
    """One benchmark: its claim, figures, bars, machine and command."""
    parts = [f"## {result['name']}\n"]
    if claim := result.get("claim"):
        parts.append(f"{claim}\n")
    if figures := rows(result.get("figures"), "figure"):
        parts.append(table(figures))
    if bars := rows(result.get("bars"), "bar"):
        parts.append(table(bars))
    if machine := result.get("machine"):
        parts.append(f"Machine: {inline(machine)}\n")
    if command := result.get("command"):
        parts.append(f"Command: `{command}`\n")
    return "\n".join(parts)


def rows(data: Any, kind: str) -> list[dict[str, Any]]:
    """A list of rows from a list, or from an object whose keys name the rows."""
    if isinstance(data, Mapping):
        return [
            {kind: name, **(value if isinstance(value, Mapping) else {"value": value})}
            for name, value in data.items()
        ]
    return [dict(row) for row in data or []]


def table(data: list[dict[str, Any]]) -> str:
    """A markdown table with a column for each key that any row has."""
    columns = list(dict.fromkeys(key for row in data for key in row))
    cells = [[cell(row.get(column)) for column in columns] for row in data]
    lines = [columns, ["---"] * len(columns), *cells]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def cell(value: Any) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "**no**"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
        case _:
            return inline(value).replace("|", "\\|").replace("\n", " ")


def inline(value: Any) -> str:
    """A note on one line: text as it is, an object as `key: value, ...`."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {inline(item)}" for key, item in value.items())
    return str(value)


def link(result: Mapping[str, Any]) -> str:
    anchor = "".join(c for c in result["name"].lower() if c.isalnum() or c in " -_")
    return f"[{result['name']}](#{anchor.replace(' ', '-')})"


def held(result: Mapping[str, Any]) -> str:
    bars = rows(result.get("bars"), "bar")
    missed = sum(not bar["holds"] for bar in bars)
    if not bars:
        return "none set"
    return f"**{missed} of {len(bars)} missed**" if missed else f"all {len(bars)} hold"


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the benchmark page from JSON results.")
    parser.add_argument("results", type=Path, help="folder with one JSON file per benchmark")
    parser.add_argument("page", type=Path, help="markdown file to write")
    arguments = parser.parse_args()
    results = [
        json.loads(path.read_text(encoding="utf-8"))
        for path in sorted(arguments.results.glob("*.json"))
    ]
    arguments.page.write_text(page(results), encoding="utf-8")
    print(f"{arguments.page}: {len(results)} benchmarks")


if __name__ == "__main__":
    main()
