"""Aggregates of the natural join of several tables, without the join: functional aggregate queries.

Variables that are neither grouped by nor needed by another table are eliminated as early as possible, as in bucket
elimination (Abo Khamis, Ngo and Rudra 2016). A source is reduced to its keys while it is read, batch by batch: by
Arrow's grouping in memory, and by the operators if the keys exceed their share of the memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from oocbe.api.contraction import ContractionPath, Contractions, Expression, Positions, path_of
from oocbe.errors import ModelError, UnsupportedError, UsageError, ValueRangeError
from oocbe.model.semiring import MAX_PRODUCT, MAX_SUM, MIN_SUM, SUM_PRODUCT, Semiring
from oocbe.runtime.framed import pyarrow
from oocbe.runtime.tracing.recorder import READER, span
from oocbe.tables.arrow import arrow_table, from_labels
from oocbe.tables.columns import Domain
from oocbe.tables.common_domains import domains_in, limit_of
from oocbe.tables.exchange import VALUES
from oocbe.tables.packed import PackedTable
from oocbe.tables.parquet_source import ColumnSource, check_renamed, source_of, sparing, with_csv_read
from oocbe.tables.scratch import ScratchFolder, default_parent
from oocbe.tables.stored import StoredTable
from oocbe.tables.stored_complete import AnyComplete
from oocbe.tables.table import Table

SEMIRINGS = {
    ("max", "sum"): MAX_SUM,
    ("min", "sum"): MIN_SUM,
    ("max", "product"): MAX_PRODUCT,
    ("sum", "product"): SUM_PRODUCT,
    ("count", "product"): SUM_PRODUCT,
}
"""Semirings by aggregate and combination of the values of joined rows."""

SOURCE_SHARE = 0.125
"""Share of the memory limit for the keys and values of one source, before they go to a scratch folder; Arrow's grouping
and the packed keys take as much again."""


def aggregate(
    *sources: Any,
    group_by: Sequence[str],
    aggregate: str | Mapping[str, str | tuple[str, str]] = "max",
    combine: str | None = None,
    values: str | Sequence[str | None] = VALUES,
    on: Sequence[str] | None = None,
    rename: Mapping[str, str] | None = None,
    drop_nulls: bool = False,
    optimize: str | Sequence[Positions] = "auto",
    memory: int | str | None = None,
    backend: str | None = None,
    output: str | Path | None = None,
) -> Any:
    """Aggregate the natural join of tables by groups, without computing the join.

    Parameters
    ----------
    sources : Parquet files or folders, by path or URL; CSV files, by path; objects with Arrow's interface (data frames,
        Arrow tables, relations of DuckDB); or tables of oocbe. Rows match if they agree in all columns that both have.
    group_by : columns of the result. aggregate : ``max``, ``min``, ``sum`` or ``count`` (of joined rows). Several ones
        are a mapping from names to ``(aggregate, column)``, or ``"count"``; ``mean`` is one of them. A column is taken
        from each source that has it, and ``values`` is not used.
    combine : of the values of joined rows, before they are aggregated: ``sum`` or ``product``. None: ``sum`` for
        ``max`` and ``min``, ``product`` for ``sum``.
    values : column of values, or one for each source; None: the source has none. Not used by ``count``.
    on : columns that rows have to agree in; None: all that several sources have. Other columns are ignored, except
        those of ``group_by``. Tables of oocbe match in all their variables.
    rename : new names of columns, in all sources that have them. drop_nulls : whether to skip rows with missing entries
        in a column read; otherwise they are refused.
    optimize : order of the joins, see :func:`oocbe.einsum_path`.
    memory : limit in bytes (or text such as ``2GiB``); larger tables go to a scratch folder. None: 80 % of what the
        machine has. backend : ``cpu``, ``cuda`` or ``auto``.
    output : folder of a new stored table for the result.

    Returns
    -------
    Table with a row for each group, or StoredTable with ``output``. ``to_pandas``, ``to_arrow``, ``to_parquet`` and
    ``to_polars`` return its groups as columns with their labels. Of several aggregates: a ``pyarrow.Table`` with a row
    for each group in ascending order; its columns are those of ``group_by`` in the sources' types, then the aggregates.

    Raises
    ------
    UsageError : an unknown aggregate or combination, or a source that cannot be read. ModelError : a missing column or
        entry, types that do not match. ValueRangeError : integer sums beyond 64 bits. ResourceError : labels exceed the
        memory. UnsupportedError : ``count`` of a stored table.

    Examples
    --------
    >>> import pyarrow, oocbe
    >>> sales = pyarrow.table({"shop": ["a", "a", "b"], "day": [0, 1, 1], "value": [5, 9, 4]})
    >>> rents = pyarrow.table({"shop": ["a", "b"], "value": [-3, -1]})
    >>> best = oocbe.aggregate(sales, rents, group_by=["shop"], aggregate="max")
    >>> best.to_arrow().to_pylist()
    [{'shop': 'a', 'value': 6}, {'shop': 'b', 'value': 3}]
    """
    sources = tuple(map(with_csv_read, sources))
    if not isinstance(aggregate, str):
        if output is not None:
            raise UsageError("aggregate: output: several aggregates are returned in memory; ask for one at a time")
        settings: dict[str, Any] = {"on": on, "rename": rename, "drop_nulls": drop_nulls, "optimize": optimize}
        settings |= {"combine": combine, "memory": memory, "backend": backend}
        return _several(sources, group_by, aggregate, settings)
    semiring = _semiring(aggregate, combine)
    limit = limit_of(memory)
    if not sources:
        raise UsageError("aggregate: there is no source")
    names = [values] * len(sources) if isinstance(values, str) else list(values)
    if len(names) != len(sources):
        raise UsageError(f"aggregate: values: {len(names)} columns for {len(sources)} sources")
    is_count = aggregate == "count"
    with sparing(), ExitStack() as closed:
        folder = closed.enter_context(closing(ScratchFolder(default_parent()))).path
        read = [given if _is_table(given) else source_of(given, rename, drop_nulls) for given in sources]
        check_renamed(rename, [source for source in read if isinstance(source, ColumnSource)])
        columns = [_columns(source, value) for source, value in zip(read, names, strict=True)]
        kept = _needed(columns, read, group_by, on)
        domains = _domains(read, kept, limit)
        tables: list[Any] = []
        for number, (source, value, own) in enumerate(zip(read, names, kept, strict=True)):
            if isinstance(source, ColumnSource):
                how = None if value is None or is_count else value
                reading = _Reading(source, own, how, aggregate, semiring, domains, int(limit * SOURCE_SHARE))
                with span(READER, "read source") as timed:
                    tables.append(reading.table(folder / f"source-{number}"))
                    timed.note(rows=tables[-1].rows)
            else:
                tables.append(_with_ones(source) if is_count else _in_semiring(source, semiring))
        path = _path(tables, group_by, optimize)
        return Contractions(path, limit, backend, closed).run(tables, output)


def _several(
    sources: Sequence[Any],
    group_by: Sequence[str],
    named: Mapping[str, str | tuple[str, str]],
    settings: dict[str, Any],
) -> Any:
    """Several aggregates, as columns of an Arrow table."""
    import pyarrow.compute as compute

    arrow = pyarrow()
    asked = {name: (how, None) if isinstance(how, str) else tuple(how) for name, how in named.items()}
    if wrong := [name for name, (how, column) in asked.items() if (column is None) != (how == "count")]:
        raise UsageError(f"aggregate: {wrong[0]!r}: give 'count', or a pair of an aggregate and its column")
    if wrong := sorted(set(asked).intersection(group_by)) or ([] if asked else [""]):
        raise UsageError(f"aggregate: {wrong[0]!r} names no aggregate, or a column of group_by as well")
    # A stream can be read once only.
    read = [s if _is_table(s) or isinstance(s, str | Path | list | tuple) else arrow_table(s) for s in sources]
    opened = [None if _is_table(source) else source_of(source, settings["rename"]) for source in read]
    columns = [[*s.scope, VALUES] if own is None else own.names for s, own in zip(read, opened, strict=True)]
    values = {column for _, column in asked.values()}
    if settings["on"] is None:
        settings["on"] = [name for name in _shared(columns) if name not in values]
    found: dict[tuple[str, str | None], Any] = {}
    for how, column in dict.fromkeys((kind, c) for h, c in asked.values() for kind in _PARTS.get(h, (h,))):
        own_column = None if how == "count" else column
        if own_column and not any(own_column in own for own in columns):
            raise ModelError(f"aggregate: {how}: no source has a column {own_column!r}")
        given = [own_column if own_column in own else None for own in columns]
        table = aggregate(*read, group_by=group_by, aggregate=how, values=given, **settings)
        found[how, column] = table.to_arrow(VALUES) if group_by else arrow.table({VALUES: table.values})
    groups = next(iter(found.values()))
    made = {}
    for name in group_by:
        kind = next((own.type_of(name) for own in opened if own is not None and name in own.names), None)
        made[name] = from_labels(groups.column(name), kind)
    for name, (how, column) in asked.items():
        parts = [found[kind, column].column(VALUES) for kind in _PARTS.get(how, (how,))]
        made[name] = parts[0] if how != "mean" else compute.divide(compute.cast(parts[0], "float64"), parts[1])
    table = arrow.table(made)
    return table.sort_by([(name, "ascending") for name in group_by]) if group_by else table


_PARTS = {"mean": ("sum", "count")}
"""Aggregates that are computed from others."""


def _semiring(aggregate: str, combine: str | None) -> Semiring:
    chosen = combine or ("sum" if aggregate in ("max", "min") else "product")
    if (aggregate, chosen) not in SEMIRINGS:
        known = ", ".join(f"{a} of a {c}" for a, c in SEMIRINGS)
        raise UsageError(f"aggregate: {aggregate!r} of a {chosen!r} is unknown; known: {known}")
    return SEMIRINGS[aggregate, chosen]


def _is_table(given: Any) -> bool:
    return isinstance(given, Table | StoredTable | PackedTable | AnyComplete)


def _columns(source: Any, value: str | None) -> list[str]:
    """Columns that may be keys."""
    if isinstance(source, ColumnSource):
        return [name for name in source.names if name != value]
    return list(source.scope)


def _every(columns: Sequence[Sequence[str]]) -> list[str]:
    return list(dict.fromkeys(name for own in columns for name in own))


def _shared(columns: Sequence[Sequence[str]]) -> list[str]:
    """Columns that several sources have."""
    return [name for name in _every(columns) if sum(name in own for own in columns) > 1]


def _needed(
    columns: Sequence[Sequence[str]], read: Sequence[Any], group_by: Sequence[str], on: Sequence[str] | None
) -> list[list[str]]:
    """Columns of each source that are grouped by, or that rows have to agree in."""
    if len(set(group_by)) < len(group_by):
        raise UsageError("aggregate: group_by: a column occurs twice")
    there = _every(columns)
    for what, given in (("group_by", group_by), ("on", on or ())):
        for name in given:
            if name not in there:
                raise ModelError(f"{what}: column {name!r} is in no source; there are: {', '.join(there)}")
    shared = set(_shared(columns) if on is None else on)
    if on is not None:
        for name in set(group_by) - shared:
            if name in _shared(columns):
                raise ModelError(
                    f"group_by: column {name!r} is in several sources, and not in on; add it, or rename one"
                )
    wanted = shared.union(group_by)
    return [
        [name for name in own if name in wanted] if isinstance(source, ColumnSource) else list(own)
        for source, own in zip(read, columns, strict=True)
    ]


def _domains(read: Sequence[Any], kept: Sequence[Sequence[str]], memory: int) -> dict[str, Domain]:
    """Common domains of the sources' columns, beginning with those of tables."""
    domains: dict[str, Domain] = {}
    for source, own in zip(read, kept, strict=True):
        if not isinstance(source, ColumnSource):
            labels = source.layout.labels or {}
            domains |= {n: labels.get(n) or size for n, size in zip(own, source.layout.sizes, strict=True)}
    sources = [(source, own) for source, own in zip(read, kept, strict=True) if isinstance(source, ColumnSource)]
    return domains_in(sources, memory, domains)


class _Reading:
    """A source that is reduced to its keys while it is read.

    ``names`` are the columns of the keys, and ``domains`` are theirs. ``value`` is the column of values; if None, each
    row counts as one, or has the neutral value. ``aggregate`` and ``semiring`` apply to values of rows with one key.
    ``most`` is the number of bytes of keys and values in memory.
    """

    def __init__(
        self,
        source: ColumnSource,
        names: Sequence[str],
        value: str | None,
        aggregate: str,
        semiring: Semiring,
        domains: Mapping[str, Domain],
        most: int,
    ) -> None:
        self._source, self._names, self._value = source, list(names), value
        self._sums = semiring == SUM_PRODUCT
        self._how = "sum" if self._sums else aggregate
        self._semiring, self._most = semiring, most
        self._domains = {name: domains[name] for name in names}
        if value is not None and value not in source.names:
            raise ModelError(
                f"{source.what}: there is no column {value!r} of values; there are: {', '.join(source.names)}; values "
                "names it, and is None for a source without"
            )

    def table(self, folder: Path) -> Table | StoredTable:
        """One row for each key, in memory; or in ``folder``, where a key may occur again."""
        arrow = pyarrow()
        wanted = [*self._names, *([] if self._value is None else [self._value])]
        # Batches without a column have no number of rows, so at least one is read.
        batches = self._source.batches(wanted or self._source.names[:1])
        parts: list[Any] = []
        nbytes = 0
        for batch in batches:
            parts.append(self._grouped(self._prepared(arrow.Table.from_batches([batch]))))
            nbytes += parts[-1].nbytes
            if nbytes > self._most:
                parts = [self._grouped(arrow.concat_tables(parts).unify_dictionaries())]
                nbytes = parts[0].nbytes
                if nbytes > self._most // 2:
                    return self._stored(folder, parts[0], batches)
        if len(parts) == 1:
            return self._rows(parts[0])
        whole = arrow.concat_tables(parts).unify_dictionaries() if parts else self._prepared(self._source.whole(wanted))
        return self._rows(self._grouped(whole))

    def _stored(self, folder: Path, first: Any, batches: Any) -> StoredTable:
        arrow = pyarrow()
        rows = self._rows(first)
        with StoredTable.create(folder, rows.layout, rows.dtype, self._semiring, duplicates=True) as writer:
            writer.append(rows.keys, rows.values)
            for batch in batches:
                rows = self._rows(self._grouped(self._prepared(arrow.Table.from_batches([batch]))))
                writer.append(rows.keys, rows.values)
        return StoredTable.open(folder)

    def _prepared(self, data: Any) -> Any:
        """Keys and a column of values; NaN is refused, as Arrow's maximum skips it."""
        import pyarrow.compute as compute

        arrow = pyarrow()
        if self._value is None:
            ones = arrow.array(np.full(data.num_rows, self._semiring.one, dtype=np.int64))
            return data.select(self._names).append_column(VALUES, ones)
        numbers = data.column(self._value)
        if arrow.types.is_floating(numbers.type) and compute.any(compute.is_nan(numbers)).as_py():
            raise ModelError(f"{self._source.what}: column {self._value} has NaN, which has no place in an order")
        return data.select(self._names).append_column(VALUES, numbers)

    def _grouped(self, data: Any) -> Any:
        import pyarrow.compute as compute

        if self._sums and pyarrow().types.is_integer(data.column(VALUES).type):
            total = compute.sum(compute.abs(compute.cast(data.column(VALUES), "float64", safe=False))).as_py()
            if (total or 0.0) >= 2.0**63:
                raise ValueRangeError(
                    f"{self._source.what}: sums of column {self._value} may leave 64-bit integers; cast it to float64"
                )
        made = data.group_by(self._names).aggregate([(VALUES, self._how)])
        return made.rename_columns([VALUES if name == f"{VALUES}_{self._how}" else name for name in made.column_names])

    def _rows(self, data: Any) -> Table:
        return Table.from_arrow(data, scope=self._names, domains=self._domains, semiring=self._semiring)


def _with_ones(table: Any) -> Table:
    """A table whose rows count as one."""
    if not isinstance(table, Table):
        raise UnsupportedError(f"aggregate: count: {type(table).__name__} is counted as a Table: table.to_table()")
    return replace(table, values=np.ones(table.rows, dtype=np.int64), semiring=SUM_PRODUCT)


def _in_semiring(table: Any, semiring: Semiring) -> Any:
    if table.semiring == semiring:
        return table
    if not isinstance(table, Table):
        raise UsageError(f"aggregate: a table has the semiring {table.semiring}, and {semiring} is needed")
    return replace(table, semiring=semiring)


def _path(tables: Sequence[Any], group_by: Sequence[str], optimize: str | Sequence[Positions]) -> ContractionPath:
    sizes: dict[str, int] = {}
    for table in tables:
        for name, size in zip(table.scope, table.layout.sizes, strict=True):
            if sizes.setdefault(name, size) != size:
                raise ModelError(
                    f"aggregate: variable {name!r} has {sizes[name]} values in one table, {size} in another"
                )
    expression = Expression(tuple(tuple(table.scope) for table in tables), tuple(group_by), sizes)
    return path_of(expression, optimize, [table.rows for table in tables])
