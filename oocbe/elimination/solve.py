"""Solve a problem: plan, forward pass, backward pass, result."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from oocbe.elimination.assignment import backward_pass
from oocbe.elimination.forward import ForwardPass
from oocbe.elimination.messages import MessageStore
from oocbe.elimination.order import OrderChoice
from oocbe.elimination.plan import candidate_plans
from oocbe.elimination.prepare import is_tabulated
from oocbe.elimination.race import Finish, race
from oocbe.errors import UnsupportedError
from oocbe.machine import peak_memory, resident_memory
from oocbe.operators.bucket_engine import BucketEngine
from oocbe.options import SolveOptions
from oocbe.problem import Problem
from oocbe.pruning.dominance import applies_to
from oocbe.result import LinearHandling, Result
from oocbe.semiring import Combination, Marginalisation, Semiring

if TYPE_CHECKING:
    from oocbe.observer import Observer

LEAST_BUDGET = 1 << 24
"""Bytes that messages may take even where the process itself has used up the memory limit."""


def solve(problem: Problem, options: SolveOptions, observer: Observer | None = None) -> Result:
    """Solve a problem exactly by bucket elimination.

    Parameters
    ----------
    problem : what to solve; ``options.semiring`` overrides the semiring that its values mean by themselves.
    options : settings. observer : told about the plan, every bucket and the result.

    Returns
    -------
    Result : ``optimal`` with an assignment (semirings that select), ``exact`` (others), ``infeasible``, or ``limit``
        where the optimum found violates a linear constraint that elimination does not enforce, so that it is a bound.

    Raises
    ------
    ResourceError : messages do not fit the memory limit, or the disk is full.
    ValueRangeError : values that no supported dtype can combine exactly.
    UnsupportedError : a linear constraint that can bind, in a semiring that sums over assignments, or an upper bound
        that can bind, in any semiring but min-sum.
    FormatError : the file named by ``options.order`` is no order of this problem.
    """
    semiring = options.semiring or problem.semiring
    if not _minimises(semiring) and _bound_can_bind(problem):
        raise UnsupportedError(
            f"{problem.name}: only assignments below its upper bound of {problem.upper_bound} count, and the "
            f"{semiring} semiring cannot tell them apart; solve it in min-sum, or without the upper bound"
        )
    problem = problem.in_semiring(semiring)
    relaxed = [c for c in problem.linear_constraints if c.can_bind and not is_tabulated(problem, c)]
    if relaxed and not semiring.selects:
        raise UnsupportedError(
            f"{problem.name}: {relaxed[0].name} over {len(relaxed[0].scope)} variables can bind, and elimination does "
            f"not enforce large linear constraints yet; the {semiring} semiring needs every constraint enforced"
        )
    begin = time.perf_counter()
    plans = candidate_plans(problem, options)
    forward_begin = time.perf_counter()

    def start(choice: OrderChoice) -> Callable[[int, int, int], None] | None:
        nonlocal forward_begin
        forward_begin = time.perf_counter()
        if observer is None:
            return None
        plan = next(p for p in plans if p.choice is choice)
        observer.started(plan)
        names = [problem.variables[v].name for v in choice.order]
        told = observer

        def bucket_done(number: int, rows: int, size: int) -> None:
            told.bucket_done(number, len(names), names[number - 1], rows, size)

        return bucket_done

    engine = BucketEngine(options.backend, options.device_memory)
    budget = max(LEAST_BUDGET, options.memory_limit - resident_memory())

    def make_store() -> MessageStore:
        return MessageStore(budget, options.workdir, options.chunk_rows)

    finish = race(problem, semiring, [p.choice for p in plans], options.dominance, make_store, engine, start)
    with finish.store:
        forward_end = time.perf_counter()
        outcome = finish.outcome
        assignment = None
        if outcome.value is not None and semiring.selects:
            assignment = backward_pass(finish.prepared, outcome.buckets)
        backward_end = time.perf_counter()
    result = _result(problem, semiring, options, finish, assignment, "cuda" if engine.uses_device else "cpu")
    seconds = {
        "order": forward_begin - begin,
        "forward": forward_end - forward_begin,
        "backward": backward_end - forward_end,
        "total": time.perf_counter() - begin,
    }
    result = replace(result, seconds=seconds, peak_memory_bytes=peak_memory())
    if observer is not None:
        observer.finished(result)
    return result


def _result(
    problem: Problem,
    semiring: Semiring,
    options: SolveOptions,
    finish: Finish,
    assignment: tuple[int, ...] | None,
    backend: str,
) -> Result:
    """Everything but times and memory."""
    outcome, choice = finish.outcome, finish.choice
    value, notes = _unscaled(outcome, semiring)
    if finish.attempts:
        notes += (f"{finish.attempts} runs with other orders or smaller row caps were given up before this one",)
    bound = None
    status: str = "optimal" if semiring.selects else "exact"
    if _is_worthless(problem, semiring, value):
        status, value, assignment = "infeasible", None, None
    handling, note = _linear_handling(problem, assignment)
    if note:
        notes += (note,)
    if handling == "relaxed":
        status, bound, value, assignment = "limit", value, None, None
    return Result(
        status=status,  # type: ignore[arg-type]
        value=value,
        bound=bound,
        assignment=assignment,
        variables=problem.variables,
        problem=problem.name,
        semiring=semiring.name,
        sense=semiring.marginalisation.name.lower() if semiring.selects else "sum",
        width=outcome.width,
        order=choice.order,
        largest_message_rows=outcome.largest_rows,
        total_rows=outcome.total_rows,
        seconds={},
        peak_memory_bytes=0,
        dominance=options.dominance and applies_to(semiring),
        dtype=finish.prepared.dtype.name,
        backend=backend,
        linear_constraints=handling,
        notes=notes,
    )


def _unscaled(outcome: ForwardPass, semiring: Semiring) -> tuple[int | float | None, tuple[str, ...]]:
    """The value with its power of two multiplied in, and a note where float64 cannot hold that."""
    value = outcome.value
    if value is None and semiring.counts:
        return 0, ()
    if isinstance(value, float) and value == 0 and semiring.combination is Combination.MULTIPLY:
        return value, (
            "the value is 0: terms cancel, or products underflow float64; give logarithms to tell them apart",
        )
    if value is None or outcome.exponent == 0:
        return value, ()
    try:
        scaled = math.ldexp(value, outcome.exponent)
    except OverflowError:
        scaled = math.inf
    logarithm = math.log(abs(value)) + outcome.exponent * math.log(2) if value else -math.inf
    if value and (scaled == 0 or math.isinf(scaled)):
        return scaled, (f"the value is outside the range of float64; its natural logarithm is {logarithm:.12g}",)
    return scaled, ()


def _minimises(semiring: Semiring) -> bool:
    return semiring.combination is Combination.ADD and semiring.marginalisation is Marginalisation.MIN


def _bound_can_bind(problem: Problem) -> bool:
    """Whether some assignment may reach the upper bound: the sum of the functions' largest values does."""
    if problem.upper_bound is None:
        return False
    largest = problem.constant
    for f in problem.functions:
        entries = f.values.tolist() if f.default is None else [*f.values.tolist(), f.default]
        largest += max(entries, default=0)
    return largest >= problem.upper_bound


def _is_worthless(problem: Problem, semiring: Semiring, value: int | float | None) -> bool:
    """No assignment is feasible, or none is below the upper bound that the file sets."""
    if value is None:
        return True
    return _minimises(semiring) and problem.upper_bound is not None and value >= problem.upper_bound


def _linear_handling(problem: Problem, assignment: tuple[int, ...] | None) -> tuple[LinearHandling, str]:
    """What became of the linear constraints, and a sentence about it.

    A large linear constraint that can bind is left out of elimination. The optimum of what remains is a bound, and
    where its assignment satisfies the constraint it is the optimum: the constraint is then shown not to bind. Where
    there is no assignment, because what remains is already infeasible or the semiring picks none (and so left no
    constraint out that can bind), "shown not to bind" means that the constraint was not needed for the proof.
    """
    if not problem.linear_constraints:
        return "none", ""
    loose = [c for c in problem.linear_constraints if not c.can_bind]
    relaxed = [c for c in problem.linear_constraints if c.can_bind and not is_tabulated(problem, c)]
    if assignment is None:
        return ("shown not to bind" if loose or relaxed else "enforced"), ""
    for c in relaxed:
        used = c.consumption(assignment)
        if used > c.capacity:
            return "relaxed", (
                f"{c.name}: the optimum without it uses {used} of {c.capacity}; enforcing linear constraints over more "
                "than a few variables is not supported yet, so the value is a bound only"
            )
    if relaxed:
        c = relaxed[0]
        return "shown not to bind", (
            f"{c.name}: shown not to bind, the optimum without it uses {c.consumption(assignment)} of {c.capacity}"
        )
    if loose:
        return "shown not to bind", f"{loose[0].name}: cannot bind, whatever is chosen"
    return "enforced", ""
