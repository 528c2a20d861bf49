r"""Splits the content of a file into rows, as LOAD DATA does.

    1\tone\\\tmore\t\\N\n   →   ('1', 'one\tmore', None)

Keeps true: a field in quotes may have separators, and its quote doubled.  After the escape character, 0, b, n, r, t and
Z are control characters; \N alone, or NULL where fields are quoted and this one is not, is NULL.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from noria.sql.session_commands import FileFormat

Row = tuple[str | None, ...]
_LETTERS = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a"}


def rows_of(text: str, form: FileFormat, skipped: int) -> Iterator[Row]:
    """The rows of a text, without the first `skipped` lines."""
    plain = not form.enclosed and (not form.escaped or form.escaped not in text) and not form.starting
    if plain:
        lines = text.split(form.lines)
        if not lines[-1]:
            lines.pop()
        for line in lines[skipped:]:
            yield tuple(line.split(form.fields))
        return
    yield from _read(text, form, skipped)


def _read(text: str, form: FileFormat, skipped: int) -> Iterator[Row]:
    field, at, line = _field(form), 0, 0
    while at < len(text):
        if form.starting:
            found = text.find(form.starting, at)
            if found < 0:
                return
            at = found + len(form.starting)
        row: list[str | None] = []
        while True:
            m = field.match(text, at)
            assert m is not None  # the last alternative matches anything
            row.append(_value(m, form))
            at = m.end()
            if m["end"] != form.fields:
                break
        line += 1
        if line > skipped:
            yield tuple(row)


def _field(form: FileFormat) -> re.Pattern[str]:
    """A field and what ends it: the next field, the line's end or the text's."""
    fields, lines, escape = re.escape(form.fields), re.escape(form.lines), re.escape(form.escaped)
    pair = rf"|{escape}." if escape else ""
    end = rf"(?P<end>{fields}|{lines}|\Z)"
    bare = rf"(?P<bare>(?:(?!{fields}|{lines}){f'[^{escape}]' if escape else '.'}{pair})*+(?:{escape}\Z)?)"
    if not form.enclosed:
        return re.compile(bare + end, re.DOTALL)
    quote = re.escape(form.enclosed)
    inner = rf"{quote}(?P<quoted>(?:[^{quote}{escape}]{pair}|{quote}{quote})*+){quote}"
    return re.compile(rf"(?:{inner}|{bare}){end}", re.DOTALL)


def _value(m: re.Match[str], form: FileFormat) -> str | None:
    quoted = m["quoted"] if form.enclosed else None
    text = m["bare"] if quoted is None else quoted.replace(form.enclosed * 2, form.enclosed)
    if quoted is None and ((form.escaped and text == form.escaped + "N") or (form.enclosed and text == "NULL")):
        return None
    if not form.escaped or form.escaped not in text:
        return text
    return re.sub(re.escape(form.escaped) + "(.)", lambda e: _LETTERS.get(e[1], e[1]), text, flags=re.DOTALL)


__all__ = ["Row", "rows_of"]
