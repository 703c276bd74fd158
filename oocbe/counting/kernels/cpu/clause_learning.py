"""Unit propagation with watched literals, and clauses learned from conflicts (1-UIP).

A clause watches its first two literals. Each literal has a linked list of the clauses that watch it, whose links are in
the clauses. A clause that becomes unit at an earlier level than the current one is assigned at the current one, and
again only when one of its watched literals changes: propagation may be incomplete after a return, never wrong.

A literal is ``2 * variable``, plus 1 if it is negative; ``literal ^ 1`` is its opposite. A *branch* of a level is one
of the two values of its decision. A component is a set of variables without a common clause with other unassigned ones.

Preprocessing propagates assumptions: failed literals, equal literals, and variables that the others define. Its loops
begin and end at level 0, after propagation. They return early if the flag of the solver is set; what they
have found until then holds.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any

from oocbe.kernels.cpu.jit import borrowing, without_allocation

TRAIL, QUEUE, LEVEL, ARENA, ORIGINAL, LEARNED, UNITS, CLAUSE, COMPONENTS, ENTRIES, STAMP = range(11)
"""Indices of ``num``: assigned literals, those already propagated, level, used words of ``arena``, words of clauses
that are not learned, learned clauses, learned units, literals in ``clause``, components on the stack, cache entries,
stamp of the last visit."""

CONFLICTS, DECISIONS, HITS, CLOCK, PHASE, LIMIT, ASSERTING, PURE = range(11, 19)
"""Indices of ``num``: conflicts, decisions, cache hits, cache look-ups, what to do next, the number of learned clauses
above which some are deleted, the place of the last learned clause that is not a decision's reason, and literals that
are pure."""

NUMBERS = 19
"""Length of ``num``."""

SIZE, NEXT, SCORE, LITERALS = 0, 1, 3, 4
"""Words of a clause in ``arena``: number of literals; next clause in the watch lists of its first and its second
literal (two words); conflict of its last use if it is learned, -1 if it is not; then the literals."""

NO_REASON, UNIT = -1, -2
"""Reasons of literals: a decision; a learned unit. Smaller: ``-3 - literal``, the other literal of a binary clause.
Others: the place of a clause in ``arena``."""

Solver = namedtuple(
    "Solver",
    "num flag value level reason trail arena head pair_start pairs occurs_start occurs start literals satisfied seen "
    "clause out units activity depth_score shown bump saved",
)
"""Clauses, assignment and learned clauses. Variables are numbered from 0; dimensions below are their number n.

num : int64 (19,), see the constants. flag : int64 (1,), not 0: the search pauses.
value : int8 (2 n,), of a literal: 1 true, -1 false, 0 unassigned.
level : int32 (n,). reason : int64 (n,). trail : int32 (n + 1,), literals in the order of their assignment.
arena : int32, all clauses of three literals and more, and the learned ones. head : int32 (2 n,), first clause that
    watches a literal; -1: none.
pair_start : int64 (2 n + 1,), pairs : int32, literals that share a binary clause with each literal.
occurs_start : int64 (n + 1,), occurs : int32, clauses of three literals and more of each variable.
start : int64 (clauses + 1,), literals : int32, these clauses in their first order. satisfied : int32 (clauses,), a
    literal that satisfied each clause the last time.
seen : uint8 (n,), zero between calls. clause, out : int32 (n + 1,), literals of a conflict, and of its analysis.
units : int32 (n,), learned units. activity : float64 (2 n,), conflicts of each literal, older ones count less.
depth_score : float64 (n,), preference of a tree decomposition. shown : uint8 (n,), whether each variable counts.
bump : float64 (1,), weight of the next conflict in ``activity``.
saved : uint8 (n,), of variables that do not count, the sign of the literal in the latest model.
"""

Levels = namedtuple(
    "Levels",
    "trail decision branch component base mark count first_variable first_word variables words hash has_shown "
    "frequency variable_seen clause_seen queue ids occurs pure pure_literals pure_end",
)
"""The decisions of the path, and the components below them.

A level's components are at the end of the stack, from ``base`` on; the search removes them as they are counted.

trail, decision, branch, component, base, mark : int64 (n + 1,), of each level: length of the trail before it, the
    literal of its decision, the branch (0 or 1), its component, first component below it, cache entries before its
    branch.
count : int64 (n + 1, 2, primes), of each branch, by residues.
first_variable, first_word : int64 (components + 1,), ends of each component's ``variables`` and ``words``, on the
    stack. variables : int32. words : int64, the component's key.
hash : int64 (components,), of the key. has_shown : uint8 (components,), whether some variable counts.
frequency : int32 (n,), clauses of each unassigned variable when its component was found.
variable_seen : int64 (n,), clause_seen : int64 (clauses,), stamps. queue, ids : int32, overwritten.
occurs : int32 (2 n,), clauses of each literal in the component; of length 0 if all variables count.
pure : uint8 (2 n,), whether a literal of a variable that does not count is in clauses without its opposite.
pure_literals : int32 (n,), these. pure_end : int64 (n + 1,), their number at each level.
"""

Cache = namedtuple("Cache", "first next hash used word words count")
"""Counts of components, in the order of their completion, with exact keys.

first : int32 (buckets,), latest entry of each bucket, -1: none; buckets are a power of two.
next : int32 (entries,), the entry before it in its bucket. hash : int64 (entries,). used : int64 (entries,), last
    look-up.
word : int64 (entries + 1,), end of each entry's key in ``words`` : int64. count : int64 (entries, primes).
"""

Residues = namedtuple("Residues", "primes inverses weight total is_weighted")
"""Arithmetic modulo primes below 2**50.

primes : int64 (primes,). inverses : float64 (primes,), their reciprocals.
weight : int64 (2 n, primes), of each literal. total : int64 (n, primes), of both literals of each variable.
is_weighted : uint8 (1,), whether some weight is not 1.
"""

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
