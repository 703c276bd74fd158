"""What a check of one case comes to: disagreements, refusals, and how far floats may be apart."""

from __future__ import annotations

import math
import sys
from collections import Counter
from fractions import Fraction
from typing import Any

Exact = int | Fraction


class DisagreementError(Exception):
    """The engine's answer is not the one that brute force gives.

    Attributes
    ----------
    expected, found : for people and the failure's file.
    """

    def __init__(self, what: str, expected: object, found: object) -> None:
        super().__init__(f"{what}: expected {_short(expected)}, found {_short(found)}")
        self.what, self.expected, self.found = what, _short(expected), _short(found)


class NotAvailableError(Exception):
    """A mode that this version of the program has nothing to test for."""


class Tally:
    """What one case counts: comparisons made, and refusals by the name of the error."""

    def __init__(self) -> None:
        self.checks = 0
        self.refusals: Counter[str] = Counter()

    def same(self, what: str, expected: object, found: object) -> None:
        """Count a comparison; :class:`DisagreementError` unless both are equal."""
        self.checks += 1
        if expected != found:
            raise DisagreementError(what, expected, found)

    def holds(self, what: str, is_so: bool, expected: object = "", found: object = "") -> None:
        """Count a comparison that was made by the caller."""
        self.checks += 1
        if not is_so:
            raise DisagreementError(what, expected, found)

    def near(self, what: str, expected: Exact | float, found: object, margin: Exact | float) -> None:
        """Count a comparison of a number with an exact one, ``margin`` apart at most."""
        self.checks += 1
        if not isinstance(found, int | float) or not is_near(expected, found, margin):
            raise DisagreementError(what, f"{shown(expected)} ± {shown(margin)}", found)

    def refused(self, error: BaseException, is_expected: bool) -> None:
        """Count a refusal; it is a disagreement where nothing about the case explains it."""
        self.checks += 1
        if not is_expected:
            raise DisagreementError(
                "an unexplained refusal", "an answer", f"{type(error).__name__}: {error}"
            ) from error
        self.refusals[type(error).__name__] += 1


def is_near(expected: Exact | float, found: float, margin: Exact | float) -> bool:
    """Whether two numbers are at most ``margin`` apart, exactly; infinity is what floats do not hold, too."""
    if isinstance(found, float) and not math.isfinite(found):
        if isinstance(expected, float):
            return expected == found
        return abs(expected) > Fraction(sys.float_info.max) and math.copysign(math.inf, expected) == found
    if isinstance(expected, float) and not math.isfinite(expected):
        return False
    return abs(Fraction(expected) - Fraction(found)) <= Fraction(margin)


def shown(number: Exact | float) -> str:
    """An exact number for people."""
    if isinstance(number, Fraction):
        try:
            return str(number) if number.denominator == 1 else repr(float(number))
        except OverflowError:
            return str(number)
    return repr(number)


def _short(thing: Any, most: int = 1500) -> str:
    text = shown(thing) if isinstance(thing, Fraction) else thing if isinstance(thing, str) else repr(thing)
    return text if len(text) <= most else f"{text[:most]}… ({len(text)} characters)"
