"""Problems of any number of variables that elimination solves with small tables, in one compiled loop.

A bucket of the engine takes one to two milliseconds regardless of its contents, for planning, layout and join. A path
of a million variables would take half an hour, with four cells a bucket; a network of thirty takes longer to plan. If
the messages of one greedy order are small in total, one loop (:mod:`oocbe.kernels.cpu.buckets.narrow_buckets`) joins
all buckets over flat arrays, as complete tables. The total is certain in advance: a table's cells are the assignments
of its variables.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oocbe.elimination.buckets.resources import memory_warning, message_memory
from oocbe.elimination.engine.consumption import carried_in_rows, is_tabulated, left_out
from oocbe.elimination.orders.order import CRITERIA, OrderChoice, OrderFlags, heuristic, is_order_file, read_order
from oocbe.elimination.orders.separators import Hurry, ScopeGraph, Separators
from oocbe.elimination.outcome import ForwardPass, result_of_elimination
from oocbe.elimination.preparation.ranges import split, value_dtype
from oocbe.elimination.solution_check import has_logarithms
from oocbe.errors import FloatRangeError, RequestedEndError, ResourceError, TimeLimitError, ValueRangeError
from oocbe.kernels.cpu.buckets.narrow_buckets import (
    ADDED,
    ADDED_LOGARITHMS,
    GREATEST,
    LEAST,
    NarrowLayout,
    choose_values,
    count_within,
    descend,
    descend_gaps,
    eliminate,
)
from oocbe.kernels.cpu.jit import is_ready
from oocbe.kernels.cpu.orders.graphs import added_up
from oocbe.model.parts import Constraint, Function
from oocbe.model.problem import Problem
from oocbe.model.results.result import Result
from oocbe.model.row_numbers import distinct_values
from oocbe.model.semiring import Combination, Marginalisation, Semiring
from oocbe.model.settings.option_values import INCOMPLETE
from oocbe.model.settings.options import SolveOptions
from oocbe.model.settings.tuning import tuning
from oocbe.runtime.deadline import Deadline, check_deadline, current_flag, keeping, looked
from oocbe.runtime.process_memory import peak_memory
from oocbe.runtime.tracing.recorder import ELIMINATION, spanning


class FlatTables(NamedTuple):
    """Tables in flat arrays.

    scopes : of each, in the order of its part. starts : int64 (tables + 1,), first cell of each; the first variable
        changes fastest.
    values : int64 or float64 (cells,). permitted : uint8 (cells,).
    """

    scopes: Separators
    starts: NDArray[np.int64]
    values: NDArray[Any]
    permitted: NDArray[np.uint8]

    @property
    def magnitude(self) -> float:
        """The sum of each table's largest value in size; infinite beyond float64."""
        if not len(self.values):
            return 0.0
        with np.errstate(over="ignore"):
            return float(np.maximum.reduceat(np.abs(self.values, dtype=np.float64), self.starts[:-1]).sum())

    def at_temperature(self, problem: Problem, temperature: float) -> tuple[Problem, FlatTables]:
        """The tables as logarithms of weights, and the parts without variables; errors as for a problem."""
        from oocbe.elimination.preparation.temperature import at_temperature, check_range, weight_factor

        semiring = problem.semiring
        factor, permitted = weight_factor(semiring, temperature), self.permitted
        adds = semiring.combination is Combination.ADD or semiring.counts
        if not adds and (self.values < 0).any():
            return at_temperature(problem, temperature), self  # raises the error for the negative factor
        check_range(problem, self.magnitude if adds else 0.0, temperature)
        if adds:
            values = self.values * factor
        else:
            permitted = permitted & (self.values != 0)
            values = np.log(np.where(permitted != 0, self.values, 1)) * factor
        constants = replace(problem, functions=tuple(f for f in problem.functions if not f.scope))
        return at_temperature(constants, temperature), self._replace(values=values, permitted=permitted)


def table_cells(scopes: Separators, sizes: NDArray[np.int64]) -> NDArray[np.float64]:
    """Cells of a table over each scope, float64: they may be beyond any integer."""
    logarithms = np.concatenate([[0.0], np.cumsum(np.log2(sizes)[scopes.members])])
    return np.exp2(np.diff(logarithms[scopes.starts]))


def flat_tables(problem: Problem, semiring: Semiring, most_cells: int) -> FlatTables | None:
    """All parts of a problem with variables, in a semiring; None if they have more than ``most_cells`` cells.

    Of linear constraints only tabulated ones are included; the caller handles parts without variables.
    """
    sizes = np.array(problem.sizes, dtype=np.int64)
    functions: list[Function] = [f for f in problem.functions if f.scope]
    constraints: list[Constraint] = [c for c in problem.constraints if c.scope]
    linear = [c for c in problem.linear_constraints if is_tabulated(problem, c)]
    constraints += [Constraint(c.scope, np.argwhere(~c.to_array())) for c in linear]
    parts: list[Function | Constraint] = [*functions, *constraints]
    scopes = Separators.of([part.scope for part in parts])
    arity = np.diff(scopes.starts)
    if table_cells(scopes, sizes).sum() > most_cells:
        return None
    cells = np.ones(len(parts), dtype=np.int64)
    np.multiply.at(cells, np.repeat(np.arange(len(parts)), arity), sizes[scopes.members])
    starts = np.concatenate([[0], np.cumsum(cells)])
    is_integral = problem.is_integral and not semiring.needs_floats
    dtype = np.dtype(np.int64 if is_integral else np.float64)
    count = len(functions)
    defaults = np.array([0 if f.default is None else f.default for f in functions], dtype=dtype)
    defaults = np.concatenate([defaults, np.full(len(constraints), semiring.one, dtype=dtype)])
    has_default = np.array(
        [*(f.default is not None for f in functions), *(not c.allowed for c in constraints)], dtype=np.uint8
    )
    values, permitted = np.repeat(defaults, cells), np.repeat(has_default, cells)
    rows = np.fromiter((len(part.tuples) for part in parts), dtype=np.int64, count=len(parts))
    strides = _strides(scopes, sizes)
    place = np.repeat(starts[:-1], rows)  # of each listed row
    for length in distinct_values(arity[rows > 0]):
        own = np.flatnonzero((arity == length) & (rows > 0))
        tuples = np.concatenate([parts[i].tuples for i in own])
        steps = strides[scopes.starts[own][:, None] + np.arange(length)]
        at = np.repeat(arity == length, rows)
        place[at] += (tuples * np.repeat(steps, rows[own], axis=0)).sum(axis=1)
    listed = [f.values for f in functions]
    end = int(rows[:count].sum())
    values[place[:end]] = np.concatenate([np.zeros(0, dtype=dtype), *listed])
    permitted[place[:end]] = 1
    permitted[place[end:]] = np.repeat([c.allowed for c in constraints], rows[count:])
    if semiring.zeros_forbid:
        permitted[values == 0] = 0
    return FlatTables(scopes, starts, values, permitted)


def _strides(scopes: Separators, sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Cells from one value to the next of each member of each scope, the first one fastest."""
    strides = np.ones(len(scopes.members), dtype=np.int64)
    arity = np.diff(scopes.starts)
    for axis in range(1, int(arity.max(initial=0))):
        here = scopes.starts[:-1][arity > axis] + axis
        strides[here] = strides[here - 1] * sizes[scopes.members[here - 1]]
    return strides


def constants_of(problem: Problem) -> tuple[list[int | float], bool]:
    """The values of functions without variables and the constant, and whether one forbids everything."""
    found: list[int | float | None] = [problem.constant]
    found += [f.value_at(()) for f in problem.functions if not f.scope]
    is_impossible = None in found or any(c.is_impossible for c in problem.linear_constraints)
    is_impossible |= not all(c.permits(()) for c in problem.constraints if not c.scope)
    return [value for value in found if value is not None], is_impossible


ULP = 2.0**-52
"""Rounding error of an addition of floats relative to the largest partial sum, with a safety margin."""

LARGEST_SUM = 2.0**1000
"""Sums of floats of this size have room for rounding in float64."""

INTERPRETED_CELLS = 4_000
"""Cells of all tables up to which loops are interpreted where they are not compiled yet: 2,900 took 0.02 s."""

AT_ONCE_SECONDS, PROPAGATION_SECONDS = 0.1, 1e-4
"""Seconds of a loop before propagation, at most, or those of propagation for each variable (0.09 to 0.11 ms)."""

COUNT_FLOORS = (0.0, 1.0, 3.0, 6.0, 10.0)
"""Floors of the orders tried for counts. A floor increases the messages' cells, but far fewer have long numbers."""

COUNT_BITS = 62.0
"""Maximum bits of counts in machine integers."""

LARGE_SECONDS, LARGE_CELL_SECONDS, DIGIT_SECONDS = 5e-5, 2e-7, 2.5e-11
"""Seconds of a bucket of longer counts, of a joined cell in it, and of a pass over each bit of its count."""

DIGIT_BITS, SHORT_DIGITS, PRODUCT_POWER = 30.0, 70.0, 0.585
"""Model of Python's integer products: bits of a digit; digits up to which each takes one pass; and the exponent with
which passes grow with the digits beyond (Karatsuba's log2(3) - 1)."""


@dataclass(frozen=True, eq=False)
class NarrowProblem:
    """A problem that is eliminated in one loop.

    problem, semiring : the problem and its semiring. order : int64, the variable eliminated first at the front.
    heuristic : method that found it. separators : of its buckets. joined : cells of all buckets.
    order_seconds : time of the search for it.
    """

    problem: Problem
    semiring: Semiring
    tables: FlatTables
    order: NDArray[np.int64]
    heuristic: str
    separators: Separators
    joined: float
    order_seconds: float

    @property
    def width(self) -> int:
        """Variables of the largest separator."""
        return self.separators.width

    @property
    def choice(self) -> OrderChoice:
        """The order, without predictions for single buckets."""
        return OrderChoice(tuple(self.order.tolist()), self.heuristic, 1, (), ())

    @property
    def is_long(self) -> bool:
        """Whether propagation takes less time than the loop: it may leave a much smaller problem."""
        return self.joined * tuning().narrow_cell_seconds > max(AT_ONCE_SECONDS, PROPAGATION_SECONDS * len(self.order))

    @cached_property
    def rounding(self) -> int | float:
        """Maximum rounding error of a sum of all tables' values; 0 for integers."""
        values, starts = self.tables.values, self.tables.starts
        if values.dtype.kind == "i" or not len(values):
            return 0
        magnitude = self.tables.magnitude + abs(self.problem.constant)
        return float((len(starts) + len(self.order) + 4) * ULP * magnitude)

    @cached_property
    def message_cells(self) -> NDArray[np.int64]:
        """Cells of each message, by elimination position."""
        return np.rint(table_cells(self.separators, self._sizes)).astype(np.int64)

    @cached_property
    def _sizes(self) -> NDArray[np.int64]:
        return np.array(self.problem.sizes, dtype=np.int64)

    @cached_property
    def layout(self) -> NarrowLayout:
        """The tables, and the inputs of each bucket."""
        order, sizes = self.order, self._sizes
        position = np.empty(len(order), dtype=np.int64)
        position[order] = np.arange(len(order))
        own, sent = self.tables.scopes, self.separators
        starts = np.concatenate([own.starts, own.starts[-1] + sent.starts[1:]])
        members = np.concatenate([own.members, sent.members])
        cells = np.concatenate([np.diff(self.tables.starts), self.message_cells])
        has_members = np.diff(starts) > 0
        first = np.minimum.reduceat(position[members], starts[:-1][has_members])
        tables = np.flatnonzero(has_members)
        sequence = np.argsort(first, kind="stable")
        input_starts = np.concatenate([[0], np.cumsum(np.bincount(first, minlength=len(order)))])
        cell_starts = np.concatenate([[0], np.cumsum(cells)])
        return NarrowLayout(order, sizes, starts, members, cell_starts, input_starts, tables[sequence])

    def cells(self, counts: bool = False) -> tuple[NDArray[Any], NDArray[np.uint8]]:
        """Values, or counts, and permissions of all tables' cells; those of the messages are 0."""
        own = self.tables.permitted.astype(np.int64) if counts else self.tables.values
        cells = len(own) + int(self.message_cells.sum())
        values, permitted = np.zeros(cells, dtype=own.dtype), np.zeros(cells, dtype=np.uint8)
        values[: len(own)], permitted[: len(own)] = own, self.tables.permitted
        return values, permitted

    def waits_for_compiler(self, counts: bool) -> bool:
        """Whether a loop has to be compiled first, which takes longer than a small problem in the engine."""
        if len(self.tables.values) + self.message_cells.sum() <= INTERPRETED_CELLS:
            return False
        # Types alone decide which compilation a call needs: arrays without cells serve.
        values, marks = np.zeros(0, dtype=np.int64 if counts else self.tables.values.dtype), np.zeros(0, dtype=np.uint8)
        choices, flag = np.zeros(0, dtype=np.int32), current_flag()
        if counts:
            return not is_ready(count_within, self.layout, values, marks, marks, flag)
        is_compiled = is_ready(choose_values, self.layout, choices)
        return not (is_ready(eliminate, self.layout, values, marks, choices, ADDED, True, flag) and is_compiled)

    def is_last(self) -> NDArray[np.bool_]:
        """Which messages have no variables."""
        found: NDArray[np.bool_] = np.diff(self.separators.starts) == 0
        return found

    @spanning(ELIMINATION, "all buckets in one loop")
    def solve(self) -> tuple[ForwardPass, tuple[int, ...] | None]:
        """The result of a forward pass, and an optimal assignment for selecting semirings.

        Raises TimeLimitError: the deadline of the block passed; FloatRangeError: float64 cannot represent a value.
        """
        outcome, choices, _, _ = self._eliminated()
        if outcome.value is None or not self.semiring.selects:
            return outcome, None
        return outcome, tuple(choose_values(self.layout, choices).tolist())

    @property
    def _rule(self) -> int:
        if self.semiring.selects:
            return GREATEST if self.semiring.marginalisation is Marginalisation.MAX else LEAST
        return ADDED if self.semiring.combination is Combination.MULTIPLY else ADDED_LOGARITHMS

    def _eliminated(self) -> tuple[ForwardPass, NDArray[np.int32], NDArray[Any], NDArray[np.uint8]]:
        """The result of a forward pass, its choices, and the values and permissions of all tables' cells."""
        values, permitted = self.cells()
        multiplies = self.semiring.combination is Combination.MULTIPLY
        choices = np.zeros(int(self.message_cells.sum()) if self.semiring.selects else 0, dtype=np.int32)
        exponent, is_within = eliminate(self.layout, values, permitted, choices, self._rule, multiplies, current_flag())
        check_deadline()
        if not is_within:
            raise FloatRangeError(f"{self.problem.name}: products of values leave the range of float64")
        return self._outcome(values, permitted, int(exponent)), choices, values, permitted

    def _outcome(self, values: NDArray[Any], permitted: NDArray[np.uint8], exponent: int) -> ForwardPass:
        constants, is_impossible = constants_of(self.problem)
        ends = self.layout.cell_starts[len(self.tables.starts) - 1 : -1][self.is_last()]
        found: list[int | float] = [*constants, *values[ends].tolist()]
        total: int | float
        if self.semiring.combination is Combination.ADD:
            try:
                total = sum(found) if values.dtype.kind == "i" else math.fsum(found)
            except OverflowError:
                total = math.inf
        else:
            total = 1.0
            for value in found:
                total, more = split(total * split(float(value))[0])
                exponent += more + split(float(value))[1]
        if isinstance(total, float) and not math.isfinite(total):
            raise FloatRangeError(f"{self.problem.name}: a sum of values leaves the range of float64")
        is_impossible |= not permitted[ends].all() or (self.semiring.zeros_forbid and 0 in constants)
        rows = self.message_cells
        numbers = (int(rows.max(initial=0)), int(rows.sum()), self.width)
        return ForwardPass([], None if is_impossible else total, exponent, *numbers)

    @spanning(ELIMINATION, "all buckets in one loop")
    def marginals(self) -> tuple[float, tuple[NDArray[np.float64], ...]] | None:
        """In log-sum-exp, the logarithm of the sum of weights, and each value's probability; None: nothing is feasible.

        Raises TimeLimitError: the deadline of the block passed.
        """
        outcome, _, values, permitted = self._eliminated()
        if outcome.value is None:
            return None
        value_starts = self._value_starts
        weights, shares = np.zeros(int(self.message_cells.sum())), np.zeros(int(value_starts[-1]))
        descend(self.layout, values, permitted, value_starts, weights, shares, current_flag())
        check_deadline()
        return float(outcome.value), tuple(np.split(shares, value_starts[1:])[:-1])

    @spanning(ELIMINATION, "all buckets in one loop")
    def gaps(self, never: Any) -> tuple[int | float | None, list[NDArray[Any]]]:
        """The best sum, and how far from it the best assignment with each value is, ``never`` where there is none.

        Raises as :meth:`solve`.
        """
        outcome, _, values, permitted = self._eliminated()
        if outcome.value is None:
            return None, []
        starts = self._value_starts
        gaps, found = np.full(int(self.message_cells.sum()), never), np.full(int(starts[-1]), never)
        descend_gaps(self.layout, values, permitted, never, self._rule, starts, gaps, found, current_flag())
        check_deadline()
        return outcome.value, np.split(found, starts[1:])[:-1]

    @property
    def _value_starts(self) -> NDArray[np.int64]:
        return np.concatenate([[0], np.cumsum(self._sizes)])


Begun = Callable[[NarrowProblem], Callable[[int, int, int], None]]
"""Records that an elimination begins, and returns the callback for its buckets: number, rows and bytes."""

COUNTS: Final = True
"""Value of ``temperature`` that requests the count of assignments, regardless of their values."""


def is_small(problem: Problem) -> bool:
    """Whether a problem has so few variables that the engine's time for each bucket adds up to few seconds."""
    return len(problem.variables) < tuning().many_parts


def narrow_problem(
    problem: Problem, options: SolveOptions, temperature: float | Literal[True] | None = None
) -> NarrowProblem | None:
    """The problem prepared for elimination in one loop; None if it is unsuitable or the options exclude that.

    None, too, for values that no message can represent: propagation may remove them, or the engine raises the error.

    problem : in its own semiring.
    temperature : converts values to weights (:mod:`oocbe.elimination.preparation.temperature`), or
        :data:`COUNTS`; None: values as in the semiring.
    Raises UnsupportedError: weights are negative; TimeLimitError: the deadline of the block passed; FormatError: the
    file named by ``options.order`` is no order.
    """
    semiring, numbers = problem.semiring, tuning()
    if options.tables == INCOMPLETE or options.workdir is not None or options.has_workers:
        return None
    small, counts = is_small(problem), temperature is COUNTS
    requests = {options.order, options.tables, options.bounds, options.backend} - {"auto", "cpu"}
    if (small and requests) or options.bounds not in ("auto", "none"):  # for the engine
        return None
    begin, memory = time.monotonic(), message_memory(options)
    most = numbers.narrow_bucket_seconds * len(problem.variables) / numbers.narrow_cell_seconds
    found = _order(problem, options, min(most, memory / numbers.cell_bytes), counts)
    taken = time.monotonic() - begin
    if found is None or carried_in_rows(problem) or left_out(problem):
        return None
    if temperature is None:
        try:
            is_integral = value_dtype(problem, semiring).kind == "i"
        except ValueRangeError:
            return None
        if semiring.counts or (is_integral and semiring.combination is Combination.MULTIPLY):
            return None
    if temperature is not None:
        from oocbe.elimination.preparation.temperature import without_offsets

        problem = without_offsets(problem)
    tables = flat_tables(problem, semiring, memory // numbers.narrow_factor_bytes)
    check_deadline()
    if tables is None:
        return None
    if temperature is None:
        constants, adds = constants_of(problem)[0], semiring.combination is Combination.ADD
        if small and adds and tables.magnitude + sum(map(abs, constants)) > LARGEST_SUM:
            return None
        if semiring.selects and not adds and not has_logarithms(problem):
            return None
    if temperature is not None and not counts:
        problem, tables = tables.at_temperature(problem, temperature)
    narrow = NarrowProblem(problem, problem.semiring, tables, *found, taken)
    return None if small and narrow.waits_for_compiler(counts) else narrow


def _order(
    problem: Problem, options: SolveOptions, most: float, counts: bool
) -> tuple[NDArray[np.int64], str, Separators, float] | None:
    """An order within the limit of cells of all buckets, its heuristic, its separators and their cells."""
    linear = [c.scope for c in problem.linear_constraints if c.can_bind]
    if any(math.prod(float(problem.sizes[v]) for v in scope) > most for scope in linear):
        return None  # some bucket joins all variables of a scope
    scopes = [*(f.scope for f in problem.functions), *(c.scope for c in problem.constraints), *linear]
    try:
        graph = ScopeGraph(problem.name, scopes, problem.sizes)
    except ResourceError:
        return None
    best: tuple[NDArray[np.int64], str, Separators, float] | None = None
    least = math.inf
    for name, order in _orders(graph, problem, options, most, counts):
        try:
            separators = graph.separators(order)
        except ResourceError:
            break
        joined = graph.joined_cells(order, separators)
        if joined.sum() > most:
            break  # further ones have more cells
        work = _count_seconds(graph, order, separators, joined) if counts else float(joined.sum())
        if work < least:
            best, least = (order, name, separators, float(joined.sum())), work
        if counts and least <= tuning().narrow_variable_seconds * (len(graph.sizes) + len(graph.neighbours)):
            break
    return best


def _orders(
    graph: ScopeGraph, problem: Problem, options: SolveOptions, most: float, counts: bool
) -> Iterator[tuple[str, NDArray[np.int64]]]:
    """Orders by name. A time limit does not decide whether a problem is narrow: an order is abandoned only for its
    number of cells, which ends the search on any other graph. Late orders are finished by min-degree, which finds most
    narrow ones.
    """
    if is_order_file(options.order):
        yield options.order, np.array(read_order(problem, options.order), dtype=np.int64)
        return
    seed, name = options.seed & 0x7FFFFFFF, "min-fill"
    with OrderFlags(graph, 0.0, 0.0) as flags:
        hurry = Hurry() if counts else Hurry(flags.first.hurry)  # min-degree does not support floors
        if options.order != "auto":
            yield options.order, heuristic(options.order, options.order_seconds)(graph, seed, most, hurry)
            return
        for floor in COUNT_FLOORS if counts else (0.0,):
            yield name, graph.greedy_order(CRITERIA[name], seed, most, flags=hurry, floor=floor)[0]


def _count_seconds(
    graph: ScopeGraph, order: NDArray[np.int64], separators: Separators, joined: NDArray[np.float64]
) -> float:
    """Estimated seconds for counting along an order; a product of counts takes a pass for each digit, at most."""
    bits = added_up(*separators, order, graph.weights)
    position = np.empty(len(order), dtype=np.int64)
    position[order] = np.arange(len(order))
    sends = np.flatnonzero(np.diff(separators.starts) > 0)
    longest = np.zeros(len(order))
    np.maximum.at(longest, position[separators.members[separators.starts[sends]]], bits[sends])
    shorter = (bits - longest) / DIGIT_BITS
    passes = np.clip(shorter, 1.0, SHORT_DIGITS) * np.clip(shorter / SHORT_DIGITS, 1.0, None) ** PRODUCT_POWER
    digits = DIGIT_SECONDS * bits * passes
    large = joined * (LARGE_CELL_SECONDS + digits) + LARGE_SECONDS
    cells = np.where(bits > COUNT_BITS, large, joined * tuning().narrow_cell_seconds)
    return float(cells.sum())


@spanning(ELIMINATION, "all buckets in one loop")
def count_feasible(narrow: NarrowProblem) -> int:
    """The exact number of feasible assignments.

    The loop computes counts of up to 62 bits; longer ones are Python integers. An order that follows a path from one
    end to the other makes nearly all counts long. So orders with shallow bucket trees are used
    (:func:`oocbe.kernels.cpu.orders.sparse_order.sparse_order`, ``floor``), which make few counts long.

    Raises TimeLimitError: the deadline of the current block passed.
    """
    constants, is_impossible = constants_of(narrow.problem)
    if is_impossible or (narrow.semiring.zeros_forbid and 0 in constants):
        return 0
    order, sizes, starts, members, cell_starts, input_starts, inputs = narrow.layout
    values, permitted = narrow.cells(counts=True)
    is_large = np.zeros(len(order), dtype=np.uint8)
    count_within(narrow.layout, values, permitted, is_large, current_flag())
    check_deadline()
    factors = len(narrow.tables.starts) - 1
    large: dict[int, NDArray[Any]] = {}

    def scope(table: int) -> list[int]:
        found: list[int] = members[starts[table] : starts[table + 1]].tolist()
        return found

    for p in looked(np.flatnonzero(is_large).tolist()):
        axes = [int(order[p]), *scope(factors + p)]
        shape = [int(sizes[v]) for v in axes]
        permits: Any = np.ones(shape, dtype=np.int64)
        by_scope: dict[tuple[int, ...], list[NDArray[Any]]] = {}
        for q in inputs[input_starts[p] : input_starts[p + 1]].tolist():
            own = scope(q)
            cells = large.pop(q, None)
            if cells is None:
                cells = values[cell_starts[q] : cell_starts[q + 1]].reshape([sizes[v] for v in own], order="F")
            placed = cells.transpose(sorted(range(len(own)), key=lambda i: axes.index(own[i])))
            spread = placed.reshape([sizes[v] if v in own else 1 for v in axes])
            if q < factors:
                permits *= spread
            else:
                by_scope.setdefault(tuple(sorted(own)), []).append(spread.astype(object))
        # Factors with the fewest digits first: a hub may have a hundred thousand factors over itself alone.
        products = sorted(map(_product, by_scope.values()), key=lambda cells: int(cells.max()).bit_length())
        joined = np.where(permits == 0, 0, permits.astype(object))
        for product in products:
            joined = joined * product
        large[factors + p] = np.asarray(joined.sum(axis=0), dtype=object)
    ends = factors + np.flatnonzero(narrow.is_last())
    return int(_product([int(large[q]) if q in large else int(values[cell_starts[q]]) for q in ends.tolist()]))


def _product(factors: list[Any]) -> Any:
    """The product of integers or integer arrays, pairing similar lengths first; 1 for an empty list."""
    while len(factors) > 1:
        check_deadline()
        pairs = [a * b for a, b in zip(factors[::2], factors[1::2], strict=False)]
        factors = pairs + factors[len(factors) // 2 * 2 :]
    return factors[0] if factors else 1


def narrow_result(problem: Problem, options: SolveOptions, begun: Begun, at_once: bool = False) -> Result | str | None:
    """The result; None if the problem is unsuitable for one loop, or if time ran out and bounds are available.

    begun : records an elimination, unless the problem is large: a record takes longer than a bucket.
    at_once : whether to return ``later``, at once, if propagation takes less time than the loop.
    Raises TimeLimitError: the deadline of the current block passed; FloatRangeError: float64 cannot represent a value,
    or a product, whose logarithm it can; FormatError: the file named by ``options.order`` is no order of this problem.
    """
    begin = time.perf_counter()
    has_bounds = problem.semiring.selects and options.bounds == "auto"
    try:
        with Deadline(options.time_limit):
            narrow = narrow_problem(problem, options)
            if narrow is None or (at_once and narrow.is_long):
                return None if narrow is None else "later"
            with keeping(tuning().bound_seconds * len(narrow.order) if has_bounds else 0.0):
                outcome, assignment = narrow.solve()
    except FloatRangeError:
        is_free = options.order == options.tables == options.bounds == "auto"
        if problem.semiring.combination is Combination.ADD or (is_free and has_logarithms(problem)):
            raise
        return None
    except RequestedEndError:
        raise
    except TimeLimitError:
        if has_bounds:
            return None
        raise
    ended = time.perf_counter()
    order, dtype = tuple(narrow.order.tolist()), narrow.tables.values.dtype
    if is_small(problem):
        bucket_done = begun(narrow)
        for number, rows in enumerate(narrow.message_cells.tolist(), start=1):
            bucket_done(number, rows, rows * dtype.itemsize)
    result = result_of_elimination(problem, options, outcome, order, dtype.name, assignment, "cpu")
    seconds = {"order": narrow.order_seconds, "forward": ended - begin - narrow.order_seconds, "backward": 0.0}
    seconds["total"] = time.perf_counter() - begin
    notes = (*result.notes, *filter(None, [memory_warning(options)]))
    return replace(result, seconds=seconds, peak_memory_bytes=peak_memory(), notes=notes)
