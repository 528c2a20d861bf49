"""The gate of HTTP: names, origins, types of bodies, their sizes, what is in them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from starlette.testclient import TestClient

from noria.core import limits
from noria.server.http import bodies
from noria.server.http.app import make_app
from noria.server.http.request_filter import RequestPolicy
from server.fake_services import FakeServices

POLICY = RequestPolicy.of(["db.example.org", "0.0.0.0", "10.1.2.3"])


def http(services: FakeServices | None = None, policy: RequestPolicy = POLICY, base: str = "http://127.0.0.1:8080"
         ) -> TestClient:
    return TestClient(make_app(services or FakeServices(), policy), base, raise_server_exceptions=False)


# ---------------------------------------------------------------- names and origins
@pytest.mark.parametrize("host", ["127.0.0.1:8080", "localhost", "LOCALHOST:1", "localhost.", "[::1]:8080", "127.9.9.9",
                                  "db.example.org", "DB.example.org:443", "10.1.2.3"])
def test_names_of_this_server(host: str) -> None:
    assert http().get("/views", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("host", ["evil.test", "evil.test:8080", "localhost.evil.test", "127.0.0.1.evil.test", "",
                                  "127.0.0.1@evil.test", "evil.test#127.0.0.1", "[::1", "a b", "localhost:x",
                                  "[evil]", "10.9.9.9", "localhost/..", "é"])
@pytest.mark.parametrize("path", ["/views", "/health", "/nowhere"])
def test_other_names_are_refused(host: str, path: str) -> None:
    answer = http().get(path, headers={"Host": host.encode()})
    assert answer.status_code == 403 and "--http-name" in answer.json()["error"]["message"]


@pytest.mark.parametrize(("host", "origin", "status"), [
    ("localhost:8080", "http://localhost:8080", 200), ("localhost:8080", "HTTP://LOCALHOST:8080", 200),
    ("db.example.org", "https://db.example.org", 200),
    ("localhost:8080", "http://localhost:3000", 403), ("localhost:8080", "http://localhost", 403),
    ("localhost:8080", "http://127.0.0.1:8080", 403), ("localhost:8080", "http://evil.test", 403),
    ("localhost:8080", "null", 403), ("localhost:8080", "", 403), ("localhost:8080", "file://", 403),
    ("localhost:8080", "chrome-extension://localhost:8080", 403),
])
def test_only_the_servers_own_pages_may_ask(host: str, origin: str, status: int) -> None:
    services = FakeServices()
    headers = {"Host": host, "Origin": origin}
    assert http(services).post("/sql", json={"sql": "INSERT"}, headers=headers).status_code == status
    assert http(services).get("/views", headers=headers).status_code == status
    assert len(services.statements) == (status == 200)


def test_a_preflight_is_answered_without_leave() -> None:
    answer = http().options("/sql", headers={"Origin": "http://evil.test", "Access-Control-Request-Method": "POST"})
    assert answer.status_code == 403 and not [h for h in answer.headers if h.startswith("access-control")]
    assert http().options("/sql").status_code == 405


def test_a_path_with_a_slash_too_many_is_no_redirect_to_another_host() -> None:
    answer = http().get("/views/", follow_redirects=False)
    assert answer.status_code == 404 and answer.json()["error"]["code"] == 1105


# ---------------------------------------------------------------- bodies
@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded", "multipart/form-data",
                                  "application/jsonp", bodies.ARROW, "text/plain; application/json"])
@pytest.mark.parametrize("path", ["/sql", "/load", "/verify", "/limit", "/evict"])
def test_a_body_needs_its_type(kind: str | None, path: str) -> None:
    services = FakeServices()
    headers = {} if kind is None else {"Content-Type": kind}
    answer = http(services).post(path, content=b'{"sql": "INSERT"}', headers=headers)
    assert answer.status_code == 415 and bodies.JSON in answer.json()["error"]["message"]
    assert not services.statements


def test_rows_need_the_type_of_arrow() -> None:
    for path in ("/tables/words/rows", "/views/byid/lookup"):
        answer = http().post(path, content=b"", headers={"Content-Type": bodies.JSON})
        assert answer.status_code == 415 and bodies.ARROW in answer.json()["error"]["message"]


def test_the_type_of_a_body_may_say_more() -> None:
    headers = {"Content-Type": "Application/JSON; charset=utf-8"}
    answer = http().post("/sql", content=b'{"sql": "INSERT"}', headers=headers)
    assert answer.status_code == 200


def test_the_password_is_asked_for_before_the_body_is_read() -> None:
    def never() -> Iterator[bytes]:
        raise AssertionError("the body was read")
        yield b""

    services = FakeServices(password="secret")
    answer = http(services).post("/sql", content=never(), headers={"Content-Type": bodies.JSON})
    assert answer.status_code == 401


def test_an_announced_body_is_refused_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    headers = {"Content-Type": bodies.JSON, "Content-Length": str(1_200_000_000)}
    answer = http().post("/sql", content=b"{", headers=headers)
    assert answer.status_code == 413 and answer.json()["error"]["code"] == 1153


def test_a_body_of_unknown_length_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(bodies.MOST, bodies.JSON, 100)

    def pieces() -> Iterator[bytes]:
        yield b'{"sql": "INSERT'
        for _ in range(10):
            yield b" " * 10
        yield b'"}'

    services = FakeServices()
    answer = http(services).post("/sql", content=pieces(), headers={"Content-Type": bodies.JSON})
    assert answer.status_code == 413 and not services.statements
    assert limits.HTTP_JSON_BYTES < limits.HTTP_ARROW_BYTES


def post(raw: str, services: FakeServices | None = None) -> tuple[int, dict[str, Any]]:
    answer = http(services).post("/sql", content=raw.encode(), headers={"Content-Type": bodies.JSON})
    return answer.status_code, answer.json()


@pytest.mark.parametrize("raw", [
    r'{"sql": "SELECT \ud800"}', r'{"sql": "SELECT ?", "parameters": ["a\udfffb"]}', r'{"\ud800": 1}',
    r'{"sql": "SELECT ?", "parameters": [{"a": ["\ud800"]}]}', r'["\udc00\ud800"]',
])
def test_half_a_character_is_the_clients_error(raw: str) -> None:
    services = FakeServices()
    status, body = post(raw, services)
    assert status == 400 and body["error"]["code"] == 1366 and r"\xED" in body["error"]["message"]
    assert not services.statements


def test_whole_characters_pass() -> None:
    services = FakeServices()
    assert post(r'{"sql": "SELECT \ud83e\udd86", "parameters": ["Grüße"]}', services)[0] == 200
    assert services.statements == [("SELECT 🦆", ["Grüße"])]


@pytest.mark.parametrize("raw", ["[" * 100_000, '{"a":' * 100_000, "[" * 990 + "]" * 990,
                                 '{"sql": "x", "parameters": ' + "[" * 5000 + "]" * 5000 + "}"])
def test_deep_bodies_are_the_clients_error(raw: str) -> None:
    status, body = post(raw)
    assert status == 400 and body["error"]["code"] in (1105, 1210)


@pytest.mark.parametrize(("values", "code"), [
    ("[[1]]", 1210), ('[{"a": 1}]', 1210), ("[1, [[]]]", 1210), ('{"a": 1}', 1105), ('"x"', 1105), ("1", 1105),
    ("[1e999]", 1367), ("[-1e999]", 1367), ("[NaN]", 1105), ("[Infinity]", 1105), ("[" + "9" * 5000 + "]", 1105),
])
def test_values_that_are_none(values: str, code: int) -> None:
    services = FakeServices()
    status, body = post('{"sql": "SELECT ?", "parameters": ' + values + "}", services)
    assert status == 400 and body["error"]["code"] == code, body
    assert not services.statements


def test_large_numbers_are_decimals() -> None:
    services = FakeServices()
    values = [2**63, 2**64, -2**70, True, None, 1.5]
    assert post(json.dumps({"sql": "SELECT ?", "parameters": values}), services)[0] == 200
    assert services.statements[0][1] == [2**63, Decimal(2**64), Decimal(-2**70), True, None, 1.5]


def test_what_a_request_does_not_know_is_refused() -> None:
    status, body = post('{"sql": "SELECT 1", "params": [1]}')
    assert status == 400 and "there is no 'params'" in body["error"]["message"]


def test_tls_is_required_where_it_is_told_so() -> None:
    policy = RequestPolicy.of([], tls_required=True)
    answer = http(policy=policy).get("/health", headers={"X-Forwarded-Proto": "https"})
    assert answer.status_code == 403 and answer.json()["error"]["code"] == 3159
    assert http(policy=policy, base="https://127.0.0.1").get("/health").status_code == 200
