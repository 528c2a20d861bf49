"""Tokenizes plain texts by one regular expression; sqlglot reads other texts a character at a time.

A plain text has words, numbers, strings without escapes, names in backticks and signs.  Keeps true: its tokens equal
sqlglot's, positions included.  `Plain.tokens` returns None for a text with anything else: comments, variables,
prefixed strings, keywords of several words except GROUP BY and ORDER BY.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from sqlglot.tokenizer_core import Token, TokenType

_TOKEN = re.compile(
    r"""\s*+(?:
        ((?:group|order)[ \t]++by)(?![\w$])
      | ([a-z_]\w*+)(?![$'"@\\]|[^\x00-\x7f])
      | (?<![\w.$@])([0-9]++(?:\.[0-9]++)?)(?![\w.$@]|[^\x00-\x7f])
      | (?<![\w$@])'([^'\\]*+)'(?!')
      | (?<![\w$@])"([^"\\]*+)"(?!")
      | `([^`\\]++)`(?!`)
      | (<=>|<=|>=|<>|!=|[,().;*]|=(?![=>])|<(?![<>=-])|>(?!=)|\+(?![%}])|-(?![->|}%])|/(?!\*)|%(?!})|\?(?![?:\w]))
      | (.)
    )""", re.VERBOSE | re.ASCII | re.IGNORECASE | re.DOTALL)
_BY, _WORD, _NUMBER, _STRING, _DOUBLE, _NAME, _SIGN, _DOUBT = range(1, 9)
_DOUBTFUL = re.compile(r"[\r\v\f\x1c-\x1f]|-defined", re.IGNORECASE)


class Plain:
    """The tokenizer.  `keywords`: sqlglot's words and signs.  `signs`: those of one character."""

    def __init__(self, keywords: Mapping[str, TokenType], signs: Mapping[str, TokenType]):
        self._keywords, self._signs = keywords, {**signs, **{k: v for k, v in keywords.items() if not k[0].isalpha()}}
        self._several = {k.split(" ")[0] for k in keywords if " " in k}  # first words of keywords with several words

    def tokens(self, text: str) -> list[Token] | None:
        """The tokens of a plain text; None for any other text."""
        if _DOUBTFUL.search(text) is not None:
            return None
        found: list[Token] = []
        text = text.rstrip(" \t\n")
        line, began, newline = 1, 0, text.find("\n")
        for m in _TOKEN.finditer(text):
            kind = m.lastindex
            assert kind is not None  # the last alternative matches any character
            said, start, end = m[kind], m.start(kind), m.end(kind)
            if kind == _WORD:
                upper = said.upper()
                if upper in self._several:
                    return None
                token = self._keywords.get(upper, TokenType.VAR)
            elif kind == _SIGN:
                token = self._signs[said]
            elif kind == _NUMBER:
                token = TokenType.NUMBER
            elif kind == _BY:
                said = " ".join(said.upper().split())
                token = self._keywords[said]
            elif kind == _DOUBT:
                return None
            else:
                token, start, end = TokenType.IDENTIFIER if kind == _NAME else TokenType.STRING, start - 1, end + 1
            while -1 < newline < end:
                if newline > start:
                    return None
                line, began = line + 1, newline + 1
                newline = text.find("\n", began)
            found.append(Token(token, said, line, end - began, start, end - 1))
        return found
