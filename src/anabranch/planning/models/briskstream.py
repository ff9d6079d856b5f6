"""Rates of replicas that are placed on the sockets of a machine.

BriskStream (Zhang, He, Zhou, He), §3: the time for a tuple is executing plus fetching, fetching
depends on how far the producer is (eq. 1, 2); demands for CPU, memory and links must be met
(eq. 3 to 5); fused operators fetch once (eq. 6).

Readings and deviations:
- Rates are those of the print: what an over-supplied replica cannot handle waits and slows nobody
  else down. Where streams fork, a plan could gain by starving a branch that adds little to R, and
  its queue would grow for ever. So `bounded`, which planners maximize, counts sinks at the rate
  that every unit keeps up with; on a chain that is R itself.
- The throughput R is the sum over sinks of the tuples that they handle: a sink's own selectivity
  says nothing, as nothing comes out of it.
- A stream is dealt out evenly over replicas: skewed keys are beyond this model. So are thread
  switches and ordering, which Pipelined Fission's model has, and networks between nodes.
- The print leaves open what a plan gets that violates constraints. In `bounded`, everything is
  slowed down until the worst overload is gone, the analogue of Pipelined Fission's eq. 13.
- Without an input rate, sources read as fast as they can, as in the paper's experiments.
- Without a placement (left to the operating system), replicas count as spread evenly over sockets:
  fetching then takes the mean over all pairs of sockets, the own one included.
"""

from __future__ import annotations

from typing import NamedTuple

from anabranch.planning.models.placed_rates import Counts, RateModel


class PlacedRate(NamedTuple):
    """What the model says of a placement.

    Attributes:
        bounded: Tuples per nanosecond that sinks handle, at the rate that every unit keeps up with
            and slowed down by the worst overload.
        utilization: Cores at work at that rate.
    """

    bounded: float
    utilization: float


def placed_rate(model: RateModel, counts: Counts) -> PlacedRate:
    """Return the rate of one placement: replicas by unit and socket.

    Example:
        >>> import numpy as np
        >>> from anabranch.planning.machine import Machine
        >>> from anabranch.planning.models.placed_units import workload_of
        >>> from anabranch.planning.profile import OperatorProfile, chain
        >>> profile = chain([OperatorProfile("read", 100.0), OperatorProfile("count", 200.0)])
        >>> machine = Machine.of_cores(4)
        >>> model = RateModel(workload_of(profile, machine), machine)
        >>> bounded, utilization = placed_rate(model, np.array([[1.0], [2.0]]))
        >>> bounded, round(utilization, 6)
        (0.01, 3.0)
    """
    batch = model.rates(counts[None])
    bounded = float(batch.bounded[0])
    work_ns = 0.0
    for number, visits in enumerate(model.workload.visits):
        processed = batch.processed[0, number]
        execute_ns, handled = model.workload.units[number].execute_ns, float(processed.sum())
        spent_ns = float((processed * batch.handling_ns[0, number]).sum())
        fetch_ns = max(0.0, spent_ns / handled - execute_ns) if handled else 0.0
        work_ns += visits * (execute_ns + fetch_ns)
    return PlacedRate(bounded, bounded / model.workload.sink_visits * work_ns)
