"""Floating-point numbers allowed in tables: those for which the results of operators are defined.

NaN is refused: comparisons with it are false, so that minima would depend on the order of rows. An infinity is allowed
only as the semiring's zero: inf for minimised sums, -inf for maximised sums and for sums of exponentials. It denotes an
infeasible assignment, in a row as in a cell of a complete table, and sums with it remain infeasible. Added to the other
infinity it would give NaN, as would any infinity times the zero of products.

Complete tables have range checks besides, for each of their dtypes, and conversion between these.

Counts beyond 63 bits have several *limbs*, as multiple-precision integers (Knuth 1997, section 4.3.1): values are int64
(rows, limbs), C-contiguous: each row's limbs side by side, the bits of unsigned 64-bit numbers, the least significant
first. Only counting produces them, for messages whose counts exceed int64; their semiring is
:data:`oocbe.model.semiring.COUNTING`. All other tables have values (rows,).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import ModelError, ValueRangeError
from oocbe.kernels.interface import is_device_array
from oocbe.model.infeasible import feasible_mask, infeasible_value, largest_feasible
from oocbe.model.semiring import Combination, Marginalisation, Semiring

LIMB_BITS = 64
"""Bits of a limb, a machine word."""

MOST_LIMBS = 1 << 12
"""Maximum limbs of a number in a table on disk: 78,000 digits. More are taken for a damaged header."""


def limbs_for(bound: int) -> int:
    """Limbs for numbers from 0 to a bound; 0 if int64 suffices."""
    return 0 if bound < 1 << (LIMB_BITS - 1) else -(-bound.bit_length() // LIMB_BITS)


def limbs_of(values: NDArray[Any]) -> int:
    """Limbs of each of a table's values; 0 for plain numbers."""
    return int(values.shape[1]) if values.ndim == 2 else 0


def greatest(values: NDArray[Any]) -> int:
    """Greatest of counts, plain or of limbs, in main or device memory; 0 if there are none."""
    if len(values) == 0:
        return 0
    if values.ndim == 1:
        return int(values.max())
    if is_device_array(values):  # strided reductions of CuPy took half of the time of a large count
        from oocbe.kernels.cuda.pairs.extents import greatest_count

        return greatest_count(values)
    found = 0
    rows = values.view(np.uint64)
    for limb in reversed(range(rows.shape[1])):
        column = rows[:, limb]
        most = int(column.max())
        found = found << LIMB_BITS | most
        is_most = column == np.uint64(most)
        if not is_most.all():
            rows = rows[is_most]
    return found


def total(values: NDArray[Any]) -> int:
    """Sum of the counts of a few rows in main memory, plain or of limbs."""
    if values.ndim == 1:
        return sum(values.tolist())
    return sum(int.from_bytes(row.astype("<i8").tobytes(), "little") for row in values)


def of_integers(values: Sequence[int]) -> NDArray[Any]:
    """Values of a table, int64 (rows,) or (rows, limbs), from integers of at least 0."""
    limbs = limbs_for(max(values, default=0))
    if not limbs:
        return np.array(values, dtype=np.int64)
    data = b"".join(value.to_bytes(limbs * LIMB_BITS // 8, "little") for value in values)
    return np.frombuffer(data, dtype="<i8").astype(np.int64).reshape(len(values), limbs)


def trim_limbs(values: NDArray[Any]) -> NDArray[Any]:
    """Counts of limbs, reduced to the limbs of the greatest; plain int64 if that suffices."""
    limbs = limbs_for(greatest(values))
    if limbs == values.shape[1]:
        return values
    left: NDArray[Any] = values[:, :limbs] if limbs else values[:, 0]
    return left.copy()


VALUE_DTYPES = tuple(np.dtype(t) for t in (np.int32, np.int64, np.float32, np.float64))
"""Dtypes of tables' values."""


EXTREMES_ROWS = 1 << 18
"""Values of a part of an array whose extremes are searched by one thread."""


def check_numbers(what: str, values: Any, semiring: Semiring) -> None:
    """Refuse values that a table of a semiring cannot represent.

    what : names the table in the message. values : of any shape and dtype, in main or device memory.
    Raises ModelError: NaN, or an infinity that is not the semiring's zero.
    """
    found = strange_number(values, semiring)
    if found is None:
        return
    if math.isnan(found):
        raise ModelError(f"{what}: a value is NaN, which no operator can compare or add up; leave such rows out")
    instead = "leave the row out" if math.isinf(semiring.zero) else "give a finite number, or leave the row out"
    raise ModelError(
        f"{what}: a value is {found}, which {semiring} tables cannot hold (an infeasible assignment is worth "
        f"{semiring.zero} there); {instead}"
    )


def strange_number(values: Any, semiring: Semiring) -> float | None:
    """NaN, or an infinity that a table of the semiring cannot represent, if among the values; otherwise None."""
    if values.dtype.kind != "f" or not values.size:
        return None
    return next((e for e in extremes(values) if math.isnan(e) or (math.isinf(e) and e != semiring.zero)), None)


def extremes(values: Any) -> tuple[float, float]:
    """Least and greatest of at least one value, in main or device memory; both are NaN if any value is."""
    if not isinstance(values, np.ndarray) or not values.flags.c_contiguous or values.size <= EXTREMES_ROWS:
        return float(values.min()), float(values.max())
    from oocbe.kernels.cpu.threads import row_ranges, run_all

    flat = values.reshape(-1)
    # In parts that stay in a core's cache between the two passes.
    ranges = row_ranges(len(flat), EXTREMES_ROWS)
    found = np.array(run_all(lambda low, high: (flat[low:high].min(), flat[low:high].max()), ranges))
    return float(found[:, 0].min()), float(found[:, 1].max())


def dtype_of_rows(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Dtype of a complete table's values as rows, or on disk: int32 for int16, which neither supports."""
    return np.dtype(np.int32) if dtype == np.int16 else dtype


def converted(
    values: NDArray[Any], dtype: np.dtype[Any], semiring: Semiring, what: str, may_round: bool = False
) -> NDArray[Any]:
    """Values of a complete table in another dtype, with its infeasible value; the input itself if it has the dtype.

    what : names the table in errors. may_round : whether large integers may become the nearest floats, as for sums and
    products that are floats anyway.

    Raises ValueRangeError: the dtype cannot represent every feasible value.
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

    Raises ValueRangeError: an integer beyond the dtype, or indistinguishable from infeasible values; or a number that
    the dtype would change, such as a fraction among integers; ModelError: a negative value in max-product, where 0 is
    infeasible and would be preferred to it; a number that tables cannot represent (:mod:`oocbe.tables.numbers`).
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
    limit = largest_feasible(dtype) if semiring.combination is Combination.ADD else int(np.iinfo(dtype).max)
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
