"""Join sum, marginalisation, and both in one step without joined rows (Bistaffa et al. 2016, algorithms 4 and 5).

Each is computed in memory or at any size. Both at once make the joined rows, and reduce them, only if these are few and
the groups large (:data:`FEW_JOINED`). In one step out of core both tables are partitioned by the shared variables
that stay, and each part is joined as in memory; the concatenated results are sorted. For one combination of those that
does not fit:

* where the table with fewer rows fits, the other one is partitioned by its own variables, and each part joined with all
  of the small one;
* otherwise both are partitioned by the eliminated variables as well, which gives partial results. These are written to
  scratch and marginalised there. Minima, maxima and exact integers do not depend on where sums are cut; sums of floats
  may differ in their last bits from those in memory, in this case, and on a device where a group has too many rows for
  one step (:func:`oocbe.kernels.cuda.pairs.join_reduce.equal_rows`).

For a marginalisation alone, the table is partitioned by the variables that stay; each part is sorted and reduced in
memory, and the concatenated parts are sorted. A group too large for a piece is reduced block by block: the result of
the blocks before goes in front of the next one, so that values are combined in the order of the operator in memory. A
table sorted by the variables that stay is read once, in any ranges, and groups across their bounds are put together the
same way.

For a join sum alone, both tables are partitioned by their shared variables; each part is joined in memory, its result
handed over in pieces. A group too large for a piece is cut: blocks of the second table's rows are joined with all of
the first one's where these fit, else single rows with block after block, which keeps the order (second table's rows
outermost) and reads no more than a constant times what is written.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from math import inf, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.algebra.inputs import arrange, check_pair, match, taken_from, without_lonely
from oocbe.algebra.out_of_core.context import ExecutionContext, OperationPiece, ResultRows, Step, cost_of, join_cost
from oocbe.algebra.ranges import joined_dtype, reduced_dtype
from oocbe.errors import ResourceError
from oocbe.execution.partition import JoinInput, ScratchFile, parts
from oocbe.execution.sources import Source
from oocbe.kernels.interface import Backend, EliminationPlan, MatchedGroups
from oocbe.model.results.numerals import format_bytes
from oocbe.model.semiring import Semiring
from oocbe.model.settings.machine import check_room
from oocbe.tables.layout import Layout, field_masks, move_plan
from oocbe.tables.residence import to_kernels
from oocbe.tables.table import Table

JOIN_COPIES, JOIN_GROUP_BYTES = 3.5, 48
"""Memory of a part's row: as read, moved, converted and sorted; starts and matches where each row is a group."""


@dataclass(frozen=True)
class Join(Step):
    """A join of two tables.

    shared : the variables that both have, the least significant first. layout, dtype, semiring : of the result: the
        shared variables, the rest of the first table's, the rest of the second one's.
    """

    shared: tuple[str, ...]
    layout: Layout
    dtype: np.dtype[Any]
    semiring: Semiring
    is_sorted = False
    goes_through_device = False

    @classmethod
    def of(cls, tables: Sequence[Any], extents: Sequence[NDArray[Any]]) -> Join:
        """The step for two tables; ``extents`` as for :func:`oocbe.algebra.operators.step_of`."""
        return cls.as_dtype(tables, joined_dtype(extents[0], extents[1], tables[0].semiring))

    @classmethod
    def as_dtype(cls, tables: Sequence[Any], dtype: np.dtype[Any]) -> Join:
        """The step for two tables, with a result of a dtype that holds its values."""
        one, two = (table.layout for table in tables)
        shared, semiring = check_pair(*tables), tables[0].semiring
        own1, own2 = ([name for name in layout.scope if name not in shared] for layout in (one, two))
        sizes = (*one.select((*shared, *own1)).sizes, *two.select(own2).sizes)
        layout = Layout.of((*shared, *own1, *own2), sizes, one, two)
        return cls(shared, layout, dtype, semiring)

    @property
    def common(self) -> tuple[str, ...]:
        """See :class:`Step`."""
        return self.shared

    unit = cut = common

    def dtype_of(self, extents: Sequence[NDArray[Any]]) -> np.dtype[Any]:
        """See :class:`Step`."""
        return joined_dtype(extents[0], extents[1], self.semiring)

    def prepare(
        self, tables: Sequence[Table], kernels: Backend, piece_rows: int | None = None
    ) -> tuple[MatchedGroups, Callable[[MatchedGroups], tuple[NDArray[np.uint64], NDArray[Any]]]]:
        """Bring two tables into the order of their shared variables and find the groups that both have.

        Returns these groups, and a function that gives keys and values of the joined rows of some of them.
        """
        own = [[name for name in table.scope if name not in self.shared] for table in tables]
        first, second = (
            arrange(table, (*self.shared, *names), self.shared, self.dtype, kernels, piece_rows)
            for table, names in zip(without_lonely(tables, self.shared, kernels, piece_rows), own, strict=True)
        )
        words, combination = self.layout.words, self.semiring.combination
        added = kernels.permute(second.keys, move_plan(second.layout, self.layout, own[1]), words, piece_rows)

        def rows(groups: MatchedGroups) -> tuple[NDArray[np.uint64], NDArray[Any]]:
            given = first.keys, first.values, added, second.values
            return kernels.join_rows(*given, groups, words, combination, piece_rows)

        return match(first, second, self.shared, kernels, piece_rows), rows

    def rows(
        self, tables: Iterable[Table], kernels: Backend, piece_rows: int | None = None
    ) -> tuple[NDArray[np.uint64], NDArray[Any]]:
        """See :class:`Step`; the rows are grouped by the shared variables."""
        groups, rows = self.prepare(tuple(tables), kernels, piece_rows)
        return rows(groups)

    def table(self, tables: Sequence[Table], kernels: Backend, piece_rows: int | None = None) -> Table:
        """See :class:`Step`; ResourceError if the joined rows do not fit in memory."""
        groups, rows = self.prepare(tables, kernels, piece_rows)
        needed = int(groups.joined_rows) * (8 * self.layout.words + self.dtype.itemsize)
        try:
            check_room(needed)
            return self.as_table(rows(groups), tables)
        except MemoryError:
            raise ResourceError(
                f"joining {tables[0]!r} and {tables[1]!r} gives {groups.joined_rows:,} rows, "
                f"{format_bytes(needed)}, more than the memory left; eliminate a variable in the same step "
                "(join_maximise), which writes no joined row, or name an output table on disk"
            ) from None

    def inputs(self, sources: Sequence[Source]) -> list[JoinInput]:
        """See :class:`Step`: shared variables lowest."""
        found = []
        for source in sources:
            own = tuple(name for name in source.layout.scope if name not in self.shared)
            cost = join_cost(source, JOIN_COPIES, JOIN_GROUP_BYTES, self.dtype)
            found.append(JoinInput(source, (*self.shared, *own), self.shared, cost))
        return found

    def group_pieces(
        self, inputs: Sequence[JoinInput], context: ExecutionContext, outermost: bool
    ) -> Iterator[OperationPiece]:
        """See :class:`Step`: every row of one source joins every row of the other."""
        first, second = inputs
        rows1 = context.space.rows_of(first.cost, 0.5)
        rows2 = context.space.rows_of(second.cost, 0.5) if first.rows <= rows1 else 1
        for block2 in second.blocks(rows2):
            for block1 in first.blocks(rows1):
                yield OperationPiece(self, (block1, block2), context)

    def work(self, inputs: Sequence[JoinInput], context: ExecutionContext, stream: int) -> Iterator[ResultRows]:
        """See :class:`Step`."""
        kernels = context.kernels
        matched, rows = self.prepare(context.load(inputs, self.semiring, stream), kernels)
        for groups in split_groups(matched, context.joined_rows(self.layout, self.dtype), kernels):
            keys, values = rows(groups)
            yield ResultRows(kernels.download(keys), kernels.download(values))


def split_groups(groups: MatchedGroups, most: int, kernels: Backend) -> Iterator[MatchedGroups]:
    """Matched groups cut into runs of at most ``most`` joined rows each, in the order of the joined rows."""
    counts1, counts2 = kernels.download(groups.counts1), kernels.download(groups.counts2)
    ends = np.cumsum(counts1 * counts2)
    low, done = 0, 0
    while low < len(ends):
        high = int(np.searchsorted(ends, done + most, side="right"))
        if high > low:
            yield _part(groups, slice(low, high))
        else:
            high = low + 1
            group = _part(groups, slice(low, high))
            count1, count2 = int(counts1[low]), int(counts2[low])
            step2 = max(1, most // count1)
            for row2 in range(0, count2, step2):
                for row1 in range(0, count1, count1 if count1 <= most else most):
                    many1 = min(count1 - row1, count1 if count1 <= most else most)
                    yield MatchedGroups(
                        group.starts1 + row1,
                        group.counts1 * 0 + many1,
                        group.starts2 + row2,
                        group.counts2 * 0 + min(step2, count2 - row2),
                    )
        low, done = high, int(ends[high - 1])


def _part(groups: MatchedGroups, chosen: slice) -> MatchedGroups:
    return MatchedGroups(groups.starts1[chosen], groups.counts1[chosen], groups.starts2[chosen], groups.counts2[chosen])


GROUP_COPIES, GROUP_BYTES = 5, 16
"""Memory of a part's row: as read, moved, converted, sorted, and as a result twice where each row is a group."""


def has_duplicates(table: Any) -> bool:
    """Whether a key may occur in a table more than once."""
    return bool(getattr(table, "duplicates", False))


@dataclass(frozen=True)
class MarginalisationStep(Step):
    """A marginalisation of a table.

    layout, dtype, semiring : of the result; the layout has the variables that stay.
    terms : rows that become one, at most.
    in_blocks : whether the source's rows are grouped already, and cut wherever a piece is full: pieces may begin and
        end within a group.
    goes_through_device : False if sums may have more terms than there are combinations of the eliminated variables.
    """

    layout: Layout
    dtype: np.dtype[Any]
    semiring: Semiring
    terms: int = 1
    in_blocks: bool = False
    goes_through_device: bool = True
    joins = False

    @classmethod
    def of(cls, table: Any, gone: Sequence[str], extent: NDArray[Any]) -> MarginalisationStep:
        """The step for a table; ``extent`` as for :func:`oocbe.algebra.operators.step_of`."""
        sizes = [table.layout.sizes[table.layout.place(name)] for name in gone]
        adds_duplicates = has_duplicates(table) and not table.semiring.selects
        terms = max(1, table.rows) if adds_duplicates else min(prod(sizes), max(1, table.rows))
        layout = table.layout.select([name for name in table.scope if name not in gone])
        dtype = reduced_dtype(extent, table.semiring, terms)
        return cls(layout, dtype, table.semiring, terms, goes_through_device=not adds_duplicates)

    @property
    def common(self) -> tuple[str, ...]:
        """See :class:`Step`."""
        return self.layout.scope

    unit = cut = common

    def dtype_of(self, extents: Sequence[NDArray[Any]]) -> np.dtype[Any]:
        """See :class:`Step`."""
        return reduced_dtype(extents[0], self.semiring, self.terms)

    def rows(
        self, tables: Iterable[Table], kernels: Backend, piece_rows: int | None = None
    ) -> tuple[NDArray[np.uint64], NDArray[Any]]:
        """See :class:`Step`; the rows are sorted."""
        (table,) = tables
        rows, starts = self._grouped(table, kernels, piece_rows)
        return self._reduced(rows.keys, rows.values, starts, kernels, piece_rows)

    def _grouped(self, table: Table, kernels: Backend, piece_rows: int | None = None) -> tuple[Table, NDArray[Any]]:
        """The table's rows in order of the variables that stay, and where groups begin."""
        kept = self.layout.scope
        scope = (*kept, *(name for name in table.scope if name not in self.layout))
        rows = arrange(table, scope, () if self.in_blocks else kept, self.dtype, kernels, piece_rows)
        return rows, kernels.group_starts(rows.keys, field_masks(rows.layout, kept), piece_rows)

    def _reduced(
        self, keys: Any, values: Any, starts: Any, kernels: Backend, piece_rows: int | None = None
    ) -> tuple[NDArray[np.uint64], NDArray[Any]]:
        masks = field_masks(self.layout, self.layout.scope)
        return kernels.reduce_groups(keys, values, starts, masks, self.semiring.marginalisation, piece_rows)

    def inputs(self, sources: Sequence[Source]) -> list[JoinInput]:
        """See :class:`Step`: variables that stay lowest."""
        (source,), kept = sources, self.layout.scope
        last = tuple(name for name in source.layout.scope if name not in self.layout)
        cost = cost_of(source, GROUP_COPIES, GROUP_BYTES) + self.dtype.itemsize
        return [JoinInput(source, (*kept, *last), kept, cost)]

    def pieces(
        self, inputs: Sequence[JoinInput], context: ExecutionContext, outermost: bool = True
    ) -> Iterator[OperationPiece]:
        """See :class:`Step`; their results have to be :meth:`closed`."""
        if self.in_blocks or inputs[0].in_order:
            return self.group_pieces(inputs, context, outermost)
        return super().pieces(inputs, context, outermost)

    def group_pieces(
        self, inputs: Sequence[JoinInput], context: ExecutionContext, outermost: bool
    ) -> Iterator[OperationPiece]:
        """Rows that are grouped already, in blocks that may begin and end within a group."""
        (ordered,), grouped = inputs, replace(self, in_blocks=True)
        for block in ordered.blocks(context.space.rows_of(ordered.cost)):
            yield OperationPiece(grouped, [block], context)

    def work(self, inputs: Sequence[JoinInput], context: ExecutionContext, stream: int) -> Iterator[ResultRows]:
        """See :class:`Step`; the groups that are cut open at the ends of the source are raw rows."""
        is_open, kernels = self.in_blocks, context.kernels
        rows, starts = self._grouped(
            to_kernels(context.buffers[stream].load("table", inputs[0].source), kernels), kernels
        )
        masks, groups = field_masks(self.layout, self.layout.scope), len(starts) - 1
        first, last = (1, max(1, groups - 1)) if is_open else (0, groups)

        def raw(low: int, high: int) -> ResultRows:
            keys = kernels.download(rows.keys[: len(masks), low:high]) & masks[:, np.newaxis]
            return ResultRows(np.ascontiguousarray(keys), kernels.download(rows.values[low:high]).copy(), is_open=True)

        # All before the first one is handed over: a second attempt, after memory ran out, may cut elsewhere.
        results = [raw(0, int(starts[1]))] if first else []
        if last > first:
            # The reduction of open groups is wasted: the kernel needs all groups of its rows.
            keys, values = self._reduced(rows.keys, rows.values, starts, kernels)
            closed = np.ascontiguousarray(kernels.download(keys[:, first:last]))
            results.append(ResultRows(closed, kernels.download(values[first:last])))
        if is_open and groups > 1:
            results.append(raw(int(starts[last]), int(starts[-1])))
        yield from results

    def closed(self, results: Iterable[ResultRows], kernels: Backend) -> Generator[ResultRows, None, None]:
        """See :class:`Step`."""
        held: ResultRows | None = None
        for rows in results:
            if held is not None and not (rows.is_open and np.array_equal(rows.keys[:, 0], held.keys[:, 0])):
                yield held
                held = None
            if not rows.is_open:
                yield rows
                continue
            if held is not None:
                rows = ResultRows(
                    np.concatenate((held.keys, rows.keys), axis=1), np.concatenate((held.values, rows.values))
                )
            starts = np.array([0, len(rows.values)], dtype=np.int64)
            keys, values = kernels.upload(rows.keys), kernels.upload(rows.values)
            reduced = self._reduced(keys, values, kernels.upload(starts), kernels)
            held = ResultRows(kernels.download(reduced[0]), kernels.download(reduced[1]))
        if held is not None:
            yield held


COPIES, OUTER_BYTES, INNER_BYTES = 3, 40, 180
"""Memory of a part's row: as read, moved and sorted; where runs and groups begin; for the inner table the columns
and buckets of its group, once for each of two threads that have it at work."""

FEW_JOINED, LARGE_GROUPS = 2, {"cpu": 1 << 12, "cuda": 1 << 6}
"""Joined rows for each row of both tables, at most, that are made and reduced; and rows of a group of the inner table
from which this pays. Such a group leaves the cache of a CPU: the loop without joined rows takes 2 to 16 times as long.
For smaller groups that loop is faster in half of the cases, up to twice. On a device, groups are what is done in
parallel: a single one of 10^6 rows takes 1.6 s in one step, and 3 ms in two."""

JOINED_COPIES = 5
"""Copies of a joined row in the memory of a device."""

DOMAIN_CELLS = 2
"""Cells of an array over one table's domain for each row of both tables, at most, to look values up in it."""


def split_key_word(names: Sequence[str], layout: Layout) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Variables cut into as many as fit in one key word, which the kernel looks up by, and the rest."""
    fitting = 0
    while fitting < len(names) and layout.select(names[: fitting + 1]).words == 1:
        fitting += 1
    return tuple(names[:fitting]), tuple(names[fitting:])


@dataclass(frozen=True)
class PreparedElimination:
    """Two tables ready to be joined with variables eliminated."""

    outer: Table
    inner: Table
    groups: MatchedGroups
    plan: EliminationPlan
    semiring: Semiring
    kernels: Backend
    piece_rows: int | None

    def rows(self, low: int, high: int, groups: MatchedGroups) -> tuple[NDArray[np.uint64], NDArray[Any]]:
        """Result rows from outer rows ``low`` to ``high``, with their groups counted from ``low``."""
        keys, values = self.outer.keys, self.outer.values
        if high - low < len(values):
            keys, values = keys[:, low:high].copy(), values[low:high]
        return self.kernels.join_reduce(
            [(keys, values), (self.inner.keys, self.inner.values)],
            groups,
            self.plan,
            self.semiring.combination,
            self.semiring.marginalisation,
            self.piece_rows,
        )


@dataclass(frozen=True)
class JoinElimination(Step):
    """A join of an outer table, which has more rows, and an inner one that eliminates shared variables.

    own_outer, own_inner, kept, gone : variables of one table alone, and the shared ones that stay, and go; the latter
        fit in one key word.
    layout, dtype, semiring : of the result. terms : joined rows that become one, at most.
    has_duplicates : whether a key may occur in a table more than once.
    """

    own_outer: tuple[str, ...]
    own_inner: tuple[str, ...]
    kept: tuple[str, ...]
    gone: tuple[str, ...]
    layout: Layout
    dtype: np.dtype[Any]
    semiring: Semiring
    terms: int
    has_duplicates: bool

    @classmethod
    def of(cls, tables: Sequence[Any], gone: Sequence[str], extents: Sequence[NDArray[Any]]) -> JoinElimination:
        """The step for an outer and an inner table; ``extents`` as for :func:`oocbe.algebra.operators.step_of`."""
        outer, inner = (table.layout for table in tables)
        shared, semiring = check_pair(*tables), tables[0].semiring
        own_outer, own_inner = (tuple(name for name in layout.scope if name not in shared) for layout in (outer, inner))
        kept = tuple(name for name in shared if name not in gone)
        sizes = (*inner.select(own_inner).sizes, *outer.select((*own_outer, *kept)).sizes)
        layout = Layout.of((*own_inner, *own_outer, *kept), sizes, outer, inner)
        terms = min(prod(outer.select(gone).sizes), max(1, tables[0].rows * tables[1].rows))
        dtype = joined_dtype(extents[0], extents[1], semiring, terms)
        doubled = any(map(has_duplicates, tables))
        return cls(own_outer, own_inner, kept, tuple(gone), layout, dtype, semiring, terms, doubled)

    @property
    def common(self) -> tuple[str, ...]:
        """See :class:`Step`."""
        return self.kept

    @property
    def unit(self) -> tuple[str, ...]:
        """See :class:`Step`."""
        return (*self.own_outer, *self.kept)

    @property
    def cut(self) -> tuple[str, ...]:
        """See :class:`Step`. If no shared variable stays, ranges of the outer table's rows meet the whole inner one."""
        return self.kept or self.own_outer

    def dtype_of(self, extents: Sequence[NDArray[Any]]) -> np.dtype[Any]:
        """See :class:`Step`."""
        return joined_dtype(extents[0], extents[1], self.semiring, self.terms)

    def prepare(self, tables: Iterable[Table], kernels: Backend, piece_rows: int | None = None) -> PreparedElimination:
        """Sort two tables by the variables that stay and find the groups that both have."""
        (outer, inner), plan = self._arranged(tables, kernels, piece_rows, matches=True)
        groups = match(outer, inner, self.kept, kernels, piece_rows)
        return PreparedElimination(outer, inner, groups, plan, self.semiring, kernels, piece_rows)

    def _of_few_joined(
        self, tables: Sequence[Table], kernels: Backend, most: float, piece_rows: int | None = None
    ) -> tuple[NDArray[np.uint64], NDArray[Any]] | None:
        """:meth:`rows` by way of the joined rows; None if these are more than ``most`` or than fit on a device."""
        if kernels.name == "cuda":
            from oocbe.kernels.cuda.transfer.memory import device_room

            most = min(most, device_room() / (JOINED_COPIES * (8 * self.layout.words + self.dtype.itemsize)))
        expected = prod(table.rows for table in tables) / 2.0 ** tables[0].layout.select((*self.kept, *self.gone)).bits
        if expected > most:
            return None
        join = Join.as_dtype(tables, self.dtype)
        groups, rows = join.prepare(tables, kernels, piece_rows)
        if groups.joined_rows > most:
            return None
        return self._reduction.rows([Table(join.layout, *rows(groups), self.semiring)], kernels, piece_rows)

    def _most_joined(self, tables: Sequence[Table], kernels: Backend) -> float:
        """Joined rows that are made and reduced in less time than one step without them takes, in groups of equal size;
        0 if sums of floats depend on their order."""
        # A CPU adds the floats of one key in the outer rows' order: if sorted, that of a step for the joined rows, too.
        has_order = kernels.name != "cuda" and tables[0].is_sorted and not self.has_duplicates
        if not (self.semiring.selects or self.dtype.kind != "f" or has_order):
            return 0
        groups = 2.0 ** tables[0].layout.select(self.kept).bits
        is_large = tables[1].rows >= LARGE_GROUPS[kernels.name] * groups
        few = FEW_JOINED * sum(table.rows for table in tables) if is_large else 0
        if kernels.name != "cuda":
            return few
        from oocbe.kernels.cuda.pairs.join_reduce import STEPS_A_ROW

        outer, inner = (
            min(max(1.0, table.rows / groups), 2.0 ** table.layout.select(own).bits)
            for table, own in zip(tables, (self.own_outer, self.own_inner), strict=True)
        )
        return max(few, (tables[0].rows * inner + tables[1].rows * outer) / STEPS_A_ROW)

    def _of_long_merges(
        self, tables: Sequence[Table], kernels: Backend, equal_rows: float, most: float = inf
    ) -> tuple[NDArray[np.uint64], NDArray[Any]] | None:
        """:meth:`_of_few_joined` if the merges of some large groups take as long as many joined rows, ``equal_rows``;
        else None. Sums of floats are added in another order then."""
        is_long = equal_rows > FEW_JOINED * sum(table.rows for table in tables)
        return self._of_few_joined(tables, kernels, min(most, equal_rows)) if is_long else None

    def _arranged(
        self, tables: Iterable[Table], kernels: Backend, piece_rows: int | None, matches: bool
    ) -> tuple[list[Table], EliminationPlan]:
        """Both tables sorted by the variables that stay. ``matches`` : whether their groups are matched next."""
        found = without_lonely(tuple(tables), (*self.kept, *self.gone), kernels, piece_rows)
        for place, own in enumerate((self.own_outer, self.own_inner)):
            form = self._scope_and_order(found[place], own, kernels, matches)
            found[place] = arrange(found[place], *form, self.dtype, kernels, piece_rows)
        return found, _plan(self, found[0].layout, found[1].layout, kernels.name == "cuda")

    def _scope_and_order(
        self, table: Table, own: tuple[str, ...], kernels: Backend, matches: bool
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Scope of a table's arranged rows, and variables to sort them by, the least significant first.

        Groups of rows are matched where the shared variables have the same places in both tables. Otherwise, a sorted
        table stays as it is, and another one is sorted by adjacent bits. A device sorts long runs by the eliminated
        variables as well: in one sort with the others, where there is one.
        """
        order = (*own, *self.kept)
        is_in_order = table.is_sorted and table.scope[-len(order) :] == order
        scope = (*self.kept, *self.gone, *own) if matches else table.scope if is_in_order else (*self.gone, *order)
        if kernels.name != "cuda" or is_in_order:
            return scope, order
        from oocbe.kernels.cuda.pairs.join_reduce import DENSE_BITS

        return scope, (*self.gone, *order) if table.layout.select(self.gone).bits > DENSE_BITS else order

    def rows(
        self, tables: Iterable[Table], kernels: Backend, piece_rows: int | None = None
    ) -> tuple[NDArray[np.uint64], NDArray[Any]]:
        """See :class:`Step`; the rows are sorted."""
        tables = list(tables)
        if kernels.name != "cuda":
            if found := self._of_few_joined(tables, kernels, self._most_joined(tables, kernels), piece_rows):
                return found
            join = self.prepare(taken_from(tables), kernels, piece_rows)
            return join.rows(0, len(join.outer.values), join.groups)
        is_small = 1 << tables[0 if self.own_inner else 1].layout.bits <= DOMAIN_CELLS * sum(t.rows for t in tables)
        if is_small and not (self.own_outer and self.own_inner) and not self.has_duplicates:
            part, other = tables if self.own_inner else tables[::-1]
            return self._looked_up(part, other, kernels)
        if found := self._of_few_joined(tables, kernels, self._most_joined(tables, kernels), piece_rows):
            return found
        from oocbe.kernels.cuda.pairs.join_reduce import MatchedRuns

        tables, plan = self._arranged(taken_from(tables), kernels, piece_rows, matches=False)
        runs = MatchedRuns.of([(table.keys, table.values) for table in tables], plan)
        if found := self._of_long_merges(tables, kernels, runs.equal_rows()):
            return found
        tables.clear()
        return runs.joined(self.semiring.combination, self.semiring.marginalisation)

    def _looked_up(self, part: Table, other: Table, kernels: Backend) -> tuple[NDArray[np.uint64], NDArray[Any]]:
        """:meth:`rows` on a device, where all variables of ``part`` are in the other table, and its keys differ.

        Its values are looked up in an array over its domain, so it need not be sorted. The other table's rows are,
        before that, which makes most look-ups adjacent.
        """
        from oocbe.kernels.cuda.pairs.reduce import reduce_looked_up

        # Sums of floats do not depend on the order of the table's rows.
        is_exact = self.semiring.selects or self.dtype.kind != "f"
        scope, first = self.layout.scope, () if is_exact else self.gone
        rows = arrange(other, (*scope, *self.gone), (*first, *scope), self.dtype, kernels)
        groups, masks = (field_masks(layout, scope) for layout in (rows.layout, self.layout))
        values, place = part.values.astype(self.dtype, copy=False), move_plan(rows.layout, part.layout)
        return reduce_looked_up(
            (rows.keys, rows.values), groups, masks, (part.keys, values), place, part.layout.bits,
            part.rows == part.layout.complete_rows, part.is_sorted, self.semiring,
        )  # fmt: skip

    def inputs(self, sources: Sequence[Source]) -> list[JoinInput]:
        """See :class:`Step`: shared variables lowest, those that stay first."""
        (outer, inner), kept = sources, self.kept
        return [
            JoinInput(source, (*kept, *self.gone, *own), kept, join_cost(source, COPIES, more, self.dtype))
            for source, own, more in ((outer, self.own_outer, OUTER_BYTES), (inner, self.own_inner, INNER_BYTES))
        ]

    @cached_property
    def _reduction(self) -> MarginalisationStep:
        """The marginalisation of partial results: rows of one key become one."""
        return MarginalisationStep(self.layout, self.dtype, self.semiring)

    def _equal_rows(self, join: PreparedElimination) -> float:
        """See :meth:`_of_long_merges`; without a count of the runs of each group."""
        if join.kernels.name != "cuda":
            return 0
        from oocbe.kernels.cuda.pairs.join_reduce import equal_rows, has_merges

        if not has_merges(join.plan):
            return 0
        rows, groups = (join.groups.counts1, join.groups.counts2), (join.outer.layout, join.inner.layout)
        runs = (
            count.clip(max=1 << min(62, layout.select(own).bits))
            for count, layout, own in zip(rows, groups, (self.own_outer, self.own_inner), strict=True)
        )
        return equal_rows(*(array for pair in zip(rows, runs, strict=True) for array in pair))

    def sorted_inputs(self, inputs: Sequence[JoinInput]) -> Sequence[JoinInput]:
        """See :class:`Step`."""
        return inputs if self.kept else self._by_gone(inputs)

    def closed(self, results: Iterable[ResultRows], kernels: Backend) -> Generator[ResultRows, None, None]:
        """See :class:`Step`."""
        return self._reduction.closed(results, kernels)

    def group_pieces(
        self, inputs: Sequence[JoinInput], context: ExecutionContext, outermost: bool
    ) -> Iterator[OperationPiece]:
        """See :class:`Step`; partial results have to be closed."""
        outer, inner = inputs
        if not self.own_outer or not context.space.fits([(2 * inner.rows, inner.cost)]):
            yield from self._partial(inputs, context, outermost)
            return
        less = replace(context.space, pieces=context.space.pieces / 2)
        by_own = replace(outer, common=self.own_outer)
        for part in parts([by_own], less, context.kernels, outermost=outermost):
            piece = (replace(part.inputs[0], common=outer.common), inner)
            if part.fits:
                yield OperationPiece(self, piece, context)
            else:
                yield from self._partial(piece, context, outermost=False)

    def _partial(
        self, inputs: Sequence[JoinInput], context: ExecutionContext, outermost: bool
    ) -> Iterator[OperationPiece]:
        """Join part by part of the eliminated variables; then marginalise what came out of the parts."""
        inside = context if outermost else context.fresh(context.space.inside())
        inside = inside.suited_to(self._by_gone(inputs))
        most = inside.joined_rows(self.layout, self.dtype)
        scratch = ScratchFile(context.space.disk, self.layout, self.dtype)
        for rows in inside.run(self._partial_pieces(inputs, inside, outermost)):
            for low in range(0, len(rows.values), most):
                high = min(low + most, len(rows.values))
                scratch.append(rows.keys[:, low:high], rows.values[low:high], np.array([0, high - low]))
        for buffers in inside.buffers:
            buffers.clear()  # the marginalisation has the same memory
        yield from self._reduction.pieces(self._reduction.inputs([scratch]), context, outermost)

    def _by_gone(self, inputs: Sequence[JoinInput]) -> list[JoinInput]:
        """Sources to be cut by the eliminated variables."""
        return [replace(ordered, common=self.gone) for ordered in inputs]

    def _partial_pieces(
        self, inputs: Sequence[JoinInput], context: ExecutionContext, outermost: bool
    ) -> Iterator[OperationPiece]:
        for part in parts(self._by_gone(inputs), context.space, context.kernels, outermost=outermost):
            outer, inner = (
                replace(found, common=ordered.common) for found, ordered in zip(part.inputs, inputs, strict=True)
            )
            if part.fits:
                yield OperationPiece(self, (outer, inner), context)
                continue
            # One value of all shared variables: each row meets each, in blocks.
            for block1 in outer.blocks(context.space.rows_of(outer.cost, 0.5)):
                for block2 in inner.blocks(context.space.rows_of(inner.cost, 0.5)):
                    yield OperationPiece(self, (block1, block2), context)

    def work(self, inputs: Sequence[JoinInput], context: ExecutionContext, stream: int) -> Iterator[ResultRows]:
        """See :class:`Step`."""
        kernels, tables = context.kernels, context.load(inputs, self.semiring, stream)
        most = context.joined_rows(self.layout, self.dtype)
        few = most / GROUP_COPIES
        found = self._of_few_joined(tables, kernels, min(few, self._most_joined(tables, kernels)))
        if not found:
            join = self.prepare(taken_from(tables), kernels)
            found = self._of_long_merges((join.outer, join.inner), kernels, self._equal_rows(join), few)
        if found:
            yield ResultRows(kernels.download(found[0]), kernels.download(found[1]))
            return
        runs = kernels.download(kernels.group_starts(join.outer.keys, join.plan.outer_run))
        ranks = kernels.download(kernels.group_starts(join.inner.keys, join.plan.inner_rank))
        for low, high, groups in split_runs(join.groups, runs, ranks, most, kernels, partial(_met_rows, join, kernels)):
            keys, values = join.rows(low, high, groups)
            if len(values):
                yield ResultRows(kernels.download(keys), kernels.download(values))


def _met_rows(join: PreparedElimination, kernels: Backend) -> NDArray[np.int64]:
    """For each outer row, how many inner rows agree with it on the eliminated variables."""
    outer = kernels.download(kernels.permute(join.outer.keys, join.plan.outer_eliminated, 1))[0]
    inner = kernels.download(kernels.permute(join.inner.keys, join.plan.inner_eliminated, 1))[0]
    eliminated, counts = np.unique(inner, return_counts=True)
    places = np.minimum(np.searchsorted(eliminated, outer), len(eliminated) - 1)
    return np.where(eliminated[places] == outer, counts[places], 0)


def split_runs(
    groups: MatchedGroups,
    runs: NDArray[np.int64],
    ranks: NDArray[np.int64],
    most: int,
    kernels: Backend,
    met_rows: Callable[[], NDArray[np.int64]],
) -> Iterator[tuple[int, int, MatchedGroups]]:
    """Ranges of outer rows that give at most ``most`` result rows (one run may give more), and their groups.

    A run gives no more rows than its group has columns, and no more than the inner rows that its rows meet. Rows that
    meet are counted if cuts by columns alone would prepare the inner rows of a group too often.

    runs, ranks : where runs of outer rows and columns of inner rows begin, and the number of rows last.
    met_rows : gives, for each outer row, the inner rows that it meets; called only where it matters.
    """
    starts1, counts1 = kernels.download(groups.starts1), kernels.download(groups.counts1)
    starts2, counts2 = kernels.download(groups.starts2), kernels.download(groups.counts2)
    if len(starts1) == 0:
        return
    columns = np.searchsorted(ranks, starts2 + counts2) - np.searchsorted(ranks, starts2)
    firsts = np.searchsorted(runs, starts1)
    many = np.searchsorted(runs, starts1 + counts1) - firsts
    group_of = np.repeat(np.arange(len(many)), many)
    run_of = np.arange(len(group_of)) + np.repeat(firsts - (np.cumsum(many) - many), many)
    bounds = columns[group_of]
    if np.dot((columns * many).astype(float), counts2) > most * float(runs[-1] + ranks[-1]):
        met = np.cumsum(np.concatenate(([0], met_rows())))
        bounds = np.minimum(bounds, met[runs[run_of + 1]] - met[runs[run_of]])
    ends = np.cumsum(bounds)
    low, done = 0, 0
    while low < len(ends):
        high = max(low + 1, int(np.searchsorted(ends, done + most, side="right")))
        first_row, last_row = int(runs[run_of[low]]), int(runs[run_of[high - 1] + 1])
        chosen = slice(int(group_of[low]), int(group_of[high - 1]) + 1)
        begins = np.maximum(starts1[chosen], first_row)
        stops = np.minimum(starts1[chosen] + counts1[chosen], last_row)
        yield (
            first_row,
            last_row,
            MatchedGroups(
                kernels.upload(begins - first_row),
                kernels.upload(stops - begins),
                groups.starts2[chosen],
                groups.counts2[chosen],
            ),
        )
        low, done = high, int(ends[high - 1])


@lru_cache(maxsize=4)  # the pieces of one operation have equal layouts
def _plan(step: JoinElimination, outer: Layout, inner: Layout, on_device: bool) -> EliminationPlan:
    """The bit layout of the join of arranged tables."""
    eliminated = outer.select(step.gone)
    return EliminationPlan(
        outer_eliminated=move_plan(outer, eliminated),
        inner_eliminated=move_plan(inner, eliminated),
        outer_run=field_masks(outer, (*step.kept, *step.own_outer)),
        inner_rank=field_masks(inner, (*step.kept, *step.own_inner)),
        outer_move=move_plan(outer, step.layout, (*step.kept, *step.own_outer)),
        inner_move=move_plan(inner, step.layout, (*step.own_inner, *(step.kept if on_device else ()))),
        kept=np.trim_zeros(field_masks(step.layout, step.kept), "f"),
        eliminated_bits=eliminated.bits,
        words=step.layout.words,
    )
