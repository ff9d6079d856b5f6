"""What a dashboard costs: processor seconds per million tuples on the local engine, on and off.

On: a browser follows the run. It is another process, so that what it spends does not count.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import pyarrow as pa
from harness import Report, Sample, main
from local_streams import Drop, start, word_count, word_count_plan, zipf_lines

from anabranch.events import Event
from anabranch.io import memory
from anabranch.view.web import serve

LINES, QUICK_LINES = 2_000_000, 600_000
BATCH_ROWS = 8_192
PAIRS, QUICK_PAIRS = 20, 4
BAR = 0.03
SETTLE_S = 0.5
"""What the run before has left to tidy up is not this one's doing."""
BROWSER = """
import sys, urllib.request
urllib.request.urlopen(sys.argv[1] + "api/history").read()
stream = urllib.request.urlopen(sys.argv[1] + "api/stream")
print(sum(line.startswith(b"data: ") for line in stream))
"""


def measure(quick: bool) -> Report:
    report = Report("dashboard", "A run that is watched costs next to nothing more")
    lines = zipf_lines(QUICK_LINES if quick else LINES)
    unwatched, watched = partial(cpu_s, lines, no_one), partial(cpu_s, lines, browser)
    unwatched()
    pairs = []
    for number in range(QUICK_PAIRS if quick else PAIRS):
        order = (watched, unwatched) if number % 2 else (unwatched, watched)
        found = {case: case() for case in order}
        pairs.append((found[watched], found[unwatched]))
    report.add_sample("cpu_s_per_million_on", Sample.of([on for on, _ in pairs]))
    report.add_sample("cpu_s_per_million_off", Sample.of([off for _, off in pairs]))
    report.add_figure("pairs", len(pairs))
    cost = statistics.median([on / off for on, off in pairs]) - 1
    report.add_sample("cost_share", Sample.of([on / off - 1 for on, off in pairs]))
    report.add_bar("cost_share", cost, BAR, at_least=False)
    return report


Watching = tuple[Callable[[Event], None], Callable[[], None]]
"""Who hears a run, and what waits until all that was heard is worked on."""


@contextmanager
def no_one() -> Iterator[Watching]:
    """Nobody watches; as much time has passed since the run before as with a browser."""
    subprocess.run([sys.executable, "-c", "import urllib.request"], check=True)
    yield lambda event: None, lambda: None


@contextmanager
def browser() -> Iterator[Watching]:
    """A dashboard, and one who is told everything; fails if that one was told less."""
    heard = 0
    with serve(port=0) as dashboard:

        def hear(event: Event) -> None:
            nonlocal heard
            heard += 1
            dashboard.hear(event)

        command = [sys.executable, "-c", BROWSER, dashboard.url]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as reader:
            while dashboard.browsers == 0:
                time.sleep(0.01)
            yield hear, dashboard.settle
            dashboard.close()
            told, _ = reader.communicate(timeout=30)
    if not heard or int(told) < heard:
        raise RuntimeError(f"the browser was told {told} pieces of news of {heard} events")


def cpu_s(lines: pa.RecordBatch, watching: Callable[..., object]) -> float:
    """Processor seconds of this process for a million lines."""
    flow = word_count(memory(lines), Drop())
    plan = word_count_plan(flow, BATCH_ROWS)
    with watching() as (listener, settle):  # type: ignore[attr-defined]
        time.sleep(SETTLE_S)
        before = time.process_time()
        start(flow, plan, listener=listener).wait()
        settle()  # what is not shown yet would be done for nothing
        return (time.process_time() - before) / lines.num_rows * 1e6


if __name__ == "__main__":
    main(measure)
