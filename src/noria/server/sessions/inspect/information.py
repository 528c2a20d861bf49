"""The rows of information_schema, from the program as it is when the query runs.

Keeps true: the columns are those of `sql/statements/information.py`.  A property that Noria does not have is NULL.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from noria.control.catalog.catalog import NamedRelations, ProgramCatalog
from noria.core.symbols import fold
from noria.core.types import Column, Field, Kind, SqlType, TableDef
from noria.server.access.permits import Permits
from noria.server.outcomes import ResultSet
from noria.server.sessions.inspect import inspection, privilege_rows
from noria.server.sessions.inspect.over_rows import run
from noria.sql.commands import Information
from noria.sql.statements.foreign_keys import unique_over
from noria.sql.statements.information import RELATIONS

Values = dict[str, Any]  # by the column's name in lower case; the others are NULL
_COLLATION = "utf8mb4_0900_ai_ci"


async def answer(command: Information, program: ProgramCatalog, permits: Permits) -> ResultSet:
    """Answer in a thread, since the query takes some 20 µs for each row.  program: as the session sees it.  Its account
    is shown as the definer of all views."""
    return await asyncio.to_thread(_answered, command, program.now(), permits)


def _answered(command: Information, program: NamedRelations, permits: Permits) -> ResultSet:
    query, own = command.query, {"definer": permits.shown_account}

    def rows_of(name: str, equal: Mapping[str, str]) -> list[tuple[Any, ...]]:
        only = equal.get("table_name")
        if name in privilege_rows.TABLES:
            listed = privilege_rows.rows(name, permits)
            return [tuple(row.get(c.name.lower()) for c in RELATIONS[name].columns) for row in listed]
        found = _OF_NAMES[name](program, only) if name in _OF_NAMES else _ROWS[name](program)
        return [tuple((own | row).get(c.name.lower()) for c in RELATIONS[name].columns) for row in found]

    rows = run(query.plan, rows_of)
    return ResultSet(query.fields, [row[:query.visible] for row in rows])


def _named(program: NamedRelations, only: str | None) -> Iterator[tuple[Values, str, str]]:
    """Yield each table and view: the columns that identify it, its name and its kind.

    only: the folded name, without its database, that a query asks for; None: it asks for all.
    """
    for name, kind in inspection.relations(program):
        database, bare = program.databases.split(name)
        if only is not None and fold(bare) != only:
            continue
        yield {"table_catalog": "def", "table_schema": database, "table_name": bare}, name, kind


def _schemata(program: NamedRelations) -> Iterator[Values]:
    for database in inspection.databases_of(program):
        yield {"catalog_name": "def", "schema_name": database.name, "default_character_set_name": database.charset,
               "default_collation_name": database.collation}


def _tables(program: NamedRelations, only: str | None) -> Iterator[Values]:
    for names, name, kind in _named(program, only):
        if kind == "VIEW":
            yield {**names, "table_type": kind, "table_comment": "VIEW"}
        else:
            yield {**names, "table_type": kind, "engine": inspection.ENGINE, "table_collation": _COLLATION,
                   "create_options": "", "table_comment": _comment_of(program.table(name))}


def _columns(program: NamedRelations, only: str | None) -> Iterator[Values]:
    for names, name, _ in _named(program, only):
        placeholder = program.placeholder_view(name)
        if placeholder is not None and not placeholder.fields:
            continue  # it reads a placeholder view, and has no columns until that is replaced
        for at, (field, column, table) in enumerate(inspection.columns_of(name, program)):
            if not inspection.sees_column(program, name, field.name):
                continue
            yield {**names, **_of_type(field), **_of_column(column), "column_name": field.name,
                   "ordinal_position": at + 1, "is_nullable": "YES" if field.nullable else "NO",
                   "column_key": inspection.key_of(at, table),
                   "privileges": inspection.privileges_on(program, name, field.name),
                   "column_comment": _comment_of(column),
                   "generation_expression": column.expression if column is not None and column.generated else ""}


def _comment_of(found: Column | TableDef | None) -> str:
    return "" if found is None else found.comment


def _of_column(column: Column | None) -> Values:
    if column is None:
        return {"column_default": None, "extra": ""}
    return {"column_default": inspection.default_of(column), "extra": inspection.extra_of(column)}


def _of_type(field: Field) -> Values:
    type, text = field.type, field.type.sql().split(" COLLATE")[0]
    out: Values = {"column_type": text, "data_type": text.split("(")[0].split(" ")[0]}
    if type.is_listed or (type.kind is Kind.TEXT and not type.is_json):
        most = _longest(type)
        long = not type.is_listed and not type.length  # counted in bytes
        out |= {"character_maximum_length": most,
                "character_octet_length": most if long or type.is_bytes else most * 4}
        if not type.is_bytes:
            out |= {"character_set_name": "utf8mb4", "collation_name": type.collation.value}
    elif type.is_bit:
        out |= {"numeric_precision": type.precision}
    elif type.kind is Kind.INT and type.declared != "year":
        out |= {"numeric_precision": _DIGITS[type.bits] + (type.bits == 64 and type.unsigned), "numeric_scale": 0}
    elif type.kind is Kind.DECIMAL:
        out |= {"numeric_precision": type.precision + type.length, "numeric_scale": type.scale + type.length}
    elif type.kind is Kind.DOUBLE:
        out |= {"numeric_precision": type.precision or (12 if type.bits == 32 else 22),
                "numeric_scale": type.scale if type.precision else None}
    elif type.kind in (Kind.DATETIME, Kind.TIME):
        out |= {"datetime_precision": type.scale}
    return out


def _longest(type: SqlType) -> int:
    """Return the maximum length in characters; in bytes for BYTES and for types without a length, such as TEXT."""
    if type.kind is Kind.ENUM:
        return max(map(len, type.members))
    if type.kind is Kind.SET:
        return sum(map(len, type.members)) + len(type.members) - 1
    return type.length or _LENGTHS.get(type.declared, 2**16 - 1)


_LENGTHS = {prefix + kind: most - 1 for prefix, most in (("tiny", 2**8), ("medium", 2**24), ("long", 2**32))
            for kind in ("text", "blob")}
_DIGITS = {8: 3, 16: 5, 24: 7, 32: 10, 64: 19}


def _statistics(program: NamedRelations) -> Iterator[Values]:
    for table in program.tables():
        for name, unique, columns in inspection.keys_of(table):
            kind, order = inspection.kind_of(table, name)
            for n, c in enumerate(columns):
                placed = _constrained(program, table)
                yield {**placed, "index_schema": placed["table_schema"], "index_name": name,
                       "non_unique": int(not unique), "seq_in_index": n + 1,
                       "column_name": inspection.name_in_key(table.columns[c]), "collation": order,
                       "sub_part": inspection.sub_part(table, name, n),
                       "nullable": "YES" if table.columns[c].nullable else "", "index_type": kind, "comment": "",
                       "index_comment": "", "is_visible": "YES",
                       "expression": inspection.expression_in_key(table.columns[c])}


def _constrained(program: NamedRelations, table: TableDef) -> Values:
    database, name = program.databases.split(table.name)
    return {"table_catalog": "def", "constraint_catalog": "def", "table_schema": database,
            "constraint_schema": database, "table_name": name}


def _constraints(program: NamedRelations) -> Iterator[tuple[Values, TableDef, str, tuple[int, ...]]]:
    for table in program.tables():
        for name, unique, columns in inspection.keys_of(table):
            if unique:
                yield {**_constrained(program, table), "constraint_name": name}, table, name, columns


def _table_constraints(program: NamedRelations) -> Iterator[Values]:
    for named, _, name, _ in _constraints(program):
        yield {**named, "constraint_type": "PRIMARY KEY" if name == "PRIMARY" else "UNIQUE", "enforced": "YES"}
    for table in program.tables():
        for check in table.checks:
            yield {**_constrained(program, table), "constraint_name": check.name, "constraint_type": "CHECK",
                   "enforced": "YES" if check.enforced else "NO"}
        for key in table.foreign_keys:
            yield {**_constrained(program, table), "constraint_name": key.name, "constraint_type": "FOREIGN KEY",
                   "enforced": "YES"}


def _check_constraints(program: NamedRelations) -> Iterator[Values]:
    for table in program.tables():
        for check in table.checks:
            placed = _constrained(program, table)
            yield {"constraint_catalog": "def", "constraint_schema": placed["constraint_schema"],
                   "constraint_name": check.name, "check_clause": check.text}


def _key_column_usage(program: NamedRelations) -> Iterator[Values]:
    for named, table, _, columns in _constraints(program):
        for n, c in enumerate(columns):
            if not table.columns[c].hidden and inspection.sees_column(program, table.name, table.columns[c].name):
                yield {**named, "column_name": table.columns[c].name, "ordinal_position": n + 1}
    for table in program.tables():
        for key in table.foreign_keys:
            database, parent = program.databases.split(key.parent)
            for n, (c, name) in enumerate(zip(key.columns, key.parent_columns, strict=True)):
                if not inspection.sees_column(program, table.name, table.columns[c].name):
                    continue
                yield {**_constrained(program, table), "constraint_name": key.name,
                       "column_name": table.columns[c].name, "ordinal_position": n + 1,
                       "position_in_unique_constraint": n + 1, "referenced_table_schema": database,
                       "referenced_table_name": parent, "referenced_column_name": name}


def _referential_constraints(program: NamedRelations) -> Iterator[Values]:
    for table in program.tables():
        for key in table.foreign_keys:
            (database, name), parent = program.databases.split(key.parent), program.table(key.parent)
            unique = None if parent is None else unique_over(parent, key.positions_in(parent))
            placed = _constrained(program, table)
            yield {"constraint_catalog": "def", "constraint_schema": placed["constraint_schema"],
                   "constraint_name": key.name, "unique_constraint_catalog": "def",
                   "unique_constraint_schema": database, "unique_constraint_name": unique, "match_option": "NONE",
                   "update_rule": key.on_update.value, "delete_rule": key.on_delete.value,
                   "table_name": placed["table_name"], "referenced_table_name": name}


def _views(program: NamedRelations) -> Iterator[Values]:
    there = [(v.name, v.text) for v in program.views() if not v.feed]
    for name, text in [*there, *((v.name, v.text) for v in program.placeholder_views())]:
        database, bare = program.databases.split(name)
        shown = text if inspection.shows_view(program, name) else ""
        yield {"table_catalog": "def", "table_schema": database, "table_name": bare, "view_definition": shown,
               "check_option": "NONE", "is_updatable": "NO", "security_type": "DEFINER",
               "character_set_client": "utf8mb4", "collation_connection": _COLLATION}


def _engines(program: NamedRelations) -> Iterator[Values]:
    yield {"engine": inspection.ENGINE, "support": "DEFAULT", "comment": "Base tables on RocksDB, views kept fresh",
           "transactions": "YES", "xa": "NO", "savepoints": "YES"}


def _character_sets(program: NamedRelations) -> Iterator[Values]:
    for name, description, collation, longest in inspection.CHARACTER_SETS:
        yield {"character_set_name": name, "default_collate_name": collation, "description": description,
               "maxlen": longest}


def _collations(program: NamedRelations) -> Iterator[Values]:
    for name, charset, number, default, compiled, sort_length in inspection.COLLATIONS:
        yield {"collation_name": name, "character_set_name": charset, "id": number, "is_default": default,
               "is_compiled": compiled, "sortlen": sort_length, "pad_attribute": "NO PAD"}


def _partitions(program: NamedRelations) -> Iterator[Values]:
    """Yield a row without a partition for each table, as MySQL does: no table has partitions."""
    for names, _, kind in _named(program, None):
        if kind != "VIEW":
            yield {**names, "partition_comment": "", "nodegroup": ""}


def _none(program: NamedRelations) -> Iterator[Values]:
    """Yield no rows: Noria has no triggers, routines, events or plugins."""
    return iter(())


_OF_NAMES: dict[str, Callable[[NamedRelations, str | None], Iterator[Values]]] = {
    "tables": _tables, "columns": _columns,
}
_ROWS: dict[str, Callable[[NamedRelations], Iterator[Values]]] = {
    "schemata": _schemata, "statistics": _statistics,
    "table_constraints": _table_constraints, "key_column_usage": _key_column_usage,
    "referential_constraints": _referential_constraints,
    "check_constraints": _check_constraints, "views": _views, "engines": _engines,
    "character_sets": _character_sets, "collations": _collations, "collation_character_set_applicability": _collations,
    "partitions": _partitions,
    **dict.fromkeys(("triggers", "routines", "parameters", "events", "plugins"), _none),
}
