"""Reads CREATE, ALTER and DROP DATABASE.  The options are the character set and collation of new tables.

    CREATE DATABASE [IF NOT EXISTS] shop [DEFAULT] CHARACTER SET utf8mb4 COLLATE utf8mb4_bin

Keeps true: a collation belongs to the character set, and is one that Noria's columns can have.
"""

from __future__ import annotations

from noria.core.errors import SqlError, not_supported, parse_error
from noria.core.errors.codes import COLLATION_CHARSET_MISMATCH, UNKNOWN_CHARACTER_SET, UNKNOWN_COLLATION
from noria.sql.commands import AlterDatabase, Command, CreateDatabase, DropDatabase
from noria.sql.text.databases import CHARSET, COLLATION, Database, checked_name, not_system
from noria.sql.words import Words

WORDS = ("DATABASE", "SCHEMA")
_DEFAULTS = {CHARSET: COLLATION, "utf8mb3": "utf8mb3_general_ci", "latin1": "latin1_swedish_ci",
             "ascii": "ascii_general_ci", "binary": "binary"}


def create(r: Words) -> Command | None:
    """None for CREATE of anything else."""
    if r.word not in WORDS:
        return None
    r.next()
    exists = r.take("IF", "NOT", "EXISTS")
    name = checked_name(r.name())
    return CreateDatabase(_with_options(r, Database(name)), exists)


def alter(r: Words) -> Command:
    """Read ALTER DATABASE.  Without a name it changes the session's."""
    r.next()
    unnamed = r.word in ("DEFAULT", "CHARACTER", "CHARSET", "COLLATE", "ENCRYPTION")
    name = r.names.current if unnamed else r.names.checked(not_system(r.name()))
    if r.peek() is None:
        raise parse_error("ALTER DATABASE without an option")
    was = None if r.names.databases is None else r.names.databases.get(name)
    return AlterDatabase(_with_options(r, was or Database(name)))


def drop(r: Words) -> Command | None:
    """None for DROP of anything else."""
    if r.word not in WORDS:
        return None
    r.next()
    exists = r.take("IF", "EXISTS")
    name = not_system(r.name())
    r.end()
    return DropDatabase(name, exists)


# ------------------------------------------------------------------ options
def _with_options(r: Words, database: Database) -> Database:
    charset = collation = ""
    while r.peek() is not None:
        r.take("DEFAULT")
        if r.take("CHARACTER", "SET") or r.take("CHARSET"):
            charset = _charset(_value(r))
        elif r.take("COLLATE"):
            collation = _value(r)
        elif r.take("ENCRYPTION"):
            if _value(r).upper() != "N":
                raise not_supported("ENCRYPTION of a database", "encrypt the disk")
        else:
            raise parse_error(f"near '{r.near()}'")
    if collation:
        of = _charset_of(collation)
        if charset and of != charset:
            raise SqlError(*COLLATION_CHARSET_MISMATCH,
                           f"COLLATION '{collation}' is not valid for CHARACTER SET '{charset}'")
        return Database(database.name, of, _collation(collation))
    return Database(database.name, charset, _DEFAULTS[charset]) if charset else database


def _value(r: Words) -> str:
    r.take("=")
    return r.next().text.lower()


def _charset(name: str) -> str:
    name = "utf8mb3" if name == "utf8" else name
    if name == "default":
        return CHARSET
    if name not in _DEFAULTS:
        raise SqlError(*UNKNOWN_CHARACTER_SET, f"Unknown character set: '{name}'")
    return name


def _charset_of(collation: str) -> str:
    of = collation.partition("_")[0]
    of = CHARSET if collation == "default" else "utf8mb3" if of == "utf8" else of
    if of not in _DEFAULTS or ("_" not in collation and collation not in ("binary", "default")):
        raise SqlError(*UNKNOWN_COLLATION, f"Unknown collation: '{collation}'")
    return of


def _collation(name: str) -> str:
    if name.endswith("_cs"):
        raise not_supported(f"the collation {name}", "there are collations without case, and _bin")
    return COLLATION if name == "default" else "utf8mb3_" + name[5:] if name.startswith("utf8_") else name
