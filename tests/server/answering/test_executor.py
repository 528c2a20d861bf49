"""Statements to answers through the whole stack in one process: SQL, executor, program, worker, RocksDB, views."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import noria
from control.databases import ask, each_worker
from e2e.local import views_at_once
from noria.client import Database
from noria.core.errors import SqlError, view_changed, view_gone
from noria.core.limits import IDLE_INDEXES
from noria.dataflow.graph import layout
from noria.dataflow.messages.packets import Evict, FillKeys, Read
from noria.runtime.link.link import WorkerUnavailable
from noria.server.outcomes import Client
from noria.server.sessions.requests import complete
from noria.views import files

STORIES = "CREATE TABLE stories (id INT PRIMARY KEY, author VARCHAR(20) NOT NULL, title VARCHAR(40))"
VOTES = "CREATE TABLE votes (story_id INT NOT NULL, user INT NOT NULL, PRIMARY KEY (story_id, user))"
COUNT = "CREATE INTERNAL VIEW VoteCount AS SELECT story_id, COUNT(*) AS vcount FROM votes GROUP BY story_id"
BOTH = ("CREATE VIEW StoriesWithVC AS SELECT id, author, title, vcount FROM stories "
        "JOIN VoteCount ON VoteCount.story_id = stories.id WHERE id = ?")


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with noria.open(tmp_path / "data") as opened:
        yield opened


@pytest.fixture
def figure2(db: Database) -> Database:
    for text in (STORIES, VOTES, COUNT, BOTH):
        db.sql(text)
    db.sql("INSERT INTO stories VALUES (1, 'ann', 'One'), (2, 'bob', 'Two'), (3, 'ann', 'Three')")
    db.sql("INSERT INTO votes VALUES (1, 7), (1, 8), (2, 7)")
    return db


def refused(db: Database, text: str, code: int, words: str = "") -> None:
    with pytest.raises(SqlError) as e:
        db.sql(text)
    assert e.value.code == code, e.value
    assert words in e.value.message


def test_a_read_is_bound_again_when_workers_are_back(figure2: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """While they are brought back it is of no use to try, however often."""
    executor = figure2.transport.executor
    looked_up, up, back = executor._looked_up, executor._link.up, list[bool]()

    async def looked(name: str, keys: Any) -> Any:
        if not back:
            raise view_changed(name)
        return await looked_up(name, keys)

    async def are_up() -> None:
        await up()
        back.append(True)

    monkeypatch.setattr(executor, "_looked_up", looked)
    monkeypatch.setattr(executor._link, "up", are_up)
    assert figure2.view("StoriesWithVC").lookup(1) == [(1, "ann", "One", 2)]


def test_figure_2(figure2: Database) -> None:
    db = figure2
    assert db.view("StoriesWithVC").lookup(1) == [(1, "ann", "One", 2)]
    db.sql("INSERT INTO votes VALUES (1, 9)")
    assert db.view("StoriesWithVC").lookup(1) == [(1, "ann", "One", 3)]
    db.sql("DELETE FROM votes WHERE story_id = 1")
    assert db.view("StoriesWithVC").lookup(1) == []
    assert db.sql("SELECT title, vcount FROM StoriesWithVC WHERE id = 2").rows == [("Two", 1)]


def test_a_select_finds_the_named_view_that_holds_its_rows(figure2: Database) -> None:
    lines = [r[0] for r in figure2.sql("EXPLAIN SELECT * FROM StoriesWithVC WHERE id = 2").rows]
    assert lines[0] == "answered by the view StoriesWithVC, looked up by (id)"
    same = ("EXPLAIN SELECT id, author, title, vcount FROM stories JOIN VoteCount ON VoteCount.story_id = stories.id "
            "WHERE id = 5")
    assert figure2.sql(same).rows[0][0] == lines[0]


def test_a_key_that_is_evicted_before_it_is_read_comes_with_its_rows(figure2: Database,
                                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    transport: Any = figure2.transport
    views_at_once(transport)
    link = transport.executor.reads._link
    evict = partial(link.ask, Evict(0, None))

    async def asks(ask: Any, packet: Any, retry: bool = False, lease: Any = None) -> Any:
        reply = await ask(packet, retry=retry)
        if isinstance(packet, FillKeys | Read):
            asked.append("fill" if isinstance(packet, FillKeys) or packet.fill else "rows")
            await evict()
        return reply

    for owner in link.staging_workers:
        monkeypatch.setattr(owner, "ask", partial(asks, owner.ask))
    assert figure2.sql("SELECT title, vcount FROM StoriesWithVC WHERE id = 1").rows == [("One", 2)]
    assert asked == ["fill", "rows"]


def test_clients_that_miss_one_key_share_an_upquery(figure2: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """ONE-REQUEST: of eight that ask for one key, and two for another, two requests reach the worker."""
    transport: Any = figure2.transport
    executor = transport.executor
    view, reads, asked = executor.program.view("StoriesWithVC"), executor.reads, list[Any]()
    ask = reads._link.ask

    async def asks(packet: Any, retry: bool = False, lease: Any = None) -> Any:
        asked.append(packet)
        return await ask(packet, retry=retry)

    async def all_at_once() -> list[Any]:
        return await asyncio.gather(*[reads.fetch(view, (key,)) for key in (1, 1, 1, 2, 1, 1, 2, 1, 1, 1)])

    monkeypatch.setattr(reads._link, "ask", asks)
    before = reads.upqueries
    found = transport.run(all_at_once())
    assert [rows[0][0] for rows in found] == [1, 1, 1, 2, 1, 1, 2, 1, 1, 1]
    assert [type(packet) for packet in asked] == [Read, Read] and reads.upqueries - before == 2


def test_texts_that_differ_in_literals_share_a_view(figure2: Database) -> None:
    views_at_once(figure2.transport)
    for author, titles in (("ann", ["One", "Three"]), ("bob", ["Two"]), ("nobody", [])):
        found = figure2.sql(f"SELECT title FROM stories WHERE author = '{author}' ORDER BY title")
        assert [r[0] for r in found] == titles
    names = [r[0] for r in figure2.sql("EXPLAIN SELECT title FROM stories WHERE author = 'x' ORDER BY title").rows]
    assert names[0].startswith("answered by the ad-hoc view adhoc_1, looked up by (")


def test_parameters_order_limit_and_the_empty_aggregate(figure2: Database) -> None:
    db = figure2
    newest = db.sql("SELECT title FROM stories WHERE author = ? ORDER BY id DESC LIMIT ?", ["ann", 1])
    assert newest.rows == [("Three",)]
    assert db.sql("SELECT COUNT(*), MAX(user) FROM votes WHERE story_id = ?", [1]).rows == [(2, 8)]
    assert db.sql("SELECT COUNT(*), MAX(user) FROM votes WHERE story_id = ?", [99]).rows == [(0, None)]
    assert db.sql("SELECT title FROM stories WHERE author = ?", [None]).rows == []
    with pytest.raises(SqlError, match="1 parameters, 2 were given"):
        db.sql("SELECT title FROM stories WHERE author = ?", ["ann", 2])


def test_views_by_name_keep_their_order_and_limit(figure2: Database) -> None:
    db = figure2
    db.sql("CREATE VIEW Newest AS SELECT id, title FROM stories WHERE author = ? ORDER BY id DESC LIMIT 1")
    db.sql("CREATE VIEW Voters AS SELECT COUNT(*) AS n FROM votes WHERE story_id = ?")
    assert db.view("Newest").lookup("ann") == [(3, "Three")]
    assert db.view("Newest").attach().lookup("ann") == [(3, "Three")]
    assert db.view("Newest").lookup_many(["bob", "nobody", "ann"]).to_pylist() == [
        {"id": 2, "title": "Two", "__key": 0}, {"id": 3, "title": "Three", "__key": 2}]
    assert db.view("Voters").lookup(5) == [(0,)]
    assert db.view("Voters").attach().lookup(5) == [(0,)]


def test_who_attaches_while_the_worker_makes_its_views_again_waits(figure2: Database, monkeypatch: pytest.MonkeyPatch
                                                                   ) -> None:
    """Found by a long run of kills: it was a KeyError."""
    transport = figure2.transport
    views, asked, describe = transport.attachment()["path"], threading.Semaphore(0), transport.describe

    def counted(*about: str) -> Any:
        asked.release()
        return describe(*about)

    monkeypatch.setattr(transport, "describe", counted)
    folder = Path(files.view_folder(views, "StoriesWithVC"))
    away = folder.rename(folder.with_name("away"))
    with ThreadPoolExecutor(1) as pool:
        attaching = pool.submit(figure2.view("StoriesWithVC").attach)
        assert asked.acquire(timeout=20) and asked.acquire(timeout=20) and not attaching.done()
        away.rename(folder)
        assert attaching.result(20).lookup(1) == [(1, "ann", "One", 2)]
    with pytest.raises(SqlError, match="VoteCount"):
        figure2.view("VoteCount").attach()


def test_attached_views_see_writes_and_ask_only_for_what_is_missing(figure2: Database) -> None:
    shared = figure2.view("StoriesWithVC").attach()
    assert shared.lookup(1) == [(1, "ann", "One", 2)] and shared.misses == 1
    figure2.sql("INSERT INTO votes VALUES (1, 10)")
    assert shared.lookup(1) == [(1, "ann", "One", 3)] and shared.misses == 1
    many = shared.lookup_many([2, 1, 99])
    assert sorted(zip(many["__key"].to_pylist(), many["vcount"].to_pylist(), strict=True)) == [(0, 1), (1, 3)]
    assert shared.misses == 3
    assert shared.lookup(99) == [] and shared.misses == 3


def test_what_others_build_on_is_not_dropped(figure2: Database) -> None:
    refused(figure2, "DROP TABLE votes", 3730, "'VoteCount', 'StoriesWithVC'")
    refused(figure2, "DROP VIEW VoteCount", 3730, "'StoriesWithVC'")
    refused(figure2, "CREATE OR REPLACE VIEW VoteCount AS SELECT story_id FROM votes", 3730, "'StoriesWithVC'")
    figure2.sql("SELECT user FROM votes WHERE story_id = 1")  # an ad-hoc view holds nothing back
    figure2.sql("DROP VIEW StoriesWithVC, VoteCount")
    figure2.sql("DROP TABLE votes")
    refused(figure2, "SELECT user FROM votes WHERE story_id = 1", 1146)


def test_replacing_a_view(figure2: Database) -> None:
    figure2.sql("CREATE OR REPLACE VIEW StoriesWithVC AS SELECT id, title FROM stories WHERE id = ?")
    assert figure2.view("StoriesWithVC").lookup(3) == [(3, "Three")]
    refused(figure2, "CREATE VIEW StoriesWithVC AS SELECT id FROM stories", 1050)
    refused(figure2, STORIES, 1050)
    assert figure2.sql(STORIES.replace("TABLE", "TABLE IF NOT EXISTS")).warnings[0][:2] == ("Note", 1050)


def test_a_dropped_table_is_another_one_when_it_comes_back(db: Database) -> None:
    db.sql("CREATE TABLE t (id INT PRIMARY KEY, s TEXT)")
    db.sql("INSERT INTO t VALUES (1, 'old')")
    assert db.sql("SELECT s FROM t WHERE id = 1").rows == [("old",)]
    db.sql("DROP TABLE t")
    db.sql("CREATE TABLE t (id INT PRIMARY KEY, n INT)")
    assert db.sql("SELECT * FROM t WHERE id = 1").rows == []
    db.sql("INSERT INTO t VALUES (1, 5)")
    assert db.sql("SELECT * FROM t WHERE id = 1").rows == [(1, 5)]
    refused(db, "SELECT s FROM t WHERE id = 1", 1054)


@pytest.mark.parametrize(("text", "code"), [
    ("SELEC 1", 1064), ("", 1065), ("   ;", 1065), ("SELECT * FROM nothing", 1146), ("SELECT nope FROM stories", 1054),
    ("INSERT INTO stories VALUES (1)", 1136), ("INSERT INTO stories VALUES (1, 'x', 'y')", 1062),
    ("INSERT INTO stories VALUES (9, NULL, 'y')", 1048), ("INSERT INTO stories VALUES (9, 'x')", 1136),
    ("INSERT INTO stories (id) VALUES (9)", 1364), ("INSERT INTO stories VALUES (3000000000, 'x', 'y')", 1264),
    ("INSERT INTO stories VALUES (9, 'a name of more than twenty', 'y')", 1406),
    ("INSERT INTO stories VALUES ('x', 'y', 'z')", 1366), ("DROP TABLE nothing", 1051), ("DROP VIEW nothing", 1051),
    ("SELECT SLEEP(1) FROM stories", 1235), ("SET GLOBAL max_connections = 5", 1235),
    ("SET nonsense = 1", 1193), ("SHOW COLUMNS FROM nothing", 1146), ("SELECT @@nothing", 1193),
])
def test_errors_and_the_server_goes_on(figure2: Database, text: str, code: int) -> None:
    refused(figure2, text, code)
    assert figure2.view("StoriesWithVC").lookup(1) == [(1, "ann", "One", 2)]


def test_an_evaluation_error_is_told_alike_by_a_miss_and_a_hit(db: Database) -> None:
    db.sql("CREATE TABLE t (id INT PRIMARY KEY, x BIGINT)")
    db.sql("INSERT INTO t VALUES (1, 9223372036854775807), (2, 1)")
    for _ in range(2):
        refused(db, "SELECT id, x + 2 FROM t WHERE id IN (1, 2)", 1690, "BIGINT value is out of range")
        refused(db, "SELECT id, x + 1 FROM t WHERE id = 1", 1690, "BIGINT value is out of range")
    assert db.sql("SELECT id, x + 1 FROM t WHERE id = 2").rows == [(2, 2)]


def test_a_sum_with_more_digits_than_a_decimal_column(db: Database) -> None:
    db.sql("CREATE TABLE t (id INT PRIMARY KEY, x BIGINT)")
    db.sql("INSERT INTO t VALUES (1, 9223372036854775807), (2, 0)")
    assert db.sql("SELECT SUM(x) FROM t").rows == [(Decimal("9223372036854775807"),)]


def test_a_number_for_a_text_key_is_for_spark(db: Database) -> None:
    """'5', '5.0' and '5x' all equal the number 5: no key is looked up by it."""
    db.sql("CREATE TABLE t (id INT PRIMARY KEY, s VARCHAR(9))")
    for _ in range(2):
        with pytest.raises(SqlError, match="an embedded database has no Spark") as e:
            db.sql("SELECT id FROM t WHERE s = ?", [5])
        assert "comparing the text column 's' with the number 5" in e.value.message
        for text in ("SELECT COUNT(*) FROM t WHERE s = ?", "SELECT DISTINCT id + 1 FROM t WHERE s = ?",
                     "SELECT id, COUNT(*) FROM t WHERE s = ? AND id IN (1, 2) GROUP BY id"):
            with pytest.raises(SqlError, match="give the parameter as a string") as e:
                db.sql(text, [5])
            assert "Spark" not in e.value.message, "several texts equal the number: their groups would stand apart"


def test_dual_is_no_table(db: Database) -> None:
    """Connection pools ask `SELECT 1 FROM DUAL` whether a connection lives."""
    assert db.sql("SELECT 1 FROM DUAL").rows == db.sql("select ? from dual", [1]).rows == [(1,)]
    assert db.sql("SELECT DATABASE() AS d FROM dual LIMIT 1").rows == [("noria",)]
    refused(db, "SELECT 1 FROM `dual`", 1146)


def test_several_statements_stop_at_the_first_error(db: Database) -> None:
    refused(db, f"{VOTES}; INSERT INTO votes VALUES (1, 1); SELEC 1; INSERT INTO votes VALUES (2, 2)", 1064)
    assert db.sql("SELECT story_id FROM votes").rows == [(1,)]
    assert db.sql("INSERT INTO votes VALUES (3, 3); SELECT COUNT(*) FROM votes;").rows == [(2,)]


def test_generated_ids_and_times(db: Database) -> None:
    db.sql("CREATE TABLE log (id INT PRIMARY KEY AUTO_INCREMENT, at DATETIME DEFAULT CURRENT_TIMESTAMP, what TEXT)")
    first = db.sql("INSERT INTO log (what) VALUES ('a'), ('b')")
    assert (first.affected, first.last_insert_id) == (2, 1)
    assert db.sql("INSERT INTO log (what, at) VALUES ('c', DEFAULT)").last_insert_id == 3
    assert db.sql("INSERT INTO log VALUES (NULL, NULL, 'd')").last_insert_id == 4
    assert db.table("log").insert({"what": ["e"]}) == 1
    rows = db.sql("SELECT id, at, what FROM log ORDER BY id").rows
    assert [r[0] for r in rows] == [1, 2, 3, 4, 5] and [r[2] for r in rows] == list("abcde")
    assert rows[3][1] is None and all(isinstance(r[1], datetime) for i, r in enumerate(rows) if i != 3)


def test_the_api_writes_by_primary_key(figure2: Database) -> None:
    stories = figure2.table("stories")
    assert stories.primary_key == ("id",)
    assert stories.update(1, title="Uno", author="eve") == 1
    assert stories.update(99, title="none") == 0
    assert figure2.sql("SELECT author, title FROM stories WHERE id = 1").rows == [("eve", "Uno")]
    assert figure2.table("votes").delete((1, 7)) == 1
    assert figure2.table("votes").delete((1, 7)) == 0
    assert figure2.view("StoriesWithVC").lookup(1) == [(1, "eve", "Uno", 1)]
    assert stories.insert([(1, "zoe", "I")], on_duplicate="replace") == 2
    with pytest.raises(SqlError, match="no_column"):
        stories.insert({"id": [5], "no_column": [1]})
    with pytest.raises(SqlError, match="doesn't exist"):
        figure2.table("nothing").insert({"id": [5]})


def test_everything_is_there_after_a_restart(tmp_path: Path) -> None:
    with noria.open(tmp_path / "data") as db:
        for text in (STORIES, VOTES, COUNT, BOTH):
            db.sql(text)
        db.sql("INSERT INTO stories VALUES (1, 'ann', 'One')")
        db.sql("INSERT INTO votes VALUES (1, 7)")
        with pytest.raises(Exception, match="in use"):
            noria.open(tmp_path / "data")
    with pytest.raises(ConnectionError, match="closed"):
        db.sql("SELECT 1")
    with noria.open(tmp_path / "data") as db:
        assert db.view("StoriesWithVC").lookup(1) == [(1, "ann", "One", 1)]
        refused(db, "DROP VIEW VoteCount", 3730)
        db.sql("CREATE TABLE more (id INT PRIMARY KEY)")
        assert db.sql("SHOW TABLES").rows == [("StoriesWithVC",), ("VoteCount",), ("more",), ("stories",), ("votes",)]


def test_what_is_under_way_ends_with_the_database(db: Database) -> None:
    """It stayed for ever, and whoever waited with it: found by running all tests with two workers."""
    begun = threading.Event()

    async def forever() -> None:
        begun.set()
        await asyncio.Event().wait()

    with ThreadPoolExecutor(1) as other:
        waits = other.submit(db.transport.run, forever())
        begun.wait()
        db.close()
        with pytest.raises(ConnectionError, match="closed"):
            waits.result(10)


def test_what_no_view_can_answer_says_so(figure2: Database) -> None:
    refused(figure2, "SELECT SUM(id) OVER (ORDER BY id RANGE 1 PRECEDING) FROM stories", 1235, "ROWS")


def test_an_adhoc_select_never_makes_large_full_state(figure2: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("noria.core.limits.ADHOC_FULL_ROWS", 2)
    views_at_once(figure2.transport)
    refused(figure2, "SELECT COUNT(*) FROM votes", 1235, "CREATE VIEW")
    refused(figure2, "SELECT story_id FROM (SELECT story_id, COUNT(*) AS n FROM votes GROUP BY story_id) AS c "
                     "WHERE n = 2", 1235, "CREATE VIEW")
    assert figure2.sql("SELECT user FROM votes WHERE story_id = 2").rows == [(7,)]
    figure2.sql("CREATE VIEW Total AS SELECT COUNT(*) AS n FROM votes")
    assert figure2.sql("SELECT COUNT(*) AS n FROM votes").rows == [(3,)]


def test_adhoc_views_are_bounded_and_the_least_recently_used_goes(figure2: Database,
                                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    program = figure2.transport.executor.program
    monkeypatch.setattr(program.adhoc_views, "most", 2)
    views_at_once(figure2.transport)
    by_author, by_title = "SELECT id FROM stories WHERE author = 'ann'", "SELECT id FROM stories WHERE title = 'Two'"
    for text in (by_author, by_title, by_author, "SELECT user FROM votes WHERE story_id = 1", by_author):
        figure2.sql(text)
    assert [v.name for v in program.adhoc()] == ["adhoc_3", "adhoc_1"]
    assert figure2.sql(by_title).rows == [(2,)]  # made again


@pytest.mark.parametrize("named", [False, True])
def test_adhoc_views_together_keep_to_what_the_others_leave_of_the_memory_limit(db: Database, named: bool) -> None:
    """Each was bounded, all five hundred of them were not.  The least recently used go, of those that keep all rows."""
    db.sql("CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT)")
    for first in range(0, 20_000, 4_000):
        db.sql("INSERT INTO t VALUES " + ", ".join(f"({i}, {i}, {i % 10})" for i in range(first, first + 4_000)))
    if named:
        db.sql("CREATE VIEW whole AS SELECT a, b, COUNT(*) AS n FROM t GROUP BY a, b")
    workers = each_worker(db)
    for worker in workers:
        worker.memory_limit = 12 * 2**20 // len(workers)
    views_at_once(db.transport)
    db.sql("SELECT b FROM t WHERE id = 3")
    program = db.transport.executor.program
    for i in range(12):
        assert len(db.sql(f"SELECT a + {i} AS c, COUNT(*) FROM t GROUP BY c").rows) == 20_000
        assert db.sql("SELECT b FROM t WHERE id = 3").rows == [(3,)]
    names = [v.name for v in program.adhoc()]
    assert "adhoc_1" in names and names[-2:] == ["adhoc_13", "adhoc_1"], "by a key: nothing is gained"
    found = ask(db, "stats")
    assert len(names) < 12 and found["adhoc_excess"] <= max(found["adhoc_views"].values(), default=0), "the last one's"


def test_a_table_keeps_few_indexes_of_views_that_are_gone(db: Database) -> None:
    columns = [f"c{i}" for i in range(IDLE_INDEXES + 4)]
    db.sql("CREATE TABLE wide (id INT PRIMARY KEY, " + ", ".join(f"{c} INT" for c in columns) + ", KEY own (c0))")
    db.sql("INSERT INTO wide VALUES (1" + ", 7" * len(columns) + ")")
    store = each_worker(db)[-1].store
    db.sql("CREATE VIEW stays AS SELECT id FROM wide WHERE c1 = ?")
    for c in columns:
        db.sql(f"CREATE VIEW by_column AS SELECT id FROM wide WHERE {c} = ?")
        assert db.view("by_column").lookup(7) == [(1,)]
        db.sql("DROP VIEW by_column")
    kept = [i.columns for i in store.table("wide").indexes]
    assert len(kept) == IDLE_INDEXES + 2 and kept[:2] == [(1,), (2,)] and kept[-1] == (len(columns),)
    db.sql("INSERT INTO wide (id, c2) VALUES (2, 7)")
    assert db.view("stays").lookup(7) == [(1,)]
    assert sorted(db.sql("SELECT id FROM wide WHERE c2 = 7").rows) == [(1,), (2,)], "made again"
    db.sql("DROP VIEW stays")
    db.sql("DROP TABLE wide")


def test_a_select_of_a_new_shape_asks_the_next_worker_where_one_dies(figure2: Database, monkeypatch: pytest.MonkeyPatch
                                                                    ) -> None:
    """Found by a hundred queries and a kill: it was error 1105, while known shapes wait."""
    link = figure2.transport.link
    ask = link.ask

    async def dying(body: Any, retry: bool = False, lease: Any = None) -> Any:
        if not retry:
            raise WorkerUnavailable("worker 0 is down")
        return await ask(body, retry)

    monkeypatch.setattr(link, "ask", dying)
    assert figure2.sql("SELECT author FROM stories WHERE title = 'Two'").rows == [("bob",)]


def test_show_noria_says_that_the_worker_is_down(figure2: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was an internal error, with a number to look up."""
    async def gone(*_: Any, **__: Any) -> None:
        raise WorkerUnavailable("worker 0 is down")

    monkeypatch.setattr(figure2.transport.link, "ask", gone)
    for what in ("MIGRATIONS", "GRAPH", "STATUS"):
        with pytest.raises(SqlError, match=r"^worker 0 is down$"):
            figure2.sql(f"SHOW NORIA {what}")


class Stuck:
    """A session whose SELECTs, which must be planned, never get an answer; `gone`: but that their view is gone."""

    def __init__(self, db: Database, monkeypatch: pytest.MonkeyPatch, gone: bool):
        self._run, executor = db.transport.run, db.transport.executor
        self._session = db.transport.sessions.connect(_client())

        async def never(*_: Any) -> None:
            await asyncio.get_running_loop().create_future()

        async def answer(*_: Any) -> None:
            if gone:
                raise view_gone("v")
            await never()

        monkeypatch.setattr(executor, "select_bound", answer)
        monkeypatch.setattr(executor.program, "wait_until_idle", never)

    def run(self, text: str) -> Any:
        return self._run(complete(self._session, text, []))[-1]


@pytest.mark.parametrize("gone", [False, True])
def test_the_limit_is_of_the_statement_and_its_error_is_the_warning(figure2: Database, monkeypatch: pytest.MonkeyPatch,
                                                                    gone: bool) -> None:
    """Also while it waits to be planned again."""
    stuck = Stuck(figure2, monkeypatch, gone)
    stuck.run("BEGIN")
    stuck.run("SET max_execution_time = 50")
    with pytest.raises(SqlError) as told:
        stuck.run("SELECT id FROM stories WHERE author = 'ann' AND title > 'A'")
    assert told.value.code == 3024
    assert [w[:2] for w in stuck.run("SHOW WARNINGS").rows] == [("Error", 3024)]


def test_keys_that_are_not_the_views(figure2: Database) -> None:
    figure2.sql("CREATE VIEW everything AS SELECT id FROM stories ORDER BY id LIMIT 2")
    lookup = figure2.transport.lookup
    assert lookup("everything", pa.table({"any": [0]})).column(0).to_pylist() == [1, 2]
    for keys in (pa.table({"a": [1], "b": [2]}), pa.table({})):
        with pytest.raises(SqlError, match=f"the keys have {keys.num_columns} columns and the view has 0 parameters"):
            lookup("everything", keys)


def test_a_session_rolls_back_what_it_has_written(figure2: Database) -> None:
    session = figure2.transport.sessions.connect(_client())
    transport = figure2.transport

    def run(text: str) -> None:
        transport.run(complete(session, text, []))

    run("BEGIN")
    run("INSERT INTO votes VALUES (3, 3)")
    run("ROLLBACK")
    assert figure2.view("StoriesWithVC").lookup(3) != [(3, "ann", "Three", 1)]
    run("BEGIN")
    run("INSERT INTO votes VALUES (3, 3)")
    run("COMMIT")
    assert figure2.view("StoriesWithVC").lookup(3) == [(3, "ann", "Three", 1)]


def _client() -> Client:
    return Client("u", "", 1, "localhost", False, True)


@pytest.mark.one_worker("of several, groups over more rows than a one-shot reads are a view, not read in slices")
def test_a_one_shot_that_would_take_much_is_a_view(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither many rows read nor a large product keep the worker from others."""
    program = db.transport.executor.program
    db.sql("CREATE TABLE n (id INT PRIMARY KEY, a INT)")
    db.table("n").insert([(i, i % 3) for i in range(3_000)])
    text = "SELECT x.id, COUNT(*) AS c FROM n x JOIN n y ON x.a = y.a GROUP BY x.id"
    assert {c for _, c in db.sql(text).rows} == {1_000}
    assert [v.name for v in program.adhoc()] == ["adhoc_1"], "three million pairs"
    monkeypatch.setattr("noria.server.answering.view_lookups.ONE_SHOT_ROWS", 100)
    assert db.sql("SELECT COUNT(*) FROM n WHERE a = 1").rows == [(1_000,)]
    assert len(list(program.adhoc())) == 1, "it reads 3,000 rows, in slices"
    monkeypatch.setattr("noria.dataflow.oneshot.slicing.ONE_SHOT_SCAN_ROWS", 2_000)
    assert db.sql("SELECT MAX(id) FROM n WHERE a = 1").rows == [(2_998,)]
    assert len(list(program.adhoc())) == 2, "too many for that"
    assert db.sql("SELECT a FROM n WHERE id = 5").rows == [(2,)]
    assert len(list(program.adhoc())) == 2, "a lookup"


@pytest.mark.one_worker("each of several answers of its own moment")
def test_a_one_shot_in_slices_is_of_one_moment(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """While it goes on, statements move what is counted from rows that it has passed to others, and back."""
    monkeypatch.setattr("noria.server.answering.view_lookups.ONE_SHOT_ROWS", 100)
    monkeypatch.setattr("noria.dataflow.oneshot.slicing.MOST_ROWS", 16)
    monkeypatch.setattr("noria.dataflow.oneshot.slicing.FIRST_ROWS", 16)
    transport = db.transport
    (worker,) = each_worker(db)
    db.sql("CREATE TABLE n (id INT PRIMARY KEY, a INT, t VARCHAR(20))")
    db.table("n").insert([(i, i % 7, f"Text {i % 10}") for i in range(4_000)])
    moved = [0]
    texts = ("SELECT a, COUNT(*), SUM(id) FROM n WHERE id + a > {} GROUP BY a",
             "SELECT t, MIN(id), MAX(id) FROM n WHERE a * 2 > {} - 9 GROUP BY t",
             "SELECT id, t FROM n WHERE t LIKE '%3' AND a <> {} ORDER BY id DESC LIMIT 10",
             "SELECT DISTINCT t FROM n WHERE a < {}")

    async def asked(text: str) -> Any:
        answer = asyncio.ensure_future(transport.sessions.run(text, []))
        while not answer.done():
            if worker.scans:
                first, last = moved[0] % 2_000, 3_999 - moved[0] % 2_000
                await transport.sessions.run(
                    f"UPDATE n SET a = (a + 1) % 7, t = CONCAT('text ', {moved[0] % 10}) WHERE id IN ({first}, {last})",
                    [])
                await transport.sessions.run(f"DELETE FROM n WHERE id = {last - 1}", [])
                moved[0] += 1
            else:
                await asyncio.sleep(0)
        return (await answer)[-1].rows

    for n, text in enumerate(texts):
        with sqlite3.connect(":memory:") as other:
            other.execute("CREATE TABLE n (id INT PRIMARY KEY, a INT, t TEXT COLLATE NOCASE)")
            other.executemany("INSERT INTO n VALUES (?, ?, ?)", db.sql("SELECT id, a, t FROM n ORDER BY id").rows)
            want = other.execute(text.format(n)).fetchall()
        before = moved[0]
        have = transport.run(asked(text.format(n)))
        assert sorted(_plain(r) for r in have) == sorted(_plain(r) for r in want), text
        assert moved[0] > before, "there were writes between slices"
    assert not worker.scans and not worker.engine.scans
    assert db.sql("SELECT COUNT(*) FROM n WHERE a >= 0").rows == [(4_000 - moved[0],)]


def _plain(row: Sequence[Any]) -> tuple[str, ...]:
    return tuple(str(v).lower() for v in row)


@pytest.mark.one_worker("its scans are counted")
def test_a_one_shot_in_slices_ends_with_its_table_or_its_caller(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("noria.server.answering.view_lookups.ONE_SHOT_ROWS", 100)
    monkeypatch.setattr("noria.dataflow.oneshot.slicing.MOST_ROWS", 1)
    monkeypatch.setattr("noria.dataflow.oneshot.slicing.FIRST_ROWS", 1)
    transport = db.transport
    (worker,), run = each_worker(db), transport.sessions.run
    ask = "SELECT a, COUNT(*) FROM n WHERE id + a > {} GROUP BY a"

    def filled() -> None:
        db.sql("CREATE TABLE n (id INT PRIMARY KEY, a INT)")
        db.table("n").insert([(i, i % 3) for i in range(3_000)])

    async def meanwhile(number: int, statement: str) -> Any:
        answer = asyncio.ensure_future(run(ask.format(number), []))
        while not worker.scans:
            await asyncio.sleep(0)
        await run(statement, [])
        return (await answer)[-1].rows

    filled()
    with pytest.raises(SqlError, match="n' doesn't exist"):
        transport.run(meanwhile(1, "DROP TABLE n"))
    filled()
    rows = transport.run(meanwhile(1, "TRUNCATE TABLE n"))
    assert sum(c for _, c in rows) == 2_999, "as of before"
    db.sql("DROP TABLE n")
    filled()
    with pytest.raises(SqlError, match="n' doesn't exist"):
        transport.run(meanwhile(1, "RENAME TABLE n TO other"))
    db.sql("RENAME TABLE other TO n")
    monkeypatch.setattr("noria.dataflow.oneshot.slicing.MOST_ROWS", 64)
    rows = transport.run(meanwhile(2_990, "ALTER TABLE n ADD COLUMN b INT"))
    assert sum(c for _, c in rows) == sum(i + i % 3 > 2_990 for i in range(3_000))
    assert not worker.scans and not worker.engine.scans
    monkeypatch.setattr(worker.environment, "cancelled", lambda number: True)
    scan = transport.run(_scan(worker, run, ask.format(5)))
    assert scan == 1317 and not worker.scans and not worker.engine.scans


async def _scan(worker: Any, run: Any, text: str) -> int:
    """The error of a statement."""
    try:
        await run(text, [])
    except SqlError as e:
        return e.code
    return 0


@pytest.mark.one_worker("counts how often its graph is looked at")
def test_a_query_that_names_others_twice_does_not_slow_changes_that_come_later(db: Database,
                                                                              monkeypatch: pytest.MonkeyPatch) -> None:
    """There are a thousand ways to its table, of which ten have no part in common."""
    db.sql("CREATE TABLE n (id INT PRIMARY KEY, a INT)")
    db.sql("CREATE VIEW doubled AS WITH w0 AS (SELECT id, a FROM n)" + "".join(
        f", w{i} AS (SELECT x.id, y.a FROM w{i - 1} x JOIN w{i - 1} y ON x.id = y.id)" for i in range(1, 10))
        + " SELECT id, a FROM w9 WHERE id = ?")
    looks, find = [0], layout._find

    def found(*of: Any) -> None:
        looks[0] += 1
        find(*of)

    monkeypatch.setattr(layout, "_find", found)
    db.sql("CREATE VIEW other AS SELECT COUNT(*) AS c FROM n WHERE a = ?")
    assert 0 < looks[0] < 2_000


PAIRS = "SELECT x.id, y.id AS other FROM n x JOIN n y ON x.a = y.a"


def _with_pairs(db: Database) -> Any:
    """Its program; PAIRS has three million rows, and is a view at once."""
    views_at_once(db.transport)
    db.sql("CREATE TABLE n (id INT PRIMARY KEY, a INT)")
    db.table("n").insert([(i, i % 3) for i in range(3_000)])
    return db.transport.executor.program


def _builds(db: Database) -> list[Any]:
    return [build for worker in each_worker(db) for build in worker.engine.builds.states.values()]


@pytest.mark.parametrize("workers", [1, 3])
def test_an_adhoc_view_that_nobody_waits_for_is_given_up(tmp_path: Path, workers: int,
                                                         monkeypatch: pytest.MonkeyPatch) -> None:
    """But not while a second client does."""
    monkeypatch.setattr("noria.control.views.first_states.ADHOC_UNWANTED_S", 0.1)
    with noria.open(tmp_path, workers=workers) as db:
        program, run = _with_pairs(db), db.transport.sessions.run

        async def abandoned() -> None:
            clients = [asyncio.ensure_future(run(PAIRS, [])) for _ in range(2)]
            while not (_builds(db) and list(program.adhoc())):
                await asyncio.sleep(0)
            clients[0].cancel()
            done, _ = await asyncio.wait(clients, timeout=0.3)
            assert done == {clients[0]} and len(list(program.adhoc())) == 1, "one waits"
            clients[1].cancel()
            await asyncio.wait(clients)
            while list(program.adhoc()) or _builds(db):
                await asyncio.sleep(0)
            await run("CREATE MATERIALIZED VIEW few AS SELECT a, COUNT(*) AS c FROM n GROUP BY a", [])

        db.transport.run(abandoned())
        assert {v for w in each_worker(db) for v in w.engine.readers} == {"few"}


@pytest.mark.parametrize("workers", [1, 3])
def test_a_view_whose_making_is_cancelled_is_no_event_for_the_log(tmp_path: Path, workers: int,
                                                                  caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    with noria.open(tmp_path, workers=workers) as db:
        program, run = _with_pairs(db), db.transport.sessions.run

        async def cancelled() -> None:
            client = asyncio.ensure_future(run("CREATE MATERIALIZED VIEW pairs AS " + PAIRS, []))
            while not _builds(db):
                await asyncio.sleep(0)
            client.cancel()
            await asyncio.wait((client,))
            while _builds(db) or program.view("pairs") is not None:
                await asyncio.sleep(0)

        db.transport.run(cancelled())
        assert db.sql("SHOW TABLES").rows == [("n",)]
        db.sql("CREATE VIEW pairs AS SELECT a FROM n WHERE id = ?")
        assert db.view("pairs").lookup(4) == [(1,)]
    assert not [r for r in caplog.records if r.levelname not in ("INFO", "DEBUG")], caplog.text


@pytest.mark.parametrize("workers", [1, 3])
def test_an_adhoc_view_that_would_take_much_of_the_memory_is_given_up(tmp_path: Path, workers: int,
                                                                      monkeypatch: pytest.MonkeyPatch) -> None:
    """A named one is not."""
    monkeypatch.setattr("noria.dataflow.worker.worker.ADHOC_SHARE", 0.001)
    with noria.open(tmp_path, workers=workers) as db:
        program = _with_pairs(db)
        refused(db, PAIRS, 3024, "MB that a state of an ad-hoc view may take")
        refused(db, PAIRS, 1235, "more memory than one may")
        assert not list(program.adhoc())
        db.sql("CREATE MATERIALIZED VIEW some AS " + PAIRS + " WHERE x.id < 300")
        assert len(db.view("some").lookup()) == 300_000
        assert {v for w in each_worker(db) for v in w.engine.readers} == {"some"} and not _builds(db)


def test_what_is_asked_again_becomes_a_view_beside(figure2: Database) -> None:
    program = figure2.transport.executor.program
    text = "SELECT id FROM stories WHERE author = '{}' ORDER BY id"
    assert figure2.sql(text.format("ann")).rows == [(1,), (3,)]
    assert not list(program.adhoc())
    for _ in range(1_000):
        assert figure2.sql(text.format("bob")).rows == [(2,)]
        if list(program.adhoc()):
            break
    (view,) = program.adhoc()
    figure2.sql("INSERT INTO stories VALUES (4, 'bob', 'Four')")
    assert figure2.sql(text.format("bob")).rows == [(2,), (4,)]
    explained = figure2.sql("EXPLAIN " + text.format("ann")).rows[0][0]
    assert explained.startswith(f"answered by the ad-hoc view {view.name}")


def test_a_one_shot_over_a_table_that_was_made_anew(figure2: Database) -> None:
    """Whoever has planned for the old one plans again."""
    ask = "SELECT title FROM stories WHERE author = 'ann' AND id > 1"
    figure2.sql("CREATE TABLE s2 (id INT PRIMARY KEY, x INT)")
    for columns in ("id INT PRIMARY KEY, x INT", "id INT PRIMARY KEY, y INT, x VARCHAR(9)"):
        figure2.sql("DROP TABLE s2")
        figure2.sql(f"CREATE TABLE s2 ({columns})")
        figure2.sql("INSERT INTO s2 (id, x) VALUES (1, 5)")
        assert str(figure2.sql("SELECT x FROM s2 WHERE id = 1").rows[0][0]) == "5"
    assert figure2.sql(ask).rows == [("Three",)]
