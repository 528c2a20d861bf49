"""Authenticates connections between hosts. Call `connected` or `wish_of`.

A process that can send packets can change all data. So the other end must first prove that it knows the secret of
the data directory, which workers and server share. Before that no byte of the connection is read as a packet.
Each end proves it with numbers that are new for each connection:

    the one that connects → MAGIC, its number
    the one that listens  → its number, its proof
    the one that connects → its proof, which covers its request, and the request
    the one that listens  → yes or no

Keeps true: the secret is never sent. A proof is valid for one connection, one direction and one request. A
connection without a proof is closed after `PROOF_S`.

Without TLS, later bytes are neither secret nor protected from changes on their way. With TLS each end shows one
certificate, the same for all hosts, and accepts no other (`tls`).
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import os
import secrets
import socket
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path

from cryptography import x509

MAGIC = b"noria\x00\x00\x01"
PROOF_S = 5.0
MOST_WISH_BYTES = 1_024
READ_BYTES = 2**18  # that wait to be read from a connection, at most
KEEP_S = 5  # a host that is silent this long on all connections counts as lost
_NUMBER = _PROOF = 32
_SECRET_BYTES = 32
_SECRET_FILE = "workers.secret"
_COPY = f"copy {_SECRET_FILE} of the server's data directory, with mode 600"
_YES, _NO = b"+", b"-"

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class NotAuthenticated(Exception):
    """The other end did not prove that it knows the secret, or runs another release; the message says what was
    wrong."""


class HandshakeClosed(NotAuthenticated):
    """The other end closed the connection without a proof: it may be ending, or have too many connections."""


class ConnectionRefused(Exception):
    """The other end is authenticated, and rejects the request now."""


@dataclass(frozen=True)
class SharedCredentials:
    """The credentials that all hosts of a server share. `certificate`, `key`: paths, if connections use TLS."""

    secret: bytes
    certificate: Path | None = None
    key: Path | None = None


def secret_of(data_dir: Path) -> bytes:
    """The secret of the data directory, created if missing. Whoever can read it can read all tables as well."""
    path = data_dir / _SECRET_FILE
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        secret = _secret_in(path)
        if secret is None:
            raise NotAuthenticated(f"{path} is no secret of {_SECRET_BYTES} bytes that its owner alone can read: "
                                   f"remove it "
                                   "while nothing serves this directory, and it is made again") from None
        return secret
    with os.fdopen(file, "wb") as out:
        made = secrets.token_bytes(_SECRET_BYTES)
        out.write(made)
        out.flush()
        os.fsync(out.fileno())
    return made


def secret_in(path: Path) -> bytes:
    """The secret in a copy of that file."""
    try:
        secret = _secret_in(path)
    except OSError as e:
        raise NotAuthenticated(f"{path} cannot be read: {e.strerror}: {_COPY}") from e
    if secret is None:
        raise NotAuthenticated(f"{path} is no secret of {_SECRET_BYTES} bytes that its owner alone can read: {_COPY}")
    return secret


def _secret_in(path: Path) -> bytes | None:
    secret = path.read_bytes()
    return secret if len(secret) == _SECRET_BYTES and not path.stat().st_mode & 0o077 else None


def tls(credentials: SharedCredentials, server: bool) -> ssl.SSLContext | None:
    """The TLS context of the present files; None without TLS. NotAuthenticated if they are no certificate with its key
    that the other end would accept."""
    certificate, key = credentials.certificate, credentials.key
    if certificate is None or key is None:
        return None
    try:
        stats = [os.stat(path) for path in (certificate, key)]
        versions = tuple((s.st_ino, s.st_mtime_ns, s.st_size) for s in stats)
        context, loaded = _loaded(certificate, key, server, versions)
    except (OSError, ssl.SSLError, ValueError) as e:
        raise NotAuthenticated(f"{certificate} and {key} are no certificate with its key (PEM, no passphrase) "
                               f"on {socket.gethostname()}: {e}") from e
    if stats[1].st_mode & 0o077:
        raise NotAuthenticated(f"{key} can be read by others than its owner: chmod 600 {key}")
    _check_valid(certificate, loaded)
    return context


@lru_cache(maxsize=8)
def _loaded(certificate: Path, key: Path, server: bool, versions: tuple[object, ...]
            ) -> tuple[ssl.SSLContext, x509.Certificate]:
    """Load the files, once for each version of them: it takes a millisecond, before the other end has sent a
    byte."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # all hosts share one certificate
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # trust the certificate itself, whoever signed it
    context.load_cert_chain(certificate, key, password=lambda: "")
    own = "".join(certificate.read_text().partition("-----END CERTIFICATE-----")[:2])
    context.load_verify_locations(cadata=own)
    return context, x509.load_pem_x509_certificate(own.encode())


def _check_valid(path: Path, certificate: x509.Certificate) -> None:
    now = datetime.now(UTC)
    if now > certificate.not_valid_after_utc:
        raise NotAuthenticated(f"the certificate {path} is not valid since {certificate.not_valid_after_utc}: give a "
                               "new one to all hosts")
    if now < certificate.not_valid_before_utc:
        raise NotAuthenticated(f"the certificate {path} is not valid before {certificate.not_valid_before_utc}, and "
                               f"here it is {now:%Y-%m-%d %H:%M:%S}: is the clock right?")


def kept_alive(line: socket.socket) -> None:
    """Enable keep-alive, so that the connection ends when the other host vanishes, whether data is sent or not."""
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 2)
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1)
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, KEEP_S - 2)
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1_000 * KEEP_S)


async def connected(host: str, port: int, credentials: SharedCredentials, wish: bytes) -> Streams:
    """Open a connection whose other end proves itself and grants the request. Raises `ConnectionRefused`,
    `NotAuthenticated` or OSError."""
    try:
        async with asyncio.timeout(PROOF_S):
            reader, writer = await asyncio.open_connection(host, port, limit=READ_BYTES,
                                                           ssl=tls(credentials, server=False))
    except ssl.SSLError as e:
        raise NotAuthenticated(f"{host}:{port} shows no certificate that is ours: {e}") from e
    try:
        async with asyncio.timeout(PROOF_S):
            kept_alive(writer.get_extra_info("socket"))
            mine = secrets.token_bytes(_NUMBER)
            writer.write(MAGIC + mine)
            theirs, proof = await reader.readexactly(_NUMBER), await reader.readexactly(_PROOF)
            if not hmac.compare_digest(proof, _proof(credentials, b"listens", mine, theirs, b"")):
                raise NotAuthenticated(f"{host}:{port} does not know the secret of this data directory")
            writer.write(_proof(credentials, b"connects", mine, theirs, wish) + len(wish).to_bytes(2, "big") + wish)
            if await reader.readexactly(1) != _YES:
                raise ConnectionRefused(f"{host}:{port} refuses {wish.decode(errors='replace')}")
    except BaseException as e:
        writer.transport.abort()
        if isinstance(e, ssl.SSLError):
            raise NotAuthenticated(f"{host}:{port} takes no certificate of ours: {e}") from e
        if isinstance(e, asyncio.IncompleteReadError):
            raise HandshakeClosed(f"{host}:{port} has closed the connection before it proved "
                                  f"anything{_tls_hint(credentials)}") from e
        raise
    return reader, writer


def _tls_hint(credentials: SharedCredentials) -> str:
    return "" if credentials.certificate else ": does it want TLS, --cluster-cert and --cluster-key?"


async def wish_of(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, credentials: SharedCredentials) -> bytes:
    """The request of the other end, once it has proved itself; `granted` answers it. Raises `NotAuthenticated`,
    OSError or TimeoutError."""
    try:
        async with asyncio.timeout(PROOF_S):
            kept_alive(writer.get_extra_info("socket"))
            if await reader.readexactly(len(MAGIC)) != MAGIC:
                raise NotAuthenticated("it does not begin as connections of this release do")
            theirs, mine = await reader.readexactly(_NUMBER), secrets.token_bytes(_NUMBER)
            writer.write(mine + _proof(credentials, b"listens", theirs, mine, b""))
            proof = await reader.readexactly(_PROOF)
            length = int.from_bytes(await reader.readexactly(2), "big")
            if length > MOST_WISH_BYTES:
                raise NotAuthenticated(f"its request has {length} bytes")
            wish = await reader.readexactly(length)
    except asyncio.IncompleteReadError as e:
        raise NotAuthenticated("it closed the connection before it proved anything") from e
    if not hmac.compare_digest(proof, _proof(credentials, b"connects", theirs, mine, wish)):
        raise NotAuthenticated("it does not know the secret of this data directory")
    return wish


def granted(writer: asyncio.StreamWriter, yes: bool) -> None:
    writer.write(_YES if yes else _NO)


def _proof(credentials: SharedCredentials, who: bytes, connecting: bytes, listening: bytes, wish: bytes) -> bytes:
    return hmac.digest(credentials.secret, MAGIC + who + connecting + listening + wish, hashlib.sha256)
