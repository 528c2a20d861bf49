"""Arrays without reference counts, which kernels can pass on at no cost.

Numba counts references to an array.  Each pass to another kernel and each new name costs an atomic increment and an
atomic decrement, some 6 ns each.  Without them, grouping 100,000 rows took 38 ns a row instead of 87.  Numba does not
count an array without an owner.

Keeps true: the owner of the memory outlives the bare array.  Python holds a kernel's arguments until it returns, and
stack memory lasts for the call.  A kernel makes an array of its own bare only if it uses the owner afterwards.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic


@intrinsic
def bare(typingctx, array):
    """Return the same array without an owner."""

    def codegen(context, builder, signature, args):
        view = context.make_array(signature.args[0])(context, builder, args[0])
        view.meminfo = cgutils.get_null_value(view.meminfo.type)
        return view._getvalue()

    return array(array), codegen


@intrinsic(prefer_literal=True)
def stack(typingctx, words):
    """Allocate int64 words on the calling kernel's stack, not initialised.  `words` must be a constant.

    The array is invalid when the kernel returns.
    """
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
