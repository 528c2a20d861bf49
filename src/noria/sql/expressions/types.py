"""Translates MySQL's type names to `SqlType`: `column_type` for definitions, `cast_type` for CAST."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sqlglot import exp

from noria.core.errors import SqlError, parse_error
from noria.core.errors.codes import (
    DUPLICATED_VALUE_IN_TYPE,
    ILLEGAL_VALUE_FOR_TYPE,
    M_BIGGER_THAN_D,
    TOO_BIG_DISPLAYWIDTH,
    TOO_BIG_FIELDLENGTH,
    TOO_BIG_PRECISION,
    TOO_BIG_SCALE,
    WRONG_FIELD_SPEC,
)
from noria.core.limits import MAX_DECIMAL_DIGITS
from noria.core.symbols import fold
from noria.core.types import (
    BIGINT,
    BOOL,
    BYTES,
    DATE,
    DATETIME,
    DOUBLE,
    JSON,
    TEXT,
    TIME,
    YEAR,
    Collation,
    Kind,
    SqlType,
    decimal,
)
from noria.sql.text.refusals import refuse
from noria.sql.text.syntax import snippet

_D = exp.DataType.Type
_INTS = {_D.TINYINT: 8, _D.SMALLINT: 16, _D.MEDIUMINT: 24, _D.INT: 32, _D.BIGINT: 64}
_UINTS = {_D.UTINYINT: 8, _D.USMALLINT: 16, _D.UMEDIUMINT: 24, _D.UINT: 32, _D.UBIGINT: 64}
UFLOAT = _D.UINT256  # stands for FLOAT UNSIGNED, for which sqlglot has no type (`text/syntax.py`)
_DOUBLES = {_D.DOUBLE, _D.FLOAT, _D.UDOUBLE, UFLOAT}
_TEXTS = {_D.TEXT: "", _D.TINYTEXT: "tinytext", _D.MEDIUMTEXT: "mediumtext", _D.LONGTEXT: "longtext"}
_BLOBS = {_D.BLOB: "blob", _D.TINYBLOB: "tinyblob", _D.MEDIUMBLOB: "mediumblob", _D.LONGBLOB: "longblob"}
_KNOWN = {*_INTS, *_UINTS, *_DOUBLES, *_TEXTS, *_BLOBS, _D.BOOLEAN, _D.DECIMAL, _D.UDECIMAL, _D.VARCHAR, _D.CHAR,
          _D.NVARCHAR, _D.NCHAR, _D.DATE, _D.DATETIME, _D.TIMESTAMP, _D.TIMESTAMPTZ, _D.TIME, _D.YEAR, _D.JSON,
          _D.BINARY, _D.VARBINARY, _D.ENUM, _D.SET, _D.BIT}
DECIMAL_DIGITS = 65  # of a declaration; of a value MAX_DECIMAL_DIGITS
WIDE_SCALE = 12  # digits behind the point that values of a type of more than MAX_DECIMAL_DIGITS have at least
DOUBLE_DIGITS = 255  # of FLOAT(M,D) and DOUBLE(M,D)
MOST_SCALE = 30  # of these and of DECIMAL
MAX_VARCHAR = 16383  # characters of a row in utf8mb4
MAX_VARBINARY = 65_535
MAX_MEMBERS = {Kind.ENUM: 65_535, Kind.SET: 63}  # a mask of 64 members would not fit an int64


def collation(name: str) -> Collation:
    """The collation for a name: exact for `_bin` and `binary`, else ignoring case and accents."""
    return Collation.BIN if name.lower().endswith("_bin") or name.lower() == "binary" else Collation.CI


def column_type(node: exp.DataType) -> SqlType:
    """The type of a column definition.  Raises SqlError for an unsupported type or size."""
    kind = node.this
    if kind not in _KNOWN:
        raise refuse(f"the type {node.sql(dialect='mysql')}", node,
                     "there are integers, DECIMAL, FLOAT, DOUBLE, CHAR, TEXT, BINARY, BLOB, DATE, DATETIME, TIMESTAMP, "
                     "TIME, YEAR, BIT, ENUM, SET, JSON, BOOL")
    if kind in (_D.ENUM, _D.SET):
        return _members(node, Kind.ENUM if kind is _D.ENUM else Kind.SET)
    parameters = [_number(p) for p in node.expressions]
    if kind in _INTS or kind in _UINTS:
        if kind is _D.TINYINT and parameters == [1]:
            return BOOL
        return SqlType(Kind.INT, bits=_INTS.get(kind) or _UINTS[kind], unsigned=kind in _UINTS)
    if kind is _D.BOOLEAN:
        return BOOL
    if kind is _D.BIT:
        return _bit(parameters)
    if kind in _DOUBLES:
        return _double(node, kind, parameters)
    if kind in (_D.DECIMAL, _D.UDECIMAL):
        return _decimal(parameters, kind is _D.UDECIMAL)
    if kind in (_D.VARCHAR, _D.CHAR, _D.NVARCHAR, _D.NCHAR):
        return _text(parameters, kind in (_D.CHAR, _D.NCHAR))
    if kind in _TEXTS:
        return replace(TEXT, declared=_TEXTS[kind])
    if kind in _BLOBS or kind in (_D.BINARY, _D.VARBINARY):
        return _bytes(kind, parameters)
    if kind in _PLAIN:
        return _PLAIN[kind]
    fraction = parameters[0] if parameters else 0
    if fraction > 6:
        raise SqlError(*TOO_BIG_PRECISION, f"Too-big precision {fraction} specified. Maximum is 6")
    if kind is _D.TIME:
        return replace(TIME, scale=fraction)
    return replace(DATETIME, scale=fraction, timestamp=kind is not _D.DATETIME)


_PLAIN = {_D.DATE: DATE, _D.JSON: JSON, _D.YEAR: YEAR}


def _bit(parameters: list[int]) -> SqlType:
    bits = parameters[0] if parameters else 1
    if not 1 <= bits <= 64:
        raise SqlError(*TOO_BIG_DISPLAYWIDTH, f"Display width out of range for BIT({bits}): it has 1 to 64 bits")
    return SqlType(Kind.INT, unsigned=True, precision=bits, declared="bit")


def _bytes(kind: Any, parameters: list[int]) -> SqlType:
    if kind in _BLOBS:
        return replace(BYTES, declared=_BLOBS[kind])
    length, fixed = parameters[0] if parameters else 1, kind is _D.BINARY
    if length > (255 if fixed else MAX_VARBINARY):
        raise SqlError(*TOO_BIG_FIELDLENGTH,
                       f"Column length {length} is too big (max = {255 if fixed else MAX_VARBINARY}); "
                       "use BLOB instead")
    return replace(BYTES, length=length, declared="binary" if fixed else "varbinary")


def _members(node: exp.DataType, kind: Kind) -> SqlType:
    members = tuple(m.this.rstrip(" ") for m in node.expressions if isinstance(m, exp.Literal) and m.is_string)
    if len(members) < len(node.expressions) or not members:
        raise refuse(f"such members of {kind.name}", node, "list them as strings")
    if len(members) > MAX_MEMBERS[kind]:
        raise refuse(f"more than {MAX_MEMBERS[kind]} members of a {kind.name}", node)
    if len({fold(m) for m in members}) < len(members):
        raise SqlError(*DUPLICATED_VALUE_IN_TYPE, f"{kind.name} has a duplicated value: {node.sql(dialect='mysql')}")
    if kind is Kind.SET and any("," in m for m in members):
        raise SqlError(*ILLEGAL_VALUE_FOR_TYPE, f"Illegal set '{','.join(members)}' value found during parsing")
    return SqlType(kind, members=members)


def cast_type(node: exp.DataType) -> SqlType:
    """The type of a CAST.  CHAR and BINARY without a length are unlimited there."""
    if node.this is _D.BINARY:
        return replace(BYTES, length=_number(node.expressions[0]), declared="binary") if node.expressions else BYTES
    if node.this in (_D.ENUM, _D.SET):
        raise refuse(f"a cast to {node.sql(dialect='mysql')}", node)
    if node.this is _D.CHAR and not node.expressions:
        return TEXT
    if node.this is _D.CHARACTER_SET:
        return TEXT
    if node.this is _D.BIGINT:
        return BIGINT
    if node.this in (_D.TIMESTAMP, _D.TIMESTAMPTZ):  # the literal TIMESTAMP'…', a DATETIME: MySQL has no such cast
        digits = len(node.parent.name.partition(".")[2]) if isinstance(node.parent, exp.Cast) else 0
        return replace(DATETIME, scale=min(digits, 6))
    type = column_type(node)
    if type.kind is Kind.DECIMAL and type.length:  # a value computed here would be rounded to fewer digits
        raise SqlError(*TOO_BIG_SCALE, f"Too big scale {type.scale + type.length} specified for a cast to {type.sql()}."
                                       f" Maximum is {type.scale} here: values have {MAX_DECIMAL_DIGITS} digits. Use "
                                       "DOUBLE, or fewer digits behind the point")
    return type


def _number(node: exp.Expr) -> int:
    inner = node.this if isinstance(node, exp.DataTypeParam) else node
    if not isinstance(inner, exp.Literal) or not inner.this.isdigit():
        raise refuse("such a length", node)
    return int(inner.this)


def _decimal(parameters: list[int], unsigned: bool) -> SqlType:
    precision, scale = (*parameters, 10, 0)[:2] if len(parameters) != 1 else (parameters[0], 0)
    if scale > precision:
        raise SqlError(*M_BIGGER_THAN_D, f"For decimal(M,D), M must be >= D: decimal({precision},{scale})")
    if precision > DECIMAL_DIGITS:
        raise SqlError(*TOO_BIG_PRECISION, f"Too-big precision {precision} specified for DECIMAL. "
                                           f"Maximum is {DECIMAL_DIGITS}.")
    if scale > MOST_SCALE:
        raise SqlError(*TOO_BIG_SCALE, f"Too big scale {scale} specified for a column. Maximum is {MOST_SCALE}.")
    zeros = 0
    if precision > MAX_DECIMAL_DIGITS and scale > WIDE_SCALE:
        zeros = scale - max(WIDE_SCALE, MAX_DECIMAL_DIGITS - (precision - scale))
    return replace(decimal(precision - zeros, scale - zeros), unsigned=unsigned, length=zeros)


def _double(node: exp.DataType, kind: Any, parameters: list[int]) -> SqlType:
    """The type of FLOAT and DOUBLE.  FLOAT(p) of more than 24 bits is DOUBLE; (M,D) rounds to D digits."""
    is_float = kind in (_D.FLOAT, UFLOAT)
    if len(parameters) == 1 and not is_float:
        raise parse_error(f"DOUBLE takes no or two numbers of digits, near '{snippet(node)}'")
    precision, scale = parameters if len(parameters) == 2 else (0, 0)
    if scale > MOST_SCALE:
        raise SqlError(*TOO_BIG_SCALE, f"Too big scale {scale} specified for a column. Maximum is {MOST_SCALE}.")
    if precision > DOUBLE_DIGITS:
        raise SqlError(*TOO_BIG_DISPLAYWIDTH, f"Display width out of range for a column (max = {DOUBLE_DIGITS})")
    if scale > precision:
        raise SqlError(*M_BIGGER_THAN_D, f"For float(M,D) and double(M,D), M must be >= D: ({precision},{scale})")
    bits = parameters[0] if len(parameters) == 1 else 24
    if bits > 53:
        raise SqlError(*WRONG_FIELD_SPEC, "Incorrect column specifier: FLOAT(p) has 53 bits at most")
    return replace(DOUBLE, unsigned=kind in (_D.UDOUBLE, UFLOAT), bits=32 if is_float and bits <= 24 else 64,
                   precision=precision, scale=scale)


def _text(parameters: list[int], fixed: bool) -> SqlType:
    length = parameters[0] if parameters else 1
    if length > MAX_VARCHAR or (fixed and length > 255):
        raise SqlError(*TOO_BIG_FIELDLENGTH,
                       f"Column length {length} is too big (max = {255 if fixed else MAX_VARCHAR}); "
                       "use TEXT instead")
    return replace(TEXT, length=length, declared="char" if fixed else "")
