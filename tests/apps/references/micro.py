"""Every shape as it is drawn: a tuple at a time, each operator a function of it and of a count."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any
from zlib import crc32

from tests.apps.cases import HUGE_ROWS, Case, Row, Rows

WORD = 2**64

Operator = Callable[[Iterable[Row]], list[Row]]


def signed(number: int) -> int:
    return (number + WORD // 2) % WORD - WORD // 2


def mixed(word: int) -> int:
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        word = (word ^ word >> shift) * factor % WORD
    return word ^ word >> 31


def share(*keys: int) -> float:
    word = 0
    for key in keys:
        word = mixed((word + (key + 1) * 0x9E3779B97F4A7C15) % WORD)
    return (word >> 11) / 2**53


def operator(
    name: str, times: int, passes: float = 1.0, count_by: Callable[[Row], Any] | None = None
) -> Operator:
    """Counts if it shall, multiplies, and passes each tuple on so many times."""
    seen: Counter[Any] = Counter()
    salt = crc32(name.encode())

    def run(rows: Iterable[Row]) -> list[Row]:
        out = []
        for row in rows:
            value = row["value"]
            if count_by is not None:
                value = signed(value + seen[count_by(row)])
                seen[count_by(row)] += 1
            if times:
                value = signed(value ^ signed(pow(value | 1, times + 1, WORD)))
            copies = int(passes) + (share(salt, value) < passes % 1)
            out += [{**row, "value": signed(value + copy)} for copy in range(copies)]
        return out

    return run


def by(key: str) -> Callable[[Row], Any]:
    return lambda row: row[key]


def chain(rows: Iterable[Row], *operators: Operator) -> list[Row]:
    made = list(rows)
    for each in operators:
        made = each(made)
    return made


def single_region(rows: Rows) -> Rows:
    rest = [operator(f"m{number}", 256) for number in (2, 3, 4)]
    return {"out": chain(rows["source"], operator("m1", 256, 1, by("key1")), *rest)}


def two_regions(rows: Rows) -> Rows:
    operators = (
        operator("a1", 8 * 32, 1, by("key1")),
        operator("a2", 8 * 32),
        operator("b1", 32, 1, by("key2")),
        operator("b2", 32),
    )
    return {"out": chain(rows["source"], *operators)}


def tree(rows: Rows) -> Rows:
    root = chain(rows["source"], operator("a", 256, 1, by("key1")))
    leaves = operator("b", 256, 1, by("key2")), operator("c", 256, 1, by("key3"))
    return {"out": chain(root, leaves[0]), "c.out": chain(root, leaves[1])}


def reverse_tree(rows: Rows) -> Rows:
    """Two sources are merged tuple by tuple: the first of each, the second of each, and so on."""
    left = chain(rows["left"], operator("a", 256, 1, by("key1")))
    right = chain(rows["right"], operator("b", 256, 1, by("key2")))
    both = [row for pair in zip(left, right, strict=True) for row in pair]
    return {"out": chain(both, operator("c", 256, 1, by("key3")))}


def selectivity(rows: Rows) -> Rows:
    operators = (
        operator("m1", 1024, 1, by("key1")),
        operator("s1", 0, 4),
        operator("m2", 256),
        operator("s2", 0, 0.25),
        operator("m3", 1024),
        operator("s3", 0, 0.5),
        operator("m4", 2048),
    )
    return {"out": chain(rows["source"], *operators)}


def joker_chain(rows: Rows) -> Rows:
    """All selectivities are 0.9 of what is asked for, which is 0.8 here."""
    passes = 0.9 * 0.8
    operators = (
        operator("mult1", 400, passes, by("key1")),
        operator("mult2", 240, passes),
        operator("mult3", 20, passes),
        operator("mult4", 200, passes, lambda row: "all"),
        operator("mult5", 1600, passes, by("key2")),
        operator("mult6", 800, passes),
        operator("mult7", 400, passes),
    )
    return {"out": chain(rows["source"], *operators)}


def values(rows: Iterable[Row]) -> list[Row]:
    return [{"value": row["value"]} for row in rows]


def parse(rows: Iterable[Row]) -> list[Row]:
    return [{**row, "value": json.loads(row["payload"])["value"]} for row in rows]


def linear(rows: Rows) -> Rows:
    operators = [operator(f"op{number}", 10_000) for number in (2, 3, 4)]
    return {"out": values(chain(rows["op1"], *operators))}


def diamond(rows: Rows) -> Rows:
    """Each tuple comes out of all four operators before the next does; two of them only wait."""
    compute = operator("op2", 10_000)
    ways = (
        compute(rows["op1"]),
        parse(rows["op1"]),
        rows["op1"],
        rows["op1"],
    )
    return {"out": values(row for four in zip(*ways, strict=True) for row in four)}


def star(rows: Rows) -> Rows:
    """What parses passes every tuple on twice here."""
    both = [row for pair in zip(rows["op1"], rows["op2"], strict=True) for row in pair]
    centre = operator("op3.pass", 0, 2)(parse(both))
    return {
        "out": values(operator("op4.pass", 0, 2)(parse(centre))),
        "op5.out": values(operator("op5.pass", 0, 2)(parse(centre))),
    }


KEYED = {"rows": 60, "keys": 5}
LARGER = {"rows": 1000, "keys": 60}
TEXTS = {"rows": 60, "payload_bytes": 40}
LONGER = {"rows": 250, "payload_bytes": 80}
MANY_KEYS = {"keys": 5_000}
FEWER = {selectivity: HUGE_ROWS // 4, star: HUGE_ROWS // 8}
"""Rows where a tuple becomes four on the way, or eight."""


def case(name: str, reference: Callable[[Rows], Rows], **given: Any) -> Case:
    few, many, huge = KEYED, LARGER, MANY_KEYS
    if reference in (linear, diamond, star):
        # Tuples that are due one after another would take minutes, and those that wait as well.
        few, many, huge = TEXTS, LONGER, {"wait_ms": 0.001, "rate_per_s": None}
    huge = {**huge, "rows": FEWER.get(reference, HUGE_ROWS)}
    return Case(name, {**few, **given}, {**many, **given}, reference, huge=huge)


CASES = [
    case("micro", single_region),
    case("micro-two-regions", two_regions, operators=2, multiplications=32, costlier=8),
    case("micro-tree", tree),
    case("micro-reverse-tree", reverse_tree),
    case("micro-selectivity", selectivity),
    case("micro-joker-chain", joker_chain, selectivity=0.8),
    case("micro-linear", linear),
    case("micro-diamond", diamond, wait_ms=0.02),
    case("micro-star", star, selectivity=2.0),
]
