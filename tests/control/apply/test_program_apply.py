"""The entire program, on a database of this process: random programs beside SQLite, and what goes wrong."""

from __future__ import annotations

import asyncio
import random
import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import pytest

from control.databases import Opened
from noria.control.apply.preview import Preview
from noria.control.catalog.worker_view import add_view_step
from noria.core.errors import SqlError
from noria.core.limits import BUILD_AT_ONCE_ROWS
from noria.dataflow.messages.packets import Rehearse
from noria.sql.commands import CreateTable
from noria.sql.parse import parse
from noria.sql.program.difference import difference
from noria.sql.program.outline import read

MANY = 3 * BUILD_AT_ONCE_ROWS
T = "CREATE TABLE t (id INT PRIMARY KEY, a INT, s VARCHAR(20));\n"
PER = "CREATE MATERIALIZED VIEW per AS SELECT a, COUNT(*) AS n FROM t GROUP BY a;\n"


class AppliedProgram(Opened):
    """A database, and its program."""

    def apply(self, text: str, drop: bool = False, **more: Any) -> Preview:
        found: Preview = self.transport.run(self.program.apply(text, drop, **more))
        return found

    def preview(self, text: str, drop: bool = False) -> Preview:
        found: Preview = self.transport.run(self.program.preview(text, drop))
        return found

    def exported(self) -> str:
        return str(self.transport.run(self.program.exported()))

    def fill(self, rows: int = MANY) -> None:
        self.db.table("t").insert([(i, i % 7, f"s{i % 3}") for i in range(rows)])

    def history(self) -> list[tuple[int, str]]:
        return [(v, s) for v, _, _, s in self.db.sql("SHOW NORIA HISTORY").rows]

    def names(self) -> set[str]:
        """Readers in the graph; those that are made beside others have a NUL in their names."""
        return {v for d in self.ask("graph") for v in d["views"]}


@pytest.fixture
def applied(tmp_path: Path) -> Iterator[AppliedProgram]:
    made = AppliedProgram(tmp_path / "data")
    yield made
    made.db.close()


# ------------------------------------------------------------------ random programs
class Programs:
    """Random programs, each made of the one before; tables get columns and other types, come and go, as views do."""

    def __init__(self, seed: int):
        self.chance = random.Random(seed)
        self.tables: dict[str, list[str]] = {"t": ["id", "a"]}  # names and columns, integers all
        self.indexes: dict[str, list[str]] = {"t": []}
        self.defaults: dict[str, int] = {}
        self.types: dict[str, str] = {}
        self.views: dict[str, str] = {}
        self.at_once = {v for v in ("v0", "v1", "v2", "v3") if self.chance.random() < 0.5}
        self.made = 0

    def text(self) -> str:
        said = [f"CREATE TABLE {t} ({', '.join([*map(self.column, columns), *self.keys(t)])})"
                for t, columns in self.tables.items()]
        return ";\n".join([*said, *(f"CREATE {'MATERIALIZED ' if v in self.at_once else ''}VIEW {v} AS {select}"
                                    for v, select in self.views.items())])

    def column(self, name: str) -> str:
        key = " PRIMARY KEY" if name == "id" else ""
        default = f" DEFAULT {self.defaults[name]}" if name in self.defaults else ""
        return f"{name} {self.types.get(name, 'INT')}{key}{default}"

    def keys(self, table: str) -> list[str]:
        return [f"KEY k{n} ({c})" for n, c in enumerate(self.indexes[table])]

    def step(self) -> None:
        for _ in range(self.chance.randrange(1, 4)):
            self.chance.choice([self.add_column, self.index, self.default, self.table, self.view, self.view, self.view,
                                self.drop_view, self.drop_table, self.drop_column, self.retype])()

    def some(self) -> tuple[str, str]:
        table = self.chance.choice(list(self.tables))
        return table, self.chance.choice(self.tables[table])

    def add_column(self) -> None:
        table, _ = self.some()
        self.made += 1
        self.tables[table].append(f"c{self.made}")

    def drop_column(self) -> None:
        """And the views that name it."""
        table, column = self.some()
        if column not in ("id", "a"):
            self.tables[table].remove(column)
            self.indexes[table] = [c for c in self.indexes[table] if c != column]
            for view in [v for v, text in self.views.items() if re.search(rf"\b{column}\b", text)]:
                self.drop(view)

    def retype(self) -> None:
        _, column = self.some()
        if column != "id":
            self.types[column] = self.chance.choice(["INT", "BIGINT", "DOUBLE"])

    def index(self) -> None:
        table, column = self.some()
        if self.chance.random() < 0.3:
            self.indexes[table].clear()
        elif column not in self.indexes[table]:
            self.indexes[table].append(column)

    def default(self) -> None:
        _, column = self.some()
        if column != "id":
            self.defaults[column] = self.chance.randrange(5)

    def table(self) -> None:
        self.made += 1
        if len(self.tables) < 3:
            self.tables[f"t{self.made}"] = ["id", "a", f"d{self.made}"]
            self.indexes[f"t{self.made}"] = []

    def view(self) -> None:
        table, column = self.some()
        name = self.chance.choice([f"v{n}" for n in range(6)])
        over = self.chance.choice([v for v in self.views if v != name] or [table])
        other, _ = self.some()
        kinds = [f"SELECT * FROM {table}", f"SELECT {column} AS p, COUNT(*) AS q FROM {table} GROUP BY {column}",
                 f"SELECT x.id AS p, y.{self.chance.choice(self.tables[other])} AS q FROM {table} x JOIN {other} y "
                 f"ON x.a = y.id", f"SELECT id AS p, {column} AS q FROM {table} WHERE {column} > 1",
                 f"SELECT COUNT(*) AS p, 1 AS q FROM {over}"]
        self.drop(name)
        if over in self.tables or over in self.views:
            self.views[name] = self.chance.choice(kinds)

    def drop(self, name: str) -> None:
        """The view, and those over it."""
        for over in [v for v, text in self.views.items() if text.endswith(f" FROM {name}")]:
            if over in self.views and over != name:
                self.drop(over)
        self.views.pop(name, None)

    def drop_view(self) -> None:
        if self.views:
            self.drop(self.chance.choice(list(self.views)))

    def drop_table(self) -> None:
        table, _ = self.some()
        if table != "t" and self.chance.random() < 0.5:
            for v in [v for v, text in self.views.items() if f" {table}" in text]:
                self.drop(v)
            del self.tables[table], self.indexes[table]


def beside(applied: AppliedProgram, programs: Programs) -> None:
    """Every view gives what SQLite makes of its text over the same rows."""
    lite = sqlite3.connect(":memory:")
    for name, columns in programs.tables.items():
        lite.execute(f"CREATE TABLE {name} ({', '.join(columns)})")
        rows = applied.db.sql(f"SELECT * FROM {name}").rows
        lite.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(columns))})", rows)
    for name, select in programs.views.items():
        lite.execute(f"CREATE VIEW {name} AS {select}")
        want = lite.execute(f"SELECT * FROM {name}").fetchall()
        assert Counter(applied.db.view(name).lookup()) == Counter(want), (name, select)


@pytest.mark.parametrize("seed", range(6))
def test_random_programs(tmp_path: Path, seed: int) -> None:
    """From any program to any other: what runs then is the other, applied again it is nothing to do, and its text
    makes the same on an empty database."""
    applied, programs = AppliedProgram(tmp_path / "data"), Programs(seed)
    try:
        for step in range(12):
            programs.step()
            want = programs.text()
            shown = applied.preview(want, True)
            done = applied.apply(want, True, expected=shown.digest)
            assert done.target.difference == shown.target.difference
            assert applied.apply(want, True).target.difference.empty, want
            assert difference(read(applied.exported()), read(want), True).empty
            for table, columns in programs.tables.items():
                more = [programs.chance.randrange(4) for _ in columns[2:]]
                applied.db.table(table).insert([(i + 100 * step, i % 3, *more) for i in range(4)])
            if step % 5 == 4:
                applied.again()
                assert applied.apply(want, True).target.difference.empty, want
            beside(applied, programs)
            applied.ask("validate")
        fresh = AppliedProgram(tmp_path / "fresh")
        try:
            fresh.apply(applied.exported())
            assert fresh.apply(want, True).target.difference.empty
            assert fresh.exported() == applied.exported()
        finally:
            fresh.db.close()
    finally:
        applied.db.close()


# ------------------------------------------------------------------ a dry run
def test_a_dry_run_changes_nothing(applied: AppliedProgram) -> None:
    applied.apply(T + PER + "CREATE VIEW by_a AS SELECT * FROM t WHERE a = ?")
    applied.fill()
    applied.db.view("by_a").lookup(3)
    before = applied.ask("graph"), applied.exported(), applied.history(), applied.program.version
    shown = applied.preview(
        T.replace("20))", "20), k INT DEFAULT 3, KEY (s))") + PER.replace("a, C", "a, MAX(id) AS m, C")
        + "CREATE TABLE u (id INT PRIMARY KEY, k INT);\nCREATE VIEW j AS SELECT t.id, u.k FROM t JOIN u ON t.a = u.id "
        "WHERE u.k = ?;\nCREATE MATERIALIZED VIEW k AS SELECT k, COUNT(*) AS n FROM t GROUP BY k", drop=True)
    said = "\n".join(shown.lines())
    assert (applied.ask("graph"), applied.exported(), applied.history(), applied.program.version) == before
    assert applied.ask("builds") == []
    assert "+ table u" in said and "- view by_a" in said and f"filled from {MANY:,} rows" in said
    assert f"the index s is built over {MANY:,} rows" in said and "the old one answers until it is filled" in said
    assert f"the table t is looked up by (a): an index is built over {MANY:,} rows" not in said  # by_a made it
    assert shown.filled_bytes > 0 and shown.rehearsal.freed_nodes > 0
    applied.ask("validate")


def test_estimates_are_of_the_right_size(applied: AppliedProgram) -> None:
    """A full view with a row for each of the table's: what it takes is between a half and twice the estimate."""
    applied.apply(T)
    applied.fill(20_000)
    one = "CREATE MATERIALIZED VIEW one AS SELECT id, COUNT(*) AS n FROM t GROUP BY id"
    shown = applied.preview(T + one)
    applied.apply(T + one)
    state = next(d for d in applied.ask("graph") if d["does"].startswith("aggregate"))
    (told,) = [n for n in shown.rehearsal.views[0].nodes if n.does.startswith("aggregate")]
    assert told.rows == state["rows"] == 20_000 and 0.5 < state["bytes"] / told.nbytes < 2


def test_what_is_shared_and_what_is_new(applied: AppliedProgram) -> None:
    applied.apply(T + PER)
    same = "CREATE MATERIALIZED VIEW again AS SELECT a, COUNT(*) AS n FROM t GROUP BY a;"
    other = "CREATE MATERIALIZED VIEW o AS SELECT s FROM t; CREATE VIEW p AS SELECT s FROM t"
    shown = applied.preview(T + PER + same + other)
    assert "+ view p: keeps nothing until it is read" in list(shown.lines())
    new = {v.name.partition("\0")[0]: [n.does for n in v.nodes if n.new and not n.does.startswith("exchange")]
           for v in shown.rehearsal.views}
    assert new["again"] == ["reader again"] and len(new["o"]) == 2


def test_a_rehearsal_leaves_what_has_the_name_alone(applied: AppliedProgram) -> None:
    """Nobody asks for that; the view of the program stays."""
    applied.apply(T + PER)
    taken = add_view_step(applied.program.view("per") or pytest.fail("no view"))
    with pytest.raises(SqlError, match="already exists"):
        applied.transport.run(applied.transport.executor.ask(Rehearse(0, (taken,))))
    applied.fill(10)
    assert len(applied.db.view("per").lookup()) == 7
    applied.ask("validate")


# ------------------------------------------------------------------ all or nothing
def during(applied: AppliedProgram, text: str, what: Callable[[asyncio.Task[Preview]], Any], **more: Any) -> Preview:
    """Apply, and do something when the new views are being filled."""
    async def run() -> Preview:
        def report_step(step: str) -> None:
            if step.startswith("filling"):
                asyncio.get_running_loop().call_soon(lambda: asyncio.ensure_future(happens()))

        async def happens() -> None:
            done = what(task)
            if asyncio.iscoroutine(done):
                await done

        task = asyncio.ensure_future(applied.program.apply(text, report_step=report_step, **more))
        return await task

    found: Preview = applied.transport.run(run())
    return found


CHANGED = T.replace("20))", "20), KEY (s))") + PER.replace("a, C", "a, MAX(id) AS m, C") + (
    "CREATE TABLE u (id INT PRIMARY KEY);\nCREATE MATERIALIZED VIEW uu AS SELECT COUNT(*) AS n FROM u")


@pytest.fixture
def filled(applied: AppliedProgram) -> AppliedProgram:
    applied.apply(T + PER)
    applied.fill()
    return applied


def as_it_was(applied: AppliedProgram, version: int = 1) -> None:
    assert difference(read(applied.exported()), read(T + PER), True).empty
    assert applied.names() == {"per"} and len(applied.history()) == version
    assert len(applied.db.view("per").lookup()) == 7
    applied.ask("validate")
    applied.again()
    assert difference(read(applied.exported()), read(T + PER), True).empty
    assert applied.apply(CHANGED).target.difference.replaced == ("per",), "and it can be done now"


def test_cancelled(filled: AppliedProgram) -> None:
    with pytest.raises(CancelledError):
        during(filled, CHANGED, lambda task: task.cancel())
    as_it_was(filled)


def test_a_view_that_cannot_be_filled(filled: AppliedProgram, monkeypatch: pytest.MonkeyPatch) -> None:
    async def full(*_: Any) -> None:
        raise SqlError(1041, "HY000", "Out of memory")

    with monkeypatch.context() as m:
        m.setattr(filled.program.first_states, "fill", full)
        with pytest.raises(SqlError, match="Out of memory"):
            filled.apply(CHANGED)
    as_it_was(filled)


def test_a_table_that_is_locked(filled: AppliedProgram) -> None:
    def locked(name: str) -> None:
        raise SqlError(1205, "HY000", f"{name} is locked")

    with pytest.raises(SqlError, match="t is locked"):
        filled.apply(CHANGED, may_change=locked)
    as_it_was(filled)


def other_table(applied: AppliedProgram) -> Any:
    (command,) = parse("CREATE TABLE late (id INT)", applied.program)
    assert isinstance(command, CreateTable)
    return applied.program.define(command)


def test_somebody_else_changes_the_program(filled: AppliedProgram) -> None:
    """What was shown is not what would be done then; whoever asked for the text has it all the same."""
    shown = filled.preview(CHANGED, True)
    with pytest.raises(SqlError, match="changed by somebody else meanwhile"):
        during(filled, CHANGED, lambda _: other_table(filled), drop=True, expected=shown.digest)
    assert filled.names() == {"per"} and filled.program.view("uu") is None
    filled.db.sql("DROP TABLE late")
    done = during(filled, CHANGED, lambda _: other_table(filled))
    assert done.target.difference.left == ("late",) and filled.program.table("late") is not None
    assert filled.apply(CHANGED).target.difference.empty


def test_wrong_texts_change_nothing(filled: AppliedProgram) -> None:
    for text in ("CREATE TABLE x (a INT); CREATE VIEW y AS SELECT b FROM x", "CREATE TABLE per (a INT)",
                 T.replace("a INT, s VARCHAR(20)", "s VARCHAR(20), a INT")):
        for act in (filled.preview, filled.apply):
            with pytest.raises(SqlError):
                act(text, True)
    as_it_was(filled)


def test_the_old_view_answers_until_the_new_one_is_whole(filled: AppliedProgram) -> None:
    seen: list[Any] = []

    async def look(_: Any) -> None:
        outcomes = await filled.transport.sessions.run("SELECT * FROM per WHERE a = 3", [])
        seen.append(outcomes[0].rows)

    during(filled, CHANGED, look)
    assert seen == [[(3, MANY // 7 + (MANY % 7 > 3))]]
    assert len(filled.db.view("per").lookup()[0]) == 3


def test_views_over_new_columns(filled: AppliedProgram) -> None:
    text = (T.replace("20))", "20), k INT NOT NULL DEFAULT 9)") + PER
            + "CREATE VIEW ks AS SELECT k, COUNT(*) AS n FROM t GROUP BY k")
    done = filled.apply(text)
    assert done.target.difference.views_kept == ("per",) and not done.target.difference.early
    assert filled.db.view("ks").lookup() == [(9, MANY)] and filled.apply(text).target.difference.empty
    filled.again()
    assert filled.db.view("ks").lookup() == [(9, MANY)] and filled.apply(text).target.difference.empty


def test_columns_of_other_types_and_fewer(filled: AppliedProgram) -> None:
    """As ALTERs of the one change, told first; views that do not look at these stay, others are made anew."""
    more = ("CREATE VIEW by_s AS SELECT id, s FROM t WHERE s = ?;\n"
            "CREATE MATERIALIZED VIEW ids AS SELECT COUNT(id) AS n FROM t;\n"
            "CREATE TABLE u (id INT PRIMARY KEY, x INT, y INT, KEY xy (x, y));\n"
            "CREATE VIEW by_x AS SELECT id FROM u WHERE x = ?;\n")
    filled.apply(T + PER + more)
    filled.db.sql("INSERT INTO u VALUES (1, 2, 3)")
    assert filled.db.sql("SELECT COUNT(*) FROM t WHERE a > 4 AND s = 's1'").rows
    text = (T.replace("a INT", "a VARCHAR(9)") + PER + more).replace("x INT, y INT, KEY xy (x, y)", "y DOUBLE")
    text = text.replace("by_x AS SELECT id FROM u WHERE x = ?", "by_y AS SELECT y FROM u WHERE id = ?")
    before = filled.exported()
    with pytest.raises(SqlError, match=r"has a column 'x' .* --drop drops it .* ALTER TABLE `u` RENAME COLUMN `x` TO"):
        filled.apply(text)
    shown = filled.preview(text, True)
    assert filled.exported() == before
    assert [line for line in shown.lines() if line[0] in "~-"] == [
        "~ table t: ALTER TABLE `t` MODIFY COLUMN `a` varchar(9)",
        "~ table u: ALTER TABLE `u` DROP INDEX `xy`, DROP COLUMN `x`, MODIFY COLUMN `y` double",
        next(line for line in shown.lines() if line.startswith("~ view per: ")), "- view by_x"]
    assert "    the values of x in 1 rows are lost" in shown.lines()
    assert f"    the values of a in {MANY:,} rows are converted" in shown.lines()
    done = filled.apply(text, True, expected=shown.digest).target.difference
    assert done.replaced == ("per",) and set(done.views_kept) == {"by_s", "ids"}
    for _ in range(2):
        assert filled.apply(text, True).target.difference.empty
        assert ("3", len([i for i in range(MANY) if i % 7 == 3])) in filled.db.view("per").lookup()
        assert filled.db.view("ids").lookup() == [(MANY,)] and filled.db.view("by_y").lookup(1) == [(3.0,)]
        assert filled.db.sql("SELECT * FROM u").rows == [(1, 3.0)]
        filled.ask("validate")
        filled.again()


def test_a_column_that_may_be_null_from_now_on(filled: AppliedProgram) -> None:
    """The views that read it are made anew with it; by itself the ALTER is refused."""
    filled.apply(T.replace("a INT", "a INT NOT NULL") + PER)
    with pytest.raises(SqlError, match="at once, with noria apply"):
        filled.db.sql("ALTER TABLE t MODIFY a INT")
    assert filled.apply(T + PER).target.difference.replaced == ("per",)
    filled.db.sql("INSERT INTO t (id) VALUES (-1)")
    assert (None, 1) in filled.db.view("per").lookup() and filled.apply(T + PER).target.difference.empty
    filled.ask("validate")


def test_values_that_do_not_fit_change_nothing(filled: AppliedProgram) -> None:
    text = T.replace("s VARCHAR(20)", "s VARCHAR(1)") + PER.replace("a, C", "a, MAX(id) AS m, C")
    with pytest.raises(SqlError) as e:
        filled.apply(text)
    assert e.value.code == 1406
    as_it_was(filled)
    filled.db.sql("CREATE VIEW other AS SELECT id FROM t WHERE s = ?")
    with pytest.raises(SqlError, match=r"'s'.*views need it: 'other'"):
        filled.apply(T.replace("s VARCHAR(20)", "s VARBINARY(20)"))


@pytest.mark.one_worker("noria apply moves no rows to other workers")
def test_another_primary_key(filled: AppliedProgram) -> None:
    """Where rows are told apart by it; a view that needs the one of before is in the way, if it is to stay."""
    by_a = "CREATE VIEW by_a AS SELECT s FROM t WHERE a = ?;\n"
    filled.apply(T + by_a + "CREATE VIEW per_id AS SELECT id, s, COUNT(*) AS n FROM t GROUP BY id")
    for key, drop, number in (("(a)", True, 1062), ("(s, a)", True, 1062), ("(a, id)", False, 3730)):
        text = T.replace("id INT PRIMARY KEY", "id INT NOT NULL").replace("20))", f"20), PRIMARY KEY {key})")
        with pytest.raises(SqlError) as e:
            filled.apply(text, drop)
        assert e.value.code == number, (key, e.value)
    assert filled.exported().startswith("CREATE TABLE `t` (\n  `id` int NOT NULL,\n  `a` int,")
    text = T.replace("id INT PRIMARY KEY", "id INT NOT NULL").replace("20))", "20), PRIMARY KEY (a, id))") + PER + by_a
    done = filled.apply(text, True).target.difference
    assert done.replaced == ("per", "by_a"), "their column is NOT NULL from now on"
    assert len(filled.db.view("by_a").lookup(3)) == MANY // 7 + (MANY % 7 > 3)
    assert filled.db.view("per").lookup() and filled.apply(text, True).target.difference.empty
    filled.again()
    assert filled.apply(text, True).target.difference.empty
    with pytest.raises(SqlError) as e:
        filled.db.sql("INSERT INTO t VALUES (3, 3, 'again')")
    assert e.value.code == 1062
    filled.ask("validate")


def test_tables_that_were_altered(filled: AppliedProgram) -> None:
    """By statements: what is exported is the program as it is now, also where columns went, moved or are called
    otherwise."""
    applied = filled
    applied.db.sql("CREATE VIEW j AS SELECT x.id AS p, y.a AS q FROM t x JOIN t y ON x.id = y.a WHERE y.a = ?")
    for text in ("ADD COLUMN k INT DEFAULT 7 FIRST", "DROP COLUMN s", "ADD COLUMN m BIGINT AFTER id", "MODIFY k BIGINT",
                 "RENAME COLUMN k TO kk", "MODIFY kk VARCHAR(20)"):
        applied.db.sql(f"ALTER TABLE t {text}")
        exported = applied.exported()
        assert "ALTER" not in exported and applied.apply(exported, True).target.difference.empty, text
    assert "`kk` varchar(20)" in exported and "`s`" not in exported
    applied.db.sql("CREATE VIEW later AS SELECT * FROM t WHERE kk = ?")
    done = applied.apply(applied.exported().replace("`a` int", "`a` int DEFAULT '5'"), True).target.difference
    assert done.altered == (("t", ("ALTER COLUMN `a` SET DEFAULT '5'",)),) and not done.replaced
    applied.again()
    assert applied.apply(applied.exported()).target.difference.empty
    applied.apply(applied.exported() + "CREATE VIEW n AS SELECT m, COUNT(*) AS c FROM t GROUP BY m")
    assert applied.db.view("n").lookup() == [(None, MANY)]
    assert applied.apply(applied.exported(), True).target.difference.empty
    applied.db.sql("ALTER TABLE t RENAME COLUMN a TO b")
    assert "WHERE `y`.`b` = ?" in applied.exported() and "ALTER" not in applied.exported()
    assert applied.apply(applied.exported(), True).target.difference.empty
    applied.ask("validate")


def test_counters(applied: AppliedProgram) -> None:
    """Where AUTO_INCREMENT is at goes with the text."""
    applied.apply("CREATE TABLE n (id INT PRIMARY KEY AUTO_INCREMENT, a INT)")
    applied.db.sql("INSERT INTO n (a) VALUES (1), (2)")
    assert applied.exported().rstrip().endswith("AUTO_INCREMENT=3;")
    assert applied.apply(applied.exported().replace("=3", "=10")).target.difference.altered
    assert applied.db.sql("INSERT INTO n (a) VALUES (3)").last_insert_id == 10
    assert applied.apply("CREATE TABLE n (id INT PRIMARY KEY AUTO_INCREMENT, a INT)").target.difference.empty


# ------------------------------------------------------------------ history
def test_history(applied: AppliedProgram) -> None:
    """Of each change, by whom, in which words; after a restart too.  Ad-hoc views are no part of the program."""
    statements = ["CREATE TABLE t (id INT PRIMARY KEY, a INT)", "CREATE VIEW v AS SELECT * FROM t WHERE a = ?",
                  "CREATE INDEX i ON t (a)", "CREATE OR REPLACE VIEW v AS SELECT id FROM t WHERE a = ?", "DROP VIEW v"]
    for text in statements:
        applied.db.sql(text)
    for _ in range(3):
        applied.db.sql("SELECT a FROM t WHERE id = ?", [1])
    with pytest.raises(SqlError):
        applied.db.sql("CREATE VIEW v AS SELECT nosuch FROM t")
    applied.apply("CREATE TABLE t (id INT PRIMARY KEY, a INT, KEY i (a)); CREATE VIEW w AS SELECT a FROM t")
    want = [(n, s) for n, s in enumerate([*statements, "noria apply: CREATE VIEW w AS SELECT a FROM t"], 1)][::-1]
    assert applied.history() == want
    applied.again()
    assert applied.history() == want
    applied.db.sql("DROP VIEW w")
    (version, when, who, text), *_ = applied.db.sql("SHOW NORIA HISTORY").rows
    assert (version, who, text) == (7, "root@localhost", "DROP VIEW w") and when.startswith("20")


def test_unique_indexes_come_and_go(applied: AppliedProgram) -> None:
    """All of it or nothing: also where a row is one too many."""
    applied.apply(T + PER)
    applied.fill(10)
    unique = T.replace("20))", "20), UNIQUE KEY us (s))")
    more = "CREATE MATERIALIZED VIEW m AS SELECT MAX(id) AS m FROM t"
    with pytest.raises(SqlError, match="Duplicate entry"):
        applied.apply(unique + PER + more)
    assert difference(read(applied.exported()), read(T + PER), True).empty and applied.names() == {"per"}
    applied.db.sql("UPDATE t SET s = CONCAT('s', id)")
    assert "ADD UNIQUE" in "\n".join(applied.preview(unique + PER).lines())
    applied.apply(unique + PER)
    with pytest.raises(SqlError, match="Duplicate entry"):
        applied.db.sql("INSERT INTO t VALUES (100, 1, 's1')")
    assert applied.db.sql("SELECT id FROM t WHERE s = 's3'").rows == [(3,)]
    applied.apply(T + PER)
    applied.db.sql("INSERT INTO t VALUES (100, 1, 's3')")
    assert len(applied.db.sql("SELECT id FROM t WHERE s = 's3'").rows) == 2
    applied.ask("validate")


# ------------------------------------------------------------------ several workers
@pytest.fixture
def several(tmp_path: Path) -> Iterator[AppliedProgram]:
    made = AppliedProgram(tmp_path / "data", workers=2)
    made.apply(T + PER)
    made.fill(50)
    yield made
    made.db.close()


KEYED = ("CREATE TABLE t (id INT NOT NULL, a INT, s VARCHAR(20), PRIMARY KEY (a, id));\n"
         "CREATE TABLE u (id INT PRIMARY KEY);\n")


def test_tables_whose_rows_go_to_other_workers_are_changed_first(several: AppliedProgram) -> None:
    text = KEYED + PER + "CREATE VIEW of_s AS SELECT id, a FROM t WHERE s = ?;\n"
    lines = list(several.preview(text).lines())
    assert any("ALTER TABLE `t` DROP PRIMARY KEY" in one for one in lines)
    assert any(one.strip().startswith("first, and by itself") for one in lines), lines
    before = several.db.view("per").lookup()
    told: list[str] = []
    several.apply(text, expected=several.preview(text).digest, report_step=told.append)
    assert "changing table t" in told
    assert sorted(several.db.view("per").lookup()) == sorted(before)
    assert len(several.db.view("of_s").lookup("s1")) == 17
    several.db.sql("INSERT INTO t VALUES (1, 100, 's1')")  # the id alone is no key any more
    assert several.preview(text).target.difference.empty
    several.again()
    assert several.preview(text).target.difference.empty
    assert any(said.startswith("noria apply: ALTER TABLE") for _, said in several.history())


def test_a_new_column_numbers_rows_of_several_workers(several: AppliedProgram) -> None:
    text = T.replace("20));", "20), n INT AUTO_INCREMENT UNIQUE);") + PER
    several.apply(text)
    assert sorted(several.db.sql("SELECT n FROM t").rows) == [(i + 1,) for i in range(50)]
    assert several.preview(text).target.difference.empty


def test_what_is_changed_by_now_is_said(several: AppliedProgram, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(*args: Any) -> None:
        raise SqlError(3730, "HY000", "it was changed meanwhile")

    before = several.exported()
    several.db.sql("INSERT INTO t VALUES (100, NULL, NULL)")
    with pytest.raises(SqlError, match="Invalid use of NULL value"):
        several.apply(KEYED + PER)
    assert several.exported() == before
    several.db.sql("DELETE FROM t WHERE a IS NULL")
    monkeypatch.setattr(several.program.applying, "_changed", fails)
    with pytest.raises(SqlError, match="it was changed meanwhile; the rest of the program is as it was, but changed by "
                                       "now: table t"):
        several.apply(KEYED + PER)
    assert "PRIMARY KEY (`a`, `id`)" in several.exported() and "`u`" not in several.exported()
