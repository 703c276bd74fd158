"""The steps of an operator, planned once for all places: rows where the kernels work, a device, or the disk.

:func:`planned` gives a tree of steps; each marginalises one table, or joins two and eliminates shared variables on the
way. Variables of one table alone are marginalised out of it first, as combination distributes over marginalisation. The
same tree is executed in memory (:meth:`PlannedStep.in_memory`) and to disk (:meth:`PlannedStep.to_disk`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from oocbe.algebra.elimination import JoinElimination, split_key_word
from oocbe.algebra.gpu_streaming import DevicePlan, known_extent
from oocbe.algebra.inputs import Execution, check_pair
from oocbe.algebra.join import Join
from oocbe.algebra.marginalisation import Marginalisation, has_duplicates
from oocbe.algebra.out_of_core.context import ExecutionContext, Step, extent_of
from oocbe.algebra.out_of_core.segmented_operation import SegmentedOperation, workers_for
from oocbe.algebra.ranges import distributes
from oocbe.errors import ModelError
from oocbe.execution.sources import source_of
from oocbe.tables.table import Table

if TYPE_CHECKING:
    from oocbe.algebra.complete_tables.conversion import AnyTable
    from oocbe.algebra.gpu_streaming import Streamable
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

    Attributes
    ----------
    inputs : one or two: numbers of the operator's tables, or steps whose results are taken.
    gone : variables that are eliminated; of two inputs, shared ones that fit in one key word.
    """

    inputs: tuple[int | PlannedStep, ...]
    gone: tuple[str, ...] = ()

    def in_memory(self, tables: Sequence[Table], kernels: Backend, piece_rows: int | None) -> Table:
        """The result where the kernels work, of tables whose rows are there.

        Raises
        ------
        ValueRangeError : a value could leave int64, or has left the range of floats.
        ResourceError : rows that have to be joined first do not fit in memory.
        """
        found = [tables[i] if isinstance(i, int) else i.in_memory(tables, kernels, piece_rows) for i in self.inputs]
        step, found = step_of(found, self.gone, [table.values for table in found])
        return step.table(found, kernels, piece_rows)

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
            return _written(step, found, settings.output, context)

    def device_plan(self, tables: Sequence[Streamable], kernels: Backend) -> DevicePlan | None:
        """How tables in main memory go through the device in pieces; None: they cannot."""
        if not all(isinstance(i, int) for i in self.inputs):
            return None
        step, ordered = step_of(tables, self.gone, [known_extent(table) for table in tables])
        return DevicePlan.of(step, ordered, kernels)


def planned(tables: Sequence[Any], gone: tuple[str, ...]) -> PlannedStep:
    """The steps of the join of one or two tables of rows with variables marginalised out.

    Raises
    ------
    ModelError : rows of one key, of a negative value, and the greatest product is asked for.
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
        return Marginalisation.of(tables[0], gone, extents[0]), list(tables)
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
