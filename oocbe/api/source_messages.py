"""Sources of an aggregate, each reduced while it is read to what the others and the groups need of it.

A source is an *ear* if one other source has all of its columns that others or the groups need (Yu and Ozsoyoglu 1979).
It sends that source a message: for each combination of these columns, the marginal of its values (Yannakakis 1981; Abo
Khamis, Ngo and Rudra 2016). The other source combines its rows with the message while it reads them, and drops those
without a partner. Of a join without cycles, one source remains. No row is sorted then, and no compiled loop is loaded.

A message is an array with a cell for each combination; of too many combinations, only those of rows are kept, sorted. A
source with too many rows for that is reduced to its keys by Arrow's grouping, or by the operators if these exceed their
share of the memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from time import perf_counter
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import ModelError, UnsupportedError, ValueRangeError
from oocbe.model.semiring import MAX_PRODUCT, SUM_PRODUCT, Marginalisation, Semiring
from oocbe.runtime.framed import pyarrow
from oocbe.runtime.tracing.recorder import READER, span
from oocbe.tables.arrow import array_of, column_of, numbers_of, value_kind
from oocbe.tables.columns import value_dtype, values_of
from oocbe.tables.layout import Layout
from oocbe.tables.numbers import check_numbers, strange_number
from oocbe.tables.parquet_source import ColumnSource
from oocbe.tables.table import Table

Explain: TypeAlias = Callable[[str], object] | None
"""Called with lines of text, such as ``print``."""

ROW_VALUES = "values of rows"
"""Name of the column of values beside those of keys, which may be called anything else."""

MESSAGE_CELLS, CELLS_A_ROW = 1 << 22, 8
"""Cells of a message at most, or per row of its source or receiver. An empty cell costs a tenth of a sorted row."""

CELL_BYTES = 17
"""Bytes of a cell: its value, twice while it is converted, and whether it has one."""

MOST_SUM = 2.0**63 - 2.0**43
"""Sum of absolute integers at most, in floats: these round, by less than 2^43 for a billion batches."""

SORTED_BYTES = 40
"""Bytes of a row whose combination is sorted: the combination and the value, twice, and its place in the order."""


class SourceMessage:
    """Marginals of values for each combination of some columns.

    layout : of the columns. values : int64, float32 or float64 (cells,), in the order of the layout's keys.
    is_there : bool (cells,), whether a row has the combination. cells : numbers of the combinations that are kept,
    int64 (cells,), ascending; None: all of them, as where it ``is_dense``. dtype : of the first values that are added.
    """

    cells: NDArray[np.int64] | None = None

    def __init__(self, layout: Layout, semiring: Semiring, dtype: np.dtype[Any], is_dense: bool) -> None:
        self.layout, self._semiring = layout, semiring
        self._is_short, is_sum = dtype == np.int32, semiring.marginalisation is Marginalisation.SUM
        wide = np.dtype(np.int64) if dtype.kind == "i" else np.dtype(np.float64) if is_sum else dtype
        least, greatest = (np.iinfo(wide).min, np.iinfo(wide).max) if wide.kind == "i" else (-np.inf, np.inf)
        first = 0 if is_sum else greatest if semiring.marginalisation is Marginalisation.MIN else least
        self.values = np.full(layout.complete_rows if is_dense else 0, first, dtype=wide)
        self.is_there = np.zeros(len(self.values), dtype=np.bool_)
        self._total = 0.0
        self._parts: list[tuple[NDArray[np.int64], NDArray[Any]]] | None = None if is_dense else []

    def _places(self, columns: Mapping[str, NDArray[Any]], rows: int) -> NDArray[np.intp]:
        """Cell of each row, of value indices (rows,) by column."""
        places, stride = np.zeros(0 if self.layout.scope else rows, dtype=np.intp), 1
        for name, size in zip(self.layout.scope, self.layout.sizes, strict=True):
            own = columns[name].astype(np.intp, copy=False)
            places = own if stride == 1 else places + own * stride
            stride *= size
        return places

    def add(self, columns: Mapping[str, NDArray[Any]], values: NDArray[Any], what: str) -> None:
        """Marginalise the values of further rows.

        Raises ValueRangeError: integer sums may leave 64 bits; ``what`` names the column.
        """
        is_sum = self._semiring.marginalisation is Marginalisation.SUM
        self._is_short &= values.dtype == np.int32 and not is_sum
        if is_sum and values.dtype.kind == "i":
            self._total += float(np.abs(values.astype(np.float64)).sum())
            _check_sum(self._total, what)
        places, values = self._places(columns, len(values)), values.astype(self.values.dtype, copy=False)
        if self._parts is not None:
            self._parts.append((places, values))
            return
        with np.errstate(over="ignore", invalid="ignore"):  # infinite sums are refused where they are used
            self._semiring.marginalise.at(self.values, places, values)
        self.is_there[places] = True

    def close(self) -> None:
        """Sort the combinations that are kept; no row may be added afterwards."""
        if self._parts is None:
            return
        cells = np.concatenate([np.empty(0, dtype=np.int64), *(part[0] for part in self._parts)])
        values = np.concatenate([self.values, *(part[1] for part in self._parts)])
        self._parts, order = None, np.argsort(cells)
        cells, values = cells[order], values[order]
        begins = np.flatnonzero(np.diff(cells, prepend=-1))
        self.cells, self.is_there = cells[begins], np.ones(len(begins), dtype=np.bool_)
        with np.errstate(over="ignore", invalid="ignore"):
            self.values = self._semiring.marginalise.reduceat(values, begins) if len(begins) else values

    @cached_property
    def _extent(self) -> NDArray[Any]:
        """Least and greatest value, in the narrowest dtype of a table's values."""
        held = self.values[self.is_there]
        extent = np.array([held.min(), held.max()] if len(held) else [], dtype=held.dtype)
        is_short = self._is_short and (not len(held) or bool((np.abs(extent.astype(np.float64)) < 2.0**31).all()))
        return extent.astype(np.int32) if is_short else extent

    def combined(
        self, columns: dict[str, NDArray[Any]], values: NDArray[Any]
    ) -> tuple[dict[str, NDArray[Any]], NDArray[Any], NDArray[np.bool_] | None]:
        """Columns and values of the rows that have a partner, combined; and which rows these are, None for all.

        Raises ValueRangeError: a value beyond 64-bit integers, or outside the range of its floats.
        """
        from oocbe.algebra.ranges import joined_dtype

        places = self._places(columns, len(values))
        if self.cells is None or not len(self.cells):
            is_there = self.is_there.take(places) if len(self.is_there) else np.zeros(len(places), dtype=np.bool_)
        else:
            wanted, places = places, np.searchsorted(self.cells[:-1], places)
            is_there = self.cells[places] == wanted
        has_all = bool(is_there.all())
        if not has_all:
            columns = {name: own[is_there] for name, own in columns.items()}
            places, values = places[is_there], values[is_there]
        dtype = joined_dtype(values, self._extent, self._semiring)
        others, values = self.values.take(places).astype(dtype, copy=False), values.astype(dtype, copy=False)
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            made = self._semiring.combine(values, others)
        if dtype.kind == "f":
            zero = self._semiring.zero
            lost = (~np.isfinite(made) | (made == zero)) & (values != zero) & (others != zero)
            if lost.any():
                raise ValueRangeError(f"a value is outside the range of {dtype.name}; scale the values down")
        return columns, made, None if has_all else is_there

    @property
    def rows(self) -> int:
        """Cells that have a value."""
        return int(np.count_nonzero(self.is_there))

    def table(self) -> Table:
        """The cells that have a value, as a sorted table."""
        cells = np.flatnonzero(self.is_there) if self.cells is None else self.cells
        columns, rest = np.empty((len(cells), len(self.layout.scope)), dtype=np.int64, order="F"), cells
        for place, size in enumerate(self.layout.sizes):
            rest, columns[:, place] = np.divmod(rest, size) if place + 1 < len(self.layout.sizes) else (rest, rest)
        values = self.values[self.is_there].astype(self._extent.dtype, copy=False)
        if strange := strange_number(values, self._semiring):
            raise ValueRangeError(f"a sum is {strange}, outside the range of {values.dtype}; scale the values down")
        return Table(self.layout, self.layout.pack(columns), values, self._semiring, is_sorted=True)


@dataclass
class SourceReading:
    """A source, and what is to be read of it.

    label : for explanations. names : columns of its keys. value : column of values; None: each row counts as one, or
    has the neutral value. semiring : of the values. layout : of all sources' columns of keys. most : bytes of keys and
    values in memory. beside : columns without missing entries. messages : of other sources, over columns of this one.
    """

    source: Any
    label: str
    names: list[str]
    value: str | None
    semiring: Semiring
    layout: Layout
    most: int
    beside: Sequence[str]
    messages: list[SourceMessage] = field(default_factory=list)

    @property
    def rows(self) -> float:
        """Rows of the source, infinite if they are not known."""
        return np.inf if self.source.rows is None else self.source.rows

    @cached_property
    def combines(self) -> bool:
        """Whether values are combined with messages while they are read. Arrow adds up decimals exactly."""
        if not isinstance(self.source, ColumnSource):
            return False
        is_decimal = self.value is not None and pyarrow().types.is_decimal(self.source.type_of(self.value))
        return not (is_decimal and self.semiring == SUM_PRODUCT)

    def fits(self, names: Sequence[str], *receivers: SourceReading) -> bool:
        """Whether a message over some columns surely fits its share of memory, beside those to source and receivers."""
        can_sort = self.layout.select(names).complete_rows < 1 << 62
        can_sort = can_sort and SORTED_BYTES * self.rows <= self.most - self._held(*receivers)
        return self.combines and (can_sort or self._is_dense(names, *receivers))

    def _is_dense(self, names: Sequence[str], *receivers: SourceReading) -> bool:
        """Whether all cells fit the share of the memory, and are few for the rows that are read."""
        cells, rows = self.layout.select(names).complete_rows, max(own.rows for own in (self, *receivers))
        most = MESSAGE_CELLS if rows == np.inf else max(MESSAGE_CELLS, CELLS_A_ROW * rows)
        return cells <= min(most, (self.most - self._held(*receivers)) // CELL_BYTES)

    def _held(self, *receivers: SourceReading) -> int:
        """Bytes of the messages to this source and its receivers."""
        return CELL_BYTES * sum(len(message.values) for own in (self, *receivers) for message in own.messages)

    @property
    def _what(self) -> str:
        return f"{self.source.what}: column {self.value}"

    def message(self, names: Sequence[str], *receivers: SourceReading) -> SourceMessage:
        """The marginals for each combination of some columns."""
        made, first, layout, is_dense = None, 0, self.layout.select(names), self._is_dense(names, *receivers)
        for batch in self._batches(names):
            columns, values, _ = self._combined(batch, names, first)
            made = made or SourceMessage(layout, self.semiring, values.dtype, is_dense)
            made.add(columns, values, self._what)
            first += batch.num_rows
        made = made or SourceMessage(layout, self.semiring, self._dtype, is_dense)
        made.close()
        return made

    @property
    def _dtype(self) -> np.dtype[Any]:
        """Of values of the source."""
        if self.value is None:
            return np.dtype(np.int64)
        kind = value_kind(self.value, self.source.type_of(self.value), self.source.what)
        return value_dtype(kind, self._what)

    def _batches(self, names: Sequence[str]) -> Any:
        wanted = [*names, *(name for message in self.messages for name in message.layout.scope)]
        value = [] if self.value is None else [self.value]
        return self.source.batches(list(dict.fromkeys([*wanted, *value])), beside=self.beside)

    def _combined(
        self, batch: Any, names: Sequence[str], first: int
    ) -> tuple[dict[str, NDArray[Any]], NDArray[Any], NDArray[np.bool_] | None]:
        """Value indices by column, and values, of the rows of a batch that have a partner in all messages; and which
        these are, None for all. first : number of the batch's first row, for messages."""
        what, is_there = self.source.what, None
        columns = {}
        for name in dict.fromkeys([*names, *(n for message in self.messages for n in message.layout.scope)]):
            domain = self.layout.labels.get(name, self.layout.sizes[self.layout.place(name)])
            columns[name] = column_of(name, batch.column(name), what, domain, first).numbered(domain, what, first)
        if self.value is None:
            values: NDArray[Any] = np.full(batch.num_rows, self.semiring.one, dtype=np.int64)
        else:
            values = numbers_of(self.value, batch.column(self.value), what, first)
            values = values_of(values, value_dtype(values.dtype, self._what), self._what)
            self._check(values)
        for message in self.messages:
            columns, values, own = message.combined(columns, values)
            if own is not None and is_there is not None:
                is_there[is_there] = own
            is_there = own if is_there is None else is_there
        return columns, values, is_there

    def _check(self, values: NDArray[Any]) -> None:
        """Refuse NaN, which Arrow's maximum skips, and negative values of a greatest product."""
        if values.dtype.kind == "f" and np.isnan(values).any():
            known = "has no place in an order; leave such rows out: drop_nulls skips null only"
            raise ModelError(f"{self._what} has NaN, which {known}")
        check_numbers(self._what, values, self.semiring)
        if self.semiring == MAX_PRODUCT and (values < 0).any():
            raise ModelError(
                f"{self._what} has a negative value: the greatest product is not that of the greatest values then"
            )

    def table(self, names: Sequence[str], folder: Callable[[], Path]) -> Any:
        """One row for each combination of some columns, in memory; or in ``folder()``, where one may occur again."""
        if not isinstance(self.source, ColumnSource):
            return _in_semiring(self.source, self.semiring, self.value is not None)
        if self.fits(names):
            return self.message(names).table()
        arrow, parts, nbytes, first = pyarrow(), list[Any](), 0, 0
        batches = self._batches(names)
        for batch in batches:
            parts.append(self._grouped(self._prepared(batch, names, first)))
            nbytes, first = nbytes + parts[-1].nbytes, first + batch.num_rows
            if nbytes > self.most:
                parts = [self._grouped(arrow.concat_tables(parts).unify_dictionaries())]
                nbytes = parts[0].nbytes
                if nbytes > self.most // 2:
                    return self._stored(folder(), parts[0], names, batches, first)
        if not parts:
            layout = self.layout.select(names)
            none = np.empty((layout.words, 0), dtype=np.uint64), np.empty(0, dtype=self._dtype)
            return Table(layout, *none, self.semiring, is_sorted=True)
        data = parts[0] if len(parts) == 1 else self._grouped(arrow.concat_tables(parts).unify_dictionaries())
        return self._rows(data, names)

    def _stored(self, folder: Path, data: Any, names: Sequence[str], batches: Any, first: int) -> Any:
        from oocbe.tables.stored import StoredTable

        rows = self._rows(data, names)
        with StoredTable.create(folder, rows.layout, rows.dtype, self.semiring, duplicates=True) as writer:
            writer.append(rows.keys, rows.values)
            for batch in batches:
                rows = self._rows(self._grouped(self._prepared(batch, names, first)), names)
                writer.append(rows.keys, rows.values)
                first += batch.num_rows
        return StoredTable.open(folder)

    def _prepared(self, batch: Any, names: Sequence[str], first: int) -> Any:
        """Keys and a column of values of the rows of a batch that have a partner in all messages."""
        arrow = pyarrow()
        data = arrow.Table.from_batches([self.source.plain(batch)]).select(names)  # batches alike, however text is read
        if not self.combines:
            return data.append_column(ROW_VALUES, batch.column(self.value))
        _, values, is_there = self._combined(batch, [], first)
        data = data if is_there is None else data.filter(arrow.array(is_there))
        is_wide = bool(self.messages) and values.dtype.kind == "i"  # batches alike, whatever their values
        return data.append_column(ROW_VALUES, array_of(values.astype(np.int64) if is_wide else values))

    def _grouped(self, data: Any) -> Any:
        import pyarrow.compute as compute

        if not len(data):  # without names, Arrow makes one group of no rows
            return data
        how = self.semiring.marginalisation.name.lower()
        if how == "sum" and pyarrow().types.is_integer(data.column(ROW_VALUES).type):
            total = compute.sum(compute.abs(compute.cast(data.column(ROW_VALUES), "float64", safe=False))).as_py()
            _check_sum(total or 0.0, self._what)
        made = data.group_by(data.column_names[:-1]).aggregate([(ROW_VALUES, how)])
        return made.rename_columns({f"{ROW_VALUES}_{how}": ROW_VALUES})

    def _rows(self, data: Any, names: Sequence[str]) -> Table:
        domains = dict(zip(self.layout.scope, self.layout.sizes, strict=True)) | dict(self.layout.labels)
        column = f"{self.semiring.marginalisation.name.lower()} of {self.value}"
        data = data.rename_columns([*data.column_names[:-1], column])
        what = self.source.what
        return Table.from_arrow(data, column, scope=names, domains=domains, semiring=self.semiring, what=what)


def _check_sum(total: float, what: str) -> None:
    if total > MOST_SUM:
        raise ValueRangeError(f"{what}: sums may leave 64-bit integers; cast it to float64")


def _in_semiring(table: Any, semiring: Semiring, is_valued: bool) -> Any:
    """A table of oocbe in a semiring; unless ``is_valued``, with the neutral value for each row, which then counts."""
    if table.semiring == semiring and is_valued:
        return table
    if not isinstance(table, Table):
        raise UnsupportedError(f"aggregate: {type(table).__name__} is taken in its own semiring; give table.to_table()")
    neutral = np.full(table.rows, semiring.one, dtype=np.int64)
    return replace(table, values=table.values if is_valued else neutral, semiring=semiring)


def reduced(
    readings: Sequence[SourceReading], groups: Sequence[str], folder: Callable[[int], Path], explain: Explain
) -> list[Any]:
    """Tables of the sources that remain, in their order, when all ears have sent their messages.

    groups : columns of the result. folder : of a source that exceeds its share of the memory, by its number.
    """
    left = list(readings)

    def needed(reading: SourceReading) -> list[str]:
        others = set(groups).union(*(other.names for other in left if other is not reading))
        return [name for name in reading.names if name in others]

    def receiver(ear: SourceReading) -> SourceReading | None:
        names = set(needed(ear))
        having = [other for other in left if other is not ear and other.combines and names.issubset(other.names)]
        to = min(having, key=lambda other: other.rows, default=ear)
        return to if to is not ear and ear.fits([*names], to) else None

    def read(reading: SourceReading, number: int, to: SourceReading | None) -> Any:
        begin, names = perf_counter(), needed(reading)
        with span(READER, "read source") as timed:
            made: Any = reading.table(names, partial(folder, number)) if to is None else reading.message(names, to)
            timed.note(rows=made.rows)
        reading.messages.clear()  # they take memory
        if explain:
            sent = "" if to is None else f", sent to {to.label}"
            keys = f"  {reading.label}: {made.rows:,} keys ({' '.join(names)})"
            explain(f"{keys} in {perf_counter() - begin:.3f} s{sent}")
        return made

    while ears := [(ear, to) for ear in left if (to := receiver(ear)) is not None]:
        ear, to = min(ears, key=lambda pair: pair[0].rows)  # it may drop rows of larger ones
        to.messages.append(read(ear, readings.index(ear), to))
        left.remove(ear)
    return [read(reading, readings.index(reading), None) for reading in left]
