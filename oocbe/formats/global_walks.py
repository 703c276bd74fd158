"""Global cost functions that are walks of their own: automata, grammars, spanning trees, the largest of weights."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from oocbe.formats.global_costs import MOST_ITEMS, Cost, GlobalReader, State

MOST_SLOW_STEPS = 2**16
"""Steps of a walk whose states are charts or trees, which take some 10 microseconds each."""


@dataclass(frozen=True)
class Automaton:
    """A weighted automaton: costs by state of ``starts`` and ``ends``, and of (state, value, next state)."""

    starts: Mapping[int, Cost]
    ends: Mapping[int, Cost]
    transitions: Mapping[tuple[int, int, int], Cost]

    def weigh(self, reader: GlobalReader, changes: Cost | None) -> None:
        """Add a run's least cost on the values; ``changes``: price of other values; None: only what is read."""
        by_value: dict[int, list[tuple[int, int, Cost]]] = {}
        for (state, value, following), cost in self.transitions.items():
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
            if not after:
                return frozenset(), math.inf
            least = min(after.values())
            return frozenset((q, cost - least) for q, cost in after.items()), least

        def end(state: State) -> Cost:
            found = [cost + self.ends[q] for q, cost in dict(state).items() if q in self.ends]
            return min(found, default=math.inf)

        if not self.starts:
            whole.forbid(reader.scope)
            return
        least = min(self.starts.values())
        begin = frozenset((q, cost - least) for q, cost in self.starts.items())
        if least:
            whole.costs((), [], [], least)
        reader.walk(begin, step, end)


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
    Automaton(starts, ends, moves).weigh(reader, None if cost == math.inf else cost)


def regular_weighted(reader: GlobalReader) -> None:
    """``wregular``: weights of the first and the last state and of moves; without first states any is one."""
    states, low = reader.count("a number of states"), reader.least_cost
    starts, ends = (
        {_state(reader, states): reader.cost(low) for _ in range(_states(reader, states))} for _ in range(2)
    )
    moves = {_move_of_table(reader, states): reader.cost(low) for _ in range(reader.count("a number of transitions"))}
    given = starts or dict.fromkeys(range(states), 0)
    Automaton({q: cost for q, cost in given.items() if cost != math.inf}, ends, moves).weigh(reader, None)


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

    start: int
    leaves: dict[tuple[int, int], Cost]
    rules: dict[tuple[int, int, int], Cost]

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

    def end(self, chart: State) -> Cost:
        """Cost of the whole walk."""
        found: Cost = dict(chart[-1][0]).get(self.start, math.inf)
        return found


def grammar(reader: GlobalReader) -> None:
    """``sgrammar`` and ``sgrammardp``: values that have to change, or a derivation of least weight."""
    metric, cost = reader.metric("var", "weight"), reader.cost()
    symbols = reader.integer("a number of symbols", 1, MOST_ITEMS)
    reader.count("a number of values")
    found = Grammar(_symbol(reader, symbols), {}, {})
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
    reader.walk((), found.step, found.end, MOST_SLOW_STEPS)


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

    def end(most: State) -> Cost:
        found: Cost = most
        return found

    reader.walk(0, step, end)


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
