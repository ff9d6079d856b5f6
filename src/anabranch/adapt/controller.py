"""The controller: observe → decide → guard → apply → judge, once for each period of a run.

It hears the events of an engine and wishes for plans. Whatever goes wrong here must not disturb the
stream: a policy that raises, a plan that cannot be applied, a period without measurements leave the
plan as it is and a line in the journal.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

from anabranch.adapt.guards import Blacklist, OfferedLoad, refusal, remembered
from anabranch.adapt.history import History, Limits
from anabranch.adapt.policy import Outcome, Policy, Proposal, Trial
from anabranch.adapt.topology import Topology
from anabranch.events import Decision, Event, Kind, Observation, Observed, Reconfiguration
from anabranch.planning.models.model import Model
from anabranch.planning.plan import Plan

PATIENCE_PERIODS = 30
"""A plan that is not in force after so many periods is given up."""
MOST_LOOKS = 20
"""A trial that a policy has not judged after so many looks is reverted."""
MOST_BARRED = 1000
"""Plans that did not help, of which the newest are remembered."""
NUMBERS = re.compile(r"[\d.,]+")
"""What does not make a line of the journal another one."""


class Runner(Protocol):
    """What a controller needs of an engine."""

    @property
    def plan(self) -> Plan:
        """The plan in force."""

    def reconfigure(self, plan: Plan) -> None:
        """Request another plan."""


class Controller:
    """Tunes one run.

    Args:
        topology: The regions of the flow.
        policy: Who decides.
        runner: Whom to tell.
        limits: How far the policy may go.
        model: What plans promise there; None where nobody knows.
        tell: Hears every decision.
    """

    def __init__(
        self,
        topology: Topology,
        policy: Policy[Any],
        runner: Runner,
        limits: Limits,
        model: Model | None = None,
        tell: Callable[[Decision], None] = lambda decision: None,
    ) -> None:
        self._topology, self._policy, self._runner = topology, policy, runner
        self.limits, self._model, self._tell = limits, model, tell
        self._memory = policy.begin()
        self._window: deque[Observation] = deque(maxlen=policy.pace.most)
        self._settling, self._fresh = policy.pace.settle, 0
        self._trial: Trial | None = None
        self._wish: Plan | None = None
        self._waited = self._looks = 0
        self._blacklist: Blacklist = {}
        self._at_s, self._anew = 0.0, False
        self._said = ""

    @property
    def trying(self) -> bool:
        """Whether a change is under way or being judged."""
        return self._wish is not None or self._trial is not None

    def hear(self, event: Event) -> None:
        """Take an event of the run."""
        if isinstance(event, Observed):
            self._turn(event.observation)
        elif isinstance(event, Reconfiguration):
            self._begin_window(Plan.from_json(event.after))

    def look_again(self) -> None:
        """Decide from what comes from now on, after a pause; called from any thread."""
        self._anew = True  # the window is the engine's thread's own

    def _turn(self, observation: Observation) -> None:
        """Observe → decide → guard → apply; or, while a change is on trial, observe → judge."""
        self._at_s = observation.at_s
        trial = self._trial
        try:
            seen = self._observe(observation)
            if seen is None:
                return
            if trial is not None:
                self._judge(seen, trial)
                return
            proposal = self._decide(seen)
            if proposal is not None and self._guard(seen, proposal):
                self._apply(seen, proposal)
        except Exception as error:  # the stream must go on, whatever a policy does
            what = f"{type(error).__name__}: {error}"
            if trial is None:
                self._note(Kind.FAILED, f"{what}; the plan stays as it is")
            else:
                self._note(Kind.FAILED, f"{trial.proposal.why}, tried, {what}; not judged")
                self._go_back(trial)

    # Observe

    def _observe(self, observation: Observation) -> History | None:
        """What to look at; None while there is too little to see."""
        plan = self._runner.plan
        if self._anew:
            self._anew = False
            self._window.clear()
            self._fresh = 0
        if not self._in_force(plan):
            return None
        lacking = missing(observation, plan)
        if lacking:
            self._note(
                Kind.NOTED, f"no measurements of {lacking}; nothing is decided on this period"
            )
            return None
        if self._settling:
            self._settling -= 1
            return None
        self._window.append(observation)
        self._fresh += 1
        if self._fresh < self._policy.pace.periods:
            return None
        self._fresh = 0
        seen = History(self._topology, plan, tuple(self._window), self.limits, self._model)
        if self._trial is None:
            self._blacklist = remembered(self._blacklist, OfferedLoad.of(seen))
        return replace(seen, barred=frozenset(self._blacklist))

    def _in_force(self, plan: Plan) -> bool:
        """Whether the plan that was wished for has come; one that does not come is given up."""
        if self._wish is None:
            return True
        if plan == self._wish:
            self._wish = None
            return True
        self._waited += 1
        if self._waited > PATIENCE_PERIODS:
            self._note(Kind.FAILED, f"no plan change within {PATIENCE_PERIODS} periods; given up")
            if self._trial is not None:
                self._bar(self._trial.proposal.plan, self._trial.before)
            self._wish = self._trial = None
            self._wish_for(plan)  # the newest wish supersedes the one that does not come
        return False

    def _begin_window(self, after: Plan) -> None:
        """Another plan is in force: what was seen before does not count for it."""
        if self._wish is None or after != self._wish:
            if self._trial is not None or self._wish is None:
                self._note(Kind.NOTED, "the plan was changed by somebody else; looking again")
            self._trial = self._wish = None
        self._window.clear()
        self._settling, self._fresh = self._policy.pace.settle, 0

    # Decide, guard, apply

    def _decide(self, seen: History) -> Proposal | None:
        self._memory, proposal = self._policy.decide(self._memory, seen)
        return proposal

    def _guard(self, seen: History, proposal: Proposal) -> bool:
        if proposal.plan == seen.plan:
            self._note(Kind.NOTED, proposal.why)
            return False
        reason = refusal(proposal.plan, seen, self._blacklist)
        if reason is not None:
            self._note(Kind.REFUSED, f"{proposal.why}: {reason}")
        return reason is None

    def _apply(self, seen: History, proposal: Proposal) -> bool:
        """Wish for a plan; whether the engine took the wish."""
        error = self._wish_for(proposal.plan)
        if error is not None:
            self._bar(proposal.plan, seen)
            self._note(Kind.FAILED, f"{proposal.why}: {error}; the plan stays as it is")
            return False
        self._trial = Trial(seen, proposal) if proposal.trial else None
        self._looks = 0
        self._note(Kind.TRIED if proposal.trial else Kind.APPLIED, proposal.why)
        return True

    def _wish_for(self, plan: Plan) -> Exception | None:
        """Tell the engine; what it raises is no reason to stop the stream."""
        try:
            self._runner.reconfigure(plan)
        except Exception as error:
            return error
        self._wish, self._waited = None if plan == self._runner.plan else plan, 0
        return None

    # Judge

    def _judge(self, seen: History, trial: Trial) -> None:
        self._memory, verdict = self._policy.judge(self._memory, seen, trial)
        self._looks += 1
        if verdict.outcome is Outcome.OPEN and self._looks < MOST_LOOKS:
            return
        self._trial = None
        if verdict.outcome is Outcome.KEPT:
            self._note(Kind.KEPT, f"{trial.proposal.why}, tried, {verdict.why}")
            return
        why = verdict.why if verdict.outcome is Outcome.REVERTED else "no verdict"
        self._note(Kind.REVERTED, f"{trial.proposal.why}, tried, {why}")
        self._bar(trial.proposal.plan, trial.before)
        instead = verdict.then
        if instead is None or not (
            self._guard(trial.before, instead) and self._apply(trial.before, instead)
        ):
            self._go_back(trial)

    def _go_back(self, trial: Trial) -> None:
        """To the plan from before a trial."""
        self._trial = None
        self._bar(trial.proposal.plan, trial.before)
        error = self._wish_for(trial.before.plan)
        if error is not None:
            self._note(Kind.FAILED, f"the plan from before cannot come back: {error}")

    def _bar(self, plan: Plan, seen: History) -> None:
        barred = {**self._blacklist, plan: OfferedLoad.of(seen)}
        self._blacklist = dict(list(barred.items())[-MOST_BARRED:])

    def _note(self, kind: Kind, why: str) -> None:
        """A line in the journal; the same line twice in a row says no more than once."""
        said = f"{kind} {NUMBERS.sub('', why)}"
        if said != self._said or kind not in (Kind.REFUSED, Kind.FAILED, Kind.NOTED):
            self._tell(Decision(self._at_s, self._policy.name, kind, why))
        self._said = said


def missing(seen: Observation, plan: Plan) -> str:
    """Regions and sources of a plan that a period does not tell of; nothing if all are there."""
    pipelines = {(p.region, p.steps) for p in seen.pipelines}
    planned = {r.region: r.pipelines for r in plan.regions}
    lacking = [n for n, runs in planned.items() if any((n, run) not in pipelines for run in runs)]
    told = {region.region for region in seen.regions}
    lacking += [name for name in planned if name not in told and name not in lacking]
    read = {source.source for source in seen.sources}
    lacking += [source.source for source in plan.sources if source.source not in read]
    return ", ".join(lacking)
