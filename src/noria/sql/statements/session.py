"""Reads statements about the session: SET, SHOW, DESCRIBE, USE, transactions, locks, KILL, RENAME TABLE.

Call `command`.  It reads the tokens without sqlglot's parser, because drivers send these statements at every connect
and in many spellings.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any, Literal

from sqlglot.tokenizer_core import Token, TokenType

from noria.core.errors import not_supported, parse_error
from noria.core.types import TEXT, Field
from noria.sql.commands import (
    Assignment,
    Command,
    Kill,
    LockTables,
    NoOp,
    OutputColumn,
    RenameTables,
    SetVariable,
    Show,
    Transaction,
    Use,
)
from noria.sql.statements import databases, prepared
from noria.sql.statements.definitions import check_name
from noria.sql.statements.people import accounts, grants
from noria.sql.statements.upkeep.tables import flush, upkeep
from noria.sql.statements.without_from import LOCK_FUNCTIONS
from noria.sql.statements.writing import loading
from noria.sql.text.databases import Names
from noria.sql.text.refusals import names_no_program, refuse_program

_STRINGS = {TokenType.STRING, TokenType.NATIONAL_STRING}
_QUOTED = {TokenType.IDENTIFIER}
_SCOPES = {"SESSION": "session", "LOCAL": "session", "GLOBAL": "global", "PERSIST": "global", "@@SESSION": "session",
           "@@LOCAL": "session", "@@GLOBAL": "global"}
_SHOWS = (  # the words of each, in the order in which they are tried
    "create table", "create view", "create user", "create database", "create schema", "character set", "charset",
    "collation", "columns", "fields",
    "databases", "schemas", "engines", "storage engines", "errors", "warnings", "grants", "index", "indexes", "keys",
    "plugins", "privileges", "processlist", "procedure status", "function status", "triggers", "events",
    "table status", "tables", "open tables", "variables", "status", "views", "binary logs", "master status",
    "slave status", "replica status", "profiles", "count", "noria views", "noria status", "noria graph",
    "noria migrations", "noria history", "noria program", "noria following",
)
_SAME = {"create schema": "create database", "fields": "columns", "schemas": "databases", "indexes": "index",
         "keys": "index", "charset": "character set", "storage engines": "engines"}


class _TokenReader:
    """The tokens of one statement, read from left to right."""

    def __init__(self, tokens: list[Token], text: str, names: Names):
        self.tokens, self.text, self.names, self.at = tokens, text, names, 0

    @property
    def word(self) -> str:
        """The next token in upper case; empty at the end and for strings and quoted names."""
        t = self.peek()
        return "" if t is None or t.token_type in _STRINGS | _QUOTED else t.text.upper()

    def peek(self) -> Token | None:
        return self.tokens[self.at] if self.at < len(self.tokens) else None

    def next(self) -> Token:
        t = self.peek()
        if t is None:
            raise parse_error(f"the statement ends too early: '{self.text[:80]}'")
        self.at += 1
        return t

    def take(self, *words: str) -> bool:
        """Skip these words if they come next; return whether they did."""
        for i, w in enumerate(words):
            if self.at + i >= len(self.tokens) or self.tokens[self.at + i].text.upper() != w:
                return False
        self.at += len(words)
        return True

    def name(self) -> str:
        return self.next().text

    def dotted(self) -> str:
        """Read a table's name, or database.name.  Returns the catalog's name."""
        return self.names.internal(*self.parts())

    def parts(self) -> tuple[str, str]:
        """Read a table's name, or database.name.  Returns the database, "" if it is not written, and the name."""
        name = self.name()
        return (name, self.name()) if self.take(".") else ("", name)

    def word_before(self) -> str:
        """The word that was read last, in upper case."""
        return self.tokens[self.at - 1].text.upper()

    def string(self) -> str:
        t = self.next()
        if t.token_type not in _STRINGS:
            raise parse_error(f"a text in quotes is missing, near '{self.text[t.start : t.start + 80]}'")
        return t.text

    def number(self) -> int:
        t = self.next()
        if t.token_type is not TokenType.NUMBER or not t.text.isascii() or not t.text.isdigit() or len(t.text) > 18:
            raise parse_error(f"a number is missing, near '{self.text[t.start : t.start + 80]}'")
        return int(t.text)

    def near_all(self) -> str:
        """The text of the rest of the statement; nothing is consumed."""
        t = self.peek()
        return "" if t is None else self.text[t.start : self.tokens[-1].end + 1]

    def end(self) -> None:
        t = self.peek()
        if t is not None:
            raise parse_error(f"near '{self.text[t.start : t.start + 80]}' at line {t.line}")

    def near(self) -> str:
        t = self.peek()
        return "" if t is None else self.text[t.start : t.start + 80]


def command(tokens: list[Token], text: str, names: Names) -> Command | None:
    """Read the command; None for a statement of another kind.  Raises SqlError for an unsupported one."""
    r = _TokenReader(tokens, text, names)
    handler = _WORDS.get(r.word)
    if [t.text.upper() for t in tokens[:2]] == ["DROP", "PREPARE"]:
        handler = prepared.deallocate
    if handler is None:
        return None
    r.next()
    return handler(r)


# ------------------------------------------------------------------ SET
_PEOPLE = ("USER", "ROLE")
_OF_ACCOUNTS: dict[str, Callable[[_TokenReader], Command]] = {
    "PASSWORD": accounts.set_password, "ROLE": accounts.set_role, "DEFAULT": accounts.set_default_role}


def _set(r: _TokenReader) -> Command:
    if r.take("NAMES") or r.take("CHARACTER", "SET") or r.take("CHARSET"):
        name = r.next().text
        collation = (Assignment("session", "collation_connection", r.next().text),) if r.take("COLLATE") else ()
        r.end()
        return SetVariable((Assignment("session", "names", name.lower()), *collation))
    for scope, words in (("session", ("SESSION", "TRANSACTION")), ("session", ("LOCAL", "TRANSACTION")),
                         ("global", ("GLOBAL", "TRANSACTION")), ("", ("TRANSACTION",))):
        if r.take(*words):
            return SetVariable((Assignment(scope, "transaction", r.near_all()),))
    if r.word in _OF_ACCOUNTS:
        return _OF_ACCOUNTS[r.word](r)
    out = [_assignment(r)]
    while r.take(","):
        out.append(_assignment(r))
    r.end()
    return SetVariable(tuple(out))


def _assignment(r: _TokenReader) -> Assignment:
    scope, name = _variable(r)
    if not (r.take("=") or r.take(":=") or r.take(":", "=")):
        raise parse_error(f"SET name = value, near '{r.near()}'")
    return Assignment(scope, name, _value(r))


def _variable(r: _TokenReader) -> tuple[str, str]:
    """Read SESSION x, @@session.x, @@x, @x or x.  Returns the scope and the name."""
    if r.word in ("SESSION", "LOCAL", "GLOBAL", "PERSIST"):
        scope, name = _SCOPES[r.next().text.upper()], r.name().lower()
        return scope, f"{name}.{r.name().lower()}" if r.take(".") else name
    scope = ""
    if r.take("@"):
        if not r.take("@"):
            return "user", r.name().lower()
        scope = "session"
    elif r.take("@@"):
        scope = "session"
    if r.word in ("SESSION", "LOCAL", "GLOBAL", "PERSIST"):
        scope = _SCOPES[r.next().text.upper()]
        r.take(".")
    name = r.name().lower()
    while r.take("."):
        name += "." + r.name().lower()
    return scope, name


def _value(r: _TokenReader) -> Any:
    """Read a literal, a bare word, a variable or a negative number.  Other values stay text; nothing is evaluated."""
    t = r.peek()
    if t is not None and t.text in ("@", "@@"):
        scope, name = _variable(r)
        return OutputColumn(Field(name, TEXT), "user_variable" if scope == "user" else "variable", name, scope)
    t = r.next()
    negative = t.text == "-"
    if negative:
        t = r.next()
    if t.token_type is TokenType.NUMBER:
        number: Any = int(t.text) if t.text.isdigit() else Decimal(t.text)
        return -number if negative else number
    if t.token_type in _STRINGS:
        return t.text
    if t.text == "(" or negative:
        raise not_supported("an expression in SET", "set a literal")
    if r.peek() is not None and r.word not in (",", ""):
        if r.word == "(" and t.text.upper() in LOCK_FUNCTIONS:
            raise not_supported(f"{t.text.upper()} in SET", "use SELECT or DO")
        depth, start = 0, t.start
        while (n := r.peek()) is not None and (depth or n.text != ","):
            depth += (n.text == "(") - (n.text == ")")
            r.next()
        return r.text[start : r.tokens[r.at - 1].end + 1]
    known = {"TRUE": 1, "FALSE": 0, "NULL": None}
    return known.get(t.text.upper(), t.text)


# ------------------------------------------------------------------ SHOW, DESCRIBE
_OF_DATABASE = ("tables", "views", "table status", "open tables", "triggers", "events")
_OF_TABLE = ("columns", "index")
_UNLIKELY = ("errors", "warnings", "engines", "index", "plugins", "privileges", "processlist", "profiles", "grants")


def _show(r: _TokenReader) -> Command:
    said: set[str] = set()
    scope = ""
    while r.word in ("FULL", "EXTENDED", "GLOBAL", "SESSION", "LOCAL"):
        word = r.next().text.upper()
        said.add(word)
        scope = _SCOPES.get(word, scope)
    what = next((w for w in _SHOWS if r.take(*w.upper().split())), None)
    if what is None:
        raise not_supported(f"SHOW {r.near()}", "there are SHOW TABLES, VIEWS, COLUMNS, CREATE TABLE, CREATE VIEW, "
                                                "INDEX, VARIABLES, STATUS, WARNINGS, DATABASES, COLLATION, ENGINES, "
                                                "NORIA VIEWS, NORIA STATUS, NORIA GRAPH, "
                                                "NORIA MIGRATIONS, NORIA FOLLOWING")
    what = _SAME.get(what, what)
    _check_said(r, said, what)
    if what == "count":
        return _show_count(r)
    if what == "grants":
        return grants.show(r)
    if what == "create user":
        return accounts.show_create(r)
    full = "FULL" in said or (what == "create database" and r.take("IF", "NOT", "EXISTS"))
    show = Show(what, _target(r, what), None, full, scope)
    return _conditions(r, show)


def _check_said(r: _TokenReader, said: set[str], what: str) -> None:
    """Raise a syntax error if FULL, EXTENDED or a scope precedes a SHOW that does not have it."""
    fits = {"FULL": ("tables", "columns", "processlist"), "EXTENDED": ("tables", *_OF_TABLE)}  # EXTENDED adds nothing
    for word in said:
        if what not in fits.get(word, ("variables", "status")):
            raise parse_error(f"SHOW {word} {what.upper()}")


def _target(r: _TokenReader, what: str) -> str:
    """Read the table, view or database to which the SHOW refers; "" if it has none."""
    if what == "create database":
        return r.names.checked(r.name())
    if what.startswith("create "):
        return r.dotted()
    if what in _OF_DATABASE:
        return r.names.checked(r.name()) if r.take("FROM") or r.take("IN") else r.names.current
    if what in _OF_TABLE and (r.take("FROM") or r.take("IN")):
        database, target = r.parts()
        return r.names.internal(r.name() if r.take("FROM") or r.take("IN") else database, target)
    if what in _OF_TABLE:
        raise parse_error(f"SHOW {what.upper()} FROM table")
    return ""


def _show_count(r: _TokenReader) -> Command:
    """Read SHOW COUNT(*) WARNINGS or ERRORS."""
    if not r.take("(", "*", ")") or r.word not in ("WARNINGS", "ERRORS"):
        raise parse_error(f"near '{r.near()}'")
    show = Show(f"count {r.next().text.lower()}")
    r.end()
    return show


def _conditions(r: _TokenReader, show: Show) -> Command:
    """Read LIKE 'pattern', WHERE with any condition over the answer's columns, or the LIMIT of warnings and errors."""
    named = not show.what.startswith("create ") and show.what not in _UNLIKELY
    if named and r.take("LIKE"):
        show = replace(show, like=r.string())
    elif not show.what.startswith("create ") and r.take("WHERE"):
        show = replace(show, where=r.near_all())
        r.at = len(r.tokens)
    elif show.what in ("warnings", "errors") and r.take("LIMIT"):
        first = r.number()
        show = replace(show, limit=(first, r.number()) if r.take(",") else (0, first))
    r.end()
    return show


def _describe(r: _TokenReader) -> Command | None:
    """Read DESCRIBE table [column].  None for EXPLAIN and DESCRIBE of a query, which `parse.py` reads."""
    if r.word in ("SELECT", "WITH", "INSERT", "UPDATE", "DELETE", "REPLACE", "FORMAT", "ANALYZE", "EXTENDED", "(",
                  "PARTITIONS", "TABLE", "VIEW"):
        return None
    target = r.dotted()
    like = r.next().text if r.peek() is not None else None
    r.end()
    return Show("columns", target, like)


# ------------------------------------------------------------------ transactions, locks
def _use(r: _TokenReader) -> Command:
    name = r.name()
    r.end()
    return Use(r.names.checked(name))


def _begin(r: _TokenReader) -> Command:
    r.take("WORK")
    r.end()
    return Transaction("begin")


def _start(r: _TokenReader) -> Command:
    """Read START TRANSACTION [READ ONLY | READ WRITE | WITH CONSISTENT SNAPSHOT],  …"""
    if not r.take("TRANSACTION"):
        raise parse_error(f"near '{r.near()}'")
    read_only: bool | None = None
    snapshot = False
    while r.peek() is not None:
        if r.take("READ", "ONLY"):
            read_only = True
        elif r.take("READ", "WRITE"):
            read_only = False
        elif r.take("WITH", "CONSISTENT", "SNAPSHOT"):
            snapshot = True
        else:
            r.end()
        if r.peek() is not None and not r.take(","):
            r.end()
    return Transaction("begin", read_only=read_only, snapshot=snapshot)


def _ended(what: Literal["commit", "rollback"]) -> Callable[[_TokenReader], Command]:
    def handler(r: _TokenReader) -> Command:
        r.take("WORK")
        if what == "rollback" and r.take("TO"):
            r.take("SAVEPOINT")
            return _named(r, "rollback to")
        chain = r.take("AND", "CHAIN")
        if not chain:
            r.take("AND", "NO", "CHAIN")
        release = False
        if not r.take("NO", "RELEASE"):
            release = r.take("RELEASE")
        r.end()
        if chain and release:
            raise parse_error("near 'RELEASE'")
        return Transaction(what, chain=chain, release=release)

    return handler


def _kill(r: _TokenReader) -> Command:
    query = r.take("QUERY")
    if not query:
        r.take("CONNECTION")
    number = r.next().text
    if not number.isdigit():
        raise parse_error(f"KILL wants the number of a connection, not '{number[:40]}'")
    r.end()
    return Kill(int(number), not query)


def _named(r: _TokenReader, what: Literal["savepoint", "rollback to", "release"]) -> Command:
    name = r.name()
    r.end()
    return Transaction(what, name.lower())


def _release(r: _TokenReader) -> Command:
    if not r.take("SAVEPOINT"):
        raise parse_error(f"near '{r.near()}'")
    return _named(r, "release")


def _lock(r: _TokenReader) -> Command:
    """Read LOCK TABLES t [AS a] READ [LOCAL] | [LOW_PRIORITY] WRITE, ….  LOW_PRIORITY changes nothing: locks are
    granted in turn.  An alias locks its table."""
    if not (r.take("TABLES") or r.take("TABLE")):
        raise not_supported(f"LOCK {r.near()[:40]}", "there is LOCK TABLES")
    locks: list[tuple[str, bool]] = []
    while not locks or r.take(","):
        name = r.dotted()
        if r.take("AS") or r.word not in ("READ", "WRITE", "LOW_PRIORITY"):
            r.name()
        write = not r.take("READ")
        if write:
            r.take("LOW_PRIORITY")
        if write and not r.take("WRITE"):
            raise parse_error(f"LOCK TABLES name READ or WRITE, near '{r.near()}'")
        r.take("LOCAL")
        locks.append((name, write))
    r.end()
    return LockTables(tuple(locks))


def _unlock(r: _TokenReader) -> Command:
    if not (r.take("TABLES") or r.take("TABLE")):
        raise not_supported(f"UNLOCK {r.near()[:40]}", "there is UNLOCK TABLES")
    r.end()
    return LockTables()


# ------------------------------------------------------------------ upkeep
def _alter(r: _TokenReader) -> Command | None:
    """Read ALTER DATABASE, and ALTER TABLE t DISABLE KEYS and ENABLE KEYS, which dumps write around rows and which do
    nothing.  None for every other ALTER TABLE."""
    if r.word in databases.WORDS:
        return databases.alter(r)
    if r.word == "USER":
        return accounts.alter(r)
    if r.take("TABLE"):
        if [t.text.upper() for t in r.tokens[-2:]] not in (["DISABLE", "KEYS"], ["ENABLE", "KEYS"]):
            return None
        name = r.dotted()
        r.take("DISABLE") or r.take("ENABLE")
        r.take("KEYS")
        r.end()
        return NoOp("alter", (name,))  # each write updates the indexes
    raise not_supported(f"ALTER {r.near()[:40]}")


def _create(r: _TokenReader) -> Command | None:
    if r.word in _PEOPLE:
        return accounts.create(r)
    refuse_program(r.tokens)
    return databases.create(r)


def _drop(r: _TokenReader) -> Command | None:
    if r.word in _PEOPLE:
        return accounts.drop(r)
    if names_no_program([t.text.upper() for t in r.tokens[1:4]]):
        r.at = 4
        r.parts()
        r.end()
        return NoOp("drop")
    return databases.drop(r)


def _refused(instead: str) -> Callable[[_TokenReader], Command]:
    def handler(r: _TokenReader) -> Command:
        raise not_supported(f"{r.tokens[0].text.upper()} {r.near()[:40]}".strip(), instead)

    return handler


def _rename(r: _TokenReader) -> Command:
    """Read RENAME TABLE a TO b, c TO d, and RENAME USER."""
    if r.word == "USER":
        return accounts.rename(r)
    if not (r.take("TABLE") or r.take("TABLES")):
        raise not_supported(f"RENAME {r.near()}", "only tables have new names")
    names: list[tuple[str, str]] = []
    while not names or r.take(","):
        old = r.dotted()
        if not r.take("TO"):
            raise parse_error(f"RENAME TABLE name TO name, near '{r.near()}'")
        names.append((old, check_name(r.dotted())))
    r.end()
    return RenameTables(tuple(names))


_WORDS: dict[str, Callable[[_TokenReader], Command | None]] = {
    "SET": _set, "SHOW": _show, "DESCRIBE": _describe, "DESC": _describe, "EXPLAIN": _describe, "USE": _use,
    "BEGIN": _begin, "START": _start, "COMMIT": _ended("commit"), "ROLLBACK": _ended("rollback"),
    "SAVEPOINT": lambda r: _named(r, "savepoint"), "RELEASE": _release,
    "FLUSH": flush, "UNLOCK": _unlock, "LOCK": _lock,
    **dict.fromkeys(("ANALYZE", "OPTIMIZE", "CHECK", "REPAIR", "CHECKSUM"), upkeep),
    "ALTER": _alter, "CREATE": _create, "DROP": _drop,
    "RENAME": _rename,
    "GRANT": grants.grant, "REVOKE": grants.revoke,
    "LOAD": loading.load,
    "CALL": _refused("there are no stored procedures"),
    "HANDLER": _refused("use SELECT"),
    "XA": _refused("a transaction of one server commits by COMMIT"),
    "PREPARE": prepared.prepare,
    "EXECUTE": prepared.execute,
    "DEALLOCATE": prepared.deallocate,
    "KILL": _kill,
}
