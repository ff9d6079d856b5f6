"""Changes by hand: pausing adaptation, and another plan for one region."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from anabranch.engines.handle import BY_HAND, Run
from anabranch.errors import AnabranchError, EngineError, PlanError
from anabranch.events import Decision, Kind
from anabranch.plan.plan import Plan

LEAST_LIMIT, LIMIT_PER_CORE = 16, 4
"""Replicas that a region may be given: a slip of the finger must not start a million threads."""


class Controls:
    """What the page may do with a run; nothing before there is one."""

    def __init__(self, run: Run | None = None) -> None:
        """Hold the run, if it has begun."""
        self.run = run
        self._lock = threading.Lock()
        self._asked: tuple[Plan, Plan] | None = None

    def state(self) -> dict[str, bool | None]:
        """Whether there is something to control, and whether a policy decides at the moment.

        `adapting` is None where nobody tunes the run: there is nothing to pause.
        """
        run = self.run
        if run is None:
            return {"controls": False, "adapting": None}
        return {"controls": run.is_active, "adapting": run.adapting}

    def pause(self, wanted: Any) -> dict[str, bool | None]:
        """Pause adaptation, or let it go on."""
        if not isinstance(wanted, bool):
            raise PlanError("adaptation", "paused: true or false", repr(wanted), "send one of them")
        run = self._going()
        if run.adapting is None:
            got = "one that nobody tunes"
            raise EngineError("dashboard", "a run with a policy", got, "start it with a policy")
        if wanted:
            run.pause_adaptation()
        else:
            run.resume_adaptation()
        return self.state()

    def change(self, wish: Mapping[str, Any]) -> list[str]:
        """Wish for other replicas or pipelines of one region; what will be, in words.

        A wish builds on the one before it, if that is not in force yet.
        """
        run = self._going()
        with self._lock:
            now = run.plan
            base = self._asked[1] if self._asked is not None and self._asked[0] == now else now
            wished = self._planned(base, wish, run.engine.cores)
            words = base.diff(wished)
            if words:
                self._apply(run, wished, "; ".join(words))
                self._asked = (now, wished)
        return words

    def _apply(self, run: Run, wished: Plan, what: str) -> None:
        """Wish for a plan. It may be in force at once, so the reason is told before it."""
        run.hear(Decision(run.engine.seconds, BY_HAND, Kind.APPLIED, what))
        try:
            run.apply(wished)
        except AnabranchError as error:
            run.hear(Decision(run.engine.seconds, BY_HAND, Kind.FAILED, str(error)))
            raise

    def _going(self) -> Run:
        if self.run is None or not self.run.is_active:
            got = "a journal, or one that has not begun" if self.run is None else "one that is over"
            raise EngineError("dashboard", "a run that is going on", got, "start it again")
        return self.run

    def _planned(self, base: Plan, wish: Mapping[str, Any], cores: int) -> Plan:
        region, replicas, pipelines = (wish.get(k) for k in ("region", "replicas", "pipelines"))
        if not isinstance(region, str) or (replicas is None) == (pipelines is None):
            raise PlanError(
                str(region), "a region, and replicas or pipelines", str(dict(wish)), "send those"
            )
        if replicas is None:
            lengths = [_whole(region, n) for n in _listed(region, pipelines)]
            return base.with_pipelines(region, *lengths)
        count, most = _whole(region, replicas), max(LEAST_LIMIT, LIMIT_PER_CORE * cores)
        if count > most:
            remedy = "ask for fewer, or start the run with a plan"
            raise PlanError(region, f"at most {most} replicas by hand", str(count), remedy)
        if any(source.source == region for source in base.sources):
            return base.with_source(region, replicas=count)
        return base.with_replicas(region, count)


def _whole(region: str, value: Any) -> int:
    if type(value) is not int:
        raise PlanError(region, "a whole number", repr(value), "send one")
    return value


def _listed(region: str, value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise PlanError(region, "pipelines as a list of lengths", repr(value), "send one")
    return value
