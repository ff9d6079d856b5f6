"""Verdicts follow from numbers: each rule is shown numbers that keep it and that break it."""

import pytest

from papers.briskstream.claims import (
    factor_claims,
    placement_claims,
    scaling_claims,
    table_claims,
)
from tests.papers.briskstream import scripted as made
from tests.papers.scripted import reproduction

YES, NO, NONE = "reproduced", "not reproduced", "not comparable"


def judged(claims) -> list[str]:
    """Verdicts of those that can be compared."""
    return [one.verdict.value for one in claims if one.verdict.value != NONE]


def tables(handling=None, accuracy=None, compressed=None):
    return table_claims(
        handling or made.handling(),
        accuracy or made.accuracy(),
        compressed or made.compressed(),
    )


def placements(fixed=None, placed=None, random=None, patterns=None, trays=0.0):
    return placement_claims(
        fixed or made.fixed(),
        placed or made.placed(),
        random or made.random_plans(),
        patterns or made.patterns(),
        {"fd": 0.0, "lr": trays},
    )


def test_tables_as_in_the_paper():
    claims = tables()
    assert judged(claims) == [YES] * 5
    assert [one.where for one in claims if one.verdict.value == NONE] == [
        "table 3",
        "table 4",
        "table 5",
    ]


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        ({"handling": made.handling(1991.16)}, [0]),
        ({"accuracy": made.accuracy(simulated=80.0)}, [1]),
        ({"accuracy": made.accuracy(simulated=120.0)}, [1]),
        ({"compressed": made.compressed((5, 100.0, 2.0), (15, 96.0, 4.0))}, [2]),
        ({"compressed": made.compressed((5, 100.0, 2.0), (15, 80.0, 1.0))}, [3]),
        ({"compressed": made.compressed((1, 100.0, 31.0), (5, 100.0, 2.0), (15, 80.0, 4.0))}, [4]),
    ],
)
def test_tables_otherwise(given, wrong):
    assert [n for n, verdict in enumerate(judged(tables(**given))) if verdict == NO] == wrong


def test_scaling_as_in_the_paper():
    claims = scaling_claims(made.breakdown(), made.scaling(), made.gaps())
    assert judged(claims) == [YES] * 5
    assert "parser 11.0×" in claims[0].ours


@pytest.mark.parametrize(
    ("breakdown", "scaling", "gaps", "wrong"),
    [
        (made.breakdown(parser=190.0), made.scaling(), made.gaps(), [0]),
        (made.breakdown(), made.scaling(four=3.1, eight=4.0), made.gaps(), [1]),
        (made.breakdown(), made.scaling(eight=6.0), made.gaps(), [2]),
        (made.breakdown(), made.scaling(), made.gaps(free=88.0), [3]),
        (made.breakdown(), made.scaling(), made.gaps(real=85.0), [4]),
    ],
)
def test_scaling_otherwise(breakdown, scaling, gaps, wrong):
    verdicts = judged(scaling_claims(breakdown, scaling, gaps))
    assert [n for n, verdict in enumerate(verdicts) if verdict == NO] == wrong


def test_an_application_without_a_gap_blames_nothing_for_it():
    *_, blame = scaling_claims(made.breakdown(), made.scaling(), made.gaps(real=120.0, free=130.0))
    assert (blame.verdict.value, blame.ours) == (YES, "WC 90% of the gap")


def test_placements_as_in_the_paper():
    claims = placements()
    assert judged(claims) == [YES] * 8
    assert claims[0].ours.startswith("over fix(L) WC +33%, LR +25%; over fix(U)")


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        ({"fixed": made.fixed(always=100.0)}, [0]),
        ({"fixed": made.fixed(always=101.0, never=100.5)}, [0]),
        ({"fixed": made.fixed(never=80.0)}, [1]),
        ({"placed": made.placed(best=101.0)}, [2, 3]),
        ({"placed": made.placed(used=0.95)}, [4]),
        ({"random": made.random_plans(1.01)}, [5]),
        ({"trays": 0.2}, [6]),
        ({"patterns": made.patterns(second=50.0)}, [7]),
        ({"patterns": made.patterns()[::-1]}, [7]),
    ],
)
def test_placements_otherwise(given, wrong):
    assert [n for n, verdict in enumerate(judged(placements(**given))) if verdict == NO] == wrong


def test_jumbo_tuples_have_to_gain_something():
    assert judged(factor_claims(made.factor_rates())) == [YES]
    assert judged(factor_claims(made.factor_rates(jumbo=3.9))) == [NO]


def test_every_table_and_figure_of_the_evaluation_is_listed():
    found = {one.where for one in reproduction("briskstream").claims}
    wanted = {"table 3", "table 4", "table 5", "table 7", "figure 9a", "figure 9b"}
    wanted |= {f"figure {n}" for n in (6, 7, 8, 10, 11, 12, 13, 14, 15, 16)}
    assert wanted <= found
