"""Makes typed calls of comparisons, three-valued logic, choices and CONCAT.

    eq ne lt le gt ge nseq in like                       comparisons, to BOOL
    and or not xor is_null is_true                       three-valued logic, to BOOL
    coalesce if case nullif greatest least concat        any type

Keeps true, for the evaluators:
* Compared values have one kind, or are INT and DECIMAL.  Decimals may have different scales, except under nseq.
* Text is compared exactly if one side is BIN.
* `in` has only constants after its first argument, and none is NULL.
* Conditions are BOOL codes: 1, 0, NULL or an error.
* case(condition, value, …, else) always has an else, and like(text, pattern, escape) an escape.
* The branches of a choice have the result's type, but texts may have any length.
"""

from __future__ import annotations

from dataclasses import replace

from noria.core.errors import SqlError
from noria.core.errors.codes import WRONG_ARGUMENTS
from noria.core.expressions.evaluate import NEGATED
from noria.core.expressions.expr import Call, Col, Const, Expr, is_unrounded
from noria.core.expressions.functions.base import (
    FALSE,
    MANY,
    NULL,
    TRUE,
    TYPING,
    Args,
    aligned,
    as_moment,
    call,
    cast,
    common_type,
    comparable,
    literal,
    nullable,
    truth,
)
from noria.core.expressions.library.declare import text_of
from noria.core.types import BOOL, BYTES, MOMENTS, TEXT, TEXT_BIN, Kind, SqlType

FLIPPED = {"eq": "eq", "ne": "ne", "nseq": "nseq", "lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}


def _comparison(op: str, args: Args) -> Expr:
    """Make a comparison with a constant on the right."""
    if (known := _beyond_integers(op, *args)) is not None:
        return known
    a, b = comparable(args[0], args[1], op)
    if isinstance(a, Const) and not isinstance(b, Const):
        a, b, op = b, a, FLIPPED[op]
    if op == "nseq" and a.type.is_number and (a.type.kind, a.type.scale) != (b.type.kind, b.type.scale):
        a, b = aligned((a, b))
    return Call(BOOL, op != "nseq" and (a.nullable or b.nullable), op, (a, b))


def _beyond_integers(op: str, a: Expr, b: Expr) -> Expr | None:
    """The comparison of an integer with a literal integer that no column can hold; None for another one."""
    if isinstance(a, Const) and type(a.value) is int and a.type.kind is Kind.DOUBLE:
        a, b, op = b, a, FLIPPED[op]
    if not isinstance(b, Const) or type(b.value) is not int or b.type.kind is not Kind.DOUBLE or (
            a.type.kind is not Kind.INT):
        return None
    holds = op == "ne" or ((op in ("lt", "le")) == (b.value > 0) and op not in ("eq", "nseq"))
    if op == "nseq" or not a.nullable:
        return TRUE if holds else FALSE
    return call("if", call("is_null", a), Const(BOOL, True, None), TRUE if holds else FALSE)


def _in(op: str, args: Args) -> Expr:
    """Make one `in` of constants.  Items that do not compare with the first argument as it is become terms with eq."""
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
    if is_unrounded(x):
        return False
    scales = [e.type.scale if e.type.kind is Kind.DECIMAL else 0 for e in (x, item)]
    return scales[0] == scales[1]


def _like(op: str, args: Args) -> Expr:
    text, pattern, *rest = (cast(a, TEXT_BIN if a.type.is_bytes else TEXT) if not a.type.is_text or a.type.is_bytes
                            else a for a in args)
    escape = rest[0] if rest else literal("\\")
    if not isinstance(escape, Const) or len(escape.value or "") > 1:
        raise SqlError(*WRONG_ARGUMENTS, "Incorrect arguments to ESCAPE: it takes one character")
    return Call(BOOL, text.nullable or pattern.nullable, op, (text, pattern, escape))


def _junction(op: str, args: Args) -> Expr:
    """Make a flat `and` or `or` without repeated and neutral terms."""
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
    return Call(BOOL, nullable(flat), op, flat)


def _not(op: str, args: Args) -> Expr:
    """Negate a condition: turn comparisons around, remove a double `not`, and otherwise add a `not`."""
    a = truth(args[0])
    if isinstance(a, Call) and a.op in NEGATED:
        return replace(a, op=NEGATED[a.op])
    if isinstance(a, Call) and a.op == "not":
        return a.args[0]
    return Call(BOOL, a.nullable, op, (a,))


def _xor(op: str, args: Args) -> Expr:
    args = tuple(map(truth, args))
    return Call(BOOL, nullable(args), op, args)


def _is_null(op: str, args: Args) -> Expr:
    a = args[0]
    if not a.nullable and isinstance(a, Col):
        return FALSE
    return Call(BOOL, False, op, (a,))


def _is_true(op: str, args: Args) -> Expr:
    return Call(BOOL, False, op, (truth(args[0]),))


# ------------------------------------------------------------------ choices
def _branches(args: Args) -> tuple[SqlType, Args]:
    """Cast the branches of a choice to one type.  NULL fits any type."""
    type = common_type([a.type for a in args if not (isinstance(a, Const) and a.value is None)])
    return type, tuple(cast(a, type) for a in args)


def _coalesce(op: str, args: Args) -> Expr:
    """Make a coalesce without the arguments after one that is never NULL.  All arguments determine its type."""
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
    return Call(type, nullable(branches), op, (truth(args[0]), *branches))


def _case(op: str, args: Args) -> Expr:
    if len(args) % 2 == 0:
        args = (*args, NULL)
    type, values = _branches((*args[1::2], args[-1]))
    pairs = [x for c, v in zip(args[:-1:2], values, strict=False) for x in (truth(c), v)]
    return Call(type, nullable(values), op, (*pairs, values[-1]))


def _extreme(op: str, args: Args) -> Expr:
    """Make `greatest` or `least` of arguments of one type.  Beside dates, a literal is read as a date."""
    if any(a.type.kind in MOMENTS for a in args):
        args = tuple(as_moment(a) if isinstance(a, Const) and isinstance(a.value, str) else a for a in args)
    type, args = _branches(args)
    return Call(type, nullable(args), op, args)


def _nullif(op: str, args: Args) -> Expr:
    return call("if", call("eq", *args), Const(args[0].type, True, None), args[0])


# ------------------------------------------------------------------ text
def _concat(op: str, args: Args) -> Expr:
    """Make a concat.  It is bytes if an argument is, otherwise BIN if one is."""
    texts = tuple(a if a.type.is_text else cast(a, BYTES if a.type.is_bit else TEXT) for a in args)
    type = text_of(tuple(t.type for t in texts))
    return Call(type, nullable(texts), op, tuple(cast(t, type) if type.is_bytes else t for t in texts))


TYPING.update({
    **dict.fromkeys(FLIPPED, (2, 2, _comparison)),
    "in": (2, MANY, _in),
    "like": (2, 3, _like),
    **dict.fromkeys(("and", "or"), (1, MANY, _junction)),
    "not": (1, 1, _not),
    "xor": (2, 2, _xor),
    "is_null": (1, 1, _is_null),
    "is_true": (1, 1, _is_true),
    "coalesce": (1, MANY, _coalesce),
    "if": (3, 3, _if),
    "case": (2, MANY, _case),
    "nullif": (2, 2, _nullif),
    **dict.fromkeys(("greatest", "least"), (2, MANY, _extreme)),
    "concat": (1, MANY, _concat),
})
