"""What an engine tells while a flow runs: typed values, read by policies, views and tests.

Names carry units: `_s` seconds, `_ms` milliseconds, `_per_s` a rate, `_share` a part of 1.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


@dataclass(frozen=True)
class SkippedRow:
    """A row that a step set aside, and why.

    Attributes:
        source: The source that it stems from; empty where it stems from none, as at a timer.
        part: The part of the source, such as the path of a file; empty where it is not known.
        row: Its number within the part, from 1 on: the line in a file of text.
        why: What is wrong with it.
        text: What it holds, shortened.
    """

    source: str
    part: str
    row: int
    why: str
    text: str


@dataclass(frozen=True)
class StepMetrics:
    """One step, over all replicas.

    Attributes:
        step: Its name.
        rows_in: Tuples that came in.
        rows_out: Tuples that went out, over all ports.
        busy_s: Time that processes or threads were taken up by it.
        keys: Keys that it holds; None without state by key. When its input ends it forgets them
            all, so what saw the end tells those that it held until then.
        skipped: Tuples dropped because its code raised, since the start.
        late: Tuples that a clock set aside, since the start.
        waited_s: Part of `busy_s` that it took no processor: it waited for something. At least; 0
            where nobody can tell.
        behind: Those of the late tuples that were further behind than `lateness`.
        most_behind: How far the furthest of them was behind, in the unit of its time; microseconds
            for timestamps.
        ahead: Those of the late tuples that were further ahead than `ahead`.
        first_skipped: The first row in the order of its source that it skipped in this run so far;
            None without such a row.
    """

    step: str
    rows_in: int
    rows_out: int
    busy_s: float
    keys: int | None = None
    skipped: int = 0
    late: int = 0
    waited_s: float = 0.0
    behind: int = 0
    most_behind: int = 0
    ahead: int = 0
    first_skipped: SkippedRow | None = None

    @property
    def selectivity(self) -> float | None:
        """Tuples out per tuple in; None before any came."""
        return self.rows_out / self.rows_in if self.rows_in else None

    @property
    def cost_us(self) -> float | None:
        """Microseconds per tuple in; None before any came."""
        return self.busy_s * 1e6 / self.rows_in if self.rows_in else None


@dataclass(frozen=True)
class PipelineMetrics:
    """One pipeline, averaged over its replicas.

    Attributes:
        region: Its region.
        steps: Its steps.
        busy_share: Part of the time that it worked.
        overhead_share: Part of the time that it worked in none of its steps.
        waiting_share: Part of the time that a step of it waited, and took no processor.
    """

    region: str
    steps: tuple[str, ...]
    busy_share: float
    overhead_share: float
    waiting_share: float = 0.0


@dataclass(frozen=True)
class HotKey:
    """The key that comes most often: in words, and its part of a region's tuples, estimated."""

    key: str
    share: float


@dataclass(frozen=True)
class RegionMetrics:
    """One region.

    Attributes:
        region: Its name.
        replicas: How many there are.
        rows_per_s: Tuples taken in per second.
        loaded_bytes: Bytes of state loaded.
        queue_jumbos: Jumbo tuples that wait in front of it, on average.
        queue_rows: Tuples in them.
        replica_busy: Part of the time that each replica worked, in its busiest pipeline.
        bucket_rows: Tuples that came, by bucket; empty where tuples are not dealt out by bucket,
            as with one replica.
        hottest_key: The key that comes most often there; None if none stands out.
        replica_in_steps: As `replica_busy`, but in steps alone, where a replica has much to do
            that is the same for all, whatever comes to it; empty where it has not.
    """

    region: str
    replicas: int
    rows_per_s: float
    loaded_bytes: int = 0
    queue_jumbos: float = 0.0
    queue_rows: float = 0.0
    replica_busy: tuple[float, ...] = ()
    bucket_rows: tuple[int, ...] = ()
    hottest_key: HotKey | None = None
    replica_in_steps: tuple[float, ...] = ()

    @property
    def replica_work(self) -> tuple[float, ...]:
        """What tells replicas apart by what came to them, as parts of the time."""
        return self.replica_in_steps or self.replica_busy


@dataclass(frozen=True)
class SourceMetrics:
    """One source.

    Attributes:
        source: Its name.
        rows: Tuples read.
        rate_per_s: Their rate.
        backlog_rows: How many are known to wait; None when nobody can say.
        lag_ms: How long the tuples read last had waited where they come from, in a queue that
            knows when they came; None elsewhere.
        busy_share: Part of the time that its readers worked, on average; None where nobody saw it.
    """

    source: str
    rows: int
    rate_per_s: float
    backlog_rows: int | None = None
    lag_ms: float | None = None
    busy_share: float | None = None


@dataclass(frozen=True)
class BatchTimes:
    """Where the time of a batch went, in seconds; parallel tasks count with the slowest.

    Attributes:
        total_s: From the decision what to read to the results being visible.
        fixed_s: In no task: planning, scheduling, our log and manifest.
        scan_s: Reading sources.
        shuffle_s: Taking rows over from the stage before.
        compute_s: In operators, and getting tuples to and from them.
        state_s: Loading and saving state.
        sink_s: Writing results.
        commit_s: On top of the total: what Spark spent on its own log and commit, in its newest
            progress, which is that of the batch before.
        discarded_jobs: How many jobs of the batch do not count, since clocks had judged rows before
            it was known what came before these; their time is part of `fixed_s`.
    """

    total_s: float
    fixed_s: float
    scan_s: float
    shuffle_s: float
    compute_s: float
    state_s: float
    sink_s: float
    commit_s: float = 0.0
    discarded_jobs: int = 0


@dataclass(frozen=True)
class Observation:
    """What an engine saw in one batch, or between two observations.

    Attributes:
        at_s: Seconds since the start of the run.
        batch: Number of the batch.
        rows_in: Tuples read.
        rows_out: Tuples written.
        times: Where the time went.
        latency_p50_ms: From reading a tuple to its result being visible, half of the tuples.
        latency_p99_ms: The same, all but one in a hundred.
        steps: By step.
        pipelines: By pipeline.
        regions: By region.
        sources: By source.
        latency_p999_ms: The same, all but one in a thousand; None where an engine works in batches.
        memory_bytes: Memory of all processes, with shared pages counted once; None where nobody
            knows.
    """

    at_s: float
    batch: int
    rows_in: int
    rows_out: int
    times: BatchTimes
    latency_p50_ms: float
    latency_p99_ms: float
    steps: tuple[StepMetrics, ...] = ()
    pipelines: tuple[PipelineMetrics, ...] = ()
    regions: tuple[RegionMetrics, ...] = ()
    sources: tuple[SourceMetrics, ...] = ()
    latency_p999_ms: float | None = None
    memory_bytes: int | None = None

    @property
    def in_batches(self) -> bool:
        """Whether the engine works in batches; then one tuple in a thousand has no latency."""
        return self.latency_p999_ms is None

    @property
    def is_empty(self) -> bool:
        """Whether it is of a batch that neither read nor wrote anything."""
        return self.in_batches and not self.rows_in and not self.rows_out

    @property
    def lag_ms(self) -> float:
        """How long the tuples read last had waited to be read, at the source that lags most.

        From a tuple's arrival in its queue to its result takes this and the latency.
        """
        return max((s.lag_ms for s in self.sources if s.lag_ms is not None), default=0.0)

    @property
    def backlog_rows(self) -> int | None:
        """Tuples that wait to be read, of all sources; None unless all of them know."""
        known = [s.backlog_rows for s in self.sources if s.backlog_rows is not None]
        return sum(known) if known and len(known) == len(self.sources) else None

    def step(self, name: str) -> StepMetrics:
        """The metrics of one step."""
        return next(each for each in self.steps if each.step == name)


@dataclass(frozen=True)
class StepShape:
    """A step of a flow, as much as is needed to draw and explain it.

    Attributes:
        step: Its name.
        role: "source", "operator" or "sink".
        state: What an operator remembers: "stateless", "partitioned", "stateful", "shared"; ""
            for the others.
        key: Columns that its state is kept by.
        what: What it does, by the name of the function or class, what a sink guarantees, and the
            columns that leave it.
        region: The region that it belongs to; "" where nobody has looked.
        serial: Why all rows of its region pass one place, in words that follow the region's name;
            "" where replicas share them.
    """

    step: str
    role: str
    state: str = ""
    key: tuple[str, ...] = ()
    what: str = ""
    region: str = ""
    serial: str = ""


@dataclass(frozen=True)
class StreamShape:
    """A stream from a port of one step into another."""

    producer: str
    port: str
    consumer: str


@dataclass(frozen=True)
class Shape:
    """The graph of a flow, without anything that runs: steps upstream first, streams."""

    steps: tuple[StepShape, ...] = ()
    streams: tuple[StreamShape, ...] = ()


@dataclass(frozen=True)
class RunStarted:
    """A run begins, or goes on after `version`; the plan as JSON, and what the flow looks like."""

    flow: str
    engine: str
    plan: str = field(repr=False)
    version: int
    shape: Shape = field(default=Shape(), repr=False)


@dataclass(frozen=True)
class Observed:
    """A batch is done."""

    observation: Observation


@dataclass(frozen=True)
class Reconfiguration:
    """A plan is in force.

    Attributes:
        at_s: Seconds since the start of the run.
        batch: The first batch under it.
        pause_ms: How long tuples stood still for it.
        moved: What changed, in words.
        loaded_bytes: Bytes of state that new owners had to load.
        before: The plan before, as JSON.
        after: The plan in force, as JSON.
    """

    at_s: float
    batch: int
    pause_ms: float
    moved: tuple[str, ...]
    loaded_bytes: int
    before: str = field(repr=False)
    after: str = field(repr=False)


@dataclass(frozen=True)
class RunEnded:
    """A run is over.

    Attributes:
        at_s: Seconds since the start of the run.
        rows_in: Tuples read.
        rows_out: Tuples written.
        ended: Whether all sources had come to their end; else it was stopped, or failed.
        error: What it failed with; "" if it did not.
    """

    at_s: float
    rows_in: int
    rows_out: int
    ended: bool
    error: str = ""


class Kind(StrEnum):
    """What became of a decision."""

    TRIED = "tried"
    APPLIED = "applied"  # not to be judged
    KEPT = "kept"
    REVERTED = "reverted"
    REFUSED = "refused"  # by a guard
    FAILED = "failed"  # the plan stays as it was
    NOTED = "noted"


@dataclass(frozen=True)
class Decision:
    """What a policy did, or could not do, in plain words; all of a run's are its journal.

    Attributes:
        at_s: Seconds since the start of the run.
        policy: Who decided.
        outcome: What became of it.
        why: What was seen, what was expected, what came of it.
    """

    at_s: float
    policy: str
    outcome: Kind
    why: str

    def __str__(self) -> str:
        """One line of the journal."""
        return f"{self.at_s:7.1f} s  {self.policy}: {self.why}, {self.outcome}"


Event = RunStarted | Observed | Reconfiguration | Decision | RunEnded
