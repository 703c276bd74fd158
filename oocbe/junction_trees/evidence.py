"""Evidence: names and labels are converted to indices and likelihoods."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import UsageError
from oocbe.model.names import value_index, variable_index
from oocbe.model.parts import Variable
from oocbe.model.problem import Problem
from oocbe.model.row_numbers import distinct_values
from oocbe.tables.frames import arrow_of

Value = str | float
"""A value's label, or its position (:func:`oocbe.model.names.value_index`)."""

Case = Mapping[str, Value | None]
"""Observed values of a case, by variable name; None, NaN and pandas' NA and NaT: not observed."""

Likelihoods = Mapping[str, Any]
"""By variable name, a number for each value: the probability of the evidence given that value."""

UNOBSERVED = -1
"""Value index of a variable that a case does not observe."""


@dataclass(frozen=True, eq=False)
class Cases:
    """Cases: ``observed`` int64 (cases, variables); ``likelihoods`` float64 (cases, size); ``index`` of a frame."""

    observed: NDArray[np.int64]
    likelihoods: dict[int, NDArray[np.float64]] = field(default_factory=dict)
    index: Any = None

    def __len__(self) -> int:
        return len(self.observed)

    def some(self, rows: NDArray[np.int64]) -> Cases:
        """The cases with some numbers."""
        return Cases(self.observed[rows], {v: given[rows] for v, given in self.likelihoods.items()})


def case_of(number: int) -> str:
    """The name of a case for error messages, from its zero-based number."""
    return f"case {number} (the first is 0)"


class CaseEvidence(NamedTuple):
    """Likelihood of a variable's values, float64 (domain size,), not all 0; scaled by its greatest, and log of that."""

    likelihood: NDArray[np.float64]
    scaled: NDArray[np.float64]
    logarithm: float

    @classmethod
    def of(cls, given: NDArray[np.float64]) -> CaseEvidence:
        """The evidence of a likelihood."""
        greatest = float(given.max())
        return cls(given, given / greatest, math.log(greatest))


def scaled_likelihood(given: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Likelihoods (cases, values), transposed and scaled to a maximum of 1 per case, and logarithms of the maxima."""
    greatest = given.max(axis=1)
    return (given / greatest[:, None]).T, np.log(greatest)


def likelihood(variable: Variable, given: Any, cases: int | None = None) -> NDArray[np.float64]:
    """A checked likelihood: float64 (domain size,), or (cases, domain size) if a number of cases is given.

    Raises UsageError: another shape, or numbers that are negative, infinite, none at all, or all zero.
    """
    what = f"likelihood of {variable.name!r}"
    try:
        found = np.array(given, dtype=np.float64)
    except (TypeError, ValueError):
        raise UsageError(f"{what}: expected {variable.size} numbers, one for each value") from None
    if cases is not None and found.ndim == 1:
        found = np.repeat(found[None], cases, axis=0)
    shape = (variable.size,) if cases is None else (cases, variable.size)
    if found.shape != shape:
        raise UsageError(f"{what}: its shape is {found.shape}, expected {shape}, a number for each value")
    if not np.isfinite(found).all() or (found < 0).any():
        raise UsageError(f"{what}: expected finite numbers that are not negative")
    if not (found.max(axis=-1) > 0).all():
        raise UsageError(f"{what}: all of its numbers are 0, which nothing that was seen can mean")
    return found


def whole(value: Any) -> Any:
    """A value, an integer for a float that is one: data frames have floats for integers beside NaN."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def is_missing(value: object) -> bool:
    """Whether a case does not observe a variable with this value: None, NaN, or pandas' NA or NaT."""
    is_float = isinstance(value, float | np.floating)
    return value is None or type(value).__name__ in ("NAType", "NaTType") or (is_float and bool(value != value))


def cases_of(problem: Problem, given: Any, likelihoods: Likelihoods | None = None) -> Cases:
    """Cases by index, from a sequence of mappings, a data frame, or an array of value indices (cases, variables).

    Raises UsageError: a variable or value that the problem does not have, an array of another shape or dtype, or
    likelihoods that cannot be used; ModelError: a column of a data frame that Arrow cannot hold.
    """
    if isinstance(given, Cases):
        return given
    if isinstance(given, np.ndarray):
        observed = _checked(problem, given)
    else:
        table = arrow_of(given)
        observed = _listed(problem, given) if table is None else _of_frame(problem, table)
    soft = {}
    for name, numbers in (likelihoods or {}).items():
        v = variable_index(problem, name)
        soft[v] = likelihood(problem.variables[v], numbers, len(observed))
    return Cases(observed, soft, given.index if hasattr(given, "iterrows") else None)


def _checked(problem: Problem, given: NDArray[Any]) -> NDArray[np.int64]:
    count = len(problem.variables)
    if given.ndim != 2 or given.shape[1] != count or given.dtype.kind not in "iu":
        raise UsageError(
            f"cases: an array of {given.dtype} of shape {given.shape}; expected integers, a row for each case and a "
            f"column for each of the {count} variables, {UNOBSERVED} where a case does not observe it"
        )
    observed = given.astype(np.int64)
    wrong = (observed >= np.array(problem.sizes, dtype=np.int64)) | (observed < UNOBSERVED)
    if wrong.any():
        case, v = np.argwhere(wrong)[0].tolist()
        variable = problem.variables[v]
        raise UsageError(
            f"{case_of(case)}: variable {variable.name!r} has no value {observed[case, v]}, only 0 to "
            f"{variable.size - 1}"
        )
    return observed


def _of_frame(problem: Problem, table: Any) -> NDArray[np.int64]:
    """Value indices (rows, variables) of a pyarrow.Table, a column a variable; nulls and NaN are not observed."""
    import pyarrow as arrow

    observed = np.full((table.num_rows, len(problem.variables)), UNOBSERVED, dtype=np.int64)
    columns = distinct_variables(problem, table.column_names, some=False)
    for v, name, column in zip(columns, table.column_names, table.columns, strict=True):
        if column.null_count == len(column):
            continue
        if arrow.types.is_string_view(column.type):  # without an encoding as a dictionary
            column = column.cast(arrow.string())
        if not arrow.types.is_dictionary(column.type):
            try:
                column = column.dictionary_encode()
            except arrow.ArrowException:
                raise UsageError(f"column {name}: values of type {column.type} are not labels or positions") from None
        column = column.unify_dictionaries().combine_chunks()
        numbers, labels = np.asarray(column.indices.cast(arrow.int64()).fill_null(-1)), column.dictionary.to_pylist()
        found = np.full(len(labels) + 1, UNOBSERVED, dtype=np.int64)
        for number in distinct_values(numbers[numbers >= 0]).tolist():
            if not is_missing(labels[number]):
                try:
                    found[number] = value_index(problem.variables[v], whole(labels[number]))
                except UsageError as error:
                    case = int((numbers == number).argmax())
                    raise UsageError(f"{case_of(case)}: {error}") from None
        observed[:, v] = found[numbers]
    return observed


def _listed(problem: Problem, given: Sequence[Case]) -> NDArray[np.int64]:
    if isinstance(given, Mapping | str) or not isinstance(given, Sequence):
        raise UsageError(
            "cases: expected a list of mappings from variable to value, a data frame (or table of Arrow) with a column "
            "for each observed variable, or an array of value indices"
        )
    known: dict[tuple[str, object], tuple[type, int, int]] = {}
    count = len(problem.variables)
    places, indices = [], []
    for case, values in enumerate(given):
        if not isinstance(values, Mapping):
            raise UsageError(f"{case_of(case)}: expected a mapping from variable to value, not {type(values).__name__}")
        for item in values.items():
            name, value = item
            try:
                found = known.get(item)
            except TypeError:  # a value that cannot be hashed
                found = None
            if found is None or found[0] is not type(value):  # True equals 1, and is not accepted as a number
                try:
                    v = variable_index(problem, name)
                    missing = is_missing(value)
                    index = UNOBSERVED if missing else value_index(problem.variables[v], whole(value))
                except UsageError as error:
                    raise UsageError(f"{case_of(case)}: {error}") from None
                found = type(value), v, index
                if value is None or (not missing and isinstance(value, str | int | float | np.generic)):
                    known[item] = found
            places.append(case * count + found[1])
            indices.append(found[2])
    observed = np.full((len(given), count), UNOBSERVED, dtype=np.int64)
    observed.flat[places] = indices
    return observed


def distinct_variables(problem: Problem, names: Sequence[str], some: bool = True) -> list[int]:
    """Indices of different variables, one at least if ``some``; UsageError: no list, a name twice, or unknown."""
    if isinstance(names, str):
        raise UsageError(f"expected names of variables in a list, not the text {names!r}")
    found = [variable_index(problem, name) for name in names]
    if some and not found:
        raise UsageError("expected the name of a variable, or several")
    if len(set(found)) < len(found):
        twice = next(v for i, v in enumerate(found) if v in found[:i])
        raise UsageError(f"variable {problem.variables[twice].name!r} is named twice")
    return found
