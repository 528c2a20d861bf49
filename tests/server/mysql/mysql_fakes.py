"""A backend over a dictionary, a server on a thread of its own, and a raw client that knows only packets."""

from __future__ import annotations

import hashlib
import socket
import struct
import threading
from collections.abc import Awaitable, Hashable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from noria.core.errors import SqlError, parse_error
from noria.core.types import BIGINT, TEXT, Field
from noria.server.listening import listening
from noria.server.logins import LoginGuard
from noria.server.mysql import Account, MysqlLimits, MysqlServer, account, listen
from noria.server.outcomes import (
    AUTOCOMMIT,
    EARLIEST,
    LATEST,
    NEVER,
    Answer,
    Client,
    Entry,
    Ok,
    Outcome,
    PreparedHandle,
    ResultSet,
    RowEncoding,
    Stopped,
    Warning_,
)
from noria.server.tls import Certificates
from server.server_thread import ServerThread

NUMBER = 7  # of every prepared statement
USERS = {"ada": account("lovelace"), "strong": account("très secret", strong=True), "open": account("")}


class FakeBackend:
    """`answers`: text -> outcome, error, or a function of the parameter values (which may be async)."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {}
        self.replies = FakeReplies()
        self.databases = {"", "app"}
        self.tables: dict[str, list[Field]] = {}
        self.sessions: list[FakeSession] = []

    def connect(self, client: Client) -> FakeSession:
        session = FakeSession(self, client)
        if client.database:
            session.use(client.database)
        self.sessions.append(session)
        return session


class FakeReplies:
    """By text, or by the parameters of any statement."""

    def __init__(self) -> None:
        self.kept: dict[bytes, bytes] = {}
        self.put_under: list[Hashable] = []

    def get(self, key: Any, unseen: Any, as_of: int = LATEST, views: Any = None) -> bytes | None:
        asked = key[0] if isinstance(key[0], bytes) else key[1]
        return None if as_of == EARLIEST else self.kept.get(asked)

    def put(self, key: Hashable, packets: bytes, entry: Entry, version: int, tick: int) -> None:
        self.put_under.append(key)


class FakeSession:
    def __init__(self, backend: FakeBackend, client: Client) -> None:
        self.backend, self.client = backend, client
        self.database, self.status, self.keepable, self.namespace = "", AUTOCOMMIT, True, ""
        self.scope = ""
        self.unseen: dict[int, int] = {}
        self.warnings: Sequence[Warning_] = ()
        self.log: list[object] = []
        self.open: list[str] = []
        self.closed = threading.Event()

    read_views = None

    @property
    def as_of(self) -> int:
        return LATEST if self.keepable else EARLIEST

    def sending(self) -> AbstractContextManager[Stopped]:
        return NEVER

    def kill(self, number: int) -> None:
        raise SqlError(1094, "HY000", f"Unknown thread id: {number}")

    def query(self, sql: str, multi: bool, form: RowEncoding | None) -> Answer | Awaitable[Answer]:
        self.log.append(sql)
        parts = [part.strip() for part in sql.split(";") if part.strip()]
        if len(parts) > 1 and multi:
            return [self._answer(part, ()) for part in parts]
        if len(parts) > 1:
            raise parse_error("a second statement")
        return self._answer(parts[0] if parts else "", ())

    def _answer(self, sql: str, values: Sequence[object]) -> Any:
        answers = self.backend.answers
        if sql in answers:
            answer = answers[sql]
            if isinstance(answer, SqlError):
                raise answer
            return answer(*values) if callable(answer) else answer
        words = sql.upper().split()
        if words[:1] == ["SET"] or words[:1] in (["COMMIT"], ["ROLLBACK"]):
            return Ok()
        if words[:1] == ["SELECT"] and "@@" in sql:
            name = words[1]
            return ResultSet([Field(name, TEXT)], [("1",)])
        if words[:1] == ["SELECT"] and "DATABASE()" in sql.upper():
            return ResultSet([Field("DATABASE()", TEXT)], [(self.database or None,)])
        if words[:2] in (["SHOW", "WARNINGS"], ["SHOW", "VARIABLES"]):
            return ResultSet([Field("Level", TEXT), Field("Code", BIGINT), Field("Message", TEXT)], [])
        raise parse_error(f"near '{sql[:80]}'")

    def prepare(self, sql: str) -> PreparedHandle:
        answer = self.backend.answers.get(sql)
        if answer is None and not sql.upper().startswith("SET"):
            raise parse_error(f"near '{sql[:80]}'")
        self.open.append(sql)
        fields = answer.fields if isinstance(answer, ResultSet) else ()
        return PreparedHandle(sql, sql.count("?"), fields, NUMBER)

    def execute(self, handle: str, values: Sequence[object], form: RowEncoding | None
                ) -> Outcome | Awaitable[Outcome]:
        self.log.append((handle, list(values)))
        answer: Outcome | Awaitable[Outcome] = self._answer(handle, values)
        return answer

    def close_statement(self, handle: str) -> None:
        self.open.remove(handle)

    def use(self, database: str) -> None:
        if database not in self.backend.databases:
            raise SqlError(1049, "42000", f"Unknown database '{database}'")
        self.database = database

    def list_fields(self, table: str, pattern: str) -> Sequence[Field]:
        if table not in self.backend.tables:
            raise SqlError(1146, "42S02", f"Table '{table}' doesn't exist")
        return self.backend.tables[table]

    def reset(self) -> None:
        self.log.append("reset")

    def close(self) -> None:
        self.closed.set()


class Serving(ServerThread):
    """A server on its own thread: `with Serving(backend) as serving: connect(port=serving.port)`."""

    def __init__(self, backend: FakeBackend, users: dict[str, Account] | None = None,
                 bounds: MysqlLimits | None = None, certificates: Certificates | None = None,
                 tls_required: bool = False, guard: LoginGuard | None = None) -> None:
        super().__init__()
        self.guard = guard
        self.backend, self.users, self.bounds = backend, users or USERS, bounds
        self.certificates, self.tls_required = certificates, tls_required
        self.server: MysqlServer

    async def start(self) -> int:
        self.server = await listen(listening("127.0.0.1", 0, ""), self.backend, self.users, self.bounds,
                                   self.certificates, self.tls_required, guard=self.guard)
        return self.server.address[1]

    async def stop(self) -> None:
        self.server.close()
        self.server.abort()
        await self.server.wait_closed()


# --- A client of packets -------------------------------------------------------------------------------------

BASE = 1 << 1 | 1 << 2 | 1 << 3 | 1 << 9 | 1 << 15 | 1 << 16 | 1 << 17 | 1 << 19 | 1 << 21
DEPRECATE_EOF = 1 << 24


def native_token(password: str, nonce: bytes) -> bytes:
    if not password:
        return b""
    once = hashlib.sha1(password.encode()).digest()
    cover = hashlib.sha1(nonce + hashlib.sha1(once).digest()).digest()
    return bytes(a ^ b for a, b in zip(once, cover, strict=True))


def sha2_token(password: str, nonce: bytes) -> bytes:
    if not password:
        return b""
    once = hashlib.sha256(password.encode()).digest()
    cover = hashlib.sha256(hashlib.sha256(once).digest() + nonce).digest()
    return bytes(a ^ b for a, b in zip(once, cover, strict=True))


def packet(payload: bytes, seq: int = 0) -> bytes:
    return struct.pack("<I", len(payload) | seq << 24) + payload


class RawClient:
    """Sends and receives packets as told, right or wrong."""

    def __init__(self, port: int) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=20)
        self.stream = self.sock.makefile("rb")
        self.nonce = b""

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stream.close()
        self.sock.close()

    def login(self, user: str = "ada", password: str = "lovelace", flags: int = BASE, database: str = ""
              ) -> RawClient:
        self.greeting()
        self.send(self.response(user, native_token(password, self.nonce), flags, database), 1)
        seq, reply = self.receive()
        assert (seq, reply[0]) == (2, 0), reply
        return self

    def greeting(self) -> bytes:
        seq, payload = self.receive()
        assert seq == 0 and payload[0] == 10, payload
        at = payload.index(b"\0", 1) + 5
        self.nonce = payload[at:at + 8] + payload[at + 8 + 1 + 18:][:12]
        return payload

    @staticmethod
    def response(user: str, token: bytes, flags: int = BASE, database: str = "",
                 plugin: str = "mysql_native_password") -> bytes:
        return b"".join((struct.pack("<IIB23x", flags, 1 << 24, 45), user.encode(), b"\0", bytes([len(token)]),
                         token, database.encode(), b"\0", plugin.encode(), b"\0"))

    def send(self, payload: bytes, seq: int = 0) -> None:
        self.sock.sendall(packet(payload, seq))

    def receive(self) -> tuple[int, bytes]:
        """The next packet; (-1, b"") when the server hung up."""
        try:
            header = self.stream.read(4)
        except ConnectionResetError:
            return -1, b""
        if len(header) < 4:
            return -1, b""
        return header[3], self.stream.read(int.from_bytes(header[:3], "little"))

    def command(self, payload: bytes) -> bytes:
        self.send(payload)
        seq, reply = self.receive()
        assert seq == 1, (seq, reply)
        return reply

    def ask_error(self, payload: bytes) -> tuple[int, str]:
        """The number and message of the error this command must give."""
        return read_error(self.command(payload))


def read_error(payload: bytes) -> tuple[int, str]:
    assert payload[0] == 0xFF, payload
    return struct.unpack_from("<H", payload, 1)[0], payload[9:].decode()


def serves_on(serving: Serving) -> None:
    """A new client is let in and gets an answer."""
    with RawClient(serving.port) as client:
        assert client.login().command(b"\x0e")[0] == 0
