"""Noria on Spark: a database for read-heavy applications.  Queries are views, which writes keep up to date.

    noria.connect("http://127.0.0.1:8080")     a running server (`noria serve`)
    noria.open("data")                         a database in this process
    noria.dbapi.connect(…)                     either of them, with DB-API 2.0
    await noria.aio.connect(…)                 a server, for asyncio; `aio.open` opens a database
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from noria import aio as aio
    from noria import dbapi as dbapi
    from noria.client import connect as connect
    from noria.client import open as open
    from noria.core.errors import SqlError as SqlError

__version__ = "0.1.0"
__all__ = ["SqlError", "aio", "connect", "dbapi", "open"]


def __getattr__(name: str) -> object:
    """Import a public name at its first use, because workers import this package, too, and need none of them."""
    import importlib

    places = {"connect": "noria.client", "open": "noria.client", "SqlError": "noria.core.errors"}
    if name in ("aio", "dbapi"):
        return importlib.import_module(f"noria.{name}")
    if name in places:
        return getattr(importlib.import_module(places[name]), name)
    raise AttributeError(f"module 'noria' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__", "__doc__", "__name__", "__path__", "__file__"])
