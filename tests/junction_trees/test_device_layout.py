"""What the device is told of a tree: gone through as the kernels do, in NumPy, it gives what the CPU's sweep does."""

from __future__ import annotations

import numpy as np
import pytest

from oocbe.errors import UsageError
from oocbe.junction_trees import case_sweeps
from oocbe.junction_trees.case_sweeps import CaseSweep, _target_rows, evidence_columns, takes_device
from oocbe.junction_trees.evidence import Cases
from oocbe.junction_trees.kernels.cuda import sweeps
from oocbe.junction_trees.kernels.cuda.sweeps import CHILD, VARIABLE, chunks_of, steps_down, steps_up, tree_layout
from oocbe.junction_trees.tree import JunctionTree
from tests.helpers.small_networks import random_network


class Device:
    """The kernels of ``tree_sweeps.cu``, a row of all cases at a time; nothing is scaled."""

    def __init__(self, tree, cases) -> None:
        self.arrays, self.cases = tree.arrays, cases
        self.parents = [-1 if clique.parent is None else clique.parent for clique in tree.cliques]
        self.layout = tree_layout(tree.arrays)
        # Whatever is read without having been written shows.
        self.up, self.down = np.full((2, tree.message_rows, cases), np.nan)
        self.prior = np.ones(tree.message_rows)

    def product(self, steps, step, row):
        product = np.full(self.cases, self.arrays.weights[row])
        for e in range(steps["read_start"][step], steps["read_start"][step + 1]):
            number, message = self.arrays.maps[steps["read_map"][e] + row], steps["read_message"][e]
            product = product * (self.up[message + number] if message >= 0 else self.prior[~message + number])
        return product

    def added(self, chunks, chunk, of):
        return sum((of(i) for i in range(chunks.first[chunk], chunks.first[chunk + 1])), np.zeros(self.cases))

    def collect(self, program, collected):
        steps = steps_up(self.arrays, self.layout, program, self.parents, collected)
        up, known = self.layout.up, steps.arrays
        for stretch in steps.stretches:
            partial = {}
            for step in range(stretch.first, stretch.last):
                first = self.layout.clique_chunks[known["clique"][step]]
                for chunk in range(first, first + known["chunks"][step + 1] - known["chunks"][step]):
                    found = self.added(up, chunk, lambda row, step=step: self.product(known, step, row))
                    if up.partial[chunk] < 0:
                        self.up[up.row[chunk]] = found
                    else:
                        partial[up.partial[chunk]] = found
            for step in range(stretch.first, stretch.last):
                c = known["clique"][step]
                for split in range(*self.layout.clique_splits[c : c + 2]):
                    parts = range(*up.split_first[split : split + 2])
                    self.up[up.split_row[split]] = sum(partial[p] for p in parts)

    def distribute(self, program, collected):
        steps, most = steps_down(self.arrays, self.layout, program, self.parents, collected)
        down, known = self.layout.down, steps.arrays
        for stretch in steps.stretches:
            belief, partial = np.full((most, self.cases), np.nan), {}
            for step in range(stretch.first, stretch.last):
                first = self.layout.clique_chunks[known["clique"][step]]
                for chunk in range(first, first + known["chunks"][step + 1] - known["chunks"][step]):
                    for row in range(*self.layout.up.first[chunk : chunk + 2]):
                        above = self.down[self.layout.up.row[chunk]]
                        belief[known["belief"][step] + row] = self.product(known, step, row) * above
            for write in range(stretch.first_write, stretch.last_write):
                place = known["write_belief"][write]
                for i in range(known["write_chunks"][write + 1] - known["write_chunks"][write]):
                    chunk = known["write_chunk"][write] + i
                    found = self.added(down, chunk, lambda i, own=belief[place:]: own[self.layout.list_rows[i]])
                    if down.partial[chunk] < 0:
                        self.write(known["write_kind"][write], down.row[chunk], found)
                    else:
                        partial[down.partial[chunk]] = found
            for write in range(stretch.first_write, stretch.last_write):
                for i in range(known["write_splits"][write + 1] - known["write_splits"][write]):
                    split = known["write_split"][write] + i
                    parts = range(*down.split_first[split : split + 2])
                    self.write(known["write_kind"][write], down.split_row[split], sum(partial[p] for p in parts))

    def write(self, kind, row, share):
        said = 1.0 if kind == VARIABLE else self.up[row] if kind == CHILD else self.prior[row]
        self.down[row] = np.divide(share, said, out=np.zeros_like(share), where=share > 0)


@pytest.mark.parametrize("seed", range(6))
def test_the_layout_says_what_the_sweep_says(seed, monkeypatch):
    monkeypatch.setattr(sweeps, "CHUNK", (1, 2, 128)[seed % 3])
    monkeypatch.setattr(sweeps, "STRETCH_ROWS", (1, 1 << 18)[seed % 2])
    random = np.random.default_rng(seed)
    problem = random_network(random, variables=8)
    tree = JunctionTree(problem, order_seconds=0)._tree
    targets = range(len(problem.sizes))
    observed = np.full((4, len(targets)), -1)
    for v in random.choice(len(targets), 3, replace=False).tolist():
        observed[:3, v] = random.integers(0, problem.sizes[v], 3)
    sweep = CaseSweep(tree, Cases(observed), targets)
    sweep.run()

    device = Device(tree, len(observed))
    device.up[:] = 1.0
    every = np.ones(len(tree.cliques), dtype=bool)
    device.collect(tree.shape.program((), (), stale=range(len(tree.cliques))), every)
    device.prior, device.up[:] = device.up[:, 0].copy(), np.nan
    columns, starts = evidence_columns(tree, Cases(observed))
    for v, (first, last) in zip(columns, starts, strict=True):
        values = observed[:, v]
        device.up[first:last] = (values < 0) | (values == np.arange(last - first)[:, None])
    program = tree.shape.program(columns.tolist(), targets)
    collected = np.isin(np.arange(len(every)), program.collected)
    device.collect(program, collected)
    total = np.ones(len(observed))
    for root in tree.roots:
        row = tree.arrays.message_start[root]
        number = device.up[row] if collected[root] else np.full(len(observed), device.prior[row])
        device.down[row] = np.divide(1.0, number, out=np.zeros_like(number), where=number > 0)
        total = total * number
    possible = total > 0
    assert (possible == (sweep.logarithms > -np.inf)).all()
    np.testing.assert_allclose(np.log(total[possible]) + tree.logarithm, sweep.logarithms[possible], atol=1e-13)
    device.distribute(program, collected)
    rows, separators = _target_rows(tree, targets)
    shares = []
    for own, separator in zip(rows, separators, strict=True):
        said = 1.0 if separator < 0 else device.up if collected[separator] else device.prior[:, None]
        shares += [(device.down * said)[row].sum(axis=0) for row in own]
    np.testing.assert_allclose(np.array(shares).T[possible], sweep.posteriors[possible], rtol=1e-11, atol=1e-14)


def test_long_sums_are_cut():
    lengths = np.array([0, 1, 128, 129, 300])
    made = chunks_of(lengths, np.array([7, 5, 3, 2, 1]))
    assert np.diff(made.first).tolist() == [0, 1, 128, 128, 1, 128, 128, 44]
    assert made.row.tolist() == [7, 5, 3, 2, 2, 1, 1, 1]
    assert made.partial.tolist() == [-1, -1, -1, 0, 1, 2, 3, 4]
    assert made.split_row.tolist() == [2, 1]
    assert made.split_first.tolist() == [0, 2, 5]
    assert made.sum_chunks.tolist() == [0, 1, 2, 3, 5, 8]
    assert made.sum_splits.tolist() == [0, 0, 0, 0, 1, 2]


def test_without_a_device_a_tree_is_not_made(monkeypatch):
    def refuse(name):
        raise UsageError(f"the {name} backend cannot be used")

    monkeypatch.setattr(case_sweeps, "backend_named", refuse)
    problem = random_network(np.random.default_rng(0))
    with pytest.raises(UsageError, match="cuda backend"):
        JunctionTree(problem, order_seconds=0, backend="cuda")
    JunctionTree(problem, order_seconds=0, backend="cpu")


def test_the_device_takes_what_is_worth_it(monkeypatch, tune):
    tree = JunctionTree(random_network(np.random.default_rng(0)), order_seconds=0)._tree
    monkeypatch.setattr(case_sweeps, "cuda_works", lambda wanted: True)
    monkeypatch.setattr(case_sweeps, "_has_room", lambda tree: True)
    monkeypatch.setattr(case_sweeps, "thread_count", lambda: 2)
    tune(device_tree_work=50 * tree.work)
    assert [takes_device(tree, cases, "auto") for cases in (1, 99, 100)] == [False, False, True]
    assert takes_device(tree, 1, "cuda")
    assert not takes_device(tree, 10**9, "cpu")
    monkeypatch.setattr(case_sweeps, "_has_room", lambda tree: False)
    assert not takes_device(tree, 100, "auto")
    in_logarithms = JunctionTree(random_network(np.random.default_rng(0)), order_seconds=0, space="log")._tree
    assert not takes_device(in_logarithms, 100, "cuda")
