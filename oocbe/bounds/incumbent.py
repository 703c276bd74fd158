"""Incumbents: feasible assignments found by tabu search with ejection.

An incumbent is an upper bound on the optimum, so rows that cannot beat it need not be stored. The search moves one
variable at a time to its cheapest value (Glover 1989). A variable with a conflict-free *safe* value gives way when a
constraint over it is violated (ejection, as in the tabu search by Vasquez and Hao 2001); other violated constraints
gain weight. See :mod:`oocbe.bounds.kernels.cpu.local_search`.

Results do not depend on the search's arithmetic: the problem evaluates each returned assignment.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from oocbe.bounds.incumbent_model import SearchModel, search_model
from oocbe.bounds.kernels.cpu.local_search import Settings, search
from oocbe.bounds.kernels.cpu.search_state import SearchState
from oocbe.errors import UnsupportedError
from oocbe.kernels.cpu.interpreter import interpreted
from oocbe.kernels.cpu.jit import is_ready
from oocbe.model.problem import Problem
from oocbe.model.semiring import Combination, Marginalisation
from oocbe.runtime.compilation import working_time
from oocbe.runtime.deadline import current, current_flag

TENURE, LEAST_TENURE, TENURE_SHARE = 40, 10, 8
"""Tabu tenure of a value that a move leaves, in iterations: a minimum (at most doubled). If most variables cannot give
way, the tenure is the average domain size, within these limits: a variable with two values would be stuck for long.
In small problems it is at most an eighth of the number of slots."""

REST_SHARE, LONGEST_REST = 4, 10
"""A moved variable is fixed for up to a quarter as many iterations as there are variables, with a limit."""

PATIENCE, PATIENCE_A_SLOT = 900, 1.5
"""Iterations without improvement before a perturbation: a number per permitted slot, and a limit."""

KICK_SHARE = 8
"""A perturbation moves at most one in this many variables."""

RISE = 1.002
"""Factor by which the multiplier of a linear constraint changes in an iteration."""

CHUNK_WORK = 10_000_000
"""Slots visited in one compiled call (some hundredths of a second). Signals and limits are checked between calls."""

INTERPRETED_WORK = 50_000
"""The same of an interpreted call, which takes about 0.1 s."""

LONGEST_CHUNK = 2000
"""Maximum number of iterations of one compiled call."""

MOST_RELIEVED = 8
"""Maximum number of linear constraints for which every move's price includes the capacity that its ejections free."""


@dataclass(frozen=True)
class Incumbent:
    """A feasible assignment.

    value : the problem's own evaluation of the assignment.
    assignment : one value index a variable.
    method : its name, for reports.
    """

    value: int | float
    assignment: tuple[int, ...]
    method: str


def find_incumbent(
    problem: Problem,
    seconds: float,
    seed: int = 0,
    iterations: int | None = None,
) -> Incumbent | None:
    """Search for a good feasible assignment.

    problem : in min-sum or max-sum.
    seconds : time limit, wall time, including set-up. A compiled call is never interrupted, and one call is made
        however long set-up took, unless the limit is 0.
    seed : of every random choice. With ``iterations`` and enough time, the result is a function of the seed.
    iterations : limit on the iterations of the search; None: no limit.
    Returns Incumbent or None : None if no feasible assignment was found, which proves nothing.
    Raises UnsupportedError: the semiring does not add values and select one sum.
    """
    begin = working_time()
    found = LocalSearch(problem, seed)
    left = max(seconds - (working_time() - begin), 1e-9) if seconds > 0 else 0.0
    return found.run(left, iterations)


class LocalSearch:
    """Tabu search of one problem, which can be continued; parameters and errors as of :func:`find_incumbent`.

    best : the best assignment so far, or None. is_infeasible : whether constraints of single variables forbid all.
    """

    def __init__(self, problem: Problem, seed: int = 0) -> None:
        semiring = problem.semiring
        if semiring.combination is not Combination.ADD or not semiring.selects:
            raise UnsupportedError(
                f"{problem.name}: incumbents are searched for in min-sum and max-sum, not {semiring}"
            )
        self._problem, self._seed, self._calls = problem, seed, 0
        self._sign = -1 if semiring.marginalisation is Marginalisation.MAX else 1
        self.best: Incumbent | None = None
        self._model = search_model(problem)
        self.is_infeasible = self._model.is_infeasible
        if problem.variables and not self.is_infeasible:
            self._state, self._settings = _initial_state(self._model)
            slots = int(self._model.model.start[-1])  # an iteration looks at all of them
            self._chunk = max(1, min(LONGEST_CHUNK, CHUNK_WORK // slots))
            self._interpreted_chunk = max(1, min(LONGEST_CHUNK, INTERPRETED_WORK // slots))

    def take(self, value: int | float, assignment: Sequence[int]) -> None:
        """Continue from an assignment found elsewhere if it is better."""
        if self.best is None or self._sign * value < self._sign * self.best.value:
            self.best = Incumbent(value, tuple(assignment), "given")
            if self._problem.variables and not self.is_infeasible:
                self._state.best[:] = assignment
                self._state.totals[1] = self._sign * value - self._model.constant

    def run(self, seconds: float, iterations: int | None = None, is_interpreted: bool = False) -> Incumbent | None:
        """Continue, at least by one call unless ``seconds`` is 0; returns the best assignment so far.

        Python interprets the calls while another process compiles the search, or always with ``is_interpreted``.
        """
        begin, deadline, sign = working_time(), current(), self._sign
        if not self._problem.variables:
            self.best = self.best or self._evaluated(())
        if not self._problem.variables or self.is_infeasible:
            return self.best
        found, state = self._model, self._state
        is_compiled = deadline is None and not is_interpreted  # without a limit the result is a function of the seed
        left, is_better, is_first = math.inf if iterations is None else iterations, False, True
        while left > 0:
            is_late = working_time() - begin >= seconds or (deadline is not None and deadline.passed)
            is_late = seconds <= 0 if is_first else is_late
            if is_late:
                break
            call_seed = np.random.SeedSequence((self._seed, self._calls)).generate_state(1)[0]
            arguments = (found.model, found.soft, found.hard, state, self._settings, call_seed)
            is_compiled = is_compiled or (not is_interpreted and is_ready(search, *arguments, 1, current_flag()))
            steps = int(min(self._chunk if is_compiled else self._interpreted_chunk, left))
            left -= steps
            is_better |= bool((search if is_compiled else interpreted(search))(*arguments, steps, current_flag()))
            self._calls, is_first = self._calls + 1, False
        candidate = self._evaluated(tuple(state.best.tolist())) if is_better else None
        if candidate is not None and (self.best is None or sign * candidate.value < sign * self.best.value):
            self.best = candidate
        return self.best

    def _evaluated(self, assignment: tuple[int, ...]) -> Incumbent | None:
        value = self._problem.evaluate(assignment)
        return None if value is None else Incumbent(value, assignment, "tabu search with ejection")


def _initial_state(found: SearchModel) -> tuple[SearchState, Settings]:
    """The initial state and the settings of the search."""
    model = found.model
    variables = len(model.start) - 1
    slots = int(model.start[-1])
    linear = len(model.capacity)
    costs = np.where(model.permitted != 0, model.unary, np.inf)
    values = np.empty(variables, dtype=np.int64)
    for v in range(variables):
        own = costs[model.start[v] : model.start[v + 1]]
        values[v] = model.safe[v] if model.safe[v] >= 0 else int(own.argmin())
    entries = (model.unary, found.soft.table, found.soft.key_values)
    spread = sum(float(np.ptp(e)) for e in entries if len(e))
    scale = spread if spread > 0 else 1.0
    hard, soft = len(found.hard.offset), len(found.soft.offset)
    state = SearchState(
        values=values,
        soft_index=np.zeros(soft, dtype=np.int64),
        hard_index=np.zeros(hard, dtype=np.int64),
        cost=np.zeros(slots),
        conflict=np.zeros(slots),
        relief=np.zeros((slots, linear if linear <= MOST_RELIEVED else 0)),
        weight=np.full(hard, scale / 4),
        violated=np.full(hard, -1, dtype=np.int64),
        violations=np.zeros(hard, dtype=np.int64),
        used=np.zeros(linear),
        multiplier=np.full(linear, scale / 50),
        tabu_until=np.zeros(slots, dtype=np.int64),
        best=values.copy(),
        counts=np.zeros(4, dtype=np.int64),
        totals=np.full(3, np.inf),
    )
    gives_way = 2 * int((model.safe >= 0).sum()) >= variables
    tenure = TENURE if gives_way else min(TENURE, max(LEAST_TENURE, slots // variables))
    settings = Settings(
        tenure=min(tenure, max(1, slots // TENURE_SHARE)),
        rest=min(LONGEST_REST, max(1, variables // REST_SHARE)),
        patience=min(PATIENCE, int(PATIENCE_A_SLOT * model.permitted.sum())),
        kick=max(2, variables // KICK_SHARE),
        weight_step=scale / 8,
        rise=RISE,
    )
    return state, settings
