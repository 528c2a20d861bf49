"""Encodes columns as bytes: NumPy arrays raw, Arrow data as an IPC stream, few texts as msgpack, which is faster.

    kind, data type, number of dimensions: one byte each; five bytes of padding; then the data

Keeps true: decoding returns valid data or raises.  If the bytes are aligned, so is the returned data.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

ARRAY, TABLE, BATCH, COLUMN, TEXTS, SCHEMA = range(6)
FEW_BYTES = 10_000  # bytes of texts up to which a list is encoded and decoded faster than an IPC stream
KINDS = (np.ndarray, pa.Table, pa.RecordBatch, pa.ChunkedArray, pa.Schema, pa.LargeStringArray)
ARRAYS = pa.Array  # the base class of all other columns
_DTYPES = {np.dtype(name).str: np.dtype(name) for name in (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64")}
_CODES = {name: i for i, name in enumerate(_DTYPES)}
_BY_CODE = tuple(_DTYPES.values())
HEAD = struct.Struct("<BBB5x")
_TEXT_LIST = msgspec.msgpack.Decoder(list[str | None])
_LARGE = pa.large_string()


def encode(value: Any) -> Any:
    """Encode columns.  Returns bytes or a buffer.  Raises TypeError for an array of another type."""
    if isinstance(value, np.ndarray):
        return _array(value)
    if isinstance(value, pa.Table):
        return _stream(TABLE, value)
    if isinstance(value, pa.RecordBatch):
        return _stream(BATCH, value)
    if isinstance(value, pa.Schema):
        return _head(SCHEMA) + value.serialize().to_pybytes()
    if isinstance(value, pa.Array) and value.type == _LARGE and value.nbytes <= FEW_BYTES:
        return _head(TEXTS) + msgspec.msgpack.encode(value.to_pylist())
    if isinstance(value, pa.ChunkedArray):
        value = value.combine_chunks()
    return _stream(COLUMN, pa.RecordBatch.from_arrays([value], [""]))


def _head(what: int, dtype: int = 0, dimensions: int = 0) -> bytes:
    return HEAD.pack(what, dtype, dimensions)


def _array(value: np.ndarray[Any, Any]) -> bytes:
    code = _CODES.get(value.dtype.str)
    if code is None:
        raise TypeError(f"an array of {value.dtype} is no part of a message")
    return _head(ARRAY, code, value.ndim) + _shape(value.ndim).pack(*value.shape) + value.tobytes()


@lru_cache(maxsize=256)
def _shape(dimensions: int) -> struct.Struct:
    return struct.Struct(f"<{dimensions}q")


def _stream(what: int, value: pa.Table | pa.RecordBatch) -> Any:
    sink = pa.BufferOutputStream()
    sink.write(_head(what))
    with pa.ipc.new_stream(sink, value.schema) as stream:
        stream.write(value)
    return sink.getvalue()


def to_stream(rows: pa.Table | pa.RecordBatch) -> pa.Buffer:
    """Write rows as an Arrow IPC stream alone, the form of rows in HTTP requests and between Spark's tasks."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write(rows)
    return sink.getvalue()


def decode(data: bytes) -> Any:
    what, dtype, dimensions = HEAD.unpack_from(data)
    if what == ARRAY:
        shape = _shape(dimensions).unpack_from(data, HEAD.size)
        if shape and min(shape) < 0:
            raise ValueError(f"an array of the shape {shape}")
        return np.frombuffer(data, _BY_CODE[dtype], offset=HEAD.size + 8 * dimensions).reshape(shape)
    if what == TEXTS:
        return pa.array(_TEXT_LIST.decode(memoryview(data)[HEAD.size:]), _LARGE)
    rest = pa.py_buffer(data).slice(HEAD.size)
    if what == SCHEMA:
        return pa.ipc.read_schema(rest)
    if what not in (TABLE, BATCH, COLUMN):
        raise ValueError(f"columns of kind {what}")
    return _read_stream(what, rest)


def _read_stream(what: int, rest: pa.Buffer) -> Any:
    with pa.ipc.open_stream(rest) as stream:
        found = stream.read_all() if what == TABLE else stream.read_next_batch()
    found.validate()
    for column in found.columns:
        if not pa.types.is_decimal(column.type):  # a code may have more digits than its type declares
            column.validate(full=True)
    return found.column(0) if what == COLUMN else found
