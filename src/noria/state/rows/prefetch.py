"""Prefetching: random access to a large arena is bound by cache misses, one after the other.

A kernel warms a block of rows before it works on them: hash slots, then entries, then rows.  So their misses overlap.
Prefetching is a hint; results do not depend on it.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from noria.kernels import njit
from noria.state.rows.hashing import SEED, home_of, mix
from noria.state.rows.layout import (
    COLS,
    EHOFF,
    ENTRY,
    EOFF,
    FOLDS,
    HASH,
    HEAD,
    IDW,
    LOFF,
    ROWS,
    WIDTH,
    K,
)

BLOCK = 64  # rows warmed at once: their cache lines fit the L1 cache
AHEAD = 12  # how many rows ahead a row is prefetched if its address is known beforehand
WARM_FROM = 16  # rows: smaller batches are not worth a second pass


@intrinsic
def prefetch(typingctx: Any, array: Any, index: Any) -> Any:
    """Prefetch the cache line of array[index].  array: int64, one dimension."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        view = context.make_array(signature.args[0])(context, builder, args[0])
        pointer = builder.bitcast(builder.gep(view.data, [args[1]]), cgutils.voidptr_t)
        i32 = ir.IntType(32)
        f = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t, i32, i32, i32]), "llvm.prefetch.p0")
        builder.call(f, [pointer, ir.Constant(i32, 0), ir.Constant(i32, 3), ir.Constant(i32, 1)])
        return context.get_dummy_value()

    return types.void(array, types.int64), codegen


@njit
def warm_keys(A, d, cols, as_args, fold, lo, hi, slots):
    """Warm the entries of the keys of rows lo to hi-1 in the index at d, the first row of each key, and its links.

    as_args: `cols` are keys in the index's column order, not rows.  Writes into `slots` for each row the entry in the
    first slot of its key, or -1.
    """
    k, stride = A[d + K], ENTRY + A[d + K]
    entries, rows, width, links = A[d + EOFF], A[ROWS], A[WIDTH] + 1, A[d + LOFF]
    for i in range(lo, hi):
        h = SEED
        for j in range(k):
            v = cols[j if as_args else A[d + COLS + j], i]
            if A[d + FOLDS + j] == 1 and v >= 0:
                v = fold[v]
            h = mix(h, v)
        base, _, s = home_of(A, d + EHOFF, h)
        slots[i - lo] = base + s
        prefetch(A, base + s)
    for i in range(lo, hi):
        e = A[slots[i - lo]]
        slots[i - lo] = e
        if e >= 0:
            prefetch(A, entries + e * stride)
    for i in range(lo, hi):
        e = slots[i - lo]
        if e >= 0:
            r = A[entries + e * stride + HEAD]
            if r >= 0:
                prefetch(A, rows + r * width)
                prefetch(A, rows + r * width + width - 1)
                prefetch(A, links + 2 * r)


@njit
def warm_rows(A, cols, lo, hi, slots):
    """Warm the slots of rows lo to hi-1 of `cols` in the identity hash, and the stored rows in these slots."""
    rows, width = A[ROWS], A[WIDTH] + 1
    for i in range(lo, hi):
        h = SEED
        for c in range(A[IDW]):
            h = mix(h, cols[c, i])
        base, _, s = home_of(A, HASH, h)
        slots[i - lo] = base + s
        prefetch(A, slots[i - lo])
    for i in range(lo, hi):
        r = A[slots[i - lo]]
        if r >= 0:
            prefetch(A, rows + r * width)
