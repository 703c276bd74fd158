"""A problem's values as weights of assignments, or logarithms of weights.

At temperature T an assignment of cost c weighs exp(-c / T), one of utility u exp(u / T), one of product p p^(1/T).
The infinite temperature weighs all feasible assignments alike.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from oocbe.elimination.preparation.ranges import float_magnitude
from oocbe.elimination.preparation.upper_bound import without_upper_bound
from oocbe.elimination.reformulation import scaled
from oocbe.errors import UnsupportedError, ValueRangeError
from oocbe.model.parts import Function
from oocbe.model.problem import Problem
from oocbe.model.semiring import LOG_SUM_EXP, SUM_PRODUCT, Combination, Marginalisation, Semiring
from oocbe.runtime.deadline import looked

LARGEST_LOGARITHM = 745
"""No logarithm of a positive float is larger in size."""

ROUNDED, INEXACT = 2.0**53, 2.0**43
"""Sums of logarithms of this size are rounded to whole numbers; to thousandths, so that shares of weights have 3 digits
at most."""

LARGEST_TOTAL = 2.0**1000
"""Sums of logarithms of weights stay below this in size, so that differences of several are finite."""


def weighted(problem: Problem, temperature: float) -> Problem:
    """The problem, or its logarithms, such that values are weights to multiply; errors as :func:`at_temperature`."""
    semiring = problem.semiring
    if semiring.combination is Combination.MULTIPLY and not semiring.counts and temperature == 1:
        return problem.in_semiring(SUM_PRODUCT)
    return at_temperature(problem, temperature)


def at_temperature(problem: Problem, temperature: float) -> Problem:
    """The problem whose values are logarithms of weights, in the log-sum-exp semiring.

    Raises UnsupportedError: a factor of a product is negative, or an upper bound that sums can reach; ValueRangeError:
    logarithms of weights leave the range of float64.
    """
    problem = without_upper_bound(problem)
    semiring, factor = problem.semiring, weight_factor(problem.semiring, temperature)
    adds = semiring.combination is Combination.ADD or semiring.counts
    check_range(problem, float_magnitude(problem) if adds else 0.0, temperature)
    if adds:
        return replace(scaled(without_offsets(problem), factor), semiring=LOG_SUM_EXP)
    functions = tuple(_logarithms(problem, f, factor) for f in looked(problem.functions))
    if problem.constant < 0:
        raise UnsupportedError(f"{problem.name}: the constant is negative; weights need products that are not")
    if problem.constant == 0:
        functions = (*functions, Function((), np.zeros((0, 0), dtype=np.int64), np.zeros(0)))
        return replace(problem, functions=functions, constant=0.0, semiring=LOG_SUM_EXP)
    return replace(problem, functions=functions, constant=math.log(problem.constant) * factor, semiring=LOG_SUM_EXP)


def without_offsets(problem: Problem) -> Problem:
    """Large values to add as floats, less the best of each function, which the constant takes: floats round 2^53 + 1.

    Values far from the best one are rounded: :func:`check_rounding`.
    """
    if problem.semiring.combination is not Combination.ADD or not 2**32 <= problem.magnitude < LARGEST_TOTAL:
        return problem
    best = min if problem.semiring.marginalisation is Marginalisation.MIN else max
    functions, constant = list(problem.functions), problem.constant
    for number, f in enumerate(looked(problem.functions)):
        has_default = f.default is not None and len(f.values) < math.prod(problem.sizes[v] for v in f.scope)
        given = f.values.tolist() + ([f.default] if has_default else [])
        if given:
            by = best(given)
            values = (f.values.astype(object) - by).astype(np.float64)  # differences may have 65 bits
            functions[number] = Function(f.scope, f.tuples, values, float(f.default - by) if has_default else None)
            constant += by
    return replace(problem, functions=tuple(functions), constant=constant)


def check_rounding(energies: Problem, logarithms: ArrayLike, limit: float = INEXACT) -> None:
    """Refuse (ValueRangeError) to compare assignments whose values floats round too much.

    energies : the problem in logarithms. logarithms : of sums of weights, or of largest ones. limit : of their sizes.
    """
    sizes = np.abs(np.asarray(logarithms) - energies.constant)
    if energies.semiring == LOG_SUM_EXP and ((limit <= sizes) & (sizes < math.inf)).any():
        raise ValueRangeError(
            f"{energies.name}: every feasible assignment is more than 2^{math.log2(limit):.0f} times the temperature "
            "worse than the best values of all functions together, so floats do not tell assignments apart; write "
            "values that are meant to be infeasible as constraints, or as an upper bound, or scale all values down "
            "(min-marginals and kbest are exact)"
        )


def weight_factor(semiring: Semiring, temperature: float) -> float:
    """Multiplier that turns values, or logarithms of factors, into logarithms of weights."""
    if semiring.counts:
        return 0.0
    is_cost = semiring.combination is Combination.ADD and semiring.marginalisation is Marginalisation.MIN
    return (-1.0 if is_cost else 1.0) / temperature


def check_range(problem: Problem, largest: float, temperature: float) -> None:
    """Refuse a temperature at which logarithms of weights leave the range of float64 (ValueRangeError).

    largest : no sum of added values is larger in size; no logarithm of a factor exceeds :data:`LARGEST_LOGARITHM`.
    """
    factor = weight_factor(problem.semiring, temperature)
    if not abs(max(largest, LARGEST_LOGARITHM) * factor) < LARGEST_TOTAL:  # nor where that is not a number
        raise ValueRangeError(
            f"{problem.name}: values divided by the temperature of {temperature} leave the range of float64; raise the "
            "temperature, or scale the values down"
        )


def _logarithms(problem: Problem, f: Function, factor: float) -> Function:
    """Logarithms of the values that are not 0; an unlisted 0 or a listed one is infeasible."""
    if (f.values < 0).any() or (f.default or 0) < 0:
        raise UnsupportedError(
            f"{problem.name}: function over {f.scope} has a negative value; weights cannot be negative"
        )
    if f.default:  # what is listed as 0 must not become the default
        dense, feasible = f.to_array(problem.sizes)
        f = Function.from_array(f.scope, np.where(feasible, dense, 0), infeasible=0)
    keep = f.values != 0
    values = np.asarray(np.log(f.values[keep]) * factor, dtype=np.float64)
    return Function(f.scope, f.tuples[keep], values, None)
