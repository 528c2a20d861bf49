"""Reads request bodies: within a bound, of the right type, and JSON checked before anything uses it.

Keeps true: a body of another Content-Type is rejected, so that no web page can send one without a CORS preflight.  A
body with too large a Content-Length is rejected before it is read, any other one while it is read.  Texts that are not
UTF-8 and invalid numbers are rejected here.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any, NoReturn

from starlette.requests import Request

from noria.core import limits
from noria.core.errors import SqlError
from noria.core.errors.codes import NET_PACKET_TOO_LARGE, TRUNCATED_WRONG_VALUE_FOR_FIELD, UNKNOWN_ERROR
from noria.server.http.parameters import decoded
from noria.server.http.request_filter import HttpError
from noria.sql.text.databases import named_in

JSON = "application/json"
ARROW = "application/vnd.apache.arrow.stream"
PARQUET = "application/vnd.apache.parquet"
TRANSACTION_HEADER = "Noria-Transaction"  # the token of the transaction to which a request belongs
MOST = {JSON: limits.HTTP_JSON_BYTES, ARROW: limits.HTTP_ARROW_BYTES, PARQUET: limits.SOURCE_PART_BYTES}


async def read(request: Request, kind: str) -> bytes:
    """Read the body.  kind: the required Content-Type.  Raises Refused 415 for another type, and 413 if it is large."""
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != kind:
        raise HttpError(415, *UNKNOWN_ERROR, f"{request.method} {request.scope['path'][:100]} takes a body with "
                                           f"Content-Type: {kind}, not {content_type[:100] or 'without one'}")
    most = MOST[kind]
    if int(request.headers.get("content-length", "0")) > most:  # digits: the HTTP parser has checked that
        raise _too_large(kind)
    chunks, size = [], 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > most:
            raise _too_large(kind)
        chunks.append(chunk)
    return b"".join(chunks)


def _too_large(kind: str) -> HttpError:
    return HttpError(413, *NET_PACKET_TOO_LARGE, f"Got a body bigger than {MOST[kind]} bytes, the most of the type "
                                               f"{kind}; send the data in smaller requests, or by `noria load`")


def parse(raw: bytes, keys: Mapping[str, str], empty: bool = False) -> dict[str, Any]:
    """Parse a JSON object.  keys: the allowed keys, with meanings for the error.  empty: the body may be absent."""
    if not raw and empty:
        return {}
    try:
        body = json.loads(raw, parse_constant=_no_number)
        _check_texts(body)
    except UnicodeEncodeError as e:
        raise incorrect_string(e) from None
    except RecursionError:
        raise wrong("the body is nested too deeply") from None
    except ValueError as e:
        raise wrong(f"the body is no JSON: {e}") from None
    if not isinstance(body, dict):
        raise wrong("the body is no JSON object")
    for key in body:
        if key not in keys:
            raise wrong(f"there is no '{key[:100]}' in this request: {_listed(keys)}")
    return body


def parameters(values: Any) -> list[Any]:
    """Return the values for the `?` of a statement.  Raises SqlError if they are no list."""
    if not isinstance(values, list):
        raise wrong('"parameters" is a list of values, one for each ?')
    return decoded(values)


def name_of(request: Request) -> str:
    """Return the table or view that the path names, in the database of `?database=` if that is given."""
    return named_in(request.query_params.get("database", ""), request.path_params["name"])


def database_of(body: dict[str, Any]) -> str:
    """Return the body's database; "" if it has none."""
    found = body.get("database", "")
    if not isinstance(found, str):
        raise wrong('"database" is a name')
    return found


def in_database(body: dict[str, Any], key: str) -> dict[str, Any]:
    """Return the body with the name under `key` in the body's database, if it has one."""
    database = database_of(body)
    return {**body, key: named_in(database, str(body[key]))} if database else body


def incorrect_string(error: UnicodeEncodeError) -> SqlError:
    """Return the error for a text with half of a surrogate pair, which UTF-8 cannot encode."""
    units = error.object[error.start:error.start + 3].encode("utf-8", "surrogatepass")[:6]
    shown = "".join(f"\\x{b:02X}" for b in units)
    return SqlError(*TRUNCATED_WRONG_VALUE_FOR_FIELD,
                    f"Incorrect string value: '{shown}' at character {error.start + 1} of a text in the "
                    "body; send whole characters")


def wrong(message: str) -> SqlError:
    return SqlError(*UNKNOWN_ERROR, message)


def _check_texts(value: Any) -> None:
    """Raise UnicodeEncodeError for a text that UTF-8 cannot encode."""
    if isinstance(value, str):
        if not value.isascii():
            value.encode()
    elif isinstance(value, dict):
        for key, inner in value.items():
            _check_texts(key)
            _check_texts(inner)
    elif isinstance(value, list):
        for inner in value:
            _check_texts(inner)


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


def _listed(keys: Mapping[str, str] | Collection[str]) -> str:
    about = keys.items() if isinstance(keys, Mapping) else ((k, "") for k in keys)
    return ", ".join(f'"{k}": {what}' for k, what in about) or "it has an empty object for a body"


__all__ = ["ARROW", "JSON", "TRANSACTION_HEADER", "database_of", "in_database", "incorrect_string", "name_of",
           "parameters", "parse", "read", "wrong"]
