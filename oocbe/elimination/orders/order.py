"""Elimination orders: greedy heuristics that are improved, judged by predicted rows, or read from a file.

What an order costs is the rows of its messages under the hard constraints, not its width: two orders of equal width
differ by more than ten times in rows, and a wider one may have fewer. So each candidate's separators are probed
(:mod:`oocbe.kernels.cpu.orders.estimate`), and the order with the fewest predicted rows in all wins, or, where joined
cells of complete tables are cheap, the one whose buckets cost least in the cheaper form of each. Greedy orders are
improved (:mod:`oocbe.elimination.orders.order_improvement`), others found again from other random numbers, until the
time limit, or until the search has taken as long as elimination with the best order found would: a better one could
then save less than was spent already. Every heuristic is tried once even when the limit is zero.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.elimination.orders.order_choice import OrderChoice
from oocbe.elimination.orders.order_file import read_order
from oocbe.elimination.orders.order_improvement import Chain
from oocbe.elimination.orders.pace import MANY_ROWS_A_SECOND, ROWS_A_SECOND
from oocbe.elimination.orders.row_limits import hidden_supports, leaves_few, row_limits
from oocbe.elimination.preparation.prepare import scopes_of
from oocbe.elimination.preparation.zeros import without_zeros
from oocbe.errors import ResourceError, UnsupportedError
from oocbe.kernels.cpu.orders import greedy_order as greedy
from oocbe.kernels.cpu.orders.estimate import estimate_rows
from oocbe.model.problem import Constraint, Function, Problem
from oocbe.settings.machine import available_memory
from oocbe.system.deadline import Deadline, current_flag, look
from oocbe.tables.table import format_bytes
from oocbe.tracing.recorder import ELIMINATION, spanning

SEARCH_PROBES = 16
"""Probes a separator while searching: enough to tell orders apart whose rows differ by half."""

FINAL_PROBES = 64
"""Probes for the plan's predictions, and to judge the best candidates once more."""

FINALISTS = 4
"""Candidates of each heuristic judged again: probes are noisy, and the best of many noisy ones is a lucky one."""

CERTAINLY = 4.0
"""How far few probes must be beyond a limit to settle that many probes would be, too."""

LINEAR_SWEEPS = 16
"""Sweeps from random ends for one linear order: a bad end is common, and its width shows it at once."""

TURNS_FOR_ALL, HOPELESS = 3, 16.0
"""After so many turns a heuristic has no further one whose best order has so many times the rows of the best of all."""

LONGER = 20
"""Elimination without bounds may let the search go on for so many times ``order_seconds``, see :func:`longest_search`.

Orders improve for long: pedigree9 of the UAI competition is predicted 3.3 billion rows after half a second and 100
million after five.
"""

TIME_SHARE = 0.25
"""Part of a time limit that such a search takes at most."""

MOST_ROWS = 2.0**960
"""Predictions end here: sums of them, ratios and bytes are still within float64."""

MOST_VARIABLES = 1 << 15
"""Each greedy order takes time that grows with the square of the variables: some minutes from here on."""

GRAPH_COPIES = 8
"""Graphs, a bit for each pair of variables, that the search holds at a time: one for each of a few orders."""

MASKED_SIZE = 64
"""Largest domain whose pairwise constraints are probed: values left are kept as bits of a word."""


class PrimalGraph:
    """Variables as vertices, an edge where two share a scope; with the pairwise constraints for probing.

    Parameters
    ----------
    problem : the problem whose functions and constraints make the edges.
    """

    def __init__(self, problem: Problem) -> None:
        count = len(problem.variables)
        words = (count + 63) // 64
        _check_graph(problem.name, count, 8 * count * words)
        problem = without_zeros(problem)  # what they forbid, probes see as constraints
        adjacency = np.zeros((count, words), dtype=np.uint64)
        for scope in scopes_of(problem):
            look()
            index = np.array(scope, dtype=np.int64)
            members = np.zeros(words, dtype=np.uint64)
            np.bitwise_or.at(members, index >> 6, np.uint64(1) << (index & 63).astype(np.uint64))
            adjacency[index] |= members
        own = np.arange(count)
        adjacency[own, own >> 6] &= ~(np.uint64(1) << (own & 63).astype(np.uint64))
        self.adjacency: NDArray[np.uint64] = adjacency
        self.sizes = np.array(problem.sizes, dtype=np.int64)
        self.weights = np.log2(np.maximum(1, self.sizes))
        self._problem = problem

    @cached_property
    def _pairs(self) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
        return _pairwise_constraints(self._problem)

    @cached_property
    def _hidden(self) -> list[Constraint | Function]:
        return [s for s in hidden_supports(self._problem, MASKED_SIZE) if leaves_few(self._problem, s)]

    @property
    def is_complete(self) -> bool:
        """Whether no constraint is known that predictions take into account: they are of complete tables then."""
        return len(self._pairs[1]) == 0 and not self._hidden

    def work(
        self, order: NDArray[np.int64], probes: int, seed: int, most: float = math.inf, cell_work: float = math.inf
    ) -> float:
        """What all buckets cost, in predicted rows; that of a part of them where it passes ``most``.

        cell_work : see :func:`search_orders`.
        """
        look()
        separators = self.separators(order)
        complete = None if cell_work == math.inf else cell_work * self.joined_cells(separators)
        rows = self.limited(order, separators, self.predict(separators, probes, seed, most, complete))
        return float(np.minimum(rows, math.inf if complete is None else complete).sum())

    def limited(
        self, order: NDArray[np.int64], separators: NDArray[np.uint64], rows: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Predicted rows by variable, lowered to what listed rows that probes do not see permit."""
        if not self._hidden:
            return rows
        sequence = order.tolist()
        limits = row_limits(
            self._problem, self._hidden, sequence, _members(separators, order), [float(rows[v]) for v in sequence]
        )
        result = np.empty_like(rows)
        result[order] = limits
        return result

    def separators(self, order: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Bit set of each bucket's separator, by variable."""
        rows = self.adjacency.copy()
        greedy.separators_of(rows, order, current_flag())
        look()
        return rows

    def joined_cells(self, separators: NDArray[np.uint64]) -> NDArray[np.float64]:
        """Assignments of each bucket's variables, the eliminated one among them, by variable."""
        bits = np.unpackbits(separators.view(np.uint8), axis=1, bitorder="little", count=len(self.sizes))
        logarithms = np.log2(self.sizes)
        cells: NDArray[np.float64] = np.exp2(np.minimum(bits @ logarithms + logarithms, np.log2(MOST_ROWS)))
        return cells

    def predict(
        self,
        separators: NDArray[np.uint64],
        probes: int,
        seed: int,
        most: float = math.inf,
        otherwise: NDArray[np.float64] | None = None,
    ) -> NDArray[np.float64]:
        """Estimated feasible rows of each bucket's message, by variable.

        They are incomplete where all buckets together certainly cost more than ``most`` rows. A bucket costs its rows,
        or what ``otherwise`` says where that is less.
        """
        if otherwise is None:
            otherwise = np.full(len(self.sizes), np.inf)
        limits = (otherwise, most, current_flag())
        rows = estimate_rows(separators, self.sizes, *self._pairs, probes, seed & 0x7FFFFFFF, *limits)
        look()
        result: NDArray[np.float64] = np.minimum(rows, MOST_ROWS)
        return result


def _check_graph(name: str, variables: int, nbytes: int) -> None:
    """Refuse, before anything is allocated, a primal graph that memory or patience does not suffice for."""
    if variables > MOST_VARIABLES:
        raise UnsupportedError(
            f"{name}: an elimination order is searched for {MOST_VARIABLES:,} variables at most, and there are "
            f"{variables:,}; fix variables by evidence, or divide the problem into its independent parts"
        )
    if GRAPH_COPIES * nbytes > available_memory():
        raise ResourceError(
            f"{name}: an elimination order of {variables:,} variables needs {GRAPH_COPIES} bits for each pair of them, "
            f"{format_bytes(GRAPH_COPIES * nbytes)}, more than the {format_bytes(available_memory())} of memory here"
        )


def _pairwise_constraints(problem: Problem) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
    """CSR of what a value of one variable leaves of another; see :func:`estimate_rows`."""
    sizes = problem.sizes
    permitted: dict[tuple[int, int], NDArray[np.bool_]] = {}
    supports: list[Constraint | Function] = list(problem.constraints)
    supports += [f for f in problem.functions if f.default is None]
    for part in supports:
        scope = part.scope
        if len(scope) == 2 and max(sizes[v] for v in scope) <= MASKED_SIZE:
            pair = (scope[0], scope[1])
            array = part.to_array(sizes) if isinstance(part, Constraint) else part.to_array(sizes)[1]
            permitted[pair] = permitted[pair] & array if pair in permitted else array
    uses: list[list[tuple[int, int]]] = [[] for _ in sizes]
    masks: list[NDArray[np.uint64]] = []
    known: dict[tuple[object, ...], int] = {}
    end = 0
    for (u, v), array in permitted.items():
        look()
        for x, y, leaves in ((u, v, array), (v, u, array.T)):
            key = (leaves.shape, leaves.tobytes())
            if key not in known:
                bits = np.uint64(1) << np.arange(leaves.shape[1], dtype=np.uint64)
                masks.append(np.where(leaves, bits, np.uint64(0)).sum(axis=1, dtype=np.uint64))
                known[key] = end
                end += len(leaves)
            uses[x].append((y, known[key]))
    flat = [use for by_variable in uses for use in by_variable]
    return (
        np.concatenate([[0], np.cumsum([len(u) for u in uses])]).astype(np.int64),
        np.array([v for v, _ in flat], dtype=np.int64),
        np.array([o for _, o in flat], dtype=np.int64),
        np.concatenate(masks) if masks else np.zeros(1, dtype=np.uint64),
    )


CRITERIA = {
    "min-degree": greedy.MIN_DEGREE,
    "min-fill": greedy.MIN_FILL,
    "weighted-min-fill": greedy.WEIGHTED_MIN_FILL,
}
"""Codes of the greedy heuristics."""


def _greedy(name: str) -> Callable[[PrimalGraph, int], NDArray[np.int64]]:
    def run(graph: PrimalGraph, seed: int) -> NDArray[np.int64]:
        arguments = (graph.weights, CRITERIA[name], seed, np.ones(len(graph.sizes)), math.inf, current_flag())
        order: NDArray[np.int64] = greedy.greedy_order(graph.adjacency.copy(), *arguments)[0]
        look()
        return order

    return run


def _linear(graph: PrimalGraph, seed: int) -> NDArray[np.int64]:
    arguments = (graph.weights, seed, LINEAR_SWEEPS, current_flag())
    order: NDArray[np.int64] = greedy.best_linear_order(graph.adjacency, *arguments)
    look()
    return order


HEURISTICS: dict[str, Callable[[PrimalGraph, int], NDArray[np.int64]]] = {
    **{name: _greedy(name) for name in CRITERIA},
    "linear": _linear,
}
"""Ways to make one order from a seed."""


@spanning(ELIMINATION, "search for orders")
def search_orders(
    problem: Problem,
    wanted: str,
    seconds: float,
    seed: int,
    most_work: float = math.inf,
    cell_work: float = math.inf,
    deadline: Deadline | None = None,
    longest: float = 0.0,
) -> list[OrderChoice]:
    """Search for orders, or read one; the order of each heuristic with the least predicted work, the best first.

    Parameters
    ----------
    wanted : ``auto``, one of :data:`HEURISTICS`, or the path of a file of variable names.
    seconds : time limit of the search; every heuristic allowed is tried at least once. It ends earlier when it has
        taken longer than elimination is predicted to take.
    seed : of ties, noise and probes.
    most_work : where every order that is found certainly costs more, in predicted rows, none is returned: that takes
        a fraction of the time, as most of it goes into predictions.
    cell_work : what a joined cell of complete tables costs, in rows, where messages may be complete tables: a bucket
        costs what its cheaper form does. Infinite: its predicted rows.
    deadline : looked at before each order; None: never.
    longest : seconds up to which the search goes on where elimination is predicted to take even longer.

    Raises
    ------
    TimeLimitError : the deadline came.
    FormatError : a file that does not list every variable once.
    """
    graph = PrimalGraph(problem)
    if wanted != "auto" and wanted not in HEURISTICS:
        return [_judged(graph, np.array(read_order(problem, wanted), dtype=np.int64), wanted, 1, seed)]
    names = list(HEURISTICS) if wanted == "auto" else [wanted]
    finalists: dict[str, list[tuple[float, int, NDArray[np.int64]]]] = {name: [] for name in names}
    tried: set[tuple[str, bytes]] = set()
    candidates, least_work, begin = 0, math.inf, time.monotonic()
    deadline = deadline or Deadline()
    for name, order in _candidates(graph, names, seed, finalists, cell_work):
        deadline.check()
        candidates += 1
        if order is not None and (name, order.tobytes()) not in tried:
            tried.add((name, order.tobytes()))
            work = graph.work(order, SEARCH_PROBES, seed, CERTAINLY * most_work, cell_work)
            least_work = min(least_work, work)
            ranked = sorted([*finalists[name], (work, candidates, order)], key=lambda f: f[:2])
            finalists[name] = ranked[:FINALISTS]
        spent = time.monotonic() - begin
        worth = max(min(seconds, least_work / ROWS_A_SECOND), min(longest, least_work / MANY_ROWS_A_SECOND))
        if candidates >= len(names) and spent >= worth:
            break
    if least_work > CERTAINLY * most_work:
        return []
    best = []
    for name, ranked in finalists.items():
        deadline.check()
        judged = [_judged(graph, order, name, candidates, seed + 1, cell_work) for _, _, order in ranked]
        if judged:
            best.append(min(judged, key=OrderChoice.cost))
    return sorted(best, key=OrderChoice.cost)


def longest_search(order_seconds: float, remaining: float) -> float:
    """Seconds that the search may take where nothing but elimination can solve a problem; ``remaining`` : time left."""
    return min(LONGER * order_seconds, TIME_SHARE * remaining)


def judge_order(problem: Problem, order: Sequence[int], name: str, seed: int) -> OrderChoice:
    """What a given order is predicted to cost; ``name`` is how it was found."""
    return _judged(PrimalGraph(problem), np.array(order, dtype=np.int64), name, 1, seed)


def _candidates(
    graph: PrimalGraph,
    names: Sequence[str],
    seed: int,
    finalists: Mapping[str, Sequence[tuple[float, int, NDArray[np.int64]]]],
    cell_work: float,
) -> Iterator[tuple[str, NDArray[np.int64] | None]]:
    """An order of each heuristic in turn, without end: greedy ones are improved, others begin again; None: no better.

    Heuristics whose best order is hopeless after a few turns have no further one.
    """
    chains: dict[str, Chain] = {}
    for restart in count():
        turn, which = divmod(restart, len(names))
        name = names[which]
        if turn >= TURNS_FOR_ALL:
            best = {n: ranked[0][0] if ranked else math.inf for n, ranked in finalists.items()}
            if best[name] > HOPELESS * min(best.values()):
                continue
        if turn and name in CRITERIA:
            if name not in chains:
                chains[name] = Chain(graph, CRITERIA[name], SEARCH_PROBES, seed & 0x7FFFFFFF, cell_work)
            yield name, chains[name].step()
        else:
            yield name, HEURISTICS[name](graph, (seed + restart) & 0x7FFFFFFF)


def _members(sets: NDArray[np.uint64], order: NDArray[np.int64]) -> list[list[int]]:
    """Variables of each bucket's separator, the one eliminated next at the front, by elimination position."""
    position = np.empty(len(order), dtype=np.int64)
    position[order] = np.arange(len(order))
    bits = np.unpackbits(sets.view(np.uint8), axis=1, bitorder="little")
    return [sorted(np.flatnonzero(bits[v]).tolist(), key=position.__getitem__) for v in order.tolist()]


def _judged(
    graph: PrimalGraph,
    order: NDArray[np.int64],
    name: str,
    candidates: int,
    seed: int,
    cell_work: float = math.inf,
) -> OrderChoice:
    sets = graph.separators(order)
    rows = graph.limited(order, sets, graph.predict(sets, FINAL_PROBES, seed))[order]
    costs = () if cell_work == math.inf else tuple((cell_work * graph.joined_cells(sets)[order]).tolist())
    separators = tuple(tuple(members) for members in _members(sets, order))
    return OrderChoice(tuple(order.tolist()), name, candidates, separators, tuple(rows.tolist()), costs)
