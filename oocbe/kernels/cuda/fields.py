"""Bit fields of packed keys: permuting them from one layout to another, on the device."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.cuda.device import cupy
from oocbe.kernels.cuda.modules import kernel, launch

MOST_MOVES = 64
"""Moves of one launch, as in the source: a plan travels as an argument of the kernel, by value."""

MOVE = np.dtype([("from", "u1"), ("shift", "u1"), ("bits", "u1"), ("to", "u1"), ("back", "u1"), ("unused", "u1", 3)])

THREADS, ROWS_A_THREAD = 256, 4


def permute(keys: Any, plan: NDArray[np.int64], words: int, piece_rows: int | None = None) -> Any:
    """Move fields of keys to other places; see :meth:`oocbe.kernels.interface.Backend.permute`."""
    rows = keys.shape[1]
    out = cupy().empty((words, rows), dtype=np.uint64)
    function = kernel("fields", "permute_rows")
    blocks = -(-rows // (THREADS * ROWS_A_THREAD))
    moves = packed_moves(plan)
    for start in range(0, max(1, len(moves)), MOST_MOVES):
        part = moves[start : start + MOST_MOVES]
        arguments = np.zeros(MOST_MOVES, dtype=MOVE)
        arguments[: len(part)] = part
        launch(function, blocks, THREADS, keys, out, rows, words, arguments, len(part), int(start > 0))
    return out


def packed_moves(plan: NDArray[np.int64]) -> NDArray[np.void]:
    """A move plan as the kernels' structs, ordered by destination, then source (so that a word is loaded once)."""
    moves = np.zeros(len(plan), dtype=MOVE)
    for column, name in enumerate(("from", "shift", "bits", "to", "back")):
        moves[name] = plan[:, column]
    return moves[np.lexsort((moves["from"], moves["to"]))]
