"""Validation and conversion of a caller's numbers, tuples and scopes.

Conversion keeps values. A number beyond int64 or float64, a tuple of non-integers, and a NaN raise an error that names
the part; they are never wrapped, truncated or treated as infeasible.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from oocbe.errors import ModelError, ValueRangeError
from oocbe.model.row_numbers import distinct_rows
from oocbe.runtime.deadline import check_deadline

Values = NDArray[np.int64] | NDArray[np.float64]
Item = TypeVar("Item")

INT64 = np.iinfo(np.int64)
"""Limits of int64."""

FEW_ROWS = 1024
"""Row count below which parts are checked together: a SPOT5 problem has thousands of constraints of one to three rows,
and a few NumPy calls for each would take longer than reading the file. Larger parts are not worth copying."""


class Listed(Protocol):
    """A part of a problem with a list of tuples."""

    @property
    def scope(self) -> tuple[int, ...]:
        """Variable indices."""

    @property
    def tuples(self) -> NDArray[np.int64]:
        """Value indices, int64 (tuples, variables of the scope)."""


def as_integer(what: str, value: object) -> int:
    """A Python integer from any integer type, including NumPy's."""
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise ModelError(f"{what} must be an integer, not {value!r}") from None


def as_tuple(what: str, given: Iterable[Item]) -> tuple[Item, ...]:
    """A list, or another iterable, as a tuple."""
    if not isinstance(given, Iterable):
        raise ModelError(f"{what} must be a list, not {given!r:.100}")
    return tuple(given)


def as_scope(scope: Iterable[int]) -> tuple[int, ...]:
    """Variable indices as Python integers: NumPy's would wrap around in bit sets."""
    return tuple(
        v if type(v) is int else as_integer("a variable of a scope, as its position in the problem,", v)
        for v in as_tuple("a scope", scope)
    )


def as_number(what: str, value: object) -> int | float:
    """A Python integer or finite float from any real number type, including NumPy's scalars."""
    if isinstance(value, np.generic | np.ndarray) and value.ndim == 0:
        value = float(value) if value.dtype.kind == "f" else value.item()
    if isinstance(value, int):
        return int(value)
    if not isinstance(value, float):
        raise ModelError(f"{what} must be a number, not {value!r}")
    if not math.isfinite(value):
        raise ModelError(f"{what} must be finite, not {value}")
    return float(value)


def as_default(what: str, value: object) -> int | float | None:
    """Value of unlisted assignments: None, a finite float, or an integer within int64."""
    number = None if value is None else as_number(what, value)
    if isinstance(number, int) and not INT64.min <= number <= INT64.max:
        raise ValueRangeError(f"{what} is {number}, beyond 64-bit integers; scale the values down")
    return number


def as_array(what: str, values: object) -> NDArray[Any]:
    """An array; ModelError for lists of different lengths, and for masked entries: hidden values would be used."""
    if isinstance(values, np.ndarray) and type(values) is not np.ndarray and np.ma.is_masked(values):
        raise ModelError(f"{what}: some are masked; fill them, or leave them out")
    try:
        return np.asarray(values)
    except ValueError as error:
        raise ModelError(f"{what}: rows of different lengths ({error})") from None


def as_values(what: str, values: ArrayLike) -> Values:
    """An array of int64 or float64 with exactly the given numbers (floats up to 64 bits, infinite ones too)."""
    if type(values) is np.ndarray and values.dtype in (np.int64, np.float64):
        return values
    array = as_array(what, values)
    if isinstance(values, np.ndarray):
        listed = array.dtype.kind == "O"
    elif array.size == 0:
        return np.zeros(array.shape, dtype=np.int64)  # an empty list has no type
    else:
        # NumPy converts lists of integers, some beyond int64, to floats or objects.
        listed = array.dtype.kind == "O" or (array.dtype.kind == "f" and bool((np.abs(array) >= 2.0**63).any()))
    if listed:
        objects = np.asarray(values, dtype=object)
        if all(isinstance(v, int | np.integer) for v in objects.ravel()):
            array = objects
    if array.dtype.kind == "f":
        return array.astype(np.float64, copy=False)
    if array.dtype.kind not in "iubO":
        raise ModelError(f"{what} must be numbers, not {array.dtype}")
    return as_integers(what, array)


def as_integers(what: str, values: ArrayLike) -> NDArray[np.int64]:
    """An array of int64 with exactly the given integers; an empty one may have any type."""
    if type(values) is np.ndarray and values.dtype == np.int64:
        return values  # at once: problems have ten thousands of parts
    array = as_array(what, values)
    if array.size == 0:
        return array.astype(np.int64)
    wrong = [v for v in array.ravel() if not isinstance(v, int | np.integer)] if array.dtype.kind == "O" else []
    if wrong:
        raise ModelError(f"{what} must be numbers, not Python objects such as {wrong[0]!r:.100}")
    if array.dtype.kind not in "iubO":
        raise ModelError(f"{what} must be integers, not {array.dtype}")
    if array.dtype.kind in "uO":
        low, high = int(array.min()), int(array.max())
        if low < INT64.min or high > INT64.max:
            extreme = high if high > INT64.max else low
            raise ValueRangeError(f"{what} reach {extreme}, beyond 64-bit integers; scale the values down")
    return array.astype(np.int64, copy=False)


def as_tuples(scope: tuple[int, ...], tuples: ArrayLike) -> NDArray[np.int64]:
    """Rows of value indices, one column per variable of the scope."""
    check_deadline()  # called for each of many functions
    array = as_integers(f"tuples over {scope}", tuples)
    if array.size == 0 and array.ndim != 2:
        array = array.reshape(0, len(scope))
    if array.ndim != 2 or array.shape[1] != len(scope):
        raise ModelError(f"scope {scope} has {len(scope)} variables, its tuples have shape {array.shape}")
    return np.ascontiguousarray(array)


def check_scope(where: str, scope: tuple[int, ...], variables: int) -> None:
    """Refuse a scope with a repeated variable, or one outside 0 to ``variables`` - 1."""
    if len(set(scope)) != len(scope):
        raise ModelError(f"{where}: a variable occurs twice in scope {scope}")
    if scope and not (min(scope) >= 0 and max(scope) < variables):
        v = next(v for v in scope if not 0 <= v < variables)
        raise ModelError(f"{where}: variable {v} of scope {scope} does not exist")


def check_all_tuples(name: str, parts: Sequence[tuple[str, Listed]], sizes: tuple[int, ...]) -> None:
    """Refuse tuples outside their domains and repeated ones; ``parts`` have names for the message."""
    small: dict[int, list[tuple[str, Listed]]] = {}
    checked: set[tuple[int, tuple[int, ...]]] = set()  # parts that share their rows are checked once
    for what, part in parts:
        check_deadline()
        arity = len(part.scope)
        if arity and len(part.tuples) < FEW_ROWS:
            small.setdefault(arity, []).append((what, part))
        elif (key := (id(part.tuples), tuple(sizes[v] for v in part.scope))) not in checked:
            _check_tuples(f"{name}: {what}", part.tuples, np.array(key[1], dtype=np.int64))
            checked.add(key)
    for members in small.values():
        if not _are_clean(members, sizes):
            for what, part in members:
                _check_tuples(f"{name}: {what}", part.tuples, np.array([sizes[v] for v in part.scope], dtype=np.int64))


def _are_clean(members: list[tuple[str, Listed]], sizes: tuple[int, ...]) -> bool:
    """Whether tuples of parts of one arity are certainly unique within their parts and inside their domains."""
    tuples = np.concatenate([part.tuples for _, part in members])
    owners = np.repeat(np.arange(len(members)), [len(part.tuples) for _, part in members])
    limits = np.array([[sizes[v] for v in part.scope] for _, part in members], dtype=np.int64)
    widest = limits.max(axis=0)
    if math.prod(widest.tolist()) * len(members) >= 2**62:
        return False
    codes = owners
    for column in range(tuples.shape[1]):
        values = tuples[:, column]
        if (values < 0).any() or (values >= limits[owners, column]).any():
            return False
        codes = codes * widest[column] + values
    codes = np.sort(codes)
    return not (codes[1:] == codes[:-1]).any()


def _check_tuples(where: str, tuples: NDArray[np.int64], sizes: NDArray[np.int64]) -> None:
    if len(tuples) == 0:
        return
    if (tuples < 0).any() or (tuples >= sizes).any():
        bad = int(np.flatnonzero(((tuples < 0) | (tuples >= sizes)).any(axis=0))[0])
        raise ModelError(f"{where}: a value of scope position {bad} is outside its domain of size {sizes[bad]}")
    distinct = distinct_rows(tuples, sizes.tolist())
    if distinct != len(tuples):
        raise ModelError(f"{where}: {len(tuples) - distinct} tuples occur twice")
