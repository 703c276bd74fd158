"""A solver for CPMpy: ``import oocbe.api.cpmpy`` makes it known there as ``oocbe``.

Expressions are not flattened: they become the expressions of :mod:`oocbe.formats.xcsp_relations`, and with them tables,
linear constraints and variables for values in between, of which each solution of the model has one assignment. So
:meth:`CPM_oocbe.count` counts solutions of the model. Global constraints that have no form there are decomposed by
CPMpy. An objective is a cost function for each variable or small expression of its sum.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from numbers import Real
from typing import Any

import numpy as np
from cpmpy.exceptions import NotSupportedError
from cpmpy.expressions.core import BoolVal
from cpmpy.expressions.globalfunctions import FloatSum
from cpmpy.expressions.utils import STAR as ANY_VALUE
from cpmpy.expressions.utils import flatlist, get_bounds
from cpmpy.expressions.variables import NegBoolView, _NumVarImpl
from cpmpy.solvers.solver_interface import ExitStatus, SolverInterface, SolverStatus
from cpmpy.solvers.utils import SolverLookup
from cpmpy.transformations.cse import CSEMap
from cpmpy.transformations.decompose_global import decompose_in_tree, decompose_objective
from cpmpy.transformations.get_variables import get_variables
from cpmpy.transformations.negation import push_down_negation, push_down_negation_objective
from cpmpy.transformations.normalize import toplevel_list
from cpmpy.transformations.safening import no_partial_functions, safen_objective

from oocbe import __version__
from oocbe.api.facade import solve
from oocbe.api.tasks.tables import with_walks
from oocbe.api.tasks.verbs import count, count_optimal, k_best
from oocbe.errors import LimitError, UnsupportedError
from oocbe.formats.xcsp_expressions import CELL, CONSTANT, Expression, UnsupportedConstraint, call, constant, variable
from oocbe.formats.xcsp_reading import has_a_row
from oocbe.formats.xcsp_relations import Relations, terms_of
from oocbe.formats.xcsp_variables import LARGEST_DOMAIN, STAR, Variables, as_indices
from oocbe.model.compact_problem import ShortTable
from oocbe.model.parts import Function, LinearConstraint
from oocbe.model.problem import Problem
from oocbe.model.results.result import UNPROVEN, Result
from oocbe.model.results.task_result import TaskResult
from oocbe.runtime.deadline import Deadline

OPERATORS = {
    "==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge", "and": "and", "or": "or", "->": "imp",
    "not": "not", "xor": "xor", "sub": "sub", "-": "neg", "mul": "mul", "div": "div", "mod": "mod",
    "pow": "pow", "abs": "abs", "min": "min", "max": "max",
}  # fmt: skip
"""Names of CPMpy's operators, functions and constraints that are operators of expressions here."""

TABLES = frozenset(["table", "short_table", "negative_table"])
"""Constraints that list rows."""

WALKS = frozenset(["regular", "mdd"])
"""Constraints that are walks from state to state."""

_SUPPORTED_REIFIED = frozenset(["xor", "ite", "indomain", *TABLES, *WALKS])
_SUPPORTED = _SUPPORTED_REIFIED | frozenset(["mul", "div", "mod", "pow", "abs", "min", "max", "element"])

_PARTIAL = frozenset(["element", "nd_element", "div", "mod"])
"""Functions without a value for some arguments."""

_NOWHERE = object()
"""The state of a walk that has left an automaton."""

_OF_THE_MODEL = frozenset(["semiring", "ub", "evidence", "hint", "k", "problem"])
"""Arguments of the library's functions that would give answers about something other than the model."""

MOST_LISTED = 2**22
"""Solutions that one call of :meth:`CPM_oocbe.solveAll` lists at most."""


class CPM_oocbe(SolverInterface):  # type: ignore[misc]  # noqa: N801  (CPMpy has no types; its solvers have such names)
    """CPMpy's interface to oocbe; see :class:`cpmpy.solvers.solver_interface.SolverInterface`."""

    supported_global_constraints = _SUPPORTED
    supported_reified_global_constraints = _SUPPORTED_REIFIED

    @staticmethod
    def supported() -> bool:
        """Whether the solver can be used here."""
        return True

    @classmethod
    def version(cls) -> str:
        """The version of oocbe."""
        return __version__

    def __init__(self, cpm_model: Any = None, subsolver: str | None = None) -> None:
        if subsolver is not None:
            raise NotSupportedError(f"oocbe has no subsolver, and {subsolver!r} is asked for")
        self._relations = Relations(Variables())
        self._elements: dict[tuple[Expression, ...], Expression] = {}
        self._posted: list[Any] = []
        self._objective: tuple[list[tuple[float, Any]], Any, bool] | None = None
        self._needs_whole = False
        self._hint: dict[str, int] = {}
        super().__init__(name="oocbe", cpm_model=cpm_model)

    @property
    def native_model(self) -> Problem:
        """The :class:`oocbe.Problem` of what has been added so far."""
        return self._relations.problem("CPMpy's model")

    def solver_var(self, cpm_var: Any) -> int:
        """The index in the problem of a variable, or of the one that a negated view shows."""
        if isinstance(cpm_var, NegBoolView):
            return self.solver_var(cpm_var._bv)
        name = cpm_var.name
        if name not in self._varmap:
            low, high = (int(bound) for bound in cpm_var.get_bounds())
            if high - low >= LARGEST_DOMAIN:
                raise NotSupportedError(
                    f"oocbe: the variable {name} has {high - low + 1:,} values, more than {LARGEST_DOMAIN:,}; bound it"
                )
            # Variables for values in between are called expression.1 or state.1.1.
            own = f"cpmpy.{name}" if name.startswith(("expression.", "state.", "cpmpy.")) else name
            self._varmap[name] = self._relations.add_variable(own, np.arange(low, high + 1))
        found: int = self._varmap[name]
        return found

    def transform(self, cpm_expr: Any) -> list[Any]:
        """Constraints without partial functions and without global constraints that have no form here."""
        found = push_down_negation(no_partial_functions(toplevel_list(cpm_expr), safen_toplevel=_PARTIAL))
        decomposed: list[Any] = decompose_in_tree(found, _SUPPORTED, _SUPPORTED_REIFIED, csemap=self._csemap)
        return decomposed

    def add(self, cpm_expr: Any) -> CPM_oocbe:
        """Add a constraint, or a list; nothing, and NotSupportedError with its text, if one has no small form."""
        with self._extended():
            get_variables(cpm_expr, collect=self.user_vars)
            self._post_all(self.transform(cpm_expr))
        return self

    __add__ = add

    @contextmanager
    def _extended(self) -> Iterator[None]:
        """A block that adds to the model: in the other kind of tables, or not at all, if those there are refuse it."""
        if self._relations.is_whole and not self._needs_whole:
            self._translate(is_whole=False)
        known, objective, users = len(self._posted), self._objective, set(self.user_vars)
        was_whole = self._relations.is_whole
        try:
            yield
        except BaseException as error:
            is_new = len(self._posted) > known or self._objective is not objective
            if isinstance(error, NotSupportedError) and is_new and self._translate(not was_whole):
                self._needs_whole = not was_whole
                return
            # What has been made for a refused part has no meaning: a later part would have its variables all the same.
            del self._posted[known:]
            self.user_vars.intersection_update(users)
            self.__dict__.update(_objective=objective, _csemap=CSEMap())  # CPMpy does not type its map
            self._translate(was_whole)
            raise

    def _post_all(self, constraints: Sequence[Any]) -> None:
        self._posted += constraints
        for own in constraints:
            with _refused(own):
                self._post(own)

    def _translate(self, is_whole: bool) -> bool:
        """Translate the model again, into tables for counts or for searches; False where these are too large."""
        before, variables = (self._relations, self._elements), dict(self._varmap)
        self._relations, self._elements = Relations(Variables(), is_whole=is_whole), {}
        self._varmap.clear()
        try:
            for own in self._posted:
                self._post(own)
            self._optimise()
        except BaseException as error:
            self._relations, self._elements = before
            self._varmap.clear()
            self._varmap.update(variables)
            if not isinstance(error, UnsupportedConstraint | UnsupportedError | NotSupportedError):
                raise
            return False
        return True

    def _post(self, own: Any) -> None:
        if own.name in TABLES:
            self._add_table(own)
        elif own.name in WALKS:
            self._walk(own)
        else:
            self._relations.post(self._expression(own), "constraint")

    def _scope(self, listed: Iterable[Any]) -> list[int]:
        return [self._relations.value_of(self._expression(part)) for part in listed]

    def _add_table(self, own: Any) -> None:
        relations, (listed, rows) = self._relations, own.args
        scope = relations.distinct(self._scope(flatlist(listed)))
        indices = as_indices(_rows(rows), [relations.tables.domain(v) for v in scope])
        table = ShortTable(tuple(scope), indices, allowed=own.name != "negative_table")
        sizes = tuple(v.size for v in relations.variables.variables)
        relations.tables.constraints.append(table.expanded("CPMpy", sizes))

    def _walk(self, own: Any, truth: int | None = None) -> None:
        """Add that an automaton or a diagram accepts, or that a variable of 0 and 1 says whether it does."""
        if own.name == "mdd":
            moves: dict[Any, Hashable] = {(a, int(v)): b for a, arcs in own.mapping.items() for v, b in arcs.items()}
            start, ends = own.root_node, [own.sink_node]
        else:
            _, listed, start, ends = own.args
            moves = {(a, int(v)): b for a, v, b in listed}
        scope = self._scope(own.args[0])
        nowhere = None if truth is None else _NOWHERE

        def step(place: int, state: Hashable, value: int) -> Hashable | None:
            if place == len(scope):
                return state if value == (state in ends) else None
            return moves.get((state, value), nowhere)

        if truth is None:
            self._relations.walk(scope, start, step, lambda state: state in ends, own.name)
        else:
            self._relations.walk([*scope, truth], start, step, lambda _: True, own.name)

    def _expression(self, own: Any) -> Expression:
        """CPMpy's expression as one of ours."""
        if isinstance(own, _NumVarImpl):
            found = variable(self.solver_var(own))
            return call("not", found) if isinstance(own, NegBoolView) else found
        if isinstance(own, BoolVal | bool | int | np.integer | np.bool_):
            return constant(int(own))
        name, args = own.name, own.args
        if name in ("sum", "wsum"):
            weights, listed = args if name == "wsum" else ([1] * len(args), args)
            if not all(map(_is_whole, weights)):
                raise UnsupportedConstraint("a sum with coefficients that are not whole, other than as the objective")
            products = (
                call("mul", constant(int(w)), self._expression(part)) for w, part in zip(weights, listed, strict=True)
            )
            return call("add", constant(0), *products)
        if name == "element":
            return self._element(*args)
        if name == "indomain":
            return call("in", self._expression(args[0]), *(constant(int(value)) for value in args[1]))
        if name in TABLES:
            holds = has_a_row(self._scope(flatlist(args[0])), _rows(args[1]))
            return call("not", holds) if name == "negative_table" else holds
        if name in WALKS:
            truth = self._relations.new_variable((0, 1))
            self._walk(own, truth)
            return variable(truth)
        parts = tuple(map(self._expression, flatlist(args)))
        if name == "ite":
            return call("and", call("imp", *parts[:2]), call("or", parts[0], parts[2]))
        if name not in OPERATORS:
            raise UnsupportedConstraint(f"the constraint or function {name}")
        return call(OPERATORS[name], *parts)

    def _element(self, cells: Iterable[Any], index: Any) -> Expression:
        """The cell that an index within the array chooses; a variable where cells are no constants."""
        place, parts = self._expression(index), [self._expression(part) for part in cells]
        if all(part.operator == CONSTANT for part in parts):
            return call(CELL, place, *parts)
        key = (place, *parts)
        if key not in self._elements:
            chosen = variable(self._relations.value_of(place))
            low, high = get_bounds(list(cells))
            made = self._relations.new_variable(range(int(min(low)), int(max(high)) + 1))
            self._elements[key] = variable(made)
            for value in self._relations.tables.values(chosen.value).tolist():
                # Places beyond the array are never taken: CPMpy guards them, or a decomposed index has loose bounds.
                equal = call("eq", variable(made), parts[min(max(value, 0), len(parts) - 1)])
                self._relations.post(call("imp", call("eq", chosen, constant(value)), equal), "element")
        return self._elements[key]

    def objective(self, expr: Any, minimize: bool) -> None:
        """Minimise or maximise an expression, or a ``FloatSum``, in place of an earlier objective."""
        shift, added = None, []
        with self._extended():
            if isinstance(expr, FloatSum):
                get_variables(list(expr.vars), self.user_vars)
                weights, parts, shift = expr.components()
                terms = list(zip(weights, parts, strict=True))
            else:
                get_variables(expr, self.user_vars)
                total, defined = safen_objective(expr)
                total = push_down_negation_objective(total)
                total, more = decompose_objective(total, _SUPPORTED, _SUPPORTED_REIFIED, csemap=self._csemap)
                terms, added = _weighted(total), self.transform([*defined, *more])
            self._objective = terms, shift, minimize
            self._post_all(added)
            with _refused(expr):
                self._optimise()

    def _optimise(self) -> None:
        """Add the cost functions of the objective, if there is one."""
        if self._objective is None:
            return
        relations, (terms, shift, minimize) = self._relations, self._objective
        functions: list[Function] = []
        relations.functions, relations.constant, relations.maximises = functions, shift or 0, not minimize
        if shift is None and all(_is_whole(weight) for weight, _ in terms):
            whole = [(int(w) * f, e) for w, own in terms for f, e in terms_of(self._expression(own))]
            relations.set_objective(whole, not minimize)
            return
        for weight, own in terms:
            v = relations.value_of(self._expression(own))
            functions.append(Function.from_array((v,), float(weight) * relations.tables.values(v)))

    def has_objective(self) -> bool:
        """Whether something is optimised."""
        return self._objective is not None

    def solve(self, time_limit: float | None = None, display: Any = None, **kwargs: Any) -> bool:
        """Find a solution, the best one where there is an objective; True if one is found.

        Parameters
        ----------
        time_limit : seconds. display : expressions that are printed, or a function that is called, with the solution.
        kwargs : options of :func:`oocbe.solve`, such as ``memory="2GiB"``.
        """
        left, problem = _checked(time_limit, kwargs), self._problem_of_all()
        with self._timed() as status:
            result = _solved(problem, time_limit=left(), hint=self._known_values(), **kwargs)
            is_proven = result is not None and result.status not in UNPROVEN
            if result is None or result.assignment is None:
                status.exitstatus = ExitStatus.UNSATISFIABLE if is_proven else ExitStatus.UNKNOWN
                self._take(None, None)
                return False
            status.exitstatus = ExitStatus.OPTIMAL if is_proven and self.has_objective() else ExitStatus.FEASIBLE
            self._take(result.assignment, result.value)
        self.print_display(display)
        return True

    def _known_values(self) -> dict[int, str]:
        """Positions of the hint's values by variable of the model; none where one is outside its variable's domain."""
        given = {self._varmap[name]: value for name, value in self._hint.items() if name in self._varmap}
        domains = {v: self._relations.tables.values(v).tolist() for v in given}
        is_inside = all(number in domains[v] for v, number in given.items())
        return {v: f"#{domains[v].index(number)}" for v, number in given.items() if is_inside}

    def solveAll(  # noqa: N802  (CPMpy's name)
        self, display: Any = None, time_limit: float | None = None, solution_limit: int | None = None, **kwargs: Any
    ) -> int:
        """List all solutions, the best ones where there is an objective; their number.

        They are the best assignments of an elimination, or, where sums are too wide for it, found one by one.
        NotSupportedError for more than :data:`MOST_LISTED` without a ``solution_limit``.

        display : as for :meth:`solve`, at each solution. time_limit : seconds.
        solution_limit : number of solutions at most. kwargs : options of :func:`oocbe.k_best`.
        """
        kwargs.pop("call_from_model", None)
        left, problem = _checked(time_limit, kwargs), self._problem_of_all(is_whole=True)
        most = MOST_LISTED if solution_limit is None else solution_limit
        if not isinstance(most, int | np.integer) or most < 1:
            raise ValueError(f"solution_limit: {solution_limit!r} is not a whole number of at least 1")
        seen: set[tuple[int, ...]] = set()
        is_cut, scope = False, [self.solver_var(own) for own in self.user_vars]
        with self._timed() as status:
            self._take(None, None)
            try:
                for assignment, value in _solutions(problem, scope, most, left, kwargs):
                    key = tuple(assignment[v] for v in scope)
                    if key not in seen:
                        seen.add(key)
                        if display is not None or len(seen) == 1:
                            self._take(assignment, value)
                            self.print_display(display)
                    if len(seen) == most:
                        is_cut = True
                        break
            except LimitError:
                is_cut = True
            if solution_limit is None and len(seen) == most:
                raise NotSupportedError(f"oocbe: more than {most:,} solutions; give a solution_limit, or use count()")
            if seen:
                status.exitstatus = ExitStatus.FEASIBLE if is_cut else ExitStatus.OPTIMAL
            else:
                status.exitstatus = ExitStatus.UNKNOWN if is_cut else ExitStatus.UNSATISFIABLE
        return len(seen)

    def count(self, time_limit: float | None = None, **kwargs: Any) -> int:
        """The number of solutions, of the best ones where there is an objective, by elimination, without listing them.

        kwargs : options of :func:`oocbe.count`. LimitError where the time is over before.
        """
        left, problem = _checked(time_limit, kwargs), self._problem_of_all(is_whole=True)
        ask = partial(count_optimal if self.has_objective() else count, **kwargs)
        with _refused("the model"), Deadline(left()):
            return int(_of_tables(ask, problem).value or 0)

    def solution_hint(self, cpm_vars: Sequence[Any], vals: Sequence[Any]) -> None:
        """Values that :meth:`solve` first looks for a solution with, in place of those of an earlier hint.

        A solution with them ends a search without an objective; otherwise it is the first incumbent.
        """
        listed, values = flatlist([cpm_vars]), flatlist([vals])
        are_whole = all(isinstance(value, Real | np.bool_) and value == value // 1 for value in values)
        if len(listed) != len(values) or not are_whole or not all(isinstance(own, _NumVarImpl) for own in listed):
            raise ValueError(
                f"solution_hint: {listed!s:.200} and {values!s:.200} are not variables and a whole number for each"
            )
        pairs = zip(listed, map(int, values), strict=True)
        self._hint = dict((own._bv.name, 1 - n) if isinstance(own, NegBoolView) else (own.name, n) for own, n in pairs)

    @contextmanager
    def _timed(self) -> Iterator[SolverStatus]:
        """A new status, with the seconds that the block takes."""
        self.cpm_status, begin = SolverStatus(self.name), time.perf_counter()
        yield self.cpm_status
        self.cpm_status.solve_time = time.perf_counter() - begin

    def _problem_of_all(self, is_whole: bool = False) -> Problem:
        """The problem for counts or for searches, with variables of the model that no constraint has."""
        if is_whole != self._relations.is_whole and not self._needs_whole:
            self._translate(is_whole)
        self.solver_vars(self.user_vars)
        return self.native_model

    def _take(self, assignment: Sequence[int] | None, value: int | float | None) -> None:
        """Give the model's variables their values, or none, and the objective its own."""
        is_whole = self.has_objective() and value is not None and _is_whole(value)
        self.objective_value_ = int(value) if is_whole and value is not None else None
        for own in self.user_vars:
            if assignment is None:
                own.clear()
                continue
            v = self.solver_var(own)
            number = int(self._relations.tables.values(v)[assignment[v]])
            own._value = bool(number) if own.is_bool() else number


@contextmanager
def _refused(own: Any) -> Iterator[None]:
    """Raise NotSupportedError with the text of what has no form of bounded size."""
    try:
        yield
    except (UnsupportedConstraint, UnsupportedError) as error:
        raise NotSupportedError(f"oocbe: {own!s:.200} is not supported: {error}") from None


def _checked(time_limit: Any, options: dict[str, Any]) -> Callable[[], float | None]:
    """Check a call's arguments; return a function that gives the remaining time. ValueError or NotSupportedError."""
    if own := _OF_THE_MODEL & options.keys():
        known = "the model has it, or solution_hint() and solution_limit"
        raise NotSupportedError(f"oocbe: {min(own)} is no option here: {known}")
    if time_limit is not None and not (isinstance(time_limit, Real) and float(time_limit) > 0):
        raise ValueError(f"time_limit: {time_limit!r} is not a number of seconds above 0")
    if options.pop("assumptions", None) is not None:
        raise NotSupportedError("oocbe solves without assumptions; add them as constraints to a copy of the model")
    begin = time.perf_counter()
    seconds = None if time_limit is None else float(time_limit)
    return lambda: None if seconds is None else max(0.001, seconds - (time.perf_counter() - begin))


def _solved(problem: Problem, **options: Any) -> Result | None:
    """The result of a solve; None where the time was over before there was one."""
    try:
        return solve(problem, **options)
    except LimitError:
        return None


def _rows(rows: Any) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Rows of a table, int64, with a star for any value."""
    found = np.array(rows, dtype=object)
    return np.where(found == ANY_VALUE, STAR, found).astype(np.int64)


def _is_whole(number: float) -> bool:
    return int(number) == number


def _weighted(own: Any, factor: float = 1) -> list[tuple[float, Any]]:
    """CPMpy's terms of a sum, whose terms may be sums and multiples of sums, with their coefficients."""
    name = "" if isinstance(own, _NumVarImpl) else getattr(own, "name", "")
    if name == "mul" and isinstance(own.args[0], int | np.integer):
        weights, listed = own.args[:1], own.args[1:]
    elif name in ("sum", "wsum"):
        weights, listed = own.args if name == "wsum" else ([1] * len(own.args), own.args)
    else:
        return [(factor, own)]
    return [term for w, part in zip(weights, listed, strict=True) for term in _weighted(part, factor * w)]


def _of_tables(ask: Callable[[Problem], TaskResult], problem: Problem) -> TaskResult:
    """A task's result, of sums as walks over their parts where it cannot be had of linear constraints."""
    try:
        return ask(problem)
    except UnsupportedError:
        return ask(with_walks(problem))


def _solutions(
    problem: Problem, scope: Sequence[int], most: int, left: Callable[[], float | None], options: dict[str, Any]
) -> Iterator[tuple[tuple[int, ...], int | float | None]]:
    """Solutions of optimal value, with values of a scope again where other variables may differ."""
    k = 0
    try:
        while k < most:
            k = min(most, 16 * k or 1024)  # those of a time limit are some
            with Deadline(left()):
                found = _of_tables(partial(k_best, k=k, **options), problem).assignments
            yield from ((own, value) for value, own in found if value == found[0][0])
            if len(found) < k or found[-1][0] != found[0][0]:
                return
        return
    except UnsupportedError:
        pass
    best = None
    while (result := solve(problem, time_limit=left(), **options)).assignment is not None or result.status in UNPROVEN:
        if result.status in UNPROVEN or result.assignment is None:
            raise LimitError("the time limit was reached before all solutions were found")
        best = result.value if best is None else best
        if result.value != best:
            return
        yield result.assignment, best
        differs = tuple(-(np.arange(problem.sizes[v]) != result.assignment[v]).astype(np.int64) for v in scope)
        other = LinearConstraint(tuple(scope), differs, -1, "another solution")
        problem = replace(problem, linear_constraints=(*problem.linear_constraints, other))


def _register() -> None:
    """Have CPMpy look the solver up by the name ``oocbe``."""
    others = SolverLookup.base_solvers
    if "oocbe" not in dict(others()):
        SolverLookup.base_solvers = classmethod(lambda cls: [*others(), ("oocbe", CPM_oocbe)])


_register()
