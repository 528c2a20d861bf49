"""Applies the statements that change accounts: `Accounts` and a statement to new `Accounts`.

Keeps true: a statement that names several accounts changes all of them or none.  Who grants needs GRANT OPTION and each
privilege that he grants.  An account that may do everything is changed only by one that may, and by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from noria.accounts import passwords, policy, privileges
from noria.accounts import statements as st
from noria.accounts.checks import database_denied, lacks, table_denied
from noria.accounts.grants import NONE, Grants, Level
from noria.accounts.names import AccountName, checked
from noria.accounts.privileges import COLUMN, DATABASE, GRANT_OPTION, SERVER
from noria.accounts.registry import Account, Accounts
from noria.accounts.rights import Rights, rights_of
from noria.core.errors import SqlError, not_supported
from noria.core.errors.codes import (
    ACCESS_DENIED,
    CANNOT_USER,
    CANT_CREATE_USER_WITH_GRANT,
    NONEXISTING_GRANT,
    NONEXISTING_TABLE_GRANT,
    ROLE_NOT_GRANTED,
    UNKNOWN_AUTHID,
)


@dataclass(frozen=True)
class Actor:
    """Who runs a statement.  name: his account; None without one.  who: 'user'@'address', as errors show him.

    now: seconds since 1970.  random: returns so many random bytes.
    """

    name: AccountName | None
    rights: Rights
    who: str
    now: int
    random: Callable[[int], bytes]


def apply(accounts: Accounts, change: st.Change, by: Actor) -> tuple[Accounts, list[str]]:
    """Return the accounts after the statement, and its notes.  Raises SqlError."""
    notes: list[str] = []
    handler = _HANDLERS[type(change)]
    return handler(accounts, change, by, notes), notes


# ------------------------------------------------------------------ accounts
def _create(accounts: Accounts, change: st.CreateUsers, by: Actor, notes: list[str]) -> Accounts:
    _needs(by, "CREATE ROLE" if change.roles else "CREATE USER", "CREATE USER")
    what = "ROLE" if change.roles else "USER"
    for name in change.default_roles:
        _role(accounts, name)
    there = [u.name for u in change.users if u.name is not None and u.name in accounts]
    if there and not change.if_not_exists:
        raise _failed(f"CREATE {what}", there)
    notes += [f"Authorization ID {name} already exists." for name in there]
    for user in change.users:
        assert user.name is not None
        name = checked(user.name)
        if name in accounts:
            continue
        made = Account(name, changed_at=by.now, is_role=change.roles, locked=change.roles)
        if not change.roles:
            made = _identified(accounts, made, user.credential or st.Credential(password=""), by)
            made = replace(_with_options(made, change.options), default_roles=frozenset(change.default_roles))
        accounts = accounts.having(made)
    return accounts


def _alter(accounts: Accounts, change: st.AlterUsers, by: Actor, notes: list[str]) -> Accounts:
    own_only = change.options == st.Options() and all(u.name in (None, by.name) for u in change.users)
    if not own_only:
        _needs(by, "CREATE USER")
    missing = [u.name for u in change.users if u.name is not None and u.name not in accounts]
    if missing and not change.if_exists:
        raise _failed("ALTER USER", missing)
    notes += [f"Authorization ID {name} does not exist." for name in missing]
    for user in change.users:
        name = user.name or by.name
        found = None if name is None else accounts.get(name)
        if found is None:
            if user.name is None:
                raise _failed("ALTER USER", [name])
            continue
        _guard(accounts, found.name, by)
        if user.credential is not None:
            found = _identified(accounts, found, user.credential, by)
        accounts = accounts.having(_with_options(found, change.options))
    return accounts


def _identified(accounts: Accounts, account: Account, credential: st.Credential, by: Actor) -> Account:
    """Return the account with a new password, which has not expired."""
    if account.pinned and account.secret:
        raise not_supported(f"a new password for {account.name} here", "the server was started with --password-file: "
                            "change the file, and start the server again")
    plugin = passwords.checked_plugin(credential.plugin or (account.plugin if account.secret else passwords.SHA2))
    if credential.password is None:
        secret = passwords.checked_secret(plugin, credential.secret)
    else:
        names = (account.name.user, *(() if by.name is None else (by.name.user,)))
        policy.check(credential.password, names, accounts.policy)
        salt = passwords.salt_of(by.random(passwords.SALT_BYTES))
        secret = passwords.stored(plugin, credential.password, salt)
    return replace(account, plugin=plugin, secret=secret, expired=False, changed_at=by.now, pinned=False, fast="")


def _with_options(account: Account, options: st.Options) -> Account:
    if options.lock is not None:
        account = replace(account, locked=options.lock)
    if options.expire:
        account = replace(account, expired=True)
    if options.expire_days is not None:
        account = replace(account, expire_days=None if options.expire_days < 0 else options.expire_days)
    return account


def _drop(accounts: Accounts, change: st.DropUsers, by: Actor, notes: list[str]) -> Accounts:
    _needs(by, "DROP ROLE" if change.roles else "CREATE USER", "CREATE USER")
    what = "ROLE" if change.roles else "USER"
    missing = [n for n in change.names if n not in accounts]
    if missing and not change.if_exists:
        raise _failed(f"DROP {what}", missing)
    notes += [f"Authorization ID {name} does not exist." for name in missing]
    for name in change.names:
        _guard(accounts, name, by)
        _refuse_pinned(accounts, name, "DROP USER")
        accounts = accounts.without(name)
    return accounts


def _rename(accounts: Accounts, change: st.RenameUsers, by: Actor, notes: list[str]) -> Accounts:
    _needs(by, "CREATE USER")
    for old, new in change.names:
        found = accounts.get(old)
        if found is None or new in accounts:
            raise _failed("RENAME USER", [old])
        _guard(accounts, old, by)
        _refuse_pinned(accounts, old, "RENAME USER")
        if any(old in a.roles for a in accounts):
            raise not_supported(f"RENAME USER of {old}, which is granted as a role", "revoke it before")
        accounts = accounts.without(old).having(replace(found, name=checked(new)))
    return accounts


def _refuse_pinned(accounts: Accounts, name: AccountName, what: str) -> None:
    found = accounts.get(name)
    if found is not None and found.pinned:
        raise not_supported(f"{what} of {name}", "it is the administrator that the server was started with")


def _guard(accounts: Accounts, name: AccountName, by: Actor) -> None:
    """Raise an SqlError if the account may do everything and who changes it may not, as MySQL's SYSTEM_USER does."""
    found = accounts.get(name)
    if found is None or name == by.name or by.rights.everything:
        return
    if rights_of(accounts, name, found.roles).everything:
        raise lacks("SYSTEM_USER")


def _failed(what: str, names: Iterable[AccountName | None]) -> SqlError:
    return SqlError(*CANNOT_USER, f"Operation {what} failed for {','.join(map(str, names))}")


def _needs(by: Actor, *any_of: str) -> None:
    if not by.rights.server.intersection(any_of):
        raise lacks(" or ".join(dict.fromkeys(any_of)))


# ------------------------------------------------------------------ privileges
def _grant(accounts: Accounts, change: st.Grant, by: Actor, notes: list[str]) -> Accounts:
    level = change.level
    whole: frozenset[str] = NONE
    of_columns: dict[str, frozenset[str]] = {}
    for privilege, columns in change.privileges:
        found = privileges.checked(privilege, COLUMN if columns else level.kind)
        if not columns:
            whole |= found
        for column in columns:
            of_columns[column.lower()] = of_columns.get(column.lower(), NONE) | found
    if change.option:
        whole |= {GRANT_OPTION}
    _check_may_grant(level, whole, of_columns, by)
    for name in change.names:
        account = accounts.get(name)
        if account is None:
            raise SqlError(*CANT_CREATE_USER_WITH_GRANT, "You are not allowed to create a user with GRANT") if (
                not change.revoke) else no_such_grant(name)
        if account.pinned and not change.revoke:
            continue  # it may do everything
        if change.revoke:
            _guard(accounts, name, by)
        _refuse_pinned(accounts, name, "REVOKE")
        revise = _revoked if change.revoke else _granted
        accounts = accounts.having(replace(account, grants=revise(account, level, whole, of_columns)))
    return accounts


def _check_may_grant(level: Level, whole: frozenset[str], of_columns: dict[str, frozenset[str]], by: Actor) -> None:
    """Raise an SqlError unless the session has GRANT OPTION at the level, and each privilege."""
    held = by.rights.server
    if level.kind == DATABASE:
        held = by.rights.on_databases(level.database)
    elif level.kind != SERVER:
        held = by.rights.on_table((level.database, level.table))
    covered = whole <= held and all(
        p in held or column in by.rights.columns(p, (level.database, level.table))
        for column, found in of_columns.items() for p in found)
    if GRANT_OPTION in held and covered:
        return
    if level.kind == SERVER:
        raise SqlError(*ACCESS_DENIED, f"Access denied for user {by.who} (using password: YES)")
    if level.kind == DATABASE:
        raise database_denied(by.who, level.database)
    missing = sorted(whole - held - {GRANT_OPTION})
    raise table_denied("GRANT" if GRANT_OPTION not in held or not missing else f"GRANT {', '.join(missing)}", by.who,
                       level.table)


def _granted(account: Account, level: Level, whole: frozenset[str], of_columns: dict[str, frozenset[str]]) -> Grants:
    grants = account.grants
    grants = grants.with_at(level, grants.at(level) | whole)
    if of_columns:
        held = grants.on_columns(level)
        merged = {c: held.get(c, NONE) | of_columns.get(c, NONE) for c in (*held, *of_columns)}
        grants = grants.with_columns(level, merged)
    return grants


def _revoked(account: Account, level: Level, whole: frozenset[str], of_columns: dict[str, frozenset[str]]) -> Grants:
    grants = account.grants
    held, columns = grants.at(level), grants.on_columns(level)
    if level.kind == DATABASE and not held:
        raise no_such_grant(account.name)
    if level.kind not in (SERVER, DATABASE) and not held and not columns:
        raise SqlError(*NONEXISTING_TABLE_GRANT, f"There is no such grant defined for user '{account.name.user}' on "
                                                 f"host '{account.name.host}' on table '{level.table}'")
    grants = grants.with_at(level, held - whole)
    if level.kind not in (SERVER, DATABASE):
        left = {c: p - whole - of_columns.get(c, NONE) for c, p in columns.items()}
        grants = grants.with_columns(level, left)
    return grants


def no_such_grant(name: AccountName) -> SqlError:
    return SqlError(*NONEXISTING_GRANT,
                    f"There is no such grant defined for user '{name.user}' on host '{name.host}'")


def _revoke_all(accounts: Accounts, change: st.RevokeAll, by: Actor, notes: list[str]) -> Accounts:
    _needs(by, "CREATE USER")
    for name in change.names:
        found = accounts.get(name)
        if found is None:
            raise SqlError(*NONEXISTING_GRANT, "Can't revoke all privileges for one or more of the requested users")
        _guard(accounts, name, by)
        _refuse_pinned(accounts, name, "REVOKE ALL")
        accounts = accounts.having(replace(found, grants=Grants()))
    return accounts


# ------------------------------------------------------------------ roles
def _grant_roles(accounts: Accounts, change: st.GrantRoles, by: Actor, notes: list[str]) -> Accounts:
    own = None if by.name is None else accounts.get(by.name)
    for role in change.roles:
        admin = own is not None and own.roles.get(role, False)
        if not admin and not by.rights.server & {"ROLE_ADMIN", "SUPER"}:
            raise lacks("WITH ADMIN, ROLE_ADMIN, SUPER")
        _role(accounts, role)
        _guard(accounts, role, by)
    for name in change.names:
        account = _role(accounts, name)
        if change.revoke:
            _guard(accounts, name, by)
        roles = dict(account.roles)
        for role in change.roles:
            if not change.revoke:
                if role == name or name in accounts.active(frozenset((role,))):
                    raise not_supported(f"GRANT {role.quoted} TO {name.quoted}", "a role would be granted to itself")
                roles[role] = roles.get(role, False) or change.admin
            elif roles.pop(role, None) is None:
                raise role_not_granted(role, name)
        defaults = account.default_roles
        kept = None if defaults is None else defaults & frozenset(roles)
        accounts = accounts.having(replace(account, roles=roles, default_roles=kept))
    return accounts


def _role(accounts: Accounts, name: AccountName) -> Account:
    found = accounts.get(name)
    if found is None:
        raise SqlError(*UNKNOWN_AUTHID, f"Unknown authorization ID {name.quoted}")
    return found


def role_not_granted(role: AccountName, name: AccountName) -> SqlError:
    return SqlError(*ROLE_NOT_GRANTED, f"{role.quoted} is not granted to {name.quoted}")


def _set_default(accounts: Accounts, change: st.SetDefaultRole, by: Actor, notes: list[str]) -> Accounts:
    if any(name not in (None, by.name) for name in change.names):
        _needs(by, "CREATE USER")
    for named in change.names:
        name = named or by.name
        account = _role(accounts, AccountName("") if name is None else name)
        for role in change.roles:
            if role not in account.roles:
                raise role_not_granted(role, account.name)
        roles = None if change.how == "all" else frozenset(change.roles)
        accounts = accounts.having(replace(account, default_roles=roles))
    return accounts


_HANDLERS: dict[type, Callable[[Accounts, Any, Actor, list[str]], Accounts]] = {
    st.CreateUsers: _create, st.AlterUsers: _alter, st.DropUsers: _drop, st.RenameUsers: _rename, st.Grant: _grant,
    st.RevokeAll: _revoke_all, st.GrantRoles: _grant_roles, st.SetDefaultRole: _set_default}

__all__ = ["Actor", "apply", "no_such_grant", "role_not_granted"]
