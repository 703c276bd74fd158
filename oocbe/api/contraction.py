"""Contraction of tables along a path: each step joins two tables and eliminates indices.

A step is one :func:`oocbe.join_marginalise` in memory; if its tables exceed the memory limit, it writes its result to a
scratch folder, piece by piece. Products of dense matrices are computed by BLAS.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import ExitStack, closing
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.algebra.operators import join_marginalise, marginalise
from oocbe.api.contraction_path import Contraction, ContractionPath
from oocbe.kernels.arrays import is_device_array
from oocbe.model.semiring import SUM_PRODUCT
from oocbe.tables.complete import CompleteTable
from oocbe.tables.layout import Layout
from oocbe.tables.scratch import ScratchFolder, default_parent
from oocbe.tables.stored import StoredTable
from oocbe.tables.stored_complete import StoredCompleteTable
from oocbe.tables.table import Table

IN_MEMORY_SHARE = 0.5
"""Share of the memory limit for the tables of a step that works in memory; the rest is for transposed copies."""


class Contractions:
    """The steps of a path on tables, in memory or through a scratch folder.

    Parameters
    ----------
    path : the steps. memory : limit of tables in bytes. backend : ``cpu``, ``cuda`` or ``auto``.
    closed : closes the scratch folder; stored results are valid until then.

    Attributes
    ----------
    inputs : tables of each step that was made.
    """

    def __init__(self, path: ContractionPath, memory: int, backend: str | None, closed: ExitStack) -> None:
        self.path, self._memory, self._backend, self._closed = path, memory, backend, closed
        self._folder: Path | None = None
        self._numbers = count()
        self.inputs: list[list[Any]] = []

    def run(self, tables: list[Any], output: str | Path | None) -> Any:
        """The table of the last step; written to ``output``, a new stored table, if it is given.

        tables : over the operands of the path's expression.
        """
        left = list(tables)
        for number, step in enumerate(self.path.steps):
            own = [left[p] for p in step.positions]
            for p in sorted(step.positions, reverse=True):
                del left[p]
            is_last = number == len(self.path.steps) - 1
            left.append(self._contracted(step, own, output if is_last else None))
            self.inputs.append(own)
        return left[0]

    def _contracted(self, step: Contraction, tables: list[Any], output: str | Path | None) -> Any:
        operate: Any = marginalise if len(tables) == 1 else join_marginalise
        gone = list(step.eliminated)
        settings: dict[str, Any] = {"backend": self._backend}
        if output is not None or not self._fits(step, tables):
            place = self._place() if output is None else output
            settings |= {"output": place, "memory": self._memory, "scratch": self._scratch()}
        elif len(tables) == 1 and not gone:
            return tables[0]
        elif self._backend != "cuda" and (product := _matrix_product(tables, gone)) is not None:
            return product
        made = operate(*tables, gone, **settings)
        if output is None and isinstance(made, StoredTable) and 8 * made.nbytes <= IN_MEMORY_SHARE * self._memory:
            return made.to_table()
        return made

    def _fits(self, step: Contraction, tables: list[Any]) -> bool:
        """Whether a step works in memory: no table is stored, and with the result they take a share of the limit."""
        if any(isinstance(table, StoredTable | StoredCompleteTable) for table in tables):
            return False
        width = max(table.dtype.itemsize for table in tables)
        result = step.cells * width
        if all(isinstance(table, Table) for table in tables):
            keys = 8 * math.ceil(math.log2(max(2, step.cells)) / 64)
            result = min(step.cells, _joined_rows(tables)) * (width + keys)
        return bool(result + sum(table.nbytes for table in tables) <= IN_MEMORY_SHARE * self._memory)

    def _scratch(self) -> Path:
        if self._folder is None:
            self._folder = self._closed.enter_context(closing(ScratchFolder(default_parent()))).path
        return self._folder

    def _place(self) -> Path:
        return self._scratch() / f"step-{next(self._numbers)}"


def _joined_rows(tables: Sequence[Table]) -> int:
    """Rows of the join of one or two incomplete tables."""
    if len(tables) == 1:
        return tables[0].rows
    one, two = tables
    shared = [name for name in one.scope if name in two.layout]
    if not shared:
        return one.rows * two.rows
    found = []
    for table in tables:
        places = [table.scope.index(name) for name in shared]
        found.append(np.unique(table.to_rows()[0][:, places], axis=0, return_counts=True))
    (keys1, counts1), (keys2, counts2) = found
    both, inverse = np.unique(np.concatenate([keys1, keys2]), axis=0, return_inverse=True)
    totals = np.zeros((2, len(both)), dtype=np.int64)
    totals[0, inverse.ravel()[: len(keys1)]] = counts1
    totals[1, inverse.ravel()[len(keys1) :]] = counts2
    return int((totals[0] * totals[1]).sum())


def _matrix_product(tables: Sequence[Any], gone: Sequence[str]) -> CompleteTable | None:
    """A sum of products of two dense float tables, by BLAS; None if it is no product of matrices."""
    if (
        len(tables) != 2
        or not gone
        or any(not isinstance(t, CompleteTable) or t.semiring != SUM_PRODUCT for t in tables)
    ):
        return None
    one, two = tables
    if one.dtype.kind != "f" or two.dtype.kind != "f" or is_device_array(one.values) or is_device_array(two.values):
        return None
    shared = [name for name in one.scope if name in two.layout]
    batch = [name for name in shared if name not in gone]
    own = [[name for name in table.scope if name not in shared] for table in tables]
    if not all(own) or set(gone) != set(shared) - set(batch):
        return None
    # The last axis of a C-contiguous array changes fastest, the first variable of a table does.
    left = cells_along(one, [*batch, *own[0], *gone]).reshape(*_lengths(one, batch), _cells(one, own[0]), -1)
    right = cells_along(two, [*batch, *gone, *own[1]]).reshape(*_lengths(two, batch), -1, _cells(two, own[1]))
    scope = (*batch, *own[0], *own[1])
    sizes = {name: size for t in tables for name, size in zip(t.scope, t.layout.sizes, strict=True)}
    layout = Layout(tuple(reversed(scope)), tuple(sizes[name] for name in reversed(scope)))
    return CompleteTable(layout, np.ascontiguousarray(np.matmul(left, right)).reshape(-1), SUM_PRODUCT)


def cells_along(table: CompleteTable, names: Sequence[str]) -> NDArray[Any]:
    """The values as an array with an axis for each name, in this order."""
    array = table.values.reshape(tuple(reversed(table.layout.sizes)))
    order = tuple(reversed(table.scope))
    return array.transpose([order.index(name) for name in names])


def _lengths(table: CompleteTable, names: Sequence[str]) -> list[int]:
    return [table.layout.sizes[table.layout.place(name)] for name in names]


def _cells(table: CompleteTable, names: Sequence[str]) -> int:
    return math.prod(_lengths(table, names))
