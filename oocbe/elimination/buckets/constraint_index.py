"""Find the constraints that a bucket must apply: those over its variables that no received message enforces."""

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
        """Constraints over the bucket's variables that no received message enforces.

        A constraint covered by a message's scope was applied when that message was computed. The result therefore
        contains the constraints that have, for every message, a variable outside its scope; in particular, one outside
        the largest scope. The problem's own tables come from no join and enforce only themselves.
        """
        members = members_of(bucket.separator) | 1 << bucket.variable
        scopes = [members_of(m.scope) for m in bucket.messages if m.is_filtered]
        fresh = members & ~max(scopes, key=int.bit_count, default=0)
        # If thousands of constraints share a variable, those of the bucket are found by their other variables.
        near = [self._of[v] for v in elements_of(fresh)]
        filed = [self._filed[v] for v in elements_of(members)]
        fewest = min(near, filed, key=lambda lists: sum(map(len, lists)))
        found: dict[int, PackedFactor] = {}
        for c in chain.from_iterable(fewest):
            if c.members & ~members == 0 and all(c.members & ~scope for scope in scopes):
                found[c.offset] = c
        return list(found.values())
