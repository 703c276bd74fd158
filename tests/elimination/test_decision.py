"""The decision about a bucket: what it turns on, and that a plan which knows the rows comes to that of the run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oocbe.algebra.complete_tables.complete_stream import CompleteStream
from oocbe.elimination.buckets.bucket_message import MessageMaker
from oocbe.elimination.buckets.forward import Forward
from oocbe.elimination.buckets.message import expected_work
from oocbe.elimination.buckets.messages import MessageStore
from oocbe.elimination.engine.bucket_engine import BucketEngine
from oocbe.elimination.engine.decision import (
    AttemptHistory,
    BucketConstraints,
    BucketSizes,
    Device,
    Input,
    MainMemory,
    Place,
    WhyForm,
    WhyPieces,
    decide,
    joins_on_device,
)
from oocbe.elimination.plan.bucket_forecast import MessageForecast, Passages
from oocbe.elimination.preparation.prepare import prepare
from oocbe.errors import ResourceError
from oocbe.model.settings.option_values import COMPLETE, INCOMPLETE
from oocbe.model.settings.tuning import tuned, tuning
from oocbe.stress.tables import random_network
from tests.helpers.effort import examples
from tests.helpers.small_problems import make_problem, structures, without_bound

AUTO = BucketConstraints("auto")
ROWS = Input(10_000, 100, 1200, 1200, False, Place.MAIN_MEMORY)
DENSE = BucketSizes(1000, 10_000, 4, 12, 900, [ROWS])
SPARSE = replace(DENSE, expected_rows=10)
PLENTY = MainMemory(1 << 30, 1 << 30)


def device(room=1 << 30, insists=False) -> Device:
    return Device(insists, 32, lambda: room)


def test_what_is_dense_is_complete_and_what_is_sparse_is_rows():
    strategy = decide(DENSE, PLENTY, None, AUTO)
    assert (strategy.form, strategy.why_form) == (COMPLETE, WhyForm.COMPLETE_IS_CHEAPER)
    assert (strategy.place, strategy.is_whole) == (Place.MAIN_MEMORY, True)
    strategy = decide(SPARSE, PLENTY, None, AUTO)
    assert (strategy.form, strategy.why_form) == (INCOMPLETE, WhyForm.ROWS_ARE_CHEAPER)
    assert strategy.is_whole
    assert decide(SPARSE, PLENTY, None, BucketConstraints("complete")).why_form is WhyForm.ASKED_FOR
    assert decide(DENSE, PLENTY, None, BucketConstraints("incomplete")).why_form is WhyForm.ONLY_ROWS
    assert decide(DENSE, PLENTY, None, AUTO, AttemptHistory(needs_rows=WhyForm.UNCERTAIN)).why_form is WhyForm.UNCERTAIN


def test_a_dense_message_of_few_joined_rows_is_joined_as_rows():
    """A table of 16,384 rows over two variables of as many values was written out: 268 million cells, 2 GiB."""
    values = 1 << 14
    few = Input(values**2, values, 16 * values, 16 * values, False, Place.MAIN_MEMORY)
    bucket = BucketSizes(values, values**2, 8, 16, values, [few])
    assert decide(bucket, replace(PLENTY, limit=1 << 36, free=1 << 36), None, AUTO).form == INCOMPLETE
    more = replace(few, rows=1 << 18)
    strategy = decide(replace(bucket, inputs=[more]), replace(PLENTY, limit=1 << 36, free=1 << 36), None, AUTO)
    assert strategy.form == COMPLETE


def test_complete_tables_that_take_much_of_the_memory_are_not_favoured():
    """1,000 cells of 4 bytes for 200 rows of 12: more bytes, up to a quarter of the memory."""
    bucket = replace(DENSE, expected_rows=200, inputs=[])
    needed = 2 * 4000
    assert decide(bucket, MainMemory(4 * needed, 4 * needed), None, AUTO).is_complete
    assert not decide(bucket, MainMemory(4 * needed - 1, 4 * needed - 1), None, AUTO).is_complete
    assert decide(bucket, MainMemory(4 * needed, 100), None, AUTO).why_form is WhyForm.COMPLETE_DOES_NOT_FIT


def test_orders_are_judged_by_the_forms_that_their_messages_will_have():
    """Two variables of ten values over a third: 200 of the 1,000 cells are feasible, and a cell costs nothing."""
    sizes, order = (10, 10, 10, 10), (3, 0, 1, 2)
    separators = ((0, 1, 2), (1, 2), (2,), ())
    rows, cells_a_row = (200.0, 20.0, 2.0, 1.0), 1e9
    dtype = np.dtype(np.int32)
    for memory in (4 * 8000, 4 * 8000 - 1, 4 * (800 + 4000), 4 * (800 + 8000), 4 * (800 + 8000) - 1, 900, 1):
        received, forms = [], []
        for v, separator, made in zip(order, separators, rows, strict=True):
            cells = 10 ** len(separator)
            bucket = BucketSizes(cells, cells * sizes[v], 4, 12, made, received)
            form = decide(bucket, MainMemory(memory, 1 << 40), None, AUTO).form
            nbytes = cells * 4 if form == COMPLETE else round(made) * 12
            received = [Input(cells, round(made), nbytes, round(made) * 12, form == COMPLETE, Place.MAIN_MEMORY)]
            forms.append(form)
        work = sum(made for made, form in zip(rows, forms, strict=True) if form == INCOMPLETE)
        found = expected_work(sizes, order, separators, rows, dtype, "auto", memory, cells_a_row)
        assert found == pytest.approx(work, abs=1e-3), (memory, forms)


def test_a_complete_table_without_room_goes_through_the_disk_where_it_is_smaller_than_its_rows():
    short = MainMemory(50_000, 50_000)
    strategy = decide(DENSE, short, None, AUTO)
    assert (strategy.form, strategy.why_pieces) == (COMPLETE, WhyPieces.RESULT)
    assert strategy.wanted == 4 * (2 * 1000 + 2 * 10_000)
    strategy = decide(DENSE, PLENTY, None, BucketConstraints("auto", piece_rows=999))
    assert (strategy.form, strategy.why_pieces) == (COMPLETE, WhyPieces.PIECE_ROWS)
    assert decide(DENSE, PLENTY, device(0, insists=True), AUTO).why_pieces is WhyPieces.DEVICE


def test_memory_that_can_be_freed_counts():
    """Messages leave until there is enough, the first one first, and no further."""
    memory = MainMemory(100, 10, lambda: iter([50, 20, 20]))
    assert [memory.after(wanted) for wanted in (0, 10, 11, 60, 61, 80, 100, 1000)] == [10, 10, 60, 60, 80, 80, 100, 100]
    full = MainMemory(1 << 20, 0, lambda: iter([1 << 20]))
    assert decide(DENSE, full, None, AUTO).place is Place.MAIN_MEMORY
    assert decide(DENSE, replace(full, movable=tuple), None, AUTO).why_pieces is WhyPieces.RESULT


def test_large_complete_buckets_go_to_a_device_with_room():
    large = replace(DENSE, joined_cells=tuning().device_cells)
    assert decide(large, PLENTY, device(), AUTO).place is Place.DEVICE
    assert decide(DENSE, PLENTY, device(), AUTO).place is Place.MAIN_MEMORY
    assert decide(DENSE, PLENTY, device(insists=True), AUTO).place is Place.DEVICE
    assert decide(large, PLENTY, device(48_399), AUTO).place is Place.MAIN_MEMORY
    assert decide(large, PLENTY, device(48_400), AUTO).place is Place.DEVICE
    assert decide(large, PLENTY, device(), AUTO, AttemptHistory(device_ran_out=True)).place is Place.MAIN_MEMORY
    # What is on disk is made complete in main memory, on its way.
    away = replace(large, inputs=[replace(ROWS, place=Place.DISK)])
    strategy = decide(away, PLENTY, device(), AUTO)
    assert (strategy.place, strategy.wanted) == (Place.DEVICE, 40_000)
    assert decide(away, MainMemory(39_999, 39_999), device(), AUTO).place is not Place.DEVICE


def test_rows_are_joined_in_pieces_where_memory_is_short():
    rows, narrow = BucketConstraints("incomplete"), MainMemory(2399, 2399)
    assert decide(SPARSE, narrow, None, rows).why_pieces is WhyPieces.TABLES
    assert decide(SPARSE, narrow, None, replace(rows, may_cut=False)).is_whole
    assert decide(SPARSE, PLENTY, None, replace(rows, piece_rows=99)).why_pieces is WhyPieces.PIECE_ROWS
    memory = MainMemory(12 * 3 * 70, 12 * 3 * 50, lambda: iter([12 * 3 * 20]))
    assert decide(SPARSE, memory, None, rows).most_rows == 70  # its inputs wanted more than were free
    assert decide(replace(SPARSE, inputs=[]), memory, None, rows).most_rows == 50
    more = decide(replace(SPARSE, inputs=[]), memory, None, rows, AttemptHistory(least_rows=51))
    assert (more.most_rows, more.is_whole) == (70, True)
    assert decide(SPARSE, memory, None, rows, AttemptHistory(least_rows=71)).why_pieces is WhyPieces.RESULT
    assert not decide(SPARSE, memory, None, replace(rows, may_cut=False), AttemptHistory(least_rows=71)).is_whole


def test_workers_share_what_the_cpu_joins_and_not_what_a_device_joins():
    """Workers exchange rows through files, which takes longer than a join on the device."""
    large = replace(SPARSE, inputs=[replace(ROWS, rows=3_000_000)])
    wishes = BucketConstraints.of(INCOMPLETE, None, False, has_workers=True)
    tried = AttemptHistory(least_rows=2_000_000)
    for bucket, history in ((large, AttemptHistory()), (SPARSE, tried)):
        assert decide(bucket, PLENTY, None, wishes, history).why_pieces is WhyPieces.WORKERS
        assert decide(bucket, PLENTY, device(), wishes, history).is_whole
        out_of_memory = replace(history, rows_ran_out=True)
        assert decide(bucket, PLENTY, device(), wishes, out_of_memory).why_pieces is WhyPieces.WORKERS
    wished = replace(wishes, whole_rows=50)  # of 100 rows: auto leaves these to the CPU
    assert decide(SPARSE, PLENTY, device(), wished).why_pieces is WhyPieces.WORKERS
    assert decide(SPARSE, PLENTY, device(insists=True), wished).is_whole
    short = MainMemory(1 << 10, 1 << 10)
    assert decide(large, short, device(insists=True), wishes).why_pieces is WhyPieces.TABLES


def test_complete_tables_among_rows_are_charged_for_their_list_and_its_making():
    listed = Input(100, 100, 400, 1200, True, Place.MAIN_MEMORY)
    bucket = replace(SPARSE, inputs=[listed, replace(ROWS, place=Place.DISK)])
    # Both lists and the values in their order, both lists end to end, and room for what comes of them.
    assert (
        decide(bucket, PLENTY, None, BucketConstraints("incomplete")).wanted == 2 * 1200 + 400 + 2 * 1200 + 2 * 3 * 1200
    )
    assert (
        decide(replace(SPARSE, inputs=[listed]), PLENTY, None, BucketConstraints("incomplete")).wanted
        == 1200 + 400 + 2400
    )


def test_rows_are_joined_on_a_device_where_that_pays():
    assert joins_on_device(device(), 100.0, 100, 10, 2, consumes=False)
    assert not joins_on_device(None, 100.0, 100, 10, 2, consumes=False)
    assert not joins_on_device(device(), 99.0, 100, 10, 2, consumes=False)
    assert not joins_on_device(device(), 100.0, 100, 10, 2, consumes=True)
    assert not joins_on_device(device(), 100.0, 100, 10, 33, consumes=False)
    assert not joins_on_device(device(), 100.0, 100, 1 << 32, 2, consumes=False)


def test_numbers_vary_for_a_block():
    before = tuning()
    with tuned(favour=0.0) as numbers:
        assert tuning() is numbers and numbers == before._replace(favour=0.0)
        assert not decide(DENSE, PLENTY, None, AUTO).is_complete
    assert tuning() is before
    with pytest.raises(TypeError, match="favor"), tuned(favor=1.0):
        pass


class CountingEngine(BucketEngine):
    """Adds up the rows of its joins."""

    def join(self, *arguments):
        return self._counted(super().join(*arguments))

    def join_piece(self, *arguments):
        return self._counted(super().join_piece(*arguments))

    def _counted(self, table):
        self.joined_rows += table.rows
        return table


class Watched(MessageMaker):
    """Notes how each message was made, and what of."""

    def make(self, place, bucket, subtree):
        self._engine.joined_rows, self.strategies, self.streams = 0, [], []
        message, exponent = super().make(place, bucket, subtree)
        sizes, domains = self._prepared.dtype.itemsize, self._prepared.problem.sizes
        position, scope = self._prepared.position, bucket.separator
        cells = int(np.prod([domains[v] for v in scope], dtype=object))
        row_bytes = 8 * self._prepared.layout(scope).words + sizes
        target = position[scope[0]] if scope else None
        rows = (self.expected, max(self._engine.joined_rows, message.rows), message.rows)
        forecast = MessageForecast(target, bucket.variable, scope, sizes, row_bytes, cells, *rows)
        self.notes.append((forecast, self.strategies[-1], message, message.nbytes))
        return message, exponent

    def _decide(self, task):
        self.expected = self._complete.expected_rows(task.bucket, task.covered)
        self.strategies.append(super()._decide(task))
        return self.strategies[-1]


@st.composite
def problems(draw):
    """Problems of every kind, and networks: of these, more messages wait at a time."""
    if draw(st.booleans()):
        structure = draw(structures())
        return make_problem({**structure, "parts": [part for part in structure["parts"] if part[0] != "linear"]})
    # More take minutes in pieces of some hundred bytes, along a bad order.
    variables, domain = draw(st.sampled_from([*((n, 2) for n in range(6, 17)), *((n, 3) for n in range(6, 11))]))
    density = draw(st.sampled_from([0.1, 0.25]))
    return random_network(variables, domain, density, draw(st.sampled_from([0.0, 0.3])), seed=draw(st.integers(0, 999)))


@settings(max_examples=examples(120))
@given(
    problem=problems().map(without_bound),
    seed=st.integers(0, 999),
    tables=st.sampled_from(["auto", "complete", "incomplete"]),
    memory=st.sampled_from([300, 600, 1200, 2400, 5000, 30_000, 1 << 24]),
    piece_rows=st.sampled_from([None, None, 20]),
    dominance=st.booleans(),
    favour=st.sampled_from([4.0, 1.0]),
)
def test_a_plan_that_knows_the_rows_decides_as_the_run(problem, seed, tables, memory, piece_rows, dominance, favour):
    order = np.random.default_rng(seed).permutation(len(problem.variables)).tolist()
    prepared = prepare(problem, problem.semiring, order)
    engine = CountingEngine("cpu", streams=1, piece_rows=piece_rows)
    pieces = []
    with pytest.MonkeyPatch.context() as patch, tuned(favour=favour, held_share=0.2):
        values = CompleteStream.values
        patch.setattr(CompleteStream, "values", lambda stream: pieces.append(stream.cuts.pieces) or values(stream))
        patch.setattr(Watched, "notes", notes := [], raising=False)
        with MessageStore(memory) as store:
            try:
                Forward(prepared, dominance, store, engine=engine, tables=tables, maker=Watched).run()
            except ResourceError:
                return  # not even the smallest piece fits
            at_the_end = [m.is_in_memory for _, _, m, _ in notes]
        known = [forecast for forecast, *_ in notes]
        wishes = BucketConstraints(tables, piece_rows)
        passages = Passages(memory, 1, wishes, keeps_all=False, sizes=problem.sizes).of(known)
    for passage, (_, strategy, message, nbytes), is_in_memory in zip(passages, notes, at_the_end, strict=True):
        if message.rows == 0:
            break  # nothing is feasible: rows have the last word, and the run ends
        assert passage.strategy == strategy
        assert passage.nbytes == nbytes
        assert (passage.disk_bytes == 0) == is_in_memory
        if strategy.is_complete and not strategy.is_whole:
            assert passage.pieces == pieces.pop(0)
