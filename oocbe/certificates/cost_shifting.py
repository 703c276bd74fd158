"""Proof by depth-first search with bounds of dual ascent, in cutting planes (docs/proofs.md).

A function over several variables, or the clauses of its scope, have a *state* for each permitted row. For each value of
a variable, the states of the rows with that value add up to the value's literal. These equations are derived once. A
bound is a sum of them. With the constraint that the objective improves, the sum of a node is a constraint that its
*decisions* violate, if the bound suffices: then their clause follows from that one constraint (``rup``). So do the
clauses of values whose reduced cost is too great.

The sum of a node has multiples of the inequalities of its decisions, and of the added clauses of the values that were
removed, so that no value contributes less than 0.
"""

from __future__ import annotations

import itertools
import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oocbe.bounds.bound_tree import NEVER, SCALE, BoundNode, BoundSearch, BoundTree
from oocbe.bounds.forbidden import Row as LinearRow
from oocbe.certificates.cutting_planes import Line
from oocbe.certificates.opb import PseudoBooleanFormula, Row
from oocbe.model.row_numbers import MOST_AXES, distinct_values
from oocbe.runtime.compilation import working_time
from oocbe.runtime.deadline import Deadline, check_deadline, suppressed_limit

MOST_ROWS = 400_000
"""Rows of the functions that take part, at most; functions beyond it contribute no cost."""

LARGEST_SUM = 2**40
"""Costs that add up to this have no search."""

LATER = 2.0
"""Time of searches of lower limits at most, relative to the search before them that did not end."""

NEAR = 100
"""Part of a limit below which a difference of limits is not worth a search."""

FAR = 64
"""Ratio of a limit to the known bound from which the next limit is a sixteenth."""

UNITS = 2**20
"""Units of a cost at most where linear constraints are multiplied; their sums are below ``LARGEST_SUM * UNITS``."""


class State(NamedTuple):
    """A state: its name, and the constraints state -> values (None: it is a literal), values -> state."""

    name: str
    implies: int | None
    implied: int | None


class ScopeCosts(NamedTuple):
    """What one scope contributes: costs with their variables and clauses by row, and clauses by forbidden row."""

    rows: dict[Row, list[tuple[int, str, int]]]
    forbidden: dict[Row, int]


class RemovedValues(NamedTuple):
    """Values that are removed, and the constraint that bounds their sum; None: a literal of the clause is the value."""

    values: list[int]
    line: int | None


class Shifts(NamedTuple):
    """What a search has found, and what took part in it: parts by scope, linear constraints, and clauses of excluded
    values; limit : greatest objective that the tree refutes, infinite for all. scale : units of a cost."""

    limit: float
    scale: int
    parts: dict[Row, ScopeCosts]
    linear: list[int]
    excluded: dict[tuple[int, int], int]
    root: BoundNode
    tree: BoundTree | None


class Effort(NamedTuple):
    """Limits of a search. end : as of :func:`working_time`. memory : bytes of all nodes at most. rows : of the
    functions that take part, at most. latest : as of :func:`time.monotonic`, compilation included."""

    end: float = math.inf
    memory: float = math.inf
    rows: float = MOST_ROWS
    latest: float = math.inf


def shifts_of(
    formula: PseudoBooleanFormula,
    forbidden: list[tuple[Row, dict[Row, int]]],
    most: float,
    effort: Effort,
    cuts: Sequence[Line] = (),
    proven: int = 0,
    first: float = 1.0,
) -> Shifts | None:
    """Search for a proof that no assignment is feasible with an objective of at most ``most``, which may be infinite;
    None where costs are too large, the limit is below all of them, or there is no time for a root.

    forbidden : scopes, and clauses by row. cuts : over literals, which take part as linear constraints do. proven : a
    known lower bound. first : share of the time for a search of the limit; lower limits have the rest.
    """
    limit, weights = (int(most), formula.objective) if most < math.inf else (0, {})
    weights = {name: min(c, limit + 1) for name, c in weights.items()}  # more changes nothing
    if sum(weights.values()) >= LARGEST_SUM or most < 0 or any(not scope for scope, _ in forbidden):
        return None
    known, excluded = _parts_of(formula, forbidden)
    sizes, tables, parts = formula.problem.sizes, list[tuple[Row, NDArray[np.int64]]](), dict[Row, ScopeCosts]()
    for scope in _chosen(known, sizes, min(MOST_ROWS, effort.rows), limit + 1):
        dense, parts[scope] = np.zeros([sizes[v] for v in scope], dtype=np.int64), known[scope]
        for row, own in parts[scope].rows.items():
            dense[row] = sum(weights.get(name, 0) for _, name, _ in own)
        for row in parts[scope].forbidden:
            dense[row] = NEVER
        tables.append((scope, dense))
    costs = np.array([weights.get(f"x{x + 1}", 0) for x in range(formula.first[-1])], dtype=np.int64)
    barred = [formula.first[v] + a for v, a in excluded]
    taken = [LinearRow.of_linear(constraint, n, formula.first) for constraint, n in formula.linear]
    for number, terms, degree in cuts:
        literals, own = np.array(sorted((int(name[1:]) - 1, -c) for name, c in terms.items()), dtype=np.int64).T
        taken.append(LinearRow(literals, own, -degree, "cut", number))
    taken = [*{row.key(): row for row in taken}.values()]
    weight = (limit + 1) * sum(row.largest * (len(row.literals) + 1) for row in taken)
    scale = min(UNITS, LARGEST_SUM * UNITS // weight) if weight else SCALE
    if scale < SCALE or len(taken) * len(costs) > MOST_ROWS:
        taken, scale = [], SCALE
    numbers = [row.number for row in taken]

    def searched(limit: int, end: float) -> Shifts:
        root, tree = BoundSearch(sizes, costs, tables, taken, scale, barred, limit, end, effort.memory).tree()
        return Shifts(limit if most < math.inf else most, scale, parts, numbers, excluded, root, tree)

    best, begin = None, working_time()
    with Deadline(effort.latest - time.monotonic()), suppressed_limit():
        best = searched(limit, begin + first * (effort.end - begin))
        if first == 1 or best.tree is not None or most == math.inf:
            return best
        low, high, now = max(proven, -(-best.root.bound // scale)), limit - 1, working_time()
        last = min(effort.end, now + LATER * (now - begin))
        while low <= high and high - low >= high // NEAR and working_time() < last:
            # Half would mostly be too hard; far above the known bound, magnitudes differ.
            middle = low + (high - low) // (4 if FAR * low > high else 16)
            found = searched(middle, (working_time() + last) / 2)
            if found.tree is None:
                high = middle - 1
            else:
                best, low = found, middle + 1
    return best


def _parts_of(
    formula: PseudoBooleanFormula, forbidden: list[tuple[Row, dict[Row, int]]]
) -> tuple[dict[Row, ScopeCosts], dict[tuple[int, int], int]]:
    """What each scope of several variables contributes, and the clauses of excluded values."""
    excluded = dict[tuple[int, int], int]()
    known: dict[Row, ScopeCosts] = defaultdict(lambda: ScopeCosts({}, {}))
    for table in formula.tables:
        for row, number in table.clauses.items():
            if number is not None:
                own = known[table.scope].rows.setdefault(row, [])
                own.append((table.costs[row], table.names[row], number))
    for scope, clauses in forbidden:
        if len(scope) > 1:
            known[scope].forbidden.update(clauses)
        else:
            excluded.update({(scope[0], row[0]): number for row, number in clauses.items()})
    # A copy without costs or other constraints may have any value that its constraint wants.
    uses = Counter(itertools.chain(*known, (v for v, _ in excluded), *(own.scope for own, _ in formula.linear)))
    uses.update(v for table in formula.tables if len(table.scope) == 1 for v in table.scope)
    idle = {w for w in formula.copies if uses[w] == 1}
    return {scope: part for scope, part in known.items() if part.rows or not idle.intersection(scope)}, excluded


def _chosen(parts: dict[Row, ScopeCosts], sizes: Sequence[int], most: float, cap: int) -> list[Row]:
    """The scopes that take part, of so many rows at most: the smallest first, but if not all do, those of the densest
    variables, of which the ones of the least mean costs (up to a cap) are removed again and again."""
    rows = {s: n for s in parts if len(s) <= MOST_AXES and (n := math.prod(sizes[v] for v in s)) <= most}
    left = order = sorted(rows, key=rows.__getitem__)
    if sum(rows.values()) > most:
        total = {s: sum(min(cap, c) for own in parts[s].rows.values() for c, _, _ in own) for s in left}
        weight = {s: (total[s] + cap * len(parts[s].forbidden)) / rows[s] ** 2 for s in left}
        order, is_left = list[Row](), np.ones(len(left), dtype=bool)
        own = np.concatenate([np.array(scope, dtype=np.int64) for scope in left])
        of = np.repeat(np.arange(len(left)), [len(scope) for scope in left])
        dear = np.array([weight[scope] for scope in left])[of]
        while len(own):
            check_deadline()
            degree, known = np.bincount(own, dear), distinct_values(own)
            out = known[np.argsort(degree[known], kind="stable")[: max(1, len(known) // 20)]]
            is_left[of[np.isin(own, out)]] = False
            order = [*(left[i] for i in distinct_values(of[~is_left[of]])), *order]
            own, of, dear = (array[is_left[of]] for array in (own, of, dear))
    # What does not fit is left out, and not what comes after it.
    return [scope for scope in order if rows[scope] <= most and (most := most - rows[scope]) >= 0]


class ShiftedCosts:
    """Writes a search's proof; ``improving``: number of the constraint that limits the objective, or None."""

    def __init__(
        self,
        formula: PseudoBooleanFormula,
        derive: Callable[[str], int],
        delete: Callable[[list[int]], None],
        state: Callable[[Row, Row], State],
        define: Callable[[list[str]], State],
        found: Shifts,
        improving: int | None,
    ) -> None:
        self._formula, self._derive, self._delete, self._found = formula, derive, delete, found
        self._improving, self._define = improving, define
        self._owner = np.repeat(np.arange(len(formula.problem.sizes)), np.diff(formula.first)).tolist()
        self._states: list[dict[Row, str]] = []
        self._uses: list[tuple[str, str]] = []  # of each use and value: states are at least, at most the literal
        self._ones: list[tuple[str, str]] = []  # of each part: states are at least, at most 1
        self._costs: list[str] = []
        for scope, part in found.parts.items():
            check_deadline()
            self._add_part(scope, part, state)
        pairs = [(formula.first[v], formula.problem.sizes[v]) for scope in found.parts for v in scope]
        self._value = np.concatenate([np.zeros(0, dtype=np.int64), *(np.arange(x, x + n) for x, n in pairs)])
        order = np.argsort(self._value, kind="stable")
        ends = np.searchsorted(self._value[order], np.arange(formula.first[-1] + 1)).tolist()
        owned = ([self._uses[i] for i in order[begin:end]] for begin, end in itertools.pairwise(ends))
        self._wholes = [  # of each value: the sums over all its uses
            tuple(str(derive(f"pol {added(own)}")) for own in zip(*uses, strict=True)) or ("", "") for uses in owned
        ]

    def close(self, chosen: list[str]) -> int:
        """Write the tree; returns the number of the clause of some literals, which the limit depends on."""
        assert self._found.tree is not None
        parts = [] if self._improving is None else [f"{self._improving} {self._found.scale} *", *self._costs]
        return self._close(self._found.tree, [(None, [], parts)], self._barred(), chosen)

    def bound(self) -> int:
        """Write the bound of the root, rounded up to an integer; returns its number."""
        found, root, share = self._found, self._found.root, iter(self._found.root.shares.tolist())
        barred = self._barred()
        text, rest = [*self._costs, *self._moved(root, None), *self._multiplied(root, None)], root.reduced.copy()
        for (values, line), amount in zip(barred, self._amounts(root, barred), strict=True):
            text += [f"{line} {amount} *"] if amount else []
            rest[values] += amount
        for (scope, part), names, least in zip(found.parts.items(), self._states, root.least.tolist(), strict=True):
            own = [[next(share) for _ in range(self._formula.problem.sizes[v])] for v in scope]
            for row, name in names.items():
                cost = found.scale * sum(c for c, _, _ in part.rows.get(row, ())) - least
                cost -= sum(shares[a] for shares, a in zip(own, row, strict=True))
                text += [f"{name} {cost} *"] if cost else []
        text += [f"x{x + 1} {cost} *" for x, cost in enumerate(rest.tolist()) if cost]
        return self._derive(f"pol {added(text)} {found.scale} d")

    def _barred(self) -> list[RemovedValues]:
        excluded = self._found.excluded
        values = [self._formula.first[v] + a for v, a in excluded]
        return [RemovedValues(values, self._derive(f"pol {added(map(str, excluded.values()))}"))] if excluded else []

    def _amounts(self, node: BoundNode, reasons: list[RemovedValues], paid: Sequence[int] = ()) -> list[int]:
        """Multiples of the constraints of removed values, those before at least, so that no value is below 0."""
        least = (0 if line is None else max(0, -int(node.reduced[values].min())) for values, line in reasons)
        return [max(*pair) for pair in itertools.zip_longest(least, paid, fillvalue=0)]

    def _close(
        self,
        tree: BoundTree,
        above: list[tuple[BoundNode | None, list[int], list[str]]],
        reasons: list[RemovedValues],
        chosen: list[str],
    ) -> int:
        """Derive the clause of some literals; above : nodes with the multiples in their sums (paid), and these (text).

        A linear constraint cannot be subtracted: the sum continues the latest one that has no more of any.
        """
        line, used, known = 0, list[int](), above
        for node, values in tree.steps:
            before, paid, text = next(
                own for own in known[::-1] if own[0] is None or bool((own[0].factors <= node.factors).all())
            )
            amounts = self._amounts(node, reasons, paid)
            pairs = zip(reasons, itertools.zip_longest(amounts, paid, fillvalue=0), strict=True)
            more = [f"{reason.line} {a - b} *" for reason, (a, b) in pairs if a > b]
            text = [*text, *self._moved(node, before), *self._multiplied(node, before), *more]
            last, line = line, self._derive(f"pol {added(text)}") if text else 0
            self._delete([last])
            known = [*above, (node, amounts, [str(line)] if line else [])]
            if values:
                clauses = [self._refuted([f"~x{x + 1}", *chosen]) for x in values]
                used.append(self._derive(f"pol {added(map(str, clauses))}"))
                reasons = [*reasons, RemovedValues(values, used[-1])]
                self._delete(clauses)
        if tree.parts:
            made, clauses = self._decision(tree.parts), []
            for child, (literal, reason) in zip(tree.children, made, strict=True):
                own = [*reasons, reason], [*chosen, literal]
                clauses.append(self._close(child, known, *own))
            clause = self._derive(f"pol {added(map(str, clauses))} s")
            used += [*clauses, *(reason.line for _, reason in made if reason.line is not None)]
        else:
            clause = self._refuted(chosen)
        self._delete([*used, line])
        return clause

    def _decision(self, parts: tuple[list[int], ...]) -> list[tuple[str, RemovedValues]]:
        """The decisions without the second part, and without the first: what a clause has instead, and the reason."""
        out = min(parts, key=len)
        v, names = self._owner[out[0]], [f"x{x + 1}" for x in out]
        rest, most = parts[out is parts[0]], self._formula.at_most[v]
        if len(out) == 1:
            made = [(names[0], RemovedValues(out, None)), (f"~{names[0]}", RemovedValues(rest, most))]
        else:
            name, implies, implied = self._define([f"~{x}" for x in names])
            assert implies is not None and implied is not None
            others = "".join(f" x{x + 1} +" for x in range(*self._formula.first[v : v + 2]) if x not in out)
            size = len(out)
            sides = f"{most}{others} {size - 1} * {implies} + {size} d", f"{implied} {most} +"
            without, within = (self._derive(f"pol {side}") for side in sides)
            self._delete([implies, implied])
            made = [(f"~{name}", RemovedValues(out, without)), (name, RemovedValues(rest, within))]
        return made if out is parts[1] else made[::-1]

    def _refuted(self, clause: list[str]) -> int:
        return self._derive(f"rup {''.join(f'1 {x} ' for x in clause)}>= 1 ;")

    def _multiplied(self, node: BoundNode, parent: BoundNode | None) -> list[str]:
        """What a node adds of the linear constraints."""
        more = node.factors if parent is None else node.factors - parent.factors
        return [f"{n} {factor} *" for n, factor in zip(self._found.linear, more.tolist(), strict=True) if factor]

    def _moved(self, node: BoundNode, parent: BoundNode | None) -> list[str]:
        """What a node adds to the sum of its parent; equal changes of all uses of a value are one."""
        sides = zip(self._formula.at_least, self._formula.at_most, strict=True)
        pairs = [*self._wholes, *self._uses, *self._ones, *((str(least), str(most)) for least, most in sides)]
        after = np.concatenate(node[:3])
        change = after if parent is None else after - np.concatenate(parent[:3])
        shares, whole = change[: len(self._value)], np.zeros(len(self._wholes), dtype=np.int64)
        whole[self._value] = shares  # of the last use of each value
        differs = np.bincount(self._value, shares != whole[self._value], len(whole)) > 0
        whole[differs] = 0
        change = np.concatenate([whole, np.where(whole[self._value] == 0, shares, 0), change[len(shares) :]])
        return [f"{pairs[i][int(change[i] < 0)]} {abs(change[i])} *" for i in np.flatnonzero(change).tolist()]

    def _add_part(self, scope: Row, part: ScopeCosts, introduce: Callable[[Row, Row], State]) -> None:
        """Introduce the states of a part, and derive their sums; nothing else is kept."""
        formula, sizes = self._formula, [self._formula.problem.sizes[v] for v in scope]
        rows = [*itertools.product(*map(range, sizes))]
        states = {row: introduce(scope, row) for row in rows if row not in part.forbidden}
        self._states.append({row: state.name for row, state in states.items()})
        used = [n for state in states.values() for n in (state.implies, state.implied) if n is not None]

        def derive(parts: Iterable[object], end: str = "") -> int:
            used.append(self._derive(f"pol {added(map(str, parts))}{end}"))
            return used[-1]

        paid = [
            f"{clause} {states[row].implies} + s {self._found.scale * cost} *"
            for row, own in part.rows.items()
            for cost, _, clause in (own if row in states else ())
        ]
        kept = [derive(paid)] if paid else []
        self._costs += map(str, kept)
        single: list[dict[Row, int]] = []  # by axis and row: the state is at most the literal
        for axis in range(len(scope)):
            others = [scope[i] for i in range(len(scope)) if i != axis]
            rest = {row: zip(others, row[:axis] + row[axis + 1 :], strict=True) for row in states}
            literals = {row: [f"~{formula.literal(*pair)}" for pair in pairs] for row, pairs in rest.items()}
            single.append({row: derive([states[row].implies, *own], " s") for row, own in literals.items()})
        for axis, v in enumerate(scope):
            axes, members = list(range(len(scope))), {row: [row] for row in states}
            least: dict[Row, Any] = {row: states[row].implied if row in states else part.forbidden[row] for row in rows}
            most = dict[Row, int]()
            for i in [*(i for i in axes[::-1] if i != axis), axis]:
                # Rows of the other axes, without axis i: their states are at least what is chosen, and at most 1.
                below = dict[Row, object]()
                for key, own in members.items():
                    end = f" {most[key]} {len(own) - 1} * + {len(own)} d" if len(own) > 1 else ""
                    below[key] = derive([single[i][row] for row in own], end)
                if i == axis:
                    break
                place, u, groups = axes.index(i), scope[i], defaultdict[Row, list[Row]](list)
                for key in least:
                    groups[key[:place] + key[place + 1 :]].append(key)
                    below.setdefault(key, formula.literal(u, key[place]))
                given = {g: [*(least[k] for k in keys), formula.at_least[u]] for g, keys in groups.items()}
                least = {g: derive(numbers, " s") for g, numbers in given.items()}
                most = {g: derive([*(below[k] for k in keys), formula.at_most[u]]) for g, keys in groups.items()}
                members = {g: [row for k in keys for row in members.get(k, ())] for g, keys in groups.items()}
                members = {g: own for g, own in members.items() if own}
                axes.remove(i)
            ends = [(least[a,], below.get((a,), formula.literal(v, a))) for a in range(sizes[axis])]
            if axis == 0:
                above = derive([*(least for least, _ in ends), formula.at_least[v]])
                self._ones.append((str(above), str(derive([*(most for _, most in ends), formula.at_most[v]]))))
                kept += map(int, self._ones[-1])
            self._uses += [(str(least), str(most)) for least, most in ends]
            kept.extend(n for pair in ends for n in pair if isinstance(n, int))
        self._delete(sorted({*used} - {*kept}))


def added(parts: Iterable[str]) -> str:
    """The sum of constraints in reverse Polish notation."""
    first, *rest = parts
    return " ".join([first, *(f"{part} +" for part in rest)])
