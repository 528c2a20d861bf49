"""Functions of identifiers, addresses, compressed and encrypted bytes.

Keeps true: what is decompressed has at most as many bytes as its header says, and at most MOST_BYTES.
"""

from __future__ import annotations

import re
import zlib
from ipaddress import IPv6Address
from typing import Any

from noria.core.expressions.library.declare import ArgumentType, Function
from noria.core.types import BIGINT, BOOL, BYTES, TEXT

MOST_BYTES = 16 * 2**20
_UUID = re.compile(r"\{[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
                   r"|[0-9a-f]{32}", re.IGNORECASE)
_FOUR = re.compile(r"(\d{1,3})\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})", re.ASCII)
_LENGTH = 0x3FFFFFFF  # the bits of a compressed text's header that are its length


# ------------------------------------------------------------------ UUIDs
def is_uuid(text: str) -> bool:
    return _UUID.fullmatch(text) is not None


def uuid_to_bin(text: str, swapped: int = 0) -> bytes:
    """Return the 16 bytes of a UUID.  swapped: its parts of time come in descending weight, as an index wants them."""
    if not is_uuid(text):
        raise ValueError("no UUID")
    made = bytes.fromhex(text.strip("{}").replace("-", ""))
    return made[6:8] + made[4:6] + made[:4] + made[8:] if swapped else made


def bin_to_uuid(data: bytes, swapped: int = 0) -> str:
    if len(data) != 16:
        raise ValueError("a UUID has 16 bytes")
    data = data[4:8] + data[2:4] + data[:2] + data[8:] if swapped else data
    digits = data.hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


# ------------------------------------------------------------------ addresses
def _four(text: str) -> bytes | None:
    found = _FOUR.fullmatch(text)
    numbers = [] if found is None else list(map(int, found.groups()))
    return bytes(numbers) if numbers and max(numbers) < 256 else None


def _sixteen(text: str) -> bytes | None:
    try:
        return None if "%" in text else IPv6Address(text).packed
    except ValueError:
        return None


def inet6_aton(text: str) -> bytes | None:
    four = _four(text)
    return _sixteen(text) if four is None else four


def inet6_ntoa(data: bytes) -> str | None:
    if len(data) == 4:
        return ".".join(map(str, data))
    if len(data) != 16:
        return None
    if is_ipv4_mapped(data) or (not any(data[:12]) and any(data[12:14])):
        return ("::ffff:" if data[10] else "::") + ".".join(map(str, data[12:]))
    return IPv6Address(data).compressed


def is_ipv4_compat(data: bytes) -> bool:
    return len(data) == 16 and not any(data[:12]) and int.from_bytes(data[12:], "big") > 1


def is_ipv4_mapped(data: bytes) -> bool:
    return len(data) == 16 and data[:12] == bytes(10) + b"\xff\xff"


# ------------------------------------------------------------------ compression and encryption
def compress(data: bytes) -> bytes:
    """Return the length in four bytes, the least first, and what zlib makes of the bytes."""
    if not data:
        return b""
    made = len(data).to_bytes(4, "little") + zlib.compress(data)
    return made + b"." if made.endswith(b" ") else made


def uncompress(data: bytes) -> bytes | None:
    if not data:
        return b""
    size = uncompressed_length(data)
    if len(data) <= 4 or size > MOST_BYTES:
        return None
    unpacked = zlib.decompressobj()
    try:
        made = unpacked.decompress(data[4:], size + 1)
    except zlib.error:
        return None
    return made if len(made) == size and unpacked.eof else None


def uncompressed_length(data: bytes) -> int:
    return int.from_bytes(data[:4], "little") & _LENGTH if len(data) > 4 else 0


def _cipher(key: bytes) -> Any:
    """AES of 128 bits in the mode ECB, MySQL's default.  A key of another length is folded to 16 bytes."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes  # most processes need none

    folded = bytearray(16)
    for i, byte in enumerate(key):
        folded[i % 16] ^= byte
    return Cipher(algorithms.AES(bytes(folded)), modes.ECB())


def aes_encrypt(data: bytes, key: bytes) -> bytes:
    padding = 16 - len(data) % 16
    run = _cipher(key).encryptor()
    made: bytes = run.update(data + bytes((padding,)) * padding) + run.finalize()
    return made


def aes_decrypt(data: bytes, key: bytes) -> bytes | None:
    if not data or len(data) % 16:
        return None
    run = _cipher(key).decryptor()
    made: bytes = run.update(data) + run.finalize()
    padding = made[-1]
    sound = 1 <= padding <= 16 and made.endswith(bytes((padding,)) * padding)
    return made[:-padding] if sound else None


T, B, W = ArgumentType.TEXT, ArgumentType.BYTES, ArgumentType.INT
ENCODINGS: dict[str, Function] = {
    "is_uuid": Function((T,), BOOL, values=is_uuid),
    "uuid_to_bin": Function((T, W), BYTES, values=uuid_to_bin, least=1),
    "bin_to_uuid": Function((B, W), TEXT, values=bin_to_uuid, least=1),
    "inet6_aton": Function((T,), BYTES, values=inet6_aton, nullable=True),
    "inet6_ntoa": Function((B,), TEXT, values=inet6_ntoa, nullable=True),
    "is_ipv4": Function((T,), BOOL, values=lambda t: _four(t) is not None),
    "is_ipv6": Function((T,), BOOL, values=lambda t: _sixteen(t) is not None),
    "is_ipv4_compat": Function((B,), BOOL, values=is_ipv4_compat),
    "is_ipv4_mapped": Function((B,), BOOL, values=is_ipv4_mapped),
    "compress": Function((B,), BYTES, values=compress),
    "uncompress": Function((B,), BYTES, values=uncompress, nullable=True),
    "uncompressed_length": Function((B,), BIGINT, values=uncompressed_length),
    "aes_encrypt": Function((B, B), BYTES, values=aes_encrypt),
    "aes_decrypt": Function((B, B), BYTES, values=aes_decrypt, nullable=True),
}
