"""Incumbents: feasible assignments found by tabu search with ejection.

An incumbent is an upper bound on the optimum, so rows that cannot beat it need not be stored. The search moves one
variable at a time to its cheapest value (Glover 1989). A variable with a conflict-free *safe* value gives way when a
constraint over it is violated (ejection, as in the tabu search by Vasquez and Hao 2001); other violated constraints
gain weight. See :mod:`oocbe.bounds.kernels.cpu.local_search`.

Results do not depend on the search's arithmetic: the problem evaluates each returned assignment.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from oocbe.bounds.incumbent_model import SearchModel, search_model
from oocbe.bounds.kernels.cpu.local_search import Settings, search
from oocbe.bounds.kernels.cpu.search_state import SearchState
from oocbe.errors import UnsupportedError
from oocbe.kernels.cpu.jit import INTERPRETED_STEPS, interpreted, is_ready
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

LONGEST_CHUNK = 2000
"""Maximum number of iterations of one compiled call."""

MOST_RELIEVED = 8
"""Maximum number of linear constraints for which every move's price includes the capacity that its ejections free."""


@dataclass(frozen=True)
class Incumbent:
    """A feasible assignment.

    Attributes
    ----------
    value : the problem's own evaluation of the assignment.
    assignment : one value index a variable.
    seconds : elapsed time to the assignment. iterations : total of the search.
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
    seconds : time limit, wall time, including set-up. A compiled call is never interrupted, and one call is made
        however long set-up took, unless the limit is 0.
    seed : of every random choice. With ``iterations`` and enough time, the result is a function of the seed.
    start : initial assignment; if it is feasible, the result is not worse.
    should_stop : polled regularly; True ends the search.
    target : stop at a value at least as good.
    iterations : limit on the iterations of the search; None: no limit.

    Returns
    -------
    Incumbent or None : None if no feasible assignment was found, which proves nothing.

    Raises
    ------
    UnsupportedError : the semiring does not add values and select one sum.
    ModelError : ``start`` is not an assignment of the problem.
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
    is_compiled = deadline is None  # without a limit the search waits: its result is a function of the seed
    while left > 0 and state.totals[1] + found.constant > goal:
        is_late = working_time() - begin >= seconds if call else seconds <= 0
        is_late = is_late or (call > 0 and deadline is not None and deadline.passed)
        if is_late or (should_stop is not None and should_stop()):
            break
        call_seed = np.random.SeedSequence((seed, call)).generate_state(1)[0]
        arguments = (found.model, found.soft, found.hard, state, settings, call_seed)
        is_compiled = is_compiled or is_ready(search, *arguments, 1, current_flag())
        steps = int(min(chunk if is_compiled else _interpreted_chunk(found), left))
        left -= steps
        if (search if is_compiled else _search_interpreted)(*arguments, steps, current_flag()):
            found_at = working_time()
        call += 1
    if not found_at:
        return best
    candidate = _evaluated(problem, tuple(state.best.tolist()), begin, int(state.counts[1]), found_at)
    if candidate is None or (best is not None and sign * best.value <= sign * candidate.value):
        return best
    return candidate


def first_incumbent(problem: Problem) -> Incumbent | None:
    """An assignment after a few moves of an interpreted search, which needs no compilation, or None."""
    begin, found = working_time(), search_model(problem)
    if found.is_infeasible or not problem.variables:
        return None
    state, settings = _initial_state(found, None)
    model, steps = (found.model, found.soft, found.hard), _interpreted_chunk(found)
    if not _search_interpreted(*model, state, settings, 0, steps, np.zeros(1, dtype=np.int64)):
        return None
    return _evaluated(problem, tuple(state.best.tolist()), begin, steps)


def _interpreted_chunk(found: SearchModel) -> int:
    """Iterations of an interpreted call: each looks at all slots."""
    return max(1, min(LONGEST_CHUNK, INTERPRETED_STEPS // int(found.model.start[-1])))


def _search_interpreted(*arguments: Any) -> bool:
    """The search while it is compiled: an answer within a time limit that the compilation would use up."""
    before = np.random.get_state()  # noqa: NPY002  (compiled loops have a generator of their own)
    try:
        return bool(interpreted(search)(*arguments))
    finally:
        np.random.set_state(before)  # noqa: NPY002


def _evaluated(
    problem: Problem, assignment: tuple[int, ...], begin: float, iterations: int, found_at: float | None = None
) -> Incumbent | None:
    value = problem.evaluate(assignment)
    if value is None:
        return None
    seconds = (found_at or working_time()) - begin
    return Incumbent(value, assignment, seconds, iterations, "tabu search with ejection")


def _initial_state(found: SearchModel, start: Sequence[int] | None) -> tuple[SearchState, Settings]:
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
        if start is not None and math.isfinite(own[start[v]]):
            values[v] = start[v]
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
