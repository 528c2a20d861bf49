"""Prints definitions of tables, columns and indexes as SQL.

Keeps true: `sql/parse.py` reads the printed text to the same definition.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta

from noria.core.expressions.casts import show
from noria.core.expressions.coerce import MICROSECOND
from noria.core.identifiers import quote_identifier
from noria.core.types import Action, Check, Column, ForeignKey, IndexDef, TableDef
from noria.sql.statements.defaults import KINDS
from noria.sql.statements.keys import PRIMARY


# ------------------------------------------------------------------ one table
def table_text(table: TableDef, first_id: int = 1, name: str = "", options: str = "",
               called: Callable[[str], str] = quote_identifier, check_names: bool = True) -> str:
    """The CREATE TABLE of the table.  `first_id`: the next number of AUTO_INCREMENT.  `name`: how to write its name.
    `called`: how to write the name of a table that it refers to.  `check_names`: write the names of CHECKs."""
    lines = [f"  {column_text(c)}" for c in (table.columns[i] for i in table.shown)]
    if table.primary_key:
        lines.append(f"  PRIMARY KEY ({', '.join(primary_key_parts(table))})")
    lines += [f"  {index_text(table, i)}" for i in (*table.indexes, *table.fulltext) if i.name != PRIMARY]
    lines += [f"  {foreign_key_text(table, k, called)}" for k in table.foreign_keys]
    lines += [f"  {check_text(c, check_names)}" for c in table.checks]
    counter = f" AUTO_INCREMENT={first_id}" if first_id > 1 else ""
    options += f" COMMENT={text_literal(table.comment)}" if table.comment else ""
    return f"CREATE TABLE {name or quote_identifier(table.name)} (\n" + ",\n".join(lines) + f"\n){counter}{options}"


def primary_key_parts(table: TableDef) -> tuple[str, ...]:
    """The columns of the primary key, with their prefixes."""
    index = next((i for i in table.indexes if i.name == PRIMARY), None)
    return _parts(table, IndexDef(PRIMARY, table.primary_key) if index is None else index)


def _parts(table: TableDef, index: IndexDef) -> tuple[str, ...]:
    return tuple(part_text(table.columns[c]) + (f"({n})" if n else "") for c, n in table.parts(index))


def part_text(c: Column) -> str:
    return f"({c.expression})" if c.hidden else quote_identifier(c.name)


def index_text(table: TableDef, index: IndexDef) -> str:
    kind = "UNIQUE " if index.unique else "FULLTEXT " if index in table.fulltext else ""
    return f"{kind}KEY {quote_identifier(index.name)} ({', '.join(_parts(table, index))})"


def check_text(check: Check, named: bool = True) -> str:
    off = "" if check.enforced else " /*!80016 NOT ENFORCED */"
    return f"{f'CONSTRAINT {quote_identifier(check.name)} ' if named else ''}CHECK ({check.text}){off}"


def foreign_key_text(table: TableDef, key: ForeignKey, called: Callable[[str], str] = quote_identifier) -> str:
    actions = [f" ON {when} {action.value}" for when, action in (("DELETE", key.on_delete), ("UPDATE", key.on_update))
               if action is not Action.NO_ACTION]
    return (f"CONSTRAINT {quote_identifier(key.name)} FOREIGN KEY ({_names(table, key.columns)}) REFERENCES "
            f"{called(key.parent)} ({', '.join(map(quote_identifier, key.parent_columns))}){''.join(actions)}")


def column_text(c: Column) -> str:
    return _without_comment(c) + (f" COMMENT {text_literal(c.comment)}" if c.comment else "")


def _without_comment(c: Column) -> str:
    text = f"{quote_identifier(c.name)} {c.type.sql()}"
    if c.generated:
        text += f" GENERATED ALWAYS AS ({c.expression}) {c.computed.upper()}"
    text += "" if c.nullable else " NOT NULL"
    if c.auto_increment:
        return text + " AUTO_INCREMENT"
    update = f" ON UPDATE {now_text(c)}" if c.update_now else ""
    if c.default_now:
        return f"{text} DEFAULT {now_text(c)}{update}"
    return text + update + (f" DEFAULT {default_text(c)}" if c.has_default or c.computed in KINDS else "")


def default_text(c: Column) -> str:
    """The default of a column that has one: a literal, CURRENT_TIMESTAMP, or an expression in brackets."""
    if c.default_now:
        return now_text(c)
    if c.computed in KINDS:
        return f"({c.expression})"
    value = c.default
    if value is None:
        return "NULL"
    if c.type.is_bit:
        return f"b'{value:b}'"
    if isinstance(value, bytes) and value:
        return f"X'{value.hex()}'"
    said = "" if value == b"" else _time_text(value) if isinstance(value, timedelta) else (
        show(value, c.type) if isinstance(value, float) else str(value))
    return text_literal(said)


def text_literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def now_text(column: Column) -> str:
    return "CURRENT_TIMESTAMP" + (f"({column.type.scale})" if column.type.scale else "")


def _time_text(value: timedelta) -> str:
    seconds, micros = divmod(abs(value // MICROSECOND), 10**6)
    minutes, second = divmod(seconds, 60)
    sign = "-" if value < timedelta() else ""
    return f"{sign}{minutes // 60:02}:{minutes % 60:02}:{second:02}" + (f".{micros:06}" if micros else "")


def _names(table: TableDef, columns: Sequence[int]) -> str:
    return ", ".join(quote_identifier(table.columns[c].name) for c in columns)
