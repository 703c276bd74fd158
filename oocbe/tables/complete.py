"""Complete tables: a value for every assignment of a scope, without keys.

The index of an assignment's value is its mixed-radix number: the first variable of the scope is the least significant
digit, with its domain size as the base (Bistaffa, Bombieri and Farinelli, ECAI 2016; Fioretto et al. 2018). Infeasible
assignments have the value of :mod:`oocbe.model.infeasible`. Compared with an incomplete table
(:class:`oocbe.tables.table.Table`) this saves the key of each feasible row and costs a value for each infeasible one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from oocbe.errors import ModelError, ResourceError
from oocbe.kernels.interface import CompleteFunction, host_array, is_cupy, is_device_array, steps_of
from oocbe.model.infeasible import feasible_mask, infeasible_value
from oocbe.model.results.numerals import format_bytes
from oocbe.model.semiring import MAX_SUM, Semiring
from oocbe.model.settings.machine import check_room, default_memory_limit
from oocbe.runtime.deadline import looked
from oocbe.tables.columns import given_values
from oocbe.tables.layout import Layout, Scoped
from oocbe.tables.numbers import check_feasible, dtype_of_rows, holds
from oocbe.tables.table import Table

COMPLETE_DTYPES = tuple(np.dtype(t) for t in (np.int16, np.int32, np.int64, np.float32, np.float64))

CELLS_BETWEEN_LOOKS = 1 << 22
"""Cells counted between two checks of the deadline: a few milliseconds of work, and as many bytes of marks."""


class Cells(Scoped):
    """Common interface of complete tables in memory and on disk."""

    if TYPE_CHECKING:
        semiring: Semiring
        rows: Any
        dtype: Any
        nbytes: Any
        cells: Any

    @property
    def density(self) -> float:
        """Fraction of feasible assignments."""
        return float(self.rows / self.cells)

    @cached_property
    def steps(self) -> tuple[int, ...]:
        """Distance in cells between neighbours along each variable."""
        return steps_of(self.layout.sizes)

    def is_feasible(self, values: NDArray[Any]) -> NDArray[np.bool_]:
        """Mask of the values that are feasible: bool of the same shape."""
        return feasible_mask(values, self.semiring.combination, self.semiring.marginalisation)

    def value_at(self, assignment: Mapping[str, int] | Sequence[int]) -> int | float | None:
        """Value of one assignment (by name, or in scope order); None if it is infeasible. Reads one chunk at most.

        Raises
        ------
        ModelError : a value outside its domain, a missing variable, or a wrong number of values.
        """
        return self.value_of(self.layout.indices_of(assignment))

    def value_of(self, indices: Sequence[int]) -> int | float | None:
        """Value of an assignment by value indices in scope order, unchecked; None if it is infeasible."""
        value = self._cell(sum(int(value) * step for value, step in zip(indices, self.steps, strict=True)))
        if not self.is_feasible(value)[0]:
            return None
        found: int | float = value[0].item()
        return found

    def _cell(self, number: int) -> NDArray[Any]:
        """Value of one cell, (1,), in main memory."""
        raise NotImplementedError

    def __repr__(self) -> str:
        names = self.scope if len(self.scope) <= 8 else (*self.scope[:6], f"… {len(self.scope) - 6} more")
        return (
            f"<{type(self).__name__} ({', '.join(names)}): {self.cells:,} values, {format_bytes(self.nbytes)}, "
            f"{self.dtype.name}, {self.semiring}>"
        )


@dataclass(frozen=True, eq=False, repr=False)
class CompleteTable(Cells):
    """A complete table.

    Attributes
    ----------
    layout : scope and domain sizes, the first variable changing fastest. (Its bit fields are those of the keys of the
        rows.)
    values : int16, int32, int64, float32 or float64 (cells,), contiguous, in main or device memory.
    semiring : combination and marginalisation, and with them the infeasible value.
    """

    layout: Layout
    values: NDArray[Any]
    semiring: Semiring = MAX_SUM

    def __post_init__(self) -> None:
        if self.values.dtype not in COMPLETE_DTYPES:
            names = ", ".join(d.name for d in COMPLETE_DTYPES)
            raise ModelError(f"complete table over {self.scope}: values must be {names}, not {self.values.dtype}")
        if self.values.shape != (self.layout.complete_rows,):
            raise ModelError(
                f"complete table over {self.scope}: {self.layout.complete_rows} assignments, values of shape "
                f"{self.values.shape}"
            )

    @classmethod
    def from_array(
        cls, scope: Sequence[str], array: ArrayLike, semiring: Semiring = MAX_SUM, feasible: ArrayLike | None = None
    ) -> CompleteTable:
        """Make a table from an array with one axis a variable.

        Parameters
        ----------
        scope : a name for each axis; the first axis becomes the fastest one.
        array : numbers, any shape, in main or device memory. feasible : booleans of the same shape, False for
            infeasible assignments, of arrays in main memory; None: all are feasible, except those with the semiring's
            zero, such as an infinite cost.

        Raises
        ------
        ModelError : inconsistent shapes, or numbers that tables cannot represent (:mod:`oocbe.tables.numbers`).
        ValueRangeError : an integer beyond int64, or too large to distinguish from infeasible values.
        """
        what = f"complete table over {tuple(scope)}"
        dense: Any = array if is_cupy(array) else given_values(what, array, COMPLETE_DTYPES)
        layout = Layout(tuple(scope), dense.shape)
        codes = semiring.combination, semiring.marginalisation
        if feasible is None and dense.dtype.kind == "f" and infeasible_value(dense.dtype, *codes) == semiring.zero:
            values = dense.transpose().flatten()
            check_feasible(f"complete table over {layout.scope}", values, semiring)
            return cls(layout, values, semiring)
        mask = np.ones_like(dense, dtype=bool) if feasible is None else np.asarray(feasible, dtype=bool)
        if mask.shape != dense.shape:
            raise ModelError(f"complete table over {layout.scope}: values {dense.shape}, feasible {mask.shape}")
        if dense.dtype.kind == "f":
            mask = mask & (dense != semiring.zero)
        flat, chosen = dense.transpose().ravel(), mask.transpose().ravel()
        check_feasible(f"complete table over {layout.scope}", flat[chosen], semiring)
        filler = infeasible_value(dense.dtype, *codes)
        return cls(layout, np.where(chosen, flat, filler).astype(dense.dtype, copy=False), semiring)

    @classmethod
    def from_table(
        cls, table: Table, scope: Sequence[str] | None = None, dtype: DTypeLike | None = None
    ) -> CompleteTable:
        """Convert an incomplete table: an infeasible value for each assignment without a row.

        Parameters
        ----------
        table : rows in any order, in main or device memory; the result is in the same memory.
        scope : order of the variables, the fastest first; None: the table's.
        dtype : of the values; None: the table's, or int64 if int32 cannot separate its values from infeasible ones.

        Raises
        ------
        ResourceError : the values exceed the memory. ValueRangeError : a value that the dtype cannot represent.
        ModelError : max-product with a negative value.
        """
        kind = np.dtype(table.values.dtype if dtype is None else dtype)
        if dtype is None and kind == np.int32 and not holds(kind, table.values, table.semiring):
            kind = np.dtype(np.int64)
        wanted = table.scope if scope is None else scope
        if not is_device_array(table.values):
            return cls.from_pieces(table.layout, [table], table.semiring, wanted, kind)
        from oocbe.kernels.cuda.complete.complete import cells_of_rows
        from oocbe.kernels.cuda.transfer.memory import with_retry

        layout, semiring = table.layout.select(wanted), table.semiring
        check_feasible(f"complete table over {layout.scope}", table.values, semiring, kind)
        values, fields = with_retry(table.values.astype)(kind, copy=False), key_fields(table.layout, layout)
        cells = with_retry(cells_of_rows)(table.keys, values, fields, layout.complete_rows, semiring)
        return cls(layout, cells, semiring)

    @classmethod
    def from_pieces(
        cls, source: Layout, pieces: Iterable[Table], semiring: Semiring, scope: Sequence[str], dtype: DTypeLike
    ) -> CompleteTable:
        """Convert a table given in pieces, one of which is in main memory at a time; ``source``: their layout.

        scope, dtype : of the complete table. Errors as for :meth:`from_table`.
        """
        from oocbe.kernels.cpu.complete.complete_copy import cells_of_rows

        layout, kind = source.select(scope), np.dtype(dtype)
        check_cells(layout, kind)
        filler = infeasible_value(kind, semiring.combination, semiring.marginalisation)
        out = np.full(layout.complete_rows, filler, dtype=kind)
        fields = key_fields(source, layout)
        for piece in pieces:
            check_feasible(f"complete table over {layout.scope}", piece.values, semiring, kind)
            out[cells_of_rows(piece.keys, fields)] = piece.values.astype(kind, copy=False)
        return cls(layout, out, semiring)

    @property
    def cells(self) -> int:
        """Number of assignments, feasible or not."""
        return len(self.values)

    @property
    def nbytes(self) -> int:
        """Bytes of the values."""
        return int(self.values.nbytes)

    @cached_property
    def rows(self) -> int:
        """Number of feasible assignments, that is, rows of the incomplete table.

        Raises
        ------
        TimeLimitError : the deadline passed during the count.
        """
        values: Any = self.values
        if not is_device_array(values):
            counted = 0
            for start in looked(range(0, len(values), CELLS_BETWEEN_LOOKS)):
                counted += int(np.count_nonzero(self.is_feasible(values[start : start + CELLS_BETWEEN_LOOKS])))
            return counted
        from oocbe.kernels.cuda.complete.complete import count_feasible

        return count_feasible(values, self.semiring)

    def feasible(self) -> NDArray[np.bool_]:
        """Mask of the feasible cells: bool (cells,)."""
        return self.is_feasible(self.values)

    def strides(self, axes: Sequence[str]) -> tuple[int, ...]:
        """The table's step along each of the axes of a bucket, 0 for variables that are not in its scope."""
        return tuple(self.steps[self.layout.place(name)] if name in self.layout else 0 for name in axes)

    def to_table(self, scope: Sequence[str] | None = None) -> Table:
        """The feasible assignments as rows of an incomplete table, sorted, in the memory of the values.

        scope : order of the variables, the least significant first; None: the table's own. Values of int16 become
            int32, as incomplete tables have no int16.

        Raises
        ------
        ResourceError : keys and values exceed the memory, or device memory ran out.
        """
        layout = self.layout.select(self.scope if scope is None else scope)
        sizes = np.array(layout.sizes, dtype=np.int64)
        if is_device_array(self.values):
            from oocbe.kernels.cuda.complete.complete import rows_of_cells
            from oocbe.kernels.cuda.transfer.memory import with_retry

            steps = np.array(self.strides(layout.scope), dtype=np.int64)
            found = with_retry(rows_of_cells)(self.values, sizes, steps, key_places(layout), self.semiring)
            return table_of_cells(layout, *found, self.semiring)
        row_bytes = 8 * layout.words + self.values.itemsize
        _check_bytes(self.rows * row_bytes, f"{self.rows:,} rows over {len(layout.scope)} variables")
        return rows_among(layout, self.transposed(layout.scope).values, 0, self.semiring)

    def transposed(self, scope: Sequence[str]) -> CompleteTable:
        """The table with its variables in the given order; itself if they have that order."""
        if tuple(scope) == self.scope:
            return self
        from oocbe.kernels.cpu.complete.complete import eliminate_complete

        layout = self.layout.select(scope)
        check_cells(layout, self.values.dtype)
        codes = (self.semiring.combination, self.semiring.marginalisation)
        function = CompleteFunction(self.values, self.strides(scope))
        return replace(self, layout=layout, values=eliminate_complete([function], layout.sizes, 0, *codes, self.dtype))

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of the values."""
        return self.values.dtype

    def _cell(self, number: int) -> NDArray[Any]:
        return self.values_of(np.array([number]))

    def values_of(self, cells: NDArray[np.int64]) -> NDArray[Any]:
        """Values of the cells of given numbers (int64, any shape), in main memory."""
        values: Any = self.values
        if not is_device_array(values):
            found: NDArray[Any] = values[cells]
            return found
        from oocbe.kernels.cuda.device import cupy

        return host_array(values.take(cupy().asarray(cells)))

    def window(self, start: int, stop: int) -> NDArray[Any]:
        """Values of consecutive cells in the table's own memory; read-only."""
        return self.values[start:stop]

    def to_dict(self) -> dict[tuple[int, ...], int | float]:
        """Feasible assignments (in scope order) to values; for small tables and tests."""
        return self.to_table().to_dict()


def key_fields(source: Layout, target: Layout) -> NDArray[np.int64]:
    """Fields of a key and their strides in cells, for :func:`oocbe.kernels.cpu.complete.complete_copy.cells_of_rows`.

    ``target`` is the complete table's layout; variables that it lacks are skipped.
    """
    steps = dict(zip(target.scope, steps_of(target.sizes), strict=True))
    merged: list[list[int]] = []
    full = False
    for name, size, field in zip(source.scope, source.sizes, source.fields, strict=True):
        if name not in steps:
            continue
        if merged and full:
            word, shift, bits, step = merged[-1]
            if (field.word, field.shift, steps[name]) == (word, shift + bits, step << bits):
                merged[-1][2] += field.bits
                full = size == 1 << field.bits
                continue
        merged.append([field.word, field.shift, field.bits, steps[name]])
        full = size == 1 << field.bits
    return np.array(merged, dtype=np.int64).reshape(-1, 4)


def key_places(layout: Layout) -> NDArray[np.int64]:
    """Each variable's word and shift in a key, int64 (variables, 2): an argument of kernels."""
    return np.array([(field.word, field.shift) for field in layout.fields], dtype=np.int64).reshape(-1, 2)


def rows_among(layout: Layout, values: NDArray[Any], first: int, semiring: Semiring) -> Table:
    """Sorted rows of the feasible cells among consecutive cells of a complete table in main memory.

    layout : of all cells, the fastest variable least significant. values : of the cells from ``first`` on.
    """
    from oocbe.kernels.cpu.complete.complete_copy import rows_of_cells

    mask = feasible_mask(values, semiring.combination, semiring.marginalisation)
    sizes = np.array(layout.sizes, dtype=np.int64)
    return table_of_cells(
        layout, *rows_of_cells(values, mask, sizes, key_places(layout), layout.words, first), semiring
    )


def table_of_cells(layout: Layout, keys: Any, values: Any, semiring: Semiring) -> Table:
    """The feasible cells of a complete table, in order, as an incomplete table."""
    return Table(layout, keys, values.astype(dtype_of_rows(values.dtype), copy=False), semiring, is_sorted=True)


def check_cells(layout: Layout, dtype: np.dtype[Any]) -> None:
    """Refuse a complete table that exceeds the memory (:class:`ResourceError`)."""
    _check_bytes(layout.complete_rows * dtype.itemsize, f"a complete table over {len(layout.scope)} variables")


def _check_bytes(needed: int, what: str) -> None:
    limit = default_memory_limit()
    try:
        check_room(needed, limit)
    except MemoryError:
        raise ResourceError(
            f"{what} takes {format_bytes(needed)}, more than what is left of the memory limit of "
            f"{format_bytes(limit)}; keep it incomplete, or on disk (an output table)"
        ) from None
