"""Components of the unassigned variables, and the cache of their counts.

The key of a component is its variables and the clauses of three literals and more that have a false literal and no true
one: its other clauses follow from its variables, since a clause without assigned literals belongs to every component
that has all its variables. Keys are exact; a hash only selects the bucket.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from oocbe.counting.kernels.cpu.solver_state import CLOCK, COMPONENTS, ENTRIES, HITS, LEVEL, STAMP
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
def _visit(s: Any, t: Any, v: Any) -> Any:
    """Collect the component of an unassigned variable in ``queue``, and clauses of its key in ``ids``.
    Returns the numbers of its variables and of these clauses, and whether a variable counts."""
    now = s.num[STAMP]
    t.queue[0] = v
    t.variable_seen[v] = now
    size, at, keys, has_shown = 1, 0, 0, False
    while at < size:
        u = t.queue[at]
        at += 1
        has_shown |= s.shown[u] != 0
        clauses = 0
        for i in range(s.pair_start[2 * u], s.pair_start[2 * u + 2]):
            w = s.pairs[i] >> 1
            if s.value[2 * w] == 0:
                clauses += 1
                if t.variable_seen[w] != now:
                    t.variable_seen[w] = now
                    t.queue[size] = w
                    size += 1
        for i in range(s.occurs_start[u], s.occurs_start[u + 1]):
            c = s.occurs[i]
            if t.clause_seen[c] == 2 * now:
                clauses += 1
            elif t.clause_seen[c] < 2 * now:
                if s.value[s.satisfied[c]] == 1:
                    t.clause_seen[c] = 2 * now + 1
                    continue
                is_true = is_cut = False
                for j in range(s.start[c], s.start[c + 1]):
                    value = s.value[s.literals[j]]
                    if value == 1:
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
                    if s.value[2 * w] == 0 and t.variable_seen[w] != now:
                        t.variable_seen[w] = now
                        t.queue[size] = w
                        size += 1
        t.frequency[u] = clauses
    return size, keys, has_shown


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
    if not t.has_shown[own]:
        _keep_together(s, t, own)
        return
    num[STAMP] += 1
    for i in range(t.first_variable[own], t.first_variable[own + 1]):
        v = t.variables[i]
        if s.value[2 * v] != 0:
            if r.is_weighted[0]:
                literal = 2 * v + (s.value[2 * v] < 0)
                for p in range(len(count)):
                    count[p] = times(r, p, count[p], r.weight[literal, p])
            continue
        if t.variable_seen[v] == num[STAMP]:
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
