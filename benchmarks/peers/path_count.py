"""Count the feasible assignments of a ``.spot`` file by walking along a path: an independent check of ``--task count``.

It shares nothing with oocbe, not even the reader. Variables are set one after the other. A *state* is what the
constraints still to come need to know, the values of the variables on the frontier; equal states are one, with the
number of ways to get there in limbs of 32 bits, so that counts are exact at any size. Nothing is ever joined: there are
no buckets and no messages. The order is found by annealing the frontier's bits.

    python benchmarks/peers/path_count.py FILE [--seconds 20]
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

LIMB_BITS = 32

STEEPNESS = 0.7
"""Bits of the frontier to rows: states grow with this power of their complete number."""

WARM, COLD = 2.0, 0.02
"""Temperatures of the annealing, in bits."""


@dataclass(frozen=True)
class Day:
    """Domain sizes, and constraints: a scope and the tuples that are forbidden. Value 0: left out."""

    sizes: list[int]
    constraints: list[tuple[list[int], list[tuple[int, ...]]]]

    def neighbours(self) -> list[list[int]]:
        """The variables that each shares a constraint with."""
        found: list[set[int]] = [set() for _ in self.sizes]
        for scope, _ in self.constraints:
            for v in scope:
                found[v] |= set(scope) - {v}
        return [sorted(f) for f in found]


def read_day(path: str | Path) -> Day:
    """The photographs and constraints of a file; a capacity is not read."""
    lines = Path(path).read_text().splitlines()
    photographs = int(lines[0])
    index: dict[int, int] = {}
    labels: list[list[int]] = []
    for line in lines[1 : photographs + 1]:
        numbers = [int(n) for n in line.split()]
        index[numbers[0]] = len(labels)
        labels.append(numbers[3 : 3 + 2 * numbers[2] : 2])
    constraints = []
    for line in lines[photographs + 2 : photographs + 2 + int(lines[photographs + 1].split()[0])]:
        arity, *rest = (int(n) for n in line.split())
        scope = [index[n] for n in rest[:arity]]
        tuples = [
            tuple(labels[v].index(label) + 1 for v, label in zip(scope, rest[begin : begin + arity], strict=True))
            for begin in range(arity, len(rest), arity)
        ]
        constraints.append((scope, tuples))
    return Day([len(own) + 1 for own in labels], constraints)


class _Path:
    """An order with the frontier's bits after each step, changed by moving one variable at a time."""

    def __init__(self, neighbours: Sequence[Sequence[int]], bits: Sequence[float], order: Sequence[int]) -> None:
        self._neighbours = neighbours
        self._bits = np.array(bits)
        width = max((len(n) for n in neighbours), default=0)
        # Padded with the variable itself, which is never later than its own place.
        self._padded = np.array([[*n, *[v] * (width + 1 - len(n))] for v, n in enumerate(neighbours)])
        self.order = np.array(order)
        self.cost = self._judged(self.order)

    def _judged(self, order: NDArray[np.int64]) -> float:
        place = np.empty(len(order), dtype=np.int64)
        place[order] = np.arange(len(order))
        change = np.zeros(len(order) + 1)
        np.add.at(change, place, self._bits)
        np.subtract.at(change, place[self._padded].max(axis=1), self._bits)
        frontier = np.cumsum(change)
        top = frontier.max()
        return float(top + np.log2(np.exp2(STEEPNESS * (frontier - top)).sum()) / STEEPNESS)

    def move(self, begin: int, end: int, allowed: float) -> None:
        """Take the variable at a place to another one, where that costs no more than ``allowed`` bits."""
        moved = np.insert(np.delete(self.order, begin), end, self.order[begin])
        cost = self._judged(moved)
        if cost <= self.cost + allowed:
            self.order, self.cost = moved, cost


def find_order(day: Day, seconds: float, seed: int = 0) -> list[int]:
    """An order whose frontiers are small, by annealing for so many seconds."""
    choose = random.Random(seed)
    count = len(day.sizes)
    path = _Path(day.neighbours(), [math.log2(size) for size in day.sizes], _swept(day))
    best, best_cost = path.order, path.cost
    begin = time.perf_counter()
    while count > 1 and (done := (time.perf_counter() - begin) / seconds if seconds > 0 else 1.0) < 1:
        place = choose.randrange(count)
        to = choose.randrange(count) if choose.random() < 0.3 else place + choose.randint(-15, 15)
        temperature = WARM * (COLD / WARM) ** done
        path.move(place, min(max(to, 0), count - 1), -temperature * math.log(1 - choose.random()))
        if path.cost < best_cost:
            best, best_cost = path.order, path.cost
    return best.tolist()


def _swept(day: Day) -> list[int]:
    """Breadth first from the variable with the fewest neighbours, component by component."""
    neighbours = day.neighbours()
    order: list[int] = []
    seen: set[int] = set()
    for start in sorted(range(len(neighbours)), key=lambda v: len(neighbours[v])):
        waiting = [] if start in seen else [start]
        seen.add(start)
        while waiting:
            order.append(waiting.pop(0))
            fresh = [v for v in neighbours[order[-1]] if v not in seen]
            seen.update(fresh)
            waiting += fresh
    return order


def count_assignments(day: Day, order: Sequence[int]) -> tuple[int, int]:
    """The number of feasible assignments, and the most states there were."""
    place = {v: i for i, v in enumerate(order)}
    last = dict(place)
    due: list[list[tuple[list[int], list[tuple[int, ...]]]]] = [[] for _ in order]
    for scope, tuples in day.constraints:
        end = max(place[v] for v in scope)
        due[end].append((scope, tuples))
        for v in scope:
            last[v] = max(last[v], end)
    frontier: list[int] = []
    states = np.zeros((1, 0), dtype=np.uint8)
    ways = np.ones((1, 1), dtype=np.uint64)
    most = 1
    for step, v in enumerate(order):
        column = {u: i for i, u in enumerate(frontier)}
        stay = [i for i, u in enumerate(frontier) if last[u] > step]
        parts, part_ways = [], []
        for value in range(day.sizes[v]):
            keep = np.ones(len(states), dtype=bool)
            for scope, tuples in due[step]:
                for forbidden in tuples:
                    if forbidden[scope.index(v)] == value:
                        others = [(column[u], x) for u, x in zip(scope, forbidden, strict=True) if u != v]
                        keep &= ~np.logical_and.reduce([states[:, i] == x for i, x in others], initial=True)
            rows = states[keep][:, stay]
            if last[v] > step:
                rows = np.column_stack([rows, np.full(len(rows), value, dtype=np.uint8)])
            parts.append(rows)
            part_ways.append(ways[keep])
        frontier = [frontier[i] for i in stay] + ([v] if last[v] > step else [])
        states, ways = _merged(np.concatenate(parts), np.concatenate(part_ways), [day.sizes[u] for u in frontier])
        most = max(most, len(states))
    return sum(int(limb) << (LIMB_BITS * i) for i, limb in enumerate(ways.sum(axis=0))), most


def _merged(
    states: NDArray[np.uint8], ways: NDArray[np.uint64], sizes: Sequence[int]
) -> tuple[NDArray[np.uint8], NDArray[np.uint64]]:
    """Each state once, its ways added up."""
    words = [np.zeros(len(states), dtype=np.uint64)]
    used = 0
    for column, size in enumerate(sizes):
        bits = (size - 1).bit_length()
        if used + bits > 64:
            words.append(np.zeros(len(states), dtype=np.uint64))
            used = 0
        words[-1] |= states[:, column].astype(np.uint64) << np.uint64(used)
        used += bits
    order = np.lexsort(words)
    is_first = np.zeros(len(order), dtype=bool)
    is_first[:1] = True
    for word in words:
        is_first[1:] |= np.diff(word[order]) != 0
    firsts = np.flatnonzero(is_first)
    ways = np.add.reduceat(ways[order], firsts, axis=0) if len(firsts) else ways[:0]
    carry = np.zeros(len(ways), dtype=np.uint64)
    for limb in range(ways.shape[1]):
        ways[:, limb] += carry
        carry = ways[:, limb] >> np.uint64(LIMB_BITS)
        ways[:, limb] &= np.uint64(2**LIMB_BITS - 1)
    if carry.any():
        ways = np.column_stack([ways, carry])
    return states[order[firsts]], ways


def main(arguments: Sequence[str] | None = None) -> int:
    """Count, and print a JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--seconds", type=float, default=20.0, help="time to search for an order (default 20)")
    options = parser.parse_args(arguments)
    day = read_day(options.file)
    begin = time.perf_counter()
    count, most = count_assignments(day, find_order(day, options.seconds))
    print(json.dumps({"count": str(count), "states": most, "seconds": time.perf_counter() - begin}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
