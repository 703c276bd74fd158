"""Labels that are numbers: which one, whatever the spelling."""

from __future__ import annotations

import re
from decimal import Decimal

NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")

MOST_CHARACTERS = 64
"""Longest label that is read as a number, in characters."""


def number_of(label: str) -> Decimal | None:
    """The number that a label is, exactly; None where it is none."""
    return Decimal(label) if len(label) <= MOST_CHARACTERS and NUMBER.fullmatch(label) else None
