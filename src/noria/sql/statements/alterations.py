"""Translates ALTER TABLE, CREATE INDEX and DROP INDEX to the table's definitions before and after.

Each part of a statement is a function from a definition to the next one.  The command has the first and the last
definition, so a statement applies completely or not at all.  Drops come first and new keys last, in whatever order
they are written, because keys may have new columns.

Rows on disk stay as they are.  A dropped column keeps its position; a new one has the last position, wherever it is
shown.  If a new type codes values differently, a new column gets the old one's converted values.  Rows are rewritten
only for another primary key or a new AUTO_INCREMENT column (`TableDef.keyed`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from sqlglot import exp

from noria.core.errors import SqlError, duplicate_column, too_many_columns, unknown_column, unknown_table
from noria.core.errors.codes import (
    CANT_DROP_FIELD_OR_KEY,
    CANT_REMOVE_ALL_FIELDS,
    DUP_KEYNAME,
    MULTIPLE_PRI_KEY,
    NO_DEFAULT_FOR_FIELD,
)
from noria.core.expressions.coerce import coerce
from noria.core.limits import MAX_COLUMNS
from noria.core.types import NOW, Collation, Column, IndexDef, Kind, SqlType, TableDef, gone
from noria.sql.commands import AlterTable, Command
from noria.sql.expressions.types import collation
from noria.sql.query.relations.context import Catalog
from noria.sql.statements.checks import (
    alter_check,
    checked_conditions,
    declared,
    kind_of,
    renamed,
    with_checks,
    without_check,
)
from noria.sql.statements.defaults import with_defaults, without_default
from noria.sql.statements.definitions import (
    charset,
    check_name,
    checked,
    checked_table,
    column_of,
    default_of,
    first_id,
    has_collation,
    index_of,
    table_comment,
    unique_of,
)
from noria.sql.statements.foreign_keys import (
    checked_keys,
    is_foreign_key,
    moved,
    refuse_dropped,
    renamed_keys,
    with_foreign_keys,
    without_foreign_key,
)
from noria.sql.statements.foreign_keys import declared as declared_keys
from noria.sql.statements.generated import refuse_other_status, regenerated
from noria.sql.statements.keys import (
    all_keys,
    changed_keys,
    column_position,
    key_column,
    key_positions,
    moved_keys,
    shown_position,
    with_indexes,
    with_prefixes,
    with_primary_prefixes,
    without_primary_key,
)
from noria.sql.text.constraints import AlterCheck
from noria.sql.text.refusals import refuse
from noria.sql.text.syntax import check_parts

COPY = "create a new table, copy the rows, and drop the old one"
SET = "add the column, set its values with an UPDATE, then make it a key"


def alter(tree: exp.Alter, catalog: Catalog) -> Command:
    """Translate ALTER TABLE.  Raises SqlError for an unknown table, column or key, and for an unsupported part."""
    check_parts(tree, frozenset({"this", "kind", "actions", "options", "exists"}), "ALTER TABLE")
    if tree.args.get("kind") != "TABLE" or tree.args.get("exists"):
        raise refuse("this ALTER", tree)
    was = _table(tree.this, catalog)
    parts = [*(tree.args.get("actions") or []), *(tree.args.get("options") or [])]
    table, parts = _beside(replace(was, first_id=1), parts)
    for part in sorted(parts, key=_turn):
        handler = _PARTS.get(type(part))
        if handler is None:
            raise refuse("this in ALTER TABLE", part, COPY)
        table = handler(table, part)
    table = with_foreign_keys(table, declared_keys(parts), check_name)
    if table.numbered(was) is None:  # else AUTO_INCREMENT begins at this statement's number
        table = replace(table, first_id=max(table.first_id, was.first_id))
    return AlterTable(was, _checked(was, table))


def _turn(part: exp.Expr) -> int:
    """The rank of a part: drops of keys, drops of columns, other parts, new keys.  Keys are dropped first, because
    dropping a column also drops a key of only that column."""
    if isinstance(part, exp.Drop):
        return 1 if part.args.get("kind") == "COLUMN" else 0
    return 0 if isinstance(part, exp.DropPrimaryKey) else 3 if isinstance(part, exp.AddConstraint) else 2


def _beside(table: TableDef, parts: list[exp.Expr]) -> tuple[TableDef, list[exp.Expr]]:
    """Let columns swap names: RENAME a TO b, RENAME b TO a.

    Renames both columns to names that no column can have, and lets the parts rename these.  Returns its arguments if
    no new name belongs to a renamed column.
    """
    renames = {at: part for part in parts if (at := _renames(table, part)) is not None}
    names = {table.columns[at].name.lower() for at in renames}
    if names.isdisjoint(_called(p).lower() for at, p in renames.items()
                        if _called(p).lower() != table.columns[at].name.lower()):
        return table, parts
    out = list(parts)
    for at, part in renames.items():
        temporary = gone(at)
        table = _with(table, at, replace(table.columns[at], name=temporary))
        copy = part.copy()
        copy.set("this" if isinstance(part, exp.RenameColumn) else "rename_from", exp.to_identifier(temporary, True))
        out[next(n for n, p in enumerate(out) if p is part)] = copy
    return table, out


def _renames(table: TableDef, part: exp.Expr) -> int | None:
    """The position of the column that the part renames, or None."""
    old = part.this if isinstance(part, exp.RenameColumn) else part.args.get("rename_from")
    if not isinstance(part, exp.RenameColumn | exp.ModifyColumn) or old is None:
        return None
    return next((c for c in table.shown if table.columns[c].name.lower() == old.name.lower()), None)


def _called(part: exp.Expr) -> str:
    name: str = part.args["to"].name if isinstance(part, exp.RenameColumn) else part.this.name
    return name


def _checked(was: TableDef, table: TableDef) -> TableDef:
    """Complete and check the definition.  Raises SqlError if a table cannot have it or its rows cannot be converted."""
    keys = [k for k in (table.primary_key, *(i.columns for i in table.indexes if i.unique)) if k]
    new = range(len(was.columns), len(table.columns))
    timed = [table.columns[c].name for key in keys for c in key if c in new and table.columns[c].takes_time]
    if timed:
        raise refuse("a new column with the time for its default in a key", exp.to_identifier(timed[0]), SET)
    if table.primary_key != was.primary_key or table.numbered(was) is not None:
        table = replace(table, keyed=was.keyed + 1)
    table = regenerated(was, with_defaults(with_prefixes(table, _dropped), was), _anew)
    for at in range(len(was.columns), len(table.columns)):
        if table.columns[at].source is None:  # not earlier: a key may make the column NOT NULL
            table = _with(table, at, replace(table.columns[at], initial=_initial(table.columns[at])))
    refuse_dropped(was, table)
    return checked_keys(checked_table(checked_conditions(was, table)))


def create_index(tree: exp.Create, catalog: Catalog) -> Command:
    check_parts(tree, frozenset({"this", "kind", "unique", "exists", "replace"}), "CREATE INDEX")
    index, unique = tree.this, bool(tree.args.get("unique"))
    if tree.args.get("exists") or tree.args.get("replace"):
        raise refuse("CREATE INDEX with OR REPLACE or IF NOT EXISTS", tree, "leave it out")
    check_parts(index, frozenset({"this", "table", "params"}), "CREATE INDEX")
    was = _table(index.args["table"], catalog)
    columns = [key_column(c) for c in index.args["params"].args.get("columns") or []]
    return AlterTable(was, _checked(was, _with_index(was, index.name, columns, unique)))


def drop_index(tree: exp.Drop, catalog: Catalog) -> Command:
    on = tree.args.get("cluster")  # the dialect stores ON t here
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
def _with_index(table: TableDef, name: str, columns: Sequence[str], unique: bool = False) -> TableDef:
    if name:
        _check_free(all_keys(table), check_name(name))
    return with_indexes(table, [(name or columns[0], columns, unique)])


def _with_primary_key(table: TableDef, columns: Sequence[str]) -> TableDef:
    if table.primary_key:
        raise SqlError(*MULTIPLE_PRI_KEY, "Multiple primary key defined")
    key = key_positions(table.columns, columns)
    every = tuple(checked(replace(c, nullable=False)) if at in key else c for at, c in enumerate(table.columns))
    return with_primary_prefixes(replace(table, columns=every, primary_key=key), columns)


def _without_primary_key(table: TableDef, part: exp.Expr | None = None) -> TableDef:
    return without_primary_key(table)


def _no_key(name: str) -> SqlError:
    return SqlError(*CANT_DROP_FIELD_OR_KEY, f"Can't DROP '{name}'; check that column/key exists")


def _check_free(indexes: Iterable[IndexDef], name: str) -> None:
    if name.upper() == "PRIMARY" or any(i.name.lower() == name.lower() for i in indexes):
        raise SqlError(*DUP_KEYNAME, f"Duplicate key name '{name}'")


def _add(table: TableDef, part: exp.Expr) -> TableDef:
    for node in part.expressions:
        if isinstance(node, exp.Constraint) and len(node.expressions) == 1:
            (inner,) = node.expressions
            if isinstance(inner, exp.UniqueColumnConstraint):
                table = _with_index(table, *unique_of(inner, node.this.name), True)
                continue
            node = inner if isinstance(inner, exp.PrimaryKey) else node  # its name is PRIMARY in any case
        if isinstance(node, exp.PrimaryKey):
            table = _with_primary_key(table, [key_column(c) for c in node.expressions])
        elif isinstance(node, exp.UniqueColumnConstraint):
            table = _with_index(table, *unique_of(node), True)
        elif isinstance(node, exp.IndexColumnConstraint):
            table = _with_index(table, *index_of(node))
        elif checks := declared([node]):
            table = with_checks(table, checks)
        elif not is_foreign_key(node):
            raise refuse("this in ALTER TABLE … ADD", node, COPY)
    return table


def _drop(table: TableDef, part: exp.Expr) -> TableDef:
    drop = _DROPS.get(part.args.get("kind") or "")
    if drop is None or part.args.get("exists"):
        raise refuse("this in ALTER TABLE … DROP", part, COPY)
    (named,) = part.args.get("tables") or [part.this]
    return drop(table, named.name)


def _without_index(table: TableDef, name: str) -> TableDef:
    if name.upper() == "PRIMARY":
        return _without_primary_key(table)
    index = _index(table, name)
    return changed_keys(table, lambda i: None if i is index else i)


def _rename_index(table: TableDef, part: exp.Expr) -> TableDef:
    index, name = _index(table, part.this.name), check_name(part.args["to"].name)
    _check_free([i for i in all_keys(table) if i is not index], name)
    return changed_keys(table, lambda i: replace(i, name=name) if i is index else i)


def _index(table: TableDef, name: str) -> IndexDef:
    found = next((i for i in all_keys(table) if i.name.lower() == name.lower()), None)
    if found is None:
        raise _no_key(name)
    return found


# ------------------------------------------------------------------ columns
def _add_column(table: TableDef, part: exp.Expr) -> TableDef:
    if part.args.get("exists"):
        raise refuse("ADD COLUMN IF NOT EXISTS", part, "leave IF NOT EXISTS out")
    column, primary, unique = column_of(_bare(part))
    _check_unknown(table, column.name)
    column = replace(column, nullable=column.nullable and not primary)
    at = len(table.columns)
    table = _keyed(_placed(_with_column(table, column), at, part), at, primary, unique)
    return with_checks(table, declared([part]))


def _keyed(table: TableDef, at: int, primary: bool, unique: bool) -> TableDef:
    """Add the keys that the column's own definition declares."""
    name = table.columns[at].name
    if unique:
        table = _with_index(table, "", [name], True)
    return _with_primary_key(table, [name]) if primary else table


def _bare(part: exp.Expr) -> exp.Expr:
    """The definition of a column without FIRST, AFTER and IF NOT EXISTS."""
    node = part.copy()
    node.set("position", None)
    node.set("exists", None)
    return node


def _with_column(table: TableDef, column: Column) -> TableDef:
    if len(table.columns) >= MAX_COLUMNS:
        raise too_many_columns(MAX_COLUMNS)
    return replace(table, columns=(*table.columns, column), order=(*table.shown, len(table.columns)))


def _placed(table: TableDef, at: int, part: exp.Expr) -> TableDef:
    """Move the column as FIRST or AFTER say; without them it stays."""
    where = part.args.get("position")
    if where is None:
        return table
    others = [c for c in table.shown if c != at]
    if where.this is None:
        return replace(table, order=(at, *others))
    before = column_position(table, where.this.name, table.name)
    if before == at:
        raise unknown_column(where.this.name, table.name)
    behind = others.index(before) + 1
    return replace(table, order=(*others[:behind], at, *others[behind:]))


def _check_unknown(table: TableDef, name: str, but: int = -1) -> None:
    if shown_position(table, name) not in (None, but):
        raise duplicate_column(name)


def _initial(c: Column) -> object:
    """The value of a new column in existing rows: its default, or MySQL's implicit value for NOT NULL.  None for
    AUTO_INCREMENT, which numbers the rows.  Raises error 1364 for a type without an implicit value."""
    if c.auto_increment or c.generated:
        return None
    if c.has_default or c.takes_time or c.nullable:
        return c.default if c.has_default else None  # the time is set when the command runs
    if c.type.members or c.type.is_json or c.type.kind not in _ZERO:
        raise SqlError(*NO_DEFAULT_FOR_FIELD, f"Field '{c.name}' doesn't have a default value for the rows of before")
    return coerce(_ZERO[c.type.kind], c, 1)


_ZERO: dict[Kind, object] = {Kind.INT: 0, Kind.DECIMAL: 0, Kind.DOUBLE: 0, Kind.TEXT: ""}


def _without_column(table: TableDef, name: str) -> TableDef:
    try:
        at = table.position(name)
    except KeyError:
        raise _no_key(name) from None
    if len(table.shown) == 1:
        raise SqlError(*CANT_REMOVE_ALL_FIELDS, "You can't delete all columns with ALTER TABLE; use DROP TABLE instead")
    return _dropped(table, at)


def _dropped(table: TableDef, at: int) -> TableDef:
    """Drop the column, also from keys.  Its type stays, for older views that do not use the column."""
    was = table.columns[at]
    place = Column(gone(at), was.type, was.nullable, initial=was.initial, added=was.added, dropped=NOW,
                   source=was.source)
    return replace(moved_keys(table, at, None),
                   columns=(*table.columns[:at], place, *table.columns[at + 1:]),
                   order=tuple(c for c in table.shown if c != at))


def _rename_column(table: TableDef, part: exp.Expr) -> TableDef:
    return _renamed(table, column_position(table, part.this.name, table.name), part.args["to"].name)


def _renamed(table: TableDef, at: int, name: str) -> TableDef:
    _check_unknown(table, check_name(name), at)
    return _with(table, at, replace(table.columns[at], name=name))


def _with(table: TableDef, at: int, column: Column) -> TableDef:
    return replace(table, columns=(*table.columns[:at], column, *table.columns[at + 1:]))


def _modify_column(table: TableDef, part: exp.Expr) -> TableDef:
    """MODIFY and CHANGE: redefine the column; CHANGE renames it as well."""
    node, before = part.this, part.args.get("rename_from")
    at = column_position(table, node.name if before is None else before.name, table.name)
    column, primary, unique = column_of(_bare(node))
    _check_unknown(table, column.name, at)
    table, at = _changed(table, at, column)
    return with_checks(_keyed(_placed(table, at, node), at, primary, unique), declared([node]))


def _changed(table: TableDef, at: int, column: Column) -> tuple[TableDef, int]:
    """Redefine the column, as a new one if it must be converted.  Returns the table and the column's position."""
    was = table.columns[at]
    if at in table.primary_key:
        column = replace(column, nullable=False)
    refuse_other_status(was, column)
    if column.generated and (was.computed, was.type, was.expression) != (
            column.computed, column.type, column.expression):
        return _anew(table, at, column), len(table.columns)
    column = replace(checked(column), initial=was.initial, added=was.added, source=was.source)
    keyed = any(at in columns for columns in (table.primary_key, *(i.columns for i in table.indexes)))
    if coded_alike(was.type, column.type) and not (keyed and was.type.collation is not column.type.collation):
        return _with(table, at, column), at
    return _converted(table, at, column), len(table.columns)


def coded_alike(was: SqlType, type: SqlType) -> bool:
    """Whether each value that fits both types has the same code in both."""
    if was.kind is not type.kind or (was.is_bytes, was.is_json, was.timestamp) != (
            type.is_bytes, type.is_json, type.timestamp):
        return False
    if was.is_listed:
        return was.members == type.members[:len(was.members)]
    if type.declared == "char" and was.declared != "char":
        return False
    if was.kind is Kind.DOUBLE:
        return type.bits >= was.bits and type.precision in (0, was.precision) and type.scale == was.scale
    return was.scale == type.scale or was.kind in (Kind.INT, Kind.TEXT)


def _anew(table: TableDef, at: int, column: Column | None = None) -> TableDef:
    """Replace a column by a new generated one, whose values are computed anew."""
    column = table.columns[at] if column is None else column
    made, new = table, len(table.columns)
    if not column.hidden:
        made = _converted(table, at, column)
    else:  # it has no place for clients
        columns = [replace(i, columns=tuple(new if c == at else c for c in i.columns)) for i in table.indexes]
        made = _dropped(replace(table, columns=(*table.columns, replace(column, name=gone(new))),
                                indexes=tuple(columns)), at)
    return _with(made, new, replace(made.columns[new], name=column.name, source=None))


def _converted(table: TableDef, at: int, column: Column) -> TableDef:
    """Replace the column by a new one with its converted values, in the same shown place and in the same keys."""
    new, place = len(table.columns), table.shown.index(at)
    made = _with_column(table, replace(column, name=gone(new), initial=None, added=0, source=at))
    made = moved_keys(made, at, new)
    made = _dropped(replace(made, foreign_keys=moved(made.foreign_keys, at, new)), at)
    order = [c for c in made.shown if c != new]
    made = replace(made, order=(*order[:place], new, *order[place:]))
    return _with(made, new, replace(made.columns[new], name=column.name))


# ------------------------------------------------------------------ defaults, the counter, names
def _alter_column(table: TableDef, part: exp.Expr) -> TableDef:
    check_parts(part, frozenset({"this", "default", "drop"}), "ALTER COLUMN")
    at = column_position(table, part.name, table.name)
    bare = without_default(table.columns[at])
    changed = bare if part.args.get("drop") else default_of(bare, part.args["default"])
    return _with(table, at, checked(changed))


def _text(table: TableDef, part: exp.Expr) -> TableDef:
    """CONVERT TO CHARACTER SET: give every text column the collation."""
    charset(part)
    wanted = part.args.get("expression")
    to = Collation.CI if wanted is None else collation(wanted.name)
    for at in table.shown:
        column = table.columns[at]
        if has_collation(column.type) and column.type.collation is not to:
            table, _ = _changed(table, at, replace(column, type=replace(column.type, collation=to)))
    return table


def _default_text(table: TableDef, part: exp.Expr) -> TableDef:
    """A table's default CHARACTER SET or COLLATE.  Refuses all but the default collation: a table stores none."""
    if isinstance(part, exp.CharacterSetProperty):
        charset(part)
    elif collation(part.this.name) is not Collation.CI:
        raise refuse("a COLLATE for columns to come", part, "write COLLATE at each of them")
    return table


def _as_is(table: TableDef, part: exp.Expr) -> TableDef:
    """ENGINE, ROW_FORMAT and FORCE change nothing, as in CREATE TABLE."""
    return table


def _first_id(table: TableDef, part: exp.Expr) -> TableDef:
    return replace(table, first_id=first_id(part))


def _rename(table: TableDef, part: exp.Expr) -> TableDef:
    return renamed_keys(table, renamed(table, check_name(part.this.name)))


def _how(table: TableDef, part: exp.Expr) -> TableDef:
    """LOCK and ALGORITHM: accepts those that need no lock and no copy; they change nothing."""
    if part.name.upper() not in ("DEFAULT", "INSTANT", "INPLACE", "NOCOPY", "NONE"):
        raise refuse("LOCK and ALGORITHM that ask for a lock or a copy", part, "leave them out")
    return table


def _without_constraint(table: TableDef, name: str) -> TableDef:
    drop = {"CHECK": without_check, "FOREIGN KEY": without_foreign_key, "KEY": _without_index}
    return drop[kind_of(table, name)](table, name)


_DROPS = {"COLUMN": _without_column, "INDEX": _without_index, "KEY": _without_index, "CONSTRAINT": _without_constraint,
          "FOREIGN KEY": without_foreign_key, "CHECK": without_check}
_PARTS: dict[type, Callable[[TableDef, exp.Expr], TableDef]] = {
    exp.ColumnDef: _add_column, exp.AddConstraint: _add, exp.Drop: _drop, exp.RenameIndex: _rename_index,
    exp.RenameColumn: _rename_column, exp.ModifyColumn: _modify_column, exp.AlterColumn: _alter_column,
    exp.AlterRename: _rename, exp.AutoIncrementProperty: _first_id, exp.AlgorithmProperty: _how, exp.LockProperty: _how,
    exp.DropPrimaryKey: _without_primary_key, exp.CharacterSet: _text, exp.CharacterSetProperty: _default_text,
    exp.CollateProperty: _default_text, exp.EngineProperty: _as_is,
    exp.SchemaCommentProperty: lambda table, part: replace(table, comment=table_comment(table.name, part)),
    exp.RowFormatProperty: _as_is, exp.ForceProperty: _as_is, AlterCheck: alter_check,
}
