"""Directories of jobs, which go when their job has ended.

Keeps true: a directory that was removed is gone, also where a task that was cancelled still writes into it.
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

_GONE = ".gone"
TRIES = 10


def removed(place: Path) -> None:
    """The directory and all in it go.  It gets another name first: what still writes by the old one finds no
    directory, so at most what was on its way comes into it while it is emptied, and goes with the next try."""
    gone = place.with_name(place.name + _GONE)
    with suppress(FileNotFoundError):
        place.rename(gone)
    for _ in range(TRIES):
        shutil.rmtree(gone, ignore_errors=True)
        if not gone.exists():
            return
