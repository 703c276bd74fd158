"""What the benchmarks share: work in a process of its own, and a line that says where and on what it was measured."""

from __future__ import annotations

import json
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = ROOT / "examples" / "daily.spot"


def data_folder() -> Path:
    """The folder of real instances: ``OOCBE_DATA``, or ``../shared/data`` from the project's root."""
    return Path(os.environ.get("OOCBE_DATA", ROOT.parent / "shared" / "data"))


def instances(names: str | None, families: Sequence[str]) -> list[Path]:
    """Files of the data folder by patterns separated by commas, the families without any; SystemExit if none exist."""
    data = data_folder()
    paths = [path for name in (names.split(",") if names else families) for path in sorted(data.glob(name))]
    if not paths:
        raise SystemExit(f"no such instances in {data}")
    return paths


def run_used(
    command: Sequence[str], seconds: float | None = None
) -> tuple[subprocess.CompletedProcess[str], float, float]:
    """As :func:`run_timed`, with the processor seconds of the process and its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done, wall = run_timed(command, seconds)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return done, wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def run_timed(command: Sequence[str], seconds: float | None = None) -> tuple[subprocess.CompletedProcess[str], float]:
    """Run a process to its end: its output, and its wall time from start to finish. TimeoutExpired past the limit."""
    begin = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    return done, time.perf_counter() - begin


def run_child(script: str, arguments: Sequence[str], seconds: float | None = None) -> dict[str, Any]:
    """Run ``script --child …`` and return the JSON object in its last line; RuntimeError where it fails."""
    done, _ = run_timed([sys.executable, script, "--child", *arguments], seconds)
    lines = done.stdout.strip().splitlines()
    if done.returncode != 0 or not lines:
        raise RuntimeError(f"{' '.join(arguments)} ended with {done.returncode}: {done.stderr.strip()[-800:]}")
    answer: dict[str, Any] = json.loads(lines[-1])
    return answer


def describe_run(packages: Sequence[str] = ()) -> str:
    """Date, commit, machine and versions, for a line below a table."""
    parts = [date.today().isoformat(), f"commit {commit()}", machine(), f"Python {platform.python_version()}"]
    for name in dict.fromkeys(("numpy", "numba", *packages)):
        try:
            parts.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return ", ".join(parts)


def commit() -> str:
    """The working tree's commit, with a remark where tracked files differ from it."""

    def git(*arguments: str) -> str:
        return subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=True).stdout

    try:
        changed = " with changes" if git("status", "--porcelain", "--untracked-files=no") else ""
        return git("rev-parse", "--short", "HEAD").strip() + changed
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def machine() -> str:
    """Cores that the process may use, processor and memory."""
    model = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), model)
    except OSError:
        pass
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{cores} cores of {model}, {memory:.0f} GiB"


def print_table(rows: Sequence[Sequence[str]], markdown: bool = False) -> None:
    """Print rows, the first of which is the heading, in aligned columns or as a Markdown table; the first one left."""
    if markdown:
        print("\n".join(markdown_lines(rows)))
        return
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print(
            "  ".join(f"{c:<{w}}" if i == 0 else f"{c:>{w}}" for i, (c, w) in enumerate(zip(row, widths, strict=True)))
        )


def markdown_lines(rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a Markdown table of rows, the first of which is the heading; the first column left."""
    head, *rest = rows
    return [f"| {' | '.join(row)} |" for row in (head, ["---", *("---:" for _ in head[1:])], *rest)]


def median(runs: Sequence[dict[str, Any]], key: str) -> dict[str, Any]:
    """The run in the middle by one of its figures (the upper one of two)."""
    return sorted(runs, key=lambda run: run[key])[len(runs) // 2]
