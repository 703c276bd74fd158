"""How many random cases the tests try: a share of what they name by default, all of them on request.

``TEST_EFFORT=1 pytest`` tries all that are named, and ``TEST_EFFORT=10`` ten times as many. The default
keeps the suite short; the continuous integration fuzzes with another seed every day besides (``tools/fuzz.py``).
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from typing import Any

import pytest

EFFORT = float(os.environ.get("TEST_EFFORT", "0.125"))
"""Share of the cases that tests name."""


def examples(count: int) -> int:
    """Random cases to try where ``count`` are tried with an effort of 1; at least one."""
    return max(1, round(count * EFFORT))


def in_turns(one: Sequence[Any], other: Sequence[Any]) -> list[Any]:
    """All pairs of two parameters; some have each value of either, the others are slow."""
    least = min(len(one), len(other))
    return [
        pytest.param(a, b, marks=pytest.mark.slow if (i + j) % least else ())
        for (i, a), (j, b) in itertools.product(enumerate(one), enumerate(other))
    ]
