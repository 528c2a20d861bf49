"""A client that changes the program, one change after another, and one that feeds the table which it changes.

The table has enough rows for every change over it to be built in slices: views, indexes, UNIQUE, types, `noria apply`.
Keeps true: a change that is acknowledged is there, one that is refused is not, one without an answer is there wholly
or not at all, and does not come later: what the server shows of the table and its views is what it was before the
change or what it is to be.  Their rows are compared with SQLite's (`compare`).
"""

from __future__ import annotations

import sqlite3
import threading
from collections import Counter
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import pymysql

from chaos.workload.clients import NOTHING, Away, Client, Failure, Text, World, number_of
from e2e.serving import rows
from noria.client.transport import HttpTransport

ROWS, GROUPS = 12_000, 200
MADE = ("CREATE TABLE big (id INT PRIMARY KEY, n INT NOT NULL, c0 INT DEFAULT 5)",
        "CREATE TABLE fence (n INT PRIMARY KEY, m INT DEFAULT 0)")
NOT_UNIQUE, DOES_NOT_FIT, NEEDED, LOOKED_UP_BY = 1062, 1264, 3730, 1553
REPLACES = "CREATE OR REPLACE"


@dataclass(frozen=True)
class Program:
    """The table's columns with their types, its indexes by name, the views with their columns and queries."""

    columns: dict[str, str]
    indexes: dict[str, tuple[str, ...]]
    views: dict[str, tuple[tuple[str, ...], str]] = field(default_factory=dict)

    def shown(self) -> Any:
        return self.columns, self.indexes, {name: columns for name, (columns, _) in self.views.items()}

    def used(self, column: str) -> bool:
        """By a view, which keeps it from going."""
        return any(column in query.replace(",", " ").split() for _, query in self.views.values())


@dataclass(frozen=True)
class Change:
    """A statement, or a text to append to the program that is applied; the program after it; what SQLite does; the
    number of the error that it must end in; does it take all rows, so that nobody may write meanwhile?"""

    text: str
    then: Program
    lite: str = ""
    error: int = NOTHING
    applied: bool = False
    empties: bool = False


class Big:
    """The table as it must be: SQLite's, told of what is acknowledged."""

    def __init__(self) -> None:
        self.lite = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        self.lite.execute("CREATE TABLE big (id INTEGER PRIMARY KEY, n, c0 DEFAULT 5)")
        self.fed = [(i, i * 7 % GROUPS) for i in range(ROWS)]
        for text in self.rows():
            self.lite.execute(text)
        self.feeding = threading.Lock()  # of whoever writes rows
        self.program = Program({"id": "int", "n": "int", "c0": "int"}, {"PRIMARY": ("id",)})

    def rows(self) -> list[str]:
        """Statements, which are done twice as once."""
        return ["REPLACE INTO big (id, n) VALUES " + ", ".join(map(str, self.fed[at: at + 1_000]))
                for at in range(0, ROWS, 1_000)]


class Changes(Client):
    """One change after another."""

    def __init__(self, world: World, big: Big):
        super().__init__(world, "changes")
        self._big, self._way, self._made, self._fences = big, Text(world), 0, 0

    def turn(self) -> None:
        makers = (self._view, self._view, self._replaced, self._dropped, self._index, self._unique, self._no_index,
                  self._column, self._no_column, self._renamed, self._modified, self._not_unique, self._not_fitting,
                  self._applied, self._emptied)
        change = self.chance.choice(makers)()
        if change is not None and change.empties:
            with self._big.feeding:
                self._make(change)
                self._refill()
        elif change is not None:
            self._make(change)
        self.world.stop.wait(self.chance.random() * 0.3)

    def _make(self, change: Change) -> None:
        big, permit = self._big, self.world.permit
        applied: bool | None = True
        try:
            self._apply(change) if change.applied else self._way.execute(change.text)
        except AssertionError:
            raise
        except Exception as e:
            applied = False
            # Views look rows up by the index, and its successor is being built.
            later = change.text.startswith("DROP INDEX") and number_of(e) == LOOKED_UP_BY
            if number_of(e) != change.error and not later:
                lost = self.world.judge(self.name, self._way, e, change.text, permit)
                applied = self._settle(change, lost)
        else:
            if change.error != NOTHING:
                raise Failure(f"{change.text}: no error {change.error}")
        with self.world.lock:
            if applied:
                big.program = change.then
                if change.lite:
                    big.lite.execute(change.lite)
        self.world.journal(self.name, "changed" if applied else "not changed", statement=change.text)
        shown = self.patiently("see the program", self._way, self._shown)
        if shown != big.program.shown():
            raise Failure(f"after {change.text} ({'' if applied else 'not '}made): {shown}\n"
                          f"instead of: {big.program.shown()}")

    def _settle(self, change: Change, error: Away) -> bool:
        """Is it there?  What waits for the program's lock after it comes after it; but a view that is replaced takes it
        twice, and may be replaced later than that: by the same, then."""
        self._way.close()
        if change.text.startswith(REPLACES):
            self.patiently("do again " + change.text, self._way, lambda: self._way.execute(change.text))
        self._fences += 1
        self.patiently("settle " + change.text, self._way, self._fence)
        shown = self.patiently("see the program", self._way, self._shown)
        if shown not in (self._big.program.shown(), change.then.shown()):
            raise Failure(f"neither with nor without {change.text} ({error})\nfound: {shown}\n"
                          f"without: {self._big.program.shown()}\nwith: {change.then.shown()}")
        if change.empties:
            return not self.patiently("see rows", self._way, lambda: self._way.rows("SELECT id FROM big LIMIT 1"))
        return bool(shown == change.then.shown())

    def _refill(self) -> None:
        for text in self._big.rows():
            self.patiently("fill", self._way, lambda text=text: self._way.execute(text))
            with self.world.lock:
                self._big.lite.execute(text)

    def _fence(self) -> None:
        self._way.execute(f"ALTER TABLE fence ALTER m SET DEFAULT {self._fences}")

    def _apply(self, change: Change) -> None:
        """Over HTTP, as `noria apply`."""
        server = HttpTransport(self.world.server.url)
        try:
            text = server.program()
            with closing(server.lines("/apply", {"program": f"{text}\n{change.text};"})) as lines:
                for _ in lines:
                    pass
        finally:
            server.close()

    def _shown(self) -> Any:
        """As `Program.shown`."""
        way, indexes = self._way, dict[str, tuple[str, ...]]()
        for r in way.rows("SHOW INDEX FROM big"):
            indexes[r[2]] = (*indexes.get(r[2], ()), r[4])
        views = [name for name, *_ in way.rows("SHOW TABLES") if name.startswith("changed_")]
        return ({r[0]: r[1].partition("(")[0] for r in way.rows("SHOW COLUMNS FROM big")}, indexes,
                {v: tuple(r[0] for r in way.rows(f"SHOW COLUMNS FROM {v}")) for v in views})

    # ------------------------------------------------------------ changes
    @property
    def _program(self) -> Program:
        return self._big.program

    def _fresh(self, what: str) -> str:
        self._made += 1
        return f"{what}{self._made}"

    def _others(self) -> list[str]:
        return [c for c in self._program.columns if c.startswith("c")]

    def _query(self) -> tuple[tuple[str, ...], str]:
        c, some = self._fresh("s"), self.chance.choice((*self._others(), "n"))
        key = some if self._program.columns[some] == "int" else "n"
        return self.chance.choice((
            (("n", c, "k"), f"SELECT n , SUM( id ) AS {c} , COUNT( {some} ) AS k FROM big GROUP BY n"),
            (("a", c), f"SELECT {some} AS a , COUNT(*) AS {c} FROM big GROUP BY {some}"),
            (("n", c), f"SELECT b. n , COUNT(*) AS {c} FROM big b JOIN big o ON o. id = b. n GROUP BY b. n"),
            (("id", c), f"SELECT id, {some} AS {c} FROM big WHERE n = ?"),
            (("id", c), f"SELECT id, n AS {c} FROM big WHERE {key} = ?")))

    def _with_view(self, name: str, start: str, applied: bool = False) -> Change:
        query = self._query()
        then = replace(self._program, views={**self._program.views, name: query})
        kind = "VIEW" if "?" in query[1] or applied else "MATERIALIZED VIEW"
        return Change(f"{start} {kind} {name} AS {query[1]}", then, applied=applied)

    def _view(self) -> Change | None:
        return self._with_view(self._fresh("changed_"), "CREATE") if len(self._program.views) < 5 else self._dropped()

    def _applied(self) -> Change | None:
        return self._with_view(self._fresh("changed_"), "CREATE", True) if len(self._program.views) < 5 else None

    def _replaced(self) -> Change | None:
        views = list(self._program.views)
        return self._with_view(self.chance.choice(views), REPLACES) if views else None

    def _dropped(self) -> Change | None:
        views = dict(self._program.views)
        if not views:
            return None
        name = self.chance.choice(list(views))
        del views[name]
        return Change(f"DROP VIEW {name}", replace(self._program, views=views))

    def _indexed(self, unique: bool, columns: tuple[str, ...]) -> Change | None:
        name = self._fresh("i")
        if len(self._program.indexes) > 3:
            return self._no_index()
        then = replace(self._program, indexes={**self._program.indexes, name: columns})
        return Change(f"CREATE {'UNIQUE ' if unique else ''}INDEX {name} ON big ({', '.join(columns)})", then)

    def _index(self) -> Change | None:
        return self._indexed(False, (self.chance.choice([*self._others(), "n"]),))

    def _unique(self) -> Change | None:
        return self._indexed(True, (self.chance.choice([*self._others(), "n"]), "id"))

    def _no_index(self) -> Change | None:
        indexes = dict(self._program.indexes)
        del indexes["PRIMARY"]
        if not indexes:
            return None
        name = self.chance.choice(list(indexes))
        then = {n: c for n, c in self._program.indexes.items() if n != name}
        return Change(f"DROP INDEX {name} ON big", replace(self._program, indexes=then))

    def _column(self) -> Change | None:
        if len(self._program.columns) > 6:
            return None
        name, default = self._fresh("c"), self.chance.randrange(9)
        columns = {**self._program.columns, name: "int"}
        return Change(f"ALTER TABLE big ADD COLUMN {name} INT DEFAULT {default}",
                      replace(self._program, columns=columns), f"ALTER TABLE big ADD COLUMN {name} DEFAULT {default}")

    def _free(self) -> list[str]:
        """Columns that no view and no index has."""
        indexed = {c for columns in self._program.indexes.values() for c in columns}
        return [c for c in self._others() if c not in indexed and not self._program.used(c)]

    def _no_column(self) -> Change | None:
        if not (free := self._free()) or len(self._others()) < 2:
            return None
        gone = self.chance.choice(free)
        columns = {c: t for c, t in self._program.columns.items() if c != gone}
        return Change(f"ALTER TABLE big DROP COLUMN {gone}", replace(self._program, columns=columns),
                      f"ALTER TABLE big DROP COLUMN {gone}")

    def _renamed(self) -> Change:
        """Views and indexes follow."""
        was, name = self.chance.choice(self._others()), self._fresh("c")

        def now(c: str) -> str:
            return name if c == was else c

        p = self._program
        then = Program({now(c): t for c, t in p.columns.items()},
                       {i: tuple(map(now, columns)) for i, columns in p.indexes.items()},
                       {v: (columns, " ".join(map(now, query.split()))) for v, (columns, query) in p.views.items()})
        return Change(f"ALTER TABLE big RENAME COLUMN {was} TO {name}", then,
                      f"ALTER TABLE big RENAME COLUMN {was} TO {name}")

    def _modified(self) -> Change | None:
        """Its values are the same numbers as texts, which SQLite is not told of: it compares both as texts."""
        free = [c for c in self._free() if self._program.columns[c] == "int"]
        if not free:
            return None
        name = self.chance.choice(free)
        [(default,)] = list(self._big.lite.execute(
            "SELECT dflt_value FROM pragma_table_info('big') WHERE name = ?", (name,)))
        return Change(f"ALTER TABLE big MODIFY {name} VARCHAR(12) DEFAULT '{default}'",
                      replace(self._program, columns={**self._program.columns, name: "varchar"}))

    def _emptied(self) -> Change:
        return Change("TRUNCATE TABLE big", self._program, "DELETE FROM big", empties=True)

    def _not_unique(self) -> Change:
        return Change("ALTER TABLE big ADD UNIQUE never (n)", self._program, error=NOT_UNIQUE)

    def _not_fitting(self) -> Change:
        return Change("ALTER TABLE big MODIFY id TINYINT NOT NULL", self._program,
                      error=NEEDED if self._program.used("id") else DOES_NOT_FIT)


class Feeds(Client):
    """Rows of the table come, change and go meanwhile."""

    def __init__(self, world: World, big: Big):
        super().__init__(world, "feeds")
        self._big, self._way = big, Text(world)

    def turn(self) -> None:
        chance = self.chance
        at, n = chance.randrange(200, ROWS + 500), chance.randrange(GROUPS)
        text = chance.choice((
            f"REPLACE INTO big (id, n) VALUES ({at}, {n}), ({at + 1}, {(n + 1) % GROUPS})",
            f"UPDATE big SET n = {n} WHERE id = {at}",
            f"DELETE FROM big WHERE id >= {at} AND id < {at + 3}"))
        with self._big.feeding:
            self.patiently(text, self._way, lambda: self._way.execute(text))  # done twice is done once
            with self.world.lock:
                self._big.lite.execute(text)
        self.world.stop.wait(0.01)


def compare(world: World, big: Big, connection: Any) -> None:
    """The table and its views are what SQLite makes of them."""
    for name, (_, query) in {"big": ((), "SELECT * FROM big"), **big.program.views}.items():
        columns = ", ".join(big.program.columns) if name == "big" else "*"
        keys = [(k,) for k in (5, 7, 150)] if "?" in query else [()]
        for key in keys:
            text = query.replace("?", str(key[0])) if key else f"SELECT {columns} FROM {name}"
            _same(f"{name} {key}", as_texts(asked(world, text, connection)),
                  as_texts(big.lite.execute(query.replace("SELECT *", f"SELECT {columns}"), key)))


LOOK_S = 20


def asked(world: World, text: str, connection: Any) -> Any:
    """The rows; of what is not answered soon, what it waits for is noted."""
    told: list[str] = []

    def look() -> None:
        with suppress(pymysql.err.MySQLError, OSError), world.server.connect() as other:
            for what in ("SHOW FULL PROCESSLIST", "SHOW NORIA MIGRATIONS", f"EXPLAIN {text}"):
                told.extend(map(str, rows(other, what)))
            told.extend(world.server.get("/waits"))
        world.journal("chaos", "waits", text=text, told=told)

    looker = threading.Timer(LOOK_S, look)
    looker.start()
    try:
        return rows(connection, text)
    except pymysql.err.MySQLError as e:
        raise Unanswered("\n".join([f"{text}: {e}", *told])) from e
    finally:
        looker.cancel()


class Unanswered(Exception):
    """A read that had to be answered was not."""


def as_texts(found: Any) -> Counter[tuple[str, ...]]:
    return Counter(tuple(map(str, r)) for r in found)


def _same(what: str, found: Counter[Any], want: Counter[Any]) -> None:
    if found != want:
        raise Failure(f"{what} differs\ntoo much: {list((found - want).items())[:9]}\n"
                      f"missing: {list((want - found).items())[:9]}")
