"""Frames and file descriptors over a stream socket of one host, without ever waiting for the peer.

What a process sends is queued and goes out when the socket takes it. Two processes that send much
to each other therefore never wait for each other.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from array import array
from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

RECEIVED_BYTES = 256 << 10
FRAMES_PER_CALL = 64
MAX_DESCRIPTORS = 16
"""The most file descriptors of one frame."""

_HEADER = struct.Struct("<IBB")
_HEADER_BYTES = _HEADER.size
_ANCILLARY_BYTES = 4096
_FLAGS = getattr(socket, "MSG_CMSG_CLOEXEC", 0)


class Frame(NamedTuple):
    """A received frame.

    Attributes:
        kind: A number below 256 that the sender chose.
        body: Its bytes. They are valid until the next call of `Wire.receive`.
        descriptors: File descriptors that came with it. They belong to the receiver.
    """

    kind: int
    body: memoryview
    descriptors: tuple[int, ...]


class Wire:
    """One end of a connection between two processes.

    Args:
        connection: A stream socket of the family AF_UNIX.
        blocking: Whether `flush` and `receive` wait.

    Example:
        >>> near, far = (Wire(end) for end in socket.socketpair())
        >>> near.queue(7, b"hello")
        >>> near.flush()
        True
        >>> [(frame.kind, bytes(frame.body)) for frame in far.receive()]
        [(7, b'hello')]
        >>> near.close()
        >>> far.receive(), far.ended
        ([], True)
        >>> far.close()
    """

    def __init__(self, connection: socket.socket, blocking: bool = False) -> None:
        connection.setblocking(blocking)
        self.ended = False
        """Whether the peer has closed its end or died."""
        self._socket = connection
        self._outgoing: deque[tuple[bytes | memoryview, Sequence[int], object]] = deque()
        self._broken = False
        self._received = memoryview(bytearray(RECEIVED_BYTES))
        self._filled = 0
        self._parsed = 0
        self._descriptors: deque[int] = deque()

    def fileno(self) -> int:
        """Return the number of the socket."""
        return self._socket.fileno()

    def queue(
        self, kind: int, body: bytes, descriptors: Sequence[int] = (), owner: object = None
    ) -> None:
        """Send a frame with the next calls of `flush`; its descriptors must stay open until then.

        Descriptors arrive as new ones that refer to the same files. What owns those of this process
        is referred to until they have been sent.
        """
        assert len(descriptors) <= MAX_DESCRIPTORS
        header = _HEADER.pack(len(body), kind, len(descriptors))
        self._outgoing.append((header + body, descriptors, owner))

    def flush(self) -> bool:
        """Send what the socket takes, and return whether nothing is left.

        Frames to a peer that has gone are dropped; `receive` reports its end after what it sent.
        """
        outgoing = self._outgoing
        while outgoing:
            try:
                sent = self._send_some()
            except (BlockingIOError, InterruptedError):
                return False
            except OSError as error:
                # The system limits descriptors that are on their way; the peer takes them soon.
                if error.errno == errno.ETOOMANYREFS:
                    return False
                if not isinstance(error, ConnectionError):
                    raise
                self._broken = True
            if self._broken:
                outgoing.clear()
                break
            while outgoing and sent >= len(outgoing[0][0]):
                sent -= len(outgoing.popleft()[0])
            if sent:
                # The descriptors went with the first byte.
                outgoing[0] = (memoryview(outgoing[0][0])[sent:], (), None)
        return True

    def receive(self) -> list[Frame]:
        """Return the frames that have arrived; none of them and `ended` after the last."""
        self._make_space()
        try:
            count, ancillary, flags, _ = self._socket.recvmsg_into(
                [self._received[self._filled :]], _ANCILLARY_BYTES, _FLAGS
            )
        except (BlockingIOError, InterruptedError):
            return []
        except ConnectionError:
            count, ancillary, flags = 0, [], 0
        if ancillary:
            self._take_descriptors(ancillary)
        if flags & socket.MSG_CTRUNC:
            raise OSError("this process has too many open files to receive another one")
        if not count:
            self.ended = True
            return []
        self._filled += count
        return self._complete_frames()

    def close(self) -> None:
        """Close the socket and every received descriptor that no frame has handed over."""
        self._socket.close()
        self._outgoing.clear()
        while self._descriptors:
            os.close(self._descriptors.popleft())

    def _send_some(self) -> int:
        first, descriptors, _ = self._outgoing[0]
        if descriptors:
            rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", descriptors))
            return self._socket.sendmsg([first], [rights])
        if len(self._outgoing) == 1:
            return self._socket.send(first)
        batch = []
        for data, following, _ in islice(self._outgoing, FRAMES_PER_CALL):
            if following:
                break
            batch.append(data)
        return self._socket.sendmsg(batch)

    def _make_space(self) -> None:
        """Move the beginning of an incomplete frame to the front, in a buffer that can hold it."""
        rest = self._filled - self._parsed
        needed = _HEADER_BYTES
        if rest >= _HEADER_BYTES:
            needed += _HEADER.unpack_from(self._received, self._parsed)[0]
        if needed > len(self._received):
            larger = memoryview(bytearray(max(needed, 2 * len(self._received))))
            larger[:rest] = self._received[self._parsed : self._filled]
            self._received = larger
        elif rest and self._parsed:
            self._received[:rest] = self._received[self._parsed : self._filled]
        self._filled, self._parsed = rest, 0

    def _complete_frames(self) -> list[Frame]:
        frames = []
        received, start, end = self._received, self._parsed, self._filled
        while end - start >= _HEADER_BYTES:
            length, kind, count = _HEADER.unpack_from(received, start)
            body = start + _HEADER_BYTES
            if body + length > end:
                break
            start = body + length
            # Descriptors never come later than the first byte of their frame.
            descriptors = tuple(self._descriptors.popleft() for _ in range(count))
            frames.append(Frame(kind, received[body:start], descriptors))
        self._parsed = start
        return frames

    def _take_descriptors(self, ancillary: list[tuple[int, int, bytes]]) -> None:
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                numbers = array("i")
                numbers.frombytes(data[: len(data) - len(data) % numbers.itemsize])
                for descriptor in numbers:
                    os.set_inheritable(descriptor, False)
                self._descriptors.extend(numbers)
