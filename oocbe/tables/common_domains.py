"""Common domains of the variables of several tables: greatest integers, or labels.

Greatest integers are read from Parquet's row-group statistics where present; labels take one pass over their columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from oocbe.errors import ModelError, ResourceError
from oocbe.model.settings.machine import default_memory_limit
from oocbe.model.settings.option_values import parse_bytes
from oocbe.runtime.framed import pyarrow
from oocbe.tables.arrow import check_label_type, label_type, labels_of
from oocbe.tables.columns import LARGEST_LABELS, Domain, check_scope
from oocbe.tables.layout import Label, Labels, check_integers
from oocbe.tables.parquet_source import ColumnSource, batch_rows, check_renamed, source_of, sparing

LABEL_BYTES = 100
"""Bytes of a label in addition to its text: in Python, in a dictionary, in Arrow."""


def common_domains(
    *sources: Any,
    values: str = "value",
    scope: Sequence[str] | None = None,
    rename: Mapping[str, str] | None = None,
    drop_nulls: bool = False,
    memory: int | str | None = None,
) -> dict[str, Domain]:
    """Common domains of the variables of several tables, as needed for joining them.

    Parameters
    ----------
    sources : Parquet files or folders of them, by path or URL; or objects with Arrow's interface (data frames, Arrow
        tables).
    values : name of the column of values. scope : columns that are variables; None: all others.
    rename : new names of columns, in all sources that have them: ``{"date": "day"}``.
    drop_nulls : whether to skip rows with missing entries; otherwise they are refused.
    memory : limit in bytes (or text such as ``2GiB``) on labels; None: 80 % of the available memory.

    Returns
    -------
    Domain of each variable: a number of values for integers from 0 on, otherwise labels in the order of their numbers.

    Raises
    ------
    ModelError : a column is missing, has missing entries, or is text in one table and integers in another.
    ResourceError : labels exceed the memory limit. UsageError : an unreadable source, or pyarrow is missing.
    FormatError : not a Parquet file.
    """
    limit = limit_of(memory)
    found = [source_of(given, rename, drop_nulls) for given in sources]
    check_renamed(rename, found)
    for name in scope or ():
        if not any(name in source.columns for source in found):
            there = ", ".join(dict.fromkeys(column for source in found for column in source.columns))
            raise ModelError(f"column {name!r} is in no table; there are: {there}")
    with sparing():
        wanted = [None if scope is None else [name for name in scope if name in source.columns] for source in found]
        names = [check_scope(s.names, values, own, s.what) for s, own in zip(found, wanted, strict=True)]
        return domains_in(list(zip(found, names, strict=True)), limit)


def _zone(kind: Any) -> str | None:
    """The time zone of timestamps, by one name for the one that has several."""
    return "UTC" if kind.tz in ("Etc/UTC", "+00:00", "Z") else kind.tz


def domains_in(
    sources: Sequence[tuple[ColumnSource, Sequence[str]]], memory: int, known: Mapping[str, Domain] | None = None
) -> dict[str, Domain]:
    """Common domains of some columns of each source; ``known``: those of other tables. Errors as for `domain_in`."""
    domains, zones = dict(known or {}), dict[str, Any]()
    for source, names in sources:
        for name in names:
            kind = source.type_of(name)
            if pyarrow().types.is_timestamp(kind) and _zone(zones.setdefault(name, kind)) != _zone(kind):
                other = f"of type {zones[name]} in another table; convert both to one time zone, or to none"
                raise ModelError(f"{source.what}: column {name} is of type {kind}, and {other}")
    labelled = {
        name
        for source, names in sources
        for name in names
        if pyarrow().types.is_integer(source.type_of(name)) and not _is_index(_integers(source, name, memory))
    }
    for source, names in sources:
        for name in names:
            domains[name] = domain_in(source, name, memory, domains.get(name), name in labelled)
    return {name: domain or 1 for name, domain in domains.items()}  # a domain has at least one value


def limit_of(memory: int | str | None) -> int:
    """A limit in bytes; None: 80 % of the available memory."""
    limit = parse_bytes("memory", memory)
    return default_memory_limit() if limit is None else limit


def _is_index(ends: tuple[int, int]) -> bool:
    """Whether integers between these are value indices; otherwise they are labels."""
    return ends[0] >= 0 and ends[1] < 1 << 62


def domain_in(
    source: ColumnSource, name: str, memory: int, before: Domain | None = None, labels_integers: bool = False
) -> Domain:
    """Domain of one column, merged with the domain from other tables; no labels if no table has a row.

    labels_integers : whether integers are labels, as some of another table are below 0.

    Raises ModelError: missing entries, or a type that labels cannot have; ResourceError: labels exceed the memory.
    """
    types = pyarrow().types
    what, kind = source.what, source.type_of(name)
    labels = kind.value_type if types.is_dictionary(kind) else kind
    if types.is_null(labels):  # there are no rows, or reading refuses them
        return () if before is None else before
    if not types.is_integer(kind):
        check_label_type(name, labels, what)
        if isinstance(before, int):
            raise ModelError(
                f"{what}: column {name} is of type {kind}, and integers in another table; cast one of both"
            )
        if before is not None and set(map(type, before)) - {label_type(labels)}:
            raise ModelError(
                f"{what}: column {name} is of type {kind}, and has other labels in another table; cast one of both"
            )
    elif before is None or isinstance(before, int):
        low, high = _integers(source, name, memory)
        if _is_index((low, high)) and not (labels_integers and before is None):
            return max(high + 1, before or 1)
        if before is not None:
            raise ModelError(
                f"{what}: column {name} has integers from {low}, and those of another table begin at 0; give the "
                "domain's labels for both"
            )
    elif not all(type(label) is int for label in before):
        raise ModelError(
            f"{what}: column {name} is of type {kind}, and has other labels in another table; cast one of both"
        )
    known = () if before is None or isinstance(before, int) else before
    found = _labels_in(source, name, memory, known)
    try:
        check_integers(name, found)
    except ModelError as error:
        raise ModelError(f"{what}: {error}") from None
    return found


def _pieces(source: ColumnSource, name: str, memory: int) -> Iterator[Any]:
    """One column, array by array."""
    for batch in source.batches([name], batch_rows(memory, LABEL_BYTES)):
        yield labels_of(name, batch.column(0), source.what)


def _integers(source: ColumnSource, name: str, memory: int) -> tuple[int, int]:
    """Least (or 0) and greatest integer of a column, from statistics where present."""
    found = source.statistics(name)
    if found is not None:
        return found
    import pyarrow.compute as compute

    low, high = 0, 0
    for data in _pieces(source, name, memory):
        edges = compute.min_max(data).as_py()
        low, high = min(low, edges["min"]), max(high, edges["max"])
    return low, high


def _labels_in(source: ColumnSource, name: str, memory: int, before: Sequence[Label]) -> tuple[Label, ...]:
    """The given labels, then the new ones of a column: those of dictionaries in their order, all others ascending."""
    import pyarrow.compute as compute

    seen: dict[Any, None] = dict.fromkeys(before)
    first, nbytes, in_order = len(seen), 0, False
    for data in _pieces(source, name, memory):
        in_order = hasattr(data, "dictionary") and pyarrow().types.is_dictionary(source.type_of(name))
        used = data.dictionary.take(compute.unique(data.indices)) if hasattr(data, "dictionary") else data
        different = data.dictionary if in_order else compute.unique(used)
        known = len(seen)
        seen.update(dict.fromkeys(different.to_pylist()))
        if len(seen) > known:
            nbytes += (len(seen) - known) * LABEL_BYTES + different.nbytes
        if nbytes > memory // 2 or len(seen) > LARGEST_LABELS:
            raise ResourceError(
                f"{source.what}: column {name} has more than {known:,} labels; {nbytes:,} bytes would have to be in "
                f"memory; number them from 0 before, or raise the limit of {memory:,} bytes"
            )
    seen.pop(None, None)  # an unused null entry of a dictionary
    labels = list(seen)
    return Labels(labels if in_order else [*labels[:first], *sorted(labels[first:])])
