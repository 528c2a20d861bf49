"""INSERT … SELECT, and UPDATE and DELETE with joins, subqueries, ORDER BY or LIMIT, beside MariaDB: counts, info lines,
errors and rows; of one worker and of three, as texts and prepared.  Transactions, locks and FOREIGN KEYs with them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pymysql
import pytest

import noria
from e2e.local import LocalServer
from e2e.mariadb import MariaDb, needs_mariadb
from e2e.serving import until
from noria.core.errors import SqlError
from server.sessions.connection import Connection

SCHEMA = (
    "CREATE TABLE author (id INT PRIMARY KEY, name VARCHAR(20), posts INT NOT NULL DEFAULT 0, best INT)",
    "CREATE TABLE post (id INT AUTO_INCREMENT PRIMARY KEY, author INT, title VARCHAR(20), score DECIMAL(6,2),"
    " at DATETIME)",
    "CREATE TABLE vote (post INT, voter INT, weight INT NOT NULL DEFAULT 1, PRIMARY KEY (post, voter))",
    "CREATE TABLE seen (id INT PRIMARY KEY, title VARCHAR(20) UNIQUE, n INT NOT NULL)",
    "INSERT INTO author (id, name) VALUES (1, 'Ann'), (2, 'Bob'), (3, 'Cid'), (4, NULL)",
    "INSERT INTO post (id, author, title, score) VALUES (1, 1, 'one', 1.5), (2, 1, 'two', 2), (3, 2, 'three', NULL),"
    " (4, 2, 'four', 4.25), (5, 3, 'five', 5), (6, NULL, 'six', 6)",
    "INSERT INTO vote VALUES (1, 1, 1), (1, 2, 2), (2, 1, 3), (4, 1, 1), (4, 2, 1), (4, 3, 1), (9, 1, 1)",
)
STATEMENTS = (
    "INSERT INTO seen SELECT id, title, 0 FROM post WHERE id < 4",
    "INSERT INTO seen SELECT id, title, 0 FROM post WHERE id > 90",
    "INSERT INTO seen SELECT id, title, 0 FROM post ORDER BY id",  # a duplicate: nothing is kept
    "INSERT IGNORE INTO seen SELECT id, title, 0 FROM post ORDER BY id",
    "INSERT INTO seen (id, title, n) SELECT id, title, 1 FROM post WHERE id < 3 ORDER BY id"
    " ON DUPLICATE KEY UPDATE n = seen.n + VALUES(n)",
    "REPLACE INTO seen SELECT id + 1, title, 7 FROM post WHERE id = 1",
    "INSERT INTO seen SELECT 70, 'seventy', 7",
    "INSERT INTO seen (n, id) SELECT COUNT(*), 71 FROM post",
    "INSERT INTO seen SELECT author, MAX(title), COUNT(*) FROM post WHERE author = 3 GROUP BY author"
    " ON DUPLICATE KEY UPDATE n = VALUES(n)",
    "INSERT INTO seen (id, n) SELECT id + 80, posts FROM author"
    " UNION ALL SELECT voter + 100, 1 FROM vote WHERE post = 4",
    "INSERT INTO seen (id, n) SELECT id, NULL FROM author WHERE id = 4",
    "INSERT INTO seen (id) SELECT id, n FROM seen",
    "INSERT INTO post (author, title) SELECT author, CONCAT(title, '!') FROM post WHERE id < 3 ORDER BY id",
    "INSERT INTO post (id, title, at) SELECT 20, title, '2024-05-06 07:08:09' FROM seen WHERE id = 70",
    "UPDATE author SET posts = (SELECT COUNT(*) FROM post WHERE post.author = author.id)",
    "UPDATE author SET posts = (SELECT COUNT(*) FROM post WHERE post.author = author.id)",
    "UPDATE author a SET best = (SELECT MAX(id) FROM post p WHERE p.author = a.id), name = CONCAT(name, '*')"
    " WHERE id < 3",
    "UPDATE author SET best = 9 WHERE id IN (SELECT author FROM post WHERE score > 4)",
    "UPDATE author SET best = best + 1 WHERE NOT EXISTS (SELECT 1 FROM post WHERE post.author = author.id)",
    "UPDATE author SET best = 1 WHERE best > (SELECT AVG(id) FROM post)",
    "UPDATE post JOIN author ON author.id = post.author SET post.title = author.name, post.score = post.score + 1"
    " WHERE author.posts > 1",
    "UPDATE post p LEFT JOIN vote v ON v.post = p.id SET p.score = 0 WHERE v.post IS NULL",
    "UPDATE post p, vote v SET p.score = p.score + 1, v.weight = v.weight * 10 WHERE v.post = p.id AND v.voter = 1",
    "UPDATE vote v JOIN post p ON v.post = p.id JOIN author a ON a.id = p.author SET v.weight = a.id"
    " WHERE a.name = 'Bob*'",
    "UPDATE vote v JOIN (SELECT post, SUM(weight) AS total FROM vote GROUP BY post) s ON s.post = v.post"
    " SET v.weight = s.total WHERE v.voter = 2",
    "UPDATE post SET title = 'first' ORDER BY id LIMIT 2",
    "UPDATE post SET id = id + 1 ORDER BY id DESC",
    "UPDATE post SET title = UPPER(title) WHERE author = 1 ORDER BY score DESC, id LIMIT 1",
    "UPDATE author SET id = 2 WHERE id = 1 ORDER BY id LIMIT 1",
    "UPDATE author JOIN post ON post.author = author.id SET author.name = NULL, author.posts = NULL WHERE post.id = 2",
    "UPDATE author SET nope = (SELECT 1 FROM post)",
    "UPDATE post JOIN author SET id = 1",
    "DELETE FROM vote ORDER BY weight DESC, post, voter LIMIT 1",
    "DELETE FROM vote WHERE post NOT IN (SELECT id FROM post)",
    "DELETE FROM vote WHERE (SELECT COUNT(*) FROM post WHERE post.id = vote.post) = 0",
    "DELETE v FROM vote v JOIN post p ON p.id = v.post WHERE p.author = 1",
    "DELETE FROM a, p USING author AS a INNER JOIN post AS p ON p.author = a.id WHERE a.id = 3",
    "DELETE post, vote FROM post LEFT JOIN vote ON vote.post = post.id WHERE post.title LIKE 'f%'",
    "DELETE x FROM post JOIN vote ON vote.post = post.id",
    "DELETE post FROM post JOIN vote ON vote.post = post.id LIMIT 1",
    "DELETE LOW_PRIORITY QUICK FROM post ORDER BY id LIMIT 2",
)
PREPARED = (
    ("INSERT INTO seen (id, title, n) SELECT id + ?, CONCAT(?, title), ? FROM post WHERE id <= ?", (40, "x", 5, 2)),
    ("UPDATE author SET posts = ? + (SELECT COUNT(*) FROM post WHERE author = author.id AND id > ?)", (3, 1)),
    ("UPDATE post JOIN author ON author.id = post.author SET post.title = ? WHERE author.name = ?", ("t", "Ann")),
    ("UPDATE post SET title = ? ORDER BY id LIMIT ?", ("s", 2)),
    ("DELETE FROM vote WHERE post IN (SELECT id FROM post WHERE author = ?) ORDER BY post, voter LIMIT ?", (1, 2)),
    ("DELETE v FROM vote v JOIN post p ON p.id = v.post WHERE p.author = ?", (2,)),
)
TABLES = ("author", "post", "vote", "seen")


@pytest.fixture(scope="module")
def maria(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDb]:
    with closing(MariaDb(tmp_path_factory.mktemp("maria"))) as running:
        yield running


def outcomes(connection: Any, run: Any) -> list[Any]:
    """Of each statement its counts or error, and all rows after it."""
    with connection.cursor() as cursor:
        for text in SCHEMA:
            cursor.execute(text)
        return [(*found, rows(cursor)) for found in run(cursor)]


def texts(cursor: Any) -> Iterator[tuple[Any, ...]]:
    for text in STATEMENTS:
        try:
            affected = cursor.execute(text)
            words = (cursor.connection._result.message or b"").decode().split("Warnings")[0]
            yield text, affected, words, cursor.lastrowid if "INTO post" in text else 0
        except pymysql.MySQLError as e:
            yield text, e.args[0]


def rows(cursor: Any) -> list[Any]:
    found = []
    for table in TABLES:
        cursor.execute(f"SELECT * FROM {table} ORDER BY 1, 2")
        found.append(cursor.fetchall())
    return found


@needs_mariadb
@pytest.mark.parametrize("workers", [1, 3])
def test_beside_mariadb(maria: MariaDb, tmp_path: Path, workers: int) -> None:
    name = f"texts{workers}"
    with maria.connect(name) as theirs, closing(LocalServer(tmp_path / "data", workers=workers)) as local:
        wanted = outcomes(theirs, texts)
        with local.connect() as ours:
            got = outcomes(ours, texts)
        assert [pair for pair in zip(got, wanted, strict=True) if pair[0] != pair[1]] == []
        local.validate()


@needs_mariadb
@pytest.mark.parametrize("workers", [1, 3])
def test_prepared_beside_mariadb(maria: MariaDb, tmp_path: Path, workers: int) -> None:
    def run(cursor: Any) -> Iterator[tuple[Any, ...]]:
        for text, values in PREPARED * 2:
            cursor.execute(text.replace("?", "%s"), values)
            yield text, cursor.rowcount

    def prepared(connection: Any) -> list[Any]:
        plain = connection.cursor()
        for text in SCHEMA:
            plain.execute(text)
        found = []
        with connection.cursor(prepared=True) as cursor:
            for text, values in PREPARED:
                cursor.execute(text, values)
                found.append((text, cursor.rowcount, rows(plain)))
        return found

    theirs = maria.connector()
    theirs.cursor().execute(f"CREATE DATABASE prepared{workers}")
    theirs.database = f"prepared{workers}"
    with closing(LocalServer(tmp_path / "data", workers=workers)) as local:
        ours = local.connector()
        for got, want in zip(prepared(ours), prepared(theirs), strict=True):
            assert got == want
        ours.close()
    theirs.close()


# ---------------------------------------------------------------- within transactions
@pytest.fixture(params=[1, 3], ids=["one", "three"])
def db(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Any]:
    with noria.open(tmp_path / "data", workers=request.param) as opened:
        for text in SCHEMA:
            opened.sql(text)
        yield opened


def test_a_transaction_sees_what_it_wrote_and_undoes_it(db: Any) -> None:
    a, b = Connection(db), Connection(db)
    a.sql("BEGIN")
    a.sql("UPDATE author SET posts = (SELECT COUNT(*) FROM post WHERE post.author = author.id)")
    a.sql("INSERT INTO seen (id, n) SELECT id, posts FROM author")
    assert a.rows("SELECT id, n FROM seen ORDER BY id") == [(1, 2), (2, 2), (3, 1), (4, 0)]
    a.sql("SAVEPOINT s")
    a.sql("DELETE FROM seen WHERE id IN (SELECT author FROM post)")
    assert a.rows("SELECT id FROM seen") == [(4,)] and b.rows("SELECT id FROM seen") == []
    a.sql("ROLLBACK TO SAVEPOINT s")
    assert a.rows("SELECT COUNT(*) FROM seen") == [(4,)]
    a.sql("ROLLBACK")
    assert b.rows("SELECT SUM(posts) FROM author") == [(0,)] and b.rows("SELECT COUNT(*) FROM seen") == [(0,)]


def test_a_failed_statement_leaves_the_rest_of_the_transaction(db: Any) -> None:
    a = Connection(db)
    a.sql("INSERT INTO seen VALUES (5, 'kept', 1)")
    a.sql("BEGIN")
    a.sql("INSERT INTO seen VALUES (50, 'mine', 1)")
    assert a.code("INSERT INTO seen (id, n) SELECT id, 1 FROM post ORDER BY id") == 1062
    a.sql("COMMIT")
    assert a.rows("SELECT id FROM seen ORDER BY id") == [(5,), (50,)]


def test_found_rows_are_locked(db: Any) -> None:
    a, b = Connection(db), Connection(db)
    b.sql("SET innodb_lock_wait_timeout = 1")
    a.sql("BEGIN")
    a.sql("UPDATE post JOIN author ON author.id = post.author SET post.score = 0 WHERE author.name = 'Ann'")
    assert b.code("DELETE FROM post WHERE id = 1") == 1205
    assert b.sql("UPDATE post SET score = 9 WHERE id = 4").affected == 1
    a.sql("COMMIT")
    assert b.rows("SELECT id, score FROM post WHERE id IN (1, 2, 4) ORDER BY id") == [(1, 0), (2, 0), (4, 9)]


def test_a_statement_waits_for_rows_that_others_have_locked(db: Any) -> None:
    a = Connection(db)
    a.sql("BEGIN")
    a.sql("UPDATE post SET author = 3 WHERE id = 1")
    done = threading.Thread(target=lambda: db.sql("UPDATE author SET posts = 7 WHERE id IN (SELECT author FROM post "
                                                  "WHERE id = 2)"))
    done.start()
    done.join()
    other = threading.Thread(target=lambda: db.sql("DELETE p FROM post p JOIN author a ON a.id = p.author "
                                                   "WHERE a.id = 1"))
    other.start()
    until("it waits for the row", lambda: Connection(db).rows("SHOW PROCESSLIST") and other.is_alive())
    a.sql("COMMIT")
    other.join()
    assert a.rows("SELECT id FROM post ORDER BY id") == [(1,), (3,), (4,), (5,), (6,)], "post 1 is of author 3 now"


def test_foreign_keys_are_kept(db: Any) -> None:
    a = Connection(db)
    a.sql("CREATE TABLE child (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES post (id) ON DELETE CASCADE)")
    a.sql("INSERT INTO child SELECT id + 10, id FROM post")
    assert a.code("INSERT INTO child SELECT 90, 90 FROM post WHERE id = 1") == 1452
    assert a.code("UPDATE child JOIN post ON post.id = child.p SET child.p = post.id + 90 WHERE post.id = 1") == 1452
    a.sql("DELETE p FROM post p JOIN author ON author.id = p.author WHERE author.name = 'Ann'")
    assert a.rows("SELECT p FROM child ORDER BY p") == [(3,), (4,), (5,), (6,)]


def test_many_rows_are_written_in_parts_and_as_one(db: Any) -> None:
    a = Connection(db)
    a.sql("CREATE TABLE many (id INT PRIMARY KEY, v INT, t VARCHAR(9))")
    a.sql("INSERT INTO many VALUES " + ", ".join(f"({n}, {n}, 'x')" for n in range(2_500)))
    a.sql("CREATE TABLE copy (id INT PRIMARY KEY, v INT, t VARCHAR(9))")
    assert a.sql("INSERT INTO copy SELECT * FROM many").affected == 2_500
    assert a.sql("UPDATE copy JOIN many ON many.id = copy.id SET copy.v = many.v * 2, copy.t = NULL").affected == 2_500
    assert a.rows("SELECT SUM(v), COUNT(t) FROM copy") == [(2_499 * 2_500, 0)]
    assert a.code("INSERT INTO copy SELECT id + 2499, v, t FROM many ORDER BY id DESC") == 1062
    assert a.rows("SELECT COUNT(*) FROM copy") == [(2_500,)]
    assert a.sql("DELETE c FROM copy c JOIN many m ON m.id = c.id WHERE m.id >= 100").affected == 2_400


def test_times_and_zones(db: Any) -> None:
    a = Connection(db)
    a.sql("CREATE TABLE stamped (id INT PRIMARY KEY, ts TIMESTAMP(6) NULL, at DATETIME, t TIME, d DATE)")
    a.sql("SET time_zone = '+02:00'")
    a.sql("INSERT INTO stamped VALUES (1, '2024-05-06 12:00:00', '2024-05-06 12:00:00', '-01:02:03', '2024-05-06')")
    a.sql("INSERT INTO stamped SELECT id + 1, ts, at, t, d FROM stamped")
    a.sql("UPDATE stamped JOIN author ON author.id = 1 SET at = '2024-01-01 00:00:00' WHERE stamped.id = 2")
    a.sql("INSERT INTO stamped (id, at) SELECT 3, NOW() FROM author WHERE id = 1")
    a.sql("DELETE FROM stamped WHERE id IN (SELECT id FROM author WHERE id = 3) AND at > NOW() - INTERVAL 1 DAY")
    assert a.code("UPDATE stamped JOIN author ON author.id = 1 SET ts = stamped.ts WHERE stamped.id = 2") == 1235
    a.sql("SET time_zone = '+00:00'")
    assert [[str(v) for v in row] for row in a.rows("SELECT id, ts, at, t, d FROM stamped ORDER BY id")] == [
        ["1", "2024-05-06 10:00:00", "2024-05-06 12:00:00", "-1 day, 22:57:57", "2024-05-06"],
        ["2", "2024-05-06 10:00:00", "2024-01-01 00:00:00", "-1 day, 22:57:57", "2024-05-06"]]


def test_a_statement_has_one_time(db: Any) -> None:
    a = Connection(db)
    a.sql("CREATE TABLE many (id INT PRIMARY KEY)")
    a.sql("INSERT INTO many VALUES " + ", ".join(f"({n})" for n in range(2_500)))
    a.sql("CREATE TABLE made (id INT PRIMARY KEY, at DATETIME(6) DEFAULT NOW(6) ON UPDATE NOW(6), n INT, t TIME(6))")
    a.sql("INSERT INTO made (id, t) SELECT id, CURTIME(6) FROM many")
    assert a.rows("SELECT COUNT(DISTINCT at), COUNT(DISTINCT t) FROM made") == [(1, 1)]
    a.sql("UPDATE made JOIN many ON many.id = made.id SET made.n = many.id")
    assert a.rows("SELECT COUNT(DISTINCT at) FROM made") == [(1,)]


def test_databases(db: Any) -> None:
    a = Connection(db)
    a.sql("CREATE DATABASE shop")
    a.sql("CREATE TABLE shop.post (id INT PRIMARY KEY, n INT)")
    a.sql("INSERT INTO shop.post SELECT id, 0 FROM post")
    a.sql("UPDATE shop.post JOIN noria.post ON noria.post.id = shop.post.id SET shop.post.n = noria.post.author")
    a.sql("USE shop")
    a.sql("DELETE post FROM post JOIN noria.author ON author.id = post.n WHERE author.name = 'Ann'")
    a.sql("DELETE FROM x USING post AS x JOIN noria.vote v ON v.post = x.id")
    assert a.rows("SELECT id, n FROM post ORDER BY id") == [(3, 2), (5, 3), (6, None)]


def test_locked_tables_are_respected(db: Any) -> None:
    a = Connection(db)
    a.sql("LOCK TABLES seen WRITE, author READ")
    a.sql("INSERT INTO seen (id, n) SELECT id, 1 FROM author")
    assert a.code("INSERT INTO seen (id, n) SELECT id + 10, 1 FROM post") == 1100
    assert a.code("UPDATE author JOIN seen ON seen.id = author.id SET best = 1") == 1099
    a.sql("UNLOCK TABLES")
    a.sql("SET SESSION TRANSACTION READ ONLY")
    a.sql("BEGIN")
    assert a.code("DELETE FROM seen ORDER BY id LIMIT 1") == 1792


def test_what_cannot_be_written_so_is_refused(db: Any) -> None:
    a = Connection(db)
    a.sql("CREATE TABLE keyless (a INT)")
    a.sql("CREATE VIEW names AS SELECT id, name FROM author")
    assert "without a primary key" in a.error("DELETE FROM keyless WHERE a IN (SELECT id FROM post)")
    assert a.code("UPDATE names JOIN post ON post.id = names.id SET names.name = 'x'") == 1288
    assert a.code("UPDATE nothing JOIN post ON post.id = nothing.id SET title = 'x'") == 1146
    assert a.code("INSERT INTO keyless SELECT id FROM nothing") == 1146
    with pytest.raises(SqlError):
        db.sql("INSERT INTO keyless SELECT id, id FROM post")
    assert db.sql("INSERT INTO keyless SELECT id FROM post").affected == 6
