"""MySQL's conditional comments: `/*!40101 SET NAMES utf8mb4 */` is a statement, for a server that is new enough.

Dumps and many drivers write them.  Keeps true: every position in the text stays what it was; what stands in quotes
or in another comment is not touched.
"""

from __future__ import annotations

import re

VERSION = 80_040  # the MySQL that we are like; what is for a later one stays a comment
_QUOTED = r"""'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*"|`[^`]*`"""
WITHIN = rf"(?>(?:{_QUOTED}|/\*.*?\*/|(?!\*/).)*)"  # a conditional comment ends neither in quotes nor with one in it
_PARTS = re.compile(
    rf"{_QUOTED}|\#[^\n]*|--(?=\s|$)[^\n]*|/\*!(\d{{5,6}}|)({WITHIN})\*/|/\*.*?\*/", re.DOTALL)


def opened(text: str) -> str:
    """The text with blanks for the frames of conditional comments that hold for us.

    >>> opened("/*!40101 SET NAMES utf8 */")
    '         SET NAMES utf8   '
    """
    return _PARTS.sub(_opened, text) if "/*!" in text else text


def _opened(part: re.Match[str]) -> str:
    if part[2] is None or int(part[1] or 0) > VERSION:
        return part[0]
    return " " * (3 + len(part[1])) + part[2] + "  "

