"""Parsing of option values, the same for flags, environment variables and arguments.

Each parser takes the option's name (for the message) and a value, either already of the right type or text, and
returns the typed value or raises :class:`oocbe.errors.UsageError` with what was given and what is accepted.
"""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from oocbe.errors import UsageError
from oocbe.runtime.urls import refuse_url

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

    from oocbe.model.semiring import Semiring

Parser: TypeAlias = Callable[[str, object], object]
"""Makes the value of an option from its name, for messages, and a given value."""

ORDER_NAMES = ("auto", "min-degree", "min-fill", "weighted-min-fill", "linear")
"""Values of ``order`` that are neither a file nor a finder of another package."""

COMPLETE, INCOMPLETE = "complete", "incomplete"
"""Forms of a message: a value for every assignment, or feasible rows with their keys."""

BACKENDS = ("auto", "cpu", "cuda")
"""Values of ``backend``."""

_BYTE_UNITS = {
    "": 1,
    "b": 1,
    **{unit + end: 1024**power for power, unit in enumerate("kmgt", start=1) for end in ("", "ib")},
    **{unit + "b": 1000**power for power, unit in enumerate("kmgt", start=1)},
}
"""Bytes of a unit: KiB and K are 1024, KB is 1000."""

LEAST_MEMORY = 1 << 20
"""Below one mebibyte not even the buffers of a single chunk fit, and a forgotten unit (``--memory 2``) is likelier."""


def _shown(value: object) -> str:
    """A value for a message; Python makes no text of integers of thousands of digits."""
    try:
        return repr(value)
    except ValueError:
        return "an integer of thousands of digits"


def plain(value: Any) -> Any:
    """A scalar of NumPy, or an array without axes, as a number of Python; anything else as it is."""
    return value.item() if getattr(value, "shape", None) == () else value


@cache
def order_finders() -> EntryPoints:
    """Finders of orders that other packages add (:mod:`oocbe.elimination.orders.order`), not yet loaded."""
    from importlib.metadata import entry_points  # only where another name than those of the heuristics is given

    return entry_points(group="oocbe.order_finders")


def optional(parse: Callable[[str, object], Any]) -> Callable[[str, object], Any]:
    """A parser that keeps None, for options without a value by default."""
    return lambda name, value: None if value is None else parse(name, value)


def parse_temperature(value: object) -> float:
    """A float above 0, perhaps infinite; arithmetic with one of NumPy's narrower types would round values to it."""
    with suppress(OverflowError):
        if isinstance(number := plain(value), Real) and float(number) > 0:
            return float(number)
    raise UsageError(f"temperature: {_shown(value)} is no number above 0 within the range of float64")


def one_of(*known: str) -> Callable[[str, object], str]:
    """A parser that accepts these words only."""

    def parse(name: str, value: object) -> str:
        if isinstance(value, str) and value.strip() in known:
            return value.strip()
        raise UsageError(f"{name}: {_shown(value)} is not one of {', '.join(known)}")

    return parse


parse_backend = one_of(*BACKENDS)


def parse_order(name: str, value: object) -> str:
    """Name of a heuristic or finder, or the path of a file that exists; a path object is turned into text."""
    text = os.fspath(value) if isinstance(value, os.PathLike) else value
    if isinstance(text, str):
        refuse_url(text, name)
    if isinstance(text, str) and (text in ORDER_NAMES or Path(text).is_file() or text in order_finders().names):
        return text
    known = ", ".join([*ORDER_NAMES, *sorted(order_finders().names)])
    raise UsageError(f"{name}: {_shown(value)} is neither one of {known} nor a file that exists")


def parse_seconds(name: str, value: object) -> float:
    """A finite number of seconds, not negative."""
    with suppress(UsageError):
        return float(parse_number(name, value, least=0))
    raise UsageError(f"{name}: {_shown(value)} is not a number of seconds; give 0 or more, such as 0.5")


def parse_number(name: str, value: object, least: float = -math.inf) -> int | float:
    """A finite number in the range of float64, not below ``least``; an integer where it is written as one."""
    value, number = plain(value), None
    with suppress(ValueError, OverflowError):
        if not isinstance(value, bool) and isinstance(value, Real):
            number = int(value) if isinstance(value, Integral) else float(value)
        elif isinstance(value, str):
            number = int(value) if re.fullmatch(r"\s*[+-]?[0-9]+\s*", value) else float(value)
        if number is not None and math.isfinite(number) and number >= least:
            return number
    raise UsageError(f"{name}: {_shown(value)} is not a finite number{f' of at least {least}' * (least > -math.inf)}")


@dataclass(frozen=True)
class Gap:
    """Allowed gap of bound and incumbent: ``absolute``, or ``relative`` to the incumbent's size (0.01 for 1 %)."""

    absolute: float = 0
    relative: float = 0

    def is_reached(self, lower: float, upper: float) -> bool:
        """Whether a lower bound and an incumbent's value are as near as that."""
        return upper - lower <= max(self.absolute, self.relative * abs(upper))

    def __str__(self) -> str:
        return f"{self.relative * 100:g}%" if self.relative else f"{self.absolute:g}"


NO_GAP = Gap()
"""The bounds must meet."""


def parse_gap(name: str, value: object) -> Gap:
    """A difference of values such as 5, or a part of the incumbent's value such as 1%."""
    if isinstance(value, Gap):
        return value
    text = value.strip() if isinstance(value, str) else value
    is_relative = isinstance(text, str) and text.endswith("%")
    try:
        number = parse_number(name, text[:-1] if is_relative else text, least=0)  # type: ignore[index]
    except UsageError:
        wanted = "a difference of values such as 5, or a part such as 1%"
        raise UsageError(f"{name}: {_shown(value)} is no gap; give {wanted}") from None
    return Gap(relative=number / 100) if is_relative else Gap(absolute=number)


def parse_integer(name: str, value: object, least: int = 0, most: float = math.inf) -> int:
    """An integer not below ``least``, nor above ``most``."""
    value, number = plain(value), None
    if not isinstance(value, bool) and isinstance(value, Integral):
        number = int(value)
    elif isinstance(value, str) and re.fullmatch(r"\s*[+-]?[0-9]+\s*", value):
        with suppress(ValueError):  # of thousands of digits
            number = int(value)
    if number is not None and least <= number <= most:
        return number
    limit = f" and at most {most:,}" * (most < math.inf)
    raise UsageError(f"{name}: {_shown(value)} is not an integer of at least {least}{limit}")


def parse_count(name: str, value: object) -> int:
    """An integer of at least 1."""
    return parse_integer(name, value, least=1)


WORKERS = re.compile(r"(?:(cpus|gpus):)?([1-9][0-9]{0,4})|(gpus)")
"""The two forms of an option for workers of this host."""


def parse_workers(name: str, value: object) -> str | None:
    """Workers of this host: a number, ``cpus:4``, ``gpus`` or ``gpus:2``; 0 is None, and None stays None."""
    value = plain(value)
    text = str(value).strip() if isinstance(value, str | int) and not isinstance(value, bool) else ""
    if value is None or text == "0":
        return None
    if WORKERS.fullmatch(text):
        return text
    raise UsageError(f"{name}: {_shown(value)} is none of 2, cpus:4, gpus and gpus:2")


SLURM = "slurm:"
"""Beginning of what asks for workers in SLURM jobs; a file follows."""

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
"""Hosts whose ports nobody else reaches through a network."""


def parse_cluster(name: str, value: object) -> str:
    """Address of a Dask scheduler: ``tls://host:port``, or ``tcp://`` on this host; ``slurm:FILE``, settings of jobs
    that are submitted for workers."""
    text = value.strip() if isinstance(value, str) else ""
    if text.startswith(SLURM):
        if not Path(text.removeprefix(SLURM)).is_file():
            raise UsageError(f"{name}: {text}: there is no such file with settings of SLURM jobs (docs/cluster.md)")
        return text
    found = re.fullmatch(r"(tcp|tls)://(.+):([0-9]{1,5})", text)
    if found is None and re.fullmatch(r"[^/]+:[0-9]{1,5}", text):
        scheme = "tcp" if text.rpartition(":")[0] in LOOPBACK else "tls"
        raise UsageError(f"{name}: {text}: tls:// or tcp:// is missing; give {scheme}://{text}, as its scheduler does")
    if found is None:
        raise UsageError(
            f"{name}: {_shown(value)} is neither tls://HOST:PORT, the address of a scheduler, nor slurm:FILE"
        )
    if not 0 < int(found[3]) < 1 << 16:
        raise UsageError(f"{name}: {text}: no program can listen on port {found[3]}; ports are 1 to 65535")
    if found[1] == "tcp" and found[2] not in LOOPBACK:
        raise UsageError(
            f"{name}: {text}: whoever reaches a scheduler's port runs code there; use tls:// (docs/cluster.md says "
            "how), or give a client of your own from Python"
        )
    return text


def parse_boolean(name: str, value: object) -> bool:
    """A truth value; text may be 1/0, true/false, yes/no or on/off in any case."""
    value = plain(value)
    text = str(value).strip().lower() if isinstance(value, str | bool) else ""
    if text in ("1", "true", "yes", "on"):
        return True
    if text in ("0", "false", "no", "off"):
        return False
    raise UsageError(f"{name}: {_shown(value)} is not a truth value; give 1, true, yes, on or 0, false, no, off")


def parse_bytes(name: str, value: object) -> int | None:
    """A number of bytes such as 2GiB, 512MiB, 1.5G (binary), 2GB (decimal) or 2e9; None stays None."""
    if value is None:
        return None
    value, count = plain(value), None
    if not isinstance(value, bool) and isinstance(value, Integral):
        count = int(value)
    elif isinstance(value, str):
        match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?(?:e[0-9]+)?)\s*([a-z]*)\s*", value.lower())
        if match and match[2] in _BYTE_UNITS:
            unit = _BYTE_UNITS[match[2]]
            with suppress(ValueError, OverflowError):  # of hundreds or thousands of digits
                count = int(float(match[1]) * unit) if {*match[1]} & {".", "e"} else int(match[1]) * unit
    if count is None:
        raise UsageError(
            f"{name}: {_shown(value)} is not a number of bytes; give one such as 2GiB, 512MiB or 2000000000"
        )
    if count < LEAST_MEMORY:
        raise UsageError(f"{name}: {_shown(value)} is {count} bytes, less than 1 MiB; is a unit missing?")
    return min(count, sys.maxsize)  # more than any loop can address


def parse_path(name: str, value: object) -> Path:
    """A path."""
    if isinstance(value, str | os.PathLike) and str(value).strip():
        refuse_url(os.fspath(value), name)
        return Path(value)
    raise UsageError(f"{name}: {_shown(value)} is not a path")


def parse_semiring(name: str, value: object) -> Semiring:
    """A semiring or its name."""
    from oocbe.model.semiring import semiring_of  # which loads NumPy: help does not need it

    return semiring_of(value.strip() if isinstance(value, str) else value)  # type: ignore[arg-type]
