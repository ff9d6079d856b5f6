"""Epochs: stretches of the stream under one plan, and how the next one is asked for.

A pure state machine. A switch is requested, then begun when all readers have finished their claims,
and from then on it happens whole. Until it is begun a newer request supersedes it; after that a
newer request waits its turn (STRETCH §6.1).
"""

from __future__ import annotations

from typing import Generic, TypeVar

P = TypeVar("P")


class Epochs(Generic[P]):
    """The plan of each epoch, and the one asked for next.

    Example:
        >>> epochs = Epochs("plan a")
        >>> epochs.request("plan b")
        >>> epochs.request("plan c")
        >>> epochs.begin()
        1
        >>> (epochs.plan(0), epochs.plan(1))
        ('plan a', 'plan c')
    """

    def __init__(self, plan: P, first: int = 0) -> None:
        """Start with a plan; a restored run goes on with the number of its epoch."""
        self._plans: dict[int, P] = {first: plan}
        self._asked: P | None = None
        self.newest = first

    def request(self, plan: P) -> None:
        """Ask for another plan from the next epoch on; supersedes an earlier request."""
        self._asked = plan

    @property
    def asked(self) -> bool:
        """Whether a switch is wished for and not begun."""
        return self._asked is not None

    def begin(self) -> int:
        """Number of the epoch that begins now, under the plan last asked for (or the same one)."""
        plan = self._asked if self._asked is not None else self._plans[self.newest]
        self._asked = None
        self.newest += 1
        self._plans[self.newest] = plan
        return self.newest

    def plan(self, epoch: int) -> P:
        """The plan of an epoch that has begun."""
        return self._plans[epoch]

    def forget(self, before: int) -> None:
        """Drop plans of epochs that are over everywhere."""
        self._plans = {e: p for e, p in self._plans.items() if e >= before}
