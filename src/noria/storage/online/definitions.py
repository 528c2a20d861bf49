"""The definitions of tables and indexes, and the recipe.

Keeps true: a table that is made, altered or dropped is so on disk with the next recipe.  A crash before that restores
the old definition.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rocksdict import WriteBatch

from noria.core.errors import table_exists
from noria.core.symbols import Symbols
from noria.core.types import TableDef
from noria.dataflow.graph.request_limits import RequestLimits
from noria.dataflow.messages.packets import ChangeOrigin, RecordedChange
from noria.storage.commits.committing import StoreCommits
from noria.storage.commits.prepared import PreparedGroups
from noria.storage.format.catalog import CommittedWrite
from noria.storage.online.fitting import RocksDefinitionCheck, entries_of, refuse_unfit, set_unique
from noria.storage.online.indexing import RocksIndexBuild, run_all_slices
from noria.storage.online.rekeying import switched
from noria.storage.rocks.engine import RocksEngine
from noria.storage.statements.stage import SCAN_ROWS
from noria.storage.tables import meta
from noria.storage.tables.open_tables import OpenTables
from noria.storage.tables.table import Index, StoredTable
from noria.storage.transactions.history import History


class TableDefinitions:
    """Changes definitions.  version: that of the last change in the history.  last_table_id: the highest id so far."""

    def __init__(self, engine: RocksEngine, tables: OpenTables, commits: StoreCommits, groups: PreparedGroups,
                 symbols: Symbols, recipe: tuple[str, ...], version: int, last_table_id: int, history: History):
        self._engine, self._tables, self._commits, self._groups = engine, tables, commits, groups
        self._symbols, self._recipe, self._version, self._last_table_id = symbols, recipe, version, last_table_id
        self._history_of_rows, self._stored = history, meta.StoredCatalog()

    def create_table(self, table: TableDef) -> None:
        """Create a table, durable with the next `set_recipe`.

        A table that is built beside another one becomes durable when it gets its final name.  A table without an id
        (0) gets the next one.
        """
        if table.name in self._tables.by_name:
            raise table_exists(table.name)
        used = {t.definition.table_id for t in (*self._tables.by_name.values(), *self._tables.dropped)}
        if table.table_id in used:
            raise ValueError(f"table id {table.table_id} of {table.name} is in use")
        definition = table if table.table_id else meta.with_id(table, self._last_table_id + 1)
        self._last_table_id = max(self._last_table_id, definition.table_id)
        indexes = [Index.of(definition, i.columns, i.unique, i.name) for i in definition.indexes]
        made = StoredTable(definition, self._symbols, list({i.family: i for i in indexes}.values()))
        made.counters = made.counters._replace(auto_increment=definition.first_id - 1)
        for family in (made.family, *(i.family for i in made.indexes)):
            self._engine.create_family(family, table.is_passing, rows=0)
        self._tables.by_name[table.name] = made

    def alter_table(self, table: TableDef, fits: bool = False) -> None:
        found = self._tables.of_id(table)
        self._history_of_rows.replaced(found.name)
        if not fits:
            refuse_unfit(found, table)
        if found.fitting is not None and not found.fitting.same(table):
            found.fitting.abandon()
        if table.name != found.name:
            if table.name in self._tables.by_name:
                raise table_exists(table.name)
            del self._tables.by_name[found.name]
            self._tables.by_name[table.name] = found
        if table.keyed != found.definition.keyed:
            self._tables.dropped = switched(self._engine, found, table, self._tables.dropped)
        else:
            self._tables.undeclared = set_unique(found, table, self._tables.undeclared)
        found.redefine(table)

    def begin_fitting(self, table: TableDef) -> RocksDefinitionCheck:
        found = self._tables.of_id(table)
        return RocksDefinitionCheck(self._engine, found, table, self._symbols,
                                    lambda: self._tables.readable(found.name))

    def entries(self, table: TableDef, columns: tuple[int, ...], what: str, arguments: tuple[bytes, ...]) -> object:
        return entries_of(self._tables.of_id(table), table, columns, what, arguments)

    def unbuilt(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        for table in self._tables.by_name.values():
            served = {i.columns for i in table.indexes}
            missing = [i.columns for i in table.definition.indexes if i.columns not in served]
            building = {i.columns for i in table.unfinished} if missing else ()
            for columns in missing:
                if table.access(columns) is None and columns not in building:
                    yield table.name, columns

    def drop_table(self, name: str) -> None:
        """Drop a table, durable with the next `set_recipe`; a crash before that restores it."""
        self._history_of_rows.replaced(name)
        self._tables.dropped.append(table := self._tables.table(name))
        del self._tables.by_name[name]
        if table.fitting is not None:
            table.fitting.abandon()

    def keep_table(self, name: str) -> None:
        self._tables.by_name[name] = self._tables.dropped.pop()

    def set_recipe(self, recipe: Sequence[str], epoch: int, seq: int, note: ChangeOrigin | None = None) -> None:
        if self._commits.repeated(epoch, seq) is not None:
            return
        self._groups.refuse_undecided(self._tables)
        version, forgotten, stored = self._version + (note is not None), list[str](), list[meta.StoredTables]()

        def fill(batch: WriteBatch) -> None:
            tables = [t for t in self._tables.by_name.values() if not t.definition.is_passing]
            stored.append(self._stored.put(self._engine, batch, recipe, tables, self._last_table_id))
            for table in self._tables.dropped:
                meta.forget_table(self._engine, batch, table)
                self._engine.put_dropped(batch, _families_of(table))
            gone = {t.name for t in self._tables.dropped} - self._tables.by_name.keys()
            forgotten.extend(self._groups.put_dropped(self._engine, batch, gone))
            for _, index in self._tables.undeclared:
                meta.forget_index(self._engine, batch, index)
            if note is not None:
                meta.put_note(self._engine, batch, version, note)

        self._commits.commit(fill, CommittedWrite(epoch, seq), True, bool(self._tables.dropped))
        self._recipe, self._version = tuple(recipe), version
        self._stored.committed(stored[-1])
        for name in forgotten:
            del self._groups.prepared[name]
        self._engine.condemn(*(index.family for _, index in self._tables.undeclared))
        for table in self._tables.dropped:
            self._engine.forget_dropped(_families_of(table))
            table.abandon()
        self._tables.dropped, self._tables.undeclared = [], []

    def recipe(self) -> tuple[str, ...]:
        return self._recipe

    def history(self) -> tuple[RecordedChange, ...]:
        return meta.read_history(self._engine)

    def add_index(self, table: str, columns: tuple[int, ...], limits: RequestLimits | None = None) -> None:
        build = self.begin_index(table, columns)
        if build is not None:
            run_all_slices(build, SCAN_ROWS, (lambda: None) if limits is None else limits.check)

    def begin_index(self, table: str, columns: tuple[int, ...], awaited: bool = False) -> RocksIndexBuild | None:
        """Begin to build an index; None if a key, prefix or index already serves these columns."""
        if self._tables.table(table).access(columns) is not None:
            return None
        into = self._tables.readable(table)
        index = Index.of(into.definition, tuple(columns), name=into.declared(tuple(columns)))
        return RocksIndexBuild(self._engine, into, index, lambda: self._tables.readable(into.name), awaited)

    def trim_indexes(self, table: str, needed: Iterable[tuple[int, ...]], most: int) -> None:
        into = self._tables.table(table)
        used = {into.way(columns) for columns in needed}
        idle = [i for i in into.indexes if not i.name and all(u is None or u[0] is not i for u in used)]
        for index in idle[: max(len(idle) - most, 0)]:
            batch = WriteBatch(raw_mode=True)
            meta.forget_index(self._engine, batch, index)
            self._engine.commit(batch)
            into.indexes.remove(index)
            self._engine.condemn(index.family)


def _families_of(table: StoredTable) -> list[str]:
    return [table.family, *(i.family for i in table.maintained)]
