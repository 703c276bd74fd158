"""The arrays of a formula for propagation (:mod:`oocbe.counting.kernels.cpu.solver_state`)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from oocbe.counting.formula import Formula, flat, grouped
from oocbe.counting.kernels.cpu.clause_learning import assign, watch_all
from oocbe.counting.kernels.cpu.solver_state import ARENA, LITERALS, NUMBERS, ORIGINAL, UNIT, Solver
from oocbe.kernels.cpu.jit import interpreted
from oocbe.runtime.deadline import current_flag


def solver_of(formula: Formula, scores: NDArray[np.float64]) -> Solver | None:
    """The initial state, with unit clauses on the trail, not propagated; None if two of them contradict each other.

    scores : float64 (variables,), preference of each variable.
    """
    n = formula.variables
    units = [clause[0] for clause in formula.clauses if len(clause) == 1]
    if any(literal ^ 1 in units for literal in units):
        return None
    pairs = np.array([clause for clause in formula.clauses if len(clause) == 2], dtype=np.int32).reshape(-1, 2)
    by_literal = grouped(np.concatenate([pairs[:, 0], pairs[:, 1]]), np.concatenate([pairs[:, 1], pairs[:, 0]]), 2 * n)
    long = [clause for clause in formula.clauses if len(clause) > 2]
    clauses = flat(long)
    sizes = np.diff(clauses.start)
    owners = np.repeat(np.arange(len(long), dtype=np.int32), sizes)
    occurs = grouped(clauses.content >> 1, owners, n)
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
    )
    watch_all(solver)
    for literal in units:
        interpreted(assign)(solver, literal, UNIT)
    return solver
