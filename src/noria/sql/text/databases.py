"""The databases of a server, and the names of their tables and views.

    noria.t    t          a table of the database `noria` has its plain name in the catalog
    shop.t     shop.t     a table of another database has its database's name before its own

So plans, workers and files know one namespace of names.  A statement's names become such names when it is parsed, with
the database of its session (`Names`).

Keeps true: no name of a database contains a dot, and no table has a name of its own that begins with a database's name
and a dot.  So a name belongs to one database.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from noria.core.errors import SqlError, name_too_long, not_supported
from noria.core.errors.codes import (
    BAD_DB,
    DB_CREATE_EXISTS,
    DB_DROP_EXISTS,
    DBACCESS_DENIED,
    NO_DB,
    NO_SUCH_TABLE,
    WRONG_DB_NAME,
    WRONG_TABLE_NAME,
)
from noria.core.identifiers import quote_identifier
from noria.core.limits import MAX_NAME_CHARS

HOME = "noria"  # the database whose tables have plain names in the catalog
SYSTEM = ("information_schema", "performance_schema", "mysql", "sys")  # MySQL's own; empty here
CHARSET, COLLATION = "utf8mb4", "utf8mb4_0900_ai_ci"
NOWHERE = "\0"  # the namespace of a session whose database was dropped
_ANY_OF_GROUP = "\1"  # ends the namespace of a session whose sql_mode lacks ONLY_FULL_GROUP_BY
_MODES = "\1modes "  # before the modes of sessions that write another dialect (`sql/sql_modes.py`)
_ZONE = "\1zone "  # before the time zone of sessions that are not in UTC
_SCOPE = "\1as "  # before the scope of sessions that may not do everything (`server/access`)
_STORED = "DATABASE "
_NAMED_IN = re.compile(r"`((?:[^`]|``)*)`\.`((?:[^`]|``)*)`", re.DOTALL)


@dataclass(frozen=True)
class Database:
    """A database.  charset, collation: the defaults of its tables."""

    name: str
    charset: str = CHARSET
    collation: str = COLLATION

    @property
    def is_plain(self) -> bool:
        return (self.charset, self.collation) == (CHARSET, COLLATION)

    @property
    def is_exact(self) -> bool:
        """Whether texts of its new tables are compared exactly."""
        return self.collation.endswith("_bin") or self.collation == "binary"

    @property
    def options(self) -> str:
        """The defaults as options of CREATE DATABASE; empty for the server's own."""
        return "" if self.is_plain else f"CHARACTER SET {self.charset} COLLATE {self.collation}"


@dataclass(frozen=True)
class Databases:
    """The databases by folded name, in the order of their creation."""

    known: dict[str, Database] = field(default_factory=lambda: {HOME: Database(HOME)})

    def __iter__(self) -> Iterator[Database]:
        return iter(self.known.values())

    def get(self, name: str) -> Database | None:
        return self.known.get(name.lower())

    def named(self, name: str) -> Database:
        """The database of this name.  Raises error 1049."""
        found = self.get(name)
        if found is None:
            raise unknown_database(name)
        return found

    def having(self, database: Database) -> Databases:
        """These databases with this one, or with this one's new options."""
        return Databases({**self.known, database.name.lower(): database})

    def without(self, name: str) -> Databases:
        return Databases({n: d for n, d in self.known.items() if n != name.lower()})

    # ------------------------------------------------------------ names of tables and views
    def split(self, name: str) -> tuple[str, str]:
        """The database and the plain name of a table or view, from its name in the catalog.

        >>> Databases().having(Database("shop")).split("shop.t"), Databases().split("shop.t")
        (('shop', 't'), ('noria', 'shop.t'))
        """
        before, dot, after = name.partition(".")
        if dot and before.lower() != HOME and (found := self.get(before)) is not None:
            return found.name, after
        return (HOME if (home := self.get(HOME)) is None else home.name), name

    def of(self, name: str) -> Database:
        """The database of a table or view.  Raises error 1049 if it was dropped."""
        return self.named(self.split(name)[0])

    def bare(self, name: str) -> str:
        return self.split(name)[1]

    def written(self, name: str) -> str:
        """The catalog's name of a table or view as stored texts have it."""
        database, bare = self.split(name)
        own = quote_identifier(bare)
        return own if database.lower() == HOME else f"{quote_identifier(database)}.{own}"

    def full(self, name: str) -> str:
        """The catalog's name of a table or view as statements in any database have it."""
        return ".".join(map(quote_identifier, self.split(name)))

    def called_in(self, database: str, name: str) -> str:
        """The catalog's name of a table as statements in this database have it: with its own only if it is another."""
        of, bare = self.split(name)
        return quote_identifier(bare) if of == database else self.full(name)

    def resolved(self, text: str, default: str) -> str:
        """The catalog's name for what a client of another interface than SQL names: `t`, `db.t` or `named_in`'s text.

        default: the database of a name without one.
        """
        if default.lower() == HOME and "." not in text and not text.startswith("`"):
            return text
        if found := _NAMED_IN.fullmatch(text):
            default, text = (part.replace("``", "`") for part in found.groups())
        before, dot, after = text.partition(".")
        if dot and self.get(before) is not None:
            default, text = before, after
        return Names("", self).internal(default, text)

    def table_options(self, name: str) -> str:
        """The option by which a printed CREATE TABLE has the same collations in a database whose texts are exact."""
        exact = (found := self.get(self.split(name)[0])) is not None and found.is_exact
        return f" COLLATE={COLLATION}" if exact else ""

    # ------------------------------------------------------------ in the catalog's recipe
    def stored(self) -> list[str]:
        """The entries of the recipe: nothing for `noria` as it is in a new server."""
        found = [_entry(d.name, {"charset": d.charset, "collation": d.collation}) for d in self
                 if d != Database(HOME)]
        return found if HOME in self.known else [_entry(HOME, None), *found]


def _entry(name: str, options: dict[str, str] | None) -> str:
    return _STORED + json.dumps([name, options])


def is_stored(entry: str) -> bool:
    """Whether an entry of the recipe is a database."""
    return entry.startswith(_STORED)


def read_stored(recipe: Iterable[str]) -> Databases:
    """The databases that a recipe has."""
    found = Databases()
    for name, options in (json.loads(e[len(_STORED):]) for e in recipe if is_stored(e)):
        found = found.without(name) if options is None else found.having(
            Database(name, options["charset"], options["collation"]))
    return found


@dataclass(frozen=True)
class Names:
    """Turns the names of a statement into the catalog's.

    namespace: the folded name of the session's database; "" for `noria`, NOWHERE without one.  databases: None in
    stored texts, which are in `noria` and whose databases exist.

    zone: the session's time zone, "" for UTC.

    any_of_group: without ONLY_FULL_GROUP_BY, a selected column may be neither grouped nor determined by the groups.
    """

    namespace: str = ""
    databases: Databases | None = None
    any_of_group: bool = False
    zone: str = ""

    @staticmethod
    def of(namespace: str, databases: Databases) -> Names:
        """The names of sessions in a namespace, as `namespace_of` or `any_of_group` returned it."""
        rest, _, zone = namespace.partition(_SCOPE)[0].partition(_ZONE)
        return Names(plain_namespace(namespace), databases, rest.partition(_MODES)[0].endswith(_ANY_OF_GROUP), zone)

    @property
    def is_home(self) -> bool:
        return not self.namespace

    @property
    def current(self) -> str:
        """The name of the session's database.  Raises error 1046 if it has none, 1049 if it was dropped."""
        if self.namespace == NOWHERE:
            raise SqlError(*NO_DB, "No database selected")
        return self.checked(self.namespace or HOME)

    def checked(self, database: str) -> str:
        """The database's name as it was created.  Raises error 1049."""
        return database if self.databases is None else self.databases.named(database).name

    def internal(self, database: str, name: str) -> str:
        """The catalog's name of `database.name`; "": of the session's database."""
        if database.lower() in SYSTEM:
            raise SqlError(*NO_SUCH_TABLE, f"Table '{database}.{name}' doesn't exist")
        found = self.checked(database) if database else self.current
        before, dot, _ = name.partition(".")
        if dot and self.databases is not None and self.databases.get(before) is not None:
            raise SqlError(*WRONG_TABLE_NAME, f"Incorrect table name '{name}': it begins with the name of a database")
        return name if found.lower() == HOME else f"{found}.{name}"

    def collation_of(self, name: str) -> str:
        """The collation of the columns of a new table of this name."""
        found = None if self.databases is None else self.databases.get(self.databases.split(name)[0])
        return COLLATION if found is None else found.collation


STORED = Names()


def namespace_of(database: str) -> str:
    """The namespace of sessions in this database."""
    folded = database.lower()
    return "" if folded == HOME else folded


def any_of_group(namespace: str) -> str:
    """The namespace of sessions in the same database without ONLY_FULL_GROUP_BY, where texts may mean other things."""
    return namespace + _ANY_OF_GROUP


def in_zone(namespace: str, zone: Any) -> str:
    """The namespace of sessions in another time zone than UTC, where some functions mean other things."""
    return f"{namespace}{_ZONE}{zone}"


def in_scope(namespace: str, scope: str) -> str:
    """The namespace of the same sessions with other rights.  scope: "" for those that may do everything."""
    rest = namespace.partition(_SCOPE)[0]
    return f"{rest}{_SCOPE}{scope}" if scope else rest


def scope_in(namespace: str) -> str:
    return namespace.partition(_SCOPE)[2]


def in_dialect(namespace: str, modes: str) -> str:
    """The namespace of sessions with these modes, names with commas between them, whose texts are translated."""
    return f"{namespace}{_MODES}{modes}"


def modes_of(namespace: str) -> str:
    """What `in_dialect` added; "" for nothing."""
    return namespace.partition(_SCOPE)[0].partition(_ZONE)[0].partition(_MODES)[2]


def plain_namespace(namespace: str) -> str:
    """The namespace of unlimited sessions in the same database with ONLY_FULL_GROUP_BY, in UTC and the default
    dialect."""
    return namespace.partition(_SCOPE)[0].partition(_ZONE)[0].partition(_MODES)[0].removesuffix(_ANY_OF_GROUP)


def in_namespace(namespace: str, text: str) -> str:
    """The key under which caches know a text of sessions in this namespace."""
    return text if not namespace else f"{namespace}\0{text}"


def named_in(database: str, name: str) -> str:
    """The name of a table or view in this database, for interfaces that take one name.  "": the name itself."""
    return f"{quote_identifier(database)}.{quote_identifier(name)}" if database else name


# ------------------------------------------------------------------ errors
def unknown_database(name: str) -> SqlError:
    return SqlError(*BAD_DB, f"Unknown database '{name}'")


def database_exists(name: str) -> SqlError:
    return SqlError(*DB_CREATE_EXISTS, f"Can't create database '{name}'; database exists")


def no_such_database(name: str) -> SqlError:
    return SqlError(*DB_DROP_EXISTS, f"Can't drop database '{name}'; database doesn't exist")


def checked_name(name: str) -> str:
    """Return the name of a new database if it is allowed; else raise SqlError."""
    if len(name) > MAX_NAME_CHARS:
        raise name_too_long(name)
    if not name or name.endswith(" ") or "\0" in name or "\1" in name:
        raise SqlError(*WRONG_DB_NAME, f"Incorrect database name '{name}'")
    if "." in name:
        raise not_supported("a dot in the name of a database", "leave it out")
    return not_system(name)


def not_system(name: str) -> str:
    if name.lower() in SYSTEM:
        raise SqlError(*DBACCESS_DENIED, f"Access denied to database '{name}', which is the system's")
    return name
