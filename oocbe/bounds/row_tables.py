"""Dense form of a problem for bounds of rows: functions and hard constraints as tables, merged by scope.

In fixed point (:class:`ScaledCosts`), each function stores its costs beyond its minimum, rounded down once; later
operations are exact in integers. Forbidden tuples cost the *cap*, and so do tuples that lift an assignment to the
threshold by themselves. A sum of tables that reaches the cap belongs to no assignment that counts."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from oocbe.algebra.complete_tables.conversion import CompleteCosts
from oocbe.elimination.preparation.listed_factors import starts_of
from oocbe.elimination.row_pruning.row_bounds import LARGEST_FLOAT_TOTAL, LARGEST_TOTAL
from oocbe.kernels.cpu.projection import AscentNetwork
from oocbe.model.model_checks import Values
from oocbe.model.parts import Constraint, Function, LinearConstraint
from oocbe.model.problem import Problem, ValueGrid
from oocbe.model.row_numbers import MOST_AXES
from oocbe.runtime.deadline import check_deadline, looked

LARGEST_PART = 1 << 16
"""Maximum number of cells of a dense function."""

MOST_CELLS = 1 << 22
"""Maximum total cells of all functions."""

LISTED_SHARE = 0.25
"""Share of the memory for messages that complete listings of functions may use, as elimination needs them."""

PAIR_COST = 1 / 16
"""Cost of a cell of a function over two variables, relative to other cells: its loops use vector instructions."""

LARGEST_LINEAR = 1 << 9
"""Maximum number of cells of a linear constraint written as a table if it may stay linear."""

LARGEST_CLAUSE = 1 << 10
"""Maximum number of cells of a one-tuple constraint written as a table; merged rows need tables."""

LARGEST_COEFFICIENTS = 1 << 60
"""Maximum sum of the largest coefficients of a constraint that stays linear."""


@dataclass(frozen=True)
class ScopeTable:
    """The sum of the functions over one scope, dense.

    scope : variables. values : int64 or float64, an axis a variable; 0 where forbidden.
    permitted : bool, of the same shape. least : minimum of the permitted values, 0 if there are none.
    """

    scope: tuple[int, ...]
    values: Values
    permitted: NDArray[np.bool_]
    least: int | float


@dataclass(frozen=True)
class ScopeTables:
    """All parts of a problem, merged by scope.

    problem : in min-sum. parts : over one or more variables. constant : additional cost of all assignments.
    grid : the possible values of assignments. rounding : maximum rounding error of sums of floats.
    is_integral : whether all costs are integers. is_impossible : whether some part permits nothing.
    linear : constraints outside ``parts``, with coefficients of at least 0.
    """

    problem: Problem
    parts: tuple[ScopeTable, ...]
    constant: int | float
    grid: ValueGrid
    rounding: float
    is_integral: bool
    is_impossible: bool
    linear: tuple[LinearConstraint, ...] = ()

    @classmethod
    def of(cls, problem: Problem, keeps_linear: bool = False) -> Self | None:
        """The tables of a problem; None if some are too large, or sums of costs overflow their dtype.

        keeps_linear : whether large linear constraints may stay linear; large constraints that forbid one tuple then
            become linear.
        """
        sizes, is_integral = problem.sizes, problem.is_integral
        hard: list[Constraint | LinearConstraint] = []
        kept: list[LinearConstraint] = []
        binding = [c for c in problem.linear_constraints if c.can_bind]
        given: list[Constraint | LinearConstraint] = [*problem.constraints, *binding]
        for c in looked(given):
            size = math.prod(sizes[v] for v in c.scope) if keeps_linear else 0
            if isinstance(c, LinearConstraint):
                row = c if size > LARGEST_LINEAR else None
            else:
                row = _clause(c, sizes) if size > LARGEST_CLAUSE else None
            if row is None:
                hard.append(c)
            else:
                kept.append(row)
        if any(c.greatest - c.least > LARGEST_COEFFICIENTS for c in kept):
            return None
        linear = tuple(from_zero(c) for c in kept)
        over: dict[tuple[int, ...], list[Function | Constraint | LinearConstraint]] = {}
        for part in looked((*problem.functions, *hard)):
            over.setdefault(tuple(sorted(part.scope)), []).append(part)
        stored = {scope: _stored(scope, own, sizes) for scope, own in over.items()}  # equal tables once
        shape = {name: [sizes[v] for v in scope] for scope, name in stored.items()}
        cells = [math.prod(own) for own in shape.values()]
        if (
            max(cells, default=0) > LARGEST_PART
            or sum(cells) > MOST_CELLS
            or max(map(len, over), default=0) > MOST_AXES
        ):
            return None
        magnitude = problem.magnitude
        if magnitude >= (LARGEST_TOTAL if is_integral else LARGEST_FLOAT_TOTAL):
            return None
        # Error of a sum in any order: half a unit in the last place for each addition, of at most all magnitudes.
        rounding = 0.0 if is_integral else 2.0**-52 * (len(problem.functions) + 4) * magnitude
        dtype = np.int64 if is_integral else np.float64
        values: dict[Hashable, NDArray[Any]] = {}
        permitted: dict[Hashable, NDArray[np.bool_]] = {}
        for scope, name in looked(stored.items()):
            if name in values:
                continue
            costs: NDArray[Any] = np.zeros(shape[name], dtype=dtype)
            mask = np.ones(shape[name], dtype=bool)
            for part in over[scope]:
                axes = [*range(len(scope))] if part.scope == scope else np.argsort(part.scope)
                if isinstance(part, Function):
                    own, allowed = part.to_array(sizes)  # 0 where a row is missing
                    if len(over[scope]) == 1 and part.scope == scope:
                        costs, mask = own.astype(dtype, copy=False), allowed
                        break
                    costs += own.transpose(axes)
                else:
                    allowed = part.to_array(sizes) if isinstance(part, Constraint) else part.to_array()
                mask &= allowed.transpose(axes)
            values[name], permitted[name] = costs, mask
        constant = problem.constant
        parts = []
        is_impossible = False
        for scope in sorted(over):
            costs, allowed = values[stored[scope]], permitted[stored[scope]]
            least = costs.min().item()
            if not allowed.all():
                least = costs[allowed].min().item() if allowed.any() else 0
                costs[~allowed] = 0
                is_impossible |= not allowed.any()
            if scope:
                parts.append(ScopeTable(scope, costs, allowed, least))
            else:
                constant += costs.item()
        grid = problem.value_grid
        is_impossible |= any(c.is_impossible for c in linear)
        return cls(problem, tuple(parts), constant, grid, rounding, is_integral, is_impossible, linear)

    @property
    def least(self) -> int | float:
        """The sum of all minima, a lower bound for every assignment."""
        if self.is_integral:
            return self.constant + sum(part.least for part in self.parts)
        return math.fsum([self.constant, *(part.least for part in self.parts)])

    def distance_below(self, threshold: int | float) -> int | float:
        """Maximum distance from the sum of all minima of values below a threshold; negative if there are none."""
        if self.is_integral:
            return int(self.grid.largest_below(threshold)) - int(self.least)
        gap = threshold - self.least + 2 * self.rounding
        return gap if gap > 0 else -1.0

    def evaluate(self, assignment: Sequence[int]) -> int | float | None:
        """Cost of an assignment; None if it is forbidden."""
        cells = [tuple(assignment[v] for v in part.scope) for part in self.parts]
        if not all(part.permitted[cell] for part, cell in zip(self.parts, cells, strict=True)):
            return None
        if not all(c.permits(assignment) for c in self.linear):
            return None
        costs = [part.values[cell].item() for part, cell in zip(self.parts, cells, strict=True)]
        return self.constant + sum(costs) if self.is_integral else math.fsum([self.constant, *costs])

    def weights(self, most: float) -> NDArray[np.float64]:
        """Average cost of each table beyond its minimum, in units of ``most``, at which cells are capped."""
        layout = self.layout
        costs = np.where(layout.permitted, np.minimum(layout.above, most), most) / most
        if not self.parts:
            return np.zeros(0)
        sums = np.add.reduceat(costs, layout.piece_start)  # equal for equal tables: ties stay ties
        return sums[layout.piece] / [part.values.size for part in self.parts]

    @cached_property
    def influence(self) -> NDArray[np.float64]:
        """Number of functions over the variables that each one determines with others, float64 (variables,).

        A constraint determines the one of its variables that the fewest such constraints share, such as a sum.
        """
        degree = np.zeros(len(self.problem.sizes))
        found: list[tuple[tuple[int, ...], list[int]]] = []
        for part in self.parts:
            if len(part.scope) > 1:
                degree[list(part.scope)] += 1
                count = int(np.count_nonzero(part.permitted))
                axes = [i for i, n in enumerate(part.values.shape) if n > 1 and count * n <= part.values.size]
                found.append((part.scope, [part.scope[i] for i in axes if part.permitted.sum(axis=i).max() <= 1]))
        below: dict[tuple[int, ...], LinearConstraint] = {}
        for c in (own for own in self.linear if len(own.scope) > 1):
            other = below.setdefault(c.scope, c)
            if c.capacity + other.capacity == c.greatest and all(
                len(set((a + b).tolist())) == 1 for a, b in zip(c.coefficients, other.coefficients, strict=True)
            ):
                pairs = zip(c.scope, c.coefficients, strict=True)
                found.append((c.scope, [v for v, own in pairs if len(set(own.tolist())) == len(own) > 1]))
        shared, made = np.zeros(len(degree)), np.zeros(len(degree))
        for scope, own in found:
            shared[list(scope)] += bool(own)
        own_of = [(min(own, key=lambda v: shared[v]), scope) for scope, own in found if own]
        for v, scope in sorted(own_of, key=lambda one: shared[one[0]]):
            others = [w for w in scope if w != v]
            if shared[v] < shared[others].min():
                made[others] += degree[v] + made[v]
        made[[part.scope[0] for part in self.parts if len(part.scope) == 1 and part.values.any()]] = 0
        return made

    @cached_property
    def pass_work(self) -> float:
        """Work of a pass over all functions, in cells of functions over more than two variables."""
        cells = [(part.values.size, len(part.scope)) for part in self.parts if len(part.scope) > 1]
        return sum(size * arity * (PAIR_COST if arity == 2 else 1) for size, arity in cells)

    @property
    def listed_bytes(self) -> int:
        """Bytes of complete listings of all functions: 8 for each variable's value, and for the cost."""
        return sum(8 * part.values.size * (len(part.scope) + 1) for part in self.parts)

    def as_problem(self) -> Problem:
        """The tables as a problem; its functions list the permitted tuples."""
        functions = tuple(
            Function(part.scope, np.argwhere(part.permitted), part.values[part.permitted]) for part in self.parts
        )
        return Problem(self.problem.variables, functions, constant=self.constant, name=self.problem.name)

    @cached_property
    def layout(self) -> AscentLayout:
        """Layout shared by ascents below all thresholds."""
        return AscentLayout.of(self)


@dataclass(frozen=True)
class AscentLayout:
    """The tables laid out for the ascent, before conversion to fixed point: shared by all thresholds.

    network : without its tables. length : of a state, which ends with an entry for each linear constraint.
    value : int64, indices in a state of the costs over single variables, which come first in the next two arrays.
    above, permitted : cost of each cell beyond its function's minimum, and whether it is permitted: the costs over
        single variables, then the network's tables.
    piece_start : int64, starts of pieces in them, one for each stored table. piece : int64 (tables,), a piece of each.
    """

    network: AscentNetwork
    length: int
    value: NDArray[np.int64]
    above: NDArray[Any]
    permitted: NDArray[np.bool_]
    piece_start: NDArray[np.int64]
    piece: NDArray[np.int64]

    @classmethod
    def of(cls, tables: ScopeTables) -> Self:
        """Lay out the functions over two and more variables; states begin with the values of single ones."""
        sizes = np.array(tables.problem.sizes, dtype=np.int64)
        value_start = starts_of(sizes)
        single = [part for part in tables.parts if len(part.scope) == 1]
        parts = [part for part in tables.parts if len(part.scope) > 1]
        pieces, flags = [part.values for part in single], [part.permitted for part in single]
        piece, tables_of_pieces, table_start, cells = {part.scope: i for i, part in enumerate(single)}, [*single], [], 0
        known: dict[Hashable, tuple[int, int]] = {}
        for part in parts:
            # Equal tables of hard constraints are stored once.
            name: Hashable = part.scope if part.values.any() else (part.values.shape, part.permitted.tobytes())
            # A function over two variables has a table for each, in which that variable's values are contiguous.
            copies = 2 if len(part.scope) == 2 else 1
            if name not in known:
                known[name] = len(pieces), cells
                pieces += [part.values.T, part.values][-copies:]
                flags += [part.permitted.T, part.permitted][-copies:]
                tables_of_pieces += [part] * copies
                cells += part.values.size * copies
            piece[part.scope], begin = known[name]
            table_start += [begin, begin + part.values.size] if copies == 2 else [begin] * len(part.scope)
        check_deadline()
        lengths = [own.size for own in pieces]
        dtype = np.int64 if tables.is_integral else np.float64
        above = np.concatenate([np.zeros(0, dtype=dtype), *(own.ravel() for own in pieces)])
        above -= np.repeat(np.array([part.least for part in tables_of_pieces], dtype=dtype), lengths)
        scopes, first_cells = [part.scope for part in parts], np.array(table_start, dtype=np.int64)
        network = network_of(scopes, sizes, first_cells, np.zeros(0, dtype=np.int32))
        return cls(
            network,
            int(value_start[-1] + sizes[network.variable].sum()) + len(tables.linear),
            np.concatenate([np.zeros(0, dtype=np.int64), *(np.arange(*value_start[p.scope[0] :][:2]) for p in single)]),
            above,
            np.concatenate([np.zeros(0, dtype=bool), *(flag.ravel() for flag in flags)]),
            starts_of(lengths)[:-1],
            np.array([piece[part.scope] for part in tables.parts], dtype=np.int64),
        )


def network_of(
    scopes: Sequence[tuple[int, ...]], sizes: Any, table_start: NDArray[np.int64], tables: NDArray[Any]
) -> AscentNetwork:
    """The functions over some scopes, laid out.

    sizes : of all variables. table_start : int64 (uses,). tables : of any dtype, as for the network.
    """
    sizes = np.array(sizes, dtype=np.int64)
    value_start, function_start = starts_of(sizes), starts_of([len(scope) for scope in scopes])
    variable = np.array([v for scope in scopes for v in scope], dtype=np.int64)
    return AscentNetwork(
        value_start=value_start,
        use_start=starts_of(np.bincount(variable, minlength=len(sizes))),
        uses=np.argsort(variable, kind="stable"),
        function_start=function_start,
        function=np.repeat(np.arange(len(scopes)), np.diff(function_start)),
        variable=variable,
        message_start=value_start[-1] + starts_of(sizes[variable])[:-1],
        table_start=table_start,
        tables=tables,
    )


def _stored(scope: tuple[int, ...], parts: Sequence[Any], sizes: Sequence[int]) -> Hashable:
    """What the table of the parts over a scope is stored by: one of a hard constraint alone by its contents."""
    if len(parts) > 1 or not isinstance(parts[0], Constraint):
        return scope
    c = parts[0]
    return c.allowed, tuple(sizes[v] for v in scope), tuple(np.argsort(c.scope).tolist()), c.tuples.tobytes()


def _clause(constraint: Constraint, sizes: Sequence[int]) -> LinearConstraint | None:
    """A constraint that forbids one tuple as a linear one: not all of its values. None for other constraints."""
    if constraint.allowed or len(constraint.tuples) != 1:
        return None
    own = tuple(
        (np.arange(sizes[v]) == a).astype(np.int64)
        for v, a in zip(constraint.scope, constraint.tuples[0].tolist(), strict=True)
    )
    return LinearConstraint(constraint.scope, own, len(own) - 1)


def from_zero(constraint: LinearConstraint) -> LinearConstraint:
    """The same constraint with coefficients shifted so that each variable's minimum is 0."""
    lows = constraint.ends[0]
    coefficients = tuple(own - low for own, low in zip(constraint.coefficients, lows, strict=True))
    return replace(constraint, coefficients=coefficients, capacity=constraint.capacity - sum(lows))


ROOM = {np.dtype(np.int32): 29, np.dtype(np.int64): 50}
"""Limit of the cap, in bits: twice the cap fits the dtype, and the cap fits the mantissa of a float."""

MOST_SCALE_BITS = 12
"""Maximum number of fraction bits for integer costs: costs are divided into equal parts, which are fractions."""


@dataclass(frozen=True)
class ScaledCosts:
    """Conversion of a problem's costs to integers below a threshold.

    tables : of the problem. dtype : int32 or int64. bits : a cost c is stored as c * 2**bits.
    cap : cost of forbidden tuples; 0 if no assignment is below the threshold.
    slack : in units of the stored costs of floats; more than the error of subtraction and scaling.
    """

    tables: ScopeTables
    dtype: np.dtype[Any]
    bits: int
    cap: int
    slack: float = 0.0

    @classmethod
    def of(cls, tables: ScopeTables, threshold: int | float | None, dtype: np.dtype[Any]) -> Self:
        """The finest fixed point within the dtype's range; threshold : only values below it count; None: all count."""
        if tables.is_impossible:
            return cls(tables, dtype, 0, 0)
        most = sum(part.values[part.permitted].max().item() - part.least for part in tables.parts)
        most = int(most) if tables.is_integral else most * (1 + 2.0**-40) + 2 * tables.rounding
        if threshold is not None:
            most = min(most, tables.distance_below(threshold))
        return cls.within(tables, most, dtype, ROOM[np.dtype(dtype)])

    @classmethod
    def within(cls, tables: ScopeTables, distance: int | float, dtype: np.dtype[Any], room: int) -> Self:
        """The finest fixed point with a cap of ``room`` bits, of costs up to a distance above the sum of all minima."""
        if distance < 0:
            return cls(tables, dtype, 0, 0)
        if tables.is_integral:
            bits, slack = min(MOST_SCALE_BITS, room - max(int(distance), 1).bit_length()), 0.0
        else:
            bits, slack = min(1000, room - 1 - math.frexp(distance)[1]), math.ldexp(1.0, room - 52)
        return cls(tables, dtype, bits, _above(distance, bits), slack)

    def cap_for(self, threshold: int | float) -> int:
        """The cap of another threshold, in this scale; at most the own cap."""
        distance = self.tables.distance_below(threshold)
        return min(self.cap, 0 if distance < 0 else _above(distance, self.bits))

    def table(self, part: ScopeTable, order: Sequence[int]) -> CompleteCosts:
        """A function in fixed point; order : of its scope, the slowest first."""
        turned = self.down(part.values - part.least, part.permitted).transpose([part.scope.index(v) for v in order])
        return CompleteCosts(tuple(order), np.ascontiguousarray(turned).ravel())

    def down(self, above: Any, permitted: NDArray[np.bool_]) -> NDArray[Any]:
        """Costs of functions beyond their minima, rounded down and capped."""
        if self.tables.is_integral:
            scaled = above >> -self.bits if self.bits < 0 else np.minimum(above, self.cap) << self.bits
        else:
            scaled = np.floor(np.ldexp(np.minimum(above, math.ldexp(self.cap, -self.bits)), self.bits) - self.slack)
            scaled = np.maximum(scaled, 0)
        return np.where(permitted, np.minimum(scaled, self.cap), self.cap).astype(self.dtype)

    def unscale(self, bound: int) -> int | float:
        """The least value of an assignment whose tables sum to ``bound``; infinite at the cap."""
        if bound >= self.cap:
            return math.inf
        least = self.tables.least
        if self.tables.is_integral:
            above = -(-bound >> self.bits) if self.bits >= 0 else bound << -self.bits
            return self.tables.grid.round_up(int(least) + above)
        return least + math.ldexp(bound, -self.bits) - 2 * self.tables.rounding


def _above(distance: int | float, bits: int) -> int:
    """The least fixed-point number that no cost up to a distance attains."""
    if isinstance(distance, int):
        return (distance << bits if bits >= 0 else distance >> -bits) + 1
    return math.ceil(math.ldexp(distance, bits)) + 1
