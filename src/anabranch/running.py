"""Run a flow: validate → plan → start → observe → decide → apply. The page to read first.

`run` waits for the end and says what came of it; `start` gives a handle at once. What a flow means
is in `flow.py`, how it may run in `planning/`, who runs it in `engines/`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from anabranch.adapt.policy import Policy
from anabranch.adapt.tuner import Tuner, chosen
from anabranch.engines.checkpoint.checkpoint import Checkpoint
from anabranch.engines.engine import Options, waiting_caller
from anabranch.engines.handle import Listener, Result, Run
from anabranch.engines.registry import Simulated, engine_of
from anabranch.errors import BuildError, Subject, require_kind
from anabranch.flow import Flow
from anabranch.io.directory_sink import require_apart
from anabranch.planning.flow_problem import require_flow
from anabranch.planning.machine import Machine
from anabranch.planning.plan import Plan


def start(
    flow: Flow,
    *,
    engine: str = "spark",
    plan: Plan | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    rows: int | None = None,
    workers: int | None = None,
    master: str | None = None,
    session: object = None,
    conf: Mapping[str, str] | None = None,
    simulated: Simulated | None = None,
    policy: str | Policy[Any] | None = None,
    machine: Machine | None = None,
    listener: Listener | Sequence[Listener] | None = None,
) -> Run:
    """Start a flow and give a handle of the run.

    Args:
        flow: The application.
        engine: What runs it: `spark`, `local`, or `simulator`, where time is virtual and there are
            no results.
        plan: How to begin; chosen by the engine when left out.
        checkpoint: Where progress and state are kept, so that a later start goes on from there;
            forgotten with the run when left out.
        rows: Read no more of each source than this; the stream ends there.
        workers: For the local engine: worker processes; 0 for everything in the caller's.
        master: Spark's master URL; embedded Spark when left out and nothing else is set.
        session: A SparkSession to use instead of starting one.
        conf: Settings of a session that is started.
        simulated: For the simulator: on which machine, what operators cost, and what happens.
        policy: Who changes the plan while the flow runs, by name or as a value; `none` for nobody.
            When left out, `auto`, or nobody where a plan is given.
        machine: What parallelism costs here, as `anabranch calibrate` measured it.
        listener: Called with every event, from the engine's thread; one or several. What it raises
            is noted in the journal.
    """
    # Validate: whatever can be said without running is said now.
    require_flow(flow)
    require_apart(flow.sinks())
    require_kind("plan", plan, Plan)
    require_kind("rows", rows, int)
    require_kind("workers", workers, int)
    require_kind("checkpoint", checkpoint, str, os.PathLike)
    require_kind("conf", conf, Mapping)
    require_kind("simulated", simulated, Simulated)
    require_kind("machine", machine, Machine)
    if plan is not None:
        plan.validate(flow)
    if rows is not None and rows < 0:
        raise BuildError(
            Subject("argument", "rows"), "rows of 0 or more", str(rows), "leave it out for no limit"
        )
    decider = chosen(policy, planned=plan is not None)

    # Plan and start: an engine that is given no plan chooses one for the machine it finds.
    options = Options(checkpoint, rows, master, session, conf or {}, machine, workers)
    runner = engine_of(engine, flow, plan, options, simulated)

    # Observe, decide, apply: every batch is an event; a policy that hears it may wish for a plan.
    handle = Run(flow.name, runner, listener)
    if decider is not None:
        handle.tuner = Tuner(flow, runner, decider, handle.hear)
    runner.start(handle.hear)
    return handle


def run(
    flow: Flow,
    *,
    seconds: float | None = None,
    engine: str = "spark",
    plan: Plan | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    rows: int | None = None,
    workers: int | None = None,
    master: str | None = None,
    session: object = None,
    conf: Mapping[str, str] | None = None,
    simulated: Simulated | None = None,
    policy: str | Policy[Any] | None = None,
    machine: Machine | None = None,
    listener: Listener | Sequence[Listener] | None = None,
) -> Result:
    """Run a flow to its end, or for some seconds; the other options are those of `start`.

    Example:
        ```python
        result = ab.run(flow, checkpoint="checkpoint/")
        print(f"{result.rate_per_s:,.0f} rows a second")
        ```
    """
    require_kind("seconds", seconds, int, float)
    with waiting_caller():
        handle = start(
            flow,
            engine=engine,
            plan=plan,
            checkpoint=checkpoint,
            rows=rows,
            workers=workers,
            master=master,
            session=session,
            conf=conf,
            simulated=simulated,
            policy=policy,
            machine=machine,
            listener=listener,
        )
    try:
        handle.await_termination(seconds)
    finally:
        handle.stop()
    return handle.result()


def rollback(flow: Flow, checkpoint: str | os.PathLike[str], version: int) -> None:
    """Forget what a checkpoint knows of later versions; the next run goes on from `version`.

    For recovery by hand, while no run uses the checkpoint: an error about a damaged file says which
    version is whole. Output of later versions goes when that run opens its sinks.
    """
    require_flow(flow)
    Checkpoint.open(checkpoint, flow, fresh=False).rollback(version)
