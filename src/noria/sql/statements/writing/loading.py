"""Reads LOAD DATA LOCAL INFILE.

    LOAD DATA LOCAL INFILE 'f' INTO TABLE t FIELDS TERMINATED BY ',' ENCLOSED BY '"' IGNORE 1 LINES (a, @skipped, b)

Keeps true: what it accepts decides which values are stored.  A file of the server, XML, SET and files without
separators are refused.
"""

from __future__ import annotations

from noria.core.errors import SqlError, not_supported, parse_error
from noria.core.errors.codes import UNKNOWN_CHARACTER_SET
from noria.sql.session_commands import FileFormat, LoadData
from noria.sql.words import Words

_CHARSETS = ("utf8mb4", "utf8", "utf8mb3", "ascii", "binary")


def load(r: Words) -> LoadData:
    """Read the statement from behind LOAD."""
    if not r.take("DATA"):
        raise not_supported("LOAD of anything but DATA", "load files with `noria load`")
    r.take("LOW_PRIORITY") or r.take("CONCURRENT")
    if not r.take("LOCAL"):
        raise not_supported("LOAD DATA of a file on the server", "use LOAD DATA LOCAL, or `noria load`")
    if not r.take("INFILE"):
        raise parse_error(f"INFILE is missing, near '{r.near()}'")
    r.string()  # the conversation has asked the client for it
    on_duplicate = "replace" if r.take("REPLACE") else "ignore"
    if on_duplicate == "ignore":
        r.take("IGNORE")
    if not r.take("INTO", "TABLE"):
        raise parse_error(f"INTO TABLE is missing, near '{r.near()}'")
    table = r.dotted()
    if r.take("PARTITION"):
        raise not_supported("LOAD DATA into partitions", "leave PARTITION out")
    if r.take("CHARACTER", "SET") or r.take("CHARSET"):
        charset = r.next().text
        if charset.lower() not in _CHARSETS:
            raise SqlError(*UNKNOWN_CHARACTER_SET, f"Unknown character set: '{charset}'; files are in UTF-8")
    form = _format(r)
    skipped = 0
    if r.take("IGNORE"):
        skipped = r.number()
        if not (r.take("LINES") or r.take("ROWS")):
            raise parse_error(f"LINES is missing, near '{r.near()}'")
    columns = _columns(r)
    if r.take("SET"):
        raise not_supported("LOAD DATA … SET", "load into another table, and INSERT … SELECT from it")
    r.end()
    return LoadData(table, on_duplicate, form, skipped, columns)


def _format(r: Words) -> FileFormat:
    terminated, enclosed, escaped, starting, lines = "\t", "", "\\", "", "\n"
    if r.take("FIELDS") or r.take("COLUMNS"):
        while True:
            if r.take("TERMINATED", "BY"):
                terminated = r.string()
            elif r.take("OPTIONALLY", "ENCLOSED", "BY") or r.take("ENCLOSED", "BY"):
                enclosed = r.string()
            elif r.take("ESCAPED", "BY"):
                escaped = r.string()
            else:
                break
    if r.take("LINES"):
        while True:
            if r.take("STARTING", "BY"):
                starting = r.string()
            elif r.take("TERMINATED", "BY"):
                lines = r.string()
            else:
                break
    if len(enclosed) > 1 or len(escaped) > 1:
        raise parse_error("ENCLOSED BY and ESCAPED BY take one character at most")
    if not terminated or not lines:
        raise not_supported("LOAD DATA of fields or lines without a separator", "give TERMINATED BY")
    return FileFormat(terminated, enclosed, escaped, starting, lines)


def _columns(r: Words) -> tuple[str, ...] | None:
    """The names of the columns in brackets; "" for a variable, whose field is skipped.  None without brackets."""
    if not r.take("("):
        return None
    found: list[str] = []
    while not r.take(")"):
        if found and not r.take(","):
            raise parse_error(f"near '{r.near()}'")
        if r.take("@"):
            r.name()
            found.append("")
        elif r.word.startswith("@"):
            r.next()
            found.append("")
        else:
            found.append(r.name())
    return tuple(found)


__all__ = ["load"]
