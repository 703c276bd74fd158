"""Mark rows of a sorted table that another row (of the same or another piece) dominates by substitution of one value.

For a variable and two of its values a, b, the row with b that corresponds to a row with a differs in one field of the
key. Both run through the table in ascending order, so one monotone pointer per pair of values finds all matches: a
merge without hashing or random access (pointers advance by doubling steps, then bisection).

If rows carry consumptions, the replacing row may consume less: any row with at most the same consumption, including
that of the substituted variable, dominates. The rows of one key form a Pareto front, so the last of these is the best.
With several constraints only the first one's consumption may be less; those of the others must be equal.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from oocbe.kernels.cpu.jit import helper, jit

U64 = np.uint64

LOOK_UP_STEP = (1 << 12) - 1
"""Mask of the row number: the stop flag is read every 4096 rows."""


@jit
def mark_dominated(
    keys: Any,
    values: Any,
    other_keys: Any,
    other_values: Any,
    field: Any,
    pair_start: Any,
    pair_target: Any,
    pair_penalty: Any,
    pair_saving: Any,
    parts: Any,
    sign: Any,
    dominated: Any,
    stop: Any,
) -> Any:
    """Set ``dominated`` for rows that can be replaced by another row at no loss, by substitution of one variable.

    keys : uint64 (words, rows), ascending, the packed consumption in the lowest bits. values : (rows,).
    other_keys, other_values : the possible replacements, ascending: the same rows, or another range of the message's
        rows, which is then marked range by range.
    field : (word, shift, mask) of the substituted variable, int64 and uint64s.
    pair_start : int64 (size + 1,); the substitutions of value a are pairs pair_start[a] .. pair_start[a + 1] - 1.
    pair_target : int64 (pairs,), the value b that replaces a.
    pair_penalty : value dtype (pairs,), worst-case loss of b against a in the remaining factors.
    pair_saving : int64 (pairs, constraints), consumption of the replaced value minus that of the new value; or None.
    parts : (shift, mask), int64 (constraints,), field of each constraint in the packed consumption, the lowest first;
        None without consumptions: Numba then removes the code for them.
    sign : 1 if small values are better, -1 if large ones are.
    dominated : uint8 (rows,), only ever set to 1, so that several variables can be processed at once.
    stop : int64 (1,), read periodically; a nonzero value leaves the remaining rows unmarked.
    """
    word, shift, mask = field
    words, rows = keys.shape
    others = other_keys.shape[1]
    pointer = np.zeros(len(pair_target), dtype=np.int64)
    clear = ~(mask << shift)
    if parts is not None:
        part_shift, part_mask = parts
        below_first = U64(part_mask[0])
    target = np.empty(words, dtype=np.uint64)
    for row in range(rows):
        if row & LOOK_UP_STEP == 0 and stop[0] != 0:
            break
        if dominated[row]:
            continue
        a = np.int64((keys[word, row] >> shift) & mask)
        for pair in range(pair_start[a], pair_start[a + 1]):
            b = pair_target[pair]
            for w in range(words):
                target[w] = keys[w, row]
            target[word] = (target[word] & clear) | (U64(b) << shift)
            if parts is not None:
                amount, amount_before = np.int64(0), np.int64(0)
                is_possible = True
                for part in range(len(part_shift)):
                    before = np.int64(keys[0, row] >> U64(part_shift[part])) & part_mask[part]
                    own = before + pair_saving[pair, part]
                    is_possible &= own >= 0
                    amount += own << part_shift[part]
                    amount_before |= before << part_shift[part]
                if not is_possible:
                    continue
                # The row before the first one from here on; no carry leaves the lowest field, whose guard bit is 0.
                target[0] = ((target[0] ^ U64(amount_before)) | U64(amount)) + U64(1)
            low = pointer[pair]
            if low < others and _is_below(other_keys, low, target, words):
                step = 1
                while low + step < others and _is_below(other_keys, low + step, target, words):
                    low += step
                    step += step
                high = min(low + step, others)
                low += 1
                while low < high:
                    middle = (low + high) >> 1
                    if _is_below(other_keys, middle, target, words):
                        low = middle + 1
                    else:
                        high = middle
                pointer[pair] = low
            if parts is not None:
                target[0] -= U64(1)
                low -= 1
            if low < 0 or low >= others:
                continue
            is_smaller = b < a
            if parts is not None:
                is_smaller |= other_keys[0, low] < target[0]
                target[0] ^= (target[0] ^ other_keys[0, low]) & below_first
            equal = True
            for w in range(words):
                if other_keys[w, low] != target[w]:
                    equal = False
                    break
            if equal:
                gain = sign * (values[row] - other_values[low]) - pair_penalty[pair]
                # Ties keep the smaller consumption, then the smaller value: no cycle of rows removes itself.
                if gain > 0 or (gain == 0 and is_smaller):
                    dominated[row] = 1
                    break


@helper
def _is_below(keys: Any, row: Any, target: Any, words: Any) -> Any:
    """Whether the key of a row is smaller than a target key."""
    for w in range(words - 1, -1, -1):
        if keys[w, row] != target[w]:
            return keys[w, row] < target[w]
    return False


@jit
def add_penalties(v: Any, size: Any, factors: Any, ahead: Any, inside: Any, blocked: Any, total: Any) -> Any:
    """Sum of the worst-case losses of b in a's place over the factors of variable v that lie ahead.

    v, size : the variable and its domain size.
    factors : use_start, use_factor and use_offset, CSR: factors over each variable, and start of their matrix;
        matrices, int64 or float64: a factor's (size, size) matrix for a variable, entry [a, b]; scope_start and scope,
        CSR: variables of each factor; is_hard, uint8 (factors,): every row satisfies a hard constraint within the
        separator, which adds nothing.
    ahead : uint8 (factors,), 1 if the factor is outside the message's subtree.
    inside : uint8 (variables,), 1 in the message's separator.
    blocked : matrix entry for "b may forbid a cell that a permits".
    total : (size, size), overwritten; an entry is ``blocked`` if any factor blocks it.
    """
    use_start, use_factor, use_offset, matrices, scope_start, scope, is_hard = factors
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
    factors, ahead, inside, blocked : as for :func:`add_penalties`.
    worth : maximum useful penalty. margin : added to each penalty. most : maximum substitutions kept per value, the
        cheapest first.
    start : int64, size + 1 entries a variable, overwritten; each variable's entries begin at 0.
    target, penalty : overwritten, variable after variable. pairs : int64 (separator,), entries of each variable.
    """
    start_end, pair_end = 0, 0
    for i in range(len(separator)):
        v = separator[i]
        size = sizes[v]
        first = pair_end
        pairs[i] = 0
        if size > largest_domain:
            continue
        total = np.empty((size, size), dtype=penalty.dtype)
        add_penalties(v, size, factors, ahead, inside, blocked, total)
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
