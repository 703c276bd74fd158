"""Random XCSP3 constraints that at least one of the references reads correctly."""

from __future__ import annotations

import re
from random import Random

from tools.fuzzing.formats._xcsp_constraints import _knapsack


def test_knapsacks_have_a_weight_and_a_profit():
    for seed in range(300):
        text = _knapsack(Random(seed))
        for name in ("weights", "profits"):
            numbers = re.search(f"<{name}> ([0-9 ]+) </{name}>", text)[1].split()
            assert len(numbers) == 3 and any(map(int, numbers))
