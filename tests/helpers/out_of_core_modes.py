"""Operators out of core for tests: the rows of the operator in memory, bit for bit, whatever the pieces and streams."""

from __future__ import annotations

import os

import numpy as np

from oocbe.tables.stored import StoredTable
from oocbe.tables.table import Table
from tests.helpers.memory_disk import memory_folder

MODES = [(1, 1), (1, 8), (2, 2), (7, 2), (30, 8), (1000, 1), (None, 2)]
"""Rows a piece and streams."""

MOST_CHUNKS = 31
"""Chunks of a stored input, about: pieces begin and end within some of them, and each is files of its own."""


def same_rows(found: StoredTable | Table, expected: Table, exact: bool = True) -> None:
    """Equal layout, dtype, keys, values and order; ``exact`` False: floats may differ in their last bits."""
    table = found.to_table() if isinstance(found, StoredTable) else found
    # On a GPU, where a piece begins decides which of its rows a block adds up first.
    exact = exact and os.environ.get("OOCBE_BACKEND") != "cuda"
    assert table.layout == expected.layout
    assert table.semiring == expected.semiring
    assert table.values.dtype == expected.values.dtype
    assert np.array_equal(table.keys, expected.keys)
    if exact or table.values.dtype.kind == "i":
        assert table.values.tobytes() == expected.values.tobytes()
    else:
        np.testing.assert_allclose(table.values, expected.values, rtol=1e-5, atol=1e-5)
    assert table.is_sorted or not expected.is_sorted


def also_out_of_core(operator, *arguments, mode, stored: bool = True, exact: bool = True) -> Table:
    """The operator's result in memory, after comparing it with what it writes out of core in a mode of ``MODES``."""
    expected = operator(*arguments)
    with memory_folder() as folder:
        tables = [
            StoredTable.save(folder / f"input {i}", a, chunk_rows=max(7, a.rows // MOST_CHUNKS))
            if isinstance(a, Table) and stored
            else a
            for i, a in enumerate(arguments)
        ]
        found = operator(
            *tables, output=folder / "output", memory="32MiB", scratch=folder, piece_rows=mode[0], streams=mode[1]
        )
        same_rows(found, expected, exact)
        left = {path.name for path in folder.iterdir()} - {f"input {i}" for i in range(len(arguments))}
        assert left == {"output"}
    return expected
