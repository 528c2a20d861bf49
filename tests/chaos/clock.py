"""A system clock of the server's own, which jumps: Debian's libfaketime, preloaded into each of its processes.

Keeps true: clocks that run evenly (CLOCK_MONOTONIC and its kin) are the machine's; only the time of day is moved, and
for nobody else on the machine.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

LIBRARY = next((str(p) for p in Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1")), None)
READ_AGAIN_S = 1


class Clock:
    """The offset is in `file`, which the library reads every READ_AGAIN_S seconds."""

    def __init__(self, file: Path):
        assert LIBRARY is not None, "Debian's libfaketime is not installed"
        self._file = file
        self.jump(0)
        self.environment = {
            "LD_PRELOAD": LIBRARY, "FAKETIME_TIMESTAMP_FILE": str(file), "FAKETIME_CACHE_DURATION": str(READ_AGAIN_S),
            "FAKETIME_DONT_FAKE_MONOTONIC": "1", "FAKETIME_DISABLE_SHM": "1"}

    def jump(self, seconds: int) -> None:
        """To so many seconds from the machine's clock."""
        new = self._file.with_suffix(".new")
        new.write_text(f"{seconds:+d}s\n")
        os.replace(new, self._file)
        self._offset = seconds

    def shown(self, now: datetime, seconds: float = 120) -> bool:
        """Is this (a time in UTC) what the clock says, up to some seconds?"""
        true = datetime.now(UTC).replace(tzinfo=None) + timedelta(seconds=self._offset)
        return abs((now - true).total_seconds()) < seconds
