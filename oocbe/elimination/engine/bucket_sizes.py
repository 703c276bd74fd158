"""What the decision about a bucket is made from: how much is joined, what memory there is, and what a device takes.

A run fills these with what it measures, a plan with what it predicts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from oocbe.model.settings.tuning import Tuning

LARGEST_DEVICE_ROWS = (1 << 32) - 1
"""Row numbers are 32 bits wide on the device."""


class Place(Enum):
    """Where a table is, or a message is computed."""

    DEVICE = "device"
    MAIN_MEMORY = "main memory"
    DISK = "disk"


@dataclass(frozen=True, slots=True)
class Input:
    """A table that a bucket joins.

    Attributes
    ----------
    cells : assignments of its variables. rows : of them that are feasible.
    nbytes : as it is. listed_bytes : of its rows with their keys.
    is_complete : its form. place : where it is.
    has_dtype : whether its values have the message's dtype.
    """

    cells: int
    rows: int
    nbytes: int
    listed_bytes: int
    is_complete: bool
    place: Place
    has_dtype: bool = True

    @property
    def main_memory(self) -> int:
        """Bytes that it takes of main memory."""
        return self.nbytes if self.place is Place.MAIN_MEMORY else 0


@dataclass(frozen=True, slots=True)
class BucketSizes:
    """What is known of a bucket before it is joined.

    Attributes
    ----------
    cells : assignments of the message's variables. joined_cells : and of the variable that is eliminated.
    itemsize : bytes of a value. row_bytes : of a row of the message.
    expected_rows : of the message, by which its form is chosen; 0 where it has to be rows anyway.
    inputs : tables that are joined, but small ones that are looked up.
    """

    cells: int
    joined_cells: int
    itemsize: int
    row_bytes: int
    expected_rows: float
    inputs: Sequence[Input]


@dataclass(frozen=True, slots=True)
class MainMemory:
    """The memory for messages.

    Attributes
    ----------
    limit : bytes in all. free : bytes that are free now.
    movable : gives bytes of messages that may go to disk, in the order in which they would.
    """

    limit: int
    free: int
    movable: Callable[[], Iterable[int]] = tuple

    def after(self, wanted: int) -> int:
        """Bytes free once messages have gone to disk until ``wanted`` bytes are, or nothing is left to go."""
        free = self.free
        if free >= wanted:
            return free
        for nbytes in self.movable():
            free += nbytes
            if free >= wanted:
                break
        return free


@dataclass(frozen=True, slots=True)
class Device:
    """A device that may compute buckets.

    Attributes
    ----------
    insists : whether nothing else may compute what it has kernels for.
    most_tables : of rows, that one join takes.
    room : measures the bytes of its memory that a bucket may take.
    """

    insists: bool
    most_tables: int
    room: Callable[[], int]

    def takes_complete(self, joined_cells: int, numbers: Tuning) -> bool:
        """Whether a bucket of complete tables with so many joined cells is one for the device."""
        return self.insists or joined_cells >= numbers.device_cells

    def takes_rows(self, rows: int, tables: int) -> bool:
        """Whether one join takes so many tables, the largest of so many rows."""
        return rows <= LARGEST_DEVICE_ROWS and tables <= self.most_tables
