"""Fixtures for every test: where the real instances are, and small random problems."""

from __future__ import annotations

import gc
import itertools
import os
import signal
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import typer.testing
from hypothesis import settings

from oocbe.cli import doctor
from oocbe.elimination.narrow import narrow_problem
from oocbe.model.parts import Constraint, Function, LinearConstraint, Variable
from oocbe.model.problem import Problem
from oocbe.model.semiring import MIN_SUM, Semiring
from oocbe.model.settings.tuning import Tuning, tuned
from tests.helpers.effort import examples
from tests.helpers.memory_disk import memory_folder

# What a command line may consist of is the same each time that a test gives one.
typer.testing._get_command = cache(typer.testing._get_command)

# No test asks how fast a disk is: ``oocbe doctor`` need not write to it for a second.
doctor.TRIAL_SECONDS = 0.01

# Tests are of compiled loops, whatever the machine has compiled; those of the interpreter set another number.
os.environ.setdefault("OOCBE_INTERPRETED_SECONDS", "0")

# The first example may compile code, and how long one takes on a busy machine says nothing about the code.
settings.register_profile("oocbe", deadline=None, max_examples=examples(200))
settings.load_profile("oocbe")

_WIDE_FRAME = (1 << 16) + (1 << 14)
"""Objects on a frame's stack, 640 KiB: its piece of memory is 1 MiB, of which calls have the rest. Untouched pages cost
nothing."""

_DEFAULT = Path(__file__).resolve().parents[2] / "shared" / "data"


def data_folder() -> Path:
    """The folder of real instances: ``OOCBE_DATA``, or ``../shared/data`` from the project's root."""
    return Path(os.environ.get("OOCBE_DATA", _DEFAULT))


@pytest.fixture(scope="session")
def data() -> Callable[[str], Path]:
    """A function from a path below the folder of instances to the file; skips the test where it is missing."""

    def locate(name: str) -> Path:
        path = data_folder() / name
        if not path.exists():
            pytest.skip(f"no instance {name}: set OOCBE_DATA to the folder of instances ({data_folder()} has none)")
        return path

    return locate


@pytest.fixture(name="memory_folder")
def _memory_folder() -> Iterator[Path]:
    """A folder in memory where the system has one, in place of ``tmp_path`` for tests that force many files to disk."""
    with memory_folder() as folder:
        yield folder


@pytest.fixture(scope="session", autouse=True)
def engine_eliminates_small_problems() -> Iterator[None]:
    """Tests are of the engine and of bounds, however small a problem: those of the loop for narrow problems say so."""
    with tuned(narrow_bucket_seconds=0):
        yield


@pytest.fixture
def as_outside_of_the_tests(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Small problems with small messages are solved in one loop, as users have them solved once it is compiled."""
    monkeypatch.setattr(narrow_problem, "is_ready", lambda *_: True)
    with tuned(narrow_bucket_seconds=Tuning().narrow_bucket_seconds):
        yield


@pytest.fixture
def tune() -> Iterator[Callable[..., None]]:
    """Changes numbers that decisions turn on, until the test is over: ``tune(held_share=0)``."""
    with ExitStack() as changed:

        def change(**numbers: float) -> None:
            changed.enter_context(tuned(**numbers))

        yield change


@pytest.fixture
def interrupts_heard() -> Iterator[None]:
    """Have interrupts raise KeyboardInterrupt, and child processes hear SIGHUP: a shell starts what runs in the
    background with SIGINT ignored, ``nohup`` with SIGHUP ignored.

    The test tool has the garbage collector call it, and an interrupt that arrives within such a call is lost.
    """
    heard = {signal.SIGINT: signal.default_int_handler, signal.SIGHUP: signal.SIG_DFL}
    before = {number: signal.signal(number, handler) for number, handler in heard.items()}
    gc.disable()
    yield
    gc.enable()
    for number, handler in before.items():
        signal.signal(number, handler)


def _with_room_for_frames(function: Callable[..., object]) -> Callable[..., object]:
    """The function, called from a frame so wide that those of all calls within it lie in one piece of memory.

    CPython keeps frames in pieces of 16 KiB, and returns one to the system as soon as the last frame in it ends. Below
    the frames of the test tool a loop often runs where a piece ends, so that each call in it asks the system for memory
    and gives it back: up to a third of the time of tests out of core. A frame that is larger than a piece gets one as
    large as the next power of two, which is not given back before the test ends.
    """

    def call(*arguments: object, **named: object) -> object:
        __tracebackhide__ = True
        return function(*arguments, **named)

    call.__code__ = call.__code__.replace(co_stacksize=_WIDE_FRAME)
    return call


_FIRST = (
    "test_commands_of_pages.py",
    "test_public_types.py",
    "test_tutorials.py",
    "certificates/test_proofs.py",
    "durability/test_scarce_resources.py",
    "fuzzing/test_fuzz.py",
    "cli/test_process.py",
    "kernels/test_compiled_cache.py",
    "durability/test_killed.py",
    "runtime/pictures/test_pictures.py",
    "elimination/test_large_scopes.py",
    "cli/test_many_files.py",
    "execution/cluster/test_slurm_script.py",
    "execution/cluster/test_workers_of_dask.py",
    "cli/test_current_folder.py",
    "cli/test_read_only_image.py",
    "api/test_many.py",
    "elimination/test_killed_workers.py",
)
"""Files that take long, or wait for other processes."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with files that take long: with several workers, one that began as the last would be waited for.

    pytest-xdist begins with the files of most tests, unless called with ``--no-loadscope-reorder``. Without CuPy,
    tests of devices, a fifth of all, are skipped before their fixtures.
    """
    if find_spec("cupy") is None:
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="no CuPy"), append=False)
    places = {f"tests/{name}": place for place, name in enumerate(_FIRST)}
    items.sort(key=lambda item: places.get(item.nodeid.partition("::")[0], len(places)))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Have the garbage collector wait until all tests are known: hardly anything of them is garbage."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """Have the garbage collector leave alone what there is when all tests are known, and begin less often.

    That stays until the end: some 270,000 objects of modules and tests, which each full collection would look at.
    """
    gc.freeze()
    gc.set_threshold(10_000)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> None:
    """Have the hook that comes next call the test with room for its frames."""
    pyfuncitem.obj = _with_room_for_frames(pyfuncitem.obj)


def _random_tuples(random: np.random.Generator, shape: tuple[int, ...], share: float) -> np.ndarray:
    cells = int(np.prod(shape))
    chosen = random.permutation(cells)[: round(share * cells)]
    return np.column_stack(np.unravel_index(chosen, shape)) if shape else np.zeros((len(chosen), 0), dtype=np.int64)


def _random_problem(
    seed: int,
    semiring: Semiring = MIN_SUM,
    variables: int = 5,
    largest_domain: int = 3,
    lowest: int = 0,
    linear: bool = True,
) -> Problem:
    random = np.random.default_rng(seed)
    sizes = random.integers(1, largest_domain + 1, size=variables).tolist()

    def scope(largest: int) -> tuple[int, ...]:
        return tuple(random.permutation(variables)[: random.integers(1, largest + 1)].tolist())

    functions = []
    for _ in range(random.integers(1, 8)):
        chosen = scope(3)
        tuples = _random_tuples(random, tuple(sizes[v] for v in chosen), random.choice([0.3, 0.8, 1.0]))
        values = random.integers(lowest, 20, size=len(tuples))
        default = [None, 0, int(random.integers(lowest, 9))][random.integers(3)] if semiring is MIN_SUM else None
        if semiring is not MIN_SUM:
            values = random.random(len(tuples)) + 0.01
        functions.append(Function(chosen, tuples, values, default))
    constraints = []
    for _ in range(random.integers(0, 4)):
        chosen = scope(3)
        allowed = bool(random.integers(2))
        tuples = _random_tuples(random, tuple(sizes[v] for v in chosen), 0.8 if allowed else 0.3)
        constraints.append(Constraint(chosen, tuples, allowed))
    linears = []
    for _ in range(random.integers(0, 2 + linear) if linear else 0):
        chosen = scope(4)
        coefficients = tuple(random.integers(-3, 6, size=sizes[v]) for v in chosen)
        linears.append(LinearConstraint(chosen, coefficients, int(random.integers(-2, 9))))
    return Problem(
        tuple(Variable(f"x{v}", size) for v, size in enumerate(sizes)),
        tuple(functions),
        tuple(constraints),
        tuple(linears),
        constant=int(random.integers(lowest, 6)) if semiring is MIN_SUM else 0.75,
        semiring=semiring,
        name=f"random {seed}",
    )


@pytest.fixture(scope="session")
def random_problem() -> Callable[..., Problem]:
    """A function from a seed to a small random problem with every kind of part."""
    return _random_problem


@pytest.fixture(scope="session")
def evaluate_all() -> Callable[[Problem], list[float | None]]:
    """A function from a small problem to the value of every assignment, in lexicographic order."""

    def evaluate(problem: Problem) -> list[float | None]:
        return [problem.evaluate(a) for a in itertools.product(*map(range, problem.sizes))]

    return evaluate
