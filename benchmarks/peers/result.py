"""What every peer returns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from oocbe.errors import UnsupportedError
from oocbe.model.problem import Problem
from oocbe.model.semiring import MIN_SUM

OPTIMAL = "optimal"
INFEASIBLE = "infeasible"
FEASIBLE = "feasible"
UNKNOWN = "unknown"


@dataclass(frozen=True)
class PeerResult:
    """A solver's answer.

    Attributes
    ----------
    name : the solver and its mode.
    status : ``optimal`` (proven), ``infeasible`` (proven), ``feasible`` (a limit was reached with an assignment) or
        ``unknown`` (a limit was reached without one).
    value : of the assignment, or None.
    bound : the proven lower bound on the optimum, or None.
    wall_seconds : from the problem to the answer, modelling included; starting a process and importing excluded.
    assignment : value index of each variable, or None.
    """

    name: str
    status: str
    value: int | None
    bound: float | None
    wall_seconds: float
    assignment: tuple[int, ...] | None = None


def check_supported(name: str, problem: Problem) -> None:
    """UnsupportedError unless the problem is a min-sum one of integers, which all peers minimise exactly."""
    if problem.semiring != MIN_SUM or not problem.is_integral:
        raise UnsupportedError(f"{problem.name}: {name} is given min-sum problems of integers only")


def make_result(
    name: str,
    problem: Problem,
    assignment: Sequence[int] | None,
    proven: bool,
    bound: float | None,
    wall_seconds: float,
) -> PeerResult:
    """The result of an assignment, evaluated independently of the solver.

    RuntimeError where the assignment is infeasible, or its value below the bound or, with a proof, not equal to it: a
    benchmark that times wrong answers is worth nothing.
    """
    if assignment is None:
        return PeerResult(name, INFEASIBLE if proven else UNKNOWN, None, None if proven else bound, wall_seconds)
    value = problem.evaluate(assignment)
    if value is None:
        raise RuntimeError(f"{name} returned an assignment of {problem.name} that violates a constraint")
    if bound is not None and (bound > value + 0.5 or (proven and bound < value - 0.5)):
        raise RuntimeError(f"{name}: bound {bound} and value {value} of {problem.name} contradict one another")
    status = OPTIMAL if proven else FEASIBLE
    return PeerResult(name, status, int(value), bound, wall_seconds, tuple(assignment))
