"""A sweep over many cases on a CUDA device, and the choice of sweeps that run there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import ResourceError
from oocbe.junction_trees.case_sweeps import CaseSweep, evidence_columns
from oocbe.junction_trees.compiled import CompiledTree
from oocbe.junction_trees.conditioning import ConditionedInput
from oocbe.junction_trees.evidence import Cases, scaled_likelihood
from oocbe.junction_trees.stored.answers import sweep_stored
from oocbe.junction_trees.stored.tree import StoredTree
from oocbe.junction_trees.sweeping import NEGLIGIBLE
from oocbe.kernels.choice import backend_named, cuda_works
from oocbe.kernels.cpu.threads import thread_count
from oocbe.model.settings.option_values import parse_backend
from oocbe.model.settings.tuning import tuning
from oocbe.runtime.deadline import check_deadline

if TYPE_CHECKING:
    from oocbe.junction_trees.kernels.cuda.sweeps import Block, DeviceTree, SweepPlan

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
    tree: CompiledTree | StoredTree,
    cases: Cases,
    targets: Sequence[int],
    backend: str,
    inputs: Sequence[tuple[ConditionedInput, NDArray[np.int64]]] = (),
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Posteriors and logarithms of evidence by a sweep from disk, on CPU or device; as :class:`CaseSweep`."""
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
    sweep = CaseSweep(tree, cases, targets, inputs=inputs)
    sweep.run()
    return sweep.posteriors, sweep.logarithms


class DeviceSweep:
    """A sweep over cases, block by block, on CuPy's current device; started by :meth:`run`.

    Cases that would lose precision in probabilities are swept over on the CPU, in logarithms.

    As of :class:`CaseSweep`; the tree is not in logarithms.
    posteriors : float64 (cases, values of all targets). logarithms : float64 (cases,), -inf for impossible ones.
    """

    def __init__(
        self,
        tree: CompiledTree,
        cases: Cases,
        targets: Sequence[int],
        inputs: Sequence[tuple[ConditionedInput, NDArray[np.int64]]] = (),
    ) -> None:
        self._tree, self._cases, self._targets, self._inputs = tree, cases, targets, inputs
        self._columns, self._starts = evidence_columns(tree, cases)
        self.posteriors = np.zeros((len(cases), sum(tree.problem.sizes[v] for v in targets)))
        self.logarithms = np.full(len(cases), -np.inf)

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
            sweep = CaseSweep(self._tree, self._cases.some(left), self._targets, inputs=inputs)
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
        for first in range(0, count, width):
            check_deadline()
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
