"""Unit propagation with watched literals, and clauses learned from conflicts (1-UIP).

A clause watches its first two literals. Each literal has a linked list of the clauses that watch it, whose links are in
the clauses. A clause that becomes unit at an earlier level than the current one is assigned at the current one, and
again only when one of its watched literals changes: propagation may be incomplete after a return, never wrong.
"""

from __future__ import annotations

from typing import Any

from oocbe.counting.kernels.cpu.solver_state import (
    ARENA,
    ASSERTING,
    CLAUSE,
    CONFLICTS,
    LEARNED,
    LEVEL,
    LITERALS,
    NEXT,
    NO_REASON,
    ORIGINAL,
    QUEUE,
    SCORE,
    SIZE,
    TRAIL,
    UNIT,
    UNITS,
)
from oocbe.kernels.cpu.jit import borrowing, without_allocation

DECAY = 1.05
"""Factor of the weight of conflicts, from each to the next."""

LARGEST = 1e100
"""Activities are scaled down when the weight of a conflict is beyond it."""


@without_allocation
def assign(s: Any, literal: Any, reason: Any) -> Any:
    """Make an unassigned literal true at the current level."""
    s.value[literal] = 1
    s.value[literal ^ 1] = -1
    s.level[literal >> 1] = s.num[LEVEL]
    s.reason[literal >> 1] = reason
    s.trail[s.num[TRAIL]] = literal
    s.num[TRAIL] += 1


@without_allocation
def undo(s: Any, length: Any) -> Any:
    """Unassign all literals of the trail from a length on."""
    for i in range(length, s.num[TRAIL]):
        literal = s.trail[i]
        s.value[literal] = 0
        s.value[literal ^ 1] = 0
    s.num[TRAIL] = length
    s.num[QUEUE] = length


@without_allocation
def _conflict_of_pair(s: Any, one: Any, other: Any) -> Any:
    s.clause[0], s.clause[1] = one, other
    s.num[CLAUSE] = 2


@without_allocation
def propagate(s: Any) -> Any:
    """Propagate the trail; returns whether a clause is false, whose literals are in ``clause`` then."""
    value, arena, head, num = s.value, s.arena, s.head, s.num
    while num[QUEUE] < num[TRAIL]:
        wrong = s.trail[num[QUEUE]] ^ 1
        num[QUEUE] += 1
        for i in range(s.pair_start[wrong], s.pair_start[wrong + 1]):
            other = s.pairs[i]
            if value[other] == 0:
                assign(s, other, -3 - wrong)
            elif value[other] < 0:
                _conflict_of_pair(s, wrong, other)
                return True
        before, at = -1, head[wrong]
        while at >= 0:
            if arena[at + LITERALS] == wrong:
                arena[at + LITERALS] = arena[at + LITERALS + 1]
                arena[at + LITERALS + 1] = wrong
                link = arena[at + NEXT]
                arena[at + NEXT] = arena[at + NEXT + 1]
                arena[at + NEXT + 1] = link
            following = arena[at + NEXT + 1]
            other = arena[at + LITERALS]
            found = -1
            if value[other] <= 0:
                for i in range(at + LITERALS + 2, at + LITERALS + arena[at + SIZE]):
                    if value[arena[i]] >= 0:
                        found = i
                        break
                if found < 0:
                    if value[other] < 0:
                        num[CLAUSE] = arena[at + SIZE]
                        for i in range(arena[at + SIZE]):
                            s.clause[i] = arena[at + LITERALS + i]
                        if arena[at + SCORE] >= 0:
                            arena[at + SCORE] = num[CONFLICTS]
                        return True
                    assign(s, other, at)
            if found < 0:
                before = at + NEXT + 1
            else:
                watched = arena[found]
                arena[found] = wrong
                arena[at + LITERALS + 1] = watched
                arena[at + NEXT + 1] = head[watched]
                head[watched] = at
                if before < 0:
                    head[wrong] = following
                else:
                    arena[before] = following
            at = following
    return False


@without_allocation
def watch(s: Any, at: Any) -> Any:
    """Add a clause to the lists of its first two literals."""
    for slot in range(2):
        literal = s.arena[at + LITERALS + slot]
        s.arena[at + NEXT + slot] = s.head[literal]
        s.head[literal] = at


@without_allocation
def learn(s: Any, first: Any, size: Any) -> Any:
    """Store the clause of a literal and the first ``size`` literals of ``out``; returns its place, as a reason.

    All literals of ``out`` are false. The second watched literal is one of the latest level.
    """
    num, arena = s.num, s.arena
    if size == 0:
        for i in range(num[UNITS]):
            if s.units[i] == first:
                return UNIT
        s.units[num[UNITS]] = first
        num[UNITS] += 1
        return UNIT
    at = num[ARENA]
    arena[at + SIZE], arena[at + SCORE] = size + 1, num[CONFLICTS]
    arena[at + LITERALS] = first
    latest = 0
    for i in range(size):
        arena[at + LITERALS + 1 + i] = s.out[i]
        if s.level[s.out[i] >> 1] > s.level[s.out[latest] >> 1]:
            latest = i
    second = arena[at + LITERALS + 1]
    arena[at + LITERALS + 1] = s.out[latest]
    arena[at + LITERALS + 1 + latest] = second
    num[ARENA] += LITERALS + size + 1
    num[LEARNED] += 1
    watch(s, at)
    return at


@without_allocation
def raise_bump(s: Any, factor: Any) -> Any:
    """Multiply the weight of the next conflict, so that earlier ones count less."""
    s.bump[0] *= factor
    if s.bump[0] > LARGEST:
        for i in range(len(s.activity)):
            s.activity[i] /= LARGEST
        s.bump[0] /= LARGEST


@without_allocation
def _mark(s: Any, literal: Any, level: Any, size: Any) -> Any:
    """Mark a false literal of the analysed clause; returns (1 if it is of the level, else 0; literals in ``out``)."""
    v = literal >> 1
    if s.seen[v] or s.level[v] == 0:
        return 0, size
    s.seen[v] = 1
    s.activity[literal] += s.bump[0]
    if s.level[v] == level:
        return 1, size
    s.out[size] = literal
    return 0, size + 1


@without_allocation
def _is_implied(s: Any, literal: Any) -> Any:
    """Whether the reason of a false literal has only marked literals, so that the learned clause needs it not."""
    reason = s.reason[literal >> 1]
    if reason == NO_REASON:
        return False
    if reason == UNIT:
        return True
    if reason < UNIT:
        other = (-3 - reason) >> 1
        return s.seen[other] or s.level[other] == 0
    for i in range(reason + LITERALS, reason + LITERALS + s.arena[reason + SIZE]):
        other = s.arena[i] >> 1
        if other != literal >> 1 and not s.seen[other] and s.level[other] != 0:
            return False
    return True


@without_allocation
def analyse(s: Any, level: Any) -> Any:
    """Resolve the false clause in ``clause`` with the reasons of a level, the latest with a literal of it.

    The clause with one literal of the level (1-UIP) is learned; ``num[ASSERTING]`` is its place, if that literal is not
    the decision. Then the resolution goes on to the decision.

    Returns (size, reason) : the first ``size`` literals of ``out``, of earlier levels, and the decision's opposite are
    a learned clause in place ``reason``. If ``reason`` is -1, the level's decision was implied, and the first ``size``
    literals alone are implied to contain a true one.
    """
    num = s.num
    size = current = 0
    for i in range(num[CLAUSE]):
        more, size = _mark(s, s.clause[i], level, size)
        current += more
    at, has_learned, place = num[TRAIL], False, NO_REASON
    num[ASSERTING] = NO_REASON
    while current > 0:
        at -= 1
        while not s.seen[s.trail[at] >> 1] or s.level[s.trail[at] >> 1] != level:
            at -= 1
        literal = s.trail[at]
        v = literal >> 1
        reason = s.reason[v]
        if current == 1 and (reason == NO_REASON or not has_learned):
            kept = 0
            if not has_learned:
                for i in range(size):  # literals of the reasons stay marked, so each test holds for the whole clause
                    if not _is_implied(s, s.out[i]):
                        kept += 1
            place = _learn_reduced(s, literal ^ 1, size, kept) if not has_learned else learn(s, literal ^ 1, size)
            has_learned = True
            if reason == NO_REASON:
                s.seen[v] = 0
                break
            num[ASSERTING], place = place, NO_REASON
        s.seen[v] = 0
        current -= 1
        if reason >= 0:
            if s.arena[reason + SCORE] >= 0:
                s.arena[reason + SCORE] = num[CONFLICTS]
            for i in range(reason + LITERALS, reason + LITERALS + s.arena[reason + SIZE]):
                if s.arena[i] != literal:
                    more, size = _mark(s, s.arena[i], level, size)
                    current += more
        elif reason < UNIT:
            more, size = _mark(s, -3 - reason, level, size)
            current += more
    for i in range(size):
        s.seen[s.out[i] >> 1] = 0
    raise_bump(s, DECAY)
    return size, place


@without_allocation
def _learn_reduced(s: Any, first: Any, size: Any, kept: Any) -> Any:
    """Learn a clause without the literals that the others imply; ``out`` keeps all, the needed ones first."""
    if kept < size:
        front = 0
        for i in range(size):
            if not _is_implied(s, s.out[i]):
                literal = s.out[front]
                s.out[front] = s.out[i]
                s.out[i] = literal
                front += 1
    return learn(s, first, kept)


@without_allocation
def forget_clauses(s: Any) -> Any:
    """Delete the half of the learned clauses that took part in the oldest conflicts, except for reasons.

    The remaining ones move to the front, and watch lists are built again; places of reasons follow.
    """
    num, arena = s.num, s.arena
    low, high, half = 0, num[CONFLICTS] + 1, num[LEARNED] // 2
    while high - low > 1:  # the greatest score below which at most half of them are
        middle, below, at = (low + high) // 2, 0, num[ORIGINAL]
        while at < num[ARENA]:
            below += arena[at + SCORE] < middle
            at += LITERALS + arena[at + SIZE]
        if below <= half:
            low = middle
        else:
            high = middle
    for i in range(num[TRAIL]):  # a reason's first or second literal is the implied one: mark the clause by its score
        reason = s.reason[s.trail[i] >> 1]
        if reason >= num[ORIGINAL]:
            arena[reason + NEXT] = -2 - (s.trail[i] >> 1)
            arena[reason + NEXT + 1] = -2
    at = end = num[ORIGINAL]
    while at < num[ARENA]:
        words = LITERALS + arena[at + SIZE]
        is_reason = arena[at + NEXT + 1] == -2
        if is_reason or arena[at + SCORE] >= low:
            if is_reason:
                s.reason[-2 - arena[at + NEXT]] = end
            for i in range(words):
                arena[end + i] = arena[at + i]
            end += words
        else:
            num[LEARNED] -= 1
        at += words
    num[ARENA] = end
    watch_all(s)


@borrowing
def watch_all(s: Any) -> Any:
    """Build all watch lists anew."""
    for literal in range(len(s.head)):
        s.head[literal] = -1
    at = 0
    while at < s.num[ARENA]:
        watch(s, at)
        at += LITERALS + s.arena[at + SIZE]
