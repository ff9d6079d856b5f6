"""Laws of Joker's policy in worlds of chance: whatever is measured, these hold."""

from dataclasses import dataclass, field, replace
from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.adapt.guards import beyond
from anabranch.adapt.history import History, Limits
from anabranch.adapt.policies.organic import Actions, Organic, Remembered, best_cut, split_utility
from anabranch.adapt.policy import Cadence, Outcome, Proposal, Trial, Verdict
from tests.adapt.organic_worlds import QUICK, chances, run_in
from tests.adapt.scripted import ScriptedRun
from tests.planning.described_flows import built
from tests.sampling import some

FLOWS = [
    built("""
        in: source k
        a: partitioned by k
        b: map keeps k
        c: map keeps k
        out: sink
    """),
    built("""
        in: source k j
        a: map makes k j
        b: map keeps k j
        c: partitioned by k carries j
        d: partitioned by j
        e: map makes k
        out: sink
    """),
    built("""
        x: source k
        y: source k
        a: partitioned by k <- x
        b: map keeps k
        c: partitioned by k <- y
        f: map keeps k
        both: union b f
        d: map makes k
        e: stateful
        out: sink
    """),
]


@dataclass
class Watched:
    """A policy whose answers are noted."""

    policy: Organic
    pace: Cadence = QUICK
    name: str = "organic"
    decisions: list[tuple[Remembered, History, Proposal | None]] = field(default_factory=list)
    verdicts: list[tuple[Remembered, History, Trial, Verdict]] = field(default_factory=list)

    def begin(self) -> Remembered:
        return self.policy.begin()

    def decide(self, memory: Remembered, seen: History) -> tuple[Remembered, Proposal | None]:
        after, proposal = self.policy.decide(memory, seen)
        self.decisions.append((memory, seen, proposal))
        return after, proposal

    def judge(self, memory: Remembered, seen: History, trial: Trial) -> tuple[Remembered, Verdict]:
        after, verdict = self.policy.judge(memory, seen, trial)
        self.verdicts.append((memory, seen, trial, verdict))
        return after, verdict

    @property
    def proposals(self) -> list[Proposal]:
        found = [p for _, _, p in self.decisions] + [v.then for *_, v in self.verdicts]
        return [proposal for proposal in found if proposal is not None]


policies = st.builds(
    Organic,
    actions=st.sampled_from(Actions),
    utility=st.sampled_from([0.0, 0.2, 0.9]),
    pieces=st.integers(2, 4),
    step=st.integers(1, 4),
    stable=st.integers(1, 4),
    stateless=st.booleans(),
)
bounds = st.builds(Limits, st.just(4), st.integers(1, 5), st.integers(4, 14))
SECONDS = 200

runs = st.tuples(st.sampled_from(FLOWS), st.integers(0, 10**6), policies, bounds)


def lived(case) -> tuple[ScriptedRun, Watched]:
    """A run in a world of chance, long enough to come to its end."""
    (flow, plan), seed, policy, limits = case
    watched = Watched(policy)
    run = run_in(flow, plan, chances(seed))
    run.go(run.tuned_by(watched, limits), SECONDS)
    return run, watched


@settings(max_examples=some(60))
@given(runs)
def test_no_proposal_goes_beyond_the_limits_or_what_the_flow_allows(case):
    run, watched = lived(case)
    for proposal in watched.proposals:
        proposal.plan.validate(run.flow)
        assert beyond(proposal.plan, case[3]) is None
    assert "refused" not in {decision.outcome for decision in run.journal}


@settings(max_examples=some(60))
@given(runs)
def test_a_revert_restores_the_plan_exactly(case):
    _, watched = lived(case)
    for _, seen, trial, verdict in watched.verdicts:
        if verdict.outcome is Outcome.REVERTED and verdict.then is None:
            after = [s.plan for _, s, _ in watched.decisions if s.now.at_s > seen.now.at_s]
            assert not after or after[0] == trial.before.plan


@settings(max_examples=some(60))
@given(runs)
def test_under_one_load_no_plan_is_proposed_twice(case):
    _, watched = lived(case)
    plans = [proposal.plan for proposal in watched.proposals]
    assert len(plans) == len(set(plans))


@settings(max_examples=some(60))
@given(runs)
def test_under_one_load_the_adaptation_ends(case):
    run, _ = lived(case)
    assert max((decision.at_s for decision in run.journal), default=0) < SECONDS - 50


@settings(max_examples=some(30))
@given(runs)
def test_decisions_depend_on_what_is_given_alone(case):
    run, watched = lived(case)
    policy = replace(case[2])
    for memory, seen, proposal in watched.decisions:
        assert policy.decide(memory, seen)[1] == proposal
    for memory, seen, trial, verdict in watched.verdicts:
        assert policy.judge(memory, seen, trial)[1] == verdict
    assert lived(case)[0].journal == run.journal


@settings(max_examples=some(60))
@given(runs)
def test_what_is_kept_has_gained_enough(case):
    _, watched = lived(case)
    for _, seen, trial, verdict in watched.verdicts:
        rate = seen.rate_per_s / trial.before.rate_per_s - 1
        assert (verdict.outcome is Outcome.KEPT) == (rate > case[2].gain)


@given(
    st.lists(st.floats(0.01, 1.0), min_size=2, max_size=7),
    st.integers(2, 4),
    st.floats(0.0, 0.5),
)
def test_no_other_cut_promises_more(costs, pieces, overhead):
    found = split_utility(costs, overhead, best_cut(costs, pieces))
    for number in range(1, min(pieces, len(costs))):
        for cut in combinations(range(1, len(costs)), number):
            assert found >= split_utility(costs, overhead, cut) * (1 - 1e-6)
