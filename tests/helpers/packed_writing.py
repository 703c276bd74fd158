"""Tables written chunk by chunk as they are packed, the way results come from a device."""

from __future__ import annotations

from itertools import pairwise

from oocbe.tables.packed import PackedTable
from oocbe.tables.table import Table
from oocbe.tables.writer import StoredTableWriter


def write_packed(packed: PackedTable, table: Table, writer: StoredTableWriter) -> None:
    """Write all chunks of a packed table; ``table`` has the same rows."""
    for chunk, (low, high) in enumerate(pairwise(packed.row_starts.tolist())):
        values = table.values[low:high]
        extent = (int(values.min()), int(values.max())) if values.dtype.kind == "i" else None
        place = writer.begin_packed(high - low, packed.edge_keys[chunk], extent)
        for number, column in enumerate(packed.columns):
            writer.write_packed(place, number, column.chunks(chunk, chunk + 1).copy())
