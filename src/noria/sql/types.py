"""MySQL's type names to `SqlType`, for column definitions and CAST."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from noria.core.errors import SqlError
from noria.core.limits import MAX_DECIMAL_DIGITS
from noria.core.types import (
    BIGINT,
    BOOL,
    DATE,
    DATETIME,
    DOUBLE,
    TEXT,
    TEXT_BIN,
    Collation,
    Kind,
    SqlType,
    decimal,
)
from noria.sql.refusals import refuse

_D = exp.DataType.Type
_INTS = {_D.TINYINT: 8, _D.SMALLINT: 16, _D.MEDIUMINT: 24, _D.INT: 32, _D.BIGINT: 64}
_UINTS = {_D.UTINYINT: 8, _D.USMALLINT: 16, _D.UMEDIUMINT: 24, _D.UINT: 32, _D.UBIGINT: 64}
_DOUBLES = {_D.DOUBLE, _D.FLOAT, _D.UDOUBLE}
_TEXTS = {_D.TEXT, _D.TINYTEXT, _D.MEDIUMTEXT, _D.LONGTEXT}
_KNOWN = {*_INTS, *_UINTS, *_DOUBLES, *_TEXTS, _D.BOOLEAN, _D.DECIMAL, _D.UDECIMAL, _D.VARCHAR, _D.CHAR, _D.NVARCHAR,
          _D.NCHAR, _D.DATE, _D.DATETIME, _D.TIMESTAMP, _D.TIMESTAMPTZ}
MAX_VARCHAR = 16383  # characters of a row in utf8mb4


def collation(name: str) -> Collation:
    """Which of the two collations a name means: exact for `_bin`, else without case and accents."""
    return Collation.BIN if name.lower().endswith("_bin") or name.lower() == "binary" else Collation.CI


def column_type(node: exp.DataType) -> SqlType:
    """The type of a column definition or a cast."""
    kind = node.this
    if kind not in _KNOWN:
        raise refuse(f"the type {node.sql(dialect='mysql')}", node,
                     "there are integers, DECIMAL, DOUBLE, VARCHAR and TEXT, DATE, DATETIME, BOOL")
    parameters = [_number(p) for p in node.expressions]
    if kind in _INTS or kind in _UINTS:
        if kind is _D.TINYINT and parameters == [1]:
            return BOOL
        return SqlType(Kind.INT, bits=_INTS.get(kind) or _UINTS[kind], unsigned=kind in _UINTS)
    if kind is _D.BOOLEAN:
        return BOOL
    if kind in _DOUBLES:
        if parameters:
            raise refuse("DOUBLE and FLOAT with a number of digits", node, "use DECIMAL, or DOUBLE without digits")
        return replace(DOUBLE, unsigned=kind is _D.UDOUBLE)
    if kind in (_D.DECIMAL, _D.UDECIMAL):
        return _decimal(parameters, kind is _D.UDECIMAL)
    if kind in (_D.VARCHAR, _D.CHAR, _D.NVARCHAR, _D.NCHAR):
        return _text(parameters, kind in (_D.CHAR, _D.NCHAR))
    if kind in _TEXTS:
        return TEXT
    if kind is _D.DATE:
        return DATE
    fraction = parameters[0] if parameters else 0
    if fraction > 6:
        raise SqlError(1426, "42000", f"Too-big precision {fraction} specified. Maximum is 6")
    return replace(DATETIME, scale=fraction, timestamp=kind is not _D.DATETIME)


def cast_type(node: exp.DataType) -> SqlType:
    """The type of CAST: CHAR without a length has none, BINARY is text compared exactly."""
    if node.this is _D.BINARY:
        return TEXT_BIN
    if node.this is _D.CHAR and not node.expressions:
        return TEXT
    if node.this is _D.CHARACTER_SET:
        return TEXT
    if node.this is _D.BIGINT:
        return BIGINT
    return column_type(node)


def _number(node: exp.Expr) -> int:
    inner = node.this if isinstance(node, exp.DataTypeParam) else node
    if not isinstance(inner, exp.Literal) or not inner.this.isdigit():
        raise refuse("such a length", node)
    return int(inner.this)


def _decimal(parameters: list[int], unsigned: bool) -> SqlType:
    precision, scale = (*parameters, 10, 0)[:2] if len(parameters) != 1 else (parameters[0], 0)
    if scale > precision:
        raise SqlError(1427, "42000", f"For decimal(M,D), M must be >= D: decimal({precision},{scale})")
    if precision > MAX_DECIMAL_DIGITS:
        raise SqlError(1426, "42000", f"Too-big precision {precision} specified for DECIMAL. "
                                      f"Maximum is {MAX_DECIMAL_DIGITS} here")
    return replace(decimal(precision, scale), unsigned=unsigned)


def _text(parameters: list[int], fixed: bool) -> SqlType:
    length = parameters[0] if parameters else 1
    if length > MAX_VARCHAR or (fixed and length > 255):
        raise SqlError(1074, "42000", f"Column length {length} is too big (max = {255 if fixed else MAX_VARCHAR}); "
                                      "use TEXT instead")
    return replace(TEXT, length=length)
