"""Worst-case penalties of substituting one value of a variable by another in the factors that are still to come."""

from __future__ import annotations

from typing import Any

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
    """Sum over the factors of variable v that lie ahead of the worst loss of putting b in a's place.

    Parameters
    ----------
    v, size : the variable and its domain size.
    use_start, use_factor, use_offset : CSR; factors that mention each variable, and where their matrix begins.
    matrices : int64 or float64; a factor's (size, size) matrix for a variable, entry [a, b].
    ahead : uint8 (factors,), 1 where the factor is not part of the message's subtree.
    scope_start, scope : CSR; variables of each factor. inside : uint8 (variables,), 1 in the message's separator.
    is_hard : uint8 (factors,); a hard constraint that the separator covers is satisfied by every row: it adds nothing.
    blocked : the matrix entry that means: b may forbid what a permits.
    total : (size, size), overwritten; entries are ``blocked`` where any factor blocks.
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
