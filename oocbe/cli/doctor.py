"""``oocbe doctor``: what this installation has, what it lacks, and the command that adds it.

After an installation, ``oocbe warm-up`` compiles the loops of commands. ``oocbe completion`` prints scripts with which
a shell completes commands, flags and files.
"""

from __future__ import annotations

import os
import platform
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from oocbe.cli import COMPLETION_VARIABLE
from oocbe.cli.flags import command
from oocbe.cli.output import note, print_answer, seconds
from oocbe.errors import UsageError, install_hint
from oocbe.model.settings.machine import available_memory, available_processors, default_memory_limit

NEEDED = ("numpy", "numba", "zarr", "numcodecs", "typer", "rich", "highspy", "pyyaml", "isal")
"""Distributions of the dependencies."""

OPTIONAL = {
    "plot": ("matplotlib", "pictures: plot(), --report, oocbe trace --png"),
    "parquet": ("pyarrow", "Parquet, Arrow, pandas and Polars"),
    "objects": ("obstore", "tables on object stores"),
    "cluster": ("distributed", "--workers and --cluster"),
}
"""A module of each extra, and what needs it; the device's extras depend on the driver."""

TRIAL_BYTES, BLOCK_BYTES, TRIAL_SECONDS = 256 << 20, 4 << 20, 1.0
"""Bytes and seconds at most of the trial of the disk, in blocks."""


@command("doctor")
def doctor() -> None:
    """State versions, processors, memory, disk, devices and caches; and what is missing, with its remedy."""
    from oocbe import __version__
    from oocbe.kernels.cpu.jit import cache_folder
    from oocbe.kernels.cpu.signatures import listed, missing_loop
    from oocbe.kernels.cuda.device import cupy_cache
    from oocbe.model.results.numerals import format_bytes as shown

    folder = Path(tempfile.gettempdir())
    usage, speed = os.statvfs(folder), _disk_speed(folder)
    names = (*NEEDED, *(module for module, _ in OPTIONAL.values()), "cupy-cuda12x", "cupy-cuda13x")
    loops, devices = listed(is_quick=False), _devices()
    lacks = [(extra, *needed) for extra, needed in OPTIONAL.items() if find_spec(needed[0]) is None]
    missing = [{"what": f"{module}, for {use}", "remedy": install_hint(extra)} for extra, module, use in lacks]
    if uncompiled := sum(missing_loop(loop) is not None for loop in loops):
        missing.append({"what": f"{uncompiled} of {len(loops)} compiled loops", "remedy": "oocbe warm-up"})
    found: dict[str, Any] = {
        "versions": {"oocbe": __version__, "python": platform.python_version(), **versions_of(names)},
        "system": platform.platform(),
        "processors": available_processors(),
        "memory_bytes": available_memory(),
        "default_memory_limit": default_memory_limit(),
        "scratch": str(folder),
        "scratch_free_bytes": usage.f_bavail * usage.f_frsize,
        "scratch_bytes_per_second": speed,
        "devices": [] if isinstance(devices, str) else devices,
        "why_no_device": devices if isinstance(devices, str) else None,
        "caches": {"loops": cache_folder(), "cupy": cupy_cache()},
        "missing": missing,
    }
    limit, free = shown(default_memory_limit()), shown(found["scratch_free_bytes"])
    rows = [
        ("versions", ", ".join(map(" ".join, found["versions"].items()))),
        ("system", f"{found['system']}, {found['processors']} processors"),
        ("memory", f"{shown(found['memory_bytes'])}, {limit} of it by default (--memory)"),
        ("scratch", f"{folder}, {free} free, {f'{shown(speed)} written a second' if speed else 'not writable'}"),
        *(("device", f"{d['name']}, {shown(d['bytes'])}, driver for CUDA {d['cuda']}") for d in found["devices"]),
        ("device", found["why_no_device"] and f"none: {found['why_no_device']}"),
        *((f"cache of {name}", path) for name, path in found["caches"].items()),
        *(("missing", f"{lack['what']}; {lack['remedy']}") for lack in missing),
    ]
    print_answer(lambda: {"schema_version": 1, **found}, rows, f"{len(missing)} missing")


def versions_of(names: Iterable[str]) -> dict[str, str]:
    """Versions of the installed ones of some distributions."""
    found = {}
    for name in names:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def _devices() -> list[dict[str, Any]] | str:
    """Name, bytes and the driver's version of CUDA for each device; or why none can be used."""
    from oocbe.kernels.cuda.device import cupy, why_unavailable

    if (reason := why_unavailable()) is not None:
        return reason if Path("/proc/driver/nvidia").exists() else "this machine has no NVIDIA driver"
    runtime = cupy().cuda.runtime
    cuda = runtime.driverGetVersion()
    properties = [runtime.getDeviceProperties(device) for device in range(runtime.getDeviceCount())]
    return [
        {"name": p["name"].decode(), "bytes": int(p["totalGlobalMem"]), "cuda": f"{cuda // 1000}.{cuda % 1000 // 10}"}
        for p in properties
    ]


def _disk_speed(folder: Path) -> float | None:
    """Bytes written and synced per second in a folder; None if it cannot be written."""
    block, done, begin = os.urandom(BLOCK_BYTES), 0, time.perf_counter()
    with suppress(OSError), tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        while done < TRIAL_BYTES and time.perf_counter() < begin + TRIAL_SECONDS:
            done += file.write(block)
            os.fsync(file.fileno())
    return done / (time.perf_counter() - begin) if done else None


QuickFlag = Annotated[bool, typer.Option("--quick", help="Compile only the loops of a first solve.")]


@command("warm-up")
def warm_up(quick: QuickFlag = False) -> None:
    """Compile the loops of all commands, so that no command waits for them.

    Compiles in a process per core, and stores the loops in the cache (NUMBA_CACHE_DIR, or beside the program). Run it
    once after an installation, or during the build of an image. A command compiles any missing loop itself.
    """
    from oocbe.kernels.cpu.jit import cache_folder
    from oocbe.kernels.cpu.signatures import compile_listed

    begin, where = time.perf_counter(), cache_folder()
    loops, spent = compile_listed(quick, available_processors(), note)
    took = time.perf_counter() - begin
    rows = [("compiled", f"{loops} loops in {seconds(spent)}"), ("time", seconds(took)), ("kept in", where)]
    content = {"schema_version": 1, "loops": loops, "seconds_compiling": spent, "seconds": took, "cache": where}
    print_answer(lambda: content, rows)


SHELLS = ("bash", "zsh", "fish")
"""Shells with a script."""


@command("completion")
def completion(shell: Annotated[str, typer.Argument(metavar="SHELL", help="bash, zsh or fish.")]) -> None:
    """Print the completion script of commands and flags for SHELL, which the shell loads at its start."""
    if shell not in SHELLS:
        raise UsageError(f"completion {shell}: no script for this shell; known: {', '.join(SHELLS)}")
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    typer.echo(get_completion_script(prog_name="oocbe", complete_var=COMPLETION_VARIABLE, shell=shell))
