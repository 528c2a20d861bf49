"""The statements about accounts, as data.

Keeps true: no `repr` shows a password.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from noria.accounts.grants import Level
from noria.accounts.names import AccountName


@dataclass(frozen=True)
class Credential:
    """IDENTIFIED.  plugin: "" for the server's default.  password: the clear one; None if `secret`, the stored form,
    is given."""

    plugin: str = ""
    password: str | None = field(default=None, repr=False)
    secret: str = field(default="", repr=False)


@dataclass(frozen=True)
class Named:
    """An account of CREATE or ALTER USER.  name: None for the session's own."""

    name: AccountName | None
    credential: Credential | None = None


@dataclass(frozen=True)
class Options:
    """Options of CREATE and ALTER USER; None: not written.  expire_days: -1 for DEFAULT, 0 for NEVER."""

    lock: bool | None = None
    expire: bool = False
    expire_days: int | None = None


@dataclass(frozen=True)
class CreateUsers:
    users: tuple[Named, ...]
    if_not_exists: bool = False
    roles: bool = False  # CREATE ROLE
    options: Options = field(default_factory=Options)
    default_roles: tuple[AccountName, ...] = ()


@dataclass(frozen=True)
class AlterUsers:
    users: tuple[Named, ...]
    if_exists: bool = False
    options: Options = field(default_factory=Options)
    password_only: bool = False  # SET PASSWORD


@dataclass(frozen=True)
class DropUsers:
    names: tuple[AccountName, ...]
    if_exists: bool = False
    roles: bool = False


@dataclass(frozen=True)
class RenameUsers:
    names: tuple[tuple[AccountName, AccountName], ...]


@dataclass(frozen=True)
class Grant:
    """GRANT and REVOKE of privileges.  privileges: each with its columns.  option: WITH GRANT OPTION."""

    privileges: tuple[tuple[str, tuple[str, ...]], ...]
    level: Level
    names: tuple[AccountName, ...]
    option: bool = False
    revoke: bool = False


@dataclass(frozen=True)
class RevokeAll:
    """REVOKE ALL PRIVILEGES, GRANT OPTION FROM."""

    names: tuple[AccountName, ...]


@dataclass(frozen=True)
class GrantRoles:
    """GRANT and REVOKE of roles.  admin: WITH ADMIN OPTION."""

    roles: tuple[AccountName, ...]
    names: tuple[AccountName, ...]
    admin: bool = False
    revoke: bool = False


@dataclass(frozen=True)
class SetRole:
    """SET ROLE.  how: "default", "none", "all", "all except" or "list"."""

    how: str
    roles: tuple[AccountName, ...] = ()


@dataclass(frozen=True)
class SetDefaultRole:
    """SET DEFAULT ROLE.  how: "none", "all" or "list".  names: None in a tuple for the session's own account."""

    how: str
    roles: tuple[AccountName, ...]
    names: tuple[AccountName | None, ...]


@dataclass(frozen=True)
class ShowGrants:
    """SHOW GRANTS.  name: None for the session's own account."""

    name: AccountName | None = None
    using: tuple[AccountName, ...] = ()


@dataclass(frozen=True)
class ShowCreateUser:
    name: AccountName | None = None


Change = CreateUsers | AlterUsers | DropUsers | RenameUsers | Grant | RevokeAll | GrantRoles | SetDefaultRole
Statement = Change | SetRole | ShowGrants | ShowCreateUser

__all__ = ["AlterUsers", "Change", "CreateUsers", "Credential", "DropUsers", "Grant", "GrantRoles", "Named", "Options",
           "RenameUsers", "RevokeAll", "SetDefaultRole", "SetRole", "ShowCreateUser", "ShowGrants", "Statement"]
