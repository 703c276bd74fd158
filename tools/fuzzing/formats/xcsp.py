"""XCSP3 against Choco, and where the two differ against ACE: all solutions of random constraints over a few variables.

Both come with the package pycsp3 and run in Java. Random files leave out what Choco 4.10.15 does not read (hybrid
tables, ``allDifferent`` of lists, stars in conflicts, ``nValues`` with ``except``) and what it reads otherwise than ACE
or the format's own checker: it takes every ``rank`` for ``first``, drops a condition ``in`` of anything but a sum, and
allows a circuit without an edge. Both take ``not(eq(x,y,z))`` for "all different". The suite compares these with brute
force. An answer of Choco that ACE contradicts (``nValues`` unequal to a variable, say) is no failure.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from ..outcome import NotAvailableError, Tally

VARIABLES = {"x[0]": (0, 1, 2), "x[1]": (0, 1, 2), "x[2]": (0, 1, 2), "y": (-2, -1, 1, 3), "b": (0, 1), "c": (0, 1)}

DECLARED = (
    '<array id="x" size="[3]"> 0..2 </array> <var id="y"> -2 -1 1 3 </var> <var id="b"> 0 1 </var>'
    ' <var id="c"> 0 1 </var>'
)

_ARRAY = ("x[0]", "x[1]", "x[2]")

_SOLUTION = re.compile(r"<list>([^<]*)</list>\s*v?\s*<values>([^<]*)</values>")
_NAME = re.compile(r"x\[[0-9]\]|x\[\]|\b[ybc]\b")

SECONDS = 60.0
"""Time limit of Choco on one file; most take half a second, the start of Java."""


def _integer(random: Random, depth: int) -> str:
    if depth == 0 or random.random() < 0.3:
        return random.choice([*VARIABLES, *VARIABLES, str(random.randint(-2, 3))])
    one, other = (_integer(random, depth - 1) for _ in range(2))
    return random.choice(
        [
            f"neg({one})",
            f"abs({one})",
            f"sqr({one})",
            f"add({one},{other})",
            f"add({one},{other},b)",
            f"sub({one},{other})",
            f"mul({one},{other})",
            f"dist({one},{other})",
            f"min({one},{other})",
            f"max({one},{other},y)",
            f"div({one},y)",
            f"mod({one},3)",
            f"div({one},sub(y,2))",
            f"if({_truth(random, depth - 1)},{one},{other})",
        ]
    )


def _truth(random: Random, depth: int) -> str:
    if depth == 0:
        return random.choice(["b", "c", "eq(x[0],y)", "lt(x[1],x[2])", "ne(y,1)"])
    one, other = (_truth(random, depth - 1) for _ in range(2))
    left, right = (_integer(random, depth - 1) for _ in range(2))
    comparison = random.choice(["lt", "le", "gt", "ge", "eq", "ne"])
    return random.choice(
        [f"{comparison}({left},{right})"] * 5
        + [f"in({left},set(1,3,-1))", f"not({one})", f"imp({one},{other})", f"iff({one},{other})"]
        + [f"and({one},{other})", f"or({one},{other},c)", f"xor({one},{other})"]
    )


def _listed(random: Random, least: int = 2, most: int = 4) -> str:
    return " ".join(random.sample(list(VARIABLES), random.randint(least, most)))


def _condition(random: Random, low: int = -2, high: int = 5) -> str:
    right = random.choice([str(random.randint(low, high)), str(random.randint(low, high)), random.choice(["y", "b"])])
    comparison = f"({random.choice(['lt', 'le', 'gt', 'ge', 'eq', 'ne'])},{right})"
    return f"<condition> {comparison} </condition>"


def _intension(random: Random) -> str:
    return f"<intension> {_truth(random, random.randint(1, 3))} </intension>"


def _extension(random: Random) -> str:
    names = random.sample(list(VARIABLES), random.randint(2, 4))
    kind = random.choice(["supports", "conflicts"])
    stars = ["*"] if kind == "supports" else []
    rows = []
    for _ in range(random.randint(1, 6)):
        cells = [random.choice([*stars, *map(str, VARIABLES[v]), *map(str, VARIABLES[v])]) for v in names]
        rows.append(f"({','.join(cells)})")
    return f"<extension> <list> {' '.join(names)} </list> <{kind}> {''.join(rows)} </{kind}> </extension>"


def _sum(random: Random) -> str:
    names = random.sample(list(VARIABLES), random.randint(2, 5))
    coeffs = " ".join(str(random.choice([1, 2, -1, -3])) for _ in names)
    given = f"<coeffs> {coeffs} </coeffs>" if random.random() < 0.7 else ""
    condition = random.choice([_condition(random), _condition(random), "<condition> (in,-1..2) </condition>"])
    return f"<sum> <list> {' '.join(names)} </list> {given} {condition} </sum>"


def _cardinality(random: Random) -> str:
    closed = random.choice(["", ' closed="true"', ' closed="false"'])
    occurs = random.choice(["0..2 1..3", "1 2", "b c"])
    return (
        f"<cardinality> <list> {_listed(random, 3, 5)} </list> <values{closed}> 0 1 </values>"
        f" <occurs> {occurs} </occurs> </cardinality>"
    )


def _element(random: Random) -> str:
    cells = random.choice(["2 -1 3", "x[1] y b", "x[] c"])
    return (
        f'<element> <list startIndex="{random.randint(0, 1)}"> {cells} </list> <index> {random.choice("xbc")} </index>'
        f" <value> {random.choice(['y', 'x[2]', '1'])} </value> </element>".replace("> x <", "> x[0] <")
    )


def _regular(random: Random) -> str:
    states = "pqr"
    moves = {f"({s},{v},{random.choice(states)})" for s in states for v in range(3) if random.random() < 0.8}
    moves.add("(p,0,q)")
    return (
        f"<regular> <list> x[] </list> <transitions> {''.join(sorted(moves))} </transitions> <start> p </start>"
        f" <final> {random.choice(['p', 'q', 'q r'])} </final> </regular>"
    )


def _cumulative(random: Random) -> str:
    numbers = [" ".join(str(random.randint(1, 2)) for _ in range(3)) for _ in range(2)]
    return (
        f"<cumulative> <origins> x[] </origins> <lengths> {numbers[0]} </lengths> <heights> {numbers[1]} </heights>"
        f" <condition> (le,{random.randint(2, 4)}) </condition> </cumulative>"
    )


KINDS: tuple[Callable[[Random], str], ...] = (
    _intension,
    _intension,
    _intension,
    _extension,
    _sum,
    _cardinality,
    _element,
    _regular,
    _cumulative,
    lambda r: f"<clause> b not(c) {r.choice(['', 'not(b)'])} </clause>",
    lambda r: f"<count> <list> {_listed(r)} </list> <values> 1 2 </values> {_condition(r, 0, 3)} </count>",
    lambda r: f"<nValues> <list> {_listed(r)} </list> {_condition(r, 1, 3)} </nValues>",
    lambda r: f"<allDifferent> {_listed(r)} </allDifferent>",
    lambda r: f"<allDifferent> <list> {_listed(r)} </list> <except> {r.choice(['0', '0 1'])} </except> </allDifferent>",
    lambda r: "<allDifferent> <matrix> (x[0],x[1])(x[2],y) </matrix> </allDifferent>",
    lambda r: f"<allEqual> {_listed(r, 2, 3)} </allEqual>",
    lambda r: (
        f"<ordered> <list> {_listed(r, 2, 3)} </list> <operator> {r.choice(['lt', 'le', 'ge', 'gt'])} </operator>"
        " </ordered>"
    ),
    lambda r: (
        f"<lex> <list> x[0] y </list> <list> x[1] x[2] </list> <operator> {r.choice(['lt', 'le', 'ge', 'gt'])}"
        " </operator> </lex>"
    ),
    lambda r: f"<maximum> <list> {_listed(r)} </list> {_condition(r)} </maximum>",
    lambda r: f"<minimum> <list> {_listed(r)} </list> {_condition(r)} </minimum>",
    lambda r: f'<maximumArg rank="first"> <list> {_listed(r)} </list> {_condition(r, 0, 3)} </maximumArg>',
    lambda r: f'<minimumArg rank="first"> <list> {_listed(r)} </list> {_condition(r, 0, 3)} </minimumArg>',
    lambda r: "<channel> x[] </channel>",
    lambda r: "<noOverlap> <origins> x[] </origins> <lengths> 1 2 1 </lengths> </noOverlap>",
    lambda r: "<binPacking> <list> x[] </list> <sizes> 1 2 2 </sizes> <condition> (le,3) </condition> </binPacking>",
    lambda r: "<precedence> <list> x[] </list> <values> 0 1 2 </values> </precedence>",
    lambda r: (
        f"<instantiation> <list> x[0] y </list> <values> {r.randint(0, 2)} {r.choice([-2, 1, 3])} </values>"
        " </instantiation>"
    ),
    lambda r: (
        f"<group> <intension> {r.choice(['ne(%0,%1)', 'le(add(%0,%1),2)', 'lt(%0,%1)'])} </intension>"
        " <args> x[0] x[1] </args> <args> x[2] b </args> </group>"
    ),
    lambda r: "<slide> <list> x[] </list> <intension> ne(%0,%1) </intension> </slide>",
)


def draw(random: Random) -> dict[str, Any]:
    """One to three constraints."""
    return {"constraints": [random.choice(KINDS)(random) for _ in range(random.choice((1, 1, 2, 3)))]}


def check(case: dict[str, Any], folder: Path, tally: Tally) -> None:
    """Both find the same solutions, projected on the variables that the constraints name."""
    import oocbe
    from oocbe.errors import UnsupportedError

    text = "\n".join(case["constraints"])
    path = folder / "instance.xml"
    path.write_text(
        f'<instance format="XCSP3" type="CSP">\n<variables> {DECLARED} </variables>\n<constraints>\n{text}\n'
        "</constraints>\n</instance>\n"
    )
    found = set(_NAME.findall(text))
    names = [v for v in VARIABLES if v in found or ("x[]" in found and v.startswith("x"))]
    expected = _reference_solutions(path, names, "choco/choco-parsers", "-a")
    try:
        problem = oocbe.read(path)
    except UnsupportedError as error:
        tally.refused(error, "by zero" in str(error))
        return
    found_solutions = sorted(_own_solutions(problem, names))
    if sorted(expected) != found_solutions:
        expected = _reference_solutions(path, names, "ace/ACE", "-s=all", "-v=3", "-xe")
    tally.same("solutions", sorted(expected), found_solutions)


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


def _reference_solutions(path: Path, names: list[str], archive: str, *options: str) -> set[tuple[int, ...]]:
    """Values of the named variables in every solution that a solver of pycsp3 prints."""
    command = [*_command(archive), str(path), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    if "Missing Implementation" in done.stdout or "xception" in done.stderr + done.stdout:
        raise AssertionError(f"{archive} does not read {path.read_text()}: {done.stdout[-500:]}{done.stderr[-500:]}")
    found = set()
    for listed, values in _SOLUTION.findall(done.stdout):
        own = [name for word in listed.split() for name in (_ARRAY if word == "x[]" else [word])]
        written = re.sub(r"(\S+)x([0-9]+)", lambda m: f"{m[1]} " * int(m[2]), values)  # 0x3 stands for 0 0 0
        solution = dict(zip(own, written.split(), strict=True))
        found.add(tuple(int(solution[v]) for v in names))
    return found


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
