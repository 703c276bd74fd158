"""Proofs in the format of VeriPB 2.0: bucket elimination in cutting planes (docs/proofs.md).

A *state* of a scope is a variable that is true where all variables of the scope have given values; it is introduced by
redundance (``red``) with both directions, unless it is a literal. A table is the inequality

    costs of the objective  >=  sum of cost * state,

of which only the states are live. States cancel in the sum of all inequalities, as those of a bucket's message occur in
the message's bucket with the opposite sign. The steps of a linear program (:mod:`oocbe.certificates.cutting_planes`)
and of a search (:mod:`oocbe.certificates.cost_shifting`) come before it, and mostly leave nothing to eliminate.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from oocbe.certificates.cost_shifting import LARGEST_SUM, Effort, ShiftedCosts, Shifts, State, added, shifts_of
from oocbe.certificates.cutting_planes import CuttingPlanes, Line
from oocbe.certificates.opb import FormulaCosts, PseudoBooleanFormula, Row
from oocbe.model.parts import LinearConstraint
from oocbe.runtime.deadline import check_deadline

LINE = 40_000
"""Characters after which a sum continues in a further line."""

DELETED = 200
"""Constraints that a line deletes at most, so that lines stay short."""

FIRST_SHARES = (0.75, 0.3)
"""Share of the time for a search of the limit, before lower ones: of an assignment, and of a bound as the goal."""


class BucketRowsError(Exception):
    """The buckets have more rows than permitted."""


class Written(NamedTuple):
    """A finished proof: lower and upper bound of the objective (None: none), and rows of the search and all buckets."""

    lower: int | None
    upper: int | None
    is_infeasible: bool
    rows: int

    @property
    def is_closed(self) -> bool:
        """Whether no gap is left."""
        return self.is_infeasible or self.lower == self.upper


class ProofWriter:
    """Writes the proof of a formula.

    formula : of the problem. write : takes text. order : of elimination; None: there is none. most : rows of all
        buckets, and of each linear constraint in an elimination. effort : of the search; None: there is none. goal :
        greatest lower bound that it has to prove.
    """

    def __init__(
        self,
        formula: PseudoBooleanFormula,
        write: Callable[[str], object],
        order: list[int] | None,
        most: float = math.inf,
        effort: Effort | None = None,
        goal: float = math.inf,
    ) -> None:
        self._formula, self._write, self._order, self._most = formula, write, order, most
        self._effort, self._goal = effort, goal
        self._sizes = formula.problem.sizes
        self._last = formula.constraints + len(formula.derived)
        given = range(len(self._sizes)) if order is None else order
        self._place = {v: i for i, v in enumerate(given)}
        self._states: dict[Row, dict[Row, State]] = defaultdict(dict)
        self._tables: dict[int, list[FormulaCosts]] = defaultdict(list)
        self._forbidden: dict[int, list[tuple[Row, dict[Row, int]]]] = defaultdict(list)
        self._parts: list[str] = []
        self._length = self._named = self._rows = self._shifted = self._total = 0
        self._contradiction: int | None = None
        self._cuts: list[Line] = []
        self._proven = 0  # by steps of a certificate

    def write(
        self, assignment: Row | None, steps: dict[str, Any] | None = None, found: Shifts | None = None
    ) -> Written:
        """Write the proof, with an assignment as upper bound (None: there is none).

        The steps of a certificate, below the assignment or the formula's limit, come first, then a search, and the
        elimination where that leaves a gap. A search that was ``found`` before suffices without steps.
        TooManyRowsError : the buckets have more rows than ``most``.
        """
        formula, upper, improving, most = self._formula, None, self._formula.limit, self._formula.most
        self._write(f"pseudo-Boolean proof version 2.0\n{self._head()}")
        if assignment is not None:
            literals, upper = formula.solution(assignment)
            if formula.objective:
                improving, most = self._derive("soli " + " ".join(literals)), upper - 1
            else:
                self._write("sol " + " ".join(literals) + "\n")
        lower, number = 0, None
        bound = None if steps is None else self._take(steps, improving, most)
        if found is not None:
            self._shift(found, improving, most)
        if upper == 0:  # no cost is below 0
            number = self._derive(f"pol {next(iter(formula.objective))}") if formula.objective else None
        elif self._contradiction is None:
            lower, number = self._lower(improving, most)
        if bound is not None and bound.degree > lower:
            lower, number = bound.degree, bound.number
        if upper is not None and self._contradiction is not None:  # nothing improves on the assignment
            lower, number = upper, self._derive(f"pol {self._contradiction} {upper} *")
            self._contradiction = None
        if upper is not None:
            lower = min(lower, upper)
        if self._contradiction is not None:
            end = f"BOUNDS INF : {self._contradiction} INF" if formula.objective else f"UNSAT : {self._contradiction}"
        elif formula.objective:
            end = f"BOUNDS {lower}{f' : {number}' if number else ''} {'INF' if upper is None else upper}"
        else:
            end = "NONE" if upper is None else "SAT"
        self._write(f"output NONE\nconclusion {end}\nend pseudo-Boolean proof\n")
        is_infeasible = self._contradiction is not None
        return Written(None if is_infeasible else lower, upper, is_infeasible, self._rows + self._shifted)

    def _take(self, steps: dict[str, Any], improving: int | None, most: float) -> Line | None:
        """Write the steps of a certificate; removed values are forbidden from then on. Returns the bound."""
        formula, begin = self._formula, self._last + 1
        planes = CuttingPlanes(formula, self._derive, steps, improving, most)
        planes.write()
        bound, given = planes.bound, {f"x{x + 1}" for x in range(formula.first[-1])}
        own = (line for line in planes.rows if line.number >= begin and line.terms.keys() <= given)
        self._cuts = [line for line in own if 0 < sum(map(abs, line.terms.values())) < LARGEST_SUM]
        kept = {*planes.units.values(), *(line.number for line in self._cuts)}
        if bound is not None:
            kept.add(bound.number)
            self._proven = bound.degree
        self._delete([n for n in range(begin, self._last + 1) if n not in kept])
        for (v, a), number in planes.units.items():
            self._add_forbidden((v,), {(a,): number})
        if bound is not None and bound.degree > most and bound.degree > sum(formula.objective.values()):
            worst = "".join(f" ~{name} {c} * +" for name, c in formula.objective.items())
            self._contradiction = self._derive(f"pol {bound.number}{worst}")
        elif bound is not None and bound.degree > most and improving is not None:
            self._contradiction = self._derive(f"pol {bound.number} {improving} +")
        return bound

    def _shift(self, found: Shifts, improving: int | None, most: float) -> tuple[int, int | None]:
        """Write a search; returns the lower bound that it proves, and the number of its constraint."""
        lower, number, is_bound, own = -(-found.root.bound // found.scale), None, found.limit < most, improving
        lower = int(found.limit) + 1 if is_bound and found.tree is not None else lower
        if lower > self._proven or not (found.tree is None or is_bound):
            live, chosen = set[int](), list[str]()

            def derive(text: str) -> int:
                live.add(self._derive(text))
                return self._last

            def delete(numbers: list[int]) -> None:
                live.difference_update(numbers)
                self._delete(numbers)

            makers = derive, delete, self._state, self._defined
            if is_bound and found.tree is not None:
                name, own, bound = self._below(lower)
                chosen.append(f"~{name}")
            planes = ShiftedCosts(self._formula, *makers, found, own)
            if found.tree is None:
                number = planes.bound()
            elif chosen:
                number = self._derive(f"pol {bound} {planes.close(chosen)} {lower} * +")
            else:
                self._contradiction = planes.close(chosen)
            if self._contradiction is None:  # an elimination may follow
                self._delete(sorted(live - {number}))
            for scope in found.parts:
                self._shifted += len(self._states.pop(scope, ()))
        return (0, None) if number is None else (lower, number)

    def _below(self, bound: int) -> tuple[str, int, int]:
        """A new variable that is true where the objective is below a bound: its name, and the numbers of the
        constraints that the objective is below it if the variable is true, and at least so great otherwise."""
        self._named += 1
        name, costs = f"z{self._named}", self._formula.objective.items()
        terms = [" ".join(f"{sign * c} {x}" for x, c in costs) for sign in (-1, 1)]
        room = max(0, sum(self._formula.objective.values()) - bound + 1)
        implied = self._derive(f"red {room} ~{name} {terms[0]} >= {1 - bound} ; {name} -> 0")
        return name, implied, self._derive(f"red {bound} {name} {terms[1]} >= {bound} ; {name} -> 1")

    def _lower(self, improving: int | None, most: float) -> tuple[int, int | None]:
        """The lower bound of the objective, and the number of its constraint."""
        formula = self._formula
        for table in formula.tables:
            self._tables[self._first(table.scope)].append(table)
        for scope, clauses in formula.forbidden:
            self._add_forbidden(scope, clauses)
        root: tuple[int, int | None] = 0, None
        if self._contradiction is None and self._effort is not None:
            forbidden = [*itertools.chain(*self._forbidden.values())]
            limit, given = min(most, self._goal - 1), (self._effort, self._cuts, self._proven)
            found = shifts_of(formula, forbidden, limit, *given, FIRST_SHARES[self._goal < math.inf])
            if found is not None and found.limit == math.inf and found.tree is None:
                at_once = self._effort._replace(end=0.0)
                found = shifts_of(formula, forbidden, sum(formula.objective.values()), at_once)
                found = None if found is None else found._replace(tree=None)  # the bound of the root
            if found is not None:
                root = self._shift(found, improving, most)
        lower = 0
        for linear, constraint in formula.linear if self._contradiction is None and self._order is not None else ():
            constant = {v: least for v, least, most in zip(linear.scope, *linear.ends, strict=True) if least == most}
            varied = linear.without(dict.fromkeys(constant, 0))
            if linear.can_bind and math.prod(self._sizes[v] for v in varied.scope) <= self._most:
                sides = ((formula.at_least[v] if c > 0 else formula.at_most[v], abs(c)) for v, c in constant.items())
                terms = [f"{side} {amount} * +" for side, amount in sides if amount]
                reduced = self._derive(f"pol {constraint} {' '.join(terms)}") if terms else constraint
                self._add_forbidden(tuple(sorted(varied.scope)), dict(self._excluded(varied, reduced)))
        for v in self._order or ():
            if self._contradiction is not None:
                return 0, None
            check_deadline()
            lower += self._bucket(v)
        if self._contradiction is not None:
            return 0, None
        self._flush()
        number = self._total if lower else None
        if not lower and formula.objective:
            number = self._derive(f"pol {next(iter(formula.objective))}")
        if formula.limit is not None and lower > formula.most:
            self._contradiction = self._derive(f"pol {number} {formula.limit} +") if lower else formula.limit
        return max((lower, number), root, key=lambda pair: pair[0])

    def _head(self) -> str:
        return "".join(f"{line}\n" for line in (f"f {self._formula.constraints}", *self._formula.derived))

    def _first(self, scope: Row) -> int:
        return min(scope, key=self._place.__getitem__, default=-1)

    def _derive(self, text: str) -> int:
        self._write(text + "\n")
        self._last += 1
        return self._last

    def _delete(self, numbers: list[int]) -> None:
        numbers = [n for n in numbers if n > self._formula.constraints]
        for start in range(0, len(numbers), DELETED):
            self._write(f"del id {' '.join(map(str, numbers[start : start + DELETED]))}\n")

    def _add_forbidden(self, scope: Row, clauses: dict[Row, int]) -> None:
        if not clauses:
            return
        if not scope:
            self._contradiction = clauses[()]
        else:
            self._forbidden[self._first(scope)].append((scope, clauses))

    def _excluded(self, linear: LinearConstraint, number: int) -> Iterator[tuple[Row, int]]:
        """A clause for each row that a linear constraint excludes."""
        own = sorted(zip(linear.scope, (c.tolist() for c in linear.coefficients), strict=True))
        for row in itertools.product(*(range(len(c)) for _, c in own)):
            if sum(c[a] for (_, c), a in zip(own, row, strict=True)) > linear.capacity:
                yield row, self._exclusion(linear, number, dict(zip((v for v, _ in own), row, strict=True)))

    def _exclusion(self, linear: LinearConstraint, number: int, values: dict[int, int]) -> int:
        """The clause that not all of some values occur, which exceed the capacity whatever the others are."""
        formula, text, rest = self._formula, [str(number)], list[str]()
        own = [(v, c.tolist()) for v, c in sorted(zip(linear.scope, linear.coefficients, strict=True))]
        amounts = [c[values[v]] if v in values else min(c) for v, c in own]
        excess = sum(amounts) - linear.capacity
        for (v, coefficients), amount in zip(own, amounts, strict=True):
            if amount:
                side = formula.at_least[v] if amount > 0 else formula.at_most[v]
                text.append(f"{side} {abs(amount)} * +")
            if v in values:
                rest.append(f"{formula.at_most[v]} {excess} * +")
            for b, other in enumerate(coefficients):
                if amount < other:
                    text.append(f"{formula.literal(v, b)} {other - amount} * +")
                gap = excess - min(max(amount - other, 0), excess)
                if v in values and b != values[v] and gap:
                    rest.append(f"{formula.literal(v, b)} {gap} * +")
        return self._derive(f"pol {' '.join([*text, 's', *rest])} {excess} d")

    def _state(self, scope: Row, row: Row) -> State:
        """The state of a row, introduced at its first use."""
        if len(scope) == 1:
            return State(self._formula.literal(scope[0], row[0]), None, None)
        found = self._states[scope].get(row)
        if found is None:
            literals = [self._formula.literal(*pair) for pair in zip(scope, row, strict=True)]
            found = self._states[scope][row] = self._defined(literals)
        return found

    def _defined(self, literals: list[str]) -> State:
        """A new variable that is true where all of some literals are."""
        self._named += 1
        name, count, values = f"z{self._named}", len(literals), " ".join(f"1 {x}" for x in literals)
        implies = self._derive(f"red {count} ~{name} {values} >= {count} ; {name} -> 0")
        negated = " ".join(f"1 {x[1:] if x[0] == '~' else f'~{x}'}" for x in literals)
        return State(name, implies, self._derive(f"red 1 {name} {negated} >= 1 ; {name} -> 1"))

    def _sum(self, part: str) -> None:
        """Add an inequality, in reverse Polish notation, to those that give the bound."""
        self._parts.append(part)
        self._length += len(part)
        if self._length > LINE:
            self._flush()

    def _flush(self) -> None:
        if self._parts:
            before, own = self._total, [str(self._total)] if self._total else []
            self._total = self._derive(f"pol {added([*own, *self._parts])}")
            self._delete([before])
            self._parts, self._length = [], 0

    def _bucket(self, v: int) -> int:
        """Eliminate a variable; returns what it adds to the lower bound."""
        tables, forbidden, formula = self._tables.pop(v, []), self._forbidden.pop(v, []), self._formula
        union = tuple(sorted({v}.union(*(t.scope for t in tables), *(scope for scope, _ in forbidden))))
        rest = tuple(u for u in union if u != v)
        earlier = [f for u in rest for f in self._forbidden.get(u, ()) if set(f[0]) <= set(rest)]
        own = [*forbidden, *earlier]
        while len(tables) > 1:
            a, b, *tables = tables
            target = tuple(sorted({*a.scope, *b.scope}))
            tables.append(_merged(self._extended(a, target, own), self._extended(b, target, own)))
        table = self._extended(tables[0], union, own) if tables else FormulaCosts(union, {}, {}, {})
        place, size = union.index(v), self._sizes[v]
        clause_of = _Filter(union, own)
        made, clauses, used = FormulaCosts(rest, {}, {}, {}), dict[Row, int](), dict[Row, int]()
        least = 0
        for row in self._permitted_rows(rest, earlier):
            self._rows += size
            if self._rows > self._most:
                raise BucketRowsError
            extensions = [(*row[:place], a, *row[place:]) for a in range(size)]
            numbers = [clause_of.clause(t) for t in extensions]
            if None not in numbers:
                # A clause of fewer literals gets all of the row: later sums over the values of each variable need them.
                terms = [*numbers, *(f"~{formula.literal(*pair)}" for pair in zip(rest, row, strict=True))]
                clauses[row] = self._derive(f"pol {formula.at_least[v]} {' '.join(f'{n} +' for n in terms)} s")
                continue
            permitted = [t for t, n in zip(extensions, numbers, strict=True) if n is None]
            least = min(table.costs.get(t, 0) for t in permitted)
            if not least:
                continue
            used.update(dict.fromkeys(permitted, least))
            known = [table.clauses[t] for t in permitted] + [n for n in numbers if n is not None]
            text = str(formula.at_least[v]) + "".join(f" {n} +" for n in known if n is not None)
            if rest:
                state = self._state(rest, row)
                made.costs[row], made.names[row], made.clauses[row] = least, state.name, state.implied
                text += " s" if state.implies is None else f" s {state.implies} + s"
            self._sum(f"{text} {least} *")
        for row, cost in table.costs.items():
            if cost > used.get(row, 0):
                self._sum(f"{table.names[row]} {cost - used.get(row, 0)} *")
        self._add_forbidden(rest, clauses)
        if made.costs and rest:
            self._tables[self._first(rest)].append(made)
        self._flush()
        dead = [scope for scope in self._states if v in scope]
        numbers = [n for s in dead for state in self._states.pop(s).values() for n in (state.implies, state.implied)]
        self._delete([n for n in numbers if n is not None])
        self._delete([n for _, clauses in forbidden for n in clauses.values()])
        return 0 if rest else least

    def _permitted_rows(self, scope: Row, forbidden: list[tuple[Row, dict[Row, int]]]) -> Iterator[Row]:
        """Rows of a scope without a forbidden one, depth first."""
        if not scope:
            yield ()
            return
        own = _Filter(scope, [f for f in forbidden if scope[-1] in f[0] and set(f[0]) <= set(scope)])
        for prefix in self._permitted_rows(scope[:-1], forbidden):
            rows = ((*prefix, a) for a in range(self._sizes[scope[-1]]))
            yield from (row for row in rows if own.clause(row) is None)

    def _extended(self, table: FormulaCosts, union: Row, forbidden: list[tuple[Row, dict[Row, int]]]) -> FormulaCosts:
        """A table over a larger scope, with states of its own rows; sums the inequality old states >= new states."""
        while True:
            new = next((u for u in union if u not in table.scope), None)
            if new is None and (len(table.scope) == 1 or self._has_states(table)):
                return table
            scope = tuple(sorted({*table.scope, *(() if new is None else (new,))}))
            values = [None] if new is None else list(range(self._sizes[new]))
            place = 0 if new is None else scope.index(new)
            permitted = _Filter(scope, [f for f in forbidden if set(f[0]) <= set(scope)])
            made = FormulaCosts(scope, {}, {}, {})
            for row, cost in table.costs.items():
                rows = [row if a is None else (*row[:place], a, *row[place:]) for a in values]
                kept = [i for i, t in enumerate(rows) if permitted.clause(t) is None]
                if not kept:
                    self._sum(f"{table.names[row]} {cost} *")
                    continue
                states = [self._state(scope, rows[i]) for i in kept]
                self._sum(self._row_part(table, row, new, kept, states, cost))
                for i, state in zip(kept, states, strict=True):
                    made.costs[rows[i]], made.names[rows[i]] = cost, state.name
                    made.clauses[rows[i]] = state.implied
            table = made

    def _has_states(self, table: FormulaCosts) -> bool:
        own = self._states.get(table.scope, {})
        return all(row in own and own[row].name == name for row, name in table.names.items())

    def _row_part(
        self, table: FormulaCosts, row: Row, new: int | None, kept: list[int], states: list[State], cost: int
    ) -> str:
        """``cost * (state of a row - states of its extensions) >= 0``, in reverse Polish notation."""
        formula, clause = self._formula, table.clauses[row]
        lower = []
        for a, state in zip(kept, states, strict=True):
            weakened = "" if new is None else f" ~{formula.literal(new, a)} +"
            lower.append(f"{state.implies}{'' if clause is None else f' {clause} +'}{weakened} s")
        text, count = added(lower), len(kept)
        if count > 1:
            assert new is not None
            values = " ".join(f"~{formula.literal(*pair)} +" for pair in zip(table.scope, row, strict=True))
            single = [f"{state.implies} {values} s" for state in states]
            rest = "".join(f" {formula.literal(new, a)} +" for a in range(self._sizes[new]) if a not in kept)
            at_most = f"{added(single)} {formula.at_most[new]} +{rest}"
            text = f"{text} {at_most}{f' {count - 1} *' if count > 2 else ''} + {count} d"
        return text if cost == 1 else f"{text} {cost} *"


class _Filter:
    """The clause that excludes a row of a scope, if any does."""

    def __init__(self, scope: Row, forbidden: list[tuple[Row, dict[Row, int]]]) -> None:
        self._own = [([scope.index(u) for u in own], clauses) for own, clauses in forbidden]

    def clause(self, row: Row) -> int | None:
        for places, clauses in self._own:
            found = clauses.get(tuple([row[i] for i in places]))
            if found is not None:
                return found
        return None


def _merged(a: FormulaCosts, b: FormulaCosts) -> FormulaCosts:
    """The sum of two tables of states of one scope."""
    costs = {**a.costs}
    for row, cost in b.costs.items():
        costs[row] = costs.get(row, 0) + cost
    return FormulaCosts(a.scope, costs, {**a.names, **b.names}, {**a.clauses, **b.clauses})
