"""Stored forms of passwords, as MySQL writes them, and the check of a clear password.

    mysql_native_password      *94BDCEBE19083CE2A1F959FD02F964C7AF4CFC29      SHA1(SHA1(password))
    caching_sha2_password      $A$005$ with 20 bytes of salt and 43 of SHA-256-crypt with 5000 rounds

Keeps true: digests are compared in constant time.  The salt comes from the caller, so this module is deterministic.
"""

from __future__ import annotations

import hashlib
import hmac
import re

from noria.core.errors import SqlError
from noria.core.errors.codes import PASSWORD_FORMAT, PLUGIN_IS_NOT_LOADED

NATIVE = "mysql_native_password"
SHA2 = "caching_sha2_password"
PLUGINS = (NATIVE, SHA2)
SALT_BYTES = 20
_ITERATION = 1000  # the three digits of the stored form count in thousands
_DIGITS = "./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_CRYPT_CHARACTERS = 43
_SHA2 = re.compile(r"\$A\$([0-9A-F]{3})\$(.{20})([./0-9A-Za-z]{43})\Z", re.DOTALL)
_ORDER = ((0, 10, 20), (21, 1, 11), (12, 22, 2), (3, 13, 23), (24, 4, 14), (15, 25, 5), (6, 16, 26), (27, 7, 17),
          (18, 28, 8), (9, 19, 29))  # of the bytes of a digest in SHA-crypt's text


def twice(algorithm: str, password: bytes) -> bytes:
    return hashlib.new(algorithm, hashlib.new(algorithm, password).digest()).digest()


def stored(plugin: str, password: str, salt: bytes) -> str:
    """The stored form of a clear password; "" for an empty one.  salt: SALT_BYTES random bytes below 128 without 0 and
    `$`."""
    if not password:
        return ""
    if plugin == NATIVE:
        return "*" + twice("sha1", password.encode()).hex().upper()
    text = salt.decode("ascii")
    return f"$A$005${text}{sha256_crypt(password.encode(), salt, 5 * _ITERATION)}"


def salt_of(random: bytes) -> bytes:
    """Turn random bytes into a salt: letters that no client or dump changes.

    >>> salt_of(bytes(range(20)))
    b'./0123456789ABCDEFGH'
    """
    return bytes(ord(_DIGITS[byte % len(_DIGITS)]) for byte in random[:SALT_BYTES])


def native_digest(secret: str) -> bytes:
    """SHA1(SHA1(password)) of a stored form of mysql_native_password."""
    return bytes.fromhex(secret[1:])


def proves(secret: str, password: bytes) -> bool:
    """Whether this is the clear password of a stored form."""
    if not secret:
        return not password
    if secret.startswith("*"):
        return hmac.compare_digest(twice("sha1", password), native_digest(secret))
    found = _SHA2.match(secret)
    if found is None:
        return False
    made = sha256_crypt(password, found[2].encode(), int(found[1], 16) * _ITERATION)
    return hmac.compare_digest(made, found[3])


def checked_plugin(plugin: str) -> str:
    """Return the name of a plugin in lower case.  Raises error 1524."""
    if plugin.lower() not in PLUGINS:
        raise SqlError(*PLUGIN_IS_NOT_LOADED, f"Plugin '{plugin}' is not loaded; there are {' and '.join(PLUGINS)}")
    return plugin.lower()


def checked_secret(plugin: str, secret: str) -> str:
    """Return the stored form that IDENTIFIED WITH … AS gives.  Raises error 1827."""
    right = re.fullmatch(r"\*[0-9A-Fa-f]{40}", secret) if plugin == NATIVE else _SHA2.match(secret)
    if secret and right is None:
        raise SqlError(*PASSWORD_FORMAT, "The password hash doesn't have the expected format.")
    return secret.upper() if plugin == NATIVE else secret


def sha256_crypt(password: bytes, salt: bytes, rounds: int) -> str:
    """The text of SHA-crypt with SHA-256, without its salt, as MySQL computes it: the salt may have 20 bytes."""
    digest = _begun(password, salt)
    p = _repeated(hashlib.sha256(password * len(password)).digest(), len(password))
    s = _repeated(hashlib.sha256(salt * (16 + digest[0])).digest(), len(salt))
    for i in range(rounds):
        text = (p if i & 1 else digest) + (s if i % 3 else b"") + (p if i % 7 else b"") + (digest if i & 1 else p)
        digest = hashlib.sha256(text).digest()
    out = "".join(_letters(digest[a] << 16 | digest[b] << 8 | digest[c], 4) for a, b, c in _ORDER)
    return out + _letters(digest[31] << 8 | digest[30], 3)


def _begun(password: bytes, salt: bytes) -> bytes:
    other = hashlib.sha256(password + salt + password).digest()
    text = password + salt + _repeated(other, len(password))
    bits = len(password)
    while bits:
        text += other if bits & 1 else password
        bits >>= 1
    return hashlib.sha256(text).digest()


def _repeated(digest: bytes, length: int) -> bytes:
    return (digest * (length // len(digest) + 1))[:length]


def _letters(number: int, count: int) -> str:
    return "".join(_DIGITS[number >> 6 * i & 63] for i in range(count))


__all__ = ["NATIVE", "PLUGINS", "SALT_BYTES", "SHA2", "checked_plugin", "checked_secret", "native_digest", "proves",
           "salt_of", "sha256_crypt", "stored", "twice"]
