"""Runs the processes that read snapshots for clients (`storage/offline/scanning.py`).

A process is started when it is needed and used again.  Keeps true: at most SOURCE_STREAMS of them are in use, and
further requests wait.  If a client disconnects within a stream, the process is ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from typing import Any

from noria.core.errors import SqlError
from noria.core.errors.codes import UNKNOWN_ERROR
from noria.core.limits import SOURCE_STREAMS
from noria.storage.offline.scanning import FAILED, LENGTH

COMMAND = (sys.executable, "-m", "noria.storage.offline.scanning")


class Scanners:
    """The scanning processes.  most: how many are in use at once."""
    def __init__(self, most: int = SOURCE_STREAMS):
        self._free: list[Process] = []
        self._running: set[Process] = set()
        self._slots = asyncio.Semaphore(most)

    async def rows(self, request: dict[str, Any]) -> AsyncIterator[bytes]:
        """Yield the Arrow stream that answers the request, in frames.  Raises SqlError 1105 if the process fails."""
        async with self._slots:
            process = await self._taken()
            complete = False
            try:
                assert process.stdin is not None and process.stdout is not None
                process.stdin.write(json.dumps(request).encode() + b"\n")
                while (frame := await _frame(process)) is not None:
                    yield frame
                complete = True
            except (asyncio.IncompleteReadError, ConnectionError):
                raise SqlError(*UNKNOWN_ERROR, "the process that was reading the snapshot ended (for lack of memory?): "
                                               "read again") from None
            finally:
                self._back(process, complete)

    async def _taken(self) -> Process:
        while self._free:
            process = self._free.pop()
            if process.returncode is None:
                return process
        process = await asyncio.create_subprocess_exec(*COMMAND, stdin=PIPE, stdout=PIPE)
        self._running.add(process)
        return process

    def _back(self, process: Process, complete: bool) -> None:
        if complete:
            self._free.append(process)
            return
        self._running.discard(process)
        with contextlib.suppress(ProcessLookupError):
            process.kill()

    async def close(self) -> None:
        running, self._running, self._free = self._running, set(), []
        for process in running:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


async def _frame(process: Process) -> bytes | None:
    """Return the next frame of the process; None at the end of the stream."""
    assert process.stdout is not None
    (length,) = LENGTH.unpack(await process.stdout.readexactly(LENGTH.size))
    if length == FAILED:
        (length,) = LENGTH.unpack(await process.stdout.readexactly(LENGTH.size))
        message = (await process.stdout.readexactly(length)).decode("utf-8", "replace")
        raise SqlError(*UNKNOWN_ERROR, f"the snapshot could not be read: {message}")
    return await process.stdout.readexactly(length) if length else None
