"""Many changes of plan while tuples flow: the sequential results, and P1 to P6 all the way."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from tests.engines.local.switching import Switching
from tests.sampling import few


@pytest.fixture(autouse=True)
def _impatient_threads() -> Iterator[None]:
    """Threads take turns a hundred times as often as usual."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(5e-5)
    yield
    sys.setswitchinterval(usual)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("seed", few(range(3), 1))
def test_a_hundred_switches_change_nothing(seed: int, monkeypatch: pytest.MonkeyPatch):
    run = Switching(monkeypatch, seed, changes=60)
    assert run.run() == []
    assert run.recorder.switches >= 100
