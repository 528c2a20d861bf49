"""Raises this process's limit of open files, and measures the memory of a process."""

from __future__ import annotations

import contextlib
import os
import resource
from pathlib import Path


def raise_open_files() -> None:
    """Raise the limit of descriptors to the hard limit. The soft limit is often 1,024, for programs that use
    `select`; none of ours do."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):  # what a container forbids
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def resident_bytes(pid: int) -> int:
    """Resident bytes of a process; 0 if the process has ended."""
    try:
        with open(f"/proc/{pid}/statm") as f:
            return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return 0


def private_bytes(pid: int) -> int:
    """Bytes of a process's memory that it shares with no other; 0 if the process has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))
