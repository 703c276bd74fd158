"""Mini-buckets with cost shifting in complete tables: several divisions, the best one shifted to convergence."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from oocbe.bounds.mini_buckets.join_graph import JoinGraph
from oocbe.bounds.mini_buckets.mini_buckets import MiniBucketPass
from oocbe.bounds.mini_buckets.mini_buckets_partition import shape_of
from oocbe.bounds.row_tables import ScaledCosts, ScopeTables
from oocbe.elimination.buckets.buckets import elements_of
from oocbe.errors import RequestedEndError, ResourceError, TimeLimitError
from oocbe.runtime.deadline import Deadline

TEMPERATURES = (10.0, 3.0)
"""Temperatures for sampled losses, tried in turn (:class:`oocbe.bounds.mini_buckets.join_graph.JoinGraph`): the best
division is mostly luck, and all first passes together take less time than convergence."""

LITTLE = 0.05
"""Minimum gain of a pair of passes, as a share of the gain of all pairs so far; a smaller gain ends them."""

EXACT_CELLS = 1 << 22
"""Maximum total cells for 64-bit costs; these make bounds exact to nine digits."""

FRACTION_BITS = 4
"""Minimum fraction bits in 32-bit costs of integer problems: equal parts of costs are fractions."""

MEMORY_PART = 2
"""Divisor of the memory for one join graph: the best one so far is kept beside the current one."""


STEP, PATIENCE = 2, 2
"""Increment of z, and number of increments in a row without a gain before the search ends."""

LITTLE_OF_ALL = 0.02
"""Minimum gain of a z, as a share of the gain of all z over the first."""


@dataclass(frozen=True)
class CompletePass:
    """A join graph after cost shifting.

    Attributes
    ----------
    graph : the join graph. dtype : of its costs. passes : pairs of passes. tried : number of divisions.
    is_cut_short : whether the time limit or a signal ended it; the bound proven by then is valid.
    """

    graph: JoinGraph
    dtype: np.dtype[Any]
    passes: int
    tried: int
    is_cut_short: bool

    @property
    def summary(self) -> str:
        """Summary for users."""
        return (
            f"complete tables of {self.dtype.name}; costs were shifted in {self.passes} passes forth and back over the "
            f"best of {self.tried} divisions{', until the time was up' if self.is_cut_short else ''}"
        )

    @property
    def done(self) -> MiniBucketPass:
        """Result of the forward pass of mini-buckets, without its buckets."""
        graph, bound = self.graph, self.graph.bound
        own = None if bound == math.inf else bound
        messages = [len(c.table.values) // graph.sizes[c.variable] for c in graph.clusters]
        return MiniBucketPass(
            [],
            own,
            own,
            split=sum(len(bucket) > 1 for bucket in graph.buckets),
            mini_buckets=len(graph.clusters),
            width=max((len(c.separator) for c in graph.clusters), default=0),
            largest_rows=max(messages, default=0),
            total_rows=sum(messages),
        )


def fits(tables: ScopeTables, order: Sequence[int], z: int, memory: int) -> bool:
    """Whether complete tables fit with division by scope size, and some bucket is divided."""
    cells, is_divided = _cells(tables, order, z)
    return is_divided and cells * np.dtype(np.int32).itemsize <= memory // MEMORY_PART


def _cells(tables: ScopeTables, order: Sequence[int], z: int) -> tuple[float, bool]:
    """Total cells of mini-buckets with division by scope size, and whether some bucket is divided."""
    shape = shape_of([part.scope for part in tables.parts], order, z)
    sizes = tables.problem.sizes
    cells = sum(
        sizes[v] * math.prod(float(sizes[w]) for w in elements_of(shape.separators[place]))
        for v, group in shape.groups
        for place in group
    )
    return cells, shape.split > 0


def shifted(
    tables: ScopeTables,
    order: Sequence[int],
    z: int,
    memory: int,
    seed: int,
    by_content: bool,
    deadline: Deadline,
    bucket_done: Callable[[int, int, int], None] | None = None,
) -> CompletePass:
    """Mini-buckets in complete tables, with costs shifted to convergence.

    Parameters
    ----------
    tables, order, z, seed : of the problem. memory : limit of all tables, in bytes. by_content : method of division.
    bucket_done : as for :class:`oocbe.bounds.mini_buckets.join_graph.JoinGraph`, for the first division.

    Raises
    ------
    ResourceError : the tables do not fit. TimeLimitError : the deadline came before the first pass was done.
    """
    cells, _ = _cells(tables, order, z)
    threshold = tables.problem.upper_bound
    costs = ScaledCosts.of(tables, threshold, np.dtype(np.int32))
    fits_wide = cells * np.dtype(np.int64).itemsize <= memory // MEMORY_PART
    if cells <= EXACT_CELLS or (fits_wide and tables.is_integral and costs.bits < FRACTION_BITS):
        costs = ScaledCosts.of(tables, threshold, np.dtype(np.int64))
    best: JoinGraph | None = None
    seconds, tried = 0.0, 0
    for temperature in TEMPERATURES if by_content else (None,):
        if best is not None and (best.is_closed or not best.is_divided or deadline.remaining < 2 * seconds):
            break
        begin = time.perf_counter()
        try:
            graph = JoinGraph(costs, order, z, memory // MEMORY_PART, seed, temperature, bucket_done)
        except (ResourceError, TimeLimitError):
            if best is None:
                raise
            break
        seconds, bucket_done, tried = time.perf_counter() - begin, None, tried + 1
        if best is None or graph.proven > best.proven:
            best = graph
    assert best is not None
    passes, is_cut_short = _shift(best, deadline)
    return CompletePass(best, costs.dtype, passes, tried, is_cut_short)


def best_of_rising(
    run: Callable[[int], tuple[float, float]], is_possible: Callable[[int], bool], least: int, deadline: Deadline
) -> int:
    """Run increasing z while the bound improves and memory and time suffice; returns the z with the best bound.

    Parameters
    ----------
    run : maps z to its bound (larger is better) and run time in seconds. is_possible : whether z may be run.
    least : the first z; it is possible.

    Raises
    ------
    ResourceError, TimeLimitError : from ``run`` for the first z; for later ones they end the search.
    """
    bounds: dict[int, float] = {}
    z, idle, seconds = least, 0, 0.0
    while not bounds or (is_possible(z) and idle < PATIENCE and deadline.remaining > 2 ** (STEP + 1) * seconds):
        before = max(bounds.values(), default=-math.inf)
        try:
            bounds[z], seconds = run(z)
        except (ResourceError, TimeLimitError) as error:
            if not bounds or isinstance(error, RequestedEndError):
                raise
            break
        little = LITTLE_OF_ALL * (max(bounds.values()) - bounds[least])
        idle = 0 if bounds[z] > before + little or z == least else idle + 1
        z += STEP
    return max(bounds, key=lambda z: (bounds[z], -z))


def _shift(graph: JoinGraph, deadline: Deadline) -> tuple[int, bool]:
    """Pass backward and forward until gains are small, or the next passes may exceed the time limit.

    Returns
    -------
    Number of pairs of passes, and whether time ran out in one. ``graph.proven`` is valid at any moment of a pass: it is
    raised only after the costs have been subtracted from the cells.
    """
    passes, first, seconds = 0, graph.proven, 0.0
    while graph.is_divided and not graph.is_closed and deadline.remaining > 2 * seconds:
        begin, before = time.perf_counter(), graph.proven
        try:
            graph.back()
            graph.forth()
        except TimeLimitError:
            return passes, True
        passes += 1
        seconds = time.perf_counter() - begin
        if graph.proven - before <= LITTLE * (graph.proven - first):
            break
    return passes, False
