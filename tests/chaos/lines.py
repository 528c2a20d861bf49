"""Connections of other processes are cut: a worker's to another worker, or to the server.

`pidfd_getfd` gives this process a copy of another one's socket, and `shutdown` of the copy ends the connection for all
who have it, in the middle of whatever passes.  Keeps true: nothing else of the process is touched.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

PIDFD_GETFD = 438  # of the system calls, on all machines alike
_libc = ctypes.CDLL(None, use_errno=True)


def cut(pid: int, end: str) -> int:
    """All connections that this process made to sockets of this file name; how many there were."""
    with suppressed(), _sockets(pid) as found:
        ours = [s for s in found if os.path.basename(str(_peer(s))) == end]
        for s in ours:
            with contextlib.suppress(OSError):  # its other end has just gone
                s.shutdown(socket.SHUT_RDWR)
        return len(ours)
    return 0


def can_cut() -> bool:
    """May this user touch sockets of other processes of his?"""
    here, there = socket.socketpair()
    child = os.fork()
    if not child:
        os.read(there.fileno(), 1)
        os._exit(0)
    try:
        with _sockets(child) as found:
            return len(found) > 0
    except OSError:
        return False
    finally:
        here.send(b"x")
        os.waitpid(child, 0)
        here.close()
        there.close()


def suppressed() -> contextlib.suppress:
    return contextlib.suppress(ProcessLookupError, FileNotFoundError)


def _peer(line: socket.socket) -> object:
    try:
        return line.getpeername() if line.family is socket.AF_UNIX else ""
    except OSError:  # it listens
        return ""


@contextmanager
def _sockets(pid: int) -> Iterator[list[socket.socket]]:
    handle, found = os.pidfd_open(pid), list[socket.socket]()
    try:
        for name in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(FileNotFoundError):
                if os.readlink(f"/proc/{pid}/fd/{name}").startswith("socket:"):
                    found += _copy(handle, int(name))
        yield found
    finally:
        for s in found:
            s.close()
        os.close(handle)


def _copy(handle: int, number: int) -> list[socket.socket]:
    """None where it was closed meanwhile."""
    copy = _libc.syscall(PIDFD_GETFD, handle, number, 0)
    if copy >= 0:
        return [socket.socket(fileno=copy)]
    error = ctypes.get_errno()
    if error in (9, 3):  # EBADF, ESRCH
        return []
    raise OSError(error, os.strerror(error))
