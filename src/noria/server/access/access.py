"""The accounts of a running server, and what each session may do.

    CREATE USER, GRANT ──► changes.apply ──► file ──► sessions, front ends ──► the next version of the program

Keeps true: a change is on disk before it holds.  After it, no session and no front end answers from a statement that
was planned before: the program has a new version.  So each text is planned, and checked, again.

A session's *scope* is the text of its account and active roles.  It is part of the namespace under which texts, shapes
and kept replies are known, so a limited session meets only what was checked for its own rights.  A session that may do
everything has the scope "": it pays nothing.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Protocol
from weakref import WeakSet

from noria.accounts import passwords, policy
from noria.accounts.changes import Actor, apply
from noria.accounts.grants import EVERYTHING
from noria.accounts.logins import Login, Logins
from noria.accounts.names import ANY_HOST, AccountName
from noria.accounts.registry import Account, Accounts, administrator
from noria.accounts.rights import UNLIMITED, Rights, rights_of
from noria.accounts.statements import Change
from noria.server.access.store import AccountStore

_PASSWORD_BYTES = 18


class Holder(Protocol):
    """A session whose rights change with the accounts."""

    def refresh_rights(self) -> None: ...


async def _nobody() -> None:
    """Wait for no front end."""


class Access:
    """See the module.  store: None keeps accounts in memory.  user: the administrator that the server is started with.

    on_change: called with each change, before it is acknowledged.  everywhere: waits until all front ends on this host
    have it.
    """

    def __init__(self, store: AccountStore | None = None, clock: Callable[[], float] = time.time):
        self._store, self._clock = store, clock
        self.accounts, self.everyone, self.user = Accounts(), True, "root"
        self.holders: WeakSet[Holder] = WeakSet()
        self.on_change: list[Callable[[], None]] = []
        self.everywhere: Callable[[], Awaitable[None]] = _nobody
        self._turn = asyncio.Lock()
        self._logins: Logins | None = None  # those of `accounts`

    @staticmethod
    def of(user: str, password: str | None) -> Access:
        """Accounts in memory with one administrator; without a password everybody is one."""
        made = Access()
        made.begin(user, password, False)
        return made

    def begin(self, user: str, password: str | None, network: bool) -> str:
        """Read the accounts and add the administrator.  network: clients of other hosts can connect.  Return the random
        password of an administrator that had to be made, else "".  Raises UnknownFormat."""
        self.user = user
        accounts = Accounts() if self._store is None else self._store.read()
        name, made = AccountName(user, ANY_HOST), ""
        if password is not None:
            accounts = accounts.having(self._pinned(name, password))
        elif network and not any(a.grants == EVERYTHING and not a.locked and a.secret for a in accounts):
            made = secrets.token_urlsafe(_PASSWORD_BYTES)
            secret = passwords.stored(passwords.SHA2, made, self._salt())
            accounts = accounts.having(administrator(name, secret=secret, now=self.now()))
            if self._store is not None:
                self._store.write(accounts)
        self.accounts, self._logins = self._with_root(accounts), None
        self.everyone = password is None and not network and not accounts.known
        return made

    def _with_root(self, accounts: Accounts) -> Accounts:
        """The accounts with the administrator of a server on loopback, who needs no password until he sets one."""
        name = AccountName(self.user, ANY_HOST)
        there = any(a.name.user == self.user and not a.is_role for a in accounts)
        return accounts if there or not accounts.known else accounts.having(administrator(name, pinned=True))

    def _pinned(self, name: AccountName, password: str) -> Account:
        secret = passwords.stored(passwords.NATIVE, password, b"")
        fast = passwords.twice("sha256", password.encode()).hex()
        return replace(administrator(name, passwords.NATIVE, secret, True), fast=fast)

    def _salt(self) -> bytes:
        return passwords.salt_of(secrets.token_bytes(passwords.SALT_BYTES))

    def now(self) -> int:
        return int(self._clock())

    # ------------------------------------------------------------ logins
    def logins(self) -> Logins:
        """What processes need to let clients log in."""
        if self._logins is None:
            self._logins = Logins(tuple(
                Login(a.name.user, a.name.host, a.plugin, a.secret, a.fast, a.locked, a.expires_at(self._days),
                      self.scope_of(a.name, a.first_roles))
                for a in self.accounts if not a.is_role), self.everyone)
        return self._logins

    @property
    def _days(self) -> int:
        return int(policy.all_of(self.accounts.policy)["default_password_lifetime"])

    def is_expired(self, name: AccountName) -> bool:
        found = self.accounts.get(name)
        return found is not None and found.expires_at(self._days) <= self._clock()

    # ------------------------------------------------------------ sessions
    def rights(self, name: AccountName | None, roles: Iterable[AccountName]) -> Rights:
        """What a session of this account may do; None is nobody's session, which may do everything."""
        return UNLIMITED if name is None else rights_of(self.accounts, name, roles)

    def scope_of(self, name: AccountName | None, roles: Iterable[AccountName]) -> str:
        if name is None or (self.rights(name, roles).everything and not self.is_expired(name)):
            return ""
        return json.dumps([name.plain, sorted(r.plain for r in roles)])

    # ------------------------------------------------------------ changes
    async def change(self, change: Change, by: AccountName | None, rights: Rights, who: str) -> list[str]:
        """Run a statement that changes accounts; return its notes.  Raises SqlError."""
        actor = Actor(by, rights, who, self.now(), secrets.token_bytes)
        async with self._turn:
            accounts = self.accounts
            if not accounts.known:
                accounts = accounts.having(administrator(AccountName(self.user, ANY_HOST), pinned=True))
            made, notes = apply(accounts, change, actor)
            await self._keep(made)
        return notes

    async def set_policy(self, name: str, value: object) -> None:
        """SET GLOBAL of a variable of `policy.DEFAULTS`."""
        async with self._turn:
            changed = {**self.accounts.policy, name: policy.checked(name, value)}
            await self._keep(replace(self.accounts, policy=changed))

    async def _keep(self, accounts: Accounts) -> None:
        if accounts == self.accounts:
            return
        if self._store is not None:
            await asyncio.get_running_loop().run_in_executor(None, partial(self._store.write, accounts))
        self.accounts, self._logins = accounts, None
        self.everyone = self.everyone and not accounts.known
        for holder in list(self.holders):
            holder.refresh_rights()
        for tell in self.on_change:
            tell()
        await self.everywhere()


__all__ = ["Access", "Holder"]
