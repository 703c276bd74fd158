"""Elimination of all variables in one call, for problems of very many buckets with few cells each.

*Tables* are the problem's own factors, then the messages, the message of the bucket at place ``p`` being table
``factors + p``. Their cells lie one table after another in one array, those of a table's first variable fastest. The
arguments that all loops share:

order : int64 (variables,). sizes : int64 (variables,), of the domains.
table_starts, table_members : int64 (tables + 1,) and int32, the scopes; of messages the one eliminated next first.
cell_starts : int64 (tables + 1,), where the cells of each begin.
input_starts, inputs : int64 (variables + 1,) and int64, the tables that each bucket joins, by elimination position.
values : int64 or float64 (cells,), of all tables, those of the messages are written. permitted : uint8 (cells,).
stop : int64 (1,); the loops end where another value than 0 is set, with the rest of the messages unwritten.
"""

from __future__ import annotations

from math import frexp, ldexp
from typing import Any

import numpy as np

from oocbe.kernels.cpu.jit import helper, jit


@helper
def _room(table_starts: Any, input_starts: Any) -> Any:
    """Arrays for :func:`_lay_out` of any bucket: strides of its inputs, where their cells begin, digits of a cell."""
    count = len(input_starts) - 1
    factors = len(table_starts) - 1 - count
    most, widest, inputs = 1, 0, 0
    for p in range(count):
        axes = table_starts[factors + p + 1] - table_starts[factors + p] + 1
        own = input_starts[p + 1] - input_starts[p]
        most, widest, inputs = max(most, axes * own), max(widest, axes), max(inputs, own)
    return np.empty(most, dtype=np.int64), np.empty(inputs, dtype=np.int64), np.zeros(widest, dtype=np.int64)


@helper
def _lay_out(
    p: Any,
    v: Any,
    sizes: Any,
    table_starts: Any,
    table_members: Any,
    cell_starts: Any,
    inputs: Any,
    factors: Any,
    axis: Any,
    strides: Any,
    base: Any,
    digits: Any,
) -> Any:
    """Strides of a bucket's inputs, an axis for the variable it eliminates and then one for each of its message's."""
    t = factors + p
    axes = table_starts[t + 1] - table_starts[t] + 1
    axis[v] = 0
    for i in range(axes - 1):
        axis[table_members[table_starts[t] + i]] = i + 1
    strides[: len(inputs) * axes] = 0
    for j in range(len(inputs)):
        q, step = inputs[j], 1
        base[j] = cell_starts[q]
        for i in range(table_starts[q], table_starts[q + 1]):
            u = table_members[i]
            strides[j * axes + axis[u]] = step
            step *= sizes[u]
    digits[:axes] = 0
    return axes


@helper
def _advance(
    p: Any,
    sizes: Any,
    table_starts: Any,
    table_members: Any,
    factors: Any,
    axes: Any,
    strides: Any,
    base: Any,
    digits: Any,
    count: Any,
) -> None:
    """Move on to the next cell of a bucket's message."""
    for i in range(1, axes):
        digits[i] += 1
        for j in range(count):
            base[j] += strides[j * axes + i]
        size = sizes[table_members[table_starts[factors + p] + i - 1]]
        if digits[i] < size:
            return
        digits[i] = 0
        for j in range(count):
            base[j] -= strides[j * axes + i] * size


@helper
def _joined(
    values: Any,
    permitted: Any,
    base: Any,
    strides: Any,
    axes: Any,
    count: Any,
    a: Any,
    multiplies: Any,
) -> Any:
    """Whether a joined cell is permitted, and its value."""
    total = values[0] * 0 + (1 if multiplies else 0)
    for j in range(count):
        here = base[j] + a * strides[j * axes]
        if permitted[here] == 0:
            return False, total
        if multiplies:
            total *= values[here]
        else:
            total += values[here]
    return True, total


@jit
def eliminate_selecting(
    order: Any,
    sizes: Any,
    table_starts: Any,
    table_members: Any,
    cell_starts: Any,
    input_starts: Any,
    inputs: Any,
    values: Any,
    permitted: Any,
    choices: Any,
    largest: Any,
    multiplies: Any,
    stop: Any,
) -> Any:
    """Messages of the least or, with ``largest``, the greatest of sums or, with ``multiplies``, of products.

    choices : int32 (cells of messages,); the best value of the eliminated variable, the first of equal ones.
    Products are divided by powers of two; returns the exponent of all.
    """
    factors = len(table_starts) - 1 - len(order)
    strides, base, digits = _room(table_starts, input_starts)
    axis = np.zeros(len(sizes), dtype=np.int64)
    exponent = 0
    for p in range(len(order)):
        if stop[0] != 0:
            break
        v, own = order[p], inputs[input_starts[p] : input_starts[p + 1]]
        axes = _lay_out(
            p, v, sizes, table_starts, table_members, cell_starts, own, factors, axis, strides, base, digits
        )
        begin, end = cell_starts[factors + p], cell_starts[factors + p + 1]
        for cell in range(begin, end):
            if stop[0] != 0:
                break
            best, chosen = values[0] * 0, -1
            for a in range(sizes[v]):
                is_permitted, total = _joined(values, permitted, base, strides, axes, len(own), a, multiplies)
                if is_permitted and (chosen < 0 or (total > best if largest else total < best)):
                    best, chosen = total, a
            values[cell], permitted[cell] = best, chosen >= 0
            choices[cell - cell_starts[factors]] = max(chosen, 0)
            _advance(p, sizes, table_starts, table_members, factors, axes, strides, base, digits, len(own))
        if multiplies:
            exponent += _scale(values, begin, end)
    return exponent


@helper
def _scale(values: Any, begin: Any, end: Any) -> Any:
    """Divide cells by a power of two so that the greatest is about 1; returns its exponent."""
    greatest = 0.0
    for cell in range(begin, end):
        greatest = max(greatest, abs(values[cell]))
    exponent = frexp(float(greatest))[1] if greatest > 0 else 0
    for cell in range(begin, end if exponent != 0 else begin):
        values[cell] = ldexp(float(values[cell]), -exponent)
    return exponent


@jit
def choose_values(
    order: Any,
    sizes: Any,
    table_starts: Any,
    table_members: Any,
    cell_starts: Any,
    input_starts: Any,
    inputs: Any,
    choices: Any,
) -> Any:
    """An optimal assignment, int64 (variables,), from the choices of :func:`eliminate_selecting`."""
    factors = len(table_starts) - 1 - len(order)
    chosen = np.zeros(len(sizes), dtype=np.int64)
    for p in range(len(order) - 1, -1, -1):
        cell, step = cell_starts[factors + p] - cell_starts[factors], 1
        for i in range(table_starts[factors + p], table_starts[factors + p + 1]):
            u = table_members[i]
            cell += step * chosen[u]
            step *= sizes[u]
        chosen[order[p]] = choices[cell]
    return chosen


@jit
def eliminate_adding(
    order: Any,
    sizes: Any,
    table_starts: Any,
    table_members: Any,
    cell_starts: Any,
    input_starts: Any,
    inputs: Any,
    values: Any,
    permitted: Any,
    is_log: Any,
    stop: Any,
) -> Any:
    """Messages of sums of products; with ``is_log`` all values are logarithms. ``values`` is float64.

    Products are divided by powers of two; returns the exponent of all.
    """
    factors = len(table_starts) - 1 - len(order)
    strides, base, digits = _room(table_starts, input_starts)
    axis = np.zeros(len(sizes), dtype=np.int64)
    exponent = 0
    for p in range(len(order)):
        if stop[0] != 0:
            break
        v, own = order[p], inputs[input_starts[p] : input_starts[p + 1]]
        axes = _lay_out(
            p, v, sizes, table_starts, table_members, cell_starts, own, factors, axis, strides, base, digits
        )
        begin, end = cell_starts[factors + p], cell_starts[factors + p + 1]
        for cell in range(begin, end):
            if stop[0] != 0:
                break
            added, highest, is_any = 0.0, -np.inf, False
            for a in range(sizes[v]):
                is_permitted, total = _joined(values, permitted, base, strides, axes, len(own), a, not is_log)
                if not is_permitted:
                    continue
                is_any = True
                if not is_log:
                    added += total
                elif total > highest:
                    added, highest = added * np.exp(highest - total) + 1.0, total
                else:
                    added += np.exp(total - highest)
            if is_log and is_any:
                added = highest + np.log(added)
            values[cell], permitted[cell] = added, is_any
            _advance(p, sizes, table_starts, table_members, factors, axes, strides, base, digits, len(own))
        if not is_log:
            exponent += _scale(values, begin, end)
    return exponent


@jit
def descend(
    order: Any,
    sizes: Any,
    table_starts: Any,
    table_members: Any,
    cell_starts: Any,
    input_starts: Any,
    inputs: Any,
    values: Any,
    permitted: Any,
    value_starts: Any,
    weights: Any,
    shares: Any,
    stop: Any,
) -> None:
    """Probabilities of the values of all variables, from messages of logarithms that :func:`eliminate_adding` made.

    weights : float64 (cells of messages,), 0; written: the probability of each cell.
    value_starts : int64 (variables + 1,). shares : float64 (values of all variables,), 0; written: their probabilities.
    """
    factors = len(table_starts) - 1 - len(order)
    strides, base, digits = _room(table_starts, input_starts)
    axis = np.zeros(len(sizes), dtype=np.int64)
    first = cell_starts[factors]
    for p in range(len(order) - 1, -1, -1):
        if stop[0] != 0:
            break
        v, own = order[p], inputs[input_starts[p] : input_starts[p + 1]]
        axes = _lay_out(
            p, v, sizes, table_starts, table_members, cell_starts, own, factors, axis, strides, base, digits
        )
        begin, end = cell_starts[factors + p], cell_starts[factors + p + 1]
        if axes == 1:
            weights[begin - first] = 1.0
        for cell in range(begin, end):
            if stop[0] != 0:
                break
            mass = weights[cell - first]
            for a in range(sizes[v] if mass > 0.0 else 0):
                is_permitted, total = _joined(values, permitted, base, strides, axes, len(own), a, False)
                if not is_permitted:
                    continue
                share = mass * np.exp(total - values[cell])
                shares[value_starts[v] + a] += share
                for j in range(len(own)):
                    if own[j] >= factors:
                        weights[base[j] + a * strides[j * axes] - first] += share
            _advance(p, sizes, table_starts, table_members, factors, axes, strides, base, digits, len(own))


@jit
def count_within(
    order: Any,
    sizes: Any,
    table_starts: Any,
    table_members: Any,
    cell_starts: Any,
    input_starts: Any,
    inputs: Any,
    values: Any,
    permitted: Any,
    is_large: Any,
    stop: Any,
) -> None:
    """Messages of numbers of assignments, int64; ``is_large``, uint8 (variables,), marks the buckets left out.

    These have counts that int64 may not hold: by the greatest ones of what they join, or as they join one of these.
    """
    factors = len(table_starts) - 1 - len(order)
    strides, base, digits = _room(table_starts, input_starts)
    axis = np.zeros(len(sizes), dtype=np.int64)
    greatest = np.ones(len(order))
    for p in range(len(order)):
        if stop[0] != 0:
            break
        v, own = order[p], inputs[input_starts[p] : input_starts[p + 1]]
        bound: Any = np.float64(sizes[v])
        for q in own:
            if q >= factors:
                bound = np.inf if is_large[q - factors] != 0 else bound * greatest[q - factors]
        if bound > 2.0**62:
            is_large[p] = 1
            continue
        axes = _lay_out(
            p, v, sizes, table_starts, table_members, cell_starts, own, factors, axis, strides, base, digits
        )
        most = 0
        for cell in range(cell_starts[factors + p], cell_starts[factors + p + 1]):
            if stop[0] != 0:
                break
            added = 0
            for a in range(sizes[v]):
                is_permitted, total = _joined(values, permitted, base, strides, axes, len(own), a, True)
                added += total if is_permitted else 0
            values[cell], permitted[cell] = added, added > 0
            most = max(most, added)
            _advance(p, sizes, table_starts, table_members, factors, axes, strides, base, digits, len(own))
        greatest[p] = np.float64(max(1, most))
