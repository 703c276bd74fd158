"""Global cost functions, decomposed exactly: what they say of many variables, said by small tables.

Each is one walk over its variables, in their order, from a state to the next: a count or a sum so far, or how far from
every state of an automaton the values are. Walks are *deterministic*: an assignment has one walk, so that counts and
probabilities stay what they are (for a weighted automaton, states are vectors of least costs, less their minimum, as in
Mohri 1997). Over few assignments the function is written as one table. Over more, a variable between each two of the
scope holds the state there, and tables over a state, a variable and the next state say what a step costs.

Constraints on sums and counts that cannot be violated are linear constraints, without such variables, and variables
that all must differ are constraints on pairs.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import UnsupportedError
from oocbe.model.parts import LinearConstraint
from oocbe.system.deadline import look

Cost = int | float
"""What something costs, infinity where it is forbidden."""

MOST_CELLS = 2**12
"""Assignments of a function up to which it is one table."""

MOST_STEPS = 2**20
"""Steps of a walk, over all its states, values and variables: more would be tables of gigabytes."""

State = Any
"""What a walk remembers: hashable."""

Step = Callable[[int, State, int], tuple[State, Cost]]
"""From the place in the scope, the state before it and its value to the next state, and what the step costs."""


@dataclass(frozen=True)
class Table:
    """Costs over some variables: ``default`` where a tuple is not listed.

    Attributes
    ----------
    scope : indices of variables; those of states are numbered on from the file's.
    tuples : int64 (rows, arity). costs : of each row.
    """

    scope: tuple[int, ...]
    tuples: NDArray[np.int64]
    costs: list[Cost]
    default: Cost


@dataclass
class Decomposed:
    """What a problem's global cost functions come to.

    Attributes
    ----------
    sizes : of the file's variables, and of those of states, which are added. names : of those of states.
    tables, linear : their parts. chains : how many are walks with states.
    """

    sizes: list[int]
    names: list[str] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    linear: list[LinearConstraint] = field(default_factory=list)
    chains: int = 0

    def pairs(self, scope: Sequence[int], cost: Cost) -> None:
        """Each two of the variables with the same value cost something."""
        for one, other in itertools.combinations(scope, 2):
            same = np.arange(min(self.sizes[one], self.sizes[other]), dtype=np.int64)
            self.tables.append(Table((one, other), np.stack([same, same], axis=1), [cost] * len(same), 0))

    def weighted_sum(
        self, title: str, scope: Sequence[int], weights: Sequence[Sequence[int]], price: Callable[[int], Cost]
    ) -> None:
        """The sum of the variables' values' weights has a price.

        Parameters
        ----------
        title : what the function is called where it is too large. weights : of each value of each of the scope.
        """
        self.walk(title, scope, 0, lambda place, total, value: (total + weights[place][value], 0), price)

    def between(
        self, title: str, scope: Sequence[int], weights: Sequence[Sequence[int]], low: Cost, high: Cost
    ) -> None:
        """The sum of weights lies between two numbers, either of which may be infinite."""
        if math.prod(self.sizes[v] for v in scope) <= MOST_CELLS:
            self.weighted_sum(title, scope, weights, lambda total: 0 if low <= total <= high else math.inf)
            return
        arrays = [np.array(own, dtype=np.int64) for own in weights]
        if high != math.inf:
            self.linear.append(LinearConstraint(tuple(scope), tuple(arrays), int(high), title))
        if low != -math.inf:
            self.linear.append(LinearConstraint(tuple(scope), tuple(-own for own in arrays), -int(low), title))

    def walk(self, title: str, scope: Sequence[int], start: State, step: Step, end: Callable[[State], Cost]) -> None:
        """A function that is a deterministic walk with a cost a step, and one at the end."""
        sizes = [self.sizes[v] for v in scope]
        if math.prod(sizes) <= MOST_CELLS:
            self._table(scope, sizes, start, step, end)
        else:
            self._chain(title, scope, start, step, end)

    def _table(
        self, scope: Sequence[int], sizes: list[int], start: State, step: Step, end: Callable[[State], Cost]
    ) -> None:
        tuples: list[tuple[int, ...]] = []
        costs: list[Cost] = []
        for row in itertools.product(*(range(size) for size in sizes)):
            state: State = start
            cost: Cost = 0
            for place, value in enumerate(row):
                state, more = step(place, state, value)
                cost += more
                if cost == math.inf:
                    break
            else:
                cost += end(state)
            if cost:
                tuples.append(row)
                costs.append(cost)
        listed = np.array(tuples, dtype=np.int64).reshape(len(tuples), len(sizes))
        self.tables.append(Table(tuple(scope), listed, costs, 0))

    def _chain(self, title: str, scope: Sequence[int], start: State, step: Step, end: Callable[[State], Cost]) -> None:
        layers: list[list[tuple[int, int, int, Cost]]] = []
        states: dict[State, int] = {start: 0}
        counts, steps = [1], 0
        for place, v in enumerate(scope):
            look()
            reached: dict[State, int] = {}
            layer = []
            is_last = place == len(scope) - 1
            steps += len(states) * self.sizes[v]
            if steps > MOST_STEPS:
                raise UnsupportedError(f"{title} has more than {MOST_STEPS:,} steps between states, which is too large")
            for state, index in states.items():
                for value in range(self.sizes[v]):
                    following, cost = step(place, state, value)
                    if is_last and cost != math.inf:
                        cost += end(following)
                    if cost != math.inf:
                        target = 0 if is_last else reached.setdefault(following, len(reached))
                        layer.append((index, value, target, cost))
            layers.append(layer)
            states = reached
            counts.append(1 if is_last else max(1, len(reached)))
        self._add_chain(scope, layers, counts)

    def _add_chain(
        self, scope: Sequence[int], layers: list[list[tuple[int, int, int, Cost]]], counts: list[int]
    ) -> None:
        """States between variables, and tables over what a step goes from, by and to."""
        first = len(self.sizes)
        self.sizes += counts[1:-1]
        self.chains += 1
        self.names += [f"state.{self.chains}.{place}" for place in range(1, len(scope))]
        for place, (v, layer) in enumerate(zip(scope, layers, strict=True)):
            rows = np.array([row[:3] for row in layer], dtype=np.int64).reshape(len(layer), 3)
            around = [first + place - 1, v, first + place]
            kept = [k for k in range(3) if not (k == 0 and place == 0) and not (k == 2 and place == len(scope) - 1)]
            costs = [row[3] for row in layer]
            self.tables.append(Table(tuple(around[k] for k in kept), rows[:, kept], costs, math.inf))


def beyond(low: Cost, high: Cost, cost: Cost, power: int = 1) -> Callable[[int], Cost]:
    """The price of a count: a cost for each that it is below or above two bounds, or for its square."""

    def price(count: int) -> Cost:
        off = max(0, low - count, count - high)
        return cost * off**power if off else 0

    return price


def weighted(value_sets: Sequence[set[int]], sizes: Sequence[int]) -> list[list[int]]:
    """Weights that count values of a set each."""
    return [[int(value in own) for value in range(size)] for own, size in zip(value_sets, sizes, strict=True)]


@dataclass(frozen=True)
class Automaton:
    """A finite automaton with weights, deterministic or not.

    Attributes
    ----------
    starts, ends : state to what it costs to begin or end there. transitions : (state, value, next state) to its cost.
    """

    starts: Mapping[int, Cost]
    ends: Mapping[int, Cost]
    transitions: Mapping[tuple[int, int, int], Cost]

    def weigh(self, whole: Decomposed, title: str, scope: Sequence[int], top: Cost, changes: Cost | None) -> None:
        """Add the least cost of a run on the values; what costs ``top`` or more is forbidden.

        changes : what it costs to read another value than there is; None: only what is there is read.
        """
        by_value: dict[int, list[tuple[int, int, Cost]]] = {}
        for (state, value, following), cost in self.transitions.items():
            by_value.setdefault(value, []).append((state, following, cost))

        def step(place: int, state: State, value: int) -> tuple[State, Cost]:
            before: dict[int, Cost] = dict(state)
            after: dict[int, Cost] = {}
            for read, moves in by_value.items():
                if read != value and changes is None:
                    continue
                extra = 0 if read == value or changes is None else changes
                for origin, following, cost in moves:
                    total = before.get(origin, math.inf) + cost + extra
                    if total < min(top, after.get(following, math.inf)):
                        after[following] = total
            if not after:
                return frozenset(), math.inf
            least = min(after.values())
            return frozenset((q, cost - least) for q, cost in after.items()), least

        def end(state: State) -> Cost:
            found = [cost + self.ends[q] for q, cost in dict(state).items() if q in self.ends]
            return min(found, default=math.inf)

        if not self.starts:
            whole.tables.append(Table(tuple(scope), np.zeros((0, len(scope)), dtype=np.int64), [], math.inf))
            return
        least = min(self.starts.values())
        begin = frozenset((q, cost - least) for q, cost in self.starts.items())
        if least:
            whole.tables.append(Table((), np.zeros((0, 0), dtype=np.int64), [], least))
        whole.walk(title, scope, begin, step, end)
