"""The format of a feed on disk: one SQLite file, which its worker writes and any process of the host reads.

    about     one row: the incarnation, the columns' types, the number of the writer's life, the feed's name
    content   rows with two multiplicities: `published` as of the log, `kept` in the state of the writer of `life`
    log       the changes: number n, signed weight, row
    ticks     the n at which each tick ends in the log, and its time in microseconds since 1970

A *watermark* is `incarnation.n`, where n ends a tick.  Keeps true: the rows as of a watermark, with the later changes
up to another one, are the rows as of that one.  No reader sees log rows behind the last tick.  No number is used twice.

A value is its code, as in the data-flow (`core/values.py`).  A text is itself, with 0 for NULL and 1 for an evaluation
error.
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
    """A position in a feed at the end of a tick."""

    incarnation: str
    n: int

    def __str__(self) -> str:
        return f"{self.incarnation}.{self.n}"


def watermark(text: str) -> Watermark | None:
    """Parse a watermark; None if the text is none."""
    incarnation, _, n = text.rpartition(".")
    fits = len(incarnation) == 16 and incarnation.isalnum() and n.isascii() and n.isdigit() and len(n) < 19
    return Watermark(incarnation, int(n)) if fits else None


def feed_path(directory: Path, name: str) -> Path:
    """Return the path of the feed with this folded name."""
    return directory / f"{sha256(name.encode()).hexdigest()[:32]}.feed"


def types_text(fields: Sequence[Field]) -> str:
    """Return a text of the columns' names and types, by which a file with other columns is recognised."""
    return f"{FORMAT} {[(f.name, f.type) for f in fields]!r}"


def connect(path: Path) -> sqlite3.Connection:
    """Open the file without implicit transactions: the caller begins and commits them."""
    return sqlite3.connect(path, timeout=10, isolation_level=None, check_same_thread=False)


def columns(width: int) -> str:
    return ", ".join(f"c{i}" for i in range(width))


def made(db: sqlite3.Connection, width: int) -> None:
    """Create the tables of a new file."""
    named = columns(width)
    db.execute("CREATE TABLE about (incarnation TEXT, fields TEXT, life INTEGER, name TEXT)")
    db.execute(f"CREATE TABLE content ({named}, published INTEGER, kept INTEGER, life INTEGER, "
               f"PRIMARY KEY ({named})) WITHOUT ROWID")
    db.execute(f"CREATE TABLE log (n INTEGER PRIMARY KEY AUTOINCREMENT, weight INTEGER, {named})")
    db.execute("CREATE TABLE ticks (n INTEGER PRIMARY KEY, at INTEGER)")
