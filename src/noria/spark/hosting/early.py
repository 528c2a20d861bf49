"""A server's Spark driver, whose process begins to import before the server itself has imported what it needs.

Keeps true: nothing runs in it but imports until the supervisor takes it and sends `Start`; if nobody takes it, it ends
with this process.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from dataclasses import dataclass

from noria.spark.hosting.session import import_path

_begun: list[Begun] = []


@dataclass(frozen=True)
class Begun:
    """channel: our end of its socket pair."""

    process: subprocess.Popen[bytes]
    channel: socket.socket

    @property
    def pid(self) -> int:
        return self.process.pid

    async def wait(self) -> int:
        """Its exit code, when it has ended."""
        return await asyncio.to_thread(self.process.wait)


def begin() -> None:
    """Start the process; what it says before `Start` goes where this one's errors go."""
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", "noria.spark.hosting.driver", str(theirs.fileno())], pass_fds=(theirs.fileno(),),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True,
            env={**os.environ, "PYTHONPATH": import_path()})
    _begun.append(Begun(process, ours))


def taken() -> Begun | None:
    """The process that was begun, for the first who asks."""
    return _begun.pop() if _begun else None
