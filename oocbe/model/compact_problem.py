"""A problem with short tables: a cell of a row may cover every value of its variable.

Expanded, such *short tables* may exceed memory; propagation works on the short form. Unsupported parts of a file are
listed: propagation may ignore them (it then removes less), and solving refuses them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import ModelError, UnsupportedError
from oocbe.model.model_checks import as_scope, as_tuples, check_scope
from oocbe.model.parts import Constraint
from oocbe.model.problem import Problem
from oocbe.model.row_numbers import MOST_AXES, distinct_values
from oocbe.runtime.deadline import check_deadline

ANY = -1
"""Cell that covers every value of its variable."""

MOST_CELLS = 2**26
"""Limit of the cells of an expanded short table."""


@dataclass(frozen=True, eq=False)
class ShortTable:
    """A hard constraint in extension with cells that cover every value; rows may overlap.

    Attributes
    ----------
    scope : variable indices, without repetition, at least one.
    tuples : int64 (rows, arity), value indices in scope order, or :data:`ANY`.
    allowed : True: an assignment must match some row; False: it must match none.
    """

    scope: tuple[int, ...]
    tuples: NDArray[np.int64]
    allowed: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "scope", as_scope(self.scope))
        object.__setattr__(self, "tuples", as_tuples(self.scope, self.tuples))
        if not self.scope:
            raise ModelError("a short table needs a variable")

    def expanded(self, name: str, sizes: tuple[int, ...]) -> Constraint:
        """The constraint with all rows expanded; UnsupportedError if these are too many (name: the problem's)."""
        shape = tuple(sizes[v] for v in self.scope)
        counts = np.where(self.tuples == ANY, np.array(shape), 1)
        rows = sum(math.prod(row) for row in counts.tolist())
        if rows * len(shape) > MOST_CELLS:
            raise UnsupportedError(
                f"{name}: a short table over {len(shape)} variables has {rows:,} rows when it is written out; "
                f"at most {MOST_CELLS // len(shape):,} are supported"
            )
        parts = [np.zeros((0, len(shape)), dtype=np.int64)]
        free = self.tuples == ANY
        for pattern in distinct_values(free, axis=0):
            check_deadline()
            rows_here = self.tuples[(free == pattern).all(axis=1)]
            axes = np.flatnonzero(pattern)
            grid = np.argwhere(np.ones([shape[axis] for axis in axes], dtype=bool))
            written = np.repeat(rows_here, len(grid), axis=0)
            written[:, axes] = np.tile(grid, (len(rows_here), 1))
            parts.append(written)
        return Constraint(self.scope, distinct(np.concatenate(parts), shape), self.allowed)


@dataclass(frozen=True, eq=False)
class CompactProblem:
    """A problem, short tables over its variables, and a list of unsupported parts.

    Attributes
    ----------
    problem : all parts without short tables.
    short_tables : over the problem's variables.
    left_out : unsupported parts, one line of text each, with the position in the file.
    """

    problem: Problem
    short_tables: tuple[ShortTable, ...] = ()
    left_out: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        sizes = np.array(self.problem.sizes, dtype=np.int64)
        for number, table in enumerate(self.short_tables):
            where = f"{self.problem.name}: short table {number}"
            check_scope(where, table.scope, len(sizes))
            limits = sizes[list(table.scope)]
            if ((table.tuples < ANY) | (table.tuples >= limits)).any():
                raise ModelError(f"{where}: a value is outside its domain")

    def __repr__(self) -> str:
        more = f", {len(self.short_tables)} short tables" if self.short_tables else ""
        missing = f", without {len(self.left_out)} parts that were left out" if self.left_out else ""
        return f"{self.problem!r}{more}{missing}"

    def expanded(self) -> Problem:
        """The problem with all tables expanded; UnsupportedError if a part is unsupported or too large."""
        if self.left_out:
            raise UnsupportedError(f"{self.left_out[0]} is not supported")
        problem = self.problem
        if not self.short_tables:
            return problem
        written = tuple(table.expanded(problem.name, problem.sizes) for table in self.short_tables)
        return replace(problem, constraints=problem.constraints + written)


def distinct(tuples: NDArray[np.int64], shape: tuple[int, ...]) -> NDArray[np.int64]:
    """Rows without repetition, in order; shape : number of values of each column; cells may be -1."""
    spans = tuple(size + 1 for size in shape)
    if math.prod(spans) < 2**62 and len(spans) <= MOST_AXES:
        codes = np.ravel_multi_index(tuple((tuples + 1).T), spans)
        _, first = np.unique(codes, return_index=True)
    else:
        _, first = np.unique(tuples, axis=0, return_index=True)
    return tuples if len(first) == len(tuples) else tuples[np.sort(first)]
