"""Files of every format that is read, written by the fuzz itself in the ways that the formats allow."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from .descriptions import Description, random_description

NETWORK = "MARKOV\n3\n2 3 2\n2\n2 1 0\n2 1 2\n\n6\n 0.5 0 1e-3\n 1 2.25 0.125\n\n6\n1 2 3 4 5 6\n"
"""The network that evidence is read for."""

LARGEST_COST = 10**8
"""A cost that reaches every limit whatever else is saved."""

RECORDER_CAPACITY, CONSUMPTION_UNIT = 200, 451
"""What a .spot file's capacity is, and what a unit of it is in the file's figures."""


@dataclass(frozen=True)
class Kind:
    """How a format's files are made: ``draw`` a description that fits it, ``render`` it in a random style."""

    draw: Callable[[Random], Description]
    render: Callable[[Description, Random], str]


def _space(random: Random) -> str:
    return random.choice((" ", " ", " ", "  ", "\t", "\n", "\r\n"))


def _joined(words: list[Any], random: Random) -> str:
    """Words with white space of all kinds between them."""
    return "".join(f"{word}{_space(random)}" for word in words)


def wcsp_description(random: Random) -> Description:
    """Costs that are whole and not negative, below an upper bound."""
    made = random_description(random, ("min-sum",), most=1500)
    for f in made["functions"]:
        f["form"] = "rows"
        f["values"] = [abs(int(v)) % 1000 for v in f["values"]]
        f["default"] = None if f["default"] is None else abs(int(f["default"])) % 1000
    least = 1 - 2**63  # a lower limit is written, of the negative numbers
    for c in made["linear"]:
        c["coefficients"] = [[max(least, w) for w in row] for row in c["coefficients"]]
        c["capacity"] = max(least, c["capacity"])
    made["constant"] = random.choice((0, 7))
    made["upper_bound"] = random.choice((10, 100, 10**6))
    return made


def render_wcsp(d: Description, random: Random) -> str:
    """With shared functions where two are alike, and constants as functions of arity 0."""
    top, words, count = d["upper_bound"], [], 0
    shared: dict[str, int] = {}
    for f in d["functions"]:
        count += 1
        scope, default = f["scope"], top if f["default"] is None else f["default"]
        if not scope:
            cost = f["values"][0] if f["values"] else default
            words += [0, cost, 0]
            continue
        rows = [[*t, v] for t, v in zip(f["tuples"], f["values"], strict=True)]
        key = repr((default, rows, [d["sizes"][v] for v in scope]))
        if key in shared:
            words += [len(scope), *scope, default, -shared[key]]
            continue
        # toulbar2 does not number a shared function over four or more variables that is 0 everywhere.
        sign = random.choice((1, -1)) if len(scope) < 4 or default or rows else 1
        if sign < 0:
            shared[key] = len(shared) + 1
        words += [sign * len(scope), *scope, default, len(rows), *itertools.chain(*rows)]
    for c in d["constraints"]:
        count += 1
        listed, default = (0, top + random.choice((0, 5))) if c["allowed"] else (top, 0)
        if not c["scope"]:
            words += [0, listed if c["tuples"] else default, 0]
            continue
        words += [len(c["scope"]), *c["scope"], default, len(c["tuples"])]
        words += itertools.chain(*([*t, listed] for t in c["tuples"]))
    for c in d["linear"]:
        count += 1
        if not c["scope"]:
            words += [0, 0 if c["capacity"] >= 0 else top, 0]
            continue
        words += [len(c["scope"]), *c["scope"], -1, "knapsackp", -c["capacity"]]
        for row in c["coefficients"]:
            pairs = [(value, -weight) for value, weight in enumerate(row) if weight]
            words += [len(pairs), *itertools.chain(*pairs)]
    if d["constant"]:
        count += 1
        words += [0, d["constant"], 0]
    header = ["made", len(d["sizes"]), max(d["sizes"], default=0) + random.randint(0, 2), count, top]
    return _joined([*header, *d["sizes"], *words], random)


def uai_description(random: Random) -> Description:
    """Factors that are written out in full."""
    made = random_description(random, ("max-product",), most=1500, linear=False)
    made["constraints"], made["constant"] = [], None
    for f in made["functions"]:
        f["form"], f["default"] = "rows", None
        f["values"] = [abs(float(v)) for v in f["values"]]
    return made


def _dense(f: Description, sizes: list[int], missing: Any) -> list[Any]:
    listed = {tuple(t): v for t, v in zip(f["tuples"], f["values"], strict=True)}
    default = missing if f["default"] is None else f["default"]
    return [listed.get(t, default) for t in itertools.product(*(range(sizes[v]) for v in f["scope"]))]


def render_uai(d: Description, random: Random) -> str:
    """A preamble, scopes and tables."""
    words = [random.choice(("MARKOV", "BAYES", "markov")), len(d["sizes"]), *d["sizes"], len(d["functions"])]
    for f in d["functions"]:
        words += [len(f["scope"]), *f["scope"]]
    for f in d["functions"]:
        entries = _dense(f, d["sizes"], 0.0)
        words += [len(entries), *(random.choice((repr, lambda v: f"{v:.17e}"))(v) for v in entries)]
    return _joined(words, random)


def bif_description(random: Random) -> Description:
    """A belief network: a table a variable, over itself and variables before it."""
    sizes = [random.randint(1, 4) for _ in range(random.randint(1, 6))]
    functions = []
    for v in range(len(sizes)):
        parents = random.sample(range(v), random.randint(0, min(v, 2)))
        scope = [v, *parents]
        tuples = [list(t) for t in itertools.product(*(range(sizes[u]) for u in scope))]
        values = [float(random.choice((0, 0.25, 0.5, 1.0, round(random.random(), 4)))) for _ in tuples]
        functions.append({"scope": scope, "tuples": tuples, "values": values, "default": None, "form": "rows"})
    return _with_functions(sizes, "max-product", functions)


def _with_functions(sizes: list[int], semiring: str, functions: list[Description]) -> Description:
    return {
        "sizes": sizes, "semiring": semiring, "constant": None, "upper_bound": None, "functions": functions,
        "constraints": [], "linear": [],
    }  # fmt: skip


def render_bif(d: Description, random: Random) -> str:
    """Rows by the parents' values, or a whole table."""
    lines = ["network made { property version 1; }"]
    for v, size in enumerate(d["sizes"]):
        values = ", ".join(f"v{x}" for x in range(size))
        lines.append(f"variable x{v} {{\n  type discrete [ {size} ] {{ {values} }};\n}}")
    order = list(range(len(d["functions"])))
    random.shuffle(order)
    for number in order:
        f = d["functions"][number]
        own, parents = f["scope"][0], f["scope"][1:]
        names = f" | {', '.join(f'x{u}' for u in parents)}" if parents else ""
        lines.append(f"probability ( x{own}{names} ) {{")
        if random.random() < 0.3:
            lines.append("// a comment")
        if not parents or random.random() < 0.4:
            lines.append(f"  table {', '.join(map(repr, f['values']))};")
        else:
            lines += _bif_rows(d, f, random)
        lines.append("}")
    return "\n".join(lines) + "\n"


def _bif_rows(d: Description, f: Description, random: Random) -> list[str]:
    own, parents = f["scope"][0], f["scope"][1:]
    value = {tuple(t): v for t, v in zip(f["tuples"], f["values"], strict=True)}
    rows = []
    for given in itertools.product(*(range(d["sizes"][u]) for u in parents)):
        entries = ", ".join(repr(value[(x, *given)]) for x in range(d["sizes"][own]))
        rows.append(f"  ({', '.join(f'v{x}' for x in given)}) {entries};")
    random.shuffle(rows)
    return rows


def cfn_description(random: Random) -> Description:
    """Costs to minimise below a limit, or values to maximise; integers or decimals."""
    semiring = random.choice(("min-sum", "max-sum"))
    made = random_description(random, (semiring,), most=1500, linear=False)
    fractions = random.random() < 0.5
    least = 0 if semiring == "max-sum" else -50  # of values to maximise, a limit that binds is refused
    made["constant"] = None
    for f in made["functions"]:
        f["form"] = "rows"
        entries = [*f["values"], *([] if f["default"] is None else [f["default"]])]
        entries = [round(v % 100 + least, 3) if fractions else int(v) % 100 + least for v in entries]
        f["values"], f["default"] = entries[: len(f["values"])], None if f["default"] is None else entries[-1]
    made["upper_bound"] = random.choice((120, 10**6)) if semiring == "min-sum" else None
    if fractions:
        for f in made["functions"]:
            f["values"] = [float(v) for v in f["values"]]
            f["default"] = None if f["default"] is None else float(f["default"])
        made["constant"] = 0.0
    return made


def render_cfn(d: Description, random: Random) -> str:
    """With quotes and commas or without, tuples by names or numbers."""
    minimises = d["semiring"] == "min-sum"
    limit = d["upper_bound"] if minimises else -1
    hard: Any = random.choice((LARGEST_COST if minimises else -LARGEST_COST, "inf"))
    decimals = ".000" if isinstance(d["constant"], float) else ""  # costs have as many as the limit
    mark = random.choice(('"', ""))
    comma = random.choice((", ", " "))
    names = [f"{mark}x{v}{mark}" for v in range(len(d["sizes"]))]
    variables = [f"{n}: {_domain(size, random)}" for n, size in zip(names, d["sizes"], strict=True)]
    parts = [
        f'{{ "problem": {{ "name": "made", "mustbe": "{"<" if minimises else ">"}{limit}{decimals}" }},',
        f'"variables": {{ {comma.join(variables)} }},',
        '"functions": {',
    ]
    for number, part in enumerate([*d["functions"], *d["constraints"]]):
        scope = comma.join(names[v] for v in part["scope"])
        heading = f'"f{number}": {{ "scope": [{scope}],'
        if "allowed" in part:
            listed, default = (0, hard) if part["allowed"] else (hard, 0)
            part = {**part, "values": [listed] * len(part["tuples"]), "default": default}
        if not part["scope"] or random.random() < 0.4:
            costs = comma.join(map(str, _dense(part, d["sizes"], hard)))
            parts.append(f'{heading} "costs": [{costs}] }},')
            continue
        default = hard if part["default"] is None else part["default"]
        rows = [comma.join([*map(str, t), str(v)]) for t, v in zip(part["tuples"], part["values"], strict=True)]
        parts.append(f'{heading} "defaultcost": {default}, "costs": [{comma.join(rows)}] }},')
    return "\n".join([*parts, "} }"]) + "\n"


def _domain(size: int, random: Random) -> str:
    return str(size) if random.random() < 0.5 else f"[{' '.join(f'v{x}' for x in range(size))}]"


def spot_description(random: Random) -> Description:
    """Photographs that may be left out, forbidden tuples of those that are taken, and perhaps a recorder."""
    sizes = [random.choice((2, 2, 4)) for _ in range(random.randint(0, 6))]
    weights = [random.randint(0, 9) for _ in sizes]
    functions = [
        {"scope": [v], "tuples": [[0]], "values": [w], "default": 0, "form": "rows"} for v, w in enumerate(weights)
    ]
    made = _with_functions(sizes, "min-sum", functions)
    for _ in range(random.randint(0, 6) if sizes else 0):
        scope = random.sample(range(len(sizes)), random.randint(1, min(3, len(sizes))))
        cells = [list(t) for t in itertools.product(*(range(1, sizes[v]) for v in scope))]
        chosen = random.sample(cells, random.randint(1, len(cells)))
        made["constraints"].append({"scope": scope, "tuples": chosen, "allowed": False})
    if random.random() < 0.4 and sizes:
        rows = [[0, *(random.choice((0, 20, 60, 90)) for _ in range(size - 1))] for size in sizes]
        if any(map(any, rows)):
            scope = [v for v, row in enumerate(rows) if any(row)]
            coefficients = [rows[v] for v in scope]
            made["linear"] = [{"scope": scope, "coefficients": coefficients, "capacity": RECORDER_CAPACITY}]
    return made


def render_spot(d: Description, random: Random) -> str:
    """Ids and values of any numbers, and the last line of a file over several orbits."""
    ids = random.sample(range(1000), len(d["sizes"]))
    codes = [[0, *random.sample(range(1, 50), size - 1)] for size in d["sizes"]]
    used = [[0] * size for size in d["sizes"]]
    for c in d["linear"]:
        for v, row in zip(c["scope"], c["coefficients"], strict=True):
            used[v] = row
    lines = [str(len(ids))]
    for v, size in enumerate(d["sizes"]):
        pairs = (f"{codes[v][x]} {used[v][x] * CONSUMPTION_UNIT}" for x in range(1, size))
        weight = d["functions"][v]["values"][0]
        lines.append(" ".join([str(ids[v]), str(weight), str(size - 1), *pairs]))
    constraints = []
    for c in d["constraints"]:
        tuples = itertools.chain(*([str(codes[v][x]) for v, x in zip(c["scope"], t, strict=True)] for t in c["tuples"]))
        constraints.append(" ".join([str(len(c["scope"])), *(str(ids[v]) for v in c["scope"]), *tuples]))
    if d["linear"]:
        constraints.append(str(RECORDER_CAPACITY * CONSUMPTION_UNIT - 200))  # 90000, as the published files have it
    return "\n".join([*lines, str(len(constraints)), *constraints]) + "\n"


KINDS = {
    "bif": Kind(bif_description, render_bif),
    "cfn": Kind(cfn_description, render_cfn),
    "spot": Kind(spot_description, render_spot),
    "uai": Kind(uai_description, render_uai),
    "wcsp": Kind(wcsp_description, render_wcsp),
}
"""By suffix."""
