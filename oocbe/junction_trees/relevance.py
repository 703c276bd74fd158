"""The factors that a query needs: barren variables are removed.

A variable that is no target and occurs in one factor only is *barren* if that factor sums to 1 over it for all values
of the other variables. Variable and factor can then be removed, and perhaps the factor's other variables
(Shachter 1986).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence


def relevant(
    scopes: Sequence[Collection[int]],
    factors: Iterable[int],
    asked: Collection[int],
    sums_to_one: Callable[[int, int], bool],
) -> tuple[set[int], list[int]]:
    """The factors that remain without barren variables, and these variables in order of their removal.

    Parameters
    ----------
    scopes : variables of each factor. factors : numbers of the present factors. asked : variables to keep.
    sums_to_one : whether a factor, given by number, sums to 1 over a variable for all values of its others.
    """
    left = set(factors)
    uses: dict[int, set[int]] = {}
    for f in left:
        for v in scopes[f]:
            uses.setdefault(v, set()).add(f)
    gone: list[int] = []
    waiting = [v for v, own in uses.items() if len(own) == 1 and v not in asked]
    while waiting:
        v = waiting.pop()
        if len(uses[v]) != 1:
            continue
        (f,) = uses[v]
        if not sums_to_one(f, v):
            continue
        left.discard(f)
        gone.append(v)
        for u in scopes[f]:
            uses[u].discard(f)
            if u != v and len(uses[u]) == 1 and u not in asked:
                waiting.append(u)
    return left, gone


def components(scopes: Sequence[Collection[int]], factors: Iterable[int]) -> list[set[int]]:
    """Connected components of factors that share variables; each factor has a variable."""
    above: dict[int, int] = {}  # union-find: by variable, its parent; a root is its own

    def top(v: int) -> int:
        while above.setdefault(v, v) != v:
            above[v] = above[above[v]]
            v = above[v]
        return v

    known = sorted(factors)
    for f in known:
        first, *others = scopes[f]
        for v in others:
            above[top(v)] = top(first)
    found: dict[int, set[int]] = {}
    for f in known:
        found.setdefault(top(next(iter(scopes[f]))), set()).add(f)
    return list(found.values())
