"""The exact number of feasible assignments if rows carry their consumption of linear constraints.

Sums over such rows use numbers of one word. So the forward pass runs several times over the same rows:

1. In float64, with exact scaling. All terms are positive, so the relative error is at most the number of roundings on
   a path times 2^-53, which gives an interval for the count. If it has one integer, that is the count.
2. In 64-bit integers that wrap around: the count modulo 2^64, whatever its size.
3. Modulo primes, until 2^64 times the primes exceed the interval's width. Primes are small enough that a bucket's
   products of residues, summed over its variable, fit 63 bits; if a bucket has received many messages, some of them
   are joined, and reduced to residues, before.

A row also sums over all ways to share its consumption among the messages of its bucket: at most as many as amounts that
fit the capacities, for each message but one.

The Chinese remainder theorem then gives the only integer in the interval. (Knuth 1997, section 4.3.2.)
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from oocbe.algebra.operators import join_sum
from oocbe.api.tasks.tables import Tables, compute_tables
from oocbe.elimination.buckets.bucket_message import MessageMaker
from oocbe.elimination.buckets.buckets import Bucket
from oocbe.elimination.buckets.forward import Forward
from oocbe.elimination.buckets.message import Message
from oocbe.elimination.buckets.messages import MessageStore
from oocbe.elimination.buckets.piecewise import unchanged
from oocbe.elimination.preparation.prepare import Prepared, prepare
from oocbe.errors import CorruptDataError, FloatRangeError, LimitError
from oocbe.model.problem import Problem
from oocbe.model.semiring import COUNTING
from oocbe.model.settings.options import SolveOptions
from oocbe.runtime.deadline import check_deadline
from oocbe.tables.layout import Layout
from oocbe.tables.residence import to_host
from oocbe.tables.table import Table

if TYPE_CHECKING:
    from oocbe.elimination.observer import Observer

WRAP_BITS = 64
"""Bits of a machine word. Counts modulo 2^64 need no reduction, because integer arithmetic wraps around."""

SMALLEST_FACTOR = 2.0**-900
"""Lower bound of the products of a bucket's smallest entries. Below the range of float64, rounding errors would no
longer be relative."""

MOST_FACTORS = 2
"""Maximum number of a bucket's messages that are multiplied at once, so that products of residues, summed over all ways
to share a row's consumption, fit 63 bits."""


@dataclass(frozen=True)
class ResidueCount:
    """The result of all passes.

    Attributes
    ----------
    value : the count. tables : of the pass in float64, closed. residues : number of later passes.
    """

    value: int
    tables: Tables
    residues: int


def count_by_residues(bare: Problem, options: SolveOptions, observer: Observer | None = None) -> ResidueCount:
    """The number of feasible assignments of a problem in which each has value 1, as floating-point products.

    Raises
    ------
    UnsupportedError : see :func:`oocbe.api.tasks.tables.compute_tables`.
    LimitError : counts of one message differ by more than the range of float64.
    CorruptDataError : the passes contradict each other.
    """
    try:
        tables = compute_tables(bare, options, observer, carries=True)
    except FloatRangeError as error:
        raise LimitError(f"{error}; these products are counts, which task logz gives the logarithm of") from None
    with tables:
        if tables.outcome.value is None:
            return ResidueCount(0, tables, 0)
        low, high = _interval(tables)
        factors = max((len(b.messages) for b in tables.outcome.buckets), default=1)
        # Release the memory for the messages of the passes in integers.
        tables.store.close()
        for bucket in tables.outcome.buckets:
            bucket.messages.clear()
            bucket.sent = None
        residues: list[tuple[int, int]] = []
        modulus = 1
        begin = time.perf_counter()
        amounts = _amounts(tables.prepared)
        factors = min(max(1, factors), MOST_FACTORS)
        for m in _moduli(factors, max(bare.sizes, default=1) * amounts ** (factors - 1)):
            if high - low < modulus:
                break
            residues.append((_residue(bare, tables, options, m), m))
            modulus *= m
        tables.seconds["residues"] = time.perf_counter() - begin
    value = low + (_combined(residues) - low) % modulus
    if value > high:
        raise CorruptDataError(
            f"{bare.name}: no number in the interval where the pass in float64 puts the count has the residues of "
            "the passes in integers; a message has changed since it was made"
        )
    return ResidueCount(value, tables, len(residues))


def _interval(tables: Tables) -> tuple[int, int]:
    """The interval of the count from the float64 pass."""
    prepared, outcome = tables.prepared, tables.outcome
    assert outcome.value is not None
    roundings = 0
    amounts = _amounts(prepared)
    for bucket in outcome.buckets:
        size = prepared.problem.sizes[bucket.variable]
        roundings += len(bucket.messages) + size + 2
        roundings += (len(bucket.messages) + size) * amounts
        least = math.prod(_least(bucket)) if bucket.messages else 1.0
        if least < SMALLEST_FACTOR:
            raise LimitError(
                f"{prepared.problem.name}, bucket of {prepared.problem.variables[bucket.variable].name}: counts of its "
                "rows differ by more than float64 can hold side by side"
            )
    error = Fraction(2 * roundings, 1 << 53)
    estimate = Fraction(outcome.value) * Fraction(2) ** outcome.exponent
    return max(0, math.ceil(estimate * (1 - error))), math.floor(estimate * (1 + error))


def _amounts(prepared: Prepared) -> int:
    """Number of amounts that a row can consume."""
    assert prepared.consumption is not None
    return math.prod(limit + 1 for limit in prepared.consumption.limits)


def _least(bucket: Bucket) -> list[float]:
    return [min((float(v.min(initial=1)) for v in m.value_pieces()), default=1.0) for m in bucket.messages]


def _moduli(factors: int, terms: int) -> Iterator[int]:
    """2^64, then primes downwards from the largest whose residues' products fit; see the module.

    Parameters
    ----------
    factors : maximum messages of a bucket. terms : products that are summed before reduction to residues.
    """
    yield 1 << WRAP_BITS
    candidate = int(((2.0**63 - 1) / terms) ** (1 / factors))
    while candidate**factors * terms >= 1 << 63:
        candidate -= 1
    while candidate > 2:
        if _is_prime(candidate):
            yield candidate
        candidate -= 1
    raise LimitError(f"a bucket joins {factors} messages: too many for residues of their products to fit 64 bits")


def _is_prime(number: int) -> bool:
    """Whether a number between 3 and 2^64 is prime (Miller and Rabin, with the bases of Sorenson and Webster 2015)."""
    if number % 2 == 0:
        return False
    power = ((number - 1) & (1 - number)).bit_length() - 1
    odd = (number - 1) >> power
    for base in (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37):
        if base % number == 0:
            continue
        x = pow(base, odd, number)
        if x in (1, number - 1):
            continue
        if all((x := x * x % number) != number - 1 for _ in range(power - 1)):
            return False
    return True


class _ModularMaker(MessageMaker):
    """Messages of counting modulo 2^64 (wrapping around) or a prime."""

    modulus = 1 << WRAP_BITS

    def check_range(self, bucket: Bucket) -> None:
        """No check: wrapping around is intended, and residues of a small prime cannot overflow."""

    def factors(self, bucket: Bucket) -> Bucket:
        """The bucket with some messages joined and reduced, so that products of residues fit."""
        if self.modulus == 1 << WRAP_BITS:
            return bucket
        factors = replace(bucket, messages=list(bucket.messages))
        while len(factors.messages) > MOST_FACTORS:
            factors.messages.sort(key=lambda m: -m.rows)
            factors.messages.append(self._joined(factors.messages.pop(), factors.messages.pop()))
        return factors

    def finishing(self) -> Callable[[Table], Table]:
        """A function that reduces counts to residues."""
        return unchanged if self.modulus == 1 << WRAP_BITS else partial(_residues, modulus=self.modulus)

    def _joined(self, one: Message, other: Message) -> Message:
        """The product of two messages; rows with the same total consumption are summed.

        Constraints covered only by both together are not applied yet.
        """
        prepared = self._prepared
        assert prepared.consumption is not None
        scope = tuple(sorted({*one.scope, *other.scope}, key=prepared.position.__getitem__))
        layout = prepared.layout(scope)
        own, *names = layout.scope
        first, second = (to_host(m.table()) for m in (one, other))
        theirs = own
        while theirs in first.layout or theirs in second.layout:
            theirs += "'"
        apart = replace(second, layout=Layout((theirs, *second.layout.scope[1:]), second.layout.sizes))
        check_deadline()
        product = self.finishing()(join_sum(first, apart, backend="cpu"))
        check_deadline()
        columns = product.layout.unpack(product.keys)
        amounts = columns[:, product.layout.place(own)] + columns[:, product.layout.place(theirs)]
        keep = prepared.consumption.fits(amounts)
        places = [product.layout.place(name) for name in names]
        check_deadline()
        keys = layout.pack(np.column_stack([amounts[keep], columns[keep][:, places]]))
        check_deadline()
        rows = np.lexsort(keys)
        keys, values = np.ascontiguousarray(keys[:, rows]), product.values[keep][rows]
        starts = np.flatnonzero(np.concatenate([[True], (keys[:, 1:] != keys[:, :-1]).any(axis=0)])[: len(rows)])
        summed = np.add.reduceat(values, starts) if len(rows) else values
        table = self.finishing()(Table(layout, np.ascontiguousarray(keys[:, starts]), summed, product.semiring, True))
        return Message(scope, table.rows, table.nbytes, is_filtered=False, _table=table)


def _residues(table: Table, modulus: int) -> Table:
    """Values modulo a number."""
    table = to_host(table)
    values: NDArray[Any] = table.values % modulus
    return Table(table.layout, table.keys, values, table.semiring, table.is_sorted)


def _modular(number: int) -> type[Forward]:
    """The forward pass of counting modulo a number."""

    class ModulusMaker(_ModularMaker):
        modulus = number

    class Modular(Forward):
        maker = ModulusMaker

    return Modular


def _residue(bare: Problem, tables: Tables, options: SolveOptions, modulus: int) -> int:
    """The count modulo a number, with the order of the first pass."""
    prepared = prepare(bare, COUNTING, tables.choice.order)
    where = (tables.store.memory_limit, options.workdir, options.chunk_rows)
    with MessageStore(*where, max_disk=options.max_disk) as store:
        outcome = _modular(modulus)(prepared, False, store, engine=tables.engine).run()
    assert isinstance(outcome.value, int)
    return outcome.value % modulus


def _combined(residues: list[tuple[int, int]]) -> int:
    """The number with given residues, modulo the product of the moduli (Chinese remainder theorem)."""
    value, modulus = 0, 1
    for residue, m in residues:
        value += modulus * ((residue - value) * pow(modulus, -1, m) % m)
        modulus *= m
    return value
