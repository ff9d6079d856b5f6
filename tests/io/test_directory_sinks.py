"""What `parquet`, `csv` and `jsonl` promise alike; their own files have the differences."""

import os
import subprocess
import sys

import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import SinkError
from anabranch.flow import Flow
from anabranch.io import csv, files, jsonl, memory, parquet, read_back
from anabranch.io.staged import MemoryStage
from anabranch.io.two_phase_commit import prepare
from anabranch.running import run, start
from tests.io.going_on import GoingOn

SINKS = {"parquet": parquet, "csv": csv, "jsonl": jsonl}
SCHEMA = pa.schema([("x", pa.int64()), ("word", pa.string())])


@pytest.fixture(params=SINKS)
def kind(request):
    return request.param


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "out"


def batch(*numbers):
    return pa.record_batch({"x": list(numbers), "word": [f"w{n}" for n in numbers]}, schema=SCHEMA)


def opened(kind, folder, version=-1, **options):
    sink = GoingOn(SINKS[kind](folder, **options))
    sink.open(SCHEMA, version)
    return sink


def committed(folder):
    return read_back(folder)["x"].to_pylist()


def visible(folder):
    """What anybody sees, but for the file without rows."""
    return sorted(n for n in os.listdir(folder) if not n.startswith((".", "part-schema.")))


def of_dataset(folder):
    return ds.dataset(folder).to_table()


def with_versions(kind, folder, versions, version=-1, **options):
    """A sink that committed one row, its own number, in each of the versions 0, 1, ..."""
    sink = opened(kind, folder, version, **options)
    for version in range(versions):
        sink.write(batch(version))
        sink.commit(version)
    return sink


def test_a_version_is_a_file(kind, folder):
    with_versions(kind, folder, 2)
    assert visible(folder) == [f"part-00000000.{kind}", f"part-00000001.{kind}"]
    assert committed(folder) == [0, 1]


def test_rows_are_visible_only_after_their_commit(kind, folder):
    sink = opened(kind, folder)
    sink.write(batch(1, 2))
    assert visible(folder) == []
    sink.write(batch(3))
    sink.commit(7)
    assert visible(folder) == [f"part-00000007.{kind}"]
    assert committed(folder) == [1, 2, 3]


def test_a_version_without_rows_leaves_no_file(kind, folder):
    sink = opened(kind, folder)
    sink.write(batch())
    sink.commit(0)
    assert visible(folder) == []
    assert read_back(folder) == SCHEMA.empty_table()


def test_a_constructor_touches_nothing(kind, folder):
    SINKS[kind](folder)
    assert not folder.exists()


def test_committing_a_version_again_changes_nothing(kind, folder):
    sink = with_versions(kind, folder, 2)
    sink.commit(1)
    sink.write(batch(1))
    sink.commit(1)
    sink.write(batch(2))
    sink.commit(2)
    assert committed(folder) == [0, 1, 2]


def test_a_version_committed_before_a_restart_is_not_written_twice(kind, folder):
    with_versions(kind, folder, 2).close()
    sink = opened(kind, folder, version=1)
    sink.write(batch(1))
    sink.commit(1)
    assert committed(folder) == [0, 1]


def test_what_a_killed_run_had_not_committed_is_gone(kind, folder):
    killed = with_versions(kind, folder, 2)
    killed.write(batch(2))
    sink = opened(kind, folder, version=1)
    sink.write(batch(2))
    sink.commit(2)
    assert committed(folder) == [0, 1, 2]
    SINKS[kind](folder).sweep(2)
    assert [name for name in os.listdir(folder) if "pending" in name] == []


def test_what_a_killed_run_had_not_committed_is_gone_after_a_fresh_start(kind, folder):
    killed = with_versions(kind, folder, 2)
    killed.write(batch(2))
    opened(kind, folder, overwrite=True)
    assert [name for name in os.listdir(folder) if "pending" in name] == []


def test_versions_after_the_one_to_go_on_from_are_removed(kind, folder):
    with_versions(kind, folder, 4)
    opened(kind, folder, version=1)
    assert committed(folder) == [0, 1]


def test_a_run_killed_before_its_first_commit_may_start_again(kind, folder):
    opened(kind, folder).write(batch(1))
    sink = opened(kind, folder)
    sink.write(batch(2))
    sink.commit(0)
    assert committed(folder) == [2]


def test_a_run_that_was_given_up_cannot_commit_the_new_ones_rows(kind, folder):
    old = opened(kind, folder)
    old.write(batch(1))
    new = opened(kind, folder)
    new.write(batch(2))
    with pytest.raises(SinkError):
        old.commit(0)
    new.commit(0)
    assert committed(folder) == [2]


@given(
    steps=st.lists(
        st.one_of(
            st.integers(1, 5).map(lambda rows: ("write", rows)),
            st.just(("commit", 0)),
            st.just(("kill", 0)),
            st.integers(0, 3).map(lambda back: ("kill", back)),
        ),
        max_size=20,
    )
)
@pytest.mark.parametrize("kind", SINKS)
def test_killed_at_any_step_exactly_the_committed_rows_remain(tmp_path_factory, kind, steps):
    folder = tmp_path_factory.mktemp("law") / "out"
    sink = opened(kind, folder)
    sink.commit(0)
    written, by_version, version = 0, {0: []}, 0
    pending = []
    for step, amount in steps:
        if step == "write":
            rows = list(range(written, written + amount))
            written += amount
            sink.write(batch(*rows))
            pending += rows
        elif step == "commit":
            version += 1
            sink.commit(version)
            by_version[version], pending = pending, []
        else:
            version = max(0, version - amount)
            by_version = {v: rows for v, rows in by_version.items() if v <= version}
            pending = []
            sink = opened(kind, folder, version)
        assert committed(folder) == [x for rows in by_version.values() for x in rows]


ENDLESS_RUN = """
import sys
import pyarrow as pa
from anabranch.io import parquet
from anabranch.io.two_phase_commit import Transactions

sink = Transactions(parquet(sys.argv[1]))
sink.open(pa.schema([("x", pa.int64()), ("word", pa.string())]))
for x in range(10**9):
    sink.write(pa.record_batch({"x": [2 * x, 2 * x + 1], "word": ["a", "b"]}))
    sink.commit(x)
    print(x, flush=True)
"""


def test_a_process_killed_while_it_writes_leaves_whole_versions(folder):
    process = subprocess.Popen(
        [sys.executable, "-c", ENDLESS_RUN, str(folder)], stdout=subprocess.PIPE
    )
    with process:
        for _ in range(20):
            process.stdout.readline()
        process.kill()
    rows = committed(folder)
    assert len(rows) >= 40
    assert rows == list(range(len(rows)))
    assert len(rows) == 2 * len(visible(folder))


def test_a_format_that_changed_between_manifest_and_commit_is_refused(folder):
    stage = MemoryStage()
    before, after = parquet(folder), jsonl(folder)
    before.open(SCHEMA)
    receipt = prepare(before, SCHEMA, "000000000000-a", [batch(1)], stage)
    with pytest.raises(SinkError, match=r"the format of the version before, parquet, got jsonl"):
        after.recover(SCHEMA, 0, [receipt], stage)
    assert visible(folder) == []
    before.recover(SCHEMA, 0, [receipt], stage)
    assert committed(folder) == [1]


def test_a_file_ends_as_it_was_prepared(folder):
    stage = MemoryStage()
    before, after = parquet(folder), jsonl(folder)
    before.open(SCHEMA)
    receipts = [prepare(before, SCHEMA, f"{n:012d}-a", [batch(n)], stage) for n in range(3)]
    after.commit(0, receipts[:1], stage)
    after.commit(1, receipts[1:], stage)
    names = ["part-00000000.parquet", "part-00000001-000.parquet", "part-00000001-001.parquet"]
    assert visible(folder) == names
    assert committed(folder) == [0, 1, 2]


FULL_DISK = """
import os, resource, signal, sys
import pyarrow as pa
import anabranch as ab
from anabranch.errors import SinkError
from anabranch.io.staged import MemoryStage
from anabranch.io.two_phase_commit import prepare

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
rows = [pa.record_batch({"x": [os.urandom(8).hex() for _ in range(100_000)]}) for _ in range(3)]
sink = getattr(ab, sys.argv[1])(sys.argv[2])
sink.open(rows[0].schema)
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))
try:
    prepare(sink, rows[0].schema, "000000000000-a", rows, MemoryStage())
except SinkError as error:
    print(error)
"""


def test_a_full_disk_is_told_and_nothing_is_left(kind, folder):
    command = [sys.executable, "-c", FULL_DISK, kind, str(folder)]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "File too large" in told
    assert [name for name in os.listdir(folder) if "pending" in name] == []


def test_earlier_output_is_not_overwritten_by_a_fresh_start(kind, folder):
    with_versions(kind, folder, 1)
    with pytest.raises(SinkError, match=r"out.*part-00000000.*overwrite=True"):
        opened(kind, folder)
    assert committed(folder) == [0]


def test_earlier_output_is_overwritten_on_request(kind, folder):
    with_versions(kind, folder, 3)
    sink = opened(kind, folder, overwrite=True)
    assert committed(folder) == []
    sink.write(batch(9))
    sink.commit(0)
    assert committed(folder) == [9]


def test_output_in_another_format_is_overwritten_too(folder):
    with_versions("csv", folder, 3)
    with_versions("parquet", folder, 0, overwrite=True)
    assert visible(folder) == []
    with_versions("csv", folder, 1, overwrite=True)
    assert [name for name in os.listdir(folder) if "parquet" in name] == []


@pytest.mark.parametrize("read", [pd.read_parquet, pq.read_table, of_dataset])
def test_an_empty_result_has_its_columns_for_other_readers(folder, read):
    sink = opened("parquet", folder)
    for rows in ((), (7,)):
        sink.write(batch(*rows))
        sink.commit(len(rows))
        table = read(folder)
        assert table.shape == (len(rows), 2)
        assert list(getattr(table, "column_names", table.columns)) == ["x", "word"]
    with_versions("parquet", folder, 0, version=0)
    assert read(folder).shape == (0, 2)


def test_an_empty_result_stops_no_fresh_start(kind, folder):
    with_versions(kind, folder, 0)
    with_versions(kind, folder, 1)
    assert committed(folder) == [0]


def test_the_output_of_another_sink_may_not_be_read_with_that_of_this_one(kind, folder):
    with_versions(kind, folder / "late", 1)
    with pytest.raises(SinkError, match=r"an empty directory"):
        opened(kind, folder)
    with pytest.raises(SinkError, match=r"below .*out, .* got 'late'; remove or move that folder"):
        opened(kind, folder, overwrite=True)


def two_sinks(first, second):
    flow = Flow("f")
    stream = flow.source("s", memory([{"x": 1}]))
    stream.sink("first", parquet(first))
    return stream.sink("second", csv(second))


@pytest.mark.parametrize("engine", ["local", "spark"])
@pytest.mark.parametrize(
    ("first", "second", "step"),
    [
        ("out", "out/late", "second"),
        ("out/a/b", "out", "first"),
        ("out", "out/../out", "second"),
        ("out", "link/late", "second"),
    ],
)
def test_sinks_of_a_flow_that_would_be_read_together_are_refused_before_anything_is_written(
    tmp_path, engine, first, second, step
):
    (tmp_path / "link").symlink_to(tmp_path / "out")
    with pytest.raises(SinkError, match="a directory of its own, side by side") as caught:
        start(two_sinks(tmp_path / first, tmp_path / second), engine=engine)
    assert caught.value.step == step
    assert os.listdir(tmp_path) == ["link"]


@pytest.mark.parametrize("second", ["out2", "out/_late", "out/.set_aside/late"])
def test_sinks_of_a_flow_that_are_read_apart_run_twice(tmp_path, second):
    for _ in range(2):
        flow = Flow("f")
        stream = flow.source("s", memory([{"x": 1}]))
        stream.sink("first", parquet(tmp_path / "out", overwrite=True))
        stream.sink("second", csv(tmp_path / second, overwrite=True))
        assert run(flow, engine="local").ended
    assert committed(tmp_path / "out") == committed(tmp_path / second) == [1]


def test_what_readers_pass_over_may_lie_below_the_output(kind, folder):
    with_versions(kind, folder / "_set_aside" / "late", 1)
    with_versions(kind, folder, 2)
    assert committed(folder) == [0, 1]
    assert committed(folder / "_set_aside" / "late") == [0]


def test_foreign_files_stop_a_fresh_start_and_are_never_removed(kind, folder):
    folder.mkdir()
    (folder / "thesis.docx").write_text("five years of work")
    with pytest.raises(SinkError, match=r"thesis.docx"):
        opened(kind, folder)
    opened(kind, folder, overwrite=True)
    assert visible(folder) == ["thesis.docx"]


def test_a_path_that_is_a_file_cannot_be_written_to(kind, folder):
    folder.write_text("")
    with pytest.raises(SinkError, match=r"write to .*out.*choose another directory") as caught:
        opened(kind, folder)
    assert caught.value.subject.name == f"{kind} {str(folder)!r}"


def test_a_directory_that_must_not_be_written_to_is_an_error(kind, folder, monkeypatch):
    def refuse(*args, **kwargs):
        raise PermissionError(13, "Permission denied", str(folder))

    monkeypatch.setattr(os, "makedirs", refuse)  # root may write anywhere: modes prove nothing
    with pytest.raises(SinkError, match=r"PermissionError.*check permissions"):
        opened(kind, folder)


def test_going_on_where_the_output_is_gone_is_an_error(kind, folder):
    with pytest.raises(SinkError, match="up to version 3"):
        opened(kind, folder, version=3)


def test_going_on_with_other_columns_is_an_error(kind, folder):
    with_versions(kind, folder, 1)
    with pytest.raises(SinkError, match="x: int64, word: string, got y: int64"):
        GoingOn(SINKS[kind](folder)).open(pa.schema([("y", pa.int64())]), 0)


def test_rows_with_other_columns_are_refused(kind, folder):
    with pytest.raises(SinkError, match="'x' of type int64, got string"):
        opened(kind, folder).write(pa.record_batch({"x": ["a"], "word": ["a"]}))


def test_a_sink_must_be_opened(kind, folder):
    with pytest.raises(SinkError, match="open"):
        GoingOn(SINKS[kind](folder)).write(batch(1))


def test_close_leaves_only_what_was_committed(kind, folder):
    sink = with_versions(kind, folder, 1)
    sink.write(batch(1))
    sink.close()
    assert [name for name in os.listdir(folder) if "pending" in name] == []
    assert committed(folder) == [0]


def test_versions_are_read_back_in_their_numeric_order(kind, folder):
    sink = opened(kind, folder)
    for version in (2, 10, 99_999_999, 100_000_000):
        sink.write(batch(version))
        sink.commit(version)
    assert committed(folder) == [2, 10, 99_999_999, 100_000_000]


def test_files_of_a_version_are_read_back_by_number_however_they_are_listed(
    kind, folder, monkeypatch
):
    sink, numbers = opened(kind, folder), [0, 1, 2, 10, 999, 1000, 1001]
    for number in numbers:  # as if this version had more than a thousand files
        sink.write(batch(number))
        sink.commit(number)
        name = folder / f"part-{number:08d}.{kind}"
        name.rename(folder / f"part-00002000-{number:03d}.{kind}")
    listed = os.listdir
    for reverse in (False, True):
        monkeypatch.setattr(os, "listdir", lambda at, r=reverse: sorted(listed(at), reverse=r))
        assert committed(folder) == numbers


def test_the_output_is_a_source(kind, folder):
    with_versions(kind, folder, 2)
    source = files(folder)
    read = (source.read(part, 0, 10) for part in source.parts())
    rows = [chunk.batch.to_pylist() for chunk in read if chunk is not None]
    assert rows == [[{"x": 0, "word": "w0"}], [{"x": 1, "word": "w1"}]]


def test_reading_back_what_no_sink_wrote_is_an_error(tmp_path):
    with pytest.raises(SinkError, match="a directory that a sink wrote"):
        read_back(tmp_path)


def test_names_of_many_files_of_a_version_sort_as_their_numbers(tmp_path):
    out = parquet(tmp_path / "many")
    schema = pa.schema([("x", pa.int64())])
    out.open(schema)
    stage = MemoryStage()
    receipts = []
    for number in range(1_001):
        rows = [pa.record_batch({"x": [number]})]
        receipts.append(prepare(out, schema, f"{0:012d}-{number}", rows, stage))
    out.commit(0, receipts, stage)
    names = sorted(path.name for path in (tmp_path / "many").glob("part-0*"))
    first, last = names[0], names[-1]
    assert first == "part-00000000-0000.parquet"
    assert pq.read_table(tmp_path / "many" / last)["x"].to_pylist() == [1_000]
    assert read_back(tmp_path / "many")["x"].to_pylist() == list(range(1_001))
