from __future__ import annotations

import json
from datetime import timedelta
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

import anabranch as ab
from anabranch.apps import spike_detection
from anabranch.cli.writing import save
from anabranch.errors import BuildError
from anabranch.io import memory
from anabranch.testing.sequential import run_sequential


def source_of(flow):
    return flow.graph.steps["readings"].body.source


def generated(rows, **config):
    return source_of(spike_detection.build(rows=rows, **config)).read("generated", 0, rows).batch


def fed(values, devices=None, **config):
    """The application on these readings."""
    rows = [
        {"device": devices[n] if devices else 1, "ts": None, "value": value}
        for n, value in enumerate(values)
    ]
    flow = spike_detection.build(rows=0, **config)
    return flow.reading({"readings": memory(rows, spike_detection.READINGS)})


def compared(values, devices=None, **config):
    return run_sequential(fed(values, devices, **config)).outputs


def averages(*given, **config):
    return compared(*given, **config)["out"]["average"].to_pylist()


def on_threads(flow):
    """What comes of a flow in large batches."""
    run = ab.start(flow, engine="local", policy="none")
    run.await_termination()
    return {"out": flow.graph.steps["out"].body.sink.table()}


def test_the_average_goes_over_the_last_readings_and_the_new_one():
    assert averages([1.0, 2.0, 6.0, 4.0, 5.0], window=3) == [1.0, 1.5, 3.0, 4.0, 5.0]


def test_a_window_of_one_is_the_reading_itself():
    assert averages([1.5, 2.5], window=1) == [1.5, 2.5]


def test_the_window_of_the_benchmark_is_a_thousand_readings():
    got = averages([7.0, *[1.0] * 1001])
    assert got[999] == pytest.approx((7 + 999) / 1000)
    assert got[1000] == 1.0


def test_what_is_off_by_more_than_three_per_cent_is_a_spike():
    off = [20.0 * 2.06 / 1.94, 20.0 * 2.05 / 1.95]  # 3 % and 2.5 % beside the average of both
    for value, spike in zip([off[0] + 0.001, off[0] - 0.001, off[1]], [1, 0, 0], strict=True):
        assert compared([20.0, value])["out"]["spike"].to_pylist() == [False, bool(spike)]


def test_a_drop_is_a_spike_too():
    assert compared([20.0] * 9 + [19.0])["out"]["spike"].to_pylist() == [False] * 9 + [True]


def test_frost_is_no_spike():
    assert not any(compared([-5.0] * 5)["out"]["spike"].to_pylist())


def test_sensors_do_not_mix():
    mixed = averages([1.0, 100.0, 3.0, 300.0], [1, 2, 1, 2])
    assert mixed == [1.0, 100.0, 2.0, 200.0]


@pytest.mark.parametrize("broken", [float("nan"), float("inf"), float("-inf"), 1.1e9])
def test_what_is_no_reading_has_no_average_and_is_part_of_none(broken):
    out = compared([broken, 1.0, broken, 3.0], [2, 1, 1, 1])["out"]
    assert out["average"].to_pylist() == [None, 1.0, None, 2.0]
    assert out["spike"].to_pylist() == [False, False, False, True]


def test_the_largest_readings_add_up_in_the_longest_window():
    most = int(spike_detection.LARGEST) * spike_detection.PARTS_A_UNIT * spike_detection.LONGEST
    assert most < 2**63
    assert averages([1e9, -1e9, 1e9 - 0.0001]) == [1e9, 0.0, pytest.approx(333333333.3333)]


@pytest.mark.parametrize("window", [0, spike_detection.LONGEST + 1])
def test_a_window_that_cannot_be_is_refused(window):
    with pytest.raises(BuildError, match="window: a whole number from 1 to 100,000"):
        spike_detection.build(window=window)


def test_it_does_not_matter_how_it_is_run():
    flow = spike_detection.build(rows=100, devices=3, window=5, spikes=0.2)
    ab.check(flow, cases=12, rows=100, processes=0).raise_if_different()


def test_a_sensor_with_nearly_all_readings_is_averaged_whatever_the_batches():
    devices = [n if n % 10 == 0 else 7 for n in range(900)]
    values = generated(900)["value"].to_pylist()
    flow = fed(values, devices, window=50)
    assert run_sequential(flow).outputs["out"].equals(on_threads(flow)["out"])


def test_generated_data_follow_from_the_seed_and_the_row_alone():
    whole = generated(5000, seed=3)
    assert whole.equals(generated(5000, seed=3))
    assert not whole.equals(generated(5000, seed=4))
    later = source_of(spike_detection.build(rows=5000, seed=3)).read("generated", 3000, 10).batch
    assert later.equals(whole.slice(3000, 10))


def test_readings_are_like_those_of_the_lab():
    batch = generated(54 * 1000)
    assert set(np.bincount(batch["device"].to_numpy())) == {1000}
    mine = batch.filter(pa.compute.equal(batch["device"], 5)).to_pylist()
    assert mine[-1]["ts"] - mine[0]["ts"] > timedelta(seconds=998 * 31)
    assert all(one["ts"] <= other["ts"] for one, other in pairwise(mine))
    values = batch["value"].to_numpy()
    assert 15 < np.median(values) < 27
    assert (values == np.round(values, 4)).all()


def test_the_spikes_that_were_made_are_those_that_are_found():
    out = on_threads(spike_detection.build(rows=60_000, spikes=0.01))["out"]
    assert np.mean(out["spike"].to_numpy()) == pytest.approx(0.01, abs=0.002)
    calm = on_threads(spike_detection.build(rows=60_000, spikes=0.0))["out"]
    assert np.mean(calm["spike"].to_numpy()) < 0.0005


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_files_of_readings_give_what_the_readings_gave(suffix, tmp_path):
    flow = spike_detection.build(rows=300, devices=3)
    file = tmp_path / f"readings{suffix}"
    save(source_of(flow), file, 300)
    got = on_threads(spike_detection.build(input=str(file)))["out"]
    assert got.to_pylist() == on_threads(flow)["out"].to_pylist()


def test_malformed_rows_are_kept_apart(tmp_path):
    file = tmp_path / "readings.csv"
    file.write_text("device,ts,value\n1,,20\nx,,20\n1,2004-02-28\n1,,\n1,,nan\n1,,22\n")
    found = run_sequential(spike_detection.build(input=str(file))).outputs
    assert found["out"]["average"].to_pylist() == [20.0, None, 21.0]
    assert found["readings.bad"]["line"].to_pylist() == ["x,,20", "1,2004-02-28", "1,,"]


def test_a_null_in_a_typed_file_is_a_bad_row(tmp_path):
    table = pa.table(
        {"device": [1, 1], "ts": pa.nulls(2, pa.timestamp("us")), "value": [1.0, None]}
    )
    pa.parquet.write_table(table, tmp_path / "r.parquet")
    found = run_sequential(spike_detection.build(input=str(tmp_path / "r.parquet"))).outputs
    assert (found["out"].num_rows, found["readings.bad"].num_rows) == (1, 1)


def test_an_empty_file_gives_nothing(tmp_path):
    (tmp_path / "none.jsonl").write_text("")
    found = run_sequential(spike_detection.build(input=str(tmp_path / "none.jsonl"))).outputs
    assert str(spike_detection.Summary.of(found)) == "0 of 0 readings are spikes"


def test_the_summary_shows_the_largest_spikes():
    found = on_threads(spike_detection.build(rows=20_000))
    said = str(spike_detection.Summary.of(found)).splitlines()
    assert said[0].startswith(f"{sum(found['out']['spike'].to_pylist()):,} of 20,000 readings")
    assert len(said) == 6


def test_settings_come_from_the_command_line(command_line):
    ran = command_line(
        "run", "spike-detection", "--engine", "local", "--policy", "none", "--json",
        *("--set", "rows=500", "--set", "window=10", "--set", "devices=3"),
    )  # fmt: skip
    assert json.loads(ran.out)["rows_in"] == 500
