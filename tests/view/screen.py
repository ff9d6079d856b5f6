"""A terminal, as much of one as rich makes use of: what stands on it after some output."""

from __future__ import annotations

import re

from rich.cells import cell_len

TOKEN = re.compile(r"\x1b\[(\??[\d;]*)([A-Za-z])|\r|\n|[^\x1b\r\n]+|\x1b")


class Screen:
    """Lines that were written, with everything that has scrolled out at the top."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self.lines = [""]
        self._row = self._column = 0

    def write(self, output: str) -> None:
        for token in TOKEN.finditer(output):
            if token[2] is not None:
                self._control(token[1], token[2])
            elif token[0] == "\r":
                self._column = 0
            elif token[0] == "\n":
                self._row, self._column = self._row + 1, 0
                self.lines += [""] * (self._row + 1 - len(self.lines))
            elif token[0] == "\x1b":
                raise AssertionError("an escape that is no control sequence")
            else:
                self._text(token[0])

    def _text(self, text: str) -> None:
        assert self._column + cell_len(text) <= self.width, f"wider than the terminal: {text!r}"
        line = self.lines[self._row].ljust(self._column)
        self.lines[self._row] = line[: self._column] + text + line[self._column + len(text) :]
        self._column += len(text)

    def _control(self, arguments: str, command: str) -> None:
        if command == "A":
            # What has scrolled out cannot be reached any more.
            top = max(0, len(self.lines) - self.height)
            self._row = max(top, self._row - int(arguments or 1))
        elif command == "K":
            assert arguments == "2"
            self.lines[self._row] = ""
        else:
            assert command in "mhl", f"a command that this terminal does not know: {command}"

    @property
    def text(self) -> str:
        """What stands there, without what is blank at the end."""
        return "\n".join(line.rstrip() for line in self.lines).rstrip()
