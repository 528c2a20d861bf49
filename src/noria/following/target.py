"""Sends a follower's requests to the server that has the tables (`server/http/following.py`).

Keeps true: a missing answer raises ConnectionError.  A refusal raises `CannotFollow` with the server's message.  If
another run has begun, or the server is unavailable, ConnectionError is raised too: a new run continues at the last
commit.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from noria.core.columns_codec import to_stream
from noria.core.errors.codes import READ_ONLY_MODE
from noria.following.address import CannotFollow
from noria.spark.source import wire

ARROW = "application/vnd.apache.arrow.stream"
APPLY_S = 600
_SCHEMA = pa.schema([("table", pa.string()), ("on", pa.string()), ("rows", pa.large_binary())])


class TargetServer:
    """The server, for one follower.  run: the name of the follower's run; a new one by default."""

    def __init__(self, url: str, name: str, run: str = ""):
        self.server, self.name, self.run = wire.Server.of({"url": url}), name, run or uuid.uuid4().hex

    def _post(self, what: str, body: dict[str, Any] | None = None) -> Any:
        return self._request(f"/follows/{self.name}/{what}", json.dumps({"run": self.run, **(body or {})}).encode())

    def _request(self, path: str, body: bytes, kind: str = wire.JSON) -> Any:
        try:
            with self.server.request("POST", path, body, kind, APPLY_S) as response:
                return json.loads(response.read())
        except wire.RequestRefused as e:
            if e.code == READ_ONLY_MODE.number or e.status == 503:
                raise ConnectionError(str(e)) from e
            raise CannotFollow(f"the server at {self.server.url} says: {e}") from e
        except ValueError as e:
            if isinstance(e, CannotFollow):
                raise
            raise ConnectionError(f"the answer of {self.server.url} broke off") from e

    def begin(self, record: dict[str, Any] | None = None) -> tuple[dict[str, Any] | None, int]:
        """Begin a run, and return the server's record of this follower and its position.  record: stored if given."""
        found = self._post("begin", {"record": record})
        return found["record"], int(found["at"])

    def note(self, record: dict[str, Any]) -> None:
        self._post("note", {"record": record})

    def sql(self, statement: str) -> None:
        self._post("sql", {"sql": statement})

    def report_progress(self, progress: dict[str, Any]) -> int:
        """Report the progress of this run.  Returns the number of rows that the first load has read."""
        return int(self._post("tell", {"told": progress})["loaded"])

    def apply(self, position: int, changes: Iterable[tuple[str, str, pa.RecordBatch]]) -> bool:
        some = [{"table": table, "on": on, "rows": to_stream(r).to_pybytes()} for table, on, r in changes]
        meta = {b"noria": json.dumps({"run": self.run, "position": position}).encode()}
        body = to_stream(pa.Table.from_pylist(some, _SCHEMA.with_metadata(meta))).to_pybytes()
        return bool(self._request(f"/follows/{self.name}/apply", body, ARROW)["done"])

    def release(self) -> None:
        self._request(f"/follows/{self.name}/release", b"{}")
