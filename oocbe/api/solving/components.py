"""Connected components of a problem, solved one after the other: their values and bounds add up.

The work of a search over the whole is the product of that over its components. Satellites that share no target, and
problems that fall apart when dominated values go, have dozens. All easy components together are one part. Each unsolved
part has a turn, and the next one is longer: one hard part does not keep the others from a bound and an assignment.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oocbe.elimination.orders.separators import Separators, least_connected
from oocbe.elimination.outcome import usage_note
from oocbe.elimination.preparation.ranges import rounding_margin
from oocbe.elimination.reformulation import Number, Reformulation
from oocbe.model.parts import Constraint, Function, LinearConstraint
from oocbe.model.problem import Problem
from oocbe.model.results.progress_curve import PresolveStep, SolverShare
from oocbe.model.results.result import UNPROVEN, LinearHandling, Result, Status
from oocbe.model.semiring import Marginalisation
from oocbe.model.settings.option_values import NO_GAP, Gap
from oocbe.model.settings.options import SolveOptions
from oocbe.runtime.deadline import Deadline, looked, unlimited
from oocbe.search.presolve import is_easy

FEW_BITS = 12
"""Logarithm to base 2 of the number of assignments up to which a component is easy without a look at its graph."""

FIRST_SECONDS, LONGER = 1.0, 4.0
"""Seconds of a part's first turn, enough for most to end, and the factor of the next: a part that is solved in its last
turn took a third of that in all earlier ones."""

HANDLINGS: tuple[LinearHandling, ...] = ("none", "shown not to bind", "enforced", "relaxed")
"""Treatments of linear constraints. The whole has the last one in this order that any of its parts has."""

NOTHING = ("infeasible", "nothing-better")
"""States of a part without an assignment that counts: the whole has none."""


Member = Function | Constraint | LinearConstraint


class Part(NamedTuple):
    """Connected components. variables : ascending. members : functions and constraints, of the whole's variables."""

    variables: list[int]
    members: list[Member]

    def problem(self, whole: Problem) -> Problem:
        """The part as a problem, with no constant and no upper bound."""
        number = {v: place for place, v in enumerate(self.variables)}
        own = [replace(member, scope=tuple(number[v] for v in member.scope)) for member in looked(self.members)]
        return replace(
            whole,
            variables=tuple(whole.variables[v] for v in self.variables),
            functions=tuple(f for f in own if isinstance(f, Function)),
            constraints=tuple(c for c in own if isinstance(c, Constraint)),
            linear_constraints=tuple(c for c in own if isinstance(c, LinearConstraint)),
            constant=0,
            upper_bound=None,
            day=None,
        )


def joined(parts: Sequence[Part]) -> Part:
    """Several parts as one."""
    variables = sorted(v for part in parts for v in part.variables)
    return Part(variables, [member for part in parts for member in part.members])


@dataclass(frozen=True)
class Component(Reformulation):
    """Some parts of a problem. numbers : theirs. variables : theirs. whole : all parts, updated."""

    numbers: tuple[int, ...]
    variables: list[int]
    whole: Components = field(repr=False)
    name: str = field(default="component", kw_only=True)

    @property
    def known(self) -> tuple[int, ...] | None:
        """The best assignments of all parts, 0 in other parts without one; None if one of these parts has none."""
        return tuple(self.whole.assignment) if self.whole.has_values(self.numbers) else None

    @property
    def bound(self) -> int | float:
        """The best bound of these parts so far."""
        return sum(self.whole._bounds[number] for number in self.numbers)

    def options(self, options: SolveOptions) -> SolveOptions:
        """The options with the gap that the other parts leave."""
        return replace(options, gap=Gap(absolute=self.whole.slack[self.numbers[0]]))

    def lift(self, assignment: Sequence[int], /) -> tuple[int, ...]:
        """The assignment with the best ones of the other parts."""
        values = dict(zip(self.variables, assignment, strict=True))
        return tuple(values.get(v, value) for v, value in enumerate(self.whole.assignment))

    def lower(self, assignment: Sequence[int], /) -> tuple[int, ...] | None:
        """The values of the part."""
        return tuple(assignment[v] for v in self.variables)

    def lift_order(self, order: Sequence[int], /) -> tuple[int, ...]:
        """(): the order of a part is none of the whole."""
        return ()

    def bounds(self, bound: Number, value: Number) -> tuple[Number, Number]:
        """Those of all parts together."""
        return self.whole.bounds(self.numbers, bound, value)

    def result(self, result: Result) -> Result:
        """The result of the whole after another result of the part."""
        self.whole.take(self, result)
        return self.whole.result()


class Components:
    """The parts of a problem, and the best bound and assignment of each.

    problem : in min-sum or max-sum. options : of its solve. count : of connected components.
    known : an assignment, perhaps not below the upper bound; None: none.
    assignment : the best values, 0 in parts without.
    """

    def __init__(
        self,
        problem: Problem,
        options: SolveOptions,
        count: int,
        parts: Sequence[Part],
        known: Sequence[int] | None = None,
    ) -> None:
        self.problem, self._options, self._count, self._parts = problem, options, count, parts
        self._is_least = problem.semiring.marginalisation is Marginalisation.MIN
        self._problems = [part.problem(problem) for part in parts]
        extremes = [own.extremes for own in self._problems]
        self._bounds: list[int | float] = [
            sum((own.least if self._is_least else own.greatest).tolist()) for own in extremes
        ]
        self._values: list[Number] = [None for _ in parts]
        self._results: list[Result | None] = [None for _ in parts]
        self._taken: list[tuple[Component, Result]] = []
        self._given_up: dict[int, int | float] = {}
        self._nothing = False
        self.assignment = [0] * len(problem.variables)
        if known is not None:
            self._offer(range(len(parts)), dict(enumerate(known)))

    @classmethod
    def of(cls, problem: Problem, options: SolveOptions, known: Sequence[int] | None = None) -> Components | None:
        """The parts of a problem; None if at most one component is not easy, or an option concerns the whole."""
        if options.order != "auto" or options.workdir is not None:
            return None
        label = labels(problem)
        bits = np.bincount(label, weights=np.log2(problem.sizes), minlength=1)
        if np.count_nonzero(bits > FEW_BITS) < 2:
            return None
        order = np.argsort(label, kind="stable")
        roots, starts = np.unique(label[order], return_index=True)
        variables = np.split(order, starts[1:])
        components = {root: Part(own.tolist(), []) for root, own in zip(roots.tolist(), variables, strict=True)}
        for member in looked(_connecting(problem)):
            components[int(label[member.scope[0]]) if member.scope else 0].members.append(member)
        easy: list[Part] = []
        hard: list[Part] = []
        for root in sorted(components, key=lambda root: bits[root]):
            part = components[root]
            is_small = bits[root] <= FEW_BITS
            (easy if is_small or is_easy(part.problem(problem)) else hard).append(part)
        parts = [joined(easy), *hard] if easy else hard
        return cls(problem, options, len(components), parts, known) if len(hard) >= 2 else None

    @property
    def summary(self) -> str:
        """Numbers of parts and components, for a plan."""
        return f"{len(self._parts):,} parts of {self._count:,} connected components"

    def turns(self, deadline: Deadline) -> Iterator[tuple[Component, float | None]]:
        """The unsolved parts in turn, and the seconds of each turn, until nothing is left to prove in time."""
        seconds = FIRST_SECONDS
        # One part has a turn in any case: the result has its backend and times.
        while unsolved := self._unsolved or ([] if self._taken else [0]):
            slack = self.slack
            if not (waiting := [n for n in unsolved if slack[n] < self._given_up.get(n, math.inf)]):
                return
            for place, number in enumerate(waiting):
                if self._nothing or (self._taken and self._options.gap != NO_GAP and self._is_near_enough):
                    return
                if deadline.passed:
                    if (rest := self.rest) is not None:
                        yield rest, None
                    return
                share = deadline.remaining / (len(waiting) - place)
                yield self._component((number,)), None if len(unsolved) == 1 else min(seconds, share)
            seconds *= LONGER

    @property
    def rest(self) -> Component | None:
        """All parts without an assignment; None where all have one, or none can have."""
        numbers = tuple(number for number in range(len(self._parts)) if not self.has_values((number,)))
        return self._component(numbers) if numbers and not self._nothing else None

    def _component(self, numbers: tuple[int, ...]) -> Component:
        """Some parts as a problem, below what the bounds of the others leave of the upper bound."""
        whole, part = self.problem, joined([self._parts[number] for number in numbers])
        with unlimited():  # the rest is solved after the time limit
            problem = self._problems[numbers[0]] if len(numbers) == 1 else part.problem(whole)
        if whole.upper_bound is not None:
            others = sum(bound for number, bound in enumerate(self._bounds) if number not in numbers)
            margin = 0 if whole.is_integral else rounding_margin(whole)
            problem = problem.below(whole.upper_bound - whole.constant - others + margin)
        return Component(whole, problem, numbers, part.variables, self)

    def give_up(self, numbers: Sequence[int]) -> None:
        """Make no further turns of parts that ended early without a proof, until less of the gap is left to them."""
        slack = self.slack
        self._given_up.update((number, slack[number]) for number in numbers)

    def take(self, component: Component, result: Result) -> None:
        """Keep a result of some parts, which includes the time and the rows of an earlier one of the same object."""
        numbers = component.numbers
        self._taken = [*(one for one in self._taken if one[0] is not component), (component, result)]
        self._nothing |= result.status in NOTHING
        for number in numbers:
            self._results[number] = result
            if result.bound is not None and len(numbers) == 1 and result.status != "nothing-better":
                self._bounds[number] = self._farther(self._bounds[number], result.bound)
        if result.assignment:
            values = dict(zip(component.variables, result.assignment, strict=True))
            self._offer(numbers, values, result.status == "optimal")

    def _offer(self, numbers: Sequence[int], values: dict[int, int], are_optima: bool = False) -> None:
        """Keep the better values of some parts. values : by variable."""
        for number in numbers:
            own = self._parts[number].variables
            value, before = self._problems[number].evaluate([values[v] for v in own]), self._values[number]
            if value is not None and (before is None or self._farther(before, value) == before):
                self._values[number] = value
                for v in own:
                    self.assignment[v] = values[v]
            if value is not None and are_optima:
                self._bounds[number] = value

    def bounds(self, numbers: Sequence[int] = (), bound: Number = None, value: Number = 0) -> tuple[Number, Number]:
        """Bound of the whole, and its value if it counts, with those of some parts."""
        others = [number for number in range(len(self._parts)) if number not in numbers]
        own: int | float = sum(self._bounds[number] for number in numbers)
        own = own if bound is None else self._farther(own, bound)
        lower = sum(self._bounds[number] for number in others) + own + self.problem.constant
        known = [x for x in (value, *(self._values[number] for number in others)) if x is not None]
        total, limit = sum(known) + self.problem.constant, self.problem.upper_bound
        counts = len(known) > len(others) and (limit is None or total < limit)
        return lower, total if counts else None

    @property
    def has_results(self) -> bool:
        """Whether any part has a result."""
        return bool(self._taken)

    def has_values(self, numbers: Sequence[int]) -> bool:
        """Whether assignments of some parts are known."""
        return all(self._values[number] is not None for number in numbers)

    @property
    def slack(self) -> list[int | float]:
        """The gap that the others leave to each part; none without a value of the whole that counts."""
        if self.bounds()[1] is None:
            return [0] * len(self._parts)
        left = self._allowed - sum(self._distances)
        return [max(0, left + distance) for distance in self._distances]

    def result(self) -> Result:
        """The result of the whole so far; at least one part has one."""
        results, whole = [r for r in self._results if r is not None], self.problem
        taken = [result for _, result in self._taken]
        bound, value = self.bounds()
        if value is not None and not whole.is_integral:
            value = whole.evaluate(self.assignment)  # sums of the same floats in another order
            bound = None if bound is None or value is None else -self._farther(-bound, -value)
        notes, unsolved = [f"{self._count:,} connected components were solved apart"], self._unsolved
        status: Status = "optimal"
        if self._nothing or (not unsolved and value is None):
            status, bound = ("infeasible", None) if self._options.ub is None else ("nothing-better", self._options.ub)
            value = None
        elif unsolved:
            own = [self._results[number] for number in unsolved]
            status = "interrupted" if any(r is not None and r.status == "interrupted" for r in own) else "limit"
            notes[0] += f", {len(unsolved):,} of {len(self._parts):,} parts not to the end"
            if self._is_near_enough:
                notes.append(f"ended within the gap of {self._options.gap}")
            else:
                notes += dict.fromkeys(note for r in own if r is not None and r.status == status for note in r.notes)
        elif use := usage_note(whole, tuple(self.assignment)):
            notes.append(use)
        handling = max((r.linear_constraints for r in results), key=HANDLINGS.index)
        return replace(
            results[-1],
            status=status,
            value=value,
            bound=bound,
            assignment=None if value is None else tuple(self.assignment),
            variables=whole.variables,
            order=(),
            bounds="",
            width=max(r.width for r in results),
            largest_message_rows=max(r.largest_message_rows for r in taken),
            total_rows=sum(r.total_rows for r in taken),
            seconds=dict(sum((Counter(r.seconds) for r in taken), Counter())),
            linear_constraints="shown not to bind" if handling == "none" and whole.linear_constraints else handling,
            notes=tuple(notes),
            presolve=tuple(PresolveStep(*own) for own in _summed([s for r in results for s in r.presolve])),
            solvers=tuple(
                SolverShare(*own)._replace(closed=own[-1] / len(taken))
                for own in _summed([s for r in taken for s in r.solvers])
            ),
        )

    @property
    def _unsolved(self) -> list[int]:
        pairs = enumerate(zip(self._results, self._distances, strict=True))
        return [n for n, (r, distance) in pairs if distance > 0 and (r is None or r.status in UNPROVEN)]

    @property
    def _distances(self) -> list[int | float]:
        pairs = zip(self._values, self._bounds, strict=True)
        return [math.inf if value is None else abs(value - bound) for value, bound in pairs]

    @property
    def _allowed(self) -> int | float:
        gap, value = self._options.gap, self.bounds()[1]
        return max(gap.absolute, 0 if value is None else gap.relative * abs(value))

    @property
    def _is_near_enough(self) -> bool:
        return self.bounds()[1] is not None and sum(self._distances) <= self._allowed

    def _farther(self, a: int | float, b: int | float) -> int | float:
        """The better one of two bounds, and the worse one of two values."""
        return max(a, b) if self._is_least else min(a, b)


def labels(problem: Problem) -> NDArray[np.int64]:
    """The least variable of each variable's connected component, int64 (variables,).

    Variables in one function or constraint are connected, unless it is a linear constraint that cannot bind.
    """
    starts, members = Separators.of([member.scope for member in _connecting(problem) if member.scope])
    return least_connected(np.repeat(members[starts[:-1]], np.diff(starts)), members, len(problem.variables))


def _connecting(problem: Problem) -> list[Member]:
    return [*problem.functions, *problem.constraints, *(c for c in problem.linear_constraints if c.can_bind)]


def _summed(items: Sequence[PresolveStep] | Sequence[SolverShare]) -> list[list[Any]]:
    """Name and sums of the numbers of all items of a name."""
    own: dict[str, list[Any]] = {}
    for item in items:
        own.setdefault(item.name, []).append(item[1:])
    return [[name, *map(sum, zip(*numbers, strict=True))] for name, numbers in own.items()]
