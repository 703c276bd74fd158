"""The CUDA backend: the kernels of this folder behind :class:`oocbe.kernels.interface.Backend`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.cuda.buckets import filters
from oocbe.kernels.cuda.complete import complete
from oocbe.kernels.cuda.device import cupy
from oocbe.kernels.cuda.packing import fields
from oocbe.kernels.cuda.pairs import groups, join_reduce, reduce, sort
from oocbe.kernels.cuda.spans import device_span
from oocbe.kernels.cuda.transfer.memory import set_limit, with_retry
from oocbe.kernels.cuda.transfer.pinned import TO_DEVICE, copy, pinned_in_place, worth_pinning
from oocbe.kernels.interface import host_array
from oocbe.runtime.tracing.recorder import HOST_TO_DEVICE


class CudaBackend:
    """Kernels on CuPy's current device and stream; arrays are CuPy's.

    All of a call's rows are in device memory, and a launch covers them all: ``piece_rows`` is accepted and ignored.
    Beside inputs and outputs a call takes up to: sort, one more copy of the rows (two if keys have several words);
    groups, 3 bits a row; joins, 8 bytes a group and some 30 bytes a run.

    memory_limit : limit of CuPy's memory pool in bytes; None: the whole device. The pool belongs to the process: the
        last limit set by any backend or solve applies to all of them, so concurrent ones share one limit.
    Raises UsageError: there is no device, no CuPy, or they are incompatible; the message gives the reason.
    """

    name = "cuda"

    def __init__(self, memory_limit: int | None = None) -> None:
        self.memory_limit = set_limit(memory_limit)

    @staticmethod
    @with_retry
    def upload(array: NDArray[Any]) -> Any:
        """A copy of the array in device memory; see :meth:`oocbe.kernels.interface.Backend.upload`."""
        with device_span(HOST_TO_DEVICE, "upload", bytes=array.nbytes if isinstance(array, np.ndarray) else 0):
            is_plain = isinstance(array, np.ndarray) and array.flags.c_contiguous
            if not is_plain or not pinned_in_place(array, worth_pinning([array])):
                return cupy().asarray(array)
            target, stream = cupy().empty(array.shape, array.dtype), cupy().cuda.get_current_stream()
            copy(target.data.ptr, array.ctypes.data, array.nbytes, TO_DEVICE, stream)
            stream.synchronize()
            return target

    download = staticmethod(host_array)
    permute = staticmethod(with_retry(fields.permute))
    sort_rows = staticmethod(with_retry(sort.sort_rows))
    group_starts = staticmethod(with_retry(groups.group_starts))
    common_groups = staticmethod(with_retry(groups.common_groups))
    join_rows = staticmethod(with_retry(join_reduce.join_rows))
    reduce_groups = staticmethod(with_retry(reduce.reduce_groups))
    join_reduce = staticmethod(join_reduce.join_reduce)
    drop_forbidden = staticmethod(with_retry(filters.drop_forbidden))
    eliminate_complete = staticmethod(with_retry(complete.eliminate_complete))
