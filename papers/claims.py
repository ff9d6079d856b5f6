"""A paper's claim beside what this machine shows, and the rule by which both are compared.

Speeds count only on a machine that is free enough: other programs may use its cores as well.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

ENOUGH = 0.85
"""The part of the cores that has to be free for speeds to be held against a paper."""


class Verdict(StrEnum):
    """What the comparison came to."""

    REPRODUCED = "reproduced"
    NOT_REPRODUCED = "not reproduced"
    NOT_COMPARABLE = "not comparable"


@dataclass(frozen=True)
class Claim:
    """One claim.

    Attributes:
        where: Figure or table.
        paper: What the paper says.
        ours: What was measured or computed here.
        verdict: What follows from the rule.
        rule: The rule; where nothing can be compared, the reason.
    """

    where: str
    paper: str
    ours: str
    verdict: Verdict
    rule: str


def judge(where: str, paper: str, ours: str, holds: bool, rule: str) -> Claim:
    """A claim that a rule decides.

    Example:
        >>> judge("figure 1", "faster", "2× as fast", 2 > 1, "above 1×").verdict.value
        'reproduced'
    """
    return Claim(where, paper, ours, Verdict.REPRODUCED if holds else Verdict.NOT_REPRODUCED, rule)


def cannot(where: str, paper: str, ours: str, reason: str) -> Claim:
    """A claim that nothing here can be held against."""
    return Claim(where, paper, ours, Verdict.NOT_COMPARABLE, reason)


def judge_on(machine: Machine, where: str, paper: str, ours: str, holds: bool, rule: str) -> Claim:
    """A claim that needs the cores of a machine: where it fails while others use them, who knows?

    Example:
        >>> busy = Machine(2, "Linux", "3.11", free_share=0.4)
        >>> judge_on(busy, "figure 1", "2×", "1.2×", False, "2× or more").verdict.value
        'not comparable'
    """
    if holds or machine.free_share >= ENOUGH:
        return judge(where, paper, ours, holds, rule)
    taken = 1 - machine.free_share
    reason = f"other programs had {taken:.0%} of the cores; the rule would be: {rule}"
    return cannot(where, paper, ours, reason)


def listed(values: Sequence[float], show: Callable[[float], str]) -> str:
    """Numbers in words.

    Example:
        >>> listed([1, 2.5], "{:.1f}×".format)
        '1.0×, 2.5×'
    """
    return ", ".join(show(value) for value in values)


@dataclass(frozen=True)
class Machine:
    """Where it was measured.

    Attributes:
        cores: Cores that this process may use.
        system: What it runs on.
        python: Version of Python.
        free_share: The part of the cores' time that other programs left, in the section of the
            measurement in which they left least.
    """

    cores: int
    system: str
    python: str
    free_share: float

    @staticmethod
    def here(free_share: float) -> Machine:
        """This one."""
        system = f"{platform.system()} {platform.machine()}"
        return Machine(cores_here(), system, platform.python_version(), free_share)


def cores_here() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))
