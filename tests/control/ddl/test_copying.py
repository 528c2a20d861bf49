"""ALTER TABLE of keys by which rows are at other workers, on a database of this process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import pytest

import noria
from noria.client import Database
from noria.core.errors import SqlError
from noria.dataflow.messages.packets import Inspect
from noria.runtime.cluster import exclusive

MANY = 100
ALTER = "ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (b, a)"
Meanwhile = Callable[[Any], Awaitable[None]]


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(exclusive, "COPIED_ROWS", 7)
    return tmp_path / "data"


@pytest.fixture
def filled(path: Path) -> Iterator[Database]:
    with noria.open(path, workers=3) as db:
        db.sql("CREATE TABLE t (a INT, b INT, c INT, PRIMARY KEY (a, b)); CREATE TABLE u (id INT PRIMARY KEY, a INT)")
        db.sql("CREATE VIEW of_c AS SELECT a, b FROM t WHERE c = ?")
        db.sql("CREATE VIEW per AS SELECT c, COUNT(*) AS n, SUM(a) AS s FROM t GROUP BY c")
        db.sql("CREATE VIEW joined AS SELECT u.id, t.b FROM u JOIN t ON t.a = u.a WHERE u.id = ?")
        db.table("t").insert([(i, i % 9, i % 5) for i in range(MANY)])
        db.table("u").insert([(i, i) for i in range(MANY)])
        check(db)
        yield db


def check(db: Database, more: tuple[tuple[int, int, int], ...] = ()) -> None:
    rows = sorted([*((i, i % 9, i % 5) for i in range(MANY)), *more])
    assert sorted(db.sql("SELECT a, b, c FROM t").rows) == rows
    assert sorted(db.view("of_c").lookup(3)) == [(a, b) for a, b, c in rows if c == 3]
    assert sorted(db.view("per").lookup()) == [
        (n, sum(r[2] == n for r in rows), sum(r[0] for r in rows if r[2] == n)) for n in range(5)]
    assert db.view("joined").lookup(7) == [(7, 7)]
    transport: Any = db.transport
    assert set(transport.link._program.mirror.tables) == {"t", "u"}
    assert transport.run(transport.executor.ask(Inspect(0, "validate"))).startswith("every state")


def during(db: Database, monkeypatch: pytest.MonkeyPatch, *meanwhile: Meanwhile) -> None:
    """What happens once the rows are copied, each at one try."""
    left, copy_rows = list(meanwhile), exclusive.copy_rows
    transport: Any = db.transport

    async def copied(*args: Any) -> None:
        await copy_rows(*args)
        if left:
            await left.pop(0)(transport.sessions)

    monkeypatch.setattr(exclusive, "copy_rows", copied)


def test_only_writes_of_the_table_wait(filled: Database, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting: list[asyncio.Task[Any]] = []

    async def meanwhile(sessions: Any) -> None:
        waiting.append(asyncio.ensure_future(sessions.run("INSERT INTO t VALUES (500, 500, 3)", [])))
        await sessions.run("UPDATE u SET a = 7 WHERE id = 7", [])
        for text in ("SELECT a, b FROM t WHERE c = 1", "SELECT b, c FROM t WHERE a = 7", "SELECT COUNT(*) FROM t"):
            assert (await sessions.run(text, []))[-1].rows
        assert not waiting[0].done()

    during(filled, monkeypatch, meanwhile)
    filled.sql(ALTER)
    transport: Any = filled.transport
    transport.run(asyncio.wait_for(asyncio.shield(waiting[0]), 30))
    check(filled, ((500, 500, 3),))
    with pytest.raises(SqlError, match="Duplicate entry '500-500'"):
        filled.sql("INSERT INTO t (b, a) VALUES (500, 500)")
    filled.close()
    with noria.open(path, workers=3) as again:
        check(again, ((500, 500, 3),))
        again.sql("ALTER TABLE t DROP PRIMARY KEY, ADD UNIQUE (a), RENAME TO w, ADD COLUMN d VARCHAR(9) DEFAULT 'x'")
        assert again.sql("SELECT * FROM w WHERE a = 500").rows == [(500, 500, 3, "x")]
        assert again.view("of_c").lookup(1) and again.sql("SHOW TABLES LIKE 't'").rows == []


@pytest.mark.parametrize("text", [ALTER, "ALTER TABLE t ADD n INT AUTO_INCREMENT UNIQUE"])
def test_given_up(filled: Database, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    async def give_up(_: Any) -> None:
        raise asyncio.CancelledError

    during(filled, monkeypatch, give_up)
    with pytest.raises(CancelledError):
        filled.sql(text)
    filled.sql("INSERT INTO t VALUES (500, 1, 3)")
    check(filled, ((500, 1, 3),))
    filled.sql(text)
    check(filled, ((500, 1, 3),))


def test_numbers_are_those_of_all_workers(filled: Database) -> None:
    filled.sql("ALTER TABLE t ADD n INT AUTO_INCREMENT UNIQUE FIRST, AUTO_INCREMENT = 11")
    assert sorted(filled.sql("SELECT n FROM t").rows) == [(i + 11,) for i in range(MANY)]
    assert filled.sql("INSERT INTO t (a, b, c) VALUES (500, 1, 3)").last_insert_id == MANY + 11
    check(filled, ((500, 1, 3),))


@pytest.mark.parametrize("text, code", [
    ("ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (b)", 1062), ("ALTER TABLE t ADD UNIQUE (b)", 1062),
    ("ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (c, a), RENAME TO u", 1050)])
def test_what_does_not_fit_changes_nothing(filled: Database, text: str, code: int) -> None:
    with pytest.raises(SqlError) as e:
        filled.sql(text)
    assert e.value.code == code and "\0" not in e.value.message
    check(filled)


def test_a_key_with_a_new_column(filled: Database) -> None:
    """Views of before know nothing of it: for them rows may be anywhere."""
    filled.sql("ALTER TABLE t ADD d INT NOT NULL, DROP PRIMARY KEY, ADD PRIMARY KEY (d, a)")
    assert filled.sql("SELECT d FROM t WHERE a = 3").rows == [(0,)]
    check(filled)


def test_null_is_told_as_alter_table_tells_it(filled: Database) -> None:
    filled.sql("INSERT INTO t VALUES (500, 0, NULL)")
    with pytest.raises(SqlError) as e:
        filled.sql("ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (c, a)")
    assert e.value.code == 1138


def test_a_table_of_a_dump_gets_its_keys_at_last(path: Path) -> None:
    """As phpMyAdmin writes them: rows first, then keys, then AUTO_INCREMENT.  Values of all types stay."""
    with noria.open(path, workers=2) as db:
        db.sql("CREATE TABLE d (id INT NOT NULL, t TEXT, v VARBINARY(9), e ENUM('x','y'), s SET('p','q'), j JSON, "
               "n DECIMAL(18,4), f DOUBLE, day DATE, at DATETIME(6), long_ TIME(3), big BIGINT UNSIGNED, bit_ BOOL)")
        db.sql("INSERT INTO d VALUES (1, 'ü€😀', x'00ff', 'y', 'p,q', '{\"k\": [1, null]}', 12345678901234.1234, "
               "1e-300, '1999-12-31', '2001-02-03 04:05:06.789012', '-25:01:02.345', 9000000000000000000, 1), "
               "(7, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL), "
               "(3, '', '', 'x', '', 'true', 0, -0.0, '0001-01-01', '9999-12-31 23:59:59', '00:00:00', 0, 0)")
        before = sorted(map(str, db.sql("SELECT * FROM d").rows))
        db.sql("ALTER TABLE d ADD PRIMARY KEY (id), ADD KEY by_day (day)")
        db.sql("ALTER TABLE d MODIFY id INT NOT NULL AUTO_INCREMENT, AUTO_INCREMENT = 20")
        assert sorted(map(str, db.sql("SELECT * FROM d").rows)) == before
        assert db.sql("INSERT INTO d (t) VALUES ('next')").last_insert_id == 20
        assert db.sql("SELECT t FROM d WHERE id = 20").rows == [("next",)]
        db.sql("ALTER TABLE d DROP PRIMARY KEY, MODIFY id VARCHAR(20), ADD UNIQUE (id)")
        assert db.sql("SELECT t FROM d WHERE id = '20'").rows == [("next",)]
        assert db.sql("SELECT COUNT(*) FROM d").rows == [(4,)]
