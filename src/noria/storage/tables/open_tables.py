"""The tables of an open store, also those that the change under way drops.

Keeps true: a table is used only if all its files, and those of its indexes, are readable.
"""

from __future__ import annotations

from collections.abc import Iterable

from noria.core.errors import SqlError, unknown_table
from noria.core.symbols import Symbols
from noria.core.types import TableDef
from noria.storage.rocks.engine import RocksEngine
from noria.storage.rocks.errors import damaged
from noria.storage.rocks.shared import SHARED
from noria.storage.tables import meta
from noria.storage.tables.table import Index, StoredTable


class OpenTables:
    """The tables, by name.

    dropped: tables that the next recipe forgets.  undeclared: UNIQUE indexes that it forgets.
    """

    def __init__(self, engine: RocksEngine):
        self._engine = engine
        self.by_name: dict[str, StoredTable] = {}
        self.dropped: list[StoredTable] = []
        self.undeclared: list[tuple[StoredTable, Index]] = []

    def read(self, definitions: Iterable[TableDef], symbols: Symbols) -> None:
        """Open the tables of the catalog, with their indexes and counters."""
        indexes = meta.read_indexes(self._engine)
        for definition in definitions:
            own = [i for id, i in indexes if id == definition.table_id]
            table = StoredTable(definition, symbols, own)
            table.counters = meta.read_counters(self._engine, definition)
            self.by_name[definition.name] = table

    def check_data(self, path: str) -> None:
        """Raise StoreDamaged if a table's data, or that of an index, is gone."""
        for table in self.by_name.values():
            for family in (table.family, *(i.family for i in table.indexes)):
                if not self._engine.keep_part(family, table.counters.rows):
                    raise damaged(path, f"table {table.name} has no data")

    def definitions(self) -> dict[str, TableDef]:
        return {name: table.definition for name, table in self.by_name.items()}

    def table(self, name: str) -> StoredTable:
        found = self.by_name.get(name)
        if found is None:
            raise unknown_table(name)
        return found

    def damage_of(self, name: str) -> SqlError | None:
        """The error of a table that cannot be used because a file of it or of its indexes is unreadable."""
        table = self.there(name) if self._engine.damage.families else None
        families = () if table is None else (table.family, *(i.family for i in table.indexes))
        return next((self._engine.damage_error(f) for f in families if self._engine.is_damaged(f)), None)

    def there(self, name: str) -> StoredTable | None:
        """The table, also if the change under way drops it."""
        return self.by_name.get(name) or next((t for t in self.dropped if t.name == name), None)

    def readable(self, name: str) -> StoredTable:
        damage = self.damage_of(name)
        if damage is not None:
            raise damage
        return self.table(name)

    def table_of(self, family: str) -> str:
        """The name of the table that owns a column family of rows or of an index."""
        for table in self.by_name.values():
            if family in (table.family, *(i.family for i in table.indexes)):
                return table.name
        return "of those with few rows" if family == SHARED else family

    def of_id(self, table: TableDef) -> StoredTable:
        """The table with the same id, whatever its name."""
        found = next((t for t in self.by_name.values() if t.definition.table_id == table.table_id), None)
        if found is None:
            raise unknown_table(table.name)
        return self.readable(found.name)
