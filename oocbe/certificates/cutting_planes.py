"""The steps of a certificate (docs/certificate.md) as cutting planes, for the proofs of VeriPB.

A row of a certificate, ``weights * literals <= limit``, is derived along the tree by which the checker of certificates
confirms it. At a leaf, cliques cover the literals. A branching on literal x has two inequalities with equal terms, one
that holds anyway, and one that holds if x is true; they are added and divided until the coefficient of x is its weight.
An inequality below a branching contains the negations of the chosen literals.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any, NamedTuple

from oocbe.certificates.check_certificate import SCALE, Proof, members
from oocbe.certificates.opb import PseudoBooleanFormula, Row


class Line(NamedTuple):
    """A constraint of a proof, ``sum terms >= degree``, with coefficients of any sign by variable."""

    number: int
    terms: dict[str, int]
    degree: int


class Sum:
    """A constraint that is being derived: reverse Polish notation, and what it gives."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self.terms: dict[str, int] = {}
        self.degree = 0

    def _push(self, text: str, factor: int) -> None:
        self._text.append(text + (f" {factor} *" if factor != 1 else "") + (" +" if self._text else ""))

    def add(self, line: Line, factor: int = 1) -> Sum:
        """Add a multiple, at least 0, of a constraint; its number is 0 if nothing was derived."""
        if factor and line.number:
            self._push(str(line.number), factor)
            self.degree += factor * line.degree
            for name, c in line.terms.items():
                self.terms[name] = self.terms.get(name, 0) + factor * c
        return self

    def axiom(self, name: str, amount: int) -> Sum:
        """Add an amount of ``name >= 0``, or of ``-name >= -1`` if it is below 0."""
        if amount:
            self._push(name if amount > 0 else f"~{name}", abs(amount))
            self.terms[name] = self.terms.get(name, 0) + amount
            self.degree += min(amount, 0)
        return self

    def times(self, factor: int) -> None:
        """Multiply by a number above 0."""
        if factor != 1 and self._text:
            self._text.append(f"{factor} *")
            self.terms = {name: factor * c for name, c in self.terms.items()}
            self.degree *= factor

    def divide(self, divisor: int) -> None:
        """Divide the normal form, over literals with coefficients above 0, and round up."""
        if divisor != 1 and self._text:
            self._text.append(f"{divisor} d")
            normal = self.degree - sum(min(c, 0) for c in self.terms.values())
            self.terms = {n: -(-abs(c) // divisor) * (1 if c > 0 else -1) for n, c in self.terms.items() if c}
            self.degree = -(-normal // divisor) + sum(min(c, 0) for c in self.terms.values())

    def derived(self, derive: Callable[[str], int]) -> Line:
        """The constraint, written as a line."""
        number = derive("pol " + " ".join(self._text)) if self._text else 0
        return Line(number, {n: c for n, c in self.terms.items() if c}, self.degree)


def parts_of(formula: PseudoBooleanFormula, most: float) -> tuple[Any, ...]:
    """Sizes, functions, linear constraints and upper bound, as the checker of certificates takes them: the costs are
    those of the objective, which is ``most`` at most; the tables come first."""
    problem = formula.problem
    excluded: dict[Row, dict[Row, Any]] = {}
    for scope, clauses in formula.forbidden:
        excluded.setdefault(scope, {}).update(dict.fromkeys(clauses))
    functions: list[Any] = [(t.scope, {**t.costs, **excluded.get(t.scope, {})}, 0) for t in formula.tables]
    functions += [(scope, rows, 0) for scope, rows in excluded.items()]
    linear = [
        ({v: own.tolist() for v, own in zip(c.scope, c.coefficients, strict=True)}, c.capacity)
        for c in problem.linear_constraints
    ]
    return list(problem.sizes), functions, linear, most + 1


class CuttingPlanes:
    """Derives what the steps of a certificate show.

    formula : of the problem. derive : writes a line and returns its number. found : the steps (:meth:`Maker.steps`).
    improving : number of the constraint that the objective is ``most`` at most; None: there is none.
    units : by removed literal (variable and value), number of the clause that excludes it.
    bound : the best lower bound of the objective, in the objective's form; None: none above 0.
    """

    def __init__(
        self,
        formula: PseudoBooleanFormula,
        derive: Callable[[str], int],
        found: dict[str, Any],
        improving: int | None,
        most: float,
    ) -> None:
        self._formula, self._derive, self._found = formula, derive, found
        self._proof = Proof(parts_of(formula, most), found["dear"], "infeasible", 0)
        self._step = math.gcd(*formula.objective.values()) or 1
        self._names = [f"x{x + 1}" for x in range(len(self._proof.owner))]
        own = [[self._names[x] for x in members(mask)] for mask in self._proof.mask]
        self._at_least = [Line(formula.at_least[v], dict.fromkeys(names, 1), 1) for v, names in enumerate(own)]
        self._at_most = [Line(formula.at_most[v], dict.fromkeys(names, -1), -1) for v, names in enumerate(own)]
        self._clauses: dict[int, Line] = {}
        for scope, clauses in formula.forbidden:
            for row, number in clauses.items():
                mask = sum(1 << self._proof.first[v] + a for v, a in zip(scope, row, strict=True))
                self._clauses[mask] = self._clause(scope, row, number)
        for pair, (number, _) in self._proof.dear.items():
            table = formula.tables[number]
            row = tuple(x - self._proof.first[v] for x, v in zip(members(pair), table.scope, strict=True))
            self._clauses.setdefault(pair, self._clause(table.scope, row, table.clauses[row], table.names[row]))
        self._false = {x: self._clauses[1 << x] for x in range(len(self._names)) if 1 << x in self._clauses}
        objective = {name: -c for name, c in formula.objective.items()}
        self._improving = None if improving is None else Line(improving, objective, -int(most))
        self._cliques, self._capacities, self._known = dict[int, Line](), dict[int, Line](), dict[int, Line]()
        self.units: dict[tuple[int, int], int] = {}
        self.bound: Line | None = None
        self.rows: list[Line] = []

    def write(self) -> None:
        """Write all steps."""
        proof = self._proof
        for step in self._found["steps"]:
            line = self._sum_of_rows(step["multipliers"]).derived(self._derive)
            bound, total = Sum().add(line), Sum().add(line)
            for name in sorted({*bound.terms, *self._formula.objective}):
                bound.axiom(name, SCALE * self._formula.objective.get(name, 0) - bound.terms.get(name, 0))
            bound.divide(SCALE * self._step)
            bound.times(self._step)
            if bound.degree > (0 if self.bound is None else self.bound.degree):
                self.bound = bound.derived(self._derive)
            if bound.degree >= proof.limit:
                return
            if step["removed"]:
                self._remove(total, step["removed"])
            proof.fixed = sum(own & proof.alive for own in proof.mask if (own & proof.alive).bit_count() == 1)

    def _clause(self, scope: Row, row: Row, number: int | None, *names: str) -> Line:
        assert number is not None
        terms = {self._formula.literal(v, a): -1 for v, a in zip(scope, row, strict=True)}
        return Line(number, {**terms, **dict.fromkeys(names, 1)}, 1 - len(scope))

    def _sum_of_rows(self, multipliers: Iterable[Sequence[int]]) -> Sum:
        """Rows, and for each variable its cheapest literal: a bound of the scaled objective."""
        proof, total, objective = self._proof, Sum(), self._formula.objective
        self.rows = []
        for number, factor in multipliers:
            with suppress(ValueError):
                self.rows.append(self._row(number))
                total.add(self.rows[-1], factor)
        for v, own in enumerate(proof.mask):
            names = ((x, self._names[x]) for x in members(own))
            rest = {x: SCALE * objective.get(name, 0) - total.terms.get(name, 0) for x, name in names}
            least = min((rest[x] for x in members(own & proof.alive)), default=0)
            total.add((self._at_least if least > 0 else self._at_most)[v], abs(least))
            for x in members(own & ~proof.alive):
                total.add(self._false[x], max(0, least - rest[x]))
        return total

    def _remove(self, total: Sum, removed: Iterable[int]) -> None:
        """Derive a unit for each literal whose reduced cost exceeds what an improvement may cost."""
        proof, names = self._proof, self._names
        if self._improving is not None:
            improving = Sum().add(self._improving)
            improving.divide(self._step)
            total.add(improving.derived(self._derive), SCALE * self._step)
        for name in sorted({*total.terms, *self._formula.objective}):  # what is not bounded may have its worst value
            if self._improving is None:
                total.axiom(name, -SCALE * self._formula.objective.get(name, 0))
            total.axiom(name, -max(0, total.terms.get(name, 0)))
        chosen = [x for x in removed if -total.terms.get(names[x], 0) > -total.degree]
        for name in sorted(total.terms.keys() - {names[x] for x in chosen}):
            total.axiom(name, -total.terms[name])
        if chosen:
            self._split(total.derived(self._derive), chosen)
        proof.alive &= ~sum(1 << x for x in chosen)

    def _split(self, line: Line, literals: list[int]) -> None:
        """Units of some literals, by halves."""
        for part in (literals[: len(literals) // 2], literals[len(literals) // 2 :]):
            rest, total = {self._names[x] for x in part}, Sum().add(line)
            for name in [n for n in line.terms if n not in rest]:
                total.axiom(name, -line.terms[name])
            if len(part) > 1:
                self._split(total.derived(self._derive), part)
            elif part:
                total.divide(-line.terms[self._names[part[0]]])
                unit = self._false[part[0]] = total.derived(self._derive)
                v = self._proof.owner[part[0]]
                self.units[v, part[0] - self._proof.first[v]] = unit.number

    def _row(self, number: int) -> Line:
        """The constraint of a row; ValueError where literals that were not removed violate it."""
        if number not in self._known:
            row, proof = self._found["rows"][number], self._proof
            if row["kind"] == "capacity":
                return self._capacity(row["constraint"])
            weights = dict(zip(row["literals"], row["coefficients"], strict=True))
            mask = sum(1 << x for x in weights) & proof.alive
            adjacent = {x: proof.conflict[x] & mask for x in members(mask)}
            for pair in proof.dear:
                for x in members(pair) if pair & mask == pair else ():
                    adjacent[x] |= pair ^ 1 << x
            self._known[number] = self._node(weights, adjacent, mask, 0, row["right_side"])
        return self._known[number]

    def _node(self, weights: dict[int, int], adjacent: dict[int, int], left: int, chosen: int, limit: int) -> Line:
        """The constraint that literals of ``left`` weigh at most a limit if the chosen literals are true."""
        cover, rest = list[tuple[list[int], int]](), left
        while rest:
            common, clique = rest, list[int]()
            while common:
                x = (common & -common).bit_length() - 1
                rest, common = rest ^ 1 << x, common & adjacent[x]
                clique.append(x)
            cover.append((clique, max(0, *(weights[x] for x in clique))))
        names, total = self._names, Sum()
        if sum(heaviest for _, heaviest in cover) <= limit:
            for clique, heaviest in cover:
                if len(clique) > 1 and heaviest:
                    total.add(self._clique(clique), heaviest)
                for x in clique:
                    total.axiom(names[x], (heaviest if len(clique) > 1 else 0) - weights[x])
            return total.derived(self._derive)
        if limit < 0:
            raise ValueError
        x = left.bit_length() - 1
        left, own, weight = left ^ 1 << x, chosen | 1 << x, weights[x]
        without = self._node(weights, adjacent, left, chosen, limit)
        gap = self._limit(without, chosen) - (limit - weight)
        if weight <= 0 or gap <= 0:
            return total.add(without).axiom(names[x], -weight).derived(self._derive)
        blocked = self._blocked(x, own)
        if blocked is None:
            total.add(self._node(weights, adjacent, left & ~adjacent[x], own, limit - weight))
        for y in members(left if blocked else left & adjacent[x]):
            if blocked or weights[y] <= 0:
                total.axiom(names[y], -weights[y])
            else:
                self._add_pair(total, x, y, weights[y])
        if blocked is not None:
            total.add(blocked, max(1, self._limit(total, own) - (limit - weight)))
        while -total.terms.get(names[x], 0) > weight:
            factor = -total.terms[names[x]]
            total.times(factor * (gap - 1) + 1)
            total.add(without, factor)
            total.divide(factor * gap + 1)
        return total.axiom(names[x], -weight - total.terms.get(names[x], 0)).derived(self._derive)

    def _limit(self, line: Line | Sum, chosen: int) -> int:
        """The right side of a constraint ``<=`` if the chosen literals are true."""
        return sum(line.terms.get(self._names[x], 0) for x in members(chosen)) - line.degree

    def _blocked(self, x: int, own: int) -> Line | None:
        """A clause that not all of some literals are true, the last of which is x; None where they fit together."""
        proof, total = self._proof, Sum()
        for literals in proof.sets[x]:
            if not literals & ~own & ~proof.fixed:
                total.add(self._clauses[literals])
                for y in members(literals & ~own):
                    total.add(self._at_least[proof.owner[y]])
                    for z in members(proof.mask[proof.owner[y]] ^ 1 << y):
                        total.add(self._false[z])
                return total.derived(self._derive)
        for k, (use, room) in enumerate(proof.linear):
            amounts = [use.get(y, 0) for y in members(own)]
            if sum(amounts) > room:
                total.add(self._capacity(k))
                for name in sorted(total.terms.keys() - {self._names[y] for y in members(own)}):
                    total.axiom(name, -total.terms[name])
                total.divide(max(sum(amounts) - room, *amounts))
                return total.derived(self._derive)
        return None

    def _capacity(self, number: int) -> Line:
        """A linear constraint whose least amounts are 0."""
        if number not in self._capacities:
            linear, constraint = self._formula.linear[number]
            terms, total = dict[str, int](), Sum()
            own = list(zip(linear.scope, (c.tolist() for c in linear.coefficients), strict=True))
            for v, amounts in own:
                terms.update((self._formula.literal(v, a), -c) for a, c in enumerate(amounts))
            total.add(Line(constraint, terms, -linear.capacity))
            for v, amounts in own:
                total.add((self._at_least if min(amounts) > 0 else self._at_most)[v], abs(min(amounts)))
            self._capacities[number] = total.derived(self._derive)
        return self._capacities[number]

    def _clique(self, literals: list[int]) -> Line:
        """The constraint that at most one of several literals is true; each two of them exclude each other."""
        proof, key = self._proof, sum(1 << x for x in literals)
        if key not in self._cliques:
            groups: dict[int, list[int]] = {}
            for x in literals:
                groups.setdefault(proof.owner[x], []).append(x)
            first, *rest = sorted(groups.values(), key=len, reverse=True)
            known, total = list(first), Sum()
            if len(first) > 1:
                total.add(self._at_most[proof.owner[first[0]]])
                for x in members(proof.mask[proof.owner[first[0]]] & ~key):
                    total.axiom(self._names[x], 1)
            for x in chain(*rest):
                total.times(max(1, len(known) - 1))
                for y in known:
                    self._add_pair(total, x, y, 1)
                total.divide(len(known))
                known.append(x)
            self._cliques[key] = total.derived(self._derive)
        return self._cliques[key]

    def _add_pair(self, total: Sum, x: int, y: int, factor: int) -> None:
        """Add a multiple of the constraint that two literals exclude each other, or that they pay."""
        v = self._proof.owner[x]
        if v != self._proof.owner[y]:
            total.add(self._clauses[1 << x | 1 << y], factor)
            return
        total.add(self._at_most[v], factor)
        for z in members(self._proof.mask[v] & ~(1 << x | 1 << y)):
            total.axiom(self._names[z], factor)
