"""Bytes as nobody should send them."""

from __future__ import annotations

import random
from collections.abc import Iterator

EDGES = (0, 1, 0x7F, 0x80, 0xFB, 0xFC, 0xFD, 0xFE, 0xFF)


def mutated(data: bytes, chance: random.Random, most: int = 4) -> bytes:
    """The same with a few bytes changed, gone, doubled, put in, or cut off."""
    out = bytearray(data)
    for _ in range(chance.randrange(1, most + 1)):
        at, what = chance.randrange(len(out) + 1), chance.randrange(8)
        if what < 3 and at < len(out):
            out[at] = chance.choice(EDGES) if chance.random() < 0.5 else chance.randrange(256)
        elif what == 3:
            del out[at:at + chance.choice((1, 2, 4, 8))]
        elif what == 4:
            out[at:at] = chance.randbytes(chance.choice((1, 2, 4, 8, 40)))
        elif what == 5:
            del out[at:]
        elif what == 6:
            out[at:at] = out[at:at + chance.randrange(20)]
        else:
            out[at:at + 4] = chance.choice((0, 1, 2**31 - 1, 2**31, 2**32 - 1, len(out))).to_bytes(4, "little")
    return bytes(out)


def pieces(data: bytes, chance: random.Random) -> Iterator[bytes]:
    """Cut at random places: whole, in two, or byte by byte."""
    how = chance.random()
    if how < 0.4 or len(data) > 5_000:
        yield data
    elif how < 0.8:
        at = chance.randrange(len(data) + 1)
        yield data[:at]
        yield data[at:]
    else:
        for i in range(len(data)):
            yield data[i:i + 1]
