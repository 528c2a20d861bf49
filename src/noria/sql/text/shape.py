"""Splits a query text into its shape and its literals, in one pass of a few microseconds (design/decisions.md, 5).

    SELECT a FROM t WHERE id = 7 AND b = 'x'   →   SELECT a FROM t WHERE id = ? AND b = ?,  (7, 'x')

The numbers of LIMIT and OFFSET stay in the shape: they decide which view answers.

The lexer only recognises.  A cache of shapes parses a text and its shape once, and uses the shape only if binding the
literals to it makes the text's command.  Keeps true: `shape_of` returns None for every text that it does not fully
recognise (comments, parameters, several statements, variables, prefixed strings); the parser decides those.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

from noria.sql.text.comments import COMMENT, NAME, STRING, WITHIN

# The first character is matched by a set, to which the regular expression engine skips quickly; look-behinds then
# test which it was.  A sign stays in the shape: only the parser knows whether it is a sign or a minus.
_LITERAL = re.compile(
    r"""(['"0-9](?:(?<=')(?:[^'\\]|\\.|'')*'|(?<=")(?:[^"\\]|\\.|"")*\""""
    r"""|(?<=[0-9])(?<![\w.$@`\\][0-9])[0-9]*(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?(?![\w.$`])))""", re.DOTALL)
_DOUBTFUL = re.compile(
    r"[;#@\\?/'\"-](?:(?<=[;#@\\'\"])|(?<=-)-|(?<=/)\*|(?<=[\w?]\?)|(?<=\?)(?:\s*\?|\w))")
_BEFORE_END = re.compile(r"\b(?:limit|offset)\s+(?:\d+\s*,\s*)?\Z", re.IGNORECASE)
_QUOTED_NAME = re.compile(r"`[\w$]+`")
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}
_SPLIT = re.compile(rf"{STRING}|{NAME}|/\*!{WITHIN}(?:\*/|\Z)|{COMMENT}|(;)", re.DOTALL)
LONGEST = 16_384  # characters; a longer text is parsed


def shape_of(text: str) -> tuple[str, list[Any]] | None:
    """The text with `?` for each literal, and the literals' values; None if the text is not fully recognised."""
    if len(text) > LONGEST:
        return None
    parts = _LITERAL.split(text)
    shape = "?".join(parts[::2])
    if _DOUBTFUL.search(shape) is not None or shape.count("?") != len(parts) >> 1:
        return None
    if "`" in shape and shape.count("`") != 2 * len(_QUOTED_NAME.findall(shape)):
        return None
    if "limit" in (folded := shape.lower()) or "offset" in folded:
        parts = _with_ends(parts)
        shape = "?".join(parts[::2])
    try:
        return shape, [int(p) if p.isdigit() else literal_of(p) for p in parts[1::2]]
    except ValueError:  # thousands of digits: the parser reports the error
        return None


def _with_ends(parts: list[str]) -> list[str]:
    """Merge the literals of LIMIT and OFFSET into the texts around them.  `parts`: texts and literals in turn."""
    found = parts[:1]
    for literal, after in zip(parts[1::2], parts[2::2], strict=True):
        if _BEFORE_END.search(found[-1]) is not None:
            found[-1] += literal + after
        else:
            found += [literal, after]
    return found


def literal_of(token: str) -> Any:
    """The Python value of a string or number token, as MySQL reads it."""
    quote = token[0]
    if quote == "'" or quote == '"':
        inner = token[1:-1]
        if "\\" in inner:
            return _unescaped(_unquoted(inner, quote))
        return inner.replace(quote * 2, quote) if quote in inner else inner
    if "e" in token or "E" in token:
        return float(token)
    return Decimal(token) if "." in token else int(token)


def _unquoted(inner: str, quote: str) -> str:
    """Replace doubled quotes by single ones, except escaped quotes."""
    return re.sub(r"\\.|" + quote * 2, lambda m: m[0] if m[0][0] == "\\" else quote, inner, flags=re.DOTALL)


def _unescaped(inner: str) -> str:
    return _ESCAPE.sub(lambda m: _ESCAPES.get(m[1], m[1]), inner)


def split(text: str) -> list[str]:
    """Split a text into its statements.  Semicolons in strings and comments do not separate."""
    if ";" not in text:
        return [text] if text.strip() else []
    ends = [m.start() for m in _SPLIT.finditer(text) if m[1]]
    starts = [0, *(e + 1 for e in ends)]
    found = [text[a:b].strip() for a, b in zip(starts, [*ends, len(text)], strict=True)]
    return [s for s in found if s]
