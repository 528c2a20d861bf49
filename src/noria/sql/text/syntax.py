"""Parses text to syntax trees: sqlglot's MySQL dialect, with the parts of MySQL that it lacks.

* `token_rewrites.py` replaces words that sqlglot does not know; `Statement` has those that matter.
* Each `?` has its ordinal in the statement; each expression has its text as written.
* A word that sqlglot would read as a command of another system is an error.

Keeps true: a text that is not understood completely raises SqlError 1064 with the position.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import ClassVar

from sqlglot import exp
from sqlglot.dialects.mysql import MySQL
from sqlglot.errors import ParseError, SqlglotError, TokenError
from sqlglot.parser import SENTINEL_NONE
from sqlglot.parsers.mysql import MySQLParser
from sqlglot.tokenizer_core import Token, TokenType

from noria.core.errors import SqlError, codes, not_supported, parse_error
from noria.core.limits import MAX_BRACKETS, MAX_DEPTH, MAX_DIGITS, MAX_OPEN_JOINS, MAX_TERMS
from noria.sql.text.comments import SHOWN, opened
from noria.sql.text.constant_queries import unfolded
from noria.sql.text.constraints import ConstraintParser
from noria.sql.text.row_comparisons import expanded
from noria.sql.text.table_values import with_selects
from noria.sql.text.token_rewrites import (
    added_fulltext,
    distinct_first,
    insert_for_replace,
    plain_types,
    view_for_feed,
    without_ignore,
    without_index_type,
    without_internal,
    without_priority,
    without_temporary,
    without_view_options,
)
from noria.sql.text.tokens import Plain
from noria.sql.text.trees import levels_of
from noria.sql.text.trees import nodes as nodes_of

FEW_TERMS = 8  # a chain of AND or OR up to this length stays as written
_NESTING = {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1, TokenType.CASE: 1, TokenType.END: -1}
_JOINS = {TokenType.JOIN, TokenType.STRAIGHT_JOIN}
_WITHOUT_ON = {TokenType.CROSS, TokenType.NATURAL, TokenType.FOR}  # before JOIN
_ENDS_FROM = {TokenType.WHERE, TokenType.GROUP_BY, TokenType.HAVING, TokenType.ORDER_BY, TokenType.LIMIT,
              TokenType.UNION}
_STRINGS = {TokenType.STRING, TokenType.NATIONAL_STRING, TokenType.IDENTIFIER}


@dataclass(frozen=True)
class Statement:
    """One parsed statement of a text."""

    tree: exp.Expr
    nodes: Sequence[exp.Expr]  # all nodes of the tree
    text: str  # as written
    parameters: int
    internal: bool = False  # CREATE INTERNAL VIEW, or FEED
    replace: bool = False  # REPLACE INTO
    body: str = ""  # the SELECT of CREATE VIEW, as written
    feed: bool = False  # CREATE or DROP FEED
    ignore: bool = False  # UPDATE IGNORE or DELETE IGNORE
    temporary: bool = False  # CREATE or DROP TEMPORARY TABLE
    any_of_group: bool = False  # read without ONLY_FULL_GROUP_BY


_WITH_CLASS = frozenset("""
COUNT SUM MIN MAX AVG JSON_ARRAYAGG JSON_OBJECTAGG ANY_VALUE GROUP_CONCAT STD STDDEV VARIANCE BIT_AND BIT_OR BIT_XOR
ROW_NUMBER RANK DENSE_RANK PERCENT_RANK CUME_DIST NTILE LAG LEAD FIRST_VALUE LAST_VALUE NTH_VALUE
UUID RAND EXISTS DATABASE SCHEMA VERSION CURRENT_DATE CURRENT_TIME CURRENT_TIMESTAMP CURRENT_USER LOCALTIME
LOCALTIMESTAMP CURDATE CURTIME UTC_TIMESTAMP UTC_DATE UTC_TIME SESSION_USER COALESCE""".split())


def _has_class(name: str, made: object) -> bool:
    """Whether sqlglot's class of the function is used: for aggregates, window functions and functions of the session.
    Scalar functions stay names (`functions.py`), because sqlglot rewrites some of them for other systems."""
    of = getattr(made, "__self__", None)
    return name in _WITH_CLASS or (isinstance(of, type) and issubclass(of, exp.AggFunc))


CONCAT_SIGN, LIKE_SIGN = "\ue001", "\ue002"  # `||` as CONCAT; LIKE without an escape character (`sql_modes.py`)
_NAMES = {TokenType.VAR, TokenType.IDENTIFIER}
_OPERANDS = {*_NAMES, TokenType.NUMBER, TokenType.STRING, TokenType.NULL}
_AFTER_EXPRESSION = {
    TokenType.COMMA, TokenType.R_PAREN, TokenType.FROM, TokenType.WHERE, TokenType.GROUP_BY, TokenType.HAVING,
    TokenType.ORDER_BY, TokenType.LIMIT, TokenType.ALIAS, TokenType.ASC, TokenType.DESC, TokenType.WHEN, TokenType.THEN,
    TokenType.ELSE, TokenType.END, TokenType.SENTINEL}
_AFTER_OPERAND = _AFTER_EXPRESSION | {
    TokenType.EQ, TokenType.NEQ, TokenType.NULLSAFE_EQ, TokenType.LT, TokenType.LTE, TokenType.GT, TokenType.GTE,
    TokenType.AND, TokenType.OR, TokenType.NOT, TokenType.IN, TokenType.IS, TokenType.BETWEEN, TokenType.LIKE,
    TokenType.JOIN, TokenType.LEFT, TokenType.INNER, TokenType.CROSS}
_SHIFTS = {TokenType.LT, TokenType.GT}  # a shift is two of these tokens


class _Parser(ConstraintParser):
    """Records the text of each expression, after which MySQL names a column.  A column or literal that no operator
    follows is read at once, without descending through all levels of precedence."""

    FUNC_TOKENS: ClassVar = {*MySQLParser.FUNC_TOKENS, TokenType.NAMESPACE}  # KEY (namespace(75))
    FUNCTIONS: ClassVar = {name: made for name, made in MySQLParser.FUNCTIONS.items() if _has_class(name, made)}
    SIGNED_TO_UNSIGNED_TYPE_TOKEN: ClassVar = {**MySQLParser.SIGNED_TO_UNSIGNED_TYPE_TOKEN,
                                               TokenType.FLOAT: TokenType.UINT256}  # `UFLOAT` in expressions/types.py
    ALTER_PARSERS: ClassVar = {**MySQLParser.ALTER_PARSERS, "CONVERT": lambda self: self._parse_convert_to()}
    EXPONENT: ClassVar = {**MySQLParser.EXPONENT, TokenType.DOTCARET: exp.DPipe}
    RANGE_PARSERS: ClassVar = {**MySQLParser.RANGE_PARSERS,
                               TokenType.SOUNDS_LIKE: lambda self, this: _unescaped(self, this)}
    PLACEHOLDER_PARSERS: ClassVar = {
        **MySQLParser.PLACEHOLDER_PARSERS,
        TokenType.PLACEHOLDER: lambda self: exp.Placeholder(this=str(self._prev.start)),
    }

    def _parse_expression(self) -> exp.Expr | None:
        first = self._curr
        parsed = super()._parse_expression()
        if parsed is not None and first and self._prev:
            text = self.sql[first.start : self._prev.end + 1]
            parsed.meta["text"] = text.replace(CONCAT_SIGN, "||").replace(LIKE_SIGN, "LIKE")
        return parsed

    def _parse_disjunction(self) -> exp.Expr | None:
        return self._operand(_AFTER_EXPRESSION) or super()._parse_disjunction()

    def _parse_bitwise(self) -> exp.Expr | None:
        return self._operand(_AFTER_OPERAND) or super()._parse_bitwise()

    def _operand(self, ends: Collection[TokenType]) -> exp.Expr | None:
        """Read a column or literal that one of these tokens follows; else consume nothing and return None."""
        kind = self._curr.token_type
        if kind not in _OPERANDS:
            return None
        start, after = self._index, self._next
        if after.token_type is TokenType.DOT and kind in _NAMES:
            after = self._tokens[start + 3] if start + 3 < len(self._tokens) else SENTINEL_NONE
        if after.token_type not in ends:
            return None
        found = self._parse_atom()
        if found is not None and self._curr is after and not (
                after.token_type in _SHIFTS and self._next.token_type is after.token_type):
            return found
        self._retreat(start)
        return None

    def _parse_alter_table_add(self) -> list[exp.Expr]:
        """Read ADD (a INT, b INT, UNIQUE (b)) as one ADD for each."""
        start = self._index
        self._match(TokenType.COLUMN)
        if not self._match(TokenType.L_PAREN, advance=False):
            self._retreat(start)
            return super()._parse_alter_table_add()
        schema = self._parse_schema()
        parts = schema.expressions if schema is not None else []
        return [p if isinstance(p, exp.ColumnDef) else exp.AddConstraint(expressions=[p]) for p in parts]

    def _parse_convert_to(self) -> list[exp.Expr]:
        """Read CONVERT TO CHARACTER SET utf8mb4 [COLLATE c] of ALTER TABLE."""
        if not self._match_text_seq("TO") or not (self._match_text_seq("CHARACTER", "SET") or
                                                  self._match_texts(("CHARSET",))):
            self.raise_error("CONVERT takes TO CHARACTER SET", self._curr or self._prev)
        charset = exp.CharacterSet(this=self._parse_var_or_string() or exp.Var(this=""))
        if self._match_text_seq("COLLATE"):
            charset.set("expression", self._parse_var_or_string() or exp.Var(this=""))
        return [charset]

    def _parse_as_command(self, start: Token) -> exp.Command:
        self.raise_error("this statement is not understood from here on", self._curr or self._prev)
        return exp.Command(this=start.text)


class _Dialect(MySQL):
    Parser = _Parser

    def to_json_path(self, path: exp.Expr | None) -> exp.Expr | None:
        """Leave JSON paths as text: `core/expressions/library/json.py` reads them."""
        return path

    class Tokenizer(MySQL.Tokenizer):
        COMMANDS: ClassVar = set()  # else the rest of a statement after such a word would be one token
        KEYWORDS: ClassVar = {k: v for k, v in MySQL.Tokenizer.KEYWORDS.items() if v is not TokenType.COMMAND}
        SINGLE_TOKENS: ClassVar = {**MySQL.Tokenizer.SINGLE_TOKENS, CONCAT_SIGN: TokenType.DOTCARET,
                                   LIKE_SIGN: TokenType.SOUNDS_LIKE}


def _unescaped(parser: _Parser, this: exp.Expr | None) -> exp.Expr | None:
    """LIKE without an escape character, unless ESCAPE gives one."""
    found = MySQLParser.RANGE_PARSERS[TokenType.LIKE](parser, this)
    return found if isinstance(found, exp.Escape) else exp.Escape(this=found, expression=exp.Literal.string(""))


_DIALECT = _Dialect()
_PLAIN = Plain(_Dialect.Tokenizer.KEYWORDS, _Dialect.Tokenizer.SINGLE_TOKENS)
_AFTER_COMMA = {"FROM", "WHERE", "GROUP", "ORDER", "HAVING", "LIMIT", ")", ",", "ON", "SET"}


def tokenize(text: str) -> list[Token]:
    if (plain := _PLAIN.tokens(text)) is not None:
        return plain
    try:
        return list(_DIALECT.tokenize(opened(text)))
    except (TokenError, SqlglotError) as e:
        raise _unreadable(e, text) from None


def _unreadable(e: SqlglotError, text: str) -> SqlError:
    """The error for a text that cannot be tokenized, nearly always because of an open quote."""
    where = re.search(r"from (\d+):(\d+)|Line (\d+)", str(e))
    line = f" at line {where[1] or where[3]}" if where else ""
    return parse_error(f"a quote, comment or name that does not end{line}, near '{text[:SHOWN]}'")


def statements_of(tokens: Sequence[Token]) -> list[list[Token]]:
    """The tokens of each statement, without the semicolons."""
    out: list[list[Token]] = [[]]
    for token in tokens:
        if token.token_type is TokenType.SEMICOLON:
            out.append([])
        else:
            out[-1].append(token)
    return [s for s in out if s]


def parse_tokens(tokens: list[Token], text: str) -> Statement:
    """Parse a statement's tokens, with positions in `text`.  Raises SqlError, 1436 for too large a tree."""
    text = opened(text)
    _check_tokens(tokens, text)
    _check_joins(tokens)
    tokens, feed = view_for_feed(without_index_type(added_fulltext(plain_types(without_view_options(tokens, text)))))
    tokens, internal = without_internal(without_priority(tokens))
    tokens, ignore = without_ignore(tokens)
    tokens, temporary = without_temporary(tokens)
    tokens, replace = insert_for_replace(distinct_first(tokens))
    try:
        trees = _Parser(dialect=_DIALECT).parse(tokens, text)
    except ParseError as e:
        raise _syntax_error(e, text) from None
    except TokenError:  # from a hint, which the parser tokenizes by itself
        raise parse_error(f"a hint that cannot be read, near '{text[:SHOWN]}'") from None
    except RecursionError:
        raise too_deep() from None
    tree = trees[0] if trees else None
    if tree is None or len(trees) != 1:
        raise parse_error(f"near '{text[:SHOWN]}'")
    levels = levels_of(tree)
    nodes = [node for level in levels for node in level]
    _check_size(nodes)
    if (selects := with_selects(tree, nodes)) is not None:
        tree, nodes = selects, nodes_of(selects)
    definition = isinstance(tree, exp.Create) and tree.args.get("expression") is None
    if not definition and not isinstance(tree, exp.Alter) and unfolded(tree, nodes) | expanded(nodes):
        levels = levels_of(tree)
        nodes = [node for level in levels for node in level]
    if (balanced := _balanced(tree, nodes)) is not None:
        tree, levels = balanced, levels_of(balanced)
    if len(levels) > MAX_DEPTH:
        raise too_deep()
    nodes = [node for level in levels for node in level]
    parameters = _number_parameters(nodes)
    source = _source(tokens, text)
    return Statement(tree, nodes, source, parameters, internal or feed, replace, _body(tree, tokens, text), feed,
                     ignore=ignore, temporary=temporary)


def _source(tokens: Sequence[Token], text: str) -> str:
    """The statement as written, without the words that are removed before VIEW."""
    view = next((i for i, t in enumerate(tokens[:5]) if t.token_type is TokenType.VIEW), 0)
    head = "".join(f"{text[t.start : t.end + 1]} " for t in tokens[:view])
    return head + text[tokens[view].start : tokens[-1].end + 1]


def _body(tree: exp.Expr, tokens: list[Token], text: str) -> str:
    """The text of the SELECT in CREATE VIEW … AS SELECT …; "" for any other statement."""
    if not isinstance(tree, exp.Create) or tree.kind != "VIEW":
        return ""
    for i, token in enumerate(tokens):
        if token.token_type is TokenType.ALIAS:
            return text[tokens[i + 1].start : tokens[-1].end + 1] if i + 1 < len(tokens) else ""
    return ""


def too_deep() -> SqlError:
    """The error for a statement that is nested more deeply than the stack allows."""
    return SqlError(*codes.STACK_OVERRUN_NEED_MORE,
                    f"Thread stack overrun: the statement is nested too deeply; at most {MAX_BRACKETS} "
                    f"brackets and {MAX_DEPTH} operators stand within each other")


def _check_size(nodes: Sequence[exp.Expr]) -> None:
    terms = sum(isinstance(node, (exp.Binary, exp.Unary, exp.Func)) for node in nodes)
    if terms > MAX_TERMS:
        raise SqlError(*codes.STACK_OVERRUN_NEED_MORE,
                       f"Thread stack overrun: the statement has {terms} operators and functions, and "
                       f"at most {MAX_TERMS} are planned; send it in parts, or give values by IN (…)")


def _balanced(tree: exp.Expr, nodes: Sequence[exp.Expr]) -> exp.Expr | None:
    """Balance long chains: a AND b AND c AND d   →   (a AND b) AND (c AND d).  None if no chain is long.

    The depth becomes the logarithm of the number of terms.  The value stays: AND and OR are associative.
    """
    changed = False
    for kind in (exp.And, exp.Or):
        for top in [n for n in nodes if type(n) is kind and type(n.parent) is not kind]:
            terms = _chain(top, kind)
            if len(terms) > FEW_TERMS:
                changed = True
                new = _tree_of(terms, kind)
                new.meta.update(top.meta)
                if top is tree:
                    tree = new
                else:
                    top.replace(new)
    return tree if changed else None


def _chain(top: exp.Expr, kind: type[exp.Expr]) -> list[exp.Expr]:
    """The terms of a chain of one operator, from left to right."""
    terms, rest = [], [top]
    while rest:
        node = rest.pop()
        if type(node) is kind:
            rest += [node.expression, node.this]
        else:
            terms.append(node)
    return terms


def _tree_of(terms: list[exp.Expr], kind: type[exp.Expr]) -> exp.Expr:
    while len(terms) > 1:
        pairs = [kind(this=a, expression=b) for a, b in zip(terms[::2], terms[1::2], strict=False)]
        terms = pairs + terms[len(pairs) * 2 :]
    return terms[0]


def _check_tokens(tokens: Sequence[Token], text: str) -> None:
    """Raise errors that sqlglot does not: too many nested brackets, numbers that are too long, stray commas."""
    depth, before = 0, TokenType.L_PAREN
    for token in tokens:
        kind = token.token_type
        if kind in _NESTING:
            depth += _NESTING[kind]
            if depth > MAX_BRACKETS:
                raise too_deep()
        if kind is TokenType.NUMBER and len(token.text) > MAX_DIGITS:
            raise SqlError(*codes.ILLEGAL_VALUE_FOR_TYPE,
                           f"Illegal number '{token.text[:SHOWN]}…' of {len(token.text)} digits found "
                           "during parsing")
        stray = kind is TokenType.COMMA and before is TokenType.L_PAREN
        if stray or (before is TokenType.COMMA and token.text.upper() in _AFTER_COMMA and kind not in _STRINGS):
            raise parse_error(f"near '{text[token.start : token.start + SHOWN]}' at line {token.line}")
        before = kind
    if before is TokenType.COMMA:
        raise parse_error(f"the text ends with a comma, near '{text[-SHOWN:]}'")


def _check_joins(tokens: Sequence[Token]) -> None:
    """Limit the JOINs that have no ON or USING yet: sqlglot tries each both with and without the joins after it."""
    levels = [0]
    before = TokenType.COMMA
    for token in tokens:
        kind = token.token_type
        if kind is TokenType.L_PAREN:
            levels.append(0)
        elif kind is TokenType.R_PAREN and len(levels) > 1:
            levels.pop()
        elif kind in _JOINS and before not in _WITHOUT_ON:
            levels[-1] += 1
            if levels[-1] > MAX_OPEN_JOINS:
                raise not_supported(f"more than {MAX_OPEN_JOINS} JOINs of one FROM without ON or USING",
                                    "write ON behind each, or CROSS JOIN")
        elif kind in (TokenType.ON, TokenType.USING):
            levels[-1] = max(levels[-1] - 1, 0)
        elif kind in _ENDS_FROM:
            levels[-1] = 0
        before = kind


def _number_parameters(nodes: Sequence[exp.Expr]) -> int:
    """Number each `?` by its position in the text: 0, 1, …  Returns their number."""
    found = [n for n in nodes if isinstance(n, exp.Placeholder)]
    for p in found:
        if not str(p.this or "").isdigit():
            raise parse_error(f"near ':{p.this}': parameters are written as ?")
    places = {at: str(i) for i, at in enumerate(sorted({int(p.this) for p in found}))}
    for p in found:
        p.set("this", places[int(p.this)])
    return len(places)


def _syntax_error(e: ParseError, text: str) -> SqlError:
    detail = e.errors[0] if e.errors else {}
    line, column = detail.get("line"), detail.get("col")
    near = (str(detail.get("highlight") or "") + str(detail.get("end_context") or ""))[:SHOWN]
    said = str(detail.get("description") or "")
    if "missing for" in said:
        what = "something is missing"
    elif said.startswith("Expecting") or "not understood" in said:
        what = _first_line(said)
    else:
        what = "this is not expected"
    where = f" at line {line}, column {column}" if line else ""
    return parse_error(f"{what}{where}, near '{near or text[:SHOWN]}'")


def _first_line(text: str) -> str:
    return text.split("\n", 1)[0][:200]


# ------------------------------------------------------------------ looking at trees
def is_membership(node: exp.Expr) -> bool:
    """Whether the node is x IN (SELECT …), x = ANY (SELECT …) or EXISTS (SELECT …)."""
    if isinstance(node, exp.In):
        return node.args.get("query") is not None
    return isinstance(node, exp.Exists) or (isinstance(node, exp.EQ) and isinstance(node.expression, exp.Any))


_COMPARED: dict[type[exp.Expr], str] = {exp.EQ: "eq", exp.NEQ: "ne", exp.LT: "lt", exp.LTE: "le", exp.GT: "gt",
                                        exp.GTE: "ge"}


def quantifier(node: exp.Expr) -> tuple[str, type[exp.Expr]] | None:
    """The operator of x > ALL (SELECT …), x = ANY (SELECT …) and their like, with All or Any; None for other nodes."""
    if type(node) in _COMPARED and isinstance(node.expression, exp.Any | exp.All):
        return _COMPARED[type(node)], type(node.expression)
    return None


def is_row_subquery(node: exp.Expr) -> bool:
    """Whether the node compares a row with a SELECT: (a, b) = (SELECT …)."""
    if type(node) not in _COMPARED and not isinstance(node, exp.NullSafeEQ):
        return False
    kinds = {exp.Tuple, exp.Subquery}
    return {type(node.this), type(node.expression)} == kinds


def is_subquery(node: exp.Expr) -> bool:
    """Whether the node is a membership, a comparison with a query of rows, or a SELECT in place of a value."""
    return isinstance(node, exp.Subquery) or is_membership(node) or quantifier(node) is not None or (
        is_row_subquery(node))


def snippet(node: exp.Expr) -> str:
    """The node as SQL, cut to SHOWN characters, for an error message."""
    shown: str = node.meta.get("text") or rendered(node)
    shown = " ".join(shown.split())
    return shown if len(shown) <= SHOWN else shown[: SHOWN - 1] + "…"


def rendered(node: exp.Expr) -> str:
    """The node as SQL, with its parameters as `?`."""
    node = node.copy()
    for p in node.find_all(exp.Placeholder):
        p.set("this", None)
    return str(node.sql(dialect=_DIALECT))


def place(node: exp.Expr) -> str:
    """The node's line as " at line n", or "" if it is unknown."""
    for inner in node.walk():
        if "line" in inner.meta:
            return f" at line {inner.meta['line']}"
    return ""


def check_parts(node: exp.Expr, known: frozenset[str], what: str) -> None:
    """Raise for a part of the node that is not in `known`, so that nothing written is ever ignored."""
    for name, value in node.args.items():
        if name not in known and value not in (None, False, [], ""):
            said = name.rstrip("_").replace("_", " ").upper()
            raise not_supported(f"{said} in {what}", f"near '{snippet(node)}'{place(node)}")
