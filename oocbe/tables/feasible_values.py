"""Range checks for the values of complete tables, and conversion between their dtypes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import ModelError, ValueRangeError
from oocbe.model.infeasible import feasible_mask, infeasible_value, largest_feasible
from oocbe.model.semiring import Combination, Marginalisation, Semiring
from oocbe.tables.numbers import check_numbers


def dtype_of_rows(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Dtype of a complete table's values as rows, or on disk: int32 for int16, which neither supports."""
    return np.dtype(np.int32) if dtype == np.int16 else dtype


def converted(
    values: NDArray[Any], dtype: np.dtype[Any], semiring: Semiring, what: str, may_round: bool = False
) -> NDArray[Any]:
    """Values of a complete table in another dtype, with its infeasible value; the input itself if it has the dtype.

    what : names the table in errors. may_round : whether large integers may become the nearest floats, as for sums and
    products that are floats anyway.

    Raises
    ------
    ValueRangeError : the dtype cannot represent every feasible value.
    """
    if values.dtype == dtype:
        return values
    feasible = feasible_mask(values, semiring.combination, semiring.marginalisation)
    if dtype.kind == "i":
        check_feasible(what, values[feasible], semiring, dtype)
    elif not may_round:
        _refuse_changes(what, values[feasible], semiring, dtype)
    with np.errstate(invalid="ignore"):  # an infeasible infinity has no integer value
        made = values.astype(dtype)
    made[~feasible] = infeasible_value(dtype, semiring.combination, semiring.marginalisation)
    return made


def check_feasible(what: str, values: NDArray[Any], semiring: Semiring, dtype: np.dtype[Any] | None = None) -> None:
    """Refuse feasible values that a complete table of a dtype (None: theirs) cannot represent.

    Raises
    ------
    ValueRangeError : an integer beyond the dtype, or indistinguishable from infeasible values; or a number that the
        dtype would change, such as a fraction among integers.
    ModelError : a negative value in max-product, where 0 is infeasible and would be preferred to it; a number that
        tables cannot represent (:mod:`oocbe.tables.numbers`).
    """
    kind = values.dtype if dtype is None else dtype
    if not len(values):
        return
    check_numbers(what, values, semiring)
    compares_products = semiring.combination is Combination.MULTIPLY and semiring.marginalisation is Marginalisation.MAX
    if compares_products and values.min() < 0:
        raise ModelError(f"{what}: max-product compares values that are not negative, such as probabilities")
    _refuse_changes(what, values, semiring, kind)
    if not holds(kind, values, semiring):
        raise ValueRangeError(
            f"{what}: values from {values.min()} to {values.max()} do not fit {kind.name}, which needs room beside "
            "them for what is infeasible; use a wider dtype"
        )


def holds(dtype: np.dtype[Any], values: NDArray[Any], semiring: Semiring) -> bool:
    """Whether feasible values fit a dtype of a complete table."""
    if dtype.kind == "f" or not len(values):
        return True
    limit = int(np.iinfo(dtype).max)
    if semiring.combination is Combination.ADD:
        limit = largest_feasible(dtype)
    return -limit <= int(values.min()) and int(values.max()) <= limit


def _refuse_changes(what: str, values: NDArray[Any], semiring: Semiring, dtype: np.dtype[Any]) -> None:
    """Refuse values that a dtype changes by more than rounding between floats (ValueRangeError)."""
    changed = _changed(values, semiring, dtype)
    if changed is not None and changed.any():
        raise ValueRangeError(f"{what}: {dtype.name} does not hold {values[changed][0]}; use another dtype")


def _changed(values: NDArray[Any], semiring: Semiring, dtype: np.dtype[Any]) -> NDArray[np.bool_] | None:
    """Mask of the values that a dtype changes; None if there are evidently none."""
    changed: NDArray[np.bool_]
    if values.dtype == dtype or values.dtype.kind == dtype.kind == "i" or not len(values):
        return None  # integers out of range are found by holds()
    if dtype.kind == "i":
        changed = ~np.isfinite(values) | (values != np.rint(values))
        return changed
    if values.dtype.kind == "i":
        largest = 1 << (np.finfo(dtype).nmant + 1)
        if -largest <= int(values.min()) and int(values.max()) <= largest:
            return None
        made = values.astype(dtype).astype(np.float64)  # 2^63 has no int64 to compare with
        changed = made >= 2.0**63
        changed[~changed] = made[~changed].astype(np.int64) != values[~changed]
        return changed
    if dtype.itemsize > values.dtype.itemsize:
        return None
    with np.errstate(over="ignore", under="ignore"):
        made = values.astype(dtype)
    # Rounding between floats is accepted unless it yields the infeasible value.
    changed = np.isfinite(values) & ~np.isfinite(made)
    if semiring.combination is Combination.MULTIPLY:
        changed |= (values != 0) & (made == 0)
    return changed
