"""The source's HTTP client, for its planner and tasks.

Keeps true: if the server refuses a request, `RequestRefused` has its message.  If it does not answer, `Unreachable`
says what to check.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from noria.runtime.transport.client_tls import client_context
from noria.runtime.transport.json_lines import json_lines
from noria.spark.source.errors import OptionError, Unreachable, UserError

JSON, PARQUET = "application/json", "application/vnd.apache.parquet"
TIMEOUT_S = 120  # of an ordinary request
JOB_TIMEOUT_S = 3_600  # of a request that may wait for the server's Spark


class RequestRefused(UserError):
    """The server refused a request: its message, error code and HTTP status."""

    def __init__(self, status: int, code: int, message: str):
        super().__init__(message)
        self.status, self.code = status, code

    def __reduce__(self) -> tuple[type[RequestRefused], tuple[int, int, str]]:
        return RequestRefused, (self.status, self.code, str(self))


@dataclass(frozen=True)
class Server:
    """A server's address and login.  The option "url" is http[s]://[user:password@]host[:port]."""

    url: str
    user: str = ""
    password: str = ""

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Server:
        url = options.get("url")
        if not url:
            raise OptionError("the option \"url\" is missing: the address of a server's HTTP port, as its `noria "
                             "ready` line "
                             "gives it, for example http://127.0.0.1:8080")
        try:
            parts = urlsplit(url if "//" in url else f"http://{url}")
            wrong = parts.scheme not in ("http", "https") or not parts.hostname or parts.path not in ("", "/")
            wrong = wrong or parts.port == 0
        except ValueError:  # a port beyond 65535
            wrong = True
        if wrong:
            raise OptionError(f"the option \"url\" is '{url}', which is no server's address: http[s]://HOST[:PORT]")
        plain = f"{parts.scheme}://{parts.hostname}:{parts.port or 8080}"
        return cls(plain, options.get("user") or unquote(parts.username or ""),
                   options.get("password") or unquote(parts.password or ""))

    @contextmanager
    def request(self, method: str, path: str, body: bytes | None = None, kind: str = JSON, timeout_s: float = TIMEOUT_S
              ) -> Iterator[http.client.HTTPResponse]:
        """Send a request; the block reads the response's body.  Raises Refused or Unreachable."""
        connection = self._connection(timeout_s)
        try:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the server refused the body
                connection.request(method, path, body, {"Content-Type": kind, **self._login()})
            response = connection.getresponse()
            if response.status != 200:
                raise _refused(response.status, response.read())
            yield response
        except (OSError, http.client.HTTPException) as e:
            raise Unreachable(f"the server at {self.url} did not answer ({_shown(e)}): does it run, and is this its "
                              "HTTP port?") from None
        finally:
            connection.close()

    def _connection(self, timeout_s: float) -> http.client.HTTPConnection:
        parts = urlsplit(self.url)
        assert parts.hostname is not None
        if parts.scheme == "https":
            return http.client.HTTPSConnection(parts.hostname, parts.port, timeout=timeout_s,
                                               context=client_context())
        return http.client.HTTPConnection(parts.hostname, parts.port, timeout=timeout_s)

    def _login(self) -> dict[str, str]:
        if not self.user:
            return {}
        return {"Authorization": "Basic " + base64.b64encode(f"{self.user}:{self.password}".encode()).decode()}

    # ------------------------------------------------------------ kinds of answers
    def get(self, path: str) -> Any:
        with self.request("GET", path) as response:
            return json.loads(response.read())

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        with self.request("POST", path, json.dumps(body).encode()) as response:
            return json.loads(response.read())

    def send(self, path: str, body: bytes) -> Any:
        """Send a part of a write, as Parquet."""
        with self.request("POST", path, body, PARQUET) as response:
            return json.loads(response.read())

    def lines(self, path: str, body: Mapping[str, Any]) -> Generator[dict[str, Any], None, None]:
        """Yield the lines of a JSON stream as they arrive.  Raises Refused for a line with an error."""
        with self.request("POST", path, json.dumps(body).encode(), timeout_s=JOB_TIMEOUT_S) as response:
            for step in json_lines(response):
                if "error" in step:
                    raise _refused(200, json.dumps(step).encode())
                yield step

    def stream(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the batches of an Arrow stream."""
        raw = None if body is None else json.dumps(body).encode()
        with self.request(method, path, raw, timeout_s=JOB_TIMEOUT_S) as response:
            yield from pa.ipc.open_stream(pa.PythonFile(response, "r"))


def _shown(e: Exception) -> str:
    return f"what came is no HTTP: {str(e)[:60]!r}" if isinstance(e, http.client.HTTPException) else str(e)


def _refused(status: int, raw: bytes) -> RequestRefused:
    try:
        error = json.loads(raw)["error"]
        return RequestRefused(status, int(error.get("code", 0)), str(error["message"]))
    except (ValueError, KeyError, TypeError):
        return RequestRefused(status, 0, f"the server answered {status}: {raw[:500].decode('utf-8', 'replace')}")
