"""Assignments drawn from the posterior, exactly: from the roots down, each clique given what was drawn above."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from oocbe.junction_trees.compiled import CompiledTree
from oocbe.junction_trees.kernels.cpu.sampling import draw_rows
from oocbe.junction_trees.programs import Program
from oocbe.junction_trees.sweeping import Messages
from oocbe.runtime.deadline import check_deadline


def draw(tree: CompiledTree, program: Program, messages: Messages, count: int, seed: int) -> NDArray[np.int64]:
    """Value indices, int64 (count, variables), independent of one another.

    Parameters
    ----------
    program : that distributes to all cliques. messages : of one case that is possible, as collecting leaves them.
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
