"""A digest of the parts of a problem that determine its answer, to match stored results with their problem."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np

from oocbe.model.problem import Problem


def problem_digest(problem: Problem) -> str:
    """SHA-256, in hexadecimal, of variables, functions, constraints, constant, semiring and upper bound.

    The problem's name and the labels of values are excluded: files may be moved, and labels do not affect the answer.
    """
    digest = hashlib.sha256()

    def add(*items: object) -> None:
        digest.update(json.dumps(items).encode() + b"\n")

    def add_array(array: np.ndarray[Any, Any]) -> None:
        add(array.dtype.str, array.shape)
        digest.update(np.ascontiguousarray(array).tobytes())

    add("variables", [(v.name, v.size) for v in problem.variables])
    for f in problem.functions:
        add("function", f.scope, repr(f.default))
        add_array(f.tuples)
        add_array(f.values)
    for c in problem.constraints:
        add("constraint", c.scope, c.allowed)
        add_array(c.tuples)
    for linear in problem.linear_constraints:
        add("linear constraint", linear.scope, linear.capacity)
        for coefficients in linear.coefficients:
            add_array(coefficients)
    bounds = [repr(problem.upper_bound), *([] if problem.lower_bound is None else [repr(problem.lower_bound)])]
    add("whole", repr(problem.constant), problem.semiring.name, *bounds)
    return digest.hexdigest()
