"""Einsum in any semiring: contraction of dense and sparse arrays by joins and eliminations of tables.

Dense operands are complete tables, sparse ones incomplete tables; :mod:`oocbe.api.contraction` has the steps of a path.
"""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.api.contraction import (
    ContractionPath,
    Contractions,
    EinsumExpression,
    Positions,
    cells_along,
    path_of,
    sliced_path,
)
from oocbe.errors import ResourceError, UsageError
from oocbe.kernels.interface import is_cupy
from oocbe.model.model_checks import as_array
from oocbe.model.semiring import LOG_SUM_EXP, MAX_PRODUCT, MAX_SUM, MIN_SUM, SEMIRINGS, SUM_PRODUCT, Semiring
from oocbe.model.settings.option_values import parse_boolean
from oocbe.tables.common_domains import limit_of
from oocbe.tables.complete import CompleteTable
from oocbe.tables.stored import AnyComplete, StoredCompleteTable, StoredTable
from oocbe.tables.table import Table

SEMIRINGS_OF_EINSUM = {
    "sum-product": SUM_PRODUCT,
    "max-plus": MAX_SUM,
    "min-plus": MIN_SUM,
    "max-times": MAX_PRODUCT,
    "log": LOG_SUM_EXP,
    "or-and": MAX_PRODUCT,
}
"""Usual names of semirings; :data:`oocbe.model.semiring.SEMIRINGS` has the others."""

ARGMAX_CELLS = 1 << 22
"""Joined cells whose arguments are looked up at a time, 32 MiB of float64 values."""


def einsum(
    expression: str,
    *operands: Any,
    semiring: str | Semiring = "sum-product",
    optimize: str | Sequence[Positions] | Callable[..., Sequence[Positions]] = "auto",
    memory: int | str | None = None,
    backend: str | None = None,
    output: str | Path | None = None,
    return_argmax: bool = False,
) -> Any:
    """Contract arrays in a semiring.

    Parameters
    ----------
    expression : as for ``numpy.einsum``, without ``...``; or with names between spaces: ``day sensor, sensor -> day``.
    operands : NumPy or CuPy arrays, or what ``numpy.asarray`` accepts; sparse arrays of SciPy or pydata/sparse, and
        :class:`oocbe.Table`, whose missing entries are the semiring's zero; complete and stored tables. Terms have the
        dimensions of an xarray DataArray in any order; coordinates of the same dimension must be equal.
    semiring : ``sum-product``, ``max-plus``, ``min-plus``, ``max-times``, ``log`` (log-sum-exp), ``or-and``, or a
        :class:`oocbe.Semiring` or its name.
    optimize : see :func:`einsum_path`.
    memory : limit of tables in bytes, or text such as ``4GiB``. Beyond it, the steps are done for each value of
        indices, of dense floats and at most twice the work, or through a scratch folder. None: 80 % of the machine's.
    backend : ``cpu``, ``cuda`` or ``auto``. On a device, dense operands and results of steps stay there between steps
        if they fit.
    output : a path for the result as a stored table; needed if the result exceeds the memory.
    return_argmax : whether also to return, for each eliminated index, its value in the best assignment of each output
        cell; of semirings that select, and dense operands.

    Returns
    -------
    A NumPy array with an axis for each index of the output, a scalar array without axes if there is none; a CuPy array
    if an operand is one. If all operands are sparse: a sparse array of the first operand's kind, or a Table. If all are
    DataArrays: a DataArray with the coordinates of its dimensions. With ``output`` the stored table. With
    ``return_argmax`` a pair: the array, and a dictionary from index name to an int64 array of the same shape; -1 where
    the value is the semiring's zero.

    Raises
    ------
    UsageError : an expression that does not fit the operands, or a semiring without a best value for ``return_argmax``.
    ResourceError : the result exceeds the memory, and there is no ``output``.
    ModelError, ValueRangeError : values that tables cannot represent; integer sums beyond 64 bits.
    """
    chosen = _semiring(semiring)
    arrays = [_as_operand(operand) for operand in operands]
    parsed = EinsumExpression.parse(expression, [_shape(a) for a in arrays])
    path = path_of(parsed, optimize)
    label = _labelling(arrays, parsed.output)
    named = zip(arrays, parsed.operands, strict=True)
    arrays = [_as_operand(a.transpose(*names).data) if _is_labelled(a) else a for a, names in named]
    return_argmax = parse_boolean("return_argmax", return_argmax)
    if return_argmax and not (chosen.selects and all(isinstance(a, np.ndarray) for a in arrays)):
        raise UsageError("einsum: return_argmax: needs NumPy operands and a semiring that selects, such as max-plus")
    limit, is_boolean = limit_of(memory), semiring == "or-and"
    if optimize != "auto" and all(isinstance(a, np.ndarray) for a in arrays) and not path.fits(limit):
        _warn_of_path(path, path_of(parsed), limit)
    are_dense = all(isinstance(a, np.ndarray) and a.dtype.kind == "f" for a in arrays)
    if output is None and not (return_argmax or is_boolean) and are_dense:
        sliced, rest = sliced_path(path, limit)
        if sliced:
            return label(_by_slices(sliced, parsed, rest, arrays, chosen, limit, backend))
    tables = [_table(a, names, chosen, is_boolean) for a, names in zip(arrays, parsed.operands, strict=True)]
    with ExitStack() as closed:
        steps = Contractions(path, limit, backend, closed)
        made = steps.run(tables, output, return_argmax)
        if output is not None:
            return made
        if isinstance(made, AnyComplete):
            result = _array(made, parsed.output, limit)
            if any(map(is_cupy, arrays)):
                result = sys.modules["cupy"].asarray(result)  # the last step may have been out of core
            result = result.astype(bool) if is_boolean else result
            return (label(result), _arguments(steps, result, label)) if return_argmax else label(result)
        rows = made if isinstance(made, Table) else made.to_table()
        return label(_sparse(rows, parsed, arrays))


def _warn_of_path(given: ContractionPath, own: ContractionPath, memory: int) -> None:
    """Warn of a path beyond the memory where the one found here is within it, or takes less than half the work."""
    if 2 * own.joined < given.joined or own.fits(memory):
        logging.getLogger("oocbe").warning(
            "einsum: the path given exceeds the memory of %s bytes: %s combinations, largest result %s cells; "
            "optimize='auto' has %s combinations, largest result %s cells",
            *(f"{number:,}" for number in (memory, given.joined, given.largest, own.joined, own.largest)),
        )


def einsum_path(
    expression: str,
    *operands: Any,
    semiring: str | Semiring = "sum-product",
    optimize: str | Sequence[Positions] | Callable[..., Sequence[Positions]] = "auto",
) -> ContractionPath:
    """The steps of :func:`einsum`; print it to read them.

    Parameters
    ----------
    operands : arrays, tables, or shapes (tuples of integers). semiring : does not change the steps.
    optimize : ``auto``: the cheaper of a greedy path and one along an elimination order; or a list of steps, each the
        positions of its operands, such as the paths of NumPy, opt_einsum and cotengra; or an optimizer of the latter
        two, such as ``cotengra.HyperOptimizer()``.

    Raises
    ------
    UsageError : an expression or steps that do not fit the operands.
    """
    _semiring(semiring)
    shapes = [operand if isinstance(operand, tuple) else _shape(_as_operand(operand)) for operand in operands]
    return path_of(EinsumExpression.parse(expression, shapes), optimize)


def _semiring(name: str | Semiring) -> Semiring:
    if isinstance(name, Semiring):
        return name
    found = SEMIRINGS_OF_EINSUM.get(name) or SEMIRINGS.get(name)
    if found is None or found.counts:
        known = dict.fromkeys((*SEMIRINGS_OF_EINSUM, *(n for n, s in SEMIRINGS.items() if not s.counts)))
        raise UsageError(f"einsum: unknown semiring {name!r}; known: {', '.join(known)}")
    return found


def _as_operand(operand: Any) -> Any:
    """A table, a sparse array, a DataArray, or an array of NumPy or CuPy."""
    is_table = isinstance(operand, Table | StoredTable | AnyComplete)
    if is_table or _is_sparse(operand) or _is_labelled(operand) or is_cupy(operand):
        return operand
    return as_array("einsum: an operand", operand)


def _is_sparse(operand: Any) -> bool:
    return type(operand).__module__.split(".")[0] in ("scipy", "sparse") and hasattr(operand, "nnz")


def _is_labelled(operand: Any) -> bool:
    """Whether it is a DataArray, which needs no import of xarray: it was imported before."""
    return "xarray" in sys.modules and isinstance(operand, sys.modules["xarray"].DataArray)


def _by_slices(
    sliced: Sequence[str], whole: EinsumExpression, path: ContractionPath, arrays: Sequence[NDArray[Any]],
    semiring: Semiring, memory: int, backend: str | None,
) -> NDArray[Any]:  # fmt: skip
    """The result of dense operands, along a path for each combination of values of the sliced indices."""
    total = None
    for values in np.ndindex(*(whole.sizes[name] for name in sliced)):
        at = dict(zip(sliced, values, strict=True))
        cut = [a[tuple(at.get(n, slice(None)) for n in own)] for a, own in zip(arrays, whole.operands, strict=True)]
        tables = [
            _table(np.asarray(a), own, semiring, False) for a, own in zip(cut, path.expression.operands, strict=True)
        ]
        with ExitStack() as closed:
            part = _array(Contractions(path, memory, backend, closed).run(tables, None), whole.output, memory)
        total = part if total is None else semiring.marginalise(total, part)
    return np.asarray(total)


def _labelling(arrays: Sequence[Any], output: Sequence[str]) -> Callable[[Any], Any]:
    """What makes a result a DataArray if all operands are, and leaves it as it is otherwise."""
    found: dict[str, Any] = {}
    for number, array in enumerate(arrays):
        for name, own in array.coords.items() if _is_labelled(array) else ():
            if name in array.dims and not found.setdefault(name, own).to_index().equals(own.to_index()):
                raise UsageError(f"einsum: operand {number} has other coordinates of {name!r} than one before it")
    kept = {name: found[name] for name in output if name in found}
    return lambda result: type(arrays[0])(result, kept, output) if all(map(_is_labelled, arrays)) else result


def _shape(operand: Any) -> Any:
    if hasattr(operand, "layout"):
        return tuple(operand.layout.sizes)
    return operand.sizes if _is_labelled(operand) else tuple(operand.shape)


def _table(operand: Any, names: tuple[str, ...], semiring: Semiring, is_boolean: bool) -> Any:
    """The operand as a table over its indices, without indices that occur twice."""
    if isinstance(operand, Table | StoredTable | AnyComplete):
        if operand.scope != names:
            raise UsageError(f"einsum: the table over {', '.join(operand.scope)} has to have these indices in its term")
        if operand.semiring != semiring:
            raise UsageError(f"einsum: a table has the semiring {operand.semiring}, not {semiring}")
        return operand
    distinct = tuple(dict.fromkeys(names))
    if isinstance(operand, np.ndarray) or is_cupy(operand):
        if len(distinct) < len(names):
            letters = {name: i for i, name in enumerate(distinct)}
            module = sys.modules["numpy" if isinstance(operand, np.ndarray) else "cupy"]
            operand = module.einsum(operand, [letters[n] for n in names], list(range(len(distinct))))
        # In the order of the memory: the last axis changes fastest, the first variable of a table does.
        return CompleteTable.from_array(distinct[::-1], _numbers(operand, semiring, is_boolean).transpose(), semiring)
    if getattr(operand, "fill_value", 0) not in (0, semiring.zero):
        raise UsageError(f"einsum: a sparse operand has the fill value {operand.fill_value}, not 0 or {semiring.zero}")
    coordinates, values = _coordinates(operand)
    sizes = dict(zip(names, operand.shape, strict=True))
    diagonal = np.ones(len(values), dtype=bool)
    first = {name: names.index(name) for name in distinct}
    for axis, name in enumerate(names):
        diagonal &= coordinates[axis] == coordinates[first[name]]
    values = _numbers(values[diagonal], semiring, is_boolean)
    rows = np.stack([coordinates[first[name]][diagonal] for name in distinct], axis=1) if distinct else np.zeros((0, 0))
    kept = values != semiring.zero
    return Table.from_rows({name: sizes[name] for name in distinct}, rows[kept], values[kept], semiring)


def _coordinates(operand: Any) -> tuple[Sequence[NDArray[Any]], NDArray[Any]]:
    """Coordinates by axis, and values, of a sparse array without duplicates."""
    if type(operand).__module__.startswith("scipy"):
        found = operand.tocoo()
        found.sum_duplicates()
        axes = found.coords if hasattr(found, "coords") else (found.row, found.col)
        return [np.asarray(axis, dtype=np.int64) for axis in axes], np.asarray(found.data)
    found = operand.asformat("coo")
    return [np.asarray(axis, dtype=np.int64) for axis in found.coords], np.asarray(found.data)


def _numbers(values: NDArray[Any], semiring: Semiring, is_boolean: bool) -> NDArray[Any]:
    """Values in a dtype of tables."""
    if is_boolean:
        true: NDArray[np.float32] = (values != 0).astype(np.float32)
        return true
    if values.dtype == np.float16:
        return values.astype(np.float32)
    if semiring.needs_floats and values.dtype.kind in "iu":
        return values.astype(np.float64)
    if values.dtype.kind == "b" or (values.dtype.kind in "iu" and values.dtype not in (np.int32, np.int64)):
        wide = values.astype(np.int64)
        if values.dtype == np.uint64 and (wide < 0).any():
            raise UsageError("einsum: integers of 2^63 and more; convert the operand to float64")
        return wide
    if values.dtype.kind not in "if":
        raise UsageError(f"einsum: an operand has the dtype {values.dtype}; operands are integers or real numbers")
    return values


def _arguments(contractions: Contractions, result: NDArray[Any], label: Callable[[Any], Any]) -> dict[str, Any]:
    """The value of each eliminated index in the best assignment of each cell of the result, int64, labelled."""
    expression, sizes = contractions.path.expression, contractions.path.expression.sizes
    semiring = contractions.inputs[-1][0].semiring
    shape = tuple(sizes[name] for name in expression.output)
    grid = np.indices(shape).reshape(len(shape), result.size) if shape else np.zeros((0, 1), dtype=np.int64)
    found = dict(zip(expression.output, grid, strict=True))
    possible = np.ravel(result) != semiring.zero
    for step, tables in zip(reversed(contractions.path.steps), reversed(contractions.inputs), strict=True):
        gone = step.eliminated
        if not gone:
            continue
        lengths = [sizes[name] for name in gone]
        inner = dict(zip(gone, np.indices(lengths).reshape(len(gone), -1), strict=True))
        chosen = np.zeros(result.size, dtype=np.int64)
        many = max(1, ARGMAX_CELLS // math.prod(lengths))
        for first in range(0, result.size, many):
            joined: Any = None
            for table in tables:
                cells: Any = np.int64(0)
                for name, stride in zip(table.scope, table.strides(table.scope), strict=True):
                    at = inner[name][None, :] if name in inner else found[name][first : first + many, None]
                    cells = cells + at * stride
                values = table.values_of(np.broadcast_to(cells, np.broadcast_shapes(cells.shape, (1, 1))))
                joined = values if joined is None else semiring.combine(joined, values)
            best = joined.argmin(axis=1) if semiring is MIN_SUM else joined.argmax(axis=1)
            chosen[first : first + many] = best
        found |= zip(gone, np.unravel_index(chosen, lengths), strict=True)
    return {
        name: label(np.where(possible, values, -1).reshape(shape).astype(np.int64))
        for name, values in found.items()
        if name not in expression.output
    }


def _array(made: Any, output: Sequence[str], memory: int) -> NDArray[Any]:
    """A complete table as an array."""
    if isinstance(made, StoredCompleteTable):
        if made.nbytes > memory:
            raise ResourceError(
                f"einsum: the result has {made.nbytes:,} bytes, beyond the memory limit of {memory:,}; give output"
            )
        made = made.to_complete()
    if made.dtype.kind == "i" and made.semiring.zero != 0 and not made.feasible().all():
        raise UsageError("einsum: an integer result has cells without a value; use float operands")
    return cells_along(made, output).copy()


def _sparse(rows: Table, expression: EinsumExpression, operands: Sequence[Any]) -> Any:
    """Rows as a sparse array of the kind of the first operand; the table if that is a table."""
    first = next((operand for operand in operands if _is_sparse(operand)), None)
    if first is None:
        return rows
    tuples, values = rows.to_rows()
    coordinates = tuples[:, [rows.scope.index(name) for name in expression.output]].T
    shape = tuple(expression.sizes[name] for name in expression.output)
    if not shape:
        return np.asarray(values[0] if len(values) else rows.semiring.zero)
    if type(first).__module__.startswith("scipy"):
        return import_module("scipy.sparse").coo_array((values, tuple(coordinates)), shape=shape)
    found = import_module("sparse").COO(coordinates, values, shape=shape, fill_value=first.fill_value)
    return found.asformat(type(first).__name__.lower())
