"""Rounding error of sums of a problem's floats, for any order of addition."""

from __future__ import annotations

from oocbe.model.problem import Problem

LEAST_ROUNDING = 2.0**-36
"""Lower limit of the relative rounding error of sums."""


def relative_rounding(problem: Problem) -> float:
    """Rounding error of a sum of a problem's floats in any order, relative to the sum of magnitudes.

    2**-53 for each addition; there are as many as functions and messages or bound entries; the result is twice that.
    """
    return max(LEAST_ROUNDING, 2.0**-52 * (len(problem.functions) + len(problem.variables)))
