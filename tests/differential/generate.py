"""Random cases: a schema, data, standing queries, writes; statements that MariaDB and Noria both know.

A case is a list of statements.  `-- forget` and `-- forget N` are for Noria alone: everything partial, or least
recently read keys of N bytes, are forgotten.  The standing queries come again after every write.

What is generated is deterministic up to what SQL leaves open: LIMIT comes with an order that no two rows share.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

KINDS = {"i": ("INT", "BIGINT", "TINYINT", "SMALLINT", "INT UNSIGNED"), "d": ("DECIMAL(6,2)", "DECIMAL(10,4)"),
         "f": ("DOUBLE",), "s": ("VARCHAR(6)", "VARCHAR(8) COLLATE utf8mb4_bin"), "D": ("DATE",), "T": ("DATETIME",)}
RARE = {"i": ("BOOLEAN", "MEDIUMINT", "BIGINT UNSIGNED"), "s": ("TEXT", "CHAR(4)", "ENUM('a', 'b', 'ab', 'B c')"),
        "T": ("DATETIME(3)",)}
VALUES = {"i": ("0", "1", "2", "3", "-1", "7", "100"), "d": ("0", "1.5", "-2.25", "99.99", "0.005", "3"),
          "f": ("0", "0.5", "-1e3", "2.25", "1e10"), "s": ("''", "'a'", "'A'", "'b'", "'á'", "'ab'", "'B c'", "'10'"),
          "D": ("'2024-01-31'", "'2024-02-29'", "'1999-12-31'"),
          "T": ("'2024-01-31 10:00:00'", "'2024-01-31'", "'1999-12-31 23:59:59'")}
WRONG = {"i": ("99999999999999999999", "'x'"), "d": ("123456789.7", "'y'"), "f": ("'z'",), "s": ("'much too long'",),
         "D": ("'2023-02-30'",), "T": ("'2023-02-30 00:00:00'",)}
COMPARED = ("=", "<", ">", "<=", ">=", "<>", "<=>")


@dataclass(frozen=True)
class Col:
    ref: str
    kind: str


@dataclass(frozen=True)
class Made:
    """A table: columns; the first `keys` of them are the primary key."""

    name: str
    columns: tuple[Col, ...]
    types: tuple[str, ...]
    keys: int
    text: str


@dataclass(frozen=True)
class Source:
    """A FROM: its text, its columns; columns that tell its rows apart, none when rows may be equal."""

    text: str
    columns: tuple[Col, ...]
    unique: tuple[str, ...] = ()


class Generator:
    """One case for one seed."""

    def __init__(self, seed: int):
        self.c = random.Random(seed)
        self.tables: list[Made] = []
        self.views: list[Source] = []

    def case(self, writes: int = 8, standing: int = 5) -> list[str]:
        steps = []
        for n in range(self.c.choice((1, 2, 2, 3))):
            self.tables.append(self._table(f"t{n}"))
            steps.append(self.tables[-1].text)
        steps += [self._insert(t, 4) for t in self.tables]
        for n in range(self.c.choice((0, 0, 1, 2))):
            text, source = self._view(f"v{n}")
            steps.append(text)
            self.views.append(source)
        queries = [self.query() for _ in range(standing)]
        steps += queries
        for _ in range(writes):
            steps.append(self.write())
            if self.c.random() < 0.2:
                steps.append(self.c.choice(("-- forget", "-- forget 2000")))
            steps += queries
            if self.c.random() < 0.3:
                steps.append(self.query())
        return steps

    def of(self, *choices: Any) -> Any:
        return self.c.choice(choices)

    def often(self, chance: float) -> bool:
        return self.c.random() < chance

    # ------------------------------------------------------------ schema
    def _table(self, name: str) -> Made:
        keys = self.of(0, 1, 1, 1, 2)
        columns, types, parts = [], [], []
        for n in range(keys):
            columns.append(Col(f"k{n}", "i"))
            types.append("INT")
            parts.append(f"k{n} INT NOT NULL")
        for n in range(self.c.randint(2, 5)):
            kind = self.of("i", "i", "i", "d", "f", "s", "s", "D", "T")
            type_ = self.of(*(RARE[kind] if kind in RARE and self.often(0.03) else KINDS[kind]))
            columns.append(Col(f"c{n}", kind))
            types.append(type_)
            extra = self.of("", "", "", " NOT NULL", f" DEFAULT {self.of(*VALUES[kind][:2])}")
            parts.append(f"c{n} {type_}{extra}")
        if keys:
            parts.append(f"PRIMARY KEY ({', '.join(c.ref for c in columns[:keys])})")
        if self.often(0.15):
            parts.append(f"UNIQUE KEY u ({columns[-1].ref})" if types[-1] != "TEXT" else "KEY i (c0)")
        return Made(name, tuple(columns), tuple(types), keys, f"CREATE TABLE {name} ({', '.join(parts)})")

    def _view(self, name: str) -> tuple[str, Source]:
        source = self.source(1)
        groups = [c for c in self.c.sample(source.columns, min(2, len(source.columns))) if c.kind in "is"][:1]
        value = self.column(source.columns, "idf")
        if groups and value is not None:
            text = f"SELECT {groups[0].ref} AS g, COUNT(*) AS n, {self.of('SUM', 'MIN', 'MAX')}({value}) AS m" \
                   f" FROM {source.text} GROUP BY {groups[0].ref}"
            columns = (Col("g", groups[0].kind), Col("n", "i"), Col("m", "d"))
        else:
            chosen = self.c.sample(source.columns, min(3, len(source.columns)))
            items = ", ".join(f"{c.ref} AS x{n}" for n, c in enumerate(chosen))
            text = f"SELECT {items} FROM {source.text} WHERE {self.condition(source.columns, 1)}"
            columns = tuple(Col(f"x{n}", c.kind) for n, c in enumerate(chosen))
        return f"CREATE VIEW {name} AS {text}", Source(name, columns)

    # ------------------------------------------------------------ writes
    def value(self, kind: str) -> str:
        x = self.c.random()
        return "NULL" if x < 0.15 else str(self.of(*(WRONG[kind] if x < 0.17 else VALUES[kind])))

    def _row(self, table: Made) -> str:
        values = [str(self.c.randrange(6)) for _ in range(table.keys)]
        return f"({', '.join([*values, *(self.value(c.kind) for c in table.columns[table.keys:])])})"

    def _insert(self, table: Made, most: int) -> str:
        rows = ", ".join(self._row(table) for _ in range(self.c.randint(1, most)))
        how = self.of("INSERT", "INSERT", "INSERT IGNORE", "REPLACE") if table.keys else "INSERT"
        if how == "INSERT IGNORE" and ("NULL" in rows or any(v in rows for w in WRONG.values() for v in w)):
            how = "INSERT"  # IGNORE makes warnings of these errors; Noria does so for keys only
        text = f"{how} INTO {table.name} VALUES {rows}"
        if how == "INSERT" and table.keys and self.often(0.15):
            text += f" ON DUPLICATE KEY UPDATE {self._assignment(table, table.columns[-1])}"
        return text

    def _assignment(self, table: Made, c: Col) -> str:
        sources = [Col(x.ref, x.kind) for x in table.columns if x.kind == c.kind]
        if c.kind in "idf" and self.often(0.6):
            return f"{c.ref} = {self.of(*sources).ref} {self.of('+', '-', '*')} {self.of('1', '2')}"
        return f"{c.ref} = {self.of(self.value(c.kind), self.of(*sources).ref)}"

    def write(self) -> str:
        table: Made = self.of(*self.tables)
        kind = self.c.randrange(10)
        if kind < 5:
            return self._insert(table, self.of(1, 1, 3))
        where = self.condition(table.columns, 1)
        if kind < 8:
            settable = table.columns[table.keys:]
            changes = ", ".join(self._assignment(table, c) for c in self.c.sample(settable, self.of(1, 1, 2)))
            return f"UPDATE {table.name} SET {changes} WHERE {where}"
        return f"DELETE FROM {table.name} WHERE {where}"

    # ------------------------------------------------------------ sources
    def source(self, depth: int) -> Source:
        kind = self.c.randrange(10)
        if kind < 4 or depth == 0:
            return self._one()
        if kind < 8:
            return self._join(depth)
        inner = self.source(depth - 1)
        if self.often(0.5):
            chosen = self.c.sample(inner.columns, min(3, len(inner.columns)))
            items = ", ".join(f"{c.ref} AS d{n}" for n, c in enumerate(chosen))
            text = f"SELECT {self.of('', '', 'DISTINCT ')}{items} FROM {inner.text}"
            columns = tuple(Col(f"q.d{n}", c.kind) for n, c in enumerate(chosen))
            return Source(f"({text} WHERE {self.condition(inner.columns, 1)}) q", columns)
        group = self.of(*inner.columns)
        text = f"SELECT {group.ref} AS g, COUNT(*) AS n FROM {inner.text} GROUP BY {group.ref}"
        return Source(f"({text}) q", (Col("q.g", group.kind), Col("q.n", "i")), ("q.n", "q.g"))

    def _one(self, alias: str = "") -> Source:
        if self.views and self.often(0.25):
            view = self.of(*self.views)
            name = alias or view.text
            return Source(f"{view.text} {alias}".strip(), tuple(Col(f"{name}.{c.ref}", c.kind) for c in view.columns))
        table = self.of(*self.tables)
        name = alias or table.name
        columns = tuple(Col(f"{name}.{c.ref}", c.kind) for c in table.columns)
        return Source(f"{table.name} {alias}".strip(), columns, tuple(c.ref for c in columns[: table.keys]))

    def _join(self, depth: int) -> Source:
        left = self._one("l")
        text, columns, unique, names = left.text, list(left.columns), left.unique, "rm"
        for n in range(self.of(1, 1, 2)):
            right = self._one(names[n])
            pairs = [(a, b) for a in columns for b in right.columns if a.kind == b.kind]
            if not pairs:
                break
            some = self.c.sample(pairs, min(len(pairs), self.of(1, 1, 1, 2)))
            on = " AND ".join(f"{a.ref} {self.of(*'======', '<=>', '<')} {b.ref}" for a, b in some)
            if self.often(0.2):
                on += f" AND {self.condition([*columns, *right.columns], 0)}"
            text += f" {self.of('JOIN', 'JOIN', 'LEFT JOIN', 'LEFT JOIN', 'RIGHT JOIN')} {right.text} ON {on}"
            columns += right.columns
            unique = (*unique, *right.unique) if unique and right.unique else ()
        return Source(text, tuple(columns), unique)

    # ------------------------------------------------------------ expressions
    def column(self, columns: Any, kinds: str) -> str | None:
        some = [c.ref for c in columns if c.kind in kinds]
        return self.c.choice(some) if some else None

    def number(self, columns: Any, depth: int) -> str:
        ref = self.column(columns, "idf")
        if ref is None or depth == 0 or self.often(0.4):
            return ref or str(self.of("1", "2"))
        a, b = self.number(columns, depth - 1), self.number(columns, depth - 1)
        text = self.column(columns, "s")
        forms = [f"({a} {self.of('+', '-', '*')} {b})", f"{a} / 2", f"{ref} DIV 2", f"{ref} % 3", f"ABS({a})",
                 f"COALESCE({a}, {b})", f"IF({self.condition(columns, 0)}, {a}, {b})", f"NULLIF({a}, 1)", f"-{ref}",
                 f"CASE WHEN {self.condition(columns, 0)} THEN {a} ELSE {b} END", f"ROUND({ref})", f"IFNULL({a}, 0)"]
        if text:
            forms += [f"LENGTH({text})", f"CHAR_LENGTH({text})"]
        return str(self.of(*forms))

    def text(self, columns: Any) -> str | None:
        ref = self.column(columns, "s")
        if ref is None:
            return None
        return str(self.of(ref, ref, f"UPPER({ref})", f"CONCAT({ref}, '-')", f"COALESCE({ref}, '?')",
                           f"SUBSTRING({ref}, 1, 1)", f"TRIM({ref})", f"LOWER({ref})", f"LEFT({ref}, 1)"))

    def item(self, columns: Any) -> str:
        x = self.c.random()
        if x < 0.5:
            return str(self.of(*columns).ref)
        if x < 0.8:
            return self.number(columns, 2)
        return self.text(columns) or str(self.of(*columns).ref)

    def condition(self, columns: Any, depth: int) -> str:
        if depth and self.often(0.35):
            a, b = self.condition(columns, depth - 1), self.condition(columns, depth - 1)
            return str(self.of(f"{a} AND {b}", f"({a} OR {b})", f"NOT ({a})"))
        c = self.of(*columns)
        literal = self.of(*VALUES[c.kind])
        forms = [f"{c.ref} = {literal}", f"{c.ref} = {literal}", f"{c.ref} {self.of(*COMPARED)} {literal}",
                 f"{c.ref} IS {self.of('', 'NOT ')}NULL",
                 f"{c.ref} BETWEEN {self.of(*VALUES[c.kind])} AND {literal}",
                 f"{c.ref} {self.of('IN', 'IN', 'NOT IN')} ({literal}, {self.of(*VALUES[c.kind], 'NULL')})"]
        same = [x.ref for x in columns if x.kind == c.kind and x.ref != c.ref]
        if same:
            forms.append(f"{c.ref} {self.of(*COMPARED)} {self.of(*same)}")
        if c.kind == "s":
            forms.append(f"{c.ref} LIKE {self.of(*map(repr, ('a%', '%b%', '_', '%')))}")
        return str(self.of(*forms))

    def _predicate(self, source: Source) -> str:
        """A condition, perhaps one with a subquery."""
        if not self.often(0.2):
            return self.condition(source.columns, 1)
        other = self._one("z")
        pairs = [(a, b) for a in source.columns for b in other.columns if a.kind == b.kind]
        if not pairs:
            return self.condition(source.columns, 1)
        a, b = self.c.choice(pairs)
        inner = f"FROM {other.text} WHERE {self.condition(other.columns, 0)}"
        negated = self.of("", "NOT ")
        if self.often(0.2):
            numbers = [c for c in other.columns if c.kind in "id"]
            what = f"{self.of('MAX', 'MIN', 'COUNT', 'SUM')}({self.c.choice(numbers).ref})" if numbers else "COUNT(*)"
            return f"(SELECT {what} {inner} AND {a.ref} = {b.ref}) {self.of('>', '<=', '=', '<>')} {self.of(0, 1, 2)}"
        if self.often(0.5):
            correlated = f" AND {self.c.choice(pairs)[0].ref} = {b.ref}" if self.often(0.2) else ""
            return f"{a.ref} {negated}IN (SELECT {b.ref} {inner}{correlated})"
        return f"{negated}EXISTS (SELECT 1 {inner} AND {a.ref} = {b.ref})"

    # ------------------------------------------------------------ queries
    def query(self) -> str:
        kind = self.c.randrange(14)
        if kind < 6:
            return self._rows()
        if kind < 10:
            return self._groups()
        if kind == 10:
            return self._set()
        if kind == 11:
            return self._window()
        return self._top()

    def _where(self, source: Source, chance: float = 0.75) -> str:
        return f" WHERE {self._predicate(source)}" if self.often(chance) else ""

    def _rows(self) -> str:
        source = self.source(2)
        distinct = "DISTINCT " if self.often(0.12) else ""
        items = ", ".join(self.item(source.columns) for _ in range(self.c.randint(1, 4)))
        return f"SELECT {distinct}{items} FROM {source.text}{self._where(source)}"

    def _aggregate(self, source: Source) -> str:
        n = self.column(source.columns, "idf") or "1"
        c = self.of(*source.columns).ref
        return str(self.of("COUNT(*)", f"COUNT({c})", f"SUM({n})", f"AVG({n})", f"MIN({c})", f"MAX({c})",
                           f"SUM({self.number(source.columns, 1)})", f"COUNT(DISTINCT {c})",
                           f"SUM({self.condition(source.columns, 0)})", f"GROUP_CONCAT({c} ORDER BY {c})",
                           f"SUM(DISTINCT {n})", f"COUNT({self.of(f'NULLIF({n}, 1)', n)})"))

    def _groups(self) -> str:
        source = self.source(2)
        groups = [c.ref for c in self.c.sample(source.columns, min(len(source.columns), self.of(0, 1, 1, 2)))]
        aggregates = [self._aggregate(source) for _ in range(self.c.randint(1, 3))]
        text = f"SELECT {', '.join([*groups, *aggregates])} FROM {source.text}{self._where(source, 0.5)}"
        if not groups:
            return text
        text += f" GROUP BY {', '.join(groups)}"
        if self.often(0.3):
            text += f" HAVING {self.of('COUNT(*)', f'COUNT({groups[0]})')} {self.of('>', '=', '<')} {self.of('1', '2')}"
        return text

    def _top(self) -> str:
        source = self._one() if self.often(0.5) else self.source(1)
        if not source.unique:
            return self._rows()
        shown = self.c.sample(source.columns, min(len(source.columns), 2))
        first = self.of(*source.columns).ref
        order = ", ".join([f"{first}{self.of('', ' DESC')}", *(f"{u}{self.of('', ' DESC')}" for u in source.unique)])
        text = f"SELECT {', '.join(c.ref for c in shown)} FROM {source.text}{self._where(source)} ORDER BY {order}"
        return text + str(self.of("", " LIMIT 1", " LIMIT 2", " LIMIT 3", " LIMIT 2 OFFSET 1"))

    def _set(self) -> str:
        left, right = self._one(), self._one()
        pairs = [(a, b) for a in left.columns for b in right.columns if a.kind == b.kind]
        if not pairs:
            return self._rows()
        chosen = self.c.sample(pairs, min(len(pairs), self.of(1, 2)))
        a = f"SELECT {', '.join(x.ref for x, _ in chosen)} FROM {left.text}{self._where(left, 0.5)}"
        b = f"SELECT {', '.join(y.ref for _, y in chosen)} FROM {right.text}{self._where(right, 0.5)}"
        return f"{a} {self.of('UNION', 'UNION ALL', 'UNION', 'INTERSECT', 'EXCEPT')} {b}"

    def _window(self) -> str:
        source = self._one()
        if not source.unique:
            return self._rows()
        by, order = self.of(*source.columns).ref, self.of(*source.columns).ref
        over = self.of(f"ROW_NUMBER() OVER (PARTITION BY {by} ORDER BY {order}, {', '.join(source.unique)})",
                       f"RANK() OVER (PARTITION BY {by} ORDER BY {order})",
                       f"DENSE_RANK() OVER (PARTITION BY {by} ORDER BY {order} DESC)",
                       f"SUM({self.column(source.columns, 'idf')}) OVER (PARTITION BY {by})",
                       f"COUNT(*) OVER (PARTITION BY {by})")
        return f"SELECT {', '.join(source.unique)}, {over} FROM {source.text}{self._where(source, 0.4)}"
