"""Runs the statements about accounts, roles and privileges.

Keeps true: a statement that changes accounts commits the session's transaction first, as a definition does.  Its reply
is sent when the change is on disk, and when all sessions and all front ends on this host have it.
"""

from __future__ import annotations

from typing import get_args

from noria.accounts import statements as st
from noria.accounts.changes import role_not_granted
from noria.accounts.names import AccountName
from noria.accounts.shown import create_user, grants
from noria.core.errors import SqlError, unknown_table
from noria.core.errors.codes import CANNOT_USER, PASSWORD_NO_MATCH
from noria.server.access.permits import Permits
from noria.server.outcomes import Ok, Outcome
from noria.server.sessions.context import SessionContext
from noria.server.sessions.inspect import inspection
from noria.sql.text.databases import Databases

ACCOUNT_STATEMENTS = get_args(st.Statement)
_EXISTS = 3163  # the notes of IF EXISTS and IF NOT EXISTS


async def run(session: SessionContext, command: st.Statement) -> Outcome:
    if isinstance(command, st.ShowGrants):
        return _grants(session.permits, command)
    if isinstance(command, st.ShowCreateUser):
        return _create_user(session.permits, command)
    if isinstance(command, st.SetRole):
        _set_role(session.permits, command)
        return Ok()
    await session.commit()
    if isinstance(command, st.Grant):
        _check_table(session, command)
    if isinstance(command, st.AlterUsers) and command.password_only:
        _check_known(session.permits, command)
    notes = await session.permits.change(command)
    return Ok(warnings=[("Note", _EXISTS, note) for note in notes])


def _check_table(session: SessionContext, command: st.Grant) -> None:
    """Raise error 1146 for GRANT on a table that does not exist, unless it grants CREATE.

    Who may not grant there is refused later, alike whether it exists or not."""
    level, catalog = command.level, session.executor.program.catalog
    if not level.table or command.revoke or any(p in ("CREATE", "ALL") for p, _ in command.privileges):
        return
    if "GRANT OPTION" not in session.permits.rights.on_table((level.database, level.table)):
        return
    databases: Databases = catalog.databases
    found = databases.get(level.database)
    name = level.table if found is not None and found.name.lower() == "noria" else f"{level.database}.{level.table}"
    if found is None or (catalog.table(name) is None and catalog.view(name) is None
                         and catalog.placeholder_view(name) is None):
        raise unknown_table(f"{level.database}.{level.table}")


def _check_known(permits: Permits, command: st.AlterUsers) -> None:
    """SET PASSWORD of an unknown account has an error of its own."""
    if any(u.name is not None and u.name not in permits.accounts for u in command.users):
        raise SqlError(*PASSWORD_NO_MATCH, "Can't find any matching row in the user table")


def _grants(permits: Permits, command: st.ShowGrants) -> Outcome:
    name = command.name or permits.account
    using = command.using or (permits.roles if command.name in (None, permits.account) else ())
    if name is None or (name not in permits.accounts and name.user == permits.user and permits.account is None):
        own = AccountName(permits.user)
        return inspection.texts([f"Grants for {own.plain}"],
                                [(f"GRANT ALL PRIVILEGES ON *.* TO {own.quoted} WITH GRANT OPTION",)])
    if name != permits.account and name not in permits.accounts.active(permits.roles):
        permits.check_sees_accounts()
    return inspection.texts([f"Grants for {name.plain}"], [(row,) for row in grants(permits.accounts, name, using)])


def _create_user(permits: Permits, command: st.ShowCreateUser) -> Outcome:
    name = command.name or permits.account or AccountName(permits.user)
    if name != permits.account:
        permits.check_sees_accounts()
    found = permits.accounts.get(name)
    if found is None:
        raise SqlError(*CANNOT_USER, f"Operation SHOW CREATE USER failed for {name}")
    return inspection.texts([f"CREATE USER for {name.plain}"], [(create_user(found),)])


def _set_role(permits: Permits, command: st.SetRole) -> None:
    if command.how == "default":
        permits.use_default_roles()
        return
    found = None if permits.account is None else permits.accounts.get(permits.account)
    granted = frozenset() if found is None else frozenset(found.roles)
    for role in command.roles:
        if role not in granted and command.how == "list":
            raise role_not_granted(role, permits.account or AccountName(permits.user))
    roles = {"none": frozenset(), "all": granted, "all except": granted - set(command.roles),
             "list": frozenset(command.roles)}
    permits.activate(roles[command.how])


__all__ = ["ACCOUNT_STATEMENTS", "run"]
