"""A change of the program whose commit finds no room: nothing of it is there, and it can be made later."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import noria
import workers
from control.databases import each_worker
from noria.client import Database
from noria.core import limits
from noria.core.errors import SqlError
from noria.dataflow.messages.packets import Inspect
from noria.storage.rocks.errors import disk_full

CHANGES = (
    "CREATE TABLE w (id INT PRIMARY KEY)", "CREATE VIEW w AS SELECT id FROM t WHERE a = ?",
    "CREATE MATERIALIZED VIEW w AS SELECT a, COUNT(*) AS n FROM t GROUP BY a", "DROP VIEW one",
    "DROP VIEW one, all_of_it",
    "CREATE OR REPLACE VIEW one AS SELECT a, id FROM t WHERE id = ?", "DROP TABLE u", "RENAME TABLE t TO w",
    "ALTER TABLE t ADD COLUMN x INT DEFAULT 4, DROP COLUMN z", "ALTER TABLE t MODIFY z VARCHAR(9)",
    "ALTER TABLE t ADD UNIQUE (z)", "ALTER TABLE t DROP INDEX by_a", "ALTER TABLE t DROP INDEX u",
    "ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (z, id)", "ALTER TABLE t DROP PRIMARY KEY", "TRUNCATE t")


async def quiet(transport: Any) -> None:
    """What was beside something is gone."""
    await transport.program.wait_until_idle()
    while not transport.link.is_idle():
        await asyncio.sleep(0)


def told(db: Database) -> list[Any]:
    """All that can be seen of it, but ad-hoc views."""
    transport: Any = db.transport
    transport.run(quiet(transport))
    names = [[sorted(n for n in of if not n.startswith("adhoc_")) for of in
              (worker.store.tables(), worker.changes.views, worker.engine.readers)] for worker in each_worker(db)]
    tables = [db.sql(f"SHOW CREATE TABLE {t}").rows for t in ("t", "u")]
    rows = [sorted(db.sql(f"SELECT * FROM {t}").rows) for t in ("t", "u", "all_of_it")]
    return [names, tables, rows, sorted(db.view("one").lookup(1))]


@pytest.mark.parametrize("text", CHANGES)
def test_a_change_whose_commit_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(limits, "TRUNCATE_AT_ONCE_ROWS", -1)
    with noria.open(tmp_path / "data") as db:
        transport: Any = db.transport
        store = each_worker(db)[-1].store
        db.sql("CREATE TABLE t (id INT PRIMARY KEY, a INT, z INT NOT NULL, k INT, KEY by_a (a), UNIQUE u (k))")
        db.sql("CREATE TABLE u (id INT PRIMARY KEY)")
        db.sql("INSERT INTO t VALUES (1, 1, 5, 1), (2, 1, 6, 2), (3, 2, 7, 3)")
        db.sql("INSERT INTO u VALUES (1)")
        db.sql("CREATE VIEW one AS SELECT id, a FROM t WHERE a = ?")
        db.sql("CREATE MATERIALIZED VIEW all_of_it AS SELECT id, a FROM t")
        before = told(db)
        tidied = transport.run(transport.executor.ask(Inspect(0, "validate")))

        def full(*_: Any) -> None:
            raise disk_full("here", "no space")

        with monkeypatch.context() as m:
            m.setattr(store, "set_recipe", full)
            with pytest.raises(SqlError) as e:
                db.sql(text)
            assert e.value.code == 1021
        assert told(db) == before
        assert transport.run(transport.executor.ask(Inspect(0, "validate"))) == tidied
        db.sql("INSERT INTO t VALUES (4, 1, 8, 4)")
        assert sorted(db.view("one").lookup(1)) == [(1, 1), (2, 1), (4, 1)]
        assert len(db.sql("SELECT * FROM all_of_it").rows) == 4
        db.sql("DELETE FROM t WHERE id = 4")
        db.sql(text)
        transport.run(transport.executor.ask(Inspect(0, "validate")))


def test_what_only_the_last_of_three_cannot_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dropped table was gone at the others."""
    with workers.by_default(3):
        test_a_change_whose_commit_fails(tmp_path, monkeypatch, "DROP TABLE u")


@pytest.mark.one_worker("of several, keys by which rows are spread are altered by copying: test_copying.py")
def test_a_refusal_after_rows_were_looked_at_leaves_no_copy(tmp_path: Path) -> None:
    """A view that needs the primary key came while the rows got another one."""
    with noria.open(tmp_path / "data") as db:
        transport: Any = db.transport
        program, stores = transport.program, [worker.store for worker in each_worker(db)]
        db.sql("CREATE TABLE t (id INT PRIMARY KEY, a INT NOT NULL)")
        db.sql("INSERT INTO t VALUES (1, 1), (2, 1)")
        looked = program.table_changes.fit

        async def fit(command: Any) -> None:
            await looked(command)
            assert all(store.table("t").fitting is not None for store in stores)
            await transport.sessions.run("CREATE VIEW each AS SELECT id, a, COUNT(*) AS n FROM t GROUP BY id", [])

        program.table_changes.fit = fit
        with pytest.raises(SqlError) as e:
            db.sql("ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (a, id)")
        assert e.value.code == 3730
        transport.run(transport.executor.ask(Inspect(0, "validate")))
        assert all(store.table("t").fitting is None for store in stores)
        assert "PRIMARY KEY (`id`)" in db.sql("SHOW CREATE TABLE t").rows[0][1]
        del program.table_changes.fit
        db.sql("DROP VIEW each")
        db.sql("ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (a, id)")
        assert sorted(db.sql("SELECT id FROM t WHERE a = 1").rows) == [(1,), (2,)]
