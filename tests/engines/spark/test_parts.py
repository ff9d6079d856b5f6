"""Files that come and go between runs: offsets are numbers of files, so these must not shift."""

from __future__ import annotations

from pathlib import Path

import pytest

import anabranch as ab
from anabranch.errors import StateError
from anabranch.flow import Flow
from anabranch.io.reading_back import read_back
from anabranch.planning.plan import Plan
from tests.engines.spark.one_by_one import OneByOne

LINES = 4


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three files, with room before, between and behind them."""
    made = tmp_path / "in"
    made.mkdir()
    for name in "bdf":
        write(made, name)
    return made


def write(folder: Path, name: str) -> None:
    (folder / f"{name}.txt").write_text("".join(f"{line}\n" for line in lines(name)))


def lines(names: str) -> list[str]:
    return [f"{name}{number}" for name in names for number in range(LINES)]


def started(folder: Path, batch_rows: int = 3) -> OneByOne:
    """A run of a fresh program: what it knows of the one before is in the checkpoint."""
    flow = Flow("copy")
    flow.source("lines", ab.files(folder / "*.txt")).sink("out", ab.parquet(folder.parent / "out"))
    plan = Plan.sequential(flow).with_source("lines", batch_rows=batch_rows)
    return OneByOne(flow, folder.parent / "checkpoint", plan)


def output(folder: Path) -> list[str]:
    found: list[str] = read_back(folder.parent / "out")["line"].to_pylist()
    return found


def run_two_batches(folder: Path) -> None:
    with started(folder) as run:
        run.next()
        run.next()
        assert not run.batches.ended()


@pytest.mark.parametrize(
    ("new", "told"),
    [
        ("a", r"'lines': expected part 0 to be '.*/b\.txt'.*, got '.*/a\.txt'; .*sort behind"),
        ("c", r"'lines': expected part 1 to be '.*/d\.txt'.*, got '.*/c\.txt'; .*sort behind"),
        ("e", r"'lines': expected part 2 to be '.*/f\.txt'.*, got '.*/e\.txt'; .*sort behind"),
    ],
)
def test_a_file_that_comes_before_others_is_refused_by_name_and_without_it_the_run_goes_on(
    folder: Path, new: str, told: str
) -> None:
    run_two_batches(folder)
    write(folder, new)
    before = output(folder)
    with pytest.raises(StateError, match=told):
        started(folder)
    assert output(folder) == before
    (folder / f"{new}.txt").unlink()
    with started(folder) as run:
        run.to_the_end()
    assert output(folder) == lines("bdf")


def test_files_that_come_behind_the_others_are_read_and_every_row_once(folder: Path) -> None:
    run_two_batches(folder)
    write(folder, "g")
    with started(folder) as run:
        run.next()
    write(folder, "h")
    with started(folder) as run:
        run.to_the_end()
    assert output(folder) == lines("bdfgh")


def test_files_that_came_behind_must_not_shift_either(folder: Path) -> None:
    run_two_batches(folder)
    write(folder, "h")
    started(folder).close()
    write(folder, "g")
    with pytest.raises(StateError, match=r"part 3 to be '.*/h\.txt'.*got '.*/g\.txt'"):
        started(folder)


@pytest.mark.parametrize(
    ("gone", "told"),
    [
        ("b", r"part 0 to be '.*/b\.txt'.*, got '.*/d\.txt'; .*put files back"),
        ("f", r"part 2 to be '.*/f\.txt'.*, got nothing; .*put files back"),
    ],
)
def test_a_file_that_is_missing_is_refused_by_name_and_put_back_the_run_goes_on(
    folder: Path, gone: str, told: str
) -> None:
    run_two_batches(folder)
    (folder / f"{gone}.txt").unlink()
    with pytest.raises(StateError, match=told):
        started(folder)
    write(folder, gone)
    with started(folder) as run:
        run.to_the_end()
    assert output(folder) == lines("bdf")


def test_a_run_that_has_ended_refuses_new_files(folder: Path) -> None:
    with started(folder) as run:
        run.to_the_end()
    with started(folder) as again:
        assert again.batches.ended()
    write(folder, "g")
    with pytest.raises(
        StateError, match=r"3 parts .*ended, got 1 more, such as '.*/g\.txt'; .*new"
    ):
        started(folder)
    assert output(folder) == lines("bdf")
