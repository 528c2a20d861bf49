"""Finds the table and column from which each column of a result comes, for clients that ask for it.

Keeps true: only a column that is selected as it is has an origin; an expression and a column of a UNION have none.
"""

from __future__ import annotations

from noria.core.expressions.expr import Col
from noria.core.types import Origin, Origins, TableDef
from noria.plan.mir import Base, Project
from noria.sql.query.relations.block import Block
from noria.sql.query.relations.scope import RelationNames, ScopeRelation


def origins_of(block: Block) -> Origins:
    """The origin of each item of the block."""
    scope = block.scope
    return tuple(_origin(scope.sources[scope.source_of(e.index)], e.index) if isinstance(e := item.expr, Col) and
                 scope.start <= e.index < scope.end else None for item in block.items)


def _origin(source: ScopeRelation, column: int) -> Origin | None:
    names, position = source.named_as, column - source.offset
    if names is None:  # a derived table, or the relation of a subquery in an expression
        name = source.plan.fields[position].name
        return Origin("", source.alias, source.alias, name) if source.alias else None
    if names.is_table:
        base, at = source.plan, position
        if isinstance(base, Project):  # a table some of whose columns are not shown
            shown = base.exprs[position]
            base, at = base.input, shown.index if isinstance(shown, Col) else at
        assert isinstance(base, Base), "the plan of a table"
        return _of_table(names, base.table, at)
    return of_view(names, source.plan.fields[position].name)


def of_view(names: RelationNames, column: str) -> Origin:
    return Origin(names.database, names.alias, names.name, column)


def _of_table(names: RelationNames, table: TableDef, position: int) -> Origin:
    key, column = "", table.columns[position]
    if position in table.primary_key:
        key = "primary"
    elif any(i.unique and i.columns == (position,) for i in table.indexes):
        key = "unique"
    elif any(i.columns[:1] == (position,) for i in table.indexes):
        key = "multiple"
    within = position in table.primary_key or any(position in i.columns for i in table.indexes)
    required = not (column.nullable or column.has_default or column.auto_increment or column.default_now)
    return Origin(names.database, names.alias, names.name, column.name, key, within, column.auto_increment, required)
