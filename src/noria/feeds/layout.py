"""A feed on disk: one SQLite file, written by its worker, read by any process of the host.

    about     one row: the incarnation, what the columns are, which life of the worker writes
    content   the rows as they are: `published` times in what the log tells, `kept` times by the writer of `life`
    log       the changes: n, a signed weight, the row
    ticks     where a tick ends in the log, and when that was, in microseconds since 1970

A *watermark* is `incarnation.n`, of a tick.  Keeps true: what the ticks up to a watermark tell, from nothing on, is
what `content` had published then; a row of the log behind the last tick has been told to nobody; numbers never come
again.

A value is its code, as in the data-flow (`core/values.py`), but for texts: the text itself, with 0 for NULL and 1 for
one whose evaluation failed.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from noria.core.types import Field

FORMAT = 1
TEXT_NULL, TEXT_ERROR = 0, 1
Row = tuple[int | str, ...]


class Watermark(NamedTuple):
    """A moment of a feed."""

    incarnation: str
    n: int

    def __str__(self) -> str:
        return f"{self.incarnation}.{self.n}"


def watermark(text: str) -> Watermark | None:
    """None where the text is none."""
    incarnation, _, n = text.rpartition(".")
    fits = len(incarnation) == 16 and incarnation.isalnum() and n.isascii() and n.isdigit() and len(n) < 19
    return Watermark(incarnation, int(n)) if fits else None


def feed_path(directory: Path, name: str) -> Path:
    """The file of the feed of this name (folded)."""
    return directory / f"{sha256(name.encode()).hexdigest()[:32]}.feed"


def told_types(fields: Sequence[Field]) -> str:
    """What the columns are, such that a file of other ones is told."""
    return f"{FORMAT} {[(f.name, f.type) for f in fields]!r}"


def connect(path: Path) -> sqlite3.Connection:
    """Statements by hand: no transaction begins by itself."""
    return sqlite3.connect(path, timeout=10, isolation_level=None, check_same_thread=False)


def columns(width: int) -> str:
    return ", ".join(f"c{i}" for i in range(width))


def made(db: sqlite3.Connection, width: int) -> None:
    """The tables of a new file."""
    named = columns(width)
    db.execute("CREATE TABLE about (incarnation TEXT, fields TEXT, life INTEGER, name TEXT)")
    db.execute(f"CREATE TABLE content ({named}, published INTEGER, kept INTEGER, life INTEGER, "
               f"PRIMARY KEY ({named})) WITHOUT ROWID")
    db.execute(f"CREATE TABLE log (n INTEGER PRIMARY KEY AUTOINCREMENT, weight INTEGER, {named})")
    db.execute("CREATE TABLE ticks (n INTEGER PRIMARY KEY, at INTEGER)")
