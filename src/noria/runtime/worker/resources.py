"""Raises this process's limit of open files, keeps pandas out of it, and measures the memory of a process."""

from __future__ import annotations

import contextlib
import os
import resource
import sys
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa


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


class _NoPandas(MetaPathFinder):
    def find_spec(self, fullname: str, path: Any, target: Any = None) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError("a server does not use pandas", name=fullname)


def use_arrow_without_pandas() -> None:
    """Let PyArrow look for pandas now and not find it. It imports pandas at its first conversion of a NumPy array, to
    recognise values of pandas: 55 MB, which a server does not need.

    Call it first in a process that is the server's own. PyArrow does not look again, but `to_pandas` and a program's
    own `import pandas` work.
    """
    if "pandas" in sys.modules:
        return
    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        pa.array(np.zeros(1)).to_numpy()  # each of the two directions looks once
    finally:
        sys.meta_path.remove(finder)
