"""Networks of binary cost functions: random, scale-free and grid, as in Fioretto et al. (2018), section 8.1.

Every edge of a connected graph carries one function. Its costs are integers drawn uniformly from 0 to 100, and a share
of its entries, the *tightness*, is infeasible and has no row. An instance may turn out infeasible as a whole, the more
easily the tighter and denser it is; that is an answer too. The same arguments always give the same problem.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import UsageError
from oocbe.model.parts import Function, Variable
from oocbe.model.problem import Problem

HIGHEST_COST = 100
"""Costs are drawn from 0 to this, as in the paper."""

Edge = tuple[int, int]


def random_network(variables: int, domain: int, density: float, tightness: float = 0.5, seed: int = 0) -> Problem:
    """A connected graph drawn at random.

    Parameters
    ----------
    variables : number of variables, at least 2.
    domain : values of each, at least 1.
    density : share of all n (n - 1) / 2 pairs that are edges (p1 in the paper, which prints n (n - 1) p1: more than
        there are pairs at p1 = 0.9, so the half is meant). Never fewer than the n - 1 edges that connect the graph.
    tightness : share of infeasible entries of each function (p2), from 0 up to less than 1.
    seed : of the random generator.

    Notes
    -----
    A random tree is drawn first and the other edges uniformly among the remaining pairs, so that sparse graphs are
    connected too, where drawing until one is connected could take for ever.
    """
    _check(variables, domain, tightness, least_variables=2)
    if not 0 <= density <= 1:
        raise UsageError(f"density: {density} is not a share between 0 and 1")
    generator = np.random.default_rng(seed)
    order = generator.permutation(variables)
    tree = {_edge(int(order[place]), int(order[generator.integers(place)])) for place in range(1, variables)}
    others = [(u, v) for u in range(variables) for v in range(u + 1, variables) if (u, v) not in tree]
    wanted = int(variables * (variables - 1) / 2 * density) - len(tree)
    chosen = generator.choice(len(others), size=max(0, wanted), replace=False) if others else ()
    edges = tree | {others[int(place)] for place in chosen}
    name = f"random-n{variables}-d{domain}-p{density:g}-s{seed}"
    return _network(name, variables, domain, edges, tightness, generator)


def scale_free_network(variables: int, domain: int, tightness: float = 0.5, seed: int = 0) -> Problem:
    """A Barabási–Albert graph: from one edge on, each new variable is joined to two others.

    The two are drawn with probabilities proportional to their numbers of edges, which gives 2 (n - 2) + 1 edges.
    Parameters are those of :func:`random_network`.
    """
    _check(variables, domain, tightness, least_variables=2)
    generator = np.random.default_rng(seed)
    edges: list[Edge] = [(0, 1)]
    degrees = np.zeros(variables)
    degrees[:2] = 1
    for new in range(2, variables):
        weights = degrees[:new] / degrees[:new].sum()
        for old in generator.choice(new, size=2, replace=False, p=weights):
            edges.append(_edge(int(old), new))
            degrees[old] += 1
        degrees[new] = 2
    name = f"scale-free-n{variables}-d{domain}-s{seed}"
    return _network(name, variables, domain, edges, tightness, generator)


def grid_network(side: int, domain: int, tightness: float = 0.5, seed: int = 0) -> Problem:
    """A square grid of ``side`` by ``side`` variables, each joined to its neighbours above, below, left and right.

    Other parameters are those of :func:`random_network`. Variables are numbered row by row.
    """
    _check(side, domain, tightness, least_variables=1)
    edges = [(row * side + column, row * side + column + 1) for row in range(side) for column in range(side - 1)]
    edges += [(row * side + column, (row + 1) * side + column) for row in range(side - 1) for column in range(side)]
    name = f"grid-{side}x{side}-d{domain}-s{seed}"
    return _network(name, side * side, domain, edges, tightness, np.random.default_rng(seed))


def _edge(u: int, v: int) -> Edge:
    return (u, v) if u < v else (v, u)


def _check(variables: int, domain: int, tightness: float, least_variables: int) -> None:
    if variables < least_variables:
        raise UsageError(f"a network needs at least {least_variables} variables, not {variables}")
    if domain < 1:
        raise UsageError(f"domain: a variable needs at least one value, not {domain}")
    if not 0 <= tightness < 1:
        raise UsageError(f"tightness: {tightness} is not a share from 0 up to less than 1")


def _network(
    name: str, variables: int, domain: int, edges: Iterable[Edge], tightness: float, generator: np.random.Generator
) -> Problem:
    """The problem over a graph; edges are sorted first, so that functions do not depend on the order of a set."""
    functions = tuple(Function.from_array(edge, _costs(domain, tightness, generator), -1) for edge in sorted(edges))
    width = len(str(variables - 1))
    names = (f"x{number:0{width}}" for number in range(variables))
    return Problem(tuple(Variable(n, domain) for n in names), functions, name=name)


def _costs(domain: int, tightness: float, generator: np.random.Generator) -> NDArray[np.int64]:
    """Costs int64 (domain, domain); exactly the share ``tightness`` (rounded) of the entries is -1, infeasible."""
    costs = generator.integers(0, HIGHEST_COST, size=domain * domain, endpoint=True)
    infeasible = generator.choice(domain * domain, size=round(tightness * domain * domain), replace=False)
    costs[infeasible] = -1
    square: NDArray[np.int64] = costs.reshape(domain, domain)
    return square
