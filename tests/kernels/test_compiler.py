"""Compilation in child processes: limits hold while nothing is compiled, and loops are interpreted meanwhile."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from multiprocessing import Pipe
from pathlib import Path

import numpy as np
import pytest
from numba import types

import oocbe
from oocbe import errors
from oocbe.bounds import incumbent
from oocbe.bounds.kernels.cpu.local_search import search
from oocbe.elimination.row_pruning import row_bounds
from oocbe.kernels.cpu import compiler, interpreter, jit
from oocbe.kernels.cpu.buckets import outside_terms
from oocbe.model.settings.option_values import Gap
from oocbe.runtime import data_limit
from oocbe.runtime.deadline import Deadline
from oocbe.search.incumbent_search import offer_first
from oocbe.search.subsolver import SharedBounds
from oocbe.stress.tables import random_network

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "daily.spot"


def command(cache: Path, *more: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "oocbe", "solve", str(EXAMPLE), "--json", "--quiet", *more],
        env=os.environ | {"NUMBA_CACHE_DIR": str(cache), "OOCBE_INTERPRETED_SECONDS": "0.1"},
        stdout=subprocess.PIPE,
        text=True,
    )


def loops(cache: Path, suffix: str) -> set[str]:
    return {path.name.split("-")[0] for path in cache.rglob(f"*.nbc{suffix}")}


def test_a_first_run_that_ends_early_has_an_assignment_and_a_bound_and_its_loop_is_finished(tmp_path):
    process = command(tmp_path, "--time-limit", "2")
    answer = json.loads(process.communicate()[0])
    assert answer["status"] == "limit"
    assert oocbe.read(EXAMPLE).evaluate(answer["assignment"]) == answer["value"]
    assert 0 <= answer["bound"] <= answer["value"]
    begun = loops(tmp_path, ".lock")
    while begun and not begun & loops(tmp_path, ""):
        assert loops(tmp_path, ".lock")
        time.sleep(0.05)


def test_a_signal_ends_the_wait_for_a_compilation(tmp_path):
    process = command(tmp_path)
    while not loops(tmp_path, ".lock"):
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    assert json.loads(process.communicate()[0])["status"] == "interrupted"


def test_a_first_assignment_and_bound_need_no_compilation(monkeypatch):
    problem = random_network(12, 4, 0.4, 0.2, seed=3)
    known = SharedBounds(problem, Gap(), lambda *_: None)
    monkeypatch.setattr(jit, "is_ready", lambda *_: False)
    monkeypatch.setattr(compiler.Compiler, "start", None)
    offer_first(known)
    assert known.assignment is not None
    assert problem.evaluate(known.assignment) == known.value
    assert known.lower == sum(int(least) for least in problem.least_values) + problem.constant


def test_a_wait_ends_with_the_outermost_deadline_and_not_with_one_of_an_attempt(monkeypatch):
    waits: list[float] = []
    monkeypatch.setattr(compiler.Compiler, "start", lambda *_: None)
    monkeypatch.setattr(compiler.Compiler, "is_over", lambda *_: bool(waits.append(0) or len(waits) > 5))
    with Deadline(1000), Deadline(1e-9) as attempt:
        compiler.compiler.compile(("oocbe", "a", ()), attempt.outermost)
    monkeypatch.setattr(compiler.Compiler, "is_over", lambda *_: False)
    for seconds, waits in ((compiler.LEAST_SECONDS + 0.05, True), (compiler.LEAST_SECONDS / 2, False)):
        with pytest.raises(errors.TimeLimitError), Deadline(seconds) as deadline:
            compiler.compiler.compile(("oocbe", "a", ()), deadline.outermost)
        assert deadline.passed == waits


def test_threads_that_wait_for_one_loop_share_a_child_and_the_next_loop_gets_an_idle_one(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    made = compiler.Compiler()
    first = (outside_terms.__name__, "sum_outside", (types.int64,))  # fails: the wait ends, and the child lives
    with Deadline() as deadline:
        made.start(first)
        child = made._running[first]
        made.start(first)
        assert list(made._running.values()) == [child]
        made.compile(first, deadline)
        assert made._idle == [child]
        made.compile(first, deadline)
    assert made._idle == [child]
    made.close()
    assert child[0].returncode == 0


def test_further_loops_wait_for_one_of_few_children(monkeypatch):
    monkeypatch.setattr(compiler, "connected_child", lambda *_, **__: (FakeProcess(), FakeConnection()))
    made = compiler.Compiler()
    names = [(outside_terms.__name__, name, ()) for name in "abcd"]
    for loop in names:
        made.start(loop)
    assert [*made._running] == names[:2]
    made._running[names[0]][1].is_done = True
    assert made.is_over(names[0])
    assert [*made._running] == [names[1], names[3]]  # the last one is the most urgent
    assert not any(map(made.is_over, names[1:]))
    monkeypatch.setattr(data_limit.data_limit, "_limit", 1 << 40)
    for done, left in ((names[1], names[3]), (names[3], names[2])):
        made._running[done][1].is_done = True
        assert made.is_over(done)
        assert [*made._running] == [left]


def test_a_large_child_ends_within_a_limit_on_data(monkeypatch):
    """Numba keeps all that it compiles: a solve with --memory 32MiB and its child took 323 MiB with 74 loops."""
    monkeypatch.setattr(compiler, "connected_child", lambda *_, **__: (FakeProcess(), FakeConnection()))
    made = compiler.Compiler()
    loop = (outside_terms.__name__, "a", ())
    for limit, nbytes, is_kept in (
        (None, 1 << 40, True),
        (1 << 40, 1, True),
        (1 << 40, compiler.MOST_BYTES + 1, False),
    ):
        monkeypatch.setattr(data_limit.data_limit, "_limit", limit)
        made.start(loop)
        child = made._running[loop]
        child[1].is_done, child[1].nbytes = True, nbytes
        assert made.is_over(loop)
        assert made._idle == [child] * is_kept
        assert (child[0].is_over, child[1].is_closed) == (not is_kept, not is_kept)


def test_an_interrupt_while_a_reply_is_read_ends_the_wait(monkeypatch):
    def recv():
        raise KeyboardInterrupt

    monkeypatch.setattr(compiler, "connected_child", lambda *_, **__: (FakeProcess(), FakeConnection()))
    made = compiler.Compiler()
    loop = (outside_terms.__name__, "a", ())
    made.start(loop)
    connection = made._running[loop][1]
    connection.is_done, connection.recv = True, recv
    with pytest.raises(KeyboardInterrupt):
        made.is_over(loop)
    assert made.is_over(loop)


class FakeProcess:
    is_over = False

    def wait(self):
        self.is_over = True


class FakeConnection:
    is_done = is_closed = False
    nbytes = 1

    def poll(self):
        return self.is_done

    def recv(self):
        self.is_done = False
        return self.nbytes

    def close(self):
        self.is_closed = True

    def send(self, _):
        pass


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_process_leaves_the_compilations_of_its_parent_alone(monkeypatch):
    """It would take the reply from the connection, and the parent would wait for ever."""
    ours, theirs = Pipe()
    monkeypatch.setattr(compiler, "connected_child", lambda *_, **__: (FakeProcess(), ours))
    made = compiler.compiler
    for name, empty in (("_idle", []), ("_running", {}), ("_waiting", []), ("_tried", set())):
        monkeypatch.setattr(made, name, empty)
    loop = (outside_terms.__name__, "sum_outside", (types.int16,))
    made.start(loop)
    theirs.send(1)
    child = os.fork()
    if child == 0:
        os._exit(0 if made.is_over(loop) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert ours.poll()
    assert made.is_over(loop)


def test_a_loop_is_compiled_here_if_no_child_can_be_started(tmp_path):
    """The executable of a frozen program is that program: a child would be another run of it."""
    code = """
import sys
import numpy as np
from oocbe.kernels.cpu import compiler
from oocbe.kernels.cpu.pairs.sort import ascent
from oocbe.runtime.deadline import Deadline
keys = np.array([[1, 2, 1]], dtype=np.uint64)
with Deadline():
    for sys.executable, layout in (("", keys), ("/bin/false", np.asfortranarray(np.vstack([keys, keys])))):
        print(ascent(layout))
    sys.frozen, compiler.connected_child = True, None
    print(ascent(keys[:, ::2]))
assert len(ascent.signatures) == 3
"""
    cache = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", code], env=cache, check=True)


def test_a_killed_child_ends_the_wait(monkeypatch):
    children, start = [], compiler.connected_child

    def connected(*given, **settings):
        children.append(start(*given, **settings))
        return children[-1]

    monkeypatch.setattr(compiler, "connected_child", connected)
    made = compiler.Compiler()
    loop = (search.__module__, "search", (types.int64,) * 8)
    with Deadline() as deadline:
        made.start(loop)
        children[0][0].kill()
        made.compile(loop, deadline)
        made.compile(loop, deadline)  # by a new one
    assert len(children) == 2
    made.close()


def test_interpreted_loops_return_what_compiled_ones_do():
    problem = random_network(12, 4, 0.4, 0.2, seed=3)
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    compiled = incumbent.find_incumbent(problem, 60.0, iterations=300)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(incumbent, "is_ready", lambda *_: False)
        interpreted = incumbent.find_incumbent(problem, 60.0, iterations=300)
    assert compiled is not None
    assert interpreted is not None
    assert interpreted.value == problem.evaluate(interpreted.assignment)
    assert interpreted.value == compiled.value
    assert (np.random.get_state()[1] == before).all()  # noqa: NPY002


def test_bounds_from_interpreted_sums_are_equal(monkeypatch):
    problem = random_network(8, 3, 0.5, 0.2, seed=5)
    from oocbe.bounds.estimators import constant_source

    compiled = constant_source(problem)
    monkeypatch.setattr(row_bounds, "sum_outside", interpreter.interpreted(row_bounds.sum_outside))
    interpreted = constant_source(problem)
    assert interpreted.root == compiled.root
    for eliminated, separator in ((1, [1, 2]), (6, [0, 3]), (0, [])):
        one, other = (source.for_message(eliminated, separator) for source in (compiled, interpreted))
        assert one.constant == other.constant
        assert all((one.tables[v] == other.tables[v]).all() for v in one.tables)


def test_a_loop_that_no_child_can_compile_is_compiled_here(monkeypatch):
    def double(x):
        return 2 * x

    loop = jit.jit(double)
    with suppress(errors.TimeLimitError), Deadline(1000):
        assert jit.is_ready(loop, 4)  # it is outside the package
        assert loop(4) == 8
