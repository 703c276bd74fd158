"""Satisfiability in DIMACS: ``.cnf`` (all clauses hold) and ``.wcnf`` (weighted, old and new), read and written.

Variables are numbered from 1, which are their names here; value 0 is false and 1 true. A clause is a list of literals
up to a 0. In a ``cnf`` file after ``p cnf VARIABLES CLAUSES``; an old ``wcnf`` has ``p wcnf VARIABLES CLAUSES [TOP]``
and a weight before each clause, of which those from TOP on are hard, and no assignment counts whose cost reaches TOP;
it may have ``p cnf`` instead, and clauses that weigh 1. A new one (MaxSAT Evaluation 2022) has no such line, and ``h``
or a weight before each clause. Lines that begin with ``c`` are comments, some of which ask for another count
(:mod:`oocbe.formats.count_questions`); ``%`` ends a file. The number of clauses in the header is often wrong: those
that are there count, and a note says so. The number of variables of a ``cnf`` file is part of the problem, and may not
be too small.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import numpy as np

from oocbe.errors import UnsupportedError, amount
from oocbe.formats.cost_tables import refuse_bounds
from oocbe.formats.count_questions import CountQuestions
from oocbe.formats.text import LARGEST_VARIABLE, Text
from oocbe.model.parts import Constraint, Function, Variable
from oocbe.model.problem import Problem
from oocbe.model.semiring import MIN_SUM

_EXTENSIONS = {
    b"vp": "projected counts (lines 'vp')",
    b"a": "quantified formulas (lines 'a')",
    b"e": "quantified formulas (lines 'e')",
    b"r": "random variables (lines 'r')",
    b"x": "exclusive disjunctions (clauses 'x')",
}
"""First words of lines that other programs read beside clauses, and what they hold."""

MOST_CELLS = 2**20
"""Assignments of a part up to which it is written out clause by clause."""

Dense = TypeVar("Dense")


def parse_cnf(text: Text) -> Problem:
    """Read a satisfiability problem: clauses are constraints, and any assignment that meets them costs nothing."""
    return _DimacsReader(text, False).problem()


def parse_wcnf(text: Text) -> Problem:
    """Read a weighted one: hard clauses are constraints, others cost their weight where they do not hold."""
    reader = _DimacsReader(text, True)
    problem = reader.problem()
    most = problem.constant + sum(f.values.sum().item() for f in problem.functions)
    return problem if reader.top is None or most < reader.top else problem.below(reader.top)


class _DimacsReader:
    """The tokens that are no comments, and what they say."""

    def __init__(self, text: Text, weighted: bool) -> None:
        self._text = text
        self._tokens: list[int] = []
        self._questions = CountQuestions(text)
        has_ended = False
        for first, past in text.rows():
            start = text.raw(first)
            has_ended |= start == b"%"
            if start.startswith(b"c"):
                self._questions.look(first, past)  # behind the end, too
            elif has_ended:
                continue
            elif start == b"w" and not weighted:
                self._questions.look_at_weight(first, past)
            elif (extension := _EXTENSIONS.get(start[:1] if start[1:].lstrip(b"-").isdigit() else start)) is not None:
                raise UnsupportedError(f"{text.path}, line {text.line(first)}: {extension} are not supported")
            else:
                self._tokens += range(first, past)
        self._weighted = self._has_weights = weighted
        self.top: int | None = None
        self._next = 0

    def problem(self) -> Problem:
        """The whole file; FormatError with the line where it is malformed."""
        text, count, clauses, top = self._text, None, None, None
        has_header = bool(self._tokens) and text.raw(self._tokens[0]) == b"p"
        if has_header:
            count, clauses, top = self._header()
        elif not self._weighted:
            place = self._tokens[0] if self._tokens else len(text)
            found = f"found {text.shown(place)}" if self._tokens else "the file ends"
            raise text.error(place, f"{found}, expected the line 'p cnf VARIABLES CLAUSES'")
        largest, constant = count or 0, 0
        functions: list[Function] = []
        constraints: list[Constraint] = []
        read = 0
        while self._next < len(self._tokens):
            first = self._next
            weight = self._weight(top, has_header)
            literals, largest = self._clause(count, largest)
            if self._weighted and not has_header:
                self._refuse_lines(first)
            read += 1
            scope = tuple(sorted(literals))
            falsifying = np.array([[literals[v] for v in scope]], dtype=np.int64).reshape(1, len(scope))
            if any(value < 0 for value in literals.values()):
                continue  # a literal and its opposite: always true
            if weight is None:
                constraints.append(Constraint(scope, falsifying))
            elif not scope:
                constant += weight
            elif weight:
                functions.append(Function(scope, falsifying, np.array([weight], dtype=np.int64), 0))
        notes = []
        variables = tuple(Variable(str(v + 1), 2) for v in range(largest))
        question, counting = self._questions.question({v.name: v.name for v in variables})
        if clauses is not None and read != clauses:
            notes.append(
                f"{text.path}: the header states {amount(clauses, 'clause')}; the {read:,} of the file are used"
            )
        return Problem(
            variables,
            tuple(functions),
            tuple(constraints),
            constant=constant,
            name=text.stem,
            notes=tuple(notes),
            question=question,
            counting=counting,
        )

    def _take(self) -> int:
        if self._next >= len(self._tokens):
            return len(self._text)  # behind the end, which the readers of a token say
        self._next += 1
        return self._tokens[self._next - 1]

    def _header(self) -> tuple[int, int, int | None]:
        text = self._text
        row = text.line(self._take())
        kinds = ("wcnf", "cnf") if self._weighted else ("cnf",)
        place = self._take()
        kind = text.word(place, kinds[0])
        if kind not in kinds:
            raise text.expected(kinds[0], place)
        self._has_weights = kind == "wcnf"
        count = text.integer(self._take(), "the number of variables", 0, LARGEST_VARIABLE)
        clauses = text.integer(self._take(), "the number of clauses", 0)
        if self._has_weights and self._next < len(self._tokens) and text.line(self._tokens[self._next]) == row:
            top = text.integer(self._take(), "the weight of hard clauses")
            self.top = top if top > 0 else None  # which toulbar2 takes for none
        return count, clauses, self.top

    def _weight(self, top: int | None, has_header: bool) -> int | None:
        """Weight of the clause that begins here; None of a hard one."""
        if not self._has_weights:
            return 1 if self._weighted else None
        place = self._take()
        if not has_header and self._text.raw(place) == b"h":
            return None
        weight = self._text.integer(place, "a weight" if has_header else "h or a weight", 0)
        return None if top is not None and weight >= top else weight

    def _clause(self, count: int | None, largest: int) -> tuple[dict[int, int], int]:
        """Variable to the value at which its literal is false, -1 where both occur; and the number of variables."""
        literals: dict[int, int] = {}
        limit = LARGEST_VARIABLE if count is None or self._weighted else count
        while literal := self._text.integer(self._take(), "a literal, or 0 at a clause's end", -limit, limit):
            v, value = abs(literal) - 1, int(literal < 0)
            literals[v] = value if literals.get(v, value) == value else -1
            largest = max(largest, v + 1)
        return literals, largest

    def _refuse_lines(self, first: int) -> None:
        """Refuse a clause of the new form that goes on behind its line: a 0 is missing, and the next one is eaten."""
        text, last = self._text, self._tokens[self._next - 1]
        if text.data.find(b"\n", text.span(self._tokens[first])[0], text.span(last)[0]) >= 0:
            start = self._tokens[first]
            line = next(token for token in self._tokens[first:] if text.line(token) != text.line(start))
            raise text.expected("0 at the end of the clause on the line before", line)


def render_cnf(problem: Problem) -> str:
    """The constraints of a problem of truth values; UnsupportedError where it has costs, or more values."""
    hard, soft, constant = _clauses(problem)
    if soft or constant:
        raise UnsupportedError(f"{problem.name}: the cnf format has no costs; write it as .wcnf")
    return "\n".join([f"p cnf {len(problem.variables)} {len(hard)}", *hard]) + "\n"


def render_wcnf(problem: Problem) -> str:
    """A problem of truth values in the new format of weighted clauses.

    Raises UnsupportedError: variables with more than two values, costs below 0 or that are no integers, another
    semiring, an upper bound that may bind, or a part over too many variables.
    """
    hard, soft, constant = _clauses(problem)
    lines = [f"c {len(problem.variables)} variables, value 1 is true", *(f"h {clause}" for clause in hard)]
    lines += [f"{weight} {clause}" for weight, clause in soft]
    if constant:
        lines.append(f"{constant} 0")
    if last := len(problem.variables):
        lines.append(f"h {last} -{last} 0")  # always true: the greatest number is the number of variables
    return "\n".join(lines) + "\n"


def _clauses(problem: Problem) -> tuple[list[str], list[tuple[int, str]], int]:
    if problem.semiring != MIN_SUM or not problem.is_integral:
        raise UnsupportedError(
            f"{problem.name}: clauses have integer costs to add and minimise; write it as uai or cfn"
        )
    if max(problem.sizes, default=0) > 2:
        wide = next(v for v in problem.variables if v.size > 2)
        raise UnsupportedError(f"{problem.name}: variable {wide.name!r} has {wide.size} values; clauses have two")
    refuse_bounds(problem, "the format of clauses")
    hard = [f"-{v + 1} 0" for v, size in enumerate(problem.sizes) if size == 1]
    for c in problem.hard_parts:
        listed = c.tuples if isinstance(c, Constraint) and not c.allowed else None
        forbidden = listed if listed is not None else np.argwhere(~_dense(problem, c.scope, c.to_array))
        hard += [_clause(c.scope, row) for row in forbidden.tolist()]
    soft: list[tuple[int, str]] = []
    constant = int(problem.constant)
    for f in problem.functions:
        costs: Iterable[tuple[list[int], Any]]
        if f.default == 0:
            costs = zip(f.tuples.tolist(), f.values.tolist(), strict=True)
        else:
            values, feasible = _dense(problem, f.scope, f.to_array)
            hard += [_clause(f.scope, row) for row in np.argwhere(~feasible).tolist()]
            costs = zip(np.argwhere(feasible).tolist(), values[feasible].ravel().tolist(), strict=True)
        for row, cost in costs:
            if cost < 0:
                raise UnsupportedError(f"{problem.name}: a cost is {cost}; weights of clauses are at least 0")
            if cost and not f.scope:
                constant += cost
            elif cost:
                soft.append((cost, _clause(f.scope, row)))
    if constant < 0:
        raise UnsupportedError(f"{problem.name}: the constant is {constant}; weights of clauses are at least 0")
    return hard, soft, constant


def _dense(problem: Problem, scope: tuple[int, ...], make: Callable[[Sequence[int]], Dense]) -> Dense:
    """Dense form of a part for the domain sizes; UnsupportedError for a scope that is too large."""
    if 2 ** len(scope) > MOST_CELLS:
        raise UnsupportedError(f"{problem.name}: a part over {len(scope)} variables is too large to write as clauses")
    return make(problem.sizes)


def _clause(scope: tuple[int, ...], row: list[int]) -> str:
    """The clause that exactly one assignment of a scope fails."""
    literals = (str(-(v + 1) if value else v + 1) for v, value in zip(scope, row, strict=True))
    return " ".join([*literals, "0"])
