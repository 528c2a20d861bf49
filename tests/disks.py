"""Small disks, which can be filled."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@contextlib.contextmanager
def small_disk(mount: Path, megabytes: int) -> Iterator[Path]:
    """A disk of its own at an empty directory.  Skips the test where none can be mounted."""
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(mount)],
                          capture_output=True)
    if made.returncode:
        pytest.skip(f"cannot mount a small tmpfs: {made.stderr.decode().strip()}")
    try:
        yield mount
    finally:
        subprocess.run(["umount", "-l", str(mount)], check=True)


def occupy(path: Path) -> None:
    """Take all space that is left, by this file."""
    with open(path, "wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(2**16))
