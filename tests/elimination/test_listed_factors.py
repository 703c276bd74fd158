"""Slots of nonzero entries: those of a large part alike, within the deadline."""

from __future__ import annotations

import numpy as np
import pytest

from oocbe.elimination.preparation import listed_factors
from oocbe.elimination.preparation.listed_factors import ListedFactor, harmful_slots, starts_of
from oocbe.errors import TimeLimitError
from oocbe.runtime.deadline import Deadline


def test_slots_of_large_parts_are_the_same_and_end_at_the_deadline(monkeypatch):
    """A table of four million rows took five seconds after the time limit."""
    random, sizes = np.random.default_rng(0), (3, 4, 5)
    tuples = np.array(list(np.ndindex(*sizes)))
    parts = [
        ListedFactor((0, 1, 2), tuples, (random.random(60) < 0.05) * 1.0, 0.0),
        ListedFactor((2, 0), tuples[:0, :2], np.zeros(0), 0.0),
    ]
    found = harmful_slots(parts, starts_of(sizes), sizes)
    expected = {(v, a) for row in tuples[parts[0].values != 0] for v, a in enumerate(row.tolist())}
    assert {(v, a) for v, n in enumerate(sizes) for a in range(n) if found[starts_of(sizes)[v] + a]} == expected
    monkeypatch.setattr(listed_factors, "LARGE", 1)
    assert np.array_equal(harmful_slots(parts, starts_of(sizes), sizes), found) and 0 < found.sum() < 12
    with Deadline(0.0), pytest.raises(TimeLimitError):
        harmful_slots(parts, starts_of(sizes), sizes)
