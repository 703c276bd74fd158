"""Models of CPMpy/fuzz-test by oocbe and by OR-tools: status, optimum and number of solutions agree.

    git clone https://github.com/CPMpy/fuzz-test
    python benchmarks/cpmpy_fuzz_models.py fuzz-test/models --minutes 20

A solution of oocbe is checked by OR-tools, with its values fixed. Solutions are counted by ``count()`` of oocbe, and by
``solveAll`` of OR-tools up to a limit, as ``solveAll`` of oocbe lists them. The models were pickled by CPMpy 0.9:
multiplications, divisions, remainders and powers become the expressions that they are since. Models that neither solver
takes, such as those with a solver's own constraints, are listed by their errors.
"""

from __future__ import annotations

import argparse
import operator
import pickle
import random
import sys
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import cpmpy as cp
from cpmpy.expressions.core import Expression, Operator
from cpmpy.expressions.variables import _NumVarImpl
from cpmpy.transformations.get_variables import get_variables_model

import oocbe.api.cpmpy  # noqa: F401 (makes the solver known)

RENAMED = {"mul": operator.mul, "div": operator.floordiv, "mod": operator.mod, "pow": operator.pow}
"""Operators of CPMpy 0.9 that are functions since."""

TYPES = frozenset(["bool", "dict", "float", "frozenset", "int", "list", "range", "set", "slice", "str", "tuple"])
"""Python's own types in a model's file."""

MOST_SOLUTIONS = 200
"""Solutions that OR-tools lists of a model; models with more are compared by their status."""

DECIDED = ("OPTIMAL", "FEASIBLE", "UNSATISFIABLE")


class ModelReader(pickle.Unpickler):
    """Reads a model, and calls nothing but what models consist of."""

    def find_class(self, module: str, name: str) -> Any:
        is_known = module.partition(".")[0] in ("cpmpy", "numpy") or (module == "builtins" and name in TYPES)
        if is_known or (module, name) in (("_codecs", "encode"), ("copyreg", "_reconstructor")):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"{module}.{name} is no part of a model")


def renewed(part: Any) -> Any:
    """An expression, or a list of them, of CPMpy 0.9 as one of today."""
    if type(part) in (list, tuple):
        return type(part)(map(renewed, part))
    if isinstance(part, Expression) and not isinstance(part, _NumVarImpl) and isinstance(part._args, list | tuple):
        part._has_subexpr = None
        part._args = renewed(part._args)
        if isinstance(part, Operator) and part.name in RENAMED:
            return RENAMED[part.name](*part._args)
    return part


def read_model(path: Path) -> Any:
    with path.open("rb") as file:
        model = ModelReader(file).load()
    model.constraints = [renewed(constraint) for constraint in model.constraints]
    model.objective_ = renewed(model.objective_)
    return model


def answer(model: Any, solver: str, seconds: float) -> tuple[str, Any]:
    """Status and optimum, or kind and text of an error."""
    try:
        is_solved = model.solve(solver=solver, time_limit=seconds)
    except Exception as error:
        return type(error).__name__, str(error)[:100]
    return model.status().exitstatus.name, model.objective_value() if is_solved and model.has_objective() else None


def disagreement(model: Any, seconds: float, counted: Counter[str]) -> str | None:
    """What differs, or None."""
    theirs, ours = answer(model, "ortools", seconds), answer(model, "oocbe", seconds)
    if theirs[0] not in DECIDED or ours[0] not in DECIDED:
        counted[f"not compared: {ours[0] if ours[0] not in DECIDED else theirs[0]}"] += 1
        return None
    if theirs != ours:
        return f"OR-tools {theirs}, oocbe {ours}"
    counted[ours[0]] += 1
    if ours[0] == "UNSATISFIABLE":
        return None
    fixed = [v == int(v.value()) for v in get_variables_model(model) if v.value() is not None]
    if not cp.Model(model.constraints, fixed).solve(solver="ortools", time_limit=seconds):
        return "OR-tools refuses oocbe's solution"
    if model.has_objective():
        return None
    listed = model.solveAll(solver="ortools", solution_limit=MOST_SOLUTIONS, time_limit=seconds)
    if listed >= MOST_SOLUTIONS or model.status().exitstatus.name not in DECIDED:
        return None
    own = cp.SolverLookup.get("oocbe", model).count(), model.solveAll(solver="oocbe", time_limit=seconds)
    counted["counted"] += 1
    return None if own == (listed, listed) else f"{listed} solutions, oocbe counts and lists {own}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder of the models, with all folders in it")
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--limit", type=float, default=10.0, help="seconds of a solve")
    parser.add_argument("--seed", type=int, default=1, help="of the models' order")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    paths = sorted(options.folder.rglob("*.pickle"))
    random.Random(options.seed).shuffle(paths)
    counted, different, stop = Counter[str](), 0, time.monotonic() + 60 * options.minutes
    for number, path in enumerate(paths):
        if time.monotonic() > stop:
            paths = paths[:number]
            break
        if (found := disagreement(read_model(path), options.limit, counted)) is not None:
            different += 1
            print(f"{path}: {found}", flush=True)
    print(f"{len(paths)} models: {different} differ;", ", ".join(f"{n:,} {what}" for what, n in counted.most_common()))
    return int(different > 0)


if __name__ == "__main__":
    sys.exit(main())
