"""Joker's algorithms, case by case; sections and algorithms are those of the paper."""

from dataclasses import replace

import pytest

from anabranch.adapt.history import History, Limits
from anabranch.adapt.policies.organic import Actions, Organic, best_cut, split_utility
from anabranch.adapt.policy import Outcome, Trial
from anabranch.adapt.registry import policy
from anabranch.planning.plan import Plan
from tests.adapt.organic_worlds import PAPER, QUICK, World, lines, run_in, shape
from tests.adapt.scripted import ROOMY, seen
from tests.planning.described_flows import built

FLOW, PLAN = built("""
    in: source k
    a: partitioned by k
    b: map keeps k
    c: map keeps k
    out: sink
""")
EXAMPLE = {"a": 0.2, "b": 0.1, "c": 0.4}
"""Cost shares of the example in §4.2; the overhead is 0.3."""


def looked(
    plan: Plan = PLAN,
    busy: float = 0.95,
    costs: dict[str, float] = EXAMPLE,
    rate: float = 1000.0,
    limits: Limits = ROOMY,
) -> History:
    """A period in which all pipelines of the region are equally busy."""
    world = World(rate, {"a": [busy] * len(plan.region("a").pipelines)}, costs)
    return seen(FLOW, plan, world.observed(plan, 1), limits=limits)


def decided(seen: History, joker: Organic = PAPER) -> Plan | None:
    """The plan that a policy proposes at first sight."""
    _, proposal = joker.decide(joker.begin(), seen)
    return None if proposal is None else proposal.plan


class TestSplitting:
    """Algorithm 3."""

    def test_the_utilities_of_the_example_in_section_4_2(self):
        costs, overhead = tuple(EXAMPLE.values()), 0.3
        assert split_utility(costs, overhead, [1]) == pytest.approx(1.25)
        assert split_utility(costs, overhead, [2]) == pytest.approx(1 / 0.7)

    def test_the_split_of_greatest_utility_is_tried_and_the_journal_says_why(self):
        _, proposal = PAPER.decide(PAPER.begin(), looked())
        assert proposal.plan == PLAN.with_pipelines("a", 2, 1)
        assert proposal.why == "region a: busy 0.95 > 0.80, split at c promises 1.43×"
        assert proposal.trial

    def test_costs_are_parts_of_the_time_that_a_thread_works(self):
        assert decided(looked(busy=0.81)) == PLAN.with_pipelines("a", 2, 1)

    def test_costs_are_parts_of_a_thread_however_many_replicas_there_are(self):
        plan = PLAN.with_replicas("a", 3)
        _, proposal = PAPER.decide(PAPER.begin(), looked(plan))
        assert proposal.plan == plan.with_pipelines("a", 2, 1)
        assert "promises 1.43×" in proposal.why

    def test_a_split_that_promises_too_little_gives_way_to_a_replica(self):
        lopsided = {"a": 0.75, "b": 0.05, "c": 0.05}  # 1 / 0.9: a ninth more
        assert decided(looked(costs=lopsided)) == PLAN.with_replicas("a", 2)
        eager = replace(PAPER, utility=0.1)
        assert shape(decided(looked(costs=lopsided), eager), "a") == ((1, 2), 1)

    def test_one_bottleneck_that_cannot_be_split_keeps_the_others_whole(self):
        plan = PLAN.with_pipelines("a", 1, 2)
        assert decided(looked(plan)) == plan.with_replicas("a", 2)

    def test_all_bottleneck_pipelines_of_a_region_are_split_together(self):
        flow, plan = built("""
            in: source k
            a: partitioned by k
            b: map keeps k
            c: map keeps k
            d: map keeps k
            out: sink
        """)
        plan = plan.with_pipelines("a", 2, 2)
        world = World(1000.0, {"a": [0.9, 0.9]}, dict.fromkeys("abcd", 0.45))
        _, proposal = PAPER.decide(PAPER.begin(), seen(flow, plan, world.observed(plan, 1)))
        assert proposal.plan == plan.with_pipelines("a", 1, 1, 1, 1)
        assert "split at b and d promises 1.82×" in proposal.why

    def test_of_equal_splits_the_first_is_taken(self):
        assert best_cut((0.2, 0.0, 0.2), pieces=2) == (1,)

    def test_larger_steps_cut_a_pipeline_into_more_pieces_at_once(self):
        bold = replace(PAPER, pieces=3)
        even = {"a": 0.3, "b": 0.3, "c": 0.3}
        assert shape(decided(looked(costs=even), bold), "a") == ((1, 1, 1), 1)

    def test_no_piece_is_made_that_does_not_help(self):
        bold = replace(PAPER, pieces=3)
        assert shape(decided(looked(), bold), "a") == ((2, 1), 1)


class TestReplicating:
    """Algorithm 4."""

    fission = replace(PAPER, actions=Actions.FISSION_ONLY)

    def test_a_replica_is_added(self):
        _, proposal = self.fission.decide(self.fission.begin(), looked())
        assert proposal.plan == PLAN.with_replicas("a", 2)
        assert proposal.why == "region a: busy 0.95 > 0.80, 1 → 2 replicas promise 2.00× at most"

    def test_larger_steps_add_several_at_once(self):
        bold = replace(self.fission, step=4)
        assert decided(looked(), bold) == PLAN.with_replicas("a", 5)

    def test_a_larger_step_that_did_not_help_is_followed_by_smaller_ones(self):
        bold = replace(self.fission, step=4)
        run = run_in(FLOW, PLAN, lambda plan: World(1000.0, {"a": [0.9]}))
        run.go(run.tuned_by(bold), 20)
        assert [shape(plan, "a")[1] for plan in run.plans] == [5, 3, 2, 1]

    @pytest.mark.parametrize(
        "limits", [Limits(24, 2, 200), Limits(24, 16, 4)], ids=["replicas", "threads"]
    )
    def test_no_more_replicas_than_limits_allow(self, limits):
        plan = PLAN.with_replicas("a", 2)
        assert decided(looked(plan, limits=limits), self.fission) is None

    def test_no_more_replicas_than_buckets(self):
        plan = PLAN.with_replicas("a", 12)
        assert len(plan.region("a").bucket_map) == 12
        assert decided(looked(plan), self.fission) is None

    def test_a_stateless_region_is_replicated_unless_the_paper_is_followed(self):
        flow, plan = built("""
            in: source k
            a: map keeps k
            out: sink
        """)
        world = World(1000.0, {"a": [0.9]})
        look = seen(flow, plan, world.observed(plan, 1))
        assert decided(look, Organic(pace=QUICK)) == plan.with_replicas("a", 2)
        assert decided(look, PAPER) is None

    def test_a_stateful_region_has_one_replica(self):
        flow, plan = built("""
            in: source k
            a: stateful
            out: sink
        """)
        look = seen(flow, plan, World(1000.0, {"a": [1.0]}).observed(plan, 1))
        assert decided(look, Organic(pace=QUICK)) is None


class TestOrderOfActions:
    """Figure 5's four combinations."""

    @pytest.mark.parametrize(
        ("actions", "first", "second"),
        [
            (Actions.FUSION_FIRST, ((2, 1), 1), ((3,), 2)),
            (Actions.FISSION_FIRST, ((3,), 2), ((2, 1), 1)),
            (Actions.FUSION_ONLY, ((2, 1), 1), None),
            (Actions.FISSION_ONLY, ((3,), 2), None),
        ],
    )
    def test_what_is_tried_first_and_what_when_that_did_not_help(self, actions, first, second):
        joker = replace(PAPER, actions=actions)
        before = looked()
        memory, proposal = joker.decide(joker.begin(), before)
        assert shape(proposal.plan, "a") == first
        _, verdict = joker.judge(memory, looked(proposal.plan), Trial(before, proposal))
        assert verdict.outcome is Outcome.REVERTED
        assert (verdict.then and shape(verdict.then.plan, "a")) == second


class TestBottlenecks:
    """Algorithms 1 and 2."""

    def test_a_share_at_the_threshold_is_no_bottleneck(self):
        assert decided(looked(busy=0.8)) is None
        assert decided(looked(busy=0.81)) is not None

    def test_all_bottleneck_regions_are_changed_in_one_step(self):
        flow, plan = two_regions()
        world = World(1000.0, {"a": [0.9], "b": [0.9]})
        _, proposal = PAPER.decide(PAPER.begin(), seen(flow, plan, world.observed(plan, 1)))
        assert proposal.plan == plan.with_replicas("a", 2).with_replicas("b", 2)
        assert proposal.why.count("busy 0.90 > 0.80") == 2

    def test_regions_changed_together_stay_within_the_limit_of_threads(self):
        flow, plan = two_regions()
        world = World(1000.0, {"a": [0.9], "b": [0.9]})
        look = seen(flow, plan, world.observed(plan, 1), limits=Limits(24, 16, 5))
        assert decided(look) == plan.with_replicas("a", 2)

    def test_sinks_and_sources_are_left_alone(self):
        world = World(1000.0, {"out": [1.0]})
        assert decided(seen(FLOW, PLAN, world.observed(PLAN, 1))) is None


def two_regions():
    return built("""
        in: source k j
        a: partitioned by k carries j
        b: partitioned by j
        out: sink
    """)


class TestJudging:
    """Algorithm 1's second half, algorithms 5 and 6."""

    @pytest.mark.parametrize(
        ("rate", "outcome"), [(1090.0, Outcome.REVERTED), (1120.0, Outcome.KEPT)]
    )
    def test_a_change_has_to_bring_more_than_a_tenth(self, rate, outcome):
        before = looked()
        memory, proposal = PAPER.decide(PAPER.begin(), before)
        _, verdict = PAPER.judge(memory, looked(proposal.plan, rate=rate), Trial(before, proposal))
        assert verdict.outcome is outcome
        assert verdict.why == f"gained {rate / 1000 - 1:.0%}".replace("%", " %")

    def test_regions_in_a_row_are_judged_by_the_one_nearest_to_the_source(self):
        flow, plan = two_regions()

        def world(now: Plan) -> World:
            resolved = now.region("a").replicas > 1
            return World(2000.0 if resolved else 1000.0, {"a": [0.9 - 0.4 * resolved], "b": [0.9]})

        run = run_in(flow, plan, world)
        run.go(run.tuned_by(replace(PAPER, stable=1)), 2)
        assert run.journal[-1].outcome == "kept"
        assert run.journal[-1].why.endswith("tried, gained 100 %")

    def test_of_parallel_regions_the_one_that_did_not_gain_is_changed_in_another_way(self):
        flow, plan = built("""
            left-in: source k
            right-in: source k
            left: partitioned by k <- left-in
            left-map: map keeps k
            right: partitioned by k <- right-in
            right-map: map keeps k
            both: union left-map right-map
            out: sink
        """)
        costs = dict.fromkeys(["left", "left-map", "right", "right-map"], 0.45)

        def world(now: Plan) -> World:
            alone = {r: [0.9] * len(now.region(r).pipelines) for r in ("left", "right")}
            return World(1000.0, alone, costs)

        run = run_in(flow, plan, world)
        run.go(run.tuned_by(PAPER), 6)
        tried = [(shape(p, "left"), shape(p, "right")) for p in run.plans]
        split, wider, base = ((1, 1), 1), ((2,), 2), ((2,), 1)
        # First both are split; then the first that did not gain is replicated while the other
        # stays split; when nothing is left for it, all go back to the beginning, and what the
        # other one tried is blacklisted with it.
        assert tried[:3] == [(split, split), (wider, split), (base, base)]
        assert run.plans[2] == plan
        assert tried[3:] == [(base, wider), (base, base)]
        assert run.journal[1].why.endswith("gained 0 % at left, 0 % at right")

    def test_what_was_reverted_is_not_tried_again(self):
        run = run_in(FLOW, PLAN, lambda now: steady(now, 1000.0))
        run.go(run.tuned_by(PAPER), 60)
        assert [shape(p, "a") for p in run.plans] == [((2, 1), 1), ((3,), 2), ((3,), 1)]
        assert run.plan == PLAN
        assert lines(run)[1] == (
            "reverted: region a: busy 0.95 > 0.80, split at c promises 1.43×, tried, gained 0 %"
        )

    def test_a_pipeline_that_was_helped_has_a_clean_blacklist(self):
        before = looked()
        memory, first = PAPER.decide(PAPER.begin(), before)
        memory, failed = PAPER.judge(memory, looked(first.plan), Trial(before, first))
        assert memory.refuses("a", ("a", "b", "c"), ((("a", "b"), ("c",)), 1))
        second = failed.then
        now = looked(second.plan, rate=2000.0)
        memory, _ = PAPER.judge(memory, now, Trial(before, second))
        assert not memory.blacklist

    def test_what_helped_clears_the_blacklist_so_that_splits_are_tried_again(self):
        def world(now: Plan) -> World:
            return steady(now, 1000.0 * now.region("a").replicas)

        run = run_in(FLOW, PLAN, world)
        run.go(run.tuned_by(PAPER), 6)
        assert [shape(p, "a") for p in run.plans] == [
            ((2, 1), 1),
            ((3,), 2),
            ((2, 1), 2),
            ((3,), 3),
        ]


def steady(plan: Plan, rate: float) -> World:
    return World(rate, {"a": [0.95] * len(plan.region("a").pipelines)}, EXAMPLE)


class TestLoad:
    """Algorithm 7, and the end of an adaptation."""

    def run_with_load(self, rates, joker=PAPER):
        """Nothing ever helps; the rate changes with time alone."""
        run = run_in(FLOW, PLAN, lambda now: steady(now, 0.0))
        run.script = lambda plan, second: steady(plan, rates(second)).observed(plan, second)
        run.go(run.tuned_by(joker), 60)
        return [decision.at_s for decision in run.journal if decision.outcome == "tried"]

    def test_under_the_same_load_everything_is_tried_once(self):
        assert self.run_with_load(lambda second: 1000.0) == [0, 1]

    def test_a_change_within_the_threshold_is_no_other_load(self):
        assert self.run_with_load(lambda second: 1000.0 if second < 30 else 1190.0) == [0, 1]

    def test_another_load_clears_the_blacklist_even_after_the_end(self):
        assert self.run_with_load(lambda second: 1000.0 if second < 30 else 1300.0) == [
            0,
            1,
            30,
            31,
        ]

    def test_a_slow_drift_adds_up_to_another_load(self):
        tried = self.run_with_load(lambda second: 1000.0 * 1.02 ** max(0, second - 30))
        assert tried[:2] == [0, 1]
        assert tried[2] == 40  # the first second with more than a fifth on top

    def test_three_periods_without_anything_to_do_are_the_end_until_the_load_changes(self):
        def busy(second):
            return 0.75 if second < 3 else 0.85

        def worlds(joker):
            run = run_in(FLOW, PLAN, lambda now: steady(now, 0.0))
            run.script = lambda plan, second: World(
                1000.0, {"a": [busy(second)] * len(plan.region("a").pipelines)}, EXAMPLE
            ).observed(plan, second)
            run.go(run.tuned_by(joker), 10)
            return run.plans

        assert worlds(PAPER) == []
        assert worlds(replace(PAPER, stable=4)) != []

    def test_while_a_region_adapts_the_metrics_of_others_stay(self):
        flow, plan = two_regions()

        def look(plan: Plan, rate: float) -> History:
            return seen(flow, plan, World(rate, {"a": [0.9], "b": [0.3]}).observed(plan, 1))

        before = look(plan, 1000.0)
        memory, proposal = PAPER.decide(PAPER.begin(), before)
        known = memory.metrics["b", ("b",)]
        kept, verdict = PAPER.judge(memory, look(proposal.plan, 2000.0), Trial(before, proposal))
        assert verdict.outcome is Outcome.KEPT
        assert kept.metrics["b", ("b",)] == known
        assert kept.metrics["a", ("a",)].rate_per_s == 2000.0


class TestWhatGoesWrong:
    def test_what_an_engine_does_not_apply_is_not_proposed_again(self):
        run = run_in(FLOW, PLAN, lambda now: steady(now, 1000.0))
        run.refuses = lambda plan: len(plan.region("a").pipelines) > 1
        run.go(run.tuned_by(PAPER), 20)
        assert [line.split(":")[0] for line in lines(run)] == ["failed", "tried", "reverted"]

    def test_a_plan_changed_by_somebody_else_in_a_trial_is_looked_at_afresh(self):
        run = run_in(FLOW, PLAN, lambda now: steady(now, 1000.0))
        controller = run.tuned_by(PAPER)
        run.go(controller, 1)
        run.reconfigure(PLAN.with_replicas("a", 3))
        run.go(controller, 3, start=1)
        assert [shape(plan, "a") for plan in run.plans] == [((3,), 3), ((2, 1), 3), ((3,), 4)]

    def test_it_is_known_by_name(self):
        assert policy("organic") == Organic()
