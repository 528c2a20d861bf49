"""Translates aggregate functions to `AggCall` leaves, which `sql.query` replaces by columns of groupings.

    STDDEV_SAMP(x)      sqrt(variance(x) * count(x) / nullif(count(x) - 1, 0))
    JSON_ARRAYAGG(x)    json_listed(group_concat(json_item(x) separator ', '))

Call `aggregate_of`.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from noria.core.errors import SqlError, parse_error
from noria.core.errors.codes import INVALID_GROUP_FUNC_USE
from noria.core.expressions.expr import Const, Expr
from noria.core.expressions.functions import HexLiteral, as_number, call, cast, literal
from noria.core.types import BIGINT, JSON, TEXT, UBIGINT, Field, SqlType
from noria.plan.calls import BIT_FUNCTIONS, agg
from noria.sql.expressions.leaves import AggCall, ConcatCall, GroupingCall
from noria.sql.expressions.resolving import Operands
from noria.sql.text.refusals import refuse
from noria.sql.text.syntax import check_parts

KNOWN = ("there are COUNT, SUM, MIN, MAX, AVG, ANY_VALUE, STDDEV, VARIANCE and their variants, BIT_AND, BIT_OR, "
         "BIT_XOR, GROUP_CONCAT, JSON_ARRAYAGG, JSON_OBJECTAGG, and over windows ROW_NUMBER, RANK, DENSE_RANK, "
         "PERCENT_RANK, CUME_DIST, NTILE, LAG, LEAD, FIRST_VALUE, LAST_VALUE, NTH_VALUE")
_PLAIN: dict[type[exp.Expr], str] = {
    exp.Sum: "sum", exp.Min: "min", exp.Max: "max", exp.Avg: "avg",
    exp.AnyValue: "min",  # the same value in a view, a one-shot and on Spark
    exp.BitwiseAndAgg: "bit_and", exp.BitwiseOrAgg: "bit_or", exp.BitwiseXorAgg: "bit_xor"}
_SPREADS: dict[type[exp.Expr], tuple[bool, bool]] = {  # whether of a sample, and whether its root
    exp.VariancePop: (False, False), exp.Variance: (True, False),
    exp.StddevPop: (False, True), exp.Stddev: (False, True), exp.StddevSamp: (True, True)}


def aggregate_of(r: Operands, node: exp.Expr) -> Expr | None:
    """Translate an aggregate function; None for any other node.  Raises error 1111 where aggregates are not allowed."""
    if type(node) in _PLAIN:
        return _aggregate(r, node, _PLAIN[type(node)])
    name = node.name.upper() if isinstance(node, exp.Anonymous) else ""
    made = _OTHERS.get(type(node)) or _NAMED.get(name)
    return None if made is None else made(r, node)


def _count(r: Operands, node: exp.Expr) -> Expr:
    _allowed(r, node)
    check_parts(node, frozenset({"this", "expressions", "big_int"}), "COUNT")
    this = node.this
    if node.expressions or this is None or (isinstance(this, exp.Distinct) and not this.expressions):
        raise parse_error(f"near '{node.sql(dialect='mysql')}': COUNT takes one argument")
    if isinstance(this, exp.Star):
        return AggCall(BIGINT, False, "count_star", None)
    if isinstance(this, exp.Distinct):
        first, *more = map(r.of_arguments(), this.expressions)
        return AggCall(BIGINT, False, "count", first, True, tuple(more))
    return _count_of(r.of_arguments()(this))


def _count_of(argument: Expr) -> AggCall:
    if not argument.nullable:
        return AggCall(BIGINT, False, "count_star", None)
    return AggCall(BIGINT, False, "count", argument)


def _aggregate(r: Operands, node: exp.Expr, function: str) -> Expr:
    _allowed(r, node)
    check_parts(node, frozenset({"this"}), function.upper())
    this, distinct = node.this, False
    if isinstance(this, exp.Distinct):
        distinct = function not in ("min", "max")
        argument = _distinct_argument(r, node, this)
    else:
        argument = r.of_arguments()(this)
    if argument.type.is_bit and isinstance(node, exp.Min | exp.Max):
        argument = cast(argument, UBIGINT)
    if argument.type.is_listed and function in ("min", "max"):
        argument = cast(argument, TEXT)  # MySQL compares ENUM and SET as text here
    argument = as_number(argument) if function in ("sum", "avg") else argument
    if function in BIT_FUNCTIONS:
        _no_distinct(node, this, function.upper())
        literal_bits = isinstance(argument, Const) and isinstance(argument.value, HexLiteral)
        if argument.type.is_bytes and not literal_bits:
            raise refuse(f"{function.upper()} of binary strings", node, "store the bits as BIGINT")
        return AggCall(aggregate_type(function, literal(0)), False, function, cast(as_number(argument), BIGINT))
    return AggCall(aggregate_type(function, argument), True, function, argument, distinct)


def aggregate_type(function: str, argument: Expr) -> SqlType:
    return agg(function, 0, (Field("", argument.type, True),)).type


def any_value(e: Expr) -> Expr:
    """ANY_VALUE(e): the least one, which is the same in a view, a one-shot and on Spark."""
    e = cast(e, TEXT) if e.type.is_listed else e
    return AggCall(aggregate_type("min", e), True, "min", e)


def _distinct_argument(r: Operands, node: exp.Expr, distinct: exp.Expr) -> Expr:
    if len(distinct.expressions) != 1:
        raise refuse("DISTINCT of several expressions", node)
    return r.of_arguments()(distinct.expressions[0])


def _allowed(r: Operands, node: exp.Expr) -> None:
    if not r.aggregates:
        raise SqlError(*INVALID_GROUP_FUNC_USE,
                       f"Invalid use of group function: {node.sql(dialect='mysql')} in {r.clause}")


def _no_distinct(node: exp.Expr, argument: exp.Expr | None, name: str) -> None:
    """MySQL's grammar has DISTINCT in COUNT, SUM, AVG, MIN, MAX and GROUP_CONCAT only."""
    if isinstance(argument, exp.Distinct):
        raise parse_error(f"near '{node.sql(dialect='mysql')}': {name} takes no DISTINCT")


# ------------------------------------------------------------------ variance
def _spread(r: Operands, node: exp.Expr) -> Expr:
    """VAR_POP, VAR_SAMP, STDDEV_POP, STDDEV_SAMP and their synonyms.  Of a sample of one value: NULL."""
    _allowed(r, node)
    sample, root = _SPREADS[type(node)]
    check_parts(node, frozenset({"this"}), "STDDEV" if root else "VARIANCE")
    _no_distinct(node, node.this, "STDDEV" if root else "VARIANCE")
    argument = as_number(r.of_arguments()(node.this))
    found: Expr = AggCall(aggregate_type("variance", argument), True, "variance", argument)
    if sample:
        n = _count_of(argument)
        found = call("div", call("mul", found, n), call("nullif", call("sub", n, literal(1)), literal(0)))
    return call("sqrt", found) if root else found


# ------------------------------------------------------------------ lists
def _group_concat(r: Operands, node: exp.Expr) -> Expr:
    """GROUP_CONCAT([DISTINCT] x, … [ORDER BY …] [SEPARATOR s])"""
    _allowed(r, node)
    check_parts(node, frozenset({"this", "separator"}), "GROUP_CONCAT")
    this, by = node.this, []
    if isinstance(this, exp.Order):
        this, by = this.this, this.expressions
    distinct = isinstance(this, exp.Distinct)
    inner = r.of_arguments()
    shown = this.expressions if distinct else [this]
    if len(shown) == 1 and isinstance(shown[0], exp.Concat):  # how sqlglot writes several arguments
        shown = shown[0].expressions
    values = [inner(e) for e in shown]
    order = [(values[0] if isinstance(o.this, exp.Literal) else inner(o.this), bool(o.args.get("desc"))) for o in by]
    text = values[0] if len(values) == 1 else call("concat", *values)
    text = text if text.type.is_text else cast(text, TEXT)
    separator = node.args.get("separator")
    compared = tuple(values) if len(values) > 1 and distinct else ()
    return ConcatCall(text.type, True, "group_concat", text, distinct, compared,
                      tuple((e, d) for e, d in order if not isinstance(e, Const)),
                      "," if separator is None else str(separator.this))


def _json_arrayagg(r: Operands, node: exp.Expr) -> Expr:
    """JSON_ARRAYAGG(x)"""
    _allowed(r, node)
    if len(node.expressions) != 1:
        raise parse_error(f"near '{node.sql(dialect='mysql')}': JSON_ARRAYAGG takes one argument")
    _no_distinct(node, node.expressions[0], "JSON_ARRAYAGG")
    item = call("json_item", r.of_arguments()(node.expressions[0]))
    return call("json_listed", ConcatCall(JSON, True, "json_arrayagg", item, separator=", "))


def _json_objectagg(r: Operands, node: exp.Expr) -> Expr:
    """JSON_OBJECTAGG(key, value).  Of the values of one key, the one whose text is last in byte order is kept."""
    _allowed(r, node)
    check_parts(node, frozenset({"expressions"}), "JSON_OBJECTAGG")
    pair, inner = node.expressions[0], r.of_arguments()
    _no_distinct(node, pair.this, "JSON_OBJECTAGG")
    made = call("json_pair", inner(pair.this), inner(pair.expression))
    return call("json_paired", ConcatCall(JSON, True, "json_objectagg", made, separator=", "))


def _grouping(r: Operands, node: exp.Expr) -> Expr:
    """GROUPING(a, …)"""
    _allowed(r, node)
    return GroupingCall(BIGINT, False, tuple(map(r.of_arguments(), node.expressions)))


_OTHERS: dict[type[exp.Expr], Callable[[Operands, exp.Expr], Expr]] = {
    exp.Count: _count, exp.GroupConcat: _group_concat, exp.Grouping: _grouping,
    exp.JSONObjectAgg: _json_objectagg,
    **dict.fromkeys(_SPREADS, _spread)}
_NAMED = {"JSON_ARRAYAGG": _json_arrayagg}
