"""Translates CREATE TABLE … LIKE and CREATE TABLE … AS SELECT.  Call `create` if `is_copy`.

    CREATE TABLE a LIKE b               →   CREATE TABLE a (…), with the parts of b
    CREATE TABLE a AS SELECT x FROM b   →   CREATE TABLE a (x …), then INSERT INTO a SELECT …
"""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from noria.core.errors import no_table, parse_error
from noria.core.identifiers import quote_identifier
from noria.core.statements import Insert
from noria.sql.commands import Command, CreateTableAs, SelectedWrite, SelectItems
from noria.sql.program.definition_text import table_text
from noria.sql.query.plan_select import select_of
from noria.sql.query.relations.context import Catalog
from noria.sql.statements.definitions import check_names, create_table
from noria.sql.statements.without_from import from_nothing, items_of
from noria.sql.text.databases import Names
from noria.sql.text.refusals import refuse
from noria.sql.text.syntax import Statement, parse_tokens, snippet, tokenize


def is_copy(tree: exp.Create) -> bool:
    return tree.kind == "TABLE" and (tree.expression is not None or _source_of_like(tree) is not None)


def create(statement: Statement, tree: exp.Create, catalog: Catalog, names: Names) -> Command:
    source = _source_of_like(tree)
    if source is None:
        return _filled_table(statement, tree, catalog, names)
    return create_table(statement, _like(tree, source, catalog), names)


def _source_of_like(tree: exp.Create) -> exp.Table | None:
    """The table of CREATE TABLE t LIKE s, or (LIKE s)."""
    parts = tree.args["properties"].expressions if tree.args.get("properties") else []
    parts = [*parts, *(tree.this.expressions if isinstance(tree.this, exp.Schema) else ())]
    like = [p for p in parts if isinstance(p, exp.LikeProperty)]
    if not like:
        return None
    if len(parts) > 1:
        raise parse_error(f"LIKE stands alone, near '{snippet(tree)}'")
    source: exp.Table = like[0].this
    return source


def _like(tree: exp.Create, source: exp.Table, catalog: Catalog) -> exp.Create:
    """CREATE TABLE t with the columns, indexes and CHECKs of another table, but without its FOREIGN KEYs."""
    table = catalog.table(source.name)
    if table is None:
        raise no_table(source.meta.get("shown", source.name), catalog.view(source.name) is not None)
    text = table_text(replace(table, foreign_keys=()), check_names=False)
    made = parse_tokens(tokenize(text), text).tree
    assert isinstance(made, exp.Create)
    made.this.set("this", tree.this.this if isinstance(tree.this, exp.Schema) else tree.this)
    made.set("exists", tree.args.get("exists"))
    return made


def _filled_table(statement: Statement, tree: exp.Create, catalog: Catalog, names: Names) -> Command:
    """CREATE TABLE t [(…)] AS SELECT …: columns that are not written get the names and types of the SELECT's."""
    if statement.parameters:
        raise refuse("a parameter in CREATE TABLE … AS SELECT", tree, "create the table, then INSERT … SELECT")
    query = tree.expression.unnest()
    found = select_of(statement, query, catalog) if not (isinstance(query, exp.Select) and from_nothing(query)) else (
        items_of(statement, query, catalog, ()))
    fields = [i.field for i in found.items] if isinstance(found, SelectItems) else list(found.fields)
    check_names([f.name for f in fields])
    named = tree.this.this if isinstance(tree.this, exp.Schema) else tree.this
    written = list(tree.this.expressions) if isinstance(tree.this, exp.Schema) else []
    have = {p.name.lower() for p in written if isinstance(p, exp.ColumnDef)}
    lines = ", ".join(f"{quote_identifier(f.name)} {f.type.sql()}{'' if f.nullable else ' NOT NULL'}" for f in fields
                      if f.name.lower() not in have)
    text = f"CREATE TABLE t ({lines or 'x INT'})"
    made = parse_tokens(tokenize(text), text).tree
    made.this.set("expressions", written + (made.this.expressions if lines else []))
    made.this.set("this", named)
    made.set("exists", tree.args.get("exists"))
    made.set("properties", tree.args.get("properties"))
    assert isinstance(made, exp.Create)
    create = create_table(statement, made, names)
    positions = tuple(create.table.position(f.name) for f in fields)
    rows = (found,) if isinstance(found, SelectItems) else found
    return CreateTableAs(create, SelectedWrite(rows, Insert(create.table.name, positions, ())))
