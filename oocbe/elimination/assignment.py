"""The backward pass: an optimal assignment from the kept messages (Dechter 1999).

Buckets are visited against the elimination order. When a bucket's turn comes its separator is assigned already, so each
value of its variable is judged by one row of every message the bucket received and one entry of every function.
"""

from __future__ import annotations

from oocbe.elimination.buckets import Bucket, reading
from oocbe.elimination.prepare import Prepared
from oocbe.errors import CorruptDataError
from oocbe.operators.factors import FactorPool, PackedFactor
from oocbe.semiring import Combination
from oocbe.tables.layout import bits_for
from oocbe.tracing.recorder import ELIMINATION, spanning


@spanning(ELIMINATION, "backward pass")
def backward_pass(prepared: Prepared, buckets: list[Bucket]) -> tuple[int, ...]:
    """An optimal assignment, one value index a variable, in the problem's order.

    Parameters
    ----------
    buckets : of a finished forward pass of a semiring that selects, in elimination order.

    Raises
    ------
    CorruptDataError : a message that was read back lacks the row that the forward pass was based on.
    """
    chosen: dict[int, int] = {}
    for bucket in reversed(buckets):
        best: tuple[float, int] | None = None
        for value in range(prepared.problem.sizes[bucket.variable]):
            chosen[bucket.variable] = value
            with reading(prepared, bucket):
                total = value_of(prepared, bucket, chosen)
            if total is not None and (best is None or prepared.semiring.is_better(total, best[0])):
                best = (total, value)
        if best is None:
            name = prepared.problem.variables[bucket.variable].name
            raise CorruptDataError(
                f"{prepared.problem.name}, bucket of {name}: no value extends the assignment; a message has changed "
                "since it was made"
            )
        chosen[bucket.variable] = best[1]
    return tuple(chosen[v] for v in range(len(prepared.problem.variables)))


def value_of(prepared: Prepared, bucket: Bucket, chosen: dict[int, int]) -> int | float | None:
    """Combined value of a bucket under an assignment of its variables; None where it is infeasible.

    In products it lacks the powers of two that functions and messages were divided by, the same for all values.
    """
    sizes = prepared.problem.sizes
    for c in bucket.constraints:
        if not _entry(prepared.constraints, c, sizes, chosen):
            return None
    adds = prepared.semiring.combination is Combination.ADD
    total: int | float = prepared.semiring.one
    for f in bucket.functions:
        entry = _entry(prepared.functions, f, sizes, chosen)
        total = total + entry if adds else total * entry
    for message in bucket.messages:
        value = message.value_at(chosen)
        if value is None:
            return None
        total = total + value if adds else total * value
    return total


def _entry(pool: FactorPool, factor: PackedFactor, sizes: tuple[int, ...], chosen: dict[int, int]) -> int | float:
    index = shift = 0
    for v in factor.scope:
        index |= chosen[v] << shift
        shift += bits_for(sizes[v])
    entry: int | float = pool.entries[factor.offset + index].item()
    return entry
