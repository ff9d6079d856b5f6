"""Measuring a paper as a whole: every figure once, with little effort."""

from dataclasses import replace

from papers.briskstream import figures
from papers.briskstream import paper as briskstream
from papers.command import load
from papers.joker import paper as joker
from papers.processor_time import Look
from papers.stretch import paper as stretch
from tests.papers.briskstream.scripted import dealt_out
from tests.papers.joker import scripted
from tests.papers.scripted import RESULTS, reproduction
from tests.sampling import thorough


def test_all_of_briskstream_is_computed_in_one_go(monkeypatch):
    """With a planner that thinks less."""
    for name in ("rlas", "rlas_fix_l", "rlas_fix_u"):
        monkeypatch.setattr(figures, name, dealt_out)
    tiny = briskstream.Effort((1, 4, 8), (5,), 0.02, 20, 0.001, 1)
    told = []
    found = load("briskstream").reproduce(tiny, told.append)
    assert len(told) == 6
    assert [one.app for one in found.results.accuracy] == ["wc", "fd", "sd", "lr"]
    wheres = {one.where for one in reproduction("briskstream").claims}
    assert {one.where for one in found.claims} == wheres


def test_all_of_joker_is_simulated_in_one_go(monkeypatch):
    """Runs are scripted, since each takes a while."""
    for curves in scripted.curves():
        name = curves.figure.replace(" ", "_")
        monkeypatch.setattr(joker.runs, name, lambda *efforts, drawn=curves: drawn)
    monkeypatch.setattr(joker.runs, "fission_only_with", lambda buckets, costs: 8.0)
    figures = tuple(lambda drawn=each: drawn for each in scripted.traces())
    monkeypatch.setattr(joker, "FIGURES", figures)
    monkeypatch.setattr(joker, "compare", scripted.all_compared)
    paper, told = load("joker"), []
    found = paper.reproduce(paper.quick, told.append)
    assert len(told) == 7
    assert found.results.replayed_10[-1].kept
    replayed = {"replayed_10": scripted.figure_10_steps(), "replayed_20": ()}
    assert replace(found.results, **replayed) == replace(scripted.results(), **replayed)


@thorough
def test_all_of_stretch_is_measured_in_one_go():
    tiny = stretch.Effort(2000, 1, (1, 2), (1, 2), (1, 2), 0.2, 0.2, 0.1)
    paper, told = load("stretch"), []
    found = paper.reproduce(tiny, told.append)
    assert len(told) == 7
    wheres = ["figure 3", "figure 4a", "figure 4b", "figure 5", "table 2"]
    assert sorted({claim.where for claim in found.claims}) == wheres
    assert [one.threads for one in found.results.intra] == [1, 2]
    assert paper.from_json(paper.to_json(found)) == found
    assert "not comparable" in paper.page(found)


def test_others_took_as_much_as_they_did_in_the_worst_section(monkeypatch):
    def measure(effort, tell):
        tell("figure 0")
        return RESULTS["stretch"]()

    looks = iter([Look(0.0, 0.0, 0.0), Look(10.0, 5.0, 0.0), Look(30.0, 5.0, 0.0)])
    monkeypatch.setattr(Look, "now", staticmethod(lambda: next(looks)))
    monkeypatch.setattr("papers.paper.cores_here", lambda: 1)
    paper = replace(load("stretch"), measure=measure)
    found = paper.reproduce(paper.quick, lambda line: None)
    assert (found.machine.free_share, found.seconds) == (0.5, 30.0)
