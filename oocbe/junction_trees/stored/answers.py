"""Queries on a tree with rows on disk: one case, many cases, counts.

A sweep goes clique by clique, piece by piece: messages up to the roots and posteriors down again. The results are those
of :mod:`oocbe.junction_trees.sweeping` in memory. A clique needs memory for its children's messages and its own at
once, but not for its rows; other messages may be on disk meanwhile.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import ResourceError
from oocbe.junction_trees.evidence import UNOBSERVED, CaseEvidence, Cases, scaled_likelihood
from oocbe.junction_trees.kernels.cpu.clique_rows import draw_piece
from oocbe.junction_trees.kernels.cpu.sweeps import collect_piece, distribute_piece, finish_shares, scale_message
from oocbe.junction_trees.stored.folder import PieceRows
from oocbe.junction_trees.stored.tree import StoredTree
from oocbe.junction_trees.sweeping import NEGLIGIBLE
from oocbe.junction_trees.weights import log_of
from oocbe.model.settings.tuning import tuning
from oocbe.runtime.deadline import check_deadline, current_flag, looked
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

    tables : of each edge, for :meth:`oocbe.junction_trees.stored.folder.PieceRows.numbers`; children come first.
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
    """Messages by clique, float64 (separator rows, cases): in ``memory`` bytes, or else in an unnamed file."""

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
    """Messages of some cases, which :meth:`close` releases.

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

    def close(self) -> None:
        """Release the messages."""
        self.messages.close()

    def edges(self, number: int, asked: Collection[int] = ()) -> Edges:
        """The incoming messages of a clique, in order: its children's, its evidence, and ones for target variables."""
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
                place[:] = log_of(known) if self._is_log else known
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
                logarithms += message[0] if self._is_log else log_of(message[0])
                lost += self._losses[number]
            self.messages.put(number, message)
        return logarithms, lost <= NEGLIGIBLE

    def distribute(
        self, targets: Collection[int], trusted: NDArray[np.bool_], counted: Mapping[int, Any] | None = None
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


def sweep_stored(
    tree: StoredTree, cases: Cases, targets: Sequence[int], counted: Mapping[int, Any] | None = None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Posteriors of some variables, (cases, values of all of them), and logarithms of evidence, (cases,).

    counted : see :meth:`StoredSweep.distribute`.

    Raises ResourceError: memory has no room for a clique's messages; CorruptDataError: rows are damaged; DiskError: the
    disk is full; TimeLimitError: the deadline passed.
    """
    sizes = tree.problem.sizes
    found = np.zeros((len(cases), sum(sizes[v] for v in targets)))
    logarithms = np.full(len(cases), -np.inf)
    every = np.arange(len(cases))
    width = cases_at_once(tree)
    for is_log in [tree.is_log] if tree.is_log else [False, True]:
        doubtful: list[NDArray[np.int64]] = []
        for first in range(0, len(every), width):
            block = every[first : first + width]
            known, factors = _likelihoods(sizes, cases.some(block))
            with closing(StoredSweep(tree, known, len(block), is_log)) as sweep:
                totals, trusted = sweep.collect()
                if targets or counted:
                    shares = sweep.distribute(targets, trusted, counted)
                    rows = [shares[v] for v in targets]
                    taken = np.concatenate([np.empty((0, len(block))), *rows]).T
                    found[block[trusted]] = taken[trusted]
                logarithms[block[trusted]] = (totals + factors)[trusted]
            doubtful.append(block[~trusted])
        every = np.concatenate([np.empty(0, dtype=np.int64), *doubtful])
        if not len(every):
            break
    found[logarithms == -np.inf] = 0.0
    return found, logarithms


def _likelihoods(sizes: Sequence[int], cases: Cases) -> tuple[dict[int, NDArray[np.float64]], NDArray[np.float64]]:
    """Likelihoods of a block by variable (domain size, cases), scaled to a maximum of 1; logarithms of the divisors."""
    known: dict[int, NDArray[np.float64]] = {}
    factors = np.zeros(len(cases))
    for v in np.flatnonzero((cases.observed != UNOBSERVED).any(axis=0)).tolist():
        column = cases.observed[:, v]
        known[v] = ((column == UNOBSERVED) | (np.arange(sizes[v])[:, None] == column)).astype(np.float64)
    for v, given in cases.likelihoods.items():
        scaled, logarithms = scaled_likelihood(given)
        factors += logarithms
        known[v] = known.get(v, 1.0) * scaled
    return known, factors


class StoredCalibration:
    """One case over a stored tree, the counterpart of :class:`oocbe.junction_trees.query_engine.Calibration`.

    Each query that no earlier sweep answered makes a sweep.

    known : evidence by variable.
    """

    def __init__(self, tree: StoredTree, known: Mapping[int, CaseEvidence]) -> None:
        self._tree = tree
        self._inputs = {v: own.likelihood for v, own in known.items()}
        self._logarithm: float | None = None

    @property
    def log_evidence(self) -> float:
        """Natural logarithm of the total weight of the assignments consistent with the evidence; -inf for none."""
        if self._logarithm is None:
            self._logarithm = float(sweep_stored(self._tree, self._case(), ())[1][0])
        return self._logarithm

    @cached_property
    def _posteriors(self) -> list[NDArray[np.float64]]:
        """The posteriors of all variables, because a sweep reads the tree twice whatever the targets."""
        sizes = self._tree.problem.sizes
        shares, logarithms = sweep_stored(self._tree, self._case(), range(len(sizes)))
        self._logarithm = float(logarithms[0])
        return np.split(shares[0], np.cumsum(sizes)[:-1])

    def posteriors(self, targets: Sequence[int]) -> list[NDArray[np.float64]]:
        """Posteriors of some variables, float64 (domain size,) each; zeros if the evidence is impossible."""
        return [self._posteriors[v].copy() for v in targets]

    def best(self) -> tuple[dict[int, int], float] | None:
        """The most probable values of all variables, and the logarithm of their weight; None: impossible evidence."""
        tree = self._tree
        known, factors = self._known()
        with closing(StoredSweep(tree, known, 1, True)) as sweep:
            logarithm = float(sweep.collect(maximises=True)[0][0]) + factors
            if logarithm == -np.inf:
                return None
            found: dict[int, int] = {}
            separator_row = {number: 0 for number, own in enumerate(tree.stored) if own.clique.parent is None}
            for number in reversed(range(len(tree.stored))):
                self._take_best(sweep, number, separator_row, found)
        return found, logarithm

    def _take_best(self, sweep: StoredSweep, number: int, separator_row: dict[int, int], found: dict[int, int]) -> None:
        """The best row of a clique for a given separator row: its values, and its children's separator rows."""
        own, group = self._tree.stored[number], separator_row[number]
        edges = sweep.edges(number)
        best = -np.inf
        having = [p for p in own.pieces if p.first_group <= group < p.first_group + p.groups]
        for piece in self._tree.rows(number, having):
            first, last = piece.groups[group - piece.first_group :][:2].tolist()
            maps = piece.numbers(*edges.tables)[:, first:last]
            weights = piece.weights[first:last]
            scores = weights.copy() if self._tree.is_log else np.log(weights)
            for offset, numbers in zip(edges.offsets, maps, strict=False):
                scores += edges.incoming[offset + numbers, 0]
            row = int(scores.argmax())
            if scores[row] > best:
                best = float(scores[row])
                values = {v: int(piece.values(v)[first + row]) for v in own.clique.variables}
                below = {c: int(numbers[row]) for c, numbers in zip(own.children, maps, strict=False)}
        found |= values
        separator_row |= below

    def sample(self, count: int, seed: int) -> NDArray[np.int64]:
        """Value indices drawn from the posterior, int64 (count, variables); the evidence must be possible."""
        tree, random = self._tree, np.random.default_rng(seed)
        found = np.zeros((count, len(tree.problem.variables)), dtype=np.int64)
        with closing(StoredSweep(tree, self._known()[0], 1, True)) as sweep:
            sweep.collect()
            above = {
                number: np.zeros(count, dtype=np.int64)
                for number, own in enumerate(tree.stored)
                if own.clique.parent is None
            }
            for number in looked(reversed(range(len(tree.stored)))):
                self._draw(sweep, number, above, random.random(count), found)
        return found

    def _draw(
        self,
        sweep: StoredSweep,
        number: int,
        above: dict[int, NDArray[np.int64]],
        uniform: NDArray[np.float64],
        found: NDArray[np.int64],
    ) -> None:
        """Rows of a clique, one for each draw's row of the separator."""
        own, groups = self._tree.stored[number], above.pop(number)
        draws = np.lexsort((uniform, groups))
        wanted, shares = groups[draws], uniform[draws]
        edges = sweep.edges(number)
        message = sweep.messages.get(number)[:, 0]
        state, sums = np.array([0, -1]), np.zeros(1)
        values = np.full((len(own.sizes), len(draws)), -1, dtype=np.int64)
        below = np.zeros((len(own.children), len(draws)), dtype=np.int64)
        for piece, weights, maps in sweep.rows(number, edges):
            picked = np.full(len(draws), -1, dtype=np.int64)
            steps = (weights, piece.up, maps, edges.offsets, edges.incoming, message)
            draw_piece(*steps, wanted, shares, state, sums, picked, current_flag())
            check_deadline()
            here = np.flatnonzero(picked >= 0)
            for row, v in zip(values, own.clique.variables, strict=True):
                row[here] = piece.values(v)[picked[here]]
            for row, numbers in zip(below, maps, strict=False):
                row[here] = numbers[picked[here]]
            if state[0] == len(draws):
                break
        # A draw without a row, by rounding, follows one of its group that has the group's last row.
        having = np.maximum.accumulate(np.where(values[0] >= 0, np.arange(len(draws)), 0)) if len(draws) else draws
        for row, v in zip(values, own.clique.variables, strict=True):
            if v in own.clique.own:
                found[draws, v] = row[having]
        for c, row in zip(own.children, below, strict=True):
            above[c] = np.empty(len(draws), dtype=np.int64)
            above[c][draws] = row[having]

    def _known(self) -> tuple[dict[int, NDArray[np.float64]], float]:
        factors = sum(float(np.log(own.max())) for own in self._inputs.values())
        return {v: (own / own.max())[:, None] for v, own in self._inputs.items()}, factors

    def _case(self) -> Cases:
        observed = np.full((1, len(self._tree.problem.variables)), UNOBSERVED)
        return Cases(observed, {v: own[None] for v, own in self._inputs.items()})
