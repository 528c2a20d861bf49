"""A full-text index that a view's feed keeps up to date: python examples/search_index.py URL VIEW INDEX.db

The view's first column is the key of its rows; the others are searched.  Each transaction commits rows and their
watermark.  So the process may be killed and started again at any moment without losing or repeating a row.  Search
meanwhile, in any process:

    sqlite3 INDEX.db "SELECT key FROM pages WHERE pages MATCH 'views'"
"""

from __future__ import annotations

import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Iterable
from typing import Any

import noria
from noria.client.api import Changes, Database
from noria.core.errors import SqlError

TOO_OLD = 1236  # the feed does not have the changes since this watermark any more
AGAIN_S = 0.5


def opened(path: str) -> sqlite3.Connection:
    index = sqlite3.connect(path, isolation_level=None)
    index.execute("PRAGMA journal_mode = WAL")
    index.execute("CREATE VIRTUAL TABLE IF NOT EXISTS pages USING fts5(key UNINDEXED, text)")
    index.execute("CREATE TABLE IF NOT EXISTS position (only INTEGER PRIMARY KEY CHECK (only = 0), watermark TEXT)")
    return index


def position(index: sqlite3.Connection) -> str:
    return (index.execute("SELECT watermark FROM position").fetchone() or ("start",))[0]


def apply(index: sqlite3.Connection, changes: Iterable[tuple[int, tuple[Any, ...]]]) -> None:
    """Apply the net effect of changes.  Removals come first, because a changed row is a removal and an addition."""
    net: Counter[tuple[Any, ...]] = Counter()
    for sign, row in changes:
        net[row] += sign
    for (key, *texts), sign in sorted(net.items(), key=lambda change: change[1]):
        if sign < 0:
            index.execute("DELETE FROM pages WHERE key = ?", (key,))
        elif sign > 0:
            index.execute("INSERT INTO pages VALUES (?, ?)", (key, " ".join(str(t) for t in texts if t is not None)))


def follow(index: sqlite3.Connection, told: Iterable[Changes]) -> None:
    """Apply changes without an end.  All changes up to a watermark are one transaction with it."""
    changes: list[tuple[int, tuple[Any, ...]]] = []
    for some in told:
        if not index.in_transaction:
            index.execute("BEGIN")
            if position(index) == "start":
                index.execute("DELETE FROM pages")
        if some.kind == "rows":  # only additions
            apply(index, some)
        else:
            changes += some
        if some.watermark is not None:
            apply(index, changes)
            index.execute("INSERT OR REPLACE INTO position VALUES (0, ?)", (some.watermark,))
            index.execute("COMMIT")
            changes = []


def run(database: Database, view: str, path: str) -> None:
    while True:
        index = opened(path)
        try:
            follow(index, database.view(view).changes(position(index)))
        except ConnectionError as e:  # the server is being restarted
            print(f"{e}; again in {AGAIN_S} s", file=sys.stderr)
            time.sleep(AGAIN_S)
        except SqlError as e:
            if e.code != TOO_OLD:
                raise
            index.rollback()
            index.execute("DELETE FROM position")
        finally:
            index.close()


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    run(noria.connect(sys.argv[1]), *sys.argv[2:])
