"""Branch and bound over a linear program that cuts have tightened, for problems with unary costs.

Below hard constraints alone, the program is exact where its point is integral. Cuts at the root close most of the gap,
and the last units take them very long: a few decisions close it sooner. The bounds of nodes are exact, as those of the
root: multipliers are rounded, and the bound is computed from them in integers. Reduced costs and conflicts remove
values at each node.

A node sets a literal to true, or to false. Branching is *strong* until a literal has been tried a few times: the
programs of both children are solved for some iterations, and the product of their gains is the literal's score; later
its average gains stand for them (reliability branching: Achterberg, Koch and Martin 2005, *Branching rules revisited*).
A child without assignments below the incumbent needs no node: the other one takes its parent's place.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from oocbe.bounds.relaxation import NEAR, NodeBound, Relaxation
from oocbe.elimination.preparation.listed_factors import starts_of
from oocbe.model.problem import Problem
from oocbe.runtime.compilation import working_time
from oocbe.runtime.deadline import Deadline
from oocbe.search.subsolver import SharedBounds, SubSolver

WHY = "branch and bound over the linear program"
"""Name of the method in reports."""

MOST_CANDIDATES = 40
"""Maximum number of literals that are compared at a node: those whose values are nearest to 1/2."""

MOST_TRIED = 8
"""Maximum number of literals of a node whose children are solved."""

TRIAL_ITERATIONS = 100
"""Iteration limit of the simplex method for the child of a tried literal."""

TRIAL_SECONDS = 1.0
"""Seconds of a node after which no further literal is tried."""

RELIABLE = 2
"""Number of trials from which a literal's average gains replace further ones."""

LEAST_GAIN = 1e-6
"""Gain of a child that gains nothing, in costs: the other child's gain still counts in the product."""

MOST_ROUNDS = 3
"""Maximum number of rounds of cuts at a node. In some programs no decision raises the optimum, and cuts do."""

SEPARATION_SECONDS = 0.05
"""Time limit of the search for local cuts in a round at a node, in seconds."""


class OpenNode(NamedTuple):
    """A node to be processed. removed : uint8 (literals,). bound : of its parent, exact."""

    removed: NDArray[np.uint8]
    bound: int | float


class ProgramTree(SubSolver):
    """Branch and bound over the linear program (``relaxation``) of a min-sum problem; ``known`` is updated."""

    def __init__(self, problem: Problem, relaxation: Relaxation, known: SharedBounds) -> None:
        super().__init__(known)
        self._problem, self._relaxation = problem, relaxation
        self._owner = np.repeat(np.arange(len(problem.sizes)), problem.sizes)
        self._first = starts_of(problem.sizes)
        self._open = [OpenNode(relaxation.removed, -math.inf)]
        self._gains, self._trials = np.zeros((2, len(self._owner))), np.zeros(len(self._owner), dtype=np.int64)

    @property
    def is_available(self) -> bool:
        """Whether there are open nodes, and the root's program has been solved: a large one takes many steps."""
        return super().is_available and self._relaxation.bound > -math.inf

    @property
    def cost(self) -> float:
        """Estimated seconds of the next node: the average."""
        return self.seconds / self.nodes if self.nodes else 0.0

    @property
    def summary(self) -> str:
        """Summary for the result."""
        return f"{WHY}: {self.nodes:,} nodes in {self.seconds:.3g} s"

    def _step(self, seconds: float, deadline: Deadline) -> None:
        """Process one node."""
        node = self._open[-1]
        self._open[-1:] = self._children(node, deadline)
        self.nodes += 1
        self._prove(min((node.bound for node in self._open), default=self._known.upper_bound), WHY)
        self.is_over = self._known.is_closed

    def _children(self, node: OpenNode, deadline: Deadline) -> list[OpenNode]:
        """The children of a node; none if no assignment at it has a value below the incumbent's."""
        known, removed, bound, rounds = self._known, node.removed, node.bound, 0
        while bound < known.upper_bound and self._counts(removed).all():
            found = self._solved(removed, deadline)
            if found.source is not None and found.point is not None:
                self._round(found.point, removed)
            if found.reaches(known.upper_bound):
                return []
            if found.source is not None:
                bound = max(bound, found.source.root)
                dear = [self._first[v] + value for v, value in found.source.fixed_values(known.upper_bound)]
                if fresh := [literal for literal in dear if not removed[literal]]:
                    removed = self._relaxation.without(removed, np.array(fresh))
                    continue
            if (self._counts(removed) == 1).all():
                self._evaluate(removed)
                return []
            is_cut = found.point is not None and rounds < MOST_ROUNDS
            if is_cut and self._relaxation.separate(working_time() + SEPARATION_SECONDS):
                rounds += 1
                continue
            parts = self._parts(removed, found, deadline)
            if len(parts) > 1:
                return [OpenNode(part, bound) for part in parts]
            removed = parts[0]
        return []

    def _counts(self, removed: NDArray[np.uint8]) -> NDArray[np.int64]:
        """Number of values left of each variable."""
        return np.add.reduceat(removed == 0, self._first[:-1], dtype=np.int64)

    def _solved(self, removed: NDArray[np.uint8], deadline: Deadline, *iterations: int) -> NodeBound:
        found = self._relaxation.node(removed, deadline.remaining, *iterations)
        deadline.check()
        return found

    def _round(self, point: NDArray[np.float64], removed: NDArray[np.uint8]) -> None:
        """Offer the assignment next to a point."""
        rounding = self._relaxation.rounding
        if rounding.round(point, removed) and rounding.assignment is not None and rounding.value is not None:
            self._known.offer(rounding.value, rounding.assignment, WHY)

    def _evaluate(self, removed: NDArray[np.uint8]) -> None:
        """Offer the only assignment that is left."""
        assignment = tuple((np.flatnonzero(removed == 0) - self._first[:-1]).tolist())
        if (value := self._problem.evaluate(assignment)) is not None:
            self._known.offer(value, assignment, WHY)

    def _parts(self, removed: NDArray[np.uint8], found: NodeBound, deadline: Deadline) -> list[NDArray[np.uint8]]:
        """Removed literals of the children of a node: without one literal, and without the others of its variable.

        Only one if a trial proves that the other has no assignment below the incumbent's value.
        """
        is_free = (removed == 0) & (self._counts(removed) > 1)[self._owner]
        point = np.zeros(len(removed)) if found.point is None else found.point
        near = np.flatnonzero(is_free & (point > NEAR) & (point < 1 - NEAR))
        near = near[np.argsort(np.abs(point[near] - 0.5), kind="stable")][:MOST_CANDIDATES]
        if not len(near):  # a constraint without rows, or a relaxation whose infeasibility could not be proven
            return self._split(removed, int(np.flatnonzero(is_free)[np.argmax(point[is_free])]))
        score = np.prod(np.maximum(self._gains, LEAST_GAIN), axis=0)
        untried = [literal for literal in near.tolist() if self._trials[literal] < RELIABLE]
        end = working_time() + TRIAL_SECONDS
        for literal in untried[:MOST_TRIED]:
            if working_time() > end:
                break
            gains, parts = np.zeros(2), self._split(removed, literal)
            for side, part in enumerate(parts):
                if not self._counts(part).all():
                    return parts[:side] + parts[side + 1 :]
                child = self._solved(part, deadline, TRIAL_ITERATIONS)
                if child.reaches(self._known.upper_bound):
                    return parts[:side] + parts[side + 1 :]
                gains[side] = min(child.estimate, float(self._known.upper_bound)) - found.estimate
            self._trials[literal] += 1
            self._gains[:, literal] += (gains - self._gains[:, literal]) / self._trials[literal]
            score[literal] = np.prod(np.maximum(gains, LEAST_GAIN))
        return self._split(removed, int(near[np.argmax(score[near])]))

    def _split(self, removed: NDArray[np.uint8], literal: int) -> list[NDArray[np.uint8]]:
        own = np.arange(*self._first[self._owner[literal] :][:2])
        return [self._relaxation.without(removed, part) for part in (np.array([literal]), own[own != literal])]
