"""Zero products count as infeasible: assignments of value 0 are forbidden, like missing rows.

Elimination drops such rows (see :mod:`oocbe.elimination.preparation.prepare`). Planning, and counting in another
semiring, would not treat zeros as infeasible. Written as constraints, zeros have the same meaning everywhere.
"""

from __future__ import annotations

from dataclasses import replace
from weakref import WeakKeyDictionary

import numpy as np

from oocbe.model.parts import Constraint, Function
from oocbe.model.problem import Problem
from oocbe.model.semiring import Combination, Semiring
from oocbe.runtime.deadline import looked


def zeros_forbid(semiring: Semiring) -> bool:
    """Whether an assignment worth 0 is infeasible: where values are multiplied, and not only counted."""
    return semiring.combination is Combination.MULTIPLY and not semiring.counts


def without_zeros(problem: Problem) -> Problem:
    """A product problem of unchanged meaning, all of whose zeros are written as what they forbid.

    Listed zeros lose their row, beside a default they become a constraint as well; a default of 0 becomes none; and a
    constant of 0 becomes a constraint that nothing satisfies. Problems without zeros, and of other semirings, come back
    as they are.
    """
    if not zeros_forbid(problem.semiring):
        return problem
    known = _KNOWN.get(problem)
    if known is None:
        known = _without_zeros(problem)
        if known is not problem:
            _KNOWN[problem] = known
    return known


_KNOWN: WeakKeyDictionary[Problem, Problem] = WeakKeyDictionary()
"""Cache of converted problems with zeros, used by the search for orders, plans and tasks."""


def _without_zeros(problem: Problem) -> Problem:
    functions: list[Function] = []
    constraints = list(problem.constraints)
    for f in looked(problem.functions):
        keep = f.values != 0
        default = None if f.default == 0 else f.default
        if keep.all() and default == f.default:
            functions.append(f)
            continue
        if default is not None:
            constraints.append(Constraint(f.scope, f.tuples[~keep]))
        functions.append(Function(f.scope, f.tuples[keep], f.values[keep], default))
    constant = problem.constant
    if constant == 0:
        constraints.append(Constraint((), np.zeros((0, 0), dtype=np.int64), allowed=True))
        constant = type(constant)(problem.semiring.one)
    elif functions == list(problem.functions):
        return problem
    return replace(problem, functions=tuple(functions), constraints=tuple(constraints), constant=constant)
