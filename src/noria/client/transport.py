"""How the Python API reaches a database: over HTTP here, in-process in `embedded.py`.

Keeps true: a transport may be used by several threads; each has its own connection.  A request that fails before
its answer began is sent again only if it was a read: a write may have been applied.
"""

from __future__ import annotations

import base64
import http.client
import json
import threading
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import quote, unquote, urlencode, urlsplit

import pyarrow as pa

from noria.core.errors import SqlError

ARROW = "application/vnd.apache.arrow.stream"
TIMEOUT_S = 120  # of one request; bulk jobs send a line of progress long before


@dataclass(frozen=True)
class Answer:
    """Of one statement: rows as Arrow (None for a statement without rows) and what MySQL's OK packet says."""

    rows: pa.Table | None = None
    affected: int = 0
    last_insert_id: int = 0
    warnings: tuple[tuple[str, int, str], ...] = field(default=())


class Transport(Protocol):
    def sql(self, text: str, parameters: list[Any]) -> Answer: ...

    def insert(self, table: str, rows: pa.Table, on_duplicate: str) -> int: ...

    def lookup(self, view: str, keys: pa.Table) -> pa.Table: ...

    def describe(self, kind: str, name: str) -> dict[str, Any]:
        """kind: tables or views."""

    def attachment(self) -> dict[str, Any]: ...

    def close(self) -> None: ...


def to_stream(table: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


class HttpTransport:
    """A server's HTTP interface, `http://[user:password@]host[:port]`."""

    def __init__(self, url: str):
        parts = urlsplit(url if "//" in url else f"http://{url}")
        if parts.scheme != "http" or not parts.hostname or parts.path not in ("", "/"):
            raise ValueError(f"'{url}' is no server's address: http://[user:password@]HOST[:PORT], "
                             "as the server's `noria ready` line gives it")
        self.host, self.port = parts.hostname, parts.port or 8080
        self._headers: dict[str, str] = {}
        if parts.username:
            login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            self._headers["Authorization"] = "Basic " + base64.b64encode(login.encode()).decode()
        self._local = threading.local()
        self._all: list[http.client.HTTPConnection] = []

    # ------------------------------------------------------------ the API's questions
    def sql(self, text: str, parameters: list[Any]) -> Answer:
        body = json.dumps({"sql": text, "parameters": parameters}, default=str).encode()
        raw = self._request("POST", "/sql", body, {"Accept": ARROW, "Content-Type": "application/json"})
        table = pa.ipc.open_stream(pa.py_buffer(raw)).read_all()
        about = json.loads(table.schema.metadata[b"noria"])
        return Answer(table.replace_schema_metadata(None) if about.get("rows") else None, about.get("affected", 0),
                      about.get("last_insert_id", 0), tuple((w[0], w[1], w[2]) for w in about["warnings"]))

    def insert(self, table: str, rows: pa.Table, on_duplicate: str) -> int:
        path = f"/tables/{quote(table, safe='')}/rows?" + urlencode({"on_duplicate": on_duplicate})
        return int(json.loads(self._request("POST", path, to_stream(rows), {"Content-Type": ARROW}))["affected"])

    def lookup(self, view: str, keys: pa.Table) -> pa.Table:
        path = f"/views/{quote(view, safe='')}/lookup"
        raw = self._request("POST", path, to_stream(keys), {"Content-Type": ARROW}, again=True)
        return pa.ipc.open_stream(pa.py_buffer(raw)).read_all()

    def describe(self, kind: str, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._request("GET", f"/{kind}/{quote(name, safe='')}", again=True))
        return found

    def attachment(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._request("GET", "/attach", again=True))
        return found

    def close(self) -> None:
        for connection in self._all:
            connection.close()

    # ------------------------------------------------------------ HTTP
    def lines(self, path: str, body: dict[str, Any]) -> Any:
        """The lines of JSON of a bulk job, as they come."""
        connection = http.client.HTTPConnection(self.host, self.port)  # a job may be silent for long
        try:
            connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json", **self._headers})
            response = connection.getresponse()
            if response.status != 200:
                _raise(response.status, response.read())
            for line in response:
                step = json.loads(line)
                if "error" in step:
                    _raise(200, line)
                yield step
        finally:
            connection.close()

    def _request(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None,
                 again: bool = False) -> bytes:
        reused = getattr(self._local, "connection", None) is not None
        connection = self._connection()
        try:
            connection.request(method, path, body, {**(headers or {}), **self._headers})
            response = connection.getresponse()
            raw = response.read()
        except (http.client.HTTPException, OSError) as e:
            connection.close()
            self._local.connection = None
            if again and reused:  # the server closed a connection that was idle
                return self._request(method, path, body, headers)
            raise ConnectionError(f"the server at {self.host}:{self.port} did not answer: {e}") from e
        if response.status != 200:
            _raise(response.status, raw)
        return raw

    def _connection(self) -> http.client.HTTPConnection:
        connection: http.client.HTTPConnection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = http.client.HTTPConnection(self.host, self.port, timeout=TIMEOUT_S)
            self._local.connection = connection
            self._all.append(connection)
        return connection


def _raise(status: int, raw: bytes) -> None:
    try:
        error = json.loads(raw)["error"]
    except (ValueError, KeyError, TypeError):
        text = raw.decode("utf-8", "replace").strip()
        raise ConnectionError(f"the server answered {status}: {text}") from None
    raise SqlError(error["code"], error["sqlstate"], error["message"])
