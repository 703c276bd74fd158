"""Clauses over variables with two values, and their preprocessing, which keeps the count.

Rounds of these steps, until nothing changes:

* failed literals, and literals that both values of a variable imply, become units; units are propagated;
* equal literals are replaced by one of them, whose weights are multiplied by those of the others;
* a clause that contains another one goes; a clause that contains another one but for one opposite literal loses it;
* a variable whose value follows from the others that count in every model, and whose literals have the same weight, is
  replaced by its resolvents, if they are few; so is any variable that does not count (Lagniez, Lonca and Marquis 2016,
  *Improving model counting by leveraging definability*; Soos and Meel 2022, *Arjun*).

Variables that are left in no clause go to the multiplier.

Some variables count, with an integer weight for each literal. :func:`solver_of` makes their arrays for propagation
(:mod:`oocbe.counting.kernels.cpu.clause_learning`). :func:`formula_of` converts the hard part of a problem to clauses,
and :func:`problem_of` clauses to a problem.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from oocbe.counting.kernels.cpu.clause_learning import (
    ARENA,
    LITERALS,
    NUMBERS,
    ORIGINAL,
    TRAIL,
    UNIT,
    UNKNOWN,
    Solver,
    assign,
    define,
    probe,
    watch_all,
)
from oocbe.elimination.orders.separators import Separators
from oocbe.kernels.cpu.interpreter import interpreted
from oocbe.kernels.cpu.jit import is_ready
from oocbe.model.parts import Constraint, LinearConstraint, Variable
from oocbe.model.problem import Problem
from oocbe.runtime.deadline import Deadline, check_deadline, current, current_flag, looked

Clause = tuple[int, ...]
"""Sorted literals of different variables: ``2 * variable``, plus 1 for a negative literal."""


@dataclass(frozen=True)
class Formula:
    """Clauses to count models of.

    The count is ``multiplier`` times the sum, over the assignments of shown variables that extend to a model, of the
    product of their literals' weights.

    variables : number of variables; those in no clause count, too.
    clauses : without duplicates and tautologies; an empty one has no model.
    shown : bool (variables,), whether each variable counts. Others have weight 1.
    weights : weights of the positive and of the negative literal of each variable, integers of any size; None: 1.
    multiplier : an integer.
    """

    variables: int
    clauses: tuple[Clause, ...]
    shown: NDArray[np.bool_]
    weights: tuple[tuple[int, int], ...] | None = None
    multiplier: int = 1

    @classmethod
    def of(
        cls,
        variables: int,
        clauses: Iterable[Iterable[int]],
        shown: Iterable[int] | None = None,
        weights: Sequence[tuple[int, int]] | None = None,
    ) -> Formula:
        """A formula of any clauses; ``shown`` : variables that count, None: all."""
        counts = np.full(variables, shown is None)
        if shown is not None:
            counts[list(shown)] = True
        own = None if weights is None else tuple(weights)
        return cls(variables, normalised(clauses), counts, own)

    def weight(self, literal: int) -> int:
        """The weight of a literal."""
        return 1 if self.weights is None else self.weights[literal >> 1][literal & 1]

    def total(self, v: int) -> int:
        """The sum of the weights of a variable's literals; 1 if it does not count."""
        return self.weight(2 * v) + self.weight(2 * v + 1) if self.shown[v] else 1


def normalised(clauses: Iterable[Iterable[int]]) -> tuple[Clause, ...]:
    """The clauses with sorted literals, in their first order, without duplicates and tautologies."""
    found: dict[Clause, None] = {}
    for clause in clauses:
        literals = tuple(sorted(set(clause)))
        if not any(a ^ 1 == b for a, b in pairwise(literals)):
            found[literals] = None
    return tuple(found)


def _grouped(keys: NDArray[np.int32], content: NDArray[np.int32], groups: int) -> Separators:
    """The content by its keys, numbers below ``groups``, in its first order."""
    start = np.zeros(groups + 1, dtype=np.int64)
    np.cumsum(np.bincount(keys, minlength=groups), out=start[1:])
    return Separators(start, content[np.argsort(keys, kind="stable")])


def solver_of(formula: Formula, scores: NDArray[np.float64], is_watched: bool = True) -> Solver | None:
    """The initial state, with unit clauses on the trail, not propagated; None if two of them contradict each other.

    scores : float64 (variables,), preference of each variable. is_watched : whether clauses are watched yet.
    """
    n = formula.variables
    units = [clause[0] for clause in formula.clauses if len(clause) == 1]
    if any(literal ^ 1 in units for literal in units):
        return None
    pairs = np.array([clause for clause in formula.clauses if len(clause) == 2], dtype=np.int32).reshape(-1, 2)
    by_literal = _grouped(np.concatenate([pairs[:, 0], pairs[:, 1]]), np.concatenate([pairs[:, 1], pairs[:, 0]]), 2 * n)
    long = [clause for clause in formula.clauses if len(clause) > 2]
    clauses = Separators.of(long)
    sizes = np.diff(clauses.starts)
    owners = np.repeat(np.arange(len(long), dtype=np.int32), sizes)
    occurs = _grouped(clauses.members >> 1, owners, n)
    words = len(clauses.members) + LITERALS * len(long)
    arena = np.zeros(max(2 * words, 1 << 16), dtype=np.int32)
    places = clauses.starts[:-1] + LITERALS * np.arange(len(long))
    arena[places] = sizes
    arena[places + LITERALS - 1] = -1
    arena[np.arange(len(clauses.members)) + LITERALS * (owners + 1)] = clauses.members
    num = np.zeros(NUMBERS, dtype=np.int64)
    num[ARENA] = num[ORIGINAL] = words
    solver = Solver(
        num=num,
        flag=current_flag(),
        value=np.zeros(2 * n, dtype=np.int8),
        level=np.zeros(n, dtype=np.int32),
        reason=np.zeros(n, dtype=np.int64),
        trail=np.zeros(n + 1, dtype=np.int32),
        arena=arena,
        head=np.zeros(2 * n, dtype=np.int32),
        pair_start=by_literal.starts,
        pairs=by_literal.members,
        occurs_start=occurs.starts,
        occurs=occurs.members,
        start=clauses.starts,
        literals=clauses.members,
        satisfied=clauses.members[clauses.starts[:-1]],
        seen=np.zeros(n, dtype=np.uint8),
        clause=np.zeros(n + 1, dtype=np.int32),
        out=np.zeros(n + 1, dtype=np.int32),
        units=np.zeros(n, dtype=np.int32),
        activity=np.zeros(2 * n),
        depth_score=scores,
        shown=formula.shown.astype(np.uint8),
        bump=np.ones(1),
        saved=np.zeros(n, dtype=np.uint8),
    )
    if is_watched:
        watch_all(solver)
    for literal in units:
        interpreted(assign)(solver, literal, UNIT)
    return solver


WIDEST = 10
"""Variables of a linear constraint that is written as a clause for each forbidden assignment, at most."""

MOST_CELLS, MOST_CLAUSES = 1 << 20, 1 << WIDEST
"""Cells of a table, and its forbidden assignments, each of which becomes a clause, at most."""


def formula_of(problem: Problem) -> Formula | None:
    """The feasible assignments as models; None if a variable has more than two values, or a part has no short clauses.

    problem : hard parts only, see :func:`oocbe.elimination.preparation.upper_bound.what_forbids`.
    """
    if max(problem.sizes, default=0) > 2:
        return None
    single = [(2 * v + 1,) for v, size in enumerate(problem.sizes) if size == 1]
    clauses: list[tuple[int, ...]] = [*single]
    for part in looked((*problem.constraints, *problem.functions, *problem.linear_constraints)):
        found = _clauses_of(problem, part)
        if found is None:
            return None
        clauses += found
    return Formula.of(len(problem.variables), clauses)


def _clauses_of(problem: Problem, part: object) -> Iterator[tuple[int, ...]] | None:
    """The clauses of one part, one for each forbidden assignment; None if they may be too many."""
    if isinstance(part, LinearConstraint):
        return _clauses_of_linear(part)
    scope, sizes = part.scope, problem.sizes  # type: ignore[attr-defined]
    if isinstance(part, Constraint) and not part.allowed:
        return _forbidding(scope, part.tuples)
    cells = math.prod(sizes[v] for v in scope)
    if cells > MOST_CELLS or cells - len(part.tuples) > MOST_CLAUSES:  # type: ignore[attr-defined]
        return None
    permitted = part.to_array(sizes) if isinstance(part, Constraint) else part.to_array(sizes)[1]  # type: ignore[attr-defined]
    return _forbidding(scope, np.argwhere(~permitted))


def _clauses_of_linear(part: LinearConstraint) -> Iterator[tuple[int, ...]] | None:
    if not part.can_bind:
        return iter(())
    low, high = part.ends
    gaps = [most - least for least, most in zip(low, high, strict=True)]
    bound = [i for i, gap in enumerate(gaps) if gap]
    if bound and part.greatest - min(gaps[i] for i in bound) <= part.capacity:  # one assignment of these is forbidden
        worst = [int(np.argmax(part.coefficients[i])) for i in bound]
        return iter([tuple(2 * part.scope[i] + value for i, value in zip(bound, worst, strict=True))])
    if len(part.scope) > WIDEST:
        return None
    return _forbidding(part.scope, np.argwhere(~part.to_array()))


def _forbidding(scope: tuple[int, ...], rows: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> Iterator[Clause]:
    if not scope:
        return iter([()] * min(1, len(rows)))
    return map(tuple, (2 * np.array(scope) + rows).tolist())


def problem_of(formula: Formula, name: str) -> Problem:
    """The clauses as constraints; weights, hidden variables and the multiplier are left out."""
    variables = tuple(Variable(str(v + 1), 2) for v in range(formula.variables))
    constraints = (
        Constraint(tuple(x >> 1 for x in clause), np.array([[x & 1 for x in clause]], dtype=np.int64))
        for clause in looked(formula.clauses)
    )
    return Problem(variables, (), tuple(constraints), name=name)


MOST_STEPS = 20_000_000
"""Propagated literals of a round of probes, at most: a fraction of a second."""

MOST_CONFLICTS = 64
"""Conflicts of the search for a definition, at most."""

MOST_PRODUCT = 400
"""Pairs of clauses that are resolved for a variable, at most."""

LONGEST_RESOLVENT = 24
"""Literals of a resolvent, at most."""

MOST_NEIGHBOURS = 8
"""Variables that share a clause with an eliminated one that counts, at most: resolvents connect them. Without a limit,
the width of mc2022_track1_037 rises from 5 to 36, of mc2022_track1_055 from 6 to 23, and no count ends; with 4, 8 and
14 all counts end."""

MOST_COMPARISONS = 5_000_000
"""Pairs of clauses that a round compares for subsumption, at most: a few seconds."""

MOST_ROUNDS = 20
"""Rounds at most."""

COMPILING_SECONDS = 30.0
"""Time left, in seconds, above which a count waits for loops of probes: their compilation takes a third of it."""


class Presolved(NamedTuple):
    """The rest of a formula, with the same count; ``variables``: for each variable left, its number before."""

    formula: Formula
    variables: tuple[int, ...]


def presolve(formula: Formula, seconds: float) -> Presolved:
    """Preprocess a formula.

    seconds : time limit of everything; what was found until then is used.

    Raises TimeLimitError: the deadline of the enclosing block passed.
    """
    work = _Work(formula)
    steps = [work.subsume] if _has_to_wait() else [work.probe, work.subsume, work.eliminate]
    with Deadline(seconds) as deadline:
        for _ in range(MOST_ROUNDS):
            before = work.clauses
            for step in steps:
                if not deadline.passed:
                    step()
            if work.clauses == before or deadline.passed:
                break
    check_deadline()
    return work.result()


def _has_to_wait() -> bool:
    """Whether loops of probes are not compiled: a short limit of the whole count is better spent without them."""
    if (deadline := current()) is None or deadline.outermost.remaining > COMPILING_SECONDS:
        return False
    solver = solver_of(Formula(0, (), np.zeros(0, dtype=np.bool_)), np.zeros(0), is_watched=False)
    return not is_ready(probe, solver, np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.uint8), MOST_STEPS)


class _Work:
    """The clauses between two steps; an empty clause stands for a formula without models."""

    def __init__(self, formula: Formula) -> None:
        self._formula = formula
        self._is_left = np.ones(formula.variables, dtype=np.bool_)

    @property
    def clauses(self) -> tuple[Clause, ...]:
        """The clauses that are left."""
        return self._formula.clauses

    def _keep(self, clauses: tuple[Clause, ...]) -> None:
        self._formula = replace(self._formula, clauses=((),) if () in clauses else clauses)

    def _multiply(self, factor: int) -> None:
        self._formula = replace(self._formula, multiplier=self._formula.multiplier * factor)

    def result(self) -> Presolved:
        """The formula without variables that are in no clause."""
        whole = self._formula
        used = sorted({literal >> 1 for clause in self.clauses for literal in clause})
        number = {v: i for i, v in enumerate(used)}
        lost = math.prod(whole.total(v) for v in range(whole.variables) if self._is_left[v] and v not in number)
        clauses = tuple(tuple(2 * number[x >> 1] + (x & 1) for x in clause) for clause in self.clauses)
        weights = None if whole.weights is None else tuple(whole.weights[v] for v in used)
        if weights is not None and all(own == (1, 1) for own in weights):
            weights = None
        left = Formula(len(used), clauses, whole.shown[used], weights, whole.multiplier * lost)
        return Presolved(left, tuple(used))

    def probe(self) -> None:
        """Units, failed literals, and equal literals."""
        solver = None if () in self.clauses else solver_of(self._formula, np.zeros(0))
        if solver is None:
            self._keep(((),))
            return
        n = self._formula.variables
        equal = np.full(n, UNKNOWN, dtype=np.int32)
        if probe(solver, equal, np.zeros(2 * n, dtype=np.uint8), MOST_STEPS):
            self._keep(((),))
            return
        target = self._substitute(equal.tolist())
        self._assign(target[x] for x in solver.trail[: solver.num[TRAIL]].tolist())

    def _substitute(self, equal: list[int]) -> list[int]:
        """Replace each variable by the literal that it equals; one that counts only by one that counts.

        Returns the literal that replaces each literal, or itself.
        """
        n = len(equal)
        target = list(range(2 * n))
        if all(literal == UNKNOWN for literal in equal):
            return target
        shown = self._formula.shown
        weights = None if self._formula.weights is None else list(self._formula.weights)
        members: dict[int, list[int]] = {}
        for v in range(n):
            if equal[v] == UNKNOWN:
                continue
            literal = equal[v]
            while equal[literal >> 1] != UNKNOWN:
                literal = equal[literal >> 1] ^ (literal & 1)
            target[2 * v], target[2 * v + 1] = literal, literal ^ 1
            members.setdefault(literal >> 1, []).append(v)
        for root, others in members.items():
            chosen = next((v for v in (root, *others) if shown[v]), root)
            flip = target[2 * chosen] & 1 if chosen != root else 0
            for v in (root, *others):
                literal = 2 * chosen + ((target[2 * v] & 1 if v != root else 0) ^ flip)
                target[2 * v], target[2 * v + 1] = literal, literal ^ 1
                if v == chosen:
                    continue
                if weights is not None and shown[v]:
                    own, lost = weights[chosen], weights[v]
                    weights[chosen] = own[0] * lost[literal & 1], own[1] * lost[literal & 1 ^ 1]
                self._is_left[v] = False
        self._formula = replace(self._formula, weights=None if weights is None else tuple(weights))
        self._keep(normalised([target[x] for x in clause] for clause in self.clauses))
        return target

    def _assign(self, units: Iterable[int]) -> None:
        """Make literals true that every model has."""
        true = set(units)
        for literal in true:
            self._is_left[literal >> 1] = False
            if self._formula.shown[literal >> 1]:
                self._multiply(self._formula.weight(literal))
        if any(x ^ 1 in true for x in true):
            self._keep(((),))
        elif true:
            left = (clause for clause in self.clauses if true.isdisjoint(clause))
            self._keep(normalised([x for x in clause if x ^ 1 not in true] for clause in left))

    def subsume(self) -> None:
        """Remove clauses that others imply, and literals by resolution of a clause with a part of another."""
        clauses: dict[int, frozenset[int]] = dict(enumerate(map(frozenset, self.clauses)))
        occurs: dict[int, set[int]] = {}
        for number, clause in clauses.items():
            for x in clause:
                occurs.setdefault(x, set()).add(number)
        waiting = sorted(clauses, key=lambda number: len(clauses[number]))
        left = MOST_COMPARISONS
        for number in waiting:  # it grows: a shorter clause is tried again
            if left < 0 or number not in clauses:
                continue
            clause = clauses[number]
            for flipped in (-1, *clause):
                wanted = clause if flipped < 0 else clause - {flipped} | {flipped ^ 1}
                rarest = min(wanted, key=lambda x: len(occurs.get(x, ())), default=-1)
                found = [other for other in occurs.get(rarest, ()) if other != number and wanted <= clauses[other]]
                left -= len(occurs.get(rarest, ()))
                for other in found:
                    longer = clauses[other]
                    if flipped < 0:
                        del clauses[other]
                        for x in longer:
                            occurs[x].discard(other)
                    else:
                        clauses[other] = longer - {flipped ^ 1}
                        occurs[flipped ^ 1].discard(other)
                        waiting.append(other)
        self._keep(normalised(clauses.values()))

    def eliminate(self) -> None:
        """Replace variables by resolvents: those that do not count, and those defined by the others."""
        if self.clauses in ((), ((),)):
            return
        n, formula = self._formula.variables, self._formula
        shown = formula.shown
        clauses: dict[int, Clause] = dict(enumerate(self.clauses))
        occurs: list[set[int]] = [set() for _ in range(2 * n)]
        for number, clause in clauses.items():
            for x in clause:
                occurs[x].add(number)
        wanted = np.zeros(n, dtype=np.uint8)
        for v in range(n):
            one, other = len(occurs[2 * v]), len(occurs[2 * v + 1])
            is_equal = formula.weight(2 * v) == formula.weight(2 * v + 1)
            wanted[v] = one + other > 0 and one * other <= MOST_PRODUCT and (is_equal or not shown[v])
        defined, tested = wanted & ~shown, wanted & shown
        if tested.any():
            hidden = {int(v) for v in np.flatnonzero(~shown)}  # definitions by others that count
            own = tuple(clause for clause in self.clauses if not any(x >> 1 in hidden for x in clause))
            solver = solver_of(replace(formula, clauses=own), np.zeros(0))
            assert solver is not None
            define(solver, tested, np.zeros(n + 2, dtype=np.int64), MOST_CONFLICTS)
            defined |= tested
        is_touched = np.zeros(n, dtype=np.bool_)
        candidates = np.flatnonzero(defined).tolist()
        for v in sorted(candidates, key=lambda v: (len(occurs[2 * v]) * len(occurs[2 * v + 1]), v)):
            if is_touched[v] and shown[v]:
                continue
            positive, negative = occurs[2 * v], occurs[2 * v + 1]
            near = {x >> 1 for c in (*positive, *negative) for x in clauses[c]}
            if shown[v] and len(near) > MOST_NEIGHBOURS + 1:
                continue
            made = _resolvents(v, [clauses[c] for c in positive], [clauses[c] for c in negative])
            if made is None:
                continue
            if shown[v]:
                self._multiply(formula.weight(2 * v))
            self._is_left[v] = False
            for c in [*positive, *negative]:
                for x in clauses.pop(c):
                    is_touched[x >> 1] = True
                    occurs[x].discard(c)
            for clause in made:
                number = len(self.clauses) + len(clauses) + v * (MOST_PRODUCT + 1)
                while number in clauses:
                    number += 1
                clauses[number] = clause
                for x in clause:
                    occurs[x].add(number)
        self._keep(normalised(clauses.values()))


def _resolvents(v: int, positive: list[Clause], negative: list[Clause]) -> list[Clause] | None:
    """The resolvents of all pairs, without tautologies; None if they are too many or too long."""
    found: dict[Clause, None] = {}
    for one in positive:
        rest = set(one) - {2 * v}
        for other in negative:
            if any(x ^ 1 in rest for x in other if x != 2 * v + 1):
                continue
            made = tuple(sorted(rest.union(other) - {2 * v + 1}))
            if len(made) > LONGEST_RESOLVENT:
                return None
            found[made] = None
            if len(found) > len(positive) + len(negative):
                return None
    return list(found)
