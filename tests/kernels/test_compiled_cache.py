"""Where compilations are kept: a new folder whenever a module, or a helper that it compiles in, changes."""

from __future__ import annotations

import ast
import importlib
import os
import pickle
import re
import stat
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import numba
import numpy as np
import pytest

from oocbe import errors
from oocbe.kernels.cpu import compiler, dispatchers, interpreter, jit, machine_code
from oocbe.runtime import (
    address_space,
    compilation,
    data_limit,
    deadline,
    interruption,
    memory,
    parents,
    process_memory,
    writable,
)

MODULES = (address_space, compilation, data_limit, deadline, interruption, memory, parents, process_memory, writable)

LOOP = "from oocbe.kernels.cpu.helper import twice\n"
HELPER = "from oocbe.kernels.cpu.deeper import DEEP\n"


@pytest.fixture
def sources(tmp_path, monkeypatch):
    for name, text in {"loop": LOOP, "helper": HELPER, "deeper": "DEEP = 1\n", "other": "X = 1\n"}.items():
        path = tmp_path / "kernels" / "cpu" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.setattr(jit, "PACKAGE", str(tmp_path))
    yield path.parent
    forget()


def forget():
    jit._source.cache_clear()
    jit._cache_folders.cache_clear()
    jit._places.cache_clear()


@pytest.mark.parametrize("changed", ["loop", "helper", "deeper"])
def test_a_change_of_a_helper_in_another_file_changes_the_key(sources, changed):
    before = jit.source_digest(jit.PACKAGE, "kernels.cpu.loop")
    with (sources / f"{changed}.py").open("a") as file:
        file.write("# changed\n")
    forget()
    assert jit.source_digest(jit.PACKAGE, "kernels.cpu.loop") != before


def test_a_module_that_is_not_imported_leaves_the_key_alone(sources):
    before = jit.source_digest(jit.PACKAGE, "kernels.cpu.loop")
    (sources / "other.py").write_text("X = 2\n")
    forget()
    assert jit.source_digest(jit.PACKAGE, "kernels.cpu.loop") == before


def test_a_new_generation_removes_the_one_before_and_no_other_modules(sources):
    first, other = (Path(jit._cache_folders(str(sources / f"{name}.py"), "").writable) for name in ("loop", "other"))
    for folder in (first, other):
        folder.mkdir(parents=True)
    forget()
    assert Path(jit._cache_folders(str(sources / "loop.py"), "").writable) == first
    (sources / "deeper.py").write_text("DEEP = 2\n")
    forget()
    second = Path(jit._cache_folders(str(sources / "loop.py"), "").writable)
    assert second != first
    assert not first.exists()
    assert other.exists()


def test_a_folder_chosen_for_numba_is_kept_to_and_nothing_is_removed_there(sources, tmp_path):
    chosen = tmp_path / "chosen"
    earlier = chosen / "oocbe" / "loop-0123"
    earlier.mkdir(parents=True)
    assert Path(jit._cache_folders(str(sources / "loop.py"), str(chosen)).writable).parent == chosen / "oocbe"
    assert earlier.exists()


LOOP_OF_ITS_OWN = "from oocbe.kernels.cpu.jit import jit\n\n\n@jit\ndef doubled(x):\n    return 2 * x\n"


@pytest.fixture
def nowhere(tmp_path):
    """A loop beside which nothing can be written, and an environment without a home to write to, for root as well."""
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "loop.py").write_text(LOOP_OF_ITS_OWN)
    for name in ("home", "package/__pycache__"):
        (tmp_path / name).write_text("a file where a folder should be")
    (tmp_path / "scratch").mkdir()
    kept = {n: v for n, v in os.environ.items() if n not in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME")}
    path = os.pathsep.join([str(tmp_path / "package"), str(Path(jit.__file__).parents[3])])
    return {**kept, "PYTHONPATH": path, "HOME": str(tmp_path / "home"), "TMPDIR": str(tmp_path / "scratch")}


def doubled(environment, *arguments, before="", **more):
    """What a process prints that calls the loop, and how often it found it compiled; what it says, each call a line."""
    loaded = "[run for run in doubled._runs.values() if run is not vars(doubled).get('dispatcher')]"
    call = f"print(doubled({{}}), len({loaded})); print('called', file=sys.stderr)"
    script = "; ".join([f"{before}import sys; from loop import doubled", *map(call.format, arguments)])
    done = subprocess.run(
        [sys.executable, "-B", "-c", script],
        env={**environment, **more},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines(), done.stderr.splitlines()


def test_without_a_place_to_write_compilations_go_to_a_private_scratch_folder(nowhere, tmp_path):
    assert doubled(nowhere, "21")[0] == ["42 0"]
    printed, said = doubled(nowhere, "21", "21.0")
    assert printed == ["42 1", "42.0 1"]
    assert said[::2] == ["called", "called"]  # who waits for nothing need not be told where it is kept
    (folder,) = (tmp_path / "scratch").iterdir()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert folder.name == f"oocbe-cache-{os.geteuid()}"
    assert len(said) == 3
    assert f"kept in {folder}; NUMBA_CACHE_DIR may name a better place" in said[1]


def test_what_lies_where_nobody_may_write_is_used_and_nothing_is_said_of_it(nowhere, tmp_path):
    """An image is warmed up while it is made, and read-only from then on: pretended, as root may write anything."""
    more = {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    assert doubled(nowhere, "21", **more) == (["42 0"], ["called"])
    read_only = "from oocbe.kernels.cpu import jit; jit.can_be_written = lambda folder: False; "
    kept = f"doubled._cache.cache_path.startswith({str(tmp_path / 'cache')!r})"
    where = f"{read_only}from loop import doubled; assert {kept}; "
    printed, said = doubled(nowhere, "21", "21.0", before=where, **more)
    assert printed == ["42 1", "42.0 1"]
    assert said[::2] == ["called", "called"] and f"kept in {tmp_path / 'scratch'}" in said[1]
    assert doubled(nowhere, "21.0", before=read_only, **more) == (["42.0 1"], ["called"])


@pytest.mark.parametrize("found", ["link", "open folder", "file"])
def test_a_scratch_folder_that_others_may_write_is_not_used(tmp_path, monkeypatch, found):
    """What lies there is run."""
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr(writable.tempfile, "tempdir", str(tmp_path / "scratch"))
    scratch, other = tmp_path / "scratch" / f"oocbe-cache-{os.geteuid()}", tmp_path / "other"
    other.mkdir(mode=0o700)
    if found == "link":
        scratch.symlink_to(other)
    elif found == "file":
        scratch.write_text("")
    else:
        scratch.mkdir()
        scratch.chmod(0o777)
    chosen = Path(writable.private_scratch("oocbe-cache"))
    assert chosen.parent == scratch.parent and re.fullmatch(r"oocbe-cache-[a-z0-9_]{8}", chosen.name)
    assert stat.S_IMODE(chosen.stat().st_mode) == 0o700
    assert list(other.iterdir()) == []
    assert found == "file" or list(scratch.iterdir()) == []


def test_a_scratch_folder_of_somebody_else_is_not_used(tmp_path, monkeypatch):
    monkeypatch.setattr(writable.tempfile, "tempdir", str(tmp_path))
    mine = Path(writable.private_scratch("oocbe-cache"))
    monkeypatch.setattr(os, "geteuid", lambda: mine.stat().st_uid + 1)
    (tmp_path / f"oocbe-cache-{os.geteuid()}").mkdir(mode=0o700)
    chosen = Path(writable.private_scratch("oocbe-cache"))
    assert chosen.parent == tmp_path
    assert re.fullmatch(r"oocbe-cache-[a-z0-9_]{8}", chosen.name)


def test_the_wait_for_another_process_s_compilation_is_no_working_time(tmp_path):
    path = tmp_path / "loop.nbc.lock"
    holds = (
        "import fcntl, sys, time\nfile = open(sys.argv[1], 'w')\nfcntl.lockf(file, fcntl.LOCK_EX)\n"
        "print('held', flush=True)\ntime.sleep(0.5)"
    )
    counted = compilation.compilation
    with subprocess.Popen([sys.executable, "-c", holds, str(path)], stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"held\n"
        loops, seconds = counted.loops, counted.seconds
        dispatchers._locks.append(dispatchers._lock(str(path)))
        dispatchers._unlock()
        assert counted.loops == loops
        assert counted.seconds > seconds
    assert not path.exists()


def test_where_nothing_can_be_written_loops_are_compiled_all_the_same(nowhere, tmp_path):
    """Every folder for temporary files is a file: the last resort, the current folder, too."""
    script = (
        "import tempfile\nfrom pathlib import Path\n"
        "def none():\n    raise FileNotFoundError('no folder for temporary files')\n"
        "tempfile.gettempdir = none\nfrom loop import doubled\nprint(doubled(21))"
    )
    done = subprocess.run(
        [sys.executable, "-B", "-c", script], env=nowhere, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "42\n"), done.stderr
    assert "compiled anew in every process" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_decorating_leaves_the_configuration_of_numba_as_it_was():
    before = numba.config.CACHE_DIR
    compiled = jit.jit(forget)
    assert before == numba.config.CACHE_DIR
    assert jit.source_digest(str(Path(__file__).parent), Path(__file__).stem) in str(compiled.stats.cache_path)


def test_imports_are_written_so_that_the_key_finds_them():
    package = Path(jit.__file__).parent
    folders = "|".join(["", *(rf"\.{path.name}" for path in package.iterdir() if path.is_dir())])
    for source in package.rglob("*.py"):
        wrong = re.search(
            rf"^\s*(from oocbe\.kernels\.cpu({folders}) import|from \.)", source.read_text(), re.MULTILINE
        )
        assert not wrong, source


COMPILED = {"jit", "jit_at_once", "inline", "helper", "borrowing", "without_allocation"}


def names_outside_of_loops(tree):
    """Names that a module's Python code reads, that of compiled functions left out, but for imports."""
    waiting, found = [tree], set()
    while waiting:
        for node in ast.iter_child_nodes(waiting.pop()):
            if isinstance(node, ast.FunctionDef) and decorators(node) & COMPILED:
                continue
            if isinstance(node, ast.Name):
                found.add(node.id)
            elif isinstance(node, ast.Attribute):
                found.add(node.attr)
            waiting.append(node)
    return found


def decorators(node):
    return {name.id for name in node.decorator_list if isinstance(name, ast.Name)}


def test_loops_that_only_loops_call_are_helpers():
    """What makes Python objects into arguments is compiled in vain for them, and takes as long as they do."""
    package = Path(jit.__file__).parents[2]
    sources = [*package.rglob("*.py"), *Path(__file__).parents[1].rglob("*.py")]
    texts = {path: text for path in sources if "kernels.cpu" in (text := path.read_text())}
    trees = {path: ast.parse(text) for path, text in texts.items()}
    called = set().union(*map(names_outside_of_loops, trees.values()))
    loops = {
        node.name
        for path, tree in trees.items()
        if "/kernels/cpu/" in str(path.relative_to(package.parent))
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and decorators(node) & {"jit", "jit_at_once", "borrowing"}
    }
    assert len(loops) > 50
    assert loops <= called


def test_a_module_of_a_folder_is_found_by_its_dotted_name():
    source = str(Path(jit.__file__).parent / "pairs" / "sort.py")
    assert jit._package_and_module(source) == (jit.PACKAGE, "kernels.cpu.pairs.sort")
    assert jit._source(jit.PACKAGE, "kernels.cpu.pairs.sort")[0]


def test_a_changed_helper_is_compiled_into_its_callers_again(tmp_path):
    """The real thing, in processes of their own: a package of this name with two small modules."""
    package = tmp_path / "oocbe" / "kernels" / "cpu"
    package.mkdir(parents=True)
    for folder in (package, package.parent, package.parent.parent):
        (folder / "__init__.py").touch()
    (package / "jit.py").write_text(Path(jit.__file__).read_text())
    for module in (errors, compiler, dispatchers, interpreter, machine_code, *MODULES):
        copied = tmp_path / Path(*module.__name__.split(".")).with_suffix(".py")
        copied.parent.mkdir(parents=True, exist_ok=True)
        copied.write_text(Path(module.__file__).read_text())
    use = "from oocbe.kernels.cpu.jit import jit\n"
    (package / "loop.py").write_text(
        f"{use}from oocbe.kernels.cpu.helper import scaled\n\n\n@jit\ndef run(x):\n    return scaled(x) + 1\n"
    )
    for factor, result in ((2, 7), (5, 16)):
        (package / "helper.py").write_text(f"{use}\n\n@jit\ndef scaled(x):\n    return {factor} * x\n")
        script = "from oocbe.kernels.cpu.loop import run\nprint(run(3))"
        done = subprocess.run(
            [sys.executable, "-B", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        assert int(done.stdout) == result


PLAIN = """
from typing import NamedTuple

import numpy as np

from oocbe.kernels.cpu.jit import helper, jit_at_once
from oocbe.kernels.cpu.native import array_at, plus


class Pair(NamedTuple):
    first: np.ndarray
    second: int


@helper
def added(x, y):
    return plus(x, y)


@jit_at_once
def doubled(x):
    y = np.empty(len(x), dtype=x.dtype)
    for i in range(len(x)):
        y[i] = added(x[i], x[i])
    return y


@jit_at_once
def paired(pair, address):
    if pair.second < 0:
        raise ValueError("no negative number")
    return Pair(doubled(array_at(address, 0, 2, pair.first)), int(10 * np.exp(pair.second)))


@jit_at_once
def twice(pair):
    return Pair(doubled(pair.first), pair.second)


@jit_at_once
def third(x):
    return doubled(x)[2]
"""

CALLS = """
import os, pickle, sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np

import loop

numbers, found = np.arange(3), []
sys.setswitchinterval(1e-6)  # seconds: threads that all load the loop
for _ in range(2):
    with ThreadPoolExecutor(4) as pool:
        found.append({int(values[2]) for values in pool.map(loop.doubled, [numbers] * 50)})
    pair = loop.paired(loop.Pair(numbers, 1), numbers.ctypes.data)
    try:
        loop.paired(loop.Pair(numbers, -1), numbers.ctypes.data)
    except ValueError as error:
        found.append(str(error))
    found += [pair.first.tolist(), pair.second, type(pair).__name__, sys.getrefcount(pair.first)]
    assert pickle.loads(pickle.dumps(loop.doubled)) is loop.doubled
    if (child := os.fork()) == 0:
        os._exit(loop.doubled(numbers)[2])
    found.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    found.append("numba" in sys.modules)
    if len(found) < 10:
        found += [int(v) for v in (loop.third(numbers), loop.doubled(np.arange(3.0))[2], loop.doubled(x=numbers)[2])]
loop.twice(loop.Pair(numbers, 1))  # for the test of signals
print(found)
"""


def called(folder: Path, code: str) -> subprocess.CompletedProcess[str]:
    """A program beside the module of plain loops, and their cache in the same folder."""
    path = os.pathsep.join([str(folder), str(Path(jit.__file__).parents[3])])
    environment = {**os.environ, "PYTHONPATH": path, "NUMBA_CACHE_DIR": str(folder / "cache")}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)


@pytest.fixture(scope="module")
def plain(tmp_path_factory) -> tuple[Path, str]:
    """The folder where plain loops are compiled, and what their first calls print."""
    folder = tmp_path_factory.mktemp("plain")
    (folder / "loop.py").write_text(PLAIN)
    done = called(folder, CALLS)
    assert done.returncode == 0, done.stderr
    return folder, done.stdout.strip()


def test_cached_code_runs_without_numba_and_beside_it(plain):
    """Results, errors, threads, a fork; then other types, and a loop that calls a loaded one, are compiled."""
    folder, first = plain
    part = "[{4}, 'no negative number', [0, 2], 27, 'Pair', 2, 4, "
    for printed, is_imported in ((first, True), (called(folder, CALLS).stdout.strip(), False)):
        assert printed == f"{part}{is_imported}, 4, 4, 4, {part[1:]}True]"


SIGNALS = """
import signal

import numpy as np

import loop


class Ended(Exception):
    pass


def end(number, frame):
    raise Ended


ended, pair = 0, loop.Pair(np.arange(5_000_000), 1)
signal.signal(signal.SIGALRM, end)
run = loop.twice.load((pair,))  # before the signals, which would interrupt it
for _ in range(20):
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.001)
        run(pair)
    except Ended:
        ended += 1
print(ended, run(pair).first[2])
"""


def test_a_handler_of_a_signal_that_raises_in_a_loop_ends_the_call_and_not_the_process(plain):
    done = called(plain[0], SIGNALS)
    assert (done.returncode, done.stdout, done.stderr) == (0, "20 4\n", "")


@pytest.mark.parametrize("code", ["?", "b", "H", "i", "q", "Q", "f", "d", ">i4", "g", "S3", "m8[s]"])
def test_types_of_values_are_numbas(code):
    cells = np.zeros((4, 6), dtype=code)
    fixed = cells.copy()
    fixed.flags.writeable = False
    arrays = [cells, cells.T, cells[::2, ::2], cells[0], cells[:1, 0], cells[:0], fixed]
    if code in (">i4", "g", "S3", "m8[s]"):
        for value in arrays:
            with pytest.raises(KeyError):
                machine_code.described(value)
        return
    named = machine_code.MachineCode(cells, 3, (), (fixed, 2.0))
    for value in (*arrays, cells[0, 0], (), (1, 1), named, 1 << 62, -(1 << 63), True, 1.5, None):
        assert machine_code.described(value) == dispatchers.described(numba.typeof(value), None)


@pytest.mark.parametrize("value", [1 << 63, "text", np.zeros(2).view(np.recarray), (1, "text"), 1j])
def test_values_of_other_types_are_left_to_numba(value):
    with pytest.raises(KeyError):
        machine_code.described(value)
    assert machine_code.kind(value) not in map(machine_code.kind, (1, 1.0, np.zeros((1, 1), dtype=np.int64), (1, 1)))


def test_machine_code_with_unknown_symbols_or_for_another_processor_is_not_loaded():
    code = machine_code.MachineCode(b"", "run", ("malloc", "_a_symbol_of_another_library"), ())
    assert machine_code.link(code, forget) is None
    loop = jit.jit(forget)
    assert loop.file("int64") != loop.file("int64", ("x86_64-unknown-linux-gnu", "generic", ""))


DAMAGES = {
    "empty": lambda content: b"",
    "cut": lambda content: content[: len(content) // 2],
    "zeros": lambda content: bytes(len(content)),
    "another class": lambda content: content.replace(b"MachineCode", b"MachineCake"),
    "another type": lambda content: pickle.dumps(({}, ())),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_made_again(tmp_path, monkeypatch, damage):
    """A crash of the system may leave a file empty under its final name."""
    (tmp_path / "loop.py").write_text(LOOP_OF_ITS_OWN)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "loop", raising=False)
    function = importlib.import_module("loop").doubled.py_func
    assert jit.jit(function)(21) == 42
    (file,) = (tmp_path / "cache").rglob("*.nbc")
    content = file.read_bytes()
    file.write_bytes(DAMAGES[damage](content))
    assert jit.jit(function)(21) == 42
    mended = jit.jit(function)
    assert (mended(21), "dispatcher" in vars(mended)) == (42, False)
    monkeypatch.setattr(jit, "link", lambda *_: None)
    other = jit.jit(function)
    assert (other(21), *other._runs.values()) == (42, other.dispatcher)  # its file is not read at each call


def test_a_fork_waits_for_the_thread_that_loads_a_loop():
    """Its child would wait for ever to load another one."""
    begun = threading.Event()

    def load():
        with machine_code._lock:
            begun.set()
            time.sleep(0.02)

    thread = threading.Thread(target=load)
    thread.start()
    begun.wait()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # from Python 3.12 on, of forks beside threads
        child = os.fork()
    if child == 0:
        os._exit(not machine_code._lock.acquire(timeout=1))
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_helpers_are_optimised_in_their_callers_alone(tmp_path):
    """Each loop between was optimised with all that it calls, and made for the processor: a third of the time."""
    (tmp_path / "loop.py").write_text(
        "from oocbe.kernels.cpu.jit import helper, jit_at_once\n\n\n@helper\ndef doubled(x):\n    return 2 * x\n\n\n"
        "@helper\ndef quadrupled(x):\n    return doubled(doubled(x))\n\n\n"
        "@jit_at_once\ndef first(x):\n    return quadrupled(x) + 1\n\n\n"
        "@jit_at_once\ndef second(x):\n    return doubled(quadrupled(x))\n"
    )
    script = (
        "from loop import *\nprint({call}, doubled.stats.cache_hits.total(), quadrupled.stats.cache_hits.total())\n"
        "for loop in (quadrupled, doubled):\n"
        "    (made,) = loop.overloads.values()\n    assert not getattr(made.library, '_compiled_object', b'')"
    )
    path = os.pathsep.join([str(tmp_path), str(Path(jit.__file__).parents[3])])
    environment = {**os.environ, "PYTHONPATH": path, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    for call, printed in (("first(3)", "13 0 0"), ("first(3), second(3)", "13 24 1 1")):
        code = script.format(call=call)
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == printed
