"""Calls of every function of SQL with arguments of every type, over a table whose rows hold boundary values."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from noria.core.errors import SqlError
from noria.core.expressions.library import LIBRARY
from noria.core.limits import MAX_INT, MIN_INT
from noria.plan.view import ViewDef
from noria.sql.expressions.functions import CLOCK_NAMES, FUNCTIONS
from sql.catalogs import DictCatalog

_MICRO = dt.timedelta(microseconds=1)
_LONGEST = dt.timedelta(hours=838, minutes=59, seconds=59)
COLUMNS: dict[str, tuple[str, list[Any]]] = {
    "i": ("BIGINT", [0, 1, -1, 2, 7, -19, 19, 63, 64, 100, 366, 10_000, 2**31 - 1, 2**31, -(2**31), 2**32, 2**53,
                     10**18, 5 * 10**18, -5 * 10**18, MAX_INT, MIN_INT, 202_001, 20_200_230, 20_201_231_235_959]),
    "u": ("BIGINT UNSIGNED", [0, 1, 12, 2**32 - 1, MAX_INT]),
    "n": ("TINYINT", [0, 1, -1, 127, -128]),
    "d": ("DECIMAL(18, 4)", list(map(Decimal, ("0", "0.0001", "-0.0001", "0.5", "-0.5", "1.5", "99999999999999.9999",
                                               "-99999999999999.9999", "5000000000000.0000")))),
    "e": ("DECIMAL(18, 18)", list(map(Decimal, ("0", "0.5", "0.999999999999999999", "-0.999999999999999999")))),
    "x": ("DOUBLE", [0.0, 1.0, -1.0, 0.5, 2.5, 1e308, -1e308, 5e-324, 9.3e18, -9.3e18, 1e19, 2.0**63, 1e-7, 1e15]),
    "s": ("TEXT", ["", " ", "a", "0", "-1", "1e400", "9223372036854775807", "9223372036854775808", "-0x1F", "%",
                   "%Y-%m", "%j %U %%", "2020-02-30", "9999-12-31 23:59:59.999999", "0000-00-00", "838:59:59",
                   "-25:61", "[1, 2]", '{"a": {"b": [null, 1e400]}}', "$.a", "$[0]", "$**.b", "ß", "é", "日本", "\\",
                   "UTC", "+02:00", "(a|b", "[[:digit:]]+", "a,b,,c", "x" * 300, "\x00", "𝒳"]),
    "y": ("VARBINARY(20)", [b"", b"a", b"\x00", b"\xff\xfe", "é".encode(), b"12"]),
    "a": ("DATE", [dt.date(1, 1, 1), dt.date(1970, 1, 1), dt.date(2020, 2, 29), dt.date(9999, 12, 31),
                   dt.date(1999, 12, 31)]),
    "m": ("DATETIME(6)", [dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999_999),
                          dt.datetime(1969, 12, 31, 23, 59, 59), dt.datetime(2038, 1, 19, 3, 14, 8)]),
    "t": ("TIME(6)", [dt.timedelta(), _MICRO, -_MICRO, _LONGEST, -_LONGEST, dt.timedelta(hours=24)]),
    "z": ("YEAR", [0, 1901, 1999, 2155]),
    "b": ("BOOLEAN", [0, 1]),
    "j": ("JSON", ["{}", "[]", "null", '"a"', "[1, [2, {\"a\": \"x\"}]]", '{"a": 1, "b": [true, null]}', "1.5"]),
    "g": ("ENUM('small', 'Large')", ["small", "Large"]),
    "h": ("SET('a', 'b')", ["", "a", "a,b"]),
}
LITERALS = ["0", "1", "-1", "-19", "-20", "19", "64", "400", "-400", "9223372036854775807", "-9223372036854775805",
            "1.5", "1e300", "NULL", "''", "'%Y-%m-%d %H:%i:%s.%f'", "'%'", "'$.a'", "'$'", "'+02:00'", "'-13:59'",
            "'all'", "'one'", "'a'", "'[0-9'", "DATE '9999-12-31'", "TIMESTAMP '0001-01-01 00:00:00'",
            "TIME '-838:59:59'", "x'FF'"]
TARGETS = ["SIGNED", "UNSIGNED", "DECIMAL(18, 4)", "DECIMAL(3, 2)", "DOUBLE", "FLOAT", "CHAR", "CHAR(2)", "BINARY(3)",
           "DATE", "DATETIME(3)", "TIME(3)", "JSON", "YEAR"]
UNITS = ["MICROSECOND", "SECOND", "DAY", "WEEK", "MONTH", "QUARTER", "YEAR"]
OPERATORS = ["{} + {}", "{} - {}", "{} * {}", "{} / {}", "{} DIV {}", "{} % {}", "-{}", "{} & {}", "{} | {}", "{} ^ {}",
             "~{}", "{} << {}", "{} >> {}", "{} = {}", "{} < {}", "{} <=> {}", "{} LIKE {}", "{} AND {}", "{} OR {}",
             "{} XOR {}", "NOT {}", "{} IS NULL", "{} IN ({}, {})", "{} BETWEEN {} AND {}",
             "CASE WHEN {} THEN {} ELSE {} END", "IF({}, {}, {})", "NULLIF({}, {})",
             *(f"CAST({{}} AS {t})" for t in TARGETS),
             *(f"DATE_{way}({{}}, INTERVAL {{}} {unit})" for way in ("ADD", "SUB") for unit in UNITS),
             *(f"TIMESTAMPADD({unit}, {{}}, {{}})" for unit in UNITS),
             *(f"TIMESTAMPDIFF({unit}, {{}}, {{}})" for unit in UNITS),
             *(f"EXTRACT({unit} FROM {{}})" for unit in UNITS)]
MOST_ARGUMENTS = 5
NAMES = sorted({*FUNCTIONS, *(op.upper() for op, f in LIBRARY.items() if not f.internal)} - set(CLOCK_NAMES)
               | {"UNIX_TIMESTAMP"})


def table() -> str:
    return "CREATE TABLE b (id INT PRIMARY KEY, " + ", ".join(f"{c} {t}" for c, (t, _) in COLUMNS.items()) + ")"


def rows(rng: random.Random, count: int) -> list[tuple[Any, ...]]:
    """Every boundary value, beside others at random; a tenth of the values are NULL."""
    columns = []
    for _, values in COLUMNS.values():
        drawn = [rng.choice([*values, None] if rng.random() < 0.5 else values) for _ in range(count)]
        at = rng.sample(range(count), len(values))
        for i, v in zip(at, values, strict=True):
            drawn[i] = v
        columns.append(drawn)
    return [(i, *r) for i, r in enumerate(zip(*columns, strict=True))]


def calls(rng: random.Random, each: int) -> Iterator[str]:
    """So many calls of each function, for each number of arguments, and as many of each operator."""
    forms = [name + "(" + ", ".join(["{}"] * n) + ")" for name in NAMES for n in range(1, MOST_ARGUMENTS + 1)]
    for form in [*forms, *OPERATORS]:
        firsts = rng.sample(list(COLUMNS), min(each, len(COLUMNS)))
        for i in range(each):
            rest = [rng.choice(LITERALS) if rng.random() < 0.4 else rng.choice(list(COLUMNS))
                    for _ in range(form.count("{}") - 1)]
            yield form.format(firsts[i % len(firsts)], *rest)


def view_of(catalog: DictCatalog, name: str, call: str) -> ViewDef | None:
    """The view whose column it is, by the row's number; None where it is refused."""
    try:
        (command,) = catalog.run(f"CREATE VIEW {name} AS SELECT id, {call} AS value FROM b WHERE id = ?")
    except SqlError:
        return None
    return command.view
