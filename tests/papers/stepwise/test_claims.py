import pytest

from papers.claims import Verdict
from papers.stepwise.claims import claims_of, nodes_for
from papers.stepwise.profiling import STELA, STEPWISE, THRESHOLD
from tests.papers.stepwise.scripted import (
    REVOKED,
    figure_11,
    figure_13,
    figure_14,
    lines,
    run,
    sizes,
)


def verdicts(compared=None, longer=None, larger=None, needed=None, varied=None):
    shown = (
        compared or figure_11(),
        longer or lines(),
        larger or sizes(),
        needed or figure_13(),
        varied or figure_14(),
    )
    return {claim.paper: claim.verdict for claim in claims_of(*shown)}


def failed(found):
    return [paper for paper, verdict in found.items() if verdict is Verdict.NOT_REPRODUCED]


def test_runs_as_the_paper_has_them_reproduce_every_claim():
    found = verdicts()
    assert failed(found) == []
    assert sum(verdict is Verdict.REPRODUCED for verdict in found.values()) == 22


def test_numbers_that_depend_on_unpublished_costs_are_not_comparable():
    found = verdicts()
    alone = [paper for paper, verdict in found.items() if verdict is Verdict.NOT_COMPARABLE]
    assert [paper.partition(" ")[0] for paper in alone] == ["Linear:", "(3,", "34.1,", "200"]


@pytest.mark.parametrize(
    ("topology", "method", "instead", "words"),
    [
        ("Star", STEPWISE, run(100, 110), "scales all topologies up"),
        ("Linear", STEPWISE, run(100, 200, 210, 215), "harms is tried and rejected"),
        ("Linear", STEPWISE, run(100, 200, 150, 150), "harms is tried and rejected"),
        ("Diamond", STEPWISE, run(100, 200, 300), "I/O-bound operator"),
        ("WC", STEPWISE, run(90, 300, 500, 600), "a better start"),
        ("WC", STEPWISE, run(150, 300, 240), "better than the best alternative"),
        ("TSA", STEPWISE, run(150, 300, 500, 600), "revocations in a row"),
        ("SWC", STEPWISE, run(140, 300, 500, 520, 530, journal=(REVOKED,)), "least latency"),
        ("SWC", STEPWISE, run(140, 300, 500, 520, 610), "86.8 %"),
        ("SWC", STEPWISE, run(140, 300, 500), "more rounds than WC"),
        ("SWC", STEPWISE, run(140, 300, 500, 510, 520), "more rounds than WC"),  # 5 against 4
        ("WC", STELA, run(100, 300, 590, 590), "better than the best alternative"),  # by 1.7 %
        ("WC", STEPWISE, run(101, 300, 500, 600), "a better start"),
        ("WC", STELA, run(100, 9000, 100), "2.48 times"),
        ("WC", THRESHOLD, run(100, 9000, 100), "11.63 times"),
    ],
)
def test_a_run_of_figure_11_that_differs_is_noticed(topology, method, instead, words):
    compared = figure_11()
    compared[topology][method] = instead
    assert any(words in paper for paper in failed(verdicts(compared)))


def test_a_stela_that_never_loses_is_noticed():
    compared = figure_11()
    for runs in compared.values():
        runs[STELA] = run(100, 200, 300, method=STELA)
    assert any("Stela makes moves" in paper for paper in failed(verdicts(compared)))


@pytest.mark.parametrize(
    ("argument", "instead", "words"),
    [
        ("longer", {6: run(100, 180), 12: run(100, 110, 115, 116)}, "in proportion to the"),
        ("longer", {6: run(100, 120, 130), 12: run(100, 150)}, "longer lines gain less"),
        ("larger", {6: run(100, 600), 14: run(100, 1400)}, "not in proportion"),
        ("larger", {6: run(100, 600), 14: run(100, 500)}, "not in proportion"),
        ("larger", {6: run(100, 600), 14: run(100, 605)}, "not in proportion"),
    ],
)
def test_a_run_of_figure_12_that_differs_is_noticed(argument, instead, words):
    assert any(words in paper for paper in failed(verdicts(**{argument: instead})))


def test_more_nodes_than_stela_needs_are_noticed():
    needed = figure_13()
    swapped = {n: {STEPWISE: runs[STELA], STELA: runs[STEPWISE]} for n, runs in needed.items()}
    assert failed(verdicts(needed=swapped)) == [
        "for the same throughput never more nodes than Stela, and up to 57.1 % fewer"
    ]


def test_nodes_for_a_target_are_the_fewest_that_reach_it():
    by_target = {target: (ours, theirs) for target, ours, theirs, _ in nodes_for(figure_13())}
    assert by_target[3000.0] == (2, 4)  # 3,200 on two nodes; 3,600 on four
    assert by_target[7000.0] == (8, 8)
    assert max(by_target) == 7000.0  # what both reach


@pytest.mark.parametrize(
    ("name", "value", "instead", "words"),
    [
        ("latency_ms", 700.0, run(100, 400), "looser bound"),
        ("latency_ms", 300.0, run(100, 300), "too strict"),
        ("unit", 0.5, run(100, 300), "with 0.5"),
        ("unit", 0.1, run(120, 300), "with 0.1"),
        ("k", 3.0, run(100, 300, journal=("x, tried",)), "k = 3"),
        ("k", 1.5, run(100, 300, journal=("x, tried",)), "k = 1.5"),
    ],
)
def test_a_run_of_figure_14_that_differs_is_noticed(name, value, instead, words):
    varied = figure_14()
    varied[name][value] = instead
    assert any(words in paper for paper in failed(verdicts(varied=varied)))
