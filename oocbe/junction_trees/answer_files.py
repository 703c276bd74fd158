"""Answers about cases as text: tables for people and programs, and the formats of the UAI competitions.

=========  ====================================================================================
``.csv``   a line a case: status, logarithm of the evidence's probability, posteriors of values
``.mar``   UAI: the marginals of all variables
``.pr``    UAI: the decimal logarithm of the evidence's probability
``.mpe``   UAI: the most probable values of all variables
=========  ====================================================================================

UAI files have the number of samples in the second line where there are several; what is asked of an impossible sample
has no answer in these formats, and is refused.
"""

from __future__ import annotations

import csv
import io
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import UsageError
from oocbe.junction_trees.batches import IMPOSSIBLE, BatchResult
from oocbe.junction_trees.tree import JunctionTree

UAI_SUFFIXES = (".mar", ".pr", ".mpe")
"""What files in UAI formats end in, in any case."""


def table_of(tree: JunctionTree, result: BatchResult) -> str:
    """A batch as comma-separated values; a column a value is named like ``rain=yes``, or ``rain=yes,wind=no``."""
    variables = {v.name: v for v in tree.problem.variables}
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    columns = ["case", "status", "log_evidence"]
    numbers: list[NDArray[Any]] = []
    groups = [*(((name,), found) for name, found in result.marginals.items()), *result.joints.items()]
    for names, found in groups:
        labels = [[f"{name}={variables[name].label(i)}" for i in range(variables[name].size)] for name in names]
        columns += [",".join(combined) for combined in itertools.product(*labels)]
        numbers.append(found.reshape(len(found), -1))
    writer.writerow(columns)
    rows = np.concatenate(numbers, axis=1) if numbers else np.zeros((len(result.status), 0))
    for case, (status, logarithm, row) in enumerate(zip(result.status, result.log_evidence, rows, strict=True)):
        writer.writerow([case, status, repr(float(logarithm)), *map(repr, row.tolist())])
    return out.getvalue()


def uai_answer(tree: JunctionTree, cases: NDArray[np.int64], kind: str) -> str:
    """Answers about all samples in a UAI format, one of :data:`UAI_SUFFIXES` without its dot.

    Raises
    ------
    UsageError : a sample is impossible.
    """
    samples = list(_samples(tree, cases, kind))
    many = [str(len(samples))] if len(samples) > 1 else []
    return "\n".join([kind.upper(), *many, *samples]) + "\n"


def _samples(tree: JunctionTree, cases: NDArray[np.int64], kind: str) -> Iterator[str]:
    variables = tree.problem.variables
    if kind == "mpe":
        for case, observed in enumerate(cases):
            tree.retract()
            tree.observe({variables[v].name: int(observed[v]) for v in np.flatnonzero(observed >= 0).tolist()})
            best = tree.mpe()
            if best is None:
                raise _impossible(case)
            yield _line([len(variables), *best.indices])
        return
    result = tree.batch(cases, None if kind == "mar" else [])
    for case, (status, logarithm) in enumerate(zip(result.status, result.log_evidence, strict=True)):
        if status == IMPOSSIBLE:
            raise _impossible(case)
        if kind == "pr":
            yield repr(float(logarithm) / math.log(10))
        else:
            numbers: list[Any] = [len(variables)]
            for v in variables:
                numbers += [v.size, *result.marginals[v.name][case].tolist()]
            yield _line(numbers)


def _line(numbers: Sequence[Any]) -> str:
    return " ".join(map(repr, numbers))


def _impossible(case: int) -> UsageError:
    return UsageError(f"sample {case}: what it observes is impossible, which this format cannot say; write a .csv file")
