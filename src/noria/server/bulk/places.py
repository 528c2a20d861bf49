"""Directories of jobs, which go when their job has ended.

Keeps true: a directory that was removed is gone, also where a task that was cancelled still writes into it.
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

_GONE = ".gone"


def removed(place: Path) -> None:
    """The directory and all in it go.  It gets another name first: what still writes by the old one finds no
    directory, so nothing comes into it while it is emptied."""
    gone = place.with_name(place.name + _GONE)
    with suppress(FileNotFoundError):
        place.rename(gone)
    shutil.rmtree(gone, ignore_errors=True)
