"""DPOP and ADPOP: UTIL messages up the pseudo-tree, VALUE messages down (Petcu and Faltings 2005; Petcu 2007).

Files of pyDcop use 10,000 or the like for forbidden assignments, which makes their tables dense without need. Where no
assignment without the largest cost can be as bad as one with it, forbidding that cost keeps the optimum, unless the
problem becomes infeasible; then the original problem is solved.

The simulated runtime is that of agents that work in parallel (Sultanik, Lass and Regli 2007). Each agent has a clock,
advanced by its measured work. A message carries the clock of its sender; the receiver's clock becomes the maximum of
both, and messages take no time. The simulated runtime is the last clock at the end, whatever the number of real
processors.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from oocbe.bounds.mini_buckets.mini_buckets import ULP
from oocbe.dcop.agents import AgentAnswer, InProcess, InProcesses, Utility, shares
from oocbe.dcop.pseudo_trees import PseudoTree, pseudo_tree
from oocbe.elimination.buckets.message import checked_tables
from oocbe.elimination.buckets.messages import MessageStore
from oocbe.elimination.buckets.resources import engine_for, memory_warning, message_memory
from oocbe.elimination.engine.consumption import is_tabulated
from oocbe.elimination.observer import check_observer
from oocbe.elimination.preparation.ranges import value_dtype
from oocbe.elimination.reformulation import reduce_arity
from oocbe.elimination.solution_check import check_solution
from oocbe.errors import RequestedEndError, TimeLimitError, UnsupportedError, UsageError
from oocbe.formats import Model, error_context, read_model
from oocbe.model.dcop import Dcop
from oocbe.model.parts import Constraint, Function
from oocbe.model.problem import Problem
from oocbe.model.results.dcop_result import DcopMetrics, DcopResult, UtilMessage
from oocbe.model.row_numbers import distinct_values
from oocbe.model.run_verb import run_verb
from oocbe.model.semiring import Combination, Marginalisation
from oocbe.model.settings.option_types import OwnValues
from oocbe.model.settings.option_values import parse_count, parse_integer
from oocbe.model.settings.options import SolveOptions
from oocbe.propagation.propagate import finite
from oocbe.runtime.deadline import Deadline, looked
from oocbe.runtime.interruption import listening
from oocbe.runtime.process_memory import peak_memory

if TYPE_CHECKING:
    from oocbe.elimination.observer import Observer


@dataclass
class RunState:
    """State of a run of agents; ``options`` to ``observer`` are arguments of :func:`run`."""

    dcop: Dcop
    options: SolveOptions
    z: int | None
    workers: int
    observer: Observer | None
    status: str = "limit"
    value: int | float | None = None
    bound: int | float | None = None
    assignment: tuple[int, ...] | None = None
    tree: PseudoTree | None = None
    messages: list[UtilMessage] = field(default_factory=list)
    util_seconds: list[float] = field(default_factory=list)
    value_seconds: list[float] = field(default_factory=list)
    value_messages: int = 0
    uses_device: bool = False
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(("tree", "util", "value", "total"), 0.0))
    notes: list[str] = field(default_factory=list)

    def result(self) -> DcopResult:
        """The result of the run so far."""
        dcop, tree = self.dcop, self.tree
        problem = dcop.problem
        owner_of = {v.name: owner for v, owner in zip(problem.variables, dcop.owner, strict=True)}
        metrics = DcopMetrics(
            agents=len(dcop.agents),
            variables=len(problem.variables),
            trees=0 if tree is None else len(tree.roots),
            heuristic="" if tree is None else tree.heuristic,
            width=0 if tree is None else tree.width,
            height=0 if tree is None else tree.height,
            util_messages=len(self.messages),
            value_messages=self.value_messages,
            messages_between_agents=sum(owner_of[m.sender] != owner_of[m.receiver] for m in self.messages),
            messages=tuple(self.messages),
            simulated_seconds=0.0
            if tree is None or not self.util_seconds
            else simulated_seconds(tree, dcop.owner, self.util_seconds, self.value_seconds),
            work_seconds=sum(self.util_seconds) + sum(self.value_seconds),
        )
        return DcopResult(
            problem=problem.name,
            semiring=problem.semiring.name,
            sense=problem.sense,
            variables=problem.variables,
            algorithm="dpop" if self.z is None else "adpop",
            z=self.z,
            status=self.status,
            value=self.value,
            bound=self.bound,
            assignment=self.assignment,
            metrics=metrics,
            dtype=value_dtype(problem, problem.semiring).name,
            backend="cuda" if self.uses_device else "cpu",
            workers=self.workers,
            seconds=dict(self.seconds),
            peak_memory_bytes=peak_memory(),
            notes=tuple(self.notes),
        )


def simulated_seconds(
    tree: PseudoTree, owner: Sequence[int], util_seconds: Sequence[float], value_seconds: Sequence[float]
) -> float:
    """The clock of the last agent at the end.

    owner : agent of each variable; an agent handles its variables one after the other, in the order of messages.
    util_seconds, value_seconds : work for each variable in the phases of UTIL and VALUE messages.
    """
    clocks: dict[int, float] = {}
    missing = [len(children) for children in tree.children]
    arrived = [0.0] * len(missing)
    # The earliest ready task begins first; UTIL before VALUE, then by the variable.
    waiting = [(0.0, 0, v) for v, count in enumerate(missing) if count == 0]
    heapq.heapify(waiting)
    while waiting:
        begin, phase, v = heapq.heappop(waiting)
        clock = clocks.get(owner[v], 0.0)
        if clock > begin:  # its agent is busy with another variable
            heapq.heappush(waiting, (clock, phase, v))
            continue
        end = begin + (value_seconds if phase else util_seconds)[v]
        clocks[owner[v]] = end
        parent = tree.parent[v]
        if phase:
            for child in tree.children[v]:
                heapq.heappush(waiting, (end, 1, child))
        elif parent is None:
            heapq.heappush(waiting, (end, 1, v))
        else:
            arrived[parent] = max(arrived[parent], end)
            missing[parent] -= 1
            if missing[parent] == 0:
                heapq.heappush(waiting, (arrived[parent], 0, parent))
    return max(clocks.values(), default=0.0)


def read_dcop(path: str | Path, format: str | None = None) -> Dcop:
    """The problem in a file with its agents; in a format without agents, one for each variable.

    Parameters and errors as for :func:`oocbe.read`.
    """
    return as_dcop(read_model(path, format), path)


def as_dcop(model: Model, path: str | Path) -> Dcop:
    """A model read from a path, as a DCOP; one agent for each variable where it has none."""
    if isinstance(model, Dcop):
        return model
    with error_context(path):
        return Dcop.of(finite(model))


def dpop(
    dcop: Dcop | Problem | str | Path,
    options: SolveOptions | None = None,
    *,
    tree: PseudoTree | None = None,
    workers: int = 0,
    observer: Observer | None = None,
    **overrides: Unpack[OwnValues],
) -> DcopResult:
    """Solve a distributed problem exactly by DPOP (Petcu and Faltings 2005; Fioretto et al. 2018, section 4.1).

    Parameters
    ----------
    dcop : the problem, or a path; without agents each variable has one.
    options, overrides : ``memory``, ``max_disk``, ``workdir`` (parent of a scratch folder), ``chunk_rows``, ``tables``,
        ``backend``, ``device_memory``, ``streams``, ``piece_rows`` and ``time_limit``, as for :func:`oocbe.solve`.
    tree : from :func:`oocbe.dcop.pseudo_tree` for this problem; None: of the heuristic ``auto``.
    workers : processes for the agents; 0: all agents work in this process.
    observer : receives each UTIL message as a bucket.

    Returns
    -------
    DcopResult : status, value, assignment, and the resources used.

    Raises
    ------
    UsageError : an option that makes no sense, or another problem's tree. UnsupportedError : values that are not added
        and minimised or maximised; a large linear constraint. ResourceError : memory or disk ran out.
    ValueRangeError : sums that could leave 64-bit integers. FormatError : the file.
    Interrupted : Ctrl-C; its ``result`` is the partial result.
    """
    return _verb(dcop, None, options, overrides, tree, parse_integer("workers", workers), observer)


def adpop(
    dcop: Dcop | Problem | str | Path,
    z: int,
    options: SolveOptions | None = None,
    *,
    tree: PseudoTree | None = None,
    workers: int = 0,
    observer: Observer | None = None,
    **overrides: Unpack[OwnValues],
) -> DcopResult:
    """Bound a distributed problem's optimum by ADPOP (Petcu and Faltings 2005b; Fioretto et al. 2018, section 4.2).

    Agents divide their buckets into mini-buckets of at most ``z`` variables, their own included, and send all resulting
    tables as one message. The bound is exact where no bucket is divided; the assignment is found greedily.
    Parameters and errors as for :func:`dpop`.
    """
    return _verb(dcop, parse_count("z", z), options, overrides, tree, parse_integer("workers", workers), observer)


def _verb(
    dcop: Dcop | Problem | str | Path,
    z: int | None,
    options: SolveOptions | None,
    overrides: OwnValues,
    tree: PseudoTree | None,
    workers: int,
    observer: Observer | None,
) -> DcopResult:
    check_observer(observer)
    settings = (SolveOptions.from_environment() if options is None else options).with_overrides(**overrides)

    def read(given: Dcop | Problem | str | Path) -> Dcop:
        loaded = read_dcop(given) if isinstance(given, str | Path) else given
        return loaded if isinstance(loaded, Dcop) else Dcop.of(loaded)

    def work(loaded: Dcop) -> DcopResult:
        return run(loaded, settings, z, tree, workers, observer)

    return run_verb(dcop, read, work, settings.time_limit, settings.memory_limit)


def run(
    dcop: Dcop,
    options: SolveOptions,
    z: int | None,
    tree: PseudoTree | None = None,
    workers: int = 0,
    observer: Observer | None = None,
    heuristic: str = "auto",
    root: int | str | None = None,
) -> DcopResult:
    """DPOP, or ADPOP with a z; arguments and errors as for :func:`dpop`, ``heuristic`` and ``root`` as for pseudo_tree.

    A time limit or signal is no error: the result is then partial.
    """
    begin = time.perf_counter()
    _check(dcop, options, tree)
    dcop = replace(dcop, problem=reduce_arity(dcop.problem))
    progress = RunState(dcop, options, z, workers, observer)
    with listening() as interruption, Deadline(options.time_limit) as deadline:
        try:
            progress.tree = pseudo_tree(dcop, heuristic, root) if tree is None else tree
            progress.seconds["tree"] = time.perf_counter() - begin
            _solve(progress, deadline)
        except TimeLimitError as error:
            if isinstance(error, RequestedEndError) and not interruption.caused(error):
                raise
            progress.status = "interrupted" if isinstance(error, RequestedEndError) else "limit"
            progress.notes.append(str(error))
        except BaseException as error:
            if not interruption.caused(error):
                raise
            progress.status = "interrupted"
            progress.notes.append(interruption.reason)
    progress.seconds["total"] = time.perf_counter() - begin
    progress.notes += filter(None, [memory_warning(options)])
    return progress.result()


def _check(dcop: Dcop, options: SolveOptions, tree: PseudoTree | None) -> None:
    problem = dcop.problem
    for name in ("ub", "resume", "semiring"):
        if getattr(options, name):
            raise UsageError(f"{name}: agents have no use for it; oocbe.solve has")
    if tree is not None and len(tree.parent) != len(problem.variables):
        raise UsageError(f"the pseudo-tree has {len(tree.parent)} variables, {problem.name} {len(problem.variables)}")
    if problem.semiring.combination is not Combination.ADD or not problem.semiring.selects:
        raise UnsupportedError(
            f"{problem.name}: agents minimise or maximise a sum, and its semiring is {problem.semiring.name}; "
            "oocbe solve has tasks for it"
        )
    for linear in problem.linear_constraints:
        if linear.can_bind and linear.scope and not is_tabulated(problem, linear):
            raise UnsupportedError(
                f"{problem.name}: {linear.name} over {len(linear.scope)} variables is too large to be an agent's "
                "table; oocbe solve carries it in the rows"
            )


def _solve(progress: RunState, deadline: Deadline) -> None:
    problem = progress.dcop.problem
    found = forbidding(problem)
    if found is not None:
        forbidden, cost = found
        if _attempt(progress, forbidden, deadline):
            progress.notes.append(f"values of {cost} were taken as forbidden: no assignment without them is as bad")
            return
        progress.notes.append(f"no assignment does without values of {cost}")
    if not _attempt(progress, problem, deadline):
        progress.status = "infeasible"


def _attempt(progress: RunState, problem: Problem, deadline: Deadline) -> bool:
    constant = _own_constant(problem)
    if constant is None:
        return False
    tree, owner, count = progress.tree, progress.dcop.owner, len(problem.variables)
    assert tree is not None
    progress.messages, progress.value_messages = [], 0  # without those of an earlier attempt
    progress.util_seconds, progress.value_seconds = [0.0] * count, [0.0] * count
    small = [c for c in problem.linear_constraints if is_tabulated(problem, c)]
    part = replace(problem, linear_constraints=tuple(small))
    dtype = value_dtype(problem, problem.semiring)
    # An agent has its own values only; the range check for the infeasible value needs those of all agents.
    tables = checked_tables(problem, problem.semiring, dtype, progress.options.tables)
    options = replace(progress.options, tables=tables)
    own = shares(part, tree, dtype, progress.z)
    if progress.workers:
        with closing(InProcesses(own, owner, progress.workers, options, deadline)) as hosts:
            return _Protocol(progress, problem, tree, hosts, dtype.itemsize).run(constant)
    engine = engine_for(options, deadline)
    progress.uses_device = engine.uses_device
    settings = (message_memory(options), options.workdir, options.chunk_rows)
    with MessageStore(*settings, max_disk=options.max_disk) as store:
        here = InProcess(own, options, store, engine)
        return _Protocol(progress, problem, tree, here, dtype.itemsize).run(constant)


def _own_constant(problem: Problem) -> int | float | None:
    """Sum of the constant and the parts without variables; None where they forbid everything."""
    total: int | float = problem.constant
    for f in problem.functions:
        if not f.scope:
            value = f.value_at(())
            if value is None:
                return None
            total = total + value
    lone = [c for c in problem.constraints if not c.scope]
    impossible = [c for c in problem.linear_constraints if c.is_impossible]
    return None if impossible or not all(c.permits(()) for c in lone) else total


@dataclass
class _Protocol:
    """The messages of one attempt; ``itemsize`` : bytes of a value."""

    progress: RunState
    problem: Problem
    tree: PseudoTree
    hosts: InProcess | InProcesses
    itemsize: int

    def run(self, constant: int | float) -> bool:
        """Run both phases and record their results; returns the feasibility."""
        progress, problem = self.progress, self.problem
        begin = time.perf_counter()
        roots = self._utilities()
        middle = time.perf_counter()
        progress.seconds["util"] += middle - begin
        if any(r.is_infeasible for r in roots):
            return False
        is_divided = any(r.is_divided for r in roots)
        total = sum((r.constant for r in roots), constant)
        error: int | float = 0  # of integers: they are exact, and no float64 holds all of them
        if isinstance(total, float):
            magnitude = abs(constant) + sum(r.magnitude for r in roots)
            error = sum(r.error for r in roots) + len(roots) * ULP * magnitude
        is_max = problem.semiring.marginalisation is Marginalisation.MAX
        if problem.upper_bound is not None and not is_max and total - error >= problem.upper_bound:
            return False
        if is_divided:
            progress.bound = total + error if is_max else total - error
        values = self._values()
        progress.seconds["value"] += time.perf_counter() - middle
        found = None if values is None else progress.dcop.problem.below(None).evaluate(values)
        if values is not None and not is_divided:
            check_solution(problem.below(None), total, values, "agents")
        if found is not None and values is not None and progress.dcop.problem.evaluate(values) is None:
            found = None
            if not is_divided:
                return False
        if found is not None:
            progress.assignment, progress.value = values, found
        if not is_divided:
            progress.bound = progress.value
        progress.status = "optimal" if progress.value == progress.bound else "bounded"
        return True

    def _utilities(self) -> list[Utility]:
        """The UTIL phase; returns the messages of the roots."""
        tree, count = self.tree, len(self.tree.parent)
        received: list[list[Utility]] = [[] for _ in range(count)]
        missing = [len(children) for children in tree.children]
        roots: list[Utility] = []
        for v in range(count):
            if not missing[v]:
                self.hosts.submit(v, [])
        for number in range(count):
            answer = self.hosts.collect()
            sent, v = answer.content, answer.variable
            assert isinstance(sent, Utility)
            self.progress.util_seconds[v] = answer.seconds
            if (observer := self.progress.observer) is not None:
                name = self.problem.variables[v].name
                observer.bucket_done(number + 1, count, name, sent.rows, sent.nbytes)
            parent = tree.parent[v]
            if parent is None:
                roots.append(sent)
                continue
            self.progress.messages.append(self._noted(answer, sent, parent))
            received[parent].append(sent)
            missing[parent] -= 1
            if not missing[parent]:
                self.hosts.submit(parent, received[parent])
                received[parent] = []  # passed on to the agent
        return roots

    def _noted(self, answer: AgentAnswer, sent: Utility, parent: int) -> UtilMessage:
        names = [v.name for v in self.problem.variables]
        return UtilMessage(
            sender=names[answer.variable],
            receiver=names[parent],
            separator=tuple(names[u] for u in self.tree.separators[answer.variable]),
            cells=sent.cells,
            complete_bytes=sent.cells * self.itemsize,
            tables=len(sent.tables),
            rows=sent.rows,
            stored_bytes=sent.nbytes,
            seconds=answer.seconds,
        )

    def _values(self) -> tuple[int, ...] | None:
        """The VALUE phase: an assignment; None where an agent had no value to choose from, as ADPOP's may."""
        tree, variables = self.tree, self.problem.variables
        chosen = [0] * len(variables)
        is_dead_end = False
        for root in tree.roots:
            self.hosts.submit(root, {})
        for _ in range(len(variables)):
            answer = self.hosts.collect()
            v, value = answer.variable, answer.content
            assert not isinstance(value, Utility)
            self.progress.value_seconds[v] = answer.seconds
            is_dead_end |= value is None
            chosen[v] = value or 0
            for child in tree.children[v]:
                self.hosts.submit(child, {variables[u].name: chosen[u] for u in tree.separators[child]})
                self.progress.value_messages += 1
        return None if is_dead_end else tuple(chosen)


CLEAR = 10
"""Least ratio of a cost that stands for infinity to all other costs; smaller ones are ordinary costs."""

MARGIN = 1e-9
"""Least relative difference between sums of floats, far above their rounding errors."""


def forbidding(problem: Problem) -> tuple[Problem, int | float] | None:
    """The problem with its largest cost (or least utility) forbidden, and that value; None for an ordinary cost.

    For problems whose values are added and minimised or maximised. The optimum is kept while the result is feasible.
    """
    sign = -1 if problem.semiring.marginalisation is Marginalisation.MAX else 1
    listed = [_values(f, sign) for f in looked(problem.functions)]
    largest = max((max(values) for values in listed if values), default=0)
    if not any(listed) or largest <= 0:
        return None
    soft = [[value for value in values if value < largest] for values in listed]
    if any(values and not others for values, others in zip(listed, soft, strict=True)):
        return None
    if largest < CLEAR * max(abs(value) for values in soft for value in values):
        return None
    least = [min(values, default=0) for values in soft]
    most = [max(values, default=0) for values in soft]
    with_one = largest + sum(least) - max(low for low, values in zip(least, listed, strict=True) if largest in values)
    margin = 0 if problem.is_integral else MARGIN * (abs(largest) + sum(map(abs, least)) + sum(map(abs, most)))
    if with_one <= sum(most) + margin:
        return None
    functions: list[Function] = []
    constraints: list[Constraint] = []
    for f in looked(problem.functions):
        found, more = _without(f, sign, largest)
        functions.append(found)
        constraints += more
    forbidden = replace(problem, functions=tuple(functions), constraints=(*problem.constraints, *constraints))
    return forbidden, sign * largest


def _values(f: Function, sign: int) -> list[int | float]:
    """Least, largest and second largest value, as costs."""
    distinct = distinct_values(f.values)
    found: list[int | float] = [sign * value.item() for value in (*distinct[:2], *distinct[-2:])]
    return found if f.default is None else [*found, sign * f.default]


def _without(f: Function, sign: int, largest: float) -> tuple[Function, Sequence[Constraint]]:
    """The function without rows of the largest cost, and a constraint that forbids them where it has a default."""
    is_hard = f.values == sign * largest
    kept = replace(f, tuples=f.tuples[~is_hard], values=f.values[~is_hard])
    if f.default is None:
        return kept, ()
    if sign * f.default == largest:
        return replace(kept, default=None), ()
    return kept, (Constraint(f.scope, f.tuples[is_hard]),) if is_hard.any() else ()
