"""What a planner is: it finds a plan for a profile on a machine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from anabranch.errors import PlanError, Subject
from anabranch.planning.answer import Answer
from anabranch.planning.machine import Machine
from anabranch.planning.profile import Profile

THREADS_PER_CORE = 2


@dataclass(frozen=True)
class Problem:
    """What a planner is asked.

    Attributes:
        profile: The application.
        machine: Where it shall run.
        threads: How many threads there may be at most; twice the cores when left out. A flow's
            regions, of which sources and sinks are some, have a thread each on top of that.
        regions: Runs of operators that are regions for good, as those of a flow are; None where
            the planner may cut the chains of the profile as it likes.
    """

    profile: Profile
    machine: Machine
    threads: int | None = None
    regions: tuple[tuple[str, ...], ...] | None = None

    def __post_init__(self) -> None:
        """Costs are taken to the machine's clock; a bound leaves a thread to each region."""
        object.__setattr__(self, "profile", self.profile.at_clock(self.machine.ghz))
        if self.threads is not None and self.threads < self.least_threads:
            raise PlanError(
                Subject("argument", "threads"),
                f"at least {self.least_threads}: every region needs one",
                str(self.threads),
                "allow more",
            )

    @property
    def least_threads(self) -> int:
        """How many threads are needed however one plans."""
        return len(self.profile.chains if self.regions is None else self.regions)

    @cached_property
    def most_threads(self) -> int:
        """How many threads there may be."""
        if self.threads is not None:
            return self.threads
        usual = THREADS_PER_CORE * self.machine.cores
        return max(usual, self.least_threads) if self.regions is None else usual + len(self.regions)

    @property
    def runs(self) -> tuple[tuple[str, ...], ...]:
        """The pieces to plan one by one: regions if they are given, else chains to be cut."""
        return self.profile.chains if self.regions is None else self.regions

    def cuts(self, run: tuple[str, ...]) -> Iterator[tuple[int, int]]:
        """First and behind-last operator of every region that may be made of a run."""
        if self.regions is not None:
            yield 0, len(run)
            return
        for start in range(len(run)):
            for end in range(start + 1, len(run) + 1):
                yield start, end


class Planner(Protocol):
    """Finds a plan.

    An implementer owes: every operator in exactly one region, which lies within one of the
    problem's runs; one replica of what cannot be replicated; no more threads than allowed; the
    throughput and utilization that its model gives for what it answers. It reads no clock and does
    no I/O, and the same problem gets the same answer.
    """

    def __call__(self, problem: Problem) -> Answer:
        """The plan that it finds best."""
