"""Progress: a bar on a terminal only, a log line an interval otherwise, and nothing when asked for quiet."""

import sys
import threading
from contextlib import closing
from queue import Queue
from types import SimpleNamespace
from typing import Any, cast

import pytest

from oocbe.cli import progress
from oocbe.cli.output import seconds, text_of_rows
from oocbe.cli.progress import BarObserver, LogObserver, SilentObserver, VerboseObserver, observer_for
from oocbe.model.results.progress_curve import SolverShare


def play(observer: SilentObserver) -> None:
    plan = cast(Any, SimpleNamespace(buckets=[None] * 3, __str__=lambda self: "plan"))
    with closing(observer):
        observer.started(plan)
        for number in (1, 2, 3):
            observer.bucket_done(number, 3, f"x{number}", 1000 * number, 2048)
        observer.finished(cast(Any, SimpleNamespace(solvers=())))


def test_the_observer_fits_the_flags_and_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    assert type(observer_for(quiet=True, verbose=True)) is SilentObserver
    assert type(observer_for(quiet=False, verbose=True)) is VerboseObserver
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert type(observer_for(quiet=False, verbose=False)) is BarObserver
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False, raising=False)
    with closing(observer_for(quiet=False, verbose=False)) as observer:
        assert type(observer) is LogObserver


class Intervals:
    """An event whose intervals pass when the test says so."""

    def __init__(self) -> None:
        self._asked, self._answer = threading.Semaphore(0), Queue[bool]()

    def wait(self, interval: float) -> bool:
        self._asked.release()
        return self._answer.get(timeout=20)

    def passes(self) -> None:
        """Let one pass, and wait until what it brought is done."""
        assert self._asked.acquire(timeout=20)
        self._answer.put(False)
        assert self._asked.acquire(timeout=20)
        self._asked.release()

    def set(self) -> None:
        self._answer.put(True)


def test_the_log_says_where_it_is_once_an_interval(capsys: pytest.CaptureFixture[str]) -> None:
    intervals = Intervals()
    with closing(LogObserver(cast(Any, intervals))) as observer:
        for number in (1, 2, 3):
            observer.bucket_done(number, 3, f"x{number}", 1000 * number, 2048)
            if number != 2:
                intervals.passes()
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert "bucket 1 of 3, x1: 1,000 rows, 2.0 KiB" in lines[0]
    assert "bucket 3 of 3, x3: 3,000 rows, 2.0 KiB" in lines[1]


@pytest.mark.parametrize("kind", [LogObserver, BarObserver])
def test_an_order_given_up_leaves_no_thread(kind: type[SilentObserver], monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[threading.Thread] = []
    start = threading.Thread.start

    def started(thread: threading.Thread) -> None:
        threads.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", started)
    with closing(kind()) as observer:
        for _ in range(3):
            observer.started(cast(Any, SimpleNamespace(buckets=[None] * 3)))
            observer.bucket_done(1, 3, "x", 10, 100)
    assert len(threads) == 1
    threads[0].join(timeout=10)  # the bar's thread is told to end and not waited for
    assert not threads[0].is_alive()


def test_the_bar_of_another_order_begins_anew() -> None:
    with closing(BarObserver()) as observer:
        observer.started(cast(Any, SimpleNamespace(buckets=[None] * 3)))
        observer.bucket_done(2, 3, "x", 10, 100)
        observer.started(cast(Any, SimpleNamespace(buckets=[None] * 5)))
        assert observer._progress is not None
        (task,) = observer._progress.tasks
        assert (task.completed, task.total, task.description) == (0, 5, "")


def test_a_quick_solve_logs_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with closing(LogObserver()) as observer:
        play(observer)
    assert capsys.readouterr() == ("", "")


def test_verbose_has_a_line_a_bucket(capsys: pytest.CaptureFixture[str]) -> None:
    play(VerboseObserver())
    shown = capsys.readouterr()
    assert shown.out == ""
    assert [line.split(",")[0] for line in shown.err.splitlines()[-3:]] == [f"bucket {n} of 3" for n in (1, 2, 3)]


def test_verbose_has_times_of_bounds_and_a_table_of_the_solvers(capsys: pytest.CaptureFixture[str]) -> None:
    observer = VerboseObserver()
    observer.bounds_changed(3, 9, "depth", None)
    shares = (SolverShare("bounds", 0.5, 1, 1, 0, 0.25), SolverShare("depth", 1.5, 1200, 2, 3, 0.75))
    observer.finished(cast(Any, SimpleNamespace(solvers=shares)))
    line, *table = capsys.readouterr().err.splitlines()
    assert line.partition(": ")[2] == "bound 3, incumbent 9, gap 6 (67 %) (depth)"
    assert [row.split() for row in table[1:]] == [
        ["depth", "1.50", "s", "1,200", "2", "3", "75%"],
        ["bounds", "500.0", "ms", "1", "1", "0", "25%"],
    ]
    observer.finished(cast(Any, SimpleNamespace(solvers=())))
    assert capsys.readouterr().err == ""


def test_the_bar_ends_when_the_solve_raises(capsys: pytest.CaptureFixture[str]) -> None:
    observer = BarObserver()
    with pytest.raises(RuntimeError, match="boom"), closing(observer):
        observer.started(cast(Any, SimpleNamespace(buckets=[None])))
        observer.bucket_done(1, 1, "x", 5, 100)
        raise RuntimeError("boom")
    assert observer._progress is not None
    assert not observer._progress.live.is_started
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(("duration", "text"), [(0.0031, "3.1 ms"), (2.5449, "2.54 s"), (725.2, "12 min 5 s")])
def test_durations(duration: float, text: str) -> None:
    assert seconds(duration) == text


def test_rows_without_content_are_left_out() -> None:
    shown = text_of_rows([("value", 0), ("bound", None), ("longer name", "x")])
    assert shown == "value        0\nlonger name  x"
    assert progress.LOG_INTERVAL_SECONDS == 60


@pytest.mark.parametrize(
    ("lower", "value", "told"),
    [(0, 100, "100 %"), (-900, 100, "1,000 %"), (99, 100, "1 %"), (0.0, 0.5, "100 %"), (99_999_999, 10**8, "< 0.01 %")],
)
def test_a_gap_in_percent_is_written_as_people_do(lower, value, told):
    """A gap of all of the value was told as 1e+02 %."""
    line = progress._bounds_line(lower, value)
    assert line.endswith(f"({told})") and "e+" not in line
