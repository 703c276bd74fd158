"""Solve a problem: in one loop if its tables are small, else with all strategies."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from oocbe.api.solving.history import History
from oocbe.elimination.narrow.narrow_problem import NarrowProblem, narrow_result
from oocbe.elimination.observer import Observer
from oocbe.elimination.reformulation import Reformulation, RoundedBound, Stack, reduce_arity
from oocbe.elimination.solution_check import check_linear, check_solution, checked
from oocbe.errors import FloatRangeError
from oocbe.model.problem import Problem
from oocbe.model.results.result import Result
from oocbe.model.semiring import Combination
from oocbe.model.settings.options import SolveOptions
from oocbe.runtime.deadline import unlimited
from oocbe.runtime.interruption import listening

if TYPE_CHECKING:
    from oocbe.elimination.plan.plan import Plan


def solve(
    problem: Problem, options: SolveOptions, observer: Observer | None = None, known: tuple[int, ...] | None = None
) -> Result:
    """Solve a problem exactly by bucket elimination.

    problem : the problem; ``options.semiring`` overrides its semiring.
    options : settings. observer : receives the plan, every bucket, bounds and incumbents, and the result.
    known : a feasible assignment, the first incumbent of bounds and searches; None: none.

    The status is ``optimal`` with an assignment (semirings that select), ``exact`` (others), ``infeasible``,
    ``nothing-better`` than ``options.ub``; ``limit`` with the best bound and assignment, if time, gap or memory ended
    the search, or the optimum violates a linear constraint that elimination does not enforce; or ``interrupted`` with
    the same, if a signal ended it (:mod:`oocbe.runtime.interruption`).

    Raises ResourceError: messages do not fit the memory limit, and no bound and no assignment is known; UsageError: the
    work folder is in use, or holds another run; ``options.ub`` in any semiring but min-sum; CorruptDataError: its
    record is damaged; DiskError: the disk is full, or its limit reached; TimeLimitError: the time limit was reached in
    a semiring without bounds; ValueRangeError: values that no supported dtype can combine exactly; products of floats
    beyond the range of float64 where a value is negative, or in a work folder (others are solved by their logarithms);
    UnsupportedError: a linear constraint that can bind, in a semiring that sums over assignments, or an upper bound
    that can bind, in any semiring but min-sum; FormatError: the file named by ``options.order`` is no order of this
    problem; InternalError: an assignment does not have its reported value (:mod:`oocbe.elimination.solution_check`).
    """
    begin = time.perf_counter()
    semiring = options.semiring or problem.semiring
    given = checked(problem, semiring, options).in_semiring(semiring)
    stack = Stack(given, (RoundedBound.of(given, options.ub),), known=known)
    whole = reduce_arity(stack.problem)
    stack = stack.then(Reformulation(stack.problem, whole, name="arity"))
    used, history = stack, History(observer, begin, given)

    def in_one_loop(stack: Stack, at_once: bool = False) -> tuple[Stack, Result | str | None]:
        """The result of a problem, or of its logarithms, and its stack."""
        try:
            return stack, narrow_result(stack.problem, options, begun, at_once)
        except FloatRangeError:
            if stack.problem.semiring.combination is not Combination.MULTIPLY:
                raise
            from oocbe.elimination.preparation.logarithms import OUT_OF_RANGE, Logarithms

            logarithms = Logarithms.of(stack.problem, OUT_OF_RANGE)
            return stack.then(logarithms), narrow_result(logarithms.problem, logarithms.options(options), begun)

    def begun(narrow: NarrowProblem) -> Callable[[int, int, int], None]:
        def plan() -> Plan:
            from oocbe.elimination.narrow.narrow_plan import narrow_plan

            return narrow_plan(narrow, options)

        return history.begin(narrow.problem, narrow.choice, plan)

    with listening() as interruption:
        try:
            used, result = in_one_loop(stack, at_once=True)
            if not isinstance(result, Result):
                # The rest of the program takes longer to load than a small problem to solve.
                from oocbe.propagation.propagated import presolved

                used = stack = presolved(stack, options)
                check_linear(stack.problem, semiring)
                used, result = in_one_loop(stack) if result or stack.problem.sizes != whole.sizes else (stack, None)
            if not isinstance(result, Result):
                from oocbe.api.solving.strategies import solved_or_by_logarithms

                used, result = solved_or_by_logarithms(stack, options, history, begin, interruption)
            with unlimited():
                check_solution(used.problem, result.value, result.assignment, result.bounds or "elimination")
        except BaseException as error:
            if not interruption.caused(error):
                raise
            from oocbe.api.solving.strategies import unfinished

            used, result = stack, unfinished(stack, options, history, interruption)
    return history.attach_history(used.result(result), stack.problem, options)
