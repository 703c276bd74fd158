"""Local search for better elimination orders: changes a greedy heuristic's scores of a few variables at a time.

The cost of a greedy order varies widely: with other tie-breaking it may have a hundred times the rows, and restarts
sample this wide distribution again and again. But a greedy run can be controlled: each variable has a *factor* that
multiplies its score, so that it is eliminated earlier or later. Then one good order leads to better ones: change the
factors of a few variables, run the heuristic again, and keep the change if it does not increase the rows (hill climbing
in the space of factors; random restarts with noise on the scores, as in Kask, Gelfand, Otten and Dechter 2011, *Pushing
the power of stochastic greedy ordering schemes*, are only its first step). Runs end as soon as their separators exceed
the rows of the best one.
"""

from __future__ import annotations

from contextvars import Context, copy_context
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from oocbe.elimination.orders.separators import UNHURRIED, Hurry
from oocbe.kernels.cpu.threads import run_all, thread_count
from oocbe.model.settings.tuning import tuning

if TYPE_CHECKING:
    from oocbe.elimination.orders.primal_graph import PrimalGraph

SEEDS = 1 << 31
"""Exclusive upper limit of the seeds of single orders."""


class Chain:
    """Orders of one greedy criterion, each with no more work than the one before it.

    Parameters
    ----------
    graph : of the problem. criterion : one of the codes of :mod:`oocbe.kernels.cpu.orders.greedy_order`.
    probes : of each separator, if there are hard constraints to probe. seed : of the changes.
    cell_work : see :func:`oocbe.elimination.orders.order.search_orders`.

    Attributes
    ----------
    work : predicted for the last order, in rows; infinite before the first one. Without constraints, the assignments of
        all separators.
    """

    def __init__(
        self, graph: PrimalGraph, criterion: int, probes: int, seed: int, cell_work: float = float("inf")
    ) -> None:
        self._graph = graph
        self._criterion = criterion
        self._probes = probes
        self._cell_work = cell_work
        self._random = np.random.default_rng([seed, criterion])
        self._logarithms = tuning().order_first_spread * self._random.normal(size=len(graph.sizes))
        self.work = float("inf")

    def step(self, flags: Hurry = UNHURRIED) -> NDArray[np.int64] | None:
        """Try a change in each thread; returns the best order, or None if all have more work than before."""
        count = len(self._logarithms)
        trials = [self._logarithms]
        if self.work < float("inf"):
            trials = []
            for _ in range(thread_count()):
                chosen = self._random.random(count) < tuning().order_changed_share
                chosen[self._random.integers(0, count)] = True
                changes = np.zeros(count)
                changes[chosen] = tuning().order_spread * self._random.normal(size=np.count_nonzero(chosen))
                trials.append(self._logarithms + changes)
        seeds = self._random.integers(0, SEEDS, size=len(trials)).tolist()
        calls = [(np.exp(t), seed, flags, copy_context()) for t, seed in zip(trials, seeds, strict=True)]
        found = run_all(self._judged, calls)
        best = min(range(len(trials)), key=lambda trial: found[trial][0])
        work: float = found[best][0]
        order: NDArray[np.int64] = found[best][1]
        if work > self.work:
            return None
        self.work, self._logarithms = work, trials[best]
        return order

    def _judged(
        self, factors: NDArray[np.float64], seed: int, flags: Hurry, context: Context
    ) -> tuple[float, NDArray[np.int64]]:
        """:meth:`_judge` on a thread with the caller's deadline in its context."""
        return context.run(self._judge, factors, seed, flags)

    def _judge(self, factors: NDArray[np.float64], seed: int, flags: Hurry) -> tuple[float, NDArray[np.int64]]:
        """Work and order of a greedy run with these factors; more work than the last order's if it was abandoned."""
        graph = self._graph
        most = self.work if graph.is_complete else float("inf")
        order, work = graph.greedy_order(self._criterion, seed, most, factors, flags)
        if not graph.is_complete:
            work = graph.work(order, self._probes, seed, self.work, self._cell_work)
        return work, order
