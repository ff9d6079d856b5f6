"""What becomes of texts that a reader of Arrow takes all at once, or not at all.

Whether a text is good, and what it says, must follow from that text alone and not from its
neighbours: texts that could run into the next one are sorted out first. Where the others do not
parse together, they are cut until the bad ones stand alone; where that takes too long, because
there are many, each is looked at once, and what is surely bad is taken out.
"""

from __future__ import annotations

import re
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from anabranch.state.key_words import Mask
from anabranch.state.positions import Ints

_NAMED_ROW = re.compile(r" in row (?P<zero>\d+)$|Row #(?P<one>\d+): ")
_FEWEST = 64
_ATTEMPT = 512
"""So many texts could be read in the time that an attempt takes by itself."""

BLANK = "a blank text"
"""What is wrong with a text of nothing but space; a line like that can be passed over."""

Bad = list[tuple[int, str]]


class Parsed(NamedTuple):
    """What became of texts.

    Attributes:
        columns: A row for each good text, in pieces.
        rows: The number of the text that each of these rows came from, ascending.
        bad: The numbers of the other texts, each with what is wrong with it.
    """

    columns: list[pa.Table]
    rows: Ints
    bad: Bad


class Sifted(NamedTuple):
    """What texts look like.

    Attributes:
        wrong: The numbers of those that are surely bad, each with what is wrong with it.
        doubtful: Which of them look bad, and should be read by themselves.
    """

    wrong: dict[int, str]
    doubtful: Mask


class Grammar(Protocol):
    """How texts become columns.

    An implementer owes: what becomes of a text follows from that text alone.
    """

    name: str

    def check(self) -> None:
        """Raise pa.ArrowInvalid, or that it is not implemented, if no text could be parsed."""

    def parse(self, texts: pa.Array) -> Parsed:
        """Parse texts, of which none is null."""


class ReadTogether:
    """A grammar by one of Arrow's readers, which gives all texts or none.

    An implementer owes: texts that `sane` admits parse together exactly as each would alone; what
    `sift` calls wrong does not parse.

    Attributes:
        name: What a text should be.
        blank: A text without any value.
        stops_at_bad: Whether the reader stops at the bad text that it names.
        patience: So many times all texts are read in vain before they are sifted; how often that
            pays depends on how much longer sifting takes than reading.
    """

    name: str
    blank: str
    stops_at_bad: bool
    patience: float

    def sane(self, texts: pa.Array) -> Mask:
        """Which texts cannot disturb others; the rest is bad."""
        raise NotImplementedError

    def complaint(self, text: str) -> str:
        """What is wrong with a text that is not sane."""
        raise NotImplementedError

    def explain(self, text: pa.Array, error: pa.ArrowInvalid) -> str:
        """What is wrong with one text that is sane and does not parse, in words of our own."""
        raise NotImplementedError

    def read(self, texts: pa.Array) -> pa.Table:
        """A row for each text; raises pa.ArrowInvalid when one of them is bad."""
        raise NotImplementedError

    def check(self) -> None:
        """Read a text without a value."""
        self.read(pa.array([self.blank]))

    def sift(self, texts: pa.Array) -> Sifted:
        """Look at texts of which one is bad at least; what is said of one follows from it alone."""
        raise NotImplementedError

    def parse(self, texts: pa.Array) -> Parsed:
        """All at once; when that fails, in pieces, until the bad ones stand alone."""
        sane = self.sane(texts)
        rows = np.flatnonzero(sane).astype(np.int64)
        others = np.flatnonzero(~sane).tolist()
        bad = [(row, self.complaint(texts[row].as_py())) for row in others]
        if bad:
            texts = texts.take(pa.array(rows))
        pieces = _Pieces(self, texts, rows)
        done = pieces.read(size=len(rows), patience=self.patience * len(rows))
        if done < len(rows):
            pieces.add(_sifted(self, texts.slice(done), rows[done:]))
        found = pieces.found()
        return Parsed(found.columns, found.rows, bad + found.bad)

    def read_all(self, texts: pa.Array) -> pa.Table:
        """As `read` does, and sure that there is a row for each text."""
        table = self.read(texts)
        if table.num_rows != len(texts):
            raise pa.ArrowInvalid(f"{table.num_rows} rows in {len(texts)} text(s)")
        return table


class _Pieces:
    """Texts that are read in pieces: more at a time when that goes well, fewer when it does not."""

    def __init__(self, grammar: ReadTogether, texts: pa.Array, rows: Ints) -> None:
        self._grammar, self._texts, self._rows = grammar, texts, rows
        self._columns: list[pa.Table] = []
        self._good: list[Ints] = []
        self._bad: Bad = []

    def read(self, size: int, patience: float, fewest: int = _FEWEST) -> int:
        """Read until patience is lost; how far that came.

        Args:
            size: How many to read at first.
            patience: How many may be read in vain.
            fewest: How many to try at least behind a bad one.
        """
        start, in_vain, last_bad = 0, 0, -1
        suspect, fails_by = -1, 0  # a text that was named; where a piece ends that does not parse
        while start < len(self._rows) and in_vain <= patience:
            stop = min(start + size, len(self._rows))
            if start <= suspect < stop:  # what stands before it by itself, then it by itself
                stop = suspect if start < suspect else start + 1
            elif start < fails_by:
                stop = min(stop, start + max(1, (fails_by - start) // 2))
            if stop - start == 1 and not self._read_one(start):
                in_vain += _ATTEMPT
                size, last_bad = max(fewest, 2 * (start - last_bad) - 1), start
                start, fails_by = stop, 0
                continue
            try:
                if stop - start > 1:
                    self._read_some(start, stop)
            except pa.ArrowInvalid as error:
                named = _row_of(error, stop - start)
                stopped_early = named is not None and self._grammar.stops_at_bad
                in_vain += _ATTEMPT + ((named or 0) if stopped_early else stop - start)
                suspect, fails_by = -1 if named is None else start + named, stop
            else:
                start, size = stop, 2 * size
        return start

    def add(self, found: Parsed) -> None:
        """What became of others, which stand behind those read so far."""
        self._columns += found.columns
        self._good.append(found.rows)
        self._bad += found.bad

    def found(self) -> Parsed:
        """What became of all."""
        good = self._good
        rows = good[0] if len(good) == 1 else np.concatenate([self._rows[:0], *good])
        return Parsed(self._columns, rows, self._bad)

    def _read_some(self, start: int, stop: int) -> None:
        self._columns.append(self._grammar.read_all(self._texts.slice(start, stop - start)))
        self._good.append(self._rows[start:stop])

    def _read_one(self, place: int) -> bool:
        """Whether a text is good; what is said of a bad one is the same however it was found."""
        try:
            self._read_some(place, place + 1)
        except pa.ArrowInvalid as error:
            text = self._texts.slice(place, 1)
            seen = self._grammar.sift(text).wrong
            why = seen[0] if seen else self._grammar.explain(text, error)
            self._bad.append((int(self._rows[place]), why))
            return False
        return True


def _sifted(grammar: ReadTogether, texts: pa.Array, rows: Ints) -> Parsed:
    """Each is looked at; those that look right are read together, the doubtful by themselves."""
    wrong, doubtful = grammar.sift(texts)
    bad = [(int(rows[row]), why) for row, why in wrong.items()]
    doubtful[list(wrong)] = False
    plain = ~doubtful
    plain[list(wrong)] = False
    columns: list[pa.Table] = []
    good: list[Ints] = []
    for mask, size, fewest in ((plain, len(rows), _FEWEST), (doubtful, 1, 1)):
        chosen = np.flatnonzero(mask)
        pieces = _Pieces(grammar, texts.take(pa.array(chosen)), rows[chosen])
        pieces.read(size, np.inf, fewest)
        found = pieces.found()
        columns += found.columns
        good.append(found.rows)
        bad += found.bad
    order = np.argsort(together := np.concatenate(good), kind="stable")
    if columns and len(good[1]):
        columns = [pa.concat_tables(columns).take(pa.array(order))]
    return Parsed(columns, together[order], bad)


def plain_words(error: pa.ArrowInvalid) -> str:
    """What Arrow says of a text, without where it stood among those read together."""
    return _NAMED_ROW.sub("", str(error))


def _row_of(error: pa.ArrowInvalid, rows: int) -> int | None:
    """The row that Arrow names; a hint that saves attempts, nothing depends on its being right."""
    named = _NAMED_ROW.search(str(error))
    if named is None:
        return None
    row = int(named["zero"]) if named["zero"] else int(named["one"]) - 1
    return row if 0 <= row < rows else None
