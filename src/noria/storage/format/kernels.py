"""Copies columns into and out of packed rows, compiled: numpy would need a pass for each row.

Every `put_*` writes one column of all rows at `at[row]` of `out` and moves `at[row]` behind what it wrote;
every `take_*` reads the same way.  Text columns are Arrow's: bytes and int64 offsets.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from noria.core.batch import Codes
from noria.kernels import njit

Bytes = npt.NDArray[np.uint8]
KEY_SHIFT = 2  # text bytes in keys are increased by two (UTF-8 never has a byte above 0xF4) ...
KEY_END = 1  # ... so that 1 ends a text before every longer one, and 0 alone is NULL, before every text
KEY_NULL = 0


def _put_codes(out: Bytes, at: Codes, codes: Codes) -> None:
    """Write codes as little-endian int64."""
    for row in range(len(codes)):
        code, pos = np.uint64(codes[row]), at[row]
        for i in range(8):
            out[pos + i] = np.uint8((code >> np.uint64(8 * i)) & np.uint64(255))
        at[row] = pos + 8


def _put_key_codes(out: Bytes, at: Codes, codes: Codes) -> None:
    """Write codes big-endian with the sign flipped: bytes sort as the codes do, NULL_CODE first."""
    for row in range(len(codes)):
        code, pos = np.uint64(codes[row]) ^ np.uint64(1 << 63), at[row]
        for i in range(8):
            out[pos + i] = np.uint8((code >> np.uint64(56 - 8 * i)) & np.uint64(255))
        at[row] = pos + 8


def _put_texts(out: Bytes, at: Codes, data: Bytes, offsets: Codes) -> None:
    for row in range(len(at)):
        start, size, pos = offsets[row], offsets[row + 1] - offsets[row], at[row]
        for i in range(size):
            out[pos + i] = data[start + i]
        at[row] = pos + size


def _put_key_texts(out: Bytes, at: Codes, data: Bytes, offsets: Codes, nulls: npt.NDArray[np.bool_]) -> None:
    for row in range(len(at)):
        start, size, pos = offsets[row], offsets[row + 1] - offsets[row], at[row]
        if nulls[row]:
            out[pos] = KEY_NULL
        else:
            for i in range(size):
                out[pos + i] = data[start + i] + KEY_SHIFT
            pos += size
            out[pos] = KEY_END
        at[row] = pos + 1


def _take_codes(data: Bytes, at: Codes, out: Codes) -> None:
    for row in range(len(at)):
        code, pos = np.uint64(0), at[row]
        for i in range(8):
            code |= np.uint64(data[pos + i]) << np.uint64(8 * i)
        out[row] = np.int64(code)
        at[row] = pos + 8


def _take_texts(data: Bytes, at: Codes, out: Bytes, offsets: Codes) -> None:
    """Copy texts of size offsets[row + 1] - offsets[row] from `at[row]` on into `out`, packed."""
    for row in range(len(at)):
        start, size, pos = offsets[row], offsets[row + 1] - offsets[row], at[row]
        for i in range(size):
            out[start + i] = data[pos + i]
        at[row] = pos + size


def _compiled(function: Callable[..., None]) -> Callable[..., Any]:
    return njit(nogil=True)(function)


put_codes = _compiled(_put_codes)
put_key_codes = _compiled(_put_key_codes)
put_texts = _compiled(_put_texts)
put_key_texts = _compiled(_put_key_texts)
take_codes = _compiled(_take_codes)
take_texts = _compiled(_take_texts)
