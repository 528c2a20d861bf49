"""Reads and prints expressions over a table's own columns, which are stored in its definition as text.

Keeps true: a printed text reads to the same typed expression, whatever the letters and brackets of the written one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from sqlglot import exp

from noria.core.errors import SqlError, parse_error, unknown_column
from noria.core.errors.codes import Code
from noria.core.expressions.expr import Col, Expr
from noria.core.types import TableDef
from noria.sql.expressions.scalars import Resolver, volatile
from noria.sql.text.syntax import is_subquery, parse_tokens, rendered, snippet, tokenize

_BRACKETED = (exp.Connector, exp.Predicate, exp.Not, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod,
              exp.BitwiseAnd, exp.BitwiseOr, exp.BitwiseXor, exp.BitwiseLeftShift, exp.BitwiseRightShift,
              exp.BitwiseNot)
_KEPT = re.compile(r"""('(?:[^'\\]|''|\\.)*'|"(?:[^"\\]|""|\\.)*"|`(?:[^`]|``)*`)""", re.DOTALL)


class Place(NamedTuple):
    """Where an expression stands, with MySQL's errors for what it must not contain there.

    what: the beginning of the messages.  article: before "disallowed function".
    volatile: functions whose value changes by itself are allowed.
    """

    what: str
    named_function: Code
    function: Code
    variables: Code
    row_value: Code
    article: str = ""
    volatile: bool = False


# ------------------------------------------------------------------ reading
def parsed(text: str) -> exp.Expr:
    """The tree of an expression's text."""
    text = f"SELECT {text}"
    (found,) = parse_tokens(tokenize(text), text).tree.expressions
    tree: exp.Expr = found
    return tree


def resolved(table: TableDef, node: exp.Expr, column: Callable[[str], None] | None = None) -> Expr:
    """The typed expression.  column: is called with the name of each column, and may refuse it.

    Raises KeyError for an unknown column.
    """
    def found(name: str, qualifier: str, clause: str) -> Expr:
        if qualifier and qualifier.lower() != table.name.lower():
            raise unknown_column(f"{qualifier}.{name}", clause)
        if column is not None:
            column(name)
        at = table.position(name)
        return Col(table.columns[at].type, table.columns[at].nullable, at)

    def parameter(p: exp.Placeholder) -> Expr:
        raise parse_error(f"a parameter (?) in a table's definition, near '{snippet(node)}'")

    return Resolver(found, parameter, "field list", clock=True)(node)


def of_text(table: TableDef, text: str) -> Expr:
    """The typed expression of a stored text."""
    return resolved(table, parsed(text))


def refuse_unfit(node: exp.Expr, place: Place) -> None:
    """Raise the place's error for a subquery, a variable, a row, or a function whose value changes by itself."""
    if isinstance(node.unnest(), exp.Tuple):
        raise SqlError(*place.row_value, f"{place.what} cannot refer to a row value.")
    for inner in node.walk():
        if is_subquery(inner) or isinstance(inner, exp.Select | exp.Exists):
            raise SqlError(*place.function, f"{place.what} contains {place.article}disallowed function.")
        if isinstance(inner, exp.Parameter | exp.SessionParameter):
            raise SqlError(*place.variables, f"{place.what} cannot refer to a user or system variable.")
        if not place.volatile and (name := volatile(inner)) is not None:
            raise SqlError(*place.named_function, f"{place.what} contains {place.article}disallowed function: {name}.")


def names_in(node: exp.Expr) -> Iterator[str]:
    """The names of the columns that the expression reads."""
    return (c.name for c in node.find_all(exp.Column))


# ------------------------------------------------------------------ printing
def text_of(table: TableDef, node: exp.Expr) -> str:
    """Print the expression as MySQL does: with quoted names, and with brackets around each operation.

    An expression that would read otherwise when it is printed so stays as it is written.
    """
    meant, bare = resolved(table, node), _plain(node)
    for text in (_in_small_letters(rendered(_bracketed(bare))), rendered(bare)):
        try:
            if resolved(table, parsed(text)) == meant:
                return text
        except (SqlError, KeyError):
            continue
    raise parse_error(f"an expression that cannot be stored, near '{snippet(node)}'")


def _plain(node: exp.Expr) -> exp.Expr:
    """A copy with quoted names of columns, without the name of their table."""
    node = node.copy()
    for column in node.find_all(exp.Column):
        column.set("table", None)
        column.set("db", None)
        column.set("this", exp.to_identifier(column.name, quoted=True))
    return node


def _bracketed(node: exp.Expr) -> exp.Expr:
    """The expression with brackets around each operation, and no others."""
    plain = node.copy().unnest()
    for written in list(plain.find_all(exp.Paren)):
        written.replace(written.this)
    for inner in reversed(list(plain.find_all(*_BRACKETED))):  # the innermost first
        chained = isinstance(inner, exp.And | exp.Or) and type(inner.parent) is type(inner)
        if chained or (isinstance(inner, exp.Func) and not isinstance(inner, exp.Connector)):
            continue
        made = exp.Paren(this=inner.copy())
        if inner is plain:
            plain = made
        else:
            inner.replace(made)
    return plain


def _in_small_letters(text: str) -> str:
    """The text with small letters, except in strings and names."""
    return "".join(part if at % 2 else part.lower() for at, part in enumerate(_KEPT.split(text)))
