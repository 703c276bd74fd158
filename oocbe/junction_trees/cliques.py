"""From an elimination order to the cliques of a junction tree.

The clique of a bucket is its variable and its separator. The buckets of an order are the nodes of a tree: the parent of
a bucket is the bucket of the first variable of its separator to be eliminated. A bucket that is a subset of one of its
children is merged into that child, so that maximal cliques remain (Lauritzen and Spiegelhalter 1988; Shafer and
Shenoy 1990).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from oocbe.runtime.deadline import looked


@dataclass(frozen=True)
class Clique:
    """A node of a junction tree.

    variables : indices, the one eliminated last first, so that those of the separator come first.
    separator : how many of them the clique shares with its parent; 0 for a root.
    parent : number of the clique above, which is larger than its own; None for a root.
    """

    variables: tuple[int, ...]
    separator: int
    parent: int | None

    @property
    def shared(self) -> tuple[int, ...]:
        """Variables of the separator."""
        return self.variables[: self.separator]

    @property
    def own(self) -> tuple[int, ...]:
        """Variables that are not in the separator."""
        return self.variables[self.separator :]


def children_of(cliques: Sequence[Clique]) -> tuple[tuple[int, ...], ...]:
    """The children of each clique, ascending."""
    found: list[list[int]] = [[] for _ in cliques]
    for number, clique in enumerate(cliques):
        if clique.parent is not None:
            found[clique.parent].append(number)
    return tuple(map(tuple, found))


def cliques_of(order: Sequence[int], separators: Sequence[Sequence[int]], merge: bool = True) -> tuple[Clique, ...]:
    """The cliques of an elimination order, children before their parents.

    order : variables as they are eliminated. separators : of each bucket, by position in the order.
    merge : whether buckets within one below them are merged into it; else there is a clique for each variable.
    """
    position = {v: place for place, v in enumerate(order)}
    members = [{v, *separator} for v, separator in zip(order, separators, strict=True)]
    above = [min((position[u] for u in separator), default=None) for separator in separators]
    shared = [len(separator) for separator in separators]
    merged_into = list(range(len(order)))

    def survivor(bucket: int) -> int:
        while merged_into[bucket] != bucket:
            bucket = merged_into[bucket]
        return bucket

    for bucket in looked(range(len(order)) if merge else ()):
        own = survivor(bucket)
        parent = above[own]
        if parent is not None and merged_into[parent] == parent and shared[own] == len(members[parent]):
            merged_into[parent] = own
            above[own], shared[own] = above[parent], shared[parent]

    # A clique takes the position of the last of its merged buckets; else a child could follow its parent.
    place = {}
    for bucket in looked(range(len(order))):
        place[survivor(bucket)] = bucket
    kept = sorted(place, key=place.__getitem__)
    number = {bucket: i for i, bucket in enumerate(kept)}
    found = []
    for bucket in looked(kept):
        parent = above[bucket]
        found.append(
            Clique(
                tuple(sorted(members[bucket], key=position.__getitem__, reverse=True)),
                shared[bucket],
                None if parent is None else number[survivor(parent)],
            )
        )
    return tuple(found)
