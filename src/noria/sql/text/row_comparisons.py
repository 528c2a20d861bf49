"""Replaces comparisons of rows by comparisons of values.  Call `expanded` on each parsed statement.

    (a, b) = (1, 2)          a = 1 AND b = 2                        each may be a key of the lookup
    (a, b) <> (1, 2)         a <> 1 OR b <> 2
    (a, b) < (1, 2)          a <= 1 AND (a < 1 OR b < 2)            a <= 1 may be a range of the lookup
    ROW(a, b)                (a, b)

Keeps true: NULL has the effect that MySQL gives it.  A parameter that occurs twice stays one parameter.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from noria.core.errors import SqlError
from noria.core.errors.codes import OPERAND_COLUMNS

_EQUALITIES: dict[type[exp.Expr], type[exp.Connector]] = {exp.EQ: exp.And, exp.NEQ: exp.Or, exp.NullSafeEQ: exp.And}
_ORDERS: dict[type[exp.Expr], tuple[type[exp.Binary], type[exp.Binary]]] = {
    exp.LT: (exp.LT, exp.LTE), exp.LTE: (exp.LT, exp.LTE), exp.GT: (exp.GT, exp.GTE), exp.GTE: (exp.GT, exp.GTE)}


def expanded(nodes: Sequence[exp.Expr]) -> bool:
    """Rewrite the tree of these nodes in place.  Returns whether it has changed.  nodes: all of them, from the top."""
    changed = False
    for node in reversed(nodes):
        if isinstance(node, exp.Anonymous) and len(node.expressions) > 1 and node.name.upper() == "ROW":
            node.replace(exp.Tuple(expressions=node.expressions))
            changed = True
        elif (type(node) in _EQUALITIES or type(node) in _ORDERS) and node.parent is not None:
            left, right = node.this.unnest(), node.expression.unnest()
            if isinstance(left, exp.Tuple) and isinstance(right, exp.Tuple):
                new = exp.Paren(this=_compared(type(node), left.expressions, right.expressions))
                new.meta.update(node.meta)
                node.replace(new)
                changed = True
    return changed


def _compared(kind: type[exp.Expr], left: list[exp.Expr], right: list[exp.Expr]) -> exp.Expr:
    if len(left) != len(right):
        raise SqlError(*OPERAND_COLUMNS, f"Operand should contain {len(left)} column(s)")
    pairs = [(a.unnest(), b.unnest()) for a, b in zip(left, right, strict=True)]
    terms = [_one(kind, a, b) for a, b in pairs] if kind in _EQUALITIES else []
    if not terms:
        return _ordered(kind, pairs)
    found = terms[-1]
    for term in reversed(terms[:-1]):
        found = exp.Paren(this=_EQUALITIES[kind](this=term, expression=found))
    return found


def _one(kind: type[exp.Expr], a: exp.Expr, b: exp.Expr) -> exp.Expr:
    """The comparison of two columns of rows, which may be rows themselves."""
    if isinstance(a, exp.Tuple) and isinstance(b, exp.Tuple):
        return exp.Paren(this=_compared(kind, a.expressions, b.expressions))
    return kind(this=a.copy(), expression=b.copy())


def _ordered(kind: type[exp.Expr], pairs: list[tuple[exp.Expr, exp.Expr]]) -> exp.Expr:
    """(a, …) < (x, …)   →   a <= x AND (a < x OR (…) < (…))"""
    (a, b), *rest = pairs
    if not rest:
        return _one(kind, a, b)
    strict, weak = _ORDERS[kind]
    either = exp.Or(this=_one(strict, a, b), expression=exp.Paren(this=_ordered(kind, rest)))
    return exp.And(this=_one(weak, a, b), expression=exp.Paren(this=either))
