"""Finds the expressions that can fail, and defines the two ops that pass an evaluation error on.

    may(condition)        true if the condition is true or an error; never NULL, never an error
    told(value, e, …)     the value, or an error if one of the e is an error

`can_fail` returns True if in doubt.  Keeps true: an expression for which it returns False does not evaluate to
`ERROR_CODE` if no column is an error.
"""

from __future__ import annotations

from collections.abc import Callable

from noria.core.errors import SqlError
from noria.core.expressions.casts import clips
from noria.core.expressions.expr import Call, Col, Const, Expr, walk
from noria.core.expressions.functions.base import MANY, TYPING, Args
from noria.core.expressions.library.fulltext import FULLTEXT, parsed
from noria.core.expressions.library.text import is_quick, pattern
from noria.core.limits import MAX_INT
from noria.core.symbols import NO_SYMBOLS
from noria.core.types import BIGINT, BOOL, MOMENTS, Kind, SqlType
from noria.core.values import encode

TOTAL = frozenset("""
    eq ne lt le gt ge nseq in like and or not xor is_null is_true coalesce if case greatest least retype concat may
    sqrt ln log log2 log10 sin cos asin acos atan atan2 radians sign bit_count crc32 inet_aton inet_ntoa hex
    lower upper trim ltrim rtrim trim_both trim_leading trim_trailing length bit_length char_length substring left right
    lpad rpad replace reverse insert locate substring_index concat_ws field find_in_set elt ascii md5 sha1 fold quote
    year month day quarter hour minute second microsecond dayofweek weekday dayofyear last_day to_days to_seconds
    datediff dayname monthname now json_valid
""".split())  # these fail only if an argument does
INTERNAL = frozenset({"may", "told", "total"})  # only plans have these; no SQL text can call them
_EXACT = (Kind.INT, Kind.DECIMAL)
_MOST_ROWS = 2**31  # an upper bound of the terms of a sum


def can_fail(e: Expr, shaky: Callable[[int], bool]) -> bool:
    """True if the expression can evaluate to an error.  shaky: returns True for a column that can hold one."""
    if isinstance(e, Col):
        return shaky(e.index)
    if not isinstance(e, Call):
        return False
    if e.op == "json_valid":
        return any(can_fail(a.args[0] if isinstance(a, Call) and a.op == "cast" else a, shaky) for a in e.args)
    if e.op != "may" and any(can_fail(a, shaky) for a in e.args):
        return True
    if e.op == "regexp_like":
        return not _is_pattern(e.args[1])
    if e.op in FULLTEXT:
        return not _is_search(e)
    if e.op == "cast":
        return _cast_can_fail(e)
    return e.op not in TOTAL and e.op != "told" and _size(e) is None


def check_searches(e: Expr) -> None:
    """Raise SqlError if a constant search of MATCH … AGAINST cannot be parsed."""
    for inner in walk(e):
        if isinstance(inner, Call) and inner.op in FULLTEXT:
            _is_constant_search(inner)


def _is_search(e: Call) -> bool:
    try:
        return _is_constant_search(e)
    except SqlError:
        return False


def _is_constant_search(e: Call) -> bool:
    """True for a search that is a constant.  Raises SqlError if it cannot be parsed."""
    text, mode = e.args[:2]
    if not isinstance(text, Const) or not isinstance(mode, Const):
        return False
    if isinstance(text.value, str) and isinstance(mode.value, int):
        parsed(text.value, mode.value)
    return True


def aggregate_can_fail(function: str, type: SqlType) -> bool:
    """True if an aggregate of values of the type, none of them an error, can be an error.

    SUM and AVG can exceed the range of codes, VARIANCE that of doubles, and bits that of a signed BIGINT.  BIT_AND of
    nothing always does.
    """
    if function in ("sum", "avg"):
        return sum_can_fail(type)
    return function == "bit_and" or (function in ("bit_or", "bit_xor") and not type.unsigned) or (
        function == "variance" and type.kind is Kind.DOUBLE)


def only_one(value: Expr, rows: Expr) -> Expr:
    """The value of a subquery, or an error if it has several rows: their number times MAX_INT is out of range."""
    error = Call(BIGINT, True, "mul", (rows, Const(BIGINT, False, MAX_INT)))
    return Call(value.type, value.nullable, "told", (value, error))


def has_only_one(e: Expr) -> bool:
    """Whether a part of the expression is made by `only_one`."""
    return any(map(_is_only_one, walk(e)))


def _is_only_one(e: Expr) -> bool:
    if not isinstance(e, Call) or e.op != "told":
        return False
    error = e.args[1]
    return isinstance(error, Call) and error.op == "mul" and Const(BIGINT, False, MAX_INT) in error.args


def sum_can_fail(type: SqlType) -> bool:
    """True if SUM or AVG of a column of the type can exceed the range of codes."""
    size = _size_of(type)
    return size is None or size * _MOST_ROWS > MAX_INT


def _is_pattern(e: Expr) -> bool:
    try:
        return isinstance(e, Const) and (e.value is None or (
            is_quick(str(e.value)) and pattern(str(e.value), "") is not None))
    except SqlError:
        return False


def _cast_can_fail(e: Call) -> bool:
    source, target = e.args[0].type, e.type
    if target.kind in _EXACT and source.kind in _EXACT:
        return _size(e) is None
    if target.kind in _EXACT:
        return target.unsigned or not clips(target)
    if target.kind is Kind.DOUBLE:
        return target.bits != 64 or target.unsigned
    if target.kind is Kind.TEXT:
        return target.is_json and not source.is_json and not source.is_number
    return target.kind not in (*MOMENTS, Kind.TIME) or not (source.is_text or source.kind in (*MOMENTS, Kind.TIME))


# ------------------------------------------------------------------ sizes
def _size(e: Expr) -> int | None:
    """Return an upper bound of the absolute codes of an INT or DECIMAL expression, or None if it may overflow."""
    if isinstance(e, Const):
        return None if e.type.kind not in _EXACT else 0 if e.value is None else abs(encode(e.value, e.type, NO_SYMBOLS))
    if not isinstance(e, Call):
        return _size_of(e.type)
    made = _SIZES.get(e.op)
    sizes = [_size(a) for a in e.args]
    if made is None or e.type.kind not in _EXACT or any(s is None for s in sizes):
        return _size_of(e.type) if e.op in TOTAL else None
    if e.type.unsigned and not (e.op in ("add", "mul", "intdiv", "mod", "cast") and all(map(_positive, e.args))):
        return None
    size = made(e, [s for s in sizes if s is not None])
    return size if size <= MAX_INT - 1 else None


def _size_of(type: SqlType) -> int | None:
    if type.kind is Kind.DECIMAL:
        return 10**type.precision if type.precision < 18 else None
    return 2 ** (type.bits - (not type.unsigned)) if type.kind is Kind.INT and type.bits < 64 else None


def _positive(e: Expr) -> bool:
    return e.type.unsigned or (isinstance(e, Const) and (e.value is None or e.value >= 0))


def _divided(e: Call, sizes: list[int]) -> int:
    up = e.type.scale - e.args[0].type.scale + e.args[1].type.scale
    return int(sizes[0] * 10**up) + 1


def _scaled(e: Call, sizes: list[int]) -> int:
    return int(sizes[0] * 10 ** max(e.type.scale - e.args[0].type.scale, 0)) + 1


_SIZES: dict[str, Callable[[Call, list[int]], int]] = {
    "add": lambda e, s: s[0] + s[1], "sub": lambda e, s: s[0] + s[1], "mul": lambda e, s: s[0] * s[1],
    "div": _divided, "intdiv": lambda e, s: s[0], "mod": lambda e, s: s[0], "neg": lambda e, s: s[0],
    "abs": lambda e, s: s[0], "floor": lambda e, s: s[0] + 1, "ceil": lambda e, s: s[0] + 1, "cast": _scaled,
}


# ------------------------------------------------------------------ errors as values
def _may(op: str, args: Args) -> Expr:
    return Call(BOOL, False, op, args)


def _with_error(op: str, args: Args) -> Expr:
    return Call(args[0].type, args[0].nullable, op, args)


TYPING.update({"may": (1, 1, _may), "told": (2, MANY, _with_error)})
