"""Preparation of the operators' arguments before any row moves, and of their result at the end.

Stored tables are read, the kernels are chosen, rows are brought to where those kernels work, and two tables are checked
to agree. A result stays in device memory where an input was there, so that operators chain without copies; otherwise it
is brought back to main memory.

The dtype of a result follows from the inputs' least and greatest values (:mod:`oocbe.algebra.ranges`).

Incomplete tables are preprocessed (Bistaffa, Bombieri and Farinelli 2016, algorithm 3): fields are moved to the places
that the operation needs, rows sorted on the bits that matter (a stable radix sort of just those), and groups of rows
that occur in one of two tables only are dropped. A table whose rows are in that order already is not sorted again. Rows
without a partner in a much smaller table are dropped before they are sorted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict, TypeVar

import numpy as np
from numpy.typing import NDArray

from oocbe.algebra.complete_tables.conversion import AnyTable, rows_in_memory
from oocbe.errors import ModelError, UsageError, ValueRangeError
from oocbe.kernels import backend_for
from oocbe.kernels.interface import Backend, MatchedGroups
from oocbe.model.semiring import Combination
from oocbe.model.settings.option_values import optional, parse_bytes, parse_count, parse_path, parse_workers
from oocbe.model.settings.tuning import tuning
from oocbe.tables.complete import CompleteTable
from oocbe.tables.layout import Layout, field_masks, merged_ranges, move_plan
from oocbe.tables.numbers import check_numbers, extremes, strange_number
from oocbe.tables.packed import PackedTable
from oocbe.tables.residence import is_on_device, to_host, to_kernels
from oocbe.tables.stored import StoredTable
from oocbe.tables.table import Table

if TYPE_CHECKING:
    from distributed import Client

RowTable: TypeAlias = Table | StoredTable
TableLike: TypeAlias = Table | StoredTable | PackedTable

Result = TypeVar("Result")


class KernelSettings(TypedDict, total=False):
    """Settings of an operator's kernels for all tables; see :class:`Execution`."""

    piece_rows: int | None
    backend: Backend | str | None


class OperatorSettings(KernelSettings, total=False):
    """All settings of an operator but its output; see :class:`Execution`."""

    memory: int | str | None
    scratch: str | Path | None
    streams: int | None
    workers: int | str | None
    client: Client | None
    overwrite: bool


class ExecutionSettings(OperatorSettings, total=False):
    """All settings of an operator by name; see :class:`Execution`."""

    output: str | Path | None


@dataclass(frozen=True)
class Execution:
    """Settings of an operator.

    output : the table to write, a path, or the URL of one in an object store (:mod:`oocbe.tables.objects`), to which it
        goes from the scratch folder; None: the operator works in memory, and of the rest only ``piece_rows`` and
        ``backend`` may be given.
    memory : limit in bytes on rows, indices and buffers (or text such as ``256MiB``); None: 80 % of what there is.
    scratch : folder for temporary files, which must be there; None: ``SLURM_TMPDIR``, ``TMPDIR`` or the system's.
    streams : pieces at work at a time; None: as many as cores, from 2 to 4.
    workers : processes of this host that large tables are shared out to, which have the memory limit between them:
        a number, ``cpus:4``, ``gpus`` or ``gpus:2``. client : of a Dask cluster whose workers do that instead, which
        see the output's folder, and scratch, under the same path.
    overwrite : whether the output takes the place of a stored table of its name, in the moment that it is complete; the
        inputs may be read from that one.
    piece_rows : rows that a kernel call works on; None: the backend's choice. The result does not depend on it.
    backend : the kernels, or ``auto``, ``cpu`` or ``cuda``; None: what ``OOCBE_BACKEND`` says, or ``auto``.
    """

    output: str | Path | None = None
    memory: int | str | None = None
    scratch: str | Path | None = None
    streams: int | None = None
    workers: int | str | None = None
    client: Client | None = None
    overwrite: bool = False
    piece_rows: int | None = None
    backend: Backend | str | None = None

    def __post_init__(self) -> None:
        for name, parse in (("piece_rows", parse_count), ("streams", parse_count), ("scratch", parse_path)):
            object.__setattr__(self, name, optional(parse)(name, getattr(self, name)))

    @property
    def wanted(self) -> bool:
        """Whether a table is to be written; UsageError where settings are given without one."""
        given = self.memory, self.scratch, self.streams, self.workers, self.client
        if self.output is None and (self.overwrite or any(setting is not None for setting in given)):
            raise UsageError(
                "memory, scratch, streams, workers, client and overwrite are for results on disk: name the output "
                "table as well"
            )
        return self.output is not None

    def working(self) -> AbstractContextManager[None]:
        """Within the block, operations are shared out to the requested workers (:func:`use_cluster`, its errors)."""
        if self.workers is None and self.client is None:
            return nullcontext()
        from oocbe.execution.cluster.choice import use_cluster

        memory = parse_bytes("memory", self.memory)
        return use_cluster(parse_workers("workers", self.workers), None, memory, self.client)


@dataclass(frozen=True)
class PlacedTables:
    """Backend and tables of an operation, placed where it works; ``keeps``: whether the result stays there."""

    kernels: Backend
    tables: tuple[Table, ...]
    keeps: bool

    def moved(self) -> PlacedTables:
        """The tables with their rows where the kernels work."""
        return replace(self, tables=tuple(to_kernels(table, self.kernels) for table in self.tables))

    def is_streamed(self, piece_rows: int | None) -> bool:
        """Whether rows go through the device in pieces, if they can: many rows, that do not fit it or take longer at
        once, or pieces are requested."""
        if self.kernels.name != "cuda" or self.keeps:
            return False
        from oocbe.kernels.cuda.transfer.memory import device_room

        least = min(tuning().least_streamed_rows, device_room() // tuning().device_row_bytes)
        return piece_rows is not None or sum(table.rows for table in self.tables) > least

    def to_caller(self, result: Table) -> Table:
        """The result where the caller expects it: beside its inputs."""
        return result if self.keeps else to_host(result)


def choose_kernels(backend: Backend | str | None, *inputs: AnyTable) -> PlacedTables:
    """Kernels for some tables (see :func:`oocbe.kernels.backend_for`), and the tables, read but not moved yet."""
    tables = tuple(rows_in_memory(table) for table in inputs)
    keeps = any(is_on_device(table) for table in tables)
    return PlacedTables(backend_for(sum(table.rows for table in tables), backend, keeps), tables, keeps)


def check_form(table: object) -> None:
    """Refuse an argument that is no table (UsageError)."""
    if isinstance(table, str | Path):
        raise UsageError(f"{table}: a path, and no table; open it: oocbe.StoredTable.open({str(table)!r})")
    if not hasattr(table, "layout"):
        raise UsageError(f"an operator takes tables, not {type(table).__name__}; make one (oocbe.Table.from_arrow)")


def check_values(*tables: AnyTable) -> None:
    """Refuse what is no table (UsageError), and numbers in memory that none can hold (:mod:`oocbe.tables.numbers`).

    What is packed or on disk was refused when it was packed or written.
    """
    for table in tables:
        check_form(table)
        if isinstance(table, Table | CompleteTable):
            kind = "table" if isinstance(table, Table) else "complete table"
            check_numbers(f"{kind} over {table.scope}", table.values, table.semiring)


def check_result(result: Result, *tables: AnyTable) -> Result:
    """The result, in memory, of tables that passed :func:`check_values`; refused where it left the range of its floats.

    That shows by an infinity or NaN, and, where no table has the semiring's zero, by that: a product too small for its
    dtype is 0 otherwise, a sum too large infeasible. Beside zeros of the tables' own, and of the assignments that rows
    lack where they are joined to a complete table, one more is not noticed.

    Raises ValueRangeError: a value is too large or too small for the result's dtype.
    """
    if not isinstance(result, Table | CompleteTable) or result.values.dtype.kind != "f" or not result.values.size:
        return result
    values: Any = result.values
    zero = result.semiring.zero
    left = strange_number(values, result.semiring)
    if left is None and _has(values, zero) and not any(_may_have(zero, t, result) for t in tables):
        left = zero
    if left is not None:
        remedy = "scale the values" if result.semiring.combination is Combination.ADD else "give logarithms to add up"
        names = ", ".join(str(table.scope) for table in tables)
        raise ValueRangeError(
            f"tables over {names}: a value of the result is outside the range of {values.dtype.name}, which makes it "
            f"{left}; {remedy} ({result.semiring} semiring)"
        )
    return result


def _has(values: Any, zero: float) -> bool:
    """Whether a zero is among values that are no NaN."""
    low, high = extremes(values)
    return zero in (low, high) or (low < zero < high and bool((values == zero).any()))


def _may_have(zero: float, table: AnyTable, result: Table | CompleteTable) -> bool:
    """Whether a zero of the result may be a table's, or, of a sum of products, what terms of both signs cancel to."""
    if isinstance(table, Table) != isinstance(result, Table) or not isinstance(table, Table | CompleteTable):
        return True
    values: Any = table.values
    if zero == 0 and values.size and float(values.min()) < 0:
        return True
    if isinstance(table, CompleteTable):  # of integers, too, whose infeasible value is another
        return not bool(table.feasible().all())
    return bool(values.size) and _has(values, zero)


def check_pair(table1: AnyTable, table2: AnyTable) -> tuple[str, ...]:
    """Variables that two tables share, in the first one's order; ModelError: other semirings or domain sizes."""
    if table1.semiring != table2.semiring:
        raise ModelError(
            f"tables of the {table1.semiring} and the {table2.semiring} semiring cannot be joined; "
            "make both of the same semiring"
        )
    shared = tuple(name for name in table1.scope if name in table2.layout)
    for name in shared:
        size1 = table1.layout.sizes[table1.layout.place(name)]
        size2 = table2.layout.sizes[table2.layout.place(name)]
        if size1 != size2:
            raise ModelError(
                f"variable {name} has {size1} values in one table and {size2} in the other; make both with the domains "
                "that common_domains finds for them"
            )
        labels1, labels2 = table1.layout.labels.get(name), table2.layout.labels.get(name)
        if labels1 is not labels2 and None not in (labels1, labels2) and labels1 != labels2:
            raise ModelError(
                f"variable {name} has other labels in one table than in the other; make both with the domains that "
                "common_domains finds for them"
            )
    return shared


FILTER_BITS = 20
"""Maximum bits of the filter's hashes: its table takes 1 MiB, which the second-level cache of a core holds."""

FILTER_RATIO = 4
"""Rows of the larger table for each row of the smaller one, at least: at 2, the filter costs as much as it saves (a
million rows with half a million, all of them partners)."""

MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
"""Odd multiplier of Fibonacci hashing (Knuth, The Art of Computer Programming 3, section 6.4)."""


def taken_from(tables: list[Table]) -> Iterator[Table]:
    """The tables of a list, each removed as it is taken, so that its memory is free once its rows are sorted."""
    while tables:
        yield tables.pop(0)


def arrange(
    table: Table,
    scope: Sequence[str],
    order: Sequence[str],
    dtype: np.dtype[Any],
    backend: Backend,
    piece_rows: int | None = None,
) -> Table:
    """A table with its fields in the order of ``scope`` and its rows in the order of some of them.

    The rows may be the table's own arrays, and are not to be written to.

    table : any table. scope : all its variables, the least significant place first.
    order : variables to sort by, the least significant first. dtype : dtype of the values wanted.
    """
    layout = table.layout.select(scope)
    moved = layout.scope != table.scope
    keys, values = table.keys, table.values.astype(dtype, copy=False)
    if moved:
        keys = backend.permute(keys, move_plan(table.layout, layout), layout.words, piece_rows)
    if order and not (table.is_sorted and table.scope[-len(order) :] == tuple(order)):
        ranges = merged_ranges(map(layout.field, order))
        keys, values = backend.sort_rows(keys, values, ranges, piece_rows, own=moved)
    return Table(layout, keys, values, table.semiring)


def match(
    table1: Table, table2: Table, shared: Sequence[str], backend: Backend, piece_rows: int | None = None
) -> MatchedGroups:
    """Groups that two tables have in common; both have ``shared`` in their lowest places and are sorted by it."""
    # In the lowest places of both, their bits are at the same ones: words that only one table has hold none of them.
    masks = field_masks(table1.layout, shared)[: table2.layout.words]
    return backend.common_groups(table1.keys, table2.keys, masks, piece_rows)


def without_lonely(
    tables: Sequence[Table], shared: Sequence[str], backend: Backend, piece_rows: int | None = None
) -> list[Table]:
    """Two tables of a join, the larger one without most rows that have no partner in a much smaller one.

    A filter contains the smaller table's values of the shared variables, hashed if they have more bits than it (Bloom
    1970). Moving and sorting the dropped rows would cost more than this pass over them. The tables are returned as they
    are where the filter does not pay, and on other backends than the CPU's.

    tables : two tables, in main memory. shared : the variables that both have.
    """
    found = list(tables)
    small, large = sorted(range(2), key=lambda i: tables[i].rows)
    rows = tables[small].rows
    is_worthwhile = FILTER_RATIO * rows <= tables[large].rows and 2 * rows <= 1 << FILTER_BITS
    if backend.name != "cpu" or not shared or not rows or not is_worthwhile:
        return found
    part = tables[small].layout.select(shared)
    # No more values than four for each row: the filter of a small piece takes no more memory than its rows.
    bits = min(part.bits, FILTER_BITS, (2 * tables[large].rows).bit_length())
    is_absent = np.ones(1 << bits, dtype=np.bool_)
    is_absent[_hashed(tables[small], part, bits, backend, piece_rows)] = False
    absent = np.flatnonzero(is_absent).view(np.uint64)
    if 2 * len(absent) < 1 << bits:
        return found
    table = tables[large]
    hashes = _hashed(table, part, bits, backend, piece_rows)[np.newaxis]
    keys, values = backend.drop_forbidden(table.keys, table.values, hashes, absent[np.newaxis], bits, piece_rows)
    found[large] = replace(table, keys=keys, values=values)
    return found


def _hashed(table: Table, part: Layout, bits: int, backend: Backend, piece_rows: int | None) -> NDArray[np.uint64]:
    """Values of the part's variables as numbers of so many bits, uint64 (rows,)."""
    keys = backend.permute(table.keys, move_plan(table.layout, part, part.scope), part.words, piece_rows)
    total: NDArray[np.uint64] = keys[0]
    if part.bits <= bits:
        return total
    total = total * MULTIPLIER
    for word in keys[1:]:
        total = (total ^ (total >> np.uint64(32)) ^ word) * MULTIPLIER
    return total >> np.uint64(64 - bits)
