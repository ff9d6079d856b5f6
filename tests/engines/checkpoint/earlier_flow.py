"""The flow of the checkpoints in `written_by_0_1`: Python objects of all kinds in its state.

Run as a program, it wrote them: `earlier_flow.py FOLDER ENGINE`, with the version to be tried.
"""

import math
import sys
import time

import anabranch as ab

ROWS = 6_000
KEYS = (math.nan, 0.5, 1.5, 2.5, 3.5)


@ab.partitioned(
    key="k",
    out="k: double, n: int64, seen: int64",
    schedule=ab.Schedule.exactly(3),
)
def triples(ctx):
    """Emits every third row of a key with the rows before it: others wait in the state."""
    rows = list(ctx.tuples())
    ctx.state["seen"] = ctx.state.get("seen", 0) + len(rows)
    ctx.state["last"] = rows[-1]
    ctx.emit(n=sum(row.n for row in rows), seen=ctx.state["seen"])


@ab.shared(out="n: int64, bucket: int64, sum: int64")
def summed(batch, bucket):
    """Adds up all that came, in every bucket."""
    columns = {"n": [], "bucket": [], "sum": []}
    for n in batch["n"].to_pylist():
        bucket.state["sum"] = bucket.state.get("sum", 0) + n
        columns["n"].append(n)
        columns["bucket"].append(bucket.index)
        columns["sum"].append(bucket.state["sum"])
    return columns, list(range(len(columns["n"])))


def build() -> ab.Flow:
    flow = ab.Flow("earlier", buckets=4)
    rows = [{"k": KEYS[n * n % 7 % 5], "n": n} for n in range(ROWS)]
    stream = flow.source("rows", ab.memory(rows)).apply("triples", triples)
    stream.apply("summed", summed).sink("out", ab.collect())
    return flow


def write(folder: str, engine: str) -> None:
    flow = build()
    plan = ab.plan(flow).with_source("rows", batch_rows=500)
    run = ab.start(flow, engine=engine, plan=plan, checkpoint=folder)
    for _ in range(6000):
        if run.result().rows_in >= ROWS / 3:
            break
        time.sleep(0.005)
    run.stop()
    print(run.result().rows_in, "rows read,", run.result().rows_out, "written")


if __name__ == "__main__":
    write(*sys.argv[1:])
