"""Translates writes whose rows a SELECT finds: INSERT … SELECT, and UPDATE or DELETE with joins, subqueries, ORDER BY
or LIMIT.

    UPDATE t JOIN u ON u.id = t.u_id SET t.a = u.b      SELECT t.id, u.b FROM t JOIN u ON u.id = t.u_id FOR UPDATE OF t
                                                        then, for each id:  UPDATE t SET a = b WHERE id = …
    DELETE FROM t WHERE a IN (SELECT b FROM u)          SELECT t.id FROM t WHERE … FOR UPDATE OF t
                                                        then                DELETE FROM t WHERE id IN (…)

Keeps true: `needs_select` is false for what `writes.py` translates.  Each execution plans the SELECT with the values of
the parameters in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlglot import exp

from noria.core.errors import (
    SqlError,
    ambiguous_column,
    generated_value,
    no_table,
    parse_error,
    unknown_column,
    wrong_value_count,
)
from noria.core.errors.codes import NONUNIQ_TABLE, UNKNOWN_TABLE, WRONG_USAGE
from noria.core.expressions.expr import Col, Expr
from noria.core.statements import NEW
from noria.core.types import TableDef
from noria.sql.commands import (
    Command,
    LockingSelect,
    Select,
    SelectedWrite,
    SelectItems,
    WriteTarget,
    bound_select,
)
from noria.sql.expressions.scalars import Resolver
from noria.sql.query.locking import locking
from noria.sql.query.plan_select import select_of
from noria.sql.query.relations.context import Catalog
from noria.sql.statements.keys import column_position
from noria.sql.statements.without_from import from_nothing, items_of
from noria.sql.statements.writing import writes
from noria.sql.text.refusals import refuse
from noria.sql.text.syntax import Statement, check_parts, is_subquery, snippet
from noria.sql.text.trees import children, has

Binder = Callable[[Sequence[Any]], Command]
Assignments = tuple[tuple[int, Expr], ...]
_UPDATE = frozenset({"this", "expressions", "where", "order", "limit", "with_"})
COMPUTED_ROWS = 500  # of one INSERT: each is planned by itself, while nobody else is answered
_DELETE = frozenset({"this", "tables", "using", "where", "order", "limit", "with_"})


def needs_select(tree: exp.Expr) -> bool:
    """Whether the write's rows are found by a SELECT."""
    if isinstance(tree, exp.Insert):
        rows = tree.expression
        return isinstance(rows, exp.Query) or (
            rows is not None and has(rows, exp.Query, exp.Exists, exp.Uuid, exp.Rand))
    if not isinstance(tree, exp.Update | exp.Delete):
        return False
    args = tree.args
    joined = not isinstance(args["this"], exp.Table) or bool(args["this"].args.get("joins"))
    if joined or any(args.get(name) for name in ("order", "limit", "with_", "tables", "using")):
        return True
    return any(has(part, exp.Query) for part in (args.get("where"), *(args.get("expressions") or ())) if part)


def translate(statement: Statement, tree: exp.Expr, catalog: Catalog) -> tuple[Command, Binder]:
    """The command with NULL for each parameter, and the binder.  Raises SqlError, also for unknown names."""
    first, nulls = tree, [None] * statement.parameters
    if (limit := tree.args.get("limit")) is not None and has(limit, exp.Placeholder):
        first = tree.copy()
        first.set("limit", None)  # NULL is no number of rows
    return (_Write(statement, first, catalog, nulls).command(),
            lambda values: _Write(statement, tree, catalog, list(values)).command())


@dataclass(frozen=True)
class _Source:
    """A table of FROM: the name by which columns refer to it, and its definition; None for a view or a subquery."""

    alias: str
    database: str
    table: TableDef | None


class _Write:
    """One write with the values of its parameters."""

    def __init__(self, statement: Statement, tree: exp.Expr, catalog: Catalog, values: list[Any]):
        self._statement = replace(statement, parameters=len(values))
        self._tree, self._catalog, self._values = tree, catalog, values

    def command(self) -> SelectedWrite:
        if isinstance(self._tree, exp.Insert):
            return self._insert(self._tree)
        found = self._update() if isinstance(self._tree, exp.Update) else self._delete()
        return replace(found, ignore=self._statement.ignore)

    def _planned(self, tree: exp.Expr) -> Select:
        found = select_of(self._statement, tree, self._catalog, self._values)
        return found if found.view is None else bound_select(found, self._values)

    # ------------------------------------------------------------ INSERT
    def _insert(self, node: exp.Insert) -> SelectedWrite:
        head, table = writes.insert_without_rows(self._statement, node, self._catalog, self._values)
        query = node.expression.unnest()
        select: Select | tuple[SelectItems, ...]
        if isinstance(query, exp.Values):
            kept, trees = _rows(query, len(head.columns))
            head, count = head._replace(columns=tuple(head.columns[n] for n in kept)), len(kept)
            select = tuple(items_of(self._statement, t, self._catalog, self._values) for t in trees)
        elif isinstance(query, exp.Select) and from_nothing(query):
            items = items_of(self._statement, query, self._catalog, self._values)
            select, count = (items,), len(items.items)
        else:
            select = self._planned(query)
            count = len(select.fields)
        if count != len(head.columns):
            raise wrong_value_count(1)
        made = [n for n, at in enumerate(head.columns) if table.columns[at].generated]
        if made:
            raise generated_value(table.columns[head.columns[made[0]]].name, table.name)
        return SelectedWrite(select, head)

    # ------------------------------------------------------------ UPDATE
    def _update(self) -> SelectedWrite:
        node, sources = self._tree, self._sources(self._tree.args["this"])
        check_parts(node, _UPDATE, "UPDATE")
        several = len(sources) > 1
        if several:
            _refuse_order(node)
        assigned: dict[str, list[exp.Expr]] = {}
        for assignment in node.expressions:
            assigned.setdefault(self._assigned(assignment, sources).alias, []).append(assignment)
        targets = [s for s in sources if s.alias in assigned]
        keys = sum(len(_key(s, node)) for s in targets)
        values = [e.expression for s in targets for e in assigned[s.alias] if not writes.is_default(e.expression)
                  ] if several else [n for e in node.expressions for n in _subqueries(e.expression)]
        select = self._select(targets, values)
        fields = select.fields[keys:]
        columns = {id(n): Col(f.type, True, NEW + keys + i)
                   for i, (n, f) in enumerate(zip(values, fields, strict=True))}
        made, at = [], 0
        for s in targets:
            table = _table(s)
            set_ = self._joined(table, assigned[s.alias], columns) if several else (
                self._single(table, s.alias, assigned[s.alias], columns))
            made.append(WriteTarget(table, at, set_))
            at += len(table.primary_key)
        return SelectedWrite(select, None, tuple(made))

    def _assigned(self, node: exp.Expr, sources: Sequence[_Source]) -> _Source:
        """The table that an assignment changes."""
        column = node.this if isinstance(node, exp.EQ) else None
        if not isinstance(column, exp.Column):
            raise writes.no_assignment(node)
        if column.table:
            found = [s for s in sources if s.alias.lower() == column.table.lower()]
        else:
            found = [s for s in sources if s.table is not None and _has_column(s.table, column.name)]
        if not found and (other := next((s for s in sources if s.table is None), None)) is not None:
            raise no_table(other.alias, True)
        if not found:
            raise unknown_column(f"{column.table}.{column.name}" if column.table else column.name, "field list")
        if len(found) > 1:
            raise ambiguous_column(column.name, "field list")
        return found[0]

    def _joined(self, table: TableDef, nodes: Sequence[exp.Expr], columns: Mapping[int, Col]) -> Assignments:
        """The assignments of one of several tables: each value is a column of the SELECT."""
        return writes.assignments_of(table, nodes, lambda n: columns[id(n)],
                                     lambda name, _, clause: _column(table, name, clause))

    def _single(self, table: TableDef, alias: str, nodes: Sequence[exp.Expr], columns: Mapping[int, Col]
                ) -> Assignments:
        """The assignments of the only table: values of subqueries are columns of the SELECT, others are computed for
        the row."""
        def subquery(r: Resolver, n: exp.Expr) -> Expr:
            return columns[id(n)]

        resolver = replace(writes.resolver(table, alias, self._values), subquery=subquery)
        return writes.assignments_of(table, nodes, resolver, resolver.column)

    # ------------------------------------------------------------ DELETE
    def _delete(self) -> SelectedWrite:
        node = self._tree
        check_parts(node, _DELETE, "DELETE")
        first, using, named = node.args["this"], node.args.get("using"), node.args.get("tables")
        if not isinstance(first, exp.Expr):
            raise parse_error(f"DELETE without FROM, near '{snippet(node)}'")
        if using:
            named, first = [first, *(j.this for j in first.args.get("joins") or ())], using[0]
            if len(using) > 1:
                raise refuse("USING with several lists", node, "join the tables")
        sources = self._sources(first)
        if named and (node.args.get("order") or node.args.get("limit")):
            raise parse_error("DELETE of named tables takes neither ORDER BY nor LIMIT")
        targets = [_named(n, sources) for n in named] if named else sources
        if not named and len(sources) > 1:
            raise refuse("DELETE FROM several tables without their names", node, "write DELETE t1, t2 FROM …")
        select = self._select(targets, [], first)
        made, at = [], 0
        for s in targets:
            made.append(WriteTarget(_table(s), at, None))
            at += len(_table(s).primary_key)
        return SelectedWrite(select, None, tuple(made))

    # ------------------------------------------------------------ the SELECT
    def _sources(self, first: exp.Expr) -> list[_Source]:
        found = []
        for node in (first, *(j.this for j in first.args.get("joins") or ())):
            if isinstance(node, exp.Table):
                found.append(_Source(node.alias_or_name, str(node.meta.get("database", "")).lower(),
                                     self._catalog.table(node.name)))
                known = self._catalog.view(node.name) is not None or self._of_with(node.name)
                if found[-1].table is None and not known:
                    raise no_table(node.meta.get("shown", node.name), False)
            else:
                found.append(_Source(node.alias_or_name, "", None))
        names = [s.alias.lower() for s in found]
        for name in names:
            if names.count(name) > 1:
                raise SqlError(*NONUNIQ_TABLE, f"Not unique table/alias: '{name}'")
        return found

    def _of_with(self, name: str) -> bool:
        clause = self._tree.args.get("with_")
        return clause is not None and any(c.alias.lower() == name.lower() for c in clause.expressions)

    def _select(self, targets: Sequence[_Source], values: Sequence[exp.Expr], first: exp.Expr | None = None
                ) -> LockingSelect | Select:
        """SELECT the keys of the targets, then the values, of the rows to write; it locks the targets' rows."""
        node = self._tree
        source = (node.args["this"] if first is None else first).copy()
        joins = source.args.pop("joins", None) or []
        items: list[exp.Expr] = []
        for s in targets:
            names = [_table(s).columns[c].name for c in _key(s, node)]
            items += [exp.column(exp.to_identifier(n, quoted=True), exp.to_identifier(s.alias, quoted=True))
                      for n in names]
        keys = len(items)
        items += [v.copy() for v in values]
        tree = exp.Select(
            expressions=[exp.Alias(this=item, alias=exp.to_identifier(f"column {n}", quoted=True))
                         for n, item in enumerate(items)],
            from_=exp.From(this=source), joins=joins,
            locks=[exp.Lock(update=True, expressions=[exp.Table(this=exp.to_identifier(s.alias, quoted=True))
                                                      for s in targets])],
            **{name: part.copy() for name in ("where", "order", "limit", "with_")
               if (part := node.args.get(name)) is not None})
        if self._statement.ignore and tree.args.get("order") is None and len(targets) == 1:
            tree.set("order", exp.Order(expressions=[exp.Ordered(this=item.copy()) for item in items[:keys]]))
        found, _ = locking(tree, self._catalog, lambda bare: ((select := self._planned(bare)), lambda values: select))
        assert isinstance(found, LockingSelect | Select), "temporary tables are not locked"
        return found


def _rows(values: exp.Values, columns: int) -> tuple[list[int], list[exp.Select]]:
    """A SELECT without FROM for each row of VALUES, and the places of its columns: those that are DEFAULT in all rows
    are left out."""
    rows = [t.expressions if isinstance(t, exp.Tuple) else [t] for t in values.expressions]
    if len(rows) > COMPUTED_ROWS:
        raise refuse(f"more than {COMPUTED_ROWS} rows of VALUES with subqueries, UUID() or RAND()", values,
                     "insert them in several statements")
    for number, row in enumerate(rows, 1):
        if len(row) != columns:
            raise wrong_value_count(number)
    kept = [n for n in range(columns) if not all(writes.is_default(row[n]) for row in rows)]
    if any(writes.is_default(row[n]) for row in rows for n in kept):
        raise refuse("DEFAULT in some rows beside a subquery or UUID()", values, "insert these rows by themselves")
    return kept, [exp.Select(expressions=[row[n] for n in kept]) for row in rows]


def _column(table: TableDef, name: str, clause: str) -> Expr:
    at = column_position(table, name, clause)
    return Col(table.columns[at].type, table.columns[at].nullable, at)


def _has_column(table: TableDef, name: str) -> bool:
    return any(c.name.lower() == name.lower() and not c.dropped for c in table.columns)


def _table(source: _Source) -> TableDef:
    """The table that is written.  Raises SqlError for a view or a subquery."""
    if source.table is None:
        raise no_table(source.alias, True)
    return source.table


def _key(source: _Source, node: exp.Expr) -> tuple[int, ...]:
    table = _table(source)
    if not table.primary_key:
        raise refuse(f"this write of '{table.name}', a table without a primary key", node, "give it one")
    return table.primary_key


def _subqueries(node: exp.Expr) -> list[exp.Expr]:
    """The outermost subqueries of an expression."""
    if is_subquery(node):
        return [node]
    return [found for child in children(node) for found in _subqueries(child)]


def _named(node: exp.Expr, sources: Sequence[_Source]) -> _Source:
    """The table of FROM that DELETE names."""
    name, database = str(node.meta.get("shown", node.name)), str(node.meta.get("database", "")).lower()
    found = [s for s in sources if s.alias.lower() in (name.lower(), f"{database}.{name}".lower())]
    if not found:
        raise SqlError(*UNKNOWN_TABLE, f"Unknown table '{name}' in MULTI DELETE")
    return found[0]


def _refuse_order(node: exp.Expr) -> None:
    """MySQL has no ORDER BY and LIMIT in an UPDATE of several tables."""
    for name, words in ("order", "ORDER BY"), ("limit", "LIMIT"):
        if node.args.get(name):
            raise SqlError(*WRONG_USAGE, f"Incorrect usage of UPDATE and {words}")


__all__ = ["needs_select", "translate"]
