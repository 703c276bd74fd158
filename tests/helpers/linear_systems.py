"""Random linear systems with rows of all lengths."""

from __future__ import annotations

import numpy as np

from oocbe.model.linear_system import LinearSystem
from oocbe.propagation.kernels.cpu.linear_rows import CHUNK, SHORT_ROW

LENGTHS = (0, 1, 2, 3, 7, SHORT_ROW - 1, SHORT_ROW, SHORT_ROW + 1, 2 * SHORT_ROW, 400, CHUNK - 1, CHUNK, CHUNK + 1,
           2 * CHUNK + 17, 9 * CHUNK + 5)  # fmt: skip
"""Of rows: those about which one is added up in another way are among them."""

KINDS = ("integers", "reals", "mixed", "fractions")
"""Integers alone; reals; integer coefficients of both; fractions of both."""


def sparse_system(
    seed: int, kind: str, rows: int = 60, variables: int = 12_000, lengths: tuple[int, ...] = LENGTHS
) -> LinearSystem:
    """A system around a point that satisfies it, some of whose bounds follow from others.

    With an even seed most variables have room and many bounds are infinite; with an odd one few are, so that long rows
    bound them. With a seed that is divisible by three the point violates a row.
    """
    random = np.random.default_rng([seed, KINDS.index(kind)])
    lengths = tuple(min(length, variables) for length in lengths)
    counts = random.choice(lengths, size=rows, p=_shares(lengths))
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    columns = [np.sort(random.choice(variables, size=count, replace=False)) for count in counts]
    flat = np.concatenate([np.zeros(0, dtype=np.int64), *columns])
    whole = random.integers(1, 9, size=len(flat)) * random.choice([-1, 1], size=len(flat))
    is_whole = kind in ("integers", "mixed")
    coefficients = whole.astype(float) if is_whole else np.round(whole * random.random(len(flat)) + 0.001, 3)
    coefficients[coefficients == 0] = 1.0
    integral = {
        "integers": np.ones(variables, dtype=bool),
        "reals": np.zeros(variables, dtype=bool),
    }.get(kind, random.random(variables) < 0.5)
    point = np.where(integral, random.integers(-5, 6, size=variables), np.round(random.normal(size=variables) * 5, 3))
    width = np.where(integral, random.integers(0, 4, size=variables), np.round(3 * random.random(variables), 3))
    width *= 10.0 ** random.integers(0, 5, size=variables)  # what the narrow ones leave, wide ones do not have
    lower, upper = point - width, point + width
    is_free = random.random(variables) < (0.05 if seed % 2 else 1.0)
    lower, upper = np.where(is_free, lower, point), np.where(is_free, upper, point)
    share = 0.0003 if seed % 2 else 0.03
    lower[random.random(variables) < share] = -np.inf
    upper[random.random(variables) < share] = np.inf
    owners = np.repeat(np.arange(rows), counts)
    activity = np.bincount(owners, weights=coefficients * point[flat], minlength=rows)
    reach = np.bincount(owners, weights=np.abs(coefficients), minlength=rows)
    slack = reach * random.choice([0.0, 0.01, 0.3], size=rows)
    sides = [np.floor(activity - slack), np.ceil(activity + slack)]
    for side, infinite in zip(sides, (-np.inf, np.inf), strict=True):
        side[random.random(rows) < 0.3] = infinite
    if seed % 3 == 0:
        sides[0][rows // 2] = sides[1][rows // 2] = activity[rows // 2] + 100 * reach[rows // 2] + 1
    return LinearSystem(
        starts,
        flat.astype(np.int64),
        coefficients,
        *sides,
        lower,
        upper,
        integral,
        tuple(f"x{v}" for v in range(variables)),
        name=f"{kind} {seed}",
    )


def _shares(lengths: tuple[int, ...]) -> np.ndarray:
    """Short rows are more frequent."""
    shares = 1 / np.sqrt(1.0 + np.array(lengths))
    return shares / shares.sum()
