"""CREATE, ALTER, TRUNCATE and DROP of small tables on Noria and on Debian's MariaDB, in one run on one machine.

The tables are made on both servers in turn, statement by statement.  Each line has the median milliseconds of a
statement while so many tables exist, on either server.

    python bench/definitions.py [--tables 240] [--parts 4]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence

import pymysql

from mysql import PASSWORD, USER, MariaDb, NoriaServer, servers

KINDS: Sequence[tuple[str, str]] = (
    ("CREATE TABLE", "CREATE TABLE dt{0} (id INT PRIMARY KEY AUTO_INCREMENT, a VARCHAR(100) NOT NULL, b INT, "
                     "KEY (b))"),
    ("INSERT", "INSERT INTO dt{0} (a, b) VALUES ('x', 1), ('y', 2)"),
    ("SELECT, first", "SELECT a FROM dt{0} WHERE b = 1"),
    ("ALTER, a column", "ALTER TABLE dt{0} ADD COLUMN c INT DEFAULT 3"),
    ("CREATE INDEX", "CREATE INDEX ia ON dt{0} (a)"),
    ("CREATE VIEW", "CREATE VIEW dv{0} AS SELECT a, COUNT(*) AS n FROM dt{0} GROUP BY a"),
    ("TRUNCATE", "TRUNCATE dt{0}"),
    ("DROP VIEW", "DROP VIEW dv{0}"),
    ("DROP TABLE", "DROP TABLE dt{0}"),
)


def timed_ms(cursor: pymysql.cursors.Cursor, statement: str) -> float:
    began = time.perf_counter()
    cursor.execute(statement)
    cursor.fetchall()
    return (time.perf_counter() - began) * 1e3


def line(kind: str, first: int, last: int, medians: dict[str, float]) -> str:
    shown = "   ".join(f"{name} {ms:7.2f} ms" for name, ms in medians.items())
    ours, theirs = medians.values()
    return f"{kind:16}{first:5}-{last:<5}  {shown}   {ours / theirs:5.2f}"


def measure(pair: Sequence[MariaDb | NoriaServer], tables: int, parts: int) -> None:
    cursors = {s.name: pymysql.connect(host=s.host, port=s.port, user=USER, password=PASSWORD, database="noria",
                                       autocommit=True).cursor() for s in pair}
    size = max(tables // parts, 1)
    for kind, text in KINDS:
        for first in range(0, tables, size):
            numbers = range(first, min(first + size, tables))
            times: dict[str, list[float]] = {name: [] for name in cursors}
            for n in numbers:
                for name, cursor in cursors.items():
                    times[name].append(timed_ms(cursor, text.format(n)))
            print(line(kind, numbers[0], numbers[-1], {k: statistics.median(v) for k, v in times.items()}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--tables", type=int, default=240)
    parser.add_argument("--parts", type=int, default=4, help="lines for each kind of statement")
    options = parser.parse_args()
    with servers("", "noria,mariadb") as pair:
        measure(pair, options.tables, options.parts)


if __name__ == "__main__":
    main()
