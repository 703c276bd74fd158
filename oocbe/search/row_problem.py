"""Forms of a problem for the searches over rows: tables, reduction, graph of values, packing."""

from __future__ import annotations

from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING

from oocbe.model.problem import Problem

if TYPE_CHECKING:
    from oocbe.bounds.row_reduction import Reduction
    from oocbe.bounds.row_tables import ScopeTables
    from oocbe.search.stable_set_search import ValueGraph

DENSE = 0.15
"""Share of all pairs of variables in hard constraints from which a packing problem is searched like others, as each
choice forbids most of the rest. Photograph problems have at most an eighth."""


class RowProblem:
    """A min-sum problem in the forms of the searches over rows.

    Parameters
    ----------
    problem : the problem. given : its reduction, if known.
    """

    def __init__(self, problem: Problem, given: Reduction | None = None) -> None:
        self.problem, self._given = problem, given

    @property
    def is_laid_out(self) -> bool:
        """Whether the problem can be tabulated."""
        return (self._given or self._tables) is not None

    @cached_property
    def reduction(self) -> Reduction | None:
        """The reduction of the problem; None if the problem cannot be tabulated."""
        from oocbe.bounds.row_reduction import reduced

        return self._given or (None if self._tables is None else reduced(self._tables))

    @cached_property
    def _tables(self) -> ScopeTables | None:
        from oocbe.bounds.row_tables import ScopeTables

        return ScopeTables.of(self.problem, keeps_linear=not self.is_packing)

    @cached_property
    def graph(self) -> ValueGraph | None:
        """The problem as a graph of values; None if it has no such form."""
        from oocbe.search.stable_set_search import graph_of

        return graph_of(self.problem, lambda: self._tables if self._given is None else self._given.tables)

    @property
    def goes_first(self) -> bool:
        """Whether depth-first search runs briefly before all else: for problems other than packing, and for packing
        with binary domains, such as set covers: it closes a hundred sets in a tenth of a second, and cuts take seconds.
        """
        from oocbe.elimination.preparation.packing import is_supply

        if not self.is_packing or self.graph is not None:
            return True
        return max(self.problem.sizes, default=0) <= 2 and not is_supply(self.problem)

    @cached_property
    def is_packing(self) -> bool:
        """Whether linear programming bounds serve better than beam passes."""
        from oocbe.elimination.preparation.packing import is_packing, is_supply

        return is_supply(self.problem) or (is_packing(self.problem) and not _is_dense(self.problem))


def _is_dense(problem: Problem) -> bool:
    """Whether hard constraints connect each variable with many others, so that few choices are made in all."""
    pairs = {pair for c in problem.constraints for pair in combinations(sorted(c.scope), 2)}
    count = len(problem.variables)
    return 2 * len(pairs) >= DENSE * count * (count - 1)
