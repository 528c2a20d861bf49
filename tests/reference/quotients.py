"""The digits of quotients inside expressions, a row at a time with `decimal`, whose numbers carry their scale."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import ROUND_DOWN, Context, Decimal
from typing import Any

from noria.core.expressions.evaluate_exact import scale_of
from noria.core.expressions.expr import Call, Expr, is_unrounded

CONTEXT = Context(prec=400)
READERS = frozenset("""add sub mul div intdiv mod neg abs round truncate floor ceil eq ne lt le gt ge""".split())
Evaluate = Callable[[Expr, Sequence[Any]], Any]


def argument(of: Call, e: Expr, row: Sequence[Any], evaluate: Evaluate, error: object) -> Any:
    """The value of a call's argument: with all its digits if the call reads them."""
    reads = of.op in READERS or (of.op == "cast" and of.type.is_number)
    return digits_of(e, row, evaluate, error) if reads and is_unrounded(e) else evaluate(e, row)


def digits_of(e: Expr, row: Sequence[Any], evaluate: Evaluate, error: object) -> Any:
    """The value before it is rounded to the digits of its type."""
    if not is_unrounded(e):
        value = evaluate(e, row)
        return Decimal(value) if isinstance(value, int) else value
    assert isinstance(e, Call)

    def part(a: Expr) -> Any:
        return digits_of(a, row, evaluate, error)

    if e.op in ("case", "if"):
        return _padded(_chosen(e, row, part, evaluate, error), e)
    if e.op == "coalesce":
        return _padded(next((v for a in e.args if (v := part(a)) is not None), None), e)
    values = [part(a) for a in e.args[:2]] if e.op == "total" else [part(a) for a in e.args]
    if error in values:
        return error
    if None in values:
        return None
    if e.op in ("greatest", "least"):
        return _padded((max if e.op == "greatest" else min)(values), e)
    return _COMPUTED[e.op](*values)


def _chosen(e: Call, row: Sequence[Any], part: Callable[[Expr], Any], evaluate: Evaluate, error: object) -> Any:
    for condition, value in zip(e.args[:-1:2], e.args[1::2], strict=True):
        true = evaluate(condition, row)
        if true is error:
            return error
        if true:
            return part(value)
    return part(e.args[-1])


def _padded(value: Any, e: Call) -> Any:
    """All branches of a choice have the digits of the one that has most."""
    return value.quantize(Decimal(1).scaleb(-scale_of(e)), context=CONTEXT) if isinstance(value, Decimal) else value


def _quotient(a: Decimal, b: Decimal) -> Decimal | None:
    if b == 0:
        return None
    digits = [-int(x.as_tuple().exponent) for x in (a, b)]
    words = [-(-d // 9) for d in digits]
    unused = sum(9 * w - d for w, d in zip(words, digits, strict=True))
    whole = sum(words) + -(-max(4 - unused, 0) // 9)
    exact = CONTEXT.divide(a, b)
    return exact.quantize(Decimal(1).scaleb(-min(9 * whole, 63)), ROUND_DOWN, CONTEXT)


_COMPUTED: dict[str, Callable[..., Any]] = {
    "add": CONTEXT.add, "total": CONTEXT.add, "sub": CONTEXT.subtract, "mul": CONTEXT.multiply, "div": _quotient,
    "mod": lambda a, b: CONTEXT.remainder(a, b) if b else None, "neg": CONTEXT.minus, "abs": CONTEXT.abs,
    "cast": lambda a: a,
}

