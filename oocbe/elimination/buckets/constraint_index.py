"""Find the constraints that a bucket has to apply: those over its variables that no message enforces already."""

from __future__ import annotations

from itertools import chain

from oocbe.elimination.buckets.buckets import Bucket, elements_of, members_of
from oocbe.elimination.engine.factors import FactorPool, PackedFactor


class ConstraintIndex:
    """A problem's constraints by their variables.

    Parameters
    ----------
    constraints : packed. variables : how many the problem has.
    """

    def __init__(self, constraints: FactorPool, variables: int) -> None:
        self._of: list[list[PackedFactor]] = [[] for _ in range(variables)]
        for c in constraints.factors:
            for v in c.scope:
                self._of[v].append(c)
        self._filed: list[list[PackedFactor]] = [[] for _ in range(variables)]
        for c in constraints.factors:
            self._filed[min(c.scope, key=lambda v: len(self._of[v]))].append(c)

    def covered_by(self, bucket: Bucket) -> list[PackedFactor]:
        """Constraints over the bucket's variables that no message enforces already.

        A constraint covered by a message's scope was applied when that message was made. So only those count that
        mention, for every message, a variable that the message lacks; any of them mentions one that the largest lacks.
        The problem's own tables have been through no join and enforce nothing but themselves.
        """
        members = members_of(bucket.separator) | 1 << bucket.variable
        scopes = [members_of(m.scope) for m in bucket.messages if m.is_filtered]
        fresh = members & ~max(scopes, key=int.bit_count, default=0)
        # Of a variable that thousands of constraints mention, those that lie in the bucket are found by their others.
        near = [self._of[v] for v in elements_of(fresh)]
        filed = [self._filed[v] for v in elements_of(members)]
        fewest = min(near, filed, key=lambda lists: sum(map(len, lists)))
        found: dict[int, PackedFactor] = {}
        for c in chain.from_iterable(fewest):
            if c.members & ~members == 0 and all(c.members & ~scope for scope in scopes):
                found[c.offset] = c
        return list(found.values())
