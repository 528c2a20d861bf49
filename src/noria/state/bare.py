"""Arrays that kernels may hand around for nothing.

Numba counts references to an array: each time one is passed to another kernel or named anew, an atomic
increment and an atomic decrement, some 6 ns each, which in a loop over rows cost more than the rows (measured:
grouping 100,000 rows went from 87 to 38 ns a row without them).  An array without an owner is not counted.

Keeps true: whoever owns the memory outlives the bare array.  So bare are the arguments of a kernel that Python
calls, which Python holds until it returns, and stack memory within one call; never an array that a kernel made.
"""
# mypy: allow-untyped-defs, allow-untyped-decorators, allow-untyped-calls

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic


@intrinsic
def bare(typingctx, array):
    """The same array without an owner."""

    def codegen(context, builder, signature, args):
        view = context.make_array(signature.args[0])(context, builder, args[0])
        view.meminfo = cgutils.get_null_value(view.meminfo.type)
        return view._getvalue()

    return array(array), codegen


@intrinsic(prefer_literal=True)
def stack(typingctx, words):
    """So many int64, a constant, on the stack of the calling kernel: not initialised, gone when it returns."""
    if not isinstance(words, types.IntegerLiteral):
        return None
    array = types.Array(types.int64, 1, "C")
    size = words.literal_value

    def codegen(context, builder, signature, args):
        view = context.make_array(array)(context, builder)
        word = ir.IntType(64)
        data = cgutils.alloca_once(builder, word, size=size)
        context.populate_array(view, data=data, shape=[word(size)], strides=[word(8)], itemsize=word(8), meminfo=None)
        return view._getvalue()

    return array(words), codegen
