"""Buckets joined in pieces through the disk: the messages of the run in memory, bit for bit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oocbe.elimination.buckets import piecewise
from oocbe.elimination.buckets.assignment import backward_pass
from oocbe.elimination.buckets.forward import Forward, RowCapError
from oocbe.elimination.buckets.messages import MessageStore
from oocbe.elimination.engine.bucket_engine import BucketEngine
from oocbe.elimination.engine.bucket_stream import BucketPiece, BucketStream, PieceRoom
from oocbe.elimination.preparation.prepare import prepare
from oocbe.errors import CorruptDataError, DiskError, ResourceError
from oocbe.formats import read
from oocbe.kernels.cuda.device import why_unavailable
from oocbe.model.parts import Function, Variable
from oocbe.model.problem import Problem
from oocbe.model.semiring import MIN_SUM, SEMIRINGS
from oocbe.tables import disk_budget
from oocbe.tables.residence import to_host
from tests.helpers.bound_sources import ExactSource
from tests.helpers.effort import examples
from tests.helpers.small_problems import brute_force, make_problem, structures, without_bound

needs_device = pytest.mark.skipif(why_unavailable() is not None, reason=f"no CUDA device: {why_unavailable()}")


def run(problem, order, engine, dominance=True, bounds=None, memory=1 << 30, chunk_rows=1 << 20):
    """Outcome, assignment, and all messages in the order they were made, as bytes."""
    prepared = prepare(problem, problem.semiring, order)
    with MessageStore(memory, chunk_rows=chunk_rows) as store:
        outcome = Forward(prepared, dominance, store, engine=engine, bounds=bounds).run()
        tables = [to_host(m.table()) for bucket in outcome.buckets for m in bucket.messages]
        assignment = None
        if outcome.value is not None and problem.semiring.selects:
            assignment = backward_pass(prepared, outcome.buckets)
        stored = sum(m._stored is not None for bucket in outcome.buckets for m in bucket.messages)
    rows = [(t.layout, t.values.dtype, t.keys.tobytes(), t.values.tobytes()) for t in tables]
    return (outcome.value, outcome.exponent, outcome.total_rows, assignment, rows), stored


@settings(max_examples=examples(25))
@given(
    structures(), st.sampled_from([1, 2, 3, 7, 50, 1000]), st.sampled_from([1, 2, 8]), st.booleans(), st.integers(1, 9)
)
def test_pieces_give_the_messages_of_the_run_in_memory(structure, piece_rows, streams, dominance, chunk_rows):
    problem = without_bound(make_problem(structure))
    order = np.random.default_rng(structure["seed"]).permutation(len(problem.variables)).tolist()
    whole, _ = run(problem, order, BucketEngine("cpu"), dominance)
    engine = BucketEngine("cpu", piece_rows=piece_rows, streams=streams)
    cut, _ = run(problem, order, engine, dominance, chunk_rows=chunk_rows)
    assert cut == whole


@pytest.mark.parametrize(("piece_rows", "streams", "dominance"), [(300, 1, True), (500, 8, False)])
def test_a_day_of_photographs_in_pieces(piece_rows, streams, dominance):
    problem = read("examples/daily.spot")
    order = list(range(len(problem.variables)))
    whole, _ = run(problem, order, BucketEngine("cpu"), dominance)
    engine = BucketEngine("cpu", piece_rows=piece_rows, streams=streams)
    cut, stored = run(problem, order, engine, dominance, chunk_rows=piece_rows)
    assert cut == whole
    assert stored > 0 or dominance


@pytest.mark.parametrize("piece_rows", [1, 5, 40])
@pytest.mark.parametrize("with_tables", [True, False], ids=["additive bound", "constant bound"])
@pytest.mark.parametrize("seed", range(examples(32)))
def test_rows_that_no_completion_makes_good_enough_go_in_pieces_as_well(random_problem, seed, with_tables, piece_rows):
    problem = replace(random_problem(seed, variables=9, linear=False), upper_bound=None).in_semiring(MIN_SUM)
    best = brute_force(problem)
    if best is None:
        pytest.skip("nothing is feasible")
    order = np.random.default_rng(seed).permutation(9).tolist()
    found = []
    for engine in (BucketEngine("cpu"), BucketEngine("cpu", piece_rows=piece_rows, streams=2)):
        source = ExactSource(problem, seed, best + 4, with_tables)  # draws anew at each call
        found.append(run(problem.below(best + 4), order, engine, seed % 2 == 0, source, chunk_rows=7)[0])
    assert found[0] == found[1]
    assert found[0][0] == pytest.approx(best)


def complete_problem(variables, size):
    """A wheel: messages of all but two variables, complete; the first of them enumerates what no table has."""
    random = np.random.default_rng(variables)
    pairs = [(v, (v + 1) % variables) for v in range(variables)] + [(0, v) for v in range(1, variables)]
    functions = [Function.from_array(p, random.integers(0, 100, (size, size))) for p in pairs]
    return Problem(tuple(Variable(f"x{v}", size) for v in range(variables)), tuple(functions), name="wheel")


def test_a_bucket_of_functions_alone_is_cut_where_it_enumerates(monkeypatch):
    """No table narrows the first bucket: its pieces are ranges of the variables that it enumerates."""
    problem = complete_problem(6, 5)
    order = list(range(6))
    whole, _ = run(problem, order, BucketEngine("cpu"))
    cuts = []
    enumerated = BucketPiece._with_every_value
    monkeypatch.setattr(BucketPiece, "_with_every_value", lambda cut: cuts.append(cut.level) or enumerated(cut))
    cut, stored = run(problem, order, BucketEngine("cpu", piece_rows=30, streams=2), chunk_rows=64)
    assert cut == whole
    assert stored > 0
    assert {0, 1} <= set(cuts)


def test_a_small_memory_limit_sends_messages_through_the_disk():
    """No size of piece is given: the limit decides, and messages that wait go to disk as well."""
    problem = complete_problem(8, 5)
    order = list(range(8))
    whole, stored = run(problem, order, BucketEngine("cpu"), dominance=False)
    assert stored == 0
    cut, stored = run(problem, order, BucketEngine("cpu", streams=2), dominance=False, memory=1 << 18)
    assert cut == whole
    assert stored > 0


def test_the_row_cap_counts_the_rows_of_all_pieces():
    problem = complete_problem(7, 5)
    prepared = prepare(problem, MIN_SUM, range(7))
    engine = BucketEngine("cpu", piece_rows=100, streams=2)
    with MessageStore(1 << 30) as store, pytest.raises(RowCapError, match="more than 1,000 rows"):
        Forward(prepared, False, store, row_cap=1000, engine=engine).run()


def test_memory_that_cannot_be_had_halves_the_piece_and_ends_with_the_sizes(monkeypatch):
    problem = complete_problem(6, 4)
    order = list(range(6))
    whole, _ = run(problem, order, BucketEngine("cpu"), dominance=False)
    engine = BucketEngine("cpu", piece_rows=10**6, streams=1)
    join = engine.join_piece
    asked = []

    def short(program, layout, tables, *rest):
        asked.append(sum(t.rows for t in tables))
        if asked[-1] > least:
            raise MemoryError
        return join(program, layout, tables, *rest)

    monkeypatch.setattr(engine, "join", lambda *arguments, **more: raise_(ResourceError("no memory")))
    monkeypatch.setattr(engine, "join_piece", short)
    least = 20
    assert run(problem, order, engine, dominance=False)[0] == whole
    assert max(asked) > 100
    least = -1
    with pytest.raises(ResourceError, match=r"^wheel, bucket of x0: .*requested .*, limit .* for 1 streams"):
        run(problem, order, engine, dominance=False)


@settings(max_examples=examples(20))
@given(st.sets(st.integers(0, 30), max_size=12), st.sampled_from([MemoryError, ResourceError]), st.sampled_from([1, 4]))
def test_the_messages_are_those_of_the_run_in_memory_whichever_joins_find_no_memory(failing, error, streams):
    problem = complete_problem(6, 4)
    order = list(range(6))
    whole, _ = run(problem, order, BucketEngine("cpu"), dominance=False)
    engine = BucketEngine("cpu", piece_rows=100, streams=streams)
    join, calls = engine.join_piece, []

    def short(*arguments):
        calls.append(1)
        if len(calls) - 1 in failing:
            raise error("no memory")
        return join(*arguments)

    engine.join_piece = short
    try:
        assert run(problem, order, engine, dominance=False)[0] == whole
    except ResourceError as refused:  # twelve failures may follow one row of the message to the end
        assert "bucket of x" in str(refused)
        assert failing
    assert len(calls) > 0


def test_a_disk_that_fails_halves_no_piece():
    problem = complete_problem(6, 4)
    engine = BucketEngine("cpu", piece_rows=100, streams=1)
    calls = []

    def failing(*arguments):
        calls.append(1)
        raise DiskError("the disk fails")

    engine.join_piece = failing
    with pytest.raises(DiskError, match="the disk fails"):
        run(problem, list(range(6)), engine, dominance=False)
    assert len(calls) == 1


def raise_(error):
    raise error


@pytest.mark.parametrize("damaged", ["first", "last"])
def test_a_damaged_chunk_is_named_by_the_piece_that_reads_it(monkeypatch, tmp_path, damaged):
    """One byte of a message on disk changes between the bucket that makes it and the bucket that joins it."""
    problem = complete_problem(6, 5)
    prepared = prepare(problem, MIN_SUM, range(6))
    publish = MessageStore.publish_written

    def damage(store, *arguments):
        message = publish(store, *arguments)
        chunks = sorted(message._stored.path.glob("values/c/*"), key=lambda p: int(p.name))
        path = chunks[0 if damaged == "first" else -1]
        data = bytearray(path.read_bytes())
        data[-9] ^= 1
        path.write_bytes(data)
        return message

    monkeypatch.setattr(MessageStore, "publish_written", damage)
    engine = BucketEngine("cpu", piece_rows=100, streams=2)
    with (
        MessageStore(1 << 30, chunk_rows=50) as store,
        pytest.raises(CorruptDataError, match=r"a message to the bucket of x\d.*chunk \d+ of values"),
    ):
        Forward(prepared, False, store, engine=engine).run()


@pytest.mark.gpu
@needs_device
@pytest.mark.parametrize("semiring", SEMIRINGS.values(), ids=str)
@pytest.mark.parametrize(("piece_rows", "streams"), [(1, 2), (30, 1), (200, 8)])
@pytest.mark.parametrize("seed", range(3))
def test_pieces_on_the_device_give_the_messages_of_the_run_in_memory(
    random_problem, semiring, seed, piece_rows, streams
):
    problem = random_problem(seed, variables=9, linear=False).in_semiring(semiring)
    order = np.random.default_rng(seed).permutation(9).tolist()
    whole, _ = run(problem, order, BucketEngine("cuda"))
    cut, _ = run(problem, order, BucketEngine("cuda", piece_rows=piece_rows, streams=streams), chunk_rows=7)
    assert cut == whole


@pytest.mark.gpu
@needs_device
@pytest.mark.parametrize("dominance", [True, False])
@pytest.mark.parametrize("backend", ["auto", "cuda"])
def test_a_day_of_photographs_in_pieces_on_the_device(backend, dominance):
    problem = read("examples/daily.spot")
    order = list(range(len(problem.variables)))
    whole, _ = run(problem, order, BucketEngine("cpu"), dominance)
    engine = BucketEngine(backend, device_work=100, piece_rows=400, streams=2)
    cut, stored = run(problem, order, engine, dominance, chunk_rows=100)
    assert cut == whole
    assert stored > 0 or dominance


@pytest.mark.gpu
@needs_device
def test_little_device_memory_sends_a_bucket_through_the_device_in_pieces(monkeypatch):
    problem = complete_problem(9, 5)
    order = list(range(9))
    whole, _ = run(problem, order, BucketEngine("cpu"), dominance=False)
    engine = BucketEngine("cuda", streams=2)
    monkeypatch.setattr(engine, "piece_bytes", lambda: 1 << 16)
    monkeypatch.setattr(engine, "join", lambda *arguments, **more: raise_(ResourceError("no device memory")))
    assert run(problem, order, engine, dominance=False)[0] == whole


@pytest.mark.parametrize(("sparse", "piece_rows"), [(True, 300), (False, 1), (False, 300)])
def test_pieces_are_shares_of_the_bucket_that_add_up_to_it(piece_rows, sparse, monkeypatch):
    streams = []

    class Kept(BucketStream):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            streams.append(self)

    monkeypatch.setattr(piecewise, "BucketStream", Kept)
    problem = read("examples/daily.spot") if sparse else complete_problem(5 if piece_rows == 1 else 6, 4)
    run(problem, list(range(len(problem.variables))), BucketEngine("cpu", piece_rows=piece_rows, streams=2))
    assert streams
    for stream in streams:
        assert stream.done == pytest.approx(1)
        assert stream.made == stream.rows == pytest.approx(stream.made / stream.done)


def test_functions_alone_are_shared_by_the_streams_and_seldom_joined_in_vain(monkeypatch):
    """One stream did all of it, halving what it joined in vain: no table has bytes by which to cut such a bucket."""
    tried, streams = [], {}

    class Kept(BucketStream):
        def _join_piece(self, piece, may_halve=True):
            streams[id(self)] = self
            tried.append([piece.share, True])
            made = super()._join_piece(piece, may_halve)
            tried[-1][1] = False
            return made

    monkeypatch.setattr(piecewise, "BucketStream", Kept)
    problem = complete_problem(8, 5)
    whole, _ = run(problem, list(range(8)), BucketEngine("cpu"), dominance=False)
    tried.clear()
    streams.clear()
    engine = BucketEngine("cpu", piece_rows=500, streams=1)
    assert run(problem, list(range(8)), engine, dominance=False)[0] == whole
    in_vain = sum(was_in_vain for _, was_in_vain in tried)
    assert in_vain > 0
    assert sum(stream.pieces for stream in streams.values()) == len(tried) - in_vain  # what a forecast goes by
    assert len(tried) > 150
    assert in_vain < len(tried) / 10
    assert max(share for share, _ in tried) <= 0.6  # halves of five values are two and three


def larger_pieces():
    """For a run to the end: there are as many as a forecast asks for, and not hundreds."""
    return BucketEngine("cpu", piece_rows=2000, streams=2)


def test_a_forecast_goes_by_the_disk_where_there_is_no_limit_and_else_by_the_limit(monkeypatch, tune):
    tune(forecast_pieces=8)
    monkeypatch.setattr(disk_budget, "free_bytes", lambda folder: 9_000)
    prepared = prepare(complete_problem(8, 5), MIN_SUM, range(8))
    engine = BucketEngine("cpu", piece_rows=400, streams=2)
    with MessageStore(1 << 30, chunk_rows=500) as store, pytest.raises(DiskError, match=r"raise --max-disk to go on"):
        Forward(prepared, False, store, engine=engine).run()
    with MessageStore(1 << 30, chunk_rows=500, max_disk=1 << 30) as store:
        assert Forward(prepared, False, store, engine=larger_pieces()).run().value is not None


def test_a_bucket_that_the_disk_has_no_room_for_by_far_is_given_up(monkeypatch, tune):
    """Long before the disk is full; and with the sizes."""
    tune(forecast_pieces=8)
    prepared = prepare(complete_problem(8, 5), MIN_SUM, range(8))
    engine = BucketEngine("cpu", piece_rows=400, streams=2)
    limit, used = 16_000, [0]
    with MessageStore(1 << 30, chunk_rows=500, max_disk=limit) as store:
        take = store.budget.take
        monkeypatch.setattr(store.budget, "take", lambda *arguments: (take(*arguments), used.append(store.budget.used)))
        with pytest.raises(DiskError, match=r"bucket 1 was stopped by its forecast: .* % of it, .* rows") as caught:
            Forward(prepared, False, store, engine=engine).run()
        assert caught.value.is_full
        assert 0 < max(used) < limit / 2
        assert store.budget.used == 0
    with MessageStore(1 << 30, chunk_rows=500, max_disk=100 * limit) as store:
        assert Forward(prepared, False, store, engine=larger_pieces()).run().value is not None


@pytest.mark.parametrize(("room", "wanted", "expected"), [(1 << 20, None, 2), (1 << 40, None, 16), (1 << 20, 8, 8)])
def test_streams_are_few_where_pieces_would_be_small(room, wanted, expected, monkeypatch):
    monkeypatch.setenv("OOCBE_THREADS", "16")
    assert PieceRoom(room, wanted).streams == expected
