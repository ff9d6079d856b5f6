"""What a policy is: it looks at measurements, proposes the next plan, and judges what came of it.

Policies are pure: they own no clock, thread or file, and what they remember is a value that the
controller keeps for them. So a decision depends on what it is given alone, and can be replayed.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol, TypeVar, runtime_checkable

from anabranch.adapt.history import History
from anabranch.planning.plan import Plan

Memory = TypeVar("Memory")


@dataclass(frozen=True)
class Cadence:
    """How long a policy looks before it speaks, in periods (batches, where there are some).

    Attributes:
        settle: Periods that do not count after a change of plan.
        periods: Periods that are looked at before each decision and verdict.
        most: Periods that a window holds at most.
    """

    settle: int = 2
    periods: int = 3
    most: int = 60


@dataclass(frozen=True)
class Proposal:
    """Another plan, and why.

    Attributes:
        plan: The plan to go to.
        why: What was seen and what is promised, in words that go before "tried".
        trial: Whether the policy will judge what comes of it; else it stands.
    """

    plan: Plan
    why: str
    trial: bool = True


class Outcome(Enum):
    """What becomes of a change that was tried."""

    KEPT = "kept"
    REVERTED = "reverted"
    OPEN = "open"  # more has to be seen


@dataclass(frozen=True)
class Verdict:
    """What a trial came to.

    Attributes:
        outcome: Kept, reverted, or still open.
        why: What was gained, in words.
        then: What to try at once instead of what is reverted, on trial against the same beginning;
            by default the plan from before the trial comes back.
    """

    outcome: Outcome
    why: str = ""
    then: Proposal | None = None


@dataclass(frozen=True)
class Trial:
    """A change that is being judged: what was seen before it, and what was proposed."""

    before: History
    proposal: Proposal


@runtime_checkable
class Policy(Protocol[Memory]):
    """Finds the next plan.

    An implementer owes:

    - *Purity.* The same memory and the same seen give the same answer; memory is a value that is
      never changed in place.
    - *Bounds.* No proposal beyond `seen.limits`, or that the flow's regions do not allow. Guards
      check it again, but what they refuse is a mistake of the policy.
    - *Words.* `why` names the region, what was measured and what is expected of the change.
    """

    @property
    def name(self) -> str:
        """What users call it."""

    @property
    def pace(self) -> Cadence:
        """How long it looks."""

    def begin(self) -> Memory:
        """What it knows before it has seen anything."""

    def decide(self, memory: Memory, seen: History) -> tuple[Memory, Proposal | None]:
        """The next plan, or None to stay; asked when no trial is under way."""

    def judge(self, memory: Memory, seen: History, trial: Trial) -> tuple[Memory, Verdict]:
        """What came of a trial; asked when its plan is in force and has settled."""
