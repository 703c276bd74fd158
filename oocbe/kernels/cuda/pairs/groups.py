"""Groups of adjacent rows with equal masked keys, on the device: their starts, and the common groups of two tables."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.cuda.device import cupy
from oocbe.kernels.cuda.modules import kernel, launch, or_null
from oocbe.kernels.cuda.pairs.selection import (
    THREADS,
    WORDS_A_BLOCK,
    Marked,
    counted,
    counted_together,
    empty_bits,
    packed_masks,
)
from oocbe.kernels.interface import MatchedGroups

ROWS_A_BLOCK = 8 * THREADS
"""Rows of a block, as in the source."""


def group_starts(keys: Any, masks: NDArray[np.uint64], piece_rows: int | None = None) -> Any:
    """First row of each group, and the row count; see :meth:`oocbe.kernels.interface.Backend.group_starts`."""
    return starts_of(*group_heads((keys, masks)))


def group_heads(*tables: tuple[Any, NDArray[np.uint64]]) -> list[Marked]:
    """The first row of each group of each table, marked; keys and masks of each. The host waits once for all counts."""
    marks = []
    for keys, masks in tables:
        rows = keys.shape[1]
        bits = empty_bits(rows)
        function = kernel("groups", "mark_heads")
        launch(function, -(-rows // ROWS_A_BLOCK), THREADS, keys, rows, packed_masks(masks), len(masks), bits)
        marks.append((bits, rows))
    return counted_together(*marks)


def starts_of(heads: Marked) -> Any:
    """Indices of the marked rows, and the number of all rows last: int64 (marked rows + 1,)."""
    out = cupy().empty(heads.count + 1, dtype=np.int64)
    words = len(heads.bits)
    blocks = max(1, -(-words // WORDS_A_BLOCK))
    launch(kernel("groups", "write_starts"), blocks, THREADS, heads.bits, heads.before, words, heads.rows, out)
    return out


def common_groups(keys1: Any, keys2: Any, masks: NDArray[np.uint64], piece_rows: int | None = None) -> MatchedGroups:
    """Common groups of two tables; see :meth:`oocbe.kernels.interface.Backend.common_groups`."""
    heads1, heads2 = group_heads((keys1, masks), (keys2, masks))
    return match_groups(keys1, starts_of(heads1), keys2, starts_of(heads2), masks)


def match_groups(keys1: Any, starts1: Any, keys2: Any, starts2: Any, masks: NDArray[np.uint64]) -> MatchedGroups:
    """Groups with equal masked keys, given their starts in each table as of :func:`group_starts`."""
    bits = empty_bits(len(starts1) - 1)
    (partners,) = find_partners(keys1, starts1, keys2, starts2, masks, bits)
    matches = counted(bits, len(starts1) - 1)
    places = [cupy().empty(matches.count, dtype=np.int64) for _ in range(4)]
    marks = bits, matches.before, len(bits)
    blocks = -(-len(bits) // WORDS_A_BLOCK)
    launch(kernel("groups", "write_matches"), blocks, THREADS, *marks, starts1, starts2, partners, *places)
    return MatchedGroups(*places)


def find_partners(
    keys1: Any, starts1: Any, keys2: Any, starts2: Any, masks: NDArray[np.uint64], bits: Any = None
) -> list[Any]:
    """Of each group of table 1: its number of rows, first row and number of rows of the group of table 2 with an equal
    masked key, (groups,) int64 each; arguments as for :func:`match_groups`. A group without a partner has 0 rows there.

    bits : the groups with a partner are marked there, and only the group of table 2 is returned.
    """
    groups1, groups2 = len(starts1) - 1, len(starts2) - 1
    tables = (keys1, keys1.shape[1], starts1, groups1, keys2, keys2.shape[1], starts2, groups2)
    arguments = (*tables, packed_masks(masks), len(masks))
    tiles = -(-groups1 // THREADS)
    bounds = cupy().empty(tiles + 1, dtype=np.int64)
    launch(kernel("groups", "find_bounds"), -(-(tiles + 1) // THREADS), THREADS, *arguments, tiles, bounds)
    found = [cupy().empty(groups1, dtype=np.int64) for _ in range(3 if bits is None else 1)]
    out = found if bits is None else (0, *found, 0)
    launch(kernel("groups", "mark_matches"), tiles, THREADS, *arguments, bounds, or_null(bits), *out)
    return found
