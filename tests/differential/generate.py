"""Random cases: a schema, data, standing queries, writes; statements that MariaDB and Noria both know.

A case is a list of statements; among the writes are changes of the schema (changes.py).  `-- forget` and `-- forget N`
are for Noria alone: everything partial, or least recently read keys of N bytes, are forgotten; `-- restart` stops it
and starts it on the same files.  The standing queries come again after every write, with other values; some are
prepared statements, whose parameters are written `BIND(literal)`.

What is generated is deterministic up to what SQL leaves open: LIMIT comes with an order that no two rows share.
"""

from __future__ import annotations

from differential.changes import KINDS, Changes, Made, Source
from differential.expressions import NUMBERS, VALUES, Col

# CHAR is _bin: ORDER BY of another CHAR without PAD SPACE pads to bytes in MariaDB, where á is then not equal to a.
RARE = {"i": ("BOOLEAN", "MEDIUMINT", "BIGINT UNSIGNED"), "s": ("TEXT",), "c": ("CHAR(4) COLLATE utf8mb4_bin",),
        "T": ("DATETIME(3)",),
        "d": ("DECIMAL(18,2)",), "b": ("BLOB",)}
WRONG = {"i": ("99999999999999999999", "'x'"), "d": ("123456789.7", "'y'"), "f": ("'z'",), "s": ("'much too long'",),
         "c": ("'much too long'",),
         "D": ("'2023-02-30'",), "T": ("'2023-02-30 00:00:00'",), "t": ("'10:99:00'",), "e": ("'x'",),
         "b": ("'much too long'",)}


SEARCHED = "words"  # the column of a FULLTEXT key
WORDS = ("quick", "Dog", "dogs", "café", "the", "do")


class Generator(Changes):
    """One case for one seed."""

    def case(self, writes: int = 8, standing: int = 5) -> list[str]:
        steps = []
        for n in range(self.c.choice((1, 2, 2, 3))):
            self.tables.append(self._table(f"t{n}"))
            steps.append(self.tables[-1].text)
        for t in self.tables:  # REPLACE: no row stops the others
            rows = ", ".join(self._row(t, 0.0) for _ in range(self.c.randint(2, 9)))
            steps.append(f"{'REPLACE' if t.keys else 'INSERT'} INTO {t.name} VALUES {rows}")
        for n in range(self.c.choice((0, 0, 1, 2, 3))):
            text, source = self._view(f"v{n}")
            steps.append(self.filled(text))
            self.views.append(source)
        queries = [(self.query(), self.often(0.4)) for _ in range(standing)]
        steps += [self.filled(*q) for q in queries]
        for _ in range(writes):
            steps.append(self.write())
            if self.often(0.2):
                steps.append(self.of("-- forget", "-- forget 2000"))
            if self.often(0.02):
                steps.append("-- restart")
            if self.often(0.2):
                steps.append(self._alter(len(steps)))
                queries = [(self.query() if self._is_of_another(text) else self._by_names_of_now(text), prepared)
                           for text, prepared in queries]
            steps += [self.filled(*q) for q in queries]
            if self.often(0.3):
                steps.append(self.filled(self.query(), self.often(0.2)))
        return steps

    # ------------------------------------------------------------ schema
    def _table(self, name: str) -> Made:
        keys = self.of(0, 1, 1, 1, 2)
        columns, types, parts, required = [], [], [], []
        for n in range(keys):
            columns.append(Col(f"k{n}", "i"))
            types.append("INT")
            parts.append(f"k{n} INT NOT NULL")
        for n in range(self.c.randint(2, 5)):
            kind = self.of(*"iiiidfssscDTteb")
            type_ = self.of(*(RARE[kind] if kind in RARE and self.often(0.03) else KINDS[kind]))
            columns.append(Col(f"c{n}", kind))
            types.append(type_)
            extra = self.of("", "", "", " NOT NULL", f" DEFAULT {self.of(*VALUES[kind][:2])}")
            parts.append(f"c{n} {type_}{extra}")
            required.append("NOT" in extra)
        if keys:
            parts.append(f"PRIMARY KEY ({', '.join(c.ref for c in columns[:keys])})")
        if self.often(0.15):
            columns.append(Col(SEARCHED, "s"))
            types.append("TEXT")
            required.append(False)
            parts += [f"{SEARCHED} TEXT", f"FULLTEXT KEY of_words ({SEARCHED})"]
        if self.often(0.15):
            unique = keys and types[-1] not in ("TEXT", "BLOB")
            parts.append(f"UNIQUE KEY u ({columns[-1].ref})" if unique else "KEY i (c0)")
        text = f"CREATE TABLE {name} ({', '.join(parts)})"
        return Made(name, tuple(columns), tuple(types), tuple(required), keys, text)

    def _view(self, name: str) -> tuple[str, Source]:
        source = self.source(self.of(1, 1, 2))
        groups = [c for c in self.c.sample(source.columns, min(2, len(source.columns))) if c.kind in "iscDe"][:1]
        value = self.column(source.columns, NUMBERS)
        unique: tuple[str, ...] = ()
        if groups and value is not None:
            text = f"SELECT {groups[0].ref} AS g, COUNT(*) AS n, {self.of('SUM', 'MIN', 'MAX')}({value}) AS m" \
                   f" FROM {source.text} GROUP BY {groups[0].ref}"
            columns = (groups[0].merged("g"), Col("n", "i"), Col("m", "d"))
            unique = ("g",)
        else:
            chosen = self.c.sample(source.columns, min(3, len(source.columns)))
            items = ", ".join(f"{c.ref} AS x{n}" for n, c in enumerate(chosen))
            text = f"SELECT {items} FROM {source.text} WHERE {self._predicate(source)}"
            columns = tuple(Col(f"x{n}", c.kind) for n, c in enumerate(chosen))
        return f"CREATE VIEW {name} AS {text}", Source(name, columns, unique)

    # ------------------------------------------------------------ writes
    def value(self, kind: str, null: float = 0.15, wrong: float = 0.02) -> str:
        x = self.c.random()
        return "NULL" if x < null else str(self.of(*(WRONG[kind] if x > 1 - wrong else VALUES[kind])))

    def _row(self, table: Made, wrong: float = 0.01) -> str:
        values = [str(self.c.randrange(8)) for _ in range(table.keys)]
        values += [self._words() if c.ref == SEARCHED else self.value(c.kind, wrong if required else 0.15, wrong)
                   for c, required in zip(table.columns[table.keys:], table.required, strict=True)]
        return f"({', '.join(values)})"

    def _words(self) -> str:
        return f"'{' '.join(self.c.choices(WORDS, k=self.c.randint(0, 4)))}'"

    def _search(self, column: str) -> str:
        """MATCH … AGAINST as a condition."""
        operators = self.of(("",), ("", "+", "-", "~", ">", "<"))
        parts = [self.of(*operators) + self.of(*WORDS, '"quick dog"', "do*" if len(operators) > 1 else "dog")
                 for _ in range(self.c.randint(1, 3))]
        mode = " IN BOOLEAN MODE" if len(operators) > 1 else ""
        return f"MATCH ({column}) AGAINST ('{' '.join(parts)}'{mode})"

    def _insert(self, table: Made, most: int) -> str:
        rows = ", ".join(self._row(table) for _ in range(self.c.randint(1, most)))
        how = self.of("INSERT", "INSERT", "INSERT IGNORE", "REPLACE") if table.keys else "INSERT"
        if how == "INSERT IGNORE" and ("NULL" in rows or any(v in rows for w in WRONG.values() for v in w)):
            how = "INSERT"  # IGNORE makes warnings of these errors; Noria does so for keys only
        named = f" ({', '.join(c.ref for c in table.columns)})" if self.often(0.2) else ""
        text = f"{how} INTO {table.name}{named} VALUES {rows}"
        if how == "INSERT" and table.keys and self.often(0.15):
            last = table.columns[-1]
            taken = f"{last.ref} = VALUES({last.ref})"
            text += f" ON DUPLICATE KEY UPDATE {self.of(taken, self._assignment(table, last))}"
        return text

    def _assignment(self, table: Made, c: Col) -> str:
        sources = [Col(x.ref, x.kind) for x in table.columns if x.kind == c.kind]
        if c.kind in NUMBERS and self.often(0.6):
            return f"{c.ref} = {self.of(*sources).ref} {self.of('+', '-', '*')} {self.of('1', '2')}"
        return f"{c.ref} = {self.of(self.value(c.kind), self.of(*sources).ref)}"

    def write(self) -> str:
        self.mixed = False
        text = self._write()
        self.mixed = True
        return self.filled(text, self.often(0.2))

    def _write(self) -> str:
        table: Made = self.of(*self.tables)
        kind = self.c.randrange(24)
        if kind < 10:
            return self._insert(table, self.of(1, 1, 3))
        if kind >= 20:
            return self._selected_write(table) or self._insert(table, 1)
        if kind == 10 and table.keys:
            ignore, key, found = self.of("", "", "IGNORE "), self.c.randrange(8), self.c.randrange(6)
            return f"UPDATE {ignore}{table.name} SET k0 = {key} WHERE k0 = {found}" + (
                f" AND k1 = {self.c.randrange(6)}" if table.keys > 1 else "")
        if kind == 11:
            return f"TRUNCATE TABLE {table.name}"
        where = self.condition(table.columns, 1)
        if kind < 17:
            settable = table.columns[table.keys:]
            some = self.c.sample(settable, min(len(settable), self.of(1, 1, 2)))
            changes = ", ".join(self._assignment(table, c) for c in some)
            return f"UPDATE {table.name} SET {changes} WHERE {where}"
        return f"DELETE FROM {table.name} WHERE {where}"

    # ------------------------------------------------------------ writes of rows that a SELECT finds
    def _selected_write(self, table: Made) -> str:
        """INSERT … SELECT, or an UPDATE or DELETE with a join, a subquery, or ORDER BY and LIMIT; "" if none fits."""
        kind = self.c.randrange(8)
        if kind < 2 or not table.keys:
            return self._insert_select(table)
        settable = self.of(*table.columns[table.keys:])
        where = self.condition(table.columns, 1)
        if kind < 4:
            keys = ", ".join(f"{c.ref}{self.of('', ' DESC')}" for c in table.columns[: table.keys])
            end = f" WHERE {where} ORDER BY {self.of('', f'{settable.ref}, ')}{keys} LIMIT {self.of(1, 2, 3)}"
            return self.of(f"DELETE FROM {table.name}{end}",
                           f"UPDATE {table.name} SET {self._assignment(table, settable)}{end}")
        others = [t for t in self.tables if t is not table]
        if not others:
            return ""
        other: Made = self.of(*others)
        pairs = [(a, b) for a in table.columns for b in other.columns if a.kind == b.kind]
        if not pairs:
            return ""
        a, b = self.c.choice(pairs)
        if kind == 4:
            values = [c for c in other.columns if c.kind == settable.kind]
            counts = values and settable.kind in "idDT"
            value = f"{self.of('MAX', 'MIN')}({self.c.choice(values).ref})" if counts else ""
            inner = f"FROM {other.name} z WHERE z.{b.ref} = {table.name}.{a.ref}"
            if value:
                return f"UPDATE {table.name} SET {settable.ref} = (SELECT {value} {inner}) WHERE {where}"
            return f"DELETE FROM {table.name} WHERE {self.of('', 'NOT ')}EXISTS (SELECT 1 {inner})"
        if kind == 5:
            inner = f"SELECT {b.ref} FROM {other.name} WHERE {self.condition(other.columns, 0)}"
            found = f"{a.ref} {self.of('', 'NOT ')}IN ({inner})"
            return self.of(f"DELETE FROM {table.name} WHERE {found}",
                           f"UPDATE {table.name} SET {self._assignment(table, settable)} WHERE {found}")
        return self._joined_write(table, other, settable, a, b, kind == 6)

    def _joined_write(self, table: Made, other: Made, settable: Col, a: Col, b: Col, deletes: bool) -> str:
        left, right = (tuple(Col(f"{alias}.{c.ref}", c.kind) for c in t.columns) for alias, t in
                       (("l", table), ("r", other)))
        on = f"l.{a.ref} = r.{b.ref}"
        where = self.condition((*left, *right), 1)
        if deletes:
            what = self.of("l", "l, r") if other.keys else "l"
            how = self.of("JOIN", "JOIN", "LEFT JOIN")
            return f"DELETE {what} FROM {table.name} l {how} {other.name} r ON {on} WHERE {where}"
        values = [c for c in right if c.kind == settable.kind]
        numbers = [c for c in left if c.kind == "i"]
        if not values or not numbers or other.keys != 1:
            return ""
        on = f"r.{other.columns[0].ref} = {self.c.choice(numbers).ref}"  # one row at most, so the value is one
        how = self.of("JOIN", "LEFT JOIN")
        return (f"UPDATE {table.name} l {how} {other.name} r ON {on} "
                f"SET l.{settable.ref} = {self.c.choice(values).ref} WHERE {where}")

    def _insert_select(self, table: Made) -> str:
        source = self._one("l")
        items = []
        for n, c in enumerate(table.columns):
            same = [x.ref for x in source.columns if x.kind == c.kind]
            if not same:
                items.append(self.value(c.kind, 0.15, 0.0))
            elif n < table.keys:
                items.append(f"{self.c.choice(same)} + {self.of(0, 1, 8, 16)}")
            else:
                items.append(self.c.choice(same))
        how, end = "INSERT", ""
        if source.unique and table.keys:
            how = self.of("INSERT", "REPLACE", "INSERT IGNORE")
            end = f" ORDER BY {', '.join(source.unique)}"
        where = self.condition(source.columns, 1)
        return f"{how} INTO {table.name} SELECT {', '.join(items)} FROM {source.text} WHERE {where}{end}"

    # ------------------------------------------------------------ sources
    def source(self, depth: int) -> Source:
        kind = self.c.randrange(12)
        if kind < 4 or depth == 0:
            return self._one()
        if kind < 9:
            return self._join(depth)
        if kind == 9:
            return self._derived(depth)
        inner = self.source(depth - 1)
        if self.often(0.5):
            chosen = self.c.sample(inner.columns, min(3, len(inner.columns)))
            items = ", ".join(f"{c.ref} AS d{n}" for n, c in enumerate(chosen))
            text = f"SELECT {self.of('', '', 'DISTINCT ')}{items} FROM {inner.text}"
            columns = tuple(c.merged(f"q.d{n}") for n, c in enumerate(chosen))
            return Source(f"({text} WHERE {self.condition(inner.columns, 1)}) q", columns)
        group = self.of(*inner.columns)
        text = f"SELECT {group.ref} AS g, COUNT(*) AS n FROM {inner.text} GROUP BY {group.ref}"
        return Source(f"({text}) q", (group.merged("q.g"), Col("q.n", "i")), ("q.n", "q.g"))

    def _derived(self, depth: int) -> Source:
        """A derived table of the first rows, of numbered rows, of a union, or of constants."""
        if self.often(0.15):
            return self._constants()
        inner = self._one()
        if not inner.unique or self.often(0.3):
            other = self._one()
            pairs = [(a, b) for a in inner.columns for b in other.columns if self.alike(a.kind, b.kind)]
            if not pairs:
                return inner
            chosen = self.c.sample(pairs, min(len(pairs), 2))
            arms = [f"SELECT {', '.join(f'{p[n].ref} AS d{at}' for at, p in enumerate(chosen))} FROM {s.text}"
                    for n, s in enumerate((inner, other))]
            kinds = ["i" if "i" == a.kind == b.kind else "d" if a.kind != b.kind and a.kind in NUMBERS else a.kind
                     for a, b in chosen]
            return Source(f"({arms[0]} UNION {self.of('', 'ALL ')}{arms[1]}) q",
                          tuple(Col("", kind).merged(f"q.d{n}") for n, kind in enumerate(kinds)))
        some = [c for c in self.c.sample(inner.columns, min(2, len(inner.columns))) if c.ref not in inner.unique]
        keys = [Col(u, "i") for u in inner.unique]
        items = ", ".join(f"{c.ref} AS d{n}" for n, c in enumerate([*keys, *some]))
        columns = tuple(Col(f"q.d{n}", c.kind) for n, c in enumerate([*keys, *some]))
        unique = tuple(c.ref for c in columns[:len(keys)])
        by, order = self.of(*inner.columns).ref, f"{self.of(*inner.columns).ref}, {', '.join(inner.unique)}"
        if self.often(0.5):
            return Source(f"(SELECT {items} FROM {inner.text} ORDER BY {order} LIMIT {self.of(1, 2, 3)}) q", columns,
                          unique)
        numbered = f"ROW_NUMBER() OVER (PARTITION BY {by} ORDER BY {order}) AS n"
        return Source(f"(SELECT {items}, {numbered} FROM {inner.text}) q", (*columns, Col("q.n", "i")), unique)

    def _constants(self) -> Source:
        """Rows of SELECTs without FROM."""
        kinds = [self.of("i", "s") for _ in range(self.of(1, 2))]
        first = ", ".join(f"{self.of(*VALUES[kind])} AS d{n}" for n, kind in enumerate(kinds))
        rows = [f"SELECT {', '.join(self.value(kind, 0.15, 0.0) for kind in kinds)}" for _ in range(self.of(0, 1, 2))]
        text = f" UNION {self.of('', 'ALL ')}".join([f"SELECT {first}", *rows])
        return Source(f"({text}) q", tuple(Col("", kind).merged(f"q.d{n}") for n, kind in enumerate(kinds)))

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
            pairs = [(a, b) for a in columns for b in right.columns if self.alike(a.kind, b.kind, True)]
            if not pairs:
                break
            some = self.c.sample(pairs, min(len(pairs), self.of(1, 1, 1, 2)))
            on = " AND ".join(f"{a.ref} {self.of(*'======', '<=>', '<')} {b.ref}" for a, b in some)
            if self.often(0.2):
                on += f" AND {self.condition([*columns, *right.columns], 0)}"
            if self.often(0.08):
                a, z = self.of(*columns, *right.columns), self._one("z")
                same = [c.ref for c in z.columns if c.kind == a.kind]
                on += f" AND {a.ref} IN (SELECT {self.of(*same)} FROM {z.text})" if same else ""
            text += f" {self.of('JOIN', 'JOIN', 'LEFT JOIN', 'LEFT JOIN', 'RIGHT JOIN')} {right.text} ON {on}"
            columns += right.columns
            unique = (*unique, *right.unique) if unique and right.unique else ()
        return Source(text, tuple(columns), unique)

    # ------------------------------------------------------------ queries
    def _predicate(self, source: Source) -> str:
        """A condition, perhaps one with a subquery or a search."""
        searched = [c.ref for c in source.columns if c.ref.rpartition(".")[2] == SEARCHED and c.kind == "s"]
        if searched and self.often(0.6) and not source.text.startswith("("):
            beside = f" AND {self.condition(source.columns, 0)}" if self.often(0.5) else ""
            return f"{self.of('', '', 'NOT ')}{self._search(searched[0])}{beside}"
        if self.often(0.06):
            return self._row_condition(source)
        if not self.often(0.2):
            return self.condition(source.columns, 1)
        other = self._one("z")
        pairs = [(a, b) for a in source.columns for b in other.columns if a.kind == b.kind]
        if not pairs:
            return self.condition(source.columns, 1)
        a, b = self.c.choice(pairs)
        inner = f"FROM {other.text} WHERE {self.condition(other.columns, 0)}"
        negated = self.of("", "NOT ")
        if a.kind in "is" and self.often(0.15):
            x, y = (self.value(a.kind, 0.0, 0.0) for _ in range(2))
            return self.of(f"{a.ref} {negated}IN (SELECT {x} UNION SELECT {y})", f"{a.ref} = (SELECT {x})",
                           f"{a.ref} {negated}IN (SELECT {x})", f"{negated}EXISTS (SELECT 1 WHERE {a.ref} = {x})")
        correlated = f"{a.ref} {self.of(*'===', '<=>', '<', '<>', '>=')} {b.ref}"
        if self.often(0.2):
            numbers = [c for c in other.columns if c.kind in "id"]
            what = f"{self.of('MAX', 'MIN', 'COUNT', 'SUM')}({self.c.choice(numbers).ref})" if numbers else "COUNT(*)"
            return f"(SELECT {what} {inner} AND {correlated}) {self.of('>', '<=', '=', '<>')} {self.of(0, 1, 2)}"
        if self.often(0.15):
            more = f" AND {correlated}" if self.often(0.2) else ""
            return (f"{negated}({a.ref} {self.of('=', '<', '>=', '<>', '>', '<=')} {self.of('ANY', 'ALL')} "
                    f"(SELECT {b.ref} {inner}{more}))")
        if self.often(0.1):
            c, d = self.c.choice(pairs)
            return f"({a.ref}, {c.ref}) {negated}IN (SELECT {b.ref}, {d.ref} {inner})"
        if self.often(0.5):
            more = f" AND {correlated}" if self.often(0.2) else ""
            return f"{a.ref} {negated}IN (SELECT {b.ref} {inner}{more})"
        if self.often(0.3):
            c, d = self.c.choice(pairs)
            correlated += f" AND {c.ref} {self.of('<', '<>', '=')} {d.ref}"
        return f"{negated}EXISTS (SELECT 1 {inner} AND {correlated})"

    def query(self) -> str:
        kind = self.c.randrange(18)
        if kind < 6:
            return self._rows()
        if kind == 17:
            return self._recursive() or self._rows()
        if kind == 14:
            return self._with()
        if kind > 14:
            return self._found()
        if kind < 10:
            return self._groups()
        if kind == 10:
            return self._set()
        if kind == 11:
            return self._window()
        return self._top()

    def _row_condition(self, source: Source) -> str:
        """A comparison of rows, as of a page by key."""
        a, b = self.of(*source.columns), self.of(*source.columns)
        return f"({a.ref}, {b.ref}) {self.of('=', '<>', '<', '>', '<=', '>=', '<=>')} («{a.kind}», «{b.kind}»)"

    def _where(self, source: Source, chance: float = 0.75) -> str:
        return f" WHERE {self._predicate(source)}" if self.often(chance) else ""

    def _rows(self) -> str:
        source = self.source(2)
        distinct = "DISTINCT " if self.often(0.12) else ""
        items = [self.item(source.columns) for _ in range(self.c.randint(1, 4))]
        if self.often(0.05):
            items.append(self._scalar(source))
        return f"SELECT {distinct}{', '.join(items)} FROM {source.text}{self._where(source)}"

    def _found(self) -> str:
        """What is done to the rows of several keys or of a range: the first ones, each once, groups, conditions."""
        source = self._one() if self.often(0.7) else self.source(1)
        a, b, c = (self.of(*source.columns) for _ in range(3))
        where = self.of(f"{a.ref} IN («{a.kind}», «{a.kind}»)", f"{a.ref} {self.of('>', '>=', '<', '<=')} «{a.kind}»",
                        f"{a.ref} BETWEEN «{a.kind}» AND «{a.kind}»")
        where += self.of("", f" AND {b.ref} = «{b.kind}»", f" AND {b.ref} IN («{b.kind}», «{b.kind}»)",
                         f" AND {b.ref} <> «{b.kind}»", f" AND {self.condition(source.columns, 0)}")
        rows = f"FROM {source.text} WHERE {where}"
        limit = self.of("", " LIMIT 2", " LIMIT «n»", " LIMIT «n» OFFSET 1")
        if source.unique and self.often(0.4):
            down = self.of("", " DESC")
            order = f"{self.of(a, a, b).ref}{down}, {', '.join(source.unique)}"
            return f"SELECT {c.ref}, {self.item(source.columns)} {rows} ORDER BY {order}{limit}"
        totals = f"{self._aggregate(source)}, {self._aggregate(source)} {rows}"
        if c.kind in "sx" or self.often(0.5):
            group = self.of(b, c).ref
            having = self.of("", f" HAVING {self._sum(source)} {self.of('>', '<', '=')} «n»", " HAVING COUNT(*) = «n»")
            return f"SELECT {group}, {totals} GROUP BY {group}{having}"
        if self.often(0.5):
            return f"SELECT DISTINCT {c.ref} {rows} ORDER BY {c.ref}{self.of('', ' DESC')}{limit}"
        return f"SELECT {totals}"

    def _sum(self, source: Source) -> str:
        number = self.column(source.columns, NUMBERS) or "1"
        return f"{self.of('SUM', 'MIN', 'MAX', 'AVG')}({number})"

    def _with(self) -> str:
        """A common table, used twice."""
        source = self.source(1)
        group = self.of(*source.columns)
        rows = f"{source.text}{self._where(source, 0.5)}"
        return (f"WITH w AS (SELECT {group.ref} AS g, COUNT(*) AS n FROM {rows} GROUP BY {group.ref}) "
                f"SELECT a.g, a.n, b.g FROM w a {self.of('JOIN', 'LEFT JOIN')} w b "
                f"ON a.n {self.of('=', '<')} b.n WHERE {self.condition((group.merged('a.g'), Col('a.n', 'i')), 1)}")

    def _recursive(self) -> str:
        """WITH RECURSIVE over the rows of a table; "" if none has two integers."""
        table: Made = self.of(*self.tables)
        whole = [c for c in table.columns if c.kind == "i"]
        if len(whole) < 2:
            return ""
        a, b = (c.ref for c in self.c.sample(whole, 2))
        start = self.of(f"{a} = «i»", f"{b} <= «i»", self.condition(table.columns, 0))
        depth, union = self.of("d < 2", "d < 3"), self.of("UNION ALL", "UNION", "UNION DISTINCT")
        shown = self.of("x, d FROM r", "COUNT(*), MAX(d), SUM(x) FROM r", "x, COUNT(*) FROM r GROUP BY x",
                        f"r.d, {table.name}.{b} FROM r LEFT JOIN {table.name} ON {table.name}.{a} = r.x")
        return (f"WITH RECURSIVE r AS (SELECT {a} AS x, 0 AS d FROM {table.name} WHERE {start} {union} "
                f"SELECT n.{b}, d + 1 FROM {table.name} n JOIN r ON n.{a} = r.x WHERE {depth}) SELECT {shown}")

    def _scalar(self, source: Source) -> str:
        """A correlated subquery with one value."""
        other = self._one("z")
        pairs = [(a, b) for a in source.columns for b in other.columns if a.kind == b.kind]
        if not pairs:
            return "1"
        a, b = self.c.choice(pairs)
        what = self.of("COUNT(*)", f"MAX({b.ref})", f"COUNT({self.of(*other.columns).ref})")
        if self.often(0.2):
            return self._nested(a, b, other)
        if self.often(0.3):  # an error if it has several rows
            c = self.of(*other.columns)
            return f"(SELECT {c.ref} FROM {other.text} WHERE {a.ref} = {b.ref} AND {self.condition(other.columns, 0)})"
        return f"(SELECT {what} FROM {other.text} WHERE {a.ref} = {b.ref})"

    def _nested(self, a: Col, b: Col, other: Source) -> str:
        """A correlated subquery with an outer column in its select list, or two queries further in."""
        if self.often(0.5):
            return f"(SELECT {self.of('SUM', 'MAX', 'COUNT')}(IF({a.ref} = {b.ref}, 1, NULL)) FROM {other.text})"
        again, column = f"{other.text.split()[0]} zz", b.ref.rpartition(".")[2]
        return (f"(SELECT COUNT(*) FROM {other.text} WHERE EXISTS (SELECT 1 FROM {again} WHERE zz.{column} = {b.ref} "
                f"AND zz.{column} {self.of('=', '<=', '<>')} {a.ref}))")

    def _aggregate(self, source: Source) -> str:
        n = self.column(source.columns, NUMBERS) or "1"
        c = self.of(*source.columns).ref
        e = self.number(source.columns, 1)
        return str(self.of("COUNT(*)", f"COUNT({c})", f"SUM({n})", f"AVG({n})", f"MIN({c})", f"MAX({c})",
                           f"SUM({e})", f"COUNT(DISTINCT {c})", f"SUM({self.condition(source.columns, 0)})",
                           self._concat(source), f"SUM(DISTINCT {n})", f"AVG(DISTINCT {n})", f"MIN({e})",
                           f"COUNT({self.of(f'NULLIF({n}, 1)', n)})", f"{self.of('MAX', 'COUNT', 'AVG')}({e})",
                           f"SUM({n}) / COUNT(*)", f"ROUND(AVG({n}) * 100 / 7, 3)",
                           f"COALESCE(MAX({n}), 0) + 1", f"COUNT(DISTINCT {c}, {n})",
                           f"SUM(CASE WHEN {self.condition(source.columns, 0)} THEN {n} ELSE 0 END)",
                           f"ROUND({self._spread()}({n}), 3)", self._bits(source),
                           f"JSON_LENGTH(JSON_ARRAYAGG({c}))"))

    def _spread(self) -> str:
        return str(self.of("STD", "STDDEV_POP", "STDDEV_SAMP", "VARIANCE", "VAR_SAMP"))

    def _bits(self, source: Source) -> str:
        """Of small positive numbers: others have results that no BIGINT holds."""
        n = self.column(source.columns, "i") or "1"
        return str(self.of(f"BIT_OR({n} & 255)", f"BIT_XOR({n} & 255)", f"BIT_AND(COALESCE({n}, 7) & 255)"))

    def _concat(self, source: Source) -> str:
        c, b = self.of(*source.columns).ref, self.of(*source.columns).ref
        return str(self.of(f"GROUP_CONCAT({c} ORDER BY {c})", f"LENGTH(GROUP_CONCAT(DISTINCT {c}, {b}))",
                           f"GROUP_CONCAT(DISTINCT {c} ORDER BY {c} DESC)",
                           f"GROUP_CONCAT({c} ORDER BY {b} DESC, {c} SEPARATOR '|')"))

    def _groups(self) -> str:
        source = self.source(2)
        groups = [c.ref for c in self.c.sample(source.columns, min(len(source.columns), self.of(0, 1, 1, 2)))]
        if groups and self.often(0.1):
            groups[0] = self.filled(self.item(source.columns))
        aggregates = [self._aggregate(source) for _ in range(self.c.randint(1, 3))]
        if self.often(0.08):
            z = self._one("z")
            aggregates.append(f"(SELECT {self.of('COUNT(*)', f'MAX({self.of(*z.columns).ref})')} FROM {z.text})")
        text = f"SELECT {', '.join([*groups, *aggregates])} FROM {source.text}{self._where(source, 0.5)}"
        if not groups:
            return text
        text += f" GROUP BY {', '.join(groups)}"
        if self.often(0.12) and len(set(groups)) == len(groups):
            return text + " WITH ROLLUP"
        if self.often(0.3):
            what = self.of("COUNT(*)", f"COUNT({groups[0]})", self._sum(source))
            text += f" HAVING {what} {self.of('>', '=', '<', '<=>')} «n»"
        if self.often(0.15):
            text += f" ORDER BY COUNT(*){self.of('', ' DESC')}, {', '.join(groups)}{self.of('', ' LIMIT 2')}"
        return text

    def _top(self) -> str:
        source = self._one() if self.often(0.5) else self.source(1)
        if not source.unique:
            return self._rows()
        shown = self.c.sample(source.columns, min(len(source.columns), 2))
        first = self.of(*source.columns).ref
        order = ", ".join([f"{first}{self.of('', ' DESC')}", *(f"{u}{self.of('', ' DESC')}" for u in source.unique)])
        text = f"SELECT {', '.join(c.ref for c in shown)} FROM {source.text}{self._where(source)} ORDER BY {order}"
        return text + str(self.of("", " LIMIT 1", " LIMIT 2", " LIMIT 3", " LIMIT 2 OFFSET 1", " LIMIT «n»",
                                  " LIMIT «n» OFFSET «n»"))

    def _set(self) -> str:
        left, right = self._one(), self._one()
        pairs = [(a, b) for a in left.columns for b in right.columns if self.alike(a.kind, b.kind)]
        if not pairs:
            return self._rows()
        chosen = self.c.sample(pairs, min(len(pairs), self.of(1, 2)))
        a = f"SELECT {', '.join(x.ref for x, _ in chosen)} FROM {left.text}{self._where(left, 0.5)}"
        b = f"SELECT {', '.join(y.ref for _, y in chosen)} FROM {right.text}{self._where(right, 0.5)}"
        if all(x.kind in "is" for x, _ in chosen) and self.often(0.3):
            b = f"SELECT {', '.join(self.value(x.kind, 0.15, 0.0) for x, _ in chosen)}"
        return f"{a} {self.of('UNION', 'UNION ALL', 'UNION', 'INTERSECT', 'EXCEPT')} {b}"

    def _frame(self) -> str:
        """Of an order without equal rows."""
        n = self.c.randint(0, 2)
        return str(self.of(f"ROWS {n} PRECEDING", f"ROWS BETWEEN {n} PRECEDING AND {n + 1} FOLLOWING",
                           f"ROWS BETWEEN {n} FOLLOWING AND {n + 1} FOLLOWING",
                           f"ROWS BETWEEN {n + 1} PRECEDING AND {n} PRECEDING",
                           "ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
                           "RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING"))

    def _window(self) -> str:
        source = self._one() if self.often(0.6) else self.source(1)
        if not source.unique:
            return self._rows()
        by, order = self.of(*source.columns).ref, self.of(*source.columns).ref
        n, unique = self.column(source.columns, NUMBERS) or "1", ", ".join(source.unique)
        if self.often(0.15):
            over = self.of(f"RANK() OVER (ORDER BY COUNT(*) DESC, {by})", f"SUM(COUNT(*)) OVER (ORDER BY {by})",
                           f"SUM(SUM({n})) OVER ()", f"MAX(COUNT({n})) OVER (ORDER BY {by} ROWS 1 PRECEDING)")
            return f"SELECT {by}, {over} FROM {source.text}{self._where(source, 0.4)} GROUP BY {by}"
        each = f"PARTITION BY {by} ORDER BY {order}{self.of('', ' DESC')}, {unique}"
        over = self.of(f"ROW_NUMBER() OVER ({each})", f"RANK() OVER (PARTITION BY {by} ORDER BY {order})",
                       f"DENSE_RANK() OVER (PARTITION BY {by} ORDER BY {order} DESC)",
                       f"{self.of('SUM', 'AVG', 'MIN', 'MAX', 'COUNT')}({n}) OVER (PARTITION BY {by})",
                       f"{self.of('SUM', 'AVG', 'MIN', 'MAX', 'COUNT')}({n}) OVER ({each})",
                       f"SUM({n}) OVER (PARTITION BY {by} ORDER BY {order})",
                       f"{self.of('LAG', 'LEAD')}({self.of(*source.columns).ref}) OVER ({each})",
                       f"{self.of('SUM', 'AVG', 'MIN', 'MAX', 'COUNT', 'FIRST_VALUE', 'LAST_VALUE')}({n}) "
                       f"OVER ({each} {self._frame()})", f"NTH_VALUE({n}, 2) OVER ({each} {self._frame()})",
                       f"NTILE({self.c.randint(1, 4)}) OVER ({each})",
                       f"{self.of('PERCENT_RANK', 'CUME_DIST')}() OVER (PARTITION BY {by} ORDER BY {order})",
                       f"COUNT(*) OVER (PARTITION BY {by})", f"ROW_NUMBER() OVER (ORDER BY {order}, {unique})")
        return f"SELECT {unique}, {over} FROM {source.text}{self._where(source, 0.4)}"
