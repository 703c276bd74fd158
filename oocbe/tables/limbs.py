"""Counts beyond 63 bits: values of several *limbs*, as multiple-precision integers (Knuth 1997, section 4.3.1).

The values of such a table are int64 (rows, limbs), C-contiguous: each row's limbs side by side, the bits of unsigned
64-bit numbers, the least significant first. Only counting produces them, for messages whose counts exceed int64; their
semiring is :data:`oocbe.model.semiring.COUNTING`. All other tables have values (rows,), without limbs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

LIMB_BITS = 64
"""Bits of a limb, a machine word."""

MOST_LIMBS = 1 << 12
"""Maximum limbs of a number in a table on disk: 78,000 digits. More are taken for a damaged header."""


def limbs_for(bound: int) -> int:
    """Limbs for numbers from 0 to a bound; 0 if int64 suffices."""
    return 0 if bound < 1 << (LIMB_BITS - 1) else -(-bound.bit_length() // LIMB_BITS)


def limbs_of(values: NDArray[Any]) -> int:
    """Limbs of each of a table's values; 0 for plain numbers."""
    return int(values.shape[1]) if values.ndim == 2 else 0


def greatest(values: NDArray[Any]) -> int:
    """Greatest of counts, plain or of limbs, in main or device memory; 0 if there are none."""
    if len(values) == 0:
        return 0
    if values.ndim == 1:
        return int(values.max())
    found = 0
    rows = values.view(np.uint64)
    for limb in reversed(range(rows.shape[1])):
        column = rows[:, limb]
        most = int(column.max())
        found = found << LIMB_BITS | most
        is_most = column == np.uint64(most)
        if not is_most.all():
            rows = rows[is_most]
    return found


def total(values: NDArray[Any]) -> int:
    """Sum of the counts of a few rows in main memory, plain or of limbs."""
    if values.ndim == 1:
        return sum(values.tolist())
    return sum(int.from_bytes(row.astype("<i8").tobytes(), "little") for row in values)


def of_integers(values: Sequence[int]) -> NDArray[Any]:
    """Values of a table, int64 (rows,) or (rows, limbs), from integers of at least 0."""
    limbs = limbs_for(max(values, default=0))
    if not limbs:
        return np.array(values, dtype=np.int64)
    data = b"".join(value.to_bytes(limbs * LIMB_BITS // 8, "little") for value in values)
    return np.frombuffer(data, dtype="<i8").astype(np.int64).reshape(len(values), limbs)


def trim_limbs(values: NDArray[Any]) -> NDArray[Any]:
    """Counts of limbs, reduced to the limbs of the greatest; plain int64 if that suffices."""
    limbs = limbs_for(greatest(values))
    if limbs == values.shape[1]:
        return values
    left: NDArray[Any] = values[:, :limbs] if limbs else values[:, 0]
    return left.copy()
