"""Weighted and projected counts: exact fractions, or floats.

Clauses are preprocessed and counted by a search (:mod:`oocbe.api.tasks.clause_count`), other problems by elimination.

The weights of a variable are scaled to coprime integers; the count of these is an integer, computed as any other
(:mod:`oocbe.api.tasks.count`), and the product of all scales is a fraction. The weights of a variable are a table of
one column in its bucket. Zero weights forbid their value.

Integers below zero are residues modulo a power of two that exceeds twice every possible sum. The limbs of counts are
unsigned and truncated, so they compute with residues as they are.

A projection eliminates the hidden variables first, by "or": a message's row is one if any value completes it. The shown
ones are then summed. So permitted orders have two blocks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from oocbe.api.tasks.clause_count import count_clauses
from oocbe.api.tasks.count import CountForward, CountMaker, count
from oocbe.api.tasks.result import finished
from oocbe.api.tasks.tables import compute_tables, with_walks
from oocbe.elimination.buckets.bucket_message import MessageMaker
from oocbe.elimination.buckets.buckets import Bucket
from oocbe.elimination.buckets.forward import Forward
from oocbe.elimination.buckets.message import Message
from oocbe.elimination.engine.consumption import carried_in_rows
from oocbe.elimination.orders.order import CRITERIA, OrderChoice, is_order_file, judge_order
from oocbe.elimination.orders.order_finders import read_order
from oocbe.elimination.outcome import outside_of_floats
from oocbe.elimination.preparation.prepare import Prepared, ScopedTable, sorted_table
from oocbe.elimination.preparation.upper_bound import hard_part
from oocbe.elimination.reformulation import Stack
from oocbe.errors import UnsupportedError, UsageError
from oocbe.junction_trees.explanations import constrained_order
from oocbe.model.count_question import CountQuestion
from oocbe.model.parts import Constraint, Function
from oocbe.model.problem import Problem
from oocbe.model.results.numerals import logarithm_of
from oocbe.model.results.task_result import TaskResult
from oocbe.model.semiring import COUNTING, Marginalisation
from oocbe.model.settings.options import SolveOptions
from oocbe.tables.limbs import LIMB_BITS, limbs_for, of_integers

if TYPE_CHECKING:
    from oocbe.elimination.observer import Observer


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
        """The weights as floats; each variable's are scaled to at most 1."""
        for v, own in self.values.items():
            kept = [value for value, number in enumerate(own) if number]
            most = max(map(abs, own))
            yield Function((v,), np.array(kept)[:, None], np.array([float(Fraction(own[x], most)) for x in kept]))


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
    """Messages of weighted counts, in as many limbs as they need, and at most ``most_limbs``."""

    most_limbs: int | None = None

    def limbs(self, bucket: Bucket) -> int:
        """Limbs for the message, as in the base class."""
        if self.most_limbs == 0:
            return 0
        needed = super().limbs(bucket)
        return needed if self.most_limbs is None else min(needed, self.most_limbs)


class _ExactForward(CountForward):
    """The forward pass of a weighted count."""

    maker = _ExactMaker

    def __init__(self, weights: ScaledWeights, prepared: Prepared, *rest: Any, **named: Any) -> None:
        prepared.tables += weights.tables(prepared)
        super().__init__(prepared, *rest, **named)
        assert isinstance(self._maker, _ExactMaker)
        self._maker.most_limbs = weights.most_limbs


class _FloatForward(Forward):
    """The forward pass of a count in floats."""

    maker = _Projecting


def weighted_count(stack: Stack, options: SolveOptions, observer: Observer | None = None) -> TaskResult:
    """The weighted and projected number of feasible assignments of a stack's original; the result is of its problem.

    Raises UnsupportedError: a hidden variable in a linear constraint with too many partial sums; else as for
    :func:`oocbe.api.tasks.count.count`; UsageError: an order file without the hidden variables first.
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
    forward = _FloatForward if options.float_counts else partial(_ExactForward, weights)
    settings: dict[str, Any] = {"carries": True, "orders": orders, "forward": forward}
    with compute_tables(counted, options, observer, **settings) as tables:
        found, exponent = tables.outcome.value, tables.outcome.exponent
    more: dict[str, Any] = {"dtype": tables.prepared.dtype.name, "notes": question.notes, "kind": question.kind}
    if not found and not (weights.are_mixed and count(problem, options).value):  # rows of terms that cancel are dropped
        more["status"] = "infeasible"
    if options.float_counts:
        most = math.prod(max(map(abs, own)) for own in weights.values.values())  # values are at most 1 times this
        exact = Fraction(found or 0) * weights.scale * most * Fraction(2) ** exponent
        value, more = _as_float(exact, more)
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
        value = math.copysign(math.inf, exact)
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
