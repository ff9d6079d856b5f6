"""A policy for a run: hears its events, wishes for plans, and keeps the journal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anabranch.adapt.controller import Controller
from anabranch.adapt.history import Limits
from anabranch.adapt.policy import Policy
from anabranch.adapt.registry import DEFAULT, NONE
from anabranch.adapt.registry import policy as find_policy
from anabranch.adapt.topology import Topology
from anabranch.engines.engine import Engine
from anabranch.errors import BuildError, Subject
from anabranch.events import Decision, Event, Kind, Observed, RunStarted
from anabranch.flow import Flow
from anabranch.planning.models.model import Model


class Tuner:
    """Tunes one run, from its start on.

    Args:
        flow: What runs.
        engine: What runs it.
        policy: Who decides.
        tell: Hears every decision.
        limits: How far the policy may go; by default what suits the engine's cores.
        model: What plans promise; the engine's own when left out.
    """

    def __init__(
        self,
        flow: Flow,
        engine: Engine,
        policy: Policy[Any],
        tell: Callable[[Decision], None],
        limits: Limits | None = None,
        model: Model | None = None,
    ) -> None:
        self._topology, self._engine, self._policy = Topology.of(flow), engine, policy
        self._tell, self._limits, self._model = tell, limits, model
        self.controller: Controller | None = None
        self.gave_up = False

    def hear(self, event: Event) -> None:
        """Take an event of the run."""
        if isinstance(event, RunStarted):
            self._begin()
        elif self.controller is not None:
            if self._limits is None and isinstance(event, Observed):
                self.controller.limits = self._engine_limits()  # clusters grow and shrink
            self.controller.hear(event)

    def look_again(self) -> None:
        """Decide from what comes from now on, after a pause; called from any thread."""
        if self.controller is not None:
            self.controller.look_again()

    def _engine_limits(self) -> Limits:
        return Limits.for_cores(self._engine.cores, self._topology)

    def _begin(self) -> None:
        """Engines know their cores once they have started."""
        try:
            limits = self._limits or self._engine_limits()
            model = self._model or self._engine.model()
            self.controller = Controller(
                self._topology, self._policy, self._engine, limits, model, self._tell
            )
        except Exception as error:  # the stream must go on without it
            self.gave_up = True
            why = f"{type(error).__name__}: {error}; nobody tunes this run"
            self._tell(Decision(0.0, self._policy.name, Kind.FAILED, why))


def chosen(wish: str | Policy[Any] | None, planned: bool) -> Policy[Any] | None:
    """The policy that a user means: by default none where a plan was given, else `auto`."""
    if wish is None:
        wish = NONE if planned else DEFAULT
    if not isinstance(wish, str | Policy):
        raise BuildError(
            Subject("argument", "policy"),
            "the name of a policy, or a Policy",
            f"{type(wish).__name__} {wish!r:.80}",
            "write policy='auto', for example",
        )
    if not isinstance(wish, str):
        return wish
    return None if wish == NONE else find_policy(wish)
