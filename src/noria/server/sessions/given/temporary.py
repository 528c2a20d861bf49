"""The temporary tables of one session: they hide tables of the same name, and end with the session.

Their rows are in the session's own memory.  A SELECT that names one is a one-shot which brings its rows
(`constant_row.GivenRows`).  Writes run as a worker would run them, over `Families`.

Keeps true: ROLLBACK, and ROLLBACK TO a savepoint, restore their rows.  CREATE and DROP TEMPORARY TABLE commit nothing.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, cast

from noria.core.errors import SqlError, not_supported, table_exists
from noria.core.errors.codes import BAD_TABLE, TABLE_FULL
from noria.core.plain_symbols import PlainSymbols
from noria.core.statements import Delete, Insert, Update, WriteResult
from noria.core.types import TableDef
from noria.core.values import decode
from noria.plan.constant_row import GivenRows
from noria.server.answering import clock
from noria.server.sessions.given.families import Families
from noria.sql.query.relations.context import Catalog, GivenCatalog
from noria.storage.rocks.engine import RocksEngine
from noria.storage.statements.stage import TableStage
from noria.storage.statements.writer import run
from noria.storage.tables.table import Counters, Index, StoredTable

MOST_ROWS = 100_000  # of one table
MOST_BYTES = 64 * 2**20  # of one table
MOST_TABLES = 100  # of one session
_numbers = itertools.count(-1, -1)  # below those of WITH RECURSIVE


class _State(NamedTuple):
    """The rows of a table at a moment."""

    families: Families
    counters: Counters


class TemporaryTable:
    def __init__(self, definition: TableDef):
        self.definition = definition
        self._symbols = PlainSymbols()
        indexes = [Index.of(definition, i.columns, i.unique, i.name) for i in definition.indexes]
        self._table = StoredTable(definition, self._symbols, indexes)
        self._families = Families()
        self._counters = Counters(auto_increment=definition.first_id - 1)
        self._given: GivenRows | None = None

    def write(self, statement: Insert | Update | Delete, offset: timedelta) -> WriteResult:
        """Run a statement.  Raises its SqlError; then nothing has changed."""
        if clock.needs(statement, self.definition, offset):
            statement = clock.timed(statement, self.definition, datetime.now(UTC).replace(tzinfo=None), offset)
        stage = TableStage(cast(RocksEngine, self._families), self._table, self._counters)
        result = run(stage, statement, self._symbols)
        if result.error is not None:
            raise result.error
        if stage.counters.rows > MOST_ROWS or self._families.nbytes + stage.nbytes > MOST_BYTES:
            raise SqlError(*TABLE_FULL, f"The table '{self.definition.name}' is full: a temporary table keeps up to "
                                        f"{MOST_ROWS} rows and {MOST_BYTES} bytes; use a table of the database")
        self._families.apply(stage.effects)
        self._counters, self._given = stage.counters, None
        return result

    @property
    def next_number(self) -> int:
        """The next AUTO_INCREMENT value."""
        return self._counters.auto_increment + 1

    def state(self) -> _State:
        return _State(self._families.copy(), self._counters)

    def restore(self, state: _State) -> None:
        self._families, self._counters, self._given = state.families.copy(), state.counters, None

    def given(self) -> GivenRows:
        """Its shown columns and its rows."""
        if self._given is None:
            shown = self.definition.shown
            fields = tuple(self.definition.fields[c] for c in shown)
            rows: list[tuple[Any, ...]] = []
            for values in self._families.slices(self._table.family, MOST_ROWS, "values"):
                columns = [[decode(code, self.definition.fields[c].type, self._symbols) for code in codes.tolist()]
                           for c, codes in enumerate(self._table.codes(values))]
                rows += zip(*(columns[c] for c in shown), strict=True)
            self._given = GivenRows(fields, next(_numbers), tuple(rows))
        return self._given


class TemporaryTables:
    """The temporary tables of one session, by their names in lower case."""

    def __init__(self) -> None:
        self._tables: dict[str, TemporaryTable] = {}
        self._saved: list[tuple[str, dict[str, _State]]] = []  # by savepoint; "" for the transaction's begin
        self._mention: re.Pattern[str] | None = None

    def __bool__(self) -> bool:
        return bool(self._tables)

    def find(self, name: str) -> TemporaryTable | None:
        return self._tables.get(name.lower())

    def mentioned(self, text: str) -> bool:
        """Whether a statement may name one of them, or concern all."""
        return self._mention is not None and self._mention.search(text) is not None

    def catalog(self, catalog: Catalog) -> TemporaryCatalog:
        return TemporaryCatalog(catalog, self._tables)

    # ------------------------------------------------------------ definitions
    def create(self, definition: TableDef, if_not_exists: bool) -> bool:
        """Create a table.  False if it exists and may."""
        name = definition.name.lower()
        if name in self._tables:
            if if_not_exists:
                return False
            raise table_exists(definition.name)
        if len(self._tables) >= MOST_TABLES:
            raise not_supported(f"more than {MOST_TABLES} temporary tables in a session", "drop some")
        if definition.foreign_keys:
            raise not_supported("FOREIGN KEY in a temporary table", "leave it out")
        self._tables[name] = TemporaryTable(definition)
        self._name()
        return True

    def drop(self, names: Sequence[str], if_exists: bool) -> list[str]:
        """Drop tables.  Return those that were missing and might be."""
        missing = [n for n in names if n.lower() not in self._tables]
        if missing and not if_exists:
            raise SqlError(*BAD_TABLE, f"Unknown table '{missing[0]}'")
        for name in names:
            self._tables.pop(name.lower(), None)
        self._name()
        return missing

    def _name(self) -> None:
        names = "|".join(re.escape(n.rpartition(".")[2]) for n in self._tables)
        self._mention = re.compile(rf"(?<![\w$])(?:{names})(?![\w$])|^\s*execute\b", re.IGNORECASE) if names else None

    # ------------------------------------------------------------ transactions
    def before_write(self, in_transaction: bool) -> None:
        """Note the rows as they were before the transaction's first write."""
        if in_transaction and not self._saved:
            self._saved.append(("", self._states()))

    def savepoint(self, name: str) -> None:
        self.before_write(True)
        self._saved = [s for s in self._saved if s[0] != name]
        self._saved.append((name, self._states()))

    def follow(self, what: str, name: str) -> None:
        """Do what a statement of a transaction does to the rows.  what, name: as in `Transaction`."""
        if what in ("rollback", "rollback to"):
            self.rolled_back(name)
        elif what == "savepoint":
            self.savepoint(name)
        elif what != "release":
            self.committed()

    def rolled_back(self, name: str = "") -> None:
        """Restore the rows of the transaction's begin, or of a savepoint."""
        at = next((n for n, (saved, _) in enumerate(self._saved) if saved == name), None)
        if at is None:
            return
        for table, state in self._saved[at][1].items():
            if table in self._tables:
                self._tables[table].restore(state)
        self._saved = self._saved[: at + 1] if name else []

    def committed(self) -> None:
        self._saved = []

    def _states(self) -> dict[str, _State]:
        return {name: table.state() for name, table in self._tables.items()}


class TemporaryCatalog(GivenCatalog):
    """The catalog as a session with temporary tables sees it."""

    def __init__(self, catalog: Catalog, tables: Mapping[str, TemporaryTable]):
        super().__init__(catalog, {})
        self._tables = tables

    def given(self, name: str) -> GivenRows | None:
        table = self._tables.get(name.lower())
        return None if table is None else table.given()

    def table(self, name: str) -> TableDef | None:
        found = self._tables.get(name.lower())
        return self._catalog.table(name) if found is None else found.definition

    def view(self, name: str) -> Any:
        return None if name.lower() in self._tables else self._catalog.view(name)


__all__ = ["TemporaryCatalog", "TemporaryTable", "TemporaryTables"]
