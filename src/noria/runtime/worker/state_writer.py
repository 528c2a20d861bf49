"""Writes the states of a worker to a checkpoint file: in a forked process while it serves, or at once at its end.

Call `fork` and then `ended`, or `write`.

Keeps true: the forked process has the memory of the moment of the fork, so the worker waits some milliseconds for the
fork and not for the disk. It uses only its memory and its own file. It ends with the worker.
"""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from noria.core.limits import CHECKPOINT_MOST_S, SAVED_BYTES
from noria.dataflow.worker.saving import Named
from noria.runtime.worker.parent_end import end_with_parent
from noria.state.symbols.symbols import SymbolTable
from noria.storage.commits import state_file
from noria.storage.rocks.store_position import StorePosition

_FIRST_FILE = 3  # behind the standard streams
_NICE = 10  # the writer yields to serving processes


class StateWriter:
    """`directory`: of the file. `symbols`: the texts of the states."""

    def __init__(self, directory: Path, symbols: SymbolTable):
        self._directory, self._symbols = directory, symbols
        self._pid = 0  # of the process that writes

    @property
    def is_writing(self) -> bool:
        return bool(self._pid)

    def fork(self, position: StorePosition, states: Callable[[], Iterable[Named]], cut: str = "") -> None:
        """Begin to write the file NEXT in a forked process. OSError if there is no memory for it."""
        worker = os.getpid()
        pid = os.fork()
        if not pid:
            self._write_forked(position, states, cut, worker)
        self._pid = pid

    def _write_forked(self, position: StorePosition, states: Callable[[], Iterable[Named]], cut: str,
                      worker: int) -> None:
        code = 1
        with suppress(BaseException):
            gc.disable()  # an object of RocksDB must not be freed: its threads are not here
            for number in (signal.SIGTERM, signal.SIGALRM, signal.SIGINT):
                signal.signal(number, signal.SIG_DFL)
            signal.alarm(CHECKPOINT_MOST_S)
            end_with_parent()
            if os.getppid() != worker:  # it ended before
                os._exit(code)
            os.closerange(_FIRST_FILE, os.sysconf("SC_OPEN_MAX"))  # peers of a killed worker must see the end
            os.nice(_NICE)
            self.write(position, states(), state_file.NEXT, lambda: True, cut)
            code = 0
        os._exit(code)

    def ended(self) -> str | None:
        """Why the forked process has failed, "" if it has written the file, None if it still writes."""
        try:
            ended, status = os.waitpid(self._pid, os.WNOHANG)
        except ChildProcessError:  # already reaped: the file shows the outcome
            ended, status = self._pid, 0
        if not ended:
            return None
        self._pid = 0
        return f"the process that saves them ended with status {status}" if status else ""

    def stop(self) -> None:
        """Kill the forked process."""
        if self._pid:
            with suppress(OSError):
                os.kill(self._pid, signal.SIGKILL)
                os.waitpid(self._pid, 0)
            self._pid = 0

    def write(self, position: StorePosition, some: Iterable[Named], file: str, in_time: Callable[[], bool],
              cut: str = "") -> None:
        """Write the states now, as far as they fit. With a cut, write all of them or raise OSError: a state of another
        worker may derive from each."""
        states, disk = list(some), os.statvfs(self._directory)
        most = min(SAVED_BYTES, disk.f_bavail * disk.f_frsize // 2)
        strings = self._symbols.saved()
        written, nbytes = 0, sum(s.nbytes for s in strings)
        if cut:
            nbytes += sum(size for _, size, _ in states)
        if states and nbytes < most:
            written = state_file.save(self._directory, position, strings, states,
                                      lambda nbytes: nbytes < most and in_time(), file, cut)
        if cut and written < len(states):
            (self._directory / file).unlink(missing_ok=True)
            raise OSError(f"{len(states) - written} states do not fit")
