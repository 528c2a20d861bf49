"""Reads ANALYZE, OPTIMIZE, CHECK, REPAIR and CHECKSUM TABLE, and FLUSH."""

from __future__ import annotations

from noria.core.errors import not_supported
from noria.sql.session_commands import FlushHosts, NoOp
from noria.sql.words import Words

_OPTIONS = {"CHECK": ("FOR UPGRADE", "QUICK", "FAST", "MEDIUM", "EXTENDED", "CHANGED"),
            "REPAIR": ("QUICK", "EXTENDED", "USE_FRM"), "CHECKSUM": ("QUICK", "EXTENDED")}


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


_FLUSHED = ("PRIVILEGES", "TABLES", "TABLE", "LOGS", "HOSTS", "BINARY LOGS", "ENGINE LOGS", "ERROR LOGS",
            "GENERAL LOGS", "SLOW LOGS")  # no effect: acknowledged writes are on disk, and no cache is visible


def flush(r: Words) -> FlushHosts | NoOp:
    r.take("NO_WRITE_TO_BINLOG") or r.take("LOCAL")
    what = r.near_all().upper()
    if what not in _FLUSHED:
        raise not_supported(f"FLUSH {r.near()[:40]}", f"there are FLUSH {', '.join(_FLUSHED[:4])}")
    return FlushHosts() if what == "HOSTS" else NoOp("flush")


__all__ = ["flush", "upkeep"]
