"""A day of an imaging satellite: the photographs of a SPOT5 file.

An assignment of such a problem is a schedule: each photograph is taken by a camera, or omitted. Its *profit* is the
weight of the photographs taken; the problem minimises the weight of those omitted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from csv import writer
from dataclasses import asdict, dataclass, field, fields
from io import StringIO
from typing import TYPE_CHECKING, Any

from oocbe.model.results.numerals import content
from oocbe.runtime.framed import Framed
from oocbe.runtime.pictures.shown import Shown

if TYPE_CHECKING:
    from oocbe.runtime.pictures.plots import Picture

CAMERAS: Mapping[str, str] = {"1": "front camera", "2": "middle camera", "3": "rear camera", "13": "front and rear"}
"""Meaning of the values of SPOT5 files; a stereoscopic photograph is taken by two cameras."""

SCHEDULE_HEADER = ("photograph", "camera", "group", "weight", "memory")
"""Columns of a schedule."""


@dataclass(frozen=True)
class Photograph:
    """A photograph that may be taken.

    name : its number in the file. weight : contribution to the profit.
    group : the number behind a photograph's values in the file; None if there is none. Its meaning is undocumented.
        Photographs with the same number have equal weights and almost no conflicts, which suggests one request, not one
        orbit.
    values : label of each value; the first one means omitted. memory : units of the recorder used by each value.
    """

    name: str
    weight: int
    group: str | None
    values: tuple[str, ...]
    memory: tuple[int, ...]


@dataclass(frozen=True)
class TakenPhotograph:
    """A photograph of a schedule; ``camera`` is its value's label: 1, 2, 3 or 13."""

    name: str
    camera: str
    group: str | None
    weight: int
    memory: int


@dataclass(frozen=True)
class Schedule(Framed, Shown):
    """The schedule of an assignment; as a data frame, a row for each photograph taken.

    profit : weight of the photographs taken. possible : weight of all.
    taken : the photographs taken, in the file's order. photographs : number of all photographs.
    memory : units of the recorder used. capacity : units available; None: unlimited.
    """

    profit: int
    possible: int
    taken: tuple[TakenPhotograph, ...] = field(repr=False)
    photographs: int
    memory: int
    capacity: int | None

    def facts(self) -> list[tuple[str, object]]:
        """Profit, photographs, memory, and the selection as ``photograph:camera``, as pairs of name and value."""
        used = "" if self.capacity is None else f"{self.memory:,} of {self.capacity:,} units used"
        return [
            ("profit", f"{self.profit:,} of {self.possible:,}"),
            ("photographs", f"{len(self.taken):,} of {self.photographs:,}"),
            ("recorder", used),
            ("selected", " ".join(f"{t.name}:{t.camera}" for t in self.taken)),
        ]

    def _columns(self) -> Iterator[tuple[str, Any]]:
        yield from ((f.name, [getattr(own, f.name) for own in self.taken]) for f in fields(TakenPhotograph))

    def _summary(self) -> tuple[str, list[tuple[str, object]]]:
        return "Schedule", self.facts()

    def to_json(self) -> dict[str, object]:
        """Everything as JSON types."""
        numbers = content(self, "profit possible photographs memory capacity")
        return {**numbers, "taken": [asdict(taken) for taken in self.taken]}


@dataclass(frozen=True)
class ImagingDay:
    """All photographs of a day, in the order of the problem's variables, and the recorder's capacity."""

    photographs: tuple[Photograph, ...] = field(repr=False)
    capacity: int | None

    def plot(self, schedule: Schedule, title: str = "") -> Picture:
        """Plot of a schedule of this day by camera and group, with the recorder's fill; UsageError without
        matplotlib."""
        from oocbe.runtime.pictures import plots

        summary = f"profit {schedule.profit:,} of {schedule.possible:,}, {len(schedule.taken):,} photographs taken"
        return plots.schedule(
            f"{title}: {summary}" if title else summary,
            [(p.name, p.weight, p.group) for p in self.photographs],
            {t.name: (t.camera, t.memory) for t in schedule.taken},
            self.capacity,
        )

    def csv(self, schedule: Schedule) -> str:
        """A schedule as a table in CSV with a line for each photograph, those left out among them."""
        taken = {t.name: (CAMERAS.get(t.camera, t.camera), t.memory) for t in schedule.taken}
        text = StringIO()
        lines = writer(text, lineterminator="\n")
        lines.writerow(SCHEDULE_HEADER)
        for p in self.photographs:
            camera, memory = taken.get(p.name, ("left out", 0))
            lines.writerow((p.name, camera, p.group, p.weight, memory))
        return text.getvalue()

    def schedule(self, assignment: Sequence[int]) -> Schedule:
        """The schedule of an assignment (one value index per photograph, 0: omitted)."""
        taken = tuple(
            TakenPhotograph(p.name, p.values[value], p.group, p.weight, p.memory[value])
            for p, value in zip(self.photographs, assignment, strict=True)
            if value
        )
        return Schedule(
            profit=sum(t.weight for t in taken),
            possible=sum(p.weight for p in self.photographs),
            taken=taken,
            photographs=len(self.photographs),
            memory=sum(t.memory for t in taken),
            capacity=self.capacity,
        )
