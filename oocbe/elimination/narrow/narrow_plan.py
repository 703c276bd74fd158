"""The plan of an elimination in one loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from oocbe.elimination.buckets.resources import message_memory
from oocbe.elimination.engine.decision import Place, Strategy, WhyForm
from oocbe.elimination.orders.order import OrderChoice
from oocbe.elimination.plan.bucket_forecast import BucketForecast
from oocbe.elimination.plan.plan import Plan, PlannedBucket, disk_available
from oocbe.kernels.cpu.orders.graphs import summed
from oocbe.model.settings.option_values import COMPLETE
from oocbe.model.settings.options import SolveOptions
from oocbe.model.settings.tuning import tuning
from oocbe.tables.layout import bits_for

if TYPE_CHECKING:
    from oocbe.elimination.narrow.narrow_problem import NarrowProblem


def narrow_plan(narrow: NarrowProblem, options: SolveOptions) -> Plan:
    """The plan of a solve with all messages as complete tables in memory."""
    problem, order = narrow.problem, narrow.order
    dtype = narrow.tables.values.dtype
    cells = narrow.message_cells
    received = np.zeros(len(order), dtype=np.int64)
    position = np.empty(len(order), dtype=np.int64)
    position[order] = np.arange(len(order))
    sends = ~narrow.is_last()
    targets = narrow.separators.members[narrow.separators.starts[:-1][sends]]  # first of each separator
    np.add.at(received, position[targets], cells[sends])
    widths = np.array([bits_for(size) for size in problem.sizes], dtype=np.float64)
    bits = summed(*narrow.separators, widths).astype(np.int64)
    separators = tuple(narrow.separators.listed())
    strategy = Strategy(COMPLETE, WhyForm.COMPLETE_IS_CHEAPER, Place.MAIN_MEMORY)
    known: dict[tuple[int, int], BucketForecast] = {}
    buckets = []
    columns = zip(order.tolist(), separators, bits.tolist(), cells.tolist(), received.tolist(), strict=True)
    for v, separator, key_bits, own, read in columns:
        passage = known.get((own, read))
        if passage is None:
            passage = known[own, read] = BucketForecast(strategy, own * dtype.itemsize, read * dtype.itemsize, 1)
        name = problem.variables[v].name
        sizes = (key_bits, own, own, own * dtype.itemsize)
        buckets.append(PlannedBucket(v, name, separator, *sizes, COMPLETE, passage))
    choice = OrderChoice(tuple(order.tolist()), narrow.heuristic, 1, separators, tuple(cells.astype(float).tolist()))
    return Plan(
        problem,
        narrow.semiring.name,
        dtype.name,
        choice,
        tuple(buckets),
        memory=message_memory(options),
        disk=disk_available(options),
        is_certain=True,
        loop_seconds=tuning().narrow_cell_seconds * narrow.joined + tuning().narrow_variable_seconds * len(order),
    )
