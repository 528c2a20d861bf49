"""Decides what a statement in the binlog means for the followed tables.  The binlog logs rows as rows; its statements
change tables, mark transactions, or do not matter here.

Keeps true: a logged INSERT, UPDATE, LOAD or the like (`_ROWS`) that names or uses the database is never `nothing`.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_COMMENT = re.compile(r"/\*(?!!|M!).*?\*/", re.DOTALL)
_LINE = re.compile(r"\s*(?:--|#)[^\n]*(?:\n|$)")
_VERSIONED = re.compile(r"/\*M?!\d*(.*?)\*/", re.DOTALL)
_NAME = r"(?:`(?:[^`]|``)+`|[\w$]+)"
_TABLE = rf"({_NAME})(?:\s*\.\s*({_NAME}))?"
_IF = r"(?:IF\s+(?:NOT\s+)?EXISTS\s+)?"
_ONE = {
    "truncate": re.compile(rf"TRUNCATE\s+(?:TABLE\s+)?{_TABLE}", re.IGNORECASE),
    "create": re.compile(rf"CREATE\s+(?:OR\s+REPLACE\s+)?TABLE\s+{_IF}{_TABLE}", re.IGNORECASE),
    "alter": re.compile(rf"ALTER\s+(?:ONLINE\s+|IGNORE\s+)*TABLE\s+{_IF}{_TABLE}", re.IGNORECASE),
    "index": re.compile(rf"(?:CREATE\s+(?:OR\s+REPLACE\s+)?(?:UNIQUE\s+|FULLTEXT\s+|SPATIAL\s+)?|DROP\s+)INDEX\s"
                        rf".*?\sON\s+{_TABLE}", re.IGNORECASE | re.DOTALL),
}
_LISTS = {"drop": re.compile(r"DROP\s+TABLES?\s+(?:IF\s+EXISTS\s+)?(.*)", re.IGNORECASE | re.DOTALL),
          "rename": re.compile(r"RENAME\s+TABLES?\s+(?:IF\s+EXISTS\s+)?(.*)", re.IGNORECASE | re.DOTALL)}
_NAMES = re.compile(_TABLE)
_WORDS = {"RESTRICT", "CASCADE", "TO", "WAIT", "NOWAIT"}
_ROWS = {"INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD", "CALL", "WITH", "MERGE", "DO", "HANDLER"}


class StatementMeaning(NamedTuple):
    """The meaning of a statement.

    `what` is begin, commit, rollback or xa.  It is truncate, create, alter (also of an index), drop or rename, with the
    names of the database's `tables`.  It is `rows` if rows change that were not logged as rows, `database` if the
    database is altered or dropped, or `nothing`.
    """

    what: str
    tables: tuple[str, ...] = ()


def meaning(statement: str, schema: str, database: str) -> StatementMeaning:
    """Return the meaning of a statement.  schema: the default database of its session.

    >>> meaning("TRUNCATE shop.`votes`", "", "shop"), meaning("truncate votes", "other", "shop").what
    (StatementMeaning(what='truncate', tables=('votes',)), 'nothing')
    """
    text = _VERSIONED.sub(r"\1", _COMMENT.sub(" ", statement))
    while found := _LINE.match(text):
        text = text[found.end():]
    text = text.strip().rstrip(";").rstrip()
    words = text.upper().split(None, 3)
    first, second = (*words, "", "")[:2]
    if first in ("BEGIN", "COMMIT", "XA"):
        return StatementMeaning(first.lower())
    if first == "START":
        return StatementMeaning("begin")
    if first in ("ROLLBACK", "SAVEPOINT", "RELEASE"):
        return StatementMeaning("rollback" if first == "ROLLBACK" else "nothing")
    if second == "TEMPORARY":
        return StatementMeaning("nothing")
    if first in ("DROP", "ALTER") and second in ("DATABASE", "SCHEMA"):
        return StatementMeaning("database" if _plain(words[-1]) == database or database in text else "nothing")
    for what, pattern in _ONE.items():
        if (one := pattern.match(text)) is not None:
            tables = _of_database([(one[1], one[2])], schema, database)
            return StatementMeaning({"index": "alter"}.get(what, what),
                                    tables) if tables else StatementMeaning("nothing")
    for what, pattern in _LISTS.items():
        if (some := pattern.match(text)) is not None:
            tables = _of_database(_NAMES.findall(some[1]), schema, database)
            return StatementMeaning(what, tables) if tables else StatementMeaning("nothing")
    return StatementMeaning("rows" if first in _ROWS and database in (schema, *_schemas(text)) else "nothing")


def _schemas(text: str) -> list[str]:
    return [_plain(a) for a, b in _NAMES.findall(text) if b]


def _of_database(names: list[tuple[str, str | None]], schema: str, database: str) -> tuple[str, ...]:
    found = []
    for first, second in names:
        if not second and first.upper() in _WORDS:
            continue
        if (_plain(first) if second else schema) == database:
            found.append(_plain(second or first))
    return tuple(found)


def _plain(name: str) -> str:
    return name[1:-1].replace("``", "`") if name.startswith("`") else name
