"""The Spark engine: Structured Streaming drives it, one micro-batch after another.

Batch n: log the plan and what is read → one job, whose tasks write state and sink files under
names of their own → the manifest says which of them count → they become visible → Spark commits.
A plan change is the next batch under another plan. A batch that has its manifest already is only
made visible again.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from tempfile import mkdtemp
from typing import Any
from uuid import uuid4

from pyspark import Broadcast
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from anabranch.engines.checkpoint.checkpoint import Checkpoint
from anabranch.engines.checkpoint.manifest import BatchLog, Manifest
from anabranch.engines.spark.commit import next_manifest
from anabranch.engines.spark.dataframes import dataframe_sources, stream
from anabranch.engines.spark.intake import Intake, Share, shares_from_json, shares_to_json
from anabranch.engines.spark.job import CONF, Outcome, run_job
from anabranch.engines.spark.keeper import sweep
from anabranch.engines.spark.observe import (
    batch_times,
    percentile,
    pipeline_metrics,
    region_metrics,
    source_metrics,
    step_metrics,
)
from anabranch.engines.spark.program import Batch, Program, RegionState
from anabranch.engines.spark.session import session, use
from anabranch.engines.spark.sinks import Sinks
from anabranch.errors import EngineError
from anabranch.events import (
    Event,
    Observation,
    Observed,
    Reconfiguration,
    RunEnded,
    RunStarted,
)
from anabranch.flow import Flow
from anabranch.plan.plan import Plan

IDLE_S = 0.02
CLEAN_EVERY = 8


@dataclass(frozen=True)
class SparkSettings:
    """What a user may say about a run on Spark.

    Attributes:
        master: Master URL; `local[*,4]` when left out and nothing else is set.
        session: A session to use instead of starting one.
        checkpoint: Where state and progress are kept; a directory that goes with the run when left
            out.
        conf: Further settings of a session that is started.
        rows: Read no more of each source than this; the stream ends there.
    """

    master: str | None = None
    session: SparkSession | None = None
    checkpoint: str | os.PathLike[str] | None = None
    conf: Mapping[str, str] | None = None
    rows: int | None = None


class SparkEngine:
    """One run of one flow on Spark; see `Engine`."""

    name = "spark"

    def __init__(
        self,
        flow: Flow,
        plan: Plan,
        settings: SparkSettings,
        listener: Callable[[Event], None] = lambda event: None,
    ) -> None:
        """Remember what to run; `start` starts."""
        plan.validate(flow)
        self._flow, self._settings, self._listener = flow, settings, listener
        self._plan, self._wish = plan, plan
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._stopping = False
        self._error: BaseException | None = None
        self._observation: Observation | None = None
        self._changes: list[Reconfiguration] = []
        self._latencies: list[tuple[float, int]] = []
        self._rows_out = 0
        self._query: StreamingQuery | None = None

    # What users see

    @property
    def plan(self) -> Plan:
        """The plan in force."""
        return self._plan

    def start(self) -> None:
        """Begin, or go on from the checkpoint."""
        given = self._settings
        if given.session is not None:
            self._spark = use(given.session)
        else:
            self._spark = session(given.master, app=self._flow.name, conf=given.conf)
        where = given.checkpoint or mkdtemp(prefix="anabranch-")
        location = os.fspath(where)
        if "://" not in location:
            location = os.path.abspath(location)
        self._checkpoint = Checkpoint.open(location, self._flow)
        self._program = Program(self._flow, location, uuid4().hex)
        self._intake = Intake(self._program, given.rows)
        self._sinks = Sinks(self._program, self._spark)
        self._pushed = bool(dataframe_sources(self._program))
        last = self._checkpoint.last
        if last is not None:
            self._intake.restore(last.offsets)
        self._broadcast: Broadcast[bytes] = self._spark.sparkContext.broadcast(
            self._program.packed()
        )
        self._sinks.open(last)
        self._started = time.monotonic()
        version = -1 if last is None else last.version
        self._listener(RunStarted(self._flow.name, self.name, self._plan.to_json(), version))
        if last is not None and last.ended:
            self._finish(ended=True)
            return
        writer = stream(self._spark, self._program).writeStream.queryName(self._flow.name)
        self._query = (
            writer.option("checkpointLocation", f"{location}/spark")
            .foreachBatch(self._on_batch)
            .start()
        )
        threading.Thread(target=self._watch, daemon=True).start()

    def apply(self, plan: Plan) -> None:
        """Wish for another plan: it is in force with the next micro-batch."""
        plan.validate(self._flow)
        with self._lock:
            self._wish = plan

    def observe(self) -> Observation | None:
        """The newest micro-batch."""
        return self._observation

    def reconfigurations(self) -> list[Reconfiguration]:
        """The plan changes so far."""
        return list(self._changes)

    @property
    def rows(self) -> tuple[int, int]:
        """Tuples read and written by this run."""
        return self._intake.rows, self._rows_out

    def latency_ms(self, share: float) -> float:
        """The latency that a share of the tuples did not exceed."""
        return percentile(self._latencies, share)

    @property
    def query(self) -> StreamingQuery | None:
        """Spark's own handle, for its progress and its user interface."""
        return self._query

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the end; raises what ended the run, if that was an error."""
        ended = self._over.wait(timeout_s)
        if ended and self._error is not None:
            raise self._error
        return ended

    def stop(self) -> None:
        """Stop after the micro-batch that is under way."""
        self._stopping = True
        self._over.wait()

    # Driving

    def _watch(self) -> None:
        """End the query when its work is done, and tell how it ended."""
        query = self._query
        if query is None:
            return
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            if self._error is None and not self._stopping:
                self._error = EngineError(
                    self._flow.name,
                    "Spark to go on with the query",
                    str(error).splitlines()[0],
                    "see the log of the driver; start again to go on from the checkpoint",
                )
        self._finish(ended=self._intake.over and self._error is None)

    def _finish(self, ended: bool) -> None:
        self._sinks.close()
        self._broadcast.destroy()
        sweep(self._program.lot, ())
        self._listener(RunEnded(self._elapsed(), *self.rows, ended))
        self._over.set()

    def _on_batch(self, pushed: DataFrame, version: int) -> None:
        """What Spark calls for each micro-batch."""
        try:
            self._batch(pushed, version)
        except BaseException as error:
            self._error = error
            self._end_query()
            raise
        if self._intake.over or self._stopping:
            self._end_query()

    def _end_query(self) -> None:
        """Stop the query from outside its own thread: it waits for the call that is under way."""
        query = self._query
        while query is None:  # the first batch may come before `start` has its handle
            time.sleep(IDLE_S)
            query = self._query
        threading.Thread(target=query.stop, daemon=True).start()

    def _batch(self, pushed: DataFrame, version: int) -> None:
        began = time.monotonic()
        done = self._checkpoint.manifest(version)
        if done is not None:
            self._sinks.commit(done)
            return
        decided = self._decided(version)
        if decided is None:
            return
        plan, shares = decided
        before, self._plan = self._plan, plan
        began = max(began, self._decided_at)
        last = self._checkpoint.last
        batch = self._described(version, plan, shares, last)
        layout = self._program.layout(plan)
        spark = pushed.sparkSession
        for key, value in CONF.items():
            spark.conf.set(key, value)
        outcome = run_job(spark, self._broadcast, layout, batch, pushed if self._pushed else None)
        read = self._intake.advance(shares, outcome.reports)
        manifest = next_manifest(
            last, batch, outcome, self._intake, self._sinks, self._checkpoint.token
        )
        self._sinks.write(outcome.rows)
        self._checkpoint.publish(manifest)
        self._sinks.commit(manifest)
        self._tell(version, before, outcome, read, manifest, began)
        if version % CLEAN_EVERY == 0:
            self._checkpoint.clean()
        sweep(self._program.lot, [name for parts in manifest.latest.values() for name, _ in parts])

    def _decided(self, version: int) -> tuple[Plan, dict[str, Share]] | None:
        """The plan and intake of a batch: as logged, or decided now; None when it is to stop."""
        log = self._checkpoint.log(version)
        if log is not None:
            self._decided_at = time.monotonic()
            return Plan.from_json(log.plan), shares_from_json(log.intake)
        while True:
            with self._lock:
                plan = self._wish
            shares = None
            if not self._stopping:
                shares = self._intake.decide(plan, self._elapsed())
            if shares is not None:
                break
            if self._stopping:
                if self._pushed:  # Spark must not believe that these rows were worked on
                    raise EngineError("stop", "a batch", "a stop", "start again to go on")
                return None
            time.sleep(IDLE_S)
        self._decided_at = time.monotonic()
        self._checkpoint.write_log(
            BatchLog(version, self._checkpoint.token, plan.to_json(), shares_to_json(shares))
        )
        return plan, shares

    def _described(
        self, version: int, plan: Plan, shares: dict[str, Share], last: Manifest | None
    ) -> Batch:
        state = {}
        if last is not None:
            for region in self._program.regions:
                files = tuple(f for f in last.state if f.region == region)
                state[region] = RegionState(tuple(last.latest.get(region, ())), files)
        return Batch(
            version,
            self._checkpoint.token,
            plan,
            {name: share.slices for name, share in shares.items()},
            self._intake.cursors(),
            frozenset(name for name, share in shares.items() if share.over),
            {},
            state,
        )

    # Telling

    def _tell(
        self,
        version: int,
        before: Plan,
        outcome: Outcome,
        read: dict[str, int],
        manifest: Manifest,
        began: float,
    ) -> None:
        total_s = time.monotonic() - began
        plan, reports = self._plan, outcome.reports
        rows_in = sum(read.values())
        written = sum(sink["rows"] for report in reports for sink in report["sinks"])
        self._rows_out += written
        self._latencies.append((total_s * 1000, rows_in))
        steps = step_metrics(reports, manifest.counters)
        at_s = self._elapsed()
        observation = Observation(
            at_s,
            version,
            rows_in,
            written,
            batch_times(self._program.layout(plan), reports, total_s),
            self.latency_ms(0.5),
            self.latency_ms(0.99),
            steps,
            pipeline_metrics(plan, steps, reports, total_s),
            region_metrics(plan, steps, reports, total_s),
            source_metrics(read, {n: self._intake.backlog(n, at_s) for n in read}, total_s),
        )
        if plan != before:
            self._change(version, before, plan, reports)
        self._observation = observation
        self._listener(Observed(observation))

    def _change(
        self, version: int, before: Plan, plan: Plan, reports: list[dict[str, Any]]
    ) -> None:
        loading = max((r["seconds"].get("load", 0.0) for r in reports), default=0.0)
        change = Reconfiguration(
            self._elapsed(),
            version,
            loading * 1000,
            tuple(before.diff(plan)),
            sum(r["bytes"].get("state loaded", 0) for r in reports),
            before.to_json(),
            plan.to_json(),
        )
        self._changes.append(change)
        self._listener(change)

    def _elapsed(self) -> float:
        return time.monotonic() - self._started
