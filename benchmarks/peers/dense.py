"""Bucket elimination with dense NumPy arrays: what complete tables cost without any of oocbe's means.

Functions are float32 arrays with an axis a variable, infinite where infeasible; a bucket's are added up by broadcasting
and the least is taken along the variable's axis, as a tropical einsum would. Sums of integers below 2^24 are exact.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from oocbe.model.problem import Problem

from .result import PeerResult, check_supported, make_result

NAME = "dense NumPy"
MOST_AXES = 32  # NumPy 1 has no more
LARGEST_SUM = 1 << 24


class OutOfMemoryError(Exception):
    """An array would pass the memory limit."""


def solve(problem: Problem, order: Sequence[int], memory: int) -> PeerResult:
    """Minimise a min-sum problem of integers along an elimination order.

    OutOfMemoryError where a bucket's array would take more than ``memory`` bytes, before anything is computed.
    """
    check_supported(NAME, problem)
    if problem.linear_constraints or problem.constant + sum(
        int(f.values.max(initial=0)) for f in problem.functions
    ) >= (LARGEST_SUM):
        raise ValueError(f"{problem.name}: {NAME} adds up tables of costs in float32 only")
    _check_memory(problem, order, memory)
    begin = time.perf_counter()
    sizes = problem.sizes
    waiting: list[tuple[tuple[int, ...], Any]] = []
    for f in problem.functions:
        values, feasible = f.to_array(sizes)
        waiting.append((f.scope, np.where(feasible, values, np.inf).astype(np.float32)))
    hard = [(c.scope, np.where(c.to_array(sizes), 0, np.inf).astype(np.float32)) for c in problem.constraints]
    waiting += hard
    total = float(problem.constant)
    buckets: list[tuple[int, list[tuple[tuple[int, ...], Any]]]] = []
    for v in order:
        own = [part for part in waiting if v in part[0]]
        waiting = [part for part in waiting if v not in part[0]]
        buckets.append((v, own))
        scope = (*sorted({u for s, _ in own for u in s} - {v}), v)
        joined = np.zeros([sizes[u] for u in scope], dtype=np.float32)
        for s, array in own:
            axes = sorted(range(len(s)), key=lambda axis, s=s: scope.index(s[axis]))
            joined += array.transpose(axes).reshape([sizes[u] if u in s else 1 for u in scope])
        message = joined.min(axis=-1)
        if len(scope) > 1:
            waiting.append((scope[:-1], message))
        else:
            total += float(message)
    assignment = None if np.isinf(total) else _backward(buckets, sizes)
    seconds = time.perf_counter() - begin
    return make_result(NAME, problem, assignment, True, None if assignment is None else total, seconds)


def _check_memory(problem: Problem, order: Sequence[int], memory: int) -> None:
    scopes = [set(part.scope) for part in (*problem.functions, *problem.constraints)]
    for v in order:
        joined = set().union(*(s for s in scopes if v in s), {v})
        cells = 1
        for u in joined:
            cells *= problem.sizes[u]
        if 4 * cells * (1 + 1 / problem.sizes[v]) > memory or len(joined) > MOST_AXES:
            raise OutOfMemoryError(f"a bucket of {len(joined)} variables takes {4 * cells / 2**30:.3g} GiB")
        scopes = [s for s in scopes if v not in s] + [joined - {v}]


def _backward(buckets: list[tuple[int, list[tuple[tuple[int, ...], Any]]]], sizes: Sequence[int]) -> list[int]:
    chosen: dict[int, int] = {}
    for v, own in reversed(buckets):
        costs = np.zeros(sizes[v], dtype=np.float64)
        for s, array in own:
            costs += array[tuple(slice(None) if u == v else chosen[u] for u in s)]
        chosen[v] = int(costs.argmin())
    return [chosen[v] for v in range(len(sizes))]
