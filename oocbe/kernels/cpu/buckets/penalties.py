"""Worst-case penalties of the substitution of one value of a variable for another in the remaining factors."""

from __future__ import annotations

from typing import Any

import numpy as np

from oocbe.kernels.cpu.jit import jit


@jit
def add_penalties(
    v: Any,
    size: Any,
    use_start: Any,
    use_factor: Any,
    use_offset: Any,
    matrices: Any,
    ahead: Any,
    scope_start: Any,
    scope: Any,
    inside: Any,
    is_hard: Any,
    blocked: Any,
    total: Any,
) -> Any:
    """Sum of the worst-case losses of b in a's place over the factors of variable v that lie ahead.

    v, size : the variable and its domain size.
    use_start, use_factor, use_offset : CSR; factors over each variable, and start of their matrix.
    matrices : int64 or float64; a factor's (size, size) matrix for a variable, entry [a, b].
    ahead : uint8 (factors,), 1 if the factor is outside the message's subtree.
    scope_start, scope : CSR; variables of each factor. inside : uint8 (variables,), 1 in the message's separator.
    is_hard : uint8 (factors,); every row satisfies a hard constraint within the separator, which adds nothing.
    blocked : matrix entry for "b may forbid a cell that a permits".
    total : (size, size), overwritten; an entry is ``blocked`` if any factor blocks it.
    """
    for a in range(size):
        for b in range(size):
            total[a, b] = 0
    for use in range(use_start[v], use_start[v + 1]):
        factor = use_factor[use]
        if ahead[factor] == 0:
            continue
        if is_hard[factor]:
            covered = True
            for s in range(scope_start[factor], scope_start[factor + 1]):
                if inside[scope[s]] == 0:
                    covered = False
                    break
            if covered:
                continue
        offset = use_offset[use]
        for a in range(size):
            for b in range(size):
                penalty = matrices[offset + a * size + b]
                if penalty == blocked or total[a, b] == blocked:
                    total[a, b] = blocked
                else:
                    total[a, b] += penalty


@jit
def collect_substitutions(
    separator: Any,
    sizes: Any,
    largest_domain: Any,
    factors: Any,
    ahead: Any,
    inside: Any,
    blocked: Any,
    worth: Any,
    margin: Any,
    most: Any,
    start: Any,
    target: Any,
    penalty: Any,
    pairs: Any,
) -> Any:
    """Promising substitutions for every variable of a separator, concatenated CSRs.

    separator : int64, variables. sizes : int64 (variables,). largest_domain : variables with more values are left out.
    factors : (use_start, use_factor, use_offset, matrices, scope_start, scope, is_hard), as for :func:`add_penalties`.
    ahead, inside, blocked : as for :func:`add_penalties`.
    worth : maximum useful penalty. margin : added to each penalty. most : maximum substitutions kept per value, the
        cheapest first.
    start : int64, size + 1 entries a variable, overwritten; each variable's entries begin at 0.
    target, penalty : overwritten, variable after variable. pairs : int64 (separator,), entries of each variable.
    """
    use_start, use_factor, use_offset, matrices, scope_start, scope, is_hard = factors
    start_end, pair_end = 0, 0
    for i in range(len(separator)):
        v = separator[i]
        size = sizes[v]
        first = pair_end
        pairs[i] = 0
        if size > largest_domain:
            continue
        total = np.empty((size, size), dtype=matrices.dtype)
        add_penalties(
            v,
            size,
            use_start,
            use_factor,
            use_offset,
            matrices,
            ahead,
            scope_start,
            scope,
            inside,
            is_hard,
            blocked,
            total,
        )
        start[start_end] = 0
        for a in range(size):
            row_begin = pair_end
            for b in range(size):
                loss = total[a, b]
                if b == a or loss == blocked or loss > worth:
                    continue
                # Insertion into the few cheapest, in ascending order; the smaller value first among equals.
                if pair_end - row_begin < most:
                    pair_end += 1
                elif loss + margin >= penalty[pair_end - 1]:
                    continue
                place = pair_end - 1
                while place > row_begin and penalty[place - 1] > loss + margin:
                    target[place] = target[place - 1]
                    penalty[place] = penalty[place - 1]
                    place -= 1
                target[place] = b
                penalty[place] = loss + margin
            start[start_end + a + 1] = pair_end - first
        start_end += size + 1
        pairs[i] = pair_end - first
