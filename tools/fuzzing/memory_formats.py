"""Large problems in the formats that :mod:`.memory_inputs` does not write: chains of small functions, as text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

Numbers = np.random.Generator


def _pairs(numbers: Numbers, count: int) -> list[list[int]]:
    """Neighbours of so many, nearly all of a chain."""
    first = np.arange(max(1, count - 1))
    return np.vstack([first, np.minimum(first + numbers.integers(1, 3, len(first)), count - 1)]).T.tolist()


def _table(numbers: Numbers, size: int) -> list[list[int]]:
    """Each cell of two variables of one size, and its cost."""
    cells = np.arange(size * size)
    rows: list[list[int]] = np.vstack([cells // size, cells % size, numbers.integers(0, 99, size * size)]).T.tolist()
    return rows


def wcnf(numbers: Numbers, size: int) -> str:
    """Weighted clauses over neighbours."""
    count = max(4, size // 16)
    rows = [f"{1 + a % 9} {a + 1} -{b + 1} 0" for a, b in _pairs(numbers, count) if a != b]
    return f"p wcnf {count} {len(rows)} 1000000000\n" + "\n".join(rows) + "\n"


def opb(numbers: Numbers, size: int) -> str:
    """Constraints over neighbours."""
    count = max(4, size // 45)
    rows = [f"+1 x{a + 1} +2 x{b + 1} +1 x{min(b + 2, count)} >= 2 ;" for a, b in _pairs(numbers, count)]
    objective = " ".join(f"+{1 + i % 7} x{i + 1}" for i in range(count))
    return f"* #variable= {count} #constraint= {len(rows)}\nmin: {objective} ;\n" + "\n".join(rows) + "\n"


def qpbo(numbers: Numbers, size: int) -> str:
    """Weights of pairs."""
    count = max(4, size // 16)
    rows = [f"{a + 1} {b + 1} {a % 9 - 4}" for a, b in _pairs(numbers, count)]
    return f"{count} {len(rows)}\n" + "\n".join(rows) + "\n"


def lp(numbers: Numbers, size: int) -> str:
    """Rows over neighbours, in CPLEX's LP form."""
    count = max(4, size // 70)
    objective = "\n".join(f" + {1 + i % 7} x{i}" for i in range(count))
    rows = "\n".join(f" r{a}: 2 x{a} + x{b} + x{(b + 1) % count} >= 3" for a, b in _pairs(numbers, count) if a != b)
    bounds = "\n".join(f" 0 <= x{i} <= {1 + i % 3}" for i in range(count))
    names = "\n".join(f" x{i}" for i in range(count))
    return f"Minimize\n cost:\n{objective}\nSubject To\n{rows}\nBounds\n{bounds}\nGenerals\n{names}\nEnd\n"


def spot(numbers: Numbers, size: int) -> str:
    """Photographs, of which near ones exclude each other."""
    count = max(4, size // 40)
    rows = [f"{i} {1 + i % 9} 3 1 0 2 0 3 0" for i in range(count)]
    pairs = [(a, b) for a, b in _pairs(numbers, count) if a != b]
    return "\n".join([str(count), *rows, str(len(pairs)), *(f"2 {b} {a} 1 1 2 2" for a, b in pairs)]) + "\n"


def logarithms(numbers: Numbers, size: int) -> str:
    """A Markov network of logarithms."""
    domain = int(numbers.integers(2, 9))
    count = max(2, size // (domain * domain * 6))
    scopes = "\n".join(f"2 {i} {i + 1}" for i in range(count - 1))
    table = " ".join(f"-{x:.3f}" for x in numbers.random(domain * domain))
    head = f"MARKOV\n{count}\n{' '.join([str(domain)] * count)}\n{count - 1}\n{scopes}\n"
    return head + f"{domain * domain}\n{table}\n" * (count - 1)


def _network(numbers: Numbers, size: int, each: int) -> Iterator[tuple[int, list[int], list[list[str]]]]:
    """Variables of two states, each with its parents and its distributions: about so many bytes in all."""
    count = max(3, size // each)
    for i in range(count):
        parents = [p for p in (i - 1, i - 2) if p >= 0 and i % 5]
        share = numbers.random(2 ** len(parents)).round(3).tolist()
        yield i, parents, [[f"{p:.3f}", f"{1 - p:.3f}"] for p in share]


def net(numbers: Numbers, size: int) -> str:
    """Hugin's NET."""
    nodes, potentials = [], []
    for i, parents, rows in _network(numbers, size, 130):
        nodes.append(f'node v{i} {{ states = ("a" "b"); }}')
        given = f" | {' '.join(f'v{p}' for p in parents)}" if parents else ""
        potentials.append(f"potential (v{i}{given}) {{ data = ({' '.join(x for row in rows for x in row)}); }}")
    return "\n".join(["net { }", *nodes, *potentials]) + "\n"


def xdsl(numbers: Numbers, size: int) -> str:
    """GeNIe's XML."""
    nodes = []
    for i, parents, rows in _network(numbers, size, 180):
        given = f"<parents>{' '.join(f'v{p}' for p in parents)}</parents>" if parents else ""
        numerals = " ".join(x for row in rows for x in row)
        nodes.append(
            f'<cpt id="v{i}"><state id="a"/><state id="b"/>{given}<probabilities>{numerals}</probabilities></cpt>'
        )
    return '<smile version="1.0" id="p"><nodes>\n' + "\n".join(nodes) + "\n</nodes></smile>\n"


def xmlbif(numbers: Numbers, size: int) -> str:
    """XMLBIF."""
    parts = []
    for i, parents, rows in _network(numbers, size, 250):
        given = "".join(f"<GIVEN>v{p}</GIVEN>" for p in parents)
        numerals = " ".join(x for row in rows for x in row)
        parts.append(f"<VARIABLE><NAME>v{i}</NAME><OUTCOME>a</OUTCOME><OUTCOME>b</OUTCOME></VARIABLE>")
        parts.append(f"<DEFINITION><FOR>v{i}</FOR>{given}<TABLE>{numerals}</TABLE></DEFINITION>")
    return '<BIF VERSION="0.3"><NETWORK><NAME>p</NAME>\n' + "\n".join(parts) + "\n</NETWORK></BIF>\n"


def xcsp(numbers: Numbers, size: int) -> str:
    """XCSP3: tables and inequalities over neighbours, with an objective."""
    domain = int(numbers.integers(3, 40))
    tuples = "".join(f"({a},{b})" for a, b, cost in _table(numbers, domain) if cost < 60)
    body = f"<extension><list> x[{{}}] x[{{}}] </list><supports> {tuples} </supports></extension>"
    count = max(3, size // len(body))
    rows = "\n".join(body.format(a, b) for a, b in _pairs(numbers, count) if a != b)
    return (
        f'<instance format="XCSP3" type="COP"><variables><array id="x" size="[{count}]"> 0..{domain - 1} </array>'
        f'</variables><constraints>\n{rows}\n</constraints><objectives><minimize type="sum"> x[] </minimize>'
        "</objectives></instance>\n"
    )


def frodo(numbers: Numbers, size: int) -> str:
    """FRODO's XCSP 2.1: one agent a variable, a soft relation a pair."""
    domain = int(numbers.integers(2, 8))
    rows = _table(numbers, domain)
    text = "|".join(f"{cost}: {a} {b}" for a, b, cost in rows)
    count = max(3, size // (len(text) + 250))
    pairs = [(a, b) for a, b in _pairs(numbers, count) if a != b]
    relations = (
        f'<relation name="r{i}" arity="2" nbTuples="{len(rows)}" semantics="soft">{text}</relation>'
        for i in range(len(pairs))
    )
    constraints = (
        f'<constraint name="c{i}" arity="2" scope="x{a} x{b}" reference="r{i}"/>' for i, (a, b) in enumerate(pairs)
    )
    return "\n".join(
        [
            '<instance><presentation name="p" maxConstraintArity="2" maximize="false" format="XCSP 2.1_FRODO"/>',
            f'<agents nbAgents="{count}">',
            *(f'<agent name="a{i}"/>' for i in range(count)),
            f'</agents><domains nbDomains="1"><domain name="D" nbValues="{domain}">0..{domain - 1}</domain></domains>',
            f'<variables nbVariables="{count}">',
            *(f'<variable name="x{i}" domain="D" agent="a{i}"/>' for i in range(count)),
            f'</variables><relations nbRelations="{len(pairs)}">',
            *relations,
            f'</relations><constraints nbConstraints="{len(pairs)}">',
            *constraints,
            "</constraints></instance>\n",
        ]
    )


def pydcop(numbers: Numbers, size: int) -> str:
    """pyDcop's YAML: expressions and tables."""
    count = max(3, size // 110)
    variables = "\n".join(f"  x{i}: {{domain: d}}" for i in range(count))
    rows = "\n".join(
        f"  c{i}: {{type: intention, function: {1 + i % 9} if x{a} == x{b} else 0}}"
        for i, (a, b) in enumerate(_pairs(numbers, count))
        if a != b
    )
    agents = ", ".join(f"a{i}" for i in range(count))
    domains = "domains:\n  d: {values: [0, 1, 2]}\n"
    return f"name: p\nobjective: min\n{domains}variables:\n{variables}\nconstraints:\n{rows}\nagents: [{agents}]\n"


OTHERS: dict[str, tuple[Callable[[Any, int], str], ...]] = {
    "wcnf": (wcnf,),
    "opb": (opb,),
    "qpbo": (qpbo,),
    "lp": (lp,),
    "spot": (spot,),
    "lg": (logarithms,),
    "net": (net,),
    "xdsl": (xdsl,),
    "xml": (xmlbif, xcsp, frodo),
    "yaml": (pydcop,),
}
"""Who writes problems of a format."""
