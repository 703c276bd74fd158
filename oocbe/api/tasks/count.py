"""The exact numbers of feasible and of optimal assignments, of any size.

Feasible ones: one forward pass in integers. A message's counts have as many *limbs* (:mod:`oocbe.tables.numbers`) as
its greatest one may need: the greatest counts of a bucket's tables give an upper bound before they are joined. Most
messages have counts that fit int64 and are joined like any others, by the fastest method; the others are joined as
rows. Joined messages are not needed again, and are deleted if memory is short.

Rows may carry their consumption of linear constraints. A row then also sums over all ways to share its consumption
among the messages of its bucket.

Optimal ones: every bucket's value is the one stored in its message. A backward pass over the tables marks the rows of
optimal assignments, with all best values of the bucket's variable: the *ties*. A forward pass over the marked rows
computes the number of their completions below. It uses floating-point numbers if they are exact up to the count, the
largest number, and Python integers otherwise.

Clauses are preprocessed, then counted by elimination or a search, whichever the predicted rows favour
(:func:`count_clauses`). Preprocessing (:mod:`oocbe.counting.presolve`) makes many problems small enough for
elimination. Beyond ``tuning().searched_rows`` predicted rows, a search with a cache of components
(:mod:`oocbe.counting.counter`) counts: its time depends on the components that occur, and not on the assignments of
separators. An order, a form of tables, a device or workers that a user chooses belong to elimination, and exclude both.

Weighted and projected counts are exact fractions, or floats. The weights of a variable are scaled to coprime integers;
the count of these is an integer, computed as any other, and the product of all scales is a fraction. The weights of a
variable are a table of one column in its bucket. Zero weights forbid their value.

Integers below zero are residues modulo a power of two that exceeds twice every possible sum. The limbs of counts are
unsigned and truncated, so they compute with residues as they are.

A projection eliminates the hidden variables first, by "or": a message's row is one if any value completes it. The shown
ones are then summed. So permitted orders have two blocks.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from oocbe.api.tasks.questions import problem_of_task
from oocbe.api.tasks.result import finished, task_result
from oocbe.api.tasks.tables import Tables, compute_tables, descend, ties, with_walks
from oocbe.counting.counter import count_formula, depth_scores
from oocbe.counting.presolve import Formula, Presolved, formula_of, presolve, problem_of
from oocbe.elimination.buckets.assignment import backward_pass
from oocbe.elimination.buckets.bucket_message import MessageMaker
from oocbe.elimination.buckets.buckets import Bucket, Evaluated
from oocbe.elimination.buckets.message import Message
from oocbe.elimination.buckets.messages import MessageStore
from oocbe.elimination.buckets.resources import message_memory
from oocbe.elimination.engine.consumption import carried_in_rows
from oocbe.elimination.observer import Observer
from oocbe.elimination.orders.order import CRITERIA, OrderChoice, is_order_file, judge_order, read_order, search_orders
from oocbe.elimination.outcome import outside_of_floats, unscaled
from oocbe.elimination.preparation.prepare import Prepared, ScopedTable, sorted_table
from oocbe.elimination.preparation.ranges import rounding_margin
from oocbe.elimination.preparation.upper_bound import hard_part, what_forbids
from oocbe.elimination.reformulation import Stack
from oocbe.errors import UnsupportedError, UsageError
from oocbe.junction_trees.explanations import constrained_order
from oocbe.model.count_question import CountQuestion
from oocbe.model.parts import Constraint, Function
from oocbe.model.problem import Problem
from oocbe.model.results.numerals import logarithm_of
from oocbe.model.results.progress_curve import PresolveStep
from oocbe.model.results.task_result import TaskResult
from oocbe.model.semiring import COUNTING, Marginalisation
from oocbe.model.settings.options import SolveOptions
from oocbe.model.settings.tuning import tuning
from oocbe.runtime.deadline import Deadline, suppressed_limit
from oocbe.tables.numbers import LIMB_BITS, limbs_for, of_integers

PRESOLVE_SECONDS, PRESOLVE_SHARE = 60.0, 0.2
"""Time limit of preprocessing, in seconds, and as a share of the time that is left."""


def count_clauses(
    problem: Problem,
    options: SolveOptions,
    eliminate: Callable[[Problem, Sequence[int]], TaskResult] | None = None,
    weights: Mapping[int, Sequence[int]] = MappingProxyType({}),
    hidden: Collection[int] = (),
    model_found: Callable[[], None] | None = None,
) -> TaskResult | None:
    """The number of feasible assignments of a problem whose parts are clauses; None for other problems and options.

    eliminate : counts the preprocessed problem, with this order, by elimination; None: the search counts.
    weights : by variable, integers for its values; others weigh 1. hidden : variables that are projected out.
    model_found : called as soon as there is a model, before the count.
    Raises TimeLimitError: the limit passed; ResourceError: the memory does not suffice; UnsupportedError: an upper
    bound that sums can reach.
    """
    if _is_excluded(options):
        return None
    with Deadline(options.time_limit) as deadline:
        begin = time.perf_counter()
        formula = formula_of(what_forbids(problem))
        if formula is None:
            return None
        formula = _weighted(formula, weights, hidden)
        most = min(PRESOLVE_SECONDS, PRESOLVE_SHARE * deadline.remaining)
        is_found = model_found is None
        if model_found is not None:  # before the preprocessing, which takes longer for many clauses
            with Deadline(most), suppressed_limit():
                if is_found := _has_model(formula, options):
                    model_found()
        presolved = presolve(formula, most)
        reduced = problem_of(presolved.formula, problem.name)
        between = time.perf_counter()
        choice = _order(reduced, options, deadline)
        seconds = {"presolve": between - begin, "order": time.perf_counter() - between}
        if not is_found and model_found is not None and _has_model(presolved.formula, options):
            model_found()
        if eliminate is not None and choice is not None and choice.cost() <= tuning().searched_rows:
            found = eliminate(reduced, choice.order)
            value = int(found.value or 0) * presolved.formula.multiplier
        else:
            found = _searched(presolved.formula, problem, options, choice)
            value = int(found.value or 0)
        has_negative = formula.weights is not None and any(min(pair) < 0 for pair in formula.weights)
        is_feasible = value != 0 or (has_negative and _has_model(formula, options))
    return replace(
        found,
        semiring=problem.semiring.name,
        variables=problem.variables,
        status="exact" if is_feasible else "infeasible",
        value=value,
        log10=None,
        order=_lifted(presolved, found.order, len(problem.variables)),
        seconds={**found.seconds, **seconds},
        presolve=(_step(formula, presolved.formula),),
    )


def clauses_left(
    problem: Problem,
    options: SolveOptions,
    seconds: float,
    weights: Mapping[int, Sequence[int]] = MappingProxyType({}),
    hidden: Collection[int] = (),
) -> tuple[Problem, PresolveStep, Formula] | None:
    """The problem after preprocessing, the step, and the formula; None where :func:`count_clauses` does not count."""
    if _is_excluded(options) or (formula := formula_of(what_forbids(problem))) is None:
        return None
    with Deadline(None):  # loops are compiled beyond the seconds
        left = presolve(_weighted(formula, weights, hidden), seconds).formula
    return problem_of(left, problem.name), _step(formula, left), left


def _is_excluded(options: SolveOptions) -> bool:
    return options.order != "auto" or options.tables != "auto" or options.backend == "cuda" or options.has_workers


def _weighted(formula: Formula, weights: Mapping[int, Sequence[int]], hidden: Collection[int]) -> Formula:
    """The formula with weights and hidden variables."""
    shown = formula.shown.copy()
    shown[list(hidden)] = False
    if not weights:
        return replace(formula, shown=shown)
    pairs = [(1, 1)] * formula.variables
    for v, (of_false, of_true) in weights.items():
        pairs[v] = of_true, of_false
    return replace(formula, shown=shown, weights=tuple(pairs))


def _has_model(formula: Formula, options: SolveOptions) -> bool:
    """Whether a formula whose count is 0 has a model: negative weights may cancel out."""
    hidden = replace(formula, shown=np.zeros_like(formula.shown), weights=None)
    return count_formula(hidden, np.zeros(formula.variables), message_memory(options)).value != 0


def _order(reduced: Problem, options: SolveOptions, deadline: Deadline) -> OrderChoice | None:
    """The best order found; None for no variables."""
    if not reduced.variables or any(not c.scope for c in reduced.constraints):
        return None
    return search_orders(reduced, "auto", options.order_seconds, options.seed, deadline=deadline)[0]


def _searched(formula: Formula, problem: Problem, options: SolveOptions, choice: OrderChoice | None) -> TaskResult:
    """The count by search."""
    begin = time.perf_counter()
    scores = np.zeros(formula.variables) if choice is None else depth_scores(choice.order, choice.separators)
    counted = count_formula(formula, scores, message_memory(options))
    note = (
        f"counted by a search: {counted.decisions:,} decisions, {counted.conflicts:,} conflicts; "
        f"{counted.hits:,} components were in its cache"
    )
    return task_result(
        "count",
        problem,
        value=counted.value,
        width=0 if choice is None else max(map(len, choice.separators), default=0),
        dtype="int64",
        seconds={"forward": time.perf_counter() - begin},
        notes=(note,) if counted.decisions else (),
    )


def _lifted(presolved: Presolved, order: Sequence[int], variables: int) -> tuple[int, ...]:
    """An order of all variables, those removed by preprocessing first; a search has no order, and gives theirs."""
    if not order:
        return tuple(range(variables))
    removed = sorted(set(range(variables)).difference(presolved.variables))
    return (*removed, *(presolved.variables[v] for v in order))


def _step(before: Formula, after: Formula) -> PresolveStep:
    variables, clauses = before.variables - after.variables, len(before.clauses) - len(after.clauses)
    return PresolveStep("clauses", variables, 2 * variables, clauses, clauses)


class CountMaker(MessageMaker):
    """Messages of exact counts, in as many limbs as they need; joined ones may be deleted."""

    def __init__(self, prepared: Prepared, dominance: bool, store: MessageStore, *rest: Any) -> None:
        super().__init__(prepared, dominance, store, *rest)
        store.forgets = _forget

    def check_range(self, bucket: Bucket) -> None:
        """No check: counts have as many limbs as they need."""

    def limbs(self, bucket: Bucket) -> int:
        """Limbs for the product of the greatest joined counts, times the domain size of the variable and the ways to
        share a consumption among the messages."""
        messages, size = bucket.messages, self._prepared.problem.sizes[bucket.variable]
        bound = size * self.shares(bucket) * math.prod(max(1, m.largest_magnitude()) for m in messages)
        # Counts of limbs that were written in pieces may be small, and are no plain numbers.
        return limbs_for(bound) or int(any(m.has_limbs for m in messages))


def _forget(message: Message) -> bool:
    message.forget()
    return True


def count(problem: Problem, options: SolveOptions, observer: Observer | None = None) -> TaskResult:
    """The number of feasible assignments.

    Raises UnsupportedError: see :func:`oocbe.api.tasks.tables.compute_tables`, and an upper bound that sums can reach.
    """
    found = count_clauses(problem, options, lambda left, order: count_tables(left, options, observer, order))
    return found or count_tables(problem, options, observer)


def count_tables(
    problem: Problem, options: SolveOptions, observer: Observer | None = None, known: Sequence[int] = ()
) -> TaskResult:
    """The same by elimination; ``known`` : an order from an earlier search, in place of a long one."""
    counted = problem_of_task("count", problem)
    with compute_tables(counted, options, observer, carries=True, known=known, maker=CountMaker) as tables:
        value = tables.outcome.value
    if value is None:
        return finished("count", problem, tables, 0, status="infeasible")
    assert isinstance(value, int)
    return finished("count", problem, tables, value, dtype=tables.prepared.dtype.name)


EXACT = 2.0**52
"""Limit up to which sums and products of integers are exact in float64."""


Ties: TypeAlias = list[tuple[NDArray[np.int64], list[NDArray[np.int64]]]]
"""Marked rows of a bucket, and their places in each of its messages, a pair for each block of rows."""


def count_optimal(problem: Problem, options: SolveOptions, observer: Observer | None = None) -> TaskResult:
    """The number of optimal assignments.

    Floating-point values that differ by no more than rounding errors count as equal.

    Raises errors of :func:`oocbe.api.tasks.tables.compute_tables`.
    """
    tables = compute_tables(problem, options, observer)
    margin = rounding_margin(problem) if problem.semiring.one == 0 else RELATIVE_MARGIN
    marked: dict[int, Ties] = {}

    def share(bucket: Bucket, rows: NDArray[np.int64], _: NDArray[Any], evaluated: Evaluated) -> NDArray[Any]:
        tight = ties(tables, evaluated, margin)
        tight_rows = np.broadcast_to(rows[:, None], tight.shape)[tight]
        marked.setdefault(bucket.variable, []).append((tight_rows, [places[tight] for places in evaluated.places]))
        return tight

    with tables:
        value, notes = unscaled(tables.outcome, problem.semiring)
        if value is None or not _counts(tables, problem, value):
            return finished("count-optimal", problem, tables, 0, status="infeasible")
        descend(tables, np.True_, np.False_, np.logical_or, share)
        with np.errstate(over="ignore"):  # an overflow exceeds EXACT
            ways = _ways(tables, marked, np.dtype(np.float64))
        if ways > EXACT:
            ways = _ways(tables, marked, np.dtype(object))
        return finished("count-optimal", problem, tables, int(ways), optimum=value, notes=notes)


def _counts(tables: Tables, problem: Problem, value: int | float) -> bool:
    """Whether the optimum is within the problem's bound; near the bound, the problem itself evaluates it."""
    bound = problem.upper_bound if problem.lower_bound is None else problem.lower_bound
    if bound is None:
        return True
    if abs(value - bound) > rounding_margin(problem):
        return (value < bound) == (problem.lower_bound is None)
    outcome = tables.outcome
    assignment = backward_pass(tables.prepared, outcome.buckets, outcome.recomputation, tables.deadline)
    return problem.evaluate(assignment) is not None


RELATIVE_MARGIN = 2.0**-40
"""Maximum relative difference of two products by rounding."""


def _ways(tables: Tables, marked: dict[int, Ties], dtype: np.dtype[Any]) -> Any:
    """Number of completions of every marked row, from the first bucket on; returns the product over root buckets."""
    ways: dict[int, tuple[NDArray[np.int64], NDArray[Any]]] = {}
    total: Any = 1
    for bucket in tables.outcome.buckets:
        own = bucket.sent
        tables.deadline.check()
        found = marked[bucket.variable]
        rows = np.concatenate([own_rows for own_rows, _ in found])
        product = np.full(len(rows), 1, dtype=dtype)
        for m, message in enumerate(bucket.messages):
            if message.is_filtered:
                known, below = ways.pop(id(message))
                product = product * below[np.searchsorted(known, np.concatenate([places[m] for _, places in found]))]
        known, group = np.unique(rows, return_inverse=True)
        summed = np.full(len(known), 0, dtype=dtype)
        np.add.at(summed, group, product)
        if own is None:
            total = total * summed[0]
        else:
            ways[id(own)] = known, summed
    return total


def asks_weights(task: str, problem: Problem, options: SolveOptions) -> bool:
    """Whether :func:`weighted_count` answers: a count of a file with a further question, or in floats.

    UnsupportedError : the file has a question that the task would leave out.
    """
    is_weighted = task == "count" and (problem.counting is not None or options.float_counts)
    if not is_weighted or problem.counting is None:
        problem.refuse_question(f"the task {task}")
    return is_weighted


def forbid_zero_weights(problem: Problem) -> Problem:
    """The problem without the values of shown variables that weigh 0.

    Raises UnsupportedError: a variable with weights is missing: a reduced problem does not have the fixed ones.
    """
    question = question_of(problem)
    missing = question.weights.keys() - problem.number_by_name.keys()
    if missing:
        raise UnsupportedError(
            f"{problem.name}: variable {min(missing)} has weights, and is not in the problem; count the original one"
        )
    zeros = [
        Constraint((v,), np.array([[value]]))
        for v, variable in enumerate(problem.variables)
        for value in range(variable.size)
        if question.weight(variable, value) == 0
    ]
    return replace(problem, constraints=(*problem.constraints, *zeros)) if zeros else problem


def question_of(problem: Problem) -> CountQuestion:
    """The question of the problem's file; without any, the plain count."""
    return problem.counting or CountQuestion()


@dataclass(frozen=True)
class ScaledWeights:
    """Scaled weights of a problem's shown variables.

    values : by variable, coprime integers for its values; variables of equal weights are left out.
    scale : the weight of an assignment is the product of its integers and this fraction.
    hidden : variables that are projected out. most : upper bound of the absolute sum of the products.
    """

    values: dict[int, list[int]]
    scale: Fraction
    hidden: frozenset[int]
    most: int

    @classmethod
    def of(cls, stack: Stack) -> ScaledWeights:
        """Weights of the variables that are left by a stack; the scale includes those of fixed ones."""
        problem, original = stack.problem, stack.original
        question = question_of(original)
        left = {variable.name for variable in problem.variables}
        fixed = zip(original.variables, stack.lift([0] * len(problem.variables)), strict=True)
        scales = [question.weight(variable, value) for variable, value in fixed if variable.name not in left]
        found: dict[int, list[int]] = {}
        sums: list[int] = []
        for v, variable in enumerate(problem.variables):
            if not question.shows(variable):
                continue
            own = [question.weight(variable, value) for value in range(variable.size)]
            common = math.lcm(*(weight.denominator for weight in own))
            numbers = [int(weight * common) for weight in own]
            divisor = math.gcd(*numbers) or 1
            numbers = [number // divisor for number in numbers]
            if len(set(numbers)) > 1:
                found[v] = numbers
            elif numbers[0] < 0:
                scales.append(Fraction(-1))
            scales.append(Fraction(divisor, common))
            sums.append(sum(map(abs, numbers)) or 1)
        hidden = frozenset(v for v, variable in enumerate(problem.variables) if not question.shows(variable))
        scale = Fraction(math.prod(s.numerator for s in scales), math.prod(s.denominator for s in scales))
        return cls(found, scale, hidden, math.prod(sums))

    @property
    def are_mixed(self) -> bool:
        """Whether some integers are negative."""
        return any(min(own) < 0 for own in self.values.values())

    @cached_property
    def most_limbs(self) -> int | None:
        """Limbs of residues, 0 for plain int64; None if all integers are at least 0."""
        return limbs_for(2 * self.most) if self.are_mixed else None

    @property
    def modulus(self) -> int:
        """Modulus of the residues; residues of at least half of it are negative numbers."""
        return 1 << LIMB_BITS * (self.most_limbs or 1)

    def tables(self, prepared: Prepared) -> Iterator[ScopedTable]:
        """Tables of the weights, for the buckets of their variables."""
        for v, own in self.values.items():
            kept = [value for value, number in enumerate(own) if number]
            scoped = sorted_table(prepared, (v,), np.array(kept)[:, None], np.ones(len(kept), dtype=np.int64))
            yield replace(scoped, table=replace(scoped.table, values=self._in_limbs([own[value] for value in kept])))

    def _in_limbs(self, numbers: Sequence[int]) -> NDArray[Any]:
        if self.most_limbs == 0:
            return np.array(numbers, dtype=np.int64)
        return of_integers([number % self.modulus for number in numbers] if self.most_limbs else numbers)

    def functions(self) -> Iterator[Function]:
        """The weights as floats; each variable's are scaled to at most 1. Too small ones are not 0, and are refused."""
        for v, own in self.values.items():
            kept = [value for value, number in enumerate(own) if number]
            most = max(map(abs, own))
            shares = [float(Fraction(own[x], most)) or math.ulp(0.0) for x in kept]
            yield Function((v,), np.array(kept)[:, None], np.array(shares))


class _Projecting(MessageMaker):
    """Messages of a projected count: hidden variables are eliminated by "or"."""

    def __init__(self, prepared: Prepared, *rest: Any) -> None:
        super().__init__(prepared, *rest)
        question = question_of(prepared.problem)
        self._hidden = {v for v, variable in enumerate(prepared.problem.variables) if not question.shows(variable)}
        one_each = replace(prepared.semiring, marginalisation=Marginalisation.MAX)  # all values are equal
        self._or = MessageMaker(replace(prepared, semiring=one_each), *rest) if self._hidden else self

    def make(self, place: int, bucket: Bucket, subtree: NDArray[np.uint8]) -> tuple[Message, int]:
        """The message of a bucket, as in the base class."""
        if bucket.variable in self._hidden:
            return self._or.make(place, bucket, subtree)
        return super().make(place, bucket, subtree)


class _ExactMaker(_Projecting, CountMaker):
    """Messages of weighted counts, in as many limbs as they need, and at most ``weights.most_limbs``."""

    def __init__(self, weights: ScaledWeights, prepared: Prepared, *rest: Any) -> None:
        prepared.tables += weights.tables(prepared)
        super().__init__(prepared, *rest)
        self._most_limbs = weights.most_limbs

    def limbs(self, bucket: Bucket) -> int:
        """Limbs for the message, as in the base class."""
        if self._most_limbs == 0:
            return 0
        needed = super().limbs(bucket)
        return needed if self._most_limbs is None else min(needed, self._most_limbs)


def weighted_count(stack: Stack, options: SolveOptions, observer: Observer | None = None) -> TaskResult:
    """The weighted and projected number of feasible assignments of a stack's original; the result is of its problem.

    Raises UnsupportedError: a hidden variable in a linear constraint with too many partial sums; else as for
    :func:`count`; UsageError: an order file without the hidden variables first.
    """
    problem, question = stack.problem, question_of(stack.original)
    weights = ScaledWeights.of(stack)
    if not options.float_counts:
        counts = count_clauses(problem, options, None, weights.values, weights.hidden)
        if counts is not None:
            exact = weights.scale * Fraction(counts.value or 0)
            notes = (*question.notes, *counts.notes)
            answer = exact if "w" in question.kind else int(exact)
            return replace(counts, value=answer, log10=None, kind=question.kind, notes=notes)
    counted, orders = tables_of_count(problem, weights, options)
    maker = _Projecting if options.float_counts else partial(_ExactMaker, weights)
    settings: dict[str, Any] = {"carries": True, "orders": orders, "maker": maker}
    with compute_tables(counted, options, observer, **settings) as tables:
        found, exponent = tables.outcome.value, tables.outcome.exponent
    more: dict[str, Any] = {"dtype": tables.prepared.dtype.name, "notes": question.notes, "kind": question.kind}
    if not found and not (weights.are_mixed and count(problem, options).value):  # rows of terms that cancel are dropped
        more["status"] = "infeasible"
    if options.float_counts:
        most = math.prod(max(map(abs, own)) for own in weights.values.values())  # values are at most 1 times this
        value, more = _as_float(Fraction(found or 0) * weights.scale * most * Fraction(2) ** exponent, more)
        return finished("count", problem, tables, value, **more)
    total = int(found or 0)
    if weights.most_limbs:
        total %= weights.modulus
        total -= weights.modulus * (total >= weights.modulus // 2)
    exact = weights.scale * total
    return finished("count", problem, tables, exact if "w" in question.kind else int(exact), **more)


def tables_of_count(
    problem: Problem, weights: ScaledWeights, options: SolveOptions
) -> tuple[Problem, Callable[[Problem, SolveOptions], list[OrderChoice]] | None]:
    """The problem whose tables give the count, and what finds its orders, the best first; None: all are permitted.

    UnsupportedError : a hidden variable in a linear constraint with too many partial sums.
    """
    hidden = weights.hidden
    if any(not hidden.isdisjoint(problem.linear_constraints[number].scope) for number in carried_in_rows(problem)):
        # Rows of different consumption would count the same assignment of the shown variables more than once.
        own = len(problem.sizes)
        problem = with_walks(problem)
        hidden |= {*range(own, len(problem.sizes))}
    counted = hard_part(problem)
    functions = (*counted.functions, *(weights.functions() if options.float_counts else ()))
    counted = replace(counted, functions=functions, semiring=counted.semiring if options.float_counts else COUNTING)
    return counted, partial(_orders, hidden) if hidden else None


def _as_float(exact: Fraction, more: dict[str, Any]) -> tuple[float, dict[str, Any]]:
    """A count as the nearest float, and the settings of its result with the logarithm and a note if it has none."""
    logarithm = logarithm_of(exact, math.log10)
    try:
        value = float(exact)
    except OverflowError:
        value = math.inf if exact > 0 else -math.inf
    if exact and (value == 0 or math.isinf(value)):
        more = {**more, "notes": (*more["notes"], outside_of_floats(logarithm * math.log(10)))}
    return value, {**more, "log10": logarithm}


def _orders(hidden: frozenset[int], problem: Problem, options: SolveOptions) -> list[OrderChoice]:
    """The best order found in which hidden variables come first. Raises UsageError if a file names another order."""
    if is_order_file(options.order):
        given = read_order(problem, options.order)
        if set(given[: len(hidden)]) != hidden:
            raise UsageError(
                f"{options.order}: the count of {problem.name} is projected; the {len(hidden):,} variables that are "
                "not shown come first in its orders"
            )
        return [judge_order(problem, given, options.order, options.seed)]
    shown = [v for v in range(len(problem.variables)) if v not in hidden]
    order = constrained_order(problem, last=shown)
    return [replace(judge_order(problem, order, "two blocks", options.seed), candidates=len(CRITERIA))]
