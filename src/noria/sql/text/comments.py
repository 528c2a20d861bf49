"""Opens MySQL's conditional comments: `/*!40101 SET NAMES utf8mb4 */` is a statement for a server from 4.1.1 on.

Dumps and many drivers write them.  Keeps true: every position in the text stays the same.  Quoted text and other
comments are not changed.
"""

from __future__ import annotations

import re

from noria.core.errors import parse_error

SHOWN = 80  # characters of the text in an error
VERSION = 80_040  # the MySQL version that we resemble; text for a later one stays a comment
# An unterminated part extends to the end of the text.  No part is scanned twice, so a text full of quotes and
# beginnings of comments takes no more time than any other.
ENDED = r"""'(?:[^'\\]+|\\.|'')*+'|"(?:[^"\\]+|\\.|"")*+\""""
STRING = rf"""{ENDED}|['"].*"""
NAME = r"`[^`]*+(?:`|\Z)"
COMMENT = r"/\*.*?(?:\*/|\Z)|\#[^\n]*|--(?=\s|\Z)[^\n]*"
WITHIN = rf"""(?:[^'"`*/]+|{STRING}|{NAME}|/\*.*?(?:\*/|\Z)|(?!\*/).)*+"""  # the content of a conditional comment
_PARTS = re.compile(rf"{STRING}|{NAME}|/\*!(\d{{5,6}}|)({WITHIN})(\*/|\Z)|{COMMENT}", re.DOTALL)


def opened(text: str) -> str:
    """Replace the delimiters of conditional comments that apply to VERSION by blanks.  Raises SqlError for an
    unterminated one.

    >>> opened("/*!40101 SET NAMES utf8 */")
    '         SET NAMES utf8   '
    """
    return _PARTS.sub(_opened, text) if "/*!" in text else text


def _opened(part: re.Match[str]) -> str:
    if part[2] is None or int(part[1] or 0) > VERSION:
        return part[0]
    if not part[3]:
        raise parse_error(f"a comment that does not end, or has a quote in it that does not, near '{part[0][:SHOWN]}'")
    return " " * (3 + len(part[1])) + part[2] + "  "
