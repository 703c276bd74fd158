"""Inputs of the decision about a bucket: sizes of the join, available memory, and limits of the device.

A run fills them with measurements, a plan with predictions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from oocbe.model.settings.tuning import tuning

LARGEST_DEVICE_ROWS = (1 << 32) - 1
"""Maximum rows of a table on the device, where row numbers have 32 bits."""


class Place(Enum):
    """Location of a table, or of a message's computation."""

    DEVICE = "device"
    MAIN_MEMORY = "main memory"
    DISK = "disk"


@dataclass(frozen=True, slots=True)
class Input:
    """A table that a bucket joins.

    Attributes
    ----------
    cells : assignments of its variables. rows : number of feasible ones.
    nbytes : in its present form. listed_bytes : of its rows with their keys.
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
        """Bytes of main memory that it takes."""
        return self.nbytes if self.place is Place.MAIN_MEMORY else 0


@dataclass(frozen=True, slots=True)
class BucketSizes:
    """Sizes of a bucket before its join.

    Attributes
    ----------
    cells : assignments of the message's variables. joined_cells : the same with the eliminated variable.
    itemsize : bytes of a value. row_bytes : of a row of the message.
    expected_rows : of the message, for the choice of its form; 0 if it must consist of rows.
    inputs : tables that are joined, without small ones used by lookup.
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
    movable : yields the bytes of messages that may be moved to disk, in the order of moving.
    """

    limit: int
    free: int
    movable: Callable[[], Iterable[int]] = tuple

    def after(self, wanted: int) -> int:
        """Free bytes after moving messages to disk until ``wanted`` bytes are free or nothing is left to move."""
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
    insists : whether the CPU must not compute what the device has kernels for.
    most_tables : maximum number of row tables in one join.
    room : measures the bytes of device memory available to a bucket.
    """

    insists: bool
    most_tables: int
    room: Callable[[], int]

    def takes_complete(self, joined_cells: int) -> bool:
        """Whether the device computes a bucket of complete tables with ``joined_cells`` cells."""
        return self.insists or joined_cells >= tuning().device_cells

    def takes_rows(self, rows: int, tables: int) -> bool:
        """Whether one join supports ``tables`` tables with at most ``rows`` rows each."""
        return rows <= LARGEST_DEVICE_ROWS and tables <= self.most_tables
