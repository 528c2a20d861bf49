"""Chooses the Python that Spark starts for its tasks.  It needs this package, but PySpark starts `python3` of the PATH.

    .venv/bin/python script.py      PATH has another python3, without noria

On one host (`local[…]`) Spark can use the program's own Python.  On a cluster the user must name a Python that all
hosts have.  The driver's host needs it, too, because Spark plans there.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

LOOK = "import importlib.util, sys; sys.exit(importlib.util.find_spec('noria') is None)"
LOOK_S = 60  # a Python that starts more slowly cannot run tasks
SAID = "PYSPARK_PYTHON"


def use_python(context: Any) -> None:
    """Let local tasks use this program's Python, unless the user named another one.

    Raises RuntimeError if the tasks' Python is another one and has no noria.
    """
    if SAID not in os.environ and str(context.master).startswith("local"):
        context.pythonExec = sys.executable
    if context.pythonExec != sys.executable and not _has_noria(context.pythonExec):
        raise RuntimeError(f"Spark starts '{context.pythonExec}' for its tasks, and noria is not installed in that "
                           f"Python. Set {SAID}={sys.executable} in the environment before the session is made; on a "
                           "cluster, the path of a Python that has noria on all hosts")


def _has_noria(python: str) -> bool:
    try:
        return subprocess.run([python, "-c", LOOK], cwd="/", timeout=LOOK_S, capture_output=True).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False
