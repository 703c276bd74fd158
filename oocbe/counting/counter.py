"""Exact counts of models by a search that caches components.

The search decides variables one after the other and propagates units. The unassigned variables then fall apart into
components without a common clause: their counts multiply, and each is counted once and looked up in a cache afterwards
(Sang, Bacchus, Beame, Kautz and Pitassi 2004, *Combining component caching and clause learning for effective model
counting*; Thurley 2006, *sharpSAT*). Conflicts give learned clauses. As they follow from the whole formula, they may
prune a component wrongly where another one has no model; then the branch has no model, and all counts of it leave the
cache. Two branches without models give a clause of earlier decisions, and the search returns to the latest of them.

The variable to decide has many clauses and recent conflicts, and is near the centre of a tree decomposition: removing
a central bag leaves small components (Korhonen and Järvisalo 2021, *Integrating tree decompositions into decision
heuristics of propositional model counters*). Variables that count are decided before the others; a component without
them counts 1 as soon as it has a model, which a search without components finds.

Counts are residues modulo as many primes below 2**50 as the product of all variables' weights needs; the Chinese
remainder theorem gives the count. Keys of components are exact, so no count depends on a hash.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from oocbe.counting.kernels.cpu.clause_learning import (
    COMPONENTS,
    CONFLICTS,
    DECISIONS,
    ENTRIES,
    HITS,
    LIMIT,
    PHASE,
    Cache,
    Levels,
    Residues,
    Solver,
)
from oocbe.counting.kernels.cpu.count_models import (
    ARENA_FULL,
    CACHE_FULL,
    DONE,
    PAUSED,
    PROPAGATE,
    UNSATISFIABLE,
    count_models,
    evict,
    index_entries,
)
from oocbe.counting.presolve import Formula, solver_of
from oocbe.errors import ResourceError
from oocbe.runtime.deadline import check_deadline

PRIME_BITS = 49
"""Every prime is above 2**49; there are ten thousands of them between 2**49 and 2**50."""

WITNESSES = (2, 3, 5, 7, 11, 13, 17, 19, 23)
"""Bases of the test for primes, certain below 3.8e18."""

FIRST_LEARNED = 2_000
"""Limit on learned clauses at the beginning."""

FIRST_ENTRIES = 1 << 12
"""Entries of the cache at the beginning."""

CENTRE_GROWTH, CENTRE_RATIO, LARGEST_WEIGHT = 2.6, 2.2, 1e7
"""The weight of the tree decomposition is exp(growth * (variables / width - ratio)), up to a maximum; at this ratio it
equals one clause. Large bags separate little: instance 097 of track 3 of 2022 (51 variables, width 25) takes four times
the decisions with weight 15. Instance 073 of track 1 (118, 34) takes six times with weight 2 instead of 25."""


class Counted(NamedTuple):
    """A count (``value``); decisions, conflicts and hits of the search, and the entries of the cache at the end."""

    value: int
    decisions: int = 0
    conflicts: int = 0
    hits: int = 0
    entries: int = 0


def count_formula(formula: Formula, scores: NDArray[np.float64], memory: int) -> Counted:
    """The count of a formula.

    scores : float64 (variables,), preference of each variable; see :func:`depth_scores`.
    memory : limit of the cache, in bytes; beyond it, the entries that were not used for longest are deleted.
    Raises TimeLimitError: the deadline of the innermost block passed; ResourceError: the memory does not suffice.
    """
    if formula.multiplier == 0 or any(len(clause) == 0 for clause in formula.clauses):
        return Counted(0)
    if not formula.clauses:
        return Counted(formula.multiplier * math.prod(map(formula.total, range(formula.variables))))
    primes = _primes_for(formula)
    solver = solver_of(formula, scores)
    if solver is None:
        return Counted(0)
    solver.num[LIMIT], solver.num[COMPONENTS], solver.num[PHASE] = FIRST_LEARNED, 1, PROPAGATE
    levels = _levels(formula, len(primes))
    residues = _residues(formula, primes)
    cache = _cache(len(primes))
    while (outcome := count_models(solver, levels, cache, residues)) != DONE:
        check_deadline()
        if outcome == UNSATISFIABLE:
            return _counted(solver, 0)
        if outcome == CACHE_FULL:
            cache = _more_cache(solver, levels, cache, memory)
        elif outcome == ARENA_FULL:
            solver = solver._replace(arena=_doubled(solver.arena))
        elif outcome != PAUSED:
            full = ("variables", "words", "first_variable", "first_word", "hash", "has_shown")
            levels = levels._replace(**{name: _doubled(getattr(levels, name)) for name in full})
    return _counted(solver, formula.multiplier * _combined(levels.count[0, 0].tolist(), primes))


def _counted(solver: Solver, value: int) -> Counted:
    return Counted(value, *(int(solver.num[i]) for i in (DECISIONS, CONFLICTS, HITS, ENTRIES)))


def _doubled(array: NDArray[np.generic]) -> NDArray[np.generic]:
    """The array in twice the room, along its first axis."""
    return np.concatenate([array, np.zeros_like(array)])


def _levels(formula: Formula, primes: int) -> Levels:
    n, clauses = formula.variables, len(formula.clauses)
    room = 8 * n + clauses + 1024
    levels = Levels(
        **{name: np.zeros(n + 1, dtype=np.int64) for name in ("trail", "decision", "branch")},
        **{name: np.zeros(n + 1, dtype=np.int64) for name in ("component", "base", "mark")},
        count=np.ones((n + 1, 2, primes), dtype=np.int64),
        **{name: np.zeros(room + 1, dtype=np.int64) for name in ("first_variable", "first_word")},
        **{name: np.zeros(room, dtype=np.int64) for name in ("words", "hash")},
        variables=np.zeros(room, dtype=np.int32),
        has_shown=np.zeros(room, dtype=np.uint8),
        frequency=np.zeros(n, dtype=np.int32),
        variable_seen=np.zeros(n, dtype=np.int64),
        clause_seen=np.zeros(clauses, dtype=np.int64),
        queue=np.zeros(n, dtype=np.int32),
        ids=np.zeros(clauses, dtype=np.int32),
        occurs=np.zeros(0 if formula.shown.all() else 2 * n, dtype=np.int32),
        pure=np.zeros(2 * n, dtype=np.uint8),
        pure_literals=np.zeros(n, dtype=np.int32),
        pure_end=np.zeros(n + 1, dtype=np.int64),
    )
    levels.variables[:n] = np.arange(n)
    levels.has_shown[0] = formula.shown.any()
    levels.first_variable[1] = n
    return levels


def _residues(formula: Formula, primes: Sequence[int]) -> Residues:
    n = formula.variables
    literals = [[formula.weight(literal) % p for p in primes] for literal in range(2 * n)]
    totals = [[formula.total(v) % p for p in primes] for v in range(n)]
    shape = (-1, len(primes))
    return Residues(
        primes=np.array(primes, dtype=np.int64),
        inverses=1.0 / np.array(primes, dtype=np.float64),
        weight=np.array(literals, dtype=np.int64).reshape(shape),
        total=np.array(totals, dtype=np.int64).reshape(shape),
        is_weighted=np.array([formula.weights is not None], dtype=np.uint8),
    )


def _cache(primes: int) -> Cache:
    return Cache(
        first=np.full(FIRST_ENTRIES, -1, dtype=np.int32),
        next=np.zeros(FIRST_ENTRIES, dtype=np.int32),
        hash=np.zeros(FIRST_ENTRIES, dtype=np.int64),
        used=np.zeros(FIRST_ENTRIES, dtype=np.int64),
        word=np.zeros(FIRST_ENTRIES + 1, dtype=np.int64),
        words=np.zeros(8 * FIRST_ENTRIES, dtype=np.int64),
        count=np.zeros((FIRST_ENTRIES, primes), dtype=np.int64),
    )


def _more_cache(solver: Solver, levels: Levels, cache: Cache, memory: int) -> Cache:
    """Twice the room for what is full, if the memory admits it while both copies exist; else without old entries."""
    entries = int(solver.num[ENTRIES])
    if entries == 0:
        return cache._replace(words=_doubled(cache.words))
    bytes_of = sum(array.nbytes for array in cache)
    is_full = entries + 1 >= len(cache.hash)
    if 2 * bytes_of > memory:
        recent = np.partition(cache.used[:entries], entries // 2)[entries // 2]
        evict(solver, levels, cache, recent)
        if solver.num[ENTRIES] == entries:  # all are of the same time
            evict(solver, levels, cache, recent + 1)
        return cache
    if not is_full:
        return cache._replace(words=_doubled(cache.words))
    made = Cache(*map(_doubled, cache))._replace(words=cache.words)
    index_entries(solver, made)
    return made


def _primes_for(formula: Formula) -> list[int]:
    """Primes whose product is above twice the greatest absolute value that the search may reach."""
    if formula.weights is None:
        bits = int(np.count_nonzero(formula.shown))
    else:
        greatest = math.prod(max(1, abs(a) + abs(b)) for a, b in formula.weights)
        bits = greatest.bit_length()
    return list(islice(_descending_primes(), (bits + 1) // PRIME_BITS + 1))


def _descending_primes() -> Iterator[int]:
    p = (1 << (PRIME_BITS + 1)) - 1
    while p > 1 << PRIME_BITS:
        if _is_prime(p):
            yield p
        p -= 2
    raise ResourceError("the counts of this formula need more primes than there are below 2**50")


def _is_prime(p: int) -> bool:
    odd, twos = p - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for base in WITNESSES:
        x = pow(base, odd, p)
        if x in (1, p - 1):
            continue
        for _ in range(twos - 1):
            x = x * x % p
            if x == p - 1:
                break
        else:
            return False
    return True


def _combined(residues: Sequence[int], primes: Sequence[int]) -> int:
    """The number of least absolute value with these residues."""
    value, modulus = 0, 1
    for residue, p in zip(residues, primes, strict=True):
        value += modulus * ((residue - value) * pow(modulus, -1, p) % p)
        modulus *= p
    return value - modulus if 2 * value > modulus else value


def depth_scores(order: Sequence[int], separators: Sequence[Sequence[int]]) -> NDArray[np.float64]:
    """Preferences of variables: the greater, the nearer to the centre of the tree of an elimination order.

    Without the variables of the central bag, the largest part is smallest. Distances are numbers of bags that no other
    bag contains. Each tree of the order has its own centre and weight.

    order, separators : see :class:`oocbe.elimination.orders.order.OrderChoice`.
    """
    n = len(order)
    position = np.zeros(n, dtype=np.int64)
    position[list(order)] = np.arange(n)
    parent = [min((int(position[v]) for v in own), default=-1) for own in separators]
    children: list[list[int]] = [[] for _ in range(n)]
    below, root = [1] * n, list(range(n))
    outer: dict[int, int] = {}  # by parent, the first child whose bag contains its parent's
    trees: dict[int, list[int]] = {}
    for i, p in enumerate(parent):
        if p >= 0:
            below[p] += below[i]
            children[p].append(i)
            if len(separators[i]) > len(separators[p]):
                outer.setdefault(p, i)
    for i in reversed(range(n)):
        root[i] = i if parent[i] < 0 else root[parent[i]]
        trees.setdefault(root[i], []).append(i)

    def largest_part(i: int) -> int:
        most = max((below[c] for c in children[i]), default=0)
        while outer.get(parent[i]) == i:
            most = max(most, *(below[c] for c in children[parent[i]] if c != i), 0)
            i = parent[i]
        return max(most, below[root[i]] - below[i] - len(separators[i]))

    depth = np.zeros(n)
    for members in trees.values():
        centre = min((i for i in members if i not in outer), key=largest_part)
        distance, reached = {centre: 0}, [centre]
        for i in reached:  # it grows
            for j in (*children[i], *([parent[i]] if parent[i] >= 0 else [])):
                if j not in distance:
                    distance[j] = distance[i] + (outer.get(i) != j and outer.get(j) != i)
                    reached.append(j)
        for i in reversed(reached):
            depth[[order[i], *separators[i]]] = distance[i]
        own = [order[i] for i in members]
        width = 1 + max(len(separators[i]) for i in members)
        weight = min(LARGEST_WEIGHT, math.exp(min(50.0, CENTRE_GROWTH * (len(own) / width - CENTRE_RATIO))))
        depth[own] = weight * (1.0 - depth[own] / max(1.0, depth[own].max()))
    return depth
