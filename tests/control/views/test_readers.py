"""Which named views have a reader: made by the first read, kept, shared and handed on; over the embedded database."""

from __future__ import annotations

import asyncio
import random
import re
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import noria
from control.databases import ask, each_worker, readers, shown
from noria.client.api import Database
from noria.core.errors import SqlError
from noria.dataflow.backfill.backfills import Backfills

TABLES = ("CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT)",
          "INSERT INTO t VALUES (1, 1, 10), (2, 1, 20), (3, 2, 30)")
PER_A = "SELECT a, COUNT(*) AS n FROM t GROUP BY a"


UNREAD = ("none", "not looked up in yet: it keeps nothing")


def test_a_view_that_is_not_read_has_no_node(db: Database) -> None:
    db.sql(f"CREATE VIEW v AS {PER_A}")
    assert ask(db, "graph") == [] and shown(db) == {"v": UNREAD}
    db.sql("INSERT INTO t VALUES (4, 2, 1)")
    assert ask(db, "graph") == [] and db.sql("EXPLAIN SELECT * FROM v").rows[0] == (
        "answered by the view v, not read yet: it keeps nothing, and its first read makes its reader",)
    assert ask(db, "graph") == []
    assert sorted(db.sql("SELECT * FROM v").rows) == [(1, 2), (2, 2)]
    assert readers(db) == {"v"} and shown(db)["v"][0] == "full"
    db.sql("DELETE FROM t WHERE id = 4")
    assert sorted(db.sql("SELECT * FROM v").rows) == [(1, 2), (2, 1)]
    assert db.sql("EXPLAIN SELECT * FROM v").rows[0] == ("answered by the view v, looked up by ()",)


def test_a_read_that_takes_too_long_tells_how_far_its_view_is(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    db.table("t").insert([(i, i % 7, i) for i in range(10, 9_000)])
    db.sql(f"CREATE VIEW v AS {PER_A}")
    step, slices = Backfills.step, [9]

    def some(builds: Backfills) -> None:
        slices[0] -= 1
        if slices[0] > 0:
            step(builds)

    monkeypatch.setattr(Backfills, "step", some)
    with pytest.raises(SqlError, match=r"300 ms\); meanwhile view 'v' is [0-9]+ % filled and goes on \(SHOW NORIA MIG"):
        db.sql("SELECT /*+ MAX_EXECUTION_TIME(300) */ * FROM v")
    slices[0] = 10**9
    assert sum(n for _, n in db.sql("SELECT * FROM v").rows) == 8_993


def test_a_view_that_fills_is_read_by_one_shots(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as these read little; a SELECT that reads more waits for the view."""
    db.table("t").insert([(i, i % 7, i) for i in range(10, 30_000)])
    db.sql("CREATE VIEW v AS SELECT t.id, u.a FROM t JOIN t AS u ON u.id = t.id WHERE t.b > 5")
    with monkeypatch.context() as m:
        m.setattr(Backfills, "next", lambda builds: None)
        with pytest.raises(SqlError, match=r"view 'v' is .* filled and goes on"):
            db.sql("SELECT /*+ MAX_EXECUTION_TIME(300) */ * FROM v")
        db.sql("INSERT INTO t VALUES (99000, 3, 6)")
        assert db.sql("SELECT a FROM v WHERE id = 99000").rows == [(3,)]
        m.setattr("noria.server.answering.view_lookups.ONE_SHOT_ROWS", 1_000)
        assert db.sql("EXPLAIN SELECT * FROM v").rows[0] == (
            "answered by the view v, looked up by (), as soon as that is filled: until then too much for a one-shot, "
            "which reads 20,000 rows at most",)
        m.setattr("noria.server.answering.view_lookups.ONE_SHOT_ROWS", 200_000)
        m.setattr("noria.server.answering.view_lookups.ONE_SHOT_MS", 60_000)
        (told,) = db.sql("EXPLAIN SELECT * FROM v").rows[0]
        assert re.fullmatch("answered by a one-shot that reads [0-9]{5,} rows and keeps nothing, while the view v is "
                            r"filled; then answered by the view v, looked up by \(\)", told)
        assert len(db.sql("SELECT * FROM v").rows) == 29_994
    db.sql("DELETE FROM t WHERE id = 99000")
    assert len(db.sql("SELECT * FROM v").rows) == 29_993
    assert db.sql("EXPLAIN SELECT * FROM v").rows[0] == ("answered by the view v, looked up by ()",)


def test_what_builds_on_a_view_does_not_read_it(db: Database) -> None:
    """Nor does a SELECT from it by a key, which is a view by that key."""
    db.sql(f"CREATE VIEW v AS {PER_A}")
    db.sql("CREATE VIEW w AS SELECT id, n FROM t JOIN v ON v.a = t.a WHERE id = ?")
    assert db.view("w").lookup(1) == [(1, 2)]
    for _ in range(3):
        assert db.sql("SELECT n FROM v WHERE a = 1").rows == [(2,)]
    assert "v" not in readers(db) and shown(db)["v"] == UNREAD
    assert all(node["state"] != "full" for node in ask(db, "graph"))
    assert sorted(db.sql("SELECT * FROM v").rows) == [(1, 2), (2, 1)]
    db.sql("INSERT INTO t VALUES (4, 2, 1)")
    assert db.view("w").lookup(3) == [(3, 2)] and db.sql("SELECT n FROM v WHERE a = 2").rows == [(2,)]
    ask(db, "validate")


@pytest.mark.parametrize("read", [
    lambda db: db.view("v").lookup(), lambda db: db.view("v").attach().lookup(),
    lambda db: [(r["a"], r["n"]) for r in db.view("v").attach().lookup_many([()]).to_pylist()],
    lambda db: db.sql("SELECT * FROM v WHERE 1 = ?", [1]).rows, lambda db: db.sql(PER_A).rows,
    lambda db: db.sql("SELECT * FROM V ORDER BY n DESC LIMIT ?", [5]).rows])
def test_every_way_to_read_makes_the_reader(db: Database, read: Any) -> None:
    db.sql(f"CREATE VIEW v AS {PER_A}")
    assert sorted(read(db)) == [(1, 2), (2, 1)]
    if "v" in readers(db):
        assert sorted(read(db)) == [(1, 2), (2, 1)]
    else:
        assert readers(db) == set()  # a SELECT that has a plan of its own


def test_errors_of_planning_come_with_create_view(db: Database) -> None:
    for text, code in (("SELECT c FROM t", 1054), ("SELECT a FROM nowhere", 1146), ("SELECT NOW() AS x FROM t", 1235)):
        with pytest.raises(SqlError) as e:
            db.sql(f"CREATE VIEW v AS {text}")
        assert e.value.code == code and shown(db) == {}


def test_a_materialized_view_has_its_reader_at_once(db: Database) -> None:
    db.sql(f"CREATE MATERIALIZED VIEW v AS {PER_A}")
    assert readers(db) == {"v"} and shown(db)["v"][0] == "full"
    db.sql(f"CREATE OR REPLACE MATERIALIZED VIEW v AS {PER_A} HAVING n > 1")
    assert readers(db) == {"v"} and db.sql("SELECT * FROM v").rows == [(1, 2)]
    assert "MATERIALIZED" in db.sql("SHOW CREATE VIEW v").rows[0][1]
    with pytest.raises(SqlError, match="near"):
        db.sql(f"CREATE MATERIALIZED INTERNAL VIEW w AS {PER_A}")


def test_what_was_read_has_its_reader_after_a_start(db: Database, path: Path) -> None:
    for name, n in ("read", 1), ("without_reader", 2), ("w", 3):
        db.sql(f"CREATE VIEW `{name}` AS SELECT a, COUNT(*) AS nw FROM t WHERE b > {n} GROUP BY a")
    db.sql("CREATE VIEW over_w AS SELECT * FROM w WHERE nw > 1")
    db.sql("CREATE MATERIALIZED VIEW m AS SELECT b FROM t")
    db.sql("SELECT * FROM `read`")
    db.sql("SELECT * FROM w")  # what builds on it comes after it, still
    db.sql("ALTER TABLE t ADD COLUMN c INT")
    db.sql("CREATE VIEW late AS SELECT c FROM t")
    db.close()
    for _ in range(2):
        with noria.open(path) as again:
            assert readers(again) == {"read", "w", "m"}
            assert {n for n, state in shown(again).items() if state == UNREAD} == {"without_reader", "over_w", "late"}
            assert again.sql("SHOW CREATE VIEW without_reader").rows[0][1].startswith("CREATE VIEW `without_reader`")
            assert sorted(again.sql("SELECT * FROM w").rows) == [(1, 2), (2, 1)]
    with noria.open(path) as again:
        assert again.sql("SELECT * FROM over_w").rows == [(1, 2)] and again.sql("SELECT * FROM late").rows == [
            (None,)] * 3
    with noria.open(path) as again:
        assert readers(again) == {"read", "w", "m", "over_w", "late"}


def test_a_table_gets_another_name(db: Database) -> None:
    """A view over it is read for the first time, or again, as before."""
    for name, text in ("early", "SELECT a FROM t"), ("late", PER_A):
        db.sql(f"CREATE VIEW {name} AS {text}")
    db.sql("SELECT * FROM early")
    db.sql("RENAME TABLE t TO u")
    assert sorted(db.sql("SELECT * FROM late").rows) == [(1, 2), (2, 1)] and readers(db) == {"early", "late"}
    assert db.sql("EXPLAIN SELECT * FROM early").rows[0] == ("answered by the view early, looked up by ()",)
    db.sql("DROP VIEW early, late")
    assert ask(db, "graph") == [] and not len(db.transport.program.catalog.held)


def test_replacing(db: Database) -> None:
    """A view that was not read is another one at once; one that was has a reader afterwards, too."""
    db.sql(f"CREATE VIEW v AS {PER_A}")
    db.sql("CREATE OR REPLACE VIEW v AS SELECT b FROM t")
    assert readers(db) == set() and sorted(db.sql("SELECT * FROM v").rows) == [(10,), (20,), (30,)]
    db.sql(f"CREATE OR REPLACE VIEW v AS {PER_A}")
    assert readers(db) == {"v"} and sorted(db.sql("SELECT * FROM v").rows) == [(1, 2), (2, 1)]
    db.sql("CREATE OR REPLACE VIEW v AS SELECT b FROM t WHERE a = ?")
    assert sorted(db.view("v").lookup(1)) == [(10,), (20,)]
    db.sql("DROP VIEW v")
    assert readers(db) == set() and ask(db, "graph") == []


@pytest.mark.parametrize("text, key", [(PER_A, ()), ("SELECT id, b FROM t WHERE a = ?", (1,)),
                                       ("SELECT id, b FROM t WHERE a = ? ORDER BY b", (1,))])
def test_identical_views_share_a_reader(db: Database, path: Path, text: str, key: Any) -> None:
    db.sql(f"CREATE VIEW one AS {text}")
    db.sql(f"CREATE VIEW two AS {text.replace('n FROM', 'm FROM')}")
    rows = sorted(db.view("two").lookup(key))
    assert rows and sorted(db.view("one").lookup(key)) == rows
    (name,) = readers(db)
    other = {"one": "two", "two": "one"}[name]
    assert shown(db)[other] == ("none", f"its rows are those of {name}")
    attached = db.view(other).attach()
    columns = [*db.view(other).columns, "__key"]
    for view in (attached, db.view(other)):
        assert view.lookup_many([key or (), key or ()]).column_names == columns
    attached.misses = 0  # order is the server's to apply to many keys
    assert sorted(attached.lookup(key)) == rows and attached.misses == 0
    before = ask(db, "stats")["misses"]
    db.sql(f"DROP VIEW {name}")
    assert readers(db) == {other} and sorted(db.view(other).lookup(key)) == rows
    assert sorted(attached.lookup(key)) == rows and attached.misses == 0
    assert ask(db, "stats")["misses"] == before  # the same state has another name
    assert shown(db)[other][0] == "partial" * bool(key) + "full" * (not key)
    assert name not in db.transport.program.explanation(other)
    db.close()
    with noria.open(path) as again:
        assert readers(again) == {other} and sorted(again.view(other).lookup(key)) == rows


def nothing_at_once(db: Database) -> None:
    """All is built in the background."""
    for worker in each_worker(db):
        worker.engine.builds.at_once_rows = 0


def test_redefining_one_of_two_leaves_the_other(db: Database) -> None:
    db.sql("CREATE VIEW one AS SELECT id, b FROM t WHERE a = ?")
    db.sql("CREATE VIEW two AS SELECT id, b FROM t WHERE a = ?")
    transport: Any = db.transport
    attached = [db.view(name).attach() for name in ("one", "two")]
    assert [sorted(v.lookup(1)) for v in attached] == [[(1, 10), (2, 20)]] * 2
    fetched = transport.program.first_states.fill
    replaced: list[str] = []

    async def fill(view: Any, by_spark: Any) -> None:
        replaced.append(view.name.partition("\0")[0])
        await fetched(view, by_spark)

    transport.program.first_states.fill = fill
    nothing_at_once(db)
    db.sql(f"CREATE OR REPLACE VIEW two AS {PER_A}")  # whose rows the reader of one has, and which answers meanwhile
    assert replaced == ["two"] and readers(db) == {"one", "two"} and sorted(attached[0].lookup(1)) == [(1, 10), (2, 20)]
    db.sql("CREATE OR REPLACE VIEW two AS SELECT id, b FROM t WHERE a = ?")
    assert readers(db) == {"one"}
    db.sql("CREATE OR REPLACE VIEW one AS SELECT id FROM t WHERE b = ?")
    assert readers(db) == {"one", "two"} and sorted(db.view("two").lookup(1)) == [(1, 10), (2, 20)]
    assert [v.lookup(k) for v, k in zip(attached, (30, 2), strict=True)] == [[(3,)], [(3, 30)]]
    db.sql("CREATE OR REPLACE VIEW two AS SELECT id FROM t WHERE b = ?")
    assert db.view("two").lookup(30) == [(3,)]
    db.sql("DROP VIEW one, two")
    assert ask(db, "graph") == []


def test_what_is_redefined_as_another_shares_its_reader(db: Database) -> None:
    db.sql(f"CREATE MATERIALIZED VIEW one AS {PER_A}")
    db.sql("CREATE VIEW two AS SELECT id, b FROM t WHERE a = ?")
    db.sql(f"CREATE OR REPLACE VIEW two AS {PER_A}")
    assert readers(db) == {"one"} and sorted(db.view("two").lookup()) == [(1, 2), (2, 1)]
    db.sql("CREATE OR REPLACE VIEW one AS SELECT id, b FROM t WHERE a = ?")
    assert readers(db) == {"one", "two"} and shown(db)["two"][0] == "full"


def test_a_reader_that_cannot_be_filled(db: Database) -> None:
    """The read has the error, and the view is as it was: the next read tries again."""
    transport: Any = db.transport
    states = transport.program.first_states
    nothing_at_once(db)
    fill = states.fill

    async def fails(*args: Any) -> None:
        raise SqlError(1041, "HY000", "no memory for it")

    db.sql(f"CREATE VIEW v AS {PER_A}")
    db.sql(f"CREATE VIEW same AS {PER_A}")
    db.sql("CREATE VIEW keyed AS SELECT n FROM v WHERE a = ?")
    states.fill = fails
    for read in (lambda: db.sql("SELECT * FROM v"), lambda: db.view("same").attach(), lambda: db.view("v").lookup()):
        with pytest.raises(SqlError, match="no memory for it"):
            read()
        assert readers(db) == {"keyed"} and shown(db)["v"] == UNREAD and db.view("keyed").lookup(1) == [(2,)]
    states.fill = fill
    assert sorted(db.view("same").attach().lookup()) == sorted(db.sql("SELECT * FROM v").rows) == [(1, 2), (2, 1)]
    assert len(readers(db)) == 2 and db.view("keyed").lookup(1) == [(2,)]


def test_dropped_while_it_is_filled(db: Database) -> None:
    transport: Any = db.transport
    states, begun, go_on = transport.program.first_states, threading.Event(), threading.Event()
    nothing_at_once(db)
    fill = states.fill

    async def halted(*args: Any) -> None:
        begun.set()
        await asyncio.to_thread(go_on.wait, 30)
        await fill(*args)

    db.sql(f"CREATE VIEW v AS {PER_A}")
    states.fill = halted
    told: list[Exception] = []

    def read(way: Callable[[], object]) -> None:
        try:
            way()
        except SqlError as e:
            told.append(e)

    ways = (lambda: db.sql("SELECT * FROM v"), lambda: db.view("v").lookup())
    threads = [threading.Thread(target=read, args=(way,)) for way in ways]
    for t in threads:
        t.start()
    assert begun.wait(30)
    db.sql("DROP VIEW v")
    go_on.set()
    for t in threads:
        t.join(30)
    assert [getattr(e, "code", None) for e in told] == [1146, 1146] and ask(db, "graph") == []


def test_a_reader_with_more_columns_has_those_of_another(db: Database) -> None:
    """A column to order by is kept, and not shown."""
    db.sql("CREATE VIEW wide AS SELECT id, b FROM t WHERE a = ?")
    db.sql("CREATE VIEW narrow AS SELECT id FROM t WHERE a = ? ORDER BY b DESC")
    db.sql("CREATE VIEW bare AS SELECT id FROM t WHERE a = ?")
    assert db.view("narrow").lookup(1) == [(2,), (1,)] and sorted(db.view("bare").lookup(1)) == [(1,), (2,)]
    assert db.view("bare").lookup_many([1, 2]).column_names == ["id", "__key"]
    assert sorted(db.view("bare").attach().lookup(1)) == [(1,), (2,)]
    assert db.view("narrow").attach().lookup(1) == [(2,), (1,)]


def test_the_reader_of_an_adhoc_view_becomes_that_of_a_named_one(db: Database) -> None:
    for _ in range(2):
        assert len(db.sql(PER_A).rows) == 2
    db.sql("SELECT COUNT(*) AS n FROM t")
    transport: Any = db.transport
    transport.run(transport.program.wait_until_idle())
    (adhoc,) = readers(db)
    db.sql(f"CREATE VIEW v AS {PER_A}")
    assert readers(db) == {"v"} and adhoc not in shown(db) and shown(db)["v"][0] == "full"
    db.sql("INSERT INTO t VALUES (4, 2, 1)")
    assert sorted(db.view("v").attach().lookup()) == sorted(db.sql(PER_A).rows) == [(1, 2), (2, 2)]


# ---------------------------------------------------------------- random programs
TEXTS = (PER_A, "SELECT id, a, b FROM t", "SELECT id, a FROM t WHERE b > 20", "SELECT SUM(b) AS s FROM t GROUP BY a",
         "SELECT a, MAX(b) AS m FROM t GROUP BY a HAVING m > 10")


class Play:
    """Random changes, reads and starts of a program; SQLite has the same rows."""

    def __init__(self, path: Path, seed: int):
        self.rng, self.path = random.Random(seed), path
        self.views: dict[str, str] = {}
        self.lite = sqlite3.connect(":memory:")
        self.db = noria.open(path)
        for text in TABLES:
            self.run(text)

    def run(self, text: str) -> None:
        self.db.sql(text)
        self.lite.execute(text)

    def step(self) -> None:
        rng = self.rng
        rng.choices((self.write, self.create, self.read, self.drop, self.start), (30, 12, 20, 6, 1))[0]()

    def write(self) -> None:
        n = self.rng.randrange(20)
        self.run(self.rng.choice((f"REPLACE INTO t VALUES ({n}, {n % 4}, {self.rng.randrange(50)})",
                                  f"DELETE FROM t WHERE id = {n}", f"UPDATE t SET a = {n % 3} WHERE id < {n}")))

    def create(self) -> None:
        name, text = f"v{self.rng.randrange(6)}", self.rng.choice(TEXTS)
        if any(used == name for used in self._used()):
            return
        others = [v for v in self.views if v != name]
        if others and self.rng.random() < 0.3:
            text = f"SELECT * FROM {self.rng.choice(others)}"
        kind = self.rng.choice(("", "", "MATERIALIZED "))
        if name in self.views:
            kind = "OR REPLACE " + kind
            self.lite.execute(f"DROP VIEW {name}")
        self.db.sql(f"CREATE {kind}VIEW {name} AS {text}")
        self.lite.execute(f"CREATE VIEW {name} AS {text}")
        self.views[name] = text

    def _used(self) -> list[str]:
        return [text.split()[-1] for text in self.views.values() if text.startswith("SELECT * FROM v")]

    def read(self) -> None:
        for name in self.rng.sample(sorted(self.views), min(2, len(self.views))):
            way = self.rng.randrange(3)
            view = self.db.view(name)
            found = (self.db.sql(f"SELECT * FROM {name}").rows if not way else
                     view.lookup() if way == 1 else view.attach().lookup())
            assert Counter(found) == Counter(self.lite.execute(f"SELECT * FROM {name}").fetchall()), name

    def drop(self) -> None:
        free = [v for v in self.views if v not in self._used()]
        if free:
            name = self.rng.choice(free)
            self.run(f"DROP VIEW {name}")
            del self.views[name]

    def start(self) -> None:
        was = readers(self.db) - {v for v in shown(self.db) if v.startswith("adhoc")}
        self.db.close()
        self.db = noria.open(self.path)
        assert readers(self.db) == was

    def check(self) -> None:
        """No plan has two readers, and none is there that its view does not know of."""
        ask(self.db, "validate")
        transport: Any = self.db.transport
        program = transport.program
        named = [v for v in program.views() if v.name in readers(self.db)]
        assert all(not program.why_readerless(v.name) for v in named)
        assert len({(v.plan, v.visible) for v in named}) == len(named)


@pytest.mark.parametrize("seed", range(6))
def test_random_programs(path: Path, seed: int) -> None:
    play = Play(path, seed)
    try:
        for _ in range(60):
            play.step()
        play.check()
        for name in play.views:
            assert Counter(play.db.view(name).lookup()) == Counter(play.lite.execute(f"SELECT * FROM {name}"))
        play.check()
    finally:
        play.db.close()
