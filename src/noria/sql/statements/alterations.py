"""ALTER TABLE, CREATE INDEX and DROP INDEX: what changes a table and leaves its rows on disk as they are.

Each part of a statement is a function from a definition to the next one, in order; the statement is the table before
and after, whole or not at all.  What would change columns that are there, keys or UNIQUE is refused: it is not
there yet.  New columns come last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from sqlglot import exp

from noria.core.errors import SqlError, too_many_columns, unknown_column, unknown_table
from noria.core.expressions.coerce import coerce
from noria.core.limits import MAX_COLUMNS
from noria.core.types import Column, IndexDef, Kind, TableDef
from noria.sql.commands import AlterTable, Command
from noria.sql.query.context import Catalog
from noria.sql.statements.definitions import (
    check_name,
    checked,
    checked_table,
    column_of,
    default_of,
    first_id,
    index_of,
    key_column,
    key_positions,
    named_indexes,
)
from noria.sql.text.refusals import refuse
from noria.sql.text.syntax import only

COPY = "create a new table, copy the rows, and drop the old one"


def alter(tree: exp.Alter, catalog: Catalog) -> Command:
    only(tree, frozenset({"this", "kind", "actions", "options", "exists"}), "ALTER TABLE")
    if tree.args.get("kind") != "TABLE" or tree.args.get("exists"):
        raise refuse("this ALTER", tree)
    was = _table(tree.this, catalog)
    table = was
    for part in [*(tree.args.get("actions") or []), *(tree.args.get("options") or [])]:
        handler = _PARTS.get(type(part))
        if handler is None:
            raise refuse("this in ALTER TABLE", part, COPY)
        table = handler(table, part)
    return AlterTable(was, checked_table(table))


def create_index(tree: exp.Create, catalog: Catalog) -> Command:
    only(tree, frozenset({"this", "kind", "unique", "exists", "replace"}), "CREATE INDEX")
    index = tree.this
    if tree.args.get("unique") or tree.args.get("exists") or tree.args.get("replace"):
        raise refuse("CREATE UNIQUE INDEX, OR REPLACE and IF NOT EXISTS", tree, "declare UNIQUE in CREATE TABLE")
    only(index, frozenset({"this", "table", "params"}), "CREATE INDEX")
    was = _table(index.args["table"], catalog)
    columns = [key_column(c, False) for c in index.args["params"].args.get("columns") or []]
    return AlterTable(was, _with_index(was, index.name, columns))


def drop_index(tree: exp.Drop, catalog: Catalog) -> Command:
    on = tree.args.get("cluster")  # where the dialect keeps ON t
    if not isinstance(on, exp.OnProperty) or tree.args.get("exists"):
        raise refuse("DROP INDEX without ON table, and IF EXISTS", tree)
    was, (named,) = _table(on.this, catalog), tree.args.get("tables") or [tree.this]
    return AlterTable(was, checked_table(_without_index(was, named.name)))


def _table(node: exp.Expr, catalog: Catalog) -> TableDef:
    found = catalog.table(node.name)
    if found is None:
        raise unknown_table(node.name)
    return found


# ------------------------------------------------------------------ indexes
def _with_index(table: TableDef, name: str, columns: list[str]) -> TableDef:
    if name:
        _check_free(table.indexes, check_name(name))
    known = [(i.name, i.columns, i.unique) for i in table.indexes]
    places = key_positions(table.columns, columns)
    return replace(table, indexes=named_indexes([*known, (name or columns[0], places, False)]))


def _check_free(indexes: Iterable[IndexDef], name: str) -> None:
    if name.upper() == "PRIMARY" or any(i.name.lower() == name.lower() for i in indexes):
        raise SqlError(1061, "42000", f"Duplicate key name '{name}'")


def _add(table: TableDef, part: exp.Expr) -> TableDef:
    for node in part.expressions:
        if not isinstance(node, exp.IndexColumnConstraint):
            raise refuse("this in ALTER TABLE … ADD", node, COPY)
        table = _with_index(table, *index_of(node))
    return table


def _drop(table: TableDef, part: exp.Expr) -> TableDef:
    if part.args.get("kind") not in ("INDEX", "KEY") or part.args.get("exists"):
        raise refuse("this in ALTER TABLE … DROP", part, COPY)
    (named,) = part.args.get("tables") or [part.this]
    return _without_index(table, named.name)


def _without_index(table: TableDef, name: str) -> TableDef:
    index = _index(table, name)
    if index.unique:
        raise refuse(f"dropping the UNIQUE index {index.name}", exp.to_identifier(name), COPY)
    return replace(table, indexes=tuple(i for i in table.indexes if i is not index))


def _rename_index(table: TableDef, part: exp.Expr) -> TableDef:
    index, name = _index(table, part.this.name), check_name(part.args["to"].name)
    _check_free([i for i in table.indexes if i is not index], name)
    return replace(table, indexes=tuple(replace(i, name=name) if i is index else i for i in table.indexes))


def _index(table: TableDef, name: str) -> IndexDef:
    found = next((i for i in table.indexes if i.name.lower() == name.lower()), None)
    if found is None:
        raise SqlError(1091, "42000", f"Can't DROP '{name}'; check that column/key exists")
    return found


# ------------------------------------------------------------------ columns, their defaults, the counter
def _add_column(table: TableDef, part: exp.Expr) -> TableDef:
    where = part.args.get("position")
    if part.args.get("exists") or (where is not None and not _is_last(table, where)):
        raise refuse("ADD COLUMN IF NOT EXISTS, FIRST and AFTER", part, "it is added behind the others without these")
    node = part.copy()
    node.set("position", None)
    node.set("exists", None)
    column = column_of(node)
    if any(c.name.lower() == column.name.lower() for c in table.columns):
        raise SqlError(1060, "42S21", f"Duplicate column name '{column.name}'")
    if len(table.columns) >= MAX_COLUMNS:
        raise too_many_columns(MAX_COLUMNS)
    return replace(table, columns=(*table.columns, replace(column, initial=_initial(column))))


def _is_last(table: TableDef, position: exp.Expr) -> bool:
    """AFTER the last column is where it goes anyway."""
    return position.this is not None and position.this.name.lower() == table.columns[-1].name.lower()


def _initial(c: Column) -> object:
    """What the rows have that are there: the default, or what MySQL gives a column that may not be NULL."""
    if c.has_default or c.default_now or c.nullable:
        return c.default if c.has_default else None  # the time is told by whoever runs it
    if c.type.members or c.type.is_json or c.type.kind not in _ZERO:
        raise SqlError(1364, "HY000", f"Field '{c.name}' doesn't have a default value for the rows of before")
    return coerce(_ZERO[c.type.kind], c, 1)


_ZERO: dict[Kind, object] = {Kind.INT: 0, Kind.DECIMAL: 0, Kind.DOUBLE: 0, Kind.TEXT: ""}


def _alter_column(table: TableDef, part: exp.Expr) -> TableDef:
    only(part, frozenset({"this", "default", "drop"}), "ALTER COLUMN")
    try:
        at = table.position(part.name)
    except KeyError:
        raise unknown_column(part.name, table.name) from None
    column = table.columns[at]
    bare = replace(column, has_default=False, default=None, default_now=False)
    changed = bare if part.args.get("drop") else default_of(bare, part.args["default"])
    return replace(table, columns=(*table.columns[:at], checked(changed), *table.columns[at + 1:]))


def _first_id(table: TableDef, part: exp.Expr) -> TableDef:
    return replace(table, first_id=first_id(part))


_PARTS: dict[type, Callable[[TableDef, exp.Expr], TableDef]] = {
    exp.ColumnDef: _add_column, exp.AddConstraint: _add, exp.Drop: _drop, exp.RenameIndex: _rename_index,
    exp.AlterColumn: _alter_column, exp.AutoIncrementProperty: _first_id,
}
