"""Global cost functions over counts and sums of values, and walks of their own.

Counts: all different, among, cardinalities, the same values in two lists. Sums: linear constraints, sums with a price,
and relations of two variables. Walks: automata, grammars, spanning trees, the largest of weights.

A violation costs what it costs in toulbar2. ``hard`` charges the cost once, which forbids only where it reaches the
upper bound. Values of ``alldiff`` and ``gcc`` are equal where their names are, as in toulbar2; those of all others
where their numbers are.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from oocbe.errors import amount
from oocbe.formats.global_costs import MOST_ITEMS, Cost, GlobalReader, State, price

NETWORK = ("hard", "lin", "var", "quad")
"""Metrics of functions that toulbar2 decomposes itself; ``var`` is ``lin`` there."""


def _must_forbid(reader: GlobalReader, cost: Cost) -> None:
    if cost != math.inf:
        raise reader.error(f"found the cost {cost}, expected the upper bound or more, as {reader.keyword} is hard")


DIFFERENT = {"salldiff": ("var", "dec", "decbi"), "salldiffdp": ("var",), "salldiffkp": ("hard", "hardeq", "hardge")}
"""Metrics of functions of different values; those of the others are :data:`NETWORK`."""


def all_different_soft(reader: GlobalReader) -> None:
    """``salldiff``, ``salldiffdp``, ``salldiffkp`` (hard) and ``walldiff``: by pairs, or a count of each value."""
    metric, cost = reader.metric(*DIFFERENT.get(reader.keyword, NETWORK)), reader.cost()
    if reader.keyword == "salldiffkp":
        _must_forbid(reader, cost)
    if metric in ("dec", "decbi") or cost == math.inf:
        reader.differ([[str(value) for value in range(size)] for size in reader.sizes], set(), cost)
        return
    for value in reader.all_values():
        reader.outside(reader.weights({value}), 0, 1, metric, cost)


def all_different(reader: GlobalReader) -> None:
    """``alldiff``: forbids the same name twice, but for some values."""
    excepted = reader.values()
    _no_moved_costs(reader)
    names = [reader.value_names(place) for place in range(len(reader.scope))]
    reader.differ(names, {name for value in excepted for name in _name(names, value)}, math.inf)


def _name(names: list[list[str]], value: int) -> list[str]:
    """The name of a value: that of the first variable which has so many; none where no variable has."""
    return [own[value] for own in names if 0 <= value < len(own)][:1]


def _no_moved_costs(reader: GlobalReader) -> None:
    """Pass over the number of costs that propagation has moved, which a line's end stands for."""
    if not reader.ends_line() and reader.count("a number of costs that were moved") > 0:
        raise reader.unsupported("with costs that propagation has moved is not supported")


def cardinalities_hard(reader: GlobalReader) -> None:
    """``gcc``: forbids counts of names beyond bounds."""
    bounds = [_bounds(reader) for _ in range(reader.count("a number of values"))]
    _no_moved_costs(reader)
    names = [reader.value_names(place) for place in range(len(reader.scope))]
    for value, low, high in bounds:
        known = _name(names, value)
        weights = [[int(own in known) for own in values] for values in names]
        reader.outside(weights, low, high, "hard", math.inf)


def _bounds(reader: GlobalReader) -> tuple[int, int, int]:
    value, low, high = (reader.integer(what) for what in ("a value", "a lower bound", "an upper bound"))
    return value, low, high


def among_soft(reader: GlobalReader) -> None:
    """``samong`` and ``samongdp``."""
    metric, cost = reader.metric("var"), reader.cost()
    low, high = _range(reader)
    reader.outside(reader.weights(reader.values()), low, high, metric, cost)


def _range(reader: GlobalReader) -> tuple[int, int]:
    low, high = reader.integer("a lower bound"), reader.integer("an upper bound")
    if low > high:
        raise reader.error(f"found {high}, expected an upper bound, at least the lower one, {low}")
    return low, high


def among(reader: GlobalReader) -> None:
    """``wamong``."""
    metric, cost, values = reader.metric(*NETWORK), reader.cost(), reader.values()
    low, high = (reader.integer(what, 0) for what in ("a lower bound", "an upper bound"))
    reader.outside(reader.weights(values), low, high, metric, cost)


def among_variable(reader: GlobalReader) -> None:
    """``wvaramong``: a count of values is what the last variable has."""
    metric, cost, values = reader.metric("hard"), reader.cost(), reader.values()
    last = [-value for value in range(reader.sizes[-1])]
    reader.violated([*reader.weights(values)[:-1], last], abs, metric, cost)


def cardinalities(reader: GlobalReader) -> None:
    """``wgcc``, ``sgccdp`` and ``sgcckp``: each value's count, on its own."""
    known = {"wgcc": NETWORK, "sgccdp": ("var",), "sgcckp": ("hard",)}
    metric, cost = reader.metric(*known[reader.keyword]), reader.cost()
    if reader.keyword == "sgcckp":
        _must_forbid(reader, cost)
    for _ in range(reader.count("a number of values")):
        if reader.keyword == "sgccdp":
            value, (low, high) = reader.integer("a value"), _range(reader)
        else:
            value, low, high = _bounds(reader)
        reader.outside(reader.weights({value}), low, high, metric, cost)


def cardinalities_soft(reader: GlobalReader) -> None:
    """``sgcc``: by variables that have to change, by counts, or by counts with costs of each value."""
    metric, cost = reader.metric("var", "dec", "wdec"), reader.cost()
    bounds: dict[int, tuple[int, int, Cost, Cost]] = {}
    for _ in range(reader.count("a number of values")):
        value, low, high = _bounds(reader)
        shortage, excess = (reader.cost() if metric == "wdec" else cost for _ in range(2))
        bounds[value] = low, high, shortage, excess
        if low > high:
            reader.whole.forbid(reader.scope)
    if metric == "var":
        _least_changes(reader, bounds, cost)
        return
    for value, (low, high, shortage, excess) in bounds.items():
        weights = reader.weights({value})
        reader.outside(weights, low, len(reader.scope), "lin", shortage)
        reader.outside(weights, 0, high, "lin", excess)


def _least_changes(reader: GlobalReader, bounds: dict[int, tuple[int, int, Cost, Cost]], cost: Cost) -> None:
    """The larger of what all counts lack and have too much: a walk over counts, capped at the upper bounds."""
    room = sum(high for _, high, _, _ in bounds.values()) if bounds.keys() >= set(reader.all_values()) else math.inf
    if sum(low for low, _, _, _ in bounds.values()) > len(reader.scope) or room < len(reader.scope):
        reader.whole.forbid(reader.scope)  # no change of values mends it
        return
    if cost == math.inf:
        for value, (low, high, _, _) in bounds.items():
            reader.outside(reader.weights({value}), low, high, "hard", cost)
        return
    places = {value: place for place, value in enumerate(bounds)}
    lows, highs = ([own[k] for own in bounds.values()] for k in range(2))

    def step(place: int, state: State, value: int) -> tuple[State, Cost]:
        counts, excess = state
        own = places.get(value)
        if own is None:
            return state, 0
        if counts[own] >= highs[own]:
            return (counts, excess + 1), 0
        return ((*counts[:own], counts[own] + 1, *counts[own + 1 :]), excess), 0

    def end(state: State) -> Cost:
        counts, excess = state
        shortage = sum(max(0, low - count) for low, count in zip(lows, counts, strict=True))
        most: int = max(excess, shortage)
        return cost * most

    reader.walk(((0,) * len(places), 0), step, end)


def same(reader: GlobalReader) -> None:
    """``wsame`` and ``wsamegcc``: both halves of the scope have the same values as often, perhaps within bounds."""
    has_bounds = reader.keyword == "wsamegcc"
    metric = reader.metric("hard", "lin", "dec" if has_bounds else "var", "quad")
    cost = reader.cost()
    half = _half(reader)
    for value in reader.all_values():
        reader.violated(_sides(reader, value, set(range(half))), abs, metric, cost)
    for _ in range(reader.count("a number of values") if has_bounds else 0):
        value, low, high = _bounds(reader)
        if value in reader.all_values():
            counts = reader.weights({value})
            zero = [[0] * size for size in reader.sizes]
            for weights in ([*counts[:half], *zero[half:]], [*zero[:half], *counts[half:]]):
                reader.outside(weights, low, high, metric, cost)


def _half(reader: GlobalReader) -> int:
    if len(reader.scope) % 2:
        raise reader.error(
            f"found {amount(len(reader.scope), 'variable')} of {reader.keyword}, expected an even number"
        )
    return len(reader.scope) // 2


def _sides(reader: GlobalReader, value: int, left: set[int]) -> list[list[int]]:
    """Weights that count a value: of the variables at some places, less that of the others."""
    counts = reader.weights({value})
    return [own if place in left else [-weight for weight in own] for place, own in enumerate(counts)]


def same_soft(reader: GlobalReader) -> None:
    """``ssame``: two lists of variables by their numbers, priced by those that have to change."""
    cost = reader.cost()
    lengths = [reader.count("a number of variables") for _ in range(2)]
    if lengths[0] != lengths[1]:
        raise reader.error(f"found lists of {lengths[0]} and {lengths[1]} variables, expected two of the same length")
    listed = [reader.integer("a variable") for _ in range(sum(lengths))]
    if sorted(listed) != sorted(reader.scope):
        raise reader.error(f"found the variables {listed}, expected each of the scope {reader.scope} once")
    left = {reader.scope.index(v) for v in listed[: lengths[0]]}
    for value in reader.all_values():
        reader.violated(_sides(reader, value, left), lambda more: max(0, more), "lin", cost)


def overlap(reader: GlobalReader) -> None:
    """``woverlap``: at how many places both halves of the scope have the same value, other than 0."""
    metric, cost = reader.metric(*NETWORK), reader.cost()
    gap = reader.comparator(COMPARATORS)
    right, half = reader.integer("a right-hand side"), _half(reader)
    paired = tuple(v for pair in zip(reader.scope[:half], reader.scope[half:], strict=True) for v in pair)

    def step(place: int, state: State, value: int) -> tuple[State, Cost]:
        count, first = state
        if place % 2 == 0:
            return (count, value), 0
        return (count + (value == first != 0), 0), 0

    reader.whole.walk(reader.title, paired, (0, 0), step, lambda state: price(gap(state[0] - right), metric, cost))


def diverse(reader: GlobalReader) -> None:
    """``wdiverse`` and its other encodings: at least so many variables have another value than listed."""
    distance = reader.integer("a distance", 0)
    listed = [reader.integer("a value") for _ in reader.scope]
    weights = [[int(value != own) for value in range(size)] for own, size in zip(listed, reader.sizes, strict=True)]
    reader.between(weights, distance, math.inf)


COMPARATORS: dict[str, Callable[[int], int]] = {
    "==": abs,
    "<=": lambda more: max(0, more),
    "<": lambda more: max(0, more + 1),
    ">=": lambda more: max(0, -more),
    ">": lambda more: max(0, 1 - more),
    "!=": lambda more: int(more == 0),
}
"""Distance of a sum from its bound, by its excess over the right-hand side."""


RELATIONS: dict[str, Callable[[int, int], int]] = {
    ">=": lambda x, y: y - x,
    ">": lambda x, y: y + 1 - x,
    "<=": lambda x, y: x - y,
    "<": lambda x, y: x + 1 - y,
    "=": lambda x, y: abs(y - x),
}
"""Distance of two numbers from a relation; at most 0 if it holds."""


def total(reader: GlobalReader) -> None:
    """``wsum``: the sum of all values, against a number; ``wvarsum``: that of all but the last, against the last."""
    metric, cost, gap = reader.metric(*NETWORK), reader.cost(), reader.comparator(COMPARATORS)
    weights, right = [list(range(size)) for size in reader.sizes], 0
    if reader.keyword == "wvarsum":
        weights[-1] = [-value for value in weights[-1]]
    else:
        right = reader.integer("a right-hand side")
    reader.violated(weights, lambda found: gap(found - right), metric, cost)


def clique(reader: GlobalReader) -> None:
    """``clique``: at most one of the variables has one of its values."""
    if reader.integer("how many variables may have their values") != 1:
        raise reader.unsupported("is supported with 1 only, as in toulbar2, which reads any number as 1")
    _at_most_one(reader, [reader.values() for _ in reader.scope])


def _at_most_one(reader: GlobalReader, chosen: list[set[int]]) -> None:
    rows = zip(chosen, reader.sizes, strict=True)
    reader.between([[int(value in own) for value in range(size)] for own, size in rows], -math.inf, 1)


def knapsack(reader: GlobalReader) -> None:
    """``knapsack``: weights of variables that count where a variable is 1, and nowhere else."""
    capacity = reader.integer("a capacity")
    given = [reader.integer("a weight") for _ in reader.scope]
    rows = zip(given, reader.sizes, strict=True)
    reader.at_least([[own if value == 1 else 0 for value in range(size)] for own, size in rows], capacity)


def knapsack_of_values(reader: GlobalReader) -> None:
    """``knapsackp``: weights of values, and ``knapsackc``: besides, values of which at most one is taken."""
    capacity = reader.integer("a capacity")
    weights = [[0] * size for size in reader.sizes]
    for own in weights:
        for _ in range(reader.count("a number of weighted values")):
            _add_weight(reader, own)
    reader.at_least(weights, capacity)
    if reader.keyword != "knapsackc":
        return
    if max(reader.sizes) > 2:
        raise reader.unsupported("is supported over variables of two values only")
    for _ in range(reader.count("a number of sets")):
        chosen: list[set[int]] = [set() for _ in reader.scope]
        for _ in range(reader.count("a number of variables")):
            chosen[reader.place()].add(reader.integer("a value"))
        _at_most_one(reader, chosen)


def _add_weight(reader: GlobalReader, own: list[int]) -> None:
    """Weights of a value add up; that of a value that the variable does not have is of no effect."""
    value, weight = reader.integer("a value", 0), reader.integer("a weight")
    if value < len(own):
        own[value] += weight


def knapsack_by_triplets(reader: GlobalReader) -> None:
    """``knapsackv``: variables, values and weights."""
    capacity = reader.integer("a capacity")
    weights = [[0] * size for size in reader.sizes]
    for _ in range(reader.integer("a number of weights", 0)):
        _add_weight(reader, weights[reader.place()])
    reader.at_least(weights, capacity)


def relation(reader: GlobalReader) -> None:
    """Relations of two variables, which cost how far they are from holding, up to a largest cost that is allowed."""
    constant, most = reader.integer("an integer"), reader.integer("the largest cost")
    gap = RELATIONS[reader.keyword]

    def cost(x: int, y: int) -> Cost:
        off = gap(x, y + constant)
        return max(0, off) * reader.unit if off <= most else math.inf

    _pair(reader, cost)


def disjunction(reader: GlobalReader) -> None:
    """``disj``: one of two after the other, or a cost."""
    one, other, cost = reader.integer("an integer"), reader.integer("an integer"), reader.cost()
    _pair(reader, lambda x, y: 0 if x >= y + other or y >= x + one else cost)


def disjunction_special(reader: GlobalReader) -> None:
    """``sdisj``: one of two after the other, unless one has its last value, which costs something."""
    one, other, last_x, last_y = (reader.integer("an integer") for _ in range(4))
    cost_x, cost_y = reader.cost(), reader.cost()

    def cost(x: int, y: int) -> Cost:
        if x > last_x or y > last_y or (x < last_x and y < last_y and x < y + other and y < x + one):
            return math.inf
        return (cost_x if x == last_x else 0) + (cost_y if y == last_y else 0)

    _pair(reader, cost)


def _pair(reader: GlobalReader, cost: Callable[[int, int], Cost]) -> None:
    if len(reader.scope) != 2:
        raise reader.error(f"found {amount(len(reader.scope), 'variable')}, expected two for {reader.keyword}")
    rows = list(itertools.product(*map(range, reader.sizes)))
    reader.whole.costs(reader.scope, rows, [cost(*row) for row in rows], 0)


MOST_SLOW_STEPS = 2**16
"""Steps of a walk whose states are charts or trees, which take some 10 microseconds each."""


def _run(
    reader: GlobalReader,
    starts: Mapping[int, Cost],
    ends: Mapping[int, Cost],
    transitions: Mapping[tuple[int, int, int], Cost],
    changes: Cost | None = None,
) -> None:
    """Add the least cost of a weighted automaton's runs on the values.

    starts, ends : costs by state. transitions : costs of (state, value, next state).
    changes : price of reading another value; None: only what is there.
    """
    by_value: dict[int, list[tuple[int, int, Cost]]] = {}
    for (state, value, following), cost in transitions.items():
        by_value.setdefault(value, []).append((state, following, cost))
    whole, top = reader.whole, reader.whole.top

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
        return _less_the_least(after)

    def end(state: State) -> Cost:
        return min((cost + ends[q] for q, cost in dict(state).items() if q in ends), default=math.inf)

    begin, least = _less_the_least(starts)
    if not starts:
        whole.forbid(reader.scope)
        return
    if least:
        whole.costs((), [], [], least)
    reader.walk(begin, step, end)


def _less_the_least(costs: Mapping[int, Cost]) -> tuple[State, Cost]:
    """Costs by state less the least of them, and that one; infinite without any."""
    least = min(costs.values(), default=math.inf)
    return frozenset((q, cost - least) for q, cost in costs.items()), least


def regular(reader: GlobalReader) -> None:
    """``sregular`` and ``sregulardp``: values that have to change until an automaton takes them."""
    reader.metric("var")
    cost = reader.cost()
    states = reader.count("a number of states")
    starts, ends = ({_state(reader, states): 0 for _ in range(_states(reader, states))} for _ in range(2))
    moves = {
        (_state(reader, states), reader.integer("a value"), _state(reader, states)): 0
        for _ in range(reader.count("a number of transitions"))
    }
    _run(reader, starts, ends, moves, None if cost == math.inf else cost)


def regular_weighted(reader: GlobalReader) -> None:
    """``wregular``: weights of the first and the last state and of moves; without first states any is one."""
    states, low = reader.count("a number of states"), reader.least_cost
    starts, ends = (
        {_state(reader, states): reader.cost(low) for _ in range(_states(reader, states))} for _ in range(2)
    )
    moves = {_move_of_table(reader, states): reader.cost(low) for _ in range(reader.count("a number of transitions"))}
    given = starts or dict.fromkeys(range(states), 0)
    _run(reader, {q: cost for q, cost in given.items() if cost != math.inf}, ends, moves)


def _move_of_table(reader: GlobalReader, states: int) -> tuple[int, int, int]:
    """State, value and next state of a move of ``wregular``.

    toulbar2 keeps moves in one array by state, value and next state, and does not compare the next state with the
    number of states: one that is too large is an entry of the next value, or of the next state's first. Files of its
    own, with a known optimum, have such moves.
    """
    state, value = _state(reader, states), reader.integer("a value")
    if len(set(reader.sizes)) != 1:
        return state, value, _state(reader, states)
    size = reader.sizes[0]
    if not 0 <= value < size:
        return state, value, reader.count("a state")  # nobody reads such a value
    place = (state * size + value) * states
    before, following = divmod(place + reader.integer("a state", 0, states * states * size - 1 - place), states)
    return *divmod(before, size), following


def _states(reader: GlobalReader, states: int) -> int:
    return reader.integer("a number of states", 0, states)


def _state(reader: GlobalReader, states: int) -> int:
    return reader.integer("a state", 0, states - 1)


@dataclass
class Grammar:
    """A weighted grammar in Chomsky's normal form: costs of (symbol, value), and of (symbol, left, right)."""

    leaves: dict[tuple[int, int], Cost] = field(default_factory=dict)
    rules: dict[tuple[int, int, int], Cost] = field(default_factory=dict)

    def allow_changes(self, symbols: int, values: range, cost: Cost) -> None:
        """Let a value be read as another for a cost, the way toulbar2 does it.

        In each rule, a symbol that has values of its own is exchanged for any other one that has. symbols : the number
        of them; values that no symbol has get a new one.
        """
        new = [value for value in values if all(own != value for _, own in self.leaves)]
        self.leaves |= {(symbols + k, value): 0 for k, value in enumerate(new)}
        own = {symbol for symbol, _ in self.leaves}
        for side in (1, 2):
            for rule, weight in list(self.rules.items()):
                for other in own - {rule[side]} if rule[side] in own else ():
                    changed = (rule[0], other, rule[2]) if side == 1 else (rule[0], rule[1], other)
                    self.rules[changed] = min(weight + cost, self.rules.get(changed, math.inf))

    def step(self, place: int, chart: State, value: int) -> tuple[State, Cost]:
        """Add a value to a chart: of each end, of each start, the symbols with what they cost there."""
        column: list[dict[int, Cost]] = [{} for _ in range(place + 1)]
        column[place] = {symbol: cost for (symbol, own), cost in self.leaves.items() if own == value}
        for start in reversed(range(place)):
            for (symbol, left, right), weight in self.rules.items():
                for middle in range(start, place):
                    first = dict(chart[middle][start]).get(left, math.inf)
                    cost = first + column[middle + 1].get(right, math.inf) + weight
                    if cost < column[start].get(symbol, math.inf):
                        column[start][symbol] = cost
        return (*chart, tuple(tuple(sorted(own.items())) for own in column)), 0


def grammar(reader: GlobalReader) -> None:
    """``sgrammar`` and ``sgrammardp``: values that have to change, or a derivation of least weight."""
    metric, cost = reader.metric("var", "weight"), reader.cost()
    symbols = reader.integer("a number of symbols", 1, MOST_ITEMS)
    reader.count("a number of values")
    start, found = _symbol(reader, symbols), Grammar()
    for _ in range(reader.count("a number of rules")):
        kind = reader.integer("the kind of a rule", 0, 3)
        left = _symbol(reader, symbols)
        if kind % 2 == 0:
            leaf = left, reader.integer("a value")
            found.leaves[leaf] = min(reader.cost() if kind == 2 else 0, found.leaves.get(leaf, math.inf))
        else:
            rule = left, _symbol(reader, symbols), _symbol(reader, symbols)
            found.rules[rule] = min(reader.cost() if kind == 3 else 0, found.rules.get(rule, math.inf))
    if metric == "var" and cost != math.inf:
        found.allow_changes(symbols, reader.all_values(), cost)
    reader.walk((), found.step, lambda chart: dict(chart[-1][0]).get(start, math.inf), MOST_SLOW_STEPS)


def _symbol(reader: GlobalReader, symbols: int) -> int:
    return reader.integer("a symbol", 0, symbols - 1)


def largest(reader: GlobalReader) -> None:
    """``max`` and ``smaxdp``: the largest of the values' weights."""
    default = reader.cost()
    weights: dict[tuple[int, int], Cost] = {}
    for _ in range(reader.integer("a number of weights", 0)):
        place, value = reader.place(), reader.integer("a value")
        weights[place, value] = reader.cost()

    def step(place: int, most: State, value: int) -> tuple[State, Cost]:
        found = max(most, weights.get((place, value), default))
        return found, math.inf if found == math.inf else 0

    reader.walk(0, step, lambda most: most)


def spanning_tree(reader: GlobalReader) -> None:
    """``MST`` and ``smstdp``: each variable names its parent, the root itself.

    A walk over which variable each is below of, among those without a parent so far; -1 where it is the root.
    """
    places = {v: place for place, v in enumerate(reader.scope)}
    for v, size in zip(reader.scope, reader.sizes, strict=True):
        if strange := set(range(size)) - places.keys():
            raise reader.error(f"found {min(strange)} as a value of variable {v}, expected variables of the scope only")

    def step(place: int, tops: State, value: int) -> tuple[State, Cost]:
        parent = places[value]
        top = -1 if parent == place else tops[parent]
        if top == place or (parent == place and -1 in tops):
            return tops, math.inf
        return tuple(top if own == place else own for own in tops), 0

    reader.walk(tuple(range(len(places))), step, lambda tops: 0, MOST_SLOW_STEPS)
