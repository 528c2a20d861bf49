"""A time of day of the server's own, which jumps: `clock.c`, preloaded into each of its processes.

Debian's libfaketime would do, but it takes a wait on an even clock, as Python's sleep is, for one on the clock that it
moves.  Keeps true: even clocks are the machine's, and nobody else's time of day is moved.
"""

from __future__ import annotations

import mmap
import shutil
import struct
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

COMPILER = shutil.which("cc")


class Clock:
    """Below `directory`, which must exist; needs a C compiler."""

    def __init__(self, directory: Path):
        assert COMPILER is not None, "there is no C compiler"
        library, file = directory / "clock.so", directory / "clock"
        subprocess.run([COMPILER, "-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-o", library,
                        Path(__file__).with_suffix(".c"), "-ldl"], check=True)
        file.write_bytes(bytes(8))
        with file.open("r+b") as opened:
            self._words = mmap.mmap(opened.fileno(), 8)
        self.environment = {"LD_PRELOAD": str(library), "CHAOS_CLOCK": str(file)}
        self._offset = 0

    def jump(self, seconds: int) -> None:
        """To so many seconds from the machine's clock."""
        self._words[:] = struct.pack("=q", seconds)
        self._offset = seconds

    def shown(self, now: datetime, seconds: float = 60) -> bool:
        """Is this (a time in UTC) what the clock says, up to some seconds?"""
        true = datetime.now(UTC).replace(tzinfo=None) + timedelta(seconds=self._offset)
        return abs((now - true).total_seconds()) < seconds
