"""What happens to the schema of a random case in its midst: tables get other columns, keys, indexes and names, views
come, go and become others."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from differential.expressions import VALUES, Col, Expressions

KINDS = {"i": ("INT", "BIGINT", "TINYINT", "SMALLINT", "INT UNSIGNED"), "d": ("DECIMAL(6,2)", "DECIMAL(10,4)"),
         "f": ("DOUBLE",), "s": ("VARCHAR(6)",), "c": ("VARCHAR(8) COLLATE utf8mb4_bin",), "D": ("DATE",),
         "T": ("DATETIME",), "t": ("TIME",), "e": ("ENUM('b', 'a', 'B c', 'ab')", "SET('ab', 'b', 'a', 'B c')"),
         "b": ("VARBINARY(6)",)}


@dataclass(frozen=True)
class Made:
    """A table: columns; the first `keys` of them are the primary key."""

    name: str
    columns: tuple[Col, ...]
    types: tuple[str, ...]
    required: tuple[bool, ...]
    keys: int
    text: str
    indexes: tuple[str, ...] = ()  # that it got later


@dataclass(frozen=True)
class Source:
    """A FROM: its text, its columns; columns that tell its rows apart, none when rows may be equal."""

    text: str
    columns: tuple[Col, ...]
    unique: tuple[str, ...] = ()


def _without(t: Made, n: int) -> Made:
    at = n - t.keys
    return replace(t, columns=t.columns[:n] + t.columns[n + 1:], types=t.types[:n] + t.types[n + 1:],
                   required=t.required[:at] + t.required[at + 1:])


def _with(t: Made, n: int, column: Col, type_: str, required: bool) -> Made:
    at = n - t.keys
    return replace(t, columns=(*t.columns[:n], column, *t.columns[n:]), types=(*t.types[:n], type_, *t.types[n:]),
                   required=(*t.required[:at], required, *t.required[at:]))


class Changes(Expressions):
    """Of one seed."""

    def __init__(self, seed: int):
        super().__init__(seed)
        self.tables: list[Made] = []
        self.views: list[Source] = []
        self.renamed: dict[str, str] = {}  # by the last change
        self.replaced = ""  # the view that it made another one, or dropped

    def _view(self, name: str) -> tuple[str, Source]:
        raise NotImplementedError

    def _alter(self, number: int) -> str:
        """A column more, or an index, or other views; where no view is in the way, what is there changes."""
        self.renamed, self.replaced = {}, ""
        at = self.c.randrange(len(self.tables))
        if not self.views and self.often(0.6):
            return self._change(at, number)
        if self.often(0.3):
            return self._index(at, number)
        if self.often(0.5 if self.views else 0.1):
            return self._other_view(number)
        table, kind = self.tables[at], self.of(*"iiidfscDTb")
        column, type_ = Col(f"a{number}", kind), self.of(*KINDS[kind])
        extra = self.of("", "", f" DEFAULT {self.of(*VALUES[kind][:2])}", " NOT NULL" if kind in "idfs" else "")
        to = self.c.randint(max(table.keys, 1), len(table.columns))
        self.tables[at] = _with(table, to, column, type_, "NOT" in extra)
        place = f" AFTER {table.columns[to - 1].ref}" if to < len(table.columns) else ""
        return f"ALTER TABLE {table.name} ADD COLUMN {column.ref} {type_}{extra}{place}"

    def _index(self, at: int, number: int) -> str:
        table = self.tables[at]
        if table.indexes and self.often(0.5):
            name = self.of(*table.indexes)  # it may have gone with its column, or never have been: 1091
            self.tables[at] = replace(table, indexes=tuple(x for x in table.indexes if x != name))
            return str(self.of(f"DROP INDEX {name} ON {table.name}", f"ALTER TABLE {table.name} DROP INDEX {name}"))
        columns = [c.ref for c, t in zip(table.columns, table.types, strict=True) if t not in ("TEXT", "BLOB")]
        some = ", ".join(self.c.sample(columns, min(len(columns), 2)))
        self.tables[at] = replace(table, indexes=(*table.indexes, f"x{number}"))
        return str(self.of(f"CREATE INDEX x{number} ON {table.name} ({some})",
                           f"ALTER TABLE {table.name} ADD INDEX x{number} ({some})"))

    def _other_view(self, number: int) -> str:
        """One more, or the last one, on which no other stands, is another or goes."""
        last = self.views.pop() if self.views and self.often(0.6) else None
        self.replaced = "" if last is None else last.text
        if last is not None and self.often(0.3):
            return f"DROP VIEW {last.text}"
        text, source = self._view(f"v{number}" if last is None else last.text)
        self.views.append(source)
        return self.filled(text if last is None else text.replace("CREATE", "CREATE OR REPLACE", 1))

    def _renames(self, at: int, number: int) -> str:
        """The table gets another name, or two tables each other's."""
        table = self.tables[at]
        if len(self.tables) > 1 and self.often(0.5):
            to = (at + 1) % len(self.tables)
            a, b = table.name, self.tables[to].name
            self.tables[at], self.tables[to] = replace(table, name=b), replace(self.tables[to], name=a)
            self.renamed = {a: b, b: a}
            return f"RENAME TABLE {a} TO aside, {b} TO {a}, aside TO {b}"
        name = f"t{number}"
        self.tables[at], self.renamed = replace(table, name=name), {table.name: name}
        return str(self.of(f"RENAME TABLE {table.name} TO {name}", f"ALTER TABLE {table.name} RENAME TO {name}"))

    def _is_of_another(self, text: str) -> bool:
        """Is the query for columns of a view that has others now?"""
        return bool(self.replaced) and re.search(rf"\b{self.replaced}\b", text) is not None

    def _by_names_of_now(self, text: str) -> str:
        return re.sub(r"\bt\d+\b", lambda found: self.renamed.get(found[0], found[0]), text)

    def _change(self, at: int, number: int) -> str:
        """Another type, name or place, a column less, UNIQUE, the key the other way round or a part of it."""
        table = self.tables[at]
        if self.often(0.2):
            return self._renames(at, number)
        if table.keys > 1 and self.often(0.3):
            key = self.c.sample([c.ref for c in table.columns[:table.keys]], self.of(table.keys, table.keys, 1))
            return f"ALTER TABLE {table.name} DROP PRIMARY KEY, ADD PRIMARY KEY ({', '.join(key)})"
        n = self.c.randrange(table.keys, len(table.columns))
        column, what, place = table.columns[n], self.c.randrange(6), ""
        if what == 0 and len(table.columns) > table.keys + 1:
            self.tables[at] = _without(table, n)
            return f"ALTER TABLE {table.name} DROP COLUMN {column.ref}"
        if what == 1 and table.keys and table.types[n] not in ("TEXT", "BLOB"):
            self.tables[at] = replace(table, indexes=(*table.indexes, f"x{number}"))
            return f"ALTER TABLE {table.name} ADD UNIQUE x{number} ({column.ref})"
        if what == 3 and self.often(0.5):
            self.tables[at] = replace(table, columns=tuple(
                Col(f"m{number}", c.kind) if c is column else c for c in table.columns))
            return f"ALTER TABLE {table.name} RENAME COLUMN {column.ref} TO m{number}"
        kind = self.of(column.kind, column.kind, *("is" if column.kind in "is" else column.kind))
        type_, extra = self.of(*KINDS[kind]), self.of("", "", " NOT NULL")
        made = _without(table, n)
        to = self.c.randint(table.keys, len(made.columns)) if self.often(0.4) else n
        if to != n:
            place = f" AFTER {made.columns[to - 1].ref}" if to else " FIRST"
        name = f"m{number}" if what == 2 else column.ref
        how = f"CHANGE {column.ref} {name}" if what == 2 else f"MODIFY {name}"
        self.tables[at] = _with(made, to, Col(name, kind), type_, bool(extra))
        return f"ALTER TABLE {table.name} {how} {type_}{extra}{place}"
