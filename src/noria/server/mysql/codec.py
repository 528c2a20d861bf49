"""MySQL's packets: decodes clients' bytes into frozen messages, and encodes replies.  No I/O, no state.

Keeps true: for any bytes, decoding returns a message, raises `ProtocolError`, or raises error 1300 for a text that is
not UTF-8.  It never reads past the packet and never accepts a truncated field.  Texts are UTF-8, whatever character set
a client names at connect (as with MySQL's skip-character-set-client-handshake).

A packet is a three-byte length, a sequence number and a payload.  A payload of 2**24 - 1 bytes or more is sent in
several packets, the last one shorter than that.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntFlag

from noria.core import limits
from noria.core.errors import SqlError
from noria.core.errors.codes import (
    INVALID_CHARACTER_STRING,
    MALFORMED_PACKET,
    NET_PACKET_TOO_LARGE,
    NET_PACKETS_OUT_OF_ORDER,
    NOT_SUPPORTED_AUTH_MODE,
)
from noria.sql.text.comments import COMMENT, ENDED, NAME, STRING
from noria.sql.text.shape import literal_of

MAX_PAYLOAD = 0xFFFFFF
UTF8MB4 = 255  # utf8mb4_0900_ai_ci, the default collation
UTF8MB4_BIN = 46
BINARY = 63
MORE_RESULTS = 0x0008  # status: another outcome of the same text follows


class Capability(IntFlag):
    """The capabilities, announced at connect, that change packets or answers of this server."""

    LONG_PASSWORD = 1 << 0
    FOUND_ROWS = 1 << 1
    LONG_FLAG = 1 << 2
    CONNECT_WITH_DB = 1 << 3
    LOCAL_FILES = 1 << 7
    PROTOCOL_41 = 1 << 9
    INTERACTIVE = 1 << 10
    SSL = 1 << 11
    TRANSACTIONS = 1 << 13
    SECURE_CONNECTION = 1 << 15
    MULTI_STATEMENTS = 1 << 16
    MULTI_RESULTS = 1 << 17
    PS_MULTI_RESULTS = 1 << 18
    PLUGIN_AUTH = 1 << 19
    CONNECT_ATTRS = 1 << 20
    PLUGIN_AUTH_LENENC = 1 << 21
    EXPIRED_PASSWORDS = 1 << 22
    DEPRECATE_EOF = 1 << 24


SERVER_CAPABILITIES = Capability(sum(Capability))  # SSL only with a certificate
SSL_REQUEST_BYTES = 32  # exactly the client's capabilities, packet limit, character set and filler


class ProtocolError(SqlError):
    """The client broke the protocol.  It receives the error, and its connection is closed."""


def malformed(detail: str) -> ProtocolError:
    return ProtocolError(*MALFORMED_PACKET, f"Malformed communication packet: {detail}")


def out_of_order() -> ProtocolError:
    return ProtocolError(*NET_PACKETS_OUT_OF_ORDER, "Got packets out of order")


def too_large() -> SqlError:
    return SqlError(*NET_PACKET_TOO_LARGE, f"Got a packet bigger than 'max_allowed_packet' bytes "
                                           f"({limits.MAX_PACKET_BYTES}); send the data in smaller statements")


# --- Packets -------------------------------------------------------------------------------------------------


def frame(payload: bytes, seq: int) -> bytes:
    """Encode one payload as packets, numbered from `seq`.

    >>> frame(b"abc", 1)
    b'\\x03\\x00\\x00\\x01abc'
    """
    if len(payload) < MAX_PAYLOAD:
        return (len(payload) | (seq & 255) << 24).to_bytes(4, "little") + payload
    parts = []
    for start in range(0, len(payload) + 1, MAX_PAYLOAD):
        part = payload[start:start + MAX_PAYLOAD]
        parts += [(len(part) | (seq & 255) << 24).to_bytes(4, "little"), part]
        seq += 1
    return b"".join(parts)


def frame_all(payloads: Iterable[bytes], seq: int) -> bytes:
    out = []
    for payload in payloads:
        out.append(frame(payload, seq))
        seq += len(payload) // MAX_PAYLOAD + 1
    return b"".join(out)


def renumber(packets: bytes, seq: int) -> bytes:
    """Return the same packets, numbered from `seq`.  Kept replies are numbered from 1."""
    out, position = bytearray(packets), 0
    while position < len(out):
        out[position + 3] = seq & 255
        position += 4 + int.from_bytes(out[position:position + 3], "little")
        seq += 1
    return bytes(out)


def count_packets(packets: bytes) -> int:
    count = position = 0
    while position < len(packets):
        position += 4 + int.from_bytes(packets[position:position + 3], "little")
        count += 1
    return count


def count_rows(reply: bytes, deprecate_eof: bool) -> int:
    """The number of rows in a complete reply with rows.  A row may take several packets."""
    columns = PayloadReader(reply, 4).lenenc_int()
    count = position = 0
    while position < len(reply):
        length = int.from_bytes(reply[position:position + 3], "little")
        position += 4 + length
        count += length < MAX_PAYLOAD
    return count - columns - (2 if deprecate_eof else 3)


@dataclass(frozen=True, slots=True)
class Packet:
    """A complete payload, its first sequence number, and the sequence number that follows."""

    first: int
    following: int
    payload: bytes
    oversized: bool = False  # the payload was larger than the limit and is discarded


class Unframer:
    """Assembles payloads from a stream of bytes (`feed`, then `next`).

    Keeps true: it holds at most `limit` bytes of one payload, and the bytes that were fed after it.  A larger payload
    is discarded while it arrives, and reported once, in order.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._buffer = bytearray()
        self._parts: list[bytes] = []
        self._size = 0  # bytes of the payload announced by headers so far
        self._missing = -1  # bytes of the packet's body that are missing; -1: a header is next
        self._last = False
        self._first = self._seq = -1  # -1: between payloads

    @property
    def buffered(self) -> int:
        return len(self._buffer)

    @property
    def clean(self) -> bool:
        """True if no part of a payload is held."""
        return not self._buffer and self._first < 0

    def feed(self, data: bytes) -> None:
        self._buffer += data

    def take_all(self) -> bytes:
        """Remove and return the bytes that no payload has consumed."""
        taken = bytes(self._buffer)
        self._buffer.clear()
        return taken

    def next(self) -> Packet | None:
        """Return the next payload, or None if it is not complete.  Raises ProtocolError for wrong packet numbers."""
        while True:
            if self._missing < 0:
                if len(self._buffer) < 4:
                    return None
                self._open(int.from_bytes(self._buffer[:4], "little"))
            if not self._take():
                return None
            if self._last:
                packet = Packet(self._first, self._seq, b"".join(self._parts), self._size > self.limit)
                self._parts, self._size, self._first = [], 0, -1
                return packet

    def _open(self, header: int) -> None:
        length, seq = header & MAX_PAYLOAD, header >> 24
        if self._first < 0:
            self._first = seq
        elif seq != self._seq:
            raise out_of_order()
        del self._buffer[:4]
        self._seq = (seq + 1) & 255
        self._missing, self._last = length, length < MAX_PAYLOAD
        self._size += length
        if self._size > self.limit:
            self._parts.clear()

    def _take(self) -> bool:
        """Consume (or discard) the received part of the packet's body.  True if the body is complete."""
        if self._size > self.limit:
            gone = min(self._missing, len(self._buffer))
            del self._buffer[:gone]
            self._missing -= gone
        elif len(self._buffer) >= self._missing:
            with memoryview(self._buffer) as view, view[:self._missing] as body:
                self._parts.append(bytes(body))
            del self._buffer[:self._missing]
            self._missing = 0
        if self._missing:
            return False
        self._missing = -1
        return True


# --- Fields of payloads --------------------------------------------------------------------------------------


def lenenc_int(value: int) -> bytes:
    """Encode a length-encoded integer.

    >>> lenenc_int(250), lenenc_int(251)
    (b'\\xfa', b'\\xfc\\xfb\\x00')
    """
    if value < 251:
        return value.to_bytes(1, "little")
    if value < 1 << 16:
        return b"\xfc" + value.to_bytes(2, "little")
    if value < 1 << 24:
        return b"\xfd" + value.to_bytes(3, "little")
    return b"\xfe" + value.to_bytes(8, "little")


SHORT = tuple(bytes([n]) for n in range(251))  # lengths of one byte


def lenenc(data: bytes) -> bytes:
    """Encode a length-encoded string."""
    return (SHORT[len(data)] if len(data) < 251 else lenenc_int(len(data))) + data


class PayloadReader:
    """Reads the fields of one payload in order.  Raises ProtocolError if the payload ends too early."""

    def __init__(self, data: bytes, position: int = 0) -> None:
        self.data, self.position = data, position

    @property
    def left(self) -> int:
        return len(self.data) - self.position

    def take(self, size: int) -> bytes:
        start, self.position = self.position, self.position + size
        if self.position > len(self.data):
            raise malformed(f"{size} bytes wanted at {start}, the packet ends at {len(self.data)}")
        return self.data[start:self.position]

    def integer(self, size: int, signed: bool = False) -> int:
        return int.from_bytes(self.take(size), "little", signed=signed)

    def lenenc_int(self) -> int:
        first = self.take(1)[0]
        if first < 251:
            return first
        if first in (0xFB, 0xFF):
            raise malformed(f"no length begins with {first:#x}")
        return self.integer({0xFC: 2, 0xFD: 3, 0xFE: 8}[first])

    def lenenc(self) -> bytes:
        return self.take(self.lenenc_int())

    def until_nul(self) -> bytes:
        end = self.data.find(b"\0", self.position)
        if end < 0:
            raise malformed(f"the string at {self.position} has no end")
        start, self.position = self.position, end + 1
        return self.data[start:end]

    def rest(self) -> bytes:
        return self.take(max(self.left, 0))


def text(data: bytes) -> str:
    """Decode a client's text.  Raises SqlError 1300 if it is not UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise SqlError(*INVALID_CHARACTER_STRING,
                       f"Invalid utf8mb4 character string: '{data[error.start:][:6].hex().upper()}'"
                       "; send text as UTF-8 (SET NAMES utf8mb4)") from None


_QUOTED = re.compile(rf"(?:_binary\s*)?({ENDED})|{STRING}|{NAME}|{COMMENT}".encode(), re.DOTALL | re.IGNORECASE)


def statement(data: bytes) -> str:
    """Decode a statement.  A quoted string that is not UTF-8 becomes a hexadecimal literal, because dumps and drivers
    write bytes this way; text columns reject it.  Elsewhere such bytes are error 1300.

    >>> statement(b"INSERT INTO t VALUES ('a', 'b\\xff')")
    "INSERT INTO t VALUES ('a', X'62ff')"
    """
    return text(_QUOTED.sub(_as_hex, data) if has_bytes(data) else data)


def has_bytes(data: bytes) -> bool:
    """True for a statement that is not UTF-8.  `statement` takes about 1 µs for each of its quoted strings."""
    return not _is_utf8(data)


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _as_hex(part: re.Match[bytes]) -> bytes:
    if part[1] is None or _is_utf8(part[0]):
        return part[0]
    return b"X'%s'" % literal_of(part[1].decode("latin-1")).encode("latin-1").hex().encode()


# --- Connecting ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class HandshakeResponse:
    """The client's login.  plugin: "" if the client does not support plugins."""

    capabilities: Capability
    user: str
    token: bytes
    database: str = ""
    plugin: str = ""
    attributes: dict[str, str] = field(default_factory=dict)


def greeting(version: str, connection_id: int, nonce: bytes, plugin: str, status: int, tls: bool = False) -> bytes:
    """Return the payload of Handshake V10.  nonce: 20 bytes without a 0."""
    capabilities = SERVER_CAPABILITIES if tls else SERVER_CAPABILITIES & ~Capability.SSL
    low, high = capabilities & 0xFFFF, capabilities >> 16
    return b"".join((
        b"\x0a", version.encode(), b"\0", struct.pack("<I", connection_id & 0xFFFFFFFF), nonce[:8], b"\0",
        struct.pack("<HBHHB", low, UTF8MB4, status, high, len(nonce) + 1), bytes(10),
        nonce[8:], b"\0", plugin.encode(), b"\0"))


def requests_tls(payload: bytes) -> bool:
    """True if the client's first packet requests TLS."""
    return bool(Capability.SSL & PayloadReader(payload).integer(4))


def decode_handshake(payload: bytes) -> HandshakeResponse:
    reader = PayloadReader(payload)
    capabilities = Capability(reader.integer(4) & SERVER_CAPABILITIES)
    if not Capability.PROTOCOL_41 & capabilities:
        raise ProtocolError(*NOT_SUPPORTED_AUTH_MODE, "Client does not support authentication protocol requested by "
                                                      "server; use a client that speaks MySQL 4.1's protocol or later")
    reader.take(28)  # the client's packet limit, its character set, filler
    user = text(reader.until_nul())
    if Capability.PLUGIN_AUTH_LENENC & capabilities:
        token = reader.lenenc()
    elif Capability.SECURE_CONNECTION & capabilities:
        token = reader.take(reader.integer(1))
    else:
        token = reader.until_nul()
    database = plugin = ""
    if Capability.CONNECT_WITH_DB & capabilities and reader.left:
        database = text(reader.until_nul())
    if Capability.PLUGIN_AUTH & capabilities and reader.left:
        plugin = text(reader.until_nul())
    attributes = _attributes(reader) if Capability.CONNECT_ATTRS & capabilities and reader.left else {}
    return HandshakeResponse(capabilities, user, token, database, plugin, attributes)


def decode_change_user(payload: bytes, capabilities: Capability) -> HandshakeResponse:
    """Decode COM_CHANGE_USER, which has the fields of a handshake response in another order."""
    reader = PayloadReader(payload, 1)
    user = text(reader.until_nul())
    token = reader.take(reader.integer(1)) if Capability.SECURE_CONNECTION & capabilities else reader.until_nul()
    database = text(reader.until_nul())
    plugin, attributes = "", {}
    if reader.left:
        reader.take(2)  # the character set
    if Capability.PLUGIN_AUTH & capabilities and reader.left:
        plugin = text(reader.until_nul())
    if Capability.CONNECT_ATTRS & capabilities and reader.left:
        attributes = _attributes(reader)
    return HandshakeResponse(capabilities, user, token, database, plugin, attributes)


def _attributes(reader: PayloadReader) -> dict[str, str]:
    pairs, found = PayloadReader(reader.lenenc()), {}
    while pairs.left:
        name = pairs.lenenc().decode(errors="replace")
        found[name] = pairs.lenenc().decode(errors="replace")
    return found


def auth_switch(plugin: str, nonce: bytes) -> bytes:
    return b"\xfe" + plugin.encode() + b"\0" + nonce + b"\0"


def auth_more(data: bytes) -> bytes:
    return b"\x01" + data


# --- Replies -------------------------------------------------------------------------------------------------


def ok(affected: int, last_insert_id: int, status: int, warnings: int, info: str = "",
       header: int = 0) -> bytes:
    """Return the payload of an OK packet.  With header 0xfe it ends the rows for clients with DEPRECATE_EOF."""
    return b"".join((bytes((header,)), lenenc_int(affected), lenenc_int(last_insert_id % 2**64),
                     struct.pack("<HH", status, min(warnings, 0xFFFF)), lenenc(info.encode()) if info else b""))


def eof(status: int, warnings: int) -> bytes:
    return struct.pack("<BHH", 0xFE, min(warnings, 0xFFFF), status)


def end_of_rows(status: int, warnings: int, deprecate_eof: bool) -> bytes:
    return ok(0, 0, status, warnings, header=0xFE) if deprecate_eof else eof(status, warnings)


def with_more_results(packets: bytes, deprecate_eof: bool) -> bytes:
    """Return a complete reply with rows, whose last packet now announces another outcome."""
    at = len(packets) - (4 if deprecate_eof else 2)
    return packets[:at] + bytes((packets[at] | MORE_RESULTS,)) + packets[at + 1:]


def error(failure: SqlError) -> bytes:
    return b"\xff" + struct.pack("<H", failure.code) + b"#" + failure.state.encode() + failure.message.encode()


def prepared(statement_id: int, fields: int, parameters: int, warnings: int) -> bytes:
    return struct.pack("<BIHHBH", 0, statement_id, fields, parameters, 0, min(warnings, 0xFFFF))
