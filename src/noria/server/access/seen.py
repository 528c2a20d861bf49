"""The program's catalog as a session sees it: only tables, views and databases for which it has a privilege.

Keeps true: only what lists names goes through this.  A statement that names a table is checked before it is planned.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from noria.accounts.rights import Rights
from noria.core.types import TableDef
from noria.plan.view import ViewDef
from noria.sql.statements.placeholder_views import PlaceholderView


class SeenCatalog:
    """A `NamedRelations` with some names left out.  Everything else is the catalog's."""

    def __init__(self, catalog: Any, rights: Rights):
        self._catalog, self._rights = catalog, rights

    def __getattr__(self, name: str) -> Any:
        return getattr(self._catalog, name)

    def now(self) -> SeenCatalog:
        return SeenCatalog(self._catalog.now(), self._rights)

    def _sees(self, name: str) -> bool:
        return self._rights.sees_table(self._catalog.databases.split(name))

    @property
    def listed_databases(self) -> list[Any]:
        return [d for d in self._catalog.databases if self._rights.sees_database(d.name)]

    def tables(self) -> Iterator[TableDef]:
        return (t for t in self._catalog.tables() if self._sees(t.name))

    def views(self) -> Iterator[ViewDef]:
        return (v for v in self._catalog.views() if self._sees(v.name))

    def placeholder_views(self) -> Iterator[PlaceholderView]:
        return (v for v in self._catalog.placeholder_views() if self._sees(v.name))

    def sees_column(self, name: str, column: str) -> bool:
        return self._rights.sees_column(self._catalog.databases.split(name), column)

    def shows_view(self, name: str) -> bool:
        """Whether the text of a view is shown."""
        return {"SELECT", "SHOW VIEW"} <= self._rights.on_table(self._catalog.databases.split(name))

    def privileges_on(self, name: str, column: str) -> str:
        """As SHOW FULL COLUMNS lists them."""
        table = self._catalog.databases.split(name)
        whole = self._rights.on_table(table)
        return ",".join(p.lower() for p in ("SELECT", "INSERT", "UPDATE", "REFERENCES")
                        if p in whole or column.lower() in self._rights.columns(p, table))


__all__ = ["SeenCatalog"]
