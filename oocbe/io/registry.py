"""Which formats there are, and the functions that use them: :func:`read`, :func:`read_model` and :func:`write`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from oocbe.errors import FormatError, OocbeError, TimeLimitError, UnsupportedError, UsageError
from oocbe.io import bif, cfn, mps, mps_writer, opb, spot, spot_writer, uai, wcsp, wcsp_writer, xcsp
from oocbe.io.evidence import Evidence, evidence_of
from oocbe.io.files import check_there, read_bytes, without_compression, write_bytes
from oocbe.io.text import Text
from oocbe.model.compact_problem import CompactProblem
from oocbe.model.linear_problem import problem_of
from oocbe.model.linear_system import LinearSystem
from oocbe.model.problem import Problem

Model: TypeAlias = Problem | LinearSystem | CompactProblem
"""What a file may hold: a problem, a linear system, or a problem with short tables and parts that were not read."""


@dataclass(frozen=True)
class Format:
    """One file format.

    Attributes
    ----------
    name : what a person gives as ``format``; also the file name's suffix, after a dot.
    description : one line for help texts.
    parse : tokens to what the file holds; raises FormatError or UnsupportedError only.
    render : problem to the file's text, or None where no problem is written in the format.
    render_system : linear system to the file's text, or None where none is written in the format.
    """

    name: str
    description: str
    parse: Callable[[Text], Model]
    render: Callable[[Problem], str] | None = None
    render_system: Callable[[LinearSystem], str] | None = None


_FORMATS = (
    Format("bif", "belief networks in the Bayesian interchange format", bif.parse),
    Format("cfn", "toulbar2's cost function networks in JSON", cfn.parse),
    Format("mps", "linear and mixed-integer programs", mps.parse, render_system=mps_writer.render),
    Format("opb", "pseudo-Boolean problems", opb.parse),
    Format("spot", "SPOT5 daily management instances", spot.parse, spot_writer.render),
    Format("uai", "UAI Markov and belief networks", uai.parse, uai.render),
    Format("wcsp", "toulbar2's weighted CSPs", wcsp.parse, wcsp_writer.render),
    Format("xml", "constraint problems in XCSP3", xcsp.parse),
)
"""All formats, in the order in which they are listed."""


def formats() -> dict[str, Format]:
    """The known formats by name."""
    return {f.name: f for f in _FORMATS}


def read(
    path: str | Path,
    format: str | None = None,
    evidence: Evidence | None = None,
    max_bytes: int | None = None,
) -> Problem:
    """Read a problem from a file, compressed with gzip or xz or not.

    Parameters
    ----------
    path : the file.
    format : name of a format; None: by the name's suffix, before ``.gz`` or ``.xz``.
    evidence : a ``.evid`` file, a pair such as ``rain=yes``, a list of both, or variable index to value index; no file
        is looked for beside the problem's.
    max_bytes : limit on the decompressed size; None: ``OOCBE_MAX_INPUT_BYTES``, by default 4 GiB.

    Raises
    ------
    FormatError : malformed input, with the line; nothing is returned of it.
    UnsupportedError : well-formed input with a part that oocbe cannot treat.
    UsageError : unknown format, or a file that cannot be opened.
    """
    with naming(path):
        problem = as_problem(read_model(path, format, max_bytes))
    if evidence is None:
        return problem
    return problem.with_evidence(evidence_of(evidence, problem, max_bytes))


@contextmanager
def naming(path: str | Path) -> Iterator[None]:
    """Within the block, what is not supported is said with the file that it is in."""
    try:
        yield
    except UnsupportedError as error:
        if str(path) in str(error):
            raise
        raise UnsupportedError(f"{path}: {error}") from None


def as_problem(model: Model) -> Problem:
    """The problem with finite domains and all rows written out; UnsupportedError where there is none."""
    if isinstance(model, LinearSystem):
        return problem_of(model)
    return model.expanded() if isinstance(model, CompactProblem) else model


def read_model(path: str | Path, format: str | None = None, max_bytes: int | None = None) -> Model:
    """What a file holds, as it is written: for propagation, which needs neither finite domains nor all rows.

    Parameters and what is raised as for :func:`read`.
    """
    check_there(path)
    chosen = _format_of(path, format)
    text = Text(path, read_bytes(path, max_bytes))
    if len(text) == 0:
        raise FormatError(path, 1, f"the file is empty, expected a problem in the {chosen.name} format")
    return _parse(chosen, text)


def _parse(chosen: Format, text: Text) -> Model:
    try:
        return chosen.parse(text)
    except (FormatError, TimeLimitError, UnsupportedError):
        raise
    except OocbeError as error:
        # The parsers check everything the model checks, with a line. Should one be missed, name the file at least.
        raise FormatError(text.path, None, str(error)) from error


def write(model: Model, path: str | Path, format: str | None = None) -> None:
    """Write a problem or linear system to a file, compressed where the name ends in ``.gz`` or ``.xz``.

    A format of problems gets a system with finite domains as a problem, and short tables written out.

    Raises
    ------
    UnsupportedError : the format cannot express the problem, or is only read.
    ValueRangeError : a value or sum leaves the format's range.
    UsageError : unknown format, or a place that cannot be written.
    """
    chosen = _format_of(path, format)
    if chosen.render_system is not None and isinstance(model, LinearSystem):
        content = chosen.render_system(model)
    elif chosen.render is not None:
        content = chosen.render(as_problem(model))
    else:
        writable = ", ".join(f.name for f in _FORMATS if f.render is not None)
        what = "is only read" if chosen.render_system is None else "is written of linear systems only"
        raise UnsupportedError(f"{path}: the {chosen.name} format {what}; formats to write: {writable}")
    write_bytes(path, content.encode("utf-8"))


def _format_of(path: str | Path, name: str | None) -> Format:
    known = formats()
    wanted = name if name is not None else without_compression(path).suffix.lstrip(".").lower()
    if wanted not in known:
        found = f"unknown format {name!r}" if name is not None else f"{path}: the name's suffix tells no format"
        raise UsageError(f"{found}; known formats: {', '.join(known)}")
    return known[wanted]
