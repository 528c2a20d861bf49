"""What this process may take of the system, and what a process takes."""

from __future__ import annotations

import contextlib
import resource
from pathlib import Path


def raise_open_files() -> None:
    """As many descriptors as the system lets this process have: the soft limit is often 1,024, for programs that use
    `select`, which none of ours do."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):  # what a container forbids
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def private_bytes(pid: int) -> int:
    """Of a process's memory what no other one shares; 0 for one that is gone."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))
