"""Queries beside MariaDB while rows change: each as a view, after evictions, and as a one-shot."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from math import isclose
from pathlib import Path
from typing import Any

import pymysql

from e2e.local import LocalServer
from e2e.mariadb import MariaDb

RELATIVE = 1e-9
TABLE = ("CREATE TABLE t (id INT PRIMARY KEY, g INT, i INT, b BIGINT, d DECIMAL(12,3), f DOUBLE, s VARCHAR(20), "
         "u INT UNSIGNED)")


def same(a: Any, b: Any) -> bool:
    """Whether two values are equal; doubles to nine digits."""
    if isinstance(a, float) and isinstance(b, float):
        return isclose(a, b, rel_tol=RELATIVE, abs_tol=1e-12)
    if isinstance(a, str) and isinstance(b, str) and a[:1] in "[{" and a[:1] == b[:1]:
        return members(a) == members(b)
    if isinstance(a, int | Decimal) and isinstance(b, int | Decimal):
        return a == b
    return type(a) is type(b) and bool(a == b)


def members(text: str) -> Any:
    """A document.  The order of an array's members is the server's choice."""
    try:
        found = json.loads(text)
    except ValueError:
        return text
    return sorted(map(json.dumps, found)) if isinstance(found, list) else found


def equal_rows(ours: Sequence[Any], theirs: Sequence[Any]) -> bool:
    """Whether the rows are the same in any order."""
    def key(row: Any) -> str:
        return repr([None if v is None else f"{v:.6e}" if isinstance(v, float) else str(v).lower() for v in row])

    a, b = sorted(ours, key=key), sorted(theirs, key=key)
    return len(a) == len(b) and all(len(x) == len(y) and all(map(same, x, y)) for x, y in zip(a, b, strict=True))


def asked(connection: Any, text: str) -> Any:
    """The rows, or the number of the error."""
    with connection.cursor() as cursor:
        try:
            cursor.execute(text)
            return list(cursor.fetchall())
        except pymysql.err.MySQLError as e:
            return e.args[0]


class Beside:
    """A Noria and a MariaDB with the same tables."""

    def __init__(self, server: LocalServer, ours: Any, theirs: Any):
        self.server, self.ours, self.theirs = server, ours, theirs

    def write(self, text: str) -> None:
        assert asked(self.ours, text) == asked(self.theirs, text), text

    def check(self, query: str, wanted: Callable[[list[Any]], list[Any]] = lambda rows: rows) -> None:
        """By the view, by a one-shot and, after an eviction, by the view again.  wanted: what MySQL 8 returns instead
        of MariaDB's rows."""
        theirs = asked(self.theirs, query)
        theirs = wanted(theirs) if isinstance(theirs, list) else theirs
        for way in (False, True, None):
            if way is None:
                self.server.evict()
            with self.server.answering(one_shot=way is True):
                ours = asked(self.ours, query)
            alike = equal_rows(ours, theirs) if isinstance(ours, list) and isinstance(theirs, list) else ours == theirs
            assert alike, f"{query}\n  {'one-shot' if way else 'view'}: {ours}\n  wanted: {theirs}"

    def same_ways(self, query: str) -> Any:
        """The rows by a view, which a one-shot returns, too, to the letter."""
        with self.server.answering(one_shot=False):
            view = asked(self.ours, query)
        with self.server.answering(one_shot=True):
            once = asked(self.ours, query)
        assert once == view or sorted(map(repr, once)) == sorted(map(repr, view)), f"{query}\n  {view}\n  {once}"
        return view


@contextmanager
def beside(maria: MariaDb, directory: Path, workers: int, tables: Sequence[str] = (TABLE,), front_ends: int = 1
           ) -> Iterator[Beside]:
    theirs = maria.connect(None)
    for text in ("DROP DATABASE IF EXISTS beside", "CREATE DATABASE beside", "USE beside"):
        asked(theirs, text)
    server = LocalServer(directory / "data", workers=workers, front_ends=front_ends)
    ours = server.connect()
    try:
        both = Beside(server, ours, theirs)
        for text in tables:
            assert asked(ours, text) == [] and asked(theirs, text) == [], text
        yield both
        server.validate()
    finally:
        ours.close()
        theirs.close()
        server.close()


def row(chance: random.Random, number: int) -> str:
    """A row of `TABLE`, with NULLs, equal values, and noise on large numbers."""
    def some(*values: Any) -> str:
        return str(chance.choice([*values, "NULL"]))

    noise = chance.randrange(-50, 50)
    return (f"({number}, {some(1, 2, 2, 3)}, {some(chance.randrange(-5, 6), 7, -2000000000)}, "
            f"{some(1_000_000 + noise, 10**7 + noise)}, {some(noise / 8, '10000.125', 0)}, "
            f"{some(1e4 + noise / 1000, 0.1, 1e4 + 0.1)}, {some(*map(repr, ('a', 'A', 'ab', 'bc', 'c', '')))}, "
            f"{some(chance.randrange(16), 4294967295)})")


def changes(chance: random.Random, n: int) -> Iterator[str]:
    """Inserts, updates and deletes of few rows of `TABLE`, so that groups become empty, too."""
    yield "INSERT INTO t VALUES " + ", ".join(row(chance, i) for i in range(12))
    for _ in range(n):
        at, kind = chance.randrange(16), chance.randrange(5)
        if kind < 2:
            yield f"REPLACE INTO t VALUES {row(chance, at)}"
        elif kind == 2:
            yield f"DELETE FROM t WHERE id = {at}"
        elif kind == 3:
            group = chance.randrange(1, 4)
            yield f"UPDATE t SET f = f + 0.5, i = i + 1, b = b - 3, g = {group} WHERE id % 5 = {at % 5}"
        else:
            yield f"DELETE FROM t WHERE g = {chance.randrange(1, 4)}"
