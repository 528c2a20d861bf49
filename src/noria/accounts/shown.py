"""What SHOW GRANTS and SHOW CREATE USER print.

Keeps true: SHOW CREATE USER has the stored form of the password, so only accounts that may read all accounts, and the
account itself, may ask for it.
"""

from __future__ import annotations

from collections.abc import Iterable

from noria.accounts.changes import no_such_grant, role_not_granted
from noria.accounts.grants import NONE, Grants
from noria.accounts.names import AccountName
from noria.accounts.registry import Account, Accounts


def grants(accounts: Accounts, name: AccountName, using: Iterable[AccountName] = ()) -> list[str]:
    """The rows of SHOW GRANTS [USING roles].  Raises SqlError."""
    account = accounts.get(name)
    if account is None:
        raise no_such_grant(name)
    for role in using:
        if role not in account.roles:
            raise role_not_granted(role, name)
    found = account.grants
    for active in sorted(accounts.active(frozenset(using))):
        found = _merged(found, accounts.known[active].grants)
    rows = list(found.statements(name.quoted))
    for admin in (False, True):
        roles = [r.quoted for r, has_admin in sorted(account.roles.items()) if has_admin is admin]
        if roles:
            rows.append(f"GRANT {','.join(roles)} TO {name.quoted}" + (" WITH ADMIN OPTION" if admin else ""))
    return rows


def _merged(a: Grants, b: Grants) -> Grants:
    columns = {key: {c: a.columns.get(key, {}).get(c, NONE) | b.columns.get(key, {}).get(c, NONE)
                     for c in (*a.columns.get(key, {}), *b.columns.get(key, {}))}
               for key in (*a.columns, *b.columns)}
    return Grants(a.server | b.server,
                  {d: a.databases.get(d, NONE) | b.databases.get(d, NONE) for d in (*a.databases, *b.databases)},
                  {t: a.tables.get(t, NONE) | b.tables.get(t, NONE) for t in (*a.tables, *b.tables)}, columns)


def create_user(account: Account) -> str:
    """The text of SHOW CREATE USER."""
    text = f"CREATE USER {account.name.quoted} IDENTIFIED WITH '{account.plugin}'"
    if account.secret:
        text += " AS '" + account.secret.replace("\\", "\\\\").replace("'", "''") + "'"
    if account.first_roles:
        text += f" DEFAULT ROLE {','.join(r.quoted for r in sorted(account.first_roles))}"
    days = account.expire_days
    lifetime = "DEFAULT" if days is None else "NEVER" if days == 0 else f"INTERVAL {days} DAY"
    expire = "" if account.expired else f" {lifetime}"
    return f"{text} REQUIRE NONE PASSWORD EXPIRE{expire} ACCOUNT {'LOCK' if account.locked else 'UNLOCK'}"


__all__ = ["create_user", "grants"]
