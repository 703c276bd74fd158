"""A sweep over a stored tree: clique by clique, piece by piece, messages up to the roots and posteriors down again.

The results are those of :mod:`oocbe.junction_trees.sweeping` in memory. A clique needs memory for its children's
messages and its own at once, but not for its rows; other messages may be on disk meanwhile.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import ResourceError
from oocbe.junction_trees.kernels.cpu.sweeps import collect_piece, distribute_piece, finish_shares, scale_message
from oocbe.junction_trees.stored.pieces import PieceRows
from oocbe.junction_trees.stored.tree import StoredTree
from oocbe.junction_trees.sweeping import NEGLIGIBLE
from oocbe.model.settings.tuning import tuning
from oocbe.runtime.deadline import check_deadline, current_flag
from oocbe.tables.disk_budget import DiskBudget, NamelessFile
from oocbe.tables.scratch import default_parent

AT_WORK, WAITING = 2, 8
"""Messages of the current clique take at most 1 / AT_WORK of the memory, and waiting messages at most 1 / WAITING;
pieces take little."""

COPIES_IN, COPIES_OUT = 3, 2
"""Copies in memory of a clique's incoming messages, and of its own, on the way down: the messages, the sums for their
rows, and one copy from or to the waiting messages."""


class Edges(NamedTuple):
    """The incoming messages of a clique.

    tables : of each edge, for :meth:`oocbe.junction_trees.stored.pieces.PieceRows.numbers`; children come first.
    variables : of the edges after those of children.
    offsets : int64 (edges + 1,), where the rows of each begin, and where all end.
    incoming : float64 (rows of all edges, cases), logarithms or not.
    """

    tables: tuple[tuple[int | str, Sequence[int]], ...]
    variables: tuple[int, ...]
    offsets: NDArray[np.int64]
    incoming: NDArray[np.float64]


def cases_at_once(tree: StoredTree) -> int:
    """Cases that may be swept together; ResourceError: memory has no room for one case's messages of a clique."""
    most = 1
    for own in tree.stored:
        incoming = sum(own.child_rows) + sum(own.sizes)
        most = max(most, 8 * (COPIES_IN * incoming + COPIES_OUT * own.separator_rows))
    if most > tree.memory // AT_WORK:
        raise ResourceError(
            f"{tree.problem.name}: the messages of one clique take {most:,} bytes for a case, and a sweep "
            f"{AT_WORK} times as many, more than memory has room for, {tree.memory:,}; allow more memory, or find a "
            "better order (order_seconds)"
        )
    return min(tuning().block_cases, tree.memory // AT_WORK // most)


class StoredMessages:
    """Messages by number of the sending or receiving clique: float64 (rows of the separator, cases).

    They are in memory while they fit, else in an unnamed file.

    memory : limit of messages in memory, in bytes.
    """

    def __init__(self, memory: int) -> None:
        self._left = memory
        self._held: dict[int, NDArray[np.float64]] = {}
        self._places: dict[int, tuple[int, tuple[int, ...]]] = {}
        self._file: NamelessFile | None = None
        self._end = 0

    def put(self, number: int, message: NDArray[np.float64]) -> None:
        """Store a copy of a message, instead of an earlier one of its number and shape; DiskError: full, or failing."""
        if number not in self._held and number not in self._places and message.nbytes <= self._left:
            self._left -= message.nbytes
            self._held[number] = np.empty_like(message)
        if number in self._held:
            self._held[number][:] = message
            return
        data = np.ascontiguousarray(message).data.cast("B")
        if self._file is None:
            self._file = NamelessFile(DiskBudget(default_parent()), "messages of a junction tree")
        if number in self._places:
            self._file.write(data, self._places[number][0], 0)
            return
        self._file.write(data, self._end, len(data))
        self._places[number] = (self._end, message.shape)
        self._end += len(data)

    def get(self, number: int) -> NDArray[np.float64]:
        """A message, which the caller then owns."""
        if number in self._held:
            return self._held[number].copy()
        found = np.empty(self._places[number][1])
        self.read(number, found)
        return found

    def read(self, number: int, into: NDArray[np.float64]) -> None:
        """Copy a message into a C-contiguous array of its shape."""
        if number in self._held:
            into[:] = self._held[number]
        elif into.size:
            assert self._file is not None
            self._file.read(into.data.cast("B"), self._places[number][0])

    def close(self) -> None:
        """Release memory and file."""
        self._held.clear()
        if self._file is not None:
            self._file.close()
            self._file = None


class StoredSweep:
    """Messages of some cases; a context manager that releases them.

    observed : by variable, likelihoods, float64 (domain size, cases), at most 1 and not all 0.
    cases : their number, at most :func:`cases_at_once`. is_log : whether to use logarithms.
    """

    def __init__(self, tree: StoredTree, observed: Mapping[int, NDArray[np.float64]], cases: int, is_log: bool) -> None:
        self._tree, self._observed, self._cases, self._is_log = tree, observed, cases, is_log
        self._here: list[list[int]] = [[] for _ in tree.stored]
        for v in observed:
            self._here[tree.homes[v]].append(v)
        self.messages = StoredMessages(tree.memory // WAITING)
        self._peaks = np.ones((len(tree.stored), cases))
        self._losses = np.zeros((len(tree.stored), cases))
        self._logs = np.zeros((len(tree.stored), cases))  # of the divisors of messages

    def __enter__(self) -> StoredSweep:
        return self

    def __exit__(self, *_: object) -> None:
        self.messages.close()

    def edges(self, number: int, asked: Collection[int] = ()) -> Edges:
        """The incoming messages of a clique, in this order: its children's messages, its evidence, and ones for target
        variables."""
        own = self._tree.stored[number]
        variables = (*self._here[number], *(v for v in asked if v not in self._observed))
        rows = (*own.child_rows, *(self._tree.problem.sizes[v] for v in variables))
        offsets = np.cumsum([0, *rows]).astype(np.int64)
        incoming = np.full((offsets[-1], self._cases), 0.0 if self._is_log else 1.0)
        places = [incoming[first:last] for first, last in pairwise(offsets.tolist())]
        for c, place in zip(own.children, places, strict=False):
            self.messages.read(c, place)
        for v, place in zip(variables, places[len(own.children) :], strict=True):
            known = self._observed.get(v)
            if known is not None:
                place[:] = known
                if self._is_log:
                    with np.errstate(divide="ignore"):
                        np.log(place, out=place)
        below: list[tuple[int | str, Sequence[int]]] = [*zip(own.children, own.child_scopes, strict=True)]
        tables = (*below, *(("variable", (v,)) for v in variables))
        return Edges(tables, variables, offsets, incoming)

    def rows(self, number: int, edges: Edges) -> Iterator[tuple[PieceRows, NDArray[np.float64], NDArray[np.int32]]]:
        """The pieces of a clique, their weights (or logarithms, as in the sweep), and maps, int32 (edges, rows)."""
        for piece in self._tree.rows(number):
            weights = piece.weights
            if self._is_log and not self._tree.is_log:
                weights = np.log(weights)
            yield piece, weights, piece.numbers(*edges.tables)

    def collect(self, maximises: bool = False) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Send all messages up; returns the logarithm of each case's total weight, and a mask of reliable cases.

        maximises : return the greatest weight instead of the total one; in logarithms only.

        Raises CorruptDataError: rows are damaged; DiskError: the disk is full; TimeLimitError: the deadline passed.
        """
        tree, is_log = self._tree, self._is_log or None
        logarithms = np.full(self._cases, tree.logarithm)
        lost = np.zeros(self._cases)
        for number, own in enumerate(tree.stored):
            edges = self.edges(number)
            nothing = -np.inf if self._is_log else 0.0
            message, peak = np.full((own.separator_rows, self._cases), nothing), np.zeros(self._cases)
            for piece, weights, maps in self.rows(number, edges):
                steps = (weights, piece.groups, piece.first_group, maps, edges.offsets, edges.incoming, is_log)
                collect_piece(*steps, maximises, message, peak, current_flag())
                check_deadline()
            if not self._is_log:
                below = list(own.children)
                total, bound = self._losses[below].sum(axis=0), own.norm * self._peaks[below].prod(axis=0)
                scale_message(message, 0, len(message), bound, total, peak, self._losses[number], self._logs[number])
                self._peaks[number] = peak
                logarithms += self._logs[number]
            if own.clique.parent is None:
                with np.errstate(divide="ignore"):
                    logarithms += message[0] if self._is_log else np.log(message[0])
                lost += self._losses[number]
            self.messages.put(number, message)
        return logarithms, lost <= NEGLIGIBLE

    def distribute(
        self,
        targets: Collection[int],
        trusted: NDArray[np.bool_],
        counted: Mapping[int, Any] | None = None,
    ) -> dict[int, NDArray[np.float64]]:
        """Compute posteriors from the roots down; messages are overwritten.

        targets : variables. trusted : from :meth:`collect`; other cases get no probabilities.
        counted : by clique, a callback for each of its pieces and the probabilities of its rows, all cases together.
        Returns by target float64 (domain size, cases), zeros for impossible cases.
        Raises as :meth:`collect`.
        """
        tree, is_log, counted = self._tree, self._is_log or None, counted or {}
        asked: list[list[int]] = [[] for _ in tree.stored]
        for v in targets:
            asked[tree.homes[v]].append(v)
        visited = {*(tree.homes[v] for v in targets), *counted}
        for number, own in enumerate(tree.stored):
            if number in visited and own.clique.parent is not None:
                visited.add(own.clique.parent)
        self._enter_roots(trusted)
        found: dict[int, NDArray[np.float64]] = {}
        for number in sorted(visited, reverse=True):
            own = tree.stored[number]
            down, edges = self.messages.get(number), self.edges(number, asked[number])
            posteriors = np.zeros_like(edges.incoming)
            scale = np.exp(-self._logs[number])
            for piece, weights, maps in self.rows(number, edges):
                expected = np.zeros(len(weights) if number in counted else 0)
                steps = (weights, piece.groups, piece.first_group, maps, edges.offsets, edges.incoming, is_log)
                distribute_piece(*steps, down, scale, posteriors, expected, current_flag())
                check_deadline()
                if number in counted:
                    counted[number](piece, expected)
            for place in range(len(edges.tables)):
                first, last = edges.offsets[place : place + 2].tolist()
                is_child = place < len(own.children)
                finish_shares(posteriors, edges.incoming, first, last, is_child, is_log)
                if not is_child:
                    found[edges.variables[place - len(own.children)]] = posteriors[first:last].copy()
                elif own.children[place] in visited:
                    self.messages.put(own.children[place], edges.incoming[first:last])
            del down, edges, posteriors
        return {v: found[v] for v in targets}

    def _enter_roots(self, trusted: NDArray[np.bool_]) -> None:
        """Replace each root's message by its reciprocal, or by 0 for cases that are impossible at any root."""
        roots = [number for number, own in enumerate(self._tree.stored) if own.clique.parent is None]
        at_roots = np.concatenate([self.messages.get(number) for number in roots])
        is_possible = (at_roots > (-np.inf if self._is_log else 0.0)).all(axis=0) & trusted
        for number, message in zip(roots, at_roots, strict=True):
            if self._is_log:
                down = np.where(is_possible, -message, -np.inf)
            else:
                down = np.divide(1.0, message, out=np.zeros_like(message), where=is_possible)
            self.messages.put(number, down[None])
