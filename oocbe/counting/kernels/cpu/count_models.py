"""The search of a count: decisions, propagation, components, learned clauses and the cache; see
:mod:`oocbe.counting.counter`.

The counts of components of the unassigned variables are cached. The key of a component is its variables and the clauses
of three literals and more that have a false literal and no true one: its other clauses follow from its variables, since
a clause without assigned literals belongs to every component that has all its variables. Keys are exact; a hash only
selects the bucket.

A literal is pure if its variable does not count, and its opposite is in no clause that is left. It makes its clauses
true, so components are those of the other clauses. It is not assigned: learned clauses follow from the formula alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from oocbe.counting.kernels.cpu.clause_learning import (
    ARENA,
    ASSERTING,
    CLAUSE,
    CLOCK,
    COMPONENTS,
    CONFLICTS,
    DECISIONS,
    ENTRIES,
    HITS,
    LEARNED,
    LEVEL,
    LIMIT,
    LITERALS,
    NO_REASON,
    PHASE,
    PURE,
    STAMP,
    TRAIL,
    UNIT,
    UNITS,
    analyse,
    assign,
    forget_clauses,
    propagate,
    raise_bump,
    undo,
)
from oocbe.kernels.cpu.jit import borrowing, without_allocation

U64 = np.uint64


@without_allocation
def times(r: Any, p: Any, a: Any, b: Any) -> Any:
    """Product modulo prime number ``p`` of residues.

    The quotient in floating-point numbers is off by one at most, as primes are below 2**50; the remainder is exact
    modulo 2**64, and lies between -prime and twice the prime.
    """
    prime = r.primes[p]
    rest = a * b - np.int64(np.float64(a) * np.float64(b) * r.inverses[p]) * prime
    if rest < 0:
        return rest + prime
    return rest - prime if rest >= prime else rest


@without_allocation
def _sort(numbers: Any, count: Any) -> Any:
    """Sort the first numbers in place (Shell's method)."""
    gap = 1
    while gap < count // 3:
        gap = 3 * gap + 1
    while gap > 0:
        for i in range(gap, count):
            x = numbers[i]
            j = i - gap
            while j >= 0 and numbers[j] > x:
                numbers[j + gap] = numbers[j]
                j -= gap
            numbers[j + gap] = x
        gap //= 3


@without_allocation
def _mixed(state: Any, word: Any) -> Any:
    """One more word in a hash."""
    x = (state ^ U64(word)) * U64(0x9E3779B97F4A7C15)
    x ^= x >> U64(32)
    x *= U64(0xD6E8FEB86659FD93)
    return x ^ (x >> U64(29))


@without_allocation
def _write_key(s: Any, t: Any, size: Any, keys: Any, at: Any) -> Any:
    """Write the key of the first variables in ``queue`` and clauses in ``ids`` to the words; returns its end.

    The numbers of both come first. They tell which form follows, the shorter one: a bit for each variable and clause of
    the formula, or sorted numbers of 16 or 32 bits.
    """
    variables, clauses = len(s.shown), len(s.satisfied)
    t.words[at] = size | keys << 32
    at += 1
    bits = 16 if max(variables, clauses) <= 1 << 16 else 32
    if bits * (size + keys) >= variables + clauses:
        end = at + (variables + clauses + 63) // 64
        for i in range(at, end):
            t.words[i] = 0
        for i in range(size + keys):
            place = t.queue[i] if i < size else variables + t.ids[i - size]
            t.words[at + (place >> 6)] |= np.int64(U64(1) << U64(place & 63))
        return end
    _sort(t.queue, size)
    _sort(t.ids, keys)
    for first in range(0, size + keys, 64 // bits):
        word = U64(0)
        for i in range(first, min(size + keys, first + 64 // bits)):
            word = (word << U64(bits)) | U64(t.queue[i] if i < size else t.ids[i - size])
        t.words[at] = np.int64(word)
        at += 1
    return at


@without_allocation
def _put(t: Any, v: Any, now: Any, size: Any) -> Any:
    """Add a variable to ``queue``; returns its new size."""
    t.variable_seen[v] = now
    t.queue[size] = v
    if len(t.occurs) > 0:
        t.occurs[2 * v] = t.occurs[2 * v + 1] = 0
    return size + 1


@without_allocation
def _visit(s: Any, t: Any, v: Any) -> Any:
    """Collect the component of an unassigned variable in ``queue``, and clauses of its key in ``ids``.
    Returns the numbers of its variables and of these clauses, and whether a variable counts."""
    now, counts = s.num[STAMP], len(t.occurs) > 0
    size, at, keys, has_shown = _put(t, v, now, 0), 0, 0, False
    while at < size:
        u = t.queue[at]
        at += 1
        has_shown |= s.shown[u] != 0
        clauses = 0
        for literal in range(2 * u, 2 * u + 2):
            for i in range(s.pair_start[literal], s.pair_start[literal + 1]):
                w = s.pairs[i] >> 1
                if s.value[2 * w] == 0 and not (counts and t.pure[s.pairs[i]]):
                    clauses += 1
                    if counts:
                        t.occurs[literal] += 1
                    if t.variable_seen[w] != now:
                        size = _put(t, w, now, size)
        for i in range(s.occurs_start[u], s.occurs_start[u + 1]):
            c = s.occurs[i]
            if t.clause_seen[c] == 2 * now:
                clauses += 1
            elif t.clause_seen[c] < 2 * now:
                if s.value[s.satisfied[c]] == 1 or (counts and t.pure[s.satisfied[c]]):
                    t.clause_seen[c] = 2 * now + 1
                    continue
                is_true = is_cut = False
                for j in range(s.start[c], s.start[c + 1]):
                    value = s.value[s.literals[j]]
                    if value == 1 or (counts and t.pure[s.literals[j]]):
                        s.satisfied[c] = s.literals[j]
                        is_true = True
                        break
                    is_cut |= value < 0
                if is_true:
                    t.clause_seen[c] = 2 * now + 1
                    continue
                t.clause_seen[c] = 2 * now
                clauses += 1
                if is_cut:
                    t.ids[keys] = c
                    keys += 1
                for j in range(s.start[c], s.start[c + 1]):
                    w = s.literals[j] >> 1
                    if s.value[2 * w] == 0:
                        if t.variable_seen[w] != now:
                            size = _put(t, w, now, size)
                        if counts:
                            t.occurs[s.literals[j]] += 1
        t.frequency[u] = clauses
    return size, keys, has_shown


@without_allocation
def _add_pure(s: Any, t: Any, literal: Any) -> Any:
    """Make a literal pure if its variable does not count, it is in some clauses, and its opposite is in none."""
    if not s.shown[literal >> 1] and t.occurs[literal] > 0 and t.occurs[literal ^ 1] == 0 and not t.pure[literal]:
        t.pure[literal], s.saved[literal >> 1] = 1, literal & 1
        t.pure_literals[s.num[PURE]] = literal
        s.num[PURE] += 1


@without_allocation
def _leave(s: Any, t: Any, literal: Any) -> Any:
    """Remove one clause of a literal without a value; its opposite may become pure."""
    if s.value[literal] == 0:
        t.occurs[literal] -= 1
        _add_pure(s, t, literal ^ 1)


@without_allocation
def _drop_pure(s: Any, t: Any, size: Any) -> Any:
    """Find pure literals of the component in ``queue``, and again without their clauses.

    These literals make the clauses true, so the count does not change. Returns whether there are such literals; then
    the component is to be collected anew.
    """
    num = s.num
    before = at = num[PURE]
    for i in range(size):
        _add_pure(s, t, 2 * t.queue[i])
        _add_pure(s, t, 2 * t.queue[i] + 1)
    while at < num[PURE]:
        literal = t.pure_literals[at]
        at += 1
        for i in range(s.pair_start[literal], s.pair_start[literal + 1]):
            if not t.pure[s.pairs[i]]:
                _leave(s, t, s.pairs[i])
        for i in range(s.occurs_start[literal >> 1], s.occurs_start[(literal >> 1) + 1]):
            c = s.occurs[i]
            if t.clause_seen[c] == 2 * num[STAMP]:
                t.clause_seen[c] += 1
                for j in range(s.start[c], s.start[c + 1]):
                    _leave(s, t, s.literals[j])
    if num[PURE] == before:
        return False
    for i in range(size):
        t.variable_seen[t.queue[i]] = 0
    num[STAMP] += 1
    return True


@without_allocation
def _cached(t: Any, cache: Any, hashed: Any, first: Any, end: Any) -> Any:
    """The entry of the key in ``t.words[first:end]``; -1: none."""
    e = cache.first[hashed & (len(cache.first) - 1)]
    while e >= 0:
        if cache.hash[e] == hashed and cache.word[e + 1] - cache.word[e] == end - first:
            shift = cache.word[e] - first
            is_same = True
            for i in range(first, end):
                if t.words[i] != cache.words[i + shift]:
                    is_same = False
                    break
            if is_same:
                return e
        e = cache.next[e]
    return -1


@without_allocation
def _is_true(s: Any, literal: Any) -> Any:
    """Whether a literal is true, or has no value and is true in the latest model."""
    return s.value[literal] > 0 or (s.value[literal] == 0 and s.saved[literal >> 1] == literal & 1)


@without_allocation
def _has_saved_model(s: Any, t: Any, size: Any) -> Any:
    """Whether the latest model makes all clauses of the first variables in ``queue`` true."""
    for i in range(size):
        u = t.queue[i]
        wrong = 2 * u + 1 - s.saved[u]
        for j in range(s.pair_start[wrong], s.pair_start[wrong + 1]):
            if not _is_true(s, s.pairs[j]):
                return False
        for j in range(s.occurs_start[u], s.occurs_start[u + 1]):
            c = s.occurs[j]
            is_true = s.value[s.satisfied[c]] > 0
            k = s.start[c]
            while not is_true and k < s.start[c + 1]:
                is_true = _is_true(s, s.literals[k])
                k += 1
            if not is_true:
                return False
    return True


@without_allocation
def _keep_together(s: Any, t: Any, own: Any) -> Any:
    """Make one component, without a key, of the unassigned variables of one of which no variable counts.

    Only whether it has a model matters. If the latest one is such, there is no component, and the assignment is saved.
    """
    new = s.num[COMPONENTS]
    start = end = t.first_variable[new]
    for i in range(t.first_variable[own], t.first_variable[own + 1]):
        if s.value[2 * t.variables[i]] == 0:
            t.variables[end] = t.queue[end - start] = t.variables[i]
            end += 1
    if _has_saved_model(s, t, end - start):
        for v in range(len(s.saved)):
            if s.value[2 * v] != 0:
                s.saved[v] = s.value[2 * v] < 0
        return
    t.has_shown[new] = 0
    t.first_variable[new + 1], t.first_word[new + 1] = end, t.first_word[new]
    s.num[COMPONENTS] = new + 1


@without_allocation
def find_components(s: Any, t: Any, cache: Any, r: Any) -> Any:
    """Split the component of the current level by its assignment.

    Weights of assigned variables, of variables without clauses, and counts from the cache multiply the count of the
    level's branch; other components go on the stack.
    """
    num = s.num
    level = num[LEVEL]
    count = t.count[level, t.branch[level]]
    own = t.component[level]
    t.base[level] = num[COMPONENTS]
    kept = t.pure_end[level - 1] if level > 0 else 0
    while num[PURE] > kept:
        num[PURE] -= 1
        t.pure[t.pure_literals[num[PURE]]] = 0
    t.pure_end[level] = kept
    if not t.has_shown[own]:
        _keep_together(s, t, own)
        return
    num[STAMP] += 1
    begin = num[STAMP]
    for i in range(t.first_variable[own], t.first_variable[own + 1]):
        v = t.variables[i]
        if s.value[2 * v] != 0:
            if r.is_weighted[0]:
                literal = 2 * v + (s.value[2 * v] < 0)
                for p in range(len(count)):
                    count[p] = times(r, p, count[p], r.weight[literal, p])
            continue
        if t.variable_seen[v] >= begin or t.pure[2 * v] or t.pure[2 * v + 1]:
            continue
        size, keys, has_shown = _visit(s, t, v)
        if len(t.occurs) > 0 and has_shown and _drop_pure(s, t, size):
            if t.pure[2 * v] or t.pure[2 * v + 1]:
                continue
            size, keys, has_shown = _visit(s, t, v)
        if size == 1 and t.frequency[v] == 0:
            for p in range(len(count)):
                count[p] = times(r, p, count[p], r.total[v, p])
            continue
        if not has_shown and _has_saved_model(s, t, size):
            continue
        new = num[COMPONENTS]
        first = t.first_word[new]
        end = _write_key(s, t, size, keys, first)
        state = U64(0)
        for j in range(first, end):
            state = _mixed(state, t.words[j])
        hashed = np.int64(state)
        num[CLOCK] += 1
        e = _cached(t, cache, hashed, first, end)
        if e >= 0:
            num[HITS] += 1
            cache.used[e] = num[CLOCK]
            for p in range(len(count)):
                count[p] = times(r, p, count[p], cache.count[e, p])
            continue
        t.hash[new], t.has_shown[new] = hashed, has_shown
        start = t.first_variable[new]
        for j in range(size):
            t.variables[start + j] = t.queue[j]
        t.first_variable[new + 1], t.first_word[new + 1] = start + size, end
        num[COMPONENTS] += 1
    t.pure_end[level] = num[PURE]


@without_allocation
def store(s: Any, t: Any, cache: Any, component: Any, count: Any) -> Any:
    """Add a component's count to the cache, if the component has a key."""
    e = s.num[ENTRIES]
    first, end = t.first_word[component], t.first_word[component + 1]
    if end == first:
        return
    at = cache.word[e]
    for i in range(first, end):
        cache.words[at + i - first] = t.words[i]
    cache.word[e + 1] = at + end - first
    for p in range(len(count)):
        cache.count[e, p] = count[p]
    cache.used[e] = s.num[CLOCK]
    cache.hash[e] = t.hash[component]
    bucket = cache.hash[e] & (len(cache.first) - 1)
    cache.next[e] = cache.first[bucket]
    cache.first[bucket] = e
    s.num[ENTRIES] = e + 1


@without_allocation
def remove_latest(s: Any, cache: Any, mark: Any) -> Any:
    """Delete the entries from number ``mark`` on; each is the first of its bucket when its turn comes."""
    for e in range(s.num[ENTRIES] - 1, mark - 1, -1):
        cache.first[cache.hash[e] & (len(cache.first) - 1)] = cache.next[e]
    s.num[ENTRIES] = min(s.num[ENTRIES], mark)


@borrowing
def index_entries(s: Any, cache: Any) -> Any:
    """Build the buckets anew."""
    for b in range(len(cache.first)):
        cache.first[b] = -1
    for e in range(s.num[ENTRIES]):
        bucket = cache.hash[e] & (len(cache.first) - 1)
        cache.next[e] = cache.first[bucket]
        cache.first[bucket] = e


@borrowing
def evict(s: Any, t: Any, cache: Any, oldest: Any) -> Any:
    """Delete the entries that were last used before ``oldest``; the others keep their order, and marks follow."""
    num = s.num
    kept, level = 0, 0
    for e in range(num[ENTRIES] + 1):
        while level <= num[LEVEL] and t.mark[level] <= e:  # marks rise with the level
            t.mark[level] = kept
            level += 1
        if e == num[ENTRIES] or cache.used[e] < oldest:
            continue
        at, start = cache.word[kept], cache.word[e]
        length = cache.word[e + 1] - start
        for i in range(length):
            cache.words[at + i] = cache.words[start + i]
        cache.word[kept + 1] = at + length
        for p in range(len(cache.count[kept])):
            cache.count[kept, p] = cache.count[e, p]
        cache.hash[kept], cache.used[kept] = cache.hash[e], cache.used[e]
        kept += 1
    num[ENTRIES] = kept
    index_entries(s, cache)


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
