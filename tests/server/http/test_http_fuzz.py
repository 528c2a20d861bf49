"""Requests as nobody should send them, to a real executor: always an answer, always JSON with a number, never a 500.

    NORIA_HTTP_CASES=1000000 NORIA_HTTP_SEED=7 pytest tests/server/http/test_http_fuzz.py      a long run, and one again

Keeps true: a failure prints the seed and the case, which then comes again by itself.
"""

from __future__ import annotations

import json
import os
import random
import re
import socket
import string
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from noria.core.columns_codec import to_stream
from noria.server.http import bodies
from noria.server.http.server import HttpLimits
from seeds import cases
from server.local_services import LocalServices

CASES = int(os.environ.get("NORIA_HTTP_CASES") or cases(3000))
SEED = int(os.environ.get("NORIA_HTTP_SEED", "20261121"))
PROGRAM = (
    "CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(20), price DECIMAL(8,2), w DOUBLE, d DATE, at DATETIME(3), "
    "b BLOB, f BOOLEAN, u BIGINT UNSIGNED)",
    "CREATE VIEW byid AS SELECT * FROM t WHERE id = ?", "CREATE VIEW byname AS SELECT id FROM t WHERE name = ?",
    "CREATE VIEW bydate AS SELECT id FROM t WHERE d = ? AND price = ?",
    "CREATE VIEW total AS SELECT COUNT(*) AS n FROM t",
    "CREATE VIEW after AS SELECT id, w FROM t WHERE w > ? ORDER BY w LIMIT 3",
    "INSERT INTO t VALUES (1, 'a', 1.5, 0.1, '2024-02-29', '2024-02-29 01:02:03.004', 'x', 1, 7)",
)
PATHS = (
    "/health", "/metrics", "/graph", "/graph?format=dot", "/views", "/views/byid", "/tables/t", "/sql",
    "/tables/t/rows", "/views/byid/lookup", "/views/byname/lookup", "/views/bydate/lookup", "/views/after/lookup",
    "/views/total/lookup",
    "/attach", "/load", "/verify", "/evict", "/limit", "/", "/nowhere", "*", "/views/", "/tables/%00/rows",
    "/tables/t/rows?on_duplicate=replace", "/tables/t/rows?on_duplicate=%ff", "/views/%ed%a0%80", "/tables/%2e%2e/rows",
    "/graph?format=%00", "/graph?" + "a=b&" * 500)
TEXTS = (
    "SELECT 1", "SELECT * FROM t WHERE id = ?", "SELECT id FROM t WHERE name = ?", "SELECT id FROM t WHERE w > ?",
    "SELECT id FROM t WHERE d = ? AND price = ?", "SELECT id FROM t WHERE at < ?", "SELECT id FROM t WHERE name LIKE ?",
    "SELECT ?", "SELECT id + ? FROM t WHERE id = 1", "INSERT INTO t (id, name) VALUES (?, ?)", "", ";", ";;", "--", "?",
    "INSERT INTO t (id, price, w, d, at) VALUES (2, ?, ?, ?, ?)", "UPDATE t SET name = ? WHERE id = 1",
    "DELETE FROM t WHERE id = ?", "SELECT id FROM t WHERE id IN (?, ?)", "SELECT * FROM t ORDER BY id LIMIT ?",
    "SELECT * FROM t WHERE b = ?", "SELECT * FROM t WHERE u = ?", "SELECT 1; SELECT 2", "SHOW TABLES",
    "SHOW NORIA STATUS", "EXPLAIN SELECT 1", "SET @a = ?", "SELECT @@version", "SELECT * FROM nowhere",
    "SELECT (((((1", "USE x", "BEGIN")
VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2**31, 2**63 - 1, 2**63, 2**64, -2**63, -2**63 - 1, 10**40, 0.0, -0.0, 1.5, 1e308,
    5e-324, "", "a", "é🦆", "\0", "1", "1e400", "-", "nan", "2024-02-29", "2024-02-30", "0000-00-00", "9999-12-31",
    "10000-01-01", "25:61:61", "838:59:59.999999", "2024-02-29 24:00:00",
    "2024-02-29T01:02:03Z", "x" * 300, "%", "_" * 50,
    "'", "\\", "\ud800", [], [1], {}, {"a": 1}, [[[[]]]], "9" * 400, "0x41", "١٢٣")
HEADERS = (
    "Host", "Origin", "Content-Type", "Content-Length", "Transfer-Encoding", "Authorization", "Accept", "Connection",
    "Expect", "Upgrade", "Noria-Proof", "X-Forwarded-Proto", "Cookie", "Range", "TE", "Accept-Encoding")


class Line:
    """A connection that is made again when the server, by its right, has closed it."""

    def __init__(self, port: int):
        self.port = port
        self.line: socket.socket | None = None

    def ask(self, sent: bytes, half: bool) -> tuple[int, bytes]:
        """The answer's status and body; half: nothing follows what is sent."""
        if self.line is None:
            self.line = socket.create_connection(("127.0.0.1", self.port), 60)
        line = self.line
        try:
            line.sendall(sent)
            if half:
                line.shutdown(socket.SHUT_WR)
            status, body = self._answer(line)
            return status, b"" if sent.startswith(b"HEAD ") else body  # what follows the head of HEAD is another answer
        finally:
            if half:
                self.close()

    def _answer(self, line: socket.socket) -> tuple[int, bytes]:
        body, head = b"", b"HTTP/1.1 100 Continue"
        while head.startswith(b"HTTP/1.1 100"):
            while b"\r\n\r\n" not in body:
                body += self._more(line, body)
            head, _, body = body.partition(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
        while length is None and not body.endswith(b"0\r\n\r\n"):
            body += self._more(line, body)
        while length is not None and len(body) < int(length[1]):
            body += self._more(line, body)
        if b"connection: close" in head.lower():
            self.close()
        return int(head.split()[1]), body if length is None else body[:int(length[1])]

    def _more(self, line: socket.socket, so_far: bytes) -> bytes:
        got = line.recv(2**18)
        assert got, f"hung up on amid an answer: {so_far[:200]!r}"
        return got

    def close(self) -> None:
        if self.line is not None:
            self.line.close()
            self.line = None


# ---------------------------------------------------------------- cases
def noise(r: random.Random, most: int) -> bytes:
    return r.randbytes(r.randint(0, most))


def value(r: random.Random) -> Any:
    if r.random() < 0.8:
        return r.choice(VALUES)
    text = "".join(r.choices(string.printable, k=r.randint(0, 30)))
    return r.choice((r.uniform(-1e9, 1e9), r.randint(-2**80, 2**80), text))


def statement(r: random.Random) -> bytes:
    text = r.choice(TEXTS)
    if r.random() < 0.2:
        at = r.randint(0, len(text))
        text = text[:at] + str(value(r)) + text[at + r.randint(0, 3):]
    asked = text.count("?")
    values = [value(r) for _ in range(asked if r.random() < 0.9 else r.randint(min(asked, 1), 5))]
    body: dict[str, Any] = {"sql": text}
    if values or r.random() < 0.2:
        body["parameters"] = values
    if r.random() < 0.05:
        body[str(value(r))] = value(r)
    return json.dumps(body).encode()


def arrow(r: random.Random) -> bytes:
    types = (pa.int64(), pa.int8(), pa.uint64(), pa.float64(), pa.float16(), pa.string(), pa.large_binary(), pa.bool_(),
             pa.date32(), pa.date64(), pa.timestamp("ns"), pa.timestamp("s", "Europe/Berlin"), pa.time64("us"),
             pa.duration("ms"), pa.decimal128(38, 10), pa.list_(pa.int64()), pa.struct([("a", pa.int8())]), pa.null(),
             pa.dictionary(pa.int8(), pa.string()), pa.month_day_nano_interval())
    names = ("id", "name", "price", "w", "d", "at", "b", "f", "u", "nope", "ID", "")
    rows, columns = r.choice((0, 1, 1, 2, 5)), r.randint(0, 4)
    arrays = []
    for _ in range(columns):
        kind = r.choice(types)
        try:
            arrays.append(pa.array([r.choice((None, 1, 0, 100))] * rows, pa.int64()).cast(kind))
        except (pa.ArrowException, NotImplementedError):
            arrays.append(pa.nulls(rows, kind))
    raw = to_stream(pa.Table.from_arrays(arrays, [r.choice(names) for _ in arrays])).to_pybytes()
    return mutated(r, raw) if r.random() < 0.4 else raw


def mutated(r: random.Random, raw: bytes) -> bytes:
    data = bytearray(raw)
    for _ in range(r.randint(1, 4)):
        if data and r.random() < 0.7:
            data[r.randrange(len(data))] = r.randrange(256)
        elif data:
            at = r.randrange(len(data))
            data[at:at + r.randint(0, 9)] = noise(r, 9)
    return bytes(data)


def nested(r: random.Random) -> bytes:
    depth = r.choice((10, 900, 1000, 5000))
    return b'{"sql": "SELECT ?", "parameters": ' + b"[" * depth + b"]" * depth + b"}"


def job(r: random.Random) -> bytes:
    keys = ("table", "files", "format", "header", "delimiter", "null", "reject", "max_rejects", "views", "bytes",
            "memory_limit", "x")
    chosen = r.sample(keys, r.randint(0, 4))
    return json.dumps({k: value(r) if r.random() < 0.7 else [value(r)] for k in chosen}).encode()


BODIES: tuple[Callable[[random.Random], bytes], ...] = (
    statement, statement, statement, arrow, arrow, job, nested, lambda r: noise(r, 200), lambda r: b"",
    lambda r: mutated(r, statement(r)))


def printable(r: random.Random) -> bytes:
    return bytes(b for b in noise(r, 30) if b not in b"\r\n\0")


def header(r: random.Random) -> bytes:
    name = r.choice(HEADERS).encode() if r.random() < 0.9 else printable(r)
    given = r.choice((b"localhost", b"evil.test", b"null", b"chunked", b"close", b"0", b"-1", b"9" * 30,
                      b"100-continue", b"Basic cm9vdDo=", "Basic é".encode(), b"Basic", b"application/json", b"h2c",
                      b"*/*", b"gzip", b"\x80\xff", bodies.ARROW.encode(), b"bytes=0-", b"a" * 3000, printable(r)))
    return name + b": " + given + b"\r\n"


def case(r: random.Random) -> tuple[bytes, bool]:
    """(what is sent, is it a well-formed request whose length is right)"""
    body, path = r.choice(BODIES)(r), r.choice(PATHS)
    is_arrow = path.partition("?")[0].endswith(("/rows", "/lookup"))
    if is_arrow and r.random() < 0.9:
        body = arrow(r)
    elif path == "/sql" and r.random() < 0.9:
        body = statement(r)
    method = r.choice(("GET", "POST", "POST", "POST", "PUT", "HEAD", "OPTIONS", "DELETE", "PATCH", "X"))
    if r.random() < 0.8:
        method = "POST" if is_arrow or path in ("/sql", "/load", "/verify", "/evict", "/limit") else "GET"
    kind = bodies.ARROW if is_arrow else bodies.JSON
    extra = b"".join(header(r) for _ in range(r.choice((0, 0, 0, 1, 3))))
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\n".encode()
    if r.random() < 0.2:
        pieces = b"".join(b"%x\r\n%b\r\n" % (len(p), p) for p in (body[:5], body[5:]) if p)
        sent = head + extra + b"Transfer-Encoding: chunked\r\n\r\n" + pieces + b"0\r\n\r\n"
    else:
        sent = head + extra + b"Content-Length: %d\r\n\r\n" % len(body) + body
    if r.random() < 0.1:
        return mutated(r, sent), False
    return sent, not extra and method != "HEAD"


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalServices]:
    with LocalServices(tmp_path_factory.mktemp("fuzz"), bounds=HttpLimits(linger_s=0.2)) as services:
        services.run(*PROGRAM)
        yield services


def test_whatever_is_sent_is_answered(local: LocalServices, caplog: pytest.LogCaptureFixture) -> None:
    line = Line(local.port)
    for number in range(CASES):
        sent, whole = case(random.Random(f"{SEED}/{number}"))
        where = f"NORIA_HTTP_SEED={SEED}, case {number}: {sent[:1500]!r}"
        try:
            status, body = line.ask(sent, half=not whole)
        except (AssertionError, OSError, TimeoutError) as e:
            # Who breaks off amid a request may be hung up on, as long as the server goes on.
            assert not whole, f"{where}: {e!r}"
            line.close()
            continue
        check(status, body, where, caplog)
    line.close()


def check(status: int, body: bytes, where: str, caplog: pytest.LogCaptureFixture) -> None:
    assert status < 500 or status == 503, f"{where}: {status} {body!r}\n{caplog.text[-6000:]}"
    if status >= 400 and body:
        error = json.loads(body)["error"]
        assert isinstance(error["code"], int) and error["message"] and len(error["sqlstate"]) == 5, f"{where}: {body!r}"
        assert not error["message"].startswith("internal error"), f"{where}: {body!r}\n{caplog.text[-6000:]}"


def test_the_server_lives_after_that(local: LocalServices, tmp_path: Path) -> None:
    line = Line(local.port)
    status, body = line.ask(b"GET /views/byid HTTP/1.1\r\nHost: localhost\r\n\r\n", False)
    assert status == 200 and json.loads(body)["key"] == ["id"]
    line.close()
