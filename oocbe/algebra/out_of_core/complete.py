"""The operators on complete tables of any size, and on mixtures of both forms: complete results, written to disk.

Pieces of the result are computed from the boxes of the tables that they need
(:mod:`oocbe.algebra.complete_tables.complete_stream`). A table whose variables lie so that a box is spread over many
chunks is transposed first. Of a mixture, rows are written out where that takes no more room than they do with their
keys, as in memory; otherwise cells are listed as rows, and the operators on rows follow.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from oocbe.algebra.complete import complete_dtype, is_worth_writing_out, joined_scope, own_variables
from oocbe.algebra.complete_tables.complete_cuts import CellRoom, CompleteCuts
from oocbe.algebra.complete_tables.complete_stream import CellFunction, CompleteStream
from oocbe.algebra.complete_tables.complete_transpose import Scratch, transposed
from oocbe.algebra.complete_tables.conversion import cell_pieces, row_pieces, rows_in_memory
from oocbe.algebra.inputs import Execution
from oocbe.algebra.out_of_core.context import ExecutionContext, extent_of
from oocbe.execution.cells import box_cells, cells_touched
from oocbe.execution.sources import source_of
from oocbe.kernels import backend_named
from oocbe.kernels.choice import complete_kernels
from oocbe.model.semiring import Semiring
from oocbe.model.settings.tuning import tuning
from oocbe.tables.complete import CompleteTable
from oocbe.tables.feasible_values import converted, dtype_of_rows
from oocbe.tables.layout import Layout
from oocbe.tables.residence import to_host
from oocbe.tables.stored import StoredTable
from oocbe.tables.stored_complete import CHUNK_CELLS, AnyComplete, StoredCompleteTable

if TYPE_CHECKING:
    from oocbe.algebra.complete_tables.conversion import AnyTable
    from oocbe.algebra.inputs import TableLike
    from oocbe.kernels.interface import Backend


@dataclass(frozen=True)
class CompletePlace:
    """Where complete tables are worked on: memory, kernels, and a scratch folder for as long as the work lasts."""

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
        return int(self.context.space.budget.limit * tuning().cells_share)

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

    Returns
    -------
    StoredCompleteTable, where all tables are complete or are written out: scope as in
    :func:`oocbe.algebra.complete.eliminate_tables`, values of int32 where those would be int16. Else StoredTable.
    """
    assert settings.output is not None
    with CompletePlace.of(settings) as place:
        found = [_written_out(table, place) for table in tables]
        complete = [table for table in found if isinstance(table, AnyComplete)]
        if len(complete) == len(found):
            return eliminate_stored(complete, gone, settings.output, place)
        rows = [
            place.listed(table, table.scope, place.fresh()) if isinstance(table, AnyComplete) else table
            for table in found
        ]
        return on_rows(rows)


def _written_out(table: AnyTable, place: CompletePlace) -> AnyTable:
    if isinstance(table, AnyComplete):
        return table
    rows = table if isinstance(table, StoredTable) else rows_in_memory(table)
    return place.written_out(rows, rows.scope, place.fresh()) if is_worth_writing_out(rows) else rows


def eliminate_stored(
    tables: Sequence[AnyComplete], gone: Sequence[str], output: str | Path, place: CompletePlace
) -> StoredCompleteTable:
    """Join complete tables and marginalise variables out, piece by piece, into a table on disk.

    Raises
    ------
    ValueRangeError : a sum or product could leave int64. ResourceError : memory has no room for the smallest piece.
    DiskError : the disk is full. CorruptDataError : a table is damaged.
    """
    semiring = tables[0].semiring
    if len(tables) > 1:
        tables = [_without_own(table, tables, gone, place) for table in tables]
    sizes, kept, last = joined_scope(tables, gone)
    dtype = complete_dtype([_extent(t) for t in tables], semiring, math.prod(sizes[name] for name in last))
    dtype = dtype_of_rows(dtype)
    number = {name: place_of for place_of, name in enumerate((*kept, *last))}
    lengths = {number[name]: size for name, size in sizes.items()}
    separator, eliminated = tuple(range(len(kept))), tuple(range(len(kept), len(number)))
    space = place.context.space
    room = CellRoom(place.nbytes, space.piece_rows)
    cuts = CompleteCuts(
        separator,
        eliminated,
        tuple((tuple(number[n] for n in t.scope), dtype.itemsize) for t in tables),
        lengths,
        dtype.itemsize,
        CellRoom(room.piece_bytes // space.streams, room.piece_cells),
    )
    near = [_gathered(t, [*last, *kept], number, cuts, place) for t in tables]
    near = [to_host(t) if isinstance(t, CompleteTable) else t for t in near]
    functions = [CellFunction(tuple(number[n] for n in t.scope), t) for t in near]
    kernels = complete_kernels(sum(t.layout.complete_rows for t in tables), place.backend)
    stream = CompleteStream(
        separator, eliminated, lengths, (), functions, semiring, dtype, lambda _: kernels, room, space.streams
    )
    layout = Layout.of(kept, [sizes[name] for name in kept], *(t.layout for t in tables))
    with closing(stream.values()) as values:
        return place.write(output, layout, dtype, semiring, values)


def _without_own(
    table: AnyComplete, tables: Sequence[AnyComplete], gone: Sequence[str], place: CompletePlace
) -> AnyComplete:
    own = own_variables(table, tables, gone)
    return eliminate_stored([table], own, place.fresh(), place) if own else table


def _gathered(
    table: AnyComplete, wanted: Sequence[str], number: dict[str, int], cuts: CompleteCuts, place: CompletePlace
) -> AnyComplete:
    """The table, with its variables in the order wanted where boxes would be spread over too many of its chunks."""
    if not isinstance(table, StoredCompleteTable):
        return table
    ranges = {**next(cuts.ranges()), **next(cuts.parts())}
    box = tuple(ranges.get(number[n], (0, s)) for n, s in zip(table.scope, table.layout.sizes, strict=True))
    if cells_touched(table.layout.sizes, box, table.chunk_cells) <= tuning().transpose_spread * box_cells(box):
        return table
    if table.cells <= 2 * table.chunk_cells or cuts.repeats([number[n] for n in table.scope]):
        return table
    return place.reordered(table, [name for name in wanted if name in table.layout], place.fresh())


def _extent(table: AnyComplete) -> NDArray[Any]:
    """Values that stand for all feasible ones in range analysis."""
    if isinstance(table, CompleteTable):
        return table.values[table.feasible()]
    if table.dtype.kind == "f":
        return np.zeros(1, dtype=table.dtype)
    return np.array(table.extent or (), dtype=table.dtype)
