"""Keys of rows as single numbers, by which they are compared and recorded."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def key_number(keys: NDArray[np.uint64], row: int) -> int:
    """A row's key as one number, word 0 least significant; keys : uint64 (words, rows)."""
    return sum(int(word[row]) << (64 * place) for place, word in enumerate(keys))
