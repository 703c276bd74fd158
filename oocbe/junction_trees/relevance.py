"""Which factors a question needs: barren variables go.

A variable that nothing is asked about, and of which only one factor speaks, one that adds up to 1 over it whatever the
other variables are, is *barren*: added up it says nothing, so that variable and factor can go, and then perhaps the
factor's other variables (Shachter 1986).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence


def relevant(
    scopes: Sequence[Collection[int]],
    factors: Iterable[int],
    asked: Collection[int],
    sums_to_one: Callable[[int, int], bool],
) -> tuple[set[int], list[int]]:
    """The factors that are left where barren variables go, and these variables in the order in which they went.

    Parameters
    ----------
    scopes : variables of each factor. factors : numbers of those that there are. asked : variables that stay.
    sums_to_one : whether a factor, given by number, adds up to 1 over a variable whatever its others are.
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
    """Sets of factors that have no variable in common with others; each factor has a variable."""
    above: dict[int, int] = {}  # by variable, another of its component, itself where it stands for all of them

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
