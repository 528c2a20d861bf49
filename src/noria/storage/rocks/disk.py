"""Brings files and directories to disk."""

from __future__ import annotations

import os
from pathlib import Path


def sync(path: str | Path) -> None:
    """Sync a file's bytes, or a directory's entries."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
