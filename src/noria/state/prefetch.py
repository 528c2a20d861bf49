"""Touching memory ahead of use: random access to large arenas is bound by cache misses, one after another.

A kernel warms a block of rows (hash slots, then entries, then rows) before it works on them, so that their
misses overlap.  A hint only: nothing depends on it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from noria.kernels import njit
from noria.state.layout import (
    BASE,
    COLS,
    EHOFF,
    ENTRY,
    EOFF,
    FOLDS,
    HASH,
    HEAD,
    IDW,
    LOFF,
    MOVED,
    ROWS,
    SLOTS,
    START,
    WIDTH,
    K,
)

BLOCK = 64  # rows warmed at once: their lines fit L1 with room to spare
AHEAD = 12  # rows, where the address of each is known beforehand
WARM_FROM = 16  # smaller batches are not worth a second pass


@intrinsic  # type: ignore[untyped-decorator]  # numba has no types
def prefetch(typingctx: Any, array: Any, index: Any) -> Any:
    """Ask for the cache line of array[index] (int64, one dimension)."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        view = context.make_array(signature.args[0])(context, builder, args[0])
        pointer = builder.bitcast(builder.gep(view.data, [args[1]]), cgutils.voidptr_t)
        i32 = ir.IntType(32)
        f = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t, i32, i32, i32]), "llvm.prefetch.p0")
        builder.call(f, [pointer, ir.Constant(i32, 0), ir.Constant(i32, 3), ir.Constant(i32, 1)])
        return context.get_dummy_value()

    return types.void(array, types.int64), codegen


_MULT = np.uint64(0x9E3779B97F4A7C15)
_SEED = np.uint64(0x2545F4914F6CDD1D)
_S29 = np.uint64(29)
_S32 = np.uint64(32)


@njit(inline="always")
def mix(h, v):
    h = (h ^ np.uint64(v)) * _MULT
    return h ^ (h >> _S29)


@njit(inline="always")
def slot_of(h, cap):
    return np.int64((h ^ (h >> _S32)) & np.uint64(cap - 1))


@njit(inline="always")
def home_of(A, g, h):
    """Where what has the hash h is looked for in the hash table described at g: (first word of the table, slots,
    slot)."""
    cap = A[g + SLOTS]
    # no branch: it is part of each lookup, and a longer one is not put in line with the kernels any more
    larger = np.int64(((slot_of(h, cap) - A[g + START]) & (cap - 1)) < A[g + MOVED])
    return A[g + BASE] + (cap & -larger), cap << larger, slot_of(h, cap << larger)


@njit
def warm_keys(A, d, cols, as_args, fold, lo, hi, slots):
    """Warm what rows lo..hi of `cols` need in the index at d: the entries of their keys, the first row under each, and
    its links.  as_args: cols are keys in the index's column order, not rows.  Afterwards slots has for each row the
    entry that its key's first slot has, or -1."""
    k, stride = A[d + K], ENTRY + A[d + K]
    entries, rows, width, links = A[d + EOFF], A[ROWS], A[WIDTH] + 1, A[d + LOFF]
    for i in range(lo, hi):
        h = _SEED
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
    """Warm the identity hash of rows lo..hi of `cols`."""
    rows, width = A[ROWS], A[WIDTH] + 1
    for i in range(lo, hi):
        h = _SEED
        for c in range(A[IDW]):
            h = mix(h, cols[c, i])
        base, _, s = home_of(A, HASH, h)
        slots[i - lo] = base + s
        prefetch(A, slots[i - lo])
    for i in range(lo, hi):
        r = A[slots[i - lo]]
        if r >= 0:
            prefetch(A, rows + r * width)
