"""The one table of scalar functions: what each op takes, what it gives, and which casts make its arguments fit.

`call(op, …)` is how every expression tree is made.  It follows MySQL's rules of types and nullability, folds
what has no columns, and gives trees of these ops only (`core/evaluate.py` and Spark's lowering run them):

    add sub mul div intdiv mod neg abs round floor ceil          numbers
    eq ne lt le gt ge nseq in like                               comparisons, to BOOL
    and or not xor is_null is_true                               three-valued logic, to BOOL
    coalesce if case cast                                        any type
    concat lower upper length char_length substring trim         text

Keeps true, for the evaluators to rely on:

* the arguments of add, sub, intdiv, mod are all DOUBLE, all INT, or all DECIMAL of one scale; those of mul
  and div all DOUBLE, or INT and DECIMAL of any scales
* compared values are of one kind, or INT with DECIMAL; the scales of decimals may differ (but not under nseq);
  text is compared exactly when one side is BIN; `in` has non-NULL constants only after its first argument
* the arguments of and, or, not, xor, is_true and the conditions of if and case are BOOL codes (1, 0, NULL, error)
* the branches of if, case and coalesce have the result's type (text: of any length)
* case(condition, value, …, else) always has an else; like(text, pattern, escape) always has an escape
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from noria.core import evaluate
from noria.core.casts import number_prefix, parse_moment
from noria.core.errors import SqlError, not_supported
from noria.core.expr import Call, Col, Const, Expr, Param
from noria.core.limits import MAX_DECIMAL_DIGITS, MAX_INT, MIN_INT
from noria.core.types import BIGINT, BOOL, DATE, DATETIME, DOUBLE, TEXT, TEXT_BIN, Kind, SqlType, decimal

FLIPPED = {"eq": "eq", "ne": "ne", "nseq": "nseq", "lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}
NEGATED = {"eq": "ne", "ne": "eq", "lt": "ge", "ge": "lt", "gt": "le", "le": "gt"}
MOMENTS = (Kind.DATE, Kind.DATETIME)
NULL = Const(BIGINT, True, None)
TRUE, FALSE = Const(BOOL, False, 1), Const(BOOL, False, 0)
Args = tuple[Expr, ...]


def call(op: str, *args: Expr) -> Expr:
    """The op on these arguments, typed and with casts where they are needed; a constant when all of it is."""
    made = _FUNCTIONS.get(op)
    if made is None:
        raise SqlError(1305, "42000", f"FUNCTION {op} does not exist")
    least, most, make = made
    if not least <= len(args) <= most:
        raise SqlError(1582, "42000", f"Incorrect parameter count in the call to native function '{op}'")
    return _folded(make(op, args))


def _folded(e: Expr) -> Expr:
    """A constant for a call of constants; one that fails stays, to fail when it is evaluated."""
    if not isinstance(e, Call) or not all(isinstance(a, Const) for a in e.args):
        return e
    try:
        value = evaluate.constant(e)
    except SqlError:
        return e
    return Const(e.type, value is None, value)


def literal(value: Any) -> Const:
    """A Python value as a constant of MySQL's type for such a literal."""
    if value is None:
        return NULL
    if isinstance(value, bool):
        return TRUE if value else FALSE
    if isinstance(value, int):
        return Const(BIGINT, False, value) if MIN_INT <= value <= MAX_INT else Const(DOUBLE, False, float(value))
    if isinstance(value, float):
        return Const(DOUBLE, False, value)
    if isinstance(value, Decimal):
        return _decimal_literal(value)
    if isinstance(value, datetime):
        return Const(replace(DATETIME, scale=6 if value.microsecond else 0), False, value)
    if isinstance(value, date):
        return Const(DATE, False, value)
    if isinstance(value, bytes):
        return Const(TEXT_BIN, False, value.decode())
    return Const(TEXT, False, str(value))


def _decimal_literal(value: Decimal) -> Const:
    exponent = value.as_tuple().exponent
    scale = max(-exponent, 0) if isinstance(exponent, int) else 0
    digits = max(value.adjusted() + 1 + scale, scale, 1)
    if digits > MAX_DECIMAL_DIGITS:
        return Const(DOUBLE, False, float(value))
    return Const(decimal(digits, scale), False, value.quantize(Decimal(1).scaleb(-scale)))


def cast(e: Expr, type: SqlType) -> Expr:
    """The expression as another type; itself when that changes no code."""
    if isinstance(e, Const) and e.value is None:
        return Const(type, True, None)
    if e.type == type or (type.is_text and e.type.is_text and e.type.folds == type.folds and not type.length):
        return e
    if (e.type.kind in MOMENTS and type.is_number) or (e.type.is_number and type.kind in MOMENTS):
        if isinstance(e, Const) and type.kind in MOMENTS:
            return _as_moment(e, type)
        raise not_supported(f"a cast of {e.type} to {type}", "cast to CHAR first")
    nullable = e.nullable or (e.type.is_text and type.kind in MOMENTS)
    return _folded(Call(type, nullable, "cast", (e,)))


def truth(e: Expr) -> Expr:
    """The expression as a condition: BOOL codes."""
    if isinstance(e, Const) and e.value is None:
        return Const(BOOL, True, None)
    return e if _is_truth(e) else call("ne", e, literal(0))


def _is_truth(e: Expr) -> bool:
    """Is it certain to give 1, 0 or NULL?  A BOOL column is not: MySQL's may hold 2."""
    if isinstance(e, Const):
        return e.type == BOOL and e.value in (0, 1, None)
    if not isinstance(e, Call) or e.type != BOOL:
        return False
    branches = {"if": e.args[1:], "coalesce": e.args, "case": (*e.args[1::2], e.args[-1]), "cast": e.args}
    return all(_is_truth(b) for b in branches.get(e.op, ()))


def common_type(types: Sequence[SqlType]) -> SqlType:
    """The type that holds values of all these: of CASE's branches, of UNION's arms."""
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
    return TEXT_BIN if any(t.is_text and not t.folds for t in types) else TEXT


# ------------------------------------------------------------------ making arguments fit
def comparable(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """The two with casts so that their codes compare as MySQL compares the values."""
    if isinstance(a, Const) and a.value is None:
        return cast(a, b.type), b
    if isinstance(b, Const) and b.value is None:
        return a, cast(b, a.type)
    if a.type.kind is b.type.kind:
        return a, b
    if a.type.kind in MOMENTS:
        return _comparable_moments(a, b)
    if b.type.kind in MOMENTS:
        y, x = _comparable_moments(b, a)
        return x, y
    a, b = _number_read(a), _number_read(b)
    if Kind.DOUBLE in (a.type.kind, b.type.kind):
        return cast(a, DOUBLE), cast(b, DOUBLE)
    return _whole(a), _whole(b)


def as_number(e: Expr) -> Expr:
    """A number for arithmetic: text is a DOUBLE, NULL fits any."""
    if e.type.is_number:
        return e
    if isinstance(e, Const) and e.value is None:
        return NULL
    if not e.type.is_text:
        raise not_supported(f"arithmetic on {e.type}", "cast it to CHAR, or store a number")
    return cast(e, DOUBLE)


def _number_read(e: Expr) -> Expr:
    """Text compared with a number: a literal is read exactly, so that a column keeps its type and its index."""
    if isinstance(e, Const) and isinstance(e.value, str):
        return literal(number_prefix(e.value))
    return as_number(e)


def _whole(e: Expr) -> Expr:
    """1.00 against an INT is 1."""
    if isinstance(e, Const) and isinstance(e.value, Decimal) and e.value == int(e.value):
        return literal(int(e.value))
    return e


def _comparable_moments(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """A date or datetime with something of another kind."""
    if isinstance(b, Const) and b.type.kind not in MOMENTS:
        moment = parse_moment(b.value)
        if moment is None:
            raise SqlError(1525, "HY000", f"Incorrect {a.type.kind.name} value: '{b.value}'")
        b = literal(moment)
        if a.type.kind is Kind.DATE and moment == datetime.combine(moment.date(), datetime.min.time()):
            b = literal(moment.date())
    elif b.type.is_number:
        raise not_supported(f"comparing {a.type} with {b.type}", "cast one of them to CHAR")
    if a.type.kind is b.type.kind:
        return a, b
    wide = replace(DATETIME, scale=6 if b.type.is_text else max(a.type.scale, b.type.scale))
    return (e if e.type.kind is Kind.DATETIME else cast(e, wide) for e in (a, b))  # type: ignore[return-value]


def _as_moment(e: Const, type: SqlType) -> Const:
    moment = parse_moment(e.value)
    if moment is None:
        raise SqlError(1525, "HY000", f"Incorrect {type.kind.name} value: '{e.value}'")
    return Const(type, False, moment.date() if type.kind is Kind.DATE else moment)


def _aligned(args: Args) -> Args:
    """Numbers as all DOUBLE, all INT, or all DECIMAL of one scale."""
    numbers = tuple(as_number(a) for a in args)
    type = common_type([n.type for n in numbers])
    if type.kind is Kind.INT:
        return numbers
    return tuple(n if n.type.kind is type.kind and n.type.scale == type.scale else cast(n, type) for n in numbers)


def _nullable(args: Args) -> bool:
    return any(a.nullable for a in args)


# ------------------------------------------------------------------ numbers
def _sum(op: str, args: Args) -> Expr:
    """add, sub: INT gives BIGINT, DECIMAL keeps the larger scale, any DOUBLE gives DOUBLE."""
    args = _aligned(args)
    return Call(_result(args[0].type, args[0].type.scale), _nullable(args), op, args)


def _result(type: SqlType, scale: int) -> SqlType:
    if type.kind is Kind.INT:
        return BIGINT
    return DOUBLE if type.kind is Kind.DOUBLE else decimal(MAX_DECIMAL_DIGITS, scale)


def _doubles_or_exact(args: Args) -> Args:
    numbers = tuple(as_number(a) for a in args)
    if any(n.type.kind is Kind.DOUBLE for n in numbers):
        return tuple(cast(n, DOUBLE) for n in numbers)
    return numbers


def _product(op: str, args: Args) -> Expr:
    args = _doubles_or_exact(args)
    scale = args[0].type.scale + args[1].type.scale
    if scale > MAX_DECIMAL_DIGITS:
        raise not_supported(f"a product with {scale} digits after the point", "cast a factor to fewer digits")
    exact = next((a.type for a in args if a.type.kind is not Kind.INT), BIGINT)
    return Call(_result(exact, scale), _nullable(args), op, args)


def _quotient(op: str, args: Args) -> Expr:
    """DECIMAL with four digits more than the dividend; NULL when the divisor is zero."""
    args = _doubles_or_exact(args)
    if args[0].type.kind is Kind.DOUBLE:
        return Call(DOUBLE, True, op, args)
    return Call(decimal(MAX_DECIMAL_DIGITS, min(args[0].type.scale + 4, MAX_DECIMAL_DIGITS)), True, op, args)


def _whole_quotient(op: str, args: Args) -> Expr:
    return Call(BIGINT, True, op, _aligned(args))


def _remainder(op: str, args: Args) -> Expr:
    args = _aligned(args)
    return Call(_result(args[0].type, args[0].type.scale), True, op, args)


def _signed(op: str, args: Args) -> Expr:
    """neg, abs."""
    a = as_number(args[0])
    return Call(_result(a.type, a.type.scale), a.nullable, op, (a,))


def _rounded(op: str, args: Args) -> Expr:
    """round(x[, digits]): half away from zero; the digits are a constant."""
    a = as_number(args[0])
    digits = args[1] if len(args) > 1 else literal(0)
    if not isinstance(digits, Const) or not isinstance(digits.value, int):
        raise not_supported("ROUND to a number of digits that is not an integer literal", "write the digits out")
    if a.type.kind is Kind.DECIMAL:
        scale = min(max(digits.value, 0), a.type.scale)
        return Call(decimal(MAX_DECIMAL_DIGITS, scale), a.nullable, op, (a, digits))
    return Call(_result(a.type, 0), a.nullable, op, (a, digits))


def _to_whole(op: str, args: Args) -> Expr:
    """floor, ceil: an integer stays what it is."""
    a = as_number(args[0])
    if a.type.kind is Kind.INT:
        return a
    return Call(DOUBLE if a.type.kind is Kind.DOUBLE else BIGINT, a.nullable, op, (a,))


# ------------------------------------------------------------------ comparisons and logic
def _comparison(op: str, args: Args) -> Expr:
    """A constant stands on the right."""
    a, b = comparable(*args)
    if isinstance(a, Const) and not isinstance(b, Const):
        a, b, op = b, a, FLIPPED[op]
    if op == "nseq" and a.type.is_number and (a.type.kind, a.type.scale) != (b.type.kind, b.type.scale):
        a, b = _aligned((a, b))
    return Call(BOOL, op != "nseq" and (a.nullable or b.nullable), op, (a, b))


def _in(op: str, args: Args) -> Expr:
    """One `in` of constants; whatever does not compare with the first argument as it is becomes `or` of eq."""
    x, plain, other = args[0], [], []
    for item in args[1:]:
        left, right = comparable(x, item)
        if left is x and isinstance(right, Const) and right.value is not None and _same_codes(x, right):
            plain.append(right)
        else:
            other.append(call("eq", x, item))
    terms = [call("eq", x, plain[0])] if len(plain) == 1 else []
    if len(plain) > 1:
        unique = sorted(dict.fromkeys(plain), key=lambda c: (str(c.type.collation), c.value))
        terms = [Call(BOOL, x.nullable, op, (x, *unique))]
    return call("or", *terms, *other) if len(terms) + len(other) > 1 else (terms + other)[0]


def _same_codes(x: Expr, item: Const) -> bool:
    scales = [e.type.scale if e.type.kind is Kind.DECIMAL else 0 for e in (x, item)]
    return scales[0] == scales[1]


def _like(op: str, args: Args) -> Expr:
    text, pattern, *rest = (cast(a, TEXT) if not a.type.is_text else a for a in args)
    escape = rest[0] if rest else literal("\\")
    if not isinstance(escape, Const) or len(escape.value or "") > 1:
        raise SqlError(1210, "HY000", "Incorrect arguments to ESCAPE: it takes one character")
    return Call(BOOL, text.nullable or pattern.nullable, op, (text, pattern, escape))


def _junction(op: str, args: Args) -> Expr:
    """and, or: flat, without repeated or neutral terms."""
    neutral, final = (TRUE, FALSE) if op == "and" else (FALSE, TRUE)
    terms: dict[Expr, None] = {}
    for a in map(truth, args):
        for term in a.args if isinstance(a, Call) and a.op == op else (a,):
            if term == final:
                return final
            if term != neutral:
                terms[term] = None
    flat = tuple(terms)
    if len(flat) < 2:
        return flat[0] if flat else neutral
    return Call(BOOL, _nullable(flat), op, flat)


def _not(op: str, args: Args) -> Expr:
    """Into comparisons, through other negations; else `not`."""
    a = truth(args[0])
    if isinstance(a, Call) and a.op in NEGATED:
        return replace(a, op=NEGATED[a.op])
    if isinstance(a, Call) and a.op == "not":
        return a.args[0]
    return Call(BOOL, a.nullable, op, (a,))


def _xor(op: str, args: Args) -> Expr:
    args = tuple(map(truth, args))
    return Call(BOOL, _nullable(args), op, args)


def _is_null(op: str, args: Args) -> Expr:
    a = args[0]
    if not a.nullable and isinstance(a, Col):
        return FALSE
    return Call(BOOL, False, op, (a,))


def _is_true(op: str, args: Args) -> Expr:
    return Call(BOOL, False, op, (truth(args[0]),))


# ------------------------------------------------------------------ choices
def _branches(args: Args) -> tuple[SqlType, Args]:
    """The branches cast to one type; NULLs take any."""
    type = common_type([a.type for a in args if not (isinstance(a, Const) and a.value is None)])
    return type, tuple(cast(a, type) for a in args)


def _coalesce(op: str, args: Args) -> Expr:
    """Nothing after an argument that is never NULL; type of all that were written."""
    type, args = _branches(args)
    args = tuple(a for a in args if not (isinstance(a, Const) and a.value is None))
    certain = next((i for i, a in enumerate(args) if not a.nullable), None)
    if certain is not None:
        args = args[: certain + 1]
    if len(args) < 2:
        return args[0] if args else Const(type, True, None)
    return Call(type, certain is None, op, args)


def _if(op: str, args: Args) -> Expr:
    type, branches = _branches(args[1:])
    return Call(type, _nullable(branches), op, (truth(args[0]), *branches))


def _case(op: str, args: Args) -> Expr:
    if len(args) % 2 == 0:
        args = (*args, NULL)
    type, values = _branches((*args[1::2], args[-1]))
    pairs = [x for c, v in zip(args[:-1:2], values, strict=False) for x in (truth(c), v)]
    return Call(type, _nullable(values), op, (*pairs, values[-1]))


def _nullif(op: str, args: Args) -> Expr:
    return call("if", call("eq", *args), Const(args[0].type, True, None), args[0])


# ------------------------------------------------------------------ text
def _text(op: str, args: Args) -> Expr:
    """concat, lower, upper, trim: BIN when an argument is."""
    texts = tuple(a if a.type.is_text else cast(a, TEXT) for a in args)
    return Call(common_type([TEXT, *(replace(a.type, length=0) for a in texts)]), _nullable(texts), op, texts)


def _length(op: str, args: Args) -> Expr:
    a = args[0] if args[0].type.is_text else cast(args[0], TEXT)
    return Call(BIGINT, a.nullable, op, (a,))


def _substring(op: str, args: Args) -> Expr:
    text = args[0] if args[0].type.is_text else cast(args[0], TEXT)
    numbers = tuple(cast(as_number(a), BIGINT) if a.type.kind is not Kind.INT else a for a in args[1:])
    return Call(replace(text.type, length=0), _nullable((text, *numbers)), op, (text, *numbers))


_MANY = 1 << 16
_FUNCTIONS: dict[str, tuple[int, int, Callable[[str, Args], Expr]]] = {
    **dict.fromkeys(("add", "sub"), (2, 2, _sum)),
    "mul": (2, 2, _product),
    "div": (2, 2, _quotient),
    "intdiv": (2, 2, _whole_quotient),
    "mod": (2, 2, _remainder),
    **dict.fromkeys(("neg", "abs"), (1, 1, _signed)),
    "round": (1, 2, _rounded),
    **dict.fromkeys(("floor", "ceil"), (1, 1, _to_whole)),
    **dict.fromkeys(FLIPPED, (2, 2, _comparison)),
    "in": (2, _MANY, _in),
    "like": (2, 3, _like),
    **dict.fromkeys(("and", "or"), (1, _MANY, _junction)),
    "not": (1, 1, _not),
    "xor": (2, 2, _xor),
    "is_null": (1, 1, _is_null),
    "is_true": (1, 1, _is_true),
    "coalesce": (1, _MANY, _coalesce),
    "if": (3, 3, _if),
    "case": (2, _MANY, _case),
    "nullif": (2, 2, _nullif),
    "concat": (1, _MANY, _text),
    **dict.fromkeys(("lower", "upper", "trim"), (1, 1, _text)),
    **dict.fromkeys(("length", "char_length"), (1, 1, _length)),
    "substring": (2, 3, _substring),
}


# ------------------------------------------------------------------ trees
def rebuilt(e: Expr, column: Callable[[Col], Expr]) -> Expr:
    """The expression with every column replaced, types and nullability worked out again."""
    if isinstance(e, Col):
        return column(e)
    if not isinstance(e, Call):
        return e
    args = tuple(rebuilt(a, column) for a in e.args)
    return cast(args[0], e.type) if e.op == "cast" else call(e.op, *args)


def with_values(e: Expr, values: Sequence[Any]) -> Expr:
    """The expression with the values of its parameters, typed anew."""
    if isinstance(e, Param):
        return literal(values[e.index])
    if not isinstance(e, Call):
        return e
    args = tuple(with_values(a, values) for a in e.args)
    if args == e.args:
        return e
    return cast(args[0], e.type) if e.op == "cast" else call(e.op, *args)


def canonical(e: Expr) -> Expr:
    """The same condition or value for every way to write it that differs in the order of operands only."""
    if not isinstance(e, Call):
        return e
    args = tuple(map(canonical, e.args))
    if e.op in ("and", "or"):
        args = tuple(sorted(args, key=str))
    elif e.op in FLIPPED and not isinstance(args[1], Const) and str(args[1]) < str(args[0]):
        return replace(e, op=FLIPPED[e.op], args=args[::-1])
    return replace(e, args=args)


def conjunction(terms: Sequence[Expr]) -> Expr | None:
    """All of the terms as one canonical condition; None when that is no condition at all."""
    e = canonical(call("and", TRUE, *terms))
    return None if e == TRUE else e
