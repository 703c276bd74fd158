"""Days of photographs like those of the SPOT5 satellite (Bensana, Lemaitre, Verfaillie 1999), made from a seed.

The satellite flies over its targets one after another and has three cameras: 1 looks ahead, 2 down, 3 behind. A *mono*
photograph is taken by any of them (some by camera 2 only), a *stereo* one by 1 and then 3; the file calls that value
13. Any photograph may be left out at the price of its weight. Two photographs on one camera clash when the satellite
passes from one to the other faster than the camera's mirror turns, so clashes lie along the diagonal of time, and are
the more numerous the further apart the viewing angles are. Three photographs on different cameras at one time may ask
more of the recorder's data rate than there is: those are the ternary constraints, one forbidden combination each.

Real days (their number of photographs, 67 to 309) have 2.7 to 16 binary constraints a photograph, ternary ones between
none and 2.2, half stereo photographs (6 to 63 %), weights of 1 for mono, 2 for stereo, and 1,000 for a few urgent ones.
How hard a day is depends on the window above all: the number of photographs that are alive at one time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import UsageError
from oocbe.model.parts import Constraint, Function, Variable
from oocbe.model.problem import Problem

MONO, DOWN_ONLY, STEREO = ("1", "2", "3"), ("2",), ("13",)
"""Values of a photograph by its kind: any camera, the middle one, or the outer two together."""

LEFT_OUT = "0"
"""The value of a photograph that is not taken."""

_SHARED = {("13", "1"), ("13", "3"), ("1", "13"), ("3", "13")}
"""Pairs of different values that use a camera in common."""

URGENT_WEIGHT = 1000
"""Weight of an urgent photograph."""


@dataclass(frozen=True)
class Spot5Settings:
    """What a day looks like.

    Attributes
    ----------
    photographs : how many, at least 1.
    window : how many photographs later a clash is still possible, at viewing angles that are furthest apart.
    stereo : share of stereo photographs.
    down_only : share, among the others, of photographs that only camera 2 can take.
    urgent : share of photographs with a weight of 1,000.
    ternary : ternary constraints a photograph (fewer where there are not so many suitable triples).
    seed : of the random generator.
    """

    photographs: int = 100
    window: float = 8.0
    stereo: float = 0.5
    down_only: float = 0.1
    urgent: float = 0.1
    ternary: float = 0.3
    seed: int = 0

    def __post_init__(self) -> None:
        if self.photographs < 1:
            raise UsageError(f"photographs: a day needs at least one, not {self.photographs}")
        for name in ("stereo", "down_only", "urgent"):
            if not 0 <= getattr(self, name) <= 1:
                raise UsageError(f"{name}: {getattr(self, name)} is not a share between 0 and 1")
        for name in ("window", "ternary"):
            if not 0 <= getattr(self, name) <= self.photographs:
                raise UsageError(f"{name}: {getattr(self, name)} is not between 0 and the number of photographs")


def spot5_day(settings: Spot5Settings) -> Problem:
    """A day of photographs, numbered in the order of time.

    Returns
    -------
    Problem : min-sum; the first value of each variable leaves the photograph out and costs its weight, taking it costs
        nothing; the constraints forbid combinations of taken photographs. The optimum is the least weight left out.
    """
    generator = np.random.default_rng(settings.seed)
    count = settings.photographs
    times = np.sort(generator.uniform(0, count, size=count))
    angles = generator.uniform(0, 1, size=count)
    is_stereo = generator.random(count) < settings.stereo
    is_down_only = generator.random(count) < settings.down_only
    values: list[tuple[str, ...]]
    values = [STEREO if s else DOWN_ONLY if d else MONO for s, d in zip(is_stereo, is_down_only, strict=True)]
    weights = np.where(generator.random(count) < settings.urgent, URGENT_WEIGHT, 1 + is_stereo)

    variables = tuple(Variable(str(i), 1 + len(v), (LEFT_OUT, *v)) for i, v in enumerate(values))
    costs = tuple(Function((i,), np.array([[0]]), np.array([w]), default=0) for i, w in enumerate(weights))
    clashes = list(_clashes(times, angles, values, settings.window))
    triples = _triples(times, values, {c.scope for c in clashes}, settings, generator)
    name = f"spot5-n{count}-w{settings.window:g}-s{settings.seed}"
    return Problem(variables, costs, (*clashes, *triples), name=name)


def _clashes(
    times: NDArray[np.float64], angles: NDArray[np.float64], values: list[tuple[str, ...]], window: float
) -> Iterator[Constraint]:
    """Pairs that follow one another too fast for the difference of their angles, on any camera that both can use.

    Value numbers start at 1, for 0 is "left out". A quarter of the window passes whatever the angles: the exposure.
    """
    for i, first in enumerate(values):
        for j in range(i + 1, len(values)):
            if times[j] - times[i] > window:
                break
            if times[j] - times[i] > window * (0.25 + 0.75 * abs(angles[i] - angles[j])):
                continue
            tuples = [
                (a, b)
                for a, one in enumerate(first, start=1)
                for b, other in enumerate(values[j], start=1)
                if one == other or (one, other) in _SHARED
            ]
            if tuples:
                yield Constraint((i, j), np.array(tuples))


def _triples(
    times: NDArray[np.float64],
    values: list[tuple[str, ...]],
    clashing: set[tuple[int, ...]],
    settings: Spot5Settings,
    generator: np.random.Generator,
) -> list[Constraint]:
    """Ternary constraints among photographs near in time, no more than one pair of which clashes by itself.

    A candidate triple is drawn by its first photograph and two later ones within the window.
    """
    wanted = round(settings.ternary * len(times))
    found: dict[tuple[int, ...], Constraint] = {}
    for _ in range(20 * wanted):  # enough tries; a sparse day simply has fewer suitable triples
        if len(found) == wanted:
            break
        first = int(generator.integers(len(times)))
        last = int(np.searchsorted(times, times[first] + settings.window))
        if last - first < 3:
            continue
        second, third = sorted(int(p) for p in generator.choice(np.arange(first + 1, last), size=2, replace=False))
        scope = (first, second, third)
        pairs = {(first, second), (first, third), (second, third)}
        if scope in found or len(pairs & clashing) > 1:
            continue
        forbidden = [[int(generator.integers(1, 1 + len(values[p]))) for p in scope]]
        found[scope] = Constraint(scope, np.array(forbidden))
    return [found[scope] for scope in sorted(found)]
