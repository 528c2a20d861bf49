"""Generated columns of CREATE TABLE and ALTER TABLE, and what statements may write to them.

Keeps true: the expression of a generated column reads existing columns only, and only generated ones before its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from sqlglot import exp

from noria.core.errors import SqlError, generated_value, unknown_column
from noria.core.errors.codes import (
    DEPENDENT_BY_FUNCTIONAL_INDEX,
    DEPENDENT_BY_GENERATED_COLUMN,
    GENERATED_COLUMN_FUNCTION_IS_NOT_ALLOWED,
    GENERATED_COLUMN_NAMED_FUNCTION_IS_NOT_ALLOWED,
    GENERATED_COLUMN_NON_PRIOR,
    GENERATED_COLUMN_REF_AUTO_INC,
    GENERATED_COLUMN_ROW_VALUE,
    GENERATED_COLUMN_VARIABLES,
    UNSUPPORTED_ACTION_ON_GENERATED_COLUMN,
    WRONG_USAGE,
)
from noria.core.expressions.expr import Expr
from noria.core.statements import DEFAULT
from noria.core.types import NOW, Column, TableDef
from noria.sql.expressions.table_expressions import (
    Place,
    names_in,
    of_text,
    parsed,
    refuse_unfit,
    resolved,
    text_of,
)
from noria.sql.statements.keys import IN_A_KEY, shown_position
from noria.sql.text.refusals import refuse
from noria.sql.text.syntax import rendered


def generated(c: Column, node: exp.Expr) -> Column:
    """The column with GENERATED ALWAYS AS (…).  `with_expressions` reads the expression, once all columns are known."""
    return replace(c, computed="stored" if node.args.get("persisted") else "virtual", expression=rendered(node.this))


def with_expressions(table: TableDef) -> TableDef:
    """The table with its expressions as they are stored.  Raises SqlError for one that it cannot have."""
    for at in table.generated:
        column = table.columns[at]
        if column.has_default or column.default_now or column.auto_increment or column.update_now:
            what = "AUTO_INCREMENT" if column.auto_increment else "DEFAULT"
            raise SqlError(*WRONG_USAGE, f"Incorrect usage of {what} and generated column")
        if column.computed == "virtual" and at in table.primary_key:
            raise _unsupported("Defining a virtual generated column as primary key")
        tree = parsed(column.expression)
        _expression(table, at, tree)
        table = _with(table, at, replace(column, expression=text_of(table, tree)))
    return table


def _with(table: TableDef, at: int, column: Column) -> TableDef:
    if column == table.columns[at]:
        return table
    return replace(table, columns=(*table.columns[:at], column, *table.columns[at + 1:]))


def _unsupported(what: str) -> SqlError:
    return SqlError(*UNSUPPORTED_ACTION_ON_GENERATED_COLUMN, f"'{what}' is not supported for generated columns.")


def _expression(table: TableDef, at: int, node: exp.Expr) -> Expr:
    name, order = table.columns[at].name, table.shown.index
    refuse_unfit(node, IN_A_KEY if table.columns[at].hidden else Place(
        f"Expression of generated column '{name}'", GENERATED_COLUMN_NAMED_FUNCTION_IS_NOT_ALLOWED,
        GENERATED_COLUMN_FUNCTION_IS_NOT_ALLOWED, GENERATED_COLUMN_VARIABLES, GENERATED_COLUMN_ROW_VALUE, "a "))

    def column(of: str) -> None:
        place = shown_position(table, of)
        if place is None:
            raise unknown_column(of, "generated column function")
        if table.columns[place].auto_increment:
            raise SqlError(*GENERATED_COLUMN_REF_AUTO_INC,
                           f"Generated column '{name}' cannot refer to auto-increment column.")
        if table.columns[place].generated and not table.columns[at].hidden and order(place) >= order(at):
            raise SqlError(*GENERATED_COLUMN_NON_PRIOR,
                           "Generated column can refer only to generated columns defined prior to it.")

    return resolved(table, node, column)


# ------------------------------------------------------------------ ALTER TABLE
def refuse_other_status(was: Column, column: Column) -> None:
    """Raise SqlError if a column cannot be redefined so: only a plain column can become a stored one."""
    before, after = (c.computed if c.generated else "" for c in (was, column))
    if before == after or (not before and after == "stored"):
        return
    if before == "stored" and not after:
        raise refuse("MODIFY of a generated column to one with values of its own", exp.to_identifier(was.name),
                     "add a column, set it with an UPDATE, and drop the generated one")
    raise _unsupported("Changing the STORED status")


def regenerated(was: TableDef, table: TableDef, anew: Callable[[TableDef, int], TableDef]) -> TableDef:
    """The altered table, whose generated columns over changed columns are made anew, by `anew`.

    Raises error 3108 if a generated column reads one that was dropped or renamed.
    """
    for at in table.generated:
        if at < len(was.columns) and was.columns[at].computed != "prefix":
            for name in names_in(parsed(was.columns[at].expression)):
                _refuse_gone(was, table, name, was.columns[at].hidden)
    table = with_expressions(table)
    for at in table.generated:  # an earlier one that is made anew has another position, so later ones are, too
        if at < len(was.columns) and _changed(was, table, at):
            table = anew(table, at)
    for at in table.generated:
        if at >= len(was.columns):
            table = _with(table, at, replace(table.columns[at], added=NOW, initial=None))
    return table


def _changed(was: TableDef, table: TableDef, at: int) -> bool:
    before, after = was.columns[at], table.columns[at]
    return of_text(was, before.expression) != of_text(table, after.expression) or (
        after.hidden and before.type != after.type)


def _refuse_gone(was: TableDef, table: TableDef, name: str, in_a_key: bool) -> None:
    before = was.position(name)
    after = shown_position(table, name)
    stays = after is not None and (before in (after, table.columns[after].source) or was.columns[before].generated)
    if not stays and in_a_key:
        raise SqlError(*DEPENDENT_BY_FUNCTIONAL_INDEX, f"Column '{was.columns[before].name}' has a functional index "
                                                       "dependency and cannot be dropped or renamed.")
    if not stays:
        raise SqlError(*DEPENDENT_BY_GENERATED_COLUMN,
                       f"Column '{was.columns[before].name}' has a generated column dependency.")


# ------------------------------------------------------------------ writes
def without_generated(table: TableDef, columns: tuple[int, ...], rows: tuple[tuple[Any, ...], ...]
                      ) -> tuple[tuple[int, ...], tuple[tuple[Any, ...], ...]]:
    """The columns and rows of an INSERT without generated columns, which may have the value DEFAULT only."""
    made = [n for n, at in enumerate(columns) if table.columns[at].generated]
    for n in made:
        if any(row[n] is not DEFAULT for row in rows):
            raise generated_value(table.columns[columns[n]].name, table.name)
    kept = [n for n in range(len(columns)) if n not in made]
    return tuple(columns[n] for n in kept), tuple(tuple(row[n] for n in kept) for row in rows) if made else rows
