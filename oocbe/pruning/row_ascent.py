"""A bound of its own for every row: what an assignment of some variables costs at least, however it is completed.

**What it is.** A *row* gives values to some variables. The functions are conditioned on it, and sequential dual ascent
moves costs between them and their variables (Kolmogorov 2006, *Convergent tree-reweighted message passing*, for pairs;
Kolmogorov 2015, *A new look at reweighted message passing*, SRMP, for larger scopes), a few passes from where the row's
parent had come to, over those variables only whose costs have changed. Whatever the cheapest value of a variable costs
is a cost of the whole, and adds to the row's *bound*. A value that would bring the bound to the threshold is removed,
which may empty others: hard constraints are costs that no threshold permits, so propagating them is the same thing.
What a parent has removed are rows that are never made.

**Why it is valid.** All that happens is that costs move: what one function gives, a variable gets (*equivalence-
preserving transformations*; Cooper, de Givry, Sanchez, Schiex, Zytnicki and Werner 2010, *Soft arc consistency
revisited*). The sum is the same for every assignment and all that is left is never negative, so the bound, which is
part of the sum, is never above it. Numbers are integers in fixed point, each cost rounded down once and capped at the
threshold, so nothing is rounded on the way. Of sums of floats the threshold is raised by all that rounding may be off.

**What others call it.** Search keeps such a bound at each of its nodes (EDAC: de Givry, Heras, Zytnicki and Larrosa
2005; VAC: Cooper et al. 2010); in AND/OR search mini-bucket heuristics have its place (Marinescu and Dechter 2009).
Dynamic programming that drops states whose bound reaches an incumbent is *bounded dynamic programming* (Morin and
Marsten 1976, *Branch-and-bound strategies for dynamic programming*), which is what the rows here are for
(:mod:`oocbe.elimination.search.row_search`). Koster, van Hoesel and Kolen (2002, *Solving partial constraint
satisfaction problems with tree decomposition*) solved radio link frequency assignment so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.cpu.pruning.row_ascent import REMOVED, Level, Network, ascend_all, bound_rows
from oocbe.kernels.cpu.threads import run_all, thread_count
from oocbe.model.model_checks import Values
from oocbe.model.parts import Constraint, Function, LinearConstraint, Variable
from oocbe.model.problem import Problem
from oocbe.model.row_numbers import MOST_AXES
from oocbe.pruning.incumbent_lookups import starts_of
from oocbe.pruning.row_bounds import ValueGrid
from oocbe.system.deadline import look

NEED_BITS = 26
"""The distance between the sum of all minima and the threshold is below 2**26 in fixed point: sums fit 32 bits."""

MOST_SCALE_BITS = 12
"""Integers are counted in up to 2**-12: costs are handed on in equal parts, which are fractions."""

LARGEST_PART = 1 << 16
"""Cells of the largest function that is written out."""

MOST_CELLS = 1 << 22
"""Cells of all functions together."""

PAIR_COST = 1 / 16
"""What a cell of a function over two variables costs, in cells of others: loops over it use vector instructions."""

CALL_WORK, CALL_NUMBERS = 1 << 24, 1 << 22
"""Cells looked at in a pass over the rows of a compiled call, and numbers in their states: some hundredths of a second,
after which signals and limits are looked at."""

LARGEST_SUM, LARGEST_FLOAT_SUM = 2**62, 2.0**1000
"""Sums of the magnitudes of costs stay below it."""

SLACK = 2.0**-20
"""In units of fixed point: more than subtracting, scaling and capping a float can be off."""

ROW_BLOCK = 64
"""Rows of one compiled call at least, of several that share the threads."""


@dataclass(frozen=True)
class Table:
    """A function or several over one scope, written out.

    Attributes
    ----------
    scope : variables. values : int64 or float64, an axis a variable; 0 where forbidden.
    permitted : bool, of the same shape. least : of the permitted values.
    """

    scope: tuple[int, ...]
    values: Values
    permitted: NDArray[np.bool_]
    least: int | float

    @property
    def is_impossible(self) -> bool:
        """Whether nothing is permitted."""
        return not self.permitted.any()


@dataclass(frozen=True)
class Tables:
    """All of a problem, each scope once.

    Attributes
    ----------
    problem : in min-sum. parts : over one or more variables. constant : what assignments cost beside them.
    grid : the values that assignments can have. rounding : what sums of floats can be off by.
    is_integral : whether all costs are integers.
    """

    problem: Problem
    parts: tuple[Table, ...]
    constant: int | float
    grid: ValueGrid
    rounding: float
    is_integral: bool

    @classmethod
    def of(cls, problem: Problem) -> Self | None:
        """The tables of a problem; None where some are too large, or sums of costs leave the range of their dtype."""
        sizes, is_integral = problem.sizes, problem.is_integral
        hard: list[Constraint | LinearConstraint] = [*problem.constraints]
        hard += [c for c in problem.linear_constraints if c.can_bind]
        scopes = {tuple(sorted(part.scope)) for part in (*problem.functions, *hard)}
        cells = [math.prod(sizes[v] for v in scope) for scope in scopes]
        if (
            max(cells, default=0) > LARGEST_PART
            or sum(cells) > MOST_CELLS
            or max(map(len, scopes), default=0) > MOST_AXES
        ):
            return None
        magnitude = _magnitude(problem)
        if magnitude >= (LARGEST_SUM if is_integral else LARGEST_FLOAT_SUM):
            return None
        # Of a sum in any order: half a unit in the last place for each addition, of at most all magnitudes.
        rounding = 0.0 if is_integral else 2.0**-52 * (len(problem.functions) + 4) * magnitude
        dtype = np.int64 if is_integral else np.float64
        values = {scope: np.zeros([sizes[v] for v in scope], dtype=dtype) for scope in scopes}
        permitted = {scope: np.ones([sizes[v] for v in scope], dtype=bool) for scope in scopes}
        for f in problem.functions:
            axes = np.argsort(f.scope)
            scope = tuple(sorted(f.scope))
            own, allowed = f.to_array(sizes)
            values[scope] += np.where(allowed, own, 0).transpose(axes)
            permitted[scope] &= allowed.transpose(axes)
        for c in hard:
            dense = c.to_array(sizes) if isinstance(c, Constraint) else c.to_array()
            permitted[tuple(sorted(c.scope))] &= dense.transpose(np.argsort(c.scope))
        constant = problem.constant
        parts = []
        for scope in sorted(scopes):
            allowed = permitted[scope]
            own = np.where(allowed, values[scope], 0)
            least = own[allowed].min().item() if allowed.any() else 0
            if scope or not allowed.any():
                parts.append(Table(scope, own, allowed, least))
            else:
                constant += own.item()
        return cls(problem, tuple(parts), constant, ValueGrid.of(problem), rounding, is_integral)

    @property
    def least(self) -> int | float:
        """The sum of all minima, which bounds every assignment."""
        if self.is_integral:
            return self.constant + sum(part.least for part in self.parts)
        return math.fsum([self.constant, *(part.least for part in self.parts)])


def _magnitude(problem: Problem) -> int | float:
    """Sum of the largest absolute values."""
    total: int | float = abs(problem.constant)
    for f in problem.functions:
        largest = max((abs(f.values.min().item()), abs(f.values.max().item()))) if len(f.values) else 0
        total += max(largest, abs(f.default or 0))
    return total


class RowAscent:
    """Bounds for rows of one problem, below one threshold.

    Parameters
    ----------
    tables : of the problem. threshold : only assignments with a value strictly below it count; finite.

    Attributes
    ----------
    need : a row whose bound reaches it goes. state, bound : of the row that assigns nothing.
    block : rows that are bounded in some hundredths of a second.
    """

    def __init__(self, tables: Tables, threshold: int | float) -> None:
        self.tables, self.threshold = tables, threshold
        self._sizes = np.array(tables.problem.sizes, dtype=np.int64)
        self._least = tables.least
        self._bits, self.need = self._fixed_point(threshold)
        self.network, self.state = self._laid_out()
        cells = [(part.values.size, len(part.scope)) for part in tables.parts if len(part.scope) > 1]
        work = sum(size * arity * (PAIR_COST if arity == 2 else 1) for size, arity in cells)
        self._passes_a_call = max(1, int(CALL_WORK / max(1, work)))
        self.block = max(1, min(CALL_NUMBERS // len(self.state), self._passes_a_call))
        self.bound = self.need if self.need <= 0 or any(t.is_impossible for t in tables.parts) else 0

    def _fixed_point(self, threshold: int | float) -> tuple[int, int]:
        """Bits of the scale, and the least bound that no assignment below the threshold can have."""
        if self.tables.is_integral:
            # Values below the threshold are at most ``last``: a bound above that is as good as the threshold.
            steps = int(self.tables.grid.largest_below(threshold)) - int(self._least)
            if steps < 0:
                return 0, 0
            bits = min(MOST_SCALE_BITS, NEED_BITS - max(steps, 1).bit_length())
            return bits, (steps << bits if bits >= 0 else steps >> -bits) + 1
        gap = threshold - self._least + 2 * self.tables.rounding
        if gap <= 0:
            return 0, 0
        bits = NEED_BITS - math.frexp(gap)[1]
        return bits, math.ceil(math.ldexp(gap, bits)) + 1

    def _in_fixed_point(self, table: Table) -> NDArray[np.int32]:
        """What a function costs beyond its minimum: rounded down, and no more than rules a row out."""
        above: NDArray[Any] = table.values - table.least
        if self.tables.is_integral:
            scaled = above >> -self._bits if self._bits < 0 else np.minimum(above, self.need) << self._bits
        else:
            scaled = np.floor(np.ldexp(np.minimum(above, math.ldexp(self.need, -self._bits)), self._bits) - SLACK)
            scaled = np.maximum(scaled, 0)
        capped = np.minimum(scaled, self.need)
        return np.where(table.permitted, capped, self.need).astype(np.int32)

    def _laid_out(self) -> tuple[Network, NDArray[np.int32]]:
        """The functions over two and more variables, and the state in which nothing has been moved."""
        sizes = self._sizes
        value_start = starts_of(sizes)
        state = np.zeros(int(value_start[-1]), dtype=np.int64)
        parts, tables, table_start, cells = [], [], [], 0
        for part in self.tables.parts:
            look()
            costs = self._in_fixed_point(part)
            if len(part.scope) == 1:
                first = value_start[part.scope[0]]
                state[first : first + len(costs)] += costs
            elif part.scope:
                parts.append(part)
                own = [costs.T, costs] if len(part.scope) == 2 else [costs]
                starts = [cells + i * costs.size for i in range(len(own))]
                table_start += starts if len(own) == 2 else starts * len(part.scope)
                tables += [np.ascontiguousarray(c).ravel() for c in own]
                cells += costs.size * len(own)
        variable = np.array([v for part in parts for v in part.scope], dtype=np.int64)
        function_start = starts_of([len(part.scope) for part in parts])
        messages = starts_of(sizes[variable]) + value_start[-1]
        network = Network(
            value_start=value_start,
            use_start=starts_of(np.bincount(variable, minlength=len(sizes))),
            uses=np.argsort(variable, kind="stable"),
            function_start=function_start,
            function=np.repeat(np.arange(len(parts)), np.diff(function_start)),
            variable=variable,
            message_start=messages[:-1],
            table_start=np.array(table_start, dtype=np.int64),
            tables=np.concatenate([*tables, np.zeros(0, dtype=np.int32)]),
        )
        whole = np.zeros(int(messages[-1]), dtype=np.int32)
        whole[: len(state)] = state
        return network, whole

    def level(self, open_variables: Sequence[int]) -> Level:
        """What rows have in common that leave these variables open; passes go along them."""
        network = self.network
        order = np.array(open_variables, dtype=np.int64)
        rank = np.full(len(self._sizes), -1, dtype=np.int64)
        rank[order] = np.arange(len(order))
        own = rank[network.variable]
        ahead = behind = np.zeros(len(own), dtype=np.uint8)
        if len(own):
            first = network.function_start[:-1]
            latest = np.maximum.reduceat(own, first)
            earliest = np.minimum.reduceat(np.where(own < 0, len(order), own), first)
            ahead = ((latest[network.function] > own) & (own >= 0)).astype(np.uint8)
            behind = ((earliest[network.function] < own) & (own >= 0)).astype(np.uint8)
        count = len(self._sizes)
        both = [np.bincount(network.variable, weights, minlength=count) for weights in (ahead, behind)]
        parts = np.maximum(np.maximum(*both), 1).astype(np.int64)
        return Level(order, ahead, behind, (1 << 32) // parts)

    def ascend(self, level: Level, passes: int) -> None:
        """Raise the bound of the row that assigns nothing.

        Raises
        ------
        TimeLimitError : the deadline of the block that this runs in came.
        """
        while passes > 0 and self.bound < self.need:
            look()
            now = min(passes, self._passes_a_call)
            self.bound = int(ascend_all(self.network, level, self.state, self.bound, self.need, now))
            passes -= now

    def rows(
        self,
        level: Level,
        v: int,
        parents: NDArray[np.int32],
        parent_bounds: NDArray[np.int64],
        parent: NDArray[np.int64],
        value: NDArray[np.int64],
        passes: int,
        radius: int,
    ) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """States and bounds of rows: each is a parent's row with a value of one more variable.

        Parameters
        ----------
        level : of the variables open then. v : the variable. parents : int32 (parents, state).
        parent_bounds : int64 (parents,). parent, value : int64 (rows,). passes : over what changes.
        radius : how many functions away from a variable that loses values others still are passed over.
        """
        count = len(parent)
        states = np.empty((count, len(self.state)), dtype=np.int32)
        bounds = np.empty(count, dtype=np.int64)
        pieces = max(1, min(4 * thread_count(), count // ROW_BLOCK)) if thread_count() > 1 else 1
        cuts = [count * i // pieces for i in range(pieces + 1)]
        fixed = (
            self.network,
            level,
            v,
            parents,
            parent_bounds,
            parent,
            value,
            self.need,
            passes,
            radius,
            states,
            bounds,
        )
        run_all(bound_rows, [(*fixed, low, high) for low, high in pairwise(cuts)])
        return states, bounds

    def live(self, states: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Bool (rows, values), which values of all variables are not removed."""
        values: NDArray[np.int32] = states[:, : self.network.value_start[-1]]
        is_live: NDArray[np.bool_] = values != REMOVED
        return is_live

    def in_costs(self, bound: int) -> int | float:
        """The least value that an assignment with such a bound can have; the threshold where it has none below."""
        if bound >= self.need:
            return self.threshold
        if self.tables.is_integral:
            above = -(-bound >> self._bits) if self._bits >= 0 else bound << -self._bits
            return min(self.tables.grid.round_up(int(self._least) + above), self.threshold)
        return min(self._least + math.ldexp(bound, -self._bits) - 2 * self.tables.rounding, self.threshold)


def load_loops() -> None:
    """Load the compiled loops, or compile them: a problem of two variables needs them all."""
    variables = (Variable("a", 2), Variable("b", 2))
    tables = Tables.of(Problem(variables, (Function.from_array((0, 1), [[0, 1], [1, 0]]),)))
    assert tables is not None
    ascent = RowAscent(tables, 2)
    level = ascent.level((0, 1))
    ascent.ascend(level, 1)
    one = np.zeros(1, dtype=np.int64)
    ascent.rows(level, 0, ascent.state[None], one, one, one, 1, 1)
