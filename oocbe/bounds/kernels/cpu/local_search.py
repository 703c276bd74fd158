"""Tabu search with ejection, the compiled part of :mod:`oocbe.bounds.incumbent`.

Every iteration moves to the cheapest slot (Glover 1989). Ejection repairs a violated constraint at once if another
member has a safe value; otherwise the constraint's weight grows while it stays violated in local minima (breakout,
Morris 1993). Linear constraints are relaxed with a multiplier that rises while they are violated and falls otherwise
(strategic oscillation, Glover 1977). After many iterations without improvement the assignment is perturbed.

The cost of every single move is updated incrementally. A *slot* is a (variable, value) pair; variable v has the slots
``start[v] .. start[v + 1] - 1``. For every slot the state holds the cost of a move of the variable to the value: the
soft functions' values, and the *conflict*, the price of the hard constraints violated then. A move updates the slots of
the variable's neighbours only. The best moves of the other variables are kept, until a tabu expires.

A value is *safe* if no hard constraint forbids a tuple with it (such as "left out" of a photograph). *Ejection* repairs
a violated constraint: the member with the least loss moves to its safe value, and this loss is the constraint's share
of the conflict. If no other member has a safe value, the share is a weight.

Loops are compiled without reference counts of arrays (``without_allocation``): reading a field of a tuple inside a
loop would count references, which takes ten times longer than the arithmetic and doubles the compilation time.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import numpy as np

from oocbe.kernels.cpu.jit import jit_at_once, without_allocation

Factors = namedtuple(
    "Factors",
    "use_start use_factor use_stride scope_start scope stride offset table key_start keys key_values default",
)
"""Functions or hard constraints as lookups: entry of a factor at ``index = sum(stride * value)``.

use_start, use_factor, use_stride : CSR over variables; factors over each, and its stride there.
scope_start, scope, stride : CSR over factors; variables and their strides.
offset : int64; start of a factor's dense table in ``table``, or -1 for a sparse factor.
table : float64 values, or for constraints 1.0 where forbidden.
key_start, keys, key_values : CSR over factors; sorted listed indices and their entries (sparse).
default : entry of unlisted indices (sparse).
"""

Model = namedtuple("Model", "start unary permitted safe linear_start linear coefficient coefficients capacity")
"""Constant data of a search.

start : int64 (variables + 1,), first slot of each variable.
unary : float64 (slots,). permitted : uint8 (slots,), 0 where a unary constraint forbids the value.
safe : int64 (variables,), the safe value of each, or -1.
linear_start, linear, coefficient : CSR over variables; linear constraints, and the start of the coefficients of the
    variable's values in ``coefficients`` (float64). capacity : float64 (linear constraints,).
"""

SearchState = namedtuple(
    "SearchState",
    "values soft_index hard_index cost conflict relief weight violated violations used multiplier tabu_until change "
    "again least ties best counts totals",
)
"""Mutable data: the assignment, all derived quantities, and the memory of the search.

values : int64 (variables,), value index of each.
soft_index, hard_index : int64 (factors,), current index of each factor.
cost : float64 (slots,), soft functions' values if the variable took the value.
conflict : float64 (slots,), price of the constraints it would violate.
relief : float64 (slots, linear constraints or 0), consumption that its ejections would free.
weight : float64 (hard constraints,). violated : int64 (hard constraints,), place in the list, or -1.
violations : int64 (hard constraints,), list of the violated ones; its length is counts[0].
used, multiplier : float64 (linear constraints,). tabu_until : int64 (slots,).
change : float64 (slots,), change of the penalised value by each move. again : int64 (variables,), iteration from
    which those of a variable are computed again.
least : float64 (variables, 2), a variable's least change by moves that are not tabu, and by those that are.
ties : int64 (variables,), moves with the first of them. best : int64 (variables,), best feasible assignment.
counts : int64 (3,): violated, iteration, iteration of the run's last improvement.
totals : float64 (3,): current value, best value, best value of the run.
"""

NEVER = np.iinfo(np.int64).max
"""Iteration that never comes."""


@without_allocation
def _sparse_entry(factors: Any, f: Any, index: Any) -> Any:
    """Entry of a sparse factor at an index."""
    low, high = factors.key_start[f], factors.key_start[f + 1]
    while low < high:
        middle = (low + high) >> 1
        if factors.keys[middle] < index:
            low = middle + 1
        else:
            high = middle
    if low < factors.key_start[f + 1] and factors.keys[low] == index:
        return factors.key_values[low]
    return factors.default[f]


@without_allocation
def _entry(factors: Any, f: Any, index: Any) -> Any:
    """Entry of a factor at an index."""
    offset = factors.offset[f]
    return factors.table[offset + index] if offset >= 0 else _sparse_entry(factors, f, index)


@without_allocation
def _add_costs(model: Any, soft: Any, state: Any, v: Any, step: Any) -> Any:
    """Update the costs of v's neighbours for a rise of v's value by ``step``, and the indices of its functions."""
    use_factor, use_stride, scope_start, scope, strides = (
        soft.use_factor,
        soft.use_stride,
        soft.scope_start,
        soft.scope,
        soft.stride,
    )
    offsets, table = soft.offset, soft.table
    start, values, cost, soft_index, again = model.start, state.values, state.cost, state.soft_index, state.again
    for use in range(soft.use_start[v], soft.use_start[v + 1]):
        f = use_factor[use]
        before = soft_index[f]
        shift = use_stride[use] * step
        offset = offsets[f]
        for s in range(scope_start[f], scope_start[f + 1]):
            u = scope[s]
            if u == v:
                continue
            again[u] = 0
            stride = strides[s]
            at_zero = before - stride * values[u]
            first = start[u]
            if offset >= 0:
                for b in range(start[u + 1] - first):
                    at = offset + at_zero + stride * b
                    cost[first + b] += table[at + shift] - table[at]
            else:
                for b in range(start[u + 1] - first):
                    at = at_zero + stride * b
                    cost[first + b] += _sparse_entry(soft, f, at + shift) - _sparse_entry(soft, f, at)
        soft_index[f] = before + shift


@without_allocation
def victim_of(model: Any, hard: Any, state: Any, f: Any, v: Any) -> Any:
    """The member of f other than v with the least loss at its safe value, or -1."""
    best = -1
    least = np.inf
    for s in range(hard.scope_start[f], hard.scope_start[f + 1]):
        u = hard.scope[s]
        if u == v or model.safe[u] < 0:
            continue
        loss = model.unary[model.start[u] + model.safe[u]] - model.unary[model.start[u] + state.values[u]]
        if loss < least:
            best, least = u, loss
    return best


@without_allocation
def _add_shares(
    model: Any, hard: Any, state: Any, uses: Any, first_use: Any, last_use: Any, skip: Any, sign: Any
) -> Any:
    """Add the shares of constraints, times sign, to the conflicts of their members but ``skip``.

    The constraints are ``uses[first_use:last_use]``, or ``first_use`` to ``last_use - 1`` if ``uses`` is empty.
    """
    scope_start, scope, strides = hard.scope_start, hard.scope, hard.stride
    offsets, table = hard.offset, hard.table
    start, unary, safe = model.start, model.unary, model.safe
    linear_start, linear, coefficient, coefficients = (
        model.linear_start,
        model.linear,
        model.coefficient,
        model.coefficients,
    )
    values, hard_index, conflict, relief, weight, again = (
        state.values,
        state.hard_index,
        state.conflict,
        state.relief,
        state.weight,
        state.again,
    )
    has_relief = relief.shape[1] > 0
    is_listed = len(uses) > 0
    for use in range(first_use, last_use):
        f = uses[use] if is_listed else use
        index = hard_index[f]
        offset = offsets[f]
        for s in range(scope_start[f], scope_start[f + 1]):
            u = scope[s]
            if u == skip:
                continue
            again[u] = 0
            stride = strides[s]
            at_zero = index - stride * values[u]
            share = -1.0
            victim = -1
            first = start[u]
            for b in range(start[u + 1] - first):
                at = at_zero + stride * b
                if (table[offset + at] if offset >= 0 else _sparse_entry(hard, f, at)) == 0.0:
                    continue
                if share < 0.0:
                    share = np.inf
                    for other in range(scope_start[f], scope_start[f + 1]):
                        w = scope[other]
                        if w != u and safe[w] >= 0:
                            loss = unary[start[w] + safe[w]] - unary[start[w] + values[w]]
                            if loss < share:
                                victim, share = w, loss
                    share = max(share, 0.0) if victim >= 0 else weight[f]
                conflict[first + b] += sign * share
                if victim >= 0 and has_relief:
                    for place in range(linear_start[victim], linear_start[victim + 1]):
                        own = coefficient[place]
                        freed = coefficients[own + values[victim]] - coefficients[own + safe[victim]]
                        relief[first + b, linear[place]] += sign * freed


@without_allocation
def reprice(model: Any, hard: Any, state: Any, place: Any, step: Any) -> Any:
    """Raise the weight of a violated constraint by ``step``; ``place`` : in the list of the violated ones."""
    listed, end, nobody = state.violations, place + 1, np.int64(-1)
    _add_shares(model, hard, state, listed, place, end, nobody, -1.0)
    state.weight[listed[place]] += step
    _add_shares(model, hard, state, listed, place, end, nobody, 1.0)


@without_allocation
def rebuild(model: Any, soft: Any, hard: Any, state: Any) -> Any:
    """Recompute everything derived from ``state.values``; this also resets accumulated rounding errors."""
    n = len(state.values)
    state.cost[:] = 0.0
    state.conflict[:] = 0.0
    state.relief[:] = 0.0
    state.used[:] = 0.0
    state.violated[:] = -1
    state.again[:] = 0
    state.counts[0] = 0
    total = 0.0
    for v in range(n):
        total += model.unary[model.start[v] + state.values[v]]
        for use in range(model.linear_start[v], model.linear_start[v + 1]):
            state.used[model.linear[use]] += model.coefficients[model.coefficient[use] + state.values[v]]
    for f in range(len(soft.offset)):
        index = np.int64(0)
        for s in range(soft.scope_start[f], soft.scope_start[f + 1]):
            index += soft.stride[s] * state.values[soft.scope[s]]
        state.soft_index[f] = index
        total += _entry(soft, f, index)
        for s in range(soft.scope_start[f], soft.scope_start[f + 1]):
            u = soft.scope[s]
            stride = soft.stride[s]
            at_zero = index - stride * state.values[u]
            for b in range(model.start[u + 1] - model.start[u]):
                state.cost[model.start[u] + b] += _entry(soft, f, at_zero + stride * b)
    for f in range(len(hard.offset)):
        index = np.int64(0)
        for s in range(hard.scope_start[f], hard.scope_start[f + 1]):
            index += hard.stride[s] * state.values[hard.scope[s]]
        state.hard_index[f] = index
        if _entry(hard, f, index) != 0.0:
            state.violated[f] = state.counts[0]
            state.violations[state.counts[0]] = f
            state.counts[0] += 1
    first, end, nobody = np.int64(0), np.int64(len(hard.offset)), np.int64(-1)
    _add_shares(model, hard, state, hard.use_factor[:0], first, end, nobody, 1.0)
    state.totals[0] = total


@without_allocation
def assign(model: Any, soft: Any, hard: Any, state: Any, v: Any, c: Any) -> Any:
    """Give variable v the value c and update its neighbours' slots."""
    a = state.values[v]
    if a == c:
        return
    state.again[v] = 0
    first = model.start[v]
    state.totals[0] += model.unary[first + c] - model.unary[first + a] + state.cost[first + c] - state.cost[first + a]
    _add_costs(model, soft, state, v, c - a)
    # Shares with v as their victim depend on v's value, so all of v's constraints are subtracted and added again; at a
    # safe value v violates none.
    safe = model.safe[v]
    uses = hard.use_factor
    if a != safe:
        _add_shares(model, hard, state, uses, hard.use_start[v], hard.use_start[v + 1], v, -1.0)
    state.values[v] = c
    use_stride, hard_index, violated, violations = hard.use_stride, state.hard_index, state.violated, state.violations
    counts, offsets, table = state.counts, hard.offset, hard.table
    for use in range(hard.use_start[v], hard.use_start[v + 1]):
        f = uses[use]
        hard_index[f] += use_stride[use] * (c - a)
        offset = offsets[f]
        here = table[offset + hard_index[f]] if offset >= 0 else _sparse_entry(hard, f, hard_index[f])
        place = violated[f]
        if here != 0.0 and place < 0:
            violated[f] = counts[0]
            violations[counts[0]] = f
            counts[0] += 1
        elif here == 0.0 and place >= 0:
            counts[0] -= 1
            last = violations[counts[0]]
            violations[place] = last
            violated[last] = place
            violated[f] = -1
    if c != safe:
        _add_shares(model, hard, state, uses, hard.use_start[v], hard.use_start[v + 1], v, 1.0)
    for use in range(model.linear_start[v], model.linear_start[v + 1]):
        at = model.coefficient[use]
        state.used[model.linear[use]] += model.coefficients[at + c] - model.coefficients[at + a]


RISE = 1.002
"""Factor by which the multiplier of a linear constraint changes in an iteration."""

SEEKING, GENTLE = 9, 4
"""Factor of the patience of a run without a feasible assignment; divisor of perturbations until there is one at all."""

LocalSearchSettings = namedtuple("LocalSearchSettings", "tenure rest patience kick weight_step keeps")
"""Parameters of the search.

tenure : int, minimum tabu tenure of a value that a move leaves, in iterations; the maximum is twice that.
rest : int, maximum number of iterations for which a moved variable is fixed: without it, a variable with many equal
    values would move all the time.
patience : int, iterations without improvement before a perturbation, in a run that has a feasible assignment.
kick : int, a perturbation has fewer moves than this; the logarithm of their number is uniform.
weight_step : float, growth of a violated constraint's weight; also the unit of multipliers.
keeps : int, 1 if the best moves of each variable are kept from one iteration to the next.
"""


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
def _best_kept_move(model: Any, state: Any) -> Any:
    """As :func:`_best_move`, for a model without linear constraints, from the kept moves of each variable."""
    start, unary, permitted = model.start, model.unary, model.permitted
    values, cost, conflict, tabu_until, changes, again, least, ties = (
        state.values,
        state.cost,
        state.conflict,
        state.tabu_until,
        state.change,
        state.again,
        state.least,
        state.ties,
    )
    iteration = state.counts[1]
    aspired = state.totals[2] - state.totals[0] if state.counts[0] == 0 else -np.inf
    best_v, best_b, tied = -1, -1, 0
    best, is_tabu = np.inf, False
    for v in range(len(values)):
        if again[v] <= iteration:
            first = start[v]
            here = unary[first + values[v]] + cost[first + values[v]] + conflict[first + values[v]]
            own_ties, expiry = 0, NEVER
            least_free, least_tabu = np.inf, np.inf
            for slot in range(first, start[v + 1]):
                if slot == first + values[v] or permitted[slot] == 0:
                    changes[slot] = np.inf
                    continue
                change = unary[slot] + cost[slot] + conflict[slot] - here
                changes[slot] = change
                if tabu_until[slot] > iteration:
                    expiry = min(expiry, tabu_until[slot])
                    least_tabu = min(least_tabu, change)
                elif change < least_free:
                    own_ties, least_free = 1, change
                elif change == least_free:
                    own_ties += 1
            again[v], ties[v], least[v, 0], least[v, 1] = expiry, own_ties, least_free, least_tabu
        aspires = least[v, 1] < min(least[v, 0], aspired)
        change, own_ties = (least[v, 1], 1) if aspires else (least[v, 0], ties[v])
        if change < best:
            best_v, tied, best, is_tabu = v, own_ties, change, aspires
        elif change == best and own_ties > 0:
            tied += own_ties
            if np.random.randint(tied) < own_ties:
                best_v, is_tabu = v, aspires
    if best_v >= 0:
        tied = 0
        for slot in range(start[best_v], start[best_v + 1]):
            if changes[slot] == best and (tabu_until[slot] > iteration) == is_tabu:
                tied += 1
                if np.random.randint(tied) == 0:
                    best_b = slot - start[best_v]
    return best_v, best_b, best


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
        best_v, best_b, least = _best_kept_move(model, state) if settings.keeps else _best_move(model, state)
        if best_v >= 0:
            if least >= 0.0:
                # A local minimum: violated constraints gain weight.
                for i in range(state.counts[0]):
                    reprice(model, hard, state, i, settings.weight_step)
            _move(model, soft, hard, state, best_v, best_b, settings)
        holds = _balance(model, state, RISE, settings.weight_step)
        if holds:
            improved |= _record(state)
        if iteration - state.counts[2] > settings.patience * (SEEKING if state.totals[2] == np.inf else 1):
            _kick(model, soft, hard, state, settings)
            improved |= _balance(model, state, 1.0, settings.weight_step) and _record(state)
    return improved


@without_allocation
def _kick(model: Any, soft: Any, hard: Any, state: Any, settings: Any) -> Any:
    """Start a new run with a perturbation of the best assignment (one time in four, of the current one)."""
    n = len(state.values)
    state.counts[2] = state.counts[1]
    if state.totals[1] < np.inf and np.random.randint(4) != 0:
        for v in range(n):
            assign(model, soft, hard, state, v, state.best[v])
    strength = int(max(2, settings.kick / (GENTLE if state.totals[1] == np.inf else 1)) ** np.random.random())
    for _ in range(strength):
        v = np.random.randint(n)
        size = model.start[v + 1] - model.start[v]
        b = np.random.randint(size)
        if model.permitted[model.start[v] + b]:
            _move(model, soft, hard, state, v, b, settings)
    state.totals[2] = np.inf
    state.tabu_until[:] = 0
    state.again[:] = 0
