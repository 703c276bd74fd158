"""All solutions of a file as toulbar2 lists them, and whether oocbe's problem has the same ones with the same values.

toulbar2 keeps what it read in global variables, prints, and ends the process at some files. So a server, a process that
has loaded it once, forks for every file; a fork takes about a millisecond.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

if __package__:
    from ..outcome import DisagreementError, NotAvailableError, Tally

MOST_SOLUTIONS = 100_000
"""Solutions that are listed; random files have fewer assignments."""

SECONDS = 20
"""After which toulbar2 is ended: it loops over counts that a damaged file gives."""

MOST_ASSIGNMENTS = 20_000
"""Assignments of a problem, states of global functions included, that are evaluated one by one."""

HIDDEN = "^"
"""What names of variables begin with that toulbar2 makes for itself."""

Row = tuple[int, ...]


@dataclass(frozen=True)
class Answer:
    """What toulbar2 makes of a file.

    Attributes
    ----------
    kind : ``read``, ``refused`` (with a message), or ``crash``. names : of its variables. rows : solutions and values.
    message : why it was refused.
    """

    kind: str
    names: tuple[str, ...] = ()
    rows: tuple[tuple[Row, float], ...] = ()
    message: str = ""


class _Server:
    """The process that forks, and pipes to it."""

    def __init__(self) -> None:
        if importlib.util.find_spec("pytoulbar2") is None:
            raise NotAvailableError("pytoulbar2 is not installed")
        questions, self._questions = os.pipe()
        answers, theirs = os.pipe()
        command = [sys.executable, "-P", __file__, str(questions), str(theirs)]
        self._process = subprocess.Popen(command, pass_fds=(questions, theirs), stdin=subprocess.DEVNULL)
        os.close(questions)
        os.close(theirs)
        self._answers = os.fdopen(answers)

    def ask(self, path: Path) -> Answer:
        os.write(self._questions, f"{path}\n".encode())
        answer = json.loads(self._answers.readline())
        rows = tuple((tuple(row), value) for value, row in answer.get("rows", ()))
        return Answer(answer["kind"], tuple(answer.get("names", ())), rows, answer.get("message", ""))


_running: list[_Server] = []


def answer(path: Path) -> Answer:
    """Everything about a file; NotAvailableError where toulbar2 is not installed."""
    if not _running:
        _running.append(_Server())
    return _running[0].ask(path)


def compare(
    path: Path,
    tally: Tally,
    may_refuse: Callable[[str], bool] = lambda _: False,
    lists_all: bool = True,
    knows_all: bool = True,
) -> Any:
    """oocbe's problem of a file, whose feasible assignments and values are those that toulbar2 lists.

    Parameters
    ----------
    may_refuse : whether a message of ours is one that the documentation announces.
    lists_all : whether toulbar2 does; else only what it lists is compared.
    knows_all : whether oocbe's further variables have one value for each assignment of those that toulbar2 knows; else
        they say nothing of values.

    Returns
    -------
    The problem; None where either refused the file.
    """
    import oocbe
    from oocbe.errors import OocbeError
    from oocbe.model.linear_system import problem_of

    theirs = answer(path)
    try:
        problem = oocbe.read(path)
    except OocbeError as error:
        tally.refused(error, theirs.kind != "read" or may_refuse(str(error)))
        return None
    if theirs.kind != "read":
        tally.checks += 1
        return None
    if not isinstance(problem, oocbe.Problem):
        problem = problem_of(problem)
    if math.prod(problem.sizes) > MOST_ASSIGNMENTS:
        return problem
    own = [v.name for v in problem.variables]
    names = [name for name in theirs.names if not name.startswith(HIDDEN)]
    is_named = bool(names) and set(names) <= set(own)
    places = [theirs.names.index(name) for name in (names if is_named else theirs.names)]
    choose = min if problem.sense == "min" else max
    expected: dict[Row, float] = {}
    for row, value in theirs.rows:
        known = tuple(row[k] for k in places)
        expected[known] = choose(value, expected.get(known, value))
    found = feasible(problem, [own.index(name) for name in names] if is_named else range(len(places)), knows_all)
    if lists_all:
        tally.same("feasible assignments", sorted(expected), sorted(found))
    for row, value in expected.items():
        tally.near(f"value of {row}", Fraction(str(value)), found.get(row), 0 if problem.is_integral else 1e-6)
    return problem


def feasible(problem: Any, places: Sequence[int], knows_all: bool = True) -> dict[Row, Any]:
    """Values of all feasible assignments of some variables; see :func:`compare`."""
    rows: dict[Row, Any] = {}
    for assignment in itertools.product(*map(range, problem.sizes)):
        value = problem.evaluate(assignment)
        if value is not None:
            row = tuple(assignment[v] for v in places)
            if row in rows and (knows_all or rows[row] != value):
                raise DisagreementError("assignments of the file's variables", "one each", f"two of {row}")
            rows[row] = value
    return rows


def solved(problem: Any, tally: Tally) -> None:
    """A solve finds the optimum that all evaluated assignments have."""
    import oocbe

    if math.prod(problem.sizes) > MOST_ASSIGNMENTS:
        return
    every = [problem.evaluate(a) for a in itertools.product(*map(range, problem.sizes))]
    known = [value for value in every if value is not None]
    best = (min if problem.sense == "min" else max)(known, default=None)
    result = oocbe.solve(problem, order_seconds=0)
    tally.same("status", "infeasible" if best is None else "optimal", result.status)
    if best is not None:
        tally.near("optimum", Fraction(best), result.value, 0 if problem.is_integral else 1e-6)


def _serve(questions: int, answers: int) -> None:
    """Answer the paths that come by one pipe through the other, until the first one ends."""
    import pytoulbar2

    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)
    with os.fdopen(questions) as paths:
        for line in paths:
            reading, writing = os.pipe()
            child = os.fork()
            if child == 0:
                signal.alarm(SECONDS)
                os.close(reading)
                _answer(pytoulbar2, line.rstrip("\n"), writing)
                os._exit(0)
            os.close(writing)
            with os.fdopen(reading, "rb") as pipe:
                answer = pipe.read()
            _, status = os.waitpid(child, 0)
            if not answer:
                answer = json.dumps({"kind": "crash", "message": f"it ended with {status}"}).encode()
            os.write(answers, answer + b"\n")


def _answer(pytoulbar2: Any, path: str, pipe: int) -> None:
    try:
        network = pytoulbar2.CFN(verbose=-1)
        names: list[str] = []
        # Solve() does this after reading, and refuses formats that set a precision when they are read.
        network.Option.allSolutions = MOST_SOLUTIONS
        pytoulbar2.tb2.check()
        try:
            network.Read(path)
            names = [network.CFN.wcsp.getName(v) for v in range(network.GetNbVars())]
            network.CFN.wcsp.sortConstraints()
            network.CFN.solve()
            rows = [(cost, list(values)) for cost, values, *_ in network.CFN.solutions()]
        except network.Contradiction:
            rows = []
        answer = {"kind": "read", "names": names, "rows": rows}
    except Exception as error:
        answer = {"kind": "refused", "message": f"{type(error).__name__}: {error}"}
    data = json.dumps(answer).encode()
    while data:
        data = data[os.write(pipe, data) :]


if __name__ == "__main__":
    _serve(int(sys.argv[1]), int(sys.argv[2]))
