"""Whether an application and its PySpark version found the same, as far as both can.

Spark keeps its last windows open at the end of the files and tells one of several bids that tie, so
windows are compared where it tells them, exactly. It averages in floating point, and sorts within a
batch alone; where that can change a result, one in a thousand, or a hundred, may differ.
"""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd

MOST = 0.5
"""Of all results, what Spark has to tell before the end of the files."""

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


def nexmark_q3(ours: pd.DataFrame, theirs: pd.DataFrame) -> bool:
    """The same pairs."""
    return len(ours) == len(theirs) and _among(ours, theirs, 1.0)


def nexmark_q4(ours: pd.DataFrame, theirs: pd.DataFrame) -> bool:
    """Nearly the same averages, of most of the auctions."""
    last = [each.groupby("category")[["auctions", "avg_price"]] for each in (ours, theirs)]
    ends, theirs_ends = (each.last().sort_index() for each in last)
    enough = (theirs_ends["auctions"] >= MOST * ends["auctions"]).all()
    near = (theirs_ends["avg_price"] / ends["avg_price"] - 1).abs().max() < 0.1
    return bool(enough) and bool(near) and list(ends.index) == list(theirs_ends.index)


def nexmark_q8(ours: pd.DataFrame, theirs: pd.DataFrame) -> bool:
    """The same people in the windows that Spark tells."""
    return _among(ours, theirs, MOST)


def nexmark_q9(ours: pd.DataFrame, theirs: pd.DataFrame) -> bool:
    """The same price, time and auction of most winning bids."""
    return _among(ours, theirs[["auction", "price", "bid_dateTime"]], MOST)


def windows(ours: pd.DataFrame, theirs: pd.DataFrame) -> bool:
    """The same windows, of those that Spark tells."""
    return _among(ours, theirs, MOST)


def _ends(theirs: pd.DataFrame) -> pd.DatetimeIndex:
    return pd.to_datetime([each["end"] for each in theirs["window"]]).tz_localize(None)


def _windows_agree(ours: pd.DataFrame, theirs: pd.DataFrame) -> bool:
    """Spark tells most windows; all that it tells are among ours, where every tie is told."""
    found = ours.astype({"window_end": theirs["window_end"].dtype})
    same = theirs.merge(found[list(theirs.columns)].drop_duplicates())
    return len(theirs) > ours["window_end"].nunique() // 2 and len(same) == len(theirs)


def _near(one: float, other: float, share: float) -> bool:
    return abs(one - other) <= share * one


def _among(ours: pd.DataFrame, theirs: pd.DataFrame, share: float) -> bool:
    """All that Spark tells is among ours, and it is at least a share of it."""
    columns = list(theirs.columns)
    found = ours[columns].astype(dict(theirs.dtypes))
    same = theirs.merge(found.drop_duplicates())
    return len(theirs) >= share * len(ours) and len(same) == len(theirs)
