"""An engine does what it may be asked to do, or refuses it by name."""

from __future__ import annotations

import pytest

from anabranch.engines.registry import ENGINES
from anabranch.errors import AnabranchError
from tests.conformance.capabilities import CANNOT, CAPABILITIES, NEED_SPARK, Place
from tests.conformance.ways import SLOW, marked, options_of
from tests.sampling import ALL, sampled

pytestmark = sampled


def cases() -> list[object]:
    """What the slow engine can do is tried when all is asked for: its own tests do so, too."""
    found = []
    for engine in ENGINES:
        for capability in CAPABILITIES:
            if engine == SLOW and not ALL and (engine, capability) not in CANNOT:
                continue
            case = marked(SLOW if capability in NEED_SPARK else engine, capability)
            found.append(
                pytest.param(engine, capability, marks=case.marks, id=f"{engine}-{capability}")
            )
    return found


@pytest.mark.parametrize(("engine", "capability"), cases())
def test_an_engine_does_it_or_says_that_it_cannot(engine, capability, request, tmp_path):
    place = Place(
        engine,
        options_of(engine, request),
        tmp_path,
        lambda: request.getfixturevalue("spark"),
    )
    reason = CANNOT.get((engine, capability))
    if reason is None:
        CAPABILITIES[capability](place)
        return
    with pytest.raises(AnabranchError) as refused:
        CAPABILITIES[capability](place)
    assert reason.words in str(refused.value)
    assert refused.value.remedy


def test_marks_are_about_engines_and_capabilities_that_exist():
    assert {engine for engine, _ in CANNOT} <= set(ENGINES)
    assert {capability for _, capability in CANNOT} <= set(CAPABILITIES)
