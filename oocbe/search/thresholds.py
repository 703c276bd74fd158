"""Distance between the proven bound and successive thresholds of a search."""

from __future__ import annotations

import math

from oocbe.search.shared_bounds import SharedBounds

WIDER = 8
"""Growth factor of the distance between lower bound and threshold."""

GAP_PARTS = 8
"""Thresholds but the first cover at least this part (an eighth) of the gap."""

LEAST_WIDTH = 2.0**-30
"""Width of the first threshold relative to the upper bound, for non-integral values."""


def first_width(known: SharedBounds) -> int | float:
    """Distance of neighbouring values; for non-integral values, a share of the gap. Never 0, even of subnormal gaps."""
    if known.grid.step:
        return known.grid.step
    assert known.lower is not None
    return max((known.upper_bound - known.lower) / GAP_PARTS, abs(known.upper_bound) * LEAST_WIDTH, math.ulp(0.0))


def next_width(known: SharedBounds, width: int | float) -> int | float:
    """The next width: larger, and at least a share of the current gap."""
    part = 0 if known.lower is None or known.value is None else (known.upper_bound - known.lower) / GAP_PARTS
    if known.grid.step == 0:
        return max(WIDER * width, part)
    return max(WIDER * width, math.floor(part) // known.grid.step * known.grid.step)
