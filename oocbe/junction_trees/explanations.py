"""Best assignments: of all variables given the evidence (MPE), or of some, the others summed out (marginal MAP).

Both are an upward sweep in logarithms and a downward pass. Upwards, a clique maximises over its own variables or sums
them out; downwards, it takes the best row of the separator row chosen by its parent. Variables that are summed out must
be eliminated before all others (Park and Darwiche 2004): each such query makes a tree of a constrained order, with a
clique for each variable.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from oocbe.elimination.orders.order import CRITERIA
from oocbe.elimination.orders.primal_graph import PrimalGraph
from oocbe.elimination.preparation.temperature import at_temperature
from oocbe.errors import UnsupportedError
from oocbe.formats.bif import conditionals
from oocbe.junction_trees.compiled import CompiledTree, tree_of
from oocbe.junction_trees.sweeping import blank, collect
from oocbe.junction_trees.weights import log_of
from oocbe.model.parts import Constraint, Function
from oocbe.model.problem import Problem
from oocbe.model.settings.tuning import tuning
from oocbe.propagation.value_removal import remove_values
from oocbe.runtime.deadline import current, looked
from oocbe.runtime.framed import Framed

if TYPE_CHECKING:
    from oocbe.runtime.pictures.plots import Picture


@dataclass(frozen=True)
class Explanation(Framed):
    """A best assignment.

    values : variable name to value label. indices : value index of each variable, in their order in the problem.
    logarithm : natural logarithm of its weight together with the evidence; minus that of the evidence, it is the
        logarithm of its probability.
    """

    values: Mapping[str, str]
    indices: tuple[int, ...]
    logarithm: float
    problem: Problem | None = field(default=None, repr=False, compare=False)

    def __getitem__(self, name: str) -> str:
        """The label of a variable; KeyError for an unknown name."""
        return self.values[name]

    def _columns(self) -> Iterable[tuple[str, Any]]:
        yield "logarithm", [self.logarithm]
        yield from ((name, [label]) for name, label in self.values.items())

    def plot(self) -> Picture:
        """The belief network with these values in its nodes; errors as for :meth:`oocbe.JunctionTree.plot`."""
        assert self.problem is not None
        return network_picture(self.problem, self.values, lambda name: {self.values[name]: 1.0}, ())


def network_picture(
    problem: Problem, names: Collection[str], shares: Callable[[str], Mapping[str, float]], observed: Collection[str]
) -> Picture:
    """Some variables of a belief network with the shares of their values, by label, and the arrows between them.

    Raises UnsupportedError: no belief network, or more than 60 variables.
    """
    from oocbe.runtime.pictures.plots import MOST_NAMES, belief_network

    if len(names) > MOST_NAMES:
        raise UnsupportedError(f"{problem.name}: {len(names)} variables, {MOST_NAMES} are drawn")
    scopes = [[problem.variables[v].name for v in scope] for scope, _ in conditionals(problem)]
    arcs = [(parent, scope[-1]) for scope in scopes for parent in scope[:-1] if {parent, scope[-1]} <= {*names}]
    return belief_network(problem.name, {name: shares(name) for name in names}, arcs, observed)


def best_assignment(
    tree: CompiledTree, inputs: Mapping[int, NDArray[np.float64]], maximised: Collection[int]
) -> tuple[dict[int, int], float] | None:
    """Values of some variables by index, and the logarithm of their weight; None if every weight is 0.

    inputs : likelihoods by variable, float64 (domain size,), not all zero.
    maximised : variables, all or none of each clique's own. If none of a clique's own, then none of its children's.
    """
    if not tree.is_possible:
        return None
    messages = blank(tree, 1, True)
    for v, given in inputs.items():
        messages.values[tree.variable_start[v] : tree.variable_start[v + 1], 0] = log_of(given)
    cliques = tree.shape.cliques
    chosen = set(maximised)
    maximises = np.array([clique.own[0] in chosen for clique in cliques], dtype=np.bool_)
    everywhere = range(len(cliques))
    program = tree.shape.program(inputs, (), rows_of=everywhere, stale=everywhere)
    arrays = tree.log_arrays
    collect(tree, program, messages, maximised=maximises)
    values = messages.values[:, 0]
    logarithm = tree.logarithm + float(values[arrays.message_start[tree.roots]].sum())
    if logarithm == -math.inf:
        return None
    found: dict[int, int] = {}
    separator_row = {int(root): 0 for root in tree.roots}
    for place, c in enumerate(program.distributed.tolist()):
        if c not in separator_row:
            continue  # below a clique that sums out
        group = arrays.group_start[c] + separator_row[c]
        first, last = int(arrays.groups[group]), int(arrays.groups[group + 1])
        scores = arrays.weights[first:last].copy()
        edges = program.reads[program.read_start[place] : program.read_start[place + 1]]
        begin = int(arrays.row_start[c])
        maps = [arrays.maps[arrays.edge_map[e] - begin + first : arrays.edge_map[e] - begin + last] for e in edges]
        for e, own in zip(edges, maps, strict=True):
            scores += values[arrays.edge_message[e] + own]
        if not maximises[c]:
            continue
        best = int(scores.argmax())
        row = first - begin + best
        for v, own_values in zip(cliques[c].variables, tree.rows[c].values[:, row], strict=True):
            found[v] = int(own_values)
        for e, own in zip(edges, maps, strict=True):
            if arrays.edge_sender[e] < len(cliques):
                separator_row[int(arrays.edge_sender[e])] = int(own[best])
    return {v: found[v] for v in found if v in chosen}, logarithm


def marginal_map(
    problem: Problem,
    evidence: Mapping[int, int],
    likelihoods: Mapping[int, NDArray[np.float64]],
    variables: Collection[int],
    memory: int,
    known_order: Sequence[int] | None = None,
) -> tuple[dict[int, int], float] | None:
    """The best values of some variables, the others summed out, and the logarithm of their weight; None if it is 0.

    problem : of weights, see :func:`oocbe.elimination.preparation.temperature.weighted`.
    evidence, likelihoods : by variable index. memory : limit of the tree's rows, in bytes.
    known_order : an elimination order of all variables. It is used, with ``variables`` moved to its end, if its cliques
        have fewer cells than those of a greedy order.
    Raises ResourceError: the cliques of a constrained order do not fit the memory.
    """
    given = at_temperature(problem, 1.0).with_values(evidence)
    seen = []
    for v, likelihood in likelihoods.items():
        possible = np.flatnonzero(likelihood)
        seen.append(Function((v,), possible[:, None], np.log(likelihood[possible])))
    left = remove_values(replace(given, functions=(*given.functions, *seen)), ())
    if left.is_infeasible:
        return None
    place = {v: i for i, v in enumerate(left.variables)}
    wanted = {place[v] for v in variables if v in place}
    order = constrained_order(left.problem, wanted, [place[v] for v in known_order or () if v in place])
    separators = PrimalGraph(left.problem).separators(np.array(order, dtype=np.int64)).listed()
    tree = tree_of(left.problem, order, separators, memory, is_log=True, merge=False)
    found = best_assignment(tree, {}, wanted)
    if found is None:
        return None
    values = {v: int(left.kept[v][0]) for v in variables if v not in place}
    for v, value in found[0].items():
        original = left.variables[v]
        values[original] = int(left.kept[original][value])
    return values, found[1]


SAME = 1e-13
"""Difference of logarithms that is taken for rounding: a table of such values is a constant."""


def summed_out(problem: Problem, order: Sequence[int]) -> Problem:
    """The problem of the variables that are not in ``order``; each assignment weighs the sum over those in it.

    problem : of the log-sum-exp semiring, without linear constraints. order : of elimination of some variables.
    """
    sizes, position = problem.sizes, {v: place for place, v in enumerate(order)}
    left = {v: number for number, v in enumerate(v for v in range(len(sizes)) if v not in position)}
    waiting: list[list[tuple[tuple[int, ...], NDArray[np.float64]]]] = [[] for _ in order]
    functions: list[Function] = []
    constraints: list[Constraint] = []
    constant = problem.constant

    def send(scope: tuple[int, ...], logs: NDArray[np.float64]) -> None:
        nonlocal constant
        if first := [position[v] for v in scope if v in position]:
            waiting[min(first)].append((scope, logs))
        elif (least := float(logs.min())) > -math.inf and float(logs.max()) - least < SAME:
            constant += least
        else:
            functions.append(Function.from_array([left[v] for v in scope], logs))

    for c in looked(problem.constraints):
        if position.keys().isdisjoint(c.scope):
            constraints.append(replace(c, scope=tuple(left[v] for v in c.scope)))
        else:
            send(c.scope, np.where(c.to_array(sizes), 0.0, -math.inf))
    for f in looked(problem.functions):
        if position.keys().isdisjoint(f.scope):
            functions.append(replace(f, scope=tuple(left[v] for v in f.scope)))
        else:
            values, feasible = f.to_array(sizes)
            send(f.scope, np.where(feasible, values, -math.inf))
    for v, own in zip(looked(order), waiting, strict=True):
        scope = (*sorted({u for members, _ in own for u in members} - {v}), v)
        total = np.zeros([sizes[u] for u in scope])
        for members, logs in own:
            axes = sorted(range(len(members)), key=lambda axis: scope.index(members[axis]))
            total += logs.transpose(axes).reshape([sizes[u] if u in members else 1 for u in scope])
        send(scope[:-1], np.logaddexp.reduce(total, axis=-1))
    variables = tuple(problem.variables[v] for v in left)
    return replace(
        problem, variables=variables, functions=tuple(functions), constraints=tuple(constraints), constant=constant
    )


LAST_FACTOR, LEAST_SCORE = 1e100, 2.0**-20
"""Factor of the greedy scores of variables that come last, and the least score, which is above 0 so that the factor
has an effect."""


def constrained_order(problem: Problem, last: Collection[int], known_order: Sequence[int] = ()) -> list[int]:
    """An elimination order in which some variables come last.

    The one with the fewest cells in all cliques: of each greedy criterion, and ``known_order``, an order of all
    variables, with these variables moved to its end. Windows of it are ordered anew, for half a second at most.
    """
    graph, is_last = PrimalGraph(problem), np.zeros(len(problem.sizes), dtype=np.int64)
    is_last[list(last)] = 1
    factors = np.where(is_last, LAST_FACTOR, 1.0)
    orders = [graph.greedy_order(code, 0, factors=factors, floor=LEAST_SCORE)[0] for code in CRITERIA.values()]
    orders += [np.array(known_order, dtype=np.int64)] if known_order else []

    def judged(order: NDArray[np.int64]) -> tuple[float, list[int]]:
        order = order[np.argsort(is_last[order], kind="stable")]  # hubs come last in greedy ones
        return float(graph.cells_along(order).sum()), order.tolist()

    (cells, best), begin, deadline = min(map(judged, orders)), time.perf_counter(), current()
    longest = min(tuning().first_order_seconds, math.inf if deadline is None else deadline.remaining / 8)
    for seed in range(tuning().group_orders if cells < math.inf else 0):
        if time.perf_counter() - begin > min(longest, tuning().search_share * tuning().cell_seconds * cells):
            break
        given = np.array(best)
        cells, best = min((cells, best), judged(graph.improved_order(given, graph.cells_along(given), seed)))
    return best
