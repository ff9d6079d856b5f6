"""Serial work in words: a list for plans, and a line for runs."""

from __future__ import annotations

from anabranch.planning.serial import SerialRegion, SerialWork

LEAST = 0.001
"""A part below this is not worth a number."""


def serial_lines(found: SerialWork) -> list[str]:
    r"""Return every serial region with its reason, and what they bound.

    Example:
        >>> out = SerialRegion("out", "takes a changelog", 0.01)
        >>> found = SerialWork((SerialRegion("count", "is stateful", 0.03), out), 0.03)
        >>> print(*serial_lines(found), sep="\n")
        4.0 % of the work is serial: at most 33 cores can help, since `count` takes 3.0 %
          3.0 %  `count` is stateful
          1.0 %  `out` takes a changelog
        >>> print(*serial_lines(SerialWork((SerialRegion("count", "is stateful"),))), sep="\n")
        serial, whatever the plan:
          `count` is stateful
    """
    if not found.regions:
        return ["nothing is serial"]
    if found.share is None:
        return ["serial, whatever the plan:", *(f"  {_reason(each)}" for each in found.regions)]
    head = f"{percent(found.share)} of the work is serial"
    if found.most_cores is not None:
        head += f": {cores_words(found.most_cores)}"
        if len(found.regions) > 1:
            first = found.regions[0]
            head += f", since `{first.region}` takes {percent(first.share or 0.0)}"
    shares = [percent(each.share or 0.0) for each in found.regions]
    width = max(map(len, shares))
    rows = zip(shares, found.regions, strict=True)
    return [head, *(f"  {share:>{width}}  {_reason(each)}" for share, each in rows)]


def serial_line(found: SerialWork) -> str | None:
    """Return the serial region with most work and what is bounded; None where none is serial.

    Example:
        >>> out = SerialRegion("out", "takes a changelog", 0.01)
        >>> count = SerialRegion("count", "is stateful", 0.03)
        >>> serial_line(SerialWork((count,), 0.03))
        '`count` is stateful (3.0 % of the work): at most 33 cores can help'
        >>> serial_line(SerialWork((count, out), 0.03))
        '`count` is stateful (3.0 % of the work), 1 more (1.0 %): at most 33 cores can help'
        >>> serial_line(SerialWork((SerialRegion("count", "is stateful"),)))
        '`count` is stateful'
    """
    if not found.regions:
        return None
    first, *others = found.regions
    line = _reason(first)
    if found.share is None:
        return line + (f", {len(others)} more" if others else "")
    line += f" ({percent(first.share or 0.0)} of the work)"
    if others:
        line += f", {len(others)} more ({percent(sum(each.share or 0.0 for each in others))})"
    return line if found.most_cores is None else f"{line}: {cores_words(found.most_cores)}"


def percent(share: float) -> str:
    """A part of 1, with two digits where that matters.

    Example:
        >>> percent(0.4567), percent(0.03456), percent(0.0002), percent(0.0)
        ('46 %', '3.5 %', '<0.1 %', '0 %')
    """
    if 0 < share < LEAST:
        return f"<{LEAST:.1%}".replace("%", " %")
    return f"{100 * share:.{1 if 0 < share < 0.1 else 0}f} %"


def cores_words(most: float) -> str:
    """What a bound of cores says.

    Example:
        >>> cores_words(33.3), cores_words(1.66), cores_words(1.0)
        ('at most 33 cores can help', 'at most 1.7 cores can help', 'at most 1 core can help')
    """
    number = f"{int(most):,}" if most >= 10 else f"{most:.2g}"
    return f"at most {number} core{'' if number == '1' else 's'} can help"


def _reason(found: SerialRegion) -> str:
    return f"`{found.region}` {found.why}"
