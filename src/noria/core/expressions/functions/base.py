"""Makes expression trees: `call`, `cast` and literals, and the casts that make values comparable.

The modules `numbers.py`, `logic.py` and `failing.py` register their ops in `TYPING`.  A function of its values alone is
an entry of `library` and needs no registration here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from math import isfinite
from typing import Any

from noria.core.errors import SqlError, not_supported
from noria.core.errors.codes import (
    ILLEGAL_VALUE_FOR_TYPE,
    SP_DOES_NOT_EXIST,
    STACK_OVERRUN_NEED_MORE,
    WRONG_PARAMCOUNT_TO_NATIVE_FCT,
    WRONG_VALUE,
)
from noria.core.expressions import evaluate, evaluate_exact
from noria.core.expressions.casts import number_prefix, parse_moment
from noria.core.expressions.coerce import (
    bits_of_text,
    listed_text,
    member_mask,
    member_place,
    parse_time,
    year_of,
)
from noria.core.expressions.expr import Call, Const, Expr, is_unrounded, walk
from noria.core.expressions.library import LIBRARY, ArgumentType
from noria.core.expressions.library.numbers import REMEMBERED
from noria.core.limits import MAX_DECIMAL_DIGITS, MAX_EXPRESSION, MAX_INT, MIN_INT
from noria.core.types import (
    BIGINT,
    BOOL,
    BYTES,
    DATE,
    DATETIME,
    DOUBLE,
    JSON,
    MOMENTS,
    TEXT,
    TEXT_BIN,
    TIME,
    UBIGINT,
    Kind,
    SqlType,
    decimal,
)

NULL = Const(BIGINT, True, None)
TRUE, FALSE = Const(BOOL, False, 1), Const(BOOL, False, 0)
Args = tuple[Expr, ...]
Typing = Callable[[str, Args], Expr]
TYPING: dict[str, tuple[int, int, Typing]] = {}
"""op -> the fewest and most arguments, and what makes the typed call of it."""
MANY = 1 << 16


def call(op: str, *args: Expr) -> Expr:
    """Make the typed call of an op, with casts where they are needed.  A call of constants becomes a constant.

    Raises SqlError for an unknown op, wrong arguments, or an expression of more than MAX_EXPRESSION parts.
    """
    if sum(a.size for a in args if isinstance(a, Call)) > MAX_EXPRESSION:
        raise SqlError(*STACK_OVERRUN_NEED_MORE,
                       f"An expression has more than {MAX_EXPRESSION} parts, counted as often as it "
                       "uses them (BETWEEN, CASE and NULLIF use one several times); make it smaller")
    made = TYPING.get(op)
    if made is None:
        return _folded(_from_library(op, args))
    least, most, make = made
    if not least <= len(args) <= most:
        raise wrong_count(op)
    return _folded(make(op, args))


def wrong_count(op: str) -> SqlError:
    return SqlError(*WRONG_PARAMCOUNT_TO_NATIVE_FCT, f"Incorrect parameter count in the call to native function '{op}'")


def _from_library(op: str, args: Args) -> Expr:
    function = LIBRARY.get(op)
    if function is None:
        raise SqlError(*SP_DOES_NOT_EXIST, f"FUNCTION {op} does not exist")
    if len(args) < function.fewest or (len(args) > len(function.takes) and not function.more):
        raise wrong_count(op)
    if op in _OF_DIGITS:
        args = tuple(cast(a, UBIGINT) if a.type.is_bit else a for a in args)
    fitted = tuple(_fitted(a, function.want(i)) for i, a in enumerate(args))
    type = function.type(tuple(a.type for a in fitted))
    nullable = function.nullable or (not function.sees_null and any(a.nullable for a in fitted))
    return Call(type, nullable, op, fitted)


_OF_DIGITS = ("bin", "conv")  # they read the digits of a number
_TEXTS = (ArgumentType.TEXT, ArgumentType.STRING, ArgumentType.BYTES)


def _fitted(e: Expr, want: ArgumentType) -> Expr:
    """Cast an argument as the function wants it."""
    if want in _TEXTS:
        return e if e.type.is_text else cast(e, BYTES if e.type.is_bit else TEXT)
    if want is ArgumentType.INT:
        number = as_number(e)
        return number if number.type.kind is Kind.INT else cast(number, BIGINT)
    if want is ArgumentType.DOUBLE:
        return cast(as_number(e), DOUBLE)
    if want is ArgumentType.NUMBER:
        return as_number(e)
    if want is ArgumentType.MOMENT:
        return as_moment(e)
    if want is ArgumentType.DATE:
        return cast(e, DATE)
    if want is ArgumentType.TIME:
        return e if e.type.kind is Kind.TIME else cast(e, replace(TIME, scale=_fraction(e)))
    if want is ArgumentType.JSON:
        return cast(e, JSON)
    return as_member(e) if want is ArgumentType.MEMBER else e


def as_moment(e: Expr) -> Expr:
    """Return a DATE or DATETIME unchanged; cast text and numbers to one."""
    return e if e.type.kind in MOMENTS else cast(e, _moment_type(e))


def as_member(e: Expr) -> Expr:
    """Convert a value to a member of a JSON document."""
    if e.type.is_json or (isinstance(e, Const) and e.value is None):
        return e
    if e.type == BOOL:
        return cast(call("if", truth(e), literal("true"), literal("false")), JSON) if e != NULL else e
    quoted = e.type.is_text or not e.type.is_number
    return retyped(call("json_quote", e), JSON) if quoted else cast(e, JSON)


def retyped(e: Expr, type: SqlType) -> Expr:
    """Give the expression another type without changing its codes."""
    if isinstance(e, Const):
        return Const(type, e.nullable, e.value)
    return Call(type, e.nullable, "retype", (e,))


def _moment_type(e: Expr) -> SqlType:
    """Return the type as which `as_moment` reads a value: DATE for a literal without a time, and else DATETIME."""
    if isinstance(e, Const) and isinstance(e.value, (str, int)):
        moment = parse_moment(e.value)
        if moment is not None and moment == _midnight(moment) and len(str(e.value).strip()) <= 10:
            return DATE
        return replace(DATETIME, scale=0 if moment is None or not moment.microsecond else 6)
    return replace(DATETIME, scale=6 if e.type.is_text else min(e.type.scale, 6))


def _fraction(e: Expr) -> int:
    if isinstance(e, Const) and isinstance(e.value, str):
        return 6 if "." in e.value else 0
    return 6 if e.type.is_text else 0 if e.type.kind is Kind.DOUBLE else min(e.type.scale, 6)


def _midnight(moment: datetime) -> datetime:
    return moment.replace(hour=0, minute=0, second=0, microsecond=0)


def _folded(e: Expr) -> Expr:
    """Replace a call of constants by its value.  A call that fails stays, so that it fails when it is evaluated.  A
    quotient that has more digits than its type stays, too."""
    if not isinstance(e, Call) or e.op in CLOCK or e.op == REMEMBERED or not all(map(_is_constant, e.args)):
        return e
    if e.unrounded and not evaluate_exact.is_rounded(e, evaluate.EXACT):
        return e
    try:
        value = evaluate.constant(e)
    except SqlError:
        return e
    if value is None and e.op in ("div", "intdiv", "mod") and all(a.value is not None for a in e.args
                                                                 if isinstance(a, Const)):
        return e  # division by zero: NULL in a query, but an error in a write
    return Const(e.type, value is None, value)


def _is_constant(e: Expr) -> bool:
    return isinstance(e, Const) or (is_unrounded(e) and all(isinstance(x, Call | Const) for x in walk(e)))


CLOCK = frozenset({"now"})
"""Ops that only whoever accepts a statement can work out: they are replaced before anything is evaluated."""


# ------------------------------------------------------------------ literals
def _double(value: int | Decimal) -> float:
    """Return the nearest double.  Raises SqlError 1367 if the number exceeds the greatest double."""
    found = float(Decimal(value))
    if not isfinite(found):
        raise SqlError(*ILLEGAL_VALUE_FOR_TYPE,
                       f"Illegal double value found during parsing: {str(value)[:20]}... is beyond the "
                       "greatest DOUBLE")
    return found


class HexLiteral(bytes):
    """The value of a literal such as 0x41, X'41' or b'1000001': bytes, but an integer where a number is expected:
    that of its last 64 bits, as in MySQL."""

    def __int__(self) -> int:
        return int.from_bytes(self[-8:], "big")


def literal(value: Any) -> Const:
    """Make a constant of the type that MySQL gives such a literal.  An integer beyond BIGINT is a DOUBLE, whose value
    stays the integer for comparisons."""
    if value is None:
        return NULL
    if isinstance(value, bool):
        return TRUE if value else FALSE
    if isinstance(value, int):
        if MIN_INT <= value <= MAX_INT:
            return Const(BIGINT, False, value)
        _double(value)  # raises for one that is beyond all doubles
        return Const(DOUBLE, False, value)
    if isinstance(value, float):
        return Const(DOUBLE, False, value)
    if isinstance(value, Decimal):
        return _decimal_literal(value)
    if isinstance(value, datetime):
        return Const(replace(DATETIME, scale=6 if value.microsecond else 0), False, value)
    if isinstance(value, date):
        return Const(DATE, False, value)
    if isinstance(value, timedelta):
        return Const(replace(TIME, scale=6 if value.microseconds else 0), False, value)
    if isinstance(value, (bytes, bytearray)):
        return Const(BYTES, False, value if isinstance(value, HexLiteral) else bytes(value))
    return Const(TEXT, False, str(value))


def _decimal_literal(value: Decimal) -> Const:
    exponent = value.as_tuple().exponent
    scale = max(-exponent, 0) if isinstance(exponent, int) else 0
    digits = max(value.adjusted() + 1 + scale, scale, 1)
    if digits > MAX_DECIMAL_DIGITS:
        return Const(DOUBLE, False, _double(value))
    return Const(decimal(digits, scale), False, value.quantize(Decimal(1).scaleb(-scale)))


# ------------------------------------------------------------------ casts
def cast(e: Expr, type: SqlType) -> Expr:
    """Cast the expression to a type.  Return it unchanged if the cast changes no code.

    Raises SqlError for a cast of TIME to a moment, which would depend on the current date.
    """
    if isinstance(e, Const) and e.value is None:
        return Const(type, True, None)
    if e.type == type or _same_text(e.type, type):
        return e
    if type.is_number and isinstance(e, Const) and isinstance(e.value, HexLiteral):
        return cast(literal(int(e.value)), type)
    source = e.type
    if Kind.TIME in (source.kind, type.kind) and (source.kind in MOMENTS or type.kind in MOMENTS) \
            and type.kind is not Kind.TIME:
        raise not_supported(f"a cast of {source} to {type}, which depends on today", "give the date with the time")
    if isinstance(e, Const) and type.kind in MOMENTS and not isinstance(e.value, date):
        return _as_moment(e, type)
    unsure = type.kind in (*MOMENTS, Kind.TIME) and source.kind not in (*MOMENTS, Kind.TIME)
    nullable = e.nullable or unsure or (source.is_bytes and not type.is_bytes)
    return _folded(Call(type, nullable, "cast", (e,)))


def _same_text(source: SqlType, type: SqlType) -> bool:
    """True if both types are text and a cast changes no code."""
    if not (source.is_text and type.is_text) or type.length or source.folds != type.folds:
        return False
    return source.is_bytes == type.is_bytes and source.is_json == type.is_json


def _as_moment(e: Const, type: SqlType) -> Expr:
    moment = parse_moment(e.value.decode("utf-8", "replace") if isinstance(e.value, bytes) else e.value)
    if moment is None:
        return Const(type, True, None)
    if type.kind is Kind.DATETIME and moment.microsecond:
        return _folded(Call(type, False, "cast", (Const(replace(DATETIME, scale=6), False, moment),)))
    return Const(type, False, moment.date() if type.kind is Kind.DATE else moment)


def truth(e: Expr) -> Expr:
    """Convert an expression to a condition, whose codes are 1, 0, NULL or an error."""
    if isinstance(e, Const) and e.value is None:
        return Const(BOOL, True, None)
    return e if _is_truth(e) else call("ne", as_number(e), literal(0))


def _is_truth(e: Expr) -> bool:
    """True if the expression's value is always 1, 0 or NULL.  A BOOL column may hold 2, as in MySQL."""
    if isinstance(e, Const):
        return e.type == BOOL and e.value in (0, 1, None)
    if not isinstance(e, Call) or e.type != BOOL:
        return False
    branches = {"if": e.args[1:], "coalesce": e.args, "case": (*e.args[1::2], e.args[-1]), "cast": e.args,
                "greatest": e.args, "least": e.args}
    return all(_is_truth(b) for b in branches.get(e.op, ()))


def common_type(types: Sequence[SqlType]) -> SqlType:
    """Return the type for values of all these types, such as the branches of CASE or the arms of UNION."""
    if not types:
        return BIGINT
    if all(t == types[0] for t in types):
        return types[0]
    kinds = {t.kind for t in types}
    if kinds <= {Kind.INT}:
        return BIGINT
    if kinds <= {Kind.INT, Kind.DECIMAL}:
        return decimal(MAX_DECIMAL_DIGITS, max(t.scale for t in types))
    if kinds <= {Kind.INT, Kind.DECIMAL, Kind.DOUBLE}:
        return DOUBLE
    if kinds <= set(MOMENTS):
        return replace(DATETIME, scale=max(t.scale for t in types))
    if kinds <= {Kind.TIME}:
        return replace(TIME, scale=max(t.scale for t in types))
    if any(t.is_bytes for t in types):
        return BYTES
    if all(t.is_json for t in types):
        return JSON
    return TEXT_BIN if any(t.is_text and not t.folds for t in types) else TEXT


# ------------------------------------------------------------------ making arguments fit
def comparable(a: Expr, b: Expr, op: str = "eq") -> tuple[Expr, Expr]:
    """Cast two expressions so that their codes compare as MySQL compares the values.

    Raises SqlError 1525 for a literal that is no date or time beside one.
    """
    if isinstance(a, Const) and a.value is None:
        return cast(a, b.type), b
    if isinstance(b, Const) and b.value is None:
        return a, cast(b, a.type)
    if a.type.is_listed or b.type.is_listed:
        return _comparable_members(a, b, op)
    if a.type.is_text and b.type.is_text:
        return _comparable_texts(a, b)
    a, b = _bits_read(_year_read(a, b), b), _bits_read(_year_read(b, a), a)
    if a.type.kind is b.type.kind:
        return a, b
    for kinds, fit in ((MOMENTS, _comparable_moments), ((Kind.TIME,), _comparable_times)):
        if a.type.kind in kinds:
            return fit(a, b)
        if b.type.kind in kinds:
            y, x = fit(b, a)
            return x, y
    a, b = _number_read(a), _number_read(b)
    if Kind.DOUBLE in (a.type.kind, b.type.kind):
        return cast(a, DOUBLE), cast(b, DOUBLE)
    return _integral_constant(a), _integral_constant(b)


def _bits_read(e: Expr, other: Expr) -> Expr:
    """Read a constant text beside a BIT by its bytes, as the column would store it; as a number if it does not fit."""
    if not other.type.is_bit or not isinstance(e, Const) or not isinstance(e.value, (str, bytes)):
        return e
    bits = bits_of_text(e.value)
    return literal(bits) if bits < 2**min(other.type.precision, 63) else e


def _year_read(e: Expr, other: Expr) -> Expr:
    """Read a constant of one or two digits beside a YEAR as a year: 2 is 2002, and '99' is 1999."""
    if other.type.declared != "year" or not isinstance(e, Const) or not isinstance(e.value, (int, str)):
        return e
    number = number_prefix(e.value) if isinstance(e.value, str) else e.value
    return literal(year_of(int(number), e.value)) if number == int(number) and 0 <= number < 100 else e


def _comparable_texts(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """Make two texts comparable: bytes with bytes, and a text with a JSON document as a JSON string."""
    if a.type.is_bytes != b.type.is_bytes:
        return _readable(a, b), _readable(b, a)
    if a.type.is_json != b.type.is_json:
        return as_member(a), as_member(b)
    return a, b


def _readable(e: Expr, other: Expr) -> Expr:
    """Fit one side of a comparison of bytes with text: constant bytes in UTF-8 become text that compares exactly.

    Otherwise the text becomes bytes.
    """
    if isinstance(e, Const) and isinstance(e.value, bytes) and not other.type.is_bytes:
        try:
            return Const(TEXT_BIN, False, e.value.decode())
        except UnicodeDecodeError:
            return e
    if isinstance(other, Const) and isinstance(other.value, bytes) and not e.type.is_bytes:
        try:
            other.value.decode()
            return e
        except UnicodeDecodeError:
            pass
    return cast(e, BYTES)


def _comparable_members(a: Expr, b: Expr, op: str) -> tuple[Expr, Expr]:
    """Make ENUM and SET comparable: by text with a text, by position or mask with a number."""
    if a.type == b.type and op in ("eq", "ne", "nseq"):
        return a, b
    if a.type.is_number or b.type.is_number:
        return comparable(as_number(a), as_number(b), op)
    if op in ("eq", "ne", "nseq"):
        a, b = _member(a, b.type), _member(b, a.type)
        if a.type == b.type:
            return a, b
    a, b = (cast(e, TEXT) if e.type.is_listed else e for e in (a, b))
    return comparable(a, b, op)


def _member(e: Expr, type: SqlType) -> Expr:
    """Convert a literal that names a member, or members in their order, to the ENUM or SET type."""
    if not (type.is_listed and isinstance(e, Const) and isinstance(e.value, str)):
        return e
    code = (member_place if type.kind is Kind.ENUM else member_mask)(e.value, type.members)
    if code is None:
        return e
    shown = listed_text(code, type.kind, type.members)
    return Const(type, False, shown) if len(shown) == len(e.value) else e


def as_number(e: Expr) -> Expr:
    """Cast to a number for arithmetic: text to DOUBLE, a date to its digits, ENUM and SET to their codes, a hexadecimal
    literal to its integer."""
    if e.type.is_number:
        return e
    if isinstance(e, Const) and e.value is None:
        return NULL
    if isinstance(e, Const) and isinstance(e.value, HexLiteral):
        return literal(int(e.value))
    if e.type.kind in (*MOMENTS, Kind.TIME):
        scale = min(e.type.scale, 4 if e.type.kind is Kind.DATETIME else 6)
        return cast(e, decimal(MAX_DECIMAL_DIGITS, scale) if scale else BIGINT)
    return cast(e, BIGINT if e.type.is_listed else DOUBLE)


def _number_read(e: Expr) -> Expr:
    """Cast one side of a comparison with a number.  A literal text is read exactly, so that a column on the other side
    keeps its type and can use its index."""
    if isinstance(e, Const) and isinstance(e.value, str):
        return literal(number_prefix(e.value))
    return as_number(e)


def _integral_constant(e: Expr) -> Expr:
    """Replace an integral DECIMAL constant such as 1.00 by an integer."""
    if isinstance(e, Const) and isinstance(e.value, Decimal) and e.value == int(e.value):
        return literal(int(e.value))
    return e


def _comparable_moments(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """Make a date or datetime comparable with a value of another kind."""
    if isinstance(b, Const) and b.type.kind not in MOMENTS:
        moment = parse_moment(b.value)
        if moment is None:
            raise SqlError(*WRONG_VALUE, f"Incorrect {a.type.kind.name} value: '{b.value}'")
        b = literal(moment)
        if a.type.kind is Kind.DATE and moment == _midnight(moment):
            b = literal(moment.date())
    elif b.type.is_number:
        return comparable(as_number(a), b)
    elif b.type.kind is Kind.TIME:
        raise not_supported(f"comparing {a.type} with {b.type}, which depends on today", "compare TIME(…) of the first")
    if a.type.kind is b.type.kind:
        return a, b
    wide = replace(DATETIME, scale=6 if b.type.is_text else max(a.type.scale, b.type.scale))
    x, y = (e if e.type.kind is Kind.DATETIME else cast(e, wide) for e in (a, b))
    return x, y


def _comparable_times(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """Make a TIME comparable with a text or a number."""
    if isinstance(b, Const):
        found = parse_time(b.value)
        if found is None:
            raise SqlError(*WRONG_VALUE, f"Incorrect TIME value: '{b.value}'")
        return a, literal(found)
    if b.type.is_number:
        return comparable(as_number(a), b)
    return a, cast(b, replace(TIME, scale=6))


def aligned(args: Args) -> Args:
    """Cast numbers to all DOUBLE, all INT, or all DECIMAL of one scale."""
    numbers = tuple(as_number(a) for a in args)
    type = common_type([n.type for n in numbers])
    if type.kind is Kind.INT:
        return numbers
    return tuple(n if n.type.kind is type.kind and n.type.scale == type.scale else cast(n, type) for n in numbers)


def nullable(args: Args) -> bool:
    return any(a.nullable for a in args)
