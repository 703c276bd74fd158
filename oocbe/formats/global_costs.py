"""Global cost functions, decomposed exactly into small tables.

Each is one walk over its variables, in their order, from state to state. A state is a partial count or sum, or the
distance from every state of an automaton. Walks are *deterministic*: an assignment has one walk, so that counts and
probabilities are preserved (for a weighted automaton, states are vectors of least costs, less their minimum, as in
Mohri 1997). A function with few assignments becomes one table. Otherwise, an auxiliary variable between two neighbours
of the scope holds the state, and a table over a state, a variable and the next state holds the cost of a step.

Hard constraints on sums and counts become linear constraints, without auxiliary variables. A hard all-different becomes
constraints on pairs.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import UnsupportedError
from oocbe.model.parts import LinearConstraint
from oocbe.runtime.deadline import check_deadline

Cost = int | float
"""What something costs, infinity where it is forbidden."""

MOST_CELLS = 2**12
"""Assignments of a function up to which it is one table."""

MOST_STEPS = 2**20
"""Steps of a walk, over all its states, values and variables: more would be tables of gigabytes."""

MOST_STEPS_OF_ALL = 2**23
"""Steps of all walks of one function, which take about a microsecond each."""

State = Any
"""What a walk remembers: hashable."""

Step = Callable[[int, State, int], tuple[State, Cost]]
"""From the place in the scope, the state before it and its value to the next state, and what the step costs."""


@dataclass(frozen=True)
class GlobalCostTable:
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
    top : costs from it on forbid; infinity where a sum below the upper bound may have larger parts.
    tables, linear : their parts. chains : how many are walks with states. coefficients : of all linear constraints.
    steps : of the walks of one function, which readers set to 0 at its beginning.
    """

    sizes: list[int]
    top: int | float | Fraction = math.inf
    names: list[str] = field(default_factory=list)
    tables: list[GlobalCostTable] = field(default_factory=list)
    linear: list[LinearConstraint] = field(default_factory=list)
    chains: int = 0
    coefficients: int = 0
    steps: int = 0

    def is_small(self, scope: Sequence[int]) -> bool:
        """Whether a function of a scope is written as one table."""
        return math.prod(self.sizes[v] for v in scope) <= MOST_CELLS

    def costs(self, scope: Sequence[int], rows: Sequence[Sequence[int]], costs: list[Cost], default: Cost) -> None:
        """A table of listed rows."""
        listed = np.array(rows, dtype=np.int64).reshape(len(rows), len(scope))
        self.tables.append(GlobalCostTable(tuple(scope), listed, costs, default))

    def tuples(self, scope: Sequence[int], rows: Sequence[Sequence[int]], cost: Cost) -> None:
        """Listed rows cost something."""
        if rows and cost:
            self.costs(scope, rows, [cost] * len(rows), 0)

    def forbid(self, scope: Sequence[int]) -> None:
        """No assignment is allowed."""
        self.costs(scope, [], [], math.inf)

    def at_least(self, title: str, scope: Sequence[int], weights: Sequence[Sequence[int]], capacity: int) -> None:
        """The sum of weights is at least a capacity, as a linear constraint: the sign turns ">=" into "<="."""
        rows = tuple(np.array([-weight for weight in own], dtype=np.int64) for own in weights)
        self.linear.append(LinearConstraint(tuple(scope), rows, -capacity, title))

    def weighted_sum(
        self, title: str, scope: Sequence[int], weights: Sequence[Sequence[int]], price: Callable[[int], Cost]
    ) -> None:
        """The sum of the variables' values' weights has a price.

        Parameters
        ----------
        title : what the function is called where it is too large. weights : of each value of each of the scope.
        """
        self.walk(title, scope, 0, lambda place, total, value: (total + weights[place][value], 0), price)

    def walk(
        self,
        title: str,
        scope: Sequence[int],
        start: State,
        step: Step,
        end: Callable[[State], Cost],
        most_steps: int = MOST_STEPS,
    ) -> None:
        """A function that is a deterministic walk with a cost a step, and one at the end.

        most_steps : where it is no table; UnsupportedError beyond them.
        """
        if self.is_small(scope):
            self._table(scope, [self.sizes[v] for v in scope], start, step, end)
        else:
            self._chain(title, scope, start, step, end, most_steps)

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
        self.costs(scope, tuples, costs, 0)

    def _chain(
        self,
        title: str,
        scope: Sequence[int],
        start: State,
        step: Step,
        end: Callable[[State], Cost],
        most_steps: int,
    ) -> None:
        layers: list[list[tuple[int, int, int, Cost]]] = []
        states: dict[State, int] = {start: 0}
        counts, steps = [1], 0
        for place, v in enumerate(scope):
            check_deadline()
            reached: dict[State, int] = {}
            layer = []
            is_last = place == len(scope) - 1
            steps += len(states) * self.sizes[v]
            self.steps += len(states) * self.sizes[v]
            if steps > most_steps or self.steps > MOST_STEPS_OF_ALL:
                most = most_steps if steps > most_steps else MOST_STEPS_OF_ALL
                raise UnsupportedError(f"{title} has more than {most:,} steps between states, which is too large")
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
            self.tables.append(GlobalCostTable(tuple(around[k] for k in kept), rows[:, kept], costs, math.inf))
