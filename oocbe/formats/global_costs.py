"""Global cost functions, decomposed exactly into small tables.

Each is one walk over its variables, in their order, from state to state. A state is a partial count or sum, or the
distance from every state of an automaton. Walks are *deterministic*: an assignment has one walk, so that counts and
probabilities are preserved (for a weighted automaton, states are vectors of least costs, less their minimum, as in
Mohri 1997). A function with few assignments becomes one table. Otherwise, an auxiliary variable between two neighbours
of the scope holds the state, and a table over a state, a variable and the next state holds the cost of a step.

Hard constraints on sums and counts become linear constraints, without auxiliary variables. A hard all-different becomes
constraints on pairs.

Readers of these functions (:mod:`oocbe.formats.global_counts`, which :mod:`oocbe.formats.wcsp` collects) share the
words after a keyword, costs, and counts that have a price (:class:`GlobalReader`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from oocbe.errors import FormatError, UnsupportedError
from oocbe.formats.text import Text
from oocbe.model.parts import LinearConstraint
from oocbe.runtime.deadline import check_deadline

Cost = int | float
"""A cost; infinity if forbidden."""

MOST_CELLS = 2**12
"""Assignments of a function up to which it is one table."""

MOST_STEPS = 2**20
"""Steps of a walk, over all its states, values and variables: more would be tables of gigabytes."""

MOST_STEPS_OF_ALL = 2**23
"""Steps of all walks of one function, which take about a microsecond each."""

State = Any
"""State of a walk; hashable."""

Step = Callable[[int, State, int], tuple[State, Cost]]
"""From the place in the scope, the state before it and its value to the next state, and what the step costs."""


@dataclass(frozen=True)
class ListedCosts:
    """Costs over some variables.

    scope : indices of variables; those of states are numbered on from the file's. size : number of their assignments.
    tuples : int64 (rows, arity), different ones. costs : (rows,), infinite where a tuple is forbidden.
    default : of tuples that are not listed.
    """

    scope: tuple[int, ...]
    size: int
    tuples: NDArray[np.int64]
    costs: Sequence[Cost]
    default: Cost

    @property
    def rest(self) -> Cost:
        """The default, or infinity where all tuples are listed."""
        return self.default if len(self.costs) < self.size else math.inf


@dataclass
class Decomposed:
    """Decomposition of a problem's global cost functions.

    sizes : of the file's variables, and of those of states, which are added. names : of those of states.
    top : costs from it on forbid; infinity where a sum below the upper bound may have larger parts.
    tables, linear : their parts. chains : how many are walks with states. coefficients : of all linear constraints.
    steps : of the walks of one function, which readers set to 0 at its beginning.
    """

    sizes: list[int]
    top: int | float | Fraction = math.inf
    names: list[str] = field(default_factory=list)
    tables: list[ListedCosts] = field(default_factory=list)
    linear: list[LinearConstraint] = field(default_factory=list)
    chains: int = 0
    coefficients: int = 0
    steps: int = 0

    def cells(self, scope: Sequence[int]) -> int:
        """Assignments of a scope; a function with at most :data:`MOST_CELLS` is one table."""
        return math.prod(self.sizes[v] for v in scope)

    def costs(self, scope: Sequence[int], rows: ArrayLike, costs: list[Cost], default: Cost) -> None:
        """A table of listed rows."""
        listed = np.array(rows, dtype=np.int64).reshape(len(costs), len(scope))
        self.tables.append(ListedCosts(tuple(scope), self.cells(scope), listed, costs, default))

    def tuples(self, scope: Sequence[int], rows: Sequence[Sequence[int]], cost: Cost) -> None:
        """Listed rows cost something."""
        if rows and cost:
            self.costs(scope, rows, [cost] * len(rows), 0)

    def forbid(self, scope: Sequence[int]) -> None:
        """No assignment is allowed."""
        self.costs(scope, [], [], math.inf)

    def weighted_sum(
        self, title: str, scope: Sequence[int], weights: Sequence[Sequence[int]], price: Callable[[int], Cost]
    ) -> None:
        """A price of the sum of the scope's values' weights; ``title`` names a function that is too large."""
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
        """A deterministic walk with a cost a step and one at the end; UnsupportedError: beyond ``most_steps``."""
        if self.cells(scope) <= MOST_CELLS:
            self._table(scope, start, step, end)
        else:
            self._chain(title, scope, start, step, end, most_steps)

    def _table(self, scope: Sequence[int], start: State, step: Step, end: Callable[[State], Cost]) -> None:
        """One table. A step is taken once for each state and cost, not for each assignment."""
        states: dict[tuple[State, Cost], int] = {(start, 0): 0}
        reached_by = np.zeros(1, dtype=np.int64)  # position in `states`, of each assignment of the variables so far
        for place, v in enumerate(scope):
            reached: dict[tuple[State, Cost], int] = {}
            following = []
            for (state, cost), value in itertools.product(states, range(self.sizes[v])):
                after, more = step(place, state, value) if cost != math.inf else (None, math.inf)
                key = (after, cost + more) if more != math.inf else (None, math.inf)
                following.append(reached.setdefault(key, len(reached)))
            reached_by = np.array(following, dtype=np.int64).reshape(len(states), -1)[reached_by].ravel()
            states = reached
        costs = [cost if cost == math.inf else cost + end(state) for state, cost in states]
        listed = np.array([cost != 0 for cost in costs])[reached_by]
        rows = np.argwhere(listed.reshape([self.sizes[v] for v in scope]))
        self.costs(scope, rows, [costs[state] for state in reached_by[listed].tolist()], 0)

    def _chain(
        self, title: str, scope: Sequence[int], start: State, step: Step, end: Callable[[State], Cost], most_steps: int
    ) -> None:
        """States between variables, and tables over what a step goes from, by and to."""
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
            for count, most in ((steps, most_steps), (self.steps, MOST_STEPS_OF_ALL)):
                if count > most:
                    raise UnsupportedError(f"{title} has more than {most:,} steps between states, which is too large")
            for (state, index), value in itertools.product(states.items(), range(self.sizes[v])):
                following, cost = step(place, state, value)
                if is_last and cost != math.inf:
                    cost += end(following)
                if cost != math.inf:
                    target = 0 if is_last else reached.setdefault(following, len(reached))
                    layer.append((index, value, target, cost))
            layers.append(layer)
            states = reached
            counts.append(1 if is_last else max(1, len(reached)))
        first = len(self.sizes)
        self.sizes += counts[1:-1]
        self.chains += 1
        self.names += [f"state.{self.chains}.{place}" for place in range(1, len(scope))]
        for place, (v, layer) in enumerate(zip(scope, layers, strict=True)):
            around = [first + place - 1, v, first + place]
            kept = [k for k in range(3) if not (k == 0 and place == 0) and not (k == 2 and place == len(scope) - 1)]
            rows = [[int(row[k]) for k in kept] for row in layer]
            self.costs([around[k] for k in kept], rows, [row[3] for row in layer], math.inf)


MOST_ITEMS = 2**16
"""Values, states, transitions or rules of one function; more are damage, or tables of gigabytes."""

MOST_COEFFICIENTS = 2**24
"""Coefficients of linear constraints, one a value, besides one for each number of the file."""

MOST_TOTALS = 2**20
"""Values of a sum that are tried one by one for those that are allowed, to find an interval."""

MOST_WEIGHTS = 2**26
"""Weights of a function that counts each value on its own, over all values."""

POWERS = {"lin": 1, "var": 1, "dec": 1, "quad": 2}
"""Metrics that price a violation by its size, and the power of it."""


class GlobalReader:
    """The words of one function, from its keyword on, and where its parts are added.

    text : the file. cursor : the token of the keyword. scope : of the function.
    whole : takes the parts. unit : what a cost of 1 is in the costs of the text.
    has_negative_costs : whether ``wregular`` may have such.
    labels : names of the values of each of the file's variables, where they have any.
    sizes : of the scope's variables. cursor : the next token.
    """

    def __init__(
        self,
        text: Text,
        cursor: int,
        scope: tuple[int, ...],
        whole: Decomposed,
        unit: int = 1,
        has_negative_costs: bool = False,
        labels: Sequence[Sequence[str] | None] = (),
    ) -> None:
        self._text, self._labels, self.scope = text, labels, scope
        self.sizes = [whole.sizes[v] for v in scope]
        self.whole, self.unit = whole, unit
        self.least_cost = None if has_negative_costs else 0
        self.keyword = text.word(cursor, "a keyword")
        self.line = text.line(cursor)
        self.title = f"{self.keyword} of line {self.line}"
        self._begin = cursor
        self.cursor = cursor + 1
        whole.steps = 0
        if not scope:
            raise text.error(cursor, f"found no variable in the scope of {self.keyword}, expected at least one")
        if sum(self.sizes) > MOST_COEFFICIENTS:
            most = f"at most {MOST_COEFFICIENTS:,} are supported"
            raise self.unsupported(f"is over variables with {sum(self.sizes):,} values; {most}")

    def unsupported(self, what: str) -> UnsupportedError:
        """The error to raise about what is not supported of the function."""
        shown = self._text.shown(self._begin)
        return UnsupportedError(f"{self._text.path}, line {self.line}: the global cost function {shown} {what}")

    def error(self, message: str) -> FormatError:
        """The error to raise about the last word taken."""
        return self._text.error(self.cursor - 1, message)

    def word(self, what: str) -> str:
        """Take a word."""
        self.cursor += 1
        return self._text.word(self.cursor - 1, what)

    def integer(self, what: str, low: int | None = None, high: int | None = None) -> int:
        """Take an integer within limits."""
        self.cursor += 1
        return self._text.integer(self.cursor - 1, what, low, high)

    def count(self, what: str) -> int:
        """Take the length of a list."""
        return self.integer(what, 0, MOST_ITEMS)

    def ends_line(self) -> bool:
        """Whether the next word is of another line than the last one, or there is none."""
        return self.cursor >= len(self._text) or self._text.line(self.cursor) != self._text.line(self.cursor - 1)

    def metric(self, *known: str) -> str:
        """Take the word for the measure of a violation."""
        word = self.word("what a violation costs")
        if word not in known:
            raise self.unsupported(f"with {word!r} is not supported, only with {' and '.join(known)}")
        return word

    def cost(self, low: int | None = 0) -> Cost:
        """Take a cost; infinite where it forbids."""
        cost = self.integer("a cost", low)
        return math.inf if cost >= self.whole.top else cost

    def place(self) -> int:
        """Take a variable of the scope and return its place there."""
        v = self.integer("a variable")
        if v not in self.scope:
            raise self.error(f"found variable {v}, expected one of the scope {self.scope}")
        return self.scope.index(v)

    def values(self) -> set[int]:
        """Take a list of values with its length before it; those that no variable has are of no effect."""
        return {self.integer("a value") for _ in range(self.count("a number of values"))}

    def comparator(self, known: dict[str, Callable[[int], int]]) -> Callable[[int], int]:
        """Take a comparator and return how far a difference is from it."""
        word = self.word("a comparator")
        if word not in known:
            raise self.error(f"found {word!r}, expected a comparator: {', '.join(known)}")
        return known[word]

    def value_names(self, place: int) -> list[str]:
        """Names of the values of a variable of the scope: labels, or what toulbar2 calls them."""
        labels = self._labels[self.scope[place]] if self._labels else None
        return [f"v{value}" for value in range(self.sizes[place])] if labels is None else list(labels)

    def weights(self, values: set[int]) -> list[list[int]]:
        """Weights that count the variables with one of the values."""
        return [[int(value in values) for value in range(size)] for size in self.sizes]

    def all_values(self) -> range:
        """Values that some variable of the scope has, for a function that counts each on its own."""
        values = range(max(self.sizes))
        if len(values) * sum(self.sizes) > MOST_WEIGHTS:
            raise self.unsupported(f"counts {len(values):,} values, each of its own, which is too large")
        return values

    def between(self, weights: list[list[int]], low: Cost, high: Cost) -> None:
        """The sum of weights lies between two numbers, either of which may be infinite."""
        if self.whole.cells(self.scope) <= MOST_CELLS:
            self.priced(weights, lambda total: 0 if low <= total <= high else math.inf)
            return
        if high != math.inf:
            self.at_least([[-weight for weight in own] for own in weights], -int(high))
        if low != -math.inf:
            self.at_least(weights, int(low))

    def at_least(self, weights: list[list[int]], capacity: int) -> None:
        """The sum of weights is at least a capacity, as a linear constraint."""
        self.whole.coefficients += sum(self.sizes)
        most = MOST_COEFFICIENTS + len(self._text)
        if self.whole.coefficients > most:
            raise UnsupportedError(
                f"{self._text.path}, line {self.line}: up to here, the variables of linear constraints have "
                f"{self.whole.coefficients:,} values; at most {most:,} are supported"
            )
        for v, own in zip(self.scope, weights, strict=True):
            if max(map(abs, own), default=0) >= 2**63:
                raise self.error(f"found a weight of variable {v} outside 64 bits, expected a smaller one")
        rows = tuple(np.array([-weight for weight in own], dtype=np.int64) for own in weights)  # "<=" of negative ones
        self.whole.linear.append(LinearConstraint(self.scope, rows, -capacity, self.title))

    def walk(self, start: State, step: Step, end: Callable[[State], Cost], most_steps: int = MOST_STEPS) -> None:
        """The function is a walk, as :meth:`Decomposed.walk` takes it."""
        self.whole.walk(self.title, self.scope, start, step, end, most_steps)

    def priced(self, weights: list[list[int]], price: Callable[[int], Cost]) -> None:
        """The sum of weights has a price."""
        self.whole.weighted_sum(self.title, self.scope, weights, price)

    def violated(self, weights: list[list[int]], gap: Callable[[int], int], metric: str, cost: Cost) -> None:
        """A sum of weights has a cost by how far it is from its bound: ``gap``, 0 where it is as it should be."""
        if cost == 0:
            return
        least, most = (sum(map(extreme, weights)) for extreme in (min, max))
        if cost == math.inf and most - least < MOST_TOTALS:
            good = [total for total in range(least, most + 1) if gap(total) == 0]
            if good and good[-1] - good[0] == len(good) - 1:
                low, high = (-math.inf if good[0] == least else good[0]), (math.inf if good[-1] == most else good[-1])
                self.between(weights, low, high)
                return
        self.priced(weights, lambda total: price(gap(total), metric, cost))

    def outside(self, weights: list[list[int]], low: int, high: int, metric: str, cost: Cost) -> None:
        """A count costs by how far it is beyond two bounds."""
        self.violated(weights, lambda count: max(0, low - count, count - high), metric, cost)

    def differ(self, names: Sequence[Sequence[str]], excepted: set[str], cost: Cost) -> None:
        """Each two of the scope with the same value, by its name, cost something."""
        found: dict[tuple[tuple[str, ...], tuple[str, ...]], list[tuple[int, int]]] = {}
        for i, j in itertools.combinations(range(len(self.scope)), 2):
            both = tuple(names[i]), tuple(names[j])
            if both not in found:
                known = {name: value for value, name in enumerate(both[1]) if name not in excepted}
                found[both] = [(value, known[name]) for value, name in enumerate(both[0]) if name in known]
            self.whole.tuples((self.scope[i], self.scope[j]), found[both], cost)


def price(gap: int, metric: str, cost: Cost) -> Cost:
    """Cost of a gap: 0 without a gap, the cost once for ``hard``, else the cost times the gap or its square."""
    if gap == 0:
        return 0
    return cost if metric == "hard" else cost * gap ** POWERS[metric]
