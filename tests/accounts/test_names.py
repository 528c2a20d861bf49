"""Which account a client logs in to, and which hosts match."""

from __future__ import annotations

import pytest

from noria.accounts.logins import Login, Logins
from noria.accounts.names import AccountName, checked, hosts_of, like, matches
from noria.accounts.registry import Account, Accounts
from noria.core.errors import SqlError


@pytest.mark.parametrize(("pattern", "address", "same"), [
    ("%", "192.0.2.7", True), ("", "192.0.2.7", True), ("192.0.2.7", "192.0.2.7", True),
    ("192.0.2.8", "192.0.2.7", False), ("192.0.2.%", "192.0.2.77", True), ("192.0.2._", "192.0.2.77", False),
    ("192.0.2._", "192.0.2.7", True), ("192.0.2.0/24", "192.0.2.77", True), ("192.0.2.0/24", "192.0.3.1", False),
    ("192.0.2.0/255.255.255.0", "192.0.2.77", True), ("192.0.2.0/255.255.255.0", "192.0.3.77", False),
    ("192.0.2.7", "::ffff:192.0.2.7", True), ("localhost", "127.0.0.1", True), ("localhost", "::1", True),
    ("127.0.0.1", "127.0.0.1", True), ("localhost", "192.0.2.7", False), ("::1", "::1", True),
    ("2001:db8::/32", "2001:db8::1", True), ("2001:db8::/32", "192.0.2.7", False), ("localhost", "localhost", True),
])
def test_hosts(pattern: str, address: str, same: bool) -> None:
    assert matches(pattern, address) is same


def test_patterns_may_escape_their_wildcards() -> None:
    assert like(r"a\_b", "a_b") and not like(r"a\_b", "axb") and like("a_b", "axb") and like("%", "")
    assert not like("a.b", "axb")


def test_the_most_specific_host_decides_before_the_user() -> None:
    names = [AccountName("", "192.0.2.7"), AccountName("app", "%"), AccountName("app", "192.0.2.%"),
             AccountName("app", "192.0.0.0/16"), AccountName("", "%")]
    accounts = Accounts({n: Account(n) for n in names})
    logins = Logins(tuple(Login(n.user, n.host, "", "") for n in reversed(names)))
    for user, address, wanted in (("app", "192.0.2.7", names[0]), ("app", "192.0.2.8", names[3]),
                                  ("app", "203.0.113.1", names[1]), ("x", "203.0.113.1", names[4]),
                                  ("app", "192.0.9.9", names[3])):
        found, login = accounts.login(user, address), logins.find(user, address)
        assert found is not None and login is not None and found.name == login.name == wanted


def test_nobody_logs_in_as_a_role() -> None:
    role = AccountName("r")
    assert Accounts({role: Account(role, is_role=True)}).login("r", "127.0.0.1") is None


@pytest.mark.parametrize("name", [AccountName("u" * 33), AccountName("u", "h" * 256),
                                  AccountName("u", "db.example.org"),
                                  AccountName("u", "%.example.org"), AccountName("u", "300.0.0.0/8")])
def test_names_that_are_refused(name: AccountName) -> None:
    with pytest.raises(SqlError):
        checked(name)


def test_names_as_texts() -> None:
    name = AccountName("a@b`c", "%")
    assert (str(name), name.quoted, name.plain) == ("'a@b`c'@'%'", "`a@b``c`@`%`", "a@b`c@%")
    assert AccountName.of(name.plain) == name and hosts_of("HOST") == ("host",)
