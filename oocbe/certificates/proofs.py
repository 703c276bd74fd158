"""The formula and the proof of a solve (``--opb``, ``--proof``): when they are written, and what they prove.

Proofs of counts: all solutions are listed, and a search shows that there is no other (docs/proofs.md).
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from oocbe.bounds.forbidden import MOST_LITERALS
from oocbe.certificates.cost_shifting import Effort, Shifts, added, shifts_of
from oocbe.certificates.cutting_planes import parts_of
from oocbe.certificates.making import ORDER_SECONDS, PROVEN, SHARE, Claim, Maker
from oocbe.certificates.opb import PseudoBooleanFormula, Row, exact
from oocbe.certificates.veripb import BucketRowsError, ProofWriter, Written
from oocbe.elimination.orders.order import search_orders
from oocbe.elimination.preparation.upper_bound import hard_part
from oocbe.errors import InternalError, TimeLimitError, UnsupportedError, UsageError, amount
from oocbe.formats.files import text_written
from oocbe.model.problem import Problem
from oocbe.model.results.result import UNPROVEN, Result
from oocbe.model.results.task_result import TaskResult
from oocbe.model.semiring import MAX_SUM, MIN_SUM
from oocbe.model.settings.options import SolveOptions
from oocbe.runtime.compilation import working_time
from oocbe.runtime.deadline import Deadline, check_deadline, current, suppressed_limit
from oocbe.runtime.interruption import listening

MOST_ROWS = 1_000_000
"""Rows of all buckets of a proof at most, forbidden ones included; some 300 bytes of the proof each."""

ROWS_A_SECOND = 12_000
"""Expected speed of writing, in rows a second, where a time limit is left; a search and its states take as long."""

SEARCH_SHARE = 0.6
"""Share of the time that is left of a time limit for the second search, before its writing."""

MOST_CONSTRAINTS = 200_000
"""Constraints of a formula at most for which linear programs are made."""

LARGEST_SUM = 2**53
"""Costs that add up to this have no linear program."""

MEMORY_SHARE = 0.25
"""Share of ``--memory`` for the nodes of a search; the tables of the solve are no longer held."""

GRACE_SECONDS = 0.4
"""Time for the bound of a root and an order in any case: less than a wait for a compilation takes."""

PROOF_SHARE = 0.5
"""Share of ``--time-limit`` for the proof, after a solve that takes the rest."""

GOAL_SHARE = 0.5
"""Share of the time that is left for the linear program of an unproven result; its bound is mostly of a search."""

FIRST_SHARE = 0.25
"""Share of ``--bound-seconds`` for a search before the linear program."""


class ProofTask:
    """The formula of a problem, made before its solve, and the files that are written.

    problem : as read. options : of the solve; the attribute leaves time for the proof. proof, opb : paths of the files;
        None: not written. UsageError : a proof without its formula, or in its file. UnsupportedError : as of
        :class:`PseudoBooleanFormula`.
    """

    def __init__(
        self, problem: Problem, options: SolveOptions, proof: str | Path | None, opb: str | Path | None
    ) -> None:
        if proof is not None and opb is None:
            raise UsageError("--proof: a proof refers to the constraints of a formula; name its file by --opb, too")
        place = None if proof is None else Path(proof).resolve()
        if place and not place.is_file() and (place.exists() or not place.parent.is_dir()):
            raise UsageError(f"--proof {proof}: no regular file, and no new one in a folder; name a file")
        if place and opb is not None and place == Path(opb).resolve():
            raise UsageError(f"--proof, --opb: {proof} cannot hold both the proof and its formula; name two files")
        if proof is not None and (options.gap.absolute or options.gap.relative):
            raise UnsupportedError("--proof: a proof is of the optimum; leave out --gap")
        problem = problem if options.semiring is None else problem.in_semiring(options.semiring)
        if options.ub is not None and problem.semiring.name == "min-sum":
            bound = problem.upper_bound
            problem = problem.below(options.ub if bound is None else min(bound, options.ub))
        self.formula, self._proof, self._opb = PseudoBooleanFormula(problem), proof, opb
        self._memory, deadline = MEMORY_SHARE * options.memory_limit, current()
        if proof is not None and deadline is not None and deadline.end < math.inf:
            options = replace(options, time_limit=(1 - PROOF_SHARE) * deadline.remaining)
        self.options = options

    def write(self, result: Result, seconds: float | None = None) -> tuple[Result, str]:
        """Write the files; returns the result with a note about its proof, and why it is not proven, or an empty text.

        result : of the solve. seconds : remaining time limit; None: none. UsageError, ResourceError : a file cannot be
        written.
        """
        self.write_formula()
        if self._proof is None:
            return result, ""
        written: Written | None = None
        with listening() as interruption:
            try:
                assignment, improving = None, self.formula.most
                if result.assignment is not None:
                    objective = self.formula.solution(result.assignment)[1]
                    if objective <= improving:  # it is feasible in exact arithmetic
                        assignment, improving = tuple(result.assignment), objective - 1
                end = math.inf if seconds is None else time.monotonic() + seconds
                if result.status == "interrupted":
                    end = min(end, time.monotonic() + self.options.bound_seconds)
                goal = self._goal(result)
                found, steps, is_closed = self._search(improving, end) if goal == math.inf else None, None, True
                if found is None:
                    share = 1.0 if goal == math.inf else GOAL_SHARE
                    steps, is_closed = self._steps(improving, share * (end - time.monotonic()))
                now = time.monotonic()
                in_time = ROWS_A_SECOND * max(end - now, 1.0)
                most = int(min(MOST_ROWS, in_time))
                left = SEARCH_SHARE * (end - now) if self.options.bound_seconds else 0.0
                for order in self._orders(most, is_closed, max(end, now + GRACE_SECONDS)):
                    share = min(left, self.options.bound_seconds) if self._suffices(order, most) else left
                    latest = max(end, time.monotonic() + GRACE_SECONDS)
                    effort = Effort(working_time() + share, self._memory, in_time, latest)
                    with suppress(BucketRowsError), text_written(self._proof) as file:
                        writer = ProofWriter(self.formula, file.write, order, most, effort, goal)
                        written = writer.write(assignment, steps, found)
                    left = left if share < left else 0.0  # the search would end as it did
                    if written is not None and (written.is_closed or order is not None):
                        break
            except BaseException as error:
                if not interruption.caused(error):
                    raise
                return result, f"no proof was written: {interruption.reason}"
        assert written is not None
        note = self._claim(written)
        missing = ""
        if result.status in PROVEN and not written.is_closed:
            missing = (
                f"the proof shows {note} only: an elimination with linear constraints as tables would have more than "
                f"{most:,} rows, or no time; a search and a linear program leave a gap; more time may close it"
            )
        elif (
            result.status in UNPROVEN and not written.is_closed and result.bound is not None and self.formula.objective
        ):
            is_all = goal == math.inf or (written.lower or 0) >= goal
            note += f", {'all of the bound' if is_all else 'less than the bound'} {result.bound}"
        about = f"proof: {note}; {written.rows:,} rows, of the problem as read, without the steps of presolve"
        return replace(result, notes=(*result.notes, about)), missing

    def write_formula(self) -> None:
        """Write the formula, if its file is named; an older proof, which is of another formula, is removed."""
        if self._proof is not None:
            with suppress(OSError):  # what cannot be removed cannot be written either
                Path(self._proof).resolve().unlink()  # not a link to it
        if self._opb is not None:
            with text_written(self._opb) as file:
                file.writelines(self.formula.lines())

    def _claim(self, written: Written) -> str:
        formula = self.formula
        if written.is_infeasible:
            bounded = " below the upper bound" if formula.sign > 0 else " above the lower bound"
            return f"no assignment is feasible{'' if formula.limit is None else bounded}"
        assert written.lower is not None
        lower = formula.cost(written.lower)
        if written.upper is None:
            return f"a bound of {lower}" if formula.objective else "no conclusion"
        upper = formula.cost(written.upper)
        return f"an optimum of {upper}" if written.is_closed else f"bounds of {lower} and {upper}"

    def _goal(self, result: Result) -> float:
        """The bound of an unproven result, as one of the objective; infinite where it is none above 0."""
        formula, bound = self.formula, result.bound if result.status in UNPROVEN else None
        if bound is None or math.isinf(bound):
            return math.inf
        goal = math.ceil(formula.sign * exact(bound) * formula.scale) - formula.offset
        return goal if goal > 0 else math.inf

    def _search(self, most: float, end: float) -> Shifts | None:
        """A search that closes the proof within a short time, without steps of a certificate; None: there is none."""
        formula, now = self.formula, time.monotonic()
        seconds = min(FIRST_SHARE * self.options.bound_seconds, (end - now) / 2)
        if seconds <= 0 or all(len(table.scope) < 2 for table in formula.tables):
            return None  # linear programs give shorter proofs of costs over single variables
        in_time = ROWS_A_SECOND * max(end - now, 1.0)
        effort = Effort(working_time() + seconds, self._memory, in_time, end)
        found = shifts_of(formula, formula.forbidden, most, effort)
        return None if found is None or found.tree is None else found

    def _steps(self, most: float, seconds: float) -> tuple[dict[str, Any] | None, bool]:
        """Steps of a certificate below a limit (None: not tried), and whether they leave nothing."""
        formula, share = self.formula, min(SHARE * self.options.bound_seconds, seconds / 2)
        is_large = formula.constraints > MOST_CONSTRAINTS or formula.first[-1] > MOST_LITERALS
        is_large |= sum(formula.objective.values()) >= LARGEST_SUM
        if most < 0 or is_large or share <= 0 or any(not scope for scope, _ in formula.forbidden):
            return None, most < 0
        steps, is_closed = None, False
        with Deadline(2 * share), suppressed_limit():  # rounds end by themselves, but for a long step
            claim, parts = Claim("infeasible", None, None), parts_of(formula, most)
            maker = Maker(Path(), formula.rewritten, claim, self.options.seed, parts)
            is_closed = maker.rounds(share)
            steps = maker.steps()
        if steps and not is_closed and not any(own["multipliers"] or own["removed"] for own in steps["steps"]):
            steps = None  # the preparation of its cutting planes took as long as the search
        return steps, is_closed

    def _suffices(self, order: list[int] | None, most: float) -> bool:
        """Whether an elimination takes all linear constraints, as tables, so that no long search need come before."""
        sizes, linear = self.formula.problem.sizes, (own for own, _ in self.formula.linear if own.can_bind)
        return order is not None and all(math.prod(sizes[v] for v in own.scope) <= most for own in linear)

    def _orders(self, most: float, is_closed: bool, end: float) -> Iterator[list[int] | None]:
        """Orders of elimination, None for a proof without; the first one where nothing should be left to eliminate."""
        if is_closed or not self.formula.problem.variables:
            yield None
        order = None
        with Deadline(end - time.monotonic()), suppressed_limit():
            order = self._order(most)
        if order is not None:
            yield order
        yield None

    def _order(self, most: float) -> list[int] | None:
        """The best order of elimination; None where buckets would have more rows."""
        problem = self.formula.rewritten if self.formula.copies else self.formula.problem
        found = search_orders(problem, "auto", ORDER_SECONDS, self.options.seed, deadline=Deadline(None))
        return list(found[0].order) if found and sum(found[0].predicted_rows) <= most else None


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
        listed = int(result.value) * len(" ".join(formula.solution([0] * len(formula.problem.sizes))[0]))

        def write(text: str) -> None:
            nonlocal left
            left -= len(text)
            if left < 0 or listed > LONGEST:
                raise BucketRowsError
            file.write(text.replace("\n", " ;\n"))

        with listening() as interruption:
            try:
                order = self._order(math.inf) or range(len(formula.problem.sizes))
                order = sorted(order, key={*(formula.shown or ())}.__contains__)
                with text_written(self._proof) as file:
                    file.write("pseudo-Boolean proof version 3.0\n")
                    found = CountWriter(formula, write, order).write_count()
                    if found != result.value:
                        raise InternalError(f"the proof lists {found} solutions of {result.value}")
                note = f"proof: {amount(found, 'solution')}, {LONGEST - left:,} characters, of the problem as read"
            except BucketRowsError:
                note = f"no proof was written: that of {result.problem} has over {LONGEST:,} characters"
            except BaseException as error:
                is_requested = interruption.caused(error)
                if not is_requested and not isinstance(error, TimeLimitError):
                    raise
                note = f"no proof was written: {interruption.reason if is_requested else error}"
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
