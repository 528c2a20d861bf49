"""The Python API: `noria.connect` to a running server, `noria.open` for an embedded one."""

from __future__ import annotations

from os import PathLike

from noria.client.api import Database, Result, Table, Transaction, View

__all__ = ["Database", "Result", "Table", "Transaction", "View", "connect", "open"]


def connect(url: str = "http://127.0.0.1:8080", database: str = "") -> Database:
    """Connect to a running server.  url: the address after `http=` in its `noria ready` line; with a password,
    `http://user:password@host:port`.  database: of names without one; by default the server's."""
    from noria.client.transport import HttpTransport

    return Database(HttpTransport(url, database))


def open(path: str | PathLike[str], memory_limit: int | None = None, workers: int = 1, *, database: str = ""
         ) -> Database:
    """Open a database inside this process, without Spark, with the same API.

    The directory is created if missing, and refused if another process has it open.  `memory_limit`: in bytes, for all
    shards.  `workers`: the number of shards; they share this process, which is useful only in tests.  `database`: of
    names without one."""
    from noria.client.embedded import EmbeddedTransport

    return Database(EmbeddedTransport(path, memory_limit, workers, database=database))
