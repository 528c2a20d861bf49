"""Finds the damaged record of a write-ahead log: RocksDB reports that there is one, not where.

A log consists of blocks of 32 KB.  A record has a checksum (CRC-32C, masked), a length and a type, and ends within its
block.  The kernel is compiled when it is first used, which is only after damage.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from noria.kernels import njit

_BLOCK, _HEADER, _RECYCLED_HEADER = 32 * 2**10, 7, 11
_POLYNOMIAL, _MASK, _ONES = 0x82F63B78, 0xA282EAD8, 0xFFFFFFFF
Bytes = npt.NDArray[np.uint8]


def _table() -> npt.NDArray[np.uint32]:
    rows = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        rows = np.where(rows & 1, rows >> 1 ^ np.uint32(_POLYNOMIAL), rows >> 1).astype(np.uint32)
    return rows


def damaged_at(path: Path) -> int | None:
    """The offset of the first record with a wrong checksum; None if all records of the file are right."""
    data = np.fromfile(path, np.uint8)
    at = int(_first_bad(data, _table()))
    return None if at < 0 else at


@njit(nogil=True)
def _first_bad(data: Bytes, table: npt.NDArray[np.uint32]) -> int:
    at = 0
    while at + _HEADER <= len(data):
        left = _BLOCK - at % _BLOCK
        if left < _HEADER:
            at += left
            continue
        size, kind = int(data[at + 4]) | int(data[at + 5]) << 8, data[at + 6]
        if kind == 0 and size == 0:  # allocated and not written
            at += left
            continue
        head = _RECYCLED_HEADER if kind >= 5 and kind <= 8 else _HEADER
        if head + size > left:
            return at
        if at + head + size > len(data):
            return -1  # torn
        crc = _ONES
        for i in range(at + 6, at + head + size):
            crc = int(table[(crc ^ int(data[i])) & 255]) ^ crc >> 8
        crc ^= _ONES
        masked = ((crc >> 15 | crc << 17) + _MASK) & _ONES
        stored = (int(data[at]) | int(data[at + 1]) << 8 | int(data[at + 2]) << 16
                  | int(data[at + 3]) << 24)
        if masked != stored:
            return at
        at += head + size
    return -1
