"""Random parameters of each global cost function of toulbar2."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

Fields = list[list[Any]]
"""Names and parameters: words, ``["cost", c]``, ``["list", items]``, or ``["each", items]`` without its length."""

COMPARATORS = ("==", "!=", "<", "<=", ">", ">=")
NETWORK = ("hard", "lin", "var", "quad")


class Parameters:
    """Draws parameters for a scope.

    Parameters
    ----------
    sizes : of the scope's variables. scope : their numbers. top : the upper bound, as an integer.
    is_cfn : whether ``wregular`` may have costs below 0.
    """

    def __init__(self, random: Random, sizes: list[int], scope: list[int], top: int, is_cfn: bool) -> None:
        self.is_cfn = is_cfn
        self.random = random
        self.sizes = sizes
        self.scope = scope
        self.top = top

    def cost(self) -> list[Any]:
        """A cost: small mostly, sometimes near or beyond the upper bound."""
        return ["cost", self.random.choice((0, 1, 2, 3, 3, 5, 7, self.top // 2, self.top - 1, self.top, self.top + 4))]

    def any_cost(self) -> list[Any]:
        """A cost, perhaps below 0."""
        cost = self.cost()
        return ["cost", -cost[1] if self.is_cfn and self.random.random() < 0.3 else cost[1]]

    def forbidding(self) -> list[Any]:
        """A cost that forbids."""
        return ["cost", self.top]

    def metric(self, *known: str) -> list[Any]:
        """A metric."""
        return ["metric", self.random.choice(known)]

    def value(self) -> int:
        """A value, sometimes one that no variable has."""
        return self.random.randint(0, max(self.sizes) - (self.random.random() < 0.8))

    def values(self) -> list[Any]:
        """A set of values."""
        return ["list", sorted({self.value() for _ in range(self.random.randint(0, 3))})]

    def bounds(self, costs: bool = False) -> list[Any]:
        """Values with bounds on their counts, and perhaps two costs."""
        found = []
        for value in sorted({self.value() for _ in range(self.random.randint(0, 3))}):
            low = self.random.randint(0, 2)
            found.append([value, low, low + self.random.randint(0, 2), *((self.cost(), self.cost()) if costs else ())])
        return ["list", found]

    def comparison(self) -> Fields:
        """A comparator and a right-hand side."""
        return [["comparator", self.random.choice(COMPARATORS)], ["to", self.random.randint(0, sum(self.sizes))]]

    def state(self, states: int) -> int:
        """A state."""
        return self.random.randrange(states)

    def some(self, states: int) -> list[int]:
        """States, at least one."""
        return sorted(self.random.sample(range(states), self.random.randint(1, states)))


def _all_different(p: Parameters) -> Fields:
    excepted = [value for value in p.values()[1] if value < max(p.sizes)]
    return [["exceptedvalues", ["list", excepted]], ["deltacosts", ["list", []]]]


def _gcc(p: Parameters) -> Fields:
    bounds = [[value, low, max(1, high)] for value, low, high in p.bounds()[1] if value < max(p.sizes)]
    return [["bounds", ["list", bounds]], ["deltacosts", ["list", []]]]


def _salldiff(p: Parameters) -> Fields:
    return [p.metric("var", "dec", "decbi"), ["cost", p.cost()]]


def _with_metric(*metrics: str) -> Callable[[Parameters], Fields]:
    return lambda p: [p.metric(*metrics), ["cost", p.cost()]]


def _hard(p: Parameters) -> Fields:
    return [["metric", "hard"], ["cost", p.forbidding()]]


def _bounded(*metrics: str) -> Callable[[Parameters], Fields]:
    return lambda p: [p.metric(*metrics), ["cost", p.cost()], ["bounds", p.bounds()]]


def _sgcc(p: Parameters) -> Fields:
    metric = p.metric("var", "dec", "wdec")
    return [metric, ["cost", p.cost()], ["bounds", p.bounds(costs=metric[1] == "wdec")]]


def _hard_gcc(p: Parameters) -> Fields:
    return [*_hard(p), ["bounds", ["list", [own for own in p.bounds()[1] if own[0] < max(p.sizes)]]]]


def _samong(p: Parameters) -> Fields:
    low = p.random.randint(0, 2)
    high = low + p.random.randint(0, 2)
    return [["metric", "var"], ["cost", p.cost()], ["min", low], ["max", high], ["values", p.values()]]


def _wamong(p: Parameters) -> Fields:
    low, high = p.random.randint(0, 3), p.random.randint(0, 3)
    return [p.metric(*NETWORK), ["cost", p.cost()], ["values", p.values()], ["min", low], ["max", high]]


def _wvaramong(p: Parameters) -> Fields:
    return [["metric", "hard"], ["cost", p.cost()], ["values", p.values()]]


def _wsum(p: Parameters) -> Fields:
    return [p.metric(*NETWORK), ["cost", p.cost()], *p.comparison()]


def _wvarsum(p: Parameters) -> Fields:
    return [p.metric(*NETWORK), ["cost", p.cost()], p.comparison()[0]]


def _diverse(p: Parameters) -> Fields:
    return [["distance", p.random.randint(1, len(p.sizes) + 1)], ["values", ["each", [p.value() for _ in p.sizes]]]]


def _clique(p: Parameters) -> Fields:
    return [["rhs", 1], ["values", ["each", [p.values() for _ in p.sizes]]]]


def _weight(p: Parameters) -> int:
    return p.random.randint(-4, 6)


def _knapsack(p: Parameters) -> Fields:
    return [["capacity", p.random.randint(-3, 8)], ["weights", ["each", [_weight(p) for _ in p.sizes]]]]


def _knapsackp(p: Parameters) -> Fields:
    weights = [["list", [[p.value(), _weight(p)] for _ in range(p.random.randint(0, 3))]] for _ in p.sizes]
    return [["capacity", p.random.randint(-3, 8)], ["", ["each", weights]]]


def _knapsackc(p: Parameters) -> Fields:
    weights = [["list", [[1, p.random.choice((1, 2, 3))]]] for _ in p.sizes]
    some = p.random.sample(p.scope, p.random.randint(2, len(p.scope))) if p.random.random() < 0.8 else []
    sets = ["list", [["list", [[v, p.random.randint(0, 1)] for v in some]]] if some else []]
    return [["capacity", p.random.randint(0, 6)], ["", ["each", weights]], ["", sets]]


def _knapsackv(p: Parameters) -> Fields:
    triplets = [[p.random.choice(p.scope), p.value(), _weight(p)] for _ in range(p.random.randint(1, 6))]
    return [["capacity", p.random.randint(-3, 8)], ["weightedvalues", ["list", triplets]]]


def _sregular(p: Parameters) -> Fields:
    states = p.random.randint(1, 3)
    moves = {(p.state(states), p.value()): p.state(states) for _ in range(p.random.randint(1, 6))}
    transitions = ["list", [[state, value, following] for (state, value), following in moves.items()]]
    return [
        *[["metric", "var"], ["cost", p.cost()], ["nb_states", states]],
        *[["starts", ["list", p.some(states)[:1]]], ["ends", ["list", p.some(states)]], ["transitions", transitions]],
    ]


def _wregular(p: Parameters) -> Fields:
    states = p.random.randint(1, 3)
    ends = (["list", [[q, p.any_cost()] for q in p.some(states)]] for _ in range(2))
    moves = [[p.state(states), p.value(), p.state(states), p.any_cost()] for _ in range(p.random.randint(1, 8))]
    return [["nb_states", states], ["starts", next(ends)], ["ends", next(ends)], ["transitions", ["list", moves]]]


def _grammar(p: Parameters) -> Fields:
    """Each value has a symbol of its own, as toulbar2's transformation assumes."""
    count, inner = max(p.sizes), p.random.randint(1, 3)
    is_weighted = p.random.random() < 0.5
    weight = (lambda: [p.cost()]) if is_weighted else list
    leaves = [[inner + value, value, *weight()] for value in range(count)]
    symbols = inner + count
    rules = [
        [p.random.randrange(inner), p.random.randrange(symbols), p.random.randrange(symbols), *weight()]
        for _ in range(p.random.randint(1, 6))
    ]
    head = [["metric", "weight" if is_weighted else "var"], ["cost", p.cost()], ["nb_symbols", symbols]]
    return [
        *head,
        ["nb_values", count],
        ["start", 0],
        ["terminals", ["list", leaves]],
        ["non_terminals", ["list", rules]],
    ]


def _largest(p: Parameters) -> Fields:
    some = {(p.random.choice(p.scope), p.value()) for _ in range(p.random.randint(0, 5))}
    return [["defaultcost", p.cost()], ["tuples", ["list", [[v, value, p.cost()] for v, value in sorted(some)]]]]


def _ssame(p: Parameters) -> Fields:
    order = p.random.sample(p.scope, len(p.scope))
    half = len(order) // 2
    return [["cost", p.cost()], ["vars1", ["list", order[:half]]], ["vars2", ["list", order[half:]]]]


def _relation(p: Parameters) -> Fields:
    return [["", p.random.randint(-2, 2)], ["", p.random.randint(-1, 3)]]


def _disj(p: Parameters) -> Fields:
    return [["", p.random.randint(0, 3)], ["", p.random.randint(0, 3)], ["", p.cost()]]


def _sdisj(p: Parameters) -> Fields:
    return [*[["", p.random.randint(0, 3)] for _ in range(4)], ["", p.cost()], ["", p.cost()]]


KEYWORDS: dict[str, Callable[[Parameters], Fields]] = {
    "alldiff": _all_different,
    "gcc": _gcc,
    "salldiff": _salldiff,
    "salldiffdp": _with_metric("var"),
    "salldiffkp": _hard,
    "walldiff": _with_metric(*NETWORK),
    "walldifferent": _with_metric(*NETWORK),
    "samong": _samong,
    "samongdp": _samong,
    "wamong": _wamong,
    "wvaramong": _wvaramong,
    "sgcc": _sgcc,
    "sgccdp": _bounded("var"),
    "sgcckp": _hard_gcc,
    "wgcc": _bounded(*NETWORK),
    "wsame": _with_metric(*NETWORK),
    "wsamegcc": _bounded("hard", "lin", "dec", "quad"),
    "ssame": _ssame,
    "woverlap": _wsum,
    "wdiverse": _diverse,
    "whdiverse": _diverse,
    "wtdiverse": _diverse,
    "clique": _clique,
    "knapsack": _knapsack,
    "knapsackc": _knapsackc,
    "knapsackp": _knapsackp,
    "knapsackv": _knapsackv,
    "wsum": _wsum,
    "wvarsum": _wvarsum,
    "sregular": _sregular,
    "sregulardp": _sregular,
    "wregular": _wregular,
    "sgrammar": _grammar,
    "sgrammardp": _grammar,
    "max": _largest,
    "smaxdp": _largest,
    "MST": lambda p: [],
    "smstdp": lambda p: [],
    **dict.fromkeys((">=", ">", "<=", "<", "="), _relation),
    "disj": _disj,
    "sdisj": _sdisj,
}
"""Keywords, and what draws their parameters."""
