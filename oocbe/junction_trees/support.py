"""The cliques of an elimination order, and their rows: assignments that extend to a full assignment of nonzero weight.

Upwards, each clique joins its own factors, the constraints and supports of others that it covers, and its children's
separator rows. Downwards, a semijoin removes separator rows without a parent row. Cliques form an acyclic join, so
after one pass in each direction every remaining row is part of a full assignment (Yannakakis 1981).

The clique of a bucket is its variable and its separator. The buckets of an order are the nodes of a tree: the parent of
a bucket is the bucket of the first variable of its separator to be eliminated. A bucket that is a subset of one of its
children is merged into that child, so that maximal cliques remain (Lauritzen and Spiegelhalter 1988; Shafer and
Shenoy 1990).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import ResourceError
from oocbe.junction_trees.kernels.cpu.clique_rows import COMPLETE, FIRST_ROWS, keep_groups, trie_children, walk
from oocbe.junction_trees.weights import Weights, WeightTable, value_kind
from oocbe.runtime.deadline import check_deadline, current_flag, looked


@dataclass(frozen=True)
class Clique:
    """A node of a junction tree.

    variables : indices, the one eliminated last first, so that those of the separator come first.
    separator : how many of them the clique shares with its parent; 0 for a root.
    parent : number of the clique above, which is larger than its own; None for a root.
    """

    variables: tuple[int, ...]
    separator: int
    parent: int | None

    @property
    def shared(self) -> tuple[int, ...]:
        """Variables of the separator."""
        return self.variables[: self.separator]

    @property
    def own(self) -> tuple[int, ...]:
        """Variables that are not in the separator."""
        return self.variables[self.separator :]


def children_of(cliques: Sequence[Clique]) -> tuple[tuple[int, ...], ...]:
    """The children of each clique, ascending."""
    found: list[list[int]] = [[] for _ in cliques]
    for number, clique in enumerate(cliques):
        if clique.parent is not None:
            found[clique.parent].append(number)
    return tuple(map(tuple, found))


def cliques_of(order: Sequence[int], separators: Sequence[Sequence[int]], merge: bool = True) -> tuple[Clique, ...]:
    """The cliques of an elimination order, children before their parents.

    order : variables as they are eliminated. separators : of each bucket, by position in the order.
    merge : whether buckets within one below them are merged into it; else there is a clique for each variable.
    """
    position = {v: place for place, v in enumerate(order)}
    members = [{v, *separator} for v, separator in zip(order, separators, strict=True)]
    above = [min((position[u] for u in separator), default=None) for separator in separators]
    shared = [len(separator) for separator in separators]
    merged_into = list(range(len(order)))

    def survivor(bucket: int) -> int:
        while merged_into[bucket] != bucket:
            bucket = merged_into[bucket]
        return bucket

    for bucket in looked(range(len(order)) if merge else ()):
        own = survivor(bucket)
        parent = above[own]
        if parent is not None and merged_into[parent] == parent and shared[own] == len(members[parent]):
            merged_into[parent] = own
            above[own], shared[own] = above[parent], shared[parent]

    # A clique takes the position of the last of its merged buckets; else a child could follow its parent.
    place = {}
    for bucket in looked(range(len(order))):
        place[survivor(bucket)] = bucket
    kept = sorted(place, key=place.__getitem__)
    number = {bucket: i for i, bucket in enumerate(kept)}
    found = []
    for bucket in looked(kept):
        parent = above[bucket]
        found.append(
            Clique(
                tuple(sorted(members[bucket], key=position.__getitem__, reverse=True)),
                shared[bucket],
                None if parent is None else number[survivor(parent)],
            )
        )
    return tuple(found)


@dataclass(eq=False)
class CliqueRows:
    """The rows of a clique, sorted, the clique's first variable most significant.

    values : (variables, rows), value indices.
    groups : int64 (separator's rows + 1,), where the rows of each row of the separator begin.
    numbers : by child, int32 (rows,): for each row, the matching row of the child's separator.
    inputs : by input of the clique, int32 (rows,): for each row, the matching row of the input.
    weights : float64 (rows,), product of the clique's own factors, or sum of their logarithms.
    """

    values: NDArray[Any]
    groups: NDArray[np.int64]
    numbers: dict[int, NDArray[np.int32]]
    inputs: dict[int, NDArray[np.int32]]
    weights: NDArray[np.float64]

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.weights)

    @property
    def separator_rows(self) -> int:
        """Rows of the separator."""
        return len(self.groups) - 1


@dataclass(frozen=True)
class Trie:
    """A table as a trie for the join: children in one array, with their start by level."""

    scope: tuple[int, ...]
    children: NDArray[np.int32]
    starts: tuple[int, ...]

    @classmethod
    def of(cls, scope: tuple[int, ...], values: NDArray[Any] | None, sizes: Sequence[int]) -> Trie:
        """The trie of rows, (variables, rows), sorted; None: all assignments."""
        if values is None:
            return cls(scope, np.empty(0, dtype=np.int32), (COMPLETE,) * len(scope))
        children, starts = trie_children(values, np.array([sizes[v] for v in scope], dtype=np.int64))
        return cls(scope, children, tuple(starts[:-1].tolist()))


ROW_BYTES = 96
"""Estimated bytes per row: its values, weight and maps, and a sweep's data."""

CliqueDone = Callable[[int, int, Clique, int], None]
"""Progress callback for each finished clique: its number from 1, number of cliques, clique, number of rows."""


def clique_rows(
    sizes: Sequence[int],
    cliques: Sequence[Clique],
    weights: Weights,
    memory: int,
    name: str,
    clique_done: CliqueDone | None = None,
) -> list[CliqueRows]:
    """Rows of all cliques, none if every weight is 0; ResourceError: with the join's tries beyond ``memory``."""
    assigned, covered = places_of(cliques, weights.tables)
    tries: dict[int, Trie] = {}
    children = children_of(cliques)
    found: list[CliqueRows] = []
    kind = value_kind(sizes)
    left = memory
    too_large = (
        f"{name}: the cliques of this order have more rows than memory has room for, {memory:,} bytes; allow more "
        "memory, find a better order (order_seconds), or observe variables before the tree is made"
    )
    if ROW_BYTES * certain_rows(sizes, cliques, weights.tables, assigned, covered) > memory:
        raise ResourceError(too_large)
    for number, clique in looked(enumerate(cliques)):
        own = [weights.tables[t] for t in assigned[number]]
        wide = [weights.tables[t] for t in {*assigned[number], *covered[number]} if t not in tries]
        left -= sum(trie_bytes(t.scope, t.values.shape[1], sizes) for t in wide if t.values is not None)
        below = [(cliques[c].shared, found[c]) for c in children[number]]
        if left - sum(trie_bytes(scope, rows.separator_rows, sizes) for scope, rows in below) < 0:
            raise ResourceError(too_large)
        for t in (*assigned[number], *covered[number]):
            if t not in tries:
                tries[t] = Trie.of(weights.tables[t].scope, weights.tables[t].values, sizes)
        joined = [tries[t] for t in (*assigned[number], *covered[number])]
        first = len(joined)
        joined += [Trie.of(scope, _separator_values(scope, rows, sizes), sizes) for scope, rows in below]
        listed = [i for i, table in enumerate(own) if table.weights is not None]
        entered = {table.input: i for i, table in enumerate(own) if table.input is not None}
        wanted = [*listed, *entered.values(), *range(first, len(joined))]
        row_bytes = len(clique.variables) * kind.itemsize + 4 * len(wanted) + 16
        # While a join grows its arrays, rows are in the old arrays and in new ones of twice the length.
        most_rows = left // max(ROW_BYTES, 3 * row_bytes)
        values, numbers, groups, finished = CliqueJoin(clique, joined, wanted, sizes, kind).rows(most_rows)
        if not finished:
            raise ResourceError(too_large)
        left -= values.shape[1] * max(ROW_BYTES, row_bytes)
        product = product_of([own[i] for i in listed], numbers[: len(listed)], values.shape[1], weights.is_log)
        rest = numbers[len(listed) :]
        maps = dict(zip(children[number], rest[len(entered) :], strict=True))
        found.append(CliqueRows(values, groups, maps, dict(zip(entered, rest, strict=False)), product))
        if clique_done is not None:
            clique_done(number + 1, len(cliques), clique, values.shape[1])
    check_deadline()
    _semi_join(cliques, found)
    return found


def places_of(cliques: Sequence[Clique], tables: Sequence[WeightTable]) -> tuple[list[list[int]], list[list[int]]]:
    """By clique, its own tables, and other tables with zeros that it covers and none of its children does.

    The separator rows of a child already reflect the tables that the child covers.
    """
    home = {v: number for number, clique in enumerate(cliques) for v in clique.own}
    having: dict[int, set[int]] = {v: set() for v in home}
    for number, clique in enumerate(looked(cliques)):
        for v in clique.variables:
            having[v].add(number)
    assigned: list[list[int]] = [[] for _ in cliques]
    covered: list[list[int]] = [[] for _ in cliques]
    for t, table in enumerate(looked(tables)):
        own = home[table.scope[-1]]
        assigned[own].append(t)
        if table.values is not None:
            covering = set.intersection(*(having[v] for v in table.scope))
            for number in covering - {own} - {cliques[c].parent for c in covering}:
                covered[number].append(t)
    return assigned, covered


def certain_rows(
    sizes: Sequence[int],
    cliques: Sequence[Clique],
    tables: Sequence[WeightTable],
    assigned: Sequence[Sequence[int]],
    covered: Sequence[Sequence[int]],
) -> int:
    """Number of rows of the cliques without zeros in their subtrees, known in advance."""
    has_zeros, rows = [False] * len(cliques), 0
    for number, clique in enumerate(looked(cliques)):
        has_zeros[number] |= any(tables[t].values is not None for t in (*assigned[number], *covered[number]))
        if not has_zeros[number]:
            rows += math.prod(sizes[v] for v in clique.variables)
        elif clique.parent is not None:
            has_zeros[clique.parent] = True
    return rows


def _separator_values(scope: Sequence[int], rows: CliqueRows, sizes: Sequence[int]) -> NDArray[Any] | None:
    if rows.separator_rows == math.prod(sizes[v] for v in scope):
        return None
    return np.ascontiguousarray(rows.values[: len(scope), rows.groups[:-1]])


def trie_bytes(scope: Sequence[int], rows: int, sizes: Sequence[int]) -> int:
    """Upper bound of a trie's bytes: at each level, every node has a child for each value."""
    nodes, cells = 1, 0
    for v in scope:
        cells += nodes * sizes[v]
        nodes = min(rows, nodes * sizes[v])
    return 4 * cells


class CliqueJoin:
    """The join of a clique's tables: :func:`oocbe.junction_trees.kernels.cpu.clique_rows.walk` with its arguments.

    tries : of the tables. listed : those whose row numbers are wanted. kind : dtype of value indices.
    sizes : int64 (variables,), of the clique. step_start, step_children, children : arguments of the walk; the steps of
        the first table come first at each variable, and its children come first.
    """

    def __init__(
        self, clique: Clique, tries: Sequence[Trie], listed: Sequence[int], sizes: Sequence[int], kind: np.dtype[Any]
    ) -> None:
        steps: list[list[tuple[int, int, int]]] = [[] for _ in clique.variables]
        level_of = {v: level for level, v in enumerate(clique.variables)}
        begin = 0
        for t, trie in enumerate(tries):
            for depth, (v, start) in enumerate(zip(trie.scope, trie.starts, strict=True)):
                steps[level_of[v]].append((t, depth, COMPLETE if start == COMPLETE else begin + start))
            begin += len(trie.children)
        flat = np.array([s for own in steps for s in own], dtype=np.int64).reshape(-1, 3)
        self._tables, self._depths, self.step_children = map(np.ascontiguousarray, flat.T)
        self.sizes = np.array([sizes[v] for v in clique.variables], dtype=np.int64)
        self.step_start = np.cumsum([0, *map(len, steps)]).astype(np.int64)
        self.children = np.concatenate([np.empty(0, dtype=np.int32), *(t.children for t in tries)])
        self._table_depths = np.array([len(t.scope) for t in tries], dtype=np.int64)
        self._separator, self._listed = clique.separator, np.array(listed, dtype=np.int64)
        self._kind = np.empty(0, dtype=kind)

    def rows(self, most: int) -> tuple[NDArray[Any], NDArray[np.int32], NDArray[np.int64], bool]:
        """Values, numbers and groups of all rows, and True; none and False if too many; TimeLimitError."""
        steps = (self.step_start, self._tables, self._depths, self.step_children, self.children, self._table_depths)
        found: tuple[NDArray[Any], NDArray[np.int32], NDArray[np.int64], bool]
        found = walk(self.sizes, self._separator, *steps, self._listed, self._kind, FIRST_ROWS, most, current_flag())
        check_deadline()
        return found


def product_of(
    tables: Sequence[WeightTable], numbers: NDArray[np.int32], rows: int, is_log: bool
) -> NDArray[np.float64]:
    """Combined weights of a clique's factors, row by row."""
    product, combine = np.full(rows, 0.0 if is_log else 1.0), np.add if is_log else np.multiply
    for table, rows_of in zip(tables, numbers, strict=True):
        assert table.weights is not None
        combine(product, table.weights[rows_of], out=product)
    return product


def _semi_join(cliques: Sequence[Clique], found: list[CliqueRows]) -> None:
    """Keep the rows of each clique with a matching row of its parent; parents are finished first."""
    for number in reversed(range(len(cliques))):
        parent = cliques[number].parent
        if parent is None:
            continue
        check_deadline()
        rows, above = found[number], found[parent]
        alive = np.zeros(rows.separator_rows, dtype=bool)
        alive[above.numbers[number]] = True
        if alive.all():
            continue
        renumbered = (np.cumsum(alive) - 1).astype(np.int32)
        above.numbers[number] = renumbered[above.numbers[number]]
        lengths = np.diff(rows.groups)[alive]
        groups = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)

        def kept(lines: NDArray[Any], all_groups: Any = rows.groups, alive: Any = alive, groups: Any = groups) -> Any:
            return keep_groups(lines, all_groups, alive, groups[-1], current_flag())

        found[number] = CliqueRows(
            kept(rows.values),
            groups,
            {child: kept(own[None])[0] for child, own in rows.numbers.items()},
            {child: kept(own[None])[0] for child, own in rows.inputs.items()},
            kept(rows.weights[None])[0],
        )
        check_deadline()
