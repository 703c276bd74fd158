"""Elimination of all variables in one call, for problems with very many buckets of few cells each.

*Tables* are the problem's own factors, then the messages; the message of the bucket at position ``p`` is table
``factors + p``. Their cells are concatenated in one array, each table's first variable fastest. All loops share these
arguments:

layout : :class:`NarrowLayout`.
values : int64 or float64 (cells,), of all tables; those of messages are written. permitted : uint8 (cells,).
stop : int64 (1,); a nonzero value ends the loops, and the remaining messages are not written.
"""

from __future__ import annotations

from math import frexp, ldexp
from sys import float_info
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.cpu.jit import helper, jit

SMALLEST, LARGEST = float_info.min, float_info.max
"""Range of floats of full precision."""

LEAST, GREATEST, ADDED, ADDED_LOGARITHMS = range(4)
"""Rules by which the values of a variable are reduced to one."""


class NarrowLayout(NamedTuple):
    """The tables of all buckets.

    order : int64 (variables,). sizes : int64 (variables,), of the domains.
    table_starts, table_members : int64 (tables + 1,) and int32, the scopes; in messages the variable eliminated next
        first.
    cell_starts : int64 (tables + 1,), start of each one's cells.
    input_starts, inputs : int64 (variables + 1,) and int64, the tables that each bucket joins, by elimination position.
    """

    order: NDArray[np.int64]
    sizes: NDArray[np.int64]
    table_starts: NDArray[np.int64]
    table_members: NDArray[np.int32]
    cell_starts: NDArray[np.int64]
    input_starts: NDArray[np.int64]
    inputs: NDArray[np.int64]


class _Position(NamedTuple):
    """Position of a walk over the cells of a bucket's message.
    ``axis`` is that of each variable in the bucket; ``strides`` are its inputs', axis by axis for each. ``base`` is the
    cell of each input that matches the message's cell, and ``digits`` are those of the message's cell."""

    axis: NDArray[np.int64]
    strides: NDArray[np.int64]
    base: NDArray[np.int64]
    digits: NDArray[np.int64]


@helper
def _walk(layout: Any) -> Any:
    """Scratch for a walk over any bucket, and the number of factors."""
    count = len(layout.order)
    factors = len(layout.table_starts) - 1 - count
    most, widest, inputs = 1, 0, 0
    for p in range(count):
        axes = layout.table_starts[factors + p + 1] - layout.table_starts[factors + p] + 1
        own = layout.input_starts[p + 1] - layout.input_starts[p]
        most, widest, inputs = max(most, axes * own), max(widest, axes), max(inputs, own)
    axis, strides = np.zeros(len(layout.sizes), dtype=np.int64), np.empty(most, dtype=np.int64)
    return _Position(axis, strides, np.empty(inputs, dtype=np.int64), np.zeros(widest, dtype=np.int64)), factors


@helper
def _begun(layout: Any, walk: Any, factors: Any, p: Any) -> Any:
    """Start the walk over a bucket; its axes are that of its variable, then those of its message. Returns its variable,
    its inputs, its number of axes, and the first cell of its message and the one behind the last."""
    v, t = layout.order[p], factors + p
    own = layout.inputs[layout.input_starts[p] : layout.input_starts[p + 1]]
    axes = layout.table_starts[t + 1] - layout.table_starts[t] + 1
    walk.axis[v] = 0
    for i in range(axes - 1):
        walk.axis[layout.table_members[layout.table_starts[t] + i]] = i + 1
    walk.strides[: len(own) * axes] = 0
    for j in range(len(own)):
        q, step = own[j], 1
        walk.base[j] = layout.cell_starts[q]
        for i in range(layout.table_starts[q], layout.table_starts[q + 1]):
            u = layout.table_members[i]
            walk.strides[j * axes + walk.axis[u]] = step
            step *= layout.sizes[u]
    walk.digits[:axes] = 0
    return v, own, axes, layout.cell_starts[t], layout.cell_starts[t + 1]


@helper
def _advance(layout: Any, walk: Any, t: Any, axes: Any, count: Any) -> None:
    """Advance to the next cell of a message, table ``t``, of a bucket with ``count`` inputs."""
    for i in range(1, axes):
        walk.digits[i] += 1
        for j in range(count):
            walk.base[j] += walk.strides[j * axes + i]
        size = layout.sizes[layout.table_members[layout.table_starts[t] + i - 1]]
        if walk.digits[i] < size:
            return
        walk.digits[i] = 0
        for j in range(count):
            walk.base[j] -= walk.strides[j * axes + i] * size


@helper
def _joined(values: Any, permitted: Any, walk: Any, axes: Any, count: Any, a: Any, multiplies: Any) -> Any:
    """Whether a joined cell is permitted, and its value."""
    total = values[0] * 0 + (1 if multiplies else 0)
    for j in range(count):
        here = walk.base[j] + a * walk.strides[j * axes]
        if permitted[here] == 0:
            return False, total
        if multiplies:
            total *= values[here]
        else:
            total += values[here]
    return True, total


@jit
def eliminate(layout: Any, values: Any, permitted: Any, choices: Any, rule: Any, multiplies: Any, stop: Any) -> Any:
    """Messages of :data:`LEAST` or :data:`GREATEST` sums or, with ``multiplies``, products; or of sums of products.

    choices : int32 (cells of messages,), written by the first two rules; the best value of the eliminated variable, the
        first on ties.
    rule : also :data:`ADDED`, with ``multiplies``, or :data:`ADDED_LOGARITHMS`, without; ``values`` is then float64.
    Products are divided by powers of two. Returns the total exponent, and whether all permitted products are within the
    range of float64.
    """
    walk, factors = _walk(layout)
    exponent, is_within = 0, True
    for p in range(len(layout.order)):
        if stop[0] != 0:
            break
        v, own, axes, begin, end = _begun(layout, walk, factors, p)
        for cell in range(begin, end):
            if stop[0] != 0:
                break
            best, chosen, added = values[0] * 0, -1, 0.0
            for a in range(layout.sizes[v]):
                is_permitted, total = _joined(values, permitted, walk, axes, len(own), a, multiplies)
                if not is_permitted:
                    continue
                if multiplies and not SMALLEST <= abs(total) <= LARGEST:
                    is_within = False
                if rule == ADDED:
                    added, chosen = added + total, a
                elif chosen < 0 or (total < best if rule == LEAST else total > best):
                    if rule == ADDED_LOGARITHMS:
                        added = 1.0 if chosen < 0 else added * np.exp(best - total) + 1.0
                    best, chosen = total, a
                elif rule == ADDED_LOGARITHMS:
                    added += np.exp(total - best)
            permitted[cell] = chosen >= 0
            if rule == ADDED_LOGARITHMS and chosen >= 0:
                added = best + np.log(added)
            if rule >= ADDED:
                values[cell] = added
            else:
                values[cell], choices[cell - layout.cell_starts[factors]] = best, max(chosen, 0)
            _advance(layout, walk, factors + p, axes, len(own))
        if multiplies:
            more, is_scaled = _scale(values, permitted, begin, end)
            exponent, is_within = exponent + more, is_within and is_scaled
    return exponent, is_within


@helper
def _scale(values: Any, permitted: Any, begin: Any, end: Any) -> Any:
    """Divide cells by a power of two so that the greatest is about 1; returns its exponent, and whether no permitted
    cell lost digits."""
    greatest, is_within = 0.0, True
    for cell in range(begin, end):
        greatest = max(greatest, abs(values[cell]))
    exponent = frexp(float(greatest))[1] if greatest > 0 else 0
    for cell in range(begin, end):
        values[cell] = ldexp(float(values[cell]), -exponent)
        if permitted[cell] != 0 and abs(values[cell]) < SMALLEST:
            is_within = False
    return exponent, is_within


@jit
def choose_values(layout: Any, choices: Any) -> Any:
    """An optimal assignment, int64 (variables,), from the choices of :func:`eliminate`."""
    order, table_starts, cell_starts = layout.order, layout.table_starts, layout.cell_starts
    factors = len(table_starts) - 1 - len(order)
    chosen = np.zeros(len(order), dtype=np.int64)
    for p in range(len(layout.order) - 1, -1, -1):
        cell, step = cell_starts[factors + p] - cell_starts[factors], 1
        for i in range(table_starts[factors + p], table_starts[factors + p + 1]):
            u = layout.table_members[i]
            cell += step * chosen[u]
            step *= layout.sizes[u]
        chosen[order[p]] = choices[cell]
    return chosen


@jit
def descend(layout: Any, values: Any, permitted: Any, value_starts: Any, weights: Any, shares: Any, stop: Any) -> None:
    """Probabilities of the values of all variables, from the logarithmic messages of :func:`eliminate`.

    weights : float64 (cells of messages,), 0; written: the probability of each cell.
    value_starts : int64 (variables + 1,). shares : float64 (values of all variables,), 0; written: their probabilities.
    """
    walk, factors = _walk(layout)
    first, parts = layout.cell_starts[factors], np.empty(len(shares))
    for p in range(len(layout.order) - 1, -1, -1):
        if stop[0] != 0:
            break
        v, own, axes, begin, end = _begun(layout, walk, factors, p)
        if axes == 1:
            weights[begin - first] = 1.0
        for cell in range(begin, end):
            if stop[0] != 0:
                break
            mass, added = weights[cell - first], 0.0
            for a in range(layout.sizes[v] if mass > 0.0 else 0):
                is_permitted, total = _joined(values, permitted, walk, axes, len(own), a, False)
                parts[a] = np.exp(total - values[cell]) if is_permitted else 0.0
                added += parts[a]  # not 1 beside large values, whose rounding exceeds the logarithm of a sum
            for a in range(layout.sizes[v] if mass > 0.0 else 0):
                share = mass * (parts[a] / added)
                shares[value_starts[v] + a] += share
                for j in range(len(own) if share > 0.0 else 0):
                    if own[j] >= factors:
                        weights[walk.base[j] + a * walk.strides[j * axes] - first] += share
            _advance(layout, walk, factors + p, axes, len(own))


@jit
def descend_gaps(
    layout: Any, values: Any, permitted: Any, never: Any, rule: Any, value_starts: Any, gaps: Any, found: Any, stop: Any
) -> None:
    """Gaps between the optimum and the best assignments with each value, from the sums of :func:`eliminate` by a rule.

    never : a gap, in the dtype of ``values``, that none of a feasible assignment reaches.
    gaps : (cells of messages,), ``never``; written: the least gap of an assignment with each cell.
    found : (values of all variables,), ``never``; written: their gaps. value_starts : as for :func:`descend`.
    """
    walk, factors = _walk(layout)
    first = layout.cell_starts[factors]
    for p in range(len(layout.order) - 1, -1, -1):
        v, own, axes, begin, end = _begun(layout, walk, factors, p)
        if axes == 1:
            gaps[begin - first] = values[begin] * 0
        for cell in range(begin, end):
            if stop[0] != 0:
                return
            for a in range(layout.sizes[v] if gaps[cell - first] < never else 0):
                is_permitted, total = _joined(values, permitted, walk, axes, len(own), a, False)
                if not is_permitted:
                    continue
                gap = gaps[cell - first] + (total - values[cell] if rule == LEAST else values[cell] - total)
                found[value_starts[v] + a] = min(found[value_starts[v] + a], gap)
                for j in range(len(own)):
                    if own[j] >= factors:
                        below = walk.base[j] + a * walk.strides[j * axes] - first
                        gaps[below] = min(gaps[below], gap)
            _advance(layout, walk, factors + p, axes, len(own))


@jit
def count_within(layout: Any, values: Any, permitted: Any, is_large: Any, stop: Any) -> None:
    """Messages of numbers of assignments, int64; ``is_large``, uint8 (variables,), is set for skipped buckets.

    Skipped counts may overflow int64, by the maxima of their inputs, or have a skipped input.
    """
    walk, factors = _walk(layout)
    greatest = np.ones(len(layout.order))
    for p in range(len(layout.order)):
        if stop[0] != 0:
            break
        bound: Any = np.float64(layout.sizes[layout.order[p]])
        for q in layout.inputs[layout.input_starts[p] : layout.input_starts[p + 1]]:
            if q >= factors:
                bound = np.inf if is_large[q - factors] != 0 else bound * greatest[q - factors]
        if bound > 2.0**62:
            is_large[p] = 1
            continue
        v, own, axes, begin, end = _begun(layout, walk, factors, p)
        most = 0
        for cell in range(begin, end):
            if stop[0] != 0:
                break
            added = 0
            for a in range(layout.sizes[v]):
                is_permitted, total = _joined(values, permitted, walk, axes, len(own), a, True)
                added += total if is_permitted else 0
            values[cell], permitted[cell] = added, added > 0
            most = max(most, added)
            _advance(layout, walk, factors + p, axes, len(own))
        greatest[p] = np.float64(max(1, most))
