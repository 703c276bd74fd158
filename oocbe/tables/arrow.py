"""Conversion of tables to and from Arrow by pyarrow (an extra): whole tables, and pieces of larger ones.

Accepted: objects with ``__arrow_c_stream__`` or ``__arrow_c_array__`` (the Arrow PyCapsule interface: pyarrow, pandas,
Polars, DuckDB). Labels are exported as Arrow dictionaries, and read back in their order.

Decimals as values become integers if they have no places behind the point, otherwise the nearest floats; or are
refused. A float64 represents every decimal of up to 15 digits, and each of up to 2^53 units of its last place; reading
and writing one gives the same digits. Larger ones would lose their last digits and are refused; the error names the
column.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import ModelError, UsageError
from oocbe.runtime.framed import pyarrow
from oocbe.tables.chunk_files import column_dtype, columns_of
from oocbe.tables.columns import Column, Domain, Rows, row_of
from oocbe.tables.layout import Label, Labels, Layout, label_array


def arrow_table(data: object) -> Any:
    """A pyarrow.Table of an object with Arrow's interface; UsageError: it has none, or no pyarrow."""
    arrow = pyarrow()
    if isinstance(data, arrow.Table):
        return data
    if hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__"):
        try:
            return arrow.table(data)
        except (arrow.ArrowException, ValueError, OverflowError) as error:  # pandas: two columns of one name
            known = f"columns of one type each, integers of 64 bits: {error}; rename or cast one"
            raise ModelError(f"{type(data).__name__}: cannot be read as {known}") from None
    way = "give what its collect() returns" if hasattr(data, "collect") else "make one, such as pyarrow.table(...)"
    raise UsageError(
        f"{type(data).__name__} has neither __arrow_c_stream__ nor __arrow_c_array__, by which tables are exchanged; "
        + ("give each table by itself" if isinstance(data, list | tuple) else way)
    )


def column_of(name: str, data: Any, what: str, domain: Domain | None = None, first: int = 0) -> Column:
    """An Arrow column (ChunkedArray or Array) of a variable.

    domain : domain of the labels, if known. first : number of the first row, for messages.

    Raises ModelError: a missing entry (null), an entry outside the domain, or a type that labels cannot have.
    """
    import pyarrow as arrow

    refuse_nulls(name, data, what, first)
    data = labels_of(name, data, what)
    kind = data.type
    if arrow.types.is_null(kind):  # of text in a pandas frame without rows, for example
        return Column(name, np.zeros(0, dtype=np.int64))
    if arrow.types.is_integer(kind) and not (domain is not None and not isinstance(domain, int)):
        numbers = _numbers(data)
        if domain is not None or not len(numbers) or (numbers.min() >= 0 and numbers.max() < 1 << 62):
            return Column(name, numbers)
        different, places = np.unique(numbers, return_inverse=True)
        return Column(name, places, Labels(different.tolist()))
    import pyarrow.compute as compute

    given = None if domain is None or isinstance(domain, int) else Labels.of(domain)
    if not arrow.types.is_dictionary(kind):
        check_label_type(name, kind, what)
        if arrow.types.is_string_view(kind):  # Arrow has no index_in for string views
            data = data.cast(arrow.string())
        if given is not None:
            return Column(name, _looked_up(name, data, what, given, first), given)
        data = _of_one_dictionary(data.dictionary_encode())
        order = compute.sort_indices(data.dictionary)
        places = np.empty(len(order), dtype=np.int32)
        places[_numbers(order)] = np.arange(len(order))
        return Column(name, places[_numbers(data.indices)], Labels(data.dictionary.take(order).to_pylist()))
    check_label_type(name, kind.value_type, what)
    parts = data.chunks if isinstance(data, arrow.ChunkedArray) else [data]
    if any(part.dictionary.null_count for part in parts):  # Arrow unifies no dictionaries with nulls
        return column_of(name, data.cast(kind.value_type), what, domain, first)
    data = _of_one_dictionary(data)
    labels = data.dictionary
    known = given if is_text(kind.value_type) else None
    if known is not None and len(labels) <= len(data):
        return Column(name, _looked_up(name, data, what, known, first), known)
    if known is not None or len(labels) == 0 or len(compute.unique(labels)) != len(labels):
        return column_of(name, data.dictionary_decode(), what, domain, first)
    return Column(name, _numbers(data.indices), Labels(labels.to_pylist()))


def _of_one_dictionary(data: Any) -> Any:
    """A dictionary column as one array."""
    import pyarrow as arrow

    if isinstance(data, arrow.ChunkedArray):
        kind, data = data.type, data.unify_dictionaries().combine_chunks()
        if isinstance(data, arrow.ChunkedArray):  # of no chunks
            data = data.chunk(0) if data.num_chunks else arrow.array([], type=kind)
    return data


def is_text(kind: Any) -> bool:
    """Whether a column of an Arrow type may be read as dictionaries of its text."""
    return str(kind) in ("string", "large_string")


def _looked_up(name: str, data: Any, what: str, domain: Labels, first: int) -> NDArray[np.integer]:
    """Index (rows,) of each entry of an Arrow column (integers, truth values or text) among the labels; of an array
    with a dictionary, only its entries are looked up."""
    import pyarrow as arrow
    import pyarrow.compute as compute

    rows, has_dictionary = data, arrow.types.is_dictionary(data.type)
    data = data.dictionary if has_dictionary else data
    kind = data.type
    if not len(rows):  # of any type
        return np.zeros(0, dtype=np.int64)
    if arrow.types.is_integer(kind) and not arrow.types.is_uint64(kind):
        data = data.cast(arrow.int64())  # labels may exceed the range of a narrow column
    own = label_type(kind)
    if domain.kinds - {own}:
        other = next(label for label in domain if type(label) is not own)
        raise ModelError(f"{what}: column {name} is of type {kind}, and its domain has the label {other!r}")
    if len(data) < len(domain):  # Arrow's hash table of the labels would take longer than the look-ups, in each batch
        places = np.array([domain.places.get(label, -1) for label in data.to_pylist()], dtype=np.int64)
    else:
        if own is str:
            labels = label_column(name, domain).cast(data.type)
        else:
            least, past = (0, 1 << 64) if arrow.types.is_uint64(kind) else (-(1 << 63), 1 << 63)
            labels = arrow.array([label if least <= int(label) < past else None for label in domain], type=data.type)
        found = compute.index_in(data, value_set=labels)
        places = _numbers(found.fill_null(-1) if found.null_count else found)  # the former imports pandas
    if has_dictionary:
        places = places[_numbers(rows.indices)]
    if len(wrong := np.flatnonzero(places < 0)):
        row = int(wrong[0])
        raise ModelError(
            f"{what}: column {name}, {row_of(first + row)}: {rows[row].as_py()!r} is not among the "
            f"{len(domain):,} labels of its domain"
        )
    return places


def check_label_type(name: str, kind: Any, what: str) -> None:
    """Refuse (ModelError) a column type that variables cannot have."""
    import pyarrow as arrow

    types = arrow.types
    if not (
        types.is_integer(kind) or types.is_boolean(kind) or types.is_string(kind) or types.is_large_string(kind)
        or types.is_string_view(kind) or types.is_date(kind) or types.is_timestamp(kind) or types.is_decimal(kind)
    ):  # fmt: skip
        raise ModelError(
            f"{what}: column {name} is of type {kind}; variables are integers, truth values, text, dates, "
            "timestamps, decimals or dictionaries of these: cast it before (of a join also by keys, such as {'day': "
            "('time', lambda column: column.cast('int64'))}), or leave it out (by scope; of a join by on)"
        )


def labels_of(name: str, data: Any, what: str) -> Any:
    """An Arrow column of a variable with dates, timestamps and decimals as text, equal for equal entries of any unit or
    scale: ``2026-11-23``, also for a timestamp at midnight, ``2026-11-23 10:15:00``, ``-1.5``.

    Timestamps with a time zone are local times.

    Raises ModelError: a timestamp with a fraction of a microsecond, or in the second of two hours of one local time.
    """
    import pyarrow as arrow

    types, kind = arrow.types, data.type
    if types.is_dictionary(kind) and types.is_string_view(kind.value_type):
        return data.cast(arrow.dictionary(kind.index_type, arrow.string()))  # views have few kernels
    unlabelled = (types.is_temporal, types.is_decimal, types.is_null)
    if types.is_dictionary(kind) and any(is_of(kind.value_type) for is_of in unlabelled):
        data = data.cast(kind.value_type)
        kind = data.type
    if not (types.is_timestamp(kind) or types.is_decimal(kind) or types.is_date(kind)):
        return data
    import pyarrow.compute as compute

    different = compute.unique(data)
    if types.is_timestamp(kind):
        local = compute.local_timestamp(different) if kind.tz else different
        if kind.tz and len(local) and not from_labels(local, kind).equals(different):
            raise ModelError(f"{what}: column {name} has times of an hour that the end of summer time repeats; use UTC")
        try:
            texts = local.cast(arrow.timestamp("us")).cast(arrow.string())
        except arrow.ArrowInvalid as error:
            raise ModelError(f"{what}: column {name} has times that microseconds cannot represent: {error}") from None
        texts = compute.replace_substring_regex(texts, "( 00:00:00)?[.]0+$", "")
    elif types.is_decimal(kind):
        shown = (f"{number:f}" for number in different.to_pylist())
        texts = arrow.array([t.rstrip("0").rstrip(".") if "." in t else t for t in shown], arrow.string())
    else:
        texts = different.cast(arrow.string())
    return texts.take(compute.index_in(data, value_set=different))


def from_labels(data: Any, kind: Any) -> Any:
    """A column of exported labels or value indices in the Arrow type of a source's column; None: as it is."""
    import pyarrow as arrow

    types = arrow.types
    data = data.cast(data.type.value_type) if types.is_dictionary(data.type) else data
    kind = kind.value_type if kind is not None and types.is_dictionary(kind) else kind
    if kind is None or types.is_null(kind):
        return data
    kind = arrow.string() if types.is_string_view(kind) else kind
    if not len(data):  # of positions: there were no labels
        return arrow.chunked_array([], kind)
    if types.is_timestamp(kind) and kind.tz:
        import pyarrow.compute as compute

        local = data.cast(arrow.timestamp(kind.unit))
        return compute.assume_timezone(local, kind.tz, ambiguous="earliest", nonexistent="earliest")
    return data.cast(kind)


def label_type(kind: Any) -> type[Label]:
    """Python type of the labels of a column of an Arrow type accepted by :func:`check_label_type`."""
    import pyarrow as arrow

    return int if arrow.types.is_integer(kind) else bool if arrow.types.is_boolean(kind) else str


def refuse_nulls(name: str, data: Any, what: str, first: int = 0) -> None:
    """Refuse (ModelError) a column with missing entries; the message names the first such row."""
    if data.null_count:
        import pyarrow as arrow

        row = data.is_null().index(arrow.scalar(True)).as_py()
        raise ModelError(
            f"{what}: column {name}, {row_of(first + row)}: nothing is there (null); drop such rows "
            "(drop_nulls, --drop-nulls), or fill them"
        )


def _numbers(data: Any) -> NDArray[Any]:
    """The entries (rows,) of an Arrow column without missing ones; of integers and floats without Arrow's import of
    pandas, which takes longer than a million rows."""
    import pyarrow as arrow

    if hasattr(data, "chunks") and data.num_chunks:
        parts = [_numbers(chunk) for chunk in data.chunks]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)
    if len(data) and (arrow.types.is_integer(data.type) or arrow.types.is_floating(data.type)):
        kind, end = np.dtype(data.type.to_pandas_dtype()), data.offset + len(data)
        return np.frombuffer(data.buffers()[1], kind, count=end)[data.offset :]
    numbers: NDArray[Any] = data.to_numpy() if hasattr(data, "chunks") else data.to_numpy(zero_copy_only=False)
    return numbers


def numbers_of(name: str, data: Any, what: str, first: int = 0) -> NDArray[Any]:
    """Values (rows,) of an Arrow column; ModelError for missing entries."""
    import pyarrow as arrow

    refuse_nulls(name, data, what, first)
    kind = data.type
    if arrow.types.is_decimal(kind):
        return arrow_decimals(name, data, what, first)
    return _numbers(data).astype(value_kind(name, kind, what), copy=False)


def value_kind(name: str, kind: Any, what: str) -> np.dtype[Any]:
    """NumPy dtype of values of an Arrow type; ModelError for types that values cannot have."""
    import pyarrow as arrow

    if arrow.types.is_decimal(kind):
        return decimal_dtype(kind.scale)
    if arrow.types.is_null(kind):  # there are no rows, as missing entries are refused
        return np.dtype(np.int64)
    if not (arrow.types.is_integer(kind) or arrow.types.is_floating(kind) or arrow.types.is_boolean(kind)):
        kind = kind.value_type if arrow.types.is_dictionary(kind) else kind  # text may be read as dictionaries
        raise ModelError(
            f"{what}: column {name} is of type {kind}; values are integers, floats or decimals: cast it before"
        )
    found: np.dtype[Any] = np.dtype(kind.to_pandas_dtype())
    return found


def schema_of(layout: Layout, dtype: np.dtype[Any], values: str) -> Any:
    """Arrow schema of a table: one column per variable (dictionaries for labels), and one of values."""
    arrow = pyarrow()
    if values in layout:
        raise UsageError(f"the column of values cannot be called {values!r}: that is a variable; name another")
    fields = []
    for name, size in zip(layout.scope, layout.sizes, strict=True):
        kind = arrow.from_numpy_dtype(column_dtype(size))
        if name in layout.labels:
            own = label_column(name, layout.labels[name]).type
            kind = own if arrow.types.is_boolean(own) else arrow.dictionary(kind, own)
        fields.append(arrow.field(name, kind, nullable=False))
    return arrow.schema([*fields, arrow.field(values, arrow.from_numpy_dtype(dtype), nullable=False)])


def label_column(name: str, labels: Sequence[Label]) -> Any:
    """Labels as an Arrow array: truth values, integers, or text."""
    if not isinstance(labels, Labels):
        return _labels(name, labels)
    if labels.array is None:
        labels.array = _labels(name, labels)
    return labels.array


def _labels(name: str, labels: Sequence[Label]) -> Any:
    arrow = pyarrow()
    if all(isinstance(label, bool) for label in labels):
        return arrow.array(labels, type=arrow.bool_())
    if (integers := label_array(name, labels)) is not None:
        return array_of(integers)
    if not all(isinstance(label, str) for label in labels):
        raise UsageError(f"labels of the variable {name} are of several types; Arrow's dictionaries have one")
    texts = [str(label).encode() for label in labels]
    ends = np.cumsum([0, *map(len, texts)])
    if ends[-1] >= 1 << 31:
        return arrow.array(labels, type=arrow.large_string())
    return arrow.StringArray.from_buffers(len(texts), *map(arrow.py_buffer, (ends.astype(np.int32), b"".join(texts))))


def array_of(numbers: NDArray[Any]) -> Any:
    """Integers or floats (rows,) as an Arrow array, without Arrow's import of pandas."""
    arrow = pyarrow()
    buffers = [None, arrow.py_buffer(np.ascontiguousarray(numbers))]
    return arrow.Array.from_buffers(arrow.from_numpy_dtype(numbers.dtype), len(numbers), buffers)


def batches_of(layout: Layout, schema: Any, pieces: Iterable[Rows]) -> Iterator[Any]:
    """Record batches of pieces of a table, one per piece."""
    arrow = pyarrow()
    labels = {name: label_column(name, own) for name, own in layout.labels.items()}
    for keys, values in pieces:
        columns = []
        for name, indices in zip(layout.scope, columns_of(layout, keys), strict=True):
            column = array_of(indices)
            if name in labels:
                plain = arrow.types.is_boolean(labels[name].type)
                column = labels[name].take(column) if plain else arrow.DictionaryArray.from_arrays(column, labels[name])
            columns.append(column)
        yield arrow.RecordBatch.from_arrays([*columns, array_of(values)], schema=schema)


def whole_table(layout: Layout, rows: Rows, values: str) -> Any:
    """A pyarrow.Table of the rows of a table in memory."""
    schema = schema_of(layout, rows[1].dtype, values)
    return pyarrow().Table.from_batches(batches_of(layout, schema, [rows]), schema)


def reader_of(layout: Layout, dtype: np.dtype[Any], pieces: Iterable[Rows], values: str) -> Any:
    """A pyarrow.RecordBatchReader of rows that are produced piece by piece."""
    schema = schema_of(layout, dtype, values)
    return pyarrow().RecordBatchReader.from_batches(schema, batches_of(layout, schema, pieces))


MOST_UNITS = 1 << 53
"""Integers up to this, and powers of ten up to the 22nd, are exact in float64; their quotient is rounded once."""

MOST_PLACES = 22
"""Largest exponent of a power of ten that is a float."""


def decimal_dtype(scale: int) -> np.dtype[Any]:
    """Dtype of values with ``scale`` places behind the point."""
    return np.dtype(np.float64 if scale > 0 else np.int64)


def arrow_decimals(name: str, data: Any, what: str, first: int) -> NDArray[Any]:
    """Values (rows,), of :func:`decimal_dtype`, of an Arrow column of decimals without missing entries.

    Raises ModelError: one exceeds the range of int64 or float64; the message names its row.
    """
    scale, width = data.type.scale, data.type.bit_width
    if not len(data):
        return np.zeros(0, dtype=decimal_dtype(scale))
    data = data.combine_chunks() if hasattr(data, "chunks") else data
    words = np.frombuffer(data.buffers()[1], dtype=np.int32 if width == 32 else np.int64)
    words = words.reshape(-1, max(1, width // 64))[data.offset : data.offset + len(data)]
    units = words[:, 0].astype(np.int64)
    factor = 10 ** abs(scale)
    limit = ((1 << 63) - 1) // factor if scale <= 0 else MOST_UNITS if scale <= MOST_PLACES else 0
    wrong = (words[:, 1:] != (units >> 63)[:, np.newaxis]).any(axis=1) | (units > limit) | (units < -limit)
    if wrong.any():
        row = int(np.argmax(wrong))
        kind = "a float64 holds" if scale > 0 else "64 bits with a sign hold"
        raise ModelError(
            f"{what}: column {name}, {row_of(first + row)}: the decimal {data[row].as_py()} has more digits than "
            f"{kind}; round it, or cast the column before"
        )
    if scale > 0:
        return np.asarray(units / float(min(factor, 10**MOST_PLACES)))  # all are 0 with more places
    return units * np.int64(factor) if limit else units  # all are 0
