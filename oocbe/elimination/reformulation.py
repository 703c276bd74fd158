"""Reformulations of a problem, and their postsolve: the entries of one stack, as in other solvers' presolve.

Each step before elimination rewrites the problem: penalties become constraints, propagation removes values, floats
become integers, products become sums of logarithms, maximisation becomes minimisation. An entry maps assignments,
values and bounds of the rewritten problem back to the original, and options to the rewritten problem. A stack applies
its entries in order, and maps back in reverse order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from numpy.typing import NDArray

from oocbe.elimination.solution_check import check_solution
from oocbe.model.problem import Problem
from oocbe.model.results.progress_curve import PresolveStep
from oocbe.model.results.result import Result
from oocbe.model.settings.options import SolveOptions

Number = int | float | None

Report = Callable[[Number, Number, str, tuple[int, ...] | None], None]
"""Called with (bound, incumbent value, method, incumbent) whenever one of them changes."""


@dataclass(frozen=True)
class Reformulation:
    """A rewritten problem. The base class is for rewritten functions and constraints, with the same optimum.

    Attributes
    ----------
    original, problem : before and after.
    name : of the entry. keeps_counts : whether entries of the class keep all feasible assignments, with their values.
    is_checked : whether postsolve checks the assignment of a result in the original problem.
    """

    original: Problem
    problem: Problem
    name: str = field(default="", kw_only=True)
    keeps_counts: ClassVar[bool] = True
    is_checked: bool = field(default=False, kw_only=True)

    @property
    def summary(self) -> str:
        """A sentence about the removals, for plans and results; empty without any."""
        return ""

    @property
    def removals(self) -> PresolveStep:
        """The removals."""
        removed = (before - after for before, after in zip(_sizes(self.original), _sizes(self.problem), strict=True))
        return PresolveStep(self.name, *removed)

    def options(self, options: SolveOptions) -> SolveOptions:
        """The options for the rewritten problem."""
        return options

    def lift(self, assignment: Sequence[int], /) -> tuple[int, ...]:
        """An assignment of the original from one of the rewritten problem."""
        return tuple(assignment)

    def lift_order(self, order: Sequence[int], /) -> tuple[int, ...]:
        """An order of the original's variables from one of the rewritten problem; () without."""
        return tuple(order)

    def lift_marginals(self, found: Sequence[NDArray[Any]], certain: Any, nothing: Any, /) -> tuple[NDArray[Any], ...]:
        """Marginals of the original; entries of fixed variables are ``certain``, of removed values ``nothing``."""
        return tuple(found)

    def bounds(self, bound: Number, value: Number) -> tuple[Number, Number]:
        """A bound and the value of an assignment for the original; None stays None."""
        return bound, value

    def result(self, result: Result) -> Result:
        """The result of the original from that of the rewritten problem.

        Raises
        ------
        InternalError : the assignment does not have its value in the original.
        """
        original, (bound, value) = self.original, self.bounds(result.bound, result.value)
        assignment = None if result.assignment is None else self.lift(result.assignment)
        if self.is_checked:
            check_solution(original, value, assignment, f"postsolve of {self.name}")
        return replace(
            result,
            value=value,
            bound=bound,
            assignment=assignment,
            order=self.lift_order(result.order),
            variables=original.variables,
            semiring=original.semiring.name,
            sense=original.sense,
            notes=(*result.notes, *filter(None, [self.summary])),
            presolve=(self.removals, *result.presolve),
        )


@dataclass(frozen=True)
class Stack:
    """Reformulations of a problem, one after the other.

    Attributes
    ----------
    original : the problem before all entries. entries : the first one at the front.
    keeps_counts : whether entries that may lose feasible assignments are skipped, as for counts and k best.
    """

    original: Problem
    entries: tuple[Reformulation, ...] = ()
    keeps_counts: bool = field(default=False, kw_only=True)

    @property
    def problem(self) -> Problem:
        """The problem after all entries."""
        return self.entries[-1].problem if self.entries else self.original

    def then(self, entry: Reformulation) -> Stack:
        """The stack with another entry; unchanged if the entry rewrites nothing."""
        return self if entry.problem is entry.original else replace(self, entries=(*self.entries, entry))

    def admits(self, kind: type[Reformulation]) -> bool:
        """Whether entries of a class may be added."""
        return kind.keeps_counts or not self.keeps_counts

    @property
    def steps(self) -> tuple[PresolveStep, ...]:
        """The removals of each entry."""
        return tuple(entry.removals for entry in self.entries)

    def lift(self, assignment: Sequence[int]) -> tuple[int, ...]:
        """An assignment of the original from one of the problem."""
        for entry in reversed(self.entries):
            assignment = entry.lift(assignment)
        return tuple(assignment)

    def lift_order(self, order: Sequence[int]) -> tuple[int, ...]:
        """An order of the original's variables from one of the problem; () without."""
        for entry in reversed(self.entries):
            order = entry.lift_order(order)
        return tuple(order)

    def result(self, result: Result) -> Result:
        """The result of the original from that of the problem; errors as for :meth:`Reformulation.result`."""
        for entry in reversed(self.entries):
            result = entry.result(result)
        return result

    def report(self, target: Report) -> Report:
        """A report of the problem's bounds and incumbents to a target that expects those of the original."""

        def report(bound: Number, value: Number, why: str, assignment: tuple[int, ...] | None) -> None:
            for entry in reversed(self.entries):
                bound, value = entry.bounds(bound, value)
            target(bound, value, why, None if assignment is None else self.lift(assignment))

        return report

    @property
    def summary(self) -> str:
        """The summaries of the entries."""
        return "; ".join(filter(None, (entry.summary for entry in self.entries)))


def _sizes(problem: Problem) -> tuple[int, int, int, int]:
    """Variables, values of all variables, functions and constraints, and listed rows."""
    listed = [len(f.tuples) for f in problem.functions] + [len(c.tuples) for c in problem.constraints]
    return len(problem.variables), sum(problem.sizes), len(listed) + len(problem.linear_constraints), sum(listed)
