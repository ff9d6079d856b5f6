import pytest

from papers.claims import Verdict
from papers.pipelined_fission.claims import (
    engine_claims,
    log_watch_claims,
    model_claims,
    time_claims,
)
from tests.papers.pipelined_fission.scripted import (
    as_the_paper_says,
    curves,
    engine,
    engine_curves,
    here,
    log_watch,
    machine,
    times,
)


def failed(claims):
    return [(c.where, c.paper) for c in claims if c.verdict is Verdict.NOT_REPRODUCED]


def of(verdict, claims):
    return [claim for claim in claims if claim.verdict is verdict]


def test_curves_as_the_paper_tells_them_are_reproduced():
    claims = model_claims(list(as_the_paper_says().values()))
    assert failed(claims) == []
    assert [claim.where for claim in of(Verdict.NOT_COMPARABLE, claims)] == ["figure 4"]


FAILING = {
    "figure 5": [
        ({"fission": 1.9}, "better than replicas alone"),
        ({"exact": 3.5}, "within 5% of the optimum"),
        ({"sequential": 2.0}, "up to 2.7×"),
        ({"fission-only": [1.9, 2.0, 2.0, 1.9]}, "with low selectivity"),
    ],
    "figure 6": [
        ({"fission-only": [2.1, 2.2, 2.2, 2.2]}, "with low cost"),
        ({"fission-only": [1.8, 1.8, 1.9, 1.95]}, "pass them"),
    ],
    "figure 7": [
        ({"pipelining-only": [2.0, 2.0, 2.1, 2.2]}, "do not change what pipelines"),
        ({"fission-only": [2.0, 2.0, 1.8, 2.2]}, "replicas alone gain"),
    ],
    "figure 8": [
        ({"pipelining-only": 2.9, "fission": 3.0}, "up to 25% above pipelines"),
        ({"fission-only": 2.9}, "up to 30% above replicas"),
        ({"fission-only": [3.5, 2.4, 2.0, 1.8]}, "as good as replicas alone"),
        ({"fission": 3.0, "exact": [3.0, 3.0, 3.0, 3.1]}, "the optimum's lead"),
    ],
    "figure 9": [
        ({"fission": [3.0, 3.2, 2.0, 2.0]}, "loses as thread switches"),
        ({"exact": [3.0, 2.9, 2.9, 3.1], "fission": 2.9}, "get closer"),
    ],
    "figure 10": [
        ({"fission": 2.9, "exact": 3.2}, "within 8%"),
        ({"fission": [1.0, 2.5, 3.0, 3.5], "exact": [1.0, 2.5, 3.0, 3.5]}, "stays flat"),
    ],
    "figure 11": [
        ({"fission-only": 2.9, "pipelining-only": [1.0, 1.6, 2.1, 2.9]}, "up to 18%"),
        ({"pipelining-only": [2.0, 1.6, 1.5, 1.4]}, "pipelines alone gain"),
    ],
}


@pytest.mark.parametrize(
    ("figure", "columns", "claim"),
    [(figure, *case) for figure, cases in FAILING.items() for case in cases],
)
def test_curves_that_say_otherwise_are_not_reproduced(figure, columns, claim):
    drawn = as_the_paper_says()
    xs = tuple(point.x for point in drawn[figure].points)
    drawn[figure] = curves(figure, xs=xs, **columns)
    missed = failed(model_claims(list(drawn.values())))
    assert any(where == figure and claim in paper for where, paper in missed)
    assert {where for where, _ in missed} == {figure}


def test_planners_that_take_their_time_are_noticed():
    assert failed(time_claims(times())) == []
    assert "the heuristic" in failed(time_claims(times(fission_ms=6.0)))[0][1]
    assert "enumerating" in failed(time_claims(times(slow_ms=9.0)))[0][1]
    assert failed(time_claims([*times(), times()[-1]])) == []


def test_plans_close_to_the_optimal_ones_are_reproduced():
    assert failed(engine_claims(engine(), machine())) == []


def test_plans_that_lose_or_gain_nothing_are_not():
    slow = [engine_curves("figure 13", fission=(60.0, 50.0)), *engine()[1:]]
    assert [where for where, _ in failed(engine_claims(slow, machine()))] == ["figure 13"]
    useless = [engine_curves("figure 13", sequential=(90.0, 80.0)), *engine()[1:]]
    assert [where for where, _ in failed(engine_claims(useless, machine()))] == ["figure 13"]


def test_a_busy_machine_proves_nothing():
    slow = [engine_curves("figure 13", fission=(60.0, 50.0)), *engine()[1:]]
    claims = engine_claims(slow, machine(free_share=0.3))
    assert failed(claims) == []
    assert [claim.where for claim in of(Verdict.NOT_COMPARABLE, claims)] == ["figure 13"]


def test_throughput_that_grows_with_cost_is_not_as_the_paper_says():
    odd = engine()
    odd[1] = engine_curves("figure 14", (90.0, 99.0), (95.0, 99.0), (50.0, 55.0))
    assert [where for where, _ in failed(engine_claims(odd, machine()))] == ["figure 14"]


def test_log_watch_is_held_against_the_paper_only_where_cores_and_overheads_allow():
    claims = log_watch_claims(log_watch(), 1.0, here(), machine())
    assert failed(claims) == []
    assert len(of(Verdict.NOT_COMPARABLE, claims)) == 2
    assert (
        len(of(Verdict.NOT_COMPARABLE, log_watch_claims(log_watch(), 1.0, here(11), machine(12))))
        == 1
    )
    assert len(failed(log_watch_claims(log_watch(5.0), 1.0, here(1.2), machine()))) == 2
