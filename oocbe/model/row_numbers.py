"""Rows as single numbers: keys, by which they are compared and recorded, and places in a list of all tuples."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

MOST_AXES = 63
"""Variables that an array with an axis a variable can have, and be indexed by lists of places on all axes: what NumPy
knows. Domains of one value count, too."""


def tuples_at(cells: NDArray[np.int64], sizes: Sequence[int]) -> NDArray[np.int64]:
    """Tuples (cells, variables) at some places of the lexicographic list of all tuples; of any number of variables.

    cells : int64 (cells,), below the product of the domain sizes.
    """
    tuples = np.empty((len(cells), len(sizes)), dtype=np.int64)
    for place in range(len(sizes) - 1, -1, -1):
        cells, tuples[:, place] = np.divmod(cells, sizes[place])
    return tuples


def key_number(keys: NDArray[np.uint64], row: int) -> int:
    """A row's key as one number, word 0 least significant; keys : uint64 (words, rows)."""
    return sum(int(word[row]) << (64 * place) for place, word in enumerate(keys))
