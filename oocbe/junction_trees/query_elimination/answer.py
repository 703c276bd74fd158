"""Answers for one case, or several one by one: plans for the targets, and their results."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from oocbe.junction_trees.costs import elimination_seconds
from oocbe.junction_trees.evidence import UNOBSERVED, Cases
from oocbe.junction_trees.query_elimination.complete_tree import UnderflowError
from oocbe.junction_trees.query_elimination.factors import WrittenFactors, factors_of_case, written_out
from oocbe.junction_trees.query_elimination.groups import CasePlan
from oocbe.model.problem import Problem
from oocbe.runtime.deadline import check_deadline


class QueryAnswer:
    """One case of a problem of weights: its factors, and known likelihoods by variable."""

    def __init__(self, factors: WrittenFactors, known: Mapping[int, NDArray[np.float64]]) -> None:
        self._sizes = factors.sizes
        self._case = factors_of_case(factors, known)
        self._plans: dict[frozenset[int], CasePlan] = {}
        self._logarithm = -math.inf if self._case is None else None

    @classmethod
    def of(cls, problem: Problem) -> QueryAnswer:
        """The case without evidence, of a problem whose factors can be made dense."""
        factors = written_out(problem)
        assert factors is not None
        return cls(factors, {})

    @property
    def is_known(self) -> bool:
        """Whether an earlier query has computed the probability of the evidence."""
        return self._logarithm is not None

    def seconds(self, asked: Collection[int], memory: int) -> float:
        """Estimated seconds of an answer; infinite if it exceeds the memory limit, in bytes."""
        return 0.0 if self._case is None else self._seconds(self._plan(asked, memory), memory)

    def best_seconds(self, memory: int) -> float:
        """Estimated seconds of :meth:`best`; infinite if it exceeds the memory limit, in bytes."""
        return 0.0 if self._whole is None else self._seconds(self._whole, memory)

    def _seconds(self, plan: CasePlan, memory: int) -> float:
        if plan.nbytes > memory:
            return math.inf
        assert self._case is not None
        return elimination_seconds(len(self._case.factors), plan.cost)

    def log_evidence(self, backend: str) -> float:
        """Natural logarithm of the sum of all weights, -inf for none; ``backend`` as for a tree."""
        if self._logarithm is None:
            self.posteriors((), backend)
        assert self._logarithm is not None
        return self._logarithm

    def posteriors(self, asked: Collection[int], backend: str) -> dict[int, NDArray[np.float64]]:
        """Posteriors of some variables, float64 (domain size,) each; zeros if every weight is 0."""
        found = {v: np.zeros(self._sizes[v]) for v in asked}
        if self._case is None or self._logarithm == -math.inf:
            return found
        plan = self._plan(asked)
        logarithm = self._case.logarithm
        counted = set()
        shares: dict[int, NDArray[np.float64]] = {}
        for group in plan.groups:
            tree = plan.tree(group)
            try:
                own, more = tree.answer(group.asked, backend)
            except UnderflowError:
                own, more = tree.answer(group.asked, "cpu", is_log=True)
            if own == -math.inf:
                self._logarithm = -math.inf
                return found
            shares |= more
            if group.is_evidence:
                logarithm += own
                counted |= plan.variables(group)
        logarithm += sum(math.log(len(self._case.kept[v])) for v in plan.free if v not in counted)
        if self._logarithm is None:
            self._logarithm = logarithm
        for v in asked:
            values = self._case.kept[v]
            found[v][values] = shares[v] if v in shares else 1.0 / len(values)
        return found

    def best(self, backend: str) -> tuple[dict[int, int], float] | None:
        """The best value of each variable, and the logarithm of their weight; None if every weight is 0."""
        if self._case is None or self._whole is None:
            return None
        values = {v: int(kept[0]) for v, kept in enumerate(self._case.kept)}
        logarithm = self._case.logarithm
        for group in self._whole.groups:
            found = self._whole.tree(group).best(backend)
            if found is None:
                return None
            values |= {v: int(self._case.kept[v][place]) for v, place in found[0].items()}
            logarithm += found[1]
        return values, logarithm

    def numbers(self, asked: Collection[int]) -> tuple[int, list[int], list[int]]:
        """Of the trees for the targets: the width, cells of all messages, and the eliminated variables, tree by tree,
        each listed at its first elimination."""
        if self._case is None:
            return 0, [], []
        plan = self._plan(asked)
        trees = [plan.tree(group) for group in plan.groups]
        width = max((len(clique.variables) - 1 for tree in trees for clique in tree.cliques), default=0)
        scopes = [clique.shared for tree in trees for clique in tree.cliques]
        cells = [math.prod(len(self._case.kept[v]) for v in scope) for scope in scopes]
        order = dict.fromkeys(v for group in plan.groups for v in group.order.order)
        rest = [v for v in range(len(self._sizes)) if v not in order]
        return width, cells, [*rest, *order]

    @cached_property
    def _whole(self) -> CasePlan | None:
        """The plan of a best assignment, which joins all factors; None if every weight is 0."""
        return None if self._case is None else CasePlan(self._case, (), is_whole=True)

    def _plan(self, asked: Collection[int], memory: float = math.inf) -> CasePlan:
        assert self._case is not None
        hidden = frozenset(v for v in asked if len(self._case.kept[v]) > 1)
        if hidden not in self._plans:
            self._plans[hidden] = CasePlan(self._case, hidden, memory=memory)
        return self._plans[hidden]


def answer_cases(
    factors: WrittenFactors, cases: Cases, targets: Sequence[int], most_seconds: float, memory: int, backend: str
) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """Posteriors of some variables, (cases, values of all of them), and logarithms of evidence, (cases,).

    None as soon as the estimated time of the remaining cases exceeds the rest of ``most_seconds``.

    memory : limit in bytes. backend : ``cpu``, or ``cuda`` for large cliques.
    Raises TimeLimitError: the deadline passed.
    """
    if len(cases) * elimination_seconds(len(factors.factors)) > most_seconds:
        return None  # before the first case
    sizes = factors.sizes
    ends = np.cumsum([0, *(sizes[v] for v in targets)])
    found = np.zeros((len(cases), int(ends[-1])))
    logarithms = np.full(len(cases), -np.inf)
    end = time.perf_counter() + most_seconds
    for number in range(len(cases)):
        check_deadline()
        known = known_of_case(sizes, cases, number)
        if known is None:
            continue
        answer = QueryAnswer(factors, known)
        left = len(cases) - number
        if left * answer.seconds(targets, memory) > end - time.perf_counter():
            return None
        own = answer.posteriors(targets, backend)
        logarithms[number] = answer.log_evidence(backend)
        for v, first, last in zip(targets, ends, ends[1:], strict=False):
            found[number, first:last] = own[v]
    return found, logarithms


def known_of_case(sizes: Sequence[int], cases: Cases, number: int) -> dict[int, NDArray[np.float64]] | None:
    """By variable, the likelihood of its values in a case; None if it makes all values impossible."""
    known = {}
    for v in np.flatnonzero(cases.observed[number] != UNOBSERVED).tolist():
        known[v] = np.eye(sizes[v])[cases.observed[number, v]]
    for v, given in cases.likelihoods.items():
        known[v] = known.get(v, 1.0) * given[number]
    return known if all(own.any() for own in known.values()) else None
