"""The errors of a data directory, and of a full disk.

`StoreError` is for the process that starts the store: nothing was opened.  A statement that finds no space gets
MySQL's error 1021; the store continues once there is space again.
"""

from __future__ import annotations

from noria.core.errors import SqlError
from noria.core.errors.codes import CRASHED_ON_USAGE, DISK_FULL
from noria.dataflow.graph.protocols import StoreBroken


class StoreError(StoreBroken):
    """The data directory cannot be used; the message says why and what to do."""


class StoreDamaged(StoreError):
    """What is on disk is not what was written; a restart does not help."""


class StoreInUse(StoreError):
    """Another process has locked the data directory."""


class StoreFenced(StoreError):
    """A later owner has opened the data directory, so this process must not write."""


class StoreNewer(StoreError):
    """A newer release wrote what is on disk."""


def refuse_newer(path: str, stored: bytes | None, known: int) -> None:
    """Raise StoreNewer if the stored format is above the one that this release knows."""
    if stored is not None and stored.isdigit() and int(stored) > known:
        raise StoreNewer(f"the data directory {path} was written by a newer version of Noria (format {int(stored)}, "
                         f"this one reads {known}): use that version, for this command too")


def disk_full(path: str, detail: str) -> SqlError:
    return SqlError(*DISK_FULL, f"Disk full ({path}): {detail}; the statement changed nothing, "
                                "free some space and send it again (DELETE and DROP TABLE may use a small "
                                "reserve; DROP TABLE frees space at once)")


def table_damaged(table: str, detail: str) -> SqlError:
    return SqlError(*CRASHED_ON_USAGE, f"Table '{table}' is marked as crashed: a file of it cannot be read "
                                            f"({detail}); the other tables are served. Restore a backup (noria "
                                            "restore), or DROP TABLE and load it again")


def one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def opening_error(path: str, error: Exception) -> StoreError:
    """The StoreError for RocksDB's message at an opening."""
    text = one_line(error)
    if "LOCK:" in text and "available" in text:  # "Resource temporarily unavailable", "No locks available"
        return StoreInUse(f"the data directory {path} is in use by another process: stop it first, "
                          "or give another --data-dir")
    if "No space left" in text:
        return StoreError(f"no space left to open the data directory {path}: free some and start again")
    if "ermission denied" in text:
        return StoreError(f"no permission to open the data directory {path}: {text}")
    return damaged(path, text)


def damaged(path: str, detail: str) -> StoreDamaged:
    return StoreDamaged(f"the data directory {path} is damaged: {detail}; restore it from a backup "
                        "(noria restore) or load the data again into an empty directory")
