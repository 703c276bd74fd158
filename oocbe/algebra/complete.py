"""The operators on complete tables, and on pairs of a complete and an incomplete one.

Two complete tables are joined and marginalised by one kernel call
(:meth:`oocbe.kernels.interface.CompleteBackend.eliminate_complete`). Of a mixed pair the incomplete table is written
out where its rows would take about as much as that, keys and all: the result is then complete. A sparser one stays as
it is, since what it joins with has no more rows than it lets through: the complete table is looked up row by row where
the incomplete one has all its variables, and turned into rows otherwise. The result is incomplete.

Results of any size are computed in pieces, from the boxes of the tables that each needs
(:mod:`oocbe.algebra.complete_tables.complete_stream`), and written to disk. A table whose variables lie so that a box
is spread over many chunks is transposed first.

Tables of rows and complete tables are converted into one another by :func:`to_complete` and :func:`to_rows`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from itertools import count
from math import prod
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard, TypeVar

import numpy as np
from numpy.typing import NDArray

from oocbe.algebra.complete_tables.complete_stream import (
    CellFunction,
    CellRoom,
    CompleteCuts,
    CompleteStream,
    box_cells,
    cells_touched,
)
from oocbe.algebra.complete_tables.conversion import (
    AnyTable,
    Scratch,
    cell_pieces,
    complete_in_memory,
    row_pieces,
    rows_in_memory,
    transposed,
)
from oocbe.algebra.inputs import Execution, TableLike, check_form
from oocbe.algebra.out_of_core.context import ExecutionContext, extent_of
from oocbe.errors import ValueRangeError
from oocbe.execution.sources import source_of
from oocbe.kernels import backend_named
from oocbe.kernels.choice import complete_kernels
from oocbe.kernels.cpu.complete.complete_copy import cells_of_rows
from oocbe.kernels.interface import Backend, CompleteFunction
from oocbe.model.infeasible import feasible_mask, largest_feasible
from oocbe.model.semiring import Combination, Marginalisation, Semiring
from oocbe.model.settings.tuning import tuning
from oocbe.tables.complete import CompleteTable, check_cells, key_fields
from oocbe.tables.layout import Layout
from oocbe.tables.numbers import converted, dtype_of_rows
from oocbe.tables.residence import is_on_device, to_host
from oocbe.tables.stored import AnyComplete, StoredCompleteTable, StoredTable
from oocbe.tables.table import Table
from oocbe.tables.writer import CHUNK_CELLS

Cells = TypeVar("Cells", bound=AnyComplete)


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

    Raises ValueRangeError: integers that no dtype holds; ResourceError: a complete result that memory has no room for.
    """
    written = [CompleteTable.from_table(t) if _is_to_be_written_out(t) else t for t in tables]
    complete = [table for table in written if isinstance(table, CompleteTable)]
    if len(complete) == len(written):
        return eliminate_tables(complete, gone, backend, piece_rows)
    (sparse,) = (table for table in written if isinstance(table, Table))
    (dense,) = complete
    if all(name in sparse.layout for name in dense.scope):
        looked_up = look_up(sparse, dense)
        return by_rows([looked_up], gone) if gone else looked_up
    return by_rows([rows_in_memory(table) for table in written], gone)


def _is_to_be_written_out(table: Table | StoredTable | AnyComplete) -> TypeGuard[Table]:
    """Whether a table is incomplete, and takes no less than the complete one that stands for the same rows."""
    return not isinstance(table, AnyComplete) and table.layout.complete_rows * table.dtype.itemsize <= table.nbytes


def look_up(table: Table, dense: CompleteTable) -> Table:
    """Rows of an incomplete table with the values of a complete one, over some of its variables, joined to them.

    Returns the rows in their order, without those that the complete table makes infeasible.
    """
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

    tables : at least one, of one semiring, in main or device memory; domain sizes agree. If one is on a device, the
        device computes the result, and it stays there.
    gone : variables to eliminate, each in some scope.
    Returns CompleteTable : scope = each table's variables that no other one has, table after table, then the shared
    ones in the order in which they come first.
    Raises ValueRangeError: a sum or product could leave int64; ResourceError: memory has no room for the result.
    """
    tables = _without_own(tables, gone, lambda table, own: eliminate_tables([table], own, backend, piece_rows))
    semiring, (sizes, kept, last, layout, dtype) = tables[0].semiring, _joined(tables, gone)
    check_cells(layout, dtype)
    axes = (*kept, *last)
    given = [converted(t.values, dtype, semiring, f"complete table over {t.scope}", may_round=True) for t in tables]
    functions = [CompleteFunction(v, t.strides(axes)) for v, t in zip(given, tables, strict=True)]
    keeps = any(map(is_on_device, tables))
    kernels = complete_kernels(sum(t.cells for t in tables), "cuda" if keeps else backend)
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
    return CompleteTable(layout, values if keeps else kernels.download(values), semiring)


class _Joined(NamedTuple):
    """A join of complete tables: domain sizes of all variables; those that stay, each table's own before the shared
    ones; those that go; layout and dtype of the result."""

    sizes: dict[str, int]
    kept: list[str]
    last: list[str]
    layout: Layout
    dtype: np.dtype[Any]


def _joined(tables: Sequence[AnyComplete], gone: Sequence[str]) -> _Joined:
    sizes = {name: size for t in tables for name, size in zip(t.scope, t.layout.sizes, strict=True)}
    kept = [name for name in sizes if name not in gone]
    kept.sort(key=lambda name: sum(name in t.layout for t in tables) > 1)
    last = [name for name in sizes if name in gone]
    layout = Layout.of(kept, [sizes[name] for name in kept], *(t.layout for t in tables))
    terms = prod(sizes[name] for name in last)
    return _Joined(sizes, kept, last, layout, complete_dtype([_extent(t) for t in tables], tables[0].semiring, terms))


def _without_own(
    tables: Sequence[Cells], gone: Sequence[str], eliminate: Callable[[Any, list[str]], Cells]
) -> list[Cells]:
    """Tables without the variables to eliminate that one of several alone has."""
    found = []
    for table in tables:
        others = [t for t in tables if t is not table]
        own = [n for n in table.scope if n in gone and not any(n in t.layout for t in others)]
        found.append(eliminate(table, own) if own and others else table)
    return found


def complete_dtype(values: Sequence[NDArray[Any]], semiring: Semiring, terms: int = 1) -> np.dtype[Any]:
    """Dtype that holds every combination of feasible values, one of each array, and sums of up to ``terms`` of them.

    Integers stay as narrow as they are where that is wide enough, besides room for what is infeasible.

    Raises ValueRangeError: a sum or product could leave int64.
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


@dataclass(frozen=True)
class CompletePlace:
    """Resources for operators on complete tables: memory, kernels, and a scratch folder for the duration."""

    context: ExecutionContext
    folder: Path
    backend: Backend | str | None
    numbers: Iterator[int]

    @classmethod
    @contextmanager
    def of(cls, settings: Execution) -> Iterator[CompletePlace]:
        """The place that an operator's arguments describe."""
        context = ExecutionContext.of(replace(settings, backend="cpu"))
        with context.scratch_folder() as folder:
            yield cls(context, folder, settings.backend, count())

    @property
    def nbytes(self) -> int:
        """Memory for pieces at work."""
        return int(self.context.space.budget.limit * tuning().half_share)

    def fresh(self) -> Path:
        """A path in the scratch folder."""
        return self.folder / f"{next(self.numbers)}"

    def write(
        self,
        output: str | Path,
        layout: Layout,
        dtype: np.dtype[Any],
        semiring: Semiring,
        values: Iterable[NDArray[Any]],
    ) -> StoredCompleteTable:
        """Write a complete table; nothing is left of it where an exception passes through."""
        cells = max(1, min(CHUNK_CELLS, self.context.space.chunk_bytes // dtype.itemsize))
        return StoredCompleteTable.save_pieces(
            output, layout, dtype, semiring, values, chunk_cells=cells, overwrite=self.context.settings.overwrite
        )

    def scratch_for(self, table: AnyComplete) -> Scratch:
        """Writes a table's values, in any order of its cells, to the scratch folder."""
        cells = Layout(("cells",), (table.layout.complete_rows,))

        @contextmanager
        def scratch(values: Iterable[NDArray[Any]]) -> Iterator[StoredCompleteTable]:
            yield self.write(self.fresh(), cells, table.dtype, table.semiring, values)

        return scratch

    def reordered(self, table: AnyComplete, scope: Sequence[str], output: str | Path) -> StoredCompleteTable:
        """A table with its variables in another order, written."""
        dtype, what = dtype_of_rows(table.dtype), f"complete table over {table.scope}"
        source = to_host(table) if isinstance(table, CompleteTable) else table
        parts = transposed(source, scope, self.nbytes, self.scratch_for(table), self.context.space.piece_rows)
        values = (converted(part, dtype, table.semiring, what) for part in parts)
        return self.write(output, table.layout.select(scope), dtype, table.semiring, values)

    def written_out(self, table: TableLike, scope: Sequence[str], output: str | Path) -> StoredCompleteTable:
        """Rows as a complete table."""
        if isinstance(table, StoredTable):
            table.refuse_duplicates()
        dtype = complete_dtype([extent_of(table, table.semiring)], table.semiring)
        layout, space = table.layout.select(scope), self.context.space
        values = cell_pieces(source_of(table), layout, dtype, table.semiring, space, backend_named("cpu"))
        return self.write(output, layout, dtype, table.semiring, values)

    def listed(self, table: AnyComplete, scope: Sequence[str], output: str | Path) -> StoredTable:
        """The feasible cells as rows, sorted, the first variable of the scope least significant."""
        dtype, layout = dtype_of_rows(table.dtype), table.layout.select(scope)
        chunk_rows, overwrite = self.context.chunk_rows(layout, dtype), self.context.settings.overwrite
        rows = row_pieces(table, scope, self.nbytes, self.scratch_for(table))
        return StoredTable.save_pieces(
            output, layout, dtype, table.semiring, rows, chunk_rows=chunk_rows, overwrite=overwrite
        )


def combine_stored(
    tables: Sequence[AnyTable],
    gone: Sequence[str],
    settings: Execution,
    on_rows: Callable[[Sequence[TableLike]], StoredTable],
) -> StoredTable | StoredCompleteTable:
    """Join one or two tables, of which at least one is complete, and marginalise variables out; on disk.

    on_rows : the operator on tables of rows.

    Returns StoredCompleteTable, where all tables are complete or are written out: scope as in :func:`eliminate_tables`,
    values of int32 where those would be int16. Else StoredTable.
    """
    assert settings.output is not None
    with CompletePlace.of(settings) as place:
        by_rows = [t if isinstance(t, StoredTable | AnyComplete) else rows_in_memory(t) for t in tables]
        found = [place.written_out(t, t.scope, place.fresh()) if _is_to_be_written_out(t) else t for t in by_rows]
        complete = [table for table in found if isinstance(table, AnyComplete)]
        if len(complete) == len(found):
            return eliminate_stored(complete, gone, settings.output, place)
        rows = [
            place.listed(table, table.scope, place.fresh()) if isinstance(table, AnyComplete) else table
            for table in found
        ]
        return on_rows(rows)


def eliminate_stored(
    tables: Sequence[AnyComplete], gone: Sequence[str], output: str | Path, place: CompletePlace
) -> StoredCompleteTable:
    """Join complete tables and marginalise variables out, piece by piece, into a table on disk.

    Raises ValueRangeError: a sum or product could leave int64; ResourceError: memory has no room for the smallest
    piece; DiskError: the disk is full; CorruptDataError: a table is damaged.
    """
    tables = _without_own(tables, gone, lambda table, own: eliminate_stored([table], own, place.fresh(), place))
    semiring, (sizes, kept, last, layout, dtype) = tables[0].semiring, _joined(tables, gone)
    dtype = dtype_of_rows(dtype)
    number = {name: place_of for place_of, name in enumerate((*kept, *last))}
    lengths = {number[name]: size for name, size in sizes.items()}
    separator, eliminated = tuple(range(len(kept))), tuple(range(len(kept), len(number)))
    space, kernels = place.context.space, complete_kernels(sum(t.layout.complete_rows for t in tables), place.backend)
    room = CellRoom(place.nbytes, space.piece_rows)

    def stream(tables: Sequence[AnyComplete]) -> CompleteStream:
        read = [CellFunction(tuple(number[n] for n in t.scope), t) for t in tables]
        return CompleteStream(
            separator, eliminated, lengths, (), read, semiring, dtype, lambda _: kernels, room, space.streams, True
        )

    cuts = stream(tables).cuts
    wanted = sorted((*last, *kept), key=lambda name: number[name] in cuts.widths)  # what is cut is slowest
    near = [to_host(t) if isinstance(t, CompleteTable) else _gathered(t, wanted, number, cuts, place) for t in tables]
    with closing(stream(near).values()) as values:
        return place.write(output, layout, dtype, semiring, values)


def _gathered(
    table: StoredCompleteTable, wanted: Sequence[str], number: dict[str, int], cuts: CompleteCuts, place: CompletePlace
) -> StoredCompleteTable:
    """The table, with its variables in the order wanted where boxes would be spread over too many of its chunks."""
    ranges = {**next(cuts.ranges()), **next(cuts.parts())}
    box = tuple(ranges.get(number[n], (0, s)) for n, s in zip(table.scope, table.layout.sizes, strict=True))
    if cells_touched(table.layout.sizes, box, table.chunk_cells) <= tuning().transpose_spread * box_cells(box):
        return table
    if table.cells <= 2 * table.chunk_cells or cuts.repeats([number[n] for n in table.scope]):
        return table
    return place.reordered(table, [name for name in wanted if name in table.layout], place.fresh())


def _extent(table: AnyComplete) -> NDArray[Any]:
    """Values that stand for all feasible ones in range analysis."""
    if table.dtype.kind == "f":
        return np.zeros(1, dtype=table.dtype)
    if isinstance(table, CompleteTable):
        return table.values[table.feasible()]
    return np.array(table.extent or (), dtype=table.dtype)


def to_complete(
    table: AnyTable,
    scope: Sequence[str] | None = None,
    *,
    piece_rows: int | None = None,
    output: str | Path | None = None,
    memory: int | str | None = None,
    scratch: str | Path | None = None,
    streams: int | None = None,
    overwrite: bool = False,
) -> CompleteTable | StoredCompleteTable:
    """Write a table out as a complete one: an infeasible value for each assignment without a row.

    Parameters
    ----------
    table : of either form, in memory or stored. scope : order of the variables, the fastest first; None: the table's.
    piece_rows : most rows, or cells, of a piece out of core; None: as many as fit.
    output, memory, scratch, streams, overwrite : with ``output``, a table of any size is converted piece by
        piece and written; see :class:`oocbe.algebra.inputs.Execution`.

    Raises
    ------
    ModelError : the scope has other variables. ResourceError : the values do not fit in memory.
    ValueRangeError : a value that no dtype of a complete table holds. DiskError : the disk is full.

    Examples
    --------
    >>> to_complete(Table.from_rows({"x": 2}, [[1]], [5])).to_dict()
    {(1,): 5}
    """
    check_form(table)
    settings = Execution(output, memory, scratch, streams, None, None, overwrite, piece_rows, "cpu")
    wanted = table.scope if scope is None else tuple(table.layout.select(scope).scope)
    if settings.wanted:
        assert output is not None
        with CompletePlace.of(settings) as place:
            if isinstance(table, AnyComplete):
                return place.reordered(table, wanted, output)
            return place.written_out(table, wanted, output)
    return complete_in_memory(table, wanted)


def to_rows(
    table: AnyComplete,
    scope: Sequence[str] | None = None,
    *,
    piece_rows: int | None = None,
    output: str | Path | None = None,
    memory: int | str | None = None,
    scratch: str | Path | None = None,
    streams: int | None = None,
    overwrite: bool = False,
) -> Table | StoredTable:
    """The feasible assignments of a complete table as rows, sorted.

    Parameters
    ----------
    scope : order of the variables, the least significant first; None: the table's. Others as for :func:`to_complete`.

    Raises
    ------
    ModelError : the scope has other variables. ResourceError : the rows do not fit in memory. DiskError : the disk is
        full.

    Examples
    --------
    >>> to_rows(CompleteTable.from_array("x", [3.0, float("-inf")])).to_dict()
    {(0,): 3.0}
    """
    check_form(table)
    settings = Execution(output, memory, scratch, streams, None, None, overwrite, piece_rows, "cpu")
    wanted = table.scope if scope is None else tuple(table.layout.select(scope).scope)
    if settings.wanted:
        assert output is not None
        with CompletePlace.of(settings) as place:
            return place.listed(table, wanted, output)
    return rows_in_memory(table, wanted)
