"""The operators on packed tables: streamed to the device as they are, or unpacked and packed again on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from oocbe.kernels import backend_for
from oocbe.tables.packed import PackedTable

if TYPE_CHECKING:
    from oocbe.kernels.interface import Backend
    from oocbe.table_algebra.streamed import Streamable


def on_packed(
    tables: tuple[PackedTable, ...],
    backend: Backend | str | None,
    stream: Callable[[Backend], Streamable | None],
    operator: Callable[..., Any],
) -> PackedTable:
    """Result of an operator on packed tables.

    Parameters
    ----------
    stream : the operator on these tables through a device, given its kernels; None where they cannot be cut.
    operator : the operator on tables in memory, given these; gives a table in memory.

    Raises
    ------
    ResourceError : the tables cannot go through a device, and do not fit in memory unpacked.
    """
    kernels = backend_for(sum(table.rows for table in tables), backend, False)
    if kernels.name == "cuda":
        streamed = stream(kernels)
        if isinstance(streamed, PackedTable):
            return streamed
    return PackedTable.pack(operator(*(table.to_table() for table in tables)))
