r"""Reads CSV with an escape character, as MySQL's SELECT … INTO OUTFILE and mysqldump --tab write it.

    of(block)     before the file is split: replaces an escaped delimiter, line end or quote by a stand-in, so that
                  each line is a record and each delimiter ends a field
    unescaped     after the fields are parsed: replaces `\n`, `\t`, `\0`, … and the stand-ins by their meaning

Between the two steps the escape stays before its character: the parser must distinguish the NULL `\N` from `\\N`.

Keeps true: an escaped escape does not escape the next byte.  Blocks may end anywhere.  A text without escapes is
unchanged after both steps.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

LF, CR = 10, 13
Bytes = npt.NDArray[np.uint8]
_LETTERS = {"0": 0, "b": 8, "n": LF, "r": CR, "t": 9, "Z": 26}  # after a backslash, as LOAD DATA reads them


class Escapes:
    """The two steps for one file.  escape, delimiter, quote: the file's characters; quote may be ""."""

    def __init__(self, escape: str, delimiter: str, quote: str):
        self._escape = ord(escape)
        self._hidden = [LF, CR, ord(delimiter), *([ord(quote)] if quote else ())]
        self._stand_in, self._meaning = np.arange(256, dtype=np.uint8), np.arange(256, dtype=np.uint8)
        if escape == "\\":
            for letter, meant in _LETTERS.items():
                self._meaning[ord(letter)] = meant
        for stand_in, byte in enumerate(self._hidden, 1):
            self._stand_in[byte], self._meaning[stand_in] = stand_in, byte
        self._left = b""

    def of(self, block: bytes, last: bool = False) -> bytes:
        """Return a block of the file with stand-ins.  A last byte whose meaning depends on the next block waits for it.
        """
        found = np.frombuffer(self._left + block, np.uint8).copy()
        self._left = b""
        active = _active(found, self._escape)
        if not last and len(found) and (active[-1] or (found[-1] == CR and not active[-2:-1].any())):
            self._left = found[-1:].tobytes()
            found, active = found[:-1], active[:-1]
        at = np.flatnonzero(active[: len(found) - 1])  # an escape at the end of the file escapes nothing
        next_bytes = found[at + 1]
        found[at + 1] = self._stand_in[next_bytes]
        keep = np.ones(len(found), np.bool_)
        keep[at[(next_bytes >= 1) & (next_bytes <= len(self._hidden))]] = False  # a control character, not a stand-in
        return self._without_lone_ends(found, keep)

    def _without_lone_ends(self, found: Bytes, keep: npt.NDArray[np.bool_]) -> bytes:
        """Replace a CR without a following LF by an escape and its stand-in: it belongs to a value."""
        ends = np.flatnonzero(found == CR)
        lone = ends[(ends + 1 < len(found)) & (found[np.minimum(ends + 1, len(found) - 1)] != LF)]
        found[lone] = self._stand_in[CR]
        escaped = np.insert(found, lone, self._escape)
        data: bytes = escaped[np.insert(keep, lone, True)].tobytes()
        return data

    def unescaped(self, texts: pa.Array) -> pa.Array:
        """Replace the escapes in the texts by their meaning."""
        large = texts.cast(pa.large_string())
        offsets = np.frombuffer(large.buffers()[1], np.int64)[large.offset : large.offset + len(large) + 1]
        held = large.buffers()[2]
        data = np.frombuffer(held if held is not None else b"", np.uint8)[offsets[0] : offsets[-1]].copy()
        at = np.flatnonzero(_active(data, self._escape)[:-1])
        if not len(at):
            return texts
        data[at + 1] = self._meaning[data[at + 1]]
        keep = np.ones(len(data), np.bool_)
        keep[at] = False
        before = np.concatenate(([0], np.cumsum(~keep)))
        starts = offsets - offsets[0]
        valid = pa.array(large.is_valid()).buffers()[1] if large.null_count else None
        return pa.Array.from_buffers(pa.large_string(), len(large), [
            valid, pa.py_buffer((starts - before[starts]).astype(np.int64)), pa.py_buffer(data[keep])])


def _active(found: Bytes, escape: int) -> npt.NDArray[np.bool_]:
    """Return which bytes are escapes that are not escaped themselves."""
    places = np.arange(len(found))
    is_escape = found == escape
    last_other = np.maximum.accumulate(np.where(is_escape, -1, places)) if len(found) else places
    active: npt.NDArray[np.bool_] = is_escape & ((places - last_other) % 2 == 1)
    return active
