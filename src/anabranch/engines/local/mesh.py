"""One process's connections to the other processes of a run.

Messages are Python objects. Their large buffers, such as the columns of Arrow tables and numpy
arrays, go through shared memory; see arena.py. The rest goes through sockets; see wire.py.
"""

from __future__ import annotations

import copyreg
import gc
import io
import os
import pickle
import select
import socket
import struct
import threading
import time
import weakref
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from anabranch.engines.local.arena import Arena, Mappings, Slot
from anabranch.engines.local.wire import Wire
from anabranch.state.tables.shared_arrays import Block, Memory, receive_block, reference

COORDINATOR = 0
"""The number of the user's process; workers have the numbers from 1."""
SHARED_FROM_BYTES = 4 << 10
"""Buffers of a message go into shared memory when they have at least this size together."""
SHARED_PICKLE_FROM_BYTES = 64 << 10
"""A message without its buffers goes into shared memory, too, from this size."""
SOON_S = 0.1
"""How often what a step prints is sent while the step still runs."""
ONE_BUFFER_BYTES = 256 << 10
"""Batches and tables up to this size become one buffer before they are copied."""

# Kinds of frames.
_MESSAGES = PLAIN, WITH_BUFFERS, WITH_SLOT, OWN_BUFFERS, OWN_SLOT = range(5)
SEGMENT, BLOCK, RELEASE, INTRODUCTION = range(5, 9)

_WORD = 8
_SEGMENT = struct.Struct("<QQ")
_BLOCK = struct.Struct("<16sQ")


@dataclass(frozen=True)
class Lost:
    """Reports that a process has died or closed its end of the connection."""

    number: int


class _Peer:
    """A connected process, the segments that it has, and the slots that it has not released."""

    __slots__ = ("blocks", "has_segments", "holds", "is_watched_for_space", "number", "wire")

    def __init__(self, number: int, wire: Wire) -> None:
        self.number, self.wire = number, wire
        self.has_segments: set[int] = set()
        self.blocks: list[Memory] = []  # what the next message refers to
        self.holds: set[int] = set()
        self.is_watched_for_space = False


class _Descriptor:
    """A file descriptor that is closed with the last reference to this object."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self) -> None:
        os.close(self.number)


class Mesh:
    """Sends messages to the other processes of a run, and receives theirs.

    Messages from one process arrive in the order in which they were sent. A mesh belongs to one
    thread, but for `wake` and `post`.

    Args:
        number: The number of this process.
        arena: The shared memory for what this process sends.

    Example:
        >>> here, there = Mesh(0), Mesh(1)
        >>> connect_pair(here, there)
        >>> here.send(1, {"hello": pa.array([1, 2])})
        >>> here.flush()
        >>> [(number, message["hello"].to_pylist()) for number, message in there.poll(None)]
        [(0, [1, 2])]
        >>> here.close()
        >>> there.poll(None)
        [(0, Lost(number=0))]
        >>> there.close()
    """

    def __init__(self, number: int, arena: Arena | None = None) -> None:
        self.number = number
        self.arena = arena or Arena()
        self._mappings = Mappings()
        self._peers: dict[int, _Peer] = {}
        self._peer_of: dict[int, _Peer] = {}
        self._unsent: set[_Peer] = set()
        self._posted: deque[tuple[int, object]] = deque()
        self._inbox: list[tuple[int, object]] = []
        self._thread = threading.get_ident()
        self._in_foreign_code = False  # such as the pickling of a user's class
        self._flushed_s = 0.0
        self._poller = select.poll()
        self._waking, self._woken = socket.socketpair()
        self._waking.setblocking(False)
        self._woken.setblocking(False)
        self._poller.register(self._woken, select.POLLIN)
        _meshes.add(self)

    @property
    def peers(self) -> tuple[int, ...]:
        """Return the numbers of the connected processes that have not been lost."""
        return tuple(self._peers)

    def connect(self, number: int, connection: socket.socket) -> None:
        """Take a socket whose other end is at the process of this number."""
        peer = _Peer(number, Wire(connection))
        self._peers[number] = self._peer_of[connection.fileno()] = peer
        self._poller.register(connection, select.POLLIN)

    def introduce(self, one: int, other: int) -> None:
        """Connect two processes that this one is connected to with each other."""
        end, other_end = socket.socketpair()
        for to, number, connection in ((one, other, end), (other, one, other_end)):
            owner = _Descriptor(connection.detach())
            if (peer := self._peers.get(to)) is not None:
                peer.wire.queue(INTRODUCTION, str(number).encode(), (owner.number,), owner)
                self._unsent.add(peer)

    def send(self, to: int, message: object, by_value: bool = False) -> None:
        """Send a message with the next `flush` or `poll`; drop it if the process is lost.

        Args:
            to: Number of the process that receives it.
            message: Any object that can be pickled.
            by_value: Whether the receiver gets a copy of its own that it may write to; classes and
                functions of `__main__` and inside of functions are sent as well, by cloudpickle.
                Arrays in shared memory are not copied: the sender must not use them any more, or
                agree with the receiver on who uses which part.
        """
        self.send_all((to,), message, by_value)

    def send_all(self, to: Sequence[int], message: object, by_value: bool = False) -> None:
        """Send a message to several processes, which share one copy of its buffers."""
        if self._posted:
            self._send_posted()
        self._send(to, message, by_value)

    def post(self, to: int, message: object) -> None:
        """Send a message from any thread, a finalizer or a signal handler.

        It goes out with the next call of any other method that sends. A `poll` that waits in
        another thread returns.
        """
        self._posted.append((to, message))
        if threading.get_ident() != self._thread:
            self.wake()

    def post_soon(self, to: int, message: object) -> None:
        """Send a message from any thread, and no later than the next one after a moment."""
        self.post(to, message)
        now_s = time.monotonic()
        own = threading.get_ident() == self._thread
        if own and not self._in_foreign_code and now_s - self._flushed_s >= SOON_S:
            self._flushed_s = now_s
            self.flush()

    def wake(self) -> None:
        """Let `poll` return in the thread that waits there, or the next call if there is none."""
        with suppress(OSError):  # it has been woken often enough, or it has been closed
            self._waking.send(b"\0")

    def flush(self) -> None:
        """Send what is queued, as far as sockets take it without waiting."""
        if self._posted:
            self._send_posted()
        if self._mappings.freed:
            self._send_releases()
        if self._unsent:
            for peer in list(self._unsent):
                self._flush(peer)

    def poll(self, timeout_s: float | None) -> list[tuple[int, object]]:
        """Send what is queued, and return received messages with the number of their sender.

        The last message of a process is `Lost`.

        Args:
            timeout_s: Seconds to wait for the first message; None for no limit. After `wake` the
                list may be empty before the time is over.
        """
        if self._inbox:
            timeout_s = 0
        end = None if timeout_s is None else time.monotonic() + timeout_s
        wait_s = timeout_s
        while True:
            self.flush()
            woken = self._receive_ready(None if wait_s is None else wait_s * 1000)
            if self._inbox or woken:
                break
            if end is not None:
                wait_s = end - time.monotonic()
                if wait_s <= 0:
                    break
        received, self._inbox = self._inbox, []
        return received

    def put_back(self, messages: Sequence[tuple[int, object]]) -> None:
        """Let the next `poll` return messages that an earlier one has returned."""
        self._inbox[:0] = messages

    def discard_until_lost(self, number: int) -> None:
        """Send what is queued and drop what arrives until a process is lost."""
        while number in self._peers:
            self.poll(None)

    def close(self) -> None:
        """Close all connections. Received messages stay valid; what is still queued is dropped."""
        for peer in self._peers.values():
            peer.wire.close()
        self._peers.clear()
        self._peer_of.clear()
        self._unsent.clear()
        self._waking.close()
        self._woken.close()
        self.arena.close()

    def _send(self, to: Sequence[int], message: object, by_value: bool = False) -> None:
        peers = [peer for number in to if (peer := self._peers.get(number)) is not None]
        if not peers:
            return
        buffers: list[pickle.PickleBuffer] = []
        blocks: list[Block] = []
        with self._foreign_code(collecting=not by_value):
            data = packed(message, buffers.append, by_value, take_block=blocks.append)
        for peer in peers:
            for block in blocks:
                body = _BLOCK.pack(block.id, len(block))
                peer.wire.queue(BLOCK, body, (block.descriptor,), block)
        if not buffers and len(data) < SHARED_PICKLE_FROM_BYTES:
            for peer in peers:
                peer.wire.queue(PLAIN, data)
            self._unsent.update(peers)
            return
        views = [buffer.raw() for buffer in buffers]
        if len(data) >= SHARED_PICKLE_FROM_BYTES:
            views.append(memoryview(data))
            data = b""
        elif sum(map(len, views)) < SHARED_FROM_BYTES:
            head = array("Q", [len(views), *map(len, views)]).tobytes()
            body = b"".join((head, *views, data))
            for peer in peers:
                peer.wire.queue(OWN_BUFFERS if by_value else WITH_BUFFERS, body)
            self._unsent.update(peers)
            return
        if by_value:  # each gets a copy that it may write to
            for peer in peers:
                self._send_slot([peer], self.arena.put(views), data, OWN_SLOT)
        else:
            self._send_slot(peers, self.arena.put(views, len(peers)), data, WITH_SLOT)

    @contextmanager
    def _foreign_code(self, *, collecting: bool) -> Iterator[None]:
        """Pickle or unpickle, which may call functions of the user.

        The garbage collector pauses unless `collecting`: state that moves may be hundreds of
        thousands of Python objects. All of them are in use, and collections while they are read
        take several times as long as the reading.
        """
        pausing = not collecting and gc.isenabled()
        if pausing:
            gc.disable()
        outer, self._in_foreign_code = self._in_foreign_code, True
        try:
            yield
        finally:
            self._in_foreign_code = outer
            if pausing:
                gc.enable()

    def _send_slot(self, peers: Iterable[_Peer], slot: Slot, data: bytes, kind: int) -> None:
        words = array("Q", [len(slot.starts), *slot[:4], *slot.starts, *slot.lengths])
        body = words.tobytes() + data
        for peer in peers:
            if slot.segment not in peer.has_segments:
                descriptor, size = self.arena.descriptor(slot.segment)
                peer.wire.queue(SEGMENT, _SEGMENT.pack(slot.segment, size), (descriptor,))
                peer.has_segments.add(slot.segment)
            peer.wire.queue(kind, body)
            peer.holds.add(slot.id)
            self._unsent.add(peer)

    def _send_posted(self) -> None:
        while self._posted:
            to, message = self._posted.popleft()
            self._send((to,), message)

    def _send_releases(self) -> None:
        freed: dict[int, array[int]] = {}
        while self._mappings.freed:
            owner, slot_id = self._mappings.freed.popleft()
            freed.setdefault(owner, array("Q")).append(slot_id)
        for owner, slot_ids in freed.items():
            peer = self._peers.get(owner)
            if peer is not None:
                peer.wire.queue(RELEASE, slot_ids.tobytes())
                self._unsent.add(peer)

    def _flush(self, peer: _Peer) -> None:
        all_sent = peer.wire.flush()
        if all_sent:
            self._unsent.discard(peer)
        if all_sent is peer.is_watched_for_space:
            events = select.POLLIN if all_sent else select.POLLIN | select.POLLOUT
            self._poller.modify(peer.wire, events)
            peer.is_watched_for_space = not all_sent

    def _receive_ready(self, timeout_ms: float | None) -> bool:
        woken = False
        for descriptor, events in self._poller.poll(timeout_ms):
            peer = self._peer_of.get(descriptor)
            if peer is None:
                self._woken.recv(4096)
                woken = True
                continue
            if events & select.POLLOUT:
                self._flush(peer)
            if events & ~select.POLLOUT:
                self._receive(peer)
        return woken

    def _receive(self, peer: _Peer) -> None:
        for kind, body, descriptors in peer.wire.receive():
            if kind in _MESSAGES:
                self._inbox.append((peer.number, self._message(peer, kind, body)))
                peer.blocks.clear()
            elif kind == RELEASE:
                for slot_id in body.cast("Q"):
                    self.arena.release(slot_id)
                    peer.holds.discard(slot_id)
            elif kind == BLOCK:
                id_, size = _BLOCK.unpack(body)
                peer.blocks.append(receive_block(id_, descriptors[0], size))
            elif kind == INTRODUCTION:
                self.connect(int(bytes(body)), socket.socket(fileno=descriptors[0]))
            else:
                number, size = _SEGMENT.unpack(body)
                self._mappings.add(peer.number, number, descriptors[0], size)
                os.close(descriptors[0])
        if peer.wire.ended:
            self._lose(peer)

    def _message(self, peer: _Peer, kind: int, body: memoryview) -> object:
        with self._foreign_code(collecting=kind not in (OWN_BUFFERS, OWN_SLOT)):
            if kind == PLAIN:
                return pickle.loads(body)
            if kind in (WITH_BUFFERS, OWN_BUFFERS):
                return _read_buffers(body)
            return self._read_slot(peer.number, body, writable=kind == OWN_SLOT)

    def _read_slot(self, owner: int, body: memoryview, writable: bool) -> object:
        count = body[:_WORD].cast("Q")[0]
        end = _WORD * (5 + 2 * count)
        words = body[_WORD:end].cast("Q").tolist()
        starts, lengths = tuple(words[4 : 4 + count]), tuple(words[4 + count :])
        slot = Slot(words[0], words[1], words[2], words[3], starts, lengths)
        opened = self._mappings.open_writable if writable else self._mappings.open
        buffers: list[Any] = list(opened(owner, slot))
        data = body[end:] if len(body) > end else buffers.pop()
        return pickle.loads(data, buffers=buffers)

    def _lose(self, peer: _Peer) -> None:
        self._poller.unregister(peer.wire)
        del self._peers[peer.number], self._peer_of[peer.wire.fileno()]
        self._unsent.discard(peer)
        peer.wire.close()
        if peer.number != COORDINATOR:  # the user may keep results after the end of the run
            for slot_id in peer.holds:
                self.arena.release(slot_id)
        self._inbox.append((peer.number, Lost(peer.number)))


_meshes: weakref.WeakSet[Mesh] = weakref.WeakSet()


def _forget_all() -> None:
    # A forked process that kept the connections open would hide the end of its parent from others.
    for mesh in list(_meshes):
        mesh.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)


def connect_pair(one: Mesh, other: Mesh) -> None:
    """Connect two meshes of this process."""
    end, other_end = socket.socketpair()
    one.connect(other.number, end)
    other.connect(one.number, other_end)


def packed(
    message: object,
    take_buffer: Callable[[pickle.PickleBuffer], object],
    by_value: bool = False,
    take_class: Callable[[type], object] = id,
    take_block: Callable[[Block], object] | None = None,
) -> bytes:
    """Return a message as bytes, but for its buffers.

    Args:
        message: What is packed.
        take_buffer: Called with each buffer, which is then left out, unless it returns True.
        by_value: Whether to use cloudpickle.
        take_class: Called with each class of `__main__` that cloudpickle sends.
        take_block: Called with the shared memory of each array that is only referred to; without
            it, and unless `by_value`, the content of such arrays is packed.
    """
    file = io.BytesIO()
    pickler: Any
    if by_value:
        import cloudpickle

        class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
            def reducer_override(self, value: object) -> Any:
                if isinstance(value, type) and value.__module__ == "__main__":
                    take_class(value)
                if take_block is not None and (shared := reference(value)) is not None:
                    block, reduced = shared
                    take_block(block)
                    return reduced
                return super().reducer_override(value)

        pickler = Pickler(file, 5, buffer_callback=take_buffer)
        pickler.dispatch_table = pickler.dispatch_table.new_child(_REDUCERS)
    else:
        pickler = pickle.Pickler(file, 5, buffer_callback=take_buffer)
        pickler.dispatch_table = copyreg.dispatch_table | _REDUCERS
    pickler.dump(message)
    return file.getvalue()


def _read_buffers(body: memoryview) -> object:
    count = body[:_WORD].cast("Q")[0]
    start = _WORD * (1 + count)
    buffers = []
    for length in body[_WORD:start].cast("Q"):
        buffers.append(bytearray(body[start : start + length]))
        start += length
    return pickle.loads(body[start:], buffers=buffers)


def _reduced(batch: pa.RecordBatch | pa.Table) -> Any:
    """Reduce a small batch to one buffer, and a slice to its own rows.

    pyarrow pickles each column by itself, which takes longer than a copy of a small batch. Of a
    slice it would send all rows that the buffers have.
    """
    size = batch.get_total_buffer_size()
    if size > ONE_BUFFER_BYTES and size <= 2 * batch.nbytes:
        return batch.__reduce_ex__(5)
    written = pa.BufferOutputStream()
    with pa.ipc.new_stream(written, batch.schema) as stream:
        stream.write(batch)
    restore = _batch_of if isinstance(batch, pa.RecordBatch) else _table_of
    return restore, (written.getvalue(),)


def _table_of(written: pa.Buffer) -> pa.Table:
    return pa.ipc.open_stream(written).read_all()


def _batch_of(written: pa.Buffer) -> pa.RecordBatch:
    return pa.ipc.open_stream(written).read_next_batch()


_REDUCERS: dict[type, Callable[[Any], Any]] = {pa.RecordBatch: _reduced, pa.Table: _reduced}
