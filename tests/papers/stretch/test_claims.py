"""Verdicts follow from numbers: each rule is shown numbers that keep it and that break it."""

import pytest

from papers.stretch.claims import (
    TABLE_2,
    elastic_claims,
    figure_4a_claims,
    figure_4b_claims,
    intra_claims,
    model_claims,
)
from papers.stretch.figure5 import Switched
from tests.papers.stretch.scripted import contest, elastic, intra, machine, single

YES, NO, NONE = "reproduced", "not reproduced", "not comparable"


def verdicts(claims) -> list[str]:
    return [claim.verdict.value for claim in claims]


def test_what_is_computed_is_reproduced():
    assert verdicts(model_claims()) == [YES, YES]


def test_a_table_with_another_number_is_not_reproduced(monkeypatch):
    monkeypatch.setitem(TABLE_2, 5, (8, 2))
    claim = model_claims()[1]
    assert (claim.verdict.value, claim.ours) == (NO, "8 of 10 equal")


GOOD_4A = {"virtual": (1.0, 2.0, 2.0), "pure": (1.0, 1.5, 1.0)}


def test_figure_4a_as_in_the_paper():
    claims = figure_4a_claims(contest(**GOOD_4A), machine(2))
    assert verdicts(claims) == [YES, YES, YES, NONE]
    assert "1.00×, 1.33×, 2.00×" in claims[0].ours


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"virtual": (0.9, 2.0, 2.0), "pure": (1.0, 1.5, 1.0)}, [NO, YES, YES, NONE]),
        ({"virtual": (1.0, 2.0, 1.0), "pure": (1.0, 1.5, 1.0)}, [NO, YES, YES, NONE]),
        ({**GOOD_4A, "latency": ((9.0,) * 3, (9.0,) * 3)}, [YES, NO, YES, NONE]),
        (
            {**GOOD_4A, "model": {"V_SN": (1.0, 3.0, 2.0), "P_SN": (1.0, 1.5, 1.0)}},
            [YES, YES, NO, NONE],
        ),
        (  # more threads than cores are not held against the model
            {**GOOD_4A, "model": {"V_SN": (1.0, 2.0, 9.0), "P_SN": (1.0, 1.5, 9.0)}},
            [YES, YES, YES, NONE],
        ),
    ],
)
def test_figure_4a_otherwise(given, expected):
    assert verdicts(figure_4a_claims(contest(**given), machine(2))) == expected


def test_figure_4b_as_in_the_paper():
    claims = figure_4b_claims(contest((1.0, 0.95, 0.9), (0.8, 0.6, 0.4)), machine(2))
    assert verdicts(claims) == [YES, YES, YES, YES]
    assert "V_SN loses 10%, P_SN 50%" in claims[1].ours


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"virtual": (1.0, 0.5, 0.45), "pure": (0.5, 0.4, 0.4)}, [YES, NO, YES, YES]),
        (
            {
                "virtual": (1.0, 0.9, 0.9),
                "pure": (0.5, 0.4, 0.3),
                "latency": ((9.0, 9.0, 21.0), (300.0, 199.0, 300.0)),
            },
            [YES, YES, NO, NONE],
        ),
    ],
)
def test_figure_4b_otherwise(given, expected):
    assert verdicts(figure_4b_claims(contest(**given), machine(2))) == expected


def test_figure_5_in_one_epoch():
    claims = intra_claims(intra(1e8, 1.7e8, 1.7e8), single(), machine(2))
    assert verdicts(claims) == [YES, YES, YES]
    assert claims[2].ours == "1.70× from 1 to 2 threads"


@pytest.mark.parametrize(
    ("found", "alone", "cores", "expected"),
    [
        (intra(1e8, 1.5e8), single(), 2, [YES, YES, NO]),
        (intra(1e8, 1.7e8, 1.7e8), single(), 4, [YES, YES, NO]),
        (intra(1e8, 1.7e8), single(), 1, [YES, YES, NONE]),
        (intra(1e8, 2e8), single(gated=(75.0, 20.0)), 2, [NO, YES, YES]),
        (intra(1e8, 2e8), single(gated=(100.0, 9.0)), 2, [YES, NO, YES]),
    ],
)
def test_figure_5_in_one_epoch_otherwise(found, alone, cores, expected):
    assert verdicts(intra_claims(found, alone, machine(cores))) == expected


DOWN = elastic(300.0, threads=(2, 1), load=0.3)


def test_figure_5_between_epochs():
    claims = elastic_claims(elastic(), DOWN, [Switched(2, 4, 39.0, 20.0, 2.0)], machine(2))
    assert verdicts(claims) == [YES] * 6


@pytest.mark.parametrize(
    ("up", "switches", "cores", "expected"),
    [
        (elastic(taken=1100.0), [], 2, [NO, YES, YES, YES, YES, YES]),
        (elastic(latency=(30.0, 46.0)), [], 2, [YES, NO, YES, YES, YES, YES]),
        (elastic(threads=(2, 4)), [], 2, [NONE, NONE, YES, YES, YES, YES]),
        (elastic(), [Switched(1, 2, 41.0, 2.0, 0.1)], 2, [YES, YES, YES, YES, NO, YES]),
        (elastic(), [Switched(1, 2, 4.0, 2.0, 2.1)], 2, [YES, YES, YES, YES, YES, NO]),
    ],
)
def test_figure_5_between_epochs_otherwise(up, switches, cores, expected):
    assert verdicts(elastic_claims(up, DOWN, switches, machine(cores))) == expected


def test_a_latency_that_grows_with_the_time_measured_says_so():
    kept, missed = (elastic_claims(elastic(taken), DOWN, [], machine(2)) for taken in (1150, 1100))
    grows = ["goes on growing" in claims[1].ours for claims in (kept, missed)]
    assert grows == [False, True]


def test_what_fails_while_others_use_the_cores_is_not_held_against_the_paper():
    busy = machine(2, free_share=0.5)
    slow = contest(**GOOD_4A, model={"V_SN": (9.0,) * 3, "P_SN": (9.0,) * 3})
    claim = figure_4a_claims(slow, busy)[2]
    assert claim.verdict.value == NONE
    assert "other programs had 50% of the cores" in claim.rule
    worse = contest((0.9, 2.0, 1.0), (1.0, 1.5, 1.0), latency=((9.0,) * 3, (9.0,) * 3))
    assert verdicts(figure_4a_claims(worse, busy)) == [NONE, NONE, YES, NONE]
    worse = contest((1.0, 0.5, 0.3), (1.1, 0.6, 0.4), latency=((21.0,) * 3, (300.0,) * 3))
    assert verdicts(figure_4b_claims(worse, busy)) == [NONE, NONE, NONE, YES]
    slow = single(gated=(75.0, 9.0))
    assert verdicts(intra_claims(intra(1e8, 1.1e8), slow, busy)) == [NONE, NONE, NONE]
    late = [Switched(1, 2, 41.0, 2.0, 2.1)]
    up = elastic(taken=1000.0, latency=(30.0, 50.0))
    assert verdicts(elastic_claims(up, DOWN, late, busy)) == [NONE, NONE, YES, YES, NONE, NO]


def test_what_holds_although_others_use_the_cores_is_reproduced():
    busy = machine(2, free_share=0.5)
    assert verdicts(elastic_claims(elastic(), DOWN, [], busy)) == [YES] * 6
