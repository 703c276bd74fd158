"""Preprocessing of clauses that keeps the count.

Rounds of these steps, until nothing changes:

* failed literals, and literals that both values of a variable imply, become units; units are propagated;
* equal literals are replaced by one of them, whose weights are multiplied by those of the others;
* a clause that contains another one goes; a clause that contains another one but for one opposite literal loses it;
* a variable whose value follows from the others that count in every model, and whose literals have the same weight, is
  replaced by its resolvents, if they are few; so is any variable that does not count (Lagniez, Lonca and Marquis 2016,
  *Improving model counting by leveraging definability*; Soos and Meel 2022, *Arjun*).

Variables that are left in no clause go to the multiplier.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from oocbe.counting.formula import Clause, Formula, normalised, solver_of
from oocbe.counting.kernels.cpu.probes import UNKNOWN, define, probe
from oocbe.counting.kernels.cpu.solver_state import TRAIL
from oocbe.kernels.cpu.jit import is_ready
from oocbe.runtime.deadline import Deadline, check_deadline, current

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
    """A formula with the same count.

    formula : the rest. variables : for each variable left, its number before.
    """

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
