"""Queries on a tree with rows on disk: one case, many cases, counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.junction_trees.evidence import UNOBSERVED, CaseEvidence, Cases, scaled_likelihood
from oocbe.junction_trees.kernels.cpu.piece_sweeps import draw_piece
from oocbe.junction_trees.stored.sweep import StoredSweep, cases_at_once
from oocbe.junction_trees.stored.tree import StoredTree
from oocbe.runtime.deadline import check_deadline, current_flag


def sweep_stored(
    tree: StoredTree, cases: Cases, targets: Sequence[int], counted: Mapping[int, Any] | None = None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Posteriors of some variables, (cases, values of all of them), and logarithms of evidence, (cases,).

    counted : see :meth:`oocbe.junction_trees.stored.sweep.StoredSweep.distribute`.

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
            with StoredSweep(tree, known, len(block), is_log) as sweep:
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
    """One case over a stored tree, the counterpart of :class:`oocbe.junction_trees.calibration.Calibration`.

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
        with StoredSweep(tree, known, 1, True) as sweep:
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
        with StoredSweep(tree, self._known()[0], 1, True) as sweep:
            sweep.collect()
            above = {
                number: np.zeros(count, dtype=np.int64)
                for number, own in enumerate(tree.stored)
                if own.clique.parent is None
            }
            for number in reversed(range(len(tree.stored))):
                check_deadline()
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
