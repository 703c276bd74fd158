"""Elimination orders: improved greedy heuristics, compared by predicted rows, or read from a file.

The cost of an order is the rows of its messages under the hard constraints, not its width: orders of equal width differ
by more than ten times in rows, and a wider one may have fewer. So each candidate's separators are probed
(:mod:`oocbe.kernels.cpu.orders.estimate`), and the order with the fewest predicted rows in total wins; if joined cells
of complete tables are cheap, it is the order whose buckets cost least in the cheaper form of each. The search goes on
until the time limit. If that is at most ``first_order_seconds``, it ends once it has taken as long as elimination with
the best order would, as a better one could save less; else only if the best one is certainly optimal.

Every heuristic is tried once even if the limit is zero, as that takes milliseconds, except on graphs of thousands of
variables. There min-degree, which is fast, runs first. After the limit and ``first_order_seconds``, min-degree also
completes the other heuristics' orders (see :class:`~oocbe.elimination.orders.separators.Hurry`), and after another
``grace_seconds`` the rest of an order is arbitrary.

With other tie-breaking a greedy order may have a hundred times the rows, so a longer search restarts heuristics from
other seeds. Greedy orders of meshes and of graphs with small separators stay far from the best ones: it also tries
nested dissections (:mod:`oocbe.kernels.cpu.orders.dissection`), and orders parts of the trees of good orders anew
(:mod:`oocbe.kernels.cpu.orders.windows`). Each method's share of the search grows with its recent gains.

Orders of other packages are tree decompositions in the formats of the PACE challenge (2017). A package adds a finder by
an entry point in the group ``oocbe.order_finders``; the option ``order`` selects it by its name. The entry point names
a function ``find(graph, seconds, seed)``: ``graph`` is text in the ``.gr`` format, one vertex a variable and an edge
where two variables share a scope; the result is text in the ``.td`` format. The function returns after about
``seconds`` seconds; oocbe does not interrupt it.

An elimination order of the same width follows from a tree decomposition: leaves are removed one after the other, and
with each leaf the vertices that its neighbour does not have. Such an order is then judged like any other.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from oocbe.elimination.orders.separators import MOST_ROWS, UNHURRIED, Hurry, ScopeGraph
from oocbe.errors import FormatError, OocbeError, UsageError
from oocbe.kernels.choice import cuda_works
from oocbe.kernels.cpu.orders import greedy_order as greedy
from oocbe.model.problem import Problem
from oocbe.model.settings.option_values import INCOMPLETE, order_finders
from oocbe.model.settings.tuning import tuning
from oocbe.runtime.deadline import Deadline, check_deadline
from oocbe.runtime.plain_files import read_text
from oocbe.runtime.tracing.recorder import ELIMINATION, spanning

if TYPE_CHECKING:
    from oocbe.elimination.orders.primal_graph import PrimalGraph


def read_order(problem: Problem, path: str | Path) -> list[int]:
    """Order from a text file: variable names separated by white space or commas; ``#`` begins a comment.

    Raises FormatError: an unknown variable, one that occurs twice or is missing; the message names it and the line.
    """
    known = {v.name: index for index, v in enumerate(problem.variables)}
    order: list[int] = []
    seen: set[int] = set()
    number = 0
    try:
        text = read_text(path)
    except (OSError, UnicodeDecodeError) as error:
        raise FormatError(path, None, f"cannot be read as an elimination order ({error})") from None
    for number, line in enumerate(text.splitlines(), start=1):
        for name in line.split("#", 1)[0].replace(",", " ").split():
            if name not in known:
                raise FormatError(path, number, f"no variable is called {name!r}; expected names of {problem.name}")
            if known[name] in seen:
                raise FormatError(path, number, f"variable {name} occurs twice in the order; expected each once")
            seen.add(known[name])
            order.append(known[name])
    if len(order) < len(known):
        missing = next(name for name, index in known.items() if index not in seen)
        raise FormatError(
            path, number, f"the order ends after {len(order)} of {len(known)} variables; {missing} is missing"
        )
    return order


def found_order(
    name: str, seconds: float, graph: ScopeGraph, seed: int, most: float = math.inf, flags: object = None
) -> NDArray[np.int64]:
    """The order of the finder with a name, int64 (variables,); ``most`` and ``flags`` do not concern finders.

    Raises UsageError: the finder cannot be loaded, fails, or returns no tree decomposition of the graph.
    """
    try:
        find: Callable[[str, float, int], str] = order_finders()[name].load()
        answer = find(graph_text(graph), seconds, seed)
        order, width = order_of(answer, len(graph.sizes))
        reached = graph.separators(order).width
        if reached > width:
            raise ValueError(f"of width {width}, which is none of this graph: its order has the width {reached}")
    except OocbeError:
        raise
    except Exception as error:
        raise UsageError(f"the order finder {name} returned no tree decomposition: {error}") from error
    check_deadline()
    return order


def graph_text(graph: ScopeGraph) -> str:
    """The graph in the ``.gr`` format: vertices are counted from 1, each edge is listed once."""
    owners = np.repeat(np.arange(len(graph.sizes)), np.diff(graph.starts))
    pairs = np.column_stack((owners, graph.neighbours))[owners < graph.neighbours] + 1
    return "\n".join([f"p tw {len(graph.sizes)} {len(pairs)}", *(f"{u} {v}" for u, v in pairs.tolist()), ""])


def order_of(text: str, vertices: int) -> tuple[NDArray[np.int64], int]:
    """An elimination order, int64 (vertices,), from a ``.td`` text, and the decomposition's width.

    Raises ValueError: a line that the format does not have, or a vertex in no bag.
    """
    bags: dict[int, set[int]] = {}
    edges: dict[int, list[int]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        kind, *words = line.split() or ["c"]
        if kind in ("c", "s"):
            continue
        try:
            if kind == "b":
                bags[int(words[0])] = {int(word) - 1 for word in words[1:]}
            else:
                one, other = int(kind), *map(int, words)
                edges.setdefault(one, []).append(other)
                edges.setdefault(other, []).append(one)
        except (ValueError, IndexError):
            raise ValueError(f"line {number}: found {line[:40]!r}, expected a bag, an edge or a comment") from None
    order = list(_eliminated(bags, edges))
    if sorted(order) != list(range(vertices)):
        raise ValueError(f"{len(bags)} bags whose vertices are not those from 1 to {vertices}")
    return np.array(order, dtype=np.int64), max(map(len, bags.values()), default=0) - 1


def _eliminated(bags: dict[int, set[int]], edges: dict[int, list[int]]) -> Iterator[int]:
    """Vertices, each with the bag nearest to the root that has it, bags below first."""
    above: dict[int, int | None] = {}
    for root in bags:
        waiting: list[tuple[int, int | None]] = [(root, None)]
        while waiting:
            bag, parent = waiting.pop()
            if bag in bags and bag not in above:
                above[bag] = parent
                waiting += [(other, bag) for other in edges.get(bag, ())]
    done: set[int] = set()
    for bag, parent in reversed(above.items()):
        leaving = bags[bag] - done - (set() if parent is None else bags[parent])
        done |= leaving
        yield from sorted(leaving)


ROWS_A_SECOND = 1_000_000.0
"""Predicted rows that elimination processes in a second, to compare an order's cost with that of the search.

Small problems reach 0.4 to 1 million, because of the cost of each bucket; large ones reach 5 to 15 million, because
predictions ignore dominance. One million ends the search early if elimination takes milliseconds, and lets hard
problems use their whole search time: for them a better order saves more than the search costs.
"""

MANY_ROWS_A_SECOND = 40_000_000.0
"""Predicted rows a second of large problems without bounds: 15 to 40 million were measured on two cores."""

SECONDS_A_BUCKET, MESSAGE_ROWS_A_SECOND, MESSAGE_CELLS_A_SECOND = 2e-3, 4e6, 5e7
"""Model of a plan's time without a device: seconds a bucket, predicted message rows and complete cells a second.

For all of 23 problems whose solves without bounds took from 0.01 to 7 s of processor time on two cores (SPOT5,
pedigrees, circuits, grids, random ones; 2026-11-24) the time was from half to twice the model's.
"""


class EliminationSpeed(NamedTuple):
    """Speed of elimination with large messages, for comparison with bounds and with the search for orders: predicted
    rows, and joined cells of complete tables, a second."""

    rows: float
    cells: float

    @property
    def cells_a_row(self) -> float:
        """Cells processed in the time of a row of a large table, mostly that of reading and writing it."""
        return self.cells / self.rows


CPU_SPEED = EliminationSpeed(MANY_ROWS_A_SECOND, 1e9)
"""Speed of two cores: 0.2 to 3 billion cells a second were measured."""

DEVICE_SPEED = EliminationSpeed(2e8, 2e11)
"""Speed of any device. On an H200, traces of grid networks of sides 9 and 10 show 0.3 billion rows, and 0.5 to 0.8
trillion cells, a second in their largest buckets; smaller buckets are slower."""


def speed_of(backend: str) -> EliminationSpeed:
    """Expected speed of elimination with a backend, ``auto``, ``cpu`` or ``cuda``, on this machine."""
    return DEVICE_SPEED if backend == "cuda" or (backend == "auto" and cuda_works(wanted=False)) else CPU_SPEED


def order_cell_work(speed: EliminationSpeed, tables: str) -> float:
    """The ``cell_work`` argument of :func:`oocbe.elimination.orders.order.search_orders`.

    Without a device, orders are compared by predicted rows alone. On a device joined cells are so cheap that the
    cheaper form of each bucket counts.

    tables : possible forms, see :func:`oocbe.elimination.buckets.message.supported_representations`.
    """
    return math.inf if tables == INCOMPLETE or speed is not DEVICE_SPEED else 1 / speed.cells_a_row


@dataclass(frozen=True)
class OrderChoice:
    """An elimination order and its predicted cost.

    order : variable indices, the one eliminated first at the front.
    heuristic : method that found it, such as ``min-fill``, or the file it was read from.
    candidates : number of evaluated orders.
    separators : variable indices of each bucket's separator, by elimination position.
    predicted_rows : estimated feasible rows of each message, by elimination position.
    cell_costs : cost of each bucket as a complete table, in rows; empty if rows alone count.
    """

    order: tuple[int, ...]
    heuristic: str
    candidates: int
    separators: tuple[tuple[int, ...], ...]
    predicted_rows: tuple[float, ...]
    cell_costs: tuple[float, ...] = ()

    def cost(self, first: int = 0, ratio: float = 1.0) -> float:
        """Cost, in rows, of the buckets from ``first`` on, if rows are ``ratio`` times the predicted ones."""
        if not self.cell_costs:
            return ratio * sum(self.predicted_rows[first:])
        pairs = zip(self.predicted_rows[first:], self.cell_costs[first:], strict=True)
        return sum(min(ratio * rows, cells) for rows, cells in pairs)


CRITERIA = {"min-degree": greedy.MIN_DEGREE, "min-fill": greedy.MIN_FILL, "weighted-min-fill": greedy.WEIGHTED_MIN_FILL}
"""Codes of the greedy heuristics."""


Heuristic = Callable[..., NDArray[np.int64]]
"""Computes one order of a graph from a seed; its rest is arbitrary once buckets exceed ``most`` assignments."""


def _greedy(
    criterion: int, graph: ScopeGraph, seed: int, most: float = math.inf, flags: Hurry = UNHURRIED
) -> NDArray[np.int64]:
    return graph.greedy_order(criterion, seed, most, flags=flags)[0]


HEURISTICS: dict[str, Heuristic] = {
    **{name: partial(_greedy, criterion) for name, criterion in CRITERIA.items()},
    "linear": ScopeGraph.linear_order,
}
"""Heuristics by name."""


DISSECTION, BEST, ANY = "dissection", "windows of the best", "windows of any"
"""Methods of a longer search beside the heuristics: nested dissection, and improvement by windows
(:mod:`oocbe.kernels.cpu.orders.windows`) of the best order, or of the best one of any heuristic."""

DISSECTION_COST = 8.0
"""Approximate time of a dissection, in that of a greedy order."""


def heuristic(name: str, seconds: float) -> Heuristic:
    """One of :data:`HEURISTICS`, or a finder of another package that takes so many seconds an order."""
    return HEURISTICS.get(name) or partial(found_order, name, max(seconds, tuning().first_order_seconds))


def is_order_file(wanted: str) -> bool:
    """Whether an order option is the path of a file: no name of a heuristic or finder."""
    return wanted not in ("auto", *HEURISTICS) and wanted not in order_finders().names


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

    wanted : ``auto``, the name of a heuristic or finder, or the path of a file of variable names.
    seconds : time limit of the search, except for the first order of each permitted heuristic; for earlier ends, see
        the module.
    seed : of ties, noise and probes.
    most_work : if every order found certainly costs more, in predicted rows, none is returned: that takes a fraction of
        the time, most of which predictions take.
    cell_work : cost of a joined cell of complete tables, in rows, if messages may be complete tables: a bucket has the
        cost of its cheaper form. Infinite: its predicted rows.
    deadline : checked before each order; None: no limit.
    longest : seconds up to which the search continues if the predicted elimination takes even longer.
    graph : of the problem, if already available.
    Raises TimeLimitError: the deadline passed; ResourceError: memory, or the size of plans, does not suffice for the
    graph or for the separators of any order found; FormatError: a file that does not list every variable once.
    """
    from oocbe.elimination.orders.primal_graph import PrimalGraph

    graph = graph or PrimalGraph(problem)
    if is_order_file(wanted):
        return [_judged(graph, np.array(read_order(problem, wanted), dtype=np.int64), wanted, 1, seed)]
    names = list(HEURISTICS) if wanted == "auto" else [wanted]
    finalists: dict[str, list[tuple[float, int, NDArray[np.int64]]]] = {name: [] for name in (*names, DISSECTION)}
    tried: set[tuple[str, bytes]] = set()
    candidates, least_work, begin = 0, math.inf, time.monotonic()
    deadline = deadline or Deadline()
    wish = min(seconds * (seconds > tuning().first_order_seconds), tuning().longest_search_share * deadline.remaining)
    # Without constraints that make rows fewer than assignments, an order with too many assignments is not completed.
    most_cells = tuning().probe_margin * most_work / min(1.0, cell_work) if graph.is_complete else math.inf
    with OrderFlags(graph, seconds, longest) as flags:
        for name, order in _candidates(graph, names, seconds, seed, finalists, most_cells, flags):
            deadline.check()
            candidates += 1
            if order is not None and (name, order.tobytes()) not in tried:
                tried.add((name, order.tobytes()))
                most = min(tuning().probe_margin * most_work, tuning().hopeless_heuristic * least_work)
                work = graph.work(order, tuning().search_probes, seed, most, cell_work)
                wish = 0.0 if wish and work < least_work and graph.is_optimal(order) else wish
                least_work = min(least_work, work)
                ranked = sorted([*finalists[name], (work, candidates, order)], key=lambda f: f[:2])
                finalists[name] = ranked[: tuning().finalists]
            spent = time.monotonic() - begin
            worth = max(wish, min(seconds, least_work / ROWS_A_SECOND), min(longest, least_work / MANY_ROWS_A_SECOND))
            if least_work > tuning().hopeless_rows:
                worth = seconds
            if candidates >= len(names) and spent >= worth:
                break
    if least_work > tuning().probe_margin * most_work:
        return []
    best: dict[str, OrderChoice] = {}
    until = time.monotonic() + tuning().grace_seconds
    ranks = [(rank, *found, name) for name, ranked in finalists.items() for rank, found in enumerate(ranked)]
    for rank, work, _, order, name in sorted(ranks, key=lambda r: r[:3]):
        deadline.check()
        if best and (work == math.inf or time.monotonic() > until):  # inf: separators too large for a plan
            continue
        if rank and work > tuning().margin * least_work:
            continue
        judged = _judged(graph, order, name, candidates, seed + 1, cell_work)
        best[name] = min(best.get(name, judged), judged, key=OrderChoice.cost)
    return sorted(best.values(), key=OrderChoice.cost)


class OrderFlags:
    """Flags that make a search complete its orders faster; a context manager that stops its timers."""

    def __init__(self, graph: ScopeGraph, seconds: float, longest: float) -> None:
        self._first, self._later = max(seconds, tuning().first_order_seconds), max(seconds, longest)
        size = len(graph.sizes) + len(graph.neighbours)
        self._grace = tuning().grace_seconds + tuning().grace_variable_seconds * size
        self._is_quick = len(graph.sizes) <= tuning().quick_variables  # a timer costs more than it could save
        self._begin = time.monotonic()
        self._timers: list[Deadline] = []
        self.first = self._made(self._first)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for timer in self._timers:
            timer.close()

    @cached_property
    def later(self) -> Hurry:
        """Flags of all orders except the first one of each heuristic."""
        return self._made(max(0.0, self._begin + self._later - time.monotonic()))

    def _made(self, seconds: float) -> Hurry:
        if self._is_quick:
            return UNHURRIED
        made = [Deadline(seconds), Deadline(seconds + self._grace)]
        self._timers += made
        return Hurry(*(timer.flag for timer in made))


def longest_search(order_seconds: float, remaining: float) -> float:
    """Maximum search time, in seconds, if only elimination can solve the problem; ``remaining`` : time left."""
    return min(tuning().longest_search_factor * order_seconds, tuning().longest_search_share * remaining)


def judge_order(
    problem: Problem, order: Sequence[int], name: str, seed: int, cell_work: float = math.inf
) -> OrderChoice:
    """Predicted cost of a given order; ``name`` : of its heuristic, ``cell_work`` as for a search."""
    from oocbe.elimination.orders.primal_graph import PrimalGraph

    return _judged(PrimalGraph(problem), np.array(order, dtype=np.int64), name, 1, seed, cell_work)


def _candidates(
    graph: PrimalGraph,
    names: Sequence[str],
    seconds: float,
    seed: int,
    finalists: Mapping[str, Sequence[tuple[float, int, NDArray[np.int64]]]],
    most_cells: float,
    flags: OrderFlags,
) -> Iterator[tuple[str, NDArray[np.int64] | None]]:
    """Endless orders: one of each heuristic, then those of the methods that gained most; None: no improvement.

    Methods are restarts of heuristics, dissections if any heuristic is permitted, and windows of orders found before.
    On large graphs a dissection follows min-degree; greedy orders are left out where that one is far better.
    Once buckets exceed ``most_cells`` assignments, the rest of an order is arbitrary.
    """
    is_any = len(names) == len(HEURISTICS)
    dissects_early = is_any and graph.is_large and seconds > tuning().first_order_seconds

    def is_hopeless(name: str) -> bool:
        return dissects_early and _least(finalists[name]) > tuning().hopeless_heuristic * _least(finalists[DISSECTION])

    for restart, name in enumerate(names):
        if any(finalists.values()) and (flags.first.hurry[0] != 0 or is_hopeless(names[0])):
            yield name, None
        else:
            yield name, heuristic(name, seconds)(graph, (seed + restart) & 0x7FFFFFFF, most_cells, flags.first)
        if restart == 0 and dissects_early:
            yield DISSECTION, graph.dissected_order(seed, most_cells, flags.first)
    methods = [*(() if is_hopeless(names[0]) else names), BEST, ANY, *[DISSECTION] * is_any]
    random = np.random.default_rng([seed & 0x7FFFFFFF, 0])  # after the heuristics: many orders need no other module
    gains = np.array([1.0 if method == DISSECTION else tuning().first_gain for method in methods])
    costs = np.array([DISSECTION_COST if method == DISSECTION else 1.0 for method in methods])
    for restart in count(len(names)):
        shares = np.maximum(gains, tuning().least_method_share * gains.max()) / costs
        which = int(random.choice(len(methods), p=shares / shares.sum()))
        name, own = methods[which], (seed + restart) & 0x7FFFFFFF
        if name in (BEST, ANY):
            name, order = _improved(graph, finalists, own, name == BEST, flags.later)
        elif name == DISSECTION:
            order = graph.dissected_order(own, most_cells, flags.later)
        else:
            order = heuristic(name, seconds)(graph, own, most_cells, flags.later)
        near = tuning().hopeless_heuristic * min(map(_least, finalists.values()))
        before = min(near, _least(finalists[name]))
        yield name, order
        after = _least(finalists[name])
        gain = math.log2(min(before, MOST_ROWS) / max(1.0, after)) if after < before else 0.0
        gains[which] += tuning().method_memory * (gain - gains[which])


def _least(ranked: Sequence[tuple[float, int, NDArray[np.int64]]]) -> float:
    """Work of the best order; infinite if there is none."""
    return ranked[0][0] if ranked else math.inf


def _improved(
    graph: PrimalGraph,
    finalists: Mapping[str, Sequence[tuple[float, int, NDArray[np.int64]]]],
    seed: int,
    is_best: bool,
    flags: Hurry,
) -> tuple[str, NDArray[np.int64] | None]:
    """An order found before, the best one or that of some heuristic, with windows ordered anew, and its heuristic."""
    random = np.random.default_rng([seed, 1])
    ranked = sorted((found[0][:2], name) for name, found in finalists.items() if found)
    near = [name for (work, _), name in ranked if work <= tuning().hopeless_heuristic * ranked[0][0][0]]
    name = near[0 if is_best else int(random.integers(len(near)))]
    work, _, order = finalists[name][0]
    if work == math.inf:  # separators too large for a plan
        return name, None
    sets = graph.separators(order)
    heat = graph.joined_cells(order, sets) if graph.is_complete else graph.predict(sets, 1, seed)
    return name, graph.improved_order(order, heat, int(random.integers(1 << 31)), flags)


def _judged(
    graph: PrimalGraph, order: NDArray[np.int64], name: str, candidates: int, seed: int, cell_work: float = math.inf
) -> OrderChoice:
    sets = graph.separators(order)
    rows = graph.limited(order, sets, graph.predict(sets, tuning().final_probes, seed))
    costs = () if cell_work == math.inf else tuple((cell_work * graph.joined_cells(order, sets)).tolist())
    return OrderChoice(tuple(order.tolist()), name, candidates, tuple(sets.listed()), tuple(rows.tolist()), costs)
