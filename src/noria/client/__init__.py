"""The Python API: `noria.connect` to a running server, `noria.open` for an embedded one."""

from __future__ import annotations

from os import PathLike

from noria.client.api import Database, Result, Table, View

__all__ = ["Database", "Result", "Table", "View", "connect", "open"]


def connect(url: str = "http://127.0.0.1:8080") -> Database:
    """A running server, by the address after `http=` in its `noria ready` line; with a password
    `http://user:password@host:port`."""
    from noria.client.transport import HttpTransport

    return Database(HttpTransport(url))


def open(path: str | PathLike[str], memory_limit: int | None = None, workers: int = 1) -> Database:
    """A database inside this process, without Spark: the same tables and views over the same API.  The
    directory is created if it is missing and refused if another process has it open.  workers: among how many shards
    tables and views are spread; they share this process, so it is for tests of what a server of several does."""
    from noria.client.embedded import EmbeddedTransport

    return Database(EmbeddedTransport(path, memory_limit, workers))
