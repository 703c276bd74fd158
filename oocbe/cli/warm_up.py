"""``oocbe warm-up``: compile the loops of commands in advance."""

from __future__ import annotations

import json
import subprocess
import time
from typing import Annotated

import typer

from oocbe.cli.flags import command
from oocbe.cli.output import note, print_answer, seconds
from oocbe.errors import OocbeError
from oocbe.runtime.parents import child_command, child_environment

QuickFlag = Annotated[
    bool, typer.Option("--quick", help="Compile only the loops of a first solve, in seconds instead of a minute.")
]


@command("warm-up")
def warm_up_loops(quick: QuickFlag = False) -> None:
    """Compile the loops of all commands, so that the first solve does not wait for them.

    Solves small problems of every kind, in a process per core, and stores the compiled loops in the cache
    (NUMBA_CACHE_DIR, or beside the program). Run it once after an installation, or during the build of an image. A
    command compiles any missing loop itself.
    """
    from concurrent.futures import ThreadPoolExecutor, as_completed

    from oocbe.cli import warm_up_steps
    from oocbe.model.settings.machine import available_processors

    begin, loops, spent = time.perf_counter(), 0, 0.0
    names = [name for name, is_quick, _ in warm_up_steps.steps() if is_quick or not quick]
    with ThreadPoolExecutor(max(1, min(available_processors(), len(names)))) as processes:
        running = {processes.submit(_in_a_process, name): name for name in names}
        for step in as_completed(running):
            compiled, took = step.result()
            loops, spent = loops + compiled, spent + took
            what = f"{compiled} loops compiled, {seconds(took)}" if compiled else "was in the cache"
            note(f"{running[step]}: {what}")
    took, where = time.perf_counter() - begin, _cache()
    rows = [("compiled", f"{loops} loops in {seconds(spent)}"), ("time", seconds(took)), ("kept in", where)]
    content = {"schema_version": 1, "loops": loops, "seconds_compiling": spent, "seconds": took, "cache": str(where)}
    print_answer(lambda: content, rows)


def _in_a_process(name: str) -> tuple[int, float]:
    """Run a step (:mod:`oocbe.cli.warm_up_steps`) in a process: the number of loops compiled, and the seconds."""
    done = subprocess.run(
        child_command("oocbe.cli.warm_up_steps", name),
        env=child_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        last = done.stderr.strip().splitlines()[-1:]
        raise OocbeError(f"the step {name!r} of the warm-up failed: {' '.join(last)}")
    loops, spent = json.loads(done.stdout)
    return loops, spent


def _cache() -> str:
    from oocbe.kernels.cpu.pairs import sort

    caches = [value._cache for value in vars(sort).values() if hasattr(value, "_cache")]
    return next((cache.cache_path for cache in caches if hasattr(cache, "is_writable")), "")
