"""Problems in which every pair of variables has a cost: messages whose sizes are known."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from oocbe.model.parts import Constraint, Function, Variable
from oocbe.model.problem import Problem


def clique(count: int, size: int, largest: int = 100, has_forbidden: bool = True) -> Problem:
    """Variables, each pair of which has costs below ``largest`` and, where asked for, a forbidden tuple."""
    random = np.random.default_rng(0)
    pairs = list(combinations(range(count), 2))
    functions = tuple(Function.from_array(pair, random.integers(0, largest, (size, size))) for pair in pairs)
    forbidden = tuple(Constraint(pair, [random.integers(0, size, 2)]) for pair in pairs) if has_forbidden else ()
    return Problem(tuple(Variable(f"x{v}", size) for v in range(count)), functions, forbidden, name="clique")
