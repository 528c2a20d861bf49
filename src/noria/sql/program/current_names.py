"""Prints a view's text with the current names of its tables and their columns.  Call `with_current_names`.

sqlglot's `qualify` qualifies every column, expands every `*` and names every output; then old names are replaced by
current ones.  Keeps true: the new text is returned only if it plans to the same meaning.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.qualify import qualify
from sqlglot.optimizer.scope import Scope, traverse_scope

from noria.core.errors import SqlError
from noria.core.types import TableDef
from noria.plan.view import ViewDef
from noria.sql.program.view_plans import StaticCatalog, planned, same_rows
from noria.sql.text.databases import STORED
from noria.sql.text.syntax import parse_tokens, tokenize

_DIALECT = "mysql, normalization_strategy = case_insensitive"  # as column names are in MySQL


def with_current_names(text: str, as_of: int, tables: Mapping[str, TableDef], views: Mapping[str, ViewDef]
                       ) -> str | None:
    """The CREATE VIEW over the current tables with the meaning that `text` had after `as_of` column changes; None if
    it cannot be made."""
    then = {(t.name if (p := t.then(as_of)) is None else p.name).lower(): (t.as_of(as_of), t)
            for t in tables.values() if t.made <= as_of}
    before = {n: t for n, (t, _) in then.items()}
    try:
        body = parse_tokens(tokenize(text), text).body
        head = text[:text.rindex(body)]
        meant = planned(text, StaticCatalog(before, views))
        tree = _qualified(body, meant, before, views)
        spelt = head + _spelt(tree)
        _rename(tree, then)
        found = head + _spelt(tree)
        # over the old tables `spelt` equals the text; over tables that differ only in names, `spelt` equals `found`
        if (same_rows(meant, planned(spelt, StaticCatalog(before, views)))
                and same_rows(planned(spelt, StaticCatalog({n: _plain(t, now) for n, (t, now) in then.items()}, views)),
                              planned(found, StaticCatalog({n: _plain(t, t) for n, t in tables.items()}, views)))):
            planned(found, StaticCatalog(tables, views))
            return found
    except (SqlError, SqlglotError, ValueError):
        pass
    return None


def _plain(then: TableDef, now: TableDef) -> TableDef:
    """The table `now`, with all its columns and the names of `then`.  Columns that were not shown then get names that
    no text can have."""
    names = dict(then.shape)
    columns = tuple(replace(c, name=names.get(i, f"\0{i}"), dropped=0) for i, c in enumerate(now.columns))
    return replace(now, columns=columns, order=(), past=())


def _qualified(body: str, meant: ViewDef, tables: Mapping[str, TableDef], views: Mapping[str, ViewDef]
               ) -> exp.Expr:
    known = {n: [name for _, name in t.shape] for n, t in tables.items()}
    known |= {n: [f.name for f in v.fields] for n, v in views.items()}
    schema: dict[str, object] = {table: dict.fromkeys(names, "int") for table, names in known.items()}
    written = parse_one(body, dialect=_DIALECT)
    for node in written.find_all(exp.Table):
        if node.args.get("db"):  # as the catalog calls it
            called = node.alias or node.name
            node.set("this", exp.to_identifier(STORED.internal(node.args["db"].name, node.name), quoted=True))
            node.set("db", None)
            node.set("alias", exp.TableAlias(this=exp.to_identifier(called, quoted=True)))
    using = written.find(exp.Coalesce) is None  # `qualify` makes a COALESCE for each column that USING joins
    tree = qualify(written, dialect=_DIALECT, schema=schema, isolate_tables=False)
    if using:
        tree = tree.transform(lambda n: n.this if isinstance(n, exp.Coalesce) else n)
    _call(tree, meant)
    return tree


def _spelt(tree: exp.Expr) -> str:
    """The text of the tree; a table of another database than `noria` has its database."""
    tree = tree.copy()
    for node in tree.find_all(exp.Table):
        database, dot, name = node.name.partition(".")
        if dot:
            node.set("db", exp.to_identifier(database, quoted=True))
            node.set("this", exp.to_identifier(name, quoted=True))
    return tree.sql("mysql")


def _rename(tree: exp.Expr, then: Mapping[str, tuple[TableDef, TableDef]]) -> None:
    """Replace old names in the tree.  `then`: by old folded name, each table as it was and as it is."""
    columns = {id(c): (c, scope) for scope in traverse_scope(tree) for c in scope.columns}  # two scopes if correlated
    for column, scope in columns.values():
        table = _table(scope, column)
        if table in then:
            was, now = then[table]
            column.set("this", exp.to_identifier(now.columns[was.position(column.name)].name, quoted=True))
    for node in tree.find_all(exp.Table):
        if node.name.lower() in then:
            node.set("this", exp.to_identifier(then[node.name.lower()][1].name, quoted=True))


def _table(scope: Scope | None, column: exp.Column) -> str:
    """The folded name of the column's table or view; "" for a derived table, and for the name of an output."""
    while scope is not None:
        if column.table in scope.sources:
            source = scope.sources[column.table]
            return source.name.lower() if isinstance(source, exp.Table) else ""
        scope = scope.parent
    return ""


def _call(tree: exp.Expr, meant: ViewDef) -> None:
    """Name the outputs as the view's columns are named."""
    first = _first(tree)
    if len(first.expressions) != len(meant.fields):
        raise ValueError("columns that are not shown")
    first.set("expressions", [exp.alias_(e.unalias(), f.name, quoted=True)
                              for e, f in zip(first.expressions, meant.fields, strict=True)])


def _first(tree: exp.Expr) -> exp.Select:
    """The SELECT that names the columns of a UNION."""
    while not isinstance(tree, exp.Select):
        tree = tree.this
    return tree
