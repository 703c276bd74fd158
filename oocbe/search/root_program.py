"""The best root of a depth-first search: the linear program over the local polytope and the linear constraints.

Dual ascent raises the bound by one variable or one multiplier at a time, and stops where only several together would
raise it. Between functions over two variables it misses some percent of the program's optimum (Werner 2007), below
linear constraints a third and more. The program's dual solution gives each use its shares, and each linear constraint
its multiplier. They are rounded to fixed point, and lowered where a tuple would cost less than nothing: the bound is
exact whatever the solver's tolerances are. They are valid below any threshold, so a root below a better incumbent is
raised by the same ones.

A function in which one tuple has a cost, such as a clause, or a store that a closed warehouse cannot supply, is one row
of the program, not a column for each tuple.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from oocbe.bounds.linear_program import LARGEST_OBJECTIVE, quiet_solver
from oocbe.elimination.preparation.listed_factors import starts_of
from oocbe.kernels.cpu.projection import MOST_MOVED, REMOVED, AscentNetwork
from oocbe.runtime.data_limit import data_limit
from oocbe.runtime.deadline import check_deadline, looked
from oocbe.search.depth_tree import Root
from oocbe.search.kernels.cpu.depth_first import LARGEST_MULTIPLIER, Linear

with data_limit.lifted():
    import highspy


class RootProgram:
    """The linear program of a root.

    root, linear : of the search.
    columns : number of tuples and clauses. distance : of the optimum from the cutoff, in costs; infinite before it.
    nearest : int64 (variables,), the value of each with the largest share in the optimum.
    """

    def __init__(self, root: Root, linear: Linear) -> None:
        network, sizes = root.network, np.diff(root.network.value_start)
        own, counts = sizes[network.variable], sizes[linear.variable]
        first = network.function_start[:-1]
        self._linear, self._owner = linear, np.repeat(np.arange(len(sizes)), sizes)
        # Shares are in the order of a state: of each its value; then those of the first uses of functions.
        self._value = _ranges(network.value_start[network.variable], own)
        self._first = _ranges(network.message_start[first] - network.value_start[-1], own[first])
        self._cells, self._cell_start, self._function_start, self._shares_of = _cells_of(network)
        has_cost = network.tables[self._cells] > 0
        self._is_clause = np.add.reduceat(has_cost, self._function_start, dtype=np.int64) == 1
        lengths = np.diff([*self._function_start, len(self._cells)])
        self._is_column = ~np.repeat(self._is_clause, lengths)
        self._clauses = np.flatnonzero(has_cost & ~self._is_column)
        self.columns = int(self._is_column.sum()) + len(self._clauses)
        self._consumer = _ranges(network.value_start[linear.variable], counts)
        self._priced = linear.priced[_ranges(linear.coefficient_start, counts)]
        self._constraint = np.repeat(np.repeat(np.arange(len(linear.refund)), np.diff(linear.start)), counts)
        self._shares, self._multipliers = np.zeros(len(self._value)), np.zeros(len(linear.refund))
        self.distance, self.nearest = np.inf, np.zeros(len(sizes), dtype=np.int64)

    def solve(self, root: Root, seconds: float) -> bool:
        """Solve for the values that are left at a root; returns whether the optimum was found in time."""
        values, variables, shares = len(self._owner), len(self.nearest), len(self._value)
        network, scale, infinity = root.network, 2.0**-root.scale.bits, highspy.kHighsInf
        tables, is_left = network.tables[self._cells], root.state[:values] != REMOVED
        kept = np.flatnonzero(self._is_column & self._are_left(is_left) & (tables < root.need))
        ends, clauses = np.append(self._cell_start, len(self._shares_of)), self._clauses
        lengths, arity = ends[kept + 1] - ends[kept], ends[clauses + 1] - ends[clauses]
        in_clauses = self._shares_of[_ranges(ends[clauses], arity)]
        # Rows: of shares, variables, linear constraints, clauses. Columns: values, tuples, violations of clauses.
        first_limit, first_clause = shares + variables, shares + variables + len(self._multipliers)
        largest = np.ones(len(self._multipliers))
        np.maximum.at(largest, self._constraint, self._priced)
        number, violation = np.arange(len(clauses)), values + len(kept) + np.arange(len(clauses))
        entries = [
            (self._shares_of[_ranges(ends[kept], lengths)], values + np.repeat(np.arange(len(kept)), lengths), 1.0),
            (np.arange(shares), self._value, -1.0),
            (shares + self._owner, np.arange(values), 1.0),
            (first_limit + self._constraint, self._consumer, self._priced / largest[self._constraint]),
            (first_clause + np.repeat(number, arity), self._value[in_clauses], 1.0),
            (first_clause + number, violation, -1.0),
        ]
        rows = np.concatenate([row for row, _, _ in entries])
        order = np.argsort(rows, kind="stable")
        check_deadline()
        program = highspy.HighsLp()
        costs = np.concatenate([root.first[:values], tables[kept], tables[clauses]]) * scale
        unit = max(1.0, float(costs.max(initial=0)) / LARGEST_OBJECTIVE)
        limits = np.concatenate([np.ones(variables), self._linear.refund / largest, arity - 1.0])
        most = np.where(tables[clauses] < root.need, infinity, 0.0)
        program.num_col_, program.num_row_ = len(costs), shares + len(limits)
        program.col_cost_, program.col_lower_ = costs / unit, np.zeros(len(costs))
        program.col_upper_ = np.concatenate([is_left.astype(np.float64), np.full(len(kept), infinity), most])
        lengths = np.diff(network.value_start)[network.variable]
        spare = np.repeat(np.where(self._is_clause[network.function], infinity, 0.0), lengths)
        program.row_lower_ = np.concatenate([-spare, np.ones(variables), np.full(len(limits) - variables, -infinity)])
        program.row_upper_ = np.concatenate([spare, limits])
        program.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        program.a_matrix_.start_ = np.searchsorted(rows[order], np.arange(program.num_row_ + 1)).astype(np.int32)
        program.a_matrix_.index_ = np.concatenate([column for _, column, _ in entries])[order].astype(np.int32)
        program.a_matrix_.value_ = np.concatenate([np.broadcast_to(c, row.shape) for row, _, c in entries])[order]
        solver = quiet_solver()
        solver.passModel(program)
        solver.setOptionValue("time_limit", seconds)
        solver.run()
        if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            return False
        solution = solver.getSolution()
        duals = np.array(solution.row_dual) * unit
        self._shares, self._multipliers = duals[:shares], -duals[first_limit:first_clause] / largest
        self._shares[in_clauses] -= np.repeat(duals[first_clause:], arity)
        point = np.split(np.array(solution.col_value)[:values], network.value_start[1:-1])
        self.nearest[:] = [own.argmax() for own in point]
        self.distance = root.need * scale - unit * solver.getInfo().objective_function_value
        return True

    def raise_root(self, root: Root) -> bool:
        """Give a root the shares and multipliers if they raise its bound; returns whether they did."""
        network, values, bits, linear = root.network, len(self._owner), root.scale.bits, self._linear
        is_left = root.state[:values] != REMOVED
        shares = np.clip(np.rint(np.ldexp(self._shares, bits)), -MOST_MOVED, MOST_MOVED).astype(np.int64)
        shares[~is_left[self._value]] = 0
        rest = network.tables[self._cells] - np.add.reduceat(shares[self._shares_of], self._cell_start)
        least = np.minimum.reduceat(np.where(self._are_left(is_left), rest, MOST_MOVED), self._function_start)
        # A function's first use takes what its cheapest tuple has left, or gives what that lacks.
        sizes = np.diff(network.value_start)
        shares[self._first] += np.repeat(least, sizes[network.variable[network.function_start[:-1]]])
        shares[~is_left[self._value]] = 0
        wanted = np.rint(self._multipliers * np.ldexp(1.0, bits + linear.bits))
        multipliers = np.clip(wanted, 0, LARGEST_MULTIPLIER).astype(np.int64)
        costs = root.first[:values] + np.bincount(self._value, shares, values).astype(np.int64)
        np.add.at(
            costs, self._consumer, (multipliers[self._constraint] * self._priced) >> linear.bits[self._constraint]
        )
        lows = np.minimum.reduceat(np.where(is_left, costs, REMOVED), network.value_start[:-1])
        bound = int(lows.sum()) - int(((multipliers * linear.refund) >> linear.bits).sum())
        if bound <= root.bound or np.abs(shares).max(initial=0) > MOST_MOVED:
            return False
        root.bound, root.stale[:] = min(bound, root.need), 1
        root.state[:values] = np.where(is_left, np.minimum(costs - lows[self._owner], REMOVED - 1), REMOVED)
        root.state[values : values + len(shares)], root.state[linear.place] = shares, multipliers
        return True

    def _are_left(self, is_left: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Of each cell, whether all values of its tuple are left."""
        return np.logical_and.reduceat(is_left[self._value[self._shares_of]], self._cell_start)


def _ranges(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """The numbers of ranges with these starts and lengths, one range after another."""
    return np.repeat(starts - starts_of(lengths)[:-1], lengths) + np.arange(int(lengths.sum()))


def _cells_of(network: AscentNetwork) -> tuple[NDArray[np.int64], ...]:
    """The place of each cell of the functions in the tables, the starts of cells in the last array, those of functions
    in the cells, and the places of the shares of each cell's tuple."""
    none, sizes = np.zeros(0, dtype=np.int64), np.diff(network.value_start)
    cells, shares, arities, counts = [none], [none], [none], []
    tuples: dict[tuple[int, ...], NDArray[np.int64]] = {}
    for begin, end in looked(pairwise(network.function_start.tolist())):
        shape = tuple(sizes[network.variable[begin:end]].tolist())
        if shape not in tuples:
            tuples[shape] = np.indices(shape).reshape(len(shape), -1).T
        shares.append((tuples[shape] + network.message_start[begin:end] - network.value_start[-1]).ravel())
        counts.append(len(tuples[shape]))
        cells.append(network.table_start[end - 1] + np.arange(counts[-1]))  # the last variable is the fastest
        arities.append(np.full(counts[-1], end - begin))
    starts = starts_of(np.concatenate(arities))[:-1]
    return np.concatenate(cells), starts, starts_of(counts)[:-1], np.concatenate(shares)
