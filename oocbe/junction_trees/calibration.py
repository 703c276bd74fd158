"""One case with changing evidence: only affected messages are recomputed, and posteriors are computed on demand.

A sweep reads only the rows that agree with the evidence. A row in which an observed variable has another value
contributes nothing. Rows are indexed by the values of a variable when it is first observed; a clique uses the list of
the observed variable that leaves the fewest rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from oocbe.junction_trees.arrays import Program
from oocbe.junction_trees.compiled import CompiledTree
from oocbe.junction_trees.evidence import CaseEvidence
from oocbe.junction_trees.explanations import best_assignment
from oocbe.junction_trees.kernels.cpu.single_sweeps import Picked, draw_rows, list_values
from oocbe.junction_trees.sweeping import Messages, Shares, collect, distribute, evidence, prior, shares_of
from oocbe.runtime.deadline import check_deadline

_TRUSTED = np.ones(1, dtype=np.bool_)


class Calibration:
    """The messages for one case of a tree that :attr:`oocbe.junction_trees.compiled.CompiledTree.is_possible`."""

    def __init__(self, tree: CompiledTree) -> None:
        self._tree = tree
        self._inputs: dict[int, CaseEvidence] = {}
        self._values: dict[int, int] = {}  # of the variables with hard evidence
        self._lists = RowLists(tree)
        self._chosen: dict[int, tuple[int, int]] = {}  # by clique, the rows in its message
        self._picked: Picked | None = None
        self._shares: tuple[list[int], tuple[Shares, list[int], NDArray[np.int64]]] | None = None
        self._messages = prior(tree, tree.is_log).copied()
        self._changed: set[int] = set()  # variables
        self._logarithm: float | None = None

    def change(self, v: int, known: CaseEvidence | None) -> None:
        """Set the evidence of a variable; None: none."""
        self._values.pop(v, None)
        if known is None:
            if self._inputs.pop(v, None) is None:
                return
        else:
            self._inputs[v] = known
            if known.value is not None:
                self._values[v] = known.value
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
        distribute(self._tree, program, messages, rows, _TRUSTED, picked=self._picked)
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
            self._begin_again(self._tree.is_log)
            changed = set(self._inputs)
        self._send(changed)
        logarithms, trusted = evidence(self._tree, self._messages)
        if not trusted[0]:
            self._begin_again(True)
            self._send(set(self._inputs))
            logarithms, _ = evidence(self._tree, self._messages)
        self._changed = set()
        self._logarithm = float(logarithms[0]) + sum(known.logarithm for known in self._inputs.values())

    def _begin_again(self, is_log: bool) -> None:
        self._messages, self._chosen = prior(self._tree, is_log).copied(), {}

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
        chosen = {} if messages.is_log else self._lists.choose(self._values)
        self._picked = self._lists.picked(chosen)
        # A message computed from another selection of rows is stale, whichever evidence has changed.
        stale = {clique for clique, rows_of in self._chosen.items() if chosen.get(clique) != rows_of}
        stale.update(tree.shape.places.clique[list(changed)].tolist())
        program = tree.shape.program(self._inputs, (), stale=stale)
        collect(tree, program, messages, self._picked)
        sent = set(program.collected.tolist())
        kept = {clique: rows_of for clique, rows_of in self._chosen.items() if clique not in sent}
        self._chosen = kept | {clique: rows_of for clique, rows_of in chosen.items() if clique in sent}


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


LEAST_ROWS = 512
"""Number of rows up to which a clique is always read completely, without lists."""

MOST_LISTED = 1 << 26
"""Limit of the rows in all lists together, four bytes each; beyond it, no further lists are made."""


class RowLists:
    """Lists of a tree's rows by the values of variables that have been observed."""

    def __init__(self, tree: CompiledTree) -> None:
        self._tree = tree
        self._lists: dict[tuple[int, int], tuple[NDArray[np.int32], list[int]]] = {}  # by variable and clique
        self._listed = 0

    def choose(self, values: Mapping[int, int]) -> dict[int, tuple[int, int]]:
        """By clique, the variable and value that select its rows; ``values`` : observed value by variable index."""
        chosen: dict[int, tuple[int, int]] = {}
        fewest: dict[int, int] = {}
        for v, value in values.items():
            for clique in self._cliques[v]:
                known = self._lists.get((v, clique)) or self._list(v, clique)
                if known is not None:
                    count = known[1][value + 1] - known[1][value]
                    if clique not in chosen or count < fewest[clique]:
                        chosen[clique], fewest[clique] = (v, value), count
        return chosen

    def picked(self, chosen: Mapping[int, tuple[int, int]]) -> Picked | None:
        """The rows of a selection made by :meth:`choose`; None: all."""
        if not chosen:
            return None
        begin = np.full(len(self._tree.rows), -1, dtype=np.int64)
        end = begin.copy()
        parts, total = [], 0
        for clique, (v, value) in chosen.items():
            rows, ends = self._lists[v, clique]
            parts.append(rows[ends[value] : ends[value + 1]])
            begin[clique] = total
            total += len(parts[-1])
            end[clique] = total
        return Picked(begin, end, np.concatenate(parts), self._group)

    @cached_property
    def _cliques(self) -> list[list[int]]:
        """By variable, the large cliques that have it."""
        found: list[list[int]] = [[] for _ in self._tree.problem.variables]
        for number, (clique, rows) in enumerate(zip(self._tree.cliques, self._tree.rows, strict=True)):
            if rows.rows >= LEAST_ROWS:
                for v in clique.variables:
                    found[v].append(number)
        return found

    @cached_property
    def _group(self) -> NDArray[np.int32]:
        """Number of each row's group in its clique."""
        sizes = [np.diff(rows.groups) for rows in self._tree.rows]
        return np.concatenate([np.repeat(np.arange(len(own), dtype=np.int32), own) for own in sizes])

    def _list(self, v: int, clique: int) -> tuple[NDArray[np.int32], list[int]] | None:
        """Make a list, and the bounds of the rows of each value; None if the lists would exceed their limit."""
        values = self._tree.values(clique, v)
        if self._listed + len(values) > MOST_LISTED:
            return None
        self._listed += len(values)
        listed, ends = list_values(values, self._tree.problem.sizes[v])
        self._lists[v, clique] = listed, ends.tolist()
        return self._lists[v, clique]
