"""Elimination orders: greedy heuristics that are improved, judged by predicted rows, or read from a file.

What an order costs is the rows of its messages under the hard constraints, not its width: two orders of equal width
differ by more than ten times in rows, and a wider one may have fewer. So each candidate's separators are probed
(:mod:`oocbe.kernels.cpu.orders.estimate`), and the order with the fewest predicted rows in all wins, or, where joined
cells of complete tables are cheap, the one whose buckets cost least in the cheaper form of each. Greedy orders are
improved (:mod:`oocbe.elimination.orders.order_improvement`), others found again from other random numbers, until the
time limit, or until the search has taken as long as elimination with the best order found would: a better one could
then save less than was spent already.

Every heuristic is tried once even when the limit is zero, as that takes milliseconds, but for graphs of thousands of
variables. So min-degree, which is quick, comes first where the graph is large; what the others have not chosen by the
limit, and by :data:`FIRST_SECONDS`, is chosen by min-degree too (see :class:`~oocbe.elimination.orders.separators
.Hurry`), and after :data:`GRACE_SECONDS` more the rest comes in any order.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import count
from types import TracebackType
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from oocbe.elimination.orders.elimination_speed import MANY_ROWS_A_SECOND, ROWS_A_SECOND
from oocbe.elimination.orders.order_choice import OrderChoice
from oocbe.elimination.orders.order_file import read_order
from oocbe.elimination.orders.order_improvement import Chain
from oocbe.elimination.orders.primal_graph import PrimalGraph
from oocbe.elimination.orders.separators import UNHURRIED, Hurry, ScopeGraph
from oocbe.kernels.cpu.orders import greedy_order as greedy
from oocbe.model.problem import Problem
from oocbe.runtime.deadline import Deadline
from oocbe.runtime.tracing.recorder import ELIMINATION, spanning

SEARCH_PROBES = 16
"""Probes a separator while searching: enough to tell orders apart whose rows differ by half."""

FINAL_PROBES = 64
"""Probes for the plan's predictions, and to judge the best candidates once more."""

FINALISTS = 4
"""Candidates of each heuristic judged again: probes are noisy, and the best of many noisy ones is a lucky one."""

CERTAINLY = 4.0
"""How far few probes must be beyond a limit to settle that many probes would be, too."""

TURNS_FOR_ALL, HOPELESS = 3, 16.0
"""After so many turns a heuristic has no further one whose best order has so many times the rows of the best of all."""

FIRST_SECONDS = 0.5
"""Seconds for the first orders, one of each heuristic, together, where the limit of the search is shorter."""

GRACE_SECONDS = 0.5
"""Seconds for min-degree, once the limit has come while an order is made, and for judging the best orders after."""

GRACE_A_VARIABLE = 4e-6
"""The same for each variable and each neighbour of one: what a few passes over a large graph take."""

QUICK_VARIABLES = 512
"""Up to which an order takes some milliseconds, whatever the graph."""

OUT_OF_REACH = 2.0**64
"""Predicted rows of the best order beyond which no long search is worth it: no search makes them few."""

LONGER = 20
"""Elimination without bounds may let the search go on for so many times ``order_seconds``, see :func:`longest_search`.

Orders improve for long: pedigree9 of the UAI competition is predicted 3.3 billion rows after half a second and 100
million after five.
"""

TIME_SHARE = 0.25
"""Part of a time limit that such a search takes at most."""

CRITERIA = {
    "min-degree": greedy.MIN_DEGREE,
    "min-fill": greedy.MIN_FILL,
    "weighted-min-fill": greedy.WEIGHTED_MIN_FILL,
}
"""Codes of the greedy heuristics."""


class Heuristic(Protocol):
    """Makes one order from a seed; where its buckets have more than ``most`` assignments, partly any order."""

    def __call__(  # noqa: D102
        self, graph: ScopeGraph, seed: int, most: float = math.inf, flags: Hurry = UNHURRIED
    ) -> NDArray[np.int64]: ...


def _greedy(name: str) -> Heuristic:
    def run(graph: ScopeGraph, seed: int, most: float = math.inf, flags: Hurry = UNHURRIED) -> NDArray[np.int64]:
        return graph.greedy_order(CRITERIA[name], seed, most, flags=flags)[0]

    return run


def _linear(graph: ScopeGraph, seed: int, most: float = math.inf, flags: Hurry = UNHURRIED) -> NDArray[np.int64]:
    return graph.linear_order(seed, most, flags)


HEURISTICS: dict[str, Heuristic] = {
    **{name: _greedy(name) for name in CRITERIA},
    "linear": _linear,
}
"""Ways to make one order from a seed."""


def is_order_file(wanted: str) -> bool:
    """Whether a wish for an order is the path of a file: neither ``auto`` nor one of :data:`HEURISTICS`."""
    return wanted not in ("auto", *HEURISTICS)


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
    graph: PrimalGraph | None = None,
) -> list[OrderChoice]:
    """Search for orders, or read one; the order of each heuristic with the least predicted work, the best first.

    Parameters
    ----------
    wanted : ``auto``, one of :data:`HEURISTICS`, or the path of a file of variable names.
    seconds : time limit of the search, but for the first order of each heuristic allowed (see the module). It ends
        earlier when it has taken longer than elimination is predicted to take.
    seed : of ties, noise and probes.
    most_work : where every order that is found certainly costs more, in predicted rows, none is returned: that takes
        a fraction of the time, as most of it goes into predictions.
    cell_work : what a joined cell of complete tables costs, in rows, where messages may be complete tables: a bucket
        costs what its cheaper form does. Infinite: its predicted rows.
    deadline : looked at before each order; None: never.
    longest : seconds up to which the search goes on where elimination is predicted to take even longer.
    graph : of the problem, where somebody has it.

    Raises
    ------
    TimeLimitError : the deadline came. ResourceError : memory, or what a plan can list, does not suffice for the graph
        or for the separators of any order found.
    FormatError : a file that does not list every variable once.
    """
    graph = graph or PrimalGraph(problem)
    if is_order_file(wanted):
        return [_judged(graph, np.array(read_order(problem, wanted), dtype=np.int64), wanted, 1, seed)]
    names = list(HEURISTICS) if wanted == "auto" else [wanted]
    finalists: dict[str, list[tuple[float, int, NDArray[np.int64]]]] = {name: [] for name in names}
    tried: set[tuple[str, bytes]] = set()
    candidates, least_work, begin = 0, math.inf, time.monotonic()
    deadline = deadline or Deadline()
    # Where nothing is known that makes rows fewer than assignments, an order with too many of these need not be ended.
    most_cells = CERTAINLY * most_work / min(1.0, cell_work) if graph.is_complete else math.inf
    with OrderFlags(graph, seconds, longest) as flags:
        for name, order in _candidates(graph, names, seed, finalists, cell_work, most_cells, flags):
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
            if least_work > OUT_OF_REACH:
                worth = seconds
            if candidates >= len(names) and spent >= worth:
                break
    if least_work > CERTAINLY * most_work:
        return []
    best: dict[str, OrderChoice] = {}
    until = time.monotonic() + GRACE_SECONDS
    ranks = [(rank, *found, name) for name, ranked in finalists.items() for rank, found in enumerate(ranked)]
    for _, work, _, order, name in sorted(ranks, key=lambda r: r[:3]):
        deadline.check()
        if best and (work == math.inf or time.monotonic() > until):  # its separators are more than a plan lists
            continue
        judged = _judged(graph, order, name, candidates, seed + 1, cell_work)
        best[name] = min(best.get(name, judged), judged, key=OrderChoice.cost)
    return sorted(best.values(), key=OrderChoice.cost)


class OrderFlags:
    """When the orders of a search are to be ended in a quicker way; a context manager that ends its timers."""

    def __init__(self, graph: ScopeGraph, seconds: float, longest: float) -> None:
        self._first, self._later = max(seconds, FIRST_SECONDS), max(seconds, longest)
        self._grace = GRACE_SECONDS + GRACE_A_VARIABLE * (len(graph.sizes) + len(graph.neighbours))
        self._is_quick = len(graph.sizes) <= QUICK_VARIABLES  # a timer takes longer than it could save
        self._begin = time.monotonic()
        self._timers: list[Deadline] = []
        self.first = self._made(self._first)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for timer in self._timers:
            timer.close()

    @cached_property
    def later(self) -> Hurry:
        """Those of all orders but the first one of each heuristic."""
        return self._made(max(0.0, self._begin + self._later - time.monotonic()))

    def _made(self, seconds: float) -> Hurry:
        if self._is_quick:
            return UNHURRIED
        made = [Deadline(seconds), Deadline(seconds + self._grace)]
        self._timers += made
        return Hurry(*(timer.flag for timer in made))


def longest_search(order_seconds: float, remaining: float) -> float:
    """Seconds that the search may take where nothing but elimination can solve a problem; ``remaining`` : time left."""
    return min(LONGER * order_seconds, TIME_SHARE * remaining)


def judge_order(
    problem: Problem, order: Sequence[int], name: str, seed: int, cell_work: float = math.inf
) -> OrderChoice:
    """What a given order is predicted to cost; ``name`` is how it was found, ``cell_work`` as for a search."""
    return _judged(PrimalGraph(problem), np.array(order, dtype=np.int64), name, 1, seed, cell_work)


def _candidates(
    graph: PrimalGraph,
    names: Sequence[str],
    seed: int,
    finalists: Mapping[str, Sequence[tuple[float, int, NDArray[np.int64]]]],
    cell_work: float,
    most_cells: float,
    flags: OrderFlags,
) -> Iterator[tuple[str, NDArray[np.int64] | None]]:
    """An order of each heuristic in turn, without end: greedy ones are improved, others begin again; None: no better.

    Heuristics whose best order is hopeless after a few turns have no further one. Buckets with more than ``most_cells``
    assignments end an order's making: the rest of it is any order.
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
            yield name, chains[name].step(flags.later)
        elif turn == 0 and flags.first.hurry[0] != 0 and any(finalists.values()):
            yield name, None
        else:
            own = flags.later if turn else flags.first
            yield name, HEURISTICS[name](graph, (seed + restart) & 0x7FFFFFFF, most_cells, own)


def _judged(
    graph: PrimalGraph,
    order: NDArray[np.int64],
    name: str,
    candidates: int,
    seed: int,
    cell_work: float = math.inf,
) -> OrderChoice:
    sets = graph.separators(order)
    rows = graph.limited(order, sets, graph.predict(sets, FINAL_PROBES, seed))
    costs = () if cell_work == math.inf else tuple((cell_work * graph.joined_cells(order, sets)).tolist())
    return OrderChoice(tuple(order.tolist()), name, candidates, tuple(sets.listed()), tuple(rows.tolist()), costs)
