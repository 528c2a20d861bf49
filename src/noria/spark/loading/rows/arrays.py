"""Converts a JSON array of objects to JSON lines, one block of bytes at a time.

Line ends become spaces, and commas between elements become line ends.  So each element is one line.  Nothing is parsed
here: an element with invalid JSON is a bad row for the reader of the lines.

Keeps true: every element is written, in order, on its own line.  An array without an end, or with text behind its end,
is refused.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

QUOTE, COMMA, ESCAPE, LINE, SPACE = (ord(c) for c in '",\\\n ')
BLANKS = np.frombuffer(b" \t\r\n", np.uint8)
Bits = npt.NDArray[np.bool_]


class NoArray(Exception):
    """The bytes are not one array; the message says why."""


class Lines:
    """Converts blocks in turn, with the state at the end of the last one.

    `depth`: of nested brackets.  `in_text`: the block ended inside a text.  `escapes`: it ended with a backslash that
    escapes the next byte.  `over`: the array has ended.
    """

    def __init__(self) -> None:
        self.depth, self.in_text, self.escapes, self.over = 0, False, False, False

    def of(self, block: bytes) -> bytes:
        """Convert the next block to lines.  Raises NoArray if other text follows the array."""
        found = np.frombuffer(block, np.uint8)
        if not len(found):
            return b""
        outside = self._outside(found)
        opens = outside & _any(found, b"[{")
        closes = outside & _any(found, b"]}")
        depth = self.depth + np.cumsum(opens.astype(np.int32) - closes)
        self._check_end(found, np.flatnonzero(closes & (depth == 0)))
        made = found.copy()
        made[outside & _any(found, b"\r\n")] = SPACE
        made[outside & (found == COMMA) & (depth == 1)] = LINE
        made[opens & (depth == 1)] = SPACE
        made[closes & (depth == 0)] = LINE
        self.depth = int(depth[-1])
        return made.tobytes()

    def _outside(self, found: npt.NDArray[np.uint8]) -> Bits:
        """Return which bytes are outside of texts and their quotation marks."""
        places = np.arange(len(found))
        slashes = found == ESCAPE
        last_other = np.maximum.accumulate(np.where(slashes, -1 - self.escapes, places))
        odd = ((places - last_other) & 1).astype(np.bool_)  # the run of backslashes up to here has odd length
        escaped = np.concatenate(([self.escapes], odd[:-1]))
        quotes = (found == QUOTE) & ~escaped
        within = ((np.cumsum(quotes) + self.in_text) & 1).astype(np.bool_)
        self.in_text, self.escapes = bool(within[-1]), bool(odd[-1])
        outside: Bits = ~within & ~quotes
        return outside

    def _check_end(self, found: npt.NDArray[np.uint8], ends: npt.NDArray[np.int64]) -> None:
        """Raise NoArray unless only blanks follow the array's end."""
        after = 0 if self.over else int(ends[0]) + 1 if len(ends) else len(found)
        if not np.isin(found[after:], BLANKS).all():
            raise NoArray("more follows after the array's end")
        self.over = self.over or len(ends) > 0

    def end(self) -> None:
        if self.depth or self.in_text:
            raise NoArray("the array does not end: the file is cut off, or a quotation mark or bracket is missing")


def _any(found: npt.NDArray[np.uint8], of: bytes) -> Bits:
    return np.isin(found, np.frombuffer(of, np.uint8))


def begins_array(head: bytes) -> bool:
    """Whether these first bytes of a file begin a JSON array.  A file of JSON lines never begins with a bracket."""
    return head.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"[")
