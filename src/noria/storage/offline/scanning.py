"""A process beside the server that reads snapshots for clients: `python -m noria.storage.offline.scanning`.

It reads requests from standard input, one line of JSON each.  It answers each on standard output with an Arrow stream
in frames: four bytes of length, then so many bytes; a length of 0 ends the stream.  A frame FAILED holds an error.

    {"checkpoint": path, "table": catalog.table_to_json, "columns": [positions], "first": hex, "end": hex, "skip": rows}
    {"parquet": path, "columns": [positions], "skip": rows}

Keeps true: the same request returns the same rows in the same order, so that a client that lost its connection
continues with `skip`.
"""

from __future__ import annotations

import io
import json
import os
import struct
import sys
from collections.abc import Iterator
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from noria.core.limits import SOURCE_FRAME_BYTES
from noria.core.values import arrow_type
from noria.storage.format.catalog import table_from_json
from noria.storage.offline.snapshot import BATCH_ROWS, KeyRange, read_checkpoint

LENGTH = struct.Struct("<I")
FAILED = 2**32 - 1  # instead of a length: an error follows, as a frame
NICE = 5  # the serving processes have priority


class Frames(io.RawIOBase):
    """A writable file that sends its bytes in frames of about SOURCE_FRAME_BYTES."""

    def __init__(self, out: BinaryIO):
        self._out, self._kept, self._size = out, list[bytes](), 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        chunk = bytes(data)
        self._kept.append(chunk)
        self._size += len(chunk)
        if self._size >= SOURCE_FRAME_BYTES:
            self.send()
        return len(chunk)

    def send(self) -> None:
        if self._size:
            frame = b"".join(self._kept)
            self._kept, self._size = [], 0
            self._out.write(LENGTH.pack(len(frame)) + frame)
            self._out.flush()


def batches(request: dict[str, Any]) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """The schema and the batches that a request selects, from its first row on."""
    if "parquet" in request:
        file = pq.ParquetFile(request["parquet"])
        names = [file.schema_arrow.names[c] for c in request["columns"]]
        return pa.schema([file.schema_arrow.field(n) for n in names]), file.iter_batches(BATCH_ROWS, columns=names)
    table = table_from_json(request["table"])
    some = KeyRange(*(None if request[k] is None else bytes.fromhex(request[k]) for k in ("first", "end")))
    columns = list(request["columns"])
    schema = pa.schema([(table.columns[c].name, arrow_type(table.columns[c].type)) for c in columns])
    return schema, read_checkpoint(request["checkpoint"], table, [some], columns)


def without(rows: Iterator[pa.RecordBatch], skip: int) -> Iterator[pa.RecordBatch]:
    """The batches without their first `skip` rows."""
    for batch in rows:
        left = batch.slice(skip) if skip else batch
        skip = max(0, skip - batch.num_rows)
        if left.num_rows:
            yield left


def answer(request: dict[str, Any], out: BinaryIO) -> None:
    frames = Frames(out)
    schema, rows = batches(request)
    with pa.ipc.new_stream(pa.PythonFile(frames, "w"), schema) as writer:
        for batch in without(rows, request["skip"]):
            writer.write_batch(batch)
    frames.send()
    out.write(LENGTH.pack(0))
    out.flush()


def main() -> None:
    os.nice(NICE)
    out = sys.stdout.buffer
    for line in sys.stdin.buffer:
        try:
            answer(json.loads(line), out)
        except BrokenPipeError:
            return
        except Exception as e:
            message = f"{type(e).__name__}: {e}".encode()
            out.write(LENGTH.pack(FAILED) + LENGTH.pack(len(message)) + message)
            out.flush()


if __name__ == "__main__":
    main()
