"""Writers of views in child processes, which print "up" once their view is published."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}  # to import the same modules


def start_writer(*arguments: str) -> subprocess.Popen[str]:
    """Run Python with these arguments, and return the process once its view is published."""
    process = subprocess.Popen([sys.executable, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                               env=ENVIRONMENT)
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    return process


@contextmanager
def writing(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run a writer until the end of the context, and kill it then."""
    process = start_writer(*arguments)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()
