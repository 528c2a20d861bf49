"""Kernels of VARIANCE and of the aggregates of bits, whose accumulators lose nothing when a row is removed.

VARIANCE has the sum of the values and the sum of their squares.  Each sum is an unevaluated sum of three doubles, as
in a double-double, so it has about 159 bits.  A value enters as one double, an integer as the sum of two; its square
is split into exact products.  So sums of integers are exact while they are below 2**159, and those of doubles lose
bits only beyond 159.  A far larger double takes bits of the others with it when it is removed: then the group is
*dirty*, as with MAX, and its sums are derived again.  PEAK is the greatest sum of squares since they were.

The variance of n values is (n * squares - sum**2) / n**2.  Its numerator has three doubles, too.

BIT_AND, BIT_OR and BIT_XOR count for each bit the values that have it.
"""

from __future__ import annotations

import numpy as np

from noria.kernels import njit
from noria.state.grouping.bits import bits_of, float_of

SUM_1, SUM_2, VALUES, SUM_3, SQUARES_1, SQUARES_2, SQUARES_3, PEAK = range(8)  # VALUES: where other kinds have it, too
MOMENT_WORDS = 8
HUGE = 2.0**480  # a double of at least so much counts as an error: its square leaves the range of doubles
BIT_WORDS = 65  # a word for each bit, and VALUES
AND, OR, XOR = range(3)

_SPLIT = 134217729.0  # 2**27 + 1
_HIGH = 4294967296.0  # 2**32
_LOST = 2.0**-30  # the part of PEAK below which the sums of doubles are derived again
_ROUNDING = 2.0**-120  # a smaller variance, in parts of the mean square, is a rest of rounding


# ------------------------------------------------------------------ sums of three doubles
@njit
def _two_sum(a, b):
    """Return the rounded sum of two doubles, and what rounding lost."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


@njit
def _two_product(a, b):
    """Return the rounded product of two doubles, and what rounding lost (Dekker's product)."""
    p = a * b
    c = _SPLIT * a
    ah = c - (c - a)
    al = a - ah
    d = _SPLIT * b
    bh = d - (d - b)
    bl = b - bh
    return p, ((ah * bh - p) + ah * bl + al * bh) + al * bl


@njit
def _plus(a, b, c, v):
    """Add a double to a sum of three doubles."""
    a, e = _two_sum(a, v)
    b, e = _two_sum(b, e)
    b, c = _two_sum(b, c + e)
    a, b = _two_sum(a, b)
    b, c = _two_sum(b, c)
    return a, b, c


@njit
def _plus_product(a, b, c, x, y):
    """Add the exact product of two doubles to a sum of three doubles."""
    p, e = _two_product(x, y)
    a, b, c = _plus(a, b, c, p)
    return _plus(a, b, c, e) if e != 0.0 else (a, b, c)


@njit
def _add_at(A, i, j, k, x, y):
    """Add the product x * y to the sum of three doubles in the words i, j and k."""
    a, b, c = _plus_product(float_of(A[i]), float_of(A[j]), float_of(A[k]), x, y)
    A[i], A[j], A[k] = bits_of(a), bits_of(b), bits_of(c)


# ------------------------------------------------------------------ VARIANCE
@njit
def halves_of(v):
    """Return an integer as the sum of two doubles."""
    return np.float64(v >> 32) * _HIGH, np.float64(v & 0xFFFFFFFF)


@njit
def add_moments(A, q, x, y, w):
    """Add the value x + y with weight w to the sums at word q."""
    weight = np.float64(w)
    _add_at(A, q + SUM_1, q + SUM_2, q + SUM_3, x, weight)
    p, e = _two_product(x, x)
    _add_at(A, q + SQUARES_1, q + SQUARES_2, q + SQUARES_3, p, weight)
    _add_at(A, q + SQUARES_1, q + SQUARES_2, q + SQUARES_3, e, weight)
    if y != 0.0:
        _add_at(A, q + SUM_1, q + SUM_2, q + SUM_3, y, weight)
        p, e = _two_product(2.0 * x, y)
        _add_at(A, q + SQUARES_1, q + SQUARES_2, q + SQUARES_3, p, weight)
        _add_at(A, q + SQUARES_1, q + SQUARES_2, q + SQUARES_3, e, weight)
        p, e = _two_product(y, y)
        _add_at(A, q + SQUARES_1, q + SQUARES_2, q + SQUARES_3, p, weight)
        _add_at(A, q + SQUARES_1, q + SQUARES_2, q + SQUARES_3, e, weight)


@njit
def add_double(A, q, x, w):
    """Add a double with weight w to the sums at word q.  Returns True if this makes the group dirty."""
    add_moments(A, q, x, 0.0, w)
    squares, peak = float_of(A[q + SQUARES_1]), float_of(A[q + PEAK])
    if squares > peak:
        A[q + PEAK] = A[q + SQUARES_1]
    return squares < peak * _LOST


@njit
def variance(A, q, scale):
    """Return the population variance of the values at word q, which are integers in units of 1 / scale, or doubles."""
    n = np.float64(A[q + VALUES])
    s1, s2, s3 = float_of(A[q + SUM_1]), float_of(A[q + SUM_2]), float_of(A[q + SUM_3])
    a, b, c = 0.0, 0.0, 0.0
    a, b, c = _plus_product(a, b, c, n, float_of(A[q + SQUARES_1]))
    a, b, c = _plus_product(a, b, c, n, float_of(A[q + SQUARES_2]))
    a, b, c = _plus_product(a, b, c, n, float_of(A[q + SQUARES_3]))
    least = a * _ROUNDING
    a, b, c = _plus_product(a, b, c, -s1, s1)
    a, b, c = _plus_product(a, b, c, -2.0 * s1, s2)
    a, b, c = _plus_product(a, b, c, -2.0 * s1, s3)
    a, b, c = _plus_product(a, b, c, -s2, s2)
    a, b, c = _plus_product(a, b, c, -2.0 * s2, s3)
    a, b, c = _plus_product(a, b, c, -s3, s3)
    if a <= least:
        return 0.0
    return a / (n * n * scale * scale)


# ------------------------------------------------------------------ bits
@njit(inline="always")
def _word(bit):
    """The word of a bit's counter: word VALUES counts the values."""
    return bit if bit < VALUES else bit + 1


@njit
def add_bits(A, q, v, w):
    """Add the value v with weight w to the counters at word q."""
    rest = np.uint64(v)
    bit = 0
    while rest != np.uint64(0):
        if rest & np.uint64(1):
            A[q + _word(bit)] += w
        rest >>= np.uint64(1)
        bit += 1


@njit
def bits(A, q, function, values):
    """Return BIT_AND, BIT_OR or BIT_XOR of the values counted at word q, as the 64 bits of a word."""
    out = np.uint64(0)
    for bit in range(64):
        n = A[q + _word(bit)]
        on = n == values if function == AND else n > 0 if function == OR else (n & 1) == 1
        if on:
            out |= np.uint64(1) << np.uint64(bit)
    return np.int64(out)
