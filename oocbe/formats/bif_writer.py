"""Belief networks in the Bayesian interchange format, the writing side (:mod:`oocbe.formats.bif` describes the
format)."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import UnsupportedError
from oocbe.model.parts import Function, Variable
from oocbe.model.problem import Problem
from oocbe.model.semiring import MAX_PRODUCT, SUM_PRODUCT

ROUNDING = 0.02
"""By how much the probabilities of a row may miss 1: files print rounded numbers."""

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*|[0-9]+")
"""Names that need no quotes."""


def render(problem: Problem) -> str:
    """The problem as a belief network: one table of probabilities a variable, given its parents.

    Raises
    ------
    UnsupportedError : no network: another semiring, no variable, constraints, a constant, functions that are not the
        conditional probabilities of one variable each, or such that go round in a circle; or a name that cannot be
        quoted.
    """
    if problem.semiring not in (MAX_PRODUCT, SUM_PRODUCT):
        raise UnsupportedError(f"{problem.name}: the bif format holds probabilities, not a {problem.semiring} problem")
    if problem.constraints or problem.linear_constraints or problem.constant != 1:
        raise UnsupportedError(
            f"{problem.name}: a belief network has no constraints and no constant factor; write it as .uai"
        )
    if not problem.variables:
        raise UnsupportedError(f"{problem.name}: a belief network has a variable, and there is none; write it as .uai")
    tables = [_dense(f, problem.sizes) for f in problem.functions]
    children = _children(problem, tables)
    lines = [f"network {_name(problem.name or 'network')} {{", "}"]
    for variable in problem.variables:
        labels = ", ".join(_name(variable.label(value)) for value in range(variable.size))
        lines += [f"variable {_name(variable.name)} {{", f"  type discrete [ {variable.size} ] {{ {labels} }};", "}"]
    for f, table, child in zip(problem.functions, tables, children, strict=True):
        lines += _probability(problem.variables, f, table, child)
    return "\n".join(lines) + "\n"


def _dense(function: Function, sizes: tuple[int, ...]) -> NDArray[np.float64]:
    values, feasible = function.to_array(sizes)
    return np.where(feasible, values, 0).astype(np.float64)


def _children(problem: Problem, tables: list[NDArray[np.float64]]) -> list[int]:
    """The variable of each function; each variable once, so that parents come before children in some order."""
    wanted: list[list[int]] = []
    for number, (f, table) in enumerate(zip(problem.functions, tables, strict=True)):
        fits = [
            v for axis, v in enumerate(f.scope) if bool((np.abs(table.sum(axis=axis) - 1) <= ROUNDING).all())
        ]  # fmt: skip
        if not fits:
            raise UnsupportedError(
                f"{problem.name}: function {number} over {[problem.variables[v].name for v in f.scope]} adds up to 1 "
                "over none of its variables, so it is no conditional probability; write it as .uai"
            )
        wanted.append(fits[::-1])  # the last of the scope, as files are read
    owner: dict[int, int] = {}

    def place(number: int, seen: set[int]) -> bool:
        for v in wanted[number]:
            if v not in seen:
                seen.add(v)
                if v not in owner or place(owner[v], seen):
                    owner[v] = number
                    return True
        return False

    if not all(place(number, set()) for number in range(len(wanted))) or len(owner) != len(problem.variables):
        raise UnsupportedError(
            f"{problem.name}: {len(wanted)} functions are not the probabilities of {len(problem.variables)} variables, "
            "one each; write it as .uai"
        )
    children = {number: v for v, number in owner.items()}
    _refuse_circle(problem, children)
    return [children[number] for number in range(len(wanted))]


def _refuse_circle(problem: Problem, children: dict[int, int]) -> None:
    parents = {v: [u for u in problem.functions[number].scope if u != v] for number, v in children.items()}
    missing = {v: len(own) for v, own in parents.items()}
    below: dict[int, list[int]] = {v: [] for v in parents}
    for v, own in parents.items():
        for u in own:
            below[u].append(v)
    ready = [v for v, count in missing.items() if not count]
    for v in ready:
        for u in below[v]:
            missing[u] -= 1
            if not missing[u]:
                ready.append(u)
    if len(ready) != len(parents):
        raise UnsupportedError(f"{problem.name}: its probabilities go round in a circle; write it as .uai")


def _probability(
    variables: tuple[Variable, ...], function: Function, table: NDArray[np.float64], child: int
) -> list[str]:
    """Rows by the parents' values; a variable without parents has a table."""
    axis = function.scope.index(child)
    parents = [variables[v] for v in function.scope if v != child]
    rows = np.moveaxis(table, axis, -1).reshape(-1, variables[child].size)
    name = _name(variables[child].name)
    if not parents:
        return [f"probability ( {name} ) {{", f"  table {_listed(rows[0])};", "}"]
    lines = [f"probability ( {name} | {', '.join(_name(p.name) for p in parents)} ) {{"]
    for values, row in zip(np.ndindex(*(p.size for p in parents)), rows, strict=True):
        given = ", ".join(_name(p.label(x)) for p, x in zip(parents, values, strict=True))
        lines.append(f"  ({given}) {_listed(row)};")
    return [*lines, "}"]


def _listed(row: NDArray[np.float64]) -> str:
    return ", ".join(map(repr, row.tolist()))


def _name(name: str) -> str:
    if _WORD.fullmatch(name):
        return name
    if '"' in name or "\n" in name or not name:
        raise UnsupportedError(f"the name {name!r} cannot be quoted in the bif format; rename it")
    return f'"{name}"'
