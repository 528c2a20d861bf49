"""Programs without a network, and without root: in a network namespace that has its loopback only."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NOBODY = 65534
_UP = 'ip link set lo up && exec "$@"'


def command(*words: str) -> list[str]:
    """The words run apart: as nobody when we are root, else as ourselves."""
    if os.getuid():
        return ["unshare", "-rn", "sh", "-c", _UP, "sh", *words]
    # `env`: what setpriv itself starts is still found with root's rights.
    as_nobody = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--no-new-privs", "env"]
    return ["unshare", "-n", "sh", "-c", _UP, "sh", *as_nobody, *words]


@contextmanager
def home() -> Iterator[Path]:
    """A new directory of the user that `command` runs as."""
    directory = Path(tempfile.mkdtemp(prefix="noria-apart-"))
    try:
        if not os.getuid():
            os.chown(directory, NOBODY, NOBODY)
        yield directory
    finally:
        shutil.rmtree(directory)


def environment(directory: Path) -> dict[str, str]:
    """What the user has of ours: where Java is."""
    kept = {name: os.environ[name] for name in ("JAVA_HOME", "LANG") if name in os.environ}
    return {**kept, "HOME": str(directory), "TMPDIR": str(directory), "PATH": "/usr/local/bin:/usr/bin:/bin"}


@functools.cache
def python() -> str | None:
    """An interpreter of our version that the user may run, with the packages of ours in reach."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    ours = os.path.realpath(sys.executable)
    for program in (ours, f"/usr/local/bin/{version}", f"/usr/bin/{version}"):
        check = command(program, "-c", "import sqlite3, ssl, venv")
        try:
            subprocess.run(check, check=True, capture_output=True, cwd="/")
        except (OSError, subprocess.CalledProcessError):
            continue
        return program
    return None
