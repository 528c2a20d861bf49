"""Stored forms of passwords, and the policies."""

from __future__ import annotations

import pytest

from noria.accounts import passwords, policy
from noria.core.errors import SqlError

SALT = passwords.salt_of(bytes(range(100, 120)))


@pytest.mark.parametrize("plugin", passwords.PLUGINS)
def test_a_stored_form_proves_its_password_only(plugin: str) -> None:
    for password in ("x", "très secret", "long" * 40):
        secret = passwords.stored(plugin, password, SALT)
        assert passwords.checked_secret(plugin, secret) == secret and password not in secret
        assert passwords.proves(secret, password.encode()) and not passwords.proves(secret, b"other")
    assert passwords.stored(plugin, "", SALT) == "" and passwords.proves("", b"") and not passwords.proves("", b"x")


def test_known_forms() -> None:
    assert passwords.stored(passwords.NATIVE, "mypass", SALT) == "*6C8989366EAF75BB670AD8EA7A7FC1176A95CEF4"
    assert passwords.sha256_crypt(b"Hello world!", b"saltstring", 5000) == (
        "5B8vYYiY.CVt1RlTTf8KbXBH3hsxY/GNooZaBBGWEc5")


@pytest.mark.parametrize(("length", "made"), [
    (1, "kh.E7jKfG5CBsX7FriuxgDa6SHLIRAdtNRXp4BwU562"),
    (15, "fn2YtbetZFlPdSP5k8.yDlnP7ErWbYEh9cgwFUsF6./"),
    (16, "c9k53WyFj2kFyjgbZ0mWRQN1/M3W9/5Km.U6Haev327"),
    (31, "cdQdxuBweHl1yWmKhNM5f4WJ9JBBNkAjt1b8ilSQv90"),
    (32, "CBQHI4jpr5bKTrpCsWS.fFc78USCKCd06QIpKMjOm3C"),
    (33, "LfuBSp7Bc7M.kcD9eG4OabvE6Y9sR3RXIV7GvZdCTG9"),
    (63, "vrGQc1NdvSp7jU5yIB5VxRi4mO4QGtl2DWqIySeKvO."),
    (64, "vgNeP3YFUHkqB7jZtWI7Hz4Xs2oQMzbUUX1rV8jih3D"),
    (65, ".OH3QWMf3jfL0AC6ZEhSKmVM79D1.K1A0N95sHgYTtA"),
    (200, "DFIU14nbQy0.4hso2r35TVsbipv5vyZ45jU.eO9F0UA"),
])
def test_sha_crypt_beside_openssl(length: int, made: str) -> None:
    """Made by `openssl passwd -5 -salt salt/of.it -stdin`."""
    password = ("pass word" * 30)[:length]
    assert passwords.sha256_crypt(password.encode(), b"salt/of.it", 5000) == made


@pytest.mark.parametrize(("plugin", "secret"), [(passwords.NATIVE, "*12"), (passwords.NATIVE, "x" * 41),
                                                (passwords.SHA2, "$A$005$short"), (passwords.SHA2, "*" + "0" * 40)])
def test_no_stored_forms(plugin: str, secret: str) -> None:
    with pytest.raises(SqlError) as e:
        passwords.checked_secret(plugin, secret)
    assert e.value.code == 1827


def test_unknown_plugins() -> None:
    with pytest.raises(SqlError, match="auth_socket"):
        passwords.checked_plugin("auth_socket")
    assert passwords.checked_plugin("MYSQL_NATIVE_PASSWORD") == passwords.NATIVE


def test_policies() -> None:
    policy.check("", (), {})
    low = {"validate_password.policy": "LOW"}
    policy.check("longenough", ("app",), low)
    for password, users in (("short", ("app",)), ("username", ("username",)), ("emanresu", ("username",))):
        with pytest.raises(SqlError) as e:
            policy.check(password, users, low)
        assert e.value.code == 1819
    policy.check("username", ("username",), {**low, "validate_password.check_user_name": 0})
    assert policy.checked("validate_password.policy", 1) == "MEDIUM"
    assert policy.checked("validate_password.length", -1) == 0
    for name, value in (("validate_password.policy", "STRONG"), ("validate_password.length", "x"),
                        ("validate_password.check_user_name", 7)):
        with pytest.raises(SqlError):
            policy.checked(name, value)
