"""Statements that change accounts, and the rights that follow.  A reference computes the rights anew, cell by cell."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from math import inf

import pytest

from noria.accounts import statements as st
from noria.accounts.changes import Actor, apply
from noria.accounts.checks import Need, check
from noria.accounts.grants import Level
from noria.accounts.names import AccountName
from noria.accounts.privileges import COLUMN, DATABASE, OF_LEVEL, SERVER, TABLE, UNUSED, all_of
from noria.accounts.registry import Accounts, UnknownFormat, administrator
from noria.accounts.rights import UNLIMITED, Rights, rights_of
from noria.accounts.shown import grants
from noria.core.errors import SqlError

ROOT, APP, ROLE = AccountName("root"), AccountName("app"), AccountName("reader")


def actor(rights: Rights = UNLIMITED, name: AccountName = ROOT) -> Actor:
    return Actor(name, rights, str(name), 1000, lambda n: bytes(range(n)))


def after(*changes: st.Change, accounts: Accounts | None = None, by: Actor | None = None) -> Accounts:
    found = accounts or Accounts({ROOT: administrator(ROOT)})
    for change in changes:
        found, _ = apply(found, change, by or actor())
    return found


def created(*names: AccountName, roles: bool = False) -> st.CreateUsers:
    return st.CreateUsers(tuple(st.Named(n) for n in names), roles=roles)


def granted(level: Level, *privileges: str, to: AccountName = APP, columns: tuple[str, ...] = (), revoke: bool = False,
            option: bool = False) -> st.Grant:
    return st.Grant(tuple((p, columns) for p in privileges), level, (to,), option, revoke)


def number(change: st.Change, accounts: Accounts, by: Actor | None = None) -> int:
    with pytest.raises(SqlError) as e:
        apply(accounts, change, by or actor())
    return e.value.code


def test_random_grants_beside_a_reference() -> None:
    """Each cell of privilege, database, table and column is allowed exactly if some grant that was not revoked covers
    it."""
    draw = random.Random(7)
    databases, tables, columns = ("shop", "show", "other"), ("a", "b"), ("x", "y")
    for _ in range(40):
        accounts = after(created(APP))
        held: dict[Level, set[tuple[str, str]]] = {}  # by level: privilege and column ("" for all)
        for _ in range(12):
            level = draw.choice([Level(), Level(draw.choice((*databases, "sho_", "%"))),
                                 Level(draw.choice(databases), draw.choice(tables))])
            of = draw.choice(columns) if level.table and draw.random() < 0.4 else ""
            privilege = draw.choice(("SELECT", "INSERT", "UPDATE") if of else ("SELECT", "INSERT", "DELETE", "CREATE"))
            revoke = draw.random() < 0.3
            try:
                accounts = after(granted(level, privilege, columns=(of,) if of else (), revoke=revoke),
                                 accounts=accounts)
            except SqlError as e:
                assert revoke and e.code in (1141, 1147)
                continue
            at = held.setdefault(level, set())
            if not revoke:
                at.add((privilege, of))
            else:
                at -= {(privilege, of), *((privilege, c) for c in columns if not of)}
        rights = rights_of(accounts, APP, ())
        for database in databases:
            for table in tables:
                for privilege in ("SELECT", "INSERT", "DELETE", "CREATE"):
                    covering = {c for level, at in held.items() if covers(level, database, table)
                                for p, c in at if p == privilege}
                    assert (privilege in rights.on_table((database, table))) is ("" in covering)
                    assert "" in covering or rights.columns(privilege, (database, table)) == covering
        again = Accounts.of_json(json.loads(json.dumps(accounts.as_json())))
        assert again == accounts and grants(again, APP) == grants(accounts, APP)


def covers(level: Level, database: str, table: str) -> bool:
    pattern = level.database
    within = pattern in ("", "%", database) or (pattern == "sho_" and len(database) == 4 and database[:3] == "sho")
    return within and level.table in ("", table)


def test_names_are_folded() -> None:
    accounts = after(created(APP), granted(Level("Shop", "Items"), "SELECT", columns=("Id",)))
    rights = rights_of(accounts, APP, ())
    check([Need(("SELECT",), ("sHOP", "iTEMS"), frozenset(("iD",)))], rights, "x")
    assert rights.sees_table(("SHOP", "items")) and not rights.sees_column(("shop", "items"), "name")


def test_errors() -> None:
    accounts = after(created(APP), created(ROLE, roles=True))
    assert number(created(APP), accounts) == 1396
    assert number(st.DropUsers((AccountName("nobody"),)), accounts) == 1396
    assert number(st.RenameUsers(((AccountName("nobody"), APP),)), accounts) == 1396
    assert number(granted(Level(), "SELECT", to=AccountName("nobody")), accounts) == 1410
    assert number(granted(Level(), "SELECT", to=AccountName("nobody"), revoke=True), accounts) == 1141
    assert number(granted(Level("shop"), "SELECT", revoke=True), accounts) == 1141
    assert number(granted(Level("shop", "t"), "SELECT", revoke=True), accounts) == 1147
    assert number(granted(Level("shop"), "PROCESS"), accounts) == 1221
    assert number(granted(Level("shop", "t"), "PROCESS"), accounts) == 1144
    assert number(granted(Level("shop", "t"), "DELETE", columns=("x",)), accounts) == 1221
    assert number(granted(Level(), "CLONE_ADMIN"), accounts) == 1235
    assert number(st.GrantRoles((AccountName("nobody"),), (APP,)), accounts) == 3523
    assert number(st.GrantRoles((ROLE,), (APP,), revoke=True), accounts) == 3530
    assert number(st.SetDefaultRole("list", (ROLE,), (APP,)), accounts) == 3530


def test_several_accounts_change_or_none() -> None:
    accounts = after(created(APP))
    assert number(created(AccountName("new"), APP), accounts) == 1396
    made, notes = apply(accounts, st.CreateUsers((st.Named(AccountName("new")), st.Named(APP)), True), actor())
    assert AccountName("new") in made and len(notes) == 1


def test_who_grants_has_what_he_grants() -> None:
    accounts = after(created(APP, AccountName("other")), granted(Level("shop"), "SELECT", option=True))
    by = actor(rights_of(accounts, APP, ()), APP)
    other = AccountName("other")
    after(granted(Level("shop", "t"), "SELECT", to=other), accounts=accounts, by=by)
    assert number(granted(Level("shop", "t"), "INSERT", to=other), accounts, by) == 1142
    assert number(granted(Level("shop"), "INSERT", to=other), accounts, by) == 1044
    assert number(granted(Level(), "SELECT", to=other), accounts, by) == 1045
    assert number(created(AccountName("x")), accounts, by) == 1227
    assert number(st.AlterUsers((st.Named(other, st.Credential(password="x")),)), accounts, by) == 1227
    after(st.AlterUsers((st.Named(APP, st.Credential(password="x")),)), accounts=accounts, by=by)


def test_roles_of_roles() -> None:
    inner, outer = AccountName("inner"), AccountName("outer")
    accounts = after(created(inner, outer, roles=True), created(APP), granted(Level("shop"), "SELECT", to=inner),
                     st.GrantRoles((inner,), (outer,)), st.GrantRoles((outer,), (APP,)))
    assert "SELECT" in rights_of(accounts, APP, (outer,)).on_database("shop")
    assert "SELECT" not in rights_of(accounts, APP, ()).on_database("shop")
    assert "SELECT" not in rights_of(accounts, APP, (inner,)).on_database("shop"), "only through the outer one"
    assert number(st.GrantRoles((outer,), (inner,)), accounts) == 1235, "a circle"
    gone = after(st.DropUsers((inner,), roles=True), accounts=accounts)
    assert inner not in gone.known[outer].roles


def test_an_expired_password() -> None:
    accounts = after(created(APP), st.AlterUsers((st.Named(APP),), options=st.Options(expire_days=2)))
    account = accounts.known[APP]
    assert account.expires_at(0) == account.expires_at(7) == 1000 + 2 * 86_400
    never = after(st.AlterUsers((st.Named(APP),), options=st.Options(expire_days=0)), accounts=accounts).known[APP]
    assert never.expires_at(1) == inf and replace(never, expired=True).expires_at(1) == 0
    assert replace(never, expire_days=None).expires_at(1) == 1000 + 86_400


def test_the_administrator_of_the_start_stays() -> None:
    pinned = Accounts({ROOT: administrator(ROOT, secret="*" + "0" * 40, pinned=True)})
    for change in (st.DropUsers((ROOT,)), granted(Level(), "SELECT", to=ROOT, revoke=True), st.RevokeAll((ROOT,)),
                   st.AlterUsers((st.Named(ROOT, st.Credential(password="x")),))):
        assert number(change, pinned) == 1235
    assert pinned.as_json()["accounts"] == [], "it is in no file"


def test_privileges_of_each_level() -> None:
    assert set(OF_LEVEL[COLUMN]) < set(OF_LEVEL[TABLE]) < set(OF_LEVEL[DATABASE]) < set(OF_LEVEL[SERVER])
    assert set(OF_LEVEL[SERVER]) > UNUSED and "GRANT OPTION" not in all_of(SERVER)
    assert UNLIMITED.everything and not Rights(()).everything


def test_a_file_of_a_later_release() -> None:
    with pytest.raises(UnknownFormat, match="format 2"):
        Accounts.of_json({"format": 2})


def test_no_repr_has_a_password() -> None:
    secret = st.Credential("", "hidden")
    accounts = after(st.CreateUsers((st.Named(APP, secret),)))
    assert "hidden" not in repr(secret) and accounts.known[APP].secret not in repr(accounts)


def test_create_user_is_no_way_to_all_privileges() -> None:
    """Without SYSTEM_USER, MySQL lets nobody change an account that has it."""
    boss, many = AccountName("boss"), AccountName("many")
    accounts = after(created(APP, boss, many), created(ROLE, roles=True), granted(Level(), "ALL", to=boss, option=True),
                     granted(Level(), "ALL", to=ROLE, option=True), granted(Level(), "SELECT", to=many),
                     granted(Level(), "CREATE USER", "ROLE_ADMIN", "SELECT"), granted(Level(), option=True),
                     st.GrantRoles((ROLE,), (many,)))
    by = actor(rights_of(accounts, APP, ()), APP)
    word = st.Credential(password="mine")
    for name in (ROOT, boss, many, ROLE):
        for change in (st.AlterUsers((st.Named(name, word),)), st.DropUsers((name,)), st.RevokeAll((name,)),
                       st.RenameUsers(((name, AccountName("other")),)), st.GrantRoles((name,), (APP,)),
                       granted(Level(), "SELECT", to=name, revoke=True)):
            assert number(change, accounts, by) == 1227, (name, change)
    assert number(st.GrantRoles((ROLE,), (many,), revoke=True), accounts, by) == 1227
    own = actor(rights_of(accounts, many, ()), many)
    after(st.AlterUsers((st.Named(many, word),)), accounts=accounts, by=own)
    after(st.DropUsers((boss,)), accounts=accounts)
