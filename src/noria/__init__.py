"""Noria on Spark: a database for read-heavy applications whose queries are views kept fresh incrementally."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from noria.client import connect as connect
    from noria.client import open as open

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """`connect` and `open` are the client's; imported when asked for, since workers import this package too."""
    if name in ("connect", "open"):
        from noria import client

        return getattr(client, name)
    raise AttributeError(f"module 'noria' has no attribute '{name}'")
