"""One case whose evidence changes: messages are sent again only where it did, and posteriors brought down on demand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from oocbe.junction_trees.compiled import CompiledTree
from oocbe.junction_trees.explanations import best_assignment
from oocbe.junction_trees.samples import draw
from oocbe.junction_trees.shares import shares_of
from oocbe.junction_trees.sweeping import collect, distribute, evidence, prior


class Calibration:
    """The messages of a tree for one case.

    Parameters
    ----------
    tree : possible, see :attr:`oocbe.junction_trees.compiled.CompiledTree.is_possible`.
    """

    def __init__(self, tree: CompiledTree) -> None:
        self._tree = tree
        self._inputs: dict[int, NDArray[np.float64]] = {}
        self._messages = prior(tree, tree.is_log).copied()
        self._changed: set[int] = set()  # variables
        self._posteriors: dict[int, NDArray[np.float64]] = {}
        self._logarithm: float | None = None

    def change(self, v: int, likelihood: NDArray[np.float64] | None) -> None:
        """Set what is known of a variable, float64 (domain size,), not all zero; None: nothing."""
        before = self._inputs.get(v)
        if (before is None and likelihood is None) or (
            before is not None and likelihood is not None and np.array_equal(before, likelihood)
        ):
            return
        if likelihood is None:
            del self._inputs[v]
        else:
            self._inputs[v] = likelihood
        self._changed.add(v)
        self._posteriors.clear()
        self._logarithm = None

    @property
    def log_evidence(self) -> float:
        """Natural logarithm of the total weight of what agrees with what is known; -inf for none."""
        if self._logarithm is None:
            self._collect()
        assert self._logarithm is not None
        return self._logarithm

    def posteriors(self, targets: Sequence[int]) -> list[NDArray[np.float64]]:
        """Probabilities of the values of some variables, float64 (domain size,) each; zeros where nothing agrees."""
        missing = [v for v in targets if v not in self._posteriors]
        if missing and self.log_evidence > -np.inf:
            messages = self._messages.copied()
            program = self._tree.shape.program(self._inputs, missing)
            rows = np.empty_like(messages.values)
            distribute(self._tree, program, messages, rows, np.ones(1, dtype=np.bool_))
            shares = shares_of(self._tree, missing)
            out = np.zeros((1, int(shares.out_start[-1])))
            shares.take(rows, out)
            for v, first, last in zip(missing, shares.out_start, shares.out_start[1:], strict=False):
                self._posteriors[v] = out[0, first:last]
        elif missing:
            self._posteriors |= {v: np.zeros(self._tree.problem.sizes[v]) for v in missing}
        return [self._posteriors[v].copy() for v in targets]

    def sample(self, count: int, seed: int) -> NDArray[np.int64]:
        """Value indices drawn from the posterior, int64 (count, variables); what is known must be possible."""
        assert self.log_evidence > -np.inf
        program = self._tree.shape.program(self._inputs, (), rows_of=range(len(self._tree.shape.cliques)))
        return draw(self._tree, program, self._messages, count, seed)

    def best(self) -> tuple[dict[int, int], float] | None:
        """The most probable values of all variables, and the logarithm of their weight; None where nothing agrees."""
        return best_assignment(self._tree, self._inputs, range(len(self._tree.problem.variables)))

    def _collect(self) -> None:
        """Bring messages up to date, in logarithms where probabilities might lose something."""
        changed = self._changed
        if self._messages.is_log != self._tree.is_log:  # an earlier case needed logarithms; this one may not
            self._messages = prior(self._tree, self._tree.is_log).copied()
            changed = set(self._inputs)
        self._send(changed)
        logarithms, trusted = evidence(self._tree, self._messages)
        if not trusted[0]:
            self._messages = prior(self._tree, True).copied()
            self._send(set(self._inputs))
            logarithms, _ = evidence(self._tree, self._messages)
        self._changed = set()
        self._logarithm = float(logarithms[0]) + sum(float(np.log(own.max())) for own in self._inputs.values())

    def _send(self, changed: set[int]) -> None:
        tree, messages = self._tree, self._messages
        for v in changed:
            rows = messages.values[tree.variable_start[v] : tree.variable_start[v + 1], 0]
            own = self._inputs.get(v)
            rows[:] = messages.everything
            if own is not None:
                with np.errstate(divide="ignore"):
                    rows[:] = np.log(own / own.max()) if messages.is_log else own / own.max()
        stale = {int(tree.shape.places.clique[v]) for v in changed}
        collect(tree, tree.shape.program(self._inputs, (), stale=stale), messages)
