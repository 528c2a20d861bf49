"""Both ways to prove a password, right and wrong, over a real socket and packet by packet."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding

from noria.server.mysql import auth, codec
from server.mysql.mysql_fakes import RawClient, Serving, native_token, read_error, sha2_token

SHA2, NATIVE = "caching_sha2_password", "mysql_native_password"


def test_accounts_keep_no_password() -> None:
    for kept in (auth.account("secret"), auth.account("secret", strong=True)):
        assert "secret" not in repr(kept) and kept.admits(b"secret") and not kept.admits(b"Secret")
    assert auth.account("secret", strong=True) != auth.account("secret", strong=True)  # salted
    assert auth.account("").open and not auth.account("x").open


def test_a_nonce_has_no_byte_that_ends_it() -> None:
    assert all(len(n) == 20 and 0 not in n and max(n) < 128 for n in (auth.nonce() for _ in range(200)))


@pytest.mark.parametrize("plugin", [NATIVE, SHA2])
def test_fast_paths(serving: Serving, plugin: str) -> None:
    token = {NATIVE: native_token, SHA2: sha2_token}[plugin]
    with RawClient(serving.port) as client:
        client.greeting()
        client.send(client.response("ada", token("lovelace", client.nonce), plugin=plugin), 1)
        if plugin == SHA2:
            assert client.receive() == (2, b"\x01\x03")
        seq, reply = client.receive()
        assert (seq, reply[0]) == (2 + (plugin == SHA2), 0)


@pytest.mark.parametrize("plugin", [NATIVE, SHA2])
@pytest.mark.parametrize(("user", "password", "used"), [
    ("ada", "byron", "YES"), ("ada", "", "NO"), ("nobody", "lovelace", "YES"), ("nobody", "", "NO"),
    ("open", "anything", "YES"),
])
def test_refusals(serving: Serving, plugin: str, user: str, password: str, used: str) -> None:
    token = {NATIVE: native_token, SHA2: sha2_token}[plugin]
    with RawClient(serving.port) as client:
        client.greeting()
        client.send(client.response(user, token(password, client.nonce), plugin=plugin), 1)
        _, reply = client.receive()
        if plugin == SHA2 and not password:
            assert reply == codec.auth_switch(SHA2, client.nonce)
            client.send(b"", 3)
            _, reply = client.receive()
        code, message = read_error(reply)
        assert code == 1045
        assert message == f"Access denied for user '{user}'@'127.0.0.1' (using password: {used})"
        assert client.receive() == (-1, b"")


@pytest.mark.parametrize("token", [b"x", bytes(19), bytes(20), bytes(32), bytes(200)])
@pytest.mark.parametrize("plugin", [NATIVE, SHA2])
def test_tokens_of_any_size(serving: Serving, token: bytes, plugin: str) -> None:
    with RawClient(serving.port) as client:
        client.greeting()
        client.send(client.response("ada", token, plugin=plugin), 1)
        assert read_error(client.receive()[1])[0] == 1045


def test_an_unknown_plugin_is_switched(serving: Serving) -> None:
    with RawClient(serving.port) as client:
        client.greeting()
        client.send(client.response("ada", b"junk", plugin="dialog"), 1)
        assert client.receive() == (2, codec.auth_switch(NATIVE, client.nonce))
        client.send(native_token("lovelace", client.nonce), 3)
        assert client.receive()[1][0] == 0


def test_full_exchange_then_fast(serving: Serving) -> None:
    """A strong account: its digest is learnt by a full exchange, and serves the fast path from then on."""
    password = "très secret"
    with RawClient(serving.port) as client:
        client.greeting()
        client.send(client.response("strong", native_token(password, client.nonce)), 1)
        assert client.receive() == (2, codec.auth_switch(SHA2, client.nonce))
        client.send(sha2_token(password, client.nonce), 3)
        assert client.receive() == (4, b"\x01\x04")
        client.send(b"\x02", 5)
        seq, pem = client.receive()
        assert seq == 6 and pem[0] == 1
        client.send(encrypted(password, pem[1:], client.nonce), 7)
        seq, reply = client.receive()
        assert (seq, reply[0]) == (8, 0)
    with RawClient(serving.port) as client:
        client.greeting()
        client.send(client.response("strong", sha2_token(password, client.nonce), plugin=SHA2), 1)
        assert client.receive() == (2, b"\x01\x03")


@pytest.mark.parametrize("answer", ["wrong", "junk", "clear"])
def test_full_exchange_refusals(serving: Serving, answer: str) -> None:
    with RawClient(serving.port) as client:
        client.greeting()
        client.send(client.response("strong", sha2_token("guess", client.nonce), plugin=SHA2), 1)
        assert client.receive() == (2, b"\x01\x04")
        client.send(b"\x02", 3)
        _, pem = client.receive()
        client.send({"wrong": encrypted("guess", pem[1:], client.nonce), "junk": bytes(256),
                     "clear": "très secret\0".encode()}[answer], 5)
        assert read_error(client.receive()[1])[0] == 1045


def encrypted(password: str, pem: bytes, nonce: bytes) -> bytes:
    clear = password.encode() + b"\0"
    hidden = bytes(c ^ nonce[i % 20] for i, c in enumerate(clear))
    key = serialization.load_pem_public_key(pem)
    oaep = padding.OAEP(mgf=padding.MGF1(algorithm=hashes.SHA1()), algorithm=hashes.SHA1(), label=None)
    return key.encrypt(hidden, oaep)


def test_the_anonymous_account() -> None:
    directory = auth.Directory({"": auth.account(""), "ada": auth.account("x")}, auth.ServerKey())
    assert directory.find("anyone") == auth.account("") and directory.find("ada") == auth.account("x")
    assert auth.Directory({}, auth.ServerKey()).find("anyone") is None


def test_a_changed_password_forgets_what_was_learnt() -> None:
    old, new = auth.account("old", strong=True), auth.account("new", strong=True)
    directory = auth.Directory({"ada": old}, auth.ServerKey())
    directory.learn("ada", old, b"old")
    assert directory.fast_digest("ada", old) is not None and directory.fast_digest("ada", new) is None


def test_change_user(serving: Serving) -> None:
    with RawClient(serving.port) as client:
        client.login()
        first = serving.backend.sessions[-1]
        token = native_token("", client.nonce)
        reply = client.command(b"\x11open\0" + bytes([len(token)]) + token + b"app\0" + bytes(2)
                               + NATIVE.encode() + b"\0")
        assert reply[0] == 0 and first.closed.is_set()
        assert (serving.backend.sessions[-1].client.user, serving.backend.sessions[-1].database) == ("open", "app")
        token = native_token("wrong", client.nonce)
        payload = b"\x11ada\0" + bytes([len(token)]) + token + b"\0" + bytes(2) + NATIVE.encode() + b"\0"
        assert client.ask_error(payload)[0] == 1045
        assert client.receive() == (-1, b"")
