"""Values that nobody expects, and packets with one of them in it."""

from __future__ import annotations

import math
import random
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from noria.core.errors import SqlError
from noria.core.statements import DEFAULT

VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 7, 127, 255, 2**31 - 1, 2**31, -(2**31) - 1, 2**40, 2**63 - 1, 2**63, -(2**63),
    -(2**63) + 1, -(2**63) + 2, 2**64, 2**100, -(2**100), 10**400, 0.0, -0.0, 1.5, 1e308, -1e308, 5e-324, math.nan,
    math.inf, -math.inf, Decimal("NaN"), Decimal("sNaN"), Decimal("Infinity"), Decimal("1e400"), Decimal("1e-400"),
    Decimal("12345678901234567890.123"), Decimal("-0"), "", "a", "TEXT 3", "text 3", "\ud800", "a\udfffb", "\0", "é",
    "e\u0301", "ß", "İ", "😀", "x" * 70_000, "1", "1e999", "2024-02-30", "[1,", '{"a": "\ud800"}', b"", b"\xff",
    b"\0" * 30, bytearray(b"x"), date(1, 1, 1), date(9999, 12, 31), datetime(1, 1, 1),
    datetime(9999, 12, 31, 23, 59, 59, 999999), time(1, 2), timedelta(days=10**6),
    timedelta(microseconds=-1),
    (), (1,), (1, 2, 3), ((),), [], [1], [[1]], [None], {}, {"a": 1}, set(), frozenset({1}), range(3), object,
    DEFAULT, int, ..., NotImplemented, 1j,
    ValueError("x"), SqlError(1, "x", "y"), np.int64(5), np.float64("nan"), np.array([1, 2]),
    np.array(["a"]), np.datetime64("NaT"), pa.array([1, None]), pa.array(["\ud7ff"]), pa.scalar(5),
    pa.table({"a": [1]}),
    pa.RecordBatch.from_pydict({"a": [1, None]}), pa.RecordBatch.from_pydict({"a": ["x"]}),
    pa.RecordBatch.from_pydict({"a": pa.array([], pa.int64())}), pa.RecordBatch.from_pydict({}),
)


def value(chance: random.Random) -> Any:
    if chance.random() < 0.1:
        return chance.choice((list, tuple))(value(chance) for _ in range(chance.randrange(5)))
    if chance.random() < 0.1:
        return chance.randrange(-(2**chance.randrange(1, 90)), 2**chance.randrange(1, 90))
    return chance.choice(VALUES)


def bent(thing: Any, chance: random.Random, depth: int = 0) -> Any:
    """The same with something else in one place, or (at the leaves) something else.  Types that refuse to exist so
    raise; the caller tries again."""
    if depth and chance.random() < 0.15:
        return value(chance)
    if is_dataclass(thing) and not isinstance(thing, type):
        names = [f.name for f in fields(thing)]
        if not names:
            return value(chance)
        name = chance.choice(names)
        given = {n: getattr(thing, n) for n in names}
        given[name] = bent(given[name], chance, depth + 1)
        return type(thing)(**given)
    if isinstance(thing, tuple) and hasattr(thing, "_replace"):
        name = chance.choice(thing._fields)
        return thing._replace(**{name: bent(getattr(thing, name), chance, depth + 1)})
    if isinstance(thing, (tuple, list)) and thing:
        parts, at = list(thing), chance.randrange(len(thing))
        what = chance.random()
        if what < 0.1:
            del parts[at]
        elif what < 0.2:
            parts.insert(at, parts[at])
        elif what < 0.25:
            parts.insert(at, value(chance))
        else:
            parts[at] = bent(parts[at], chance, depth + 1)
        return type(thing)(parts)
    return value(chance)
