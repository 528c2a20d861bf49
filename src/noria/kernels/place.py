"""Chooses the directory of compiled kernels, and locks it.

Keeps true: code compiled from other sources is never loaded.  The directory's name has Python's version, the processor,
and a digest of numba's version and of all sources of kernels.  Numba alone notices an edit only in the kernel's file.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from fcntl import LOCK_EX, LOCK_NB, flock
from functools import cache
from pathlib import Path

import numba

from noria.kernels import target

VARIABLE = "NORIA_KERNELS_DIR"
PACKAGE = Path(__file__).parents[1]
SOURCES = ("core/keys.py", "core/limits.py", "kernels/jit.py", "runtime/worker/frontier.py", "state/**/*.py",
           "storage/format/entries_hash.py", "storage/format/kernels.py", "storage/rocks/wal.py", "views/*.py")
SHIPPED = PACKAGE / "kernels" / "compiled"
_COMPLETE, _LOCK = "complete", "lock"


@cache
def name() -> str:
    """The directory's name: Python's version, the processor, and the digest."""
    digest = hashlib.sha256(numba.__version__.encode())
    for pattern in SOURCES:
        for source in sorted(PACKAGE.glob(pattern)):
            digest.update(str(source.relative_to(PACKAGE)).encode() + source.read_bytes())
    return f"cp{sys.version_info[0]}{sys.version_info[1]}-{target.choose()}-{digest.hexdigest()[:16]}"


@cache
def directory() -> Path:
    """The first usable one of: NORIA_KERNELS_DIR; the complete directory shipped in the package; a writable directory
    in the package's `__pycache__`; the user's cache."""
    if configured := os.environ.get(VARIABLE):
        path = Path(configured) / name()
        path.mkdir(parents=True, exist_ok=True)
        return path
    if is_complete(SHIPPED / name()):
        return SHIPPED / name()
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    tried = (PACKAGE / "__pycache__" / "kernels" / name(), home / "noria" / "kernels" / name())
    for path in tried:
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(path, os.W_OK):
            return path
    return tried[-1]  # not writable: compiled code is not saved


def is_complete(path: Path) -> bool:
    """True if a directory has the code of all kernels in `signatures.txt`."""
    try:
        return (path / _COMPLETE).read_text() == _listed()
    except OSError:
        return False


def mark_complete(path: Path) -> None:
    """Record that a directory has the code of all kernels in `signatures.txt`."""
    (path / _COMPLETE).write_text(_listed())


@cache
def _listed() -> str:
    return hashlib.sha256((PACKAGE / "kernels" / "signatures.txt").read_bytes()).hexdigest()


@contextmanager
def locked(path: Path, what: str = _LOCK, wait: bool = True) -> Iterator[bool]:
    """Hold a lock file in a directory.  Yields False if another process holds it and `wait` is False."""
    with (path / what).open("w") as file:
        try:
            flock(file, LOCK_EX if wait else LOCK_EX | LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True
