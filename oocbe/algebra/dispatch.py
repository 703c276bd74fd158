"""Choice of an operator's implementation by its tables' form and place, and the steps that all places execute.

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
from typing import TYPE_CHECKING, Any, cast

from numpy.typing import NDArray

from oocbe.algebra.complete_tables.conversion import in_memory
from oocbe.algebra.elimination import JoinElimination, split_key_word
from oocbe.algebra.gpu_streaming import DevicePlan, known_extent
from oocbe.algebra.inputs import Execution, check_pair, check_result, check_values, choose_kernels
from oocbe.algebra.join import Join
from oocbe.algebra.marginalisation import MarginalisationStep, has_duplicates
from oocbe.algebra.out_of_core.context import ExecutionContext, Step, extent_of
from oocbe.algebra.out_of_core.segmented_operation import SegmentedOperation, workers_for
from oocbe.algebra.ranges import distributes
from oocbe.errors import ModelError, UsageError
from oocbe.execution.sources import source_of
from oocbe.kernels import backend_for
from oocbe.model.settings.machine import default_memory_limit
from oocbe.model.settings.option_values import parse_bytes
from oocbe.runtime.memory import MemoryLimit
from oocbe.runtime.tracing.recorder import ELIMINATION, span
from oocbe.tables.object_path import is_url, place_named
from oocbe.tables.packed import PackedTable
from oocbe.tables.scratch import ScratchFolder, default_parent
from oocbe.tables.stored_complete import AnyComplete
from oocbe.tables.table import Table

if TYPE_CHECKING:
    from oocbe.algebra.complete_tables.conversion import AnyTable
    from oocbe.algebra.gpu_streaming import Streamable
    from oocbe.algebra.inputs import ExecutionSettings
    from oocbe.kernels.interface import Backend
    from oocbe.tables.stored import StoredTable


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

    Raises ModelError: rows of one key, of a negative value, and the greatest product is asked for.
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
    gone = (variables,) if isinstance(variables, str) else tuple(dict.fromkeys(variables))
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
    parent = default_parent() if execution.scratch is None else Path(execution.scratch)
    with closing(ScratchFolder(parent)) as scratch:
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
