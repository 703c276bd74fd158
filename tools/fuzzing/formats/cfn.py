"""Random ``.cfn`` files without global cost functions, read by toulbar2 and by oocbe.

Left out is what toulbar2 (1.4) reads other than its format's definition says: limits between -1 and 0, and of complete
tables over more than three variables those whose least cost is not 0, which it counts twice, and those beside ``inf``:
once a value is forbidden, it takes costs for those of the tuples that are left.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from ..outcome import Tally
from ._toulbar2 import compare, solved

Case = dict[str, Any]

WORDS = ("x", "y", "z1", "w_", "été", "a-b", "cost", "Name", "X.1", "(a|b)")
VALUES = ("a", "b", "c", "red", "no", "_1", "T", "-1", "+x", "costs")


def draw(random: Random) -> Case:
    """A file, as what its parts say and the seed of how it is written."""
    names = random.sample(WORDS, len(WORDS))
    variables = []
    for v in range(random.choice((0, *range(1, 6), *range(1, 6), *range(1, 6)))):
        size = random.choice((1, 2, 2, 2, 3, 3, 4))
        labels = random.sample(VALUES, size) if random.random() < 0.5 else None
        variables.append({"name": names[v] if random.random() < 0.7 else None, "size": size, "labels": labels})
    decimals = random.choice((0, 0, 1, 2, 3))
    sense = random.choice("<<>")
    spread = random.choice((3, 10, 100))
    low = random.choice((0, -spread))
    case: Case = {"variables": variables, "sense": sense, "decimals": decimals, "functions": []}
    for number in range(random.choice((0, *range(1, 8), *range(1, 8)))):
        case["functions"].append(_function(random, case, number, low, spread))
    large = "-1000" if sense == ">" else "1000"
    if any("costs" in f and f["tuples"] is None and len(f["scope"]) > 3 for f in case["functions"]):
        for f in case["functions"]:
            if "costs" in f:
                f["costs"] = [large if cost == "inf" else cost for cost in f["costs"]]
                f["default"] = large if f["default"] == "inf" else f["default"]
    limit = random.choice((random.randint(-3 * spread, 4 * spread), random.randint(0, 2 * spread), 1000))
    if sense == ">":
        limit = -limit
    case["limit"] = _number(random, limit, limit, decimals, True) if random.random() < 0.8 else f"{limit}"
    if -1 < float(case["limit"]) < 0:
        case["limit"] = case["limit"].lstrip("-")
    case["style"] = random.choice(("json", "bare tags", "bare")), random.randint(0, 2**32)
    return case


def _function(random: Random, case: Case, number: int, low: int, high: int) -> Case:
    variables = case["variables"]
    arity = min(len(variables), random.choice((0, 1, 1, 1, 2, 2, 2, 2, 3, 3, 4, 5)))
    scope = random.sample(range(len(variables)), arity)
    if arity in (2, 3) and random.random() < 0.05:
        scope[-1] = scope[0]
    sizes = [variables[v]["size"] for v in scope]
    own: Case = {"name": f"f{number}" if random.random() < 0.7 else None, "scope": scope}
    before = [f for f in case["functions"] if f.get("name") and f.get("costs") and 1 < len(f["scope"]) < 4]
    before = [f for f in before if [variables[v]["size"] for v in f["scope"]] == sizes and "shared" not in f]
    if before and random.random() < 0.5:
        # The one that shares comes before the one whose costs it has: they change places when written.
        return {**own, "shared": random.choice(before)["name"]}

    def cost() -> str:
        kind = random.random()
        if kind < 0.05:
            return "inf"
        if kind < 0.1:
            return str(random.choice((1000, 1001, high * 2)))
        return _number(random, low, high, case["decimals"] + random.choice((0, 0, 0, 1)))

    rows = list(itertools.product(*map(range, sizes)))
    if arity and random.random() < 0.5:
        rows = random.sample(rows, random.randint(0, len(rows)))
        return {**own, "default": cost(), "tuples": rows, "costs": [cost() for _ in rows]}
    costs = [cost() for _ in rows]
    if arity > 3:
        sign = "-" if case["sense"] == ">" else ""
        costs = [c if c == "inf" else sign + c.lstrip("+-") for c in costs]
        costs[random.randrange(len(costs))] = "0"
    return {**own, "default": None, "tuples": None, "costs": costs}


def _number(random: Random, low: int, high: int, decimals: int, whole: bool = False) -> str:
    """A number as people and programs print it."""
    number = f"{random.randint(low, high)}"
    if decimals and random.random() < 0.8:
        number += "." + "".join(random.choice("0123456789") for _ in range(decimals))
    elif decimals and whole:
        number += "." + "0" * decimals
    if whole or random.random() < 0.9:
        return number
    if number.startswith("0."):
        return number[1:]
    return f"+{number}" if number[0] != "-" else number


def text_of(case: Case) -> str:
    """The file."""
    way, seed = case["style"]
    random = Random(seed)
    opening, closing = ("{", "}"), ("[", "]")

    def pair(wanted: tuple[str, str]) -> tuple[str, str]:
        return random.choice((opening, closing)) if way != "json" else wanted

    def quoted(word: str) -> str:
        return f'"{word}"' if way == "json" or random.random() < 0.2 else word

    def tag(word: str) -> str:
        return "" if way == "bare" else f"{quoted(word)}{random.choice((':', ': ')) if way == 'json' else ' '}"

    def group(parts: list[str], wanted: tuple[str, str]) -> str:
        begin, end = pair(wanted)
        between = random.choice((",", ", ", ",\n")) if way == "json" else random.choice((" ", "\n", ", ", "\t"))
        last = random.choice(("", "", "", "", ",", " ", "\n"))
        return begin + between.join(parts) + last + end

    def field(name: str, value: str) -> str:
        return tag(name) + value

    def value(v: int, x: int) -> str:
        labels = case["variables"][v]["labels"]
        if labels is None:
            return quoted(f"v{x}") if random.random() < 0.1 else str(x)
        return quoted(labels[x]) if random.random() < 0.8 else str(x)

    def variable(v: int) -> str:
        name = case["variables"][v]["name"]
        if name is None:
            return quoted(f"x{v}") if random.random() < 0.1 else str(v)
        return quoted(name) if random.random() < 0.8 else str(v)

    def comment() -> str:
        return random.choice(("", "", "", "\n# a comment: { [\n", " // another } one\n"))

    variables = []
    for v in case["variables"]:
        domain = str(v["size"]) if v["labels"] is None else group([quoted(x) for x in v["labels"]], closing)
        variables.append(domain if v["name"] is None else f"{quoted(v['name'])}{':' if way == 'json' else ' '}{domain}")
    functions = []
    shared = [f for f in case["functions"] if "shared" in f]
    for f in [*shared, *(f for f in case["functions"] if "shared" not in f)]:
        parts = [field("scope", group([variable(v) for v in f["scope"]], closing))]
        if "shared" in f:
            parts.append(field("costs", quoted(f["shared"])))
        else:
            if f["default"] is not None and (f["default"] != "inf" or way != "bare"):
                parts.append(field("defaultcost", f["default"]))
            elif f["default"] is not None:
                parts.append("1000000")
            costs = f["costs"]
            if f["tuples"] is not None:
                costs = [
                    word
                    for row, cost in zip(f["tuples"], costs, strict=True)
                    for word in (*(value(v, x) for v, x in zip(f["scope"], row, strict=True)), cost)
                ]
            parts.append(field("costs", group(costs, closing)))
        name = "" if f["name"] is None else f"{quoted(f['name'])}{':' if way == 'json' else ' '}"
        functions.append(comment() + name + group(parts, opening))
    header = [field("name", quoted("random")), field("mustbe", quoted(case["sense"] + case["limit"]))]
    whole = [
        field("problem", group(header, opening)),
        field("variables", group(variables, opening)) + comment(),
        field("functions", group(functions, opening)),
    ]
    text = (
        random.choice(("", "", "# a comment\n", "\n\n// one\n"))
        + group(whole, opening)
        + random.choice(("\n", "", "\n\n"))
    )
    return text.replace("\n", "\r\n") if random.random() < 0.1 else text


def check(case: Case, folder: Path, tally: Tally) -> None:
    """Both programs read the file as the same problem, and a solve finds its optimum."""
    path = folder / "random.cfn"
    path.write_bytes(text_of(case).encode())
    problem = compare(path, tally)
    if problem is not None:
        solved(problem, tally)
        _check_question(problem, case, folder, tally)


def smaller(case: Case) -> Iterator[Case]:
    """Without functions, tuples, comments, names."""
    functions = case["functions"]
    for number, f in enumerate(functions):
        rest = [g for k, g in enumerate(functions) if k != number and g.get("shared") != f["name"]]
        yield {**case, "functions": rest}
    for number, f in enumerate(functions):
        rest = [*functions[:number], {}, *functions[number + 1 :]]
        if f.get("tuples"):
            for k in range(len(f["tuples"])):
                kept = {key: f[key][:k] + f[key][k + 1 :] for key in ("tuples", "costs")}
                rest[number] = {**f, **kept}
                yield {**case, "functions": list(rest)}
        for k, cost in enumerate(f.get("costs", ())):
            for simple in ("0", cost.partition(".")[0] or "0"):
                if cost != simple and len(f["scope"]) < 4:
                    rest[number] = {**f, "costs": [*f["costs"][:k], simple, *f["costs"][k + 1 :]]}
                    yield {**case, "functions": list(rest)}
    if case["style"][0] != "json":
        yield {**case, "style": ("json", 0)}
    used = {v for f in functions for v in f["scope"]}
    last = len(case["variables"]) - 1
    if last > 0 and last not in used:
        yield {**case, "variables": case["variables"][:-1]}


def _check_question(problem: Any, case: Case, folder: Path, tally: Tally) -> None:
    """What is written is the same problem; and of some, tasks that meet the bound in their own ways."""
    import oocbe
    from oocbe.errors import OocbeError, UnsupportedError

    rows = list(itertools.product(*map(range, problem.sizes)))
    values = [problem.evaluate(row) for row in rows]
    try:
        oocbe.write(problem, folder / "again.cfn")
        again = oocbe.read(folder / "again.cfn")
    except UnsupportedError as error:
        tally.refused(error, "between -1 and 0" in str(error))
    else:
        for row, before in zip(rows, values, strict=True):
            after = again.evaluate(row)
            same = before == after or (None not in (before, after) and math.isclose(before, after, abs_tol=1e-6))
            tally.holds(f"value of {row} in what was written", same, before, after)
    if case["style"][1] % 4:
        return
    known = sorted((v for v in values if v is not None), reverse=problem.sense == "max")
    best = oocbe.k_best(problem, 3, order_seconds=0)
    found = [value for value, _ in best.assignments]
    tally.same("number of the best", len(known[:3]), len(found))
    for one, two in zip(known, found, strict=False):
        tally.near("one of the best", one, two, 0 if problem.is_integral else 1e-6)
    try:
        tally.same("count", len(known), oocbe.count(problem).value)
    except OocbeError as error:
        tally.refused(error, "bound" in str(error))
