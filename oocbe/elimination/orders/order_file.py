"""An elimination order from a file of variable names."""

from __future__ import annotations

from pathlib import Path

from oocbe.errors import FormatError
from oocbe.model.problem import Problem
from oocbe.runtime.plain_files import read_text


def read_order(problem: Problem, path: str | Path) -> list[int]:
    """Order from a text file: variable names separated by white space or commas; ``#`` begins a comment.

    Raises
    ------
    FormatError : an unknown variable, one that occurs twice or is missing; the message names it and the line.
    """
    known = {v.name: index for index, v in enumerate(problem.variables)}
    order: list[int] = []
    seen: set[int] = set()
    number = 0
    try:
        text = read_text(path)
    except (OSError, UnicodeDecodeError) as error:
        raise FormatError(path, None, f"cannot be read as an elimination order ({error})") from None
    for number, line in enumerate(text.splitlines(), start=1):
        for name in line.split("#", 1)[0].replace(",", " ").split():
            if name not in known:
                raise FormatError(path, number, f"no variable is called {name!r}; expected names of {problem.name}")
            if known[name] in seen:
                raise FormatError(path, number, f"variable {name} occurs twice in the order; expected each once")
            seen.add(known[name])
            order.append(known[name])
    if len(order) < len(known):
        missing = next(name for name, index in known.items() if index not in seen)
        raise FormatError(
            path, number, f"the order ends after {len(order)} of {len(known)} variables; {missing} is missing"
        )
    return order
