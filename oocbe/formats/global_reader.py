"""What readers of global cost functions share: the words after a keyword, costs, and counts that have a price.

Keywords of a subject are read by functions of their own (:mod:`oocbe.formats.global_counts`,
:mod:`oocbe.formats.global_sums`, :mod:`oocbe.formats.global_walks`), which :mod:`oocbe.formats.wcsp` collects.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

from oocbe.errors import FormatError, UnsupportedError
from oocbe.formats.global_costs import Cost, Decomposed
from oocbe.formats.text import Text

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

    Parameters
    ----------
    text : the file. cursor : the token of the keyword. scope : of the function.
    whole : takes the parts. unit : what a cost of 1 is in the costs of the text.
    has_negative_costs : whether ``wregular`` may have such.
    labels : names of the values of each of the file's variables, where they have any.

    Attributes
    ----------
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
        self._text = text
        self._labels = labels
        self.scope = scope
        self.sizes = [whole.sizes[v] for v in scope]
        self.whole = whole
        self.unit = unit
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
        """Take the word that says how a violation is priced."""
        word = self.word("what a violation costs")
        if word not in known:
            raise self.unsupported(f"with {word!r} is not supported, only with {' and '.join(known)}")
        return word

    def cost(self, low: int | None = 0) -> Cost:
        """Take a cost; infinite where it forbids."""
        cost = self.integer("a cost", low)
        return math.inf if cost >= self.whole.top else cost

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
        if self.whole.is_small(self.scope):
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
        self.whole.at_least(self.title, self.scope, weights, capacity)

    def priced(self, weights: list[list[int]], price: Callable[[int], Cost]) -> None:
        """The sum of weights has a price."""
        self.whole.weighted_sum(self.title, self.scope, weights, price)

    def violated(self, weights: list[list[int]], gap: Callable[[int], int], metric: str, cost: Cost) -> None:
        """A sum of weights costs by how far it is from its bound.

        gap : of a sum; 0 where it is as it should be.
        """
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
    """What a gap costs: nothing at 0, by ``hard`` the cost once, else the cost times the gap or its square."""
    if gap == 0:
        return 0
    return cost if metric == "hard" else cost * gap ** POWERS[metric]
