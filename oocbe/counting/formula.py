"""Clauses over variables with two values, some of which count, with an integer weight for each literal.

:func:`solver_of` makes their arrays for propagation (:mod:`oocbe.counting.kernels.cpu.solver_state`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from oocbe.counting.kernels.cpu.clause_learning import assign, watch_all
from oocbe.counting.kernels.cpu.solver_state import ARENA, LITERALS, NUMBERS, ORIGINAL, UNIT, Solver
from oocbe.kernels.cpu.interpreter import interpreted
from oocbe.runtime.deadline import current_flag

Clause = tuple[int, ...]
"""Sorted literals of different variables: ``2 * variable``, plus 1 for a negative literal."""


@dataclass(frozen=True)
class Formula:
    """Clauses to count models of.

    The count is ``multiplier`` times the sum, over the assignments of shown variables that extend to a model, of the
    product of their literals' weights.

    variables : number of variables; those in no clause count, too.
    clauses : without duplicates and tautologies; an empty one has no model.
    shown : bool (variables,), whether each variable counts. Others have weight 1.
    weights : weights of the positive and of the negative literal of each variable, integers of any size; None: 1.
    multiplier : an integer.
    """

    variables: int
    clauses: tuple[Clause, ...]
    shown: NDArray[np.bool_]
    weights: tuple[tuple[int, int], ...] | None = None
    multiplier: int = 1

    @classmethod
    def of(
        cls,
        variables: int,
        clauses: Iterable[Iterable[int]],
        shown: Iterable[int] | None = None,
        weights: Sequence[tuple[int, int]] | None = None,
    ) -> Formula:
        """A formula of any clauses; ``shown`` : variables that count, None: all."""
        counts = np.full(variables, shown is None)
        if shown is not None:
            counts[list(shown)] = True
        own = None if weights is None else tuple(weights)
        return cls(variables, normalised(clauses), counts, own)

    def weight(self, literal: int) -> int:
        """The weight of a literal."""
        return 1 if self.weights is None else self.weights[literal >> 1][literal & 1]

    def total(self, v: int) -> int:
        """The sum of the weights of a variable's literals; 1 if it does not count."""
        return self.weight(2 * v) + self.weight(2 * v + 1) if self.shown[v] else 1


def normalised(clauses: Iterable[Iterable[int]]) -> tuple[Clause, ...]:
    """The clauses with sorted literals, in their first order, without duplicates and tautologies."""
    found: dict[Clause, None] = {}
    for clause in clauses:
        literals = tuple(sorted(set(clause)))
        if not any(a ^ 1 == b for a, b in pairwise(literals)):
            found[literals] = None
    return tuple(found)


class _Flat(NamedTuple):
    """Lists of numbers as arrays: list ``i`` is ``content[start[i] : start[i + 1]]``.
    ``start`` is int64 (lists + 1,), and ``content`` is int32."""

    start: NDArray[np.int64]
    content: NDArray[np.int32]


def _flat(lists: Sequence[Sequence[int]]) -> _Flat:
    """Lists as arrays."""
    start = np.zeros(len(lists) + 1, dtype=np.int64)
    np.cumsum([len(one) for one in lists], out=start[1:])
    content = np.fromiter((x for one in lists for x in one), dtype=np.int32, count=int(start[-1]))
    return _Flat(start, content)


def _grouped(keys: NDArray[np.int32], content: NDArray[np.int32], groups: int) -> _Flat:
    """The content by its keys, numbers below ``groups``, in its first order."""
    start = np.zeros(groups + 1, dtype=np.int64)
    np.cumsum(np.bincount(keys, minlength=groups), out=start[1:])
    return _Flat(start, content[np.argsort(keys, kind="stable")])


def solver_of(formula: Formula, scores: NDArray[np.float64], is_watched: bool = True) -> Solver | None:
    """The initial state, with unit clauses on the trail, not propagated; None if two of them contradict each other.

    scores : float64 (variables,), preference of each variable. is_watched : whether clauses are watched yet.
    """
    n = formula.variables
    units = [clause[0] for clause in formula.clauses if len(clause) == 1]
    if any(literal ^ 1 in units for literal in units):
        return None
    pairs = np.array([clause for clause in formula.clauses if len(clause) == 2], dtype=np.int32).reshape(-1, 2)
    by_literal = _grouped(np.concatenate([pairs[:, 0], pairs[:, 1]]), np.concatenate([pairs[:, 1], pairs[:, 0]]), 2 * n)
    long = [clause for clause in formula.clauses if len(clause) > 2]
    clauses = _flat(long)
    sizes = np.diff(clauses.start)
    owners = np.repeat(np.arange(len(long), dtype=np.int32), sizes)
    occurs = _grouped(clauses.content >> 1, owners, n)
    words = len(clauses.content) + LITERALS * len(long)
    arena = np.zeros(max(2 * words, 1 << 16), dtype=np.int32)
    places = clauses.start[:-1] + LITERALS * np.arange(len(long))
    arena[places] = sizes
    arena[places + LITERALS - 1] = -1
    arena[np.arange(len(clauses.content)) + LITERALS * (owners + 1)] = clauses.content
    num = np.zeros(NUMBERS, dtype=np.int64)
    num[ARENA] = num[ORIGINAL] = words
    solver = Solver(
        num=num,
        flag=current_flag(),
        value=np.zeros(2 * n, dtype=np.int8),
        level=np.zeros(n, dtype=np.int32),
        reason=np.zeros(n, dtype=np.int64),
        trail=np.zeros(n + 1, dtype=np.int32),
        arena=arena,
        head=np.zeros(2 * n, dtype=np.int32),
        pair_start=by_literal.start,
        pairs=by_literal.content,
        occurs_start=occurs.start,
        occurs=occurs.content,
        start=clauses.start,
        literals=clauses.content,
        satisfied=clauses.content[clauses.start[:-1]],
        seen=np.zeros(n, dtype=np.uint8),
        clause=np.zeros(n + 1, dtype=np.int32),
        out=np.zeros(n + 1, dtype=np.int32),
        units=np.zeros(n, dtype=np.int32),
        activity=np.zeros(2 * n),
        depth_score=scores,
        shown=formula.shown.astype(np.uint8),
        bump=np.ones(1),
        saved=np.zeros(n, dtype=np.uint8),
    )
    if is_watched:
        watch_all(solver)
    for literal in units:
        interpreted(assign)(solver, literal, UNIT)
    return solver
