"""What users may set, and what they read when they set something else."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import pytest

from anabranch.apps import APPS
from anabranch.apps.kit.arguments import (
    a_count,
    a_duration,
    a_number,
    a_share,
    a_text,
    require,
    some_texts,
    unless,
)
from anabranch.errors import BuildError

NEGATIVE = timedelta(seconds=-1)
REFUSED = [
    ("word-count", "distinct", 0),
    ("word-count", "text", 5),
    ("synthetic-word-count", "wait_ms", -1.0),
    ("synthetic-word-count", "rate_per_s", 0.0),
    ("synthetic-word-count", "distinct", 0),
    ("hashtag-sequences", "distinct", 0),
    ("hashtag-sequences", "sequence", []),
    ("finance", "rate_per_s", 0.0),
    ("finance", "tickers", 500_000),
    ("band-join", "rate_per_s", 0.0),
    ("band-join", "largest", 0),
    ("band-join", "lateness", NEGATIVE),
    ("spike-detection", "devices", 0),
    ("spike-detection", "spikes", 2.0),
    ("fraud-detection", "accounts", 0),
    ("fraud-detection", "stolen", -0.1),
    ("log-watch", "break_ins", 2.0),
    ("log-watch", "failures", 0),
    ("log-watch", "within", NEGATIVE),
    ("network-monitoring", "failures", 0),
    ("network-monitoring", "window", timedelta()),
    ("sentiment", "parts", 0),
    ("sentiment", "users", 0),
    ("sentiment", "distinct", 0),
    ("sentiment", "malformed", 5.0),
    ("sentiment", "rate_per_s", 0.0),
    ("sentiment", "top", 0),
    ("micro", "keys", 0),
    ("micro", "operators", 0),
    ("micro", "multiplications", -1),
    ("micro", "rows", -1),
    ("micro", "selectivity", -1.0),
    ("micro", "wait_ms", -1.0),
    ("micro", "rate_per_s", 0.0),
]


@pytest.mark.parametrize(("app", "argument", "value"), REFUSED)
def test_a_value_that_cannot_be_is_refused_by_its_name(app, argument, value):
    with pytest.raises(BuildError, match=f"expected {argument}: .* choose another value"):
        APPS[app].build(**{argument: value})


@pytest.mark.parametrize("app", sorted({app for app, _, _ in REFUSED}))
def test_the_usual_values_will_do(app):
    assert APPS[app].build().names


def test_a_variant_shows_its_own_defaults():
    usual = {name: APPS[name].parameters for name in ("micro", "micro-linear", "micro-diamond")}
    assert usual["micro"]["rows"].default == 5_000_000
    assert usual["micro-linear"]["rows"].default == 800_000
    assert usual["micro-linear"]["multiplications"].default == 10_000
    assert usual["micro"]["operators"].default == 4
    assert [known["rate_per_s"].default for known in usual.values()] == [None, None, 300.0]


@pytest.mark.parametrize("app", list(APPS))
def test_every_default_can_be_given(app):
    known = APPS[app].parameters
    defaults = {name: each.default for name, each in known.items()}
    assert repr(APPS[app].build(**defaults)) == repr(APPS[app].build())


def test_the_command_line_says_it_without_a_traceback(command_line):
    ran = command_line("run", "finance", "--set", "rate_per_s=0")
    assert ran.code != 0
    assert "Traceback" not in ran.err
    assert "expected rate_per_s: a number above 0, got 0.0" in ran.err


@pytest.mark.parametrize(
    "wanted",
    [
        a_count(1, 1, 1),
        a_count(np.int64(7), 0),
        a_number(0, 0),
        a_number(np.float64(0.5), above=0),
        a_number(-7),
        a_share(0),
        a_share(1.0),
        a_duration(timedelta()),
        a_text(""),
        some_texts(("a", "b")),
        unless(None, a_count(None, 1)),
        unless(-1, a_count(-1, 1)),
    ],
)
def test_what_fits_passes(wanted):
    require("app", given=wanted)


@pytest.mark.parametrize(
    "wanted",
    [
        a_count(0, 1),
        a_count(2, 1, 1),
        a_count(1.0, 1),
        a_count(True, 1),
        a_count("5", 1),
        a_count(None, 0),
        a_number(float("nan")),
        a_number(float("nan"), above=0),
        a_number(0, above=0),
        a_number(True),
        a_number("5"),
        a_share(float("nan")),
        a_share(1.001),
        a_duration(NEGATIVE),
        a_duration(5),
        a_duration(timedelta(), above_zero=True),
        a_text(None),
        some_texts("ab"),
        some_texts(["a", 1]),
        unless(None, a_count(0, 1)),
        unless(-1, a_count(-2, 1)),
    ],
)
def test_what_does_not_fit_is_refused(wanted):
    with pytest.raises(BuildError, match=r"^application 'app': expected given: .*; choose another"):
        require("app", given=wanted)
