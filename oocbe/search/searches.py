"""Searches over partial assignments of one problem, and its portfolio of solvers.

Depth-first search (:mod:`oocbe.search.depth_search`) orders the variables anew in each node. Subproblems are solved for
the lower bound (:mod:`oocbe.search.subproblems`), neighbourhoods for the incumbent
(:mod:`oocbe.search.neighbourhoods`). :mod:`oocbe.search.subsolver` gives them time, beside bounds and elimination.

Problems with linear constraints over many variables get no subproblems.
Problems with unary costs are also searched over their linear program (:mod:`oocbe.search.program_tree`).
Packing problems are first given to linear programs, which bound them by cliques of conflicts, then to depth-first
search. If a packing problem is a graph of values, a search for stable sets replaces depth-first search and runs briefly
before everything else (:mod:`oocbe.search.stable_set_search`).
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING

from oocbe.elimination.buckets.resources import message_memory
from oocbe.elimination.engine.consumption import left_out
from oocbe.model.problem import Problem
from oocbe.model.settings.options import SolveOptions
from oocbe.runtime.deadline import Deadline
from oocbe.search.subsolver import FIRST_SECONDS, HEAD_START, Portfolio, SharedBounds, Statistics

if TYPE_CHECKING:
    from oocbe.bounds.relaxation import Relaxation
    from oocbe.bounds.row_reduction import Reduction
    from oocbe.bounds.row_tables import ScopeTables
    from oocbe.search.stable_set_search import ValueGraph

WORK_SHARE = 0.5
"""Share of the message memory available to the searches. No messages exist while they run, but the allocator may not
have returned freed memory."""

DEPTH_MEMORY = 0.25
"""Share of the searches' memory for the states of depth-first search; subproblems get half of it."""

SEARCHES = ("depth", "neighbourhoods", "subproblems", "tree")
"""Names of the searches in the portfolio, in the order of the summary."""


class Searches:
    """The searches over partial assignments of one min-sum problem.

    problem, options : the problem and its settings. known : updated. deadline : of the search.
    reduction : of the problem, if known.
    form : the problem in the forms of the searches. portfolio : of the searches; others may join it.
    """

    def __init__(
        self,
        problem: Problem,
        options: SolveOptions,
        known: SharedBounds,
        deadline: Deadline,
        reduction: Reduction | None = None,
    ) -> None:
        self._options, self._known = options, known
        self.form = RowProblem(problem, reduction)
        self.portfolio = Portfolio(known, deadline)
        self._is_open = options.bounds == "auto" and options.order == "auto"
        self._is_laid_out = self._is_small = False

    @property
    def seconds(self) -> float:
        """Time of all searches."""
        members = self.portfolio.members
        return sum(members[name].solver.seconds for name in SEARCHES if name in members)

    def load(self) -> None:
        """Lay out the tables and load the compiled loops, outside the measured time."""
        if not self._is_open:
            return
        if self.form.graph is not None:
            from oocbe.search import stable_set_search

            stable_set_search.load_loops()
        elif self.form.goes_first and self.form.is_laid_out:
            from oocbe.search import depth_search

            depth_search.load_loops()

    def open(self) -> None:
        """Run depth-first search briefly, at most until the requested gap. Raises TimeLimitError at the deadline."""
        if self._is_open and self.form.goes_first:
            self.lay_out()
            self.portfolio.run(lambda: self._known.is_near_enough, HEAD_START)

    def first(self, seconds: float) -> None:
        """Run each search for ``seconds`` before all other solvers. Raises TimeLimitError at the deadline."""
        if self._is_open and not self.waits_for_bounds:
            self.lay_out()
            self.portfolio.run(lambda: self._known.is_near_enough, seconds)

    def lay_out(self, relaxation: Relaxation | None = None) -> None:
        """Add the searches that apply to the problem to the portfolio; with a linear program, the one over it, too."""
        if self._is_open and not self._is_laid_out:
            self._is_laid_out = True
            self._add_searches()
        members = self.portfolio.members
        if not self._is_open or relaxation is None or "tree" in members:
            return
        if all(len(f.scope) <= 1 for f in self.form.problem.functions):  # which the program has in full
            from oocbe.search.program_tree import ProgramTree

            self.portfolio.add("tree", ProgramTree(self.form.problem, relaxation, self._known))
            if self.waits_for_bounds and "depth" in members:  # of packing problems its estimates recede as time passes
                members["depth"].terms = replace(members["depth"].terms, soon=1.0)

    def join_bounds(self) -> None:
        """Lay out the searches, or have them wait if the form of the problem makes the first bound better than theirs;
        they are then laid out after it."""
        form = self.form
        self._is_small = form.is_supply and not form.goes_first and form.has_few_pairs(self._known.upper_bound)
        if not self.waits_for_bounds:
            self.lay_out()
        elif "depth" in self.portfolio.members:
            member = self.portfolio.members["depth"]
            member.terms = replace(member.terms, waits_for="bounds")

    @property
    def waits_for_bounds(self) -> bool:
        """Whether the first bound comes before the searches."""
        from oocbe.bounds.forbidden import MOST_LITERALS

        has_program = sum(self.form.problem.sizes) <= MOST_LITERALS
        return (self.form.is_packing and has_program and not self._is_small) or self.form.graph is not None

    @property
    def first_seconds(self) -> float:
        """Virtual time, in seconds, of the searches before other solvers join; bounds that come first join at once."""
        # Of supply, a search ends where cuts stall, and elimination rarely does.
        has_search = bool(self.portfolio.members) and not self.waits_for_bounds
        return FIRST_SECONDS if self.form.is_supply or has_search else 0.0

    def _add_searches(self) -> None:
        known, options, add = self._known, self._options, self.portfolio.add
        if self.form.graph is not None:
            from oocbe.search.stable_set_search import StableSetSearch

            add("depth", StableSetSearch(self.form.graph, known))
            return
        reduction = self.form.reduction
        if reduction is None:
            return
        # An easy solve ends before these are needed.
        from oocbe.bounds.cliques import with_clique_variables
        from oocbe.search.depth_search import DepthSearch
        from oocbe.search.neighbourhoods import Neighbourhoods
        from oocbe.search.subproblems import SubproblemSearch

        memory = int(WORK_SHARE * message_memory(options))
        depth = DepthSearch(with_clique_variables(reduction), known, int(DEPTH_MEMORY * memory))
        add("depth", depth)
        add("neighbourhoods", Neighbourhoods(depth, known))
        if not self.form.is_packing and not reduction.tables.linear:
            add("subproblems", SubproblemSearch(reduction.tables, known, int(DEPTH_MEMORY / 2 * memory)))

    def report(self, statistics: Statistics) -> None:
        """Add the summary and the counts of the searches to ``statistics``."""
        for member in self.portfolio.members.values():
            member.solver.report(statistics)
        statistics.solvers = self.portfolio.shares
        statistics.bounds = "; ".join(filter(None, (self.summary, statistics.bounds)))

    @property
    def summary(self) -> str:
        """Summary of the searches; empty if none ran."""
        members = self.portfolio.members
        solvers = [members[name].solver for name in SEARCHES if name in members]
        return "; ".join(solver.summary for solver in solvers if solver.nodes)

    @property
    def expected(self) -> float:
        """Estimated total seconds of the depth-first search; infinite if it has none yet."""
        depth = self.portfolio.members.get("depth")
        return math.inf if depth is None else depth.solver.expected


DENSE = 0.15
"""Share of all pairs of choices in hard constraints from which a packing problem is searched like others, as each
choice forbids most of the rest. Photograph problems have at most an eighth."""


FEW_EXCLUDED = 1 << 10
"""Maximum number of forbidden pairs of a supply problem that is searched before its linear program. Pairs of dear
values do not count: a search closes what is left of warehouses of few near stores, where cuts stall."""

FEW_CONSTRAINTS = 1 << 12
"""Maximum number of hard constraints of a packing problem under capacities that is searched: the tables of 10,000 take
a second, in which linear programs and elimination prove photograph problems."""


class RowProblem:
    """A min-sum problem in the forms of the searches over rows; ``given``: its reduction, if known."""

    def __init__(self, problem: Problem, given: Reduction | None = None) -> None:
        self.problem, self._given = problem, given

    @property
    def is_laid_out(self) -> bool:
        """Whether the problem can be tabulated."""
        return (self._given or self._tables) is not None

    @cached_property
    def reduction(self) -> Reduction | None:
        """The reduction of the problem; None if the problem cannot be tabulated."""
        from oocbe.bounds.row_reduction import reduced

        return self._given or (None if self._tables is None else reduced(self._tables))

    @cached_property
    def _tables(self) -> ScopeTables | None:
        from oocbe.bounds.row_tables import ScopeTables

        # Under capacities a search ends where cuts stall and rows carry many sums, and elimination alone could not end
        # where it has to leave a constraint out.
        is_short = bool(self.problem.linear_constraints) and len(self.problem.constraints) <= FEW_CONSTRAINTS
        keeps_linear = not self.is_packing or is_short or bool(left_out(self.problem))
        return ScopeTables.of(self.problem, keeps_linear)

    @cached_property
    def graph(self) -> ValueGraph | None:
        """The problem as a graph of values; None if it has no such form."""
        from oocbe.bounds.row_tables import ScopeTables
        from oocbe.elimination.preparation.packing import is_packing
        from oocbe.search.stable_set_search import graph_of

        problem = self.problem
        if problem.linear_constraints and is_packing(problem):
            return graph_of(self._excluding, lambda: ScopeTables.of(self._excluding))
        return graph_of(problem, lambda: self._tables if self._given is None else self._given.tables)

    @property
    def goes_first(self) -> bool:
        """Whether depth-first search runs briefly before all else: for problems other than packing, and for packing
        with binary domains, such as set covers: it closes a hundred sets in a tenth of a second, and cuts take seconds.
        """
        if not self.is_packing or self.graph is not None:
            return True
        if self.is_supply:
            return sum(len(c.tuples) for c in self.problem.constraints) <= FEW_EXCLUDED
        return max(self.problem.sizes, default=0) <= 2

    def has_few_pairs(self, upper: int | float) -> bool:
        """Whether few pairs of values are forbidden that do not cost half of what is left below ``upper``, or more."""
        from oocbe.bounds.estimators import constant_source

        source = constant_source(self.problem)
        dear = {*source.fixed_values((source.root + upper) / 2)}
        rows = (zip(c.scope, row, strict=True) for c in self.problem.constraints for row in c.tuples.tolist())
        return sum(dear.isdisjoint(pairs) for pairs in rows) <= FEW_EXCLUDED

    @cached_property
    def is_packing(self) -> bool:
        """Whether linear programming bounds serve better than a search."""
        from oocbe.elimination.preparation.packing import is_packing

        if self.is_supply or not is_packing(self.problem) or _is_dense(self.problem):
            return self.is_supply
        # Knapsacks alone have no conflicts, whose cliques would improve their linear program.
        return any(len(c.scope) >= 2 for c in self._excluding.constraints) or not self.problem.linear_constraints

    @cached_property
    def _excluding(self) -> Problem:
        """The problem with the exclusions of its linear constraints."""
        from oocbe.elimination.preparation.packing import with_exclusions

        return with_exclusions(self.problem)

    @property
    def is_unary(self) -> bool:
        """Whether all costs are unary, below hard tables alone, as of Latin squares and jobs of one machine."""
        problem = self.problem
        is_hard = bool(problem.constraints) and not problem.linear_constraints
        return is_hard and all(len(f.scope) <= 1 for f in problem.functions)

    @cached_property
    def is_supply(self) -> bool:
        """Whether few pairs of values are forbidden, as by the choice of warehouses."""
        from oocbe.elimination.preparation.packing import is_supply

        return is_supply(self.problem)


def _is_dense(problem: Problem) -> bool:
    """Whether hard constraints connect each choice with many others, so that few are made in all.

    Of each variable, one value is none: long domains make pairs of variables many, of whose values few exclude others.
    """
    excluded: Counter[tuple[int, int]] = Counter()
    for c in problem.constraints:
        count = math.prod(problem.sizes[v] for v in c.scope) - len(c.tuples) if c.allowed else len(c.tuples)
        for pair in combinations(sorted(c.scope), 2):
            excluded[pair] += count
    choices = [size - 1 for size in problem.sizes]
    pairs = sum(min(count, choices[u] * choices[v]) for (u, v), count in excluded.items())
    return 2 * pairs >= DENSE * (sum(choices) ** 2 - sum(count**2 for count in choices))
