"""Plans as SQLite's SQL over codes: an oracle that shares nothing with our evaluators but the plan.

Values are as the kernels code them (integers, decimals and dates as integers), but doubles and text are SQLite's.
Folding, exact SUM and AVG are Python functions written from MySQL's rules.
"""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from noria.core.expressions.expr import Call, Col, Const, Expr
from noria.core.ranking import Order
from noria.core.symbols import fold
from noria.core.types import Kind, SqlType
from noria.plan.batch_nodes import Limit, Sort
from noria.plan.calls import BIT_FUNCTIONS, PEERS, WHOLE, Frame
from noria.plan.constant_row import Nothing
from noria.plan.mir import (
    Agg,
    Aggregate,
    Base,
    Distinct,
    Filter,
    GroupConcat,
    Join,
    Mir,
    Over,
    Project,
    Repeat,
    TopK,
    UnionAll,
    Window,
)

OPERATORS = {"eq": "=", "ne": "<>", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "add": "+", "sub": "-", "mul": "*",
             "and": "AND", "or": "OR"}


class ExactAvg:
    """AVG of integers to `digits` more digits, half away from zero."""

    def __init__(self) -> None:
        self.total, self.rows, self.unit = 0, 0, 1

    def step(self, value: int | None, digits: int) -> None:
        self.unit = 10**digits
        if value is not None:
            self.total, self.rows = self.total + value, self.rows + 1

    def finalize(self) -> int | None:
        return ratio(self.total, self.rows, self.unit) if self.rows else None


def ratio(total: int, rows: int, unit: int) -> int:
    """total * unit / rows, half away from zero."""
    size = (2 * abs(total) * unit + rows) // (2 * rows)
    return size if total >= 0 else -size


class Texts:
    """GROUP_CONCAT of rows that know their places."""

    def __init__(self) -> None:
        self.found: list[tuple[int, str, str]] = []
        self.distinct, self.separator = 0, ""

    def step(self, text: str | None, same: str, distinct: int, separator: str, place: int) -> None:
        self.distinct, self.separator = distinct, separator
        if text is not None:
            self.found.append((place, same, text))

    def finalize(self) -> str | None:
        seen: set[str] = set()
        out = []
        for _, same, text in sorted(self.found):
            if not self.distinct or same not in seen:
                out.append(text)
            seen.add(same)
        return self.separator.join(out) if out else None


class Extreme:
    """MIN or MAX of CI text: by folded text, then by bytes."""

    def __init__(self) -> None:
        self.best: str | None = None

    def step(self, value: str | None, greatest: int) -> None:
        def rank(t: str) -> tuple[bytes, bytes]:
            return fold(t).encode(), t.encode()

        if value is not None and (self.best is None or (rank(value) > rank(self.best)) == bool(greatest)):
            self.best = value

    def finalize(self) -> str | None:
        return self.best


def connect() -> sqlite3.Connection:
    db = sqlite3.connect(":memory:")
    db.create_function("fold", 1, lambda t: None if t is None else fold(t), deterministic=True)
    db.create_aggregate("exact_avg", 2, ExactAvg)
    db.create_function("ratio", 3, lambda t, n, d: None if t is None else ratio(t, n, 10**d), deterministic=True)
    db.create_aggregate("texts", 5, Texts)
    db.create_aggregate("extreme", 2, Extreme)
    return db


def fill(db: sqlite3.Connection, name: str, width: int, rows: list[tuple[Any, ...]]) -> None:
    """A table of codes (text and doubles as they are)."""
    db.execute(f"CREATE TABLE {name} ({', '.join(f'c{i}' for i in range(width))})")
    db.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * width)})", rows)


def rows(db: sqlite3.Connection, plan: Mir) -> list[tuple[Any, ...]]:
    return db.execute(Sql().select(plan)).fetchall()


def knows(plan: Mir) -> bool:
    """Whether the plan has only the aggregates, window functions and frames that are written here."""
    if isinstance(plan, Window) and any(
            c.frame not in (PEERS, WHOLE, TO_ROW) or c.function in NEWER for c in plan.calls):
        return False
    if isinstance(plan, Aggregate) and any(a.function in NEWER for a in plan.aggs):
        return False
    if isinstance(plan, GroupConcat) and plan.distinct not in ((), (plan.column,)):
        return False
    return all(map(knows, plan.inputs))


TO_ROW = Frame(True)
NEWER = ("variance", *BIT_FUNCTIONS, "ntile", "nth_value", "percent_rank", "cume_dist")


def key(sql: str, t: SqlType) -> str:
    return f"fold({sql})" if t.folds else sql


class Sql:
    """One statement; every node is a subquery with columns c0, c1, …"""

    def __init__(self) -> None:
        self._names = (f"q{i}" for i in itertools.count())

    def select(self, plan: Mir) -> str:
        if isinstance(plan, Base):
            return f"SELECT * FROM {plan.table.name}"
        if isinstance(plan, Nothing):
            return "SELECT NULL AS c0 WHERE 1 = 0"
        if isinstance(plan, Join):
            return self._join(plan)
        if isinstance(plan, UnionAll):
            return f"SELECT * FROM ({self.select(plan.left)}) UNION ALL SELECT * FROM ({self.select(plan.right)})"
        (source,) = plan.inputs
        q, types = next(self._names), [f.type for f in source.fields]
        inner = f"({self.select(source)}) AS {q}"
        if isinstance(plan, Filter):
            return f"SELECT * FROM {inner} WHERE {expression(plan.predicate)}"
        if isinstance(plan, Project):
            return f"SELECT {', '.join(f'{expression(e)} AS c{i}' for i, e in enumerate(plan.exprs))} FROM {inner}"
        if isinstance(plan, Repeat):
            return (f"WITH RECURSIVE k(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM k WHERE i < 1000) SELECT {q}.* "
                    f"FROM {inner} JOIN k ON k.i <= {q}.c{plan.count}")
        if isinstance(plan, Sort):
            order = ", ".join(f"{key(f'c{c}', types[c])} {'DESC' if d else 'ASC'}" for c, d in plan.order)
            return f"SELECT * FROM {inner} ORDER BY {order}"
        if isinstance(plan, Limit):
            return f"SELECT * FROM {inner} LIMIT {-1 if plan.limit is None else plan.limit} OFFSET {plan.offset}"
        if isinstance(plan, Distinct):
            plan = Aggregate(source, tuple(range(source.width)), (), ())
        if isinstance(plan, Window):
            shown = [f"{window(c, plan, types)} AS c{source.width + i}" for i, c in enumerate(plan.calls)]
            return f"SELECT *, {', '.join(shown)} FROM {inner}"
        if isinstance(plan, (TopK, GroupConcat)):
            order = (*plan.order, (plan.column, False)) if isinstance(plan, GroupConcat) else plan.order
            place = f"ROW_NUMBER() OVER ({partition(plan.group, types)} {ordering(order, types, True)})"
            inner = f"(SELECT *, {place} AS rn FROM {inner})"
        if isinstance(plan, TopK):
            return (f"SELECT {', '.join(f'c{i}' for i in range(source.width))} FROM {inner} WHERE rn > {plan.offset} "
                    f"AND rn <= {plan.offset + plan.limit}")
        if isinstance(plan, GroupConcat):
            c = f"c{plan.column}"
            shown = [f"min(c{g}) AS c{i}" for i, g in enumerate(plan.group)]
            shown += [f"texts({c}, {key(c, types[plan.column])}, {int(bool(plan.distinct))}, '{plan.separator}', rn)"
                      f" AS c{len(plan.group)}"]
            by = ", ".join(key(f"c{g}", types[g]) for g in plan.group)
            return f"SELECT {', '.join(shown)} FROM {inner}" + (f" GROUP BY {by}" if by else "")
        assert isinstance(plan, Aggregate), plan
        shown = [f"min(c{c})" for c in plan.group] + [aggregate(a, types) for a in plan.aggs]
        by = ", ".join(key(f"c{c}", types[c]) for c in plan.group)
        return (f"SELECT {', '.join(f'{s} AS c{i}' for i, s in enumerate(shown))} FROM {inner}"
                + (f" GROUP BY {by}" if by else ""))

    def _join(self, plan: Join) -> str:
        a, b = next(self._names), next(self._names)
        left, right = plan.left.fields, plan.right.fields
        shown = [f"{a}.c{i} AS c{i}" for i in range(len(left))]
        shown += [f"{b}.c{i} AS c{i + len(left)}" for i in range(len(right))]
        on = " AND ".join(f"{key(f'{a}.c{x}', left[x].type)} {'IS' if i in plan.null_safe else '='} "
                          f"{key(f'{b}.c{y}', right[y].type)}" for i, (x, y) in enumerate(plan.on))
        if plan.residual is not None:
            n = len(left)
            on += " AND " + expression(plan.residual, lambda i: f"{a}.c{i}" if i < n else f"{b}.c{i - n}")
        return (f"SELECT {', '.join(shown)} FROM ({self.select(plan.left)}) AS {a} "
                f"{'LEFT JOIN' if plan.outer else 'JOIN'} ({self.select(plan.right)}) AS {b} ON {on}")


def ordering(order: Order, types: list[SqlType], total: bool) -> str:
    keys = [f"{key(f'c{c}', types[c])} {'DESC' if d else 'ASC'}" for c, d in order]
    if total:
        keys += [k for c, t in enumerate(types) for k in dict.fromkeys((key(f"c{c}", t), f"c{c}"))]
    return f"ORDER BY {', '.join(keys)}" if keys else ""


def partition(columns: tuple[int, ...], types: list[SqlType]) -> str:
    return f"PARTITION BY {', '.join(key(f'c{c}', types[c]) for c in columns) or '1'}"


def window(call: Over, plan: Window, types: list[SqlType]) -> str:
    by, c = partition(plan.partition, types), f"c{call.column}"
    peers, total = ordering(plan.order, types, False), ordering(plan.order, types, True)
    if call.function == "row_number":
        return f"ROW_NUMBER() OVER ({by} {total})"
    if call.function in ("rank", "dense_rank"):
        return f"{call.function}() OVER ({by} {peers or 'ORDER BY 1 + 0'})"
    if call.function in ("lag", "lead"):
        return f"{call.function}({c}, {call.by}) OVER ({by} {total})"
    everything = "ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING"
    if call.function in ("first_value", "last_value"):
        if call.frame == PEERS and call.function == "last_value":
            by = partition((*plan.partition, *(c for c, _ in plan.order)), types)
        rows = "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW" if call.frame == TO_ROW else everything
        return f"{call.function}({c}) OVER ({by} {total} {rows})"
    over = {PEERS: f"OVER ({by} {peers})", WHOLE: f"OVER ({by})",
            TO_ROW: f"OVER ({by} {total} ROWS UNBOUNDED PRECEDING)"}[call.frame]
    if call.column is None:
        return f"count(*) {over}"
    t = types[call.column]
    if call.function in ("min", "max") and t.folds:
        both = f"{call.function}(fold({c}) || char(1) || {c}) {over}"
        return f"substr({both}, instr({both}, char(1)) + 1)"
    if call.function == "avg" and t.kind is not Kind.DOUBLE:
        return f"ratio(sum({c}) {over}, count({c}) {over}, {call.type.scale - t.scale})"
    return f"{call.function}({c}) {over}"


def aggregate(a: Agg, types: list[SqlType]) -> str:
    if a.column is None:
        return "count(*)"
    c, t = f"c{a.column}", types[a.column]
    if a.function in ("min", "max") and t.folds:
        return f"extreme({c}, {int(a.function == 'max')})"
    if a.function == "avg" and t.kind is not Kind.DOUBLE:
        return f"exact_avg({c}, {a.type.scale - t.scale})"
    return f"{a.function}({c})"


def expression(e: Expr, column: Callable[[int], str] = "c{}".format) -> str:
    """The few functions that random plans have."""
    if isinstance(e, Col):
        return column(e.index)
    if isinstance(e, Const):
        return constant(e)
    assert isinstance(e, Call), e
    if e.op == "is_null":
        return f"({expression(e.args[0], column)} IS NULL)"
    if e.op == "not":
        return f"(NOT {expression(e.args[0], column)})"
    args = [expression(a, column) for a in e.args]
    if all(a.type.folds for a in e.args):
        args = [f"fold({a})" for a in args]
    return "(" + f" {OPERATORS[e.op]} ".join(args) + ")"


def constant(e: Const) -> str:
    if e.value is None:
        return "NULL"
    if e.type.kind is Kind.TIME:
        return str(e.value // timedelta(microseconds=1))
    if e.type.is_text:
        return "'" + (e.value.decode("latin-1") if e.type.is_bytes else e.value).replace("'", "''") + "'"
    if e.type.kind is Kind.DECIMAL:
        return str(int(e.value.scaleb(e.type.scale)))
    return repr(e.value)
