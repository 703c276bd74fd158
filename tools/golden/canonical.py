"""Values as JSON that is equal exactly where the values are, and where two of them differ."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

VOLATILE = re.compile(
    r"(.*_)?seconds|seconds_.*|peak_memory(_bytes)?|memory_before|path|version|disk|.*_per_second|anytime|solvers|rows_changed_owner"
)
"""Keys of mappings that hold times, places, what the machine has, or which worker was free."""

STABLE = {"predicted_seconds", "order_seconds", "bound_seconds", "incumbent_seconds"}
"""Keys that look volatile and are predictions or settings."""

WITHIN_TEXTS = (
    (re.compile(r"\b\d+([.,]\d+)*(e[-+]?\d+)? ?(µs|us|ms|s|seconds?|minutes?|min|h|hours?)\b(?!-)"), "<time>"),
    (re.compile(r"(memory for messages|free on disk) [\d.]+ \w+"), r"\1 <size>"),
    (re.compile(r"[\d.]+ \w+ may be used"), "<size> may be used"),
    (re.compile(r"\boocbe \d+\.\d+(\.\w+)*"), "oocbe <version>"),
)
"""Times, sizes of the machine and versions within sentences, and what is recorded for them."""

MACHINE = re.compile(r"the memory limit of .* may not be kept: the program itself takes .*")
"""Elements of lists that are left out: a process that has compiled loops takes more memory."""

LISTED = 24
"""Elements up to which an array is recorded in full beside its digest, so that a difference can be read."""


def digest(data: bytes) -> str:
    """The first half of a SHA-256, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()[:32]


def canonical(value: Any, places: Mapping[str, str] | None = None) -> Any:
    """A value as JSON types; ``places`` : texts of paths and what is written in their stead."""
    places = places or {}
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, str):
        return _sentence(value, places)
    if isinstance(value, float):
        return value.hex() if math.isfinite(value) else str(value)
    if isinstance(value, np.generic):
        return canonical(value.item(), places)
    if isinstance(value, np.ndarray):
        return _array(value)
    if isinstance(value, bytes):
        return digest(value)
    if isinstance(value, Path):
        return _sentence(str(value), places)
    if isinstance(value, Mapping):
        left_out = {"memory"} if "disk" in value else set()  # what a plan may use of the machine
        pairs = ((str(k), v) for k, v in value.items() if k not in left_out)
        return {k: canonical(v, places) for k, v in pairs if k in STABLE or not VOLATILE.fullmatch(k)}
    if hasattr(value, "_asdict"):
        return canonical(value._asdict(), places)
    if dataclasses.is_dataclass(value):
        return canonical({f.name: getattr(value, f.name) for f in dataclasses.fields(value)}, places)
    if isinstance(value, set | frozenset):
        return sorted(canonical(list(value), places), key=repr)
    if isinstance(value, list | tuple):
        kept = [one for one in value if not (isinstance(one, str) and MACHINE.fullmatch(one))]
        return [canonical(one, places) for one in kept]
    raise TypeError(f"{type(value).__name__} has no canonical form")


def _sentence(text: str, places: Mapping[str, str]) -> str:
    for place, name in places.items():
        text = text.replace(place, name)
    for pattern, instead in WITHIN_TEXTS:
        text = pattern.sub(instead, text)
    return text


def _array(array: np.ndarray) -> dict[str, Any]:
    if array.dtype == object:
        content = repr(array.tolist()).encode()
    else:
        content = np.ascontiguousarray(array).tobytes()
    found: dict[str, Any] = {"dtype": array.dtype.name, "shape": list(array.shape), "digest": digest(content)}
    if array.size <= LISTED:
        found["values"] = canonical(array.tolist())
    return found


def differences(old: Any, new: Any, place: str = "") -> Iterator[str]:
    """Where two recorded values differ, a line each."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys()):
            inside = f"{place}.{key}" if place else key
            if key not in new:
                yield f"{inside}: lost (was {_short(old[key])})"
            elif key not in old:
                yield f"{inside}: new ({_short(new[key])})"
            else:
                yield from differences(old[key], new[key], inside)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for number, (one, other) in enumerate(zip(old, new, strict=True)):
            yield from differences(one, other, f"{place}[{number}]")
    elif old != new or type(old) is not type(new):
        yield f"{place or 'value'}: {_short(old)} -> {_short(new)}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 160 else f"{text[:80]} … {text[-60:]}"
