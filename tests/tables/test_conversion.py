"""One form of a table to another: the same rows, whole or in pieces, in memory or on disk, without more copies."""

from __future__ import annotations

import tracemalloc
from contextlib import contextmanager
from itertools import count

import numpy as np
import pytest

from oocbe.algebra.complete_tables.conversion import (
    complete_in_memory,
    in_memory,
    row_pieces,
    rows_in_memory,
    transposed,
)
from oocbe.model.semiring import MIN_SUM
from oocbe.tables.complete import CompleteTable
from oocbe.tables.layout import Layout
from oocbe.tables.packed import PackedTable
from oocbe.tables.stored import StoredCompleteTable, StoredTable
from oocbe.tables.table import Table

SIZES = [(3,), (5, 3, 2, 4), (2, 2, 70, 3), (1, 1 << 9, 1, 6)]


def random_table(sizes, seed: int, dtype=np.int32) -> CompleteTable:
    random = np.random.default_rng(seed)
    array = random.integers(0, 100, sizes).astype(dtype)
    return CompleteTable.from_array(names(sizes), array, MIN_SUM, feasible=random.random(sizes) < 0.8)


def names(sizes) -> tuple[str, ...]:
    return tuple(f"x{v}" for v in range(len(sizes)))


@pytest.fixture
def scratch(tmp_path):
    numbers = count()

    @contextmanager
    def written(values):
        parts = list(values)
        cells = Layout(("cells",), (sum(map(len, parts)),))
        path = tmp_path / f"scratch {next(numbers)}"
        with StoredCompleteTable.create(path, cells, parts[0].dtype, MIN_SUM, chunk_cells=17) as writer:
            for part in parts:
                writer.append(part)
        yield StoredCompleteTable.open(path)

    return written


@contextmanager
def no_scratch(values):
    raise AssertionError("a table in main memory needs no scratch")
    yield


def same(found: Table, expected: Table) -> None:
    assert (found.layout, found.values.dtype, found.is_sorted) == (expected.layout, expected.values.dtype, True)
    assert np.array_equal(found.keys, expected.keys)
    assert np.array_equal(found.values, expected.values)


def laid(pieces: list[Table]) -> Table:
    keys, values = (np.concatenate([getattr(p, name) for p in pieces], axis=-1) for name in ("keys", "values"))
    return Table(pieces[0].layout, keys, values, pieces[0].semiring, is_sorted=True)


CELLS = (1, 7, 60, 10**6)
PIECES = [(sizes, n, (np.int16, np.int32)[(i + j) % 2]) for i, sizes in enumerate(SIZES) for j, n in enumerate(CELLS)]
"""Sizes, cells of a piece, and a dtype: every two of them meet."""


@pytest.mark.parametrize(("sizes", "cells", "dtype"), PIECES, ids=str)
def test_rows_in_pieces_are_those_listed_at_once(sizes, cells, dtype, scratch, tmp_path):
    if cells < 60:  # hundreds of pieces take seconds
        sizes = tuple(min(size, 4 * (cells + 3)) for size in sizes)
    table = random_table(sizes, cells, dtype)
    stored = StoredCompleteTable.save(tmp_path / "stored", table, chunk_cells=13)
    for scope in (table.scope, table.scope[::-1]):
        whole = table.to_table(scope)
        for source, place in ((table, no_scratch), (stored, scratch)):
            pieces = list(row_pieces(source, scope, 48 * cells, place))
            assert all(piece.rows for piece in pieces)
            assert max(piece.rows for piece in pieces) <= cells
            same(laid(pieces), whole)


def test_keys_of_several_words():
    """Seventy variables of one value each beside two of two: a bit each, and only four cells."""
    sizes = (2, *[1] * 70, 2)
    table = CompleteTable(Layout(names(sizes), sizes), np.arange(4), MIN_SUM)
    pieces = list(row_pieces(table, table.scope[::-1], 2 * 48, no_scratch))
    assert len(pieces) == 2
    same(laid(pieces), table.to_table(table.scope[::-1]))


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_every_form_gives_the_same_rows_and_cells(sizes, tmp_path):
    table = random_table(sizes, 5)
    rows = table.to_table()
    complete = [table, StoredCompleteTable.save(tmp_path / "cells", table)]
    incomplete = [rows, StoredTable.save(tmp_path / "rows", rows, chunk_rows=7), PackedTable.pack(rows, chunk_rows=9)]
    for form in (*complete, *incomplete):
        assert isinstance(in_memory(form), CompleteTable if form in complete else Table)
        same(rows_in_memory(form), rows)
        for scope in (None, table.scope[::-1]):
            found = complete_in_memory(form, scope)
            assert found.scope == (table.scope if scope is None else scope)
            assert found.to_dict() == table.transposed(found.scope).to_dict()
        assert complete_in_memory(form, None, table.dtype).values.tolist() == table.values.tolist()
    assert in_memory(table) is complete_in_memory(table) is table
    assert in_memory(rows) is rows_in_memory(rows) is rows


def copied(call) -> int:
    """Bytes that a call holds at once, at most."""
    call()  # what is compiled or kept for good
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_table_in_memory_is_reordered_with_one_copy_of_a_piece():
    table = random_table((64, 32, 16, 8), 3, np.int64)
    nbytes = table.nbytes

    def reorder(share: int) -> None:
        for _ in transposed(table, table.scope[::-1], share, no_scratch):
            pass

    assert copied(lambda: reorder(8 * nbytes)) < 1.2 * nbytes  # at once
    assert copied(lambda: reorder(nbytes)) < 0.8 * nbytes  # one piece while the next one is made
    assert copied(lambda: [part.sum() for part in transposed(table, table.scope, nbytes, no_scratch)]) < 0.1 * nbytes
