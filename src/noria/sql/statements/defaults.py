"""DEFAULT (expression) of columns: what it may read, and when it is evaluated.

    constant    DEFAULT (1 + 2)           once, when the column is defined
    time        DEFAULT (CURDATE())       where statements get their time (`server/answering/clock.py`)
    default     DEFAULT (a + 1)           by the worker that stores the row

Keeps true: an expression that reads columns reads neither generated nor AUTO_INCREMENT ones, and among those that have
such a default only earlier ones.
"""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from noria.core.errors import SqlError, unknown_column
from noria.core.errors.codes import (
    DEFAULT_VAL_GENERATED_FUNCTION_IS_NOT_ALLOWED,
    DEFAULT_VAL_GENERATED_NAMED_FUNCTION_IS_NOT_ALLOWED,
    DEFAULT_VAL_GENERATED_NON_PRIOR,
    DEFAULT_VAL_GENERATED_REF_AUTO_INC,
    DEFAULT_VAL_GENERATED_ROW_VALUE,
    DEFAULT_VAL_GENERATED_VARIABLES,
    DEPENDENT_BY_DEFAULT_GENERATED_VALUE,
    INVALID_DEFAULT,
    WRONG_USAGE,
)
from noria.core.expressions.coerce import coerce
from noria.core.expressions.evaluate import constant
from noria.core.expressions.expr import Expr, columns_of
from noria.core.expressions.functions import for_column, uses_clock
from noria.core.types import Column, TableDef
from noria.sql.expressions.table_expressions import Place, names_in, parsed, refuse_unfit, resolved, text_of
from noria.sql.statements.keys import shown_position
from noria.sql.text.refusals import refuse
from noria.sql.text.syntax import rendered

KINDS = ("constant", "time", "default")
ADD = "add the column without it, set its values with an UPDATE, then ALTER COLUMN … SET DEFAULT"


def by_expression(c: Column, node: exp.Expr) -> Column:
    """The column with DEFAULT (expression).  `with_defaults` reads the expression, once all columns are known."""
    if c.generated:
        raise SqlError(*WRONG_USAGE, "Incorrect usage of DEFAULT and generated column")
    return replace(c, computed="default", expression=rendered(node), has_default=False, default=None)


def without_default(c: Column) -> Column:
    bare = replace(c, has_default=False, default=None, default_now=False)
    return replace(bare, computed="", expression="") if c.computed in KINDS else bare


def with_defaults(table: TableDef, was: TableDef | None = None) -> TableDef:
    """The table with its expressions as they are stored.  was: the table before an ALTER TABLE.

    Raises SqlError for an expression that a column cannot have.
    """
    if was is not None:
        _refuse_dependent(was, table)
    for at in table.shown:
        if table.columns[at].computed in KINDS:
            column = _read(table, at)
            if column != table.columns[at]:
                table = replace(table, columns=(*table.columns[:at], column, *table.columns[at + 1:]))
            if was is not None and at >= len(was.columns) and column.computed == "default" and column.source is None:
                raise refuse("a new column whose DEFAULT reads other columns", exp.to_identifier(column.name), ADD)
    return table


def _read(table: TableDef, at: int) -> Column:
    column, tree = table.columns[at], parsed(table.columns[at].expression)
    made = _expression(table, at, tree)
    column = replace(column, expression=text_of(table, tree), has_default=False, default=None)
    timed, read = uses_clock(made), columns_of(made)
    if timed and read:
        raise refuse("a DEFAULT that reads both the clock and other columns", tree, "compute it in the application")
    if timed:
        return replace(column, computed="time")
    if read:
        if any(at in key for key in (table.primary_key, *(i.columns for i in table.indexes if i.unique))):
            raise refuse("a DEFAULT that reads other columns in a key", tree, "give the key's value in each INSERT")
        return replace(column, computed="default")
    try:
        value = constant(for_column(made, column.type))
        fitted = None if value is None else coerce(value, column, 1)
    except (SqlError, TypeError):
        raise invalid_default(column) from None
    if fitted is None and not column.nullable:
        raise invalid_default(column)
    return replace(column, computed="constant", has_default=True, default=fitted)


def invalid_default(column: Column) -> SqlError:
    return SqlError(*INVALID_DEFAULT, f"Invalid default value for '{column.name}'")


def _expression(table: TableDef, at: int, node: exp.Expr) -> Expr:
    name, order = table.columns[at].name, table.shown.index
    refuse_unfit(node, Place(
        f"Default value expression of column '{name}'", DEFAULT_VAL_GENERATED_NAMED_FUNCTION_IS_NOT_ALLOWED,
        DEFAULT_VAL_GENERATED_FUNCTION_IS_NOT_ALLOWED, DEFAULT_VAL_GENERATED_VARIABLES,
        DEFAULT_VAL_GENERATED_ROW_VALUE, "a ", volatile=True))

    def column(of: str) -> None:
        place = shown_position(table, of)
        if place is None:
            raise unknown_column(of, "default value expression")
        read = table.columns[place]
        if read.auto_increment:
            raise SqlError(*DEFAULT_VAL_GENERATED_REF_AUTO_INC, f"Default value expression of column '{name}' cannot "
                                                                "refer to an auto-increment column.")
        if (read.generated or read.computed in KINDS) and order(place) >= order(at):
            raise SqlError(*DEFAULT_VAL_GENERATED_NON_PRIOR,
                           f"Default value expression of column '{name}' cannot refer to a column defined after it if "
                           "that column is a generated column or has an expression as default value.")
        if read.generated:
            raise refuse("a DEFAULT that reads a generated column", node, "write that column's expression")

    return resolved(table, node, column)


def _refuse_dependent(was: TableDef, table: TableDef) -> None:
    """Raise error 3766 if a default reads a column that was dropped or renamed."""
    for at in table.shown:
        if at >= len(was.columns) or was.columns[at].computed != "default" or table.columns[at].computed != "default":
            continue
        for name in names_in(parsed(was.columns[at].expression)):
            before = was.position(name)
            after = shown_position(table, name)
            if after is None or before not in (after, table.columns[after].source):
                raise SqlError(*DEPENDENT_BY_DEFAULT_GENERATED_VALUE,
                               f"Column '{was.columns[before].name}' of table '{was.name}' has a default value "
                               "expression dependency and cannot be dropped or renamed.")
