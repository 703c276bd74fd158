"""Incumbents: good feasible assignments, found by tabu search with ejection over the problem itself.

An incumbent bounds the optimum from the side that a bound cannot, so rows that cannot beat it need not be stored. The
search moves one variable at a time to the value that costs least (Glover 1989), in variables whose *safe* value is in
no conflict it lets the members of violated constraints give way (ejection, as in the tabu search for these problems by
Vasquez and Hao 2001), and elsewhere it weights what stays violated. See :mod:`oocbe.bounds.kernels.cpu.local_search`.

Nothing here is trusted: what is returned has been evaluated by the problem.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from oocbe.bounds.incumbent_model import SearchModel, search_model
from oocbe.bounds.kernels.cpu.local_search import Settings, search
from oocbe.bounds.kernels.cpu.search_state import State
from oocbe.errors import UnsupportedError
from oocbe.model.parts import Function, Variable
from oocbe.model.problem import Problem
from oocbe.model.semiring import Combination, Marginalisation
from oocbe.runtime.compilation import working_time
from oocbe.runtime.deadline import current, current_flag, unlimited

TENURE, LEAST_TENURE, TENURE_SHARE = 40, 10, 8
"""Iterations for which a value given up is tabu, at least (at most twice as many). Where most variables cannot give
way, only as many as a variable has values, within these limits: a variable of two would be stuck for long. And an
eighth of the slots in small problems."""

REST_SHARE, LONGEST_REST = 4, 10
"""A variable that has moved rests for up to a quarter as many iterations as there are variables, and a limit."""

PATIENCE, PATIENCE_A_SLOT = 900, 1.5
"""Iterations without improvement after which the search is shaken: some for each slot, and a limit."""

KICK_SHARE = 8
"""A shake moves at most one in this many variables."""

RISE = 1.002
"""Factor by which the multiplier of a linear constraint changes in an iteration."""

CHUNK_WORK = 10_000_000
"""Slots visited in one compiled call, which takes some hundredths of a second. Then signals and limits are checked."""

LONGEST_CHUNK = 2000
"""Maximum number of iterations of one compiled call."""

MOST_RELIEVED = 8
"""Linear constraints up to this number enter the price of every move with what its ejections free."""


@dataclass(frozen=True)
class Incumbent:
    """A feasible assignment.

    Attributes
    ----------
    value : the problem's own evaluation of the assignment.
    assignment : one value index a variable.
    seconds : elapsed time when it was found. iterations : total of the search.
    method : its name, for reports.
    """

    value: int | float
    assignment: tuple[int, ...]
    seconds: float
    iterations: int
    method: str


def find_incumbent(
    problem: Problem,
    seconds: float,
    seed: int = 0,
    start: Sequence[int] | None = None,
    should_stop: Callable[[], bool] | None = None,
    target: float | None = None,
    iterations: int | None = None,
) -> Incumbent | None:
    """Search for a good feasible assignment.

    Parameters
    ----------
    problem : in min-sum or max-sum.
    seconds : time limit, wall time, the set-up included. One call of the compiled search is never cut off, and one is
        made however long the set-up took, unless there are no seconds at all.
    seed : of every random choice. With ``iterations`` and time enough, the result follows from the seed.
    start : an assignment to begin with; where it is feasible, nothing worse is returned.
    should_stop : polled regularly; True ends the search.
    target : end as soon as a value at least as good is found.
    iterations : limit on the iterations of the search; None: only time limits it.

    Returns
    -------
    Incumbent or None : None where nothing feasible was found, which proves nothing.

    Raises
    ------
    UnsupportedError : a semiring that does not add values and select one sum.
    ModelError : a start that is no assignment of the problem.
    """
    begin = working_time()
    semiring = problem.semiring
    if semiring.combination is not Combination.ADD or not semiring.selects:
        raise UnsupportedError(f"{problem.name}: incumbents are searched for in min-sum and max-sum, not {semiring}")
    sign = -1 if semiring.marginalisation is Marginalisation.MAX else 1
    best: Incumbent | None = None
    if start is not None:
        value = problem.evaluate(start)  # a wrong length or value raises
        if value is not None:
            best = Incumbent(value, tuple(int(v) for v in start), 0.0, 0, "given")
    found = search_model(problem)
    if found.is_infeasible or not problem.variables:
        return best or _evaluated(problem, (), begin, 0) if not problem.variables else best
    state, settings = _initial_state(found, start)
    if best is not None:
        state.totals[1] = sign * best.value - found.constant
    chunk = max(1, min(LONGEST_CHUNK, CHUNK_WORK // int(found.model.start[-1])))
    goal = -math.inf if target is None else sign * target
    found_at = 0.0
    call = 0
    left = math.inf if iterations is None else iterations
    deadline = current()
    while left > 0 and state.totals[1] + found.constant > goal:
        is_late = working_time() - begin >= seconds if call else seconds <= 0
        is_late = is_late or (call > 0 and deadline is not None and deadline.passed)
        if is_late or (should_stop is not None and should_stop()):
            break
        steps = int(min(chunk, left))
        left -= steps
        call_seed = np.random.SeedSequence((seed, call)).generate_state(1)[0]
        if search(found.model, found.soft, found.hard, state, settings, call_seed, steps, current_flag()):
            found_at = working_time()
        call += 1
    if not found_at:
        return best
    candidate = _evaluated(problem, tuple(state.best.tolist()), begin, int(state.counts[1]), found_at)
    if candidate is None or (best is not None and sign * best.value <= sign * candidate.value):
        return best
    return candidate


def load_loops() -> None:
    """Load the compiled search outside the time limit; loading takes longer than some limits."""
    smallest = Problem((Variable("a", 2),), (Function.from_array((0,), [0, 1]),))
    with unlimited():
        find_incumbent(smallest, math.inf, iterations=1)


def _evaluated(
    problem: Problem, assignment: tuple[int, ...], begin: float, iterations: int, found_at: float | None = None
) -> Incumbent | None:
    value = problem.evaluate(assignment)
    if value is None:
        return None
    seconds = (found_at or working_time()) - begin
    return Incumbent(value, assignment, seconds, iterations, "tabu search with ejection")


def _initial_state(found: SearchModel, start: Sequence[int] | None) -> tuple[State, Settings]:
    """The state before the first call, and how to search."""
    model = found.model
    variables = len(model.start) - 1
    slots = int(model.start[-1])
    linear = len(model.capacity)
    costs = np.where(model.permitted != 0, model.unary, np.inf)
    values = np.empty(variables, dtype=np.int64)
    for v in range(variables):
        own = costs[model.start[v] : model.start[v + 1]]
        values[v] = model.safe[v] if model.safe[v] >= 0 else int(own.argmin())
        if start is not None and math.isfinite(own[start[v]]):
            values[v] = start[v]
    entries = (model.unary, found.soft.table, found.soft.key_values)
    spread = sum(float(np.ptp(e)) for e in entries if len(e))
    scale = spread if spread > 0 else 1.0
    hard, soft = len(found.hard.offset), len(found.soft.offset)
    state = State(
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
        run_best=values.copy(),
        counts=np.zeros(8, dtype=np.int64),
        totals=np.full(4, np.inf),
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
