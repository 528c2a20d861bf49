"""A real server while views over many rows are made: what is under way is shown, stopped, survives its worker, and
others read and write.  Views are read whole: for a part of one an ad-hoc view would be made, and keep a state that the
next view is made of at once."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pymysql
import pytest

import noria
from e2e.meanwhile import Statement, clients, patient
from e2e.serving import Served, execute, rows, serving, until
from seeds import kinds

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.timeout(600)]
ROWS = 400_000
AUTHORS = 1_000
COUNTS = "SELECT a.town, COUNT(*) AS n, MAX(v.id) AS last FROM v JOIN a ON a.id = v.author GROUP BY a.town HAVING n > ?"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("changes") / "data",
                 "CREATE TABLE v (id INT PRIMARY KEY, author INT NOT NULL, user INT NOT NULL)",
                 "CREATE TABLE a (id INT PRIMARY KEY, town INT NOT NULL)",
                 "CREATE VIEW hot AS SELECT id, author FROM v WHERE id = ?") as server:
        ids = np.arange(ROWS)
        with noria.connect(server.url) as db:
            db.table("a").insert([(i, i % 50) for i in range(AUTHORS)])
            for at in range(0, ROWS, 50_000):
                part = ids[at:at + 50_000]
                db.table("v").insert(pa.table({"id": part, "author": part % AUTHORS, "user": part % 777}))
        yield server


class Ended(AssertionError):
    """What was to be seen under way had ended."""


def builds(served: Served) -> list[tuple[Any, ...]]:
    with served.connect() as c:
        return rows(c, "SHOW NORIA MIGRATIONS")


def under_way(served: Served, statement: Statement) -> list[tuple[Any, ...]]:
    """What is built for the statement, when something is."""
    def seen() -> list[tuple[Any, ...]]:
        lives = statement.is_alive()
        shown = rows(c, "SHOW NORIA MIGRATIONS")
        if not shown and not lives:
            raise Ended(f"nothing was shown of {statement.text!r}, which ended: {statement.error}")
        return shown

    with served.connect() as c:
        return until("something is built", seen)


def begun(served: Served, text: str, undo: Callable[[], object]) -> Statement:
    """The statement, of which something was seen in the making.  One that ended before is undone, and said again."""
    for _ in range(20):
        statement = Statement(served, text)
        try:
            under_way(served, statement)
        except Ended:
            assert statement.outcome() is None
            undo()
        else:
            return statement
    raise AssertionError(f"it always ended before it was seen: {text}")


@contextmanager
def halted(served: Served, statement: Statement) -> Iterator[list[tuple[Any, ...]]]:
    """What is being built gets no further meanwhile: the worker stands still, for less than its lease."""
    worker = served.pid("worker")
    shown = under_way(served, statement)
    os.kill(worker, signal.SIGSTOP)
    try:
        yield shown
    finally:
        with suppress(ProcessLookupError):  # it was killed
            os.kill(worker, signal.SIGCONT)


Look = Callable[[list[tuple[Any, ...]]], object]


def killed(served: Served, text: str, undo: Callable[[], object], look: Look) -> None:
    """The statement was killed while something was built for it, and looked at meanwhile.  One that ended just before
    its worker stood still was done: it is undone, and said again."""
    for _ in range(20):
        statement = Statement(served, text)
        with suppress(Ended), halted(served, statement) as shown:
            if statement.is_alive():
                look(shown)
            with served.connect() as c:
                execute(c, f"KILL QUERY {statement.number}")
        error = statement.outcome()
        if error is not None:
            assert error.args[0] == 1317, error
            return
        undo()
    raise AssertionError(f"it always ended before it was killed: {text}")


def expected(more_than: int) -> Counter[tuple[int, int, int]]:
    count, last = Counter[int](), {}
    for i in range(ROWS):
        town = i % AUTHORS % 50
        count[town] += 1
        last[town] = i
    return Counter((t, n, last[t]) for t, n in count.items() if n > more_than)


def test_shown_and_killed(served: Served) -> None:
    with served.connect() as c:
        assert rows(c, "SELECT * FROM hot WHERE id = 5") == [(5, 5)]

        def look(shown: list[tuple[Any, ...]]) -> None:
            assert shown[0][1:3] == ("counts", "runs") and int(shown[0][3]) <= int(shown[0][4]), shown
            assert rows(c, "SELECT * FROM hot WHERE id = 5") == [(5, 5)]
            listed.append(any("VIEW counts" in str(r) for r in rows(c, "SHOW FULL PROCESSLIST")))

        listed: list[bool] = []
        killed(served, f"CREATE MATERIALIZED VIEW counts AS {COUNTS}", lambda: execute(c, "DROP VIEW counts"), look)
        assert listed[-1]
        assert until("nothing is built", lambda: builds(served) == [])
        with pytest.raises(pymysql.err.ProgrammingError, match="counts"):
            rows(c, "SELECT * FROM counts WHERE n > 1")
        execute(c, f"CREATE MATERIALIZED VIEW counts AS {COUNTS}")
        assert Counter(rows(c, "SELECT * FROM counts")) == expected(0)
        execute(c, "DROP VIEW counts")


def test_the_old_one_answers_until_the_new_one_is_whole(served: Served) -> None:
    with served.connect() as c:
        execute(c, "CREATE VIEW r AS SELECT id, author FROM v WHERE id = ?")
        assert rows(c, "SELECT * FROM r WHERE id = 7") == [(7, 7)]
        statement = Statement(served, "CREATE OR REPLACE VIEW r AS SELECT a.town AS town, COUNT(*) AS n FROM v JOIN a "
                                      "ON a.id = v.author GROUP BY a.town HAVING n > ?")
        with halted(served, statement) as shown:
            assert shown[0][1] == "r"
            assert rows(c, "SELECT * FROM r WHERE id = 7") == [(7, 7)]
            with pytest.raises(pymysql.err.MySQLError, match="views read it: 'r'"):
                execute(c, "DROP TABLE a")  # the new one does, the old one does not
            served.kill("worker")
        assert statement.outcome() is None
        assert len(rows(c, "SELECT * FROM r")) == 50
        assert "HAVING" in rows(c, "SHOW CREATE VIEW r")[0][1]
        old = rows(c, "SHOW CREATE VIEW r")[0][1].replace("CREATE VIEW", "CREATE OR REPLACE VIEW", 1)
        killed(served, "CREATE OR REPLACE VIEW r AS SELECT user, COUNT(*) AS n FROM v GROUP BY user HAVING n > ?",
               lambda: execute(c, old), lambda shown: None)
        assert len(rows(c, "SELECT * FROM r")) == 50
        execute(c, "DROP VIEW r")
        assert until("nothing is built", lambda: builds(served) == [])


def test_a_view_by_a_new_key_is_there_at_once(served: Served) -> None:
    """Its first lookup waits for the index; others go on."""
    statement = Statement(served, "CREATE VIEW of_user AS SELECT id, user FROM v WHERE user = ?")
    with halted(served, statement) as shown:
        assert "index of table v by user" in str(shown)
    with served.connect() as c:
        assert {i for i, in rows(c, "SELECT id FROM of_user WHERE user = 3")} == set(range(3, ROWS, 777))
        assert statement.outcome() is None
        execute(c, "DROP VIEW of_user")


@pytest.mark.parametrize("what", kinds(("front",), ("worker",), ("worker", "jvm")))
def test_a_crash_in_a_build(served: Served, what: tuple[str, ...]) -> None:
    """It goes on; of a front end that is gone the view is there after the next start, or was never."""
    text = f"CREATE MATERIALIZED VIEW counts AS {COUNTS}"
    with patient(served) as c:
        statement = begun(served, text, lambda: execute(c, "DROP VIEW counts"))
    served.kill(*what)
    error = statement.outcome()
    if "front" in what:
        served.start()
        served.wait_up()
    else:
        assert error is None, error
    with patient(served) as c:
        there = ("counts",) in rows(c, "SHOW TABLES")
        if not there:
            assert "front" in what
            execute(c, text)
        assert Counter(rows(c, "SELECT * FROM counts")) == expected(0)
        execute(c, "DROP VIEW counts")


def test_a_first_read_that_is_killed(served: Served) -> None:
    """The reader that it asked for is made nevertheless, and is there after the next start."""
    with patient(served) as c:
        execute(c, f"CREATE VIEW counts AS {COUNTS}")
        assert ("counts", "none") in [(r[0], r[3]) for r in rows(c, "SHOW NORIA VIEWS")] and builds(served) == []

        def look(shown: list[tuple[Any, ...]]) -> None:
            assert shown[0][1] == "counts"
            assert rows(c, "SELECT * FROM hot WHERE id = 5") == [(5, 5)]

        def unread() -> None:
            execute(c, "DROP VIEW counts")
            execute(c, f"CREATE VIEW counts AS {COUNTS}")

        killed(served, "SELECT * FROM counts", unread, look)
        assert Counter(rows(c, "SELECT * FROM counts")) == expected(0)
    served.kill("front", "worker", "jvm", "driver")
    served.start()
    served.wait_up()
    with patient(served) as c:
        assert ("counts", "full") in [(r[0], r[3]) for r in rows(c, "SHOW NORIA VIEWS")]
        assert Counter(rows(c, "SELECT * FROM counts")) == expected(0)
        execute(c, "DROP VIEW counts")


@pytest.mark.parametrize("what", kinds(("worker", "jvm"), ("worker",)))
def test_a_crash_in_a_first_read(served: Served, what: tuple[str, ...]) -> None:
    with patient(served) as c:
        def unread() -> None:
            execute(c, "DROP VIEW IF EXISTS counts")
            execute(c, f"CREATE VIEW counts AS {COUNTS}")

        unread()
        statement = begun(served, "SELECT * FROM counts", unread)
        served.kill(*what)
        error = statement.outcome()
        assert error is None, error
        assert Counter(rows(c, "SELECT * FROM counts")) == expected(0)
        execute(c, "DROP VIEW counts")


def test_clients_go_on(served: Served) -> None:
    """Reads and writes are answered while a build is under way, and each write is in the view."""
    written: list[int] = []

    def write(c: Any, n: int) -> None:
        execute(c, "INSERT INTO v VALUES (%s, 1, 5)", (2 * ROWS + n,))
        written.append(n)

    with clients(served, write, lambda c, n: rows(c, f"SELECT author FROM hot WHERE id = {n % ROWS}")):
        with served.connect() as c:
            statement = begun(served, "CREATE MATERIALIZED VIEW per_user AS SELECT user, COUNT(*) AS n FROM v "
                                      "GROUP BY user HAVING n > ?", lambda: execute(c, "DROP VIEW per_user"))
        before = len(written)
        assert statement.outcome() is None
        during = len(written) - before
    assert during > 0, "nobody wrote meanwhile: nothing was shown"
    with served.connect() as c:
        assert dict(rows(c, "SELECT * FROM per_user"))[5] == len(range(5, ROWS, 777)) + len(written)
        execute(c, "DROP VIEW per_user")
    assert served.run("verify").returncode == 0


LIKES = 20_000  # more than are emptied in one commit


def test_truncate(served: Served) -> None:
    """Killed, it was never there; a worker that ends begins anew; with the front end it was never there, either.
    Clients go on meanwhile, and a view has what the table has."""
    def liked(c: Any) -> int:
        assert rows(c, "SHOW TABLES LIKE 'l%'") == [("l",), ("liked",)]
        (count,), = rows(c, "SELECT COUNT(*) FROM l")
        of_authors = dict(rows(c, "SELECT author, n FROM liked"))
        assert (len(of_authors), sum(of_authors.values())) == (AUTHORS, count)
        return int(count)

    def fill() -> None:
        with noria.connect(served.url) as db:
            db.table("l").insert([(i, i % ROWS) for i in range(LIKES)])

    with served.connect() as c:
        execute(c, "CREATE TABLE l (id INT PRIMARY KEY, v INT)")
        fill()
        execute(c, "CREATE MATERIALIZED VIEW liked AS SELECT v.author, COUNT(l.id) AS n FROM v LEFT JOIN l "
                   "ON l.v = v.id GROUP BY v.author")
        assert liked(c) == LIKES

        def look(shown: list[tuple[Any, ...]]) -> None:
            assert {r[1] for r in shown} == {"liked"}, shown
            listed.append(any("TRUNCATE" in str(r) for r in rows(c, "SHOW FULL PROCESSLIST")))

        listed: list[bool] = []
        killed(served, "TRUNCATE TABLE l", fill, look)
        assert listed[-1]
        assert until("nothing is built", lambda: builds(served) == [])
        assert liked(c) == LIKES
        statement = Statement(served, "TRUNCATE TABLE l")
        with halted(served, statement):
            served.kill("worker")
        assert statement.outcome() is None
        assert liked(c) == 0
        fill()
        statement = Statement(served, "TRUNCATE TABLE l")
        with halted(served, statement):
            served.kill("worker", "front")
        assert statement.outcome() is not None
        served.start()
        served.wait_up()
    written: list[int] = []

    def write(c: Any, n: int) -> None:
        execute(c, "INSERT INTO l VALUES (%s, %s)", (2 * ROWS + n, n % ROWS))
        written.append(n)

    with served.connect() as c:
        assert liked(c) == LIKES
        with clients(served, write, lambda c, n: rows(c, "SELECT author, n FROM liked"),
                     lambda c, n: rows(c, f"SELECT id FROM l WHERE v = {n % 100}")):
            statement = Statement(served, "TRUNCATE TABLE l")
            under_way(served, statement)
            before = len(written)
            assert statement.outcome() is None
            assert len(written) > before
            until("more is written", lambda: len(written) > before + 100)
        assert 0 < liked(c) < len(written)
        assert served.run("verify").returncode == 0
        execute(c, "DROP VIEW liked")
        execute(c, "DROP TABLE l")


def test_an_index_that_is_killed_and_one_whose_worker_is(served: Served) -> None:
    with served.connect() as c:
        assert rows(c, "SELECT * FROM hot WHERE id = 5") == [(5, 5)]  # from shared memory when the worker stands still

        def look(shown: list[tuple[Any, ...]]) -> None:
            assert shown[0][:3] == ("index of table v by user, author", "", "runs")
            assert rows(c, "SELECT * FROM hot WHERE id = 5") == [(5, 5)]

        killed(served, "CREATE INDEX by_user ON v (user, author)", lambda: execute(c, "DROP INDEX by_user ON v"), look)
        assert until("nothing is built", lambda: builds(served) == [])
        assert "by_user" not in str(rows(c, "SHOW INDEX FROM v"))
        statement = Statement(served, "ALTER TABLE v ADD INDEX by_user (user, id), ALTER user SET DEFAULT 5")
        with halted(served, statement):
            served.kill("worker")
        assert statement.outcome() is None
        assert builds(served) == []
        assert "KEY `by_user` (`user`, `id`)" in rows(c, "SHOW CREATE TABLE v")[0][1]
        execute(c, "INSERT INTO v (id, author) VALUES (-1, 1)")
        assert rows(c, "SELECT id FROM v WHERE user = 5 AND id < 0") == [(-1,)]
        execute(c, "DROP INDEX by_user ON v")
        execute(c, "DELETE FROM v WHERE id = -1")
        assert "by_user" not in rows(c, "SHOW CREATE TABLE v")[0][1]


def test_columns_that_are_added(served: Served) -> None:
    """Rows of before and after, in views of before and after, by Spark, after a load and after a crash."""
    with served.connect() as c:
        execute(c, "CREATE TABLE w (id INT PRIMARY KEY, a INT, s VARCHAR(20))")
        execute(c, "INSERT INTO w VALUES " + ", ".join(f"({i}, {i % 10}, 'text {i}')" for i in range(2_000)))
        execute(c, "CREATE VIEW old AS SELECT * FROM w WHERE a = ?")
        assert len(rows(c, "SELECT * FROM old WHERE a = 3")) == 200
        execute(c, "ALTER TABLE w ADD COLUMN t VARCHAR(9) DEFAULT 'was', ADD COLUMN n INT NOT NULL DEFAULT 7")
        execute(c, "CREATE VIEW new AS SELECT * FROM w WHERE a = ?")
        execute(c, "CREATE VIEW per_n AS SELECT n, COUNT(*) AS c FROM w GROUP BY n")
        execute(c, "INSERT INTO w VALUES (-1, 3, 'late', 'now', 8)")
        execute(c, "UPDATE w SET s = 'changed' WHERE id = 3")
        by_spark = "SELECT t, n, COUNT(*) FROM (SELECT * FROM w LIMIT 20000) q GROUP BY t, n"

        def right(more: int) -> None:
            assert (-1, 3, "late") in rows(c, "SELECT * FROM old WHERE a = 3")
            found = set(rows(c, "SELECT * FROM new WHERE a = 3"))
            assert {(-1, 3, "late", "now", 8), (3, 3, "changed", "was", 7)} <= found
            assert set(rows(c, "SELECT * FROM per_n")) == {(7, 2_000 + more), (8, 1)}
            assert set(rows(c, by_spark)) == {("was", 7, 2_000 + more), ("now", 8, 1)}

        right(0)
        path = served.data.parent / "w.csv"
        path.write_text("id,a,s\n" + "".join(f"{i},3,loaded {i}\n" for i in range(5_000, 5_010)))
        done = served.run("load", "w", str(path))
        assert done.returncode == 0, done.stderr
        right(10)
        assert len(rows(c, "SELECT * FROM old WHERE a = 3")) == 211
        served.kill("worker")
        right(10)
        served.wait_up()
        assert served.run("verify").returncode == 0
        for what in ("VIEW old", "VIEW new", "VIEW per_n", "TABLE w"):
            execute(c, f"DROP {what}")


def test_columns_that_change(served: Served) -> None:
    """Rows are looked at while others write; killed, it was never there; a worker that ends begins anew.  What was
    changed holds for Spark, for a load and after crashes."""
    with served.connect() as c:
        execute(c, "CREATE VIEW seen AS SELECT id, author FROM v WHERE id = ?")
        assert rows(c, "SELECT * FROM seen WHERE id = 5") == [(5, 5)]
        before = rows(c, "SHOW CREATE TABLE v")

        def look(shown: list[tuple[Any, ...]]) -> None:
            assert shown[0][:3] == ("do the rows of table v fit its new definition", "", "runs")
            assert rows(c, "SELECT * FROM seen WHERE id = 5") == [(5, 5)]

        undo = {"ALTER TABLE v MODIFY user VARCHAR(9) AFTER id": "ALTER TABLE v MODIFY user INT NOT NULL AFTER author",
                "CREATE UNIQUE INDEX u ON v (author, id)": "DROP INDEX u ON v"}
        for text in undo:
            killed(served, text, lambda text=text: execute(c, undo[text]), look)
            assert until("nothing is built", lambda: builds(served) == [])
            assert rows(c, "SHOW CREATE TABLE v") == before
        statement = Statement(served, "ALTER TABLE v MODIFY user TINYINT UNSIGNED")
        error = statement.outcome()
        assert error is not None and error.args[0] == 1264 and "row 257" in error.args[1]
        statement = Statement(served, "ALTER TABLE v CHANGE user who VARCHAR(9) NOT NULL AFTER id, "
                                      "ADD UNIQUE u (author, id)")
        with halted(served, statement):
            served.kill("worker")
        assert statement.outcome() is None
        execute(c, "INSERT INTO v (id, author, who) VALUES (-1, 7, 'new')")
        with pytest.raises(pymysql.err.MySQLError, match="views need it: 'hot', 'seen'"):
            execute(c, "ALTER TABLE v MODIFY author BIGINT NOT NULL")
        execute(c, "RENAME TABLE v TO w")
        execute(c, "CREATE VIEW per_who AS SELECT who, COUNT(*) AS n FROM w GROUP BY who")

        def right() -> None:
            assert rows(c, "SELECT * FROM w WHERE id = 778") == [(778, "1", 778)]
            assert rows(c, "SELECT * FROM seen WHERE id = -1") == [(-1, 7)]
            counts = dict(rows(c, "SELECT * FROM per_who"))
            assert (len(counts), counts["new"], counts["6"]) == (778, 1, len(range(6, ROWS, 777)))
            execute(c, "SET max_execution_time = 300000")  # Spark is there a while after the server
            assert rows(c, "SELECT MAX(n) FROM (SELECT who, COUNT(*) AS n FROM (SELECT * FROM w LIMIT 1000000) q "
                           "GROUP BY who) p") == [(max(counts.values()),)]  # by Spark

        right()
        served.kill("worker", "front")
        served.start()
        served.wait_up()
    with served.connect() as c:
        right()
        path = served.data.parent / "w.csv"
        path.write_text("id,author,who\n-2,7,loaded\n")
        assert served.run("load", "w", str(path)).returncode == 0
        execute(c, "CREATE VIEW of_author AS SELECT id, author FROM w WHERE author = ?")
        assert len(rows(c, "SELECT * FROM of_author WHERE author = 7")) == ROWS // AUTHORS + 2
        assert until("nothing is built", lambda: builds(served) == [])
        execute(c, "DROP INDEX u ON w")
        execute(c, "INSERT INTO w VALUES (-3, 'third', 7)")
        assert len(rows(c, "SELECT * FROM of_author WHERE author = 7")) == ROWS // AUTHORS + 3
        execute(c, "DROP VIEW of_author")
        assert rows(c, "SELECT * FROM w WHERE id = -2") == [(-2, "loaded", 7)]
        assert rows(c, "SELECT n FROM per_who WHERE who = 'loaded'") == [(1,)]
        assert served.run("verify").returncode == 0
        for what in ("VIEW seen", "VIEW per_who"):
            execute(c, f"DROP {what}")
