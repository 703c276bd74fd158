"""Functions by keyword in ``wcsp`` files: global cost functions that decompose exactly, and relations of two variables.

The keywords and what follows them are in toulbar2's manual. Supported are those in :data:`KEYWORDS`, of ``sgcc`` the
decomposed semantics only (the variable-based one is a maximum over values that no sum of small functions has).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np

from oocbe.errors import UnsupportedError
from oocbe.io.global_costs import Automaton, Cost, Decomposed, Table, beyond, weighted
from oocbe.io.text import Text

RELATIONS: dict[str, Callable[[int, int], int]] = {
    ">=": lambda x, y: y - x,
    ">": lambda x, y: y + 1 - x,
    "<=": lambda x, y: x - y,
    "<": lambda x, y: x + 1 - y,
    "=": lambda x, y: abs(y - x),
}
"""How far two numbers are from a relation, where above 0."""

COMPARATORS: dict[str, Callable[[int, int], int]] = {
    "==": lambda total, right: abs(right - total),
    "<=": lambda total, right: max(0, total - right),
    "<": lambda total, right: max(0, total - right + 1),
    ">=": lambda total, right: max(0, right - total),
    ">": lambda total, right: max(0, right - total + 1),
    "!=": lambda total, right: int(total == right),
}
"""How far a sum is from what is asked of it."""

MOST_STATES = 2**16
"""States and transitions of an automaton; more are damage, or tables of gigabytes."""


class GlobalReader:
    """Reads what follows a keyword, and adds what it comes to.

    Parameters
    ----------
    text : the file. cursor : the token of the keyword. scope : of the function. top : costs from it on forbid.
    """

    def __init__(self, text: Text, cursor: int, scope: tuple[int, ...], top: int | float, whole: Decomposed) -> None:
        self._text = text
        self._scope = scope
        self._sizes = [whole.sizes[v] for v in scope]
        self._top = top
        self._whole = whole
        self._keyword = text.word(cursor, "a keyword")
        self._line = text.line(cursor)
        self._title = f"{self._keyword} of line {self._line}"
        self._begin = cursor
        self.cursor = cursor + 1

    def read(self) -> int:
        """Read the function; returns the token after it. UnsupportedError by name for what does not decompose."""
        if self._keyword in RELATIONS or self._keyword == "disj":
            self._relation()
        elif self._keyword in KEYWORDS:
            KEYWORDS[self._keyword](self)
        else:
            known = ", ".join([*KEYWORDS, "knapsack", "knapsackp", *RELATIONS, "disj"])
            raise self._unsupported(f"is not supported; those that are: {known}")
        return self.cursor

    def _unsupported(self, what: str) -> UnsupportedError:
        shown = self._text.shown(self._begin)
        return UnsupportedError(f"{self._text.path}, line {self._line}: the global cost function {shown} {what}")

    def _integer(self, what: str, low: int | None = None, high: int | None = None) -> int:
        self.cursor += 1
        return self._text.integer(self.cursor - 1, what, low, high)

    def _metric(self, *known: str) -> str:
        self.cursor += 1
        word = self._text.word(self.cursor - 1, "what a violation costs")
        if word not in known:
            raise self._unsupported(f"with {word!r} is not supported, only with {' and '.join(known)}")
        return word

    def _cost(self) -> Cost:
        """A cost of a violation; infinite from the upper bound on."""
        cost = self._integer("a cost", 0)
        return math.inf if cost >= self._top else cost

    def _values(self) -> set[int]:
        count = self._integer("a number of values", 0, MOST_STATES)
        return {self._integer("a value") for _ in range(count)}

    def _at_most(self, scope_weights: list[list[int]], low: Cost, high: Cost, cost: Cost, power: int = 1) -> None:
        """A count within bounds, or what it costs beyond them."""
        if cost == math.inf:
            self._whole.between(self._title, self._scope, scope_weights, low, high)
        elif cost:
            self._whole.weighted_sum(self._title, self._scope, scope_weights, beyond(low, high, cost, power))

    def _counts(self, values: set[int]) -> list[list[int]]:
        return weighted([values] * len(self._scope), self._sizes)

    def _all_different(self) -> None:
        metric = self._metric("var", "dec", "decbi")
        cost = self._cost()
        if metric != "var" or cost == math.inf:
            self._whole.pairs(self._scope, cost)
        else:
            self._each_once(cost, 1)

    def _each_once(self, cost: Cost, power: int) -> None:
        for value in range(max(self._sizes, default=0)):
            self._at_most(self._counts({value}), -math.inf, 1, cost, power)

    def _all_different_decomposed(self) -> None:
        metric = self._metric("hard", "lin", "quad") if self._keyword == "walldiff" else self._metric("var")
        cost = self._cost()
        if metric == "hard" or cost == math.inf:
            self._whole.pairs(self._scope, math.inf)
        else:
            self._each_once(cost, 2 if metric == "quad" else 1)

    def _among(self) -> None:
        is_network = self._keyword == "wamong"
        metric = self._metric("hard", "lin", "quad") if is_network else self._metric("var")
        cost = self._cost()
        values = self._values() if is_network else set()
        low, high = self._integer("a lower bound"), self._integer("an upper bound")
        values = values if is_network else self._values()
        cost = math.inf if metric == "hard" else cost
        self._at_most(self._counts(values), low, high, cost, 2 if metric == "quad" else 1)

    def _cardinalities(self) -> None:
        known = {"wgcc": ("hard", "lin", "quad"), "sgccdp": ("var",), "sgcc": ("dec",)}
        metric = self._metric(*known[self._keyword])
        cost = math.inf if self._cost_or(metric) else self._last
        for _ in range(self._integer("a number of values", 0, MOST_STATES)):
            value, low, high = (self._integer(what) for what in ("a value", "a lower bound", "an upper bound"))
            self._at_most(self._counts({value}), low, high, cost, 2 if metric == "quad" else 1)

    def _cost_or(self, metric: str) -> bool:
        """Take a cost; whether violations are forbidden."""
        self._last = self._cost()
        return metric == "hard" or self._last == math.inf

    def _sum(self) -> None:
        metric = self._metric("hard", "lin", "quad")
        is_hard = self._cost_or(metric)
        self.cursor += 1
        word = self._text.word(self.cursor - 1, "a comparator")
        if word not in COMPARATORS:
            raise self._text.error(self.cursor - 1, f"found {word!r}, expected a comparator: {', '.join(COMPARATORS)}")
        right = self._integer("a right-hand side")
        weights = [list(range(size)) for size in self._sizes]
        if is_hard and word != "!=":
            low = {"==": right, ">=": right, ">": right + 1}.get(word, -math.inf)
            high = {"==": right, "<=": right, "<": right - 1}.get(word, math.inf)
            self._whole.between(self._title, self._scope, weights, low, high)
            return
        gap, cost, power = COMPARATORS[word], math.inf if is_hard else self._last, 2 if metric == "quad" else 1

        def price(total: int) -> Cost:
            off: int = gap(total, right)
            return cost * off**power if off else 0

        self._whole.weighted_sum(self._title, self._scope, weights, price)

    def _regular(self) -> None:
        self._metric("var")
        cost = self._cost()
        states = self._integer("a number of states", 0, MOST_STATES)
        starts, ends = (
            {self._state(states): 0 for _ in range(self._integer("a number of states", 0, states))} for _ in range(2)
        )
        moves = {
            (self._state(states), self._integer("a value"), self._state(states)): 0
            for _ in range(self._integer("a number of transitions", 0, MOST_STATES))
        }
        changes = None if cost == math.inf else cost
        Automaton(starts, ends, moves).weigh(self._whole, self._title, self._scope, self._top, changes)

    def _weighted_regular(self) -> None:
        states = self._integer("a number of states", 0, MOST_STATES)
        starts, ends = (
            {self._state(states): self._cost() for _ in range(self._integer("a number of states", 0, states))}
            for _ in range(2)
        )
        moves: dict[tuple[int, int, int], Cost] = {}
        for _ in range(self._integer("a number of transitions", 0, MOST_STATES)):
            move = (self._state(states), self._integer("a value"), self._state(states))
            moves[move] = min(self._cost(), moves.get(move, math.inf))
        starts = {q: cost for q, cost in starts.items() if cost != math.inf}
        Automaton(starts, ends, moves).weigh(self._whole, self._title, self._scope, self._top, None)

    def _state(self, states: int) -> int:
        return self._integer("a state", 0, states - 1)

    def _clique(self) -> None:
        most = self._integer("how many variables may have their values")
        own = [self._values() for _ in self._scope]
        self._whole.between(self._title, self._scope, weighted(own, self._sizes), -math.inf, most)

    def _weights_by_triplets(self) -> None:
        capacity = self._integer("a capacity")
        weights = [[0] * size for size in self._sizes]
        for _ in range(self._integer("a number of weights", 0)):
            v = self._integer("a variable")
            if v not in self._scope:
                raise self._text.error(self.cursor - 1, f"found variable {v}, expected one of the scope {self._scope}")
            place = self._scope.index(v)
            value = self._integer("a value", 0, self._sizes[place] - 1)
            weights[place][value] += self._integer("a weight", -(2**62), 2**62)
        self._whole.between(self._title, self._scope, weights, capacity, math.inf)

    def _relation(self) -> None:
        if len(self._scope) != 2:
            raise self._text.error(self._begin, f"found {len(self._scope)} variables, expected two for {self._keyword}")
        shape = range(self._sizes[0]), range(self._sizes[1])
        if self._keyword == "disj":
            one, other = self._integer("an integer"), self._integer("an integer")
            penalty = self._integer("a cost", 0)
            costs: list[Cost] = [0 if x >= y + other or y >= x + one else penalty for x, y in itertools.product(*shape)]
        else:
            constant, most = self._integer("an integer"), self._integer("the largest cost")
            gap = RELATIONS[self._keyword]
            off = [max(0, gap(x, y + constant)) for x, y in itertools.product(*shape)]
            costs = [cost if cost <= most else math.inf for cost in off]
        tuples = np.array(list(itertools.product(*shape)), dtype=np.int64)
        self._whole.tables.append(Table(self._scope, tuples, costs, 0))


KEYWORDS: dict[str, Callable[[GlobalReader], None]] = {
    "salldiff": GlobalReader._all_different,
    "salldiffdp": GlobalReader._all_different_decomposed,
    "walldiff": GlobalReader._all_different_decomposed,
    "samong": GlobalReader._among,
    "samongdp": GlobalReader._among,
    "wamong": GlobalReader._among,
    "sgcc": GlobalReader._cardinalities,
    "sgccdp": GlobalReader._cardinalities,
    "wgcc": GlobalReader._cardinalities,
    "wsum": GlobalReader._sum,
    "sregular": GlobalReader._regular,
    "wregular": GlobalReader._weighted_regular,
    "clique": GlobalReader._clique,
    "knapsackv": GlobalReader._weights_by_triplets,
}
"""Keywords and what reads them."""
