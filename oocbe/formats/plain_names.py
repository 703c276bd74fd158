"""Common parts of writers: names without marks, and the refusal of bounds that a format does not have."""

from __future__ import annotations

import re
from collections.abc import Iterable

from oocbe.errors import UnsupportedError
from oocbe.model.problem import Problem


def plain_names(names: Iterable[str], marks: re.Pattern[str], refused: re.Pattern[str]) -> list[str]:
    """The names with ``_`` for each character that the format does not read; no two of them are alike.

    Parameters
    ----------
    marks : matches each such character. refused : matches names that get a ``_`` in front.
    """
    given = list(names)
    plain = [marks.sub("_", name) for name in given]
    plain = [f"_{name}" if not name or refused.match(name) else name for name in plain]
    taken = {name for name, own in zip(given, plain, strict=True) if name == own}
    left = set(taken)
    for place, name in enumerate(plain):
        if name in left and name == given[place]:
            left.remove(name)
            continue
        number = 1
        while plain[place] in taken:
            number += 1
            plain[place] = f"{name}_{number}"
        taken.add(plain[place])
    return plain


def refuse_bounds(problem: Problem, format_name: str) -> None:
    """Raise :class:`UnsupportedError` where a problem has an upper or lower bound that its sums may reach."""
    if side := problem.reachable_bound:
        bound = problem.upper_bound if side == "upper" else problem.lower_bound
        raise UnsupportedError(
            f"{problem.name}: the {side} bound {bound} may bind, and {format_name} has none; write it as .cfn, "
            "or, in Python, problem.below(None) without it"
        )
