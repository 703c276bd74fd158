"""``oocbe solve --report``: one self-contained page about a solve.

Imports for the page alone are in the functions that write it, because every solve loads this module.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from oocbe import __version__
from oocbe.cli import failures
from oocbe.cli.output import note, seconds
from oocbe.errors import OocbeError, UsageError

if TYPE_CHECKING:
    from oocbe.model.problem import Problem
    from oocbe.model.results.result import Result
    from oocbe.model.results.task_result import TaskResult
    from oocbe.model.settings.options import SolveOptions
    from oocbe.runtime.tracing.summary import TraceSummary

LIBRARIES = ("numpy", "numba", "zarr", "highspy", "matplotlib")
"""Libraries whose versions the report lists."""

SUFFIXES = (".html", ".htm")
"""Suffixes of a report's file name."""

LARGEST_MESSAGES = 20
"""Maximum number of messages that the report lists; the picture has all."""

MOST_LABELS = 5_000
"""Maximum number of variables whose values the report lists."""

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font-family: system-ui, sans-serif; max-width: 96rem; margin: 1.5rem auto; padding: 0 1rem; }}
main {{ columns: 24rem; column-gap: 2rem; }} .wide {{ column-span: all; }}
section {{ overflow-x: auto; }} p {{ overflow-wrap: anywhere; }} th {{ white-space: nowrap; }}
h1 {{ font-size: 1.5rem; }} h2 {{ font-size: 1.1rem; border-bottom: 1px solid #8888; break-after: avoid; }}
svg {{ width: 100%; height: auto; border-radius: 4px; }} td {{ font-variant-numeric: tabular-nums; }}
</style></head><body>
<h1>{title}</h1>
<main>{body}</main>
</body></html>
"""


@contextmanager
def traced_for(report: Path | None, trace: Path | None) -> Iterator[Path | None]:
    """The file for a run's trace: the requested one, or a temporary one for the report."""
    if report is None or trace is not None:
        yield trace
        return
    from tempfile import TemporaryDirectory

    with TemporaryDirectory(prefix="oocbe-report-", ignore_cleanup_errors=True) as folder:
        yield Path(folder) / "trace.json"


def check_report(report: Path | None) -> None:
    """Raise UsageError, before the run, if its report cannot be drawn, or its name has another suffix."""
    if report is not None:
        if report.suffix.lower() not in SUFFIXES:
            raise UsageError(
                f"--report {report}: a report is a page in HTML; name a file that ends in {' or '.join(SUFFIXES)} (a "
                "browser prints it as PDF)"
            )
        import oocbe.runtime.pictures.plots  # noqa: F401  # which needs matplotlib


def write_report(
    report: Path, problem: Problem, result: Result | TaskResult, options: SolveOptions, trace: Path | None
) -> None:
    """Write the page, of a problem solved and its trace or None; UsageError: no matplotlib, or not writable."""
    from html import escape

    from oocbe.formats.files import write_bytes
    from oocbe.runtime.pictures.html import card, grid, paragraph

    parts = [result._repr_html_(), *map(paragraph, _meaning(result)), *_pictures(problem, result)]
    buckets = getattr(result, "buckets", ())
    if buckets:
        ranked = sorted(enumerate(buckets, start=1), key=lambda pair: -pair[1].bytes)[:LARGEST_MESSAGES]
        rows = [(number, b.variable, b.rows, b.bytes) for number, b in ranked]
        parts += ["<h2>Largest messages</h2>", grid(("bucket", "variable", "rows", "bytes"), rows)]
    if solvers := getattr(result, "solvers", ()):
        shares = [
            (s.name, seconds(s.seconds), s.steps, s.raised, s.found, f"{s.closed:.0%}")
            for s in sorted(solvers, key=lambda s: -s.seconds)
        ]
        heads = ("solver", "time", "steps", "bound raised", "assignment found", "of the gap")
        parts += ["<h2>Solvers</h2>", grid(heads, shares)]
    labels = result.labels
    if labels is not None:
        parts += ["<h2>Answer</h2>", _answer(result, labels)]
    names = [result.variables[v].name for v in result.order]
    if names:
        parts += ["<h2>Order of elimination</h2>", paragraph(" ".join(names[:MOST_LABELS]))]
    if trace is not None:
        parts += _trace(trace)
    times = [(phase, seconds(spent)) for phase, spent in result.seconds.items()]
    parts += ["<h2>Time by phase</h2>", card("", times)]
    given = {**options.to_json(), "time_limit": failures.asked_limit}
    settings = [(name.replace("_", "-"), value) for name, value in given.items()]
    parts += ["<h2>Settings</h2>", card("", settings), "<h2>Versions</h2>", card("", _versions())]
    title = escape(f"{result.problem}: {getattr(result, 'task', 'optimum')}, {result.status}")
    first, *others = "\n".join(parts).split("<h2>")
    sections = [f'<section class="wide">{first}']
    sections += [f'<section class="{"wide" * ("<svg" in own)}"><h2>{own}' for own in others]
    write_bytes(report, PAGE.format(title=title, body="</section>\n".join([*sections, ""])).encode())
    note(f"wrote {report}")


def _meaning(result: Result | TaskResult) -> Iterator[str]:
    """What the value is, in a sentence; none without a value."""
    from oocbe.model.results.result import Result
    from oocbe.runtime.pictures.html import shown

    if result.value is None or not isinstance(result, Result):
        return
    value, schedule = f"The value {shown(result.value)} is", result.schedule
    if schedule is not None:
        yield (
            f"{value} the weight of the photographs left out, which is minimised; the profit {schedule.profit:,} is "
            f"that of the photographs taken. Together they are the weight of all, {schedule.possible:,}."
        )
        return
    if result.assignment is None:
        yield f"{value} the combination of the problem's functions in {result.semiring}, summed over all assignments."
        return
    how = {"min": "least", "max": "greatest"}.get(result.sense, "one") + " that was found"
    proof = "; none is better" if result.status == "optimal" else ""
    yield f"{value} what the problem's functions give the assignment in {result.semiring}, the {how}{proof}."


def _pictures(problem: Problem, result: Result | TaskResult) -> Iterator[str]:
    schedule = getattr(result, "schedule", None)
    if problem.day is not None and schedule is not None:
        yield "<h2>Schedule</h2>"
        yield problem.day.plot(schedule, problem.name).svg()
    with suppress(UsageError):  # a task with one number has no picture
        picture = result.plot().svg()
        yield "<h2>Course</h2>" if hasattr(result, "anytime") else "<h2>Values</h2>"
        yield picture


def _answer(result: Result | TaskResult, labels: dict[str, str]) -> str:
    from oocbe.runtime.pictures.html import grid, paragraph

    schedule = getattr(result, "schedule", None)
    if schedule is not None:
        from oocbe.model.photographs import CAMERAS, SCHEDULE_HEADER

        has_recorder = schedule.capacity is not None
        rows = [
            (t.name, CAMERAS.get(t.camera, t.camera), t.group or "", t.weight, t.memory if has_recorder else "")
            for t in schedule.taken
        ]
        return grid(SCHEDULE_HEADER, rows)
    shown = list(labels.items())[:MOST_LABELS]
    more = f"<p>and {len(labels) - len(shown):,} more</p>" if len(labels) > len(shown) else ""
    return paragraph("  ".join(f"{name}={label}" for name, label in shown)) + more


def _trace(path: Path) -> list[str]:
    from oocbe.runtime.pictures.html import card, grid, paragraph
    from oocbe.runtime.tracing.summary import summarise
    from oocbe.runtime.tracing.trace_file import read_trace

    try:
        summary: TraceSummary = summarise(read_trace(path))
    except OocbeError as error:
        return ["<h2>Where the time went</h2>", paragraph(str(error))]
    rows = [
        (lane.name, f"{lane.share:.0%}", seconds(lane.busy), ", ".join(work.name for work in lane.works[:4]))
        for lane in summary.lanes
    ]
    facts = [("bound by", summary.bound_by), ("overlapped", f"{summary.overlapped:.0%} of the time")]
    names = ("lane", "busy", "time", "most of it")
    return ["<h2>Where the time went</h2>", card("", facts), grid(names, rows)]


def _versions() -> list[tuple[str, object]]:
    import platform

    from oocbe.cli.doctor import versions_of

    found = {"oocbe": __version__, "Python": platform.python_version(), **versions_of(LIBRARIES)}
    return [*found.items(), ("system", platform.platform())]
