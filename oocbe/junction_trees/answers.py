"""Answers of junction trees by names and labels: assignments, a row each, and numbers over a scope."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.model.names import value_index, variable_index
from oocbe.model.parts import Variable
from oocbe.model.problem import Problem
from oocbe.runtime.framed import Framed


def labels_of(variable: Variable) -> list[str]:
    """The labels of all values."""
    return [variable.label(i) for i in range(variable.size)]


@dataclass(frozen=True, eq=False)
class Assignments(Framed):
    """Assignments of some variables, such as samples: a row each. ``rows["rain"]`` has a variable's labels.

    Attributes
    ----------
    variables : of the columns. indices : int64 (rows, variables), value indices; -1 where a case is impossible.
    """

    variables: tuple[Variable, ...]
    indices: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, name: str) -> NDArray[Any]:
        """The labels of a variable, text or None (rows,); UsageError for an unknown name."""
        v = variable_index(Problem(self.variables), name)
        return np.array([*labels_of(self.variables[v]), None], dtype=object)[self.indices[:, v]]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.indices, dtype=dtype, copy=copy)

    def _columns(self) -> Iterable[tuple[str, Any]]:
        return ((v.name, (own, labels_of(v))) for v, own in zip(self.variables, self.indices.T, strict=True))

    def __repr__(self) -> str:
        return f"<Assignments: {len(self):,} rows of {len(self.variables):,} variables>"


@dataclass(frozen=True, eq=False)
class Factor(Framed):
    """Numbers over a scope, such as a posterior: ``factor["wet", "yes"]`` has one, by a label or position each.

    Attributes
    ----------
    variables : of the axes. values : float64, an axis for each variable, in their order.
    what : the name of the numbers in a data frame, which has a row for each assignment.
    """

    variables: tuple[Variable, ...]
    values: NDArray[np.float64]
    what: str = "probability"

    def __getitem__(self, labels: object) -> float:
        """The number of an assignment; UsageError for an unknown label, ValueError for a wrong number of them."""
        given = labels if isinstance(labels, tuple) else (labels,)
        return float(self.values[tuple(value_index(v, x) for v, x in zip(self.variables, given, strict=True))])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.values, dtype=dtype, copy=copy)

    def _columns(self) -> Iterable[tuple[str, Any]]:
        axes = np.indices(self.values.shape).reshape(len(self.variables), self.values.size)
        yield from ((v.name, (own, labels_of(v))) for v, own in zip(self.variables, axes, strict=True))
        yield self.what, self.values.ravel()

    def __repr__(self) -> str:
        return f"<{self.what} of {', '.join(v.name for v in self.variables)}: {self.values.size:,} numbers>"
