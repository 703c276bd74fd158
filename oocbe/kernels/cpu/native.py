"""Arithmetic in the operands' own type, arrays at addresses, and cache-bypassing stores, for use in compiled loops.

Numba adds and multiplies narrow integers in 64 bits, which leaves vectors of int16 a quarter of their lanes. These use
the processor's operations: integers wrap around (the caller excludes that), floats are not reordered.
"""

from __future__ import annotations

import ctypes
import operator
from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from oocbe.kernels.cpu.interpreter import stands_in
from oocbe.kernels.cpu.jit import inline

LINE_BYTES = 64
"""Bytes of a line of the caches."""


def _binary(name: str, emit: Any) -> Any:
    def typed(typing_context: Any, a: Any, b: Any) -> Any:
        del typing_context
        if a != b or not isinstance(a, types.Integer | types.Float):
            return None

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            del context
            return emit(builder, isinstance(signature.return_type, types.Float), *arguments)

        return a(a, b), generate

    typed.__name__ = name
    return intrinsic(typed)


def _compare(builder: Any, is_float: bool, operator: str, a: Any, b: Any) -> Any:
    below = builder.fcmp_ordered(operator, a, b) if is_float else builder.icmp_signed(operator, a, b)
    return builder.select(below, a, b)


plus = _binary("plus", lambda builder, is_float, a, b: (builder.fadd if is_float else builder.add)(a, b))
times = _binary("times", lambda builder, is_float, a, b: (builder.fmul if is_float else builder.mul)(a, b))
least = _binary("least", lambda builder, is_float, a, b: _compare(builder, is_float, "<", a, b))
greatest = _binary("greatest", lambda builder, is_float, a, b: _compare(builder, is_float, ">", a, b))

for _intrinsic, _function in ((plus, operator.add), (times, operator.mul), (least, min), (greatest, max)):
    stands_in(_intrinsic)(_function)


@intrinsic  # type: ignore[untyped-decorator]
def _pointer(typing_context: Any, address: Any, like: Any) -> Any:
    del typing_context
    pointer = types.CPointer(like.dtype)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        number = builder.zext(arguments[0], ir.IntType(64)) if arguments[0].type.width < 64 else arguments[0]
        return builder.inttoptr(number, context.get_value_type(signature.return_type))

    return pointer(address, like), generate


@inline
def array_at(address: Any, first: Any, count: Any, like: Any) -> Any:
    """A view of ``count`` elements from index ``first`` at an address kept alive, of the dtype of ``like``."""
    return carray(_pointer(address + first * like.itemsize, like), count)


@stands_in(array_at)
def _array_at(address: int, first: int, count: int, like: NDArray[Any]) -> NDArray[Any]:
    memory = (ctypes.c_char * (int(count) * like.itemsize)).from_address(int(address) + int(first) * like.itemsize)
    return np.frombuffer(memoryview(memory), like.dtype) if count else like[:0]


def _line_copy(name: str, past_caches: bool) -> Any:
    def typed(typing_context: Any, target: Any, source: Any) -> Any:
        del typing_context, target, source

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            del signature
            line = ir.VectorType(ir.IntType(64), LINE_BYTES // 8)
            there, here = (builder.inttoptr(address, line.as_pointer()) for address in arguments)
            store = builder.store(builder.load(here, align=8), there, align=LINE_BYTES)
            if past_caches:
                one = ir.Constant(ir.IntType(32), 1)
                store.set_metadata("nontemporal", builder.module.add_metadata([one]))
            return context.get_dummy_value()

        return types.void(types.intp, types.intp), generate

    typed.__name__ = name
    return intrinsic(typed)


copy_line = _line_copy("copy_line", True)
"""Copy :data:`LINE_BYTES` bytes between addresses, the target's a multiple of as many, bypassing the caches.

Such stores are unordered until :func:`finish_lines`."""

copy_cached_line = _line_copy("copy_cached_line", False)
"""The same through the caches, in which the copy stays if it has room there."""


@intrinsic  # type: ignore[untyped-decorator]
def finish_lines(typing_context: Any) -> Any:
    """Order all earlier stores of this thread before later ones."""
    del typing_context

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        del signature, arguments
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), generate


@intrinsic  # type: ignore[untyped-decorator]
def copy_byte(typing_context: Any, target: Any, source: Any) -> Any:
    """Copy a byte from one address to another."""
    del typing_context

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        del signature
        there, here = (builder.inttoptr(address, ir.IntType(8).as_pointer()) for address in arguments)
        builder.store(builder.load(here), there)
        return context.get_dummy_value()

    return types.void(types.intp, types.intp), generate


@intrinsic  # type: ignore[untyped-decorator]
def number_at(typing_context: Any, address: Any) -> Any:
    """The int64 at an address, reread at each call (acquire order), as written by another thread."""
    del typing_context

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        del context, signature
        here = builder.inttoptr(arguments[0], ir.IntType(64).as_pointer())
        return builder.load_atomic(here, ordering="acquire", align=8)

    return types.int64(types.intp), generate


@intrinsic  # type: ignore[untyped-decorator]
def set_number_at(typing_context: Any, address: Any, number: Any) -> Any:
    """Write an int64 to an address for another thread, after all earlier stores (release order)."""
    del typing_context

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        del signature
        there = builder.inttoptr(arguments[0], ir.IntType(64).as_pointer())
        builder.store_atomic(arguments[1], there, ordering="release", align=8)
        return context.get_dummy_value()

    return types.void(types.intp, types.int64), generate


_usleep = types.ExternalFunction("usleep", types.intc(types.uintc))


@inline
def pause(microseconds: Any) -> Any:
    """Yield this thread's processor for about ``microseconds``, while it waits for another thread."""
    _usleep(types.uintc(microseconds))
