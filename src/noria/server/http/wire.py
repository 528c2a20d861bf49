"""Bodies of the HTTP interface: JSON for people and scripts, Arrow streams for programs.

An Arrow answer to a statement has the result's columns; what is not rows (affected rows, the generated id,
warnings) is JSON in the schema's metadata under `noria`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

from noria.core.coerce import show_time
from noria.core.errors import SqlError
from noria.core.types import Field, Kind, SqlType
from noria.core.values import arrow_type
from noria.server.mysql.backend import Ok, Outcome, ResultSet

META = b"noria"


def to_stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def from_stream(body: bytes, what: str) -> pa.Table:
    """Every column of which has been checked, texts for UTF-8 too."""
    try:
        table = pa.ipc.open_stream(pa.py_buffer(body)).read_all()
        table.validate(full=True)
        return table
    except (pa.ArrowException, OSError, ValueError) as e:
        raise SqlError(1105, "HY000", f"the body is no Arrow stream of {what}: {e}") from None


def jsonable(value: Any) -> Any:
    """Dates as ISO text, decimals as text with all their digits, bytes as text."""
    if isinstance(value, (date, datetime)):
        return value.isoformat(" ") if isinstance(value, datetime) else value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, timedelta):
        return show_time(value, 6 if value.microseconds else 0)
    return value


def json_outcome(outcome: Outcome, warnings: Sequence[Sequence[Any]]) -> dict[str, Any]:
    body: dict[str, Any] = {"warnings": [list(w) for w in warnings]}
    if isinstance(outcome, ResultSet):
        body["columns"] = [f.name for f in outcome.fields]
        body["types"] = [f.type.sql() for f in outcome.fields]
        body["rows"] = [[jsonable(v) for v in row] for row in outcome.rows]
    elif isinstance(outcome, Ok):
        body.update(affected=outcome.affected, last_insert_id=outcome.last_insert_id, info=outcome.info)
    return body


def json_error(error: SqlError) -> dict[str, Any]:
    return {"error": {"code": error.code, "sqlstate": error.state, "message": error.message}}


def arrow_rows(fields: Sequence[Field], rows: Sequence[Sequence[Any]]) -> pa.Table:
    columns: list[Sequence[Any]] = list(zip(*rows, strict=True)) if rows else [()] * len(fields)
    arrays = [_array(c, f.type) for c, f in zip(columns, fields, strict=True)]
    # Names of result columns may repeat, which a schema allows and a dictionary would not.
    return pa.Table.from_arrays(arrays, names=[f.name for f in fields])


def _array(values: Sequence[Any], type: SqlType) -> pa.Array:
    """Sums may have a digit more than any DECIMAL column: then the column is as wide as Arrow's are."""
    try:
        return pa.array(values, arrow_type(type))
    except pa.ArrowInvalid:
        if type.kind is not Kind.DECIMAL:
            raise
        return pa.array(values, pa.decimal128(38, type.scale))


def arrow_outcome(outcome: Outcome, warnings: Sequence[Sequence[Any]]) -> bytes:
    about: dict[str, Any] = {"warnings": [list(w) for w in warnings]}
    if isinstance(outcome, ResultSet):
        table = arrow_rows(outcome.fields, outcome.rows)
        about["rows"] = True
    else:
        table = pa.table({})
        if isinstance(outcome, Ok):
            about.update(affected=outcome.affected, last_insert_id=outcome.last_insert_id, info=outcome.info)
    return to_stream(table.replace_schema_metadata({META: json.dumps(about)}))
