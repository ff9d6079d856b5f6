import numpy as np
import pytest

from anabranch.planning.answer import Answer, RegionChoice
from anabranch.planning.models.placed_units import workload_of
from anabranch.planning.profile import OperatorProfile, chain
from papers.briskstream import figures
from papers.briskstream.figures import (
    Plans,
    between_trays_gb_s,
    figure_8,
    figure_10,
    first_sockets,
    planned,
    random_placements,
    simulated_throughput,
    table_3,
)
from papers.briskstream.inputs import application, server
from papers.briskstream.model import rates
from tests.papers.briskstream.scripted import dealt_out

READ = OperatorProfile("read", 100.0)
OUT = OperatorProfile("out", 100.0, tuple_bytes=64.0)
CHAIN = chain([READ, OUT], unit="ns")


def placed(*sockets: int) -> list[RegionChoice]:
    return [RegionChoice(((o.name,),), 1, (s,)) for o, s in zip((READ, OUT), sockets, strict=True)]


def test_a_smaller_server_keeps_the_distances_of_its_sockets():
    whole = server("server-b")
    half = first_sockets(whole, 4)
    assert half.cores == whole.cores / 2
    assert [half.latency(1, n) for n in range(4)] == [whole.latency(1, n) for n in range(4)]
    assert first_sockets(whole, 8) is whole


@pytest.mark.parametrize(("sockets", "crosses"), [((0, 3), False), ((0, 4), True), ((7, 2), True)])
def test_traffic_between_trays_is_told_from_traffic_within(sockets, crosses):
    found = rates(CHAIN, placed(*sockets), server("server-a"))
    assert (between_trays_gb_s(found) > 0) == crosses


def test_a_plan_is_searched_once(monkeypatch):
    asked = []

    def search(problem):
        asked.append(problem.machine.sockets)
        runs = [RegionChoice(((o.name,),), 1, (0,)) for o in problem.profile.operators]
        return Answer(tuple(runs), 1.0, 1.0)

    monkeypatch.setattr(figures, "rlas", search)
    plans = Plans()
    first = plans.rlas("wc", "server-a")
    assert plans.rlas("wc", "server-a", 8) is first
    plans.rlas("wc", "server-a", 2)
    assert asked == [8, 2]


def test_a_plan_counts_what_reaches_sinks_in_thousands_a_second():
    found = planned(
        lambda problem: Answer(tuple(placed(0, 0)), 0.0, 0.0), CHAIN, server("server-a")
    )
    assert found.throughput_k == pytest.approx(10_000)
    assert found.replicas == 2


def test_random_plans_use_all_cores_and_keep_bounds():
    one = OperatorProfile("one", 1.0, max_replicas=1)
    profile = chain([one, OperatorProfile("many", 1.0)])
    machine = server("server-b")
    counts = random_placements(workload_of(profile, machine), 8, 64, 50, seed=3)
    assert counts.shape == (50, 2, 8)
    assert (counts[:, 0].sum(axis=1) == 1).all()
    assert (counts.sum(axis=(1, 2)) <= 64).all()
    free = random_placements(workload_of(application("wc"), machine), 8, 64, 50, seed=3)
    assert (free.sum(axis=(1, 2)) == 64).all()
    assert (free.sum(axis=2) >= 1).all()
    assert not np.array_equal(free[0], free[1])


def test_table_3_is_the_papers():
    assert [one.estimated_ns for one in table_3()] == pytest.approx(
        [one.paper_estimated_ns for one in table_3()], abs=0.01
    )


def test_figure_8_takes_the_longest_way():
    longest = max(max(row) for row in server("server-a").latency_ns)
    parser = figure_8()[0]
    assert (parser.operator, parser.fetch_ns) == ("parser", pytest.approx(4 * longest))


@pytest.mark.parametrize("sockets", [(0, 0), (0, 1), (0, 7)])
def test_the_simulator_fetches_from_where_the_model_does(sockets):
    machine, plan = server("server-a"), placed(*sockets)
    seen = simulated_throughput(CHAIN, plan, machine, 0.2)
    assert seen == pytest.approx(rates(CHAIN, plan, machine).bounded, rel=0.01)


def test_placements_are_compared_under_the_input_that_feeds_server_a(monkeypatch):
    """A tenth of what server A's plan takes in comes out of every plan, on both servers."""
    monkeypatch.setattr(figures, "JUST_ENOUGH", 0.1)
    monkeypatch.setattr(figures, "rlas", dealt_out)
    plans = Plans()
    for one in figures.figure_13(plans):
        wanted = 0.1 * plans.rlas(one.app, "server-a").throughput_k
        assert one.throughput_k["RLAS"] == pytest.approx(wanted)
        assert max(one.throughput_k.values()) <= wanted * (1 + 1e-9)
        assert one.used_share < 0.5


def test_without_remote_access_nothing_is_slower(monkeypatch):
    monkeypatch.setattr(figures, "rlas", dealt_out)
    for one in figure_10(Plans()):
        assert one.without_remote_k > one.real_k
