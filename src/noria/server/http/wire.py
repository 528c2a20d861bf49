"""Encodes the bodies of the HTTP interface: JSON for people and scripts, Arrow streams for programs.

An Arrow answer to a statement has the result's columns.  The number of affected rows, the generated id and the warnings
are JSON in the schema's metadata under `noria`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from noria.core.columns_codec import to_stream
from noria.core.errors import SqlError
from noria.core.errors.codes import UNKNOWN_ERROR
from noria.core.limits import OFF_LOOP_ROWS
from noria.server.arrow import plain
from noria.server.outcomes import Ok, Outcome, ResultSet
from noria.server.rows import arrow_rows, jsonable

META = b"noria"


def from_stream(body: bytes, what: str) -> pa.Table:
    """Decode a body.  Texts are checked for UTF-8 and times for their years, and each column gets a type that MySQL
    has.  what: the name of the rows, for the error.  Raises SqlError."""
    try:
        table = pa.ipc.open_stream(pa.py_buffer(body)).read_all()
        table.validate(full=True)
        names = table.column_names
        return pa.Table.from_arrays([plain(c, n) for n, c in zip(names, table.columns, strict=True)], names=names)
    except (pa.ArrowException, OSError, ValueError) as e:  # also for names of columns or zones that are not UTF-8
        raise SqlError(*UNKNOWN_ERROR, f"the body is no Arrow stream of {what}: {str(e)[:500]}") from None


def json_outcome(outcome: Outcome) -> dict[str, Any]:
    body: dict[str, Any] = {"warnings": _warnings(outcome)}
    if isinstance(outcome, ResultSet):
        body["columns"] = [f.name for f in outcome.fields]
        body["types"] = [f.type.sql() for f in outcome.fields]
        body["rows"] = [[jsonable(v) for v in row] for row in outcome.rows]
    elif isinstance(outcome, Ok):
        body.update(affected=outcome.affected, last_insert_id=outcome.last_insert_id, info=outcome.info)
    return body


def json_body(outcomes: Sequence[Outcome], about: Mapping[str, Any]) -> bytes:
    """Encode the outcomes of a text.  Rows are encoded in pieces, so another thread waits for at most one piece.
    about: further fields of the answer."""
    results = [b"".join(_json_result(o)) for o in outcomes]
    body = results[0] if len(results) == 1 else b'{"results":[' + b",".join(results) + b"]}"
    return body[:-1] + b"," + _dumped(dict(about))[1:] if about else body


def _json_result(outcome: Outcome) -> Iterator[bytes]:
    if not isinstance(outcome, ResultSet):
        yield _dumped(json_outcome(outcome))
        return
    yield _dumped(json_outcome(replace(outcome, rows=())))[:-2]  # up to `]}`
    for i in range(0, len(outcome.rows), OFF_LOOP_ROWS):
        chunk = _dumped([[jsonable(v) for v in row] for row in outcome.rows[i:i + OFF_LOOP_ROWS]])
        yield (b"," if i else b"") + chunk[1:-1]
    yield b"]}"


def _dumped(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def _warnings(outcome: Outcome) -> list[list[Any]]:
    return [list(w) for w in outcome.warnings] if isinstance(outcome, Ok | ResultSet) else []


def json_error(error: SqlError) -> dict[str, Any]:
    return {"error": {"code": error.code, "sqlstate": error.state, "message": error.message}}


def arrow_outcome(outcome: Outcome, further: Mapping[str, Any]) -> bytes:
    about: dict[str, Any] = {"warnings": _warnings(outcome), **further}
    if isinstance(outcome, ResultSet):
        table = arrow_rows(outcome.fields, outcome.rows)
        about["rows"] = True
    else:
        table = pa.table({})
        if isinstance(outcome, Ok):
            about.update(affected=outcome.affected, last_insert_id=outcome.last_insert_id, info=outcome.info)
    body: bytes = to_stream(table.replace_schema_metadata({META: json.dumps(about)})).to_pybytes()
    return body
