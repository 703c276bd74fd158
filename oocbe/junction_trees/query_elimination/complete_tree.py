"""A junction tree of dense cliques, and a sweep over it for one case."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oocbe.algebra.complete_tables.complete_stream import BucketFunction, CompleteBucket
from oocbe.errors import ResourceError
from oocbe.junction_trees.kernels.cpu.complete_cliques import add_up_products, inner_cells, weight_ends
from oocbe.junction_trees.query_elimination.factors import DenseFactor
from oocbe.junction_trees.support import Clique, children_of, cliques_of
from oocbe.junction_trees.sweeping import NEGLIGIBLE
from oocbe.junction_trees.weights import log_of
from oocbe.kernels.choice import complete_kernels
from oocbe.kernels.cpu.threads import run_all, thread_count
from oocbe.kernels.interface import host_array, is_device_array
from oocbe.model.semiring import LOG_SUM_EXP, MAX_SUM, SUM_PRODUCT, Semiring
from oocbe.model.settings.tuning import tuning
from oocbe.runtime.deadline import check_deadline, current_flag, looked

LEAST_PRODUCT = -1000.0
"""Binary logarithm of a product of a clique's tables, at or above which neither it nor partial products underflow in
float64; smaller ones are bounded by it."""

LEAST_SHARE = 2.0**-900
"""Smallest number of a message in probabilities, relative to its greatest; smaller ones are taken for 0. The message
down, at most its reciprocal, then does not overflow, and hides no underflow of the other tables' product."""

SMALL_CELLS = 1 << 15
"""Cells of a clique up to which its tables are summed cell by cell, because arranging them for the vectorised kernels
would take longer."""

ARRANGED_CELLS = 3
"""Joined cells of a larger clique that are summed in the time in which a cell of its tables and of its message is
arranged: some 20 ns, and 7 ns for a joined cell, or 1 ns after arranging."""

SHARED_CELLS = 1 << 20
"""Minimum cells of a clique for a pass by several threads."""

MOST_JOINED = 1 << 26
"""Cells of a clique up to which its product is stored for its messages; a larger one is joined again for each."""

FLOAT64 = np.dtype(np.float64)

DEVICE_CELLS = 300.0
"""Cells that a device joins in the time of one on the CPU (``cell_seconds``). On an H200, the largest cliques of
linkage_23 and linkage_11 of UAI 2014 were joined at 0.15 to 0.8 trillion cells a second; at 0.1 with all others."""

LIKE_ONE, LEAST_BOUND, MOST_SIBLINGS = 2.0**16, -500.0, 30
"""Greatest number of a large message, or its reciprocal, up to which its numbers are not divided by it, and the
bound of the least number's binary logarithm down to which that is not computed: each would take a pass over the
message, a third of the time of the join. Products of so many messages to a clique, and of one down, fit float64."""


def sent_cells(cells: NDArray[np.float64], sizes: NDArray[Any], parents: NDArray[np.int64]) -> NDArray[np.float64]:
    """Cells of the messages between the cliques of an order, whose buckets have so many cells.

    sizes : of the variables eliminated in the buckets. parents : by bucket, the one that its message goes to; -1: none.
    If a message has all variables of its parent, both buckets are one clique, and the message has no cells.
    """
    messages: NDArray[np.float64] = cells / sizes
    inside = np.flatnonzero((parents >= 0) & np.isclose(messages, cells[parents]))
    messages[inside[np.unique(parents[inside], return_index=True)[1]]] = 0.0
    return messages


def table_bytes(
    cells: NDArray[np.float64], messages: NDArray[np.float64], parents: NDArray[np.int64], place: TablePlace
) -> float:
    """Bytes of the tables that a tree holds at a time: messages, each thread's sums for the messages of one clique, its
    fused functions, and its product if that is stored.

    cells : of the buckets, and of the messages. parents : as for :func:`sent_cells`.
    """
    largest = float(cells.max(initial=0.0))
    most = 2 * messages.sum() if place.goes_down else collecting_order(messages.tolist(), parents.tolist())[1]
    if place.backend == "cpu":
        most += 2 * thread_count() * messages.max(initial=0.0)
    stored = min(largest, MOST_JOINED) if place.goes_down else 0.0
    return FLOAT64.itemsize * float(most + 2 * largest / tuning().fused_part + stored)


def collecting_order(messages: Sequence[float], parents: Sequence[int]) -> tuple[list[int], float]:
    """Nodes of a forest, children before their parents, such that few cells of messages are held at a time, and these
    cells; the least ones if a message is held from its making until that of its parent's message (Liu 1986).

    parents : of each node, with a larger number; -1: none.
    """
    children: list[list[tuple[float, float, int]]] = [[] for _ in messages]
    roots, most = [], 0.0
    for node, (cells, parent) in enumerate(zip(messages, parents, strict=True)):
        peak = held = 0.0
        children[node].sort(key=lambda child: child[1] - child[0])
        for child_peak, child_cells, _ in children[node]:
            peak = max(peak, held + child_peak)
            held += child_cells
        peak = max(peak, held + cells)
        if parent >= 0:
            children[parent].append((peak, cells, node))
        else:
            roots.append(node)
            most = max(most, peak)
    found, waiting = [], roots
    while waiting:
        node = waiting.pop()
        found.append(node)
        waiting += [child for _, _, child in children[node]]
    return found[::-1], most


class TablePlace(NamedTuple):
    """Where a tree's tables are computed.

    backend : ``cpu``, or ``cuda``, which joins large cliques on the device. memory : bytes that tables may take there.
    goes_down : whether messages are also sent down, so that all of them are held.
    has_order : whether the order of a case is taken without a search.
    """

    backend: str = "cpu"
    memory: float = 1e99
    goes_down: bool = True
    has_order: bool = False

    def weighed(self, cells: NDArray[np.float64]) -> NDArray[np.float64]:
        """Cells, those of tables on the device as so many cells of the CPU as take the same time."""
        share = 1.0 if self.backend == "cpu" else 1 / DEVICE_CELLS
        return cells * np.where(cells < tuning().device_cells, 1.0, share)


CPU = TablePlace()
"""The processors, without a limit of memory."""


def _least_above(values: Any) -> float:
    """The least number above 0 of a large array with one; in parts, as each takes memory of its own."""
    parts = (values[first : first + MOST_JOINED] for first in range(0, len(values), MOST_JOINED))
    return min(float(positive.min()) for part in parts if len(positive := part[part > 0]))


@dataclass(frozen=True, eq=False)
class _Table:
    """A function over some variables, the first one fastest.
    ``values``, float64 (cells,), are between 0 and 1, or logarithms, in a host or device array; up to :data:`LIKE_ONE`
    unless ``is_divided``. ``least`` is the binary logarithm of its least weight above 0, ``lost`` a bound of each
    value's error by underflow; logarithms have none."""

    scope: tuple[int, ...]
    values: NDArray[np.float64]
    least: float
    lost: float = 0.0
    is_divided: bool = True

    @cached_property
    def address(self) -> tuple[int, int]:
        """Main memory address of its cells, and their number."""
        return self.values.ctypes.data, len(self.values)


class UnderflowError(ArithmeticError):
    """Products of probabilities that are too small for float64 may matter; the case needs logarithms."""


class CompleteTree:
    """A tree of dense cliques over a connected set of factors.

    sizes : of the domains, by variable. factors : of the tree.
    order, separators : variables as they are eliminated, and the separator of each one's bucket.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        factors: Sequence[DenseFactor],
        order: Sequence[int],
        separators: Sequence[Sequence[int]],
    ) -> None:
        self._sizes, self._factors = sizes, factors
        self.cliques: tuple[Clique, ...] = cliques_of(order, separators)
        home = {v: number for number, clique in enumerate(self.cliques) for v in clique.own}
        place = {v: i for i, v in enumerate(order)}
        self._assigned: list[list[int]] = [[] for _ in self.cliques]
        for number, factor in enumerate(factors):
            self._assigned[home[min(factor.scope, key=place.__getitem__)]].append(number)
        self._children = children_of(self.cliques)
        self._home = home
        self._steps_of: dict[tuple[int, ...], dict[int, int]] = {}
        self._size_arrays: dict[tuple[int, ...], NDArray[np.int64]] = {}

    @cached_property
    def cells(self) -> tuple[int, ...]:
        """Number of cells of each clique."""
        return tuple(math.prod(self._sizes[v] for v in clique.variables) for clique in self.cliques)

    @cached_property
    def collecting(self) -> list[int]:
        """Numbers of the cliques in the order of their messages up."""
        messages = [math.prod(self._sizes[v] for v in clique.shared) for clique in self.cliques]
        return collecting_order(messages, [-1 if c.parent is None else c.parent for c in self.cliques])[0]

    def answer(
        self, asked: Collection[int], backend: str, is_log: bool = False
    ) -> tuple[float, dict[int, NDArray[np.float64]]]:
        """The logarithm of the sum of all weights, and posteriors of some variables, float64 (domain size,) each.

        backend : ``cpu``, or ``cuda``, which joins large cliques on the device.
        is_log : whether to compute with logarithms.
        Raises UnderflowError: the case needs ``is_log``; TimeLimitError: the deadline passed.
        """
        sweep = _Sweep(self, backend, is_log)
        logarithm = sweep.collect(keeps=bool(asked))
        return logarithm, sweep.distribute(asked) if asked and logarithm > -math.inf else {}

    def best(self, backend: str) -> tuple[dict[int, int], float] | None:
        """The best assignment, a value index by variable, and the logarithm of its weight; None if every weight is 0.

        Raises TimeLimitError: the deadline passed.
        """
        sweep = _Sweep(self, backend, True, MAX_SUM)
        logarithm = sweep.collect()
        return None if logarithm == -math.inf else (sweep.best(), logarithm)

    def steps(self, scope: tuple[int, ...]) -> dict[int, int]:
        """Strides of a table in cells, by variable, the first one fastest."""
        known = self._steps_of.get(scope)
        if known is None:
            known, cells = {}, 1
            for v in scope:
                known[v] = cells
                cells *= self._sizes[v]
            self._steps_of[scope] = known
        return known

    def size_array(self, variables: tuple[int, ...]) -> NDArray[np.int64]:
        """Domain sizes, int64 (variables,)."""
        known = self._size_arrays.get(variables)
        if known is None:
            known = self._size_arrays[variables] = np.array([self._sizes[v] for v in variables], dtype=np.int64)
        return known

    def places(self, asked: Collection[int]) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
        """Targets by clique, and by clique of the separator: of the smallest table that has each, as a marginal."""
        best = {v: (self.cells[self._home[v]], self._home[v], False) for v in asked}
        for number in range(len(self.cliques)):
            scope = self.cliques[number].shared
            cells = math.prod(self._sizes[v] for v in scope)
            for v in scope:
                if v in best and cells < best[v][0]:
                    best[v] = (cells, number, True)
        at_cliques: dict[int, list[int]] = {}
        at_separators: dict[int, list[int]] = {}
        for v, (_, number, is_separator) in best.items():
            (at_separators if is_separator else at_cliques).setdefault(number, []).append(v)
        return at_cliques, at_separators


class _Sweep:
    def __init__(self, tree: CompleteTree, backend: str, is_log: bool, semiring: Semiring | None = None) -> None:
        self._tree, self._backend, self._is_log = tree, backend, is_log
        self._semiring = semiring or (LOG_SUM_EXP if is_log else SUM_PRODUCT)
        self._up: dict[int, _Table] = {}
        self._factors = [self._table(factor) for factor in tree._factors]

    def _table(self, factor: DenseFactor) -> _Table:
        values = np.ascontiguousarray(factor.weights).reshape(-1)
        least = math.log2(weight_ends(values)[0])
        return _Table(factor.scope[::-1], log_of(values) if self._is_log else values, least)

    def collect(self, keeps: bool = True) -> float:
        """Send messages from all cliques to their parents; the logarithm of the sum, or maximum, of all weights.

        keeps : whether messages are kept for :meth:`distribute` or :meth:`best`.
        """
        tree = self._tree
        logarithm = sum(factor.logarithm for factor in tree._factors)
        for number in looked(tree.collecting):
            clique, inputs = tree.cliques[number], self._inputs(number)
            for child in () if keeps else tree._children[number]:
                del self._up[child]
            bound = sum(table.least for table in inputs)
            lost = sum(table.lost for table in inputs)
            if not self._is_log and bound < LEAST_PRODUCT:
                lost += 2.0**LEAST_PRODUCT
            lost *= LIKE_ONE ** sum(not table.is_divided for table in inputs)
            if self._adds_up(inputs, clique):
                (values,) = self._added_up(inputs, clique.variables, [clique.shared])
            else:
                values = self._eliminate(inputs, clique.shared, clique.own)
            is_small = not is_device_array(values) and len(values) <= SMALL_CELLS
            least, greatest = weight_ends(values) if is_small and not self._is_log else (0.0, float(values.max()))
            lost *= math.prod(tree._sizes[v] for v in clique.own)
            if lost > NEGLIGIBLE * greatest and not self._is_log:
                raise UnderflowError
            if not greatest > self._semiring.zero:
                return -math.inf
            if self._is_log:
                logarithm += greatest
                self._up[number] = _Table(clique.shared, values - greatest, 0.0)
                continue
            is_far = not 1 / LIKE_ONE <= greatest <= LIKE_ONE or bound < LEAST_BOUND
            siblings = 0 if clique.parent is None else len(tree._children[clique.parent])
            if not is_small and not is_far and 0 < siblings <= MOST_SIBLINGS:
                self._up[number] = _Table(clique.shared, values, bound, lost, is_divided=False)
                continue
            logarithm += math.log(greatest)
            values /= greatest
            least = least / greatest if is_small else _least_above(values)
            lost /= greatest
            if least < LEAST_SHARE:
                values[values < LEAST_SHARE] = 0.0
                lost, least = lost + LEAST_SHARE, LEAST_SHARE
            self._up[number] = _Table(clique.shared, values, math.log2(least), lost)
        return logarithm

    def distribute(self, asked: Collection[int]) -> dict[int, NDArray[np.float64]]:
        """Compute posteriors of some variables from the root down."""
        tree = self._tree
        at_cliques, at_separators = tree.places(asked)
        needed = set(at_cliques)
        for number, clique in enumerate(tree.cliques):
            if (number in needed or number in at_separators) and clique.parent is not None:
                needed.add(clique.parent)
        down: dict[int, _Table] = {}
        found: dict[int, NDArray[np.float64]] = {}
        for number in looked(sorted(needed, reverse=True)):
            inputs = self._inputs(number)
            if number in down:
                inputs.append(down.pop(number))
            children = [c for c in tree._children[number] if c in needed or c in at_separators]
            wanted = [tree.cliques[c].shared for c in children] + [(v,) for v in at_cliques.get(number, ())]
            shares = self._shares(inputs, tree.cliques[number].variables, wanted)
            for child, share in zip(children, shares, strict=False):
                scope = tree.cliques[child].shared
                for v in at_separators.get(child, ()):
                    found[v] = self._posterior(self._shares([_Table(scope, share, 0.0)], scope, [(v,)])[0])
                if child in needed:
                    down[child] = _Table(scope, self._quotient(share, self._up[child].values), 0.0)
            for v, share in zip(at_cliques.get(number, ()), shares[len(children) :], strict=True):
                found[v] = self._posterior(share)
        return found

    def best(self) -> dict[int, int]:
        """The best value of each variable, from the root down, after :meth:`collect` in the max-sum semiring."""
        sizes = self._tree._sizes
        found: dict[int, int] = {}
        for number in range(len(self._tree.cliques) - 1, -1, -1):
            own = self._tree.cliques[number].own
            scores = np.zeros([sizes[v] for v in own])
            for table in self._inputs(number):
                axes = table.scope[::-1]
                values = host_array(table.values).reshape([sizes[v] for v in axes])
                left = [v for v in axes if v not in found]
                values = values[tuple(found.get(v, slice(None)) for v in axes)]
                values = values.transpose([left.index(v) for v in own if v in left])
                scores += values.reshape([sizes[v] if v in left else 1 for v in own])
            chosen = np.unravel_index(int(scores.argmax()), scores.shape)
            found |= zip(own, map(int, chosen), strict=True)
        return found

    def _inputs(self, number: int) -> list[_Table]:
        """Tables that a clique multiplies, without its parent's message."""
        tree = self._tree
        return [self._factors[f] for f in tree._assigned[number]] + [self._up[c] for c in tree._children[number]]

    def _shares(
        self, inputs: Sequence[_Table], variables: tuple[int, ...], wanted: Sequence[tuple[int, ...]]
    ) -> list[NDArray[np.float64]]:
        """The product of tables marginalised to each of some scopes; each sums to 1 (or its exponentials do)."""
        if not self._is_log and not self._takes_device(variables):
            found = self._added_up(inputs, variables, wanted)
            for values in found:
                values /= values.sum()
            return found
        if len(wanted) > 1 and math.prod(self._tree._sizes[v] for v in variables) <= MOST_JOINED:
            joined = self._eliminate(inputs, variables, ())
            inputs = [_Table(tuple(variables), joined, 0.0)]
        found = []
        for scope in wanted:
            others = [v for v in variables if v not in scope]
            values = self._eliminate(inputs, scope, others)
            if self._is_log:
                greatest = values.max()
                values = values - (greatest + math.log(float(np.exp(values - greatest).sum())))
            else:
                values = values / values.sum()
            found.append(values)
        return found

    def _adds_up(self, inputs: Sequence[_Table], clique: Clique) -> bool:
        """Whether arranging the tables of a clique would take longer than joining them cell by cell."""
        cells = math.prod(self._tree._sizes[v] for v in clique.variables)
        if self._is_log or cells <= SMALL_CELLS:
            return not self._is_log
        scopes = (clique.shared, *(table.scope for table in inputs))
        others = sum(math.prod(self._tree._sizes[v] for v in scope) for scope in scopes)
        return cells <= ARRANGED_CELLS * others and not self._takes_device(clique.variables)

    def _takes_device(self, variables: Sequence[int]) -> bool:
        cells = math.prod(self._tree._sizes[v] for v in variables)
        return self._backend != "cpu" and not self._is_log and cells >= tuning().device_cells

    def _added_up(
        self, tables: Sequence[_Table], variables: tuple[int, ...], wanted: Sequence[tuple[int, ...]]
    ) -> list[NDArray[np.float64]]:
        """The product of the tables of a clique, marginalised to each of some scopes, on the CPU."""
        sizes = [self._tree._sizes[v] for v in variables]
        cells = math.prod(sizes)
        if cells > SMALL_CELLS:
            bucket = self._bucket(variables, (), "cpu")
            functions = [BucketFunction(t.scope, host_array(t.values), self._steps(t.scope)) for t in tables]
            tables = [_Table(f.scope, f.values, 0.0) for f in bucket.fused(functions)]
        tables = [replace(t, values=host_array(t.values)) if is_device_array(t.values) else t for t in tables]
        ends = list(accumulate((math.prod(self._tree._sizes[v] for v in scope) for scope in wanted), initial=0))
        arguments = (
            np.array([table.address for table in tables], dtype=np.int64).reshape(len(tables), 2),
            self._strides([table.scope for table in tables], variables),
            self._tree.size_array(variables),
            np.array(ends, dtype=np.int64),
            self._strides(wanted, variables),
        )
        if cells < SHARED_CELLS:
            out = add_up_products(*arguments, 0, -1, current_flag())
        else:
            runs = cells // inner_cells(sizes)
            threads = min(thread_count(), runs)
            cuts = [runs * thread // threads for thread in range(threads + 1)]
            out, *parts = run_all(add_up_products, [(*arguments, *cut, current_flag()) for cut in pairwise(cuts)])
            for part in parts:
                out += part
        check_deadline()
        return [out[first:last] for first, last in pairwise(ends)]

    def _steps(self, scope: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(self._tree.steps(scope).values())

    def _strides(self, scopes: Sequence[tuple[int, ...]], variables: Sequence[int]) -> NDArray[np.int64]:
        """Strides in elements of tables over some of the variables, the first one fastest."""
        found = [[steps.get(v, 0) for v in variables] for steps in map(self._tree.steps, scopes)]
        return np.array(found, dtype=np.int64).reshape(len(scopes), len(variables))

    def _eliminate(
        self, tables: Sequence[_Table], scope: Sequence[int], eliminated: Sequence[int]
    ) -> NDArray[np.float64]:
        """Join tables and marginalise to ``scope``; the result is a host or device array, as the kernel made it."""
        functions = [BucketFunction(t.scope, t.values, self._steps(t.scope)) for t in tables]
        if self._takes_device((*scope, *eliminated)):
            try:
                return self._bucket(scope, eliminated, "cuda").eliminate(functions)
            except ResourceError:  # too little device memory
                self._backend = "cpu"
        here = [replace(f, values=host_array(f.values)) for f in functions]
        return self._bucket(scope, eliminated, "cpu").eliminate(here)

    def _bucket(self, scope: Sequence[int], eliminated: Sequence[int], backend: str) -> CompleteBucket:
        kernels = complete_kernels(0, backend)
        return CompleteBucket(scope, eliminated, self._tree._sizes, self._semiring, FLOAT64, kernels)

    def _quotient(self, share: NDArray[np.float64], message: NDArray[np.float64]) -> NDArray[np.float64]:
        """The message to a child: its separator's posteriors by its own message, overwritten; 0 where that is 0."""
        if is_device_array(share) != is_device_array(message):
            share, message = host_array(share), host_array(message)
        if self._is_log:
            message[message == -np.inf] = 0.0
            share -= message
        else:
            message[message == 0.0] = 1.0
            share /= message
        return share

    def _posterior(self, share: Any) -> NDArray[np.float64]:
        values: NDArray[np.float64] = host_array(share)
        return np.exp(values) if self._is_log else values
