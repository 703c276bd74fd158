"""Proofs of counts: all solutions are listed, and a search shows that there is no other (docs/proofs.md).

The formula has the hard part of the problem. Its *preserved* variables are the literals of the shown variables: rule
``solx`` lists a solution and excludes all with the same preserved literals. The search assigns the shown variables
first, else in the reverse order of an elimination. A node without further solutions has a clause, the sum of those of
its values, over the variables on which they depend; the search returns to the last of these. A clause that leaves out
a variable is kept for equal nodes, so these are no more than the rows of the elimination.
"""

from __future__ import annotations

import math
from collections import defaultdict
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from oocbe.certificates.cost_shifting import added
from oocbe.certificates.opb import Row
from oocbe.certificates.proofs import ProofTask
from oocbe.certificates.veripb import ProofWriter, TooManyRowsError
from oocbe.elimination.preparation.upper_bound import hard_part
from oocbe.errors import InternalError, TimeLimitError, UnsupportedError, amount
from oocbe.formats.files import text_written
from oocbe.model.problem import Problem
from oocbe.model.results.task_result import TaskResult
from oocbe.model.semiring import MAX_SUM, MIN_SUM
from oocbe.model.settings.options import SolveOptions
from oocbe.runtime.deadline import check_deadline

LONGEST = 20_000_000
"""Characters of a proof at most: checkers then take half a minute (docs/proofs.md)."""

Clause = tuple[int, Row]
"""Number of a clause, and the variables that must not all have their values."""


class CountProof(ProofTask):
    """The formula of a problem whose solutions are counted, and the files that are written.

    Parameters as for :class:`~oocbe.certificates.proofs.ProofTask`; UnsupportedError also for other tasks than
    ``count``, for weights, and for counts as floats.
    """

    def __init__(
        self, task: str, problem: Problem, options: SolveOptions, proof: str | Path | None, opb: str | Path | None
    ) -> None:
        question, what = problem.counting, "count in floats" if options.float_counts else task
        if what != "count" or (question is not None and question.weights):
            what = f"weighted {what}" if question is not None and question.weights else what
            raise UnsupportedError(
                f"--proof, --opb: the {what} of {problem.name} is no number of solutions, of which a proof is a list"
            )
        hard = problem if options.semiring is None else problem.in_semiring(options.semiring)
        try:
            hard = replace(hard_part(hard), semiring=MIN_SUM)
        except UnsupportedError:
            if hard.semiring not in (MIN_SUM, MAX_SUM):
                raise
            # Sums reach the bound: it is a constraint of the formula, unless the count is refused.
        super().__init__(hard, replace(options, semiring=None, ub=None), proof, opb)
        shown = (v for v, own in enumerate(problem.variables) if question is None or question.shows(own))
        self.formula.shown = tuple(shown)

    def write_count(self, result: TaskResult) -> TaskResult:
        """Write the files; returns the result with a note about its proof, or why there is none.

        Raises UsageError, ResourceError: a file cannot be written; InternalError: the proof shows another count.
        """
        self.write_formula()
        if self._proof is None or result.value is None:
            return result
        formula, left = self.formula, LONGEST
        note = f"no proof was written: that of {result.problem} has over {LONGEST:,} characters, or there was no time"
        listed = int(result.value) * len(" ".join(formula.solution([0] * len(formula.problem.sizes))[0]))

        def write(text: str) -> None:
            nonlocal left
            left -= len(text)
            if left < 0 or listed > LONGEST:
                raise TooManyRowsError
            file.write(text.replace("\n", " ;\n"))

        with suppress(TooManyRowsError, TimeLimitError):
            order = self._order(math.inf) or range(len(formula.problem.sizes))
            order = sorted(order, key={*(formula.shown or ())}.__contains__)
            with text_written(self._proof) as file:
                file.write("pseudo-Boolean proof version 3.0\n")
                found = CountWriter(formula, write, order).write_count()
                if found != result.value:
                    raise InternalError(f"the proof lists {found} solutions of {result.value}")
            note = f"proof: {amount(found, 'solution')}, {LONGEST - left:,} characters, of the problem as read"
        return replace(result, notes=(*result.notes, note))


class CountWriter(ProofWriter):
    """Writes all solutions of a formula, and that there is no other."""

    def write_count(self) -> int:
        """Write the proof; returns the number of solutions."""
        formula, levels, shown, found = self._formula, (self._order or [])[::-1], self._formula.shown or (), 0
        self._write(self._head())
        self._known = defaultdict[int, dict[Row, dict[Row, int]]](dict)  # clauses by the last variable, scope and row
        self._kept, self._values = {*range(formula.constraints + 1, self._last + 1)}, [0] * len(levels)
        for scope, clauses in formula.forbidden:
            self._known[self._first(scope)].setdefault(scope, {}).update(clauses)
        nodes = list[tuple[int, list[int], set[int]]]()  # variable, clauses of its values so far, and their variables
        clause = self._violated(-1)
        while True:
            check_deadline()
            if clause is None and len(nodes) == len(levels):
                number, found = self._derive("solx " + " ".join(formula.solution(self._values)[0])), found + 1
                text = added(map(str, [number, *(formula.at_most[v] for v in shown)]))
                clause = self._derive(f"pol {text} s"), shown  # of the shown values, without the literals of others
            if clause is None:
                nodes.append((levels[len(nodes)], [], set()))
            else:
                while nodes and nodes[-1][0] not in clause[1]:
                    self._delete([n for n in nodes.pop()[1] if n not in self._kept])
                if not nodes:
                    break
                nodes[-1][1].append(clause[0])
                nodes[-1][2].update(clause[1])
            v, numbers, reasons = nodes[-1]
            if len(numbers) < self._sizes[v]:
                self._values[v] = len(numbers)
                clause = self._violated(v)
            else:
                nodes.pop()
                text = added(map(str, [formula.at_least[v], *numbers]))
                clause = self._derive(f"pol {text} s"), tuple(sorted(reasons - {v}))
                if len(clause[1]) < len(nodes):
                    self._keep(clause)
                self._delete([n for n in numbers if n not in self._kept])
        end = f"ENUMERATION_COMPLETE {found}" if found else "UNSAT"
        self._write(f"output NONE\nconclusion {end} : {clause[0]}\nend pseudo-Boolean proof\n")
        return found

    def _violated(self, v: int) -> Clause | None:
        """A clause that the latest value violates; v : its variable, -1 for none."""
        values, last = self._values, self._place.get(v, math.inf)
        for scope, clauses in self._known[v].items():
            number = clauses.get(tuple([values[u] for u in scope]))
            if number is not None:
                return number, scope
        for linear, number in self._formula.linear:
            if v in linear.scope or v < 0:
                rows = zip(linear.scope, linear.coefficients, linear.ends[0], strict=True)
                more = {u: int(c[values[u]]) - least for u, c, least in sorted(rows) if self._place[u] >= last}
                if linear.least + sum(more.values()) > linear.capacity:
                    own = {u: values[u] for u, excess in more.items() if excess}
                    return self._keep((self._exclusion(linear, number, own), tuple(own)))
        return self._above_limit(last)

    def _above_limit(self, last: float) -> Clause | None:
        """The clause of values whose costs exceed the upper bound; last : place of the latest variable."""
        formula, rest, text, cost, scope = self._formula, dict(self._formula.objective), list[str](), 0, set[int]()
        for table in formula.tables if formula.limit is not None else ():
            row = tuple([self._values[v] for v in table.scope])
            if row in table.costs and all(self._place[v] >= last for v in table.scope):
                own, clause, name = table.costs[row], table.clauses[row], table.names[row]
                text += [] if clause is None else [f"{clause} {own} * +"]
                rest[name] -= own
                cost, scope = cost + own, scope.union(table.scope)
        if cost <= formula.most:
            return None
        text += [f"{name} {own} * +" for name, own in rest.items() if own]
        number = self._derive(f"pol {formula.limit} {' '.join(text)} {cost - int(formula.most)} d s")
        return self._keep((number, tuple(sorted(scope))))

    def _keep(self, clause: Clause) -> Clause:
        number, scope = clause
        self._kept.add(number)
        row = tuple([self._values[v] for v in scope])
        self._known[self._first(scope)].setdefault(scope, {})[row] = number
        return clause
