"""One case with changing evidence: only affected messages are recomputed, and posteriors are computed on demand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from oocbe.junction_trees.arrays import Program
from oocbe.junction_trees.compiled import CompiledTree
from oocbe.junction_trees.evidence import CaseEvidence
from oocbe.junction_trees.explanations import best_assignment
from oocbe.junction_trees.kernels.cpu.single_sweeps import draw_rows
from oocbe.junction_trees.sweeping import Messages, Shares, collect, distribute, evidence, prior, shares_of
from oocbe.runtime.deadline import check_deadline

_TRUSTED = np.ones(1, dtype=np.bool_)


class Calibration:
    """The messages for one case of a tree that :attr:`oocbe.junction_trees.compiled.CompiledTree.is_possible`."""

    def __init__(self, tree: CompiledTree) -> None:
        self._tree = tree
        self._inputs: dict[int, CaseEvidence] = {}
        self._shares: tuple[list[int], tuple[Shares, list[int], NDArray[np.int64]]] | None = None
        self._messages = prior(tree, tree.is_log).copied()
        self._changed: set[int] = set()  # variables
        self._logarithm: float | None = None

    def change(self, v: int, known: CaseEvidence | None) -> None:
        """Set the evidence of a variable; None: none."""
        if known is None:
            if self._inputs.pop(v, None) is None:
                return
        else:
            self._inputs[v] = known
        self._changed.add(v)
        self._logarithm = None

    @property
    def log_evidence(self) -> float:
        """Natural logarithm of the total weight of the assignments consistent with the evidence; -inf for none."""
        if self._logarithm is None:
            self._collect()
        assert self._logarithm is not None
        return self._logarithm

    def posteriors(self, targets: Sequence[int]) -> list[NDArray[np.float64]]:
        """Posteriors of some variables, float64 (domain size,) each; zeros if the evidence is impossible."""
        if self.log_evidence == -np.inf:
            return [np.zeros(self._tree.problem.sizes[v]) for v in targets]
        messages = replace(self._messages, values=self._messages.values.copy())  # which the sweep overwrites
        shares, ends, wanted = self._shares_of(list(targets))
        program = self._tree.shape.program(self._inputs, wanted)
        rows = np.empty_like(messages.values)
        distribute(self._tree, program, messages, rows, _TRUSTED)
        out = np.zeros((1, ends[-1]))
        shares.take(rows, out)
        values = out[0]
        return [values[first:last] for first, last in pairwise(ends)]

    def sample(self, count: int, seed: int) -> NDArray[np.int64]:
        """Value indices drawn from the posterior, int64 (count, variables); the evidence must be possible."""
        assert self.log_evidence > -np.inf
        program = self._tree.shape.program(self._inputs, (), rows_of=range(len(self._tree.shape.cliques)))
        return _draw(self._tree, program, self._messages, count, seed)

    def best(self) -> tuple[dict[int, int], float] | None:
        """The most probable values of all variables, and the logarithm of their weight; None: impossible evidence."""
        inputs = {v: known.likelihood for v, known in self._inputs.items()}
        return best_assignment(self._tree, inputs, range(len(self._tree.problem.variables)))

    def _shares_of(self, targets: list[int]) -> tuple[Shares, list[int], NDArray[np.int64]]:
        """Variables' shares, ends of their values, and as an array; cached, as successive cases ask the same."""
        if self._shares is None or self._shares[0] != targets:
            shares = shares_of(self._tree, targets)
            self._shares = targets, (shares, shares.out_start.tolist(), np.array(targets, dtype=np.int64))
        return self._shares[1]

    def _collect(self) -> None:
        """Update the messages, in logarithms where probabilities would lose precision."""
        changed = self._changed
        if self._messages.is_log != self._tree.is_log:  # an earlier case needed logarithms, and this one may not
            self._messages = prior(self._tree, self._tree.is_log).copied()
            changed = set(self._inputs)
        self._send(changed)
        logarithms, trusted = evidence(self._tree, self._messages)
        if not trusted[0]:
            self._messages = prior(self._tree, True).copied()
            self._send(set(self._inputs))
            logarithms, _ = evidence(self._tree, self._messages)
        self._changed = set()
        self._logarithm = float(logarithms[0]) + sum(known.logarithm for known in self._inputs.values())

    def _send(self, changed: set[int]) -> None:
        tree, messages = self._tree, self._messages
        start, rows, everything = tree.variable_starts, messages.values[:, 0], messages.everything
        for v in changed:
            known = self._inputs.get(v)
            if known is None:
                rows[start[v] : start[v + 1]] = everything
            elif messages.is_log:
                with np.errstate(divide="ignore"):
                    rows[start[v] : start[v + 1]] = np.log(known.scaled)
            else:
                rows[start[v] : start[v + 1]] = known.scaled
        stale = tree.shape.places.clique[list(changed)].tolist()
        collect(tree, tree.shape.program(self._inputs, (), stale=stale), messages)


def _draw(tree: CompiledTree, program: Program, messages: Messages, count: int, seed: int) -> NDArray[np.int64]:
    """Value indices drawn from the posterior, int64 (count, variables), independent of one another.

    It goes from the roots down, and draws a row of each clique given what was drawn above. The program distributes to
    all cliques. The messages are those of one case that is possible, as collecting leaves them.
    """
    random = np.random.default_rng(seed)
    arrays = tree.log_arrays if messages.is_log else tree.arrays
    cliques = tree.shape.cliques
    found = np.zeros((count, len(tree.problem.variables)), dtype=np.int64)
    above = {int(root): np.zeros(count, dtype=np.int64) for root in tree.roots}
    rows = np.empty(count, dtype=np.int64)
    for place, c in enumerate(program.distributed.tolist()):
        check_deadline()
        edges = program.reads[program.read_start[place] : program.read_start[place + 1]]
        uniform = random.random(count)
        draw_rows(arrays, c, edges, messages.values[:, 0], messages.is_log, above.pop(c), uniform, rows)
        for v, values in zip(cliques[c].variables, tree.rows[c].values, strict=True):
            if v in cliques[c].own:
                found[:, v] = values[rows]
        for child in tree.shape.children[c]:
            above[child] = tree.rows[c].numbers[child][rows].astype(np.int64)
    return found
