"""Shows in the user's process what steps print and log in workers.

In a worker, `forward` replaces the standard streams and the handlers of the root logger by ones
that send messages. In the user's process, `show` writes those messages.
"""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass
from typing import Any, Literal

Stream = Literal["stdout", "stderr"]


@dataclass
class Current:
    """The step that runs in this process at the moment, None between steps."""

    step: str | None = None


current = Current()


@dataclass(frozen=True)
class Printed:
    """Complete lines that a step has written to a standard stream."""

    stream: Stream
    step: str | None
    text: str


@dataclass(frozen=True)
class Logged:
    """A log record of a step."""

    record: logging.LogRecord
    step: str | None


Send = Callable[["Printed | Logged"], object]
"""Takes a message for the user's process, in any thread."""


def levels() -> dict[str, int]:
    """Return the levels of all loggers of this process that have one; "" is the root logger."""
    named = {
        name: logger.level
        for name, logger in list(logging.root.manager.loggerDict.items())
        if isinstance(logger, logging.Logger) and logger.level
    }
    return {"": logging.root.level} | named


def forward(send: Send, log_levels: Mapping[str, int]) -> None:
    """Send from now on everything that is printed and logged in this process."""
    sys.stdout, sys.stderr = _text_stream("stdout", send), _text_stream("stderr", send)
    logging.root.handlers[:] = [RecordSender(send)]
    for name in levels().keys() - log_levels.keys():
        logging.getLogger(name).setLevel(logging.NOTSET)
    for name, level in log_levels.items():
        logging.getLogger(name).setLevel(level)


def stop_forwarding() -> None:
    """Send the lines that are not complete, and use the process's own streams again."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(sender := getattr(stream, "buffer", None), LineSender):
            sender.send_rest()
    sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
    logging.root.handlers.clear()


def show(message: Printed | Logged) -> None:
    """Write what a step has printed, with the step's name, or handle its log record.

    Example:
        >>> show(Printed("stdout", "split", "a line"))
        split: a line
    """
    if isinstance(message, Logged):
        message.record.step = message.step
        logging.getLogger(message.record.name).handle(message.record)
        return
    prefix = "" if message.step is None else f"{message.step}: "
    stream = sys.stdout if message.stream == "stdout" else sys.stderr
    if stream is not None:
        stream.write("".join(f"{prefix}{line}\n" for line in message.text.split("\n")))
        stream.flush()


class LineSender(io.RawIOBase):
    """A stream of bytes that sends complete lines as text."""

    def __init__(self, name: Stream, send: Send) -> None:
        self.name: Stream = name
        self._send = send
        self._rest = b""

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        stream = sys.__stdout__ if self.name == "stdout" else sys.__stderr__
        if stream is None:
            raise io.UnsupportedOperation("fileno")
        return stream.fileno()

    def write(self, data: Any) -> int:
        written = bytes(data)
        lines, newline, rest = written.rpartition(b"\n")
        if newline:
            complete, self._rest = self._rest + lines, rest
            self._send_text(complete)
        else:
            self._rest += rest
        return len(written)

    def send_rest(self) -> None:
        """Send the last line though it has no end."""
        rest, self._rest = self._rest, b""
        if rest:
            self._send_text(rest)

    def _send_text(self, data: bytes) -> None:
        self._send(Printed(self.name, current.step, data.decode(errors="replace")))


def _text_stream(name: Stream, send: Send) -> io.TextIOWrapper:
    sender = LineSender(name, send)
    return io.TextIOWrapper(sender, "utf-8", "backslashreplace", "\n", write_through=True)


class RecordSender(logging.Handler):
    """A log handler that sends records."""

    def __init__(self, send: Send) -> None:
        super().__init__()
        self._send = send

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._send(Logged(_portable(record), current.step))
        except Exception:
            self.handleError(record)


def _portable(record: logging.LogRecord) -> logging.LogRecord:
    """Return a record with texts in place of objects that another process may not have."""
    portable = copy(record)
    portable.msg, portable.args = record.getMessage(), None
    if record.exc_info:
        portable.exc_text = record.exc_text or logging.Formatter().formatException(record.exc_info)
        portable.exc_info = None
    standard = logging.makeLogRecord({}).__dict__.keys()
    for name in portable.__dict__.keys() - standard:
        value = portable.__dict__[name]
        if not isinstance(value, str | int | float | bool | None):
            portable.__dict__[name] = str(value)
    return portable
