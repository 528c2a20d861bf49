"""Removes the directories of jobs that have ended.

Keeps true: a removed directory stays removed, even if a cancelled task still writes by its old name.
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

_GONE = ".gone"
TRIES = 10


def remove_directory(place: Path) -> None:
    """Remove a directory and everything in it.

    The directory is renamed first, so that a task that writes by the old name finds no directory.  A file that is
    created while the directory is emptied is removed by the next try.
    """
    gone = place.with_name(place.name + _GONE)
    with suppress(FileNotFoundError):
        place.rename(gone)
    for _ in range(TRIES):
        shutil.rmtree(gone, ignore_errors=True)
        if not gone.exists():
            return
