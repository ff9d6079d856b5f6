"""One change of plan on its way: which regions switch, and when all of them have.

Wishes that come meanwhile wait, and the newest of them wins: a change that has begun happens whole.
"""

from __future__ import annotations

from collections.abc import Callable

from anabranch.engines.local.assembly import Assembly
from anabranch.engines.local.region import Switch
from anabranch.events import Reconfiguration
from anabranch.planning.plan import Plan


class Change:
    """From one plan to another."""

    def __init__(
        self, parts: Assembly, before: Plan, after: Plan, wake: Callable[[], None]
    ) -> None:
        """Begin: every region whose plan is another one gets an epoch-switch tuple."""
        self.before, self.after = before, after
        self.held_s = 0.0  # where everything rested for it
        self._switches: dict[str, Switch] = {}
        for run in parts.sources:
            if before.source(run.name) != after.source(run.name):
                run.change(after.source(run.name))
        for region in parts.regions:
            name = region.region.name
            if before.region(name) != after.region(name):
                self._switches[name] = region.switch(after.region(name), wake)

    @property
    def done(self) -> bool:
        """Whether every region runs under the new plan."""
        return all(switch.done.is_set() for switch in self._switches.values())

    @property
    def regions(self) -> list[str]:
        """The regions that switch."""
        return list(self._switches)

    @property
    def pause_s(self) -> float:
        """How long tuples stood still: the longest that a region did."""
        return max([self.held_s, *(switch.stood_s for switch in self._switches.values())])

    def told(self, at_s: float, batch: int) -> Reconfiguration | None:
        """What to tell of it; nothing if nothing changed."""
        moved = tuple(self.before.diff(self.after))
        if not moved:
            return None
        return Reconfiguration(
            at_s,
            batch,
            self.pause_s * 1000,
            moved,
            0,
            self.before.to_json(),
            self.after.to_json(),
        )
