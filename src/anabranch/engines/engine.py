"""What an engine is: it runs a flow under a plan, tells what it sees, and takes another plan."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Protocol

from anabranch.events import Event, Reconfiguration
from anabranch.planning.machine import Machine
from anabranch.planning.models.model import Model
from anabranch.planning.plan import Plan

CHANGES = 500
"""Plan changes that an engine remembers: each has two plans of some kilobytes."""


caller_waits: ContextVar[bool] = ContextVar("caller_waits", default=False)
"""Whether whoever starts a run waits for its end, so that an engine may use the same thread."""


@contextmanager
def waiting_caller() -> Iterator[None]:
    """Start runs whose caller waits for their end."""
    before = caller_waits.set(True)
    try:
        yield
    finally:
        caller_waits.reset(before)


@dataclass(frozen=True)
class Options:
    """What a user may say about a run, beside flow and plan; see `running.start`."""

    checkpoint: str | os.PathLike[str] | None = None
    rows: int | None = None
    master: str | None = None
    session: object = None
    conf: Mapping[str, str] = field(default_factory=dict)
    machine: Machine | None = None
    workers: int | None = None


class Engine(Protocol):
    """One run of one flow.

    An implementer owes:

    - *The meaning.* Whatever the plan, its changes and the batching: the results of the sequential
      run, in the order that the flow promises.
    - *Whole switches.* `reconfigure` validates, refuses by name what the engine cannot do, and puts
      the plan in force at an exact position, whole or not at all; a newer request supersedes a
      pending one.
    - *Exactly once.* After a kill at any instant, a run that goes on from the same checkpoint
      leaves in the sinks what an undisturbed one would have written.
    - *A clean end.* `stop` fires nothing: only the end of bounded sources closes ports.
    - *Errors.* `wait` raises what ended the run, as the user's own error where it was theirs.
    """

    @property
    def name(self) -> str:
        """What users call it."""

    @property
    def plan(self) -> Plan:
        """The plan in force."""

    @property
    def rows(self) -> tuple[int, int]:
        """Tuples read and written so far by this run."""

    @property
    def seconds(self) -> float:
        """How long it has worked, up to its end."""

    @property
    def cores(self) -> int:
        """Cores, or slots for tasks, that it has; known once it has started."""

    def model(self) -> Model | None:
        """What plans of its flow promise; None where nobody knows. Asked once it has started."""

    def start(self, tell: Callable[[Event], None]) -> None:
        """Begin, or go on from the checkpoint; `tell` hears every event."""

    def caught_up(self) -> bool | None:
        """Whether all that could be read is visible; None where only observations tell."""

    def reconfigure(self, plan: Plan) -> None:
        """Request another plan."""

    def reconfigurations(self) -> list[Reconfiguration]:
        """The newest plan changes, as many as `CHANGES`."""

    def latency_ms(self, share: float) -> float:
        """The latency that a share of the tuples did not exceed."""

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the end; whether it came. Raises what ended the run, if that was an error."""

    def stop(self) -> None:
        """Stop at the next exact position; what was committed stays."""
