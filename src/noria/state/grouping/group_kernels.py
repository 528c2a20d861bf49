"""Kernels of grouping: one row for each group in an arena of `state/rows/layout.py`, with accumulators behind the key.

A group's row has the folded key, MARK, COUNT (its number of input rows), and the words of each aggregate.  MARK is
the group's ordinal, plus one, among the groups that the running call touches; otherwise 0.  `WORDS` has the number of
words by kind.  COUNT(*) needs none: it is COUNT.

    COUNT_COL  non-NULL values
    SUM, AVG   low limb                           | high limb    | non-NULL values, errors (ONE_ERROR each)
    FSUM, FAVG high part of a double-double       | low part     | the same; then a double-double of the huge values
    MIN, MAX   the value                          | its copies   | non-NULL values
    VAR, FVAR  as in `moment_kernels`, of integers and of doubles
    BITS       as in `moment_kernels`

MIN and MAX are exact without storing all values.  A group becomes *dirty* if the last copy of its value is removed, or
a better value than it; for FVAR see `moment_kernels`.  A dirty group must be derived again from all its rows (rule
R15).

Doubles of at least LARGE have a sum of their own, divided by SCALE.  So neither sum leaves the range of doubles, and a
result that is out of range returns to it when the responsible rows are removed.
"""

from __future__ import annotations

import numpy as np

from noria.core.limits import ERROR_CODE, MIN_INT, NULL_CODE
from noria.kernels import njit
from noria.state.grouping.bits import bits_of, float_of
from noria.state.grouping.moment_kernels import (
    BIT_WORDS,
    HUGE,
    MOMENT_WORDS,
    add_bits,
    add_double,
    add_moments,
    bits,
    halves_of,
    variance,
)
from noria.state.rows.bare import bare, stack
from noria.state.rows.kernels import (
    covered_input,
    find_entry,
    find_row,
    free_row,
    key_of_input,
    new_row,
)
from noria.state.rows.layout import (
    ENTRY,
    EOFF,
    FLAG,
    FULL,
    HEAD,
    HEADER,
    IDW,
    MAX_KEY,
    NIDX,
    ROWS,
    WIDTH,
    K,
)
from noria.state.rows.prefetch import AHEAD, BLOCK, WARM_FROM, prefetch, warm_keys

COUNT_STAR, COUNT_COL, SUM, AVG, FSUM, FAVG, VAR, FVAR, BITS, MIN, MAX, TEXT_MIN, TEXT_MAX = range(13)
MARK, COUNT, ACC = range(3)  # words behind the key
ONE_ERROR = 1 << 44  # the word of non-NULL values counts errors in its upper bits: one error adds this
WORDS = {COUNT_STAR: 0, COUNT_COL: 1, FSUM: 5, FAVG: 5, VAR: MOMENT_WORDS, FVAR: MOMENT_WORDS,
         BITS: BIT_WORDS}  # all others: 3
LARGE, SCALE = 2.0**900, 2.0**120  # 2**63 values add up to at most 2**967 in each of the two sums
SPEC_KIND, SPEC_COL, SPEC_FACTOR, SPEC_AT = range(4)  # factor: see `Spec`

_LOW = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)
_63 = np.uint64(63)
_FLIP = np.int64(0x7FFFFFFFFFFFFFFF)


# ------------------------------------------------------------------ 128-bit and double-double arithmetic
@njit
def _umul128(a, b):
    """Multiply two unsigned words.  Returns the (high, low) words of the product."""
    al, ah, bl, bh = a & _LOW, a >> _32, b & _LOW, b >> _32
    low = al * bl
    mid = ah * bl + (low >> _32)
    mid2 = al * bh + (mid & _LOW)
    return ah * bh + (mid >> _32) + (mid2 >> _32), (mid2 << _32) | (low & _LOW)


@njit
def add_product(lo, hi, v, w):
    """Add v * w to the 128-bit number (lo, hi).  All are signed words."""
    negative = (v < 0) != (w < 0)
    ph, pl = _umul128(np.uint64(abs(v)), np.uint64(abs(w)))
    u = np.uint64(lo)
    if negative:
        low = u - pl
        return np.int64(low), hi - np.int64(ph) - (1 if u < pl else 0)
    low = u + pl
    return np.int64(low), hi + np.int64(ph) + (1 if low < u else 0)


@njit(inline="always")
def fits(lo, hi):
    return hi == (lo >> 63) and lo >= MIN_INT


@njit
def average(lo, hi, n, factor):
    """Return the 128-bit sum (lo, hi) * factor / n, rounded half away from zero; ERROR_CODE if it is out of range."""
    negative = hi < 0
    u, h = np.uint64(lo), np.uint64(hi)
    if negative:
        u = ~u + np.uint64(1)
        h = ~h + (np.uint64(1) if u == np.uint64(0) else np.uint64(0))
    d = np.uint64(n)
    q, r = np.uint64(0), np.uint64(0)
    if h == np.uint64(0):
        q, r = u // d, u % d
    else:
        if h >= d:
            return ERROR_CODE
        r = h
        for b in range(64):  # long division, bit by bit: n and r stay below 2**63
            r = (r << np.uint64(1)) | ((u >> np.uint64(63 - b)) & np.uint64(1))
            q = q << np.uint64(1)
            if r >= d:
                r -= d
                q |= np.uint64(1)
    f = np.uint64(factor)
    ph, pl = _umul128(q, f)
    rest = r * f  # r < n, n rows: no overflow for any table that fits a disk
    part = rest // d
    rest = rest % d
    if rest * np.uint64(2) >= d:
        part += np.uint64(1)
    total = pl + part
    if ph != np.uint64(0) or total < pl or (total >> _63) != np.uint64(0):
        return ERROR_CODE
    return -np.int64(total) if negative else np.int64(total)


@njit(inline="always")
def to_float(code):
    return float_of(code if code >= 0 else code ^ _FLIP)


@njit
def float_code(x):
    if not np.isfinite(x):
        return ERROR_CODE
    b = bits_of(x + 0.0)
    return b if b >= 0 else b ^ _FLIP


@njit
def add_float(hi, lo, v):
    """Add a double to a double-double (two-sum).  In practice, a removed value cancels to the last bit."""
    s = hi + v
    t = s - hi
    lo += (hi - (s - t)) + (v - t)
    r = s + lo
    return r, lo - (r - s)


# ------------------------------------------------------------------ accumulating
@njit(inline="always")
def _rank(v, ids, ranks, collation):
    """Return the rank of a text id.  collation: 0 by bytes, 1 CI, the row of `ranks`."""
    return ranks[collation, np.searchsorted(ids, v)]


@njit
def _extreme(A, p, kind, collation, v, w, ids, ranks):
    """Add value v with weight w to a MIN or MAX at word p.  Returns True if this makes the group dirty."""
    A[p + 2] += w  # may be 0 for a moment within a delta: `_settle` checks it at the end
    kept = A[p]
    if kept == NULL_CODE:
        A[p], A[p + 1] = v, w
        return w < 0
    if v == kept:
        A[p + 1] += w
        return A[p + 1] <= 0
    if kind >= TEXT_MIN:
        better = _rank(v, ids, ranks, collation) < _rank(kept, ids, ranks, collation)
        better = better if kind == TEXT_MIN else not better
    else:
        better = v < kept if kind == MIN else v > kept
    if not better:
        return False
    if w < 0:
        return True
    A[p], A[p + 1] = v, w
    return False


@njit
def _settle(A, p, specs):
    """After a delta, reset the MIN, MAX and sums of doubles that have no values: rounding may have left a rest."""
    for a in range(specs.shape[0]):
        q, kind = p + specs[a, SPEC_AT], specs[a, SPEC_KIND]
        if kind >= MIN and A[q + 2] == 0:
            A[q], A[q + 1] = NULL_CODE, 0
        elif FSUM <= kind <= FVAR and A[q + 2] == 0:
            for word in range(3, MOMENT_WORDS if kind >= VAR else 5):
                A[q + word] = 0
            A[q], A[q + 1] = 0, 0


@njit
def _add_more(A, q, kind, v, w):
    """Add value v with weight w to the accumulators of `moment_kernels` at word q.  Returns True if the group becomes
    dirty."""
    A[q + 2] += w
    if kind == FVAR:
        return add_double(A, q, to_float(v), w)
    if kind == BITS:
        add_bits(A, q, v, w)
    else:
        x, y = halves_of(v)
        add_moments(A, q, x, y, w)
    return False


@njit
def accumulate(A, p, specs, cols, i, w, ids, ranks):
    """Add input row i with weight w to the accumulators at word p.  Returns True if this makes the group dirty."""
    dirty = False
    for a in range(specs.shape[0]):
        kind = specs[a, SPEC_KIND]
        q = p + specs[a, SPEC_AT]
        if kind == COUNT_STAR:
            continue
        v = cols[specs[a, SPEC_COL], i]
        if v == NULL_CODE:
            continue
        if kind == COUNT_COL:
            A[q] += w
        elif kind < MIN and (v == ERROR_CODE or (kind == FVAR and abs(to_float(v)) >= HUGE)):
            A[q + 2] += w * (ONE_ERROR + 1)
        elif kind <= AVG:
            A[q], A[q + 1] = add_product(A[q], A[q + 1], v, w)
            A[q + 2] += w
        elif kind <= FAVG:
            x, at = to_float(v), q
            if abs(x) >= LARGE:
                x, at = x / SCALE, q + 3
            hi, lo = add_float(float_of(A[at]), float_of(A[at + 1]), x * w)
            A[q + 2] += w
            A[at], A[at + 1] = bits_of(hi), bits_of(lo)
        elif kind < MIN:
            dirty |= _add_more(A, q, kind, v, w)
        else:
            dirty |= _extreme(A, q, kind, specs[a, SPEC_FACTOR], v, w, ids, ranks)
    return dirty


@njit
def result(A, q, specs, a):
    """Return the value of aggregate a from its words at q, for any kind but COUNT(*)."""
    kind = specs[a, SPEC_KIND]
    if kind == COUNT_COL:
        return A[q]
    if kind == BITS and A[q + 2] < ONE_ERROR:
        v = bits(A, q, specs[a, SPEC_FACTOR], A[q + 2])
        return v if v >= 0 else ERROR_CODE  # no code can hold a BIGINT UNSIGNED of 2**63
    if A[q + 2] == 0:
        return NULL_CODE
    if kind < MIN and A[q + 2] >= ONE_ERROR:
        return ERROR_CODE
    if kind == SUM:
        return A[q] if fits(A[q], A[q + 1]) else ERROR_CODE
    if kind == AVG:
        return average(A[q], A[q + 1], A[q + 2], specs[a, SPEC_FACTOR])
    if kind in (FSUM, FAVG):
        x = float_of(A[q]) + float_of(A[q + 1])
        large = float_of(A[q + 3]) + float_of(A[q + 4])
        if large != 0.0:
            x = (large + x / SCALE) * SCALE
        return float_code(x / A[q + 2] if kind == FAVG else x)
    if kind in (VAR, FVAR):
        return float_code(variance(A, q, np.float64(specs[a, SPEC_FACTOR])))
    return A[q]


@njit
def _emit(A, p, specs, off, shown, out, at):
    """Write the output row of a group into column `at` of `out`.  Its key begins at word `off`, its MARK at p."""
    for j in range(shown):
        out[j, at] = A[off + j]
    for a in range(specs.shape[0]):
        if specs[a, SPEC_KIND] == COUNT_STAR:
            out[shown + a, at] = A[p + COUNT]
        else:
            out[shown + a, at] = result(A, p + ACC + specs[a, SPEC_AT], specs, a)


@njit
def _find_group(A, keys, i, fold, kb):
    """Find the group of input row i.  Returns (covered, row number or -1).

    If the first index is over all columns of the group key, one lookup serves both.
    """
    if A[NIDX] > 0 and A[HEADER + K] == A[IDW]:
        d = HEADER
        key_of_input(A, d, keys, i, fold, kb)
        e = find_entry(A, d, kb)
        off = A[d + EOFF] + e * (ENTRY + A[d + K])
        if e >= 0 and (A[off + FLAG] == 1 or A[FULL] == 1 or A[off + HEAD] >= 0):
            return True, A[off + HEAD]
        if A[FULL] == 1:
            return True, -1
        if A[NIDX] == 1:
            return False, -1
    if not covered_input(A, keys, i, fold, kb):
        return False, -1
    return True, find_row(A, keys, i)


@njit
def _add(A, specs, shown, always, keys, cols, weights, ids, ranks, fold, touched, old, had, dirty):
    """Add a delta's rows to their groups.

    Writes for each touched group its row number (touched), its previous output row, if any (old, had), and whether it
    is dirty.  Returns the numbers of touched and of dirty groups.
    """
    n = weights.shape[0]
    kb, slots = stack(MAX_KEY), stack(BLOCK)
    idw, width = A[IDW], A[WIDTH] + 1
    counts_only = True
    for a in range(specs.shape[0]):
        counts_only &= specs[a, SPEC_KIND] == COUNT_STAR
    t, dirties = 0, 0
    for i in range(n):
        if i % BLOCK == 0 and n > WARM_FROM and A[NIDX] > 0:
            warm_keys(A, HEADER, keys, False, fold, i, min(n, i + BLOCK), slots)
        covered, r = _find_group(A, keys, i, fold, kb)
        if not covered:
            continue
        fresh = r < 0
        if fresh:
            r = new_row(A, keys, i, 1, fold, kb)
            p = A[ROWS] + r * width + 1 + idw
            for a in range(specs.shape[0]):
                if specs[a, SPEC_KIND] >= MIN:
                    A[p + ACC + specs[a, SPEC_AT]] = NULL_CODE
        off = A[ROWS] + r * width + 1
        p = off + idw
        if A[p + MARK] == 0:
            touched[t] = r
            had[t] = A[p + COUNT] > 0 or (always and not fresh)
            if had[t]:
                _emit(A, p, specs, off, shown, old, t)
            t += 1
            A[p + MARK] = t
        A[p + COUNT] += weights[i]
        if not counts_only and accumulate(A, p + ACC, specs, cols, i, weights[i], ids, ranks):
            dirties += not dirty[A[p + MARK] - 1]
            dirty[A[p + MARK] - 1] = True
    return t, dirties


@njit
def _changed(old, u, out, at):
    """True if the output rows old[:, u] and out[:, at] differ."""
    for j in range(old.shape[0]):
        if out[j, at] != old[j, u]:
            return True
    return False


@njit
def _collect(A, specs, shown, always, fold, t, touched, old, had, dirty, out, out_weights, dkeys, dold, dhad):
    """Write the -old and +new rows of the changed groups to `out`, and the dirty groups with rows to `dkeys`.

    Frees groups without rows.  Returns (output rows, dirty groups, violations).
    """
    kb = stack(MAX_KEY)
    idw, width, outw = A[IDW], A[WIDTH] + 1, out.shape[0]
    settle = specs.shape[0] > 0
    at, dn, violations = 0, 0, 0
    for u in range(t):
        if u + AHEAD < t and t > WARM_FROM:
            prefetch(A, A[ROWS] + touched[u + AHEAD] * width)
            prefetch(A, A[ROWS] + touched[u + AHEAD] * width + width - 1)
        r = touched[u]
        off = A[ROWS] + r * width + 1
        p = off + idw
        A[p + MARK] = 0
        if settle:
            _settle(A, p + ACC, specs)
        violations += A[p + COUNT] < 0
        if dirty[u] and A[p + COUNT] > 0:
            dhad[dn] = had[u]
            for j in range(idw):
                dkeys[j, dn] = A[off + j]
            for j in range(outw):
                dold[j, dn] = old[j, u] if had[u] else 0
            dn += 1
            continue
        now = A[p + COUNT] > 0 or always
        if now:
            _emit(A, p, specs, off, shown, out, at + had[u])
        if not (now and had[u]) or _changed(old, u, out, at + 1):
            if had[u]:
                for j in range(outw):
                    out[j, at] = old[j, u]
                out_weights[at] = -1
                at += 1
            if now:
                out_weights[at] = 1
                at += 1
        if not now:
            free_row(A, r, fold, kb)
    return at, dn, violations


@njit
def apply(A, specs, shown, always, keys, cols, weights, ids, ranks, fold):
    """Add a delta to its groups.

    `keys`: the folded group keys of the rows.  `shown`: the number of key words in the output.  `always`: a group
    without rows has an output row, because there is no GROUP BY.
    Returns (output columns, output weights, keys of dirty groups, their old output rows, whether each had one,
    violations).  The output omits dirty groups: the caller derives them again and calls `replace`.
    """
    A, specs, keys, cols, weights = bare(A), bare(specs), bare(keys), bare(cols), bare(weights)
    ids, ranks, fold = bare(ids), bare(ranks), bare(fold)
    n = weights.shape[0]
    outw = shown + specs.shape[0]
    touched, had, dirty = np.empty(n, np.int64), np.empty(n, np.bool_), np.zeros(n, np.bool_)
    old = np.empty((outw, n), np.int64)
    t, dirties = _add(A, specs, shown, always, keys, cols, weights, ids, ranks, fold, bare(touched), bare(old),
                      bare(had), bare(dirty))
    out, out_weights = np.empty((outw, 2 * t), np.int64), np.empty(2 * t, np.int64)
    dkeys, dold = np.empty((A[IDW], dirties), np.int64), np.empty((outw, dirties), np.int64)
    dhad = np.empty(dirties, np.bool_)
    # the first four keep their owners: nothing below uses them, so bare ones would be freed before the call
    at, dn, violations = _collect(A, specs, shown, always, fold, t, touched, old, had, dirty, bare(out),
                                  bare(out_weights), bare(dkeys), bare(dold), bare(dhad))
    return out[:, :at], out_weights[:at], dkeys[:, :dn], dold[:, :dn], dhad[:dn], violations


@njit
def replace(A, keys, payload):
    """Overwrite the accumulators of stored groups.  payload: derived rows.  Returns the number of absent groups."""
    A, keys, payload = bare(A), bare(keys), bare(payload)
    width, idw = A[WIDTH] + 1, A[IDW]
    lost = 0
    for i in range(keys.shape[1]):
        r = find_row(A, keys, i)
        if r < 0:
            lost += 1
            continue
        p = A[ROWS] + r * width + 1 + idw
        for j in range(A[WIDTH] - idw):
            A[p + j] = payload[idw + j, i]
    return lost


@njit
def outputs(rows, idw, specs, shown):
    """Compute output rows from stored rows of groups, shape (words, groups).  Groups without rows have one, too."""
    rows, specs = bare(rows), bare(specs)
    n = rows.shape[1]
    out = np.empty((shown + specs.shape[0], n), np.int64)
    buf = np.empty(rows.shape[0], np.int64)
    for i in range(n):
        for j in range(rows.shape[0]):
            buf[j] = rows[j, i]
        _emit(buf, idw, specs, 0, shown, out, i)
    return out


@njit
def values_of(A, keys, word, fold):
    """Return one word behind the key for each group of these keys; NULL_CODE if the group is not stored."""
    A, keys, fold = bare(A), bare(keys), bare(fold)
    kb = stack(MAX_KEY)
    n = keys.shape[1]
    out = np.empty(n, np.int64)
    width, idw = A[WIDTH] + 1, A[IDW]
    for i in range(n):
        _, r = _find_group(A, keys, i, fold, kb)
        out[i] = NULL_CODE if r < 0 else A[A[ROWS] + r * width + 1 + idw + word]
    return out
