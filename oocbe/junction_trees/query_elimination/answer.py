"""Answers for one case, or several one by one: plans for the targets, and their results.

One tree for all targets contains every factor that any target needs, which enlarges its cliques: for munin1, the
posteriors of all variables need cliques of a hundred million cells, those of a single one a thousandth of that. Targets
that share many factors are grouped as long as the tree of the group costs no more than the trees of its parts.

A case can be answered by a sweep over the tree's rows, by a sweep over the smaller tree of a group of cases
(:mod:`oocbe.junction_trees.conditioning`), or without rows by eliminating the relevant factors
(:mod:`oocbe.junction_trees.query_elimination`). Each choice compares estimated seconds.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from oocbe.elimination.orders.separators import ScopeGraph, Separators
from oocbe.junction_trees.compiled import CompiledTree
from oocbe.junction_trees.evidence import UNOBSERVED, Cases
from oocbe.junction_trees.query_elimination.complete_tree import (
    CPU,
    CompleteTree,
    TablePlace,
    UnderflowError,
    sent_cells,
    table_bytes,
)
from oocbe.junction_trees.query_elimination.factors import (
    CaseFactors,
    WrittenFactors,
    components,
    factors_of_case,
    relevant,
    written_out,
)
from oocbe.junction_trees.stored.tree import StoredTree
from oocbe.junction_trees.weights import weights_of
from oocbe.kernels.cpu.orders import greedy_order as greedy
from oocbe.model.problem import Problem
from oocbe.model.settings.tuning import tuning
from oocbe.runtime.deadline import check_deadline, current, looked


@dataclass(frozen=True, eq=False)
class Order:
    """An elimination order, its separators, its cost in joined cells, the cells of its messages, and the bytes of the
    tables that it holds."""

    order: tuple[int, ...]
    separators: tuple[tuple[int, ...], ...]
    cost: float
    sent: float
    nbytes: float


@dataclass(frozen=True, eq=False)
class Group:
    """Factors of one tree, which share no hidden variable with other factors of the plan, and their targets.

    factors : their numbers. asked : target variables. order : of all of their variables.
    is_evidence : whether their total weight is a factor of the probability of the evidence.
    """

    factors: frozenset[int]
    asked: frozenset[int]
    order: Order
    is_evidence: bool


class CasePlan:
    """The computations for a case.

    case : the factors. asked : target variables, each with two or more remaining values.
    is_whole : whether all factors are joined, also those that sum to 1, as for a best assignment.
    place : of the computations; if no order within its memory is found at once, the search takes longer.
    groups : factors that are joined together. free : variables in no factor, whose values have equal weights.
    """

    def __init__(
        self, case: CaseFactors, asked: Collection[int], is_whole: bool = False, place: TablePlace = CPU
    ) -> None:
        self._case, self._place = case, place._replace(goes_down=is_whole or bool(asked))
        self._sizes = np.array([max(1, len(values)) for values in case.kept], dtype=np.int64)
        self._scopes = [factor.scope for factor in case.factors]
        base, went = (set(range(len(self._scopes))), []) if is_whole else self._relevant(())
        evidence = [self._group(own, asked) for own in components(self._scopes, base)]
        having = {v for f in base for v in self._scopes[f]}
        self.free = tuple(v for v in case.hidden if v not in having and v not in set(went))
        wanted = set(asked)
        targets = self._with_targets(evidence, [v for v in went if v in wanted]) if wanted else []
        self.groups = [self._improved(group) for group in _told_apart(evidence, targets)]

    @property
    def cost(self) -> float:
        """Joined cells of all groups, plus the overhead of their cliques and messages."""
        return sum(group.order.cost + tuning().message_cells * group.order.sent for group in self.groups)

    @property
    def nbytes(self) -> float:
        """Bytes of the tables of a group at a time."""
        return max((group.order.nbytes for group in self.groups), default=0.0)

    def variables(self, group: Group) -> set[int]:
        """Variables of a group's factors."""
        return {v for f in group.factors for v in self._scopes[f]}

    def tree(self, group: Group) -> CompleteTree:
        """The tree of a group."""
        factors = [self._case.factors[f] for f in sorted(group.factors)]
        return CompleteTree(self._sizes.tolist(), factors, group.order.order, group.order.separators)

    def _relevant(self, asked: Collection[int]) -> tuple[set[int], list[int]]:
        sums = self._case.sums_to_one
        return relevant(self._scopes, range(len(self._scopes)), asked, lambda f, v: sums[f] == v)

    def _with_targets(self, evidence: Sequence[Group], rest: Sequence[int]) -> list[Group]:
        """Groups for targets that the evidence does not need, given in the order of their removal as barren."""
        if not rest:
            return []
        whole = self._together(evidence, rest)
        uses = np.bincount([v for scope in self._scopes for v in scope], minlength=len(self._sizes))
        leaves = sum(uses[v] == 1 for v in rest)
        seconds, begin = tuning().cell_seconds * _cost(whole), time.perf_counter()
        if seconds <= tuning().group_seconds * leaves:
            return whole
        wanted: set[int] = set(rest)
        alone: list[Group] = []
        for v in rest:
            if v in wanted:
                check_deadline()
                if time.perf_counter() - begin > tuning().search_share * seconds:
                    return whole
                alone.append(self._group_of({v}, wanted))
                wanted -= alone[-1].asked
        groups: list[Group] = []
        for group in looked(sorted(alone, key=lambda group: -len(group.factors))):
            merged = self._merged(groups, group)
            if merged is None:
                groups.append(group)
            else:
                groups[merged[0]] = merged[1]
        return min((whole, groups), key=_cost)

    def _together(self, evidence: Sequence[Group], asked: Collection[int]) -> list[Group]:
        """One group for each component of the factors that some targets need."""
        needed, _ = self._relevant(set(asked))
        known = {group.factors for group in evidence}
        found = [frozenset(own) for own in components(self._scopes, needed)]
        return [self._group(own, asked) for own in found if own not in known]

    def _group_of(self, targets: set[int], asked: Collection[int]) -> Group:
        """The group of the factors that some targets need, which are connected; ``asked`` may have more variables."""
        needed, _ = self._relevant(targets)
        for own in components(self._scopes, needed):
            if targets <= {v for f in own for v in self._scopes[f]}:
                return self._group(own, asked)
        raise AssertionError("targets of a group are connected")

    def _merged(self, groups: Sequence[Group], new: Group) -> tuple[int, Group] | None:
        """The number of a group to merge with a new one, and the merged group, if that costs no more than both."""
        if not groups:
            return None

        def likeness(number: int) -> float:
            own = groups[number].factors
            return len(own & new.factors) / len(own | new.factors)

        best = max(range(len(groups)), key=likeness)
        other = groups[best]
        if not other.factors & new.factors:
            return None
        asked = set(other.asked | new.asked)
        merged = self._group_of(asked, asked)
        return (best, merged) if merged.order.cost <= other.order.cost + new.order.cost else None

    def _group(self, factors: Collection[int], asked: Collection[int]) -> Group:
        having, orders = {v for f in factors for v in self._scopes[f]}, self._orders(factors)
        own = [] if self._place.has_order else [orders.order(0)]
        given = [orders.along(self._case.order)] if self._case.order else []
        return Group(frozenset(factors), frozenset(having & set(asked)), min(own + given, key=self._rank), False)

    def _improved(self, group: Group) -> Group:
        """The group with the best order of a search, limited to a share of its tree's time and of the time left."""
        is_cheap = tuning().search_share * tuning().cell_seconds * group.order.cost < tuning().group_seconds
        if self._place.has_order or (is_cheap and group.order.nbytes <= self._place.memory):
            return group
        orders, best = self._orders(group.factors), group.order
        begin, deadline = time.perf_counter(), current()
        left = math.inf if deadline is None else 0.75 * deadline.remaining
        for seed in range(1, tuning().group_orders):
            enough = tuning().search_share * tuning().cell_seconds * best.cost
            enough = enough if best.nbytes <= self._place.memory else 4 * tuning().first_order_seconds
            if time.perf_counter() - begin > min(left, enough):
                break
            best = min(best, orders.order(seed, best), key=self._rank)
        return replace(group, order=best)

    def _rank(self, order: Order) -> tuple[bool, float]:
        return order.nbytes > self._place.memory, order.cost

    def _orders(self, factors: Collection[int]) -> _Orders:
        return _Orders([self._scopes[f] for f in sorted(factors)], self._sizes, self._place)


def _told_apart(evidence: Sequence[Group], targets: Sequence[Group]) -> list[Group]:
    """All groups, such that each evidence component counts once for the probability of the evidence, and is not joined
    separately if a group of targets contains it."""
    left = list(evidence)
    found = []
    for group in targets:
        inside = [own for own in evidence if own.factors <= group.factors]
        if inside and all(own in left for own in inside):
            left = [own for own in left if own not in inside]
            asked = group.asked.union(*(own.asked for own in inside))
            group = replace(group, asked=asked, is_evidence=True)
        found.append(group)
    return [*(replace(group, is_evidence=True) for group in left), *found]


def _cost(groups: Iterable[Group]) -> float:
    return sum(group.order.cost for group in groups)


def whole_cost(scopes: Sequence[tuple[int, ...]], sizes: Sequence[int]) -> float:
    """Cells of all buckets of a greedy order of all variables."""
    having = [scope for scope in scopes if scope]
    if not having:
        return 0.0
    order = _Orders(having, np.array(sizes, dtype=np.int64), CPU).order(0)
    return order.cost - tuning().clique_cells * len(order.order)


class _Orders:
    """Orders of the variables of some scopes."""

    def __init__(self, scopes: Sequence[tuple[int, ...]], sizes: NDArray[np.int64], place: TablePlace) -> None:
        self._place = place
        own = sorted({v for scope in scopes for v in scope})
        number = {v: i for i, v in enumerate(own)}
        self._variables = np.array(own, dtype=np.int64)
        numbered = [[number[v] for v in scope] for scope in scopes]
        self._sizes = sizes[self._variables]
        self._graph = ScopeGraph("a case", numbered, self._sizes.tolist())

    def order(self, seed: int, best: Order | None = None) -> Order:
        """The order of a seed: of the first ones greedy, as further loops take time to load; then mostly windows."""
        graph = self._graph
        if best is None or seed < 8:
            order, _ = graph.greedy_order(greedy.MIN_FILL if seed % 2 else greedy.WEIGHTED_MIN_FILL, seed)
        elif seed == 8:
            order = graph.linear_order(seed)
        elif seed % 4 == 3:
            order = graph.dissected_order(seed)
        else:
            given = np.searchsorted(self._variables, best.order)
            order = graph.improved_order(given, graph.joined_cells(given, graph.separators(given)), seed)
        return self.along(self._variables[order])

    def along(self, wanted: Sequence[int] | NDArray[np.int64]) -> Order:
        """An order of these variables, among others."""
        graph, order = self._graph, np.array(wanted, dtype=np.int64)
        order = np.searchsorted(self._variables, order[np.isin(order, self._variables)])
        separators = graph.separators(order)
        cells = graph.joined_cells(order, separators)
        numbers, (starts, members) = np.argsort(order), separators
        parents = np.full(len(order), -1)
        parents[np.diff(starts) > 0] = numbers[members[starts[:-1][np.diff(starts) > 0]]]
        cost = float(self._place.weighed(cells).sum()) + tuning().clique_cells * len(order)
        messages = sent_cells(cells, self._sizes[order], parents)
        scopes = Separators(separators.starts, self._variables[separators.members].astype(np.int32)).listed()
        chosen, nbytes = tuple(self._variables[order].tolist()), table_bytes(cells, messages, parents, self._place)
        return Order(chosen, tuple(scopes), cost, float(self._place.weighed(messages).sum()), nbytes)


def large_cost(problem: Problem) -> float | None:
    """Cells of a problem's tree if there are so many that it is made only on request; else None.

    Raises UnsupportedError: no tree can be made, see :func:`oocbe.junction_trees.weights.weights_of`.
    """
    scopes = [f.scope for f in problem.functions] + [c.scope for c in problem.constraints]
    if problem.linear_constraints or not problem.variables:
        return None
    cost = whole_cost(scopes, problem.sizes)
    if cost < tuning().large_tree_cells or written_out(problem) is None:
        return None
    weights_of(problem, range(len(problem.variables)), is_log=False)
    return cost


def making_seconds(cost: float) -> float:
    """Seconds to make a tree, from :func:`large_cost`."""
    return tuning().tree_cell_seconds * cost


def elimination_seconds(factors: int, cells: float = 0.0) -> float:
    """Seconds of an elimination of some factors; cells : joined ones of its plan, with the overhead of cliques."""
    return tuning().cell_seconds * (cells + tuning().clique_cells * factors)


def case_limit(tree: CompiledTree | StoredTree) -> float:
    """Maximum seconds of an elimination that is preferred to a sweep for one case; 0: none is."""
    seconds = tuning().cell_seconds * tree.work
    if isinstance(tree, StoredTree) or tree.is_log or not tree.is_possible or seconds < tuning().least_sweep_seconds:
        return 0.0
    return tuning().alternative_share * seconds


def group_limit(tree: CompiledTree, cases: int, case_seconds: float) -> float:
    """Maximum seconds of the eliminations for a group of cases that each take so many in a sweep; 0: none."""
    if tree.is_log or case_seconds < tuning().least_sweep_seconds:
        return 0.0
    return tuning().margin * min(_group_seconds(tree), cases * case_seconds)


def group_work(tree: CompiledTree | StoredTree, cases: int, case_seconds: float) -> float:
    """Maximum work of a sweep over a group's tree for which it is made; 0: for none."""
    return tuning().alternative_share * tree.work if cases * case_seconds >= _group_seconds(tree) else 0.0


def _group_seconds(tree: CompiledTree | StoredTree) -> float:
    return len(tree.problem.variables) * tuning().group_tree_variable_seconds


class QueryAnswer:
    """One case of a problem of weights: its factors, known likelihoods by variable, and where it will be answered."""

    def __init__(
        self, factors: WrittenFactors, known: Mapping[int, NDArray[np.float64]], place: TablePlace = CPU
    ) -> None:
        self._place = place
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

    def relevant(self, memory: int) -> frozenset[int]:
        """Variables of the factors on which the probability of the evidence depends: their posteriors need no other."""
        if self._case is None:
            return frozenset()
        plan = self._plan((), memory)
        return frozenset(v for group in plan.groups for v in plan.variables(group))

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
            self._plans[hidden] = CasePlan(self._case, hidden, place=self._place._replace(memory=memory))
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
    for number in looked(range(len(cases))):
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
