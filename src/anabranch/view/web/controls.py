"""Changes by hand: pausing adaptation, and another plan for one region."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from anabranch.engines.handle import BY_HAND, Run
from anabranch.errors import AnabranchError, EngineError, PlanError, Subject
from anabranch.events import Decision, Kind
from anabranch.planning.plan import Plan

SPLIT, MERGE = "split_before", "merge_before"
WISHES = ("replicas", SPLIT, MERGE)
LEAST_LIMIT, LIMIT_PER_CORE = 16, 4
"""Replicas that a region may be given: a slip of the finger must not start a million threads."""


class Controls:
    """What the page may do with a run; nothing before there is one.

    Attributes:
        run: The run, once it has begun.
        allowed: Whether the page may change anything at all.
    """

    def __init__(self, run: Run | None = None, allowed: bool = True) -> None:
        """Hold the run, if it has begun."""
        self.run, self.allowed = run, allowed
        self._lock = threading.Lock()
        self._asked: tuple[Plan, Plan] | None = None

    def state(self) -> dict[str, bool | None]:
        """Whether there is something to control, and whether a policy decides at the moment.

        `adapting` is None where nobody tunes the run: there is nothing to pause.
        """
        run = self.run
        if run is None:
            return {"controls": False, "adapting": None}
        return {"controls": self.allowed and run.is_active, "adapting": run.adapting}

    def pause(self, wanted: Any) -> dict[str, bool | None]:
        """Pause adaptation, or let it go on."""
        if not isinstance(wanted, bool):
            raise PlanError(
                Subject("dashboard"), "paused: true or false", repr(wanted), "send one of them"
            )
        run = self._going()
        if run.adapting is None:
            got = "one that nobody tunes"
            raise EngineError(
                Subject("dashboard"), "a run with a policy", got, "start it with a policy"
            )
        if wanted:
            run.pause_adaptation()
        else:
            run.resume_adaptation()
        return self.state()

    def change(self, wish: Mapping[str, Any]) -> dict[str, Any]:
        """Wish for another plan of one region; what will be, in words, and the plan as text.

        A wish builds on the one before it, if that is not in force yet. It names a region and one
        of `WISHES`: replicas, or a step before which a pipeline is split or two are merged.
        """
        run = self._going()
        with self._lock:
            now = run.plan
            base = self._asked[1] if self._asked is not None and self._asked[0] == now else now
            wished = self._planned(base, wish, run.engine.cores)
            words = base.diff(wished)
            if words:
                self._reconfigure(run, wished, "; ".join(words))
                self._asked = (now, wished)
        return {"will": words, "plan": repr(wished)}

    def _reconfigure(self, run: Run, wished: Plan, what: str) -> None:
        """Wish for a plan. It may be in force at once, so the reason is told before it."""
        run.hear(Decision(run.engine.seconds, BY_HAND, Kind.APPLIED, what))
        try:
            run.reconfigure(wished)
        except AnabranchError as error:
            run.hear(Decision(run.engine.seconds, BY_HAND, Kind.FAILED, str(error)))
            raise

    def _going(self) -> Run:
        if self.run is None or not self.run.is_active:
            got = "a journal, or one that has not begun" if self.run is None else "one that is over"
            raise EngineError(Subject("dashboard"), "a run that is going on", got, "start it again")
        return self.run

    def _planned(self, base: Plan, wish: Mapping[str, Any], cores: int) -> Plan:
        region, wishes = wish.get("region"), [name for name in WISHES if wish.get(name) is not None]
        if not isinstance(region, str) or len(wishes) != 1:
            expected = f"a region, and one of {', '.join(WISHES)}"
            raise PlanError(Subject("dashboard"), expected, str(dict(wish)), "send those")
        (name,) = wishes
        if name != "replicas":
            steps = [step for run in base.region(region).pipelines for step in run]
            return base.with_pipelines(region, *_cut(base, region, steps, name, wish[name]))
        count, most = _whole(region, wish[name]), max(LEAST_LIMIT, LIMIT_PER_CORE * cores)
        if count > most:
            remedy = "ask for fewer, or start the run with a plan"
            raise PlanError(
                Subject("region", region), f"at most {most} replicas by hand", str(count), remedy
            )
        if any(source.source == region for source in base.sources):
            return base.with_source(region, replicas=count)
        return base.with_replicas(region, count)


def _cut(base: Plan, region: str, steps: list[str], name: str, step: Any) -> list[int]:
    """Lengths of a region's pipelines with a cut more, or one less, before a step."""
    if step not in steps[1:]:
        expected = f"a step with one before it, among {', '.join(steps[1:]) or 'none'}"
        raise PlanError(Subject("region", region), expected, repr(step), "name one of those")
    cuts = {steps.index(run[0]) for run in base.region(region).pipelines}
    cuts = cuts | {steps.index(step)} if name == SPLIT else cuts - {steps.index(step)}
    return [end - start for start, end in pairwise([*sorted(cuts), len(steps)])]


def _whole(region: str, value: Any) -> int:
    if type(value) is not int:
        raise PlanError(Subject("region", region), "a whole number", repr(value), "send one")
    return value
