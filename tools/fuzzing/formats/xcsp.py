"""XCSP3 against Choco, and where the two differ against ACE: all solutions of random constraints over a few variables.

Both come with the package pycsp3 and run in Java. Random files leave out what Choco 4.10.15 does not read (hybrid
tables, ``allDifferent`` of lists, stars in conflicts, ``nValues`` with ``except``) and what it reads otherwise than ACE
or the format's own checker: it takes every ``rank`` for ``first``, and ``iff`` of three truths for that of two and the
third, drops a condition ``in`` of anything but a sum, and allows a circuit without an edge. It takes
``imp(eq(x,y,z),p)`` for "all different, or p", reverses the columns of a ``lex`` of a matrix with ``ge`` or ``gt``,
passes over ``zeroIgnored="false"`` and ``nValues`` with ``ne``, and drops solutions of a ``knapsack`` with values above
1 and of an ``element`` of a matrix of variables. Both take ``not(eq(x,y,z))`` for "all different", ``notin`` of a sum
for nothing or ``in``, the value of an ``element`` of integers without an index for the index, and pass over ``ends`` of
tasks. The suite compares these with brute force. An answer of Choco that ACE contradicts is no failure.
"""

from __future__ import annotations

import importlib.util
import itertools
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from ..outcome import NotAvailableError, Tally
from ._xcsp_constraints import KINDS, VARIABLES, declarations, named, objective

_SOLUTION = re.compile(r"<list>([^<]*)</list>\s*v?\s*<values>([^<]*)</values>")
_OPTIMUM = re.compile(r"cost='(-?[0-9]+)'")

_UNREAD = "not read"
_NOT_READ = ("Missing Implementation", "xception", "! ERROR", "s UNKNOWN", "Problem when parsing")
"""What the programs print where they do not read a file."""

SECONDS = 60.0
"""Time limit of Choco on one file; most take half a second, the start of Java."""


class _NotReadError(Exception):
    """A program does not read a file."""


def draw(random: Random) -> dict[str, Any]:
    """One to three constraints, sometimes an objective, and how the file is written."""
    constraints = [random.choice(KINDS)(random) for _ in range(random.choice((1, 1, 2, 3)))]
    return {
        "constraints": constraints,
        "objective": objective(random) if random.random() < 0.2 else "",
        "style": random.randint(0, 2**32),
    }


def text_of(case: dict[str, Any]) -> str:
    """The file."""
    random = Random(case["style"])
    text, goal = "\n".join(case["constraints"]), case["objective"]
    declared = declarations(random, named(f"{text} {goal}"))
    if random.random() < 0.1:
        text = text.replace("> ", random.choice((">", ">\n\t", "><!-- a note: < & x[0] -->", ">  ")))
    whole = (
        f'<instance format="XCSP3" type="{"COP" if goal else "CSP"}">\n<variables> {declared} </variables>\n'
        f"<constraints>\n{text}\n</constraints>\n{goal}</instance>\n"
    )
    return whole.replace("\n", "\r\n") if random.random() < 0.05 else whole


def check(case: dict[str, Any], folder: Path, tally: Tally) -> None:
    """Both find the same solutions, projected on the variables that the constraints name, or the same optimum."""
    import oocbe
    from oocbe.errors import UnsupportedError

    path = folder / "instance.xml"
    path.write_bytes(text_of(case).encode())
    names = named("\n".join(case["constraints"]))
    choco = ("choco/choco-parsers", *(() if case["objective"] else ("-a",)))
    ace = ("ace/ACE", *(() if case["objective"] else ("-s=all", "-v=1", "-xe")))
    try:
        expected = _answer(path, names, *choco)
    except _NotReadError:
        expected = _UNREAD
    problem = oocbe.read(path)
    try:
        if case["objective"]:
            result = oocbe.solve(problem, order_seconds=0)
            found = None if result.status == "infeasible" else result.value
        else:
            found = sorted(_own_solutions(problem, names))
    except UnsupportedError as error:
        tally.refused(error, "by zero" in str(error))
        return
    if expected != found:
        try:
            expected = _answer(path, names, *ace)
        except _NotReadError:
            if expected == _UNREAD:
                tally.refusals["read by neither"] += 1
                return
    tally.same("optimum" if case["objective"] else "solutions", expected, found)


def smaller(case: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The case without one constraint."""
    for place in range(len(case["constraints"])):
        rest = case["constraints"][:place] + case["constraints"][place + 1 :]
        if rest:
            yield {**case, "constraints": rest}


@cache
def _command(archive: str) -> tuple[str, ...]:
    java, package = shutil.which("java"), importlib.util.find_spec("pycsp3")
    if java is None or package is None or package.origin is None:
        raise NotAvailableError("Choco runs in Java and comes with pycsp3: one of them is not installed")
    (path,) = Path(package.origin).parent.glob(f"solvers/{archive}-*.jar")
    return java, "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-jar", str(path)


def _answer(path: Path, names: list[str], archive: str, *options: str) -> Any:
    """The optimum that a solver of pycsp3 prints, None without a solution; or all values of the named variables."""
    command = [*_command(archive), str(path), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    if any(word in done.stderr + done.stdout for word in _NOT_READ):
        raise _NotReadError
    if not options:
        costs = _OPTIMUM.findall(done.stdout)
        return int(costs[-1]) if costs else None
    found = set()
    for listed, values in _SOLUTION.findall(done.stdout):
        own = [name for word in listed.split() for name in (named(word) if "[]" in word else [word])]
        written = re.sub(r"(\S+)x([0-9]+)", lambda m: f"{m[1]} " * int(m[2]), values)  # 0x3 stands for 0 0 0
        solution = dict(zip(own, written.split(), strict=True))
        values_of = (VARIABLES[v] if solution[v] == "*" else (int(solution[v]),) for v in names)
        found |= set(itertools.product(*values_of))  # ACE writes a star for any value
    return sorted(found)


def _own_solutions(problem: Any, names: list[str]) -> list[tuple[int, ...]]:
    """Values of the named variables in every solution, which is found once; search in the order of the variables."""
    variables = problem.variables
    parts = [*problem.constraints, *problem.linear_constraints]
    after = [[part for part in parts if max(part.scope, default=0) == v] for v in range(len(variables))]
    # Variables of the file that no constraint names have all their values: one is enough.
    sizes = [1 if own.name in VARIABLES and own.name not in names else own.size for own in variables]
    places = [[own.name for own in variables].index(name) for name in names]
    found: list[tuple[int, ...]] = []

    def search(assignment: list[int]) -> None:
        v = len(assignment)
        if v == len(variables):
            found.append(tuple(int(variables[place].label(assignment[place])) for place in places))
            return
        for value in range(sizes[v]):
            trial = [*assignment, value]
            if all(part.permits(trial) for part in after[v]):
                search(trial)

    search([])
    return found
