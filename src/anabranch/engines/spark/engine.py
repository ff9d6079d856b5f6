"""The Spark engine: Structured Streaming drives it, one micro-batch after another.

Spark keeps the number of the batch and the offsets of streaming DataFrames in its own checkpoint;
`Batches` does the rest. A plan change is the next batch under another plan.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from shutil import rmtree
from tempfile import mkdtemp
from typing import NoReturn

from pyspark import Broadcast
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from anabranch.engines.checkpoint.checkpoint import Checkpoint, spark_folder
from anabranch.engines.checkpoint.storage import absolute, with_scheme
from anabranch.engines.engine import CHANGES, Options
from anabranch.engines.spark.batches import Batches, Done
from anabranch.engines.spark.dataframes import dataframe_sources, require_one_order, stream
from anabranch.engines.spark.failures import first_line, of_java
from anabranch.engines.spark.job import run_job
from anabranch.engines.spark.layout import with_ranges
from anabranch.engines.spark.model import USUAL, SparkModel
from anabranch.engines.spark.observe import Skipped, observation_of, percentile, reconfiguration_of
from anabranch.engines.spark.session import session, tune, use
from anabranch.engines.spark.sinks import spark_sinks
from anabranch.engines.spark.state_loader import remove_cache
from anabranch.engines.spark.task_inputs import Program
from anabranch.engines.spark.workers import require_workers
from anabranch.errors import AnabranchError, EngineError, StateError, Subject, in_words
from anabranch.events import Event, Observed, Reconfiguration, RunEnded, RunStarted
from anabranch.flow import Flow
from anabranch.planning.models.model import Model
from anabranch.planning.models.spark import Slots
from anabranch.planning.plan import Plan
from anabranch.planning.regions import shape_of
from anabranch.planning.starting import readers_side_by_side

IDLE_S = 0.02
STOP_S = 10.0
EMPTY_S = 0.2


class SparkEngine:
    """One run of one flow on Spark; see `Engine`."""

    name = "spark"

    def __init__(self, flow: Flow, plan: Plan | None, options: Options) -> None:
        """Remember what to run; `start` starts."""
        self._flow, self._options = flow, options
        self._skipped = Skipped(flow)
        self._given = plan
        self._plan = self._wish = plan or Plan.sequential(flow)
        self._over = threading.Event()
        self._stop_wish, self._left = threading.Event(), threading.Event()
        self._own_threads: set[int] = set()
        self._batches_done = 0
        self._tuned = self._idle = self._waits = self._ending = self._start_failed = False
        self._temporary: str | None = None
        self._error: BaseException | None = None
        self._changes: deque[Reconfiguration] = deque(maxlen=CHANGES)
        self._latencies: deque[tuple[float, int]] = deque(maxlen=1000)
        self._latency_ms = 0.0
        self._rows_in = self._rows_out = 0
        self._first_batch: float | None = None
        self._worked_s = 0.0
        self._query: StreamingQuery | None = None

    # What users see

    @property
    def plan(self) -> Plan:
        """The plan in force."""
        return self._plan

    @property
    def rows(self) -> tuple[int, int]:
        """Tuples read and written by this run."""
        return self._rows_in, self._rows_out

    @property
    def seconds(self) -> float:
        """From the start of the first batch to the end of the newest."""
        return self._worked_s

    @property
    def query(self) -> StreamingQuery | None:
        """Spark's own handle, for its progress and its user interface."""
        return self._query

    @property
    def cores(self) -> int:
        """Tasks that Spark runs at once."""
        return int(self._spark.sparkContext.defaultParallelism)

    def model(self) -> Model | None:
        """What plans promise in micro-batches."""
        machine = self._options.machine
        costs = machine.spark if machine is not None else None
        return SparkModel(self._flow, Slots(self.cores), costs or USUAL)

    def reconfigurations(self) -> list[Reconfiguration]:
        """The newest plan changes."""
        return list(self._changes)

    def latency_ms(self, share: float) -> float:
        """The latency that a share of the tuples did not exceed."""
        return percentile(self._latencies, share)

    def start(self, tell: Callable[[Event], None]) -> None:
        """Begin, or go on from the checkpoint."""
        try:
            self._start(tell)
        except BaseException as error:
            self._start_failed = True
            self._remove_temporary()
            told = of_java(error, self._flow.name)
            if told is error:
                raise
            raise told from error

    def _start(self, tell: Callable[[Event], None]) -> None:
        self._tell, options = tell, self._options
        if options.session is not None:
            self._spark = use(options.session)
        else:
            self._spark = session(options.master, app=self._flow.name, conf=options.conf)
        require_workers(self._spark.sparkContext)
        self._temporary = mkdtemp(prefix="anabranch-") if options.checkpoint is None else None
        location = absolute(options.checkpoint or self._temporary or "")
        self._program = Program(self._flow, location, location, self.cores)
        packed = self._program.packed()
        self._pushed = bool(dataframe_sources(self._program))
        require_one_order(self._program)
        checkpoint = self._checkpoint = Checkpoint.open(location, self._flow)
        last = checkpoint.last
        if self._given is None:
            cores = self._spark.sparkContext.defaultParallelism
            known = None if last is None else Plan.from_json(last.plan)
            start = with_ranges(self._flow, readers_side_by_side(self._flow, cores))
            self._plan = self._wish = known or start
        self._sinks = spark_sinks(self._program, checkpoint.storage, self._spark)
        try:
            self._begin(location, packed)
        except BaseException:
            with suppress(Exception):  # why it did not start is the news
                self._sinks.close()
            raise

    def _begin(self, location: str, packed: bytes) -> None:
        """Open the sinks, and let Spark work."""
        checkpoint = self._checkpoint
        self._batches = Batches(self._program, checkpoint, self._sinks, self._options.rows)
        self._broadcast: Broadcast[bytes] = self._spark.sparkContext.broadcast(packed)
        self._started = time.monotonic()
        version = -1 if checkpoint.last is None else checkpoint.last.version
        shape = shape_of(self._flow)
        self._tell(RunStarted(self._flow.name, self.name, self._plan.to_json(), version, shape))
        if self._batches.ended():
            self._finish()
            return
        logging.getLogger("py4j.clientserver").addFilter(_is_no_stop)
        folder = spark_folder(self._batches.batch_zero)
        writer = stream(self._spark, self._program).writeStream
        if self._flow.name not in [query.name for query in self._spark.streams.active]:
            writer = writer.queryName(self._flow.name)
        self._query = (
            writer.option("checkpointLocation", f"{with_scheme(location)}/{folder}")
            .foreachBatch(self._on_batch)
            .start()
        )
        threading.Thread(target=self._watch, args=(self._query,), daemon=True).start()

    def caught_up(self) -> bool | None:
        """Whether it waits for rows and none have come; else a batch that read nothing tells it."""
        waits = self._waits
        behind = self._batches.intake.behind(self._elapsed()) if waits else True
        return True if waits and not behind else None

    def reconfigure(self, plan: Plan) -> None:
        """Request another plan: it is in force with the next micro-batch."""
        plan.validate(self._flow)
        self._wish = plan

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the end; raises what ended the run, if that was an error."""
        ended = self._over.wait(timeout_s)
        if ended and self._error is not None:
            # An error of ours says it all; the way it took through Spark's threads does not help.
            ours = isinstance(self._error, AnabranchError)
            raise self._error.with_traceback(None) if ours else self._error
        return ended

    def stop(self) -> None:
        """Stop after the micro-batch that is under way; a listener does not wait for itself."""
        self._stop_wish.set()
        if threading.get_ident() not in self._own_threads:
            self.wait()

    # Driving

    def _on_batch(self, pushed: DataFrame, batch: int) -> None:
        """What Spark calls for each micro-batch; returns if Spark may commit it."""
        version = self._batches.batch_zero + batch
        over = self._stop_wish.is_set() or self._batches.ended() or self._error is not None
        with self._own_thread():
            happened = not over and self._work_on(pushed, version)
        if not happened:
            self._leave_batch()
        elif self._batches.ended() or self._stop_wish.is_set():
            self._end_query()

    def _work_on(self, pushed: DataFrame, version: int) -> bool:
        """Run a batch; whether it has happened."""
        self._batches.intake.dry = self._pushed and _dry(self._query)
        if self._idle:  # the tick comes at once, though no DataFrame has anything new
            self._stop_wish.wait(EMPTY_S)
        spark = pushed.sparkSession
        if not self._tuned:  # each query has a session of its own
            tune(spark)
            self._tuned = True
        job = partial(run_job, spark, self._broadcast, pushed if self._pushed else None)
        try:
            while not self._stop_wish.is_set():
                # A change of the wish while a batch runs is for the next one.
                done = self._batches.next(version, self._wish, self._plan, self._elapsed(), job)
                if done is not None:
                    self._note(version, done)
                if done is not None or self._batches.happened(version):
                    return True
                self._waits = True
                time.sleep(IDLE_S)  # no source has anything due
                self._waits = False
        except BaseException as error:
            self._error = of_java(error, self._flow.name)
        return False

    def _leave_batch(self) -> NoReturn:
        """Stop the query in the middle of a batch, which Spark must not commit.

        Rows of a DataFrame that were not worked on must come again.
        """
        self._left.set()
        self._end_query()
        until = time.monotonic() + STOP_S
        while ((query := self._query) is None or query.isActive) and time.monotonic() < until:
            time.sleep(IDLE_S)
        raise _Stopped

    def _end_query(self) -> None:
        """Stop the query from outside its own thread.

        A stop interrupts that thread. While it waits for our call, Spark has committed the batch
        before and does nothing else that it would complain about.
        """
        if self._ending:
            return
        self._ending = True

        def stop() -> None:
            while (query := self._query) is None:  # the first batch may be faster than `start`
                if self._start_failed:
                    return  # there will be none
                time.sleep(IDLE_S)
            self._left.wait(STOP_S)
            query.stop()

        threading.Thread(target=stop, daemon=True).start()

    def _watch(self, query: StreamingQuery) -> None:
        """Wait for the end of the query, and tell how it ended."""
        try:
            query.awaitTermination()
        except Exception as error:  # of the query, or of Java when the session is gone
            if self._error is None and not self._left.is_set():
                self._error = EngineError(
                    Subject("flow", self._flow.name),
                    "Spark to go on with the query",
                    first_line(str(error)) or type(error).__name__,
                    "see the log of the driver; start again to go on from the checkpoint",
                )
        if self._error is None:
            # Spark stops a query without a word when another run starts the same one.
            try:
                self._checkpoint.require_owned()
            except StateError as error:
                self._error = error
        self._finish()

    def _finish(self) -> None:
        """Let go of everything, and let those who wait go on, whatever happens."""
        try:
            self._sinks.close()
            with suppress(Exception):  # of Java, when somebody has stopped the session
                self._broadcast.destroy()
            remove_cache(self._program.cache)
            self._remove_temporary()
            ended = self._batches.ended() and self._error is None
            with self._own_thread():
                self._tell(RunEnded(self._elapsed(), *self.rows, ended, in_words(self._error)))
        except Exception as error:
            self._error = self._error or error
        finally:
            self._over.set()

    @contextmanager
    def _own_thread(self) -> Iterator[None]:
        """Whoever is called from here must not wait for the end: it would not come."""
        thread = threading.get_ident()
        self._own_threads.add(thread)
        try:
            yield
        finally:
            self._own_threads.discard(thread)

    def _remove_temporary(self) -> None:
        if self._temporary is not None:
            rmtree(self._temporary, ignore_errors=True)

    def _note(self, version: int, done: Done) -> None:
        """Keep the figures of a batch, and tell them."""
        self._plan = done.plan
        self._first_batch = done.began if self._first_batch is None else self._first_batch
        self._worked_s = done.began + done.seconds - self._first_batch
        rows = sum(done.read.values())
        self._rows_in += rows
        if rows:  # a batch without rows tells nothing new of how long they take
            self._latency_ms = done.seconds * 1000
            self._latencies.append((self._latency_ms, rows))
        at_s = self._elapsed()
        seen = observation_of(
            at_s,
            version,
            done,
            self._skipped.note(done.outcome.reports),
            {name: self._batches.intake.backlog(name, at_s) for name in done.read},
            (self._latency_ms, self._latency_ms),  # results of a batch are visible at once
            _commit_s(self._query),
        )
        self._rows_out += seen.rows_out
        self._idle = self._pushed and not rows
        # A batch that is run again runs under the plan that it had; that is no change of this run.
        again = not self._batches_done and done.plan != self._wish
        if done.plan != done.before and not again:
            change = reconfiguration_of(at_s, version, done)
            self._changes.append(change)
            self._tell(change)
        self._batches_done += 1
        self._tell(Observed(seen))

    def _elapsed(self) -> float:
        return time.monotonic() - self._started


class _Stopped(Exception):
    """Leaves a batch of a query that is being stopped.

    Spark logs pages about what a batch raises, unless its text is that of a call that the stop has
    interrupted.
    """

    def __str__(self) -> str:
        call = "py4j.protocol.Py4JJavaError: An error occurred while calling"
        return f"{call} a batch: java.lang.InterruptedException"


def _is_no_stop(record: logging.LogRecord) -> bool:
    """Keep what leaves a batch of a stopped query out of the log of Py4J."""
    return record.exc_info is None or not isinstance(record.exc_info[1], _Stopped)


def _dry(query: StreamingQuery | None) -> bool:
    """Whether Spark found nothing new in any streaming DataFrame for its last micro-batch."""
    progress = None if query is None else query.lastProgress
    if progress is None:
        return False
    # The first source is the tick.
    return all(s["startOffset"] == s["endOffset"] for s in progress["sources"][1:])


def _commit_s(query: StreamingQuery | None) -> float:
    """What Spark spent beside our call, in its newest progress."""
    progress = None if query is None else query.lastProgress
    if progress is None:
        return 0.0
    spent = progress["durationMs"]
    return max(0.0, float(spent["triggerExecution"] - spent.get("addBatch", 0)) / 1000)
