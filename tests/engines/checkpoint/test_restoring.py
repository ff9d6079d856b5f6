"""What waits at the gates of a region goes to its replicas, whoever held it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.engines.checkpoint.restoring import Waiting, buckets_of, gate_sections, restore
from anabranch.engines.checkpoint.state_files import FOLDER, GATE, StateFile, write_state
from anabranch.engines.checkpoint.storage import Storage, storage_at
from anabranch.io.reader import PART_SHIFT
from anabranch.planning.plan import Plan
from anabranch.planning.regions import regions
from anabranch.runtime.channel import Channel
from anabranch.state.positions import Jumbo, Positions

HELD = ([0, 1, 9], [4, 5, (1 << PART_SHIFT) + 1])
"""By replica, the positions of what waits at its gate."""


@ab.shared(out="n: int64", buckets=2)
def seen(batch, bucket):
    return batch, range(batch.num_rows)


def flow() -> ab.Flow:
    made = ab.Flow("waiting", buckets=4)
    rows = made.source("rows", ab.memory([{"n": 0}]))
    rows.sink("out", ab.collect())
    rows.aggregate("counts", key="n", c=ab.count(), emit="every", combine=False).sink(
        "counted", ab.collect()
    )
    rows.apply("seen", seen).sink("copies", ab.collect())
    return made


def written(storage: Storage, label: str, held: tuple[list[int], ...]) -> tuple[StateFile, ...]:
    """The files that the gates of a region leave."""
    files = []
    for replica, numbers in enumerate(held):
        positions = Positions.of_source(0, np.array(numbers, np.int64))
        jumbo = Jumbo(pa.record_batch({"n": pa.array(numbers, pa.int64())}), positions)
        size, crc = write_state(storage, f"gate-{replica}", gate_sections([jumbo]))
        files.append(StateFile(f"gate-{replica}", label, replica, 0, True, (replica,), size, crc))
    return tuple(files)


def shares(
    tmp_path: Path,
    region: str,
    plan: Plan,
    held: tuple[list[int], ...] = HELD,
    label: str | None = None,
) -> list[list[int]]:
    """By replica of a plan, what waits at its gate."""
    (tmp_path / FOLDER).mkdir()
    storage, of = storage_at(tmp_path), flow()
    files, contexts = written(storage, label or region + GATE, held), of.contexts()
    [found] = [each for each in regions(of) if each.name == region]
    planned, given = plan.region(region), []
    for replica in range(planned.replicas):
        channel = Channel(of, contexts, found, planned, replica)
        waiting: Waiting = [None]
        missing = buckets_of(channel)
        schemas = [contexts[region].inputs[0].schema]
        restore(storage, files, channel, schemas, waiting, plan=planned, missing=missing)
        numbers = [] if waiting[0] is None else waiting[0].batch.column("n").to_pylist()
        given.append(numbers)
    return given


@pytest.mark.parametrize(
    ("replicas", "expected"),
    [
        (1, [[*HELD[0], *HELD[1]]]),
        (2, [[0, 1, 9], [4, 5, (1 << PART_SHIFT) + 1]]),
        (3, [[0, 1], [4, 5, (1 << PART_SHIFT) + 1], [9]]),
    ],
)
def test_replicas_of_a_sink_get_what_is_in_their_ranges(
    tmp_path: Path, replicas: int, expected: list[list[int]]
) -> None:
    plan = Plan.sequential(flow()).with_replicas("out", replicas).with_range_rows("out", 4)
    assert shares(tmp_path, "out", plan) == expected


def test_replicas_of_a_sink_share_what_an_earlier_version_kept_beside_its_state(
    tmp_path: Path,
) -> None:
    plan = Plan.sequential(flow()).with_replicas("out", 2).with_range_rows("out", 4)
    assert shares(tmp_path, "out", plan, held=([0, 1, 4],), label="out") == [[0, 1], [4]]


def test_replicas_with_buckets_get_what_is_in_them(tmp_path: Path) -> None:
    plan = Plan.sequential(flow()).with_replicas("counts", 3)
    got = shares(tmp_path, "counts", plan)
    assert sorted(number for each in got for number in each) == sorted([*HELD[0], *HELD[1]])
    assert sum(1 for each in got if each) > 1


@pytest.mark.parametrize("owners", [(0, 1), (0, 0)])
def test_every_replica_of_a_shared_region_gets_all_even_one_without_buckets(
    tmp_path: Path, owners: tuple[int, ...]
) -> None:
    plan = Plan.sequential(flow()).with_replicas("seen", 2).with_bucket_map("seen", owners)
    assert shares(tmp_path, "seen", plan, held=([1, 2, 3],)) == [[1, 2, 3], [1, 2, 3]]
