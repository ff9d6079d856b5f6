"""Busy flows on the local engine, timed in their steady state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from anabranch.engines.engine import Options
from anabranch.engines.local.engine import BATCH_ROWS, LocalEngine
from anabranch.engines.measuring.calibration import REPEATS, Calibrated, calibrate
from anabranch.flow import Flow
from anabranch.planning.machine import Machine
from anabranch.planning.plan import Plan
from anabranch.planning.profile import Profile
from anabranch.planning.regions import RegionKind, regions
from anabranch.testing.busy import SOURCE, busy_flow
from anabranch.testing.replay import Replay, replaying

WARM_UP = 0.3
BATCHES_HELD = 8

SWITCH_ROWS = 1024
"""Tuples of a jumbo tuple to measure its handing over with."""


class LocalBench:
    """See `Bench` of `engines/measuring/calibration.py`.

    Args:
        batch_rows: Tuples of a jumbo tuple.
        seconds: How long each program runs.
    """

    def __init__(self, batch_rows: int = BATCH_ROWS, seconds: float = 0.4) -> None:
        self._batch_rows, self._seconds = batch_rows, seconds

    def rate_per_s(self, profile: Profile, pipelines: Sequence[int], replicas: int) -> float:
        """The rate of a region that is cut so and has so many replicas."""
        flow, source = replaying(busy_flow(profile, None), BATCHES_HELD * self._batch_rows)
        plan = Plan.sequential(flow).with_source(SOURCE, batch_rows=self._batch_rows)
        region = next(
            r for r in regions(flow) if r.kind not in (RegionKind.SOURCE, RegionKind.SINK)
        )
        plan = plan.with_replicas(region.name, replicas).with_pipelines(region.name, *pipelines)
        return steady_rate_per_s(flow, plan, source, self._seconds)


def calibrate_local(machine: Machine, batch_rows: int, repeats: int = REPEATS) -> Calibrated:
    """Overheads of the local engine, with jumbo tuples of so many rows.

    Threads hand over jumbo tuples by reference, so a switch is paid per jumbo tuple. It is measured
    with small ones, where it shows, and shared out over the larger ones.
    """
    benches = LocalBench(batch_rows), LocalBench(SWITCH_ROWS)
    found = calibrate(benches[0], machine, repeats, benches[1])
    low, median, high = (SWITCH_ROWS * each / batch_rows for each in found.thread_switch)
    return replace(found, thread_switch=(low, median, high))


def steady_rate_per_s(flow: Flow, plan: Plan, source: Replay, seconds: float) -> float:
    """Tuples a second that a flow takes in from a source that replays, once it is under way."""
    engine = LocalEngine(flow, plan, Options())
    source.notes.clear()
    engine.start(lambda event: None)
    engine.wait(seconds)
    rate = source.rate_per_s(WARM_UP)
    engine.stop()
    return rate
