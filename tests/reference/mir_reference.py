"""Plans run the slow, obvious way: lists of tuples of Python values, one row at a time.

`run(plan, tables)` is what every other way to run a plan must agree with.  Values are int, float, Decimal, str,
date, datetime, None, and `ERROR` for an evaluation that failed (overflow).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date, datetime, timedelta
from decimal import ROUND_CEILING, ROUND_DOWN, ROUND_FLOOR, ROUND_HALF_EVEN, ROUND_HALF_UP, Context, Decimal
from fractions import Fraction
from functools import reduce
from math import isfinite
from operator import and_, or_, xor
from typing import Any

import numpy as np

from noria.core.batch import Batch
from noria.core.expressions.casts import digits, integer_prefix, number_prefix, parse_moment, show
from noria.core.expressions.evaluate import compile
from noria.core.expressions.expr import Call, Col, Const, Expr, is_unrounded
from noria.core.limits import ERROR_CODE, MAX_INT, MIN_INT
from noria.core.plain_symbols import PlainSymbols
from noria.core.symbols import fold
from noria.core.types import Kind, SqlType
from noria.core.values import decode, encode
from noria.plan.batch_nodes import Limit, Sort
from noria.plan.constant_row import GivenRows, Nothing
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
from noria.state.grouping.moment_kernels import HUGE
from reference.quotients import argument, digits_of

Row = tuple[Any, ...]
_EXACT = Context(prec=100)


class _Error:
    def __repr__(self) -> str:
        return "ERROR"


ERROR = _Error()


def run(plan: Mir, tables: dict[str, list[Row]]) -> list[Row]:
    """The plan's rows, over the tables' rows by table name."""
    if isinstance(plan, Base):
        return list(tables[plan.table.name])
    if isinstance(plan, Nothing):
        return []
    if isinstance(plan, GivenRows):
        return list(plan.rows)
    if isinstance(plan, Filter):
        return [r for r in run(plan.input, tables) if is_true(evaluate(plan.predicate, r))]
    if isinstance(plan, Project):
        return [tuple(evaluate(e, r) for e in plan.exprs) for r in run(plan.input, tables)]
    if isinstance(plan, Join):
        return _join(plan, run(plan.left, tables), run(plan.right, tables))
    if isinstance(plan, Aggregate):
        return _aggregate(plan, run(plan.input, tables))
    if isinstance(plan, (Window, GroupConcat, TopK)):
        return ORDERED[type(plan)](plan, run(plan.input, tables))
    if isinstance(plan, UnionAll):
        return run(plan.left, tables) + run(plan.right, tables)
    if isinstance(plan, Repeat):
        return [r for r in run(plan.input, tables) if isinstance(r[plan.count], int) for _ in range(r[plan.count])]
    if isinstance(plan, Distinct):
        return _distinct(plan, run(plan.input, tables))
    if isinstance(plan, Sort):
        rows = run(plan.input, tables)
        for column, descending in reversed(plan.order):
            rows.sort(key=lambda r, c=column: _order(r[c], plan.fields[c].type), reverse=descending)
        return rows
    assert isinstance(plan, Limit)
    rows = run(plan.input, tables)[plan.offset :]
    return rows if plan.limit is None else rows[: plan.limit]


# ------------------------------------------------------------------ relations
def _key(value: Any, type: SqlType) -> Any:
    """Equal for values that SQL calls equal."""
    if isinstance(value, str) and type.folds:
        return fold(value)
    return (value,) if value is None or value is ERROR else value


def _order(value: Any, type: SqlType) -> Any:
    if value is None or value is ERROR:
        return (0 if value is None else 1, 0)
    return (2, fold(value).encode() if type.folds else value.encode() if isinstance(value, str) else value)


def _join(plan: Join, left: list[Row], right: list[Row]) -> list[Row]:
    types = [(plan.left.fields[a].type, plan.right.fields[b].type) for a, b in plan.on]
    out = []
    for x in left:
        matches = [y for y in right if all(
            ((x[a] is not None and y[b] is not None) or i in plan.null_safe) and x[a] is not ERROR and y[b] is not ERROR
            and _key(x[a], s) == _key(y[b], t) for i, ((a, b), (s, t)) in enumerate(zip(plan.on, types, strict=True)))
            and (plan.residual is None or is_true(evaluate(plan.residual, x + y)))]
        out += [x + y for y in matches]
        if plan.outer and not matches:
            out.append(x + (None,) * plan.right.width)
    return out


def _aggregate(plan: Aggregate, rows: list[Row]) -> list[Row]:
    types = [plan.input.fields[c].type for c in plan.group]
    groups: dict[Row, list[Row]] = {} if plan.group else {(): []}
    for r in rows:
        groups.setdefault(tuple(_key(r[c], t) for c, t in zip(plan.group, types, strict=True)), []).append(r)
    return [tuple(_spelling([r[c] for r in members]) for c in plan.group)
            + tuple(_fold(a, members, plan.input) for a in plan.aggs) for members in groups.values()]


def _spelling(values: list[Any]) -> Any:
    return min(values, key=str.encode) if all(isinstance(v, str) for v in values) else values[0]


BITS = {"bit_and": and_, "bit_or": or_, "bit_xor": xor}
MASK = 2**64 - 1


def _fold(a: Agg, rows: list[Row], below: Mir) -> Any:
    if a.function == "count_star":
        return len(rows)
    assert a.column is not None
    values = [r[a.column] for r in rows if r[a.column] is not None]
    if a.function == "count":
        return len(values)
    if a.function in BITS:
        found = reduce(BITS[a.function], (v & MASK for v in values if v is not ERROR), MASK * (a.function == "bit_and"))
        return ERROR if ERROR in values or found > MASK >> 1 else found
    if not values:
        return None
    if any(v is ERROR for v in values):
        return ERROR
    type = below.fields[a.column].type
    if a.function in ("min", "max"):
        best = sorted(values, key=lambda v: _order(v, type))
        chosen = best[0] if a.function == "min" else best[-1]
        same = [v for v in values if _key(v, type) == _key(chosen, type)]
        return max(same, key=str.encode) if type.folds and a.function == "max" else _spelling(same)
    if a.function == "variance":
        if any(isinstance(v, float) and abs(v) >= HUGE for v in values):
            return ERROR
        n, scale = len(values), 10**type.scale
        exact = [Fraction(v) * scale for v in values]
        return _double(float(n * sum(v * v for v in exact) - sum(exact) ** 2) / (n * n * scale * scale))
    total = sum(values[1:], values[0])
    if a.type.kind is Kind.DOUBLE:
        return _double(total if a.function == "sum" else total / len(values))
    return _number(Decimal(total) if a.function == "sum" else _EXACT.divide(Decimal(total), len(values)), a.type)


# ------------------------------------------------------------------ groups in an order
def _groups(group: Sequence[int], order: Sequence[tuple[int, bool]], below: Mir, rows: list[Row]) -> list[list[Row]]:
    """The rows of each group in the total order: ORDER BY, then all columns ascending, then the bytes of texts."""
    types = [f.type for f in below.fields]
    for i in reversed(range(below.width)):
        rows = sorted(rows, key=lambda r, i=i: _order(r[i], types[i]) + _bytes(r[i]))
    for c, descending in reversed(order):
        rows = sorted(rows, key=lambda r, c=c: _order(r[c], types[c]), reverse=descending)
    found: dict[Row, list[Row]] = {}
    for r in rows:
        found.setdefault(tuple(_key(r[c], types[c]) for c in group), []).append(r)
    return list(found.values())


def _bytes(value: Any) -> tuple[bytes, ...]:
    return (value.encode(),) if isinstance(value, str) else ()


def _runs(rows: list[Row], key: Any) -> list[list[Row]]:
    out: list[list[Row]] = []
    for r in rows:
        if out and key(out[-1][0]) == key(r):
            out[-1].append(r)
        else:
            out.append([r])
    return out


def _window(plan: Window, rows: list[Row]) -> list[Row]:
    out: list[Row] = []
    types = [f.type for f in plan.input.fields]
    for members in _groups(plan.partition, plan.order, plan.input, rows):
        peers = _runs(members, lambda r: [_order(r[c], types[c]) for c, _ in plan.order])
        number = [n for n, same in enumerate(peers) for _ in same]
        for i, r in enumerate(members):
            out.append(r + tuple(_over(c, plan.input, members, number, i) for c in plan.calls))
    return out


def _over(call: Over, below: Mir, rows: list[Row], peer: list[int], i: int) -> Any:
    if call.function == "row_number":
        return i + 1
    if call.function == "rank":
        return peer.index(peer[i]) + 1
    if call.function == "dense_rank":
        return peer[i] + 1
    last_peer = max(j for j, p in enumerate(peer) if p == peer[i])
    if call.function == "percent_rank":
        return peer.index(peer[i]) / (len(rows) - 1) if len(rows) > 1 else 0.0
    if call.function == "cume_dist":
        return (last_peer + 1) / len(rows)
    if call.function == "ntile":
        sizes = [len(rows) // call.by + (b < len(rows) % call.by) for b in range(call.by)]
        return next(b + 1 for b in range(call.by) if i < sum(sizes[: b + 1]))
    start, end = call.frame.start, call.frame.end
    first = 0 if start is None else i + start if call.frame.rows else peer.index(peer[i])
    last = len(rows) - 1 if end is None else i + end if call.frame.rows else last_peer
    frame = rows[max(first, 0) : max(last + 1, 0)]
    if call.function in ("first_value", "last_value", "nth_value"):
        at = {"first_value": 0, "last_value": len(frame) - 1, "nth_value": call.by - 1}[call.function]
        return frame[at][call.column] if 0 <= at < len(frame) else None
    if call.function in ("lag", "lead"):
        j = i - call.by if call.function == "lag" else i + call.by
        return rows[j][call.column] if 0 <= j < len(rows) else None
    return _fold(Agg(call.function, call.column, call.type), frame, below)


def _group_concat(plan: GroupConcat, rows: list[Row]) -> list[Row]:
    found = _groups(plan.group, (*plan.order, (plan.column, False)), plan.input, rows)
    return [_concatenated(plan, members) for members in found or ([] if plan.group else [[]])]


def _concatenated(plan: GroupConcat, members: list[Row]) -> Row:
    used = [r for r in members if r[plan.column] is not None]
    if plan.distinct:
        first: dict[Any, Row] = {}
        for r in used:
            first.setdefault(tuple(_key(r[c], plan.input.fields[c].type) for c in plan.distinct), r)
        used = list(first.values())
    texts = [r[plan.column] for r in used]
    shown = ERROR if ERROR in texts else plan.separator.join(texts) if texts else None
    return (*(_spelling([r[c] for r in members]) for c in plan.group), shown)


def _top(plan: TopK, rows: list[Row]) -> list[Row]:
    return [r for members in _groups(plan.group, plan.order, plan.input, rows)
            for r in members[plan.offset : plan.offset + plan.limit]]


ORDERED: dict[Any, Any] = {Window: _window, GroupConcat: _group_concat, TopK: _top}


def _distinct(plan: Distinct, rows: list[Row]) -> list[Row]:
    types = [f.type for f in plan.fields]
    groups: dict[Row, list[Row]] = {}
    for r in rows:
        groups.setdefault(tuple(map(_key, r, types)), []).append(r)
    return [tuple(_spelling([r[i] for r in members]) for i in range(plan.width)) for members in groups.values()]


# ------------------------------------------------------------------ values
def _number(value: Decimal, type: SqlType) -> Any:
    """An exact number of the type, rounded half away from zero; ERROR beyond int64."""
    scaled = int(_EXACT.scaleb(value, type.scale).to_integral_value(ROUND_HALF_UP, _EXACT))
    if not (0 if type.unsigned else MIN_INT) <= scaled <= MAX_INT:
        return ERROR
    return scaled if type.kind is Kind.INT else Decimal(scaled).scaleb(-type.scale)


def _double(value: float) -> Any:
    return value + 0.0 if isfinite(value) else ERROR


def is_true(value: Any) -> bool:
    return value is not None and value is not ERROR and value != 0


def evaluate(e: Expr, row: Sequence[Any]) -> Any:
    if isinstance(e, Col):
        return row[e.index]
    if isinstance(e, Const):
        return e.value
    assert isinstance(e, Call)
    if e.unrounded:
        value = digits_of(e, row, evaluate, ERROR)
        return _number(value, e.type) if isinstance(value, Decimal) else value
    lazy = _LAZY.get(e.op)
    if lazy is not None:
        return lazy(e, row)
    values = [argument(e, a, row, evaluate, ERROR) for a in e.args]
    if any(v is ERROR for v in values):
        return ERROR
    if e.op not in _STRICT or any(isinstance(v, bytes) for v in values):
        return _library(e, values)
    return None if any(v is None for v in values) else _STRICT[e.op](e, *values)


def _library(e: Call, values: list[Any]) -> Any:
    """A function of the library, which has one definition only: alone, on this row."""
    symbols = PlainSymbols()
    args = tuple(Const(a.type, v is None, v) for a, v in zip(e.args, values, strict=True))
    known = Call(e.type, e.nullable, e.op, args)
    row = Batch(np.empty((0, 1), np.int64), np.ones(1, np.int64))
    code = int(compile(known)(row, symbols)[0])
    return ERROR if code == ERROR_CODE else decode(code, e.type, symbols)


def _extreme(e: Call, *values: Any) -> Any:
    best = values[0]
    for v in values[1:]:
        if _compare(e, v, best) * (1 if e.op == "greatest" else -1) > 0:
            best = v
    return best


def _truncate(e: Call, a: Any, places: int) -> Any:
    if isinstance(a, float):
        unit = 10.0 ** abs(places)
        x = a * unit if places >= 0 else a / unit
        return _double(int(x) / unit if places >= 0 else int(x) * unit) if isfinite(x) else a
    return _number(Decimal(a).quantize(Decimal(1).scaleb(-min(places, 18)), ROUND_DOWN, _EXACT), e.type)


def _and(e: Call, row: Sequence[Any]) -> Any:
    values = [evaluate(a, row) for a in e.args]
    if any(v is not ERROR and v == 0 and v is not None for v in values):
        return 0
    return _unknown(values, 1)


def _or(e: Call, row: Sequence[Any]) -> Any:
    values = [evaluate(a, row) for a in e.args]
    return 1 if any(map(is_true, values)) else _unknown(values, 0)


def _unknown(values: list[Any], otherwise: Any) -> Any:
    return ERROR if any(v is ERROR for v in values) else None if None in values else otherwise


def _is_null(e: Call, row: Sequence[Any]) -> Any:
    v = evaluate(e.args[0], row)
    return ERROR if v is ERROR else int(v is None)


def _is_true(e: Call, row: Sequence[Any]) -> Any:
    v = evaluate(e.args[0], row)
    return ERROR if v is ERROR else int(is_true(v))


def _null_safe(e: Call, row: Sequence[Any]) -> Any:
    a, b = (digits_of(x, row, evaluate, ERROR) if is_unrounded(x) else evaluate(x, row) for x in e.args)
    if a is ERROR or b is ERROR:
        return ERROR
    if a is None or b is None:
        return int(a is b)
    return int(_compare(e, a, b) == 0)


def _in(e: Call, row: Sequence[Any]) -> Any:
    x = evaluate(e.args[0], row)
    if x is None or x is ERROR:
        return x
    return int(any(_compare(Call(e.type, False, "eq", (e.args[0], a)), x, evaluate(a, row)) == 0 for a in e.args[1:]))


def _coalesce(e: Call, row: Sequence[Any]) -> Any:
    return next((v for a in e.args if (v := evaluate(a, row)) is not None), None)


def _case(e: Call, row: Sequence[Any]) -> Any:
    for condition, value in zip(e.args[:-1:2], e.args[1::2], strict=True):
        c = evaluate(condition, row)
        if c is ERROR:
            return ERROR
        if is_true(c):
            return evaluate(value, row)
    return evaluate(e.args[-1], row)


def _compare(e: Call, a: Any, b: Any) -> int:
    if e.args[0].type.is_listed and e.args[0].type == e.args[1].type:
        a, b = (encode(v, e.args[0].type, PlainSymbols()) for v in (a, b))
    elif isinstance(a, str) and all(x.type.folds for x in e.args):
        a, b = fold(a), fold(b)
    elif isinstance(a, str):
        a, b = a.encode(), b.encode()
    if isinstance(a, date) and not isinstance(a, datetime) and isinstance(b, datetime):
        a = datetime.combine(a, datetime.min.time())
    return (a > b) - (a < b)


def _arithmetic(f: Any) -> Any:
    def apply(e: Call, a: Any, b: Any) -> Any:
        if e.type.kind is Kind.DOUBLE:
            try:
                return _double(f(a, b))
            except OverflowError:
                return ERROR
        return _number(_EXACT.create_decimal(f(Decimal(a), Decimal(b))), e.type)

    return apply


def _add(a: Any, b: Any) -> Any:
    return _EXACT.add(a, b) if isinstance(a, Decimal) else a + b


def _sub(a: Any, b: Any) -> Any:
    return _EXACT.subtract(a, b) if isinstance(a, Decimal) else a - b


def _mul(a: Any, b: Any) -> Any:
    return _EXACT.multiply(a, b) if isinstance(a, Decimal) else a * b


def _div(e: Call, a: Any, b: Any) -> Any:
    if b == 0:
        return None
    if e.type.kind is Kind.DOUBLE:
        return _double(a / b)
    return _number(_EXACT.divide(Decimal(a), Decimal(b)), e.type)


def _intdiv(e: Call, a: Any, b: Any) -> Any:
    if b == 0:
        return None
    if isinstance(a, float) and not isfinite(a / b):
        return ERROR
    q = int(a / b) if isinstance(a, float) else int(_EXACT.divide_int(Decimal(a), Decimal(b)))
    return q if (0 if e.type.unsigned else MIN_INT) <= q <= MAX_INT else ERROR


def _mod(e: Call, a: Any, b: Any) -> Any:
    if b == 0:
        return None
    if isinstance(a, float):
        from math import fmod

        return _double(fmod(a, b))
    return _number(_EXACT.remainder(Decimal(a), Decimal(b)), e.type)


def _round(e: Call, a: Any, digits: int) -> Any:
    if isinstance(a, float):
        unit = 10.0 ** abs(digits)
        x = a * unit if digits >= 0 else a / unit
        if not isfinite(x):
            return a
        whole = float(round(x)) if abs(x) < 2**52 else x
        return _double(whole / unit if digits >= 0 else whole * unit)
    if digits > 18:
        digits = 18
    rounded = Decimal(a).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP, _EXACT)
    return _number(rounded, e.type)


def _whole(rounding: str) -> Any:
    def apply(e: Call, a: Any) -> Any:
        if isinstance(a, float):
            return _double(float(Decimal(a).to_integral_value(rounding, _EXACT)))
        whole = int(Decimal(a).to_integral_value(rounding, _EXACT))
        return whole if MIN_INT <= whole <= MAX_INT else ERROR

    return apply


_SLOW = {Kind.INT, Kind.DOUBLE, Kind.DECIMAL, Kind.TEXT, Kind.DATE, Kind.DATETIME}


def _cast(e: Call, v: Any) -> Any:
    source, target = e.args[0].type, e.type
    odd = any(t.is_bytes or t.is_json or t.bits == 32 for t in (source, target))
    if odd or not {source.kind, target.kind} <= _SLOW:
        return _library(e, [v])
    if target.is_text:
        text = v if isinstance(v, str) else show(v, source)
        return text[: target.length] if target.length else text
    if target.kind in (Kind.DATE, Kind.DATETIME):
        return _as_moment(v, target)
    if isinstance(v, (date, timedelta)):
        v = Decimal(digits(v, source.scale))
    if isinstance(v, str):
        v = integer_prefix(v) if target.kind is Kind.INT else number_prefix(v)
    if target.kind is Kind.DOUBLE:
        return float(v)
    exact = Decimal(repr(v)) if isinstance(v, float) else Decimal(v)
    if target.kind is Kind.DECIMAL and target.precision >= 18:
        return _number(exact, target)
    if target.kind is Kind.INT:
        half = 2 ** (target.bits - 1)
        low, high = (0, 2 * half - 1) if target.unsigned else (-half, half - 1)
    else:
        high = 10**target.precision - 1
        low = 0 if target.unsigned else -high
    rounding = ROUND_HALF_EVEN if isinstance(v, float) and target.kind is Kind.INT else ROUND_HALF_UP
    scaled = int(_EXACT.scaleb(exact, target.scale).to_integral_value(rounding, _EXACT)) if exact.adjusted() < 60 \
        else int(exact)
    if scaled < 0 and target.unsigned:
        return ERROR
    scaled = min(max(scaled, low), high)
    if target.kind is Kind.INT:
        return scaled if MIN_INT <= scaled <= MAX_INT else ERROR
    return Decimal(scaled).scaleb(-target.scale)


def _as_moment(v: Any, target: SqlType) -> Any:
    moment = parse_moment(v)
    if moment is None:
        return None
    if target.kind is Kind.DATE:
        return moment.date()
    unit = 10 ** (6 - target.scale)
    if moment.microsecond % unit:
        micros = (moment.microsecond + unit // 2) // unit * unit
        moment = moment.replace(microsecond=0) + timedelta(microseconds=micros)
    return moment


def _like(e: Call, text: str, pattern: str, escape: str) -> Any:
    if e.args[0].type.folds and e.args[1].type.folds:
        text, pattern = fold(text), fold(pattern)
    out, i = "", 0
    while i < len(pattern):
        if escape and pattern[i] == escape and i + 1 < len(pattern):
            i += 1
            out += re.escape(pattern[i])
        else:
            out += {"%": ".*", "_": "."}.get(pattern[i], re.escape(pattern[i]))
        i += 1
    return int(re.fullmatch(out, text, re.DOTALL) is not None)


def _substring(e: Call, text: str, start: int, length: int | None = None) -> Any:
    if start == 0 or abs(start) > len(text):
        return ""
    rest = text[start - 1 :] if start > 0 else text[start:]
    return rest if length is None else rest[: max(length, 0)]


_LAZY: dict[str, Any] = {
    "and": _and, "or": _or, "is_null": _is_null, "is_true": _is_true, "nseq": _null_safe, "in": _in,
    "coalesce": _coalesce, "case": _case, "if": _case,
}
_STRICT: dict[str, Any] = {
    "eq": lambda e, a, b: int(_compare(e, a, b) == 0), "ne": lambda e, a, b: int(_compare(e, a, b) != 0),
    "lt": lambda e, a, b: int(_compare(e, a, b) < 0), "le": lambda e, a, b: int(_compare(e, a, b) <= 0),
    "gt": lambda e, a, b: int(_compare(e, a, b) > 0), "ge": lambda e, a, b: int(_compare(e, a, b) >= 0),
    "not": lambda e, a: int(a == 0), "xor": lambda e, a, b: int((a != 0) != (b != 0)),
    "add": _arithmetic(_add), "sub": _arithmetic(_sub), "mul": _arithmetic(_mul),
    "div": _div, "intdiv": _intdiv, "mod": _mod,
    "neg": lambda e, a: _double(-a) if isinstance(a, float) else _number(-Decimal(a), e.type),
    "abs": lambda e, a: _double(abs(a)) if isinstance(a, float) else _number(abs(Decimal(a)), e.type),
    "round": _round, "floor": _whole(ROUND_FLOOR), "ceil": _whole(ROUND_CEILING),
    "cast": _cast, "like": _like, "greatest": _extreme, "least": _extreme, "truncate": _truncate,
    "retype": lambda e, a: a,
    "concat": lambda e, *a: "".join(a), "lower": lambda e, a: a.lower(), "upper": lambda e, a: a.upper(),
    "length": lambda e, a: len(a.encode()), "char_length": lambda e, a: len(a), "trim": lambda e, a: a.strip(" "),
    "substring": _substring,
}
