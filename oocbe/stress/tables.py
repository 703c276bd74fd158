"""Synthetic tables of any number of rows, whose joins and marginalisations are known without a second engine.

A table has an *own* variable, a variable ``e`` to eliminate, and *group* variables, which tables of one family share.
Groups are numbered by *rank*; the group of rank r has c(r) own values 0 … c(r) − 1 (written as ``own · stride + r mod
stride``, so that tables are as sparse as wished), and an own value has those half of the values of e that have its
parity. c is constant over classes of ranks: one or two for groups of equal size, and for a Zipf distribution (exponent
1) one for each power of two, ranks 2^i − 1 to 2^(i+1) − 2 having half as many rows as those before. So sums over groups
are sums over a few classes, and the table's n-th row is found in no time, which lets threads write chunks in any order.

The value of a row is ``mixed(rank) + (own + rank) mod c + mixed(rank, e)``: terms that look random, and one that runs
through all own values, whose maximum over those of one parity is known. So each row of a result can be checked by
itself; that none is missing or there twice is seen from the number of rows and the sums of their numbers and of the
squares of these (:mod:`oocbe.stress.segments`).

Networks of binary cost functions: random, scale-free and grid, as in Fioretto et al. (2018), section 8.1.

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

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from math import gcd
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import UsageError
from oocbe.kernels.cpu.threads import run_all, thread_count
from oocbe.model.parts import Constraint, Function, Variable
from oocbe.model.problem import Problem
from oocbe.model.semiring import MAX_SUM
from oocbe.stress.kernels.cpu.synthetic import fill_in_order, fill_rows
from oocbe.tables.layout import Layout
from oocbe.tables.stored import StoredTable
from oocbe.tables.writer import CHUNK_ROWS

MOST_GROUPS, MOST_SCATTERED = 1 << 46, 1 << 31
"""Groups of a table: numbers of those of a scattered one are multiplied with one another in 64 bits."""


@dataclass(frozen=True)
class SyntheticTable:
    """Parameters of a synthetic table.

    rows : wanted; the table's own :attr:`rows_made` is as near as its groups allow.
    groups : combinations of the group variables that occur.
    variables : of the table, at least 3. domain : values of e, even; the group variables take what the groups need.
    density : share of the own variable's values that the largest group has.
    sizes : of the groups, ``uniform`` or ``zipf``. is_sorted : rows in the order of their keys; otherwise scattered.
    own : name of the own variable. seed : of the values; tables to be joined have different ones.
    Raises UsageError: settings that fit together in no table.
    """

    rows: int
    groups: int
    variables: int = 3
    domain: int = 8
    density: float = 0.25
    sizes: str = "uniform"
    is_sorted: bool = False
    own: str = "a"
    seed: int = 0

    def __post_init__(self) -> None:
        most = MOST_GROUPS if self.is_sorted else MOST_SCATTERED
        if not 1 <= self.groups <= most or self.rows < self.groups * self.domain // 2:
            raise UsageError(
                f"{self.rows:,} rows do not fit in {self.groups:,} groups (at most {most:,}), each of which has "
                f"{self.domain // 2} rows at least; give fewer groups or more rows"
            )
        if self.variables < 3 or self.domain < 2 or self.domain % 2:
            raise UsageError("a synthetic table has at least 3 variables, and e an even number of values")
        if not 0 < self.density <= 1:
            raise UsageError(f"density: {self.density} is not above 0 and at most 1")
        if self.sizes not in ("uniform", "zipf"):
            raise UsageError(f"sizes: {self.sizes!r} is neither uniform nor zipf")
        if self.rows >= 1 << 48:
            raise UsageError(f"{self.rows:,} rows are more than a table can have")

    @cached_property
    def classes(self) -> NDArray[np.int64]:
        """First rank, own values of each group and pairs before, for each class; int64 (classes, 3)."""
        pairs = self.rows // (self.domain // 2)
        if self.sizes == "uniform":
            small, more = divmod(pairs, self.groups)
            counts = [(0, small + 1), (more, small)] if more else [(0, small)]
        else:
            # The largest group size that gives no more than the wanted rows, at least 1.
            most = bisect_right(range(pairs + 1), pairs, 2, key=lambda n: rows_before(self._zipf(n), self.groups)[-1])
            counts = self._zipf(most - 1)
        *before, _ = rows_before(counts, self.groups)
        return np.array([(*own, rows) for own, rows in zip(counts, before, strict=True)], dtype=np.int64)

    def _zipf(self, largest: int) -> list[tuple[int, int]]:
        """First rank and own values of each group, for each class, the first of which has the largest group."""
        return [(2**i - 1, max(1, largest >> i)) for i in range(self.groups.bit_length())]

    @property
    def rows_made(self) -> int:
        """Rows that the table has."""
        first, count, before = (int(x) for x in self.classes[-1])
        return (before + (self.groups - first) * count) * (self.domain // 2)

    @property
    def stride(self) -> int:
        """Distance of own values."""
        return max(1, round(1 / self.density))

    @cached_property
    def layout(self) -> Layout:
        """The variable e lowest, then the own variable, then the group variables."""
        many = self.variables - 2
        size = next(
            s for s in range(max(1, int(self.groups ** (1 / many)) - 1), self.groups + 1) if s**many >= self.groups
        )
        names = ["k"] if many == 1 else [f"k{i}" for i in range(many)]
        sizes = (self.domain, int(self.classes[:, 1].max()) * self.stride, *[size] * many)
        return Layout(("e", self.own, *names), sizes)

    @cached_property
    def settings(self) -> NDArray[np.int64]:
        """Seed, half of e's values, stride, groups, step, shift and inverse step of the groups' scattering."""
        step = 1 if self.is_sorted else coprime(self.groups)
        shift = 0 if self.is_sorted else self.groups // 3
        back = pow(step, -1, self.groups) if self.groups > 1 else 0
        return np.array([self.seed, self.domain // 2, self.stride, self.groups, step, shift, back], dtype=np.int64)

    def chunk_count(self, chunk_rows: int) -> int:
        """Chunks of so many rows that the table has."""
        return -(-self.rows_made // chunk_rows)

    def chunks(
        self, chunk_rows: int = CHUNK_ROWS, numbers: range | None = None
    ) -> Iterator[tuple[NDArray[np.uint64], NDArray[np.int64]]]:
        """Keys and values in the table's order, made by all threads, as many chunks at a time as there are threads.

        The rows of a scattered table, and their order, depend on ``chunk_rows``, but not on the number of threads.
        numbers : consecutive ones, of the chunks that are wanted; None: all.
        """
        rows, threads, chunks = self.rows_made, thread_count(), self.chunk_count(chunk_rows)
        numbers = range(chunks) if numbers is None else numbers
        for first in range(0, len(numbers), threads):
            made, calls = [], []
            for chunk in numbers[first : first + threads]:
                start = chunk * chunk_rows
                count = min(chunk_rows, rows - start) if self.is_sorted else (rows - chunk + chunks - 1) // chunks
                keys, values = np.empty((self.layout.words, count), dtype=np.uint64), np.empty(count, dtype=np.int64)
                made.append((keys, values))
                where = (start,) if self.is_sorted else (chunk, chunks, coprime(count))
                calls.append((keys, values, *where, self.classes, self.fields, self.settings))
            run_all(fill_in_order if self.is_sorted else fill_rows, calls)
            yield from made

    @cached_property
    def fields(self) -> NDArray[np.int64]:
        """Fields of the own variable, of e and of the group variables, as :func:`field_rows` gives them."""
        return field_rows(self.layout, (self.own, "e", *self.layout.scope[2:]))

    def first_row(self, rank: int) -> int:
        """First row of the group of a rank in a sorted table; the number of rows for the rank behind the last."""
        number = int(np.searchsorted(self.classes[:, 0], rank, side="right")) - 1
        first, count, before = self.classes[number].tolist()
        return int((before + (rank - first) * count) * (self.domain // 2))

    def rank_from(self, row: int) -> int:
        """First rank of a sorted table without a row before a given row; the number of groups behind the last row."""
        pair = -(-row // (self.domain // 2))
        number = int(np.searchsorted(self.classes[:, 2], pair, side="right")) - 1
        first, count, before = self.classes[number].tolist()
        return min(self.groups, int(first - (before - pair) // count))

    def value_dtype(self, wanted: np.dtype[Any]) -> np.dtype[Any]:
        """The dtype wanted of the values, or int64 where it does not hold them."""
        return np.dtype(np.int64) if wanted.kind == "i" and 2 * self.greatest > np.iinfo(wanted).max else wanted

    @property
    def greatest(self) -> int:
        """Upper bound of the values."""
        return 2000 + int(self.classes[:, 1].max())

    def write(self, path: str | Path, dtype: np.dtype[Any] | None = None, chunk_rows: int = CHUNK_ROWS) -> StoredTable:
        """Write the table, max-sum, chunk by chunk; ``dtype`` of the values: int32 where None."""
        dtype = self.value_dtype(np.dtype(np.int32) if dtype is None else dtype)
        with StoredTable.create(path, self.layout, dtype, MAX_SUM, chunk_rows=chunk_rows) as writer:
            for keys, values in self.chunks(chunk_rows):
                writer.append(keys, values.astype(dtype))
        return StoredTable.open(path)


def rows_before(ranges: Sequence[tuple[int, int]], groups: int) -> list[int]:
    """Rows before each of some ranges of ranks, given by first rank and rows of each rank, and those of all."""
    ends = [*(first for first, _ in ranges[1:]), groups]
    return [0, *accumulate(count * (end - first) for (first, count), end in zip(ranges, ends, strict=True))]


def coprime(count: int) -> int:
    """A number near the golden section of another one, without a common factor."""
    if count < 3:
        return 1
    return next(s for s in range(int(count * 0.618) + 1, 2 * count) if gcd(s, count) == 1) % count


def field_rows(layout: Layout, names: tuple[str, ...]) -> NDArray[np.int64]:
    """Word, shift, mask and domain size of variables, int64 (variables, 4), as the loops take them."""
    places = [(layout.field(name), layout.sizes[layout.place(name)]) for name in names]
    return np.array([[f.word, f.shift, f.mask, size] for f, size in places], dtype=np.int64)


HIGHEST_COST = 100
"""Costs are drawn from 0 to this, as in the paper."""

Edge = tuple[int, int]


def random_network(variables: int, domain: int, density: float, tightness: float = 0.5, seed: int = 0) -> Problem:
    """A connected graph drawn at random.

    variables : number of variables, at least 2. domain : values of each, at least 1.
    density : share of all n (n - 1) / 2 pairs that are edges (p1 in the paper, which prints n (n - 1) p1: more than
        there are pairs at p1 = 0.9, so the half is meant). Never fewer than the n - 1 edges that connect the graph.
    tightness : share of infeasible entries of each function (p2), from 0 up to less than 1.
    seed : of the random generator.

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
    """A day of photographs, numbered in the order of time, as a min-sum problem.

    The first value of each variable leaves the photograph out and costs its weight, taking it costs nothing; the
    constraints forbid combinations of taken photographs. The optimum is the least weight left out.
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
