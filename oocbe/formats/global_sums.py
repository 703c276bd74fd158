"""Global cost functions over sums: linear constraints, sums with a price, and relations of two variables."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

from oocbe.errors import amount
from oocbe.formats.global_costs import Cost
from oocbe.formats.global_counts import COMPARATORS, NETWORK
from oocbe.formats.global_reader import GlobalReader

RELATIONS: dict[str, Callable[[int, int], int]] = {
    ">=": lambda x, y: y - x,
    ">": lambda x, y: y + 1 - x,
    "<=": lambda x, y: x - y,
    "<": lambda x, y: x + 1 - y,
    "=": lambda x, y: abs(y - x),
}
"""How far two numbers are from a relation, where above 0."""


def total(reader: GlobalReader) -> None:
    """``wsum``: the sum of all values."""
    metric, cost, gap = reader.metric(*NETWORK), reader.cost(), reader.comparator(COMPARATORS)
    right = reader.integer("a right-hand side")
    weights = [list(range(size)) for size in reader.sizes]
    reader.violated(weights, lambda found: gap(found - right), metric, cost)


def total_variable(reader: GlobalReader) -> None:
    """``wvarsum``: the sum of all values but the last, against the last."""
    metric, cost, gap = reader.metric(*NETWORK), reader.cost(), reader.comparator(COMPARATORS)
    weights = [list(range(size)) for size in reader.sizes]
    reader.violated([*weights[:-1], [-value for value in weights[-1]]], gap, metric, cost)


def clique(reader: GlobalReader) -> None:
    """``clique``: at most one of the variables has one of its values."""
    if reader.integer("how many variables may have their values") != 1:
        raise reader.unsupported("is supported with 1 only, as in toulbar2, which reads any number as 1")
    own = [reader.values() for _ in reader.scope]
    _at_most_one(reader, own)


def _at_most_one(reader: GlobalReader, chosen: list[set[int]]) -> None:
    rows = zip(chosen, reader.sizes, strict=True)
    reader.between([[int(value in own) for value in range(size)] for own, size in rows], -math.inf, 1)


def knapsack(reader: GlobalReader) -> None:
    """``knapsack``: weights of variables that count where a variable is 1, and nowhere else."""
    capacity = reader.integer("a capacity")
    given = [reader.integer("a weight") for _ in reader.scope]
    rows = zip(given, reader.sizes, strict=True)
    reader.at_least([[own if value == 1 else 0 for value in range(size)] for own, size in rows], capacity)


def knapsack_of_values(reader: GlobalReader) -> None:
    """``knapsackp``: weights of values, and ``knapsackc``: besides, values of which at most one is taken."""
    capacity = reader.integer("a capacity")
    weights = [[0] * size for size in reader.sizes]
    for own in weights:
        for _ in range(reader.count("a number of weighted values")):
            _add_weight(reader, own)
    reader.at_least(weights, capacity)
    if reader.keyword != "knapsackc":
        return
    if max(reader.sizes) > 2:
        raise reader.unsupported("is supported over variables of two values only")
    for _ in range(reader.count("a number of sets")):
        chosen: list[set[int]] = [set() for _ in reader.scope]
        for _ in range(reader.count("a number of variables")):
            chosen[_place(reader)].add(reader.integer("a value"))
        _at_most_one(reader, chosen)


def _add_weight(reader: GlobalReader, own: list[int]) -> None:
    """Weights of a value add up; that of a value that the variable does not have is of no effect."""
    value, weight = reader.integer("a value", 0), reader.integer("a weight")
    if value < len(own):
        own[value] += weight


def _place(reader: GlobalReader) -> int:
    v = reader.integer("a variable")
    if v not in reader.scope:
        raise reader.error(f"found variable {v}, expected one of the scope {reader.scope}")
    return reader.scope.index(v)


def knapsack_by_triplets(reader: GlobalReader) -> None:
    """``knapsackv``: variables, values and weights."""
    capacity = reader.integer("a capacity")
    weights = [[0] * size for size in reader.sizes]
    for _ in range(reader.integer("a number of weights", 0)):
        _add_weight(reader, weights[_place(reader)])
    reader.at_least(weights, capacity)


def relation(reader: GlobalReader) -> None:
    """Relations of two variables, which cost how far they are from holding, up to a largest cost that is allowed."""
    constant, most = reader.integer("an integer"), reader.integer("the largest cost")
    gap = RELATIONS[reader.keyword]

    def cost(x: int, y: int) -> Cost:
        off = gap(x, y + constant)
        return max(0, off) * reader.unit if off <= most else math.inf

    _pair(reader, cost)


def disjunction(reader: GlobalReader) -> None:
    """``disj``: one of two after the other, or a cost."""
    one, other, cost = reader.integer("an integer"), reader.integer("an integer"), reader.cost()
    _pair(reader, lambda x, y: 0 if x >= y + other or y >= x + one else cost)


def disjunction_special(reader: GlobalReader) -> None:
    """``sdisj``: one of two after the other, unless one has its last value, which costs something."""
    one, other, last_x, last_y = (reader.integer("an integer") for _ in range(4))
    cost_x, cost_y = reader.cost(), reader.cost()

    def cost(x: int, y: int) -> Cost:
        if x > last_x or y > last_y or (x < last_x and y < last_y and x < y + other and y < x + one):
            return math.inf
        return (cost_x if x == last_x else 0) + (cost_y if y == last_y else 0)

    _pair(reader, cost)


def _pair(reader: GlobalReader, cost: Callable[[int, int], Cost]) -> None:
    if len(reader.scope) != 2:
        raise reader.error(f"found {amount(len(reader.scope), 'variable')}, expected two for {reader.keyword}")
    rows = list(itertools.product(*map(range, reader.sizes)))
    reader.whole.costs(reader.scope, rows, [cost(*row) for row in rows], 0)
