"""Places: the sockets of this machine, and how a process is kept on one (BriskStream §5).

Memory of another socket is slower to reach, so a plan may say where a replica sits. With one socket
there is nothing to choose.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from anabranch.errors import PlanError, Subject
from anabranch.planning.plan import Plan

CPUS = Path("/sys/devices/system/cpu")

Sockets = dict[str, frozenset[int]]


def usable_cpus() -> set[int]:
    """The processors that this process may use; all of them where the system does not say."""
    if hasattr(os, "sched_getaffinity"):
        return set(os.sched_getaffinity(0))
    return set(range(os.cpu_count() or 1))


def cpu_sockets(cpus: Path = CPUS) -> Sockets:
    """The sockets that this process may use, by name, with their processors."""
    allowed = usable_cpus()
    found: dict[str, set[int]] = {}
    for cpu in sorted(allowed):
        package = cpus / f"cpu{cpu}" / "topology" / "physical_package_id"
        number = package.read_text().strip() if package.exists() else "0"
        found.setdefault(f"socket{number}", set()).add(cpu)
    return {name: frozenset(members) for name, members in sorted(found.items())}


def require_sockets(plan: Plan, known: Collection[str]) -> None:
    """Refuse a plan that names places which do not exist."""
    for region in plan.regions:
        for place in region.placement:
            if place not in known:
                raise PlanError(
                    Subject("region", region.region),
                    f"places among {sorted(known)}",
                    repr(place),
                    "name a socket of this machine, or leave the placement out",
                )


class Pins:
    """Keeps processes where a plan places their units."""

    def __init__(self, known: Sockets) -> None:
        """For the sockets of a machine."""
        self._places = known
        self._anywhere = frozenset(cpu for cpus in known.values() for cpu in cpus)

    def pin(self, place: str | None) -> None:
        """Keep the calling process on a place; None lets it go anywhere again."""
        if len(self._places) > 1 and hasattr(os, "sched_setaffinity"):
            cpus = self._anywhere if place is None else self._places[place]
            os.sched_setaffinity(0, cpus)
