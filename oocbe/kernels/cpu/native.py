"""Arithmetic in the operands' own type, and arrays at addresses, for use in compiled loops.

Numba adds and multiplies narrow integers in 64 bits, which leaves vectors of int16 a quarter of their lanes. These use
the processor's operations: integers wrap around (the caller excludes that), floats are not reordered.
"""

from __future__ import annotations

import ctypes
import operator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.cpu.interpreter import stands_in
from oocbe.kernels.cpu.jit import OfNumba, inline, intrinsic

carray: Any = OfNumba("numba", "carray")


def _binary(name: str, emit: Any) -> Any:
    def typed(typing_context: Any, a: Any, b: Any) -> Any:
        from numba import types

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


@intrinsic
def _pointer(typing_context: Any, address: Any, like: Any) -> Any:
    from llvmlite import ir
    from numba import types

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
