"""Translates calls of SQL's functions, by name, to ops of `core.expressions`.  Call `maker_of(name)`.

Most names are those of one function of the library.  `FUNCTIONS` has the others: aliases, functions made of several
ops, and those that depend on how an argument is written (INTERVAL, the format of STR_TO_DATE).
The classes that sqlglot has for these functions are switched off (`sql/text/syntax.py`): it rewrites some of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from math import pi

from sqlglot import exp

from noria.core.errors import SqlError
from noria.core.errors.codes import PARSE_ERROR
from noria.core.expressions.expr import Const, Expr
from noria.core.expressions.functions import (
    NULL,
    as_moment,
    as_number,
    call,
    cast,
    literal,
    now,
    retyped,
    wrong_count,
)
from noria.core.expressions.library import LIBRARY
from noria.core.expressions.library.dates import parts_of
from noria.core.types import BIGINT, DATE, DATETIME, DOUBLE, TEXT, TIME, Kind, decimal
from noria.sql.expressions.resolving import Operands
from noria.sql.text.refusals import refuse

Arguments = Sequence[exp.Expr]
Maker = Callable[[Operands, str, Arguments], Expr]
MICROS = 1_000_000
DAY = 86_400 * MICROS

CORE = "abs coalesce concat floor greatest least mod nullif round truncate".split()  # not in the library
OTHERS = {"ceil": "ceil", "ceiling": "ceil", "power": "pow", "sha": "sha1", "dayofmonth": "day", "day": "day",
          "character_length": "char_length", "octet_length": "length", "lcase": "lower", "ucase": "upper",
          "mid": "substring", "substr": "substring", "ifnull": "coalesce", "json_merge": "json_merge_preserve"}


def plain(op: str) -> Maker:
    """The maker of a function that is one op over its arguments."""
    return lambda r, name, nodes: call(op, *(r(n) for n in nodes))


def _counted(least: int, most: int, make: Callable[..., Expr]) -> Maker:
    """The maker of a function with `least` to `most` resolved arguments."""
    def maker(r: Operands, name: str, nodes: Arguments) -> Expr:
        if not least <= len(nodes) <= most:
            raise wrong_count(name.lower())
        return make(*(r(n) for n in nodes))

    return maker


# ------------------------------------------------------------------ numbers and text
def _log(x: Expr, y: Expr | None = None) -> Expr:
    return call("ln", x) if y is None else call("log", x, y)


def _atan(x: Expr, y: Expr | None = None) -> Expr:
    return call("atan", x) if y is None else call("atan2", x, y)


def folds(*texts: Expr) -> bool:
    """Whether all texts compare without case and accents."""
    return all(t.type.folds or not t.type.is_text for t in texts)


def located(what: Expr, text: Expr, start: Expr | None = None) -> Expr:
    """LOCATE, which compares by the collation."""
    sides = [call("fold", e) if folds(what, text) else e for e in (what, text)]
    return call("locate", *sides, *([start] if start is not None else []))


def _field(wanted: Expr, *among: Expr) -> Expr:
    """FIELD: compares as text if all arguments are text, exactly if all are integers or decimals, else as doubles."""
    args = (wanted, *among)
    if all(a.type.is_text or a.type.is_listed for a in args):
        made = [call("fold", a) if folds(*args) else a for a in args]
    elif all(a.type.kind in (Kind.INT, Kind.DECIMAL) for a in args):
        made = list(args)
    else:
        made = [cast(as_number(a), DOUBLE) for a in args]
    return call("field", *made)


def _find_in_set(wanted: Expr, listed: Expr) -> Expr:
    return call("find_in_set", *(call("fold", e) if folds(wanted, listed) else e for e in (wanted, listed)))


def _strcmp(a: Expr, b: Expr) -> Expr:
    a, b = (e if e.type.is_text else cast(e, TEXT) for e in (a, b))
    return call("case", call("eq", a, b), literal(0), call("lt", a, b), literal(-1), call("gt", a, b), literal(1), NULL)


def _flags(expression: Expr, text: Expr, flags: Expr | None) -> Expr:
    """The flags of a regular expression: case matters if the collation says so.  `flags` override that."""
    base = literal("i" if folds(text, expression) else "c")
    return base if flags is None else call("concat", base, flags)


def regexp(text: Expr, expression: Expr, flags: Expr | None = None) -> Expr:
    return call("regexp_like", text, expression, _flags(expression, text, flags))


def _regexp(op: str) -> Callable[..., Expr]:
    return lambda text, expression, *more: call(op, text, expression, *more, _flags(expression, text, None))


def _has_characters(x: Expr) -> bool:
    return x != NULL and (x.type.is_listed or (x.type.is_text and not x.type.is_bytes))


def _charset(x: Expr) -> Expr:
    return literal("utf8mb4" if _has_characters(x) else "binary")


def _collation(x: Expr) -> Expr:
    exact = x.type.is_text and not x.type.folds
    return literal("binary" if not _has_characters(x) else "utf8mb4_bin" if exact else "utf8mb4_0900_ai_ci")


def _isnull(x: Expr) -> Expr:
    return call("is_null", x)


def _hex_literal(r: Operands, name: str, nodes: Arguments) -> Expr:
    """HEX: of a number its digits, of a text its bytes; other values are cast to text."""
    (x,) = (r(n) for n in nodes) if len(nodes) == 1 else (None,)
    if x is None:
        raise wrong_count("hex")
    return call("hex", x if x.type.is_number or x.type.is_text else cast(x, TEXT))


# ------------------------------------------------------------------ intervals
_UNITS = {"MICROSECOND": 1, "SECOND": MICROS, "MINUTE": 60 * MICROS, "HOUR": 3600 * MICROS, "DAY": DAY, "WEEK": 7 * DAY}
_MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}
_COMPOSED = {"YEAR_MONTH": ("YEAR", "MONTH"), "DAY_HOUR": ("DAY", "HOUR"), "DAY_MINUTE": ("DAY", "HOUR", "MINUTE"),
             "DAY_SECOND": ("DAY", "HOUR", "MINUTE", "SECOND"), "HOUR_MINUTE": ("HOUR", "MINUTE"),
             "HOUR_SECOND": ("HOUR", "MINUTE", "SECOND"), "MINUTE_SECOND": ("MINUTE", "SECOND"),
             "SECOND_MICROSECOND": ("SECOND", "MICROSECOND"), "MINUTE_MICROSECOND": ("MINUTE", "SECOND", "MICROSECOND"),
             "HOUR_MICROSECOND": ("HOUR", "MINUTE", "SECOND", "MICROSECOND"),
             "DAY_MICROSECOND": ("DAY", "HOUR", "MINUTE", "SECOND", "MICROSECOND")}
_DAY_UNITS = ("DAY", "WEEK", "MONTH", "QUARTER", "YEAR", "YEAR_MONTH")


def _unit(node: exp.Expr | None) -> str:
    unit = node.name.upper() if node is not None else ""
    unit = unit.removeprefix("SQL_TSI_")
    if unit not in _UNITS and unit not in _MONTHS and unit not in _COMPOSED:
        raise SqlError(*PARSE_ERROR, f"You have an error in your SQL syntax: '{unit}' is no unit of time")
    return unit


def shifted(r: Operands, moment: Expr, interval: exp.Expr, sign: int) -> Expr:
    """moment + INTERVAL n unit (`sign` -1: minus).  A DATE stays a DATE for units of whole days, a TIME one for other
    units.  Fractions of seconds make a DATETIME with fractional digits (`_digits`)."""
    unit, amount = _unit(interval.args.get("unit")), r(interval.this)
    of_time = moment.type.kind is Kind.TIME and unit not in _DAY_UNITS and not unit.startswith("DAY_")
    start, size, scale = _on_a_day(moment) if of_time else as_moment(moment), 1, 6 if "MICROSECOND" in unit else 0
    if unit in _COMPOSED:
        amount = literal(_composed(amount, unit))
    elif unit == "SECOND" and amount.type.kind is not Kind.INT:
        scale = _digits(amount)
        amount = _micros(amount)
    else:
        size = _UNITS.get(unit) or _MONTHS[unit]
        amount = cast(_rounded(amount), BIGINT)
    if unit in _MONTHS or unit == "YEAR_MONTH":
        added = call("add_months", start, amount if size * sign == 1 else call("mul", amount, literal(size * sign)))
    else:
        added = call("add_micros", start, amount, literal(size * sign))
    if start.type.kind is Kind.DATE and unit in _DAY_UNITS:
        return cast(added, DATE)
    if of_time:
        return cast(call("moment_difference", added, _A_DAY), replace(TIME, scale=max(scale, moment.type.scale)))
    return cast(added, replace(DATETIME, scale=max(scale, start.type.scale)))


_A_DAY = literal(datetime(1970, 1, 1))
_OF_TIME = frozenset("HkhIlisSfpTr%")  # the letters of DATE_FORMAT that show a time


def _on_a_day(time: Expr) -> Expr:
    """The moment of a TIME after the midnight of a day.  What is made of it must not depend on the day."""
    return call("add_micros", _A_DAY, _micros_of(time), literal(1))


def _date_format(x: Expr, form: Expr) -> Expr:
    if x.type.kind is Kind.TIME and isinstance(form, Const) and isinstance(form.value, str) \
            and set(re.findall("%(.)", form.value, re.DOTALL)) <= _OF_TIME:
        x = _on_a_day(x)
    return call("date_format", x, form)


def _rounded(amount: Expr) -> Expr:
    return amount if amount.type.kind is Kind.INT or amount.type.is_text else call("round", amount)


def _digits(seconds: Expr) -> int:
    """The number of digits after the point of seconds: 6 for doubles, for text columns, and for literals with a
    point."""
    if isinstance(seconds, Const) and isinstance(seconds.value, str):
        return 6 if "." in seconds.value else 0
    return 6 if seconds.type.is_text or seconds.type.kind is Kind.DOUBLE else min(seconds.type.scale, 6)


def _micros(seconds: Expr) -> Expr:
    """Convert seconds to microseconds."""
    if seconds.type.kind is Kind.INT:
        return call("mul", seconds, literal(MICROS))
    exact = cast(seconds, decimal(18, 6))
    if isinstance(exact, Const):
        return literal(None if exact.value is None else int(exact.value * MICROS))
    return retyped(exact, BIGINT)


def _composed(amount: Expr, unit: str) -> int:
    """Convert '1:30' MINUTE_SECOND to microseconds, '1-6' YEAR_MONTH to months.  Refuses all but literals."""
    if not isinstance(amount, Const) or amount.value is None:
        raise refuse(f"INTERVAL of {unit} that is not a literal", exp.Var(this=unit), "add its parts one by one")
    text = str(amount.value)
    numbers = re.findall(r"\d+", text)
    parts = _COMPOSED[unit][-len(numbers):] if numbers else ()
    total = sum(int(n.ljust(6, "0") if p == "MICROSECOND" else n) * (_UNITS.get(p) or _MONTHS[p])
                for n, p in zip(numbers, parts, strict=False))
    return -total if text.strip().startswith("-") else total


def _date_sum(sign: int) -> Maker:
    def make(r: Operands, name: str, nodes: Arguments) -> Expr:
        if len(nodes) != 2:
            raise wrong_count(name.lower())
        moment, by = nodes
        if isinstance(by, exp.Interval):
            return shifted(r, r(moment), by, sign)
        days = exp.Interval(this=by, unit=exp.Var(this="DAY"))
        if name.upper() in ("DATE_ADD", "DATE_SUB"):
            raise SqlError(*PARSE_ERROR, f"You have an error in your SQL syntax: {name} takes an INTERVAL")
        return shifted(r, r(moment), days, sign)

    return make


def _timestampadd(r: Operands, name: str, nodes: Arguments) -> Expr:
    if len(nodes) != 3:
        raise wrong_count("timestampadd")
    unit, amount, moment = nodes
    return shifted(r, r(moment), exp.Interval(this=amount, unit=exp.Var(this=unit.name)), 1)


def _timestampdiff(r: Operands, name: str, nodes: Arguments) -> Expr:
    if len(nodes) != 3:
        raise wrong_count("timestampdiff")
    unit, a, b = _unit(nodes[0]), r(nodes[1]), r(nodes[2])
    op, size = ("diff_months", _MONTHS[unit]) if unit in _MONTHS else ("diff_micros", _UNITS[unit])
    found = call(op, a, b)
    return found if size == 1 else call("intdiv", found, literal(size))


# ------------------------------------------------------------------ dates
def _as_date(x: Expr) -> Expr:
    return cast(x, DATE)


def _as_time(x: Expr) -> Expr:
    scale = 6 if x.type.is_text and not (isinstance(x, Const) and "." not in str(x.value)) else min(x.type.scale, 6)
    return x if x.type.kind is Kind.TIME else cast(x, replace(TIME, scale=scale))


def _as_datetime(x: Expr) -> Expr:
    moment = as_moment(x)
    return cast(moment, DATETIME) if moment.type.kind is Kind.DATE else moment


def _timestamp(x: Expr, time: Expr | None = None) -> Expr:
    return _as_datetime(x) if time is None else _added_time(1)(_as_datetime(x), time)


def _unix_timestamp(x: Expr) -> Expr:
    moment = as_moment(x)
    micros = call("unix_micros", moment)
    if moment.type.scale == 0:
        return call("intdiv", micros, literal(MICROS))
    return cast(call("div", micros, literal(MICROS)), decimal(18, moment.type.scale)) if moment.type.scale <= 4 else \
        call("mul", cast(micros, decimal(18, 0)), literal(Decimal("0.000001")))


def _from_unixtime(x: Expr, form: Expr | None = None) -> Expr:
    moment = cast(call("micros_to_moment", _micros(as_number(x))), replace(DATETIME, scale=_digits(x)))
    return moment if form is None else call("date_format", moment, form)


def _sec_to_time(x: Expr) -> Expr:
    return cast(call("micros_to_time", _micros(as_number(x))), replace(TIME, scale=_digits(x)))


def _maketime(hour: Expr, minute: Expr, second: Expr) -> Expr:
    return cast(call("maketime", hour, minute, second), replace(TIME, scale=_digits(second)))


def _str_to_date(text: Expr, form: Expr) -> Expr:
    """STR_TO_DATE: the parts in a constant format decide whether the result is DATE, TIME or DATETIME."""
    form = form if form.type.is_text else cast(form, TEXT)
    found = call("str_to_date", text, form)
    if not isinstance(form, Const) or form.value is None:
        return found
    has_date, has_time, fraction = parts_of(form.value)
    if has_date and has_time:
        return cast(found, replace(DATETIME, scale=6 if fraction else 0))
    return cast(found, DATE if has_date else replace(TIME, scale=6 if fraction else 0))


def _added_time(sign: int) -> Callable[[Expr, Expr], Expr]:
    """ADDTIME and SUBTIME (`sign` -1), of a DATETIME or a TIME."""
    def make(x: Expr, time: Expr) -> Expr:
        by = _as_time(time)
        if x.type.kind in (Kind.DATE, Kind.DATETIME):
            scale = max(x.type.scale, by.type.scale)
            added = call("add_micros", x, _micros_of(by), literal(sign))
            return cast(added, replace(DATETIME, scale=scale))
        base = _as_time(x)
        made = call("time_sum" if sign > 0 else "time_difference", base, by)
        return cast(made, replace(TIME, scale=max(base.type.scale, by.type.scale)))

    return make


def _micros_of(time: Expr) -> Expr:
    if isinstance(time, Const):
        return literal(None if time.value is None else time.value // type(time.value)(microseconds=1))
    return retyped(time, BIGINT)


def _timediff(a: Expr, b: Expr) -> Expr:
    moments = (Kind.DATE, Kind.DATETIME)
    if a.type.kind in moments or b.type.kind in moments:
        a, b = as_moment(a), as_moment(b)
        scale = max(a.type.scale, b.type.scale)
        return cast(call("moment_difference", a, b), replace(TIME, scale=scale))
    a, b = _as_time(a), _as_time(b)
    return cast(call("time_difference", a, b), replace(TIME, scale=max(a.type.scale, b.type.scale)))


def extracted(r: Operands, unit_node: exp.Expr, x: Expr) -> Expr:
    """EXTRACT(unit FROM x).  A composed unit joins the digits of its parts."""
    unit = _unit(unit_node)
    if unit in _COMPOSED:
        first, *rest = _COMPOSED[unit]
        out = extracted(r, exp.Var(this=first), x)
        for part in rest:
            width = 1_000_000 if part == "MICROSECOND" else 100
            out = call("add", call("mul", out, literal(width)), extracted(r, exp.Var(this=part), x))
        return out
    return call({"DAY": "day"}.get(unit, unit.lower()), x)


def _convert_tz(x: Expr, source: Expr, target: Expr) -> Expr:
    """CONVERT_TZ between zones: offsets such as '+02:00', UTC and GMT by arithmetic, other names by their rules."""
    moment = _as_datetime(x)
    by = [_offset(z) for z in (source, target)]
    if None in by:
        return call("convert_tz", moment, source, target)
    return cast(call("add_micros", moment, literal((by[1] or 0) - (by[0] or 0)), literal(1)), moment.type)


def _offset(zone: Expr) -> int | None:
    if not isinstance(zone, Const) or not isinstance(zone.value, str):
        return None
    if zone.value.upper() in ("UTC", "GMT"):
        return 0
    m = re.fullmatch(r"([+-])(\d{1,2}):(\d{2})", zone.value)
    return None if m is None else (-1 if m[1] == "-" else 1) * (int(m[2]) * 60 + int(m[3])) * 60 * MICROS


CLOCK_NAMES: dict[str, Callable[[int], Expr]] = {
    **dict.fromkeys(("NOW", "SYSDATE", "CURRENT_TIMESTAMP", "LOCALTIME", "LOCALTIMESTAMP"), now),
    "UTC_TIMESTAMP": lambda scale: now(scale, True),
    **dict.fromkeys(("CURDATE", "CURRENT_DATE"), lambda scale: cast(now(0), DATE)),
    "UTC_DATE": lambda scale: cast(now(0, True), DATE),
    **dict.fromkeys(("CURTIME", "CURRENT_TIME"), lambda scale: cast(now(scale), replace(TIME, scale=scale))),
    "UTC_TIME": lambda scale: cast(now(scale, True), replace(TIME, scale=scale)),
    "UNIX_TIMESTAMP": lambda scale: _unix_timestamp(now(0, True)),
}
"""The names of the clock: the time of the statement, which whoever accepts it puts in (`at_time`)."""
CLOCK_CLASSES: dict[type[exp.Expr], str] = {
    exp.CurrentTimestamp: "NOW", exp.CurrentDate: "CURDATE", exp.CurrentTime: "CURTIME", exp.Localtime: "NOW",
    exp.Localtimestamp: "NOW", exp.UtcTimestamp: "UTC_TIMESTAMP", exp.UtcDate: "UTC_DATE", exp.UtcTime: "UTC_TIME",
}
FUNCTIONS: dict[str, Maker] = {
    **{name.upper(): plain(name) for name in CORE},
    **{name.upper(): plain(op) for name, op in OTHERS.items()},
    "HEX": _hex_literal,
    "LOG": _counted(1, 2, _log), "ATAN": _counted(1, 2, _atan), "PI": _counted(0, 0, lambda: literal(pi)),
    "LOCATE": _counted(2, 3, located), "INSTR": _counted(2, 2, lambda text, what: located(what, text)),
    "FIELD": _counted(2, 1 << 16, _field), "FIND_IN_SET": _counted(2, 2, _find_in_set),
    "STRCMP": _counted(2, 2, _strcmp), "ISNULL": _counted(1, 1, _isnull),
    "REGEXP_LIKE": _counted(2, 3, regexp), "REGEXP_SUBSTR": _counted(2, 2, _regexp("regexp_substr")),
    "REGEXP_INSTR": _counted(2, 2, _regexp("regexp_instr")),
    "REGEXP_REPLACE": _counted(3, 3, _regexp("regexp_replace")),
    "DATE": _counted(1, 1, _as_date), "TIME": _counted(1, 1, _as_time), "TIMESTAMP": _counted(1, 2, _timestamp),
    "CHARSET": _counted(1, 1, _charset), "COLLATION": _counted(1, 1, _collation),
    "NAME_CONST": _counted(2, 2, lambda _, value: value),
    "DATE_ADD": _date_sum(1), "ADDDATE": _date_sum(1), "DATE_SUB": _date_sum(-1), "SUBDATE": _date_sum(-1),
    "TIMESTAMPADD": _timestampadd, "TIMESTAMPDIFF": _timestampdiff,
    "UNIX_TIMESTAMP": _counted(1, 1, _unix_timestamp), "FROM_UNIXTIME": _counted(1, 2, _from_unixtime),
    "MAKETIME": _counted(3, 3, _maketime), "SEC_TO_TIME": _counted(1, 1, _sec_to_time),
    "STR_TO_DATE": _counted(2, 2, _str_to_date), "DATE_FORMAT": _counted(2, 2, _date_format),
    "WEEKOFYEAR": _counted(1, 1, lambda x: call("week", x, literal(3))),
    "ADDTIME": _counted(2, 2, _added_time(1)), "SUBTIME": _counted(2, 2, _added_time(-1)),
    "TIMEDIFF": _counted(2, 2, _timediff), "CONVERT_TZ": _counted(3, 3, _convert_tz),
}


def maker_of(name: str) -> Maker | None:
    """The maker of calls of a function, by its upper-case name; None if there is no such function."""
    known = LIBRARY.get(name.lower())
    of_library = None if known is None or known.internal else plain(name.lower())
    return FUNCTIONS.get(name, of_library)
