"""The tables of tasks: one forward pass without dominance or bounds, stored until the task is done."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Self

from oocbe.elimination.buckets.forward import Forward, ForwardPass
from oocbe.elimination.buckets.messages import MessageStore
from oocbe.elimination.buckets.resources import engine_for, message_memory
from oocbe.elimination.engine.bucket_engine import BucketEngine
from oocbe.elimination.engine.consumption import carried_in_rows, left_out, why_left_out
from oocbe.elimination.observer import bucket_callback
from oocbe.elimination.orders.order import OrderChoice
from oocbe.elimination.plan.plan import candidate_orders, plan_of
from oocbe.elimination.preparation.prepare import Prepared, reduce_arity
from oocbe.elimination.race import Race
from oocbe.elimination.runs.durability import Run
from oocbe.errors import DiskError, UnsupportedError
from oocbe.formats.global_costs import Decomposed
from oocbe.model.parts import Constraint, LinearConstraint, Variable
from oocbe.model.problem import Problem
from oocbe.model.settings.options import SolveOptions
from oocbe.runtime.deadline import Deadline

if TYPE_CHECKING:
    from oocbe.elimination.observer import Observer


@dataclass
class Tables:
    """A finished forward pass.

    Attributes
    ----------
    prepared, outcome : of the forward pass.
    store : holds the messages.
    choice : the order. engine : that computed them. deadline : of the engine's calls, including later passes.
    seconds : wall time by phase.

    A context manager that closes the store and ends the deadline's timer.
    """

    prepared: Prepared
    outcome: ForwardPass
    store: MessageStore
    choice: OrderChoice
    engine: BucketEngine
    seconds: dict[str, float]
    deadline: Deadline

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.deadline.close()
        self.store.close(interrupted=kind is not None)


def keeping_rows(options: SolveOptions, problem: Problem) -> SolveOptions:
    """Options of an elimination in the problem's semiring that removes no feasible row."""
    return replace(options, semiring=problem.semiring, dominance=False, bounds="none")


def compute_tables(
    problem: Problem,
    options: SolveOptions,
    observer: Observer | None = None,
    *,
    carries: bool = False,
    known: Sequence[int] = (),
    orders: Callable[[Problem, SolveOptions], list[OrderChoice]] | None = None,
    forward: Callable[..., Forward] = Forward,
) -> Tables:
    """Run the forward pass in the problem's semiring, with every feasible row.

    carries : whether the task accepts rows that carry their consumption of linear constraints.
    known : an order from an earlier search, in place of a long one. orders : finds orders, the best first; None: all
        orders are permitted. forward : class that makes the messages.
    Raises UnsupportedError: a linear constraint that can bind, and does not fit the keys or, without ``carries``, has
    more variables than fit a lookup; ResourceError: messages do not fit the memory limit, or the disk is full;
    FloatRangeError: products of floats leave the range of float64; TimeLimitError: ``options.time_limit``, counted from
    here, was reached; it includes later passes of the engine.
    """
    relaxed = left_out(problem)
    if relaxed:
        raise UnsupportedError(f"{problem.name}: the task needs every constraint enforced; {why_left_out(relaxed)}")
    carried = carried_in_rows(problem)
    if carried and not carries:
        c = problem.linear_constraints[carried[0]]
        raise UnsupportedError(
            f"{problem.name}: {c.name} over {len(c.scope)} variables can bind; this task goes back over the tables, "
            "which is not supported yet where their rows carry what they consume of a linear constraint. The optimum, "
            "count and logz are exact there"
        )
    with ExitStack() as failed:
        deadline = Deadline(options.time_limit)
        failed.callback(deadline.close)
        begin = time.perf_counter()
        unpruned = keeping_rows(options, problem)
        choices = candidate_orders(problem, unpruned, deadline, known) if orders is None else orders(problem, unpruned)
        plans = cache(lambda number: plan_of(problem, choices[number], unpruned))
        if all(plans(number).disk_refusal for number in range(len(choices))):
            raise DiskError(plans(0).disk_refusal)
        ordered = time.perf_counter()
        engine = engine_for(options, deadline)
        run = Run(problem, options)
        run.memory = message_memory(options)

        def start(choice: OrderChoice) -> Callable[[int, int, int], None] | None:
            if observer is None:
                return None
            observer.started(plans(next(number for number, own in enumerate(choices) if own is choice)))
            return bucket_callback(observer, problem, choice.order)

        race = Race(problem, problem.semiring, choices, False, run, engine, tables=options.tables, forward=forward)
        for attempt in race.rounds():
            with attempt:
                # Tasks read all rows of the messages in a backward pass, so none may be deleted.
                attempt.outcome = attempt.forward.run(start(attempt.choice), may_forget=False)
        winner = race.winner
        assert winner is not None
        seconds = {"order": ordered - begin, "forward": time.perf_counter() - ordered}
        failed.pop_all()
    return Tables(winner.prepared, winner.outcome, winner.store, winner.choice, engine, seconds, deadline)


def with_walks(problem: Problem) -> Problem:
    """The problem with variables for partial sums, after its own, in place of wide linear constraints."""
    large = [*left_out(problem), *(problem.linear_constraints[number] for number in carried_in_rows(problem))]
    walks = Decomposed(list(problem.sizes))
    for own in large:
        walks.walk(own.name, own.scope, 0, _step_of(own), lambda _: 0)
    states = zip(walks.names, walks.sizes[len(problem.sizes) :], strict=True)
    tables = [Constraint(t.scope, t.tuples, t.default == math.inf) for t in walks.tables]
    decomposed = replace(
        problem,
        variables=(*problem.variables, *(Variable(f"expression.{name}", size) for name, size in states)),
        constraints=(*problem.constraints, *tables),
        linear_constraints=tuple(own for own in problem.linear_constraints if own not in large),
    )
    return reduce_arity(decomposed)


def _step_of(own: LinearConstraint) -> Callable[[int, int, int], tuple[int, int | float]]:
    """The step from a partial sum to the next one, or to the greatest one of those from which nothing is too much."""
    least, most = ([0, *itertools.accumulate(reversed(ends))][::-1] for ends in own.ends)

    def step(place: int, total: int, value: int) -> tuple[int, int | float]:
        total += int(own.coefficients[place][value])
        if total + least[place + 1] > own.capacity:
            return 0, math.inf
        return max(total, own.capacity - most[place + 1]), 0

    return step
