"""MySQL's conditional comments: `/*!40101 SET NAMES utf8mb4 */` is a statement, for a server that is new enough.

Dumps and many drivers write them.  Keeps true: every position in the text stays what it was; what stands in quotes
or in another comment is not touched.
"""

from __future__ import annotations

import re

from noria.core.errors import parse_error

SHOWN = 80  # characters of the text in an error
VERSION = 80_040  # the MySQL that we are like; what is for a later one stays a comment
# What is not ended goes on to the end of the text.  No part is looked at twice, whatever stands in it: a text of quotes
# and beginnings of comments takes no more time than another one.
ENDED = r"""'(?:[^'\\]+|\\.|'')*+'|"(?:[^"\\]+|\\.|"")*+\""""
STRING = rf"""{ENDED}|['"].*"""
NAME = r"`[^`]*+(?:`|\Z)"
COMMENT = r"/\*.*?(?:\*/|\Z)|\#[^\n]*|--(?=\s|\Z)[^\n]*"
WITHIN = rf"""(?:[^'"`*/]+|{STRING}|{NAME}|/\*.*?(?:\*/|\Z)|(?!\*/).)*+"""  # what a conditional comment holds
_PARTS = re.compile(rf"{STRING}|{NAME}|/\*!(\d{{5,6}}|)({WITHIN})(\*/|\Z)|{COMMENT}", re.DOTALL)


def opened(text: str) -> str:
    """The text with blanks for the frames of conditional comments that hold for us.  SqlError for one without an end.

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
