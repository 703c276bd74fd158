"""Sweeps over a tree, in probabilities or in logarithms, for one case or many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from oocbe.junction_trees.compiled import CompiledTree, Program
from oocbe.junction_trees.kernels.cpu import sweeps
from oocbe.junction_trees.weights import log_of
from oocbe.runtime.deadline import check_deadline, current_flag

NEGLIGIBLE = 1e-14
"""Maximum relative error by underflow of a reliable sweep in probabilities."""


@dataclass(frozen=True, eq=False)
class Messages:
    """Messages of a sweep for a number of cases.

    values : float64 (message rows, cases), numbered as in :mod:`oocbe.junction_trees.compiled`.
    peaks, losses : float64 (cliques + variables + inputs, cases); logs : float64 (cliques, cases); see
        :func:`oocbe.junction_trees.kernels.cpu.sweeps.collect`. Not used in log space.
    is_log : whether values are logarithms.
    """

    values: NDArray[np.float64]
    peaks: NDArray[np.float64]
    losses: NDArray[np.float64]
    logs: NDArray[np.float64]
    is_log: bool

    @property
    def zero(self) -> float:
        """The semiring's zero."""
        return -np.inf if self.is_log else 0.0

    @property
    def everything(self) -> float:
        """The semiring's one."""
        return 0.0 if self.is_log else 1.0

    def copied(self) -> Messages:
        """A deep copy."""
        return Messages(self.values.copy(), self.peaks.copy(), self.losses.copy(), self.logs.copy(), self.is_log)


def blank(tree: CompiledTree, cases: int, is_log: bool) -> Messages:
    """Messages before anything is observed or sent."""
    rows = tree.message_rows
    cliques = len(tree.shape.cliques)
    senders = cliques + len(tree.problem.variables) + len(tree.input_rows)
    return Messages(
        np.full((rows, cases), 0.0 if is_log else 1.0),
        np.ones((senders, cases)),
        np.zeros((senders, cases)),
        np.zeros((cliques, cases)),
        is_log,
    )


_PRIORS: dict[bool, WeakKeyDictionary[CompiledTree, Messages]] = {False: WeakKeyDictionary(), True: WeakKeyDictionary()}
"""Messages without evidence of each tree, in probabilities and in logarithms."""


def prior(tree: CompiledTree, is_log: bool) -> Messages:
    """Messages of all cliques without evidence, one case; read-only."""
    known = _PRIORS[is_log].get(tree)
    if known is None:
        known = blank(tree, 1, is_log)
        collect(tree, tree.shape.program((), (), stale=range(len(tree.shape.cliques))), known)
        _PRIORS[is_log][tree] = known
    return known


def collect(
    tree: CompiledTree, program: Program, messages: Messages, maximised: NDArray[np.bool_] | None = None
) -> None:
    """Send messages up; cliques ``maximised``, bool (cliques,) or None, take maxima, of logarithms. TimeLimitError."""
    flag = current_flag()
    steps = (program.collected, program.collect_start, program.collect_reads)
    carried = (messages.values, messages.peaks, messages.losses, messages.logs)
    if messages.values.shape[1] == 1 and not messages.is_log:
        values, peaks, losses, logs = (array.reshape(-1) for array in carried)
        sweeps.collect_one(tree.arrays, *steps, values, peaks, losses, logs, flag)
    else:
        arrays = tree.log_arrays if messages.is_log else tree.arrays
        greatest = np.zeros(len(tree.shape.cliques), dtype=np.bool_) if maximised is None else maximised
        sweeps.collect(arrays, *steps, messages.is_log or None, greatest, *carried, flag)
    check_deadline()


def evidence(tree: CompiledTree, messages: Messages) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Logarithm of each case's total weight, -inf for none, and a mask of the reliable cases."""
    if messages.values.shape[1] == 1 and not messages.is_log:
        values, losses, logs = messages.values.reshape(-1), messages.losses.reshape(-1), messages.logs.reshape(-1)
        logarithm, lost = sweeps.evidence_one(tree.arrays, tree.roots, values, losses, logs)
        return np.array([tree.logarithm + logarithm]), np.array([lost <= NEGLIGIBLE])
    at_roots = messages.values[tree.arrays.message_start[tree.roots]]
    if messages.is_log:
        return tree.logarithm + at_roots.sum(axis=0), np.ones(at_roots.shape[1], dtype=np.bool_)
    logarithms = tree.logarithm + messages.logs.sum(axis=0) + log_of(at_roots).sum(axis=0)
    return logarithms, messages.losses[tree.roots].sum(axis=0) <= NEGLIGIBLE


def distribute(
    tree: CompiledTree,
    program: Program,
    messages: Messages,
    posteriors: NDArray[np.float64],
    trusted: NDArray[np.bool_],
    expected: NDArray[np.float64] | None = None,
) -> None:
    """Compute posteriors from the root down; the messages are overwritten.

    posteriors : float64 (message rows, cases), written for the edges that the program writes.
    trusted : bool (cases,), from :func:`evidence`; other cases get no probabilities.
    expected : float64 (rows,), to which the probabilities of the rows of the program's cliques are added, or None.
    Raises TimeLimitError: the deadline passed.
    """
    flag = current_flag()
    steps = (program.distributed, program.read_start, program.reads, program.write_start, program.writes)
    if not messages.is_log and expected is None and posteriors.shape[1] == 1 and trusted[0]:
        carried = messages.values.reshape(-1), posteriors.reshape(-1)
        sweeps.distribute_one(tree.arrays, tree.roots, *steps, *carried, flag)
        check_deadline()
        return
    rows = tree.arrays.message_start[tree.roots]
    at_roots = messages.values[rows]
    if messages.is_log:
        is_possible = (at_roots > -np.inf).all(axis=0)  # a case that is impossible at one root is impossible at all
        messages.values[rows] = np.where(is_possible, -at_roots, -np.inf)
    else:
        messages.values[rows] = np.divide(1.0, at_roots, out=np.zeros_like(at_roots), where=(at_roots > 0) & trusted)
    wanted = np.empty(0) if expected is None else expected
    arrays = tree.log_arrays if messages.is_log else tree.arrays
    is_log = messages.is_log or None
    sweeps.distribute(arrays, *steps, is_log, messages.values, messages.logs, posteriors, wanted, flag)
    check_deadline()


@dataclass(frozen=True, eq=False)
class Shares:
    """Arguments of :func:`oocbe.junction_trees.kernels.cpu.sweeps.take_shares` for some targets; attributes as there.

    out_start : int64 (targets + 1,); the last is the number of values of all.
    """

    begin: NDArray[np.int64]
    rows: NDArray[np.int64]
    map_start: NDArray[np.int64]
    maps: NDArray[np.int32]
    out_start: NDArray[np.int64]

    def take(self, posteriors: NDArray[np.float64], out: NDArray[np.float64]) -> None:
        """Add the shares of a block of cases to ``out``, float64 (cases, values of all targets)."""
        sweeps.take_shares(posteriors, self.begin, self.rows, self.map_start, self.maps, self.out_start, out)


def shares_of(tree: CompiledTree, targets: Sequence[int]) -> Shares:
    """The shares of some variables, given by index."""
    arrays, places = tree.arrays, tree.shape.places
    begin, rows, map_start = [], [], []
    maps: list[NDArray[np.int32]] = []
    end = 0
    for v in targets:
        separator = int(places.separator[v])
        if separator < 0:
            begin.append(int(tree.variable_start[v]))
            rows.append(tree.problem.sizes[v])
            map_start.append(-1)
            continue
        begin.append(int(arrays.message_start[separator]))
        own = tree.rows[separator]
        rows.append(own.separator_rows)
        map_start.append(end)
        maps.append(tree.values(separator, v)[own.groups[:-1]].astype(np.int32))
        end += own.separator_rows
    sizes = [tree.problem.sizes[v] for v in targets]
    return Shares(
        np.array(begin, dtype=np.int64),
        np.array(rows, dtype=np.int64),
        np.array(map_start, dtype=np.int64),
        np.concatenate([np.empty(0, dtype=np.int32), *maps]),
        np.cumsum([0, *sizes]).astype(np.int64),
    )
