"""The arrays of a search over clauses: assignment, watched clauses, levels, components, cache.

A literal is ``2 * variable``, plus 1 if it is negative; ``literal ^ 1`` is its opposite. A *branch* of a level is one
of the two values of its decision. A component is a set of variables without a common clause with other unassigned ones.
"""

from __future__ import annotations

from typing import Any, NamedTuple

TRAIL, QUEUE, LEVEL, ARENA, ORIGINAL, LEARNED, UNITS, CLAUSE, COMPONENTS, ENTRIES, STAMP = range(11)
"""Indices of ``num``: assigned literals, those already propagated, level, used words of ``arena``, words of clauses
that are not learned, learned clauses, learned units, literals in ``clause``, components on the stack, cache entries,
stamp of the last visit."""

CONFLICTS, DECISIONS, HITS, CLOCK, PHASE, LIMIT, ASSERTING = range(11, 18)
"""Indices of ``num``: conflicts, decisions, cache hits, cache look-ups, what to do next, the number of learned clauses
above which some are deleted, and the place of the last learned clause that is not a decision's reason."""

NUMBERS = 18
"""Length of ``num``."""

SIZE, NEXT, SCORE, LITERALS = 0, 1, 3, 4
"""Words of a clause in ``arena``: number of literals; next clause in the watch lists of its first and its second
literal (two words); conflict of its last use if it is learned, -1 if it is not; then the literals."""

NO_REASON, UNIT = -1, -2
"""Reasons of literals: a decision; a learned unit. Smaller: ``-3 - literal``, the other literal of a binary clause.
Others: the place of a clause in ``arena``."""


class Solver(NamedTuple):
    """Clauses, assignment and learned clauses. Variables are numbered from 0; dimensions below are their number n.

    num : int64 (18,), see the constants. flag : int64 (1,), not 0: the search pauses.
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

    num: Any
    flag: Any
    value: Any
    level: Any
    reason: Any
    trail: Any
    arena: Any
    head: Any
    pair_start: Any
    pairs: Any
    occurs_start: Any
    occurs: Any
    start: Any
    literals: Any
    satisfied: Any
    seen: Any
    clause: Any
    out: Any
    units: Any
    activity: Any
    depth_score: Any
    shown: Any
    bump: Any
    saved: Any


class Levels(NamedTuple):
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
    """

    trail: Any
    decision: Any
    branch: Any
    component: Any
    base: Any
    mark: Any
    count: Any
    first_variable: Any
    first_word: Any
    variables: Any
    words: Any
    hash: Any
    has_shown: Any
    frequency: Any
    variable_seen: Any
    clause_seen: Any
    queue: Any
    ids: Any


class Cache(NamedTuple):
    """Counts of components, in the order of their completion, with exact keys.

    first : int32 (buckets,), latest entry of each bucket, -1: none; buckets are a power of two.
    next : int32 (entries,), the entry before it in its bucket. hash : int64 (entries,). used : int64 (entries,), last
        look-up.
    word : int64 (entries + 1,), end of each entry's key in ``words`` : int64. count : int64 (entries, primes).
    """

    first: Any
    next: Any
    hash: Any
    used: Any
    word: Any
    words: Any
    count: Any


class Residues(NamedTuple):
    """Arithmetic modulo primes below 2**50.

    primes : int64 (primes,). inverses : float64 (primes,), their reciprocals.
    weight : int64 (2 n, primes), of each literal. total : int64 (n, primes), of both literals of each variable.
    is_weighted : uint8 (1,), whether some weight is not 1.
    """

    primes: Any
    inverses: Any
    weight: Any
    total: Any
    is_weighted: Any
