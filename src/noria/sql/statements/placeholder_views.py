"""Placeholder views: views without FROM, and views that read one.  They are stored as text and have no state.

    CREATE VIEW v AS SELECT NULL AS a, 1 AS b     its row is in its text: SELECT b FROM v returns it
    CREATE VIEW w AS SELECT a FROM v              reads return error 1356 until v is replaced by a view with a FROM

A dump first makes every view without FROM, so that any may name any other.  Then it drops and makes each one again
with its real SELECT, so a view may be made before the views that it reads.

Keeps true: the columns and the row of a view without FROM are those of its SELECT.  A SELECT from it of anything but
its columns is error 1356.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from sqlglot import exp

from noria.core.errors import SqlError, unknown_column
from noria.core.errors.codes import VIEW_WRONG_LIST
from noria.core.types import Field
from noria.sql.commands import OutputColumn, SelectItems
from noria.sql.query.plan_select import block_of
from noria.sql.query.relations.context import Context
from noria.sql.statements.without_from import select_items
from noria.sql.text.refusals import refuse
from noria.sql.text.syntax import Statement, parse_tokens, tokenize


@dataclass(frozen=True)
class PlaceholderView:
    """A placeholder view.  `text`: its CREATE VIEW."""

    name: str
    text: str

    @cached_property
    def items(self) -> tuple[OutputColumn, ...]:
        """The columns with their values; empty for a view that reads another."""
        statement = parse_tokens(tokenize(self.text), self.text)
        query, names = body_of(statement.tree)
        return items_of(query, names) if has_no_from(query) else ()

    @property
    def fields(self) -> tuple[Field, ...]:
        return tuple(i.field for i in self.items)


class _EmptyCatalog:
    """An empty `Catalog`, for constants."""

    def table(self, name: str) -> None: ...

    def view(self, name: str) -> None: ...


def body_of(tree: exp.Expr) -> tuple[exp.Expr, list[str]]:
    """The SELECT of a CREATE VIEW, and its list of column names (empty without one)."""
    name = tree.this
    return tree.expression, [c.name for c in name.expressions] if isinstance(name, exp.Schema) else []


def has_no_from(query: exp.Expr) -> bool:
    return isinstance(query, exp.Select) and query.args.get("from_") is None


def items_of(query: exp.Expr, names: list[str]) -> tuple[OutputColumn, ...]:
    """The columns of a SELECT without FROM, under `names` or their own names.  Refuses all but constants."""
    assert isinstance(query, exp.Select)
    found = select_items(Context(_EmptyCatalog(), block_of, "batch", ()), query)
    if found.limit is not None or any(i.kind != "value" for i in found.items):
        raise refuse("a view without FROM of anything but constants", query)
    if names and len(names) != len(found.items):
        raise SqlError(*VIEW_WRONG_LIST, "View's SELECT and view's field list have different column counts")
    names = names or [i.field.name for i in found.items]
    return tuple(_called(item, name) for item, name in zip(found.items, names, strict=True))


def read(text: str, statement: Statement) -> SelectItems | None:
    """Answer a SELECT from the view without FROM whose CREATE VIEW is `text`.  None if the SELECT selects anything but
    its columns."""
    tree, items = statement.tree, PlaceholderView("", text).items
    if not items or not isinstance(tree, exp.Select) or not _clauses(tree) <= {"expressions", "from_"}:
        return None
    source = tree.args["from_"].this
    if not isinstance(source, exp.Table) or not _clauses(source) <= {"this", "db", "alias", "hints"}:
        return None
    known = {i.field.name.lower(): i for i in items}
    out: list[OutputColumn] = []
    for node in tree.expressions:
        column = node.unalias()
        if isinstance(column, exp.Star):
            out += items
        elif not isinstance(column, exp.Column) or column.table:
            return None
        elif column.name.lower() not in known:
            raise unknown_column(column.name, "field list")
        else:
            item = known[column.name.lower()]
            out.append(_called(item, node.alias) if isinstance(node, exp.Alias) else item)
    return SelectItems(tuple(out))


def _clauses(node: exp.Expr) -> set[str]:
    return {name for name, value in node.args.items() if value not in (None, False, [])}


def _called(item: OutputColumn, name: str) -> OutputColumn:
    return OutputColumn(Field(name, item.field.type, item.field.nullable), value=item.value)
