"""Classifies the uses of `?` in a maintained query: a key of the lookup, or a condition over the looked-up rows.

    a = ?, a IN (?, 3), a = ? OR a = ?, a <=> ?      a key: a column of the view with its lookup
    a > ?, a BETWEEN ? AND ?                         a key that is looked up by ranges, if there is no other key
    s LIKE ?, a + b > ?, COUNT(*) > ? in HAVING      conditions over the rows that a lookup finds (`plan/after.py`)

In an ad-hoc SELECT a literal is a key like a parameter if the column's type can represent it.  So is a literal range,
unless the text groups or has parameters: literals beside parameters are taken as constants.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from noria.core.errors import SqlError
from noria.core.errors.codes import BAD_FIELD
from noria.core.expressions.expr import Call, Col, Const, Expr, Param, conjuncts, walk
from noria.core.expressions.functions import FLIPPED, call
from noria.core.types import BIGINT, TEXT, Kind
from noria.plan.lookups import AnyOf, Bound, Key, NullSafe, One, Parameter, Range, Value
from noria.sql.expressions.scalars import Resolver, literal_value
from noria.sql.text.refusals import NotMaintained, not_maintained
from noria.sql.text.trees import has

_COMPARES = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.Add, exp.Sub, exp.Mul, exp.Div,
             exp.IntDiv, exp.Mod)
_ORDERED = (Kind.INT, Kind.DECIMAL, Kind.DOUBLE, Kind.DATE, Kind.DATETIME)  # codes are ordered like the values
_RANGES = (exp.LT, exp.LTE, exp.GT, exp.GTE)
_CASTS = (exp.Cast, exp.Collate, exp.TsOrDsToDate)
INSTEAD = "compare a column with it: `column = ?`, `column < ?`, `column IN (?)`, `column LIKE ?`"


def has_parameter(node: exp.Expr) -> bool:
    return has(node, exp.Placeholder)


# ------------------------------------------------------------------ keys
def key_term(term: exp.Expr, resolve: Resolver, adhoc: bool) -> Key[Expr] | None:
    """Read a term of WHERE as a key; None if it is not one."""
    if isinstance(term, (exp.EQ, exp.NullSafeEQ)):
        found = _equality(term, resolve, adhoc)
        return Key(NullSafe(found.lookup), found.column) if found and isinstance(term, exp.NullSafeEQ) else found
    if isinstance(term, (exp.In, exp.Or, exp.Paren)):
        column, values = _any_of(term, resolve, adhoc)
        if column is not None and values:
            return Key(AnyOf(tuple(dict.fromkeys(values))), column)
    return None


@dataclass(frozen=True)
class _Equality(Key[Expr]):
    """`column = one`."""

    lookup: One


def _equality(term: exp.Expr, resolve: Resolver, adhoc: bool) -> _Equality | None:
    a, b = term.this.unnest(), term.expression.unnest()
    if isinstance(a, exp.Placeholder):
        a, b = b, a
    if isinstance(b, exp.Placeholder) and not has_parameter(a):
        return _Equality(Parameter(int(b.this)), resolve(a))
    if not adhoc or has_parameter(term) or isinstance(a, exp.Tuple):
        return None
    found = _literal(resolve, a, b) or _literal(resolve, b, a)
    return None if found is not None and found.lookup == Value(None) and not isinstance(term, exp.NullSafeEQ) else found


def _literal(resolve: Resolver, a: exp.Expr, b: exp.Expr) -> _Equality | None:
    """Read `column = literal` as a key; None unless the literal is NULL or the column's type can represent it."""
    if not isinstance(a, exp.Column) or isinstance(b, (exp.Column, exp.Tuple)):
        return None
    if isinstance(b, exp.Null):
        column = resolve(a)
        return _Equality(Value(None), column) if isinstance(column, Col) else None
    e = call("eq", resolve(a), resolve(b))
    if not isinstance(e, Call) or e.op != "eq":
        return None
    column, value = e.args
    if not isinstance(column, Col) or not isinstance(value, Const) or value.value is None:
        return None
    exact = column.type.kind is value.type.kind and (
        column.type.scale >= value.type.scale and (value.type.folds or not column.type.folds))
    integer = column.type.kind is Kind.DECIMAL and value.type.kind is Kind.INT
    return _Equality(Value(value.value), column) if (exact or integer) and not column.type.is_json else None


def _any_of(term: exp.Expr, resolve: Resolver, adhoc: bool) -> tuple[Expr | None, list[One]]:
    """The expression that an IN, or an OR of equalities, compares, and its values; (None, []) for any other term."""
    if isinstance(term, exp.Paren):
        return _any_of(term.this, resolve, adhoc)
    if isinstance(term, exp.Or):
        left, right = _any_of(term.this, resolve, adhoc), _any_of(term.expression, resolve, adhoc)
        return (left[0], left[1] + right[1]) if left[0] is not None and left[0] == right[0] else (None, [])
    if isinstance(term, exp.EQ):
        found = _equality(term, resolve, adhoc)
        return (None, []) if found is None else (found.column, [found.lookup])
    if not isinstance(term, exp.In) or not term.expressions or term.args.get("query") is not None:
        return None, []
    if isinstance(term.this, exp.Tuple) or has_parameter(term.this):
        return None, []
    values: list[One] = []
    for item in term.expressions:
        if isinstance(item, exp.Placeholder):
            values.append(Parameter(int(item.this)))
            continue
        found = None if has_parameter(item) else _literal(resolve, term.this, item)
        if found is None:
            return None, []
        values.append(found.lookup)
    if not adhoc and not any(isinstance(v, Parameter) for v in values):
        return None, []
    return resolve(term.this), values


# ------------------------------------------------------------------ ranges
def literal_range(term: exp.Expr, resolve: Resolver) -> bool:
    """Whether the term compares a column of numbers or dates with literals, by `<` and the like or BETWEEN."""
    if isinstance(term, exp.Between):
        column, values = term.this, [term.args["low"], term.args["high"]]
    elif isinstance(term, _RANGES):
        column, values = term.this, [term.expression]
    else:
        return False
    if not isinstance(column, exp.Column) or not all(isinstance(v, exp.Literal) for v in values):
        return False
    return resolve(column).type.kind in _ORDERED


def as_parameters(term: exp.Expr, first: int) -> tuple[exp.Expr, list[Any]]:
    """Replace the term's literals by parameters, with ordinals from `first`.  Returns the term and the values."""
    term = term.copy()
    values: list[Any] = []
    for node in list(term.find_all(exp.Literal)):
        node.replace(exp.Placeholder(this=str(first + len(values))))
        values.append(literal_value(node))
    return term, values


def range_key(terms: list[Expr], literals: dict[int, Any]) -> tuple[Key[Expr], list[Expr]] | None:
    """The range key of one column, and the terms of other columns; None if no column is compared with a parameter.

    Chooses the column with the most kinds of bounds, then the first.  `literals`: values of parameters that replaced
    literals.
    """
    bounds: dict[Col, list[Bound]] = {}
    for term in terms:
        found = _bound(term, literals)
        if found is not None:
            bounds.setdefault(found[0], []).append(found[1])
    if not bounds:
        return None
    column = max(bounds, key=lambda c: (len({b.op[0] for b in bounds[c]}), -c.index))
    rest = []
    for term in terms:
        found = _bound(term, literals)
        if found is None or found[0] != column:
            rest.append(term)
    return Key(Range(tuple(sorted(bounds[column], key=str))), column), rest


def _bound(term: Expr, literals: dict[int, Any]) -> tuple[Col, Bound] | None:
    """Read `column < ?` and the like as a column and a bound; None for any other term."""
    if not isinstance(term, Call) or term.op not in ("lt", "le", "gt", "ge"):
        return None
    (a, b), op = term.args, term.op
    if isinstance(a, Param):
        a, b, op = b, a, FLIPPED[op]
    if not isinstance(a, Col) or not isinstance(b, Param) or a.type.kind not in _ORDERED:
        return None
    return a, Bound(op, Value(literals[b.index]) if b.index in literals else Parameter(b.index))


# ------------------------------------------------------------------ conditions over the rows of a lookup
def after_terms(term: exp.Expr, resolver: Callable[[Callable[[exp.Placeholder], Expr]], Resolver]) -> list[Expr]:
    """Resolve a term to conditions in which its parameters are `Param`s.  Raises NotMaintained if that is impossible.
    `resolver`: makes a Resolver from a function that resolves parameters."""

    def guess(node: exp.Placeholder) -> Expr:
        return Param(_type_beside(node, resolver), True, int(node.this))

    def no_parameter(node: exp.Placeholder | None) -> Expr:
        raise not_maintained("a parameter here", term, INSTEAD)

    try:
        e = resolver(guess)(term)
    except NotMaintained:
        raise
    except SqlError as error:
        if error.code == BAD_FIELD.number:
            raise
        return [no_parameter(term.find(exp.Placeholder))]
    casts = [c for c in walk(e) if isinstance(c, Call) and c.op == "cast"]
    guessed = any(not isinstance(_parent(p), (*_COMPARES, exp.Like, exp.In, exp.Between, exp.MatchAgainst))
                  for p in term.find_all(exp.Placeholder))
    if term.find(*_CASTS) is None and any(guessed or any(isinstance(x, Param) for x in walk(c)) for c in casts):
        no_parameter(term.find(exp.Placeholder))
    return conjuncts(call("and", e))


def _parent(node: exp.Expr) -> exp.Expr | None:
    parent = node.parent
    while isinstance(parent, (exp.Paren, exp.Neg)):
        parent = parent.parent
    return parent


def _type_beside(node: exp.Expr, resolver: Callable[..., Resolver]) -> Any:
    """The type of the expression that the parameter is compared or computed with, so that neither side needs a cast."""
    parent = _parent(node)
    if isinstance(parent, exp.Like | exp.MatchAgainst):
        return TEXT
    other_side: exp.Expr | None = None
    if isinstance(parent, (exp.In, exp.Between)):
        other_side = parent.this
    elif isinstance(parent, _COMPARES):
        other_side = parent.expression if has_parameter(parent.this) else parent.this
    if other_side is None or has_parameter(other_side):
        return BIGINT
    return resolver(lambda p: Const(BIGINT, True, None))(other_side).type
