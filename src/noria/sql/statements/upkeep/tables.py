"""Reads ANALYZE, OPTIMIZE, CHECK, REPAIR and CHECKSUM TABLE, and SHOW GRANTS."""

from __future__ import annotations

from typing import Protocol

from noria.core.errors import not_supported
from noria.sql.session_commands import NoOp, Show

_OPTIONS = {"CHECK": ("FOR UPGRADE", "QUICK", "FAST", "MEDIUM", "EXTENDED", "CHANGED"),
            "REPAIR": ("QUICK", "EXTENDED", "USE_FRM"), "CHECKSUM": ("QUICK", "EXTENDED")}


class Words(Protocol):
    """The words of a statement, read one after the other (`session.py`)."""

    def take(self, *words: str) -> bool: ...
    def name(self) -> str: ...
    def dotted(self) -> str: ...
    def near(self) -> str: ...
    def end(self) -> None: ...
    def word_before(self) -> str: ...


def upkeep(r: Words) -> NoOp:
    """ANALYZE and OPTIMIZE do nothing: there are no statistics, and RocksDB compacts by itself.  The options of CHECK,
    REPAIR and CHECKSUM change nothing."""
    word = r.word_before()
    r.take("NO_WRITE_TO_BINLOG") or r.take("LOCAL")
    if not (r.take("TABLE") or r.take("TABLES")):
        raise not_supported(f"{word} {r.near()[:40]}", f"there is {word} TABLE")
    tables = [r.dotted()]
    while r.take(","):
        tables.append(r.dotted())
    while any(r.take(*option.split()) for option in _OPTIONS.get(word, ())):
        pass
    r.end()
    return NoOp(word.lower(), tuple(tables))


def grants(r: Words, current: str = "CURRENT_USER") -> Show:
    """SHOW GRANTS [FOR user]: the user's name, "" for the session's own."""
    user = ""
    if r.take("FOR"):
        user = r.name()
        if user.upper() in (current, "CURRENT_ROLE"):
            r.take("(", ")")
            user = ""
        elif r.take("@"):
            r.name()
    r.end()
    return Show("grants", user)


__all__ = ["grants", "upkeep"]
