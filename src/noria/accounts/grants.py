"""The privileges of one account or role, at each level: server, database, table, column.

Keeps true: names of databases, tables and columns are folded.  A level without privileges has no entry.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from noria.accounts.privileges import COLUMN, DATABASE, GRANT_OPTION, OF_LEVEL, SERVER, TABLE, listed

NONE: frozenset[str] = frozenset()
TableName = tuple[str, str]  # the database and the table


@dataclass(frozen=True)
class Level:
    """Where a privilege holds.  database: "" for `*.*`; else a name or a pattern.  table: "" for `database.*`."""

    database: str = ""
    table: str = ""

    @property
    def kind(self) -> str:
        return TABLE if self.table else DATABASE if self.database else SERVER

    @property
    def key(self) -> TableName:
        return self.database.lower(), self.table.lower()


@dataclass(frozen=True)
class Grants:
    """Privileges by level.  columns: by table, then by column."""

    server: frozenset[str] = NONE
    databases: Mapping[str, frozenset[str]] = field(default_factory=dict)
    tables: Mapping[TableName, frozenset[str]] = field(default_factory=dict)
    columns: Mapping[TableName, Mapping[str, frozenset[str]]] = field(default_factory=dict)

    # ------------------------------------------------------------ changes
    def at(self, level: Level) -> frozenset[str]:
        """The privileges at exactly this level, without those on columns."""
        if level.kind == SERVER:
            return self.server
        if level.kind == DATABASE:
            return self.databases.get(level.key[0], NONE)
        return self.tables.get(level.key, NONE)

    def on_columns(self, level: Level) -> Mapping[str, frozenset[str]]:
        return self.columns.get(level.key, {})

    def with_at(self, level: Level, privileges: frozenset[str]) -> Grants:
        """These grants with exactly these privileges at a level."""
        if level.kind == SERVER:
            return replace(self, server=privileges)
        if level.kind == DATABASE:
            return replace(self, databases=_with(self.databases, level.key[0], privileges))
        return replace(self, tables=_with(self.tables, level.key, privileges))

    def with_columns(self, level: Level, privileges: Mapping[str, frozenset[str]]) -> Grants:
        kept = {name: held for name, held in privileges.items() if held}
        return replace(self, columns=_with(self.columns, level.key, kept))

    # ------------------------------------------------------------ as statements
    def statements(self, to: str) -> Iterator[str]:
        """The GRANT statements of SHOW GRANTS.  to: the account's name, quoted."""
        yield _statement(listed(self.server, SERVER), "*.*", to, GRANT_OPTION in self.server)
        for database, held in sorted(self.databases.items()):
            yield _statement(listed(held, DATABASE), f"{_quoted(database)}.*", to, GRANT_OPTION in held)
        for key in sorted({*self.tables, *self.columns}):
            held = self.tables.get(key, NONE)
            words = [] if not held - {GRANT_OPTION} else [listed(held, TABLE)]
            by_privilege: dict[str, list[str]] = {}
            for column, of_column in sorted(self.columns.get(key, {}).items()):
                for privilege in of_column:
                    by_privilege.setdefault(privilege, []).append(_quoted(column))
            words += [f"{p} ({', '.join(by_privilege[p])})" for p in OF_LEVEL[COLUMN] if p in by_privilege]
            yield _statement(", ".join(words) or "USAGE", f"{_quoted(key[0])}.{_quoted(key[1])}", to,
                             GRANT_OPTION in held)

    # ------------------------------------------------------------ as JSON
    def as_json(self) -> dict[str, Any]:
        return {"server": sorted(self.server), "databases": {d: sorted(p) for d, p in self.databases.items()},
                "tables": [[*key, sorted(held)] for key, held in self.tables.items()],
                "columns": [[*key, {c: sorted(p) for c, p in held.items()}] for key, held in self.columns.items()]}

    @staticmethod
    def of_json(found: Mapping[str, Any]) -> Grants:
        return Grants(frozenset(found["server"]), {d: frozenset(p) for d, p in found["databases"].items()},
                      {(d, t): frozenset(p) for d, t, p in found["tables"]},
                      {(d, t): {c: frozenset(p) for c, p in held.items()} for d, t, held in found["columns"]})


def _with(held: Mapping[Any, Any], key: Any, value: Any) -> dict[Any, Any]:
    out = {k: v for k, v in held.items() if k != key}
    return {**out, key: value} if value else out


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _statement(privileges: str, on: str, to: str, option: bool) -> str:
    return f"GRANT {privileges} ON {on} TO {to}" + (" WITH GRANT OPTION" if option else "")


EVERYTHING = Grants(frozenset(OF_LEVEL[SERVER]))

__all__ = ["EVERYTHING", "NONE", "Grants", "Level", "TableName"]
