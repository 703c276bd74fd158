"""Translation of expressions over XCSP's variables: tables, linear constraints, and variables for partial values.

A relation over few assignments is a table. A comparison of sums is a linear constraint with what each value of each
variable adds, so that ``add(eq(x,1),eq(y,1))`` is one, too. Where an expression is too large for both, its parts become
variables of their own (``expression.1`` and so on, after the file's), with one value for each assignment of these: the
number of solutions stays what it is.

All assignments of a table's variables are evaluated at once. Instances of a group are the same expression over other
variables; where these have the same domains, they share the rows of the first one.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import UnsupportedError
from oocbe.formats.global_costs import Decomposed, State
from oocbe.formats.xcsp_expressions import (
    ARITHMETIC,
    CONSTANT,
    LARGEST,
    VARIABLE,
    Expression,
    Integers,
    UnsupportedConstraint,
    bounds_of,
    call,
    constant,
    evaluate,
    variable,
)
from oocbe.formats.xcsp_variables import MOST_VARIABLES, Domain, Variables
from oocbe.model.model_checks import INT64
from oocbe.model.parts import Constraint, Function, LinearConstraint
from oocbe.model.problem import Problem
from oocbe.model.row_numbers import distinct_values
from oocbe.model.semiring import MAX_SUM, MIN_SUM
from oocbe.runtime.deadline import check_deadline

MOST_EVALUATED = 2**27
"""Assignments of all relations of a file together."""

MOST_LISTED = 2**26
"""Values in the rows of all tables together, of which instances of a group share theirs."""


@dataclass(eq=False)
class RelationTables:
    """Tables, the ``constraints``, over a file's variables and those made for expressions."""

    variables: Variables
    constraints: list[Constraint] = field(default_factory=list)
    _tables: dict[tuple[Expression, tuple[int, ...]], tuple[NDArray[np.int64], bool]] = field(default_factory=dict)
    _evaluated: int = 0
    _listed: int = 0

    def values(self, v: int) -> Integers:
        """Values of a variable, ascending."""
        return self.domain(v).values

    def domain(self, v: int) -> Domain:
        """The domain of a variable."""
        return self.variables.domains[v]

    def cells(self, expression: Expression) -> int:
        """Assignments of an expression's variables."""
        return math.prod(len(self.values(v)) for v in expression.scope)

    def evaluate(self, expression: Expression, values: Sequence[Integers]) -> Integers:
        """An array with an axis for each variable of the scope, which has the given values."""
        template = expression.template
        bounds_of(template, [(int(own[0]), int(own[-1])) for own in values])
        shape = tuple(map(len, values))
        self._evaluated += math.prod(shape)
        if self._evaluated > MOST_EVALUATED:
            raise UnsupportedConstraint(f"expressions that have more than {MOST_EVALUATED:,} assignments together")
        columns = np.ix_(*values) if values else ()
        return np.broadcast_to(evaluate(template, columns), shape)

    def _keep(self, key: tuple[Expression, tuple[int, ...]], rows: NDArray[np.int64], allowed: bool) -> None:
        """Keep the rows of a table for all instances; UnsupportedConstraint where those of all tables are too many."""
        self._listed += rows.size
        if self._listed > MOST_LISTED:
            raise UnsupportedConstraint(f"tables of more than {MOST_LISTED:,} values together")
        self._tables[key] = np.ascontiguousarray(rows), allowed

    def add_table(self, expression: Expression) -> None:
        """A constraint that lists the assignments that are allowed, or those that are not, whichever are fewer."""
        domains = [self.domain(v) for v in expression.scope]
        key = (expression.template, tuple(map(id, domains)))
        if key not in self._tables:
            holds = self.evaluate(expression, [own.values for own in domains]) != 0
            allowed = 2 * int(np.count_nonzero(holds)) <= holds.size
            self._keep(key, np.argwhere(holds == allowed), allowed)
        rows, allowed = self._tables[key]
        if allowed or len(rows):
            self.constraints.append(Constraint(expression.scope, rows, allowed))

    def add_function(self, one: Expression, other: Expression, most: int, is_equal: bool = True) -> bool:
        """Add that a variable equals an expression, or differs from it, as a table of at most so many rows.

        False where neither side is a variable alone, or the rows are too many.
        """
        left, right = (one, other) if one.operator == VARIABLE else (other, one)
        if left.operator != VARIABLE or left.value in right.scope or self.cells(right) > most:
            return False
        domains = [self.domain(v) for v in right.scope]
        key = (call("eq", variable(len(domains)), right.template), (*map(id, domains), id(self.domain(left.value))))
        if key not in self._tables:
            found = self.evaluate(right, [own.values for own in domains])
            values = self.values(left.value)
            place = np.minimum(np.searchsorted(values, found), len(values) - 1)
            fits = values[place] == found
            self._keep(key, np.concatenate([np.argwhere(fits), place[fits].reshape(-1, 1)], axis=1), True)
        rows = self._tables[key][0]
        if is_equal or len(rows):
            self.constraints.append(Constraint((*right.scope, left.value), rows, is_equal))
        return True


MOST_COEFFICIENTS = 2**26
"""Coefficients of all linear constraints together at most, one a value of each variable."""

Columns = dict[int, Integers]
"""Contribution of each value of each variable to a sum."""


@dataclass(eq=False)
class Sums:
    """Linear constraints over some variables; ``tables`` evaluates expressions."""

    tables: RelationTables
    linear: list[LinearConstraint] = field(default_factory=list)
    _products: dict[tuple[int, Expression | None, int], Integers] = field(default_factory=dict)
    _negatives: dict[int, tuple[Integers, Integers]] = field(default_factory=dict)
    _coefficients: int = 0

    def columns(
        self, expression: Expression, value_of: Callable[[Expression], int] | None = None
    ) -> tuple[Columns, int] | None:
        """An expression as a sum of what each variable adds, and a constant.

        value_of : makes variables of parts that have no such form; None: there is no result where there is one.
        """
        columns: Columns = {}
        offset = 0
        waiting = [(1, expression)]
        while waiting:
            factor, part = waiting.pop()
            parts = part.arguments
            if part.operator in ("add", "sub", "neg"):
                signs = {"add": [1] * len(parts), "sub": [1, -1], "neg": [-1]}[part.operator]
                waiting += [(factor * sign, own) for sign, own in zip(signs, parts, strict=True)][::-1]
            elif part.operator == "mul" and sum(bool(own.scope) for own in parts) == 1:
                times = math.prod(int(self.tables.evaluate(own, [])) for own in parts if not own.scope)
                waiting.append((factor * times, next(own for own in parts if own.scope)))
            elif not part.scope:
                offset += factor * int(self.tables.evaluate(part, []))
            elif len(part.scope) == 1:
                add_column(columns, part.scope[0], self._times(factor, part))
            elif value_of is None:
                return None
            else:
                made = value_of(part)
                add_column(columns, made, self._times(factor, variable(made)))
        return {v: column for v, column in columns.items() if column.any()}, offset

    def _times(self, factor: int, expression: Expression) -> Integers:
        """A number times an expression over one variable, for each of its values."""
        domain = self.tables.domain(expression.scope[0])
        is_plain = expression.operator == VARIABLE
        key = (factor, None if is_plain else expression.template, id(domain))
        if key not in self._products:
            values = domain.values if is_plain else self.tables.evaluate(expression, [domain.values])
            if abs(factor) * max(1, abs(int(values.min())), abs(int(values.max()))) > INT64.max:
                raise UnsupportedConstraint("a coefficient times a value of more than 64 bits")
            self._products[key] = factor * values
        return self._products[key]

    def compare(self, operator: str, columns: Columns, offset: int, name: str) -> None:
        """Add that a sum plus a constant compares with 0 by the operator."""
        if operator in ("le", "lt", "eq"):
            self._add_at_most(columns, -offset - (operator == "lt"), name)
        if operator in ("ge", "gt", "eq"):
            self._add_at_most(
                {v: self._negative(column) for v, column in columns.items()}, offset - (operator == "gt"), name
            )

    def _negative(self, column: Integers) -> Integers:
        """A column's negative, once for all sums that have it."""
        found = self._negatives.get(id(column))
        if found is None:
            found = self._negatives[id(column)] = (column, -column)
        return found[1]

    def _add_at_most(self, columns: Columns, capacity: int, name: str) -> None:
        """A linear constraint; UnsupportedConstraint where numbers leave 64 bits or are too many."""
        self._coefficients += sum(map(len, columns.values()))
        if self._coefficients > MOST_COEFFICIENTS:
            raise UnsupportedConstraint(f"more than {MOST_COEFFICIENTS:,} values of variables in sums")
        if not INT64.min < capacity < INT64.max:
            raise UnsupportedConstraint("a right-hand side of more than 64 bits")
        self.linear.append(LinearConstraint(tuple(columns), tuple(columns.values()), capacity, name))


def length(columns: Columns) -> int:
    """Values between the least and the greatest sum, both included."""
    return 1 + sum(int(column.max()) - int(column.min()) for column in columns.values())


def add_column(columns: Columns, v: int, column: Integers) -> None:
    """Add what the values of a variable add to what they add already."""
    known = columns.get(v)
    if known is None:
        columns[v] = column
        return
    if max(int(np.abs(known).max()), int(np.abs(column).max())) >= LARGEST:
        raise UnsupportedConstraint("a coefficient times a value of more than 64 bits")
    columns[v] = known + column


SMALL_TABLE = 2**12
"""Assignments up to which a relation is a table, even if it were linear."""

SHORT_TABLE = 2**14
"""Rows up to which what a variable equals is a table, even if it were linear: that removes values amid a domain."""

DENSE_TABLE = 2**16
"""Assignments up to which searches take a table; beyond them, sums are linear, and parts become variables."""

MOST_CELLS = 2**20
"""Assignments of a relation that is a table."""

MOST_OF_MANY = 2**8
"""Assignments of one in which many arguments are taken together: tables of two at a time are smaller."""

MOST_SUMS = 2**14
"""Values of a variable that stands for a sum."""

NEGATED = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt", "eq": "ne", "ne": "eq", "in": "notin", "notin": "in"}
"""Operators, and those that are true where they are not; ``eq`` with two arguments."""

ASSOCIATIVE = ("mul", "min", "max", "xor", "and", "or")
"""Operators whose arguments may be taken together in any way; sums are linear."""

COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")
"""Operators of a condition with one number or variable on its right."""


@dataclass(frozen=True)
class Condition:
    """Condition on a value: ``(le,5)``, ``(eq,x)``, ``(in,1..3)`` or ``(notin,{1,5})``.

    operator : one of :data:`COMPARISONS`, or ``in`` or ``notin``. right : of a comparison.
    bounds : of a range. values : of a set.
    """

    operator: str
    right: Expression | None = None
    bounds: tuple[int, int] | None = None
    values: frozenset[int] = frozenset()

    def of(self, left: Expression) -> Expression:
        """The expression that another expression meets it."""
        if self.right is not None:
            return call(self.operator, left, self.right)
        if self.bounds is not None:
            inside = call("and", call("ge", left, constant(self.bounds[0])), call("le", left, constant(self.bounds[1])))
            return inside if self.operator == "in" else call("not", inside)
        return call(self.operator, left, *map(constant, sorted(self.values)))


@dataclass(eq=False)
class Relations:
    """The parts that a file's constraints have come to so far, over its variables and those made for expressions.

    variables : the file's, to which others are added. tables, sums : constraints. functions : of the objective, with
    a constant. maximises : whether it is to be large. is_whole : whether a relation over many assignments is one table
    all the same: elimination counts with few variables, while searches take no large table.
    """

    variables: Variables
    functions: list[Function] = field(default_factory=list)
    maximises: bool = False
    constant: int = 0
    is_whole: bool = False
    _values: dict[Expression, int] = field(default_factory=dict)
    _domains: dict[tuple[int, ...], Domain] = field(default_factory=dict)
    _walks: Decomposed = field(default_factory=lambda: Decomposed([]))
    _made: int = 0

    def __post_init__(self) -> None:
        self.tables = RelationTables(self.variables)
        self.sums = Sums(self.tables)

    def problem(self, name: str) -> Problem:
        """The problem of all parts."""
        return Problem(
            tuple(self.variables.variables),
            tuple(self.functions),
            tuple(self.tables.constraints),
            tuple(self.sums.linear),
            constant=self.constant,
            semiring=MAX_SUM if self.maximises else MIN_SUM,
            name=name,
        )

    def post(self, expression: Expression, name: str) -> None:
        """Add a constraint: an expression is true; UnsupportedConstraint: no form. name : of its linear constraints."""
        check_deadline()
        expression = _without_negation(expression)
        operator, parts = expression.operator, expression.arguments
        if operator == "and":
            for part in parts:
                self.post(part, name)
            return
        if operator == "eq" and len(parts) > 2:
            for one, other in itertools.pairwise(parts):
                self.post(call("eq", one, other), name)
            return
        cells = self.tables.cells(expression)
        is_small = self.is_whole or cells <= DENSE_TABLE or len(expression.scope) <= 2
        has_order = operator in ("lt", "le", "gt", "ge", "eq")
        if cells <= SMALL_TABLE:
            self.tables.add_table(expression)
        elif self._splits(expression):
            self.post(self._smaller(expression), name)
        elif is_small and operator in ("eq", "ne") and self._equal(expression, SHORT_TABLE):
            pass
        elif has_order and (found := self.sums.columns(call("sub", *parts))) is not None:
            self.sums.compare(operator, *found, name)
        elif not is_small and self._has_small_terms(expression):
            if has_order:
                self.sums.compare(operator, *self._needed_columns(call("sub", *parts)), name)
            else:
                self.post(self._smaller(expression), name)
        elif operator in ("eq", "ne") and self._equal(expression, _most_cells(*parts)):
            pass
        elif cells <= _most_cells(expression, *parts):
            self.tables.add_table(expression)
        elif has_order:
            self.sums.compare(operator, *self._needed_columns(call("sub", *parts)), name)
        elif operator == "or":
            self.sums.compare(
                "ge", *self._needed_columns(call("sub", call("add", *map(_truth, parts)), constant(1))), name
            )
        elif operator == "imp":
            self.post(call("or", call("not", parts[0]), parts[1]), name)
        else:
            self.post(self._smaller(expression), name)

    def _equal(self, expression: Expression, most: int) -> bool:
        """Add that two expressions are, or are not, equal, as a table; False where neither is a variable alone."""
        one, other = expression.arguments
        return self.tables.add_function(one, other, most, expression.operator == "eq")

    def value_of(self, expression: Expression) -> int:
        """The variable that has an expression's value, made where there is none yet."""
        check_deadline()
        if expression.operator == VARIABLE:
            return expression.value
        if expression in self._values:
            return self._values[expression]
        cells = self.tables.cells(expression)
        linear = None if self.is_whole and cells <= SMALL_TABLE else self.sums.columns(expression)
        if linear is not None and cells * min(cells, length(linear[0])) <= SHORT_TABLE:
            linear = None
        if linear is not None and (cells > MOST_CELLS or length(linear[0]) <= MOST_SUMS):
            return self._value_of_sum(expression, *linear)
        if cells <= _most_cells(expression) and not self._splits(expression):
            values = self._distinct_values(expression)
            is_pure = all(part.operator in (VARIABLE, CONSTANT) for part in expression.arguments)
            is_extremum = expression.operator in ("min", "max")
            if self.is_whole or cells * len(values) <= DENSE_TABLE or (is_pure and not is_extremum):
                return self._value_of_table(expression, values)
        if expression.operator in ("min", "max") and not self.is_whole:
            return self._value_of_extremum(expression)
        if expression.operator in ("or", "and"):
            return self._value_of_truths(expression)
        scoped = sum(bool(part.scope) for part in expression.arguments)
        if expression.operator in ("add", "sub", "neg") or (expression.operator == "mul" and scoped == 1):
            return self._value_of_sum(expression, *self._needed_columns(expression))
        made = self._values[expression] = self.value_of(self._difference(expression) or self._smaller(expression))
        return made

    def add_sum(self, terms: Sequence[tuple[int, Expression]], condition: Condition, name: str) -> None:
        """Add a constraint: what terms add up to meets a condition."""
        check_deadline()
        total = call("add", constant(0), *(call("mul", constant(c), part) for c, part in terms))
        if any(len(part.scope) > 1 for _, part in terms):
            whole = condition.of(total)
            if self.tables.cells(whole) <= SMALL_TABLE:
                self.tables.add_table(whole)
                return
        if condition.right is not None:
            total = call("sub", total, condition.right)
        columns, offset = self._needed_columns(total)
        if condition.bounds is not None and condition.operator == "in":
            low, high = condition.bounds
            self.sums.compare("ge", columns, offset - low, name)
            self.sums.compare("le", columns, offset - high, name)
        elif condition.right is not None and condition.operator != "ne":
            self.sums.compare(condition.operator, columns, offset, name)
        else:
            self._walk_sum(columns, offset, condition, name)

    def set_objective(self, terms: Sequence[tuple[int, Expression]], maximises: bool) -> None:
        """Optimise what terms add up to."""
        found: Columns = {}
        offset, functions = 0, []
        for coefficient, part in terms:
            term = call("mul", constant(coefficient), part)
            columns = self.sums.columns(term)
            if columns is None and self.tables.cells(part) <= SMALL_TABLE:
                values = self.tables.evaluate(term, [self.tables.values(v) for v in part.scope])
                functions.append(Function.from_array(part.scope, values))
                continue
            more, added = columns if columns is not None else self._needed_columns(term)
            offset += added
            for v, column in more.items():
                add_column(found, v, column)
        self.maximises, self.constant = maximises, offset
        self.functions += functions
        for v, column in found.items():
            if column.any():
                self.functions.append(Function((v,), np.arange(len(column))[:, None], column))

    def walk(
        self,
        scope: Sequence[int],
        start: State,
        step: Callable[[int, State, int], State | None],
        is_end: Callable[[State], bool],
        name: str,
    ) -> None:
        """Add a constraint: a walk over the values of some variables ends where it may.

        step : from the place in the scope, the state before it and its value to the next state, None where there is
        none. UnsupportedConstraint where there are too many states.
        """
        distinct = self.distinct(scope)
        values = [self.tables.values(v).tolist() for v in distinct]

        def step_of_index(place: int, state: State, index: int) -> tuple[State, int | float]:
            following = step(place, state, values[place][index])
            return following, 0 if following is not None else math.inf

        with self._walking():
            self._walks.walk(name, distinct, start, step_of_index, lambda state: 0 if is_end(state) else math.inf)

    def distinct(self, scope: Sequence[int]) -> list[int]:
        """The variables, with a copy in place of one that is there a second time."""
        found: list[int] = []
        for v in scope:
            while v in found:
                copied = call("add", variable(v), constant(0))
                v = self._values.get(copied, -1)
                if v < 0:
                    v = self._make(copied, self.tables.values(copied.scope[0]))
                    self.tables.add_function(variable(v), copied, MOST_CELLS)
            found.append(v)
        return found

    def new_variable(self, values: Sequence[int]) -> int:
        """A new variable of some values, ascending, that constraints are to give one value for each assignment."""
        self._made += 1
        return self.add_variable(f"expression.{self._made}", np.array(values, dtype=np.int64))

    def _make(self, expression: Expression, values: Integers) -> int:
        made = self._values[expression] = self.new_variable(values.tolist())
        return made

    def add_variable(self, name: str, values: Integers) -> int:
        """A new variable of a name, which shares its domain with others of the same values, ascending."""
        key = tuple(values.tolist())
        if key not in self._domains:
            self._domains[key] = Domain.of(values)
        if len(self.variables.variables) >= MOST_VARIABLES:
            raise UnsupportedConstraint(f"more than {MOST_VARIABLES:,} variables")
        return self.variables.add(name, self._domains[key])

    def _splits(self, expression: Expression) -> bool:
        """Whether tables are smaller with variables for the truths in it, as two of two variables for one of three."""
        cells, most = self.tables.cells(expression), 1
        if cells <= SHORT_TABLE:
            return False
        truths = [part for part in expression.arguments if part.scope and part.operator not in (*ARITHMETIC, VARIABLE)]
        if any(map(self._splits, truths)):
            return True
        for part in expression.arguments:
            most *= 2 if part in truths else self.tables.cells(part)
        return bool(truths) and 4 * max(most, *map(self.tables.cells, truths)) <= cells

    def _has_small_terms(self, expression: Expression) -> bool:
        """Whether a comparison is one of sums, of few values for ``ne``, of terms whose values are small tables."""
        for part in expression.arguments if expression.operator == "ne" else ():
            low, high = bounds_of(part.template, [self.tables.domain(v).values[[0, -1]].tolist() for v in part.scope])
            if high - low >= MOST_SUMS:
                return False
        terms = [term for part in expression.arguments for _, term in terms_of(part)]
        return len(terms) > 2 and all(self.tables.cells(term) <= SMALL_TABLE for term in terms)

    def _smaller(self, expression: Expression) -> Expression:
        """The same with variables in place of its parts, or two halves in place of many arguments."""
        operator, parts = expression.operator, expression.arguments
        if operator == VARIABLE:
            return _truth(expression)
        if operator in ASSOCIATIVE and len(parts) > 2:
            half = len(parts) // 2
            parts = (call(operator, *parts[:half]), call(operator, *parts[half:]))
        made = call(operator, *(variable(self.value_of(part)) if part.scope else part for part in parts))
        if made == expression:
            cells = self.tables.cells(expression)
            raise UnsupportedConstraint(f"{operator} over {len(expression.scope)} variables with {cells:,} assignments")
        return made

    def _difference(self, expression: Expression) -> Expression | None:
        """A comparison of sums, whose values make too large a table, as one of their difference with 0; else None."""
        parts = expression.arguments
        if expression.operator not in COMPARISONS or len(parts) != 2 or parts[1] == constant(0):
            return None
        sides = [self.sums.columns(part) for part in parts]
        values = math.prod(1 if side is None else length(side[0]) for side in sides)
        if None in sides or values <= MOST_CELLS:
            return None
        return call(expression.operator, call("sub", *parts), constant(0))

    def _distinct_values(self, expression: Expression) -> Integers:
        return distinct_values(self.tables.evaluate(expression, [self.tables.values(v) for v in expression.scope]))

    def _value_of_table(self, expression: Expression, values: Integers) -> int:
        made = self._make(expression, values)
        self.tables.add_function(variable(made), expression, MOST_CELLS)
        return made

    def _value_of_sum(self, expression: Expression, columns: Columns, offset: int) -> int:
        low, count = offset + sum(int(column.min()) for column in columns.values()), length(columns)
        if count > MOST_SUMS and self.tables.cells(expression) <= MOST_CELLS:
            return self._value_of_table(expression, self._distinct_values(expression))
        if count > MOST_SUMS:
            raise UnsupportedConstraint(f"a sum of {count:,} values within an expression")
        made = self._make(expression, np.arange(low, low + count, dtype=np.int64))
        self.sums.compare("eq", {**columns, made: -self.tables.values(made)}, offset, "value of an expression")
        return made

    def _value_of_extremum(self, expression: Expression) -> int:
        """The least or greatest of some parts: none is beyond it, and it is one of them."""
        parts = [part if len(part.scope) <= 1 else variable(self.value_of(part)) for part in expression.arguments]
        values = [self.tables.evaluate(part, [self.tables.values(v) for v in part.scope]) for part in parts]
        whole = distinct_values(np.concatenate([own.ravel() for own in values]))
        if len(parts) > 2 and len(whole) ** 3 <= DENSE_TABLE:
            self._values[expression] = self.value_of(self._smaller(expression))
            return self._values[expression]
        made = variable(self._make(expression, whole))
        for part in parts:
            self.post(call("ge" if expression.operator == "max" else "le", made, part), expression.operator)
        self.post(call("or", *(call("eq", made, part) for part in parts)), expression.operator)
        return made.value

    def _value_of_truths(self, expression: Expression) -> int:
        """Whether any, or all, of many truths hold: they add up to 1, or to their number, at least."""
        parts = expression.arguments
        total = self._needed_columns(call("add", *map(_truth, parts)))
        made = self._make(expression, np.arange(2, dtype=np.int64))
        count, name = len(parts), f"{expression.operator} within an expression"
        (above, below), slack = ((-1, -count), 0) if expression.operator == "or" else ((-count, -1), count - 1)
        switch = np.arange(2, dtype=np.int64)
        self.sums.compare("ge", {**total[0], made: above * switch}, total[1], name)
        self.sums.compare("le", {**total[0], made: below * switch}, total[1] - slack, name)
        return made

    def _needed_columns(self, expression: Expression) -> tuple[Columns, int]:
        found = self.sums.columns(expression, self.value_of)
        assert found is not None
        return found

    def _walk_sum(self, columns: Columns, offset: int, condition: Condition, name: str) -> None:
        """Add that a sum meets a condition that is no bound, by a walk over partial sums."""
        met = Condition("ne", constant(0)) if condition.right is not None else condition
        template = met.of(variable(0))

        def price(total: int) -> int | float:
            return 0 if evaluate(template, [np.array(total + offset)]) else math.inf

        if sum(int(np.abs(column).max()) for column in columns.values()) >= LARGEST:
            raise UnsupportedConstraint("numbers of more than 64 bits")
        with self._walking():
            self._walks.weighted_sum(name, tuple(columns), [column.tolist() for column in columns.values()], price)

    @contextmanager
    def _walking(self) -> Iterator[None]:
        """A block that adds one walk, whose states and tables are taken over; UnsupportedConstraint: too many."""
        known = len(self._walks.sizes)
        self._walks.sizes += [v.size for v in self.variables.variables[known:]]
        try:
            yield
        except UnsupportedError as error:
            raise UnsupportedConstraint(str(error)) from None
        made = len(self._walks.sizes) - len(self.variables.variables)
        for place in range(-made, 0):
            self.add_variable(self._walks.names[place], np.arange(self._walks.sizes[place], dtype=np.int64))
        for table in self._walks.tables:
            allowed = table.default == math.inf
            keep = [(cost == math.inf) != allowed for cost in table.costs]
            if allowed or any(keep):
                rows = table.tuples[np.array(keep, dtype=bool)]
                self.tables.constraints.append(Constraint(table.scope, rows, allowed))
        self._walks.tables.clear()


def terms_of(total: Expression) -> list[tuple[int, Expression]]:
    """An expression as a sum of others with coefficients."""
    parts, waiting = [], [(1, total)]
    while waiting:
        factor, own = waiting.pop()
        if own.operator in ("add", "sub", "neg"):
            signs = {"add": [1] * len(own.arguments), "sub": [1, -1], "neg": [-1]}[own.operator]
            waiting += [(factor * sign, part) for sign, part in zip(signs, own.arguments, strict=True)]
        elif own.operator == "mul" and own.arguments[0].operator == CONSTANT and len(own.arguments) == 2:
            waiting.append((factor * own.arguments[0].value, own.arguments[1]))
        else:
            parts.append((factor, own))
    return parts


def _without_negation(expression: Expression) -> Expression:
    """The same where ``not`` was outermost, with what it says of its argument in its place."""
    while expression.operator == "not":
        (inner,) = expression.arguments
        if inner.operator in NEGATED and (inner.operator != "eq" or len(inner.arguments) == 2):
            return Expression(NEGATED[inner.operator], 0, inner.arguments)
        if inner.operator in ("and", "or"):
            other = "or" if inner.operator == "and" else "and"
            return call(other, *(call("not", part) for part in inner.arguments))
        if inner.operator != "not":
            break
        expression = _truth(inner.arguments[0])
    return expression


def _most_cells(*expressions: Expression) -> int:
    """Assignments up to which expressions are tables."""
    takes_many = any(len(own.arguments) > 2 and own.operator in ASSOCIATIVE for own in expressions)
    return MOST_OF_MANY if takes_many else MOST_CELLS


def _truth(expression: Expression) -> Expression:
    return (
        call("ne", expression, constant(0)) if expression.operator in (*ARITHMETIC, CONSTANT, VARIABLE) else expression
    )
