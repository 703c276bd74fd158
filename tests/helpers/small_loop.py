"""A loop of its own, for tests of how loops are compiled and loaded."""

from __future__ import annotations

from oocbe.kernels.cpu.jit import jit


@jit
def total(numbers):
    """Sum of an array."""
    found = 0
    for number in numbers:
        found += number
    return found
