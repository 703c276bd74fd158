"""Global cost functions of ``.wcsp`` and ``.cfn``, each with random parameters, against toulbar2.

Compared are the costs of all assignments with one function, or two, alone, as one table and as walks over states, and
the optimum with costs of single values besides.

Left out is what toulbar2 (1.4.0) reads in another way than its manual says: ``clique`` over two or three variables of a
``.wcsp`` file, which it passes over; ``wtdiverse`` over one variable, which never forbids, and with the distance 0,
which always does; ``alldiff``, ``gcc`` and ``sgcckp`` with a value that no variable has, and ``gcc`` that forbids a
value, which may forbid all others; ``alldiff`` over as many names of values as variables, where it may forbid all;
``wregular`` beside another function, which it may charge less or where it forbids other values; limits between 0 and
-1, whose sign it loses. So is what oocbe refuses: ``<``, ``<=`` and
``sregulardp`` of ``.cfn`` (:mod:`oocbe.formats.cfn_globals` says why), and ``sregular`` with ``edit``.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from ..outcome import Tally
from ._global_parameters import KEYWORDS, Fields, Parameters
from ._toulbar2 import answer
from ._walks import Walks

Case = dict[str, Any]

MOST_ASSIGNMENTS = 150

EVEN = ("wsame", "wsamegcc", "ssame", "woverlap")
PAIRS = (">=", ">", "<=", "<", "=", "disj", "sdisj")
NOT_IN_CFN = ("walldifferent", "knapsackp", "knapsackc", "salldiffkp", "sgcckp", "sregulardp", "<", "<=")
"""Keywords that are no types of ``.cfn``, or that toulbar2 or oocbe refuses there."""


def draw(random: Random) -> Case:
    """A function over random variables."""
    suffix = random.choice(("wcsp", "cfn"))
    keyword = random.choice([k for k in KEYWORDS if suffix == "wcsp" or k not in NOT_IN_CFN])
    arity = 2 if keyword in PAIRS else 2 * random.randint(1, 2) if keyword in EVEN else random.randint(1, 5)
    if keyword == "wtdiverse" or (keyword == "clique" and suffix == "wcsp"):
        arity = random.randint(4, 5)
    if keyword in ("knapsackc", "MST", "smstdp"):
        arity = random.randint(2 if keyword == "knapsackc" else 1, 4)
    sizes = [random.choice((1, 2, 2, 3, 3, 4)) for _ in range(arity)]
    scope = list(range(arity))
    if keyword in ("MST", "smstdp"):
        sizes = [arity] * arity
    elif keyword == "knapsackc":
        sizes = [2] * arity
    else:
        while math.prod(sizes) > MOST_ASSIGNMENTS:
            sizes[sizes.index(max(sizes))] -= 1
        random.shuffle(scope)
    top = random.choice((9, 30, 60, 1000))
    own = [sizes[v] for v in scope]
    digits = 0 if keyword in PAIRS else random.choice((0, 0, 1, 3))
    sign = -1 if suffix == "cfn" and keyword not in PAIRS and top >= 10**digits and random.random() < 0.3 else 1
    functions = [[keyword, scope, KEYWORDS[keyword](Parameters(random, own, scope, top, suffix == "cfn"))]]
    if random.random() < 0.25 and keyword != "wregular":
        functions.append(_second(random, suffix, sizes, top, has_pairs=not digits and sign > 0))
    has_labels = random.random() < 0.3 and not any(
        kind == "alldiff" and len({name for v in own for name in _names(v, sizes[v])}) == len(own)
        for kind, own, _ in functions
    )
    costs = (0, 0, 1, 2, 5) if suffix == "wcsp" else (0, 0, 1, 2, 5, -3)
    return {
        "suffix": suffix,
        "functions": functions,
        "sizes": sizes,
        "top": top,
        "digits": digits,
        "style": random.choice(("json", "bare")),
        "labels": has_labels,
        "unary": [[random.choice(costs) for _ in range(size)] for size in sizes],
        "sign": sign,
        "cells": random.choice((0, 4096)),
    }


def _names(v: int, size: int) -> list[str]:
    """Names of a variable's values."""
    return [f"l{v % 2}_{a}" for a in range(size)]


def _second(random: Random, suffix: str, sizes: list[int], top: int, has_pairs: bool) -> list[Any]:
    """Another function over some of the variables."""
    count = len(sizes)
    left_out = {"wtdiverse", "clique", "knapsackc", "MST", "smstdp", "wregular"}
    left_out |= set(() if has_pairs and count > 1 else PAIRS) | set(() if count > 1 else EVEN)
    left_out |= set(NOT_IN_CFN if suffix == "cfn" else ())
    keyword = random.choice([own for own in KEYWORDS if own not in left_out])
    arity = (
        2 if keyword in PAIRS else 2 * random.randint(1, count // 2) if keyword in EVEN else random.randint(1, count)
    )
    scope = random.sample(range(count), arity)
    parameters = Parameters(random, [sizes[v] for v in scope], scope, top, suffix == "cfn")
    return [keyword, scope, KEYWORDS[keyword](parameters)]


def text_of(case: Case, is_priced: bool) -> str:
    """The file: the functions alone, or with costs of single values."""
    return (_wcsp if case["suffix"] == "wcsp" else _cfn)(case, case["unary"] if is_priced else [])


def _wcsp(case: Case, unary: list[list[int]]) -> str:
    sizes, functions = case["sizes"], case["functions"]
    lines = [f"p {len(sizes)} {max(sizes)} {len(functions) + len(unary)} {case['top']}", " ".join(map(str, sizes))]
    for keyword, scope, fields in functions:
        words = [word for _, value in _in_wcsp_order(keyword, fields) for word in _flat(value)]
        lines.append(" ".join(map(str, [len(scope), *scope, -1, keyword, *words])))
    for v, costs in enumerate(unary):
        lines.append(f"1 {v} 0 {len(costs)} " + " ".join(f"{a} {cost}" for a, cost in enumerate(costs)))
    return "\n".join(lines) + "\n"


def _in_wcsp_order(keyword: str, fields: Fields) -> Fields:
    if "grammar" in keyword:
        added = 2 * (fields[0][1] == "weight")
        rules = [[kind + added, *rule] for kind in range(2) for rule in fields[-2 + kind][1][1]]
        return [*fields[:-2], ["", ["list", rules]]]
    if keyword == "ssame":
        (_, cost), (_, (_, left)), (_, (_, right)) = fields
        return [["", cost], ["", len(left)], ["", len(right)], ["", ["each", [*left, *right]]]]
    return fields


def _flat(value: Any) -> list[Any]:
    if not isinstance(value, list):
        return [value]
    if value and value[0] == "cost":
        return [value[1]]
    if value and value[0] in ("list", "each"):
        words = [word for item in value[1] for word in _flat(item)]
        return [len(value[1]), *words] if value[0] == "list" else words
    return [word for item in value for word in _flat(item)]


def _cfn(case: Case, unary: list[list[int]]) -> str:
    is_json, digits = case["style"] == "json", case["digits"]

    def tag(name: str) -> str:
        return f'"{name}": ' if is_json and name else ""

    def number(cost: int) -> str:
        return f"{case['sign'] * cost / 10**digits:.{digits}f}"

    def shown(value: Any) -> str:
        if not isinstance(value, list):
            return f'"{value}"' if isinstance(value, str) else str(value)
        if value and value[0] == "cost":
            return number(value[1])
        items = value[1] if value and value[0] in ("list", "each") else value
        return "[" + ", ".join(map(shown, items)) + "]"

    def domain(v: int, size: int) -> str:
        return f"[{', '.join(map(shown, _names(v, size)))}]" if case["labels"] else str(size)

    variables = ", ".join(tag(f"x{v}") + domain(v, size) for v, size in enumerate(case["sizes"]))
    lines = []
    for place, (keyword, own, fields) in enumerate(case["functions"]):
        scope = ", ".join(map(str, own))
        parameters = ", ".join(tag(name) + shown(value) for name, value in fields)
        body = f'{tag("scope")}[{scope}], {tag("type")}"{keyword}", {tag("params")}{{{parameters}}}'
        lines.append(tag(f"f{place}") + "{" + body + "}")
    for v, costs in enumerate(unary):
        lines.append(f"{tag(f'u{v}')}{{{tag('scope')}[{v}], {tag('costs')}[{', '.join(map(number, costs))}]}}")
    limit = ("<" if case["sign"] > 0 else ">") + number(case["top"])
    head = f'{{{tag("problem")}{{{tag("name")}p, {tag("mustbe")}"{limit}"}},\n'
    return head + f"{tag('variables')}{{{variables}}},\n{tag('functions')}{{" + ",\n".join(lines) + "}}\n"


def check(case: Case, folder: Path, tally: Tally) -> None:
    """Compare all costs, and the optimum with other costs besides."""
    import oocbe
    from oocbe.errors import FormatError, UnsupportedError
    from oocbe.formats import global_costs

    alone, priced = (folder / f"{name}.{case['suffix']}" for name in ("alone", "priced"))
    alone.write_text(text_of(case, False))
    priced.write_text(text_of(case, True))
    theirs, keywords = answer(alone), " and ".join(keyword for keyword, _, _ in case["functions"])
    if theirs.kind != "read":
        tally.refusals[f"toulbar2: {keywords}: {theirs.kind}"] += 1
        return

    def minimised(value: float | None) -> float:
        return math.inf if value is None else case["sign"] * float(value)

    expected: dict[tuple[int, ...], float] = {}
    for whole, value in theirs.rows:  # over states, too
        own = whole[: len(case["sizes"])]
        expected[own] = min(minimised(value), expected.get(own, math.inf))
    least = min((minimised(value) for _, value in answer(priced).rows), default=math.inf)
    cells = global_costs.MOST_CELLS
    global_costs.MOST_CELLS = case["cells"]
    try:
        walks = Walks(oocbe.read(alone), len(case["sizes"]))
        for row in itertools.product(*map(range, case["sizes"])):
            wanted, found = expected.get(row, math.inf), minimised(walks.value(row))
            tally.holds(f"{keywords}: value of {row}", _near(wanted, found), wanted, found)
        result = oocbe.solve(priced, incumbent_seconds=0.01, bound_seconds=0.1, order_seconds=0)
        found = minimised(result.value)
        tally.holds(f"{keywords}: optimum", _near(least, found), least, found)
    except (FormatError, UnsupportedError) as error:
        tally.refused(error, False)
    finally:
        global_costs.MOST_CELLS = cells


def _near(wanted: float, found: float) -> bool:
    return wanted == found or abs(wanted - found) < 1e-9 * max(1.0, abs(wanted))


def smaller(case: Case) -> Iterator[Case]:
    """The case as one table, without costs of single values, with plain numbers."""
    if len(case["functions"]) > 1:
        yield from (case | {"functions": [own]} for own in case["functions"])
    for change in ({"cells": 4096}, {"digits": 0}, {"labels": False}, {"style": "json"}):
        if case != case | change:
            yield case | change
    if any(map(any, case["unary"])):
        yield case | {"unary": [[0] * size for size in case["sizes"]]}
