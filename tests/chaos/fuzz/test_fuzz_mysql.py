"""What a client of the MySQL protocol may do wrong, before and after its login: every packet of it is answered with
whole, well-numbered packets or the connection is closed; nothing escapes, and other clients are served.

The real `Connection` over the real executor and worker, on one loop, without a socket: bytes are fed to it in pieces
as a socket would.

    FUZZ_MYSQL_CASES=300   FUZZ_SEED=… (printed; in CI always the same)
"""

from __future__ import annotations

import asyncio
import collections
import logging
import os
import random
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chaos.fuzz.embedded import Embedded, forget, quick_directory
from chaos.fuzz.spoil import mutated, pieces
from noria.core.limits import MAX_PACKET_BYTES
from noria.server.mysql import auth, codec
from noria.server.mysql.connection import Connection, MysqlLimits, MysqlServer
from seeds import seed
from server.mysql.mysql_fakes import BASE, DEPRECATE_EOF, RawClient, native_token, packet, sha2_token

pytestmark = pytest.mark.timeout(0)
CASES = int(os.environ.get("FUZZ_MYSQL_CASES", "300"))
SEED = seed("FUZZ_SEED")
ANSWER_S = 30.0  # nobody waits longer
CONTROL_EVERY = 50  # cases between two looks at whether a well-behaved client is served
USERS = {"ada": auth.account("lovelace"), "strong": auth.account("très secret", strong=True), "open": auth.account("")}
TEXTS = (
    "SELECT 1", "SELECT * FROM by_s WHERE s = 'text 3'", "SELECT id, n FROM t WHERE n = 2 AND d = 2.5",
    "SELECT * FROM totals",
    "INSERT INTO bag VALUES (3, 'v1', '{}')", "UPDATE bag SET v = 'v2' WHERE k = 3", "DELETE FROM bag WHERE k = 99",
    "SHOW TABLES", "SELECT @@version, DATABASE()", "SET NAMES utf8mb4", "SELECT id FROM t WHERE id >= 3 AND id < 9",
    "SELECT 1; SELECT 2", "SHOW PROCESSLIST", "EXPLAIN SELECT * FROM by_s WHERE s = 'x'", "SELEC", "",
    "USE noria", "BEGIN",
    "SELECT /*+ MAX_EXECUTION_TIME(1) */ * FROM joined WHERE id = 3", "SELECT x'ff', 'é', \"\\ud800\", _binary'a'",
)
PREPARED = ("SELECT * FROM by_s WHERE s = ?", "SELECT * FROM by_n_d WHERE n = ? AND d = ?",
            "SELECT * FROM by_day WHERE day = ?", "INSERT INTO bag VALUES (?, ?, ?)",
            "UPDATE t SET x = ? WHERE id = ?", "SELECT ? + 1", "SELECT 1",
            "DELETE FROM bag WHERE k = ? AND v = ?")


class Transport(asyncio.Transport):
    """Takes what a connection writes; `lost` as soon as the loop turns, as a socket does."""

    def __init__(self, loop: asyncio.AbstractEventLoop, protocol: Connection):
        super().__init__()
        self._loop, self._protocol, self.out, self.closing, self.paused = loop, protocol, bytearray(), False, False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 1) if name == "peername" else default

    def write(self, data: Any) -> None:
        self.out += data

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        if not self.closing:
            self.closing = True
            self._loop.call_soon(self._protocol.connection_lost, None)

    def abort(self) -> None:
        self.close()

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False


class Client:
    """Bytes in, packets out."""

    def __init__(self, server: MysqlServer):
        self._loop = asyncio.get_running_loop()
        self.connection = Connection(server)
        self.transport = Transport(self._loop, self.connection)
        self.connection.connection_made(self.transport)
        [(_, greeting)] = self.packets()
        at = greeting.index(b"\0", 1) + 5
        self.nonce = greeting[at:at + 8] + greeting[at + 8 + 1 + 18:][:12]

    def packets(self) -> list[tuple[int, bytes]]:
        """What was written since the last time, as whole packets."""
        data, self.transport.out = bytes(self.transport.out), bytearray()
        found, at = [], 0
        while at < len(data):
            size = int.from_bytes(data[at:at + 3], "little")
            assert at + 4 + size <= len(data), f"half a packet was written: {data[at:at + 40]!r}"
            found.append((data[at + 3], data[at + 4:at + 4 + size]))
            at += 4 + size
        return found

    async def send(self, data: bytes, chance: random.Random) -> list[tuple[int, bytes]]:
        """The packets that answer it: those that come until nothing is pending."""
        for piece in pieces(data, chance):
            if self.transport.closing:
                break
            self.connection.data_received(piece)
        return await self.answer()

    async def answer(self) -> list[tuple[int, bytes]]:
        end = self._loop.time() + ANSWER_S
        await asyncio.sleep(0)
        while self.connection._pending is not None and not self.transport.closing:
            assert self._loop.time() < end, "a command has no answer"
            await asyncio.wait([self.connection._pending], timeout=ANSWER_S)
            await asyncio.sleep(0)
        return self.packets()

    def gone(self) -> None:
        """As if the client had died."""
        if not self.transport.closing:
            self.transport.closing = True
            self.connection.connection_lost(None)


class Fuzz:
    def __init__(self, server: MysqlServer, seed: int):
        self.server, self.chance = server, random.Random(seed)
        self.answers = collections.Counter[str]()
        self.sent: list[bytes] = []

    # ------------------------------------------------------------ packets
    def login(self, client: Client) -> bytes:
        c = self.chance
        user, password = c.choice((("ada", "lovelace"), ("open", ""), ("strong", "très secret"), ("ada", "x"),
                                   ("eve", "")))
        plugin = c.choice(("mysql_native_password", "mysql_native_password", "caching_sha2_password", "x", ""))
        token = sha2_token(password, client.nonce) if "sha2" in plugin else native_token(password, client.nonce)
        flags = (BASE & ~(1 << 21 if c.random() < 0.5 else 0)) | (DEPRECATE_EOF if c.random() < 0.5 else 0)
        return RawClient.response(user, token, flags if c.random() < 0.8 else c.getrandbits(32), "", plugin)

    def good_login(self, client: Client) -> bytes:
        flags = BASE | (DEPRECATE_EOF if self.chance.random() < 0.5 else 0)
        return RawClient.response("ada", native_token("lovelace", client.nonce), flags)

    def command(self) -> bytes:
        """The payload of some command, whole."""
        c = self.chance
        what = c.randrange(12)
        if what < 4:
            return b"\x03" + c.choice(TEXTS).encode("utf-8", "surrogatepass")
        if what < 6:
            return b"\x16" + c.choice(PREPARED).encode()
        if what < 9:
            return self.execution()
        if what == 9:
            return struct.pack("<BIH", 0x18, c.randrange(1, 4), c.randrange(3)) + c.randbytes(c.randrange(9))
        if what == 10:
            return c.choice((b"\x0e", b"\x02noria", b"\x04t\0%", b"\x1f", b"\x1b\x00\x00", b"\x0a", b"\x09",
                             struct.pack("<BI", 0x19, 1), struct.pack("<BI", 0x1A, 1), struct.pack("<BI", 0x0C, 1),
                             b"\x11ada\0\x00\0\x2d\0mysql_native_password\0", b"\x1c\x01\0\0\0\x05\0\0\0"))
        return bytes([c.randrange(256)]) + c.randbytes(c.randrange(30))

    def execution(self) -> bytes:
        """COM_STMT_EXECUTE with parameters of any types."""
        c, count = self.chance, self.chance.choice((0, 1, 1, 2, 2, 3))
        head = struct.pack("<BIBI", 0x17, c.randrange(1, 4), c.choice((0, 0, 0, 1, 255)), 1)
        if not count:
            return head
        kinds = [c.choice((*range(1, 17), 245, 246, 252, 253, 254, c.randrange(256))) for _ in range(count)]
        bitmap = bytes(c.choice((0, 0, 0, c.randrange(256))) for _ in range((count + 7) // 8))
        types = b"".join(bytes((k, c.choice((0, 0, 0x80)))) for k in kinds)
        return head + bitmap + c.choice((b"\1", b"\1", b"\1", b"\0")) + types + b"".join(map(self.value, kinds))

    def value(self, kind: int) -> bytes:
        c = self.chance
        width = {1: 1, 2: 2, 13: 2, 3: 4, 9: 4, 4: 4, 8: 8, 5: 8}.get(kind)
        if width is not None:
            return c.choice((bytes(width), b"\xff" * width, c.randbytes(width)))
        if kind in (7, 10, 12, 11):
            size = c.choice((0, 4, 7, 8, 11, 12, c.randrange(20)))
            return bytes([size]) + c.choice((bytes(size), b"\xff" * size, c.randbytes(size)))
        text = c.choice((b"", b"text 3", b"1.5", b"1e999", b"\xff\xfe", "\ud800".encode("utf-8", "surrogatepass"),
                         b"2024-01-01", c.randbytes(12), b"9" * 400))
        return codec.lenenc(text)

    def bent(self, payload: bytes) -> bytes:
        """As packets, perhaps with something wrong in the payload, the number or the length."""
        c = self.chance
        if c.random() < 0.5:
            payload = mutated(payload, c)
        data = packet(payload, 0)
        what = c.random()
        if what < 0.05:
            return packet(payload, c.randrange(256))
        if what < 0.1:
            return mutated(data, c)
        if what < 0.12:
            return c.choice((0, 1, 4, 0xFFFF, 0xFFFFFF)).to_bytes(3, "little") + b"\0" + payload
        if what < 0.13:
            return data * c.randrange(2, 20)  # in one go
        if what < 0.131:
            return b"\xff\xff\xff\0" + b"\xff" * 0xFFFFFF + b"\xff\xff\xff\x01" + payload
        return data

    # ------------------------------------------------------------ cases
    async def case(self) -> None:
        client, c = Client(self.server), self.chance
        self.sent = []
        if c.random() < 0.3:
            await self._tell(client, mutated(packet(self.login(client), 1), c) if c.random() < 0.8 else
                             packet(self.login(client), 1))
            for _ in range(c.randrange(3)):
                proof, number = c.randbytes(c.choice((0, 1, 20, 256))), c.choice((3, 3, 5, c.randrange(256)))
                await self._tell(client, packet(proof, number))
        else:
            [(seq, reply)] = await client.send(packet(self.good_login(client), 1), c)
            assert (seq, reply[0]) == (2, 0), reply
        for _ in range(c.randrange(12)):
            if client.transport.closing:
                break
            await self._tell(client, self.bent(self.command()))
        client.gone()
        await asyncio.sleep(0)

    async def _tell(self, client: Client, data: bytes) -> None:
        self.sent.append(data[:600])
        before = client.connection._pending
        assert before is None
        for seq, payload in await client.send(data, self.chance):
            assert len(payload) <= MAX_PACKET_BYTES and 0 <= seq < 256
            if payload[:1] == b"\xff" and len(payload) > 8 and payload[3:4] == b"#":
                self.answers[str(struct.unpack_from("<H", payload, 1)[0])] += 1
            elif payload[:1] == b"\0":
                self.answers["ok"] += 1
        self.answers["closed" if client.transport.closing else "open"] += 1

    async def control(self) -> None:
        """Somebody else, who does nothing wrong."""
        client, whole = Client(self.server), random.Random(1)
        await client.send(packet(RawClient.response("ada", native_token("lovelace", client.nonce)), 1), whole)
        found = await client.send(packet(b"\x03SELECT id, s FROM by_s WHERE s = 'TEXT 3'"), whole)
        assert any(b"text 3" in payload for _, payload in found), found
        assert [seq for seq, _ in found] == list(range(1, len(found) + 1))
        client.gone()


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Embedded]:
    directory = quick_directory(tmp_path)
    database = Embedded(directory)
    yield database
    database.close()
    forget(directory)


def test_whatever_a_client_sends(database: Embedded, capfd: pytest.CaptureFixture[str],
                                 caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    escaped: list[str] = []
    database.loop.set_exception_handler(lambda loop, context: escaped.append(repr(context)))
    server = MysqlServer(database.sessions, USERS, MysqlLimits())
    server.key.prepare()
    fuzz, began, bugs = Fuzz(server, SEED), time.monotonic(), collections.Counter[str]()

    async def all_cases() -> None:
        for number in range(CASES):
            try:
                await fuzz.case()
                if number % CONTROL_EVERY == 0:
                    await fuzz.control()
                assert not escaped, escaped
            except Exception as e:
                raise AssertionError(f"FUZZ_SEED={SEED}, case {number}, sent {fuzz.sent}: {e!r}") from e
            for record in caplog.records:
                bugs[_bug(record)] += 1
            caplog.clear()

    database.run(all_cases())
    with capfd.disabled():
        print(f"\nmysql: FUZZ_SEED={SEED}, {CASES} connections in {time.monotonic() - began:.0f} s; answers "
              f"{dict(fuzz.answers.most_common(30))}; internal errors:")
        for what, count in bugs.most_common(30):
            print(f"  {count:6d} {what}")
    assert not server.connections
    assert not bugs, f"defects that clients were told of as error 1105, FUZZ_SEED={SEED}: {bugs}"


def _bug(record: logging.LogRecord) -> str:
    if not record.exc_info or record.exc_info[1] is None:
        lines = record.getMessage().strip().splitlines()
        return f"{record.name}: {lines[0][:60]} … {lines[-1][:120]}"
    error = record.exc_info[1]
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}" if trace is not None else ""
    return f"{type(error).__name__} {str(error)[:100]} @ {where}"
