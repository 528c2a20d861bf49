"""Random histories of several sessions: transactions, savepoints, locks, constraints, two databases.

A history is a list of (session, text).  No statement waits: `innodb_lock_wait_timeout` is 0 in all sessions, so a
locked row is error 1205 at once.  Writes find their rows by a key, so that both servers lock the same rows.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

SESSIONS = 3
TABLES = ("CREATE TABLE acc (id INT PRIMARY KEY, a INT, b INT, u INT, UNIQUE KEY uu (u), KEY ka (a))",
          "CREATE TABLE kv (k VARCHAR(8) PRIMARY KEY, v INT, n INT NOT NULL DEFAULT 7)",
          "CREATE TABLE ai (id INT AUTO_INCREMENT PRIMARY KEY, a INT, s VARCHAR(8), UNIQUE KEY us (s, a))",
          "CREATE TABLE bag (x INT, y INT)",
          "CREATE TABLE side.boss (id INT PRIMARY KEY, n INT, CHECK (n < 40))",
          "CREATE TABLE kid (id INT PRIMARY KEY, p INT, q INT, up INT, CHECK (id < 6 OR up > 1), KEY kp (p), "
          "KEY kq (q), FOREIGN KEY (p) REFERENCES side.boss (id) ON DELETE CASCADE ON UPDATE CASCADE, "
          "FOREIGN KEY (q) REFERENCES side.boss (id) ON DELETE SET NULL, "
          "KEY ku (up), FOREIGN KEY (up) REFERENCES kid (id))")
DATABASE, NAMES = "side", ("kid", "side.boss", "bag", "ai", "kv", "acc")
VIEWS = ("SELECT a, COUNT(*), SUM(b) FROM acc GROUP BY a", "SELECT id, a, b, u FROM acc", "SELECT k, v, n FROM kv",
         "SELECT a, s FROM ai", "SELECT x, y, COUNT(*) FROM bag GROUP BY x, y",
         "SELECT acc.id, kv.v FROM acc JOIN kv ON acc.a = kv.v", "SELECT id, p, q, up FROM kid",
         "SELECT b.n, COUNT(*) FROM kid JOIN side.boss AS b ON b.id = kid.p GROUP BY b.n")

Step = tuple[int, str]


@dataclass
class _Session:
    """open: inside BEGIN … COMMIT, or autocommit is off.  used: it has read or written since.  MySQL ends the snapshot
    of a transaction that goes back to a savepoint from before.  savepoints: their names, oldest first."""

    autocommit: bool = True
    open: bool = False
    used: bool = False
    savepoints: list[str] = field(default_factory=list)


class Histories:
    """The history of one seed."""

    def __init__(self, seed: int):
        self._c = random.Random(seed)
        self._sessions = [_Session() for _ in range(SESSIONS)]

    def history(self, length: int = 60) -> list[Step]:
        """The steps after the tables are made."""
        steps: list[Step] = [(0, text) for text in self._data()]
        for n in range(SESSIONS):
            level = self._c.choice(("REPEATABLE READ", "READ COMMITTED"))
            steps.append((n, f"SET SESSION TRANSACTION ISOLATION LEVEL {level}"))
        steps += [(0, text) for text in VIEWS]
        for _ in range(length):
            n = self._c.randrange(SESSIONS)
            steps.append((n, self._step(self._sessions[n])))
        steps += [(n, "COMMIT") for n in range(SESSIONS)] + [(n, "SET autocommit = 1") for n in range(SESSIONS)]
        return steps + [(n, text) for n in range(2) for text in VIEWS]

    def _data(self) -> list[str]:
        acc = ", ".join(f"({n}, {n % 3}, {n * 10}, {n * 2})" for n in range(1, 7))
        kv = ", ".join(f"('{k}', {n}, {n})" for n, k in enumerate("abcd"))
        return [f"INSERT INTO acc VALUES {acc}", f"INSERT INTO kv VALUES {kv}",
                "INSERT INTO ai (a, s) VALUES (1, 'x'), (2, 'y'), (NULL, 'z')",
                "INSERT INTO bag VALUES (1, 1), (1, 1), (2, 2), (NULL, 3)",
                "INSERT INTO side.boss VALUES (1, 1), (2, 2), (3, 30)",
                "INSERT INTO kid VALUES (1, 1, 2, NULL), (2, 2, NULL, 1), (3, NULL, 3, 2), (4, 3, 1, 1)"]

    def _step(self, session: _Session) -> str:
        draw = self._c.random()
        if draw < 0.16:
            return self._control(session)
        if draw < 0.22 and session.open and session.used:
            return self._savepoint(session)
        if draw < 0.24:
            return self._user_lock()
        session.used = True
        return self._read() if draw < 0.55 else self._write()

    def _control(self, session: _Session) -> str:
        session.used = False
        if session.open and self._c.random() < 0.9:
            session.open = not session.autocommit
            session.savepoints.clear()
            return self._c.choice(("COMMIT", "COMMIT", "ROLLBACK"))
        if self._c.random() < 0.1:
            session.autocommit = not session.autocommit
            session.open = not session.autocommit
            session.savepoints.clear()
            return f"SET autocommit = {int(session.autocommit)}"
        session.open = True
        session.savepoints.clear()
        return self._c.choice(("BEGIN", "START TRANSACTION", "BEGIN", "START TRANSACTION WITH CONSISTENT SNAPSHOT"))

    def _savepoint(self, session: _Session) -> str:
        name = self._c.choice("pq")
        if name in session.savepoints and self._c.random() < 0.6:
            at = session.savepoints.index(name)
            if self._c.random() < 0.2:
                del session.savepoints[at:]
                return f"RELEASE SAVEPOINT {name}"
            del session.savepoints[at + 1:]
            return f"ROLLBACK TO SAVEPOINT {name}"
        if name in session.savepoints:
            session.savepoints.remove(name)
        session.savepoints.append(name)
        return f"SAVEPOINT {name}"

    def _user_lock(self) -> str:
        name = self._c.choice(("'a'", "'b'"))
        return self._c.choice((f"SELECT GET_LOCK({name}, 0)", f"SELECT RELEASE_LOCK({name})",
                               f"SELECT IS_FREE_LOCK({name})"))

    # ------------------------------------------------------------ reads
    def _read(self) -> str:
        c = self._c
        return c.choice((
            lambda: f"SELECT * FROM acc WHERE id = {self._id()}",
            lambda: f"SELECT id, b FROM acc WHERE a = {c.randrange(4)}",
            lambda: "SELECT COUNT(*), SUM(b), MIN(u), MAX(id) FROM acc",
            lambda: "SELECT a, COUNT(*), SUM(b) FROM acc GROUP BY a",
            lambda: f"SELECT id FROM acc WHERE u = {c.randrange(16)}",
            lambda: "SELECT id, b FROM acc ORDER BY b DESC, id LIMIT 3",
            lambda: f"SELECT * FROM kv WHERE k = '{self._key()}'",
            lambda: "SELECT v, COUNT(*) FROM kv GROUP BY v",
            lambda: "SELECT a, s FROM ai", lambda: "SELECT COUNT(*), COUNT(s) FROM ai",
            lambda: "SELECT x, y FROM bag", lambda: f"SELECT COUNT(*) FROM bag WHERE x = {c.randrange(4)}",
            lambda: "SELECT acc.id, kv.k FROM acc JOIN kv ON acc.a = kv.v",
            lambda: "SELECT acc.id, kv.k FROM acc LEFT JOIN kv ON acc.a = kv.v AND kv.n > 1",
            lambda: "SELECT id FROM acc WHERE a IN (SELECT v FROM kv WHERE n < 3)",
            lambda: f"SELECT * FROM acc WHERE id = {self._id()} {self._lock()}",
            lambda: f"SELECT v, n FROM kv WHERE k = '{self._key()}' {self._lock()}",
            lambda: f"SELECT COUNT(*), SUM(b) FROM acc WHERE id IN ({self._id()}, {self._id()}) {self._lock()}",
            lambda: f"SELECT * FROM kid WHERE id = {self._few()}", lambda: "SELECT id, p, q, up FROM kid",
            lambda: f"SELECT n FROM side.boss WHERE id = {self._few()} {self._lock()}",
            lambda: "SELECT kid.id, b.n FROM kid LEFT JOIN side.boss AS b ON b.id = kid.q",
            lambda: "SELECT b.id, (SELECT COUNT(*) FROM kid WHERE p = b.id) FROM side.boss AS b",
            lambda: f"SELECT id, b FROM acc WHERE b BETWEEN {c.randrange(30)} AND {c.randrange(30, 70)}"))()

    def _lock(self) -> str:
        return self._c.choice(("FOR UPDATE", "LOCK IN SHARE MODE"))

    def _id(self) -> int:
        return self._c.randint(1, 9)

    def _few(self) -> int:
        return self._c.randint(1, 6)

    def _two(self) -> list[int]:
        """Of a kid and the one above it: MariaDB cannot delete a row that refers to itself by CASCADE."""
        return self._c.sample(range(1, 7), 2)

    def _maybe(self) -> int | str:
        return self._c.choice((self._few(), "NULL"))

    def _key(self) -> str:
        return self._c.choice("abcdef")

    # ------------------------------------------------------------ writes
    def _write(self) -> str:
        c = self._c
        return c.choice((
            lambda: f"INSERT INTO acc VALUES {self._acc()}",
            lambda: f"INSERT INTO acc VALUES {self._acc()}, {self._acc()}",
            lambda: f"INSERT IGNORE INTO acc VALUES {self._acc()}",
            lambda: f"REPLACE INTO acc VALUES {self._acc()}",
            lambda: f"INSERT INTO acc VALUES {self._acc()} ON DUPLICATE KEY UPDATE b = b + 1",
            lambda: f"UPDATE acc SET b = b + {c.randint(1, 5)} WHERE id = {self._id()}",
            lambda: f"UPDATE acc SET a = {c.randrange(4)}, b = a WHERE id = {self._id()}",
            lambda: f"UPDATE acc SET u = {c.randrange(16)} WHERE id = {self._id()}",
            lambda: f"UPDATE acc SET id = {self._id()} WHERE id = {self._id()}",
            lambda: f"UPDATE acc SET b = 0 WHERE id IN ({self._id()}, {self._id()})",
            lambda: f"DELETE FROM acc WHERE id = {self._id()}",
            lambda: f"DELETE FROM acc WHERE u = {c.randrange(16)}",
            lambda: f"INSERT INTO kv (k, v) VALUES ('{self._key()}', {c.randrange(4)})",
            lambda: f"INSERT INTO kv (k, v) VALUES ('{self._key()}', 1) ON DUPLICATE KEY UPDATE v = v + 1, n = n + 10",
            lambda: f"UPDATE kv SET v = v + 1 WHERE k = '{self._key()}'",
            lambda: f"UPDATE kv SET k = '{self._key()}' WHERE k = '{self._key()}'",
            lambda: f"DELETE FROM kv WHERE k = '{self._key()}'",
            lambda: f"REPLACE INTO kv VALUES ('{self._key()}', {c.randrange(4)}, 1)",
            lambda: f"INSERT INTO ai (a, s) VALUES ({c.randrange(3)}, '{c.choice('xyz')}')",
            lambda: f"INSERT INTO ai (a, s) VALUES ({c.randrange(3)}, '{c.choice('xyz')}'), (NULL, 'n')",
            lambda: f"DELETE FROM ai WHERE s = '{c.choice('xyz')}' AND a = {c.randrange(3)}",
            lambda: f"INSERT INTO bag VALUES ({c.randrange(4)}, {c.randrange(3)})",
            lambda: "INSERT INTO bag VALUES (1, 1), (1, 1), (3, NULL)", *self._of_families()))()

    def _of_families(self) -> Sequence[Callable[[], str]]:
        """Writes of tables with FOREIGN KEYs and CHECKs."""
        few, c = self._few, self._c
        return (
            lambda: f"INSERT INTO side.boss VALUES ({few()}, {c.randrange(45)})",
            lambda: f"REPLACE INTO side.boss VALUES ({few()}, {c.randrange(45)})",
            lambda: f"UPDATE side.boss SET n = n + {c.randrange(20)} WHERE id = {few()}",
            lambda: f"UPDATE side.boss SET id = {few()} WHERE id = {few()}",
            lambda: f"DELETE FROM side.boss WHERE id = {few()}",
            lambda: "INSERT INTO kid VALUES ({0}, {2}, {3}, {1})".format(*self._two(), few(), self._maybe()),
            lambda: "INSERT IGNORE INTO kid VALUES ({0}, {2}, NULL, {1})".format(*self._two(), few()),
            lambda: f"UPDATE kid SET p = {few()} WHERE id = {few()}",
            lambda: "UPDATE kid SET q = {2}, up = {1} WHERE id = {0}".format(*self._two(), few()),
            lambda: f"UPDATE kid SET up = NULL WHERE id = {few()}",
            lambda: f"INSERT INTO kid VALUES ({few()}, 1, NULL, NULL) ON DUPLICATE KEY UPDATE p = {few()}",
            lambda: f"DELETE FROM kid WHERE id = {few()}")

    def _acc(self) -> str:
        u = self._c.choice((*range(16), "NULL"))
        return f"({self._id()}, {self._c.randrange(4)}, {self._c.randrange(50)}, {u})"
