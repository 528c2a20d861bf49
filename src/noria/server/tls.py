"""TLS for both protocols, on connections that may begin without it.

`Certificates` holds the context of new connections.  `TlsTransport` is placed between a socket's transport and its
protocol, which needs no change.

Keeps true: bytes that arrive with or after the request for TLS are decrypted, or end the connection.  They are never
read as clear commands.  Once TLS has begun, nothing is sent in the clear.  A certificate that cannot be loaded does not
replace the current one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from pathlib import Path
from typing import Any, cast

from cryptography import x509

from noria.server.settings import SettingsError

log = logging.getLogger(__name__)

HANDSHAKE = 0x16  # the first byte of every TLS connection, and of no HTTP request
_READ_BYTES = 256 * 1024


class Certificates:
    """The current certificate.  An open connection keeps the certificate with which it began.

    authorities: if given, TLS fails with clients without a certificate that one of them has signed.
    """

    def __init__(self, certificate: Path, key: Path, authorities: Path | None = None):
        self._paths = certificate, key, authorities
        self.context = _context(certificate, key, authorities)

    @classmethod
    def of(cls, certificate: Path | None, key: Path | None, authorities: Path | None) -> Certificates | None:
        """Return the certificates of some settings; None without TLS.  Raises SettingsError."""
        return None if certificate is None or key is None else cls(certificate, key, authorities)

    def reload(self) -> None:
        """Read the files again.  If they cannot be used, log why and keep the current certificate."""
        try:
            self.context = _context(*self._paths)
        except SettingsError as e:
            log.error("the certificate in use stays: %s", e)
        else:
            log.info("new connections get the certificate of %s, %s", self._paths[0], _valid_until(self._paths[0]))


def _context(certificate: Path, key: Path, authorities: Path | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    for option, path in (("--tls-cert", certificate), ("--tls-key", key), ("--tls-ca", authorities)):
        try:
            if path is not None:
                path.read_bytes()
        except OSError as e:
            raise SettingsError(f"{option} {path} cannot be read: {e.strerror}") from e
    if key.stat().st_mode & 0o007:
        raise SettingsError(f"--tls-key {key} can be read by everybody: chmod 600 {key}")
    try:
        context.load_cert_chain(certificate, key, password=_no_passphrase)
    except (ssl.SSLError, ValueError) as e:
        raise SettingsError(f"--tls-cert {certificate} and --tls-key {key} are no certificate (PEM, with its chain) "
                            f"and the key that belongs to it: {e}") from e
    if authorities is not None:
        try:
            context.load_verify_locations(authorities)
        except (ssl.SSLError, ValueError) as e:
            raise SettingsError(f"--tls-ca {authorities} has no certificates of authorities (PEM): {e}") from e
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _no_passphrase() -> str:
    raise ValueError("the key is encrypted; give one without a passphrase, in a file of mode 600")


def _valid_until(certificate: Path) -> str:
    found = x509.load_pem_x509_certificate(certificate.read_bytes())
    return f"valid until {found.not_valid_after_utc:%Y-%m-%d}"


class TlsTransport(asyncio.Transport, asyncio.Protocol):
    """The protocol of the raw transport, and the transport of the inner protocol.

    The TLS machine works on memory, so `data_received` accepts bytes that another protocol has already read.
    """

    def __init__(self, raw: asyncio.Transport, inner: asyncio.Protocol, context: ssl.SSLContext):
        super().__init__()
        self._raw, self._inner = raw, inner
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._machine = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._shaken = self._ended = False
        raw.set_protocol(self)

    # ------------------------------------------------------------ as the raw transport's protocol
    def data_received(self, data: bytes) -> None:
        if self._ended:
            return
        self._incoming.write(data)
        plain: list[bytes] = []
        try:
            self._take(plain)
        except ssl.SSLWantReadError:
            self._flush()
        except ssl.SSLZeroReturnError:  # the client closes in order
            self._deliver(plain)
            self.close()
            return
        except ssl.SSLError as e:
            log.info("a client's TLS failed: %s", e.reason or e)
            self._ended = True
            self._flush()  # the alert says why
            self._raw.close()
            return
        self._deliver(plain)

    def _take(self, plain: list[bytes]) -> None:
        """Append all bytes that can be decrypted now.  Always ends with one of the TLS machine's exceptions."""
        if not self._shaken:
            self._machine.do_handshake()
            self._shaken = True
            self._flush()
        while True:
            plain.append(self._machine.read(_READ_BYTES))
            if not plain[-1]:
                raise ssl.SSLZeroReturnError

    def _deliver(self, plain: list[bytes]) -> None:
        data = b"".join(plain)
        if data and not self._raw.is_closing():
            self._inner.data_received(data)

    def _flush(self) -> None:
        if self._outgoing.pending:
            self._raw.write(self._outgoing.read())

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended = True
        self._inner.connection_lost(exc)

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

    # ------------------------------------------------------------ as the inner protocol's transport
    def write(self, data: Any) -> None:
        """Encrypt and send bytes.  Before the end of the handshake they are dropped."""
        if self._ended or not self._shaken:
            return
        rest = memoryview(data)
        while rest:
            rest = rest[self._machine.write(rest):]
        self._flush()

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        return False

    def close(self) -> None:
        if not self._ended:
            self._ended = True
            if self._shaken:
                self._farewell()
        self._raw.close()

    def _farewell(self) -> None:
        with contextlib.suppress(ssl.SSLError):  # the client's close_notify is not awaited
            self._machine.unwrap()
        self._flush()

    def abort(self) -> None:
        self._ended = True
        self._raw.abort()

    def is_closing(self) -> bool:
        return self._ended or self._raw.is_closing()

    def pause_reading(self) -> None:
        self._raw.pause_reading()

    def resume_reading(self) -> None:
        self._raw.resume_reading()

    def is_reading(self) -> bool:
        return self._raw.is_reading()

    def get_write_buffer_size(self) -> int:
        return self._raw.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._raw.set_write_buffer_limits(high, low)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._inner = cast(asyncio.Protocol, protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._inner

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        own = {"sslcontext": self._machine.context, "ssl_object": self._machine}
        return own[name] if name in own else self._raw.get_extra_info(name, default)


__all__ = ["HANDSHAKE", "Certificates", "TlsTransport"]
