"""Translates scalar expressions of the syntax tree to typed expressions.

A `Resolver` translates one tree node to one `Expr`.  Its function `column` resolves columns, `parameter` parameters.
Aggregates become `AggCall` leaves (`aggregates.py`), which only `sql.query` understands.  Unsupported nodes raise
SqlError.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from math import isinf
from typing import Any

from sqlglot import exp

from noria.core.errors import SqlError, parse_error
from noria.core.errors.codes import (
    ILLEGAL_VALUE_FOR_TYPE,
    OPERAND_COLUMNS,
    SP_DOES_NOT_EXIST,
    TOO_BIG_PRECISION,
    WRONG_PARAMCOUNT_TO_NATIVE_FCT,
)
from noria.core.expressions.expr import Const, Expr
from noria.core.expressions.functions import NULL, HexLiteral, call, cast, literal, retyped, truth
from noria.core.expressions.library.numbers import REMEMBERED
from noria.core.types import BIGINT, BYTES, TEXT, TEXT_BIN, Collation
from noria.sql.expressions.aggregates import KNOWN, aggregate_of
from noria.sql.expressions.chance import OPS
from noria.sql.expressions.fulltext import CountedWords, counted, match
from noria.sql.expressions.functions import (
    CLOCK_CLASSES,
    CLOCK_NAMES,
    extracted,
    located,
    maker_of,
    regexp,
    shifted,
)
from noria.sql.expressions.over import over_call
from noria.sql.expressions.types import cast_type, collation
from noria.sql.text.refusals import refuse
from noria.sql.text.syntax import check_parts, is_subquery, snippet

Kinds = dict[type[exp.Expr], str]
_BINARY: Kinds = {
    exp.Add: "add", exp.Sub: "sub", exp.Mul: "mul", exp.Div: "div", exp.IntDiv: "intdiv", exp.Mod: "mod",
    exp.EQ: "eq", exp.NEQ: "ne", exp.LT: "lt", exp.LTE: "le", exp.GT: "gt", exp.GTE: "ge",
    exp.NullSafeEQ: "nseq", exp.And: "and", exp.Or: "or", exp.Xor: "xor",
    exp.BitwiseOr: "bit_or", exp.BitwiseXor: "bit_xor",
    exp.BitwiseLeftShift: "shift_left", exp.BitwiseRightShift: "shift_right",
}
_UNARY: Kinds = {exp.BitwiseNot: "bit_not", exp.Floor: "floor", exp.Ceil: "ceil", exp.Soundex: "soundex"}
_VOLATILE = (exp.Rand, exp.Uuid, exp.CurrentTimestamp, exp.CurrentDate, exp.CurrentTime, exp.CurrentSchema,
             exp.CurrentUser, exp.CurrentVersion, exp.Localtime, exp.Localtimestamp, exp.UtcTimestamp, exp.UtcDate,
             exp.UtcTime)
_VOLATILE_NAMES = {"NOW", "SYSDATE", "UTC_TIMESTAMP", "UTC_DATE", "UNIX_TIMESTAMP", "LAST_INSERT_ID", "USER",
                   "SESSION_USER", "SYSTEM_USER", "CONNECTION_ID", "ROW_COUNT", "FOUND_ROWS", "SLEEP", "UUID_SHORT",
                   "GET_LOCK",
                   "RELEASE_LOCK", "RELEASE_ALL_LOCKS", "IS_FREE_LOCK", "IS_USED_LOCK"}
_WAITS = {"SLEEP": "SELECT it alone in a column, without FROM", "BENCHMARK": "measure statements from the client"}
_KNOWN = "known"  # the key of an expression in a node's meta
_OPERANDS = frozenset({"this", "expression", "typed", "safe", "big_int", "binary", "coalesce", "negate", "_type"})


@dataclass(frozen=True)
class Resolver:
    """Translates nodes when called.  `clause`: the statement's part, for errors ("where clause", "field list", …).
    `aggregates`, `clock`: whether these are allowed.  `over`: the node is the function of a window, so its arguments
    may have aggregates.  `subquery`: translates subqueries, where they are.  `identity`: what tells the row from
    others, or the group if its argument is True.  `remembers`: LAST_INSERT_ID(value) is allowed."""

    column: Callable[[str, str, str], Expr]  # name, table, clause
    parameter: Callable[[exp.Placeholder], Expr]
    clause: str
    aggregates: bool = False
    over: bool = False
    clock: bool = False
    subquery: Callable[[Resolver, exp.Expr], Expr] | None = None
    identity: Callable[[bool], Sequence[Expr]] | None = None
    remembers: bool = False

    def __call__(self, node: exp.Expr) -> Expr:
        if self.subquery is not None and is_subquery(node):
            return self.subquery(self, node)
        handler = _HANDLERS.get(type(node))
        if handler is not None:
            return handler(self, node)
        if type(node) in _BINARY:
            return self._operator(_BINARY[type(node)], node, "this", "expression")
        if type(node) in _UNARY:
            return self._operator(_UNARY[type(node)], node, "this")
        made = aggregate_of(self, node)
        if made is None:
            raise _unknown(node)
        return made

    def of_arguments(self) -> Resolver:
        """The resolver of an aggregate's arguments."""
        return replace(self, aggregates=self.over, over=False)

    def of_function(self) -> Resolver:
        """The resolver of the function of a window."""
        return replace(self, over=True)

    def _operator(self, op: str, node: exp.Expr, *names: str) -> Expr:
        check_parts(node, _OPERANDS, "an expression")
        return call(op, *(self(node.args[n]) for n in names if node.args.get(n) is not None))


def known(value: Expr) -> exp.Expr:
    """A node that stands for a translated expression."""
    node = exp.Placeholder(this="known")
    node.meta[_KNOWN] = value
    return node


def volatile(node: exp.Expr) -> str | None:
    """The name of a function of the clock, of chance or of the session; None for any other node."""
    if isinstance(node, exp.Anonymous):
        name = node.name.upper()
        timed = name in CLOCK_NAMES and not (name == "UNIX_TIMESTAMP" and node.expressions)
        return name.lower() if timed or (name in _VOLATILE_NAMES and maker_of(name) is None) else None
    return _FUNCTIONS.get(type(node), node.key) if isinstance(node, _VOLATILE) else None


_FUNCTIONS = {exp.CurrentTimestamp: "now", exp.Localtime: "now", exp.Localtimestamp: "now", exp.CurrentDate: "curdate",
              exp.CurrentTime: "curtime", exp.CurrentSchema: "database", exp.CurrentUser: "current_user",
              exp.CurrentVersion: "version", exp.UtcTimestamp: "utc_timestamp", exp.UtcDate: "utc_date",
              exp.UtcTime: "utc_time"}


def _unknown(node: exp.Expr) -> SqlError:
    if isinstance(node, (exp.Subquery, exp.Exists, exp.Select, exp.Any, exp.All)):
        return refuse("a subquery here", node, "join with it in FROM")
    if isinstance(node, exp.AggFunc):
        return refuse("this aggregate or window function here", node, KNOWN)
    if isinstance(node, exp.Interval):
        return refuse("INTERVAL here", node, "add it to a date")
    if isinstance(node, exp.Anonymous) and node.name.upper() in _WAITS:
        return refuse(f"{node.name.upper()} here", node, _WAITS[node.name.upper()])
    if isinstance(node, exp.Anonymous) and node.name.upper() not in _VOLATILE_NAMES:
        return SqlError(*SP_DOES_NOT_EXIST, f"FUNCTION {node.name} does not exist")
    if isinstance(node, (*_VOLATILE, exp.Anonymous)):
        return refuse("a function of the clock, of chance or of the session in a query or write", node,
                      "compute it in the application and pass the value")
    if isinstance(node, (exp.Parameter, exp.SessionParameter)):
        return refuse("a variable in a query or write", node, "pass its value")
    if isinstance(node, exp.Star):
        return parse_error("near '*'")
    return refuse("this expression", node)


# ------------------------------------------------------------------ leaves
def _column(r: Resolver, node: exp.Expr) -> Expr:
    assert isinstance(node, exp.Column)
    if isinstance(node.this, exp.Star):
        raise parse_error(f"near '{node.sql(dialect='mysql')}'")
    return r.column(node.name, node.table, r.clause)


def _literal(r: Resolver, node: exp.Expr) -> Expr:
    return literal(literal_value(node))


def literal_value(node: exp.Expr) -> Any:
    """The Python value of a literal node."""
    if isinstance(node, exp.Null):
        return None
    if isinstance(node, exp.Boolean):
        return bool(node.this)
    if isinstance(node, (exp.HexString, exp.BitString)):
        return _binary_literal(node)
    text = str(node.this)
    if node.args.get("is_string") or isinstance(node, exp.National):
        return text
    try:
        number = int(text) if text.isdigit() else float(text) if "e" in text.lower() else Decimal(text)
    except (ValueError, InvalidOperation):
        raise parse_error(f"'{text}' is no number, near '{snippet(node)}'") from None
    if isinstance(number, float) and isinf(number):
        raise SqlError(*ILLEGAL_VALUE_FOR_TYPE, f"Illegal double '{text}' value found during parsing")
    return number


def _binary_literal(node: exp.Expr) -> bytes:
    digits, base = str(node.this), 16 if isinstance(node, exp.HexString) else 2
    size = (len(digits) + 1) // 2 if base == 16 else (len(digits) + 7) // 8
    return HexLiteral(int(digits or "0", base).to_bytes(size, "big"))


def _negative(r: Resolver, node: exp.Expr) -> Expr:
    inner = r(node.this)
    if isinstance(inner, Const) and inner.type.is_number and inner.value is not None:
        return literal(-inner.value)
    return call("neg", inner)


def _introduced(r: Resolver, node: exp.Expr) -> Expr:
    """_utf8mb4'x', _binary'x', and _utf8mb4 0x41: the bytes or the text of a literal."""
    inner = r(node.expression)
    if isinstance(inner, Const) and isinstance(inner.value, HexLiteral):
        inner = literal(bytes(inner.value))  # with a character set it is a string, in numbers, too
    binary = str(node.this).lower() == "_binary"
    return cast(inner, BYTES if binary else TEXT) if inner.type.is_text else inner


# ------------------------------------------------------------------ logic
def _paren(r: Resolver, node: exp.Expr) -> Expr:
    return r(node.this)


def _not(r: Resolver, node: exp.Expr) -> Expr:
    return call("not", r(node.this))


def _is(r: Resolver, node: exp.Expr) -> Expr:
    this, what = r(node.this), node.expression
    if isinstance(what, exp.Null):
        return call("is_null", this)
    if isinstance(what, exp.Boolean):
        return call("is_true", this if what.this else call("not", this))
    if isinstance(what, exp.Column) and what.name.upper() == "UNKNOWN":
        return call("is_null", truth(this))
    raise refuse("this comparison", node)


def _between(r: Resolver, node: exp.Expr) -> Expr:
    check_parts(node, frozenset({"this", "low", "high"}), "BETWEEN")
    x, low, high = r(node.this), r(node.args["low"]), r(node.args["high"])
    return call("and", call("ge", x, low), call("le", x, high))


def _in(r: Resolver, node: exp.Expr) -> Expr:
    check_parts(node, frozenset({"this", "expressions", "query"}), "IN")
    if node.args.get("query") is not None:
        raise refuse("IN (SELECT …)", node, "join with the subquery in FROM")
    if isinstance(node.this, exp.Tuple):
        tests = [_row_comparison(r, exp.EQ, node.this, item) for item in node.expressions]
        return call("or", *tests)
    return call("in", r(node.this), *(r(i) for i in node.expressions))


def _row_comparison(r: Resolver, kind: type[exp.Expr], a: exp.Expr, b: exp.Expr) -> Expr:
    """(a, b) = (c, d), as equalities of the parts.  Raises error 1241 for different lengths."""
    if not isinstance(a, exp.Tuple) or not isinstance(b, exp.Tuple) or len(a.expressions) != len(b.expressions):
        raise SqlError(*OPERAND_COLUMNS, f"Operand should contain {len(a.expressions) or 1} column(s)")
    return call("and", *(call("eq", r(x), r(y)) for x, y in zip(a.expressions, b.expressions, strict=True)))


def _equal(r: Resolver, node: exp.Expr) -> Expr:
    if isinstance(node.this, exp.Tuple) or isinstance(node.expression, exp.Tuple):
        return _row_comparison(r, exp.EQ, node.this, node.expression)
    return r._operator("eq", node, "this", "expression")


def _like(r: Resolver, node: exp.Expr, escape: Expr | None = None) -> Expr:
    check_parts(node, _OPERANDS, "LIKE")
    like = call("like", r(node.this), r(node.expression), *([escape] if escape is not None else []))
    return call("not", like) if node.args.get("negate") else like


def _bits_and(r: Resolver, node: exp.Expr) -> Expr:
    """a & b.  No code can hold ~b, whose greatest bit is set; a & ~b is one operation."""
    a, b = node.this.unnest(), node.expression.unnest()
    if isinstance(a, exp.BitwiseNot) and not isinstance(b, exp.BitwiseNot):
        a, b = b, a
    if isinstance(b, exp.BitwiseNot) and not isinstance(a, exp.BitwiseNot):
        return call("bit_clear", r(a), r(b.this))
    return call("bit_and", *(_mask(r, n) for n in (a, b)))


def _mask(r: Resolver, node: exp.Expr) -> Expr:
    """An operand of &.  A literal of 2^63 or more has the bits of a negative number."""
    if isinstance(node, exp.Literal) and not node.is_string and node.this.isdigit() and len(node.this) < 21:
        value = int(node.this)
        if 2**63 + 2 <= value < 2**64:
            return literal(value - 2**64)
    return r(node)


def _signed_bits(r: Resolver, node: exp.Expr) -> Expr:
    """The 64 bits of an operation on bits as a signed number.  Its operands may have negative results, too."""
    inner = node.unnest()
    if type(inner) not in _BITS:
        return _mask(r, node)
    operands = (inner.this,) if isinstance(inner, exp.BitwiseNot) else (inner.this, inner.expression)
    return call(_BITS[type(inner)], *(_signed_bits(r, n) for n in operands))


_BITS: dict[type[exp.Expr], str] = {
    exp.BitwiseAnd: "signed_bit_and", exp.BitwiseOr: "signed_bit_or", exp.BitwiseXor: "signed_bit_xor",
    exp.BitwiseNot: "signed_bit_not", exp.BitwiseLeftShift: "signed_shift_left",
    exp.BitwiseRightShift: "signed_shift_right"}


def _escape(r: Resolver, node: exp.Expr) -> Expr:
    return _like(r, node.this, r(node.expression))


# ------------------------------------------------------------------ functions
def _coalesce(r: Resolver, node: exp.Expr) -> Expr:
    return call("coalesce", r(node.this), *(r(a) for a in node.expressions))


def _if(r: Resolver, node: exp.Expr) -> Expr:
    if node.args.get("false") is None:
        raise SqlError(*WRONG_PARAMCOUNT_TO_NATIVE_FCT, "Incorrect parameter count in the call to native function 'if'")
    return call("if", r(node.this), r(node.args["true"]), r(node.args["false"]))


def _case(r: Resolver, node: exp.Expr) -> Expr:
    subject = r(node.this) if node.this is not None else None
    out: list[Expr] = []
    for arm in node.args["ifs"]:
        test = r(arm.this)
        out += [test if subject is None else call("eq", subject, test), r(arm.args["true"])]
    default = node.args.get("default")
    return call("case", *out, r(default) if default is not None else NULL)


def _cast(r: Resolver, node: exp.Expr) -> Expr:
    check_parts(node, frozenset({"this", "to", "_type"}), "CAST")
    wanted = cast_type(node.args["to"])
    if wanted == BIGINT and type(node.this.unnest()) in _BITS:
        return _signed_bits(r, node.this)
    this = r(node.this)
    if wanted == TEXT and this.type.is_text and not this.type.is_bytes:
        return retyped(this, TEXT_BIN) if this.type.is_json else this
    return cast(this, wanted)


def _collate(r: Resolver, node: exp.Expr) -> Expr:
    return cast(r(node.this), TEXT_BIN if collation(node.expression.name) is Collation.BIN else TEXT)


def _trim(r: Resolver, node: exp.Expr) -> Expr:
    """TRIM([LEADING | TRAILING | BOTH] [x FROM] text)"""
    check_parts(node, frozenset({"this", "position", "expression"}), "TRIM")
    side, what = str(node.args.get("position") or "both").lower(), node.args.get("expression")
    if what is None:
        return call({"leading": "ltrim", "trailing": "rtrim"}.get(side, "trim"), r(node.this))
    return call(f"trim_{side}", r(node.this), r(what))


def _concat(r: Resolver, node: exp.Expr) -> Expr:
    """Adjacent string literals, which MySQL concatenates."""
    return call("concat", *(r(a) for a in node.expressions))


def _substring(r: Resolver, node: exp.Expr) -> Expr:
    check_parts(node, frozenset({"this", "start", "length"}), "SUBSTRING")
    return call("substring", *(r(node.args[n]) for n in ("this", "start", "length") if node.args.get(n) is not None))


def _position(r: Resolver, node: exp.Expr) -> Expr:
    return located(r(node.args["substr"]), r(node.this))


def _characters(r: Resolver, node: exp.Expr) -> Expr:
    """CHAR(77, … [USING charset])"""
    charset = node.args.get("charset")
    name = "binary" if not charset else charset.name.lower()
    if name not in ("binary", "utf16", "utf8", "utf8mb3", "utf8mb4"):
        raise refuse(f"CHAR(… USING {name})", node, "there are utf8mb4, utf16 and binary")
    made = call("char_utf16" if name == "utf16" else "char", *(r(n) for n in node.expressions))
    return cast(made, TEXT) if name.startswith("utf8") else made


def _extract(r: Resolver, node: exp.Expr) -> Expr:
    return extracted(r, node.this, r(node.expression))


def _sum(r: Resolver, node: exp.Expr) -> Expr:
    """+ and -, of numbers or with an INTERVAL."""
    a, b = node.this, node.expression
    if isinstance(b, exp.Interval):
        return shifted(r, r(a), b, -1 if isinstance(node, exp.Sub) else 1)
    if isinstance(a, exp.Interval) and isinstance(node, exp.Add):
        return shifted(r, r(b), a, 1)
    return r._operator(_BINARY[type(node)], node, "this", "expression")


def _regexp(r: Resolver, node: exp.Expr) -> Expr:
    return regexp(r(node.this), r(node.expression))


def _json_extract(r: Resolver, node: exp.Expr) -> Expr:
    """column->path"""
    return call("json_extract", r(node.this), r(node.expression))


def _json_text(r: Resolver, node: exp.Expr) -> Expr:
    """column->>path"""
    return call("json_extract_text", r(node.this), r(node.expression))


def _json_object(r: Resolver, node: exp.Expr) -> Expr:
    check_parts(node, frozenset({"expressions"}), "JSON_OBJECT")
    return call("json_object", *(r(e) for kv in node.expressions for e in (kv.this, kv.expression)))


def _json_value(r: Resolver, node: exp.Expr) -> Expr:
    check_parts(node, frozenset({"this", "path"}), "JSON_VALUE")
    return call("json_value", r(node.this), r(node.args["path"]))


def _member_of(r: Resolver, node: exp.Expr) -> Expr:
    return call("member_of", r(node.this), r(node.expression))


def _named(r: Resolver, node: exp.Expr) -> Expr:
    """A function call that sqlglot leaves as a name."""
    name = node.name.upper()
    if name == "VALUES":
        raise refuse("VALUES() outside ON DUPLICATE KEY UPDATE", node)
    if name in CLOCK_NAMES and not (name == "UNIX_TIMESTAMP" and node.expressions):
        return _clock(r, node)
    if name in OPS:
        return _chance(r, node)
    if name == "LAST_INSERT_ID" and r.remembers and len(node.expressions) == 1:
        return call(REMEMBERED, r(node.expressions[0]))
    made = maker_of(name)
    if made is None:
        found = aggregate_of(r, node)
        if found is None:
            raise _unknown(node)
        return found
    return made(r, name, node.expressions)


def _chance(r: Resolver, node: exp.Expr) -> Expr:
    """`rand of row`(seed), for the row or the group of the resolver."""
    if r.identity is None and r.clause == "on clause":
        raise refuse("RAND and UUID in ON", node, "write them in WHERE")
    identity = () if r.identity is None else r.identity(r.aggregates)
    return call(OPS[node.name.upper()], r(node.expressions[0]), *identity)


def _rand(r: Resolver, node: exp.Expr) -> Expr:
    """RAND(column), or RAND(5) without rows.  Any other call is refused where no seed has been drawn for it."""
    if node.args.get("this") is None or (r.identity is not None and isinstance(
            node.this, exp.Literal | exp.Null | exp.Neg | exp.Placeholder)):
        raise _unknown(node)
    return call("rand_seeded", r(node.this))


def _clock(r: Resolver, node: exp.Expr) -> Expr:
    """NOW and the other functions of the clock.  Refused unless the resolver allows the clock."""
    name = node.name.upper() if isinstance(node, exp.Anonymous) else CLOCK_CLASSES[type(node)]
    if not r.clock:
        raise _unknown(node)
    digits = node.expressions[0] if node.expressions else node.this if not isinstance(node, exp.Anonymous) else None
    scale = literal_value(digits) if isinstance(digits, exp.Literal) else 0
    if not isinstance(scale, int) or scale > 6:
        raise SqlError(*TOO_BIG_PRECISION, f"Too-big precision {scale} specified for '{name}'. Maximum is 6.")
    return CLOCK_NAMES[name](scale)


def _placeholder(r: Resolver, node: exp.Expr) -> Expr:
    assert isinstance(node, exp.Placeholder)
    value: Expr | None = node.meta.get(_KNOWN)
    return r.parameter(node) if value is None else value


def _interval(r: Resolver, node: exp.Expr) -> Expr:
    """INTERVAL(n, a, b): how many of a, b are at most n.  Any other INTERVAL stands beside a date."""
    if not isinstance(node.this, exp.Tuple) or node.args.get("unit") is not None:
        raise _unknown(node)
    return call("interval_place", *map(r, node.this.expressions))


def _alias(r: Resolver, node: exp.Expr) -> Expr:
    return r(node.this)


Handler = Callable[[Resolver, exp.Expr], Expr]
_HANDLERS: dict[type[exp.Expr], Handler] = {
    exp.Column: _column, exp.Literal: _literal, exp.Null: _literal, exp.Boolean: _literal,
    exp.HexString: _literal, exp.BitString: _literal, exp.National: _literal, exp.Introducer: _introduced,
    exp.Neg: _negative, exp.Paren: _paren, exp.Not: _not, exp.Is: _is, exp.Between: _between, exp.In: _in,
    exp.EQ: _equal, exp.Like: _like, exp.Escape: _escape, exp.Coalesce: _coalesce, exp.If: _if, exp.Case: _case,
    exp.Cast: _cast, exp.Collate: _collate, exp.Trim: _trim, exp.Concat: _concat, exp.Substring: _substring,
    exp.StrPosition: _position, exp.Chr: _characters, exp.Extract: _extract, exp.Add: _sum, exp.Sub: _sum,
    exp.RegexpLike: _regexp, exp.JSONExtract: _json_extract, exp.JSONExtractScalar: _json_text,
    **dict.fromkeys(CLOCK_CLASSES, _clock),
    exp.JSONArrayContains: _member_of, exp.JSONObject: _json_object, exp.JSONValue: _json_value,
    exp.MatchAgainst: match, CountedWords: counted, exp.Rand: _rand, exp.Anonymous: _named, exp.Window: over_call,
    exp.BitwiseAnd: _bits_and, exp.DPipe: lambda r, node: call("concat", r(node.this), r(node.expression)),
    exp.Placeholder: _placeholder, exp.Alias: _alias, exp.Interval: _interval,
}
