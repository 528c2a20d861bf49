"""Connects the Python API to a database: over HTTP here, in-process in `embedded.py`.

Keeps true: several threads may use a transport; each has its own connection.  A request whose connection breaks is
repeated only if it is a read: a write may have been applied.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import os
import re
import socket
import threading
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import quote, unquote, urlencode, urlsplit

import pyarrow as pa

from noria.core.columns_codec import to_stream
from noria.core.errors import SqlError, not_supported
from noria.core.limits import FEED_ALIVE_S
from noria.runtime.transport.client_tls import client_context
from noria.runtime.transport.json_lines import json_lines
from noria.server.bulk.load_permit import PROOF_HEADER, TOKEN_FILE, proof
from noria.server.http.bodies import ARROW, JSON, TRANSACTION_HEADER
from noria.server.http.parameters import encoded

TIMEOUT_S = 120  # of one request; the requests of bulk jobs have none


@dataclass(frozen=True)
class StatementAnswer:
    """The answer to a statement: rows as Arrow (None for one without rows), and the fields of MySQL's OK packet.
    transaction: the token, if the statement's transaction is still open."""

    rows: pa.Table | None = None
    affected: int = 0
    last_insert_id: int = 0
    warnings: tuple[tuple[str, int, str], ...] = field(default=())
    transaction: str | None = None


class Transport(Protocol):
    """The requests to a database.  transaction: the token of the transaction to which a request belongs."""

    place: str  # the database's address or directory
    database: str  # of names without one; "": the server's default

    def sql(self, text: str, parameters: list[Any], found_rows: bool = False, transaction: str | None = None
            ) -> StatementAnswer: ...

    def insert(self, table: str, rows: pa.Table, on_duplicate: str, transaction: str | None = None) -> int: ...

    def lookup(self, view: str, keys: pa.Table, transaction: str | None = None) -> pa.Table: ...

    def begin(self, text: str) -> str:
        """Begin a transaction by these statements, and return its token."""

    def roll_back(self, transaction: str) -> None:
        """Roll a transaction back.  One that has ended stays as it is."""

    def describe(self, kind: str, name: str) -> dict[str, Any]:
        """Return the description of a table or view.  kind: tables or views."""

    def attachment(self) -> dict[str, Any]: ...

    def changes(self, name: str, since: str) -> Iterator[tuple[pa.RecordBatch, dict[str, str]]]:
        """Yield batches of a feed, each with its kind and watermark, without an end."""

    def close(self) -> None: ...


class HttpTransport:
    """A server's HTTP interface, `http[s]://[user:password@]host[:port]`.  A certificate is checked against this host's
    authorities, or against those in the file of the variable SSL_CERT_FILE.  database: of names without one; "": the
    server's default."""

    def __init__(self, url: str, database: str = ""):
        self.database = database
        parts = urlsplit(url if "//" in url else f"http://{url}")
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.path not in ("", "/"):
            raise ValueError(f"'{url}' is no server's address: http[s]://[user:password@]HOST[:PORT], "
                             "as the server's `noria ready` line gives it")
        self.host, self.port = parts.hostname, parts.port or 8080
        self.place = f"{parts.scheme}://{self.host}:{self.port}"
        self._tls = client_context() if parts.scheme == "https" else None
        self._headers: dict[str, str] = {}
        if parts.username:
            login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            self._headers["Authorization"] = "Basic " + base64.b64encode(login.encode()).decode()
        self._local = threading.local()
        self._all: list[http.client.HTTPConnection] = []

    def _path(self, kind: str, name: str, what: str = "", **query: str) -> str:
        """The path of a table or view, with its query.  kind: tables or views."""
        named = urlencode({**query, **({"database": self.database} if self.database else {})})
        return f"/{kind}/{quote(name, safe='')}{what}" + (f"?{named}" if named else "")

    # ------------------------------------------------------------ the API's requests
    def sql(self, text: str, parameters: list[Any], found_rows: bool = False, transaction: str | None = None
            ) -> StatementAnswer:
        answer = self._sql(text, parameters, found_rows, transaction)
        if transaction is None and answer.transaction is not None:
            self.roll_back(answer.transaction)
            raise over_several_calls()
        return answer

    def begin(self, text: str) -> str:
        token = self._sql(text, [], again=True).transaction
        assert token is not None, "the statements begin a transaction"
        return token

    def roll_back(self, transaction: str) -> None:
        with contextlib.suppress(SqlError):  # it has ended
            self._sql("ROLLBACK", [], transaction=transaction)

    def _sql(self, text: str, parameters: list[Any], found_rows: bool = False, transaction: str | None = None,
             again: bool = False) -> StatementAnswer:
        values = [encoded(number, value) for number, value in enumerate(parameters, 1)]
        request = {"sql": text, "parameters": values, **({"found_rows": True} if found_rows else {}),
                   **({"database": self.database} if self.database else {})}
        body = json.dumps(request).encode()
        raw = self._request("POST", "/sql", body, {"Accept": ARROW, "Content-Type": JSON, **_of(transaction)}, again)
        table = pa.ipc.open_stream(pa.py_buffer(raw)).read_all()
        about = json.loads(table.schema.metadata[b"noria"])
        return StatementAnswer(table.replace_schema_metadata(None) if about.get("rows") else None,
                               about.get("affected", 0), about.get("last_insert_id", 0),
                               tuple((w[0], w[1], w[2]) for w in about["warnings"]), about.get("transaction"))

    def insert(self, table: str, rows: pa.Table, on_duplicate: str, transaction: str | None = None) -> int:
        path = self._path("tables", table, "/rows", on_duplicate=on_duplicate)
        raw = self._request("POST", path, to_stream(rows), {"Content-Type": ARROW, **_of(transaction)})
        return int(json.loads(raw)["affected"])

    def lookup(self, view: str, keys: pa.Table, transaction: str | None = None) -> pa.Table:
        path = self._path("views", view, "/lookup")
        raw = self._request("POST", path, to_stream(keys), {"Content-Type": ARROW, **_of(transaction)}, again=True)
        return pa.ipc.open_stream(pa.py_buffer(raw)).read_all()

    def describe(self, kind: str, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._request("GET", self._path(kind, name), again=True))
        return found

    def attachment(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._request("GET", "/attach", again=True))
        return found

    def changes(self, name: str, since: str) -> Iterator[tuple[pa.RecordBatch, dict[str, str]]]:
        connection = self._connect(2 * FEED_ALIVE_S)
        try:
            path = self._path("views", name, "/changes", since=since, format="arrow")
            connection.request("GET", path, headers=self._headers)
            response = connection.getresponse()
            if response.status != 200:
                _raise(response.status, response.read())
        except BaseException:
            connection.close()
            raise
        return self._read_changes(connection, response)

    def _read_changes(self, connection: http.client.HTTPConnection, response: http.client.HTTPResponse
              ) -> Iterator[tuple[pa.RecordBatch, dict[str, str]]]:
        try:
            stream = pa.ipc.open_stream(pa.PythonFile(response, "r"))
            while True:
                batch, about = stream.read_next_batch_with_custom_metadata()
                yield batch, {k.decode(): v.decode() for k, v in (about or {}).items()}
        except (StopIteration, http.client.HTTPException, OSError, pa.ArrowException) as e:
            raise ConnectionError(f"the server at {self.host}:{self.port} tells no more: {e}") from e
        finally:
            connection.close()

    def program(self) -> str:
        """Return the running program as SQL text."""
        return self._request("GET", "/program", again=True).decode()

    def close(self) -> None:
        for connection in self._all:
            connection.close()

    def load(self, request: dict[str, Any]) -> Generator[dict[str, Any], None, None]:
        """Run a load and yield its steps of progress.  It may name any file that the server can read, if the server is
        on this host and this user can read its token."""
        return self._proven("/load", request)

    def loaded(self, name: str) -> str:
        """Return the state of the load with this name: "under way", "done" or "nothing"."""
        return str(json.loads(self._request("GET", f"/loads/{quote(name, safe='')}", again=True))["state"])

    def export(self, request: dict[str, Any]) -> Generator[dict[str, Any], None, None]:
        """Run an export and yield its steps; as for `load`, the token allows any path."""
        return self._proven("/export", request)

    def _proven(self, path: str, request: dict[str, Any]) -> Generator[dict[str, Any], None, None]:
        about = self.attachment()
        token = read_token(str(about.get("load_token", ""))) if about.get("host") == socket.gethostname() else None
        body = json.dumps(request).encode()
        return self._lines(path, body, {} if token is None else {PROOF_HEADER: proof(token, body)})

    # ------------------------------------------------------------ HTTP
    def lines(self, path: str, body: dict[str, Any]) -> Generator[dict[str, Any], None, None]:
        """Run a bulk job and yield its lines of JSON as they arrive."""
        return self._lines(path, json.dumps(body).encode(), {})

    def _lines(self, path: str, body: bytes, headers: dict[str, str]) -> Generator[dict[str, Any], None, None]:
        connection = self._connect(None)  # a job may be silent for long
        try:
            connection.request("POST", path, body, {"Content-Type": JSON, **headers, **self._headers})
            response = connection.getresponse()
            if response.status != 200:
                _raise(response.status, response.read())
            for step in json_lines(response):
                if "error" in step:
                    _raise(200, json.dumps(step).encode())
                yield step
        finally:
            connection.close()

    def _request(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None,
                 again: bool = False) -> bytes:
        reused = getattr(self._local, "connection", None) is not None
        connection = self._connection()
        try:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the server refused the body
                connection.request(method, path, body, {**(headers or {}), **self._headers})
            response = connection.getresponse()
            raw = response.read()
        except (http.client.HTTPException, OSError) as e:
            connection.close()
            self._local.connection = None
            if again and reused:  # the server may have closed the idle connection
                return self._request(method, path, body, headers)
            hint = ": start one with `noria serve`, or give the address after `http=` in its ready line"
            raise ConnectionError(f"the server at {self.host}:{self.port} did not answer: {e}"
                                  f"{hint if isinstance(e, ConnectionRefusedError) else ''}") from e
        if response.status != 200:
            _raise(response.status, raw)
        return raw

    def _connection(self) -> http.client.HTTPConnection:
        connection: http.client.HTTPConnection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._connect(TIMEOUT_S)
            self._local.connection = connection
            self._all.append(connection)
        return connection


    def _connect(self, timeout: float | None) -> http.client.HTTPConnection:
        if self._tls is None:
            return http.client.HTTPConnection(self.host, self.port, timeout=timeout)
        return http.client.HTTPSConnection(self.host, self.port, timeout=timeout, context=self._tls)


def over_several_calls() -> SqlError:
    """Return the error for a call that ends within a transaction; it was rolled back."""
    return not_supported("a transaction over several calls", "each is a session of its own, so this one was rolled "
                         "back: use `with db.transaction()`, or send BEGIN … COMMIT as one text")


def _of(transaction: str | None) -> dict[str, str]:
    return {} if transaction is None else {TRANSACTION_HEADER: transaction}


def read_token(path: str) -> bytes | None:
    """Return the token of a server's data directory, or None.  The path comes from the server, so only a file with the
    token's name is opened."""
    if os.path.basename(path) != TOKEN_FILE:
        return None
    try:
        with open(path, "rb") as f:
            found = f.read(65)
    except OSError:
        return None
    return found if re.fullmatch(rb"[0-9a-f]{64}", found) else None


def _raise(status: int, raw: bytes) -> None:
    try:
        error = json.loads(raw)["error"]
    except (ValueError, KeyError, TypeError):
        text = raw.decode("utf-8", "replace").strip()
        raise ConnectionError(f"the server answered {status}: {text}") from None
    if status == 401:
        raise ConnectionError(f"the server answered 401: {error['message']}")
    raise SqlError(error["code"], error["sqlstate"], error["message"])
