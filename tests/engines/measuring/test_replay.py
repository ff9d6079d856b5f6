"""A source that replays rows, and the rate of runs that read it."""

import pyarrow as pa
import pytest

from anabranch.engines.measuring import calibration as local_bench
from anabranch.engines.measuring.busy_flows import Replay, busy_flow, replaying
from anabranch.engines.measuring.calibration import CHEAP_US, Calibrated, LocalBench
from anabranch.errors import BuildError
from anabranch.flow import Flow
from anabranch.io import collect, memory
from anabranch.planning.machine import Machine
from anabranch.planning.profile import OperatorProfile, chain


def five():
    return Replay(pa.record_batch({"x": [0, 1, 2, 3, 4]}))


def test_rows_come_again_from_any_place():
    source, seen, at = five(), [], 3
    while len(seen) < 9:
        chunk = source.read("replayed", at, 4)
        seen += chunk.batch["x"].to_pylist()
        at += chunk.batch.num_rows
    assert seen[:9] == [3, 4, 0, 1, 2, 3, 4, 0, 1]


def test_no_more_rows_come_at_once_than_wished():
    source = Replay(five().read("replayed", 0, 5).batch, most_rows=2)
    assert source.read("replayed", 4, 5).batch["x"].to_pylist() == [4]
    assert source.read("replayed", 5, 5).batch["x"].to_pylist() == [0, 1]


def test_a_flow_replays_the_first_rows_of_its_source():
    flow = busy_flow(chain([OperatorProfile("a", 1.0)]), rows=None)
    replayed = replaying(flow, 3000)
    (source,) = replayed.sources().values()
    original = flow.graph.steps["source"].body.source.read("generated", 0, 3000).batch
    assert source.read("replayed", 0, 5000).batch.equals(original)
    assert replayed.fingerprint() == flow.fingerprint()


def test_a_short_source_is_replayed_whole():
    flow = Flow("short")
    flow.source("x", memory([{"x": 1}, {"x": 2}])).sink("out", collect())
    (source,) = replaying(flow, 100).sources().values()
    assert source.read("replayed", 0, 100).batch.num_rows == 2


def test_nothing_cannot_be_replayed():
    with pytest.raises(BuildError):
        Replay(pa.record_batch({"x": pa.array([], pa.int64())}))


def test_a_bench_runs_busy_operators_on_the_local_engine():
    bench = LocalBench(batch_rows=256, seconds=0.15)
    cheap = bench.rate_per_s(chain([OperatorProfile("a", CHEAP_US)], unit="us"), (1,), 1)
    dear = bench.rate_per_s(chain([OperatorProfile("a", 40 * CHEAP_US)], unit="us"), (1,), 1)
    assert cheap > 2 * dear > 0


def test_the_rate_is_that_of_the_steady_part(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(local_bench, "LocalEngine", lambda *given: Scripted(clock))
    monkeypatch.setattr(local_bench, "time", clock)
    assert local_bench.steady_rate_per_s(None, None, seconds=10.0) == pytest.approx(10)


class Clock:
    """A clock that a test sets."""

    now_s = 0.0

    def monotonic(self):
        return self.now_s


class Scripted:
    """An engine that starts late, reads fast until its queues are full, then ten rows a second."""

    def __init__(self, clock):
        self._clock = clock

    @property
    def rows(self):
        second = self._clock.now_s - 1
        rows = max(0, min(5000 * second, 5000 + 10 * (second - 1)))
        return rows, rows

    def start(self, tell):
        assert self._clock.now_s == 0

    def wait(self, timeout_s):
        self._clock.now_s += timeout_s
        return False

    def stop(self):
        pass


def test_a_switch_is_measured_with_small_jumbo_tuples_and_shared_out_over_large_ones(monkeypatch):
    def calibrate(bench, machine, repeats, switching):
        assert (bench._batch_rows, switching._batch_rows) == (8192, local_bench.SWITCH_ROWS)
        return Calibrated((80.0, 100.0, 120.0), (-2.0, -1.0, 5.0), (40.0, 50.0, 60.0))

    monkeypatch.setattr(local_bench, "calibrate", calibrate)
    found = local_bench.calibrate_local(Machine.of_cores(2), 8192)
    assert found.thread_switch == (10.0, 12.5, 15.0)
