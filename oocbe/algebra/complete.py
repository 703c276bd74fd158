"""The operators on complete tables, and on pairs of a complete and an incomplete one.

Two complete tables are joined and marginalised by one kernel call
(:meth:`oocbe.kernels.interface.CompleteBackend.eliminate_complete`). Of a mixed pair the incomplete table is written
out where its rows would take about as much as that, keys and all: the result is then complete. A sparser one stays as
it is, since what it joins with has no more rows than it lets through: the complete table is looked up row by row where
the incomplete one has all its variables, and turned into rows otherwise. The result is incomplete.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from oocbe.algebra.complete_tables.conversion import rows_in_memory
from oocbe.errors import ValueRangeError
from oocbe.kernels.choice import complete_kernels
from oocbe.kernels.interface import CompleteFunction
from oocbe.model.infeasible import feasible_mask, largest_feasible
from oocbe.model.semiring import Combination, Marginalisation, Semiring
from oocbe.tables.complete import CompleteTable, check_cells, key_fields
from oocbe.tables.feasible_values import converted
from oocbe.tables.layout import Layout
from oocbe.tables.table import Table

if TYPE_CHECKING:
    from oocbe.kernels.interface import Backend
    from oocbe.tables.stored import StoredTable
    from oocbe.tables.stored_complete import AnyComplete


def combine_tables(
    tables: Sequence[Table | CompleteTable],
    gone: Sequence[str],
    by_rows: Callable[[Sequence[Table], Sequence[str]], Table],
    backend: Backend | str | None = None,
    piece_rows: int | None = None,
) -> Table | CompleteTable:
    """Join one or two tables, of which at least one is complete, and marginalise variables out.

    by_rows : the operator on incomplete tables, given these and what is to be marginalised out: on all of them, or on
        the one that has the values of the complete one looked up.

    Result: complete where all tables are, or are written out; its scope is the first table's own variables, the second
    one's own, then the shared ones. Otherwise incomplete, with the layout that the operators give incomplete tables.

    Raises
    ------
    ValueRangeError : integers that no dtype holds. ResourceError : a complete result that memory has no room for.
    """
    written = [_written_out(table) for table in tables]
    complete = [table for table in written if isinstance(table, CompleteTable)]
    if len(complete) == len(written):
        return eliminate_tables(complete, gone, backend, piece_rows)
    (sparse,) = (table for table in written if isinstance(table, Table))
    (dense,) = complete
    if all(name in sparse.layout for name in dense.scope):
        looked_up = look_up(sparse, dense)
        return by_rows([looked_up], gone) if gone else looked_up
    return by_rows([rows_in_memory(table) for table in written], gone)


def _written_out(table: Table | CompleteTable) -> Table | CompleteTable:
    """An incomplete table as a complete one, where that takes no more memory; itself otherwise."""
    if isinstance(table, CompleteTable):
        return table
    return CompleteTable.from_table(table) if is_worth_writing_out(table) else table


def is_worth_writing_out(table: Table | StoredTable) -> bool:
    """Whether an incomplete table takes no less than the complete one that stands for the same rows."""
    return table.layout.complete_rows * table.dtype.itemsize <= table.nbytes


def look_up(table: Table, dense: CompleteTable) -> Table:
    """Rows of an incomplete table with the values of a complete one, over some of its variables, joined to them.

    Returns the rows in their order, without those that the complete table makes infeasible.
    """
    from oocbe.kernels.cpu.complete.complete_rows import cells_of_rows

    semiring = table.semiring
    codes = (semiring.combination, semiring.marginalisation)
    dtype = np.result_type(complete_dtype([table.values, dense.values[dense.feasible()]], semiring), np.int32)
    found = dense.values[cells_of_rows(table.keys, key_fields(table.layout, dense.layout))]
    feasible = feasible_mask(found, *codes)
    keys, values = table.keys, table.values
    if not feasible.all():
        keys, values, found = np.ascontiguousarray(keys[:, feasible]), values[feasible], found[feasible]
    joined = semiring.combine(values.astype(dtype), found.astype(dtype))
    return Table(table.layout, keys, joined, semiring, is_sorted=table.is_sorted)


def eliminate_tables(
    tables: Sequence[CompleteTable],
    gone: Sequence[str],
    backend: Backend | str | None = None,
    piece_rows: int | None = None,
) -> CompleteTable:
    """Join any number of complete tables and marginalise variables out, in one kernel call.

    Variables to eliminate that one table alone has are marginalised out of it first.

    Parameters
    ----------
    tables : at least one, of one semiring, in main memory; domain sizes agree.
    gone : variables to eliminate, each in some scope.

    Returns
    -------
    CompleteTable : scope = each table's variables that no other one has, table after table, then the shared ones in the
        order in which they come first.

    Raises
    ------
    ValueRangeError : a sum or product could leave int64. ResourceError : memory has no room for the result.
    """
    semiring = tables[0].semiring
    if len(tables) > 1:
        tables = [_without_own(table, tables, gone, backend, piece_rows) for table in tables]
    sizes, kept, last = joined_scope(tables, gone)
    layout = Layout.of(kept, [sizes[name] for name in kept], *(t.layout for t in tables))
    terms = prod(sizes[name] for name in last)
    dtype = complete_dtype([t.values[t.feasible()] for t in tables], semiring, terms)
    check_cells(layout, dtype)
    axes = (*kept, *last)
    given = [converted(t.values, dtype, semiring, f"complete table over {t.scope}", may_round=True) for t in tables]
    functions = [CompleteFunction(v, t.strides(axes)) for v, t in zip(given, tables, strict=True)]
    kernels = complete_kernels(sum(t.cells for t in tables), backend)
    placed = [replace(f, values=kernels.upload(f.values)) for f in functions]
    values = kernels.eliminate_complete(
        placed,
        [sizes[name] for name in axes],
        len(last),
        semiring.combination,
        semiring.marginalisation,
        dtype,
        piece_rows,
    )
    return CompleteTable(layout, kernels.download(values), semiring)


def joined_scope(tables: Sequence[AnyComplete], gone: Sequence[str]) -> tuple[dict[str, int], list[str], list[str]]:
    """Domain sizes of all variables; those that stay, each table's own before the shared ones; and those that go."""
    sizes = {name: size for t in tables for name, size in zip(t.scope, t.layout.sizes, strict=True)}
    kept = [name for name in sizes if name not in gone]
    kept.sort(key=lambda name: sum(name in t.layout for t in tables) > 1)
    return sizes, kept, [name for name in sizes if name in gone]


def own_variables(table: AnyComplete, tables: Sequence[AnyComplete], gone: Sequence[str]) -> list[str]:
    """Variables to eliminate that only this table has."""
    return [n for n in table.scope if n in gone and not any(n in t.layout for t in tables if t is not table)]


def _without_own(
    table: CompleteTable,
    tables: Sequence[CompleteTable],
    gone: Sequence[str],
    backend: Backend | str | None,
    piece_rows: int | None,
) -> CompleteTable:
    own = own_variables(table, tables, gone)
    return eliminate_tables([table], own, backend, piece_rows) if own else table


def complete_dtype(values: Sequence[NDArray[Any]], semiring: Semiring, terms: int = 1) -> np.dtype[Any]:
    """Dtype that holds every combination of feasible values, one of each array, and sums of up to ``terms`` of them.

    Integers stay as narrow as they are where that is wide enough, besides room for what is infeasible.

    Raises
    ------
    ValueRangeError : a sum or product could leave int64.
    """
    dtype = np.result_type(*values)
    if dtype.kind == "f" or semiring.needs_floats:
        return dtype if dtype.kind == "f" else np.dtype(np.float64)
    magnitudes = [max(abs(int(v.max())), abs(int(v.min()))) if len(v) else 0 for v in values]
    adds = semiring.combination is Combination.ADD
    largest = sum(magnitudes) if adds else prod(magnitudes)
    if semiring.marginalisation is Marginalisation.SUM:
        largest *= terms
    for candidate in (np.dtype(np.int16), np.dtype(np.int32), np.dtype(np.int64)):
        limit = largest_feasible(candidate) if adds else int(np.iinfo(candidate).max)
        if candidate.itemsize >= dtype.itemsize and largest <= limit:
            return candidate
    raise ValueRangeError(
        f"values up to {largest:,} could arise ({semiring} semiring), which 64-bit integers do not hold beside what is "
        "infeasible; give the tables float64 values"
    )
