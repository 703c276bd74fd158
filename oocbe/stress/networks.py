"""Networks of binary cost functions: random, scale-free and grid, as in Fioretto et al. (2018), section 8.1.

Every edge of a connected graph carries one function. Its costs are integers drawn uniformly from 0 to 100, and a share
of its entries, the *tightness*, is infeasible and has no row. An instance may turn out infeasible as a whole, the more
easily the tighter and denser it is; that is an answer too. The same arguments always give the same problem.

Days of photographs like those of the SPOT5 satellite (Bensana, Lemaitre, Verfaillie 1999): the satellite flies over its
targets one after another and has three cameras: 1 looks ahead, 2 down, 3 behind. A *mono* photograph is taken by any of
them (some by camera 2 only), a *stereo* one by 1 and then 3; the file calls that value 13. Any photograph may be left
out at the price of its weight. Two photographs on one camera clash when the satellite passes from one to the other
faster than the camera's mirror turns, so clashes lie along the diagonal of time, and are the more numerous the further
apart the viewing angles are. Three photographs on different cameras at one time may ask more of the recorder's data
rate than there is: those are the ternary constraints, one forbidden combination each.

Real days (their number of photographs, 67 to 309) have 2.7 to 16 binary constraints a photograph, ternary ones between
none and 2.2, half stereo photographs (6 to 63 %), weights of 1 for mono, 2 for stereo, and 1,000 for a few urgent ones.
How hard a day is depends on the window above all: the number of photographs that are alive at one time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import UsageError
from oocbe.model.parts import Constraint, Function, Variable
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


MONO, DOWN_ONLY, STEREO = ("1", "2", "3"), ("2",), ("13",)
"""Values of a photograph by its kind: any camera, the middle one, or the outer two together."""

LEFT_OUT = "0"
"""The value of a photograph that is not taken."""

_SHARED = {("13", "1"), ("13", "3"), ("1", "13"), ("3", "13")}
"""Pairs of different values that use a camera in common."""

URGENT_WEIGHT = 1000
"""Weight of an urgent photograph."""


@dataclass(frozen=True)
class Spot5Settings:
    """Parameters of a day.

    Attributes
    ----------
    photographs : how many, at least 1.
    window : how many photographs later a clash is still possible, at viewing angles that are furthest apart.
    stereo : share of stereo photographs.
    down_only : share, among the others, of photographs that only camera 2 can take.
    urgent : share of photographs with a weight of 1,000.
    ternary : ternary constraints a photograph (fewer where there are not so many suitable triples).
    seed : of the random generator.
    """

    photographs: int = 100
    window: float = 8.0
    stereo: float = 0.5
    down_only: float = 0.1
    urgent: float = 0.1
    ternary: float = 0.3
    seed: int = 0

    def __post_init__(self) -> None:
        if self.photographs < 1:
            raise UsageError(f"photographs: a day needs at least one, not {self.photographs}")
        for name in ("stereo", "down_only", "urgent"):
            if not 0 <= getattr(self, name) <= 1:
                raise UsageError(f"{name}: {getattr(self, name)} is not a share between 0 and 1")
        for name in ("window", "ternary"):
            if not 0 <= getattr(self, name) <= self.photographs:
                raise UsageError(f"{name}: {getattr(self, name)} is not between 0 and the number of photographs")


def spot5_day(settings: Spot5Settings) -> Problem:
    """A day of photographs, numbered in the order of time.

    Returns
    -------
    Problem : min-sum; the first value of each variable leaves the photograph out and costs its weight, taking it costs
        nothing; the constraints forbid combinations of taken photographs. The optimum is the least weight left out.
    """
    generator = np.random.default_rng(settings.seed)
    count = settings.photographs
    times = np.sort(generator.uniform(0, count, size=count))
    angles = generator.uniform(0, 1, size=count)
    is_stereo = generator.random(count) < settings.stereo
    is_down_only = generator.random(count) < settings.down_only
    values: list[tuple[str, ...]]
    values = [STEREO if s else DOWN_ONLY if d else MONO for s, d in zip(is_stereo, is_down_only, strict=True)]
    weights = np.where(generator.random(count) < settings.urgent, URGENT_WEIGHT, 1 + is_stereo)

    variables = tuple(Variable(str(i), 1 + len(v), (LEFT_OUT, *v)) for i, v in enumerate(values))
    costs = tuple(Function((i,), np.array([[0]]), np.array([w]), default=0) for i, w in enumerate(weights))
    clashes = list(_clashes(times, angles, values, settings.window))
    triples = _triples(times, values, {c.scope for c in clashes}, settings, generator)
    name = f"spot5-n{count}-w{settings.window:g}-s{settings.seed}"
    return Problem(variables, costs, (*clashes, *triples), name=name)


def _clashes(
    times: NDArray[np.float64], angles: NDArray[np.float64], values: list[tuple[str, ...]], window: float
) -> Iterator[Constraint]:
    """Pairs that follow one another too fast for the difference of their angles, on any camera that both can use.

    Value numbers start at 1, for 0 is "left out". A quarter of the window passes whatever the angles: the exposure.
    """
    for i, first in enumerate(values):
        for j in range(i + 1, len(values)):
            if times[j] - times[i] > window:
                break
            if times[j] - times[i] > window * (0.25 + 0.75 * abs(angles[i] - angles[j])):
                continue
            tuples = [
                (a, b)
                for a, one in enumerate(first, start=1)
                for b, other in enumerate(values[j], start=1)
                if one == other or (one, other) in _SHARED
            ]
            if tuples:
                yield Constraint((i, j), np.array(tuples))


def _triples(
    times: NDArray[np.float64],
    values: list[tuple[str, ...]],
    clashing: set[tuple[int, ...]],
    settings: Spot5Settings,
    generator: np.random.Generator,
) -> list[Constraint]:
    """Ternary constraints among photographs near in time, no more than one pair of which clashes by itself.

    A candidate triple is drawn by its first photograph and two later ones within the window.
    """
    wanted = round(settings.ternary * len(times))
    found: dict[tuple[int, ...], Constraint] = {}
    for _ in range(20 * wanted):  # enough tries; a sparse day simply has fewer suitable triples
        if len(found) == wanted:
            break
        first = int(generator.integers(len(times)))
        last = int(np.searchsorted(times, times[first] + settings.window))
        if last - first < 3:
            continue
        second, third = sorted(int(p) for p in generator.choice(np.arange(first + 1, last), size=2, replace=False))
        scope = (first, second, third)
        pairs = {(first, second), (first, third), (second, third)}
        if scope in found or len(pairs & clashing) > 1:
            continue
        forbidden = [[int(generator.integers(1, 1 + len(values[p]))) for p in scope]]
        found[scope] = Constraint(scope, np.array(forbidden))
    return [found[scope] for scope in sorted(found)]
