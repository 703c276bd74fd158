"""Compiled parts of local cuts, against every subset of small balls."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from oocbe.bounds.kernels.cpu.local_cuts import grow_neighbourhood, lift, pack_subproblem
from oocbe.bounds.relaxation import NODE_LIMIT, _flat, linked
from tests.helpers.effort import examples

LITERALS = 40


def restrictions(seed):
    """Forbidden pairs, larger forbidden sets, and what literals take of one resource."""
    random = np.random.default_rng(seed)
    upper = np.triu(random.random((LITERALS, LITERALS)) < 0.2, 1)
    sets = [
        np.array([sorted(random.choice(LITERALS, size, replace=False)) for _ in range(count)])
        for size, count in ((3, 60), (4, 40))
    ]
    return random, upper | upper.T, sets, random.integers(0, 6, size=(1, LITERALS))


def packed(ball, pairs, sets):
    start = np.empty(len(ball) + 1, dtype=np.int64)
    place = np.full(LITERALS, -1, dtype=np.int64)
    adjacent, hyper = pack_subproblem(ball, pairs, *_flat(sets, LITERALS), place, start)
    assert (place == -1).all()
    return adjacent, start, hyper


@pytest.mark.parametrize("seed", range(examples(40)))
def test_a_packed_ball_forbids_the_same_sets(seed):
    random, pairs, sets, _ = restrictions(seed)
    ball = random.choice(LITERALS, 12, replace=False)
    adjacent, start, hyper = packed(ball, pairs, sets)
    expected = {frozenset(s) for group in sets for s in group.tolist() if set(s) <= set(ball.tolist())}
    for i, literal in enumerate(ball.tolist()):
        assert [bool(int(adjacent[i]) >> j & 1) for j in range(12)] == pairs[literal, ball].tolist()
        masks = [int(m) for m in hyper[start[i] : start[i + 1]]]
        assert {frozenset(ball[j] for j in range(12) if m >> j & 1) for m in masks} == {
            s for s in expected if literal in s
        }


@pytest.mark.parametrize("seed", range(examples(40)))
def test_a_lifted_inequality_holds_for_every_feasible_set_and_is_tight(seed):
    random, pairs, sets, take = restrictions(seed)
    ball = random.choice(LITERALS, 11, replace=False)
    adjacent, start, hyper = packed(ball, pairs, sets)
    use, room = np.ascontiguousarray(take[:, ball]), np.array([8])
    weights = np.zeros(11, dtype=np.int64)
    weights[:5] = random.integers(1, 4, size=5)
    first = weights.copy()
    limit = lift(weights, 5, adjacent, start, hyper, use, room, NODE_LIMIT)
    assert (weights[:5] == first[:5]).all()
    forbidden = [set(s) for group in sets for s in group.tolist()]
    most, most_of_first = 0, 0
    for size in range(12):
        for places in itertools.combinations(range(11), size):
            chosen = ball[list(places)]
            feasible = not pairs[np.ix_(chosen, chosen)].any() and use[0, list(places)].sum() <= room[0]
            if feasible and not any(s <= set(chosen.tolist()) for s in forbidden):
                most = max(most, weights[list(places)].sum())
                most_of_first = max(most_of_first, first[list(places)].sum())
    assert most == most_of_first == limit


def test_a_ball_takes_what_is_tied_most_and_ends_where_nothing_is():
    links = np.zeros((6, 6))
    for one, other, strength in ((0, 1, 1.0), (0, 2, 0.5), (1, 3, 0.4), (4, 5, 1.0)):
        links[one, other] = links[other, one] = strength
    ones = np.ones(6)
    ball = np.empty(6, dtype=np.int64)
    assert ball[: grow_neighbourhood(0, links, ones, ones, ball)].tolist() == [0, 1, 2, 3]
    assert ball[: grow_neighbourhood(0, links, np.array([1, 0.1, 1, 1, 1, 1]), ones, ball)].tolist() == [0, 2, 1, 3]
    assert ball[: grow_neighbourhood(5, links, ones, ones, ball[:1])].tolist() == [5]


@pytest.mark.parametrize("seed", range(examples(40)))
def test_literals_without_a_chain_to_a_fractional_one_are_in_no_ball(seed):
    random = np.random.default_rng(seed)
    upper = np.triu(random.random((LITERALS, LITERALS)) < 0.03, 1)
    pairs, sets = upper | upper.T, [np.sort(random.permutation(LITERALS)[:6].reshape(2, 3), axis=1)]
    is_positive, is_less = random.random(LITERALS) < 0.7, random.random(LITERALS) < 0.2
    links = np.where(np.outer(is_positive, is_positive) & pairs, 1.0, 0.0)
    for group in sets:
        for one, other in itertools.permutations(range(3), 2):
            whole = group[is_positive[group].all(axis=1)]
            links[whole[:, one], whole[:, other]] = 0.5
    reached: set[int] = set()
    for start in np.flatnonzero(is_positive & is_less).tolist():
        ball = np.empty(LITERALS, dtype=np.int64)
        reached |= set(ball[: grow_neighbourhood(start, links, np.ones(LITERALS), np.ones(LITERALS), ball)].tolist())
    assert set(linked(pairs, sets, is_positive, is_less).tolist()) == reached
