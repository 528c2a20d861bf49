"""Answers statements that read no table: SHOW, DESCRIBE, variables, SELECT without FROM.

Keeps true: answers have the columns of MySQL 8.0, since clients read them by name or position.  An unknown statement,
function or variable is rejected.
"""

from __future__ import annotations

import random
import re
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import Any, Protocol

from noria.control.catalog.catalog import NamedRelations, ProgramCatalog
from noria.control.catalog.view_index import reading
from noria.core.errors import SqlError, not_supported, unknown_table
from noria.core.errors.codes import UNKNOWN_SYSTEM_VARIABLE
from noria.core.expressions.functions import literal
from noria.core.identifiers import quote_identifier
from noria.core.types import BIGINT, TEXT, Column, Field, Kind, TableDef
from noria.plan.view import ViewDef
from noria.server.access.permits import Permits
from noria.server.outcomes import ResultSet
from noria.server.rows import jsonable
from noria.server.sessions.variables import SERVER_VERSION, VARIABLES
from noria.sql.commands import OutputColumn, SelectItems, Show
from noria.sql.program.definition_text import now_text, table_text
from noria.sql.statements.keys import PRIMARY
from noria.sql.statements.placeholder_views import PlaceholderView
from noria.sql.statements.qualified import shown_in
from noria.sql.statements.show_conditions import holding
from noria.sql.text.databases import Database, Databases, plain_namespace

ENGINE = "NORIA"
CHARACTER_SETS = (("utf8mb4", "UTF-8 Unicode", "utf8mb4_0900_ai_ci", 4),)
COLLATIONS = (("utf8mb4_0900_ai_ci", "utf8mb4", 255, "Yes", "Yes", 0), ("utf8mb4_bin", "utf8mb4", 46, "", "Yes", 1))


class SessionFacts(Protocol):
    """The parts of a session that answers read."""

    database: str
    user: str
    address: str
    connection_id: int
    last_insert_id: int
    row_count: int
    found_rows: int
    variables: dict[str, Any]
    user_variables: dict[str, Any]
    warnings: Sequence[tuple[str, int, str]]
    permits: Permits

    @property
    def namespace(self) -> str:
        """Under which database and mode of GROUP BY the session's texts are known (`sql/text/databases.py`)."""

    @property
    def server_variables(self) -> Mapping[str, Any]:
        """System variables that all sessions share."""


def texts(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> ResultSet:
    """Return a result.  A column in which all values are integers is BIGINT, every other one is TEXT."""
    kept = [tuple(r) for r in rows]
    fields = [Field(n, BIGINT if kept and all(type(r[i]) is int for r in kept) else TEXT)
              for i, n in enumerate(names)]
    return ResultSet(fields, [tuple(v if v is None or (type(v) is int and f.type is BIGINT) else str(v)
                                    for v, f in zip(r, fields, strict=True)) for r in kept])


# ---------------------------------------------------------------- SELECT without FROM
def select_items(command: SelectItems, about: SessionFacts) -> ResultSet:
    row = tuple(value_of(i, about) for i in command.items)
    fields = [Field(i.field.name, _fitting(i.field, v).type) for i, v in zip(command.items, row, strict=True)]
    return ResultSet(fields, [] if command.limit == 0 else [row])


def _fitting(field: Field, value: Any) -> Field:
    """Return the field with the type of a variable's value, which the parser cannot know."""
    if isinstance(value, str) and not field.type.is_text:
        return Field(field.name, TEXT)
    if isinstance(value, int) and field.type.kind is not Kind.INT:
        return Field(field.name, BIGINT)
    if isinstance(value, Decimal | float | bytes) and field.type is TEXT:
        return Field(field.name, literal(value).type)
    return field


def value_of(item: OutputColumn, about: SessionFacts) -> Any:
    """The value of a constant, a variable, a function of the session, or an expression of these without subqueries."""
    if item.kind == "value":
        return item.value
    if item.compute is not None and not item.queries:
        return item.compute([value_of(a, about) for a in item.arguments]).value
    if item.kind == "user_variable":
        return about.user_variables.get(item.name.lower())
    if item.kind == "variable":
        return variable(item.name, item.scope, about)
    function = _FUNCTIONS.get(item.name.upper())
    if function is None:
        raise not_supported(f"the function {item.name}()")
    return function(about)


def known_variables(scope: str, about: SessionFacts) -> Mapping[str, Any]:
    return {**(VARIABLES if scope == "global" else about.variables), **about.server_variables}


def variable(name: str, scope: str, about: SessionFacts) -> Any:
    known = known_variables(scope, about)
    if name.lower() not in known:
        raise SqlError(*UNKNOWN_SYSTEM_VARIABLE, f"Unknown system variable '{name}'")
    return known[name.lower()]


_FUNCTIONS: dict[str, Callable[[SessionFacts], Any]] = {
    "DATABASE": lambda a: a.database or None,
    "SCHEMA": lambda a: a.database or None,
    "VERSION": lambda a: SERVER_VERSION,
    "USER": lambda a: f"{a.user}@{a.address}",
    "CURRENT_USER": lambda a: a.permits.shown_account,
    "CURRENT_ROLE": lambda a: ",".join(r.quoted for r in sorted(a.permits.roles)) or "NONE",
    "SESSION_USER": lambda a: f"{a.user}@{a.address}",
    "SYSTEM_USER": lambda a: f"{a.user}@{a.address}",
    "CONNECTION_ID": lambda a: a.connection_id,
    "LAST_INSERT_ID": lambda a: a.last_insert_id,
    "ROW_COUNT": lambda a: a.row_count,
    "FOUND_ROWS": lambda a: a.found_rows,
    "UUID": lambda a: str(uuid.uuid1()),
    "UUID_SHORT": lambda a: uuid.uuid4().int >> 66,
    "RAND": lambda a: random.random(),
}


def processlist(rows: Sequence[Sequence[Any]]) -> ResultSet:
    return texts(("Id", "User", "Host", "db", "Command", "Time", "State", "Info"), rows)


# ---------------------------------------------------------------- SHOW
def show(command: Show, program: ProgramCatalog, about: SessionFacts) -> ResultSet:
    handler = _SHOW.get(command.what)
    if handler is None:
        raise not_supported(f"SHOW {command.what.upper()}")
    return narrowed(command, handler(command, program, about))


def narrowed(command: Show, found: ResultSet) -> ResultSet:
    """Return the rows that satisfy LIKE (on the first column), WHERE and LIMIT."""
    rows = found.rows
    if command.like is not None:
        matches = like(command.like)
        rows = [r for r in rows if matches(str(r[0]))]
    if command.where:
        rows = holding(command.where, found.fields, rows)
    if command.limit is not None:
        offset, count = command.limit
        rows = rows[offset : offset + count]
    return found if rows is found.rows else ResultSet(found.fields, rows)


def like(pattern: str) -> Callable[[str], bool]:
    """Return a test whether a name matches a LIKE pattern, ignoring case."""
    parts = re.findall(r"\\.|.", pattern, re.DOTALL)
    regex = "".join({"%": ".*", "_": "."}.get(p, re.escape(p[-1])) for p in parts)
    return lambda name: re.fullmatch(regex, name, re.IGNORECASE | re.DOTALL) is not None


def relations(program: NamedRelations) -> list[tuple[str, str]]:
    """Return the sorted names and kinds of the tables and views.  Feeds are not among them: no SELECT can name them."""
    found = [(t.name, "BASE TABLE") for t in program.tables()]
    found += [(name, "VIEW") for name in (*(v.name for v in program.views() if not v.feed), *_placeholders(program))]
    return sorted(found)


def _within(program: NamedRelations, database: str) -> list[tuple[str, str]]:
    """As `relations`, of one database and with the names in it."""
    named = [(program.databases.split(name), kind) for name, kind in relations(program)]
    return [(name, kind) for (of, name), kind in named if of == database]


def _placeholders(program: NamedRelations) -> list[str]:
    return [v.name for v in program.placeholder_views()]


def _tables(command: Show, program: ProgramCatalog, about: SessionFacts) -> ResultSet:
    rows = _within(program, command.target)
    name = f"Tables_in_{command.target}" + (f" ({command.like})" if command.like is not None else "")
    return texts([name, "Table_type"], rows) if command.full else texts([name], [r[:1] for r in rows])


def _views(command: Show, program: ProgramCatalog, about: SessionFacts) -> ResultSet:
    named = map(program.databases.split, (*(v.name for v in program.views()), *_placeholders(program)))
    return texts(["View"], sorted((name,) for of, name in named if of == command.target))


def columns_of(name: str, program: NamedRelations) -> list[tuple[Field, Column | None, TableDef | None]]:
    """Return the columns of a table or view; for a table, with their definitions.  Raises SqlError 1146."""
    table = program.table(name)
    if table is not None:
        return [(c.field, c, table) for c in (table.columns[i] for i in table.shown)]
    placeholder = program.placeholder_view(name)
    has_fields = placeholder is not None and placeholder.fields
    view: ViewDef | PlaceholderView | None = placeholder if has_fields else program.view(name)
    if view is None:
        raise unknown_table(name)
    return [(f, None, None) for f in view.fields]


def _columns(command: Show, program: ProgramCatalog, about: SessionFacts) -> ResultSet:
    rows = []
    for i, (field, column, table) in enumerate(columns_of(command.target, program)):
        if not sees_column(program, command.target, field.name):
            continue
        default = None if column is None else default_of(column)
        extra = "" if column is None else extra_of(column)
        kind = field.type.sql().split(" COLLATE")[0]
        row = [field.name, kind, "YES" if field.nullable else "NO", key_of(i, table), default, extra]
        if command.full:
            row.insert(2, field.type.collation.value if field.type.is_text else None)
            row += [privileges_on(program, command.target, field.name), "" if column is None else column.comment]
        rows.append(row)
    names = ["Field", "Type", "Null", "Key", "Default", "Extra"]
    if command.full:
        names = ["Field", "Type", "Collation", "Null", "Key", "Default", "Extra", "Privileges", "Comment"]
    return texts(names, rows)


def extra_of(column: Column) -> str:
    if column.generated:
        return f"{column.computed.upper()} GENERATED"
    said = ["auto_increment"] * column.auto_increment + ["DEFAULT_GENERATED"] * (
        column.default_now or bool(column.computed))
    return " ".join(said + [f"on update {now_text(column)}"] * column.update_now)


def default_of(column: Column) -> str | None:
    if column.default_now:
        return now_text(column)
    if column.computed:
        return None if column.generated else column.expression
    if not column.has_default or column.default is None:
        return None
    return f"b'{column.default:b}'" if column.type.is_bit else str(column.default)


def key_of(at: int, table: TableDef | None) -> str:
    """Return PRI, UNI, MUL or "" for the visible column at this position."""
    if table is None:
        return ""
    column = table.shown[at]
    if column in table.primary_key:
        return "PRI"
    for index in (*table.indexes, *table.fulltext):
        if table.parts(index)[0][0] == column:
            return "UNI" if index.unique and len(index.columns) == 1 and not index.prefix else "MUL"
    return ""


def create_table(table: TableDef, next_number: int, program: NamedRelations) -> ResultSet:
    databases = program.databases
    (database, name), options = databases.split(table.name), databases.table_options(table.name)
    text = table_text(table, next_number, quote_identifier(name), options, partial(databases.called_in, database))
    return texts(["Table", "Create Table"], [(name, text)])


def _create_database(command: Show, program: ProgramCatalog, about: SessionFacts) -> ResultSet:
    """Answer SHOW CREATE DATABASE.  command.full: with IF NOT EXISTS, as dumps request it."""
    exists = "/*!32312 IF NOT EXISTS*/ " if command.full else ""
    database = program.databases.named(command.target)
    options = f" /*!40100 DEFAULT {database.options} */" if database.options else ""
    return texts(["Database", "Create Database"],
                 [(database.name, f"CREATE DATABASE {exists}{quote_identifier(database.name)}{options}")])


def _create_view(command: Show, program: ProgramCatalog, about: SessionFacts) -> ResultSet:
    placeholder = program.placeholder_view(command.target)
    if placeholder is not None:
        name, text = placeholder.name, placeholder.text
    elif (view := program.view(command.target)) is not None:
        name, text = view.name, program.create_text(view)
    else:
        raise unknown_table(command.target)
    shown = shown_in(text, plain_namespace(about.namespace))
    return texts(["View", "Create View", "character_set_client", "collation_connection"],
                 [(program.databases.bare(name), shown, "utf8mb4", "utf8mb4_0900_ai_ci")])


def _index(command: Show, program: ProgramCatalog, about: SessionFacts) -> ResultSet:
    table = program.table(command.target)
    if table is None and program.placeholder_view(command.target) is None and program.view(command.target) is None:
        raise unknown_table(command.target)
    rows = [] if table is None else [
        (program.databases.bare(table.name), int(not unique), name, n + 1, name_in_key(table.columns[c]), order, None,
         sub_part(table, name, n), None, "YES" if table.columns[c].nullable else "", kind, "", "", "YES",
         expression_in_key(table.columns[c]))
        for name, unique, columns in keys_of(table) for kind, order in [kind_of(table, name)]
        for n, c in enumerate(columns)]
    return texts(["Table", "Non_unique", "Key_name", "Seq_in_index", "Column_name", "Collation", "Cardinality",
                  "Sub_part", "Packed", "Null", "Index_type", "Comment", "Index_comment", "Visible", "Expression"],
                 rows)


def name_in_key(column: Column) -> str | None:
    return None if column.hidden else column.name


def expression_in_key(column: Column) -> str | None:
    return column.expression if column.hidden else None


def keys_of(table: TableDef) -> list[tuple[str, bool, tuple[int, ...]]]:
    """Return (name, unique, columns) of the table's keys and indexes; the primary key is first."""
    keys = [("PRIMARY", True, table.primary_key)] if table.primary_key else []
    others = [i for i in (*table.indexes, *table.fulltext) if i.name != PRIMARY]  # a part of the primary key
    return keys + [(i.name, i.unique, tuple(c for c, _ in table.parts(i))) for i in others]


def kind_of(table: TableDef, name: str) -> tuple[str, str | None]:
    """Return the type of a key, and the order of its entries: "A" for ascending, or None."""
    return ("FULLTEXT", None) if any(i.name == name for i in table.fulltext) else ("BTREE", "A")


def sub_part(table: TableDef, name: str, part: int) -> int | None:
    """Return the length of the prefix of a key's column, or None."""
    index = next((i for i in table.indexes if i.name == name), None)
    return index.prefix[part] or None if index is not None and index.prefix else None


def _variables(command: Show, program: ProgramCatalog, about: SessionFacts) -> ResultSet:
    known = known_variables(command.scope, about)
    return texts(["Variable_name", "Value"], sorted((k, _shown(k, v)) for k, v in known.items()))


def _shown(name: str, value: Any) -> str:
    switches = ("autocommit", "foreign_key_checks", "unique_checks", "performance_schema", "sql_auto_is_null",
                "sql_safe_updates", "transaction_read_only", "tx_read_only")
    return ("ON" if value else "OFF") if name in switches else str(value)


def _warnings(command: Show, program: ProgramCatalog, about: SessionFacts) -> ResultSet:
    return texts(["Level", "Code", "Message"], about.warnings)


def _errors(command: Show, program: ProgramCatalog, about: SessionFacts) -> ResultSet:
    return texts(["Level", "Code", "Message"], [w for w in about.warnings if w[0] == "Error"])


def _databases(command: Show, program: ProgramCatalog, about: SessionFacts) -> ResultSet:
    return texts(["Database"], sorted((d.name,) for d in databases_of(program)))


def databases_of(program: Any) -> list[Database]:
    """The databases that are listed: of a limited session, those that it sees (`access/seen.py`)."""
    found: list[Database] = list(getattr(program, "listed_databases", program.databases))
    return found


def shows_view(program: Any, view: str) -> bool:
    return not hasattr(program, "listed_databases") or program.shows_view(view)


def sees_column(program: Any, table: str, column: str) -> bool:
    return not hasattr(program, "listed_databases") or program.sees_column(table, column)


def privileges_on(program: Any, table: str, column: str) -> str:
    """The privileges on a column, as SHOW FULL COLUMNS lists them."""
    limited = hasattr(program, "listed_databases")
    return str(program.privileges_on(table, column)) if limited else "select,insert,update,references"


def _table_status(command: Show, program: ProgramCatalog, about: SessionFacts) -> ResultSet:
    rows: list[tuple[str | None, ...]] = []
    for name, kind in relations(program):
        database, shown = program.databases.split(name)
        table = program.table(name) if kind != "VIEW" else None
        if database == command.target:
            rows.append((shown, ENGINE if kind == "BASE TABLE" else None, "utf8mb4_0900_ai_ci",
                         "VIEW" if kind == "VIEW" else "" if table is None else table.comment))
    return texts(["Name", "Engine", "Collation", "Comment"], rows)


def _empty(*names: str) -> Callable[[Show, ProgramCatalog, SessionFacts], ResultSet]:
    return lambda command, program, about: texts(names, [])


def _fixed(names: Sequence[str], *rows: Sequence[Any]) -> Callable[[Show, ProgramCatalog, SessionFacts], ResultSet]:
    return lambda command, program, about: texts(names, rows)


_SHOW: dict[str, Callable[[Show, ProgramCatalog, SessionFacts], ResultSet]] = {
    "tables": _tables,
    "views": _views,
    "columns": _columns,
    "fields": _columns,
    "create database": _create_database,
    "create table": _create_view,  # for a view; `Session._show` answers for a table, whose counter it must request
    "create view": _create_view,
    "index": _index,
    "indexes": _index,
    "keys": _index,
    "variables": _variables,
    "status": _empty("Variable_name", "Value"),
    "warnings": _warnings,
    "errors": _errors,
    "databases": _databases,
    "schemas": _databases,
    "table status": _table_status,
    "engines": _fixed(["Engine", "Support", "Comment", "Transactions", "XA", "Savepoints"],
                      (ENGINE, "DEFAULT", "Base tables on RocksDB, views kept fresh", "YES", "NO", "YES")),
    **dict.fromkeys(("character set", "charset"), _fixed(["Charset", "Description", "Default collation", "Maxlen"],
                                                         *CHARACTER_SETS)),
    "collation": _fixed(["Collation", "Charset", "Id", "Default", "Compiled", "Sortlen"], *COLLATIONS),
    "plugins": _empty("Name", "Status", "Type", "Library", "License"),
    "triggers": _empty("Trigger", "Event", "Table", "Statement", "Timing", "Created"),
    "procedure status": _empty("Db", "Name", "Type", "Definer"),
    "function status": _empty("Db", "Name", "Type", "Definer"),
    "events": _empty("Db", "Name", "Definer", "Status"),
}


def list_fields(table: str, pattern: str, program: ProgramCatalog) -> list[Field]:
    """Return the columns whose names match the LIKE pattern ("": all), for COM_FIELD_LIST."""
    matches = like(pattern or "%")
    return [f for f, _, _ in columns_of(table, program) if matches(f.name)]


def view_about(view: ViewDef, program: ProgramCatalog) -> dict[str, Any]:
    """Describe a view for /views."""
    kinds = ("feed", view.feed), ("internal", view.internal), ("ad-hoc", view.adhoc), ("view", True)
    return {"name": view.name, "kind": next(kind for kind, is_one in kinds if is_one),
            "key": [f.name for f in view.key_fields], "columns": [f.name for f in view.fields], "text": view.text,
            "explain": program.explanation(view.name)}


def about_view(view: ViewDef, reader: ViewDef | None) -> dict[str, Any]:
    """Describe a view for a client that looks keys up, perhaps by itself in the shared memory of `reader`."""
    empty = None if view.empty_row is None else [jsonable(v) for v in view.empty_row]
    key = [f.name for f in view.key_fields] if view.asks is None else list(view.asks.names)
    return {"name": view.name, "columns": [f.name for f in view.fields], "key": key, "plain": view.asks is None,
            "internal": view.internal,
            "text": view.text, "order": view.order, "limit": view.limit, "offset": view.offset, "empty_row": empty,
            "reader": None if reader is None else reader.name,
            "through": None if reader is None or (some := reading(reader, view)) is None else some.as_json(),
            "definition": (reader or view).definition}


def about_table(table: TableDef, databases: Databases) -> dict[str, Any]:
    """Describe a table for a client that writes to it."""
    columns = [table.columns[i] for i in table.writable]
    database, name = databases.split(table.name)
    return {"name": name, "database": database, "columns": [c.name for c in columns],
            "types": [c.type.sql() for c in columns],
            "primary_key": [table.columns[i].name for i in table.primary_key]}
