"""A process that has loaded the program once, and runs each command in a child of its own.

Starting Python and loading modules takes longer than most cases of the memory fuzz. Pages that a child shares with its
parent count for the parent's control group, so a child's group has that much less, and the limits that the program sets
itself are counted from what a fresh process has. A page that the child copies is then counted twice: a child has less
memory than a program of its own, never more.

Orders come as lines of JSON on standard input, answers leave the same way: :class:`Server` is the other end.
"""

from __future__ import annotations

import atexit
import faulthandler
import gc
import json
import os
import pkgutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from .control_groups import Ended, group_of, peak_of

LOADED = (
    *(f"oocbe.cli.{name}" for name in ("bound", "convert", "inspect", "propagate", "solve", "trees", "verify")),
    "oocbe.api.solving.strategies",
    "oocbe.elimination.plan",
    "oocbe.api.facade",
    "oocbe.junction_trees.tree",
    "oocbe.api.tasks.verbs",
    "oocbe.kernels.cpu.jit",
    "tools.fuzzing.memory_operators",
)
"""Modules that most commands load."""

ROOM_VARIABLE = "OOCBE_FUZZ_ROOM"
"""Environment variable: bytes that the program may take beside the limit and what the server has, in place of those
that it gives itself."""

ALL = "all"
"""Argument of a server that loads more."""

POLL_SECONDS = 0.004

STACKS_SECONDS = 0.2
"""In which a child that hangs writes the stacks of its threads."""


class Server:
    """The server's other end, in the process that draws cases; started by the first command.

    has_all : its children have all modules and listed loops of the CPU, and none to load: most of the time of a case.
    """

    def __init__(self, has_all: bool = False) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._arguments = [ALL] if has_all else []

    def run(self, command: list[str], limit: int, environment: dict[str, str], seconds: float, folder: Path) -> Ended:
        """Run a command as :func:`.control_groups.run` runs a program; ``command``: what follows ``python``."""
        process = self._process = self._process or self._started(environment)
        assert process.stdin is not None and process.stdout is not None
        own = {name: value for name, value in environment.items() if os.environ.get(name) != value}
        order = {"command": command, "limit": limit, "environment": own, "seconds": seconds, "folder": str(folder)}
        process.stdin.write(json.dumps(order) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            self._process = None
            raise RuntimeError(f"the server has ended with {process.wait()}")
        answer = json.loads(line)
        if isinstance(answer, str):
            raise subprocess.TimeoutExpired(command, seconds, stderr=answer)
        return Ended(**answer)

    def stop(self) -> None:
        """End the server, which ends by itself where this process does."""
        if self._process is not None:
            self._process.communicate()
            self._process = None

    def _started(self, environment: dict[str, str]) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", __spec__.name, *self._arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**environment, "OPENBLAS_NUM_THREADS": "1"},  # a process with threads should not fork
            cwd=Path(__file__).resolve().parents[2],
        )


class _Fresh:
    """What a process of the program has mapped, and taken, where it sets its limits."""

    def __init__(self) -> None:
        from oocbe.cli.main import program
        from oocbe.model.settings import machine, option_values
        from oocbe.runtime import data_limit, memory

        assert machine.available_processors() and option_values.parse_bytes("", "1MiB")
        program("solve")
        self._mapped, self._own = data_limit.mapped_data(), memory.own_memory()

    def pretend(self) -> None:
        """Have the limits of this process, a child, set from that."""
        from oocbe.runtime import data_limit, memory

        look, mapped, more = memory.own_memory, data_limit.mapped_data, data_limit.mapped_data() - self._mapped

        def first() -> int:
            memory.own_memory = look
            return self._own

        memory.own_memory = first
        data_limit.mapped_data = lambda: mapped() - more

    @staticmethod
    def narrow(room: int) -> None:
        """Have them set from what this process has, with so many bytes for the program."""
        from oocbe.runtime import data_limit, memory

        data_limit.PROGRAM_DATA_BYTES, memory.PROGRAM_BYTES = room, room + (16 << 20)


def main() -> None:
    """Answer orders until there are no more; in a child: run one."""
    sys.modules.setdefault("scipy.linalg", None)  # type: ignore[arg-type]  # as the program does
    fresh = _Fresh()
    for name in LOADED:
        import_module(name)
    if ALL in sys.argv:
        _load_all()
    gc.collect()
    gc.freeze()  # a child that looks for cycles would copy all pages
    for line in sys.stdin:
        order = json.loads(line)
        answer = _in_child(order, fresh)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def _load_all() -> None:
    """Load the modules and the listed loops of the CPU that are in a cache; to compile all takes minutes.

    Arrow and other libraries that have threads are loaded by functions, not by modules.
    """
    import oocbe
    from oocbe.kernels.cpu.signatures import found, is_missing, listed

    for module in pkgutil.walk_packages(oocbe.__path__, "oocbe."):
        if not any(part in module.name for part in ("cuda", "cluster", "zarr", "__main__")):
            import_module(module.name)
    for loop in listed():
        if not is_missing(loop):
            owner, name, signature = loop
            found(owner, name).compile(signature)


def _in_child(order: dict[str, Any], fresh: _Fresh) -> dict[str, Any] | str:
    """How the command ended; where it took too long: what it wrote on standard error, and where its threads were."""
    from oocbe.runtime.process_memory import own_memory

    folder = Path(order["folder"])
    shared = 0 if ROOM_VARIABLE in order["environment"] else own_memory()
    with group_of(order["limit"] - shared) as group:
        child = os.fork()
        if child == 0:
            if group is not None:
                (group / "cgroup.procs").write_text(str(os.getpid()))
            _run(order, fresh)
        end = time.monotonic() + order["seconds"]
        while True:
            done, status, usage = os.wait4(child, os.WNOHANG)
            if done:
                break
            if time.monotonic() > end:
                os.kill(child, signal.SIGUSR1)
                time.sleep(STACKS_SECONDS)
                os.kill(child, signal.SIGKILL)
                os.wait4(child, 0)
                return (folder / "stderr").read_text(errors="replace")[-6000:]
            time.sleep(POLL_SECONDS)
        if group is None:
            peak = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
        else:
            peak = peak_of(group) + shared
    output, errors = ((folder / name).read_text(errors="replace") for name in ("stdout", "stderr"))
    code = os.waitstatus_to_exitcode(status)
    return {"code": code, "output": output[-4000:], "errors": errors, "peak": peak, "is_group": group is not None}


def _run(order: dict[str, Any], fresh: _Fresh) -> NoReturn:
    """In the child: the command, as if Python had been started with it, and the end of the process.

    Python would copy nearly all shared pages while it takes itself apart.
    """
    code = 70
    try:
        _run_command(order, fresh)
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    except BaseException:
        traceback.print_exc()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _run_command(order: dict[str, Any], fresh: _Fresh) -> None:
    folder = order["folder"]
    os.chdir(folder)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), number)
    faulthandler.enable(2)
    faulthandler.register(signal.SIGUSR1, file=2)
    os.environ.update(order["environment"])
    tempfile.tempdir = None  # each case has one of its own
    room = os.environ.pop(ROOM_VARIABLE, None)
    if room is None:
        fresh.pretend()
    else:
        fresh.narrow(int(room))
    command = order["command"]
    if command[0] == "-m":
        sys.argv = command[1:]
        from oocbe.cli.main import main as program

        program()
    else:
        from .memory_operators import main as operator

        sys.exit(operator(json.loads(command[1]), Path(command[2])))


if __name__ == "__main__":
    main()
