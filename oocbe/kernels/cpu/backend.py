"""The CPU backend: the loops of this folder under the names of :class:`oocbe.kernels.interface.Backend`."""

from __future__ import annotations

from oocbe.kernels.cpu.fields import permute
from oocbe.kernels.cpu.filters import drop_forbidden
from oocbe.kernels.cpu.groups import group_starts, match_groups
from oocbe.kernels.cpu.join import join_rows
from oocbe.kernels.cpu.join_reduce import join_reduce
from oocbe.kernels.cpu.reduce import reduce_groups
from oocbe.kernels.cpu.sort import sort_rows


class CpuBackend:
    """Numba loops over arrays in host memory. Stateless."""

    name = "cpu"
    permute = staticmethod(permute)
    sort_rows = staticmethod(sort_rows)
    group_starts = staticmethod(group_starts)
    match_groups = staticmethod(match_groups)
    join_rows = staticmethod(join_rows)
    reduce_groups = staticmethod(reduce_groups)
    join_reduce = staticmethod(join_reduce)
    drop_forbidden = staticmethod(drop_forbidden)
