# SPDX-License-Identifier: Apache-2.0
"""Numbers out of samples. Pure."""

import math
import statistics


def median(values):
    return statistics.median(values)


def percentile(values, share):
    """Nearest rank: always a value that was seen."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def interval(values):
    """The quartiles; the extremes below four values."""
    if len(values) < 4:
        return min(values), max(values)
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, high


def spread(values):
    """Length of the interval."""
    low, high = interval(values)
    return high - low


def round_ratio(mine, theirs, higher_is_better=False):
    """Median over the common rounds of mine/theirs as times (below 1: mine is faster);
    None without a common round. Each argument maps a round to its value."""
    ratios = []
    for i in sorted(mine.keys() & theirs.keys()):
        top, bottom = (theirs[i], mine[i]) if higher_is_better else (mine[i], theirs[i])
        if bottom > 0:
            ratios.append(top / bottom)
    return median(ratios) if ratios else None


def is_noisy(values):
    """The spread is more than a quarter of the median."""
    return len(values) > 1 and spread(values) > 0.25 * abs(median(values))
