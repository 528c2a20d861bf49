"""Random rows and random typed expressions over them, for comparing the two evaluators of expressions."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from typing import Any

from noria.core.errors import SqlError
from noria.core.expressions import functions
from noria.core.expressions.expr import Const, Expr, col, const
from noria.core.expressions.library import LIBRARY, ArgumentType
from noria.core.types import (
    BIGINT,
    BOOL,
    BYTES,
    DATE,
    DATETIME,
    DOUBLE,
    INT,
    JSON,
    TEXT,
    TEXT_BIN,
    TIME,
    YEAR,
    Field,
    Kind,
    SqlType,
    decimal,
)

MANY = 2**63 - 1
VALUES: dict[SqlType, list[Any]] = {
    INT: [0, 1, -1, 2, 3, 7, -7, 10, 100, 2**31 - 1, -(2**31)],
    BIGINT: [0, 1, -1, 2, 5, MANY, -MANY + 1, 2**62, 3037000500, -3037000500, 10**18],
    BOOL: [0, 1],
    decimal(10, 2): [Decimal(v) for v in ("0.00", "0.01", "-0.01", "1.00", "1.50", "-2.50", "99999999.99", "3.33")],
    decimal(18, 6): [Decimal(v) for v in ("0.000000", "1.000000", "0.000001", "-1.500000", "999999999999.999999")],
    DOUBLE: [0.0, 1.0, -1.0, 0.1, 2.5, -2.5, 1e300, -1e300, 1e-300, 3.0, 1e18, 123456.789],
    TEXT: ["", "a", "A", "b", "abc", "ABC", "Élan", "elan", "ELAN", "straße", "STRASSE", "12", "12abc", "-3.5", "a ",
           "日本", "2020-02-29", "a%b", "x_y"],
    TEXT_BIN: ["", "a", "A", "b", "Élan", "elan", "é", "10", "日本"],
    DATE: [dt.date(2020, 2, 29), dt.date(1970, 1, 1), dt.date(1000, 1, 1), dt.date(9999, 12, 31), dt.date(2021, 1, 1)],
    DATETIME: [dt.datetime(2020, 2, 29), dt.datetime(1970, 1, 1), dt.datetime(1969, 12, 31, 23, 59, 59),
               dt.datetime(9999, 12, 31, 23, 59, 59)],
    SqlType(Kind.DATETIME, scale=6): [dt.datetime(2021, 3, 31, 23, 59, 59, 999999), dt.datetime(2000, 1, 1)],
    SqlType(Kind.TIME, scale=6): [dt.timedelta(hours=-838), dt.timedelta(hours=12, minutes=30, microseconds=5),
                                  dt.timedelta(0)],
    YEAR: [0, 1999, 2020],
    SqlType(Kind.INT, bits=32, unsigned=True): [0, 1, 2**32 - 1],
    SqlType(Kind.ENUM, members=("small", "Large", "é")): ["small", "Large", "é"],
    SqlType(Kind.SET, members=("a", "b", "c")): ["", "a", "b,c", "a,b,c"],
    BYTES: [b"", b"a", b"\xff\x00", "é".encode()],
    JSON: ["{}", "[1, 2, {\"a\": \"x\"}]", "{\"a\": 1, \"bb\": [true, null]}", "\"text\"", "1.5", "null"],
}
FIELDS = tuple(Field(f"f{i}", t) for i, t in enumerate(VALUES))


def random_rows(rng: random.Random, rows: int) -> list[tuple[Any, ...]]:
    """Rows of every type, a fifth of the values NULL."""
    return [tuple(None if rng.random() < 0.2 else rng.choice(v) for v in VALUES.values()) for _ in range(rows)]


def random_expression(rng: random.Random, depth: int) -> Expr:
    """An expression of any type that the table of functions accepts."""
    while True:
        try:
            e = _grow(rng, depth)
        except (SqlError, ZeroDivisionError):
            continue
        if not isinstance(e, Const):
            return e


_OPS: list[tuple[str, int]] = [
    *((op, 2) for op in ("add", "sub", "mul", "div", "intdiv", "mod")),
    *((op, 1) for op in ("neg", "abs", "round", "floor", "ceil")),
    *((op, 2) for op in ("eq", "ne", "lt", "le", "gt", "ge", "nseq")),
    ("and", 2), ("or", 2), ("and", 3), ("or", 3), ("not", 1), ("xor", 2), ("is_null", 1), ("is_true", 1),
    ("in", 4), ("coalesce", 2), ("if", 3), ("case", 5), ("nullif", 2),
    ("concat", 2), ("lower", 1), ("upper", 1), ("length", 1), ("char_length", 1), ("substring", 3), ("trim", 1),
    ("like", 2), ("cast", 1), ("greatest", 2), ("least", 3), ("truncate", 1),
]
_TARGETS = [BIGINT, INT, DOUBLE, decimal(10, 2), decimal(18, 4), TEXT, DATE, DATETIME, TIME, BYTES, JSON,
            SqlType(Kind.DOUBLE, bits=32)]
_PATHS = ["$", "$.a", "$[0]", "$[last]", "$.bb[1]", "$[*]", "$.*", "$**.a", "$["]


def _grow(rng: random.Random, depth: int) -> Expr:
    if depth == 0 or rng.random() < 0.1:
        return _leaf(rng)
    if rng.random() < 0.5:
        return _of_library(rng, depth)
    op, arity = rng.choice(_OPS)
    if op == "cast":
        return functions.cast(_grow(rng, depth - 1), rng.choice(_TARGETS))
    if op == "in":
        x = _leaf(rng)
        return functions.call(op, x, *(const(rng.choice(VALUES[x.type]), x.type) for _ in range(arity - 1)))
    if op == "like":
        pattern = rng.choice(["a%", "%a%", "_b%", "A", "%", "é%", "a\\%b"])
        return functions.call(op, _text(rng), functions.literal(pattern))
    if op == "substring":
        start, length = functions.literal(rng.randint(-3, 4)), functions.literal(rng.randint(0, 3))
        return functions.call(op, _text(rng), start, length)
    if op in ("round", "truncate"):
        return functions.call(op, _grow(rng, depth - 1), functions.literal(rng.randint(-1, 3)))
    return functions.call(op, *(_grow(rng, depth - 1) for _ in range(arity)))


_LONG = ("lpad", "repeat", "rpad", "space")  # a date as a length makes gigabytes of texts


def _of_library(rng: random.Random, depth: int) -> Expr:
    """Any function of the library."""
    op = rng.choice(sorted(LIBRARY))
    function = LIBRARY[op]
    count = rng.randint(function.fewest, len(function.takes) + (2 if function.more else 0))
    args = []
    for i in range(count):
        want = function.want(i)
        if op.startswith("json") and want is ArgumentType.TEXT and i and rng.random() < 0.8:
            args.append(functions.literal(rng.choice(_PATHS)))
        elif want is ArgumentType.INT and (op in _LONG or rng.random() < 0.7):
            args.append(functions.literal(rng.randint(-3, 30)))
        elif want in (ArgumentType.MOMENT, ArgumentType.DATE, ArgumentType.TIME) and rng.random() < 0.8:
            args.append(_leaf(rng, {Kind.DATE, Kind.DATETIME, Kind.TIME}))
        elif want is ArgumentType.JSON and rng.random() < 0.8:
            args.append(_leaf(rng, {Kind.TEXT}, JSON))
        else:
            args.append(_grow(rng, depth - 1))
    return functions.call(op, *args)


def _leaf(rng: random.Random, kinds: set[Kind] | None = None, only: SqlType | None = None) -> Expr:
    i = rng.choice([i for i, f in enumerate(FIELDS) if (kinds is None or f.type.kind in kinds)
                    and (only is None or f.type == only)])
    t = FIELDS[i].type
    if rng.random() < 0.75:
        return col(i, t)
    return const(rng.choice([*VALUES[t], None]), t)


def _text(rng: random.Random) -> Expr:
    i = rng.choice([i for i, f in enumerate(FIELDS) if f.type in (TEXT, TEXT_BIN)])
    return col(i, FIELDS[i].type)
