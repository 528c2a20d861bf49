"""Reads of a present key in a view's own reader, compared with reads through the reader of another view (§5.1).

    python bench/read_through.py [--rounds 60]

    narrow   two of ten columns by a key of 1, 5 and 50 rows, read through a view of all columns
    cond     one column by a unique key and a condition, read through a view of all columns and rows

It measures the executor's part of a read, without protocol and kept replies.  Rounds alternate, and the best counts.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from typing import Any

import noria
from noria.control.catalog.view_index import reading
from noria.server.answering.result_finish import ResultFinish

ROWS = 1_000
TABLE = ("CREATE TABLE s (id INT PRIMARY KEY, a INT NOT NULL, kind INT, title VARCHAR(50), url VARCHAR(50), c5 INT, "
         "c6 INT, c7 VARCHAR(100), c8 INT, c9 VARCHAR(20))")
WIDE = ("CREATE VIEW wide AS SELECT * FROM s WHERE a = ?", "CREATE VIEW by_id AS SELECT * FROM s WHERE id = ?")
VIEWS = {"narrow": "SELECT id, title FROM s WHERE a = ?", "cond": "SELECT title FROM s WHERE id = ? AND kind = 3"}


class Served:
    def __init__(self, db: Any, per_key: int, wide: bool):
        self.db = db
        db.sql(TABLE)
        rows = (f"({i}, {i // per_key}, {i % 4}, 'title {i}', 'http://x/{i}', {i}, {i}, 'text {i}', {i}, 'c9 {i}')"
                for i in range(ROWS))
        db.sql(f"INSERT INTO s VALUES {', '.join(rows)}")
        for text in WIDE if wide else ():
            db.sql(text)
        for name, text in VIEWS.items():
            db.sql(f"CREATE VIEW {name} AS {text}")

    def round_us(self, name: str, keys: Sequence[tuple[int]]) -> float:
        executor = self.db.transport.executor
        view = executor.program.view(name)
        reader = executor.program.reader_now(view)
        through, shape = reading(reader, view), ResultFinish.of(view)
        start = time.perf_counter_ns()
        for key in keys:
            assert executor._one_key(reader, through, view, shape, key, True, None, None).rows is not None
        return (time.perf_counter_ns() - start) / len(keys) / 1000


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--rounds", type=int, default=60)
    rounds = options.parse_args().rounds
    for per_key in (1, 5, 50):
        with (tempfile.TemporaryDirectory() as a, tempfile.TemporaryDirectory() as b, noria.open(a) as own_db,
              noria.open(b) as lent_db):
            own, lent = Served(own_db, per_key, False), Served(lent_db, per_key, True)
            for name in VIEWS if per_key == 1 else ["narrow"]:
                keys = [(i,) for i in range(min(200, ROWS // per_key))]
                for served in (own, lent):
                    for key in keys:
                        served.db.view(name).lookup(key)
                times = [[s.round_us(name, keys) for s in (own, lent)] for _ in range(rounds)]
                before, after = (min(t) for t in zip(*times, strict=True))
                print(f"{name:7} {per_key:3} rows a key: {before:6.2f} µs → {after:6.2f} µs ({after / before:.2f})")


if __name__ == "__main__":
    main()
