"""Times of day somewhere as times in UTC, each by itself, whatever stands before it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.errors import About, BuildError
from anabranch.state.key_words import Mask
from anabranch.state.positions import Ints

UTC_NAME = "UTC"
_TIME = pa.timestamp("us")


def required_zone(about: About, zone: str) -> str:
    """A zone by its IANA name, such as `Europe/Berlin`, if there is one."""
    given: object = zone
    try:
        if not isinstance(given, str):
            raise pa.ArrowInvalid("no text")
        pc.assume_timezone(pa.array([0], _TIME), given)
    except pa.ArrowInvalid:
        raise BuildError(
            about, "the IANA name of a time zone", repr(given), "give one such as 'Europe/Berlin'"
        ) from None
    return zone


def in_utc(times: Ints, zone: str) -> tuple[Ints, Mask]:
    """Times of a zone in UTC, in microseconds; and which of them do not exist there.

    When clocks are set back, an hour comes twice. Its times are taken as those of the first: which
    one is meant could be told only from the times before, and then batching would show.

    Example:
        >>> from datetime import datetime
        >>> hours = [datetime(2026, 3, 29, 2, 30), datetime(2026, 10, 25, 2, 30)]
        >>> local = np.array(hours, "datetime64[us]").astype(np.int64)
        >>> times, missing = in_utc(local, "Europe/Berlin")
        >>> str(times[1:].view("datetime64[us]")[0]), missing.tolist()
        ('2026-10-25T00:30:00.000000', [True, False])
    """
    if zone == UTC_NAME:
        return times, np.zeros(len(times), np.bool_)
    local = pa.array(times).view(_TIME)
    before, behind = (
        pc.assume_timezone(local, zone, ambiguous="earliest", nonexistent=side)
        .cast(pa.int64())
        .to_numpy()
        for side in ("earliest", "latest")
    )
    return before, before != behind
