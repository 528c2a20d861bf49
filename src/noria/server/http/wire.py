"""Bodies of the HTTP interface: JSON for people and scripts, Arrow streams for programs.

An Arrow answer to a statement has the result's columns; what is not rows (affected rows, the generated id,
warnings) is JSON in the schema's metadata under `noria`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from noria.core.errors import SqlError
from noria.core.limits import OFF_LOOP_ROWS
from noria.server.outcomes import Ok, Outcome, ResultSet
from noria.server.rows import arrow_rows, jsonable

META = b"noria"


def to_stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def from_stream(body: bytes, what: str) -> pa.Table:
    """Every column is checked, texts for UTF-8 and times for years that there are, and has a type whose values MySQL
    has too."""
    try:
        table = pa.ipc.open_stream(pa.py_buffer(body)).read_all()
        table.validate(full=True)
        names = table.column_names
        return pa.Table.from_arrays([_plain(c, n) for n, c in zip(names, table.columns, strict=True)], names=names)
    except (pa.ArrowException, OSError, ValueError) as e:  # names of columns and zones may be no UTF-8 either
        raise SqlError(1105, "HY000", f"the body is no Arrow stream of {what}: {str(e)[:500]}") from None


def _plain(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    """The column with values as MySQL's clients send them: a time of the day is a TIME, a moment is in UTC."""
    kind, is_ = column.type, pa.types
    if is_.is_dictionary(kind):
        return _plain(pc.cast(column, kind.value_type), name)
    if is_.is_time(kind):
        return column.cast(pa.time64("us"), safe=False).cast(pa.int64()).cast(pa.duration("us"))
    if is_.is_float16(kind):
        return column.cast(pa.float32())
    if is_.is_timestamp(kind) or is_.is_date(kind) or is_.is_duration(kind):
        return _in_range(column, name)
    if not (is_.is_integer(kind) or is_.is_floating(kind) or is_.is_boolean(kind) or is_.is_null(kind)
            or is_.is_decimal(kind) or kind in _BYTES):
        raise SqlError(1105, "HY000", f"the column '{name}' has Arrow's type {kind}, which no SQL type is like; send "
                                      "numbers, texts, bytes, dates and times")
    return column


_BYTES = (pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary_view())
_SECONDS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_FIRST_S = int(datetime(1, 1, 1, tzinfo=UTC).timestamp())
_END_S = int(datetime(9999, 12, 31, tzinfo=UTC).timestamp()) + 86_400


def _in_range(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    """Dates and times of the years 1 to 9999, without a zone, and durations that are no longer than that."""
    kind = column.type
    if pa.types.is_date(kind):
        codes, unit = column.cast(pa.date32()).cast(pa.int32()).cast(pa.int64()), 1 / 86_400
    else:
        codes, unit = column.cast(pa.int64()), _SECONDS[kind.unit]
    found = pc.min_max(codes)
    low, high = found["min"].as_py(), found["max"].as_py()
    if low is not None and (low < _FIRST_S * unit or high >= _END_S * unit):
        raise SqlError(1292, "22007", f"Incorrect value in the column '{name}': it is not within the years 1 to 9999")
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return codes.cast(pa.timestamp(kind.unit))
    return column


def json_outcome(outcome: Outcome) -> dict[str, Any]:
    body: dict[str, Any] = {"warnings": _warnings(outcome)}
    if isinstance(outcome, ResultSet):
        body["columns"] = [f.name for f in outcome.fields]
        body["types"] = [f.type.sql() for f in outcome.fields]
        body["rows"] = [[jsonable(v) for v in row] for row in outcome.rows]
    elif isinstance(outcome, Ok):
        body.update(affected=outcome.affected, last_insert_id=outcome.last_insert_id, info=outcome.info)
    return body


def json_body(outcomes: Sequence[Outcome]) -> bytes:
    """What a text's statements gave; rows in pieces, so that another thread waits for no more than one."""
    results = [b"".join(_json_result(o)) for o in outcomes]
    return results[0] if len(results) == 1 else b'{"results":[' + b",".join(results) + b"]}"


def _json_result(outcome: Outcome) -> Iterator[bytes]:
    if not isinstance(outcome, ResultSet):
        yield _dumped(json_outcome(outcome))
        return
    yield _dumped(json_outcome(replace(outcome, rows=())))[:-2]  # up to `]}`
    for i in range(0, len(outcome.rows), OFF_LOOP_ROWS):
        piece = _dumped([[jsonable(v) for v in row] for row in outcome.rows[i:i + OFF_LOOP_ROWS]])
        yield (b"," if i else b"") + piece[1:-1]
    yield b"]}"


def _dumped(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def _warnings(outcome: Outcome) -> list[list[Any]]:
    return [list(w) for w in outcome.warnings] if isinstance(outcome, Ok | ResultSet) else []


def json_error(error: SqlError) -> dict[str, Any]:
    return {"error": {"code": error.code, "sqlstate": error.state, "message": error.message}}


def arrow_outcome(outcome: Outcome) -> bytes:
    about: dict[str, Any] = {"warnings": _warnings(outcome)}
    if isinstance(outcome, ResultSet):
        table = arrow_rows(outcome.fields, outcome.rows)
        about["rows"] = True
    else:
        table = pa.table({})
        if isinstance(outcome, Ok):
            about.update(affected=outcome.affected, last_insert_id=outcome.last_insert_id, info=outcome.info)
    return to_stream(table.replace_schema_metadata({META: json.dumps(about)}))
