"""The rights of one session: checks of its texts, and what it is shown.

Keeps true: `scope` is "" exactly while the session may do everything, so that such a session is never checked.  An
account whose password has expired may only change it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from noria.accounts import policy
from noria.accounts import statements as st
from noria.accounts.checks import Need, check, database_denied
from noria.accounts.names import AccountName
from noria.accounts.registry import Accounts
from noria.accounts.rights import Rights
from noria.core.errors import SqlError
from noria.core.errors.codes import MUST_CHANGE_PASSWORD
from noria.server.access.access import Access
from noria.server.access.seen import SeenCatalog
from noria.server.outcomes import Client
from noria.sql.statements import session as said
from noria.sql.statements.people.needs import needs_of
from noria.sql.text.databases import Databases, Names, in_scope
from noria.sql.text.syntax import statements_of, tokenize


class OwnTables(Protocol):
    """The temporary tables of a session."""

    def find(self, name: str) -> Any: ...


class Permits:
    """See the module.  account: None for a session that has none and may do everything.  roles: the active ones."""

    def __init__(self, access: Access, client: Client, catalog: Any):
        self._access, self._catalog = access, catalog
        self.user, self.address = client.user, client.address
        self.account = AccountName.of(client.account) if client.account else None
        self.roles: frozenset[AccountName] = frozenset()
        self.use_default_roles()
        access.holders.add(self)

    @property
    def who(self) -> str:
        return f"'{self.user}'@'{self.address}'"

    @property
    def shown_account(self) -> str:
        """CURRENT_USER()."""
        return f"{self.user}@%" if self.account is None else self.account.plain

    @property
    def accounts(self) -> Accounts:
        return self._access.accounts

    # ------------------------------------------------------------ rights
    def use_default_roles(self) -> None:
        found = None if self.account is None else self.accounts.get(self.account)
        self.activate(frozenset() if found is None else found.first_roles)

    def activate(self, roles: Collection[AccountName]) -> None:
        self.roles = frozenset(roles)
        self.refresh_rights()

    def refresh_rights(self) -> None:
        """Compute the rights anew, because the accounts or the roles have changed."""
        found = None if self.account is None else self.accounts.get(self.account)
        if found is not None:
            self.roles &= frozenset(found.roles)
        self.rights: Rights = self._access.rights(self.account, self.roles)
        self.scope = self._access.scope_of(self.account, self.roles)
        self.suffix = in_scope("", self.scope)  # of the namespaces of its texts

    async def change(self, statement: st.Change) -> list[str]:
        own = self.account or AccountName(self.user)
        return await self._access.change(statement, own, self.rights, self.who)

    async def set_policy(self, name: str, value: object) -> None:
        await self._access.set_policy(name, value)

    def variables(self) -> Mapping[str, Any]:
        return policy.all_of(self.accounts.policy)

    # ------------------------------------------------------------ checks
    def check(self, text: str, namespace: str, own: OwnTables) -> None:
        """Raise an SqlError if the session may not run a text.  own: tables for which it needs no privilege."""
        databases = self._catalog.databases
        names = Names.of(namespace, databases)
        if self.account is not None and self._access.is_expired(self.account):
            self._check_expired(text, names)
        needs = needs_of(text, names, self._columns)
        holds = [n for n in needs if not self._is_own(n, databases, own)]
        check([n for n in holds if not n.of_view or self._is_view(n, databases)], self.rights, self.who)

    def require(self, *needs: Need) -> None:
        if self.scope:
            check(needs, self.rights, self.who)

    def _check_expired(self, text: str, names: Names) -> None:
        for tokens in statements_of(tokenize(text)):
            command = said.command(tokens, text, names)
            if not isinstance(command, st.AlterUsers) or any(u.name not in (None, self.account) for u in command.users):
                raise SqlError(*MUST_CHANGE_PASSWORD, "You must reset your password using ALTER USER statement before "
                                                      "executing this statement.")

    def _is_own(self, need: Need, databases: Databases, own: OwnTables) -> bool:
        if not own or need.kept or need.table is None or not need.table[1]:
            return False
        database, name = need.table
        internal = name if database.lower() == "noria" else f"{database}.{name}"
        return own.find(internal) is not None and databases.split(internal)[1] == name

    def _is_view(self, need: Need, databases: Databases) -> bool:
        """Whether the table that is needed is a view."""
        if need.table is None or databases.get(need.table[0]) is None:
            return False
        database, name = need.table
        internal = name if database.lower() == "noria" else f"{database}.{name}"
        return self._catalog.view(internal) is not None or self._catalog.placeholder_view(internal) is not None

    def _columns(self, database: str, table: str) -> Sequence[str]:
        found = self._catalog.databases.get(database)
        if found is None:
            return ()
        name = table if found.name.lower() == "noria" else f"{found.name}.{table}"
        definition = self._catalog.table(name) or self._catalog.view(name)
        if definition is None:
            return ()
        fields = definition.columns if hasattr(definition, "columns") else definition.fields
        return [f.name for f in fields]

    def check_database(self, database: str) -> None:
        """Raise error 1044 if the session may do nothing in the database."""
        if not self.rights.sees_database(database):
            raise database_denied(self.who, database)

    def check_sees(self, name: str) -> None:
        self.require(Need((), self._catalog.databases.split(name), command="SELECT", sees=True))

    # ------------------------------------------------------------ what is shown
    def seen(self, catalog: Any) -> Any:
        """The catalog with what the session may see."""
        return SeenCatalog(catalog, self.rights) if self.scope else catalog

    @property
    def sees_processes(self) -> bool:
        return "PROCESS" in self.rights.server

    @property
    def may_kill(self) -> bool:
        return bool(self.rights.server & {"SUPER", "CONNECTION_ADMIN"})

    @property
    def sees_accounts(self) -> bool:
        """Whether it may see the accounts of others."""
        return "CREATE USER" in self.rights.server or "SELECT" in self.rights.on_database("mysql")

    def shares(self, other: Permits) -> bool:
        """Whether both sessions are of one account."""
        return self.account == other.account and self.user == other.user

    def check_sees_accounts(self) -> None:
        if not self.sees_accounts:
            raise database_denied(self.who, "mysql")


__all__ = ["Permits"]
