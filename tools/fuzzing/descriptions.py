"""Random problems as plain JSON, the engine's problem made of one, and the description of a problem that was read.

A description is written first; the engine's problem and brute force are both made of it. It is an object of ``sizes``,
``semiring``, ``constant`` (or null), ``upper_bound`` (or null), and lists of ``functions`` (``scope``, ``tuples``,
``values``, ``default``, and ``form``: ``rows``, or ``array`` for a dense array with infinities), ``constraints``
(``scope``, ``tuples``, ``allowed``) and ``linear`` constraints (``scope``, ``coefficients``, ``capacity``).
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Iterator
from random import Random
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from oocbe.model.problem import Problem

Description = dict[str, Any]

SEMIRINGS = ("min-sum", "max-sum", "max-product", "sum-product", "log-sum-exp", "counting")

MOST_ASSIGNMENTS = 3000
"""Brute force over so many assignments takes some ten milliseconds."""

MOST_AXES = 60
"""Variables of a function that is made of an array; arrays of NumPy have at most 64 axes."""

MOST_CELLS = 1500
"""Cells of one function's scope."""

ADDED = {
    "small": lambda r: r.randint(0, 5),
    "tied": lambda r: r.randint(0, 1),
    "spread": lambda r: r.randint(0, 1000),
    "negative": lambda r: r.randint(-9, 9),
    "large": lambda r: r.choice(
        (0, 1, 2**15 - 1, 2**15, 2**31 - 1, 2**31, -(2**31), 2**32, 2**53, 2**53 + 1, -(2**53))
    ),
    "huge": lambda r: r.choice((0, 1, -1)) * (2 ** r.randint(30, 60) + r.randint(-1, 1)),
    "edge": lambda r: r.choice((2**63 - 1, -(2**63), 2**62, 0, 1)),
    "tenths": lambda r: r.choice((0.1, 0.2, 0.3, 0.7, 1.1)),
    "halves": lambda r: r.randint(-9, 9) / 2,
    "floats": lambda r: r.uniform(-10, 10),
    "wide floats": lambda r: r.choice((0.0, 1.0, -1.0)) * 10.0 ** r.randint(-12, 12) * r.random(),
    "tiny floats": lambda r: r.choice((0.0, 1.0, -1.0)) * r.choice((1e-7, 1e-300)) * r.random(),
    "smallest floats": lambda r: r.randint(-9, 20) * 2.0**-1074,
    "mixed": lambda r: r.randint(0, 9) if r.random() < 0.5 else r.random(),
}
"""Kinds of numbers in problems that add."""

MULTIPLIED = {
    "small": lambda r: r.randint(0, 5),
    "tied": lambda r: r.randint(0, 1),
    "negative": lambda r: r.randint(-3, 3),
    "large": lambda r: r.choice((1, 2**15, 2**31 - 1, 2**31, 2**20)),
    "probabilities": lambda r: round(r.random(), r.randint(1, 6)),
    "tenths": lambda r: r.choice((0.1, 0.2, 0.3, 0.7, 1.1)),
    "wide floats": lambda r: 10.0 ** r.randint(-6, 6) * r.random(),
    "tiny floats": lambda r: r.choice((1e-300, 1e-200, 1e-160, 1.0, 1e-320)),
    "mixed": lambda r: r.randint(0, 9) if r.random() < 0.5 else r.random(),
}
"""Kinds of numbers in problems that multiply."""


def random_description(
    random: Random, semirings: tuple[str, ...] = SEMIRINGS, most: int = MOST_ASSIGNMENTS, linear: bool = True
) -> Description:
    """A random problem, of at most ``most`` assignments."""
    semiring = random.choice(semirings)
    sizes = _sizes(random, most)
    widest = 6
    if random.random() < 0.08:  # a variable of one value takes a bit of a key, too: keys of several words
        sizes += [1] * random.choice((60, 70, 130))
        random.shuffle(sizes)
        widest = random.choice((6, len(sizes)))
    adds = semiring in ("min-sum", "max-sum", "log-sum-exp")
    kinds = dict(ADDED if adds else MULTIPLIED)
    if semiring == "log-sum-exp":
        for name in ("edge", "huge", "large"):
            del kinds[name]
    palette = random.choice([*kinds, "small", "negative"])
    density = random.choice((1.0, 1.0, 0.8, 0.5, 0.3))

    def number() -> Any:
        return kinds[palette](random)

    functions = [
        _function(random, sizes, number, density, widest) for _ in range(random.choice((0, 1, 2, 3, 4, 6, 8, 10)))
    ]
    for _ in range(random.choice((0, 0, 0, 1, 2))):
        if functions:
            functions.append(copy.deepcopy(random.choice(functions)))
    constraints = [_constraint(random, sizes) for _ in range(random.choice((0, 0, 1, 2, 4)))]
    chosen = random.choice((0, 0, 0, 0, 1, 1, 2, 3)) if linear else 0
    constraint_kind = random.choice(("small", "small", "signed", "zero", "huge"))
    return {
        "sizes": sizes,
        "semiring": semiring,
        "constant": random.choice((None, None, number())),
        "upper_bound": _upper_bound(random, number, functions) if semiring == "min-sum" else None,
        "functions": functions,
        "constraints": constraints,
        "linear": [_linear(random, sizes, constraint_kind) for _ in range(chosen)],
    }


def _sizes(random: Random, most: int) -> list[int]:
    largest = random.choice((2, 2, 3, 4, 5, 9))
    sizes = [
        random.randint(1 if random.random() < 0.3 else 2, largest)
        for _ in range(random.choice((0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12)))
    ]
    while math.prod(sizes) > most:
        sizes.pop()
    return sizes


def _scope(random: Random, sizes: list[int], largest: int = 6) -> list[int]:
    usual = random.choice((1, 2, 2, 2, 3, 3, 4, 0, largest))
    scope = random.sample(range(len(sizes)), min(usual, len(sizes)))
    if usual > 12:  # all that have several values would be too many cells
        scope = [v for v in scope if sizes[v] > 1][:6] + [v for v in scope if sizes[v] == 1]
    while math.prod(sizes[v] for v in scope) > MOST_CELLS:
        scope.remove(max(scope, key=lambda v: sizes[v]))
    return scope


def _function(random: Random, sizes: list[int], number: Any, density: float, widest: int) -> Description:
    scope = _scope(random, sizes, widest)
    cells = [list(t) for t in itertools.product(*(range(sizes[v]) for v in scope))]
    form = random.choice(("rows", "rows", "array")) if len(scope) <= MOST_AXES else "rows"
    if form == "rows":
        random.shuffle(cells)
    kept = cells if random.random() < density else [c for c in cells if random.random() < density]
    default = number() if form == "rows" and random.random() < 0.3 else None
    values = [number() for _ in kept]
    if (form == "array" and any(isinstance(v, float) for v in values)) or any(isinstance(v, float) for v in values):
        values = [float(v) for v in values]
    return {"scope": scope, "tuples": kept, "values": values, "default": default, "form": form}


def _constraint(random: Random, sizes: list[int]) -> Description:
    scope = _scope(random, sizes)
    allowed = random.random() < 0.5
    share = random.choice((0.6, 0.85, 1.0)) if allowed else random.choice((0.0, 0.15, 0.4))
    tuples = [list(t) for t in itertools.product(*(range(sizes[v]) for v in scope)) if random.random() < share]
    random.shuffle(tuples)
    return {"scope": scope, "tuples": tuples, "allowed": allowed}


def _linear(random: Random, sizes: list[int], kind: str) -> Description:
    scope = _scope(random, sizes, largest=random.choice((3, 6, 12)))
    if random.random() < 0.3:
        scope = random.sample(range(len(sizes)), len(sizes))
    largest = 2**63
    # Where only some capacities bind, the lookup, the carrying and the refusal all occur.
    draw = {
        "small": lambda: random.randint(0, 5),
        "signed": lambda: random.randint(-4, 5),
        "zero": lambda: random.choice((0, 0, 0, 1)),
        "huge": lambda: max(
            -largest,
            min(
                largest - 1,
                random.choice((-1, 0, 1, 1)) * random.choice((2**31, largest // 16, largest)) - random.randint(0, 1),
            ),
        ),
    }[kind]
    coefficients = [[draw() for _ in range(sizes[v])] for v in scope]
    least, most = sum(map(min, coefficients)), sum(map(max, coefficients))
    capacity = random.choice((random.randint(least, most), least, most, least - 1, 0))
    return {"scope": scope, "coefficients": coefficients, "capacity": max(-(2**63), min(2**63 - 1, capacity))}


def _upper_bound(random: Random, number: Any, functions: list[Description]) -> Any:
    if random.random() < 0.75:
        return None
    return sum((number() for _ in range(1 + len(functions) // 2)), random.choice((0, 0, 1)))


def problem_of(description: Description, name: str = "described") -> Problem:
    """The engine's problem of a description."""
    import numpy as np

    from oocbe import Constraint, Function, LinearConstraint, Problem, Variable
    from oocbe.model.semiring import SEMIRINGS as KNOWN

    sizes = description["sizes"]

    def function(f: Description) -> Function:
        if f["form"] == "rows" or f["default"] is not None:
            return Function(tuple(f["scope"]), _tuples(f), _values(f["values"]), f["default"])
        dense = np.full([sizes[v] for v in f["scope"]], np.inf, dtype=object)
        for row, value in zip(f["tuples"], f["values"], strict=True):
            dense[tuple(row)] = value
        if all(isinstance(v, int) for v in dense.ravel()):
            return Function.from_array(f["scope"], dense)
        if all(abs(v) < 2**53 for v in f["values"] if isinstance(v, int)) and any(
            isinstance(v, float) for v in f["values"]
        ):
            return Function.from_array(f["scope"], dense.astype(np.float64))
        return Function(tuple(f["scope"]), _tuples(f), _values(f["values"]), None)  # integers have no infinity

    return Problem(
        tuple(Variable(f"x{v}", size) for v, size in enumerate(sizes)),
        tuple(function(f) for f in description["functions"]),
        tuple(Constraint(tuple(c["scope"]), _tuples(c), c["allowed"]) for c in description["constraints"]),
        tuple(
            LinearConstraint(tuple(c["scope"]), tuple(_values(row) for row in c["coefficients"]), c["capacity"])
            for c in description["linear"]
        ),
        constant=description["constant"],
        semiring=KNOWN[description["semiring"]],
        upper_bound=description["upper_bound"],
        lower_bound=description.get("lower_bound"),
        name=name,
    )


def _tuples(part: Description) -> Any:
    import numpy as np

    return np.array(part["tuples"], dtype=np.int64).reshape(len(part["tuples"]), len(part["scope"]))


def _values(values: list[Any]) -> Any:
    import numpy as np

    return np.array(values, dtype=np.int64 if all(isinstance(v, int) for v in values) else np.float64)


def description_of(problem: Problem) -> Description:
    """What a problem of the engine says, through its public data."""
    return {
        "sizes": list(problem.sizes),
        "semiring": problem.semiring.name,
        "constant": problem.constant,
        "upper_bound": problem.upper_bound,
        "lower_bound": problem.lower_bound,
        "functions": [
            {
                "scope": list(f.scope),
                "tuples": f.tuples.tolist(),
                "values": f.values.tolist(),
                "default": f.default,
                "form": "rows",
            }
            for f in problem.functions
        ],
        "constraints": [
            {"scope": list(c.scope), "tuples": c.tuples.tolist(), "allowed": c.allowed} for c in problem.constraints
        ],
        "linear": [
            {"scope": list(c.scope), "coefficients": [row.tolist() for row in c.coefficients], "capacity": c.capacity}
            for c in problem.linear_constraints
        ],
    }


def is_refused_for_range(description: Description) -> bool:
    """Whether numbers are so large that a refusal is right: sums near 64 bits, in values or in linear constraints."""
    values = abs(description["constant"] or 0)
    product = max(1, values)
    for f in description["functions"]:
        entries = [*f["values"], *([] if f["default"] is None else [f["default"]])]
        largest = max(map(abs, entries), default=0)
        values += largest
        product *= max(1, largest)
    if 4 * values >= 2**62 or (
        description["semiring"] in ("max-product", "sum-product") and product * math.prod(description["sizes"]) >= 2**60
    ):
        return True
    return any(
        sum(max(map(abs, row)) for row in c["coefficients"]) + abs(c["capacity"]) >= 2**60
        for c in description["linear"]
    )


def may_leave_floats(description: Description) -> bool:
    """Whether products of some of the values, or of their inverses, come near the ends of the range of float64."""
    bits = abs(math.log2(abs(description["constant"] or 1)))
    for f in description["functions"]:
        entries = [*f["values"], *([] if f["default"] is None else [f["default"]])]
        bits += max((abs(math.log2(abs(v))) for v in entries if v), default=0.0)
    return bits > 900


def smaller_descriptions(description: Description) -> Iterator[Description]:
    """Descriptions with something left out, the largest parts first."""
    for kind in ("linear", "constraints", "functions"):
        for place in range(len(description[kind])):
            yield {**description, kind: description[kind][:place] + description[kind][place + 1 :]}
    for name in ("upper_bound", "constant"):
        if description[name] is not None:
            yield {**description, name: None}
    used = {v for kind in ("linear", "constraints", "functions") for part in description[kind] for v in part["scope"]}
    for v in range(len(description["sizes"])):
        if v not in used:
            yield _without_variable(description, v)
    for v, size in enumerate(description["sizes"]):
        if size > 1:
            yield _with_fewer_values(description, v)


def _without_variable(description: Description, gone: int) -> Description:
    made = copy.deepcopy(description)
    del made["sizes"][gone]
    for kind in ("linear", "constraints", "functions"):
        for part in made[kind]:
            part["scope"] = [v - (v > gone) for v in part["scope"]]
    return made


def _with_fewer_values(description: Description, v: int) -> Description:
    """The description without the last value of a variable."""
    made = copy.deepcopy(description)
    made["sizes"][v] = last = made["sizes"][v] - 1
    for part in made["functions"] + made["constraints"]:
        if v in part["scope"]:
            place = part["scope"].index(v)
            keep = [row[place] < last for row in part["tuples"]]
            for name in ("tuples", "values"):
                if name in part:
                    part[name] = list(itertools.compress(part[name], keep))
    for part in made["linear"]:
        if v in part["scope"]:
            part["coefficients"][part["scope"].index(v)].pop()
    return made
