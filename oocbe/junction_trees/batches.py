"""Many cases at once, in blocks of cases that are swept together."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from oocbe.junction_trees.compiled import CompiledTree
from oocbe.junction_trees.conditioning import Conditioned, Input, condition
from oocbe.junction_trees.evidence import UNOBSERVED, Cases
from oocbe.junction_trees.shares import shares_of
from oocbe.junction_trees.stored.answers import sweep_stored
from oocbe.junction_trees.stored.tree import StoredTree
from oocbe.junction_trees.sweeping import Messages, blank, collect, distribute, evidence, prior
from oocbe.kernels.cpu.threads import run_all, thread_count
from oocbe.kernels.cpu.trees.blocks import enter_evidence
from oocbe.settings.machine import available_memory
from oocbe.system.deadline import look

EXACT, IMPOSSIBLE = "exact", "impossible"
"""Status of a case: its numbers are right up to rounding; or what it observes has the probability 0."""

BLOCK_CASES = 64
"""Cases swept together at most: a row's cost besides arithmetic is small then; with more, its numbers and those of
the messages that it reads leave the innermost cache."""

BLOCK_BYTES, MEMORY_PARTS = 1 << 29, 8
"""Bytes of a block's messages at most; and of how many parts of the memory here all blocks together take one."""

LEAST_CASES = 8
"""Cases of a block however large its messages are: a cache line of each row."""

SECONDS_OF_WORK = 0.5e-9
"""What a row, or an entry of a map, takes for a case of a block, about, on one core."""

CONDITIONING_SECONDS, VARIABLE_SECONDS = 0.002, 0.0003
"""What making a tree for a group of cases takes at least, and for each variable, about."""

WORTHWHILE = 0.8
"""Share of the whole tree's work from which on a tree of its own is no gain for a group."""

CONDITIONED_BYTES = 1 << 30
"""Bytes that the rows of a group's tree may take; it is smaller than the whole one, or not used."""

CONDITIONED_TREES = 32
"""Trees of groups that are remembered with each tree, for batches to come."""

_CONDITIONED: WeakKeyDictionary[CompiledTree | StoredTree, dict[tuple[bytes, frozenset[int]], Conditioned | None]]
_CONDITIONED = WeakKeyDictionary()
"""By tree, observed variables and what is asked, the tree of the group; None where there is no better one."""


@dataclass(frozen=True, eq=False)
class BatchResult:
    """What a batch found.

    Attributes
    ----------
    marginals : by target, float64 (cases, domain size): posterior probabilities, 0 in impossible cases.
    joints : by pair of variables, float64 (cases, first's size, second's size); likewise.
    log_evidence : float64 (cases,), natural logarithm of the probability of what is observed; -inf where it is 0.
    status : str (cases,), :data:`EXACT` or :data:`IMPOSSIBLE`.
    """

    marginals: Mapping[str, NDArray[np.float64]]
    joints: Mapping[tuple[str, ...], NDArray[np.float64]]
    log_evidence: NDArray[np.float64]
    status: NDArray[np.str_]


class CaseSweep:
    """A sweep over cases, block by block; :meth:`run` it.

    Parameters
    ----------
    tree : possible, see :attr:`oocbe.junction_trees.compiled.CompiledTree.is_possible`.
    targets : variables whose posteriors are wanted.
    expected : float64 (rows,), to which the probabilities of rows are added over all cases, or None.
    rows_of : cliques whose rows these are.
    inputs : of the tree, each with the column that each case picks, int64 (cases,).

    Attributes
    ----------
    posteriors : float64 (cases, values of all targets). logarithms : float64 (cases,), -inf for impossible ones.
    """

    def __init__(
        self,
        tree: CompiledTree,
        cases: Cases,
        targets: Sequence[int],
        expected: NDArray[np.float64] | None = None,
        rows_of: Collection[int] = (),
        inputs: Sequence[tuple[Input, NDArray[np.int64]]] = (),
    ) -> None:
        soft = np.zeros(cases.observed.shape[1], dtype=bool)
        soft[list(cases.likelihoods)] = True
        self._tree, self._cases, self._expected, self._inputs = tree, cases, expected, inputs
        self._spare: list[tuple[Messages, NDArray[np.float64]]] = []
        self._columns = np.flatnonzero((cases.observed != UNOBSERVED).any(axis=0) | soft)
        self._starts = np.stack([tree.variable_start[self._columns], tree.variable_start[self._columns + 1]], axis=1)
        self._shares = shares_of(tree, targets)
        self._program = tree.shape.program(self._columns.tolist(), targets, rows_of)
        self.posteriors = np.zeros((len(cases), int(self._shares.out_start[-1])))
        self.logarithms = np.full(len(cases), -np.inf)

    def run(self) -> None:
        """Sweep over all cases, in probabilities, and in logarithms where these would lose something.

        Raises
        ------
        TimeLimitError : the deadline came.
        """
        every = np.arange(len(self._cases))
        is_log = self._tree.is_log
        doubtful = self._run(every, self._block_cases, is_log)
        if len(doubtful):
            look()
            self._run(doubtful, LEAST_CASES, True)
        self._spare.clear()

    @property
    def _block_cases(self) -> int:
        case_bytes = 2 * 8 * max(1, self._tree.message_rows)
        room = min(BLOCK_BYTES, available_memory() // (MEMORY_PARTS * thread_count()))
        return max(LEAST_CASES, min(BLOCK_CASES, room // case_bytes))

    def _run(self, cases: NDArray[np.int64], width: int, is_log: bool) -> NDArray[np.int64]:
        """Sweep over some cases; those whose result cannot be trusted, and is not taken."""
        prior(self._tree, is_log)  # computed once, and not by each thread
        width = max(1, min(width, -(-len(cases) // thread_count()))) if self._expected is None else width
        blocks = [cases[first : first + width] for first in range(0, len(cases), width)]
        if self._expected is None:
            trusted = run_all(self._sweep, [(block, is_log) for block in blocks])
        else:  # all blocks add to the same numbers
            trusted = [self._sweep(block, is_log) for block in blocks]
        doubtful = [block[~own] for block, own in zip(blocks, trusted, strict=True)]
        return np.concatenate([np.empty(0, dtype=np.int64), *doubtful])

    def _sweep(self, block: NDArray[np.int64], is_log: bool) -> NDArray[np.bool_]:
        """Sweep over the cases of a block; for which of them the result can be trusted."""
        tree, before = self._tree, prior(self._tree, is_log)
        messages, posteriors = self._room(len(block), is_log)
        messages.peaks[:] = before.peaks
        messages.losses[:] = before.losses
        messages.logs[:] = before.logs
        observed = self._cases.observed[np.ix_(block, self._columns)]
        constants = (messages.nothing, messages.everything)
        enter_evidence(messages.values, before.values[:, 0], observed, self._starts, *constants)
        for (entered, columns), first in zip(self._inputs, tree.input_start.tolist(), strict=False):
            picked = entered.weights[:, columns[block]]
            rows = messages.values[first : first + len(picked)]
            with np.errstate(divide="ignore"):
                rows[:] = np.log(picked) if is_log else picked
        factors = self._enter_likelihoods(block, messages)
        collect(tree, self._program, messages)
        logarithms, trusted = evidence(tree, messages)
        distribute(tree, self._program, messages, posteriors, trusted, self._expected)
        found = np.zeros((len(block), self.posteriors.shape[1]))
        self._shares.take(posteriors, found)
        taken = trusted & (logarithms > -np.inf)
        self.posteriors[block[taken]] = found[taken]
        self.logarithms[block[taken]] = logarithms[taken] + factors[taken]
        self._spare.append((messages, posteriors))
        return trusted

    def _room(self, cases: int, is_log: bool) -> tuple[Messages, NDArray[np.float64]]:
        """Memory for the messages and posteriors of a block: that of an earlier one where there is such."""
        if self._spare:
            with suppress(IndexError):  # another thread may have taken it
                messages, posteriors = self._spare.pop()
                if posteriors.shape[1] == cases and messages.is_log == is_log:
                    return messages, posteriors
        messages = blank(self._tree, cases, is_log)
        return messages, np.empty_like(messages.values)

    def _enter_likelihoods(self, block: NDArray[np.int64], messages: Messages) -> NDArray[np.float64]:
        """Multiply likelihoods in, the greatest of each scaled to 1; logarithms of what they were divided by."""
        tree = self._tree
        factors = np.zeros(len(block))
        for v, given in self._cases.likelihoods.items():
            own = given[block]
            greatest = own.max(axis=1)
            factors += np.log(greatest)
            scaled = (own / greatest[:, None]).T
            rows = messages.values[tree.variable_start[v] : tree.variable_start[v + 1]]
            if messages.is_log:
                with np.errstate(divide="ignore"):
                    rows += np.log(scaled)
            else:
                rows *= scaled
        return factors


def sweep_cases(
    tree: CompiledTree | StoredTree, cases: Cases, targets: Sequence[int]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Posteriors of some variables, (cases, values of all of them), and logarithms of evidence, (cases,).

    Raises
    ------
    TimeLimitError : the deadline came.
    """
    sizes = tree.problem.sizes
    found = np.zeros((len(cases), sum(sizes[v] for v in targets)))
    logarithms = np.full(len(cases), -np.inf)
    if not tree.is_possible:
        return found, logarithms
    rest = np.ones(len(cases), dtype=bool)
    for group, conditioned in _conditioned_groups(tree, cases, targets):
        rest[group] = False
        found[group], logarithms[group] = _sweep_conditioned(sizes, conditioned, cases.some(group), targets)
    if rest.any() and isinstance(tree, StoredTree):
        found[rest], logarithms[rest] = sweep_stored(tree, cases.some(np.flatnonzero(rest)), targets)
    elif isinstance(tree, CompiledTree) and rest.any():
        sweep = CaseSweep(tree, cases.some(np.flatnonzero(rest)), targets)
        sweep.run()
        found[rest], logarithms[rest] = sweep.posteriors, sweep.logarithms
    return found, logarithms


def _conditioned_groups(
    tree: CompiledTree | StoredTree, cases: Cases, targets: Sequence[int]
) -> Iterator[tuple[NDArray[np.int64], Conditioned]]:
    """Groups of cases that observe the same variables, with a tree that is worth making for them.

    Where rows are on disk, that may be the group that observes nothing, too: what is asked about may fit the memory.
    """
    if len(cases) * tree.work * SECONDS_OF_WORK < CONDITIONING_SECONDS:
        return
    patterns, group_of = np.unique(cases.observed != UNOBSERVED, axis=0, return_inverse=True)
    for number, pattern in enumerate(patterns):
        look()
        group = np.flatnonzero(group_of.ravel() == number)
        observed = np.flatnonzero(pattern).tolist()
        saved = len(group) * tree.work * SECONDS_OF_WORK
        effort = CONDITIONING_SECONDS + len(tree.problem.variables) * VARIABLE_SECONDS
        if not (observed or isinstance(tree, StoredTree)) or saved < effort:
            continue
        needed = frozenset({*targets, *cases.likelihoods} - set(observed))
        known = _CONDITIONED.setdefault(tree, {})
        key = (pattern.tobytes(), needed)
        if key not in known:
            if len(known) == CONDITIONED_TREES:
                known.pop(next(iter(known)))
            room = min(CONDITIONED_BYTES, tree.memory // 4) if isinstance(tree, StoredTree) else CONDITIONED_BYTES
            known[key] = condition(tree, observed, needed, WORTHWHILE * tree.work, room)
        made = known[key]
        if made is not None:
            yield group, made


def _sweep_conditioned(
    sizes: Sequence[int], conditioned: Conditioned, cases: Cases, targets: Sequence[int]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Posteriors and logarithms of evidence of cases that observe the variables that a tree was made without."""
    number = {v: i for i, v in enumerate(conditioned.hidden)}
    seen = cases.observed
    hidden = np.full((len(cases), len(number)), UNOBSERVED)
    likelihoods = {number[v]: given for v, given in cases.likelihoods.items() if v in number}
    inputs = [(entered, entered.columns(seen)) for entered in conditioned.inputs]
    unknown = [v for v in targets if v in number]
    sweep = CaseSweep(conditioned.tree, Cases(hidden, likelihoods), [number[v] for v in unknown], inputs=inputs)
    sweep.run()
    logarithms = sweep.logarithms
    with np.errstate(divide="ignore"):
        for scalar in conditioned.scalars:
            logarithms = logarithms + np.log(scalar.weights[0, scalar.columns(seen)])
        for v, given in cases.likelihoods.items():
            if v not in number:
                logarithms = logarithms + np.log(given[np.arange(len(cases)), seen[:, v]])
    found = np.zeros((len(cases), sum(sizes[v] for v in targets)))
    ends = np.cumsum([0, *(sizes[v] for v in unknown)])
    places = {v: (first, last) for v, first, last in zip(unknown, ends, ends[1:], strict=False)}
    start = 0
    for v in targets:
        if v in places:
            first, last = places[v]
            found[:, start : start + sizes[v]] = sweep.posteriors[:, first:last]
        else:
            found[np.arange(len(cases)), start + seen[:, v]] = 1.0
        start += sizes[v]
    found[logarithms == -np.inf] = 0.0
    return found, logarithms
