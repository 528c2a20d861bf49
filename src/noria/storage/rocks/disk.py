"""What is on the way to disk, brought there."""

from __future__ import annotations

import os
from pathlib import Path


def sync(path: str | Path) -> None:
    """Of a file its bytes, of a directory its entries."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
