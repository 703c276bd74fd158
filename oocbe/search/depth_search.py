"""Depth-first search for problems in which few nodes merge and good variable orders differ between nodes.

If hard constraints or dense costs leave no small separator, few nodes merge, and failing early matters. Each node
branches on the variable with the fewest values relative to the cost of its functions and to its number of conflicts
(Boussemart, Hemery, Lecoutre and Sais 2004, *Boosting systematic search by weighting constraints*), or on the variable
of the last conflict (Lecoutre, Sais, Tabary and Vidal 2009, *Reasoning from last conflict(s) in constraint
programming*). A variable with many values is branched on by halves of its domain (*domain splitting*): one bound prunes
a half, where single values would need a node each. Bounds of nodes are those of rows. Values that another value
dominates are removed at each node, as in :mod:`oocbe.bounds.row_reduction`.

Early decisions are the worst, and pure depth-first search is slow to revise them. So the search pauses after some path
ends, its open nodes enter a heap, and the node with the least bound is next, the deepest on ties (*hybrid best-first
search*: Allouche, de Givry, Katsirelos, Schiex and Zytnicki 2015, *Anytime hybrid best-first search with tree
decomposition for weighted CSP*). Path ends are counted, not nodes, as assignments are found at ends. The least bound of
all open nodes is a lower bound on the optimum.

A search that takes long solves the linear program of its root (:mod:`oocbe.search.root_program`), from whose costs all
nodes of the heap go on. Values that the reduced costs of another relaxation exclude below the incumbent leave the root,
and with it all nodes that go on from there (*reduced cost fixing*).

Any thread can search nodes of the heap: after a tenth of a second all threads do
(:mod:`oocbe.search.depth_tree`), in short rounds, and their current nodes count as open. A node is stored as its
decisions, which are valid below any root, so nodes created below one incumbent can be continued from the root of a
better one.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from oocbe.bounds.incumbent import find_incumbent
from oocbe.bounds.row_reduction import Reduction, reduced, with_joint_tables
from oocbe.bounds.row_tables import ScopeTables
from oocbe.elimination.row_pruning.row_bounds import BoundSource
from oocbe.errors import OocbeError, TimeLimitError
from oocbe.kernels.cpu.projection import REMOVED
from oocbe.kernels.cpu.threads import run_all, threads_at_hand
from oocbe.model.parts import Function, Variable
from oocbe.model.problem import Problem
from oocbe.model.settings.option_values import Gap
from oocbe.runtime.compilation import working_time
from oocbe.runtime.deadline import Deadline
from oocbe.search.depth_tree import (
    BESIDE_SECONDS,
    CALL_SECONDS,
    FIRST_NODES,
    Root,
    SearchTree,
    Shared,
    Worker,
    blank_node,
    first_bytes,
    laid_out,
)
from oocbe.search.kernels.cpu.depth_first import WEIGHT_BITS
from oocbe.search.kernels.cpu.node_state import SearchNode
from oocbe.search.subsolver import SharedBounds, SubSolver

if TYPE_CHECKING:
    from oocbe.search.root_program import RootProgram

LOOK_SECONDS, LOOK_ITERATIONS = 0.2, 5000
"""Limits (seconds, iterations) of the initial local search for an incumbent. A better one prunes more at the root."""

MANY_FUNCTIONS = 100
"""Number of functions beyond which the root gives an assignment. Smaller problems are searched in about its time."""

NARROWER = 0.5
"""Share of a problem's values that are left at the root below which it is reduced again."""

LEAST_NEARER = 0.05
"""Minimum share of the distance from the root's bound to the cutoff that joint functions have to close. Grids of pixels
gain less; their passes took longer, for as many nodes."""

LEAST_JOINED = 0.9
"""Share of a problem's functions that are left when others are joined, above which they are not joined."""

PROGRAM_SECONDS, PROGRAM_CELL_SECONDS, PROGRAM_COLUMN_SECONDS = 0.1, 2e-7, 3e-5
"""Least time of a search before the linear program of its root, and expected time, in seconds, to lay it out for each
cell of the tables, and to solve it for each column."""

PROGRAM_CELL_BYTES = 64
"""Working memory of a program for each cell of the tables, in bytes."""

MOST_PROGRAM_SECONDS, MOST_COLUMNS = 4.0, 1 << 16
"""Limits of a program: seconds, or as long as the search has taken, and columns. Larger ones seldom end in time."""

ALONE_SECONDS = 0.1
"""Seconds of single-threaded search before other threads join. Easy problems close earlier."""

ROUND_SECONDS = 0.05
"""Maximum duration of a multi-threaded round, in seconds. Between rounds all threads are idle, signals and limits are
checked, and results are reported."""


class DepthSearch(SubSolver):
    """Depth-first search of one reduced min-sum problem.

    reduction : the reduced problem and its postsolve. known : updated. memory : limit of the states, in bytes.
    shared : data of all threads; None before the root. While a call of ``work`` returns or raises, all are idle.
    """

    def __init__(self, reduction: Reduction, known: SharedBounds, memory: int) -> None:
        super().__init__(known)
        self._reduction, self._tables, self._memory = reduction, reduction.tables, memory
        self._begin_seconds = 0.0
        self._linear = laid_out(self._tables)
        self._blank: SearchNode | None = None
        self.shared: Shared | None = None
        self._workers: list[Worker] = []
        self._program: RootProgram | None = None
        self._program_after = math.inf
        self._source: BoundSource | None = None

    @property
    def nodes(self) -> int:  # type: ignore[override]
        """Nodes created so far by all threads."""
        return 0 if self.shared is None else self.shared.nodes

    @property
    def expected(self) -> float:
        """Estimated total seconds, assuming that sibling values have subtrees of equal size; infinite until the first
        subtree is closed."""
        behind = 0.0 if self.shared is None else self.shared.open.behind
        return (self.seconds - self._begin_seconds) / behind if behind > 0.0 else math.inf

    @property
    def summary(self) -> str:
        """Summary for the result."""
        by = f" by {len(self._workers)} threads" if len(self._workers) > 1 else ""
        return f"depth-first search: {self.nodes:,} nodes in {self.seconds:.3g} s{by}, over {self._reduction.summary}"

    def _step(self, seconds: float, deadline: Deadline) -> None:
        """Run one compiled call, the work between two calls, or one multi-threaded round."""
        known, shared = self._known, self.shared
        if known.is_closed:
            self.is_over = True
            return
        if shared is None:
            self._begin()
            return
        self.take_in()
        if shared.open.is_empty:
            known.raise_lower(known.upper_bound, "depth-first search")
            self.is_over = True
            return
        if self._program_after <= min(self.worked - self._begin_seconds, self.expected - self.seconds):
            begin = self.worked
            self._solve_program(deadline)
            self._begin_seconds = min(self.worked, self._begin_seconds + self.worked - begin)  # not a subtree's time
            return
        threads = self._threads()
        for worker in self._workers[threads:]:
            worker.put_back()
        if threads > 1:
            self._root_below()
            self.run_all(self._workers[:threads], max(min(seconds, ROUND_SECONDS), BESIDE_SECONDS), deadline)
            self._tell_least()
        elif self._workers[0].is_at_node:
            self._workers[0].search_on(CALL_SECONDS)
            self._tell()
        else:
            self._tell_least()
            self._root_below()
            self._workers[0].take()

    def _offer(self, reduction: Reduction, assignment: list[int], why: str) -> None:
        """Offer an assignment of a reduced problem, which may violate a constraint."""
        value = reduction.tables.evaluate(assignment)
        if value is not None:
            self._known.offer(value, reduction.complete(assignment), why)
            self.take_in()

    def take_in(self) -> None:
        """Take a better incumbent found elsewhere: its values are tried first."""
        known, shared = self._known, self.shared
        assert shared is not None
        if known.upper_bound < shared.upper:
            shared.upper = known.upper_bound
            if known.value == known.upper_bound and known.assignment is not None:
                shared.wanted[:] = self._reduction.restricted(known.assignment)

    def _threads(self) -> int:
        """Number of threads for the next round; missing workers are created."""
        shared, workers, blank = self.shared, self._workers, self._blank
        assert shared is not None and blank is not None
        if self.worked - self._begin_seconds < ALONE_SECONDS:
            return 1
        threads = threads_at_hand()
        while len(workers) < threads and shared.kept_bytes + first_bytes(blank) <= self._memory:
            workers.append(Worker(shared, len(workers), blank, workers[0].pace, workers[0].node.failures))
        return min(threads, len(workers))

    @property
    def pace(self) -> float:
        """Seconds per node."""
        return self._workers[0].pace

    def run_all(self, searches: Sequence[SearchTree], seconds: float, deadline: Deadline) -> None:
        """Run one thread for each search for ``seconds``, then report assignments."""
        shared = self.shared
        assert shared is not None
        shared.is_stopped = False
        until = working_time() + seconds
        try:
            run_all(lambda one: one.work(until, deadline), [(one,) for one in searches], self._stop)
        finally:
            self._tell()

    def _stop(self) -> None:
        """Make all threads return soon."""
        assert self.shared is not None
        self.shared.is_stopped = True

    def _tell(self) -> None:
        """Report the best new assignment, if any; no thread is running."""
        shared = self.shared
        assert shared is not None
        if shared.found is not None:
            (value, assignment), shared.found = shared.found, None
            self._known.offer(value, self._reduction.complete(assignment), "depth-first search")

    def _tell_least(self) -> None:
        """Report the least bound of all open nodes; no thread is running, and all assignments have been reported."""
        assert self.shared is not None
        least = self.shared.open.least
        if -math.inf < least < math.inf:
            self._prove(least, "depth-first search")

    def _begin(self) -> None:
        """Create the root, below an incumbent if one can be found."""
        known = self._known
        if known.value is None:
            try:
                found = find_incumbent(known.problem, LOOK_SECONDS, iterations=LOOK_ITERATIONS)
            except TimeLimitError:
                raise
            except OocbeError:
                found = None  # local search does not support every problem
            if found is not None:
                known.offer(found.value, found.assignment, found.method)
            else:
                self.seconds -= self.worked  # a head start is for a first dive, then
        root = self._root()
        if root.bound < root.need and len(root.network.function_start) > MANY_FUNCTIONS:
            self._offer(self._reduction, root.nearest(), "dual ascent")
            self._root_below()
        self._narrow()
        self._join()
        shared, blank = self.shared, self._blank
        assert shared is not None and blank is not None
        if first_bytes(blank) > self._memory:
            self.is_over = True
            return
        # Without an incumbent, decisions come first that determine other variables.
        weights = self._tables.influence if known.value is None else None
        self._workers = [Worker(shared, 0, blank, CALL_SECONDS / FIRST_NODES, weights)]
        self._begin_seconds = self.worked
        self._program_after = max(PROGRAM_SECONDS, PROGRAM_CELL_SECONDS * len(shared.root.network.tables))

    def _narrow(self) -> None:
        """Reduce the problem by the values that the root removed, while many are: functions and variables fall away."""
        while (shared := self.shared) is not None and shared.root.bound < shared.root.need:
            start = shared.root.network.value_start
            left = [np.flatnonzero(own) for own in np.split(shared.root.state[: start[-1]] != REMOVED, start[1:-1])]
            if sum(map(len, left)) >= NARROWER * sum(self._tables.problem.sizes):
                return
            begin, narrower = self.worked, reduced(self._tables, left)
            self.seconds -= self.worked - begin  # as the first reduction, it is not part of a head start
            self._begin_over(replace(narrower, before=self._reduction))

    def _join(self) -> None:
        """Join functions if that raises the root's bound."""
        plain, shared, before = self._reduction, self.shared, (self.shared, self._blank, self._linear)
        assert shared is not None
        joined = plain if shared.root.bound >= shared.root.need else with_joint_tables(plain)
        if joined is plain:
            return
        if self._begin_over(joined).distance > (1 - LEAST_NEARER) * shared.root.distance:
            self._reduction, self._tables = plain, plain.tables
            self.shared, self._blank, self._linear = before

    def _begin_over(self, reduction: Reduction, program: RootProgram | None = None) -> Root:
        """The root of another reduction of the problem, which takes the place of this one. program : of its root."""
        self.shared = self._blank = None  # a deadline may come: the next call begins anew
        self._program = program
        self._reduction, self._tables, self._linear = reduction, reduction.tables, laid_out(reduction.tables)
        return self._root()

    def _root_below(self) -> None:
        """Recompute the root below the incumbent if that is better, or if a relaxation excludes values of the root that
        are left; running nodes are unchanged."""
        known, shared = self._known, self.shared
        assert shared is not None
        root = shared.root
        is_narrower = known.source is not self._source and self._excluded(root)[root.state < REMOVED].any()
        if shared.open.least < shared.upper and (is_narrower or shared.upper < root.threshold):
            self._root()

    def _excluded(self, root: Root) -> NDArray[np.bool_]:
        """The values, in the order of a state, that the known relaxation excludes below a root's threshold."""
        excluded, source = np.zeros(len(root.state), dtype=np.bool_), self._known.source
        self._source = source
        if source is not None:
            is_left = [np.ones(size, dtype=np.bool_) for size in self._known.problem.sizes]
            for v, a in source.fixed_values(root.threshold):
                is_left[v][a] = False
            left = np.concatenate(self._reduction.left_of(is_left))
            excluded[: len(left)] = ~left
        return excluded

    def _solve_program(self, deadline: Deadline) -> None:
        """Solve the linear program of the root, with functions joined if many can be, and raise the root by it.

        It waits until the search has taken as long as it is expected to. Where functions are joined, or many values
        removed, the search begins anew.
        """
        plain, shared, spent = self._reduction, self.shared, self.worked - self._begin_seconds
        assert shared is not None
        joined = with_joint_tables(plain)
        reduction = joined if len(joined.tables.parts) <= LEAST_JOINED * len(plain.tables.parts) else plain
        self._program_after = math.inf
        if PROGRAM_CELL_BYTES * len(shared.root.network.tables) > self._memory:
            return
        try:
            from oocbe.search.root_program import RootProgram
        except ImportError:  # the search goes on without HiGHS
            return
        root = shared.root if reduction is plain else Root(reduction.tables, self._known.upper_bound)
        program = RootProgram(root, laid_out(reduction.tables))
        if program.columns > MOST_COLUMNS:
            return
        if spent < PROGRAM_COLUMN_SECONDS * program.columns:
            self._program_after = PROGRAM_COLUMN_SECONDS * program.columns
            return
        if not program.solve(root, min(max(MOST_PROGRAM_SECONDS, spent), deadline.remaining)):
            return
        self._offer(reduction, program.nearest.tolist(), "linear program")
        # Below the cutoff of now: of the distance of a poor incumbent an exact program gains a small share.
        bound, raised = shared.root.threshold - shared.root.distance, root.threshold - program.distance
        if raised - bound < LEAST_NEARER * (shared.upper - bound):
            return
        if reduction is plain:
            self._program = program
            self._root()
        else:
            self._begin_over(reduction, program)
        self._narrow()
        if self.shared is shared:
            for worker in self._workers:
                worker.put_back()
        else:
            self._keep_experience(shared)

    def _keep_experience(self, before: Shared) -> None:
        """Give the search of another reduction the incumbent, the node count and the weights of the last one."""
        shared, blank, first, known = self.shared, self._blank, self._workers[0], self._known
        assert shared is not None and blank is not None
        if known.assignment is not None:
            shared.wanted[:] = self._reduction.restricted(known.assignment)
        shared.nodes, failures, self._begin_seconds = before.nodes, first.node.failures, self.worked
        self._workers = [
            Worker(shared, 0, blank, first.pace, failures if len(failures) == len(shared.wanted) else None)
        ]

    def _root(self) -> Root:
        """A root ascent below the incumbent, to convergence of passes over all variables."""
        known = self._known
        root = Root(self._tables, known.upper_bound)
        root.state = np.where(self._excluded(root), REMOVED, root.state)
        if self._blank is None:
            self._blank = blank_node(root, self.weights())
        root.ascend(self._linear, self._blank)
        if self._program is not None and self._program.raise_root(root):
            root.ascend(self._linear, self._blank)
        if self.shared is None:
            self.shared = Shared(self._tables, self._linear, self._memory, known.upper_bound, root)
        self.shared.root = root
        self._prove(root.unscale(root.bound), "dual ascent")
        return root

    def weights(self) -> NDArray[np.int64]:
        """Branching weight of each function: its average cost, in fixed point."""
        most = max(float(self._known.upper_bound - self._tables.least), sys.float_info.min)
        above = self._tables.weights(most)[[len(part.scope) > 1 for part in self._tables.parts]]
        mean = (float(above.mean()) if len(above) else 0.0) or 1.0
        return np.rint(above * ((1 << WEIGHT_BITS) / mean)).astype(np.int64)


def load_loops() -> None:
    """Load or compile the loops, with a problem that the root does not close."""
    variables = tuple(Variable(name, 2) for name in "abc")
    differ = [Function.from_array(pair, [[1, 0], [0, 1]]) for pair in combinations(range(3), 2)]
    problem = Problem(variables, tuple(differ))
    tables = ScopeTables.of(problem)
    assert tables is not None
    known = SharedBounds(problem, Gap(), lambda *_: None)
    known.offer(3, (0, 0, 0), "any assignment")
    search = DepthSearch(Reduction(tables, (0, 1, 2), (), problem.sizes), known, 1 << 20)
    search.work(math.inf, Deadline())
