"""Text that any terminal can show: nothing in a name may move its cursor or change its colours."""

from __future__ import annotations

from collections.abc import Sequence

BLOCKS = "▁▂▃▄▅▆▇█"
IN_ASCII = str.maketrans("░├└─│·→×…–" + BLOCKS, ".|`-|+>x~-" + "__..--##")


def printable(text: str, ascii_only: bool = False) -> str:
    r"""A text without what a terminal would take for a command.

    Example:
        >>> printable("a\x1b[2Jb\nc"), printable("1 → 2 … é", ascii_only=True)
        ('a�[2Jb�c', '1 > 2 ~ ?')
    """
    if not text.isprintable():
        text = "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text)
    if ascii_only:
        text = text.translate(IN_ASCII).encode("ascii", "replace").decode()
    return text


def bar(share: float, cells: int) -> str:
    """A part of 1 as a bar.

    Example:
        >>> bar(0.52, 10)
        '█████░░░░░'
    """
    full = round(min(max(share, 0.0), 1.0) * cells)
    return "█" * full + "░" * (cells - full)


def curve(values: Sequence[float | None]) -> str:
    """Values over time as one line, the highest as a full block; blank where there is none.

    Example:
        >>> curve([None, 0.0, 5.0, 10.0])
        ' ▁▅█'
    """
    highest = max((value for value in values if value is not None), default=0.0)
    steps = len(BLOCKS) - 1
    return "".join(
        " " if value is None else BLOCKS[round(steps * value / highest) if highest else 0]
        for value in values
    )
