"""Reads CREATE, ALTER, DROP and RENAME USER, CREATE and DROP ROLE, SET PASSWORD, SET ROLE, SHOW CREATE USER.

Keeps true: an option that is not enforced is refused by its name.  No error has a password.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps

from noria.accounts import statements as st
from noria.accounts.names import AccountName
from noria.accounts.statements import Credential, Named, Options
from noria.core.errors import SqlError, not_supported, parse_error
from noria.sql.statements.people.words import account_name, listed, own_or_named, without_secrets
from noria.sql.words import Words

_DEFAULT = -1


def _hides(read: Callable[[Words], st.Statement]) -> Callable[[Words], st.Statement]:
    @wraps(read)
    def reading(r: Words) -> st.Statement:
        try:
            return read(r)
        except SqlError as e:
            raise without_secrets(e, r.tokens, r.text) from None

    return reading


@_hides
def create(r: Words) -> st.Statement:
    """Read CREATE USER and CREATE ROLE, after CREATE."""
    roles = r.next().text.upper() == "ROLE"
    if_not_exists = r.take("IF", "NOT", "EXISTS")
    if roles:
        names = listed(r)
        r.end()
        return st.CreateUsers(tuple(Named(n) for n in names), if_not_exists, True)
    users = _users(r, account_name)
    defaults = listed(r) if r.take("DEFAULT", "ROLE") else ()
    return st.CreateUsers(users, if_not_exists, False, _options(r), defaults)


@_hides
def alter(r: Words) -> st.Statement:
    """Read ALTER USER, after ALTER."""
    r.next()
    if_exists = r.take("IF", "EXISTS")
    users = _users(r, own_or_named)
    if len(users) == 1 and r.take("DEFAULT", "ROLE"):
        return _default_role(r, (users[0].name,))
    return st.AlterUsers(users, if_exists, _options(r))


def _users(r: Words, name: Callable[[Words], AccountName | None]) -> tuple[Named, ...]:
    users = [Named(name(r), _credential(r))]
    while r.take(","):
        users.append(Named(name(r), _credential(r)))
    return tuple(users)


def _credential(r: Words) -> Credential | None:
    if not r.take("IDENTIFIED"):
        return None
    plugin = ""
    if r.take("WITH") or r.take("VIA"):
        plugin = r.next().text
        if r.take("AS") or r.take("USING"):
            return Credential(plugin, None, r.string())
        if not r.take("BY"):
            return Credential(plugin, "")
    elif not r.take("BY"):
        raise parse_error(f"IDENTIFIED BY 'password', near '{r.near()[:40]}'")
    if r.take("RANDOM"):
        raise not_supported("IDENTIFIED BY RANDOM PASSWORD", "write a password")
    if r.take("PASSWORD"):
        return Credential("mysql_native_password", None, r.string())
    password = r.string()
    for words in (("REPLACE",), ("RETAIN", "CURRENT", "PASSWORD")):
        if r.take(*words):
            raise not_supported(f"IDENTIFIED BY … {' '.join(words)}", "leave it out: an account has one password")
    return Credential(plugin, password)


def _options(r: Words) -> Options:
    """Read REQUIRE, PASSWORD and ACCOUNT until the statement's end."""
    lock: bool | None = None
    expire, days = False, None
    while r.peek() is not None:
        if r.take("REQUIRE", "NONE") or r.take("PASSWORD", "HISTORY", "DEFAULT") or (
                r.take("PASSWORD", "REUSE", "INTERVAL", "DEFAULT") or r.take("PASSWORD", "REQUIRE", "CURRENT",
                                                                             "DEFAULT")):
            continue  # what holds anyway; SHOW CREATE USER of MySQL prints them
        if r.take("ACCOUNT", "LOCK"):
            lock = True
        elif r.take("ACCOUNT", "UNLOCK"):
            lock = False
        elif r.take("PASSWORD", "EXPIRE"):
            if r.take("NEVER"):
                days = 0
            elif r.take("DEFAULT"):
                days = _DEFAULT
            elif r.take("INTERVAL"):
                days = r.number()
                if not r.take("DAY") or not 1 <= days <= 65_535:
                    raise parse_error(f"PASSWORD EXPIRE INTERVAL from 1 to 65535 DAY, near '{r.near()[:40]}'")
            else:
                expire = True
        else:
            _refuse_option(r)
    return Options(lock, expire, days)


def _refuse_option(r: Words) -> None:
    if r.word == "REQUIRE":
        raise not_supported(r.near()[:40], "start the server with --tls-require or --tls-ca, which hold for all")
    if r.word in ("WITH", "FAILED_LOGIN_ATTEMPTS", "PASSWORD_LOCK_TIME", "COMMENT", "ATTRIBUTE", "DISCARD") or (
            r.word == "PASSWORD"):
        raise not_supported(r.near()[:60], "leave it out: wrong passwords are slowed for each user and address")
    r.end()


@_hides
def drop(r: Words) -> st.Statement:
    """Read DROP USER and DROP ROLE, after DROP."""
    roles = r.next().text.upper() == "ROLE"
    if_exists = r.take("IF", "EXISTS")
    names = listed(r)
    r.end()
    return st.DropUsers(names, if_exists, roles)


@_hides
def rename(r: Words) -> st.Statement:
    """Read RENAME USER, after RENAME."""
    r.next()
    names: list[tuple[AccountName, AccountName]] = []
    while not names or r.take(","):
        old = account_name(r)
        if not r.take("TO"):
            raise parse_error(f"RENAME USER name TO name, near '{r.near()[:40]}'")
        names.append((old, account_name(r)))
    r.end()
    return st.RenameUsers(tuple(names))


@_hides
def set_password(r: Words) -> st.Statement:
    """Read SET PASSWORD [FOR account] = 'password', after SET."""
    r.next()
    name = own_or_named(r) if r.take("FOR") else None
    if r.take("TO", "RANDOM"):
        raise not_supported("SET PASSWORD TO RANDOM", "write a password")
    if not (r.take("=") or r.take(":=")):
        raise parse_error(f"SET PASSWORD = 'password', near '{r.near()[:40]}'")
    function = r.take("PASSWORD", "(")  # as MariaDB and old clients write it
    credential = Credential("", r.string())
    if function and not r.take(")"):
        raise parse_error("SET PASSWORD = PASSWORD('password')")
    if r.take("REPLACE") or r.take("RETAIN"):
        raise not_supported("SET PASSWORD … REPLACE or RETAIN", "leave it out: an account has one password")
    r.end()
    return st.AlterUsers((Named(name, credential),), password_only=True)


def set_role(r: Words) -> st.Statement:
    """Read SET ROLE, after SET."""
    r.next()
    if r.take("NONE"):
        found = st.SetRole("none")
    elif r.take("DEFAULT"):
        found = st.SetRole("default")
    elif r.take("ALL", "EXCEPT"):
        found = st.SetRole("all except", listed(r))
    else:
        found = st.SetRole("all") if r.take("ALL") else st.SetRole("list", listed(r))
    r.end()
    return found


def set_default_role(r: Words) -> st.Statement:
    """Read SET DEFAULT ROLE … TO accounts, after SET."""
    r.next()
    if not r.take("ROLE"):
        raise parse_error(f"SET DEFAULT ROLE, near '{r.near()[:40]}'")
    return _default_role(r, None)


def _default_role(r: Words, of: tuple[AccountName | None, ...] | None) -> st.SetDefaultRole:
    how, roles = "list", tuple[AccountName, ...]()
    if r.take("NONE"):
        how = "none"
    elif r.take("ALL"):
        how = "all"
    else:
        roles = listed(r)
    names = [] if of is None else list(of)
    if of is None:
        if not r.take("TO"):
            raise parse_error(f"SET DEFAULT ROLE … TO account, near '{r.near()[:40]}'")
        names.append(own_or_named(r))
        while r.take(","):
            names.append(own_or_named(r))
    r.end()
    return st.SetDefaultRole(how, roles, tuple(names))


def show_create(r: Words) -> st.Statement:
    """Read the account of SHOW CREATE USER."""
    name = own_or_named(r) if r.peek() is not None else None
    r.end()
    return st.ShowCreateUser(name)


__all__ = ["alter", "create", "drop", "rename", "set_default_role", "set_password", "set_role", "show_create"]
