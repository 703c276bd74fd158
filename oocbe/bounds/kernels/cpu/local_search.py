"""Tabu search with ejection, the compiled part of :mod:`oocbe.bounds.incumbent`.

Every iteration moves to the cheapest slot (Glover 1989). Ejection repairs a violated constraint at once if another
member has a safe value; otherwise the constraint's weight grows while it stays violated in local minima (breakout,
Morris 1993). Linear constraints are relaxed with a multiplier that rises while they are violated and falls otherwise
(strategic oscillation, Glover 1977). After many iterations without improvement the assignment is perturbed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from oocbe.bounds.kernels.cpu.search_state import assign, rebuild, reprice, victim_of
from oocbe.kernels.cpu.jit import jit_at_once, without_allocation


class Settings(NamedTuple):
    """Parameters of the search.

    tenure : int, minimum tabu tenure of a value that a move leaves, in iterations; the maximum is twice that.
    rest : int, maximum number of iterations for which a moved variable is fixed: without it, a variable with many equal
        values would move all the time.
    patience : int, iterations without improvement before a perturbation.
    kick : int, maximum number of moves of a perturbation.
    weight_step : float, growth of a violated constraint's weight; also the unit of multipliers.
    rise : float, factor by which the multiplier of a linear constraint changes in an iteration.
    """

    tenure: Any
    rest: Any
    patience: Any
    kick: Any
    weight_step: Any
    rise: Any


@without_allocation
def _best_move(model: Any, state: Any) -> Any:
    """The non-tabu slot with the least change of penalised value (ties at random), its variable, and the change.

    A tabu slot is eligible if it gives the best value of the run. Returns -1, -1, inf if no slot is eligible.
    """
    start, unary, permitted = model.start, model.unary, model.permitted
    linear_start, linear, coefficient, coefficients, capacity = (
        model.linear_start,
        model.linear,
        model.coefficient,
        model.coefficients,
        model.capacity,
    )
    values, cost, conflict, relief, used, multiplier, tabu_until = (
        state.values,
        state.cost,
        state.conflict,
        state.relief,
        state.used,
        state.multiplier,
        state.tabu_until,
    )
    iteration = state.counts[1]
    aspired = state.totals[2] - state.totals[0] if state.counts[0] == 0 else -np.inf
    has_relief = relief.shape[1] > 0
    best_v, best_b, ties = -1, -1, 0
    least = np.inf
    for v in range(len(values)):
        first = start[v]
        a = values[v]
        here = unary[first + a] + cost[first + a] + conflict[first + a]
        consumes = linear_start[v] < linear_start[v + 1]
        for b in range(start[v + 1] - first):
            if b == a or permitted[first + b] == 0:
                continue
            change = unary[first + b] + cost[first + b] + conflict[first + b] - here
            if has_relief:
                for c in range(len(capacity)):
                    over = used[c] - capacity[c]
                    freed = relief[first + b, c] - relief[first + a, c]
                    for place in range(linear_start[v], linear_start[v + 1]):
                        if linear[place] == c:
                            freed += coefficients[coefficient[place] + a] - coefficients[coefficient[place] + b]
                    change += multiplier[c] * (max(0.0, over - freed) - max(0.0, over))
            elif consumes:
                for place in range(linear_start[v], linear_start[v + 1]):
                    over = used[linear[place]] - capacity[linear[place]]
                    freed = coefficients[coefficient[place] + a] - coefficients[coefficient[place] + b]
                    change += multiplier[linear[place]] * (max(0.0, over - freed) - max(0.0, over))
            if change > least or (tabu_until[first + b] > iteration and change >= aspired):
                continue
            if change < least:
                best_v, best_b, ties, least = v, b, 1, change
            else:
                ties += 1
                if np.random.randint(ties) == 0:
                    best_v, best_b = v, b
    return best_v, best_b, least


@without_allocation
def _move(model: Any, soft: Any, hard: Any, state: Any, v: Any, b: Any, settings: Any) -> Any:
    """Assign b to v and eject the victims of violated constraints; the values they leave become tabu."""
    iteration = state.counts[1]
    tenure = settings.tenure
    until = iteration + np.random.randint(settings.rest + 1)
    for slot in range(model.start[v], model.start[v + 1]):
        state.tabu_until[slot] = max(until, state.tabu_until[slot])
    state.tabu_until[model.start[v] + state.values[v]] = iteration + tenure + np.random.randint(tenure + 1)
    assign(model, soft, hard, state, v, b)
    for use in range(hard.use_start[v], hard.use_start[v + 1]):
        f = hard.use_factor[use]
        while state.violated[f] >= 0:
            u = victim_of(model, hard, state, f, v)
            if u < 0:
                break
            until = iteration + tenure + np.random.randint(tenure + 1)
            for slot in range(model.start[u], model.start[u + 1]):
                state.tabu_until[slot] = max(until, state.tabu_until[slot])
            assign(model, soft, hard, state, u, model.safe[u])


@without_allocation
def _balance(model: Any, state: Any, rise: Any, unit: Any) -> Any:
    """Adjust the multipliers of linear constraints, within 0.001 to 10^9 units; True if all of them hold."""
    holds = True
    for c in range(len(model.capacity)):
        if state.used[c] > model.capacity[c]:
            state.multiplier[c] = min(state.multiplier[c] * rise, 1e9 * unit)
            holds = False
    # No multiplier falls while another constraint is violated: two alternating ones would never hold together.
    if holds:
        for c in range(len(model.capacity)):
            state.multiplier[c] = max(state.multiplier[c] / rise, 1e-3 * unit)
    return holds


@without_allocation
def _record(state: Any) -> Any:
    """Record an assignment that satisfies all constraints; True if it is the best of all runs."""
    if state.counts[0] > 0 or state.totals[0] >= state.totals[2]:
        return False
    state.totals[2] = state.totals[0]
    state.counts[2] = state.counts[1]
    if state.totals[0] >= state.totals[1]:
        return False
    state.totals[1] = state.totals[0]
    for v in range(len(state.values)):
        state.best[v] = state.values[v]
    state.counts[3] = 0
    return True


@jit_at_once
def search(model: Any, soft: Any, hard: Any, state: Any, settings: Any, seed: Any, iterations: Any, stop: Any) -> Any:
    """Run ``iterations`` of tabu search from ``state``, which is updated, with the random seed of this call.

    The deadline's flag ``stop`` ends it early.

    Returns bool : whether the best value improved.
    """
    np.random.seed(seed)
    return _search(model, soft, hard, state, settings, iterations, stop)


@without_allocation
def _search(model: Any, soft: Any, hard: Any, state: Any, settings: Any, iterations: Any, stop: Any) -> Any:
    """Run the iterations of :func:`search` with a seeded generator."""
    rebuild(model, soft, hard, state)
    improved = _balance(model, state, 1.0, settings.weight_step) and _record(state)
    for _ in range(iterations):
        if stop[0] != 0:
            break
        state.counts[1] += 1
        iteration = state.counts[1]
        best_v, best_b, least = _best_move(model, state)
        if best_v >= 0:
            if least >= 0.0:
                # A local minimum: violated constraints gain weight.
                for i in range(state.counts[0]):
                    reprice(model, hard, state, i, settings.weight_step)
            _move(model, soft, hard, state, best_v, best_b, settings)
        holds = _balance(model, state, settings.rise, settings.weight_step)
        if holds:
            improved |= _record(state)
        if iteration - state.counts[2] > settings.patience:
            _kick(model, soft, hard, state, settings)
            improved |= _balance(model, state, 1.0, settings.weight_step) and _record(state)
    return improved


@without_allocation
def _kick(model: Any, soft: Any, hard: Any, state: Any, settings: Any) -> Any:
    """Start a new run with a perturbation of the best assignment (one time in four, of the current one)."""
    n = len(state.values)
    state.counts[3] += 1
    state.counts[2] = state.counts[1]
    if state.totals[1] < np.inf and np.random.randint(4) != 0:
        for v in range(n):
            assign(model, soft, hard, state, v, state.best[v])
    strength = 1 + np.random.randint(settings.kick)
    for _ in range(strength):
        v = np.random.randint(n)
        size = model.start[v + 1] - model.start[v]
        b = np.random.randint(size)
        if model.permitted[model.start[v] + b]:
            _move(model, soft, hard, state, v, b, settings)
    state.totals[2] = np.inf
    for slot in range(len(state.tabu_until)):
        state.tabu_until[slot] = 0
