"""The search of a count: decisions, propagation, components, learned clauses and the cache; see
:mod:`oocbe.counting.counter`."""

from __future__ import annotations

from typing import Any

from oocbe.counting.kernels.cpu.clause_learning import analyse, assign, forget_clauses, propagate, raise_bump, undo
from oocbe.counting.kernels.cpu.components import find_components, remove_latest, store, times
from oocbe.counting.kernels.cpu.solver_state import (
    ARENA,
    ASSERTING,
    CLAUSE,
    COMPONENTS,
    CONFLICTS,
    DECISIONS,
    ENTRIES,
    LEARNED,
    LEVEL,
    LIMIT,
    LITERALS,
    NO_REASON,
    PHASE,
    TRAIL,
    UNIT,
    UNITS,
)
from oocbe.kernels.cpu.jit import borrowing, without_allocation

DONE, PAUSED, ARENA_FULL, STACK_FULL, CACHE_FULL, UNSATISFIABLE = range(6)
"""Results of :func:`count_models`: the count of level 0 is complete; the flag was set; the learned clauses, the stack
of components or the cache need room; there is no model."""

DECIDE, PROPAGATE, CONFLICT, NEXT, COMPLETE = range(5)
"""Phases of the search, in ``num[PHASE]``: choose a variable of the last component; propagate and split; analyse the
false clause; continue the level; its component is counted."""

ACTIVITY_WEIGHT = 10.0
"""Weight of a variable's conflicts beside the number of its clauses, in the choice of a variable."""

AGEING = 256
"""Decisions after which earlier conflicts count half."""

MORE_CLAUSES = 1.02
"""Growth of the limit on learned clauses at each deletion."""


@without_allocation
def _choose(s: Any, t: Any) -> Any:
    """The literal to decide: a variable of the last component, one that counts if there is one."""
    component = s.num[COMPONENTS] - 1
    has_shown = t.has_shown[component]
    scale = ACTIVITY_WEIGHT / s.bump[0]
    best, chosen = -1.0, 0
    for i in range(t.first_variable[component], t.first_variable[component + 1]):
        v = t.variables[i]
        if has_shown and not s.shown[v]:
            continue
        score = t.frequency[v] + scale * (s.activity[2 * v] + s.activity[2 * v + 1]) + has_shown * s.depth_score[v]
        if score > best:
            best, chosen = score, v
    if not has_shown:
        return 2 * chosen + s.saved[chosen]
    return 2 * chosen + (s.activity[2 * chosen + 1] > s.activity[2 * chosen])


@without_allocation
def _begin_branch(s: Any, t: Any, branch: Any, literal: Any, reason: Any) -> Any:
    """Begin a branch of the current level; returns whether a learned unit is false, which is in ``clause`` then."""
    level = s.num[LEVEL]
    t.branch[level], t.decision[level] = branch, literal
    t.mark[level] = s.num[ENTRIES]
    t.base[level] = s.num[COMPONENTS]
    for p in range(t.count.shape[2]):
        t.count[level, branch, p] = 1
    assign(s, literal, reason)
    for i in range(s.num[UNITS]):
        if s.value[s.units[i]] < 0:
            s.clause[0] = s.units[i]
            s.num[CLAUSE] = 1
            return True
        if s.value[s.units[i]] == 0:
            assign(s, s.units[i], UNIT)
    return False


@without_allocation
def _is_zero(count: Any) -> Any:
    most = 0
    for p in range(len(count)):
        most = max(most, count[p])
    return most == 0


@without_allocation
def _resolve(s: Any, t: Any, cache: Any) -> Any:
    """Learn from the false clause, and return to the latest level of its literals: its branch has no model.

    Entries made in that branch leave the cache: learned clauses may have been used for them that follow from the other
    components, one of which has no model. Returns the next phase; -1: the formula has no model.
    """
    num = s.num
    while True:
        level = 0
        for i in range(num[CLAUSE]):
            level = max(level, s.level[s.clause[i] >> 1])
        if level == 0:
            return -1
        num[LEVEL] = level
        num[COMPONENTS] = t.base[level]
        remove_latest(s, cache, t.mark[level])
        size, reason = analyse(s, level)
        num[CONFLICTS] += 1
        undo(s, t.trail[level])
        if reason != NO_REASON:
            break
        num[LEVEL] = level - 1
        for i in range(size):
            s.clause[i] = s.out[i]
        num[CLAUSE] = size
    if t.branch[level] == 1:
        for p in range(t.count.shape[2]):
            t.count[level, 1, p] = 0
        return COMPLETE
    for p in range(t.count.shape[2]):
        t.count[level, 0, p] = 0
    if _begin_branch(s, t, 1, t.decision[level] ^ 1, reason):
        return CONFLICT
    asserting = num[ASSERTING]
    if asserting >= 0 and s.value[s.arena[asserting + LITERALS]] == 0:
        assign(s, s.arena[asserting + LITERALS], asserting)
    return PROPAGATE


@without_allocation
def _complete(s: Any, t: Any, cache: Any, r: Any) -> Any:
    """Store the count of the current level's component, and multiply the branch above by it."""
    level = s.num[LEVEL]
    own, first = t.component[level], t.count[level, 0]
    if t.branch[level] == 1:
        for p in range(len(first)):
            both = first[p] + t.count[level, 1, p]
            first[p] = both - r.primes[p] if both >= r.primes[p] else both
    store(s, t, cache, own, first)
    undo(s, t.trail[level])
    s.num[LEVEL] = level - 1
    s.num[COMPONENTS] = own
    above = t.count[level - 1, t.branch[level - 1]]
    for p in range(len(first)):
        above[p] = times(r, p, above[p], first[p])


@borrowing
def count_models(s: Any, t: Any, cache: Any, r: Any) -> Any:
    """Continue a count until it is done, paused, or without room; see the results above.

    s : Solver. t : Levels. cache : Cache. r : Residues. With ``DONE`` the count is ``t.count[0, 0]``.
    """
    num = s.num
    variables, clauses = len(s.shown), len(s.satisfied)
    while True:
        phase = num[PHASE]
        if phase == DECIDE:
            if s.flag[0] != 0:
                return PAUSED
            if num[LEARNED] > num[LIMIT]:
                forget_clauses(s)
                num[LIMIT] = max(num[LEARNED], int(num[LIMIT] * MORE_CLAUSES))
            literal = _choose(s, t)
            num[DECISIONS] += 1
            if num[DECISIONS] % AGEING == 0:
                raise_bump(s, 2.0)
            num[LEVEL] += 1
            level = num[LEVEL]
            t.trail[level] = num[TRAIL]
            t.component[level] = num[COMPONENTS] - 1
            num[PHASE] = CONFLICT if _begin_branch(s, t, 0, literal, NO_REASON) else PROPAGATE
        elif phase == PROPAGATE:
            last = num[COMPONENTS]
            if (
                t.first_variable[last] + variables > len(t.variables)
                or t.first_word[last] + 3 * variables + clauses > len(t.words)
                or last + variables + 1 > len(t.hash)
            ):
                return STACK_FULL
            if propagate(s):
                num[PHASE] = CONFLICT
            else:
                find_components(s, t, cache, r)
                num[PHASE] = NEXT
        elif phase == CONFLICT:
            if num[ARENA] + 2 * (variables + 1 + LITERALS) * (num[LEVEL] + 1) > len(s.arena):
                return ARENA_FULL
            num[PHASE] = _resolve(s, t, cache)
            if num[PHASE] < 0:
                return UNSATISFIABLE
        elif phase == NEXT:
            level = num[LEVEL]
            branch = t.branch[level]
            is_zero = _is_zero(t.count[level, branch])
            if is_zero:  # by weights: the other components are not visited, and may have no model
                num[COMPONENTS] = t.base[level]
                remove_latest(s, cache, t.mark[level])
            if num[COMPONENTS] > t.base[level]:
                num[PHASE] = DECIDE
            elif level == 0:
                return DONE
            elif branch == 1 or (not is_zero and not t.has_shown[t.component[level]]):
                num[PHASE] = COMPLETE
            else:
                undo(s, t.trail[level])
                is_false = _begin_branch(s, t, 1, t.decision[level] ^ 1, NO_REASON)
                num[PHASE] = CONFLICT if is_false else PROPAGATE
        else:
            e = num[ENTRIES]
            own = t.component[num[LEVEL]]
            if e + 1 >= len(cache.hash) or cache.word[e] + t.first_word[own + 1] - t.first_word[own] > len(cache.words):
                return CACHE_FULL
            _complete(s, t, cache, r)
            num[PHASE] = NEXT
