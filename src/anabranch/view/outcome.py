"""What came of a run, in words for people and as one object for programs."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from anabranch.engines.handle import Result
from anabranch.events import SkippedRow
from anabranch.flow import Flow
from anabranch.view.late import set_aside
from anabranch.view.words import change_line, latency_line

NOTICED_S = 1.0
LONGEST_ROW = 120


def in_words(result: Result, flow: Flow) -> str:
    """Rate, rows that were left out, plan tree, plan changes and the journal of the policy."""
    read = f"{result.rows_in:,} rows in, {result.rows_out:,} out, in {duration(result)}"
    end = "all sources have ended" if result.ended else "stopped before the end of its sources"
    changes = [f"  {change_line(change)}" for change in result.reconfigurations]
    journal = result.decisions
    return "\n".join(
        [
            f"{result.flow} on {result.engine}: {result.rate_per_s:,.0f} rows a second",
            f"  {read}; {end}",
            f"  latency {latency_line(result.latency_p50_ms, result.latency_p99_ms)}",
            *(f"  {line}" for line in left_out(result, flow)),
            *(f"  {first_line(step, row)}" for step, row in result.first_skipped.items()),
            repr(result.plan),
            *([f"plan changes: {len(changes)}", *changes] if changes else ["no plan changes"]),
            *(["journal:", *(f"  {each}" for each in journal)] if journal else []),
        ]
    )


def duration(result: Result) -> str:
    """How long it worked; a start that could be noticed is told, too, as it is not part of that."""
    start = f", after {result.starting_s:.1f} s to start" if result.starting_s > NOTICED_S else ""
    return f"{result.seconds:.1f} s{start}"


def left_out(result: Result, flow: Flow) -> list[str]:
    """What did not go the way of all rows, and where; nothing if all did."""
    skipped = [
        f"{count:,} rows malformed or not to be worked on at {step!r}"
        for step, count in result.skipped.items()
    ]
    return [*skipped, *map(str, set_aside(flow, result))]


def first_line(step: str, row: SkippedRow) -> str:
    """The first row that a step set aside, where it stands and what is wrong with it.

    Example:
        >>> first_line("parse", SkippedRow("lines", "bids.jsonl", 3, "no value for 'n'", "{}"))
        "the first at 'parse' is bids.jsonl:3, no value for 'n': {}"
    """
    return f"the first at {step!r} is {place_of(row)}{row.why}: {_shortened(row.text)}"


def place_of(row: SkippedRow) -> str:
    """Where a row stands, before what is said of it; nothing where that is not known."""
    return f"{row.part}:{row.row}, " if row.part else ""


def _shortened(text: str) -> str:
    one_line = " ".join(text.split())
    return one_line if len(one_line) <= LONGEST_ROW else f"{one_line[: LONGEST_ROW - 1]}…"


def as_object(app: str, result: Result, flow: Flow) -> dict[str, Any]:
    """What `run --json` prints; plans are objects as `plan --json` writes them."""
    return {
        "app": app,
        "engine": result.engine,
        "rows_in": result.rows_in,
        "rows_out": result.rows_out,
        "seconds": round(result.seconds, 3),
        "starting_s": round(result.starting_s, 3),
        "rate_per_s": round(result.rate_per_s, 1),
        "latency_ms": {
            "p50": round(result.latency_p50_ms, 3),
            "p99": round(result.latency_p99_ms, 3),
        },
        "ended": result.ended,
        "skipped": dict(result.skipped),
        "first_skipped": {step: asdict(row) for step, row in result.first_skipped.items()},
        "late": dict(result.late),
        "set_aside": [each.as_object() for each in set_aside(flow, result)],
        "reconfigurations": [
            {
                "at_s": round(change.at_s, 3),
                "pause_ms": round(change.pause_ms, 3),
                "what": list(change.moved),
                "from": json.loads(change.before),
                "to": json.loads(change.after),
            }
            for change in result.reconfigurations
        ],
        "decisions": [asdict(decision) for decision in result.decisions],
        "plan": json.loads(result.plan.to_json()),
    }
