"""Atomic loads and stores on int64 arrays that several processes map, for numba kernels (design/decisions.md, 5).

Plain loads and stores do not suffice: LLVM merges a reader's second load of a version with its first.  The reader then
fails to notice that the version was replaced during the copy.

* `load_acquire(a, i)`: later reads see everything that was written before the store of the returned value.
* `store_release(a, i, v)`: a reader that loads v with acquire sees everything written before this store.
* `fence()`: acquire and release.

The same kernels use `load_word`, `store_word` and `prefetch`, which are not atomic.
"""

from __future__ import annotations

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.imputils import impl_ret_untracked
from numba.extending import intrinsic

from noria.kernels import njit

_WORD = types.int64
_ALIGN = 8


def _pointer(context, builder, array_type, array, index):
    """Address of array[index], without a bounds check; negative indices do not wrap."""
    data = context.make_array(array_type)(context, builder, array).data
    return builder.gep(data, [index])


def _is_words(array):
    return isinstance(array, types.Array) and array.dtype == _WORD and array.ndim == 1 and array.layout == "C"


@intrinsic
def load_acquire(typingctx, array, index):
    if not _is_words(array):
        return None

    def codegen(context, builder, signature, args):
        pointer = _pointer(context, builder, signature.args[0], *args)
        word = context.get_value_type(_WORD)
        value = builder.load_atomic(pointer, "acquire", _ALIGN, typ=word)
        return impl_ret_untracked(context, builder, signature.return_type, value)

    return _WORD(array, types.intp), codegen


@intrinsic
def store_release(typingctx, array, index, value):
    if not _is_words(array):
        return None

    def codegen(context, builder, signature, args):
        pointer = _pointer(context, builder, signature.args[0], args[0], args[1])
        builder.store_atomic(args[2], pointer, "release", _ALIGN)
        return context.get_dummy_value()

    return types.void(array, types.intp, _WORD), codegen


@intrinsic
def fence(typingctx):
    def codegen(context, builder, signature, args):
        builder.fence("acq_rel")
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def load_word(typingctx, array, index):
    """Load eight bytes of a uint8 array at any position as one int64, not atomically."""
    if not (isinstance(array, types.Array) and array.dtype == types.uint8 and array.ndim == 1):
        return None

    def codegen(context, builder, signature, args):
        pointer = _pointer(context, builder, signature.args[0], *args)
        word = context.get_value_type(_WORD)
        pointer = builder.bitcast(pointer, word.as_pointer())
        value = builder.load(pointer, align=1, typ=word)
        return impl_ret_untracked(context, builder, signature.return_type, value)

    return _WORD(array, types.intp), codegen


@intrinsic
def store_word(typingctx, array, index, value):
    """Store an int64 as eight bytes of a uint8 array at any position, not atomically."""
    if not (isinstance(array, types.Array) and array.dtype == types.uint8 and array.ndim == 1):
        return None

    def codegen(context, builder, signature, args):
        pointer = _pointer(context, builder, signature.args[0], args[0], args[1])
        pointer = builder.bitcast(pointer, context.get_value_type(_WORD).as_pointer())
        builder.store(args[2], pointer, align=1)
        return context.get_dummy_value()

    return types.void(array, types.intp, _WORD), codegen


@intrinsic
def prefetch(typingctx, array, index):
    """Hint to the processor that array[index] will be read soon.  Any index is safe."""
    if not isinstance(array, types.Array):
        return None

    def codegen(context, builder, signature, args):
        pointer = _pointer(context, builder, signature.args[0], *args)
        flag = ir.IntType(32)
        function = ir.FunctionType(ir.VoidType(), [pointer.type, flag, flag, flag])
        hint = cgutils.get_or_insert_function(builder.module, function, "llvm.prefetch.p0")
        builder.call(hint, [pointer, flag(0), flag(3), flag(1)])
        return context.get_dummy_value()

    return types.void(array, types.intp), codegen


@njit
def load(array, index):
    """`load_acquire` for Python."""
    return load_acquire(array, index)


@njit
def store(array, index, value):
    """`store_release` for Python."""
    store_release(array, index, value)
