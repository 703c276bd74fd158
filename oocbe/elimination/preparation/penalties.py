"""Forbid penalties that no optimal assignment needs to pay: large costs become hard constraints.

Many files express a hard constraint as a large cost. Treating it as a cost loses clique bounds, propagation, and sparse
tables. Often such a penalty is provably never worth paying. A value is *harmless* if every function over several
variables has its minimum with it, for all values of the others, no constraint forbids anything with it, and no linear
constraint has a smaller coefficient for another value. A penalty is a function's excess over its minimum. If an
assignment pays a penalty and one of the function's variables changes to a harmless value, that penalty vanishes, no
new one arises, and only unary functions of the variable can rise. If they rise by at most the penalty, the changed
assignment is not worse. Each such step removes a penalty, so some optimal assignment pays no penalty of this kind: all
of them may be forbidden at once.

This is neighbourhood substitutability (Freuder 1991; for costs: Lecoutre, Roussel, Dehani 2012), applied to tuples
instead of values: no value need be removed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.elimination.preparation.listed_factors import slots_of, starts_of
from oocbe.elimination.preparation.prepare import EXPANDED_ROWS
from oocbe.elimination.preparation.ranges import extremes
from oocbe.elimination.reformulation import Reformulation
from oocbe.model.model_checks import INT64, Values
from oocbe.model.parts import Constraint, Function
from oocbe.model.problem import Problem
from oocbe.model.semiring import Marginalisation
from oocbe.model.settings.options import SolveOptions
from oocbe.runtime.deadline import looked, suppressed_limit, unlimited

ROUNDING = 1e-9
"""Margin, relative to a sum of floats, by which a penalty must exceed the cost of avoiding it: far above rounding."""

LARGEST_SUM = 1e300
"""Limit of sums of absolute values of floats, so that their differences are finite."""


class Penalties(Reformulation):
    """A problem with penalties as constraints. Some optimal and other assignments are lost."""

    keeps_counts = False


def forbid_penalties(problem: Problem, options: SolveOptions) -> Penalties:
    """The problem with penalties as constraints that no optimal assignment needs to pay; itself where there are none.

    It has the same optimum, and each of its optimal assignments is one of the problem. It suits tasks that need a
    single optimal assignment: some optimal and other assignments are lost.

    problem : in any semiring; those but min-sum and max-sum stay as they are.
    options : without dominance, and with tables that hold every assignment, a problem stays as it is. It does, too,
        where a limit comes first: what follows says so. A run directory is for what is left, and no limit is heeded.
    """
    left = problem
    if options.dominance and options.tables != "complete" and problem.semiring.optimises_sums:
        with nullcontext() if options.workdir is None else unlimited(), suppressed_limit():
            left = _forbidding(problem)
    return Penalties(problem, left, name="penalties", is_checked=True)


def _forbidding(problem: Problem) -> Problem:
    """The same, regardless of the options; TimeLimitError if the deadline of the current block passed."""
    sign = -1 if problem.semiring.marginalisation is Marginalisation.MAX else 1
    if not _is_in_range(problem):
        return problem
    penalised = [p for f in looked(problem.functions) if (p := _Penalised.of(f, problem.sizes, sign)) is not None]
    start = starts_of(problem.sizes)
    harmless = _harmless(problem, penalised, start)
    if not harmless.any():
        return problem
    alone = costs_alone(problem, start, sign)
    nothing = INT64.max // 2 if problem.is_integral else np.inf
    least = np.array([alone[low:high][harmless[low:high]].min(initial=nothing) for low, high in pairwise(start)])
    forbidden = _forbidden(problem.sizes, penalised, start, alone, least)
    if not forbidden:
        return problem
    functions: list[Function] = []
    constraints = list(problem.constraints)
    constant = problem.constant
    for f in looked(problem.functions):
        rows = forbidden.get(id(f))
        if rows is None:
            functions.append(f)
            continue
        is_full = len(f.values) == math.prod(problem.sizes[v] for v in f.scope)
        left = Function(f.scope, f.tuples[~rows], f.values[~rows], None if is_full else f.default)
        is_constant = bool((left.values == (left.values[0] if left.default is None else left.default)).all())
        if left.default is not None or (is_constant and is_full and 2 * len(left.values) > len(f.values)):
            constraints.append(Constraint(f.scope, f.tuples[rows]))
        elif is_constant:
            constraints.append(Constraint(f.scope, left.tuples, allowed=True))
        if is_constant:
            constant += left.values[0].item() if left.default is None else left.default
        else:
            functions.append(left)
    return replace(problem, functions=tuple(functions), constraints=tuple(constraints), constant=constant)


@dataclass(frozen=True)
class _Penalised:
    """A function over several variables, and the excess of its rows over its minimum.
    ``penalties`` are those of its listed rows, 0 where they are at the least. ``is_sparse`` tells whether all rows that
    are not listed are at the least; else they are infeasible."""

    function: Function
    penalties: Values
    is_sparse: bool

    @classmethod
    def of(cls, f: Function, sizes: Sequence[int], sign: int) -> _Penalised | None:
        """None for a function over fewer than two variables."""
        if len(f.scope) < 2:
            return None
        values: NDArray[Any] = sign * f.values
        default = None if len(values) == math.prod(sizes[v] for v in f.scope) else f.default
        if default is None:
            return cls(f, values - values.min() if len(values) else values, False)
        if (values < sign * default).any():
            return cls(f, np.maximum(values - values.min(), 0), False)
        return cls(f, values - sign * default, True)


def _is_in_range(problem: Problem) -> bool:
    """Whether sums of values stay far within int64 or float64."""
    lows, highs = extremes(problem)
    greatest = sum(max(abs(low), abs(high)) for low, high in zip(lows.tolist(), highs.tolist(), strict=True))
    return bool(greatest < (INT64.max // 16 if problem.is_integral else LARGEST_SUM))


def _harmless(problem: Problem, penalised: Sequence[_Penalised], start: NDArray[np.int64]) -> NDArray[np.bool_]:
    """The harmless slots (variable-value pairs), as a mask."""
    harmful = np.zeros(int(start[-1]), dtype=np.bool_)
    # Of tables whose rows that are not listed are infeasible, as many rows must be at the least as there are.
    wanted = np.zeros(len(problem.sizes), dtype=np.float64)
    found = np.zeros(int(start[-1]), dtype=np.int64)
    against: dict[int, list[tuple[tuple[int, ...], NDArray[np.int64]]]] = {}
    least: dict[int, list[tuple[tuple[int, ...], NDArray[np.int64]]]] = {}
    for p in looked(penalised):
        rows = p.function.tuples
        if p.is_sparse:
            against.setdefault(len(p.function.scope), []).append((p.function.scope, rows[p.penalties > 0]))
        else:
            least.setdefault(len(p.function.scope), []).append((p.function.scope, rows[p.penalties == 0]))
    for c in looked(problem.constraints):
        if not c.scope and len(c.tuples) == c.allowed:
            continue
        (least if c.allowed else against).setdefault(len(c.scope), []).append((c.scope, c.tuples))
    for arity, tables in looked(against.items()):
        if arity:
            harmful[slots_of(tables, start).ravel()] = True
    for arity, tables in looked(least.items()):
        if not arity:
            continue
        found += np.bincount(slots_of(tables, start).ravel(), minlength=len(found))
        for scope, _ in tables:
            cells = math.prod([float(problem.sizes[v]) for v in scope])  # they may be beyond any integer, or infinite
            for v in scope:
                wanted[v] += cells / problem.sizes[v]
    harmful |= found != np.repeat(wanted, problem.sizes)
    for f in looked(problem.functions):
        if len(f.scope) == 1:
            harmful[start[f.scope[0]] : start[f.scope[0] + 1]] |= ~f.to_array(problem.sizes)[1]
    for linear in problem.linear_constraints:
        for v, coefficients in zip(linear.scope, linear.coefficients, strict=True):
            harmful[start[v] : start[v + 1]] |= coefficients != coefficients.min()
    return ~harmful


def costs_alone(problem: Problem, start: NDArray[np.int64], sign: int) -> Values:
    """Sum of the unary functions for each slot; entries that a function forbids add 0."""
    alone: NDArray[Any] = np.zeros(int(start[-1]), dtype=np.int64 if problem.is_integral else np.float64)
    for f in looked(problem.functions):
        if len(f.scope) == 1:
            alone[start[f.scope[0]] : start[f.scope[0] + 1]] += sign * f.to_array(problem.sizes)[0]
    return alone


def _forbidden(
    sizes: Sequence[int], penalised: Sequence[_Penalised], start: NDArray[np.int64], alone: Values, least: Values
) -> dict[int, NDArray[np.bool_]]:
    """Rows of functions that no optimal assignment needs, by the function's identity; functions with such rows only.

    least : least sum of unary costs over the harmless values of each variable; far beyond all
        penalties where it has none.
    """
    found: dict[int, NDArray[np.bool_]] = {}
    by_arity: dict[int, list[_Penalised]] = {}
    for p in looked(penalised):
        cells = math.prod(sizes[v] for v in p.function.scope)
        is_refused = p.is_sparse and cells > EXPANDED_ROWS  # as what it is
        if not is_refused and (p.penalties > 0).any():
            by_arity.setdefault(len(p.function.scope), []).append(p)
    for group in looked(by_arity.values()):
        slots = slots_of([(p.function.scope, p.function.tuples) for p in group], start)
        variables = np.searchsorted(start, slots, side="right") - 1
        penalties = np.concatenate([p.penalties for p in group])
        rise = (least[variables] - alone[slots]).min(axis=1)
        if alone.dtype.kind == "f":
            rise += ROUNDING * (np.abs(alone).max() + penalties)
        is_forbidden = (penalties > 0) & (penalties >= rise)
        end = np.cumsum([len(p.penalties) for p in group])
        for p, rows in zip(group, np.split(is_forbidden, end[:-1]), strict=True):
            if rows.any():
                found[id(p.function)] = rows
    return found
