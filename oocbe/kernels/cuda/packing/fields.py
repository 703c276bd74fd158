"""Permutation of the bit fields of packed keys between layouts, on the device."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.cuda.device import cupy
from oocbe.kernels.cuda.modules import as_struct, kernel, launch

MOST_MOVES = 64
"""Maximum number of moves of one launch, as in the source: a plan is a kernel argument, by value."""

MOVE = np.dtype([("from", "u1"), ("shift", "u1"), ("bits", "u1"), ("to", "u1"), ("back", "u1"), ("unused", "u1", 3)])
"""The source's struct of a move."""

THREADS, ROWS_A_THREAD = 256, 4
"""Threads of a block and rows of each, as in the source."""


def permute(keys: Any, plan: NDArray[np.int64], words: int, piece_rows: int | None = None) -> Any:
    """Move fields of keys to other places; see :meth:`oocbe.kernels.interface.Backend.permute`."""
    rows = keys.shape[1]
    out = cupy().empty((words, rows), dtype=np.uint64)
    function = kernel("fields", "permute_rows")
    blocks = -(-rows // (THREADS * ROWS_A_THREAD))
    for number, (moves, count) in enumerate(packed_plans(plan)):
        launch(function, blocks, THREADS, keys, out, rows, words, moves, count, int(number > 0))
    return out


def packed_plans(plan: NDArray[np.int64]) -> tuple[tuple[NDArray[np.void], int], ...]:
    """A move plan as the kernels' structs, with the number of moves in each; one empty struct for an empty plan.

    Moves are ordered by destination, then by source, so that a kernel loads a word once.
    """
    return _packed_plans(plan.tobytes())


@lru_cache(maxsize=1024)
def _packed_plans(plan: bytes) -> tuple[tuple[NDArray[np.void], int], ...]:
    moves = np.zeros(len(plan) // (5 * 8), dtype=MOVE)
    for column, name in enumerate(("from", "shift", "bits", "to", "back")):
        moves[name] = np.frombuffer(plan, dtype=np.int64)[column::5]
    moves = moves[np.lexsort((moves["from"], moves["to"]))]
    structs = []
    for first in range(0, max(1, len(moves)), MOST_MOVES):
        part = np.zeros(MOST_MOVES, dtype=MOVE)
        count = len(moves[first : first + MOST_MOVES])
        part[:count] = moves[first : first + count]
        structs.append((as_struct(part), count))
    return tuple(structs)
