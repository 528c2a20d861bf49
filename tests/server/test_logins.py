"""Wrong passwords are slowed, counted and logged; addresses whose connections break off are blocked.  Fake clock."""

from __future__ import annotations

import base64
import logging
import threading

import pytest
from starlette.testclient import TestClient

from noria.core import limits
from noria.core.errors import SqlError
from noria.core.limits import LOGIN_AGAIN_S, LOGIN_BURST, LOGIN_LOG_LINES, LOGIN_LOG_S, LOGIN_WAIT_S
from noria.server.http.app import make_app
from noria.server.http.request_filter import RequestPolicy
from noria.server.logins import LoginGuard, TooManyLogins
from server.fake_services import FakeServices
from server.mysql.mysql_fakes import (
    FakeBackend,
    RawClient,
    Serving,
    native_token,
    packet,
    read_error,
    sha2_token,
)

HERE = "127.0.0.1"


class Clock:
    """Sleeping passes its time at once."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def guard(clock: Clock) -> LoginGuard:
    return LoginGuard(clock, clock.sleep)


def guess(guard: LoginGuard, user: str = "ada", address: str = "10.0.0.1", right: bool = False) -> float:
    attempt = guard.attempt(address, user)
    attempt.passed() if right else attempt.failed("MySQL", True)
    return attempt.wait_s


# ---------------------------------------------------------------- turns
def test_after_some_wrong_passwords_each_waits_for_its_turn(guard: LoginGuard, clock: Clock) -> None:
    assert [guess(guard) for _ in range(LOGIN_BURST)] == [0] * LOGIN_BURST
    assert [guess(guard) for _ in range(LOGIN_WAIT_S)] == [LOGIN_AGAIN_S * (i + 1) for i in range(LOGIN_WAIT_S)]
    with pytest.raises(TooManyLogins, match="try again in 4 s") as refused:
        guess(guard)
    assert refused.value.code == 1045
    clock.now += LOGIN_AGAIN_S
    assert guess(guard) == LOGIN_WAIT_S


def test_others_do_not_wait(guard: LoginGuard) -> None:
    for _ in range(LOGIN_BURST + LOGIN_WAIT_S):
        guess(guard)
    assert guess(guard, "bob") == guess(guard, address="10.0.0.2") == 0
    assert guess(guard, "bob", right=True) == 0


def test_right_passwords_cost_nothing(guard: LoginGuard, clock: Clock) -> None:
    assert [guess(guard, right=True) for _ in range(10 * LOGIN_BURST)] == [0] * 10 * LOGIN_BURST
    for _ in range(LOGIN_BURST):
        guess(guard)
    assert [guess(guard, right=True) for _ in range(3)] == [LOGIN_AGAIN_S] * 3  # each frees the turn that it had
    clock.now += LOGIN_AGAIN_S
    assert guess(guard, right=True) == 0


def test_a_day_of_guessing_without_a_pause_is_as_many_guesses_as_the_limit_says(guard: LoginGuard, clock: Clock
                                                                                 ) -> None:
    checked = 0
    for _ in range(100_000):  # ten each second
        clock.now += 0.1
        try:
            guess(guard)
            checked += 1
        except TooManyLogins:
            pass
    assert checked <= LOGIN_BURST + LOGIN_WAIT_S + 10_000 / LOGIN_AGAIN_S + 1


def test_the_tables_are_bounded(guard: LoginGuard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LOGIN_PAIRS", 100)
    monkeypatch.setattr(limits, "LOGIN_HOSTS", 100)
    for i in range(1000):
        guess(guard, f"user{i}" * 1000)
        guard.interrupted(f"10.0.{i // 250}.{i % 250}")
    assert len(guard._full_at) == len(guard._errors) == 100
    assert max(len(user) for _, user in guard._full_at) == limits.MAX_NAME_CHARS


# ---------------------------------------------------------------- the log
def test_lines_of_the_log(guard: LoginGuard, clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        for _ in range(LOGIN_BURST):
            guess(guard, "a\nb")
        assert caplog.messages == [r"login refused: user 'a\nb' from 10.0.0.1 (over MySQL, using password: YES)"]
        for i in range(1000):
            guess(guard, f"u{i}")
        assert len(caplog.messages) == LOGIN_LOG_LINES
        clock.now += LOGIN_LOG_S
        guess(guard, "later")
    left_out = LOGIN_BURST - 1 + 1000 - (LOGIN_LOG_LINES - 1)
    assert caplog.messages[-1].endswith(f"; {left_out} more were refused before and not logged")
    assert guard.numbers["login_failures_total"] == LOGIN_BURST + 1001


# ---------------------------------------------------------------- addresses
def test_an_address_is_blocked_after_broken_connections_in_a_row(guard: LoginGuard, caplog: pytest.LogCaptureFixture
                                                                 ) -> None:
    guard.set_most_errors(3)
    for _ in range(2):
        guard.interrupted("10.0.0.1")
    guard.connected("10.0.0.1")
    for _ in range(2):
        guard.interrupted("10.0.0.1")
        guard.check_host("10.0.0.1")
    with caplog.at_level(logging.WARNING):
        guard.interrupted("10.0.0.1")
    assert "10.0.0.1 is blocked" in caplog.text
    with pytest.raises(SqlError, match="blocked because of many connection errors") as blocked:
        guard.check_host("10.0.0.1")
    assert blocked.value.code == 1129
    guard.check_host("10.0.0.2")
    guard.flush_hosts()
    guard.check_host("10.0.0.1")


@pytest.mark.parametrize("address", [HERE, "::1", "::ffff:127.0.0.1", "localhost"])
def test_loopback_is_never_blocked(guard: LoginGuard, address: str) -> None:
    for _ in range(2 * limits.MAX_CONNECT_ERRORS):
        guard.interrupted(address)
    guard.check_host(address)


# ---------------------------------------------------------------- MySQL
@pytest.fixture
def serving(guard: LoginGuard):
    with Serving(FakeBackend(), guard=guard) as running:
        yield running


def log_in(serving: Serving, password: str, plugin: str = "mysql_native_password", user: str = "ada") -> int:
    """The error's number, 0 where the client is let in."""
    with RawClient(serving.port) as client:
        client.greeting()
        token = {"mysql_native_password": native_token, "caching_sha2_password": sha2_token}[plugin]
        client.send(client.response(user, token(password, client.nonce), plugin=plugin), 1)
        _, reply = client.receive()
        if reply == b"\x01\x03":
            _, reply = client.receive()
        if reply[0] == 0:
            client.command(b"\x0e")
            return 0
        assert client.receive() == (-1, b"")
        return read_error(reply)[0]


@pytest.mark.parametrize("plugin", ["mysql_native_password", "caching_sha2_password"])
def test_mysql_logins_wait(serving: Serving, clock: Clock, plugin: str) -> None:
    for _ in range(LOGIN_BURST + 2):
        assert log_in(serving, "byron", plugin) == 1045
    assert clock.slept == [LOGIN_AGAIN_S] * 2
    assert log_in(serving, "lovelace", plugin) == 0
    assert clock.slept == [LOGIN_AGAIN_S] * 3
    assert log_in(serving, "", user="open") == 0
    assert len(clock.slept) == 3


def test_a_change_of_the_user_waits_too(serving: Serving, clock: Clock) -> None:
    for _ in range(LOGIN_BURST):
        log_in(serving, "byron")
    with RawClient(serving.port) as client:
        client.login("open", "")
        token = native_token("lovelace", client.nonce)
        change = b"\x11ada\0" + bytes([len(token)]) + token + b"\0" + b"\x2d\0mysql_native_password\0"
        client.send(change)
        assert client.receive()[1][0] == 0
        assert clock.slept == [LOGIN_AGAIN_S]
        client.command(b"\x0e")


def test_wrong_passwords_do_not_block_an_address_and_broken_connections_do(serving: Serving, guard: LoginGuard,
                                                                           monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("noria.server.logins._is_loopback", lambda address: False)
    counted = threading.Semaphore(0)
    plain = guard.interrupted

    def interrupted(address: str) -> None:
        plain(address)
        counted.release()

    monkeypatch.setattr(guard, "interrupted", interrupted)
    guard.set_most_errors(3)
    for _ in range(5):
        assert log_in(serving, "byron") == 1045
    assert log_in(serving, "lovelace") == 0
    for junk in (b"", b"x", packet(b"GET / HTTP/1.1", 1)):  # says nothing, half a packet, what is no login
        with RawClient(serving.port) as client:
            client.greeting()
            client.sock.sendall(junk)
        assert counted.acquire(timeout=20)
    with RawClient(serving.port) as client:
        assert read_error(client.receive()[1])[0] == 1129
        assert client.receive() == (-1, b"")
    guard.flush_hosts()
    assert log_in(serving, "lovelace") == 0
    assert guard.numbers["blocked_connections_total"] == 1


# ---------------------------------------------------------------- HTTP
def test_http_logins_wait(guard: LoginGuard, clock: Clock) -> None:
    services = FakeServices(password="secret")
    services.guard = guard

    def status(port: int, password: str | None) -> int:
        login = base64.b64encode(f"root:{password}".encode()).decode()
        headers = {} if password is None else {"Authorization": f"Basic {login}"}
        if port not in clients:
            clients[port] = TestClient(app, "http://127.0.0.1", client=("10.0.0.1", port))
        return clients[port].get("/views", headers=headers).status_code

    clients: dict[int, TestClient] = {}
    app = make_app(services, RequestPolicy())
    assert status(1, "secret") == 200
    assert [status(2, None) for _ in range(50)] == [401] * 50  # nothing was guessed
    assert [status(2, "wrong") for _ in range(LOGIN_BURST)] == [401] * LOGIN_BURST
    assert status(3, "secret") == 200 and clock.slept == [LOGIN_AGAIN_S]
    for _ in range(LOGIN_WAIT_S + 1):
        guard.charge(("10.0.0.1", "root"))
    again = clients[2].get("/views", headers={"Authorization": "Basic " + base64.b64encode(b"root:x").decode()})
    assert again.status_code == 429 and int(again.headers["retry-after"]) > 0
    assert status(4, "secret") == 429
    assert status(1, "secret") == status(3, "secret") == 200  # these connections have proved it
    assert status(1, "wrong") == 429 and status(1, "secret") == 429  # and this one no more
    assert guard.numbers["login_failures_total"] == LOGIN_BURST and len(clock.slept) == 1
