"""How property tests draw their examples, workers by default, the command line as a function.

`default` draws the same examples in every run, so a failure is always the change's own doing: a
sample in `make test`, all in `make test-all`. `soak` (`make soak`) draws fresh ones, as many as
ANABRANCH_SOAK says. A law that sets `max_examples` itself keeps its own number in `make soak`, so
laws leave it to the profile.
"""

import os
import sys
from collections.abc import Callable
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, settings

from anabranch.cli import main
from tests.sampling import SOAK, some, thorough

# Test doubles keep lists and events that do not travel; tests of workers say how many they want.
os.environ.setdefault("ANABRANCH_WORKERS", "0")
# Freed shared memory is filled with a pattern, so that tests notice who still reads there.
os.environ.setdefault("ANABRANCH_WIPE_SLOTS", "1")

settings.register_profile(
    "default", derandomize=True, deadline=None, print_blob=True, max_examples=some(100)
)
if SOAK:
    settings.register_profile(
        "soak",
        derandomize=False,
        deadline=None,
        print_blob=True,
        max_examples=SOAK,
        suppress_health_check=[HealthCheck.too_slow],
    )
settings.load_profile("soak" if SOAK else "default")


@pytest.hookimpl(tryfirst=True)  # before pytest looks at marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave the browser to `make test-all`."""
    for item in items:
        if "chromium" in getattr(item, "fixturenames", ()):
            item.add_marker(thorough)


class Ran(NamedTuple):
    """What a call of the command line left behind."""

    code: int
    out: str
    err: str


@pytest.fixture
def command_line(capsys, monkeypatch) -> Callable[..., Ran]:
    """`anabranch` with some arguments, in this process."""

    def call(*arguments: object) -> Ran:
        monkeypatch.setattr(sys, "argv", ["anabranch", *map(str, arguments)])
        try:
            main()
            code = 0
        except SystemExit as stop:
            code = int(stop.code or 0)
        return Ran(code, *capsys.readouterr())

    return call
