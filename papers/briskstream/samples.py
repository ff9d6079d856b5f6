"""Tuples for BriskStream's four applications to be profiled with, drawn from a seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

WORDS, WORD_LETTERS, SENTENCE_WORDS = 10_000, 9, 10
"""Nine letters a word: sentences are then as large as the paper's (216 B), words as well (40 B)."""
ACCOUNTS, TRANSACTION_TYPES = 100, 18
DEVICES = 3
"""So few accounts and devices that windows of 10 and 1000 are full after half of a small sample."""
CARS, SEGMENTS, WAYS = 3000, 100, 2


def sentences(count: int, seed: int = 0) -> list[str]:
    """Ten random words each.

    Example:
        >>> [len(line.split()) for line in sentences(2)], len(sentences(1)[0])
        ([10, 10], 99)
    """
    draw = random.Random(seed)
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["".join(draw.choices(letters, k=WORD_LETTERS)) for _ in range(WORDS)]
    return [" ".join(draw.choices(words, k=SENTENCE_WORDS)) for _ in range(count)]


def transactions(count: int, seed: int = 0) -> list[str]:
    """Account, number and type."""
    draw = random.Random(seed)
    return [
        f"{draw.randrange(ACCOUNTS):010d},{number:010d},T{draw.randrange(TRANSACTION_TYPES):02d}"
        for number in range(count)
    ]


def transitions(seed: int = 0) -> Mapping[tuple[str, str], float]:
    """A Markov model: chances of a type of transaction after another."""
    draw = random.Random(seed)
    types = [f"T{number:02d}" for number in range(TRANSACTION_TYPES)]
    model = {}
    for previous in types:
        weights = [draw.random() for _ in types]
        for one, weight in zip(types, weights, strict=True):
            model[previous, one] = weight / sum(weights)
    return model


def readings(count: int, seed: int = 0) -> list[str]:
    """Date, time, number, sensor and value."""
    draw = random.Random(seed)
    return [
        f"2004-03-{1 + number % 28:02d} 08:{number % 60:02d}:00.00000 {number % 65536} "
        f"{1 + draw.randrange(DEVICES)} {draw.gauss(20.0, 1.0):.4f}"
        for number in range(count)
    ]


def road_events(count: int, seed: int = 0) -> list[str]:
    """Type, time, car, speed, way, lane, direction, segment and place; 99 in 100 are positions."""
    draw = random.Random(seed)
    return [_road_event(draw, number) for number in range(count)]


def _road_event(draw: random.Random, number: int) -> str:
    kind = draw.choices((0, 2, 3), (0.99, 0.005, 0.005))[0]
    segment = draw.randrange(SEGMENTS)
    fields = (
        kind,
        number // 200,
        draw.randrange(CARS),
        draw.randrange(30, 100),
        draw.randrange(WAYS),
        draw.randrange(4),
        draw.randrange(2),
        segment,
        segment * 5280 + draw.randrange(5280),
    )
    return ",".join(str(field) for field in fields)


SAMPLES: Mapping[str, Callable[[int], list[str]]] = {
    "wc": sentences,
    "fd": transactions,
    "sd": readings,
    "lr": road_events,
}
"""What each application takes in, by its name."""
