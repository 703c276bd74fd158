"""Lower bounds from subproblems: the minimum cost of some functions is part of the total cost.

If a problem is hard in one place, as with radio links close to one another, the functions over a few variables cost
nearly as much in every assignment as all functions do in an optimal one, and root bounds miss this. A search of the
whole proves it repeatedly, below each decision about unrelated variables. So *subproblems* are solved here: some
variables and the functions over these alone. The optimum of a subproblem plus the minima of all other functions is a
lower bound on the whole (de Givry, Verfaillie and Schiex 1997, *Bounding the optimum of constraint optimization
problems*, for CELAR's instances). Bounds of subproblems without a common function add up: their excess over the minima
is additive, as for disjoint cores in Max-SAT (Li, Manyà and Planes 2006, *Detecting disjoint inconsistent subformulas
for computing lower bounds for Max-SAT*).

Subproblems are grown greedily from many start variables: the variable whose functions with the chosen ones have the
greatest average cost is added next. Of the subproblems of one size, the third with the greatest excess is grown
further, until one is left, which grows as long as there is time (the reverse of Russian doll search: Verfaillie,
Lemaître and Schiex 1996). A second line starts from the remaining functions (:class:`NeighbourhoodGrowth`), as there
may be another hard place, and then a third. CELAR's scen06, of 100 variables, is proven in this way: 22 of its
variables cost 3,230, and 16 others 159.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from oocbe.bounds.row_reduction import reduced
from oocbe.bounds.row_tables import ScopeTables
from oocbe.model.problem import Problem
from oocbe.model.settings.option_values import Gap
from oocbe.runtime.compilation import working_time
from oocbe.runtime.deadline import Deadline, check_deadline
from oocbe.search.depth_search import DepthSearch
from oocbe.search.subsolver import SharedBounds, SubSolver

FIRST_BITS, MORE_BITS = 33.0, 11.0
"""Initial size of a subproblem and growth per step, in bits (log2 of the number of assignments): 6 variables of 44
values, and two more."""

MORE_PART = 1 / 16
"""Minimum growth per step relative to the size in bits: large easy subproblems are not worth many steps."""

MOST_KEPT = 200
"""Maximum number of stored subproblems. Beyond it, the best half of this number and those under search are kept."""

MOST_STARTS = 64
"""Number of start variables: those with the greatest average cost of their functions."""

KEPT = 3
"""One in this many subproblems of a size grows further."""

FIRST_SECONDS = 0.05
"""Time limit of the search of a first subproblem, in seconds. It doubles with each size while several remain."""

MOST_PAIRED = 6
"""Maximum arity of a function that ties its variables pairwise."""

MOST_LINES = 3
"""Maximum number of concurrent lines (:class:`NeighbourhoodGrowth`)."""

MOST_FIRST = 16
"""Number of subproblems tried as the first of a disjoint set; the others follow in the order of their excess."""

SLICE_SECONDS = 0.05
"""Time slice of a line, in seconds."""

ROUNDING = 2
"""Multiple of the rounding error of sums that is subtracted from a bound."""


@dataclass
class Subproblem:
    """Some variables and the functions over these alone.

    variables : in the order in which they were added. functions : numbers of the tables. least : sum of their minima.
    lower : proven bound on what the functions cost. seconds : time of the search. search : None once it has ended.
    known : bounds found by the search. upper : cutoff of the whole problem when the search began.
    """

    variables: tuple[int, ...]
    functions: frozenset[int]
    least: int | float
    lower: int | float
    seconds: float = 0.0
    search: DepthSearch | None = None
    known: SharedBounds | None = None
    upper: int | float = math.inf

    @property
    def excess(self) -> int | float:
        """Lower bound on the cost of its functions beyond their minima."""
        return max(self.lower - self.least, 0)


class NeighbourhoodGrowth:
    """A line of subproblems that grow from one another.

    taken : numbers of the functions of earlier lines.
    bits : current size. allowed : time limit of a search of that size, in seconds, while several remain.
    waiting, done : open subproblems of that size (taken from the end), and searched ones. seconds : time spent.
    ties : ties[variable][other] is the average cost of the functions not in ``taken`` over both.
    """

    def __init__(self, taken: frozenset[int]) -> None:
        self.taken = taken
        self.bits, self.allowed, self.seconds = FIRST_BITS, FIRST_SECONDS, 0.0
        self.waiting: list[Subproblem] = []
        self.done: list[Subproblem] = []
        self.ties: dict[int, dict[int, float]] = {}

    @property
    def only(self) -> Subproblem | None:
        """The last remaining subproblem, searched without a time limit; None while there are several."""
        return self.waiting[0] if len(self.waiting) == 1 and not self.done else None


class SubproblemSearch(SubSolver):
    """Bounds on a min-sum problem's optimum from its subproblems; ``memory``: bytes for the states of all searches."""

    def __init__(self, tables: ScopeTables, known: SharedBounds, memory: int) -> None:
        super().__init__(known)
        self._tables, self._memory = tables, memory
        self._over: list[list[int]] = []
        self._weights: list[float] = []
        self._lines: list[NeighbourhoodGrowth] = []
        self._tried: set[frozenset[int]] = set()
        self._finished: frozenset[int] = frozenset()
        self._all: list[Subproblem] = []
        self._widest = 0

    @property
    def summary(self) -> str:
        """Summary for the result."""
        return (
            f"subproblems: {len(self._all):,} of up to {self._widest:,} variables, "
            f"{self.nodes:,} nodes in {self.seconds:.3g} s"
        )

    def _step(self, seconds: float, deadline: Deadline) -> None:
        """Run one slice of a subproblem's search, or the work between two."""
        if not self._over:
            self._begin()
            return
        self._open_line()
        line = min(self._lines, key=lambda line: line.seconds, default=None)
        if line is None:
            self.is_over = True
        elif not line.waiting:
            self._next_size(line)
        else:
            begin = working_time()
            self._search(line, min(seconds, SLICE_SECONDS), deadline)
            line.seconds += working_time() - begin

    def _search(self, line: NeighbourhoodGrowth, seconds: float, deadline: Deadline) -> None:
        """Run one slice of the search of the next subproblem in a line."""
        one, is_only = line.waiting[-1], line.only is not None
        if one.search is None and not self._begins_search(one):
            line.done.append(line.waiting.pop())
            return
        assert one.search is not None
        assert one.known is not None
        search, before, lower = one.search, one.search.nodes, one.lower
        try:
            search.work(seconds if is_only else min(seconds, line.allowed - one.seconds), deadline)
        finally:
            one.seconds = search.seconds
            self.nodes += search.nodes - before
            if one.lower > lower:
                self._raise()
            if one.known.is_closed and one.known.value is None:
                # Together with the other costs it excludes all assignments of the whole below the cutoff.
                self._known.raise_lower(one.upper, f"subproblems of up to {self._widest} variables")
        if search.is_over or (one.seconds >= line.allowed and not is_only):
            one.search = one.known = None
            line.done.append(line.waiting.pop())

    def _begin(self) -> None:
        """Compute average costs of functions, and the functions over each variable."""
        tables = self._tables
        most = float(self._known.upper_bound - tables.least)
        if not 0.0 < most < math.inf or not tables.parts:
            self.is_over = True
            return
        self._weights = tables.weights(most).tolist()
        self._over = [[] for _ in tables.problem.sizes]
        for number, part in enumerate(tables.parts):
            for v in part.scope:
                self._over[v].append(number)

    def _open_line(self) -> None:
        """Start one more line with the remaining functions, once each existing line has a single subproblem."""
        if len(self._lines) >= MOST_LINES:
            return
        only = [line.only for line in self._lines]
        found = [one for one in only if one is not None and one.lower > one.least]
        taken = self._finished.union(*(one.functions for one in found))
        if len(found) < len(only) or taken in self._tried:
            return
        self._tried.add(taken)
        line = self._line(taken)
        line.seconds = min((other.seconds for other in self._lines), default=0.0)
        if line.waiting:
            self._lines.append(line)

    def _line(self, taken: frozenset[int]) -> NeighbourhoodGrowth:
        """A line with its first subproblems."""
        line, sizes = NeighbourhoodGrowth(taken), self._tables.problem.sizes
        totals = [0.0] * len(sizes)
        for number, part in enumerate(self._tables.parts):
            if number not in taken and 1 < len(part.scope) <= MOST_PAIRED:
                for v in part.scope:
                    totals[v] += (len(part.scope) - 1) * self._weights[number]
        starts = sorted((v for v in range(len(sizes)) if totals[v] > 0), key=lambda v: (-totals[v], v))
        line.waiting = self._grown(line, [(v,) for v in starts[:MOST_STARTS]])
        return line

    def _ties(self, line: NeighbourhoodGrowth, v: int) -> dict[int, float]:
        """Weights of the edges of a variable within a line."""
        check_deadline()
        found = line.ties.get(v)
        if found is None:
            found = line.ties[v] = {}
            for number in self._over[v]:
                scope = self._tables.parts[number].scope
                if number not in line.taken and len(scope) <= MOST_PAIRED:
                    for u in scope:
                        if u != v:
                            found[u] = found.get(u, 0.0) + self._weights[number]
        return found

    def _grown(self, line: NeighbourhoodGrowth, cores: Iterable[Sequence[int]]) -> list[Subproblem]:
        """Distinct subproblems of the current size, the first one at the end."""
        made: dict[frozenset[int], Subproblem] = {}
        for core in cores:
            variables = self._with_nearest(line, core)
            inside = frozenset(variables)
            if inside not in made:
                over = {f for v in variables for f in self._over[v]} - line.taken
                functions = frozenset(f for f in over if inside.issuperset(self._tables.parts[f].scope))
                costs = [self._tables.parts[f].least for f in sorted(functions)]
                least = sum(costs) if self._tables.is_integral else math.fsum(costs)
                made[inside] = Subproblem(tuple(variables), functions, least, least)
        return [*made.values()][::-1]

    def _with_nearest(self, line: NeighbourhoodGrowth, core: Sequence[int]) -> list[int]:
        """A core and its most strongly connected variables, one by one; at least one is added if there is any."""
        sizes = self._tables.problem.sizes
        chosen: dict[int, None] = {}
        near: dict[int, float] = {}
        bits, ahead = line.bits, list(core)
        while ahead or bits > 0.0 or len(chosen) == len(core):
            v = ahead.pop(0) if ahead else max(near, key=lambda v: (near[v], -v), default=-1)
            if v < 0:
                break
            chosen[v] = None
            near.pop(v, None)
            bits -= math.log2(sizes[v])
            for u, weight in self._ties(line, v).items():
                if u not in chosen:
                    near[u] = near.get(u, 0.0) + weight
        return [*chosen]

    def _begins_search(self, one: Subproblem) -> bool:
        """Create the search of a subproblem, below the cutoff of the whole less the costs of all other functions;
        returns whether the subproblem can be tabulated."""
        tables, known = self._tables, self._known
        variables = sorted(one.variables)
        number = {v: place for place, v in enumerate(variables)}
        parts = [tables.parts[f] for f in sorted(one.functions)]
        own = replace(
            tables,
            problem=Problem(tuple(tables.problem.variables[v] for v in variables), name=tables.problem.name),
            parts=tuple(replace(part, scope=tuple(number[v] for v in part.scope)) for part in parts),
            constant=0,
            linear=(),
        )
        others = [other.excess for other in self._beside(one, self._best)]
        self._all.append(one)
        self._widest = max(self._widest, len(variables))
        one.upper = known.upper_bound
        ceiling = one.upper - tables.least + one.least - sum(others)
        if not tables.is_integral:
            ceiling += 2 * ROUNDING * tables.rounding
        problem = replace(own.as_problem(), upper_bound=ceiling)
        written = ScopeTables.of(problem)
        if written is None:
            return False

        def report(lower: int | float | None, *_: object) -> None:
            if lower is not None:
                one.lower = max(one.lower, lower)

        one.known = SharedBounds(problem, Gap(), report)
        one.search = DepthSearch(reduced(written), one.known, self._memory // MOST_LINES)
        return True

    def _raise(self) -> None:
        """Report the joint bound of subproblems without a common function."""
        tables, best = self._tables, self._best
        margin = 0 if tables.is_integral else ROUNDING * tables.rounding
        bound = tables.least - margin
        for first in best[:MOST_FIRST]:
            parts = [tables.least, first.excess, *(one.excess for one in self._beside(first, best))]
            together = tables.grid.round_up(sum(parts)) if tables.is_integral else math.fsum(parts) - margin
            bound = max(bound, together)
        self._prove(bound, f"subproblems of up to {self._widest} variables")

    @property
    def _best(self) -> list[Subproblem]:
        """Subproblems with an excess, the largest first."""
        return sorted((one for one in self._all if one.excess > 0), key=lambda one: -one.excess)

    def _beside(self, first: Subproblem, best: Iterable[Subproblem]) -> list[Subproblem]:
        """Subproblems without a function in common with ``first`` and with each other, the best first."""
        taken, found = set(first.functions), []
        for one in best:
            if taken.isdisjoint(one.functions):
                taken |= one.functions
                found.append(one)
        return found

    def _next_size(self, line: NeighbourhoodGrowth) -> None:
        """Grow the best subproblems of a line; later lines that overlap with the last one are dropped."""
        count = len(self._tables.problem.sizes)
        best = sorted(line.done, key=lambda one: -one.excess)
        best = best[: max(1, len(best) // KEPT)]
        before = {frozenset(one.variables) for one in line.done}
        line.done, line.allowed = [], 2 * line.allowed
        line.bits += max(MORE_BITS, line.bits * MORE_PART)
        grown = [] if all(len(one.variables) == count for one in best) else [one.variables for one in best]
        line.waiting = [one for one in self._grown(line, grown) if frozenset(one.variables) not in before]
        if len(self._all) > MOST_KEPT:
            self._all = [*self._best[: MOST_KEPT // 2], *(one for one in self._all if one.search is not None)]
            self._all = list({id(one): one for one in self._all}.values())
        if not line.waiting:  # no connected variables are left
            self._lines.remove(line)
            self._finished |= best[0].functions if best else frozenset()
            return
        if line.only is not None:
            later = self._lines[self._lines.index(line) + 1 :]
            for other in later:
                if not all(line.only.functions.isdisjoint(one.functions) for one in (*other.waiting, *other.done)):
                    self._lines.remove(other)
