"""The CPU backend: the loops of this folder behind :class:`oocbe.kernels.interface.Backend`."""

from __future__ import annotations

from oocbe.kernels.cpu.buckets.filters import drop_forbidden
from oocbe.kernels.cpu.complete.complete import eliminate_complete
from oocbe.kernels.cpu.packing.fields import permute
from oocbe.kernels.cpu.pairs.groups import common_groups, group_starts
from oocbe.kernels.cpu.pairs.join_reduce import join_reduce, join_rows, reduce_groups
from oocbe.kernels.cpu.pairs.sort import sort_rows
from oocbe.kernels.interface import host_array


class CpuBackend:
    """Numba loops over arrays in host memory. Stateless."""

    name = "cpu"
    upload = staticmethod(host_array)
    download = staticmethod(host_array)
    permute = staticmethod(permute)
    sort_rows = staticmethod(sort_rows)
    group_starts = staticmethod(group_starts)
    common_groups = staticmethod(common_groups)
    join_rows = staticmethod(join_rows)
    reduce_groups = staticmethod(reduce_groups)
    join_reduce = staticmethod(join_reduce)
    drop_forbidden = staticmethod(drop_forbidden)
    eliminate_complete = staticmethod(eliminate_complete)
