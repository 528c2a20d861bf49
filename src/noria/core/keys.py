"""`shard_of` returns the worker that owns a key (§6.2): one function for the data-flow, for routing and for Spark.

Keeps true: the result depends only on the folded values, not on symbol ids, processes or runs.  Numbers and dates hash
by code.  Text hashes by the UTF-8 bytes of its folded form, or of itself if the collation is binary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from noria.core.batch import Codes
from noria.core.limits import NULL_CODE
from noria.core.symbols import Symbols, fold
from noria.core.types import Kind, SqlType
from noria.core.values import encode, from_arrow, texts_of
from noria.kernels import njit

Hashes = npt.NDArray[np.uint64]
_NULL_HASH = np.uint64(0x9E3779B97F4A7C15)
_FNV_START, _FNV_PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)
_WORD = (1 << 64) - 1
_SHORT_TEXT = 64  # bytes up to which a loop in Python is faster than building an Arrow array


def shard_of(
    columns: Sequence[Codes | pa.Array], types: Sequence[SqlType], workers: int, symbols: Symbols | None = None
) -> Codes:
    """Return the owner of each row of key columns, 0 to workers - 1.

    A column is an Arrow array of values (in Spark's tasks) or an array of codes.  Codes of text need `symbols`.
    """
    total = np.zeros(len(columns[0]), np.uint64)
    for column, type in zip(columns, types, strict=True):
        mix_in(total, _words(column, type, symbols))
    owners = np.empty(len(total), np.int64)
    part(total, workers, owners)
    return owners


def _words(column: Codes | pa.Array, type: SqlType, symbols: Symbols | None) -> Hashes:
    """Return a new array with a word for each value.  Equal keys have equal words.  The words are not mixed yet."""
    if not type.is_text:
        codes = column if isinstance(column, np.ndarray) else from_arrow(column, type, cast(Symbols, symbols))
        return codes.view(np.uint64).copy()
    if type.is_bytes and not isinstance(column, np.ndarray):
        column = texts_of(column)
    if isinstance(column, np.ndarray):
        if symbols is None:
            raise TypeError("codes of text need the symbol table that gave them")
        texts = symbols.texts(symbols.folded(column) if type.folds else column)
    else:
        texts = folded_texts(column) if type.folds else column.cast(pa.large_string())
    hashes = np.full(len(texts), _NULL_HASH)
    hash_texts(text_bytes(texts), text_offsets(texts), hashes)
    if texts.null_count:
        hashes[texts.is_null().to_numpy(zero_copy_only=False)] = _NULL_HASH
    return hashes


def folded_texts(array: pa.Array) -> pa.Array:
    """Apply `symbols.fold` to texts, as a large_string array.  Only texts that are not ASCII run through Python."""
    texts = array.cast(pa.large_string())
    if pc.all(pc.string_is_ascii(texts)).as_py() is not False:
        return pc.ascii_lower(texts)
    plain = pc.string_is_ascii(texts)
    odd = texts.filter(pc.invert(plain)).to_pylist()
    folded = pa.array([fold(t) for t in odd], pa.large_string())
    return pc.replace_with_mask(pc.ascii_lower(texts), pc.fill_null(pc.invert(plain), False), folded)


def text_offsets(texts: pa.Array) -> Codes:
    """Return the offset of each text of a large_string array in `text_bytes`, and the end."""
    offsets: Codes = np.frombuffer(texts.buffers()[1], np.int64)[texts.offset : texts.offset + len(texts) + 1]
    return offsets if len(offsets) else np.zeros(1, np.int64)


def text_bytes(texts: pa.Array) -> npt.NDArray[np.uint8]:
    """Return the bytes of all texts of a large_string array; `text_offsets` says where each begins."""
    data = texts.buffers()[2]
    return np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(1, np.uint8)


@njit(nogil=True)
def _mix(x: np.uint64) -> np.uint64:
    """Mix the bits of a word bijectively (the finaliser of splitmix64)."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _mix_in(total: Hashes, words: Hashes) -> None:
    """Mix the words of one more column into the hash of each key."""
    for row in range(len(total)):
        total[row] = _mix(total[row] ^ _mix(words[row]))


def _part(total: Hashes, workers: int, out: Codes) -> None:
    """Write the worker of each hash: the range of hashes has one equal part for each worker."""
    for row in range(len(total)):
        out[row] = np.int64((total[row] >> np.uint64(32)) * np.uint64(workers) >> np.uint64(32))


def _hash_texts(data: npt.NDArray[np.uint8], offsets: Codes, out: Hashes) -> None:
    """Write the FNV-1a hash of each text's bytes."""
    for row in range(len(offsets) - 1):
        hashed = _FNV_START
        for at in range(offsets[row], offsets[row + 1]):
            hashed = (hashed ^ np.uint64(data[at])) * _FNV_PRIME
        out[row] = hashed


hash_texts: Callable[..., Any] = njit(nogil=True)(_hash_texts)
mix_in: Callable[..., Any] = njit(nogil=True)(_mix_in)
part: Callable[..., Any] = njit(nogil=True)(_part)


# ------------------------------------------------------------------ one key of Python values
def shard_of_key(key: Sequence[Any], hashers: Sequence[Callable[[Any], int]], workers: int) -> int:
    """Return the owner of one key, within some microseconds.  hashers: `hasher` of each column's type."""
    total = 0
    for value, hashed in zip(key, hashers, strict=True):
        total = _mix_one(total ^ hashed(value))
    return ((total >> 32) * workers) >> 32


@cache
def hasher(type: SqlType) -> Callable[[Any], int]:
    """Return the function that hashes a Python value of the type, or None."""
    if type.is_text:
        return _text_hasher(type)
    if type.kind is Kind.INT:
        return lambda value: _mix_one(_NULL_WORD if value is None else int(value) & _WORD)
    return lambda value: _mix_one(encode(value, type, cast(Symbols, None)) & _WORD)


def _text_hasher(type: SqlType) -> Callable[[Any], int]:
    def hashed(value: Any) -> int:
        if value is None:
            return _NULL_TEXT
        text = value.decode("latin-1") if isinstance(value, bytes) else value
        data = (fold(text) if type.folds else text).encode()
        if len(data) > _SHORT_TEXT:
            return _mix_one(int(_words(pa.array([value]), type, None)[0]))
        word = 0xCBF29CE484222325
        for byte in data:
            word = (word ^ byte) * 0x100000001B3 & _WORD
        return _mix_one(word)

    return hashed


def _mix_one(x: int) -> int:
    """Compute `_mix` in plain Python."""
    x = (x + 0x9E3779B97F4A7C15) & _WORD
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & _WORD
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & _WORD
    return x ^ (x >> 31)


_NULL_WORD, _NULL_TEXT = NULL_CODE & _WORD, _mix_one(int(_NULL_HASH))
