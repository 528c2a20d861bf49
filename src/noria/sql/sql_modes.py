"""Translates texts of sessions whose sql_mode changes the dialect to MySQL's default dialect.

    ANSI_QUOTES           "a b"     →   `a b`
    NO_BACKSLASH_ESCAPES  'C:\\x'    →   'C:\\\\x', and LIKE has no escape character
    PIPES_AS_CONCAT       a || b    →   a CONCAT_SIGN b
    REAL_AS_FLOAT         REAL      →   FLOAT

So the rest of the system knows one dialect.  Two signs that no client writes stand for what the default dialect lacks
(`text/syntax.py`).  IGNORE_SPACE needs no translation: spaces before brackets are read in every mode.

Keeps true: a translated text means in the default dialect what the text means in its own.  Comments stay.  A LIKE stays
if it means the same there: before a pattern without a backslash, in SHOW, in CREATE TABLE … LIKE.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import lru_cache

from noria.core.errors import not_supported
from noria.sql.text.databases import modes_of
from noria.sql.text.syntax import CONCAT_SIGN, LIKE_SIGN

ANSI_QUOTES, NO_ESCAPES, PIPES, REAL = "ANSI_QUOTES", "NO_BACKSLASH_ESCAPES", "PIPES_AS_CONCAT", "REAL_AS_FLOAT"
TRANSLATED = (ANSI_QUOTES, NO_ESCAPES, PIPES, REAL)
EXPANDED = {"ANSI": (REAL, PIPES, ANSI_QUOTES, "IGNORE_SPACE", "ONLY_FULL_GROUP_BY"),
            "TRADITIONAL": ("STRICT_TRANS_TABLES", "STRICT_ALL_TABLES", "NO_ZERO_IN_DATE", "NO_ZERO_DATE",
                            "ERROR_FOR_DIVISION_BY_ZERO", "NO_ENGINE_SUBSTITUTION")}
_LEAD = r"(?:\s|/\*(?!!).*?\*/|/\*!\d*|\#[^\n]*|--(?=\s)[^\n]*)*+"  # what may precede the first word
_NAME = r"(?:`[^`]*`|\"[^\"]*\"|[\w$]+)"
_FIRST = re.compile(rf"{_LEAD}(?:(?P<definition>create|alter)|(?P<show>show))\b", re.IGNORECASE | re.DOTALL)
_COPY = re.compile(rf"{_LEAD}create\s+(?:temporary\s+)?table\s+(?:if\s+not\s+exists\s+)?{_NAME}\s*(?:\.\s*{_NAME}\s*)?"
                   r"(?:\(\s*)?", re.IGNORECASE | re.DOTALL)  # CREATE TABLE a LIKE b, before LIKE
_SAME = r"\s*+'[^'\\]*+'(?=\s*+(?:\Z|[);,]|(?:and|or|escape|order|group|having|limit)\b))"  # a pattern without escapes
_WITH_ESCAPES, _WITHOUT = (rf"{q}(?:[^{q}\\]|\\.|{q}{q})*+(?:{q}|\Z)" for q in "'\""), (
    rf"{q}(?:[^{q}]|{q}{q})*+(?:{q}|\Z)" for q in "'\"")
_STRINGS = {True: tuple(_WITHOUT), False: tuple(_WITH_ESCAPES)}


def in_default_dialect(text: str, namespace: str) -> str:
    """Return the text that means the same to sessions without these modes.  namespace: of the session.

    Raises SqlError 1235 for `||` in a definition, whose text is kept.
    """
    modes = modes_of(namespace)
    return text if not modes else _translated(text, frozenset(modes.split(",")))


def _translated(text: str, modes: Collection[str]) -> str:
    first = _FIRST.match(text)
    definition = first is not None and first.lastgroup == "definition"
    shows = first is not None and first.lastgroup == "show"

    def part(m: re.Match[str]) -> str:
        said = m[0]
        if said[0] == "'":
            return said.replace("\\", "\\\\") if NO_ESCAPES in modes else said
        if said[0] == '"':
            return _quoted(said, modes)
        if said == "||":
            if definition:
                raise not_supported("|| in a definition in a session with PIPES_AS_CONCAT", "write CONCAT(…)")
            return CONCAT_SIGN
        if said[0] in "lL" and m.lastgroup == "like":
            copies = definition and _COPY.fullmatch(text, 0, m.start())
            return said if copies or shows else LIKE_SIGN
        return "FLOAT" if m.lastgroup == "real" else said

    return _parts(frozenset(modes), definition).sub(part, text)


def _quoted(said: str, modes: Collection[str]) -> str:
    """A part in double quotes: a name or a string."""
    if ANSI_QUOTES not in modes:
        return said.replace("\\", "\\\\") if NO_ESCAPES in modes else said
    if len(said) < 2 or said[-1] != '"':
        return said  # it does not end: the parser reports it
    return "`" + said[1:-1].replace('""', '"').replace("`", "``") + "`"


@lru_cache(64)
def _parts(modes: frozenset[str], definition: bool) -> re.Pattern[str]:
    single, double = _STRINGS[NO_ESCAPES in modes]
    name = _STRINGS[True][1] if ANSI_QUOTES in modes else double
    parts = [single, name, r"`[^`]*+(?:`|\Z)", r"/\*(?!!).*?(?:\*/|\Z)|\#[^\n]*|--(?=\s|\Z)[^\n]*"]
    if PIPES in modes:
        parts.append(r"\|\|")
    if NO_ESCAPES in modes:
        parts.append(rf"(?P<like>(?<![\w$@.])like(?![\w$])(?!{_SAME}))")
    if REAL in modes and definition:
        parts.append(r"(?P<real>(?<![\w$@.])real(?![\w$]))")
    return re.compile("|".join(parts), re.IGNORECASE | re.DOTALL)


__all__ = ["EXPANDED", "TRANSLATED", "in_default_dialect"]
