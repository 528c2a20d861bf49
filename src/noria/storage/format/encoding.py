"""Encodes rows as bytes for RocksDB, in bulk and pure: `pack_keys`, `pack_rows`, `unpack_rows`.

A *part* is one column ready to be packed: int64 codes, or for text an Arrow large_string array.  Parts come
from codes and a symbol table (the worker) or from Arrow columns (Spark's tasks that build files).

The bytes of keys sort as SQL sorts their values, column by column, NULL first.  An int64 is big-endian with the sign
flipped.  Text is its folded UTF-8 (unfolded if the collation is binary), each byte increased by two, ended by a 1.
A NULL text is a single 0.  So the key of some leading columns is a prefix of all keys with them.

A row is the number of columns (2 bytes), 8 bytes for each column, then the unfolded texts one after the other.  The
8 bytes are the code, or for text its length in bytes (-1 for NULL).  All integers of rows are little-endian.
A row written before a column was added has fewer columns; a reader fills in that column's initial value.  A reader
that does not know an added column reads the others.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from noria.core.batch import Codes
from noria.core.keys import folded_texts, text_bytes, text_offsets
from noria.core.limits import NULL_CODE
from noria.core.symbols import NO_SYMBOLS, Symbols, fold
from noria.core.types import Kind, SqlType
from noria.core.values import from_arrow, texts_of
from noria.storage.format import kernels

EncodableColumn: TypeAlias = Any  # Codes | pa.Array
FEW = 12  # up to this many rows plain Python is faster than setting up arrays
NULL_TEXT = -1
_HEAD = 2
_FLIP = 1 << 63
_BIG = struct.Struct(">Q")
_KEY_BYTES = bytes(min(b + kernels.KEY_SHIFT, 255) for b in range(256))  # the shift of texts in keys
_NULL_KEY, _END_KEY = bytes([kernels.KEY_NULL]), bytes([kernels.KEY_END])


# ------------------------------------------------------------------ parts
def parts_of(columns: Sequence[Codes], types: Sequence[SqlType], symbols: Symbols) -> list[EncodableColumn]:
    """Parts of code columns as rows store them."""
    return [symbols.texts(c) if t.is_text else c for c, t in zip(columns, types, strict=True)]


def key_parts_of(columns: Sequence[Codes], types: Sequence[SqlType], symbols: Symbols) -> list[EncodableColumn]:
    """Parts of code columns as keys store them: text folded."""
    return parts_of([symbols.folded(c) if t.folds else c for c, t in zip(columns, types, strict=True)],
                    types, symbols)


def parts_of_arrow(columns: Sequence[pa.Array], types: Sequence[SqlType]) -> list[EncodableColumn]:
    """Parts of Arrow columns (types as `values.arrow_type` has them) as rows store them."""
    return [_clean(texts_of(c) if t.is_bytes else c) if t.is_text else from_arrow(c, t, NO_SYMBOLS)
            for c, t in zip(columns, types, strict=True)]


def _clean(texts: pa.Array) -> pa.Array:
    """The texts as large_string with no bytes in nulls, which Arrow would allow."""
    texts = texts.cast(pa.large_string())
    if texts.null_count and bool((_sizes(texts)[_nulls(texts)] > 0).any()):
        texts = pa.array(texts.to_pylist(), pa.large_string())
    return texts


def key_parts_of_arrow(columns: Sequence[pa.Array], types: Sequence[SqlType]) -> list[EncodableColumn]:
    return [folded_texts(part) if t.folds else part
            for t, part in zip(types, parts_of_arrow(columns, types), strict=True)]


# ------------------------------------------------------------------ keys
def pack_keys(parts: Sequence[EncodableColumn]) -> list[bytes]:
    """Pack one key of all parts for each row."""
    rows = len(parts[0])
    if all(isinstance(p, np.ndarray) for p in parts):
        flipped = (np.stack(parts, axis=1).view(np.uint64) ^ np.uint64(_FLIP)).astype(">u8")
        keys: list[bytes] = flipped.view(f"V{8 * len(parts)}").reshape(rows).tolist()
        return keys
    sizes = np.zeros(rows, np.int64)
    for part in parts:
        sizes += 8 if isinstance(part, np.ndarray) else _sizes(part) + 1
    out, at, ends = _buffer(sizes)
    for part in parts:
        if isinstance(part, np.ndarray):
            kernels.put_key_codes(out, at, part)
        else:
            nulls = _nulls(part)
            kernels.put_key_texts(out, at, text_bytes(part), text_offsets(part), nulls)
    return _split(out, ends)


def _sizes(texts: pa.Array) -> Codes:
    """The size of each text in bytes."""
    sizes: Codes = np.diff(text_offsets(texts))
    return sizes


def _nulls(part: pa.Array) -> npt.NDArray[np.bool_]:
    nulls: npt.NDArray[np.bool_] = part.is_null().to_numpy(zero_copy_only=False)
    return nulls


def pack_few_keys(columns: Sequence[Codes], types: Sequence[SqlType], symbols: Symbols) -> list[bytes]:
    """Return `pack_keys(key_parts_of(...))`, faster for a handful of rows."""
    keys = [b""] * len(columns[0])
    for column, type in zip(columns, types, strict=True):
        for row, code in enumerate(column.tolist()):
            if not type.is_text:
                keys[row] += _BIG.pack(code + _FLIP)
            elif code == NULL_CODE:
                keys[row] += _NULL_KEY
            else:
                text = symbols.text(code)
                raw = (fold(text) if type.folds else text).encode()
                keys[row] += raw.translate(_KEY_BYTES) + _END_KEY
    return keys


def keys_of(columns: Sequence[Codes], types: Sequence[SqlType], symbols: Symbols) -> list[bytes]:
    """Pack one key for each row of code columns."""
    if len(columns[0]) <= FEW:
        return pack_few_keys(columns, types, symbols)
    return pack_keys(key_parts_of(columns, types, symbols))


def first_codes(keys: Sequence[bytes]) -> Codes:
    """The distinct codes of the first column of sorted keys; that column is no text."""
    raw = np.frombuffer(b"".join([k[:8] for k in keys]), ">u8")
    codes = (raw.astype(np.uint64) ^ np.uint64(_FLIP)).view(np.int64)
    return codes[np.flatnonzero(np.diff(codes, prepend=codes[:1] - 1))] if len(codes) else codes


def successor(prefix: bytes) -> bytes:
    """The least bytes above all keys that start with `prefix`."""
    bare = prefix.rstrip(b"\xff")
    return bare[:-1] + bytes([bare[-1] + 1]) if bare else b"\xff" * (len(prefix) + 64)


# ------------------------------------------------------------------ rows
def pack_rows(parts: Sequence[EncodableColumn]) -> list[bytes]:
    """Pack each row of the parts."""
    rows, width = len(parts[0]), len(parts)
    texts = [p for p in parts if not isinstance(p, np.ndarray)]
    if not texts:
        packed = np.empty(rows, [("n", "<u2"), ("c", "<i8", (width,))])
        packed["n"] = width
        for i, part in enumerate(parts):
            packed["c"][:, i] = part
        values: list[bytes] = packed.view(f"V{packed.dtype.itemsize}").tolist()
        return values
    sizes = np.full(rows, _HEAD + 8 * width, np.int64)
    for text in texts:
        sizes += _sizes(text)
    out, at, ends = _buffer(sizes)
    out[at] = width & 255
    out[at + 1] = width >> 8
    at += _HEAD
    for part in parts:
        kernels.put_codes(out, at, part if isinstance(part, np.ndarray) else _lengths(part))
    for text in texts:
        kernels.put_texts(out, at, text_bytes(text), text_offsets(text))
    return _split(out, ends)


def _lengths(texts: pa.Array) -> Codes:
    lengths = _sizes(texts)
    if texts.null_count:
        lengths[_nulls(texts)] = NULL_TEXT
    return lengths


def pack_few_rows(columns: Codes, types: Sequence[SqlType], symbols: Symbols) -> list[bytes]:
    """Return `pack_rows(parts_of(...))`, faster for a handful of rows."""
    packer = struct.Struct(f"<H{len(types)}q")
    texts = _text_positions(types)
    packed = []
    for codes in columns.T.tolist():
        tail = b""
        for i in texts:
            if codes[i] == NULL_CODE:
                codes[i] = NULL_TEXT
            else:
                text = symbols.text(codes[i]).encode()
                codes[i] = len(text)
                tail += text
        packed.append(packer.pack(len(types), *codes) + tail)
    return packed


def _text_positions(types: Sequence[SqlType]) -> list[int]:
    return [i for i, type in enumerate(types) if type.kind is Kind.TEXT]


def rows_of(columns: Codes, types: Sequence[SqlType], symbols: Symbols) -> list[bytes]:
    """Pack the rows of a (width, rows) array of codes."""
    if columns.shape[1] <= FEW:
        return pack_few_rows(columns, types, symbols)
    return pack_rows(parts_of(list(columns), types, symbols))


def unpack_rows(
    values: Sequence[bytes], types: Sequence[SqlType], defaults: Callable[[], Codes], symbols: Symbols,
    texts: Collection[int] | None = None
) -> Codes:
    """(width, rows) codes of packed rows.  defaults: returns the codes of columns that were added later.

    texts: the text columns whose values are needed, None: all; the others may be returned as NULL.
    """
    if len(values) <= FEW:
        return _unpack_few(values, types, defaults, symbols)
    columns = np.empty((len(types), len(values)), np.int64)
    for rows, parts in unpack_parts(values, types, texts):
        for i, part in enumerate(parts):
            if part is None:
                columns[i, rows] = NULL_CODE
            else:
                columns[i, rows] = part if isinstance(part, np.ndarray) else symbols.intern_many(part)
        if len(parts) < len(types):
            columns[len(parts) :, rows] = defaults()[len(parts) :, None]
    return columns


def _unpack_few(
    values: Sequence[bytes], types: Sequence[SqlType], defaults: Callable[[], Codes], symbols: Symbols
) -> Codes:
    width, texts = len(types), _text_positions(types)
    rows = []
    for value in values:
        count = value[0] | value[1] << 8
        codes = list(struct.unpack_from(f"<{count}q", value, _HEAD))
        at = _HEAD + 8 * count
        for i in texts:
            if i < count:
                size = codes[i]
                if size < 0:
                    codes[i] = NULL_CODE
                else:
                    codes[i] = symbols.intern(value[at : at + size].decode())
                    at += size
        rows.append(codes[:width] if count >= width else codes + defaults()[count:].tolist())
    return np.array(rows, np.int64).reshape(len(rows), width).T.copy()


Rows = slice | npt.NDArray[np.intp]


def unpack_parts(values: Sequence[bytes], types: Sequence[SqlType], texts: Collection[int] | None = None
                 ) -> Iterator[tuple[Rows, list[Any]]]:
    """Parts of packed rows, for each group of rows with the same number of columns (mostly one group).

    texts: the text columns to read; the part of any other text column may be None.
    """
    data = np.frombuffer(b"".join(values), np.uint8)
    sizes: Codes = np.fromiter(map(len, values), np.int64, len(values))
    starts: Codes = np.cumsum(sizes) - sizes
    counts = data[starts].astype(np.int64) | data[starts + 1].astype(np.int64) << 8
    if not len(values) or bool((counts == counts[0]).all()):
        count = int(counts[0]) if len(values) else len(types)
        yield slice(None), _unpack_group(data, starts, types[:count], count, texts)
        return
    for count in np.unique(counts).tolist():
        rows = np.flatnonzero(counts == count)
        yield rows, _unpack_group(data, starts[rows], types[:count], count, texts)


def _unpack_group(data: npt.NDArray[np.uint8], starts: Codes, types: Sequence[SqlType], count: int,
                  texts: Collection[int] | None) -> list[Any]:
    """Unpack the first columns of rows that have `count` columns."""
    rows, size = len(starts), _HEAD + 8 * count
    if not any(t.is_text for t in types) and len(data) == size * rows:
        fixed = data.view([("n", "<u2"), ("c", "<i8", (count,))])["c"]
        return list(np.ascontiguousarray(fixed.T[: len(types)]))
    at = starts + _HEAD
    parts: list[EncodableColumn] = []
    for _ in types:
        codes = np.empty(rows, np.int64)
        kernels.take_codes(data, at, codes)
        parts.append(codes)
    at = starts + size  # behind the columns that are not needed
    last = max((i for i, t in enumerate(types) if t.is_text and (texts is None or i in texts)), default=-1)
    return [part if not t.is_text else None if i > last else _texts_at(data, at, part, texts is None or i in texts)
            for i, (t, part) in enumerate(zip(types, parts, strict=True))]


def _texts_at(data: npt.NDArray[np.uint8], at: Codes, lengths: Codes, wanted: bool) -> pa.Array | None:
    """Read the texts that start at `at`, or None if they are not wanted; move `at` behind them."""
    if wanted:
        return _texts_from(data, at, lengths)
    at += np.maximum(lengths, 0)
    return None


def _texts_from(data: npt.NDArray[np.uint8], at: Codes, lengths: Codes) -> pa.Array:
    """Read the texts that start at `at`; move `at` behind them."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(np.maximum(lengths, 0), out=offsets[1:])
    packed = np.empty(int(offsets[-1]), np.uint8)
    kernels.take_texts(data, at, packed, offsets)
    nulls = lengths < 0
    valid = pa.array(~nulls).buffers()[1] if bool(nulls.any()) else None
    return pa.Array.from_buffers(
        pa.large_string(), len(lengths), [valid, pa.py_buffer(offsets), pa.py_buffer(packed)])


# ------------------------------------------------------------------ one buffer, many values
def _buffer(sizes: Codes) -> tuple[npt.NDArray[np.uint8], Codes, Codes]:
    """A buffer for values of these sizes, the start of each, and all offsets."""
    ends = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=ends[1:])
    return np.empty(int(ends[-1]), np.uint8), ends[:-1].copy(), ends


def _split(out: npt.NDArray[np.uint8], ends: Codes) -> list[bytes]:
    """Split a buffer into Python bytes; Arrow does it faster than slicing."""
    array = pa.Array.from_buffers(
        pa.large_binary(), len(ends) - 1, [None, pa.py_buffer(ends), pa.py_buffer(out)])
    values: list[bytes] = array.to_pylist()
    return values
