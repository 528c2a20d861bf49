"""TLS within the MySQL protocol: real clients, what may not be in the clear, bytes that come too early, reload."""

from __future__ import annotations

import shutil
import socket
import ssl
import struct
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import mysql.connector
import pymysql
import pytest

from noria.core.types import BIGINT, TEXT, Field
from noria.server.outcomes import ResultSet
from noria.server.settings import SettingsError
from noria.server.tls import Certificates
from server import tls_files
from server.mysql.mysql_fakes import BASE, FakeBackend, RawClient, Serving, native_token, packet, read_error

SSL = 1 << 11
ACCOUNTS = [("ada", "lovelace"), ("strong", "très secret"), ("open", "")]


class Files:
    def __init__(self, directory: Path):
        self.certificate, self.key = tls_files.make(directory)
        self.certificates = Certificates(self.certificate, self.key)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


@pytest.fixture(params=[False, True], ids=["offered", "required"])
def secured(request: pytest.FixtureRequest, backend: FakeBackend, files: Files) -> Iterator[Serving]:
    backend.answers["SELECT n"] = ResultSet([Field("n", BIGINT)], [(1,), (2,)])
    backend.answers["SELECT big"] = ResultSet([Field("t", TEXT)], [("b" * (17 * 2**20),)])
    with Serving(backend, certificates=files.certificates, tls_required=request.param) as serving:
        yield serving


# ---------------------------------------------------------------- real clients
@pytest.mark.parametrize(("user", "password"), ACCOUNTS)
def test_pymysql(secured: Serving, files: Files, user: str, password: str) -> None:
    for _ in range(2):  # the second login of a strong account is a fast one
        with closing(pymysql.connect(host="127.0.0.1", port=secured.port, user=user, password=password.encode(),
                                     ssl=tls_files.trusting(files.certificate),
                                     max_allowed_packet=64 * 2**20)) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT n")
            assert cursor.fetchall() == ((1,), (2,))
            cursor.execute("SELECT big" + " " * 17 * 2**20)
            assert len(cursor.fetchone()[0]) == 17 * 2**20
    with pytest.raises(pymysql.err.OperationalError) as caught:
        pymysql.connect(host="127.0.0.1", port=secured.port, user=user, password="wrong",
                        ssl=tls_files.trusting(files.certificate))
    assert caught.value.args[0] == 1045


@pytest.mark.parametrize(("user", "password", "plugin"), [
    *((*account, "caching_sha2_password") for account in ACCOUNTS), ("ada", "lovelace", "mysql_native_password")])
def test_connector(secured: Serving, files: Files, user: str, password: str, plugin: str) -> None:
    with closing(mysql.connector.connect(host="127.0.0.1", port=secured.port, user=user, password=password,
                                         use_pure=True, auth_plugin=plugin, ssl_ca=str(files.certificate),
                                         ssl_verify_cert=True)) as connection:
        cursor = connection.cursor()
        cursor.execute("SELECT n")
        assert cursor.fetchall() == [(1,), (2,)]
        cursor.close()


@pytest.mark.mariadb
@pytest.mark.skipif(shutil.which("mariadb") is None, reason="Debian's mariadb-client is not installed")
@pytest.mark.parametrize(("user", "password"), ACCOUNTS)
def test_mariadb(secured: Serving, files: Files, user: str, password: str) -> None:
    done = subprocess.run(
        ["mariadb", "--no-defaults", "-h127.0.0.1", f"-P{secured.port}", f"-u{user}",
         f"-p{password}" if password else "--skip-password", "--ssl", f"--ssl-ca={files.certificate}",
         "--ssl-verify-server-cert", "-N", "-e", "SELECT n"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "1\n2\n"


# ---------------------------------------------------------------- in the clear
def test_who_does_not_ask_for_tls_is_served_where_it_is_only_offered(backend: FakeBackend, files: Files) -> None:
    with Serving(backend, certificates=files.certificates) as serving, RawClient(serving.port) as client:
        assert client.login().command(b"\x0e")[0] == 0


def test_a_plain_login_is_refused_where_tls_is_required(backend: FakeBackend, files: Files) -> None:
    with Serving(backend, certificates=files.certificates, tls_required=True) as serving:
        with RawClient(serving.port) as client:
            client.greeting()
            client.send(client.response("ada", native_token("lovelace", client.nonce)), 1)
            code, message = read_error(client.receive()[1])
            assert code == 3159 and "insecure transport" in message
            assert client.receive() == (-1, b"")
        with pytest.raises(pymysql.err.OperationalError) as caught:
            pymysql.connect(host="127.0.0.1", port=serving.port, user="ada", password="lovelace", ssl_disabled=True)
        assert caught.value.args[0] == 3159
        assert not backend.sessions


def test_without_a_certificate_tls_is_not_offered(serving: Serving) -> None:
    with RawClient(serving.port) as client:
        payload = client.greeting()
        at = payload.index(b"\0", 1) + 4 + 9
        assert not int.from_bytes(payload[at + 1:at + 3], "little") & SSL
        client.send(struct.pack("<IIB23x", BASE | SSL, 1 << 24, 45), 1)
        assert read_error(client.receive()[1])[0] == 1835


# ---------------------------------------------------------------- the step between
REQUEST = struct.pack("<IIB23x", BASE | SSL, 1 << 24, 45)


def test_plain_commands_behind_the_request_for_tls_are_never_commands(secured: Serving) -> None:
    """STARTTLS injection: a login and a statement in the same segment as the request."""
    with RawClient(secured.port) as client:
        client.greeting()
        login = client.response("ada", native_token("lovelace", client.nonce))
        client.sock.sendall(packet(REQUEST, 1) + packet(login, 2) + packet(b"\x03SELECT n"))
        client.sock.shutdown(socket.SHUT_WR)
        try:
            said = client.stream.read()
        except ConnectionResetError:
            said = b""
        assert said[:1] in (b"", b"\x15"), "nothing, or TLS's alert"
    assert not secured.backend.sessions


def test_plain_commands_after_the_request_for_tls_are_never_commands(secured: Serving) -> None:
    with RawClient(secured.port) as client:
        client.greeting()
        client.send(REQUEST, 1)
        client.send(client.response("ada", native_token("lovelace", client.nonce)), 2)
        try:
            said = client.stream.read()
        except ConnectionResetError:
            said = b""
        assert said[:1] in (b"", b"\x15")
    assert not secured.backend.sessions


@pytest.mark.parametrize("pieces", [1, 7, 10**6])
def test_the_handshake_may_come_with_the_request_or_in_pieces(secured: Serving, files: Files, pieces: int) -> None:
    """The TLS hello in the segment of the request, as it comes when the server is slow to read."""
    context = tls_files.trusting(files.certificate)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    machine = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with RawClient(secured.port) as client:
        client.greeting()

        def send(data: bytes) -> None:
            for at in range(0, len(data), pieces):
                client.sock.sendall(data[at:at + pieces])

        def step(what: Any) -> Any:
            while True:
                try:
                    return what()
                except ssl.SSLWantReadError:
                    if outgoing.pending:
                        send(outgoing.read())
                    incoming.write(client.sock.recv(65536))

        with pytest.raises(ssl.SSLWantReadError):
            machine.do_handshake()
        send(packet(REQUEST, 1) + outgoing.read())
        step(machine.do_handshake)
        machine.write(packet(client.response("ada", native_token("lovelace", client.nonce), BASE | SSL), 2)
                      + packet(b"\x0e") + packet(b"\x03SELECT n"))
        send(outgoing.read())
        got = step(lambda: machine.read(65536))
        assert got[3] == 3 and got[4] == 0, "the login's OK, numbered behind the request for TLS"
        while got.count(b"\x01") < 5:
            got += step(lambda: machine.read(65536))
    assert secured.backend.sessions[-1].log == ["SELECT n"]


@pytest.mark.parametrize("payload", [REQUEST + b"\0", REQUEST + RawClient.response("ada", b"")[32:], REQUEST[:31],
                                     REQUEST[:4], b"\0\x08"])
def test_requests_for_tls_that_are_none(secured: Serving, payload: bytes) -> None:
    with RawClient(secured.port) as client:
        client.greeting()
        client.send(payload, 1)
        assert read_error(client.receive()[1])[0] in (1835, 3159)
        assert client.receive() == (-1, b"")
    assert not secured.backend.sessions


def test_who_stops_within_the_handshake_is_hung_up_on(secured: Serving) -> None:
    with RawClient(secured.port) as client:
        client.greeting()
        client.send(REQUEST, 1)
        client.sock.sendall(b"\x16\x03\x01")

        async def look() -> None:
            for connection in tuple(secured.server.connections):
                connection.look()

        secured.call(look)
        assert client.receive() == (-1, b"")


# ---------------------------------------------------------------- certificates
def seen_by(serving: Serving, certificate: Path) -> str:
    """Whether a client that trusts only this certificate is served."""
    try:
        with closing(pymysql.connect(host="127.0.0.1", port=serving.port, user="ada", password="lovelace",
                                     ssl=tls_files.trusting(certificate))) as connection:
            connection.ping(reconnect=False)
    except pymysql.err.OperationalError as e:
        return str(e)
    return "served"


def test_new_connections_get_the_new_certificate_and_a_bad_one_is_not_taken(
        secured: Serving, files: Files, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    old = files.certificate.with_name("old.crt")
    shutil.copy(files.certificate, old)
    with closing(pymysql.connect(host="127.0.0.1", port=secured.port, user="ada", password="lovelace",
                                 ssl=tls_files.trusting(old))) as before:
        certificate, key = tls_files.make(tmp_path, "two")
        certificate.replace(files.certificate)
        files.certificates.reload()  # the key is still the other's
        assert "the certificate in use stays" in caplog.text
        assert seen_by(secured, old) == "served"
        key.replace(files.key)
        files.certificates.reload()
        assert seen_by(secured, files.certificate) == "served"
        assert "certificate verify failed" in seen_by(secured, old).lower()
        files.certificate.unlink()
        files.certificates.reload()
        before.ping(reconnect=False)


def test_certificates_that_cannot_be(tmp_path: Path) -> None:
    certificate, key = tls_files.make(tmp_path)
    _, other = tls_files.make(tmp_path, "other")
    with pytest.raises(SettingsError, match=r"--tls-key .*none\.key cannot be read"):
        Certificates(certificate, tmp_path / "none.key")
    with pytest.raises(SettingsError, match="--tls-cert"):
        Certificates(certificate, other)
    key.chmod(0o644)
    with pytest.raises(SettingsError, match="chmod 600"):
        Certificates(certificate, key)


# ---------------------------------------------------------------- certificates of clients
@pytest.fixture
def authority(tmp_path: Path) -> tuple[Path, Path]:
    return tls_files.make(tmp_path, "authority")


def served_with(serving: Serving, files: Files, shows: tuple[Path, Path] | None) -> str:
    """Whether a client that shows this certificate is served."""
    try:
        with closing(pymysql.connect(host="127.0.0.1", port=serving.port, user="ada", password="lovelace",
                                     ssl=tls_files.trusting(files.certificate, shows))) as connection:
            connection.ping(reconnect=False)
    except (pymysql.err.OperationalError, OSError) as e:
        return f"refused: {e}"
    return "served"


def test_only_clients_with_a_certificate_of_the_authority_are_served(
        backend: FakeBackend, files: Files, authority: tuple[Path, Path], tmp_path: Path) -> None:
    checking = Certificates(files.certificate, files.key, authority[0])
    client, other = tls_files.signed(tmp_path, authority), tls_files.make(tmp_path, "other")
    foreign = tls_files.signed(tmp_path, other, "foreign")
    with Serving(backend, certificates=checking, tls_required=True) as serving:
        for shows in (None, other, foreign):
            assert served_with(serving, files, shows).startswith("refused"), shows
        assert not backend.sessions, "none of them reached the login"
        assert served_with(serving, files, client) == "served"
        with pytest.raises(pymysql.err.OperationalError) as caught:
            pymysql.connect(host="127.0.0.1", port=serving.port, user="ada", password="wrong",
                            ssl=tls_files.trusting(files.certificate, client))
        assert caught.value.args[0] == 1045, "the password is wanted, too"
        with pytest.raises(pymysql.err.OperationalError) as caught:
            pymysql.connect(host="127.0.0.1", port=serving.port, user="ada", password="lovelace", ssl_disabled=True)
        assert caught.value.args[0] == 3159


def test_authorities_are_read_again(backend: FakeBackend, files: Files, authority: tuple[Path, Path], tmp_path: Path,
                                    caplog: pytest.LogCaptureFixture) -> None:
    checking = Certificates(files.certificate, files.key, authority[0])
    client = tls_files.signed(tmp_path, authority)
    with Serving(backend, certificates=checking, tls_required=True) as serving:
        authority[0].write_text("nonsense")
        checking.reload()
        assert "the certificate in use stays: --tls-ca" in caplog.text
        assert served_with(serving, files, client) == "served"
        new = tls_files.make(tmp_path, "new")
        new[0].replace(authority[0])
        checking.reload()
        assert served_with(serving, files, client).startswith("refused")


def test_authorities_that_cannot_be(files: Files, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"--tls-ca .*none\.crt cannot be read"):
        Certificates(files.certificate, files.key, tmp_path / "none.crt")
    (tmp_path / "empty.crt").write_text("")
    with pytest.raises(SettingsError, match=r"--tls-ca .*empty\.crt has no certificates of authorities"):
        Certificates(files.certificate, files.key, tmp_path / "empty.crt")
