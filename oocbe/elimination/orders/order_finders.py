"""Elimination orders from files of variable names, and from other packages.

Orders of other packages are tree decompositions in the formats of the PACE challenge (2017).

A package adds a finder by an entry point in the group ``oocbe.order_finders``; the option ``order`` selects it by its
name. The entry point names a function ``find(graph, seconds, seed)``: ``graph`` is text in the ``.gr`` format, one
vertex a variable and an edge where two variables share a scope; the result is text in the ``.td`` format. The function
returns after about ``seconds`` seconds; oocbe does not interrupt it.

An elimination order of the same width follows from a tree decomposition: leaves are removed one after the other, and
with each leaf the vertices that its neighbour does not have. Such an order is then judged like any other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from oocbe.elimination.orders.separators import ScopeGraph
from oocbe.errors import FormatError, OocbeError, UsageError
from oocbe.model.problem import Problem
from oocbe.model.settings.option_values import order_finders
from oocbe.runtime.deadline import check_deadline
from oocbe.runtime.plain_files import read_text


def read_order(problem: Problem, path: str | Path) -> list[int]:
    """Order from a text file: variable names separated by white space or commas; ``#`` begins a comment.

    Raises FormatError: an unknown variable, one that occurs twice or is missing; the message names it and the line.
    """
    known = {v.name: index for index, v in enumerate(problem.variables)}
    order: list[int] = []
    seen: set[int] = set()
    number = 0
    try:
        text = read_text(path)
    except (OSError, UnicodeDecodeError) as error:
        raise FormatError(path, None, f"cannot be read as an elimination order ({error})") from None
    for number, line in enumerate(text.splitlines(), start=1):
        for name in line.split("#", 1)[0].replace(",", " ").split():
            if name not in known:
                raise FormatError(path, number, f"no variable is called {name!r}; expected names of {problem.name}")
            if known[name] in seen:
                raise FormatError(path, number, f"variable {name} occurs twice in the order; expected each once")
            seen.add(known[name])
            order.append(known[name])
    if len(order) < len(known):
        missing = next(name for name, index in known.items() if index not in seen)
        raise FormatError(
            path, number, f"the order ends after {len(order)} of {len(known)} variables; {missing} is missing"
        )
    return order


def found_order(
    name: str, seconds: float, graph: ScopeGraph, seed: int, most: float = math.inf, flags: object = None
) -> NDArray[np.int64]:
    """The order of the finder with a name, int64 (variables,); ``most`` and ``flags`` do not concern finders.

    Raises UsageError: the finder cannot be loaded, fails, or returns no tree decomposition of the graph.
    """
    try:
        find: Callable[[str, float, int], str] = order_finders()[name].load()
        answer = find(graph_text(graph), seconds, seed)
        order, width = order_of(answer, len(graph.sizes))
        reached = graph.separators(order).width
        if reached > width:
            raise ValueError(f"of width {width}, which is none of this graph: its order has the width {reached}")
    except OocbeError:
        raise
    except Exception as error:
        raise UsageError(f"the order finder {name} returned no tree decomposition: {error}") from error
    check_deadline()
    return order


def graph_text(graph: ScopeGraph) -> str:
    """The graph in the ``.gr`` format: vertices are counted from 1, each edge is listed once."""
    owners = np.repeat(np.arange(len(graph.sizes)), np.diff(graph.starts))
    pairs = np.column_stack((owners, graph.neighbours))[owners < graph.neighbours] + 1
    return "\n".join([f"p tw {len(graph.sizes)} {len(pairs)}", *(f"{u} {v}" for u, v in pairs.tolist()), ""])


def order_of(text: str, vertices: int) -> tuple[NDArray[np.int64], int]:
    """An elimination order, int64 (vertices,), from a ``.td`` text, and the decomposition's width.

    Raises ValueError: a line that the format does not have, or a vertex in no bag.
    """
    bags: dict[int, set[int]] = {}
    edges: dict[int, list[int]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        kind, *words = line.split() or ["c"]
        if kind in ("c", "s"):
            continue
        try:
            if kind == "b":
                bags[int(words[0])] = {int(word) - 1 for word in words[1:]}
            else:
                one, other = int(kind), *map(int, words)
                edges.setdefault(one, []).append(other)
                edges.setdefault(other, []).append(one)
        except (ValueError, IndexError):
            raise ValueError(f"line {number}: found {line[:40]!r}, expected a bag, an edge or a comment") from None
    order = list(_eliminated(bags, edges))
    if sorted(order) != list(range(vertices)):
        raise ValueError(f"{len(bags)} bags whose vertices are not those from 1 to {vertices}")
    return np.array(order, dtype=np.int64), max(map(len, bags.values()), default=0) - 1


def _eliminated(bags: dict[int, set[int]], edges: dict[int, list[int]]) -> Iterator[int]:
    """Vertices, each with the bag nearest to the root that has it, bags below first."""
    above: dict[int, int | None] = {}
    for root in bags:
        waiting: list[tuple[int, int | None]] = [(root, None)]
        while waiting:
            bag, parent = waiting.pop()
            if bag in bags and bag not in above:
                above[bag] = parent
                waiting += [(other, bag) for other in edges.get(bag, ())]
    done: set[int] = set()
    for bag, parent in reversed(above.items()):
        leaving = bags[bag] - done - (set() if parent is None else bags[parent])
        done |= leaving
        yield from sorted(leaving)
