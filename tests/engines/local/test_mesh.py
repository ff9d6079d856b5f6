"""Messages between processes arrive whole and in order, whatever their size."""

import gc
import os
import pickle
import re
import socket
import threading
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest

from anabranch.engines.local.arena import Arena
from anabranch.engines.local.mesh import Lost, Mesh, connect_pair
from anabranch.state.tables.shared_arrays import shared
from tests.processes import in_a_fresh_process
from tests.state.tables.tables import sharing

LIMIT_S = 60.0


@dataclass
class Parcel:
    name: str
    batch: pa.RecordBatch


@pytest.fixture
def meshes():
    made = [Mesh(number, Arena(wipe=True)) for number in range(3)]
    for one, other in ((0, 1), (0, 2), (1, 2)):
        connect_pair(made[one], made[other])
    yield made
    for mesh in made:
        mesh.close()


def delivered(sender: Mesh, receiver: Mesh, message: object) -> object:
    sender.send(receiver.number, message)
    sender.flush()
    [(number, received)] = receiver.poll(LIMIT_S)
    assert number == sender.number
    return received


def pass_releases(meshes):
    gc.collect()
    for mesh in meshes:
        mesh.flush()
    for mesh in meshes:
        mesh.poll(0)


@pytest.mark.parametrize(
    "message",
    [
        None,
        ("small", 1),
        "é" * 1_000_000,
        [b"x" * 100_000, {"y": 2.5}],
        re.compile("a+"),
    ],
    ids=["none", "tuple", "long text", "nested", "pattern"],
)
def test_a_message_arrives_as_it_was_sent(meshes, message):
    assert delivered(meshes[0], meshes[1], message) == message


@pytest.mark.parametrize("rows", [0, 3, 1000, 300_000])
def test_a_batch_arrives_as_it_was_sent(meshes, rows):
    batch = pa.record_batch(
        {"n": np.arange(rows), "s": pa.array([None, "a", "bc"] * rows)[:rows]},
    )
    received = delivered(meshes[0], meshes[1], Parcel("p", batch))
    assert (received.name, received.batch.equals(batch)) == ("p", True)


@pytest.mark.parametrize("rows", [10, 100_000])
def test_dictionary_columns_arrive_as_they_were_sent(meshes, rows):
    batch = pa.record_batch({"d": pa.array(["a", "b"] * rows).dictionary_encode()}).slice(1)
    assert delivered(meshes[0], meshes[1], batch).equals(batch)


def test_a_slice_is_sent_without_the_other_rows(meshes):
    batch = pa.record_batch({"n": np.arange(1_000_000)})
    received = delivered(meshes[0], meshes[1], batch.slice(500, 1000))
    assert received.equals(batch.slice(500, 1000))
    assert meshes[0].arena.used < 50_000


def test_a_small_array_needs_no_slot(meshes):
    assert delivered(meshes[0], meshes[1], np.arange(10)).sum() == 45
    assert meshes[0].arena.bytes == 0


def test_a_class_inside_of_a_function_is_sent_by_value(meshes):
    class Local:
        value = 5

    meshes[0].send(1, Local(), by_value=True)
    meshes[0].flush()
    [(_, received)] = meshes[1].poll(LIMIT_S)
    assert received.value == 5


def test_a_message_that_cannot_be_pickled_leaves_the_connection_intact(meshes):
    with pytest.raises(TypeError):
        meshes[0].send(1, threading.Lock())
    assert delivered(meshes[0], meshes[1], "next") == "next"


def test_receivers_of_one_message_share_its_slot(meshes):
    data = np.arange(100_000)
    meshes[0].send_all((1, 2), data)
    assert meshes[0].arena.used < 2 * data.nbytes
    meshes[0].flush()
    assert [mesh.poll(LIMIT_S)[0][1].sum() for mesh in meshes[1:]] == [data.sum()] * 2
    pass_releases(meshes)
    assert meshes[0].arena.used == 0


def test_a_received_array_stays_as_it_is_while_others_come_and_go(meshes):
    kept = delivered(meshes[0], meshes[1], np.full(10_000, 1))[5_000:]
    for number in range(2, 20):
        assert delivered(meshes[0], meshes[1], np.full(10_000, number))[0] == number
        pass_releases(meshes)
    assert set(kept) == {1}


def test_shared_arrays_are_mapped_up_to_a_limit_and_copied_beyond(meshes):
    with sharing(3):
        arrays = [shared(np.full(1000, number)) for number in range(3)]
        meshes[0].send(1, arrays, by_value=True)
        meshes[0].flush()
    with sharing(1) as blocks:  # as in the other process
        [(_, received)] = meshes[1].poll(LIMIT_S)
        assert [int(array[0]) for array in received] == [0, 1, 2]
        assert len(blocks) == 1
        for array in arrays:
            array[0] = 7
        assert [int(array[0]) for array in received] == [7, 1, 2]


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts descriptors in /proc")
def test_a_shared_array_that_was_copied_is_copied_anew_when_it_arrives_again():
    # Other tests of this process may have threads that open and close files of theirs.
    assert in_a_fresh_process(send_a_shared_array_thrice) == ([0.0, 1.0, 2.0], 0)


def send_a_shared_array_thrice() -> tuple[list[float], int]:
    """Return what arrived, and how many more files are open."""
    meshes = [Mesh(0), Mesh(1)]
    connect_pair(*meshes)
    received: list[np.ndarray] = []
    with sharing(1):
        array = shared(np.zeros(1000))
    before = len(os.listdir("/proc/self/fd"))
    for value in range(3):
        array[0] = value
        meshes[0].send(1, array, by_value=True)
        meshes[0].flush()
        with sharing(0):
            received += [message for _, message in meshes[1].poll(LIMIT_S)]
    return [float(array[0]) for array in received], len(os.listdir("/proc/self/fd")) - before


def test_slots_of_a_worker_that_is_lost_become_free(meshes):
    meshes[0].send_all((1, 2), np.arange(10_000))
    meshes[0].flush()
    meshes[1].close()
    assert meshes[0].poll(LIMIT_S) == [(1, Lost(1))]
    while not any(isinstance(message, np.ndarray) for _, message in meshes[2].poll(LIMIT_S)):
        pass
    pass_releases((meshes[2], meshes[0]))
    assert meshes[0].arena.used == 0


def test_results_outlive_the_mesh_of_the_coordinator(meshes):
    kept = delivered(meshes[1], meshes[0], np.full(10_000, 1))
    meshes[0].close()
    for mesh in meshes[1:]:
        assert mesh.poll(LIMIT_S) == [(0, Lost(0))]
    delivered(meshes[1], meshes[2], np.full(10_000, 2))
    assert set(kept) == {1}


def test_messages_before_the_end_of_a_process_come_before_its_loss(meshes):
    meshes[1].send(0, "last words")
    meshes[1].flush()
    meshes[1].close()
    received = meshes[0].poll(LIMIT_S)
    while len(received) < 2:
        received += meshes[0].poll(LIMIT_S)
    assert received == [(1, "last words"), (1, Lost(1))]


def test_messages_to_a_lost_process_are_dropped(meshes):
    meshes[1].close()
    meshes[0].poll(LIMIT_S)
    meshes[0].send(1, np.arange(10_000))
    assert (meshes[0].peers, meshes[0].arena.used) == ((2,), 0)


@pytest.mark.parametrize("size", [100, 3_000, 60_000])
def test_two_processes_that_send_much_to_each_other_at_once_do_not_wait_forever(size):
    """Both queue far more than sockets hold before either receives."""
    meshes = [Mesh(0), Mesh(1)]
    ends = socket.socketpair()
    for end in ends:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    meshes[0].connect(1, ends[0])
    meshes[1].connect(0, ends[1])
    count = 20_000_000 // size // 10

    def exchange(mesh: Mesh, other: int, received: list[object]) -> None:
        for number in range(count):
            mesh.send(other, (number, b"x" * size))
            mesh.flush()
        while len(received) < count:
            received += [message[0] for _, message in mesh.poll(LIMIT_S)]
        while mesh._unsent:
            mesh.poll(0.01)

    received: list[list[object]] = [[], []]
    threads = [
        threading.Thread(target=exchange, args=(meshes[n], 1 - n, received[n]), daemon=True)
        for n in (0, 1)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
    assert received == [list(range(count))] * 2
    for mesh in meshes:
        mesh.close()


def test_a_frame_larger_than_the_receiving_buffer_arrives(meshes):
    meshes[0]._peers[1].wire.queue(0, pickle.dumps("x" * 3_000_000))
    meshes[0]._unsent.add(meshes[0]._peers[1])
    received = []
    while not received:
        meshes[0].flush()
        received = meshes[1].poll(0)
    assert received == [(0, "x" * 3_000_000)]


def test_poll_returns_nothing_after_its_time(meshes):
    assert meshes[0].poll(0.01) == []


def test_poll_is_woken_from_another_thread(meshes):
    threading.Timer(0.05, meshes[0].wake).start()
    assert meshes[0].poll(None) == []


def test_what_another_thread_posts_is_sent_by_a_thread_that_waits(meshes):
    threading.Timer(0.05, meshes[0].post, (1, "posted")).start()
    assert meshes[0].poll(None) == []
    meshes[0].flush()
    assert meshes[1].poll(LIMIT_S) == [(0, "posted")]


def test_what_another_thread_posts_comes_before_what_is_sent_later(meshes):
    thread = threading.Thread(target=meshes[0].post, args=(1, "posted"))
    thread.start()
    thread.join()
    meshes[0].send(1, "sent")
    meshes[0].flush()
    assert meshes[1].poll(LIMIT_S) == [(0, "posted"), (0, "sent")]


def test_messages_that_are_put_back_come_first(meshes):
    meshes[1].put_back([(2, "earlier")])
    meshes[0].send(1, "later")
    meshes[0].flush()
    assert meshes[1].poll(LIMIT_S) == [(2, "earlier"), (0, "later")]


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts descriptors in /proc")
def test_a_closed_mesh_has_no_open_files():
    assert in_a_fresh_process(open_and_close_meshes) == 0


def open_and_close_meshes() -> int:
    """Return how many more files are open."""
    before = len(os.listdir("/proc/self/fd"))
    meshes = [Mesh(0), Mesh(1)]
    connect_pair(*meshes)
    delivered(*meshes, np.arange(10_000))
    delivered(meshes[1], meshes[0], np.arange(10_000))
    for mesh in meshes:
        mesh.close()
    del meshes, mesh
    gc.collect()
    return len(os.listdir("/proc/self/fd")) - before
