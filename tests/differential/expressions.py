"""Random expressions over typed columns; what MySQL and MariaDB give the same value and type for.

A value that a statement compares with stands as «kind»: `filled` puts a literal there, another one each time, or
`BIND(literal)`, which the player passes as a parameter of a prepared statement (play.py).
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from typing import Any

VALUES = {"i": ("0", "1", "1", "2", "2", "3", "-1", "7", "100"), "d": ("0", "1.5", "-2.25", "99.99", "0.005", "3"),
          "f": ("0", "0.5", "-1e3", "2.25", "1e10"), "s": ("''", "'a'", "'A'", "'b'", "'á'", "'ab'", "'B c'", "'10'"),
          "c": ("''", "'a'", "'A'", "'b'", "'á'", "'ab'", "'B c'", "'10'"),
          "D": ("'2024-01-31'", "'2024-02-29'", "'1999-12-31'"),
          "T": ("'2024-01-31 10:00:00'", "'2024-01-31'", "'1999-12-31 23:59:59'"),
          "t": ("'10:00:00'", "'-01:30:00'", "'00:00:01'", "'100:00:00'"),
          "b": ("x'61'", "x'41'", "'a'", "''", "'ab'"),
          "e": ("'a'", "'b'", "'ab'", "'B c'"), "n": ("0", "1", "2", "3", "5"),
          "x": ("''", "'a'", "'A'", "'b'", "'á'", "'ab'"), "l": ("'a%'", "'%b%'", "'_'", "'%'", "'A'")}
COMPARED = ("=", "<", ">", "<=", ">=", "<>", "<=>")
NUMBERS, TEXTS, TIMES = "idf", "sce", "DT"
_MARK = re.compile("«(.)»")


@dataclass(frozen=True)
class Col:
    """kind c: a text compared by bytes.  kind x: one that stands for several equal ones: which is the server's
    choice."""

    ref: str
    kind: str

    def merged(self, ref: str) -> Col:
        return Col(ref, "x" if self.kind == "s" else self.kind)


def _outer(text: str, at: int) -> bool:
    """Is this place in the WHERE, HAVING or LIMIT of the outermost query?"""
    depth, last = [False], ""
    for word in re.finditer(r"\(SELECT|[()]|WHERE|HAVING|LIMIT|UNION|INTERSECT|EXCEPT|VALUES|SET", text[:at]):
        if word[0] == ")":
            depth.pop()
        elif word[0].startswith("("):
            depth.append(word[0] != "(")
        elif not any(depth):
            last = word[0]
    return not any(depth) and last in ("WHERE", "HAVING", "LIMIT")


class Expressions:
    """`mixed`: may values of different kinds meet?  (In a write that can be an error of strict mode.)"""

    def __init__(self, seed: int):
        self.c = random.Random(seed)
        self.mixed = True

    def of(self, *choices: Any) -> Any:
        return self.c.choice(choices)

    def often(self, chance: float) -> bool:
        return self.c.random() < chance

    def filled(self, text: str, bind: bool = False) -> str:
        """The text with a value at each mark; `bind`: with parameters where Noria takes them, rarely elsewhere."""
        everywhere = self.often(0.05)

        def value(mark: re.Match[str]) -> str:
            literal = str(self.of(*VALUES[mark[1]]))
            bound = bind and not literal.startswith("x") and (everywhere or _outer(text, mark.start()))
            return f"BIND({literal})" if bound else literal
        return _MARK.sub(value, text)

    def alike(self, a: str, b: str, texts: bool = False) -> bool:
        """Do columns of these kinds meet in comparisons and set operations?  texts: those of two collations, too (in
        set operations and NOT IN MariaDB takes each arm's own, where MySQL and Noria take the one of bytes)."""
        if a == b:
            return True
        families = (NUMBERS, TIMES, *(("sc",) if texts else ())) if self.mixed and self.often(0.2) else ()
        return any(a in family and b in family for family in families)

    def column(self, columns: Any, kinds: str) -> str | None:
        some = [c.ref for c in columns if c.kind in kinds]
        return self.c.choice(some) if some else None

    # ------------------------------------------------------------ values
    def number(self, columns: Any, depth: int) -> str:
        ref = self.column(columns, NUMBERS)
        if ref is None or depth == 0 or self.often(0.4):
            return ref or str(self.of("1", "2"))
        a, b = self.number(columns, depth - 1), self.number(columns, depth - 1)
        forms = [f"CAST({a} AS {self.of('SIGNED', 'DECIMAL(10,2)', 'DOUBLE')})", f"TRUNCATE({ref}, 1)", f"CEIL({ref})",
                 f"({a} {self.of('+', '-', '*')} {b})", f"{a} / 2", f"ROUND({a} / 3 * 100, 2)", f"{ref} DIV 2",
                 f"{ref} % 3", f"ABS({a})",
                 f"COALESCE({a}, {b})", f"IF({self.condition(columns, 0)}, {a}, {b})", f"NULLIF({a}, 1)", f"-{ref}",
                 f"CASE WHEN {self.condition(columns, 0)} THEN {a} ELSE {b} END", f"ROUND({ref})", f"IFNULL({a}, 0)",
                 f"{self.of('GREATEST', 'LEAST')}({a}, {b})", f"SIGN({a})", f"({self.condition(columns, 0)})",
                 f"CASE {ref} WHEN «i» THEN {a} WHEN «i» THEN {b} END"]
        text, time = self.column(columns, TEXTS), self.column(columns, TIMES)
        if text:
            forms += [f"CAST({text} AS SIGNED)", f"{text} + 0"] if self.mixed else []
            forms += [f"LENGTH({text})", f"CHAR_LENGTH({text})", f"INSTR({text}, 'b')", f"FIELD({text}, 'a', 'b')",
                      f"LOCATE('b', {text})"]
        if time:
            forms += [f"{self.of('YEAR', 'MONTH', 'DAY', 'WEEKDAY', 'QUARTER', 'DAYOFYEAR')}({time})",
                      f"DATEDIFF({time}, '2024-01-01')"]
        return str(self.of(*forms))

    def text(self, columns: Any) -> str | None:
        ref = self.column(columns, TEXTS)
        if ref is None:
            return None
        return str(self.of(ref, ref, f"UPPER({ref})", f"CONCAT({ref}, '-')", f"COALESCE({ref}, '?')",
                           f"SUBSTRING({ref}, 1, 1)", f"TRIM({ref})", f"LOWER({ref})", f"LEFT({ref}, 1)",
                           f"REPLACE({ref}, 'a', 'z')", f"REVERSE({ref})", f"LPAD({ref}, 3, '.')",
                           f"CONCAT_WS('+', {ref}, 'x', {self.column(columns, TEXTS)})", f"NULLIF({ref}, 'a')",
                           f"IF({self.condition(columns, 0)}, {ref}, 'no')", f"SUBSTRING_INDEX({ref}, ' ', 1)",
                           f"CONCAT({ref}, {self.column(columns, 'iD') or ref})", f"HEX({ref})",
                           f"CAST({self.column(columns, 'iD') or ref} AS CHAR)", f"RPAD({ref}, 2, '*')",
                           f"CASE {ref} WHEN 'a' THEN 'one' WHEN «s» THEN {ref} END", f"RIGHT({ref}, 1)"))

    def moment(self, columns: Any) -> str | None:
        ref = self.column(columns, TIMES)
        if ref is None:
            return None
        return str(self.of(ref, f"DATE({ref})", f"LAST_DAY({ref})", f"{ref} + INTERVAL 1 DAY",
                           f"DATE_SUB({ref}, INTERVAL 1 MONTH)", f"DATE_FORMAT({ref}, '%Y-%m')",
                           f"COALESCE({ref}, '2020-01-01')" if self.often(0.2) else ref))

    def item(self, columns: Any) -> str:
        x = self.c.random()
        if x < 0.5:
            return str(self.of(*columns).ref)
        if x < 0.75:
            return self.number(columns, 2)
        found = self.moment(columns) if x < 0.82 else self.text(columns)
        return found or str(self.of(*columns).ref)

    # ------------------------------------------------------------ conditions
    def condition(self, columns: Any, depth: int) -> str:
        if depth and self.often(0.35):
            a, b = self.condition(columns, depth - 1), self.condition(columns, depth - 1)
            return str(self.of(f"{a} AND {b}", f"{a} AND {b}", f"({a} OR {b})", f"NOT ({a})"))
        c = self.of(*columns)
        value = f"«{c.kind}»"
        forms = [f"{c.ref} = {value}"] * 3 + [
            f"{c.ref} {self.of(*COMPARED)} {value}", f"{c.ref} {self.of('<', '>=', '<>')} {value}",
            f"{c.ref} IS {self.of('', 'NOT ')}NULL", f"{c.ref} {self.of('', '', 'NOT ')}BETWEEN {value} AND {value}",
            f"{c.ref} {self.of('IN', 'IN', 'NOT IN')} ({value}, {self.of(value, value, 'NULL')})",
            f"{c.ref} IN ({value}, {value}, {value})"]
        same = [x.ref for x in columns if x.ref != c.ref and self.alike(x.kind, c.kind, True)]
        if same:
            forms.append(f"{c.ref} {self.of(*COMPARED)} {self.of(*same)}")
        if c.kind in "sc":
            forms.append(f"{c.ref} {self.of('', '', 'NOT ')}LIKE «l»")
        if depth:
            forms.append(f"{self.number(columns, 1)} {self.of(*COMPARED)} «i»")
        return str(self.of(*forms))
