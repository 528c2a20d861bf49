"""TRUNCATE on a database of this process: small tables, large ones, and what happens meanwhile."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import pytest

from control.databases import Opened, each_worker
from noria.core import limits
from noria.core.errors import SqlError
from noria.core.limits import BUILD_AT_ONCE_ROWS
from noria.dataflow.messages import packets
from noria.plan.mir import Mir, show
from noria.plan.view import ViewDef
from noria.sql.commands import Truncate

MANY = 3 * BUILD_AT_ONCE_ROWS


class Emptied(Opened):
    """A database whose tables are all large to TRUNCATE, unless told otherwise."""

    def rows(self, text: str, *values: Any) -> list[tuple[Any, ...]]:
        return sorted(self.db.sql(text, list(values)).rows)

    def traces(self) -> list[str]:
        """What is left of something beside another."""
        names = [v for d in self.ask("graph") for v in d["views"]]
        tables = [t for worker in each_worker(self.db) for t in worker.store.tables()]
        told = [self.program.explanation(v.name) for v in self.program.views()]
        return [n for n in (*names, *tables, *self.program.shadow_views.views, *told) if "\0" in n]


@pytest.fixture
def emptied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Emptied]:
    monkeypatch.setattr(limits, "TRUNCATE_AT_ONCE_ROWS", -1)
    made = Emptied(tmp_path / "data")
    yield made
    made.db.close()


Meanwhile = Callable[[], Any]


def truncated(emptied: Emptied, *whats: Meanwhile | str, table: str = "t") -> None:
    """TRUNCATE, and what happens while its twins are being filled: a function, or a statement; one at each time."""
    program, left = emptied.program, list(whats)
    waits = program.shadow_views.fill

    async def fill(reply: packets.Migrated) -> None:
        what = left.pop(0) if left else None
        if isinstance(what, str):
            await emptied.transport.sessions.run(what, [])
        elif what is not None and asyncio.iscoroutine(done := what()):
            await done
        await waits(reply)

    async def run() -> None:
        await program.define(Truncate(table))

    program.shadow_views.fill = fill
    try:
        emptied.transport.run(run())
    finally:
        del program.shadow_views.fill
        assert not left


PER = "SELECT u.id, COUNT(t.id) AS n FROM u LEFT JOIN t ON t.a = u.id GROUP BY u.id"


@pytest.fixture
def filled(emptied: Emptied) -> Emptied:
    db = emptied.db
    db.sql("CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, a INT, s VARCHAR(20), KEY by_s (s))")
    db.sql("CREATE TABLE u (id INT PRIMARY KEY, k INT)")
    db.sql("CREATE VIEW by_a AS SELECT id, a FROM t WHERE a = ?")
    db.sql(f"CREATE MATERIALIZED VIEW per AS {PER}")
    db.sql("CREATE VIEW without_reader AS SELECT COUNT(*) AS n FROM t")
    db.table("u").insert([(i, i % 5) for i in range(MANY)])
    db.table("t").insert([(i % 7, f"s{i % 3}") for i in range(100)], ["a", "s"])
    assert len(emptied.rows("SELECT * FROM by_a WHERE a = 3")) == 14
    return emptied


def has(emptied: Emptied, rows: int) -> None:
    """So many rows, of those that were inserted; no state and no name is at odds with that, now and after a restart."""
    for _ in range(2):
        assert emptied.rows("SELECT COUNT(*) FROM t") == [(rows,)]
        assert len(emptied.rows("SELECT * FROM by_a WHERE a = 3")) == len([i for i in range(rows) if i % 7 == 3])
        counts = Counter(i % 7 for i in range(rows))
        assert emptied.rows("SELECT id, n FROM per WHERE n > 0") == sorted(counts.items())
        assert emptied.rows("SELECT n FROM without_reader") == [(rows,)]
        assert len(emptied.rows("SELECT id FROM t WHERE s = 's1'")) == len([i for i in range(rows) if i % 3 == 1])
        emptied.ask("validate")
        assert emptied.traces() == []
        emptied.again()


def program(emptied: Emptied) -> str:
    """But for where AUTO_INCREMENT is."""
    return re.sub(r"\s*AUTO_INCREMENT=\d+", "", emptied.transport.run(emptied.program.exported()))


def test_all_goes_and_all_goes_on(filled: Emptied) -> None:
    before = program(filled)
    assert filled.db.sql("TRUNCATE TABLE t").affected == 0
    assert program(filled) == before
    assert filled.program.catalog.without_reader == {"without_reader"}
    has(filled, 0)
    filled.db.table("t").insert([(i % 7, f"s{i % 3}") for i in range(20)], ["a", "s"])
    assert filled.rows("SELECT MIN(id), MAX(id) FROM t") == [(1, 20)], "AUTO_INCREMENT begins anew"
    has(filled, 20)
    assert filled.db.sql("SHOW NORIA HISTORY").rows[0][3] == "TRUNCATE TABLE t"


def test_few_rows_go_in_one_commit(filled: Emptied, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TRUNCATE_AT_ONCE_ROWS", 100)
    table = filled.program.table("t")
    assert filled.db.sql("TRUNCATE t").affected == 0
    assert filled.program.table("t") is table
    has(filled, 0)
    rows = 101 * len(each_worker(filled.db))  # one has more than 100
    filled.db.table("t").insert([(i % 7, f"s{i % 3}") for i in range(rows)], ["a", "s"])
    assert filled.rows("SELECT MIN(id), MAX(id) FROM t") == [(1, rows)]
    filled.db.sql("TRUNCATE t")
    assert filled.program.table("t").table_id != table.table_id, "one row too many"


@pytest.mark.parametrize("before, code", [("START TRANSACTION READ ONLY", 1792), ("LOCK TABLES t READ", 1099)])
def test_who_may_not_write(filled: Emptied, before: str, code: int) -> None:
    with pytest.raises(SqlError) as e:
        filled.db.sql(f"{before}; TRUNCATE t")
    assert e.value.code == code
    has(filled, 100)


def test_what_is_written_meanwhile_goes(filled: Emptied) -> None:
    truncated(filled, "INSERT INTO t (a, s) VALUES (3, 's1')")
    has(filled, 0)


def test_what_other_tables_get_meanwhile_stays(filled: Emptied) -> None:
    truncated(filled, f"INSERT INTO u VALUES ({MANY}, 1)")
    assert filled.rows(f"SELECT id, n FROM per WHERE id >= {MANY - 1}") == [(MANY - 1, 0), (MANY, 0)]
    has(filled, 0)


@pytest.mark.parametrize("text", [
    "DROP VIEW per", "CREATE VIEW more AS SELECT s, COUNT(*) AS n FROM t GROUP BY s", "CREATE OR REPLACE VIEW by_a AS "
    "SELECT a, id FROM t WHERE id = ?", "SELECT n FROM without_reader", "CREATE TABLE another (id INT PRIMARY KEY)",
    "CREATE MATERIALIZED VIEW more AS SELECT u.k, COUNT(t.id) AS n FROM u LEFT JOIN t ON t.a = u.id GROUP BY u.k",
    "RENAME TABLE u TO w", "ALTER TABLE u ADD COLUMN more INT", "SELECT k, COUNT(*) FROM u GROUP BY k"])
def test_the_program_changes_meanwhile(filled: Emptied, text: str) -> None:
    """Views have their twins, whatever became of them; a catalog written meanwhile knows of no table beside another."""
    truncated(filled, text)
    for rows in (0, 1, 1):
        if rows and filled.rows("SELECT COUNT(*) FROM t") == [(0,)]:
            filled.db.sql(f"INSERT INTO t (id, a) VALUES ({'3, 7' if 'REPLACE' in text else '7, 3'})")
        assert filled.rows("SELECT COUNT(*) FROM t") == [(rows,)]
        for view in filled.program.views():
            if view.name == "by_a":
                assert filled.db.view("by_a").lookup(3) == [(7, 3)] * rows
            else:
                assert sum(r[-1] for r in filled.db.view(view.name).lookup()) == rows, view.name
        filled.ask("validate")
        assert filled.traces() == []
        if rows:
            filled.again()


def test_a_view_is_being_replaced(filled: Emptied) -> None:
    """TRUNCATE waits for it; one that is given up meanwhile leaves no trace."""
    program, waits = filled.program, filled.program.shadow_views.fill

    async def run() -> None:
        filling, go_on = asyncio.Event(), asyncio.Event()

        async def fill(reply: packets.Migrated) -> None:
            filling.set()
            await go_on.wait()
            await waits(reply)

        program.shadow_views.fill = fill
        text = f"CREATE OR REPLACE VIEW per AS {PER.replace('COUNT(t.id)', 'COUNT(t.a)')}"
        replaced = asyncio.ensure_future(filled.transport.sessions.run(text, []))
        await filling.wait()
        emptied = [asyncio.ensure_future(program.define(Truncate("t"))) for _ in range(2)]
        while not program.swap.turn.locked():  # where it waits
            await filled.transport.executor.ask(packets.Inspect(0, "stats"))
        emptied[0].cancel()
        (given_up,) = await asyncio.gather(emptied[0], return_exceptions=True)
        assert isinstance(given_up, SqlError | asyncio.CancelledError)
        assert not emptied[1].done()
        go_on.set()
        await asyncio.gather(replaced, emptied[1])

    try:
        filled.transport.run(run())
    finally:
        del program.shadow_views.fill
    has(filled, 0)
    filled.db.sql("INSERT INTO t (a) VALUES (3)")
    assert filled.rows("SELECT id, n FROM per WHERE n > 0") == [(3, 1)]


@pytest.mark.parametrize("text", ["ALTER TABLE t ADD COLUMN more INT DEFAULT 5", "RENAME TABLE t TO w, w TO t",
                                  "CREATE INDEX more ON t (a, s)"])
def test_the_table_changes_meanwhile(filled: Emptied, text: str) -> None:
    """It is begun anew."""
    truncated(filled, text)
    has(filled, 0)
    if "ADD" in text:
        filled.db.sql("INSERT INTO t (a) VALUES (3)")
        assert filled.rows("SELECT id, more FROM t") == [(1, 5)]


def test_the_table_goes_meanwhile(filled: Emptied) -> None:
    filled.db.sql("DROP VIEW by_a, without_reader")
    with pytest.raises(SqlError) as e:
        truncated(filled, "DROP VIEW per; DROP TABLE t")
    assert e.value.code == 1146
    assert filled.traces() == []


def test_given_up(filled: Emptied) -> None:
    """Nothing of it is left, and it can be done."""
    async def give_up() -> None:
        raise asyncio.CancelledError

    with pytest.raises(CancelledError):
        truncated(filled, give_up)
    has(filled, 100)
    truncated(filled)
    has(filled, 0)


def test_a_twin_that_cannot_be_filled(filled: Emptied, monkeypatch: pytest.MonkeyPatch) -> None:
    async def full(*_: Any) -> None:
        raise SqlError(1041, "HY000", "Out of memory")

    with monkeypatch.context() as m:
        m.setattr(filled.program.first_states, "fill", full)
        with pytest.raises(SqlError, match="Out of memory"):
            filled.db.sql("TRUNCATE t")
    has(filled, 100)


def test_a_crash_in_mid_way(filled: Emptied, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where another change wrote the catalog meanwhile."""
    async def crash() -> None:
        await filled.transport.sessions.run("CREATE TABLE another (id INT PRIMARY KEY)", [])
        monkeypatch.setattr(filled.transport.link, "submit", lambda body: None)  # nobody takes it back
        raise KeyError("a crash")

    with pytest.raises(KeyError):
        truncated(filled, crash)
    assert any("\0" in name for name in filled.traces())
    filled.again()
    has(filled, 100)


def test_names_of_before_mean_what_they_meant(filled: Emptied) -> None:
    db = filled.db
    db.sql("CREATE VIEW all_of AS SELECT * FROM t WHERE a = ?")
    db.sql("ALTER TABLE t RENAME COLUMN s TO r, ADD COLUMN more INT DEFAULT 5 AFTER id")
    db.sql("ALTER TABLE t ADD COLUMN gone INT")
    db.sql("ALTER TABLE t DROP COLUMN gone")
    db.sql("RENAME TABLE t TO w")
    shown = db.sql("SHOW CREATE TABLE w").rows[0][1].replace(" AUTO_INCREMENT=101", "")
    db.sql("TRUNCATE w")
    assert db.sql("SHOW CREATE TABLE w").rows[0][1] == shown
    db.sql("INSERT INTO w (a, r) VALUES (3, 'x')")
    for _ in range(2):
        assert filled.rows("SELECT * FROM all_of WHERE a = 3") == [(1, 3, "x")]
        assert filled.rows("SELECT * FROM w") == [(1, 5, 3, "x")]
        filled.again()


def test_statements_of_before_go_on(filled: Emptied) -> None:
    """Prepared ones, too: they are planned anew."""
    for few in (100, 0):
        for _ in range(3):
            filled.db.sql("INSERT INTO t (a, s) VALUES (?, ?)", [8, "x"])
            assert filled.rows("SELECT COUNT(*) FROM t WHERE a = ?", 3) == [(14 if few else 0,)]
        assert filled.rows("SELECT MAX(id) FROM t WHERE a = ?", 8) == [(few + 3,)]
        assert filled.db.sql("UPDATE t SET a = ? WHERE s = ?", [9, "x"]).affected == 3
        filled.db.sql("TRUNCATE t")
        assert filled.rows("SELECT MAX(id) FROM t WHERE a = ?", 8) == [(None,)]


@pytest.mark.one_worker("of several, first states come from all of them in slices, not from Spark")
def test_what_spark_computes_is_over_no_rows(filled: Emptied, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its snapshots have the old table only."""
    async def bootstrap(view: ViewDef, node: int, plan: Mir) -> None:
        raise SqlError(1105, "HY000", show(plan))

    with monkeypatch.context() as m:
        for worker in each_worker(filled.db):
            m.setattr(worker.changes, "_large", 10)
            m.setattr(worker.engine, "large", 10)
        m.setattr(filled.program.first_states, "bootstrap", bootstrap)
        with pytest.raises(SqlError) as e:
            filled.db.sql("TRUNCATE t")
    assert re.search(r"table u\n *filter 0\n *table t$", e.value.message), e.value
    has(filled, 100)
