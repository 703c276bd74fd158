"""Answers in the formats of the UAI competitions: ``.MPE``, ``.MAR`` and ``.PR``.

A file has its kind in the first line, the number of samples in the second where there are several, and then a line a
sample: the number of variables and their most probable values; or the number of variables and, of each, how many values
it has and their probabilities; or the decimal logarithm of the partition function. Other suffixes that are met beside
these are refused by name: the tasks ``MMAP`` and ``MLC`` of the competitions, and ``SUM``, which they never defined.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from oocbe.errors import UsageError
from oocbe.model.results.task_result import TaskResult
from oocbe.runtime.urls import refuse_url

TASKS = {".mpe": "mpe", ".mar": "marginals", ".pr": "logz"}
"""The task whose answer a file holds, by its suffix in any case."""

REFUSED = {
    ".sum": "no competition defines such a file; the sum over all assignments is in .PR, by --task logz",
    ".mmap": "marginal maximum a posteriori is no task of solve; JunctionTree.marginal_map answers it in Python",
    ".mlc": "multi-label classification is no task here; .MPE has the most probable values of all variables",
}
"""Suffixes that are refused, in lower case, and why."""


def uai_text(kind: str, samples: Sequence[str]) -> str:
    """A file of samples that each are a line; kind : the suffix without its dot."""
    many = [str(len(samples))] if len(samples) > 1 else []
    return "\n".join([kind.upper(), *many, *samples]) + "\n"


def line_of_values(values: Sequence[int]) -> str:
    """The sample of ``.MPE``: value indices of all variables."""
    return " ".join(map(str, [len(values), *values]))


def line_of_marginals(marginals: Sequence[Iterable[Any]]) -> str:
    """The sample of ``.MAR``: probabilities of each variable's values, to the last digit."""
    rows = [list(map(float, own)) for own in marginals]
    return " ".join([str(len(rows)), *(word for row in rows for word in [str(len(row)), *map(repr, row)])])


def line_of_logarithm(natural: float) -> str:
    """The sample of ``.PR``: the decimal logarithm of what has a natural one."""
    return repr(float(natural) / math.log(10))


def refuse_kind(flag: str, path: str | Path) -> None:
    """Refuse a file that an option names whose suffix is one of :data:`REFUSED`; UsageError, which says why."""
    suffix = Path(path).suffix
    why = REFUSED.get(suffix.lower())
    if why is not None:
        raise UsageError(f"{flag} {path}: {suffix} cannot be written: {why}")


def check_output(path: str | Path, task: str) -> None:
    """Refuse a file's suffix that is none of these formats, or has another task's answer; UsageError."""
    refuse_kind("--output", path)
    wanted = TASKS.get(Path(path).suffix.lower())
    if wanted is None:
        known = ", ".join(suffix.upper() for suffix in TASKS)
        raise UsageError(
            f"--output {path}: the name's suffix tells no format; known: {known}; --json prints all answers"
        )
    if wanted != task:
        raise UsageError(f"--output {path}: this format holds the answer of --task {wanted}, not of {task}")


def write_task(result: TaskResult, path: str | Path) -> bool:
    """Write a task's answer in the format that the path's suffix tells; False where there is no answer to write."""
    kind = Path(path).suffix.lower()
    if kind == ".mpe":
        line = None if result.assignment is None else line_of_values(result.assignment)
    elif kind == ".mar":
        line = line_of_marginals(result.marginals) if result.marginals and result.status == "exact" else None
    else:
        line = None if result.value is None or result.status != "exact" else line_of_logarithm(result.value)
    if line is None:
        return False
    refuse_url(path, "an answer")
    Path(path).write_text(uai_text(kind[1:], [line]), encoding="utf-8")
    return True
