"""Posteriors by libDAI and merlin, for which programs are compiled where their folders are known.

``LIBDAI_FOLDER`` and ``MERLIN_FOLDER`` name the folders: libDAI's with ``lib/libdai.a``, merlin's with its sources.
Processor seconds are counted by the programs themselves: of a case from its observations to the posteriors of all
variables, without reading the network or printing.
"""

from __future__ import annotations

import os
import resource
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from oocbe.model.problem import Problem

SOURCES = Path(__file__).parent
FOLDERS = {"libdai": "LIBDAI_FOLDER", "merlin": "MERLIN_FOLDER"}
"""Environment variables that name the folders."""

VARIANTS = {
    "libdai": tuple((updates, order) for updates in ("HUGIN", "SHSH") for order in ("MINFILL", "WEIGHTEDMINFILL")),
    "merlin": (("kept",), ("made",)),
}
"""Arguments of the programs; the quickest variant counts."""

MEMORY_BYTES = 12 << 30
"""Address space that a program may take: large networks would have it all."""

PROGRAMS = "PEER_PROGRAMS"
"""Environment variable that tells child processes where the programs are."""

FLAGS = ("-O2", "-march=native", "-w")


@dataclass(frozen=True)
class Answers:
    """Posteriors of the first cases.

    Attributes
    ----------
    variant : the program's arguments. making : processor seconds that a tree to be kept took. seconds : of each case.
    posteriors : of each case, those of each variable's values, float64 (domain size,).
    """

    variant: str
    making: float
    seconds: list[float]
    posteriors: list[list[NDArray[np.float64]]]


def known_folders() -> dict[str, Path]:
    """The folders that the environment names."""
    return {name: Path(os.environ[key]) for name, key in FOLDERS.items() if os.environ.get(key)}


@contextmanager
def programs() -> Iterator[None]:
    """Within the block the programs are there, for child processes, too; SystemExit where one cannot be compiled."""
    with tempfile.TemporaryDirectory() as folder:
        for name, sources in known_folders().items():
            _compile(name, sources, Path(folder) / name)
        os.environ[PROGRAMS] = folder
        yield


def _compile(name: str, sources: Path, program: Path) -> None:
    own = str(SOURCES / f"{name}_trees.cpp")
    if name == "libdai":
        parts = [own, f"-I{sources / 'include'}", f"-L{sources / 'lib'}", "-ldai", "-lgmpxx", "-lgmp"]
    else:
        theirs = [str(sources / "src" / f"{part}.cpp") for part in ("cte", "graph", "util")]
        parts = [own, f"-I{sources / 'include'}", *theirs]
    done = subprocess.run(["g++", *FLAGS, *parts, "-o", str(program)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{name} of {sources} cannot be compiled with: {done.stderr[:1000]}")


def peer_answers(
    problem: Problem, cases: Sequence[Sequence[tuple[int, int]]], limit: float, timeout: float
) -> Iterator[tuple[str, Answers | None]]:
    """The answers of each variant of each library that is there; None where memory or time ended it.

    Within :func:`programs`.

    Parameters
    ----------
    problem : of weights that are multiplied. cases : of each the variables that it observes, with their values.
    limit : processor seconds after which no further case begins. timeout : seconds that a program may take.
    """
    given = _numbers(problem, cases, limit)
    for name in known_folders():
        for arguments in VARIANTS[name]:
            yield name, _run([str(Path(os.environ[PROGRAMS]) / name), *arguments], given, problem.sizes, timeout)


def _numbers(problem: Problem, cases: Sequence[Sequence[tuple[int, int]]], limit: float) -> bytes:
    """What the programs read."""
    parts: list[NDArray[np.float64]] = [np.array([len(problem.sizes), *problem.sizes, len(problem.functions)], float)]
    for f in problem.functions:
        scope = sorted(f.scope)
        values, feasible = f.to_array(problem.sizes)
        cells = np.where(feasible, values, 0.0).transpose([f.scope.index(v) for v in scope])
        parts += [np.array([len(scope), *scope], float), cells.ravel(order="F")]
    parts.append(np.array([limit, len(cases)], float))
    parts += [np.array([len(case), *(number for pair in case for number in pair)], float) for case in cases]
    return np.concatenate(parts).tobytes()


def _run(command: Sequence[str], given: bytes, sizes: Sequence[int], timeout: float) -> Answers | None:
    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))

    try:
        done = subprocess.run(
            command, input=given, capture_output=True, timeout=timeout, check=False, preexec_fn=limited
        )
    except subprocess.TimeoutExpired:
        return None
    lines = [np.array(line.split(), float) for line in done.stdout.splitlines()]
    if done.returncode or len(lines) < 2:
        return None
    ends = np.cumsum(sizes)[:-1]
    posteriors = [np.split(line[1:], ends) for line in lines[1:]]
    return Answers(" ".join(command[1:]), float(lines[0][0]), [float(line[0]) for line in lines[1:]], posteriors)
