"""Order of the rows of a table."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.cpu.jit import jit

UNSORTED, ASCENDING, REPEATED = 0, 1, 2
"""Order of keys: unsorted, strictly ascending, or ascending with equal neighbours."""


@jit
def ascent(keys: NDArray[np.uint64]) -> int:
    """:data:`ASCENDING` if each key uint64 (words, rows) exceeds the previous one, :data:`REPEATED` if some equals the
    previous one, otherwise :data:`UNSORTED`."""
    falls, repeats = 0, 0
    if keys.shape[0] == 1:
        word = keys[0]
        for row in range(1, len(word)):
            falls += word[row] < word[row - 1]
            repeats += word[row] == word[row - 1]
    else:
        for row in range(1, keys.shape[1]):
            place = keys.shape[0] - 1
            while place >= 0 and keys[place, row] == keys[place, row - 1]:
                place -= 1
            if place < 0:
                return REPEATED
            falls += keys[place, row] < keys[place, row - 1]
    if repeats:
        return REPEATED
    return UNSORTED if falls else ASCENDING
