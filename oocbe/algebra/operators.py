"""The public operators: join sum, maximisation, and both in one step (⊕ and ⇓ of bucket elimination).

Each has five signatures: packed tables give a packed one, tables of rows a table; with ``output`` the result is a
stored table; where a table is complete the result may be (see :mod:`oocbe.algebra.complete`). The tables' form and
place determine the implementation:

1. With an output table: to disk, piece by piece; complete tables stay complete where that is cheaper.
2. All tables packed: through a device as they are, or unpacked, computed and packed again on the CPU.
3. Some table complete: one kernel call where the others are written out as well, by rows otherwise.
4. Else by rows: through a device in pieces where they do not fit it, or where the kernels work.

:func:`planned` gives the steps by rows, a tree; each marginalises one table, or joins two and eliminates shared
variables on the way. Variables of one table alone are marginalised out of it first, as combination distributes over
marginalisation. The same tree is executed in memory (:meth:`PlannedStep.in_memory`) and to disk
(:meth:`PlannedStep.to_disk`).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeAlias, Unpack, cast, overload

from numpy.typing import NDArray

from oocbe.algebra.complete_tables.conversion import AnyTable, in_memory
from oocbe.algebra.elimination import Join, JoinElimination, MarginalisationStep, has_duplicates, split_key_word
from oocbe.algebra.gpu_streaming import DevicePlan, Streamable, known_extent
from oocbe.algebra.inputs import (
    Execution,
    ExecutionSettings,
    KernelSettings,
    RowTable,
    TableLike,
    check_pair,
    check_result,
    check_values,
    choose_kernels,
)
from oocbe.algebra.inputs import OperatorSettings as Settings
from oocbe.algebra.out_of_core.context import ExecutionContext, Step, extent_of
from oocbe.algebra.out_of_core.segmented_operation import SegmentedOperation, workers_for
from oocbe.algebra.ranges import distributes
from oocbe.errors import ModelError, UsageError
from oocbe.execution.sources import source_of
from oocbe.kernels import backend_for
from oocbe.kernels.interface import Backend
from oocbe.model.model_checks import as_tuple
from oocbe.model.settings.machine import default_memory_limit
from oocbe.model.settings.option_values import parse_bytes
from oocbe.runtime.memory import MemoryLimit
from oocbe.runtime.tracing.recorder import ELIMINATION, span
from oocbe.tables.complete import CompleteTable
from oocbe.tables.object_path import is_url, place_named
from oocbe.tables.packed import PackedTable
from oocbe.tables.scratch import ScratchFolder, default_parent
from oocbe.tables.stored import AnyComplete, StoredCompleteTable, StoredTable
from oocbe.tables.table import Table


def check_operation(tables: Sequence[AnyTable], gone: Sequence[str]) -> None:
    """Refuse tables that cannot be joined, or lack a variable (:class:`oocbe.errors.ModelError`)."""
    if len(tables) == 1:
        tables[0].layout.select(gone)
        return
    check_pair(*tables)
    for name in gone:
        if not any(name in table.layout for table in tables):
            scopes = ", ".join(str(table.scope) for table in tables)
            raise ModelError(f"variable {name} is in neither scope: {scopes}")


@dataclass(frozen=True)
class PlannedStep:
    """A step of an operator.

    inputs : one or two: numbers of the operator's tables, or steps whose results are taken.
    gone : variables that are eliminated; of two inputs, shared ones that fit in one key word.
    """

    inputs: tuple[int | PlannedStep, ...]
    gone: tuple[str, ...] = ()

    def __str__(self) -> str:
        if len(self.inputs) == 1:
            return f"marginalise {', '.join(self.gone) or 'rows of one key'}"
        return f"join and eliminate {', '.join(self.gone)}" if self.gone else "join"

    def in_memory(self, tables: Sequence[Table], kernels: Backend, piece_rows: int | None) -> Table:
        """The result where the kernels work, of tables whose rows are there.

        Raises ValueRangeError: a value could leave int64, or has left the range of floats; ResourceError: rows that
        have to be joined first do not fit in memory.
        """
        found = [tables[i] if isinstance(i, int) else i.in_memory(tables, kernels, piece_rows) for i in self.inputs]
        step, found = step_of(found, self.gone, [table.values for table in found])
        with span(ELIMINATION, str(self)) as timed:
            result = step.table(found, kernels, piece_rows)
            timed.note(rows=result.rows)
        return result

    def to_disk(self, tables: Sequence[Any], settings: Execution) -> StoredTable:
        """The result on disk, of tables of rows of any size; results of inner steps are in a scratch folder."""
        context = ExecutionContext.of(settings, *tables)
        with context.scratch_folder() as folder:
            found = [
                tables[i] if isinstance(i, int) else i.to_disk(tables, context.settings_inside(folder / f"{number}"))
                for number, i in enumerate(self.inputs)
            ]
            step, found = step_of(found, self.gone, [extent_of(table, table.semiring) for table in found])
            assert settings.output is not None
            with span(ELIMINATION, str(self)) as timed:
                result = _written(step, found, settings.output, context)
                timed.note(rows=result.rows)
            return result

    def device_plan(self, tables: Sequence[Streamable], kernels: Backend) -> DevicePlan | None:
        """Settings for streaming tables of main memory through the device; None if that is impossible."""
        if not all(isinstance(i, int) for i in self.inputs):
            return None
        step, ordered = step_of(tables, self.gone, [known_extent(table) for table in tables])
        return DevicePlan.of(step, ordered, kernels)


def planned(tables: Sequence[Any], gone: tuple[str, ...]) -> PlannedStep:
    """The steps of the join of one or two tables of rows with variables marginalised out.

    Raises ModelError: rows of one key, of a negative value, and the greatest product is wanted.
    """
    if len(tables) == 1:
        return PlannedStep((0,), gone)
    one, two = tables
    semiring = one.semiring
    both = [name for name in one.scope if name in two.layout and name in gone]
    while_joining, later = split_key_word(both, one.layout)
    alone = [tuple(name for name in gone if name not in other.layout) for other in (two, one)]
    # The best of several rows of one key is found while variables are eliminated.
    doubled = [has_duplicates(table) and not (while_joining and semiring.selects) for table in tables]
    is_first = any(alone) or any(doubled)
    if is_first and not distributes(extent_of(one, semiring), extent_of(two, semiring), semiring):
        if any(map(has_duplicates, tables)):
            raise ModelError(
                "rows of one key cannot be combined before they are joined, as a value is negative, and the greatest "
                "product is asked for; combine them beforehand, if that is meant: maximise(table, [], output=…)"
            )
        return PlannedStep((PlannedStep((0, 1)),), gone)
    inputs = tuple(
        PlannedStep((number,), own) if own or twice else number
        for number, (own, twice) in enumerate(zip(alone, doubled, strict=True))
    )
    joined = PlannedStep(inputs, while_joining)
    return PlannedStep((joined,), later) if later else joined


def step_of(tables: Sequence[Any], gone: tuple[str, ...], extents: Sequence[NDArray[Any]]) -> tuple[Step, list[Any]]:
    """The step that a plan names, and its tables in the step's order: of an elimination, the one with more rows first.

    extents : least and greatest value of each table, or all its values; empty where they are not known.
    """
    if len(tables) == 1:
        return MarginalisationStep.of(tables[0], gone, extents[0]), list(tables)
    if not gone:
        return Join.of(tables, extents), list(tables)
    pairs = sorted(zip(tables, extents, strict=True), key=lambda pair: -pair[0].rows)
    ordered = [table for table, _ in pairs]
    return JoinElimination.of(ordered, gone, [extent for _, extent in pairs]), ordered


def _written(step: Step, tables: Sequence[Any], output: str | Path, context: ExecutionContext) -> StoredTable:
    """Write a step's result: by workers, through a device, or piece by piece in this process."""
    workers = workers_for(step.cut, *tables)
    if workers is None:
        plan = DevicePlan.from_disk(step, tables, context.kernels)
        if plan is not None and (written := plan.to_disk(output, context)) is not None:
            return written
    inputs = step.inputs([source_of(table) for table in tables])
    if workers is not None:
        return SegmentedOperation(workers, context).write(output, step, inputs, step.cut)
    return context.write(output, step, inputs)


def run(variables: str | Sequence[str], tables: Sequence[AnyTable], settings: ExecutionSettings) -> Any:
    """Result of an operator on tables in memory or stored, packed or not, incomplete or complete.

    variables : marginalised out of the table, or of the join of the two tables; a name or several.
    settings : as for the public operators. With an output, the result is written there.
    Returns StoredTable or StoredCompleteTable with an output; PackedTable where all tables are packed; else Table, or
    CompleteTable where a table is complete.
    Raises ResourceError: memory could not be had; TypeError: an unknown setting.
    """
    known = [field.name for field in fields(Execution)]
    if unknown := sorted(settings.keys() - known):
        raise TypeError(f"unexpected keyword argument {unknown[0]!r}; settings of operators: {', '.join(known)}")
    gone = (variables,) if isinstance(variables, str) else tuple(dict.fromkeys(as_tuple("variables", variables)))
    execution = Execution(**settings)
    limit = parse_bytes("memory", execution.memory)
    with MemoryLimit(default_memory_limit() if limit is None else limit):
        check_values(*tables)
        check_operation(tables, gone)
        if execution.wanted:
            with execution.working():
                return (_to_store if is_url(execution.output) else _to_disk)(gone, tables, execution)
        if all(isinstance(table, PackedTable) for table in tables):
            return _packed(gone, tables, execution)
        if not any(isinstance(table, AnyComplete) for table in tables):
            return _by_rows(gone, tables, execution)
        from oocbe.algebra.complete import combine_tables

        def by_rows(rows: Sequence[Table], rest: Sequence[str]) -> Table:
            """The whole operation on all tables, or its remaining step on the one joined table."""
            return _by_rows(gone if len(rows) == len(tables) else tuple(rest), rows, execution)

        found = [in_memory(table) for table in tables]
        result = combine_tables(found, gone, by_rows, execution.backend, execution.piece_rows)
        return check_result(result, *tables)


def _to_store(gone: tuple[str, ...], tables: Sequence[AnyTable], execution: Execution) -> Any:
    """The result written to scratch, and from there to the object store that the output's URL names."""
    url = str(place_named(execution.output or ""))
    if execution.overwrite:
        raise UsageError(f"{url}: tables in object stores are not overwritten; choose another name")
    with closing(ScratchFolder(Path(execution.scratch or default_parent()))) as scratch:
        return _to_disk(gone, tables, replace(execution, output=scratch.path / "result")).upload(url)


def _to_disk(gone: tuple[str, ...], tables: Sequence[AnyTable], execution: Execution) -> Any:
    if not any(isinstance(table, AnyComplete) for table in tables):
        return planned(tables, gone).to_disk(tables, execution)
    from oocbe.algebra.complete import combine_stored

    return combine_stored(tables, gone, execution, lambda rows: planned(rows, gone).to_disk(rows, execution))


def _packed(gone: tuple[str, ...], tables: Sequence[Any], execution: Execution) -> PackedTable:
    """Packed tables streamed to the device as they are, or unpacked and packed again on the CPU.
    Raises ResourceError if the tables cannot go through a device, and do not fit in memory unpacked."""
    kernels = backend_for(sum(table.rows for table in tables), execution.backend, False)
    plan = planned(tables, gone).device_plan(tables, kernels) if kernels.name == "cuda" else None
    if plan is not None:
        streamed = plan.to_memory(execution.piece_rows)
        assert isinstance(streamed, PackedTable)
        return streamed
    return PackedTable.pack(_by_rows(gone, tables, execution))


def _by_rows(gone: tuple[str, ...], tables: Sequence[AnyTable], execution: Execution) -> Table:
    """The result in memory, of tables whose rows are worked on."""
    place, piece_rows = choose_kernels(execution.backend, *tables), execution.piece_rows
    steps = planned(place.tables, gone)
    plan = steps.device_plan(place.tables, place.kernels) if place.is_streamed(piece_rows) else None
    if plan is not None:
        streamed: Any = check_result(plan.to_memory(piece_rows), *place.tables)
        return cast("Table", streamed)
    place = place.moved()
    return place.to_caller(steps.in_memory(place.tables, place.kernels, piece_rows))


Names: TypeAlias = str | Sequence[str]
"""A variable or several ones."""


@overload
def join_sum(
    table1: PackedTable, table2: PackedTable, *, output: None = None, **settings: Unpack[Settings]
) -> PackedTable: ...


@overload
def join_sum(table1: RowTable, table2: RowTable, *, output: None = None, **settings: Unpack[Settings]) -> Table: ...


@overload
def join_sum(
    table1: TableLike, table2: TableLike, *, output: str | Path, **settings: Unpack[Settings]
) -> StoredTable: ...


@overload
def join_sum(
    table1: AnyTable, table2: AnyTable, *, output: str | Path, **settings: Unpack[Settings]
) -> StoredTable | StoredCompleteTable: ...


@overload
def join_sum(
    table1: AnyTable, table2: AnyTable, **settings: Unpack[KernelSettings]
) -> Table | CompleteTable | PackedTable: ...


def join_sum(table1: AnyTable, table2: AnyTable, **settings: Unpack[ExecutionSettings]) -> Any:
    """Join two tables on their shared variables.

    Both are preprocessed by :func:`oocbe.algebra.inputs.arrange`; then each output row is gathered from
    its two input rows (Bistaffa, Bombieri and Farinelli 2016, algorithm 4).

    Parameters
    ----------
    table1, table2 : tables in memory or stored, incomplete or complete, of one semiring; scopes may be disjoint, equal
        or empty.
    settings : ``piece_rows`` and ``backend`` of the kernels. With ``output``, tables of any size are joined piece by
        piece, by ``workers`` or those of a ``client`` where these are given, and the same rows are written to a
        table on disk; ``memory``, ``scratch``, ``streams`` and ``overwrite`` are for that. See
        :class:`oocbe.algebra.inputs.Execution`.

    Returns
    -------
    Table, or StoredTable with ``output`` : scope = shared variables (in the first table's order), the rest of the
        first table's, the rest of the second's, the least significant first. Rows are grouped by the shared variables,
    not sorted within a group.
    PackedTable where all tables are packed; CompleteTable or StoredCompleteTable: see :mod:`oocbe.algebra.complete`.

    Raises
    ------
    ModelError : different semirings, a variable with different domain sizes, or numbers that tables cannot hold
        (:mod:`oocbe.tables.numbers`).
    ValueRangeError : a joined value could leave int64, or has left the range of floats (see
        :func:`oocbe.algebra.inputs.check_result`).
    ResourceError : the joined rows do not fit in memory.

    Examples
    --------
    >>> from oocbe.tables.table import Table
    >>> f = Table.from_rows({"x": 2, "y": 2}, [[0, 0], [1, 0], [1, 1]], [1, 2, 3])
    >>> g = Table.from_rows({"y": 2, "z": 2}, [[0, 1]], [10])
    >>> join_sum(f, g).to_dict()
    {(0, 0, 1): 11, (0, 1, 1): 12}
    """
    return run((), (table1, table2), settings)


@overload
def maximise(
    table: PackedTable, variables: Names, *, output: None = None, **settings: Unpack[Settings]
) -> PackedTable: ...


@overload
def maximise(table: RowTable, variables: Names, *, output: None = None, **settings: Unpack[Settings]) -> Table: ...


@overload
def maximise(
    table: TableLike, variables: Names, *, output: str | Path, **settings: Unpack[Settings]
) -> StoredTable: ...


@overload
def maximise(
    table: AnyTable, variables: Names, *, output: str | Path, **settings: Unpack[Settings]
) -> StoredTable | StoredCompleteTable: ...


@overload
def maximise(
    table: AnyTable, variables: Names, **settings: Unpack[KernelSettings]
) -> Table | CompleteTable | PackedTable: ...


def maximise(table: AnyTable, variables: Names, **settings: Unpack[ExecutionSettings]) -> Any:
    """Marginalise variables out of a table: by maximum, minimum or sum, depending on its semiring.

    All other variables go to the low places and rows are sorted by them, so that rows to reduce are neighbours
    (Bistaffa, Bombieri and Farinelli 2016, section IV-C and algorithm 5). A sorted table whose lowest variables are the
    eliminated ones (elimination-order layout) is not sorted again.

    Parameters
    ----------
    table : in memory or stored, incomplete or complete.
    variables : name of one variable of its scope, or several names.
    settings : as for :func:`oocbe.join_sum`.

    Returns
    -------
    Table, or StoredTable with ``output`` : scope = the other variables in the table's order; sorted.
    Of a complete table CompleteTable, or StoredCompleteTable with ``output``, over the same scope.

    Raises
    ------
    ModelError : a variable is not in the scope, or numbers that tables cannot hold (:mod:`oocbe.tables.numbers`).
    ValueRangeError : a sum could leave int64, or has left the range of floats.

    Examples
    --------
    >>> from oocbe.tables.table import Table
    >>> maximise(Table.from_rows({"x": 2, "y": 2}, [[0, 0], [1, 0], [1, 1]], [1, 2, 3]), "x").to_dict()
    {(0,): 2, (1,): 3}
    """
    return run(variables, (table,), settings)


marginalise = maximise
"""The general name of :func:`maximise`, which also minimises and sums, depending on the semiring."""


@overload
def join_maximise(
    table1: PackedTable, table2: PackedTable, variables: Names, *, output: None = None, **settings: Unpack[Settings]
) -> PackedTable: ...


@overload
def join_maximise(
    table1: RowTable, table2: RowTable, variables: Names, *, output: None = None, **settings: Unpack[Settings]
) -> Table: ...


@overload
def join_maximise(
    table1: TableLike, table2: TableLike, variables: Names, *, output: str | Path, **settings: Unpack[Settings]
) -> StoredTable: ...


@overload
def join_maximise(
    table1: AnyTable, table2: AnyTable, variables: Names, *, output: str | Path, **settings: Unpack[Settings]
) -> StoredTable | StoredCompleteTable: ...


@overload
def join_maximise(
    table1: AnyTable, table2: AnyTable, variables: Names, **settings: Unpack[KernelSettings]
) -> Table | CompleteTable | PackedTable: ...


def join_maximise(table1: AnyTable, table2: AnyTable, variables: Names, **settings: Unpack[ExecutionSettings]) -> Any:
    """The rows of ``maximise(join_sum(table1, table2), variables)``, in the time and memory of their number.

    Variables of one table only are marginalised out of it first (combination distributes over marginalisation); shared
    ones while joining (:mod:`oocbe.kernels.cpu.pairs.join_reduce`).

    Parameters
    ----------
    table1, table2 : tables in memory or stored, incomplete or complete, of one semiring; scopes may be disjoint, equal
        or empty.
    variables : name of one variable in a scope, or several names.
    settings : as for :func:`oocbe.join_sum`.

    Returns
    -------
    Table, or StoredTable with ``output`` : the variables that stay. Where a shared variable is eliminated: those of
        the table with fewer rows alone, those of the other one alone, the shared ones, the least significant first,
        and sorted; otherwise the layout of :func:`oocbe.join_sum`.
    PackedTable where all tables are packed; CompleteTable or StoredCompleteTable: see :mod:`oocbe.algebra.complete`.

    Raises
    ------
    ModelError : different semirings, a variable with different domain sizes, or one in neither scope; numbers that
        tables cannot hold (:mod:`oocbe.tables.numbers`).
    ValueRangeError : a value could leave int64, or has left the range of floats.

    Examples
    --------
    >>> from oocbe.tables.table import Table
    >>> f = Table.from_rows({"x": 2, "y": 2}, [[0, 0], [1, 0], [1, 1]], [1, 2, 3])
    >>> g = Table.from_rows({"x": 2, "z": 2}, [[0, 1], [1, 1]], [10, 20])
    >>> join_maximise(f, g, "x")
    <Table (z, y): 2 rows, density 0.5, 32 B, 2 key bits, int64, max-sum>
    """
    return run(variables, (table1, table2), settings)


join_marginalise = join_maximise
"""The general name of :func:`join_maximise`, which also minimises and sums, depending on the semiring."""
