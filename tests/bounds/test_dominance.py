"""Substitution dominance: penalties by their definition, and an optimum that survives for every completion."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings

from oocbe.elimination.buckets.forward import Forward
from oocbe.elimination.buckets.messages import MessageStore
from oocbe.elimination.preparation.prepare import prepare
from oocbe.elimination.preparation.ranges import rounding_margin
from oocbe.elimination.row_pruning.dominance import SubstitutionDominance
from oocbe.kernels.cpu.buckets.dominance import add_penalties, mark_dominated
from oocbe.model.parts import Constraint, Function, Variable
from oocbe.model.problem import Problem
from oocbe.model.semiring import LOG_SUM_EXP, MAX_PRODUCT, MAX_SUM, MIN_SUM, SUM_PRODUCT
from oocbe.tables.table import Table
from tests.helpers.effort import examples
from tests.helpers.small_problems import all_values, make_problem, structures, without_bound


def dominance_of(problem: Problem, order) -> tuple[SubstitutionDominance, object]:
    prepared = prepare(problem, problem.semiring, order)
    scopes = [t.scope for t in prepared.tables]
    made = SubstitutionDominance(
        problem.sizes,
        problem.semiring,
        prepared.constraints,
        prepared.functions,
        scopes,
        rounding_margin(problem),
    )
    return made, prepared


def penalty_by_definition(problem, v, a, b, separator, eliminated):
    """Worst loss of b in place of a over every factor ahead and all values of its other variables; inf: forbidden."""
    sign = 1 if problem.semiring is MIN_SUM else -1
    total = 0
    parts = [*problem.functions, *problem.constraints]
    for part in parts:
        if v not in part.scope or set(part.scope) & eliminated:
            continue
        covered = set(part.scope) <= set(separator)
        worst = -math.inf
        axis = part.scope.index(v)
        assignment = [0] * len(problem.variables)
        for values in itertools.product(*(range(problem.sizes[u]) for u in part.scope if u != v)):
            for u, x in zip((u for u in part.scope if u != v), values, strict=True):
                assignment[u] = x
            outcomes = []
            for value in (a, b):
                assignment[part.scope[axis]] = value
                if isinstance(part, Constraint):
                    outcomes.append(0 if part.permits(assignment) else None)
                else:
                    outcomes.append(part.value_at(assignment))
            if outcomes[0] is not None and outcomes[1] is None and not covered:
                return math.inf
            if isinstance(part, Function):
                filled = [0 if x is None else x for x in outcomes]
                worst = max(worst, sign * (filled[1] - filled[0]))
        total += worst if isinstance(part, Function) else 0
    return total


def penalties(made, v, separator, subtree):
    """Penalty matrix [a, b] of a variable of a message's separator, from what dominance keeps of the factors."""
    inside = np.zeros(len(made._sizes), dtype=np.uint8)
    inside[list(separator)] = 1
    ahead = (1 - subtree[made._first]).astype(np.uint8)
    total = np.empty((made._sizes[v],) * 2, dtype=made._dtype)
    add_penalties(v, made._sizes[v], made._factors, ahead, inside, made._blocked, total)
    return total


@settings(max_examples=examples(80))
@given(structures((MIN_SUM, MAX_SUM), largest_domain=3))
def test_penalties_follow_their_definition(structure):
    structure = {**structure, "parts": [p for p in structure["parts"] if p[0] != "linear"], "integral": True}
    problem = without_bound(make_problem(structure))
    count = len(problem.variables)
    if count < 2 or max(problem.sizes) > 5:
        return
    random = np.random.default_rng(structure["seed"])
    order = random.permutation(count).tolist()
    made, _ = dominance_of(problem, order)
    gone = int(random.integers(1, count))
    eliminated = set(order[:gone])
    separator = sorted(order[gone:], key=order.index)[: random.integers(1, count - gone + 1)]
    subtree = np.array([v in eliminated for v in range(count)], dtype=np.uint8)
    blocked = np.iinfo(np.int64).max
    for v in separator:
        found = penalties(made, v, separator, subtree)
        for a, b in itertools.product(range(problem.sizes[v]), repeat=2):
            expected = penalty_by_definition(problem, v, a, b, separator, eliminated)
            assert found[a, b] == (blocked if expected == math.inf else expected)


@settings(max_examples=examples(80))
@given(structures((MIN_SUM, MAX_SUM)))
def test_the_rows_kept_hold_an_optimum_of_the_whole_problem(structure):
    """After each bucket, some optimal assignment of the problem agrees with a kept row, in every message at once."""
    problem = without_bound(make_problem({**structure, "integral": True}))
    total, feasible = all_values(problem)
    if not feasible.any():
        return
    best = problem.semiring.reduce(total[feasible])
    optimal = np.argwhere(feasible & (total == best)) if problem.sizes else np.zeros((1, 0), dtype=int)
    order = np.random.default_rng(structure["seed"]).permutation(len(problem.variables)).tolist()
    prepared = prepare(problem, problem.semiring, order)
    with MessageStore(1 << 30) as store:
        outcome = Forward(prepared, True, store).run()
        survivors = [assignment for assignment in optimal.tolist() if in_all_messages(outcome.buckets, assignment)]
    assert survivors


def in_all_messages(buckets, assignment) -> bool:
    chosen = dict(enumerate(assignment))
    return all(m.value_at(chosen) is not None for bucket in buckets for m in bucket.messages)


@settings(max_examples=examples(100))
@given(structures((MIN_SUM, MAX_SUM), largest_domain=4))
def test_each_dropped_row_has_a_better_one_under_every_completion(structure):
    """One message on its own: substitutions, followed from row to row, end in a row that was kept."""
    problem = without_bound(make_problem({**structure, "integral": True}))
    count = len(problem.variables)
    if count < 3 or max(problem.sizes) > 5:
        return
    total, feasible = all_values(problem)
    random = np.random.default_rng(structure["seed"])
    order = random.permutation(count).tolist()
    dropping, keeping = (first_messages(problem, order, d) for d in (True, False))
    for (scope, kept), (same, complete) in zip(dropping, keeping, strict=True):
        assert scope == same
        assert {k: complete[k] for k in kept} == kept
        sign = 1 if problem.semiring is MIN_SUM else -1
        worst = total.max() * 2 + 1000 if sign == 1 else -(abs(total).max() * 2 + 1000)
        whole = np.where(feasible, total, worst)
        # Best value of the problem for each row and each completion: variables outside scope and its bucket stay fixed.
        axes = [v for v in range(count) if v not in scope]
        inner = order[0]
        reduced = whole.min(axis=inner, keepdims=True) if sign == 1 else whole.max(axis=inner, keepdims=True)
        moved = np.moveaxis(reduced, [*scope, *axes], range(count))
        for row in complete:
            if row not in kept:
                here = sign * moved[row]
                there = np.array([sign * moved[other] for other in kept])
                assert (there <= here).any(axis=0).all()


def first_messages(problem, order, dominance):
    """Scope and rows of the message of the first bucket, where it sends one."""
    prepared = prepare(problem, problem.semiring, order)
    with MessageStore(1 << 30) as store:
        buckets = Forward(prepared, dominance, store).run().buckets
        scope = buckets[0].separator
        if not scope or len(buckets) <= prepared.position[scope[0]]:
            return []
        received = buckets[prepared.position[scope[0]]].messages
        return [(m.scope, m.table().to_dict()) for m in received if m.scope == scope][:1]


def test_ties_keep_the_smallest_value():
    """Four equal rows of one variable that nothing ahead cares about: one stays."""
    problem = Problem((Variable("a", 2), Variable("b", 4)), (Function.from_array((0, 1), np.ones((2, 4), dtype=int)),))
    made, prepared = dominance_of(problem, [0, 1])
    message = Table.from_rows({"b": 4}, [[0], [1], [2], [3]], np.array([5, 5, 5, 5]), MIN_SUM)
    kept = made.drop_dominated(message, [1], np.array([1, 0], dtype=np.uint8))
    assert kept.to_dict() == {(0,): 5}
    assert kept.is_sorted
    assert prepared.order == (0, 1)


def test_a_gain_below_the_margin_drops_nothing():
    values = np.array([0.3, 0.1 + 0.2])
    problem = Problem((Variable("a", 2), Variable("b", 2)), (Function.from_array((0, 1), np.full((2, 2), 0.1)),))
    made, _ = dominance_of(problem, [0, 1])
    message = Table.from_rows({"b": 2}, [[0], [1]], values, MIN_SUM)
    subtree = np.array([1, 0], dtype=np.uint8)
    assert made.drop_dominated(message, [1], subtree).rows == 2
    better = Table.from_rows({"b": 2}, [[0], [1]], np.array([0.3, 0.4]), MIN_SUM)
    assert made.drop_dominated(better, [1], subtree).to_dict() == {(0,): 0.3}


def test_variables_with_huge_domains_are_left_alone():
    """A matrix of every pair of values would take 3 GB for this one."""
    size = 20_000
    table = np.random.default_rng(0).integers(0, 99, (size, 3))
    problem = Problem(
        (Variable("large", size), Variable("small", 3), Variable("end", 3)),
        (Function.from_array((0, 1), table), Function.from_array((0,), np.arange(size))),
    )
    made, _ = dominance_of(problem, [1, 0, 2])
    message = Table.from_rows({"large": size}, np.arange(size)[:, None], table.min(axis=1), MIN_SUM)
    assert made.drop_dominated(message, [0], np.array([0, 1, 0], dtype=np.uint8)) is message


@pytest.mark.parametrize("words", [1, 2, 3])
def test_marking_finds_partners_in_any_word(words):
    """Against a dictionary, with sparse keys of several words."""
    random = np.random.default_rng(words)
    keys = np.unique(random.integers(0, 6, size=(300, words)), axis=0)
    keys = keys[np.lexsort(keys.T)].T.astype(np.uint64).copy()
    values = random.integers(0, 30, keys.shape[1])
    for word in range(words):
        shift, mask = 1, 3
        start, target = np.array([0, 1, 3, 4, 4]), np.array([1, 0, 2, 1])
        penalty = np.array([3, 0, -2, 5])
        marked = np.zeros(keys.shape[1], dtype=np.uint8)
        field = (word, np.uint64(shift), np.uint64(mask))
        cut = random.integers(0, keys.shape[1])
        for others in (slice(0, cut), slice(cut, None)):  # the partners, all at once or range by range
            other_keys = np.ascontiguousarray(keys[:, others])
            mark_dominated(
                keys,
                values,
                other_keys,
                values[others],
                field,
                start,
                target,
                penalty,
                None,
                None,
                1,
                marked,
                np.zeros(1, np.int64),
            )
        known = {tuple(k): v for k, v in zip(keys.T.tolist(), values.tolist(), strict=True)}
        for row, key in enumerate(keys.T.tolist()):
            a = key[word] >> shift & mask
            expected = False
            for pair in range(start[a], start[a + 1]):
                b = int(target[pair])
                partner = list(key)
                partner[word] = key[word] & ~(mask << shift) | b << shift
                if tuple(partner) in known:
                    gain = values[row] - known[tuple(partner)] - penalty[pair]
                    expected |= bool(gain > 0 or (gain == 0 and b < a))
            assert marked[row] == expected


def test_applies_only_where_sums_are_compared():
    assert [s.optimises_sums for s in (MIN_SUM, MAX_SUM, MAX_PRODUCT, SUM_PRODUCT, LOG_SUM_EXP)] == [True, True] + [
        False
    ] * 3
