"""Translates INSERT, REPLACE, UPDATE, DELETE and TRUNCATE to write statements (`core.statements`).

`insert`, `update` and `delete` return a binder: a function from the parameters' values to the statement.  Names are
resolved before, so an error is raised when a statement is prepared.  Values stay Python values; the table converts
and checks them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from sqlglot import exp

from noria.core.errors import (
    SqlError,
    generated_value,
    no_default,
    no_table,
    parse_error,
    unknown_column,
    wrong_value_count,
)
from noria.core.errors.codes import FIELD_SPECIFIED_TWICE
from noria.core.expressions.coerce import coerce
from noria.core.expressions.evaluate import constant
from noria.core.expressions.expr import Call, Col, Const, Expr, walk
from noria.core.expressions.functions import (
    NULL,
    HexLiteral,
    as_number,
    call,
    canonical,
    cast,
    for_column,
    literal,
    now,
    rebuilt,
    uses_clock,
    zero_divisors,
)
from noria.core.expressions.library.numbers import REMEMBERED
from noria.core.statements import DEFAULT, NEW, ClientWrite, Delete, Insert, Update
from noria.core.types import Column, Kind, SqlType, TableDef
from noria.sql.commands import Truncate
from noria.sql.expressions.scalars import Resolver, literal_value
from noria.sql.expressions.table_expressions import of_text
from noria.sql.expressions.templates import Templates
from noria.sql.query.fulltext import mark_conditions
from noria.sql.query.relations.context import Catalog
from noria.sql.statements.generated import without_generated
from noria.sql.statements.keys import column_position
from noria.sql.text import syntax as trees
from noria.sql.text.refusals import refuse
from noria.sql.text.syntax import check_parts, snippet

Binder = Callable[[Sequence[Any]], ClientWrite]
Assignments = tuple[tuple[int, Expr], ...]
_INSERT = frozenset({"this", "expression", "conflict", "ignore"})
_LITERALS = (exp.Literal, exp.Null, exp.Boolean, exp.HexString, exp.BitString, exp.National)


class _Param(int):
    """A `?` among a row's values, as its ordinal."""


def table_of(catalog: Catalog, node: exp.Expr) -> TableDef:
    if not isinstance(node, exp.Table):
        raise parse_error(f"the name of a table is missing, near '{snippet(node)}'")
    if node.args.get("joins"):
        raise refuse("writing several tables in one statement", node, "write one table at a time")
    check_parts(node, frozenset({"this", "alias", "db"}), "the table of a write")
    table = catalog.table(node.name)
    if table is None:
        raise no_table(node.name, catalog.view(node.name) is not None)
    return table


# ------------------------------------------------------------------ INSERT
def insert(statement: trees.Statement, node: exp.Insert, catalog: Catalog) -> Binder:
    """Translate INSERT [IGNORE], INSERT … ON DUPLICATE KEY UPDATE and REPLACE with VALUES or SET."""
    table, schema, columns = _target(node, catalog)
    values = node.expression
    if not isinstance(values, exp.Values):
        raise refuse("this INSERT", node, "write VALUES or a SELECT")
    rows = tuple(_row(t, table, columns, i) for i, t in enumerate(values.expressions, 1))
    if table.generated:
        columns, rows = without_generated(table, columns, rows)
    if not columns and not schema:
        raise parse_error("INSERT without values")
    on_duplicate, assignments = _duplicates(statement, node, table, values.alias_or_name)
    return _inserter(table.name, columns, rows, on_duplicate, assignments)


def insert_without_rows(statement: trees.Statement, node: exp.Insert, catalog: Catalog, values: Sequence[Any]
                        ) -> tuple[Insert, TableDef]:
    """The INSERT of rows that are still to be found, and its table.  values: of the parameters."""
    table, _, columns = _target(node, catalog)
    on_duplicate, assignments = _duplicates(statement, node, table, "")
    assigned = assignments(values)
    return Insert(table.name, columns, (), on_duplicate, assigned, any(uses_clock(e) for _, e in assigned)), table


def _target(node: exp.Insert, catalog: Catalog) -> tuple[TableDef, exp.Expr | None, tuple[int, ...]]:
    """The table of an INSERT, the list of its columns if there is one, and their positions."""
    check_parts(node, _INSERT, "INSERT")
    schema = node.this if isinstance(node.this, exp.Schema) else None
    table = table_of(catalog, schema.this if schema is not None else node.this)
    return table, schema, _insert_columns(table, schema)


def _duplicates(statement: trees.Statement, node: exp.Insert, table: TableDef, alias: str
                ) -> tuple[str, Callable[[Sequence[Any]], Assignments]]:
    """What an INSERT does with duplicates.  alias: of the new row."""
    conflict = node.args.get("conflict")
    named = node.this.this if isinstance(node.this, exp.Schema) else node.this
    return _on_duplicate(statement, node), _assigner(table, conflict.expressions if conflict else [], alias,
                                                     named.meta.get("shown", table.name))


def _inserter(name: str, columns: tuple[int, ...], rows: tuple[tuple[Any, ...], ...], on_duplicate: str,
              assignments: Callable[[Sequence[Any]], Assignments]) -> Binder:
    parameters = [[v for v in row if type(v) is _Param] for row in rows]
    timed = any(isinstance(v, Expr) for row in rows for v in row)

    def statement(rows: tuple[tuple[Any, ...], ...], values: Sequence[Any]) -> Insert:
        assigned = assignments(values)
        return Insert(name, columns, rows, on_duplicate, assigned, timed or any(uses_clock(e) for _, e in assigned))

    count = sum(map(len, parameters))
    if count == 0 and not any(isinstance(v, _Param) for row in rows for v in row):
        return lambda values: statement(rows, values)
    in_order = list(range(count)) == [int(v) for row in rows for v in row if type(v) is _Param]
    if len(rows) == 1 and in_order and len(rows[0]) == count and not timed and on_duplicate != "update":
        return lambda values: Insert(name, columns, (tuple(values),), on_duplicate)

    def bind(values: Sequence[Any]) -> Insert:
        bound = tuple([tuple([values[v] if type(v) is _Param else v for v in row]) for row in rows])
        return statement(bound, values)

    return bind


def _insert_columns(table: TableDef, schema: exp.Expr | None) -> tuple[int, ...]:
    if schema is None:
        return table.shown
    positions = tuple(column_position(table, c.name) for c in schema.expressions)
    if len(set(positions)) < len(positions):
        name = next(c.name for i, c in enumerate(schema.expressions) if positions[i] in positions[:i])
        raise SqlError(*FIELD_SPECIFIED_TWICE, f"Column '{name}' specified twice")
    return positions


def _row(node: exp.Expr, table: TableDef, columns: tuple[int, ...], number: int) -> tuple[Any, ...]:
    items = node.expressions if isinstance(node, exp.Tuple) else [node]
    if len(items) == 1 and isinstance(items[0], exp.Anonymous) and items[0].name.upper() == "ROW":
        items = items[0].expressions
    if len(items) == 0:
        return (DEFAULT,) * len(columns)
    if len(items) != len(columns):
        raise wrong_value_count(number)
    values = tuple(_value(n, table.columns[c].type) for n, c in zip(items, columns, strict=True))
    if any(isinstance(v, HexLiteral) for v in values):
        numbers = [table.columns[c].type.is_number for c in columns]
        return tuple((int(v) if number else bytes(v)) if isinstance(v, HexLiteral) else v
                     for v, number in zip(values, numbers, strict=True))
    return values


def _value(node: exp.Expr, type: SqlType) -> Any:
    """Read a value of VALUES for a column of the type: a literal, DEFAULT, a parameter, or a constant expression.

    The expression is evaluated now, unless it reads the clock or divides by zero."""
    if isinstance(node, _LITERALS):
        return literal_value(node)
    if isinstance(node, exp.Placeholder):
        return _Param(int(node.this))
    if is_default(node):
        return DEFAULT
    if isinstance(node, exp.Neg) and isinstance(node.this, exp.Literal) and not node.this.is_string:
        return -literal_value(node.this)

    def column(name: str, table: str, clause: str) -> Expr:
        raise unknown_column(name, clause)

    def parameter(p: exp.Placeholder) -> Expr:
        raise refuse("a parameter within an expression of VALUES", node, "compute the value in the application")

    e = for_column(_resolver(column, parameter, "field list")(node), type)
    if uses_clock(e) or any(map(constant, zero_divisors(e))):
        return e
    return constant(e)


def _on_duplicate(statement: trees.Statement, node: exp.Insert) -> str:
    conflict = node.args.get("conflict")
    if statement.replace:
        if conflict or node.args.get("ignore"):
            raise parse_error(f"REPLACE takes neither IGNORE nor ON DUPLICATE KEY, near '{snippet(node)}'")
        return "replace"
    if conflict is not None:
        if not conflict.args.get("duplicate"):
            raise parse_error("ON CONFLICT is not MySQL's: write ON DUPLICATE KEY UPDATE")
        if node.args.get("ignore"):
            raise refuse("INSERT IGNORE … ON DUPLICATE KEY UPDATE", node, "leave IGNORE out")
        return "update"
    return "ignore" if node.args.get("ignore") else "error"


def _assigner(table: TableDef, nodes: list[exp.Expr], alias: str, shown: str
              ) -> Callable[[Sequence[Any]], Assignments]:
    """The assignments of ON DUPLICATE KEY UPDATE.  A column refers to the stored row; VALUES(c), or a column of the
    alias, to the new row.  `shown`: the table's name as the statement has it."""
    def column(name: str, qualifier: str, clause: str) -> Expr:
        at = column_position(table, name, clause)
        new = bool(alias) and qualifier.lower() == alias.lower()
        if qualifier and not new and qualifier.lower() != shown.lower():
            raise unknown_column(f"{qualifier}.{name}", clause)
        c = table.columns[at]
        return Col(c.type, c.nullable, at + (NEW if new else 0))

    marked = [_values_marked(n) for n in nodes]
    alias = alias or "\0new"

    def assign(values: Sequence[Any]) -> Assignments:
        return assignments_of(table, marked, _resolver(column, _bound(values), "field list"), column)

    fixed = assign(())
    if not any(n.find(exp.Placeholder) for n in marked):
        return lambda values: fixed
    targets, made = [at for at, _ in fixed], Templates(lambda values: tuple(e for _, e in assign(values)))
    return lambda values: _to(targets, made(values)[0])


def _to(targets: Sequence[int], values: Sequence[Expr | None]) -> Assignments:
    return tuple(zip(targets, [e for e in values if e is not None], strict=True))


def _values_marked(node: exp.Expr) -> exp.Expr:
    """Replace VALUES(c) by a column of the new row."""
    def mark(n: exp.Expr) -> exp.Expr:
        if isinstance(n, exp.Anonymous) and n.name.upper() == "VALUES" and len(n.expressions) == 1:
            return exp.column(n.expressions[0].name, table="\0new")
        return n

    return node.transform(mark)


def _bound(values: Sequence[Any]) -> Callable[[exp.Placeholder], Expr]:
    return lambda p: literal(values[int(p.this)]) if values else NULL


def no_assignment(node: exp.Expr) -> SqlError:
    return parse_error(f"an assignment is written column = value, near '{snippet(node)}'")


def is_default(node: exp.Expr) -> bool:
    """Whether the node is the word DEFAULT."""
    return (isinstance(node, exp.Var) or (isinstance(node, exp.Column) and not node.table)) and (
        node.name.upper() == "DEFAULT")


def assignments_of(table: TableDef, nodes: Sequence[exp.Expr], value: Callable[[exp.Expr], Expr],
                   column: Callable[[str, str, str], Expr]) -> Assignments:
    """The assignments of SET.  value: translates a value; column: finds a column by its name, table and clause."""
    out: list[tuple[int, Expr]] = []
    for n in nodes:
        if not isinstance(n, exp.EQ) or not isinstance(n.this, exp.Column):
            raise no_assignment(n)
        target = column(n.this.name, n.this.table, "field list")
        assert isinstance(target, Col)
        default = is_default(n.expression)
        if table.columns[target.index].generated:
            if not default:
                raise generated_value(table.columns[target.index].name, table.name)
        elif default:
            out.append((target.index, _over_new_row(table, out, _default(table, target.index))))
        else:
            new = for_column(_over_new_row(table, out, value(n.expression)), table.columns[target.index].type)
            _check_remembered(table.columns[target.index], new, n)
            hexadecimal = isinstance(new, Const) and isinstance(new.value, HexLiteral)
            out.append((target.index, as_number(new) if hexadecimal and table.columns[target.index].type.is_number
                        else new))
    return tuple(out)


def _check_remembered(column: Column, e: Expr, node: exp.Expr) -> None:
    """Refuse LAST_INSERT_ID(value) unless it is the whole value of an integer column."""
    own = isinstance(e, Call) and e.op == REMEMBERED
    if any(isinstance(n, Call) and n.op == REMEMBERED and n is not e for n in walk(e)):
        raise refuse("LAST_INSERT_ID(…) within an expression", node, "write column = LAST_INSERT_ID(expression)")
    if own and column.type.kind is not Kind.INT:
        raise refuse(f"LAST_INSERT_ID(…) for '{column.name}', which is no integer", node, "use an integer column")


def _over_new_row(table: TableDef, done: list[tuple[int, Expr]], e: Expr) -> Expr:
    """Replace columns that are already assigned by their new values, since MySQL assigns from left to right."""
    new = dict(done)
    return rebuilt(e, lambda c: _stored(new[c.index], table.columns[c.index]) if c.index in new else c)


def _stored(e: Expr, column: Column) -> Expr:
    """The value converted to the column's type; a constant exactly as it will be stored."""
    if isinstance(e, Const) and e.value is not None:
        with suppress(SqlError):  # the assignment itself raises it
            return Const(column.type, False, coerce(e.value, column, 1))
    return cast(e, column.type)


def _default(table: TableDef, at: int) -> Expr:
    c = table.columns[at]
    if c.computed in ("default", "time"):
        return of_text(table, c.expression)
    if c.default_now:
        return now(c.type.scale, c.type.timestamp)
    if not c.has_default and not c.nullable:
        raise no_default(c.name)
    return literal(c.default if c.has_default else None)


def _resolver(column: Callable[[str, str, str], Expr], parameter: Callable[[exp.Placeholder], Expr], clause: str,
              table: TableDef | None = None) -> Resolver:
    """table: of the row, which its key tells from others."""
    key = () if table is None else table.primary_key or range(len(table.columns))
    columns = [] if table is None else [Col(table.columns[at].type, table.columns[at].nullable, at) for at in key]
    return Resolver(column, parameter, clause, clock=True, subquery=_no_subquery, identity=lambda of_group: columns,
                    remembers=clause == "field list")


def resolver(table: TableDef, alias: str, values: Sequence[Any]) -> Resolver:
    """Translates expressions over a row of the table.  values: of the parameters."""
    return _resolver(_columns_of(table, alias), _bound(values), "field list", table)


def _no_subquery(r: Resolver, node: exp.Expr) -> Expr:
    raise refuse("a subquery in ON DUPLICATE KEY UPDATE", node, "give it in VALUES, and write VALUES(column)")


# ------------------------------------------------------------------ UPDATE and DELETE
def update(node: exp.Update, catalog: Catalog) -> Binder:
    check_parts(node, frozenset({"this", "expressions", "where"}), "UPDATE")
    table = table_of(catalog, node.this)
    column = _columns_of(table, node.this.alias_or_name)

    def assignments(values: Sequence[Any]) -> Assignments:
        return assignments_of(table, node.expressions, _resolver(column, _bound(values), "field list", table), column)

    def resolved(values: Sequence[Any]) -> tuple[Expr | None, ...]:
        return *(e for _, e in assignments(values)), _where(node, column, values, table)

    made, targets = Templates(resolved), [at for at, _ in assignments(())]

    def bind(values: Sequence[Any]) -> Update:
        (*assigned, where), timed = made(values)
        return Update(table.name, _to(targets, assigned), where, timed)

    return _once(node, bind)


def delete(node: exp.Delete, catalog: Catalog) -> Binder:
    check_parts(node, frozenset({"this", "where"}), "DELETE")
    table = table_of(catalog, node.this)
    column = _columns_of(table, node.this.alias_or_name)

    made = Templates(lambda values: (_where(node, column, values, table),))

    def bind(values: Sequence[Any]) -> Delete:
        (where,), timed = made(values)
        return Delete(table.name, where, timed)

    return _once(node, bind)


def truncate(node: exp.TruncateTable, catalog: Catalog) -> Truncate:
    check_parts(node, frozenset({"expressions"}), "TRUNCATE")
    if len(node.expressions) != 1:
        raise refuse("TRUNCATE of several tables", node)
    return Truncate(table_of(catalog, node.expressions[0]).name)


def _once(node: exp.Expr, bind: Binder) -> Binder:
    """Bind once now, so that a prepared statement with unknown names fails when it is prepared."""
    fixed = bind(())
    return bind if node.find(exp.Placeholder) else lambda values: fixed


def _columns_of(table: TableDef, alias: str) -> Callable[[str, str, str], Expr]:
    def column(name: str, qualifier: str, clause: str) -> Expr:
        if qualifier and qualifier.lower() != alias.lower():
            raise unknown_column(f"{qualifier}.{name}", clause)
        at = column_position(table, name, clause)
        return Col(table.columns[at].type, table.columns[at].nullable, at)

    return column


def _where(node: exp.Expr, column: Callable[[str, str, str], Expr], values: Sequence[Any], table: TableDef
           ) -> Expr | None:
    where = node.args.get("where")
    if where is None:
        return None
    mark_conditions(table, node.this.alias_or_name, where)
    return canonical(call("and", _resolver(column, _bound(values), "where clause", table)(where.this)))
