"""Translates CREATE TABLE, CREATE VIEW and DROP to commands.  Call `create` and `drop`.

Keeps true: a constraint that Noria does not enforce is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlglot import exp

from noria.core.errors import PlaceholderViewError, SqlError, name_too_long, parse_error, too_many_columns
from noria.core.errors.codes import (
    INVALID_DEFAULT,
    INVALID_ON_UPDATE,
    MULTIPLE_PRI_KEY,
    NONUNIQ_TABLE,
    TABLE_MUST_HAVE_COLUMNS,
    TOO_LONG_FIELD_COMMENT,
    TOO_LONG_TABLE_COMMENT,
    UNKNOWN_CHARACTER_SET,
    VIEW_WRONG_LIST,
    WRONG_AUTO_KEY,
    WRONG_FIELD_SPEC,
    WRONG_TABLE_NAME,
    Code,
)
from noria.core.expressions.coerce import coerce
from noria.core.expressions.zero_date import ZERO_DATETIME, is_zero_text
from noria.core.identifiers import refuse_repeated_columns, repeated
from noria.core.limits import MAX_COLUMN_COMMENT, MAX_COLUMNS, MAX_INT, MAX_NAME_CHARS, MAX_TABLE_COMMENT
from noria.core.types import JSON, MOMENTS, Collation, Column, Kind, SqlType, TableDef
from noria.sql.commands import (
    Command,
    CreatePlaceholderView,
    CreateTable,
    CreateView,
    DropTable,
    DropView,
)
from noria.sql.expressions.scalars import literal_value
from noria.sql.expressions.types import collation, column_type
from noria.sql.query.plan_select import view_of
from noria.sql.query.relations.context import Catalog
from noria.sql.statements.checks import declared, says_json, with_checks
from noria.sql.statements.defaults import by_expression, invalid_default, with_defaults
from noria.sql.statements.foreign_keys import checked_keys, with_foreign_keys
from noria.sql.statements.foreign_keys import declared as declared_keys
from noria.sql.statements.generated import generated, with_expressions
from noria.sql.statements.keys import (
    FulltextColumns,
    KeyPart,
    check_fulltext,
    key_column,
    key_positions,
    with_indexes,
    with_primary_prefixes,
)
from noria.sql.statements.placeholder_views import body_of, has_no_from, items_of
from noria.sql.text.databases import Names
from noria.sql.text.refusals import refuse
from noria.sql.text.syntax import Statement, check_parts, rendered, snippet

_CREATE = frozenset({"this", "kind", "exists", "properties", "replace", "expression"})
_TABLE_OPTIONS = (exp.EngineProperty, exp.CharacterSetProperty, exp.CollateProperty, exp.SchemaCommentProperty,
                  exp.RowFormatProperty, exp.AutoIncrementProperty)
_LITERALS = (exp.Literal, exp.Null, exp.Boolean, exp.HexString, exp.BitString)
_CHARSETS = {"utf8", "utf8mb3", "utf8mb4", "latin1", "ascii", "binary"}


def create(statement: Statement, tree: exp.Create, catalog: Catalog, names: Names) -> Command:
    if tree.kind == "TABLE":
        return create_table(statement, tree, names)
    if tree.kind == "VIEW":
        return _create_view(statement, tree, catalog)
    raise refuse(f"CREATE {tree.kind}", tree)


_DROP = frozenset({"this", "tables", "kind", "exists", "temporary", "cascade", "restrict"})  # the last two are ignored


def drop(statement: Statement, tree: exp.Drop) -> Command:
    check_parts(tree, _DROP, "DROP")
    if tree.kind not in ("TABLE", "VIEW") or tree.args.get("temporary"):
        raise refuse(f"DROP {tree.kind}", tree)
    named = tree.args.get("tables") or [tree.this]
    names = tuple(n.name for n in named)
    if (twice := repeated(names)) is not None:
        raise SqlError(*NONUNIQ_TABLE, f"Not unique table/alias: '{twice}'")
    if tree.kind == "TABLE":
        return DropTable(names, bool(tree.args.get("exists")))
    return DropView(names, bool(tree.args.get("exists")), statement.feed)


def _create_view(statement: Statement, tree: exp.Create, catalog: Catalog) -> Command:
    check_parts(tree, _CREATE | {"algorithm"}, "CREATE VIEW")
    options = tree.args["properties"].expressions if tree.args.get("properties") else []
    if any(not isinstance(option, exp.MaterializedProperty) for option in options) or len(options) > 1:
        raise refuse("options of CREATE VIEW", tree)
    if tree.expression is None:
        raise parse_error(f"CREATE VIEW without a SELECT, near '{snippet(tree)}'")
    query, names = body_of(tree)
    name = check_name((tree.this.this if isinstance(tree.this, exp.Schema) else tree.this).name)
    placeholder = CreatePlaceholderView(name, statement.text, bool(tree.args.get("replace")))
    if has_no_from(query) and not (options or statement.internal or statement.parameters):
        check_names([i.field.name for i in items_of(query, names)])
        return placeholder
    body = statement
    if names:
        query = _with_names(query, names)
        body = replace(statement, body=rendered(query))
    try:
        view = view_of(body, name, query, catalog)
    except PlaceholderViewError:
        if statement.feed:
            raise
        return placeholder
    check_names([f.name for f in view.fields])
    return CreateView(view, bool(tree.args.get("replace")), statement.text, bool(options))


def _with_names(query: exp.Expr, names: list[str]) -> exp.Expr:
    """CREATE VIEW v (a, b) AS SELECT x, y   →   CREATE VIEW v AS SELECT x AS a, y AS b"""
    query = query.copy()
    first = query
    while isinstance(first, exp.SetOperation | exp.Subquery):  # the first SELECT of a UNION names its columns
        first = first.this
    if len(first.expressions) != len(names) or first.is_star:
        raise SqlError(*VIEW_WRONG_LIST, "View's SELECT and view's field list have different column counts (write the "
                                         "columns instead of *)")
    first.set("expressions", [exp.alias_(e.unalias(), n, quoted=True)
                              for e, n in zip(first.expressions, names, strict=True)])
    return query


def check_name(name: str) -> str:
    """Return the name of a table, view or column if it is allowed; else raise SqlError."""
    if any(len(part) > MAX_NAME_CHARS for part in name.split(".", 1)):  # the catalog's name has the database first
        raise name_too_long(name)
    if not name or name.endswith(" ") or "\0" in name:
        raise SqlError(*WRONG_TABLE_NAME, f"Incorrect name {name!r}")
    return name


def check_names(names: list[str]) -> None:
    if len(names) > MAX_COLUMNS:
        raise too_many_columns(MAX_COLUMNS)
    refuse_repeated_columns(names)


# ------------------------------------------------------------------ CREATE TABLE
@dataclass
class _Draft:
    """A table's parts while its definition is read; `_finished` makes the TableDef."""

    name: str
    columns: list[Column] = field(default_factory=list)
    primary_key: Sequence[str] | None = None
    indexes: list[tuple[str, Sequence[str], bool]] = field(default_factory=list)
    collation: Collation = Collation.CI
    first_id: int = 1
    comment: str = ""

    def set_primary_key(self, columns: Sequence[str]) -> None:
        if self.primary_key is not None:
            raise SqlError(*MULTIPLE_PRI_KEY, "Multiple primary key defined")
        self.primary_key = columns


def create_table(statement: Statement, tree: exp.Create, names: Names) -> CreateTable:
    check_parts(tree, _CREATE, "CREATE TABLE")
    if not isinstance(tree.this, exp.Schema):
        raise SqlError(*TABLE_MUST_HAVE_COLUMNS, "A table must have at least 1 column")
    name = check_name(tree.this.this.name)
    draft = _Draft(name, collation=collation(names.collation_of(name)))
    _options(draft, tree.args.get("properties"))
    for part in tree.this.expressions:
        handler = _PARTS.get(type(part))
        if handler is None:
            raise refuse("this in CREATE TABLE", part)
        handler(draft, part)
    table = with_checks(with_defaults(with_expressions(_finished(draft))), declared(tree.this.expressions))
    table = checked_keys(with_foreign_keys(table, declared_keys(tree.this.expressions), check_name))
    return CreateTable(table, bool(tree.args.get("exists")), statement.text)


def _options(draft: _Draft, properties: exp.Expr | None) -> None:
    for p in properties.expressions if properties is not None else []:
        if not isinstance(p, _TABLE_OPTIONS):
            raise refuse("this table option", p)
        if isinstance(p, exp.CollateProperty):
            draft.collation = collation(p.this.name)
        if isinstance(p, exp.CharacterSetProperty):
            charset(p)
        if isinstance(p, exp.AutoIncrementProperty):
            draft.first_id = first_id(p)
        if isinstance(p, exp.SchemaCommentProperty):
            draft.comment = table_comment(draft.name, p)


def table_comment(name: str, node: exp.Expr) -> str:
    """The text of COMMENT.  Raises SqlError 1628 if it is too long."""
    if len(node.this.name) > MAX_TABLE_COMMENT:
        raise SqlError(*TOO_LONG_TABLE_COMMENT, f"Comment for table '{name}' is too long (max = {MAX_TABLE_COMMENT})")
    return str(node.this.name)


def first_id(node: exp.Expr) -> int:
    """The number n of AUTO_INCREMENT = n, at least 1."""
    value = literal_value(node.this) if isinstance(node.this, exp.Literal) else None
    if not isinstance(value, int) or not 0 <= value <= MAX_INT:
        raise parse_error(f"AUTO_INCREMENT takes a number, near '{snippet(node)}'")
    return max(value, 1)


def charset(node: exp.Expr) -> None:
    if node.this.name.lower() not in _CHARSETS:
        raise SqlError(*UNKNOWN_CHARACTER_SET, f"Unknown character set: '{node.this.name}'")


def _column(draft: _Draft, node: exp.Expr) -> None:
    if node.args.get("kind") is None:
        raise parse_error(f"column '{node.name}' has no type")
    type = column_type(node.args["kind"])
    if has_collation(type):
        type = replace(type, collation=draft.collation)
    column = Column(check_name(node.name), type)
    for constraint in node.args.get("constraints") or []:
        handler = _CONSTRAINTS.get(constraint.kind.__class__)
        if handler is None:
            what, instead = _REFUSED.get(constraint.kind.__class__, ("this column attribute", ""))
            raise refuse(what, constraint, instead)
        column = handler(draft, column, constraint.kind)
    draft.columns.append(column)


def column_of(node: exp.Expr) -> tuple[Column, bool, bool]:
    """Read a column's definition.  Returns the column, whether it is the primary key, and whether it is UNIQUE."""
    draft = _Draft("")
    _column(draft, node)
    (column,) = draft.columns
    return checked(column), draft.primary_key is not None, bool(draft.indexes)


def has_collation(type: SqlType) -> bool:
    return type.is_text and not type.is_bytes and not type.is_json


def _not_null(draft: _Draft, c: Column, node: exp.Expr) -> Column:
    return replace(c, nullable=bool(node.args.get("allow_null")))


def _default(draft: _Draft, c: Column, node: exp.Expr) -> Column:
    """Read DEFAULT.  In DEFAULT 'x' COLLATE c, the parser makes COLLATE part of the value; to MySQL it is the column's
    next attribute."""
    value = node.this
    if isinstance(value, exp.Collate):
        return _collated(_default(draft, c, value), value.expression)
    return default_of(c, value)


def default_of(c: Column, value: exp.Expr) -> Column:
    """The column with this DEFAULT, which may be in parentheses.  Raises SqlError for an invalid one."""
    written, value = value, value.unnest()
    plain = isinstance(value.this if isinstance(value, exp.Neg) else value, _LITERALS)
    if isinstance(written, exp.Paren | exp.Subquery) and not plain and not (
            _is_now(value) and c.type.kind is Kind.DATETIME):
        return by_expression(c, written)
    if _is_now(value):
        _check_now(value, c, INVALID_DEFAULT, "Invalid default value")
        return replace(c, default_now=True)
    return replace(c, has_default=True, default=_default_value(value, c))


def _is_now(node: exp.Expr) -> bool:
    return isinstance(node, (exp.CurrentTimestamp, exp.Localtime, exp.Localtimestamp)) or (
        isinstance(node, exp.Anonymous) and node.name.upper() == "NOW")


def _check_now(node: exp.Expr, c: Column, code: Code, what: str) -> None:
    """Raise unless the column is DATETIME or TIMESTAMP with as many digits as CURRENT_TIMESTAMP(n) has."""
    digits = node.expressions[0] if node.expressions else None if isinstance(node, exp.Anonymous) else node.this
    scale = int(digits.this) if isinstance(digits, exp.Literal) else 0
    if c.type.kind is not Kind.DATETIME or scale != c.type.scale:
        raise SqlError(*code, f"{what} for '{c.name}'")


def _on_update(draft: _Draft, c: Column, node: exp.Expr) -> Column:
    if not _is_now(node.this):
        raise refuse("ON UPDATE of anything but CURRENT_TIMESTAMP", node)
    _check_now(node.this, c, INVALID_ON_UPDATE, "Invalid ON UPDATE clause")
    return replace(c, update_now=True)


def _default_value(node: exp.Expr, c: Column) -> Any:
    negative = isinstance(node, exp.Neg)
    inner = node.this if negative else node
    if not isinstance(inner, _LITERALS):
        raise refuse("a DEFAULT that is neither a literal nor CURRENT_TIMESTAMP", node, "write it in brackets")
    value = literal_value(inner)
    if value is None:
        return None
    if c.type.kind in MOMENTS and not negative and is_zero_text(value):
        return coerce(ZERO_DATETIME, c, 1)  # the session refuses it with NO_ZERO_DATE
    try:
        return coerce(-value if negative else value, c, 1)
    except (SqlError, TypeError):
        raise invalid_default(c) from None


def _auto_increment(draft: _Draft, c: Column, node: exp.Expr) -> Column:
    if c.type.kind is not Kind.INT:
        raise SqlError(*WRONG_FIELD_SPEC, f"Incorrect column specifier for column '{c.name}'")
    return replace(c, auto_increment=True)


def _inline_primary_key(draft: _Draft, c: Column, node: exp.Expr) -> Column:
    draft.set_primary_key([c.name])
    return c


def _inline_unique(draft: _Draft, c: Column, node: exp.Expr) -> Column:
    draft.indexes.append((c.name, [c.name], True))
    return c


def _collate(draft: _Draft, c: Column, node: exp.Expr) -> Column:
    return _collated(c, node.this)


def _collated(c: Column, name: exp.Expr) -> Column:
    if c.type.is_listed:
        if collation(name.name) is not Collation.CI:
            raise refuse(f"COLLATE {name.name} of ENUM and SET", name,
                         "their members are found without case and accents")
        return c
    if not has_collation(c.type):
        raise parse_error(f"COLLATE on column '{c.name}', which is no text")
    return replace(c, type=replace(c.type, collation=collation(name.name)))


def _binary(draft: _Draft, c: Column, node: exp.Expr) -> Column:
    return replace(c, type=replace(c.type, collation=Collation.BIN)) if has_collation(c.type) else c


def _column_charset(draft: _Draft, c: Column, node: exp.Expr) -> Column:
    charset(node)
    return _binary(draft, c, node) if node.this.name.lower() == "binary" else c


def _check(draft: _Draft, c: Column, node: exp.Expr) -> Column:
    """Read MariaDB's JSON, a LONGTEXT with CHECK (json_valid(c)), as JSON.  `checks.with_checks` adds other CHECKs."""
    if not says_json(node, c.name) or c.type.declared != "longtext":
        return c
    column = replace(c, type=JSON)
    return replace(column, default=coerce(c.default, column, 1)) if c.default is not None else column


def _generated(draft: _Draft, c: Column, node: exp.Expr) -> Column:
    """Read GENERATED ALWAYS AS (…).  Without VIRTUAL or STORED, the parser takes it for an identity column."""
    if isinstance(node, exp.GeneratedAsIdentityColumnConstraint):
        if node.expression is None:
            raise refuse("GENERATED … AS IDENTITY", node, "write AUTO_INCREMENT")
        node = exp.ComputedColumnConstraint(this=node.expression)
    return generated(c, node)


def _comment(draft: _Draft, c: Column, node: exp.Expr) -> Column:
    if len(node.this.name) > MAX_COLUMN_COMMENT:
        raise SqlError(*TOO_LONG_FIELD_COMMENT,
                       f"Comment for field '{c.name}' is too long (max = {MAX_COLUMN_COMMENT})")
    return replace(c, comment=node.this.name)


def _ignored(draft: _Draft, c: Column, node: exp.Expr) -> Column:
    return c


_CONSTRAINTS: dict[type, Callable[[_Draft, Column, exp.Expr], Column]] = {
    exp.NotNullColumnConstraint: _not_null, exp.DefaultColumnConstraint: _default,
    exp.AutoIncrementColumnConstraint: _auto_increment, exp.PrimaryKeyColumnConstraint: _inline_primary_key,
    exp.UniqueColumnConstraint: _inline_unique, exp.CollateColumnConstraint: _collate,
    exp.BinaryColumnConstraint: _binary, exp.CharacterSetColumnConstraint: _column_charset,
    exp.ComputedColumnConstraint: _generated, exp.GeneratedAsIdentityColumnConstraint: _generated,
    exp.CheckColumnConstraint: _check, exp.CommentColumnConstraint: _comment, exp.OnUpdateColumnConstraint: _on_update,
    exp.Reference: _ignored,  # `foreign_keys.with_foreign_keys` adds it to the finished table
}
_REFUSED: dict[type, tuple[str, str]] = {
    exp.ZeroFillColumnConstraint: ("ZEROFILL", "format numbers in the application"),
}


# ------------------------------------------------------------------ keys
def _primary_key(draft: _Draft, node: exp.Expr) -> None:
    draft.set_primary_key([key_column(c) for c in node.expressions])


def _unique(draft: _Draft, node: exp.Expr) -> None:
    name, columns = unique_of(node)
    draft.indexes.append((name or columns[0], columns, True))


def unique_of(node: exp.Expr, name: str = "") -> tuple[str, Sequence[KeyPart]]:
    """The name of a UNIQUE index (`name` if it has none), and its columns."""
    schema = node.this
    return schema.this.name if schema.this is not None else name, [key_column(c) for c in schema.expressions]


def _index(draft: _Draft, node: exp.Expr) -> None:
    name, columns = index_of(node)
    draft.indexes.append((name or columns[0], columns, False))


def index_of(node: exp.Expr) -> tuple[str, Sequence[KeyPart]]:
    """The name of an index ("" if it has none), and its columns."""
    kind = node.args.get("kind")
    if kind and kind != "FULLTEXT":
        raise refuse(f"{kind} indexes", node)
    if (parser := next((p for o in node.args.get("options") or [] if (p := o.args.get("parser"))), None)) is not None:
        raise refuse(f"WITH PARSER {parser.name}", node, "without it, words are letters, digits and underscores")
    if any(o.args.get("visible") is False for o in node.args.get("options") or []):
        raise refuse("an index that is INVISIBLE", node, "leave it out")
    columns = [key_column(c) for c in node.expressions]
    return "" if node.this is None else node.this.name, FulltextColumns(columns) if kind else columns


def _constraint(draft: _Draft, node: exp.Expr) -> None:
    for inner in node.expressions:
        if isinstance(inner, exp.UniqueColumnConstraint) and inner.this.this is None:
            inner.this.set("this", node.this.copy())
        handler = _PARTS.get(type(inner))
        if handler is None:
            raise refuse("this constraint", node)
        handler(draft, inner)


def _added_later(draft: _Draft, node: exp.Expr) -> None:
    """Do nothing: `with_checks` and `with_foreign_keys` add it to the finished table."""


_PARTS: dict[type, Callable[[_Draft, exp.Expr], None]] = {
    exp.ColumnDef: _column, exp.PrimaryKey: _primary_key, exp.UniqueColumnConstraint: _unique,
    exp.IndexColumnConstraint: _index, exp.Constraint: _constraint,
    exp.CheckColumnConstraint: _added_later, exp.ForeignKey: _added_later,
}


def _finished(draft: _Draft) -> TableDef:
    check_names([c.name for c in draft.columns])
    if not draft.columns:
        raise SqlError(*TABLE_MUST_HAVE_COLUMNS, "A table must have at least 1 column")
    key = key_positions(draft.columns, draft.primary_key or [])
    columns = tuple(checked(replace(c, nullable=False) if i in key else c) for i, c in enumerate(draft.columns))
    table = TableDef(draft.name, columns, key, first_id=draft.first_id, comment=draft.comment)
    return checked_table(with_indexes(with_primary_prefixes(table, draft.primary_key or ()), draft.indexes))


def checked_table(table: TableDef) -> TableDef:
    """Return the table.

    Raises error 1283 for a FULLTEXT key of other columns than texts, and error 1075 for two AUTO_INCREMENT columns or
    for one that is not first in a key.
    """
    check_fulltext(table)
    generated = [i for i, c in enumerate(table.columns) if c.auto_increment]
    firsts = {*table.primary_key, *(i.columns[0] for i in table.indexes)}
    if len(generated) > 1 or not firsts.issuperset(generated):
        raise SqlError(*WRONG_AUTO_KEY, "Incorrect table definition; there can be only one auto column and it must be "
                                        "defined as a key")
    return table


def checked(c: Column) -> Column:
    defaults = c.has_default or c.default_now
    if (not c.nullable and c.has_default and c.default is None) or (c.auto_increment and defaults):
        raise invalid_default(c)
    return c
