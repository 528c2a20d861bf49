"""Which anomalies each isolation level allows, here and in InnoDB: the table of the page on consistency, by runs.

Sessions take turns, so nothing depends on time.  No statement waits for a lock: it fails instead, and the anomaly is
prevented.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pymysql
import pytest

from e2e.local import LocalServer
from e2e.mariadb import INSTALLED, MariaDb
from e2e.transactions.waiting import run

PAGE = Path(__file__).parents[3] / "docs" / "explanation" / "consistency.md"
LEVELS = ("READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE")
Rows = list[tuple[Any, ...]]
Say = Callable[[int, str], Rows]  # a session's statement, and its rows


def dirty_write(say: Say) -> bool:
    say(0, "UPDATE t SET v = 11 WHERE id = 1")
    say(1, "UPDATE t SET v = 12 WHERE id = 1")
    return True


def dirty_read(say: Say) -> bool:
    say(0, "UPDATE t SET v = 99 WHERE id = 1")
    return say(1, "SELECT v FROM t WHERE id = 1") == [(99,)]


def non_repeatable_read(say: Say) -> bool:
    before = say(1, "SELECT v FROM t WHERE id = 1")
    say(0, "UPDATE t SET v = 99 WHERE id = 1")
    say(0, "COMMIT")
    return say(1, "SELECT v FROM t WHERE id = 1") != before


def phantom(say: Say) -> bool:
    before = say(1, "SELECT COUNT(*) FROM t WHERE v > 5")
    say(0, "INSERT INTO t VALUES (3, 30)")
    say(0, "COMMIT")
    return say(1, "SELECT COUNT(*) FROM t WHERE v > 5") != before


def read_skew(say: Say) -> bool:
    first = say(1, "SELECT v FROM t WHERE id = 1")
    say(0, "UPDATE t SET v = v + 1")
    say(0, "COMMIT")
    return first == [(10,)] and say(1, "SELECT v FROM t WHERE id = 2") == [(21,)]


def long_fork(say: Say) -> bool:
    one, two = say(1, "SELECT v FROM t WHERE id = 2"), say(2, "SELECT v FROM t WHERE id = 1")
    for session, key in ((0, 1), (3, 2)):
        say(session, f"UPDATE t SET v = 99 WHERE id = {key}")
        say(session, "COMMIT")
    seen = (say(1, "SELECT v FROM t WHERE id = 1"), one, two, say(2, "SELECT v FROM t WHERE id = 2"))
    return seen == ([(99,)], [(20,)], [(10,)], [(99,)])


def lost_update(say: Say) -> bool:
    return _lost_update(say, "")


def lost_update_for_update(say: Say) -> bool:
    return _lost_update(say, " FOR UPDATE")


def _lost_update(say: Say, how: str) -> bool:
    read = [say(session, f"SELECT v FROM t WHERE id = 1{how}") for session in (0, 1)]
    for session, ((value,),) in enumerate(read):
        say(session, f"UPDATE t SET v = {value + 1} WHERE id = 1")
        say(session, "COMMIT")
    return say(0, "SELECT v FROM t WHERE id = 1") == [(11,)]


def write_skew(say: Say) -> bool:
    for session in (0, 1):
        assert say(session, "SELECT SUM(v) FROM t") == [(30,)]
    for session in (0, 1):
        say(session, f"UPDATE t SET v = v - 20 WHERE id = {session + 1}")
        say(session, "COMMIT")
    return say(0, "SELECT SUM(v) FROM t") == [(-10,)]


def write_skew_of_a_condition(say: Say) -> bool:
    for session in (0, 1):
        assert say(session, "SELECT COUNT(*) FROM t WHERE v > 50") == [(0,)]
    for session in (0, 1):
        say(session, f"INSERT INTO t VALUES ({session + 3}, 60)")
        say(session, "COMMIT")
    return say(0, "SELECT COUNT(*) FROM t WHERE v > 50") == [(2,)]


def write_of_an_unseen_row(say: Say) -> bool:
    assert say(1, "SELECT COUNT(*) FROM t") == [(2,)]
    say(0, "INSERT INTO t VALUES (3, 30)")
    say(0, "COMMIT")
    say(1, "UPDATE t SET v = 0 WHERE id = 3")
    say(1, "COMMIT")
    return say(0, "SELECT v FROM t WHERE id = 3") == [(0,)]


ANOMALIES = {
    "dirty write": dirty_write, "dirty read": dirty_read, "non-repeatable read": non_repeatable_read,
    "phantom": phantom, "read skew": read_skew, "long fork": long_fork, "lost update": lost_update,
    "lost update, read by FOR UPDATE": lost_update_for_update, "write skew": write_skew,
    "write skew of a condition": write_skew_of_a_condition, "write of a row that the snapshot lacks":
    write_of_an_unseen_row}


def possible(connect: Callable[[], Any], anomaly: Callable[[Say], bool], level: str) -> bool:
    """Whether the anomaly happens.  A statement that would wait prevents it."""
    sessions = [connect() for _ in range(4)]
    try:
        run(sessions[0], "DROP TABLE IF EXISTS t", "CREATE TABLE t (id INT PRIMARY KEY, v INT)",
            "INSERT INTO t VALUES (1, 10), (2, 20)")
        for session in sessions:
            run(session, f"SET SESSION TRANSACTION ISOLATION LEVEL {level}",
                "SET SESSION innodb_lock_wait_timeout = 0", "BEGIN")
        return anomaly(lambda n, text: run(sessions[n], text))
    except pymysql.err.OperationalError as e:
        assert e.args[0] in (1205, 1213), e
        return False
    finally:
        for session in sessions:
            session.close()


def written() -> Iterator[tuple[str, Sequence[str]]]:
    """The rows of the page's table: the anomaly, and yes or no for each level, here and in InnoDB."""
    answers = r"\| (yes|no) " * 2 * len(LEVELS)
    for name, *cells in re.findall(r"^\| ([a-zA-Z ,-]+) " + answers + r"\|$", PAGE.read_text(), re.M):
        yield name, cells


def test_the_page_names_every_anomaly() -> None:
    assert [name for name, _ in written()] == list(ANOMALIES)


@pytest.mark.parametrize("workers", [1, 3])
def test_what_is_possible_here(tmp_path: Path, workers: int) -> None:
    server = LocalServer(tmp_path / "data", workers=workers)
    try:
        found = {name: ["yes" if possible(server.connect, anomaly, level) else "no" for level in LEVELS]
                 for name, anomaly in ANOMALIES.items()}
    finally:
        server.close()
    assert found == {name: list(cells[::2]) for name, cells in written()}


@pytest.mark.mariadb
@pytest.mark.skipif(not INSTALLED, reason="Debian's MariaDB server is not installed")
def test_what_is_possible_in_innodb(tmp_path: Path) -> None:
    mariadb = MariaDb(tmp_path)
    try:
        found = {name: ["yes" if possible(mariadb.connect, anomaly, level) else "no" for level in LEVELS]
                 for name, anomaly in ANOMALIES.items()}
    finally:
        mariadb.close()
    assert found == {name: list(cells[1::2]) for name, cells in written()}
