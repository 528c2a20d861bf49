"""The rows of mysql.user and of information_schema's tables of privileges.

Keeps true: who may not see the accounts of others sees his own privileges only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from noria.accounts.names import AccountName
from noria.accounts.privileges import GRANT_OPTION
from noria.accounts.registry import Account, administrator
from noria.server.access.permits import Permits
from noria.sql.statements.information import PRIVILEGE_COLUMNS

Values = dict[str, Any]
TABLES = ("user_privileges", "schema_privileges", "table_privileges", "column_privileges", "user")
_OF_COLUMN = {"grant_priv": GRANT_OPTION, "show_db_priv": "SHOW DATABASES",
              "create_tmp_table_priv": "CREATE TEMPORARY TABLES", "repl_slave_priv": "REPLICATION SLAVE",
              "repl_client_priv": "REPLICATION CLIENT"}


def rows(name: str, permits: Permits) -> Iterator[Values]:
    accounts: list[Account] = list(permits.accounts)
    if permits.account is None and not accounts:
        accounts = [administrator(AccountName(permits.user))]
    for account in accounts:
        if not (permits.sees_accounts or account.name == permits.account):
            continue
        if name == "user":
            yield _user(account)
        else:
            yield from _ROWS[name](account, {"grantee": str(account.name), "table_catalog": "def"})


def _privileges(held: frozenset[str], about: Values) -> Iterator[Values]:
    option = "YES" if GRANT_OPTION in held else "NO"
    for privilege in sorted(held - {GRANT_OPTION}) or ["USAGE"]:
        yield {**about, "privilege_type": privilege, "is_grantable": option}


def _user_privileges(account: Account, about: Values) -> Iterator[Values]:
    return _privileges(account.grants.server, about)


def _schema_privileges(account: Account, about: Values) -> Iterator[Values]:
    for database, held in account.grants.databases.items():
        yield from _privileges(held, {**about, "table_schema": database})


def _table_privileges(account: Account, about: Values) -> Iterator[Values]:
    for (database, table), held in account.grants.tables.items():
        yield from _privileges(held, {**about, "table_schema": database, "table_name": table})


def _column_privileges(account: Account, about: Values) -> Iterator[Values]:
    for (database, table), columns in account.grants.columns.items():
        for column, held in columns.items():
            yield from _privileges(held, {**about, "table_schema": database, "table_name": table,
                                          "column_name": column})


_ROWS: Mapping[str, Any] = {"user_privileges": _user_privileges, "schema_privileges": _schema_privileges,
                            "table_privileges": _table_privileges, "column_privileges": _column_privileges}


def _user(account: Account) -> Values:
    held = account.grants.server
    words = {c: _OF_COLUMN.get(c, c.removesuffix("_priv").replace("_", " ").upper()) for c in PRIVILEGE_COLUMNS}
    changed = datetime.fromtimestamp(account.changed_at, UTC).strftime("%Y-%m-%d %H:%M:%S")
    return {"host": account.name.host, "user": account.name.user,
            **{c: "Y" if privilege in held else "N" for c, privilege in words.items()},
            "ssl_type": "", "max_questions": 0, "max_updates": 0, "max_connections": 0, "max_user_connections": 0,
            "plugin": account.plugin, "authentication_string": account.secret,
            "password_expired": "Y" if account.expired else "N", "password_last_changed": changed,
            "password_lifetime": account.expire_days, "account_locked": "Y" if account.locked else "N"}


__all__ = ["TABLES", "rows"]
