"""What clients say beside queries and writes: SET, SHOW, USE, transactions, variables.

Read from the tokens, because drivers send these at every connect and in many spellings.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

from sqlglot.tokenizer_core import Token, TokenType

from noria.core.errors import not_supported, parse_error
from noria.core.types import TEXT, Field
from noria.sql.commands import (
    Assignment,
    Command,
    Item,
    Kill,
    Nothing,
    SetVariable,
    Show,
    Transaction,
    Use,
)

_STRINGS = {TokenType.STRING, TokenType.NATIONAL_STRING}
_QUOTED = {TokenType.IDENTIFIER}
_SCOPES = {"SESSION": "session", "LOCAL": "session", "GLOBAL": "global", "PERSIST": "global", "@@SESSION": "session",
           "@@LOCAL": "session", "@@GLOBAL": "global"}
_SHOWS = (  # the words of each, in the order in which they are looked for
    "create table", "create view", "create database", "character set", "charset", "collation", "columns", "fields",
    "databases", "schemas", "engines", "storage engines", "errors", "warnings", "grants", "index", "indexes", "keys",
    "plugins", "privileges", "processlist", "procedure status", "function status", "triggers", "events",
    "table status", "tables", "open tables", "variables", "status", "views", "binary logs", "master status",
    "slave status", "replica status", "profiles", "count", "noria views", "noria status", "noria graph",
)
_SAME = {"fields": "columns", "schemas": "databases", "indexes": "index", "keys": "index", "charset": "character set",
         "storage engines": "engines"}


class _Reader:
    """The tokens of one statement, read from left to right."""

    def __init__(self, tokens: list[Token], text: str):
        self.tokens, self.text, self.at = tokens, text, 0

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
        """Skip these words if they come next."""
        for i, w in enumerate(words):
            if self.at + i >= len(self.tokens) or self.tokens[self.at + i].text.upper() != w:
                return False
        self.at += len(words)
        return True

    def name(self) -> str:
        return self.next().text

    def dotted(self) -> str:
        """The last part of a.b.c."""
        name = self.name()
        while self.take("."):
            name = self.name()
        return name

    def end(self) -> None:
        t = self.peek()
        if t is not None:
            raise parse_error(f"near '{self.text[t.start : t.start + 80]}' at line {t.line}")

    def near(self) -> str:
        t = self.peek()
        return "" if t is None else self.text[t.start : t.start + 80]


def command(tokens: list[Token], text: str) -> Command | None:
    """The command, or None for a statement that is not of this kind."""
    r = _Reader(tokens, text)
    handler = _WORDS.get(r.word)
    if handler is None:
        return None
    r.next()
    return handler(r)


# ------------------------------------------------------------------ SET
def _set(r: _Reader) -> Command:
    if r.take("NAMES") or r.take("CHARACTER", "SET") or r.take("CHARSET"):
        name = r.next().text
        if r.take("COLLATE"):
            r.next()
        r.end()
        return SetVariable((Assignment("session", "names", name.lower()),))
    for words in (("SESSION", "TRANSACTION"), ("GLOBAL", "TRANSACTION"), ("TRANSACTION",)):
        if r.take(*words):
            return SetVariable((Assignment("session", "transaction", r.near()),))
    if r.word in ("PASSWORD", "ROLE", "DEFAULT"):
        raise not_supported(f"SET {r.word}", "users are set when the server starts")
    out = [_assignment(r)]
    while r.take(","):
        out.append(_assignment(r))
    r.end()
    return SetVariable(tuple(out))


def _assignment(r: _Reader) -> Assignment:
    scope, name = _variable(r)
    if not (r.take("=") or r.take(":=") or r.take(":", "=")):
        raise parse_error(f"SET name = value, near '{r.near()}'")
    return Assignment(scope, name, _value(r))


def _variable(r: _Reader) -> tuple[str, str]:
    """SESSION x, @@session.x, @@x, @x, x: scope and name."""
    if r.word in ("SESSION", "LOCAL", "GLOBAL", "PERSIST"):
        return _SCOPES[r.next().text.upper()], r.name().lower()
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


def _value(r: _Reader) -> Any:
    """A literal, a bare word, a variable or a negative number; nothing is worked out."""
    t = r.peek()
    if t is not None and t.text in ("@", "@@"):
        scope, name = _variable(r)
        return Item(Field(name, TEXT), "user_variable" if scope == "user" else "variable", name, scope)
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
        depth, start = 0, t.start
        while (n := r.peek()) is not None and (depth or n.text != ","):
            depth += (n.text == "(") - (n.text == ")")
            r.next()
        return r.text[start : r.tokens[r.at - 1].end + 1]
    known = {"TRUE": 1, "FALSE": 0, "NULL": None}
    return known.get(t.text.upper(), t.text)


# ------------------------------------------------------------------ SHOW, DESCRIBE
def _show(r: _Reader) -> Command:
    full = scope = ""
    while r.word in ("FULL", "EXTENDED", "GLOBAL", "SESSION", "LOCAL"):
        word = r.next().text.upper()
        if word == "FULL":
            full = word
        elif word != "EXTENDED":
            scope = _SCOPES[word]
    what = next((w for w in _SHOWS if r.take(*w.upper().split())), None)
    if what is None:
        raise not_supported(f"SHOW {r.near()}", "there are SHOW TABLES, VIEWS, COLUMNS, CREATE TABLE, CREATE VIEW, "
                                                "INDEX, VARIABLES, STATUS, WARNINGS, DATABASES, COLLATION, ENGINES, "
                                                "NORIA VIEWS, NORIA STATUS, NORIA GRAPH")
    if what == "count":
        return _show_count(r)
    what = _SAME.get(what, what)
    target = ""
    if what.startswith("create "):
        r.take("IF", "NOT", "EXISTS")
        target = r.dotted()
    elif r.take("FROM") or r.take("IN"):
        target = r.dotted()
        if what in ("columns", "index") and (r.take("FROM") or r.take("IN")):
            r.name()
    like, what = _like(r, what)
    return Show(what, target, like, bool(full), scope)


def _show_count(r: _Reader) -> Command:
    """SHOW COUNT(*) WARNINGS"""
    if not r.take("(", "*", ")") or r.word not in ("WARNINGS", "ERRORS"):
        raise parse_error(f"near '{r.near()}'")
    return Show(f"count {r.next().text.lower()}")


def _like(r: _Reader, what: str) -> tuple[str | None, str]:
    """LIKE 'pattern', WHERE name = 'x' (as drivers write it), LIMIT n."""
    like = None
    if r.take("LIKE"):
        like = r.next().text
    elif r.take("WHERE"):
        like = _where(r)
    if r.take("LIMIT"):
        while r.peek() is not None:
            r.next()
    r.end()
    return like, what


def _where(r: _Reader) -> str:
    """WHERE Variable_name = 'x' or LIKE 'x': the only conditions that SHOW understands."""
    r.name()
    exact = r.take("=")
    if not exact and not r.take("LIKE"):
        raise not_supported("this WHERE in SHOW", "use LIKE 'pattern'")
    pattern = r.next().text
    if exact:
        pattern = pattern.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    if r.peek() is not None:
        raise not_supported("this WHERE in SHOW", "use LIKE 'pattern'")
    return pattern


def _describe(r: _Reader) -> Command | None:
    """DESCRIBE table [column]; EXPLAIN and DESCRIBE of a query are somebody else's."""
    if r.word in ("SELECT", "WITH", "INSERT", "UPDATE", "DELETE", "REPLACE", "FORMAT", "ANALYZE", "EXTENDED", "(",
                  "PARTITIONS", "TABLE", "VIEW"):
        return None
    target = r.dotted()
    like = r.next().text if r.peek() is not None else None
    r.end()
    return Show("columns", target, like)


# ------------------------------------------------------------------ the rest
def _use(r: _Reader) -> Command:
    name = r.name()
    r.end()
    return Use(name)


def _begin(r: _Reader) -> Command:
    r.take("WORK")
    r.end()
    return Transaction("begin")


def _start(r: _Reader) -> Command:
    if not r.take("TRANSACTION"):
        raise parse_error(f"near '{r.near()}'")
    while r.peek() is not None:
        if not (r.take("READ", "ONLY") or r.take("READ", "WRITE") or r.take("WITH", "CONSISTENT", "SNAPSHOT")
                or r.take(",")):
            r.end()
    return Transaction("begin")


def _ended(what: str) -> Callable[[_Reader], Command]:
    def handler(r: _Reader) -> Command:
        r.take("WORK")
        if r.word == "TO":
            raise not_supported("savepoints", "roll back the whole transaction")
        r.take("AND", "NO", "CHAIN")
        r.take("NO", "RELEASE")
        r.end()
        return Transaction("commit" if what == "commit" else "rollback")

    return handler


def _kill(r: _Reader) -> Command:
    query = r.take("QUERY")
    if not query:
        r.take("CONNECTION")
    number = r.next().text
    if not number.isdigit():
        raise parse_error(f"KILL wants the number of a connection, not '{number[:40]}'")
    r.end()
    return Kill(int(number), not query)


def _nothing(r: _Reader) -> Command:
    return Nothing(r.tokens[0].text.lower())


def _alter(r: _Reader) -> Command:
    """ALTER TABLE t DISABLE KEYS stands around the rows of a dump; all else is not there."""
    words = [t.text.upper() for t in r.tokens]
    if len(words) == 5 and words[1] == "TABLE" and words[3] in ("DISABLE", "ENABLE") and words[4] == "KEYS":
        return Nothing("alter")
    raise not_supported(f"ALTER {r.near()[:40]}", "create a new table and copy the rows")


def _refused(instead: str) -> Callable[[_Reader], Command]:
    def handler(r: _Reader) -> Command:
        raise not_supported(f"{r.tokens[0].text.upper()} {r.near()[:40]}".strip(), instead)

    return handler


_WORDS: dict[str, Callable[[_Reader], Command | None]] = {
    "SET": _set, "SHOW": _show, "DESCRIBE": _describe, "DESC": _describe, "EXPLAIN": _describe, "USE": _use,
    "BEGIN": _begin, "START": _start, "COMMIT": _ended("commit"), "ROLLBACK": _ended("rollback"),
    "FLUSH": _nothing, "UNLOCK": _nothing, "LOCK": _nothing, "ANALYZE": _nothing, "OPTIMIZE": _nothing,
    "ALTER": _alter,
    "RENAME": _refused("create a new table and copy the rows"),
    "GRANT": _refused("users are set when the server starts"),
    "REVOKE": _refused("users are set when the server starts"),
    "LOAD": _refused("load files with `noria load`"),
    "CALL": _refused("there are no stored procedures"),
    "HANDLER": _refused("use SELECT"), "SAVEPOINT": _refused("there are no savepoints"),
    "PREPARE": _refused("prepare through the client protocol"),
    "EXECUTE": _refused("prepare through the client protocol"),
    "DEALLOCATE": _refused("prepare through the client protocol"),
    "KILL": _kill,
}
