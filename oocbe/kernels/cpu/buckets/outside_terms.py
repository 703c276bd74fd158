"""Sums of terms over the outside of a message; see :mod:`oocbe.elimination.row_pruning.row_bounds`."""

from __future__ import annotations

from typing import Any

from oocbe.kernels.cpu.jit import inline, jit

OUTSIDE, SEPARATOR, ELIMINATED = 0, 1, 2
"""Role of a variable in a message; part of the kernels' interface."""

SOFT, HARD, LITERAL, CONSUMED = 0, 1, 2, 3
"""Kind of a term; see :class:`oocbe.elimination.row_pruning.row_bounds.BoundTerms`."""


@inline
def _least_entry(entries: Any, offset: Any, begin: Any, end: Any, removed: Any) -> Any:
    """Least entry of a term, or least sum, over the remaining values of a variable; over all if none remains."""
    least = entries[offset]
    found = False
    for i in range(begin, end):
        entry = entries[offset + i - begin]
        if removed[i] == 0 and (not found or entry < least):
            least = entry
            found = True
        elif not found and entry < least:
            least = entry
    return least


@jit
def sum_outside(
    start: Any,
    variable: Any,
    offset: Any,
    entries: Any,
    constant: Any,
    kind: Any,
    first: Any,
    role: Any,
    removed: Any,
    sweeps: Any,
    sums: Any,
    kept: Any,
) -> Any:
    """Sum the terms outside a message; return the part that depends on no variable there.

    start, variable, offset : int64, CSR; the variables of each term, and the start of its entries for them.
    entries : int64. constant, kind : int64 and uint8 (terms,), :data:`SOFT`, :data:`HARD`, :data:`LITERAL`
        or :data:`CONSUMED`.
    first : int64 (variables + 1,), start of a variable's values in ``removed`` and ``sums``.
    role : uint8 (variables,), :data:`OUTSIDE`, :data:`SEPARATOR` or :data:`ELIMINATED`.
    removed : uint8 (values,), 1 for values in no assignment that counts.
    sweeps : number of passes that reconsider hard terms over eliminated variables.
    sums : int64 (values,), overwritten: sum of the entries of each value of the variables that are not eliminated.
    kept : uint8 (terms,), overwritten: 1 for the terms that were used.

    A soft term counts if it meets no eliminated variable: otherwise its function is part of the message. A hard term
    (at most 0 for every assignment that counts) is always valid; its eliminated variables contribute their least entry,
    or nothing in a literal term. In a consumed term this is the least entry of all values, removed or not: the
    consumption beyond it is priced row by row. A hard term without a variable outside cannot raise the bound of any row
    and is left out. A hard or literal term over eliminated variables is left out if this does not lower the least bound
    of all rows.
    """
    total = constant[0] * 0
    for i in range(len(sums)):
        sums[i] = 0
    for t in range(len(constant)):
        kept[t] = 0
        is_inside, is_open = False, False
        for u in range(start[t], start[t + 1]):
            if role[variable[u]] == ELIMINATED:
                is_inside = True
            elif role[variable[u]] == OUTSIDE:
                is_open = True
        if kind[t]:
            if not is_open:
                continue
        elif is_inside:
            continue
        kept[t] = 1 + (is_inside and kind[t] != CONSUMED)
        total += constant[t]
        for u in range(start[t], start[t + 1]):
            v = variable[u]
            begin, end = first[v], first[v + 1]
            if role[v] == ELIMINATED:
                if kind[t] == HARD:
                    total += _least_entry(entries, offset[u], begin, end, removed)
                elif kind[t] == CONSUMED:
                    least = entries[offset[u]]
                    for i in range(begin, end):
                        least = min(least, entries[offset[u] + i - begin])
                    total += least
            else:
                for i in range(begin, end):
                    sums[i] += entries[offset[u] + i - begin]
    for _ in range(sweeps):
        has_changed = False
        for t in range(len(constant)):
            if kept[t] != 2:
                continue
            own = constant[t]
            gain = -own
            for u in range(start[t], start[t + 1]):
                v = variable[u]
                begin, end = first[v], first[v + 1]
                if role[v] == ELIMINATED:
                    if kind[t] == HARD:
                        least = _least_entry(entries, offset[u], begin, end, removed)
                        own += least
                        gain -= least
                    continue
                gain -= _least_entry(sums, begin, begin, end, removed)
                for i in range(begin, end):
                    sums[i] -= entries[offset[u] + i - begin]
                gain += _least_entry(sums, begin, begin, end, removed)
            if gain >= 0:
                kept[t] = 0
                total -= own
                has_changed = True
                continue
            for u in range(start[t], start[t + 1]):
                v = variable[u]
                if role[v] != ELIMINATED:
                    for i in range(first[v], first[v + 1]):
                        sums[i] += entries[offset[u] + i - first[v]]
        if not has_changed:
            break
    return total
