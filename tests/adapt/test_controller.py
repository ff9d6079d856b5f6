"""Whatever a policy does, the stream goes on under the old plan and the journal says why."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from anabranch.adapt import controller
from anabranch.adapt.history import History
from anabranch.adapt.policy import Cadence, Outcome, Proposal, Trial, Verdict
from anabranch.adapt.tuner import Tuner
from anabranch.apps import word_count
from anabranch.engines.handle import Run
from anabranch.events import Observation, Reconfiguration, RunStarted
from anabranch.flow import Flow
from anabranch.planning.plan import Plan
from tests.adapt.scripted import ROOMY, ScriptedRun, observation


@dataclass(frozen=True)
class Wish:
    """Proposes the given plans one after another, and judges as it is told to."""

    plans: tuple[Plan, ...]
    outcome: Outcome = Outcome.KEPT
    trial: bool = True
    raises: bool = False
    raises_in_judge: bool = False
    instead: Plan | None = None
    name = "wish"
    pace = Cadence(settle=1, periods=2, most=4)

    def begin(self) -> int:
        return 0

    def decide(self, memory: int, seen: History) -> tuple[int, Proposal | None]:
        if self.raises:
            raise ZeroDivisionError("no tuples")
        if memory >= len(self.plans):
            return memory, None
        return memory + 1, Proposal(self.plans[memory], f"plan {memory}", self.trial)

    def judge(self, memory: int, seen: History, trial: Trial) -> tuple[int, Verdict]:
        if self.raises_in_judge:
            raise ZeroDivisionError("no rate")
        then = Proposal(self.instead, "another way") if self.instead else None
        return memory, Verdict(self.outcome, "gained 4 %", then)


@pytest.fixture
def flow() -> Flow:
    return word_count.build(text="to be or not to be")


def steady(plan: Plan, second: int) -> Observation:
    return observation(plan, at_s=float(second))


def run_of(flow: Flow) -> ScriptedRun:
    return ScriptedRun(flow, Plan.sequential(flow), steady)


def outcomes(run: ScriptedRun) -> list[str]:
    return [decision.outcome for decision in run.journal]


def test_a_plan_that_helped_stays(flow: Flow) -> None:
    run = run_of(flow)
    wider = run.plan.with_replicas("count", 2)
    run.go(run.tuned_by(Wish((wider,))), 12)
    assert run.plan == wider
    assert outcomes(run) == ["tried", "kept"]
    assert run.journal[1].why == "plan 0, tried, gained 4 %"


def test_a_plan_that_did_not_help_is_reverted_exactly_and_not_tried_again(flow: Flow) -> None:
    run = run_of(flow)
    first = run.plan
    wider = first.with_replicas("count", 2)
    run.go(run.tuned_by(Wish((wider, wider), Outcome.REVERTED)), 20)
    assert run.plan == first
    assert run.plans == [wider, first]
    assert outcomes(run) == ["tried", "reverted", "refused"]
    assert "the load has not changed" in run.journal[2].why


def test_a_reverted_plan_may_be_tried_again_when_the_load_has_changed(flow: Flow) -> None:
    run = run_of(flow)
    wider = run.plan.with_replicas("count", 2)
    run.script = lambda plan, second: observation(
        plan, at_s=second, rate=1000.0 if second < 8 else 3000.0
    )
    run.go(run.tuned_by(Wish((wider, wider), Outcome.REVERTED)), 20)
    assert run.plans.count(wider) == 2


def test_what_is_reverted_can_be_replaced_at_once(flow: Flow) -> None:
    run = run_of(flow)
    first = run.plan
    wider, split = first.with_replicas("count", 2), first.with_pipelines("split", 1, 1)
    policy = Wish((wider,), Outcome.REVERTED, instead=split)
    run.go(run.tuned_by(policy), 9)
    assert run.plans[:2] == [wider, split]


def test_a_policy_that_raises_leaves_the_plan_and_a_line_in_the_journal(flow: Flow) -> None:
    run = run_of(flow)
    first = run.plan
    run.go(run.tuned_by(Wish((), raises=True)), 20)
    assert run.plan == first
    assert run.plans == []
    assert outcomes(run) == ["failed"]
    assert "ZeroDivisionError: no tuples; the plan stays as it is" in run.journal[0].why


def test_a_plan_that_cannot_be_applied_leaves_the_old_one_and_is_not_tried_again(
    flow: Flow,
) -> None:
    run = run_of(flow)
    first = run.plan
    wider = first.with_replicas("count", 2)
    run.refuses = lambda plan: plan == wider
    run.go(run.tuned_by(Wish((wider, wider))), 20)
    assert run.plan == first
    assert outcomes(run) == ["failed", "refused"]
    assert "no such place; the plan stays as it is" in run.journal[0].why


def test_a_plan_that_never_comes_is_given_up(flow: Flow) -> None:
    run = run_of(flow)
    wider = run.plan.with_replicas("count", 2)
    controller = run.tuned_by(Wish((wider,)))
    wishes: list[Plan] = []
    run.reconfigure = wishes.append  # type: ignore[method-assign]
    run.go(controller, 60)
    assert wishes == [wider, run.plan]
    assert outcomes(run) == ["tried", "failed"]
    assert not controller.trying


def test_a_period_without_measurements_decides_nothing(flow: Flow) -> None:
    run = run_of(flow)
    wider = run.plan.with_replicas("count", 2)

    def gaps(plan: Plan, second: int) -> Observation:
        whole = observation(plan, at_s=float(second))
        return replace(whole, pipelines=()) if second < 6 else whole

    run.script = gaps
    controller = run.tuned_by(Wish((wider,)))
    run.go(controller, 6)
    assert run.plans == []
    assert [(d.outcome, d.why) for d in run.journal] == [
        ("noted", "no measurements of split, count, out; nothing is decided on this period")
    ]
    run.go(controller, 6, start=6)
    assert run.plans == [wider]


def test_plans_beyond_the_limits_or_the_flow_are_refused(flow: Flow) -> None:
    run = run_of(flow)
    first = run.plan
    far = first.with_replicas("count", 99)
    wrong = replace(first, fingerprint="another flow")
    run.go(run.tuned_by(Wish((far, wrong)), replace(ROOMY, replicas=8)), 20)
    assert run.plan == first
    assert outcomes(run) == ["refused", "refused"]
    assert "99 replicas of count, at most 8" in run.journal[0].why
    assert "the flow does not allow it" in run.journal[1].why


def test_a_change_by_somebody_else_ends_the_trial_and_starts_anew(flow: Flow) -> None:
    run = run_of(flow)
    wider, by_hand = run.plan.with_replicas("count", 2), run.plan.with_replicas("count", 4)
    controller = run.tuned_by(Wish((wider,), Outcome.REVERTED))
    run.go(controller, 5)
    assert controller.trying
    change = Reconfiguration(5.0, 5, 0.0, ("by hand",), 0, wider.to_json(), by_hand.to_json())
    run.plan = by_hand
    controller.hear(change)
    assert not controller.trying
    run.go(controller, 10, start=5)
    assert run.plan == by_hand
    assert outcomes(run) == ["tried", "noted"]


def test_nothing_is_decided_while_a_change_settles(flow: Flow) -> None:
    run = run_of(flow)
    wider = run.plan.with_replicas("count", 2)
    controller = run.tuned_by(Wish((wider,), trial=False))
    run.go(controller, 2)
    assert run.journal == []
    run.go(controller, 1, start=2)
    assert outcomes(run) == ["applied"]


def test_a_verdict_that_raises_brings_the_old_plan_back(flow: Flow) -> None:
    run = run_of(flow)
    first = run.plan
    wider = first.with_replicas("count", 2)
    run.go(run.tuned_by(Wish((wider, wider), raises_in_judge=True)), 20)
    assert run.plan == first
    assert run.plans == [wider, first]
    assert outcomes(run) == ["tried", "failed", "refused"]
    assert "plan 0, tried, ZeroDivisionError: no rate; not judged" in run.journal[1].why


def test_something_else_that_cannot_be_applied_brings_the_old_plan_back(flow: Flow) -> None:
    run = run_of(flow)
    first = run.plan
    wider, split = first.with_replicas("count", 2), first.with_pipelines("split", 1, 1)
    run.refuses = lambda plan: plan == split
    run.go(run.tuned_by(Wish((wider,), Outcome.REVERTED, instead=split)), 20)
    assert run.plan == first
    assert outcomes(run) == ["tried", "reverted", "failed"]


def test_a_plan_that_cannot_come_back_is_told(flow: Flow) -> None:
    run = run_of(flow)
    first = run.plan
    wider = first.with_replicas("count", 2)
    run.refuses = lambda plan: plan == first
    controller = run.tuned_by(Wish((wider,), Outcome.REVERTED))
    run.go(controller, 20)
    assert run.plan == wider
    assert outcomes(run) == ["tried", "reverted", "failed"]
    assert "cannot come back: no such place" in run.journal[2].why
    assert not controller.trying


def test_a_trial_that_is_never_judged_ends(flow: Flow) -> None:
    run = run_of(flow)
    first = run.plan
    wider = first.with_replicas("count", 2)
    run.go(run.tuned_by(Wish((wider,), Outcome.OPEN)), 100)
    assert run.plan == first
    assert outcomes(run) == ["tried", "reverted"]
    assert "no verdict" in run.journal[1].why


def test_what_is_wide_already_may_stay_wide_but_not_get_wider(flow: Flow) -> None:
    run = run_of(flow)
    run.plan = run.plan.with_replicas("count", 8)
    moved = run.plan.with_bucket_map(
        "count", (0,) * 128 + run.plan.region("count").bucket_map[128:]
    )
    wider = run.plan.with_replicas("count", 9)
    run.go(run.tuned_by(Wish((moved, wider)), replace(ROOMY, replicas=4, threads=6)), 20)
    assert run.plans == [moved]
    assert outcomes(run) == ["tried", "kept", "refused"]


def test_lines_that_differ_in_numbers_alone_are_written_once(flow: Flow) -> None:
    run = run_of(flow)
    far = tuple(run.plan.with_replicas("count", 50 + n) for n in range(5))
    run.go(run.tuned_by(Wish(far)), 20)
    assert outcomes(run) == ["refused"]


@dataclass(frozen=True)
class Widening:
    """Proposes another replica at every look, and remembers at which seconds it looked."""

    looked: list[list[float]] = field(default_factory=list)
    name = "widening"
    pace = Cadence(settle=0, periods=1, most=4)

    def begin(self) -> None:
        return None

    def decide(self, memory: None, seen: History) -> tuple[None, Proposal | None]:
        self.looked.append([each.at_s for each in seen.window])
        if len(seen.window) < 3:
            return None, None
        replicas = seen.plan.region("count").replicas + 1
        return None, Proposal(seen.plan.with_replicas("count", replicas), "wider", trial=False)

    def judge(self, memory: None, seen: History, trial: Trial) -> tuple[None, Verdict]:
        raise AssertionError("nothing is tried")


class ScriptedEngine(ScriptedRun):
    """What a handle and a tuner need of an engine."""

    cores, seconds = 4, 0.0

    def model(self) -> None:
        return None


def handle_of(flow: Flow, policy: Widening) -> tuple[ScriptedEngine, Run]:
    engine = ScriptedEngine(flow, Plan.sequential(flow), steady)
    run = Run(flow.name, engine)
    run.tuner = Tuner(flow, engine, policy, run.hear, ROOMY)
    run.hear(RunStarted(flow.name, "scripted", engine.plan.to_json(), -1))
    return engine, run


def test_a_policy_that_is_paused_decides_nothing_however_long_it_takes(flow: Flow) -> None:
    policy = Widening()
    engine, run = handle_of(flow, policy)
    engine.go(run, 2)
    run.pause_adaptation()
    assert run.adapting is False
    engine.go(run, 50, start=2)
    assert (engine.plans, policy.looked) == ([], [[0.0], [0.0, 1.0]])
    run.resume_adaptation()
    assert run.adapting is True
    engine.go(run, 4, start=52)
    assert [plan.region("count").replicas for plan in engine.plans] == [2]
    assert [each.outcome for each in run.decisions] == ["noted", "noted", "applied"]


def test_after_a_pause_a_policy_sees_nothing_from_before_it(flow: Flow) -> None:
    policy = Widening()
    engine, run = handle_of(flow, policy)
    engine.go(run, 2)
    run.pause_adaptation()
    run.resume_adaptation()
    engine.go(run, 2, start=2)
    assert policy.looked == [[0.0], [0.0, 1.0], [2.0], [2.0, 3.0]]


def test_after_a_pause_a_policy_waits_for_as_many_periods_as_it_always_does(flow: Flow) -> None:
    run = run_of(flow)
    wider = run.plan.with_replicas("count", 2)
    controller = run.tuned_by(Wish((wider,)))  # settles for one period, then looks at two
    run.go(controller, 2)
    controller.look_again()
    run.go(controller, 1, start=2)
    assert outcomes(run) == []
    run.go(controller, 1, start=3)
    assert outcomes(run) == ["tried"]


def test_a_change_on_trial_is_judged_after_a_pause(flow: Flow) -> None:
    run = run_of(flow)
    wider = run.plan.with_replicas("count", 2)
    controller = run.tuned_by(Wish((wider,)))
    run.go(controller, 5)
    assert (outcomes(run), controller.trying) == (["tried"], True)
    controller.look_again()
    run.go(controller, 4, start=5)
    assert (outcomes(run), controller.trying) == (["tried", "kept"], False)


def test_a_tuner_that_could_not_begin_leaves_nothing_to_pause(flow: Flow) -> None:
    class Broken(ScriptedEngine):
        def model(self) -> None:
            raise OSError("no figures")

    engine = Broken(flow, Plan.sequential(flow), steady)
    run = Run(flow.name, engine)
    run.tuner = Tuner(flow, engine, Widening(), run.hear)
    run.hear(RunStarted(flow.name, "scripted", engine.plan.to_json(), -1))
    run.pause_adaptation()
    assert run.adapting is None
    assert ["nobody tunes this run" in each.why for each in run.decisions] == [True]


def test_of_many_plans_that_did_not_help_the_newest_are_remembered(
    flow: Flow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller, "MOST_BARRED", 1)
    run = run_of(flow)
    two, three = (run.plan.with_replicas("count", replicas) for replicas in (2, 3))
    run.go(run.tuned_by(Wish((two, three, two, two), Outcome.REVERTED)), 40)
    assert run.plans == [two, run.plan, three, run.plan, two, run.plan]
