"""What the account of a request may do over HTTP, beside the statements of /sql, whose session checks itself.

    /metrics, /graph, /waits                   PROCESS
    /tables/NAME/rows                          INSERT, with what on_duplicate does to rows
    /views/NAME/lookup, feed, changes, rows    SELECT on the view
    /source/plan, /source/rows, /source/held   SELECT on what is read
    /source/writes/NAME/commit                 INSERT, UPDATE and DELETE on the table
    /source/writes/NAME/parts, drop            INSERT on any table
    /load                                      INSERT on the table, and FILE
    /backup                                    BACKUP_ADMIN
    /limit, /evict                             SYSTEM_VARIABLES_ADMIN or SUPER
    /attach, /program, /apply, /export, /verify, /follows     everything: they reach all tables

Keeps true: a path that is not listed in `OPEN` needs everything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from starlette.requests import Request

from noria.accounts.checks import Need, check, writes
from noria.accounts.grants import TableName
from noria.accounts.names import AccountName
from noria.accounts.rights import Rights
from noria.core.errors import SqlError
from noria.core.errors.codes import SPECIFIC_ACCESS_DENIED
from noria.server.access.access import Access
from noria.server.http.request_filter import user_of
from noria.sql.statements.people.needs import needs_of
from noria.sql.text.databases import Databases, Names, namespace_of

_BY_PATH = {
    "/metrics": Need(("PROCESS",)), "/graph": Need(("PROCESS",)), "/waits": Need(("PROCESS",)),
    "/backup": Need(("BACKUP_ADMIN",)), "/limit": Need(("SYSTEM_VARIABLES_ADMIN", "SUPER")),
    "/evict": Need(("SYSTEM_VARIABLES_ADMIN", "SUPER")),
}
OPEN = frozenset((  # their handlers check names
    "", "/health", "/sql", "/views", "/views/{name}", "/tables/{name}", "/tables/{name}/rows", "/views/{name}/lookup",
    "/views/{name}/feed", "/views/{name}/changes", "/views/{name}/rows", "/load", "/loads/{name}", "/source/plan",
    "/source/rows", "/source/held", "/source/writes/{name}/parts", "/source/writes/{name}/commit",
    "/source/writes/{name}/drop"))
Place = Callable[[str], TableName]
"""The database and the name of a table or view that a client names."""


class Permission:
    """What the account of one request may do.  account: user@host; "" for a request without one, which may do
    everything."""

    def __init__(self, account: str, user: str, address: str, rights: Rights):
        self.account, self.user, self.rights, self.who = account, user, rights, f"'{user}'@'{address}'"

    def require(self, *needs: Need) -> None:
        """Raise an SqlError for the first need that is not satisfied."""
        if not self.rights.everything:
            check(needs, self.rights, self.who)

    def enter(self, path: str) -> None:
        """Check a path, before its body is read."""
        if self.rights.everything or path in OPEN:
            return
        if path not in _BY_PATH:
            raise SqlError(*SPECIFIC_ACCESS_DENIED, f"Access denied; {path} needs ALL PRIVILEGES ON *.* WITH GRANT "
                                                    "OPTION, for it reaches all tables")
        self.require(_BY_PATH[path])

    def select(self, table: TableName) -> None:
        """Check a read of a table or view."""
        self.require(Need(("SELECT",), table))

    def see(self, table: TableName) -> None:
        self.require(Need((), table, command="SHOW", sees=True))

    def without_text(self, about: dict[str, Any], view: TableName) -> dict[str, Any]:
        """What is told of a view: its text only with SHOW VIEW and SELECT."""
        shown = self.rights.everything or {"SELECT", "SHOW VIEW"} <= self.rights.on_table(view)
        return about if shown else {**about, **{part: "" for part in ("text", "explain") if part in about}}

    def listed(self, views: Sequence[dict[str, Any]], databases: Databases) -> list[dict[str, Any]]:
        """These views without what the account may not see.  Those that no statement has named tell of the queries of
        others."""
        if self.rights.everything:
            return list(views)
        processes = "PROCESS" in self.rights.server
        named = [(view, databases.split(view["name"])) for view in views]
        return [self.without_text(view, place) for view, place in named if (
            processes if view["kind"] in ("ad-hoc", "internal") else self.rights.sees_table(place))]

    def write(self, table: TableName, on_duplicate: str) -> None:
        self.require(*writes(table, on_duplicate))

    def write_something(self) -> None:
        """Check that the account may insert rows into some table: the name of the table comes later."""
        if not self.rights.everything and not self.rights.anywhere("INSERT"):
            raise SqlError(*SPECIFIC_ACCESS_DENIED, "Access denied; a write needs the INSERT privilege for a table")

    def read(self, body: dict[str, Any], place: Place, databases: Databases) -> None:
        """Check what a request of Spark's source reads: a table, a view or a query."""
        if self.rights.everything:
            return
        query = body.get("query")
        if query is None:
            self.select(place(str(body.get("table") or body.get("view"))))
            return
        names = Names.of(namespace_of(str(body.get("database") or place("x")[0])), databases)
        found = needs_of(str(query), names, lambda database, table: ())
        self.require(*(replace(need, columns=None) for need in found))  # grants on columns are not enough for a source

    def load(self, table: TableName, on_duplicate: str) -> None:
        self.require(Need(("FILE",)))
        self.write(table, on_duplicate)


def permission(request: Request, access: Access, account: str) -> Permission:
    """The permission of a request whose account was proved; it is kept with the request."""
    name = AccountName.of(account) if account else None
    found = None if name is None else access.accounts.get(name)
    roles = frozenset() if found is None else found.first_roles
    address = request.client.host if request.client is not None else ""
    made = Permission(account, user_of(request) or access.user, address, access.rights(name, roles))
    request.state.permission = made
    return made


def of(request: Request) -> Permission:
    """The permission of a request that `permission` has checked."""
    found: Permission = request.state.permission
    return found


__all__ = ["Permission", "of", "permission"]
