"""Loops that are not compiled yet are interpreted while they are short, and return what compiled ones do."""

# ruff: noqa: NPY002  (compiled loops know no other generator)

from __future__ import annotations

import fcntl
import itertools
import json
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oocbe
from oocbe.errors import UsageError
from oocbe.kernels.cpu import compiler, interpreter
from oocbe.kernels.cpu.complete import complete
from oocbe.kernels.cpu.interpreter import Interpreter, interpreted
from oocbe.kernels.cpu.jit import Loop, jit
from oocbe.kernels.cpu.native import array_at
from oocbe.kernels.cpu.orders.estimate import estimate_rows
from oocbe.kernels.cpu.orders.greedy_order import linear_order
from oocbe.kernels.interface import CompleteFunction
from oocbe.model.infeasible import infeasible_value, largest_feasible
from oocbe.model.semiring import Combination, Marginalisation
from oocbe.runtime.deadline import Deadline
from oocbe.runtime.parents import connected_child
from oocbe.stress import Spot5Settings, spot5_day
from oocbe.stress.tables import random_network
from tests.helpers.task_answers import answers

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "daily.spot"


@jit
def add_all(numbers, out):
    out[0] = 7
    for number in numbers:
        out[1] += number
    return numbers[0] + numbers[1]


@jit
def count(steps, out):
    for step in range(steps):
        out[0] += 1 + step - step
    return out[0]


@jit
def sweep(starts, neighbours, weights, hurry, stop):
    return linear_order(starts, neighbours, weights, 5, 100.0, hurry, stop)


@jit
def draw(seed, out):
    np.random.seed(seed)
    for i in range(len(out)):
        out[i] = np.random.randint(i + 1) + np.random.random()
    return out[np.random.permutation(len(out))[0]]


@jit
def second(address, like):
    return array_at(address, 1, 2, like)[1]


@jit
def poll(stop):
    for _ in range(10):
        if stop[0] != 0:
            return 1
    return 0


@pytest.fixture
def made(monkeypatch):
    """The interpreter of a loop, as if the loop was in no cache."""
    monkeypatch.setattr(Interpreter, "all_seconds", 0.0)
    monkeypatch.setattr(interpreter, "_process_seconds", lambda: 60.0)
    return lambda loop: Interpreter(loop, lambda signature: ("oocbe.none", loop.py_func.__name__, signature))


def test_an_overflow_is_undone_and_repeated_compiled(made):
    loop, out = made(add_all), np.zeros(2, dtype=np.int64)
    assert loop.takes((np.array([3, 4], dtype=np.uint8), out))
    assert loop(np.array([3, 4], dtype=np.uint8), out) == 7
    assert out.tolist() == [7, 7]
    assert loop.takes((np.array([200, 100], dtype=np.uint8), out))
    assert loop(np.array([200, 100], dtype=np.uint8), out) == 300  # NumPy's uint8 holds no 300
    assert out.tolist() == [7, 307]
    assert not loop.takes((np.array([3, 4], dtype=np.uint8), out))


def test_a_long_call_is_undone_and_repeated_compiled(made, monkeypatch):
    loop, out = made(count), np.zeros(1, dtype=np.int64)
    assert loop(50, out) == 50
    monkeypatch.setattr(interpreter, "LOOP_SECONDS", 0.01)
    assert loop(30_000_000, out) == 30_000_050
    assert interpreter._processor_end == float("inf")
    assert not loop.takes((50, out))


def test_time_without_the_processor_does_not_count(made, monkeypatch):
    """On a loaded machine, a loop was compiled that takes a tenth of its seconds."""
    monkeypatch.setattr(interpreter, "LOOP_SECONDS", 0.05)
    monkeypatch.setattr(interpreter, "_pace", lambda: 1.0)
    monkeypatch.setattr(interpreter.time, "monotonic", itertools.count(0.0, 0.1).__next__)
    loop, out = made(count), np.zeros(1, dtype=np.int64)
    assert loop(50, out) == 50
    assert loop.takes((50, out))


def test_many_elements_and_other_threads_are_left_to_compiled_loops(made):
    loop, out = made(add_all), np.zeros(2, dtype=np.int64)
    assert not loop.takes((np.zeros(interpreter.INTERPRETED_ELEMENTS, dtype=np.int64), out))
    found = []
    thread = threading.Thread(target=lambda: found.append(loop.takes((out, out))))
    thread.start()
    thread.join()
    assert found == [False]


def test_the_end_of_the_main_threads_call_is_none_of_another_thread(monkeypatch):
    """A thread searches for the first incumbent by interpreted loops, while the main thread interprets others."""
    monkeypatch.setattr(interpreter, "_look", 0.0)
    monkeypatch.setattr(interpreter, "_processor_end", 0.0)
    with pytest.raises(interpreter._OutOfTimeError):
        interpreted(count)(5, np.zeros(1, dtype=np.int64))
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(interpreted(count), 5, np.zeros(1, dtype=np.int64)).result() == 5


def test_no_large_array_is_copied(made):
    """A fast loop may get more elements than the first call; but a copy of a table may exceed the memory limit."""
    loop, out = made(add_all), np.zeros(2, dtype=np.int64)
    loop._seconds, loop._elements = 1e-9, 1000
    assert loop.takes((np.zeros(10 * interpreter.INTERPRETED_ELEMENTS, dtype=np.int8), out))
    assert not loop.takes((np.zeros(interpreter.MOST_ELEMENTS, dtype=np.int8), out))


def test_a_flag_that_is_set_during_an_undone_call_stays_set(made, monkeypatch):
    """The repeated call would run for as long as it wants."""
    with Deadline(60) as deadline:

        def set_and_end() -> None:
            deadline.interrupt()
            raise interpreter._OutOfTimeError

        monkeypatch.setattr(interpreter, "_check_time", set_and_end)
        assert made(poll)(deadline.flag) == 1


def test_draws_are_those_of_compiled_loops_and_numpys_own_go_on_as_before(made):
    before = np.random.get_state()[1].copy()
    one, other = np.zeros(50), np.zeros(50)
    assert made(draw)(11, one) == draw(11, other)
    assert one.tolist() == other.tolist()
    assert (np.random.get_state()[1] == before).all()


def test_numpys_own_draws_go_on_as_before_if_only_a_called_loop_draws(made):
    before = np.random.get_state()[1].copy()
    starts, neighbours = np.array([0, 1, 3, 4]), np.array([1, 0, 2, 1], dtype=np.int32)
    flags = np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64)
    made(sweep)(starts, neighbours, np.ones(3), *flags)
    assert (np.random.get_state()[1] == before).all()


def test_arrays_at_addresses(made):
    values = np.array([1, 2, 3], dtype=np.int32)
    assert made(second)(values.ctypes.data, values) == 3


@pytest.mark.parametrize("seed", range(6))
def test_estimates_are_equal(seed):
    """Another function stands in for this loop."""
    rng = np.random.default_rng(seed)
    sizes = rng.choice([1, 2, 4, 63, 64, 65, 90], 7)
    uses = [[v for v in range(7) if v != u and max(sizes[u], sizes[v]) <= 64 and seed] for u in range(7)]
    offsets, masks = [], []
    for u in range(7):
        for v in uses[u]:
            offsets.append(len(masks))
            bits = rng.integers(0, 1 << 63, sizes[u], dtype=np.uint64) & np.uint64((1 << int(sizes[v])) - 1)
            masks += bits.tolist()
    separators = [rng.permutation(7)[:count].tolist() for count in (0, 1, 3, 7, 5, 2)]
    arguments = (
        np.cumsum([0, *map(len, separators)]),
        np.array([v for part in separators for v in part], dtype=np.int32),
        sizes,
        np.cumsum([0, *map(len, uses)]),
        np.array([v for part in uses for v in part], dtype=np.int64),
        np.array(offsets, dtype=np.int64),
        np.array(masks or [0], dtype=np.uint64),
        30,
        seed,
    )
    for most in (np.inf, 50.0):
        limits = (np.full(6, 40.0), most, np.zeros(1, dtype=np.int64))
        own = interpreted(estimate_rows)(*arguments, *limits)
        assert own.tolist() == estimate_rows(*arguments, *limits).tolist()


@given(st.integers(0, 1 << 32), st.sampled_from(["int64", "int32", "float64"]), st.sampled_from(Marginalisation))
def test_eliminations_are_equal(seed, dtype, marginalisation):
    """Another function stands in for this loop as well."""
    rng = np.random.default_rng(seed)
    sizes, combination = rng.integers(1, 4, rng.integers(1, 5)).tolist(), Combination(int(rng.integers(0, 2)))
    if marginalisation == Marginalisation.LOG_SUM_EXP:
        dtype, combination = "float64", Combination.ADD
    functions, values = [], []
    for _ in range(rng.integers(1, 7)):
        uses = rng.integers(0, 2, len(sizes)).tolist()
        strides = np.cumprod([1, *(n if is_used else 1 for n, is_used in zip(sizes, uses, strict=True))])[:-1] * uses
        cells = int(np.prod([n for n, is_used in zip(sizes, uses, strict=True) if is_used]))
        choices = [infeasible_value(np.dtype(dtype), combination, marginalisation), *range(-5, 5)]
        choices += [largest_feasible(np.dtype(dtype))] if dtype[0] == "i" else [np.nan]
        values.append(rng.choice(np.array(choices, dtype=dtype), cells))
        functions.append(CompleteFunction(values[-1], tuple(strides.tolist())))
    eliminated = int(rng.integers(0, len(sizes) + 1))
    arguments = (functions, sizes, eliminated, combination, marginalisation, np.dtype(dtype))
    whole = complete.eliminate_general(*arguments)
    with pytest.MonkeyPatch.context() as patch, np.errstate(all="ignore"):
        patch.setattr(complete, "_eliminate", interpreted(complete._eliminate))
        patch.setattr(Loop, "__call__", None)  # a loop called by an interpreted one has a stand-in, too
        for pieces in (None, 1):
            found = complete.eliminate_general(*arguments, pieces)
            np.testing.assert_allclose(found, whole, rtol=1e-14 if dtype[0] == "f" else 0)


def test_loops_for_a_configured_processor_are_found(tmp_path, monkeypatch):
    """They were interpreted in each process, as machine code for its own processor was looked for."""
    monkeypatch.setenv("NUMBA_CPU_NAME", "generic")
    monkeypatch.setattr("numba.config.CPU_NAME", "generic")
    loop = jit(linear_order.py_func)
    loop.folders = loop.folders._replace(writable=str(tmp_path), others=())
    arguments = (np.zeros(1),)
    types = loop._missing(arguments)[2]
    (tmp_path / loop.file(types, loop.targetctx.codegen().magic_tuple())).touch()
    assert loop._missing(arguments) is None


@pytest.mark.parametrize("text", ["none", "nan", "-1"])
def test_the_variable_must_be_a_number(monkeypatch, text):
    monkeypatch.setenv("OOCBE_INTERPRETED_SECONDS", text)
    interpreter._process_seconds.cache_clear()
    with pytest.raises(UsageError, match=f"must be a number of seconds, at least 0, not '{text}'"):
        interpreter._process_seconds()
    interpreter._process_seconds.cache_clear()


def leaves(figure):
    """The scalars of nested mappings and lists."""
    inner = figure.values() if isinstance(figure, dict) else figure if isinstance(figure, list) else None
    return [figure] if inner is None else [leaf for part in inner for leaf in leaves(part)]


def test_a_first_run_answers_as_later_ones_do_and_compiles_nothing(tmp_path, as_outside_of_the_tests):
    file, day, cache = str(tmp_path / "small.wcsp"), str(tmp_path / "day.spot"), tmp_path / "cache"
    oocbe.write(random_network(9, 3, 0.4, 0.3, seed=8), file)
    oocbe.write(spot5_day(Spot5Settings(photographs=30, seed=3)), day)
    environment = os.environ | {"NUMBA_CACHE_DIR": str(cache), "OOCBE_INTERPRETED_SECONDS": "60"}
    command = [sys.executable, "-m", "tests.helpers.task_answers", day, file]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not list(cache.rglob("*.nbc")), "nothing is worth compiling"
    first, later = json.loads(done.stdout), answers(day, file)
    assert first.keys() == later.keys() and first[day]["status"] == "optimal"
    for task, own in first.items():
        assert own.keys() == later[task].keys()
        for name, figure in own.items():
            other = json.loads(json.dumps(later[task][name]))
            assert figure == other or leaves(figure) == pytest.approx(leaves(other), rel=1e-12), (task, name)


def test_loops_left_are_compiled_after_the_end(tmp_path):
    """The child outlives its parent, and compiles what the parent did not wait for."""
    code = (
        "import numpy as np\nfrom oocbe.kernels.cpu import interpreter\n"
        "from oocbe.kernels.cpu.pairs.sort import ascent\n"
        "interpreter.LEFT_SECONDS = 0.0\nprint(ascent(np.array([[1, 2, 1]], dtype=np.uint64)))"
    )
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path), "OOCBE_INTERPRETED_SECONDS": "60"}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
    end = time.monotonic() + 60
    while not list(tmp_path.rglob("ascent*.nbc")):
        assert time.monotonic() < end
        time.sleep(0.05)


def test_one_process_at_a_time_compiles_loops_left(tmp_path):
    lock = tmp_path / "late.lock"
    with lock.open("w") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        process, connection = connected_child(compiler.MODULE, 1, str(lock))
        with connection:
            assert process.wait(60) == 0
    process, connection = connected_child(compiler.MODULE, 1, str(lock))
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(1)
    connection.close()
    assert process.wait(60) == 0
