"""LATERAL, which MariaDB lacks: each query has an equal one without it.  Views of it follow the tables."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.local import LocalServer
from e2e.statements.asking import code, rows

SETUP = ("CREATE TABLE p (id INT PRIMARY KEY, g INT)", "CREATE TABLE c (id INT PRIMARY KEY, p INT, n INT, KEY (p))")
BEST = "SELECT n FROM c WHERE c.p = p.id ORDER BY n DESC, c.id LIMIT 1"
PAIRS = (
    ("SELECT p.id, q.m FROM p, LATERAL (SELECT MAX(n) AS m FROM c WHERE c.p = p.id) q",
     "SELECT id, (SELECT MAX(n) FROM c WHERE c.p = p.id) FROM p"),
    ("SELECT p.id, m, s FROM p JOIN LATERAL (SELECT MIN(n), SUM(n) FROM c WHERE p.id = c.p AND n > 2) AS q (m, s) "
     "ON TRUE",
     "SELECT id, (SELECT MIN(n) FROM c WHERE c.p = p.id AND n > 2), (SELECT SUM(n) FROM c WHERE c.p = p.id AND n > 2) "
     "FROM p"),
    (f"SELECT p.id, q.n FROM p JOIN LATERAL ({BEST}) q ON TRUE",
     "SELECT p.id, MAX(n) FROM p JOIN c ON c.p = p.id GROUP BY p.id"),
    (f"SELECT p.id, q.n FROM p LEFT JOIN LATERAL ({BEST}) q ON TRUE",
     "SELECT p.id, MAX(n) FROM p LEFT JOIN c ON c.p = p.id GROUP BY p.id"),
    (f"SELECT p.id, q.n FROM p LEFT JOIN LATERAL ({BEST}) q ON q.n > 3",
     "SELECT p.id, IF(MAX(n) > 3, MAX(n), NULL) FROM p LEFT JOIN c ON c.p = p.id GROUP BY p.id"),
    ("SELECT p.id, q.i FROM p JOIN LATERAL (SELECT c.id AS i FROM c WHERE c.p = p.id ORDER BY c.id LIMIT 2 OFFSET 1) q "
     "ON 1 WHERE p.g = 1",
     "SELECT p.id, w.id FROM p JOIN (SELECT id, p, ROW_NUMBER() OVER (PARTITION BY p ORDER BY id) AS r FROM c) w "
     "ON w.p = p.id WHERE w.r IN (2, 3) AND p.g = 1"),
    ("SELECT p.id, q.n, q.k FROM p CROSS JOIN LATERAL (SELECT n, COUNT(*) AS k FROM c WHERE c.p = p.id GROUP BY n) q",
     "SELECT p.id, n, COUNT(*) FROM p JOIN c ON c.p = p.id GROUP BY p.id, n"),
    ("SELECT p.id, q.x FROM p, LATERAL (SELECT 5 AS x) q", "SELECT id, 5 FROM p"),
    ("SELECT p.id, a.m, b.i FROM p, LATERAL (SELECT MAX(n) AS m FROM c WHERE c.p = p.id) a LEFT JOIN LATERAL "
     "(SELECT c.id AS i FROM c WHERE c.n = a.m AND c.p = p.id) b ON TRUE",
     "SELECT p.id, a.m, c.id FROM p LEFT JOIN (SELECT p, MAX(n) AS m FROM c GROUP BY p) a ON a.p = p.id "
     "LEFT JOIN c ON c.p = p.id AND c.n = a.m"),
)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LocalServer]:
    found = LocalServer(tmp_path / "noria")
    with found.connect() as c:
        for text in SETUP:
            rows(c, text)
    yield found
    found.close()


def test_each_equals_a_query_without_it(server: LocalServer) -> None:
    draw = random.Random(7)
    with server.connect() as c:
        for n, (text, _) in enumerate(PAIRS):
            rows(c, f"CREATE MATERIALIZED VIEW v{n} AS {text}")
        rows(c, "INSERT INTO p VALUES " + ", ".join(f"({n}, {n % 2})" for n in range(6)))
        for n in range(40):
            row = draw.randrange(15), draw.randrange(7), draw.randrange(6)
            write = draw.choice((f"REPLACE INTO c VALUES {row}", f"DELETE FROM c WHERE id = {draw.randrange(15)}",
                                 f"UPDATE c SET n = {draw.randrange(6)} WHERE p = {draw.randrange(6)}"))
            rows(c, write)
            if n % 8:
                continue
            for at, (text, same) in enumerate(PAIRS):
                wanted = sorted(rows(c, same), key=str)
                with server.answering(one_shot=True):
                    assert sorted(rows(c, text), key=str) == wanted, text
                assert sorted(rows(c, f"SELECT * FROM v{at}"), key=str) == wanted, text
        server.validate()


def test_what_is_refused(server: LocalServer) -> None:
    with server.connect() as c:
        for text in ("SELECT * FROM p, LATERAL (SELECT MAX(n) AS m FROM c WHERE c.p = p.id) q",
                     "SELECT q.* FROM p, LATERAL (SELECT MAX(n) AS m FROM c WHERE c.p = p.id) q",
                     "SELECT q.m FROM p, LATERAL (SELECT COUNT(*) AS m FROM c WHERE c.p = p.id) q",
                     "SELECT q.m FROM p, LATERAL (SELECT BIT_OR(n) AS m FROM c WHERE c.p = p.id) q",
                     "SELECT q.m FROM p, LATERAL (SELECT MAX(n) AS m FROM c WHERE c.p > p.id) q",
                     "SELECT q.m FROM p, LATERAL (SELECT n + p.g AS m FROM c WHERE c.p = p.id) q",
                     "SELECT q.m FROM p JOIN LATERAL (SELECT MAX(n) AS m FROM c WHERE c.p = p.id) q ON q.m > 2",
                     "SELECT q.m FROM p, LATERAL (SELECT DISTINCT n AS m FROM c WHERE c.p = p.id LIMIT 1) q",
                     "SELECT q.m FROM LATERAL (SELECT 1 AS m) q"):
            assert code(c, text) == 1235, text
        assert code(c, "SELECT q.m FROM p, LATERAL (SELECT n AS m FROM c WHERE p = id AND g = 1) q") == 1054
