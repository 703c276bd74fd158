"""Rows of a complete table, piece by piece, are those that it lists at once."""

from __future__ import annotations

import numpy as np
import pytest

from oocbe.model.semiring import MIN_SUM
from oocbe.tables.complete import CompleteTable
from oocbe.tables.complete_pieces import sorted_pieces
from oocbe.tables.layout import Layout


@pytest.mark.parametrize("most_cells", [1, 7, 60, 10**6])
@pytest.mark.parametrize("sizes", [(3,), (5, 3, 2, 4), (2, 2, 70, 3), (1, 1 << 9, 1, 6)])
def test_pieces_end_to_end_are_all_rows(sizes, most_cells):
    random = np.random.default_rng(most_cells)
    scope = tuple(f"x{v}" for v in range(len(sizes)))
    array = random.integers(0, 100, sizes)
    table = CompleteTable.from_array(scope, array, MIN_SUM, feasible=random.random(sizes) < 0.8)
    whole = table.to_table(tuple(reversed(scope)))
    pieces = list(sorted_pieces(table, most_cells))
    assert all(piece.layout == whole.layout and piece.rows for piece in pieces)
    assert max((piece.rows for piece in pieces), default=0) <= max(most_cells, sizes[-1])
    assert pieces
    assert np.array_equal(np.concatenate([p.keys for p in pieces], axis=1), whole.keys)
    assert np.array_equal(np.concatenate([p.values for p in pieces]), whole.values)


def test_keys_of_several_words():
    """Seventy variables of one value each beside two of two: a bit each, and only four cells."""
    scope = tuple(f"x{v}" for v in range(72))
    sizes = (2, *[1] * 70, 2)
    layout = Layout(scope, sizes)
    table = CompleteTable(layout, np.arange(4), MIN_SUM)
    pieces = list(sorted_pieces(table, 2))
    assert len(pieces) == 2
    assert np.array_equal(np.concatenate([p.keys for p in pieces], axis=1), table.to_table(scope[::-1]).keys)
