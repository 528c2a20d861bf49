"""Reads INSERT … VALUES with literal rows by one regular expression: ten thousand rows in a few milliseconds.

The statement is prepared once with one row of `?` in place of its rows; then the rows are inserted into the command.
Keeps true: `insert` returns None for every text that it does not fully recognise; the parser then decides.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from noria.core.errors import wrong_value_count
from noria.core.expressions.functions import HexLiteral
from noria.core.statements import DEFAULT, Insert
from noria.sql.commands import PlannedStatement
from noria.sql.text.shape import literal_of

_HEAD = re.compile(r"\s*(?:INSERT|REPLACE)\b[^'\"?;()#*/-]*?(?:\([^'\"?;()#*/-]*\)\s*)?\bVALUES?\s*(?=\()",
                   re.IGNORECASE)
_LITERAL = (  # also bytes as dumps write them
    r"('(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.|\"\")*\"|[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
    r"|(?:NULL|TRUE|FALSE|DEFAULT)\b|X'(?:[0-9A-F]{2})*'|0x(?:[0-9A-F]{2})+\b|_binary\s*'(?:[^'\\]|\\.|'')*')")
_FIRST = re.compile(r"\s*\(")
_VALUE = re.compile(rf"\s*{_LITERAL}\s*([,)])", re.IGNORECASE | re.DOTALL)
_COMMA = re.compile(r"\s*,")
_WORDS = {"NULL": None, "TRUE": True, "FALSE": False, "DEFAULT": DEFAULT}
_HEX = re.compile("0x|x'", re.IGNORECASE)
SHORTEST = 400  # characters: below, the parser is fast enough and its errors say more


def head_of(text: str) -> str:
    """A short text that names the same tables and columns as an INSERT of literal rows; any other text itself."""
    head = _HEAD.match(text) if len(text) >= SHORTEST else None
    if head is None:
        return text
    try:
        found = _rows(text, head.end())
    except ValueError:
        return text
    return text if found is None else f"{head[0]} ({', '.join(['?'] * len(found[0][0]))}) {text[found[1]:]}"


def insert(text: str, prepare: Callable[[str], PlannedStatement]) -> Insert | None:
    """Read an INSERT or REPLACE of literal rows; None for any other text.  Raises SqlError for rows of different
    lengths."""
    if len(text) < SHORTEST:
        return None
    head = _HEAD.match(text)
    if head is None:
        return None
    try:
        found = _rows(text, head.end())
    except ValueError:  # thousands of digits: the parser reports the error
        return None
    if found is None:
        return None
    rows, end = found
    rest = text[end:].strip().rstrip(";").strip()
    if rest and ("?" in rest or not rest.upper().startswith("ON DUPLICATE")):
        return None
    width = len(rows[0])
    hexadecimal = {at for row in rows for at, v in enumerate(row) if type(v) is HexLiteral} if _HEX.search(text) else ()
    marks = ("0x00" if at in hexadecimal else "?" for at in range(width))
    command = prepare(f"{head[0]} ({', '.join(marks)}) {rest}").command
    if not isinstance(command, Insert):
        return None
    for number, row in enumerate(rows, 1):
        if len(row) != width:
            raise wrong_value_count(number)
    if hexadecimal:  # 0x00 has become a number where the column is one
        numbers = [type(v) is int and at in hexadecimal for at, v in enumerate(command.rows[0])]
        rows = [tuple([(int(v) if number else bytes(v)) if type(v) is HexLiteral else v
                       for v, number in zip(row, numbers, strict=True)]) for row in rows]
    return Insert(command.table, command.columns, tuple(rows), command.on_duplicate, command.assignments)


def _rows(text: str, at: int) -> tuple[list[tuple[Any, ...]], int] | None:
    """Read the rows from `at`.  Returns them and their end, or None if they have anything but literals."""
    found = _row(text, _FIRST.match(text, at))
    if found is None:
        return None
    rows = [found[0]]
    at = found[1]
    match = _like_the_first(len(rows[0])).match
    while True:
        same = match(text, at)
        if same is not None:
            rows.append(tuple([int(v) if v.isdigit() else _value(v) for v in same.groups()]))
            at = same.end()
            continue
        comma = _COMMA.match(text, at)
        if comma is None:
            return rows, at
        found = _row(text, _FIRST.match(text, comma.end()))
        if found is None:
            return None
        rows.append(found[0])
        at = found[1]


def _row(text: str, bracket: re.Match[str] | None) -> tuple[tuple[Any, ...], int] | None:
    """Read one row, value by value.  Returns it and its end."""
    row: list[Any] = []
    found = bracket
    while found is not None:
        found = _VALUE.match(text, found.end())
        if found is None:
            return None
        row.append(_value(found[1]))
        if found[2] == ")":
            return tuple(row), found.end()
    return None


@lru_cache(maxsize=64)
def _like_the_first(width: int) -> re.Pattern[str]:
    """A pattern that matches a comma and a row of `width` literals."""
    values = r"\s*,\s*".join([_LITERAL] * width)
    return re.compile(rf"\s*,\s*\(\s*{values}\s*\)", re.IGNORECASE | re.DOTALL)


def _value(token: str) -> Any:
    if token.isdigit():
        return int(token)
    word = _WORDS.get(token.upper(), _WORDS)
    if word is not _WORDS:
        return word
    first = token[0]
    if first in "xX" or (first == "0" and token[1:2] in "xX"):
        return HexLiteral(bytes.fromhex(token[2:].rstrip("'")))
    return literal_of(token) if first != "_" else literal_of(token[token.index("'"):]).encode()
