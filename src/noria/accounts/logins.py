"""What a process needs to let clients log in: names, hosts and stored passwords, without privileges.

Keeps true: accounts are found as `Accounts.login` finds them.  Front ends in other processes receive these.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

from noria.accounts.names import AccountName, matches, specificity


@dataclass(frozen=True)
class Login:
    """One account.  fast: SHA256(SHA256(password)) in hexadecimal, if the server was given the clear password.

    expires_at: when the password must be changed, in seconds since 1970.  scope: of its sessions (`server/access`)."""

    user: str
    host: str
    plugin: str
    secret: str = field(repr=False)
    fast: str = field(default="", repr=False)
    locked: bool = False
    expires_at: float = inf
    scope: str = ""

    @property
    def name(self) -> AccountName:
        return AccountName(self.user, self.host)


@dataclass(frozen=True)
class Logins:
    """The accounts.  everyone: who has none is admitted as well, and may do everything."""

    known: tuple[Login, ...] = ()
    everyone: bool = False

    def find(self, user: str, address: str) -> Login | None:
        found = [e for e in self.known if e.user in (user, "") and matches(e.host, address)]
        return min(found, key=lambda e: specificity(e.name), default=None)


__all__ = ["Login", "Logins"]
