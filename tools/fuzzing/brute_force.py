"""Brute force: every assignment of a described problem, valued in exact integers and fractions.

Nothing here imports the engine. A description is the JSON object of ``descriptions.py``.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cached_property
from typing import Any

from .outcome import Exact

ADDS = {"min-sum": True, "max-sum": True, "log-sum-exp": True}
"""Semirings whose combination is a sum; the others multiply."""

BEST = {"min-sum": min, "max-sum": max, "max-product": max}
"""Semirings that select, and what is best there."""


LEAST_FLOAT = Fraction(1, 2**1074)
"""What is smaller is 0 in float64."""


def exact(number: float) -> Exact:
    """The very number that an integer or float is."""
    return number if isinstance(number, int) else Fraction(number)


def plain(number: Exact) -> Exact:
    """An integer where a fraction is one, so that comparisons are quick."""
    return number.numerator if isinstance(number, Fraction) and number.denominator == 1 else number


@dataclass(frozen=True)
class Truth:
    """Everything about a problem, from all its assignments.

    Attributes
    ----------
    semiring : name of the one that values are read in.
    rows : each feasible assignment and its exact value, in lexicographic order.
    magnitude : for sums, no partial sum of absolute values exceeds it; for products, the largest absolute value.
    terms : functions, and the constant.
    integral : whether everything is an integer.
    negative : whether any value is negative.
    sizes : of the domains.
    nearest : how near to the problem's upper bound a value comes, of what is at or above it as well; None without one.
    """

    semiring: str
    rows: list[tuple[tuple[int, ...], Exact]]
    magnitude: Exact
    terms: int
    integral: bool
    negative: bool
    sizes: tuple[int, ...]
    nearest: Exact | None = None

    @property
    def adds(self) -> bool:
        """Whether values are added."""
        return self.semiring in ADDS

    @property
    def selects(self) -> bool:
        """Whether there is an optimum."""
        return self.semiring in BEST

    @cached_property
    def values(self) -> list[Exact]:
        """Values of all feasible assignments."""
        return [value for _, value in self.rows]

    @cached_property
    def value_of(self) -> dict[tuple[int, ...], Exact]:
        """Value of each feasible assignment."""
        return dict(self.rows)

    @property
    def best(self) -> Exact | None:
        """The optimum; None where nothing is feasible."""
        return BEST[self.semiring](self.values, default=None)

    @property
    def ordered(self) -> list[Exact]:
        """All values, best first."""
        return sorted(self.values, reverse=self.semiring != "min-sum")

    @property
    def total(self) -> Exact:
        """Sum of all values."""
        return plain(sum(self.values, 0))

    @property
    def absolute_total(self) -> Exact:
        """Sum of all absolute values: what rounding of the sum is measured by."""
        return plain(sum(map(abs, self.values), 0))

    def margin(self, value: Exact | float = 0) -> Exact:
        """How far a float answer may be from an exact value: 0 for integers."""
        if self.integral and self.semiring != "log-sum-exp":
            return 0
        if self.adds:
            return Fraction(self.magnitude) * Fraction(self.terms + 2, 2**50)
        # Below the smallest normal number, an exponential may miss the nearest step by some.
        return abs(Fraction(value)) / 10**9 + 4 * LEAST_FLOAT

    def below(self, bound: float | None) -> Truth:
        """What is left of it strictly below a bound."""
        if bound is None:
            return self
        limit = exact(bound)
        return replace(self, rows=[row for row in self.rows if row[1] < limit])

    def clearly_below(self, bound: float) -> list[Exact]:
        """Values that are below a bound whatever rounding does."""
        margin = self.margin() * 4
        return [value for value in self.values if value < exact(bound) - margin]

    def is_doubtful(self, bound: float | None = None) -> bool:
        """Whether rounding can bring some value to the other side of the problem's bound, or of another one."""
        if self.integral:
            return False
        margin = self.margin() * 4
        if self.nearest is not None and self.nearest <= margin:
            return True
        return bound is not None and any(abs(value - exact(bound)) <= margin for value in self.values)

    def log_sum(self, factor: float = 1.0) -> float:
        """Logarithm of the sum of exp(factor · value) over feasible assignments; -inf of none."""
        if not self.rows:
            return -math.inf
        exponents = [float(value) * factor for value in self.values]
        top = max(exponents)
        return top + math.log(math.fsum(math.exp(e - top) for e in exponents))


def logarithm(number: Exact) -> float:
    """Natural logarithm of a positive exact number of any size."""
    fraction = Fraction(number)
    return _log(fraction.numerator) - _log(fraction.denominator)


def precise_logarithm(number: Exact) -> Fraction:
    """Natural logarithm of a positive exact number, to some 50 digits: to tell which side of it a float is."""
    fraction = Fraction(number)
    with localcontext() as context:
        context.prec = 60
        return Fraction(Decimal(fraction.numerator).ln() - Decimal(fraction.denominator).ln())


def _log(number: int) -> float:
    shift = max(0, number.bit_length() - 1000)
    return math.log(number >> shift) + shift * math.log(2)


def truth_of(description: dict[str, Any], semiring: str | None = None) -> Truth:
    """Value every assignment; ``semiring`` as the option of that name, None: the problem's own."""
    own = description["semiring"]
    chosen = semiring or own
    adds = chosen in ADDS
    neutral = 0 if adds else 1
    constant = description.get("constant")
    own_neutral = 0 if own in ADDS else 1
    own_start = exact(own_neutral if constant is None else constant)
    if constant is None or (chosen != own and constant == own_neutral):
        constant = neutral
    start = exact(constant)
    upper = description.get("upper_bound")
    limit = None if upper is None else exact(upper)
    lower = description.get("lower_bound")  # of values to maximise, which no semiring reads otherwise
    functions = [_lookup(f) for f in description["functions"]]
    constraints = [
        (tuple(c["scope"]), {tuple(t) for t in c["tuples"]}, c["allowed"]) for c in description["constraints"]
    ]
    linear = [(tuple(c["scope"]), c["coefficients"], c["capacity"]) for c in description["linear"]]
    rows: list[tuple[tuple[int, ...], Exact]] = []
    nearest: Exact | None = None
    for assignment in itertools.product(*map(range, description["sizes"])):
        if not _permitted(assignment, constraints, linear):
            continue
        value = _value(assignment, functions, start, adds)
        if value is None:
            continue
        if lower is not None and value <= exact(lower):
            continue
        if limit is not None:
            # An upper bound is one of what the values mean by themselves, whatever they are read as.
            own_value = value if adds == (own in ADDS) else _value(assignment, functions, own_start, own in ADDS)
            assert own_value is not None
            nearest = abs(own_value - limit) if nearest is None else min(nearest, abs(own_value - limit))
            if own_value >= limit:
                continue
        if not adds and chosen != "counting" and value == 0:
            continue
        rows.append((assignment, value))
    every = [exact(v) for f in description["functions"] for v in _numbers(f)]
    largest: Exact = 0
    if adds:
        largest = abs(start) + sum(
            max((abs(exact(v)) for v in _numbers(f)), default=0) for f in description["functions"]
        )
    else:
        largest = abs(start)
        for f in description["functions"]:
            largest *= max(1, *(abs(exact(v)) for v in _numbers(f)), 1)
    return Truth(
        semiring=chosen,
        rows=rows,
        magnitude=largest,
        terms=len(functions) + 1,
        integral=isinstance(constant, int)
        and all(isinstance(v, int) for f in description["functions"] for v in _numbers(f)),
        negative=start < 0 or any(v < 0 for v in every),
        sizes=tuple(description["sizes"]),
        nearest=nearest,
    )


def _numbers(f: dict[str, Any]) -> list[float]:
    return f["values"] if f["default"] is None else [*f["values"], f["default"]]


_Lookup = tuple[tuple[int, ...], dict[tuple[int, ...], Exact], Exact | None]


def _lookup(f: dict[str, Any]) -> _Lookup:
    listed = {tuple(t): exact(v) for t, v in zip(f["tuples"], f["values"], strict=True)}
    return tuple(f["scope"]), listed, None if f["default"] is None else exact(f["default"])


def _permitted(assignment: Sequence[int], constraints: list[Any], linear: list[Any]) -> bool:
    for scope, tuples, allowed in constraints:
        if (tuple(assignment[v] for v in scope) in tuples) != allowed:
            return False
    for scope, coefficients, capacity in linear:
        if sum(row[assignment[v]] for v, row in zip(scope, coefficients, strict=True)) > capacity:
            return False
    return True


def _value(assignment: Sequence[int], functions: list[_Lookup], start: Exact, adds: bool) -> Exact | None:
    total = start
    for scope, listed, default in functions:
        here = listed.get(tuple(assignment[v] for v in scope), default)
        if here is None:
            return None
        total = total + here if adds else total * here
    return total
