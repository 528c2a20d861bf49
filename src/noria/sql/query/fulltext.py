"""Marks each MATCH … AGAINST of a SELECT before it is planned: as a condition, or as relevance with its counts.

    … WHERE MATCH (a) AGAINST ('x y')      a condition: it reads the row alone
    SELECT MATCH (a) AGAINST ('x y') …     relevance: the row, and
                                           (SELECT CONCAT_WS(' ', COUNT(*), <rows with x>, <rows with y>) FROM t)

So a condition is a filter of any view.  Relevance changes for all rows when rows come or go; its counts are one row of
an aggregate over the table, maintained like any other.

Keeps true: a marked node names exactly the columns of one FULLTEXT key of one table of FROM (else error 1191).
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from noria.core.errors import SqlError
from noria.core.errors.codes import FT_MATCHING_KEY_NOT_FOUND, WRONG_ARGUMENTS
from noria.core.expressions.expr import Const
from noria.core.expressions.functions import cast
from noria.core.expressions.library.fulltext import parsed
from noria.core.types import TEXT, TableDef
from noria.sql.expressions.fulltext import MARK, CountedWords, mode_of, no_column
from noria.sql.expressions.scalars import Resolver
from noria.sql.query.relations.context import Context
from noria.sql.text.refusals import refuse
from noria.sql.text.trees import has

Tables = dict[str, tuple[exp.Table, TableDef]]  # by folded alias
_CONDITIONS = (exp.Where, exp.Having)
_NO_ROWS_OF_ITS_OWN = ("order", "joins", "group", "distinct", "having")
_CONNECTS = (exp.And, exp.Or, exp.Not, exp.Paren, exp.Xor)


def with_matches(context: Context, tree: exp.Select) -> exp.Select:
    """The SELECT with each MATCH … AGAINST of its own clauses marked."""
    if not any(True for _ in _matches(tree)):
        return tree
    tree = tree.copy()
    tables = _tables_of(context, tree)
    for node in list(_matches(tree)):
        table, definition = _table_of(node, tables)
        if _is_condition(node):
            node.set(MARK, "matches")
            continue
        node.set(MARK, "relevance")
        node.set("counts", _counts(context, node, table, definition))
    return tree


def by_relevance(tree: exp.Expr) -> exp.Expr:
    """SELECT … FROM t WHERE MATCH (a) AGAINST ('x')   →   … ORDER BY MATCH (a) AGAINST ('x') DESC, as MySQL returns it.

    The SELECT reads one table, and has rows of its own and no order; the search is one in natural language.
    """
    if not isinstance(tree, exp.Select) or any(tree.args.get(clause) for clause in _NO_ROWS_OF_ITS_OWN):
        return tree
    where, source = tree.args.get("where"), tree.args.get("from_")
    if where is None or source is None or not isinstance(source.this, exp.Table) or any(
            has(e, exp.AggFunc) or has(e, exp.Window) for e in tree.expressions):
        return tree
    found = next((t for t in _terms(where.this) if isinstance(t, exp.MatchAgainst)), None)
    if found is None or "BOOLEAN" in (found.args.get("modifier") or ""):
        return tree
    made = tree.copy()
    made.set("order", exp.Order(expressions=[exp.Ordered(this=found.copy(), desc=True)]))
    return made


def _terms(node: exp.Expr) -> list[exp.Expr]:
    if isinstance(node, exp.Paren):
        return _terms(node.this)
    return _terms(node.this) + _terms(node.expression) if isinstance(node, exp.And) else [node]


def mark_conditions(table: TableDef, alias: str, where: exp.Expr) -> None:
    """Mark each MATCH … AGAINST of a write's WHERE.  Relevance is refused there."""
    for node in _matches(where):
        _table_of(node, {alias.lower(): (exp.Table(), table)})
        if not _is_condition(node):
            raise refuse("the relevance of MATCH … AGAINST in a write", node, "use MATCH … AGAINST as a condition")
        node.set(MARK, "matches")


def _matches(tree: exp.Expr) -> Iterator[exp.MatchAgainst]:
    """The nodes of the tree that are in no query within it."""
    rest = [tree]
    while rest:
        node = rest.pop()
        if isinstance(node, exp.MatchAgainst):
            yield node
        elif node is tree or not isinstance(node, exp.Query):
            rest += reversed(list(node.iter_expressions()))


def _tables_of(context: Context, tree: exp.Select) -> Tables:
    found: Tables = {}
    rest = [tree.args["from_"]] if tree.args.get("from_") is not None else []
    rest += tree.args.get("joins") or []
    while rest:
        node = rest.pop()
        rest += node.args.get("joins") or []
        inner = node.this if isinstance(node, exp.From | exp.Join | exp.Subquery) else None
        if (isinstance(inner, exp.Expression) and not isinstance(inner, exp.Query | exp.Identifier)) or isinstance(
                inner, exp.Subquery):
            rest.append(inner)
        if isinstance(node, exp.Table) and node.name.lower() not in context.named:
            definition = context.catalog.table(node.name)
            if definition is not None:
                found[node.alias_or_name.lower()] = (node, definition)
    return found


def _table_of(node: exp.MatchAgainst, tables: Tables) -> tuple[exp.Table, TableDef]:
    """The table with a FULLTEXT key of exactly the node's columns.  Raises error 1191 without one."""
    names = {(c.table.lower(), c.name.lower()) for c in node.expressions if isinstance(c, exp.Column)}
    columns = {name for _, name in names}
    if not all(isinstance(c, exp.Column) for c in node.expressions):
        raise SqlError(*WRONG_ARGUMENTS, "Incorrect arguments to MATCH")
    for alias, (table, definition) in tables.items():
        if any(of not in ("", alias) for of, _ in names):
            continue
        keys = [{definition.columns[c].name.lower() for c in key.columns} for key in definition.fulltext]
        if columns in keys:
            return table, definition
    raise SqlError(*FT_MATCHING_KEY_NOT_FOUND, "Can't find FULLTEXT index matching the column list")


def _is_condition(node: exp.Expr) -> bool:
    """Whether only the truth of the node counts.  In natural language, relevance > 0 is the condition."""
    parent = node.parent
    while isinstance(parent, _CONNECTS):
        node, parent = parent, parent.parent
    if isinstance(parent, exp.Join):
        return node.arg_key == "on"
    return isinstance(parent, _CONDITIONS) or (isinstance(parent, exp.If) and node.arg_key == "this")


def _counts(context: Context, node: exp.MatchAgainst, table: exp.Table, definition: TableDef) -> exp.Expr:
    """The subquery of the number of rows, and of the counts of the search's terms."""
    text = _constant(context, node)
    if text is None:
        return exp.Literal.string("")
    collation = definition.columns[definition.position(node.expressions[0].name)].type.collation
    counts: list[exp.Expr] = [exp.Count(this=exp.Star())]
    columns = [exp.column(exp.to_identifier(c.name, quoted=True)) for c in node.expressions]
    for number in range(len(parsed(text, mode_of(node, collation)).terms)):
        words = CountedWords(this=exp.Literal.string(text), term=exp.Literal.number(number),
                             modifier=node.args.get("modifier"), expressions=[c.copy() for c in columns])
        counts.append(exp.Coalesce(this=exp.Sum(this=words), expressions=[exp.Literal.number(0)]))
    of = table.copy()
    of.set("alias", None)
    of.set("joins", None)
    texts = exp.Anonymous(this="CONCAT_WS", expressions=[exp.Literal.string(" "), *counts])
    return exp.Subquery(this=exp.Select(expressions=[texts], from_=exp.From(this=of)))


def _constant(context: Context, node: exp.MatchAgainst) -> str | None:
    """The text of the search; None for NULL.  Raises NotMaintained for a parameter without a value."""
    e = Resolver(no_column, context.parameter, "field list")(node.this)
    if not isinstance(e, Const):
        raise refuse("MATCH … AGAINST a computed text", node, "give a text, or a parameter")
    text = e if e.type.is_text else cast(e, TEXT)
    return text.value if isinstance(text, Const) and isinstance(text.value, str) else None
