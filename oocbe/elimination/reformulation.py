"""Reformulations of a problem, and their postsolve: the entries of one stack, as in other solvers' presolve.

Each step before elimination rewrites the problem: penalties become constraints, propagation removes values, floats
become integers, products become sums of logarithms, maximisation becomes minimisation. An entry maps assignments,
values and bounds of the rewritten problem back to the original, and options to the rewritten problem. A stack applies
its entries in order, and maps back in reverse order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeVar

from numpy.typing import NDArray

from oocbe.elimination.preparation.ranges import rounding_margin
from oocbe.elimination.solution_check import check_solution
from oocbe.model.parts import Constraint, Function
from oocbe.model.problem import Problem
from oocbe.model.results.progress_curve import PresolveStep
from oocbe.model.results.result import UNPROVEN, Result
from oocbe.model.row_numbers import MOST_AXES
from oocbe.model.semiring import MAX_SUM, MIN_SUM, Combination, Marginalisation
from oocbe.model.settings.options import SolveOptions
from oocbe.runtime.deadline import looked

Number = int | float | None

Report = Callable[[Number, Number, str, tuple[int, ...] | None], None]
"""Called with (bound, incumbent value, method, incumbent) whenever one of them changes."""


@dataclass(frozen=True)
class Reformulation:
    """A rewritten problem. The base class is for rewritten functions and constraints, with the same optimum.

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

    def lower(self, assignment: Sequence[int], /) -> tuple[int, ...] | None:
        """The assignment of the rewritten problem that :meth:`lift` makes one of the original of; None without."""
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
        """The original's result from the rewritten problem's; InternalError: the assignment has not its value there."""
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

    original : the problem before all entries. entries : the first one at the front.
    keeps_counts : whether entries that may lose feasible assignments are skipped, as for counts and k best.
    known : a feasible assignment of the original, or None.
    """

    original: Problem
    entries: tuple[Reformulation, ...] = ()
    keeps_counts: bool = field(default=False, kw_only=True)
    known: tuple[int, ...] | None = field(default=None, kw_only=True)

    @property
    def problem(self) -> Problem:
        """The problem after all entries."""
        return self.entries[-1].problem if self.entries else self.original

    def then(self, entry: Reformulation) -> Stack:
        """The stack with another entry; unchanged if the entry rewrites nothing."""
        return self if entry.problem is entry.original else replace(self, entries=(*self.entries, entry))

    def minimised(self) -> Reformulation:
        """The last problem as one that minimises."""
        return Negation.of(self.problem)

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

    @property
    def known_left(self) -> tuple[int, ...] | None:
        """The known assignment as one of the problem; None without, and where an entry has removed its values."""
        left = self.known
        for entry in self.entries:
            left = None if left is None else entry.lower(left)
        return left

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
            target(bound, value, why, None if assignment is None or value is None else self.lift(assignment))

        return report

    @property
    def summary(self) -> str:
        """The summaries of the entries."""
        return "; ".join(filter(None, (entry.summary for entry in self.entries)))


def _sizes(problem: Problem) -> tuple[int, int, int, int]:
    """Variables, values of all variables, functions and constraints, and listed rows."""
    listed = [len(f.tuples) for f in problem.functions] + [len(c.tuples) for c in problem.constraints]
    return len(problem.variables), sum(problem.sizes), len(listed) + len(problem.linear_constraints), sum(listed)


@dataclass(frozen=True)
class RoundedBound(Reformulation):
    """A problem with room for rounding below its upper bound. ub : of the options, None without.

    An assignment counts where :meth:`oocbe.model.problem.Problem.evaluate` gives it a value strictly below the upper
    bound. Elimination and searches add the same floats up in other orders, and come to sums that are a little more or
    less. So a solve searches below a bound raised by the maximum rounding error, and the problem then evaluates the
    assignment found: that is its value, and if it is not below the bound, the assignment does not count. So a result,
    the problem's evaluation of its assignment, and :func:`oocbe.verify` agree.

    Assignments whose sums differ only by rounding are not distinguished: if one of them is below the bound, but another
    one is found that is not, nothing counts.
    """

    ub: Number = None

    @classmethod
    def of(cls, problem: Problem, ub: Number) -> RoundedBound:
        """The reformulation of a problem with its own upper bound, or that of the options."""
        return cls(problem, _with_room(problem), ub, name="rounding")

    def result(self, result: Result) -> Result:
        """The result with the problem's own value of its assignment, and without one that does not count."""
        problem = self.original
        if result.status == "nothing-better":
            result = replace(result, bound=self.ub)
        if problem.lower_bound is not None:
            result = _above(result, problem, problem.lower_bound)
        adds = problem.semiring.combination is Combination.ADD
        if result.assignment is None or problem.is_integral or not adds:
            return result
        value = problem.evaluate(result.assignment)
        if value is None:
            note = f"the least sum that was found is not below the upper bound of {problem.upper_bound}"
            result = replace(result, value=None, assignment=None, notes=(*result.notes, note))
            if result.status in UNPROVEN:
                return result
            if self.ub is None:
                return replace(result, status="infeasible", bound=None)
            return replace(result, status="nothing-better", bound=self.ub)
        if not math.isfinite(value):
            return result
        if result.bound is None or result.status not in UNPROVEN:
            return replace(result, value=value, bound=None if result.bound is None else value)
        choose = min if result.sense == "min" else max
        return replace(result, value=value, bound=choose(result.bound, value))


def _with_room(problem: Problem) -> Problem:
    """The problem with an upper bound so much higher that no sum which counts is rounded to reach it.

    A lower bound of sums to maximise is left out: either the greatest sum is above it, or none is.
    """
    if problem.lower_bound is not None:
        problem = replace(problem, lower_bound=None)
    if problem.upper_bound is None:
        return problem
    margin = rounding_margin(problem)
    bound = math.nextafter(problem.upper_bound + margin, math.inf) if margin else problem.upper_bound
    return problem.below(bound) if margin and math.isfinite(bound) else problem


def _above(result: Result, problem: Problem, bound: int | float) -> Result:
    """The result without an assignment that is not above the lower bound; infeasible where none can be."""
    if result.assignment is not None and problem.evaluate(result.assignment) is None:
        note = f"the greatest sum that was found is not above the lower bound of {bound}"
        is_proven = result.status not in UNPROVEN
        result = replace(result, value=None, assignment=None, notes=(*result.notes, note))
        if is_proven:
            return replace(result, status="infeasible", bound=None)
    if result.status in UNPROVEN and result.bound is not None and result.bound <= bound:
        return replace(result, status="infeasible", bound=None)
    return result


def scaled(problem: Problem, factor: int | float) -> Problem:
    """The problem with all values, of functions and the constant, multiplied by a factor."""
    functions = []
    for f in looked(problem.functions):
        values: Any = f.values * factor
        functions.append(Function(f.scope, f.tuples, values, None if f.default is None else f.default * factor))
    return replace(problem, functions=tuple(functions), constant=problem.constant * factor)


def negated(problem: Problem) -> Problem:
    """A max-sum problem in min-sum, or vice versa: the same assignments, each worth the negative of its value.

    A lower bound becomes an upper one, which means something in min-sum only, or vice versa.
    """
    is_maximised = problem.semiring.marginalisation is Marginalisation.MAX
    bound = problem.lower_bound if is_maximised else problem.upper_bound
    opposite = None if bound is None else -bound
    return replace(
        scaled(problem, -1),
        semiring=MIN_SUM if is_maximised else MAX_SUM,
        upper_bound=opposite if is_maximised else None,
        lower_bound=None if is_maximised else opposite,
    )


class Negation(Reformulation):
    """A problem as one that minimises: one that maximises is negated, any other is unchanged."""

    @classmethod
    def of(cls, problem: Problem) -> Reformulation:
        """The reformulation of a problem."""
        if problem.semiring.marginalisation is not Marginalisation.MAX:
            return Reformulation(problem, problem)
        return cls(problem, negated(problem), name="negation")

    def bounds(self, bound: Number, value: Number) -> tuple[Number, Number]:
        """The negatives."""
        return None if bound is None else -bound, None if value is None else -value


Part = TypeVar("Part", Function, Constraint)


def reduce_arity(problem: Problem) -> Problem:
    """A problem whose scopes of more than :data:`MOST_AXES` variables are reduced to those of several values, and those
    of linear constraints likewise.

    Functions and constraints are made arrays with an axis a variable where they have few cells. With that many
    variables of several values no array is small enough; those of one value change nothing about a part, but a linear
    constraint's capacity.
    """
    arities = [*(len(f.scope) for f in problem.functions), *(len(c.scope) for c in problem.constraints)]
    if max(arities, default=0) <= MOST_AXES and (not problem.linear_constraints or 1 not in problem.sizes):
        return problem
    functions = tuple(_narrowed(problem, f) for f in problem.functions)
    constraints = tuple(_narrowed(problem, c) for c in problem.constraints)
    fixed = {v: 0 for v, size in enumerate(problem.sizes) if size == 1}
    linear = tuple(c.without(fixed) for c in problem.linear_constraints)
    return replace(problem, functions=functions, constraints=constraints, linear_constraints=linear)


def _narrowed(problem: Problem, part: Part) -> Part:
    if len(part.scope) <= MOST_AXES:
        return part
    axes = [axis for axis, v in enumerate(part.scope) if problem.sizes[v] > 1]
    return replace(part, scope=tuple(part.scope[axis] for axis in axes), tuples=part.tuples[:, axes])
