"""Lowers expression trees (`core/expressions/expr.py`) to Spark columns with the same values as `evaluate.py`.

Inputs and results are coded columns (`coding.py`).  A Spark expression is used if it is equal for every value.  If not
(numbers that MySQL reads from text, accents), an Arrow UDF runs the kernels' evaluator: slower, but exact.

Keeps true: three-valued logic.  An error in an argument is an error of the result, unless a short-cut ignores it.
Integer results beyond int64 are errors.  Division is exact and rounds half away from zero; by zero it returns NULL.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import pyspark.sql.functions as F
from pyspark.sql import Column
from pyspark.sql import types as T

from noria.core import values
from noria.core.errors import SqlError
from noria.core.expressions.casts import clips
from noria.core.expressions.evaluate import constant
from noria.core.expressions.expr import Call, Col, Const, Expr, columns_of, is_unrounded, substitute
from noria.core.limits import ERROR_CODE, MIN_INT, SPARK_ARGUMENTS
from noria.core.types import BOOL, Kind, SqlType
from noria.spark.lowering import coding, fallback
from noria.spark.lowering.coding import WIDE, divided_half_away, error_literal, is_error, narrowed

NO_SYMBOLS: Any = None  # for values whose codes need no symbol table


@dataclass(frozen=True)
class LoweredValue:
    """A lowered expression as a coded column.  `fails`: the column can hold an error.  `truth`: the same value as a
    Spark boolean (NULL for unknown), for boolean expressions that cannot fail."""

    column: Column
    type: SqlType
    fails: bool = False
    truth: Column | None = None


def lower(e: Expr, inputs: Sequence[LoweredValue]) -> LoweredValue:
    """Lower the expression; its `Col` i is input i."""
    if isinstance(e, Col):
        return inputs[e.index]
    if isinstance(e, Const):
        return LoweredValue(_literal(e.value, e.type), e.type)
    assert isinstance(e, Call), e
    exact = e.op == "total" or any(map(is_unrounded, e.args))
    if exact and not columns_of(e):
        return _constant(e)
    if (exact or len(e.args) > SPARK_ARGUMENTS) and columns_of(e):
        return _entirely_by_kernel(e, inputs)
    args = [lower(a, inputs) for a in e.args]
    native = NATIVE.get(e.op)
    lowered = native(e, args) if native else None
    return lowered if lowered is not None else _by_kernel(e, args)


def _constant(e: Call) -> LoweredValue:
    try:
        return LoweredValue(_literal(constant(e), e.type), e.type)
    except SqlError:
        return LoweredValue(error_literal(e.type), e.type, True)


def condition(v: LoweredValue) -> Column:
    """Return the condition of a filter: it keeps rows whose value is true, neither NULL nor an error."""
    return v.truth if v.truth is not None else v.column == F.lit(1)


# ------------------------------------------------------------------ text
def folded(column: Column) -> Column:
    """Return the folded twin of a text column: Spark's `lower` for ASCII, `core/symbols.fold` for other text."""
    ascii_only = F.octet_length(column) == F.char_length(column)
    slow = F.arrow_udf(fallback.fold_texts, T.StringType())
    return F.when(ascii_only, F.lower(column)).otherwise(slow(F.when(~ascii_only, column)))


def equality_key(column: Column, t: SqlType) -> Column:
    """Return the column that `=` compares: the folded twin of CI text, else the column itself."""
    return folded(column) if t.folds else column


# ------------------------------------------------------------------ building blocks
def _literal(value: Any, t: SqlType) -> Column:
    """Return a constant's code as a column."""
    if value is None:
        return F.lit(None).cast(coding.coded_type(t))
    if t.kind is Kind.DOUBLE:
        return F.lit(float(value) + 0.0)
    if t.is_text:
        return F.lit(value.decode("latin-1") if isinstance(value, bytes) else value)
    return F.lit(values.encode(value, t, NO_SYMBOLS)).cast("bigint")


def _guarded(result: Column, t: SqlType, args: Sequence[LoweredValue], own: bool = False) -> LoweredValue:
    """Make the result an error if an argument is one.  `own`: the result itself can be an error, too."""
    failing = [is_error(a.column, a.type) for a in args if a.fails]
    if failing:
        result = F.when(reduce(Column.__or__, failing), error_literal(t)).otherwise(result)
    return LoweredValue(result, t, bool(failing) or own)


def _boolean(truth: Column, args: Sequence[LoweredValue], t: SqlType = BOOL) -> LoweredValue:
    """Return a boolean result that is an error if any argument is one."""
    if not any(a.fails for a in args):
        return LoweredValue(truth.cast("bigint"), t, truth=truth)
    return _guarded(truth.cast("bigint"), t, args)


def _truth(v: LoweredValue) -> Column:
    return v.truth if v.truth is not None else v.column != F.lit(0)


def _known(args: Sequence[LoweredValue]) -> Column:
    return reduce(Column.__and__, [a.column.isNotNull() for a in args])


def _power(n: int) -> Column:
    return F.lit(str(10**n)).cast("decimal(19,0)")


def _wide(v: LoweredValue, scale: int) -> Column:
    """Return an exact number as decimal(38,0) units of 10**-scale.  `scale` is at least the number's own."""
    by = scale - v.type.scale
    wide = v.column.cast("decimal(19,0)")
    return (wide * _power(by)).cast(WIDE) if by else wide.cast(WIDE)


def _as_double(v: LoweredValue) -> Column:
    """Convert any number to the nearest double."""
    if v.type.kind is Kind.DECIMAL and v.type.scale:
        return coding.to_shown(v.column, v.type).cast("double")
    return v.column.cast("double")


def _rescaled(column: Column, digits: int) -> Column:
    """Return an exact number * 10**digits as decimal(38,0), rounded half away from zero."""
    wide = column.cast("decimal(19,0)")
    if digits >= 0:
        return (wide * _power(digits)).cast(WIDE)
    return divided_half_away(wide.cast(WIDE), _power(-digits))


def _finite(column: Column) -> Column:
    return F.when(F.abs(column) == F.lit(float("inf")), F.lit(float("nan"))).otherwise(column + F.lit(0.0))


# ------------------------------------------------------------------ arithmetic
def _arithmetic(op: str) -> Callable[[Call, list[LoweredValue]], LoweredValue | None]:
    on_ints = {"add": F.try_add, "sub": F.try_subtract, "mul": F.try_multiply}[op]
    on_any = {"add": Column.__add__, "sub": Column.__sub__, "mul": Column.__mul__}[op]

    def lowered(e: Call, args: list[LoweredValue]) -> LoweredValue | None:
        a, b = args
        if e.type.kind is Kind.DOUBLE:
            return _guarded(_finite(on_any(_as_double(a), _as_double(b))), e.type, args, own=True)
        if e.type.kind is Kind.INT:
            r = on_ints(a.column, b.column)
            least = F.lit(0 if e.type.unsigned else MIN_INT)
            result = F.when(r >= least, r).when(_known(args), F.lit(ERROR_CODE))
            return _guarded(result, e.type, args, own=True)
        if e.type.kind is not Kind.DECIMAL:
            return None
        if op != "mul":
            wide = on_any(_wide(a, e.type.scale), _wide(b, e.type.scale)).cast(WIDE)
            return _guarded(narrowed(wide), e.type, args, own=True)
        wide = (_wide(a, a.type.scale) * _wide(b, b.type.scale)).cast(WIDE)
        surplus = a.type.scale + b.type.scale - e.type.scale
        if surplus > 0:
            wide = divided_half_away(wide, _power(surplus))
        return _guarded(narrowed(wide), e.type, args, own=True)

    return lowered


def _div(e: Call, args: list[LoweredValue]) -> LoweredValue | None:
    a, b = args
    if e.type.kind is Kind.DOUBLE:
        divisor = F.when(_as_double(b) != 0.0, _as_double(b))
        return _guarded(_finite(_as_double(a) / divisor), e.type, args, own=True)
    shift = e.type.scale + b.type.scale - a.type.scale
    if e.type.kind is not Kind.DECIMAL or not 0 <= shift <= 18:  # more digits than decimal(38,0) has
        return None
    numerator = (a.column.cast("decimal(19,0)") * _power(shift)).cast(WIDE)
    return _guarded(narrowed(divided_half_away(numerator, b.column.cast("decimal(19,0)"))), e.type, args, own=True)


def _intdiv(e: Call, args: list[LoweredValue]) -> LoweredValue | None:
    a, b = args
    if a.type.kind is Kind.DOUBLE:
        return None
    quotient = F.call_function("div", a.column, F.when(b.column != 0, b.column))
    if e.type.unsigned:
        return _guarded(F.when(quotient < 0, F.lit(ERROR_CODE)).otherwise(quotient), e.type, args, own=True)
    return _guarded(quotient, e.type, args)


def _mod(e: Call, args: list[LoweredValue]) -> LoweredValue | None:
    a, b = args
    return _guarded(a.column % F.when(b.column != 0, b.column), e.type, args)


def _signed(f: Callable[[Column], Column]) -> Callable[[Call, list[LoweredValue]], LoweredValue | None]:
    def lowered(e: Call, args: list[LoweredValue]) -> LoweredValue | None:
        zero = F.lit(0.0) if e.type.kind is Kind.DOUBLE else F.lit(0)
        return _guarded(f(args[0].column) + zero, e.type, args, own=True)  # -(2**63 - 1) is ERROR_CODE

    return lowered


def _round(e: Call, args: list[LoweredValue]) -> LoweredValue | None:
    a, digits = args[0], e.args[1].value if isinstance(e.args[1], Const) else 0
    if a.type.kind is Kind.DOUBLE or not 0 <= digits <= 18:
        return None
    down = max(a.type.scale - digits, 0)
    if not down:
        return LoweredValue(a.column, e.type, a.fails)
    return _guarded(_rescaled(a.column, -down).cast("bigint"), e.type, args)


def _floor_or_ceil(up: bool) -> Callable[[Call, list[LoweredValue]], LoweredValue | None]:
    """Lower `floor` (or `ceil`, if `up`) of exact numbers."""

    def lowered(e: Call, args: list[LoweredValue]) -> LoweredValue | None:
        a = args[0]
        if a.type.kind is Kind.DOUBLE:
            return None
        unit = F.lit(10**a.type.scale).cast("bigint")
        below = F.pmod(a.column, unit)
        floor = F.call_function("div", a.column, unit) - F.when((a.column < 0) & (below != 0), 1).otherwise(0)
        result = floor + F.when(below != 0, 1).otherwise(0) if up else floor
        return _guarded(result.cast("bigint"), e.type, args)

    return lowered


def _cast(e: Call, args: list[LoweredValue]) -> LoweredValue | None:
    """Lower the casts that Spark does exactly.  Return None for others: the kernels cast from text and from doubles."""
    a, source, target = args[0], args[0].type, e.type
    exact = (Kind.INT, Kind.DECIMAL)
    if target.kind is Kind.DOUBLE and source.kind in exact and target.bits == 64:
        return _guarded(_as_double(a), target, args)
    if target.kind in exact and source.kind in exact:
        low, high = coding.code_bounds(target)
        wide = _rescaled(a.column, target.scale - source.scale)
        fits = (wide >= F.lit(str(low)).cast(WIDE)) & (wide <= F.lit(str(high)).cast(WIDE))
        result = F.when(fits, wide.cast("bigint"))
        if clips(target):
            result = result.when(wide > F.lit(str(high)).cast(WIDE), F.lit(high))
            result = result.when(wide.isNotNull(), F.lit(low if low < 0 else ERROR_CODE))
        else:
            result = result.when(wide.isNotNull(), F.lit(ERROR_CODE))
        return _guarded(result, target, args, own=True)
    if (source.kind, target.kind) == (Kind.DATE, Kind.DATETIME):
        return LoweredValue(a.column, target, a.fails)
    if source.kind in (Kind.DATE, Kind.DATETIME) and target.kind is Kind.DATE:
        return _guarded(a.column - F.pmod(a.column, F.lit(coding.DAY_US)), target, args)
    if source.is_text and target.is_text and not target.length:
        if source.is_bytes != target.is_bytes or source.is_json != target.is_json:
            return None
        return LoweredValue(a.column, target, a.fails)
    if source.kind is Kind.INT and target.is_text and not target.length and source.declared != "year":
        return _guarded(a.column.cast("string"), target, args)
    return None


# ------------------------------------------------------------------ comparison
def _sides(a: LoweredValue, b: LoweredValue) -> tuple[Column, Column] | None:
    """Return two columns that Spark compares as MySQL compares the values, or None."""
    if a.type.is_text and b.type.is_text:
        if a.type.folds and b.type.folds:
            return folded(a.column), folded(b.column)
        return a.column, b.column
    if a.type.is_text or b.type.is_text:
        return None
    if a.type.is_number != b.type.is_number:
        return None
    if not a.type.is_number:
        return a.column, b.column
    if Kind.DOUBLE in (a.type.kind, b.type.kind):
        return _as_double(a), _as_double(b)
    if a.type.scale == b.type.scale:
        return a.column, b.column
    scale = max(a.type.scale, b.type.scale)
    return _wide(a, scale), _wide(b, scale)


def _comparison(compare: Callable[[Column, Column], Column]) -> Callable[[Call, list[LoweredValue]],
                                                                         LoweredValue | None]:
    def lowered(e: Call, args: list[LoweredValue]) -> LoweredValue | None:
        sides = _sides(args[0], args[1])
        return None if sides is None else _boolean(compare(*sides), args, e.type)

    return lowered


def _in(e: Call, args: list[LoweredValue]) -> LoweredValue | None:
    """Lower `a IN (b, …)` to an OR of equalities."""
    sides = [_sides(args[0], b) for b in args[1:]]
    if any(s is None for s in sides) or any(a.fails for a in args):
        return None
    return _boolean(reduce(Column.__or__, [s[0] == s[1] for s in sides if s is not None]), args, e.type)


# ------------------------------------------------------------------ logic
def _connective(join: Callable[[Column, Column], Column], decisive: int
                ) -> Callable[[Call, list[LoweredValue]], LoweredValue | None]:
    """Lower AND or OR.  A decisive argument (false for AND, true for OR) decides even if others are errors."""

    def lowered(e: Call, args: list[LoweredValue]) -> LoweredValue | None:
        truth = reduce(join, [_truth(a) for a in args])
        if not any(a.fails for a in args):
            return LoweredValue(truth.cast("bigint"), e.type, truth=truth)
        decided = reduce(Column.__or__, [F.coalesce(_truth(a) == F.lit(bool(decisive)), F.lit(False))
                                         & ~is_error(a.column, a.type) for a in args])
        guarded = _guarded(truth.cast("bigint"), e.type, args)
        return LoweredValue(F.when(decided, F.lit(decisive).cast("bigint")).otherwise(guarded.column), e.type, True)

    return lowered


def _not(e: Call, args: list[LoweredValue]) -> LoweredValue | None:
    return _boolean(~_truth(args[0]), args, e.type)


def _xor(e: Call, args: list[LoweredValue]) -> LoweredValue | None:
    return _boolean(_truth(args[0]) != _truth(args[1]), args, e.type)


def _is_null(e: Call, args: list[LoweredValue]) -> LoweredValue | None:
    return _boolean(args[0].column.isNull(), args, e.type)


def _is_true(e: Call, args: list[LoweredValue]) -> LoweredValue | None:
    return _boolean(F.coalesce(_truth(args[0]), F.lit(False)), args, e.type)


# ------------------------------------------------------------------ choice
def _coalesce(e: Call, args: list[LoweredValue]) -> LoweredValue | None:
    return LoweredValue(F.coalesce(*(a.column for a in args)), e.type, any(a.fails for a in args))


def _case(e: Call, args: list[LoweredValue]) -> LoweredValue | None:
    """Lower case(condition, value, …, else): the value of the first true condition.  `if` is its shortest form."""
    pairs, rest = list(zip(args[:-1:2], args[1::2], strict=False)), args[-1]
    if any(c.fails for c, _ in pairs):
        return None
    result = rest.column
    for c, v in reversed(pairs):
        result = F.when(condition(c) if c.truth is not None else _truth(c), v.column).otherwise(result)
    return LoweredValue(result, e.type, rest.fails or any(v.fails for _, v in pairs))


def _may(e: Call, args: list[LoweredValue]) -> LoweredValue | None:
    true = F.coalesce(args[0].column != F.lit(0), F.lit(False))  # an error counts as true: its code is not 0
    return LoweredValue(true.cast("bigint"), e.type, truth=true)


def _with_errors_of(e: Call, args: list[LoweredValue]) -> LoweredValue | None:
    first, *rest = args
    failing = reduce(Column.__or__, [is_error(a.column, a.type) for a in rest])
    return LoweredValue(F.when(failing, error_literal(e.type)).otherwise(first.column), e.type, True)


def _retype(e: Call, args: list[LoweredValue]) -> LoweredValue | None:
    return LoweredValue(args[0].column, e.type, args[0].fails)


# ------------------------------------------------------------------ text functions
def _text_function(f: Callable[[Column], Column]) -> Callable[[Call, list[LoweredValue]], LoweredValue | None]:
    def lowered(e: Call, args: list[LoweredValue]) -> LoweredValue | None:
        if not all(a.type.is_text and not a.type.is_bytes for a in args):
            return None
        return _guarded(f(args[0].column), e.type, args)

    return lowered


def _concat(e: Call, args: list[LoweredValue]) -> LoweredValue | None:
    if not all(a.type.is_text for a in args):
        return None
    return _guarded(F.concat(*(a.column for a in args)), e.type, args)


# ------------------------------------------------------------------ the fallback
def _by_kernel(e: Call, args: list[LoweredValue]) -> LoweredValue:
    """Evaluate the call by `evaluate.py` in an Arrow UDF."""
    leaf = Call(e.type, e.nullable, e.op, tuple(
        a if isinstance(a, Const) else Col(a.type, a.nullable, i) for i, a in enumerate(e.args)))
    types = tuple(a.type for a in e.args)
    run = F.arrow_udf(fallback.evaluator(leaf, types), coding.coded_type(e.type))
    return LoweredValue(run(*(v.column for v in args)), e.type, True)


def _entirely_by_kernel(e: Call, inputs: Sequence[LoweredValue]) -> LoweredValue:
    """Evaluate the call and its arguments in one UDF: Spark would nest one operator for each of its many arguments."""
    used = sorted(columns_of(e))
    places = {c: i for i, c in enumerate(used)}
    leaf = substitute(e, lambda c: Col(c.type, c.nullable, places[c.index]))
    types = tuple(inputs[c].type for c in used)
    run = F.arrow_udf(fallback.evaluator(leaf, types), coding.coded_type(e.type))
    return LoweredValue(run(*(inputs[c].column for c in used)), e.type, True)


NATIVE: dict[str, Callable[[Call, list[LoweredValue]], LoweredValue | None]] = {
    "add": _arithmetic("add"), "sub": _arithmetic("sub"), "mul": _arithmetic("mul"), "div": _div,
    "intdiv": _intdiv, "mod": _mod, "neg": _signed(Column.__neg__), "abs": _signed(F.abs),
    "round": _round, "floor": _floor_or_ceil(False), "ceil": _floor_or_ceil(True), "cast": _cast,
    "eq": _comparison(Column.__eq__), "ne": _comparison(Column.__ne__),
    "lt": _comparison(Column.__lt__), "le": _comparison(Column.__le__),
    "gt": _comparison(Column.__gt__), "ge": _comparison(Column.__ge__),
    "nseq": _comparison(Column.eqNullSafe), "in": _in,
    "and": _connective(Column.__and__, 0), "or": _connective(Column.__or__, 1), "not": _not, "xor": _xor,
    "is_null": _is_null, "is_true": _is_true,
    "coalesce": _coalesce, "if": _case, "case": _case, "retype": _retype, "may": _may, "told": _with_errors_of,
    "concat": _concat, "length": _text_function(F.octet_length), "char_length": _text_function(F.char_length),
}
