"""Trees made on disk by processes that are killed at named points, and what the next process makes of what is left.

As a script it kills a child at every point, at its first passing, and at its second where there is one, has another go
on, and prints a line of JSON for each: the fault, whether the child was killed, how many pieces the next one had to
make, and the logarithm that its tree has for nothing and for some evidence.
"""

from __future__ import annotations

import json
import multiprocessing
import signal
import tempfile
from pathlib import Path
from unittest import mock

import numpy as np

import oocbe
from oocbe.errors import ResourceError
from oocbe.junction_trees.stored import folder as folders
from oocbe.model.parts import Function, Variable
from oocbe.model.problem import Problem
from oocbe.model.semiring import SUM_PRODUCT
from oocbe.model.settings.tuning import tuned
from oocbe.runtime import faults

PIECE_ROWS, SEGMENT_BYTES = 5, 400
"""So small that cliques have several pieces, and the tree several segments."""


REPEATED = ("tree-rows:", "tree-segment:")
"""Points that are passed several times."""


def network(seed: int = 3, variables: int = 8) -> Problem:
    """Conditional probabilities over a chain with chords, some of them 0: cliques with and without zeros."""
    random = np.random.default_rng(seed)
    functions = [Function.from_array((0,), random.dirichlet(np.ones(3)))]
    for v in range(1, variables):
        parents = tuple(range(max(0, v - 2), v))
        table = random.dirichlet(np.ones(3), size=[3] * len(parents))
        if v > variables // 2:
            table[0] = np.eye(3)[0]
        functions.append(Function.from_array((*parents, v), table, infeasible=0))
    return Problem(tuple(Variable(f"x{v}", 3) for v in range(variables)), tuple(functions), semiring=SUM_PRODUCT)


def stored_tree(problem: Problem, folder: Path | None = None, **options: object) -> oocbe.JunctionTree:
    """A tree of small pieces on disk, whatever the memory."""

    def refuse(*_: object, **__: object) -> None:
        raise ResourceError("this tree is to be made on disk")

    sizes = {"many_rows": PIECE_ROWS, "few_rows": PIECE_ROWS, "buffered_bytes": SEGMENT_BYTES}
    with mock.patch("oocbe.junction_trees.tree.tree_of", refuse), tuned(**sizes):
        return oocbe.JunctionTree(problem, order_seconds=0, folder=folder, **options)


def made_in(folder: Path, fault: str | None) -> tuple[int, dict | None]:
    """How a child ended that was to make the tree, and what it said of it."""

    def work() -> None:
        pieces = 0
        append = folders.TreeFolder.append

        def counting(*arguments, **more):
            nonlocal pieces
            pieces += 1
            return append(*arguments, **more)

        folders.TreeFolder.append = counting
        faults.arm(fault)
        stored_tree(network(), folder)
        faults.arm(None)
        tree = oocbe.JunctionTree.open(folder)
        nothing = tree.log_evidence
        tree.observe({"x7": 1, "x2": 2})
        done = {"pieces": pieces, "logarithms": [nothing, tree.log_evidence], "left": names(folder.parent)}
        send.send(done)

    receive, send = multiprocessing.Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(target=work)
    child.start()
    send.close()
    child.join()
    said = receive.recv() if child.exitcode == 0 else None
    return child.exitcode or 0, said


def names(folder: Path) -> list[str]:
    """What is in a folder."""
    return sorted(path.name for path in folder.iterdir())


def main() -> None:
    """See the module's essay."""
    stored_tree(network()).calibrate()  # what is compiled is loaded once, here
    with tempfile.TemporaryDirectory() as parent:
        print(json.dumps(made_in(Path(parent) / "a.tree", None)[1]))
    for point in faults.TREE_POINTS:
        for passing in (1, 2) if point.startswith(REPEATED) else (1,):
            with tempfile.TemporaryDirectory() as parent:
                folder = Path(parent) / "a.tree"
                status, done = made_in(folder, f"{point}:{passing}")
                killed = status == -signal.SIGKILL
                was_there = folder.exists()
                if not was_there:
                    _, done = made_in(folder, None)
                elif killed:
                    tree = oocbe.JunctionTree.open(folder)
                    done = {"pieces": 0, "logarithms": [tree.log_evidence], "left": names(Path(parent))}
                print(json.dumps({"fault": [point, passing], "killed": killed, "there": was_there, "then": done}))


if __name__ == "__main__":
    main()
