"""Decimals as values: integers if they have no places behind the point, otherwise the nearest floats; or refused.

A float64 represents every decimal of up to 15 digits, and each of up to 2^53 units of its last place; reading and
writing one gives the same digits. Larger ones would lose their last digits and are refused; the error names the column.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import ModelError
from oocbe.tables.columns import row_of

MOST_UNITS = 1 << 53
"""Integers up to this, and powers of ten up to the 22nd, are exact in float64; their quotient is rounded once."""

MOST_PLACES = 22
"""Largest exponent of a power of ten that is a float."""


def decimal_dtype(scale: int) -> np.dtype[Any]:
    """Dtype of values with ``scale`` places behind the point."""
    return np.dtype(np.float64 if scale > 0 else np.int64)


def arrow_decimals(name: str, data: Any, what: str, first: int) -> NDArray[Any]:
    """Values (rows,), of :func:`decimal_dtype`, of an Arrow column of decimals without missing entries.

    Raises
    ------
    ModelError : one exceeds the range of int64 or float64; the message names its row.
    """
    scale, width = data.type.scale, data.type.bit_width
    chunks = data.chunks if hasattr(data, "chunks") else [data]
    parts = [np.zeros(0, dtype=decimal_dtype(scale))]
    for chunk in chunks:
        if not len(chunk):
            continue
        kind = np.int32 if width == 32 else np.int64
        words = np.frombuffer(chunk.buffers()[1], dtype=kind).reshape(-1, max(1, width // 64))
        words = words[chunk.offset : chunk.offset + len(chunk)]
        units = words[:, 0].astype(np.int64)
        fits = (words[:, 1:] == (units >> 63)[:, np.newaxis]).all(axis=1)
        parts.append(_values_of(units, fits, scale, name, what, first, lambda row, given=chunk: given[row].as_py()))
        first += len(chunk)
    return np.concatenate(parts)


def _values_of(
    units: NDArray[np.int64], fits: NDArray[np.bool_], scale: int, name: str, what: str, first: int, shown: Any
) -> NDArray[Any]:
    """Values from units of the last place; refused where ``fits`` (int64) is False or the range is exceeded."""
    factor = 10 ** abs(scale)
    if scale > 0:
        wrong = ~fits | (np.abs(units) > MOST_UNITS) | (units == np.iinfo(np.int64).min)
        if scale > MOST_PLACES:
            wrong |= units != 0
    else:
        limit = ((1 << 63) - 1) // factor
        wrong = ~fits | (units > limit) | (units < -limit)
    if wrong.any():
        row = int(np.argmax(wrong))
        kind = "a float64 holds" if scale > 0 else "64 bits with a sign hold"
        raise ModelError(
            f"{what}: column {name}, {row_of(first + row)}: the decimal {shown(row)} has more digits than {kind}; "
            "round it, or cast the column before"
        )
    if scale > 0:
        return units / float(factor) if scale <= MOST_PLACES else np.zeros(len(units))
    return units * np.int64(factor) if limit else units  # all are 0
