"""Translates MATCH (columns) AGAINST (text) to functions of the row (`core/expressions/library/fulltext.py`).

    WHERE MATCH (a, b) AGAINST ('x')           ft_matches('x', mode, a, b)
    SELECT MATCH (a, b) AGAINST ('x')          ft_relevance('x', mode, counts, a, b)

`sql/query/fulltext.py` has marked the node: its argument `counts` is the subquery that counts rows, or None for a
condition.  Keeps true: a node without a mark is refused, because nobody has looked for its FULLTEXT key.
"""

from __future__ import annotations

from typing import Any, ClassVar

from sqlglot import exp

from noria.core.errors import SqlError
from noria.core.errors.codes import WRONG_ARGUMENTS
from noria.core.expressions.expr import Const, Expr
from noria.core.expressions.functions import call, cast, literal
from noria.core.expressions.library.fulltext import BINARY, BOOLEAN, parsed
from noria.core.types import TEXT, Collation
from noria.sql.expressions.resolving import Operands
from noria.sql.text.refusals import refuse

MARK = "fulltext"  # the argument of a marked node: "matches" or "relevance"


class CountedWords(exp.Expression, exp.Func):
    """How many words of a row the term with this number finds.  The other arguments are those of MATCH … AGAINST."""

    arg_types: ClassVar = {"this": True, "term": True, "modifier": False, "expressions": True}
    is_var_len_args: ClassVar = True


def mode_of(node: exp.Expr, collation: Collation) -> int:
    """The mode of the search, whose columns have this collation.  Raises SqlError for WITH QUERY EXPANSION."""
    modifier = node.args.get("modifier") or ""
    if "EXPANSION" in modifier:
        raise refuse("MATCH … AGAINST WITH QUERY EXPANSION", node, "search again for words of the rows found")
    return BOOLEAN * ("BOOLEAN" in modifier) + BINARY * (collation is not Collation.CI)


def no_column(*_: str) -> Any:
    """Raise error 1210: the search is one text for all rows."""
    raise SqlError(*WRONG_ARGUMENTS, "Incorrect arguments to AGAINST")


def match(r: Operands, node: exp.Expr) -> Expr:
    if not node.args.get(MARK):
        raise refuse("MATCH … AGAINST here", node, "it may stand in a SELECT from a table, and in WHERE of a write")
    columns = [r(c) for c in node.expressions]
    mode = mode_of(node, columns[0].type.collation)
    text = _text(r, node, mode)
    if node.args[MARK] == "matches":
        return call("ft_matches", text, literal(mode), *columns)
    return call("ft_relevance", text, literal(mode), r(node.args["counts"]), *columns)


def counted(r: Operands, node: exp.Expr) -> Expr:
    columns = [r(c) for c in node.expressions]
    mode = mode_of(node, columns[0].type.collation)
    return call("ft_counts", _text(r, node, mode), literal(mode), r(node.args["term"]), *columns)


def _text(r: Operands, node: exp.Expr, mode: int) -> Expr:
    """The search.  A constant is parsed here, so that its error is the statement's."""
    if node.this.find(exp.Column) is not None:
        no_column()
    text = r(node.this)
    text = text if text.type.is_text and not text.type.is_bytes else cast(text, TEXT)
    if isinstance(text, Const) and isinstance(text.value, str):
        parsed(text.value, mode)
    return text
