"""All accounts and roles as data, which account a client logs in to, and their form in a file.

Keeps true: an account is found as MySQL finds it: among those whose host matches, the most specific host decides
before the user's name.  Nothing changes an `Accounts`; `changes.py` makes new ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

from noria.accounts.grants import EVERYTHING, Grants
from noria.accounts.names import AccountName, matches, specificity
from noria.accounts.passwords import SHA2

FILE, FORMAT = "accounts.json", 1  # in a data directory and in a backup
DAY_S = 86_400
ALL_ROLES = "all"


class UnknownFormat(Exception):
    """The accounts were written by a later release."""


@dataclass(frozen=True)
class Account:
    """An account or a role.

    secret: the stored form of the password, "" for none (`passwords.py`).  pinned: given at the server's start, so
    it is in no file, and statements do not change its password.

    changed_at: when the password was set, in seconds since 1970.  expire_days: None for the server's default, 0 for
    never.

    roles: the granted ones, and whether with ADMIN OPTION.  default_roles: None for all.
    """

    name: AccountName
    plugin: str = SHA2
    secret: str = field(default="", repr=False)
    is_role: bool = False
    locked: bool = False
    expired: bool = False
    changed_at: int = 0
    expire_days: int | None = None
    grants: Grants = field(default_factory=Grants)
    roles: Mapping[AccountName, bool] = field(default_factory=dict)
    default_roles: frozenset[AccountName] | None = frozenset()
    pinned: bool = False
    fast: str = field(default="", repr=False)

    def expires_at(self, default_days: int) -> float:
        """When the password must be changed, in seconds since 1970.  default_days: the server's, 0 for never."""
        days = default_days if self.expire_days is None else self.expire_days
        if self.expired:
            return 0
        return self.changed_at + days * DAY_S if days else inf

    @property
    def first_roles(self) -> frozenset[AccountName]:
        """The roles that are active after a login."""
        granted = frozenset(self.roles)
        return granted if self.default_roles is None else granted & self.default_roles

    def as_json(self) -> dict[str, Any]:
        return {"user": self.name.user, "host": self.name.host, "plugin": self.plugin, "secret": self.secret,
                "is_role": self.is_role, "locked": self.locked, "expired": self.expired,
                "changed_at": self.changed_at, "expire_days": self.expire_days, "grants": self.grants.as_json(),
                "roles": [[r.user, r.host, admin] for r, admin in self.roles.items()],
                "default_roles": None if self.default_roles is None else
                [[r.user, r.host] for r in sorted(self.default_roles)]}

    @staticmethod
    def of_json(found: Mapping[str, Any]) -> Account:
        roles = found["default_roles"]
        return Account(AccountName(found["user"], found["host"]), found["plugin"], found["secret"], found["is_role"],
                       found["locked"], found["expired"], found["changed_at"], found["expire_days"],
                       Grants.of_json(found["grants"]),
                       {AccountName(user, host): admin for user, host, admin in found["roles"]},
                       None if roles is None else frozenset(AccountName(*r) for r in roles))


@dataclass(frozen=True)
class Accounts:
    """All accounts and roles by name.  policy: the variables of `policy.py`, in which SET GLOBAL changed something."""

    known: Mapping[AccountName, Account] = field(default_factory=dict)
    policy: Mapping[str, Any] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Account]:
        return iter(self.known.values())

    def __contains__(self, name: AccountName) -> bool:
        return name in self.known

    def get(self, name: AccountName) -> Account | None:
        return self.known.get(name)

    def having(self, account: Account) -> Accounts:
        return replace(self, known={**self.known, account.name: account})

    def without(self, name: AccountName) -> Accounts:
        """These accounts without this one, which nobody has as a role any more."""
        left = {n: _without_role(a, name) for n, a in self.known.items() if n != name}
        return replace(self, known=left)

    def login(self, user: str, address: str) -> Account | None:
        """The account of a client.  Roles are none."""
        found = [a for a in self if not a.is_role and a.name.user in (user, "") and matches(a.name.host, address)]
        return min(found, key=lambda a: specificity(a.name), default=None)

    def active(self, roles: frozenset[AccountName]) -> frozenset[AccountName]:
        """These roles with all that are granted to them."""
        found: set[AccountName] = set()
        todo = list(roles)
        while todo:
            name = todo.pop()
            account = self.get(name)
            if account is not None and name not in found:
                found.add(name)
                todo += account.roles
        return frozenset(found)

    # ------------------------------------------------------------ as JSON
    def as_json(self) -> dict[str, Any]:
        return {"format": FORMAT, "accounts": [a.as_json() for a in self if not a.pinned], "policy": dict(self.policy)}

    @staticmethod
    def of_json(found: Mapping[str, Any]) -> Accounts:
        if found["format"] != FORMAT:
            raise UnknownFormat(f"the accounts have format {found['format']}, this release reads format {FORMAT}")
        accounts = [Account.of_json(a) for a in found["accounts"]]
        return Accounts({a.name: a for a in accounts}, found["policy"])


def _without_role(account: Account, role: AccountName) -> Account:
    if role not in account.roles:
        return account
    defaults = account.default_roles
    return replace(account, roles={r: a for r, a in account.roles.items() if r != role},
                   default_roles=None if defaults is None else defaults - {role})


def administrator(name: AccountName, plugin: str = SHA2, secret: str = "", pinned: bool = False, now: int = 0
                  ) -> Account:
    """An account that may do everything."""
    return Account(name, plugin, secret, changed_at=now, expire_days=0, grants=EVERYTHING, pinned=pinned)


__all__ = ["ALL_ROLES", "DAY_S", "Account", "Accounts", "UnknownFormat", "administrator"]
