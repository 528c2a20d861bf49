"""Starts a server's Spark driver early, so that it imports its modules while the server imports its own.

Keeps true: the process only imports until the supervisor calls `take_driver` and sends `StartSession`.  If the
supervisor never does so, the process ends with this one.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from dataclasses import dataclass

from noria.spark.hosting.session import import_path

_begun: list[StartedDriver] = []


@dataclass(frozen=True)
class StartedDriver:
    """A driver process that was started.  channel: our end of its socket pair."""

    process: subprocess.Popen[bytes]
    channel: socket.socket

    @property
    def pid(self) -> int:
        return self.process.pid

    async def wait(self) -> int:
        """Wait for the end of the process and return its exit code."""
        return await asyncio.to_thread(self.process.wait)


def begin() -> None:
    """Start the process.  Until it receives `StartSession`, its error output goes to this process's stderr."""
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", "noria.spark.hosting.driver", str(theirs.fileno())], pass_fds=(theirs.fileno(),),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True,
            env={**os.environ, "PYTHONPATH": import_path()})
    _begun.append(StartedDriver(process, ours))


def take_driver() -> StartedDriver | None:
    """Return the process that `begin` started, once; None if there is none."""
    return _begun.pop() if _begun else None
