"""Who gets in, at a real server: pages in a real browser, files to load, TLS, ports."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pymysql
import pytest

import noria
from e2e import browser
from e2e.serving import Served, execute, rows, until
from noria.client.transport import HttpTransport
from ports import free_port
from server import tls_files

pytestmark = pytest.mark.spark


class Early:
    """A client that connects as soon as the port is there, long before the server is ready."""

    def __init__(self) -> None:
        self.port = free_port()
        self.greeting = b""
        self.connected, self.stop = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        while not self.stop.is_set():
            try:
                with socket.create_connection(("127.0.0.1", self.port), 300) as line:
                    self.connected.set()
                    self.greeting = line.recv(200)
                return
            except OSError:
                self.stop.wait(0.05)


class Place:
    """A server with a certificate and a directory to load from, and what is around it."""

    def __init__(self, root: Path):
        self.root, self.loads, self.elsewhere = root, root / "loads", root / "elsewhere"
        for directory in (self.loads, self.elsewhere):
            directory.mkdir()
            (directory / "hits.csv").write_text("id\n1001\n1002\nnone\n")
        self.certificate, self.key = tls_files.make(root)
        self.early = Early()
        try:
            self.served = Served(root / "data", "--mysql-port", str(self.early.port), "--load-dir", str(self.loads),
                                 "--tls-cert", str(self.certificate), "--tls-key", str(self.key))
        finally:
            self.early.stop.set()
        self.early.thread.join(30)
        with self.served.connect() as connection:
            execute(connection, "CREATE TABLE hits (id INT PRIMARY KEY)")

    def hits(self) -> list[int]:
        with self.served.connect() as connection:
            return sorted(n for n, in rows(connection, "SELECT id FROM hits"))

    def post(self, path: str, body: Any, headers: dict[str, str] | None = None) -> tuple[int, str]:
        request = urllib.request.Request(self.served.url + path, json.dumps(body).encode(),
                                         {"Content-Type": "application/json", **(headers or {})})
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as e:
            return e.code, e.read().decode()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    found = Place(tmp_path_factory.mktemp("gate"))
    yield found
    found.served.close()


# ---------------------------------------------------------------- ports
def test_who_connects_before_the_server_is_ready_waits(place: Place) -> None:
    assert place.early.connected.is_set() and b"mysql_native_password" in place.early.greeting


@pytest.mark.parametrize("option", ["--mysql-port", "--http-port"])
def test_a_used_port_is_told_before_anything_is_started(tmp_path: Path, option: str) -> None:
    other = {"--mysql-port": "--http-port", "--http-port": "--mysql-port"}[option]
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = subprocess.run(
            [sys.executable, "-m", "noria", "serve", "--data-dir", str(tmp_path / "data"), option,
             str(taken.getsockname()[1]), other, "0"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1 and option in done.stderr and "Address already in use" in done.stderr
    assert done.stdout == "" and "Traceback" not in done.stderr
    assert not (tmp_path / "data").exists(), "nothing is left behind"


# ---------------------------------------------------------------- pages
@pytest.mark.skipif(browser.CHROMIUM is None, reason="Debian's chromium is not installed")
@pytest.mark.parametrize("kind", ["cross", "rebound"])
def test_a_web_page_cannot_use_a_local_server(place: Place, tmp_path: Path, kind: str) -> None:
    port = int(place.served.url.rpartition(":")[2])
    with browser.Site() as site, browser.Site() as undefended:
        told = {name: rest for name, *rest in browser.attack(site, kind, undefended.port, tmp_path / "control")}
        arrived = [json.loads(body) for _, body in undefended.posted]
        assert len(arrived) == {"cross": 5, "rebound": 3}[kind], f"these are no attacks: {told}, {arrived}"
        before = place.hits()
        told = {name: rest for name, *rest in browser.attack(site, kind, port, tmp_path / "profile")}
    assert place.hits() == before, told
    assert told["reading"][1] in (0, 403), "nor may it read"
    if kind == "rebound":
        assert told["JSON"][1] == 403 and "--http-name" in told["JSON"][2]
    # The same bodies from a client that is no page of somebody else.
    for body in arrived:
        status, answer = place.post("/sql", {"sql": body["sql"]})
        assert status == 200, answer
    assert len(place.hits()) == len(before) + len(arrived)


# ---------------------------------------------------------------- files
def load(place: Place, **request: Any) -> tuple[int, str]:
    return place.post("/load", {"table": "hits", **request})


def test_only_what_is_below_the_directory_is_loaded_over_http(place: Place) -> None:
    secret = place.elsewhere / "precious"
    secret.write_text("precious")
    for request in ({"files": ["/etc/passwd"], "format": "csv"}, {"files": [str(place.elsewhere / "hits.csv")]},
                    {"files": [str(place.loads / "../elsewhere/hits.csv")]},
                    {"files": [str(place.loads / "hits.csv")], "reject": str(place.elsewhere / "new")},
                    {"files": [str(place.loads / "hits.csv")], "reject": str(secret)}):
        status, body = load(place, **request)
        assert status == 403 and json.loads(body)["error"]["code"] == 1290, body
    mine = place.loads / "mine"
    mine.write_text("precious")
    status, body = load(place, files=[str(place.loads / "hits.csv")], reject=str(mine))
    assert status == 400 and json.loads(body)["error"]["code"] == 1086
    assert secret.read_text() == mine.read_text() == "precious" and not (place.elsewhere / "new").exists()
    assert not {1001, 1002} & set(place.hits())

    status, body = load(place, files=[str(place.loads / "hits.csv")], reject=str(place.loads / "hits.rejected"))
    assert status == 200 and json.loads(body.splitlines()[-1])["rejected"] == 1
    assert "none" in (place.loads / "hits.rejected").read_text()
    with place.served.connect() as connection:
        assert execute(connection, "DELETE FROM hits WHERE id > 1000") == 2


def test_the_command_line_loads_its_own_files(place: Place) -> None:
    done = place.served.run("load", "hits", str(place.elsewhere / "hits.csv"))
    assert done.returncode == 3, done.stderr
    assert "2 rows into hits" in done.stdout and "none" in (place.elsewhere / "hits.rejected").read_text()
    with place.served.connect() as connection:
        assert execute(connection, "DELETE FROM hits WHERE id > 1000") == 2
    precious = place.elsewhere / "also precious"
    precious.write_text("precious")
    done = place.served.run("load", "hits", str(place.elsewhere / "hits.csv"), "--reject", str(precious))
    assert done.returncode == 1 and "already exists" in done.stderr and precious.read_text() == "precious"
    assert (place.root / "data" / "load.token").stat().st_mode & 0o777 == 0o600


# ---------------------------------------------------------------- TLS
def mysql_over_tls(place: Place, certificate: Path) -> list[tuple[Any, ...]]:
    with place.served.connect(ssl=tls_files.trusting(certificate)) as connection:
        return rows(connection, "SELECT 1")


def health_over_tls(place: Place, certificate: Path) -> Any:
    url = place.served.url.replace("http://127.0.0.1", "https://localhost") + "/health"
    with urllib.request.urlopen(url, timeout=60, context=tls_files.trusting(certificate)) as answer:
        return json.loads(answer.read())


def test_both_ports_speak_tls_and_take_a_new_certificate(place: Place, tmp_path: Path,
                                                         monkeypatch: pytest.MonkeyPatch) -> None:
    old = tmp_path / "old.crt"
    shutil.copy(place.certificate, old)
    assert mysql_over_tls(place, old) == [(1,)] and health_over_tls(place, old)["status"] == "ok"

    place.key.write_text("nonsense")
    place.served.process.send_signal(signal.SIGHUP)
    until("the bad key is told", lambda: "the certificate in use stays" in place.served.log())
    assert mysql_over_tls(place, old) == [(1,)] and health_over_tls(place, old)["status"] == "ok"

    for made, where in zip(tls_files.make(tmp_path, "two"), (place.certificate, place.key), strict=True):
        shutil.copy(made, where)
    place.served.process.send_signal(signal.SIGHUP)
    until("the new one is told", lambda: "new connections get the certificate" in place.served.log())
    assert mysql_over_tls(place, place.certificate) == [(1,)]
    assert health_over_tls(place, place.certificate)["status"] == "ok"
    with pytest.raises(pymysql.err.OperationalError, match="certificate verify failed"):
        mysql_over_tls(place, old)
    with pytest.raises(urllib.error.URLError) as caught:
        health_over_tls(place, old)
    assert isinstance(caught.value.reason, ssl.SSLCertVerificationError)

    monkeypatch.setenv("SSL_CERT_FILE", str(place.certificate))
    url = place.served.url.replace("http://127.0.0.1", "https://localhost")
    done = subprocess.run([sys.executable, "-m", "noria", "sql", "SELECT 1", "--url", url], capture_output=True,
                          text=True, timeout=60, check=False)
    assert done.returncode == 0 and "1 rows" in done.stdout, done.stderr
    with noria.connect(url) as db:
        assert db.sql("SELECT 1").rows == [(1,)]
    assert list(HttpTransport(url).lines("/verify", {"views": []}))


@pytest.mark.mariadb
@pytest.mark.skipif(shutil.which("mariadb") is None, reason="Debian's mariadb client is not installed")
def test_the_mariadb_client_over_tls(place: Place) -> None:
    done = subprocess.run(
        ["mariadb", "--no-defaults", "-h127.0.0.1", f"-P{place.served.mysql_port}", "-uroot", "--ssl",
         f"--ssl-ca={place.certificate}", "--ssl-verify-server-cert", "-N", "-e", "SELECT 1 + 1"],
        capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0 and done.stdout == "2\n", done.stderr


@pytest.mark.long
# ---------------------------------------------------------------- words about it
def test_settings_of_tls_that_do_not_belong_together(tmp_path: Path) -> None:
    for options, words in ((("--tls-require",), "needs a certificate"), (("--tls-cert", "x"), "belong together"),
                           (("--tls-cert", "x", "--tls-key", "y"), "cannot be read"),
                           (("--load-dir", "/nowhere"), "is no directory"),
                           (("--http-name", "a/b"), "is no host name")):
        done = subprocess.run([sys.executable, "-m", "noria", "serve", "--data-dir", str(tmp_path / "d"), *options],
                              capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 1 and words in done.stderr and "Traceback" not in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize("front_ends", [pytest.param(1, marks=pytest.mark.long), 2])
def test_both_ports_want_a_certificate_of_the_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                     front_ends: int) -> None:
    server, authority = tls_files.make(tmp_path, "server"), tls_files.make(tmp_path, "authority")
    client = tls_files.signed(tmp_path, authority)
    served = Served(tmp_path / "data", "--tls-cert", str(server[0]), "--tls-key", str(server[1]), "--tls-require",
                    "--tls-ca", str(authority[0]), "--front-ends", str(front_ends))
    try:
        url = served.url.replace("http://127.0.0.1", "https://localhost")
        with served.connect(ssl=tls_files.trusting(server[0], client)) as connection:
            assert rows(connection, "SELECT 1") == [(1,)]
        with pytest.raises((pymysql.err.OperationalError, OSError)):
            served.connect(ssl=tls_files.trusting(server[0]))
        with httpx.Client(verify=tls_files.trusting(server[0], client)) as asking:
            assert asking.get(f"{url}/health").json()["status"] == "ok"
        with httpx.Client(verify=tls_files.trusting(server[0])) as asking, pytest.raises(httpx.TransportError):
            asking.get(f"{url}/health")

        monkeypatch.setenv("SSL_CERT_FILE", str(server[0]))
        both = tmp_path / "client.pem"
        both.write_text(client[0].read_text() + client[1].read_text())
        for shown, status in (("", 1), (str(both), 0)):
            done = subprocess.run([sys.executable, "-m", "noria", "sql", "SELECT 1", "--url", url],
                                  capture_output=True, text=True, timeout=60, check=False,
                                  env={**os.environ, "NORIA_CLIENT_CERT": shown})
            assert done.returncode == status and "Traceback" not in done.stderr, done.stderr
    finally:
        served.close()

