"""Bounds on rows: none is above what a row's best completion costs, and tables stay what they are, bit by bit.

A case is a problem, a threshold, an order of elimination, and which messages are looked at. Every source of bounds is
asked: those for all rows of a message, by themselves, with tables of mini-buckets beside them, and of what they leave
of a problem; and those that bound each row by itself, of the problem and of what reduction leaves of it. Then messages
are made with rows held against one of the sources, in several ways, and beside those that nothing was dropped from.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

from .bound_checks import Assignments, check_messages, check_root
from .descriptions import ADDED, Description, is_refused_for_range, problem_of, random_description, smaller_descriptions
from .outcome import Tally
from .pruned_tables import check_tables
from .row_bound_checks import check_row_bounds
from .search_checks import check_searches

MOST_ASSIGNMENTS = 500
"""All completions of all rows are looked at, for every source and message."""

PACKING_SHARE = 0.35
"""Of problems that are drawn as linear programs want them: of any others these say little."""

SECONDS = 20.0
"""For all sources: they end by themselves long before, so that a seed draws the same bounds on every machine."""

LARGEST_TERMS = 2**60
"""Where entries add up to so much, 64 bits may be too few for terms."""

THRESHOLDS = ("none", "optimum", "above", "middle", "below", "far")
"""Below which value only assignments count, told by where it lies among all values."""


def draw(random: Random) -> Description:
    """A random problem of costs, a threshold, and what is asked of its bounds."""
    if random.random() < PACKING_SHARE:
        problem = _packing(random)
    else:
        problem = random_description(random, ("min-sum",), most=MOST_ASSIGNMENTS)
    count = len(problem["sizes"])
    problem["upper_bound"] = None
    return {
        "problem": problem,
        "threshold": random.choice(THRESHOLDS),
        "part": random.random(),
        "order": random.sample(range(count), count),
        "eliminated": sorted({random.randint(0, count), random.randint(0, count)}),
        "improve": random.random() < 0.3,
        "chance": random.randint(0, 99),
        "source": random.randint(0, 9),
        "threads": random.choice((1, 2, 3)),
        "piece_rows": random.choice((None, None, 1, 3, 20)),
        "block_rows": random.choice((None, 1, 2, 7)),
        "dominance": random.random() < 0.3,
    }


def _packing(random: Random) -> Description:
    """What linear programs are for: weights of what is left out, conflicts of two or three values that are forbidden or
    cost much, and perhaps a capacity. A value of 0 leaves a variable out."""
    sizes = [random.choice((2, 2, 2, 3, 4)) for _ in range(random.randint(4, 8))]
    while math.prod(sizes) > MOST_ASSIGNMENTS:
        sizes.pop()
    count, weigh = len(sizes), ADDED[random.choice(("small", "spread", "huge", "floats", "halves", "tiny floats"))]
    functions = [_listed([v], [[0]], [abs(weigh(random))], 0) for v in range(count)]
    worth = max(function["values"][0] for function in functions)
    constraints, costly = [], random.random() < 0.4
    for _ in range(random.randint(1, 2 * count)):
        scope = random.sample(range(count), random.choice((2, 2, 3)))
        taken = [random.randint(1, sizes[v] - 1) for v in scope]
        if costly:
            functions.append(_listed(scope, [taken], [min(random.choice((1, 3, 9)) * worth, 2**60)], 0))
        else:
            constraints.append({"scope": scope, "tuples": [taken], "allowed": False})
    linear = []
    for _ in range(random.choice((0, 1, 1, 2))):
        uses = [[0, *(random.randint(0, 5) for _ in range(size - 1))] for size in sizes]
        linear.append({"scope": [*range(count)], "coefficients": uses, "capacity": random.randint(1, 2 * count)})
    return {
        "sizes": sizes,
        "semiring": "min-sum",
        "constant": random.choice((None, weigh(random))),
        "upper_bound": None,
        "functions": functions,
        "constraints": constraints,
        "linear": linear,
    }


def _listed(scope: list[int], tuples: list[list[int]], values: list[Any], default: int) -> Description:
    return {"scope": scope, "tuples": tuples, "values": values, "default": default, "form": "rows"}


def check(case: Description, folder: Path, tally: Tally) -> None:
    """Ask all sources of bounds, and compare with all assignments."""
    # One thread, but where tables are made once more; what goes through the disk goes to the case's folder.
    one_thread = mock.patch.dict(os.environ, {"OOCBE_THREADS": "1"})
    with one_thread, mock.patch("tempfile.tempdir", str(folder)):
        _check(case, tally)


def _check(case: Description, tally: Tally) -> None:
    from oocbe.bounds.bounds import BoundSources
    from oocbe.elimination.reformulation import reduce_arity
    from oocbe.errors import ValueRangeError

    problem, seed = reduce_arity(problem_of(case["problem"])), case["chance"]  # as a solve begins
    every = Assignments.of(case["problem"])
    threshold = every.threshold_at(case["threshold"], case["part"])  # None: all count
    limited, counted = problem.below(threshold), every.below(threshold)
    try:
        sources = BoundSources(problem, seed, threshold, case["improve"]).improved(SECONDS)
    except ValueRangeError as error:
        tally.refused(error, is_refused_for_range(case["problem"]) or _terms(case["problem"]) >= LARGEST_TERMS)
        return
    for source in sources:
        own = counted
        if source.assignment is not None:
            value = every.value_of(source.assignment)
            tally.holds(f"{source.name}: a feasible assignment", value is not None, "one", source.assignment)
            own = counted.better_than(source.assignment)
        check_root(source, own, threshold, tally)
        check_messages(source, limited, own, case, tally)
    check_row_bounds(problem, every, threshold, case, tally)
    check_searches(limited, every, counted, case, tally)
    if threshold is not None:
        plain = [source for source in sources if source.assignment is None]
        check_tables(limited, plain[case["source"] % len(plain)], counted, case, tally)


def _terms(description: Description) -> float:
    """What the entries of terms come to at most: infeasible ones are as large as the largest."""
    return sum(
        max((abs(v) for v in (*f["values"], f["default"] or 0)), default=0)
        * math.prod(description["sizes"][v] for v in f["scope"])
        for f in description["functions"]
    )


def smaller(case: Description) -> Iterator[Description]:
    """Cases with something left out."""
    for name, plain in (("improve", False), ("piece_rows", None), ("block_rows", None), ("threads", 1)):
        if case[name] != plain:
            yield {**case, name: plain}
    for problem in smaller_descriptions(case["problem"]):
        count = len(problem["sizes"])
        if count == len(case["problem"]["sizes"]):
            yield {**case, "problem": problem}
        else:
            order = [v for v in case["order"] if v < count]
            eliminated = sorted({min(e, count) for e in case["eliminated"]})
            yield {**case, "problem": problem, "order": order, "eliminated": eliminated}
