"""Functions that behave as RAND() and UUID() do for each row, yet depend on nothing but their arguments.

    RAND() in a query   →   rand_of_row(seed, what tells the row from others)

The seed is drawn once for each execution (`sql/expressions/chance.py`).  So a row has the same value wherever and
however often it is computed: at any worker, in any slice, in Spark.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

from noria.core.expressions.library.declare import ArgumentType, Function
from noria.core.types import DOUBLE, TEXT

_MODULUS = 0x3FFFFFFF  # of MySQL's generator
_BITS = 53  # of a DOUBLE's fraction


def _digest(values: tuple[Any, ...], size: int) -> bytes:
    return blake2b(repr(values).encode("utf-8", "surrogatepass"), digest_size=size).digest()


def rand_of_row(*values: Any) -> float:
    """Return a number from 0 up to, but not including, 1."""
    return (int.from_bytes(_digest(values, 8), "big") >> (64 - _BITS)) / (1 << _BITS)


def uuid_of_row(*values: Any) -> str:
    """Return a text in the form of a random UUID (version 4)."""
    found = bytearray(_digest(values, 16))
    found[6], found[8] = found[6] & 0x0F | 0x40, found[8] & 0x3F | 0x80
    digits = found.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def seeded(seed: int | None) -> float:
    """Return the first number of MySQL's RAND(seed).

    >>> round(seeded(3), 10)
    0.905769756
    """
    number = (seed or 0) & 0xFFFFFFFF
    first = (number * 0x10001 + 55555555) & 0xFFFFFFFF
    second = (number * 0x10000001) & 0xFFFFFFFF
    first, second = first % _MODULUS, second % _MODULUS
    return ((first * 3 + second) % _MODULUS) / _MODULUS


CHANCES: dict[str, Function] = {
    "rand_of_row": Function((ArgumentType.INT, ArgumentType.ANY), DOUBLE, values=rand_of_row, least=1, more=True,
                            sees_null=True, internal=True),
    "uuid_of_row": Function((ArgumentType.INT, ArgumentType.ANY), TEXT, values=uuid_of_row, least=1, more=True,
                            sees_null=True, internal=True),
    "rand_seeded": Function((ArgumentType.INT,), DOUBLE, values=seeded, sees_null=True, internal=True),
}

__all__ = ["CHANCES", "rand_of_row", "seeded", "uuid_of_row"]
