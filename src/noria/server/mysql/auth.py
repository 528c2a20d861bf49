"""Authenticates clients: password digests, and the two exchanges by which a client proves that it knows a password.

It implements `mysql_native_password` and `caching_sha2_password`, with the latter's fast path and full exchange.  In
the full exchange the client sends the password: in the clear over TLS, otherwise encrypted with the server's RSA key.

Keeps true: the server keeps no clear password, only digests, with which nobody can log in.  An unknown user gets the
same message as a user with a wrong password.  Digests are compared in constant time.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from noria.server.mysql import codec
from noria.server.mysql.codec import HandshakeResponse

NATIVE = "mysql_native_password"
SHA2 = "caching_sha2_password"
ANONYMOUS = ""  # the account of this name admits users without an account of their own
NONCE_BYTES = 20
_SALT_BYTES = 16
_SALTED_ROUNDS = 20_000  # about 5 ms: slows down guessing, but no client that connects
_RSA_BITS = 2048
_FAST_AUTH_SUCCESS, _FULL_AUTHENTICATION = b"\x03", b"\x04"
_PUBLIC_KEY_REQUEST = b"\x02"


@dataclass(frozen=True, repr=False)
class Account:
    """The stored digests of a password.

    native: SHA1(SHA1(password)); sha2: SHA256(SHA256(password)).  A strong account has (salt, PBKDF2) in `salted`
    instead of both, and only serves caching_sha2_password.  The server learns its `sha2` at the first full exchange
    and keeps it in memory.  Without any of the three, no password is required.
    """

    native: bytes | None = None
    sha2: bytes | None = None
    salted: tuple[bytes, bytes] | None = None

    @property
    def open(self) -> bool:
        return self.native is None and self.sha2 is None and self.salted is None

    def admits(self, password: bytes) -> bool:
        """True if this is the clear password."""
        if self.salted is not None:
            salt, digest = self.salted
            return hmac.compare_digest(_pbkdf2(password, salt), digest)
        return self.sha2 is not None and hmac.compare_digest(_twice("sha256", password), self.sha2)


def account(password: str, strong: bool = False) -> Account:
    """Return the account of a password ("" for none).  strong: with a salted digest only."""
    if not password:
        return Account()
    clear = password.encode()
    if strong:
        salt = secrets.token_bytes(_SALT_BYTES)
        return Account(salted=(salt, _pbkdf2(clear, salt)))
    return Account(native=_twice("sha1", clear), sha2=_twice("sha256", clear))


def nonce() -> bytes:
    """Return twenty random bytes from 1 to 127.  Clients expect 7 bits, and a 0 would end the string."""
    return bytes(1 + byte % 127 for byte in secrets.token_bytes(NONCE_BYTES))


class ServerKey:
    """The RSA key of full exchanges.  It is generated at its first use, or earlier by `prepare`."""

    @cached_property
    def _key(self) -> rsa.RSAPrivateKey:
        return rsa.generate_private_key(public_exponent=65537, key_size=_RSA_BITS)

    @cached_property
    def public(self) -> bytes:
        return self._key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)

    def prepare(self) -> None:
        _ = self.public

    def decrypt(self, data: bytes) -> bytes | None:
        """Return the clear bytes; None if they were not encrypted with this key."""
        oaep = padding.OAEP(mgf=padding.MGF1(algorithm=hashes.SHA1()), algorithm=hashes.SHA1(), label=None)
        try:
            return self._key.decrypt(data, oaep)
        except (ValueError, UnsupportedAlgorithm):
            return None


class Directory:
    """The accounts, and the SHA256 digests learnt in full exchanges, which make later exchanges fast."""

    def __init__(self, accounts: Mapping[str, Account], key: ServerKey) -> None:
        self.accounts, self.key = accounts, key
        self._learnt: dict[str, tuple[Account, bytes]] = {}

    def find(self, user: str) -> Account | None:
        return self.accounts.get(user) or self.accounts.get(ANONYMOUS)

    def fast_digest(self, user: str, found: Account) -> bytes | None:
        if found.sha2 is not None:
            return found.sha2
        of, digest = self._learnt.get(user, (None, None))
        return digest if of == found else None  # a changed password starts afresh

    def learn(self, user: str, found: Account, password: bytes) -> None:
        self._learnt[user] = found, _twice("sha256", password)


@dataclass
class AuthExchange:
    """One client's proof of its password.  Each step receives the client's bytes and returns the payloads to send.

    granted: None until the exchange is decided.  States: begun → (switched) → (full exchange requested → (key sent)) →
    decided.
    """

    directory: Directory
    nonce: bytes
    user: str
    plugin: str
    secret: bool = False  # over TLS
    used_password: bool = False
    granted: bool | None = None
    _full: bool = field(default=False)

    @classmethod
    def begin(cls, directory: Directory, nonce: bytes, response: HandshakeResponse, secret: bool = False
              ) -> tuple[AuthExchange, list[bytes]]:
        """Return the exchange, and the payloads that answer the client's first packet."""
        exchange = cls(directory, nonce, response.user, response.plugin or NATIVE, secret)
        found = directory.find(response.user)
        wanted = SHA2 if found is not None and found.salted is not None else exchange.plugin
        if wanted not in (NATIVE, SHA2):
            wanted = NATIVE
        unasked = wanted != NATIVE and not response.token  # some clients wait for a nonce under this name first
        if wanted != exchange.plugin or unasked:
            exchange.plugin = wanted
            return exchange, [codec.auth_switch(wanted, nonce)]
        return exchange, exchange.step(response.token)

    def step(self, data: bytes) -> list[bytes]:
        """Return the payloads that answer the client's bytes.  The caller adds OK or an error, as `granted` decides."""
        found = self.directory.find(self.user)
        if self._full:
            return self._full_step(found, data)
        token = b"" if data == b"\0" else data
        self.used_password = bool(token)
        if found is None or found.open or not token:
            self.granted = found is not None and found.open and not token
            return []
        if self.plugin == NATIVE:
            self.granted = found.native is not None and _proves("sha1", token, self.nonce + found.native,
                                                                found.native)
            return []
        digest = self.directory.fast_digest(self.user, found)
        if digest is None:
            self._full = True
            return [codec.auth_more(_FULL_AUTHENTICATION)]
        self.granted = _proves("sha256", token, digest + self.nonce, digest)
        return [codec.auth_more(_FAST_AUTH_SUCCESS)] if self.granted else []

    def _full_step(self, found: Account | None, data: bytes) -> list[bytes]:
        if data == _PUBLIC_KEY_REQUEST and not self.secret:
            return [codec.auth_more(self.directory.key.public)]
        password = (data if self.secret else self._uncovered(data)).removesuffix(b"\0")
        self.granted = found is not None and bool(password) and found.admits(password)
        if self.granted and found is not None:
            self.directory.learn(self.user, found, password)
        return []

    def _uncovered(self, data: bytes) -> bytes:
        hidden = self.directory.key.decrypt(data) or b""
        pad = self.nonce * (len(hidden) // len(self.nonce) + 1)
        return _xor(hidden, pad[:len(hidden)])


def _proves(algorithm: str, token: bytes, mask: bytes, digest: bytes) -> bool:
    """True if the token, a digest of the password under a mask, yields the digest of that digest."""
    cover = hashlib.new(algorithm, mask).digest()
    if len(token) != len(cover):
        return False
    return hmac.compare_digest(hashlib.new(algorithm, _xor(token, cover)).digest(), digest)


def _twice(algorithm: str, password: bytes) -> bytes:
    return hashlib.new(algorithm, hashlib.new(algorithm, password).digest()).digest()


def _pbkdf2(password: bytes, salt: bytes) -> bytes:
    return hashlib.pbkdf2_hmac("sha256", password, salt, _SALTED_ROUNDS)


def _xor(a: bytes, b: bytes) -> bytes:
    return bytes(x ^ y for x, y in zip(a, b, strict=True))
