"""A reproduction of each paper, with results made up by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from papers.claims import Machine
from papers.command import load
from papers.paper import Reproduction
from tests.papers.briskstream import scripted as briskstream
from tests.papers.joker import scripted as joker
from tests.papers.pipelined_fission import scripted as pipelined_fission
from tests.papers.stepwise import scripted as stepwise
from tests.papers.stretch import scripted as stretch

RESULTS: Mapping[str, Callable[[], object]] = {
    "stretch": stretch.results,
    "pipelined-fission": pipelined_fission.results,
    "briskstream": briskstream.results,
    "joker": joker.results,
    "stepwise": stepwise.results,
}


def reproduction(name: str) -> Reproduction:
    """The results of a paper as if a quick run on two free cores had found them."""
    paper, machine, results = load(name), Machine(2, "Linux", "3.11", 1.0), RESULTS[name]()
    return Reproduction(paper.quick, machine, 12.0, results, paper.claims(results, machine))
