"""Numeric values of labels, independent of spelling."""

from __future__ import annotations

import re
from decimal import Decimal

NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")

MOST_CHARACTERS = 64
"""Longest label interpreted as a number, in characters."""


def number_of(label: str) -> Decimal | None:
    """The exact number of a label; None if it is not a number."""
    return Decimal(label) if len(label) <= MOST_CHARACTERS and NUMBER.fullmatch(label) else None
