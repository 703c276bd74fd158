"""Parts over one variable in dense form, batched over the problem: there may be a million of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oocbe.model.parts import Constraint, Function
from oocbe.model.problem import Problem
from oocbe.runtime.deadline import check_deadline


class SingleValues(NamedTuple):
    """Parts over one variable.

    Attributes
    ----------
    numbers : int64 (parts,), their indices among all functions, or all constraints. variables : int64 (parts,).
    starts : int64 (parts + 1,), start of the values of each part's variable.
    costs : of functions, int64 or float64 (values,); 0 for constraints. permitted : bool (values,).
    """

    numbers: NDArray[np.int64]
    variables: NDArray[np.int64]
    starts: NDArray[np.int64]
    costs: NDArray[Any]
    permitted: NDArray[np.bool_]

    @classmethod
    def of_functions(cls, problem: Problem) -> SingleValues:
        """The unary functions."""
        functions, known = problem.functions, problem.extremes
        numbers = _of_one_variable(functions)
        own = [functions[number] for number in numbers.tolist()]
        return cls._of(
            problem, own, numbers, known.defaults[numbers], known.has_default[numbers], [f.values for f in own]
        )

    @classmethod
    def of_constraints(cls, problem: Problem) -> SingleValues:
        """The unary constraints that list tuples."""
        numbers = _of_one_variable(problem.constraints)
        own = [problem.constraints[number] for number in numbers.tolist()]
        allowed = np.fromiter((c.allowed for c in own), dtype=np.bool_, count=len(own))
        return cls._of(problem, own, numbers, np.zeros(len(own), dtype=np.int64), ~allowed, ())

    @classmethod
    def _of(
        cls,
        problem: Problem,
        parts: Sequence[Function | Constraint],
        numbers: NDArray[np.int64],
        defaults: NDArray[Any],
        unlisted: NDArray[np.bool_],
        listed: Sequence[NDArray[Any]],
    ) -> SingleValues:
        """unlisted : whether tuples that a part does not list are permitted, by part; listed : costs of listed
        tuples."""
        check_deadline()
        variables = np.fromiter((part.scope[0] for part in parts), dtype=np.int64, count=len(parts))
        sizes = np.array(problem.sizes, dtype=np.int64)[variables]
        starts = np.concatenate([[0], np.cumsum(sizes)])
        costs, permitted = np.repeat(defaults, sizes), np.repeat(unlisted, sizes)
        rows = np.fromiter((len(part.tuples) for part in parts), dtype=np.int64, count=len(parts))
        tuples = np.concatenate([np.zeros(0, dtype=np.int64), *(part.tuples[:, 0] for part in parts)])
        place = np.repeat(starts[:-1], rows) + tuples
        costs[place] = np.concatenate([np.zeros(0, dtype=costs.dtype), *listed]) if listed else 0
        permitted[place] = True if listed else ~np.repeat(unlisted, rows)
        check_deadline()
        return cls(numbers, variables, starts, costs, permitted)

    def slots(self, first: NDArray[np.int64]) -> NDArray[np.int64]:
        """The indices of all values if those of variable ``v`` begin at ``first[v]``."""
        lengths = np.diff(self.starts)
        return np.repeat(first[self.variables] - self.starts[:-1], lengths) + np.arange(self.starts[-1])


def _of_one_variable(parts: Sequence[Function | Constraint]) -> NDArray[np.int64]:
    return np.array([number for number, part in enumerate(parts) if len(part.scope) == 1], dtype=np.int64)
