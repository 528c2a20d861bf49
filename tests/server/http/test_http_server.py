"""Sockets of HTTP: heads, bodies and answers that do not go on, bounds, what is no HTTP, TLS on the same port."""

from __future__ import annotations

import json
import re
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

import noria
from noria.core import limits
from noria.core.errors import SqlError
from noria.server.http.app import make_app
from noria.server.http.request_filter import RequestPolicy
from noria.server.http.server import HttpConnection, HttpLimits, HttpServer
from noria.server.listening import listening
from noria.server.outcomes import Outcome, ResultSet
from noria.server.tls import Certificates
from server import tls_files
from server.fake_services import FakeServices
from server.server_thread import ServerThread

FOREVER = HttpLimits(head_s=600, idle_s=600, linger_s=600, stall_s=600)


class Services(FakeServices):
    async def run_sql(self, sql: str, values: list[Any], found_rows: bool = False, database: str = "") -> list[Outcome]:
        if sql != "BIG":
            return await super().run_sql(sql, values, found_rows)
        from noria.core.types import TEXT, Field

        return [ResultSet([Field("t", TEXT)], [("x" * 2**25,)])]


class Running(ServerThread):
    """An HTTP server on a thread of its own."""

    def __init__(self, bounds: HttpLimits = FOREVER, certificates: Certificates | None = None,
                 policy: RequestPolicy | None = None, password: str | None = None):
        super().__init__()
        self.services = Services(password)
        self.http = HttpServer(make_app(self.services, policy), certificates, bounds)

    async def start(self) -> int:
        await self.http.start(listening("127.0.0.1", 0, ""))
        return self.http.address[1]

    async def stop(self) -> None:
        await self.http.stop()

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), 30)

    def doors(self, what: str = "") -> list[HttpConnection]:
        return [d for d in self.http.connections if what in d._waits_for]

    def look(self, what: Callable[[HttpConnection], Any]) -> None:
        """What a timer of every connection does."""

        async def at_all() -> None:
            for door in self.doors():
                what(door)

        self.call(at_all)


@pytest.fixture
def running() -> Iterator[Running]:
    with Running() as server:
        yield server


def answer(line: socket.socket) -> tuple[int, dict[str, Any]]:
    """The next answer's status and JSON."""
    head = b""
    while b"\r\n\r\n" not in head:
        got = line.recv(65536)
        assert got, f"no answer but {head!r}"
        head += got
    head, _, body = head.partition(b"\r\n\r\n")
    found = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
    assert found is not None, head
    while len(body) < int(found[1]):
        body += line.recv(65536)
    return int(head.split()[1]), json.loads(body)


def ended(line: socket.socket) -> bytes:
    """What came before the server hung up."""
    said = b""
    try:
        while got := line.recv(65536):
            said += got
    except ConnectionResetError:
        pass
    return said


def request(body: bytes, length: int | None = None, path: str = "/sql") -> bytes:
    return (f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body) if length is None else length}\r\n\r\n").encode() + body


GET = b"GET /views HTTP/1.1\r\nHost: localhost\r\n\r\n"
INSERT = request(b'{"sql": "INSERT"}')


@contextmanager
def until(what: Callable[[], bool]) -> Iterator[None]:
    """Goes on once it is so; it comes about on the server's thread."""
    yield
    paused = threading.Event()
    for _ in range(3000):
        if what():
            return
        paused.wait(0.01)
    raise AssertionError("it did not come about")


# ---------------------------------------------------------------- bodies
def test_a_body_of_gigabytes_is_refused_at_once(running: Running) -> None:
    with running.connect() as line:
        line.sendall(request(b"", 1_200_000_000))
        status, body = answer(line)
        assert status == 413 and body["error"]["code"] == 1153
    assert not running.services.statements


def test_who_sends_a_refused_body_can_still_read_the_refusal() -> None:
    with Running(HttpLimits(linger_s=0.2)) as server, server.connect() as line:
        line.sendall(request(b"", 1_200_000_000))
        try:
            for _ in range(4096):  # 256 MB, which nobody keeps
                line.sendall(b"x" * 65536)
        except (BrokenPipeError, ConnectionResetError):
            pass
        assert answer(line)[0] == 413


def test_a_body_in_chunks_is_counted(running: Running) -> None:
    with running.connect() as line:
        line.sendall(b"POST /sql HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                     b"Transfer-Encoding: chunked\r\n\r\n")
        chunk = b"100000\r\n" + b" " * 2**20 + b"\r\n"
        for _ in range(limits.HTTP_JSON_BYTES // 2**20 + 1):
            line.sendall(chunk)
        assert answer(line)[0] == 413


def test_without_the_password_nothing_of_the_body_is_asked_for() -> None:
    with Running(password="secret") as server, server.connect() as line:
        line.sendall(request(b"", 17).replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n"))
        status, body = answer(line)
        assert status == 401 and body["error"]["code"] == 1045


def test_a_refused_request_keeps_its_connection_once_its_body_is_there(running: Running) -> None:
    with running.connect() as line:
        line.sendall(b"POST /sql HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\n{")
        assert answer(line)[0] == 415
        line.sendall(b"123" + INSERT)
        assert answer(line)[0] == 200


def test_the_python_client_reads_why_a_body_is_refused(running: Running) -> None:
    with noria.connect(f"http://127.0.0.1:{running.port}") as db:
        with pytest.raises(SqlError, match="bigger than"):
            db.sql("SELECT ?", ["x" * (limits.HTTP_JSON_BYTES + 1)])
        assert db.sql("INSERT").affected == 2


# ---------------------------------------------------------------- heads
@pytest.mark.parametrize(("sent", "status"), [
    (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * limits.HTTP_HEAD_BYTES + b"\r\n", 431),
    (b"nonsense\r\n\r\n", 400), (b"GET /\xff HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
    (b"GET / HTTP/1.1\r\n\r\n", 400), (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
    (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
    (request(b"", -1), 400), (request(b"").replace(b"h: 0", b"h: " + b"9" * 5000), 400),
    (request(b"").replace(b"h: 0", b"h: 5\r\nContent-Length: 6"), 400),
])
def test_what_is_no_request_gets_json_too(running: Running, sent: bytes, status: int) -> None:
    with running.connect() as line:
        line.sendall(sent)
        found, body = answer(line)
        assert found == status and body["error"]["code"] == 1105
        assert ended(line) == b""


def test_upgrades_are_not_taken(running: Running) -> None:
    with running.connect() as line:
        line.sendall(GET.replace(b"\r\n\r\n", b"\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"))
        assert line.recv(12) == b"HTTP/1.1 200"


# ---------------------------------------------------------------- clients that do not go on
@pytest.mark.parametrize("begun", [b"", b"G", GET[:-1], GET[:20]])
def test_who_sends_no_head_is_hung_up_on(begun: bytes) -> None:
    with Running(HttpLimits(head_s=0.05)) as server, server.connect() as line:
        line.sendall(begun)
        assert ended(line) == b""


def test_a_byte_now_and_then_is_no_head() -> None:
    """The deadline is of the whole head: bytes do not put it off."""
    with Running() as server, server.connect() as line:
        with until(lambda: bool(server.doors("head"))):
            pass
        (door,) = server.doors("head")
        timer = door._timer
        for number, byte in enumerate(GET[:10], 1):
            with until(lambda n=number: door._received == n):
                line.sendall(bytes([byte]))
        assert door._timer is timer
        server.look(HttpConnection.late)
        assert ended(line) == b""


def test_a_further_head_has_a_deadline_of_its_own() -> None:
    with Running(HttpLimits(head_s=0.2)) as server, server.connect() as line:
        line.sendall(GET)
        assert answer_list(line) == 200
        line.sendall(GET[:10])
        assert ended(line) == b""


def answer_list(line: socket.socket) -> int:
    """The status of GET, whose answer is a short list."""
    said = b""
    while not said.endswith(b"]"):
        said += line.recv(65536)
    return int(said.split()[1])


def test_who_is_idle_is_hung_up_on_and_not_while_he_waits() -> None:
    with Running(HttpLimits(idle_s=0.05, head_s=0.05)) as server, server.connect() as line:
        line.sendall(GET)
        assert answer_list(line) == 200
        assert ended(line) == b""


def test_a_body_that_does_not_go_on(running: Running) -> None:
    with running.connect() as stuck, running.connect() as slow:
        with until(lambda: len(running.doors("body")) == 2):
            stuck.sendall(request(b"{", 4000))
            slow.sendall(request(b"{", 4000))
        counts = {d: d._received for d in running.doors("body")}
        slow.sendall(b" " * limits.STALL_BYTES)
        with until(lambda: any(d._received > n for d, n in counts.items())):
            pass
        running.look(lambda door: door.goes_on(counts[door]))
        assert ended(stuck) == b""
        slow.sendall(b" " * (3999 - limits.STALL_BYTES))
        assert answer(slow)[0] == 400


def test_a_bodys_timer_runs() -> None:
    with Running(HttpLimits(stall_s=0.05)) as server, server.connect() as line:
        line.sendall(request(b"{", 4000))
        assert ended(line) == b""


def test_who_does_not_read_his_answer(running: Running) -> None:
    with running.connect() as line:
        with until(lambda: any(d._stalled is not None for d in running.doors())):
            line.sendall(request(b'{"sql": "BIG"}'))
        with until(lambda: not running.doors()):
            running.look(HttpConnection.reads)
        assert len(ended(line)) < 2**25


# ---------------------------------------------------------------- bounds
def test_too_many_connections() -> None:
    with Running(HttpLimits(connections=2)) as server, server.connect() as one, server.connect() as two:
        for line in (one, two):
            line.sendall(GET)
            assert answer_list(line) == 200
        with server.connect() as three:
            status, body = answer(three)
            assert status == 503 and "too many connections" in body["error"]["message"]
            assert ended(three) == b""
        with until(lambda: len(server.doors()) < 2):
            two.close()
        with server.connect() as three:
            three.sendall(GET)
            assert answer_list(three) == 200


# ---------------------------------------------------------------- TLS
@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    return tls_files.make(tmp_path)


def secure(line: socket.socket, certificate: Path) -> ssl.SSLSocket:
    return tls_files.trusting(certificate).wrap_socket(line, server_hostname="localhost")


def test_one_port_speaks_both(files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(files[0]))
    with Running(certificates=Certificates(*files)) as server:
        for scheme in ("http", "https"):
            with noria.connect(f"{scheme}://localhost:{server.port}") as db:
                assert db.sql("INSERT", [scheme]).affected == 2
                assert db.sql("BIG").rows[0][0] == "x" * 2**25
        with server.connect() as line, secure(line, files[0]) as tls:
            tls.sendall(INSERT + INSERT[:30])
            assert answer(tls)[0] == 200
            tls.sendall(INSERT[30:])
            assert answer(tls)[0] == 200
            tls.sendall(request(b"", 1_200_000_000))
            assert answer(tls)[0] == 413


def test_plain_requests_are_refused_where_tls_is_required(files: tuple[Path, Path]) -> None:
    with Running(certificates=Certificates(*files), policy=RequestPolicy.of([], True), password="secret") as server:
        with server.connect() as line:
            line.sendall(INSERT)
            status, body = answer(line)
            assert status == 403 and body["error"]["code"] == 3159
        with server.connect() as line, secure(line, files[0]) as tls:
            tls.sendall(INSERT)
            assert answer(tls)[0] == 401
    assert not server.services.statements


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl(files: tuple[Path, Path]) -> None:
    with Running(certificates=Certificates(*files)) as server:
        command = ["curl", "-sS", "--cacert", str(files[0]), "--json", '{"sql": "INSERT"}']
        done = subprocess.run([*command, f"https://localhost:{server.port}/sql"], capture_output=True, text=True,
                              timeout=60, check=False)
        assert done.returncode == 0 and json.loads(done.stdout)["affected"] == 2, done.stderr
        untrusting = [a for a in command if a not in ("--cacert", str(files[0]))]
        done = subprocess.run([*untrusting, f"https://localhost:{server.port}/sql"], capture_output=True, text=True,
                              timeout=60, check=False)
        assert done.returncode == 60, "its certificate is checked"


@pytest.mark.parametrize("sent", [b"\x16", b"\x16\x03\x01", b"\x16" + GET, b"\x16\x03\x01\x00\x05hello"])
def test_handshakes_that_are_none(files: tuple[Path, Path], sent: bytes) -> None:
    with Running(HttpLimits(head_s=0.2), Certificates(*files)) as server, server.connect() as line:
        line.sendall(sent)
        assert ended(line)[:1] in (b"", b"\x15")


def test_a_new_certificate_is_for_new_connections(files: tuple[Path, Path], tmp_path: Path) -> None:
    certificates = Certificates(*files)
    with Running(certificates=certificates) as server, server.connect() as line:
        with secure(line, files[0]) as before:
            before.sendall(INSERT)
            assert answer(before)[0] == 200
            for made, place in zip(tls_files.make(tmp_path, "two"), files, strict=True):
                made.replace(place)
            certificates.reload()
            before.sendall(INSERT)
            assert answer(before)[0] == 200
        with server.connect() as line, secure(line, files[0]) as tls:
            subject = dict(pair[0] for pair in (tls.getpeercert() or {})["subject"])
            assert subject["commonName"] == "two"
        with server.connect() as line, pytest.raises(ssl.SSLCertVerificationError):
            ssl.create_default_context().wrap_socket(line, server_hostname="localhost")


def test_only_clients_with_a_certificate_of_the_authority_are_answered(
        files: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = tls_files.make(tmp_path, "authority")
    client, other = tls_files.signed(tmp_path, authority), tls_files.make(tmp_path, "other")
    with Running(certificates=Certificates(*files, authority[0]), policy=RequestPolicy.of([], True)) as server:
        url = f"https://localhost:{server.port}"
        for shows in (None, other):
            context = tls_files.trusting(files[0], shows)
            with httpx.Client(verify=context) as asking, pytest.raises(httpx.TransportError):
                asking.post(f"{url}/sql", json={"sql": "INSERT"})
        assert not server.services.statements
        with httpx.Client(verify=tls_files.trusting(files[0], client)) as asking:
            assert asking.post(f"{url}/sql", json={"sql": "INSERT"}).json()["affected"] == 2

        monkeypatch.setenv("SSL_CERT_FILE", str(files[0]))
        with noria.connect(url) as db, pytest.raises(ConnectionError):
            db.sql("INSERT")
        both = tmp_path / "client.pem"
        both.write_text(client[0].read_text() + client[1].read_text())
        monkeypatch.setenv("NORIA_CLIENT_CERT", str(both))
        with noria.connect(url) as db:
            assert db.sql("INSERT").affected == 2
        monkeypatch.setenv("NORIA_CLIENT_CERT", str(client[0]))
        with pytest.raises(ValueError, match=r"NORIA_CLIENT_CERT .* is no certificate with its key"):
            noria.connect(url)
