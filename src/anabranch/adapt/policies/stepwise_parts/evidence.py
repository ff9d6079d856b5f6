"""Evidence: whether throughput has changed, or only fluctuates.

A two-sample t-test at 5 %, as in §6.1.2 of the stepwise profiling paper, without assuming that both
configurations fluctuate alike. Where nothing fluctuates at all, a test would call any difference
significant; so a change has to be of some size, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from statistics import fmean, stdev

SIGNIFICANCE = 0.05
LEAST_CHANGE = 0.01


class Change(Enum):
    """What became of a throughput."""

    INCREASED = "increased"
    UNCHANGED = "unchanged"
    DECREASED = "decreased"


def compared(
    before: Sequence[float],
    after: Sequence[float],
    significance: float = SIGNIFICANCE,
    least: float = LEAST_CHANGE,
) -> Change:
    """Whether samples of a throughput tell of a change.

    Args:
        before: Samples under one configuration.
        after: Samples under another.
        significance: Probability by which a change may be seen where there is none.
        least: Part of the throughput before that counts as a change.

    Example:
        >>> calm = [100, 101, 99, 100, 102, 98]
        >>> compared(calm, [104, 105, 103, 106, 104, 105]).value, compared(calm, [99, 103]).value
        ('increased', 'unchanged')
    """
    if not before or not after:
        return Change.UNCHANGED
    old, new = fmean(before), fmean(after)
    if abs(new - old) <= least * abs(old) or not _significant(before, after, significance):
        return Change.UNCHANGED
    return Change.INCREASED if new > old else Change.DECREASED


def _significant(before: Sequence[float], after: Sequence[float], significance: float) -> bool:
    if min(len(before), len(after)) < 2:
        return False  # one value alone says nothing of how much they vary
    some, others = stdev(before), stdev(after)
    if some + others == 0:
        return True
    # Takes a second, which those with other policies need not spend.
    from scipy.stats import ttest_ind_from_stats

    found = ttest_ind_from_stats(
        fmean(before), some, len(before), fmean(after), others, len(after), equal_var=False
    )
    return bool(found.pvalue < significance)
