"""Work in pieces: each done once and in order whatever fails, halved where memory lacks, nothing left behind."""

from __future__ import annotations

import gc
import threading
import weakref
from contextlib import closing
from dataclasses import dataclass
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oocbe.errors import ResourceError, TimeLimitError
from oocbe.execution.budget import Budget
from oocbe.execution.pipeline import run_in_order
from oocbe.runtime.pieces import Indivisible, Resumption, Worklist, cut_to_fit, run_piece
from tests.helpers.effort import examples


@dataclass(frozen=True)
class Span:
    """Numbers from ``low`` up to ``high``; ``unit`` of them stay together."""

    low: int
    high: int
    unit: int = 1

    @property
    def size(self):
        return self.high - self.low


def halves_of(span):
    """Halves at multiples of the unit."""
    middle = (span.low + span.high) // 2 // span.unit * span.unit
    middle = middle if middle > span.low else (span.low // span.unit + 1) * span.unit
    if middle >= span.high:
        return Indivisible(span, f"the numbers of [{span.low}, {span.high}) stay together")
    return [Span(span.low, middle, span.unit), Span(middle, span.high, span.unit)]


LISTS = Resumption(len, lambda rows, count: rows[count:])


class Worker:
    """Gives the numbers of a span, some at a time; the attempts numbered in ``failing`` fail after some of them.

    failing : for an attempt, after how many of its results it fails and with what.
    """

    def __init__(self, failing, at_a_time=3, budget=None):
        self.failing, self.at_a_time, self.budget = dict(failing), at_a_time, budget or Budget(1 << 20)
        self.attempts, self.at_work = [], 0

    def compute(self, span):
        after, error = self.failing.get(len(self.attempts), (None, None))
        self.attempts.append(span)
        self.at_work += 1
        try:
            for number, low in enumerate(range(span.low, span.high, self.at_a_time)):
                if number == after:
                    raise error()
                yield list(range(low, min(low + self.at_a_time, span.high)))
            if after is not None:
                raise error()
        finally:
            self.at_work -= 1

    def reserve(self, span):
        return self.budget.reserve("a stream", span.size)

    def run(self, span, **more):
        more = {"resumption": LISTS, "reserve": self.reserve, **more}
        return run_piece(span, self.compute, halves_of, lambda e: isinstance(e, MemoryError), **more)


failures = st.dictionaries(st.integers(0, 12), st.tuples(st.integers(0, 6), st.just(MemoryError)), max_size=8)


@given(st.integers(0, 60), st.integers(1, 9), failures, st.integers(1, 7), st.booleans())
def test_each_row_is_given_once_and_in_order_whatever_fails(size, unit, failing, at_a_time, has_alone):
    worker = Worker(failing, at_a_time)
    last = Worker({}, 4)
    found, is_refused = [], False
    try:
        for rows in worker.run(Span(0, size, unit), alone=last.compute if has_alone else None):
            found += rows
    except ResourceError as error:
        is_refused = True
        assert "stay together" in str(error)
    assert worker.budget.used == worker.at_work == last.at_work == 0
    assert found == list(range(len(found)))
    done = [span for number, span in enumerate(worker.attempts) if number not in failing] + last.attempts
    if is_refused:
        assert not has_alone
    else:
        assert len(found) == size
        assert sum(span.size for span in done) == size  # what succeeded is not computed again


@given(st.integers(1, 200), st.integers(1, 20), st.integers(1, 30))
def test_cut_to_fit_covers_all_in_order_with_pieces_that_fit_or_have_no_half(size, unit, most):
    pieces = list(cut_to_fit(Span(0, size, unit), halves_of, lambda span: span.size <= most))
    assert [n for span in pieces for n in range(span.low, span.high)] == list(range(size))
    for span in pieces:
        assert span.size <= most or isinstance(halves_of(span), Indivisible)


def test_cut_to_fit_asks_again_what_fits_for_each_piece():
    """The caller may learn from a piece how large the next ones should be."""
    most, sizes = [64], []
    for span in cut_to_fit(Span(0, 128), halves_of, lambda span: span.size <= most[0]):
        sizes.append(span.size)
        most[0] = 8
    assert sizes == [64, *[8] * 8]


@given(
    st.integers(1, 60),
    failures,
    st.integers(0, 12),
    st.integers(0, 6),
    st.sampled_from([TimeLimitError, KeyboardInterrupt, ValueError, ResourceError]),
)
def test_an_error_of_another_kind_passes_and_leaves_nothing(size, failing, attempt, after, kind):
    worker = Worker({**failing, attempt: (after, kind)})
    found, passed = [], False
    try:
        for rows in worker.run(Span(0, size), alone=Worker({}).compute):
            found += rows
    except kind:
        passed = True
    assert passed == (attempt < len(worker.attempts))
    assert found == list(range(len(found)))
    assert passed or len(found) == size
    assert worker.budget.used == worker.at_work == 0


@given(st.integers(1, 60), failures, st.integers(0, 20))
def test_who_stops_taking_results_leaves_nothing(size, failing, taken):
    worker = Worker(failing, 1)
    with closing(worker.run(Span(0, size), alone=Worker({}).compute)) as results:
        for _, rows in zip(range(taken), results, strict=False):
            assert rows
    assert worker.budget.used == worker.at_work == 0


@settings(max_examples=examples(200))
@given(st.lists(st.tuples(st.integers(1, 40), failures), min_size=1, max_size=6), st.integers(1, 4))
def test_pieces_that_halve_run_in_streams(spans, streams):
    budget = Budget(1 << 20)

    class Work:
        def __init__(self, size, failing):
            self.worker, self.size = Worker(failing, budget=budget), size

        def __call__(self, stream):
            return self.worker.run(Span(0, self.size), alone=Worker({}).compute)

    found = list(run_in_order([Work(*span) for span in spans], streams))
    assert [n for rows in found for n in rows] == [n for size, _ in spans for n in range(size)]
    assert budget.used == 0
    assert not [t for t in threading.enumerate() if t.name.startswith("oocbe-stream")]


@settings(max_examples=examples(200))
@given(
    st.lists(st.tuples(st.integers(1, 40), failures), min_size=1, max_size=6),
    st.integers(1, 4),
    st.integers(0, 5),
    st.integers(0, 4),
    st.sampled_from([TimeLimitError, KeyboardInterrupt]),
)
def test_a_deadline_or_an_interrupt_in_one_stream_ends_all(spans, streams, place, attempt, kind):
    budget, workers = Budget(1 << 20), []
    for number, (_, failing) in enumerate(spans):
        stopping = {attempt: (0, kind)} if number == place else {}
        workers.append(Worker({**failing, **stopping}, budget=budget))

    def work(worker, size, stream):
        return worker.run(Span(0, size), alone=Worker({}).compute)

    pieces = [partial(work, worker, size) for worker, (size, _) in zip(workers, spans, strict=True)]
    found = []
    try:
        for rows in run_in_order(pieces, streams):
            found += rows
        assert len(found) == sum(size for size, _ in spans)
    except kind:
        assert attempt < len(workers[place].attempts)
    before = [n for size, _ in spans for n in range(size)]
    assert found == before[: len(found)]
    assert budget.used == sum(worker.at_work for worker in workers) == 0
    assert not [t for t in threading.enumerate() if t.name.startswith("oocbe-stream")]


def test_halving_ends_with_an_error_that_names_what_has_no_half():
    budget = Budget(1 << 20)

    def refuse(span):
        raise MemoryError("8 TiB could not be allocated")

    with pytest.raises(
        ResourceError, match=r"^the numbers of \[0, 4\) stay together: 8 TiB could not be allocated$"
    ) as caught:
        list(
            run_piece(
                Span(0, 64, 4),
                refuse,
                halves_of,
                lambda e: isinstance(e, MemoryError),
                reserve=lambda span: budget.reserve("a", span.size),
            )
        )
    assert isinstance(caught.value.__cause__, MemoryError)
    assert budget.used == 0


def test_a_reservation_that_cannot_be_had_halves_the_piece_where_the_caller_says_so():
    budget = Budget(10)
    worker = Worker({}, budget=budget)
    found = run_piece(
        Span(0, 64),
        worker.compute,
        halves_of,
        lambda e: isinstance(e, ResourceError),
        reserve=worker.reserve,
        resumption=LISTS,
    )
    assert [n for rows in found for n in rows] == list(range(64))
    assert max(span.size for span in worker.attempts) == 8
    assert budget.peak <= 10
    with pytest.raises(ResourceError, match="10 B"):  # elsewhere it is an error like any other
        list(Worker({}, budget=budget).run(Span(0, 64)))


def test_pieces_of_several_results_are_not_computed_twice_without_a_resumption():
    worker = Worker({0: (1, MemoryError)})
    with pytest.raises(MemoryError):
        list(worker.run(Span(0, 9), resumption=None))
    assert worker.attempts == [Span(0, 9)]
    worker = Worker({0: (0, MemoryError)}, at_a_time=9)
    assert list(worker.run(Span(0, 9), resumption=None)) == [[0, 1, 2, 3], [4, 5, 6, 7, 8]]


def test_a_piece_of_which_nothing_comes_has_no_halves():
    worker = Worker({0: (0, MemoryError)})
    found = run_piece(Span(0, 9), worker.compute, lambda span: (), lambda e: isinstance(e, MemoryError))
    assert list(found) == []


@given(st.integers(0, 60), st.integers(1, 9), st.sets(st.integers(0, 12)), st.booleans())
def test_whoever_goes_through_a_worklist_computes_each_row_once_and_in_order(size, unit, failing, has_alone):
    worklist = Worklist(Span(0, size, unit), halves_of, lambda e: isinstance(e, MemoryError), has_alone)
    found, attempts, is_refused = [], 0, False
    try:
        for span in worklist:
            if worklist.is_alone:
                assert isinstance(halves_of(span), Indivisible)
                found += range(span.low, span.high)
                continue
            attempts += 1
            with worklist:
                if attempts in failing:
                    raise MemoryError
                found += range(span.low, span.high)
    except ResourceError as error:
        is_refused = True
        assert "stay together" in str(error)
    assert is_refused <= (not has_alone)
    assert found == list(range(len(found) if is_refused else size))


@pytest.mark.parametrize("kind", [TimeLimitError, KeyboardInterrupt, ValueError])
@pytest.mark.parametrize("is_alone", [False, True])
def test_other_errors_pass_a_worklist_and_so_do_all_of_a_piece_alone(kind, is_alone):
    worklist = Worklist(Span(0, 1), halves_of, lambda e: isinstance(e, MemoryError), has_alone=True)
    error = MemoryError if is_alone else kind
    with pytest.raises(error):
        for _ in worklist:
            with worklist:
                raise MemoryError if is_alone else kind


def test_a_worklist_holds_no_piece_that_is_done():
    class Held:
        def __init__(self, size):
            self.size = size
            live.add(self)

    def cutter(held):
        for _ in range(2):
            seen.append(sorted(other.size for other in live))
            yield Held(held.size // 2)

    live, seen = weakref.WeakSet(), []
    worklist = Worklist(Held(4), cutter, lambda e: isinstance(e, MemoryError))
    for held in worklist:
        with worklist:
            too_large_above(1, lambda held: held, held)
        del held
    assert seen == [[4], [2, 4], [2, 4], [4], [2, 4], [2, 4]]


def test_what_a_failed_attempt_held_is_gone_before_its_halves_are_cut():
    """Its reservation, and the arrays in its frames and in those of the errors that led to it."""
    budget, held, seen = Budget(100), [], []

    class Array:
        pass

    def allocate(array):
        raise MemoryError

    def compute(span):
        array = Array()
        held.append(weakref.ref(array))
        if span.size > 2:
            try:
                allocate(array)
            except MemoryError as error:
                raise ResourceError("no room") from error
        yield span.size

    def cutter(span):
        gc.collect()
        seen.append((held[-1]() is None, budget.used))
        return halves_of(span)

    found = run_piece(
        Span(0, 8),
        compute,
        cutter,
        lambda e: isinstance(e, ResourceError),
        reserve=lambda span: budget.reserve("a", span.size),
    )
    assert list(found) == [2, 2, 2, 2]
    assert seen == [(True, 0)] * 3


def test_halves_are_made_one_by_one():
    """The second half of a piece may take memory, which the first one has until it is done."""
    made = []

    def cutter(span):
        for half in halves_of(span):
            made.append(half)
            yield half

    worker = Worker({0: (0, MemoryError)}, at_a_time=8)
    results = run_piece(Span(0, 8), worker.compute, cutter, lambda e: isinstance(e, MemoryError))
    assert next(results) == [0, 1, 2, 3]
    assert made == [Span(0, 4)]
    assert list(results) == [[4, 5, 6, 7]]


def test_thousands_of_halves_need_no_deep_stack():
    """Skew: each time the first row alone has a half."""

    def first_alone(span):
        return [Span(span.low, span.low + 1), Span(span.low + 1, span.high)]

    def compute(span):
        if span.size > 1:
            raise MemoryError
        return [span.low]

    found = run_piece(Span(0, 5000), compute, first_alone, lambda e: isinstance(e, MemoryError))
    assert list(found) == list(range(5000))
    assert len(list(cut_to_fit(Span(0, 5000), first_alone, lambda span: span.size == 1))) == 5000


def test_a_piece_that_is_done_is_let_go_before_the_next_one_is_made():
    """Pieces may hold arrays of their own."""

    class Held:
        def __init__(self, size):
            self.size = size
            live.add(self)

    live = weakref.WeakSet()

    def cutter(held):
        for _ in range(2):
            seen.append(sorted(other.size for other in live))
            yield Held(held.size // 2)

    seen = []
    found = run_piece(
        Held(4), partial(too_large_above, 1, lambda held: [held.size]), cutter, lambda e: isinstance(e, MemoryError)
    )
    assert list(found) == [1, 1, 1, 1]
    assert seen == [[4], [2, 4], [2, 4], [4], [2, 4], [2, 4]]


def test_results_are_let_go_when_they_are_taken():
    class Array:
        pass

    held = []

    def compute(span):
        assert all(reference() is None for reference in held)
        array = Array()
        held.append(weakref.ref(array))
        return [array]

    todo = Span(0, 4)
    for result in run_piece(
        todo, partial(too_large_above, 1, compute), halves_of, lambda e: isinstance(e, MemoryError)
    ):
        del result
    assert len(held) == 4


def too_large_above(most, compute, span):
    if span.size > most:
        raise MemoryError
    return compute(span)
