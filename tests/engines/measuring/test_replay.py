"""A source that replays rows, and tells the rate of a run in its steady state."""

import pickle

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


def test_the_rate_is_that_of_the_steady_part():
    source = five()
    # Fast at first, as long as queues fill; then ten rows a second.
    source.notes = [(0.0, 0), (0.1, 1000), (0.2, 2000), (4.0, 2010), (5.0, 2020), (10.0, 2070)]
    assert source.rate_per_s(warm_up=0.3) == pytest.approx(10)


@pytest.mark.parametrize("notes", [[], [(1.0, 5)]])
def test_too_little_read_tells_nothing(notes):
    source = five()
    source.notes = notes
    assert source.rate_per_s(0.3) == 0


def test_notes_stay_where_they_were_taken():
    source = five()
    source.read("replayed", 0, 2)
    assert pickle.loads(pickle.dumps(source)).notes == []
    assert len(source.notes) == 1


def test_a_flow_replays_the_first_rows_of_its_source():
    flow = busy_flow(chain([OperatorProfile("a", 1.0)]), rows=None)
    replayed, source = replaying(flow, 3000)
    original = flow.graph.steps["source"].body.source.read("generated", 0, 3000).batch
    assert source.read("replayed", 0, 5000).batch.equals(original)
    assert replayed.fingerprint() == flow.fingerprint()


def test_a_short_source_is_replayed_whole():
    flow = Flow("short")
    flow.source("x", memory([{"x": 1}, {"x": 2}])).sink("out", collect())
    _, source = replaying(flow, 100)
    assert source.read("replayed", 0, 100).batch.num_rows == 2


def test_nothing_cannot_be_replayed():
    with pytest.raises(BuildError):
        Replay(pa.record_batch({"x": pa.array([], pa.int64())}))


def test_a_bench_runs_busy_operators_on_threads():
    bench = LocalBench(batch_rows=256, seconds=0.15)
    cheap = bench.rate_per_s(chain([OperatorProfile("a", CHEAP_US)], unit="us"), (1,), 1)
    dear = bench.rate_per_s(chain([OperatorProfile("a", 40 * CHEAP_US)], unit="us"), (1,), 1)
    assert cheap > 2 * dear > 0


def test_a_switch_is_measured_with_small_jumbo_tuples_and_shared_out_over_large_ones(monkeypatch):
    def calibrate(bench, machine, repeats, switching):
        assert (bench._batch_rows, switching._batch_rows) == (8192, local_bench.SWITCH_ROWS)
        return Calibrated((80.0, 100.0, 120.0), (-2.0, -1.0, 5.0), (40.0, 50.0, 60.0))

    monkeypatch.setattr(local_bench, "calibrate", calibrate)
    found = local_bench.calibrate_local(Machine.of_cores(2), 8192)
    assert found.thread_switch == (10.0, 12.5, 15.0)
