"""The run directory of a server: its sockets and the files of its views.

Keeps true: a server finds its run directory empty, and no other user can read it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from pathlib import Path

from noria.server.settings import SettingsError
from noria.views import files

SHARED_MEMORY = Path("/dev/shm")
RUN_DIR_CHARACTERS = 95  # a Unix socket's path may be 107
_AFTER_ALL = "g"  # the names of view files begin with hexadecimal digits


def remove_run_dir(path: Path) -> None:
    """Mark the views in the directory as dead, for other processes that have them mapped, and remove it."""
    for views in path.glob(f"{files.VIEWS}*"):
        with contextlib.suppress(OSError, ValueError):  # incomplete files of a worker that died
            files.bury(str(views), _AFTER_ALL)
    shutil.rmtree(path, ignore_errors=True)


def make_run_dir(data_dir: Path, root: Path | None = None) -> Path:
    """Create an empty run directory, under `root`, /dev/shm or the data directory, in this order of preference.

    In /dev/shm, views are never written to a disk.  All servers of a data directory use the same path.  The caller has
    claimed the data directory, so files in the run directory are from a dead process and are removed.
    """
    if root is None:
        root = SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK) else data_dir
    digest = hashlib.sha256(str(data_dir).encode()).hexdigest()[:12]
    path = root / f"noria-{os.getuid()}-{digest}"
    if len(str(path)) > RUN_DIR_CHARACTERS:
        raise SettingsError(f"the path of the run directory {path} is too long for a socket in it: use a data "
                            "directory with a shorter path")
    if path.is_symlink() or (path.exists() and path.stat().st_uid != os.getuid()):
        raise SettingsError(f"the run directory {path} belongs to somebody else: remove it, or have it removed")
    remove_run_dir(path)
    try:
        path.mkdir(mode=0o700)
    except OSError as e:
        raise SettingsError(f"the run directory {path} cannot be made: {e.strerror}") from e
    return path
