"""Pruning of rows whose completions cannot be better than the incumbent.

Sound together with substitution dominance (:mod:`oocbe.elimination.row_pruning.dominance`): let x be, among the
feasible assignments, the one with the least (cost, consumption, assignment read from the variable eliminated last),
where consumption is what it takes of the linear constraints that rows carry, added up. Let its cost be below the upper
bound that rows are held against; otherwise there is nothing to find, and every row may go. By induction over the
buckets, the row s that x selects in each message is there, and worth what x's eliminated variables cost at least:

* It is made, since the rows it is joined from are there, and its value h(s) is that of some feasible assignment of the
  subtree, at most what x costs there.
* It is not pruned: h(s) and the bound on the rest are at most the cost of x, which is below the upper bound.
* It is not dominated: a row s' that dominates it, by a substitution or because it consumes less at no greater cost, is
  in the message, so h(s') is the cost of some assignment of the subtree that is feasible with s' and consumes what s'
  says, and putting both in x's place gives a feasible assignment that comes before x. It does not matter whether s'
  itself goes later: the argument speaks of x only, and a row that is absent when a message is judged drops none.

So a value below the upper bound is found where there is one, and it is the least; a message without rows proves that
there is none. Bounds and dominance must speak of the same feasible assignments: where a constraint is left out of
elimination, the bounds leave it out as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from oocbe.elimination.engine.bound_arrays import LARGEST_SUM, RowPruning
from oocbe.elimination.engine.consumption import Consumption
from oocbe.elimination.row_pruning.row_bounds import BoundSource, RowBound, ValueGrid
from oocbe.model.problem import Problem


class RowPruner:
    """Bounds of one source against one upper bound.

    Parameters
    ----------
    problem : what the source bounds, in min-sum.
    source : bounds the rows while they are made.
    upper_bound : only assignments with a value strictly below it are wanted.
    """

    def __init__(self, problem: Problem, source: BoundSource, upper_bound: int | float) -> None:
        self.source = source
        self.upper_bound = upper_bound
        self._wanted = ValueGrid.of(problem).largest_below(upper_bound)
        self._largest_value = 0 if not problem.is_integral else int(problem.magnitude)
        self._integral = problem.is_integral

    def for_message(
        self, eliminated: int, separator: Sequence[int], consumption: Consumption | None = None
    ) -> RowPruning | None:
        """The bound for pruning a message's rows; None if sums could leave 64 bits.

        Parameters
        ----------
        eliminated : bit set of the variables eliminated in the subtree, the bucket's own included.
        separator : the message's variables.
        consumption : what rows carry; None: nothing.
        """
        bound = self.source.for_message(eliminated, separator)
        if not self._integral:
            floats = tuple(float(price) for price in _prices(bound, consumption))
            return RowPruning(1, float(bound.constant), bound.tables, float(self.upper_bound), floats)
        prices = _prices(bound, consumption)
        threshold = int(self._wanted) * bound.scale + 1
        total = self._largest_value * bound.scale + abs(int(bound.constant)) + abs(threshold)
        total += sum(_largest(table) for table in bound.tables.values())
        if consumption is not None:
            paid = sum(int(p) * (limit + 1) for p, limit in zip(prices, consumption.limits, strict=True))
            if total + paid < LARGEST_SUM:
                total += paid
            else:  # a bound that counts nothing for what rows consume is lower, and holds
                prices = (0,) * len(prices)
        if total >= LARGEST_SUM:
            return None
        return RowPruning(bound.scale, int(bound.constant), bound.tables, threshold, prices)


def _prices(bound: RowBound, consumption: Consumption | None) -> tuple[int | float, ...]:
    """A bound's price for a unit of each constraint that rows carry."""
    if consumption is None:
        return ()
    carried = zip(consumption.numbers, consumption.units, strict=True)
    return tuple(bound.prices.get(number, 0) * unit for number, unit in carried)


def _largest(table: NDArray[Any]) -> int:
    return max(abs(int(table.max())), abs(int(table.min())))
