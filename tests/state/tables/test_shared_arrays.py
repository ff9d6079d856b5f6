"""Tables with arrays in shared memory: all of them, or some."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from anabranch.columns.hashing import bucket_of, hash_columns
from anabranch.columns.key_words import Mask
from anabranch.state.tables.change_log import ChangeLog
from anabranch.state.tables.keyed_table import KeyedTable
from anabranch.state.tables.shared_arrays import shared
from tests.state.tables.tables import between_processes, carried, counting, ints, sharing

BUCKETS = 64
KEYS = pa.schema([("host", pa.int64()), ("user", pa.int64())])
VALUES = pa.schema([("n", pa.int64())])


@pytest.mark.parametrize("most", range(10))
@pytest.mark.parametrize("routing", [["host", "user"], ["host"]], ids=["whole", "part"])
def test_rows_have_their_buckets_whichever_arrays_are_shared(routing: list[str], most: int) -> None:
    users = np.arange(110)
    keys = pa.RecordBatch.from_arrays([ints(users % 20), ints(users)], schema=KEYS)
    buckets = bucket_of(hash_columns([keys.column(name) for name in routing]), BUCKETS)

    def insert(table: KeyedTable, which: Mask) -> None:
        table.groups(keys.filter(pa.array(which)).columns)

    with sharing(most):
        one, two = (KeyedTable(KEYS, VALUES, BUCKETS, routing) for _ in range(2))
        insert(one, users < 60)
        insert(one, users < 70)  # there is space for 50 more now
        two.absorb(between_processes(one.release(range(20))))
        insert(one, buckets >= 20)
        two.absorb(between_processes(one.release(range(20, 40))))
        kept, moved = (table.keys(table.live())[1].to_numpy() for table in (one, two))
        assert two.bucket(two.live()).tolist() == buckets[moved].tolist()
        assert set(buckets[kept]) == set(buckets[buckets >= 40])
        assert sorted([*kept, *moved]) == users[(users < 70) | (buckets >= 20)].tolist()


def test_a_slab_that_moved_unshared_is_shared_when_it_moves_again() -> None:
    with sharing(0):
        one, two = counting(5000), counting(0)
        two.absorb(between_processes(one.release(range(200))))
    with sharing(60):
        _, first = carried(two.release(range(100)))
        _, second = carried(one.release(range(200, 220)))
    assert max(first, second) < 20_000


def test_a_slab_that_was_too_empty_is_shared_when_it_moves() -> None:
    with sharing(60):
        table = counting(50_000)
        table.remove(table.find([ints(range(45_000))]))
        table.commit()
        assert len(table._slabs.views) == 1
        _, copied = carried(table.release(range(100)))
    assert copied < 20_000


def test_the_change_log_is_not_in_shared_memory() -> None:
    with sharing(60) as blocks:
        moved = shared(np.zeros(1000))
        log = ChangeLog((0,), kept=True)
        log.touch(np.arange(500), 1000)
        log.follow(np.arange(10), np.arange(1500, 1510), 2000)
        assert len(blocks) == 1
        del moved


def test_a_worker_may_open_as_many_files_as_the_system_allows_and_shares_half_of_them() -> None:
    program = """
import os, resource
import numpy as np
from anabranch.state.tables.shared_arrays import allow_sharing, reference, shared

resource.setrlimit(resource.RLIMIT_NOFILE, (64, 400))
allow_sharing()
arrays = [shared(np.zeros(100_000, np.bool_)) for _ in range(200)]
files = [open(os.devnull) for _ in range(150)]
print(sum(reference(array) is not None for array in arrays))
"""
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ran.stdout == "100\n"
