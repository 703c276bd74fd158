"""A problem as a pseudo-Boolean formula (OPB), which the proofs of :mod:`oocbe.certificates.veripb` refer to.

Variable ``x{first[v] + a + 1}`` is true where variable v has value a (direct encoding); exactly one value is true. Each
dearer row of a function over several variables has a variable of its own. All of the encoding: docs/proofs.md.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from oocbe.errors import UnsupportedError
from oocbe.model.parts import Constraint, Function, LinearConstraint
from oocbe.model.problem import Problem
from oocbe.model.semiring import MIN_SUM

Row = tuple[int, ...]

MOST_ROWS = 2_000_000
"""Rows of functions and constraints at most; each is a line of the formula (some 100 bytes of memory)."""

MOST_DECIMALS = 12
"""Decimals of a cost at most: more digits are mostly the rounding of a binary fraction."""


class FormulaCosts(NamedTuple):
    """Costs of a function above its least, and the objective's variable of each row.

    scope : ascending. costs : by row, above 0. names : of the variable by row. clauses : number of the constraint that
        implies the variable; None where it is the literal itself.
    """

    scope: Row
    costs: dict[Row, int]
    names: dict[Row, str]
    clauses: dict[Row, int | None]


Copies = Mapping[int, tuple[int, Mapping[int, tuple[int, int]]]]
"""Of a copy the other variable, and of each value that one's value, and the clause that the former follows from it."""


class PseudoBooleanFormula:
    """The formula of a problem.

    first : number of literals before each variable. at_least, at_most : number of the constraint by variable.
    tables : of the functions. forbidden : scope, and the number of the clause by forbidden row.
    linear : linear constraints with their numbers. limit : number of the constraint for the upper bound; None: none.
    most : greatest objective that counts. objective : coefficient by name.
    scale, sign, offset : the objective is ``sign * scale * cost - offset``.
    constraints : number of constraints, equations counted twice.
    shown : variables whose values distinguish the solutions of a count; None: it is none.
    copies : variables whose value follows from that of another one, by a constraint that permits each value of both
        once at most. Functions and constraints over a copy are over the other variable in ``tables`` and ``forbidden``.
    derived : steps of the clauses that this takes; they come first in a proof, and their numbers after the formula's.
    UnsupportedError : no sums that are optimised, too many decimals, or too many rows.
    """

    def __init__(self, problem: Problem) -> None:
        if problem.semiring.name not in ("min-sum", "max-sum"):
            raise UnsupportedError(
                f"--proof, --opb: only optimal sums have proofs (min-sum, max-sum), not the "
                f"{problem.semiring.name} semiring"
            )
        self.problem, self.sign = problem, 1 if problem.semiring.name == "min-sum" else -1
        self.shown: Row | None = None
        self.scale = _scale_of(problem)
        self.first = list(accumulate(problem.sizes, initial=0))
        self.constraints, self._lines = 0, list[str]()
        self._variables, self._rows = self.first[-1], 0
        self.objective: dict[str, int] = {}
        self.offset = self._exact(problem.constant)
        self.at_least, self.at_most = [], []
        for v, size in enumerate(problem.sizes):
            self.at_least.append(self._add(" ".join(f"+1 {self.literal(v, a)}" for a in range(size)) + " = 1"))
            self.constraints += 1
            self.at_most.append(self.constraints)
        self.tables: list[FormulaCosts] = []
        self.forbidden: list[tuple[Row, dict[Row, int]]] = []
        for function in problem.functions:
            self._add_function(function)
        for constraint in problem.constraints:
            scope, listed = self._listed(constraint)
            self._forbid(scope, self._excluded(scope, listed) if constraint.allowed else listed)
        self.linear: list[tuple[LinearConstraint, int]] = []
        for linear in problem.linear_constraints:
            terms = [
                f"{-c:+d} {self.literal(v, a)}"
                for v, own in zip(linear.scope, linear.coefficients, strict=True)
                for a, c in enumerate(own.tolist())
                if c
            ]
            self.linear.append((linear, self._add(" ".join([*terms, f">= {-linear.capacity}"]))))
        self.limit = self._add_limit()
        self._given, self.copies, self.derived = self.tables, set[int](), list[str]()
        while found := self._new_copies():
            self.copies |= found.keys()
            self.tables = [moved for table in self.tables if (moved := self._moved(table, found)).costs]
            hard = (self._moved(FormulaCosts(scope, {}, {}, {**own}), found) for scope, own in self.forbidden)
            self.forbidden = [(t.scope, {r: n for r, n in t.clauses.items() if n is not None}) for t in hard]

    @cached_property
    def rewritten(self) -> Problem:
        """The problem of ``tables`` and ``forbidden``, as a least sum."""
        return replace(
            self.problem.below(None),
            functions=tuple(
                Function(t.scope, np.array([*t.costs]), np.array([*t.costs.values()]), 0) for t in self.tables
            ),
            constraints=tuple(Constraint(scope, np.array([*rows])) for scope, rows in self.forbidden),
            constant=0,
            semiring=MIN_SUM,
        )

    def literal(self, v: int, a: int) -> str:
        """The name of the variable that is true where variable v has value a."""
        return f"x{self.first[v] + a + 1}"

    def lines(self) -> Iterator[str]:
        """The lines of the file."""
        yield f"* #variable= {self._variables} #constraint= {len(self._lines)}\n"
        what = "solutions" if self.shown is not None else f"objective = {self.sign * self.scale} * cost - {self.offset}"
        yield f"* {self.problem.name!a}: {what}\n"
        for v, variable in enumerate(self.problem.variables):
            yield f"* {self.literal(v, 0)} to {self.literal(v, variable.size - 1)}: values of {variable.name!a}\n"
        if self.shown is not None:
            names = (self.literal(v, a) for v in self.shown for a in range(self.problem.sizes[v]))
            yield f"preserved: {' '.join(names)} ;\n"
        if self.objective and self.shown is None:
            yield "min: " + " ".join(f"+{c} {name}" for name, c in self.objective.items()) + " ;\n"
        yield from (f"{line} ;\n" for line in self._lines)

    def solution(self, assignment: Sequence[int]) -> tuple[list[str], int]:
        """The literals of all variables under an assignment, and its objective."""
        true = {self.literal(v, a) for v, a in enumerate(assignment)}
        for table in self._given:
            row = tuple(assignment[v] for v in table.scope)
            true |= {table.names[row]} if row in table.names else set()
        names = (f"x{i + 1}" for i in range(self._variables))
        return [name if name in true else f"~{name}" for name in names], sum(self.objective.get(n, 0) for n in true)

    def cost(self, objective: int) -> int | float:
        """The problem's value of an objective."""
        total = self.sign * (objective + self.offset)
        return total if self.scale == 1 else total / self.scale

    def _new_copies(self) -> Copies:
        """Further copies; none of them is the other variable of another one."""
        found, others, sizes = dict[int, tuple[int, dict[int, tuple[int, int]]]](), set[int](), self.problem.sizes
        pairs = defaultdict[Row, dict[Row, int]](dict)
        for scope, clauses in self.forbidden:
            if len(scope) == 2 and not self.copies.intersection(scope):
                pairs[scope].update(clauses)
        for scope, clauses in pairs.items():
            for v, w in (scope, scope[::-1]):
                if len(clauses) != sizes[v] * (sizes[w] - 1) or found.keys() & scope or w in others:
                    continue
                rows = itertools.product(range(sizes[v]), range(sizes[w]))
                numbers = {(a, b): clauses.get((a, b) if v < w else (b, a), 0) for a, b in rows}
                partner = {b: a for (a, b), number in numbers.items() if not number}
                if len(partner) == len({*partner.values()}) == sizes[v]:
                    found[w] = v, {}
                    others.add(v)
                    for b, a in partner.items():
                        clause = " ".join(f"{numbers[a, c]} +" for c in range(sizes[w]) if c != b)
                        found[w][1][b] = a, self._derive(f"pol {self.at_least[w]} {clause} s")
        return found

    def _derive(self, step: str) -> int:
        self.derived.append(step)
        return self.constraints + len(self.derived)

    def _moved(self, table: FormulaCosts, found: Copies) -> FormulaCosts:
        """A table without copies of variables that it does not have, and with new clauses; one of a copy stays."""
        for w in table.scope if len(table.scope) > 1 else ():
            v, partner = found.get(w, (w, {}))
            if v in table.scope:
                continue
            place, made = table.scope.index(w), FormulaCosts(tuple(sorted({*table.scope, v} - {w})), {}, {}, {})
            for old, number in table.clauses.items():
                if old[place] in partner:
                    own, (a, implied) = dict(zip(table.scope, old, strict=True)), partner[old[place]]
                    row = tuple(a if u == v else own[u] for u in made.scope)
                    made.clauses[row] = self._derive(f"pol {number} {implied} +")
                    if old in table.costs:
                        made.costs[row], made.names[row] = table.costs[old], table.names[old]
            table = made
        return table

    def _exact(self, cost: float) -> int:
        return self.sign * int(exact(cost) * self.scale)

    def _add(self, text: str) -> int:
        self._lines.append(text)
        self.constraints += 1
        return self.constraints

    def _count(self, rows: int) -> None:
        self._rows += rows
        if self._rows > MOST_ROWS:
            raise UnsupportedError(
                f"--proof, --opb: the functions of {self.problem.name} have more than {MOST_ROWS:,} rows to be "
                "listed in the formula; solve it without"
            )

    def _shape(self, scope: Row) -> Row:
        return tuple(self.problem.sizes[v] for v in scope)

    def _all_rows(self, scope: Row) -> list[Row]:
        """All rows of a scope, which may have more variables than NumPy has axes."""
        shape = self._shape(scope)
        self._count(math.prod(shape))
        return list(itertools.product(*map(range, shape)))

    def _listed(self, part: Function | Constraint) -> tuple[Row, list[Row]]:
        """Scope and rows without the variables that have one value: each step of an elimination would take them on."""
        places = [i for i, v in enumerate(part.scope) if self.problem.sizes[v] > 1]
        return tuple(part.scope[i] for i in places), list(map(tuple, part.tuples[:, places].tolist()))

    def _excluded(self, scope: Row, listed: list[Row]) -> list[Row]:
        known = set(listed)
        return [row for row in self._all_rows(scope) if row not in known]

    def _forbid(self, scope: Row, rows: list[Row]) -> None:
        self._count(len(rows))
        order = sorted(range(len(scope)), key=scope.__getitem__)
        own = tuple(scope[i] for i in order)
        clauses: dict[Row, int] = {}
        for row in (tuple(listed[i] for i in order) for listed in rows):
            negated = (f"+1 ~{self.literal(*pair)}" for pair in zip(own, row, strict=True))
            clauses[row] = self._add(" ".join([*negated, ">= 1"]))
        if clauses:
            self.forbidden.append((own, clauses))

    def _add_function(self, function: Function) -> None:
        (scope, rows), default = self._listed(function), function.default
        costs = [self._exact(value) for value in function.values.tolist()]
        least = min(costs, default=math.inf)
        if len(rows) < math.prod(self._shape(scope)):
            if default is None:
                self._forbid(scope, self._excluded(scope, rows))
                if not rows:
                    return
            elif (base := self._exact(default)) > least:
                known = dict(zip(rows, costs, strict=True))
                rows = self._all_rows(scope)
                costs = [known.get(row, base) for row in rows]
            else:
                least = base
        self.offset += int(least)
        order = sorted(range(len(scope)), key=scope.__getitem__)
        own = tuple(scope[i] for i in order)
        made = FormulaCosts(own, {}, {}, {})
        self._count(len(rows))
        for row, cost in zip(rows, costs, strict=True):
            if cost == least:
                continue
            row = tuple(row[i] for i in order)
            if len(own) == 1:
                name, number = self.literal(own[0], row[0]), None
            else:
                self._variables += 1
                name = f"x{self._variables}"
                negated = " ".join(f"+1 ~{self.literal(*pair)}" for pair in zip(own, row, strict=True))
                number = self._add(f"+1 {name} {negated} >= 1")
            made.costs[row], made.names[row], made.clauses[row] = cost - int(least), name, number
            self.objective[name] = self.objective.get(name, 0) + cost - int(least)
        if made.costs:
            self.tables.append(made)

    def _add_limit(self) -> int | None:
        """Only assignments below the upper bound count; no constraint where all are."""
        self.most: float = math.inf
        bound = self.problem.upper_bound if self.sign > 0 else self.problem.lower_bound
        if bound is None or math.isinf(bound):
            return None
        most = math.ceil(self.sign * exact(bound) * self.scale) - 1 - self.offset
        if sum(self.objective.values()) <= most:
            return None
        self.most = most
        return self._add(" ".join([*(f"-{c} {name}" for name, c in self.objective.items()), f">= {-most}"]))


def exact(number: float) -> Decimal:
    """An integer, or the shortest decimal that a float is printed as."""
    return Decimal(repr(number))


def _scale_of(problem: Problem) -> int:
    """The least power of ten that makes all costs integers."""
    digits = 0
    if not problem.is_integral:
        values = {problem.constant, *(f.default for f in problem.functions if f.default is not None)}
        values.update(*(f.values.tolist() for f in problem.functions))
        for value in values:
            exponent = exact(value).normalize().as_tuple().exponent
            digits = max(digits, -exponent if isinstance(exponent, int) else 0)
    if digits > MOST_DECIMALS:
        raise UnsupportedError(
            f"--proof, --opb: a cost of {problem.name} has {digits} decimals, and proofs are exact with "
            f"{MOST_DECIMALS} at most; round the costs"
        )
    return int(10**digits)
