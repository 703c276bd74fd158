"""One case with changing evidence, answered the cheaper way: with the tree's rows, or from the relevant factors alone.

A small tree is made at once. A large tree is made on request, or once it pays off: queries about one case are often
answered in far less time than its rows take (:mod:`oocbe.junction_trees.query_elimination`). With changing
evidence only affected messages are recomputed, and posteriors are computed on demand.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from oocbe.elimination.preparation.temperature import INEXACT, ROUNDED, check_rounding
from oocbe.junction_trees.batches import sweep_cases
from oocbe.junction_trees.compiled import CompiledTree, Program
from oocbe.junction_trees.evidence import CaseEvidence, Cases
from oocbe.junction_trees.explanations import best_assignment
from oocbe.junction_trees.kernels.cpu.sweeps import draw_rows
from oocbe.junction_trees.query_elimination.answer import (
    QueryAnswer,
    answer_cases,
    case_limit,
    elimination_seconds,
    making_seconds,
)
from oocbe.junction_trees.query_elimination.factors import written_out
from oocbe.junction_trees.stored.answers import StoredCalibration
from oocbe.junction_trees.stored.tree import StoredTree
from oocbe.junction_trees.sweeping import Messages, Shares, collect, distribute, evidence, prior, shares_of
from oocbe.junction_trees.weights import log_of
from oocbe.kernels.choice import cuda_works
from oocbe.model.problem import Problem
from oocbe.model.semiring import LOG_SUM_EXP
from oocbe.runtime.deadline import looked

_TRUSTED = np.ones(1, dtype=np.bool_)


class Calibration:
    """The messages for one case of a tree that :attr:`oocbe.junction_trees.compiled.CompiledTree.is_possible`."""

    def __init__(self, tree: CompiledTree) -> None:
        self._tree = tree
        self._inputs: dict[int, CaseEvidence] = {}
        self._shares: tuple[list[int], tuple[Shares, list[int], NDArray[np.int64]]] | None = None
        self._messages = prior(tree, tree.is_log).copied()
        self._changed: set[int] = set()  # variables
        self._logarithm: float | None = None

    def change(self, v: int, known: CaseEvidence | None) -> None:
        """Set the evidence of a variable; None: none."""
        if known is None:
            if self._inputs.pop(v, None) is None:
                return
        else:
            self._inputs[v] = known
        self._changed.add(v)
        self._logarithm = None

    @property
    def log_evidence(self) -> float:
        """Natural logarithm of the total weight of the assignments consistent with the evidence; -inf for none."""
        if self._logarithm is None:
            self._collect()
        assert self._logarithm is not None
        return self._logarithm

    def posteriors(self, targets: Sequence[int]) -> list[NDArray[np.float64]]:
        """Posteriors of some variables, float64 (domain size,) each; zeros if the evidence is impossible."""
        if self.log_evidence == -np.inf:
            return [np.zeros(self._tree.problem.sizes[v]) for v in targets]
        messages = replace(self._messages, values=self._messages.values.copy())  # which the sweep overwrites
        shares, ends, wanted = self._shares_of(list(targets))
        program = self._tree.shape.program(self._inputs, wanted)
        rows = np.empty_like(messages.values)
        distribute(self._tree, program, messages, rows, _TRUSTED)
        out = np.zeros((1, ends[-1]))
        shares.take(rows, out)
        values = out[0]
        return [values[first:last] for first, last in pairwise(ends)]

    def sample(self, count: int, seed: int) -> NDArray[np.int64]:
        """Value indices drawn from the posterior, int64 (count, variables); the evidence must be possible."""
        assert self.log_evidence > -np.inf
        program = self._tree.shape.program(self._inputs, (), rows_of=range(len(self._tree.shape.cliques)))
        return _draw(self._tree, program, self._messages, count, seed)

    def best(self) -> tuple[dict[int, int], float] | None:
        """The most probable values of all variables, and the logarithm of their weight; None: impossible evidence."""
        inputs = {v: known.likelihood for v, known in self._inputs.items()}
        return best_assignment(self._tree, inputs, range(len(self._tree.problem.variables)))

    def _shares_of(self, targets: list[int]) -> tuple[Shares, list[int], NDArray[np.int64]]:
        """Variables' shares, ends of their values, and as an array; cached, as successive cases ask the same."""
        if self._shares is None or self._shares[0] != targets:
            shares = shares_of(self._tree, targets)
            self._shares = targets, (shares, shares.out_start.tolist(), np.array(targets, dtype=np.int64))
        return self._shares[1]

    def _collect(self) -> None:
        """Update the messages, in logarithms where probabilities would lose precision."""
        changed = self._changed
        if self._messages.is_log != self._tree.is_log:  # an earlier case needed logarithms, and this one may not
            self._messages = prior(self._tree, self._tree.is_log).copied()
            changed = set(self._inputs)
        self._send(changed)
        logarithms, trusted = evidence(self._tree, self._messages)
        if not trusted[0]:
            self._messages = prior(self._tree, True).copied()
            self._send(set(self._inputs))
            logarithms, _ = evidence(self._tree, self._messages)
        self._changed = set()
        self._logarithm = float(logarithms[0]) + sum(known.logarithm for known in self._inputs.values())

    def _send(self, changed: set[int]) -> None:
        tree, messages = self._tree, self._messages
        start, rows, everything = tree.variable_starts, messages.values[:, 0], messages.everything
        for v in changed:
            known = self._inputs.get(v)
            if known is None:
                rows[start[v] : start[v + 1]] = everything
            else:
                rows[start[v] : start[v + 1]] = log_of(known.scaled) if messages.is_log else known.scaled
        stale = tree.shape.places.clique[list(changed)].tolist()
        collect(tree, tree.shape.program(self._inputs, (), stale=stale), messages)


def _draw(tree: CompiledTree, program: Program, messages: Messages, count: int, seed: int) -> NDArray[np.int64]:
    """Value indices drawn from the posterior, int64 (count, variables), independent of one another.

    It goes from the roots down, and draws a row of each clique given what was drawn above. The program distributes to
    all cliques. The messages are those of one case that is possible, as collecting leaves them.
    """
    random = np.random.default_rng(seed)
    arrays = tree.log_arrays if messages.is_log else tree.arrays
    cliques = tree.shape.cliques
    found = np.zeros((count, len(tree.problem.variables)), dtype=np.int64)
    above = {int(root): np.zeros(count, dtype=np.int64) for root in tree.roots}
    rows = np.empty(count, dtype=np.int64)
    for place, c in looked(enumerate(program.distributed.tolist())):
        edges = program.reads[program.read_start[place] : program.read_start[place + 1]]
        uniform = random.random(count)
        draw_rows(arrays, c, edges, messages.values[:, 0], messages.is_log, above.pop(c), uniform, rows)
        for v, values in zip(cliques[c].variables, tree.rows[c].values, strict=True):
            if v in cliques[c].own:
                found[:, v] = values[rows]
        for child in tree.shape.children[c]:
            above[child] = tree.rows[c].numbers[child][rows].astype(np.int64)
    return found


Answered = TypeVar("Answered")


class QueryEngine:
    """The evidence of a case, and its posteriors.

    problem : of weights. memory : limit in bytes.
    make : makes the tree, if it is not made. backend : ``cpu``, ``cuda`` or ``auto``. tree : if it is made.
    cost : see :func:`oocbe.junction_trees.query_elimination.answer.large_cost`, for a tree that is not.
    """

    def __init__(
        self,
        problem: Problem,
        memory: int,
        make: Callable[[], CompiledTree | StoredTree] | None,
        backend: str,
        tree: CompiledTree | StoredTree | None,
        cost: float = 0.0,
    ) -> None:
        self._problem, self._memory, self._backend = problem, memory, backend
        self._make, self._making = make, making_seconds(cost)
        self._tree = tree
        self.may_round = problem.semiring == LOG_SUM_EXP and problem.magnitude >= INEXACT
        self._calibration: Calibration | StoredCalibration | None = None
        self._known: dict[int, CaseEvidence] = {}
        self._certainties: dict[tuple[int, int], CaseEvidence] = {}  # cache of hard evidence
        self._passed: dict[int, CaseEvidence] = {}  # evidence already passed to the calibration
        self._spent = 0.0
        self._forget()

    def _forget(self) -> None:
        self._is_passed = False
        self._answer: QueryAnswer | None = None
        self._posteriors: dict[int, NDArray[np.float64]] = {}
        self._asked = 0

    @property
    def made(self) -> CompiledTree | StoredTree | None:
        """The tree, if it is made."""
        return self._tree

    @property
    def tree(self) -> CompiledTree | StoredTree:
        """The tree, made if necessary."""
        if self._tree is None:
            assert self._make is not None
            self._tree = self._make()
            self._make = None  # drops the closure: a reference cycle would keep a tree on disk alive
        return self._tree

    def observe(self, v: int, value: int) -> None:
        """Set a variable's value."""
        known = self._certainties.get((v, value))
        if known is None:
            likelihood = np.zeros(self._problem.sizes[v])
            likelihood[value] = 1.0
            known = self._certainties[v, value] = CaseEvidence(likelihood, likelihood, 0.0)
        if self._known.get(v) is not known:
            self._known[v] = known
            self._forget()

    def change(self, v: int, likelihood: NDArray[np.float64] | None) -> None:
        """Set the likelihood of a variable, float64 (domain size,), not all zero; None: no evidence."""
        before = self._known.get(v)
        if likelihood is None:
            if self._known.pop(v, None) is None:
                return
        elif before is not None and np.array_equal(before.likelihood, likelihood):
            return
        else:
            self._known[v] = CaseEvidence.of(likelihood)
        self._forget()

    def calibration(self) -> Calibration | StoredCalibration | None:
        """The tree's messages for the case; None if every assignment has weight 0 even without evidence."""
        tree = self.tree
        if not tree.is_possible:
            return None
        if isinstance(tree, StoredTree):
            if not self._is_calibrated:
                self._calibration, self._is_passed = StoredCalibration(tree, self._known), True
            return self._calibration
        if not isinstance(self._calibration, Calibration):
            self._calibration = Calibration(tree)
        if not self._is_calibrated:
            for v in self._passed.keys() | self._known.keys():
                if self._passed.get(v) is not self._known.get(v):
                    self._calibration.change(v, self._known.get(v))
            self._passed, self._is_passed = dict(self._known), True
        return self._calibration

    @property
    def log_evidence(self) -> float:
        """Natural logarithm of the total weight of the assignments consistent with the evidence; -inf for none."""
        if self._goes_alone(()):
            assert self._answer is not None
            return self._timed(lambda answer: answer.log_evidence(self._kernels))
        calibration = self.calibration()
        return -math.inf if calibration is None else calibration.log_evidence

    def posterior(self, v: int) -> NDArray[np.float64]:
        """Posterior of a variable, float64 (domain size,); zeros if the evidence is impossible."""
        if v not in self._posteriors:
            self.calibrate([v])
        return self._posteriors[v].copy()

    def calibrate(self, targets: Sequence[int]) -> None:
        """Compute the posteriors of some variables, for :meth:`posterior`."""
        missing = [v for v in targets if v not in self._posteriors]
        if not missing:
            return
        if self.may_round:
            check_rounding(self._problem, self.log_evidence)
        goes_alone = self._goes_alone(missing)
        if self._asked:  # A second query suggests that more follow: compute all remaining posteriors in one sweep.
            missing = [v for v in range(len(self._problem.variables)) if v not in self._posteriors]
        self._asked += 1
        if goes_alone:
            self._posteriors |= self._timed(lambda answer: answer.posteriors(missing, self._kernels))
        elif (calibration := self.calibration()) is None:
            self._posteriors |= {v: np.zeros(self._problem.sizes[v]) for v in missing}
        else:
            self._posteriors |= zip(missing, calibration.posteriors(missing), strict=True)

    def best(self) -> tuple[dict[int, int], float] | None:
        """The best value of each variable, and the logarithm of their weight; None if the evidence is impossible."""
        if self._is_cheaper(lambda answer: answer.best_seconds(self._memory)):
            found = self._timed(lambda answer: answer.best(self._kernels))
        else:
            calibration = self.calibration()
            found = None if calibration is None else calibration.best()
        if self.may_round and found is not None:
            check_rounding(self._problem, found[1], ROUNDED)
        return found

    def sweep(self, cases: Cases, targets: Sequence[int]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Posteriors of some variables, (cases, values of all of them), and logarithms of evidence, (cases,).

        The evidence of this engine's own case is ignored.

        Raises as :func:`oocbe.junction_trees.batches.sweep_cases`, and what making the tree raises.
        """
        if self._tree is None:
            found = self._one_by_one(cases, targets)
            if found is not None:
                return found
        return sweep_cases(self.tree, cases, targets, self._backend)

    def _one_by_one(
        self, cases: Cases, targets: Sequence[int]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
        """Answers without the tree; None if making it has an estimated cost that is no higher."""
        factors = written_out(self._problem)
        assert factors is not None
        begin = time.perf_counter()
        found = answer_cases(factors, cases, targets, self._making - self._spent, self._memory, self._kernels)
        self._spent += time.perf_counter() - begin
        return found

    def _goes_alone(self, asked: Sequence[int]) -> bool:
        return self._is_cheaper(
            lambda answer: 0.0 if not asked and answer.is_known else answer.seconds(asked, self._memory)
        )

    def _is_cheaper(self, seconds: Callable[[QueryAnswer], float]) -> bool:
        """Whether elimination of the case's factors, with these estimated seconds, costs less than the tree."""
        tree = self._tree
        if tree is None:
            limit = self._making - self._spent
        else:
            limit = 0.0 if self._is_calibrated else case_limit(tree)
            parts = len(self._problem.functions) + len(self._problem.constraints)
            if limit <= elimination_seconds(parts) or written_out(self._problem) is None:
                return False
        if self._answer is None:
            factors = written_out(self._problem)
            assert factors is not None
            self._answer = QueryAnswer(factors, {v: own.likelihood for v, own in self._known.items()})
        return seconds(self._answer) <= limit

    @property
    def _is_calibrated(self) -> bool:
        """Whether the tree's calibration has the evidence of this case."""
        return self._calibration is not None and self._is_passed

    @property
    def _kernels(self) -> str:
        if self._backend == "auto":
            return "cuda" if cuda_works(wanted=False) else "cpu"
        return self._backend

    def _timed(self, ask: Callable[[QueryAnswer], Answered]) -> Answered:
        """The result of a query; its time is added to the cost of not having a tree."""
        assert self._answer is not None
        begin = time.perf_counter()
        try:
            return ask(self._answer)
        finally:
            self._spent += time.perf_counter() - begin
