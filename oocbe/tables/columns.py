"""Columns of a data frame or an Arrow table as keys and values: numbered, labelled, checked.

Integers from 0 on are value indices; the domain extends to the greatest. The values of other columns (text, truth
values, categories, integers below 0) are numbered by their labels. Tables that are to be joined need one common
numbering (:func:`oocbe.common_domains`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import ModelError
from oocbe.model.model_checks import as_array, as_values
from oocbe.model.semiring import Semiring
from oocbe.tables.layout import Label, Labels, Layout, check_integers, merged_ranges
from oocbe.tables.numbers import VALUE_DTYPES, check_numbers

Domain: TypeAlias = int | Sequence[Label]
"""Domain of a variable: its number of values, named 0, 1, …; or their labels."""

Domains: TypeAlias = Mapping[str, Domain]
"""Domain of each variable, by name."""

Rows: TypeAlias = tuple[NDArray[np.uint64], NDArray[Any]]
"""Keys uint64 (words, rows) and values (rows,) of some rows."""

NAMELESS_INDEX = re.compile(r"(__index_level_\d+__)?")
"""Names for the nameless index of a pandas frame, pyarrow's and that of CSV: row numbers, not a variable."""

RADIX_ROWS = 1 << 16
"""Rows from which the radix sort is faster than NumPy's, the loading of its loops (0.1 s) included."""

LARGEST_LABELS = 1 << 28
"""Limit on the labels of a variable. Each takes about 100 bytes of memory; a larger number is considered a mistake."""


@dataclass(frozen=True)
class Column:
    """One column of the input.

    name : its name.
    indices : integers (rows,): value indices, or indices of labels.
    labels : labels of the values; None: the integers are the values themselves.
    """

    name: str
    indices: NDArray[np.integer]
    labels: tuple[Label, ...] | None = None

    def domain(self) -> Domain:
        """The smallest domain for this column."""
        if self.labels:
            return self.labels
        return int(self.indices.max()) + 1 if len(self.indices) else 1  # a domain has at least one value

    def numbered(self, domain: Domain, what: str, first: int = 0) -> NDArray[np.integer]:
        """Value indices (rows,) in a domain.

        what, first : name of the source, and number of its first row, for messages.

        Raises ModelError: a value outside the domain; the message names its row.
        """
        if self.labels is not None and self.labels is domain:
            return self.indices
        if isinstance(domain, int):
            if self.labels:
                raise ModelError(
                    f"{what}: column {self.name} has labels, and its domain is given as a number, {domain}"
                )
            wrong = (self.indices < 0) | (self.indices >= domain)
            self._refuse(wrong, f"0 to {domain - 1}", what, first)
            return self.indices
        places = Labels.of(domain).places
        own = np.array([places.get(label, -1) for label in self.labels or ()], dtype=np.int64)
        found = own[self.indices] if len(own) else np.zeros(0, dtype=np.int64)
        self._refuse(found < 0, f"the {len(domain):,} labels of its domain", what, first)
        return found

    def _refuse(self, wrong: NDArray[np.bool_], domain: str, what: str, first: int) -> None:
        if wrong.any():
            row = int(np.argmax(wrong))
            value = int(self.indices[row]) if self.labels is None else self.labels[int(self.indices[row])]
            raise ModelError(f"{what}: column {self.name}, {row_of(first + row)}: {value!r} is not among {domain}")


def layout_for(scope: Sequence[str], domains: Domains) -> Layout:
    """Layout of known domains; ModelError: labels not text or integers of 64 bits, or one twice."""
    sizes, labels = [], {}
    for name in scope:
        domain = domains[name]
        if isinstance(domain, int):
            sizes.append(domain)
            continue
        own = Labels.of(domain)
        if not all(issubclass(kind, str | int) for kind in set(map(type, own))):
            raise ModelError(f"variable {name}: labels are text or integers")
        if len(set(own)) != len(own) or not own:
            raise ModelError(f"variable {name}: no labels, or one of them twice")
        check_integers(name, own)
        sizes.append(len(own))
        labels[name] = own
    return Layout(tuple(scope), tuple(sizes), labels)


def keys_of(columns: Sequence[Column], layout: Layout, what: str, first: int = 0) -> NDArray[np.uint64]:
    """Keys uint64 (words, rows) of columns in the order of a layout's scope; errors as for :meth:`Column.numbered`."""
    keys = np.zeros((layout.words, len(columns[0].indices) if columns else 0), dtype=np.uint64)
    for column, field, size in zip(columns, layout.fields, layout.sizes, strict=True):
        indices = column.numbered(layout.labels.get(column.name, size), what, first)
        keys[field.word] |= np.left_shift(indices, np.uint64(field.shift), dtype=np.uint64, casting="unsafe")
    return keys


def value_dtype(given: np.dtype[Any], what: str) -> np.dtype[Any]:
    """Dtype of a table's values for values of the given dtype: the narrowest that represents all of them.

    Raises ModelError: not numbers, or of a dtype that tables do not support.
    """
    given = given.newbyteorder("=")
    if given in VALUE_DTYPES:
        return given
    if given.kind in "iub" and given.itemsize <= 8:
        return np.dtype(np.int32 if given.itemsize <= 2 else np.int64)
    if given.kind == "f":  # half, or extended precision
        return np.dtype(np.float32 if given.itemsize < 4 else np.float64)
    raise ModelError(f"{what}: values of {given}; tables have {', '.join(d.name for d in VALUE_DTYPES)}")


def values_of(given: NDArray[Any], dtype: np.dtype[Any], what: str) -> NDArray[Any]:
    """Values of any shape in a table's dtype; ModelError if an unsigned one exceeds 64 bits with a sign."""
    if given.dtype == np.uint64 and given.size and int(given.max()) >= 1 << 63:
        raise ModelError(f"{what}: a value is {int(given.max())}, beyond 64 bits with a sign")
    return np.ascontiguousarray(given, dtype=dtype).reshape(given.shape)


def given_values(what: str, given: object, kept: Sequence[np.dtype[Any]] = VALUE_DTYPES) -> NDArray[Any]:
    """A caller's values in a kept dtype, or the nearest one of tables; ModelError, ValueRangeError: none holds them."""
    array = as_array(f"{what}: values", given)
    if not isinstance(given, np.ndarray) or array.dtype.kind not in "iubf" or array.dtype == np.uint64:
        numbers = as_values(f"{what}: values", given)  # type: ignore[arg-type]
        return array if array.dtype in kept else numbers
    return array if array.dtype in kept else values_of(array, value_dtype(array.dtype, what), what)


def row_of(number: int) -> str:
    """Text for a row in a message, numbered as in data frames and Arrow."""
    return f"row {number:,} (the first is 0)"


def check_values(what: str, rows: NDArray[np.integer], layout: Layout) -> None:
    """Refuse (ModelError) value indices (rows, variables) outside the domains; the message names the first such row."""
    if not rows.size:
        return
    wrong = (rows < 0) | (rows >= np.array(layout.sizes, dtype=np.int64))
    if wrong.any():
        row, column = np.argwhere(wrong)[0].tolist()
        name, size = layout.scope[column], layout.sizes[column]
        value = rows[row, column]
        raise ModelError(f"{what}: {row_of(row)}: {value} lies outside the domain of {name}, which is 0 to {size - 1}")


def check_scope(names: Sequence[str], values: str, scope: Sequence[str] | None, what: str) -> list[str]:
    """The variables' columns: those of the scope, or all but the values and a nameless index.

    Raises ModelError: a missing column (the message lists those present), or a name that occurs twice.
    """
    keys = (name for name in names if name != values and not NAMELESS_INDEX.fullmatch(name))
    wanted = list(keys if scope is None else scope)
    for name in (values, *wanted):
        if names.count(name) != 1:
            found = "twice" if name in names else "not"
            hint = ""
            if name == values and name not in names:
                hint = "; name the column of values (values, --values), or rename it (rename, --rename)"
            raise ModelError(f"{what}: column {name!r} is {found} there; there are: {', '.join(names)}{hint}")
    if values in wanted:
        raise ModelError(f"{what}: column {values!r} cannot be a variable and the values at once")
    return wanted


def sorted_rows(
    columns: Sequence[Column], values: NDArray[Any], domains: Domains, semiring: Semiring, what: str
) -> tuple[Layout, NDArray[np.uint64], NDArray[Any]]:
    """Layout, ascending keys uint64 (words, rows) and values (rows,) from one column per variable and values (rows,).

    Raises ModelError: a value outside a given domain, a key that occurs twice, or numbers that tables cannot represent.
    """
    known = {c.name: domains[c.name] if c.name in domains else c.domain() for c in columns}
    layout = layout_for(list(known), known)
    numbers = values_of(values, value_dtype(values.dtype, what), what)
    check_numbers(what, numbers, semiring)
    keys = keys_of(columns, layout, what) if columns else np.zeros((1, len(numbers)), dtype=np.uint64)
    keys, numbers = in_order(keys, numbers, layout)
    same = (keys[:, 1:] == keys[:, :-1]).all(axis=0)
    if same.any():
        first = layout.unpack(keys[:, [int(np.argmax(same))]])[0].tolist()
        labels = [layout.labels[n][i] if n in layout.labels else i for n, i in zip(layout.scope, first, strict=True)]
        key = dict(zip(layout.scope, labels, strict=True))
        raise ModelError(f"{what}: two rows have the key {key}; combine them before, as by group_by")
    return layout, keys, numbers


def in_order(keys: NDArray[np.uint64], values: NDArray[Any], layout: Layout) -> Rows:
    """Keys uint64 (words, rows) of a layout, and values (rows,), sorted by the keys, which may be overwritten."""
    if len(values) >= RADIX_ROWS:
        from oocbe.kernels.cpu.pairs.sort import sort_rows

        return sort_rows(keys, values, merged_ranges(map(layout.field, layout.scope)), own=True)
    order = np.argsort(keys[0]) if layout.words == 1 else np.lexsort(keys)
    return np.ascontiguousarray(keys[:, order]), values[order]
