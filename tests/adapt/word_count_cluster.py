"""A word count on a machine whose limits are known, as a script for policies.

0.30 ms to parse a tweet, 0.28 to split it, 0.42 to count its twelve words: 1 ms of work. Readers
bring so many tweets a second; more threads than cores cost a little each. Where operators do not
keep up, tweets wait, as many as are let in.
"""

from dataclasses import dataclass, replace

from anabranch.events import Observation
from anabranch.planning.plan import Plan
from tests.adapt.flows_of_regions import line_of_regions
from tests.adapt.scripted import observation

FLOW = line_of_regions("parse", "split", "count")
START = Plan.sequential(FLOW)
SOURCE = "parse.input"
COSTS_MS = {"parse": 0.30, "split": 0.28, "count": 0.42}


@dataclass
class Cluster:
    """What happens each second.

    Attributes:
        cores: Cores that share the work.
        per_reader: Tweets a second that one reader brings.
        penalty: Part of the cores' speed that each thread too many costs.
        offered: Tweets a second that come; None for as many as can be read.
        slower: By how much everything costs more.
        waiting_ms: Latency where too many tweets are under way; None for what they take.
    """

    cores: float = 12.0
    per_reader: float = 4000.0
    penalty: float = 0.02
    offered: float | None = None
    slower: float = 1.0
    waiting_ms: float | None = None
    backlog: float = 0.0

    def rate(self, plan: Plan) -> float:
        """Tweets a second that operators can handle under a plan."""
        able = [plan.region(n).replicas * 1e3 / c for n, c in COSTS_MS.items()]
        threads = sum(plan.region(n).replicas for n in COSTS_MS)
        speed = self.cores * (1 - self.penalty * max(0.0, threads - self.cores))
        return min(*able, speed * 1e3 / sum(COSTS_MS.values())) / self.slower

    def second(self, plan: Plan, second: int) -> Observation:
        """What is observed in a second under a plan."""
        able, source = self.rate(plan), plan.source(SOURCE)
        read = source.replicas * self.per_reader
        if self.offered is not None:
            read = min(read, self.offered + self.backlog)
        wobble = 1 + 0.004 * ((second * 7) % 5 - 2)
        rate = min(able * wobble, read if self.offered is not None else read * wobble)
        if self.offered is not None:
            self.backlog = max(0.0, self.backlog + self.offered - rate)
        late = read > able
        under_way = source.in_flight_limit or 20_000
        latency = (self.waiting_ms or under_way / rate * 1e3) if late else 50.0
        shown = self._seen(plan, second, rate, latency)
        waits = {
            n: 9.0 if late and able >= r * 0.999 else 0.0 for n, r in self._rates(plan).items()
        }
        regions = tuple(replace(r, queue_jumbos=waits.get(r.region, 0.0)) for r in shown.regions)
        return replace(shown, regions=regions)

    def _rates(self, plan: Plan) -> dict[str, float]:
        return {n: plan.region(n).replicas * 1e3 / c / self.slower for n, c in COSTS_MS.items()}

    def _seen(self, plan: Plan, second: int, rate: float, latency_ms: float) -> Observation:
        count = int(rate)
        each = {"parse": (count, count), "split": (count, 12 * count), "count": (12 * count,) * 2}
        steps = {n: (*each[n], count * c * self.slower / 1e3) for n, c in COSTS_MS.items()}
        busy = {n: [min(1.0, steps[n][2] / plan.region(n).replicas)] for n in COSTS_MS}
        return observation(
            plan,
            at_s=float(second),
            rate=rate,
            busy=busy,
            steps=steps,
            backlog=None if self.offered is None else int(self.backlog),
            latency_ms=latency_ms,
        )


def replicas(plan: Plan) -> tuple[int, ...]:
    """Readers, parsers, splitters, counters."""
    return (plan.source(SOURCE).replicas, *(plan.region(n).replicas for n in COSTS_MS))
