"""The programs that people have, against a server as they would run it: MariaDB's client, PyMySQL, Oracle's
connector (text and prepared); figure 2's program, every type, what clients ask of a server, changes of the
program while others read and write."""

from __future__ import annotations

import itertools
import shutil
import subprocess
import threading
from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import mysql.connector
import pymysql
import pytest

from e2e.serving import Served, execute, rows, serving

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
FIGURE_2 = (
    "CREATE TABLE stories (id INT PRIMARY KEY, author INT NOT NULL, title VARCHAR(80), url TEXT)",
    "CREATE TABLE votes (user INT NOT NULL, story_id INT NOT NULL, PRIMARY KEY (user, story_id))",
    "CREATE INTERNAL VIEW VoteCount AS SELECT story_id, COUNT(*) AS vcount FROM votes GROUP BY story_id",
    "CREATE VIEW StoriesWithVC AS SELECT id, author, title, url, vcount FROM stories"
    " JOIN VoteCount ON VoteCount.story_id = stories.id WHERE stories.id = ?",
)
STORY = "SELECT id, title, vcount FROM StoriesWithVC WHERE id = "


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("clients") / "data", *FIGURE_2,
                 "INSERT INTO stories VALUES (1, 7, 'One', 'http://1'), (2, 7, 'Zwei é 日本 😀', NULL)",
                 "INSERT INTO votes VALUES (1, 1), (2, 1), (1, 2)") as server:
        yield server


@pytest.fixture
def connection(served: Served) -> Iterator[Any]:
    with served.connect() as connection:
        yield connection


def connector(served: Served, **options: Any) -> Any:
    return mysql.connector.connect(host="127.0.0.1", port=served.mysql_port, user="root", autocommit=True,
                                   use_pure=True, **options)


def mariadb(served: Served, text: str, *options: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["mariadb", "--no-defaults", "-h127.0.0.1", f"-P{served.mysql_port}", "-uroot", "--skip-ssl",
                           "--default-character-set=utf8mb4", "--batch", *options], input=text.encode(),
                          capture_output=True, timeout=120, check=False)


needs_mariadb = pytest.mark.skipif(shutil.which("mariadb") is None, reason="Debian's mariadb client is not installed")


# ---------------------------------------------------------------- figure 2
def test_figure_2_with_each_client(served: Served, connection: Any) -> None:
    """What one client writes the next one reads, at once."""
    other = connector(served)
    prepared, plain = other.cursor(prepared=True), other.cursor()
    for user in range(10, 16):
        before = rows(connection, STORY + "2")[0][2]
        if user % 2:
            prepared.execute("INSERT INTO votes VALUES (?, ?)", (user, 2))
        else:
            plain.execute("INSERT INTO votes VALUES (%s, %s)", (user, 2))
        assert prepared.rowcount == 1 or plain.rowcount == 1
        assert rows(connection, STORY + "%s", (2,)) == [(2, "Zwei é 日本 😀", before + 1)]
        prepared.execute(STORY + "?", (2,))
        assert prepared.fetchall() == [(2, "Zwei é 日本 😀", before + 1)]
        plain.execute(STORY + "2")
        assert plain.fetchall() == [(2, "Zwei é 日本 😀", before + 1)]
    assert execute(connection, "DELETE FROM votes WHERE user BETWEEN 10 AND 15") == 6
    prepared.execute(STORY + "?", (2,))
    assert prepared.fetchall() == [(2, "Zwei é 日本 😀", 1)]
    prepared.execute(STORY + "?", (404,))
    assert prepared.fetchall() == []
    other.close()


@needs_mariadb
def test_the_mariadb_client(served: Served) -> None:
    done = mariadb(served, f"{STORY}1;\nSELECT COUNT(*) AS c FROM votes;\nSELECT NULL AS n, 'a\\tb' AS t;\n")
    assert done.returncode == 0, done.stderr
    assert done.stdout.decode().splitlines() == ["id\ttitle\tvcount", "1\tOne\t2", "c", "3", "n\tt", "NULL\ta\\tb"]
    wrong = mariadb(served, "SELECT * FROM nowhere;\nSELECT 1;\n")
    assert wrong.returncode == 1 and b"ERROR 1146 (42S02) at line 1: Table 'nowhere' doesn't exist" in wrong.stderr
    table = mariadb(served, "SELECT id, title FROM stories ORDER BY id;", "--table")
    assert "| id | title" in table.stdout.decode() and "Zwei é 日本 😀" in table.stdout.decode()


DUMP = r"""-- MySQL dump 10.13  Distrib 8.0.36, for Linux (x86_64)
--
-- Host: localhost    Database: noria
-- ------------------------------------------------------
/*!40101 SET @OLD_CHARACTER_SET_CLIENT=@@CHARACTER_SET_CLIENT */;
/*!40101 SET @OLD_CHARACTER_SET_RESULTS=@@CHARACTER_SET_RESULTS */;
/*!40101 SET @OLD_COLLATION_CONNECTION=@@COLLATION_CONNECTION */;
/*!50503 SET NAMES utf8mb4 */;
/*!40103 SET @OLD_TIME_ZONE=@@TIME_ZONE */;
/*!40103 SET TIME_ZONE='+00:00' */;
/*!40014 SET @OLD_UNIQUE_CHECKS=@@UNIQUE_CHECKS, UNIQUE_CHECKS=0 */;
/*!40014 SET @OLD_FOREIGN_KEY_CHECKS=@@FOREIGN_KEY_CHECKS, FOREIGN_KEY_CHECKS=0 */;
/*!40101 SET @OLD_SQL_MODE=@@SQL_MODE, SQL_MODE='NO_AUTO_VALUE_ON_ZERO' */;
/*!40111 SET @OLD_SQL_NOTES=@@SQL_NOTES, SQL_NOTES=0 */;
CREATE DATABASE /*!32312 IF NOT EXISTS*/ `noria` /*!40100 DEFAULT CHARACTER SET utf8mb4 */;
USE `noria`;
DROP TABLE IF EXISTS `dumped`;
/*!40101 SET @saved_cs_client     = @@character_set_client */;
/*!50503 SET character_set_client = utf8mb4 */;
CREATE TABLE `dumped` (
  `id` int NOT NULL AUTO_INCREMENT,
  `name` varchar(40) COLLATE utf8mb4_bin DEFAULT NULL,
  `at` datetime DEFAULT CURRENT_TIMESTAMP,
  PRIMARY KEY (`id`),
  UNIQUE KEY `name` (`name`)
) ENGINE=InnoDB AUTO_INCREMENT=4 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;
/*!40101 SET character_set_client = @saved_cs_client */;
LOCK TABLES `dumped` WRITE;
/*!40000 ALTER TABLE `dumped` DISABLE KEYS */;
INSERT INTO `dumped` VALUES (1,'One; \'quoted\' /*!40101 no */','2024-01-02 03:04:05'),(2,'Zwei\nlines',
'2024-01-02 00:00:00'),(3,NULL,NULL);
/*!40000 ALTER TABLE `dumped` ENABLE KEYS */;
UNLOCK TABLES;
/*!40103 SET TIME_ZONE=@OLD_TIME_ZONE */;
/*!40101 SET SQL_MODE=@OLD_SQL_MODE */;
/*!40014 SET FOREIGN_KEY_CHECKS=@OLD_FOREIGN_KEY_CHECKS */;
/*!40014 SET UNIQUE_CHECKS=@OLD_UNIQUE_CHECKS */;
/*!40101 SET CHARACTER_SET_CLIENT=@OLD_CHARACTER_SET_CLIENT */;
/*!40101 SET CHARACTER_SET_RESULTS=@OLD_CHARACTER_SET_RESULTS */;
/*!40101 SET COLLATION_CONNECTION=@OLD_COLLATION_CONNECTION */;
/*!40111 SET SQL_NOTES=@OLD_SQL_NOTES */;
-- Dump completed on 2024-01-01 00:00:00
"""
DUMPED = [(1, "One; 'quoted' /*!40101 no */", datetime(2024, 1, 2, 3, 4, 5)),
          (2, "Zwei\nlines", datetime(2024, 1, 2)), (3, None, None)]


@needs_mariadb
def test_a_dump_through_the_mariadb_client(served: Served, connection: Any) -> None:
    done = mariadb(served, DUMP)
    assert done.returncode == 0, done.stderr
    assert sorted(rows(connection, "SELECT * FROM dumped")) == DUMPED
    assert mariadb(served, DUMP).returncode == 0, "again: it begins with DROP TABLE"
    assert sorted(rows(connection, "SELECT * FROM dumped")) == DUMPED
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO dumped (name) VALUES ('next')")
        assert cursor.lastrowid == 4


def test_a_dump_in_one_text(served: Served) -> None:
    with served.connect(client_flag=pymysql.constants.CLIENT.MULTI_STATEMENTS) as connection:
        with connection.cursor() as cursor:
            cursor.execute(DUMP)
            while cursor.nextset():
                pass
        assert sorted(rows(connection, "SELECT * FROM dumped")) == DUMPED


# ---------------------------------------------------------------- types
TYPES = ("i1 TINYINT, i2 SMALLINT, i3 MEDIUMINT, i4 INT, i8 BIGINT, u1 TINYINT UNSIGNED, u2 SMALLINT UNSIGNED, "
         "u4 INT UNSIGNED, u8 BIGINT UNSIGNED, f DOUBLE, d DECIMAL(18,4), e DECIMAL(5), v VARCHAR(20), c CHAR(5), "
         "x TEXT, vb VARCHAR(20) COLLATE utf8mb4_bin, da DATE, dt DATETIME, d6 DATETIME(6), ts TIMESTAMP, b BOOL")
VALUES: list[tuple[Any, ...]] = [
    (-128, -32768, -8388608, -(2**31), -(2**63) + 2, 0, 0, 0, 0, -1.7976931348623157e308,
     Decimal("-99999999999999.9999"), Decimal("-99999"), "", "", "", "", date(1000, 1, 1), datetime(1000, 1, 1),
     datetime(1000, 1, 1, 0, 0, 0, 1), datetime(1970, 1, 1, 0, 0, 1), 0),
    (127, 32767, 8388607, 2**31 - 1, 2**63 - 1, 255, 65535, 2**32 - 1, 2**63 - 1, 5e-324,
     Decimal("99999999999999.9999"), Decimal("99999"), "é日本", "abcde", "😀 'quoted' \\ \n\0 \x1a", "Bin",
     date(9999, 12, 31), datetime(9999, 12, 31, 23, 59, 59), datetime(9999, 12, 31, 23, 59, 59, 999999),
     datetime(2038, 1, 19, 3, 14, 7), 1),
    (*[None] * 21,),
    (1, 1, 1, 1, 1, 1, 1, 1, 1, 0.1, Decimal("0.0001"), Decimal("1"), "x" * 20, "y", "z" * 5000, "%_",
     date(2024, 2, 29), datetime(2024, 2, 29, 12), datetime(2024, 2, 29, 12, 0, 0, 500000), datetime(2024, 2, 29), 1),
]


@pytest.mark.parametrize("way", ["PyMySQL", "connector", "prepared"])
def test_every_type_goes_round(served: Served, connection: Any, way: str) -> None:
    execute(connection, f"CREATE TABLE types (id INT PRIMARY KEY, {TYPES})")
    try:
        other = connector(served)
        cursor: Any = {"PyMySQL": connection.cursor, "connector": other.cursor,
                       "prepared": lambda: other.cursor(prepared=True)}[way]()
        mark = "?" if way == "prepared" else "%s"
        for i, values in enumerate(VALUES):
            cursor.execute(f"INSERT INTO types VALUES ({', '.join([mark] * (len(values) + 1))})", (i, *values))
        for i, values in enumerate(VALUES):
            for _ in range(3):  # a miss, a hit, a kept reply
                cursor.execute(f"SELECT * FROM types WHERE id = {mark}", (i,))
                assert list(cursor.fetchall()) == [(i, *values)]
            for column, value in zip(("i8", "f", "d", "v", "vb", "da", "d6", "b"),
                                     (values[4], *values[9:11], values[12], values[15], values[16], values[18],
                                      values[20]), strict=True):
                cursor.execute(f"SELECT id FROM types WHERE {column} = {mark}", (value,))
                found = {r[0] for r in cursor.fetchall()}
                assert (i in found) == (value is not None), (column, value)
        other.close()
    finally:
        execute(connection, "DROP TABLE types")


@pytest.mark.long
def test_17_megabytes(served: Served, connection: Any) -> None:
    """Longer than a packet of the protocol, there and back.  (Oracle's connector does not put the packets of a
    binary row together again, so what it prepared is read in text.)"""
    execute(connection, "CREATE TABLE big (id INT PRIMARY KEY, body LONGTEXT)")
    body = "0123456789abcdé\n" * 2**20
    assert len(body.encode()) == 17 * 2**20
    assert execute(connection, "INSERT INTO big VALUES (1, %s)", (body,)) == 1
    other = connector(served)
    prepared, plain = other.cursor(prepared=True), other.cursor()
    prepared.execute("INSERT INTO big VALUES (?, ?)", (2, body[::-1]))
    prepared.execute("INSERT INTO big VALUES (?, ?)", (3, body[:3_000_000]))
    for i, want in ((1, body), (2, body[::-1]), (1, body)):
        assert rows(connection, f"SELECT body FROM big WHERE id = {i}") == [(want,)]
        plain.execute(f"SELECT body FROM big WHERE id = {i}")
        assert plain.fetchall() == [(want,)]
    prepared.execute("SELECT body FROM big WHERE id = ?", (3,))
    assert prepared.fetchall() == [(body[:3_000_000],)]
    other.close()
    assert execute(connection, "UPDATE big SET body = 'short'") == 3
    assert rows(connection, "SELECT body FROM big WHERE id = 1") == [("short",)]
    execute(connection, "DROP TABLE big")


def test_bytes_of_prepared_statements(served: Served) -> None:
    """Oracle's connector sends them as strings."""
    other = connector(served)
    other.cursor().execute("CREATE TABLE bits (id INT PRIMARY KEY, b BLOB, v VARBINARY(4), t TEXT)")
    prepared, value = other.cursor(prepared=True), bytes(range(250, 256))
    prepared.execute("INSERT INTO bits VALUES (?, ?, ?, ?)", ("1", value, value[:4], "é"))
    prepared.execute("UPDATE bits SET b = ? WHERE v = ?", (value[::-1], value[:4]))
    prepared.execute("SELECT * FROM bits WHERE v = ?", (value[:4],))
    assert prepared.fetchall() == [(1, value[::-1], value[:4], "é")]
    with pytest.raises(mysql.connector.Error, match=r"1366.*Incorrect string value: '.xFA.xFB"):
        prepared.execute("INSERT INTO bits (id, t) VALUES (?, ?)", (2, value))
    other.cursor().execute("DROP TABLE bits")
    other.close()


# ---------------------------------------------------------------- what a statement reports
def test_affected_rows_and_generated_ids(served: Served, connection: Any) -> None:
    execute(connection, "CREATE TABLE gen (id INT PRIMARY KEY AUTO_INCREMENT, k INT UNIQUE, n INT)")
    cursor = connection.cursor()

    def told(text: str) -> tuple[int, int]:
        return cursor.execute(text), cursor.lastrowid

    assert told("INSERT INTO gen (k, n) VALUES (1, 1)") == (1, 1)
    assert told("INSERT INTO gen (k, n) VALUES (2, 1), (3, 1), (4, 1)") == (3, 2)
    assert rows(connection, "SELECT LAST_INSERT_ID()") == [(2,)]
    assert told("UPDATE gen SET n = 1 WHERE k < 3")[0] == 0
    assert told("UPDATE gen SET n = k WHERE k < 3")[0] == 1
    assert told("INSERT INTO gen (k, n) VALUES (4, 9) ON DUPLICATE KEY UPDATE n = VALUES(n)") == (2, 4)
    assert told("INSERT INTO gen (k, n) VALUES (4, 9) ON DUPLICATE KEY UPDATE n = VALUES(n)") == (0, 0)
    assert told("REPLACE INTO gen VALUES (1, 1, 7)") == (2, 1)
    assert told("INSERT IGNORE INTO gen VALUES (1, 50, 0), (90, 1, 0), (91, 91, 0)") == (1, 91)
    assert rows(connection, "SELECT LAST_INSERT_ID()") == [(2,)], "of generated ones only"
    assert told("INSERT INTO gen (k) VALUES (92)") == (1, 92)
    assert told("DELETE FROM gen WHERE n IS NULL OR n = 7")[0] == 2
    assert told("DELETE FROM gen")[0] == 4
    with served.connect(client_flag=pymysql.constants.CLIENT.FOUND_ROWS) as found:
        execute(found, "INSERT INTO gen (k, n) VALUES (1, 1)")
        assert execute(found, "UPDATE gen SET n = 1") == 1
    assert rows(connection, "SELECT id, k, n FROM gen") == [(93, 1, 1)]


def test_what_clients_ask(connection: Any) -> None:
    assert {("stories",), ("votes",), ("StoriesWithVC",)} <= set(rows(connection, "SHOW TABLES"))
    assert ("StoriesWithVC", "VIEW") in rows(connection, "SHOW FULL TABLES")
    assert ("StoriesWithVC",) in rows(connection, "SHOW VIEWS")
    assert rows(connection, "DESCRIBE votes") == [("user", "int", "NO", "PRI", None, ""),
                                                  ("story_id", "int", "NO", "PRI", None, "")]
    (_, text), = rows(connection, "SHOW CREATE TABLE stories")
    assert text.startswith("CREATE TABLE `stories` (\n  `id` int NOT NULL,") and "PRIMARY KEY (`id`)" in text
    assert "vcount" in rows(connection, "SHOW CREATE VIEW StoriesWithVC")[0][1]
    assert rows(connection, "SHOW VARIABLES LIKE 'max_allowed_packet'") == [("max_allowed_packet", str(64 * 2**20))]
    assert rows(connection, "SELECT @@autocommit, @@version_comment LIMIT 1") == [(1, "Noria on Spark")]
    assert [r[0] for r in rows(connection, "SHOW INDEX FROM votes")] == ["votes", "votes"]
    for text in ("SHOW DATABASES", "SHOW ENGINES", "SHOW COLLATION", "SHOW CHARACTER SET", "SHOW TABLE STATUS"):
        assert rows(connection, text), text
    execute(connection, "SET @x = 5")
    assert rows(connection, "SELECT @x, @y, DATABASE()") == [(5, None, None)]
    execute(connection, "CREATE DATABASE IF NOT EXISTS noria")
    execute(connection, "USE noria")
    assert rows(connection, "SELECT DATABASE()") == [("noria",)]
    assert rows(connection, STORY.replace("StoriesWithVC", "noria.StoriesWithVC") + "1")


def test_explain(connection: Any) -> None:
    said = "\n".join(r[0] for r in rows(connection, "EXPLAIN SELECT * FROM StoriesWithVC WHERE id = 1"))
    assert "StoriesWithVC" in said and "partial" in said and "full" not in said.split("\n")[0]
    said = "\n".join(r[0] for r in rows(connection, "EXPLAIN SELECT author, COUNT(*) AS n FROM stories"
                                                    " GROUP BY author"))
    assert "full" in said
    said = "\n".join(r[0] for r in rows(connection, "EXPLAIN SELECT title FROM stories WHERE id IN (1, 2) LIMIT 1"))
    assert said


# ---------------------------------------------------------------- ad-hoc views, Spark
def test_selects_become_views_and_then_hit(served: Served, connection: Any) -> None:
    text = "SELECT title, id FROM stories WHERE author = {} AND id > 0"
    views, once = served.metric("adhoc_views"), served.metric("one_shots_total")
    assert sorted(r[1] for r in rows(connection, text.format(7))) == [1, 2]
    assert (served.metric("adhoc_views"), served.metric("one_shots_total")) == (views, once + 1), "nothing is kept"
    for author in itertools.islice(itertools.cycle((7, 8)), 1_000):  # asked again: a view is made beside
        assert len(rows(connection, text.format(author))) == (2 if author == 7 else 0)
        if served.metric("adhoc_views") > views:
            break
    for author in (7, 8):
        rows(connection, text.format(author))
    before = {name: served.metric(name) for name in ("view_hits_total", "cached_replies_total", "upqueries_total")}
    for author in (7, 8) * 10:
        assert len(rows(connection, text.format(author))) == (2 if author == 7 else 0)
    after = {name: served.metric(name) for name in before}
    assert after["upqueries_total"] == before["upqueries_total"], "present keys are not asked for again"
    assert sum(after.values()) - sum(before.values()) >= 20
    assert served.metric("adhoc_views") == views + 1
    other = connector(served)
    cursor = other.cursor(prepared=True)
    cursor.execute("SELECT title, id FROM stories WHERE author = ? AND id > ?", (7, 0))
    assert len(cursor.fetchall()) == 2
    assert served.metric("adhoc_views") == views + 1, "the same view, whichever way it is asked"
    other.close()


def test_spark_answers_what_is_not_maintained_and_says_so(served: Served, connection: Any) -> None:
    before = served.metric("spark_queries_total")
    for text, want in (("SELECT DISTINCT q.author FROM (SELECT author FROM stories LIMIT 20000) q", [(7,)]),
                       ("SELECT s.id, v.user FROM (SELECT id FROM stories LIMIT 20000) s, votes v WHERE s.id < v.user "
                        "AND v.story_id = 1", [(1, 2)]),
                       ("SELECT author FROM (SELECT author FROM stories LIMIT 20000) q UNION SELECT user FROM votes "
                        "ORDER BY 1", [(1,), (2,), (7,)])):
        with connection.cursor() as cursor:
            cursor.execute(text)
            assert list(cursor.fetchall()) == want
            if connection._result.warning_count:
                (warning,) = connection.show_warnings()
                assert warning[1] == 1235 and "answered by Spark" in warning[2]
                (said, *_), = rows(connection, f"EXPLAIN {text}")[:1]
                assert "answered by Spark" in said
    assert served.metric("spark_queries_total") >= before + 3
    execute(connection, "INSERT INTO stories VALUES (3, 9, 'Three', NULL)")
    assert sorted(rows(connection, "SELECT DISTINCT q.author FROM (SELECT author FROM stories LIMIT 20000) q")
                  ) == [(7,), (9,)], "the snapshot is taken anew"
    execute(connection, "DELETE FROM stories WHERE id = 3")


# ---------------------------------------------------------------- changes while others work
def test_views_come_and_go_while_others_read_and_write(served: Served, connection: Any) -> None:
    """Two threads vote and count; views are added, read and dropped meanwhile: nobody waits for long, no answer
    is wrong, no vote is lost."""
    execute(connection, "CREATE TABLE ballots (voter INT PRIMARY KEY, item INT NOT NULL)")
    stop, failures, counts = threading.Event(), [], [0, 0]

    def vote(me: int) -> None:
        try:
            with served.connect() as mine:
                while not stop.is_set():
                    item = counts[me] % 5
                    text = f"SELECT COUNT(*) FROM ballots WHERE item = {item + 10 * me}"
                    before = rows(mine, text)[0][0]
                    execute(mine, f"INSERT INTO ballots VALUES ({me * 10**6 + counts[me]}, {item + 10 * me})")
                    assert rows(mine, text) == [(before + 1,)]
                    counts[me] += 1
        except BaseException as e:
            failures.append(e)

    threads = [threading.Thread(target=vote, args=(i,)) for i in range(2)]
    for t in threads:
        t.start()
    try:
        for i in range(12):
            item, threshold = i % 5 + 10 * (i % 2), 10**6 * (i % 2)
            name, full = f"passing{i}", i % 3 == 0
            query = ("SELECT item, COUNT(*) AS n, MAX(voter) AS last FROM ballots GROUP BY item" if full else
                     f"SELECT voter, item FROM ballots WHERE item = ? AND voter >= {threshold}")
            execute(connection, f"CREATE VIEW {name} AS {query}")
            where = "" if full else f" WHERE item = {item}"
            floor = rows(connection, f"SELECT COUNT(*) FROM ballots WHERE item = {item}")[0][0]
            found = rows(connection, f"SELECT * FROM {name}{where}")
            got = next((r[1] for r in found if r[0] == item), 0) if full else len(found)
            assert got >= floor, "a view is at least as new as what was read before"
            execute(connection, f"DROP VIEW {name}")
            with pytest.raises(pymysql.err.ProgrammingError):
                rows(connection, f"SELECT * FROM {name}{where}")
    finally:
        stop.set()
        for t in threads:
            t.join(60)
    assert not failures, failures[0]
    assert min(counts) > 0
    assert rows(connection, "SELECT COUNT(*) FROM ballots") == [(sum(counts),)]
    print(f"{counts} votes while 12 views came and went")


def test_it_stops_and_nothing_is_left(served: Served) -> None:
    served.stop()
