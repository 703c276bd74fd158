"""A sweep over many cases, in blocks of cases that are swept together, on the CPU or a CUDA device; expected counts.

The counts are the sums in the expectation step of learning with incomplete data (Lauritzen 1995).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import LimitError, ResourceError
from oocbe.junction_trees.compiled import CompiledTree
from oocbe.junction_trees.conditioning import ConditionedInput
from oocbe.junction_trees.evidence import UNOBSERVED, Cases, scaled_likelihood
from oocbe.junction_trees.kernels.cpu.sweeps import enter_evidence
from oocbe.junction_trees.stored.answers import sweep_stored
from oocbe.junction_trees.stored.tree import StoredTree
from oocbe.junction_trees.sweeping import NEGLIGIBLE, Messages, blank, collect, distribute, evidence, prior, shares_of
from oocbe.junction_trees.weights import log_of
from oocbe.kernels.choice import backend_named, cuda_works
from oocbe.kernels.cpu.threads import run_all, thread_count
from oocbe.model.settings.machine import available_memory
from oocbe.model.settings.option_values import parse_backend
from oocbe.model.settings.tuning import tuning
from oocbe.runtime.deadline import check_deadline, looked

if TYPE_CHECKING:
    from oocbe.junction_trees.kernels.cuda.sweeps import Block, DeviceTree, SweepPlan


PickedInputs: TypeAlias = Sequence[tuple[ConditionedInput, NDArray[np.int64]]]
"""Inputs of a tree, each with the column that each case picks, int64 (cases,)."""


def evidence_columns(tree: CompiledTree, cases: Cases) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Variables with evidence in any case, and where the message rows of each begin and end (variables, 2)."""
    soft = np.zeros(cases.observed.shape[1], dtype=bool)
    soft[list(cases.likelihoods)] = True
    columns = np.flatnonzero((cases.observed != UNOBSERVED).any(axis=0) | soft)
    return columns, np.stack([tree.variable_start[columns], tree.variable_start[columns + 1]], axis=1)


class BlockSweep:
    """A sweep over cases, block by block; started by ``run``.

    tree : possible, see :attr:`oocbe.junction_trees.compiled.CompiledTree.is_possible`.
    targets : variables whose posteriors are computed.
    posteriors : float64 (cases, values of all targets). logarithms : float64 (cases,), -inf for impossible ones.
    """

    def __init__(self, tree: CompiledTree, cases: Cases, targets: Sequence[int], inputs: PickedInputs = ()) -> None:
        self._tree, self._cases, self._targets, self._inputs = tree, cases, targets, inputs
        self._columns, self._starts = evidence_columns(tree, cases)
        self.posteriors = np.zeros((len(cases), sum(tree.problem.sizes[v] for v in targets)))
        self.logarithms = np.full(len(cases), -np.inf)


class CaseSweep(BlockSweep):
    """A sweep on the CPU; adds rows' probabilities over all cases to ``expected``, float64 (rows,), if not None."""

    def __init__(
        self,
        tree: CompiledTree,
        cases: Cases,
        targets: Sequence[int],
        inputs: PickedInputs = (),
        expected: NDArray[np.float64] | None = None,
        rows_of: Collection[int] = (),
    ) -> None:
        super().__init__(tree, cases, targets, inputs)
        self._expected = expected
        self._spare: list[tuple[Messages, NDArray[np.float64]]] = []
        self._shares = shares_of(tree, targets)
        self._program = tree.shape.program(self._columns.tolist(), targets, rows_of)

    def run(self, *, is_log: bool = False) -> None:
        """Sweep over all cases, in logarithms if ``is_log`` or where needed; TimeLimitError: the deadline passed."""
        doubtful = np.arange(len(self._cases))
        case_bytes = 2 * 8 * max(1, self._tree.message_rows)
        room = min(tuning().work_bytes, int(available_memory() * tuning().small_share) // thread_count())
        width = max(1, min(tuning().block_cases, room // case_bytes))
        if not is_log:
            doubtful = self._run(doubtful, width, self._tree.is_log)
        if len(doubtful):
            check_deadline()
            self._run(doubtful, width, True)
        self._spare.clear()

    def _run(self, cases: NDArray[np.int64], width: int, is_log: bool) -> NDArray[np.int64]:
        prior(self._tree, is_log)  # computed once here instead of by each thread
        width = max(1, min(width, -(-len(cases) // thread_count()))) if self._expected is None else width
        blocks = [cases[first : first + width] for first in range(0, len(cases), width)]
        if self._expected is None:
            trusted = run_all(self._sweep, [(block, is_log) for block in blocks])
        else:  # all blocks add to the same numbers
            trusted = [self._sweep(block, is_log) for block in blocks]
        doubtful = [block[~own] for block, own in zip(blocks, trusted, strict=True)]
        return np.concatenate([np.empty(0, dtype=np.int64), *doubtful])

    def _sweep(self, block: NDArray[np.int64], is_log: bool) -> NDArray[np.bool_]:
        """Sweep over the cases of a block; returns a mask of the reliable results."""
        tree, before = self._tree, prior(self._tree, is_log)
        messages, posteriors = self._room(len(block), is_log)
        messages.peaks[:] = before.peaks
        messages.losses[:] = before.losses
        messages.logs[:] = before.logs
        observed = self._cases.observed[np.ix_(block, self._columns)]
        constants = (messages.zero, messages.everything)
        enter_evidence(messages.values, before.values[:, 0], observed, self._starts, *constants)
        for (entered, columns), first in zip(self._inputs, tree.input_start.tolist(), strict=False):
            picked = entered.weights[:, columns[block]]
            messages.values[first : first + len(picked)] = log_of(picked) if is_log else picked
        factors = np.zeros(len(block))
        for v, given in self._cases.likelihoods.items():
            scaled, logarithms = scaled_likelihood(given[block])
            factors += logarithms
            rows = messages.values[tree.variable_start[v] : tree.variable_start[v + 1]]
            if is_log:
                rows += log_of(scaled)
            else:
                rows *= scaled
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
        """Memory for the messages and posteriors of a block, reused from an earlier one if there is any."""
        if self._spare:
            with suppress(IndexError):  # another thread may have taken it
                messages, posteriors = self._spare.pop()
                if posteriors.shape[1] == cases and messages.is_log == is_log:
                    return messages, posteriors
        messages = blank(self._tree, cases, is_log)
        return messages, np.empty_like(messages.values)


def functions_of(tree: CompiledTree | StoredTree) -> dict[int, list[int]]:
    """Numbers of the problem's functions, by the clique that covers the scope; -1: no variables."""
    home = {v: number for number, clique in enumerate(tree.cliques) for v in clique.own}
    place = {v: i for i, v in enumerate(tree.order)}
    functions: dict[int, list[int]] = {}
    for number, f in enumerate(tree.problem.functions):
        functions.setdefault(home[min(f.scope, key=place.__getitem__)] if f.scope else -1, []).append(number)
    return functions


MOST_CELLS = 1 << 27
"""Maximum number of cells of one function's array of counts, which is one GiB."""


def expected_counts(
    tree: CompiledTree | StoredTree, cases: Cases
) -> tuple[list[NDArray[np.float64]], NDArray[np.float64]]:
    """For each of the problem's functions the expected number of possible cases with each assignment of its scope.

    Returns counts : float64, an axis for each variable of the function's scope, in its order.
    logarithms : float64 (cases,), of each case's evidence; cases with -inf are not counted.
    Raises LimitError: a function over more than :data:`MOST_CELLS` cells.
    """
    problem = tree.problem
    shapes = [[problem.sizes[v] for v in f.scope] for f in problem.functions]
    for shape in shapes:
        if math.prod(shape) > MOST_CELLS:
            raise LimitError(
                f"{problem.name}: counts of a function over {len(shape)} variables have {math.prod(shape):.3g} "
                f"numbers, more than {MOST_CELLS:,}"
            )
    counts = [np.zeros(shape) for shape in shapes]
    if not tree.is_possible:
        return counts, np.full(len(cases), -np.inf)
    functions = functions_of(tree)

    def add(clique: int, values: Callable[[int], NDArray[Any]], expected: NDArray[np.float64]) -> None:
        """Add the probabilities of rows of a clique; ``values``: of a variable in each of them."""
        for number in functions[clique]:
            index = np.ravel_multi_index([values(v) for v in problem.functions[number].scope], shapes[number])
            counts[number].reshape(-1)[:] += np.bincount(index, expected, counts[number].size)

    covering = functions.keys() - {-1}
    if isinstance(tree, StoredTree):
        takers = {c: lambda piece, expected, c=c: add(c, piece.values, expected) for c in covering}
        _, logarithms = sweep_stored(tree, cases, (), takers)
    else:
        expected = np.zeros(tree.total_rows)
        sweep = CaseSweep(tree, cases, (), expected=expected, rows_of=covering)
        sweep.run()
        logarithms = sweep.logarithms
        for clique in covering:
            first, last = tree.arrays.row_start[clique : clique + 2]
            add(clique, partial(tree.values, clique), expected[first:last])
    for number in functions.get(-1, ()):
        counts[number] += float(np.isfinite(logarithms).sum())
    return counts, logarithms


_TREES: WeakKeyDictionary[CompiledTree, DeviceTree] = WeakKeyDictionary()
"""Trees cached on the device for later batches."""


def usable_backend(name: object) -> str:
    """A backend's name, checked; UsageError: no such name, or ``cuda`` without a usable device."""
    found = parse_backend("backend", name)
    if found == "cuda":
        backend_named(found)
    return found


def takes_device(tree: CompiledTree, cases: int, backend: str) -> bool:
    """Whether a sweep over so many cases runs on the device.

    backend : ``cpu``, ``cuda``, or ``auto``: the device if there is one, with enough work and enough memory for it.
        Trees in logarithms run on the CPU with every backend.
    """
    if backend == "cpu" or tree.is_log or not tree.cliques or not cases:
        return False
    if backend == "cuda":
        return True
    if cases * tree.work < thread_count() * tuning().device_tree_work or not cuda_works(wanted=False):
        return False
    return tree in _TREES or _has_room(tree)


def _has_room(tree: CompiledTree) -> bool:
    from oocbe.junction_trees.kernels.cuda.sweeps import tree_bytes
    from oocbe.kernels.cuda.transfer.memory import device_room

    backend_named("cuda")  # sets the limit of device memory
    return tree_bytes(tree.arrays) <= tuning().device_tree_share * device_room()


def swept(
    tree: CompiledTree | StoredTree, cases: Cases, targets: Sequence[int], backend: str, inputs: PickedInputs = ()
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Posteriors and logarithms of evidence by a sweep from disk, on CPU or device; as :class:`BlockSweep`."""
    if isinstance(tree, StoredTree):
        return sweep_stored(tree, cases, targets)
    if takes_device(tree, len(cases), backend):
        on_device = DeviceSweep(tree, cases, targets, inputs)
        try:
            on_device.run()
        except ResourceError:
            if backend == "cuda":
                raise
        else:
            return on_device.posteriors, on_device.logarithms
    sweep = CaseSweep(tree, cases, targets, inputs)
    sweep.run()
    return sweep.posteriors, sweep.logarithms


class DeviceSweep(BlockSweep):
    """A sweep on CuPy's current device, of a tree that is not in logarithms.

    Cases that would lose precision in probabilities are swept over on the CPU, in logarithms.
    """

    def run(self) -> None:
        """Sweep over all cases; ResourceError: no room on the device for tree and few cases; TimeLimitError."""
        device = _device_tree(self._tree)
        plan = device.plan(self._tree.shape.program(self._columns.tolist(), self._targets))
        self._asked = device.targets(plan, *_target_rows(self._tree, self._targets))
        upload = backend_named("cuda").upload
        self._weights = [upload(np.ascontiguousarray(entered.weights)) for entered, _ in self._inputs]
        most = self._most_cases(device, plan)
        while True:
            try:
                left = self._run(device, plan, most)
                break
            except ResourceError:
                if most == tuning().least_device_cases:
                    raise
                most = max(tuning().least_device_cases, most // 2)
        if len(left):
            check_deadline()
            inputs = [(entered, columns[left]) for entered, columns in self._inputs]
            sweep = CaseSweep(self._tree, self._cases.some(left), self._targets, inputs)
            sweep.run(is_log=True)
            self.posteriors[left], self.logarithms[left] = sweep.posteriors, sweep.logarithms

    def _most_cases(self, device: DeviceTree, plan: SweepPlan) -> int:
        from oocbe.junction_trees.kernels.cuda.sweeps import Block
        from oocbe.kernels.cuda.transfer.memory import device_room

        case_bytes = Block.case_bytes(device, plan.belief_rows) + 3 * 8 * self.posteriors.shape[1]
        most = min(tuning().device_block_bytes, int(tuning().device_tree_share * device_room())) // case_bytes
        short = int(tuning().device_block_work / self._tree.work)
        return max(tuning().least_device_cases, min(tuning().device_block_cases, len(self._cases), most, short))

    def _run(self, device: DeviceTree, plan: SweepPlan, most: int) -> NDArray[np.int64]:
        """Sweep over all cases in similar blocks of at most ``most``; returns those with unreliable results."""
        from oocbe.junction_trees.kernels.cuda.sweeps import Block

        count = len(self._cases)
        width = -(-count // -(-count // most))
        block = Block(device, plan.belief_rows, width)
        doubtful = [np.empty(0, dtype=np.int64)]
        for first in looked(range(0, count, width)):
            own = np.arange(first, min(first + width, count))
            doubtful.append(own[~self._sweep(device, plan, block, own)])
        return np.concatenate(doubtful)

    def _sweep(self, device: DeviceTree, plan: SweepPlan, block: Block, own: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Sweep over the cases of a block; returns a mask of the reliable results."""
        tree, factors = self._tree, np.zeros(len(own))
        block.enter(self._cases.observed[own[0] : own[-1] + 1], self._columns, self._starts)
        for v, given in self._cases.likelihoods.items():
            scaled, logarithms = scaled_likelihood(given[own])
            factors += logarithms
            block.multiply(int(tree.variable_start[v]), scaled)
        for weights, (_, columns), first in zip(self._weights, self._inputs, tree.input_start.tolist(), strict=False):
            block.pick(first, weights, columns[own])
        found, logarithms, losses = device.answer(plan, block, self._asked, len(own), NEGLIGIBLE)
        trusted: NDArray[np.bool_] = losses <= NEGLIGIBLE
        self.posteriors[own[0] : own[-1] + 1] = found
        self.logarithms[own] = np.where(trusted, logarithms + factors, -np.inf)
        return trusted


def _device_tree(tree: CompiledTree) -> DeviceTree:
    from oocbe.junction_trees.kernels.cuda.sweeps import DeviceTree

    known = _TREES.get(tree)
    if known is None:
        backend_named("cuda")  # sets the limit of device memory
        parents = [-1 if clique.parent is None else clique.parent for clique in tree.cliques]
        everything = tree.shape.program((), (), stale=range(len(parents)))
        known = DeviceTree(tree.arrays, parents, tree.message_rows, tree.logarithm, everything)
        _TREES[tree] = known
    return known


def _target_rows(tree: CompiledTree, targets: Sequence[int]) -> tuple[list[list[NDArray[np.int64]]], list[int]]:
    """The message rows summed for each target's values, and their separator's clique; -1: the variable's own."""
    rows, cliques = [], []
    for v in targets:
        separator, size = int(tree.shape.places.separator[v]), tree.problem.sizes[v]
        cliques.append(separator)
        if separator < 0:
            rows.append(list(np.arange(tree.variable_start[v], tree.variable_start[v] + size).reshape(-1, 1)))
            continue
        values = tree.values(separator, v)[tree.rows[separator].groups[:-1]]
        order = np.argsort(values, kind="stable") + tree.arrays.message_start[separator]
        rows.append(np.split(order, np.cumsum(np.bincount(values, minlength=size))[:-1]))
    return rows, cliques
