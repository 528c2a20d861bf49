"""A base table as a list of Python tuples, row by row as MySQL's manual says: the reference for the store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from noria.core.symbols import fold
from noria.core.types import TableDef

Row = tuple[Any, ...]
Predicate = Callable[[Row], bool]
Assign = Callable[..., Row]


class Refused(Exception):
    """The statement fails with MySQL's error number."""

    def __init__(self, code: int):
        super().__init__(code)
        self.code = code


@dataclass
class TableModel:
    """Values must be of the columns' types already; checks keys, NOT NULL and AUTO_INCREMENT."""

    table: TableDef
    rows: list[Row] = field(default_factory=list)
    mark: int = 0

    def keys(self) -> list[tuple[int, ...]]:
        primary = [self.table.primary_key] if self.table.primary_key else []
        return primary + [i.columns for i in self.table.indexes if i.unique]

    def key_of(self, row: Row, columns: tuple[int, ...]) -> tuple[Any, ...] | None:
        """What must be unique; None where a NULL makes it so."""
        key = []
        for c in columns:
            value = row[c]
            if value is None:
                return None
            key.append(fold(value) if self.table.columns[c].type.folds else value)
        return tuple(key)

    def meets(self, row: Row) -> list[int]:
        """Places of rows that hold a key of this one, in the order of the keys."""
        places = []
        for columns in self.keys():
            key = self.key_of(row, columns)
            if key is not None:
                places += [p for p, r in enumerate(self.rows) if self.key_of(r, columns) == key]
        return list(dict.fromkeys(places))

    def attempt(self, statement: Callable[[], Any]) -> Any:
        """Run it; a refusal leaves everything as it was."""
        rows, mark = list(self.rows), self.mark
        try:
            return statement()
        except Refused:
            self.rows, self.mark = rows, mark
            raise

    def check(self, row: Row) -> None:
        for value, column in zip(row, self.table.columns, strict=True):
            if value is None and not column.nullable:
                raise Refused(1048)

    def insert(self, given: list[Row], mode: str, assign: Assign | None = None
               ) -> tuple[int, int, int, int]:
        """(affected rows, the first generated id of a row that came, the last row's id, rows that were to update others
        and met one)."""
        rows, auto = self.numbered(given), self.table.auto_increment
        affected = first = last = met = 0
        for row in rows:
            self.check(row)
        for row, own in zip(rows, given, strict=True):
            more, stands = self.insert_one(row, mode, assign)
            affected += more
            met += mode == "update" and stands is not row
            if auto is not None:
                last = row[auto] if stands is None else stands[auto]
                first = first or (last if own[auto] in (None, 0) and stands is row else 0)
        return affected, first, last, met

    def numbered(self, given: list[Row]) -> list[Row]:
        auto, rows = self.table.auto_increment, []
        for row in given:
            if auto is not None:
                if row[auto] in (None, 0):
                    self.mark += 1
                    row = (*row[:auto], self.mark, *row[auto + 1 :])
                self.mark = max(self.mark, row[auto])
            rows.append(row)
        return rows

    def insert_one(self, row: Row, mode: str, assign: Assign | None) -> tuple[int, Row | None]:
        """How many rows are affected, and the row as it stands then; None: it was left out."""
        places = self.meets(row)
        if not places:
            self.rows.append(row)
            return 1, row
        if mode == "error":
            raise Refused(1062)
        if mode == "ignore":
            return 0, None
        if mode == "replace":
            if row in [self.rows[p] for p in places]:
                return 1, row
            self.rows = [r for p, r in enumerate(self.rows) if p not in places] + [row]
            return 1 + len(places), row
        assert assign is not None
        old = self.rows[places[0]]
        new = assign(old, row)
        return 2 * self.change({places[0]: new}), new

    def change(self, changes: dict[int, Row]) -> int:
        """Rows at these places become others, all at once; how many differ."""
        changes = {p: new for p, new in changes.items() if new != self.rows[p]}
        for place, new in changes.items():
            self.check(new)
            self.rows[place] = new
        for columns in self.keys():
            keys = [k for k in (self.key_of(r, columns) for r in self.rows) if k is not None]
            if len(set(keys)) < len(keys):
                raise Refused(1062)
        auto = self.table.auto_increment
        if auto is not None:
            self.mark = max([self.mark, *(new[auto] for new in changes.values())])
        return len(changes)

    def update(self, where: Predicate, assign: Assign) -> tuple[int, int]:
        """(changed, matched)."""
        found = {p: assign(r) for p, r in enumerate(self.rows) if where(r)}
        return self.change(found), len(found)

    def delete(self, where: Predicate) -> int:
        before = len(self.rows)
        self.rows = [r for r in self.rows if not where(r)]
        return before - len(self.rows)
