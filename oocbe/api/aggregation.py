"""Aggregates of the natural join of several tables, without the join: functional aggregate queries.

Variables that are neither grouped by nor needed by another table are eliminated as early as possible, as in bucket
elimination (Abo Khamis, Ngo and Rudra 2016): while the sources are read (:mod:`oocbe.api.source_messages`), and in the
join of those that remain (:mod:`oocbe.api.contraction`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from oocbe.api.source_messages import ROW_VALUES, Explain, SourceReading, reduced
from oocbe.errors import ModelError, ResourceError, UsageError
from oocbe.model.semiring import MAX_PRODUCT, MAX_SUM, MIN_SUM, SUM_PRODUCT, Semiring
from oocbe.model.settings.option_values import parse_backend, parse_boolean
from oocbe.runtime.framed import pyarrow
from oocbe.tables.arrow import from_labels
from oocbe.tables.columns import NAMELESS_INDEX, Domain, layout_for
from oocbe.tables.common_domains import domains_in, limit_of
from oocbe.tables.exchange import VALUES
from oocbe.tables.parquet_source import ArrowColumns, ColumnSource, check_renamed, opened, source_of, sparing
from oocbe.tables.table import Table

SEMIRINGS = {
    ("max", "sum"): MAX_SUM,
    ("min", "sum"): MIN_SUM,
    ("max", "product"): MAX_PRODUCT,
    ("sum", "product"): SUM_PRODUCT,
    ("count", "product"): SUM_PRODUCT,
}
"""Semirings by aggregate and combination of the values of joined rows."""

OF_FILES = frozenset(
    (".arrow", ".bz2", ".csv", ".feather", ".gz", ".ipc", ".json", ".orc", ".parquet", ".tsv", ".txt", ".xlsx", ".xz")
)
"""Endings of files, which a stored table, a folder, would be mistaken for."""

SOURCE_SHARE = 0.125
"""Share of the memory limit for the keys and values of one source, before they go to a scratch folder; Arrow's grouping
and the packed keys take as much again."""


Key: TypeAlias = tuple[str, str | Callable[[Any], Any]]
"""A column, and a function of Arrow arrays or the name of one in ``pyarrow.compute``."""


def aggregate(
    *sources: Any,
    group_by: Sequence[str],
    aggregate: str | Mapping[str, str | Sequence[str]] = "max",
    combine: str | None = None,
    values: str | Sequence[str | None] | None = VALUES,
    on: Sequence[str] | None = None,
    keys: Mapping[str, Key] | None = None,
    top: int | None = None,
    within: Sequence[str] = (),
    rename: Mapping[str, str] | None = None,
    drop_nulls: bool = False,
    memory: int | str | None = None,
    backend: str | None = None,
    output: str | Path | None = None,
    explain: Explain = None,
) -> Any:
    """Aggregate the natural join of tables by groups, without computing the join.

    Parameters
    ----------
    sources : Parquet files or folders, by path or URL; CSV files, by path; several files as a list, or as a pattern
        such as ``sales-*.csv``; objects with Arrow's interface (data frames,
        Arrow tables); relations of DuckDB and lazy frames of Polars, of which only the columns needed are computed, and
        again for each pass if they exceed the memory; or tables of oocbe. Rows match if they agree in all columns that
        both have.
    group_by : columns of the result. aggregate : ``max``, ``min``, ``sum`` or ``count`` (of joined rows). Several ones
        are a mapping from names to ``(aggregate, column)``, to ``"count"``, or to ``("argmax", column, other)``: the
        entry of the column ``other`` in the row with the greatest value, the least of several; ``argmin`` likewise.
        ``mean`` is one of them. A column of values is taken from each source that has it, and ``values`` is not used.
    combine : of the values of joined rows, before they are aggregated: ``sum`` or ``product``. None: ``sum`` for
        ``max`` and ``min``, ``product`` for ``sum``.
    values : column of values, or one for each source; None: the source has none. Not used by ``count``.
    on : columns that rows have to agree in; None: all that several sources have. Other columns are ignored, except
        those of ``group_by``. Tables of oocbe match in all their variables.
    keys : new columns, in each source that has the column of their pair: ``{"month": ("day", "month")}``, a function in
        ``pyarrow.compute``, or any other of an Arrow array.
    top : how many groups to keep of those that agree in the columns ``within``, the best ones by the first of several
        aggregates: the least of ``min``, otherwise the greatest.
    rename : new names of columns, in all sources that have them. drop_nulls : whether to skip rows with missing entries
        in a column read; otherwise they are refused.
    memory : limit in bytes (or text such as ``2GiB``); larger tables go to a scratch folder. None: 80 % of what the
        machine has. backend : ``cpu``, ``cuda`` or ``auto``.
    output : folder of a new stored table for the result.
    explain : called with lines of text, such as ``print``: keys and seconds of each source, the plan, then rows and
        seconds of each of its steps.

    Returns
    -------
    Table with a row for each group, or StoredTable with ``output``. ``to_pandas``, ``to_arrow``, ``to_parquet`` and
    ``to_polars`` return its groups as columns with their labels. Of several aggregates: a ``pyarrow.Table`` with a row
    for each group in ascending order; its columns are those of ``group_by`` in the sources' types, then the aggregates.

    Raises
    ------
    UsageError : an unknown aggregate or combination, or a source that cannot be read. ModelError : a missing column or
        entry, types that do not match. ValueRangeError : integer sums beyond 64 bits. ResourceError : labels or the
        result exceed the memory. UnsupportedError : ``count`` of a stored table.

    Examples
    --------
    >>> import pyarrow, oocbe
    >>> sales = pyarrow.table({"shop": ["a", "a", "b"], "day": [0, 1, 1], "value": [5, 9, 4]})
    >>> rents = pyarrow.table({"shop": ["a", "b"], "value": [-3, -1]})
    >>> best = oocbe.aggregate(sales, rents, group_by=["shop"], aggregate="max")
    >>> best.to_arrow().to_pylist()
    [{'shop': 'a', 'value': 6}, {'shop': 'b', 'value': 3}]
    """
    limit = limit_of(memory)
    backend = None if backend is None else parse_backend("backend", backend)
    if not sources:
        raise UsageError("aggregate: there is no source")
    if any(isinstance(n, str) or not isinstance(n, Collection) for n in (group_by, within, () if on is None else on)):
        raise UsageError("aggregate: group_by, within and on are lists of columns")
    if not callable(explain or print) or not isinstance(rename or {}, Mapping):
        raise UsageError("aggregate: explain is a function such as print, and rename a dictionary of new names by old")
    asked = {} if isinstance(aggregate, str) else _asked(aggregate, group_by)
    if not (top is None or (asked and isinstance(top, int | np.integer) and top >= 1 and set(within) <= set(group_by))):
        raise UsageError("aggregate: top: a number from 1 on, of several aggregates, within columns of group_by")
    if output is not None and (not str(output).strip() or Path(output).suffix.lower() in OF_FILES):
        raise UsageError(
            f"aggregate: output: {str(output)!r}: give a folder for a stored table; results in memory have to_parquet, "
            "and oocbe join writes .parquet, .csv and .tsv"
        )
    if output is not None and (
        len(asked) > 1 or top is not None or any(p.other or len(p.parts) > 1 for p in asked.values())
    ):
        raise UsageError("aggregate: output: several aggregates are returned in memory; ask for one at a time")
    drop_nulls = parse_boolean("drop_nulls", drop_nulls)
    with sparing(), ExitStack() as closed:

        @cache
        def scratch() -> Path:
            from oocbe.tables.scratch import ScratchFolder, default_parent

            return closed.enter_context(closing(ScratchFolder(default_parent()))).path

        read = _opened(sources, rename, drop_nulls, keys or {})
        there = [source.names if isinstance(source, ColumnSource) else [*source.scope, VALUES] for source in read]
        names = _given(aggregate, values, read) if isinstance(aggregate, str) else _valued(asked, there)
        valued = [{own[number] for own in names.values()} for number in range(len(read))]
        if on is None:
            of_any = set().union(*valued) if asked else set()
            of_any |= {name for name in _every(there) if NAMELESS_INDEX.fullmatch(name)}
            on = [name for name in _shared(_keys(there, valued)) if name not in of_any]
        kept = {p: _needed(_keys(there, valued, p.other), read, [*group_by, *p.other], on) for p in names}
        _warn_of_parts(sources, there, on)
        every = [_every([own[number] for own in kept.values()]) for number in range(len(read))]
        wanted = [[*own, *(n for n in has if n in of)] for own, of, has in zip(every, valued, there, strict=True)]
        most = int(limit * SOURCE_SHARE)
        pairs = zip(read, wanted, strict=True)
        once = [s.once(n or s.names[:1], most) if isinstance(s, ColumnSource) else s for s, n in pairs]
        domains = _domains(once, every, limit)
        if len(names) > 1:  # after the use of their statistics; all are held until the last aggregate
            pairs, share = zip(once, wanted, strict=True), most // len(once)
            once = [s.once(n, share, of_files=True) if n and isinstance(s, ColumnSource) else s for s, n in pairs]
        layout = layout_for(list(domains), domains)
        found: dict[_Part, Any] = {}
        for part, columns in names.items():
            semiring = _semiring(part, combine, read, columns)
            readings = []
            for number, source in enumerate(once):
                beside = wanted[number] if asked and drop_nulls else []
                value, label = None if part.how == "count" else columns[number], f"source {number}"
                own = kept[part][number]
                readings.append(SourceReading(source, label, own, value, semiring, layout, most, beside))
            groups = [*group_by, *part.other]
            if explain:
                explain(f"{part}:")
            tables = reduced(readings, groups, lambda number: scratch() / f"{len(found)}-{number}", explain)
            found[part] = _contracted(tables, groups, limit, backend, closed, output, explain)
        if not asked or output is not None:
            return next(iter(found.values()))
        types = {n: s.type_of(n) for s in reversed(read) if isinstance(s, ColumnSource) for n in s.names}
        rows = _columns_of(found, asked, group_by, types)
        first, part = next(iter(asked.items()))
        return rows if top is None else _best(rows, top, within, first, part.how == "min")


class _Part(NamedTuple):
    """An aggregate of a column, and for argmax the other column whose entry is the result."""

    how: str
    column: str | None = None
    other: tuple[str, ...] = ()

    def __str__(self) -> str:
        return " ".join(filter(None, (self.how, self.column, *self.other)))

    @property
    def parts(self) -> tuple[_Part, ...]:
        """Aggregates from which it is computed."""
        return tuple(self._replace(how=how) for how in ("sum", "count")) if self.how == "mean" else (self,)


def _asked(named: Mapping[str, str | Sequence[str]], group_by: Sequence[str]) -> dict[str, _Part]:
    """Several aggregates by their names."""
    asked = {}
    if not isinstance(named, Mapping):
        raise UsageError(f"aggregate: {named!r}: give the name of one, or {{'best': ('max', column), 'rows': 'count'}}")
    for name, given in named.items():
        how, *columns = (given,) if isinstance(given, str) else tuple(given)
        if len(columns) != (0 if how == "count" else 2 if how in ("argmax", "argmin") else 1):
            raise UsageError(
                f"aggregate: {name!r}: give 'count', or a pair of aggregate and column, or ('argmax', column, other)"
            )
        if wrong := [own for own in columns if own in group_by] or columns[1:] * (columns[1:] == columns[:1]):
            raise UsageError(f"aggregate: {name!r}: {wrong[0]!r} is the column of values, or one of group_by as well")
        asked[name] = _Part(how, columns[0] if columns else None, tuple(columns[1:]))
    if wrong := sorted(set(asked).intersection(group_by)) or ([] if asked else [""]):
        raise UsageError(f"aggregate: {wrong[0]!r} names no aggregate, or a column of group_by as well")
    return asked


def _opened(
    sources: Sequence[Any], rename: Mapping[str, str] | None, drop_nulls: bool, keys: Mapping[str, Key]
) -> list[Any]:
    """Tables of oocbe as they are, all others as sources of columns, with those of ``keys``."""
    for name, key in keys.items():
        if isinstance(key, str) or len(key) != 2:
            raise UsageError(
                f"aggregate: keys: {name!r}: give a pair of a column and a function, such as ('day', 'month')"
            )
    functions = {name: (column, _function(name, given)) for name, (column, given) in keys.items()}
    read = [g if _is_table(g) else source_of(opened(g), rename, drop_nulls, functions) for g in sources]
    for number, source in enumerate(read):
        data = source.data if isinstance(source, ColumnSource) else None
        if isinstance(data, ArrowColumns) and data.what == ArrowColumns.what:
            held = replace(data, what=f"source {number} ({type(sources[number]).__name__})")
            read[number] = replace(source, data=held)
    check_renamed(rename, [source for source in read if isinstance(source, ColumnSource)])
    for name, (column, _) in functions.items():
        if not any(name in (s.names if isinstance(s, ColumnSource) else s.scope) for s in read):
            raise ModelError(f"aggregate: keys: {name!r}: no source has a column {column!r}")
    return read


def _is_table(given: Any) -> bool:
    """Whether it is a table of oocbe; some of their modules load compiled loops."""
    return type(given).__module__.startswith("oocbe.") and hasattr(given, "layout")


def _warn_of_parts(sources: Sequence[Any], there: Sequence[Sequence[str]], on: Sequence[str]) -> None:
    """Warn of two files with the same columns, such as a shell makes of a pattern: they are joined; and of a source
    that shares no column: its rows match all others."""
    seen: dict[frozenset[str], Any] = {}
    for number, (source, names) in enumerate(zip(sources, there, strict=True)):
        if len(sources) > 1 and not set(on).intersection(names):
            what = source if isinstance(source, str | Path) else f"source {number}"
            logging.getLogger("oocbe").warning(
                "%s, of columns %s, has none in common with others: each row is joined with all", what, ", ".join(names)
            )
        other = seen.setdefault(frozenset(names), source)
        if isinstance(source, str | Path) and isinstance(other, str | Path) and other != source:
            logging.getLogger("oocbe").warning(
                "%s and %s have the same columns, and are joined row with row; as parts of one table, give them "
                "as one: a list, or a pattern such as 'sales-*.csv', which a shell leaves as it is in quotes only",
                other,
                source,
            )
            return


def _given(how: str, values: str | Sequence[str | None] | None, read: Sequence[Any]) -> dict[_Part, list[str | None]]:
    """The column of values of each source, for one aggregate."""
    names = [values] * len(read) if values is None or isinstance(values, str) else list(values)
    if len(names) != len(read):
        raise UsageError(f"aggregate: values: {len(names)} columns for {len(read)} sources")
    for source, value in zip(read, names, strict=True) if how != "count" else ():
        if isinstance(source, ColumnSource) and value not in (None, *source.names):
            own = [value if not isinstance(s, ColumnSource) or value in s.names else None for s in read]
            known = f"there are: {', '.join(source.names)}; give a column or None for each source, as values={own}"
            raise ModelError(f"{source.what}: there is no column {value!r} of values; {known}")
    return {_Part(how): names}


def _valued(asked: Mapping[str, _Part], there: Sequence[Sequence[str]]) -> dict[_Part, list[str | None]]:
    """The column of values of each source, for each of several aggregates; None: the source has none."""
    names: dict[_Part, list[str | None]] = {}
    for part in (part for wanted in asked.values() for part in wanted.parts):
        names[part] = [part.column if part.column in own else None for own in there]
        if missing := [name for name in (part.column, *part.other) if name not in (None, *_every(there))]:
            known = f"no source has a column {missing[0]!r}; there are: {', '.join(_every(there))}"
            raise ModelError(f"aggregate: {part.how}: {known}")
    return names


def _function(name: str, given: str | Callable[[Any], Any]) -> Any:
    import pyarrow.compute as compute

    if not callable(given) and not hasattr(compute, given):
        known = "it has year, quarter, month, iso_week, day_of_week, hour and others"
        raise UsageError(f"aggregate: keys: {name!r}: pyarrow.compute has no function {given!r}; {known}")
    return given if callable(given) else getattr(compute, given)


def _in_memory(table: Any, limit: int) -> Any:
    if not isinstance(table, Table) and table.nbytes > limit:
        raise ResourceError(
            f"aggregate: the result has {table.nbytes:,} bytes, beyond the memory limit of {limit:,}; give output"
        )
    return table if isinstance(table, Table) else table.to_table()


def _columns_of(found: Mapping[_Part, Any], asked: Mapping[str, _Part], group_by: Sequence[str], types: Any) -> Any:
    """Several aggregates, as columns of an Arrow table; those of groups in the Arrow ``types`` of the sources."""
    arrow = pyarrow()
    shown = {}
    for part, table in found.items():
        names = [*group_by, *part.other]
        rows = table.to_arrow(ROW_VALUES)
        columns = {name: from_labels(rows.column(name), types.get(name)) for name in names}
        rows = arrow.table({**columns, ROW_VALUES: rows.column(ROW_VALUES)})
        if part.other:
            rows = _best(rows, 1, group_by, ROW_VALUES, part.how == "argmin")
        in_order = table.is_sorted and table.scope[::-1] == tuple(group_by) and not table.layout.labels
        shown[part] = rows if in_order or not group_by else rows.sort_by([(name, "ascending") for name in group_by])
    groups = next(iter(shown.values()))
    made = {name: groups.column(name) for name in group_by}
    for name, part in asked.items():
        own = [shown[kind].column([*kind.other, ROW_VALUES][0]) for kind in part.parts]
        made[name] = own[0] if len(own) == 1 else _quotient(*own)
    return arrow.table(made)


def _quotient(one: Any, other: Any) -> Any:
    import pyarrow.compute as compute

    return compute.divide(compute.cast(one, "float64", safe=False), other)


def _best(rows: Any, count: int, within: Sequence[str], column: str, is_least: bool) -> Any:
    """The rows of an Arrow table with the best entries of a column among those that agree ``within`` columns."""
    import pyarrow.compute as compute

    others = [name for name in rows.column_names if name not in within and name != column]
    keys = [(name, "ascending") for name in within]
    keys += [(column, "ascending" if is_least else "descending"), *((name, "ascending") for name in others)]
    rows = rows.sort_by(keys)
    begins = np.zeros(rows.num_rows, dtype=bool)
    for name in within:
        entries = rows.column(name)
        begins[1:] |= compute.not_equal(entries.slice(1), entries.slice(0, max(0, len(entries) - 1))).to_numpy()
    places = np.arange(rows.num_rows)
    return rows.filter(places - np.maximum.accumulate(np.where(begins, places, 0)) < count)


def _semiring(part: _Part, combine: str | None, read: Sequence[Any], columns: Sequence[str | None]) -> Semiring:
    """The semiring of an aggregate. Values of one source alone are combined with none, so that a sum has them, too."""
    aggregate = part.how.removeprefix("arg") if part.other else part.how
    chosen = combine or ("sum" if aggregate in ("max", "min") else "product")
    of = [source for source, column in zip(read, columns, strict=True) if column is not None]
    if chosen == "product" and aggregate in ("max", "min") and len(of) == 1 and isinstance(of[0], ColumnSource):
        chosen = "sum"
    if (aggregate, chosen) not in SEMIRINGS:
        known = ", ".join(f"{a} of a {c}" for a, c in SEMIRINGS)
        known += "; by names also mean, argmax, argmin: {'average': ('mean', column)}"
        raise UsageError(f"aggregate: {aggregate!r} of a {chosen!r} is unknown; known: {known}")
    return SEMIRINGS[aggregate, chosen]


def _keys(there: Sequence[Any], valued: Sequence[Any], others: Sequence[str] = ()) -> list[list[str]]:
    """Columns of each source that are not of values, or that argmax asks for."""
    return [[n for n in own if n not in of or n in others] for own, of in zip(there, valued, strict=True)]


def _every(columns: Sequence[Sequence[str]]) -> list[str]:
    return list(dict.fromkeys(name for own in columns for name in own))


def _shared(columns: Sequence[Sequence[str]]) -> list[str]:
    """Columns that several sources have."""
    return [name for name in _every(columns) if sum(name in own for own in columns) > 1]


def _needed(
    columns: Sequence[Sequence[str]], read: Sequence[Any], group_by: Sequence[str], on: Sequence[str]
) -> list[list[str]]:
    """Columns of each source that are grouped by, or that rows have to agree in."""
    if len(set(group_by)) < len(group_by):
        raise UsageError("aggregate: group_by: a column occurs twice")
    there = _every(columns)
    for what, given in (("group_by", group_by), ("on", on)):
        for name in given:
            if name not in there:
                raise ModelError(f"{what}: column {name!r} is in no source; there are: {', '.join(there)}")
    for name in set(group_by).difference(on).intersection(_shared(columns)):
        raise ModelError(f"group_by: column {name!r} is in several sources, and not in on; add it, or rename one")
    wanted = {*on, *group_by}
    return [
        [name for name in own if name in wanted] if isinstance(source, ColumnSource) else list(own)
        for source, own in zip(read, columns, strict=True)
    ]


def _domains(read: Sequence[Any], kept: Sequence[Sequence[str]], memory: int) -> dict[str, Domain]:
    """Common domains of the sources' columns, beginning with those of tables."""
    domains: dict[str, Domain] = {}
    for source in read:
        if not isinstance(source, ColumnSource):
            domains |= dict(zip(source.scope, source.layout.sizes, strict=True)) | dict(source.layout.labels or {})
    sources = [(source, own) for source, own in zip(read, kept, strict=True) if isinstance(source, ColumnSource)]
    return domains_in(sources, memory, domains)


def _contracted(
    tables: Sequence[Any], groups: Sequence[str], limit: int, backend: str | None, closed: ExitStack,
    output: str | Path | None, explain: Explain,
) -> Any:  # fmt: skip
    """The aggregate of the join of tables, as a table over the groups."""
    is_one = len(tables) == 1 and isinstance(tables[0], Table) and tables[0].is_sorted
    if is_one and set(tables[0].scope) == set(groups) and output is None:
        if explain:
            explain(f"  one table with a row for each of {tables[0].rows} groups: no step")
        return tables[0]
    from oocbe.api.contraction import Contractions, EinsumExpression, path_of  # and with it the compiled loops

    sizes: dict[str, int] = {}
    for table in tables:
        for name, size in zip(table.scope, table.layout.sizes, strict=True):
            if sizes.setdefault(name, size) != size:
                raise ModelError(
                    f"aggregate: variable {name!r} has {sizes[name]} values in one table, {size} in another"
                )
    expression = EinsumExpression(tuple(tuple(table.scope) for table in tables), tuple(groups), sizes)
    path = path_of(expression, rows=[table.rows for table in tables])
    if explain:
        explain(f"  {path}")
    table = Contractions(path, limit, backend, closed).run(list(tables), output, explain=explain)
    return _in_memory(table, limit) if output is None else table
