"""Propagation of assumptions, for the preprocessing of clauses: failed literals, equal literals, and variables that the
others define.

All loops begin and end at level 0, after propagation. They return early if the flag of the solver is set; what they
have found until then holds.
"""

from __future__ import annotations

from typing import Any

from oocbe.counting.kernels.cpu.clause_learning import assign, propagate, undo
from oocbe.counting.kernels.cpu.solver_state import LEVEL, NO_REASON, TRAIL, UNIT
from oocbe.kernels.cpu.jit import borrowing, without_allocation

UNKNOWN = -1
"""In ``equal``: the variable is not equal to another one."""


@without_allocation
def _assume(s: Any, literal: Any) -> Any:
    """Assign a literal at level 1 and propagate; returns whether a clause is false."""
    s.num[LEVEL] = 1
    assign(s, literal, NO_REASON)
    return propagate(s)


@without_allocation
def _return(s: Any, length: Any) -> Any:
    undo(s, length)
    s.num[LEVEL] = 0


@without_allocation
def _fix(s: Any, literal: Any) -> Any:
    """Assign a literal at level 0 and propagate; returns whether a clause is false."""
    assign(s, literal, UNIT)
    return propagate(s)


@borrowing
def probe(s: Any, equal: Any, implied: Any, steps: Any) -> Any:
    """Assign each unassigned variable both ways: a conflict fixes it, and literals implied by both values are fixed; if
    one value implies a literal and the other its opposite, the variables are equal.

    Parameters
    ----------
    equal : int32 (n,), written: a literal that the positive literal of each variable equals, of a variable that was
        probed before; :data:`UNKNOWN`.
    implied : uint8 (2 n,), zeros before and after. steps : propagated literals at most.

    Returns whether the clauses have no model.
    """
    num = s.num
    if propagate(s):
        return True
    for v in range(len(s.shown)):
        if s.value[2 * v] != 0 or equal[v] != UNKNOWN:
            continue
        if s.flag[0] != 0 or steps <= 0:
            break
        before = num[TRAIL]
        if _assume(s, 2 * v):
            steps -= num[TRAIL] - before
            _return(s, before)
            if _fix(s, 2 * v + 1):
                return True
            continue
        first_end = num[TRAIL]
        steps -= first_end - before
        for i in range(before + 1, first_end):
            s.units[i - before - 1] = s.trail[i]
            implied[s.trail[i]] = 1
        _return(s, before)
        has_failed = _assume(s, 2 * v + 1)
        steps -= num[TRAIL] - before
        common = 0
        for i in range(before + 1, num[TRAIL]):
            literal = s.trail[i]
            if implied[literal]:
                s.clause[common] = literal
                common += 1
            elif implied[literal ^ 1] and not has_failed and equal[literal >> 1] == UNKNOWN:
                equal[literal >> 1] = 2 * v + 1 if literal & 1 == 0 else 2 * v
        for i in range(first_end - before - 1):
            implied[s.units[i]] = 0
        _return(s, before)
        if has_failed:
            if _fix(s, 2 * v):
                return True
            continue
        for i in range(common):
            s.out[i] = s.clause[i]
        for i in range(common):
            if s.value[s.out[i]] == 0:
                assign(s, s.out[i], UNIT)
        if propagate(s):
            return True
    return False


@without_allocation
def _open_literal(s: Any, v: Any) -> Any:
    """An unassigned literal of a clause of a variable, none of whose other literals is true; -1: none."""
    for i in range(s.pair_start[2 * v], s.pair_start[2 * v + 2]):
        if s.value[s.pairs[i]] == 0:
            return s.pairs[i]
    for i in range(s.occurs_start[v], s.occurs_start[v + 1]):
        c = s.occurs[i]
        found = -1
        for j in range(s.start[c], s.start[c + 1]):
            value = s.value[s.literals[j]]
            if value > 0:
                found = -1
                break
            if value == 0:
                found = s.literals[j]
        if found >= 0:
            return found
    return -1


@borrowing
def define(s: Any, wanted: Any, marks: Any, conflicts: Any) -> Any:
    """Find variables whose value follows from the values of the others in each model.

    A variable v is free in some model if the clauses have a model in which all clauses of v are true by other literals.
    So both literals of v are made false. A search without learning looks for a conflict in each branch; it gives up as
    soon as a branch makes all clauses of v true.

    wanted : uint8 (n,), variables to test; written: whether each is defined. marks : int64 (n + 2,), overwritten: trail
        before each decision. conflicts : most of each search.
    """
    num = s.num
    for v in range(len(wanted)):
        if not wanted[v] or s.value[2 * v] != 0 or s.flag[0] != 0:
            wanted[v] = 0
            continue
        before, depth, left = num[TRAIL], 0, conflicts
        num[LEVEL] = 1
        s.value[2 * v] = s.value[2 * v + 1] = -1
        s.trail[before], s.trail[before + 1] = 2 * v, 2 * v + 1
        num[TRAIL] += 2
        is_defined = True
        while True:
            if propagate(s):
                left -= 1
                if depth == 0:
                    break
                if left <= 0:
                    is_defined = False
                    break
                depth -= 1
                literal = s.trail[marks[depth]]
                undo(s, marks[depth])
                assign(s, literal ^ 1, UNIT)
                continue
            literal = _open_literal(s, v)
            if literal < 0:
                is_defined = False
                break
            marks[depth] = num[TRAIL]
            depth += 1
            assign(s, literal, NO_REASON)
        _return(s, before)
        wanted[v] = is_defined
