"""The bound that is always there: each function outside a message costs at least its minimum.

Functions over one variable are kept value by value, as they are additive already. This is also what the other sources
start from.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from oocbe.model.parts import Function
from oocbe.model.problem import Problem
from oocbe.pruning.estimators import AdditiveSource, Terms, TermsBuilder
from oocbe.pruning.fixed_point import FixedPoint
from oocbe.pruning.forbidden import cheapest, removed_values
from oocbe.system.deadline import looked


def minimum_terms(problem: Problem, fixed_point: FixedPoint, with_minima: bool = True) -> Terms:
    """Soft terms: functions over one variable as they are, others by their minimum, or not at all."""
    builder = TermsBuilder()
    for f in looked(problem.functions):
        least = cheapest(f, problem.sizes)
        if least == math.inf:
            continue  # permits nothing: then nothing counts, and every bound holds
        if len(f.scope) == 1:
            builder.add(0, {f.scope[0]: unary_entries(f, problem.sizes, fixed_point)})
        elif with_minima or not f.scope:
            # All variables of the scope are named, without entries: the term goes where its function goes.
            builder.add(int(fixed_point.down(least)), {v: np.zeros(problem.sizes[v], np.int64) for v in f.scope})
    return builder.build()


def unary_entries(f: Function, sizes: tuple[int, ...], fixed_point: FixedPoint) -> NDArray[np.int64]:
    """Values of a function over one variable in fixed point; the largest where it permits nothing."""
    values, feasible = f.to_array(sizes)
    return fixed_point.down(np.where(feasible, values, values[feasible].max())).reshape(-1)


def constant_source(problem: Problem) -> AdditiveSource:
    """The source named ``constant``, for any problem in the min-sum semiring."""
    fixed_point = FixedPoint.of(problem)
    removed, is_empty = removed_values(problem)
    if is_empty or any(cheapest(f, problem.sizes) == math.inf for f in looked(problem.functions)):
        removed[:] = 1
    terms = minimum_terms(problem, fixed_point)
    source = AdditiveSource("constant", "", problem, fixed_point, terms, removed)
    source.why = f"the functions' minima add up to {source.root}"
    return source
