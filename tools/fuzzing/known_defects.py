"""What the fuzz does not generate because it is known to fail: the one list to empty when the defects are mended.

An entry keeps a part of the input space out of every mode. Delete an entry (or all of them) once its defect is mended;
``tools/fuzz.py --known-defects`` generates them all without an edit.
"""

from __future__ import annotations

KNOWN_DEFECTS: dict[str, str] = {
    "huge-linear-coefficients": "sums of coefficients near 2^63 wrap",
    "arity-beyond-64": "arrays with an axis a variable are made of functions over more than 64 variables",
    "integer-min-marginals": "min-marginals of integers pass through float64 and lose digits beyond 2^53",
    "tiny-products": "products of tiny floats underflow, in runs, operators and bounds",
    "spot-capacity": "a recorder capacity other than the published one is ignored in a .spot file",
    "time-limit": "some loops do not look at the deadline",
}
"""Name of what is not generated, and why."""

_generated = False


def generate_known_defects() -> None:
    """Generate everything from here on, in this process."""
    global _generated
    _generated = True


def avoids(name: str) -> bool:
    """Whether inputs that show a defect are left out."""
    return not _generated and name in KNOWN_DEFECTS
