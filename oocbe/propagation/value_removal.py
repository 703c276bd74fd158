"""A problem with some values removed: smaller domains, and no variable that has one value left.

Values excluded by bounds or propagation are not carried through elimination, and a variable with a single value is
substituted into its functions and constraints. :class:`ReducedProblem` stores the mapping to the original.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from oocbe.elimination.reformulation import Reformulation
from oocbe.model.parts import Constraint, Function, Variable
from oocbe.model.problem import Problem
from oocbe.model.results.result import Result
from oocbe.model.semiring import Combination
from oocbe.model.settings.tuning import tuning
from oocbe.propagation.domains import Domains, TableBatch, ValuePlaces, may_remove
from oocbe.runtime.deadline import check_deadline, looked


@dataclass(frozen=True)
class ReducedProblem(Reformulation):
    """A problem without some values, and without variables that have one value left.

    variables : index in the original of each variable left.
    kept : int64, values in the original's domain of each variable of the original, ascending.
    is_infeasible : whether nothing is feasible; the problem then has the original's variables.
    remover : what removes values, in sentences.
    """

    remover: ClassVar[str] = "propagation"

    variables: tuple[int, ...]
    kept: tuple[NDArray[np.int64], ...]
    is_infeasible: bool = False
    name: str = field(default="propagation", kw_only=True)
    is_checked: bool = field(default=True, kw_only=True)

    @classmethod
    def of_all(cls, problem: Problem) -> ReducedProblem:
        """Nothing is removed."""
        variables = tuple(range(len(problem.variables)))
        all_of = {size: np.arange(size) for size in set(problem.sizes)}
        return cls(problem, problem, variables, tuple(all_of[size] for size in problem.sizes))

    @property
    def removed(self) -> int:
        """Values removed, over all variables."""
        return sum(self.original.sizes) - sum(map(len, self.kept))

    @property
    def summary(self) -> str:
        """A sentence about the removals, for plans and results."""
        if self.is_infeasible:
            return f"{self.remover} found that nothing is feasible"
        fixed = len(self.original.variables) - len(self.variables)
        return (
            f"{self.remover} removed {self.removed:,} of {sum(self.original.sizes):,} values before the search for an "
            "order" + (f"; {fixed:,} variable{'s have' if fixed > 1 else ' has'} one value left" if fixed else "")
        )

    def lift(self, assignment: Sequence[int], /) -> tuple[int, ...]:
        """An assignment of the original from one of what is left."""
        values = [int(k[0]) if len(k) else 0 for k in self.kept]
        for v, value in zip(self.variables, assignment, strict=True):
            values[v] = int(self.kept[v][value])
        return tuple(values)

    def lower(self, assignment: Sequence[int], /) -> tuple[int, ...] | None:
        """An assignment of what is left from one of the original; None if it has a removed value."""
        if not all(value in kept for value, kept in zip(assignment, self.kept, strict=True)):
            return None
        return tuple(int(np.searchsorted(self.kept[v], assignment[v])) for v in self.variables)

    def lift_order(self, order: Sequence[int], /) -> tuple[int, ...]:
        """An order of the original's variables, those with one value first, from one of those left; () without."""
        if not order and self.variables:
            return ()
        fixed = sorted(set(range(len(self.original.variables))) - set(self.variables))
        return (*fixed, *(self.variables[v] for v in order))

    def lift_marginals(self, found: Sequence[NDArray[Any]], certain: Any, nothing: Any, /) -> tuple[NDArray[Any], ...]:
        """The original's marginals: ``certain`` for values of fixed variables, ``nothing`` for removed ones."""
        number = {v: i for i, v in enumerate(self.variables)}
        marginals = []
        for v, kept in enumerate(self.kept):
            own = np.full(self.original.sizes[v], nothing, dtype=object if isinstance(certain, int) else np.float64)
            own[kept] = found[number[v]] if v in number else certain
            marginals.append(own)
        return tuple(marginals)

    def result(self, result: Result) -> Result:
        """The result of the original: propagation has enforced its linear constraints that can bind."""
        result, linear = super().result(result), self.original.linear_constraints
        if result.linear_constraints != "none" or not linear or result.status == "interrupted":
            return result
        is_enforced = any(c.can_bind for c in linear)
        return replace(result, linear_constraints="enforced" if is_enforced else "shown not to bind")


def remove_values(problem: Problem, removed: Iterable[tuple[int, int]]) -> ReducedProblem:
    """Remove pairs of variable and value, and propagate; the upper bound is unchanged."""
    removed = list(removed)
    if not removed and 1 not in problem.sizes and not may_lose_values(problem):
        return ReducedProblem.of_all(problem)
    # Loaded here: most solves have nothing to remove.
    from oocbe.propagation.bounds import FIXPOINT, INFEASIBLE
    from oocbe.propagation.fixpoint import Network

    network = Network(problem, batch_rows=tuning().few_rows)
    found = network.propagate_without(removed)
    if found.status not in (FIXPOINT, INFEASIBLE):
        check_deadline()
    domains = network.domains
    kept = tuple(domains.values(v) for v in range(len(problem.variables)))
    left = tuple(v for v, k in enumerate(kept) if len(k) > 1)
    if found.status == INFEASIBLE or (domains.counts == 0).any():
        return ReducedProblem(problem, infeasible(problem), left, kept, is_infeasible=True)
    if (domains.counts == problem.sizes).all() and 1 not in problem.sizes:
        return ReducedProblem(problem, problem, left, kept)
    return ReducedProblem(problem, _rebuilt(problem, domains, kept, left), left, kept)


def infeasible(problem: Problem) -> Problem:
    """A trivially infeasible problem over the same variables."""
    nothing = Constraint((), np.zeros((0, 0), dtype=np.int64), allowed=True)
    return replace(problem, functions=(), constraints=(nothing,), linear_constraints=())


def may_lose_values(problem: Problem) -> bool:
    """Whether some part may remove a value from full domains, judged by its rows."""
    sizes = problem.sizes
    for linear in problem.linear_constraints:
        room = linear.capacity - linear.least
        if any(high - low > room for low, high in zip(*linear.ends, strict=True)) or room < 0:
            return True
    forbids = problem.semiring.zeros_forbid
    if forbids and any(f.default == 0 or not f.values.all() for f in problem.functions):
        return True
    tables = [(c.scope, c.tuples, c.allowed) for c in problem.constraints]
    tables += [(f.scope, f.tuples, True) for f in problem.functions if f.default is None]
    first, most = [table for table in looked(tables) if may_remove(table, sizes)], tuning().few_rows
    if not first or any(len(rows) > most or not scope for scope, rows, _ in first):
        return bool(first)
    domains = Domains.of_sizes(sizes)
    return TableBatch(first, domains).filter(domains) != []


def _rebuilt(problem: Problem, domains: Domains, kept: tuple[NDArray[np.int64], ...], left: tuple[int, ...]) -> Problem:
    """The problem over the variables left; what does not depend on any becomes part of the constant.

    In products it stays a function without variables: a constant has no room for the range of many factors.
    """
    number = {v: i for i, v in enumerate(left)}
    places = ValuePlaces(domains)
    adds = problem.semiring.combination is Combination.ADD

    def shrunk(part: Function | Constraint) -> tuple[tuple[int, ...], NDArray[Any], NDArray[np.bool_] | None]:
        """Scope and rows of a reduced part, and their original row indices; None: all."""
        if places.is_whole(part.scope) and all(v in number for v in part.scope):
            return tuple(number[v] for v in part.scope), part.tuples, None
        tuples, alive = places.rows(part.scope, part.tuples)
        axes = [axis for axis, v in enumerate(part.scope) if v in number]
        return tuple(number[part.scope[axis]] for axis in axes), tuples[:, axes], alive

    constant = problem.constant
    functions = []
    for f in looked(problem.functions):
        scope, tuples, alive = shrunk(f)
        values = f.values if alive is None else f.values[alive]
        if scope or not adds:
            functions.append(Function(scope, tuples, values, f.default))
        elif len(tuples):
            constant += values[0].item()
        else:
            assert f.default is not None
            constant += f.default
    constraints = []
    for c in looked(problem.constraints):
        scope, tuples, _ = shrunk(c)
        if scope and (c.allowed or len(tuples)):
            constraints.append(Constraint(scope, tuples, c.allowed))
    linears, fixed = [], {v: int(own[0]) for v, own in enumerate(kept) if v not in number}
    for linear in looked(problem.linear_constraints):
        rest = linear.without(fixed)
        coefficients = tuple(a[kept[v]] for v, a in zip(rest.scope, rest.coefficients, strict=True))
        linears.append(replace(rest, scope=tuple(number[v] for v in rest.scope), coefficients=coefficients))
    return replace(
        problem,
        variables=tuple(_shrunk_variable(problem.variables[v], kept[v]) for v in left),
        functions=tuple(functions),
        constraints=tuple(constraints),
        linear_constraints=tuple(linears),
        constant=constant,
    )


def _shrunk_variable(variable: Variable, kept: NDArray[np.int64]) -> Variable:
    labels = None if variable.labels is None else tuple(variable.labels[value] for value in kept)
    return Variable(variable.name, len(kept), labels)
