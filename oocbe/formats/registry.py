"""Which formats there are, and the functions that use them: :func:`read`, :func:`read_model` and :func:`write`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from oocbe.errors import (
    FormatError,
    OocbeError,
    ResourceError,
    TimeLimitError,
    UnsupportedError,
    UsageError,
    ValueRangeError,
    without_frames,
)
from oocbe.formats.files import SUFFIXES, check_there, read_bytes, without_compression, write_bytes
from oocbe.formats.text import Text
from oocbe.formats.uai import Evidence, evidence_of
from oocbe.model.problem import Problem
from oocbe.model.settings.machine import default_memory_limit
from oocbe.model.settings.option_values import parse_bytes
from oocbe.runtime.memory import REMEDY, MemoryLimit
from oocbe.runtime.memory import current as current_limit
from oocbe.runtime.urls import refuse_url

if TYPE_CHECKING:
    from oocbe.model.compact_problem import CompactProblem
    from oocbe.model.dcop import Dcop
    from oocbe.model.linear_system import LinearSystem

Model: TypeAlias = "Problem | LinearSystem | CompactProblem | Dcop"
"""Content of a file: a problem, a linear system, a problem with short tables and parts that were not read, or a
problem whose variables belong to agents."""


@dataclass(frozen=True)
class Format:
    """One file format.

    name : what a person gives as ``format``; also the file name's suffix, after a dot. description : one line about it.
    parse : the model of a file's tokens; it must raise FormatError for malformed files (see :meth:`Text.error`) and
        UnsupportedError for parts that oocbe cannot express.
    render : the text of a problem; None if the format is only read.
    render_system : the text of a linear system; None if the format holds none.
    render_dcop : the text of a problem with agents; None if the format holds none.
    """

    name: str
    description: str
    parse: Callable[[Text], Model]
    render: Callable[[Problem], str] | None = None
    render_system: Callable[[LinearSystem], str] | None = None
    render_dcop: Callable[[Dcop], str] | None = None

    @property
    def writes_problems(self) -> bool:
        """Whether problems are written in the format."""
        return self.render is not None or self.render_dcop is not None


def _late(name: str) -> Callable[[Any], Any]:
    """A function, such as ``bif.parse``, whose module is loaded when it is called: a run reads one format of many."""
    module, function = name.split(".")
    return lambda given: getattr(import_module(f"oocbe.formats.{module}"), function)(given)


def _parse_xml(text: Text) -> Model:
    """Content of an XML file: a constraint problem, one with agents, or a belief network."""
    from oocbe.formats import frodo, xcsp, xmlbif
    from oocbe.formats.xml import parse_xml

    root = parse_xml(text)
    if root.tag == xmlbif.ROOT:
        return xmlbif.parse(text, root)
    if root.tag == xmlbif.XDSL_ROOT:
        return xmlbif.parse_xdsl_root(text, root)
    return frodo.parse(text, root) if frodo.is_xcsp2(root) else xcsp.parse(text, root)


_OTHER_SUFFIXES = {"yml": "yaml", "wbo": "opb", "bifxml": "xml", "xmlbif": "xml"}
"""Suffixes of files beside the names of their formats."""

_NETWORK_IN_JSON = re.compile(rb"(?:\xef\xbb\xbf)?\s*\{\s*(['\"]?)problem\1\s*:")
"""Beginning of a cost function network in a ``.json`` file, as toulbar2 has some; cases and answers begin otherwise."""

_FORMATS = (
    Format("bif", "belief networks in the Bayesian interchange format", _late("bif.parse"), _late("bif.render")),
    Format("cfn", "toulbar2's cost function networks in JSON", _late("cfn.parse"), _late("cfn.render")),
    Format("cnf", "satisfiability in DIMACS", _late("dimacs.parse_cnf"), _late("dimacs.render_cnf")),
    Format("lg", "UAI networks with logarithms as entries", _late("uai.parse_logarithms")),
    Format(
        "lp",
        "linear and mixed-integer programs in CPLEX's LP form",
        _late("lp.parse"),
        render_system=_late("lp.render_lp"),
    ),
    Format("mps", "linear and mixed-integer programs", _late("mps.parse"), render_system=_late("lp.render_mps")),
    Format("net", "belief networks as Hugin, GeNIe and SamIam write them", _late("net.parse")),
    Format("opb", "pseudo-Boolean problems, soft constraints among them", _late("opb.parse")),
    Format("qpbo", "quadratic pseudo-Boolean problems", _late("opb.parse_qpbo"), _late("opb.render_qpbo")),
    Format("spot", "SPOT5 daily management instances", _late("spot.parse"), _late("spot.render")),
    Format("uai", "UAI Markov and belief networks", _late("uai.parse"), _late("uai.render")),
    Format("wcnf", "weighted clauses in DIMACS, old and new", _late("dimacs.parse_wcnf"), _late("dimacs.render_wcnf")),
    Format("wcsp", "toulbar2's weighted CSPs", _late("wcsp.parse"), _late("wcsp.render")),
    Format("xdsl", "belief networks as GeNIe writes them", _late("xmlbif.parse_xdsl")),
    Format(
        "xml",
        "constraint problems in XCSP3, FRODO's with agents, and belief networks in XMLBIF",
        _parse_xml,
        render_dcop=_late("frodo.render"),
    ),
    Format("yaml", "pyDcop's problems with agents", _late("pydcop.parse"), render_dcop=_late("pydcop.render")),
)
"""The package's own formats."""

ENTRY_POINTS = "oocbe.formats"
"""Group of the entry points with which other packages add formats: each names a :class:`Format`."""


@cache
def formats() -> dict[str, Format]:
    """The known formats in the order of their names: the package's own, and those of other packages' entry points.

    Raises UsageError: an entry point cannot be loaded, or names anything but a :class:`Format` with a name of its own:
    in lower case, and no suffix of other files.
    """
    from importlib.metadata import entry_points  # deferred: 20 ms, a fiftieth of a small solve

    found = {f.name: f for f in _FORMATS}
    taken = {*_OTHER_SUFFIXES, *(suffix.removeprefix(".") for suffix in SUFFIXES)}
    for point in entry_points(group=ENTRY_POINTS):
        try:
            added = point.load()
        except Exception as error:
            raise UsageError(f"the format {point.name} of {point.value} cannot be loaded: {error}") from error
        if not isinstance(added, Format) or added.name in {*found, *taken} or added.name != added.name.lower():
            raise UsageError(
                f"the format {point.name} of {point.value} is no Format with a name of its own, in lower case"
            )
        found[added.name] = added
    return dict(sorted(found.items()))


def read(
    path: str | Path,
    format: str | None = None,
    evidence: Evidence | None = None,
    max_bytes: int | None = None,
    memory: int | str | None = None,
) -> Problem:
    """Read a problem from a file, compressed with gzip or xz or not.

    Parameters
    ----------
    path : the file; ``-`` for standard input, which needs a format.
    format : name of a format; None: by the name's suffix, before ``.gz`` or ``.xz``.
    evidence : a ``.evid`` file, a pair such as ``rain=yes``, a list of both, or variable index to value index; no file
        is looked for beside the problem's.
    max_bytes : limit on the decompressed size; None: ``OOCBE_MAX_INPUT_BYTES``, by default 4 GiB.
    memory : limit in bytes on what reading takes, or text such as ``"2GiB"``; None: that of the call which reads the
        file, else 80 % of what the control group or machine has.

    Raises
    ------
    FormatError : malformed input, with the line; nothing is returned of it.
    ResourceError : it takes more memory than the limit allows.
    UnsupportedError : well-formed input with a part that oocbe cannot treat.
    UsageError : unknown format, or a file that cannot be opened.
    """
    with error_context(path), memory_limit(memory):
        problem = as_problem(read_model(path, format, max_bytes))
        if evidence is None:
            return problem
        return problem.with_values(evidence_of(evidence, problem, max_bytes))


@contextmanager
def error_context(path: str | Path, work: str = "reading") -> Iterator[None]:
    """Within the block, what is not supported, and want of memory for some work, are reported with the file's name."""
    try:
        yield
    except (UnsupportedError, ValueRangeError) as error:
        if str(path) in str(error):
            raise
        raise type(error)(f"{path}: {error}") from None
    except (ResourceError, MemoryError) as error:
        if str(path) in str(error):
            raise
        details = f"{error}; {REMEDY}" if isinstance(error, MemoryError) and str(error) else str(error) or REMEDY
        raise ResourceError(f"{path}: {work} it takes too much memory: {details}") from without_frames(error)


def as_problem(model: Model) -> Problem:
    """The problem with finite domains and all rows written out; UnsupportedError where there is none."""
    if isinstance(model, Problem):
        return model
    from oocbe.model.compact_problem import CompactProblem  # large modules, which most problems do without
    from oocbe.model.linear_system import LinearSystem, problem_of

    if isinstance(model, LinearSystem):
        return problem_of(model)
    return model.expanded() if isinstance(model, CompactProblem) else model.problem


def read_model(
    path: str | Path, format: str | None = None, max_bytes: int | None = None, memory: int | str | None = None
) -> Model:
    """Content of a file as written: for propagation, which needs neither finite domains nor all rows.

    Parameters and what is raised are those of :func:`read`.
    """
    with memory_limit(memory), error_context(path):
        return _read_model(path, format, max_bytes)


def memory_limit(memory: int | str | None) -> AbstractContextManager[object]:
    """A block with a memory limit; None: that of the block around it, else the default one."""
    given = parse_bytes("memory", memory)
    if given is None and current_limit() is not None:
        return nullcontext()
    return MemoryLimit(default_memory_limit() if given is None else given)


def _read_model(path: str | Path, format: str | None, max_bytes: int | None) -> Model:
    check_there(path)
    suffix = without_compression(path).suffix.lower()
    what = SUFFIXES.get(suffix) if format is None else None
    content = None
    if what is not None and suffix == ".json":
        content = read_bytes(path, max_bytes, may_wait=True)
        if _NETWORK_IN_JSON.match(content):
            what, format = None, "cfn"
    if what is not None:
        raise UsageError(f"{path}: this is {what}")
    chosen = format_of(path, format)
    text = Text(path, read_bytes(path, max_bytes, may_wait=True) if content is None else content)
    if len(text) == 0:
        raise FormatError(path, 1, f"the file is empty, expected a problem in the {chosen.name} format")
    return _parse(chosen, text)


def _parse(chosen: Format, text: Text) -> Model:
    try:
        return chosen.parse(text)
    except (FormatError, ResourceError, TimeLimitError, UnsupportedError, MemoryError):
        raise
    except OocbeError as error:
        # The parsers check everything the model checks, with a line. Should one be missed, name the file at least.
        raise FormatError(text.path, None, str(error)) from error
    except Exception as error:
        if chosen in _FORMATS:
            raise
        fault = f"{type(error).__name__}: {error}"
        raise UsageError(f"{text.path}: the format {chosen.name} of another package failed: {fault}") from error


def write(model: Model, path: str | Path, format: str | None = None) -> None:
    """Write a problem, linear system, or network of pyAgrum or pgmpy to a file, compressed where the name ends in
    ``.gz`` or ``.xz``.

    A format of problems gets a system with finite domains as a problem, and short tables written out; one of problems
    with agents gives each variable one of its own where there is none.

    Raises
    ------
    UnsupportedError : the format cannot express the problem or its names, or is only read.
    ValueRangeError : a value or sum leaves the format's range.
    UsageError : unknown format, a place that cannot be written, or an argument of another type.
    """
    from oocbe.model.compact_problem import CompactProblem
    from oocbe.model.dcop import Dcop
    from oocbe.model.linear_system import LinearSystem

    refuse_url(path, "a problem")
    chosen = format_of(path, format)
    model = model_of(model)
    (model.problem if isinstance(model, Dcop | CompactProblem) else model).refuse_question(f"the file {path}")
    with error_context(path, "writing"):
        if chosen.render_system is not None and isinstance(model, LinearSystem):
            content = chosen.render_system(model)
        elif chosen.render_dcop is not None:
            content = chosen.render_dcop(model if isinstance(model, Dcop) else Dcop.of(as_problem(model)))
        elif chosen.render is not None:
            content = chosen.render(as_problem(model))
        else:
            writable = ", ".join(f.name for f in formats().values() if f.writes_problems)
            what = "is only read" if chosen.render_system is None else "holds linear systems, and this is none"
            raise UnsupportedError(f"the {chosen.name} format {what}; formats to write: {writable}")
    try:
        write_bytes(path, content.encode("utf-8"))
    except UnicodeEncodeError as error:
        raise UnsupportedError(f"{path}: {content[error.start]!r}, in a name, is no character of UTF-8") from None


def model_of(given: Any) -> Model:
    """A model as it is, or the problem of a network of pyAgrum or pgmpy; UsageError for anything else."""
    from oocbe.formats.networks import problem_of
    from oocbe.model.compact_problem import CompactProblem
    from oocbe.model.dcop import Dcop
    from oocbe.model.linear_system import LinearSystem

    return given if isinstance(given, Problem | LinearSystem | CompactProblem | Dcop) else problem_of(given)


def writes_systems(path: str | Path, format: str | None = None) -> bool:
    """Whether what is written to a path is a linear system as it was read, with reals and without a need for bounds."""
    return format_of(path, format).render_system is not None


def is_problem_file(path: Path) -> bool:
    """Whether a path has the suffix of a format, with or without one of a compression."""
    suffix = without_compression(path).suffix.lstrip(".").lower()
    return suffix in _OTHER_SUFFIXES or suffix in formats()


def format_of(path: str | Path, name: str | None) -> Format:
    """The format of a name, or of a path's suffix; UsageError: neither is known."""
    wanted = name if name is not None else without_compression(path).suffix.lstrip(".").lower()
    wanted = _OTHER_SUFFIXES.get(wanted, wanted)
    own = next((f for f in _FORMATS if f.name == wanted), None)
    if own is not None:
        return own  # entry points are looked for where they may be needed only: that takes as long as a small solve
    known = formats()
    if wanted not in known:
        found = f"unknown format {name!r}" if name is not None else f"{path}: unknown suffix of a file format"
        raise UsageError(
            f"{found}; name one (format, --format; of what is written, --to); known formats: {', '.join(known)}"
        )
    return known[wanted]
