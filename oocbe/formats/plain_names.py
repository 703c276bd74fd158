"""Names that a format can hold, for those that it cannot."""

from __future__ import annotations

import re
from collections.abc import Iterable


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
