"""Whether an application and its PySpark version found the same, as far as both can.

Spark keeps its last windows open at the end of the files and tells one of several bids that tie, so
windows are compared where it tells them, exactly. It averages in floating point, and sorts within a
batch alone; where that can change a result, one in a thousand, or a hundred, may differ.
"""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd

Check = Callable[[pd.DataFrame, pd.DataFrame], bool]


def word_count(ours: pd.DataFrame, theirs: pd.DataFrame) -> bool:
    """The last count of every word."""
    theirs = theirs.rename(columns={"count": "n"})
    return ours.groupby("word")["n"].max().equals(theirs.groupby("word")["n"].max())


def spike_detection(ours: pd.DataFrame, theirs: pd.DataFrame) -> bool:
    """As many readings, spikes but for rounding, and averages by device."""
    means = [found.groupby("device")["average"].mean() for found in (ours, theirs)]
    spikes = [found["spike"].sum() for found in (ours, theirs)]
    near = (means[0] - means[1]).abs().max() < 1e-6
    return len(ours) == len(theirs) and bool(near) and _near(*spikes, 0.001)


def finance(ours: pd.DataFrame, theirs: pd.DataFrame) -> bool:
    """Bargains and what they are worth by ticker, in all."""
    tickers = [found.groupby("ticker")["size"].sum().sort_index() for found in (ours, theirs)]
    share = tickers[0].sub(tickers[1], fill_value=0).abs().sum() / tickers[0].sum()
    return _near(len(ours), len(theirs), 0.01) and bool(share < 0.02)


def nexmark_q5(ours: pd.DataFrame, theirs: pd.DataFrame) -> bool:
    """The hottest auction of a window, and how many bids it got."""
    hottest = pd.DataFrame(list(theirs["hottest"])).rename(columns={"count": "num"})
    return _windows_agree(ours, hottest.assign(window_end=_ends(theirs)))


def nexmark_q7(ours: pd.DataFrame, theirs: pd.DataFrame) -> bool:
    """The highest bid of a window."""
    highest = pd.DataFrame(list(theirs["highest"])).drop(columns="dateTime")
    return _windows_agree(ours, highest.assign(window_end=_ends(theirs)))


def _ends(theirs: pd.DataFrame) -> pd.DatetimeIndex:
    return pd.to_datetime([each["end"] for each in theirs["window"]]).tz_localize(None)


def _windows_agree(ours: pd.DataFrame, theirs: pd.DataFrame) -> bool:
    """Spark tells most windows; all that it tells are among ours, where every tie is told."""
    found = ours.astype({"window_end": theirs["window_end"].dtype})
    same = theirs.merge(found[list(theirs.columns)].drop_duplicates())
    return len(theirs) > ours["window_end"].nunique() // 2 and len(same) == len(theirs)


def _near(one: float, other: float, share: float) -> bool:
    return abs(one - other) <= share * one


CHECKS: dict[str, Check] = {
    "word-count": word_count,
    "spike-detection": spike_detection,
    "finance": finance,
    "nexmark-q5": nexmark_q5,
    "nexmark-q7": nexmark_q7,
}
