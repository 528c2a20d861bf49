"""Kernels of the symbol table, which stores each string once and looks it up by hash.

    heap     the bytes of all strings, one after the other
    starts   HEADER words, then for each id its span: offset and length in one word; a free id has length 0
    folds    for each id the id of its folded twin, or PENDING until Python has folded it; a free id has the next
             free one as FREED - (id + 1)
    table    open addressing, linear probing, at most half full: 0 for empty, else hash bits and id + 1

Keeps true, for other processes at each moment: a string in `table` has its bytes and span in place, because its entry
is stored with release after them.  A sweep is the exception: while SWEEPS is odd, bytes move, and ids that no state
holds are freed for other strings.  A span always points into the heap.
"""

from __future__ import annotations

import numpy as np

from noria.core.limits import NULL_CODE
from noria.kernels import njit
from noria.state.memory.atomics import load_acquire, load_word, prefetch, store_release, store_word
from noria.state.rows.bare import bare
from noria.state.rows.hashing import mix_shared

COUNT, TOP, HEAP_ROOM, ID_ROOM, MASK, GENERATION, LIVE, FREE, SWEEPS = range(9)  # COUNT: ids ever used
HEADER = 16
PENDING, FREED, OWN = -1, -2, -3  # OWN: an argument of `_append` only
LENGTH_BITS = 26  # a string is shorter than 64 MiB, as a statement is
OFFSET_BITS = 37
_OFFSET = (1 << OFFSET_BITS) - 1
_BLOCK = 64  # strings whose slots are prefetched together
_AHEAD = 12  # how many strings ahead a string's memory is prefetched

_ID_BITS = 40
_ID_MASK = (1 << _ID_BITS) - 1
_SEED = np.uint64(0xD6E8FEB86659FD93)
_S29, _S41 = np.uint64(29), np.uint64(41)
_UPPER_A, _UPPER_Z, _CASE = 65, 90, 32


@njit(inline="always")
def _at(span):
    return span & _OFFSET


@njit(inline="always")
def _length(span):
    return span >> OFFSET_BITS


@njit(inline="always")
def _span(at, n):
    return at | (n << OFFSET_BITS)


@njit
def hash_bytes(data, at, n):
    h = mix_shared(_SEED, n)
    i = 0
    while n - i >= 8:
        h = mix_shared(h, load_word(data, at + i))
        i += 8
    if i < n:
        rest = np.int64(0)
        while i < n:
            rest = (rest << 8) | np.int64(data[at + i])
            i += 1
        h = mix_shared(h, rest)
    return mix_shared(h, h >> _S29)


@njit
def _equal(heap, start, data, at, n):
    i = 0
    while n - i >= 8:
        if load_word(heap, start + i) != load_word(data, at + i):
            return False
        i += 8
    while i < n:
        if heap[start + i] != data[at + i]:
            return False
        i += 1
    return True


@njit
def _tagged(h, code):
    return (np.int64(h >> _S41) << _ID_BITS) | (code + 1)


@njit
def find(heap, starts, table, data, at, n):
    """Return the id of the string data[at : at + n], or -1.  Any process may call it."""
    h = hash_bytes(data, at, n)
    mask = len(table) - 1
    tag = np.int64(h >> _S41)
    s = np.int64(h & np.uint64(mask))
    for _ in range(mask + 1):
        word = load_acquire(table, s)
        if word == 0:
            return np.int64(-1)
        if word >> _ID_BITS == tag:
            code = (word & _ID_MASK) - 1
            span = starts[HEADER + code]
            if _length(span) == n and _equal(heap, _at(span), data, at, n):
                return code
        s = (s + 1) & mask
    return np.int64(-1)


@njit
def _place(table, h, code):
    mask = len(table) - 1
    s = np.int64(h & np.uint64(mask))
    while table[s] != 0:
        s = (s + 1) & mask
    store_release(table, s, _tagged(h, code))


@njit
def _append(heap, starts, folds, table, data, at, n, twin):
    """Append a new string and return its id.  twin: the id of its folded form, PENDING, or OWN if it is folded."""
    code, top = starts[FREE] - 1, starts[TOP]
    if code >= 0:
        starts[FREE] = FREED - folds[code]
    else:
        code = starts[COUNT]
    for i in range(n):
        heap[top + i] = data[at + i]
    store_release(starts, HEADER + code, _span(top, n))
    folds[code] = code if twin == OWN else twin
    starts[TOP] = top + n
    starts[LIVE] += 1
    _place(table, hash_bytes(data, at, n), code)
    if code == starts[COUNT]:
        store_release(starts, COUNT, code + 1)
    return code


@njit
def _case(data, at, n):
    """Return 0 for ASCII without capitals, which is folded, 1 for ASCII with capitals, 2 for other text."""
    case = 0
    for i in range(n):
        b = data[at + i]
        if b >= 128:
            return 2
        if _UPPER_A <= b <= _UPPER_Z:
            case = 1
    return case


@njit
def _folded_ascii(heap, starts, folds, table, data, at, n):
    """Return the id of the lower-case form, which is appended if it is new."""
    lower = np.empty(n, np.uint8)
    for i in range(n):
        b = data[at + i]
        lower[i] = b + _CASE if _UPPER_A <= b <= _UPPER_Z else b
    code = find(heap, starts, table, lower, 0, n)
    if code < 0:
        code = _append(heap, starts, folds, table, lower, 0, n, OWN)
    return code


@njit
def intern(heap, starts, folds, table, data, at, n):
    """Return the id of a string, which is appended if it is new; -1 if the caller must make room first."""
    code = find(heap, starts, table, data, at, n)
    if code >= 0:
        return code
    count = starts[COUNT]
    if (starts[TOP] + 2 * n > starts[HEAP_ROOM] or count + 2 > starts[ID_ROOM]
            or 2 * (starts[LIVE] + 2) > starts[MASK]):
        return np.int64(-1)
    case = _case(data, at, n)
    if case == 0:
        twin = np.int64(OWN)
    elif case == 1:
        twin = _folded_ascii(heap, starts, folds, table, data, at, n)
    else:
        twin = np.int64(PENDING)
    return _append(heap, starts, folds, table, data, at, n, twin)


@njit
def intern_many(heap, starts, folds, table, data, ends, first, valid, out, done):
    """Write the ids of strings into out, from number `done` on.  Returns how many are done; if not all, make room.

    ends: Arrow's offsets; those of the first string are at `first`.  valid: a bool for each string, or empty.
    """
    heap, starts, folds, table, data = bare(heap), bare(starts), bare(folds), bare(table), bare(data)
    for i in range(done, len(out)):
        if len(valid) and not valid[i]:
            out[i] = NULL_CODE
            continue
        at = np.int64(ends[first + i])
        code = intern(heap, starts, folds, table, data, at, np.int64(ends[first + i + 1]) - at)
        if code < 0:
            return i
        out[i] = code
    return len(out)


@njit
def rehash(heap, starts, folds, table):
    """Fill an empty hash table with all strings."""
    heap, starts, folds, table = bare(heap), bare(starts), bare(folds), bare(table)
    hashes, count, mask = np.empty(_BLOCK, np.uint64), starts[COUNT], np.uint64(len(table) - 1)
    for first in range(0, count, _BLOCK):
        last = min(first + _BLOCK, count)
        for code in range(first, last):
            span = starts[HEADER + code]
            hashes[code - first] = hash_bytes(heap, _at(span), _length(span))
            prefetch(table, np.int64(hashes[code - first] & mask))
        for code in range(first, last):
            if folds[code] > FREED:
                _place(table, hashes[code - first], code)


@njit
def mark(codes, folds, marks):
    """Mark the ids in `codes` and their folded twins.  Words that are no ids are ignored."""
    codes, folds, marks = bare(codes), bare(folds), bare(marks)
    for i in range(len(codes)):
        if 0 <= codes[i] < len(marks) and folds[codes[i]] > FREED:
            marks[codes[i]] = True
            if folds[codes[i]] >= 0:
                marks[folds[codes[i]]] = True


@njit
def sweep(heap, starts, folds, marks, order):
    """Free the ids that are not marked, and compact the bytes of the others.

    order: the marked ids by the offset of their bytes.  The caller has made SWEEPS odd.
    """
    heap, starts, folds, marks, order = bare(heap), bare(starts), bare(folds), bare(marks), bare(order)
    for code in range(len(marks) - 1, -1, -1):
        if folds[code] > FREED and not marks[code]:
            store_release(starts, HEADER + code, 0)
            folds[code] = FREED - starts[FREE]
            starts[FREE] = code + 1
    top = np.int64(0)
    for i in range(len(order)):
        span = starts[HEADER + order[i]]
        at, n = _at(span), _length(span)
        if at != top:
            for j in range(n):
                heap[top + j] = heap[at + j]
            store_release(starts, HEADER + order[i], _span(top, n))
        top += n
    starts[TOP], starts[LIVE] = top, len(order)


@njit
def gather_ends(starts, codes, ends):
    """Write the Arrow offsets of the codes' strings into `ends`.  Returns True if a code is negative (empty string)."""
    top = np.int64(0)
    some = False
    ends[0] = 0
    n = len(codes)
    for i in range(n):
        if i + _AHEAD < n and codes[i + _AHEAD] >= 0:
            prefetch(starts, HEADER + codes[i + _AHEAD])
        code = codes[i]
        if code >= 0:
            top += _length(starts[HEADER + code])
        else:
            some = True
        ends[i + 1] = top
    return some


@njit
def gather_bytes(heap, starts, codes, ends, out):
    """Write the bytes of the codes' strings into `out`, one after the other, eight at a time except at the end."""
    n, safe = len(codes), len(out) - 8
    for i in range(n):
        if i + _AHEAD < n and codes[i + _AHEAD] >= 0:
            prefetch(heap, _at(starts[HEADER + codes[i + _AHEAD]]))
        code = codes[i]
        if code < 0:
            continue
        at, to, end = _at(starts[HEADER + code]), ends[i], ends[i + 1]
        while to < end:
            if to <= safe:
                store_word(out, to, load_word(heap, at))
                to += 8
                at += 8
            else:
                out[to] = heap[at]
                to += 1
                at += 1


@njit
def folded(folds, codes):
    out = np.empty_like(codes)
    for i in range(len(codes)):
        out[i] = folds[codes[i]] if codes[i] >= 0 else codes[i]
    return out


@njit
def find_many(heap, starts, table, data, ends, first, valid, out):
    heap, starts, table, data = bare(heap), bare(starts), bare(table), bare(data)
    for i in range(len(out)):
        if len(valid) and not valid[i]:
            out[i] = NULL_CODE
            continue
        at = np.int64(ends[first + i])
        out[i] = find(heap, starts, table, data, at, np.int64(ends[first + i + 1]) - at)
