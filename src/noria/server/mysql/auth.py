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
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from math import inf

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from noria.accounts import passwords
from noria.accounts.logins import Login, Logins
from noria.server.mysql import codec
from noria.server.mysql.codec import HandshakeResponse

NATIVE, SHA2 = passwords.NATIVE, passwords.SHA2
ANONYMOUS = ""  # the account of this name admits users without an account of their own
NONCE_BYTES = 20
_RSA_BITS = 2048
_FAST_AUTH_SUCCESS, _FULL_AUTHENTICATION = b"\x03", b"\x04"
_PUBLIC_KEY_REQUEST = b"\x02"


@dataclass(frozen=True, repr=False)
class Account:
    """The stored digests of a password.

    native: SHA1(SHA1(password)); sha2: SHA256(SHA256(password)).  A strong account has MySQL's salted form in `salted`
    instead of both, and only serves caching_sha2_password.  The server learns its `sha2` at the first full exchange
    and keeps it in memory.  Without any of the three, no password is required.

    name: user@host of a stored account; "" for one that is not stored.
    """

    native: bytes | None = None
    sha2: bytes | None = None
    salted: str | None = None
    name: str = ""
    locked: bool = False
    expires_at: float = inf  # seconds since 1970

    @property
    def open(self) -> bool:
        return self.native is None and self.sha2 is None and self.salted is None

    def admits(self, password: bytes) -> bool:
        """True if this is the clear password."""
        if self.salted is not None:
            return passwords.proves(self.salted, password)
        return self.sha2 is not None and hmac.compare_digest(passwords.twice("sha256", password), self.sha2)

    @property
    def plugin(self) -> str:
        """The only plugin that it serves; "" for both."""
        return SHA2 if self.salted is not None else NATIVE if self.native is not None and self.sha2 is None else ""


def account(password: str, strong: bool = False) -> Account:
    """Return the account of a password ("" for none).  strong: with a salted digest only."""
    if not password:
        return Account()
    clear = password.encode()
    if strong:
        salt = passwords.salt_of(secrets.token_bytes(passwords.SALT_BYTES))
        return Account(salted=passwords.stored(SHA2, password, salt))
    return Account(native=passwords.twice("sha1", clear), sha2=passwords.twice("sha256", clear))


@lru_cache(1024)
def of_login(login: Login) -> Account:
    """Return the digests of a stored account."""
    native = passwords.native_digest(login.secret) if login.secret.startswith("*") else None
    return Account(native, bytes.fromhex(login.fast) if login.fast else None,
                   login.secret if login.secret and native is None else None, login.name.plain, login.locked,
                   login.expires_at)


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

    def __init__(self, accounts: Mapping[str, Account] | Logins, key: ServerKey) -> None:
        self.accounts, self.key = accounts, key
        self.clock: Callable[[], float] = time.time
        self._learnt: dict[str, tuple[str | None, bytes]] = {}

    def find(self, user: str, address: str = "") -> Account | None:
        if isinstance(self.accounts, Logins):
            login = self.accounts.find(user, address)
            return of_login(login) if login is not None else Account() if self.accounts.everyone else None
        return self.accounts.get(user) or self.accounts.get(ANONYMOUS)

    def plugin_for(self, found: Account | None) -> str:
        """The plugin that a client must use; "" for its own choice.  Unknown users look like new accounts."""
        if found is None:
            return SHA2 if isinstance(self.accounts, Logins) else ""
        return found.plugin

    def fast_digest(self, user: str, found: Account) -> bytes | None:
        if found.sha2 is not None:
            return found.sha2
        of, digest = self._learnt.get(found.name or user, (None, None))
        return digest if of == found.salted else None  # a changed password starts afresh

    def learn(self, user: str, found: Account, password: bytes) -> None:
        self._learnt[found.name or user] = found.salted, passwords.twice("sha256", password)


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
    address: str = ""
    account: Account = field(default_factory=Account)  # whose password was proved
    _full: bool = field(default=False)

    @classmethod
    def begin(cls, directory: Directory, nonce: bytes, response: HandshakeResponse, secret: bool = False,
              address: str = "") -> tuple[AuthExchange, list[bytes]]:
        """Return the exchange, and the payloads that answer the client's first packet."""
        exchange = cls(directory, nonce, response.user, response.plugin or NATIVE, secret,
                       address=address)
        wanted = directory.plugin_for(directory.find(response.user, address)) or exchange.plugin
        if wanted not in (NATIVE, SHA2):
            wanted = NATIVE
        unasked = wanted != NATIVE and not response.token  # some clients wait for a nonce under this name first
        if wanted != exchange.plugin or unasked:
            exchange.plugin = wanted
            return exchange, [codec.auth_switch(wanted, nonce)]
        return exchange, exchange.step(response.token)

    def step(self, data: bytes) -> list[bytes]:
        """Return the payloads that answer the client's bytes.  The caller adds OK or an error, as `granted` decides."""
        found = self.directory.find(self.user, self.address)
        if self._full:
            return self._full_step(found, data)
        token = b"" if data == b"\0" else data
        self.used_password = bool(token)
        self.account = found or self.account
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
            self.account = found
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


def _xor(a: bytes, b: bytes) -> bytes:
    return bytes(x ^ y for x, y in zip(a, b, strict=True))
