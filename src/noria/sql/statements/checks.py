"""CHECK constraints of CREATE TABLE and ALTER TABLE: their names, what they may contain, and what depends on them.

Keeps true: each CHECK of a definition reads to a condition over the definition's columns.  The definition lists them
by name, as MySQL does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from sqlglot import exp

from noria.core.errors import SqlError
from noria.core.errors.codes import (
    ALTER_CONSTRAINT_ENFORCEMENT_NOT_SUPPORTED,
    CHECK_CONSTRAINT_DUP_NAME,
    CHECK_CONSTRAINT_FUNCTION_IS_NOT_ALLOWED,
    CHECK_CONSTRAINT_NAMED_FUNCTION_IS_NOT_ALLOWED,
    CHECK_CONSTRAINT_NOT_FOUND,
    CHECK_CONSTRAINT_REFERS_AUTO_INCREMENT_COLUMN,
    CHECK_CONSTRAINT_REFERS_UNKNOWN_COLUMN,
    CHECK_CONSTRAINT_ROW_VALUE,
    CHECK_CONSTRAINT_VARIABLES,
    COLUMN_CHECK_CONSTRAINT_REFERENCES_OTHER_COLUMN,
    CONSTRAINT_NOT_FOUND,
    DEPENDENT_BY_CHECK_CONSTRAINT,
    MULTIPLE_CONSTRAINTS_WITH_SAME_NAME,
    NON_BOOLEAN_EXPR_FOR_CHECK_CONSTRAINT,
)
from noria.core.expressions.expr import Call, Col, Expr
from noria.core.identifiers import without_database
from noria.core.types import Check, TableDef
from noria.sql.expressions.table_expressions import Place, names_in, parsed, refuse_unfit, resolved, text_of
from noria.sql.statements.foreign_keys import has_foreign_key
from noria.sql.statements.keys import shown_position
from noria.sql.text.refusals import refuse


class Declared(NamedTuple):
    """A CHECK as it is written.  name: "" if it has none.  column: the column that it belongs to, or "" for a table's.
    """

    name: str
    condition: exp.Expr
    enforced: bool
    column: str = ""


# ------------------------------------------------------------------ reading
def declared(nodes: Sequence[exp.Expr]) -> list[Declared]:
    """The CHECKs of a table's columns and parts, in the order of the text."""
    return [check for node in nodes for check in _declared(node)]


def _declared(node: exp.Expr) -> Iterator[Declared]:
    if isinstance(node, exp.ColumnDef):
        for part in node.args.get("constraints") or []:
            if isinstance(part.kind, exp.CheckColumnConstraint) and not says_json(part.kind, node.name):
                yield _read(part.kind, part.this, node.name)
    elif isinstance(node, exp.Constraint):
        for inner in node.expressions:
            if isinstance(inner, exp.CheckColumnConstraint):
                yield _read(inner, node.this)
    elif isinstance(node, exp.CheckColumnConstraint):
        yield _read(node, None)


def _read(node: exp.Expr, name: exp.Expr | None, column: str = "") -> Declared:
    return Declared("" if name is None else name.name, node.this, bool(node.args.get("enforced")), column)


def says_json(node: exp.Expr, column: str) -> bool:
    """Whether the CHECK is `json_valid(column)`, by which MariaDB declares JSON."""
    condition = node.this
    return isinstance(condition, exp.Anonymous) and condition.name.lower() == "json_valid" and (
        len(condition.expressions) == 1) and (
        isinstance(condition.expressions[0], exp.Column) and condition.expressions[0].name.lower() == column.lower())


# ------------------------------------------------------------------ a definition with them
def with_checks(table: TableDef, more: Sequence[Declared]) -> TableDef:
    """The table with further CHECKs.  One without a name is called after the table: t_chk_1, t_chk_2, …"""
    if not more:
        return table
    known = {c.name.lower() for c in table.checks}
    made, last = list(table.checks), max((n for c in table.checks if (n := _number(table.name, c.name))), default=0)
    for check in more:
        name = check.name
        if not name:
            last += 1
            name = f"{without_database(table.name)}_chk_{last}"
        if name.lower() in known:
            raise SqlError(*CHECK_CONSTRAINT_DUP_NAME, f"Duplicate check constraint name '{name}'.")
        known.add(name.lower())
        _condition(table, name, check.condition, check.column)
        made.append(Check(name, text_of(table, check.condition), check.enforced))
    return replace(table, checks=_in_order(made))


def _in_order(checks: Sequence[Check]) -> tuple[Check, ...]:
    return tuple(sorted(checks, key=lambda c: c.name.lower()))


def _number(table: str, name: str) -> int:
    """The n of a generated name t_chk_n, or 0."""
    found = re.fullmatch(re.escape(without_database(table).lower()) + r"_chk_([1-9][0-9]*)", name.lower())
    return int(found[1]) if found else 0


def _condition(table: TableDef, name: str, node: exp.Expr, own: str = "") -> Expr:
    """The typed condition of a CHECK.  own: the only column that it may read; "" for any."""
    refuse_unfit(node, Place(f"An expression of a check constraint '{name}'",
                             CHECK_CONSTRAINT_NAMED_FUNCTION_IS_NOT_ALLOWED, CHECK_CONSTRAINT_FUNCTION_IS_NOT_ALLOWED,
                             CHECK_CONSTRAINT_VARIABLES, CHECK_CONSTRAINT_ROW_VALUE))

    def column(of: str) -> None:
        if own and of.lower() != own.lower():
            raise SqlError(*COLUMN_CHECK_CONSTRAINT_REFERENCES_OTHER_COLUMN,
                           f"Column check constraint '{name}' references other column.")
        if shown_position(table, of) is None:
            raise SqlError(*CHECK_CONSTRAINT_REFERS_UNKNOWN_COLUMN,
                           f"Check constraint '{name}' refers to non-existing column '{of}'.")
        if table.columns[table.position(of)].auto_increment:
            raise SqlError(*CHECK_CONSTRAINT_REFERS_AUTO_INCREMENT_COLUMN,
                           f"Check constraint '{name}' cannot refer to an auto-increment column.")

    made = resolved(table, node, column)
    if isinstance(made, Col) or not (made.type.boolean or (isinstance(made, Call) and made.op == "json_valid")):
        raise SqlError(*NON_BOOLEAN_EXPR_FOR_CHECK_CONSTRAINT,
                       f"An expression of non-boolean type specified to a check constraint '{name}'.")
    return made


def checked_conditions(was: TableDef, table: TableDef) -> TableDef:
    """The altered table, without the CHECKs that read nothing but a dropped column.

    Raises error 3959 if another CHECK reads a column that was dropped or renamed.
    """
    kept, old = [], renamed(was, table.name).checks
    for check in table.checks:
        tree = parsed(check.text)
        names = {n.lower() for n in names_in(tree)}
        gone = [n for n in sorted(names) if not _stays(was, table, n)] if check in old or check in was.checks else []
        if gone and len(names) == 1 and _dropped(was, table, gone[0]):
            continue
        if gone:
            raise SqlError(*DEPENDENT_BY_CHECK_CONSTRAINT,
                           f"Check constraint '{check.name}' uses column '{was.columns[was.position(gone[0])].name}', "
                           "hence column cannot be dropped or renamed.")
        _condition(table, check.name, tree)
        if timed := [n for n in names if _takes_the_time(was, table, n)]:
            raise refuse("a new column with the time for its default in a CHECK", exp.to_identifier(timed[0]),
                         "add the column first, then the CHECK")
        kept.append(check)
    return replace(table, checks=tuple(kept)) if len(kept) < len(table.checks) else table


def _stays(was: TableDef, table: TableDef, name: str) -> bool:
    """Whether a column's name is still that of the same column, perhaps with converted values."""
    before = was.position(name)
    after = shown_position(table, name)
    return after is not None and (before in (after, table.columns[after].source) or (
        was.columns[before].generated and table.columns[after].generated))


def _takes_the_time(was: TableDef, table: TableDef, name: str) -> bool:
    """Whether the column is new, and has the time of the change in the rows that exist."""
    at = table.position(name)
    return at >= len(was.columns) and table.columns[at].takes_time and table.columns[at].source is None


def _dropped(was: TableDef, table: TableDef, name: str) -> bool:
    at = was.position(name)
    return bool(table.columns[at].dropped) and all(c.source != at for c in table.columns)


# ------------------------------------------------------------------ changes
def without_check(table: TableDef, name: str) -> TableDef:
    """Drop a CHECK.  Raises error 3821 if there is none of this name."""
    gone = _found(table, name)
    return replace(table, checks=tuple(c for c in table.checks if c is not gone))


def kind_of(table: TableDef, name: str) -> str:
    """Whether the constraint of this name is a "CHECK", a "FOREIGN KEY" or a "KEY".

    Raises error 3940 if there is none, and 3939 if there are several.
    """
    found = [kind for kind, there in (("CHECK", _has_check(table, name)), ("FOREIGN KEY", has_foreign_key(table, name)),
                                      ("KEY", _is_key(table, name))) if there]
    if len(found) > 1:
        raise SqlError(*MULTIPLE_CONSTRAINTS_WITH_SAME_NAME,
                       f"Table has multiple constraints with the name '{name}'. Please use constraint specific "
                       "'DROP' clause.")
    if not found:
        raise SqlError(*CONSTRAINT_NOT_FOUND, f"Constraint '{name}' does not exist.")
    return found[0]


def alter_check(table: TableDef, part: exp.Expr) -> TableDef:
    """ALTER {CHECK | CONSTRAINT} name [NOT] ENFORCED.  Raises error 3821 or 3940 if there is none of this name."""
    name = part.this.name
    if part.args["kind"] == "CONSTRAINT" and not _has_check(table, name):
        kind_of(table, name)
        raise SqlError(*ALTER_CONSTRAINT_ENFORCEMENT_NOT_SUPPORTED,
                       f"Altering constraint enforcement is not supported for the constraint '{name}'. Enforcement "
                       "state alter is not supported for the PRIMARY, UNIQUE and FOREIGN KEY type constraints.")
    found, enforced = _found(table, name), part.args["enforced"]
    return replace(table, checks=tuple(replace(c, enforced=enforced) if c is found else c for c in table.checks))


def _has_check(table: TableDef, name: str) -> bool:
    return any(c.name.lower() == name.lower() for c in table.checks)


def _is_key(table: TableDef, name: str) -> bool:
    """Whether the primary key or a UNIQUE index has this name."""
    if name.upper() == "PRIMARY":
        return bool(table.primary_key)
    return any(i.unique and i.name.lower() == name.lower() for i in table.indexes)


def _found(table: TableDef, name: str) -> Check:
    found = next((c for c in table.checks if c.name.lower() == name.lower()), None)
    if found is None:
        raise SqlError(*CHECK_CONSTRAINT_NOT_FOUND, f"Check constraint '{name}' is not found in the table.")
    return found


def renamed(table: TableDef, name: str) -> TableDef:
    """The table under another name, which generated names of CHECKs follow."""
    own = without_database(name)
    checks = [replace(c, name=f"{own}_chk_{n}") if (n := _number(table.name, c.name)) else c for c in table.checks]
    return replace(table, name=name, checks=_in_order(checks))
