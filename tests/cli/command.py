"""The noria program, run as a process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SRC = str(Path(__file__).parents[2] / "src")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """`noria` with these arguments, to its end."""
    return subprocess.run([sys.executable, "-m", "noria", *arguments], capture_output=True, text=True, timeout=60,
                          env={**os.environ, "PYTHONPATH": SRC}, check=False)
